//! A shard's records, on their way to the log and in it.
//!
//! ```text
//!   intent ─► record ─► journal ─► close ─► log stage ─► durable ─► truncation point ─► the logs may go
//!                                                          └─► sequence, for the participant
//! ```
//! Without a log everything counts as durable at once. Invariants: a batch leaves once, in the epoch
//! in which its records were made; what a log asks for is copied forward once at a time.

pub(crate) mod journal;
pub(crate) mod log_contents;
pub(crate) mod order;
pub(crate) mod retained;
pub(crate) mod unstable;

use timestone_seda::StageId;
use timestone_txn::participant::{CopyForward, LogIntent, LogSequence};
use timestone_types::{Epoch, ShardId, Timestamp, TxnId, TxnOutcome};
use timestone_wal::{BatchHead, BatchNumber, DecidedBy, LogRecord, Participants};

use crate::admission::Admission;
use crate::checkpoint::Tap;
use crate::limits::LOG_BATCH_BYTES;
use crate::shard::{LogPlace, ShardStore};
use crate::turn::{LogAppend, Output, Turn};
use crate::write_sets::payload::Payloads;
use journal::{ClosedBatch, Journal};
use log_contents::LogContents;

/// The records of a shard, and where they go.
pub(crate) struct LogRecords {
    shard: ShardId,
    epoch: Epoch,
    place: LogPlace,
    journal: Journal,
    /// Every log stage, and the oldest batch of this shard that it may hand out at a recovery, once
    /// it has said so.
    logs: LogContents,
    /// What is needed below the first batch stands again in the second, which is not durable yet.
    copying: Option<(BatchNumber, BatchNumber)>,
    /// The highest sequence that is durable without a log.
    durable_at_once: Option<LogSequence>,
    has_failed: bool,
    /// Copies of the batches that leave, while somebody wants them.
    tap: Option<Tap>,
}

/// Whom a batch that leaves concerns beside the log.
pub(crate) struct Closers<'a> {
    pub(crate) watermark: Timestamp,
    pub(crate) store: &'a mut ShardStore,
    pub(crate) admission: &'a mut Admission,
}

impl LogRecords {
    /// Of a shard in this epoch; `logs` are those that may hold records of earlier runs.
    pub(crate) fn new(
        (shard, epoch): (ShardId, Epoch),
        place: LogPlace,
        journal: Journal,
        logs: &[StageId],
    ) -> Self {
        let logs = LogContents::of(logs);
        let (copying, durable_at_once, has_failed) = (None, None, false);
        let tap = None;
        Self { shard, epoch, place, journal, logs, copying, durable_at_once, has_failed, tap }
    }

    /// The epoch of what is recorded now.
    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What is recorded from now on belongs to this epoch.
    pub(crate) fn set_epoch(&mut self, epoch: Epoch) {
        assert!(
            self.journal.open_bytes() == 0 || self.place == LogPlace::Nowhere,
            "what is recorded already keeps its epoch"
        );
        self.epoch = epoch;
    }

    /// Whether there is a log.
    #[inline]
    pub(crate) fn has_log(&self) -> bool {
        self.place != LogPlace::Nowhere
    }

    /// Whether this is where the records go.
    pub(crate) fn are_at(&self, log: StageId) -> bool {
        self.place == LogPlace::Stage(log)
    }

    /// The batch that records are being added to.
    #[inline]
    pub(crate) const fn open_batch(&self) -> BatchNumber {
        self.journal.open_batch()
    }

    /// Bytes in the open batch.
    #[inline]
    pub(crate) fn open_bytes(&self) -> usize {
        self.journal.open_bytes()
    }

    /// The log has failed: nothing is sent to it any more.
    pub(crate) fn fail(&mut self) {
        assert!(self.has_log(), "what is not there does not fail");
        self.has_failed = true;
    }

    /// Whether the log has failed.
    pub(crate) const fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether nothing waits for the log.
    pub(crate) fn are_idle(&self) -> bool {
        self.journal.is_idle() || self.has_failed
    }

