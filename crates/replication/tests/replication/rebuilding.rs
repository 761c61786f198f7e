//! Golden runs: a replica lacks what nobody keeps, gives up what it has, and takes a checkpoint,
//! while an acknowledgement of what it gave up is still on its way.

use timestone_replication::limits::Retention;
use timestone_replication::{Input, Lineage, Message, ReplicaId, Step};
use timestone_types::{Epoch, Timestamp};
use timestone_wal::BatchNumber;

use crate::scripts::{ALL, EVERYTHING, ONE, THREE, TWO, lose, settle_between, three};
use crate::world::{Sent, World};

const FOUR: ReplicaId = ReplicaId(4);
const FIVE: ReplicaId = ReplicaId(5);

/// Keeps so little that three batches are too many.
fn keeps_little(world: &mut World) {
    world.retention = Retention { bytes: 3 * world.batch_bytes, ..Retention::default() };
}

/// Takes the acknowledgement of a batch by 3 off its way.
fn acknowledgement_of(world: &mut World, number: u64) -> Sent {
    let number = BatchNumber::new(number);
    let acknowledges = |(from, _, message): &Sent| {
        *from == THREE
            && matches!(message, Message::Acked { durable, .. } if durable.contains(number))
    };
    let at = world.flying.iter().position(acknowledges);
    world.flying.swap_remove(at.expect("3 acknowledges it"))
}

/// Delivers what is under way to this one.
fn deliver_to(world: &mut World, id: ReplicaId) {
    while let Some(at) = world.flying.iter().position(|(_, to, _)| *to == id) {
        world.deliver(at);
    }
}

/// The primary asks 3, which gives up what it has; the log of 3 says so.
fn gives_up(world: &mut World, primary: ReplicaId) {
    for _ in 0..3 {
        world.pass(200);
        world.input(primary, Input::Tick);
        settle_between(world, [primary, THREE]);
    }
    assert_eq!(world.replica(THREE).state(), Step::Rebuilding);
}

/// 3 has acknowledged batch 2 of 4, and lacks batch 1, which is kept no more; batch 2 is at 1 and 3,
/// and 1 does not know. Then 3 takes a checkpoint of 1, which hears the acknowledgement, and dies.
pub(crate) fn an_acknowledgement_is_late() {
    let mut world = three();
    keeps_little(&mut world);
    world.write(ONE, false);
    lose(&mut world, THREE);
    settle_between(&mut world, [ONE, TWO]);
    world.write(ONE, false);
    lose(&mut world, TWO);
    deliver_to(&mut world, THREE);
    for _ in 0..2 {
        world.write(ONE, false);
        world.flying.clear();
    }
    world.sync(ONE, EVERYTHING);
    world.pass(200);
    world.input(ONE, Input::Tick);
    lose(&mut world, TWO);
    deliver_to(&mut world, THREE);
    deliver_to(&mut world, ONE);
    world.sync(THREE, EVERYTHING);
    let late = acknowledgement_of(&mut world, 2);
    deliver_to(&mut world, THREE);
    world.sync(THREE, EVERYTHING);
    assert_eq!(world.replica(THREE).state(), Step::Rebuilding);

    world.begin_checkpoint(ONE, THREE);
    world.end_checkpoint(THREE);
    world.flying.clear();
    world.pass(200);
    world.input(ONE, Input::Tick);
    deliver_to(&mut world, THREE);
    world.sync(THREE, EVERYTHING);
    world.flying.clear();
    assert!(world.replica(THREE).is_whole(), "it has what counts");
    world.flying.push(late);
    world.deliver(0);

    world.kill(ONE, 0);
    world.flying.clear();
    world.lead(TWO, &ALL);
    world.settle();
    assert!(world.is_serving(TWO), "{:?}", world.told());
    assert_eq!(world.laws.count(), 1, "what 3 had before its checkpoint counts no more");
}

#[test]
fn what_a_replica_acknowledged_before_its_checkpoint_counts_no_more() {
    an_acknowledgement_is_late();
}

