//! Replies as the engine and its managers understand them, read in place, and what a refusal on the
//! wire means here.

use core::time::Duration;

use timestone_txn::participant;
use timestone_types::{Expiry, Timestamp, TxnId, TxnOutcome, Version};
use timestone_wire::{
    DecideAck, ErrorCode, ErrorReply, FetchWriteSet, Frame, Kind, Message, StatusIs, TxnState,
    Value, Verdict, Vote, WireError, Written,
};

use super::number::Asker;
use crate::{SessionError, TxnStatus, ValueView, limits};

/// A read's answer as it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadAnswer<'a> {
    pub(crate) version: Version,
    pub(crate) expires_at: Expiry,
    /// A write that was prepared at or below the snapshot was not decided in time.
    pub(crate) prepared_before: bool,
    pub(crate) value: Option<&'a [u8]>,
}

/// A reply, as far as the engine cares.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply<'a> {
    /// A read's answer.
    Value(ReadAnswer<'a>),
    /// A participant's vote, for one commit timestamp. A `late` one was given in an older epoch.
    Vote { txn: TxnId, commit: Timestamp, vote: participant::Vote, late: bool },
    /// A single-key write's answer; the previous value where it was asked for or the condition
    /// failed.
    Written { commit: Timestamp, vote: participant::Vote, previous: ValueView<'a> },
    /// A decision is durable.
    Acked { txn: TxnId },
    /// A decision came without its prepare.
    WriteSetWanted { txn: TxnId },
    /// What is known of a transaction.
    Status { txn: TxnId, status: TxnStatus },
    /// A refusal.
    Fault(Fault<'a>),
    /// Anything else; the host may have asked it.
    Other,
}

/// Reads a reply in place.
pub(crate) fn read<'a>(frame: &Frame<'a>) -> Result<Reply<'a>, WireError> {
    Ok(match frame.kind() {
        Kind::Value => {
            let Value { version, expires_at, prepared_before, present, value } =
                Value::decode(frame)?;
            let value = present.then_some(value);
            Reply::Value(ReadAnswer { version, expires_at, prepared_before, value })
        }
        Kind::Vote => {
            let Vote { txn, commit, verdict } = Vote::decode(frame)?;
            Reply::Vote { txn, commit, vote: vote_of(verdict), late: false }
        }
        Kind::Written => {
            let written = Written::decode(frame)?;
            let previous = ValueView {
                value: written.previous_present.then_some(written.previous_value),
                version: written.previous_version,
                expires_at: written.previous_expires_at,
            };
            Reply::Written { commit: written.commit, vote: vote_of(written.verdict), previous }
        }
        Kind::DecideAck => Reply::Acked { txn: DecideAck::decode(frame)?.txn },
        Kind::FetchWriteSet => Reply::WriteSetWanted { txn: FetchWriteSet::decode(frame)?.txn },
        Kind::StatusIs => {
            let StatusIs { txn, state } = StatusIs::decode(frame)?;
            Reply::Status { txn, status: state.into() }
        }
        Kind::ErrorReply => Reply::Fault(ErrorReply::decode(frame)?.into()),
        _ => Reply::Other,
    })
}

const fn vote_of(verdict: Verdict) -> participant::Vote {
    match verdict {
        Verdict::Yes => participant::Vote::Yes,
        Verdict::Later(at) => participant::Vote::Later(at),
        Verdict::No(reason) => participant::Vote::No(reason),
    }
}

impl Reply<'_> {
    /// Whether every time that it names may be one that a clock has shown. A session goes on above
    /// what it hears of, so one reply of a broken server could leave it without timestamps.
    #[inline]
    pub(crate) fn is_of_this_age(&self) -> bool {
        let latest = match *self {
            Self::Value(answer) => answer.version.timestamp,
            Self::Vote { commit, vote, .. } | Self::Written { commit, vote, .. } => {
                commit.max(latest_of(vote))
            }
            Self::Status { status, .. } => match status {
                TxnStatus::Prepared(at) | TxnStatus::Committed(at) => at,
                TxnStatus::Unknown | TxnStatus::Aborted => Timestamp::ZERO,
            },
            Self::Fault(Fault::TooOld { watermark }) => watermark,
            Self::Acked { .. } | Self::WriteSetWanted { .. } | Self::Fault(_) | Self::Other => {
                Timestamp::ZERO
            }
        };
        latest <= limits::LAST_TIMESTAMP
    }
}

