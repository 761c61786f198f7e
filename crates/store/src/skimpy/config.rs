//! What a store is told when it is opened.

use core::time::Duration;

use timestone_types::HashSeed;

use crate::kit::life::Delays;
use crate::limits;

/// What a [`Skimpy`](super::Skimpy) is told when it is opened.
#[derive(Clone, Copy, Debug)]
pub struct SkimpyConfig {
    /// Identity of the store; a device with another one is refused.
    pub store_id: u64,
    /// The secret of key hashes for a fresh device; a device that was used before keeps its own.
    pub seed: HashSeed,
    /// Keys that are expected: with more of them chains get longer. A device that was used before
    /// keeps its number of buckets.
    pub keys: u64,
    /// Keys of a bucket, at most, when all that are expected are there.
    pub keys_per_bucket: u32,
    /// Keys whose youngest version the translation cache knows, in thousandths of those expected.
    pub translated_thousandths: u32,
    /// Youngest versions of keys that memory knows are kept out of the chains, as long as a quarter of the
    /// translations' places is left for others.
    pub loose: bool,
    /// Bytes of memory for the record cache, all in; zero for none.
    pub cache_bytes: u64,
    /// Bytes that the index, page buffers and what their user charges may take before the record
    /// cache gives way.
    pub beside_bytes: u64,
    /// Bytes of large values that may wait to be written; beyond, puts of large values are answered
    /// with `Busy`.
    pub staged_bytes: u64,
    /// Bytes of large values that may be read for gets at once, besides one.
    pub assembled_bytes: u64,
    /// How long a full page waits for others, at most.
    pub packing_delay: Duration,
    /// How long a partly filled page waits for company, at most.
    pub partial_page_delay: Duration,
    /// Shortest time between two background syncs of the device.
    pub sync_interval: Duration,
    /// Bytes of records between two checkpoints; zero for checkpoints on demand only.
    pub checkpoint_bytes: u64,
    /// Nothing but the device holds what is put.
    pub without_log: bool,
}

impl SkimpyConfig {
    /// Entries of the translation cache.
    pub(super) fn translations(&self) -> usize {
        usize::try_from(self.keys * u64::from(self.translated_thousandths) / 1000)
            .unwrap_or(usize::MAX)
    }

    /// How long pages and syncs wait.
    pub(super) const fn delays(&self) -> Delays {
        Delays {
            packing: self.packing_delay,
            partial_page: self.partial_page_delay,
            sync_interval: self.sync_interval,
        }
    }
}

impl Default for SkimpyConfig {
    fn default() -> Self {
        Self {
            store_id: 0,
            seed: HashSeed(0),
            keys: 1_000_000,
            keys_per_bucket: 3,
            translated_thousandths: 100,
            loose: true,
            cache_bytes: limits::DEFAULT_CACHE_BYTES,
            beside_bytes: limits::DEFAULT_CACHE_BYTES,
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
