//! The controller alone, and in a cluster where everything fails.

mod unread;

use std::time::Duration;

use timestone_cluster::{
    Controller, ControllerInput, ControllerLimits, ControllerOutput, Heartbeat, ReplicaClaim,
    ReplicaLoss, ReplicaStatus,
};
use timestone_types::Timestamp;

use super::replicas::replicated;
use super::world::World;
use super::*;

const LIMITS: ControllerLimits = ControllerLimits {
    detection: Duration::from_millis(50),
    replace_after: Duration::from_millis(500),
    levels: true,
};

/// A controller of one shard at three of four servers, which has served in epoch 2; time in ms.
struct Watch {
    controller: Controller,
    control: ControlState,
    now: u64,
    /// Servers that send heartbeats: number, installed epoch, lag.
    heard: Vec<(u32, u32, u64)>,
    /// What the primary claims of its shard's epoch.
    claim: ReplicaClaim,
    /// A server that is alive, and tells nothing of its replica.
    untold: Option<u32>,
    /// It takes a checkpoint.
    rebuilds: Option<u32>,
    /// It reaches the other servers, and not the master: it hears of no epoch.
    unaware: Option<u32>,
    /// Who has lost something, and what.
    loses: Vec<(u32, ReplicaLoss)>,
    /// Its server is being stopped.
    leaves: Option<u32>,
    /// The master does not answer.
    is_master_silent: bool,
}

impl Watch {
    fn new() -> Self {
        let mut master = replicated(1, 3);
        for server in 1..=4 {
            master.step(register(server, 7400 + server as u16, 1)).expect("registered");
        }
        let answer = master.step(MasterCommand::FetchControl).expect("told").answer;
        let MasterAnswer::Control(mut control) = answer else { panic!() };
        let entry = &control.map.shards()[0];
        control.normal[0] =
            NormalConfiguration { epoch: entry.epoch, replicas: entry.replicas.clone() };
        let heard = vec![(1, 2, 0), (2, 2, 0), (3, 2, 0), (4, 0, 0)];
        let controller = Controller::new(LIMITS);
        let mut watch = Self {
            controller,
            control,
            now: 1000,
            heard,
            claim: ReplicaClaim::Serves,
            untold: None,
            rebuilds: None,
            unaware: None,
            loses: Vec::new(),
            leaves: None,
            is_master_silent: false,
        };
        assert_eq!(watch.step(ControllerInput::Tick), [ControllerOutput::Fetch]);
        assert_eq!(watch.fetched(), []);
        watch
    }

    fn step(&mut self, input: ControllerInput) -> Vec<ControllerOutput> {
        self.controller.step(Timestamp::from_nanos(self.now * 1_000_000), input)
    }

    fn fetched(&mut self) -> Vec<ControllerOutput> {
        self.step(ControllerInput::Fetched(Box::new(self.control.clone())))
    }

    /// Steps it, and gives it the master's state when it asks for that alone.
    fn step_answered(&mut self, input: ControllerInput) -> Vec<ControllerOutput> {
        let mut outputs = self.step(input);
        if outputs.first() == Some(&ControllerOutput::Fetch) && !self.is_master_silent {
            outputs.remove(0);
            outputs.extend(self.fetched());
        }
        outputs
    }

    /// The master has carried something out: the shard, and whether that is normal.
    fn changed(&mut self, entry: &ShardEntry, is_normal: bool) -> Vec<ControllerOutput> {
        let map = &self.control.map;
        let servers = map.servers().to_vec();
        let version = map.version().next();
        self.control.map =
            ShardMap::new(map.cluster(), version, servers, vec![entry.clone()]).expect("a map");
        if is_normal {
            let (epoch, replicas) = (entry.epoch, entry.replicas.clone());
            self.control.normal[0] = NormalConfiguration { epoch, replicas };
        }
        self.step(ControllerInput::Changed(entry.clone()))
    }

