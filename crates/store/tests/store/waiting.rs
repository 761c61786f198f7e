//! Reads that wait: what they are told when the watermark passes their time meanwhile, how much they
//! read, and what they are told of a page that cannot be read.

use timestone_flash::{Fault, MemoryConfig, MemoryMedia, OpKind, PageId};
use timestone_store::prelude::*;
use timestone_store::{MftlConfig, ReadOutcome, ReadToken, Skimpy, StoreError, StoreEvent};

use crate::driver::{Driver, Got, ORDERED, SPACE, at, config, media, open, version};
use crate::frugal::frugal;

/// A device that completes one read at a time, so that large values take many turns.
fn slow_media() -> MemoryMedia {
    MemoryMedia::new(MemoryConfig {
        pages_per_block: 16,
        initial_blocks: 1000,
        max_blocks: 1000,
        completions_per_poll: 1,
        ..MemoryConfig::default()
    })
}

/// Only one large value is put together at a time.
fn one_at_a_time() -> MftlConfig {
    MftlConfig { assembled_bytes: 0, ..config() }
}

const LARGE: usize = 3 << 20;

/// What two gets at 20 of large values of 10 are told, of which one waits for the other, while the
/// watermark passes their time; `meanwhile` happens then.
fn told<S: Store>(driver: &mut Driver<S>, meanwhile: impl Fn(&mut Driver<S>)) -> Vec<ReadOutcome> {
    for key in [b"x", b"y"] {
        driver.put(key, 10, &[7; LARGE]);
    }
    driver.sync();
    driver.events.clear();
    for (key, token) in [(b"x", 1), (b"y", 2)] {
        let key = driver.key(SPACE, key);
        let found = driver.store.get(key, at(20), ReadToken(token)).expect("it may be asked");
        assert!(matches!(found, timestone_store::Lookup::Pending));
    }
    driver.pumps(5);
    assert!(driver.events.is_empty(), "they take longer");
    meanwhile(driver);
    let mut told = Vec::new();
    for _ in 0..10_000 {
        driver.pump();
        let events = driver.events.drain(..);
        told.extend(events.filter_map(|event| match event {
            StoreEvent::ReadDone { outcome, .. } => Some(outcome),
            _ => None,
        }));
        if told.len() == 2 {
            return told;
        }
    }
    panic!("{told:?}")
}

fn is_value(outcome: &ReadOutcome) -> bool {
    matches!(outcome, ReadOutcome::Present { version: of, value, .. } if *of == version(10) && value.len() == LARGE)
}

/// What is deleted above the snapshot, so that the watermark lets its version go.
fn collect<S: Store>(driver: &mut Driver<S>) {
    for key in [b"x", b"y"] {
        driver.delete(key, 30);
    }
    driver.store.advance_watermark(at(40));
    for key in [b"x", b"y"] {
        driver.put(key, 50, b"small");
    }
}

fn a_large_get_that_waits_is_too_old<S: Store>(driver: &mut Driver<S>) {
    let told = told(driver, collect);
    assert!(is_value(&told[0]), "{:?}", told[0]);
    assert!(
        matches!(told[1], ReadOutcome::Failed(StoreError::TooOld { .. })),
        "its version was collected: {:?}",
        told[1]
    );
}

#[test]
fn a_large_get_that_waits_while_the_watermark_passes_its_time_is_too_old() {
    a_large_get_that_waits_is_too_old(&mut open(&slow_media(), one_at_a_time()).0);
    let device = Box::new(slow_media().open());
    let config = timestone_store::SkimpyConfig { assembled_bytes: 0, ..frugal(config()) };
    a_large_get_that_waits_is_too_old(&mut Driver::new(
        Skimpy::open(device, config).expect("opens").0,
    ));
}

/// A store that keeps one version of a key raises the watermark with every put.
#[test]
fn a_large_get_that_waits_for_its_keys_youngest_version_is_never_too_old() {
    let mut driver = open(&slow_media(), one_at_a_time()).0;
    let told = told(&mut driver, |driver| {
        driver.store.advance_watermark(at(40));
        driver.put(b"other", 50, b"small");
    });
    assert!(told.iter().all(is_value));
}

/// Keys that are too long for the heads of their large values.
fn long_key(n: u32) -> Vec<u8> {
    let mut key = n.to_be_bytes().to_vec();
    key.resize(2000, b'.');
    key
}

