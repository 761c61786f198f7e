//! What a stage is, and all that it sees of the world while it works.
//!
//! ```text
//!                    ┌──────────── one turn of the thread ────────────┐
//!   ready(sockets) ─►│ handle(batch) ─► turn() ─► (again while events │─► flush()  once, at the end
//!                    │                             keep passing)      │
//!                    └─────────────────────────────────────────────────┘
//! ```
//!
//! Invariants: a stage never blocks and reads no clock but [`Context::now`]; everything that it
//! wants done is an event sent through the context. A [`Context`] is built by any [`Driver`]:
//! threads and sockets here, the simulator elsewhere.

use core::fmt;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use mio::event::Source;
use mio::{Interest, Registry, Token};
use timestone_types::Timestamp;

use crate::{FrameBatch, FrameBatchPool, Gauge, ReplyAddress};

/// Names a stage within its runtime: its index in the list handed to [`crate::Runtime::start`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageId(u16);

impl StageId {
    /// The stage at this index.
    #[must_use]
    pub const fn new(index: u16) -> Self {
        Self(index)
    }

    /// Its index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for StageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

impl fmt::Debug for StageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// Where the driver takes the time from, once per turn. Any `Fn() -> Timestamp` will do.
pub trait TimeSource: Send + Sync + 'static {
    /// The present.
    fn now(&self) -> Timestamp;
}

impl<F: Fn() -> Timestamp + Send + Sync + 'static> TimeSource for F {
    fn now(&self) -> Timestamp {
        self()
    }
}

/// A handler that owns its state and turns batches of events of type `E` into events for other
/// stages.
pub trait Stage<E>: Send {
    /// Its name in metrics, logs and panics, such as `shard-3`.
    fn name(&self) -> &str;

    /// Called once, on the thread that the stage will live on, before anything else.
    fn start(&mut self, _ctx: &mut Context<'_, E>) {}

    /// Handles a batch, in order. What is left in `events` stays queued, ahead of newer ones, and
    /// is offered again in the next turn (not in the same one).
    fn handle(&mut self, ctx: &mut Context<'_, E>, events: &mut VecDeque<E>);

    /// Called after `handle` or `ready`, when a deadline has passed, when the wake descriptor was
    /// readable, when it was asked for with [`Context::want_turn`], and at the start and the
    /// beginning of shutdown: the place for the work of a whole batch. May be called several times
    /// in a turn of the thread, as events come back from other stages.
    fn turn(&mut self, _ctx: &mut Context<'_, E>) {}

    /// Called once at the end of a turn of the thread in which the stage did anything, after all
    /// stages came to rest: I/O stages write here.
    fn flush(&mut self, _ctx: &mut Context<'_, E>) {}

    /// The sockets, registered through [`Context::io`], that became ready (edge-triggered).
    fn ready(&mut self, _ctx: &mut Context<'_, E>, _ready: &[Readiness]) {}

    /// When `turn` shall be called at the latest; asked after every turn of the stage. Waking is
    /// punctual to some 50 µs.
    fn next_deadline(&self) -> Option<Timestamp> {
        None
    }

    /// A descriptor whose readiness means that `turn` shall be called (the eventfd of a completion
    /// engine). Registered edge-triggered for the stage's whole life; the stage reads it empty, if
    /// it needs that.
    fn wake_fd(&self) -> Option<RawFd> {
        None
    }

    /// Whether nothing is left to do; asked during shutdown only. Must become true without new
    /// input from outside.
    fn drained(&self) -> bool {
        true
    }
}

/// What became ready, by the stage's own token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The token given at registration.
    pub token: u64,
    /// There is something to read (or an end of stream, or an error).
    pub readable: bool,
    /// There is room to write (or an error).
    pub writable: bool,
    /// The peer sends nothing more after what can be read.
    pub read_closed: bool,
    /// Nothing can be written any more.
    pub write_closed: bool,
}

/// Bits of an operating-system token that hold a stage's own token; those above hold the stage's
/// place on its thread.
pub(crate) const TOKEN_BITS: u32 = 44;

/// Registers sockets with the thread's poller on behalf of one stage.
#[derive(Debug)]
pub struct IoRegistry<'a> {
    /// None where the driver has no poller: only sockets that are not the operating system's can be
    /// registered then.
    pub(crate) registry: Option<&'a Registry>,
    pub(crate) base: usize,
    pub(crate) stage: StageId,
}

impl IoRegistry<'_> {
    /// Reports `source`'s readiness to the stage under `token` (below 2^44), edge-triggered.
    ///
    /// # Errors
    /// What the operating system says, such as a full table.
    pub fn register(
        &self,
        source: &mut impl Source,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        self.poller()?.register(source, self.token(token), interest)
    }

    /// No longer reports it.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn deregister(&self, source: &mut impl Source) -> io::Result<()> {
        self.poller()?.deregister(source)
    }

    /// The stage that registers.
    #[must_use]
    pub const fn stage(&self) -> StageId {
        self.stage
    }

    fn poller(&self) -> io::Result<&Registry> {
        let none = || {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "this driver has no poller for sockets of the system",
            )
        };
        self.registry.ok_or_else(none)
    }

