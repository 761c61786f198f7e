//! Collection of the store with its index on flash that goes by what memory knows, and the chains that it
//! meets: runs of one key, and long ones.

use timestone_store::prelude::*;
use timestone_store::{Figure, Lookup, ReadOutcome, ReadToken, Skimpy, SkimpyConfig, StoreEvent};
use timestone_types::{Expiry, KeyRef, Timestamp};

use crate::collection::Dice;
use crate::driver::{Driver, SPACE, at, config, media, unruly_media, version};
use crate::frugal::{frugal, open_chained, open_for, open_with, programmed};

fn settle(driver: &mut Driver<Skimpy>, time: u64) {
    driver.store.advance_watermark(at(time));
    driver.store.advance_replay_floor(at(time));
}

/// Few keys are written all the time: their records are dropped by what memory knows.
#[test]
fn popular_keys_are_collected_without_a_look_at_their_chains() {
    for lag in [0, 30] {
        let media = media(16, 64);
        let (mut driver, _) = open_for(&media, 1000);
        for n in 1..20_000u64 {
            driver.put(&(n % 7).to_be_bytes(), n, &[n as u8; 500]);
            settle(&mut driver, n.saturating_sub(lag));
        }
        let stats = driver.store.stats();
        let collected = stats.collection.collected_blocks;
        assert!(collected > 100, "{stats:?}");
        // Without a lag there is nothing to look at. With one, the older version that is noted beside the
        // youngest may be too young when a block is emptied: the chains, which may have all of the log,
        // are followed then, and that is twice in all.
        let most = if lag == 0 { 0 } else { 2 * 16 * 64 };
        assert!(stats.reads.page_reads <= most, "lag {lag}: {stats:?}");
        for key in 0..7u64 {
            let last = (1..20_000).rev().find(|n| n % 7 == key).expect("it was put");
            assert_eq!(driver.value(&key.to_be_bytes(), 20_000), Some(vec![last as u8; 500]));
        }
    }
}

/// Keys that are put rarely, while others are put all the time: how many of them are not found as a
/// reader at the watermark sees them.
fn misses_at_the_watermark() -> usize {
    const LAG: u64 = 2000;
    let media = media(16, 64);
    let (mut driver, _) = open_for(&media, 1000);
    let (mut dice, mut missed, mut checked) = (Dice(3), 0, 0);
    let mut rare: Vec<Vec<u64>> = vec![Vec::new(); 40];
    for n in 1..40_000u64 {
        let key = if n % 150 == 0 { 100 + dice.below(40) } else { n % 7 };
        driver.put(&key.to_be_bytes(), n, &[n as u8; 500]);
        if let Some(versions) = key.checked_sub(100) {
            rare[versions as usize].push(n);
        }
        let mark = n.saturating_sub(LAG);
        settle(&mut driver, mark);
        if n % 500 == 0 && mark > 0 {
            for (key, versions) in (100u64..).zip(&rare) {
                let expected = versions.iter().rev().find(|&&version| version <= mark);
                let expected = expected.map(|&version| vec![version as u8; 500]);
                missed += usize::from(driver.value(&key.to_be_bytes(), mark) != expected);
                checked += 1;
            }
        }
    }
    assert!(driver.figure(Figure::CollectedBlocks) > 100 && checked > 1000);
    missed
}

#[test]
fn what_a_reader_at_the_watermark_sees_stays() {
    assert_eq!(misses_at_the_watermark(), 0);
}

/// Keys that were put once, on a device that is nearly full: their buckets are written whole, or moved for the
/// sake of others. How many of them are not found.
fn misses_of_old_keys() -> usize {
    const OLD: u64 = 3000;
    let media = media(16, 64);
    let (mut driver, _) = open_for(&media, OLD);
    let (mut dice, mut missed) = (Dice(9), 0);
    let value = |key: u64| vec![key as u8; 500];
    (0..OLD).for_each(|key| driver.put(&key.to_be_bytes(), 1, &value(key)));
    for n in 10..20_000u64 {
        driver.put(&(OLD + dice.below(400)).to_be_bytes(), n, &[n as u8; 500]);
        settle(&mut driver, n);
        if n.is_multiple_of(5000) {
            let is_there = |key: &u64| driver.value(&key.to_be_bytes(), n) == Some(value(*key));
            missed += OLD as usize - (0..OLD).filter(is_there).count();
        }
    }
    let stats = driver.store.stats();
    assert!(stats.rewritten_buckets > 500 && stats.collection.moved_records > 500, "{stats:?}");
    missed
}

