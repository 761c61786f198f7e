//! Bugs on purpose: a model that cannot fail proves nothing. One is switched on for a whole run of
//! the program.

use std::sync::OnceLock;

/// What may be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bug {
    /// The fences of the sleeping flag are missing.
    NoFence,
    /// The flag is looked at before the event is pushed.
    WakeBeforePush,
    /// An event is counted as received before it was handled.
    EarlyReceipt,
    /// A thread calls itself quiet while events wait for room in a lane.
    QuietForEver,
    /// Counts are loaded and stored instead of added.
    LostUpdate,
    /// A counter that its thread alone may write is written by another one, too.
    TwoWriters,
    /// A thread is woken before it is ordered to stop.
    WakeBeforeOrder,
    /// A producer believes that a whole chunk always fits.
    BlindChunk,
}

static PLANTED: OnceLock<Option<Bug>> = OnceLock::new();

/// Switches a bug on, or says that there is none; once.
pub(crate) fn plant(bug: Option<Bug>) {
    PLANTED.set(bug).expect("bugs are planted once, at the start");
}

/// Whether it is switched on.
pub(crate) fn planted(bug: Bug) -> bool {
    PLANTED.get().copied().flatten() == Some(bug)
}
