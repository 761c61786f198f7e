//! The rules of a flash device, kept for each block: one implementation, so that all devices agree
//! on them.
//!
//! ```text
//!   unknown ──observe──► known: 0 ≤ readable ≤ accepted ≤ pages per block
//!      │                   │  ▲        program accepted: accepted += n;  completed: readable += n
//!      └──────erase────────┴──┘        erase completed: generation + 1, accepted = readable = 0
//! ```
//!
//! The device asks before it starts something (`begin_*`) and tells what came of it (`end_*`).
//! Nothing here does I/O.
//!
//! Invariants: `readable ≤ accepted`; generations only rise; an erasing block accepts nothing; a
//! block with a failed program or erase accepts no program until it is erased.

use timestone_io::AlignedBuffer;

use crate::device::{BlockId, Generation, Geometry, PAGE_BYTES, PageId};
use crate::error::{FlashError, Misuse};

/// What the device knows of one block.
#[derive(Clone, Copy, Debug)]
struct Block {
    generation: Generation,
    /// Write pointer: pages accepted for programming.
    accepted: u32,
    /// Pages whose programs have completed, counted from the first.
    readable: u32,
    /// Reads in flight.
    reads: u32,
    /// Programs in flight.
    programs: u32,
    /// Whether `accepted` and `readable` mean anything.
    known: bool,
    erasing: bool,
    /// A program or an erase failed: no programs until an erase succeeds.
    failed: bool,
    /// The owner programs nothing more here until an erase.
    sealed: bool,
}

/// A run of pages of one block that passed the checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The block.
    pub block: BlockId,
    /// Index of the first page in the block.
    pub index: u32,
    /// How many pages.
    pub pages: u32,
}

/// The rules and their state, for all blocks of a device.
#[derive(Debug)]
pub struct Ledger {
    pages_per_block: u32,
    max_blocks: u32,
    blocks: Vec<Block>,
}

impl Ledger {
    /// A ledger over blocks that exist with the given generations. `known`: they are all erased;
    /// otherwise their extents are to be observed.
    pub fn new(
        pages_per_block: u32,
        max_blocks: u32,
        generations: impl Iterator<Item = Generation>,
        known: bool,
    ) -> Self {
        let blocks = generations.map(|generation| Block::erased(generation, known)).collect();
        Self { pages_per_block, max_blocks, blocks }
    }

    /// The shape now.
    pub fn geometry(&self) -> Geometry {
        Geometry {
            pages_per_block: self.pages_per_block,
            blocks: self.blocks.len() as u32,
            max_blocks: self.max_blocks,
        }
    }

    /// The block's generation, zero when there is no such block.
    pub fn generation(&self, block: BlockId) -> Generation {
        self.blocks.get(block.0 as usize).map_or(Generation::default(), |block| block.generation)
    }

    /// The block's write pointer, if known.
    pub fn programmed(&self, block: BlockId) -> Option<u32> {
        self.blocks.get(block.0 as usize).filter(|block| block.known).map(|block| block.accepted)
    }

    /// Lowest and highest generation.
    pub fn wear(&self) -> (u32, u32) {
        let generations = || self.blocks.iter().map(|block| block.generation.0);
        (generations().min().unwrap_or(0), generations().max().unwrap_or(0))
    }

    /// What recovery found; says the generation that holds from now on.
    pub fn observe(
        &mut self,
        id: BlockId,
        generation: Generation,
        programmed: u32,
    ) -> Result<Generation, FlashError> {
        let pages_per_block = self.pages_per_block;
        let first = PageId(id.0.saturating_mul(pages_per_block));
        let block = self.block(id)?;
        if block.known {
            return Err(Misuse::AlreadyKnown { block: id }.into());
        }
        if block.erasing {
            return Err(Misuse::Erasing { block: id }.into());
        }
        if programmed > pages_per_block {
            return Err(Misuse::NotOneBlock { page: first, pages: programmed }.into());
        }
        block.known = true;
        let current = generation >= block.generation;
        block.accepted = if current { programmed } else { 0 };
        block.readable = block.accepted;
        if generation > block.generation {
            block.generation = generation;
        }
        Ok(block.generation)
    }

