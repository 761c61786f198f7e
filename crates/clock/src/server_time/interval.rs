//! Intervals of offsets, and what several of them agree on.
//!
//! ```text
//!   server 1      ├──────────────┤
//!   server 2           ├────────────────┤
//!   server 3                                       ├────┤     outvoted
//!   a majority         ├─────────┤
//! ```
//! As in Marzullo's algorithm: the truth lies where enough intervals overlap. What is returned reaches
//! from the first to the last point that as many have as must be honest. So whatever a minority claims,
//! the truth lies within; the point that most agree on need not be it.

/// From `least_ns` to `most_ns`, both included, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetInterval {
    least_ns: i64,
    most_ns: i64,
}

impl OffsetInterval {
    /// All between these; `None` when there is nothing between them.
    #[must_use]
    pub const fn new(least_ns: i64, most_ns: i64) -> Option<Self> {
        if least_ns <= most_ns { Some(Self { least_ns, most_ns }) } else { None }
    }

    /// All that is within `by_ns` of a point.
    #[must_use]
    pub const fn around(middle_ns: i64, by_ns: u64) -> Self {
        Self { least_ns: middle_ns, most_ns: middle_ns }.widened(by_ns)
    }

    /// The lower end, in nanoseconds.
    #[must_use]
    pub const fn least_ns(self) -> i64 {
        self.least_ns
    }

    /// The upper end, in nanoseconds.
    #[must_use]
    pub const fn most_ns(self) -> i64 {
        self.most_ns
    }

    /// The same with so many nanoseconds more at either end.
    #[must_use]
    pub const fn widened(self, by_ns: u64) -> Self {
        Self {
            least_ns: self.least_ns.saturating_sub_unsigned(by_ns),
            most_ns: self.most_ns.saturating_add_unsigned(by_ns),
        }
    }

    /// What both have; `None` when that is nothing.
    #[must_use]
    pub fn intersection(self, other: Self) -> Option<Self> {
        Self::new(self.least_ns.max(other.least_ns), self.most_ns.min(other.most_ns))
    }

    /// Whether a point lies within.
    #[must_use]
    pub const fn contains(self, at_ns: i64) -> bool {
        self.least_ns <= at_ns && at_ns <= self.most_ns
    }

    /// The middle: what is furthest from being wrong.
    #[must_use]
    pub const fn middle_ns(self) -> i64 {
        self.least_ns.saturating_add_unsigned(self.most_ns.abs_diff(self.least_ns) / 2)
    }

    /// How far a point may be from any other one that lies within.
    #[must_use]
    pub fn furthest_from_ns(self, at_ns: i64) -> u64 {
        at_ns.abs_diff(self.least_ns).max(at_ns.abs_diff(self.most_ns))
    }
}

/// From the first to the last point that so many of the intervals have; `None` where there is no such
/// point.
pub(super) fn agreed(
    intervals: impl Iterator<Item = OffsetInterval> + Clone,
    by: usize,
) -> Option<OffsetInterval> {
    debug_assert!(by > 0, "nobody agrees on everything");
    let count = |at_ns: i64| intervals.clone().filter(|interval| interval.contains(at_ns)).count();
    let is_possible = |at_ns: &i64| count(*at_ns) >= by;
    let least_ns = intervals.clone().map(OffsetInterval::least_ns).filter(is_possible).min()?;
    let most_ns = intervals.clone().map(OffsetInterval::most_ns).filter(is_possible).max()?;
    let agreed = OffsetInterval::new(least_ns, most_ns);
    debug_assert!(agreed.is_some(), "a last point without a first one");
    agreed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(least_ns: i64, most_ns: i64) -> OffsetInterval {
        OffsetInterval::new(least_ns, most_ns).unwrap()
    }

    #[test]
    fn a_liar_is_outvoted_and_a_tie_excludes_nobody() {
        let honest = [interval(-10, 20), interval(0, 30)];
        let of = |third, votes| agreed(honest.into_iter().chain([third]), votes);
        assert_eq!(of(interval(500, 501), 2), Some(interval(0, 20)));
        assert_eq!(of(interval(500, 501), 3), None);
        assert_eq!(of(interval(5, 6), 3), Some(interval(5, 6)));
        // It agrees with each of the others on something else: the truth may be either.
        assert_eq!(of(interval(15, 40), 2), Some(interval(0, 30)));
        assert_eq!(agreed(honest.into_iter(), 2), Some(interval(0, 20)));
        // Two of three were heard of, and one of them may lie.
        assert_eq!(agreed(honest.into_iter(), 1), Some(interval(-10, 30)));
        assert_eq!(agreed([interval(0, 1), interval(2, 3)].into_iter(), 2), None);
        assert_eq!(agreed(std::iter::empty(), 1), None);
    }

    #[test]
    fn ends_are_found_without_overflow() {
        let all = interval(i64::MIN, i64::MAX);
        assert_eq!(all.widened(7), all);
        assert!(all.middle_ns().abs() <= 1);
        assert_eq!(interval(3, 6).furthest_from_ns(4), 2);
        assert_eq!(OffsetInterval::new(1, 0), None);
        assert_eq!(OffsetInterval::around(5, 2), interval(3, 7));
    }
}
