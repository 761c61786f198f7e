//! Loose versions of the store with its index on flash: no chain leads to them, and memory keeps where
//! they are.

use timestone_flash::{Fault, MemoryMedia, OpKind, PowerCut, Unsettled};
use timestone_store::prelude::*;
use timestone_store::{Skimpy, SkimpyConfig};
use timestone_types::Expiry;

use crate::collection::Dice;
use crate::driver::{Driver, SPACE, at, config, media, version};
use crate::frugal::{frugal, open_with, programmed};

/// All keys are in two buckets.
fn settings(translated: u32) -> SkimpyConfig {
    let keys = 1000;
    let translated_thousandths = translated;
    SkimpyConfig { keys, keys_per_bucket: 1000, translated_thousandths, ..frugal(config()) }
}

fn open(media: &MemoryMedia, translated: u32) -> Driver<Skimpy> {
    open_with(media, settings(translated)).0
}

fn settle(driver: &mut Driver<Skimpy>, time: u64) {
    driver.store.advance_watermark(at(time));
    driver.store.advance_replay_floor(at(time));
}

/// Pages that a look-up of a key reads.
fn reads_of(driver: &mut Driver<Skimpy>, key: u64, expected: &[u8]) -> u64 {
    let before = driver.store.stats().reads.page_reads;
    assert_eq!(driver.value(&key.to_be_bytes(), 1 << 40).as_deref(), Some(expected), "key {key}");
    driver.store.stats().reads.page_reads - before
}

/// Ten keys are put in turns: each would be in front of the others.
#[test]
fn keys_that_are_put_all_the_time_lengthen_no_chain() {
    let media = media(16, 200);
    let mut driver = open(&media, 100);
    (100..104u64).for_each(|key| driver.put(&key.to_be_bytes(), 1, &[7; 2000]));
    for n in 10..1000u64 {
        driver.put(&(n % 10).to_be_bytes(), n, &[n as u8; 2000]);
        settle(&mut driver, n);
    }
    driver.sync();
    for key in 100..104 {
        let reads = reads_of(&mut driver, key, &[7; 2000]);
        assert!(reads < 20, "{reads} pages were read for key {key}");
    }
    assert_eq!(
        driver.store.stats().collection.collected_blocks,
        0,
        "nothing was rewritten for room"
    );
}

/// Some keys are put, others are asked for all the time, more than there are translations; what is found
/// of those that were put: how many versions are wrong.
fn wrong_among_many(checkpoint: bool) -> usize {
    let media = media(16, 200);
    let mut driver = open(&media, 48);
    let mut dice = Dice(9);
    for n in 1..3000u64 {
        let key = dice.below(200);
        driver.put(&key.to_be_bytes(), n * 10, &(n * 10).to_be_bytes());
        settle(&mut driver, (n * 10).saturating_sub(3000));
        for _ in 0..4 {
            _ = driver.value(&(1000 + dice.below(100)).to_be_bytes(), n * 10);
        }
    }
    if checkpoint {
        driver.store.checkpoint_now();
        driver.pump();
        driver.checkpoint_done();
    }
    driver.sync();
    let mut wrong = wrong_of(&mut driver);
    drop(driver);
    // With as many translations, and with fewer.
    for translated in [48, 1] {
        wrong += wrong_of(&mut open(&media, translated));
    }
    wrong
}

/// Versions that are not found as of several times, by the same dice.
fn wrong_of(driver: &mut Driver<Skimpy>) -> usize {
    let mut dice = Dice(9);
    let mut versions: Vec<Vec<u64>> = vec![Vec::new(); 200];
    for n in 1..3000u64 {
        versions[dice.below(200) as usize].push(n * 10);
        (0..4).for_each(|_| _ = dice.below(100));
    }
    let mut wrong = 0;
    for (key, versions) in (0u64..).zip(&versions) {
        for time in [27_000, 28_515, 40_000] {
            let expected = versions.iter().rev().find(|&&version| version <= time);
            let expected = expected.map(|version| version.to_be_bytes().to_vec());
            wrong += usize::from(driver.value(&key.to_be_bytes(), time) != expected);
        }
    }
    assert_eq!(
        driver.count(SPACE, 40_000),
        versions.iter().filter(|all| !all.is_empty()).count() as u64
    );
    wrong
}

#[test]
fn loose_versions_are_there_with_many_others_and_after_a_restart() {
    for checkpoint in [false, true] {
        assert_eq!(wrong_among_many(checkpoint), 0, "{checkpoint}");
    }
}

/// A version of which nothing is in the chain leads to loose ones: they are found through it, and when it is
/// lost.
#[test]
fn what_a_tombstone_leads_to_is_found_with_it_and_without_it() {
    for is_lost in [false, true] {
        let media = media(8, 20);
        let mut driver = open(&media, 100);
        for n in [10, 20, 30] {
            driver.put(b"key", n, &[n as u8; 3000]);
        }
        driver.delete(b"key", 40);
        driver.put(b"other", 41, &[41; 3000]);
        driver.put(b"key", 50, &[50; 3000]);
        driver.sync();
        drop(driver);
        let pages = programmed(&media, 20);
        if is_lost {
            // The one with the tombstone has nothing else.
            let has = |page: &&timestone_flash::PageId| {
                let bytes = media.page(**page).unwrap_or_default();
                !(1..=5u8).any(|n| bytes.iter().filter(|&&byte| byte == n * 10).count() > 1000)
                    && bytes.iter().filter(|&&byte| byte == 41).count() < 1000
            };
            let page = pages.iter().find(has);
            let Some(&page) = page else { continue };
            media.set_page(page, &[0; 4096]);
        }
        let mut driver = open(&media, 100);
        driver.pumps(100);
        for n in [10, 20, 30, 50] {
            let found = driver.value(b"key", n + 5);
            assert_eq!(found, Some(vec![n as u8; 3000]), "{n}, lost: {is_lost}");
        }
        assert_eq!(driver.value(b"key", 45).is_none(), !is_lost);
    }
}

