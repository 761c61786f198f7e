//! Golden runs: messages that are lost or late, sources that die, checkpoints at the wrong moment.

use timestone_replication::{Input, Message, ReplicaId, Step};
use timestone_types::Timestamp;
use timestone_wal::BatchNumber;

use crate::scripts::{
    ALL, EVERYTHING, ONE, THREE, TWO, lose, settle_between, three, write_without_three,
};
use crate::world::World;

fn deliver_all(world: &mut World) {
    while !world.flying.is_empty() {
        world.deliver(0);
    }
}

fn sync_all(world: &mut World) {
    ALL.iter().for_each(|&id| world.sync(id, EVERYTHING));
}

#[test]
fn a_hole_at_both_backups_is_filled_while_batches_flow() {
    let mut world = three();
    for written in 0..300 {
        world.write(ONE, false);
        if written == 0 {
            world.flying.clear();
        }
        deliver_all(&mut world);
        sync_all(&mut world);
        deliver_all(&mut world);
        world.pass(10);
        world.input(ONE, Input::Tick);
    }
    assert!(world.laws.count() > 250, "{} count", world.laws.count());
}

#[test]
fn what_counts_is_said_again_when_the_word_of_it_is_lost() {
    let mut world = three();
    world.write(ONE, false);
    deliver_all(&mut world);
    sync_all(&mut world);
    deliver_all(&mut world);
    assert_eq!(world.laws.count(), 1);
    world.pass(200);
    world.input(ONE, Input::Tick);
    let is_probe = |message: &Message<_>| matches!(message, Message::Probe { .. });
    assert!(world.flying.iter().any(|(_, _, message)| is_probe(message)));
    world.flying.clear();
    world.settle();
    assert_eq!(world.applied(TWO).len(), 1, "it has carried out what counts");
}

/// 3 is to lead and lacks a batch; only `source` has answered it, as what is under way to others is
/// late. Leaves that out of the world, and returns it.
fn fetches(world: &mut World, source: ReplicaId) -> Vec<crate::world::Sent> {
    world.lead(THREE, &ALL);
    world.sync(THREE, EVERYTHING);
    let (now, late): (Vec<_>, Vec<_>) =
        world.flying.drain(..).partition(|(_, to, _)| *to == source);
    world.flying = now;
    let joins =
        |message: &Message<_>| matches!(message, Message::Join { .. } | Message::Joined { .. });
    for _ in 0..4 {
        while let Some(at) = world.flying.iter().position(|(_, _, message)| joins(message)) {
            world.deliver(at);
        }
        world.sync(source, EVERYTHING);
    }
    assert_eq!(world.replica(THREE).state(), Step::Fetching);
    late
}

/// 1 and 2 have a batch, which counts, and 3 does not.
fn two_have_it() -> World {
    let mut world = three();
    write_without_three(&mut world, false);
    assert_eq!(world.laws.count(), 1);
    world
}

/// Most bytes that are on their way to a candidate which lacks 30 MiB; no time passes while it fetches.
fn fetched_at_once() -> usize {
    let mut world = three();
    world.batch_bytes = 3 << 20;
    for _ in 0..10 {
        write_without_three(&mut world, false);
    }
    assert_eq!(world.laws.count(), 10);
    let bytes = |sent: &crate::world::Sent| match &sent.2 {
        Message::Fetched { batch, .. } => batch.payload.bytes,
        _ => 0,
    };
    let mut most = 0;
    world.lead(THREE, &ALL);
    for _ in 0..2000 {
        sync_all(&mut world);
        if !world.flying.is_empty() {
            world.deliver(0);
        }
        most = most.max(world.flying.iter().map(bytes).sum());
    }
    assert!(world.is_serving(THREE), "it waits for nothing");
    assert_eq!(world.applied(THREE).len(), 10);
    most
}

