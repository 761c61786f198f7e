//! The dead counts of `mftl`: a tombstone stays as long as something older of its key is on flash, and
//! no longer.

use timestone_flash::{Fault, MemoryMedia, OpKind, PAGE_BYTES, PageId};
use timestone_store::prelude::*;
use timestone_store::{Mftl, StoreError};

use crate::collection::{Dice, seeds};
use crate::driver::{Driver, SPACE, at, config, media, open, version};
use crate::held::{FirstErase, HoldsErase};
use crate::unruly_erases::spoil_checkpoints;

/// Pumps until collection rests and everything is durable.
fn rest(driver: &mut Driver) {
    driver.sync();
    driver.pumps(400);
    driver.sync();
}

/// Versions that the index names, and dead records that it counts.
fn known_records(driver: &Driver) -> u64 {
    let index = driver.store.stats().index;
    index.versions + index.dead_records
}

/// What a scan of the whole device finds.
fn records_on_flash(media: &MemoryMedia) -> u64 {
    let (driver, report) = open(&media.copy(), config());
    assert!(report.checkpoint.is_none(), "it scans everything");
    known_records(&driver)
}

/// Large values of `bytes` are deleted, and small ones are put until none of the blocks with large ones is
/// left: how many more records are known than a scan finds. Some were moved on the way.
fn known_in_vain(bytes: usize, late: bool) -> i64 {
    let media = media(8, 90);
    let (mut driver, _) = open(&media, config());
    let put = |driver: &mut Driver, key: u64, time, bytes| {
        driver.put(&key.to_be_bytes(), time, &vec![1; bytes]);
        driver.pump();
    };
    for n in 0..40 {
        put(&mut driver, n, 10, bytes);
        put(&mut driver, 100 + n, 10, 9000);
    }
    (0..40u64).for_each(|n| driver.delete(&n.to_be_bytes(), 20));
    driver.store.advance_watermark(at(25));
    if late {
        // The watermark has passed the first ones: these prune what is below.
        (0..40u64).for_each(|n| driver.delete(&n.to_be_bytes(), 30));
    }
    for n in 0..20_000 {
        put(&mut driver, 1000 + n % 7, 40 + n, 700);
        driver.store.advance_watermark(at(39 + n));
        if n == 2000 {
            (100..140).for_each(|n| put(&mut driver, n, 2500, 100));
        }
    }
    rest(&mut driver);
    assert!(driver.store.stats().collection.collected_blocks > 400);
    known_records(&driver) as i64 - records_on_flash(&media) as i64
}

#[test]
fn of_large_values_that_were_deleted_nothing_stays_counted() {
    for bytes in [5_000, 12_000, 40_000] {
        for late in [false, true] {
            let known = known_in_vain(bytes, late);
            // The open block of large values may have heads without parts.
            assert!((0..=3).contains(&known), "{bytes} bytes, {late}: {known} too many");
        }
    }
}

/// A value that is superseded for all readers before its parts are durable has never been written.
#[test]
fn a_large_value_that_nobody_wants_when_its_parts_are_durable_is_not_counted() {
    let media = media(8, 60);
    let (mut driver, _) = open(&media, config());
    driver.put(b"key", 10, &[1; 12_000]);
    driver.delete(b"key", 20);
    driver.store.advance_watermark(at(25));
    driver.delete(b"key", 30);
    assert_eq!(
        driver.store.stats().index.dead_records,
        1,
        "the watermark has passed the first one"
    );
    rest(&mut driver);
    assert_eq!(driver.store.stats().index.dead_records, 0);
    assert_eq!((known_records(&driver), records_on_flash(&media)), (2, 2));
}

/// Keys are overwritten, a fence hides them, and they are deleted.
#[test]
fn what_a_fence_hides_keeps_no_tombstone() {
    let media = media(8, 60);
    let (mut driver, _) = open(&media, config());
    for time in [10, 20, 30] {
        (0..40u64).for_each(|n| driver.put(&n.to_be_bytes(), time, &[1; 300]));
        driver.store.advance_watermark(at(time + 5));
    }
    driver.sync();
    assert_eq!(driver.store.stats().index.dead_records, 40, "the first one of each was pruned");
    driver.store.fence(SPACE, version(40)).expect("accepted");
    (0..40u64).for_each(|n| driver.delete(&n.to_be_bytes(), 50));
    for n in 0..4000u64 {
        driver.put(&(1000 + n % 7).to_be_bytes(), 60 + n, &[2; 700]);
        driver.store.advance_watermark(at(59 + n));
        driver.store.advance_replay_floor(at(59 + n));
        driver.pump();
    }
    rest(&mut driver);
    let stats = driver.store.stats();
    assert!(stats.collection.collected_blocks > 100);
    assert!(stats.collection.dropped_tombstones >= 40, "{:?}", stats.collection);
    assert_eq!(stats.index.keys, 7, "{:?}", stats.index);
}

