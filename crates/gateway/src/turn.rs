//! What a gateway is given for one call, and what it wants done: its whole connection with the
//! world.
//!
//! ```text
//!   Input, time, buffers ─► Gateway ─► Output: answers for clients, frames for shards, other servers and the node
//! ```
//! Whoever hosts the gateway carries the outputs out, in their order, and keeps what finds no room.

use std::sync::Arc;

use timestone_cluster::ShardMap;
use timestone_seda::{FrameBatch, FrameBatchPool, NetCommand, NetEvent, StageId};
use timestone_types::{ShardId, Timestamp};

/// What a gateway hears of.
#[derive(Debug)]
pub enum Input {
    /// Bytes of a client, or answers of a shard, another server or the node.
    FrameBatch(FrameBatch),
    /// A connection opened or closed, or has been written to: a client's, or one to another server.
    Net(NetEvent),
    /// The shard map has changed.
    MapChanged(Arc<ShardMap>),
}

/// What a gateway wants done.
#[derive(Debug)]
pub enum Output {
    /// Bytes for a client, for the stage of their reply address.
    Answer(FrameBatch),
    /// Frames for another server, for the stage of their reply address.
    ToServer(FrameBatch),
    /// Frames for a shard of this process.
    ToShard {
        /// The shard.
        shard: ShardId,
        /// The frames.
        frame_batch: FrameBatch,
    },
    /// A shard of this thread was called: its stage is to have a turn.
    Called(ShardId),
    /// A question for the node, which has maps and client ids.
    ToNode(FrameBatch),
    /// For the stage that has a connection.
    Net {
        /// The stage.
        to: StageId,
        /// What it shall do.
        command: NetCommand,
    },
}

/// One call of a gateway. See the module.
#[derive(Debug)]
pub struct Turn<'a> {
    now: Timestamp,
    is_shutting_down: bool,
    has_unsent: bool,
    /// The gateway wants another call at once.
    pub(crate) wants_turn: bool,
    released: (u64, u64),
    buffers: &'a mut FrameBatchPool,
    outputs: &'a mut Vec<Output>,
}

impl<'a> Turn<'a> {
    /// A call at `now`.
    pub const fn new(
        now: Timestamp,
        buffers: &'a mut FrameBatchPool,
        outputs: &'a mut Vec<Output>,
    ) -> Self {
        debug_assert!(outputs.is_empty(), "what was wanted before was carried out");
        Self {
            now,
            has_unsent: false,
            is_shutting_down: false,
            wants_turn: false,
            released: (0, 0),
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

    /// Something that the gateway wanted sent waits for room.
    #[must_use]
    pub const fn with_unsent(mut self, has_unsent: bool) -> Self {
        self.has_unsent = has_unsent;
        self
    }

    /// Whether the gateway wants another call at once.
    #[must_use]
    pub const fn wants_turn(&self) -> bool {
        self.wants_turn
    }

    /// Requests and bytes that were let in and need not be counted any longer.
    #[must_use]
    pub const fn released(&self) -> (u64, u64) {
        self.released
    }

    /// The time of this call.
    #[inline]
    pub(crate) const fn now(&self) -> Timestamp {
        self.now
    }

    pub(crate) const fn is_shutting_down(&self) -> bool {
        self.is_shutting_down
    }

    /// Whether everything that was ever sent has found room, and this call sends nothing.
    pub(crate) const fn has_sent_all(&self) -> bool {
        !self.has_unsent && self.outputs.is_empty()
    }

    /// An empty buffer.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        let buffer = self.buffers.take();
        debug_assert!(buffer.is_empty(), "a buffer that was given back is empty");
        buffer
    }

    /// Where buffers are given back.
    pub(crate) const fn buffers(&mut self) -> &mut FrameBatchPool {
        self.buffers
    }

    /// So much of what was let in need not be counted any longer.
    pub(crate) const fn release(&mut self, requests: u64, bytes: u64) {
        self.released.0 += requests;
        self.released.1 += bytes;
        debug_assert!(self.released.0 >= requests && self.released.1 >= bytes, "they are few");
    }

    /// A batch of frames is dealt with. What stages of one process send each other comes without a
    /// count of frames: it passed no door, so there is nothing to release.
    pub(crate) fn finish_frame_batch(&mut self, frame_batch: FrameBatch) {
        debug_assert!(frame_batch.frames == 0 || !frame_batch.bytes.is_empty());
        if frame_batch.frames > 0 {
            self.release(u64::from(frame_batch.frames), frame_batch.bytes.len() as u64);
        }
        self.buffers.give(frame_batch.bytes);
    }

    #[inline]
    pub(crate) fn send(&mut self, output: Output) {
        let is_empty = match &output {
            Output::Answer(batch) | Output::ToServer(batch) | Output::ToNode(batch) => {
                batch.bytes.is_empty()
            }
            Output::ToShard { frame_batch, .. } => frame_batch.bytes.is_empty(),
            Output::Net { .. } | Output::Called(_) => false,
        };
        debug_assert!(!is_empty, "nothing is sent for nothing");
        self.outputs.push(output);
    }
}
