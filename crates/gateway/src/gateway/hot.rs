//! One queue per key for commands that read a key and write it: one transaction of them at a time,
//! the others wait and are combined.
//!
//! Without it, a hundred connections that increment one counter would run a hundred transactions
//! into each other, and all but one would start again. Keys are known by their hash: two keys with
//! one hash wait for each other and nothing worse.
//!
//! Plain writes go their own fast way instead, unless others of the same key are under way:
//! [`Busy`] tells so at the cost of a few nanoseconds. A wrong "busy" sends a write the longer way
//! and does nothing else.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

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

/// How many writes are under way, by some bits of the hash of their key.
#[derive(Debug)]
pub(super) struct Busy {
    counts: Box<[u32]>,
}

/// 128 KiB; with a thousand writes under way, 3 % of the others are taken for busy.
const BUCKETS: usize = 1 << 15;

impl Busy {
    pub(super) fn new() -> Self {
        Self { counts: vec![0; BUCKETS].into_boxed_slice() }
    }

    // The low bits tell marks apart, see [`super::marks`]; any others will do.
    const fn bucket(hash: u64) -> usize {
        (hash >> 16) as usize % BUCKETS
    }

    /// Whether a write of this key, or of one that looks like it, is under way.
    #[inline]
    pub(super) fn is_busy(&self, hash: u64) -> bool {
        self.counts[Self::bucket(hash)] > 0
    }

    /// A write begins.
    #[inline]
    pub(super) fn enter(&mut self, hash: u64) {
        self.counts[Self::bucket(hash)] += 1;
    }

    /// So many writes are over.
    #[inline]
    pub(super) fn leave(&mut self, hash: u64, writes: usize) {
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
        let mut busy = Busy::new();
        busy.enter(7 << 16);
        busy.enter(7 << 16);
        assert!(busy.is_busy(7 << 16) && !busy.is_busy(8 << 16));
        busy.leave(7 << 16, 1);
        assert!(busy.is_busy(7 << 16));
        busy.leave(7 << 16, 1);
        assert!(!busy.is_busy(7 << 16));
    }
}
