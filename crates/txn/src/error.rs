//! Why a participant does not serve a request. A refusal is *not* a vote: it decides nothing about
//! the transaction.

use core::time::Duration;

use timestone_types::{Span, Timestamp, TxnId};

/// A request that was not served, and what its sender may do about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The snapshot lies below the watermark: versions that it needs may be gone.
    #[error(
        "the snapshot is older than the shard's watermark {watermark}; begin a new transaction"
    )]
    TooOld {
        /// The watermark that refused it.
        watermark: Timestamp,
    },
    /// The timestamp runs further ahead of this server's clock than
    /// [`timestone_types::limits::MAX_CLOCK_LEAD`].
    #[error(
        "the client's clock is {} ahead of the server's, more than is allowed; check the clocks' \
         synchronisation",
        Span(*lead)
    )]
    ClockAhead {
        /// How far ahead it is.
        lead: Duration,
    },
    /// The timestamp leads this server's time because a step of the server's clock is held: it is
    /// let in when that has passed.
    #[error(
        "the server's clock has stepped and its time follows slowly, so that the request is {} too \
         early; try again shortly",
        Span(*wait)
    )]
    ClockHeld {
        /// For how long at least.
        wait: Duration,
    },
    /// What was served before the restart lies so far ahead of this server's clock that nothing is
    /// written until the clock has passed it, and nothing is read that was lost.
    #[error(
        "the server's clock is {} behind what it has served before its restart: until it has passed \
         that, nothing is written, and keyspaces in memory are not read; \
         other reads go on. Set the clock right, or wait",
        Span(*left)
    )]
    ClockBehind {
        /// For how long.
        left: Duration,
    },
    /// The key is prepared by a transaction that was not decided in time, and the request cannot be
    /// answered around it.
    #[error(
        "the key is being written by transaction {other}, which was not decided in time; try again"
    )]
    Prepared {
        /// The transaction in the way.
        other: TxnId,
    },
    /// The transaction was finished and acknowledged earlier; its outcome is no longer kept.
    #[error(
        "the transaction was finished and acknowledged earlier, so it is not executed again; its \
         outcome is no longer kept"
    )]
    Finished,
    /// The transaction is being terminated: its promise can no longer move to a later timestamp.
    /// Ask for its outcome.
    #[error("the transaction is being terminated; ask for its outcome")]
    Terminating,
    /// The shard is still reading its log after a restart, or does not know yet what it may tell:
    /// time has not come so far again as the last run may have told of, the log is late, or another
    /// of its replicas may be primary by now.
    #[error(
        "the shard is still recovering, or its log is late, or another replica may be its primary; \
         try again shortly"
    )]
    Recovering,
    /// A bound of [`crate::limits`] is reached.
    #[error("the shard has too many requests waiting or transactions undecided; try again shortly")]
    Busy,
    /// The log has failed: nothing can be made durable before a restart, neither a write nor that
    /// something was read.
    #[error(
        "the server's log has failed, so nothing can be written, and only the latest versions be \
         read, until its cause is removed and the server is restarted"
    )]
    LogLost,
    /// A decision contradicts one that is already durable here. Nothing was changed.
    #[error(
        "the decision contradicts the one that this shard has recorded; report this as a bug, with \
         the transaction's id"
    )]
    Contradiction,
}

impl Refusal {
    /// Whether the same request may succeed when it is sent again later.
    #[must_use]
    pub const fn retryable(&self) -> bool {
        matches!(
            self,
            Self::Prepared { .. } | Self::Recovering | Self::Busy | Self::ClockHeld { .. }
        )
    }
}
