//! Puts batches together again from the entries of blocks.
//!
//! Invariant: a batch is handed out only when all its parts were seen, in direct succession. Parts
//! whose beginning was reclaimed with an older file are passed over, at the start of the log only.

use core::ops::Range;

use crate::BatchHead;
use crate::block::{BlockHeader, Entry};
use crate::limits::MAX_BATCH_BYTES;

/// Where the bytes of a whole batch are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum BatchAt {
    /// Here in the payload of the block.
    Payload(Range<usize>),
    /// In [`Assembler::joined`].
    Joined,
}

/// What an entry led to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AssembleStep {
    /// A batch is whole.
    Batch(BatchHead, BatchAt),
    /// A part was kept, or passed over.
    Part(BatchHead),
    /// The payload is at its end.
    End,
}

#[derive(Debug, Default)]
pub(crate) struct Assembler {
    joined: Vec<u8>,
    open: Option<BatchHead>,
    /// The beginning of a batch was seen.
    started: bool,
    cursor: usize,
}

impl Assembler {
    /// The bytes of the batch that [`BatchAt::Joined`] speaks of.
    pub(crate) fn joined(&self) -> &[u8] {
        &self.joined
    }

    /// Begins a block; `true` when that leaves a batch unfinished for good.
    pub(crate) fn begin_block(&mut self, header: &BlockHeader) -> bool {
        self.cursor = 0;
        header.opened && self.open.take().is_some()
    }

    /// After damage: what comes next may begin in the middle of a batch. `true` when a batch is
    /// left unfinished.
    pub(crate) fn reset(&mut self) -> bool {
        self.started = false;
        self.open.take().is_some()
    }

    /// Whether a batch waits for its end.
    pub(crate) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Takes the next entry of the block's payload.
    pub(crate) fn step(&mut self, payload: &[u8]) -> Result<AssembleStep, &'static str> {
        let rest = payload.get(self.cursor..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(AssembleStep::End);
        }
        let (entry, bytes, rest) =
            Entry::split(rest).ok_or("an entry does not follow the format")?;
        let end = payload.len() - rest.len();
        self.cursor = end;
        let head = entry.head;
        if entry.part.begins() {
            if self.open.is_some() {
                return Err("a batch begins before the one before it has ended");
            }
            self.started = true;
            if entry.part.ends() {
                return Ok(AssembleStep::Batch(head, BatchAt::Payload(end - bytes.len()..end)));
            }
            self.joined.clear();
            self.open = Some(head);
        } else if self.open.is_none() && !self.started {
            return Ok(AssembleStep::Part(head));
        } else if self.open != Some(head) {
            return Err("a part of a batch does not follow the part before it");
        }
        if self.joined.len() + bytes.len() > MAX_BATCH_BYTES {
            return Err("a batch is larger than any that was ever accepted");
        }
        self.joined.extend_from_slice(bytes);
        if entry.part.ends() {
            self.open = None;
            return Ok(AssembleStep::Batch(head, BatchAt::Joined));
        }
        Ok(AssembleStep::Part(head))
    }
}
