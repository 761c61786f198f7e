//! A moment in one byte: the period in which it lies.
//!
//! ```text
//!   blocks of the log as they are begun:   │ a 64th of the device │ a 64th of the device │ …
//!   moments:                               │ period 7             │ period 8             │ …
//!                                                                 └─ above every moment that was told by then
//! ```
//!
//! 255 names go round. Some time before a name is given to another period it means nothing, and whoever
//! keeps names forgets it.
//!
//! Invariant: a moment that has a name lies in the period of that name.

use std::collections::VecDeque;

use timestone_types::Timestamp;

/// Names of periods.
const NAMES: u64 = u8::MAX as u64;
/// Periods whose names mean something, at most.
const MOST_NAMED: usize = 192;
/// Periods in which as many blocks are begun as a device has.
const PERIODS: u32 = 64;
/// Periods in which all who keep names look through them once. Twice that is less than it takes until a name
/// that means nothing is given to another period.
const LOOKED_THROUGH_IN: u32 = 16;

const _: () = assert!(2 * (LOOKED_THROUGH_IN as u64) < NAMES - MOST_NAMED as u64);

/// The name of a period; none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct PeriodName(u8);

impl PeriodName {
    pub(super) const NONE: Self = Self(0);
}

/// All periods whose names mean something.
#[derive(Debug, Default)]
pub(super) struct Periods {
    /// Where each begins, the oldest first. Each ends before the next one begins.
    begins: VecDeque<Timestamp>,
    /// How many there were before these.
    gone: u64,
    /// The latest moment that was told.
    latest: Timestamp,
    /// Blocks of the log that were begun in the last one.
    blocks: u32,
}

impl Periods {
    fn name_of(&self, at: usize) -> PeriodName {
        PeriodName(((self.gone + at as u64) % NAMES) as u8 + 1)
    }

    /// A moment that may be asked for later is told.
    pub(super) fn tell(&mut self, moment: Timestamp) {
        self.latest = self.latest.max(moment);
        if self.begins.is_empty() {
            self.begins.push_back(moment);
        }
    }

    /// A block of the log was begun, on a device that has so many by now. How many of so many keepers of names
    /// are to look through theirs now.
    #[must_use]
    pub(super) fn block_begun(&mut self, blocks: u32, keepers: usize) -> usize {
        let per_period = blocks / PERIODS + 1;
        self.blocks += 1;
        let time_has_passed = self.begins.back().is_some_and(|&last| last < self.latest);
        if time_has_passed && self.blocks >= per_period {
            self.blocks = 0;
            if self.begins.len() == MOST_NAMED {
                self.begins.pop_front();
                self.gone += 1;
            }
            self.begins.push_back(self.latest.next());
        }
        keepers.div_ceil((LOOKED_THROUGH_IN * per_period) as usize)
    }

    /// The period of a moment that was told; none when it lies before all of them.
    pub(super) fn name(&self, moment: Timestamp) -> PeriodName {
        debug_assert!(moment <= self.latest, "it was told");
        let begun = self.begins.partition_point(|&begin| begin <= moment);
        begun.checked_sub(1).map_or(PeriodName::NONE, |at| self.name_of(at))
    }

    /// Bounds of all moments that were told of a period; none where its name means nothing.
    pub(super) fn bounds(&self, name: PeriodName) -> Option<(Timestamp, Timestamp)> {
        let number = u64::from(name.0.checked_sub(1)?);
        let at = ((number + NAMES - self.gone % NAMES) % NAMES) as usize;
        let begin = *self.begins.get(at)?;
        let end = self.begins.get(at + 1).map(|next| next.previous());
        Some((begin, end.unwrap_or(self.latest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn a_moment_lies_in_the_period_of_its_name() {
        const BLOCKS: u32 = 640;
        let mut periods = Periods::default();
        // Five keepers, each of which forgets what means nothing when it is its turn.
        let (mut kept, mut next) = (vec![Vec::new(); 5], 0);
        let (mut moments, mut means_nothing) = (0, 0);
        for n in 1..40_000u64 {
            // Some come late.
            let moment = at(n * 10 + n % 7 * 100);
            periods.tell(moment);
            kept[(n % 5) as usize].push((moment, periods.name(moment)));
            for _ in 0..periods.block_begun(BLOCKS, kept.len()) {
                kept[next].retain(|&(_, name)| periods.bounds(name).is_some());
                next = (next + 1) % kept.len();
            }
            if n % 997 == 0 {
                for &(moment, name) in kept.iter().flatten() {
                    let Some((first, last)) = periods.bounds(name) else {
                        means_nothing += 1;
                        continue;
                    };
                    moments += 1;
                    assert!(first <= moment && moment <= last, "{moment:?} {first:?} {last:?}");
                }
            }
        }
        assert!(moments > 10_000 && means_nothing > 0, "{moments} {means_nothing}");
        assert_eq!(periods.begins.len(), MOST_NAMED);
        assert_eq!(periods.name(at(5)), PeriodName::NONE);
        assert_eq!(periods.bounds(PeriodName::NONE), None);
    }

    #[test]
    fn a_log_that_fills_the_device_has_some_64_periods() {
        for blocks in [100, 640, 244_000] {
            let mut periods = Periods::default();
            for n in 1..=u64::from(blocks) {
                periods.tell(at(n));
                assert!(periods.block_begun(blocks, 1) == 1);
            }
            assert!((50..=65).contains(&periods.begins.len()), "{}", periods.begins.len());
        }
    }

    #[test]
    fn where_no_time_passes_no_period_begins() {
        let mut periods = Periods::default();
        periods.tell(at(7));
        (0..1000).for_each(|_| assert_eq!(periods.block_begun(1, 32), 2));
        assert_eq!(periods.bounds(periods.name(at(7))), Some((at(7), at(7))));
    }
}
