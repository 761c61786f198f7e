//! Whether to spin for a moment before going to sleep.
//!
//! Waking an idle virtual CPU costs about 22 µs a side (docs/lab/building-blocks.md): when the next
//! event usually comes sooner than that, spinning halves the round trip. When it does not, or when
//! somebody else wants the core, spinning only burns. So: never while the threads of this process
//! that are awake and its local clients outnumber the cores; otherwise a score that rises by hits
//! and falls by misses, and a rest once it is used up.

use std::time::Duration;

use crate::limits::SPIN_DEFAULT;

/// How threads wait for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spin {
    /// Block at once.
    Off,
    /// Spin for up to this long (20–50 µs), while that pays and no core is shared.
    Adaptive(Duration),
}

impl Default for Spin {
    fn default() -> Self {
        Self::Adaptive(SPIN_DEFAULT)
    }
}

/// The score at which a thread starts and never exceeds; a hit adds [`HIT`], a miss takes one.
const FULL: u32 = 16;
/// A hit saves about as much latency as three misses burn.
const HIT: u32 = 3;
/// Sleeps without spinning after the score was used up; doubles up to [`LONGEST_REST`] while
/// spinning keeps failing.
const REST: u32 = 32;
/// See [`REST`].
const LONGEST_REST: u32 = 4096;

/// Decides for one thread.
#[derive(Debug)]
pub(crate) struct Spinner {
    budget: Option<Duration>,
    score: u32,
    rest: u32,
    next_rest: u32,
}

impl Spinner {
    pub(crate) const fn new(spin: Spin) -> Self {
        let budget = match spin {
            Spin::Off => None,
            Spin::Adaptive(budget) => Some(budget),
        };
        Self { budget, score: FULL, rest: 0, next_rest: REST }
    }

    /// For how long to spin now, if at all. `crowded`: somebody else wants the core.
    pub(crate) fn budget(&mut self, crowded: bool) -> Option<Duration> {
        if crowded {
            return None;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        self.budget
    }

    /// What came of spinning.
    pub(crate) fn learn(&mut self, hit: bool) {
        if hit {
            self.score = (self.score + HIT).min(FULL);
            self.next_rest = REST;
            return;
        }
        self.score = self.score.saturating_sub(1);
        if self.score == 0 {
            self.rest = self.next_rest;
            self.next_rest = (self.next_rest * 2).min(LONGEST_REST);
            // A few tries are enough to find out whether things have changed.
            self.score = FULL / 4;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misses_until_rest(spinner: &mut Spinner) -> u32 {
        let mut misses = 0;
        while spinner.budget(false).is_some() {
            spinner.learn(false);
            misses += 1;
        }
        misses
    }

    #[test]
    fn spinning_that_does_not_pay_stops_and_is_tried_again_ever_more_rarely() {
        let mut spinner = Spinner::new(Spin::default());
        assert_eq!(misses_until_rest(&mut spinner), FULL);
        let mut rests = 1;
        while spinner.budget(false).is_none() {
            rests += 1;
        }
        assert_eq!(rests, REST);
        spinner.learn(false);
        assert_eq!(misses_until_rest(&mut spinner), FULL / 4 - 1);
        assert_eq!(spinner.rest, 2 * REST - 1);
    }

    #[test]
    fn one_hit_in_four_keeps_it_going() {
        let mut spinner = Spinner::new(Spin::default());
        for round in 0..10_000 {
            assert!(spinner.budget(false).is_some());
            spinner.learn(round % 4 == 0);
        }
    }

    #[test]
    fn no_spinning_when_off_or_crowded() {
        assert_eq!(Spinner::new(Spin::Off).budget(false), None);
        assert_eq!(Spinner::new(Spin::default()).budget(true), None);
    }
}
