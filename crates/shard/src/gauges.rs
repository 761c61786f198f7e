//! Figures that a shard publishes: plain atomics, written by one thread, read by whoever looks.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};

use timestone_seda::Latencies;
use timestone_store::{Figure, FigureValues};
use timestone_txn::Refusal;
use timestone_txn::limits::MAX_LOW_WATER_LEAD;
use timestone_txn::participant::{View, Vote};
use timestone_types::{AbortKind, ShardId, Timestamp};
use timestone_wire::Kind;

/// A text that a stage changes seldom and others look at.
#[derive(Debug, Default)]
pub struct SharedText(Mutex<Option<Arc<str>>>);

impl SharedText {
    /// Says this from now on, or nothing.
    pub fn set(&self, text: Option<&str>) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.as_deref() != text {
            *said = text.map(Arc::from);
        }
    }

    /// What is said.
    pub fn get(&self) -> Option<Arc<str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What requests of a shard are counted as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Timed {
    /// A read of one key.
    Get,
    /// A single-key write: condition, validation, log.
    Write,
    /// The first phase of a commit: validation and log, up to the vote.
    Prepare,
    /// The second phase: a decision, up to its acknowledgement.
    Decide,
    /// A page of a scan.
    Scan,
    /// A count of keys.
    Count,
    /// What resolves transactions whose client is gone, and questions about them.
    Resolve,
}

impl Timed {
    /// Each with its name.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Get, "get"),
        (Self::Write, "write"),
        (Self::Prepare, "prepare"),
        (Self::Decide, "decide"),
        (Self::Scan, "scan"),
        (Self::Count, "count"),
        (Self::Resolve, "resolve"),
    ];

    /// What a frame is counted as.
    pub const fn of(kind: Kind) -> Self {
        match kind {
            Kind::Get => Self::Get,
            Kind::Write => Self::Write,
            Kind::Prepare | Kind::PrepareRanges => Self::Prepare,
            Kind::Decide => Self::Decide,
            Kind::Scan | Kind::Range | Kind::RangeDown => Self::Scan,
            Kind::Count => Self::Count,
            _ => Self::Resolve,
        }
    }
}

/// How long requests of a shard took, from the turn in which they arrived to the one in which they
/// were answered.
#[derive(Debug, Default)]
pub struct RequestLatencies([Latencies; Timed::ALL.len()]);

impl RequestLatencies {
    /// Those of one kind.
    #[inline]
    pub const fn of(&self, timed: Timed) -> &Latencies {
        &self.0[timed as usize]
    }
}

/// Requests that a shard took, and those that it refused because of their timestamps.
#[derive(Debug, Default)]
pub struct RequestCounts {
    /// Reads of one key.
    pub gets: AtomicU64,
    /// First phases of commits.
    pub prepares: AtomicU64,
    /// Single-key writes.
    pub writes: AtomicU64,
    /// Second phases of commits.
    pub decisions: AtomicU64,
    /// Requests whose timestamps led too far.
    pub clock_ahead: AtomicU64,
    /// Requests refused because a step of the clock is held.
    pub clock_held: AtomicU64,
}

/// How a shard voted, and what came of it.
#[derive(Debug, Default)]
pub struct VoteCounts {
    /// Votes for a commit, those on what was decided already included.
    pub yes: AtomicU64,
    /// Votes that ask for a later timestamp.
    pub later: AtomicU64,
    /// By [`AbortKind`], in the order of [`AbortKind::ALL`].
    pub no: [AtomicU64; AbortKind::ALL.len()],
    /// Transactions and single writes whose writes were applied here.
    pub committed: AtomicU64,
    /// Transactions that were promised here and whose decision was to abort.
    pub aborts_decided: AtomicU64,
}

/// Whether a shard has room for puts.
#[derive(Debug, Default)]
pub struct Fullness {
    /// The store refuses puts, and will until something is deleted or its device can grow.
    pub is_full: AtomicBool,
    /// Why its device cannot grow, when that is why it is full.
    pub cause: SharedText,
}