/// Keys that do not fit a page are put and deleted again and again, and what they had is collected before they are
/// put anew. Bytes that seem to be alive after some rounds, and after many; none if the device is full.
fn live_after_deletes(restarts: bool) -> Option<(u64, u64)> {
    let media = media(8, 60);
    let (mut driver, _) = open(&media, config());
    let (mut time, mut early) = (0, 0);
    for round in 0..400u64 {
        let key = vec![(round % 40) as u8; 20_000];
        let full = (0..200).find_map(|_| {
            driver.pump();
            match driver.try_put(&key, time + 1, &[1; 300]) {
                Err(StoreError::Busy) => None,
                put => Some(put.is_err()),
            }
        });
        if full.unwrap_or(true) {
            return None;
        }
        driver.delete(&key, time + 2);
        for n in 0..60u64 {
            driver.put(&(n % 7).to_be_bytes(), time + 3 + n, &[2; 700]);
            driver.store.advance_watermark(at(time + 2 + n));
            driver.store.advance_replay_floor(at(time + 2 + n));
            driver.pump();
        }
        time += 100;
        if restarts && round % 50 == 25 {
            if round % 100 == 25 {
                driver.store.checkpoint_now();
            }
            rest(&mut driver);
            drop(driver);
            driver = open(&media, config()).0;
            driver.store.advance_watermark(at(time));
        }
        if round == 100 {
            early = driver.store.stats().space.live_bytes;
        }
    }
    assert!(driver.store.stats().collection.collected_blocks > 40);
    Some((early, driver.store.stats().space.live_bytes))
}

