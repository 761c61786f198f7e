//! What a shard is given for one call, and what it wants done: its whole connection with the world.
//!
//! ```text
//!   Input, time, buffers ─► Shard ─► Output: answers, log batches, messages to other shards
//! ```
//! Whoever hosts the shard carries the outputs out, in their order. What finds no room is kept there
//! and sent later; the shard is told that something waits ([`Turn::has_unsent`]).

use std::sync::Arc;

use timestone_cluster::ShardMap;
use timestone_seda::{FrameBatch, FrameBatchPool, StageId};
use timestone_types::{ShardId, Timestamp};
use timestone_wal::{BatchHead, BatchNumber};

use crate::limits::HELD_BATCH_BYTES;

/// A log that cannot make its next file.
#[derive(Clone, Debug)]
pub struct LogShortage {
    /// Bytes of new writes that it may still take.
    pub room_bytes: u64,
    /// What is wrong and what to do, for whoever is refused.
    pub words: Arc<str>,
}

/// A shard's records of one turn.
#[derive(Debug)]
pub struct LogAppend {
    /// Whose it is, and its place among what the shard wrote.
    pub head: BatchHead,
    /// The records, each with its length in front.
    pub bytes: Vec<u8>,
}

/// What a shard hears of.
#[derive(Debug)]
pub enum Input {
    /// Frames of one connection, or of another stage.
    FrameBatch(FrameBatch),
    /// All batches up to and including this one survive a crash.
    LogDurable {
        /// The last durable batch.
        batch: BatchNumber,
    },
    /// The logs of one stage can hand out none of the batches before this one at a recovery any
    /// more.
    LogRetained {
        /// The log stage.
        log: StageId,
        /// The oldest batch that it may hand out.
        from: BatchNumber,
    },
    /// The shard shall append again what it still needs of its batches below this one.
    LogCopyForward {
        /// The first batch that is not meant.
        below: BatchNumber,
    },
    /// How much may still be let in while a log cannot make its next file; `None`: it can again.
    LogRoom {
        /// The log stage.
        log: StageId,
        /// What it lacks.
        shortage: Option<LogShortage>,
    },
    /// A log failed for good.
    LogFailed {
        /// The log stage.
        log: StageId,
    },
    /// The shard map has changed.
    MapChanged(Arc<ShardMap>),
    /// Whether another replica is to become primary soon: leases are short then.
    Leases {
        /// Whether they are short from now on.
        are_short: bool,
    },
}

/// What a shard wants done.
#[derive(Debug)]
pub enum Output {
    /// Answers, for the stage of their reply address.
    Answer(FrameBatch),
    /// A message to another shard. It may be dropped where there is no room for it: termination
    /// repeats its questions.
    ToPeer {
        /// The stage of the other shard, or the one that forwards to its process.
        to: StageId,
        /// The message.
        frame_batch: FrameBatch,
    },
    /// Records for a log.
    LogAppend {
        /// The log stage.
        log: StageId,
        /// The records.
        append: LogAppend,
    },
    /// The shard needs none of its batches below `keep_from` any more.
    LogRelease {
        /// The log stage.
        log: StageId,
        /// The shard.
        shard: ShardId,
        /// The first batch that it still needs.
        keep_from: BatchNumber,
    },
}

impl Output {
    /// Whether whoever receives it would have nothing to do.
    const fn is_empty(&self) -> bool {
        match self {
            Self::Answer(frame_batch) | Self::ToPeer { frame_batch, .. } => {
                frame_batch.bytes.is_empty()
            }
            Self::LogAppend { append, .. } => append.bytes.is_empty(),
            Self::LogRelease { .. } => false,
        }
    }
}

/// One call of a shard. See the module.
#[derive(Debug)]
pub struct Turn<'a> {
    now: Timestamp,
    stage: StageId,
    is_shutting_down: bool,
    has_unsent: bool,
    is_log_busy: bool,
    finished: (u64, u64),
    pub(crate) buffers: &'a mut FrameBatchPool,
    outputs: &'a mut Vec<Output>,
}

impl<'a> Turn<'a> {
    /// A call at `now` of the shard that other stages know as `stage`.
    pub fn new(
        now: Timestamp,
        stage: StageId,
        buffers: &'a mut FrameBatchPool,
        outputs: &'a mut Vec<Output>,
    ) -> Self {
        debug_assert!(outputs.is_empty(), "what the last call wanted is carried out");
        Self {
            now,
            stage,
            is_shutting_down: false,
            has_unsent: false,
            is_log_busy: false,
            finished: (0, 0),
            buffers,
            outputs,
        }
    }

    /// The process ends: finish what was accepted, accept nothing new.
    #[must_use]
    pub const fn shutting_down(mut self, is_shutting_down: bool) -> Self {
        self.is_shutting_down = is_shutting_down;
        self
    }

    /// Something that the shard wanted sent waits for room.
    #[must_use]
    pub const fn with_unsent(mut self, has_unsent: bool) -> Self {
        self.has_unsent = has_unsent;
        self
    }

    /// The log writes what it was given before, and takes nothing up until that is done: what is
    /// recorded may wait for it, to be one batch.
    #[must_use]
    pub const fn with_busy_log(mut self, is_log_busy: bool) -> Self {
        self.is_log_busy = is_log_busy;
        self
    }

    /// Requests and bytes that were let in and are dealt with now.
    #[must_use]
    pub const fn finished(&self) -> (u64, u64) {
        self.finished
    }

    /// The time of this call.
    #[inline]
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// The shard's own address.
    pub(crate) const fn stage(&self) -> StageId {
        self.stage
    }

    pub(crate) const fn is_shutting_down(&self) -> bool {
        self.is_shutting_down
    }

    pub(crate) const fn has_unsent(&self) -> bool {
        self.has_unsent
    }

    /// Bytes from which on the open batch leaves at the end of the turn.
    pub(crate) const fn least_batch(&self) -> usize {
        if self.is_log_busy && !self.is_shutting_down { HELD_BATCH_BYTES } else { 0 }
    }

    /// A batch of frames is dealt with. What stages of one process send each other comes without a
    /// count of frames: it passed no door, so there is nothing to release.
    pub(crate) fn finish_frame_batch(&mut self, frame_batch: FrameBatch) {
        debug_assert!(
            frame_batch.frames as usize <= frame_batch.bytes.len(),
            "each frame that was let in has bytes"
        );
        if frame_batch.frames > 0 {
            self.finished.0 += u64::from(frame_batch.frames);
            self.finished.1 += frame_batch.bytes.len() as u64;
        }
        self.buffers.give(frame_batch.bytes);
    }

    #[inline]
    pub(crate) fn send(&mut self, output: Output) {
        debug_assert!(!output.is_empty(), "nothing is sent for nothing");
        self.outputs.push(output);
    }
}
