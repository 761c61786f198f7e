//! The block table: what each erase block is for, and how much of it is dead.
//!
//! ```text
//!   Free ─take─► Open(stream) ─full─► Sealed ─choose─► Victim ─all moved─► Erasing ─► Free
//!   Dirty (found after a crash) ─────────────────────────────────────────────┘
//! ```
//!
//! Invariants: a block is in `free` if and only if its state is `Free`; a block with readers is not
//! erased.

mod channels;
pub(crate) mod choice;
mod free;
mod usage;

use std::collections::BTreeSet;
use std::ops::Range;

use timestone_flash::{BlockId, Generation, Geometry, PAGE_BYTES, PageId};
use timestone_types::{Timestamp, is_planted};

use super::writer::StreamId;
use channels::BusyChannels;
pub(crate) use channels::EraseNeed;
use free::FreeBlocks;
pub(crate) use usage::Usage;

/// Free blocks that puts leave alone, however small the device and its values are.
pub(crate) const LEAST_RESERVE: u32 = 3;

/// With fewer blocks a stream that only saves moves has none of its own: it would be too large a part.
const LEAST_BLOCKS_TO_SEPARATE: u32 = 64;

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
    /// Damaged pages were met, or a program or an erase failed: what could be saved has been moved,
    /// the rest is kept for whoever wants to look.
    Quarantined,
}

