//! Keys that lie with their large values: a restart reads them for the orders of keys, which nobody else
//! needs.
//!
//! ```text
//!   recovery: head without its key ─► noted ─► all is found ─► parts read, some values together ─► order
//!                                                                └─ damaged: the order has lost a key
//! ```
//!
//! What must not happen: the first key of an entry of the index is taken for a second one, because it is
//! noted late.

use std::time::Duration;

use timestone_flash::PageId;
use timestone_types::{KeyspaceId, Version};

use super::Mftl;
use super::index::KeyId;
use super::reads::{For, Serving, Waiter};

/// Values whose keys are read together.
const KEYS_READ_TOGETHER: usize = 16;

/// A key that is not in the head of its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutsideKey {
    pub(super) keyspace: KeyspaceId,
    pub(super) id: KeyId,
    pub(super) version: Version,
    /// Where the head is.
    pub(super) page: PageId,
}

/// Reads the keys that are not in the heads of their values, which only the orders of keys need.
pub(super) fn read_keys(store: &mut Mftl, outside: &[OutsideKey]) {
    for few in outside.chunks(KEYS_READ_TOGETHER) {
        for (number, key) in few.iter().enumerate() {
            let &OutsideKey { keyspace, id, version, page, .. } = key;
            let waiter = Waiter::keyless(For::Key(number), keyspace, id, version, page);
            store.reads.wait(waiter, &mut store.kit.volume);
        }
        while store.reads.keys.len() < few.len() {
            store.poll();
            Serving::of(store).group_pages();
            if store.reads.keys.len() < few.len() {
                store.kit.volume.wait(Duration::from_millis(10));
            }
        }
        // In the order in which they were found: the first one of an entry is no second key of it.
        let mut keys = core::mem::take(&mut store.reads.keys);
        keys.sort_unstable_by_key(|&(number, _)| number);
        for (number, key) in keys {
            let OutsideKey { keyspace, id, version, page } = few[number];
            let Some(space) = store.spaces.get_mut(keyspace) else { continue };
            match key {
                Some(key) => space.note_key(id, &key, version.timestamp, true),
                None => space.order.iter_mut().for_each(|order| order.lose(id, version, page)),
            }
        }
    }
    let orders = store.spaces.list.iter_mut().filter_map(|space| space.order.as_mut());
    orders.for_each(|order| order.end_reading());
}
