//! Golden runs: what happens in each case of a failover, step by step. Servers are 1 to 3, and 1
//! leads epoch 1.

use timestone_replication::{Input, Message, ReplicaId, Step};
use timestone_types::Epoch;
use timestone_wal::BatchNumber;

use crate::world::World;

pub(crate) const ALL: [ReplicaId; 3] = [ReplicaId(1), ReplicaId(2), ReplicaId(3)];
pub(crate) const ONE: ReplicaId = ReplicaId(1);
pub(crate) const TWO: ReplicaId = ReplicaId(2);
pub(crate) const THREE: ReplicaId = ReplicaId(3);
pub(crate) const EVERYTHING: usize = 1_000;

/// Three replicas; 1 serves in epoch 1.
pub(crate) fn three() -> World {
    let mut world = World::new(3);
    world.lead(ONE, &ALL);
    world.settle();
    assert!(world.is_serving(ONE));
    world
}

/// Loses what is under way to or from this one.
pub(crate) fn lose(world: &mut World, id: ReplicaId) {
    world.flying.retain(|(from, to, _)| *from != id && *to != id);
}

/// Delivers what is under way between these two only, and syncs both, until nothing is left.
pub(crate) fn settle_between(world: &mut World, ids: [ReplicaId; 2]) {
    loop {
        let between = |from: &ReplicaId, to: &ReplicaId| ids.contains(from) && ids.contains(to);
        let next = world.flying.iter().position(|(from, to, _)| between(from, to));
        match next {
            Some(index) => world.deliver(index),
            None => {
                let before = world.flying.len();
                ids.iter().for_each(|&id| world.sync(id, EVERYTHING));
                if world.flying.len() == before {
                    return;
                }
            }
        }
    }
}

/// 1 writes a batch, which 2 gets and 3 does not.
pub(crate) fn write_without_three(world: &mut World, leases: bool) {
    world.write(ONE, leases);
    lose(world, THREE);
    settle_between(world, [ONE, TWO]);
}

#[test]
fn a_batch_counts_when_the_primary_and_one_of_two_backups_have_it() {
    let mut world = three();
    world.write(ONE, false);
    lose(&mut world, THREE);
    world.deliver(0);
    world.sync(TWO, EVERYTHING);
    world.deliver(0);
    assert_eq!(world.replica(ONE).counted(), BatchNumber::ZERO, "the primary has not synced it");
    world.sync(ONE, EVERYTHING);
    assert_eq!(world.replica(ONE).counted(), BatchNumber::new(1));
}

#[test]
fn a_batch_that_counted_is_fetched_by_a_new_primary_that_lacks_it() {
    let mut world = three();
    write_without_three(&mut world, true);
    assert_eq!(world.laws.count(), 1);
    world.kill(ONE, 0);
    world.lead(THREE, &ALL);
    world.sync(THREE, EVERYTHING);
    settle_between(&mut world, [TWO, THREE]);
    assert!(world.is_serving(THREE));
    assert_eq!(world.applied(THREE).len(), 1, "it has the batch of epoch 1");
}

#[test]
fn a_batch_that_nobody_else_has_is_cut_when_its_primary_comes_back() {
    let mut world = three();
    world.write(ONE, false);
    world.sync(ONE, EVERYTHING);
    lose(&mut world, ONE);
    world.kill(ONE, 0);
    world.lead(TWO, &ALL);
    world.settle();
    assert!(world.is_serving(TWO));
    world.write(TWO, false);
    world.start(ONE);
    world.settle();
    world.settle();
    assert_eq!(world.applied(ONE), world.applied(TWO), "1 has the batch of epoch 2");
    assert_eq!(world.laws.count(), 1);
}

