//! What a store answers when it cannot or will not.

use std::sync::Arc;

use timestone_flash::FlashError;
use timestone_types::{KeyspaceId, Timestamp, Version};

/// Any failure of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing more can be reclaimed: what lives fills the device. Reads and deletes go on.
    #[error(
        "the store is full: {live_blocks} of {blocks} blocks hold live data; {}", way_out(growth.as_deref())
    )]
    DeviceFull {
        /// Blocks in use.
        live_blocks: u32,
        /// Blocks of the device.
        blocks: u32,
        /// Why the device could not grow when it was asked to; `None` where its capacity is
        /// reached.
        growth: Option<Arc<str>>,
    },
    /// The memory of a store that keeps everything there is used up. Reads and deletes go on.
    #[error(
        "the memory for keyspaces in dram is used up ({used_bytes} of {limit_bytes} bytes); delete \
         something or restart the server with a larger --dram"
    )]
    MemoryFull {
        /// Bytes in use.
        used_bytes: u64,
        /// The bound.
        limit_bytes: u64,
    },
    /// Space is being reclaimed or staged values are being written; the same put will succeed soon.
    #[error("the store is busy reclaiming or writing; try again in a moment")]
    Busy,
    /// The key is longer than keys may be.
    #[error("the key of {bytes} bytes is too long; keys may have {limit}")]
    KeyTooLong {
        /// Its length.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// The value is longer than values may be (on this device: small erase blocks lower the bound).
    #[error("the value of {bytes} bytes is too large; values may have {limit} on this device")]
    ValueTooLarge {
        /// Its length.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// [`Version::ZERO`], or a timestamp at the end of time, cannot be written.
    #[error(
        "version {0} cannot be written; versions lie after the beginning and before the end of time"
    )]
    BadVersion(Version),
    /// The read lies below the watermark: versions that it needs may be gone.
    #[error("the read at {at} lies below the watermark {watermark}; read again at a later time")]
    TooOld {
        /// The time asked for.
        at: Timestamp,
        /// The watermark.
        watermark: Timestamp,
    },
    /// A page or record that the index names does not check out: its bytes were damaged on the
    /// device.
    #[error(
        "page {page} of the store is damaged ({reason}); restore the shard from a replica or a \
         backup"
    )]
    Corrupt {
        /// The page.
        page: u32,
        /// What does not check out.
        reason: &'static str,
    },
    /// What is stored cannot be copied as a whole: pages were not read at the start.
    #[error(
        "{pages} pages could not be read at the start, and what lies there is not known; start again, \
         and if they stay, see `timestone data unreadable`"
    )]
    Unread {
        /// How many pages.
        pages: usize,
    },
    /// The device holds another store's pages.
    #[error(
        "the device belongs to store {found:#x}, not to {expected:#x}; check the data directory"
    )]
    ForeignStore {
        /// The identity found on the device.
        found: u64,
        /// The identity expected.
        expected: u64,
    },
    /// The device was written by another format version.
    #[error("the device holds pages of format {found}; this version reads format {expected}")]
    Format {
        /// The version found.
        found: u16,
        /// The version that this code reads and writes.
        expected: u16,
    },
    /// Keys with their index on flash were put by an earlier version, whose chains this one does not follow.
    #[error(
        "the index on flash was written by an earlier version of Timestone, whose chains of records this \
         version does not read; dump its keyspaces with that version, and load them with this one"
    )]
    EarlierChains,
    /// The device may grow beyond what an index entry can name.
    #[error(
        "the device may have {pages} pages, and a store can use {limit}; lower the capacity or use \
         more shards"
    )]
    DeviceTooLarge {
        /// Pages that the device may grow to.
        pages: u64,
        /// The bound.
        limit: u64,
    },
    /// A range of a keyspace was asked for whose keys are not in order.
    #[error(
        "keyspace {0} keeps no order of its keys; create the keyspace with --index ordered to read \
         ranges of it"
    )]
    NotOrdered(KeyspaceId),
    /// The device of the keyspaces with their index on flash cannot be used: the text says which
    /// file that is, why, and what to do. Tried again after a while.
    #[error("{0}")]
    NoDevice(Arc<str>),
    /// The store is shutting down and takes no more writes.
    #[error("the store is shutting down; writes are no longer accepted")]
    ShuttingDown,
    /// The device failed.
    #[error(transparent)]
    Flash(#[from] FlashError),
}

/// What makes room in a full store.
fn way_out(growth: Option<&str>) -> String {
    match growth {
        Some(cause) => format!("{cause}; delete something, or free space on the disk"),
        None => "delete something or raise the capacity".to_owned(),
    }
}

impl StoreError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::DeviceFull { .. } | Self::MemoryFull { .. } | Self::NoDevice(_) | Self::Busy => {
                true
            }
            Self::Flash(error) => error.retryable(),
            _ => false,
        }
    }
}
