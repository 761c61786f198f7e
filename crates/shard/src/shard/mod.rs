//! One shard: its parts, wired together.
//!
//! ```text
//!   batch of frames ─► request.rs: decode, hash, look up ─► driver: Participant::step ─► outputs.rs: carry out
//!                                                                        ├─► requests (one batch of frames per reply address and turn)
//!   store.pump ─► reads that went to flash, scans, counts ──────────────┤
//!   log stage ─► durable(batch) ─► Durable(sequence) ─► votes, applies ────┤
//!                                                                        └─► log_records (one log batch per turn)
//! ```
//! Each part owns its state; what several of them are needed for is done here, with the parts
//! borrowed side by side ([`Parts`], [`Closers`]). All of this is what a primary does; a backup has
//! a replay and the store, and answers no client but with snapshots ([`crate::Backup`]).
//!
//! Invariants: a shard is touched by its stage alone; no answer that promises durability leaves
//! before the log has said so; a transaction's bytes are kept from its prepare until its writes can
//! be read from the store. What it deliberately does not do: decide. Whether a transaction may
//! commit is the core's business alone. Source: MILANA §4.1–4.5, DTranx §3.2.

mod calls;
mod checkpoints;
mod depose;
mod direct;
#[cfg(test)]
mod ending;
#[cfg(test)]
pub(crate) mod hesitant;
#[cfg(test)]
mod in_memory;
mod outputs;
#[cfg(test)]
mod replicated;
mod request;

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use timestone_seda::{FrameBatch, StageId};
use timestone_store::{Store, StoreEvent};
use timestone_txn::participant::{self, Participant, Token};
use timestone_types::{HashSeed, ShardId, Timestamp};
use timestone_wal::BatchNumber;
use timestone_wire::{Frame, Frames};

use crate::admission::Admission;
use crate::checkpoint::Exports;
use crate::closing::Closing;
use crate::closing::hand_over::HandOver;
use crate::driver::Driver;
use crate::figures::ShardFigures;
use crate::limits::{LOG_BATCH_BYTES, LOOK_AHEAD};
use crate::log_records::journal::Journal;
pub use crate::log_records::order::RecordPlace;
use crate::log_records::{Closers, LogRecords};
use crate::peers::Messages;
pub use crate::peers::{Peers, own_reply_address};
use crate::reads::ahead::{KeysOfFrame, LookAhead};
use crate::reads::items::Items;
use crate::reads::lookups::Lookups;
use crate::reads::pages::Pages;
use crate::replay::Recovering;
use crate::requests::Requests;
pub use crate::requests::replies::reading;
use crate::scrub::ScrubAskers;
use crate::single::SingleWrites;
use crate::turn::{Input, Turn};
use crate::write_sets::WriteSets;
use crate::write_sets::payload::Payloads;
pub use direct::{DirectAnswer, DirectAt, DirectPut, Found};
pub(crate) use request::wait_of;

/// Where a shard's records go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPlace {
    /// To this log stage.
    Stage(StageId),
    /// Nowhere: every record counts as durable at once (log device `none`).
    Nowhere,
}

/// The store of a shard.
pub(crate) type ShardStore = dyn Store + Send;

/// One shard. See the module.
pub struct Shard {
    shard: ShardId,
    seed: HashSeed,
    store: Box<ShardStore>,
    driver: Driver,
    requests: Requests,
    lookups: Lookups,
    pages: Pages,
    items: Items,
    ahead: LookAhead,
    single: SingleWrites,
    admission: Admission,
    write_sets: WriteSets,
    log_records: LogRecords,
    hand_over: HandOver,
    closing: Closing,
    figures: ShardFigures,
    exports: Exports,
    around: Around,
}

/// What answers to reads and single writes need beside the state of their own.
pub(crate) struct Parts<'a> {
    pub(crate) requests: &'a mut Requests,
    pub(crate) store: &'a mut ShardStore,
    pub(crate) driver: &'a mut Driver,
    pub(crate) lookups: &'a mut Lookups,
    pub(crate) pages: &'a mut Pages,
}

