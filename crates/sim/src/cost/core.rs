//! What befalls the core of a process by chance: it comes late when it is called, and is taken away for moments.
//!
//! Interruptions (timers, the host, other guests) are what pulls client and server out of step: one that strikes a writer between two segments
//! lets the reader see the first one alone. They come at random in the CPU time of a process, and lengthen whatever runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::table::ThreadCosts;
use crate::seed::{Dice, Seed};

/// The chances of one process, in one of its lives.
#[derive(Debug)]
pub(super) struct CoreChances {
    dice: Mutex<Dice>,
    /// Nanoseconds of CPU time until the next interruption.
    left: AtomicU64,
}

impl CoreChances {
    pub(super) fn new(seed: Seed, thread: &ThreadCosts) -> Self {
        let mut dice = seed.dice();
        let left = AtomicU64::new(gap(&mut dice, thread));
        Self { dice: Mutex::new(dice), left }
    }

    /// How long a core that has been idle for so long takes to come, this time.
    pub(super) fn wake_latency(&self, thread: &ThreadCosts, idle: Duration) -> f64 {
        thread.latency_at(self.dice.lock().unwrap_or_else(PoisonError::into_inner).fraction(), idle)
    }

    /// Work of so many nanoseconds, with the interruptions that fall into it.
    pub(super) fn interrupt(&self, thread: &ThreadCosts, nanos: f64) -> f64 {
        let (left, mut rest) = (self.left.load(Ordering::Relaxed), nanos as u64);
        if rest < left {
            self.left.store(left - rest, Ordering::Relaxed);
            return nanos;
        }
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut left, mut whole) = (left, nanos);
        while rest >= left {
            rest -= left;
            whole += thread.interruption.at(dice.fraction());
            left = gap(&mut dice, thread);
        }
        self.left.store(left - rest, Ordering::Relaxed);
        whole
    }
}

/// CPU time until the next interruption: they know nothing of each other.
fn gap(dice: &mut Dice, thread: &ThreadCosts) -> u64 {
    if thread.interrupted_every <= 0.0 {
        return u64::MAX;
    }
    (-(1.0 - dice.fraction()).ln() * thread.interrupted_every) as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::super::table::Varying;
    use super::*;

    #[test]
    fn interruptions_come_as_often_and_last_as_long_as_measured() {
        let interruption = Varying::of((0..1000).map(f64::from).collect());
        let thread = ThreadCosts { interrupted_every: 10_000.0, interruption, ..ThreadCosts::default() };
        let core = CoreChances::new(Seed(1), &thread);
        let whole: f64 = (0..100_000).map(|_| core.interrupt(&thread, 100.0)).sum();
        let added = whole - 1e7;
        assert!((450_000.0..550_000.0).contains(&added), "{added} ns in some 1000 interruptions of 500 ns");
        let calm = ThreadCosts::default();
        assert_eq!(CoreChances::new(Seed(1), &calm).interrupt(&calm, 1e9).to_bits(), 1e9_f64.to_bits());
    }

    #[test]
    fn a_core_that_was_idle_for_longer_takes_longer() {
        let times = |from: u32| Varying::of((from..from + 1000).map(f64::from).collect());
        let thread = ThreadCosts {
            wake_latency: times(50_000),
            wake_latency_soon: times(20_000),
            wake_latency_at_once: times(7_000),
            ..ThreadCosts::default()
        };
        let at = |micros| thread.latency_at(0.5, Duration::from_micros(micros)) - 500.0;
        assert_eq!([0, 19].map(|micros| at(micros).round()), [7e3, 7e3]);
        assert_eq!([20, 50, 125, 200, 900].map(|micros| at(micros).round()), [20e3, 20e3, 35e3, 50e3, 50e3]);
    }

    #[test]
    fn times_are_drawn_between_their_quantiles() {
        let time = Varying::of((0..10_000).map(f64::from).collect());
        let near = |fraction: f64, wanted: f64| (time.at(fraction) - wanted).abs() < 1.0;
        assert!(near(0.0, 10.0) && near(0.5, 5000.0) && near(0.7, 6708.2) && near(1.0, 9990.0));
        assert_eq!(Varying::of(Vec::new()).at(0.5).to_bits(), 0);
    }
}
