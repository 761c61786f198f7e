//! Everything that a participant can want done.

use timestone_types::{AbortKind, PreviousFound, ShardId, Timestamp, TxnId, TxnOutcome};

use super::copy_forward::CopyForward;
use super::expiry::ExpiryRule;
use super::input::{DecidedBy, FrozenState, LogSequence, Token, TxnStatus, Vote, Wait};
use crate::Refusal;

/// What to append to the log. The stage adds the bytes that it keeps (write set, participants).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogIntent {
    /// The promise of a transaction; for `single` it is the commit.
    Prepare {
        /// Which transaction.
        txn: TxnId,
        /// Its snapshot.
        begin: Timestamp,
        /// The promised timestamp.
        commit: Timestamp,
        /// Whether this shard is the only participant.
        single: bool,
        /// What a single-key write found.
        found: PreviousFound,
    },
    /// A decision. The stage adds the participants of a commit, whose write set it still has: they
    /// must be known after a restart that finds no promise any more.
    Decision {
        /// Which transaction.
        txn: TxnId,
        /// Its snapshot.
        begin: Timestamp,
        /// What became of it.
        outcome: TxnOutcome,
        /// Why, when it was aborted.
        abort: Option<AbortKind>,
        /// What a single-key write found whose condition did not hold.
        found: PreviousFound,
        /// The timestamp of the version that such a condition met; zero otherwise.
        met: Timestamp,
        /// Who decided.
        decided_by: DecidedBy,
    },
    /// No timestamp at or above `bound` is served until a higher one is durable.
    ReadBound {
        /// The bound.
        bound: Timestamp,
        /// The watermark that comes into force with it.
        watermark: Timestamp,
        /// Commits below the watermark are being told to participants that have not acknowledged
        /// them. Until they have, the records of these commits must survive a crash, or be copied
        /// forward.
        is_propagating: bool,
    },
}

impl LogIntent {
    /// A commit at a timestamp.
    pub(super) const fn committed(
        txn: TxnId,
        begin: Timestamp,
        at: Timestamp,
        decided_by: DecidedBy,
    ) -> Self {
        let (found, met) = (PreviousFound::Unasked, Timestamp::ZERO);
        let outcome = TxnOutcome::Committed(at);
        Self::Decision { txn, begin, outcome, abort: None, found, met, decided_by }
    }

    /// An abort, but for one because of a condition.
    pub(super) const fn aborted(
        txn: TxnId,
        begin: Timestamp,
        abort: Option<AbortKind>,
        decided_by: DecidedBy,
    ) -> Self {
        let (found, met) = (PreviousFound::Unasked, Timestamp::ZERO);
        Self::Decision { txn, begin, outcome: TxnOutcome::Aborted, abort, found, met, decided_by }
    }
}

/// The answer to a direct read or write, which is there before anything else happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectAnswer {
    /// Look the key up in the store at `at`, if [`super::ExpiryRule::may_tell`] lets what is found.
    Read {
        /// The point in time to read at.
        at: Timestamp,
        /// As of when expiry is judged, and what of it may be told.
        expiry: ExpiryRule,
    },
    /// Put what it writes at its commit timestamp, and say so by [`super::Input::DirectPutDone`]; or
    /// ask in the ordinary way, if it cannot be put. Nothing was recorded yet, and no other input
    /// comes in between.
    Put,
    /// Only its timestamp is too low; this one would do now.
    Later(Timestamp),
    /// It may have to wait, or is refused: it is to be asked in the ordinary way. Nothing was
    /// recorded.
    Indirect,
}

