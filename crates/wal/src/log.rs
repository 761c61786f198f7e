//! The log that is open for appending: the face of the crate.
//!
//! Behind it is either the manager of files, or nothing at all (device `none`: durability is what
//! other replicas remember).

use core::fmt;
use core::time::Duration;
use std::os::fd::RawFd;
use std::path::Path;

use timestone_types::{ShardId, Timestamp};

use crate::device::LogDevice;
use crate::limits::MAX_BATCH_BYTES;
use crate::manager::FileLog;
use crate::record::BatchRecords;
use crate::{BatchHead, BatchNumber, LogConfig, LogEvent, LogRecovery, LogStats, WalError};

/// A log that is open for appending. Owned by one thread at a time; may be moved between threads.
///
/// ```
/// use timestone_types::{Epoch, ShardId, Timestamp};
/// use timestone_wal::{BatchHead, BatchNumber, DeviceKind, Log, LogConfig, LogEvent, LogRecord, RecordNumber};
///
/// let config = LogConfig { device: DeviceKind::None, ..LogConfig::default() };
/// let now = Timestamp::from_nanos(1);
/// let mut log = Log::open("unused".as_ref(), config)?.finish(now)?;
/// let mut batch = Vec::new();
/// LogRecord::ReadBound { bound: now, watermark: now }.encode(&mut batch);
/// let (shard, number) = (ShardId::new(1), BatchNumber::new(1));
/// log.append_batch(BatchHead { shard, batch: number, epoch: Epoch::new(1), first: RecordNumber::FIRST }, &batch)?;
/// let mut events = Vec::new();
/// log.pump(now, &mut events);
/// assert!(matches!(events[..], [LogEvent::Durable { .. }]));
/// # Ok::<(), timestone_wal::WalError>(())
/// ```
pub struct Log {
    store: Store,
}

/// Where batches go.
pub(crate) enum Store {
    /// To files.
    Files(Box<FileLog>),
    /// Nowhere: only the last batch of each shard that was not reported yet is remembered.
    Nothing {
        /// The last batch of each shard, and whether it is to be reported.
        accepted: Vec<(ShardId, BatchNumber, bool)>,
        stats: LogStats,
    },
}

