//! What every store does, as a list: a new store passes it by adding one line to
//! [`every_store_behaves`].

use timestone_store::prelude::*;
use timestone_store::{Figure, Latest, Mftl, MftlConfig, ScanCursor, ScanLimit, StoreError};
use timestone_types::{Expiry, KeyspaceId, Timestamp, Version};

use crate::driver::{Driver, Got, SPACE, at, config, media, open, version};

type Behaviour<S> = (&'static str, fn(&mut Driver<S>));

fn behaviours<S: Store>() -> Vec<Behaviour<S>> {
    vec![
        ("a get finds the youngest version at or before its time", youngest_at_or_before),
        ("nothing is absent at version zero", nothing_is_absent),
        ("versions may come in any order", any_order),
        ("a version that is there is left alone", idempotent),
        ("a tombstone hides what is older", tombstones),
        ("an expired record is absent at and after its expiry", expiry),
        ("latest knows the youngest version without reading", latest),
        ("a fence hides everything at or below it", fences),
        ("keyspaces are apart", keyspaces),
        ("reads below the watermark are refused", watermark),
        ("a scan finds every key once, whatever the step", scans),
        (
            "a page of a scan holds no more than its limit, and what it does not hold comes with \
             the next",
            pages_of_scans,
        ),
        ("a count is exact", counts),
        ("keys that share a hash stay apart", collisions),
        ("large values and large keys read back", large),
        ("limits are refused with an error and change nothing", limits),
        ("what was put is stable after a sync", stability),
        ("a store that is shut down takes no more writes", shutdown),
    ]
}

fn run<S: Store>(make: impl Fn() -> S) {
    for (name, behaviour) in behaviours() {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            behaviour(&mut Driver::new(make()))
        }));
        assert!(outcome.is_ok(), "not true of this store: {name}");
    }
}

#[test]
fn every_store_behaves() {
    let open =
        |config: MftlConfig| Mftl::open(Box::new(media(16, 512).open()), config).expect("opens").0;
    run(|| open(config()));
    run(|| open(MftlConfig { cache_bytes: 4 << 20, ..config() }));
}

/// Lets what is in memory only reach the device, so that both are tried.
fn twice<S: Store>(driver: &mut Driver<S>, check: impl Fn(&mut Driver<S>)) {
    check(driver);
    driver.sync();
    driver.pumps(3);
    check(driver);
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
        assert_eq!(driver.value(b"k", 19), Some(b"v".to_vec()));
        assert_eq!(driver.get(b"k", 20), Got::Absent(version(20)));
        assert_eq!(driver.get(b"other", 6), Got::Absent(version(5)));
    });
    driver.put(b"k", 30, b"again");
    assert_eq!(driver.value(b"k", 30), Some(b"again".to_vec()));
}

