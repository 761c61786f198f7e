//! The store with its index on flash under pressure: buckets are rewritten all the time, and the power
//! goes at any operation.

use proptest::prelude::*;
use timestone_flash::{FlashDevice, MemoryMedia, PAGE_BYTES, PageId, Unsettled};
use timestone_store::prelude::*;
use timestone_store::{
    Figure, FigureValues, MftlConfig, RecoveryReport, Skimpy, SkimpyConfig, SkimpyFactory,
    StoreError,
};

use crate::collection::{Churn, Dice, seeds};
use crate::conformance;
use crate::driver::{Driver, Got, SPACE, Survives, at, config, media, unruly_media};
use crate::model::{Made, Op, ops, run};
use crate::scores::sweep_is_full as full;
use crate::sweep::{Plan, Shard, every_cut, small};

/// A rewritten bucket drops a tombstone again that a crash had brought back without a trace.
impl Survives for Skimpy {
    const COUNTS_DELETIONS: bool = false;

    fn open_over(
        device: Box<dyn FlashDevice>,
        config: MftlConfig,
        _layered: bool,
    ) -> Result<(Driver<Self>, RecoveryReport), StoreError> {
        let config = SkimpyConfig { keys: 60, ..frugal(config) };
        let (store, report) = Self::open(device, config)?;
        Ok((Driver::new(store), report))
    }
}

/// The same for a store with its index on flash, for some hundred keys.
pub(crate) fn frugal(config: MftlConfig) -> SkimpyConfig {
    SkimpyConfig {
        store_id: config.store_id,
        seed: config.seed,
        keys: 200,
        cache_bytes: config.cache_bytes,
        checkpoint_bytes: config.checkpoint_bytes,
        packing_delay: config.packing_delay,
        partial_page_delay: config.partial_page_delay,
        sync_interval: config.sync_interval,
        without_log: config.without_log,
        ..SkimpyConfig::default()
    }
}

/// The fewer buckets, the longer their chains.
fn frugally<const CRAMPED: bool>(history: Vec<Op>, blocks: u32, config: SkimpyConfig) {
    let make = |device, config| SkimpyFactory { device, config };
    let life: Made<_, _, CRAMPED> = Made { media: media(8, blocks), config, make };
    run(history, life.open(), life);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn so_does_one_with_its_index_on_flash(
        history in proptest::collection::vec(ops(), 1..150),
        keys in 1u64..200,
        cached: bool,
        loose: bool,
    ) {
        let cache_bytes = if cached { 2 << 20 } else { 0 };
        let config = SkimpyConfig { keys, cache_bytes, loose, ..frugal(config()) };
        frugally::<false>(history, 400, config);
    }

    /// Collection is at work all the time.
    #[test]
    fn so_does_one_with_its_index_on_flash_and_hardly_any_room(
        history in proptest::collection::vec(ops(), 100..500),
        keys in 1u64..200,
        blocks in 36u32..70,
        loose: bool,
    ) {
        frugally::<true>(history, blocks, SkimpyConfig { keys, loose, ..frugal(config()) });
    }
}

#[test]
fn it_behaves() {
    let skimpy = |config| SkimpyFactory { device: Box::new(media(16, 512).open()), config };
    conformance::run(|| skimpy(frugal(config())));
    conformance::run(|| skimpy(SkimpyConfig { cache_bytes: 4 << 20, ..frugal(config()) }));
    conformance::run(|| skimpy(SkimpyConfig { keys: 10, ..frugal(config()) }));
    conformance::run(|| skimpy(SkimpyConfig { keys: 10, loose: false, ..frugal(config()) }));
}

fn churn(seed: u64, blocks: u32, keys: u64, sizes: Vec<usize>) -> Churn<Skimpy> {
    let config =
        MftlConfig { cache_bytes: if seed.is_multiple_of(2) { 1 << 20 } else { 0 }, ..config() };
    Churn::of(false, unruly_media(8, blocks, seed), config, seed, keys, sizes)
}

