//! What the handle of a runtime orders its threads to do: finish, then stop.
//!
//! ```text
//!   handle: order, then wake every poller          thread: sleep? only if nothing new was ordered (looked at behind the announcement)
//!                                                          each turn: look again
//! ```
//! Orders are given once and never taken back. Invariant: whoever gives one wakes all threads
//! behind it, whether they sleep or not, and a poller remembers a wake-up that finds it awake; so a
//! thread that missed the order does not block, or not for long. Waking is the caller's business.

use crate::sync::{AtomicBool, Ordering};

/// The orders of one runtime.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    shutting_down: AtomicBool,
    stopped: AtomicBool,
}

impl Orders {
    /// Stages shall finish.
    pub(crate) fn begin_shutdown(&self) {
        self.shutting_down.store(true, Ordering::SeqCst);
    }

    /// Threads shall end.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// Whether stages shall finish.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::Acquire)
    }

    /// Whether threads shall end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// For a thread that is about to sleep: whether there is no order that it does not know.
    /// `finishing`: it knows of the shutdown.
    pub(crate) fn nothing_new(&self, finishing: bool) -> bool {
        !self.stopped.load(Ordering::Relaxed)
            && self.shutting_down.load(Ordering::Relaxed) == finishing
    }
}
