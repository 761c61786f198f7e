//! Requests: who asked, what is needed to go on, and the answers.
//!
//! ```text
//!   frame ─► open ─► token ─► participant, store ─► answer, refuse or fail ─► replies (one batch of
//!                                                   frames per reply address and turn)
//! ```
//! Invariants: a request is answered once at most, and its place is free from then on; every answer
//! carries the epoch and the version of the map that are in force.

pub(crate) mod pending;
pub(crate) mod replies;
pub(crate) mod states;

use std::sync::Arc;

use timestone_clock::Clock;
use timestone_cluster::{MapVersion, ShardMap};
use timestone_seda::{Memory, ReplyAddress};
use timestone_store::StoreError;
use timestone_txn::Refusal;
use timestone_txn::participant::{Token, Vote};
use timestone_types::{AbortKind, Epoch, Expiry, ShardId, Timestamp, TxnId, Version};
use timestone_wire::{self as wire, Envelope, ErrorCode, ErrorReply, Frame, Message, Verdict};

use crate::driver::Driver;
use crate::gauges::{ShardGauges, Timed};
use crate::turn::Turn;
use pending::{OpenRequests, Previous, Request, RequestPurpose};
use replies::Replies;
use states::{state_of_outcome, verdict_of_write};

/// The requests of a shard that are under way, and their answers.
pub(crate) struct Requests {
    shard: ShardId,
    epoch: Epoch,
    map_version: MapVersion,
    open: OpenRequests,
    replies: Replies,
    memory: Arc<Memory>,
    gauges: Arc<ShardGauges>,
}

impl Requests {
    /// None yet, of a shard in this epoch.
    pub(crate) fn new(
        (shard, epoch, map_version): (ShardId, Epoch, MapVersion),
        memory: Arc<Memory>,
        clock: Arc<dyn Clock>,
        gauges: Arc<ShardGauges>,
    ) -> Self {
        let envelope = Envelope { shard, epoch, map_version, ..Envelope::default() };
        let open = OpenRequests::new(Arc::clone(&gauges.latencies));
        let replies = Replies::new(Arc::clone(&memory), clock, envelope);
        Self { shard, epoch, map_version, open, replies, memory, gauges }
    }

    /// Whose requests these are.
    pub(crate) const fn shard(&self) -> ShardId {
        self.shard
    }

    /// The epoch that requests have to be made for.
    #[inline]
    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Another map is in force.
    pub(crate) fn map_changed(&mut self, map: &ShardMap) {
        assert!(self.map_version <= map.version(), "a map is followed by younger ones");
        self.map_version = map.version();
        for shard in map.shards().iter().filter(|shard| shard.id == self.shard) {
            self.epoch = shard.epoch;
        }
        let (shard, epoch, map_version) = (self.shard, self.epoch, self.map_version);
        self.replies.set_envelope(Envelope { shard, epoch, map_version, ..Envelope::default() });
    }

    /// Gives a request its token.
    #[inline]
    pub(crate) fn open(
        &mut self,
        reply_to: ReplyAddress,
        frame: &Frame<'_>,
        purpose: RequestPurpose,
    ) -> Token {
        let envelope = self.envelope_for(frame);
        let token = self.open.open(reply_to, envelope, purpose, Timed::of(frame.kind()));
        debug_assert!(self.open.is_open(token), "a request has a place until it is answered");
        token
    }

    /// The envelope of an answer to a frame.
    #[inline]
    pub(crate) fn envelope_for(&self, frame: &Frame<'_>) -> Envelope {
        frame.reply_envelope(self.epoch, self.map_version)
    }

    /// The request of a token, if it is still under way.
    #[inline]
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut Request> {
        self.open.get_mut(token)
    }

    /// Ends a request without an answer, or after it.
    #[inline]
    pub(crate) fn close(&mut self, token: Token) {
        self.open.close(token);
        self.assert_over(token);
    }

    /// Ends a request that another one answers for.
    pub(crate) fn close_repeat(&mut self, token: Token) {
        self.open.close_repeat(token);
    }

    fn assert_over(&self, token: Token) {
        debug_assert!(!self.open.is_open(token), "a request is answered once");
    }

    /// A turn begins.
    pub(crate) fn set_now(&mut self, now: Timestamp) {
        self.open.set_now(now);
        self.open.assert_sound();
    }

