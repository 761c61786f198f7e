//! The stage of one shard: the participant's core, the store and the shard's side of the log, wired together.
//!
//! ```text
//!   parcel ─► request.rs: decode, hash, look up ─► Participant::step ─► outputs.rs: carry out
//!                                                                        ├─► replies (one parcel per origin and turn)
//!   store.pump ─► reads that went to flash, scans, counts ──────────────┤
//!   log stage ─► durable(batch) ─► Durable(ticket) ─► votes, applies ────┤
//!                                                                        └─► journal (one log batch per turn)
//! ```
//! Invariants: a shard is touched by its stage alone; no answer that promises durability leaves before the log has said so; a
//! transaction's bytes are kept from its prepare until its writes can be read from the store.
//! What it deliberately does not do: decide. Whether a transaction may commit is the core's business alone.
//! Source: MILANA §4.1–4.5, DTranx §3.2.

mod ahead;
mod journal;
mod outputs;
mod payload;
mod peers;
mod pending;
mod recovery;
mod replies;
mod request;
mod single;

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use timestone_cluster::MapVersion;
use timestone_seda::{Context, Origin, Parcel, Stage, StageId};
use timestone_store::{Store, StoreError, StoreEvent};
use timestone_txn::participant::{Input, Output, Participant, ReadItem, Recovered, Ticket, Token, Wait, WriteItem};
use timestone_types::{Epoch, HashSeed, ShardId, Timestamp, TxnId, limits};
use timestone_wal::BatchNumber;
use timestone_wire::{Frame, Frames};

use crate::event::{Event, LogAppend};
use crate::gauges::ShardGauges;
use crate::limits::{LOG_BATCH_BYTES, LOOK_AHEAD, PUBLISH_INTERVAL};
use ahead::LookAhead;
use journal::Journal;
use payload::Payloads;
pub(crate) use peers::{Peers, own_origin};
use pending::Requests;
pub(crate) use recovery::{Recovering, Replay};
use replies::Replies;

/// Where a shard's records go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogPlace {
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

/// The stage of one shard.
pub(crate) struct ShardStage {
    name: String,
    shard: ShardId,
    epoch: Epoch,
    map_version: MapVersion,
    seed: HashSeed,
    participant: Participant,
    store: Box<dyn Store + Send>,
    log: LogPlace,
    peers: Peers,
    journal: Journal,
    payloads: Payloads,
    requests: Requests,
    replies: Replies,
    gauges: Arc<ShardGauges>,

    // Reused by every step.
    outputs: Vec<Output>,
    spare_outputs: Vec<Output>,
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
    unsent: VecDeque<(StageId, Event)>,
    // Every log stage, and the oldest batch of this shard that it may hand out at a recovery, once it has said so.
    retained: Vec<(StageId, Option<BatchNumber>)>,
    // The highest ticket that is durable without a log.
    durable_at_once: Option<Ticket>,
    // When to try again what the store had no room for.
    apply_again_at: Timestamp,
    next_publish: Timestamp,
    // What was last wished for the size of the cache.
    cache_wish: u64,
    carrying: Option<(BatchNumber, BatchNumber)>,
    log_failed: bool,
    store_draining: bool,
    store_down: bool,
}