/// What a shard publishes.
#[derive(Debug)]
pub struct ShardGauges {
    /// How long requests took, by kind.
    pub latencies: Arc<RequestLatencies>,
    /// Whose figures these are.
    pub shard: ShardId,
    /// What was asked.
    pub counts: RequestCounts,
    /// What was answered to prepares.
    pub votes: VoteCounts,
    /// Reads below it are refused, in nanoseconds.
    pub watermark: AtomicU64,
    /// Requests under way.
    pub requests: AtomicU64,
    /// Memory of access records, in bytes.
    pub access_bytes: AtomicU64,
    /// Transactions whose write sets are kept.
    pub prepared: AtomicU64,
    /// Writes commit above it.
    low_water: AtomicU64,
    /// Whether puts are refused for want of room.
    pub fullness: Fullness,
    /// Bytes that the shard's record cache shall have; [`AS_CONFIGURED`] until somebody wishes
    /// otherwise.
    pub cache_wish: AtomicU64,
    /// Gateways and embedded clients of this process that may still send the shard something.
    pub writers: AtomicU64,
    tables: [AtomicU64; TABLE_FIGURES.len()],
    store: [AtomicU64; Figure::ALL.len()],
    /// In which of them something was not counted.
    store_partial: AtomicU64,
}

/// The cache has the size that the shard was started with.
pub const AS_CONFIGURED: u64 = u64::MAX;

/// The figures of a participant's tables, in entries: names, and what they mean.
pub const TABLE_FIGURES: [(&str, &str); 6] = [
    ("marks", "Keys whose latest read or prepared write the shard remembers."),
    ("in_flight_transactions", "Transactions that are prepared, or wait to be."),
    ("kept_outcomes", "Decided transactions whose outcome is kept for those who may ask."),
    ("waiting_requests", "Reads and prepares that wait for a transaction to be decided."),
    ("known_clients", "Clients whose reports hold the watermark, or did lately."),
    (
        "resolving_transactions",
        "Transactions that the shard brings to an end for clients that are gone.",
    ),
];

impl ShardGauges {
    /// The figures of a shard that has done nothing.
    pub fn new(shard: ShardId) -> Self {
        Self {
            latencies: Arc::default(),
            shard,
            counts: RequestCounts::default(),
            votes: VoteCounts::default(),
            watermark: AtomicU64::default(),
            requests: AtomicU64::default(),
            access_bytes: AtomicU64::default(),
            prepared: AtomicU64::default(),
            low_water: AtomicU64::default(),
            fullness: Fullness::default(),
            cache_wish: AtomicU64::new(AS_CONFIGURED),
            writers: AtomicU64::new(0),
            tables: Default::default(),
            store: core::array::from_fn(|_| AtomicU64::default()),
            store_partial: AtomicU64::default(),
        }
    }

    /// How far the watermark trails `now`; `None` while there is none, because no session has
    /// reported yet.
    pub fn watermark_lag(&self, now: Timestamp) -> Option<Duration> {
        let watermark = Timestamp::from_nanos(self.watermark.load(Relaxed));
        (watermark > Timestamp::ZERO).then(|| now.since(watermark))
    }

    /// For how long writes are still refused because the clock stands far behind what was served
    /// before the restart.
    pub fn clock_behind(&self, now: Timestamp) -> Option<Duration> {
        let left = Timestamp::from_nanos(self.low_water.load(Relaxed)).since(now);
        (left > MAX_LOW_WATER_LEAD).then_some(left)
    }

    /// Counts a request that was refused because of its timestamp.
    #[cold]
    pub fn count_refusal(&self, refusal: &Refusal) {
        match refusal {
            Refusal::ClockAhead { .. } => bump(&self.counts.clock_ahead),
            Refusal::ClockHeld { .. } => bump(&self.counts.clock_held),
            _ => {}
        }
    }

