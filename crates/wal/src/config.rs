//! How a log is set up, what it reports, and the names and numbers it speaks in.

use core::fmt;
use std::sync::Arc;

use timestone_types::{Epoch, ShardId};

use crate::device::{FileName, FileRegistry};
use crate::{WalError, limits};

/// Counts the batches of one shard; only rises. Gaps are allowed.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BatchNumber(u64);

impl BatchNumber {
    /// Before every batch.
    pub const ZERO: Self = Self(0);
    /// After every batch; releasing up to it forgets a shard.
    pub const MAX: Self = Self(u64::MAX);

    /// Wraps a raw number.
    #[must_use]
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// The raw number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number after this one; [`BatchNumber::MAX`] stays where it is.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for BatchNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Numbers the records of one shard, from 1. Replicas will see by it which ones they lack; it says
/// nothing about the order of execution.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecordNumber(u64);

impl RecordNumber {
    /// The first record of a shard.
    pub const FIRST: Self = Self(1);

    /// Wraps a raw number.
    #[must_use]
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// The raw number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number `count` records later.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

impl fmt::Display for RecordNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Which batch it is, and its place among everything that its shard wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHead {
    /// The shard that wrote it.
    pub shard: ShardId,
    /// Its number among the shard's batches.
    pub batch: BatchNumber,
    /// The shard's epoch when it was written.
    pub epoch: Epoch,
    /// The number of its first record.
    pub first: RecordNumber,
}

/// Where the log keeps its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeviceKind {
    /// Preallocated files, written around the page cache and synced (the default).
    #[default]
    Ssd,
    /// Nowhere: batches count as durable at once, and a crash loses them. The owner must warn.
    None,
    /// Persistent memory; refused with [`WalError::Unsupported`].
    Pmem,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ssd => "ssd",
            Self::None => "none",
            Self::Pmem => "pmem",
        })
    }
}

/// How a log is set up.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Where the bytes go.
    pub device: DeviceKind,
    /// Size of each file in bytes; a multiple of 4096 and at least two blocks. Applies to files
    /// made from now on.
    pub file_bytes: u64,
    /// Size of the largest block in bytes, header included; a multiple of 4096.
    pub block_bytes: usize,
    /// Bytes that may wait to become durable before `append_batch` answers [`WalError::Busy`].
    pub queue_bytes: usize,
    /// With more closed files than this, shards that hold the oldest one are asked to carry records
    /// forward.
    pub copy_forward_after_files: usize,
    /// Who is told which files the log must hold; `None`: nobody.
    pub registry: Option<Arc<dyn FileRegistry>>,
    /// Files that are known to be gone for ever. Recovery goes on behind them where it would
    /// otherwise report damage.
    pub lost: Vec<FileName>,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            device: DeviceKind::default(),
            file_bytes: limits::DEFAULT_FILE_BYTES,
            block_bytes: limits::DEFAULT_BLOCK_BYTES,
            queue_bytes: limits::DEFAULT_QUEUE_BYTES,
            copy_forward_after_files: limits::DEFAULT_COPY_FORWARD_AFTER_FILES,
            registry: None,
            lost: Vec::new(),
        }
    }
}

impl LogConfig {
    pub(crate) fn validate(&self) -> Result<(), WalError> {
        let sector = limits::SECTOR_BYTES;
        let wrong = |detail: String| Err(WalError::Config { detail });
        if self.block_bytes < sector
            || self.block_bytes > limits::MAX_BLOCK_BYTES
            || !self.block_bytes.is_multiple_of(sector)
        {
            return wrong(format!(
                "block_bytes is {}; it must be a multiple of {sector} between {sector} and {}",
                self.block_bytes,
                limits::MAX_BLOCK_BYTES
            ));
        }
        let smallest = limits::MIN_FILE_BYTES.max(2 * self.block_bytes as u64);
        if self.file_bytes < smallest
            || self.file_bytes > limits::MAX_FILE_BYTES
            || !self.file_bytes.is_multiple_of(sector as u64)
        {
            return wrong(format!(
                "file_bytes is {}; it must be a multiple of {sector} between {smallest} (two \
                 blocks) and {}",
                self.file_bytes,
                limits::MAX_FILE_BYTES
            ));
        }
        if self.queue_bytes == 0 {
            return wrong("queue_bytes is 0; it must be at least 1".into());
        }
        Ok(())
    }
}

/// What the log tells its owner.
#[derive(Clone, Debug)]
pub enum LogEvent {
    /// All batches of the shard up to and including this one survive a crash.
    Durable {
        /// The shard.
        shard: ShardId,
        /// Its latest durable batch.
        batch: BatchNumber,
    },
    /// A write failed: nothing is acknowledged any more, and every append is refused. Told once.
    Failed(WalError),
    /// The next file could not be made. The log goes on while the current file has room, and tries
    /// again by itself. Told once each time it begins.
    Degraded(WalError),
    /// An old file is held up by few batches: the shard should append what it still needs of its
    /// batches below `below` again, in a new batch, and release them when that is durable.
    CopyForwardWanted {
        /// The shard that holds the file.
        shard: ShardId,
        /// Its batches below this one hold it.
        below: BatchNumber,
    },
}

/// What the log did and holds, since it was opened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LogStats {
    /// Batches accepted.
    pub batches: u64,
    /// Bytes of batches accepted.
    pub batch_bytes: u64,
    /// Blocks written.
    pub blocks: u64,
    /// Bytes written, headers and padding included.
    pub written_bytes: u64,
    /// Groups made durable, each by one wait for the device.
    pub groups: u64,
    /// Groups by the number of batches that ended in them: index i counts groups of 2^i to 2^(i+1)
    /// − 1; the last, and more.
    pub group_sizes: [u64; 12],
    /// Rotations to another file.
    pub rotations: u64,
    /// Files reclaimed, reused or removed.
    pub reclaimed: u64,
    /// Files that hold batches now, the current one included.
    pub files: u64,
    /// Bytes of the files on disk now, spares included.
    pub space_bytes: u64,
    /// Bytes accepted and not durable yet.
    pub queued_bytes: u64,
}

/// What recovery found.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct RecoveryReport {
    /// Files that held blocks.
    pub files: u64,
    /// Blocks read.
    pub blocks: u64,
    /// Batches handed out.
    pub batches: u64,
    /// Records handed out.
    pub records: u64,
    /// Bytes of blocks read.
    pub bytes: u64,
    /// Batches whose end was never written; they were never acknowledged.
    pub incomplete_batches: u64,
}