#[test]
fn of_large_values_scans_and_ranges_read_the_keys_alone() {
    let media = media(64, 400);
    let mut driver = open(&media, config()).0;
    driver.space = ORDERED;
    for n in 0..8 {
        let key = long_key(n);
        driver.put_expiring(&key, 10, &vec![7; 2 << 20], 1000);
        driver.put_expiring(&n.to_be_bytes(), 10, &vec![7; 2 << 20], 1000);
        driver.pumps(100);
    }
    driver.sync();
    let bytes = |driver: &Driver| driver.store.device().stats().read_bytes;
    let before = bytes(&driver);
    assert_eq!(driver.range(&[], None, 20).len(), 16);
    let ranged = bytes(&driver);
    assert!(ranged - before < 16 * 8 * 4096, "{} bytes for 16 keys", ranged - before);
    assert_eq!(driver.keys(ORDERED, 20, 100).len(), 16);
    let scanned = bytes(&driver) - ranged;
    assert!(scanned < 16 * 8 * 4096, "{scanned} bytes for 16 keys");
    assert_eq!(driver.value(&long_key(3), 20), Some(vec![7; 2 << 20]), "gets read all of it");
}

#[test]
fn of_large_values_scans_of_a_frugal_store_read_the_keys_alone() {
    let device = Box::new(media(64, 400).open());
    let mut driver = Driver::new(Skimpy::open(device, frugal(config())).expect("opens").0);
    for n in 0..8 {
        driver.put(&long_key(n), 10, &vec![7; 2 << 20]);
        driver.pumps(100);
    }
    driver.sync();
    let before = driver.store.device().stats().read_bytes;
    assert_eq!(driver.keys(SPACE, 20, 100).len(), 8);
    let scanned = driver.store.device().stats().read_bytes - before;
    assert!(scanned < 64 * 4096, "{scanned} bytes for 8 keys");
    assert_eq!(driver.value(&long_key(3), 20), Some(vec![7; 2 << 20]), "gets read all of it");
}

/// What fails once may be read again: nobody is told that a page is damaged.
#[test]
fn all_who_wait_for_a_page_are_told_why_it_cannot_be_read() {
    let media = media(8, 20);
    let mut driver = open(&media, config()).0;
    for key in [b"x", b"y", b"z"] {
        driver.put(key, 10, b"v");
    }
    driver.sync();
    driver.events.clear();
    media.inject(Fault::Fail { kind: OpKind::Read, nth: 1 });
    for (key, token) in [(b"x", 1), (b"y", 2), (b"z", 3)] {
        let key = driver.key(SPACE, key);
        driver.store.get(key, at(20), ReadToken(token)).expect("it may be asked");
    }
    driver.pumps(10);
    let is_retryable = |event: &StoreEvent| match event {
        StoreEvent::ReadDone { outcome: ReadOutcome::Failed(error), .. } => {
            matches!(error, StoreError::Flash(_)) && error.retryable()
        }
        _ => false,
    };
    assert_eq!(
        driver.events.iter().filter(|event| is_retryable(event)).count(),
        3,
        "{:?}",
        driver.events
    );
    assert_eq!(driver.get(b"x", 20), Got::Value(version(10), b"v".to_vec()));
}

#[test]
fn damage_that_hides_dead_parts_is_counted() {
    let media = media(8, 200);
    let mut driver = open(&media, config()).0;
    driver.put(b"large", 10, &[7; 60_000]);
    driver.sync();
    // The only page with a record is that of the head.
    let copy = |bit| {
        let mut flipped = 0;
        for page in (0..1600).map(PageId) {
            let is_head = media.page(page).is_some_and(|page| {
                page[4096 - 8..].iter().any(|&byte| byte != 0)
                    && page.windows(5).any(|bytes| bytes == b"large")
            });
            if is_head && media.flip_bit(page, bit) {
                flipped += 1;
            }
        }
        flipped
    };
    assert_eq!(copy(8 * 100), 1, "the head's page");
    assert_eq!(driver.store.stats().corrupt, 0);
    driver.put(b"large", 20, b"small");
    driver.pumps(20);
    assert_eq!(driver.store.stats().corrupt, 1, "somebody looked for the parts");
}
