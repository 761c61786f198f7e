//! The block table: what each erase block is for, how much of it is dead, and which one to collect
//! next.
//!
//! ```text
//!   Free ─take─► Open(stream) ─full─► Sealed ─choose─► Victim ─all moved─► Erasing ─► Free
//!   Dirty (found after a crash) ─────────────────────────────────────────────┘
//! ```
//!
//! Invariants: a block is in `free` if and only if its state is `Free`; a block with readers is not
//! erased.

mod free;
mod usage;

use std::collections::BTreeSet;

use timestone_flash::{BlockId, Generation, Geometry, PageId};
use timestone_types::Timestamp;

use super::writer::StreamId;
use free::FreeBlocks;
use usage::Usage;

/// What a block is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockState {
    Free,
    /// Free, but it must be erased before use.
    Dirty,
    Open(StreamId),
    Sealed,
    Victim,
    Erasing,
    /// Damaged pages were met: what could be saved has been moved, the rest is kept for whoever
    /// wants to look.
    Quarantined,
}

/// One erase block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) state: BlockState,
    /// What it holds; meaningless when free.
    pub(crate) stream: StreamId,
    pub(crate) generation: Generation,
    /// Pages begun.
    pub(crate) pages: u32,
    /// Pages whose programs have completed: these can be read from the device.
    pub(crate) readable: u32,
    /// Reads that must finish before the block is erased.
    pub(crate) readers: u32,
    usage: Usage,
    /// The write clock when it was sealed.
    sealed_at: u64,
}

impl Block {
    fn free(generation: Generation) -> Self {
        Self {
            state: BlockState::Free,
            stream: StreamId::Hot,
            generation,
            pages: 0,
            readable: 0,
            readers: 0,
            usage: Usage::default(),
            sealed_at: 0,
        }
    }

    /// How much of the block's space collection would have to move, in thousandths, by estimate.
    fn live_share(&self, watermark: Timestamp, pages_per_block: u32) -> u32 {
        self.usage.live_share(watermark).of_pages(self.pages, pages_per_block)
    }

    /// The live share once the watermark has passed whatever is superseded already.
    fn live_share_later(&self, watermark: Timestamp, pages_per_block: u32) -> u32 {
        self.usage.live_share_later(watermark).of_pages(self.pages, pages_per_block)
    }

    /// Counts of the block, for a checkpoint.
    pub(crate) fn counts(&self) -> [u32; 4] {
        self.usage.counts()
    }

    /// Whether collection may ever choose it.
    fn is_collectable(&self) -> bool {
        self.state == BlockState::Sealed && self.stream != StreamId::Checkpoint
    }
}

/// What a search for a block to collect came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Search {
    /// Collect this one.
    Found(BlockId),
    /// Nothing yet: a block will be worth it when the watermark has moved on, or when it is
    /// programmed and not read any more.
    Later,
    /// Nothing, and waiting does not help.
    Nothing,
}

/// All blocks of the device.
pub(crate) struct Blocks {
    pub(crate) geometry: Geometry,
    list: Vec<Block>,
    free: FreeBlocks,
    /// Pages that recovery found torn: nothing in them was ever indexed.
    holes: BTreeSet<u32>,
    /// Blocks that the largest value takes.
    largest: u32,
    /// Pages begun since opening: the clock by which blocks age.
    clock: u64,
}