/// 1 of five is cut off, and 2 leads epoch 2. There 3 acknowledges batch 3, lacks batch 2, which is
/// kept no more, and asks 1 for a checkpoint, which believes that it is primary.
pub(crate) fn a_deposed_primary_gives_a_checkpoint() {
    let all = [ONE, TWO, THREE, FOUR, FIVE];
    let mut world = World::new(5);
    world.lead(ONE, &all);
    world.settle();
    world.write(ONE, false);
    world.settle();
    keeps_little(&mut world);
    world.lead(TWO, &all);
    for _ in 0..10 {
        lose(&mut world, ONE);
        for other in [THREE, FOUR, FIVE] {
            settle_between(&mut world, [TWO, other]);
        }
    }
    assert!(world.is_serving(ONE) && world.is_serving(TWO));

    world.write(TWO, false);
    lose(&mut world, THREE);
    settle_between(&mut world, [TWO, FOUR]);
    settle_between(&mut world, [TWO, FIVE]);
    world.write(TWO, false);
    lose(&mut world, FIVE);
    settle_between(&mut world, [TWO, FOUR]);
    deliver_to(&mut world, THREE);
    world.sync(THREE, EVERYTHING);
    let late = acknowledgement_of(&mut world, 3);
    for _ in 0..2 {
        world.write(TWO, false);
        world.flying.clear();
    }
    world.sync(TWO, EVERYTHING);
    gives_up(&mut world, TWO);

    world.begin_checkpoint(ONE, THREE);
    world.end_checkpoint(THREE);
    let is_rebuilt = world.replica(THREE).state() != Step::Rebuilding;
    world.sync(THREE, EVERYTHING);
    world.flying.clear();
    world.flying.push(late);
    world.deliver(0);
    assert_eq!(world.laws.count(), 3, "2, 3 and 4 have said that they have it");

    world.kill(TWO, 0);
    world.kill(FOUR, 0);
    world.flying.clear();
    world.lead(FIVE, &all);
    world.settle();
    assert!(!world.is_serving(FIVE), "3 does not answer");
    assert!(!is_rebuilt, "a primary of epoch 1 does not know what 3 has acknowledged");
    assert_eq!(world.epoch(), Epoch::new(3));
}

#[test]
fn a_checkpoint_is_of_an_epoch_that_is_not_earlier_than_its_takers() {
    a_deposed_primary_gives_a_checkpoint();
}

/// 3 has got none of six batches, and has given up what it had.
fn three_is_left_behind() -> World {
    let mut world = three();
    keeps_little(&mut world);
    for _ in 0..6 {
        world.write(ONE, false);
        lose(&mut world, THREE);
        settle_between(&mut world, [ONE, TWO]);
    }
    gives_up(&mut world, ONE);
    world
}

/// A backup is left behind, gives up what it has, and dies on the way.
#[test]
fn a_restart_before_the_end_begins_anew() {
    let mut world = three_is_left_behind();
    world.begin_checkpoint(ONE, THREE);
    world.kill(THREE, 0);
    world.start(THREE);
    assert_eq!(world.replica(THREE).state(), Step::Rebuilding);
    assert!(!world.replica(THREE).is_whole());
    world.write(ONE, false);
    world.settle();
    world.rebuild(ONE, THREE);
    assert_eq!(world.applied(THREE), world.applied(ONE));
    world.kill(THREE, 0);
    world.start(THREE);
    assert!(world.replica(THREE).is_whole());
    world.settle();
    assert_eq!(world.applied(THREE), world.applied(ONE));
}

/// What is written while a replica takes a checkpoint is kept for it.
#[test]
fn what_is_written_meanwhile_is_kept() {
    let mut world = three_is_left_behind();
    world.begin_checkpoint(ONE, THREE);
    world.settle();
    world.end_checkpoint(THREE);
    for _ in 0..3 {
        world.write(ONE, false);
        lose(&mut world, THREE);
        settle_between(&mut world, [ONE, TWO]);
    }
    world.settle();
    assert_eq!(world.replica(THREE).state(), Step::Backup);
    assert_eq!(world.applied(THREE).len(), 9);
}

/// The word that a replica needs a checkpoint comes when it has had one.
#[test]
fn a_late_word_changes_nothing() {
    let mut world = three();
    world.write(ONE, false);
    world.settle();
    let (epoch, held_above) = (world.epoch(), BatchNumber::new(1));
    let late = Message::NeedsCheckpoint { epoch, held_above };
    world.flying.push((ONE, THREE, late.clone()));
    world.settle();
    assert_eq!(world.replica(THREE).state(), Step::Backup);
    // Nor from whoever is not the primary.
    let later = Message::NeedsCheckpoint { epoch, held_above: BatchNumber::new(9) };
    world.flying.push((TWO, THREE, later));
    world.settle();
    assert_eq!(world.replica(THREE).state(), Step::Backup);
}