    /// The last batch that has left is remembered as the one before what is tapped from here on.
    pub(crate) fn open_tap(&mut self) -> BatchNumber {
        assert_eq!(self.open_bytes(), 0, "what is recorded has left");
        self.tap = Some(Tap::default());
        BatchNumber::new(self.open_batch().get() - 1)
    }

    /// Nobody wants copies of batches any more.
    pub(crate) fn close_tap(&mut self) {
        self.tap = None;
    }

    /// Copies of what has left, if somebody wants them, and up to where batches are durable.
    pub(crate) fn tapped(&mut self) -> Option<(&mut Tap, BatchNumber)> {
        let durable = self.journal.durable_to();
        self.tap.as_mut().map(|tap| (tap, durable))
    }

    /// The batch that ends what is copied forward and not durable yet.
    pub(crate) fn copied_in(&self) -> Option<BatchNumber> {
        self.copying.map(|(_, copied_in)| copied_in)
    }

    /// Whether something is copied forward and not durable yet.
    pub(crate) const fn is_copying(&self) -> bool {
        self.copying.is_some()
    }

    /// Writes of a prepare in this batch are in the store; none: it was not recorded.
    #[inline]
    pub(crate) fn applied(&mut self, prepared_in: Option<BatchNumber>) {
        debug_assert!(
            prepared_in.is_none_or(|batch| batch <= self.open_batch()),
            "a prepare is recorded before its writes are applied"
        );
        self.journal.applied(prepared_in.unwrap_or_else(|| self.journal.open_batch()));
    }

    /// Sends the open batch.
    pub(crate) fn close(&mut self, ctx: &mut Turn<'_>, with: &mut Closers<'_>) {
        if self.place == LogPlace::Nowhere {
            return;
        }
        if let Some(closed) = self.journal.close(ctx.now(), with.watermark, || ctx.buffers.take()) {
            with.store.begin_batch(self.journal.open_batch().get());
            self.append(ctx, closed, with.admission);
        }
        debug_assert_eq!(self.open_bytes(), 0, "all that was recorded has left");
    }

    /// Hands a batch to the log.
    fn append(&mut self, ctx: &mut Turn<'_>, closed: ClosedBatch, admission: &mut Admission) {
        let ClosedBatch { batch, first, bytes } = closed;
        assert!(batch < self.journal.open_batch(), "nothing is added to a batch that leaves");
        let LogPlace::Stage(log) = self.place else { return ctx.buffers.give(bytes) };
        if self.has_failed {
            return ctx.buffers.give(bytes);
        }
        admission.note_sent(bytes.len());
        self.logs.given(log, batch);
        let head = BatchHead { shard: self.shard, batch, epoch: self.epoch, first };
        if let Some(tap) = &mut self.tap {
            tap.push(head, &bytes);
        }
        ctx.send(Output::LogAppend { log, append: LogAppend { head, bytes } });
    }

    /// Sends the open batch once it has `least` bytes: at [`LOG_BATCH_BYTES`], so that one request
    /// more does not make it larger than a log takes.
    #[inline]
    pub(crate) fn close_from(&mut self, ctx: &mut Turn<'_>, least: usize, with: &mut Closers<'_>) {
        if self.journal.open_bytes() >= least {
            self.close(ctx, with);
        }
        debug_assert!(
            self.open_bytes() < least.max(1) || !self.has_log(),
            "one record more fits a batch"
        );
    }