#[test]
fn what_was_appended_since_a_whole_rewriting_is_not_void() {
    assert_eq!(misses_of_old_keys(), 0);
}

/// Pages that a look-up of a key reads.
fn reads_of(driver: &mut Driver<Skimpy>, key: u64) -> u64 {
    let before = driver.store.stats().reads.page_reads;
    assert!(driver.value(&key.to_be_bytes(), 1 << 40).is_some(), "key {key} was put");
    driver.store.stats().reads.page_reads - before
}

#[test]
fn versions_of_a_popular_key_do_not_lengthen_the_chain_of_its_bucket() {
    let media = media(16, 200);
    let open = || open_with(&media, SkimpyConfig { keys: 2, ..frugal(config()) });
    let (mut driver, _) = open();
    (0..30u64).for_each(|key| driver.put(&key.to_be_bytes(), 1, &[1; 2000]));
    // All of them lie above the watermark.
    for n in 10..1000u64 {
        driver.put(b"popular", n, &[n as u8; 2000]);
    }
    driver.sync();
    for key in 0..30 {
        let reads = reads_of(&mut driver, key);
        assert!(reads < 100, "{reads} pages were read for key {key}");
    }
    for n in [10, 500, 999] {
        assert_eq!(driver.value(b"popular", n), Some(vec![n as u8; 2000]));
    }
    assert_eq!(driver.value(b"popular", 9), None);
    // Scans as of any time find the version of that time.
    assert_eq!((driver.count(SPACE, 9), driver.count(SPACE, 500)), (30, 31));
    drop(driver);
    let (mut driver, _) = open();
    for n in [10, 500, 999] {
        assert_eq!(driver.value(b"popular", n), Some(vec![n as u8; 2000]));
    }
    assert_eq!((driver.count(SPACE, 9), driver.count(SPACE, 500)), (30, 31));
}

#[test]
fn a_chain_that_gets_long_is_made_short() {
    let media = media(16, 64);
    let (mut driver, _) = open_chained(&media, 2);
    (0..10u64).for_each(|key| driver.put(&key.to_be_bytes(), 1, &[1; 500]));
    let mut dice = Dice(5);
    for n in 10..5000u64 {
        driver.put(&(100 + dice.below(6)).to_be_bytes(), n, &[n as u8; 2000]);
        settle(&mut driver, n);
        driver.pump();
    }
    driver.sync();
    let mut all = 0;
    for key in 0..10 {
        let reads = reads_of(&mut driver, key);
        assert!(reads < 30, "{reads} pages were read for key {key}");
        all += reads;
    }
    assert!(all < 150, "{all} pages were read for all of them");
}

/// A page with one version of a key is lost, and those before and behind it are there: what is found at
/// the time of the one before.
fn version_before_a_lost_one(loose: bool) -> Option<Vec<u8>> {
    let media = media(8, 20);
    let open = || open_with(&media, SkimpyConfig { keys: 2, loose, ..frugal(config()) });
    let (mut driver, _) = open();
    for n in [10, 20, 30] {
        driver.put(b"key", n, &[n as u8; 3000]);
    }
    driver.sync();
    drop(driver);
    let pages = programmed(&media, 20);
    assert_eq!(pages.len(), 3, "each has a page of its own");
    media.set_page(pages[1], &[0; 4096]);
    let (mut driver, _) = open();
    assert_eq!(driver.value(b"key", 35), Some(vec![30; 3000]));
    driver.value(b"key", 15)
}

#[test]
fn a_lost_version_takes_no_older_one_with_it() {
    for loose in [false, true] {
        assert_eq!(version_before_a_lost_one(loose), Some(vec![10; 3000]), "{loose}");
    }
}