impl Blocks {
    /// A table without blocks.
    pub(crate) fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            list: Vec::new(),
            free: FreeBlocks::default(),
            holes: BTreeSet::new(),
            largest: 0,
            clock: 1,
        }
    }

    /// Adds the next block, free.
    pub(crate) fn add_free(&mut self, generation: Generation) {
        self.free.add(BlockId(self.count()), generation);
        self.list.push(Block::free(generation));
    }

    /// Adds the next block, sealed; recovery finds out what it holds.
    pub(crate) fn add_sealed(&mut self, generation: Generation) {
        self.list.push(Block { state: BlockState::Sealed, ..Block::free(generation) });
    }

    /// Blocks that are free, or will be after an erase.
    pub(crate) fn free_count(&self) -> u32 {
        self.free.count()
    }

    /// Blocks that can be taken at once.
    pub(crate) fn clean_count(&self) -> u32 {
        self.free.clean_count()
    }

    /// A block holds nothing, but must be erased before use.
    pub(crate) fn set_dirty(&mut self, block: BlockId) {
        self.get_mut(block).state = BlockState::Dirty;
        self.free.add_dirty(block);
    }

    /// A block to erase, when few are clean.
    pub(crate) fn next_to_clean(&mut self) -> Option<BlockId> {
        self.free.next_to_clean()
    }

    /// A page was found torn by recovery.
    pub(crate) fn add_hole(&mut self, page: PageId) {
        self.holes.insert(page.0);
    }

    /// Whether recovery found the page torn.
    pub(crate) fn is_hole(&self, page: PageId) -> bool {
        self.holes.contains(&page.0)
    }

    /// A block from [`Self::next_to_clean`] has been erased.
    pub(crate) fn cleaned(&mut self) {
        self.free.cleaned();
    }

    /// Blocks of the device.
    pub(crate) fn count(&self) -> u32 {
        self.list.len() as u32
    }

    /// Free blocks that puts must leave alone: collection needs room for the largest value while it
    /// moves it.
    pub(crate) fn reserve(&self) -> u32 {
        self.count() / (2 * crate::limits::RESERVE_DIVISOR) + 3 + self.largest
    }

    /// Pages begun since opening.
    pub(crate) fn clock(&self) -> u64 {
        self.clock
    }

    /// Blocks that the largest value takes.
    pub(crate) fn largest(&self) -> u32 {
        self.largest
    }

    /// The largest value takes so many blocks, a checkpoint says.
    pub(crate) fn restore_largest(&mut self, blocks: u32) {
        self.largest = blocks;
    }

    /// A large value of so many parts is about.
    pub(crate) fn note_large(&mut self, parts: u32) {
        self.largest = self.largest.max(self.blocks_of(parts));
    }

    /// Blocks that a value of so many parts takes at most.
    pub(crate) const fn blocks_of(&self, parts: u32) -> u32 {
        parts / self.geometry.pages_per_block + 2
    }

    /// With this many free blocks or fewer, puts may be refused: none is promised without a margin.
    pub(crate) fn floor(&self) -> u32 {
        self.reserve() + crate::limits::PROMISE_MARGIN + 1
    }

    /// Below this many free blocks collection begins (or the device grows): early enough that what
    /// is being emptied is free again before the floor is reached.
    pub(crate) fn low_water(&self) -> u32 {
        self.floor()
            + self.count() / crate::limits::RESERVE_DIVISOR
            + (self.count() / 16).min(4)
            + 1
    }

    /// The block of a page.
    pub(crate) fn of(&self, page: PageId) -> BlockId {
        self.geometry.block_of(page)
    }

    /// The entry of a block.
    pub(crate) fn get(&self, block: BlockId) -> &Block {
        &self.list[block.0 as usize]
    }

    /// The entry of a block, if the device has it: what a damaged page names may be anything.
    pub(crate) fn find(&self, block: BlockId) -> Option<&Block> {
        self.list.get(block.0 as usize)
    }

    fn get_mut(&mut self, block: BlockId) -> &mut Block {
        &mut self.list[block.0 as usize]
    }

    /// A read in a block begins: until [`Self::unpin`] it is not erased.
    pub(crate) fn pin(&mut self, block: BlockId) {
        let entry = self.get_mut(block);
        debug_assert!(
            !matches!(entry.state, BlockState::Free | BlockState::Erasing),
            "what is read is not being erased"
        );
        entry.readers += 1;
    }

    /// A read in a block has ended.
    pub(crate) fn unpin(&mut self, block: BlockId) {
        let entry = self.get_mut(block);
        assert!(entry.readers > 0, "a read that ends was counted");
        entry.readers -= 1;
    }

    /// The next page of an open block is begun.
    #[inline]
    pub(crate) fn page_begun(&mut self, block: BlockId) {
        let pages_per_block = self.geometry.pages_per_block;
        let entry = self.get_mut(block);
        assert!(entry.pages < pages_per_block, "a full block takes no page");
        debug_assert!(matches!(entry.state, BlockState::Open(_)));
        entry.pages += 1;
        self.clock += 1;
    }

    /// The next pages of a block can be read from the device.
    pub(crate) fn programmed(&mut self, block: BlockId, pages: u32) {
        let entry = self.get_mut(block);
        entry.readable += pages;
        assert!(entry.readable <= entry.pages, "what is programmed was begun");
    }

    /// A page without records was written to a block, or found there.
    pub(crate) fn wrote_raw(&mut self, block: BlockId) {
        self.get_mut(block).usage.wrote_raw();
    }

    /// Collection begins to empty a sealed block.
    pub(crate) fn begin_victim(&mut self, block: BlockId) {
        let entry = self.get_mut(block);
        assert_eq!(entry.state, BlockState::Sealed, "only a sealed block is collected");
        entry.state = BlockState::Victim;
    }

    /// A victim with damaged pages is left alone from now on.
    pub(crate) fn quarantine(&mut self, block: BlockId) {
        let entry = self.get_mut(block);
        assert_eq!(entry.state, BlockState::Victim, "only collection meets damage");
        entry.state = BlockState::Quarantined;
    }

    /// A block is about to be erased.
    pub(crate) fn begin_erase(&mut self, block: BlockId) {
        let entry = self.get_mut(block);
        assert_eq!(entry.readers, 0, "a block with readers is not erased");
        debug_assert!(
            matches!(entry.state, BlockState::Sealed | BlockState::Victim | BlockState::Dirty),
            "a block that is {:?} is not erased",
            entry.state
        );
        entry.state = BlockState::Erasing;
    }

    /// Recovery knows what a sealed block holds, and how many of its pages are programmed.
    pub(crate) fn found_pages(&mut self, block: BlockId, stream: StreamId, pages: u32) {
        assert!(pages <= self.geometry.pages_per_block);
        let entry = self.get_mut(block);
        (entry.pages, entry.readable) = (pages, pages);
        (entry.stream, entry.state) = (stream, BlockState::Sealed);
    }

    /// Takes the least worn free block, if more than `leave` are free.
    pub(crate) fn take(&mut self, stream: StreamId, leave: u32) -> Option<BlockId> {
        let (block, generation) = self.free.take(leave)?;
        let entry = self.get_mut(block);
        assert_eq!((entry.state, entry.readers), (BlockState::Free, 0), "a free block is free");
        *entry = Block { state: BlockState::Open(stream), stream, ..Block::free(generation) };
        Some(block)
    }

    /// No more pages will be begun in the block.
    pub(crate) fn seal(&mut self, block: BlockId) {
        let clock = self.clock;
        let entry = self.get_mut(block);
        debug_assert!(matches!(entry.state, BlockState::Open(_)));
        entry.state = BlockState::Sealed;
        entry.sealed_at = clock;
    }

    /// The block is erased.
    pub(crate) fn release(&mut self, block: BlockId, generation: Generation) {
        assert_eq!(self.get(block).readers, 0, "a block with readers is not erased");
        let (first, pages) =
            (block.0 * self.geometry.pages_per_block, self.geometry.pages_per_block);
        while let Some(&hole) = self.holes.range(first..first + pages).next() {
            self.holes.remove(&hole);
        }
        *self.get_mut(block) = Block::free(generation);
        self.free.add(block, generation);
    }

    /// A record was written to a block.
    pub(crate) fn wrote(&mut self, block: BlockId, bytes: u32, expires_by: Option<Timestamp>) {
        self.get_mut(block).usage.wrote(bytes, expires_by);
    }

    /// Counts and dead bytes that a checkpoint remembers.
    pub(crate) fn restore_counts(&mut self, block: BlockId, counts: [u32; 4]) {
        self.get_mut(block).usage.restore_counts(counts);
    }

    /// A record in `page` was superseded by a version at `by`.
    pub(crate) fn superseded(&mut self, page: PageId, by: Timestamp, watermark: Timestamp) {
        let block = self.of(page);
        let Some(entry) = self.list.get_mut(block.0 as usize) else { return };
        entry.usage.superseded(entry.usage.average(), by, watermark);
    }

    /// `bytes` of a block were superseded by a version at `by`.
    pub(crate) fn superseded_bytes(
        &mut self,
        block: BlockId,
        bytes: u32,
        by: Timestamp,
        watermark: Timestamp,
    ) {
        let Some(entry) = self.list.get_mut(block.0 as usize) else { return };
        entry.usage.superseded(bytes, by, watermark);
    }

    /// Whether a page lies in a block of large values.
    pub(crate) fn is_large(&self, page: PageId) -> bool {
        self.list.get(self.of(page).0 as usize).is_some_and(|entry| entry.stream == StreamId::Large)
    }

    /// `bytes` of a block are dead for good.
    pub(crate) fn died(&mut self, block: BlockId, bytes: u32) {
        self.get_mut(block).usage.died(bytes);
    }

    /// A part of a large value was found, or (negative) a head that claims `pages` parts: parts
    /// that no head claims are dead.
    pub(crate) fn found_parts(&mut self, block: BlockId, pages: i64) {
        self.get_mut(block).usage.found_parts(pages);
    }

    /// Recovery has found everything: what no head has claimed is dead.
    pub(crate) fn unclaimed_parts_died(&mut self) {
        self.list.iter_mut().for_each(|entry| entry.usage.unclaimed_parts_died());
    }

    /// The sealed block whose collection wins most: space won × age ÷ data moved (cost-benefit), if
    /// its live share is below `limit` thousandths. When it is urgent, age does not count.
    pub(crate) fn choose_victim(&self, watermark: Timestamp, limit: u32, urgent: bool) -> Search {
        let pages_per_block = self.geometry.pages_per_block;
        let (mut best, mut later) = (None, false);
        for (number, block) in self.list.iter().enumerate() {
            if !block.is_collectable() {
                continue;
            }
            let live = block.live_share(watermark, pages_per_block).min(1000);
            let busy = block.readable < block.pages || block.readers > 0;
            if live >= limit || busy {
                later |= block.live_share_later(watermark, pages_per_block) < limit;
                continue;
            }
            let age =
                if urgent { 1 } else { u128::from(self.clock.saturating_sub(block.sealed_at) + 1) };
            let score = u128::from(1000 - live) * age * 1024 / u128::from(1000 + live);
            if best.is_none_or(|(most, _)| score > most) {
                best = Some((score, BlockId(number as u32)));
            }
        }
        match best {
            Some((_, block)) => Search::Found(block),
            None if later => Search::Later,
            None => Search::Nothing,
        }
    }

    /// The timestamp which the watermark must pass for everything that is superseded already to
    /// count, if by then a block has a live share below `limit` that has a larger one now.
    pub(crate) fn worth_waiting_for(&self, watermark: Timestamp, limit: u32) -> Option<Timestamp> {
        let pages_per_block = self.geometry.pages_per_block;
        let later = self.list.iter().filter(|block| {
            block.is_collectable()
                && block.live_share(watermark, pages_per_block) >= limit
                && block.live_share_later(watermark, pages_per_block) < limit
        });
        later.map(|block| block.usage.superseded_until()).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Blocks {
        let geometry = Geometry { pages_per_block: 4, blocks: 8, max_blocks: 8 };
        let mut blocks = Blocks::new(geometry);
        for generation in [3, 1, 2, 5, 4, 8, 7, 6] {
            blocks.add_free(Generation(generation));
        }
        blocks
    }

    /// A table with one sealed block of ten records, and its first page.
    fn one_sealed() -> (Blocks, BlockId, PageId) {
        let mut blocks = table();
        let block = blocks.take(StreamId::Hot, 0).expect("free");
        for _ in 0..10 {
            blocks.wrote(block, 1000, None);
        }
        (0..4).for_each(|_| blocks.page_begun(block));
        blocks.programmed(block, 4);
        blocks.seal(block);
        let page = blocks.geometry.page(block, 0);
        (blocks, block, page)
    }

    #[test]
    fn the_least_worn_block_is_taken_first() {
        let mut blocks = table();
        let order: Vec<u32> =
            (0..3).map(|_| blocks.take(StreamId::Hot, 0).expect("free").0).collect();
        assert_eq!(order, [1, 2, 0]);
        assert_eq!(blocks.take(StreamId::Hot, 5), None, "five are left alone");
    }

    #[test]
    fn what_is_superseded_above_the_watermark_counts_later() {
        let (mut blocks, block, page) = one_sealed();
        for _ in 0..9 {
            blocks.superseded(page, Timestamp::from_nanos(50), Timestamp::from_nanos(10));
        }
        assert_eq!(blocks.get(block).live_share(Timestamp::from_nanos(10), 4), 1000);
        assert_eq!(blocks.choose_victim(Timestamp::from_nanos(10), 600, false), Search::Later);
        assert_eq!(blocks.choose_victim(Timestamp::from_nanos(10), 50, false), Search::Nothing);
        assert_eq!(
            blocks.worth_waiting_for(Timestamp::from_nanos(10), 600),
            Some(Timestamp::from_nanos(50))
        );
        assert_eq!(blocks.get(block).live_share(Timestamp::from_nanos(50), 4), 100);
        assert_eq!(
            blocks.choose_victim(Timestamp::from_nanos(50), 600, false),
            Search::Found(block)
        );
        assert_eq!(
            blocks.worth_waiting_for(Timestamp::from_nanos(50), 600),
            None,
            "it is worth it now"
        );
    }
}
