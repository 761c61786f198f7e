//! The stage of one shard: the participant's core, the store and the shard's side of the log, wired
//! together.
//!
//! ```text
//!   batch of frames ─► request.rs: decode, hash, look up ─► Participant::step ─► outputs.rs: carry out
//!                                                                        ├─► replies (one batch of frames per reply address and turn)
//!   store.pump ─► reads that went to flash, scans, counts ──────────────┤
//!   log stage ─► durable(batch) ─► Durable(sequence) ─► votes, applies ────┤
//!                                                                        └─► journal (one log batch per turn)
//! ```
//! Invariants: a shard is touched by its stage alone; no answer that promises durability leaves
//! before the log has said so; a transaction's bytes are kept from its prepare until its writes can
//! be read from the store. What it deliberately does not do: decide. Whether a transaction may
//! commit is the core's business alone. Source: MILANA §4.1–4.5, DTranx §3.2.

#[cfg(test)]
mod ending;
mod hand_over;
#[cfg(test)]
mod hesitant;
#[cfg(test)]
mod in_memory;
mod outputs;
mod recovery;
mod request;
mod scan;
mod scrub;
mod single;

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use timestone_clock::Clock;
use timestone_seda::{FrameBatch, Memory, MemoryUse, StageId, Tally};
use timestone_store::{Figure, PutSize, Store, StoreError, StoreEvent};
use timestone_txn::participant::{
    self, Collected, LogSequence, Participant, ReadItem, Token, Wait, WriteItem,
};
use timestone_types::{HashSeed, KeyRef, ShardId, Timestamp, TxnId};
use timestone_wal::{BatchHead, BatchNumber};
use timestone_wire::{Frame, Frames};

use crate::gauges::ShardGauges;
use crate::limits::{
    CLOSE_INTERVAL, LAST_DECISIONS, LOG_BATCH_BYTES, LOOK_AHEAD, PUBLISH_INTERVAL,
};
use crate::log_records::journal::{ClosedBatch, Journal};
pub use crate::log_records::order::RecordPlace;
use crate::peers::Messages;
pub use crate::peers::{Peers, own_reply_address};
use crate::reads::ahead::LookAhead;
use crate::reads::lookups::Lookups;
use crate::requests::Requests;
pub use crate::requests::replies::reading;
use crate::turn::{Input, LogAppend, LogShortage, Output, Turn};
use crate::write_sets::payload::Payloads;
use hand_over::{HandOver, Inherited};
pub use recovery::{Past, Recovering, Replay, Served};
use scrub::ScrubAskers;

/// Where a shard's records go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPlace {
    /// To this log stage.
    Stage(StageId),
    /// Nowhere: every record counts as durable at once (log device `none`).
    Nowhere,
}

/// A write set on its way into the store, which had no room for all of it at once.
#[derive(Clone, Copy, Debug)]
struct Unapplied {
    txn: TxnId,
    commit: Timestamp,
    // Writes of the body that are done already.
    done: usize,
}

/// One shard. See the module.
pub struct Shard {
    shard: ShardId,
    seed: HashSeed,
    participant: Participant,
    /// What has been let be collected.
    collected: Collected,
    store: Box<dyn Store + Send>,
    log: LogPlace,
    messages: Messages,
    journal: Journal,
    payloads: Payloads,
    requests: Requests,
    lookups: Lookups,
    scrub_askers: ScrubAskers,
    memory: Arc<Memory>,
    // Bytes of the payloads, as far as others know.
    promised: Tally,
    gauges: Arc<ShardGauges>,
    // Asked only how far it is held back, and for what answers tell of it: the time comes with
    // every turn.
    clock: Arc<dyn Clock>,
    held_back: Duration,

    // Reused by every step.
    outputs: Vec<participant::Output>,
    spare_outputs: Vec<participant::Output>,
    again: VecDeque<(Token, Wait)>,
    handing_in: bool,
    reads: Vec<ReadItem>,
    writes: Vec<WriteItem>,
    participants: Vec<ShardId>,
    body: Vec<u8>,
    store_events: Vec<StoreEvent>,

