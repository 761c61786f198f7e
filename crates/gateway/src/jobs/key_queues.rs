//! One queue per key for commands that read a key and write it: one transaction of them at a time,
//! the others wait and are combined.
//!
//! Without it, a hundred connections that increment one counter would run a hundred transactions
//! into each other, and all but one would start again. Keys are known by their hash: two keys with
//! one hash wait for each other and nothing worse.
//!
//! Simple writes take the fast path instead, unless others of the same key are under way:
//! [`BusyKeys`] tells so at the cost of a few nanoseconds. A wrong "busy" sends a write through a job
//! and does nothing else.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::jobs::job::JobId;

/// The queue of one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyQueue {
    pub(crate) running: JobId,
    pub(crate) last: JobId,
}

/// All queues that are not empty.
#[derive(Debug, Default)]
pub(crate) struct KeyQueues {
    queues: HashMap<u64, KeyQueue, FixedState>,
}

impl KeyQueues {
    /// The queue of a key, if anything is in it.
    pub(crate) fn get(&self, hash: u64) -> Option<KeyQueue> {
        self.queues.get(&hash).copied()
    }

    /// Sets a key's queue.
    pub(crate) fn set(&mut self, hash: u64, queue: KeyQueue) {
        let before = self.queues.insert(hash, queue);
        debug_assert!(before.is_none_or(|before| before != queue), "a queue changes");
    }

    /// Removes the queue of a key in which nothing waits.
    pub(crate) fn remove(&mut self, hash: u64) {
        let before = self.queues.remove(&hash);
        debug_assert!(
            before.is_some_and(|queue| queue.running == queue.last),
            "nothing waits in it"
        );
    }
}

/// How many writes are under way, by some bits of the hash of their key.
#[derive(Debug)]
pub(crate) struct BusyKeys {
    counts: Box<[u32]>,
}

/// 128 KiB; with a thousand writes under way, 3 % of the others are taken for busy.
const BUCKETS: usize = 1 << 15;

impl BusyKeys {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; BUCKETS].into_boxed_slice() }
    }

    // The low bits tell accesses apart, see [`crate::connection::key_access`]; any others will do.
    const fn bucket(hash: u64) -> usize {
        (hash >> 16) as usize % BUCKETS
    }

    /// Whether a write of this key, or of one that looks like it, is under way.
    #[inline]
    pub(crate) fn is_busy(&self, hash: u64) -> bool {
        self.counts[Self::bucket(hash)] > 0
    }

    /// A write begins.
    #[inline]
    pub(crate) fn enter(&mut self, hash: u64) {
        self.counts[Self::bucket(hash)] += 1;
        debug_assert!(self.is_busy(hash));
    }

    /// So many writes are over.
    #[inline]
    pub(crate) fn leave(&mut self, hash: u64, writes: usize) {
        let count = &mut self.counts[Self::bucket(hash)];
        assert!(*count as usize >= writes, "a write is over that had not begun");
        *count -= writes as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_busy_until_every_write_of_it_is_over() {
        let mut busy = BusyKeys::new();
        busy.enter(7 << 16);
        busy.enter(7 << 16);
        assert!(busy.is_busy(7 << 16) && !busy.is_busy(8 << 16));
        busy.leave(7 << 16, 1);
        assert!(busy.is_busy(7 << 16));
        busy.leave(7 << 16, 1);
        assert!(!busy.is_busy(7 << 16));
    }
}
