//! Replicas of one shard on three servers, stepped by hand: their stores, their logs, what they tell
//! each other, and a client that writes.

mod backup_reads;
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_cluster::ReplicaLoss;
use timestone_replication::Step;
use timestone_replication::limits::Retention;
use timestone_shard::own_reply_address;
use timestone_types::random::Seed;
use timestone_types::{Expiry, KeyspaceId, Sequence, TxnId};
use timestone_wire::{
    Condition, Envelope, Message, RequestId, Value, Verdict, Write, WriteAction, Written,
};

use super::*;
use world::*;

/// How many checkpoints were taken.
fn random_world(seed: u64, retention: Retention) -> u32 {
    let mut dice = Seed(seed).derive("replicas", 0).dice();
    let mut world = World::keeping(retention);
    let mut values = BTreeMap::new();
    for number in 1..=30 {
        let key = dice.below(8);
        world.write_to_the_end(&mut dice, number, key);
        values.insert(key, number);
        if dice.below(4) == 0 {
            world.disturb(&mut dice);
            world.pass(dice.below(600));
            world.repair(&mut dice);
        }
    }
    world.heal();
    for key in 0..8 {
        assert_eq!(world.read(key), values.get(&key).copied(), "key {key}");
    }
    world.pass(2000);
    let counted: Vec<u64> = world.state().iter().map(|one| one.4).collect();
    assert!(counted.iter().all(|&one| one + 3 > counted[0]), "{:?}", world.state());
    world.servers.values().map(|server| server.rebuilt).sum()
}

#[test]
fn what_is_recorded_while_the_log_writes_is_one_batch() {
    let mut world = World::new();
    world.pass(2000);
    world.busy_log = Some(1);
    let commits: Vec<Timestamp> =
        (1..=4).map(|n| world.now.saturating_add(Duration::from_nanos(n))).collect();
    for (number, commit) in (1..=4).zip(&commits) {
        assert!(!world.write(number, number, world.now, &mut commit.clone()), "nothing counts yet");
    }
    let [first] = &world.servers[&1].given[..] else { panic!("the log has the first alone") };
    let second = first.head.batch.next();
    world.busy_log = None;
    world.turns();
    let last = world.servers[&1].durable.last().map(|append| append.head.batch);
    assert_eq!(last, Some(second), "the others are one batch");
    for number in 1..=4 {
        assert_eq!(world.read(number), Some(number));
    }
}

#[test]
fn a_shard_serves_when_its_replicas_have_the_epochs_table() {
    let mut world = World::new();
    world.pass(200);
    assert_eq!(world.serving(), Some(1), "{:?}", world.state());
    let mut commit = world.now.next();
    assert!(world.write(1, 5, world.now, &mut commit));
    assert_eq!(world.read(5), Some(1));
}

#[test]
fn another_replica_takes_over_and_knows_what_was_acknowledged() {
    let mut world = World::new();
    world.pass(200);
    let (begin, mut commit) = (world.now, world.now.next());
    assert!(world.write(1, 5, begin, &mut commit));
    world.kill(1, 1);
    world.make_primary(2);
    world.pass(3000);
    assert_eq!(world.serving(), Some(2), "{:?}", world.state());
    assert_eq!(world.read(5), Some(1));
    assert!(world.write(1, 5, begin, &mut commit), "a repeat is answered as the first time");
    world.start(1);
    world.make_primary(3);
    world.pass(3000);
    assert_eq!(world.read(5), Some(1));
}

#[test]
fn a_primary_that_hands_over_serves_until_another_one_begins() {
    let mut world = World::new();
    world.pass(1000);
    let mut commit = world.now.next();
    assert!(world.write(1, 5, world.now, &mut commit));
    world.send(1, Event::HandOver { is_wanted: true });
    world.pass(20);
    assert_eq!(world.servers[&1].gauges.standing().wish, Wish::Nothing, "its lease is long");
    world.pass(1200);
    assert_eq!(world.servers[&1].gauges.standing().wish, Wish::Successor);
    let mut commit = world.now.next();
    assert!(world.write(2, 6, world.now, &mut commit));
    world.make_primary(2);
    world.pass(200);
    assert_eq!(world.serving(), Some(2));
    assert_eq!(world.servers[&1].gauges.standing().wish, Wish::Nothing);
    assert_eq!((world.read(5), world.read(6)), (Some(1), Some(2)));
}

