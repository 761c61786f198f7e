//! Everything that a participant can be told.
//!
//! Inputs borrow from the frame that carried them and are consumed by one `step`. Whatever has a
//! [`Token`] is answered exactly once with an output that carries the same token, at once or later;
//! [`super::Output::Again`] is such an answer, too.

use core::time::Duration;

use timestone_types::{
    AbortKind, AbortReason, ClientId, Expiry, KeyHash, KeyRange, KeyspaceId, PreviousFound,
    Sequence, ShardId, Timestamp, TxnId, TxnOutcome, Version, is_planted,
};

/// Chosen by the stage to recognise the answer to an input.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Token(pub u64);

/// Numbers what a participant wants in the log, from 1, without gaps: the shard's own sequence, which
/// no other shard and no local batch knows. It lets holes be seen and filled; it never orders
/// execution, timestamps do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LogSequence(pub u64);

impl LogSequence {
    /// The next number.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A range of a shard's sequence numbers, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LogRange {
    /// The lowest.
    pub first: LogSequence,
    /// The highest.
    pub last: LogSequence,
}

impl LogRange {
    /// Everything up to and including a number, as a log tells that is one prefix.
    #[must_use]
    pub const fn through(last: LogSequence) -> Self {
        Self { first: LogSequence(1), last }
    }
}

/// What the store's index knows of a key, looked up by the stage in the same turn in which it calls
/// `step`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LatestInStore {
    /// The youngest version of any record of this key hash; [`Version::ZERO`] when there is none.
    pub version: Version,
    /// Whether that version is a tombstone, or there is none. Expiry is not considered.
    pub absent: bool,
}

impl LatestInStore {
    /// The key was never written, or everything of it is gone.
    pub const NONE: Self = Self { version: Version::ZERO, absent: true };
}

/// At which point in time a single read wants the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadAt {
    /// The youngest version at or below a transaction's begin.
    Snapshot(Timestamp),
    /// The youngest version there is, linearizably, at this timestamp or above: what its session has under
    /// way at or below it takes place no more.
    Latest(Timestamp),
}

/// Whether a request may wait for another transaction's decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Answer at once, whatever stands in the way.
    No,
    /// At most [`super::Config::prepared_wait`] from now. The default of clients.
    Yes,
    /// Until this point in time; what [`super::Output::Again`] hands back, so that waiting twice
    /// does not wait longer.
    Until(Timestamp),
}

/// One key that a transaction read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadItem {
    /// The keyspace of the key.
    pub keyspace: KeyspaceId,
    /// The key.
    pub key: KeyHash,
    /// The version that was read: a record's, a tombstone's, an expired record's, or zero.
    pub version: Version,
    /// Whether the client saw nothing there. All absences are equal.
    pub absent: bool,
    /// When the value that was read expires.
    pub expires_at: Expiry,
    /// What the store knows now.
    pub latest: LatestInStore,
}

/// A range that a transaction read at its begin, to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeItem {
    /// The keyspace of its keys.
    pub keyspace: KeyspaceId,
    /// The first key that is part of it.
    pub from: Vec<u8>,
    /// The first key behind it; `None`: it goes on to the end of the keyspace.
    pub to: Option<Vec<u8>>,
    /// When the first of the values in it expires.
    pub expires_at: Expiry,
    /// A version in it that lies above begin, as far as the store knows now, deletions included. What
    /// cannot be found out counts as one.
    pub newer: Option<Timestamp>,
    /// Whose write sets have a key in it, as far as they are not in the store. Those of transactions that
    /// are not in flight do not count.
    pub writers: Vec<TxnId>,
}

impl RangeItem {
    /// The range.
    #[must_use]
    pub fn range(&self) -> KeyRange<'_> {
        KeyRange { keyspace: self.keyspace, from: &self.from, to: self.to.as_deref() }
    }
}

/// What a write does, as far as validation cares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteKind {
    /// Puts a record under the key.
    Put,
    /// Puts a tombstone under the key.
    Delete,
    /// Empties the whole keyspace; the item's key means nothing.
    Fence,
}

