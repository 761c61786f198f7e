//! The log stage: one per reactor thread, shared by the shards of that thread.
//!
//! ```text
//!   shard ── LogBatch{shard, batch, bytes} ──► log stage ── block, write, sync ──► device
//!   shard ◄─ LogDurable{batch} ──────────────┘      (everything queued during one sync is the next group)
//!   shard ── LogRelease{shard, keep_from} ───► whole old files go      LogCarry{below} ──► shard
//! ```
//! Invariants: a batch is acknowledged only when the log says durable; after a failure nothing is ever acknowledged again.
//! What it deliberately does not do: look into records. Source: DTranx §3.3, §3.4.

use std::collections::VecDeque;

use timestone_seda::{Context, Stage, StageId};
use timestone_types::{ShardId, Timestamp};
use timestone_wal::{BatchNumber, Log, LogEvent, WalError};

use crate::event::{Event, LogAppend};

/// Owns one log and answers the shards of its thread.
pub(crate) struct LogStage {
    name: String,
    log: Option<Log>,
    events: Vec<LogEvent>,
    // A batch the log had no room for; everything behind it waits, so that batches of a shard stay in order.
    blocked: bool,
    // All shards of the process: those of this thread append here, others may have batches of an earlier run here.
    shards: Vec<(ShardId, StageId)>,
    gauges: std::sync::Arc<crate::gauges::LogGauges>,
    unsent: VecDeque<(StageId, Event)>,
    // Logs of threads that an earlier run had; they are only emptied.
    adopted: Vec<Log>,
    // Files reclaimed when the shards were last told what is retained.
    told: Option<u64>,
}

impl LogStage {
    pub(crate) fn new(
        thread: usize,
        log: Log,
        shards: Vec<(ShardId, StageId)>,
        gauges: std::sync::Arc<crate::gauges::LogGauges>,
    ) -> Self {
        Self {
            name: format!("log-{thread}"),
            log: Some(log),
            events: Vec::new(),
            blocked: false,
            shards,
            gauges,
            unsent: VecDeque::new(),
            adopted: Vec::new(),
            told: None,
        }
    }

    /// Takes over a log that nobody appends to any more; its files go when no shard needs them.
    pub(crate) fn adopt(&mut self, log: Log) {
        self.adopted.push(log);
    }

    /// Tells the shards what the logs of this stage can still hand out at a recovery, when that has changed.
    fn tell_retained(&mut self, ctx: &mut Context<'_, Event>) {
        let logs = || self.log.iter().chain(&self.adopted);
        let reclaimed = logs().map(|log| log.stats().reclaimed).sum();
        if self.told == Some(reclaimed) {
            return;
        }
        self.told = Some(reclaimed);
        for index in 0..self.shards.len() {
            let (shard, stage) = self.shards[index];
            let oldest = self.log.iter().chain(&self.adopted).filter_map(|log| log.retained_from(shard)).min();
            let from = oldest.unwrap_or(BatchNumber::MAX);
            self.send(ctx, stage, Event::LogRetained { log: ctx.stage(), from });
        }
    }

    fn stage_of(&self, shard: ShardId) -> Option<StageId> {
        self.shards.iter().find(|(id, _)| *id == shard).map(|(_, stage)| *stage)
    }

    fn report(&mut self, ctx: &mut Context<'_, Event>) {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match event {
                LogEvent::Durable { shard, batch } => self.tell(ctx, shard, Event::LogDurable { batch }),
                LogEvent::PleaseCarry { shard, below } => self.tell(ctx, shard, Event::LogCarry { below }),
                LogEvent::Degraded(error) => {
                    tracing::warn!(%error, "the log cannot make its next file; it goes on in the current one")
                }
                LogEvent::Failed(error) => {
                    tracing::error!(%error, "the log failed: no write is acknowledged any more; restart the server when the cause is removed");
                    for (_, stage) in self.shards.clone() {
                        self.send(ctx, stage, Event::LogFailed);
                    }
                }
            }
        }
        self.events = events;
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
        let Some(log) = &mut self.log else { return events.clear() };
        self.blocked = false;
        while let Some(event) = events.pop_front() {
            match event {
                Event::LogAppend(append) => match log.append_batch(append.shard, append.batch, &append.bytes) {
                    Ok(()) => ctx.give_buffer(append.bytes),
                    Err(error) if error.retryable() => {
                        events.push_front(Event::LogAppend(append));
                        self.blocked = true;
                        break;
                    }
                    Err(error) => refused(ctx, &error, append),
                },
                Event::LogRelease { shard, keep_from } => {
                    log.release(shard, keep_from);
                    self.adopted.iter_mut().for_each(|log| log.release(shard, keep_from));
                }
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
        self.report(ctx);
        self.tell_retained(ctx);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.log.as_ref().and_then(Log::next_deadline)
    }

    fn wake_fd(&self) -> Option<std::os::fd::RawFd> {
        self.log.as_ref().and_then(Log::wake_fd)
    }

    fn drained(&self) -> bool {
        !self.blocked && self.unsent.is_empty() && self.log.as_ref().is_none_or(Log::is_idle)
    }
}

/// A batch that can never be written: the shard never hears "durable" for it, so none of its answers leave.
fn refused(ctx: &mut Context<'_, Event>, error: &WalError, append: LogAppend) {
    tracing::error!(%error, shard = %append.shard, "the log refused a batch for good");
    ctx.give_buffer(append.bytes);
}
