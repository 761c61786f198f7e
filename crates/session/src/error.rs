//! Why an operation failed without taking place.

use core::time::Duration;

use timestone_types::{KeyspaceId, ShardId, Span, Timestamp, limits};
use timestone_wire::{ErrorCode, ProtocolVersion, READS_RANGES};

/// A key, value or transaction is larger than the store accepts. Told at `put`, never at commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LimitError {
    /// The key is empty.
    #[error("the key is empty; a key has at least one byte")]
    EmptyKey,
    /// The key is too long.
    #[error("the key has {bytes} bytes; a key has at most {limit}", limit = limits::MAX_KEY_BYTES)]
    KeyTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The value is too long.
    #[error("the value has {bytes} bytes; a value has at most {limit}: store it in pieces", limit = limits::MAX_VALUE_BYTES)]
    ValueTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The transaction would carry too many bytes.
    #[error("the transaction would carry {bytes} bytes; it may carry at most {limit}: commit in \
        pieces", limit = limits::MAX_TXN_BYTES)]
    TransactionTooLarge {
        /// What it would carry, in bytes of keys and values.
        bytes: usize,
    },
    /// The transaction would touch too many keys.
    #[error("the transaction already touches {limit} keys, the most it may: commit in pieces", limit = limits::MAX_TXN_KEYS)]
    TooManyKeys,
    /// The transaction would have read too many ranges.
    #[error("the transaction has read {limit} ranges that do not touch each other, or ranges with very long \
        ends: no more are kept", limit = limits::MAX_TXN_RANGES)]
    TooManyRanges,
}

/// Why an operation failed. Nothing of the operation took place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SessionError {
    /// The session was closed, or never opened.
    #[error("the session is closed; open another one")]
    NoSession,
    /// The transaction has finished already.
    #[error("the transaction has finished already; begin another one")]
    NoTransaction,
    /// A limit of keys, values or transactions.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A write in a transaction that was begun read-only.
    #[error(
        "the transaction was begun read-only and cannot write; begin it without read_only or \
         snapshot_at"
    )]
    ReadOnly,
    /// A transaction that clears a keyspace, and writes to it or reads it as well.
    #[error(
        "a transaction that clears keyspace {keyspace} writes nothing to it, and reads nothing of it \
         afterwards; clear it in a transaction of its own"
    )]
    ClearsKeyspace {
        /// The keyspace.
        keyspace: KeyspaceId,
    },
    /// A snapshot in the future.
    #[error(
        "a snapshot at {at} lies {} in the future of this client's clock, {now}; ask for an \
         earlier one",
        Span(at.since(*now))
    )]
    SnapshotInFuture {
        /// The snapshot asked for.
        at: Timestamp,
        /// The clock.
        now: Timestamp,
    },
    /// A queue or a server is full.
    #[error("the server is busy; try again in {}", Span(*retry_after))]
    Busy {
        /// How long to wait before the next attempt.
        retry_after: Duration,
    },
    /// This client's clock is too far ahead of the server's. Never retried silently.
    #[error(
        "this machine's clock is {} ahead of the server's, more than the {} allowed; set the clock \
         right",
        Span(*lead), Span(limits::MAX_CLOCK_LEAD)
    )]
    ClockAhead {
        /// How far ahead.
        lead: Duration,
    },
    /// This client's clock is so far behind the servers' that what it begins is too old for them.
    /// Never retried silently.
    #[error(
        "this machine's clock is at least {} behind the server's, and servers wait for clocks that \
         are up to {} behind; set the clock right",
        Span(*lag), Span(limits::MAX_CLOCK_LAG)
    )]
    ClockBehind {
        /// How far behind, at least.
        lag: Duration,
    },
    /// The deadline passed before an answer came.
    #[error(
        "no answer came before the deadline; the request had no effect, so it may be asked again"
    )]
    DeadlineExceeded,
    /// The transaction's own deadline had passed when its commit was asked for.
    #[error("the transaction's deadline had passed before its commit was begun; it had no effect")]
    CommitTooLate,
    /// The transaction was open longer than allowed.
    #[error("the transaction was open for longer than {}; commit earlier, or read from a snapshot", Span(*limit))]
    TooLong {
        /// The most it may stay open.
        limit: Duration,
    },
    /// The server has ended this client's session; the host must ask for a new client id.
    #[error(
        "the server has ended this client's session because it was silent; the client must say \
         hello again"
    )]
    SessionEnded,
    /// No shard owns the key's slot.
    #[error(
        "no shard serves this key's slot at the moment; try again when the shard map has changed"
    )]
    NoShard,
    /// The host has no path to the server of the key's shard, or it has none yet.
    #[error(
        "shard {shard} is served by {server}, and this server has no connection there: nothing was \
         done; try it again, or send it there"
    )]
    Elsewhere {
        /// The shard.
        shard: ShardId,
        /// Its server, in words.
        server: Box<str>,
    },
    /// The server of a shard is older than what it is asked for.
    #[error(
        "the server of shard {shard} speaks version {protocol} of the protocol, and {} need version \
         {needed}: update that server",
        if *.needed == READS_RANGES { "ranges of keys" } else { "ranges that are read downwards" }
    )]
    Outdated {
        /// The shard.
        shard: ShardId,
        /// The version that is spoken with its server.
        protocol: ProtocolVersion,
        /// The lowest version that would do.
        needed: ProtocolVersion,
    },
    /// Nobody who answered knows, and these did not answer.
    #[error("{} did not answer before the deadline, and no other shard knows of it; ask again when \
        their servers are up", shards_named(.shards))]
    Silent {
        /// The shards that did not answer.
        shards: Vec<ShardId>,
    },
    /// The server refused the request for another reason.
    #[error("the server refused the request: {message}")]
    Refused {
        /// The wire's code.
        code: ErrorCode,
        /// The server's words.
        message: String,
    },
}

