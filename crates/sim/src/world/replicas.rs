//! Shards with several replicas: who serves which, what is missing where, and servers that take
//! their copies with them.
//!
//! ```text
//!   master: entry { epoch, primary, replicas } ── every replica here, of this epoch, with everything ──► whole
//!   servers: figures of their replicas         └─ the primary here, and serving in this epoch ─────────► served
//! ```
//! In a world whose shards have one copy, whoever has a shard serves it. What is deliberately
//! absent: what replicas hold. Whoever reads from each of them finds that out.

use timestone_cluster::{ServerId, ShardEntry};
use timestone_seda::simulated::VirtualTime;
use timestone_server::{AcceptedLoss, Environment, ReplicaFigures, ShardFigures, Step};
use timestone_types::Epoch;
use timestone_types::random::Seed;

use super::World;
use crate::network::ProcessId;
use crate::process::{Process, ProcessLife, Role};

impl World {
    /// The shards as the master knows them, with whether the configuration of each has served;
    /// none in a world whose shards have one copy.
    pub(crate) fn replicated_shards(&self) -> Vec<(ShardEntry, bool)> {
        let Some(master) = self.master.as_ref().filter(|_| self.config.members.are_replicated())
        else {
            return Vec::new();
        };
        let control = master.control();
        let shards = control.map.shards().iter().zip(&control.normal);
        shards.map(|(entry, normal)| (entry.clone(), normal.epoch == entry.epoch)).collect()
    }

    /// The process that lives as this server.
    pub(crate) fn process_of(&self, server: ServerId) -> Option<&Process> {
        self.processes.iter().find(|process| {
            matches!(&process.life, ProcessLife::Serving(serving) if serving.server == server)
        })
    }

    /// Whether a process is the server that serves some shard, or is to.
    pub(crate) fn is_primary(&self, process: &Process) -> bool {
        let ProcessLife::Serving(serving) = &process.life else { return false };
        let mut shards = self.replicated_shards().into_iter();
        !self.config.members.are_replicated()
            || shards.any(|(entry, _)| entry.primary == serving.server)
    }

    /// What a server's replica of a shard says of itself.
    fn replica(&self, entry: &ShardEntry, server: ServerId) -> Option<ReplicaFigures> {
        let ProcessLife::Serving(serving) = &self.process_of(server)?.life else { return None };
        (serving.replicas)().into_iter().find(|replica| replica.shard == entry.id)
    }

    /// Whether the shard's primary is up and serves.
    pub(crate) fn is_served(&self, entry: &ShardEntry) -> bool {
        let is_up = self.process_of(entry.primary).is_some_and(|process| !process.paused);
        let replica = self.replica(entry, entry.primary);
        is_up
            && replica.is_some_and(|replica| {
                replica.step == Some(Step::Serving) && replica.installed == entry.epoch
            })
    }

    /// How many of a shard's replicas have everything.
    pub(crate) fn whole_replicas(&self, entry: &ShardEntry) -> usize {
        let has_all = |server: &&ServerId| {
            let replica = self.replica(entry, **server);
            replica.is_some_and(|replica| {
                replica.step.is_some() && replica.installed == entry.epoch && replica.lag == 0
            })
        };
        entry.replicas.iter().filter(has_all).count()
    }

    /// Whether so many replicas of each shard are of use to others, with what they had, that somebody
    /// must be able to serve it: not those that take a checkpoint.
    pub(crate) fn has_enough_copies(&self, is_of_use: impl Fn(ProcessId) -> bool) -> bool {
        let Some(master) = self.master.as_ref().filter(|_| self.config.members.are_replicated())
        else {
            return true;
        };
        let (control, quorum) = (master.control(), self.config.members.replication.quorum());
        control.map.shards().iter().zip(&control.normal).all(|(entry, normal)| {
            let has_state = |server: &&ServerId| {
                let process = self.process_of(**server);
                let replica = self.replica(entry, **server);
                process.is_some_and(|process| is_of_use(process.id))
                    && replica.is_some_and(|replica| {
                        replica.step.is_some_and(|step| step != Step::Rebuilding)
                            && (normal.has_never_served() || replica.installed > Epoch::ZERO)
                    })
            };
            let is_enough =
                |servers: &[ServerId]| servers.iter().filter(has_state).count() >= quorum;
            is_enough(&entry.replicas) && is_enough(&normal.replicas)
        })
    }

