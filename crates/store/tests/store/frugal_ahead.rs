//! Collection of the store with its index on flash that reads ahead: blocks behind the log's tail, and
//! buckets that will have to leave them.

use std::collections::BTreeMap;

use timestone_flash::{MemoryConfig, MemoryMedia};
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

/// As `misses`, with large values beside a few small ones, on a device whose log is a few blocks long.
fn misses_in_a_short_log(seed: u64) -> usize {
    let mut dice = Dice(seed);
    let (pages, blocks) = [(1, 24), (2, 20), (1, 40), (2, 30)][dice.below(4) as usize];
    let media = MemoryMedia::new(MemoryConfig {
        pages_per_block: pages,
        initial_blocks: blocks,
        max_blocks: blocks,
        completions_per_poll: 1 + dice.below(3) as usize,
        shuffle: Some(seed),
        ..MemoryConfig::default()
    });
    let (keys, large_of) = (3 + dice.below(12), 2 + dice.below(6));
    let few = SkimpyConfig {
        keys: 1 + dice.below(6),
        translated_thousandths: 1000 + 1000 * dice.below(8) as u32,
        loose: true,
        ..frugal(config())
    };
    let (mut driver, mut put) = (open_with(&media, few).0, Put::new());
    let (mut time, mut missed, lag) = (1, 0, dice.below(20));
    let per_turn = 1 + dice.below(6);
    for turn in 1..2500u64 {
        driver.store.begin_batch(turn);
        for _ in 0..dice.below(per_turn) {
            let is_large = dice.below(large_of) == 0;
            let key = match is_large {
                true => 1000 + dice.below(3),
                false if dice.below(2) == 0 => dice.below(keys),
                false => dice.below(3),
            };
            let value = (dice.below(12) > 0).then_some(time as u8);
            let done = match value {
                Some(byte) => {
                    let bytes = match is_large {
                        true => 5000 + dice.below(6000) as usize,
                        false => [100, 300, 900, 1900][dice.below(4) as usize],
                    };
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
        if turn.is_multiple_of(400) {
            missed += misses_at(&mut driver, &put, mark) + misses_at(&mut driver, &put, time);
        }
    }
    missed
}

/// With the first of these seeds a version goes of which a copy lies in a block that was emptied.
#[test]
fn what_leaves_a_short_log_is_found_afterwards() {
    for seed in [5105].into_iter().chain(0..12) {
        assert_eq!(misses_in_a_short_log(seed), 0, "seed {seed}");
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
    fn a_version_that_goes_as_its_copy_lies_in_an_empty_block_is_found() {
        let found = || with(Bug::KeepsFirstCopy, || misses_in_a_short_log(5105));
        let found = std::panic::catch_unwind(found);
        set(None);
        assert!(found.is_err() || found.is_ok_and(|missed| missed > 0));
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