#[test]
fn parts_of_tombstones_die_with_what_they_hide() {
    for restarts in [false, true] {
        let live = live_after_deletes(restarts);
        let is_bounded = |(early, late): (u64, u64)| early.max(late) < 150 * PAGE_BYTES as u64;
        assert!(live.is_some_and(is_bounded), "restarts: {restarts}, {live:?}");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn parts_of_tombstones_that_never_die_are_noticed() {
    use timestone_types::planted::{Bug, with};

    let live = with(Bug::KeepsTombstoneParts, || live_after_deletes(false));
    assert!(live.is_none_or(|(_, late)| late > 200 * PAGE_BYTES as u64), "{live:?}");
}

/// Bytes that seem to be alive after a restart by a checkpoint that was written while its keyspace was cleared, the
/// watermark passing that so many pumps before the checkpoint was asked for, or behind it. In one of two ways: one
/// key above the fence has it go through the index step by step.
fn live_after_clearing(pumps: i32, by_steps: bool) -> u64 {
    let media = media(8, 300);
    let (mut driver, _) = open(&media, config());
    (0..2000u64).for_each(|n| driver.put(&n.to_be_bytes(), 10, &[1; 900]));
    driver.sync();
    assert!(driver.store.stats().space.live_bytes > 2000 * 900);
    driver.store.fence(SPACE, version(20)).expect("accepted");
    if by_steps {
        driver.put(b"later", 30, &[2; 300]);
    }
    if pumps < 0 {
        driver.store.checkpoint_now();
        driver.pumps(pumps.unsigned_abs() as usize);
    }
    driver.store.advance_watermark(at(25));
    if pumps >= 0 {
        driver.pumps(pumps as usize);
        driver.store.checkpoint_now();
    }
    driver.checkpoint_done();
    drop(driver);
    media.power_cut(1);
    let (mut driver, report) = open(&media, config());
    assert!(report.checkpoint.is_some());
    driver.store.advance_watermark(at(25));
    rest(&mut driver);
    driver.store.stats().space.live_bytes
}

#[test]
fn what_is_cleared_while_a_checkpoint_is_written_is_dead_after_it() {
    for by_steps in [false, true] {
        for pumps in [-300, -20, -1, 0, 1, 20, 200] {
            let live = live_after_clearing(pumps, by_steps);
            // Blocks tell what lives in them by averages.
            assert!(live < 200_000, "{live} bytes after {pumps} pumps, by steps: {by_steps}");
        }
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_fence_that_a_checkpoint_meets_half_way_is_noticed() {
    use timestone_types::planted::{Bug, with};

    for by_steps in [false, true] {
        for pumps in [-20, 20] {
            let live = with(Bug::SweepsBesideCheckpoint, || live_after_clearing(pumps, by_steps));
            assert!(live > 500_000, "{live} bytes after {pumps} pumps, by steps: {by_steps}");
        }
    }
}

/// Puts, deletes, large and small, many of a few keys, and the watermark close behind: when collection rests, the
/// index knows of every record that a scan finds.
fn history(seed: u64) {
    let (media, mut dice) = (media(8, 100), Dice(seed));
    let (mut driver, _) = open(&media, config());
    let mut time = 10;
    for round in 0..30 {
        for _ in 0..60 {
            time += 1;
            let key = if dice.below(3) > 0 { dice.below(8) } else { dice.below(50) };
            let key = key.to_be_bytes();
            match dice.below(6) {
                0 | 1 => driver.delete(&key, time),
                2 => driver.put(&key, time, &[3; 300]),
                3 => driver.put(&key, time, &vec![4; 4_200 + dice.below(80_000) as usize]),
                _ => driver.put(&key, time, &vec![5; 4_200 + dice.below(9_000) as usize]),
            }
            if dice.below(3) > 0 {
                driver.pumps(1 + dice.below(6) as usize);
            }
            if dice.below(4) == 0 {
                driver.store.advance_watermark(at(time - dice.below(8)));
            }
        }
        rest(&mut driver);
        let (known, found) = (known_records(&driver), records_on_flash(&media));
        assert!(known >= found, "seed {seed}, round {round}: {known} known, {found} found");
        // Heads are counted until they are met, also those whose parts are gone by then.
        assert!(known < found + 40, "seed {seed}, round {round}: {known} known, {found} found");
    }
    assert!(driver.store.stats().collection.collected_blocks > 100);
}

#[test]
fn every_record_on_flash_is_known() {
    (0..seeds(6)).for_each(history);
}

/// Why a block that was emptied stays as it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stays {
    Damaged,
    Unerased,
    /// Its erase is still under way at the end, or fails then.
    NotErasedYet {
        fails: bool,
    },
}

/// A block is emptied and set aside; what it had is deleted, and the tombstones' time is up. The keys that come
/// back after a crash.
fn back_from_a_block_that(stays: Stays) -> Vec<u64> {
    let media = media(8, 40);
    let first = FirstErase::default();
    let mut driver = match stays {
        Stays::Damaged | Stays::Unerased => open(&media, config()).0,
        Stays::NotErasedYet { .. } => {
            let device = HoldsErase { device: Box::new(media.open()), first: first.clone() };
            Driver::new(Mftl::open(Box::new(device), config()).expect("opens").0)
        }
    };
    let put_and_wait = |driver: &mut Driver, key: u64, time: u64| {
        let taken = (0..500).any(|_| {
            let done = driver.try_put(&key.to_be_bytes(), time, &[1; 700]).is_ok();
            driver.pump();
            done
        });
        taken.then_some(key)
    };
    (0..400).for_each(|key| driver.put(&u64::to_be_bytes(key), 10, &[1; 700]));
    driver.sync();
    match stays {
        Stays::Damaged => {
            // A record of each page of the second block.
            let damaged = (8..16).map(PageId).filter(|&page| media.flip_bit(page, 8 * 300)).count();
            assert_eq!(damaged, 8, "all of its pages were programmed");
        }
        Stays::Unerased => media.inject(Fault::Fail { kind: OpKind::Erase, nth: 1 }),
        Stays::NotErasedYet { .. } => {}
    }
    // There alone something is dead, so it is the one that is emptied when all of the device is used.
    let of_block = 40..80u64;
    of_block.clone().step_by(2).for_each(|key| driver.delete(&key.to_be_bytes(), 20));
    driver.store.advance_watermark(at(30));
    let more: Vec<u64> = (1000..3000).map_while(|key| put_and_wait(&mut driver, key, 40)).collect();
    let stay = driver.store.stats().space.quarantined_blocks + u32::from(first.is_held());
    assert_eq!(stay, 1, "{} more", more.len());
    // All of it goes.
    let time = 50;
    for key in (0..400).chain(more) {
        driver.delete(&key.to_be_bytes(), time);
        driver.pump();
    }
    driver.store.advance_watermark(at(time));
    driver.store.advance_replay_floor(at(time));
    // A few of what is put stay, and are moved: so the block of tombstones that stayed is full, and collected.
    for n in 0..12_000u64 {
        let key = if n % 40 == 0 { 6000 + n % 3000 } else { 5000 + n % 5 };
        driver.put(&key.to_be_bytes(), 100 + n, &[2; 700]);
        driver.store.advance_watermark(at(99 + n));
        driver.pump();
    }
    rest(&mut driver);
    assert!(driver.store.stats().collection.dropped_tombstones > 300);
    if stays == (Stays::NotErasedYet { fails: true }) {
        first.fail();
        rest(&mut driver);
        assert_eq!(driver.store.stats().space.quarantined_blocks, 1);
    }
    media.power_cut(1);
    let (mut driver, _) = open(&media, config());
    (0..400).filter(|key| driver.value(&u64::to_be_bytes(*key), 100_000).is_some()).collect()
}

#[test]
fn what_was_saved_from_a_block_that_stays_does_not_come_back_from_there() {
    assert_eq!(back_from_a_block_that(Stays::Damaged), [0; 0]);
    assert_eq!(back_from_a_block_that(Stays::Unerased), [0; 0]);
}

#[test]
fn what_was_moved_out_of_a_block_does_not_come_back_while_that_is_not_erased() {
    assert_eq!(back_from_a_block_that(Stays::NotErasedYet { fails: false }), [0; 0]);
    assert_eq!(back_from_a_block_that(Stays::NotErasedYet { fails: true }), [0; 0]);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn what_comes_back_from_a_block_that_was_not_erased_is_noticed() {
    use timestone_types::planted::{Bug, with};

    let stays = Stays::NotErasedYet { fails: false };
    assert_ne!(with(Bug::OutlivesItsMove, || back_from_a_block_that(stays)), [0; 0]);
    let back = with(Bug::ForgetsUnerased, || back_from_a_block_that(Stays::Unerased));
    assert_ne!(back, [0; 0]);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn what_is_left_in_other_blocks_and_not_counted_is_noticed() {
    use timestone_types::planted::{Bug, set, with};

    assert_ne!(with(Bug::ForgetsOldHeads, || back_from_a_block_that(Stays::Damaged)), [0; 0]);
    let found = (0..20).any(|seed| {
        let run = || with(Bug::ForgetsOldHeads, || history(seed));
        let found = std::panic::catch_unwind(run).is_err();
        set(None);
        found
    });
    assert!(found, "the planted bug is found");
}

/// A version is superseded by one that is not durable yet; its block is erased, and the power goes. The log brings
/// the younger one again, which is deleted, and collected. What a scan of everything finds of the key then: there is
/// a still older version, in a block that stays.
fn found_behind_what_came_again() -> Option<Vec<u8>> {
    const FREE: u32 = 14;
    let media = media(8, 60);
    let (mut driver, _) = open(&media, config());
    // Blocks of eight pages with six records each.
    let fill = |driver: &mut Driver, keys: core::ops::Range<u64>, time: u64| {
        keys.for_each(|n| driver.put(&n.to_be_bytes(), time, &[1; 600]));
    };
    driver.put(b"key", 10, &[1; 600]);
    fill(&mut driver, 0..47, 10);
    driver.put(b"key", 20, &[2; 600]);
    fill(&mut driver, 100..146, 20);
    driver.store.advance_watermark(at(22));
    driver.put(b"key", 25, &[3; 600]);
    for n in (10_000..).step_by(6) {
        fill(&mut driver, n..n + 6, 26);
        driver.sync();
        if driver.store.stats().space.free_blocks <= FREE {
            break;
        }
    }
    driver.checkpoint();
    let stats = driver.store.stats();
    assert_eq!((stats.index.dead_records, stats.collection.collected_blocks), (1, 0));
    fill(&mut driver, 100..146, 31);
    driver.put(b"key", 30, &[4; 600]);
    driver.store.advance_watermark(at(40));
    driver.pumps(20);
    assert_eq!(driver.store.stats().collection.collected_blocks, 1, "nothing lives there");
    media.power_cut(1);
    drop(driver);
    let (mut driver, report) = open(&media, config());
    assert_eq!((report.checkpoint, driver.value(b"key", 1 << 40)), (Some(1), None));
    driver.put(b"key", 30, &[4; 600]);
    driver.delete(b"key", 50);
    driver.sync();
    for n in 0..4000u64 {
        driver.put(&(100 + n % 7).to_be_bytes(), 60 + n, &[2; 700]);
        driver.store.advance_watermark(at(59 + n));
        driver.store.advance_replay_floor(at(59 + n));
        driver.pump();
    }
    rest(&mut driver);
    drop(driver);
    spoil_checkpoints(&media, 60 * 8);
    let (mut driver, report) = open(&media, config());
    assert_eq!(report.checkpoint, None);
    driver.value(b"key", 1 << 40)
}

#[test]
fn what_a_version_that_was_lost_had_superseded_does_not_come_back() {
    assert_eq!(found_behind_what_came_again(), None);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn dead_records_that_are_forgotten_without_a_version_are_found() {
    use timestone_types::planted::{Bug, with};
    assert_eq!(with(Bug::ForgetsOrphans, found_behind_what_came_again), Some(vec![1; 600]));
}
