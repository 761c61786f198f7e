//! The order of keys of the `mftl` store: restarts, keys whose hashes are equal, and the bugs that
//! these tests are for.

use timestone_flash::{MemoryMedia, PAGE_BYTES, PageId};
use timestone_store::prelude::*;
use timestone_store::{
    AsOf, Direction, Figure, KeyRange, Mftl, MftlConfig, ReadToken, ScanLimit, StoreError,
    StoreEvent,
};
use timestone_types::{KeyHash, KeyRef};

use crate::driver::{Driver, Entries, ORDERED, at, config, media, open, version};

fn ordered(media: &MemoryMedia) -> Driver {
    let mut driver = open(media, config()).0;
    driver.space = ORDERED;
    driver
}

/// Everything that a range finds at the end, once everything is written and opened again.
fn after_restart(media: &MemoryMedia, driver: Driver, checkpoint: bool) -> Entries {
    drop(driver);
    let (mut driver, report) = open(media, config());
    assert_eq!(report.checkpoint.is_some(), checkpoint, "{report:?}");
    assert_eq!(report.bad_checkpoints, 0, "{report:?}");
    driver.space = ORDERED;
    driver.range(&[], None, 1_000_000)
}

/// Keys of which a checkpoint writes a few at a time.
fn many() -> Vec<Vec<u8>> {
    let short = (0..2500u32).map(|n| format!("key{n:06}").into_bytes());
    let long = (0..8u32).map(|n| [&[b'l'; 30_000][..], &n.to_be_bytes()].concat());
    short.chain(long).collect()
}

fn found_after_a_checkpoint() -> Entries {
    let media = media(16, 512);
    let mut driver = ordered(&media);
    for key in many() {
        driver.put(&key, 10, b"v");
        driver.pump();
    }
    driver.checkpoint();
    after_restart(&media, driver, true)
}

#[test]
fn a_checkpoint_has_every_key_in_its_order() {
    let expected: Entries = many().into_iter().map(|key| (key, version(10))).collect();
    assert!(found_after_a_checkpoint() == expected);
}

/// Keys come and go while a checkpoint is being written; what was scanned behind it is there, too.
#[test]
fn keys_that_come_and_go_during_a_checkpoint_are_where_they_belong() {
    let media = media(16, 512);
    let mut driver = ordered(&media);
    let name = |n: u64| format!("key{n:06}").into_bytes();
    for n in (0..4000).step_by(2) {
        driver.put(&name(n), 10, b"v");
        driver.pump();
    }
    driver.sync();
    driver.store.checkpoint_now();
    let mut expected: std::collections::BTreeMap<_, _> =
        (0..4000).step_by(2).map(|n| (name(n), 10)).collect();
    for n in 0..1200 {
        let (key, nanos) = (n * 7919 % 4000, 20 + n);
        if n % 3 == 0 {
            driver.delete(&name(key), nanos);
            expected.remove(&name(key));
        } else {
            driver.put(&name(key), nanos, b"w");
            expected.insert(name(key), nanos);
        }
        driver.pump();
    }
    driver.checkpoint_done();
    driver.sync();
    let expected: Entries = expected.into_iter().map(|(key, at)| (key, version(at))).collect();
    assert!(driver.range(&[], None, 1_000_000) == expected);
    assert!(after_restart(&media, driver, true) == expected);
}

/// Found by a search: of each two, 42 bits of the hashes are equal, which is all that the index has
/// of them but for the check.
const EQUAL: [(&[u8], &[u8]); 3] =
    [(b"key75508", b"key920981"), (b"key2342332", b"key4423828"), (b"key4386141", b"key6072680")];

