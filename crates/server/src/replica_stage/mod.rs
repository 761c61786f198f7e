//! The stage of a replica of a shard: as a backup it carries out what the primary has logged; as the
//! primary it is the shard.
//!
//! ```text
//!   other replicas ─ messages ─► Replica ─┬─ Persist ─► replica_log ─► log stage ─ durable ─► Replica
//!   configurations ─ Lead ──────►         ├─ Send ────► links
//!                                         ├─ Apply ───► Backup ──┐ Serve: becomes the shard
//!   shard's records ─ Append ───►         └─ Counted ─► Shard ◄──┘ Deposed: becomes a backup again
//!   clients ─ frames ─► Shard while it serves; else they are told to look for another server
//! ```
//! | where | what |
//! |---|---|
//! | `mod` | events in, outputs of the core out |
//! | `kept` | what a server keeps of a replica |
//! | `role` | what the replica does for its shard: backup, primary, or nothing any more |
//! | `replica_log` · `entry` · `bytes` | its side of the log, and the layout there |
//! | `links` | to the other replicas |
//! | `checkpoints` · `rebuilding` | a primary gives checkpoints, a replica that lacks too much takes one |
//! | `backup_reads` | clients read snapshots at a backup, whose primary closes timestamps for that |
//! | `refusing` | what clients hear that ask the wrong server |
//! | `takeover` | how long becoming primary took |
//! | `start` | what a start finds, and how a replica begins without anything |
//!
//! A server has such a stage for every shard of a cluster with several replicas; most keep nothing
//! where there are more servers than replicas. Deliberately absent: who is primary, and when
//! (the master and its controller say so). Rules: docs/protocol/replication.md.

mod backup_reads;
mod bytes;
mod checkpoints;
mod entry;
mod kept;
mod links;
mod rebuilding;
mod refusing;
mod replica_log;
mod role;
mod start;
mod takeover;

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use timestone_cluster::{ControlState, ServerId, ShardMap};
use timestone_replication::{Entry, Input, Message, Output, ReplicaId, Step};
use timestone_seda::{Context, FrameBatch, NetEvent, ReplyAddress, Stage};
use timestone_shard::{BackupReads, Input as ShardInput, LogShortage, Output as ShardOutput};
use timestone_types::{Epoch, ShardId, Timestamp};
use timestone_wal::BatchNumber;
use timestone_wire::{Frame, Frames, Kind, decode_replica_message, without_clock};

use crate::event::Event;
use crate::limits::{
    COPY_FORWARD_BYTES, COPY_FORWARD_PAUSE, KEEP_FROM_PAUSE, LAST_COUNTS, LOG_STUCK_AFTER,
    MAX_EPOCHS_AHEAD, NOTHING_COUNTS_AFTER, STORE_PAUSE,
};
use crate::outgoing::Outgoing;
use crate::replica_gauges::Wish;
use crate::shard_call;
use backup_reads::ReadsHere;
use bytes::{LogBytes, lease_in};
pub(crate) use kept::Kept;
use links::ReplicaLinks;
pub(crate) use links::replica_of;
pub(crate) use replica_log::FoundEntries;
pub(crate) use start::{ReplicaParts, StartedReplica};
use takeover::{TakeoverTimes, millis};

/// See the module.
pub(crate) struct ReplicaStage {
    name: String,
    shard: ShardId,
    server: ServerId,
    parts: ReplicaParts,
    kept: Option<Kept>,
    links: ReplicaLinks,
    map: Arc<ShardMap>,
    /// Whether the master has it among the shard's replicas.
    is_member: bool,
    /// The last epoch that the core was told to lead.
    led: Epoch,
    /// Whether another replica is to become primary, if this one is.
    hands_over: bool,
    /// What the log lacks, as it said last.
    shortage: Option<LogShortage>,
    reads_here: ReadsHere,
    outgoing: Outgoing,
    /// Whether the log was given something in this turn.
    has_appended: bool,
}