    /// Records what the participant wants to be durable; the write set of a promise is in
    /// `payloads`.
    #[inline]
    pub(crate) fn record(
        &mut self,
        sequence: LogSequence,
        intent: LogIntent,
        payloads: &mut Payloads,
        (watermark, store): (Timestamp, &ShardStore),
    ) {
        let recorded = self.has_log();
        debug_assert!(
            self.durable_at_once.is_none_or(|before| before < sequence),
            "sequences rise"
        );
        match intent {
            LogIntent::Prepare { txn, begin, commit, single, found } => {
                let batch = self.journal.open_batch();
                let Some(payload) = payloads.get_mut(txn) else { return };
                payload.commit = payload.commit.max(commit);
                // The records of earlier rounds are worth nothing once this one is durable; until
                // then they are kept.
                payload.batch =
                    Some(payload.batch.map_or(batch, |earlier: BatchNumber| earlier.min(batch)));
                if recorded {
                    let participants = Participants::new(&payload.participants);
                    let body = &payload.body;
                    let record = LogRecord::Prepare {
                        txn,
                        begin,
                        commit,
                        single,
                        found,
                        participants,
                        body,
                    };
                    self.journal.record(sequence, &record);
                    // New writes lie above the watermark, so this says nothing. The replay floor
                    // should not rest on that alone.
                    self.journal.note_write(commit);
                }
            }
            LogIntent::Decision { txn, begin, outcome, abort, found, met, decided_by }
                if recorded =>
            {
                // A commit is decided while its write set is here, and with it the participants.
                let payload =
                    payloads.get(txn).filter(|payload| abort.is_none() && !payload.single);
                let participants =
                    Participants::new(payload.map_or(&[], |payload| &payload.participants));
                let (commit, decided_by) = (commit_of(outcome), logged(decided_by));
                let record = LogRecord::Decision {
                    txn,
                    begin,
                    commit,
                    decided_by,
                    abort,
                    found,
                    met,
                    participants,
                };
                self.journal.record(sequence, &record);
            }
            LogIntent::ReadBound { bound, watermark: told, is_propagating } if recorded => {
                self.journal.record(sequence, &LogRecord::ReadBound { bound, watermark: told });
                if !timestone_types::is_planted!(HoardedLog) {
                    let stable = BatchNumber::new(store.stable_batch());
                    let oldest = payloads.oldest_batch();
                    self.journal.record_truncation_point(watermark, stable, oldest, is_propagating);
                }
            }
            LogIntent::Decision { .. } | LogIntent::ReadBound { .. } => {}
        }
        if !recorded {
            self.durable_at_once = Some(sequence);
        }
    }

    /// What was just recorded, and is durable already because there is no log.
    #[inline]
    pub(crate) fn take_durable_at_once(&mut self) -> Option<LogSequence> {
        debug_assert!(
            self.durable_at_once.is_none() || !self.has_log(),
            "what a log takes is durable when it says so"
        );
        self.durable_at_once.take()
    }

    /// Everything up to this batch is durable: the highest sequence that is durable with it, if
    /// that is news.
    pub(crate) fn durable(&mut self, batch: BatchNumber) -> Option<LogSequence> {
        if let Some((below, copied_in)) = self.copying.take_if(|(_, copied)| batch >= *copied) {
            debug_assert!(below <= copied_in, "what is copied forward comes behind what it frees");
            self.journal.copied_forward(below);
        }
        self.journal.durable(batch)
    }

    /// Tells the logs what is not needed any more, when that is durable.
    pub(crate) fn release(&mut self, ctx: &mut Turn<'_>) {
        if let Some(keep_from) = self.journal.release() {
            assert!(keep_from <= self.open_batch(), "what is still to come is kept");
            self.release_below(ctx, keep_from);
        }
    }

    /// Tells every log that nothing below this batch is needed any more.
    pub(crate) fn release_below(&self, ctx: &mut Turn<'_>, keep_from: BatchNumber) {
        assert!(keep_from > BatchNumber::ZERO, "batches are numbered from one");
        let shard = self.shard;
        for log in self.logs.stages() {
            ctx.send(Output::LogRelease { log, shard, keep_from });
        }
    }

    /// Whether no log can hand out anything at a recovery: there is none, and those of earlier runs
    /// hold nothing of this shard any more.
    pub(crate) fn is_without_log(&self) -> bool {
        if timestone_types::is_planted!(NoHandOver) {
            return self.place == LogPlace::Nowhere;
        }
        self.place == LogPlace::Nowhere && self.logs.are_empty()
    }

    /// A log cannot go behind `from` any more: up to which timestamp no write can come back, if
    /// that is known.
    pub(crate) fn retained(&mut self, log: StageId, from: BatchNumber) -> Option<Timestamp> {
        debug_assert!(
            self.logs.stages().any(|stage| stage == log),
            "a log that holds something of the shard is known"
        );
        let next_durable = self.journal.durable_to().next();
        let is_given_more = self.are_at(log) && next_durable < self.journal.open_batch();
        self.logs.told(log, from, is_given_more.then_some(next_durable));
        let oldest = self.logs.oldest();
        oldest.and_then(|oldest| self.journal.replayed_above(oldest))
    }

