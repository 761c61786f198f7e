//! A cluster in which servers, heartbeats and controllers fail at random, by a seed: what holds at
//! every moment, and where it comes to rest.
//!
//! The replicas are a model of their own: a configuration becomes normal when its primary and f
//! others are up, and enough of the last normal one as well. A primary that was down since it heard
//! of its epoch needs another one, and now and then one cannot lead. One whose server is being stopped,
//! or that a controller asks, hands over. The world knows which
//! configuration is normal; the master and the controllers know it only by what they hear.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use timestone_cluster::{
    Controller, ControllerInput, ControllerLimits, ControllerOutput, HandOver, Heartbeat, Master,
    MasterAnswer, MasterCommand, NormalConfiguration, ReplicaClaim, ReplicaLoss, ReplicaStatus,
    ReplicationFactor, ServerId, ShardChange, ShardEntry, Term,
};
use timestone_types::{Epoch, ShardId, Timestamp};

use super::register;
use super::replicas::replicated;

/// One step of the world.
const STEP: Duration = Duration::from_millis(5);
const LIMITS: ControllerLimits = ControllerLimits {
    detection: Duration::from_millis(50),
    replace_after: Duration::from_millis(100),
    levels: true,
};

/// SplitMix64: the world's dice.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Once in so many times.
    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

#[derive(Default)]
struct ModelServer {
    down: bool,
    /// It is being stopped.
    leaves: bool,
    installed: BTreeMap<ShardId, Epoch>,
    lag_records: BTreeMap<ShardId, u64>,
    /// What it claims of the last epoch of each shard in which it was to be the primary.
    claims: BTreeMap<ShardId, (Epoch, ReplicaClaim)>,
}

impl ModelServer {
    /// What it tells of those that are to be here, and of those that it knows from before. Primaries
    /// that are `asked` hand over.
    fn statuses(
        &self,
        to_be_here: impl Iterator<Item = ShardId>,
        asked: &[HandOver],
    ) -> Vec<ReplicaStatus> {
        let known = self.installed.keys().chain(self.claims.keys()).copied();
        let shards: BTreeSet<ShardId> = to_be_here.chain(known).collect();
        let status = |shard| {
            let installed = self.installed.get(&shard).copied().unwrap_or(Epoch::ZERO);
            let claimed = self.claims.get(&shard).copied().unwrap_or_default();
            // What was claimed of an epoch ends when it follows in a later one.
            let (promised, claim) =
                if claimed.0 < installed { (installed, ReplicaClaim::None) } else { claimed };
            let is_asked = asked.contains(&HandOver { shard, epoch: promised });
            let claim = match claim {
                ReplicaClaim::Serves if self.leaves || is_asked => ReplicaClaim::HandsOver,
                ReplicaClaim::None if self.leaves => ReplicaClaim::Leaves,
                claim => claim,
            };
            let lag_records = self.lag_records.get(&shard).copied().unwrap_or(0);
            ReplicaStatus {
                shard,
                promised,
                claim,
                installed,
                loss: ReplicaLoss::None,
                lag_records,
            }
        };
        shards.into_iter().map(status).collect()
    }

    fn goes_down(&mut self) {
        (self.down, self.leaves) = (true, false);
        for (_, claim) in self.claims.values_mut() {
            *claim = ReplicaClaim::NeedsEpoch;
        }
    }
}

struct ModelController {
    controller: Controller,
    term: Term,
    asleep_for: u64,
    /// What is on its way to it: after so many steps.
    inbox: Vec<(u64, ControllerInput)>,
}

/// See the module.
pub(crate) struct World {
    dice: Dice,
    factor: ReplicationFactor,
    master: Master,
    servers: BTreeMap<ServerId, ModelServer>,
    controllers: Vec<ModelController>,
    /// The last normal configuration of each shard, as it really is.
    normal: Vec<NormalConfiguration>,
    /// Who was primary in which epoch.
    primaries: BTreeMap<(ShardId, Epoch), ServerId>,
    step: u64,
    faulty: bool,
    /// Changes that the master carried out.
    pub(crate) changes: u64,
}

