//! The words between an engine and its users: operations, completions, refusals.
//!
//! Everything an operation needs (file, buffers) moves into it and comes back in its completion or
//! refusal, so no memory is shared with the kernel or another thread while its owner could touch
//! it.

use std::io;

use crate::buffer::AlignedBuffer;
use crate::file::IoFile;
use crate::zones::ZoneAction;

/// Chosen by the caller of [`IoEngine::submit`](crate::IoEngine::submit), returned in the
/// completion, never interpreted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct IoToken(pub u64);

/// One operation on a file. Offsets and lengths are in bytes; on a direct file they must be
/// multiples of 4096 ([`ALIGNMENT`](crate::ALIGNMENT)), or the system fails the operation.
#[derive(Debug)]
pub enum IoOp {
    /// Fills `buffer[..length]` from `offset`. The completion says how many bytes there were: fewer
    /// only at the file's end.
    Read {
        /// The file to read.
        file: IoFile,
        /// Where in the file.
        offset: u64,
        /// Where the bytes go.
        buffer: AlignedBuffer,
        /// How many bytes.
        length: usize,
    },
    /// Writes `buffer[..length]` at `offset`, all of it or an error.
    Write {
        /// The file to write.
        file: IoFile,
        /// Where in the file.
        offset: u64,
        /// The bytes.
        buffer: AlignedBuffer,
        /// How many of them.
        length: usize,
    },
    /// Writes whole buffers one after another from `offset`, as one transfer, all of it or an
    /// error. Between 1 and [`MAX_VECTORS`](crate::limits::MAX_VECTORS) of them. The `Vec` comes
    /// back in the completion, for reuse.
    WriteMany {
        /// The file to write.
        file: IoFile,
        /// Where in the file.
        offset: u64,
        /// The bytes, in order.
        buffers: Vec<AlignedBuffer>,
    },
    /// `fdatasync`: writes that had *completed* before this was submitted are durable when it
    /// completes.
    Sync {
        /// The file to sync.
        file: IoFile,
    },
    /// `fallocate`: reserves space (and extends the file). Completes with an error of kind
    /// `StorageFull` when there is none; a file system that cannot reserve extends the file
    /// instead.
    Allocate {
        /// The file to extend.
        file: IoFile,
        /// Start of the range.
        offset: u64,
        /// Its length.
        length: u64,
    },
    /// Does something to the zones of a zoned block device.
    Zone {
        /// The device.
        file: IoFile,
        /// What.
        action: ZoneAction,
        /// Where the first zone begins.
        offset: u64,
        /// Bytes up to the end of the last one.
        length: u64,
    },
}

impl IoOp {
    /// The file the operation is about.
    #[must_use]
    pub fn file(&self) -> &IoFile {
        match self {
            Self::Read { file, .. }
            | Self::Write { file, .. }
            | Self::WriteMany { file, .. }
            | Self::Sync { file }
            | Self::Allocate { file, .. }
            | Self::Zone { file, .. } => file,
        }
    }

    /// Bytes that a complete transfer moves.
    pub(crate) fn transfer_bytes(&self) -> usize {
        match self {
            Self::Read { length, .. } | Self::Write { length, .. } => *length,
            Self::WriteMany { buffers, .. } => buffers.iter().map(|buffer| buffer.len()).sum(),
            Self::Sync { .. } | Self::Allocate { .. } | Self::Zone { .. } => 0,
        }
    }

    /// Takes the operation apart: the buffers go back to their owner.
    pub(crate) fn into_completion(self, token: IoToken, result: io::Result<usize>) -> IoCompletion {
        let (buffer, buffers) = match self {
            Self::Read { buffer, .. } | Self::Write { buffer, .. } => (Some(buffer), Vec::new()),
            Self::WriteMany { buffers, .. } => (None, buffers),
            Self::Sync { .. } | Self::Allocate { .. } | Self::Zone { .. } => (None, Vec::new()),
        };
        IoCompletion { token, result, buffer, buffers }
    }
}

/// What came of an operation.
#[derive(Debug)]
pub struct IoCompletion {
    /// The token it was submitted under.
    pub token: IoToken,
    /// Bytes transferred (0 for `Sync`, `Allocate` and `Zone`), or the system's error.
    pub result: io::Result<usize>,
    /// The buffer of a `Read` or `Write`.
    pub buffer: Option<AlignedBuffer>,
    /// The buffers of a `WriteMany`; empty for everything else.
    pub buffers: Vec<AlignedBuffer>,
}

/// Why an operation was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusedReason {
    /// As many operations are in flight as the engine's depth allows: poll, then try again.
    QueueFull,
    /// Lengths and buffers do not fit together, or exceed the bounds of one operation: a bug of the
    /// caller.
    Malformed,
}

/// An operation that was not accepted, given back whole.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub reason: RefusedReason,
    /// The token it came with.
    pub token: IoToken,
    /// The operation.
    pub op: IoOp,
}