#[test]
fn a_deposed_primary_counts_nothing_any_more() {
    let mut world = three();
    world.write(ONE, true);
    world.sync(ONE, EVERYTHING);
    let appends = std::mem::take(&mut world.flying);
    world.lead(TWO, &ALL);
    settle_between(&mut world, [TWO, THREE]);
    assert!(world.is_serving(TWO));
    assert!(world.is_serving(ONE), "it has not heard of it");
    world.flying = appends;
    settle_between(&mut world, [ONE, THREE]);
    assert_eq!(world.laws.count(), 0, "3 refuses what is of epoch 1");
    assert!(!world.is_serving(ONE), "it was told that epoch 2 has begun");
}

#[test]
fn a_lease_that_only_a_backup_with_an_older_table_has_granted_is_in_the_floor() {
    let mut world = three();
    // 3 grants a lease in epoch 1.
    world.write(ONE, true);
    lose(&mut world, TWO);
    settle_between(&mut world, [ONE, THREE]);
    let granted = world.laws.count();
    assert_eq!(granted, 1);
    // 2 leads epoch 2 with 3, and knows of the lease.
    world.kill(ONE, 0);
    world.lead(TWO, &ALL);
    settle_between(&mut world, [TWO, THREE]);
    assert!(world.is_serving(TWO));
    // 1 comes back, and leads epoch 3 with 2. The laws see that no lease lies above its floor.
    world.kill(THREE, 0);
    world.start(ONE);
    world.lead(ONE, &ALL);
    settle_between(&mut world, [ONE, TWO]);
    assert!(world.is_serving(ONE));
}

#[test]
fn a_primary_that_starts_anew_needs_another_epoch() {
    let mut world = three();
    world.kill(ONE, 0);
    world.start(ONE);
    world.follow_map(ONE);
    world.settle();
    assert_eq!(world.replica(ONE).state(), Step::Backup, "epoch 1 is not led twice");
    world.lead(ONE, &ALL);
    world.settle();
    assert!(world.is_serving(ONE));
}

#[test]
fn a_table_is_installed_in_one_step() {
    let mut world = three();
    write_without_three(&mut world, false);
    world.lead(TWO, &ALL);
    lose(&mut world, ONE);
    settle_between(&mut world, [TWO, THREE]);
    // 3 is killed whenever it likes: it is in one epoch or the other.
    let mut world = three();
    write_without_three(&mut world, false);
    world.kill(ONE, 0);
    world.lead(TWO, &ALL);
    for more in 0..4 {
        settle_between(&mut world, [TWO, TWO]);
        while let Some(index) = world.flying.iter().position(|(_, to, _)| *to == THREE) {
            world.deliver(index);
        }
        world.kill(THREE, more);
        world.start(THREE);
        let installed = world.replica(THREE).installed();
        assert!(installed <= Epoch::new(2));
        world.pass(200);
        world.input(TWO, Input::Tick);
    }
    world.settle();
    assert!(world.is_serving(TWO));
    assert_eq!(world.applied(THREE), world.applied(TWO));
}

#[test]
fn a_replica_that_has_lost_its_disk_answers_nobody_before_it_has_a_table() {
    let mut world = three();
    write_without_three(&mut world, false);
    assert_eq!(world.laws.count(), 1, "1 and 2 have it");
    world.kill(ONE, 0);
    world.lose_disk(TWO);
    world.start(TWO);
    world.lead(THREE, &ALL);
    settle_between(&mut world, [TWO, THREE]);
    assert!(!world.is_serving(THREE), "2 has forgotten what it acknowledged");
    world.start(ONE);
    world.settle();
    assert!(world.is_serving(THREE));
    world.rebuild(THREE, TWO);
    assert_eq!(world.applied(TWO), world.applied(THREE), "it was rebuilt");
}

#[test]
fn lost_messages_are_noticed_and_sent_again() {
    let mut world = three();
    for _ in 0..5 {
        world.write(ONE, false);
    }
    // 2 gets the second and the fourth, 3 the third.
    let mut count = 0;
    world.flying.retain(|(_, to, message)| {
        count += usize::from(matches!(message, Message::Append { .. }) && *to == TWO);
        match message {
            Message::Append { batch, .. } if *to == TWO => batch.number.get() % 2 == 0,
            Message::Append { batch, .. } => batch.number.get() == 3,
            _ => true,
        }
    });
    assert_eq!(count, 5);
    world.settle();
    assert_eq!(world.laws.count(), 5);
    world.settle();
    assert_eq!(world.applied(TWO).len(), 5);
    assert_eq!(world.applied(THREE).len(), 5);
}