impl World {
    pub(crate) fn new(seed: u64, servers: u16, shards: u16, replicas: u8) -> Self {
        let mut master = replicated(shards * servers, replicas);
        for server in 1..=servers {
            master.step(register(server.into(), 7400 + server, shards)).expect("registered");
        }
        let controllers = (0..2).map(|_| ModelController {
            controller: Controller::new(LIMITS),
            term: Term::ZERO,
            asleep_for: 0,
            inbox: Vec::new(),
        });
        // Nobody has anything yet.
        let normal = master.map().shards().iter().map(|entry| NormalConfiguration {
            epoch: Epoch::ZERO,
            replicas: entry.replicas.clone(),
        });
        Self {
            dice: Dice(seed),
            factor: ReplicationFactor::new(replicas).expect("a factor"),
            normal: normal.collect(),
            primaries: BTreeMap::new(),
            servers: master
                .map()
                .servers()
                .iter()
                .map(|server| (server.id, ModelServer::default()))
                .collect(),
            controllers: controllers.collect(),
            master,
            step: 0,
            faulty: true,
            changes: 0,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000).saturating_add(STEP * self.step as u32)
    }

    /// Lives for so many steps.
    pub(crate) fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            self.step += 1;
            if self.faulty {
                self.fail();
            }
            self.elect();
            self.install();
            self.send_heartbeats();
            for index in 0..self.controllers.len() {
                self.step_controller(index);
            }
        }
    }

    /// Everything is up again, and awake.
    pub(crate) fn heal(&mut self) {
        self.faulty = false;
        for server in self.servers.values_mut() {
            (server.down, server.leaves) = (false, false);
            server.lag_records.clear();
        }
        for controller in &mut self.controllers {
            controller.asleep_for = 0;
        }
    }

    /// Everything is at rest: every shard is complete, and its primary serves.
    pub(crate) fn assert_at_rest(&self) {
        let MasterAnswer::Control(control) =
            self.master.clone().step(MasterCommand::FetchControl).expect("told").answer
        else {
            panic!()
        };
        for (entry, normal) in control.map.shards().iter().zip(&control.normal) {
            assert_eq!(entry.replicas.len(), self.factor.replicas(), "{entry:?}");
            assert_eq!(entry.epoch, normal.epoch, "{entry:?} is not confirmed");
            let claim = self.servers[&entry.primary].claims.get(&entry.id);
            assert_eq!(claim, Some(&(entry.epoch, ReplicaClaim::Serves)), "{entry:?}");
        }
    }

    /// Of how many shards each server is the primary.
    pub(crate) fn primaries(&self) -> Vec<usize> {
        let shards = self.master.map().shards();
        let of = |server: &ServerId| shards.iter().filter(|one| one.primary == *server).count();
        self.servers.keys().map(of).collect()
    }

    /// Makes a server the primary of all shards.
    pub(crate) fn heap_up(&mut self, server: ServerId) {
        for entry in self.master.map().shards().to_vec() {
            if entry.primary != server && entry.replicas.contains(&server) {
                let change = ShardChange {
                    shard: entry.id,
                    expected: entry.epoch,
                    primary: server,
                    replicas: entry.replicas.clone(),
                };
                let (term, _) = self.master.controller();
                self.master.step(MasterCommand::ChangeShard { term, change }).expect("changed");
            }
        }
    }

    fn fail(&mut self) {
        let servers = self.servers.len() as u64;
        let shards = self.normal.len() as u64;
        let server = ServerId::new(1 + self.dice.below(servers) as u32);
        let shard = ShardId::new(self.dice.below(shards) as u16);
        let one = self.servers.get_mut(&server).expect("a server");
        if self.dice.one_in(60) {
            if one.down {
                one.down = false;
            } else {
                one.goes_down();
            }
        }
        if self.dice.one_in(70) {
            one.leaves = !one.down;
        }
        if self.dice.one_in(30) && one.down {
            one.down = false;
        }
        if self.dice.one_in(80) {
            one.lag_records.insert(shard, self.dice.below(1500));
        }
        if self.dice.one_in(100) {
            let index = self.dice.below(2) as usize;
            self.controllers[index].asleep_for = self.dice.below(60);
        }
    }

    /// Now and then another controller is elected; the old one does not know.
    fn elect(&mut self) {
        let (term, _) = self.master.controller();
        let nobody = term == Term::ZERO || self.controllers.iter().all(|one| one.term < term);
        if nobody || (self.faulty && self.dice.one_in(150)) {
            let index = self.dice.below(2) as usize;
            let command = MasterCommand::BeginTerm { controller: ServerId::new(1), expected: term };
            match self.master.step(command).expect("a term").answer {
                MasterAnswer::Term { term, .. } => self.controllers[index].term = term,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Primaries hear of their epochs and install them, configurations become normal, and backups
    /// follow.
    fn install(&mut self) {
        let entries: Vec<ShardEntry> = self.master.map().shards().to_vec();
        for (index, entry) in entries.iter().enumerate() {
            if self.dice.one_in(3) || !self.lead(index, entry) {
                continue;
            }
            let is_up = |server: &&ServerId| !self.servers[*server].down;
            let able: Vec<ServerId> = entry.replicas.iter().filter(is_up).copied().collect();
            let is_new = self.normal[index].epoch < entry.epoch;
            if is_new && able.len() >= self.factor.quorum() && !self.dice.one_in(3) {
                self.normal[index] =
                    NormalConfiguration { epoch: entry.epoch, replicas: entry.replicas.clone() };
                self.claim(entry, ReplicaClaim::Serves);
                let others = able.iter().filter(|&&server| server != entry.primary);
                for &server in others.take(self.factor.quorum() - 1) {
                    self.install_at(entry, server);
                }
            }
            if self.normal[index].epoch == entry.epoch {
                let late: Vec<ServerId> =
                    able.into_iter().filter(|_| self.dice.one_in(3)).collect();
                late.into_iter().for_each(|server| self.install_at(entry, server));
            }
        }
    }

    /// The primary goes on to lead its epoch: whether it has installed it, or more.
    fn lead(&mut self, index: usize, entry: &ShardEntry) -> bool {
        let primary = &self.servers[&entry.primary];
        if primary.down {
            return false;
        }
        match primary.claims.get(&entry.id) {
            Some((epoch, claim)) if *epoch == entry.epoch => match claim {
                ReplicaClaim::Serves => return true,
                ReplicaClaim::NeedsEpoch | ReplicaClaim::CannotLead => return false,
                ReplicaClaim::Rebuilds
                | ReplicaClaim::HandsOver
                | ReplicaClaim::Leaves
                | ReplicaClaim::HearsNobody
                | ReplicaClaim::None => {}
            },
            _ => self.claim(entry, ReplicaClaim::None),
        }
        if self.faulty && self.dice.one_in(20) {
            self.claim(entry, ReplicaClaim::CannotLead);
            return false;
        }
        let last = &self.normal[index];
        let is_up = |server: &&ServerId| !self.servers[*server].down;
        if last.replicas.iter().filter(is_up).count() < last.quorum(self.factor) {
            return false;
        }
        self.install_at(entry, entry.primary);
        true
    }

    fn claim(&mut self, entry: &ShardEntry, claim: ReplicaClaim) {
        let primary = self.servers.get_mut(&entry.primary).expect("a server");
        primary.claims.insert(entry.id, (entry.epoch, claim));
    }

    fn install_at(&mut self, entry: &ShardEntry, server: ServerId) {
        let server = self.servers.get_mut(&server).expect("a server");
        if server.installed.insert(entry.id, entry.epoch) != Some(entry.epoch) {
            server.lag_records.remove(&entry.id);
        }
    }

    fn send_heartbeats(&mut self) {
        let (term, _) = self.master.controller();
        let current = self.controllers.iter().filter(|one| one.term == term);
        let asked: Vec<HandOver> = current.filter_map(|one| one.controller.asked()).collect();
        for (&server, one) in &self.servers {
            if one.down {
                continue;
            }
            let shards = self.master.map().shards().iter();
            let own = shards.filter(|entry| entry.replicas.contains(&server));
            let replicas = one.statuses(own.map(|entry| entry.id), &asked);
            for controller in &mut self.controllers {
                if self.faulty && self.dice.one_in(4) {
                    continue;
                }
                let delay = if self.faulty { self.dice.below(4) } else { 0 };
                let heartbeat = Heartbeat { server, replicas: replicas.clone(), asked: None };
                controller.inbox.push((self.step + delay, ControllerInput::Heard(heartbeat)));
            }
        }
    }

    fn step_controller(&mut self, index: usize) {
        let now = self.now();
        let step = self.step;
        let controller = &mut self.controllers[index];
        if controller.asleep_for > 0 {
            controller.asleep_for -= 1;
            return;
        }
        let mut due: Vec<ControllerInput> = Vec::new();
        controller.inbox.retain(|(at, input)| {
            let is_due = *at <= step;
            if is_due {
                due.push(input.clone());
            }
            !is_due
        });
        due.push(ControllerInput::Tick);
        for input in due {
            for output in self.controllers[index].controller.step(now, input) {
                self.carry_out(index, output);
            }
        }
    }

    /// Does what a controller wants; its answer is on its way for a while.
    fn carry_out(&mut self, index: usize, output: ControllerOutput) {
        let term = self.controllers[index].term;
        let before = self.master.map().clone();
        let (shard, command) = match output {
            ControllerOutput::Fetch => (None, MasterCommand::FetchControl),
            ControllerOutput::Change(change) => {
                (Some(change.shard), MasterCommand::ChangeShard { term, change })
            }
            ControllerOutput::Confirm { shard, epoch } => {
                (Some(shard), MasterCommand::ConfirmShard { term, shard, epoch })
            }
        };
        let change = match &command {
            MasterCommand::ChangeShard { change, .. } => Some(change.clone()),
            _ => None,
        };
        let input = match self.master.step(command).map(|step| step.answer) {
            Ok(MasterAnswer::Control(control)) => ControllerInput::Fetched(Box::new(control)),
            Ok(MasterAnswer::Changed(entry)) => {
                if let Some(change) = change {
                    self.changed(
                        &before.shard(entry.id).expect("a shard").clone(),
                        &change,
                        &entry,
                    );
                }
                ControllerInput::Changed(entry)
            }
            Ok(MasterAnswer::Conflict(entry)) => ControllerInput::Conflict(entry),
            Ok(other) => panic!("{other:?}"),
            Err(_) => ControllerInput::Refused(shard.expect("only changes are refused")),
        };
        let delay = if self.faulty { self.dice.below(5) } else { 0 };
        self.controllers[index].inbox.push((self.step + delay, input));
    }

    /// What must hold of every change.
    fn changed(&mut self, before: &ShardEntry, change: &ShardChange, after: &ShardEntry) {
        self.changes += 1;
        assert_eq!(after.epoch.get(), before.epoch.get() + 1, "epochs rise by one");
        assert_eq!(change.expected, before.epoch, "only what was expected is changed");
        let other = self.primaries.insert((after.id, after.epoch), after.primary);
        assert_eq!(other, None, "one primary an epoch");
        let normal = &self.normal[usize::from(after.id.get())];
        assert!(
            normal.replicas.contains(&after.primary),
            "{after:?} has a primary from outside of {normal:?}"
        );
        let staying = after.replicas.iter().filter(|one| normal.replicas.contains(one)).count();
        assert!(staying >= normal.quorum(self.factor), "{after:?} keeps {staying} of {normal:?}");
        assert!(after.replicas.len() >= self.factor.quorum(), "{after:?}");
    }
}
