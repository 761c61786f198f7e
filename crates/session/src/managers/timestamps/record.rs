//! What an engine keeps of a session, of a transaction and of a request outside transactions. Data
//! only; buffers are reused.
//!
//! ```text
//!   transaction   Open ── commit ──► Committing ── Finished ──► Told ── Done ──► released
//!                  │ └─ local commit, abort ────────────────────────────────────► released
//!                  └── a read that ends it ──► Closed ── result handed out ─────► released
//! ```
//! A slot is released when the result was handed out *and* nothing is owed to any participant.

use core::time::Duration;

use timestone_clock::SessionClock;
use timestone_txn::coordinator::Coordinator;
use timestone_types::{
    AbortReason, ClientId, Expiry, KeyspaceId, Sequence, ShardId, Timestamp, TxnId, Version,
};

use crate::{
    Condition, OpId, SessionError, TxnOptions, TxnStatus, ValueView, keys::KeySet, limits,
    shards::Place, slab::Name,
};

/// One session.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) clock: SessionClock,
}

/// Where a transaction is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Phase {
    /// Reads and writes are taken.
    #[default]
    Open,
    /// Over before it asked for a commit; only its result waits to be handed out.
    Closed,
    /// The coordinator works; the application waits.
    Committing,
    /// The application was told; participants may not have acknowledged yet.
    Told,
}

/// What the application is told in the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Committed at this timestamp.
    Committed(Timestamp),
    /// Aborted; the entry that met it, when one did.
    Aborted { reason: AbortReason, entry: Option<u32> },
    /// Never executed.
    Failed(Ending),
    /// Not known in time.
    Unknown,
}

/// Why a transaction was never executed: the errors that end one, without their words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// The clock is too far ahead.
    ClockAhead { lead: Duration },
    /// The clock is too far behind.
    ClockBehind { lag: Duration },
    /// The server does not serve at the moment.
    Busy { retry_after: Duration },
    /// The client's session is over.
    SessionEnded,
}

impl From<Ending> for SessionError {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::ClockAhead { lead } => Self::ClockAhead { lead },
            Ending::ClockBehind { lag } => Self::ClockBehind { lag },
            Ending::Busy { retry_after } => Self::Busy { retry_after },
            Ending::SessionEnded => Self::SessionEnded,
        }
    }
}

/// One transaction.
#[derive(Debug, Default)]
pub(crate) struct Txn {
    pub(crate) phase: Phase,
    pub(crate) session: Option<Name>,
    pub(crate) options: TxnOptions,
    pub(crate) begin: Timestamp,
    pub(crate) opened: Timestamp,
    pub(crate) keys: KeySet,
    /// Reads under way.
    pub(crate) asked: u32,
    /// Further operations that wait for a read that another one asked.
    pub(crate) waiters: Vec<(u32, OpId)>,
    pub(crate) id: TxnId,
    pub(crate) op: Option<OpId>,
    pub(crate) participants: Vec<ShardId>,
    /// The highest commit timestamp that was tried.
    pub(crate) highest_commit: Timestamp,
    /// What a participant refused with that no retry mends; told when the transaction turns out to
    /// be aborted.
    pub(crate) fault: Option<SessionError>,
    pub(crate) coordinator: Coordinator,
    /// When the coordinator wants a tick.
    pub(crate) due: Timestamp,
    pub(crate) verdict: Option<Verdict>,
    /// Nothing is owed to any participant.
    pub(crate) settled: bool,
}

impl Txn {
    /// Makes a reused slot fresh.
    pub(crate) fn open(
        &mut self,
        session: Name,
        options: TxnOptions,
        begin: Timestamp,
        now: Timestamp,
    ) {
        self.phase = Phase::Open;
        self.session = Some(session);
        self.options = options;
        self.begin = begin;
        self.opened = now;
        self.keys.clear();
        self.asked = 0;
        self.waiters.clear();
        self.id = TxnId::default();
        self.op = None;
        self.participants.clear();
        self.highest_commit = Timestamp::ZERO;
        self.fault = None;
        self.coordinator.reset();
        self.due = Timestamp::MAX;
        self.verdict = None;
        self.settled = true;
    }

    /// Whether writes are refused.
    pub(crate) const fn is_read_only(&self) -> bool {
        self.options.read_only || self.options.snapshot_at.is_some()
    }

    /// When an operation that begins now gives up.
    pub(crate) fn deadline(&self, now: Timestamp, default: Duration) -> Timestamp {
        self.options.deadline.unwrap_or_else(|| now.saturating_add(default))
    }
}

/// What a request outside transactions is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Want {
    /// A linearizable read.
    #[default]
    Get,
    /// A single-key write, of a value or of nothing.
    Put,
    /// A single-key deletion.
    Delete,
    /// The fate of a transaction, asked at every shard.
    Status,
    /// The host's own frame.
    Ask,
}

/// The condition of a write; an expected value is in the request's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Expected {
    /// Nothing.
    #[default]
    Always,
    /// The key is absent.
    Absent,
    /// The key is present.
    Present,
    /// The key has this version.
    Version(Version),
    /// The key has the value in the buffer.
    Value,
}

impl From<Condition<'_>> for Expected {
    fn from(condition: Condition<'_>) -> Self {
        match condition {
            Condition::Always => Self::Always,
            Condition::Absent => Self::Absent,
            Condition::Present => Self::Present,
            Condition::VersionIs(version) => Self::Version(version),
            Condition::ValueIs(_) => Self::Value,
        }
    }
}

/// What the key of a write had before, as the answer told; the value is at the end of the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Previous {
    pub(crate) version: Version,
    pub(crate) expires_at: Expiry,
    pub(crate) present: bool,
}

