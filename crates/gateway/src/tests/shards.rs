//! Shards for tests: all versions of all keys in memory, validated as docs/protocol/transactions.md
//! says, everything in one turn.
//!
//! Deliberately naive, so that it is plain that they are right. A test may hold answers back, or
//! make prepares fail.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use timestone_seda::{Context, FrameBatch, ReplyAddress, Stage};
use timestone_types::{AbortKind, AbortReason, Expiry, Timestamp, TxnId, Version};
use timestone_wire::{
    Condition, Count, Counted, Decide, DecideAck, ErrorCode, ErrorReply, Frame, Frames, Get, Kind,
    Message, NewestIs, Prepare, ReadAt, Scan, ScanEntry, ScanPageWriter, Value, Verdict, Vote,
    Write, WriteAction, WriteKind, Written,
};

use super::host::Event;

/// A version of a key.
#[derive(Clone, Debug)]
struct Record {
    version: Version,
    value: Option<Vec<u8>>,
    expires_at: Expiry,
}

/// A write that is prepared: what, key, value, expiry.
type Body = (WriteKind, Vec<u8>, Vec<u8>, Expiry);

/// What a test may ask of the shards, and what it may see.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    /// Requests are kept unanswered.
    pub(super) hold: bool,
    /// So many prepares and writes are refused with a conflict.
    pub(super) refuse: u32,
    /// The next write or prepare is carried out, and its answer and all later ones are lost.
    pub(super) lose_answers: bool,
    /// Every request is refused with this code.
    pub(super) broken: Option<ErrorCode>,
    /// So many reads, the first ones that come, are told that their key is prepared.
    pub(super) prepared_reads: u32,
    /// The answers to so many reads that are not refused are found at once, and given only when
    /// this is zero again.
    pub(super) slow_reads: u32,
    /// Prepares are kept unanswered.
    pub(super) hold_prepares: bool,
    /// So many prepares, the next ones, are answered all the same.
    pub(super) release_prepares: u32,
    /// Bytes of the longest batch of frames that came.
    pub(super) longest_frame_batch: usize,
    /// Frames seen, by kind.
    pub(super) seen: BTreeMap<&'static str, u32>,
}

/// A shard.
pub(super) struct TestShard {
    wishes: Arc<Mutex<Wishes>>,
    keys: BTreeMap<Vec<u8>, Vec<Record>>,
    reads: BTreeMap<Vec<u8>, Timestamp>,
    prepared: BTreeMap<Vec<u8>, TxnId>,
    bodies: BTreeMap<TxnId, Vec<Body>>,
    outcomes: BTreeMap<TxnId, Timestamp>,
    waiting: VecDeque<(ReplyAddress, Vec<u8>)>,
    /// Answers that were found and are not given yet.
    slow: Vec<(ReplyAddress, Vec<u8>)>,
    fence: Timestamp,
}

impl TestShard {
    pub(super) fn new(wishes: Arc<Mutex<Wishes>>) -> Self {
        Self {
            wishes,
            keys: BTreeMap::new(),
            reads: BTreeMap::new(),
            prepared: BTreeMap::new(),
            bodies: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            waiting: VecDeque::new(),
            slow: Vec::new(),
            fence: Timestamp::ZERO,
        }
    }

    fn at(&self, key: &[u8], at: Timestamp) -> Option<&Record> {
        self.keys.get(key)?.iter().rev().find(|record| record.version.timestamp <= at)
    }

    fn latest(&self, key: &[u8]) -> Version {
        self.keys
            .get(key)
            .and_then(|records| records.last())
            .map_or(Version::ZERO, |record| record.version)
    }

    /// The lowest timestamp at which a key may be written.
    fn lowest(&self, key: &[u8]) -> Timestamp {
        let read = self.reads.get(key).copied().unwrap_or_default();
        self.latest(key).timestamp.max(read).max(self.fence).next()
    }

    fn raise(&mut self, key: &[u8], at: Timestamp) {
        let mark = self.reads.entry(key.to_vec()).or_default();
        *mark = at.max(*mark);
    }

    fn put(&mut self, key: &[u8], version: Version, value: Option<&[u8]>, expires_at: Expiry) {
        let records = self.keys.entry(key.to_vec()).or_default();
        assert!(
            records.last().is_none_or(|last| last.version < version),
            "versions of a key are written in order"
        );
        records.push(Record { version, value: value.map(<[u8]>::to_vec), expires_at });
    }