/// One key (or one keyspace) that a transaction writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteItem {
    /// The keyspace of the key.
    pub keyspace: KeyspaceId,
    /// The key.
    pub key: KeyHash,
    /// What is written.
    pub kind: WriteKind,
    /// What the store knows now.
    pub latest: LatestInStore,
    /// When a range was read that the key lies in: what [`super::Participant::range_read_at`] says now. Zero
    /// for a fence, and in keyspaces without an order.
    pub range_read: Timestamp,
}

/// The condition of a single-key write (compare-and-set, only-if-absent, only-if-present), as the
/// stage found it.
///
/// The stage looks up the youngest record, which may take a page read, evaluates the condition, and
/// then calls `step` with the version that it looked at. The core waits first when the key is
/// prepared, and asks to have the condition evaluated again ([`super::Output::Again`]) when a
/// younger version was committed meanwhile: no race is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JudgedCondition {
    /// The version of the record that the condition was evaluated against (a tombstone's or zero
    /// when there was none).
    pub version: Version,
    /// Whether it held.
    pub holds: bool,
    /// Whether there was a value. It is remembered with the outcome, for repeats.
    pub present: bool,
    /// When what was there had expired, if that is why there was none. The write commits no
    /// earlier.
    pub expired_at: Option<Timestamp>,
}

/// A transaction's part at this shard. See [`Input::Prepare`].
#[derive(Clone, Copy, Debug)]
pub struct Prepare<'a> {
    /// Recognises the answer.
    pub token: Token,
    /// Which transaction.
    pub txn: TxnId,
    /// Its snapshot.
    pub begin: Timestamp,
    /// The timestamp at which it wants to commit; above begin and above every version read.
    pub commit: Timestamp,
    /// The highest timestamp at which it may be committed instead where that one is too low, if it
    /// has one write and nothing else; at least `commit`.
    pub placed_by: Timestamp,
    /// This shard is the only participant: a yes is the commit. With no writes (a `Strict`
    /// read-only transaction sends this to each of its shards) nothing is recorded.
    pub single: bool,
    /// Whether it may wait for decisions of others.
    pub wait: Wait,
    /// All participants, this shard among them; the same in every round.
    pub participants: &'a [ShardId],
    /// The keys of this shard that it read.
    pub reads: &'a [ReadItem],
    /// The ranges that it read here.
    pub ranges: &'a [RangeItem],
    /// The keys of this shard that it writes.
    pub writes: &'a [WriteItem],
    /// For single-key writes that depend on what is there, or return it.
    pub condition: Lookup,
    /// Whether the stage has room for what this writes. Without, one that was not seen before is
    /// answered by [`super::Output::NoRoom`]; what was promised or decided is answered as it was.
    pub has_room: bool,
    /// Whatever the stage records is durable at once, and it can put these writes in the same step:
    /// if `single`, a new prepare is answered by [`super::Output::PutNow`] instead of a promise.
    pub at_once: bool,
}

/// Whether a prepare depends on what its key holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// It does not.
    NotNeeded,
    /// It does, and nobody has looked yet. One that was not seen before is answered by
    /// [`super::Output::LookUp`]; a repeat needs no look.
    Needed,
    /// It does, and this was found.
    Found(JudgedCondition),
}

impl Lookup {
    /// What was found.
    #[must_use]
    pub const fn found(self) -> Option<JudgedCondition> {
        match self {
            Self::Found(condition) => Some(condition),
            Self::NotNeeded | Self::Needed => None,
        }
    }
}

impl Prepare<'_> {
    /// A strict read-only transaction: nothing is recorded of it, and its vote ends it.
    #[inline]
    pub(crate) const fn leaves_no_trace(&self) -> bool {
        self.single && self.writes.is_empty()
    }

    /// Whether the shard may commit it at `at`, which lies above its timestamp.
    pub(super) fn may_be_placed_at(&self, at: Timestamp) -> bool {
        debug_assert!(at > self.commit, "it is asked where the timestamp is too low");
        let alone = self.single
            && self.reads.is_empty()
            && self.ranges.is_empty()
            && self.condition == Lookup::NotNeeded;
        let by = if is_planted!(PlacesAtWill) && self.placed_by > self.commit {
            Timestamp::MAX
        } else {
            self.placed_by
        };
        alone && at <= by
    }

    /// What a single-key write found.
    pub(super) fn found(&self) -> PreviousFound {
        self.condition
            .found()
            .map_or(PreviousFound::Unasked, |condition| PreviousFound::of(condition.present))
    }
}

