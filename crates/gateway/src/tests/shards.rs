//! A reference shard as a stage, for the gateway's tests: a test may hold answers back, lose them,
//! or make requests fail.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use timestone_seda::{Context, FrameBatch, ReplyAddress, Stage};
use timestone_testkit::ReferenceShard;
use timestone_types::{Epoch, ShardId};
use timestone_wire::{ErrorCode, ErrorReply, Frame, Frames, Kind, Message};

use super::host::Event;

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
    model: ReferenceShard,
    waiting: VecDeque<(ReplyAddress, Vec<u8>)>,
    /// Answers that were found and are not given yet.
    slow: Vec<(ReplyAddress, Vec<u8>)>,
}

impl TestShard {
    pub(super) fn new(id: ShardId, wishes: Arc<Mutex<Wishes>>) -> Self {
        let mut model = ReferenceShard::new(id);
        // The epoch of the map that the gateways of tests have.
        model.epoch = Epoch::ZERO;
        Self { wishes, model, waiting: VecDeque::new(), slow: Vec::new() }
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
            _ => is_refused_read.then_some(ErrorCode::Prepared),
        };
        if let Some(code) = code {
            wishes.prepared_reads -= u32::from(wishes.broken.is_none());
            let envelope =
                frame.reply_envelope(frame.envelope().epoch, frame.envelope().map_version);
            ErrorReply::new(code, "as the test wants it").encode(&envelope, &mut out);
            return Some(out);
        }
        self.model.conflicts = wishes.refuse;
        let is_served = self.model.answer(ctx.now(), frame.bytes(), false, &mut out);
        wishes.refuse = self.model.conflicts;
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
