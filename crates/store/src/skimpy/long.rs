//! Buckets whose chains have become long: they are rewritten whole before the log's tail asks for it.
//!
//! ```text
//!   put: the chain got a page longer        ─┐
//!   look-up: read pages behind the first one ─┴─► enough of them? ─► queue ─► gathered, written whole
//! ```
//!
//! *Otherwise* look-ups go through all of it, and so does collection, page after page, while nothing else
//! of the tail can go. A bucket that is written whole costs about as much as some page reads; so it is
//! when that many have been made beside the way, whatever is to come (as who rents until the rent has
//! come to the price).

use std::collections::BTreeSet;

use super::buckets::Buckets;

/// Buckets that wait, at most: a chain that is not noted is noted when it is met again.
const MOST: usize = 1024;

/// Whether there is room for what is not urgent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SpareRoom {
    Scarce,
    ToSpare,
}

impl SpareRoom {
    /// Pages beside the way that are enough.
    fn long(self) -> u8 {
        match self {
            Self::Scarce => 8,
            Self::ToSpare => 6,
        }
    }
}

/// The buckets.
#[derive(Debug, Default)]
pub(super) struct LongChains {
    waiting: BTreeSet<u32>,
}

impl LongChains {
    /// A chain has grown, or was met.
    pub(super) fn note(&mut self, bucket: u32, room: SpareRoom, buckets: &Buckets) {
        if buckets.detours(bucket) >= room.long() && self.waiting.len() < MOST {
            self.waiting.insert(bucket);
        }
    }

    /// The next one.
    pub(super) fn first(&self) -> Option<u32> {
        self.waiting.first().copied()
    }

    /// It is gathered.
    pub(super) fn take(&mut self, bucket: u32) {
        self.waiting.remove(&bucket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_noted_when_it_is_long() {
        let (mut buckets, mut chains) = (Buckets::new(4, 100), LongChains::default());
        for _ in 0..7 {
            buckets.add_detours(3, 1);
            chains.note(3, SpareRoom::Scarce, &buckets);
        }
        assert_eq!(chains.first(), None);
        buckets.add_detours(3, 1);
        chains.note(3, SpareRoom::Scarce, &buckets);
        assert_eq!(chains.first(), Some(3));
        chains.take(3);
        buckets.rewritten(3, 7);
        chains.note(3, SpareRoom::ToSpare, &buckets);
        assert_eq!(chains.first(), None);
    }
}
