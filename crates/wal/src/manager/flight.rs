//! The group of blocks that is being written: what it holds, and what it makes durable.

use timestone_io::AlignedBuffer;
use timestone_types::ShardId;

use crate::BatchNumber;
use crate::limits::GROUP_BLOCKS;

/// The group in flight, or the one that is being put together.
#[derive(Debug, Default)]
pub(super) struct Flight {
    is_under_way: bool,
    bytes: usize,
    batches: u64,
    /// The last batch of each shard that the group makes durable.
    ends: Vec<(ShardId, BatchNumber)>,
    /// The list for the next group's buffers, reused.
    buffers: Vec<AlignedBuffer>,
}

impl Flight {
    pub(super) const fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Bytes of batches in the group that is being written.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Batches in the last group.
    pub(super) const fn batches(&self) -> u64 {
        self.batches
    }

    /// Begins to put a group together.
    pub(super) fn begin(&mut self) {
        assert!(!self.is_under_way && self.buffers.is_empty(), "one group is written at a time");
        self.batches = 0;
    }

    /// Whether another block fits the group.
    pub(super) const fn has_room(&self) -> bool {
        self.buffers.len() < GROUP_BLOCKS
    }

    /// Adds a sealed block with so many bytes of so many batches.
    pub(super) fn add(&mut self, buffer: AlignedBuffer, bytes: usize, batches: u64) {
        self.bytes += bytes;
        self.batches += batches;
        self.buffers.push(buffer);
    }

    /// A batch of a shard ends in the group.
    pub(super) fn makes_durable(&mut self, shard: ShardId, batch: BatchNumber) {
        match self.ends.iter_mut().find(|end| end.0 == shard) {
            Some(end) => end.1 = batch,
            None => self.ends.push((shard, batch)),
        }
    }

    /// Hands the group out, to be written.
    pub(super) fn depart(&mut self) -> Vec<AlignedBuffer> {
        assert!(!self.buffers.is_empty(), "a file has room for at least one block");
        self.is_under_way = true;
        core::mem::take(&mut self.buffers)
    }

    /// The write is over; `list` is the group's list, emptied.
    pub(super) fn arrive(&mut self, list: Vec<AlignedBuffer>) {
        assert!(self.is_under_way, "a group that completes was in flight");
        debug_assert!(list.is_empty(), "buffers go back to those that wait");
        self.is_under_way = false;
        self.buffers = list;
    }

    /// The group is durable: its bytes no longer count.
    pub(super) const fn forget_bytes(&mut self) {
        self.bytes = 0;
    }

    /// What the group makes durable; told once.
    pub(super) fn take_ends(&mut self) -> impl Iterator<Item = (ShardId, BatchNumber)> + '_ {
        self.ends.drain(..)
    }
}
