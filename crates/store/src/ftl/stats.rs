//! What the translation layer counts.

use std::sync::{Arc, Mutex, PoisonError};

/// Sizes of a translation layer, and counters since its opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FtlStats {
    /// Pages that the host has programmed.
    pub host_pages: u64,
    /// Pages that collection has moved.
    pub moved_pages: u64,
    /// Pages of the journal.
    pub journal_pages: u64,
    /// Blocks that were erased.
    pub erased_blocks: u64,
    /// Logical pages that are somewhere.
    pub live_pages: u64,
    /// Pages of the device.
    pub pages: u64,
    /// Blocks of the device that are erased and free.
    pub free_blocks: u64,
    /// Blocks of the journal.
    pub journal_blocks: u64,
    /// Memory of the map, both ways.
    pub map_bytes: u64,
}

impl FtlStats {
    /// Pages programmed for one that the host has programmed, in thousandths; 1000 while it has
    /// none.
    #[must_use]
    pub fn write_amplification(&self) -> u64 {
        let all = self.host_pages + self.moved_pages + self.journal_pages;
        (all * 1000).checked_div(self.host_pages).unwrap_or(1000)
    }
}

/// Shows the statistics of a translation layer to whoever has given the layer away. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct FtlMonitor(Arc<Mutex<FtlStats>>);

impl FtlMonitor {
    /// As of the last poll.
    #[must_use]
    pub fn stats(&self) -> FtlStats {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, stats: FtlStats) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stats;
    }
}
