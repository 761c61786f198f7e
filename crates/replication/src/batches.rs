//! Numbered batches that a replica may still have to hand on to others.
//!
//! They are held in memory from the first one that another replica may lack. What lies below is
//! everywhere: in the replicas' logs or their stores.

use std::collections::VecDeque;

use timestone_types::{Epoch, Timestamp};
use timestone_wal::BatchNumber;

/// What a batch holds; cheap to clone, because it goes to the own log and to each backup.
pub trait Payload: Clone {
    /// Bytes that it takes in memory.
    fn bytes(&self) -> usize;
}

/// A batch of a shard's log records.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Batch<B> {
    /// Its number among the batches of the shard.
    pub number: BatchNumber,
    /// The epoch whose primary wrote it.
    pub epoch: Epoch,
    /// The highest read bound in it: reads below it may be answered once the batch counts
    /// (rule P3). Zero where it has none.
    pub lease: Timestamp,
    /// Its records.
    pub payload: B,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Batches<B> {
    /// Nobody lacks anything up to this one.
    base: BatchNumber,
    /// Those above it, with holes.
    held: VecDeque<Option<Batch<B>>>,
    bytes: usize,
}

impl<B: Payload> Batches<B> {
    /// None above `base`.
    pub(crate) const fn above(base: BatchNumber) -> Self {
        Self { base, held: VecDeque::new(), bytes: 0 }
    }

    /// Nobody lacks anything up to this one.
    pub(crate) const fn base(&self) -> BatchNumber {
        self.base
    }

    /// Bytes of all of them.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many numbers they span.
    pub(crate) fn span(&self) -> usize {
        self.held.len()
    }

    fn index(&self, number: BatchNumber) -> Option<usize> {
        let index = number.get().checked_sub(self.base.get() + 1)?;
        usize::try_from(index).ok()
    }

    /// A batch that is held.
    pub(crate) fn get(&self, number: BatchNumber) -> Option<&Batch<B>> {
        self.held.get(self.index(number)?)?.as_ref()
    }

    /// Holds a batch; one of the same number is replaced.
    pub(crate) fn insert(&mut self, batch: Batch<B>) {
        let Some(index) = self.index(batch.number) else { return };
        if self.held.len() <= index {
            self.held.resize_with(index + 1, || None);
        }
        self.bytes += batch.payload.bytes();
        if let Some(before) = self.held[index].replace(batch) {
            self.bytes -= before.payload.bytes();
        }
    }

    /// Nobody lacks anything up to `base`: those are dropped.
    pub(crate) fn drop_through(&mut self, base: BatchNumber) {
        while self.base < base {
            if let Some(Some(batch)) = self.held.pop_front() {
                self.bytes -= batch.payload.bytes();
            }
            self.base = if self.held.is_empty() { base } else { self.base.next() };
        }
        debug_assert!(!self.held.is_empty() || self.bytes == 0, "what is dropped takes no memory");
    }

    /// Drops those above `last`.
    pub(crate) fn cut(&mut self, last: BatchNumber) {
        let keep = self.index(last.next()).unwrap_or(0);
        while self.held.len() > keep {
            if let Some(Some(batch)) = self.held.pop_back() {
                self.bytes -= batch.payload.bytes();
            }
        }
    }

    /// The batches that are held, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Batch<B>> {
        self.held.iter().flatten()
    }
}
