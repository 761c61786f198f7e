//! Collection of the store with its index on flash that reads ahead: blocks behind the log's tail, and
//! buckets that will have to leave them.

use std::collections::BTreeMap;

use timestone_store::prelude::*;
use timestone_store::{Figure, Skimpy, SkimpyConfig};

use crate::collection::Dice;
use crate::driver::{Driver, at, config, unruly_media};
use crate::frugal::{frugal, open_with};

const KEYS: u64 = 60;

/// What was put: by key its versions, each with the first byte of its value.
type Put = BTreeMap<u64, Vec<(u64, Option<u8>)>>;

/// How many keys have another value at a time than was put.
fn misses_at(driver: &mut Driver<Skimpy>, put: &Put, time: u64) -> usize {
    let misses = |(key, versions): (&u64, &Vec<(u64, Option<u8>)>)| {
        let expected = versions.iter().rev().find(|version| version.0 <= time);
        let found = driver.value(&key.to_be_bytes(), time).map(|value| value[0]);
        usize::from(found != expected.and_then(|version| version.1))
    };
    put.iter().map(misses).sum()
}

/// Keys of a few buckets are put and deleted all the time, as fast as there is room, and completions come in
/// an order of their own: how many of them have another value then and in the end, at the watermark and
/// above it, than was put.
fn misses(seed: u64, loose: bool) -> usize {
    let (pages, blocks) = [(4, 48), (2, 24), (8, 40)][seed as usize % 3];
    let media = unruly_media(pages, blocks, seed);
    let open = || {
        let few = SkimpyConfig { keys: 16, translated_thousandths: 500, ..frugal(config()) };
        open_with(&media, SkimpyConfig { loose, ..few }).0
    };
    let (mut driver, mut dice, mut put) = (open(), Dice(seed), Put::new());
    let (mut time, mut missed, lag) = (1, 0, dice.below(30));
    for turn in 1..6000u64 {
        driver.store.begin_batch(turn);
        for _ in 0..dice.below(4) {
            let key = if dice.below(2) == 0 { dice.below(6) } else { dice.below(KEYS) };
            let value = (dice.below(9) > 0).then_some(time as u8);
            let done = match value {
                Some(byte) => {
                    let bytes = [300, 900, 1900][dice.below(3) as usize];
                    driver.try_put(&key.to_be_bytes(), time, &vec![byte; bytes])
                }
                None => driver.try_delete(&key.to_be_bytes(), time),
            };
            if done.is_ok() {
                put.entry(key).or_default().push((time, value));
                time += 1;
            }
        }
        let mark = time.saturating_sub(1 + lag);
        driver.store.advance_watermark(at(mark));
        driver.store.advance_replay_floor(at(mark));
        driver.pump();
        driver.events.clear();
        if turn.is_multiple_of(1500) {
            missed += misses_at(&mut driver, &put, mark) + misses_at(&mut driver, &put, time);
        }
    }
    let collected = driver.figure(Figure::CollectedBlocks);
    assert!(collected > 200, "{collected} blocks");
    driver.sync();
    drop(driver);
    let mut driver = open();
    missed + misses_at(&mut driver, &put, time)
}

#[test]
fn what_is_gathered_ahead_is_all_of_its_bucket() {
    for seed in 0..12 {
        let missed = misses(seed, seed % 2 == 0);
        assert_eq!(missed, 0, "seed {seed}");
    }
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use timestone_types::planted::{Bug, set, with};

    use super::*;

    fn is_found(bug: Bug) -> bool {
        (0..4).any(|seed| {
            let found = std::panic::catch_unwind(|| with(bug, || misses(seed, seed % 2 == 0)));
            set(None);
            found.is_err() || found.is_ok_and(|missed| missed > 0)
        })
    }

    #[test]
    fn pages_that_stay_in_memory_when_their_block_is_gone_are_found() {
        assert!(is_found(Bug::KeepsReadAhead));
    }

    #[test]
    fn a_bucket_that_was_gathered_ahead_and_lacks_what_was_put_since_is_found() {
        assert!(is_found(Bug::TrustsEarly));
    }
}