/// What a participant wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Look the key up in the store at `at` and answer, if [`super::ExpiryRule::may_tell`] lets what
    /// is found; later than in this step, check [`super::Collected::check`] just before.
    ReadNow {
        /// Which read.
        token: Token,
        /// The point in time to read at.
        at: Timestamp,
        /// Whether a prepared write at or below `at` is undecided: the snapshot is not certain.
        prepared_before: bool,
        /// As of when expiry is judged, and what of it may be told.
        expiry: ExpiryRule,
    },
    /// The prepare is a new one and depends on what its key holds: look that up, and submit it again
    /// with [`super::Lookup::Found`], if [`super::ExpiryRule::may_tell`] lets what is found.
    LookUp {
        /// Which prepare.
        token: Token,
        /// As of when expiry is judged, and what of it may be told.
        expiry: ExpiryRule,
    },
    /// The prepare is a new one, and there is no room for it: nothing was recorded.
    NoRoom {
        /// Which prepare.
        token: Token,
    },
    /// The prepare is a new one and may commit: put its writes at `commit`, and say so by
    /// [`super::Input::PutDone`]; or submit it again with `at_once` false, if they cannot be put. No
    /// other input comes in between. Nothing was recorded yet.
    PutNow {
        /// Which prepare.
        token: Token,
        /// Which transaction.
        txn: TxnId,
        /// Its timestamp; above the one asked for, if the choice was the shard's.
        commit: Timestamp,
    },
    /// The answer to a direct read or write.
    Direct(DirectAnswer),
    /// Submit the same input again, with fresh lookups and this `wait`: after the other outputs of
    /// this step were handled (log intents keep their order), before any other input. Several are
    /// resubmitted in the order in which they were put out: waiting reads go before prepares.
    Again {
        /// Which input.
        token: Token,
        /// To be given with it (where the input has it).
        wait: Wait,
    },
    /// The input waits; keep what is needed to submit it again. Exactly one `Again` follows.
    Parked {
        /// Which input.
        token: Token,
    },
    /// Not served, and why. Decides nothing.
    Refuse {
        /// Which input.
        token: Token,
        /// Why.
        refusal: Refusal,
    },
    /// A prepare below a timestamp that was seen already: no answer is owed.
    Ignored {
        /// Which input.
        token: Token,
    },
    /// The vote, durable where it must be.
    Vote {
        /// Which prepare.
        token: Token,
        /// Which transaction.
        txn: TxnId,
        /// The timestamp that the vote is about.
        commit: Timestamp,
        /// The vote.
        vote: Vote,
    },
    /// The vote about a single-key write that was decided before, for a repeat of it. Its answer
    /// carries the previous value as the first one did: the version that is found at `at`. Check
    /// [`super::Collected::check`] for `at` just before answering.
    Repeated {
        /// Which prepare.
        token: Token,
        /// Which write.
        txn: TxnId,
        /// The timestamp that was asked for.
        commit: Timestamp,
        /// The vote.
        vote: Vote,
        /// Just below the write, or where its condition was evaluated.
        at: Timestamp,
        /// Whether the version there was visible to the write, whatever its expiry says now.
        present: bool,
    },
    /// Append to the log; answer with `Input::Durable` later. Numbers rise by one.
    Log {
        /// Its number.
        sequence: LogSequence,
        /// What to append.
        intent: LogIntent,
    },
    /// Put the transaction's writes into the store at *this* timestamp, then say `Input::Applied`.
    Apply {
        /// Which transaction.
        txn: TxnId,
        /// The decided timestamp.
        commit: Timestamp,
    },
    /// The decision is durable here.
    AckDecision {
        /// Which decision.
        token: Token,
        /// Which transaction.
        txn: TxnId,
    },
    /// Committed, but its prepare never arrived: send the write set (`Input::DecidedWriteSet`).
    AskWriteSet {
        /// Which decision.
        token: Token,
        /// Which transaction.
        txn: TxnId,
    },
    /// The bytes of the transaction's prepare are not needed any more.
    ForgetPayload {
        /// Which transaction.
        txn: TxnId,
    },
    /// What is known of a transaction.
    StatusIs {
        /// Which question.
        token: Token,
        /// Which transaction.
        txn: TxnId,
        /// What is known.
        status: TxnStatus,
    },
    /// The keyspace may be read at `at`.
    ScanNow {
        /// Which scan.
        token: Token,
        /// The snapshot.
        at: Timestamp,
        /// As of when expiry is judged: no later than the snapshot, which may lie ahead of this
        /// server's time. What expires between the two is alive to every other reader.
        as_of: Timestamp,
        /// Whether a prepared write at or below `at` is undecided.
        prepared_before: bool,
    },
    /// No write of the keyspace that was acknowledged before the question lies above `at`.
    NewestIs {
        /// Which question.
        token: Token,
        /// The highest timestamp that a client may have heard of.
        at: Timestamp,
    },
    /// Send `Input::Freeze` to that shard's primary.
    AskFreeze {
        /// To whom.
        to: ShardId,
        /// Which transaction.
        txn: TxnId,
        /// Its snapshot.
        begin: Timestamp,
    },
    /// The answer to `Input::Freeze`.
    FreezeAnswer {
        /// Which question.
        token: Token,
        /// Which transaction.
        txn: TxnId,
        /// Its state here.
        state: FrozenState,
    },
    /// Send `Input::Terminate` to that shard's primary, with the participants that the promise was
    /// asked for with; no answer is awaited.
    AskTerminate {
        /// To whom.
        to: ShardId,
        /// Which transaction.
        txn: TxnId,
        /// Its snapshot.
        begin: Timestamp,
        /// The timestamp that it is promised at here.
        commit: Timestamp,
    },
    /// Send `Input::Decide` to that shard's primary; its acknowledgement comes back as
    /// `Input::DecisionAcked`.
    TellDecision {
        /// To whom.
        to: ShardId,
        /// Which transaction.
        txn: TxnId,
        /// What became of it.
        outcome: TxnOutcome,
    },
    /// A run begins at a watermark that an earlier one has left; without one, nothing is put out.
    Began {
        /// Versions below it may be gone.
        watermark: Timestamp,
    },
    /// The watermark rose, durably: versions below it may be collected.
    AdvanceWatermark(Timestamp),
    /// Whether a prepare of the transaction would be looked at as a new one.
    Recognised {
        /// Which question.
        token: Token,
        /// If not, it may have been promised, or committed.
        is_new: bool,
    },
    /// What would be lost with this run.
    Owed {
        /// Others may still have to be told of a commit.
        decisions: bool,
        /// An abort was told that must survive a restart, as its commit could still be carried out
        /// after one. Others need no record: who is asked about a transaction that it does not know
        /// says that it was aborted.
        aborts: bool,
    },
    /// What must survive a crash.
    CopyForward(Box<CopyForward>),
    /// Snapshots at or below this timestamp are read anywhere where everything is carried out that
    /// was recorded by now: nothing else commits there. Zero: none is closed.
    Closed {
        /// The timestamp; it never falls.
        at: Timestamp,
    },
}
