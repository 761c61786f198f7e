//! Everything that a coordinator can want done.

use timestone_types::{AbortReason, ShardId, Timestamp, TxnOutcome};

use crate::Refusal;

/// What the application is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitResult {
    /// Committed at this timestamp.
    Committed(Timestamp),
    /// Aborted, and which participant said why.
    Aborted {
        /// Why.
        reason: AbortReason,
        /// Whose reason; `None` when termination decided.
        by: Option<ShardId>,
    },
    /// Never executed: a participant refused before anything was promised anywhere (a clock far
    /// ahead, for example).
    Refused {
        /// Why.
        refusal: Refusal,
        /// Who refused.
        by: ShardId,
    },
    /// Not known before the deadline, or, with `external_wait`, not yet behind every clock.
    /// `txn status` answers later.
    Unknown,
}

/// What a coordinator wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Send that shard its part of the read and write set.
    Prepare {
        /// To whom.
        to: ShardId,
        /// The timestamp to try.
        commit: Timestamp,
        /// Whether it is the only participant (or the transaction is `Strict` read-only).
        single: bool,
    },
    /// Tell that shard the decision; may be batched and delayed.
    Decide {
        /// To whom.
        to: ShardId,
        /// The decision.
        outcome: TxnOutcome,
    },
    /// Send that shard its write set as a decided one.
    SendWriteSet {
        /// To whom.
        to: ShardId,
        /// The decided timestamp.
        commit: Timestamp,
    },
    /// Ask that shard to bring the transaction to its end, with all participants.
    Terminate {
        /// To whom.
        to: ShardId,
    },
    /// Tell the application. Exactly once.
    Finished(CommitResult),
    /// Everybody has acknowledged: the transaction counts for the acked bound, the coordinator may
    /// be reset. Exactly once, last.
    Done,
}