/// One erase block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) state: BlockState,
    /// What it holds; meaningless when free.
    pub(crate) stream: StreamId,
    pub(crate) generation: Generation,
    /// Its generation when the store was opened, or the block was added.
    opened: Generation,
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
            opened: generation,
            pages: 0,
            readable: 0,
            readers: 0,
            usage: Usage::default(),
            sealed_at: 0,
        }
    }

    /// The write clock when it was sealed; zero if that was in an earlier life.
    pub(crate) fn sealed_at(&self) -> u64 {
        self.sealed_at
    }

    /// How much of the block's space collection would have to move, in thousandths, by estimate.
    fn live_share(&self, watermark: Timestamp, pages_per_block: u32) -> u32 {
        self.usage.live_share(watermark).of_pages(self.pages, pages_per_block)
    }

    /// The live share once the watermark has passed whatever is superseded already.
    fn live_share_later(&self, watermark: Timestamp, pages_per_block: u32) -> u32 {
        self.usage.live_share_later(watermark).of_pages(self.pages, pages_per_block)
    }

    /// Bytes of the pages begun, and how many of them live, by estimate.
    fn use_of_space(&self, watermark: Timestamp) -> (u64, u64) {
        let written = u64::from(self.pages) * PAGE_BYTES as u64;
        if self.stream == StreamId::Checkpoint {
            return (written, written);
        }
        let share = u64::from(self.usage.live_share(watermark).of_pages(self.pages, self.pages));
        (written, written * share.min(1000) / 1000)
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

/// All blocks of the device.
pub(crate) struct Blocks {
    pub(crate) geometry: Geometry,
    list: Vec<Block>,
    free: FreeBlocks,
    busy: BusyChannels,
    /// Pages that recovery found torn: nothing in them was ever indexed.
    holes: BTreeSet<u32>,
    /// Pages that the device did not read when the store was opened: what they hold is not known.
    unread: BTreeSet<u32>,
    /// Blocks that are quarantined.
    quarantined: u32,
    /// Blocks that are being emptied of records, as collection said last: they take room before they give any.
    emptying: u32,
    /// Blocks that the largest value takes.
    largest: u32,
    /// Pages begun since opening: the clock by which blocks age.
    clock: u64,
    /// The next block of this stream is the most worn free one.
    rests_next: Option<StreamId>,
}

impl Blocks {
    /// A table without blocks.
    pub(crate) fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            list: Vec::new(),
            free: FreeBlocks::default(),
            busy: BusyChannels::default(),
            holes: BTreeSet::new(),
            unread: BTreeSet::new(),
            quarantined: 0,
            emptying: 0,
            largest: 0,
            clock: 1,
            rests_next: None,
        }
    }

    /// What holds between changes.
    fn assert_sound(&self) {
        debug_assert!(self.count() <= self.geometry.blocks, "as many blocks as the device has");
        debug_assert!(
            self.free.count() + self.quarantined <= self.count(),
            "a free block is free once, and not quarantined"
        );
    }

    /// Adds the next block, free.
    pub(crate) fn add_free(&mut self, generation: Generation) {
        self.free.add(BlockId(self.count()), generation);
        self.list.push(Block::free(generation));
        self.assert_sound();
    }

    /// Adds the next block, sealed; recovery finds out what it holds.
    pub(crate) fn add_sealed(&mut self, generation: Generation) {
        self.list.push(Block { state: BlockState::Sealed, ..Block::free(generation) });
        self.assert_sound();
    }

    /// Bytes that are written, and how many of them live, by estimate.
    pub(crate) fn use_of_space(&self, watermark: Timestamp) -> (u64, u64) {
        let used = self.list.iter().filter(|block| block.pages > 0);
        used.map(|block| block.use_of_space(watermark))
            .fold((0, 0), |sum, block| (sum.0 + block.0, sum.1 + block.1))
    }

    /// Erases of all blocks since the device was made, and of the one that was erased most.
    pub(crate) fn wear(&self) -> (u64, u32) {
        let erases = self.list.iter().map(|block| block.generation.0.saturating_sub(1));
        erases.fold((0, 0), |(sum, most), erases| (sum + u64::from(erases), erases.max(most)))
    }

    /// Blocks that are free, or will be after an erase.
    pub(crate) fn free_count(&self) -> u32 {
        self.free.count()
    }

    /// The generation of a block when the store was opened, or the block was added.
    pub(crate) fn opened(&self, block: BlockId) -> Generation {
        self.get(block).opened
    }

    /// Blocks that can be taken at once.
    pub(crate) fn clean_count(&self) -> u32 {
        self.free.clean_count()
    }

    /// A block holds nothing, but must be erased before use.
    pub(crate) fn set_dirty(&mut self, block: BlockId) {
        let entry = self.get(block);
        assert_eq!(entry.readers, 0, "what is read is not cleaned");
        assert!(
            !matches!(entry.state, BlockState::Dirty | BlockState::Free),
            "a block is in doubt once"
        );
        self.get_mut(block).state = BlockState::Dirty;
        self.free.add_dirty(block);
    }

    /// A block to erase, when few are clean. Nobody reads in it: what damage has made look empty may be
    /// looked for there.
    pub(crate) fn next_to_clean(&mut self) -> Option<BlockId> {
        let list = &self.list;
        let is_read =
            |block: BlockId| list[block.0 as usize].readers > 0 && !is_planted!(CleansWhatIsRead);
        let block = self.free.next_to_clean(is_read);
        debug_assert!(block.is_none_or(|block| self.get(block).state == BlockState::Dirty));
        block
    }

    /// A page was found torn by recovery.
    pub(crate) fn add_hole(&mut self, page: PageId) {
        assert!(self.of(page).0 < self.count(), "a hole in a block that is there");
        self.holes.insert(page.0);
    }

    /// Whether recovery found the page torn.
    pub(crate) fn is_hole(&self, page: PageId) -> bool {
        self.holes.contains(&page.0)
    }

    /// All pages that recovery found torn.
    pub(crate) fn holes(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.holes.iter().copied()
    }

    /// The device did not read a page when the store was opened: the next start may find something there.
    pub(crate) fn add_unread(&mut self, page: PageId) {
        assert!(self.of(page).0 < self.count(), "a page of a block that is there");
        self.unread.insert(page.0);
    }

    /// Whether a page of the block was not read: it is not to be erased.
    pub(crate) fn has_unread_in(&self, block: BlockId) -> bool {
        self.unread.range(self.pages_of(block)).next().is_some()
    }

    /// All pages that were not read, ascending.
    pub(crate) fn unread(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.unread.iter().copied()
    }

    /// Whether every page was read when the store was opened, so that nothing lies there that nobody knows.
    pub(crate) fn are_all_read(&self) -> bool {
        self.unread.is_empty()
    }

    fn pages_of(&self, block: BlockId) -> Range<u32> {
        let (first, pages) = (self.geometry.page(block, 0).0, self.geometry.pages_per_block);
        first..first + pages
    }

    /// A block from [`Self::next_to_clean`] has been erased.
    pub(crate) fn cleaned(&mut self) {
        self.free.cleaned();
        self.assert_sound();
    }

    /// Blocks of the device.
    pub(crate) fn count(&self) -> u32 {
        self.list.len() as u32
    }

    /// Whether a stream that only saves moves may have a block of its own.
    pub(crate) fn may_separate(&self) -> bool {
        self.count() >= LEAST_BLOCKS_TO_SEPARATE
    }

    /// Free blocks that puts must leave alone: collection needs room for the largest value while it
    /// moves it.
    pub(crate) fn reserve(&self) -> u32 {
        self.count() / (2 * crate::limits::RESERVE_DIVISOR) + LEAST_RESERVE + self.largest
    }

    /// So many blocks are being emptied of records.
    pub(crate) fn note_emptying(&mut self, blocks: u32) {
        self.emptying = blocks;
    }

    /// Whether blocks are being emptied of records.
    pub(crate) fn are_emptying(&self) -> bool {
        self.emptying > 0
    }

    /// Free blocks that deletes and fences must leave alone: each of several blocks that are being emptied may need
    /// one, and two streams one each. (The records of one alone never need more than two.) Never more than puts leave.
    pub(crate) fn least_reserve(&self) -> u32 {
        let several = self.emptying > 1 && !is_planted!(EmptiesTooMany);
        if several { (self.emptying + 2).min(self.reserve()) } else { 2 }
    }

    /// Whether one more block may be emptied beside so many: the records of all of them fit what is free, however much
    /// of them is alive after all.
    pub(crate) fn may_empty_another(&self, emptying: u32) -> bool {
        emptying == 0 || self.free_count() > emptying + 2 || is_planted!(EmptiesTooMany)
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
        self.assert_sound();
    }

    /// A large value of so many parts is about.
    pub(crate) fn note_large(&mut self, parts: u32) {
        self.largest = self.largest.max(self.blocks_of(parts));
        debug_assert!(self.largest >= self.blocks_of(parts), "the largest is the largest");
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

    /// What a block holds, to tell what is written to it, or dies.
    #[inline]
    pub(crate) fn usage(&mut self, block: BlockId) -> &mut Usage {
        &mut self.get_mut(block).usage
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

    /// Collection begins to empty a sealed block.
    pub(crate) fn begin_victim(&mut self, block: BlockId) {
        let entry = self.get_mut(block);
        assert_eq!(entry.state, BlockState::Sealed, "only a sealed block is collected");
        entry.state = BlockState::Victim;
    }

    /// Collection leaves a block as it is: there is no room for what it holds.
    pub(crate) fn end_victim(&mut self, block: BlockId) {
        let entry = self.get_mut(block);
        assert_eq!(entry.state, BlockState::Victim, "it was chosen before");
        entry.state = BlockState::Sealed;
    }

    /// A block is left alone from now on: a victim with damaged pages or a failed program, a block
    /// whose erase failed, or one without pages that the device calls bad. What is not on the
    /// device, nobody looks for.
    pub(crate) fn quarantine(&mut self, block: BlockId) {
        let entry = self.get_mut(block);
        assert!(
            matches!(entry.state, BlockState::Victim | BlockState::Erasing | BlockState::Sealed),
            "a block that is {:?} is not quarantined",
            entry.state
        );
        entry.state = BlockState::Quarantined;
        entry.pages = entry.readable;
        self.quarantined += 1;
        self.assert_sound();
    }

    /// What of a block could not be programmed is durable elsewhere: what was programmed stays.
    pub(crate) fn cut_to_readable(&mut self, block: BlockId) {
        let entry = self.get_mut(block);
        debug_assert!(!matches!(entry.state, BlockState::Free | BlockState::Open(_)));
        entry.pages = entry.readable;
    }

    /// Blocks that are left alone.
    pub(crate) fn quarantined_count(&self) -> u32 {
        self.quarantined
    }

    /// The channels of the device's blocks, as far as it tells them.
    pub(crate) fn tell_channels(&mut self, channels: Vec<Option<u32>>) {
        assert_eq!(channels.len(), self.list.len(), "one for each block");
        self.busy.tell(channels);
    }

    /// The next block whose erase is begun now, of those that were asked for.
    pub(crate) fn next_erase(&mut self, need: EraseNeed) -> Option<BlockId> {
        let block = self.busy.next_erase(need)?;
        debug_assert_eq!(self.get(block).state, BlockState::Erasing, "it was asked for");
        Some(block)
    }

    /// A block could not be erased: it is left alone.
    pub(crate) fn erase_failed(&mut self, block: BlockId) {
        self.busy.erase_over(block);
        self.quarantine(block);
    }

    /// A block is to be erased, when [`Self::next_erase`] names it.
    pub(crate) fn begin_erase(&mut self, block: BlockId) {
        let entry = self.get_mut(block);
        assert_eq!(entry.readers, 0, "a block with readers is not erased");
        debug_assert!(
            matches!(entry.state, BlockState::Sealed | BlockState::Victim | BlockState::Dirty),
            "a block that is {:?} is not erased",
            entry.state
        );
        entry.state = BlockState::Erasing;
        self.busy.ask_erase(block);
    }

    /// Recovery knows what a sealed block holds, and how many of its pages are programmed.
    pub(crate) fn found_pages(&mut self, block: BlockId, stream: StreamId, pages: u32) {
        assert!(pages <= self.geometry.pages_per_block);
        let entry = self.get_mut(block);
        (entry.pages, entry.readable) = (pages, pages);
        (entry.stream, entry.state) = (stream, BlockState::Sealed);
    }

    /// What collection moves out of a block with such contents stays long: it gets the most worn
    /// free block next, which rests then.
    pub(crate) fn rest_next(&mut self, contents: StreamId) {
        let moved = if contents == StreamId::Large { contents } else { StreamId::Cold };
        self.rests_next = Some(moved);
    }

    /// Takes the least worn free block of those whose channels are least busy, if more than `leave` are
    /// free.
    pub(crate) fn take(&mut self, stream: StreamId, leave: u32) -> Option<BlockId> {
        let rests = self.rests_next == Some(stream);
        let busy = &self.busy;
        let (block, generation) = self.free.take(leave, rests, |block| busy.nuisance(block))?;
        if rests {
            self.rests_next = None;
        }
        let entry = self.get_mut(block);
        assert_eq!((entry.state, entry.readers), (BlockState::Free, 0), "a free block is free");
        let (state, opened) = (BlockState::Open(stream), entry.opened);
        *entry = Block { state, stream, opened, ..Block::free(generation) };
        self.busy.opened(stream, block);
        Some(block)
    }

    /// No more pages will be begun in the block.
    pub(crate) fn seal(&mut self, block: BlockId) {
        let clock = self.clock;
        let entry = self.get_mut(block);
        debug_assert!(matches!(entry.state, BlockState::Open(_)));
        entry.state = BlockState::Sealed;
        entry.sealed_at = clock;
        self.busy.sealed(block);
    }

    /// The block is erased.
    pub(crate) fn release(&mut self, block: BlockId, generation: Generation) {
        assert_eq!(self.get(block).readers, 0, "a block with readers is not erased");
        let pages = self.pages_of(block);
        for set in [&mut self.holes, &mut self.unread] {
            while let Some(&page) = set.range(pages.clone()).next() {
                set.remove(&page);
            }
        }
        let entry = self.get_mut(block);
        *entry = Block { opened: entry.opened, ..Block::free(generation) };
        self.busy.erase_over(block);
        self.free.add(block, generation);
    }

    /// A record in `page` was superseded by a version at `by`.
    pub(crate) fn superseded(&mut self, page: PageId, by: Timestamp, watermark: Timestamp) {
        self.assert_sound();
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
        self.assert_sound();
        let Some(entry) = self.list.get_mut(block.0 as usize) else { return };
        entry.usage.superseded(bytes, by, watermark);
    }

    /// Whether a page lies in a block of large values.
    pub(crate) fn is_large(&self, page: PageId) -> bool {
        self.list.get(self.of(page).0 as usize).is_some_and(|entry| entry.stream == StreamId::Large)
    }

    /// Recovery has found everything: what no head has claimed is dead.
    pub(crate) fn unclaimed_parts_died(&mut self) {
        self.list.iter_mut().for_each(|entry| entry.usage.unclaimed_parts_died());
        self.assert_sound();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn table() -> Blocks {
        let geometry = Geometry { pages_per_block: 4, blocks: 8, max_blocks: 8 };
        let mut blocks = Blocks::new(geometry);
        for generation in [3, 1, 2, 5, 4, 8, 7, 6] {
            blocks.add_free(Generation(generation));
        }
        blocks
    }

    #[test]
    fn the_least_worn_block_is_taken_first() {
        let mut blocks = table();
        let order: Vec<u32> =
            (0..3).map(|_| blocks.take(StreamId::Hot, 0).expect("free").0).collect();
        assert_eq!(order, [1, 2, 0]);
        assert_eq!(blocks.take(StreamId::Hot, 5), None, "five are left alone");
    }

    fn what_is_begun_can_be_finished() {
        let geometry = Geometry { pages_per_block: 4, blocks: 100, max_blocks: 100 };
        let mut blocks = Blocks::new(geometry);
        (0..100).for_each(|number| blocks.add_free(Generation(number)));
        assert_eq!((blocks.least_reserve(), blocks.reserve()), (2, 8));
        blocks.note_emptying(1);
        assert_eq!(blocks.least_reserve(), 2, "one block fits two");
        blocks.note_emptying(3);
        assert_eq!(blocks.least_reserve(), 5, "a block each, and two streams");
        blocks.note_emptying(30);
        assert_eq!(blocks.least_reserve(), 8, "as many as puts leave");
        while blocks.free_count() > 6 {
            blocks.take(StreamId::Hot, 0).expect("free");
        }
        assert!(blocks.may_empty_another(3), "four blocks, and two streams");
        assert!(!blocks.may_empty_another(4));
        blocks.take(StreamId::Cold, 0).expect("free");
        assert!(!blocks.may_empty_another(3));
        assert!(blocks.may_empty_another(0), "one can always be begun");
    }

    #[test]
    fn no_more_blocks_are_emptied_than_can_be_finished() {
        what_is_begun_can_be_finished();
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn blocks_that_are_begun_and_cannot_be_finished_are_found() {
        use timestone_types::planted::{Bug, set, with};

        let found =
            std::panic::catch_unwind(|| with(Bug::EmptiesTooMany, what_is_begun_can_be_finished));
        set(None);
        assert!(found.is_err());
    }
}