    /// So many milliseconds pass, with a heartbeat of each server every ten: what comes of it first.
    fn pass(&mut self, millis: u64) -> Vec<ControllerOutput> {
        for _ in 0..millis / 10 {
            self.now += 10;
            for (server, installed, lag_records) in self.heard.clone() {
                let server = ServerId::new(server);
                let entry = &self.control.map.shards()[0];
                let is_primary = entry.primary == server && self.unaware != Some(server.get());
                let rebuilds = self.rebuilds == Some(server.get());
                let status = ReplicaStatus {
                    shard: ShardId::ZERO,
                    promised: if is_primary || rebuilds {
                        entry.epoch
                    } else {
                        Epoch::new(installed)
                    },
                    claim: match is_primary {
                        true => self.claim,
                        false if rebuilds => ReplicaClaim::Rebuilds,
                        false if self.leaves == Some(server.get()) => ReplicaClaim::Leaves,
                        false => ReplicaClaim::None,
                    },
                    installed: Epoch::new(installed),
                    loss: self.loss_of(server.get()),
                    lag_records,
                };
                let is_told = self.untold != Some(server.get());
                let replicas = is_told.then_some(status).into_iter().collect();
                let heartbeat = Heartbeat { server, replicas, asked: None };
                let outputs = self.step_answered(ControllerInput::Heard(heartbeat));
                if !outputs.is_empty() {
                    return outputs;
                }
            }
            let outputs = self.step_answered(ControllerInput::Tick);
            if !outputs.is_empty() {
                return outputs;
            }
        }
        Vec::new()
    }

    fn loss_of(&self, server: u32) -> ReplicaLoss {
        let mut losses = self.loses.iter().filter(|(one, _)| *one == server);
        losses.next().map_or(ReplicaLoss::None, |(_, loss)| *loss)
    }

    fn silence(&mut self, server: u32) {
        self.heard.retain(|(one, ..)| *one != server);
    }
}

fn to(expected: u32, primary: u32, replicas: &[u32]) -> ControllerOutput {
    ControllerOutput::Change(ShardChange {
        shard: ShardId::ZERO,
        expected: Epoch::new(expected),
        primary: ServerId::new(primary),
        replicas: replicas.iter().copied().map(ServerId::new).collect(),
    })
}

#[test]
fn the_primary_of_a_lost_server_moves_to_the_replica_that_has_most() {
    let mut watch = Watch::new();
    assert_eq!(watch.pass(200), [], "all is well");
    watch.heard[1].2 = 7;
    watch.silence(1);
    assert_eq!(watch.pass(40), [], "it may be late");
    assert_eq!(watch.pass(20), [to(2, 3, &[1, 2, 3])]);
    assert_eq!(watch.pass(100), [], "the answer is waited for");
}

#[test]
fn a_replica_that_has_the_later_epoch_has_more_than_one_with_less_lag() {
    let mut watch = Watch::new();
    watch.heard[1].1 = 1;
    watch.heard[2].2 = 50;
    watch.silence(1);
    assert_eq!(watch.pass(100), [to(2, 3, &[1, 2, 3])]);
}

#[test]
fn without_enough_of_the_last_configuration_nobody_becomes_primary() {
    let mut watch = Watch::new();
    watch.silence(1);
    watch.silence(2);
    assert_eq!(watch.pass(2000), [], "3 alone cannot know what was acknowledged");
    watch.heard.push((2, 0, 0));
    assert_eq!(watch.pass(2000), [], "2 has lost what it had");
}

#[test]
fn a_replica_that_remembers_what_it_has_given_up_counts_and_does_not_lead() {
    let mut watch = Watch::new();
    watch.silence(1);
    watch.silence(2);
    watch.heard.push((2, 0, 0));
    watch.loses = vec![(2, ReplicaLoss::GivenUp)];
    assert_eq!(watch.pass(100), [to(2, 3, &[1, 2, 3])]);
}

#[test]
fn a_replica_that_lost_what_it_had_counts_where_another_one_has_a_later_table() {
    for (since, counts) in [(0, true), (1, true), (2, false), (3, false)] {
        let mut watch = Watch::new();
        watch.silence(1);
        watch.silence(2);
        watch.heard.push((2, 0, 0));
        watch.loses = vec![(2, ReplicaLoss::VoidSince(Epoch::new(since)))];
        let wanted = Vec::from_iter(counts.then(|| to(2, 3, &[1, 2, 3])));
        assert_eq!(watch.pass(100), wanted, "since epoch {since}; the table of epoch 2 is at 3");
    }
}