#[test]
fn a_small_device_serves_for_ever() {
    for seed in 1..seeds(8) {
        let mut churn = churn(seed, 64, 240, vec![20, 300, 700]);
        churn.run(80, seed > 2);
        assert!(churn.collected > 50, "{} blocks were collected", churn.collected);
    }
}

#[test]
fn large_values_are_collected_too() {
    for seed in 1..seeds(4) {
        let mut churn = churn(seed, 190, 25, vec![100, 5000, 40_000]);
        churn.run(40, seed > 1);
        assert!(churn.collected > 50, "{} blocks were collected (seed {seed})", churn.collected);
    }
}

fn has_collected(figures: &FigureValues) -> bool {
    figures.get(Figure::CollectedBlocks) > 5
        && figures.get(Figure::MovedRecords) > 3
        && figures.get(Figure::DroppedTombstones) > 0
        && figures.get(Figure::Checkpoints) > 1
}

fn sweep(steps: u64, plan: &Plan) -> u64 {
    let (media, shard) = (media(8, 18), Shard::<Skimpy>::default());
    let figures = shard.clone().live(&media.copy(), small(0), steps, 7);
    assert!(has_collected(&figures), "everything happens: {figures:?}");
    every_cut(
        (&media, &shard),
        plan,
        |media, shard| _ = shard.live(media, small(0), steps, 7),
        |media, mut shard, cut| shard.replay_and_check(media, small(0), &format!("{cut:?}")),
    )
}

#[test]
fn sweep_a_power_cut_at_every_operation() {
    let fates: &[Unsettled] = &[Unsettled::Lost, Unsettled::Drawn(1)];
    let cuts = if full() {
        sweep(600, &Plan { sector: 512, fates, stride: 1 })
    } else {
        sweep(400, &Plan { sector: 5 * 512, fates, stride: 1 })
    };
    assert!(cuts > 300, "{cuts} cuts");
}

#[test]
fn sweep_a_second_power_cut_at_every_operation_of_the_recovery() {
    let (media, shard) = (media(8, 18), Shard::<Skimpy>::default());
    let first = Plan { sector: 3 * PAGE_BYTES + 512, fates: &[Unsettled::Lost], stride: 9 };
    let second = Plan { sector: 2 * PAGE_BYTES + 1536, fates: &[Unsettled::Drawn(4)], stride: 1 };
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
    assert!(cuts > 300, "{cuts} cuts");
}

/// A store with few buckets, so that chains are long.
pub(crate) fn open(media: &MemoryMedia) -> (Driver<Skimpy>, RecoveryReport) {
    open_for(media, 2)
}

/// A store for so many keys.
pub(crate) fn open_for(media: &MemoryMedia, keys: u64) -> (Driver<Skimpy>, RecoveryReport) {
    open_with(media, SkimpyConfig { keys, ..frugal(config()) })
}

/// A store for so many keys, all versions of which are in chains.
pub(crate) fn open_chained(media: &MemoryMedia, keys: u64) -> (Driver<Skimpy>, RecoveryReport) {
    open_with(media, SkimpyConfig { keys, loose: false, ..frugal(config()) })
}

pub(crate) fn open_with(
    media: &MemoryMedia,
    config: SkimpyConfig,
) -> (Driver<Skimpy>, RecoveryReport) {
    let (store, report) = Skimpy::open(Box::new(media.open()), config).expect("opens");
    (Driver::new(store), report)
}