fn shards_named(shards: &[ShardId]) -> String {
    let names: Vec<String> = shards.iter().map(ToString::to_string).collect();
    format!("shard{} {}", if names.len() == 1 { "" } else { "s" }, names.join(", "))
}

impl SessionError {
    /// The stable code that people and programs know it by; `None` for a mistake in the use of the
    /// engine, which has none.
    #[must_use]
    pub const fn code(&self) -> Option<ErrorCode> {
        Some(match self {
            Self::NoSession | Self::NoTransaction => return None,
            Self::Limit(LimitError::EmptyKey)
            | Self::ReadOnly
            | Self::ClearsKeyspace { .. }
            | Self::SnapshotInFuture { .. } => ErrorCode::BadArgument,
            Self::Limit(LimitError::KeyTooLong { .. }) => ErrorCode::KeyTooLong,
            Self::Limit(LimitError::ValueTooLong { .. }) => ErrorCode::ValueTooLong,
            Self::Limit(LimitError::TransactionTooLarge { .. }) => ErrorCode::TxnTooLarge,
            Self::Limit(LimitError::TooManyKeys | LimitError::TooManyRanges) => {
                ErrorCode::TxnTooManyKeys
            }
            Self::Busy { .. } => ErrorCode::Busy,
            Self::ClockAhead { .. } => ErrorCode::ClockAhead,
            Self::ClockBehind { .. } => ErrorCode::ClientClockBehind,
            Self::DeadlineExceeded | Self::Silent { .. } => ErrorCode::Timeout,
            Self::Elsewhere { .. } => ErrorCode::Unavailable,
            Self::Outdated { .. } => ErrorCode::VersionMismatch,
            Self::TooLong { .. } | Self::CommitTooLate => ErrorCode::TxnTooLong,
            Self::SessionEnded => ErrorCode::SessionEnded,
            Self::NoShard => ErrorCode::WrongShard,
            Self::Refused { code, .. } => *code,
        })
    }

    /// Whether asking again may succeed without a change on the caller's side.
    #[must_use]
    pub const fn retryable(&self) -> bool {
        match self {
            Self::Busy { .. }
            | Self::DeadlineExceeded
            | Self::Silent { .. }
            | Self::SessionEnded
            | Self::NoShard => true,
            Self::Refused { code, .. } => code.retryable(),
            _ => false,
        }
    }

    /// Whether a transaction in which it occurs is over. With [`Busy`](Self::Busy) one that allows
    /// `max_staleness` may be, or not: the next operation says so.
    #[must_use]
    pub const fn ends_transaction(&self) -> bool {
        matches!(
            self,
            Self::NoTransaction
                | Self::ClockAhead { .. }
                | Self::ClockBehind { .. }
                | Self::TooLong { .. }
                | Self::CommitTooLate
                | Self::SessionEnded
        )
    }
}