    /// The answer to a request; `None` when it must wait.
    fn answer(&mut self, frame: &Frame<'_>, now: Timestamp, out: &mut Vec<u8>) -> Option<()> {
        let envelope = frame.reply_envelope(frame.envelope().epoch, frame.envelope().map_version);
        match frame.kind() {
            Kind::Get => {
                let get = Get::decode(frame).unwrap();
                if self.prepared.contains_key(get.key) {
                    return None;
                }
                let at = match get.at {
                    ReadAt::Snapshot(at) => at,
                    ReadAt::Latest(at) => at.max(self.latest(get.key).timestamp),
                };
                self.raise(get.key, at);
                let record = self.at(get.key, at);
                let value = record
                    .filter(|record| !record.expires_at.has_passed(at))
                    .and_then(|record| record.value.as_deref());
                Value {
                    version: record.map_or(Version::ZERO, |record| record.version),
                    expires_at: record.map_or(Expiry::NEVER, |record| record.expires_at),
                    prepared_before: false,
                    present: value.is_some(),
                    value: value.unwrap_or_default(),
                }
                .encode(&envelope, out);
            }
            Kind::Write => {
                let write = Write::decode(frame).unwrap();
                if self.prepared.contains_key(write.key) {
                    return None;
                }
                self.write(&write, now).encode(&envelope, out);
            }
            Kind::Prepare => {
                let prepare = Prepare::decode(frame).unwrap();
                let verdict = self.prepare(&prepare);
                Vote { txn: prepare.txn, commit: prepare.commit, verdict }.encode(&envelope, out);
            }
            Kind::Decide => {
                let decide = Decide::decode(frame).unwrap();
                self.decide(decide.txn, decide.decision());
                DecideAck { txn: decide.txn }.encode(&envelope, out);
            }
            Kind::Newest => {
                let keys = self.keys.values().flatten().map(|record| record.version.timestamp);
                let at = keys.chain([self.fence]).max().unwrap_or_default();
                NewestIs { at }.encode(&envelope, out);
            }
            Kind::Count => {
                let at = Count::decode(frame).unwrap().at;
                let keys = self.keys.keys().filter(|key| self.is_present(key, at)).count() as u64;
                Counted { keys }.encode(&envelope, out);
            }
            Kind::Scan => {
                let scan = Scan::decode(frame).unwrap();
                let mut page = ScanPageWriter::begin(&envelope, out);
                let from = usize::try_from(scan.cursor).unwrap();
                let mut at = from;
                for (place, key) in self.keys.keys().enumerate().skip(from) {
                    if page.count() == scan.limit {
                        break;
                    }
                    at = place + 1;
                    if self.is_present(key, scan.at) {
                        let entry = ScanEntry {
                            version: Version::ZERO,
                            expires_at: Expiry::NEVER,
                            key,
                            value: b"",
                        };
                        assert!(page.push(&entry));
                    }
                }
                page.finish(at as u64, at >= self.keys.len());
            }
            Kind::Report => {}
            // Who asks for the end of a transaction waits for it here.
            Kind::Terminate => return None,
            other => panic!("a test shard knows nothing of {other:?}"),
        }
        Some(())
    }

    /// Whether a read is told that its key is prepared.
    fn refuses_read(&self) -> bool {
        let mut wishes = self.wishes.lock().unwrap();
        let refused = wishes.prepared_reads > 0;
        wishes.prepared_reads -= u32::from(refused);
        refused
    }

    fn holds_prepare(&self) -> bool {
        let mut wishes = self.wishes.lock().unwrap();
        let goes = !wishes.hold_prepares || wishes.release_prepares > 0;
        wishes.release_prepares = wishes.release_prepares.saturating_sub(1);
        !goes
    }

    fn is_present(&self, key: &[u8], at: Timestamp) -> bool {
        let record = self.at(key, at);
        record.is_some_and(|record| record.value.is_some() && !record.expires_at.has_passed(at))
    }