    /// Counts a request; one stage writes, so a load and a store will do.
    #[inline]
    pub fn count(&self, kind: Kind) {
        let counter = match kind {
            Kind::Get => &self.counts.gets,
            Kind::Prepare | Kind::PrepareRanges => &self.counts.prepares,
            Kind::Write => &self.counts.writes,
            Kind::Decide => &self.counts.decisions,
            _ => return,
        };
        bump(counter);
    }

    /// A transaction's writes take effect.
    #[inline]
    pub fn commit(&self) {
        bump(&self.votes.committed);
    }

    /// A decision to abort came.
    #[inline]
    pub fn decide_abort(&self) {
        bump(&self.votes.aborts_decided);
    }

    /// Counts a vote.
    #[inline]
    pub fn vote(&self, vote: &Vote) {
        match vote {
            Vote::Yes | Vote::Decided(_) => bump(&self.votes.yes),
            Vote::Later(_) => bump(&self.votes.later),
            Vote::No(reason) => bump(&self.votes.no[reason.kind as usize - 1]),
        }
    }

    /// The sizes of the participant's tables.
    pub fn publish_tables(&self, stats: &View) {
        self.low_water.store(stats.low_water.as_nanos(), Relaxed);
        self.access_bytes.store(stats.access_bytes as u64, Relaxed);
        let sizes = [
            stats.access_records,
            stats.in_flight,
            stats.kept,
            stats.waiting,
            stats.clients,
            stats.resolving,
        ];
        for (slot, size) in self.tables.iter().zip(sizes) {
            slot.store(size as u64, Relaxed);
        }
    }

    /// The sizes of the participant's tables as last published, in entries.
    pub fn tables(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        TABLE_FIGURES
            .into_iter()
            .map(|(name, _)| name)
            .zip(self.tables.iter().map(|value| value.load(Relaxed)))
    }

    /// Publishes what the store, the participant and the shard have to say.
    pub fn publish(
        &self,
        figures: &FigureValues,
        full: bool,
        watermark: Timestamp,
        requests: usize,
        prepared: usize,
    ) {
        self.watermark.store(watermark.as_nanos(), Relaxed);
        self.requests.store(requests as u64, Relaxed);
        self.prepared.store(prepared as u64, Relaxed);
        self.fullness.is_full.store(full, Relaxed);
        for (slot, (_, value)) in self.store.iter().zip(figures.iter()) {
            slot.store(value, Relaxed);
        }
        self.store_partial.store(figures.partial(), Relaxed);
    }

    /// The same, to be added to those of other shards, and for what they say together.
    pub fn store_figures(&self) -> FigureValues {
        let mut figures = FigureValues::default();
        for (figure, value) in Figure::ALL.into_iter().zip(&self.store) {
            figures.add(figure, value.load(Relaxed));
        }
        figures.but_for(self.store_partial.load(Relaxed))
    }

    /// The store's figures as last published.
    pub fn store(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Figure::ALL
            .into_iter()
            .map(Figure::name)
            .zip(self.store.iter().map(|value| value.load(Relaxed)))
    }
}

fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_refused_while_the_low_water_timestamp_is_far_ahead() {
        let gauges = ShardGauges::new(ShardId::new(0));
        let now = Timestamp::from_nanos(1_800_000_000_000_000_000);
        assert_eq!(gauges.clock_behind(now), None);
        for (ahead, left) in
            [(MAX_LOW_WATER_LEAD, None), (Duration::from_secs(900), Some(Duration::from_secs(900)))]
        {
            gauges
                .publish_tables(&View { low_water: now.saturating_add(ahead), ..View::default() });
            assert_eq!(gauges.clock_behind(now), left);
        }
    }

    #[test]
    fn a_watermark_that_no_session_has_set_yet_has_no_lag() {
        let gauges = ShardGauges::new(ShardId::new(0));
        let now = Timestamp::from_nanos(1_800_000_000_000_000_000);
        assert_eq!(gauges.watermark_lag(now), None, "it is not as old as the clock's epoch");
        gauges.watermark.store(now.as_nanos() - 5_000_000, Relaxed);
        assert_eq!(gauges.watermark_lag(now), Some(Duration::from_millis(5)));
    }
}
