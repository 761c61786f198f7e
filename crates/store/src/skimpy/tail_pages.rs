//! The pages of the block that is being emptied, in memory, and of those that are next: chains that are
//! followed for their sake end there.
//!
//! Bounded by a block, and by what is read ahead. Nothing is written to these blocks any more.

use std::collections::VecDeque;

use timestone_flash::{BlockId, PAGE_BYTES, PageId};
use timestone_types::is_planted;

use crate::kit::blocks::Blocks;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct TailPages {
    /// Blocks of the log with their first pages.
    blocks: VecDeque<(BlockId, Vec<u8>)>,
}

impl TailPages {
    /// Sound pages of a block were read, from the one with an index on. Those before it have to be here.
    pub(super) fn add(&mut self, block: BlockId, first: u32, bytes: &[u8]) {
        let at = self.blocks.iter().position(|one| one.0 == block).unwrap_or_else(|| {
            self.blocks.push_back((block, Vec::new()));
            self.blocks.len() - 1
        });
        let known = &mut self.blocks[at].1;
        if known.len() == first as usize * PAGE_BYTES {
            known.extend_from_slice(bytes);
        }
    }

    /// The block has left the log: its pages go.
    pub(super) fn left(&mut self, block: BlockId) {
        self.blocks.retain(|one| one.0 != block || is_planted!(KeepsReadAhead));
    }

    /// Takes the first pages of a block out, to be put back by [`Self::add`].
    pub(super) fn take(&mut self, block: BlockId) -> Vec<u8> {
        let at = self.blocks.iter().position(|one| one.0 == block);
        at.and_then(|at| self.blocks.remove(at)).map_or_else(Vec::new, |one| one.1)
    }

    /// A page, if it is here.
    pub(super) fn get(&self, page: PageId, blocks: &Blocks) -> Option<&[u8]> {
        let block = blocks.of(page);
        let (_, bytes) = self.blocks.iter().find(|one| one.0 == block)?;
        let begin = blocks.geometry.index_of(page) as usize * PAGE_BYTES;
        bytes.get(begin..begin + PAGE_BYTES)
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.blocks.iter().map(|one| one.1.capacity() as u64).sum()
    }
}
