//! What can go wrong with the log, in sentences; a variant only where a caller acts differently.

use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;

use crate::device::FileName;

/// An error of the log.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WalError {
    /// A device or file system call failed.
    #[error("the log could not {action} {path}: {cause}")]
    Io {
        /// What was being done, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        cause: Arc<std::io::Error>,
    },
    /// A block that must be whole is not.
    #[error(
        "log file {file} is damaged at offset {offset}: {detail}. Nothing was changed. Run \
         `timestone log check` to see which records \
         are readable, then restore the directory from a backup or a replica"
    )]
    Corrupt {
        /// The damaged file.
        file: FileName,
        /// Where in it, in bytes.
        offset: u64,
        /// What is wrong there.
        detail: String,
    },
    /// The files were written by another version of the format.
    #[error(
        "log file {file} has format version {found}, and this program reads version {supported}. \
         Start the version of timestone that \
         wrote it, or restore into a new directory"
    )]
    Version {
        /// The file.
        file: FileName,
        /// Its version.
        found: u16,
        /// The version that this program writes and reads.
        supported: u16,
    },
    /// A sync failed earlier; what reached the disk is unknown, so nothing is acknowledged any
    /// more.
    #[error(
        "the log stopped because a write failed ({cause}). Repair the disk and restart: everything \
         acknowledged before is recovered"
    )]
    Poisoned {
        /// The failure that stopped it.
        cause: String,
    },
    /// The current file is full and the next could not be made.
    #[error(
        "the log has no room left and could not make its next file ({cause}). Free space on the \
         disk; the log goes on by itself"
    )]
    NoSpace {
        /// Why the next file could not be made.
        cause: String,
    },
    /// More is queued than the configured bound.
    #[error(
        "{queued} bytes wait for the log, which is more than its limit of {limit}; try again when \
         some are durable"
    )]
    Busy {
        /// Bytes waiting.
        queued: usize,
        /// The bound.
        limit: usize,
    },
    /// One batch is larger than the log accepts.
    #[error("a batch of {bytes} bytes is larger than the log's limit of {limit}; split it")]
    BatchTooLarge {
        /// The batch's size.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// The configuration cannot work.
    #[error("the log's configuration is wrong: {detail}")]
    Config {
        /// What is wrong, and what would be right.
        detail: String,
    },
    /// What was asked for does not exist in this version.
    #[error("{what} is not built yet; use the log device `ssd` (the default) or `none`")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
    },
    /// A record's bytes do not follow the format.
    #[error("a log record is malformed: {detail}")]
    Record {
        /// What is wrong with it.
        detail: &'static str,
    },
}

impl WalError {
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
        cause: std::io::Error,
    ) -> Self {
        Self::Io { action, path: path.into(), cause: Arc::new(cause) }
    }

    /// Whether the disk cannot do what it was asked, with the sectors that this is about: it is no matter of the file
    /// system, of rights, or of room.
    pub(crate) fn is_of_the_disk(&self) -> bool {
        let Self::Io { cause, .. } = self else { return false };
        // What Linux makes of a failed medium, of a protection error, and of all else.
        let errors = [Errno::NODATA, Errno::ILSEQ, Errno::IO].map(Errno::raw_os_error);
        cause.raw_os_error().is_some_and(|error| errors.contains(&error))
    }

    /// Whether the same request may succeed later without anybody restarting or repairing the log.
    #[must_use]
    pub const fn retryable(&self) -> bool {
        matches!(self, Self::NoSpace { .. } | Self::Busy { .. })
    }
}
