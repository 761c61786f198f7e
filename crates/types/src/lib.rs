//! The vocabulary of Timestone: keys, versions, timestamps, ids, slots, limits and the reasons of
//! aborts.
//!
//! Everything above is written in these words. The crate does no I/O, reads no clock and has next
//! to no dependencies, so that every protocol core can be built from it alone. Sources: SEMEL §3
//! (versions), MILANA §4.1 (timestamps), DTranx (ids).
//!
//! What is deliberately absent: byte layouts of messages, logs and pages (they live in `wire`,
//! `wal`, `store`), and any notion of "now".

/// Whether a bug, or one of several, is planted on this thread; never where planted bugs are not
/// compiled. See [`planted`].
#[cfg(feature = "planted-bugs")]
#[macro_export]
macro_rules! is_planted {
    ($($bug:ident)|+) => {
        $($crate::planted::is_planted($crate::planted::Bug::$bug))||+
    };
}
/// Whether a bug is planted on this thread: never, as planted bugs are not compiled.
#[cfg(not(feature = "planted-bugs"))]
#[macro_export]
macro_rules! is_planted {
    ($($bug:ident)|+) => {
        $crate::never_planted()
    };
}

/// What [`is_planted!`] comes to: the compiler removes what hangs on it.
#[cfg(not(feature = "planted-bugs"))]
#[doc(hidden)]
#[inline]
#[must_use]
pub fn never_planted() -> bool {
    false
}

mod abort;
mod generated;
mod id;
mod key;
pub mod limits;
#[cfg(feature = "planted-bugs")]
pub mod planted;
pub mod random;
mod range;
mod time;

pub use abort::{AbortKind, AbortReason, PreviousFound, TxnOutcome};
pub use generated::GeneratedRun;
pub use id::{ClientId, ClusterId, Epoch, KeyspaceId, Sequence, ShardId, TxnId};
pub use key::{
    HashSeed, HashedKey, KeyHash, KeyRef, SLOT_COUNT, Slot, check_key, hash_key, slot_of,
};
pub use range::{Direction, KeyRange, key_behind, prefix_end};
pub use time::{Expiry, Span, Timestamp, Version};
