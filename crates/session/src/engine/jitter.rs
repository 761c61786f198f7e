//! Small random numbers from a seed: jitter of pauses, steps of later timestamps. Not for secrets.

use core::time::Duration;

use timestone_types::random::{Dice, Seed};

/// A stream of numbers that its seed decides.
#[derive(Clone, Debug)]
pub(crate) struct Jitter(Dice);

impl Jitter {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(Seed(seed).dice())
    }

    /// A span in `0..most`, but never 0.
    pub(crate) fn step(&mut self, most: Duration) -> Duration {
        assert!(!most.is_zero(), "a step within no span at all");
        Duration::from_nanos(1 + self.0.below(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// A span in the upper half of `span`: pauses spread, and never vanish.
    pub(crate) fn about(&mut self, span: Duration) -> Duration {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let drawn = Duration::from_nanos(nanos / 2 + self.0.below(nanos - nanos / 2 + 1));
        assert!(drawn <= span, "{drawn:?} is above {span:?}");
        drawn
    }

    /// `first` doubled `attempt - 1` times, at most `most`, with jitter.
    pub(crate) fn pause(&mut self, attempt: u32, first: Duration, most: Duration) -> Duration {
        assert!(first <= most, "pauses begin at {first:?}, above their bound");
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
        let draws: Vec<u64> = (0..64).map(|_| jitter.0.below(8)).collect();
        assert!((0..8).all(|value| draws.contains(&value)), "{draws:?}");
    }
}
