//! Versions of single keys: what a get and a look-up of the youngest find.

use timestone_store::prelude::*;
use timestone_store::{Figure, Latest, ScanLimit, StoreError};
use timestone_types::{Expiry, KeyspaceId, Timestamp, Version};

use super::{Behaviour, twice};
use crate::driver::{Driver, Got, version};

pub(super) fn all<S: Store>() -> Vec<Behaviour<S>> {
    vec![
        ("nothing is absent at version zero", nothing_is_absent),
        ("the youngest version counts, whatever the order of the puts", youngest),
        ("a version that is there is not put again", duplicates),
        ("a tombstone hides what is older", tombstones),
        ("latest knows the youngest version without reading", latest),
        ("keyspaces are apart", keyspaces),
        ("keys that share a hash stay apart", collisions),
        ("large values and large keys read back", large),
        ("limits are refused with an error and change nothing", limits),
    ]
}

/// For stores that keep versions: what was there before.
pub(super) fn of_the_past<S: Store>() -> Vec<Behaviour<S>> {
    vec![
        ("a get finds the youngest version at or before its time", youngest_at_or_before),
        ("versions may come in any order", any_order),
        ("a version that is there is left alone", idempotent),
        ("what a tombstone hides is seen before it", before_tombstones),
        ("old versions of keys that share a hash stay apart", old_collisions),
        ("a large value and a small one may follow each other", small_before_large),
    ]
}

fn youngest<S: Store>(driver: &mut Driver<S>) {
    for nanos in [30, 10, 50, 20, 40] {
        driver.put(b"k", nanos, &nanos.to_le_bytes());
        driver.put(format!("other{nanos}").as_bytes(), nanos, b"other");
    }
    twice(driver, |driver| {
        for nanos in [50, 51, 1000] {
            assert_eq!(
                driver.get(b"k", nanos),
                Got::Value(version(50), 50u64.to_le_bytes().to_vec())
            );
        }
        assert_eq!(driver.get(b"other10", 60), Got::Value(version(10), b"other".to_vec()));
    });
}

fn duplicates<S: Store>(driver: &mut Driver<S>) {
    driver.put(b"k", 10, b"first");
    let figures =
        |driver: &Driver<S>| (driver.figure(Figure::Puts), driver.figure(Figure::DuplicatePuts));
    let before = figures(driver);
    driver.put(b"k", 10, b"other");
    assert_eq!(figures(driver), (before.0, before.1 + 1));
    assert_eq!(driver.value(b"k", 15), Some(b"first".to_vec()));
}

fn youngest_at_or_before<S: Store>(driver: &mut Driver<S>) {
    for nanos in [10, 20, 30] {
        driver.put(b"k", nanos, format!("v{nanos}").as_bytes());
    }
    twice(driver, |driver| {
        assert_eq!(driver.get(b"k", 9), Got::Absent(Version::ZERO));
        assert_eq!(driver.get(b"k", 10), Got::Value(version(10), b"v10".to_vec()));
        assert_eq!(driver.get(b"k", 29), Got::Value(version(20), b"v20".to_vec()));
        assert_eq!(driver.get(b"k", 1000), Got::Value(version(30), b"v30".to_vec()));
    });
}

fn nothing_is_absent<S: Store>(driver: &mut Driver<S>) {
    assert_eq!(driver.get(b"k", 1), Got::Absent(Version::ZERO));
    assert_eq!(
        driver.latest(b"k"),
        Latest { version: Version::ZERO, absent: true, may_expire: false }
    );
}

fn any_order<S: Store>(driver: &mut Driver<S>) {
    for nanos in [30, 10, 50, 20, 40] {
        driver.put(b"k", nanos, &nanos.to_le_bytes());
    }
    twice(driver, |driver| {
        for nanos in [10u64, 20, 30, 40, 50] {
            assert_eq!(driver.value(b"k", nanos + 5), Some(nanos.to_le_bytes().to_vec()));
        }
    });
}

