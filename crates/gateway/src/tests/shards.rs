//! A reference shard as a stage, for the gateway's tests: a test may hold answers back, lose them,
//! or make requests fail.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use timestone_cluster::MapVersion;
use timestone_seda::{Context, FrameBatch, ReplyAddress, Stage};
use timestone_shard::{DirectAnswer, DirectAt, DirectPut, Found};
use timestone_testkit::ReferenceShard;
use timestone_types::{
    ClientId, Epoch, HashSeed, HashedKey, KeyRef, Sequence, ShardId, Timestamp, TxnId, random,
};
use timestone_wire::{
    Condition, Envelope, ErrorCode, ErrorReply, Frame, Frames, Get, Kind, Message, ReadAt,
    RequestId, Scan, Value, Verdict, Write, WriteAction, Written,
};

use super::host::Event;
use crate::{DirectCalls, DirectShard};

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
    /// The log has failed: writes and snapshots are refused, the present is read.
    pub(super) log_lost: bool,
    /// So many reads, the first ones that come, are told that their key is prepared.
    pub(super) prepared_reads: u32,
    /// The answers to so many reads that are not refused are found at once, and given only when
    /// this is zero again.
    pub(super) slow_reads: u32,
    /// Cursors of scans are of a place where the keyspace is kept no more.
    pub(super) lost_cursors: bool,
    /// Prepares are kept unanswered.
    pub(super) hold_prepares: bool,
    /// So many prepares, the next ones, are answered all the same.
    pub(super) release_prepares: u32,
    /// Bytes of the longest batch of frames that came.
    pub(super) longest_frame_batch: usize,
    /// Frames seen, by kind.
    pub(super) seen: BTreeMap<&'static str, u32>,
    /// Calls that were answered.
    pub(super) called: u32,
    /// Of so many calls one is answered; of one all are.
    pub(super) hesitation: u64,
}

/// Whether a shard whose log has failed refuses a request.
fn needs_log(frame: &Frame<'_>) -> bool {
    match frame.kind() {
        Kind::Write | Kind::Prepare => true,
        Kind::Get => matches!(Get::decode(frame).unwrap().at, ReadAt::Snapshot(_)),
        _ => false,
    }
}

/// A shard.
pub(super) struct TestShard {
    wishes: Arc<Mutex<Wishes>>,
    model: Arc<Mutex<ReferenceShard>>,
    waiting: VecDeque<(ReplyAddress, Vec<u8>)>,
    /// Answers that were found and are not given yet.
    slow: Vec<(ReplyAddress, Vec<u8>)>,
}

impl TestShard {
    pub(super) fn new(id: ShardId, wishes: Arc<Mutex<Wishes>>) -> Self {
        let mut model = ReferenceShard::new(id);
        // The epoch of the map that the gateways of tests have.
        model.epoch = Epoch::ZERO;
        let model = Arc::new(Mutex::new(model));
        Self { wishes, model, waiting: VecDeque::new(), slow: Vec::new() }
    }

    /// The same shard, for calls.
    pub(super) fn called(&self, id: ShardId) -> CalledShard {
        let (model, wishes) = (Arc::clone(&self.model), Arc::clone(&self.wishes));
        CalledShard { id, model, wishes, dice: random::Seed(3).dice(), value: Vec::new() }
    }

    /// The answer to a request; `None` when it must wait.
    fn answer(&mut self, ctx: &mut Context<'_, Event>, frame: &Frame<'_>) -> Option<Vec<u8>> {
        let mut wishes = self.wishes.lock().unwrap();
        if frame.kind() == Kind::Prepare && wishes.hold_prepares {
            wishes.release_prepares = wishes.release_prepares.checked_sub(1)?;
        }
        let is_refused_read = frame.kind() == Kind::Get && wishes.prepared_reads > 0;
        let mut out = ctx.take_buffer();
        let code = match wishes.broken {
            Some(code) if frame.kind() != Kind::Report => Some(code),
            _ if wishes.log_lost && needs_log(frame) => Some(ErrorCode::StorageFailed),
            _ => is_refused_read.then_some(ErrorCode::Prepared),
        };
        if let Some(code) = code {
            wishes.prepared_reads -= u32::from(is_refused_read && wishes.broken.is_none());
            let envelope =
                frame.reply_envelope(frame.envelope().epoch, frame.envelope().map_version);
            ErrorReply::new(code, "as the test wants it").encode(&envelope, &mut out);
            return Some(out);
        }
        if frame.kind() == Kind::Scan && wishes.lost_cursors {
            let scan = Scan::decode(frame).unwrap();
            if scan.cursor > 0 {
                let envelope =
                    frame.reply_envelope(frame.envelope().epoch, frame.envelope().map_version);
                ErrorReply::new(ErrorCode::SnapshotTooOld, "a cursor of another place")
                    .with_detail(scan.at.next().as_nanos())
                    .encode(&envelope, &mut out);
                return Some(out);
            }
        }
        let mut model = self.model.lock().unwrap();
        model.conflicts = wishes.refuse;
        let is_served = model.answer(ctx.now(), frame.bytes(), false, &mut out);
        wishes.refuse = model.conflicts;
        is_served.then_some(out)
    }

