//! Batches of frames: pooled runs of whole frames of one connection, and the pool they come from.
//!
//! A batch of frames travels by value (the bytes stay where they are); whoever consumes it gives
//! the buffer to the pool of its own thread. Requests and answers flow both ways between threads,
//! so pools stay balanced; they are bounded in buffers and bytes.

use core::fmt;

use crate::limits::{FRAME_BATCH_BYTES, POOL_BUFFERS, POOL_BYTES, POOL_LARGEST};
use crate::{Charge, StageId};

/// The slot of a connection within its net stage; reused, see [`Generation`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(u32);

impl ConnectionId {
    /// The slot with this index.
    #[must_use]
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The index of the slot.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How often a connection slot was used before: tells a connection from its successor in the same
/// slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Generation(u32);

impl Generation {
    /// The generation with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number of the generation.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// Where a batch of frames comes from and where its answer goes: a connection of a net stage.
/// Stages inside the process that ask others may make up their own connection ids: their own stage
/// id tells them apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyAddress {
    /// The net stage (or asking stage) that owns the connection; answers are sent there.
    pub stage: StageId,
    /// The connection within that stage.
    pub connection: ConnectionId,
    /// Which use of the connection's slot.
    pub generation: Generation,
}

impl fmt::Debug for ReplyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}.{}", self.stage, self.connection.0, self.generation.0)
    }
}

/// A run of whole frames of one connection for one stage (or of raw bytes, if the protocol splits
/// so).
#[derive(Debug)]
pub struct FrameBatch {
    /// The connection that it came from, or, on the way out, that it goes to.
    pub reply_to: ReplyAddress,
    /// Frames in `bytes` as counted by whoever admitted them, for [`crate::Gauge::release`]; zero
    /// on the way out, and between stages that admit nothing.
    pub frames: u32,
    /// The frames, one after another.
    pub bytes: Vec<u8>,
    /// The memory that a large batch of frames of answers counts for until it has arrived.
    pub charge: Option<Charge>,
}

impl FrameBatch {
    /// An outgoing batch of frames.
    #[must_use]
    pub const fn new(reply_to: ReplyAddress, bytes: Vec<u8>) -> Self {
        Self { reply_to, frames: 0, bytes, charge: None }
    }
}

/// Free buffers of one thread. Invariant: `bytes` is the sum of the capacities of `free`; both stay
/// within their limits.
#[derive(Debug, Default)]
pub struct FrameBatchPool {
    free: Vec<Vec<u8>>,
    bytes: usize,
    allocated: u64,
}

impl FrameBatchPool {
    /// An empty pool.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty buffer, used before if there is one (then warm in the cache: last in, first out).
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        if let Some(buffer) = self.free.pop() {
            self.bytes -= buffer.capacity();
            buffer
        } else {
            self.allocated += 1;
            Vec::with_capacity(FRAME_BATCH_BYTES)
        }
    }

    /// Takes a buffer back; its content is dropped, and it is freed when it is larger than worth
    /// keeping or the pool is full.
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity == 0
            || capacity > POOL_LARGEST
            || self.free.len() >= POOL_BUFFERS
            || self.bytes + capacity > POOL_BYTES
        {
            return;
        }
        buffer.clear();
        self.bytes += capacity;
        self.free.push(buffer);
    }

    /// Free buffers at the moment.
    #[must_use]
    pub fn len(&self) -> usize {
        self.free.len()
    }

    /// Whether the next [`FrameBatchPool::take`] allocates.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// Buffers allocated so far because the pool was empty.
    #[must_use]
    pub const fn allocated(&self) -> u64 {
        self.allocated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_empty_and_are_not_allocated_again() {
        let mut pool = FrameBatchPool::new();
        let mut buffer = pool.take();
        buffer.extend_from_slice(b"abc");
        let address = buffer.as_ptr();
        pool.give(buffer);
        let again = pool.take();
        assert_eq!((again.as_ptr(), again.len(), pool.allocated()), (address, 0, 1));
    }

    #[test]
    fn the_pool_is_bounded_in_buffers_and_in_bytes() {
        let mut pool = FrameBatchPool::new();
        pool.give(Vec::with_capacity(POOL_LARGEST + 1));
        pool.give(Vec::new());
        assert!(pool.is_empty());
        for _ in 0..2 * POOL_BUFFERS {
            pool.give(Vec::with_capacity(16));
        }
        assert_eq!(pool.len(), POOL_BUFFERS);
        let mut pool = FrameBatchPool::new();
        for _ in 0..POOL_BYTES / POOL_LARGEST + 5 {
            pool.give(Vec::with_capacity(POOL_LARGEST));
        }
        assert_eq!(pool.len(), POOL_BYTES / POOL_LARGEST);
    }
}
