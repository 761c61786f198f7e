//! The log stage: one per reactor thread, shared by the shards of that thread.
//!
//! ```text
//!   shard ── LogBatch{shard, batch, bytes} ──► log stage ── block, write, sync ──► device
//!   shard ◄─ LogDurable{batch} ──────────────┘      (everything queued during one sync is the next group)
//!   shard ── LogRelease{shard, keep_from} ───► whole old files go      LogCarry{below} ──► shard
//! ```
//! A run without a log has one such stage as well. It empties what earlier runs left, and makes a
//! log when a shard that ends appends to it what others still need.
//!
//! Invariants: a batch is acknowledged only when the log says durable; after a failure nothing is
//! ever acknowledged again. Shards are told when the log cannot make its next file, long before it
//! has no room: they let in only what it can take, and what they have let in can be finished. A log
//! that has no room even for that counts as failed at a shutdown. What it deliberately does not do:
//! look into records. Source: DTranx §3.3, §3.4.

use std::collections::VecDeque;
use std::fmt::Display;

use timestone_seda::{Context, Stage, StageId};
use timestone_types::{ShardId, Timestamp};
use timestone_wal::{BatchNumber, Log, LogEvent, WalError};

use crate::error::ServerError;
use timestone_shard::{LogAppend, LogShortage};

use crate::event::Event;
use crate::limits::{BLOCKED_LOG_PATIENCE, EMPTYING_POLL, LAST_LOG_POLL, LOG_ROOM_STEP_BYTES};

/// Makes the log for what a run without one leaves. Blocks, for as long as a small file takes to be
/// made.
pub(crate) type LastLog = Box<dyn FnOnce(Timestamp) -> Result<Log, ServerError> + Send>;

/// Owns one log and answers the shards of its thread.
pub(crate) struct LogStage {
    name: String,
    log: Option<Log>,
    events: Vec<LogEvent>,
    // A batch the log had no room for; everything behind it waits, so that batches of a shard stay
    // in order.
    blocked: bool,
    // All shards of the process: those of this thread append here, others may have batches of an
    // earlier run here.
    shards: Vec<(ShardId, StageId)>,
    gauges: std::sync::Arc<crate::gauges::LogGauges>,
    unsent: VecDeque<(StageId, Event)>,
    // In a run without a log, until the first shard that ends has something to leave.
    last_log: Option<LastLog>,
    // The log was made at the end: nothing wakes the stage for it.
    is_last: bool,
    // Logs of threads that an earlier run had; they are only emptied.
    adopted: Vec<Log>,
    // Files reclaimed when the shards were last told what is retained.
    told: Option<u64>,
    // What the shards were told of the log's room: how much there is, and why no more.
    short: Option<(u64, String)>,
    // Since when nothing has become durable of what waits, while the log cannot make its next file.
    stuck_since: Option<Timestamp>,
    // When such a log is given up, at a shutdown.
    give_up_at: Option<Timestamp>,
    // When to look again at a log that is being emptied.
    look_at: Option<Timestamp>,
    failed: bool,
    // By the place of a shard: its batches that are not durable, and when they were appended.
    appended: Vec<VecDeque<(BatchNumber, Timestamp)>>,
}

impl LogStage {
    pub(crate) fn new(
        thread: usize,
        log: Log,
        shards: Vec<(ShardId, StageId)>,
        gauges: std::sync::Arc<crate::gauges::LogGauges>,
    ) -> Self {
        let mut stage = Self::without_log(thread, shards, gauges);
        stage.log = Some(log);
        stage
    }

    /// A stage without a log, which empties the logs that it adopts. It takes nothing unless it
    /// [can make one](Self::makes_last_log).
    pub(crate) fn without_log(
        thread: usize,
        shards: Vec<(ShardId, StageId)>,
        gauges: std::sync::Arc<crate::gauges::LogGauges>,
    ) -> Self {
        let appended = shards.iter().map(|_| VecDeque::new()).collect();
        Self {
            appended,
            name: format!("log-{thread}"),
            log: None,
            events: Vec::new(),
            blocked: false,
            shards,
            gauges,
            unsent: VecDeque::new(),
            last_log: None,
            is_last: false,
            adopted: Vec::new(),
            told: None,
            short: None,
            stuck_since: None,
            give_up_at: None,
            look_at: None,
            failed: false,
        }
    }

    /// Takes over a log that nobody appends to any more; its files go when no shard needs them.
    pub(crate) fn adopt(&mut self, log: Log) {
        self.adopted.push(log);
    }

    /// Whoever appends something makes a log, in this way.
    pub(crate) fn makes_last_log(&mut self, make: LastLog) {
        self.last_log = Some(make);
    }

    /// Whether there is no log here.
    pub(crate) fn is_blank(&self) -> bool {
        self.log.is_none() && self.adopted.is_empty()
    }