impl ReplicaStage {
    /// The stage of a shard; `kept` is what the start has found of it.
    pub(crate) fn new(
        (shard, server): (ShardId, ServerId),
        map: Arc<ShardMap>,
        kept: Option<Kept>,
        parts: ReplicaParts,
    ) -> Self {
        let mut links = ReplicaLinks::new(shard, replica_of(server), parts.net);
        links.follow(&map);
        let (memory, clock) = (Arc::clone(&parts.memory), Arc::clone(&parts.clock));
        Self {
            reads_here: ReadsHere::new(BackupReads::new(shard, memory, clock)),
            name: format!("shard-{shard}"),
            shard,
            server,
            parts,
            kept,
            links,
            map,
            is_member: false,
            led: Epoch::ZERO,
            hands_over: false,
            shortage: None,
            outgoing: Outgoing::default(),
            has_appended: false,
        }
    }

    /// Hands the core something, and carries out what it wants.
    fn step(&mut self, ctx: &mut Context<'_, Event>, input: Input<LogBytes>) {
        if let Some(kept) = &mut self.kept
            && !kept.role.has_failed()
        {
            kept.step(ctx.now(), input);
            if let Some(takeover) = &mut kept.takeover {
                takeover.note(ctx.now(), kept.replica.state());
            }
            self.carry_out(ctx);
        }
    }

    /// Carries out what the core wants, in order; that may make it want more.
    fn carry_out(&mut self, ctx: &mut Context<'_, Event>) {
        while let Some(kept) = &mut self.kept
            && let Some(output) = kept.outputs.pop_front()
        {
            match output {
                Output::Send { to, message } => self.links.send(to, &message),
                Output::Persist { ticket, entry } => {
                    let buffer = ctx.take_buffer();
                    let (to, event) = kept.log.append(ctx.now(), Some(ticket), &entry, buffer);
                    self.outgoing.send(ctx, to, event);
                    self.has_appended = true;
                }
                Output::Apply(batch) => {
                    kept.log.counts(&batch);
                    kept.apply_bytes += batch.payload.records.len();
                    kept.applies.push_back(batch);
                }
                Output::Serve { epoch, through, floor } => {
                    self.serve(ctx, epoch, through, floor);
                }
                Output::Counted { through } => {
                    self.with_shard(ctx, |shard, turn| {
                        shard.input(turn, ShardInput::LogDurable { batch: through });
                    });
                }
                Output::Deposed { epoch, by } => self.deposed(ctx, epoch, by),
                Output::NeedsEpoch { epoch } => {
                    tracing::info!(shard = %self.shard, %epoch, "this epoch was promised already; \
                        another one is asked for");
                    self.parts.replica_gauges.set_wish(Wish::NewEpoch);
                }
                Output::CannotLead { epoch } => {
                    tracing::warn!(shard = %self.shard, %epoch, "nobody who answers has all batches \
                        that count: another replica has to be primary, or one that is away has to \
                        come back");
                    self.parts.replica_gauges.set_wish(Wish::OtherPrimary);
                }
                Output::TakeCheckpoint => self.take_checkpoint(ctx),
                Output::Malformed { from } => {
                    tracing::warn!(shard = %self.shard, replica = %from, "a message that no replica \
                        sends was dropped");
                }
                Output::Behind { replica } => {
                    tracing::warn!(shard = %self.shard, %replica, "a replica is too far behind: it \
                        needs a checkpoint, and is not waited for");
                    self.leave_behind(replica);
                }
            }
        }
    }

