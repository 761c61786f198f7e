//! The pages of the block that is being emptied, in memory: chains that are followed for its sake end there.
//!
//! Bounded by a block. Nothing is written to that block any more.

use timestone_flash::{BlockId, PAGE_BYTES, PageId};

use crate::kit::blocks::Blocks;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct TailPages {
    block: Option<BlockId>,
    /// Its first pages.
    bytes: Vec<u8>,
}

impl TailPages {
    /// Another block is being emptied.
    pub(super) fn begin(&mut self, block: BlockId) {
        self.block = Some(block);
        self.bytes.clear();
    }

    /// No block is being emptied.
    pub(super) fn end(&mut self) {
        self.block = None;
        self.bytes.clear();
    }

    /// Sound pages of the block were read, from the one with an index on. Those before it have to be here.
    pub(super) fn add(&mut self, first: u32, bytes: &[u8]) {
        if self.bytes.len() == first as usize * PAGE_BYTES {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// A page, if it is here.
    pub(super) fn get(&self, page: PageId, blocks: &Blocks) -> Option<&[u8]> {
        if self.block != Some(blocks.of(page)) {
            return None;
        }
        let begin = blocks.geometry.index_of(page) as usize * PAGE_BYTES;
        self.bytes.get(begin..begin + PAGE_BYTES)
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes.capacity() as u64
    }
}