    fn write<'a>(&'a mut self, write: &Write<'_>, now: Timestamp) -> Written<'a> {
        let refused = |verdict| Written {
            txn: write.txn,
            commit: write.commit,
            verdict,
            previous_present: false,
            previous_version: Version::ZERO,
            previous_expires_at: Expiry::NEVER,
            previous_value: &[],
        };
        if let Some(&commit) = self.outcomes.get(&write.txn) {
            return Written { commit, ..refused(Verdict::Yes) };
        }
        let wishes = Arc::clone(&self.wishes);
        let mut wishes = wishes.lock().unwrap();
        if wishes.refuse > 0 {
            wishes.refuse -= 1;
            return refused(Verdict::No(AbortReason::of(AbortKind::WriteConflict)));
        }
        drop(wishes);
        let lowest = self.lowest(write.key);
        if write.commit < lowest {
            return refused(Verdict::Later(lowest));
        }
        let before = self.at(write.key, Timestamp::MAX).cloned();
        let before = before.filter(|record| {
            record.value.is_some() && !record.expires_at.has_passed(write.commit.max(now))
        });
        let holds = match write.condition {
            Condition::Always => true,
            Condition::IfAbsent => before.is_none(),
            Condition::IfPresent => before.is_some(),
            Condition::IfVersion(version) => {
                before.as_ref().map_or(Version::ZERO, |record| record.version) == version
            }
            Condition::IfValue(value) => {
                before.as_ref().and_then(|record| record.value.as_deref()) == Some(value)
            }
        };
        let expires_at = match write.action {
            WriteAction::PutKeepExpiry => {
                before.as_ref().map_or(Expiry::NEVER, |record| record.expires_at)
            }
            _ => write.expires_at,
        };
        let version = Version::new(write.commit, write.txn.client);
        let value = (write.action != WriteAction::Delete).then_some(write.value);
        if holds && (value.is_some() || before.is_some()) {
            self.put(write.key, version, value, expires_at);
        }
        if holds {
            self.outcomes.insert(write.txn, write.commit);
        } else {
            self.raise(write.key, write.commit);
        }
        let verdict =
            if holds { Verdict::Yes } else { Verdict::No(AbortReason::of(AbortKind::Condition)) };
        let mut written = refused(verdict);
        if let Some(before) = before {
            written.previous_present = true;
            written.previous_version = before.version;
            written.previous_expires_at = before.expires_at;
            if write.return_previous {
                let found = self.keys[write.key]
                    .iter()
                    .find(|record| record.version == before.version)
                    .unwrap();
                written.previous_value = found.value.as_deref().unwrap_or_default();
            }
        }
        written
    }

    fn prepare(&mut self, prepare: &Prepare<'_>) -> Verdict {
        if self.outcomes.contains_key(&prepare.txn) || self.bodies.contains_key(&prepare.txn) {
            return Verdict::Yes;
        }
        {
            let mut wishes = self.wishes.lock().unwrap();
            if wishes.refuse > 0 {
                wishes.refuse -= 1;
                return Verdict::No(AbortReason::of(AbortKind::WriteConflict));
            }
        }
        let mut lowest = Timestamp::ZERO;
        for read in prepare.body.reads() {
            let latest = self.at(read.key, Timestamp::MAX);
            let present = latest.is_some_and(|record| {
                record.value.is_some() && !record.expires_at.has_passed(prepare.commit)
            });
            let same = if read.absent {
                !present
            } else {
                latest.is_some_and(|record| record.version == read.version)
            };
            if self.prepared.contains_key(read.key)
                || !same
                || read.expires_at.has_passed(prepare.commit) && !read.absent
            {
                return Verdict::No(AbortReason::of(AbortKind::ReadConflict));
            }
        }
        for write in prepare.body.writes() {
            if self.prepared.contains_key(write.key) {
                return Verdict::No(AbortReason::of(AbortKind::Prepared));
            }
            let fence = self.keys.keys().map(|key| self.lowest(key)).max().unwrap_or_default();
            lowest = lowest.max(if write.kind == WriteKind::Fence {
                fence
            } else {
                self.lowest(write.key)
            });
        }
        if prepare.commit < lowest {
            return Verdict::Later(lowest);
        }
        for read in prepare.body.reads() {
            self.raise(read.key, prepare.commit);
        }
        let mut body = Vec::new();
        for write in prepare.body.writes() {
            if !prepare.single {
                self.prepared.insert(write.key.to_vec(), prepare.txn);
            }
            body.push((write.kind, write.key.to_vec(), write.value.to_vec(), write.expires_at));
        }
        self.bodies.insert(prepare.txn, body);
        if prepare.single {
            self.decide(prepare.txn, Some(prepare.commit));
        }
        Verdict::Yes
    }

