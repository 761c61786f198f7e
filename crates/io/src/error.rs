//! What can go wrong below everything else, with the file's name in the sentence.

use std::io;
use std::path::PathBuf;

/// An I/O failure that happened outside of an operation (operations carry their own [`io::Error`]
/// in their completion).
#[derive(Debug, thiserror::Error)]
pub enum IoError {
    /// The kernel refused io_uring, or lacks an operation we need, and the configuration insisted
    /// on it.
    #[error("io_uring is not usable here ({reason}); use engine = \"auto\" or \"threads\"")]
    UringUnavailable {
        /// What the probe found.
        reason: String,
    },
    /// A value of the configuration is out of its bounds.
    #[error("{what} must be between {low} and {high}, not {value}")]
    OutOfBounds {
        /// The setting's name.
        what: &'static str,
        /// What was asked for.
        value: u64,
        /// Lowest accepted value.
        low: u64,
        /// Highest accepted value.
        high: u64,
    },
    /// The file system has no room left for what had to be preallocated.
    #[error("no space left to preallocate {} ({bytes} bytes); free some space or lower the capacity", path.display())]
    NoSpace {
        /// The file that was to grow.
        path: PathBuf,
        /// How many bytes were asked for.
        bytes: u64,
    },
    /// A call on a file failed.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried, as a verb ("open", "sync").
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A call that is not about one file failed (rings, threads, pollers).
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

impl IoError {
    /// Whether the same call may succeed later without anybody changing a configuration.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::NoSpace { .. } => true,
            Self::UringUnavailable { .. } | Self::OutOfBounds { .. } => false,
            Self::File { source, .. } | Self::System { source, .. } => {
                matches!(source.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
            }
        }
    }
}
