//! Which batches tell of the highest read bound and of the highest watermark: a backup's log keeps
//! them.
//!
//! The last bound need not be the highest one. What the primary records again while a bound is on
//! its way to the log comes behind that, with the bound and the watermark before it.

use timestone_types::Timestamp;
use timestone_wal::BatchNumber;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    /// The highest, and the last batch that says so.
    bound: Option<(Timestamp, BatchNumber)>,
    watermark: Option<(Timestamp, BatchNumber)>,
}

impl Bounds {
    /// A record of a read bound.
    pub(super) fn take(&mut self, batch: BatchNumber, bound: Timestamp, watermark: Timestamp) {
        if timestone_types::is_planted!(KeepsLastBound) {
            self.bound = self.bound.max(Some((Timestamp::MAX, batch)));
            self.watermark = None;
            return;
        }
        self.bound = self.bound.max(Some((bound, batch)));
        self.watermark = self.watermark.max(Some((watermark, batch)));
    }

    /// The lowest batch that is needed.
    pub(super) fn lowest(&self) -> Option<BatchNumber> {
        let batch = |told: Option<(Timestamp, BatchNumber)>| told.map(|(_, batch)| batch);
        [batch(self.bound), batch(self.watermark)].into_iter().flatten().min()
    }
}
