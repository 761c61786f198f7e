//! The master of a world whose servers do not host it, as one on etcd: it outlives all of them.
//!
//! ```text
//!   server ── open_master ──► OutsideMaster ── the same core, leases by true time ── may be gone for a while
//!   run ───── control ──────►       └─ counts: epochs, changes of primaries
//! ```
//! What is durable at once stays: this master never loses anything. While it is gone it answers
//! nobody; what it had been asked just before may be carried out, and nobody hears of it. What is
//! deliberately absent: the way there and back, which costs nothing, as the thread that asks etcd
//! in production waits for it apart from all stages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use timestone_cluster::{
    ControlState, EmbeddedMaster, MapVersion, Master, MasterAnswer, MasterCommand, MasterFailure,
    MasterService, ReplicationFactor, ServerId, ShardChange, ShardMap, Term,
};
use timestone_types::random::Seed;
use timestone_types::{ClusterId, HashSeed, Timestamp};

use crate::clock::{EPOCH, TrueTime};
use crate::error::SimError;
use crate::network::ProcessId;

/// Leases of servers and of the controller: as short as those of etcd may be.
const LEASE: Duration = Duration::from_secs(2);

struct MasterHost {
    master: EmbeddedMaster,
    truth: TrueTime,
    is_gone: bool,
    /// Servers that cannot reach it, once for each cut.
    cut_off: Vec<ProcessId>,
    /// It went with something on its way to it.
    is_asked: bool,
    /// Its configurations, as of a revision.
    control: Option<(u64, Arc<ControlState>)>,
}

impl MasterHost {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(EPOCH.as_nanos() + self.truth.now().as_nanos())
    }
}

/// See the module; clones are the same master.
#[derive(Clone)]
pub(crate) struct OutsideMaster {
    host: Arc<Mutex<MasterHost>>,
    /// Who asks it, where that is a server.
    asker: Option<ProcessId>,
}

impl std::fmt::Debug for OutsideMaster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OutsideMaster").field(&self.lock().master).finish_non_exhaustive()
    }
}

impl OutsideMaster {
    /// The master of a new cluster of so many shards.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn found(
        truth: TrueTime,
        shards: u16,
        replication: ReplicationFactor,
        seed: Seed,
    ) -> Result<Self, SimError> {
        let cluster = ClusterId::new(seed.derive("cluster", 0).0);
        let hash_seed = HashSeed(seed.derive("hashes", 0).0);
        let master = Master::create_replicated(cluster, shards, replication, hash_seed)
            .map_err(SimError::world)?;
        // Whatever it is told to keep, it keeps.
        let master = EmbeddedMaster::new(master, LEASE, |_| Ok(()));
        let host = MasterHost {
            master,
            truth,
            is_gone: false,
            cut_off: Vec::new(),
            is_asked: false,
            control: None,
        };
        Ok(Self { host: Arc::new(Mutex::new(host)), asker: None })
    }

    /// The same, as a server asks it.
    pub(crate) fn asked_by(&self, server: ProcessId) -> Self {
        Self { host: Arc::clone(&self.host), asker: Some(server) }
    }

    /// Keeps a server from reaching it, or ends one such cut.
    pub(crate) fn cut_off(&self, server: ProcessId, is_cut: bool) {
        let mut host = self.lock();
        if is_cut {
            host.cut_off.push(server);
        } else if let Some(at) = host.cut_off.iter().position(|&cut| cut == server) {
            host.cut_off.swap_remove(at);
        }
    }

    fn lock(&self) -> MutexGuard<'_, MasterHost> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It answers nobody from now on. `asked`: what it is asked next it carries out nevertheless.
    pub(crate) fn leave(&self, asked: bool) {
        let mut host = self.lock();
        (host.is_gone, host.is_asked) = (true, asked);
    }

    /// It answers again.
    pub(crate) fn come_back(&self) {
        let mut host = self.lock();
        (host.is_gone, host.is_asked) = (false, false);
    }

    /// Whether it answers nobody.
    pub(crate) fn is_gone(&self) -> bool {
        self.lock().is_gone
    }

    /// The map, the configurations that served last, and the term, whether it answers or not.
    pub(crate) fn control(&self) -> Arc<ControlState> {
        let mut host = self.lock();
        let revision = host.master.master().revision();
        if let Some((known, control)) = &host.control
            && *known == revision
        {
            return Arc::clone(control);
        }
        let answer = host.master.execute(MasterCommand::FetchControl);
        let Ok(MasterAnswer::Control(control)) = answer else {
            panic!("a master tells its configurations: {answer:?}");
        };
        let control = Arc::new(control);
        host.control = Some((revision, Arc::clone(&control)));
        control
    }

    /// Changes a shard as its controller could. Whether the master did.
    pub(crate) fn change(&self, change: ShardChange) -> bool {
        let mut host = self.lock();
        let term = host.master.master().controller().0;
        let changed = host.master.execute(MasterCommand::ChangeShard { term, change });
        matches!(changed, Ok(MasterAnswer::Changed(_)))
    }

    /// Asks, if there is anybody to ask.
    fn ask<T>(
        &self,
        ask: impl FnOnce(&mut EmbeddedMaster, Timestamp) -> Result<T, MasterFailure>,
    ) -> Result<T, MasterFailure> {
        let mut host = self.lock();
        let now = host.now();
        let is_cut = self.asker.is_some_and(|server| host.cut_off.contains(&server));
        if !host.is_gone && !is_cut {
            return ask(&mut host.master, now);
        }
        if std::mem::take(&mut host.is_asked) {
            drop(ask(&mut host.master, now));
        }
        Err(MasterFailure::Unavailable { detail: "it does not answer".to_owned() })
    }
}

