//! The completion engine: operations on files in, completions out, on whatever the kernel offers.
//!
//! ```text
//!   submit ─► (batched) ─► flush ─► kernel / threads ─► poll ─► completions
//!                                       └─ signals wake_fd; wait() blocks for it
//! ```
//!
//! Invariants: what was accepted completes exactly once, in any order; `in_flight ≤ depth`; an
//! operation's file and buffers belong to the engine from acceptance to completion; dropping the
//! engine waits for what is in flight.
//!
//! What it deliberately does not do: order operations (submit the second after the first has
//! completed), merge them, or retry failures. Interrupted and short transfers are continued, so
//! that a completion is whole or an error.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::error::IoError;
use crate::limits::{DEFAULT_DEPTH, MAX_DEPTH, MAX_TRANSFER_BYTES, MAX_VECTORS};
use crate::op::{IoCompletion, IoOp, IoToken, Refused, RefusedReason};
use crate::threads::ThreadEngine;
use crate::uring::UringEngine;
use crate::wakeup::WakeSignal;

/// Which engine to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EngineChoice {
    /// io_uring where it works, threads otherwise.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// A small pool of threads with blocking calls.
    Threads,
}

/// Which engine is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// io_uring.
    Uring,
    /// `pread`/`pwrite` threads.
    Threads,
}

impl EngineKind {
    /// The name for logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uring => "io_uring",
            Self::Threads => "threads",
        }
    }
}

/// Settings of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoConfig {
    /// Most operations in flight, from 1 to [`MAX_DEPTH`].
    pub depth: u32,
    /// Which engine to use.
    pub engine: EngineChoice,
}

impl Default for IoConfig {
    fn default() -> Self {
        Self { depth: DEFAULT_DEPTH, engine: EngineChoice::Auto }
    }
}

/// Runs operations on files. Owned by one thread at a time; may be moved between threads.
#[derive(Debug)]
pub struct IoEngine {
    backend: Backend,
    depth: usize,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one engine per device, and every call goes through it: no indirection"
)]
enum Backend {
    Uring(UringEngine),
    Threads(ThreadEngine),
}

impl IoEngine {
    /// Starts an engine; `Auto` probes io_uring with a real round trip and logs what it chose.
    ///
    /// # Errors
    /// When the depth is out of bounds, io_uring was insisted on and does not work, or threads
    /// cannot be started.
    pub fn new(config: IoConfig) -> Result<Self, IoError> {
        Self::signalling(config, &WakeSignal::new()?)
    }

