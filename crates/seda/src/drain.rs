//! When nothing is under way between threads any more: Mattern's four counters.
//!
//! ```text
//!   sender: sent += n, then push          receiver: take, handle, received += n, quiet?
//!   look:   every thread quiet, Σ received, then Σ sent; equal, and once more the same numbers: drained
//! ```
//!
//! Invariant: an event is counted as sent before anybody can take it, and as received only when the
//! turn that handled it has ended, with all that it sent counted. So equal sums leave nothing on
//! the way, provided that nothing moved between two looks.

use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// What one thread tells about the events that pass by it.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// During shutdown: stages drained and queues empty, as of the end of its last turn.
    quiet: AtomicBool,
    /// Events handed to other threads, counted before they are pushed.
    sent: AtomicU64,
    /// Events handed to it from outside, counted before they are pushed.
    injected: AtomicU64,
    /// Events taken from lanes and injector, counted at the end of the turn that handled them.
    received: AtomicU64,
}

impl Counts {
    /// The thread itself, before it pushes so many events for another one.
    pub(crate) fn will_send(&self, events: u64) {
        self.sent.store(self.sent.load(Ordering::Relaxed).wrapping_add(events), Ordering::Release);
    }

    /// Anybody, before an event is pushed for this thread.
    pub(crate) fn will_inject(&self) {
        self.injected.fetch_add(1, Ordering::AcqRel);
    }

    /// The event was not pushed after all.
    pub(crate) fn did_not_inject(&self) {
        self.injected.fetch_sub(1, Ordering::AcqRel);
    }

    /// The thread itself: a turn begins in which anything may happen.
    pub(crate) fn begin_turn(&self) {
        self.quiet.store(false, Ordering::Release);
    }

    /// The thread itself, at the end of a turn: all events that it ever took have been handled.
    pub(crate) fn end_turn(&self, received: u64) {
        self.received.store(received, Ordering::Release);
    }

    /// The thread itself, behind [`Counts::end_turn`]: whether it has anything left.
    pub(crate) fn say_quiet(&self, quiet: bool) {
        self.quiet.store(quiet, Ordering::Release);
    }
}

/// The sums of sent and received events, if every thread says that it is quiet.
fn quiet_sums<'a>(threads: impl Iterator<Item = &'a Counts> + Clone) -> Option<(u64, u64)> {
    let (mut sent, mut received) = (0u64, 0u64);
    for thread in threads.clone() {
        if !thread.quiet.load(Ordering::Acquire) {
            return None;
        }
        received = received.wrapping_add(thread.received.load(Ordering::Acquire));
    }
    for thread in threads {
        sent = sent.wrapping_add(thread.sent.load(Ordering::Acquire));
        sent = sent.wrapping_add(thread.injected.load(Ordering::Acquire));
    }
    Some((sent, received))
}

/// Whether every thread is quiet and nothing is on the way between them.
pub(crate) fn is_drained<'a>(threads: impl Iterator<Item = &'a Counts> + Clone) -> bool {
    let first = quiet_sums(threads.clone());
    first.is_some_and(|(sent, received)| sent == received) && quiet_sums(threads) == first
}
