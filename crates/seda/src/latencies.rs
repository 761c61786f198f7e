//! How long things took, in buckets: one thread writes, whoever looks reads.
//!
//! Buckets double: the first takes what took at most 1 µs, the last but one 16.8 s, the last
//! everything longer. Whoever records owns the counters, so that a record is a shift and four plain
//! loads and stores; time is that of the turn, so that what begins and ends in one turn counts as
//! nothing.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use timestone_types::Timestamp;

/// Upper bound of the first bucket, as a power of two in nanoseconds.
const FIRST_BIT: u32 = 10;
/// Buckets with an upper bound; one more is for everything longer.
const BOUNDED: usize = 25;

/// Latencies of one kind.
#[derive(Debug, Default)]
pub struct Latencies {
    buckets: [AtomicU64; BOUNDED + 1],
    sum_ns: AtomicU64,
}

/// The bucket of a span: the first whose bound it does not exceed.
#[inline]
const fn bucket_of(nanos: u64) -> usize {
    let bits = u64::BITS - nanos.saturating_sub(1).leading_zeros();
    let bucket = bits.saturating_sub(FIRST_BIT) as usize;
    if bucket < BOUNDED { bucket } else { BOUNDED }
}

#[inline]
fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

impl Latencies {
    /// Something began and ended then; a clock that went backwards counts as nothing. Only one
    /// thread may say so.
    #[inline]
    pub fn since(&self, begin: Timestamp, end: Timestamp) {
        let nanos = end.as_nanos().saturating_sub(begin.as_nanos());
        bump(&self.buckets[bucket_of(nanos)], 1);
        bump(&self.sum_ns, nanos);
    }

    /// What was recorded so far.
    pub fn counts(&self) -> LatencyCounts {
        LatencyCounts {
            buckets: core::array::from_fn(|at| self.buckets[at].load(Relaxed)),
            sum_ns: self.sum_ns.load(Relaxed),
        }
    }
}

/// A reading of [`Latencies`], or a sum of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LatencyCounts {
    buckets: [u64; BOUNDED + 1],
    sum_ns: u64,
}

impl LatencyCounts {
    /// Adds what another thread recorded.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += theirs;
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }

    /// How many there were.
    pub fn total(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum, in seconds.
    pub fn sum_seconds(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// Every bucket's upper bound in seconds, and how many took at most that long.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut below = 0;
        self.buckets.iter().take(BOUNDED).enumerate().map(move |(at, count)| {
            below += count;
            ((1u64 << (FIRST_BIT as usize + at)) as f64 / 1e9, below)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_span_is_in_the_bucket_whose_bound_it_does_not_exceed() {
        for (nanos, bucket) in
            [(0, 0), (1, 0), (1_024, 0), (1_025, 1), (2_048, 1), (2_049, 2), (1 << 34, 24)]
        {
            assert_eq!(bucket_of(nanos), bucket, "{nanos} ns");
        }
        assert_eq!((bucket_of((1 << 34) + 1), bucket_of(u64::MAX)), (BOUNDED, BOUNDED));
    }

    #[test]
    fn counts_add_up_and_a_clock_that_went_back_counts_as_nothing() {
        let latencies = Latencies::default();
        let at = Timestamp::from_nanos;
        latencies.since(at(5_000), at(1_000));
        latencies.since(at(1_000), at(3_000));
        latencies.since(at(0), at(60_000_000_000));
        let mut counts = latencies.counts();
        counts.add(&latencies.counts());
        assert_eq!(counts.total(), 6);
        let below: Vec<u64> = counts.cumulative().map(|(_, count)| count).collect();
        assert_eq!((below[0], below[1], below[24]), (2, 4, 4), "what is longer is in +Inf alone");
        assert!((counts.sum_seconds() - 120.000_004).abs() < 1e-9);
        assert!((counts.cumulative().next().unwrap().0 - 1.024e-6).abs() < 1e-12);
    }
}