    fn decide(&mut self, txn: TxnId, decision: Option<Timestamp>) {
        let Some(body) = self.bodies.remove(&txn) else { return };
        self.prepared.retain(|_, owner| *owner != txn);
        let Some(commit) = decision else { return };
        self.outcomes.insert(txn, commit);
        let version = Version::new(commit, txn.client);
        for (kind, key, value, expires_at) in body {
            match kind {
                WriteKind::Put => self.put(&key, version, Some(&value), expires_at),
                WriteKind::Delete => self.put(&key, version, None, Expiry::NEVER),
                WriteKind::Fence => {
                    self.fence = commit;
                    self.keys.clear();
                }
            }
        }
    }
}

impl Stage<Event> for TestShard {
    fn name(&self) -> &'static str {
        "test-shard"
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        for event in events.drain(..) {
            let Event::FrameBatch(frame_batch) = event else { continue };
            for frame in Frames::new(&frame_batch.bytes) {
                let frame = frame.unwrap();
                *self.wishes.lock().unwrap().seen.entry(name_of(frame.kind())).or_default() += 1;
                self.waiting.push_back((frame_batch.reply_to, frame.bytes().to_vec()));
            }
            let mut wishes = self.wishes.lock().unwrap();
            wishes.longest_frame_batch = wishes.longest_frame_batch.max(frame_batch.bytes.len());
            drop(wishes);
            ctx.finish_frame_batch(frame_batch);
        }
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        let (hold, broken) = {
            let wishes = self.wishes.lock().unwrap();
            (wishes.hold, wishes.broken)
        };
        if hold {
            return ctx.want_turn();
        }
        if self.wishes.lock().unwrap().slow_reads == 0 {
            for (reply_to, out) in self.slow.drain(..) {
                assert!(
                    ctx.send(reply_to.stage, Event::FrameBatch(FrameBatch::new(reply_to, out)))
                        .is_ok()
                );
            }
        }
        let mut again = true;
        while std::mem::take(&mut again) {
            for _ in 0..self.waiting.len() {
                let (reply_to, bytes) = self.waiting.pop_front().unwrap();
                let frame = Frame::parse(&bytes).unwrap();
                if frame.kind() == Kind::Prepare && self.holds_prepare() {
                    self.waiting.push_back((reply_to, bytes));
                    continue;
                }
                let mut out = ctx.take_buffer();
                let changes = matches!(frame.kind(), Kind::Write | Kind::Prepare | Kind::Decide);
                if let (Some(code), false) = (broken, frame.kind() == Kind::Report) {
                    let envelope =
                        frame.reply_envelope(frame.envelope().epoch, frame.envelope().map_version);
                    ErrorReply::new(code, "as the test wants it").encode(&envelope, &mut out);
                } else if frame.kind() == Kind::Get && self.refuses_read() {
                    let envelope =
                        frame.reply_envelope(frame.envelope().epoch, frame.envelope().map_version);
                    ErrorReply::new(ErrorCode::Prepared, "as the test wants it")
                        .encode(&envelope, &mut out);
                } else if self.answer(&frame, ctx.now(), &mut out).is_none() {
                    self.waiting.push_back((reply_to, bytes));
                    continue;
                }
                again |= changes;
                if frame.kind() == Kind::Get
                    && self.slow.len() < self.wishes.lock().unwrap().slow_reads as usize
                {
                    let frame = Frame::parse(&out).unwrap();
                    if frame.kind() == Kind::Value {
                        self.slow.push((reply_to, out));
                        continue;
                    }
                }
                if !self.wishes.lock().unwrap().lose_answers && !out.is_empty() {
                    assert!(
                        ctx.send(reply_to.stage, Event::FrameBatch(FrameBatch::new(reply_to, out)))
                            .is_ok()
                    );
                }
            }
        }
    }
}

const fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Get => "get",
        Kind::Write => "write",
        Kind::Prepare => "prepare",
        Kind::Decide => "decide",
        Kind::Scan => "scan",
        Kind::Report => "report",
        Kind::Count => "count",
        _ => "other",
    }
}