/// 3 alone has granted 1 a lease, and loses its disk. It takes a checkpoint of 1; then 1 dies.
pub(crate) fn a_lease_was_granted_before_the_log_was_lost() {
    let mut world = three();
    world.write(ONE, true);
    lose(&mut world, TWO);
    settle_between(&mut world, [ONE, THREE]);
    assert_eq!(world.laws.count(), 1);
    world.lose_disk(THREE);
    world.start(THREE);
    world.sync(THREE, EVERYTHING);
    world.begin_checkpoint(ONE, THREE);
    world.end_checkpoint(THREE);
    for _ in 0..3 {
        world.pass(200);
        world.input(ONE, Input::Tick);
        lose(&mut world, TWO);
        settle_between(&mut world, [ONE, THREE]);
    }
    assert!(world.replica(THREE).is_whole());

    world.kill(ONE, 0);
    world.lead(THREE, &ALL);
    world.settle();
    assert_eq!(world.replica(TWO).state(), Step::Rebuilding, "3 has it in its store alone");
    world.rebuild(THREE, TWO);
    assert!(world.is_serving(THREE), "a candidate gives checkpoints");
    assert_eq!(world.applied(TWO).len(), 1);
}

#[test]
fn a_replica_that_lost_its_log_learns_of_its_grants() {
    a_lease_was_granted_before_the_log_was_lost();
}

/// Delivers what is under way between these two, and syncs nobody.
fn deliver_between(world: &mut World, ids: [ReplicaId; 2]) {
    let between = |(from, to, _): &Sent| ids.contains(from) && ids.contains(to);
    while let Some(at) = world.flying.iter().position(between) {
        world.deliver(at);
    }
}

/// Of five, 1 leads epoch 1, where 3 has acknowledged batch 3 and gives up what it has. 2 makes a
/// table for epoch 2 with 4 and 5; it is in no log yet when 3 takes a checkpoint of 2. Then 1 asks 3
/// for its own epoch once more.
pub(crate) fn a_candidate_gives_a_checkpoint_and_the_old_primary_asks() {
    let all = [ONE, TWO, THREE, FOUR, FIVE];
    let mut world = World::new(5);
    world.lead(ONE, &all);
    world.settle();
    world.write(ONE, false);
    world.settle();
    keeps_little(&mut world);
    world.write(ONE, false);
    lose(&mut world, THREE);
    for other in [TWO, FOUR, FIVE] {
        settle_between(&mut world, [ONE, other]);
    }
    world.write(ONE, false);
    lose(&mut world, TWO);
    lose(&mut world, FIVE);
    settle_between(&mut world, [ONE, FOUR]);
    deliver_between(&mut world, [ONE, THREE]);
    world.sync(THREE, EVERYTHING);
    let late = acknowledgement_of(&mut world, 3);
    for _ in 0..2 {
        world.write(ONE, false);
        world.flying.clear();
    }
    gives_up(&mut world, ONE);

    world.flying.clear();
    world.lead(TWO, &all);
    lose(&mut world, ONE);
    lose(&mut world, THREE);
    world.sync(TWO, EVERYTHING);
    for other in [FOUR, FIVE] {
        deliver_between(&mut world, [TWO, other]);
        world.sync(other, EVERYTHING);
    }
    for other in [FIVE, FOUR] {
        deliver_between(&mut world, [TWO, other]);
    }
    assert_eq!(world.replica(TWO).state(), Step::Installing, "of a table that has batch 3");

    world.begin_checkpoint(TWO, THREE);
    world.end_checkpoint(THREE);
    assert_ne!(world.replica(THREE).state(), Step::Rebuilding);
    world.flying.clear();
    world.pass(200);
    world.input(ONE, Input::Tick);
    deliver_between(&mut world, [ONE, THREE]);
    world.sync(THREE, EVERYTHING);
    let is_whole = world.replica(THREE).is_whole();
    world.flying.clear();
    world.flying.push(late);
    world.deliver(0);
    assert_eq!(world.laws.count(), 3);

    for id in [ONE, TWO, FOUR] {
        world.kill(id, 0);
    }
    world.flying.clear();
    world.start(TWO);
    world.lead(FIVE, &all);
    world.settle();
    assert!(!world.is_serving(FIVE), "3 does not answer");
    assert!(!is_whole, "no table of epoch 2 is here");
}

#[test]
fn whoever_took_a_checkpoint_of_a_candidate_follows_no_primary_before() {
    a_candidate_gives_a_checkpoint_and_the_old_primary_asks();
}