fn expiry<S: Store>(driver: &mut Driver<S>) {
    driver.put_expiring(b"k", 10, b"v", 100);
    twice(driver, |driver| {
        assert_eq!(driver.value(b"k", 99), Some(b"v".to_vec()));
        assert_eq!(driver.get(b"k", 100), Got::Absent(version(10)));
        assert_eq!(driver.get(b"k", 5000), Got::Absent(version(10)));
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
    driver.store.fence(SPACE, version(40)).expect("fence");
    assert_eq!(look(driver), (version(40), true, false));
}

/// What a fence hides is told from what it found absent, until the watermark has passed it.
pub(crate) fn traces_of_a_fence() -> Vec<bool> {
    let media = media(16, 16);
    let (mut driver, _) = open(&media, config());
    driver.put(b"there", 10, b"1");
    driver.put(b"deleted", 10, b"1");
    driver.delete(b"deleted", 12);
    driver.store.fence(SPACE, version(20)).expect("fence");
    driver.put(b"later", 30, b"2");
    let beside = |driver: &Driver<Mftl>, fence: u64| -> Vec<bool> {
        let keys = [&b"there"[..], b"deleted", b"later", b"never"];
        keys.iter()
            .map(|key| driver.store.is_beside_fence(driver.key(SPACE, key), version(fence)))
            .collect()
    };
    let told = beside(&driver, 20);
    assert_eq!(beside(&driver, 12), [false; 4], "no fence has that version");
    assert_eq!(driver.get(b"never", 50), Got::Absent(version(20)));
    driver.store.advance_watermark(at(19));
    driver.pumps(300);
    assert_eq!(beside(&driver, 20), told);
    driver.store.advance_watermark(at(40));
    driver.pumps(300);
    assert_eq!(driver.figure(Figure::Keys), 1, "the index has forgotten what the fence hid");
    assert_eq!(beside(&driver, 20), [false; 4], "and so nobody is told that there was nothing");
    told
}

#[test]
fn a_fence_leaves_a_trace_where_it_has_hidden_something() {
    assert_eq!(traces_of_a_fence(), [false, false, false, true]);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_fence_that_leaves_no_trace_anywhere_is_found() {
    use timestone_store::planted::{PlantedBugs, plant};
    plant(PlantedBugs { forget_what_fences_hide: true, ..PlantedBugs::default() });
    let told = traces_of_a_fence();
    plant(PlantedBugs::default());
    assert_eq!(told, [true; 4]);
}

fn fences<S: Store>(driver: &mut Driver<S>) {
    let other = KeyspaceId::new(3);
    driver.put(b"a", 10, b"1");
    driver.put(b"b", 30, b"2");
    let key = driver.key(other, b"a");
    driver.store.put(key, version(10), b"3", Expiry::NEVER).expect("put");
    driver.store.fence(SPACE, version(20)).expect("fence");
    twice(driver, |driver| {
        assert_eq!(
            driver.value(b"a", 19),
            Some(b"1".to_vec()),
            "a read before the fence sees what was there"
        );
        assert_eq!(driver.get(b"a", 20), Got::Absent(version(20)));
        assert_eq!(driver.get(b"never", 20), Got::Absent(version(20)));
        assert_eq!(driver.value(b"b", 30), Some(b"2".to_vec()));
        assert!(matches!(driver.try_get_in(other, b"a", 50), Ok(Got::Value(..))));
    });
    assert_eq!((driver.count(SPACE, 100), driver.count(SPACE, 15)), (1, 1));
    driver.store.advance_watermark(at(50));
    driver.pumps(300);
    assert_eq!(driver.count(SPACE, 100), 1);
    assert_eq!(driver.keys(SPACE, 100, 10), [b"b".to_vec()]);
    assert_eq!(driver.figure(Figure::Keys), 2, "what the fence hides has left the index");
    driver.store.fence(SPACE, version(60)).expect("fence");
    driver.store.advance_watermark(at(70));
    driver.pumps(300);
    assert_eq!((driver.count(SPACE, 100), driver.figure(Figure::Keys)), (0, 1));
    driver.put(b"late", 55, b"dead on arrival");
    assert_eq!(driver.get(b"late", 100), Got::Absent(version(60)));
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

fn watermark<S: Store>(driver: &mut Driver<S>) {
    driver.put(b"k", 10, b"v");
    driver.store.advance_watermark(at(50));
    driver.store.advance_watermark(at(40));
    assert_eq!(driver.store.watermark(), at(50), "it only rises");
    assert!(matches!(driver.try_get_in(SPACE, b"k", 49), Err(StoreError::TooOld { .. })));
    assert_eq!(driver.value(b"k", 50), Some(b"v".to_vec()));
}

fn scans<S: Store>(driver: &mut Driver<S>) {
    let mut expected = Vec::new();
    for n in 0..500u64 {
        let key = format!("key{n:03}").into_bytes();
        driver.put(&key, 10 + n, b"v");
        match n % 5 {
            0 => driver.delete(&key, 1000),
            1 => driver.put_expiring(&key, 1000, b"soon", 2000),
            _ => {}
        }
        expected.push(key);
    }
    driver.sync();
    assert_eq!(driver.keys(SPACE, 999, 7), expected);
    let kept: Vec<_> = (0..500).filter(|n| n % 5 > 1).map(|n| expected[n].clone()).collect();
    assert_eq!(driver.keys(SPACE, 2000, 1), kept);
    assert_eq!(driver.keys(SPACE, 2000, 10_000), kept);
    assert!(driver.keys(KeyspaceId::new(9), 2000, 10).is_empty());
}

fn pages_of_scans<S: Store>(driver: &mut Driver<S>) {
    let mut expected: Vec<Vec<u8>> =
        (0..300u32).map(|n| [n.to_be_bytes().as_slice(), &[b'k'; 996]].concat()).collect();
    // Longer than every limit below but the last.
    expected.push(vec![b'z'; 64 * 1024]);
    for key in &expected {
        driver.put(key, 10, b"v");
    }
    twice(driver, |driver| {
        for limit in [
            ScanLimit { keys: 1, bytes: 1 },
            ScanLimit { keys: 3, bytes: 50_000 },
            ScanLimit { keys: 10_000, bytes: 2500 },
            ScanLimit { keys: 100, bytes: 70_000 },
            ScanLimit { keys: 10_000, bytes: usize::MAX },
        ] {
            let (mut cursor, mut found) = (ScanCursor::START, Vec::new());
            loop {
                let (keys, next) = driver.page(SPACE, 10, cursor, limit);
                let bytes: usize = keys.iter().map(<[u8]>::len).sum();
                assert!(keys.len() <= limit.keys as usize, "{} keys within {limit:?}", keys.len());
                assert!(bytes <= limit.bytes || keys.len() == 1, "{bytes} bytes within {limit:?}");
                found.extend(keys.iter().map(<[u8]>::to_vec));
                let Some(next) = next else { break };
                assert!(next > cursor, "a scan goes on");
                cursor = next;
            }
            found.sort();
            assert!(
                found == expected,
                "{} of {} keys within {limit:?}",
                found.len(),
                expected.len()
            );
        }
    });
}

fn counts<S: Store>(driver: &mut Driver<S>) {
    for n in 0..300u64 {
        driver.put(&n.to_le_bytes(), 10, b"v");
    }
    assert_eq!(driver.count(SPACE, 10), 300);
    assert_eq!(driver.count(SPACE, 9), 0);
    for n in 0..100u64 {
        driver.delete(&n.to_le_bytes(), 20);
    }
    for n in 100..150u64 {
        driver.put_expiring(&n.to_le_bytes(), 20, b"v", 30);
    }
    driver.sync();
    assert_eq!(driver.count(SPACE, 15), 300);
    assert_eq!(driver.count(SPACE, 29), 200);
    assert_eq!(driver.count(SPACE, 30), 150);
}

fn collisions<S: Store>(driver: &mut Driver<S>) {
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
    twice(driver, |driver| {
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(driver.value(key, 10), Some(key.clone()));
            let newer = if n % 2 == 0 { b"new".to_vec() } else { key.clone() };
            assert_eq!(driver.value(key, 20), Some(newer.clone()));
            assert_eq!(driver.value(key, 30), (n % 3 != 0).then_some(newer));
        }
        assert_eq!(driver.count(SPACE, 25), 40);
        assert_eq!(driver.keys(SPACE, 25, 3), keys);
        assert_eq!(driver.keys_within(SPACE, 25, ScanLimit { keys: 100, bytes: 7 }), keys);
    });
}

fn large<S: Store>(driver: &mut Driver<S>) {
    let key = vec![b'k'; 64 * 1024];
    let sizes = [4000, 4100, 5000, 8032, 8033, 70_000, 1 << 20];
    let value = |size: usize| (0..size).map(|n| (n * 7 + size) as u8).collect::<Vec<u8>>();
    for (n, &size) in sizes.iter().enumerate() {
        driver.put(format!("large{n}").as_bytes(), 10, &value(size));
    }
    driver.put(&key, 10, b"small value under a large key");
    driver.put(&key, 20, &value(9000));
    twice(driver, |driver| {
        for (n, &size) in sizes.iter().enumerate() {
            assert_eq!(
                driver.value(format!("large{n}").as_bytes(), 10),
                Some(value(size)),
                "{size} bytes"
            );
        }
        assert_eq!(driver.value(&key, 15), Some(b"small value under a large key".to_vec()));
        assert_eq!(driver.value(&key, 25), Some(value(9000)));
        assert_eq!(driver.count(SPACE, 25), 8);
        assert_eq!(driver.keys(SPACE, 25, 3).len(), 8);
    });
    driver.delete(&key, 30);
    twice(driver, |driver| assert_eq!(driver.get(&key, 30), Got::Absent(version(30))));
}

fn limits<S: Store>(driver: &mut Driver<S>) {
    let long = vec![0; 64 * 1024 + 1];
    let key = driver.key(SPACE, &long);
    let refused = driver.store.put(key, version(10), b"v", Expiry::NEVER);
    assert!(matches!(refused, Err(StoreError::KeyTooLong { .. })));
    let huge = vec![0; 16 * 1024 * 1024 + 1];
    assert!(matches!(driver.try_put(b"k", 10, &huge), Err(StoreError::ValueTooLarge { .. })));
    assert!(matches!(driver.try_put(b"k", 0, b"v"), Err(StoreError::BadVersion(_))));
    let key = driver.key(SPACE, b"k");
    let end = Version { timestamp: Timestamp::MAX, ..version(1) };
    assert!(matches!(
        driver.store.put(key, end, b"v", Expiry::NEVER),
        Err(StoreError::BadVersion(_))
    ));
    assert_eq!(driver.get(b"k", 100), Got::Absent(Version::ZERO));
}

fn stability<S: Store>(driver: &mut Driver<S>) {
    driver.store.begin_batch(5);
    assert_eq!(driver.store.stable_batch(), 4);
    driver.put(b"k", 10, b"v");
    driver.store.begin_batch(6);
    assert_eq!(driver.store.stable_batch(), 4, "the put is in memory only");
    driver.put(b"large", 10, &[1; 20_000]);
    driver.store.begin_batch(7);
    driver.store.sync_soon();
    driver.pumps(50);
    assert_eq!(driver.store.stable_batch(), 6);
}

fn shutdown<S: Store>(driver: &mut Driver<S>) {
    driver.put(b"k", 10, b"v");
    driver.shut_down();
    assert!(matches!(driver.try_put(b"k", 20, b"v"), Err(StoreError::ShuttingDown)));
    assert_eq!(driver.value(b"k", 30), Some(b"v".to_vec()));
}
