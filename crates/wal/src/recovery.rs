//! Reads the log back after a restart.

use std::path::Path;

use timestone_types::{ShardId, Timestamp};

use crate::{BatchNumber, DeviceKind, Log, LogConfig, RecoveryReport, WalError};

/// One record of one whole batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveredRecord<'a> {
    /// The shard that wrote it.
    pub shard: ShardId,
    /// The batch that it is part of.
    pub batch: BatchNumber,
    /// Its bytes, for [`LogRecord::decode`](crate::LogRecord::decode).
    pub bytes: &'a [u8],
}

/// A log that is being read back, record by record.
#[derive(Debug)]
pub struct Recovery {
    report: RecoveryReport,
}

impl Recovery {
    pub(crate) fn open(_dir: &Path, config: LogConfig) -> Result<Self, WalError> {
        config.validate()?;
        match config.device {
            DeviceKind::None => Ok(Self { report: RecoveryReport::default() }),
            DeviceKind::Ssd | DeviceKind::Pmem => Err(WalError::Unsupported { what: "this log device" }),
        }
    }

    /// The next record in file order; `None` at the end.
    ///
    /// # Errors
    /// [`WalError::Corrupt`] and others; recovery is over then, and nothing on disk was changed.
    pub fn next_record(&mut self) -> Result<Option<RecoveredRecord<'_>>, WalError> {
        Ok(None)
    }

    /// What was found so far.
    #[must_use]
    pub fn report(&self) -> RecoveryReport {
        self.report
    }

    /// Reads to the end, starts a new file, and opens the log for appending. Blocks.
    ///
    /// # Errors
    /// As [`Recovery::next_record`], or the new file could not be made.
    pub fn finish(self, now: Timestamp) -> Result<Log, WalError> {
        let _ = now;
        Ok(Log::new())
    }
}