/// A device that fails to read a block when it is opened, or all of it but its first page, may read it the
/// next time.
#[test]
fn a_block_that_could_not_be_read_once_is_not_erased() {
    let whole = media(8, 30);
    let mut driver = open_with(&whole, frugal(config())).0;
    fill(&mut driver, 60);
    drop(driver);
    // What is led there is told so, until it can be read.
    let is_there = |driver: &mut Driver<Skimpy>, n: u64, time: u64| {
        let found = driver.try_get_in(SPACE, &n.to_be_bytes(), time);
        matches!(found, Ok(Got::Value(..)) | Err(StoreError::Corrupt { .. }))
    };
    let found =
        |driver: &mut Driver<Skimpy>| (0..60u64).filter(|&n| is_there(driver, n, 20)).count();
    let mut missing = 0;
    for (block, from) in (0..30).flat_map(|block| [(block, 0), (block, 1)]) {
        for deletes in [false, true] {
            let media = whole.copy();
            media.fail_reads_of((block * 8 + from..block * 8 + 8).map(PageId));
            let (mut driver, report) = open_with(&media, frugal(config()));
            media.clear_faults();
            if found(&mut driver) == 60 {
                continue;
            }
            missing += 1;
            assert!(report.met_damage(), "{report:?}");
            let time = 1 << 20;
            if deletes {
                (0..60u64).for_each(|n| driver.delete(&n.to_be_bytes(), 40));
                driver.store.advance_watermark(at(time));
                driver.store.advance_replay_floor(at(time));
            }
            for n in 0..if deletes { 1500 } else { 300u64 } {
                driver.put(&(1000 + n % 30).to_be_bytes(), 50 + n, &[b'v'; 500]);
                driver.pump();
            }
            driver.sync();
            drop(driver);
            let mut driver = open_with(&media, frugal(config())).0;
            let there =
                (0..60u64).filter(|&n| is_there(&mut driver, n, if deletes { time } else { 20 }));
            assert_eq!(
                there.count(),
                if deletes { 0 } else { 60 },
                "block {block} from page {from} on, deletes: {deletes}"
            );
        }
    }
    assert!(missing > 4, "{missing} blocks with something were unreadable");
}

/// Many pages are read at once.
#[test]
fn a_page_that_cannot_be_read_costs_no_other_page() {
    let media = media(128, 8);
    let mut driver = open_with(&media, frugal(config())).0;
    fill(&mut driver, 1000);
    drop(driver);
    let used = (0..8 * 128)
        .map(PageId)
        .filter(|&page| media.page(page).is_some_and(|bytes| bytes.iter().any(|&byte| byte != 0)));
    let mut unread = 0;
    for page in used.step_by(23) {
        media.fail_reads_of([page]);
        let (_, report) = open_with(&media, frugal(config()));
        assert_eq!(report.corrupt_pages + report.unreadable_tails, 1, "{page}: {report:?}");
        assert!((990..1000).contains(&report.scanned_records), "{page}: {report:?}");
        media.clear_faults();
        unread += 1;
    }
    assert!(unread > 4, "{unread} pages");
}

fn fill(driver: &mut Driver<Skimpy>, keys: u64) {
    for n in 0..keys {
        driver.put(&n.to_be_bytes(), 10, &[n as u8; 500]);
    }
    driver.sync();
}

/// The pages that were programmed.
pub(crate) fn programmed(media: &MemoryMedia, blocks: u32) -> Vec<PageId> {
    let is_programmed =
        |page: &PageId| media.page(*page).is_some_and(|bytes| bytes.iter().any(|&byte| byte != 0));
    (0..blocks * 8).map(PageId).filter(is_programmed).collect()
}

#[test]
fn damage_in_a_chain_is_told_and_hides_nothing() {
    let media = media(8, 20);
    let (mut driver, _) = open(&media);
    fill(&mut driver, 60);
    let pages = programmed(&media, 20);
    let page = pages[pages.len() / 2];
    let (mut noticed, mut sound) = (0, 0);
    for bit in (0..4096 * 8).step_by(97) {
        assert!(media.flip_bit(page, bit));
        for n in 0..60u64 {
            match driver.try_get_in(SPACE, &n.to_be_bytes(), 20) {
                Ok(Got::Value(_, value)) => {
                    assert_eq!(value, vec![n as u8; 500], "bit {bit} changed a value");
                    sound += 1;
                }
                Ok(Got::Absent(_)) => panic!("bit {bit} hid key {n}"),
                Err(StoreError::Corrupt { .. }) => noticed += 1,
                Err(error) => panic!("{error}"),
            }
        }
        media.flip_bit(page, bit);
    }
    assert!(noticed > 1000 && sound > 1000, "{noticed} noticed, {sound} sound");
}

