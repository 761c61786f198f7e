//! Messages that no replica sends.

use timestone_replication::{
    Batch, Input, JoinAnswer, Lineage, Message, NumberSet, Output, ReplicaId,
};
use timestone_types::random::{Dice, Seed};
use timestone_types::{Epoch, Timestamp};
use timestone_wal::BatchNumber;

use crate::scripts::{ONE, THREE, TWO, three};
use crate::world::{Content, World};

fn number(raw: u64) -> BatchNumber {
    BatchNumber::new(raw)
}

/// A number as an attacker likes it: near zero, near what is there, far, at the end.
fn any_number(dice: &mut Dice) -> BatchNumber {
    let raw = match dice.below(8) {
        0..=4 => dice.below(8),
        5 => dice.below(1 << 23),
        6 => dice.below(u64::MAX),
        _ => u64::MAX - dice.below(3),
    };
    number(raw)
}

fn any_epoch(dice: &mut Dice) -> Epoch {
    Epoch::new(u32::try_from(dice.below(6)).expect("small"))
}

fn any_set(dice: &mut Dice) -> NumberSet {
    let through = any_number(dice);
    let runs: Vec<_> = (0..dice.below(4)).map(|_| (any_number(dice), any_number(dice))).collect();
    NumberSet::from_runs(through, runs)
}

fn any_lineage(dice: &mut Dice) -> Lineage {
    let mut epochs: Vec<_> =
        (0..=dice.below(2)).map(|_| (any_epoch(dice), any_number(dice))).collect();
    epochs.sort_unstable();
    Lineage::new(epochs).unwrap_or_default()
}

fn any_batch(dice: &mut Dice) -> Batch<Content> {
    let lease = Timestamp::from_nanos(dice.below(1 << 40));
    let payload = Content { id: dice.below(99), bytes: 100 };
    Batch { number: any_number(dice), epoch: any_epoch(dice), lease, payload }
}

fn any_message(dice: &mut Dice) -> Message<Content> {
    let epoch = any_epoch(dice);
    let (counted, stable) = (any_number(dice), any_number(dice));
    match dice.below(9) {
        0 => Message::Join { epoch },
        1 => {
            let (lineage, has, held_above) = (any_lineage(dice), any_set(dice), any_number(dice));
            let void_since = (dice.below(4) == 0).then(|| any_epoch(dice));
            let lease = Timestamp::ZERO;
            let answer = JoinAnswer { lineage, lease, has, held_above, void_since };
            Message::Joined { epoch, answer }
        }
        2 => Message::Fetch { epoch, runs: vec![(counted, stable); 2] },
        3 => Message::Fetched { epoch, batch: any_batch(dice) },
        4 => {
            let (based_on, floor) = (any_lineage(dice), Timestamp::ZERO);
            Message::Install { epoch, based_on, through: any_number(dice), floor }
        }
        5 => Message::Append { epoch, counted, stable, batch: any_batch(dice) },
        6 => Message::Probe { epoch, counted, stable },
        7 => {
            let (installed, durable) = (dice.below(2) == 0, any_set(dice));
            let received = (dice.below(2) == 0).then(|| any_set(dice));
            Message::Acked { epoch, installed, counted, session: 0, durable, received }
        }
        _ => Message::Refused { promised: epoch },
    }
}

/// A replica that is a backup, a candidate or a primary, with a few batches.
fn some_world(dice: &mut Dice) -> World {
    let mut world = three();
    for _ in 0..dice.below(4) {
        world.write(ONE, true);
    }
    if dice.below(2) == 0 {
        world.settle();
    }
    if dice.below(3) > 0 {
        world.lead(TWO, &[ONE, TWO, THREE]);
        world.sync(TWO, 1);
    }
    world.flying.clear();
    world
}