    /// The shard serves from now on.
    fn serve(
        &mut self,
        ctx: &mut Context<'_, Event>,
        epoch: Epoch,
        through: BatchNumber,
        floor: Timestamp,
    ) {
        // At the end of the process the store is being closed: another one serves.
        let Some(kept) = self.kept.as_mut().filter(|kept| kept.ends_since.is_none()) else {
            return;
        };
        let clock = Arc::clone(&self.parts.clock);
        let times = kept.takeover.take().unwrap_or(TakeoverTimes::begin(ctx.now()));
        let began = clock.now();
        kept.take_batches(ctx.now(), self.shard, true);
        let with = self.parts.recovering(self.shard, (epoch, through), &self.map, ctx.now());
        kept.role.promote((floor, through), with, self.parts.slot.clone());
        let (log, shortage) = (self.parts.log, self.shortage.clone());
        let (mut waits_until, are_short) = (None, self.hands_over);
        self.with_shard(ctx, |shard, turn| {
            shard.start(turn);
            if are_short {
                shard.input(turn, ShardInput::Leases { are_short });
            }
            // What the log lacks it has told the backup.
            shard.input(turn, ShardInput::LogRoom { log, shortage });
            waits_until = shard.waits_for_leases_until();
        });
        let now = clock.now();
        let [joined_ms, fetched_ms, installed_ms] = times.took(ctx.now()).map(millis);
        let rebuilt_ms = millis(now.since(began));
        let leases_ms = millis(waits_until.map_or(Duration::ZERO, |until| until.since(now)));
        tracing::info!(
            shard = %self.shard, %epoch, %through,
            joined_ms, fetched_ms, installed_ms, rebuilt_ms, leases_ms,
            "this server is primary"
        );
    }

    /// Another replica is to become primary soon, or not any more: its successor waits until the last
    /// lease is over.
    fn hand_over(&mut self, ctx: &mut Context<'_, Event>, is_wanted: bool) {
        if std::mem::replace(&mut self.hands_over, is_wanted) != is_wanted {
            self.with_shard(ctx, |shard, turn| {
                shard.input(turn, ShardInput::Leases { are_short: is_wanted });
            });
        }
    }

    /// Another epoch has begun.
    fn deposed(&mut self, ctx: &mut Context<'_, Event>, epoch: Epoch, by: Epoch) {
        let Some(kept) = &mut self.kept else { return };
        if !kept.role.is_primary() {
            return;
        }
        tracing::info!(shard = %self.shard, %epoch, %by, "this server is primary no more");
        let counted = kept.replica.counted();
        kept.role.depose(ctx.now(), self.shard, self.parts.log, (&kept.log, counted));
        if kept.role.is_closing() {
            self.give_up_log(ctx);
        }
    }

    /// At the end of the process: nothing that the shard has recorded becomes durable any more.
    /// Whether it did not know that.
    fn give_up_log(&mut self, ctx: &mut Context<'_, Event>) -> bool {
        let is_news = self.kept.as_mut().is_some_and(|kept| kept.role.gives_up_log());
        if is_news {
            let log = self.parts.log;
            self.with_shard(ctx, |shard, turn| shard.input(turn, ShardInput::LogFailed { log }));
        }
        is_news
    }

