//! The end of a store: it takes no more writes, and says when it may be dropped.

use timestone_store::StoreError;
use timestone_store::prelude::*;

use super::Behaviour;
use crate::driver::Driver;

pub(super) fn all<S: Store>() -> Vec<Behaviour<S>> {
    vec![("a store that is shut down takes no more writes", shutdown)]
}

fn shutdown<S: Store>(driver: &mut Driver<S>) {
    driver.put(b"k", 10, b"v");
    driver.shut_down();
    assert!(matches!(driver.try_put(b"k", 20, b"v"), Err(StoreError::ShuttingDown)));
    assert_eq!(driver.value(b"k", 30), Some(b"v".to_vec()));
}