/// Whom a shard talks to beside its clients, and who waits for its device.
struct Around {
    messages: Messages,
    scrub_askers: ScrubAskers,
    store_events: Vec<StoreEvent>,
}

/// What a shard begins with, as its replay has found it.
pub(crate) struct Beginning {
    pub(crate) store: Box<ShardStore>,
    /// It was told what was recovered, and what it said to that.
    pub(crate) participant: Participant,
    pub(crate) outputs: Vec<participant::Output>,
    pub(crate) payloads: Payloads,
    pub(crate) journal: Journal,
    pub(crate) hand_over: HandOver,
}

impl Shard {
    /// A shard that goes on from there.
    pub(crate) fn begin(shard: ShardId, from: Beginning, with: Recovering) -> Self {
        let Beginning { store, participant, outputs, payloads, journal, hand_over } = from;
        let who = (shard, with.epoch, with.map_version);
        let seed = store.seed();
        let (memory, clock) = (Arc::clone(&with.memory), Arc::clone(&with.clock));
        Self {
            shard,
            seed,
            store,
            driver: Driver::new(participant, outputs, with.clock, with.participant.has_replicas),
            requests: Requests::new(who, memory, clock, Arc::clone(&with.gauges)),
            lookups: Lookups::default(),
            pages: Pages::default(),
            items: Items::new(seed),
            ahead: LookAhead::default(),
            single: SingleWrites::new(shard, seed),
            admission: Admission::new(with.memory),
            write_sets: WriteSets::new(payloads),
            log_records: LogRecords::new((shard, with.epoch), with.log, journal, &with.logs),
            hand_over,
            closing: Closing::default(),
            figures: ShardFigures::new(with.gauges),
            exports: Exports::default(),
            around: Around {
                messages: Messages::new(shard, with.map_version, with.peers),
                scrub_askers: ScrubAskers::default(),
                store_events: Vec::new(),
            },
        }
    }

    /// How many decided write sets wait for room.
    #[cfg(test)]
    pub(crate) fn unapplied(&self) -> usize {
        self.write_sets.unapplied()
    }