/// A put or a delete of one key by somebody on the host's own thread. See [`Input::DirectWrite`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectWrite {
    /// What is written; no fence.
    pub item: WriteItem,
    /// Who writes.
    pub client: ClientId,
    /// Where its session's clock stands.
    pub begin: Timestamp,
    /// The timestamp at which it wants to commit; above begin.
    pub commit: Timestamp,
}

/// A record of the log, handed back after a restart, in any order.
#[derive(Clone, Copy, Debug)]
pub enum Recovered<'a> {
    /// A prepare. `reads` need not be kept: the read bound stands for them.
    Prepare {
        /// Which transaction.
        txn: TxnId,
        /// Its snapshot.
        begin: Timestamp,
        /// The promised timestamp.
        commit: Timestamp,
        /// Whether this shard was the only participant, so that the record is the commit.
        single: bool,
        /// What a single-key write found.
        found: PreviousFound,
        /// All participants.
        participants: &'a [ShardId],
        /// What it writes here, with the store's latest versions as of now.
        writes: &'a [WriteItem],
    },
    /// A decision, as it was made or carried forward.
    Decision {
        /// Which transaction.
        txn: TxnId,
        /// Its snapshot.
        begin: Timestamp,
        /// What became of it.
        outcome: TxnOutcome,
        /// Why, when it was aborted.
        abort: Option<AbortKind>,
        /// What a single-key write found.
        found: PreviousFound,
        /// The timestamp of the version that a condition met which did not hold; zero otherwise.
        met: Timestamp,
        /// Of a commit: all participants, unless this shard was the only one.
        participants: &'a [ShardId],
    },
    /// A read bound.
    ReadBound {
        /// No timestamp at or above it had been served.
        bound: Timestamp,
        /// The watermark that was in force.
        watermark: Timestamp,
    },
    /// The run begins here. Nothing is written at or below this; but unlike a read bound it is
    /// written nowhere, so nothing is read at or above what the records tell before the first bound
    /// of this run is durable.
    Began(Timestamp),
    /// The last life ended so long ago, and the sessions that were live then are to be waited for.
    /// Without this, nobody is waited for.
    Outage(Duration),
    /// A client that is gone for good, as those of the server's own last life are: it is not waited
    /// for.
    ClientLeft(ClientId),
    /// The recovered watermark is above every one that was in force: what is certain is only that
    /// this one was. Promises of the last run above it may be lost.
    CertainWatermark(Timestamp),
    /// A run without a log served up to here: what it carried out, it recorded nowhere.
    UnloggedUntil(Timestamp),
}

/// What a participant answers to [`Input::Freeze`]. It never changes afterwards, but for prepared
/// becoming decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrozenState {
    /// Promised at this timestamp, and at no other from now on.
    Prepared(Timestamp),
    /// Decided, or aborted by this very question.
    Decided(TxnOutcome),
    /// Finished and acknowledged by everybody. Who is still undecided gets this answer only about a
    /// promise of its last life, of whose decision a crash has left no record: it has acknowledged
    /// the decision, and forgets the promise. At a shard with replicas only a primary that was
    /// deposed is still undecided then: what it concludes never counts.
    Finished,
    /// Nothing is known of it, and nothing ever will be: it began below the watermark. Whoever is
    /// still undecided has not acknowledged a commit, so that there was none; or was deposed, and
    /// does not count any more. It records the abort, and tells it when that record counts.
    Forgotten,
}

impl FrozenState {
    /// At which timestamp it is promised or committed, if it is.
    pub(super) const fn timestamp(self) -> Option<Timestamp> {
        match self {
            Self::Prepared(at) | Self::Decided(TxnOutcome::Committed(at)) => Some(at),
            Self::Decided(TxnOutcome::Aborted) | Self::Finished | Self::Forgotten => None,
        }
    }
}

/// Who decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecidedBy {
    /// The coordinator.
    Client,
    /// Another participant, or this one, as backup coordinator.
    Termination,
    /// This participant by itself: a no, a question about a transaction that it had not seen, or a
    /// promise of an earlier run that is found carried out.
    Participant,
}

