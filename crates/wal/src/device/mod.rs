//! The lowest layer: where log files live, as named rows of bytes that are written in groups, each
//! durable when it completes (DTranx §3.3.1, "NVM library").
//!
//! A device knows nothing of blocks. Calls that serve recovery block; everything else is begun by a
//! call and ends in a [`DeviceEvent`]. At most one write is in flight, and at most one of `prepare`
//! and `remove`: the manager keeps to that.
//!
//! Invariant: `Written { Ok }` means that the bytes survive the loss of power. After an error
//! nothing is known about them.

mod fill;
pub mod memory;
mod ssd;

use core::fmt;
use core::time::Duration;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use timestone_io::AlignedBuffer;
use timestone_types::Timestamp;

use crate::WalError;

pub use ssd::SsdDevice;

/// The name of a log file: when it was created. Names only rise, so the smallest is the oldest
/// (DTranx §3.3.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileName(Timestamp);

impl FileName {
    /// The file created at this time.
    #[must_use]
    pub const fn new(created: Timestamp) -> Self {
        Self(created)
    }

    /// When the file was created.
    #[must_use]
    pub const fn created(self) -> Timestamp {
        self.0
    }

    /// Reads what `Display` wrote; `None` for names of other files.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_suffix(".log")?;
        let valid = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
        if valid {
            digits.parse().ok().map(|nanos| Self(Timestamp::from_nanos(nanos)))
        } else {
            None
        }
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}.log", self.0.as_nanos())
    }
}

/// A file that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileInfo {
    /// Its name.
    pub name: FileName,
    /// Its size in bytes.
    pub bytes: u64,
}

/// What a file is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileSource {
    /// New space of this many bytes, written with zeros.
    Fresh {
        /// Its size.
        bytes: u64,
    },
    /// An older file, which gets the new name and keeps its bytes.
    Reused(FileName),
}

/// What came of something that was begun.
#[derive(Debug)]
pub enum DeviceEvent {
    /// The write ended; durable when `Ok`.
    Written {
        /// The buffers, given back.
        buffers: Vec<AlignedBuffer>,
        /// How it ended.
        result: Result<(), WalError>,
    },
    /// The file is there under its name, durably, or it could not be made. After a failed reuse the
    /// older file is there under one of the two names; a fresh file that failed may be there, blank.
    Prepared {
        /// The new name.
        name: FileName,
        /// How it ended.
        result: Result<(), WalError>,
    },
    /// The file is gone, durably, or could not be removed.
    Removed {
        /// The file.
        name: FileName,
        /// How it ended.
        result: Result<(), WalError>,
    },
}

/// Who remembers which files a log must hold, so that one that is gone is noticed at the next
/// start.
///
/// A file is named after it is there and before its first block is written. It is no longer named
/// before it is removed or renamed. So whatever is named exists at every moment. A file that is not
/// named may exist: a crash came between the two steps.
pub trait FileRegistry: Send + Sync + fmt::Debug {
    /// The file is there, durably. Blocks until this is recorded durably.
    ///
    /// # Errors
    /// When it cannot be recorded, at least not durably; the file must not be used then, nor go
    /// before [`Self::removing`] was told.
    fn created(&self, file: FileName) -> io::Result<()>;

    /// The file is about to be removed or renamed. Blocks until this is recorded durably.
    ///
    /// # Errors
    /// When it cannot be recorded; the file must stay then.
    fn removing(&self, file: FileName) -> io::Result<()>;
}

/// A place for log files.
pub trait LogDevice: Send {
    /// All log files, oldest first. Blocks.
    ///
    /// # Errors
    /// When the directory cannot be read.
    fn list(&mut self) -> Result<Vec<FileInfo>, WalError>;

    /// Reads from `offset` on; fewer bytes than asked for only at the end of the file. Blocks.
    ///
    /// # Errors
    /// When the file cannot be read.
    fn read(&mut self, file: FileName, offset: u64, into: &mut [u8]) -> Result<usize, WalError>;

    /// Tells `registry` of every file that is made or removed from now on.
    fn register(&mut self, registry: Arc<dyn FileRegistry>);

    /// Begins to make a file in the background.
    fn prepare(&mut self, name: FileName, source: FileSource);

    /// Begins to remove a file in the background. A file that is not there counts as removed.
    fn remove(&mut self, file: FileName);

    /// Begins to write the buffers one after another and to make them durable. Offset and lengths
    /// are multiples of 4096, and the range lies within the file.
    fn write(&mut self, file: FileName, offset: u64, buffers: Vec<AlignedBuffer>);

    /// Collects what ended. Never blocks.
    fn poll(&mut self, events: &mut Vec<DeviceEvent>);

    /// Blocks until something may have ended.
    fn wait(&mut self, timeout: Duration);

    /// Becomes readable when a write ended; `None` when the device cannot wake.
    fn wake_fd(&self) -> Option<RawFd>;
}