/// A large value whose key lies with it, and which leads to a loose version of its key.
#[test]
fn what_a_large_value_with_a_long_key_leads_to_is_counted() {
    let media = media(8, 40);
    let mut driver = open(&media, 100);
    let key = vec![7u8; 1500];
    driver.put(&key, 10, b"a");
    driver.delete(&key, 15);
    driver.put(&key, 20, b"b");
    driver.put(&key, 30, &[3; 9000]);
    driver.sync();
    driver.pumps(50);
    assert_eq!(driver.value(&key, 25), Some(b"b".to_vec()));
    assert_eq!((driver.count(SPACE, 25), driver.keys(SPACE, 25, 10).len()), (1, 1));
}

/// The power goes while a run is moved out of the log's tail, with so many pages kept of what is being
/// programmed: what is found then at two times; nothing when all was over before.
fn after_a_cut(cut: PowerCut) -> Option<[Option<u8>; 2]> {
    let media = media(8, 20);
    let mut driver = open_with(&media, frugal(config())).0;
    (1..5).for_each(|n| driver.put(b"dead", n, &[n as u8; 3000]));
    [10, 20, 40].into_iter().for_each(|n| driver.put(b"x", n, &[n as u8; 3000]));
    driver.sync();
    settle(&mut driver, 20);
    media.cut_power_at(cut);
    for n in 100..220u64 {
        let bytes = n.to_be_bytes();
        let key = driver.key(SPACE, &bytes);
        _ = driver.store.put(key, version(n), &[9; 3000], Expiry::NEVER);
        driver.pump();
        if media.interrupted_bytes().is_some() {
            break;
        }
    }
    drop(driver);
    media.interrupted_bytes()?;
    let mut driver = open_with(&media, frugal(config())).0;
    Some([25, 45].map(|time| driver.value(b"x", time).map(|value| value[0])))
}

#[test]
fn a_copy_of_which_the_older_ones_are_lost_hides_nothing() {
    for others in [Unsettled::Lost, Unsettled::Kept] {
        for keep in 0..5 {
            for operation in 1.. {
                let cut = PowerCut { operation, keep_bytes: keep * 4096, others };
                let Some(found) = after_a_cut(cut) else {
                    assert!(operation > 100, "{operation} operations");
                    break;
                };
                assert_eq!(found, [Some(20), Some(40)], "{cut:?}");
            }
        }
    }
}

/// The block with an older version of a run cannot be read in groups, and is set aside; its pages can be
/// read by themselves. Then the block with the run's youngest version is emptied.
#[test]
fn what_a_run_has_in_a_block_that_was_set_aside_is_found() {
    let media = media(8, 20);
    let mut driver = open_with(&media, frugal(config())).0;
    (1..5).for_each(|n| driver.put(b"dead", n, &[n as u8; 3000]));
    driver.put(b"x", 10, &[10; 3000]);
    driver.put(b"x", 20, &[20; 3000]);
    (5..7).for_each(|n| driver.put(b"dead", n, &[n as u8; 3000]));
    driver.put(b"x", 40, &[40; 3000]);
    driver.sync();
    settle(&mut driver, 22);
    let read = |driver: &Driver<Skimpy>| driver.store.device().stats().reads;
    let before = read(&driver);
    for n in 100..500u64 {
        // Blocks behind it are read as well, and are not set aside for that.
        media.clear_faults();
        if driver.store.stats().space.quarantined_blocks == 0 {
            (1..=8).for_each(|nth| media.inject(Fault::Fail { kind: OpKind::Read, nth }));
        }
        let bytes = n.to_be_bytes();
        let key = driver.key(SPACE, &bytes);
        // Until it is full.
        _ = driver.store.put(key, version(n), &[9; 3000], Expiry::NEVER);
        driver.pump();
    }
    let stats = driver.store.stats();
    assert_eq!(stats.space.quarantined_blocks, 1, "{stats:?}");
    assert!(read(&driver) > before && stats.collection.collected_blocks > 0, "{stats:?}");
    for (time, expected) in [(25, 20), (45, 40)] {
        let found = driver.value(b"x", time).map(|value| value[0]);
        assert_eq!(found, Some(expected), "at {time}");
    }
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use timestone_types::planted::{Bug, set, with};

    use super::*;

    #[test]
    fn a_loose_version_whose_place_is_given_to_another_key_is_found() {
        let found = std::panic::catch_unwind(|| with(Bug::EvictsLoose, || wrong_among_many(false)));
        set(None);
        assert!(found.is_err() || found.is_ok_and(|wrong| wrong > 0));
    }

    #[test]
    fn a_checkpoint_that_does_not_tell_of_loose_versions_is_found() {
        let found = std::panic::catch_unwind(|| with(Bug::ForgetsLoose, || wrong_among_many(true)));
        set(None);
        assert!(found.is_err() || found.is_ok_and(|wrong| wrong > 0));
    }
}