    unapplied: VecDeque<Unapplied>,
    // Why the first of them has to wait.
    no_room: Option<StoreError>,
    // Every log stage, and the oldest batch of this shard that it may hand out at a recovery, once
    // it has said so.
    retained: Vec<(StageId, Option<BatchNumber>)>,
    // The highest sequence that is durable without a log.
    durable_at_once: Option<LogSequence>,
    // When to try again what the store had no room for.
    apply_again_at: Timestamp,
    next_publish: Timestamp,
    // What was last wished for the size of the cache.
    cache_wish: u64,
    carrying: Option<(BatchNumber, BatchNumber)>,
    // From the logs of earlier runs to none.
    hand_over: HandOver,
    hand_over_at: Timestamp,
    inherited: Inherited,
    log_failed: bool,
    // Since when nothing is under way here, at the end.
    quiet_since: Option<Timestamp>,
    // A run without a log has come to its end, and writes what others still need into one.
    has_taken_log: bool,
    // Since when decisions are waited for, at the end.
    undecided_since: Option<Timestamp>,
    // When to look again whether the store may be closed.
    close_again_at: Option<Timestamp>,
    // What the log lacks, and the bytes that were sent to it since it said so.
    log_shortage: Option<LogShortage>,
    sent_since: u64,
    store_draining: bool,
    store_down: bool,
}

impl Shard {
    /// Takes the frames of a batch of frames, a few at a time, with a look ahead at their keys.
    fn frame_batch(&mut self, ctx: &mut Turn<'_>, frame_batch: FrameBatch) {
        let mut frames = Frames::new(&frame_batch.bytes);
        let mut group: [Option<(Frame<'_>, Option<KeyRef<'_>>)>; LOOK_AHEAD] = [None; LOOK_AHEAD];
        let mut ahead = LookAhead::new();
        loop {
            let mut count = 0;
            ahead.clear();
            for frame in frames.by_ref().take(LOOK_AHEAD) {
                match frame {
                    Ok(frame) => {
                        let key = self.keys_of(&frame, &mut ahead);
                        group[count] = Some((frame, key));
                        count += 1;
                    }
                    Err(error) => {
                        // The net stage cuts frames by the same rules; what gets here was damaged
                        // inside this process or by a peer.
                        tracing::warn!(shard = %self.shard, %error, "a frame_batch holds bytes that are \
                            no frame; the rest of it is dropped");
                        break;
                    }
                }
            }
            if count == 0 {
                break;
            }
            ahead.fetch(&self.participant, &*self.store);
            for (frame, key) in group[..count].iter().flatten() {
                self.frame(ctx, frame_batch.reply_to, frame, *key);
                self.close_full_batch(ctx);
            }
        }
        ctx.finish_frame_batch(frame_batch);
    }

