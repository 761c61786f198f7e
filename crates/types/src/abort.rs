//! Why a transaction did not commit, in terms that an application can act on.

use core::fmt;

use crate::{Timestamp, TxnId};

/// The kind of an abort. Every kind but [`AbortKind::Requested`] is worth a retry as a new
/// transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum AbortKind {
    /// A key that was read has a newer committed version.
    ReadConflict = 1,
    /// A key to be written was committed or is being committed by somebody else.
    WriteConflict = 2,
    /// A key that was read is prepared by another transaction that was not decided in time.
    Prepared = 3,
    /// The commit timestamp stayed too low in every round.
    Timestamp = 4,
    /// A value that was read expired before commit.
    Expired = 5,
    /// The snapshot lies below the watermark: versions it needs may be gone. Or what became of the
    /// transaction is not known any more.
    TooOld = 6,
    /// A condition of a single-key request (compare-and-set, NX, XX) did not hold.
    Condition = 7,
    /// Termination decided abort, because the coordinator was silent or some participant never
    /// prepared.
    Terminated = 8,
    /// The application asked for it.
    Requested = 9,
}

impl AbortKind {
    /// All kinds, in the order of their numbers; for metrics and tables.
    pub const ALL: [Self; 9] = [
        Self::ReadConflict,
        Self::WriteConflict,
        Self::Prepared,
        Self::Timestamp,
        Self::Expired,
        Self::TooOld,
        Self::Condition,
        Self::Terminated,
        Self::Requested,
    ];

    /// The kind with this number, as layouts store it.
    #[must_use]
    pub const fn from_u8(raw: u8) -> Option<Self> {
        if raw == 0 || raw as usize > Self::ALL.len() {
            None
        } else {
            Some(Self::ALL[raw as usize - 1])
        }
    }

    /// A short lower-case name with underscores, for metrics and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadConflict => "read_conflict",
            Self::WriteConflict => "write_conflict",
            Self::Prepared => "prepared",
            Self::Timestamp => "timestamp",
            Self::Expired => "expired",
            Self::TooOld => "too_old",
            Self::Condition => "condition",
            Self::Terminated => "terminated",
            Self::Requested => "requested",
        }
    }

    /// Whether running the work again as a new transaction may succeed.
    #[must_use]
    pub const fn retryable(self) -> bool {
        !matches!(self, Self::Requested | Self::Condition)
    }
}

/// Why a participant refused, with what is needed to explain it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AbortReason {
    /// What went wrong.
    pub kind: AbortKind,
    /// Which read (first) or write (after the reads) of the refused request met it, counted from 0;
    /// `None` when no key did.
    pub item: Option<u32>,
    /// The other transaction, where it is known.
    pub other: Option<TxnId>,
    /// The version's or watermark's timestamp that stood in the way; zero when there is none.
    pub at: Timestamp,
}

impl AbortReason {
    /// A reason that names no key and no other transaction.
    #[must_use]
    pub const fn of(kind: AbortKind) -> Self {
        Self { kind, item: None, other: None, at: Timestamp::ZERO }
    }
}

impl fmt::Display for AbortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadConflict => "a key that was read has been written since",
            Self::WriteConflict => "a key to be written is being written by another transaction",
            Self::Prepared => {
                "a key that was read is being written by a transaction that was not decided in time"
            }
            Self::Timestamp => "the commit timestamp stayed too low in every round",
            Self::Expired => "a value that was read expired before commit",
            Self::TooOld => "the snapshot is older than the versions that are kept",
            Self::Condition => "the condition of the write did not hold",
            Self::Terminated => "the transaction was ended because its client was silent",
            Self::Requested => "the application asked for the abort",
        })
    }
}

/// What a single-key write found under its key, kept with its outcome so that a repeat is told the
/// same. The previous version itself stays readable as long as a repeat is answered; whether it had
/// expired is remembered here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum PreviousFound {
    /// It did not look.
    #[default]
    Unasked = 0,
    /// Nothing, or nothing that was visible.
    Absent = 1,
    /// A value.
    Present = 2,
}

impl PreviousFound {
    /// What a write that looked has found.
    #[must_use]
    pub const fn of(present: bool) -> Self {
        if present { Self::Present } else { Self::Absent }
    }

    /// The one with this number, as layouts store it.
    #[must_use]
    pub const fn from_u8(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(Self::Unasked),
            1 => Some(Self::Absent),
            2 => Some(Self::Present),
            _ => None,
        }
    }
}

/// What became of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxnOutcome {
    /// Committed, with this timestamp.
    Committed(Timestamp),
    /// Aborted.
    Aborted,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_read_back_from_their_numbers() {
        for kind in AbortKind::ALL {
            assert_eq!(AbortKind::from_u8(kind as u8), Some(kind));
        }
        assert_eq!(AbortKind::from_u8(0), None);
        assert_eq!(AbortKind::from_u8(10), None);
    }
}
