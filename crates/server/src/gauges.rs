//! Figures that stages publish for the HTTP port and for `NodeStatus`: plain atomics, written by one stage, read by whoever
//! looks.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use std::sync::OnceLock;

use timestone_store::StoreStats;
use timestone_txn::participant::{Stats, Vote};
use timestone_types::{AbortKind, ShardId, Timestamp};
use timestone_wal::LogStats;
use timestone_wire::Kind;

/// What a log stage publishes.
#[derive(Debug, Default)]
pub(crate) struct LogGauges {
    pub(crate) batches: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) files: AtomicU64,
    pub(crate) space_bytes: AtomicU64,
    pub(crate) queued_bytes: AtomicU64,
    failure: OnceLock<String>,
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

/// What a shard publishes.
#[derive(Debug)]
pub(crate) struct ShardGauges {
    pub(crate) shard: ShardId,
    pub(crate) gets: AtomicU64,
    pub(crate) prepares: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) decisions: AtomicU64,
    pub(crate) votes_yes: AtomicU64,
    pub(crate) votes_later: AtomicU64,
    /// By [`AbortKind`], in the order of [`AbortKind::ALL`].
    pub(crate) votes_no: [AtomicU64; AbortKind::ALL.len()],
    pub(crate) watermark: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) prepared: AtomicU64,
    /// Bytes that the shard's record cache shall have; [`AS_CONFIGURED`] until somebody wishes otherwise.
    pub(crate) cache_wish: AtomicU64,
    tables: [AtomicU64; TABLE_FIGURES.len()],
    store: [AtomicU64; STORE_FIGURES.len()],
}

/// The cache has the size that the shard was started with.
pub(crate) const AS_CONFIGURED: u64 = u64::MAX;

/// The names of the figures of a participant's tables, in entries.
pub(crate) const TABLE_FIGURES: [&str; 6] =
    ["marks", "in_flight_transactions", "kept_outcomes", "waiting_requests", "known_clients", "resolving_transactions"];

/// The names of a store's figures; units last.
pub(crate) const STORE_FIGURES: [&str; 17] = [
    "keys",
    "versions",
    "index_bytes",
    "cache_bytes",
    "cache_hits_total",
    "page_hits_total",
    "device_gets_total",
    "puts_total",
    "put_bytes_total",
    "programmed_bytes_total",
    "moved_records_total",
    "collected_blocks_total",
    "dropped_tombstones_total",
    "blocks",
    "free_blocks",
    "corrupt_total",
    "checkpoints_total",
];

/// A store's figures, by name.
pub(crate) fn store_figures(stats: &StoreStats) -> impl Iterator<Item = (&'static str, u64)> + use<> {
    let values = [
        stats.keys,
        stats.versions,
        stats.index_bytes,
        stats.cache_bytes,
        stats.cache_hits,
        stats.page_hits,
        stats.device_gets,
        stats.puts,
        stats.put_bytes,
        stats.programmed_bytes,
        stats.moved_records,
        stats.collected_blocks,
        stats.dropped_tombstones,
        u64::from(stats.blocks),
        u64::from(stats.free_blocks),
        stats.corrupt,
        stats.checkpoints,
    ];
    STORE_FIGURES.into_iter().zip(values)
}

impl ShardGauges {
    pub(crate) fn new(shard: ShardId) -> Self {
        Self {
            shard,
            gets: AtomicU64::default(),
            prepares: AtomicU64::default(),
            writes: AtomicU64::default(),
            decisions: AtomicU64::default(),
            votes_yes: AtomicU64::default(),
            votes_later: AtomicU64::default(),
            votes_no: Default::default(),
            watermark: AtomicU64::default(),
            requests: AtomicU64::default(),
            prepared: AtomicU64::default(),
            cache_wish: AtomicU64::new(AS_CONFIGURED),
            tables: Default::default(),
            store: Default::default(),
        }
    }

    /// How far the watermark trails `now`; `None` while there is none, because no session has reported yet.
    pub(crate) fn watermark_lag(&self, now: Timestamp) -> Option<Duration> {
        let watermark = Timestamp::from_nanos(self.watermark.load(Relaxed));
        (watermark > Timestamp::ZERO).then(|| now.since(watermark))
    }

    /// Counts a request; one stage writes, so a load and a store will do.
    #[inline]
    pub(crate) fn count(&self, kind: Kind) {
        let counter = match kind {
            Kind::Get => &self.gets,
            Kind::Prepare => &self.prepares,
            Kind::Write => &self.writes,
            Kind::Decide => &self.decisions,
            _ => return,
        };
        bump(counter);
    }

    #[inline]
    pub(crate) fn vote(&self, vote: &Vote) {
        match vote {
            Vote::Yes | Vote::Decided(_) => bump(&self.votes_yes),
            Vote::Later(_) => bump(&self.votes_later),
            Vote::No(reason) => bump(&self.votes_no[reason.kind as usize - 1]),
        }
    }

    /// The sizes of the participant's tables.
    pub(crate) fn publish_tables(&self, stats: &Stats) {
        let sizes = [stats.marks, stats.in_flight, stats.kept, stats.waiting, stats.clients, stats.resolving];
        for (slot, size) in self.tables.iter().zip(sizes) {
            slot.store(size as u64, Relaxed);
        }
    }

    /// The sizes of the participant's tables as last published, in entries.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        TABLE_FIGURES.into_iter().zip(self.tables.iter().map(|value| value.load(Relaxed)))
    }

    pub(crate) fn publish(&self, stats: &StoreStats, watermark: Timestamp, requests: usize, prepared: usize) {
        self.watermark.store(watermark.as_nanos(), Relaxed);
        self.requests.store(requests as u64, Relaxed);
        self.prepared.store(prepared as u64, Relaxed);
        for (slot, (_, value)) in self.store.iter().zip(store_figures(stats)) {
            slot.store(value, Relaxed);
        }
    }

    /// The store's figures as last published.
    pub(crate) fn store(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        STORE_FIGURES.into_iter().zip(self.store.iter().map(|value| value.load(Relaxed)))
    }
}

fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watermark_that_no_session_has_set_yet_has_no_lag() {
        let gauges = ShardGauges::new(ShardId::new(0));
        let now = Timestamp::from_nanos(1_800_000_000_000_000_000);
        assert_eq!(gauges.watermark_lag(now), None, "it is not as old as the clock's epoch");
        gauges.watermark.store(now.as_nanos() - 5_000_000, Relaxed);
        assert_eq!(gauges.watermark_lag(now), Some(Duration::from_millis(5)));
    }
}