    /// Calls the shard, if it serves here, and carries out what it wants.
    fn with_shard(
        &mut self,
        ctx: &mut Context<'_, Event>,
        run: impl FnOnce(&mut timestone_shard::Shard, &mut timestone_shard::Turn<'_>),
    ) {
        let Some(kept) = &mut self.kept else { return };
        // What is recorded while the log writes is one batch: for the log, and for each backup.
        let state = (!self.outgoing.is_empty(), !kept.log.is_idle());
        let Some(mut outputs) = kept.role.call(ctx, state, run) else { return };
        for output in outputs.drain(..) {
            match shard_call::send(ctx, &mut self.outgoing, &self.name, output) {
                Some(ShardOutput::LogAppend { append, .. }) => {
                    let (number, lease) = (append.head.batch, lease_in(&append.bytes));
                    let records = Arc::from(&append.bytes[..]);
                    ctx.give_buffer(append.bytes);
                    let payload = LogBytes { first: append.head.first, records };
                    kept.step(ctx.now(), Input::Append { number, lease, payload });
                }
                Some(ShardOutput::LogRelease { keep_from, .. }) => {
                    kept.role.needs_from(keep_from);
                }
                Some(ShardOutput::Answer(_) | ShardOutput::ToPeer { .. }) | None => {}
            }
        }
        kept.role.give_back(outputs);
        self.carry_out(ctx);
    }

    /// Follows the master: who keeps the shard, and who is its primary.
    fn follow(&mut self, ctx: &mut Context<'_, Event>, control: &ControlState) {
        if control.map.version() > self.map.version() {
            self.follow_map(ctx, Arc::new(control.map.clone()));
        }
        let position = control.map.shards().iter().position(|entry| entry.id == self.shard);
        let entry = position.map(|index| (&control.map.shards()[index], &control.normal[index]));
        let Some((entry, normal)) = entry else { return };
        self.is_member = entry.replicas.contains(&self.server);
        if self.is_member && self.kept.is_none() {
            self.begin(ctx);
        }
        let has_left = !entry.replicas.is_empty()
            && !self.is_member
            && !normal.replicas.contains(&self.server);
        let has_anything = |kept: &Kept| {
            let last = kept.replica.durable().last();
            kept.replica.installed() > Epoch::ZERO || last > BatchNumber::ZERO
        };
        if has_left && self.kept.as_ref().is_some_and(has_anything) {
            // No candidate asks it, and those who have its place have all that counts (rule P19).
            self.step(ctx, Input::Replaced { by: normal.epoch });
        }
        // A set that a replica has left serves as long as it can acknowledge anything.
        let is_enough = entry.replicas.len() >= control.replication.quorum();
        if entry.primary == self.server && is_enough && entry.epoch > self.led {
            self.led = entry.epoch;
            self.parts.replica_gauges.set_wish(Wish::Nothing);
            let ids = |servers: &[ServerId]| -> Vec<ReplicaId> {
                servers.iter().map(|&server| replica_of(server)).collect()
            };
            let (epoch, replicas) = (entry.epoch, ids(&entry.replicas));
            let mut previous = vec![ids(&normal.replicas), replicas.clone()];
            previous.dedup();
            if let Some(kept) = &mut self.kept {
                kept.takeover = Some(TakeoverTimes::begin(ctx.now()));
            }
            tracing::info!(shard = %self.shard, %epoch, "this server is to be primary");
            self.step(ctx, Input::Lead { epoch, replicas, previous });
        }
    }

    fn follow_map(&mut self, ctx: &mut Context<'_, Event>, map: Arc<ShardMap>) {
        if map.version() <= self.map.version() {
            return;
        }
        self.links.follow(&map);
        self.map = map;
        let map = Arc::clone(&self.map);
        // What it serves in another epoch than the master says it serves for a moment longer: its
        // answers say in which.
        let epoch = self.kept.as_ref().and_then(|kept| kept.role.serves_in());
        if epoch.is_some() && epoch == map.epoch(self.shard) {
            self.with_shard(ctx, |shard, turn| shard.input(turn, ShardInput::MapChanged(map)));
        }
    }

    /// Begins to keep the shard, with nothing.
    fn begin(&mut self, ctx: &mut Context<'_, Event>) {
        let shard = self.shard;
        match self.parts.begin(shard, replica_of(self.server), ctx.now()) {
            Ok(kept) => self.kept = Some(kept),
            Err(error) => tracing::error!(%shard, %error, "this server is to keep a replica of a \
                shard, and cannot; it counts as lost for it. Remove the cause, and restart it"),
        }
    }

    /// Frames of one connection, or of another stage.
    fn frame_batch(&mut self, ctx: &mut Context<'_, Event>, frame_batch: FrameBatch) {
        let is_dialled = self.links.heard(ctx.now(), frame_batch.reply_to);
        let first = Frames::new(without_clock(&frame_batch.bytes)).next();
        let kind = first.and_then(Result::ok).map(|frame| frame.kind());
        match kind {
            // What else comes over the own connections is a welcome, or the door's refusal.
            _ if is_dialled
                || matches!(
                    kind,
                    Some(Kind::ReplicaAsk | Kind::CheckpointAsk | Kind::ClosedAsk)
                ) =>
            {
                for frame in Frames::new(&frame_batch.bytes) {
                    let Ok(frame) = frame else { break };
                    self.message(ctx, (frame_batch.reply_to, is_dialled), &frame);
                }
                ctx.finish_frame_batch(frame_batch);
            }
            _ if self.kept.as_ref().is_some_and(Kept::takes_frames) => {
                self.with_shard(ctx, |shard, turn| {
                    shard.input(turn, ShardInput::FrameBatch(frame_batch));
                });
            }
            Some(Kind::GetAtBackup | Kind::Ping) => self.read_at_backup(ctx, frame_batch),
            _ => self.refuse(ctx, frame_batch),
        }
    }

    /// A message of another replica.
    fn message(
        &mut self,
        ctx: &mut Context<'_, Event>,
        (over, is_dialled): (ReplyAddress, bool),
        frame: &Frame<'_>,
    ) {
        // Answers count from those that were asked.
        let is_meant = match frame.kind() {
            Kind::ReplicaAsk => !is_dialled,
            Kind::ReplicaAnswer => is_dialled,
            Kind::CheckpointAsk if !is_dialled => return self.asked_for_part(ctx, over, frame),
            Kind::CheckpointPart if is_dialled => return self.part_came(ctx, frame),
            Kind::ClosedAsk if !is_dialled => return self.asked_for_closed(over, frame),
            Kind::ClosedIs if is_dialled => return self.closed_came(frame),
            _ => false,
        };
        if !is_meant {
            return;
        }
        let own = |batch: timestone_wire::BatchBytes<'_>| LogBytes {
            first: batch.first,
            records: Arc::from(batch.records),
        };
        let (from, message) = match decode_replica_message(frame, own) {
            Ok(decoded) => decoded,
            Err(error) => {
                tracing::warn!(shard = %self.shard, %error, "a message of another replica cannot be \
                    read, and is dropped");
                return;
            }
        };
        if !self.links.knows(from) {
            return;
        }
        if frame.kind() == Kind::ReplicaAsk {
            self.links.asked(from, over);
        }
        // The master hands out one epoch after the other. A promise of one far ahead would keep all
        // that it hands out from serving.
        let known = self.map.epoch(self.shard).unwrap_or_default();
        if message.epoch().get().saturating_sub(known.get()) > MAX_EPOCHS_AHEAD {
            tracing::warn!(shard = %self.shard, replica = %from, epoch = %message.epoch(), %known,
                "a message of an epoch that the master has not handed out was dropped");
            return;
        }
        if let Some(kept) = &mut self.kept {
            kept.hears(&message);
        }
        let is_full = self.kept.as_ref().is_some_and(Kept::is_full);
        if is_full && matches!(message, Message::Append { .. }) {
            // It is sent again when the store has caught up.
            return;
        }
        self.step(ctx, Input::Message { from, message });
    }

