//! What the participant says, in the words of the wire.

use timestone_txn::participant::{FrozenState, TxnStatus, Vote};
use timestone_types::{AbortKind, AbortReason, Timestamp, TxnOutcome};
use timestone_wire::{TxnState, Verdict};

/// What a vote about a single-key write says on the wire, and the timestamp that it is about: a
/// write that was decided at another timestamp than the one asked for took place there.
pub(crate) const fn verdict_of_write(commit: Timestamp, vote: Vote) -> (Timestamp, Verdict) {
    match vote {
        Vote::Yes => (commit, Verdict::Yes),
        Vote::Later(at) => (commit, Verdict::Later(at)),
        Vote::No(reason) => (commit, Verdict::No(reason)),
        Vote::Decided(TxnOutcome::Committed(at)) => (at, Verdict::Yes),
        Vote::Decided(TxnOutcome::Aborted) => {
            (commit, Verdict::No(AbortReason::of(AbortKind::Terminated)))
        }
    }
}

pub(crate) const fn state_of_outcome(outcome: TxnOutcome) -> TxnState {
    match outcome {
        TxnOutcome::Committed(at) => TxnState::Committed(at),
        TxnOutcome::Aborted => TxnState::Aborted,
    }
}

pub(crate) const fn state_of_status(status: TxnStatus) -> TxnState {
    match status {
        TxnStatus::Unknown => TxnState::Unknown,
        TxnStatus::Prepared(at) => TxnState::Prepared(at),
        TxnStatus::Decided(outcome) => state_of_outcome(outcome),
    }
}

/// `Finished` travels as "unknown": nobody who is undecided is told so of anything else.
pub(crate) const fn state_of_frozen(state: FrozenState) -> TxnState {
    match state {
        FrozenState::Prepared(at) => TxnState::Prepared(at),
        FrozenState::Decided(outcome) => state_of_outcome(outcome),
        FrozenState::Finished => TxnState::Unknown,
        FrozenState::Forgotten => TxnState::Forgotten,
    }
}