    /// The same, with a wake descriptor that other engines of the thread may signal as well.
    /// [`clear_wake`](Self::clear_wake) clears it for all, and so may [`wait`](Self::wait).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn signalling(config: IoConfig, wake: &WakeSignal) -> Result<Self, IoError> {
        if config.depth == 0 || config.depth > MAX_DEPTH {
            return Err(IoError::OutOfBounds {
                what: "the engine's depth",
                value: config.depth.into(),
                low: 1,
                high: MAX_DEPTH.into(),
            });
        }
        let wakeup = || Arc::clone(&wake.0);
        let backend = match config.engine {
            EngineChoice::Uring => Backend::Uring(UringEngine::new(config.depth, wakeup())?),
            EngineChoice::Threads => Backend::Threads(ThreadEngine::new(config.depth, wakeup())?),
            EngineChoice::Auto => match UringEngine::new(config.depth, wakeup()) {
                Ok(engine) => Backend::Uring(engine),
                Err(error) => {
                    tracing::info!(%error, "falling back to threads for file I/O");
                    Backend::Threads(ThreadEngine::new(config.depth, wakeup())?)
                }
            },
        };
        let engine = Self { backend, depth: config.depth as usize };
        tracing::debug!(
            engine = engine.kind().name(),
            depth = config.depth,
            "file I/O engine started"
        );
        Ok(engine)
    }

    /// Which engine is in use.
    #[must_use]
    pub fn kind(&self) -> EngineKind {
        match self.backend {
            Backend::Uring(_) => EngineKind::Uring,
            Backend::Threads(_) => EngineKind::Threads,
        }
    }

    /// Accepts an operation. It starts at the next [`flush`](Self::flush), [`poll`](Self::poll) or
    /// [`wait`](Self::wait).
    ///
    /// # Errors
    /// Gives the operation back when the queue is full or the operation is malformed.
    pub fn submit(&mut self, token: IoToken, op: IoOp) -> Result<(), Refused> {
        if self.in_flight() >= self.depth {
            return Err(Refused { reason: RefusedReason::QueueFull, token, op });
        }
        if !well_formed(&op) {
            return Err(Refused { reason: RefusedReason::Malformed, token, op });
        }
        match &mut self.backend {
            Backend::Uring(engine) => engine.submit(token, op),
            Backend::Threads(engine) => engine.submit(token, op),
        }
        Ok(())
    }

    /// Starts everything accepted so far. Never blocks.
    pub fn flush(&mut self) {
        match &mut self.backend {
            Backend::Uring(engine) => engine.flush(),
            Backend::Threads(engine) => engine.flush(),
        }
    }

    /// Flushes, then appends what has completed to `completions`; says how many. Never blocks.
    pub fn poll(&mut self, completions: &mut Vec<IoCompletion>) -> usize {
        match &mut self.backend {
            Backend::Uring(engine) => engine.poll(completions),
            Backend::Threads(engine) => engine.poll(completions),
        }
    }

    /// Flushes, then blocks until at least one completion waits to be polled, or `timeout` has
    /// passed, or nothing is in flight.
    pub fn wait(&mut self, timeout: Duration) {
        match &mut self.backend {
            Backend::Uring(engine) => engine.wait(timeout),
            Backend::Threads(engine) => engine.wait(timeout),
        }
    }

    /// Operations accepted and not yet polled.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        match &self.backend {
            Backend::Uring(engine) => engine.in_flight(),
            Backend::Threads(engine) => engine.in_flight(),
        }
    }

    /// Most operations in flight.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Becomes readable (a new edge each time) when something completes. Polling does not read it:
    /// register it with a [`Poller`](crate::Poller), which is edge-triggered, or call
    /// [`clear_wake`](Self::clear_wake) after each wake-up.
    #[must_use]
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        match &self.backend {
            Backend::Uring(engine) => engine.wake_fd(),
            Backend::Threads(engine) => engine.wake_fd(),
        }
    }

    /// Makes [`wake_fd`](Self::wake_fd) unreadable until the next completion, for level-triggered
    /// pollers. Call it *before* the poll that collects the completions.
    pub fn clear_wake(&self) {
        match &self.backend {
            Backend::Uring(engine) => engine.clear_wake(),
            Backend::Threads(engine) => engine.clear_wake(),
        }
    }
}

/// Whether lengths, buffers and offsets fit together.
fn well_formed(op: &IoOp) -> bool {
    let transfer = op.transfer_bytes();
    let offset = match op {
        IoOp::Read { buffer, length, offset, .. } | IoOp::Write { buffer, length, offset, .. } => {
            if *length > buffer.len() {
                return false;
            }
            *offset
        }
        IoOp::WriteMany { buffers, offset, .. } => {
            if buffers.is_empty() || buffers.len() > MAX_VECTORS {
                return false;
            }
            *offset
        }
        IoOp::Allocate { offset, length, .. } | IoOp::Zone { offset, length, .. } => {
            return offset.checked_add(*length).is_some_and(|end| i64::try_from(end).is_ok());
        }
        IoOp::Sync { .. } => 0,
    };
    transfer <= MAX_TRANSFER_BYTES
        && i64::try_from(offset).is_ok_and(|start| start.checked_add(transfer as i64).is_some())
}