    /// Steps the core and carries out what it wants, `frame` being the request of `token`, if it is
    /// at hand.
    fn step(
        &mut self,
        ctx: &mut Turn<'_>,
        input: participant::Input<'_>,
        current: Option<(Token, &Frame<'_>)>,
    ) {
        self.participant.step(ctx.now(), input, &mut self.outputs);
        if !self.outputs.is_empty() {
            self.carry_out(ctx, current);
        }
    }

    /// Sends the open log batch.
    fn close_batch(&mut self, ctx: &mut Turn<'_>) {
        if self.log == LogPlace::Nowhere {
            return;
        }
        let now = ctx.now();
        let watermark = self.collected.below();
        if let Some(closed) = self.journal.close(now, watermark, || ctx.take_buffer()) {
            self.store.begin_batch(self.journal.open_batch().get());
            self.append(ctx, closed);
        }
    }

    /// Hands a batch to the log.
    fn append(&mut self, ctx: &mut Turn<'_>, closed: ClosedBatch) {
        let ClosedBatch { batch, first, bytes } = closed;
        let LogPlace::Stage(stage) = self.log else { return ctx.give_buffer(bytes) };
        if self.log_failed {
            return ctx.give_buffer(bytes);
        }
        if self.log_shortage.is_some() {
            self.sent_since += bytes.len() as u64;
        }
        let head = BatchHead { shard: self.shard, batch, epoch: self.requests.epoch(), first };
        ctx.send(Output::LogAppend { log: stage, append: LogAppend { head, bytes } });
    }

    /// Sends the open log batch once it is large: one request more must not make it larger than a
    /// log takes.
    fn close_full_batch(&mut self, ctx: &mut Turn<'_>) {
        if self.journal.open_bytes() >= LOG_BATCH_BYTES {
            self.close_batch(ctx);
        }
    }

    /// A log asks for what holds it up. Without a log to append that to, the hand-over frees it.
    fn carry(&mut self, ctx: &mut Turn<'_>, below: BatchNumber) {
        if timestone_types::is_planted!(CarriesWithoutLog) {
            return self.carry_forward(ctx, below);
        }
        if self.log != LogPlace::Nowhere {
            self.carry_forward(ctx, below);
        }
    }

    fn log_durable(&mut self, ctx: &mut Turn<'_>, batch: BatchNumber) {
        if let Some((below, carried_in)) = self.carrying
            && batch >= carried_in
        {
            self.journal.carried(below);
            self.carrying = None;
        }
        if let Some(through) = self.journal.durable(batch) {
            self.step(
                ctx,
                participant::Input::Durable { range: participant::LogRange::through(through) },
                None,
            );
        }
        if let Some(keep_from) = self.journal.release() {
            for index in 0..self.retained.len() {
                let (stage, _) = self.retained[index];
                ctx.send(Output::LogRelease { log: stage, shard: self.shard, keep_from });
            }
        }
    }

    /// The log has failed: what waits for it stays unanswered, since it may be durable or not.
    fn lose_log(&mut self, ctx: &mut Turn<'_>) {
        self.log_failed = true;
        self.step(ctx, participant::Input::LogLost, None);
    }

    /// Whether no log can hand out anything at a recovery: there is none, and those of earlier runs
    /// hold nothing of this shard any more.
    fn is_without_log(&self) -> bool {
        if timestone_types::is_planted!(NoHandOver) {
            return self.log == LogPlace::Nowhere;
        }
        self.log == LogPlace::Nowhere
            && self.retained.iter().all(|(_, from)| *from == Some(BatchNumber::MAX))
    }

    /// A log cannot go behind `from` any more. What no log can hand out again is settled.
    fn retained(&mut self, log: StageId, from: BatchNumber) {
        if let Some(entry) = self.retained.iter_mut().find(|(stage, _)| *stage == log) {
            entry.1 = Some(from);
        }
        // A log that has not spoken yet may hold anything.
        let oldest = self.retained.iter().map(|(_, from)| *from).min().flatten();
        if let Some(settled) = oldest.and_then(|oldest| self.journal.settled(oldest)) {
            self.store.advance_replay_floor(settled);
        }
    }

    /// Tells the core when a step of the physical clock is held, and when that is over.
    fn follow_clock(&mut self, ctx: &mut Turn<'_>) {
        let back = self.clock.held_back();
        if back != self.held_back {
            self.held_back = back;
            self.step(ctx, participant::Input::ClockHeld { back }, None);
        }
    }

    fn pump_store(&mut self, ctx: &mut Turn<'_>) {
        let mut events = std::mem::take(&mut self.store_events);
        self.store.pump(ctx.now(), &mut events);
        for event in events.drain(..) {
            self.store_event(ctx, event);
        }
        self.store_events = events;
    }

    /// Whether these puts may be promised now.
    ///
    /// # Errors
    /// The admission error: the store has no room, or what is promised already waits for room.
    fn admit(&mut self, puts: &mut dyn Iterator<Item = PutSize>) -> Result<(), StoreError> {
        if !self.has_memory() {
            return Err(StoreError::Busy);
        }
        self.store.admit(puts, self.payloads.bytes())?;
        match self.no_room {
            _ if self.unapplied.is_empty() => Ok(()),
            Some(StoreError::DeviceFull { live_blocks, blocks, ref growth }) => {
                Err(StoreError::DeviceFull { live_blocks, blocks, growth: growth.clone() })
            }
            Some(StoreError::MemoryFull { used_bytes, limit_bytes }) => {
                Err(StoreError::MemoryFull { used_bytes, limit_bytes })
            }
            _ => Err(StoreError::Busy),
        }
    }

    /// Why puts of so many bytes may not be promised now, if it is because the log has no room for
    /// another file: what is left of the one that it has is for what was promised before, and for
    /// what makes room.
    fn log_refusal(&self, bytes: impl FnOnce() -> usize) -> Option<Arc<str>> {
        let shortage = self.log_shortage.as_ref()?;
        if timestone_types::is_planted!(IgnoredLogShortage) {
            return None;
        }
        let wanted = (bytes() + self.journal.open_bytes()) as u64 + self.sent_since;
        (wanted > shortage.room_bytes).then(|| Arc::clone(&shortage.words))
    }

    /// Whether another write set may be promised, as far as the process's memory is concerned.
    fn has_memory(&mut self) -> bool {
        let bytes = self.payloads.bytes();
        self.promised.change(self.promised.bytes(), bytes);
        let has_room = self.memory.has_room(MemoryUse::Writes, 1);
        if !has_room {
            self.memory.note_refused(MemoryUse::Writes);
        }
        // What is alone here is let in, so that shards take turns.
        has_room || bytes == 0
    }

    /// Whether nothing is under way here but what waits for others: for a decision about a promise,
    /// whose other participants may be down.
    fn is_quiet(&self, has_unsent: bool) -> bool {
        self.requests.is_quiet(self.log_failed)
            && self.unapplied.is_empty()
            && !has_unsent
            && (self.journal.is_idle() || self.log_failed)
    }
}

impl Shard {
    /// Whether the store may be closed at the end. It takes no writes from then on, so nobody may
    /// be about to send one: no gateway and no embedded client of this process, which finish what
    /// they have begun, step by step and shard by shard; nor whoever decides about what was
    /// promised here, unless that one stays silent. What is on its way already has come within
    /// [`CLOSE_INTERVAL`].
    ///
    /// Gateways and embedded clients end within seconds, also when they get no answer (a log that
    /// failed gives none), so none is waited for without end. Questions of peers may come again and
    /// again: how long decisions are waited for counts from the first quiet moment.
    fn may_close(&mut self, ctx: &mut Turn<'_>) -> bool {
        if timestone_types::is_planted!(ClosesUnderWriters) {
            return self.is_quiet(ctx.has_unsent());
        }
        if !self.is_quiet(ctx.has_unsent())
            || self.gauges.writers.load(core::sync::atomic::Ordering::Acquire) > 0
        {
            self.quiet_since = None;
            return false;
        }
        let now = ctx.now();
        let quiet = now.since(*self.quiet_since.get_or_insert(now));
        let silent = now.since(*self.undecided_since.get_or_insert(now));
        quiet >= CLOSE_INTERVAL
            && (self.log_failed || self.is_left(ctx, silent >= last_decisions()))
    }