/// Nothing that a peer says stops a replica; what is told as malformed has changed nothing.
#[test]
fn no_message_stops_a_replica() {
    let mut malformed = 0;
    for seed in 0..3_000 {
        let mut dice = Seed(seed).derive("malformed", 0).dice();
        let world = some_world(&mut dice);
        let mut replica = world.replica([ONE, TWO, THREE][dice.below(3) as usize]).clone();
        let mut last = None;
        for _ in 0..40 {
            let from = ReplicaId(u32::try_from(dice.below(4)).expect("small") + 1);
            let (before, message) = (replica.clone(), any_message(&mut dice));
            let mut out = Vec::new();
            replica.step(world.now, Input::Message { from, message }, &mut out);
            if out.contains(&Output::Malformed { from }) {
                assert!(replica == before && out.len() == 1, "it was dropped");
                malformed += 1;
            }
            for output in &out {
                if let Output::Persist { ticket, .. } = output {
                    last = Some(*ticket);
                }
            }
            if let Some(through) = last.filter(|_| dice.below(2) == 0) {
                replica.step(world.now, Input::Persisted { through }, &mut Vec::new());
            }
            replica.step(world.now, Input::Tick, &mut Vec::new());
        }
    }
    assert!(malformed > 10_000, "{malformed} were dropped");
}

/// What a backup of epoch 1 says to a message.
fn is_dropped(message: Message<Content>) -> bool {
    let world = three();
    let mut replica = world.replica(TWO).clone();
    let mut out = Vec::new();
    replica.step(world.now, Input::Message { from: ONE, message }, &mut out);
    let is_unchanged = replica == *world.replica(TWO);
    out == [Output::Malformed { from: ONE }] && is_unchanged
}

#[test]
fn what_no_replica_says_is_dropped() {
    let append = |at: u64, of: u32| {
        let payload = Content { id: 1, bytes: 100 };
        let (epoch, lease) = (Epoch::new(of), Timestamp::ZERO);
        let batch = Batch { number: number(at), epoch, lease, payload };
        let (counted, stable) = (BatchNumber::ZERO, BatchNumber::ZERO);
        Message::Append { epoch: Epoch::new(1), counted, stable, batch }
    };
    assert!(!is_dropped(append(1, 1)));
    assert!(is_dropped(append(1, 9)), "of a later epoch");
    assert!(is_dropped(append(1, 0)), "of an earlier one, above the table");
    assert!(is_dropped(append(u64::MAX / 2, 1)), "far ahead");
    let install = |base: u32, end: u64| {
        let based_on = Lineage::new(vec![(Epoch::new(base), number(end))]).expect("one");
        let (through, floor) = (BatchNumber::ZERO, Timestamp::ZERO);
        Message::Install { epoch: Epoch::new(2), based_on, through, floor }
    };
    assert!(!is_dropped(install(1, 0)));
    assert!(is_dropped(install(1, 5)), "a table that ends below its base");
    assert!(is_dropped(install(7, 0)), "a table of a later epoch");
    let acked = |durable| {
        let (epoch, counted) = (Epoch::new(1), BatchNumber::ZERO);
        Message::Acked { epoch, installed: true, counted, session: 0, durable, received: None }
    };
    assert!(is_dropped(acked(NumberSet::through(BatchNumber::MAX))));
    let runs = (1..10_000).map(|run| (number(run * 3), number(run * 3)));
    assert!(is_dropped(acked(NumberSet::from_runs(BatchNumber::ZERO, runs))));
    let joined = |has| {
        let (lineage, held_above) = (Lineage::default(), BatchNumber::ZERO);
        let (lease, void_since) = (Timestamp::ZERO, None);
        let answer = JoinAnswer { lineage, lease, has, held_above, void_since };
        Message::Joined { epoch: Epoch::new(1), answer }
    };
    assert!(!is_dropped(joined(NumberSet::through(number(7)))));
    assert!(is_dropped(joined(NumberSet::through(number(1 << 60)))), "more than anybody holds");
}
