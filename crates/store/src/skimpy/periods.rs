//! A moment in one byte: the period in which it lies.
//!
//! ```text
//!   log:     block │ block │ block │ …      a 64th of the device's blocks is a period, by the latest moment then
//!   moments: ──────┴───────┴───────┴─ latest        each has one of 255 names; zero is no moment
//! ```
//!
//! Invariant: a moment that has a name lies in the period of that name. Before a name is given to
//! another period, whoever keeps names forgets it.

use std::collections::VecDeque;

use timestone_types::{Timestamp, is_planted};

/// Names of periods.
const NAMES: usize = u8::MAX as usize;
/// Periods in which all blocks of a device are begun.
const PERIODS: u32 = 64;

/// The name of a period; none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct PeriodName(u8);

impl PeriodName {
    pub(super) const NONE: Self = Self(0);
}

/// All periods with a name.
#[derive(Debug)]
pub(super) struct Periods {
    /// Where each begins, the oldest first. Each ends before the next one begins.
    begins: VecDeque<Timestamp>,
    /// How many have lost their name.
    gone: u64,
    /// No moment that was told is later.
    latest: Timestamp,
    blocks_per_period: u32,
    /// Blocks of the log that were begun in the last one.
    blocks: u32,
}

impl Periods {
    /// On a device of at most so many blocks.
    pub(super) fn new(most_blocks: u32) -> Self {
        Self {
            begins: VecDeque::new(),
            gone: 0,
            latest: Timestamp::ZERO,
            blocks_per_period: most_blocks / PERIODS + 1,
            blocks: 0,
        }
    }

    fn name_of(&self, at: usize) -> PeriodName {
        PeriodName(((self.gone + at as u64) % NAMES as u64) as u8 + 1)
    }

    /// A moment that may be asked for later is told.
    pub(super) fn tell(&mut self, moment: Timestamp) {
        self.latest = self.latest.max(moment);
        if self.begins.is_empty() {
            self.begins.push_back(moment);
        }
    }

    /// A block of the log was begun. The name that is to be forgotten now, if any.
    #[must_use]
    pub(super) fn block_begun(&mut self) -> Option<PeriodName> {
        self.blocks += 1;
        let last = self.begins.back().filter(|&&last| last < self.latest);
        if last.is_none() || self.blocks < self.blocks_per_period {
            return None;
        }
        self.blocks = 0;
        let lost = (self.begins.len() == NAMES).then(|| self.name_of(0));
        if lost.is_some() {
            self.begins.pop_front();
            self.gone += 1;
        }
        // Whatever was told lies in the one that ends, or before.
        self.begins.push_back(self.latest.next());
        lost.filter(|_| !is_planted!(KeepsOldNames))
    }

    /// The period of a moment that was told; none when it lies before all of them.
    pub(super) fn name(&self, moment: Timestamp) -> PeriodName {
        debug_assert!(moment <= self.latest, "it was told");
        let behind = self.begins.partition_point(|&begin| begin <= moment);
        behind.checked_sub(1).map_or(PeriodName::NONE, |at| self.name_of(at))
    }

    /// The first moment of a period, and the last one that was told of it, or a later one before its end.
    pub(super) fn bounds(&self, name: PeriodName) -> Option<(Timestamp, Timestamp)> {
        let number = u64::from(name.0.checked_sub(1)?);
        let names = NAMES as u64;
        let at = ((number + names - self.gone % names) % names) as usize;
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
        let mut periods = Periods::new(640);
        let mut named = Vec::new();
        for n in 1..40_000u64 {
            // Some come late.
            let moment = at(n * 10 + n % 7 * 100);
            periods.tell(moment);
            if periods.name(moment) != PeriodName::NONE {
                named.push((moment, periods.name(moment)));
            }
            if let Some(lost) = periods.block_begun() {
                named.retain(|&(_, name)| name != lost);
                assert!(named.len() > 200, "the oldest ones go");
            }
            if n % 997 == 0 {
                for &(moment, name) in &named {
                    let (first, last) = periods.bounds(name).expect("it has a name");
                    assert!(first <= moment && moment <= last, "{moment:?} {first:?} {last:?}");
                }
            }
        }
        assert_eq!(periods.begins.len(), NAMES);
        assert_eq!(periods.name(at(5)), PeriodName::NONE);
        assert_eq!(periods.bounds(PeriodName::NONE), None);
    }

    #[test]
    fn a_device_has_some_64_periods() {
        for (blocks, period) in [(16, 1), (640, 11), (244_000, 3813)] {
            assert_eq!(Periods::new(blocks).blocks_per_period, period);
        }
    }

    #[test]
    fn where_no_time_passes_no_period_begins() {
        let mut periods = Periods::new(1);
        periods.tell(at(7));
        (0..1000).for_each(|_| assert_eq!(periods.block_begun(), None));
        assert_eq!(periods.bounds(periods.name(at(7))), Some((at(7), at(7))));
    }
}