fn idempotent<S: Store>(driver: &mut Driver<S>) {
    driver.put(b"k", 10, b"first");
    driver.put(b"k", 20, b"second");
    let figures =
        |driver: &Driver<S>| (driver.figure(Figure::Puts), driver.figure(Figure::DuplicatePuts));
    let before = figures(driver);
    driver.put(b"k", 10, b"other");
    driver.put(b"k", 20, b"other");
    assert_eq!(figures(driver), (before.0, before.1 + 2));
    assert_eq!(driver.value(b"k", 15), Some(b"first".to_vec()));
    assert_eq!(driver.value(b"k", 25), Some(b"second".to_vec()));
}

fn tombstones<S: Store>(driver: &mut Driver<S>) {
    driver.put(b"k", 10, b"v");
    driver.delete(b"k", 20);
    driver.delete(b"other", 5);
    twice(driver, |driver| {
        assert_eq!(driver.get(b"k", 20), Got::Absent(version(20)));
        assert_eq!(driver.get(b"other", 6), Got::Absent(version(5)));
    });
    driver.put(b"k", 30, b"again");
    assert_eq!(driver.value(b"k", 30), Some(b"again".to_vec()));
    driver.delete(b"k", 25);
    assert_eq!(driver.value(b"k", 30), Some(b"again".to_vec()));
}

fn before_tombstones<S: Store>(driver: &mut Driver<S>) {
    driver.put(b"k", 10, b"v");
    driver.delete(b"k", 20);
    twice(driver, |driver| {
        assert_eq!(driver.value(b"k", 19), Some(b"v".to_vec()));
        assert_eq!(driver.get(b"k", 20), Got::Absent(version(20)));
    });
}

fn latest<S: Store>(driver: &mut Driver<S>) {
    let look = |driver: &mut Driver<S>| {
        let latest = driver.latest(b"k");
        (latest.version, latest.absent, latest.may_expire)
    };
    driver.put(b"k", 10, b"v");
    assert_eq!(look(driver), (version(10), false, false));
    driver.put_expiring(b"k", 20, b"v", 100);
    assert_eq!(look(driver), (version(20), false, true));
    driver.put(b"k", 15, b"late");
    assert_eq!(look(driver), (version(20), false, true));
    driver.delete(b"k", 30);
    assert_eq!(look(driver), (version(30), true, false));
    driver.store.fence(driver.space, version(40)).expect("fence");
    assert_eq!(look(driver), (version(40), true, false));
}

fn keyspaces<S: Store>(driver: &mut Driver<S>) {
    for n in 0..5u32 {
        let key = driver.key(KeyspaceId::new(n), b"same");
        driver.store.put(key, version(10), &n.to_le_bytes(), Expiry::NEVER).expect("put");
    }
    twice(driver, |driver| {
        for n in 0..5u32 {
            let got = driver.try_get_in(KeyspaceId::new(n), b"same", 10).expect("readable");
            assert_eq!(got, Got::Value(version(10), n.to_le_bytes().to_vec()));
        }
    });
}

/// Keys of one hash: every second one is put again at 20, every third one is deleted at 30.
fn colliding<S: Store>(driver: &mut Driver<S>) -> Vec<Vec<u8>> {
    driver.same_hash = true;
    let keys: Vec<Vec<u8>> = (0..40u32).map(|n| format!("key{n:02}").into_bytes()).collect();
    for (n, key) in keys.iter().enumerate() {
        driver.put(key, 10, key);
        if n % 2 == 0 {
            driver.put(key, 20, b"new");
        }
        if n % 3 == 0 {
            driver.delete(key, 30);
        }
    }
    keys
}

