//! Repeatable choices: SplitMix64, seeded from `TIMESTONE_TEST_SEED` or the clock, and printed.

use std::time::Duration;

use timestone_clock::{Clock, SystemClock};

/// A stream of choices.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// For one test: the seed is printed, so that a failure can be repeated.
    pub(crate) fn for_test(test: &str) -> Self {
        let drawn = || SystemClock::new().now().as_nanos();
        let seed = std::env::var("TIMESTONE_TEST_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(drawn);
        println!("{test}: TIMESTONE_TEST_SEED={seed}");
        Self(seed)
    }

    pub(crate) const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// An independent stream.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn span(&mut self, from_ms: u64, to_ms: u64) -> Duration {
        Duration::from_micros(from_ms * 1000 + self.below((to_ms - from_ms) * 1000 + 1))
    }
}
