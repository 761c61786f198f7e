//! Small random numbers from a seed (SplitMix64): jitter of pauses, steps of later timestamps. Not
//! for secrets.

use core::time::Duration;

/// A stream of numbers that its seed decides.
#[derive(Clone, Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound`; 0 when the bound is 0. The bias of the multiplication is below bound
    /// / 2⁶⁴.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(bound)) >> 64).unwrap_or(0)
    }

    /// A span in `0..most`, but never 0.
    pub(crate) fn step(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(1 + self.below(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// A span in the upper half of `span`: pauses spread, and never vanish.
    pub(crate) fn about(&mut self, span: Duration) -> Duration {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos / 2 + self.below(nanos - nanos / 2 + 1))
    }

    /// `first` doubled `attempt - 1` times, at most `most`, with jitter.
    pub(crate) fn pause(&mut self, attempt: u32, first: Duration, most: Duration) -> Duration {
        let doubled =
            first.saturating_mul(1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX));
        self.about(doubled.min(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_bound_and_spread() {
        let (first, most) = (Duration::from_millis(1), Duration::from_millis(10));
        let mut jitter = Jitter::new(7);
        for (attempt, full) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (40, 10)] {
            let full = Duration::from_millis(full);
            for _ in 0..100 {
                let pause = jitter.pause(attempt, first, most);
                assert!(
                    pause >= full / 2 && pause <= full,
                    "attempt {attempt}: {pause:?} of {full:?}"
                );
            }
        }
        let draws: Vec<u64> = (0..64).map(|_| jitter.below(8)).collect();
        assert!((0..8).all(|value| draws.contains(&value)), "{draws:?}");
    }
}