/// The mark of a table is on its way to the log when the replica gives up what it has.
#[test]
fn a_table_that_was_given_up_is_not_installed() {
    let mut world = three();
    let epoch = Epoch::new(2);
    let based_on =
        Lineage::new(vec![(Epoch::ZERO, BatchNumber::ZERO), (Epoch::new(1), BatchNumber::ZERO)]);
    let (based_on, through) = (based_on.expect("epochs rise"), BatchNumber::ZERO);
    let floor = Timestamp::ZERO;
    world.flying.push((TWO, THREE, Message::Install { epoch, based_on, through, floor }));
    let held_above = BatchNumber::new(5);
    world.flying.push((TWO, THREE, Message::NeedsCheckpoint { epoch, held_above }));
    world.deliver(0);
    world.deliver(0);
    world.sync(THREE, EVERYTHING);
    assert_eq!(world.replica(THREE).state(), Step::Rebuilding);
    assert_eq!(world.replica(THREE).installed(), Epoch::ZERO);
}

/// 2 and 3 of three have given up what they had, and no checkpoint is whole: 2 lacked the first of
/// eight batches, 3 the fourth.
fn two_have_given_up() -> World {
    let mut world = three();
    keeps_little(&mut world);
    for batch in 0..8 {
        let (lacks, other) = if batch < 3 { (TWO, THREE) } else { (THREE, TWO) };
        world.write(ONE, false);
        lose(&mut world, lacks);
        settle_between(&mut world, [ONE, other]);
    }
    for _ in 0..3 {
        world.pass(200);
        world.input(ONE, Input::Tick);
        world.settle();
    }
    for id in [TWO, THREE] {
        assert_eq!(world.replica(id).state(), Step::Rebuilding);
    }
    world
}

/// The third one starts anew, and so do they. It has everything: they know that.
#[test]
fn one_that_has_everything_leads_while_the_others_take_checkpoints() {
    let mut world = two_have_given_up();
    for id in ALL {
        world.kill(id, 0);
        world.start(id);
    }
    world.flying.clear();
    assert!(!world.replica(TWO).is_whole() && world.replica(TWO).remembers());
    world.lead(ONE, &ALL);
    world.settle();
    assert_eq!(world.replica(ONE).state(), Step::Installing, "{:?}", world.told());
    world.rebuild(ONE, TWO);
    assert!(world.is_serving(ONE), "{:?}", world.told());
    assert!(world.replica(TWO).is_whole());
    world.rebuild(ONE, THREE);
    assert_eq!(world.applied(THREE), world.applied(ONE));
    assert_eq!(world.applied(ONE).len(), world.laws.count());
}

/// 3 has acknowledged a batch that counts and that 2 lacks, and gives up what it had. Then 1 dies.
pub(crate) fn who_has_a_batch_has_given_it_up() {
    let mut world = three_is_left_behind();
    world.rebuild(ONE, THREE);
    world.write(ONE, false);
    lose(&mut world, TWO);
    settle_between(&mut world, [ONE, THREE]);
    let counted = world.laws.count();
    assert_eq!(counted, 7);
    for _ in 0..4 {
        world.write(ONE, false);
        lose(&mut world, THREE);
        settle_between(&mut world, [ONE, TWO]);
    }
    gives_up(&mut world, ONE);

    world.kill(ONE, 0);
    world.kill(THREE, 0);
    world.start(THREE);
    world.flying.clear();
    world.lead(TWO, &ALL);
    world.settle();
    assert!(!world.is_serving(TWO), "batch 7 is at 1 alone");
    let last = *world.cannot_lead.last().expect("it says so");
    assert_eq!(last, (TWO, world.epoch()));
    world.start(ONE);
    world.lead(ONE, &ALL);
    world.settle();
    world.rebuild(ONE, THREE);
    world.rebuild(ONE, TWO);
    assert!(world.is_serving(ONE), "{:?}", world.told());
    assert_eq!(world.applied(TWO), world.applied(ONE));
    assert_eq!(world.laws.count(), counted + 4);
}

#[test]
fn nobody_leads_without_what_was_given_up() {
    who_has_a_batch_has_given_it_up();
}

/// It takes a checkpoint, and starts anew before it has installed the table of the epoch: what it
/// gave up is what it knows, until it has.
#[test]
fn what_was_given_up_is_known_until_a_table_is_installed() {
    let mut world = three_is_left_behind();
    world.begin_checkpoint(ONE, THREE);
    world.settle();
    world.end_checkpoint(THREE);
    assert!(!world.replica(THREE).is_emptied() && !world.replica(THREE).is_whole());
    world.kill(THREE, 0);
    world.start(THREE);
    assert_eq!(world.replica(THREE).state(), Step::Rebuilding);
    assert!(world.replica(THREE).remembers());
    world.rebuild(ONE, THREE);
    assert!(world.replica(THREE).is_whole());
}