/// What a participant can be told.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Read one key. Answered by `ReadNow`, `Again` or `Refuse`.
    Read {
        /// Recognises the answer.
        token: Token,
        /// The keyspace of the key.
        keyspace: KeyspaceId,
        /// The key.
        key: KeyHash,
        /// At which point in time.
        at: ReadAt,
        /// Whether it may wait for a decision.
        wait: Wait,
        /// What the store knows now.
        latest: LatestInStore,
    },
    /// Validate and promise. Answered by `Vote`, `Again`, `Refuse` or `Ignored`.
    Prepare(Prepare<'a>),
    /// Read the youngest version of one key, linearizably, for somebody who sees the answer in this
    /// call. Answered by [`super::Output::Direct`].
    DirectRead {
        /// The keyspace of the key.
        keyspace: KeyspaceId,
        /// The key.
        key: KeyHash,
        /// The reader's now.
        at: Timestamp,
        /// What the store knows now.
        latest: LatestInStore,
    },
    /// Validate a write of one key, for somebody who sees the answer in this call, where whatever the
    /// stage records is durable at once and there is room for it. Answered by
    /// [`super::Output::Direct`].
    DirectWrite(DirectWrite),
    /// A direct write that was answered by [`super::DirectAnswer::Put`] can be read. Not answered.
    DirectPutDone(DirectWrite),
    /// The outcome of a transaction, from its coordinator or from a peer. Answered by `AckDecision`
    /// once durable, by `AskWriteSet`, `Again` or `Refuse`.
    Decide {
        /// Recognises the answer.
        token: Token,
        /// Which transaction.
        txn: TxnId,
        /// What became of it.
        outcome: TxnOutcome,
        /// Who says so.
        decided_by: DecidedBy,
    },
    /// The writes of a prepare that was answered by [`super::Output::PutNow`] can be read. Answered by
    /// its vote.
    PutDone {
        /// The prepare, with the timestamp that was answered.
        prepare: Prepare<'a>,
    },
    /// The write set of a *committed* transaction whose prepare never arrived: the answer to
    /// `AskWriteSet`. Answered by `AckDecision` once durable, or `Again`.
    DecidedWriteSet {
        /// The prepare as it was decided: its `commit` is the decided timestamp.
        prepare: Prepare<'a>,
    },
    /// A range of records is durable: on as many replicas as the shard asks for, which on one node
    /// is its own log. Ranges may come in any order, twice, and overlap; what rests on a record
    /// waits until no hole is left below it.
    Durable {
        /// The records.
        range: LogRange,
    },
    /// Everything that `Apply` asked for can be read in the store.
    Applied {
        /// Which transaction.
        txn: TxnId,
    },
    /// A client says what it may still use.
    Report {
        /// Which client incarnation.
        client: ClientId,
        /// The lowest timestamp that any of its sessions may still use.
        watermark: Timestamp,
        /// Every transaction with a sequence *below* this is finished, acknowledged by all its
        /// participants.
        acked: Sequence,
        /// What its clock showed.
        clock: Timestamp,
        /// It ends: it begins nothing more, and holds the watermark back no longer.
        closing: bool,
    },
    /// Time passed: deadlines, rotation, read bound, watermark. Due at `poll_deadline`, harmless at
    /// any time.
    Tick,
    /// What is known of a transaction, without changing it. Answered by `StatusIs`.
    Status {
        /// Recognises the answer.
        token: Token,
        /// Which transaction.
        txn: TxnId,
    },
    /// Bring a transaction to its end; this shard acts as backup coordinator. Answered by
    /// `StatusIs` when decided and durable.
    Terminate {
        /// Recognises the answer.
        token: Token,
        /// Which transaction.
        txn: TxnId,
        /// Its snapshot.
        begin: Timestamp,
        /// All participants.
        participants: &'a [ShardId],
    },
    /// A backup coordinator asks for this participant's state, and answering freezes it. Answered
    /// by `FreezeAnswer`.
    Freeze {
        /// Recognises the answer.
        token: Token,
        /// Which transaction.
        txn: TxnId,
        /// Its snapshot.
        begin: Timestamp,
    },
    /// A peer's answer to `AskFreeze`; or to `AskTerminate`, if it knows the outcome.
    FreezeAnswer {
        /// Which shard answers.
        from: ShardId,
        /// Which transaction.
        txn: TxnId,
        /// Its state there.
        state: FrozenState,
    },
    /// A peer has made durable what `TellDecision` told it.
    DecisionAcked {
        /// Which shard.
        from: ShardId,
        /// Which transaction.
        txn: TxnId,
    },
    /// A scan or count of a keyspace at a snapshot: no write may commit at or below `at` in it from
    /// now on. Answered by `ScanNow`, `Again` or `Refuse`.
    Scan {
        /// Recognises the answer.
        token: Token,
        /// Which keyspace.
        keyspace: KeyspaceId,
        /// The snapshot.
        at: Timestamp,
        /// Whether it may wait for decisions.
        wait: Wait,
    },
    /// A range of a keyspace is to be read at a snapshot: no write may commit at or below `at` in it from
    /// now on. Answered by `ScanNow`, `Again` or `Refuse`.
    Range {
        /// Recognises the answer.
        token: Token,
        /// Which range.
        range: KeyRange<'a>,
        /// The snapshot.
        at: Timestamp,
        /// Whether it may wait for decisions.
        wait: Wait,
        /// Whose write sets have a key in it, as far as they are not in the store.
        writers: &'a [TxnId],
    },
    /// How new a keyspace is here, for a scan that must not miss what was acknowledged. Answered by
    /// `NewestIs` or `Refuse`.
    Newest {
        /// Recognises the answer.
        token: Token,
        /// Which keyspace.
        keyspace: KeyspaceId,
        /// The highest timestamp of any of its versions in the store.
        latest: Timestamp,
    },
    /// One record of the log after a restart.
    Recovered(Recovered<'a>),
    /// The log was read to its end; service starts.
    RecoveryDone,
    /// The log has failed, and will not recover before a restart. Reads go on below the bound that
    /// is durable, and of what is latest; writes are refused.
    LogLost,
    /// The run ends, and has no log, so that its outcomes end with it: commits over several shards
    /// are told to whoever may not have them. May come again. Answered by `Owed`, about all of them.
    Closing,
    /// Whether a prepare of the transaction would be looked at as a new one: the stage cannot hand it
    /// in, since what it needs cannot be read, and must not deny what may be carried out. Answered
    /// by `Recognised`.
    Recognise {
        /// Recognises the answer.
        token: Token,
        /// Which transaction.
        txn: TxnId,
        /// Its snapshot.
        begin: Timestamp,
    },
    /// What would be lost with this run. Answered by `Owed`.
    Owes {
        /// Commits at or below it count.
        until: Timestamp,
    },
    /// Backups want to answer snapshots: a timestamp is to be closed for them. Answered by `Closed`.
    CloseTimestamp,
    /// Old log files are to go: what must survive a crash is wanted again. Answered by
    /// `CopyForward`.
    CopyForward,
    /// So far the physical clock leads the time that is handed in, because a step of it is held or
    /// being followed. A timestamp that leads by no more than that (and what is allowed anyway) is
    /// nobody's fault.
    ClockHeld {
        /// How far; zero when time follows the clock.
        back: Duration,
    },
    /// True time lies within this of the time that is handed in. It matters to a shard with replicas
    /// alone, which promises nothing of the present before it is told.
    ClockError {
        /// How far, either way.
        bound: Duration,
    },
    /// Whether another replica is to become primary soon. Then leases, which are the read bounds,
    /// reach no further than needed, because that one waits for the last of them to end.
    Leases {
        /// Whether they are short from now on.
        are_short: bool,
    },
}

/// What is known of a transaction. See [`Input::Status`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxnStatus {
    /// Nothing: never seen, or finished and forgotten.
    Unknown,
    /// Promised, not decided.
    Prepared(Timestamp),
    /// Decided.
    Decided(TxnOutcome),
}

/// A participant's vote for one (transaction, commit timestamp).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vote {
    /// Promised, durably. For a single-shard transaction: committed.
    Yes,
    /// Only the timestamp is too low; nothing is promised. Try at this one or above.
    Later(Timestamp),
    /// Refused, durably.
    No(AbortReason),
    /// Somebody else decided already, at another timestamp than the one asked for.
    Decided(TxnOutcome),
}
