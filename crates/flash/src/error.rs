//! What a device answers when it cannot or will not.

use std::io;
use std::path::PathBuf;

use timestone_io::IoError;

use crate::device::{BlockId, PageId};

/// Any failure of a device.
#[derive(Debug, thiserror::Error)]
pub enum FlashError {
    /// The operation breaks the device's rules: a bug of the caller. Nothing was done.
    #[error("flash misuse: {0}")]
    Misuse(#[from] Misuse),
    /// The medium failed this operation; others may succeed.
    #[error("flash {operation} failed: {source}")]
    Medium {
        /// "read", "program", "erase", "sync" or "grow".
        operation: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// There is no room to grow: the capacity is reached, or the file system is full.
    #[error("the flash device is full: {reason}; free some space or raise the capacity")]
    Full {
        /// Which bound was met.
        reason: String,
    },
    /// An earlier failure (of a sync or of the block table) makes everything written since
    /// doubtful: reads still work, nothing else does until the device is opened again.
    #[error(
        "the flash device stopped accepting writes after an earlier failure ({reason}); restart to \
         recover"
    )]
    Failed {
        /// What had failed.
        reason: &'static str,
    },
    /// The file is not, or no longer, a usable device of this version and shape.
    #[error("cannot use {} as a flash device: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A file could not be opened, created, locked or preallocated.
    #[error(transparent)]
    Io(#[from] IoError),
}

impl FlashError {
    /// The same, for one more who waited for the operation.
    #[must_use]
    pub fn told_again(&self) -> Self {
        let same = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
        match self {
            Self::Misuse(misuse) => Self::Misuse(*misuse),
            Self::Medium { operation, source } => Self::Medium { operation, source: same(source) },
            Self::Full { reason } => Self::Full { reason: reason.clone() },
            Self::Failed { reason } => Self::Failed { reason },
            Self::Unusable { path, reason } => {
                Self::Unusable { path: path.clone(), reason: reason.clone() }
            }
            Self::Io(error) => {
                Self::Medium { operation: "access", source: io::Error::other(error.to_string()) }
            }
        }
    }

    /// Whether the same operation may succeed later.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::Misuse(_) | Self::Failed { .. } | Self::Unusable { .. } => false,
            Self::Medium { .. } | Self::Full { .. } => true,
            Self::Io(error) => error.retryable(),
        }
    }
}

/// The rules that a caller can break.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Misuse {
    /// No such page or block.
    #[error("pages {first} to {last} are not all on the device ({pages} pages)")]
    OutOfRange {
        /// First page asked for.
        first: u64,
        /// Last page asked for.
        last: u64,
        /// Pages of the device.
        pages: u64,
    },
    /// The pages lie in more than one block, or there are none.
    #[error("{pages} pages from page {page} do not lie in one block")]
    NotOneBlock {
        /// First page asked for.
        page: PageId,
        /// How many.
        pages: u32,
    },
    /// The buffer is shorter than the pages, or its length is no multiple of a page.
    #[error("a buffer of {bytes} bytes does not fit {pages} pages")]
    WrongBuffer {
        /// The buffer's length.
        bytes: usize,
        /// The pages it is for.
        pages: u32,
    },
    /// Reading a page that is erased, or whose program has not completed.
    #[error("page {page} is erased or still being programmed")]
    ReadErased {
        /// The first such page.
        page: PageId,
    },
    /// Programming a page that already holds data.
    #[error("page {page} is already programmed; the next of its block is {next}")]
    ProgrammedTwice {
        /// The page asked for.
        page: PageId,
        /// The block's write pointer, as an index in the block.
        next: u32,
    },
    /// Programming a page before those in front of it.
    #[error("page {page} is out of order; the next of its block is {next}")]
    OutOfOrder {
        /// The page asked for.
        page: PageId,
        /// The block's write pointer, as an index in the block.
        next: u32,
    },
    /// Programming a block whose extent the device does not know since it was opened.
    #[error(
        "block {block} has not been observed since the device was opened; observe or erase it first"
    )]
    NotObserved {
        /// The block.
        block: BlockId,
    },
    /// Observing a block whose extent the device knows.
    #[error(
        "block {block} is known to the device; only blocks found at opening can be observed, once"
    )]
    AlreadyKnown {
        /// The block.
        block: BlockId,
    },
    /// The block is being erased.
    #[error("block {block} is being erased")]
    Erasing {
        /// The block.
        block: BlockId,
    },
    /// A program to this block failed; erase it before programming it again.
    #[error("a program of block {block} failed; erase it first")]
    BlockFailed {
        /// The block.
        block: BlockId,
    },
    /// Programming a block that its owner has sealed.
    #[error("block {block} was sealed; erase it before programming it again")]
    Sealed {
        /// The block.
        block: BlockId,
    },
    /// Growing while growing, or by nothing.
    #[error("the device is already growing, or was asked to grow by no blocks")]
    Growing,
}
