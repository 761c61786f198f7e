//! Reads under way, by the index that travels in the engine's token.

use crate::device::Token;
use crate::ledger::Extent;

/// One read: who waits for it, and of what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadSlot {
    pub(crate) token: Token,
    pub(crate) extent: Extent,
    /// Pages of it that the medium was asked for.
    pub(crate) asked: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    slots: Vec<ReadSlot>,
    free: Vec<u32>,
}

impl Reads {
    /// A read begins; its index.
    pub(crate) fn begin(&mut self, slot: ReadSlot) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        }
    }

    /// A read has ended; its index is free.
    pub(crate) fn end(&mut self, index: u32) -> ReadSlot {
        debug_assert!(!self.free.contains(&index), "a read ends once");
        self.free.push(index);
        self.slots[index as usize]
    }
}