    /// The first batch of a run without a log: it has come to its end.
    fn make_last_log(&mut self, ctx: &mut Context<'_, Event>) {
        let Some(make) = self.last_log.take() else { return };
        self.is_last = true;
        match make(ctx.now()) {
            Ok(log) => self.log = Some(log),
            Err(error) => self.fail(ctx, &error),
        }
    }

    /// Tells the shards what the logs of this stage can still hand out at a recovery, when that has
    /// changed.
    fn tell_retained(&mut self, ctx: &mut Context<'_, Event>) {
        let logs = || self.log.iter().chain(&self.adopted);
        let reclaimed = logs().map(|log| log.stats().reclaimed).sum();
        if self.told == Some(reclaimed) {
            return;
        }
        self.told = Some(reclaimed);
        for index in 0..self.shards.len() {
            let (shard, stage) = self.shards[index];
            let oldest = self
                .log
                .iter()
                .chain(&self.adopted)
                .filter_map(|log| log.retained_from(shard))
                .min();
            let from = oldest.unwrap_or(BatchNumber::MAX);
            self.send(ctx, stage, Event::LogRetained { log: ctx.stage(), from });
        }
    }

    /// Tells the shards how much they may still let in, when that has changed.
    fn tell_room(&mut self, ctx: &mut Context<'_, Event>) {
        let now = self.log.as_ref().filter(|_| !self.failed).and_then(Log::shortage);
        let now =
            now.map(|(cause, room)| (cause, room / LOG_ROOM_STEP_BYTES * LOG_ROOM_STEP_BYTES));
        let said = self.short.as_ref().map(|(room, cause)| (cause.as_str(), *room));
        if now == said {
            return;
        }
        let next = now.map(|(cause, room)| (room, cause.to_owned()));
        let shortage = next.as_ref().map(|(room_bytes, cause)| LogShortage {
            room_bytes: *room_bytes,
            words: format!(
                "no room for writes: {cause}. Delete something or free space on the disk; writes \
                 go on by themselves then"
            )
            .into(),
        });
        let refuses = shortage.as_ref().filter(|shortage| shortage.room_bytes == 0);
        self.gauges.shortage.set(refuses.map(|shortage| &*shortage.words));
        if self.short.is_some() && next.is_none() {
            tracing::info!(log = self.name, "the log has room for its next file again");
        }
        self.short = next;
        for (_, stage) in self.shards.clone() {
            self.send(ctx, stage, Event::LogRoom { log: ctx.stage(), shortage: shortage.clone() });
        }
    }

    /// Gives up a log at a shutdown that has no room for what waits, and gets none: it is in doubt,
    /// and nobody is told otherwise.
    fn give_up_when_stuck(&mut self, ctx: &mut Context<'_, Event>) {
        let waits = self.blocked || self.log.as_ref().is_some_and(|log| !log.is_idle());
        self.give_up_at = None;
        let Some((_, cause)) = self.short.as_ref().filter(|_| waits && !self.failed) else {
            self.stuck_since = None;
            return;
        };
        let at = self.stuck_since.get_or_insert(ctx.now()).saturating_add(BLOCKED_LOG_PATIENCE);
        if !ctx.is_shutting_down() {
            return;
        }
        self.give_up_at = Some(at).filter(|&at| ctx.now() < at);
        if self.give_up_at.is_none() {
            let error = WalError::NoSpace { cause: cause.clone() };
            self.fail(ctx, &error);
        }
    }

    fn append(&mut self, append: &LogAppend) -> Result<(), WalError> {
        // Shards without a log send nothing before their end.
        let Some(log) = &mut self.log else { return Ok(()) };
        log.append_batch(append.head, &append.bytes)
    }

    fn release(&mut self, shard: ShardId, keep_from: BatchNumber) {
        // Whoever has left a run without a log behind lets all go that earlier runs have logged;
        // what it leaves itself is to stay.
        let keeps_own = self.is_last
            && keep_from == BatchNumber::MAX
            && !timestone_types::is_planted!(ReleasedLastLog);
        let own = self.log.iter_mut().filter(|_| !keeps_own);
        own.chain(&mut self.adopted).for_each(|log| log.release(shard, keep_from));
    }

    /// Carries out the releases that stand behind a batch without room: the file that one of them
    /// frees may be what that batch waits for. Their order to batches means nothing.
    fn release_behind(&mut self, events: &mut VecDeque<Event>) {
        if timestone_types::is_planted!(WaitingRelease) {
            return;
        }
        events.retain(|event| {
            let &Event::LogRelease { shard, keep_from } = event else { return true };
            self.release(shard, keep_from);
            false
        });
    }

    fn place_of(&self, shard: ShardId) -> Option<usize> {
        self.shards.iter().position(|(id, _)| *id == shard)
    }