/// Its disk is lost while it takes a checkpoint: what it remembers is gone with that.
#[test]
fn who_loses_its_log_does_not_know_what_it_gave_up() {
    let mut world = three_is_left_behind();
    world.lose_disk(THREE);
    world.start(THREE);
    world.settle();
    assert_eq!(world.replica(THREE).void_since(), Some(world.epoch()));
}

/// The other one is dead. A checkpoint takes longer than a primary waits for news.
#[test]
fn who_takes_a_checkpoint_is_heard() {
    let mut world = three_is_left_behind();
    world.kill(TWO, 0);
    world.flying.clear();
    world.write(ONE, false);
    world.begin_checkpoint(ONE, THREE);
    for _ in 0..50 {
        world.pass(100);
        world.input(ONE, Input::Tick);
        settle_between(&mut world, [ONE, THREE]);
        assert!(!world.replica(ONE).hears_nobody(world.now), "another primary would begin anew");
    }
    world.end_checkpoint(THREE);
    world.settle();
    assert_eq!(world.laws.count(), 7);
}

/// 3 loses its disk in epoch 1. Epoch 2 begins without it, and has its table at 1 and 2.
fn three_has_lost_its_disk() -> World {
    let mut world = three();
    world.write(ONE, true);
    world.settle();
    world.lose_disk(THREE);
    world.start(THREE);
    world.sync(THREE, EVERYTHING);
    world.lead(ONE, &ALL);
    lose(&mut world, THREE);
    settle_between(&mut world, [ONE, TWO]);
    assert!(world.is_serving(ONE), "{:?}", world.told());
    world.write(ONE, true);
    settle_between(&mut world, [ONE, TWO]);
    assert_eq!(world.laws.count(), 2);
    world
}

/// Then 2 loses its disk as well, and 1 starts anew. It has everything, and 3 has acknowledged nothing
/// that is not in the table of epoch 2.
#[test]
fn one_that_has_everything_leads_although_two_have_lost_their_disks() {
    let mut world = three_has_lost_its_disk();
    world.lose_disk(TWO);
    world.start(TWO);
    world.kill(ONE, 0);
    world.start(ONE);
    world.flying.clear();
    let since = |id| world.replica(id).void_since();
    assert_eq!([TWO, THREE].map(since), [Some(Epoch::new(2)), Some(Epoch::new(1))]);
    world.lead(ONE, &ALL);
    world.settle();
    assert_eq!(world.replica(ONE).state(), Step::Installing, "{:?}", world.told());
    world.rebuild(ONE, THREE);
    assert!(world.is_serving(ONE), "{:?}", world.told());
    world.rebuild(ONE, TWO);
    for id in [TWO, THREE] {
        assert!(world.replica(id).is_whole());
        assert_eq!(world.applied(id), world.applied(ONE));
    }
    assert_eq!(world.laws.count(), 2);
}

/// A checkpoint that came whole and that no table followed is nothing that it has acknowledged.
#[test]
fn who_has_lost_its_disk_says_so_until_a_table_is_installed() {
    let mut world = three_has_lost_its_disk();
    world.begin_checkpoint(ONE, THREE);
    world.flying.clear();
    world.end_checkpoint(THREE);
    world.flying.clear();
    assert!(!world.replica(THREE).is_emptied());
    assert_eq!(world.replica(THREE).void_since(), Some(Epoch::new(1)));
    world.lose_disk(TWO);
    world.start(TWO);
    world.kill(ONE, 0);
    world.start(ONE);
    world.lead(ONE, &ALL);
    world.settle();
    world.rebuild(ONE, THREE);
    assert!(world.is_serving(ONE), "{:?}", world.told());
    assert_eq!(world.replica(THREE).void_since(), None);
}

/// 1 alone has a batch that counts, and is away: nobody makes a table before it is back.
fn leads_with_one_alone(world: &mut World, candidate: ReplicaId) {
    world.lead(candidate, &ALL);
    world.settle();
    assert_eq!(world.replica(candidate).state(), Step::Joining, "the batch is at 1 alone");
    world.start(ONE);
    world.settle();
    assert!(world.is_serving(candidate));
}