    /// Whether all replicas of all shards have everything.
    pub(crate) fn is_whole(&self) -> bool {
        let shards = self.replicated_shards();
        let wanted = self.config.members.replication.replicas();
        !shards.is_empty()
            && self.is_complete()
            && shards.iter().all(|(entry, _)| self.whole_replicas(entry) == wanted)
    }

    /// Whether every shard has as many replicas as it is to have, and one of them serves; always
    /// where shards have one.
    pub(crate) fn is_complete(&self) -> bool {
        let wanted = self.config.members.replication.replicas();
        self.replicated_shards().iter().all(|(entry, has_served)| {
            *has_served && entry.replicas.len() == wanted && self.is_served(entry)
        })
    }

    /// The figures of every shard at the server that serves it, or is to.
    pub(crate) fn figures(&self) -> Vec<(ProcessId, ShardFigures)> {
        let mut figures = self.processes.figures();
        let shards = self.replicated_shards();
        if !shards.is_empty() {
            figures.retain(|(id, figures)| {
                let entry = shards.iter().find(|(entry, _)| entry.id == figures.shard);
                let primary = entry.and_then(|(entry, _)| self.process_of(entry.primary));
                primary.is_some_and(|process| process.id == *id)
            });
        }
        figures
    }

    /// A server dies for good.
    pub(crate) fn end_for_good(&mut self, id: ProcessId, seed: Seed) {
        let silent = seed.derive("silent", 0).dice().chance(0.5);
        self.trace.note(self.now(), id, "dies for good");
        self.kill(id, silent, seed);
        self.processes[id].is_gone = true;
    }

    /// A server dies, and its disks are gone: with the whole data directory, or without the small
    /// files in it.
    pub(crate) fn lose_disks(
        &mut self,
        id: ProcessId,
        with_directory: bool,
        seed: Seed,
        until: VirtualTime,
    ) {
        let words = if with_directory { "loses its data directory" } else { "loses its devices" };
        self.trace.note(self.now(), id, words);
        self.kill(id, true, seed);
        if let Role::Server(server) = &mut self.processes[id].role {
            if with_directory {
                server.environment.lose_directory();
            } else {
                server.environment.lose_devices();
                server.config.accept_loss = AcceptedLoss::Everything;
            }
        }
        self.start_at(id, until);
    }

    /// A server's data directory is copied, while it runs or while it is down; or, if there is a copy
    /// that is to be noticed, the server dies, and the copy takes the directory's place. Whether it
    /// did.
    pub(crate) fn copy_or_put_back(
        &mut self,
        id: ProcessId,
        seed: Seed,
        until: VirtualTime,
    ) -> bool {
        let (Role::Server(server), Some(master)) = (&self.processes[id].role, &self.master) else {
            return false;
        };
        let environment = server.environment.clone();
        let known = master.control().last_run(environment.directory()).number;
        let (now, mut dice) = (self.now(), seed.derive("copy", 0).dice());
        let (silent, runs) = (dice.chance(0.5), dice.chance(0.5));
        match environment.copy_is_noticed_from() {
            Some(from) if known < from => return false,
            Some(_) => {
                self.kill(id, silent, seed);
                environment.put_copy_back();
                self.trace.note(now, id, "gets an older copy of its data directory");
                self.start_at(id, until);
                return true;
            }
            // The directory may be one number ahead of the master.
            None if runs => {
                environment.copy_directory(known + 2);
                self.trace.note(now, id, "its data directory is copied while it runs");
            }
            None => {
                self.kill(id, silent, seed);
                environment.copy_directory(known + 1);
                self.trace.note(now, id, "its data directory is copied");
                self.start_at(id, until);
            }
        }
        false
    }

    /// A server cannot reach the master outside, or can again.
    pub(crate) fn cut_from_master(&self, id: ProcessId, is_cut: bool) {
        if let Some(master) = &self.master {
            master.cut_off(id, is_cut);
        }
    }

    /// The master outside answers nobody any more, perhaps with something on its way to it, or
    /// everybody again.
    pub(crate) fn set_master_gone(&mut self, asked: Option<bool>) {
        let Some(master) = &self.master else { return };
        let words = if asked.is_some() { "the master is gone" } else { "the master is back" };
        // A fault that concerns no process in particular is told as the first one's.
        self.trace.note(self.truth.now(), ProcessId(0), words);
        match asked {
            Some(asked) => master.leave(asked),
            None => master.come_back(),
        }
    }
}
