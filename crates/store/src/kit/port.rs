//! The store's side of the device: tokens, queues of operations that the device has no room for
//! yet, and buffers for reuse.
//!
//! ```text
//!   read  ─► queue ─ at most 96 in flight ─┬─► submit ─► device ─► completions
//!   write ─► queue ────────────────────────┘      └─ refused for good ─┘
//! ```
//!
//! Writes (programs, erases, syncs, growth, and the ends of blocks) leave in the order in which they were asked for; reads
//! have a queue of their own, so that a get never waits behind a burst of programs. A quarter of
//! the device's queue may hold writes, the rest is for reads.
//!
//! Invariant: `reads_in_flight` counts the reads that were submitted and whose completion, or
//! refusal, nobody has taken yet.

use std::collections::VecDeque;

use timestone_flash::{
    AlignedBuffer, BlockId, FlashCompletion, FlashDevice, FlashError, FlashOp, PAGE_BYTES,
    RejectedReason, Token,
};

use crate::limits::{GROUP_PAGES, MAX_READS_IN_FLIGHT};

/// Idle buffers kept of each size.
const KEEP_BUFFERS: usize = 64;

/// What an operation was for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// Number: the program's place in the ledger.
    Program = 1,
    /// Number: the page.
    PageRead = 2,
    /// Number: the first page.
    VictimRead = 3,
    /// Number: the block.
    Erase = 4,
    Sync = 5,
    Grow = 6,
    /// Number: the slot of the value's assembly, and the extent.
    PartRead = 7,
    ScrubRead = 8,
    /// Number: chosen by recovery.
    Recovery = 9,
}

impl Purpose {
    /// The token of an operation for this purpose.
    pub(crate) fn token(self, number: u64) -> Token {
        debug_assert!(number < 1 << 56);
        Token((self as u64) << 56 | number)
    }

    /// Whether it reads, for whoever waits.
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Self::PageRead | Self::VictimRead | Self::PartRead | Self::ScrubRead)
    }

    /// What [`Self::token`] was given.
    pub(crate) fn of(token: Token) -> Option<(Self, u64)> {
        let purpose = match token.0 >> 56 {
            1 => Self::Program,
            2 => Self::PageRead,
            3 => Self::VictimRead,
            4 => Self::Erase,
            5 => Self::Sync,
            6 => Self::Grow,
            7 => Self::PartRead,
            8 => Self::ScrubRead,
            9 => Self::Recovery,
            _ => return None,
        };
        Some((purpose, token.0 & ((1 << 56) - 1)))
    }
}

/// What leaves in the order in which it was asked for.
#[derive(Debug)]
enum Write {
    Op(FlashOp),
    /// The block gets no programs behind these.
    Seal(BlockId),
}

/// The device with its queues.
pub(crate) struct Port {
    pub(crate) device: Box<dyn FlashDevice>,
    writes: VecDeque<Write>,
    reads: VecDeque<FlashOp>,
    reads_in_flight: usize,
    pages: Vec<AlignedBuffer>,
    groups: Vec<AlignedBuffer>,
    /// Buffers of groups that nobody took since [`Port::give_back`] was called.
    idle_groups: usize,
}

impl Port {
    /// A port to a device.
    pub(crate) fn new(device: Box<dyn FlashDevice>) -> Self {
        Self {
            device,
            writes: VecDeque::new(),
            reads: VecDeque::new(),
            reads_in_flight: 0,
            pages: Vec::new(),
            groups: Vec::new(),
            idle_groups: 0,
        }
    }

    /// A buffer of so many pages.
    pub(crate) fn buffer(&mut self, pages: u32) -> AlignedBuffer {
        let bytes = pages as usize * PAGE_BYTES;
        if pages > GROUP_PAGES {
            return AlignedBuffer::zeroed(bytes);
        }
        let (pool, whole) = if pages == 1 {
            (&mut self.pages, 1)
        } else {
            (&mut self.groups, GROUP_PAGES as usize)
        };
        let mut buffer = pool.pop().unwrap_or_else(|| AlignedBuffer::zeroed(whole * PAGE_BYTES));
        self.idle_groups = self.idle_groups.min(self.groups.len());
        buffer.set_length(bytes);
        debug_assert!(buffer.capacity() >= bytes, "the pages have room");
        buffer
    }

    /// Gives the system back some of the buffers that nobody took since this was called last.
    pub(crate) fn give_back(&mut self) {
        let left = self.groups.len() - given_back_of(self.idle_groups);
        self.groups.truncate(left);
        self.idle_groups = left;
    }

