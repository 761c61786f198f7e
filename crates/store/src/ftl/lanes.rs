//! Open blocks that take turns, so that several programs are under way at once.

use timestone_flash::BlockId;

use super::blocks::{Blocks, State};

/// Open blocks with room.
#[derive(Default)]
pub(super) struct Lanes {
    open: Vec<Option<BlockId>>,
    turn: usize,
}

impl Lanes {
    /// There are so many from now on; no fewer than before.
    pub(super) fn spread_over(&mut self, count: u32) {
        if self.open.len() < count as usize {
            self.open.resize(count as usize, None);
        }
    }

    /// The block for the next pages. A lane whose block is full takes a new one if more than
    /// `floor` blocks are free; `None` when no lane has any.
    pub(super) fn next(&mut self, blocks: &mut Blocks, floor: u32) -> Option<BlockId> {
        for _ in 0..self.open.len() {
            let lane = &mut self.open[self.turn];
            // A block that is full may have been erased and be open for somebody else by now.
            *lane = lane.or_else(|| blocks.take(State::Open, floor));
            let block = *lane;
            self.turn = (self.turn + 1) % self.open.len();
            if block.is_some() {
                return block;
            }
        }
        None
    }

    /// A block has no more room.
    pub(super) fn filled(&mut self, block: BlockId) {
        self.open.iter_mut().filter(|lane| **lane == Some(block)).for_each(|lane| *lane = None);
    }
}
