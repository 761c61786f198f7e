//! Scans and counts: every key that is visible as of a time, once, in pages within a limit.

use timestone_store::prelude::*;
use timestone_store::{ScanCursor, ScanLimit};
use timestone_types::KeyspaceId;

use super::{Behaviour, twice};
use crate::driver::Driver;

pub(super) fn all<S: Store>() -> Vec<Behaviour<S>> {
    vec![
        ("a scan finds every key once, whatever the step", scans),
        (
            "a page of a scan holds no more than its limit, and what it does not hold comes with the next",
            pages_of_scans,
        ),
        ("a count is exact", counts),
    ]
}

/// For stores that keep versions: what was there before.
pub(super) fn of_the_past<S: Store>() -> Vec<Behaviour<S>> {
    vec![("a scan and a count of the past find what was there", past)]
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
    let kept: Vec<_> = (0..500).filter(|n| n % 5 > 1).map(|n| expected[n].clone()).collect();
    assert_eq!(driver.keys(driver.space, 2000, 1), kept);
    assert_eq!(driver.keys(driver.space, 2000, 10_000), kept);
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
                let (keys, next) = driver.page(driver.space, 10, cursor, limit);
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
    assert_eq!(driver.count(driver.space, 10), 300);
    delete_some(driver);
    driver.sync();
    assert_eq!(driver.count(driver.space, 29), 200);
    assert_eq!(driver.count(driver.space, 30), 150);
}

/// A hundred keys are deleted at 20, and fifty put anew until 30.
fn delete_some<S: Store>(driver: &mut Driver<S>) {
    for n in 0..100u64 {
        driver.delete(&n.to_le_bytes(), 20);
    }
    for n in 100..150u64 {
        driver.put_expiring(&n.to_le_bytes(), 20, b"v", 30);
    }
}

fn past<S: Store>(driver: &mut Driver<S>) {
    let mut expected = Vec::new();
    for n in 0..300u64 {
        driver.put(&n.to_le_bytes(), 10, b"v");
        expected.push(n.to_le_bytes().to_vec());
    }
    expected.sort();
    delete_some(driver);
    driver.sync();
    assert_eq!((driver.count(driver.space, 9), driver.count(driver.space, 15)), (0, 300));
    assert_eq!(driver.keys(driver.space, 19, 7), expected);
    assert!(driver.keys(driver.space, 9, 7).is_empty());
}