impl<'a> Reply<'a> {
    /// What is left of an answer that was given in an older epoch than the one in which its shard is
    /// known to be, perhaps by a primary that was deposed: what it says for good stands in the
    /// records that the new primary has merged, and is true in every epoch. The rest rests on what
    /// one primary knew, and the new one may know more.
    pub(crate) fn in_older_epoch(self, asker: Asker) -> Option<Self> {
        use participant::Vote::{Decided, Later, No, Yes};
        match self {
            // A snapshot lies below the lease that it was read under, and the new primary lets
            // nothing in there.
            Self::Value(_) => Some(self).filter(|_| asker == Asker::Read),
            Self::Vote { txn, commit, vote: vote @ (Yes | No(_) | Decided(_)), .. } => {
                Some(Self::Vote { txn, commit, vote, late: true })
            }
            Self::Written { vote: Yes | No(_) | Decided(_), .. }
            | Self::Acked { .. }
            | Self::Status { status: TxnStatus::Committed(_) | TxnStatus::Aborted, .. } => {
                Some(self)
            }
            Self::Fault(_) => Some(Self::Fault(Fault::NotServing { retry_after: Duration::ZERO })),
            Self::Vote { vote: Later(_), .. }
            | Self::Written { vote: Later(_), .. }
            | Self::Status { .. }
            | Self::WriteSetWanted { .. }
            | Self::Other => None,
        }
    }
}

const fn latest_of(vote: participant::Vote) -> Timestamp {
    match vote {
        participant::Vote::Later(at) | participant::Vote::Decided(TxnOutcome::Committed(at)) => at,
        participant::Vote::No(reason) => reason.at,
        participant::Vote::Yes | participant::Vote::Decided(TxnOutcome::Aborted) => Timestamp::ZERO,
    }
}

impl From<TxnState> for TxnStatus {
    fn from(state: TxnState) -> Self {
        match state {
            TxnState::Unknown | TxnState::Forgotten => Self::Unknown,
            TxnState::Prepared(at) => Self::Prepared(at),
            TxnState::Committed(at) => Self::Committed(at),
            TxnState::Aborted => Self::Aborted,
        }
    }
}

/// Why a request was not served, by what the engine does about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault<'a> {
    /// Overload: ask again after a while.
    Busy { retry_after: Duration },
    /// Whoever was asked does not serve the shard at present: ask again after a while, and look for
    /// a newer map meanwhile.
    NotServing { retry_after: Duration },
    /// The shard or its epoch is another one: fetch the map, ask again.
    WrongRoute,
    /// The snapshot is below the watermark.
    TooOld { watermark: Timestamp },
    /// The timestamp is too far in the server's future.
    ClockAhead { lead: Duration },
    /// A prepared write was not decided in time: ask again.
    Prepared { other: TxnId },
    /// The client's session is over, or the request was finished and forgotten.
    SessionEnded,
    /// The transaction is being terminated.
    Terminating,
    /// For the application to see.
    Other { code: ErrorCode, message: &'a str },
}

impl<'a> From<ErrorReply<'a>> for Fault<'a> {
    fn from(error: ErrorReply<'a>) -> Self {
        match error.code {
            ErrorCode::Busy | ErrorCode::Timeout => {
                Self::Busy { retry_after: error.retry_after().unwrap_or_default() }
            }
            ErrorCode::Unavailable => {
                Self::NotServing { retry_after: error.retry_after().unwrap_or_default() }
            }
            ErrorCode::WrongShard | ErrorCode::StaleEpoch => Self::WrongRoute,
            ErrorCode::SnapshotTooOld => {
                Self::TooOld { watermark: Timestamp::from_nanos(error.detail) }
            }
            ErrorCode::ClockAhead => Self::ClockAhead { lead: Duration::from_nanos(error.detail) },
            ErrorCode::Prepared => Self::Prepared { other: error.other.unwrap_or_default() },
            ErrorCode::SessionEnded => Self::SessionEnded,
            ErrorCode::Terminated => Self::Terminating,
            code => Self::Other { code, message: error.message },
        }
    }
}

impl Fault<'_> {
    /// Whether the server serves, and has no room for this.
    pub(crate) const fn lacks_room(&self) -> bool {
        matches!(self, Self::Busy { retry_after } if !retry_after.is_zero())
    }
}

impl From<Fault<'_>> for SessionError {
    fn from(fault: Fault<'_>) -> Self {
        match fault {
            Fault::Busy { retry_after } | Fault::NotServing { retry_after } => {
                Self::Busy { retry_after }
            }
            Fault::WrongRoute => Self::NoShard,
            Fault::ClockAhead { lead } => Self::ClockAhead { lead },
            Fault::SessionEnded => Self::SessionEnded,
            Fault::Other { code, message } => Self::Refused { code, message: message.to_owned() },
            Fault::TooOld { .. } => Self::Refused {
                code: ErrorCode::SnapshotTooOld,
                message: "the snapshot is too old".to_owned(),
            },
            Fault::Prepared { .. } | Fault::Terminating => Self::Refused {
                code: ErrorCode::Prepared,
                message: "the key is being written by another transaction".to_owned(),
            },
        }
    }
}