#[test]
fn keys_whose_hashes_are_equal_both_have_their_place() {
    let media = media(16, 512);
    let mut driver = ordered(&media);
    let mut expected = Entries::new();
    for (place, (one, other)) in EQUAL.iter().enumerate() {
        let place_of = |key| {
            let KeyHash(hash) = KeyRef::new(driver.store.seed(), ORDERED, key).hash;
            (hash >> 54, hash as u32)
        };
        assert_eq!(place_of(one), place_of(other), "the hashes are as they were");
        driver.put(one, 10 + place as u64, b"one");
        driver.put(other, 20 + place as u64, b"other");
        expected.push((one.to_vec(), version(10 + place as u64)));
        expected.push((other.to_vec(), version(20 + place as u64)));
    }
    expected.sort();
    assert_eq!(driver.range(&[], None, 1_000_000), expected);
    driver.checkpoint();
    driver.delete(EQUAL[0].0, 40);
    driver.sync();
    expected.retain(|(key, _)| key != EQUAL[0].0);
    assert_eq!(after_restart(&media, driver, true), expected);
}

/// Puts keys that are longer than the head of a large value has room for.
fn with_long_keys(media: &MemoryMedia) -> (Driver, Entries) {
    let mut driver = ordered(media);
    let mut expected = Entries::new();
    for n in 0..40u32 {
        let mut key = n.to_be_bytes().to_vec();
        key.resize(4 + 1500 * n as usize, b'.');
        driver.put(&key, 10, &vec![n as u8; 100 + 300 * n as usize]);
        driver.pump();
        expected.push((key, version(10)));
    }
    driver.sync();
    (driver, expected)
}

#[test]
fn keys_that_are_not_in_the_heads_of_their_values_are_read_at_a_restart() {
    let media = media(16, 512);
    let (driver, expected) = with_long_keys(&media);
    assert!(after_restart(&media, driver, false) == expected);
}

#[test]
fn no_range_is_read_where_a_key_is_lost() {
    let media = media(16, 512);
    let (mut driver, expected) = with_long_keys(&media);
    driver.put(b"short", 20, b"v");
    driver.sync();
    drop(driver);
    // The parts of a value begin with its key.
    let last = &expected.last().expect("a key").0;
    let mut damaged = 0;
    for page in 0..16 * 512 {
        let copy = media.copy();
        // A page of a part: kind 3; then its version, part number, and payload.
        if copy.flip_bit(PageId(page), (PAGE_BYTES - 100) * 8) {
            let (store, report) = Mftl::open(Box::new(copy.open()), config()).expect("opens");
            let mut driver = Driver::new(store);
            driver.space = ORDERED;
            let limit = ScanLimit { keys: 1000, bytes: usize::MAX };
            match driver.try_range((&[], None), 1_000_000, limit) {
                Ok((entries, None)) => {
                    assert!(entries.len() == 41 || report.met_damage(), "{report:?}");
                }
                Err(StoreError::Corrupt { .. }) => {
                    damaged += 1;
                    let check = driver.store.first_above(KeyRange::all(ORDERED), at(1), 10);
                    assert!(matches!(check, Err(StoreError::Corrupt { .. })));
                    assert_eq!(driver.value(b"short", 30), Some(b"v".to_vec()), "gets go on");
                    driver.put(last, 40, b"put again");
                    assert!(driver.value(last, 50).is_some());
                }
                other => panic!("{other:?}"),
            }
        }
        if damaged > 5 {
            return;
        }
    }
    panic!("{damaged} keys were lost");
}

/// Opens a medium on which the parts of the large values whose keys are [`long`] are damaged.
fn with_damaged_keys(media: &MemoryMedia) -> (Driver, u32) {
    let mut damaged = 0;
    for page in (0..16 * 512).map(PageId) {
        // The parts of a value begin with its key.
        let has_key = media.page(page).is_some_and(|page| page[80..].starts_with(b"long"));
        damaged += u32::from(has_key && media.flip_bit(page, (PAGE_BYTES - 100) * 8));
    }
    let mut driver = open(media, config()).0;
    driver.space = ORDERED;
    (driver, damaged)
}

fn long(n: u32) -> Vec<u8> {
    let mut key = format!("long{n}").into_bytes();
    key.resize(3000, b'.');
    key
}