    fn event(&mut self, ctx: &mut Context<'_, Event>, event: Event) {
        match event {
            Event::FrameBatch(frame_batch) => self.frame_batch(ctx, frame_batch),
            Event::LogDurable { batch } => {
                let ticket = self.kept.as_mut().and_then(|kept| kept.log.durable(batch));
                if let Some(through) = ticket {
                    self.step(ctx, Input::Persisted { through });
                }
            }
            Event::LogRetained { log, from } => {
                let Some(kept) = &mut self.kept else { return };
                let Some(from) = kept.log.retained(log, from) else { return };
                kept.role.retained(self.parts.log, from);
                let log = self.parts.log;
                self.with_shard(ctx, |shard, turn| {
                    shard.input(turn, ShardInput::LogRetained { log, from });
                });
            }
            Event::LogCopyForward { below } => self.copy_forward(ctx, below),
            Event::LogRoom { log, shortage } => {
                if log == self.parts.log {
                    self.shortage.clone_from(&shortage);
                }
                let input = ShardInput::LogRoom { log, shortage };
                self.with_shard(ctx, |shard, turn| shard.input(turn, input));
            }
            // Another replica is to be primary: nobody is told that the data is lost.
            Event::LogFailed { log } if log == self.parts.log => {
                if let Some(kept) = &mut self.kept {
                    kept.role.log_has_failed();
                }
            }
            Event::MapChanged(map) => self.follow_map(ctx, map),
            Event::ConfigurationsChanged(control) => self.follow(ctx, &control),
            Event::HandOver { is_wanted } => self.hand_over(ctx, is_wanted),
            Event::Net(event) => self.net_event(ctx, event),
            // Nobody calls a replica's stage; whoever does is told to ask in frames.
            Event::Calls { reply_to, mut calls } => {
                calls.refuse();
                self.outgoing.send(ctx, reply_to, Event::Calls { reply_to, calls });
            }
            Event::LogFailed { .. }
            | Event::NetCommand(_)
            | Event::LogAppend(_)
            | Event::LogRelease { .. }
            | Event::Wake => {}
        }
    }