    /// Batches of a shard up to this one are durable: how long they waited. What waits is bounded
    /// by what the log queues.
    fn time_durable(&mut self, now: Timestamp, shard: ShardId, batch: BatchNumber) {
        let Some(place) = self.place_of(shard) else { return };
        let appended = &mut self.appended[place];
        while let Some((_, at)) = appended.pop_front_if(|(number, _)| *number <= batch) {
            self.gauges.durable.since(at, now);
        }
    }

    fn stage_of(&self, shard: ShardId) -> Option<StageId> {
        self.shards.iter().find(|(id, _)| *id == shard).map(|(_, stage)| *stage)
    }

    fn report(&mut self, ctx: &mut Context<'_, Event>) {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match event {
                LogEvent::Durable { shard, batch } => {
                    self.stuck_since = None;
                    self.time_durable(ctx.now(), shard, batch);
                    self.tell(ctx, shard, Event::LogDurable { batch });
                }
                LogEvent::PleaseCarry { shard, below } => {
                    self.tell(ctx, shard, Event::LogCarry { below })
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
        if self.is_last {
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
        self.appended.iter_mut().for_each(VecDeque::clear);
        for (_, stage) in self.shards.clone() {
            self.send(ctx, stage, Event::LogFailed { log: ctx.stage() });
        }
    }

    fn tell(&mut self, ctx: &mut Context<'_, Event>, shard: ShardId, event: Event) {
        if let Some(stage) = self.stage_of(shard) {
            self.send(ctx, stage, event);
        }
    }

    fn send(&mut self, ctx: &mut Context<'_, Event>, stage: StageId, event: Event) {
        if !self.unsent.is_empty() {
            self.unsent.push_back((stage, event));
        } else if let Err(event) = ctx.send(stage, event) {
            self.unsent.push_back((stage, event));
        }
    }

    fn send_again(&mut self, ctx: &mut Context<'_, Event>) {
        while let Some((stage, event)) = self.unsent.pop_front() {
            if let Err(event) = ctx.send(stage, event) {
                self.unsent.push_front((stage, event));
                ctx.want_turn();
                break;
            }
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
            if matches!(event, Event::LogAppend(_)) {
                self.make_last_log(ctx);
            }
            match event {
                // What follows a batch that is missing must not become durable: it would vouch for
                // that one, too.
                Event::LogAppend(append) if self.failed => {
                    // A last log is taken by one shard after the other: this one may not have heard
                    // of it.
                    if self.is_last && !timestone_types::is_planted!(UntoldLastLog) {
                        self.tell(ctx, append.head.shard, Event::LogFailed { log: ctx.stage() });
                    }
                    ctx.give_buffer(append.bytes);
                }
                Event::LogAppend(append) => match self.append(&append) {
                    Ok(()) => {
                        if let Some(place) = self.place_of(append.head.shard) {
                            self.appended[place].push_back((append.head.batch, ctx.now()));
                        }
                        ctx.give_buffer(append.bytes);
                    }
                    Err(error) if error.retryable() => {
                        events.push_front(Event::LogAppend(append));
                        self.blocked = true;
                        self.release_behind(events);
                        break;
                    }
                    Err(WalError::Poisoned { .. }) => ctx.give_buffer(append.bytes),
                    Err(error) => {
                        ctx.give_buffer(append.bytes);
                        self.fail(ctx, &error);
                    }
                },
                Event::LogRelease { shard, keep_from } => self.release(shard, keep_from),
                _ => {}
            }
        }
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        self.send_again(ctx);
        if let Some(log) = &mut self.log {
            log.pump(ctx.now(), &mut self.events);
            self.gauges.publish(&log.stats());
        }
        for log in &mut self.adopted {
            log.pump(ctx.now(), &mut self.events);
        }
        let is_changing = self.adopted.iter().any(Log::is_changing);
        let poll =
            if self.is_last { Some(LAST_LOG_POLL) } else { is_changing.then_some(EMPTYING_POLL) };
        self.look_at = poll.map(|poll| ctx.now().saturating_add(poll));
        self.report(ctx);
        self.tell_room(ctx);
        self.give_up_when_stuck(ctx);
        self.tell_retained(ctx);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        // Nothing else wakes a stage that only empties logs: not to go on with one of them when
        // something went wrong, either.
        let logs = self.log.iter().chain(&self.adopted).filter_map(Log::next_deadline).min();
        [logs, self.look_at, self.give_up_at].into_iter().flatten().min()
    }

    fn wake_fd(&self) -> Option<std::os::fd::RawFd> {
        self.log.as_ref().and_then(Log::wake_fd)
    }

    fn drained(&self) -> bool {
        // What waits in a log that failed is never written.
        let idle = self.failed || (!self.blocked && self.log.as_ref().is_none_or(Log::is_idle));
        idle && self.unsent.is_empty()
    }
}

#[cfg(test)]
mod tests;
