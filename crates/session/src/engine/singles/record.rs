//! What a request outside transactions is. Data only; buffers are reused.

use timestone_types::limits::PLACED_WITHIN;
use timestone_types::{
    AbortKind, AbortReason, ClientId, Expiry, KeyspaceId, Sequence, Timestamp, TxnId, Version,
    is_planted,
};

use crate::engine::number::Number;
use crate::engine::shards::ShardIndex;
use crate::engine::slab::SlabKey;
use crate::{
    Abort, Condition, KeyName, OpId, OpResult, SessionError, TxnStatus, ValueView, Written, limits,
};

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Want {
    /// A linearizable read.
    #[default]
    Get,
    /// A single-key write, of a value or of nothing.
    Put,
    /// A single-key deletion.
    Delete,
    /// What became of a transaction, asked at every shard.
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
struct Previous {
    version: Version,
    expires_at: Expiry,
    is_present: bool,
}

/// What came of a request.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum SingleResult {
    /// A read's answer; the value is in the buffer.
    Value { version: Version, expires_at: Expiry, present: bool },
    /// A write took place.
    Committed(Timestamp),
    /// A write did not take place.
    Aborted(AbortReason),
    /// What became of a write is not known in time.
    Unknown,
    /// What became of a transaction.
    Status(TxnStatus),
    /// A reply frame, in the buffer.
    Frame,
    /// Nothing took place.
    Failed(SessionError),
}

/// Key, value, expected value, previous value; or a frame to send. What a read or the host asked
/// for replaces it.
#[derive(Debug, Default)]
pub(crate) struct RequestBytes {
    buffer: Vec<u8>,
    key: usize,
    value: usize,
    expected: usize,
    previous: Option<Previous>,
}

impl RequestBytes {
    fn clear(&mut self) {
        self.buffer.clear();
        (self.key, self.value, self.expected) = (0, 0, 0);
        self.previous = None;
        self.assert_sound();
    }

    /// Gives a large buffer back, once nobody looks at its value any more. Whole: a part of it that
    /// stayed would hold the place where it lies.
    fn close(&mut self) {
        if self.buffer.capacity() > limits::KEPT_ARENA_BYTES {
            *self = Self::default();
        }
        self.assert_sound();
    }

    pub(super) fn fill(&mut self, key: &[u8], value: &[u8], expected: &[u8]) {
        assert!(self.buffer.is_empty(), "a request is filled once");
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(value);
        self.buffer.extend_from_slice(expected);
        (self.key, self.value, self.expected) = (key.len(), value.len(), expected.len());
    }

    /// The buffer, for a frame that the host writes.
    pub(super) fn frame_mut(&mut self) -> &mut Vec<u8> {
        assert!(self.buffer.is_empty(), "a request is filled once");
        &mut self.buffer
    }

    /// The answer instead of the request.
    pub(super) fn replace(&mut self, answer: &[u8]) {
        self.clear();
        self.buffer.extend_from_slice(answer);
        self.assert_sound();
    }

    /// All bytes: the frame to send, or the answer.
    pub(crate) fn all(&self) -> &[u8] {
        &self.buffer
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.buffer[..self.key]
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.buffer[self.key..][..self.value]
    }

    pub(crate) fn expected(&self) -> &[u8] {
        &self.buffer[self.key + self.value..][..self.expected]
    }

    /// Keeps what the key had before; the first answer stays.
    pub(super) fn keep_previous(&mut self, view: ValueView<'_>) {
        if self.previous.is_none() {
            let ValueView { value, version, expires_at } = view;
            debug_assert_eq!(self.buffer.len(), self.key + self.value + self.expected);
            self.buffer.extend_from_slice(value.unwrap_or_default());
            self.previous = Some(Previous { version, expires_at, is_present: value.is_some() });
        }
    }

    /// What a refused write found is of no use to another one.
    pub(super) fn forget_previous(&mut self) {
        self.previous = None;
        self.buffer.truncate(self.key + self.value + self.expected);
    }

    /// What the key had before.
    pub(super) fn previous(&self) -> Option<ValueView<'_>> {
        let Previous { version, expires_at, is_present } = self.previous?;
        let bytes = &self.buffer[self.key + self.value + self.expected..];
        Some(ValueView { value: is_present.then_some(bytes), version, expires_at })
    }

    #[inline]
    fn assert_sound(&self) {
        let parts = self.key + self.value + self.expected;
        debug_assert!(parts <= self.buffer.len(), "{parts} bytes of {}", self.buffer.len());
        debug_assert!(self.previous.is_none() || self.key > 0, "a previous value of no key");
    }
}

/// What a write says beside key and value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteOptions {
    pub(crate) condition: Expected,
    pub(crate) expires_at: Expiry,
    pub(crate) keep_expiry: bool,
    pub(crate) return_previous: bool,
    pub(crate) external_wait: bool,
}