#[test]
fn before_a_shard_has_served_any_of_its_replicas_may_lead_it() {
    let mut watch = Watch::new();
    let replicas = watch.control.normal[0].replicas.clone();
    watch.control.normal[0] = NormalConfiguration { epoch: Epoch::ZERO, replicas };
    watch.fetched();
    watch.heard = vec![(2, 0, 0), (3, 0, 0), (4, 0, 0)];
    assert_eq!(watch.pass(100), [to(2, 2, &[1, 2, 3])]);
}

/// What the controller wants of a shard whose primary has registered, and is not heard for so long.
fn of_a_primary_that_starts(millis: u64) -> Vec<ControllerOutput> {
    let mut master = replicated(1, 3);
    let mut watch = Watch::new();
    watch.controller = Controller::new(LIMITS);
    watch.heard.clear();
    for server in 1..=3 {
        watch.control = master.control();
        watch.fetched();
        watch.pass(100);
        master.step(register(server, 7400 + server as u16, 1)).expect("registered");
    }
    watch.control = master.control();
    watch.heard = vec![(2, 0, 0), (3, 0, 0)];
    watch.claim = ReplicaClaim::None;
    watch.fetched();
    assert_eq!(watch.control.map.shards()[0].primary, ServerId::new(1));
    watch.pass(millis)
}

#[test]
fn a_server_that_has_just_registered_has_time_to_start() {
    assert_eq!(of_a_primary_that_starts(9_000), []);
    assert_eq!(of_a_primary_that_starts(11_000), [to(2, 2, &[1, 2, 3])]);
}

/// What comes of a primary that hears none of the others, of which `heard` are heard.
fn instead_of_a_deaf_primary(heard: &[u32]) -> Vec<ControllerOutput> {
    let mut watch = Watch::new();
    assert_eq!(watch.pass(100), []);
    watch.heard.retain(|(one, ..)| heard.contains(one));
    assert_eq!(watch.pass(100), []);
    watch.claim = ReplicaClaim::HearsNobody;
    watch.pass(300)
}