impl MasterService for OutsideMaster {
    fn execute(&mut self, command: MasterCommand) -> Result<MasterAnswer, MasterFailure> {
        self.ask(|master, _| master.execute(command))
    }

    fn renew(&mut self, _: Timestamp, server: ServerId) -> Result<(), MasterFailure> {
        self.ask(|master, now| master.renew(now, server))
    }

    fn alive(&mut self, _: Timestamp) -> Result<Vec<ServerId>, MasterFailure> {
        self.ask(|master, now| master.alive(now))
    }

    fn campaign(&mut self, _: Timestamp, server: ServerId) -> Result<Option<Term>, MasterFailure> {
        self.ask(|master, now| master.campaign(now, server))
    }

    fn resign(&mut self, server: ServerId) -> Result<(), MasterFailure> {
        self.ask(|master, _| master.resign(server))
    }

    fn map_above(&mut self, seen: MapVersion) -> Result<Option<ShardMap>, MasterFailure> {
        self.ask(|master, _| master.map_above(seen))
    }
}

#[cfg(test)]
mod tests {
    use timestone_cluster::{DirectoryId, Run, ServerAddresses};
    use timestone_seda::simulated::VirtualTime;
    use timestone_types::ShardId;

    use super::*;

    fn master(replication: u8) -> (OutsideMaster, TrueTime) {
        let (truth, replication) = (TrueTime::default(), ReplicationFactor::new(replication));
        let replication = replication.expect("a factor");
        (OutsideMaster::found(truth.clone(), 2, replication, Seed(1)).expect("a master"), truth)
    }

    fn register(master: &mut OutsideMaster, directory: u64) -> Result<ServerId, MasterFailure> {
        let command = MasterCommand::RegisterServer {
            cluster: ClusterId::ZERO,
            directory: DirectoryId(directory),
            run: Run { number: 1, tag: 1 },
            addresses: ServerAddresses::IN_PROCESS,
            shards_wanted: 1,
        };
        match master.execute(command)? {
            MasterAnswer::Server { server, .. } => Ok(server),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_is_gone_answers_nobody_and_has_done_at_most_what_it_was_asked_last() {
        let (mut master, _) = master(1);
        let first = register(&mut master, 1).expect("it is there");
        master.leave(true);
        assert!(register(&mut master, 2).is_err(), "nobody hears of it");
        assert!(register(&mut master, 3).is_err());
        assert_eq!(master.control().map.servers().len(), 2, "the first of them came through");
        master.come_back();
        assert_eq!(register(&mut master, 1), Ok(first));
        master.leave(false);
        assert!(register(&mut master, 4).is_err());
        assert_eq!(master.control().map.servers().len(), 2);
    }

    #[test]
    fn who_is_cut_off_asks_in_vain_and_others_do_not() {
        let (master, _) = master(1);
        let (mut one, mut other) = (master.asked_by(ProcessId(0)), master.asked_by(ProcessId(1)));
        master.cut_off(ProcessId(0), true);
        assert!(register(&mut one, 1).is_err());
        assert!(register(&mut other, 2).is_ok());
        assert_eq!(master.control().map.servers().len(), 1);
        master.cut_off(ProcessId(0), false);
        assert!(register(&mut one, 1).is_ok());
    }

    #[test]
    fn leases_end_by_true_time_whatever_clock_the_asker_has() {
        let (mut master, truth) = master(3);
        let servers: Vec<ServerId> =
            (1..=3).map(|id| register(&mut master, id).expect("it is there")).collect();
        let never = Timestamp::ZERO;
        let first = master.campaign(never, servers[0]).expect("it is there");
        assert_eq!(master.campaign(Timestamp::MAX, servers[1]), Ok(None), "a clock far ahead");
        truth.set(VirtualTime::ZERO.after(LEASE));
        let second = master.campaign(never, servers[1]).expect("it is there");
        assert!(first < second, "{first:?} {second:?}");
        assert_eq!(master.campaign(Timestamp::MAX, servers[0]), Ok(None));
    }

    #[test]
    fn a_shard_moves_as_its_controller_could_move_it() {
        let (mut master, _) = master(3);
        for id in 1..=3 {
            register(&mut master, id).expect("it is there");
        }
        let term = master.campaign(Timestamp::ZERO, ServerId::new(1)).expect("it is there");
        let entry = master.control().map.shards()[0].clone();
        let confirm = MasterCommand::ConfirmShard {
            term: term.expect("the first"),
            shard: ShardId::new(0),
            epoch: entry.epoch,
        };
        master.execute(confirm).expect("it serves");
        let change = ShardChange {
            shard: entry.id,
            expected: entry.epoch,
            primary: entry.replicas[1],
            replicas: entry.replicas.clone(),
        };
        assert!(master.change(change.clone()));
        assert_eq!(master.control().map.shards()[0].primary, entry.replicas[1]);
        assert!(!master.change(change), "it has another epoch now");
    }
}