    /// Whether nobody needs anything of this shard any more that the next run will not know: a
    /// decision that may still come, one that others have not been told, a promise. A run without a
    /// log writes down what is left when the time for decisions `is_over`.
    fn is_left(&mut self, ctx: &mut Turn<'_>, is_over: bool) -> bool {
        if self.has_taken_log {
            return self.carrying.is_none();
        }
        if self.log != LogPlace::Nowhere {
            return is_over || self.payloads.len() == 0;
        }
        let (owes_decisions, owes_aborts) = self.owes(ctx, participant::Input::Closing);
        let is_owed = self.payloads.len() > 0 || owes_decisions;
        if is_owed && !is_over {
            return false;
        }
        match self.retained.first() {
            Some(&(stage, _))
                if (is_owed || owes_aborts)
                    && !timestone_types::is_planted!(LeavesNothing | EndsUndecided) =>
            {
                self.take_log(ctx, stage);
                false
            }
            _ => true,
        }
    }
}

/// How long decisions are waited for at the end.
fn last_decisions() -> Duration {
    if timestone_types::is_planted!(EndsUndecided) { Duration::ZERO } else { LAST_DECISIONS }
}

/// What the host calls.
impl Shard {
    /// Begins to serve; once, before anything else.
    pub fn start(&mut self, ctx: &mut Turn<'_>) {
        self.store.begin_batch(self.journal.open_batch().get());
        self.step(ctx, participant::Input::RecoveryDone, None);
        self.step(ctx, participant::Input::Tick, None);
    }

    /// Inputs follow, all at the time of this call.
    pub fn begin_inputs(&mut self, ctx: &mut Turn<'_>) {
        self.follow_clock(ctx);
        self.requests.set_now(ctx.now());
    }

