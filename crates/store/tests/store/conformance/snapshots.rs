//! Snapshots: what is there as of a time, and for how long that can be asked.

use timestone_store::StoreError;
use timestone_store::prelude::*;

use super::{Behaviour, twice};
use crate::driver::{Driver, Got, at, version};

pub(super) fn all<S: Store>() -> Vec<Behaviour<S>> {
    vec![
        ("an expired record is absent at and after its expiry", expiry),
        ("reads below the watermark are refused", watermark),
    ]
}

fn expiry<S: Store>(driver: &mut Driver<S>) {
    driver.put_expiring(b"k", 10, b"v", 100);
    twice(driver, |driver| {
        assert_eq!(driver.value(b"k", 99), Some(b"v".to_vec()));
        assert_eq!(driver.get(b"k", 100), Got::Absent(version(10)));
        assert_eq!(driver.get(b"k", 5000), Got::Absent(version(10)));
    });
}

fn watermark<S: Store>(driver: &mut Driver<S>) {
    driver.put(b"k", 10, b"v");
    driver.store.advance_watermark(at(50));
    driver.store.advance_watermark(at(40));
    assert_eq!(driver.store.watermark(), at(50), "it only rises");
    assert!(matches!(driver.try_get_in(driver.space, b"k", 49), Err(StoreError::TooOld { .. })));
    assert_eq!(driver.value(b"k", 50), Some(b"v".to_vec()));
}
