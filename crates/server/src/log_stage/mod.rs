//! The log stage: one per reactor thread, shared by the shards of that thread.
//!
//! ```text
//!   shard ── LogBatch{shard, batch, bytes} ──► log stage ── block, write, sync ──► device
//!   shard ◄─ LogDurable{batch} ──────────────┘      (everything queued during one sync is the next group)
//!   shard ── LogRelease{shard, keep_from} ───► whole old files go      LogCopyForward{below} ──► shard
//! ```
//! A run without a log has one such stage as well. It empties what earlier runs left, and makes a
//! log when a shard that ends appends to it what others still need.
//!
//! Invariants: a batch is acknowledged only when the log says durable; after a failure nothing is
//! ever acknowledged again. Shards are told when the log cannot make its next file, long before it
//! has no room: they let in only what it can take, and what they have let in can be finished. A log
//! that has no room even for that counts as failed at a shutdown. What it deliberately does not do:
//! look into records. Source: DTranx §3.3.1, §3.3.2.

mod logs;
mod room;
mod shards;

use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::Arc;

use timestone_seda::{Context, Stage, StageId};
use timestone_shard::LogAppend;
use timestone_types::{ShardId, Timestamp};
use timestone_wal::{Log, LogEvent, WalError};

use crate::event::Event;
use crate::gauges::LogGauges;
use crate::outgoing::Outgoing;
pub(crate) use logs::LastLog;
use logs::Logs;
use room::{Room, RoomChange};
use shards::LogShards;

/// Owns one log and answers the shards of its thread.
pub(crate) struct LogStage {
    name: String,
    logs: Logs,
    events: Vec<LogEvent>,
    // A batch the log had no room for; everything behind it waits, so that batches of a shard stay
    // in order.
    blocked: bool,
    shards: LogShards,
    gauges: Arc<LogGauges>,
    outgoing: Outgoing,
    room: Room,
    // When to look again at a log that is being emptied.
    look_at: Option<Timestamp>,
    failed: bool,
}

impl LogStage {
    pub(crate) fn new(
        thread: usize,
        log: Log,
        shards: Vec<(ShardId, StageId)>,
        gauges: Arc<LogGauges>,
    ) -> Self {
        let mut stage = Self::without_log(thread, shards, gauges);
        stage.logs.begin(log);
        stage
    }

    /// A stage without a log, which empties the logs that it adopts. It takes nothing unless it
    /// [can make one](Self::makes_last_log).
    pub(crate) fn without_log(
        thread: usize,
        shards: Vec<(ShardId, StageId)>,
        gauges: Arc<LogGauges>,
    ) -> Self {
        Self {
            name: format!("log-{thread}"),
            logs: Logs::default(),
            events: Vec::new(),
            blocked: false,
            shards: LogShards::new(shards),
            gauges,
            outgoing: Outgoing::default(),
            room: Room::default(),
            look_at: None,
            failed: false,
        }
    }

    /// Takes over a log that nobody appends to any more; its files go when no shard needs them.
    pub(crate) fn adopt(&mut self, log: Log) {
        self.logs.adopt(log);
    }

    /// Whoever appends something makes a log, in this way.
    pub(crate) fn makes_last_log(&mut self, make: LastLog) {
        self.logs.makes_last(make);
    }

    /// Whether there is no log here.
    pub(crate) fn is_blank(&self) -> bool {
        self.logs.is_blank()
    }

    /// Takes a batch; the batch itself when it must wait, with everything behind it.
    fn append(&mut self, ctx: &mut Context<'_, Event>, append: LogAppend) -> Result<(), LogAppend> {
        if let Err(error) = self.logs.make_last(ctx.now()) {
            self.fail(ctx, &error);
        }
        // What follows a batch that is missing must not become durable: it would vouch for that
        // one, too.
        if self.failed {
            // A last log is taken by one shard after the other: this one may not have heard of it.
            if self.logs.is_last() && !timestone_types::is_planted!(UntoldLastLog) {
                self.tell(ctx, append.head.shard, Event::LogFailed { log: ctx.stage() });
            }
            ctx.give_buffer(append.bytes);
            return Ok(());
        }
        match self.logs.append(&append) {
            Ok(()) => self.shards.appended(&append.head, ctx.now()),
            Err(error) if error.retryable() => return Err(append),
            Err(WalError::Poisoned { .. }) => {}
            Err(error) => self.fail(ctx, &error),
        }
        ctx.give_buffer(append.bytes);
        Ok(())
    }

    /// Carries out the releases that stand behind a batch without room: the file that one of them
    /// frees may be what that batch waits for. Their order to batches means nothing.
    fn release_behind(&mut self, events: &mut VecDeque<Event>) {
        if timestone_types::is_planted!(WaitingRelease) {
            return;
        }
        events.retain(|event| {
            let &Event::LogRelease { shard, keep_from } = event else { return true };
            self.logs.release(shard, keep_from);
            false
        });
    }