    /// May these pages be read? Counts the read in.
    pub fn begin_read(
        &mut self,
        page: PageId,
        pages: u32,
        buffer: &AlignedBuffer,
    ) -> Result<Extent, FlashError> {
        let extent = self.extent(page, pages)?;
        if buffer.len() < pages as usize * PAGE_BYTES {
            return Err(Misuse::WrongBuffer { bytes: buffer.len(), pages }.into());
        }
        let first_of_block = page.0 - extent.index;
        let block = self.block(extent.block)?;
        if block.erasing {
            return Err(Misuse::Erasing { block: extent.block }.into());
        }
        if block.known && extent.index + pages > block.readable {
            let first_erased = first_of_block + block.readable.max(extent.index);
            return Err(Misuse::ReadErased { page: PageId(first_erased) }.into());
        }
        block.reads += 1;
        Ok(extent)
    }

    /// A read has ended, well or not.
    pub fn end_read(&mut self, id: BlockId) {
        let block = &mut self.blocks[id.0 as usize];
        assert!(block.reads > 0, "a read of block {id} ended that never began");
        block.reads -= 1;
    }

    /// May these pages be programmed? Moves the write pointer.
    pub fn begin_program(
        &mut self,
        page: PageId,
        buffer: &AlignedBuffer,
    ) -> Result<Extent, FlashError> {
        let pages = u32::try_from(buffer.len() / PAGE_BYTES).unwrap_or(u32::MAX);
        let extent = self.extent(page, pages)?;
        let id = extent.block;
        let block = self.block(id)?;
        if block.erasing {
            return Err(Misuse::Erasing { block: id }.into());
        }
        if !block.known {
            return Err(Misuse::NotObserved { block: id }.into());
        }
        if block.failed {
            return Err(Misuse::BlockFailed { block: id }.into());
        }
        if block.sealed {
            return Err(Misuse::Sealed { block: id }.into());
        }
        let next = block.accepted;
        if extent.index < next {
            return Err(Misuse::ProgrammedTwice { page, next }.into());
        }
        if extent.index > next {
            return Err(Misuse::OutOfOrder { page, next }.into());
        }
        block.accepted += pages;
        block.programs += 1;
        Ok(extent)
    }

    /// A program has ended; programs of one block end in page order. Says whether its pages can be
    /// read: not when this one failed or one before it did.
    pub fn end_program(&mut self, extent: Extent, succeeded: bool) -> bool {
        let block = &mut self.blocks[extent.block.0 as usize];
        assert!(block.programs > 0, "a program of block {} ended that never began", extent.block);
        block.programs -= 1;
        block.failed |= !succeeded;
        if block.failed {
            return false;
        }
        assert_eq!(
            block.readable, extent.index,
            "programs of block {} ended out of order",
            extent.block
        );
        block.readable += extent.pages;
        true
    }

    /// The block takes no programs until it is erased: its owner is done with it.
    pub fn seal(&mut self, id: BlockId) {
        if let Some(block) = self.blocks.get_mut(id.0 as usize) {
            block.sealed = true;
        }
    }

    /// The block takes no programs until it is erased: the medium cannot go on where its owner
    /// would.
    pub fn require_erase(&mut self, id: BlockId) {
        if let Some(block) = self.blocks.get_mut(id.0 as usize) {
            block.failed = true;
        }
    }

    /// May this block be erased? From now on it accepts nothing.
    pub fn begin_erase(&mut self, id: BlockId) -> Result<(), FlashError> {
        let block = self.block(id)?;
        if block.erasing {
            return Err(Misuse::Erasing { block: id }.into());
        }
        block.erasing = true;
        Ok(())
    }

    /// Whether everything that was submitted before the erase has ended.
    pub fn erase_is_due(&self, id: BlockId) -> bool {
        let block = &self.blocks[id.0 as usize];
        block.erasing && block.reads == 0 && block.programs == 0
    }

    /// The erase has ended. When it failed, what was readable still is, but the generation on the
    /// medium is in doubt.
    pub fn end_erase(&mut self, id: BlockId, succeeded: bool) {
        assert!(self.erase_is_due(id), "an erase of block {id} ended before its turn");
        let block = &mut self.blocks[id.0 as usize];
        if succeeded {
            *block = Block::erased(block.generation.next(), true);
        } else {
            block.erasing = false;
            block.failed = true;
        }
    }

