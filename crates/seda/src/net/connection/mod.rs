//! One connection: its socket, what was received of an unfinished frame, what is to be written, and
//! where it is in its life.
//!
//! ```text
//!   Dialling ─► Open ─► Flushing (nothing read any more) ─► Draining (our end shut, input discarded) ─► gone
//!                 └───────────── error, reset, abort, end of stream and everything answered ──────────────►
//! ```
//!
//! `socket` is the stream and what is known of its two directions, `input` the beginning of a frame,
//! `output` the queue of what is to be written, `holds` why it is not read from, `lists` on which
//! of the stage's lists it is.
//!
//! Draining lets the peer read our last words: closing a socket with unread input would reset it,
//! and destroy them.

mod input;
mod output;
mod socket;

use timestone_types::Timestamp;

use self::input::InputBuffer;
use self::output::OutputQueue;
pub(super) use self::output::{QueuedOutput, WriteResult};
use self::socket::SocketState;
use super::{ConnectionView, DisconnectReason, Stream};
use crate::FrameBatchPool;

/// Where a connection is in its life.
#[derive(Debug)]
pub(super) enum ConnectionPhase {
    /// Its dial is not answered yet.
    Dialling,
    /// Both directions work, as far as is known.
    Open,
    /// It is closed once its output is written.
    Flushing(DisconnectReason),
    /// Its output is written and our end shut; waits for the peer's end.
    Draining(DisconnectReason),
}

/// See the module.
#[derive(Debug)]
pub(super) struct NetConnection {
    pub(super) socket: SocketState,
    pub(super) view: ConnectionView,
    pub(super) phase: ConnectionPhase,
    pub(super) input: InputBuffer,
    pub(super) output: OutputQueue,
    pub(super) holds: ReadHolds,
    pub(super) lists: ListMembership,
    /// It has sent a frame.
    pub(super) used: bool,
    /// The last time that something was queued for or written to it.
    pub(super) progress: Timestamp,
}

/// Why a connection is not read from, beside what its socket and its phase say.
#[derive(Debug, Default)]
pub(super) struct ReadHolds {
    /// Its events that the retry queue keeps.
    pub(super) unsent_events: u32,
    /// Frames that were received wait for room at their stage.
    pub(super) stalled: bool,
    /// Its long frame waits for memory.
    pub(super) starving: bool,
    /// Its owner wants nothing more from it for the time being.
    pub(super) paused: bool,
    /// It was not read from because too much was queued for it; it is read on once much of that is
    /// written.
    pub(super) output_full: bool,
}

/// The lists of its stage that a connection is on.
#[derive(Debug, Default)]
pub(super) struct ListMembership {
    /// Those to be read from.
    pub(super) to_read: bool,
    /// Those to be written to.
    pub(super) to_write: bool,
    /// Those that are ending, which are looked at again at some time.
    pub(super) ending: bool,
    /// Those whose peers may have stalled.
    pub(super) slow: bool,
}

impl NetConnection {
    pub(super) fn new(
        stream: Stream,
        view: ConnectionView,
        phase: ConnectionPhase,
        now: Timestamp,
    ) -> Self {
        Self {
            socket: SocketState::new(stream),
            view,
            phase,
            input: InputBuffer::new(now),
            output: OutputQueue::new(now),
            holds: ReadHolds::default(),
            lists: ListMembership::default(),
            used: false,
            progress: now,
        }
    }

    /// Whether it takes output: commands to connections that are ending are dropped.
    #[inline]
    pub(super) fn takes_output(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Dialling | ConnectionPhase::Open)
    }

    /// Writes what is queued; see [`OutputQueue::write`].
    pub(super) fn write(
        &mut self,
        pool: &mut FrameBatchPool,
        writes: &mut u64,
        all: &mut QueuedOutput,
    ) -> WriteResult {
        self.output.write(&mut self.socket, pool, writes, all)
    }

    /// Gives all buffers back.
    pub(super) fn release(&mut self, pool: &mut FrameBatchPool, all: &mut QueuedOutput) {
        self.input.release(pool);
        self.output.release(pool, all);
    }

    /// Whether its peer may stall: it is owed something, or has begun a long frame.
    pub(super) const fn may_stall(&self) -> bool {
        self.output.bytes() > 0 || self.input.is_reserved()
    }
}

impl ReadHolds {
    /// Whether none but the output's length keeps it from being read.
    #[inline]
    pub(super) const fn allow_reading(&self) -> bool {
        self.unsent_events == 0 && !self.stalled && !self.starving && !self.paused
    }

    /// Whether everything that was received has been taken by its stages.
    #[inline]
    pub(super) const fn all_taken(&self) -> bool {
        self.unsent_events == 0 && !self.stalled
    }

    /// An event of its own was refused by a stage, and waits in the retry queue.
    #[inline]
    pub(super) fn event_kept(&mut self) {
        self.unsent_events += 1;
    }

    /// An event of its own left the retry queue. Whether it was the last one.
    #[inline]
    pub(super) fn event_sent(&mut self) -> bool {
        debug_assert!(self.unsent_events > 0, "an event left the retry queue that nobody counted");
        self.unsent_events -= 1;
        self.unsent_events == 0
    }
}