fn refuses(driver: &mut Driver) -> bool {
    let limit = ScanLimit { keys: 1000, bytes: usize::MAX };
    match driver.try_range((&[], None), 1_000_000, limit) {
        Ok((_, None)) => false,
        Err(StoreError::Corrupt { .. }) => true,
        other => panic!("{other:?}"),
    }
}

/// The key of what was superseded, or is behind a fence, is known from another record or wanted by nobody.
#[test]
fn a_key_that_cannot_be_read_refuses_no_range_when_it_was_put_again_or_fenced() {
    let media = media(16, 512);
    let mut driver = ordered(&media);
    driver.put(&long(1), 10, &[7; 60_000]);
    driver.sync();
    driver.put(&long(1), 20, b"small");
    driver.sync();
    drop(driver);
    let (mut driver, damaged) = with_damaged_keys(&media);
    assert!(damaged > 0);
    assert!(!refuses(&mut driver));
    assert_eq!(driver.range(&[], None, 1_000_000), [(long(1), version(20))]);
    driver.put(&long(2), 30, &[7; 60_000]);
    driver.sync();
    drop(driver);
    let (mut driver, _) = with_damaged_keys(&media);
    assert!(refuses(&mut driver), "nothing else tells its key");
    driver.put(&long(2), 40, b"small");
    assert!(!refuses(&mut driver), "now it is told");
    assert_eq!(
        driver.range(&[], None, 1_000_000),
        [(long(1), version(20)), (long(2), version(40))]
    );
    driver.put(&long(3), 50, &[7; 60_000]);
    driver.store.fence(ORDERED, version(60)).expect("fenced");
    driver.put(b"after", 70, b"v");
    driver.sync();
    drop(driver);
    let (mut driver, _) = with_damaged_keys(&media);
    assert!(!refuses(&mut driver), "the fence hides it");
    assert_eq!(driver.range(&[], None, 1_000_000), [(b"after".to_vec(), version(70))]);
    let limit = ScanLimit { keys: 1000, bytes: usize::MAX };
    let below = driver.try_range((&[], None), 55, limit);
    assert!(
        matches!(below, Err(StoreError::Corrupt { .. })),
        "below the fence it is missing: {below:?}"
    );
}

/// Two versions of a key are no two keys, in whatever order their keys are read.
#[test]
fn keys_with_two_large_versions_are_not_taken_for_shared_at_a_restart() {
    let media = media(16, 512);
    let mut driver = ordered(&media);
    let mut expected = Entries::new();
    for n in 0..20 {
        driver.put(&long(n), 10, &[7; 20_000]);
        driver.put(&long(n), 20, if n % 2 == 0 { &[8; 20_000] } else { b"small" });
        expected.push((long(n), version(20)));
        driver.pumps(3);
    }
    driver.sync();
    expected.sort();
    drop(driver);
    let mut driver = ordered(&media);
    let before = driver.store.stats().reads.page_reads;
    assert_eq!(driver.range(&[], None, 1_000_000), expected);
    assert_eq!(driver.store.stats().reads.page_reads, before, "the index knows all of it");
}

#[test]
fn a_range_of_an_earlier_life_is_not_answered() {
    let media = media(8, 400);
    let mut driver = ordered(&media);
    for key in 0..200u64 {
        driver.put_expiring(&key.to_be_bytes(), 10, &[1; 900], 1000);
    }
    driver.sync();
    driver.pumps(50);
    driver.events.clear();
    let limit = ScanLimit { keys: 1000, bytes: usize::MAX };
    let as_of = AsOf { at: at(20), judged: at(20) };
    driver
        .store
        .range_as_of(KeyRange::all(ORDERED), Direction::Ascending, limit, as_of, ReadToken(1))
        .expect("begins");
    driver.pump();
    assert!(driver.events.is_empty(), "it waits for records");
    driver.store.begin_life();
    driver.pumps(100);
    assert!(driver.events.is_empty(), "{:?}", driver.events);
    assert_eq!(driver.range(&[], None, 20).len(), 200);
}