    /// Bytes of the buffers that are kept, and of those that wait to be written.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let waiting = self.writes.iter().map(|write| match write {
            Write::Op(FlashOp::Program { buffer, .. }) => buffer.capacity(),
            Write::Op(_) | Write::Seal(_) => 0,
        });
        let kept = self.pages.iter().chain(&self.groups).map(AlignedBuffer::capacity);
        waiting.chain(kept).map(|bytes| bytes as u64).sum()
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, buffer: AlignedBuffer) {
        let pool = match buffer.capacity() / PAGE_BYTES {
            1 => &mut self.pages,
            pages if pages == GROUP_PAGES as usize => &mut self.groups,
            _ => return,
        };
        if pool.len() < KEEP_BUFFERS {
            pool.push(buffer);
        }
        debug_assert!(self.pages.len().max(self.groups.len()) <= KEEP_BUFFERS, "no more are kept");
    }

    /// Asks for a program, erase, sync or growth.
    pub(crate) fn write(&mut self, op: FlashOp) {
        debug_assert!(!matches!(op, FlashOp::Read { .. }), "reads wait apart");
        self.writes.push_back(Write::Op(op));
    }

    /// Tells the device, when it has all programs of a block, that there are no more.
    pub(crate) fn seal(&mut self, block: BlockId) {
        debug_assert!(block.0 < self.device.geometry().blocks, "a block that is there");
        self.writes.push_back(Write::Seal(block));
    }

    /// Asks for a read.
    pub(crate) fn read(&mut self, op: FlashOp) {
        debug_assert!(matches!(op, FlashOp::Read { .. }), "writes wait apart");
        self.reads.push_back(op);
    }

    /// Hands the device what it has room for. What it refuses for good is reported as a completion.
    pub(crate) fn submit(&mut self, refused: &mut Vec<FlashCompletion>) {
        while self.reads_in_flight < MAX_READS_IN_FLIGHT {
            let Some(op) = self.reads.pop_front() else { break };
            match self.device.submit(op) {
                Ok(()) => self.reads_in_flight += 1,
                Err(rejected) => match rejected.reason {
                    RejectedReason::QueueFull => {
                        self.reads.push_front(rejected.op);
                        break;
                    }
                    RejectedReason::Refused(error) => {
                        self.reads_in_flight += 1;
                        refused.push(refused_completion(rejected.op, error));
                    }
                },
            }
        }
        while let Some(write) = self.writes.pop_front() {
            let op = match write {
                Write::Op(op) => op,
                Write::Seal(block) => {
                    self.device.seal(block);
                    continue;
                }
            };
            match self.device.submit(op) {
                Ok(()) => {}
                Err(rejected) => match rejected.reason {
                    RejectedReason::QueueFull => {
                        self.writes.push_front(Write::Op(rejected.op));
                        break;
                    }
                    RejectedReason::Refused(error) => {
                        refused.push(refused_completion(rejected.op, error));
                    }
                },
            }
        }
        debug_assert!(self.reads_in_flight <= MAX_READS_IN_FLIGHT, "so many and no more");
    }

    /// Notes that a read has come back.
    pub(crate) fn read_done(&mut self) {
        assert!(self.reads_in_flight > 0, "a read that comes back was counted");
        self.reads_in_flight -= 1;
    }
}

/// How many of so many idle buffers are given back at a time: those that the next burst of writes
/// needs again are dear to take anew.
pub(crate) fn given_back_of(idle: usize) -> usize {
    idle.div_ceil(8)
}

fn refused_completion(op: FlashOp, error: FlashError) -> FlashCompletion {
    let token = op.token();
    let buffer = match op {
        FlashOp::Read { buffer, .. } | FlashOp::Program { buffer, .. } => Some(buffer),
        FlashOp::Erase { .. } | FlashOp::Sync { .. } | FlashOp::Grow { .. } => None,
    };
    FlashCompletion { token, result: Err(error), buffer }
}

#[cfg(test)]
mod tests {
    use timestone_flash::{MemoryConfig, MemoryDevice, PageId};

    use super::*;

    fn port() -> Port {
        Port::new(Box::new(MemoryDevice::new(MemoryConfig::default())))
    }

    #[test]
    fn a_token_tells_purpose_and_number() {
        for purpose in [Purpose::Program, Purpose::PartRead, Purpose::Recovery] {
            assert_eq!(Purpose::of(purpose.token(77)), Some((purpose, 77)));
        }
        assert_eq!(Purpose::of(Token(77)), None);
    }

    #[test]
    fn buffers_are_used_again_for_their_size() {
        let mut port = port();
        let (page, group) = (port.buffer(1), port.buffer(3));
        assert_eq!((page.len(), group.len()), (PAGE_BYTES, 3 * PAGE_BYTES));
        let bytes = (page.capacity() + group.capacity()) as u64;
        port.give(page);
        port.give(group);
        assert_eq!(port.memory_bytes(), bytes);
        assert_eq!(port.buffer(5).len(), 5 * PAGE_BYTES);
        assert_eq!(port.memory_bytes(), PAGE_BYTES as u64, "the page is left");
    }

    #[test]
    fn buffers_that_nobody_takes_are_given_back_bit_by_bit() {
        let mut port = port();
        let taken: Vec<_> = (0..20).map(|_| port.buffer(2)).collect();
        taken.into_iter().for_each(|buffer| port.give(buffer));
        let group = u64::from(GROUP_PAGES) * PAGE_BYTES as u64;
        // They came just now.
        port.give_back();
        assert_eq!(port.memory_bytes(), 20 * group);
        // Four are in use now and then.
        for _ in 0..100 {
            let taken: Vec<_> = (0..4).map(|_| port.buffer(2)).collect();
            taken.into_iter().for_each(|buffer| port.give(buffer));
            port.give_back();
        }
        assert_eq!(port.memory_bytes(), 4 * group);
        (0..100).for_each(|_| port.give_back());
        assert_eq!(port.memory_bytes(), 0);
    }

    #[test]
    fn only_so_many_reads_are_in_flight() {
        let mut port = port();
        for number in 0..MAX_READS_IN_FLIGHT as u64 + 3 {
            let (token, buffer) = (Purpose::PageRead.token(number), port.buffer(1));
            port.read(FlashOp::Read { token, page: PageId(0), pages: 1, buffer });
        }
        // Nothing is programmed there: each read that is submitted is refused at once.
        let mut refused = Vec::new();
        port.submit(&mut refused);
        assert_eq!(refused.len(), MAX_READS_IN_FLIGHT);
        (0..2).for_each(|_| port.read_done());
        port.submit(&mut refused);
        assert_eq!(refused.len(), MAX_READS_IN_FLIGHT + 2);
        assert!(refused.iter().all(|done| done.result.is_err() && done.buffer.is_some()));
    }
}