    /// The first log stage, for what a run without a log leaves to the next one.
    pub(crate) fn first_log(&self) -> Option<StageId> {
        self.logs.stages().next()
    }

    /// Records go to this log from now on, behind the last batch that the store was told of.
    pub(crate) fn take_log(&mut self, log: StageId, last: BatchNumber) {
        assert!(!self.has_log(), "a log is taken by a run that has none");
        assert!(self.durable_at_once.is_none(), "what was durable at once has been told");
        self.place = LogPlace::Stage(log);
        self.journal.begin(last);
    }

    /// Appends again what old log files hold up: promises and outcomes that are still needed.
    pub(crate) fn copy_forward(
        &mut self,
        ctx: &mut Turn<'_>,
        (below, copy): (BatchNumber, &CopyForward),
        payloads: &mut Payloads,
        with: &mut Closers<'_>,
    ) {
        assert!(self.copying.is_none(), "one at a time");
        for txn in payloads.below(below) {
            self.copy_promise(txn, copy, payloads);
            self.close_from(ctx, LOG_BATCH_BYTES, with);
        }
        let mut closed = Vec::new();
        for kept in &copy.outcomes {
            self.journal.note(&LogRecord::Decision {
                txn: kept.txn,
                begin: kept.begin,
                commit: commit_of(kept.outcome),
                decided_by: DecidedBy::Termination,
                abort: kept.abort,
                found: kept.found,
                met: kept.met,
                participants: Participants::new(kept.participants.as_slice()),
            });
            // There may be millions of them, and a log takes no batch of any size.
            if self.journal.open_bytes() >= LOG_BATCH_BYTES {
                closed.extend(self.journal.close(ctx.now(), with.watermark, || ctx.buffers.take()));
                with.store.begin_batch(self.journal.open_batch().get());
            }
        }
        for batch in closed {
            self.append(ctx, batch, with.admission);
        }
        let (bound, watermark) = (copy.bound, with.watermark);
        self.journal.note(&LogRecord::ReadBound { bound, watermark });
        self.copying = Some((below, self.journal.open_batch()));
        with.store.sync_soon();
        self.close(ctx, with);
    }

    /// Appends a promise again, with its decision if there is one.
    fn copy_promise(&mut self, txn: TxnId, copy: &CopyForward, payloads: &mut Payloads) {
        let (Some(payload), Some(promise)) = (payloads.get_mut(txn), copy.promise(txn)) else {
            return;
        };
        let participants = Participants::new(&payload.participants);
        let (begin, single, body) = (payload.begin, payload.single, &payload.body);
        let (commit, found) = (promise.commit, promise.found);
        self.journal.note(&LogRecord::Prepare {
            txn,
            begin,
            commit,
            single,
            found,
            participants,
            body,
        });
        self.journal.note_write(commit);
        if promise.is_decided {
            let (decided_by, abort, met) = (DecidedBy::Termination, None, Timestamp::ZERO);
            self.journal.note(&LogRecord::Decision {
                txn,
                begin,
                commit,
                decided_by,
                abort,
                found,
                met,
                participants,
            });
        }
        let open = self.journal.open_batch();
        debug_assert!(
            payload.batch.is_none_or(|batch| batch <= open),
            "what is copied forward comes behind what it frees"
        );
        payload.batch = Some(open);
    }
}

/// As a record has it: zero for an abort.
const fn commit_of(outcome: TxnOutcome) -> Timestamp {
    match outcome {
        TxnOutcome::Committed(at) => at,
        TxnOutcome::Aborted => Timestamp::ZERO,
    }
}

const fn logged(decided_by: timestone_txn::participant::DecidedBy) -> DecidedBy {
    match decided_by {
        timestone_txn::participant::DecidedBy::Client => DecidedBy::Client,
        timestone_txn::participant::DecidedBy::Termination
        | timestone_txn::participant::DecidedBy::Participant => DecidedBy::Termination,
    }
}