fn collisions<S: Store>(driver: &mut Driver<S>) {
    let keys = colliding(driver);
    twice(driver, |driver| {
        for (n, key) in keys.iter().enumerate() {
            let newest = if n % 2 == 0 { b"new".to_vec() } else { key.clone() };
            assert_eq!(driver.value(key, 30), (n % 3 != 0).then_some(newest));
        }
        let present = || keys.iter().enumerate().filter(|(n, _)| n % 3 != 0).map(|(_, key)| key);
        assert_eq!(driver.count(driver.space, 35), present().count() as u64);
        assert!(driver.keys(driver.space, 35, 3).iter().eq(present()));
        let limit = ScanLimit { keys: 100, bytes: 7 };
        assert!(driver.keys_within(driver.space, 35, limit).iter().eq(present()));
    });
}

fn old_collisions<S: Store>(driver: &mut Driver<S>) {
    let keys = colliding(driver);
    twice(driver, |driver| {
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(driver.value(key, 10), Some(key.clone()));
            let newer = if n % 2 == 0 { b"new".to_vec() } else { key.clone() };
            assert_eq!(driver.value(key, 20), Some(newer));
        }
        assert_eq!(driver.count(driver.space, 25), 40);
        assert_eq!(driver.keys(driver.space, 25, 3), keys);
        assert_eq!(driver.keys_within(driver.space, 25, ScanLimit { keys: 100, bytes: 7 }), keys);
    });
}

fn value_of(size: usize) -> Vec<u8> {
    (0..size).map(|n| (n * 7 + size) as u8).collect()
}

fn large<S: Store>(driver: &mut Driver<S>) {
    let key = vec![b'k'; 64 * 1024];
    let sizes = [4000, 4100, 5000, 8032, 8033, 70_000, 1 << 20];
    for (n, &size) in sizes.iter().enumerate() {
        driver.put(format!("large{n}").as_bytes(), 10, &value_of(size));
    }
    driver.put(&key, 10, b"small value under a large key");
    twice(driver, |driver| {
        for (n, &size) in sizes.iter().enumerate() {
            assert_eq!(
                driver.value(format!("large{n}").as_bytes(), 10),
                Some(value_of(size)),
                "{size} bytes"
            );
        }
        assert_eq!(driver.value(&key, 15), Some(b"small value under a large key".to_vec()));
        assert_eq!(driver.count(driver.space, 25), 8);
        assert_eq!(driver.keys(driver.space, 25, 3).len(), 8);
    });
    driver.put(&key, 20, &value_of(9000));
    twice(driver, |driver| assert_eq!(driver.value(&key, 25), Some(value_of(9000))));
    driver.delete(&key, 30);
    twice(driver, |driver| assert_eq!(driver.get(&key, 30), Got::Absent(version(30))));
}

fn small_before_large<S: Store>(driver: &mut Driver<S>) {
    let key = vec![b'k'; 64 * 1024];
    driver.put(&key, 10, b"small value under a large key");
    driver.put(&key, 20, &value_of(9000));
    driver.put(&key, 30, b"small again");
    twice(driver, |driver| {
        assert_eq!(driver.value(&key, 15), Some(b"small value under a large key".to_vec()));
        assert_eq!(driver.value(&key, 25), Some(value_of(9000)));
        assert_eq!(driver.value(&key, 35), Some(b"small again".to_vec()));
    });
}

fn limits<S: Store>(driver: &mut Driver<S>) {
    let long = vec![0; 64 * 1024 + 1];
    let key = driver.key(driver.space, &long);
    let refused = driver.store.put(key, version(10), b"v", Expiry::NEVER);
    assert!(matches!(refused, Err(StoreError::KeyTooLong { .. })));
    let huge = vec![0; 16 * 1024 * 1024 + 1];
    assert!(matches!(driver.try_put(b"k", 10, &huge), Err(StoreError::ValueTooLarge { .. })));
    assert!(matches!(driver.try_put(b"k", 0, b"v"), Err(StoreError::BadVersion(_))));
    let key = driver.key(driver.space, b"k");
    let end = Version { timestamp: Timestamp::MAX, ..version(1) };
    assert!(matches!(
        driver.store.put(key, end, b"v", Expiry::NEVER),
        Err(StoreError::BadVersion(_))
    ));
    assert_eq!(driver.get(b"k", 100), Got::Absent(Version::ZERO));
}
