//! What a shard's refusal means to a transaction that is being committed.

use core::time::Duration;

use timestone_txn::{Refusal, participant};
use timestone_types::{AbortKind, AbortReason, Timestamp, TxnOutcome};
use timestone_wire::ErrorCode;

use super::record::Ending;
use crate::TxnStatus;
use crate::engine::replies::Fault;

impl From<TxnStatus> for participant::TxnStatus {
    fn from(status: TxnStatus) -> Self {
        match status {
            TxnStatus::Unknown => Self::Unknown,
            TxnStatus::Prepared(at) => Self::Prepared(at),
            TxnStatus::Committed(at) => Self::Decided(TxnOutcome::Committed(at)),
            TxnStatus::Aborted => Self::Decided(TxnOutcome::Aborted),
        }
    }
}

impl From<Refusal> for Fault<'_> {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::TooOld { watermark } => Self::TooOld { watermark },
            Refusal::ClockAhead { lead } => Self::ClockAhead { lead },
            Refusal::Prepared { other } => Self::Prepared { other },
            Refusal::Finished => Self::SessionEnded,
            Refusal::Terminating => Self::Terminating,
            Refusal::Recovering | Refusal::Busy => Self::Busy { retry_after: Duration::ZERO },
            Refusal::ClockHeld { wait } => Self::Busy { retry_after: wait },
            Refusal::ClockBehind { .. } => Self::Other {
                code: ErrorCode::ClockBehind,
                message: "the server's clock is far behind what it has served; nothing is written \
                    until it has passed that",
            },
            Refusal::LogLost => Self::Other {
                code: ErrorCode::StorageFailed,
                message: "the server's log has failed; nothing is written",
            },
            Refusal::Contradiction => Self::Other {
                code: ErrorCode::Internal,
                message: "two decisions about one transaction contradict each other",
            },
        }
    }
}

impl Fault<'_> {
    /// The same as a participant of the transaction core would say it. Whoever does not serve the
    /// shard cannot take a prepare for now. A refusal that waiting does not mend sends the coordinator
    /// to ask for termination, so that nothing stays promised.
    pub(crate) const fn refusal(&self) -> Refusal {
        match *self {
            Self::Busy { .. } => Refusal::Busy,
            Self::NotServing { .. } | Self::WrongRoute => Refusal::Recovering,
            Self::TooOld { watermark } => Refusal::TooOld { watermark },
            Self::ClockAhead { lead } => Refusal::ClockAhead { lead },
            Self::Prepared { other } => Refusal::Prepared { other },
            Self::SessionEnded => Refusal::Finished,
            // About a transaction: what the shard was told contradicts what it has recorded.
            Self::Other { code: ErrorCode::Internal, .. } => Refusal::Contradiction,
            Self::Terminating | Self::Other { .. } => Refusal::Terminating,
        }
    }

    /// How a transaction ends that was refused so before anything was promised: as an abort with
    /// its reason, or as an error.
    pub(crate) fn ending(&self) -> Result<Ending, AbortReason> {
        let aborted = |kind, at, other| AbortReason { kind, item: None, other, at };
        match *self {
            Self::Busy { retry_after } | Self::NotServing { retry_after } => {
                Ok(Ending::Busy { retry_after })
            }
            Self::ClockAhead { lead } => Ok(Ending::ClockAhead { lead }),
            Self::SessionEnded => Ok(Ending::SessionEnded),
            Self::TooOld { watermark } => Err(aborted(AbortKind::TooOld, watermark, None)),
            Self::Prepared { other } => {
                Err(aborted(AbortKind::Prepared, Timestamp::ZERO, Some(other)))
            }
            Self::WrongRoute | Self::Terminating | Self::Other { .. } => {
                Err(AbortReason::of(AbortKind::Terminated))
            }
        }
    }
}
