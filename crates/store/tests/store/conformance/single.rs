//! For stores that keep one version of a key: what an older one comes to, and reads below it.

use timestone_store::prelude::*;
use timestone_store::{AsOf, Figure, ReadToken, ScanCursor, ScanLimit, StoreError};

use super::{Behaviour, twice};
use crate::driver::{Driver, Got, SPACE, at, version};

pub(super) fn all<S: Store>() -> Vec<Behaviour<S>> {
    vec![
        ("a newer version replaces the older one", replaced),
        ("a put of an older version is dropped", dropped),
        ("a keyspace is walked as of now only", walks),
    ]
}

fn replaced<S: Store>(driver: &mut Driver<S>) {
    driver.put(b"k", 10, b"old");
    driver.put(b"k", 20, b"new");
    driver.delete(b"gone", 20);
    driver.put(b"other", 10, b"as it was");
    twice(driver, |driver| {
        for key in [&b"k"[..], b"gone"] {
            let read = driver.try_get_in(SPACE, key, 19);
            assert!(matches!(read, Err(StoreError::TooOld { .. })), "{read:?}");
        }
        assert_eq!(driver.get(b"k", 20), Got::Value(version(20), b"new".to_vec()));
        assert_eq!(driver.get(b"gone", 20), Got::Absent(version(20)));
        assert_eq!(driver.get(b"other", 19), Got::Value(version(10), b"as it was".to_vec()));
    });
    driver.pumps(300);
    assert_eq!((driver.figure(Figure::Keys), driver.figure(Figure::Versions)), (3, 3));
}

fn dropped<S: Store>(driver: &mut Driver<S>) {
    driver.put(b"k", 20, b"new");
    driver.store.fence(SPACE, version(15)).expect("fence");
    let puts = driver.figure(Figure::Puts);
    driver.put(b"k", 10, b"old");
    driver.delete(b"k", 19);
    driver.put(b"hidden", 12, b"by the fence");
    assert_eq!(driver.figure(Figure::Puts), puts, "nothing of it is written");
    twice(driver, |driver| {
        assert_eq!(driver.get(b"k", 25), Got::Value(version(20), b"new".to_vec()));
        assert_eq!(driver.get(b"hidden", 25), Got::Absent(version(15)));
    });
}

fn walks<S: Store>(driver: &mut Driver<S>) {
    driver.put(b"a", 10, b"1");
    driver.put(b"b", 20, b"2");
    let limit = ScanLimit { keys: 10, bytes: usize::MAX };
    let as_of = AsOf { at: at(19), judged: at(19) };
    let begun = driver.store.scan_as_of(SPACE, ScanCursor::START, limit, as_of, ReadToken(1));
    assert!(matches!(begun, Err(StoreError::TooOld { .. })));
    let begun = driver.store.count_as_of(SPACE, as_of, ReadToken(2));
    assert!(matches!(begun, Err(StoreError::TooOld { .. })));
    assert_eq!(driver.keys(SPACE, 20, 10), [b"a".to_vec(), b"b".to_vec()]);
    assert_eq!(driver.count(SPACE, 20), 2);
}