/// Versions of one key, others of its bucket among them; the page with the last but one is lost: what is
/// found at the time of the one before.
fn version_before_a_lost_one_with_others_behind(loose: bool) -> Option<Vec<u8>> {
    let media = media(8, 20);
    let open = || open_with(&media, SkimpyConfig { keys: 1, loose, ..frugal(config()) });
    let (mut driver, _) = open();
    driver.put(b"key", 10, &[10; 3000]);
    (0..6u64).for_each(|other| driver.put(&other.to_be_bytes(), 15, &[15; 3000]));
    for n in [20, 30, 40] {
        driver.put(b"key", n, &[n as u8; 3000]);
    }
    driver.sync();
    drop(driver);
    let pages = programmed(&media, 20);
    assert_eq!(pages.len(), 10, "each has a page of its own");
    media.set_page(pages[8], &[0; 4096]);
    let (mut driver, _) = open();
    assert_eq!(driver.value(b"key", 45), Some(vec![40; 3000]));
    driver.value(b"key", 25)
}

#[test]
fn a_lost_version_leads_past_none_that_is_there() {
    for loose in [false, true] {
        let found = version_before_a_lost_one_with_others_behind(loose);
        assert_eq!(found, Some(vec![20; 3000]), "{loose}");
    }
}

/// Gets that take long, while their keys are put again and collected: each finds at least what was there
/// when it began. How many did not.
fn gets_that_miss(seed: u64) -> usize {
    const AHEAD: Timestamp = Timestamp::from_nanos(1 << 50);
    let media = unruly_media(4, 48, seed);
    let config = SkimpyConfig { keys: 4, ..frugal(config()) };
    let (mut store, _) = Skimpy::open(Box::new(media.open()), config).expect("opens");
    let (mut dice, mut newest, mut pending) = (Dice(seed), [0u64; 24], Vec::new());
    let (mut missed, mut done, mut events) = (0, 0, Vec::new());
    let mut time = 1;
    for turn in 0..6000u64 {
        let n = if turn < 24 { turn as usize } else { dice.below(24) as usize };
        let name = (n as u64).to_be_bytes();
        let key = KeyRef::new(store.seed(), SPACE, &name);
        if store.put(key, version(time), &[n as u8; 700], Expiry::NEVER).is_ok() {
            newest[n] = time;
            time += 1;
        }
        store.advance_watermark(at(time));
        store.advance_replay_floor(at(time));
        let n = dice.below(24) as usize;
        let name = (n as u64).to_be_bytes();
        let key = KeyRef::new(store.seed(), SPACE, &name);
        if pending.len() < 12 && newest[n] > 0 {
            match store.get(key, AHEAD, ReadToken(turn)).expect("it is asked") {
                Lookup::Pending => pending.push((turn, newest[n])),
                Lookup::Present { version, .. } => assert!(version.timestamp >= at(newest[n])),
                Lookup::Absent { .. } => missed += 1,
            }
        }
        store.pump(at(turn * 1_000_000), &mut events);
        for event in events.drain(..) {
            let StoreEvent::ReadDone { token, outcome } = event else { continue };
            let place = pending.iter().position(|(turn, _)| *turn == token.0).expect("asked");
            let (_, least) = pending.swap_remove(place);
            done += 1;
            match outcome {
                ReadOutcome::Present { version, .. } if version.timestamp >= at(least) => {}
                ReadOutcome::Failed(error) => panic!("{error}"),
                _ => missed += 1,
            }
        }
    }
    let figures = store.figures();
    assert!(figures.get(Figure::CollectedBlocks) > 50 && done > 500, "{done}: {figures:?}");
    missed
}

#[test]
fn who_follows_a_chain_into_an_erased_block_begins_anew() {
    for seed in 1..9 {
        assert_eq!(gets_that_miss(seed), 0, "seed {seed}");
    }
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use timestone_types::planted::{Bug, set, with};

    use super::*;

    #[test]
    fn a_record_that_is_dropped_for_one_above_the_watermark_is_found() {
        let found =
            std::panic::catch_unwind(|| with(Bug::JudgesAboveWatermark, misses_at_the_watermark));
        set(None);
        assert!(found.is_err() || found.is_ok_and(|missed| missed > 0));
    }

    #[test]
    fn an_old_mark_that_is_taken_for_a_later_one_is_found() {
        let found = std::panic::catch_unwind(|| with(Bug::KeepsOldMarks, misses_of_old_keys));
        set(None);
        assert!(found.is_err() || found.is_ok_and(|missed| missed > 0));
    }

    #[test]
    fn a_look_up_that_trusts_what_lies_behind_a_lost_version_is_found() {
        let found = with(Bug::TrustsPassed, || version_before_a_lost_one_with_others_behind(true));
        assert_eq!(found, Some(vec![10; 3000]));
    }
}