#[test]
fn a_primary_that_hears_nobody_is_followed_by_one_that_may_hear_more() {
    assert_eq!(instead_of_a_deaf_primary(&[1, 2, 3]), [to(2, 2, &[1, 2, 3])]);
    assert_eq!(instead_of_a_deaf_primary(&[1, 3]), [to(2, 3, &[1, 2, 3])]);
    assert_eq!(instead_of_a_deaf_primary(&[1]), [], "another epoch would change nothing");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_controller_that_waits_for_a_deaf_primary_is_noticed() {
    let bug = timestone_types::planted::Bug::WaitsForDeaf;
    let run = || instead_of_a_deaf_primary(&[1, 2, 3]);
    assert_eq!(timestone_types::planted::with(bug, run), [], "the planted bug is found");
}

/// Server 2 is to lead in the place of server 1, and does not hear of it. What comes of it within so
/// many seconds.
fn instead_of_one_that_hears_no_master(seconds: u64) -> Vec<ControllerOutput> {
    let mut watch = Watch::new();
    assert_eq!(watch.pass(100), []);
    watch.silence(1);
    watch.unaware = Some(2);
    assert_eq!(watch.pass(100), [to(2, 2, &[1, 2, 3])]);
    let mut entry = watch.control.map.shards()[0].clone();
    (entry.epoch, entry.primary) = (Epoch::new(3), ServerId::new(2));
    assert_eq!(watch.changed(&entry, false), []);
    watch.pass(seconds * 1000)
}

#[test]
fn a_primary_that_does_not_hear_that_it_leads_is_followed_by_another_one() {
    assert_eq!(instead_of_one_that_hears_no_master(9), [], "it may hear of it late");
    assert_eq!(instead_of_one_that_hears_no_master(11), [to(3, 3, &[1, 2, 3])]);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_controller_that_waits_for_who_hears_no_master_is_noticed() {
    let bug = timestone_types::planted::Bug::WaitsForUnaware;
    let run = || instead_of_one_that_hears_no_master(60);
    assert_eq!(timestone_types::planted::with(bug, run), [], "the planted bug is found");
}

#[test]
fn a_primary_that_hands_over_is_followed_at_once() {
    let mut watch = Watch::new();
    assert_eq!(watch.pass(100), []);
    watch.claim = ReplicaClaim::HandsOver;
    assert_eq!(watch.pass(10), [to(2, 2, &[1, 2, 3])]);
    let mut watch = Watch::new();
    (watch.claim, watch.leaves) = (ReplicaClaim::HandsOver, Some(2));
    assert_eq!(watch.pass(10), [to(2, 3, &[1, 2, 3])], "2 is being stopped as well");
}

#[test]
fn a_configuration_whose_primary_hands_over_at_once_is_confirmed_first() {
    let mut watch = Watch::new();
    let mut entry = watch.control.map.shards()[0].clone();
    entry.epoch = Epoch::new(3);
    watch.changed(&entry, false);
    watch.heard.iter_mut().for_each(|(_, installed, _)| *installed = 3);
    watch.claim = ReplicaClaim::HandsOver;
    let confirm = ControllerOutput::Confirm { shard: ShardId::ZERO, epoch: Epoch::new(3) };
    assert_eq!(watch.pass(10), [confirm]);
    assert_eq!(watch.changed(&entry, true), [], "nobody was heard who follows");
    assert_eq!(watch.pass(10), [to(3, 2, &[1, 2, 3])]);
}

/// What comes of a primary that hands over while nobody follows it.
fn handed_over_while_nobody_follows() -> Vec<ControllerOutput> {
    let mut watch = Watch::new();
    (watch.heard[1].1, watch.heard[2].2) = (1, 5000);
    watch.claim = ReplicaClaim::HandsOver;
    watch.pass(200)
}

#[test]
fn a_primary_is_followed_by_a_replica_that_has_next_to_everything() {
    assert_eq!(handed_over_while_nobody_follows(), []);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_hand_over_to_anybody_is_noticed() {
    let bug = timestone_types::planted::Bug::HandsOverToAnybody;
    let found = timestone_types::planted::with(bug, handed_over_while_nobody_follows);
    assert_ne!(found, [], "the planted bug is found");
}

#[test]
fn who_is_being_stopped_leads_only_if_nobody_else_can() {
    let mut watch = Watch::new();
    watch.leaves = Some(2);
    watch.silence(1);
    assert_eq!(watch.pass(100), [to(2, 3, &[1, 2, 3])]);
    let mut watch = Watch::new();
    watch.leaves = Some(2);
    watch.heard[2].1 = 1;
    watch.silence(1);
    assert_eq!(watch.pass(100), [to(2, 2, &[1, 2, 3])], "3 does not follow");
}

#[test]
fn a_controller_that_slept_listens_before_it_calls_anybody_lost() {
    let mut watch = Watch::new();
    assert_eq!(watch.pass(100), []);
    watch.now += 1000;
    let tick = watch.step_answered(ControllerInput::Tick);
    assert_eq!(tick, [], "the heartbeats of a second are not there");
    watch.silence(1);
    assert_eq!(watch.pass(40), []);
    assert_eq!(watch.pass(20), [to(2, 2, &[1, 2, 3])]);
}

#[test]
fn after_a_conflict_nothing_is_proposed_before_the_state_was_fetched() {
    let mut watch = Watch::new();
    watch.silence(1);
    assert_eq!(watch.pass(100), [to(2, 2, &[1, 2, 3])]);
    let mut entry = watch.control.map.shards()[0].clone();
    entry.epoch = Epoch::new(5);
    watch.is_master_silent = true;
    assert_eq!(watch.step(ControllerInput::Conflict(entry)), [ControllerOutput::Fetch]);
    assert_eq!(watch.pass(100), [], "it waits for the state");
    assert_eq!(watch.fetched(), [to(2, 2, &[1, 2, 3])]);
}

#[test]
fn a_replica_that_is_lost_for_long_is_replaced_where_somebody_can_take_its_place() {
    let mut watch = Watch::new();
    watch.silence(3);
    assert_eq!(watch.pass(500), []);
    assert_eq!(watch.pass(100), [to(2, 1, &[1, 2, 4])]);
    let mut watch = Watch::new();
    watch.silence(3);
    watch.silence(4);
    assert_eq!(watch.pass(2000), [], "without it the others would be one less");
    let mut watch = Watch::new();
    watch.silence(3);
    watch.silence(2);
    assert_eq!(watch.pass(2000), [], "one replica alone could acknowledge nothing");
}

#[test]
fn a_replica_that_takes_a_checkpoint_is_not_replaced_while_it_gets_on() {
    let mut watch = Watch::new();
    watch.heard[2].1 = 0;
    watch.rebuilds = Some(3);
    assert_eq!(watch.pass(2000), []);
    watch.rebuilds = None;
    assert_eq!(watch.pass(500), []);
    assert_eq!(watch.pass(100), [to(2, 1, &[1, 2, 4])]);
}

#[test]
fn a_replica_that_was_replaced_may_return() {
    let mut watch = Watch::new();
    watch.silence(3);
    assert_eq!(watch.pass(600), [to(2, 1, &[1, 2, 4])]);
    let mut entry = watch.control.map.shards()[0].clone();
    (entry.epoch, entry.replicas) = (Epoch::new(3), [1, 2, 4].map(ServerId::new).to_vec());
    watch.claim = ReplicaClaim::None;
    assert_eq!(watch.changed(&entry, false), []);
    watch.heard.push((3, 2, 0));
    watch.heard[0].1 = 3;
    assert_eq!(watch.pass(100), [], "the primary does not serve in the new epoch yet");
    watch.heard[1].1 = 3;
    watch.heard[2].1 = 3;
    watch.claim = ReplicaClaim::Serves;
    let confirm = ControllerOutput::Confirm { shard: ShardId::ZERO, epoch: Epoch::new(3) };
    assert_eq!(watch.pass(10), [confirm]);
    assert_eq!(watch.changed(&entry, true), []);
    assert_eq!(watch.pass(50), []);
    watch.silence(4);
    assert_eq!(watch.pass(500), []);
    assert_eq!(watch.pass(100), [to(3, 1, &[1, 2, 3])]);
}

#[test]
fn a_shard_that_lacks_a_replica_gets_one() {
    let mut watch = Watch::new();
    let mut entry = watch.control.map.shards()[0].clone();
    entry.replicas = [1, 2].map(ServerId::new).to_vec();
    watch.silence(3);
    assert_eq!(watch.changed(&entry, true), []);
    assert_eq!(watch.pass(200), [to(2, 1, &[1, 2, 4])]);
}

/// What the controller wants of a configuration that its primary has installed, and nobody else yet.
fn of_an_installed_configuration() -> Vec<ControllerOutput> {
    let mut watch = Watch::new();
    let mut entry = watch.control.map.shards()[0].clone();
    entry.epoch = Epoch::new(3);
    watch.claim = ReplicaClaim::None;
    assert_eq!(watch.changed(&entry, false), []);
    watch.heard[0].1 = 3;
    watch.pass(200)
}

#[test]
fn a_configuration_that_is_installed_and_does_not_serve_is_not_confirmed() {
    assert_eq!(of_an_installed_configuration(), []);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_controller_that_confirms_what_is_installed_is_noticed() {
    use timestone_types::planted::{Bug, with};
    let wanted = with(Bug::ConfirmsInstalled, of_an_installed_configuration);
    let confirm = ControllerOutput::Confirm { shard: ShardId::ZERO, epoch: Epoch::new(3) };
    assert_eq!(wanted, [confirm], "the planted bug is found");
}

/// The same in random worlds: replicas that alone know what was acknowledged are let go.
#[cfg(feature = "planted-bugs")]
#[test]
fn a_controller_that_confirms_what_is_installed_loses_what_was_acknowledged() {
    use timestone_types::planted::{Bug, set};
    let lose = |seed| {
        std::panic::catch_unwind(|| {
            set(Some(Bug::ConfirmsInstalled));
            World::new(seed, 5, 1, 3).run(1500);
        })
    };
    let found = (0..100).any(|seed| lose(seed).is_err());
    set(None);
    assert!(found, "the planted bug is found");
}

#[test]
fn a_primary_that_needs_another_epoch_gets_it() {
    let mut watch = Watch::new();
    watch.claim = ReplicaClaim::NeedsEpoch;
    assert_eq!(watch.pass(50), [to(2, 1, &[1, 2, 3])], "it is as good as the others");
    let mut watch = Watch::new();
    watch.claim = ReplicaClaim::NeedsEpoch;
    watch.heard[0].2 = 5;
    assert_eq!(watch.pass(50), [to(2, 2, &[1, 2, 3])], "another one has more");
    let mut watch = Watch::new();
    watch.claim = ReplicaClaim::NeedsEpoch;
    watch.silence(2);
    watch.silence(3);
    assert_eq!(watch.pass(40), [], "they may be late");
    assert_eq!(watch.pass(20), [to(2, 1, &[1, 2, 3])], "nobody else could lead");
}

/// Who becomes primary when the primary, server 1, starts again three times, and serves this long
/// in between.
fn of_a_primary_that_starts_again(serves_for: u64) -> Vec<u32> {
    let mut watch = Watch::new();
    let mut entry = watch.control.map.shards()[0].clone();
    let mut led = Vec::new();
    for epoch in 3..6 {
        watch.claim = ReplicaClaim::NeedsEpoch;
        let wanted = watch.pass(200);
        let [ControllerOutput::Change(change)] = wanted.as_slice() else { panic!("{wanted:?}") };
        led.push(change.primary.get());
        (entry.epoch, entry.primary) = (Epoch::new(epoch), change.primary);
        watch.claim = ReplicaClaim::None;
        watch.changed(&entry, false);
        watch.heard.iter_mut().for_each(|(_, installed, _)| *installed = epoch);
        watch.claim = ReplicaClaim::Serves;
        let confirm = ControllerOutput::Confirm { shard: ShardId::ZERO, epoch: Epoch::new(epoch) };
        assert_eq!(watch.pass(200), [confirm]);
        watch.changed(&entry, true);
        assert_eq!(watch.pass(serves_for), []);
        if entry.primary != ServerId::new(1) {
            break;
        }
    }
    led
}

#[test]
fn a_primary_that_starts_again_and_again_is_followed_by_another_one() {
    assert_eq!(of_a_primary_that_starts_again(1000), [1, 2], "the first time may be a restart");
    assert_eq!(of_a_primary_that_starts_again(11_000), [1, 1, 1], "that was long ago");
}

#[test]
fn who_starts_again_and_again_leads_while_nobody_else_could() {
    let mut watch = Watch::new();
    let mut entry = watch.control.map.shards()[0].clone();
    watch.claim = ReplicaClaim::NeedsEpoch;
    // The others have not followed what may have been acknowledged.
    watch.heard[1].1 = 1;
    watch.heard[2].1 = 1;
    for epoch in 3..6 {
        assert_eq!(watch.pass(200), [to(epoch - 1, 1, &[1, 2, 3])]);
        entry.epoch = Epoch::new(epoch);
        watch.heard[0].1 = epoch;
        watch.changed(&entry, false);
    }
}

#[test]
fn who_cannot_lead_is_followed_by_all_others_before_it_is_its_turn_again() {
    let mut watch = Watch::new();
    watch.claim = ReplicaClaim::CannotLead;
    watch.heard[0].2 = 0;
    watch.heard[1].2 = 7;
    watch.heard[2].2 = 9;
    let mut entry = watch.control.map.shards()[0].clone();
    let mut led = Vec::new();
    for epoch in 3..8 {
        let wanted = watch.pass(1000);
        let [ControllerOutput::Change(change)] = wanted.as_slice() else { panic!("{wanted:?}") };
        led.push(change.primary.get());
        (entry.epoch, entry.primary) = (Epoch::new(epoch), change.primary);
        assert_eq!(watch.changed(&entry, false), [], "not before it has tried");
    }
    assert_eq!(led, [2, 3, 1, 2, 3]);
}

#[test]
fn epochs_are_not_used_up_by_a_primary_that_fails_at_once() {
    let mut watch = Watch::new();
    watch.claim = ReplicaClaim::CannotLead;
    let mut entry = watch.control.map.shards()[0].clone();
    let mut epochs = 0;
    let until = watch.now + 1000;
    while watch.now < until {
        if watch.pass(10).is_empty() {
            continue;
        }
        epochs += 1;
        entry.epoch = Epoch::new(entry.epoch.get() + 1);
        watch.changed(&entry, false);
    }
    assert!((10..=21).contains(&epochs), "{epochs} epochs in 20 detection times");
}

#[test]
fn a_claim_of_another_epoch_means_nothing() {
    let mut watch = Watch::new();
    let mut entry = watch.control.map.shards()[0].clone();
    entry.epoch = Epoch::new(3);
    watch.changed(&entry, false);
    for claim in [ReplicaClaim::Serves, ReplicaClaim::NeedsEpoch, ReplicaClaim::CannotLead] {
        watch.now += 10;
        let status = ReplicaStatus {
            shard: ShardId::ZERO,
            promised: Epoch::new(2),
            claim,
            installed: Epoch::new(2),
            loss: ReplicaLoss::None,
            lag_records: 0,
        };
        let heartbeat = Heartbeat { server: ServerId::new(1), replicas: vec![status], asked: None };
        assert_eq!(watch.step_answered(ControllerInput::Heard(heartbeat)), [], "{claim:?}");
    }
}

#[test]
fn a_primary_whose_log_has_failed_is_lost_although_its_server_lives() {
    let mut watch = Watch::new();
    assert_eq!(watch.pass(100), []);
    watch.untold = Some(1);
    assert_eq!(watch.pass(50), [], "it may have just begun");
    assert_eq!(watch.pass(20), [to(2, 2, &[1, 2, 3])]);
    let mut watch = Watch::new();
    watch.untold = Some(1);
    assert_eq!(watch.pass(30), []);
    watch.untold = None;
    assert_eq!(watch.pass(500), [], "it was there in time");
}

#[test]
fn no_detection_is_shorter_than_a_loaded_machine_can_bear() {
    let limits = ControllerLimits { detection: Duration::from_millis(1), ..LIMITS };
    let mut controller = Controller::new(limits);
    controller.step(Timestamp::from_nanos(0), ControllerInput::Tick);
    assert_eq!(controller.next_deadline(), Some(Timestamp::from_nanos(12_500_000)));
}

/// How many shards each of three servers leads after so many seconds in which all is well, when one
/// led all of them.
fn led_after(seconds: u64, seed: u64, shards_each: u16) -> Vec<usize> {
    let mut world = World::new(seed, 3, shards_each, 3);
    world.heal();
    world.run(100);
    world.heap_up(ServerId::new(2));
    world.run(seconds * 200);
    world.assert_at_rest();
    world.primaries()
}

#[test]
fn primaries_move_to_servers_that_have_fewer_when_all_is_well_for_a_while() {
    assert_eq!(led_after(9, 1, 2), [0, 6, 0], "it may be over in a moment");
    assert_eq!(led_after(20, 1, 2), [2, 2, 2]);
    assert_eq!(led_after(20, 2, 1), [1, 1, 1]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn whatever_fails_epochs_rise_and_enough_of_the_last_configuration_stays(
        seed in any::<u64>(), servers in 3u16..6, shards in 1u16..3, five in any::<bool>(),
    ) {
        let replicas = if five && servers >= 5 { 5 } else { 3 };
        let mut world = World::new(seed, servers, shards, replicas);
        world.run(1500);
        world.heal();
        world.run(400);
        world.assert_at_rest();
        let changes = world.changes;
        world.run(200);
        prop_assert_eq!(world.changes, changes, "it does not come to rest");
        prop_assert!(changes > 0, "nothing was changed at all");
    }
}
