//! One queue per key for commands that read a key and write it: one transaction of them at a time, the others wait and are combined.
//!
//! Without it, a hundred connections that increment one counter would run a hundred transactions into each other, and all but one
//! would start again. Keys are known by their hash: two keys with one hash wait for each other and nothing worse.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::job::JobId;

/// The queue of one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HotKey {
    pub(super) running: JobId,
    pub(super) last: JobId,
}

/// All queues that are not empty.
#[derive(Debug, Default)]
pub(super) struct HotKeys {
    queues: HashMap<u64, HotKey, FixedState>,
}

impl HotKeys {
    /// The queue of a key, if anything is in it.
    pub(super) fn get(&self, hash: u64) -> Option<HotKey> {
        self.queues.get(&hash).copied()
    }

    /// Sets a key's queue.
    pub(super) fn set(&mut self, hash: u64, queue: HotKey) {
        self.queues.insert(hash, queue);
    }

    /// Removes the queue of a key in which nothing waits.
    pub(super) fn remove(&mut self, hash: u64) {
        self.queues.remove(&hash);
    }
}
