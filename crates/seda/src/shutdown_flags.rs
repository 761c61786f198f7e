//! Flags by which the handle of a runtime tells its threads to finish, and then to stop.
//!
//! ```text
//!   handle: set a flag, then wake every poller     thread: sleep? only if no flag was set meanwhile (looked at behind the announcement)
//!                                                          each turn: look again
//! ```
//! Flags are set once and never cleared. Invariant: whoever sets one wakes all threads afterwards,
//! whether they sleep or not, and a poller remembers a wake-up that finds it awake; so a thread
//! that missed the flag does not block, or not for long. Waking is the caller's business.

use crate::sync::{AtomicBool, Ordering};

/// The flags of one runtime.
#[derive(Debug, Default)]
pub(crate) struct ShutdownFlags {
    shutting_down: AtomicBool,
    stopped: AtomicBool,
}

impl ShutdownFlags {
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

    /// For a thread that is about to sleep: whether no flag is set that it does not know.
    /// `finishing`: it knows of the shutdown.
    pub(crate) fn nothing_new(&self, finishing: bool) -> bool {
        !self.stopped.load(Ordering::Relaxed)
            && self.shutting_down.load(Ordering::Relaxed) == finishing
    }
}
