//! Where each logical page is, and the generations of logical blocks.
//!
//! The map is also a row of words, for the journal: of each block its generation, then the places of
//! its pages.

use timestone_flash::{BlockId, Generation, PageId};

/// No page.
pub(super) const NOWHERE: u32 = u32::MAX;

/// The map, in memory as a whole: four bytes a page.
pub(super) struct Map {
    pages_per_block: u32,
    places: Vec<u32>,
    generations: Vec<u32>,
}

impl Map {
    /// A map of erased blocks that were never used.
    pub(super) fn new(pages_per_block: u32, blocks: u32) -> Self {
        let mut map = Self { pages_per_block, places: Vec::new(), generations: Vec::new() };
        map.grow_to(blocks);
        map
    }

    /// There are so many blocks now.
    pub(super) fn grow_to(&mut self, blocks: u32) {
        assert!(blocks >= self.blocks(), "a device does not shrink");
        self.places.resize(blocks as usize * self.pages_per_block as usize, NOWHERE);
        self.generations.resize(blocks as usize, Generation::FIRST.0);
    }

    /// Logical blocks.
    pub(super) fn blocks(&self) -> u32 {
        self.generations.len() as u32
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        ((self.places.capacity() + self.generations.capacity()) * size_of::<u32>()) as u64
    }

    /// Where a page is; `None` when nothing was written to it.
    #[inline]
    pub(super) fn place(&self, page: PageId) -> Option<PageId> {
        let place = self.places[page.0 as usize];
        (place != NOWHERE).then_some(PageId(place))
    }

    /// A page is elsewhere now.
    #[inline]
    pub(super) fn set(&mut self, page: PageId, place: PageId) {
        debug_assert!(place.0 != NOWHERE, "a place of the device");
        self.places[page.0 as usize] = place.0;
    }

    /// The generation of a block.
    pub(super) fn generation(&self, block: BlockId) -> Generation {
        Generation(self.generations[block.0 as usize])
    }

    /// Logical pages of a block.
    pub(super) fn pages_of(&self, block: BlockId) -> core::ops::Range<u32> {
        let first = block.0 * self.pages_per_block;
        first..first + self.pages_per_block
    }

    /// A block is erased: nothing of it is anywhere. Gives where its pages were.
    pub(super) fn trim(
        &mut self,
        block: BlockId,
        generation: Generation,
    ) -> impl Iterator<Item = PageId> + '_ {
        self.generations[block.0 as usize] = generation.0;
        let pages = self.pages_of(block);
        self.places[pages.start as usize..pages.end as usize]
            .iter_mut()
            .map(|place| core::mem::replace(place, NOWHERE))
            .filter(|&place| place != NOWHERE)
            .map(PageId)
    }

    /// A block is erased and its pages stay where they are until they are written again.
    pub(super) fn erase_untold(&mut self, block: BlockId, generation: Generation) {
        self.generations[block.0 as usize] = generation.0;
    }

    /// Words of the whole map.
    pub(super) fn words(&self) -> u32 {
        self.blocks() * (self.pages_per_block + 1)
    }

    /// One word.
    pub(super) fn word(&self, at: u32) -> u32 {
        let (block, index) = (at / (self.pages_per_block + 1), at % (self.pages_per_block + 1));
        match index.checked_sub(1) {
            None => self.generations[block as usize],
            Some(page) => self.places[(block * self.pages_per_block + page) as usize],
        }
    }

    /// Sets one word; `None` when there is no such word.
    pub(super) fn set_word(&mut self, at: u32, word: u32) -> Option<()> {
        let (block, index) = (at / (self.pages_per_block + 1), at % (self.pages_per_block + 1));
        let slot = match index.checked_sub(1) {
            None => self.generations.get_mut(block as usize),
            Some(page) => self.places.get_mut((block * self.pages_per_block + page) as usize),
        };
        *slot? = word;
        Some(())
    }
}