#[test]
fn recovery_finds_what_lies_behind_damage() {
    for keys_per_page in [1, 5] {
        let media = media(8, 40);
        let (mut driver, _) = open(&media);
        fill(&mut driver, 150);
        drop(driver);
        let mut flipped = 0;
        for page in programmed(&media, 40).into_iter().step_by(keys_per_page) {
            flipped += u64::from(media.flip_bit(page, 8 * 300));
        }
        let (mut driver, report) = open(&media);
        assert!(flipped > 1 && report.corrupt_records == flipped, "{flipped}: {report:?}");
        let check = |driver: &mut Driver<Skimpy>| {
            let keys = (0..150u64).map(|n| n.to_be_bytes());
            let found = keys.filter(|key| driver.value(key, 20).is_some()).count() as u64;
            assert_eq!(found, 150 - flipped);
        };
        check(&mut driver);
        // Its buckets are in pieces, and are put together.
        driver.pumps(300);
        check(&mut driver);
        assert_eq!(driver.count(SPACE, 20), 150 - flipped);
        driver.shut_down();
        drop(driver);
        let (mut driver, _) = open(&media);
        check(&mut driver);
    }
}

#[test]
fn a_page_that_is_lost_in_the_middle_of_a_chain_takes_its_own_records_alone() {
    let full = media(8, 40);
    let (mut driver, _) = open(&full);
    fill(&mut driver, 100);
    drop(driver);
    let pages = programmed(&full, 40);
    for &page in &pages[..pages.len() - 1] {
        let media = full.copy();
        media.set_page(page, &[0; 4096]);
        let (mut driver, report) = open(&media);
        let keys = (0..100u64).map(|n| n.to_be_bytes());
        let found = keys.filter(|key| driver.value(key, 20).is_some()).count();
        assert!((93..100).contains(&found), "page {page}: {found} found, {report:?}");
        // What is lost at the end of a block looks as if it had never been written.
        assert!(report.met_damage() || page.0 % 8 == 7, "page {page}: {report:?}");
    }
}

