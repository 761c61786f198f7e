//! Stores without a log: what a crash takes is the last writes, never the key.
//!
//! A put that nothing but memory holds must not cost the version that it supersedes. The devices of
//! these tests take their time with what makes a put durable, while the watermark, collection and
//! erases go on.

use std::time::Duration;

use timestone_flash::{Fault, FlashPace, MemoryMedia, OpKind};
use timestone_store::prelude::*;
use timestone_store::{MftlConfig, StoreError};

use crate::driver::{Driver, at, config, media, open};

const KEYS: u64 = 40;
/// Longer than any of these tests lasts, by the clock of the device.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

fn unlogged() -> MftlConfig {
    MftlConfig { without_log: true, ..config() }
}

/// A device on which this takes for ever, and nothing else any time.
fn stall(media: &MemoryMedia, program: Duration, sync: Duration) {
    let none = Duration::ZERO;
    let pace =
        FlashPace { read: none, program, per_page: none, erase: none, sync, spread: none, seed: 1 };
    media.set_pace(Some(pace));
    media.set_now(1);
}

/// Overwrites all keys again and again, the watermark close behind, until the store has no room or
/// `rounds` are over.
fn overwrite(driver: &mut Driver, size: usize, rounds: u64) {
    let mut time = 1000;
    for round in 0..rounds {
        for key in 0..KEYS {
            time += 1;
            match driver.try_put(&key.to_be_bytes(), time, &vec![round as u8; size]) {
                Ok(()) | Err(StoreError::Busy) => {}
                Err(StoreError::DeviceFull { .. }) => return,
                Err(error) => panic!("refused: {error}"),
            }
            driver.store.advance_watermark(at(time));
            driver.store.advance_replay_floor(at(time));
            driver.pump();
        }
    }
    driver.pumps(100);
}

/// Keys that a crash has taken although they were durable long before.
fn taken(media: &MemoryMedia, power_cut: Option<u64>, driver: Driver) -> u64 {
    match power_cut {
        Some(seed) => media.power_cut(seed),
        None => media.kill(7),
    }
    drop(driver);
    media.set_pace(None);
    let (mut driver, _) = open(media, unlogged());
    (0..KEYS).filter(|key| driver.value(&key.to_be_bytes(), u64::MAX / 2).is_none()).count() as u64
}

/// Keys that were durable, and are gone after a power cut while no sync ends.
fn taken_while_syncs_stall(seed: u64) -> u64 {
    let media = media(8, 24);
    let (mut driver, _) = open(&media, unlogged());
    for key in 0..KEYS {
        driver.put(&key.to_be_bytes(), 10 + key, &[b'v'; 700]);
    }
    driver.sync();
    stall(&media, Duration::ZERO, FOR_EVER);
    overwrite(&mut driver, 700, 20);
    taken(&media, Some(seed), driver)
}

/// Keys with values of many pages that were durable, and are gone after a kill while the last of
/// the values that supersede them wait to be written: so many pumps after they were put the device
/// stalls.
fn taken_while_large_values_are_staged(pumps: usize) -> u64 {
    const LARGE: usize = 80_000;
    let media = media(8, 1000);
    let (mut driver, _) = open(&media, unlogged());
    for key in 0..KEYS {
        driver.put(&key.to_be_bytes(), 10 + key, &[b'v'; LARGE]);
    }
    // What is left is room for the values once more, and so little that collection begins with
    // them.
    for filler in 0.. {
        driver.put(format!("filler {filler}").as_bytes(), 100, &[b'f'; 3500]);
        driver.pump();
        if driver.store.stats().space.free_blocks <= 168 {
            break;
        }
    }
    driver.sync();
    // The oldest value is superseded last.
    for key in (0..KEYS).rev() {
        driver.try_put(&key.to_be_bytes(), 1000, &[b'w'; LARGE]).expect("there is room");
    }
    driver.store.advance_watermark(at(2000));
    driver.store.advance_replay_floor(at(2000));
    driver.pumps(pumps);
    stall(&media, FOR_EVER, Duration::ZERO);
    driver.pumps(50);
    taken(&media, None, driver)
}

#[test]
fn what_an_unsynced_put_supersedes_survives_a_power_cut() {
    for seed in 0..8 {
        assert_eq!(taken_while_syncs_stall(seed), 0, "seed {seed}");
    }
}

#[test]
fn what_a_staged_put_supersedes_survives_a_kill() {
    for pumps in 0..8 {
        assert_eq!(
            taken_while_large_values_are_staged(pumps),
            0,
            "the device stalls after {pumps} pumps"
        );
    }
}

#[test]
fn collection_follows_the_watermark_as_soon_as_puts_are_durable() {
    let media = media(8, 24);
    let (mut driver, _) = open(&media, unlogged());
    for round in 0..200_u64 {
        for key in 0..KEYS {
            driver.put(&key.to_be_bytes(), 1 + round * KEYS + key, &[round as u8; 700]);
            driver.store.advance_watermark(at(1 + round * KEYS + key));
            driver.pump();
        }
    }
    let stats = driver.store.stats();
    assert!(stats.collection.collected_blocks > 150 && !stats.space.full, "{stats:?}");
    assert!(matches!(
        driver.try_get_in(crate::driver::SPACE, b"k", 5),
        Err(StoreError::TooOld { .. })
    ));
}

/// What a block holds whose program failed is not durable until it is let go, and nothing is synced after
/// that.
#[test]
fn collection_follows_when_a_failed_block_is_let_go() {
    let media = media(8, 60);
    let (mut driver, _) = open(&media, unlogged());
    driver.put(b"x", 10, b"v");
    driver.sync();
    media.inject(Fault::Fail { kind: OpKind::Program, nth: 1 });
    driver.put(b"x", 20, b"w");
    driver.store.advance_watermark(at(30));
    driver.pumps(300);
    assert_eq!(media.pending_faults(), 0, "a program has failed");
    assert_eq!(driver.store.stats().space.quarantined_blocks, 1);
    driver.put(b"x", 40, b"y");
    assert_eq!(driver.store.stats().index.versions, 2, "nobody can want the first one");
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use timestone_types::planted::{Bug, with};

    fn with_the_bug<T>(test: impl FnOnce() -> T) -> T {
        with(Bug::PrunedTooEarly, test)
    }

    #[test]
    fn burial_by_an_unsynced_put_is_found() {
        assert!(with_the_bug(|| (0..8).map(super::taken_while_syncs_stall).sum::<u64>()) > 0);
    }

    #[test]
    fn burial_by_a_staged_put_is_found() {
        assert!(
            with_the_bug(|| (0..8).map(super::taken_while_large_values_are_staged).sum::<u64>())
                > 0
        );
    }
}
