//! The blocks of the device: what each is for, which of its pages are alive, which are free.
//!
//! ```text
//!   free ─► open ─► full ─► draining ─► erasing ─┬► free          dirty ─► erasing
//!     └──► journal ────────────┘                 └► bad
//! ```
//!
//! Free blocks are handed out least worn first.
//!
//! Invariants: `live` of a block is the number of its pages with an owner; a block is erased only
//! without live pages, readers and programs.

use std::collections::BTreeSet;

use timestone_flash::{BlockId, Generation, Geometry, PageId};

use super::map::NOWHERE;

/// What a block is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Nothing of it counts, but it was not erased since it held something.
    Dirty,
    Free,
    /// Pages are being programmed.
    Open,
    Full,
    /// What is alive leaves it.
    Draining,
    Erasing,
    /// Pages of the journal.
    Journal,
    /// It could not be erased, and is not used again.
    Bad,
}

/// What is programmed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    /// Logical pages from this one on.
    Host(PageId),
    /// Copies of the pages from this one on.
    Moved(PageId),
    Journal,
}

/// One block of the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct PhysicalBlock {
    pub(super) state: State,
    /// Pages that a logical page is in, or is being written to.
    pub(super) live: u32,
    /// The write pointer.
    pub(super) next: u32,
    /// Programs under way, and those of the host that it was not told of yet.
    programs: u32,
    /// Reads under way or waiting for the device.
    readers: u32,
    /// The clock when it became full.
    filled_at: u64,
    /// A program or an erase of it has failed.
    has_failed: bool,
}

/// All of them.
pub(super) struct Blocks {
    pub(super) geometry: Geometry,
    list: Vec<PhysicalBlock>,
    /// By page: the logical page in it.
    owners: Vec<u32>,
    free: BTreeSet<(Generation, BlockId)>,
    dirty: Vec<BlockId>,
    /// Full blocks in which nothing was alive when something of them last ended.
    emptied: Vec<BlockId>,
    /// Counts blocks that have become full.
    clock: u64,
    /// Counts pages that died.
    died: u64,
    live: u64,
}

