//! The split design under pressure: both collectors at work, crashes at any operation.

use std::time::Duration;

use timestone_flash::{FileConfig, FileDevice, PAGE_BYTES, Unsettled};
use timestone_store::prelude::*;
use timestone_store::{Figure, MftlConfig, StoreError, Vftl, VftlConfig, VftlStats};

use crate::collection::{Churn, Dice, seeds};
use crate::driver::{Driver, at, config, media, unruly_media};
use crate::sweep::{Plan, Shard, every_cut, small};

fn open(blocks: u32) -> Driver<Vftl> {
    let config = VftlConfig { store: config(), ..VftlConfig::default() };
    let (store, _) = Vftl::open(Box::new(media(8, blocks).open()), config).expect("opens");
    Driver::new(store)
}

#[test]
fn a_small_device_serves_for_ever() {
    for seed in 1..seeds(6) {
        let config =
            MftlConfig { cache_bytes: if seed % 2 == 0 { 1 << 20 } else { 0 }, ..config() };
        let media = unruly_media(8, 64, seed);
        let mut churn = Churn::over(true, media, config, seed, 240, vec![20, 300, 700]);
        churn.run(60, seed > 2);
        assert!(churn.collected > 50, "{} blocks were collected", churn.collected);
    }
}

#[test]
fn large_values_are_collected_too() {
    for seed in 1..seeds(3) {
        let media = unruly_media(8, 190, seed);
        let mut churn = Churn::over(true, media, config(), seed, 25, vec![100, 5000, 40_000]);
        churn.run(30, seed > 1);
        assert!(churn.collected > 50, "{} blocks were collected (seed {seed})", churn.collected);
    }
}

/// A power cut at every few operations of either layer, with every few sectors of what is under
/// way.
#[test]
fn sweep_a_power_cut_over_both_layers() {
    let (media, shard) = (media(8, 36), Shard::layered());
    let stats = shard.clone().live(&media.copy(), small(0), 300, 7);
    assert!(
        stats.get(Figure::CollectedBlocks) > 5 && stats.get(Figure::Checkpoints) > 1,
        "everything happens: {stats:?}"
    );
    let fates = &[Unsettled::Lost, Unsettled::Kept, Unsettled::Drawn(1)];
    let plan = Plan { sector: 9 * PAGE_BYTES / 8, fates, stride: 7 };
    let cuts = every_cut(
        (&media, &shard),
        &plan,
        |media, shard| _ = shard.live(media, small(0), 300, 7),
        |media, mut shard, cut| shard.replay_and_check(media, small(0), &format!("{cut:?}")),
    );
    assert!(cuts > 300, "{cuts} cuts");
}

#[test]
fn sweep_a_second_power_cut_while_both_layers_recover() {
    let (media, shard) = (media(8, 36), Shard::layered());
    let first = Plan { sector: 5 * PAGE_BYTES, fates: &[Unsettled::Lost], stride: 61 };
    let second = Plan { sector: 3 * PAGE_BYTES / 2, fates: &[Unsettled::Drawn(4)], stride: 3 };
    let mut cuts = 0;
    every_cut(
        (&media, &shard),
        &first,
        |media, shard| _ = shard.live(media, small(0), 150, 11),
        |media, shard, first| {
            cuts += every_cut(
                (media, &shard),
                &second,
                |media, shard| shard.recover(media, small(0)),
                |media, mut shard, cut| {
                    shard.replay_and_check(media, small(0), &format!("{first:?}, then {cut:?}"))
                },
            );
        },
    );
    assert!(cuts > 100, "{cuts} cuts");
}

/// Overwrites at random, the watermark close behind.
fn overwrite(driver: &mut Driver<Vftl>, keys: u64, puts: u64) -> VftlStats {
    let mut dice = Dice(5);
    for n in 0..puts {
        let key = if n < keys { n } else { dice.below(keys) };
        driver.put(&key.to_be_bytes(), n + 1, &[n as u8; 480]);
        driver.store.advance_watermark(at(n));
        driver.store.advance_replay_floor(at(n));
        if n % 8 == 0 {
            driver.pump();
        }
    }
    driver.sync();
    driver.store.stats()
}

