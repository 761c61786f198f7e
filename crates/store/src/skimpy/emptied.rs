//! Blocks of which nothing is needed any more: they wait for their erase, in an order, or are set aside.
//!
//! ```text
//!   Emptied ─ copies durable, nobody reads, in order ─► erasing ─► free
//!                 └── has forgotten tombstones ─┐          └─ failed ─┐
//!                                               └─────────────────────┴─► SetAside
//! ```
//!
//! Invariant (K10 of docs/design/skimpy.md): a block that has forgotten tombstones is erased after all that were
//! emptied before it, and stays if one of these does: what they hid may lie there.

use std::collections::BTreeSet;

use timestone_flash::BlockId;
use timestone_types::is_planted;

use super::buckets::Buckets;
use crate::kit::volume::Volume;
use crate::kit::writer::StreamId;

/// A block that nobody needs when the log's ordinal is durable.
#[derive(Debug)]
pub(super) struct Emptied {
    pub(super) block: BlockId,
    pub(super) ordinal: u64,
    /// Tombstones went with it whose values lay in this block or in one that was emptied before.
    pub(super) forgets: bool,
    /// The buckets that had records there.
    pub(super) buckets: BTreeSet<u32>,
}

/// Blocks that were emptied and stay: what lies there may be found after a crash.
#[derive(Debug, Default)]
pub(super) struct SetAside {
    /// Something there could not be read.
    pub(super) unknown: bool,
    /// The buckets of what is there.
    pub(super) buckets: BTreeSet<u32>,
}

impl SetAside {
    /// Whether records of a bucket may lie there.
    pub(super) fn may_have(&self, bucket: u32) -> bool {
        self.unknown || self.buckets.contains(&bucket)
    }
}

/// All that are not erased yet.
#[derive(Debug, Default)]
pub(super) struct EmptiedBlocks {
    /// In the order in which they were emptied.
    waiting: Vec<Emptied>,
    erasing: Vec<Emptied>,
}

impl EmptiedBlocks {
    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        (self.waiting.len() + self.erasing.len()) as u32
    }

    /// Whether one of them waits to be erased.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether one of them can be erased now.
    pub(super) fn has_work(&self, volume: &Volume) -> bool {
        (0..self.waiting.len()).any(|at| self.may_erase(at, volume))
    }

    fn may_erase(&self, at: usize, volume: &Volume) -> bool {
        let Emptied { block, ordinal, forgets, .. } = self.waiting[at];
        let durable = volume.writer.ledger.is_durable(StreamId::Hot, ordinal)
            || is_planted!(ErasesBeforeDurable);
        // What a tombstone hid has to go before it.
        let in_order = !forgets || (at == 0 && self.erasing.is_empty());
        durable && in_order && volume.blocks.get(block).readers == 0
    }

    /// One more.
    pub(super) fn push(&mut self, emptied: Emptied) {
        self.waiting.push(emptied);
    }

    /// Erases those that can be.
    pub(super) fn erase(&mut self, volume: &mut Volume, buckets: &mut Buckets) {
        let mut at = 0;
        while at < self.waiting.len() {
            if self.may_erase(at, volume) {
                let emptied = self.waiting.remove(at);
                buckets.retire();
                volume.erase(emptied.block);
                self.erasing.push(emptied);
            } else {
                at += 1;
            }
        }
    }

    /// A block is erased.
    pub(super) fn erased(&mut self, block: BlockId) {
        self.erasing.retain(|other| other.block != block);
    }

    /// A block could not be erased. If it is one of these, it is set aside, with those that were emptied since and
    /// have forgotten tombstones of what lies there.
    pub(super) fn erase_failed(
        &mut self,
        block: BlockId,
        aside: &mut SetAside,
        volume: &mut Volume,
    ) -> bool {
        let Some(at) = self.erasing.iter().position(|other| other.block == block) else {
            return false;
        };
        aside.buckets.extend(self.erasing.remove(at).buckets);
        for Emptied { block, buckets, .. } in self.waiting.extract_if(.., |one| one.forgets) {
            volume.blocks.quarantine(block);
            aside.buckets.extend(buckets);
        }
        true
    }
}