    /// Tells the shards what the logs of this stage can still hand out at a recovery, when that has
    /// changed.
    fn tell_retained(&mut self, ctx: &mut Context<'_, Event>) {
        if !self.logs.have_reclaimed() {
            return;
        }
        for index in 0..self.shards.len() {
            let (shard, stage) = self.shards.at(index);
            let from = self.logs.retained_from(shard);
            self.outgoing.send(ctx, stage, Event::LogRetained { log: ctx.stage(), from });
        }
    }

    /// Tells the shards how much they may still let in, when that has changed.
    fn tell_room(&mut self, ctx: &mut Context<'_, Event>) {
        let now = self.logs.own().filter(|_| !self.failed).and_then(Log::shortage);
        let Some(change) = self.room.change(now) else { return };
        let shortage = match change {
            RoomChange::Short(shortage) => Some(shortage),
            RoomChange::Over => {
                tracing::info!(log = self.name, "the log has room for its next file again");
                None
            }
        };
        let refuses = shortage.as_ref().filter(|shortage| shortage.room_bytes == 0);
        self.gauges.shortage.set(refuses.map(|shortage| &*shortage.words));
        for index in 0..self.shards.len() {
            let (_, stage) = self.shards.at(index);
            let shortage = shortage.clone();
            self.outgoing.send(ctx, stage, Event::LogRoom { log: ctx.stage(), shortage });
        }
    }

    fn report(&mut self, ctx: &mut Context<'_, Event>) {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match event {
                LogEvent::Durable { shard, batch } => {
                    self.room.moves();
                    for appended in self.shards.durable(shard, batch) {
                        self.gauges.durable.since(appended, ctx.now());
                    }
                    self.tell(ctx, shard, Event::LogDurable { batch });
                }
                LogEvent::CopyForwardWanted { shard, below } => {
                    self.tell(ctx, shard, Event::LogCopyForward { below })
                }
                LogEvent::Degraded(error) => {
                    tracing::warn!(
                        log = self.name, %error,
                        "the log cannot make its next file: it goes on in the current one, and \
                         writes are refused before that is full; \
                         free space on the disk, or delete something"
                    );
                }
                LogEvent::Failed(error) => self.fail(ctx, &error),
            }
        }
        self.events = events;
    }

    /// Nothing more is acknowledged.
    fn fail(&mut self, ctx: &mut Context<'_, Event>, error: &dyn Display) {
        if self.logs.is_last() {
            tracing::error!(
                %error,
                "what this server has decided and others have not been told, and what it has \
                 promised, cannot be saved: it is lost with the \
                 end of this run, which has no log. Transactions over several servers that were \
                 acknowledged in the last seconds may be left in \
                 halves. Look at the free space under the data directory before the next stop"
            );
        } else {
            tracing::error!(
                %error,
                "the log failed: reads go on, writes are refused. What was acknowledged is safe. \
                 Remove the cause (look at the \
                 device and the free space under the data directory), then restart the server"
            );
        }
        self.gauges.fail(error.to_string());
        self.failed = true;
        self.shards.forget_appended();
        for index in 0..self.shards.len() {
            let (_, stage) = self.shards.at(index);
            self.outgoing.send(ctx, stage, Event::LogFailed { log: ctx.stage() });
        }
    }

    fn tell(&mut self, ctx: &mut Context<'_, Event>, shard: ShardId, event: Event) {
        if let Some(stage) = self.shards.stage_of(shard) {
            self.outgoing.send(ctx, stage, event);
        }
    }
}

impl Stage<Event> for LogStage {
    fn name(&self) -> &str {
        &self.name
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        self.blocked = false;
        while let Some(event) = events.pop_front() {
            match event {
                Event::LogAppend(append) => {
                    if let Err(append) = self.append(ctx, append) {
                        events.push_front(Event::LogAppend(append));
                        self.blocked = true;
                        self.release_behind(events);
                        break;
                    }
                }
                Event::LogRelease { shard, keep_from } => self.logs.release(shard, keep_from),
                _ => {}
            }
        }
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        self.outgoing.send_again(ctx);
        self.logs.pump(ctx.now(), &mut self.events);
        if let Some(log) = self.logs.own() {
            self.gauges.publish(&log.stats());
        }
        self.look_at = self.logs.poll_interval().map(|poll| ctx.now().saturating_add(poll));
        self.report(ctx);
        self.tell_room(ctx);
        let waits = self.blocked || !self.logs.are_idle();
        if let Some(error) =
            self.room.give_up(ctx.now(), waits && !self.failed, ctx.is_shutting_down())
        {
            self.fail(ctx, &error);
        }
        self.tell_retained(ctx);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        // Nothing else wakes a stage that only empties logs: not to go on with one of them when
        // something went wrong, either.
        [self.logs.next_deadline(), self.look_at, self.room.deadline()].into_iter().flatten().min()
    }

    fn wake_fd(&self) -> Option<std::os::fd::RawFd> {
        self.logs.own().and_then(Log::wake_fd)
    }

    fn drained(&self) -> bool {
        // What waits in a log that failed is never written.
        let idle = self.failed || (!self.blocked && self.logs.are_idle());
        idle && self.outgoing.is_empty()
    }
}

#[cfg(test)]
mod tests;