/// What 1 wants of the master that needed another epoch, when 2 leads the next one; and what it wants
/// that had lost its devices as the primary, when it has taken a checkpoint.
fn wishes_of_before() -> [Wish; 2] {
    let mut world = World::new();
    world.pass(200);
    world.kill(1, 1);
    world.start(1);
    assert_eq!(world.servers[&1].gauges.standing().wish, Wish::NewEpoch, "{:?}", world.state());
    world.make_primary(2);
    world.pass(3000);
    assert_eq!(world.serving(), Some(2), "{:?}", world.state());
    let of_restarted = world.servers[&1].gauges.standing().wish;
    world.kill(2, 1);
    world.start_without_devices(2);
    assert_eq!(world.servers[&2].gauges.standing().wish, Wish::OtherPrimary);
    world.make_primary(3);
    world.pass(3000);
    assert_eq!(world.serving(), Some(3), "{:?}", world.state());
    assert_eq!(world.servers[&2].gauges.step(), Some(Step::Backup), "{:?}", world.state());
    [of_restarted, world.servers[&2].gauges.standing().wish]
}

#[test]
fn a_wish_of_who_was_to_lead_ends_with_that() {
    assert_eq!(wishes_of_before(), [Wish::Nothing; 2]);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_wish_that_never_ends_is_noticed() {
    use timestone_types::planted::{Bug, with};
    assert_eq!(with(Bug::KeepsWish, wishes_of_before)[0], Wish::NewEpoch);
}

#[test]
fn a_primary_that_hands_over_no_more_has_long_leases_again() {
    let mut world = World::new();
    world.pass(1000);
    world.send(1, Event::HandOver { is_wanted: true });
    world.pass(1200);
    assert_eq!(world.servers[&1].gauges.standing().wish, Wish::Successor);
    world.send(1, Event::HandOver { is_wanted: false });
    world.pass(100);
    assert_eq!(world.servers[&1].gauges.standing().wish, Wish::Nothing);
    assert_eq!(world.serving(), Some(1));
}

#[test]
fn a_primary_that_hears_nobody_says_so_and_another_one_serves() {
    let mut world = World::new();
    world.pass(200);
    let (begin, mut commit) = (world.now, world.now.next());
    assert!(world.write(1, 5, begin, &mut commit));
    world.deafen(1);
    world.pass(1500);
    assert_eq!(world.servers[&1].gauges.standing().wish, Wish::Nothing, "they may be late");
    world.pass(1500);
    assert_eq!(world.servers[&1].gauges.standing().wish, Wish::MoreReached);
    world.make_primary(2);
    world.pass(3000);
    assert_eq!(world.serving(), Some(2), "{:?}", world.state());
    assert_eq!(world.read(5), Some(1));
}

#[test]
fn the_gateway_of_the_primary_calls_the_shard_and_no_other_does() {
    let mut world = World::new();
    for (number, primary) in (1..).zip([1, 2, 1]) {
        world.make_primary(primary);
        world.pass(3000);
        assert_eq!(world.serving(), Some(primary), "{:?}", world.state());
        let (begin, mut commit) = (world.now, world.now.next());
        assert!(world.write(number, 5, begin, &mut commit));
        let calls = [1, 2, 3].map(|id| world.call(id, 5));
        let expected = [1, 2, 3].map(|id| (id == primary).then_some(number));
        assert_eq!(calls, expected, "who was deposed is not called");
    }
}

/// One that does not know that it was deposed is called, and its epoch is not the caller's.
#[test]
fn a_deposed_primary_that_knows_nothing_answers_no_call_by_a_newer_map() {
    let mut world = World::new();
    world.pass(200);
    let mut commit = world.now.next();
    assert!(world.write(1, 5, world.now, &mut commit));
    world.control = control(2, 2, 1);
    assert!(world.servers[&1].slot.is_filled() && world.call(1, 5).is_none());
}

#[test]
fn what_is_acknowledged_survives_whatever_happens() {
    for seed in 0..60 {
        random_world(seed, Retention::default());
    }
}

/// Primaries keep next to nothing for those that lack it.
#[test]
fn what_is_acknowledged_survives_where_replicas_take_checkpoints() {
    let little = Retention { bytes: 600, ..Retention::default() };
    let taken: u32 = (0..200).map(|seed| random_world(seed, little)).sum();
    assert!(taken > 50, "{taken} checkpoints");
}

/// 3 alone has what was acknowledged, beside the primary, and loses its devices; then the primary dies.
/// The third one is made primary; what it reads of the key, if it serves at all.
fn devices_are_lost() -> Option<Option<u64>> {
    let mut world = World::new();
    world.pass(200);
    world.cut = Some((1, 2));
    let (begin, mut commit) = (world.now, world.now.next());
    assert!(world.write(1, 5, begin, &mut commit), "1 and 3 have it");
    world.kill(3, 1);
    world.kill(1, 1);
    world.cut = None;
    world.start_without_devices(3);
    world.make_primary(2);
    world.pass(3000);
    world.serving().map(|_| world.read(5))
}

#[test]
fn a_replica_that_has_lost_its_devices_answers_no_candidate() {
    assert_eq!(devices_are_lost(), None, "only 1 has what was acknowledged");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_replica_that_forgets_that_it_has_lost_its_devices_is_noticed() {
    use timestone_types::planted::{Bug, with};
    assert_eq!(with(Bug::ForgetsLostDevices, devices_are_lost), Some(None), "it is lost");
}

#[test]
fn a_replica_that_has_lost_its_devices_is_made_anew() {
    let mut world = World::new();
    world.pass(200);
    for number in 1..=9 {
        let (begin, mut commit) = (world.now, world.now.next());
        assert!(world.write(number, number, begin, &mut commit));
        world.pass(20);
    }
    world.kill(3, 1);
    world.start_without_devices(3);
    world.pass(2000);
    assert_eq!(world.servers[&3].gauges.step(), Some(Step::Backup), "{:?}", world.state());
    world.kill(1, 1);
    world.make_primary(3);
    world.pass(3000);
    for number in 1..=9 {
        assert_eq!(world.read(number), Some(number));
    }
}

/// 3 has lost its devices, and 1 cannot give it a checkpoint: a record on its device is damaged, or its
/// device has not read a page when it started. Another one leads, and gives it.
fn rebuilt_beside_damage(is_damaged: bool) {
    let mut world = World::new();
    world.pass(200);
    let of = |number: u64| 0x1122_3344_0000 + number;
    for number in 1..=3 {
        let (begin, mut commit) = (world.now, world.now.next());
        assert!(world.write(of(number), number, begin, &mut commit));
        world.pass_until_stored(of(number));
    }
    let device = world.servers[&1].device.clone();
    if is_damaged {
        device.damage(of(2));
    } else {
        world.kill(1, 1);
        device.fail_reads_of(device.pages_with(of(2)));
        world.start(1);
        device.fail_reads_of(Vec::new());
        world.make_primary(1);
        world.pass(2000);
        assert_eq!(world.serving(), Some(1), "{:?}", world.state());
    }
    world.kill(3, 1);
    world.start_without_devices(3);
    world.pass(8000);
    assert_eq!(world.serving(), Some(1), "it serves while no other one does");
    let loss = world.servers[&1].gauges.loss();
    assert_eq!(loss, ReplicaLoss::Unread, "the controller sees it");
    world.make_primary(2);
    world.pass(4000);
    assert_eq!(world.serving(), Some(2), "{:?}", world.state());
    assert_eq!(world.servers[&3].gauges.step(), Some(Step::Backup), "{:?}", world.state());
    for number in 1..=3 {
        assert_eq!(world.read(number), Some(of(number)));
    }
}

#[test]
fn a_primary_that_cannot_give_a_checkpoint_says_so_and_another_one_gives_it() {
    rebuilt_beside_damage(true);
    rebuilt_beside_damage(false);
}

/// 3 loses its devices in one epoch, and 2 in the next one, which has its table at 1 and 2. Then 1
/// starts anew: it has everything.
#[test]
fn a_replica_that_has_everything_leads_although_two_have_lost_their_devices() {
    let mut world = World::new();
    world.pass(200);
    let put = |world: &mut World, number| {
        let (begin, mut commit) = (world.now, world.now.next());
        assert!(world.write(number, number, begin, &mut commit));
        world.pass(20);
    };
    put(&mut world, 1);
    world.kill(3, 1);
    world.deafen(3);
    world.start_without_devices(3);
    world.make_primary(1);
    world.pass(3000);
    assert_eq!(world.serving(), Some(1), "{:?}", world.state());
    put(&mut world, 2);
    world.kill(2, 1);
    world.kill(1, 1);
    world.deaf = None;
    world.start(1);
    world.start_without_devices(2);
    let losses = [2, 3].map(|id| world.servers[&id].gauges.loss());
    let newest = world.control.map.shards()[0].epoch;
    let before = Epoch::new(newest.get() - 1);
    assert_eq!(losses, [newest, before].map(ReplicaLoss::VoidSince));
    world.make_primary(1);
    world.pass(3000);
    assert_eq!(world.serving(), Some(1), "{:?}", world.state());
    world.pass(3000);
    for id in [2, 3] {
        assert_eq!(world.servers[&id].gauges.loss(), ReplicaLoss::None, "{:?}", world.state());
    }
    assert_eq!([1, 2].map(|key| world.read(key)), [Some(1), Some(2)]);
}

/// 2 has lost its devices while 3 is away: nothing counts, so 1 gives it a checkpoint of what does. No
/// part arrives, 3 is back, and more is written than 1 keeps. How many checkpoints 2 takes.
fn taker_is_left_behind() -> u32 {
    let mut world = World::keeping(Retention { bytes: 600, ..Retention::default() });
    world.pass(200);
    let put = |world: &mut World, number| {
        let (begin, mut commit) = (world.now, world.now.next());
        assert!(world.write(number, number, begin, &mut commit), "{:?}", world.state());
        world.pass(20);
    };
    put(&mut world, 1);
    world.kill(3, 1);
    world.kill(2, 1);
    world.loses_parts = Some(2);
    world.start_without_devices(2);
    world.pass(3000);
    world.start(3);
    world.pass(500);
    (2..=40).for_each(|number| put(&mut world, number));
    world.loses_parts = None;
    world.pass(15_000);
    assert_eq!(world.servers[&2].gauges.step(), Some(Step::Backup), "{:?}", world.state());
    world.kill(1, 1);
    world.make_primary(2);
    world.pass(3000);
    for number in 1..=40 {
        assert_eq!(world.read(number), Some(number));
    }
    world.servers[&2].rebuilt
}

#[test]
fn a_checkpoint_is_forgotten_when_what_follows_it_is_kept_no_more() {
    assert_eq!(taker_is_left_behind(), 1);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_checkpoint_that_is_given_in_vain_is_noticed() {
    use timestone_types::planted::{Bug, with};
    assert_eq!(with(Bug::GivesInVain, taker_is_left_behind), 2);
}

#[test]
fn a_replica_that_was_away_for_long_takes_a_checkpoint_and_its_place() {
    let mut world = World::keeping(Retention { bytes: 600, ..Retention::default() });
    world.pass(200);
    world.kill(3, 1);
    for number in 1..=40 {
        let (begin, mut commit) = (world.now, world.now.next());
        assert!(world.write(number, number % 7, begin, &mut commit));
        world.pass(20);
    }
    world.start(3);
    world.pass(3000);
    assert_eq!(world.servers[&3].rebuilt, 1);
    assert_eq!(world.servers[&3].gauges.step(), Some(Step::Backup), "{:?}", world.state());
    world.kill(1, 1);
    world.make_primary(3);
    world.pass(3000);
    assert_eq!(world.serving(), Some(3), "{:?}", world.state());
    for key in 0..7 {
        assert_eq!(world.read(key), (34..=40).find(|number| number % 7 == key));
    }
    world.kill(3, 1);
    world.start(3);
    world.make_primary(2);
    world.pass(3000);
    assert_eq!(world.read(3), Some(38));
}
