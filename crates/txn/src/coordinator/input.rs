//! Everything that a coordinator can be told.

use core::time::Duration;

use timestone_types::{ShardId, Timestamp, TxnId};

use crate::Refusal;
use crate::participant::{TxnStatus, Vote};

/// What kind of commit is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitKind {
    /// Reads and writes: two-phase commit, or one phase when there is one participant.
    ReadWrite,
    /// A `Strict` read-only transaction: every participant validates that what was read is still
    /// the latest. Nothing is recorded, no decision is sent.
    StrictReadOnly,
}

/// What a coordinator can be told.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Start to commit. Only on a fresh (new or reset) coordinator.
    Commit {
        /// Which transaction.
        txn: TxnId,
        /// Its snapshot.
        begin: Timestamp,
        /// The first timestamp to try: the session's now, above begin and above every version read.
        commit: Timestamp,
        /// Every shard read or written; it never changes. At least one, no shard twice.
        participants: &'a [ShardId],
        /// What kind of commit.
        kind: CommitKind,
        /// `external = "wait"`: acknowledge only when the clock's error bound has passed the commit
        /// timestamp.
        external_wait: bool,
        /// The clock's error bound now.
        error_bound: Duration,
        /// After this point the application is told `Unknown` (resolution goes on).
        deadline: Timestamp,
    },
    /// A vote. Counted only for the current timestamp, once per shard, and only from participants.
    Vote {
        /// Whose.
        from: ShardId,
        /// The timestamp it is about.
        commit: Timestamp,
        /// The vote.
        vote: Vote,
        /// A small random step to add if the vote is `Later`; the machine has no entropy of its
        /// own.
        step: Duration,
    },
    /// A participant did not serve the prepare or the request for termination.
    Refused {
        /// Who.
        from: ShardId,
        /// Why.
        refusal: Refusal,
    },
    /// A participant has made the decision durable.
    Acked {
        /// Who.
        from: ShardId,
    },
    /// The answer to `Terminate`.
    StatusIs {
        /// Who answers.
        from: ShardId,
        /// What it knows.
        status: TxnStatus,
    },
    /// A participant that was told *committed* never saw the prepare.
    WriteSetWanted {
        /// Who.
        from: ShardId,
    },
    /// Connections to this participant died: whatever was sent may be lost.
    Disconnected {
        /// Who.
        from: ShardId,
    },
    /// Time passed. Due at `next_deadline`.
    Tick {
        /// The clock's error bound now.
        error_bound: Duration,
    },
}