#[test]
fn a_backup_that_is_too_far_behind_is_not_waited_for_and_comes_back_by_a_checkpoint() {
    let mut world = three();
    world.batch_bytes = 10 << 20;
    for _ in 0..12 {
        world.write(ONE, false);
        lose(&mut world, THREE);
        settle_between(&mut world, [ONE, TWO]);
    }
    assert_eq!(world.laws.count(), 12);
    let lag: Vec<_> = world.replica(ONE).lag().collect();
    assert_eq!(lag[0], (TWO, 0, false));
    assert_eq!((lag[1].0, lag[1].2), (THREE, true), "nothing is kept for it");
    world.pass(200);
    world.input(ONE, Input::Tick);
    settle_between(&mut world, [ONE, THREE]);
    assert!(world.applied(THREE).is_empty(), "what it lacks is not kept");
    world.rebuild(ONE, THREE);
    world.write(ONE, false);
    world.settle();
    assert_eq!(world.applied(THREE).len(), 13);
    assert!(world.replica(ONE).lag().all(|(_, behind, is_lost)| behind == 0 && !is_lost));
}

/// Two backups lose their disks, one after the other, and are rebuilt from a checkpoint; then the
/// primary is lost.
#[test]
fn replicas_that_lost_their_disks_are_rebuilt_and_the_floor_is_above_old_leases() {
    let mut world = three();
    world.write(ONE, true);
    world.settle();
    world.settle();
    for id in [TWO, THREE] {
        world.lose_disk(id);
        world.start(id);
        world.lead(ONE, &ALL);
        world.settle();
        assert_eq!(world.replica(id).state(), Step::Rebuilding, "the batch is not kept for it");
        world.rebuild(ONE, id);
        assert_eq!(world.applied(id).len(), 1);
        assert!(world.replica(id).is_whole());
    }
    world.kill(ONE, 0);
    world.lead(TWO, &ALL);
    world.settle();
    assert!(world.is_serving(TWO));
}

#[test]
fn a_shard_with_one_replica_serves_alone() {
    let mut world = World::new(1);
    world.lead(ONE, &[ONE]);
    world.settle();
    assert!(world.is_serving(ONE));
    world.write(ONE, true);
    assert_eq!(world.laws.count(), 0);
    world.sync(ONE, EVERYTHING);
    assert_eq!(world.laws.count(), 1);
    world.kill(ONE, 0);
    world.start(ONE);
    world.lead(ONE, &[ONE]);
    world.settle();
    assert_eq!(world.applied(ONE).len(), 1);
    assert_eq!(world.epoch(), Epoch::new(2));
}

#[test]
fn replicas_change_and_the_old_ones_are_asked() {
    let mut world = World::new(5);
    let (four, five) = (ReplicaId(4), ReplicaId(5));
    world.lead(ONE, &ALL);
    world.settle();
    world.write(ONE, false);
    world.settle();
    for (replicas, new) in [([ONE, TWO, four], four), ([ONE, four, five], five)] {
        world.lead(ONE, &replicas);
        world.settle();
        assert!(world.is_serving(ONE));
        assert_eq!(world.replica(new).state(), Step::Rebuilding, "what it lacks is not kept");
        world.rebuild(ONE, new);
        assert_eq!(world.replica(new).state(), Step::Backup);
    }
    world.write(ONE, false);
    world.settle();
    assert_eq!(world.laws.count(), 2);
    world.kill(ONE, 0);
    // 4 asks 1, 4 and 5: of those before it only the last configuration counts, which has served.
    world.lead(four, &[ONE, four, five]);
    world.settle();
    assert!(world.is_serving(four));
    assert_eq!(world.applied(four).len(), 2);
}
