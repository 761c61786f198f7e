//! When transactions start: one after another (closed loop), or whenever a Poisson process says
//! (open loop).
//!
//! A closed loop waits for an answer before it asks again, and so goes easy on a slow server. An
//! open loop starts transactions at times that do not depend on the server at all; whoever runs it
//! measures latency from the *intended* start, even when all sessions were busy then. That is the
//! correction for coordinated omission: waiting counts.

use std::time::Duration;

use timestone_types::Timestamp;

use crate::{Random, WorkloadError};

/// How transactions follow each other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// Each session starts its next transaction when the one before has ended.
    Closed,
    /// Transactions start at random, this many a second on average over all sessions.
    Open {
        /// Intended starts a second.
        per_second: f64,
    },
}

/// The intended starts of an open loop.
///
/// ```
/// use timestone_types::Timestamp;
/// use timestone_workload::Arrivals;
///
/// let mut arrivals = Arrivals::new(10_000.0, 42, Timestamp::from_nanos(0))?;
/// let first = arrivals.next_start();
/// assert!(arrivals.next_start() > first);
/// # Ok::<(), timestone_workload::WorkloadError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Arrivals {
    random: Random,
    mean_ns: f64,
    next: Timestamp,
    /// What rounding to nanoseconds left over, so that the rate holds over millions of arrivals.
    rest_ns: f64,
}

/// Keeps the stream of arrivals apart from the generators', which derive from client numbers.
const STREAM: u64 = u64::MAX;

impl Arrivals {
    /// Arrivals from `begin` on, `per_second` on average, a function of `seed`.
    ///
    /// # Errors
    /// [`WorkloadError::Parameter`] when the rate is not above 0 and at most 10⁹.
    pub fn new(per_second: f64, seed: u64, begin: Timestamp) -> Result<Self, WorkloadError> {
        if !(per_second > 0.0 && per_second <= 1e9) {
            return Err(WorkloadError::Parameter {
                name: "rate",
                given: per_second.to_string(),
                demand: "it lies above 0 and is at most 1 000 000 000 a second",
            });
        }
        Ok(Self {
            random: Random::derived(seed, STREAM),
            mean_ns: 1e9 / per_second,
            next: begin,
            rest_ns: 0.0,
        })
    }

    /// When the next transaction is meant to start; strictly later than the one before.
    pub fn next_start(&mut self) -> Timestamp {
        // The exponential distribution by inversion; 1 − u lies in (0, 1].
        let gap = -(1.0 - self.random.unit()).ln() * self.mean_ns + self.rest_ns;
        let whole = gap.max(1.0).floor();
        self.rest_ns = gap - whole;
        self.next = self.next.saturating_add(Duration::from_nanos(whole as u64));
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_keep_the_rate_and_scatter_like_a_poisson_process() {
        const COUNT: u32 = 200_000;
        let mut arrivals = Arrivals::new(50_000.0, 1, Timestamp::ZERO).unwrap();
        let mut gaps = Vec::new();
        let mut last = Timestamp::ZERO;
        for _ in 0..COUNT {
            let next = arrivals.next_start();
            assert!(next > last);
            gaps.push(next.since(last).as_secs_f64());
            last = next;
        }
        let mean = gaps.iter().sum::<f64>() / f64::from(COUNT);
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / f64::from(COUNT);
        assert!((mean * 50_000.0 - 1.0).abs() < 0.01, "{mean}");
        // An exponential distribution's deviation is its mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{}", variance.sqrt() / mean);
    }

    #[test]
    fn a_very_high_rate_still_rises_and_is_met() {
        let mut arrivals = Arrivals::new(3e8, 1, Timestamp::ZERO).unwrap();
        let last = (0..1_000_000).map(|_| arrivals.next_start()).last().unwrap();
        assert!((last.as_nanos() as f64 / 3.33e6 - 1.0).abs() < 0.05, "{last}");
    }

    #[test]
    fn senseless_rates_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e9] {
            assert!(Arrivals::new(rate, 1, Timestamp::ZERO).is_err(), "{rate}");
        }
    }
}
