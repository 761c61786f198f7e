//! What the host has asked for and waits for.

use std::collections::VecDeque;

use timestone_flash::ledger::Extent;
use timestone_flash::{AlignedBuffer, BlockId, FlashError, PageId, Token};

/// A read of logical pages.
pub(super) struct Read {
    pub(super) token: Token,
    pub(super) extent: Extent,
    pub(super) buffer: Option<AlignedBuffer>,
    /// Operations on the device that it waits for.
    pub(super) left: u32,
    pub(super) error: Option<FlashError>,
}

/// Pages of a program from an index on: where they are, and how many.
pub(super) type PlacedPages = (u32, PageId, u32);

/// A program of logical pages.
pub(super) struct Program {
    pub(super) token: Token,
    pub(super) extent: Extent,
    /// The first logical page.
    pub(super) first: PageId,
    /// Until it is handed to the device, or given back.
    pub(super) buffer: Option<AlignedBuffer>,
    /// Pages that have a place.
    pub(super) placed: u32,
    /// The places: the first of its pages by index, where they are, and how many.
    pub(super) places: Vec<PlacedPages>,
    /// Pieces that have failed and are to be programmed elsewhere.
    pub(super) failed_pieces: u32,
    /// Operations on the device that it waits for.
    pub(super) left: u32,
    pub(super) error: Option<FlashError>,
    /// It was answered.
    pub(super) is_told: bool,
}

impl Program {
    /// Whether it can be answered.
    pub(super) fn is_over(&self) -> bool {
        let placed = self.placed == self.extent.pages && self.failed_pieces == 0;
        self.left == 0 && (placed || self.error.is_some())
    }
}

/// Programs in the order in which they were submitted.
#[derive(Default)]
pub(super) struct Programs {
    list: VecDeque<Program>,
    /// The number of the first one.
    first: u64,
    /// Of which all before this one have places.
    pub(super) placed: u64,
    told: usize,
    /// Vectors for reuse.
    spare: Vec<Vec<PlacedPages>>,
}

impl Programs {
    /// A vector for places.
    pub(super) fn places(&mut self) -> Vec<PlacedPages> {
        self.spare.pop().unwrap_or_default()
    }

    pub(super) fn push(&mut self, program: Program) {
        self.list.push_back(program);
    }

    /// Programs that were not answered yet.
    pub(super) fn len(&self) -> usize {
        self.list.len() - self.told
    }

    pub(super) fn get(&mut self, number: u64) -> Option<&mut Program> {
        let at = number.checked_sub(self.first)?;
        self.list.get_mut(at as usize)
    }

    /// The next program that has not all of its places, and its number.
    pub(super) fn next_to_place(&mut self) -> Option<(u64, &mut Program)> {
        loop {
            let number = self.placed;
            let at = number.checked_sub(self.first)? as usize;
            let program = self.list.get(at)?;
            if program.placed < program.extent.pages && program.error.is_none() {
                return self.list.get_mut(at).map(|program| (number, program));
            }
            self.placed += 1;
        }
    }

    /// A program that can be answered: it is over, and so are those of its block before it.
    pub(super) fn next_to_tell(&mut self) -> Option<&mut Program> {
        let over = |at: &usize| {
            let program = &self.list[*at];
            program.is_over()
                && !program.is_told
                && !self
                    .list
                    .iter()
                    .take(*at)
                    .any(|other| !other.is_told && other.extent.block == program.extent.block)
        };
        let at = (0..self.list.len()).find(over)?;
        self.told += 1;
        self.list[at].is_told = true;
        self.list.get_mut(at)
    }

    /// Forgets those that were answered.
    pub(super) fn forget_told(&mut self) {
        while self.list.front().is_some_and(|program| program.is_told) {
            let Some(mut program) = self.list.pop_front() else { break };
            program.places.clear();
            self.spare.push(program.places);
            self.first += 1;
            self.told -= 1;
        }
        self.placed = self.placed.max(self.first);
    }
}

/// The erase of a logical block.
pub(super) struct Erase {
    pub(super) token: Token,
    pub(super) block: BlockId,
    /// The entry of the journal that it waits for, when the map knows of it.
    pub(super) appended: Option<u64>,
}
