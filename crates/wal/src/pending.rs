//! What was accepted and not sent yet: a row of blocks, the last one open.
//!
//! Each batch is copied once, straight to where the device writes from. A batch that does not fit
//! is cut over blocks. Buffers and lists are reused, so the steady state allocates nothing.
//!
//! Invariants: a block's `used` counts header and entries; every block but the last is full;
//! `touches` names every batch that has a part in the block.

use std::collections::VecDeque;

use timestone_io::AlignedBuffer;
use timestone_types::ShardId;

use crate::block::{BlockHeader, ENTRY_BYTES, Entry, HEADER_BYTES, padded};
use crate::limits::IDLE_BUFFERS;
use crate::{BatchHead, BatchNumber};

/// What a block holds of one shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchTouch {
    pub(crate) shard: ShardId,
    /// First and last batch with a part in the block.
    pub(crate) first: BatchNumber,
    pub(crate) last: BatchNumber,
    /// Last batch that ends in the block.
    pub(crate) ended: Option<BatchNumber>,
}

/// A block before it is sent.
#[derive(Debug)]
pub(crate) struct PendingBlock {
    pub(crate) buffer: AlignedBuffer,
    pub(crate) used: usize,
    pub(crate) touches: Vec<BatchTouch>,
    /// Batches that end in the block.
    pub(crate) batches: u64,
}

impl PendingBlock {
    /// Bytes that it takes in a file.
    pub(crate) const fn padded_bytes(&self) -> usize {
        padded(self.used)
    }

    /// Completes the block: checksums, header, zeros behind the payload. Gives the buffer, cut to
    /// what is to be written.
    pub(crate) fn seal(mut self, mut header: BlockHeader) -> (AlignedBuffer, Vec<BatchTouch>) {
        let length = self.used - HEADER_BYTES;
        header.length = u32::try_from(length).expect("a block is smaller than its limit");
        header.payload_crc = crc32c::crc32c(&self.buffer[HEADER_BYTES..self.used]);
        let end = padded(self.used);
        self.buffer[self.used..end].fill(0);
        header.write(&mut self.buffer);
        self.buffer.set_length(end);
        (self.buffer, self.touches)
    }

    fn touch(&mut self, shard: ShardId, batch: BatchNumber, ends: bool) {
        self.batches += u64::from(ends);
        let ended = ends.then_some(batch);
        match self.touches.iter_mut().rev().find(|touch| touch.shard == shard) {
            Some(touch) => {
                touch.last = batch;
                touch.ended = ended.or(touch.ended);
            }
            None => self.touches.push(BatchTouch { shard, first: batch, last: batch, ended }),
        }
    }
}

/// The row.
#[derive(Debug)]
pub(crate) struct PendingBatches {
    blocks: VecDeque<PendingBlock>,
    block_bytes: usize,
    bytes: usize,
    idle_buffers: Vec<AlignedBuffer>,
    idle_touches: Vec<Vec<BatchTouch>>,
}

impl PendingBatches {
    pub(crate) fn new(block_bytes: usize) -> Self {
        Self {
            blocks: VecDeque::new(),
            block_bytes,
            bytes: 0,
            idle_buffers: Vec::new(),
            idle_touches: Vec::new(),
        }
    }

    /// Bytes of blocks in the row.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Bytes that the next block to be sent takes in a file.
    pub(crate) fn front_bytes(&self) -> Option<usize> {
        self.blocks.front().map(PendingBlock::padded_bytes)
    }

    /// Bytes in a file that are enough for the row and one more batch of `length` bytes.
    pub(crate) fn padded_bytes_with(&self, length: usize) -> usize {
        let row: usize = self.blocks.iter().map(PendingBlock::padded_bytes).sum();
        let cuts = length / (self.block_bytes - HEADER_BYTES - ENTRY_BYTES) + 2;
        row + padded(length + cuts * (HEADER_BYTES + ENTRY_BYTES)) + self.block_bytes.min(padded(1))
    }

    /// Copies a batch to the end of the row.
    pub(crate) fn push(&mut self, head: BatchHead, bytes: &[u8]) {
        let mut rest = bytes;
        loop {
            let block_bytes = self.block_bytes;
            let needs_block =
                self.blocks.back().is_none_or(|block| block_bytes - block.used <= ENTRY_BYTES);
            if needs_block {
                let block = self.fresh();
                self.blocks.push_back(block);
            }
            let Some(block) = self.blocks.back_mut() else { continue };
            let count = rest.len().min(block_bytes - block.used - ENTRY_BYTES);
            let (now, later) = rest.split_at(count);
            let (begins, ends) = (rest.len() == bytes.len(), later.is_empty());
            let length = u32::try_from(count).expect("a part is smaller than a block");
            let at = block.used;
            let body = at + ENTRY_BYTES;
            block.buffer[at..body]
                .copy_from_slice(&Entry::new(head, length, begins, ends).to_bytes());
            block.buffer[body..body + count].copy_from_slice(now);
            block.used = body + count;
            block.touch(head.shard, head.batch, ends);
            self.bytes += ENTRY_BYTES + count;
            if ends {
                return;
            }
            rest = later;
        }
    }

    /// Takes the block that is to be sent next.
    pub(crate) fn pop(&mut self) -> Option<PendingBlock> {
        let block = self.blocks.pop_front()?;
        self.bytes -= block.used;
        Some(block)
    }

    /// Takes memory back for reuse.
    pub(crate) fn give_buffer(&mut self, mut buffer: AlignedBuffer) {
        if self.idle_buffers.len() < IDLE_BUFFERS {
            buffer.set_length(self.block_bytes);
            self.idle_buffers.push(buffer);
        }
    }

    /// Takes a list back for reuse.
    pub(crate) fn give_touches(&mut self, mut touches: Vec<BatchTouch>) {
        if self.idle_touches.len() < IDLE_BUFFERS {
            touches.clear();
            self.idle_touches.push(touches);
        }
    }

    fn fresh(&mut self) -> PendingBlock {
        self.bytes += HEADER_BYTES;
        let buffer =
            self.idle_buffers.pop().unwrap_or_else(|| AlignedBuffer::zeroed(self.block_bytes));
        PendingBlock {
            buffer,
            used: HEADER_BYTES,
            touches: self.idle_touches.pop().unwrap_or_default(),
            batches: 0,
        }
    }
}