/// A batch is at 1 and 2, and 2 loses its disk. Then 1 is away.
pub(crate) fn who_has_a_batch_has_lost_it_in_the_same_epoch() {
    let mut world = three();
    world.write(ONE, false);
    lose(&mut world, THREE);
    settle_between(&mut world, [ONE, TWO]);
    assert_eq!(world.laws.count(), 1);
    world.lose_disk(TWO);
    world.start(TWO);
    world.kill(ONE, 0);
    leads_with_one_alone(&mut world, THREE);
}

#[test]
fn who_has_lost_its_disk_in_the_epoch_of_the_table_is_not_counted() {
    who_has_a_batch_has_lost_it_in_the_same_epoch();
}

/// 3 loses its disk in epoch 1, and is rebuilt in epoch 2. A batch is at 1 and 3. Then the disk of 3 is
/// put back as it was before, and 1 is away.
pub(crate) fn who_has_a_batch_has_lost_it_after_an_earlier_loss() {
    let mut world = three_has_lost_its_disk();
    let copy = world.servers[&THREE].clone();
    world.rebuild(ONE, THREE);
    world.settle();
    assert!(world.replica(THREE).is_whole());
    world.write(ONE, false);
    lose(&mut world, TWO);
    settle_between(&mut world, [ONE, THREE]);
    assert_eq!(world.laws.count(), 3);
    world.put_back(THREE, copy);
    world.start(THREE);
    world.kill(ONE, 0);
    world.flying.clear();
    leads_with_one_alone(&mut world, TWO);
}

#[test]
fn an_older_copy_does_not_tell_since_when_it_has_nothing() {
    who_has_a_batch_has_lost_it_after_an_earlier_loss();
}

/// 4 stands by, and loses its disk in epoch 1. It takes the place of 3 in epoch 2, and before anybody has
/// installed its table 2 loses its disk as well.
#[test]
fn who_stood_by_when_it_lost_its_disk_has_acknowledged_nothing_in_that_epoch() {
    let mut world = World::new(4);
    world.lead(ONE, &ALL);
    world.settle();
    world.write(ONE, true);
    world.settle();
    world.lose_disk(FOUR);
    world.start(FOUR);
    world.settle();
    let four = world.replica(FOUR);
    assert_eq!((four.promised(), four.void_since()), (Epoch::new(1), Some(Epoch::ZERO)));
    let replicas = [ONE, TWO, FOUR];
    world.lead(ONE, &replicas);
    world.flying.clear();
    world.lose_disk(TWO);
    world.start(TWO);
    world.kill(ONE, 0);
    world.start(ONE);
    world.lead(ONE, &replicas);
    world.settle();
    assert_eq!(world.replica(ONE).state(), Step::Installing, "{:?}", world.told());
    world.rebuild(ONE, FOUR);
    assert!(world.is_serving(ONE), "{:?}", world.told());
    world.rebuild(ONE, TWO);
    assert_eq!([TWO, FOUR].map(|id| world.applied(id).len()), [1, 1]);
}

/// 3 asks 1 for a checkpoint, which is deposed then, and goes on to ask 2 for the same one. What it has asked 1
/// for comes late, and ends it: it brings less than 2 would have.
pub(crate) fn another_primary_ends_the_checkpoint() {
    let mut world = three_has_lost_its_disk();
    keeps_little(&mut world);
    world.begin_checkpoint(ONE, THREE);
    let late = world.part_under_way(THREE);
    world.flying.clear();
    world.lead(TWO, &ALL);
    lose(&mut world, THREE);
    settle_between(&mut world, [ONE, TWO]);
    assert!(world.is_serving(TWO), "{:?}", world.told());
    for _ in 0..6 {
        world.write(TWO, true);
        lose(&mut world, THREE);
        settle_between(&mut world, [ONE, TWO]);
    }
    world.goes_on_at(TWO, THREE);
    world.settle();
    world.write(TWO, true);
    lose(&mut world, THREE);
    settle_between(&mut world, [ONE, TWO]);
    world.end_with(THREE, late);
    for _ in 0..5 {
        world.pass(200);
        world.input(TWO, Input::Tick);
        world.settle();
    }
    world.rebuild(TWO, THREE);
    assert!(world.replica(THREE).is_whole(), "{:?}", world.told());
    assert_eq!(world.applied(THREE), world.applied(TWO));
}

#[test]
fn a_checkpoint_that_another_primary_has_ended_is_not_waited_for() {
    another_primary_ends_the_checkpoint();
}