#[test]
fn what_is_fetched_comes_in_parts() {
    let most = fetched_at_once();
    assert!(most <= timestone_replication::limits::FETCHED_BYTES, "{most} bytes");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn an_answer_without_a_bound_is_noticed() {
    use timestone_types::planted::{Bug, with};
    assert!(with(Bug::AnswersFetchWhole, fetched_at_once) >= 30 << 20);
}

#[test]
fn a_source_that_dies_is_replaced_by_one_that_answers_late() {
    let mut world = two_have_it();
    let late = fetches(&mut world, ONE);
    world.kill(ONE, 0);
    world.flying = late;
    world.settle();
    assert!(world.is_serving(THREE));
    assert_eq!(world.applied(THREE).len(), 1);
}

#[test]
fn a_source_that_starts_anew_and_holds_less_says_so() {
    let mut world = two_have_it();
    // 2 learns that it counts.
    write_without_three(&mut world, false);
    fetches(&mut world, TWO);
    world.flying.clear();
    world.checkpoint(TWO);
    world.kill(TWO, 0);
    world.start(TWO);
    world.settle();
    assert!(world.is_serving(THREE), "1 has it, and was asked");
}

#[test]
fn a_candidate_whose_only_source_is_lost_says_that_it_cannot_lead() {
    let mut world = two_have_it();
    fetches(&mut world, TWO);
    world.flying.clear();
    world.kill(ONE, 0);
    world.kill(TWO, 0);
    world.settle();
    assert_eq!(world.cannot_lead, [(THREE, world.epoch())]);
    assert_eq!(world.replica(THREE).state(), Step::Backup);
    world.start(TWO);
    world.lead(TWO, &ALL);
    world.settle();
    assert!(world.is_serving(TWO));
}

/// 2 leads a later epoch with 3, and has a batch that counts; 1 has heard nothing of it.
fn one_is_left_behind(world: &mut World) {
    world.lead(TWO, &ALL);
    lose(world, ONE);
    settle_between(world, [TWO, THREE]);
    assert!(world.is_serving(TWO));
    world.write(TWO, false);
    lose(world, ONE);
    settle_between(world, [TWO, THREE]);
    assert_eq!(world.laws.count(), 1);
}

#[test]
fn a_primary_that_gets_a_checkpoint_of_a_later_epoch_is_deposed() {
    let mut world = three();
    one_is_left_behind(&mut world);
    assert!(world.is_serving(ONE), "it does not know");
    world.copy_checkpoint(TWO, ONE);
    assert!(!world.is_serving(ONE));
    world.write(ONE, false);
    world.settle();
    world.settle();
    assert_eq!(world.applied(ONE), world.applied(TWO));
}

#[test]
fn a_primary_needs_no_checkpoint_of_its_own_epoch() {
    let mut world = three();
    world.write(ONE, false);
    world.settle();
    let (epoch, through) = (world.epoch(), BatchNumber::new(1));
    world.input(ONE, Input::Rebased { epoch, through, lease: Timestamp::ZERO, session: 0 });
    assert!(world.is_serving(ONE));
    world.write(ONE, false);
    world.settle();
    assert_eq!(world.laws.count(), 2);
}

#[test]
fn a_candidate_that_installs_and_gets_a_checkpoint_of_a_later_epoch_is_deposed() {
    let mut world = three();
    world.lead(ONE, &ALL);
    let is_last = |message: &Message<_>| matches!(message, Message::Acked { installed: true, .. });
    for _ in 0..6 {
        let with_two = |(from, to, message): &crate::world::Sent| {
            (*from == TWO || *to == TWO) && !is_last(message)
        };
        while let Some(at) = world.flying.iter().position(with_two) {
            world.deliver(at);
        }
        world.sync(TWO, EVERYTHING);
        world.sync(ONE, EVERYTHING);
    }
    assert_eq!(world.replica(ONE).state(), Step::Installing);
    let at = world.flying.iter().position(|(_, _, message)| is_last(message));
    let acked = world.flying.swap_remove(at.expect("2 has installed"));
    one_is_left_behind(&mut world);
    world.copy_checkpoint(TWO, ONE);
    world.flying = vec![acked];
    world.deliver(0);
    assert_eq!(world.replica(ONE).state(), Step::Backup);
}

#[test]
fn a_candidate_that_fetches_goes_on_with_a_checkpoint() {
    let mut world = two_have_it();
    fetches(&mut world, TWO);
    world.flying.clear();
    world.copy_checkpoint(ONE, THREE);
    assert_eq!(world.replica(THREE).state(), Step::Installing);
    world.settle();
    assert!(world.is_serving(THREE));
    assert_eq!(world.applied(THREE).len(), 1);
}

#[test]
fn half_a_table_is_kept_for_whoever_starts_anew() {
    // 1 and 2 are in epoch 3 with three batches of epoch 2, 3 is in epoch 1.
    let mut world = three();
    for writes in [3, 0] {
        world.lead(ONE, &ALL);
        lose(&mut world, THREE);
        settle_between(&mut world, [ONE, TWO]);
        assert!(world.is_serving(ONE));
        for _ in 0..writes {
            world.write(ONE, false);
            lose(&mut world, THREE);
            settle_between(&mut world, [ONE, TWO]);
        }
    }
    assert_eq!(world.laws.count(), 3);
    // 3 gets the table but for its last batch, makes that durable, and says so.
    let is_lost = |message: &Message<_>| matches!(message, Message::Append { batch, .. } if batch.number == BatchNumber::new(3));
    world.flying.clear();
    for _ in 0..4 {
        world.pass(200);
        world.input(ONE, Input::Tick);
        while let Some(at) = world.flying.iter().position(|(_, _, message)| !is_lost(message)) {
            world.deliver(at);
        }
        world.flying.clear();
        world.sync(THREE, EVERYTHING);
    }
    world.flying.clear();
    world.kill(THREE, 0);
    world.start(THREE);
    world.settle();
    assert_eq!(world.applied(THREE).len(), 3, "all of it was sent again");
}

#[test]
fn a_replica_that_has_lost_its_disk_knows_that_after_a_second_restart() {
    let mut world = two_have_it();
    world.kill(ONE, 0);
    world.lose_disk(TWO);
    world.start(TWO);
    world.sync(TWO, EVERYTHING);
    world.kill(TWO, 0);
    world.start(TWO);
    assert!(!world.replica(TWO).is_whole(), "its log says so");
    world.lead(THREE, &ALL);
    settle_between(&mut world, [TWO, THREE]);
    assert!(!world.is_serving(THREE), "2 has forgotten what it acknowledged");
    world.start(ONE);
    world.settle();
    assert!(world.is_serving(THREE));
    assert!(!world.replica(TWO).is_whole(), "no table brings back what it acknowledged");
    world.rebuild(THREE, TWO);
    assert!(world.replica(TWO).is_whole(), "it was rebuilt");
    world.kill(TWO, 0);
    world.start(TWO);
    assert!(world.replica(TWO).is_whole(), "and its log says so");
}

/// What a leader hears while every message to or from it is lost, for so many milliseconds.
fn is_deaf_after(world: &mut World, leader: ReplicaId, millis: u64) -> bool {
    for _ in 0..millis / 100 {
        world.pass(100);
        world.input(leader, Input::Tick);
        world.flying.clear();
    }
    world.replica(leader).hears_nobody(world.now)
}

#[test]
fn who_leads_and_hears_nothing_new_says_so_until_it_does() {
    let mut world = three();
    assert!(!is_deaf_after(&mut world, ONE, 5000), "nothing waits for the others");
    world.write(ONE, false);
    sync_all(&mut world);
    assert!(!is_deaf_after(&mut world, ONE, 1900), "they may be late");
    assert!(is_deaf_after(&mut world, ONE, 200), "serving: what it has written does not count");
    world.settle();
    assert!(!world.replica(ONE).hears_nobody(world.now));
    assert_eq!(world.laws.count(), 1);

    world.lead(THREE, &ALL);
    world.sync(THREE, EVERYTHING);
    assert_eq!(world.replica(THREE).state(), Step::Joining);
    assert!(!is_deaf_after(&mut world, THREE, 1900));
    assert!(is_deaf_after(&mut world, THREE, 200), "joining: nobody has answered");
    world.settle();
    assert_eq!(world.replica(THREE).state(), Step::Serving);
    assert!(!world.replica(THREE).hears_nobody(world.now));

    world.lead(TWO, &ALL);
    let is_installing = |world: &World| world.replica(TWO).state() == Step::Installing;
    while !is_installing(&world) && !world.flying.is_empty() {
        world.deliver(0);
        sync_all(&mut world);
    }
    assert!(is_installing(&world));
    assert!(!is_deaf_after(&mut world, TWO, 1900));
    assert!(is_deaf_after(&mut world, TWO, 200), "installing: nobody has the table");
    world.settle();
    assert_eq!(world.replica(TWO).state(), Step::Serving);
}