    fn net_event(&mut self, ctx: &mut Context<'_, Event>, event: NetEvent) {
        match event {
            NetEvent::Connected(view) => {
                let to = self.links.connected(ctx, &view, &mut self.outgoing);
                if let Some(to) = to {
                    self.step(ctx, Input::LinkUp { to });
                }
            }
            NetEvent::Disconnected { reply_to, dial, .. } => {
                self.links.disconnected(dial, Some(reply_to));
            }
            NetEvent::DialFailed { dial, .. } => self.links.disconnected(Some(dial), None),
            NetEvent::Written { reply_to, bytes } => {
                self.links.written(reply_to, bytes as u64);
            }
            NetEvent::HalfClosed(_) | NetEvent::FrameBatch(_) => {}
        }
    }

    /// The turn of a backup: its store takes what counts.
    fn turn_backup(&mut self, ctx: &mut Context<'_, Event>) {
        let Some(kept) = &mut self.kept else { return };
        if std::mem::take(&mut self.has_appended) && !kept.applies.is_empty() {
            // The log writes meanwhile; its stage runs before this one does again.
            return self.outgoing.send(ctx, ctx.stage(), Event::Wake);
        }
        kept.take_batches(ctx.now(), self.shard, false);
        kept.role.turn_backup(ctx.now(), ctx.is_shutting_down(), &self.parts.gauges);
    }

    /// The log wants to let go of what is below this log batch.
    fn copy_forward(&mut self, ctx: &mut Context<'_, Event>, below: BatchNumber) {
        let Some(kept) = &mut self.kept else { return };
        let (mark, batches) = kept.log.copy_forward(below, kept.replica.counted());
        if let Some(mark) = mark {
            self.append_again(ctx, &mark);
        }
        // What a backup keeps goes when its primary has appended it again.
        if let Some(below) = batches {
            self.with_shard(ctx, |shard, turn| {
                shard.input(turn, ShardInput::LogCopyForward { below });
            });
        }
    }

    /// Appends the mark again that lies far back.
    fn renew_mark(&mut self, ctx: &mut Context<'_, Event>) {
        let mark = self.kept.as_ref().and_then(|kept| kept.log.old_mark());
        if let Some(mark) = mark {
            self.append_again(ctx, &mark);
        }
    }

    /// Appends a mark that the log has already: nobody waits for it.
    fn append_again(&mut self, ctx: &mut Context<'_, Event>, mark: &Entry<LogBytes>) {
        let Some(kept) = &mut self.kept else { return };
        let buffer = ctx.take_buffer();
        let (to, event) = kept.log.append(ctx.now(), None, mark, buffer);
        self.outgoing.send(ctx, to, event);
    }

