//! What a caller may say about a transaction or a request, and how an operation answers at once.

use core::time::Duration;

use timestone_types::{Expiry, Timestamp, Version, is_planted};

use crate::{Ticket, done::ValueView};

/// How a transaction is to run. `default()` is a serializable read-write transaction that begins
/// now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxnOptions {
    /// Refuse writes. Costs nothing, gains nothing but the check.
    pub read_only: bool,
    /// Even when nothing is written, validate at commit that every version read is still the
    /// latest: externally consistent.
    pub strict: bool,
    /// Read as of this point in time instead of now; implies `read_only`. Zero and the future are
    /// refused.
    pub snapshot_at: Option<Timestamp>,
    /// Read as of a time that is no longer past than this, and let backups answer; implies
    /// `read_only`. The snapshot never lies below what the session has seen. With `snapshot_at` that
    /// is the snapshot, and backups may answer. Not with `strict` or `external_wait`: these are about
    /// the present, and primaries alone are asked.
    pub max_staleness: Option<Duration>,
    /// Acknowledge the commit only when the clock's error bound has passed the commit timestamp; one
    /// that writes nothing has read the latest state then, unless it has a `snapshot_at`.
    pub external_wait: bool,
    /// When to stop waiting, for every operation of the transaction and for its commit. `None`: the
    /// configured default after each call.
    pub deadline: Option<Timestamp>,
}

impl TxnOptions {
    /// Whether backups may answer its reads.
    pub(crate) const fn reads_at_backups(&self) -> bool {
        self.max_staleness.is_some() && !self.strict && !self.external_wait
    }

    /// Whether it commits only if nothing that it has read has changed since. Where keyspaces wait for the
    /// clocks, whoever reads the present does so; what was asked of the past promises nothing about it.
    pub(crate) fn must_be_latest(&self) -> bool {
        let is_past = self.snapshot_at.is_some() && !is_planted!(RefusesSnapshots);
        self.strict || self.external_wait && !is_past
    }
}

/// How a request outside a transaction is to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestOptions {
    /// When to stop trying; then a read fails and a write's outcome is `Unknown`. `None`: the
    /// configured default.
    pub deadline: Option<Timestamp>,
    /// Acknowledge a write only when the clock's error bound has passed its timestamp.
    pub external_wait: bool,
    /// The answer to a write carries the value that the key had before.
    pub return_previous: bool,
}

/// What a single-key write does to its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation<'a> {
    /// Writes a value.
    Put {
        /// The value's bytes.
        value: &'a [u8],
        /// When it becomes absent.
        expires_at: Expiry,
    },
    /// Writes a value and keeps the expiry that the key has (Redis's KEEPTTL).
    PutKeepExpiry {
        /// The value's bytes.
        value: &'a [u8],
    },
    /// Makes the key absent. Where it is absent already nothing is written, and the request
    /// succeeds.
    Delete,
}

/// When a single-key write takes place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Condition<'a> {
    /// In any case.
    #[default]
    Always,
    /// Only when the key is absent (Redis's NX).
    Absent,
    /// Only when the key is present (Redis's XX).
    Present,
    /// Only when the key is present with this version (compare and set); [`Version::ZERO`] means
    /// absent.
    VersionIs(Version),
    /// Only when the key is present with this value.
    ValueIs(&'a [u8]),
}

/// How an operation answers the call that began it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<'a> {
    /// A read was answered from the transaction itself.
    Value(ValueView<'a>),
    /// The operation is finished and has no result, or a commit needed no message and took place at
    /// this timestamp.
    Committed(Timestamp),
    /// A [`crate::Done`] will follow.
    Pending(Ticket),
}
