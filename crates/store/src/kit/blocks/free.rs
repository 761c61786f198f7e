//! Free blocks: those that can be taken at once, and those that must be erased before.
//!
//! ```text
//!   found after a crash ─► dirty ─next_to_clean─► cleaning ─erased─► clean ─take─► in use
//!                                                     erased after collection ─┘
//! ```
//!
//! Invariant: a block is in at most one of `clean`, `dirty` and those that are being cleaned.

use std::collections::BTreeSet;

use timestone_flash::{BlockId, Generation};

use super::channels::Nuisance;

/// Clean blocks that are looked at for one on a quiet channel: few channels are busy at a time.
const MOST_LOOKED_AT: usize = 64;
/// Clean blocks that are kept ready.
const KEEP_CLEAN: u32 = 8;

/// The free blocks of a device.
#[derive(Default)]
pub(super) struct FreeBlocks {
    /// Least worn first.
    clean: BTreeSet<(u32, u32)>,
    dirty: Vec<BlockId>,
    /// Dirty blocks whose erase is under way.
    cleaning: u32,
}

impl FreeBlocks {
    /// All of them.
    pub(super) fn count(&self) -> u32 {
        self.clean.len() as u32 + self.dirty.len() as u32 + self.cleaning
    }

    /// Those that can be taken at once.
    pub(super) fn clean_count(&self) -> u32 {
        self.clean.len() as u32
    }

    /// A block is clean.
    pub(super) fn add(&mut self, block: BlockId, generation: Generation) {
        let is_new = self.clean.insert((generation.0, block.0));
        assert!(is_new, "a block is free once");
    }

    /// Takes one, if more than `leave` are free: the least worn one, or the most worn one for what
    /// stays long, of those that are least of a `nuisance`.
    pub(super) fn take(
        &mut self,
        leave: u32,
        stays: bool,
        nuisance: impl Fn(BlockId) -> Nuisance,
    ) -> Option<(BlockId, Generation)> {
        if self.count() <= leave {
            return None;
        }
        let (generation, block) = if stays {
            least(self.clean.iter().rev(), nuisance)
        } else {
            least(self.clean.iter(), nuisance)
        }?;
        self.clean.remove(&(generation, block));
        debug_assert!(self.count() >= leave, "what is left for others stays");
        Some((BlockId(block), Generation(generation)))
    }

    /// A block holds nothing, but must be erased before use.
    pub(super) fn add_dirty(&mut self, block: BlockId) {
        self.dirty.push(block);
    }

    /// A block to erase, when few are clean: one that nobody reads.
    pub(super) fn next_to_clean(&mut self, is_read: impl Fn(BlockId) -> bool) -> Option<BlockId> {
        if self.clean_count() + self.cleaning >= KEEP_CLEAN {
            return None;
        }
        let at = self.dirty.iter().rposition(|&block| !is_read(block))?;
        let block = self.dirty.swap_remove(at);
        self.cleaning += 1;
        debug_assert!(self.clean_count() + self.cleaning <= KEEP_CLEAN, "so many and no more");
        Some(block)
    }

    /// A block from [`Self::next_to_clean`] has been erased.
    pub(super) fn cleaned(&mut self) {
        assert!(self.cleaning > 0, "only what is being cleaned gets clean");
        self.cleaning -= 1;
    }
}

/// The first of those that are least of a nuisance.
fn least<'a>(
    blocks: impl Iterator<Item = &'a (u32, u32)>,
    nuisance: impl Fn(BlockId) -> Nuisance,
) -> Option<(u32, u32)> {
    let mut best = None;
    for &(generation, block) in blocks.take(MOST_LOOKED_AT) {
        let one = nuisance(BlockId(block));
        if best.is_none_or(|(least, _)| one < least) {
            best = Some((one, (generation, block)));
        }
        if one == Nuisance::None {
            break;
        }
    }
    best.map(|(_, block)| block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet(_: BlockId) -> Nuisance {
        Nuisance::None
    }

    #[test]
    fn a_quiet_channel_counts_more_than_little_wear() {
        let mut free = FreeBlocks::default();
        (0..4).for_each(|block| free.add(BlockId(block), Generation(block)));
        let ranks = [Nuisance::Erase, Nuisance::Some, Nuisance::None, Nuisance::None];
        let mut take = |stays| free.take(0, stays, |block| ranks[block.0 as usize]);
        assert_eq!(take(false), Some((BlockId(2), Generation(2))));
        assert_eq!(take(true), Some((BlockId(3), Generation(3))));
        assert_eq!(take(false), Some((BlockId(1), Generation(1))));
        assert_eq!(take(false), Some((BlockId(0), Generation(0))), "a busy one rather than none");
    }

    #[test]
    fn the_least_worn_block_is_taken_first_and_some_are_left_alone() {
        let mut free = FreeBlocks::default();
        for (block, generation) in [(0, 3), (1, 1), (2, 2), (3, 4)] {
            free.add(BlockId(block), Generation(generation));
        }
        assert_eq!(free.take(1, true, quiet), Some((BlockId(3), Generation(4))));
        assert_eq!(free.take(0, false, quiet), Some((BlockId(1), Generation(1))));
        assert_eq!(free.take(1, false, quiet), Some((BlockId(2), Generation(2))));
        assert_eq!(free.take(1, false, quiet), None);
    }

    #[test]
    fn a_dirty_block_that_is_read_is_left_alone() {
        let mut free = FreeBlocks::default();
        (0..2).for_each(|block| free.add_dirty(BlockId(block)));
        let mut next = || free.next_to_clean(|block| block == BlockId(1));
        assert_eq!((next(), next()), (Some(BlockId(0)), None));
        assert_eq!(free.next_to_clean(|_| false), Some(BlockId(1)));
    }

    #[test]
    fn dirty_blocks_count_as_free_and_are_cleaned_a_few_ahead() {
        let mut free = FreeBlocks::default();
        (0..10).for_each(|block| free.add_dirty(BlockId(block)));
        assert_eq!((free.count(), free.clean_count(), free.take(0, false, quiet)), (10, 0, None));
        let cleaning: Vec<_> = core::iter::from_fn(|| free.next_to_clean(|_| false)).collect();
        assert_eq!(cleaning.len(), 8);
        for block in cleaning {
            free.cleaned();
            free.add(block, Generation(1));
        }
        assert_eq!((free.count(), free.clean_count()), (10, 8));
        assert_eq!(free.next_to_clean(|_| false), None, "enough are clean");
    }
}
