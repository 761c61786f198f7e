//! Repeatable choices, seeded from `TIMESTONE_TEST_SEED` or the clock, and printed.

use std::time::Duration;

use timestone_clock::{Clock, SystemClock};
use timestone_types::random::{Dice, Seed};

/// A stream of choices.
#[derive(Clone, Debug)]
pub(crate) struct Random(Dice);

impl Random {
    /// For one test: the seed is printed, so that a failure can be repeated.
    pub(crate) fn for_test(test: &str) -> Self {
        let drawn = || SystemClock::new().now().as_nanos();
        let seed = std::env::var("TIMESTONE_TEST_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(drawn);
        println!("{test}: TIMESTONE_TEST_SEED={seed}");
        Self::seeded(seed)
    }

    pub(crate) const fn seeded(seed: u64) -> Self {
        Self(Seed(seed).dice())
    }

    /// An independent stream.
    pub(crate) fn fork(&mut self) -> Self {
        Self::seeded(self.next())
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0.roll()
    }

    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub(crate) fn span(&mut self, from_ms: u64, to_ms: u64) -> Duration {
        Duration::from_micros(from_ms * 1000 + self.below((to_ms - from_ms) * 1000 + 1))
    }
}