    /// Has the shard append again what holds up too much memory.
    fn bound_memory(&mut self, ctx: &mut Context<'_, Event>) {
        let Some(kept) = &mut self.kept else { return };
        let is_due = ctx.now().since(kept.copied_at) >= COPY_FORWARD_PAUSE;
        if kept.log.bytes() < COPY_FORWARD_BYTES || !is_due {
            return;
        }
        kept.copied_at = ctx.now();
        let below = kept.replica.counted();
        self.with_shard(ctx, |shard, turn| {
            shard.input(turn, ShardInput::LogCopyForward { below });
        });
    }

    /// The process ends. What a primary has recorded last may never count, when the other replicas
    /// are gone: it is waited for, but not for ever.
    fn end(&mut self, ctx: &mut Context<'_, Event>) {
        let Some(kept) = &self.kept else { return };
        let since = kept.ends_since.unwrap_or(ctx.now());
        let is_over = ctx.now().since(since) >= LAST_COUNTS
            && kept.waits_to_count()
            && kept.nothing_counts(ctx.now());
        if (is_over || kept.role.has_lost_log()) && self.give_up_log(ctx) {
            tracing::warn!(shard = %self.shard, "other replicas do not answer at the end: what was \
                written last was told to nobody, and may count or not");
        }
    }

    /// Whether it has asked for another epoch, or another primary, and that is not answered yet: it is
    /// to lead the epoch of which it said so. It says nothing else meanwhile; what it is later, and
    /// that its server is being stopped, is told again when the master has decided.
    fn still_wants_to_lead(&self) -> bool {
        let wish = self.parts.replica_gauges.standing().wish;
        let is_named = self
            .map
            .shard(self.shard)
            .is_some_and(|entry| entry.primary == self.server && entry.epoch == self.led);
        let serves = |kept: &Kept| kept.replica.state() == Step::Serving;
        let is_to_lead = is_named && !self.kept.as_ref().is_some_and(serves);
        matches!(wish, Wish::NewEpoch | Wish::OtherPrimary)
            && (is_to_lead || timestone_types::is_planted!(KeepsWish))
    }

    /// Lets the log go of what is not needed, and tells the process how it is.
    fn settle(&mut self, ctx: &mut Context<'_, Event>) {
        let still_wants = self.still_wants_to_lead();
        let gauges = &self.parts.replica_gauges;
        let Some(kept) = &mut self.kept else { return };
        // A backup looks through all that it keeps.
        if kept.role.is_primary() || ctx.now().since(kept.looked_at) >= KEEP_FROM_PAUSE {
            kept.looked_at = ctx.now();
            // What it holds for others; nothing before a checkpoint has come.
            let held = kept.replica.held_above().next();
            let held = if kept.replica.is_emptied() { BatchNumber::MAX } else { held };
            let keep_from = kept.role.keep_from().min(held);
            kept.log.needs_from(keep_from);
        }
        if let Some(events) = kept.log.release() {
            for (log, event) in events {
                self.outgoing.send(ctx, log, event);
            }
        }
        kept.note_counted(ctx.now());
        if kept.note_unread() {
            tracing::warn!(shard = %self.shard, "the device has not read all that this replica has, \
                or what it has read is damaged: it answers no reads as a backup, gives no checkpoints, \
                and is primary only while no other replica can be. Start the server again; if this \
                stays, have the replica made anew from the others");
        }
        gauges.set_epochs(kept.replica.promised(), kept.replica.installed());
        gauges.set_loss(kept.loss());
        // A log that writes nothing for so long is as good as lost, until it goes on.
        let oldest = kept.log.oldest_on_its_way();
        let is_stuck = oldest.is_some_and(|at| ctx.now().since(at) >= LOG_STUCK_AFTER);
        let fails = is_stuck || kept.role.keeps_nothing();
        gauges.set_step(Some(kept.replica.state()).filter(|_| !fails));
        if kept.replica.is_emptied() {
            let is_primary = self.map.primary(self.shard).is_some_and(|one| one.id == self.server);
            let gets_on = kept.role.rebuilding().is_some_and(|one| one.gets_on(ctx.now()));
            gauges.set_wish(match (is_primary, gets_on) {
                // Another one has to lead, and to give it a checkpoint.
                (true, _) => Wish::OtherPrimary,
                (false, true) => Wish::TimeToRebuild,
                (false, false) => Wish::Nothing,
            });
        } else if !still_wants {
            let is_ready = self.hands_over && kept.role.has_short_lease(ctx.now());
            gauges.set_wish(match kept.replica.hears_nobody(ctx.now()) {
                true => Wish::MoreReached,
                false if is_ready => Wish::Successor,
                false => Wish::Nothing,
            });
        }
        let counted = kept.replica.counted();
        let (last, has) = (counted.max(kept.heard_counted), kept.replica.durable().prefix());
        gauges.set_progress(counted, last.get().saturating_sub(has.get()));
        let closed = kept.role.as_backup().map_or(Timestamp::ZERO, |backup| backup.closed());
        gauges.set_reads(closed, self.reads_here.figures());
    }
}

