//! Figures that log stages publish for the HTTP port and for `NodeStatus`: plain atomics, written by
//! one stage, read by whoever looks.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;

use timestone_seda::Latencies;
use timestone_shard::gauges::SharedText;
use timestone_wal::LogStats;

/// What a log stage publishes.
#[derive(Debug, Default)]
pub(crate) struct LogGauges {
    /// How long batches waited until they were durable.
    pub(crate) durable: Latencies,
    pub(crate) batches: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) files: AtomicU64,
    pub(crate) space_bytes: AtomicU64,
    pub(crate) queued_bytes: AtomicU64,
    failure: OnceLock<String>,
    /// Why writes are refused, while the log has no room for another file and little in the one
    /// that it has.
    pub(crate) shortage: SharedText,
}

impl LogGauges {
    /// The log failed for good.
    pub(crate) fn fail(&self, cause: String) {
        // The first cause is the one that counts.
        let _ = self.failure.set(cause);
    }

    /// Why the log failed, if it did.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    pub(crate) fn publish(&self, stats: &LogStats) {
        self.batches.store(stats.batches, Relaxed);
        self.written_bytes.store(stats.written_bytes, Relaxed);
        self.groups.store(stats.groups, Relaxed);
        self.files.store(stats.files, Relaxed);
        self.space_bytes.store(stats.space_bytes, Relaxed);
        self.queued_bytes.store(stats.queued_bytes, Relaxed);
    }
}
