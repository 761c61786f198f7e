//! What a store is told when it is opened, and what it reports about that.

use core::time::Duration;

use timestone_types::HashSeed;

use crate::kit::life::Delays;
use crate::limits;

/// What a [`Mftl`](super::Mftl) is told when it is opened.
#[derive(Clone, Copy, Debug)]
pub struct MftlConfig {
    /// Identity of the store (cluster and shard, by the caller's convention); a device with another
    /// one is refused.
    pub store_id: u64,
    /// The secret of key hashes for a fresh device; a device that was used before keeps its own.
    pub seed: HashSeed,
    /// Bytes of memory for the record cache, all in; zero for none.
    pub cache_bytes: u64,
    /// Bytes that the index, page buffers and what their user charges may take before the record
    /// cache gives way.
    pub beside_bytes: u64,
    /// Bytes of pages that may wait for the device; beyond, puts are answered with `Busy`. Between 10
    /// and 64 MiB, whatever is said.
    pub page_buffer_bytes: u64,
    /// Bytes of large values that may wait to be written; beyond, puts of large values are answered
    /// with `Busy`.
    pub staged_bytes: u64,
    /// Bytes of large values that may be read for gets at once, besides one; further ones wait in
    /// the store.
    pub assembled_bytes: u64,
    /// How long a full page waits for others, at most.
    pub packing_delay: Duration,
    /// How long a partly filled page waits for company, at most. Equal to `packing_delay` where no
    /// log makes puts durable.
    pub partial_page_delay: Duration,
    /// Shortest time between two background syncs of the device.
    pub sync_interval: Duration,
    /// Bytes of records between two checkpoints; zero for checkpoints on demand only.
    pub checkpoint_bytes: u64,
    /// Nothing but the device holds what is put: collection keeps what a put supersedes until that
    /// put is durable.
    pub without_log: bool,
}

impl MftlConfig {
    /// How long pages and syncs wait.
    pub(super) const fn delays(&self) -> Delays {
        Delays {
            packing: self.packing_delay,
            partial_page: self.partial_page_delay,
            sync_interval: self.sync_interval,
        }
    }
}

impl Default for MftlConfig {
    fn default() -> Self {
        Self {
            store_id: 0,
            seed: HashSeed(0),
            cache_bytes: limits::DEFAULT_CACHE_BYTES,
            beside_bytes: limits::DEFAULT_CACHE_BYTES,
            page_buffer_bytes: limits::MAX_PAGE_BUFFER_BYTES,
            staged_bytes: limits::MAX_STAGED_BYTES,
            assembled_bytes: limits::MAX_ASSEMBLED_BYTES,
            packing_delay: limits::DEFAULT_PACKING_DELAY,
            partial_page_delay: limits::DEFAULT_PARTIAL_PAGE_DELAY,
            sync_interval: limits::DEFAULT_SYNC_INTERVAL,
            checkpoint_bytes: limits::DEFAULT_CHECKPOINT_BYTES,
            without_log: false,
        }
    }
}

/// What recovery found. The caller, who has a clock, knows how long it took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    /// Number of the checkpoint that was used, if any.
    pub checkpoint: Option<u64>,
    /// Checkpoints that were found damaged or incomplete.
    pub bad_checkpoints: u32,
    /// Blocks that were scanned, wholly or in part.
    pub scanned_blocks: u32,
    /// Bytes read, checkpoint included.
    pub read_bytes: u64,
    /// Records found by the scan.
    pub scanned_records: u64,
    /// Keys in the index afterwards.
    pub keys: u64,
    /// Records whose checksum does not check out; they are never returned.
    pub corrupt_records: u64,
    /// Pages whose header does not check out although pages after them do.
    pub corrupt_pages: u64,
    /// Pages behind the last sound one of their block that hold something unreadable: torn by a
    /// crash, or damaged since. What was torn was never stable, and its log puts it again; of what
    /// was damaged nobody can say more.
    pub unreadable_tails: u64,
    /// Pages that the device did not read; among those above, where something was or may be. No
    /// deletion is forgotten until a start that reads all.
    pub unread_pages: u64,
}

impl RecoveryReport {
    /// Whether something could not be read. A crash leaves such behind in what was not stable yet;
    /// nothing else does but damage.
    #[must_use]
    pub const fn met_damage(&self) -> bool {
        self.corrupt_records > 0
            || self.corrupt_pages > 0
            || self.bad_checkpoints > 0
            || self.unreadable_tails > 0
    }
}
