//! What the two layers count, apart and together. Ratios are in thousandths.

use timestone_flash::{DeviceStats, PAGE_BYTES};

use crate::ftl::FtlStats;
use crate::mftl::MftlStats;

/// Sizes of both layers, and counters since their opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VftlStats {
    /// The upper layer; its device is the lower one.
    pub store: MftlStats,
    /// The lower layer.
    pub ftl: FtlStats,
    /// The device.
    pub device: DeviceStats,
}

impl VftlStats {
    /// Bytes that the upper layer has programmed for one that was put.
    #[must_use]
    pub fn store_write_amplification(&self) -> u64 {
        self.store.write_amplification()
    }

    /// Bytes that both layers have programmed together for one that was put.
    #[must_use]
    pub fn write_amplification(&self) -> u64 {
        let pages = self.ftl.host_pages + self.ftl.moved_pages + self.ftl.journal_pages;
        per(pages * PAGE_BYTES as u64, self.store.writes.put_bytes)
    }

    /// Bytes of memory of index and map together for one key.
    #[must_use]
    pub fn index_bytes_per_key(&self) -> u64 {
        per(self.store.index.bytes + self.ftl.map_bytes, self.store.index.keys)
    }
}

fn per(all: u64, one: u64) -> u64 {
    all.saturating_mul(1000).checked_div(one).unwrap_or(0)
}