    /// Takes what it is told, after [`Shard::begin_inputs`].
    pub fn input(&mut self, ctx: &mut Turn<'_>, input: Input) {
        match input {
            Input::FrameBatch(frame_batch) => self.frame_batch(ctx, frame_batch),
            Input::LogDurable { batch } => self.log_durable(ctx, batch),
            Input::LogRetained { log, from } => self.retained(log, from),
            Input::LogCarry { below } => self.carry(ctx, below),
            Input::LogRoom { log, shortage } if self.log == LogPlace::Stage(log) => {
                (self.log_shortage, self.sent_since) = (shortage, 0);
            }
            Input::LogFailed { log } if self.log == LogPlace::Stage(log) => self.lose_log(ctx),
            Input::MapChanged(map) => {
                // What is recorded already belongs to the epoch that it was recorded in.
                self.close_batch(ctx);
                self.requests.map_changed(&map);
                self.messages.map_changed(&map);
            }
            // Another shard's log.
            Input::LogRoom { .. } | Input::LogFailed { .. } => {}
        }
        self.close_full_batch(ctx);
    }

    /// The end of a turn, or a deadline that has passed.
    pub fn turn(&mut self, ctx: &mut Turn<'_>) {
        self.requests.set_now(ctx.now());
        self.pump_store(ctx);
        self.apply_rest(ctx);
        self.hand_over(ctx);
        if self.participant.poll_deadline().is_some_and(|at| at <= ctx.now()) {
            self.step(ctx, participant::Input::Tick, None);
        }
        self.close_batch(ctx);
        if ctx.is_shutting_down() && !self.store_draining {
            self.store_draining = self.may_close(ctx);
            // Nobody tells when the last gateway or embedded client has ended.
            self.close_again_at =
                Some(ctx.now().saturating_add(CLOSE_INTERVAL)).filter(|_| !self.store_draining);
            if self.store_draining {
                self.store.shutdown();
                self.pump_store(ctx);
            }
        }
        self.requests.flush(ctx);
        self.promised.change(self.promised.bytes(), self.payloads.bytes());
        if ctx.now() >= self.next_publish {
            self.next_publish = ctx.now().saturating_add(PUBLISH_INTERVAL);
            self.publish(ctx.now());
            self.resize_cache();
        }
    }

    /// When [`Shard::turn`] wants to be called at the latest.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let apply = (!self.unapplied.is_empty()).then_some(self.apply_again_at);
        let deadlines = [
            self.participant.poll_deadline(),
            self.store.next_deadline(),
            apply,
            self.hand_over_deadline(),
            self.close_again_at,
        ];
        deadlines.into_iter().flatten().min()
    }

    /// The descriptor that becomes readable when the store's device has completed something.
    pub fn wake_fd(&self) -> Option<RawFd> {
        self.store.wake_fd().map(|fd| fd.as_raw_fd())
    }

    /// Whether it has come to its end, as far as itself is concerned.
    pub fn is_drained(&self) -> bool {
        self.store_down && self.is_quiet(false)
    }
}

impl Shard {
    fn publish(&self, now: Timestamp) {
        let (figures, full) = (self.store.figures(), self.store.is_full());
        if full != self.gauges.full.load(core::sync::atomic::Ordering::Relaxed) {
            if full {
                tracing::warn!(
                    shard = %self.shard, blocks = figures.get(Figure::Blocks), cause = self.store.growth_error().unwrap_or("its capacity is reached"),
                    "the shard has no room for writes: reads and deletes go on; delete something, \
                     free space on its disk or raise the capacity"
                );
            } else {
                tracing::info!(shard = %self.shard, "the shard has room for writes again");
            }
        }
        self.gauges.full_for.set(if full { self.store.growth_error() } else { None });
        self.gauges.publish(
            &figures,
            full,
            self.collected.below(),
            self.requests.len(),
            self.payloads.len(),
        );
        self.gauges.publish_tables(&self.participant.view(now));
    }

    /// Follows a wish for another size of the record cache.
    fn resize_cache(&mut self) {
        let wish = self.gauges.cache_wish.load(core::sync::atomic::Ordering::Relaxed);
        if wish != self.cache_wish {
            self.cache_wish = wish;
            self.store.resize_cache(wish);
        }
    }
}
