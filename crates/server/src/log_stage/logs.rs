//! The logs of one stage: its own, those of earlier runs that are only emptied, and the one that a
//! run without a log makes at its end.

use std::time::Duration;

use timestone_shard::LogAppend;
use timestone_types::{ShardId, Timestamp};
use timestone_wal::{BatchNumber, Log, LogEvent, WalError};

use crate::error::ServerError;
use crate::limits::{EMPTYING_POLL, LAST_LOG_POLL};

/// Makes the log for what a run without one leaves. Blocks, for as long as a small file takes to be
/// made.
pub(crate) type LastLog = Box<dyn FnOnce(Timestamp) -> Result<Log, ServerError> + Send>;

/// See the module.
#[derive(Default)]
pub(super) struct Logs {
    own: Option<Log>,
    /// Logs of threads that an earlier run had; they are only emptied.
    adopted: Vec<Log>,
    /// In a run without a log, until the first shard that ends has something to leave.
    last: Option<LastLog>,
    /// The log was made at the end: nothing wakes the stage for it.
    is_last: bool,
    /// Files reclaimed when the shards were last told what is retained.
    told: Option<u64>,
}

impl Logs {
    /// Has a log from now on.
    pub(super) fn begin(&mut self, log: Log) {
        assert!(self.own.is_none(), "a stage appends to one log");
        self.own = Some(log);
    }

    pub(super) fn adopt(&mut self, log: Log) {
        assert!(self.told.is_none(), "shards were told what the logs hold");
        self.adopted.push(log);
    }

    pub(super) fn makes_last(&mut self, make: LastLog) {
        assert!(self.own.is_none(), "a run with a log has no other one for its end");
        self.last = Some(make);
    }

    /// The first batch of a run without a log has come: it comes to its end.
    pub(super) fn make_last(&mut self, now: Timestamp) -> Result<(), ServerError> {
        let Some(make) = self.last.take() else { return Ok(()) };
        self.is_last = true;
        self.begin(make(now)?);
        Ok(())
    }

    /// Whether the run had no log until its end.
    pub(super) const fn is_last(&self) -> bool {
        self.is_last
    }

    pub(super) fn is_blank(&self) -> bool {
        self.own.is_none() && self.adopted.is_empty()
    }

    /// The log that takes batches.
    pub(super) const fn own(&self) -> Option<&Log> {
        self.own.as_ref()
    }

    fn all(&self) -> impl Iterator<Item = &Log> {
        self.own.iter().chain(&self.adopted)
    }

    pub(super) fn append(&mut self, append: &LogAppend) -> Result<(), WalError> {
        // Shards without a log send nothing before their end.
        let Some(log) = &mut self.own else { return Ok(()) };
        log.append_batch(append.head, &append.bytes)
    }

    /// A shard needs none of its batches below `keep_from` any more.
    pub(super) fn release(&mut self, shard: ShardId, keep_from: BatchNumber) {
        // Whoever has left a run without a log behind lets all go that earlier runs have logged;
        // what it leaves itself is to stay.
        let keeps_own = self.is_last
            && keep_from == BatchNumber::MAX
            && !timestone_types::is_planted!(ReleasedLastLog);
        let own = self.own.iter_mut().filter(|_| !keeps_own);
        own.chain(&mut self.adopted).for_each(|log| log.release(shard, keep_from));
    }

    pub(super) fn pump(&mut self, now: Timestamp, events: &mut Vec<LogEvent>) {
        self.own.iter_mut().chain(&mut self.adopted).for_each(|log| log.pump(now, events));
    }

    /// Whether files have gone since this was last asked.
    pub(super) fn have_reclaimed(&mut self) -> bool {
        let reclaimed = self.all().map(|log| log.stats().reclaimed).sum();
        let before = self.told.replace(reclaimed);
        assert!(before.is_none_or(|before| before <= reclaimed), "files do not come back");
        before != Some(reclaimed)
    }

    /// The oldest batch of a shard that a recovery may be handed.
    pub(super) fn retained_from(&self, shard: ShardId) -> BatchNumber {
        self.all().filter_map(|log| log.retained_from(shard)).min().unwrap_or(BatchNumber::MAX)
    }

    /// How soon to look again at logs of which nothing wakes the stage.
    pub(super) fn poll_interval(&self) -> Option<Duration> {
        if self.is_last {
            return Some(LAST_LOG_POLL);
        }
        self.adopted.iter().any(Log::is_changing).then_some(EMPTYING_POLL)
    }

    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.all().filter_map(Log::next_deadline).min()
    }

    /// Whether nothing that was appended waits.
    pub(super) fn are_idle(&self) -> bool {
        self.own.as_ref().is_none_or(Log::is_idle)
    }
}