#[test]
fn collection_sets_damaged_blocks_aside_and_drops_no_tombstone_then() {
    let media = media(8, 80);
    let (mut driver, _) = open(&media);
    for n in 0..100u64 {
        driver.put(&n.to_be_bytes(), 10 + n, &[9; 700]);
    }
    driver.sync();
    let pages = programmed(&media, 80);
    let page = pages[3];
    assert!(media.flip_bit(page, 8 * 300));
    let (mut values, mut errors) = (0, 0);
    for n in 0..3000u64 {
        let put = driver.try_put(&(n % 100).to_be_bytes(), 1000 + n, &[9; 700]);
        match put {
            Ok(()) | Err(StoreError::Busy | StoreError::DeviceFull { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        driver.store.advance_watermark(at(900 + n));
        driver.store.advance_replay_floor(at(900 + n));
        driver.pump();
    }
    for n in 0..100u64 {
        match driver.try_get_in(SPACE, &n.to_be_bytes(), 10_000) {
            Ok(Got::Value(_, value)) => {
                assert_eq!(value, vec![9; 700]);
                values += 1;
            }
            Err(StoreError::Corrupt { .. }) => errors += 1,
            other => panic!("key {n}: {other:?}"),
        }
    }
    let stats = driver.store.stats();
    assert!(stats.corrupt > 0, "{stats:?}");
    assert!(values > 0, "{values} values, {errors} errors: {stats:?}");
}

#[test]
fn a_checkpoint_saves_the_scan_and_a_bad_one_does_not_matter() {
    let media = media(8, 200);
    let (mut driver, _) = open(&media);
    fill(&mut driver, 1000);
    driver.store.advance_watermark(at(15));
    driver.shut_down();
    drop(driver);
    let (mut driver, with) = open(&media);
    assert_eq!((with.checkpoint, with.keys, with.scanned_records), (Some(1), 1000, 0));
    assert_eq!(driver.store.watermark(), at(15));
    driver.put(b"after", 20, b"the checkpoint");
    driver.sync();
    drop(driver);
    let (mut driver, again) = open(&media);
    assert_eq!((again.checkpoint, again.keys, again.scanned_records), (Some(1), 1001, 1));
    assert_eq!(driver.value(b"after", 30), Some(b"the checkpoint".to_vec()));
    drop(driver);
    let bad = programmed(&media, 200).into_iter().find(|&page| {
        media.flip_bit(page, 8 * 2000);
        let (_, report) = open(&media);
        media.flip_bit(page, 8 * 2000);
        report.checkpoint.is_none()
    });
    media.flip_bit(bad.expect("some page belongs to the checkpoint"), 8 * 2000);
    let (mut driver, report) = open(&media);
    assert!(report.met_damage() && report.keys == 1001, "{report:?}");
    assert_eq!(driver.count(SPACE, 30), 1001);
}

#[test]
fn a_full_device_refuses_puts_goes_on_reading_and_recovers_by_deletes() {
    let media = media(8, 64);
    let (mut driver, _) = open_for(&media, 500);
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
    assert!(stored > 400 && driver.store.is_full(), "{stored} values");
    for n in 0..stored {
        assert_eq!(driver.value(&n.to_be_bytes(), 20), Some(value.to_vec()));
    }
    for n in 0..stored {
        let mut waited = 0;
        while let Err(error) = driver.try_delete(&n.to_be_bytes(), 30) {
            // When many are deleted, room for more comes from those before.
            assert!(n > 500 && waited < 5000, "delete {n} of {stored}: {error}");
            driver.store.advance_watermark(at(40));
            driver.store.advance_replay_floor(at(29));
            driver.pump();
            waited += 1;
        }
    }
    driver.store.advance_watermark(at(40));
    driver.store.advance_replay_floor(at(40));
    driver.pumps(3000);
    driver.put(b"again", 50, &value);
    assert_eq!(driver.value(b"again", 60), Some(value.to_vec()));
}

/// Values of keys that are put together from a chain in pieces, after a restart from a checkpoint that
/// was written before that was done. The pieces are where a crash has taken a page.
fn values_behind_a_torn_page() -> usize {
    let media = media(8, 32);
    let (mut driver, _) = open(&media);
    // So full that there is no room to spare for putting buckets together.
    let mut stored = 0u64;
    while driver.figure(Figure::FreeBlocks) > 9 {
        driver.put(&stored.to_be_bytes(), 10, &[stored as u8; 500]);
        stored += 1;
        driver.pump();
    }
    driver.sync();
    drop(driver);
    let pages = programmed(&media, 32);
    media.set_page(pages[pages.len() / 2], &[0; 4096]);
    let (mut driver, _) = open(&media);
    driver.shut_down();
    drop(driver);
    let (mut driver, report) = open(&media);
    assert!(report.checkpoint.is_some(), "{report:?}");
    (0..stored).filter(|n| driver.value(&n.to_be_bytes(), 20).is_none()).count()
}

#[test]
fn a_torn_page_is_known_after_a_checkpoint() {
    let lost = values_behind_a_torn_page();
    assert!((1..8).contains(&lost), "{lost} values were on the page");
}

/// Live data takes four fifths of the device, written at random and overwritten at random.
#[test]
fn a_device_that_is_nearly_full_takes_puts_for_ever() {
    let media = media(16, 100);
    let keys = 100 * 16 * 4 * 4 / 5;
    let (mut driver, _) = open_for(&media, keys);
    let mut dice = Dice(3);
    for n in 0..keys * 4 {
        let key = if n < keys { n.wrapping_mul(7919) % keys } else { dice.below(keys) };
        let mut waited = 0;
        while let Err(error) = driver.try_put(&key.to_be_bytes(), n + 1, &[n as u8; 900]) {
            assert!(matches!(error, StoreError::Busy), "put {n} of {keys} keys: {error}");
            driver.store.advance_watermark(at(n));
            driver.store.advance_replay_floor(at(n));
            driver.pump();
            waited += 1;
            assert!(waited < 20_000, "put {n}: {:?}", driver.store.stats());
        }
    }
    let stats = driver.store.stats();
    let amplification = stats.writes.programmed_bytes as f64 / stats.writes.put_bytes as f64;
    assert!(amplification < 8.0, "{amplification}: {stats:?}");
    driver.store.advance_watermark(at(keys * 4));
    assert_eq!(driver.count(SPACE, keys * 4), keys);
}

/// Deletions that lie in the log before the older values that they hide, and a power cut as soon as
/// the first is forgotten: how many values are there afterwards.
fn deleted_values_that_come_back() -> usize {
    let media = media(8, 60);
    let (mut driver, _) = open_for(&media, 4000);
    let name = |n: u64| (1_000_000 + n).to_be_bytes();
    (0..20).for_each(|n| driver.delete(&name(n), 20));
    for n in 0..100u64 {
        driver.put(&n.to_be_bytes(), 15, &[1; 700]);
    }
    (0..20).for_each(|n| driver.put(&name(n), 10, b"late"));
    driver.sync();
    driver.store.advance_watermark(at(30));
    driver.store.advance_replay_floor(at(30));
    for n in 0..3000u64 {
        driver.put(&(n % 100).to_be_bytes(), 100 + n, &[2; 700]);
        driver.store.advance_watermark(at(100 + n));
        driver.pump();
        if driver.figure(Figure::CollectedBlocks) > 0 {
            break;
        }
    }
    let free = driver.figure(Figure::FreeBlocks);
    for _ in 0..100 {
        driver.pump();
        if driver.figure(Figure::FreeBlocks) > free {
            break;
        }
    }
    media.power_cut(1);
    drop(driver);
    let (mut driver, _) = open_for(&media, 4000);
    (0..20).filter(|&n| driver.value(&name(n), 10_000).is_some()).count()
}

#[test]
fn a_tombstone_stays_until_what_it_hides_cannot_come_back() {
    assert_eq!(deleted_values_that_come_back(), 0);
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use timestone_types::planted::{Bug, set};

    use super::*;

    /// Whether one of some workloads notices a bug.
    fn is_found(bug: Option<Bug>, live: impl Fn(u64) + std::panic::RefUnwindSafe) -> bool {
        (1..30).any(|seed| {
            set(bug);
            let found = std::panic::catch_unwind(|| live(seed)).is_err();
            set(None);
            found
        })
    }

    fn small_values(seed: u64) {
        churn(seed, 64, 240, vec![20, 300, 700]).run(12, false);
    }

    #[test]
    fn a_look_up_that_trusts_flagged_records_is_found() {
        assert!(is_found(Some(Bug::TrustsFlagged), small_values));
    }

    #[test]
    fn a_block_that_is_erased_before_its_chains_are_durable_is_found() {
        let plan = Plan { sector: 1 << 20, fates: &[Unsettled::Lost], stride: 2 };
        let sweep = || {
            set(Some(Bug::ErasesBeforeDurable));
            sweep(400, &plan)
        };
        let found = std::panic::catch_unwind(sweep).is_err();
        set(None);
        assert!(found);
    }

    #[test]
    fn a_torn_page_that_a_checkpoint_forgets_is_found() {
        let found = std::panic::catch_unwind(|| {
            set(Some(Bug::ForgetsTornPages));
            values_behind_a_torn_page()
        });
        set(None);
        assert!(found.is_err(), "a chain leads to the page");
    }

    #[test]
    fn a_tombstone_that_is_dropped_before_what_it_hides_is_found() {
        use timestone_types::planted::with;
        assert!(with(Bug::EarlyTombstone, deleted_values_that_come_back) > 0);
    }
}