impl Store {
    pub(crate) fn nothing() -> Self {
        Self::Nothing { accepted: Vec::new(), stats: LogStats::default() }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Log {
    /// Opens the log in `directory` (made when it is missing; unused by device `none`) for
    /// recovery, which must be finished before anything can be appended. Blocks.
    ///
    /// # Errors
    /// A configuration that cannot work, a directory that cannot be read, another format version, a
    /// device that is not built.
    pub fn open(directory: &Path, config: LogConfig) -> Result<LogRecovery, WalError> {
        LogRecovery::open(directory, config)
    }

    /// As [`Log::open`], on a given device whatever `config.device` says: for tests and
    /// simulations.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn open_on(device: Box<dyn LogDevice>, config: LogConfig) -> Result<LogRecovery, WalError> {
        LogRecovery::with_device(device, config)
    }

    pub(crate) const fn new(store: Store) -> Self {
        Self { store }
    }

    /// Queues a batch: a run of length-prefixed records
    /// ([`LogRecord::encode`](crate::LogRecord::encode)). It is copied; [`Log::pump`] sends it, and
    /// reports when it is durable.
    ///
    /// # Errors
    /// To be tried again later: [`WalError::Busy`], [`WalError::NoSpace`]. Final:
    /// [`WalError::BatchTooLarge`], [`WalError::Poisoned`]. Nothing was queued then.
    ///
    /// # Panics
    /// When the shard's numbers of batches or records do not rise, or the bytes are no run of
    /// records: bugs of the caller.
    pub fn append_batch(&mut self, head: BatchHead, bytes: &[u8]) -> Result<(), WalError> {
        let BatchHead { shard, batch, .. } = head;
        let mut records = 0;
        for record in BatchRecords::new(bytes) {
            assert!(record.is_ok(), "batch {batch} of shard {shard} is no run of records");
            records += 1;
        }
        match &mut self.store {
            Store::Files(log) => log.append(head, records, bytes),
            Store::Nothing { accepted, stats } => {
                if bytes.len() > MAX_BATCH_BYTES {
                    return Err(WalError::BatchTooLarge {
                        bytes: bytes.len(),
                        limit: MAX_BATCH_BYTES,
                    });
                }
                match accepted.iter_mut().find(|known| known.0 == shard) {
                    Some(known) => {
                        assert!(
                            batch > known.1,
                            "batches of shard {shard} rise: {batch} came after {}",
                            known.1
                        );
                        *known = (shard, batch, true);
                    }
                    None => accepted.push((shard, batch, true)),
                }
                stats.batches += 1;
                stats.batch_bytes += bytes.len() as u64;
                Ok(())
            }
        }
    }

    /// Sends what is queued, when nothing is in flight, and reports what happened. Never blocks. To
    /// be called once a turn, after the turn's batches were appended, and whenever [`Log::wake_fd`]
    /// or [`Log::next_deadline`] say so.
    pub fn pump(&mut self, now: Timestamp, events: &mut Vec<LogEvent>) {
        match &mut self.store {
            Store::Files(log) => log.pump(now, events),
            Store::Nothing { accepted, stats } => {
                for (shard, batch, unreported) in accepted.iter_mut().filter(|known| known.2) {
                    *unreported = false;
                    events.push(LogEvent::Durable { shard: *shard, batch: *batch });
                    stats.groups += 1;
                }
            }
        }
    }

    /// The shard needs none of its batches below `keep_from` any more ([`BatchNumber::MAX`] forgets
    /// a shard that moved away). Old files that nobody needs are reclaimed, whole and oldest first,
    /// by [`Log::pump`]. Until then recovery may still hand out released batches: see
    /// [`Log::retained_from`].
    pub fn release(&mut self, shard: ShardId, keep_from: BatchNumber) {
        if let Store::Files(log) = &mut self.store {
            log.release(shard, keep_from);
        }
    }

    /// The oldest batch of the shard that recovery could still hand out; `None` when there is none.
    /// A store must not drop the tombstone of anything at or above it.
    #[must_use]
    pub fn retained_from(&self, shard: ShardId) -> Option<BatchNumber> {
        match &self.store {
            Store::Files(log) => log.retained_from(shard),
            Store::Nothing { .. } => None,
        }
    }

    /// When `pump` is to be called again, even if nothing happens before; `None` when only events
    /// matter.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        match &self.store {
            Store::Files(log) => log.next_deadline(),
            Store::Nothing { .. } => None,
        }
    }

    /// Becomes readable, a new edge each time, when a write completes; `None` for devices that need
    /// no waking.
    #[must_use]
    pub fn wake_fd(&self) -> Option<RawFd> {
        match &self.store {
            Store::Files(log) => log.wake_fd(),
            Store::Nothing { .. } => None,
        }
    }

    /// Blocks until something may have happened; for shutdown, tests and tools.
    pub fn wait(&mut self, timeout: Duration) {
        if let Store::Files(log) = &mut self.store {
            log.wait(timeout);
        }
    }

    /// Whether a file is being made, renamed or removed: to be looked at again soon.
    #[must_use]
    pub fn is_changing(&self) -> bool {
        matches!(&self.store, Store::Files(log) if log.is_changing())
    }

    /// While the next file cannot be made: why, and how many bytes may be admitted before that
    /// changes. What is left beyond them is a reserve, for what was admitted already and for what
    /// makes room.
    #[must_use]
    pub fn shortage(&self) -> Option<(&str, u64)> {
        match &self.store {
            Store::Files(log) => log.shortage(),
            Store::Nothing { .. } => None,
        }
    }

    /// Whether everything accepted is durable and reported.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        match &self.store {
            Store::Files(log) => log.is_idle(),
            Store::Nothing { accepted, .. } => accepted.iter().all(|known| !known.2),
        }
    }

    /// Makes durable what was accepted, reports it, and closes the log. Blocks.
    ///
    /// # Errors
    /// When the log failed, fails now, or has no room for what it accepted.
    pub fn shutdown(mut self, now: Timestamp, events: &mut Vec<LogEvent>) -> Result<(), WalError> {
        match &mut self.store {
            Store::Files(log) => log.drain(now, events),
            Store::Nothing { .. } => {
                self.pump(now, events);
                Ok(())
            }
        }
    }

    /// Counters and sizes.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        match &self.store {
            Store::Files(log) => log.stats(),
            Store::Nothing { stats, .. } => *stats,
        }
    }
}