    /// May the device grow by so many blocks? Says the number of blocks afterwards.
    pub fn check_growth(&self, blocks: u32) -> Result<u32, FlashError> {
        let have = self.blocks.len() as u32;
        if blocks == 0 {
            return Err(Misuse::Growing.into());
        }
        match have.checked_add(blocks).filter(|&sum| sum <= self.max_blocks) {
            Some(sum) => Ok(sum),
            None => Err(FlashError::Full {
                reason: format!(
                    "it has {have} blocks of at most {}, so it cannot grow by {blocks}",
                    self.max_blocks
                ),
            }),
        }
    }

    /// The device has grown to so many blocks; the new ones are erased.
    pub fn grow_to(&mut self, blocks: u32) {
        assert!(
            blocks <= self.max_blocks && blocks as usize >= self.blocks.len(),
            "a device grows within its capacity"
        );
        self.blocks.resize(blocks as usize, Block::erased(Generation::FIRST, true));
    }

    fn block(&mut self, id: BlockId) -> Result<&mut Block, FlashError> {
        let pages_per_block = u64::from(self.pages_per_block);
        let pages = self.blocks.len() as u64 * pages_per_block;
        let first = u64::from(id.0) * pages_per_block;
        let range = Misuse::OutOfRange { first, last: first + pages_per_block - 1, pages };
        self.blocks.get_mut(id.0 as usize).ok_or(FlashError::Misuse(range))
    }

    /// Where the pages lie: on the device, and in one block.
    fn extent(&self, page: PageId, pages: u32) -> Result<Extent, FlashError> {
        let geometry = self.geometry();
        let total = u64::from(geometry.blocks) * u64::from(geometry.pages_per_block);
        let last = u64::from(page.0) + u64::from(pages.max(1)) - 1;
        if last >= total {
            return Err(Misuse::OutOfRange { first: page.0.into(), last, pages: total }.into());
        }
        let index = geometry.index_of(page);
        if pages == 0 || u64::from(index) + u64::from(pages) > u64::from(geometry.pages_per_block) {
            return Err(Misuse::NotOneBlock { page, pages }.into());
        }
        Ok(Extent { block: geometry.block_of(page), index, pages })
    }
}

impl Block {
    const fn erased(generation: Generation, known: bool) -> Self {
        Self {
            generation,
            accepted: 0,
            readable: 0,
            reads: 0,
            programs: 0,
            known,
            erasing: false,
            failed: false,
            sealed: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: BlockId = BlockId(1);

    fn ledger() -> Ledger {
        Ledger::new(4, 8, [Generation::FIRST; 2].into_iter(), true)
    }

    fn page() -> AlignedBuffer {
        AlignedBuffer::zeroed(PAGE_BYTES)
    }

    #[test]
    fn an_erase_is_due_when_the_last_read_and_program_have_ended() {
        let mut ledger = ledger();
        let first = ledger.begin_program(PageId(4), &page()).unwrap();
        assert!(ledger.end_program(first, true));
        ledger.begin_read(PageId(4), 1, &page()).unwrap();
        let second = ledger.begin_program(PageId(5), &page()).unwrap();
        assert!(!ledger.erase_is_due(BLOCK), "nobody asked for it");
        ledger.begin_erase(BLOCK).unwrap();
        assert!(!ledger.erase_is_due(BLOCK), "a read and a program are in flight");
        ledger.end_program(second, true);
        assert!(!ledger.erase_is_due(BLOCK), "a read is in flight");
        ledger.end_read(BLOCK);
        assert!(ledger.erase_is_due(BLOCK));
        ledger.end_erase(BLOCK, true);
        assert_eq!((ledger.generation(BLOCK), ledger.programmed(BLOCK)), (Generation(2), Some(0)));
    }

    #[test]
    #[should_panic(expected = "before its turn")]
    fn an_erase_that_overtakes_a_read_is_caught() {
        let mut ledger = ledger();
        let extent = ledger.begin_program(PageId(4), &page()).unwrap();
        ledger.end_program(extent, true);
        ledger.begin_read(PageId(4), 1, &page()).unwrap();
        ledger.begin_erase(BLOCK).unwrap();
        ledger.end_erase(BLOCK, true);
    }

    #[test]
    fn a_block_cannot_be_observed_while_it_is_erased() {
        let mut ledger = Ledger::new(4, 8, [Generation::FIRST; 2].into_iter(), false);
        ledger.begin_erase(BLOCK).unwrap();
        let refused = ledger.observe(BLOCK, Generation(1), 2).unwrap_err();
        assert!(matches!(refused, FlashError::Misuse(Misuse::Erasing { .. })), "{refused}");
    }
}