    /// How many are under way.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether whatever is under way waits for others, and every answer has left.
    pub(crate) fn is_quiet(&self, without_answers: bool) -> bool {
        (self.open.are_parked() || without_answers) && self.replies.is_empty()
    }

    /// A request waits for others from now on: its bytes are kept.
    pub(crate) fn park(&mut self, token: Token, current: Option<(Token, &Frame<'_>)>) {
        self.open.set_parked(token, true);
        self.keep_frame(token, current);
        debug_assert!(
            self.open.get_mut(token).is_none_or(|request| !request.frame.is_empty()),
            "who waits has a frame"
        );
    }

    /// A request goes on.
    pub(crate) fn unpark(&mut self, token: Token) {
        self.open.set_parked(token, false);
        self.open.assert_sound();
    }

    /// A request is handed in again later: its frame is needed then.
    pub(crate) fn keep_frame(&mut self, token: Token, current: Option<(Token, &Frame<'_>)>) {
        if let Some((at_hand, frame)) = current
            && at_hand == token
            && let Some(request) = self.open.get_mut(token)
        {
            if request.frame.is_empty() {
                request.frame.extend_from_slice(frame.bytes());
            }
            debug_assert_eq!(request.frame, frame.bytes(), "a request has one frame");
        }
    }

    /// The buffer for an answer to `reply_to`.
    #[inline]
    pub(crate) fn reply(&mut self, ctx: &mut Turn<'_>, reply_to: ReplyAddress) -> &mut Vec<u8> {
        self.replies.buffer(ctx, reply_to)
    }

    /// Sends every answer of this turn.
    pub(crate) fn flush(&mut self, ctx: &mut Turn<'_>) {
        self.replies.flush(ctx);
        assert!(self.replies.is_empty(), "answers leave with their turn");
    }

    /// Whether a request may be answered with a value, or a page, of this length now.
    #[inline]
    pub(crate) fn has_reply_room(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        bytes: usize,
    ) -> bool {
        let Some(request) = self.open.get_mut(token) else { return true };
        let purpose = request.purpose;
        debug_assert!(
            matches!(purpose, RequestPurpose::Get | RequestPurpose::Scan | RequestPurpose::Range),
            "writes count what they find themselves"
        );
        self.replies.has_room(ctx, request.reply_to, bytes)
    }

    /// Keeps what a write that has not taken place yet found; whether there is memory for it.
    pub(crate) fn keep_found(
        &mut self,
        token: Token,
        (version, expires_at): (Version, Expiry),
        value: &[u8],
    ) -> bool {
        let Some(request) = self.open.get_mut(token) else { return false };
        debug_assert_eq!(
            request.purpose,
            RequestPurpose::Write,
            "only a write keeps what it finds"
        );
        let known = request.write.keep_found(&self.memory, value);
        request.write.previous = Previous { known, present: true, version, expires_at };
        known
    }

    /// Keeps what a write had found that took place before.
    pub(crate) fn keep_told(&mut self, token: Token, value: &[u8]) {
        if let Some(request) = self.open.get_mut(token) {
            debug_assert_eq!(
                request.purpose,
                RequestPurpose::Write,
                "only a write keeps what it finds"
            );
            request.write.keep_told(&self.memory, value);
        }
    }

    /// Answers a prepare, or a single write.
    #[inline]
    pub(crate) fn vote(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        (txn, commit): (TxnId, Timestamp),
        vote: Vote,
        driver: &Driver,
    ) {
        let Some(request) = self.open.get_mut(token) else { return };
        let purpose = request.purpose;
        debug_assert!(
            matches!(
                purpose,
                RequestPurpose::Prepare | RequestPurpose::Write | RequestPurpose::Other
            ),
            "there is no vote about a read"
        );
        if request.is_strict_read
            && let Err(refusal) = driver.check_present()
        {
            return self.refuse(ctx, token, &refusal);
        }
        if purpose == RequestPurpose::Write && driver.is_waited_out(ctx.now(), &vote) {
            return self.refuse(ctx, token, &Refusal::Recovering);
        }
        self.gauges.vote(&vote);
        if purpose == RequestPurpose::Write {
            let (commit, verdict) = verdict_of_write(commit, vote);
            return self.answer_written(ctx, token, txn, commit, verdict);
        }
        let verdict = match vote {
            Vote::Yes => Verdict::Yes,
            Vote::Later(at) => Verdict::Later(at),
            Vote::No(reason) => Verdict::No(reason),
            Vote::Decided(outcome) => {
                let state = state_of_outcome(outcome);
                return self.answer(ctx, token, |envelope, out| {
                    wire::StatusIs { txn, state }.encode(envelope, out)
                });
            }
        };
        self.answer(ctx, token, |envelope, out| {
            wire::Vote { txn, commit, verdict }.encode(envelope, out)
        });
    }

    /// Answers a request with one frame, and ends it.
    #[inline]
    pub(crate) fn answer(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        write: impl FnOnce(&Envelope, &mut Vec<u8>),
    ) {
        if let Some(request) = self.open.get_mut(token) {
            let (reply_to, envelope) = (request.reply_to, request.envelope);
            let out = self.replies.buffer(ctx, reply_to);
            let before = out.len();
            write(&envelope, out);
            debug_assert!(before < out.len(), "an answer has bytes");
            self.open.close(token);
        }
    }

    pub(crate) fn answer_error(
        &mut self,
        ctx: &mut Turn<'_>,
        reply_to: ReplyAddress,
        frame: &Frame<'_>,
        error: &ErrorReply<'_>,
    ) {
        let envelope = self.envelope_for(frame);
        let out = self.replies.buffer(ctx, reply_to);
        let before = out.len();
        error.encode(&envelope, out);
        debug_assert!(before < out.len(), "an answer has bytes");
    }

    pub(crate) fn refuse_epoch(
        &mut self,
        ctx: &mut Turn<'_>,
        reply_to: ReplyAddress,
        frame: &Frame<'_>,
    ) {
        debug_assert_ne!(frame.envelope().epoch, self.epoch, "it was not made for this epoch");
        let text = format!(
            "shard {} is in epoch {}, the request was made for epoch {}; fetch the shard map again",
            self.shard,
            self.epoch,
            frame.envelope().epoch
        );
        self.answer_error(ctx, reply_to, frame, &ErrorReply::new(ErrorCode::StaleEpoch, &text));
    }

    pub(crate) fn refuse(&mut self, ctx: &mut Turn<'_>, token: Token, refusal: &Refusal) {
        let words = refusal.to_string();
        self.gauges.count_refusal(refusal);
        let error = match *refusal {
            Refusal::TooOld { watermark } => {
                ErrorReply::new(ErrorCode::SnapshotTooOld, &words).with_detail(watermark.as_nanos())
            }
            Refusal::ClockAhead { lead } => {
                let nanos = u64::try_from(lead.as_nanos()).unwrap_or(u64::MAX);
                ErrorReply::new(ErrorCode::ClockAhead, &words).with_detail(nanos)
            }
            Refusal::ClockHeld { wait } => {
                let wait =
                    wait.clamp(crate::limits::BUSY_RETRY_AFTER, crate::limits::HELD_RETRY_AFTER);
                ErrorReply::new(ErrorCode::Busy, &words).with_retry_after(wait)
            }
            Refusal::ClockBehind { left } => {
                let nanos = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
                ErrorReply::new(ErrorCode::ClockBehind, &words).with_detail(nanos)
            }
            Refusal::Prepared { other } => {
                ErrorReply { other: Some(other), ..ErrorReply::new(ErrorCode::Prepared, &words) }
            }
            Refusal::Finished => ErrorReply::new(ErrorCode::SessionEnded, &words),
            Refusal::Terminating => ErrorReply::new(ErrorCode::Terminated, &words),
            Refusal::Recovering => ErrorReply::new(ErrorCode::Unavailable, &words),
            Refusal::Busy => ErrorReply::new(ErrorCode::Busy, &words)
                .with_retry_after(crate::limits::BUSY_RETRY_AFTER),
            Refusal::LogLost => ErrorReply::new(ErrorCode::StorageFailed, &words),
            Refusal::Contradiction => ErrorReply::new(ErrorCode::Internal, &words),
        };
        self.answer(ctx, token, |envelope, out| error.encode(envelope, out));
        self.assert_over(token);
    }

    /// There is no room for what a request would put; nothing was done.
    pub(crate) fn refuse_full(&mut self, ctx: &mut Turn<'_>, token: Token, words: &str) {
        let error = ErrorReply::new(ErrorCode::DeviceFull, words);
        self.answer(ctx, token, |envelope, out| error.encode(envelope, out));
        self.assert_over(token);
    }

    /// The memory for answers is used up: a read changes nothing, and a write has not taken place
    /// yet, so it may be asked again.
    pub(crate) fn refuse_unread(&mut self, ctx: &mut Turn<'_>, token: Token) {
        let words = "the server's memory for answers is used up; try again";
        let error = ErrorReply::new(ErrorCode::Busy, words)
            .with_retry_after(crate::limits::UNREAD_RETRY_AFTER);
        self.answer(ctx, token, |envelope, out| error.encode(envelope, out));
        self.assert_over(token);
    }

    /// The store could not do what a request needs.
    pub(crate) fn fail(&mut self, ctx: &mut Turn<'_>, token: Token, error: &StoreError) {
        let words = match error {
            StoreError::DeviceFull { live_blocks, blocks, growth: None } => format!(
                "the store is full ({live_blocks} of {blocks} blocks hold live data): delete \
                 something, or restart the server with a larger --capacity"
            ),
            other => other.to_string(),
        };
        let code = match error {
            StoreError::TooOld { .. } => ErrorCode::SnapshotTooOld,
            StoreError::DeviceFull { .. }
            | StoreError::MemoryFull { .. }
            | StoreError::NoDevice(_) => ErrorCode::DeviceFull,
            StoreError::Busy => ErrorCode::Busy,
            StoreError::NotOrdered(_) => ErrorCode::BadArgument,
            StoreError::Corrupt { .. } => ErrorCode::Corrupt,
            StoreError::KeyTooLong { .. } => ErrorCode::KeyTooLong,
            StoreError::ValueTooLarge { .. } => ErrorCode::ValueTooLong,
            _ => ErrorCode::StorageFailed,
        };
        let detail =
            if let StoreError::TooOld { watermark, .. } = error { watermark.as_nanos() } else { 0 };
        if matches!(code, ErrorCode::Corrupt | ErrorCode::StorageFailed) {
            tracing::error!(shard = %self.shard, %error, "the store could not serve a request");
        }
        let error = ErrorReply::new(code, &words).with_detail(detail);
        let error = if code == ErrorCode::Busy {
            error.with_retry_after(crate::limits::BUSY_RETRY_AFTER)
        } else {
            error
        };
        self.answer(ctx, token, |envelope, out| error.encode(envelope, out));
        self.assert_over(token);
    }

    /// The answer to a single-key write.
    pub(crate) fn answer_written(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        txn: TxnId,
        commit: Timestamp,
        verdict: Verdict,
    ) {
        let Some(request) = self.open.get_mut(token) else { return };
        let (reply_to, envelope, previous) =
            (request.reply_to, request.envelope, request.write.previous);
        let told = match verdict {
            Verdict::Yes => true,
            Verdict::No(reason) => reason.kind == AbortKind::Condition,
            Verdict::Later(_) => false,
        };
        if told && request.write.returns_previous && !previous.known {
            // A repeat, and what the first copy found is not remembered.
            return self.answer_unknown(ctx, token);
        }
        // Only a delete without a condition can be refused although it has none: there was nothing
        // to delete.
        let verdict = match verdict {
            Verdict::No(reason)
                if reason.kind == AbortKind::Condition && request.write.unconditional =>
            {
                Verdict::Yes
            }
            other => other,
        };
        let charge = request.write.charge.take();
        let out = self.replies.buffer(ctx, reply_to);
        wire::Written {
            txn,
            commit,
            verdict,
            previous_present: previous.present,
            previous_version: previous.version,
            previous_expires_at: previous.expires_at,
            previous_value: if request.write.returns_previous { &request.write.value } else { &[] },
        }
        .encode(&envelope, out);
        self.replies.count(charge);
        self.open.close(token);
        self.assert_over(token);
    }

    /// The write took place, or was refused, once: that much of its answer cannot be told any more.
    pub(crate) fn answer_unknown(&mut self, ctx: &mut Turn<'_>, token: Token) {
        let words = "the write was decided before, and the previous value that its answer carried \
            cannot be read any more";
        self.answer(ctx, token, |envelope, out| {
            ErrorReply::new(ErrorCode::UnknownOutcome, words).encode(envelope, out)
        });
        self.assert_over(token);
    }
}
