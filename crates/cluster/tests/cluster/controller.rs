//! The controller alone, and in a cluster where everything fails.

use std::time::Duration;

use timestone_cluster::{
    Controller, ControllerInput, ControllerLimits, ControllerOutput, Heartbeat, ReplicaStatus,
};
use timestone_types::Timestamp;

use super::replicas::replicated;
use super::world::World;
use super::*;

const LIMITS: ControllerLimits = ControllerLimits {
    detection: Duration::from_millis(50),
    remove_after: Duration::from_millis(500),
    max_lag_records: 100,
};

/// A controller of one shard at three of four servers, which has served in epoch 2; time in ms.
struct Watch {
    controller: Controller,
    control: ControlState,
    now: u64,
    /// Servers that send heartbeats: number, installed epoch, lag.
    heard: Vec<(u32, u32, u64)>,
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
        let mut watch = Self { controller, control, now: 1000, heard, is_master_silent: false };
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
                let status = ReplicaStatus {
                    shard: ShardId::ZERO,
                    installed: Epoch::new(installed),
                    lag_records,
                };
                let heartbeat = Heartbeat { server: ServerId::new(server), replicas: vec![status] };
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
fn a_replica_that_is_too_far_behind_leaves_at_once_and_a_lost_one_later() {
    let mut watch = Watch::new();
    watch.heard[2].2 = 101;
    assert_eq!(watch.pass(20), [to(2, 1, &[1, 2])]);
    let mut watch = Watch::new();
    watch.silence(3);
    assert_eq!(watch.pass(500), []);
    assert_eq!(watch.pass(100), [to(2, 1, &[1, 2])]);
    let mut watch = Watch::new();
    watch.silence(3);
    watch.silence(2);
    assert_eq!(watch.pass(2000), [], "one replica alone could acknowledge nothing");
}

#[test]
fn a_replica_that_left_is_replaced_and_may_return() {
    let mut watch = Watch::new();
    watch.silence(3);
    watch.silence(4);
    assert_eq!(watch.pass(600), [to(2, 1, &[1, 2])]);
    let mut entry = watch.control.map.shards()[0].clone();
    (entry.epoch, entry.replicas) = (Epoch::new(3), [1, 2].map(ServerId::new).to_vec());
    assert_eq!(watch.changed(&entry, false), []);
    watch.heard.push((3, 2, 0));
    assert_eq!(watch.pass(100), [], "the primary does not serve in the new epoch yet");
    watch.heard[0].1 = 3;
    watch.heard[1].1 = 3;
    let confirm = ControllerOutput::Confirm { shard: ShardId::ZERO, epoch: Epoch::new(3) };
    assert_eq!(watch.pass(10), [confirm]);
    assert_eq!(watch.changed(&entry, true), []);
    assert_eq!(watch.pass(300), [], "it has just left");
    assert_eq!(watch.pass(200), [to(3, 1, &[1, 2, 3])]);
}

#[test]
fn no_detection_is_shorter_than_a_loaded_machine_can_bear() {
    let limits = ControllerLimits { detection: Duration::from_millis(1), ..LIMITS };
    let mut controller = Controller::new(limits);
    controller.step(Timestamp::from_nanos(0), ControllerInput::Tick);
    assert_eq!(controller.next_deadline(), Some(Timestamp::from_nanos(12_500_000)));
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