#[test]
fn both_layers_collect_and_count_what_they_write() {
    let mut driver = open(200);
    // Six tenths of the device.
    let stats = overwrite(&mut driver, 7000, 60_000);
    let VftlStats { store, ftl, device } = stats;
    assert!(store.collection.moved_records > 1000, "the upper layer moves: {store:?}");
    assert!(ftl.moved_pages > 100, "the lower layer moves: {ftl:?}");
    let pages = ftl.host_pages + ftl.moved_pages + ftl.journal_pages;
    assert!(device.programmed_bytes >= (pages - 200) * PAGE_BYTES as u64, "{stats:?}");
    assert_eq!(store.writes.programmed_bytes, ftl.host_pages * PAGE_BYTES as u64, "{stats:?}");
    assert!(stats.write_amplification() > stats.store_write_amplification());
    assert!(ftl.write_amplification() > 1000 && ftl.write_amplification() < 3000, "{ftl:?}");
    assert!(store.space.live_bytes > 7000 * 480 && store.space.dead_bytes > 0, "{store:?}");
    for key in 0..7000u64 {
        assert!(driver.value(&key.to_be_bytes(), 60_000).is_some(), "key {key}");
    }
}

#[test]
fn a_full_device_refuses_puts_and_recovers_by_deletes() {
    let mut driver = open(64);
    let value = [7; 900];
    let mut stored = 0u64;
    let refused = loop {
        match driver.try_put(&stored.to_be_bytes(), 10, &value) {
            Ok(()) => stored += 1,
            Err(StoreError::Busy) => driver.pump(),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::DeviceFull { .. }), "{refused}");
    assert!(stored > 400, "{stored} values");
    for n in 0..stored {
        assert_eq!(driver.value(&n.to_be_bytes(), 20), Some(value.to_vec()));
    }
    for n in 0..stored {
        driver.delete(&n.to_be_bytes(), 30);
    }
    driver.store.advance_watermark(at(40));
    driver.store.advance_replay_floor(at(40));
    driver.pumps(2000);
    driver.put(b"again", 50, &value);
    assert_eq!(driver.value(b"again", 60), Some(value.to_vec()));
}

#[test]
fn a_file_device_grows_and_keeps_everything_over_restarts() {
    let dir = tempfile::tempdir().expect("a directory");
    let file =
        FileConfig { initial_blocks: 16, ..FileConfig::new(dir.path().join("shard.flash"), 64) };
    let open = || {
        let device = FileDevice::open_or_create(&file).expect("a device").0;
        let config = VftlConfig { store: config(), ..VftlConfig::default() };
        let (store, report) = Vftl::open(Box::new(device), config).expect("opens");
        (Driver::new(store), report)
    };
    let (mut driver, _) = open();
    for n in 0..3000u64 {
        driver.put(&n.to_be_bytes(), 10 + n, &[n as u8; 600]);
    }
    driver.put(b"large", 10, &vec![7; 3 << 20]);
    while driver.store.stable_batch() < 1 {
        driver.store.begin_batch(2);
        driver.store.sync_soon();
        driver.pump();
        driver.store.wait(Duration::from_millis(5));
    }
    drop(driver);
    let check = |driver: &mut Driver<Vftl>| {
        for n in (0..3000u64).step_by(7) {
            assert_eq!(driver.value(&n.to_be_bytes(), 5000), Some(vec![n as u8; 600]));
        }
        assert_eq!(driver.value(b"large", 5000), Some(vec![7; 3 << 20]));
    };
    let (mut driver, scanned) = open();
    assert_eq!((scanned.checkpoint, scanned.keys, scanned.corrupt_records), (None, 3001, 0));
    check(&mut driver);
    driver.shut_down();
    drop(driver);
    let (mut driver, loaded) = open();
    assert_eq!((loaded.checkpoint, loaded.keys, loaded.scanned_records), (Some(1), 3001, 0));
    check(&mut driver);
    assert!(driver.store.stats().device.errors == 0);
}