impl ShardStage {
    /// Takes the frames of a parcel, a few at a time, with a look ahead at their keys.
    fn parcel(&mut self, ctx: &mut Context<'_, Event>, parcel: Parcel) {
        let mut frames = Frames::new(&parcel.bytes);
        let mut group: [Option<Frame<'_>>; LOOK_AHEAD] = [None; LOOK_AHEAD];
        let mut ahead = LookAhead::new();
        loop {
            let mut count = 0;
            ahead.clear();
            for frame in frames.by_ref().take(LOOK_AHEAD) {
                match frame {
                    Ok(frame) => {
                        self.keys_of(&frame, &mut ahead);
                        group[count] = Some(frame);
                        count += 1;
                    }
                    Err(error) => {
                        // The net stage cuts frames by the same rules; what gets here was damaged inside this process or by a peer.
                        tracing::warn!(shard = %self.shard, %error, "a parcel holds bytes that are no frame; the rest of it is dropped");
                        break;
                    }
                }
            }
            if count == 0 {
                break;
            }
            ahead.fetch(&self.participant, &*self.store);
            for frame in group[..count].iter().flatten() {
                self.frame(ctx, parcel.origin, frame);
                self.close_full_batch(ctx);
            }
        }
        ctx.finish_parcel(parcel);
    }

    /// Steps the core and carries out what it wants, `frame` being the request of `token`, if it is at hand.
    fn step(&mut self, ctx: &mut Context<'_, Event>, input: Input<'_>, current: Option<(Token, &Frame<'_>)>) {
        self.participant.step(ctx.now(), input, &mut self.outputs);
        if !self.outputs.is_empty() {
            self.carry_out(ctx, current);
        }
    }

    /// Sends the open log batch.
    fn close_batch(&mut self, ctx: &mut Context<'_, Event>) {
        let LogPlace::Stage(stage) = self.log else { return };
        let now = ctx.now();
        let watermark = self.participant.watermark();
        if let Some((batch, bytes)) = self.journal.close(now, watermark, || ctx.take_buffer()) {
            if self.log_failed {
                return ctx.give_buffer(bytes);
            }
            self.send(ctx, stage, Event::LogAppend(LogAppend { shard: self.shard, batch, bytes }));
            self.store.begin_batch(self.journal.open_batch().get());
        }
    }

    /// Sends the open log batch once it is large: one request more must not make it larger than a log takes.
    fn close_full_batch(&mut self, ctx: &mut Context<'_, Event>) {
        if self.journal.open_bytes() >= LOG_BATCH_BYTES {
            self.close_batch(ctx);
        }
    }

    fn send(&mut self, ctx: &mut Context<'_, Event>, stage: StageId, event: Event) {
        if !self.unsent.is_empty() {
            self.unsent.push_back((stage, event));
        } else if let Err(event) = ctx.send(stage, event) {
            self.unsent.push_back((stage, event));
        }
        if !self.unsent.is_empty() {
            ctx.want_turn();
        }
    }

    fn send_again(&mut self, ctx: &mut Context<'_, Event>) {
        while let Some((stage, event)) = self.unsent.pop_front() {
            if let Err(event) = ctx.send(stage, event) {
                self.unsent.push_front((stage, event));
                ctx.want_turn();
                return;
            }
        }
    }

    fn log_durable(&mut self, ctx: &mut Context<'_, Event>, batch: BatchNumber) {
        if let Some((below, carried_in)) = self.carrying
            && batch >= carried_in
        {
            self.journal.carried(below);
            self.carrying = None;
        }
        if let Some(through) = self.journal.durable(batch) {
            self.step(ctx, Input::Durable { through }, None);
        }
        if let Some(keep_from) = self.journal.release() {
            for index in 0..self.retained.len() {
                let (stage, _) = self.retained[index];
                self.send(ctx, stage, Event::LogRelease { shard: self.shard, keep_from });
            }
        }
    }

    /// The log has failed: what waits for it stays unanswered, since it may be durable or not.
    fn lose_log(&mut self, ctx: &mut Context<'_, Event>) {
        self.log_failed = true;
        self.step(ctx, Input::LogLost, None);
    }

    /// A log cannot go behind `from` any more. What no log can hand out again is settled.
    fn retained(&mut self, log: StageId, from: BatchNumber) {
        if let Some(entry) = self.retained.iter_mut().find(|(stage, _)| *stage == log) {
            entry.1 = Some(from);
        }
        // A log that has not spoken yet may hold anything.
        let oldest = self.retained.iter().map(|(_, from)| *from).min().flatten();
        if let Some(settled) = oldest.and_then(|oldest| self.journal.settled(oldest)) {
            self.store.advance_settled(settled);
        }
    }

    fn pump_store(&mut self, ctx: &mut Context<'_, Event>) {
        let mut events = std::mem::take(&mut self.store_events);
        self.store.pump(ctx.now(), &mut events);
        for event in events.drain(..) {
            self.store_event(ctx, event);
        }
        self.store_events = events;
    }

    /// Why these puts, by their bytes of key and value, may not be promised now, if so: the store has no room, or what is promised
    /// already waits for room.
    fn refusal(&mut self, puts: &mut dyn Iterator<Item = usize>) -> Option<StoreError> {
        if let Some(refusal) = self.store.refusal(puts, self.payloads.bytes()) {
            return Some(refusal);
        }
        match self.no_room {
            _ if self.unapplied.is_empty() => None,
            Some(StoreError::DeviceFull { live_blocks, blocks }) => {
                Some(StoreError::DeviceFull { live_blocks, blocks })
            }
            _ => Some(StoreError::Busy),
        }
    }

    fn is_quiet(&self) -> bool {
        (self.requests.len() == 0 || self.log_failed)
            && self.unapplied.is_empty()
            && self.unsent.is_empty()
            && self.replies.is_empty()
            && (self.journal.is_idle() || self.log_failed)
    }
}

impl Stage<Event> for ShardStage {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(&mut self, ctx: &mut Context<'_, Event>) {
        self.store.begin_batch(self.journal.open_batch().get());
        if self.log == LogPlace::Nowhere && self.store.stats().keys > 0 {
            // Nothing tells what was served before; every timestamp of then is below this one.
            let bound = ctx.now().saturating_add(limits::MAX_CLOCK_LEAD);
            let watermark = self.store.watermark();
            self.step(ctx, Input::Recovered(Recovered::ReadBound { bound, watermark }), None);
        }
        self.step(ctx, Input::RecoveryDone, None);
        self.step(ctx, Input::Tick, None);
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        while let Some(event) = events.pop_front() {
            match event {
                Event::Parcel(parcel) => self.parcel(ctx, parcel),
                Event::LogDurable { batch } => self.log_durable(ctx, batch),
                Event::LogRetained { log, from } => self.retained(log, from),
                Event::LogCarry { below } => self.carry_forward(ctx, below),
                Event::LogFailed { log } if self.log == LogPlace::Stage(log) => self.lose_log(ctx),
                Event::MapChanged(map) => self.map_changed(&map),
                _ => {}
            }
            self.close_full_batch(ctx);
        }
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        self.send_again(ctx);
        self.pump_store(ctx);
        self.apply_rest(ctx);
        if self.participant.next_deadline().is_some_and(|at| at <= ctx.now()) {
            self.step(ctx, Input::Tick, None);
        }
        self.close_batch(ctx);
        if ctx.is_shutting_down() && self.is_quiet() && !self.store_draining {
            self.store_draining = true;
            self.store.shutdown();
            self.pump_store(ctx);
        }
        self.replies.flush(ctx);
        if ctx.now() >= self.next_publish {
            self.next_publish = ctx.now().saturating_add(PUBLISH_INTERVAL);
            self.publish();
            self.resize_cache();
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let apply = (!self.unapplied.is_empty()).then_some(self.apply_again_at);
        let deadlines = [self.participant.next_deadline(), self.store.next_deadline(), apply];
        deadlines.into_iter().flatten().min()
    }

    fn wake_fd(&self) -> Option<RawFd> {
        self.store.wake_fd().map(|fd| fd.as_raw_fd())
    }

    fn drained(&self) -> bool {
        self.store_down && self.is_quiet()
    }
}

impl ShardStage {
    fn publish(&self) {
        self.gauges.publish(
            &self.store.stats(),
            self.participant.watermark(),
            self.requests.len(),
            self.payloads.len(),
        );
        self.gauges.publish_tables(&self.participant.stats());
    }

    /// Follows a wish for another size of the record cache.
    fn resize_cache(&mut self) {
        let wish = self.gauges.cache_wish.load(core::sync::atomic::Ordering::Relaxed);
        if wish != self.cache_wish {
            self.cache_wish = wish;
            self.store.resize_cache(wish);
        }
    }

    /// The buffer for an answer to `origin`.
    #[inline]
    fn reply(&mut self, ctx: &mut Context<'_, Event>, origin: Origin) -> &mut Vec<u8> {
        self.replies.buffer(ctx, origin)
    }
}
