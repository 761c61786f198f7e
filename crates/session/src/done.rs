//! What comes of an operation that could not be answered at once.
//!
//! Results borrow the engine's own buffers: a value is copied once, from the frame into the
//! transaction's arena.

use core::fmt;

use timestone_types::{AbortKind, AbortReason, Expiry, KeyspaceId, Timestamp, TxnId, Version};

use timestone_wire::ErrorCode;

use crate::{OpId, SessionError};

/// A finished operation, handed out by [`crate::Engine::next_done`].
#[derive(Clone, PartialEq, Debug)]
pub struct Done<'a> {
    /// The host's name for the operation.
    pub op: OpId,
    /// What came of it.
    pub result: OpResult<'a>,
}

/// What came of an operation.
#[derive(Clone, PartialEq, Debug)]
pub enum OpResult<'a> {
    /// A read's answer. Absence is an answer too.
    Value(ValueView<'a>),
    /// A transaction took place.
    Committed(Committed),
    /// A single-key write took place.
    Written(Written<'a>),
    /// The transaction, or the single-key write, did not take place and never will.
    Aborted(Abort<'a>),
    /// The deadline passed before the outcome of the transaction was learned.
    /// [`crate::Engine::status`] may tell later.
    Unknown(TxnId),
    /// The answer to [`crate::Engine::status`].
    Status(TxnStatus),
    /// The answer to [`crate::Engine::ask`]: the whole reply frame, to be decoded with
    /// `timestone-wire`.
    Frame(&'a [u8]),
    /// The operation failed; nothing of it took place. In a transaction, the transaction is over
    /// only when [`SessionError::ends_transaction`] says so, or when it is given up because no replica
    /// that answers has come as far as its snapshot ([`SessionError::Busy`]).
    Failed(SessionError),
}

/// A key that a transaction is to write, and its value; nothing when it is deleted.
pub type OwnWrite<'a> = (Vec<u8>, Option<ValueView<'a>>);

/// One key's state at the snapshot it was read at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ValueView<'a> {
    /// The value; `None` when the key is absent.
    pub value: Option<&'a [u8]>,
    /// The version read; a tombstone's or expired record's when absent; [`Version::ZERO`] when
    /// nothing was ever written, or when this is the transaction's own write, which has no version
    /// yet.
    pub version: Version,
    /// When the value becomes absent.
    pub expires_at: Expiry,
}

impl fmt::Debug for ValueView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Some(value) => write!(f, "\"{}\"@{}", value.escape_ascii(), self.version),
            None => write!(f, "nothing@{}", self.version),
        }
    }
}

/// A commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Its place in the order of all transactions; the begin timestamp for a read-only one.
    pub timestamp: Timestamp,
    /// The transaction; `None` when it committed without a message.
    pub txn: Option<TxnId>,
}

/// A single-key write that took place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written<'a> {
    /// The timestamp of the version written; where nothing had to be deleted, the request's place
    /// in the order of all.
    pub timestamp: Timestamp,
    /// The request's id.
    pub txn: TxnId,
    /// What the key had before, when that was asked for
    /// ([`crate::RequestOptions::return_previous`]).
    pub previous: Option<ValueView<'a>>,
}

/// A key as people name it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyName<'a> {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// Its bytes.
    pub key: &'a [u8],
}

impl fmt::Debug for KeyName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.keyspace, self.key.escape_ascii())
    }
}

/// Why a transaction did not take place, in words that an application can act on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abort<'a> {
    /// The kind, the other transaction and the timestamp that stood in the way.
    pub reason: AbortReason,
    /// The key that met it; `None` when no single key did.
    pub key: Option<KeyName<'a>>,
    /// The version of that key which this transaction had read, when it had.
    pub read: Option<Version>,
    /// What the key has, when the condition of a single-key write did not hold; the value only when
    /// it was asked for.
    pub found: Option<ValueView<'a>>,
    /// The aborted transaction; `None` when it was refused before it asked for a commit.
    pub txn: Option<TxnId>,
}

impl Abort<'_> {
    /// Whether running the work again may succeed.
    #[must_use]
    pub const fn retryable(&self) -> bool {
        self.reason.kind.retryable()
    }

    /// The stable code that people and programs know it by.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        ErrorCode::of_abort(self.reason.kind)
    }

    /// The kind of the abort.
    #[must_use]
    pub const fn kind(&self) -> AbortKind {
        self.reason.kind
    }
}

/// What the participants know about a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxnStatus {
    /// Committed, with this timestamp.
    Committed(Timestamp),
    /// Aborted.
    Aborted,
    /// Prepared and not decided yet.
    Prepared(Timestamp),
    /// Nothing is known: it never arrived, or everybody has forgotten it.
    Unknown,
}