    fn send(&self, ctx: &mut Context<'_, Event>, reply_to: ReplyAddress, out: Vec<u8>) {
        if !self.wishes.lock().unwrap().lose_answers && !out.is_empty() {
            let batch = FrameBatch::new(reply_to, out);
            assert!(ctx.send(reply_to.stage, Event::FrameBatch(batch)).is_ok());
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
            let mut wishes = self.wishes.lock().unwrap();
            for frame in Frames::new(&frame_batch.bytes) {
                let frame = frame.unwrap();
                *wishes.seen.entry(name_of(frame.kind())).or_default() += 1;
                self.waiting.push_back((frame_batch.reply_to, frame.bytes().to_vec()));
            }
            wishes.longest_frame_batch = wishes.longest_frame_batch.max(frame_batch.bytes.len());
            drop(wishes);
            ctx.finish_frame_batch(frame_batch);
        }
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        let (hold, slow_reads) = {
            let wishes = self.wishes.lock().unwrap();
            (wishes.hold, wishes.slow_reads as usize)
        };
        if hold {
            return ctx.want_turn();
        }
        if slow_reads == 0 {
            for (reply_to, out) in std::mem::take(&mut self.slow) {
                self.send(ctx, reply_to, out);
            }
        }
        let mut again = true;
        while std::mem::take(&mut again) {
            for _ in 0..self.waiting.len() {
                let (reply_to, bytes) = self.waiting.pop_front().unwrap();
                let frame = Frame::parse(&bytes).unwrap();
                let Some(out) = self.answer(ctx, &frame) else {
                    self.waiting.push_back((reply_to, bytes));
                    continue;
                };
                again |= matches!(frame.kind(), Kind::Write | Kind::Prepare | Kind::Decide);
                let is_value = || Frame::parse(&out).is_ok_and(|frame| frame.kind() == Kind::Value);
                if self.slow.len() < slow_reads && is_value() {
                    self.slow.push((reply_to, out));
                } else {
                    self.send(ctx, reply_to, out);
                }
            }
        }
    }
}

/// A reference shard that is called: what it would have to wait for, and what a test wants it to
/// leave, it does not answer.
pub(super) struct CalledShard {
    id: ShardId,
    model: Arc<Mutex<ReferenceShard>>,
    wishes: Arc<Mutex<Wishes>>,
    dice: random::Dice,
    /// What was read last.
    value: Vec<u8>,
}

impl CalledShard {
    /// Asks the model in a frame; the answer, unless it is left.
    fn ask(&mut self, now: Timestamp, encode: impl FnOnce(&Envelope, &mut Vec<u8>)) -> Vec<u8> {
        let mut wishes = self.wishes.lock().unwrap();
        if wishes.hesitation > 1 && !self.dice.roll().is_multiple_of(wishes.hesitation) {
            return Vec::new();
        }
        let (mut frame, mut out) = (Vec::new(), Vec::new());
        let to = Envelope {
            shard: self.id,
            epoch: Epoch::ZERO,
            request: RequestId::new(0),
            map_version: MapVersion::new(0),
        };
        encode(&to, &mut frame);
        self.model.lock().unwrap().answer(now, &frame, false, &mut out);
        wishes.called += u32::from(!out.is_empty());
        out
    }
}

impl DirectCalls for CalledShard {
    fn fetch_ahead(&self, reads: &[HashedKey], puts: &[HashedKey]) {
        assert!(!reads.is_empty() || !puts.is_empty(), "nobody calls for nothing");
    }

    fn get(&mut self, key: KeyRef<'_>, asked: DirectAt) -> Option<Found<'_>> {
        assert_eq!(key, KeyRef::new(self.seed(), key.keyspace, key.bytes), "hashed as here");
        let (keyspace, at) = (key.keyspace, ReadAt::Latest(asked.begin));
        let out = self.ask(asked.now, |to, out| {
            Get { client: ClientId::new(9), keyspace, at, wait: false, key: key.bytes }
                .encode(to, out);
        });
        let frame = Frame::parse(&out).ok()?;
        let Value { version, expires_at, present, value, .. } = Value::decode(&frame).ok()?;
        self.value = value.to_vec();
        Some(Found { version, expires_at, value: present.then_some(&self.value) })
    }

    fn put(&mut self, put: DirectPut<'_>, asked: DirectAt) -> DirectAnswer {
        let DirectPut { key, value, expires_at, client, commit } = put;
        let (begin, keyspace) = (asked.begin, key.keyspace);
        // Names of its own: no other client of the test has this id.
        let txn = TxnId::new(ClientId::new(77), Sequence::new(commit.as_nanos()));
        assert_eq!(client, ClientId::new(9), "the gateway's");
        let out = self.ask(asked.now, |to, out| {
            Write {
                txn,
                begin,
                commit,
                keyspace,
                action: WriteAction::Put,
                condition: Condition::Always,
                return_previous: false,
                wait: false,
                expires_at,
                key: key.bytes,
                value,
            }
            .encode(to, out);
        });
        let Ok(frame) = Frame::parse(&out) else { return DirectAnswer::Indirect };
        match Written::decode(&frame).map(|written| written.verdict) {
            Ok(Verdict::Yes) => DirectAnswer::Done,
            Ok(Verdict::Later(at)) => DirectAnswer::Later(at),
            _ => DirectAnswer::Indirect,
        }
    }
}

impl DirectShard for CalledShard {
    fn id(&self) -> ShardId {
        self.id
    }

    fn seed(&self) -> HashSeed {
        HashSeed(u64::from(self.id.get()) + 5)
    }

    fn takes_puts(&self) -> bool {
        true
    }

    fn is_here(&self) -> bool {
        true
    }

    fn enter(&mut self, run: &mut dyn FnMut(&mut dyn DirectCalls)) -> bool {
        run(self);
        true
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
        Kind::Range => "range",
        _ => "other",
    }
}