/// The copies of a request that were sent, and what is known of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Copies {
    /// Counts what was sent under different timestamps, so that an answer to an earlier round is
    /// told from one to this.
    pub(crate) round: u32,
    /// The first round of the identity that it has now.
    first_round: u32,
    pub(crate) attempts: u32,
    /// The copy sent last has not been answered.
    unanswered: bool,
    /// A copy was sent while an earlier one was unanswered: what is said of one need not be true of
    /// the other.
    pub(crate) doubtful: bool,
    /// They leave the choice of the timestamp to the shard, in this round.
    pub(crate) are_placed: bool,
}

impl Copies {
    /// A copy was sent.
    pub(super) fn sent(&mut self) {
        self.doubtful |= self.unanswered;
        self.unanswered = true;
        debug_assert!(!self.are_nowhere(), "a copy was sent, and counts as answered");
    }

    /// A copy was refused; another one follows. It need not be the copy sent last: two copies get two
    /// answers, and both may be refusals.
    pub(super) fn refused(&mut self) {
        self.attempts += 1;
        self.unanswered = false;
        debug_assert_eq!(self.are_nowhere(), !self.doubtful, "several copies stay doubtful");
    }

    /// The answer to a copy asks for another timestamp. Another copy may have been refused before.
    pub(super) fn next_round(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.unanswered = false;
        debug_assert_eq!(self.are_nowhere(), !self.doubtful, "several copies stay doubtful");
    }

    /// Copies from now on ask for the timestamp that they say; earlier ones may be answered yet.
    pub(super) fn next_round_elsewhere(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.are_placed = false;
    }

    /// Copies from now on have another identity: those before are refused for good, whether they
    /// were answered or not.
    pub(super) fn next_identity(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.first_round = self.round;
        self.unanswered = false;
        self.doubtful = false;
    }

    /// Whether an answer to this round is about the identity that it has now.
    pub(super) fn are_about(&self, round: u32) -> bool {
        let ago = |round: u32| self.round.wrapping_sub(round) & Number::MAX_ITEM;
        ago(round) <= ago(self.first_round) || is_planted!(MixesIdentities)
    }

    /// Every copy was answered.
    fn are_nowhere(self) -> bool {
        !self.unanswered && !self.doubtful
    }
}

/// A question to every shard.
#[derive(Debug, Default)]
pub(crate) struct Poll {
    /// Shards that have not said what they know.
    pub(crate) silent: Vec<ShardIndex>,
    /// The strongest answer so far.
    pub(crate) best: Option<TxnStatus>,
}

/// One request outside transactions.
#[derive(Debug, Default)]
pub(crate) struct Single {
    pub(crate) want: Want,
    pub(crate) session: Option<SlabKey>,
    /// Who waits.
    pub(crate) op: Option<OpId>,
    pub(crate) shard: ShardIndex,
    pub(crate) keyspace: KeyspaceId,
    pub(crate) bytes: RequestBytes,
    pub(crate) write: WriteOptions,
    /// The write's own id, or the transaction that is asked about.
    pub(crate) id: TxnId,
    pub(crate) begin: Timestamp,
    pub(crate) commit: Timestamp,
    pub(crate) copies: Copies,
    pub(crate) poll: Poll,
    pub(crate) times: Times,
    /// What refused it last, if it is tried again since.
    pub(crate) met: Option<AbortReason>,
    pub(crate) result: Option<SingleResult>,
    /// Nothing is to be asked any more.
    pub(crate) is_settled: bool,
}

/// When something is to be done about a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// When to ask again.
    pub(crate) due: Timestamp,
    /// When to give up.
    pub(crate) deadline: Timestamp,
}

impl Default for Times {
    fn default() -> Self {
        Self { due: Timestamp::MAX, deadline: Timestamp::MAX }
    }
}

impl Single {
    /// Nobody looks at it any more.
    pub(super) fn close(&mut self) {
        assert!(self.is_over(), "{} is still under way", self.id);
        self.bytes.close();
    }

    /// Makes a reused slot fresh.
    pub(super) fn open(&mut self, want: Want, op: OpId, shard: ShardIndex, deadline: Timestamp) {
        self.want = want;
        self.session = None;
        self.op = Some(op);
        self.shard = shard;
        self.bytes.clear();
        self.write = WriteOptions { expires_at: Expiry::NEVER, ..WriteOptions::default() };
        self.id = TxnId::new(ClientId::ZERO, Sequence::ZERO);
        self.begin = Timestamp::ZERO;
        self.commit = Timestamp::ZERO;
        self.copies = Copies::default();
        self.poll.silent.clear();
        self.poll.best = None;
        self.times = Times { due: Timestamp::MAX, deadline };
        self.met = None;
        self.result = None;
        self.is_settled = false;
        self.assert_sound();
    }