    /// Takes the frames of a batch of frames, a few at a time, with a look ahead at their keys.
    fn frame_batch(&mut self, ctx: &mut Turn<'_>, frame_batch: FrameBatch) {
        let mut frames = Frames::new(&frame_batch.bytes);
        let mut group: [Option<(Frame<'_>, KeysOfFrame)>; LOOK_AHEAD] = Default::default();
        let mut ahead = std::mem::take(&mut self.ahead);
        loop {
            let mut count = 0;
            ahead.clear();
            for frame in frames.by_ref().take(LOOK_AHEAD) {
                match frame {
                    Ok(frame) => {
                        let keys = ahead.look_at(&frame, self.seed, self.write_sets.payloads());
                        group[count] = Some((frame, keys));
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
            ahead.fetch(self.driver.participant(), &*self.store);
            for (frame, keys) in group[..count].iter().flatten() {
                self.frame(ctx, frame_batch.reply_to, frame, ahead.keys(frame, keys));
                self.close_batch(ctx, LOG_BATCH_BYTES);
            }
        }
        self.ahead = ahead;
        ctx.finish_frame_batch(frame_batch);
        self.driver.assert_carried_out();
    }

    /// Steps the core and carries out what it wants, `frame` being the request of `token`, if it is
    /// at hand.
    fn step(
        &mut self,
        ctx: &mut Turn<'_>,
        input: participant::Input<'_>,
        current: Option<(Token, &Frame<'_>)>,
    ) {
        self.driver.step(ctx.now(), input);
        if self.driver.has_outputs() {
            self.carry_out(ctx, current);
        }
        self.driver.assert_carried_out();
    }

    /// Single writes, the keys of prepares, and what they and reads are looked up and answered with.
    #[inline]
    fn parts(&mut self) -> (&mut SingleWrites, &mut Items, Parts<'_>) {
        let Self { requests, store, driver, lookups, pages, single, items, .. } = self;
        (single, items, Parts { requests, store: &mut **store, driver, lookups, pages })
    }

    /// The records, and whom a batch of them that leaves concerns.
    #[inline]
    fn log(&mut self) -> (&mut LogRecords, &mut Payloads, Closers<'_>) {
        let Self { driver, store, admission, log_records, write_sets, .. } = self;
        let watermark = driver.collected().below();
        (
            log_records,
            write_sets.payloads_mut(),
            Closers { watermark, store: &mut **store, admission },
        )
    }

    /// Sends the open log batch once it has `least` bytes.
    #[inline]
    fn close_batch(&mut self, ctx: &mut Turn<'_>, least: usize) {
        let (log_records, _, mut closers) = self.log();
        log_records.close_from(ctx, least, &mut closers);
        let is_within = self.log_records.open_bytes() < least.max(1);
        debug_assert!(is_within || !self.log_records.has_log(), "a batch that is due has left");
    }

    /// Appends again what is still needed of the batches below this one.
    fn copy_forward(&mut self, ctx: &mut Turn<'_>, below: BatchNumber) {
        if self.log_records.is_copying() {
            return;
        }
        let below = below.min(self.log_records.open_batch());
        let answer = self.driver.ask(ctx.now(), participant::Input::CopyForward);
        self.driver.assert_carried_out();
        let Some(participant::Output::CopyForward(copy)) = answer else { return };
        let (log_records, payloads, mut closers) = self.log();
        log_records.copy_forward(ctx, (below, &copy), payloads, &mut closers);
    }

    fn log_durable(&mut self, ctx: &mut Turn<'_>, batch: BatchNumber) {
        if let Some(through) = self.log_records.durable(batch) {
            let range = participant::LogRange::through(through);
            self.step(ctx, participant::Input::Durable { range }, None);
        }
        self.log_records.release(ctx);
        self.driver.assert_carried_out();
    }

    fn pump_store(&mut self, ctx: &mut Turn<'_>) {
        let mut events = std::mem::take(&mut self.around.store_events);
        self.store.pump(ctx.now(), &mut events);
        for event in events.drain(..) {
            self.store_event(ctx, event);
        }
        debug_assert!(self.around.store_events.is_empty(), "only this turn's events are taken");
        self.around.store_events = events;
        self.parts().2.begin_pages(ctx);
    }

    /// Goes on with the hand-over of the logs of earlier runs. Called every turn.
    fn hand_over(&mut self, ctx: &mut Turn<'_>) {
        self.driver.assert_carried_out();
        let Self { hand_over, requests, store, write_sets, .. } = self;
        hand_over.acknowledge_withheld(ctx, requests, (&**store, write_sets));
        let Some(until) = hand_over.go_on(ctx.now(), &mut **store) else { return };
        let open = self.log_records.open_batch();
        let oldest = self.write_sets.payloads().oldest_batch();
        let is_promised = oldest.is_some_and(|batch| batch < open);
        if !is_promised && !self.owes(ctx, participant::Input::Owes { until }).0 {
            self.hand_over.decided(&mut *self.store);
        }
    }

    /// Tells the participant how wrong the clock may be, where that matters.
    fn follow_clock_error(&mut self, ctx: &mut Turn<'_>) {
        if let Some(bound) = self.driver.follow_error() {
            self.step(ctx, participant::Input::ClockError { bound }, None);
        }
        self.driver.assert_carried_out();
    }

    /// Whether decisions, or aborts, would be lost with this run.
    fn owes(&mut self, ctx: &mut Turn<'_>, input: participant::Input<'_>) -> (bool, bool) {
        let answer = self.driver.ask(ctx.now(), input);
        if self.driver.has_outputs() {
            self.carry_out(ctx, None);
        }
        self.driver.assert_carried_out();
        match answer {
            Some(participant::Output::Owed { decisions, aborts }) => (decisions, aborts),
            Some(_) | None => (false, false),
        }
    }

    /// Whether nothing is under way here but what waits for others: for a decision about a promise,
    /// whose other participants may be down.
    fn is_quiet(&self, has_unsent: bool) -> bool {
        self.requests.is_quiet(self.log_records.has_failed())
            && self.write_sets.are_applied()
            && !has_unsent
            && self.log_records.are_idle()
    }

    /// Whether the store may be closed at the end. See [`Closing`].
    fn may_close(&mut self, ctx: &mut Turn<'_>) -> bool {
        assert!(ctx.is_shutting_down(), "a store is closed at the end of its process");
        let is_quiet = self.is_quiet(ctx.has_unsent());
        if timestone_types::is_planted!(ClosesUnderWriters) {
            return is_quiet;
        }
        let is_quiet = is_quiet && !self.figures.has_writers();
        let Some(is_over) = self.closing.waited(ctx.now(), is_quiet) else { return false };
        self.log_records.has_failed() || self.is_left(ctx, is_over)
    }

    /// Whether nobody needs anything of this shard any more that the next run will not know: a
    /// decision that may still come, one that others have not been told, a promise. A run without a
    /// log writes down what is left when the time for decisions `is_over`: all promises, and all
    /// outcomes that are kept. Promises of which nobody here knows how they end may be halves of
    /// what was acknowledged, and decisions may be known here alone.
    fn is_left(&mut self, ctx: &mut Turn<'_>, is_over: bool) -> bool {
        assert!(!self.log_records.has_failed(), "a log that has failed takes nothing");
        if self.closing.has_taken_log() {
            return !self.log_records.is_copying();
        }
        let is_promised = self.write_sets.payloads().len() > 0;
        if self.log_records.has_log() {
            // With replicas, others have each promise, and one of them is primary soon.
            return is_over || !is_promised || self.driver.has_replicas();
        }
        let (owes_decisions, owes_aborts) = self.owes(ctx, participant::Input::Closing);
        let is_owed = self.write_sets.payloads().len() > 0 || owes_decisions;
        if is_owed && !is_over {
            return false;
        }
        match self.log_records.first_log() {
            Some(log)
                if (is_owed || owes_aborts)
                    && !timestone_types::is_planted!(LeavesNothing | EndsUndecided) =>
            {
                self.closing.take_log();
                self.log_records.take_log(log, self.hand_over.end(&mut self.requests));
                self.store.begin_batch(self.log_records.open_batch().get());
                self.copy_forward(ctx, self.log_records.open_batch());
                false
            }
            _ => true,
        }
    }
}

/// What the host calls.
impl Shard {
    /// Begins to serve; once, before anything else.
    pub fn start(&mut self, ctx: &mut Turn<'_>) {
        self.store.begin_batch(self.log_records.open_batch().get());
        self.follow_clock_error(ctx);
        self.step(ctx, participant::Input::RecoveryDone, None);
        self.step(ctx, participant::Input::Tick, None);
        self.driver.assert_carried_out();
    }

    /// Until when earlier primaries may still answer, so that writes and reads of what is latest wait;
    /// `None` when nobody may.
    #[must_use]
    pub fn waits_for_leases_until(&self) -> Option<Timestamp> {
        self.driver.participant().waits_for_leases_until()
    }

    /// Closes a timestamp for reads at backups: they may answer snapshots at or below it when they
    /// have carried out everything up to the batch. `None`: none is closed. Called behind
    /// [`Shard::turn`].
    pub fn close_timestamp(&mut self, ctx: &mut Turn<'_>) -> Option<(BatchNumber, Timestamp)> {
        self.driver.assert_carried_out();
        let answer = self.driver.ask(ctx.now(), participant::Input::CloseTimestamp);
        let Some(participant::Output::Closed { at }) = answer else { return None };
        let open = self.log_records.open_batch();
        let has_open = self.log_records.open_bytes() > 0;
        let through = if has_open { open } else { BatchNumber::new(open.get().saturating_sub(1)) };
        (at > Timestamp::ZERO).then_some((through, at))
    }

    /// Inputs follow, all at the time of this call.
    pub fn begin_inputs(&mut self, ctx: &mut Turn<'_>) {
        self.driver.assert_carried_out();
        if let Some(back) = self.driver.follow_clock() {
            self.step(ctx, participant::Input::ClockHeld { back }, None);
        }
        self.follow_clock_error(ctx);
        self.requests.set_now(ctx.now());
    }

    /// Takes what it is told, after [`Shard::begin_inputs`].
    pub fn input(&mut self, ctx: &mut Turn<'_>, input: Input) {
        match input {
            Input::FrameBatch(frame_batch) => self.frame_batch(ctx, frame_batch),
            Input::LogDurable { batch } => self.log_durable(ctx, batch),
            Input::LogRetained { log, from } => {
                if let Some(below) = self.log_records.retained(log, from) {
                    self.store.advance_replay_floor(below);
                }
            }
            // Without a log to append it to, the hand-over frees what holds a log up.
            Input::LogCopyForward { below } => {
                if self.log_records.has_log() || timestone_types::is_planted!(CarriesWithoutLog) {
                    self.copy_forward(ctx, below);
                }
            }
            Input::LogRoom { log, shortage } if self.log_records.are_at(log) => {
                self.admission.set_log_shortage(shortage);
            }
            Input::LogFailed { log } if self.log_records.are_at(log) => {
                // What waits for it stays unanswered, since it may be durable or not.
                self.log_records.fail();
                self.step(ctx, participant::Input::LogLost, None);
            }
            Input::MapChanged(map) => {
                // What is recorded already belongs to the epoch that it was recorded in.
                self.close_batch(ctx, 0);
                self.requests.map_changed(&map);
                self.around.messages.map_changed(&map);
                self.log_records.set_epoch(self.requests.epoch());
            }
            Input::Leases { are_short } => {
                self.step(ctx, participant::Input::Leases { are_short }, None);
            }
            // Another shard's log.
            Input::LogRoom { .. } | Input::LogFailed { .. } => {}
        }
        self.close_batch(ctx, LOG_BATCH_BYTES);
        self.driver.assert_carried_out();
    }

    /// The end of a turn, or a deadline that has passed.
    pub fn turn(&mut self, ctx: &mut Turn<'_>) {
        self.requests.set_now(ctx.now());
        self.pump_store(ctx);
        self.put_rest(ctx);
        self.hand_over(ctx);
        self.export(ctx);
        if self.driver.deadline().is_some_and(|at| at <= ctx.now()) {
            self.step(ctx, participant::Input::Tick, None);
        }
        self.close_batch(ctx, ctx.least_batch());
        if ctx.is_shutting_down() && !self.closing.is_draining() {
            let may_close = self.may_close(ctx);
            self.closing.set_draining(ctx.now(), may_close);
            if may_close {
                self.store.shutdown();
                self.pump_store(ctx);
            }
        }
        self.driver.assert_carried_out();
        self.requests.flush(ctx);
        self.admission.count(self.write_sets.payloads().bytes());
        if self.figures.is_due(ctx.now()) {
            let sizes = (self.requests.len(), self.write_sets.payloads().len());
            self.figures.publish(ctx.now(), &*self.store, &self.driver, sizes);
            self.figures.size_cache(&mut *self.store);
        }
    }

    /// When [`Shard::turn`] wants to be called at the latest.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let deadlines = [
            self.driver.deadline(),
            self.store.next_deadline(),
            self.write_sets.deadline(),
            self.hand_over.deadline(),
            self.closing.deadline(),
            self.export_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// The descriptor that becomes readable when the store's device has completed something.
    pub fn wake_fd(&self) -> Option<RawFd> {
        self.store.wake_fd().map(|fd| fd.as_raw_fd())
    }

    /// Whether whoever becomes primary now waits for hardly more than the clocks' errors.
    pub fn has_short_lease(&self, now: Timestamp) -> bool {
        self.driver.has_short_lease(now)
    }

    /// Whether it has come to its end, as far as itself is concerned.
    pub fn is_drained(&self) -> bool {
        self.closing.is_down() && self.is_quiet(false)
    }
}
