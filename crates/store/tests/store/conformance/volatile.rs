//! For stores that do not survive a restart: what is lost looks like one event.

use timestone_store::prelude::*;
use timestone_store::{Figure, StoreError};
use timestone_types::{ClientId, Version};

use super::Behaviour;
use crate::driver::{Driver, Got, ORDERED, SPACE, at, version};

pub(super) fn all<S: Store>() -> Vec<Behaviour<S>> {
    vec![
        ("what an earlier run wrote is hidden, whenever it comes", lost),
        ("what was lost does not make anything younger", age),
        ("nobody waits for what is never durable", unstable),
        ("memory is bounded, and deletes make room", memory),
        ("what was promised together finds room, each key once", promised_keys),
        ("what was promised together finds room, all for one key", promised_versions),
        ("what was promised together finds room, with long keys in order", promised_in_order),
    ]
}

fn lost<S: Store>(driver: &mut Driver<S>) {
    driver.store.recovered(at(50));
    let lost = Version::new(at(50), ClientId::new(u32::MAX));
    assert_eq!(driver.get(b"k", 50), Got::Absent(lost));
    assert_eq!(driver.latest(b"k").version, lost, "who read something before is refused");
    // A promise of the earlier run, decided in this one.
    driver.put(b"k", 50, b"promised");
    driver.delete(b"other", 40);
    driver.store.fence(SPACE, version(45)).expect("it is ignored");
    assert_eq!((driver.get(b"k", 60), driver.figure(Figure::Versions)), (Got::Absent(lost), 0));
    let before = driver.try_get_in(SPACE, b"k", 49);
    assert!(matches!(before, Err(StoreError::TooOld { .. })), "some of it may have been seen");
    driver.put(b"k", 51, b"new");
    assert_eq!(driver.get(b"k", 51), Got::Value(version(51), b"new".to_vec()));
    assert_eq!((driver.get(b"k", 50), driver.count(SPACE, 60)), (Got::Absent(lost), 1));
    assert_eq!(driver.store.newest(SPACE), at(51));
}

fn age<S: Store>(driver: &mut Driver<S>) {
    driver.store.recovered(at(50));
    assert_eq!(driver.store.youngest(), at(0));
    driver.put(b"k", 60, b"v");
    assert_eq!(driver.store.youngest(), at(60));
    driver.store.fence(SPACE, version(70)).expect("fence");
    assert_eq!(driver.store.youngest(), at(70));
}

fn unstable<S: Store>(driver: &mut Driver<S>) {
    driver.store.begin_batch(5);
    driver.put(b"k", 10, b"v");
    driver.store.begin_batch(6);
    assert_eq!(driver.store.stable_batch(), 5);
}

fn memory<S: Store>(driver: &mut Driver<S>) {
    let limit = driver.figure(Figure::DramLimitBytes);
    let value = vec![7; 10_000];
    let mut stored = 0u64;
    while driver.admit(value.len() + 8, 0).is_ok() {
        driver.put(&stored.to_be_bytes(), 10, &value);
        stored += 1;
    }
    assert!(stored * 10_000 > limit * 8 / 10, "{stored} of {limit} bytes");
    assert!(driver.figure(Figure::DramBytes) <= limit && driver.store.is_full());
    let full = driver.admit(value.len(), 0).expect_err("full");
    assert!(matches!(full, StoreError::MemoryFull { .. }) && full.retryable(), "{full}");
    assert!(full.to_string().contains("delete something"), "{full}");
    while driver.try_put(&stored.to_be_bytes(), 10, &value).is_ok() {
        stored += 1;
    }
    assert!(driver.figure(Figure::DramBytes) <= limit, "whether they ask or not");
    for n in 0..stored {
        driver.delete(&n.to_be_bytes(), 20);
    }
    driver.store.advance_watermark(at(20));
    driver.store.advance_replay_floor(at(20));
    driver.pumps(200);
    assert_eq!((driver.figure(Figure::Keys), driver.figure(Figure::Versions)), (0, 0));
    assert!(driver.figure(Figure::DramBytes) < limit / 100, "what is deleted takes no memory");
    assert!(driver.admit(value.len(), 0).is_ok() && !driver.store.is_full());
}

/// Promises until no more is admitted, then puts it all: however small the puts are, each takes an
/// entry beside its bytes.
fn promised<S: Store>(driver: &mut Driver<S>, key_of: impl Fn(u64) -> Vec<u8>) {
    let space = driver.space;
    for value in [vec![], vec![7; 100]] {
        driver.store.fence(space, version(driver.now)).expect("an empty keyspace");
        let count = driver.figure(Figure::Versions);
        let mut promised = 0;
        while driver.admit(value.len() + key_of(0).len(), promised).is_ok() {
            promised += 1;
        }
        assert!(promised > 10_000, "only {promised} puts of {} bytes", value.len());
        for n in 0..promised as u64 {
            let put = driver.try_put(&key_of(n), driver.now + 1 + n, &value);
            put.unwrap_or_else(|error| panic!("put {n} of {promised}: {error}"));
        }
        assert_eq!(driver.figure(Figure::Versions), count + promised as u64);
        let (taken, limit) =
            (driver.figure(Figure::DramBytes), driver.figure(Figure::DramLimitBytes));
        assert!(taken <= limit, "{taken} of {limit} bytes");
        // The next round begins in an empty keyspace.
        driver.now += 2 * promised as u64;
        driver.store.fence(space, version(driver.now)).expect("a fence");
        driver.store.advance_watermark(at(driver.now));
        driver.store.advance_replay_floor(at(driver.now));
        driver.pumps(10_000);
    }
}

fn promised_keys<S: Store>(driver: &mut Driver<S>) {
    promised(driver, |n| n.to_be_bytes().to_vec());
}

fn promised_versions<S: Store>(driver: &mut Driver<S>) {
    promised(driver, |_| 1u64.to_be_bytes().to_vec());
}

/// Keys that have next to nothing in common are there twice.
fn promised_in_order<S: Store>(driver: &mut Driver<S>) {
    driver.space = ORDERED;
    promised(driver, |n| {
        let mixed = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed.to_be_bytes().repeat(100)
    });
}