    /// What holds between any two calls while its slot is taken.
    #[inline]
    pub(super) fn assert_sound(&self) {
        debug_assert!(!self.is_over(), "{} is over, and has a slot", self.id);
        let is_poll = self.want == Want::Status;
        debug_assert!(
            is_poll || self.poll.silent.is_empty(),
            "one shard is asked, and a poll open"
        );
        // What took place did so at the timestamp that the server says, which may be that of a copy
        // from before it began anew.
        let is_open_write = self.is_write() && self.begin > Timestamp::ZERO && !self.is_settled;
        debug_assert!(
            !is_open_write || self.commit > self.begin,
            "{} would be written before it began",
            self.id
        );
        if self.is_settled {
            let waits_for_clocks = self.result.is_none() && self.write.external_wait;
            debug_assert!(
                waits_for_clocks || self.result.is_some() && self.times.due == Timestamp::MAX,
                "{} is settled, and something is due",
                self.id
            );
        } else if self.result.is_some() {
            debug_assert!(
                self.is_write() && self.result == Some(SingleResult::Unknown),
                "{} has a result, and is under way",
                self.id
            );
            debug_assert!(self.times.deadline == Timestamp::MAX, "{} ends twice", self.id);
        }
    }

    /// Whether nobody needs its slot any more.
    #[inline]
    pub(super) const fn is_over(&self) -> bool {
        self.op.is_none() && self.is_settled
    }

    /// When something is to be done about it, when that is so.
    pub(super) fn due(&self) -> Option<Timestamp> {
        let is_waiting = !self.is_settled || self.result.is_none();
        is_waiting.then(|| self.times.due.min(self.times.deadline))
    }

    /// Whether it begins anew when it is sent again, at a later timestamp: no server has it, nor
    /// ever will unless it is sent again, since every copy of it was answered with a refusal, and
    /// nobody was told that it may take place at the timestamp that it has. It holds nothing back:
    /// a store that waits for the watermark would wait for ever for a write that waits for the
    /// store.
    pub(super) fn begins_anew(&self) -> bool {
        let is_untold = self.result.is_none();
        self.is_write()
            && self.copies.are_nowhere()
            && is_untold
            && !is_planted!(KeepsRefusedWrites)
    }

    /// Whether its shard may choose a timestamp above the one that it has: a put that depends on
    /// nothing.
    pub(super) fn may_be_placed(&self) -> bool {
        let WriteOptions { condition, keep_expiry, return_previous, .. } = self.write;
        // What its session does since it was given up lies above what was left to the shard by then.
        let is_left = self.result.is_none() || self.copies.are_placed;
        let depends = condition != Expected::Always || keep_expiry || return_previous;
        self.want == Want::Put && is_left && !depends
    }

    /// The highest timestamp at which a copy of it may take place that was sent.
    pub(super) fn last_chance(&self) -> Timestamp {
        if self.copies.are_placed { self.commit.saturating_add(PLACED_WITHIN) } else { self.commit }
    }

    /// Whether its server may have carried out a copy of it and have forgotten that since. Not when
    /// all copies but the last one were answered with refusals, as a server's are that is being
    /// restarted: then the answer to the last one is the whole answer.
    pub(super) fn may_be_forgotten(&self) -> bool {
        self.copies.doubtful || self.copies.attempts > 0 && is_planted!(DoubtsRefusals)
    }

    /// What the application is told of it.
    pub(super) fn told(&self) -> OpResult<'_> {
        match &self.result {
            Some(SingleResult::Value { version, expires_at, present }) => {
                let value = present.then_some(self.bytes.all());
                OpResult::Value(ValueView { value, version: *version, expires_at: *expires_at })
            }
            Some(SingleResult::Committed(timestamp)) => {
                let previous = self.bytes.previous().filter(|_| self.write.return_previous);
                OpResult::Written(Written { timestamp: *timestamp, txn: self.id, previous })
            }
            Some(SingleResult::Aborted(reason)) => {
                let found = self.bytes.previous();
                OpResult::Aborted(Abort {
                    reason: *reason,
                    key: Some(KeyName { keyspace: self.keyspace, key: self.bytes.key() }),
                    read: None,
                    found: found.filter(|_| reason.kind == AbortKind::Condition),
                    txn: Some(self.id),
                })
            }
            Some(SingleResult::Status(status)) => OpResult::Status(*status),
            Some(SingleResult::Frame) => OpResult::Frame(self.bytes.all()),
            Some(SingleResult::Failed(error)) => OpResult::Failed(error.clone()),
            Some(SingleResult::Unknown) | None => OpResult::Unknown(self.id),
        }
    }

    /// Whether it writes under an id of its own.
    pub(crate) const fn is_write(&self) -> bool {
        matches!(self.want, Want::Put | Want::Delete)
    }
}