impl Blocks {
    /// No blocks yet.
    pub(super) fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            list: Vec::new(),
            owners: Vec::new(),
            free: BTreeSet::new(),
            dirty: Vec::new(),
            emptied: Vec::new(),
            clock: 0,
            died: 0,
            live: 0,
        }
    }

    /// One more block, which is [`State::Free`], [`State::Dirty`], [`State::Full`] (its owners
    /// follow) or [`State::Journal`].
    pub(super) fn add(&mut self, state: State, generation: Generation) {
        let id = BlockId(self.list.len() as u32);
        let next = if state == State::Free { 0 } else { self.geometry.pages_per_block };
        self.list.push(PhysicalBlock {
            state,
            live: 0,
            next,
            programs: 0,
            readers: 0,
            filled_at: 0,
            has_failed: false,
        });
        self.owners.resize(self.list.len() * self.geometry.pages_per_block as usize, NOWHERE);
        match state {
            State::Free => assert!(self.free.insert((generation, id)), "a block is free once"),
            State::Dirty => self.dirty.push(id),
            _ => {}
        }
    }

    /// A page is found to hold a logical page; says whether that is so for one only.
    pub(super) fn found(&mut self, place: PageId, page: PageId) -> bool {
        let owner = &mut self.owners[place.0 as usize];
        if *owner != NOWHERE {
            return false;
        }
        *owner = page.0;
        let block = self.geometry.block_of(place);
        self.list[block.0 as usize].live += 1;
        self.live += 1;
        true
    }

    pub(super) fn get(&self, block: BlockId) -> &PhysicalBlock {
        &self.list[block.0 as usize]
    }

    pub(super) fn count(&self) -> u32 {
        self.list.len() as u32
    }

    /// Blocks that are erased and free.
    pub(super) fn free_count(&self) -> u32 {
        self.free.len() as u32
    }

    /// Blocks that are to be erased before their next use.
    pub(super) fn dirty_count(&self) -> u32 {
        self.dirty.len() as u32
    }

    /// Pages that are alive.
    pub(super) fn live_pages(&self) -> u64 {
        self.live
    }

    /// Pages that have died; only rises.
    pub(super) fn died(&self) -> u64 {
        self.died
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        (self.owners.capacity() * size_of::<u32>()
            + self.list.capacity() * size_of::<PhysicalBlock>()) as u64
    }

    /// The least worn free block, if more than `floor` are free.
    pub(super) fn take(&mut self, state: State, floor: u32) -> Option<BlockId> {
        if self.free_count() <= floor {
            return None;
        }
        let (_, id) = self.free.pop_first()?;
        let block = &mut self.list[id.0 as usize];
        assert!(block.state == State::Free && block.live == 0 && block.next == 0, "{block:?}");
        block.state = state;
        Some(id)
    }

    /// Pages that an open block has room for.
    pub(super) fn room(&self, block: BlockId) -> u32 {
        self.geometry.pages_per_block - self.get(block).next
    }

    /// The next pages of a block are going to be programmed.
    pub(super) fn begin_program(&mut self, id: BlockId, pages: u32, content: Content) -> PageId {
        assert!(pages > 0 && pages <= self.room(id), "pages within a block");
        let place = self.geometry.page(id, self.get(id).next);
        for index in 0..pages {
            let owner = match content {
                Content::Host(first) => first.0 + index,
                Content::Moved(from) => self.owner(PageId(from.0 + index)),
                Content::Journal => NOWHERE,
            };
            self.owners[(place.0 + index) as usize] = owner;
            if owner != NOWHERE {
                self.list[id.0 as usize].live += 1;
                self.live += 1;
            }
        }
        let block = &mut self.list[id.0 as usize];
        block.next += pages;
        block.programs += 1;
        if block.next == self.geometry.pages_per_block && block.state == State::Open {
            block.state = State::Full;
            block.filled_at = self.clock;
            self.clock += 1;
        }
        place
    }

    /// A program of a block has ended.
    pub(super) fn end_program(&mut self, id: BlockId) {
        let block = &mut self.list[id.0 as usize];
        assert!(block.programs > 0, "a program that ends was begun");
        block.programs -= 1;
        self.note_emptied(id);
    }

    /// The logical page in a page of the device.
    pub(super) fn owner(&self, place: PageId) -> u32 {
        self.owners[place.0 as usize]
    }

    /// Nothing needs a page any more.
    pub(super) fn die(&mut self, place: PageId) {
        let owner = core::mem::replace(&mut self.owners[place.0 as usize], NOWHERE);
        assert!(owner != NOWHERE, "page {place} dies once");
        let id = self.geometry.block_of(place);
        self.list[id.0 as usize].live -= 1;
        self.live -= 1;
        self.died += 1;
        self.note_emptied(id);
    }

    fn note_emptied(&mut self, id: BlockId) {
        let block = self.get(id);
        if block.state == State::Full && block.live == 0 && block.programs == 0 {
            self.emptied.push(id);
        }
    }

    /// A full block in which nothing is alive; it drains from now on.
    pub(super) fn take_emptied(&mut self) -> Option<BlockId> {
        while let Some(id) = self.emptied.pop() {
            let block = &mut self.list[id.0 as usize];
            if block.state == State::Full && block.live == 0 && block.programs == 0 {
                block.state = State::Draining;
                return Some(id);
            }
        }
        None
    }

    /// Somebody reads in a block.
    pub(super) fn pin(&mut self, block: BlockId) {
        self.list[block.0 as usize].readers += 1;
    }

    /// Somebody does so no longer.
    pub(super) fn unpin(&mut self, block: BlockId) {
        let block = &mut self.list[block.0 as usize];
        assert!(block.readers > 0, "a read that ends was begun");
        block.readers -= 1;
    }

    /// Whether nobody reads in a block.
    pub(super) fn is_unread(&self, block: BlockId) -> bool {
        self.get(block).readers == 0
    }

    /// The full block whose collection wins most: pages won × age ÷ pages moved (cost-benefit);
    /// when it is urgent, age does not count. It drains from now on. What is written together dies
    /// together where the user is a log itself: age gives a young block the time to.
    pub(super) fn choose_victim(&mut self, urgent: bool) -> Option<BlockId> {
        let pages = self.geometry.pages_per_block;
        let mut best = None;
        for (number, block) in self.list.iter().enumerate() {
            if block.state != State::Full || block.programs > 0 || block.live == pages {
                continue;
            }
            let age = if urgent { 1 } else { u128::from(self.clock - block.filled_at) + 1 };
            let score =
                u128::from(pages - block.live) * age * 1024 / u128::from(pages + block.live);
            if best.is_none_or(|(most, _)| score > most) {
                best = Some((score, number));
            }
        }
        let (_, number) = best?;
        self.list[number].state = State::Draining;
        Some(BlockId(number as u32))
    }

    /// A block of the journal is needed no longer.
    pub(super) fn leave_journal(&mut self, id: BlockId) {
        let block = &mut self.list[id.0 as usize];
        assert!(block.state == State::Journal && block.live == 0);
        block.state = State::Draining;
    }

    /// A dirty block that is erased from now on.
    pub(super) fn take_dirty(&mut self) -> Option<BlockId> {
        let id = self.dirty.pop()?;
        let block = &mut self.list[id.0 as usize];
        assert!(block.state == State::Dirty && block.readers == 0);
        block.state = State::Erasing;
        Some(id)
    }

    /// A block that was drained is erased from now on.
    pub(super) fn begin_erase(&mut self, id: BlockId) {
        let block = &mut self.list[id.0 as usize];
        assert!(
            block.state == State::Draining
                && block.live == 0
                && block.readers == 0
                && block.programs == 0,
            "nothing of block {id} is needed: {block:?}"
        );
        block.state = State::Erasing;
    }

    /// A program of a block has failed: it takes no more, and what is in it moves out in time. Says
    /// whether that is news.
    pub(super) fn fail(&mut self, id: BlockId) -> bool {
        let block = &mut self.list[id.0 as usize];
        let is_news = !core::mem::replace(&mut block.has_failed, true);
        block.next = self.geometry.pages_per_block;
        if block.state == State::Open {
            block.state = State::Full;
            block.filled_at = self.clock;
            self.clock += 1;
        }
        self.note_emptied(id);
        is_news
    }

    /// A block could not be erased.
    pub(super) fn retire(&mut self, id: BlockId) {
        let block = &mut self.list[id.0 as usize];
        assert_eq!(block.state, State::Erasing);
        block.state = State::Bad;
    }

    /// A block has been erased.
    pub(super) fn erased(&mut self, id: BlockId, generation: Generation) {
        let block = &mut self.list[id.0 as usize];
        assert_eq!(block.state, State::Erasing);
        (block.state, block.next, block.has_failed) = (State::Free, 0, false);
        assert!(self.free.insert((generation, id)), "a block is free once");
    }
}