    fn token(&self, token: u64) -> Token {
        assert!(token < 1 << TOKEN_BITS, "a stage's token must fit {TOKEN_BITS} bits");
        Token(self.base | token as usize)
    }
}

/// What a driver does for the stage that it is running. Implemented by the threads of this crate,
/// by [`crate::manual::ManualDriver`] for tests, and by [`crate::simulated`].
pub trait Driver<E> {
    /// Queues an event for a stage; gives it back when the queue is full.
    ///
    /// # Errors
    /// The event itself, when there is no room.
    fn send(&mut self, from: StageId, to: StageId, event: E) -> Result<(), E>;

    /// What is admitted to a stage.
    fn gauge(&self, stage: StageId) -> &Gauge;

    /// The thread's poller, for the I/O stages; none where there are no sockets.
    fn io(&self, stage: StageId) -> Option<IoRegistry<'_>>;

    /// Tells that this many clients on the same machine came (or went, if negative): they need the
    /// cores too, so that threads spin less.
    fn note_local_peers(&mut self, change: i64);
}

/// All that a stage sees while it works.
pub struct Context<'a, E> {
    driver: &'a mut dyn Driver<E>,
    frame_batches: &'a mut FrameBatchPool,
    now: Timestamp,
    stage: StageId,
    shutting_down: bool,
    wants_turn: bool,
}

impl<'a, E> Context<'a, E> {
    /// A context for one call of `stage`, made by its driver.
    pub fn new(
        driver: &'a mut dyn Driver<E>,
        frame_batches: &'a mut FrameBatchPool,
        now: Timestamp,
        stage: StageId,
        shutting_down: bool,
    ) -> Self {
        Self { driver, frame_batches, now, stage, shutting_down, wants_turn: false }
    }

    /// The time, read once per turn of the thread.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// The stage itself.
    #[must_use]
    pub const fn stage(&self) -> StageId {
        self.stage
    }

    /// Queues an event for a stage (itself included). Same thread: handled in this turn; other
    /// thread: it is woken if it sleeps.
    ///
    /// # Errors
    /// The event itself when the queue is full: keep it, ask for a turn later (a deadline), or
    /// refuse the work.
    #[inline]
    pub fn send(&mut self, to: StageId, event: E) -> Result<(), E> {
        self.driver.send(self.stage, to, event)
    }

    /// The buffers of this thread.
    pub fn frame_batches(&mut self) -> &mut FrameBatchPool {
        self.frame_batches
    }

    /// An empty batch of frames.
    #[must_use]
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.frame_batches.take()
    }

    /// Gives a buffer back.
    pub fn give_buffer(&mut self, buffer: Vec<u8>) {
        self.frame_batches.give(buffer);
    }

    /// An empty outgoing batch of frames for a connection.
    #[must_use]
    pub fn take_frame_batch(&mut self, reply_to: ReplyAddress) -> FrameBatch {
        FrameBatch::new(reply_to, self.frame_batches.take())
    }

    /// Gives back the buffer of a batch of frames that this stage received and is finished with,
    /// and releases what was admitted with it. What stages of one process send each other comes
    /// without a count of frames: it passed no door, so there is nothing to release.
    pub fn finish_frame_batch(&mut self, frame_batch: FrameBatch) {
        if frame_batch.frames > 0 {
            self.driver
                .gauge(self.stage)
                .release(u64::from(frame_batch.frames), frame_batch.bytes.len() as u64);
        }
        self.frame_batches.give(frame_batch.bytes);
    }

    /// The buffers and the driver, borrowed side by side.
    pub(crate) fn pool_and_driver(&mut self) -> (&mut FrameBatchPool, &dyn Driver<E>) {
        (self.frame_batches, self.driver)
    }

    /// What is admitted to a stage.
    #[must_use]
    pub fn gauge(&self, stage: StageId) -> &Gauge {
        self.driver.gauge(stage)
    }

    /// Registers sockets; none where the driver has no poller.
    #[must_use]
    pub fn io(&self) -> Option<IoRegistry<'_>> {
        self.driver.io(self.stage)
    }

    /// See [`Driver::note_local_peers`].
    pub fn note_local_peers(&mut self, change: i64) {
        self.driver.note_local_peers(change);
    }

    /// Asks that `turn` be called in the next turn of the thread, which then does not sleep before
    /// it.
    pub fn want_turn(&mut self) {
        self.wants_turn = true;
    }

    /// Whether [`Context::want_turn`] was called; for drivers.
    #[must_use]
    pub const fn wants_turn(&self) -> bool {
        self.wants_turn
    }

    /// Whether the runtime is shutting down: finish what was accepted, accept nothing new.
    #[must_use]
    pub const fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }
}

impl<E> fmt::Debug for Context<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("stage", &self.stage)
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}
