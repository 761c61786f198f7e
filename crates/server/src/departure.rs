//! A server that is being stopped hands its primaries over while it serves; then its stages end.
//!
//! ```text
//!   whoever stops the server ── begin ──► node stage: other replicas become primaries ── ends ──► the stages' own end
//! ```
//! Whoever stops it waits no longer than [`HAND_OVER_TIMEOUT`]: then what was not handed over is
//! followed as if the server had died. Source: docs/protocol/membership.md, "A server that is
//! stopped". What is deliberately absent: how primaries move; that is the controller's.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How long a server that is being stopped waits at most for others to have taken its primaries.
/// Its leases run down in one second; then their choice, the master's answer, the merge of their
/// tables and word of it take milliseconds each.
pub const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(4);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Departure {
    begun: AtomicBool,
    over: AtomicBool,
}

impl Departure {
    /// The server is being stopped.
    pub(crate) fn begin(&self) {
        self.begun.store(true, Relaxed);
    }

    /// Whether it is.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Relaxed)
    }

    /// Nothing is left that could be handed over.
    pub(crate) fn end(&self) {
        debug_assert!(self.has_begun(), "a departure ends after it has begun");
        self.over.store(true, Relaxed);
    }

    /// Whether the stages may end.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }
}