#[test]
fn a_range_that_the_watermark_passes_is_refused() {
    let media = media(8, 400);
    let mut driver = ordered(&media);
    for n in 0..6000u32 {
        driver.put(&n.to_be_bytes(), 10, b"v");
        driver.pump();
    }
    driver.events.clear();
    let limit = ScanLimit { keys: u32::MAX, bytes: usize::MAX };
    let as_of = AsOf { at: at(20), judged: at(20) };
    driver
        .store
        .range_as_of(KeyRange::all(ORDERED), Direction::Ascending, limit, as_of, ReadToken(1))
        .expect("begins");
    driver.pump();
    driver.store.advance_watermark(at(21));
    driver.pump();
    let refused = |event: &StoreEvent| {
        matches!(event, StoreEvent::ReadFailed { error: StoreError::TooOld { .. }, .. })
    };
    assert!(driver.events.iter().any(refused), "{:?}", driver.events);
}

#[test]
fn a_range_that_the_watermark_passes_while_it_waits_for_records_is_refused() {
    let media = media(8, 400);
    let mut driver = ordered(&media);
    for key in 0..100u64 {
        driver.put_expiring(&key.to_be_bytes(), 10, &[1; 900], 1000);
    }
    driver.sync();
    driver.pumps(50);
    for key in 0..100u64 {
        driver.put_expiring(&key.to_be_bytes(), 30, &[2; 900], 1000);
    }
    driver.events.clear();
    let limit = ScanLimit { keys: 50, bytes: usize::MAX };
    let as_of = AsOf { at: at(20), judged: at(20) };
    driver
        .store
        .range_as_of(KeyRange::all(ORDERED), Direction::Ascending, limit, as_of, ReadToken(1))
        .expect("begins");
    driver.pump();
    assert!(driver.events.is_empty(), "it waits for records");
    driver.store.advance_watermark(at(40));
    driver.pumps(100);
    let refused = |event: &StoreEvent| {
        matches!(event, StoreEvent::ReadFailed { error: StoreError::TooOld { .. }, .. })
    };
    assert!(driver.events.iter().any(refused), "{:?}", driver.events);
}

/// Index and order together, and what is taken from the cache for them.
#[test]
fn the_order_counts_as_memory_of_the_index() {
    let media = media(64, 400);
    let config = MftlConfig { cache_bytes: 4 << 20, beside_bytes: 0, ..config() };
    let mut driver = open(&media, config).0;
    driver.space = ORDERED;
    for n in 0..20_000u64 {
        driver.put(&n.to_be_bytes(), 10, b"v");
        driver.pump();
    }
    let (index, order) = (driver.figure(Figure::IndexBytes), driver.figure(Figure::OrderBytes));
    assert!(order > 20_000 && order < 20_000 * 8, "{order} bytes");
    assert!(index > order + 20_000 * 28, "{index} bytes");
    driver.store.charge_cache(0);
    let limit = driver.figure(Figure::CacheLimitBytes);
    assert!(limit + index <= 4 << 20, "{limit} bytes are left for the cache");
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use timestone_types::planted::{Bug, with};

    use super::*;

    #[test]
    fn a_checkpoint_that_leaves_out_keys_is_noticed() {
        let found = with(Bug::CheckpointSkipsKeys, found_after_a_checkpoint);
        assert!(found.len() < many().len(), "{} keys", found.len());
    }

    /// Whether a behaviour fails with a bug, and holds without.
    fn is_noticed(bug: Bug, behaviour: fn(&mut Driver<Mftl>)) -> bool {
        let run = || {
            let media = media(16, 512);
            behaviour(&mut open(&media, config()).0);
        };
        run();
        with(bug, || catch_unwind(AssertUnwindSafe(run)).is_err())
    }

    #[test]
    fn a_key_that_goes_before_its_last_version_is_noticed() {
        assert!(is_noticed(Bug::LeavesOrderEarly, crate::conformance::ranges::stays));
    }

    #[test]
    fn a_write_that_a_check_passes_over_is_noticed() {
        assert!(is_noticed(Bug::UnnotedRewrites, crate::conformance::ranges::checks));
    }
}