impl Stage<Event> for ReplicaStage {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(&mut self, ctx: &mut Context<'_, Event>) {
        self.links.set_owner(ctx.stage());
        self.carry_out(ctx);
        self.settle(ctx);
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        self.with_shard(ctx, |shard, turn| shard.begin_inputs(turn));
        while let Some(event) = events.pop_front() {
            self.event(ctx, event);
        }
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        self.outgoing.send_again(ctx);
        if let Some(kept) = &mut self.kept {
            kept.turned_at = ctx.now();
            if ctx.is_shutting_down() {
                kept.ends_since.get_or_insert(ctx.now());
            }
        }
        self.turn_backup(ctx);
        self.rebuild(ctx);
        let deadline = self.kept.as_ref().and_then(|kept| kept.replica.next_deadline());
        if deadline.is_some_and(|at| at <= ctx.now()) {
            self.step(ctx, Input::Tick);
        }
        self.with_shard(ctx, timestone_shard::Shard::turn);
        self.give_parts(ctx);
        self.go_on_reading(ctx);
        if ctx.is_shutting_down() {
            self.end(ctx);
        } else {
            self.bound_memory(ctx);
            self.renew_mark(ctx);
        }
        self.settle(ctx);
        self.links.flush(ctx, &mut self.outgoing);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let kept = self.kept.as_ref()?;
        let role = kept.role.next_deadline(kept.turned_at.saturating_add(STORE_PAUSE));
        let counts = kept.counts_since.1.saturating_add(NOTHING_COUNTS_AFTER);
        let end = kept.ends_since.map(|since| since.saturating_add(LAST_COUNTS).max(counts));
        let end = end.filter(|_| {
            kept.role.is_primary() && !kept.role.has_lost_log() && kept.waits_to_count()
        });
        let stuck = kept.log.oldest_on_its_way().map(|at| at.saturating_add(LOG_STUCK_AFTER));
        let stuck = stuck.filter(|at| *at > kept.turned_at);
        // A core that is not stepped any more wants nothing.
        let core = kept.replica.next_deadline().filter(|_| !kept.role.has_failed());
        let reading = self.reading_deadline();
        [role, end, stuck, core, reading].into_iter().flatten().min()
    }

    fn wake_fd(&self) -> Option<RawFd> {
        self.kept.as_ref()?.role.wake_fd()
    }

    fn drained(&self) -> bool {
        let is_drained = |kept: &Kept| {
            kept.role.is_drained() && (kept.log.is_idle() || kept.role.keeps_nothing())
        };
        self.outgoing.is_empty() && self.kept.as_ref().is_none_or(is_drained)
    }
}

#[cfg(test)]
mod tests;
