//! For stores that survive a restart: what is stable, and when.

use timestone_store::prelude::*;

use super::Behaviour;
use crate::driver::Driver;

pub(super) fn all<S: Store>() -> Vec<Behaviour<S>> {
    vec![("what was put is stable after a sync", stability)]
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
