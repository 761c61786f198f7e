//! Fences: what they hide, from whom, and that what they hide goes when nobody may ask for it.

use timestone_store::Figure;
use timestone_store::prelude::*;
use timestone_types::{Expiry, KeyspaceId};

use super::{Behaviour, twice};
use crate::driver::{Driver, Got, at, version};

pub(super) fn all<S: Store>() -> Vec<Behaviour<S>> {
    vec![("a fence hides everything at or below it", fences)]
}

/// For stores that keep versions: what was there before.
pub(super) fn of_the_past<S: Store>() -> Vec<Behaviour<S>> {
    vec![("a read before a fence sees what was there", before_fences)]
}

fn before_fences<S: Store>(driver: &mut Driver<S>) {
    driver.put(b"a", 10, b"1");
    driver.put(b"b", 30, b"2");
    driver.store.fence(driver.space, version(20)).expect("fence");
    twice(driver, |driver| {
        assert_eq!(driver.value(b"a", 19), Some(b"1".to_vec()));
        assert_eq!(driver.get(b"a", 20), Got::Absent(version(20)));
        assert_eq!(driver.value(b"b", 30), Some(b"2".to_vec()));
    });
    assert_eq!((driver.count(driver.space, 100), driver.count(driver.space, 15)), (1, 1));
}

fn fences<S: Store>(driver: &mut Driver<S>) {
    // Of the same kind.
    let other = KeyspaceId::new(driver.space.get() ^ 3);
    driver.put(b"a", 10, b"1");
    driver.put(b"b", 30, b"2");
    let key = driver.key(other, b"a");
    driver.store.put(key, version(10), b"3", Expiry::NEVER).expect("put");
    driver.store.fence(driver.space, version(20)).expect("fence");
    twice(driver, |driver| {
        assert_eq!(driver.get(b"a", 20), Got::Absent(version(20)));
        assert_eq!(driver.get(b"never", 20), Got::Absent(version(20)));
        assert_eq!(driver.value(b"b", 30), Some(b"2".to_vec()));
        assert!(matches!(driver.try_get_in(other, b"a", 50), Ok(Got::Value(..))));
    });
    assert_eq!(driver.count(driver.space, 100), 1);
    // Not every store counts its keys.
    let counts = driver.figure(Figure::Keys) > 0;
    driver.store.advance_watermark(at(50));
    driver.pumps(300);
    assert_eq!(driver.count(driver.space, 100), 1);
    assert_eq!(driver.keys(driver.space, 100, 10), [b"b".to_vec()]);
    let keys = driver.figure(Figure::Keys);
    assert!(!counts || keys == 2, "what the fence hides has left the index, not {keys} keys");
    driver.store.fence(driver.space, version(60)).expect("fence");
    driver.store.advance_watermark(at(70));
    driver.pumps(300);
    assert_eq!(driver.count(driver.space, 100), 0);
    assert_eq!(driver.figure(Figure::Keys), u64::from(counts));
    driver.put(b"late", 55, b"dead on arrival");
    assert_eq!(driver.get(b"late", 100), Got::Absent(version(60)));
}