/// What came of a request outside transactions.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Outcome {
    /// A read's answer; the value is in the buffer.
    Value { version: Version, expires_at: Expiry, present: bool },
    /// A write took place.
    Committed(Timestamp),
    /// A write did not take place.
    Aborted(AbortReason),
    /// A write's fate is not known in time.
    Unknown,
    /// A transaction's fate.
    Status(TxnStatus),
    /// A reply frame, in the buffer.
    Frame,
    /// Nothing took place.
    Failed(SessionError),
}

/// One request outside transactions.
#[derive(Debug, Default)]
pub(crate) struct Single {
    pub(crate) want: Want,
    pub(crate) session: Option<Name>,
    pub(crate) op: Option<OpId>,
    pub(crate) place: Place,
    pub(crate) keyspace: KeyspaceId,
    /// Key, value, expected value, previous value; or a frame to send. What a read or the host
    /// asked for replaces it.
    pub(crate) buffer: Vec<u8>,
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: usize,
    pub(crate) expected_bytes: usize,
    pub(crate) keep_expiry: bool,
    pub(crate) return_previous: bool,
    pub(crate) previous: Option<Previous>,
    pub(crate) expires_at: Expiry,
    pub(crate) condition: Expected,
    /// The write's own id, or the transaction that is asked about.
    pub(crate) id: TxnId,
    pub(crate) begin: Timestamp,
    pub(crate) commit: Timestamp,
    /// Counts what was sent under different timestamps, so that an answer to an earlier round is
    /// told from one to this.
    pub(crate) round: u32,
    pub(crate) attempts: u32,
    /// The copy sent last has not been answered.
    pub(crate) unanswered: bool,
    /// A copy was sent while an earlier one was unanswered: what is said of one need not be true of
    /// the other.
    pub(crate) doubtful: bool,
    /// When to ask again.
    pub(crate) due: Timestamp,
    pub(crate) deadline: Timestamp,
    pub(crate) external_wait: bool,
    /// Shards that have not said what they know (`Status` only).
    pub(crate) silent: Vec<Place>,
    pub(crate) status: Option<TxnStatus>,
    pub(crate) outcome: Option<Outcome>,
    /// Nothing is to be asked any more.
    pub(crate) settled: bool,
}

impl Single {
    /// Gives a large buffer back, once nobody looks at its value any more. Whole: a part of it that
    /// stayed would hold the place where it lies.
    pub(crate) fn close(&mut self) {
        if self.buffer.capacity() > limits::KEPT_ARENA_BYTES {
            self.buffer = Vec::new();
        }
    }

    /// Makes a reused slot fresh.
    pub(crate) fn open(&mut self, want: Want, op: OpId, place: Place, deadline: Timestamp) {
        self.want = want;
        self.session = None;
        self.op = Some(op);
        self.place = place;
        self.buffer.clear();
        self.key_bytes = 0;
        self.value_bytes = 0;
        self.expected_bytes = 0;
        self.keep_expiry = false;
        self.return_previous = false;
        self.previous = None;
        self.expires_at = Expiry::NEVER;
        self.condition = Expected::Always;
        self.id = TxnId::new(ClientId::ZERO, Sequence::ZERO);
        self.begin = Timestamp::ZERO;
        self.commit = Timestamp::ZERO;
        self.round = 0;
        self.attempts = 0;
        self.unanswered = false;
        self.doubtful = false;
        self.due = Timestamp::MAX;
        self.deadline = deadline;
        self.external_wait = false;
        self.silent.clear();
        self.status = None;
        self.outcome = None;
        self.settled = false;
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.buffer[..self.key_bytes]
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.buffer[self.key_bytes..][..self.value_bytes]
    }

    pub(crate) fn expected(&self) -> &[u8] {
        &self.buffer[self.key_bytes + self.value_bytes..][..self.expected_bytes]
    }

    /// Keeps what the key had before.
    pub(crate) fn keep_previous(&mut self, view: ValueView<'_>) {
        if self.previous.is_none() {
            let ValueView { value, version, expires_at } = view;
            self.buffer.extend_from_slice(value.unwrap_or_default());
            self.previous = Some(Previous { version, expires_at, present: value.is_some() });
        }
    }

    /// What the key had before.
    pub(crate) fn previous(&self) -> Option<ValueView<'_>> {
        let Previous { version, expires_at, present } = self.previous?;
        let bytes = &self.buffer[self.key_bytes + self.value_bytes + self.expected_bytes..];
        Some(ValueView { value: present.then_some(bytes), version, expires_at })
    }

    /// Whether it begins anew when it is sent again, at a later timestamp: no server has it, nor
    /// ever will unless it is sent again, since every copy of it was answered with a refusal, and
    /// nobody was told that it may take place at the timestamp that it has. It holds nothing back:
    /// a store that waits for the watermark would wait for ever for a write that waits for the
    /// store.
    pub(crate) fn begins_anew(&self) -> bool {
        let is_nowhere = !self.unanswered && !self.doubtful;
        self.is_write() && is_nowhere && self.outcome.is_none() && !crate::single::keeps_refused()
    }

    /// Whether its server may have carried out a copy of it and have forgotten that since. Not when
    /// all copies but the last one were answered with refusals, as a server's are that is being
    /// restarted: then the answer to the last one is the whole answer.
    pub(crate) fn may_be_forgotten(&self) -> bool {
        self.doubtful || self.attempts > 0 && crate::single::doubts_refusals()
    }

    /// Whether it writes under an id of its own.
    pub(crate) const fn is_write(&self) -> bool {
        matches!(self.want, Want::Put | Want::Delete)
    }
}
