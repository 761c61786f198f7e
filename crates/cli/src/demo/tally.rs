//! What the workload's sessions count, and what a second of it comes to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use timestone::AbortKind;

/// How transactions ended.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Endings {
    pub(super) committed: u64,
    /// By a conflict: nothing was written.
    pub(super) aborted: u64,
    /// For another reason: nothing was written.
    pub(super) refused: u64,
    /// The answer was lost.
    pub(super) unknown: u64,
}

impl Endings {
    const fn since(self, earlier: Self) -> Self {
        Self {
            committed: self.committed - earlier.committed,
            aborted: self.aborted - earlier.aborted,
            refused: self.refused - earlier.refused,
            unknown: self.unknown - earlier.unknown,
        }
    }
}

/// The longest time without a commit on one shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Gap {
    last_commit: Instant,
    longest: Duration,
    longest_of_all: Duration,
}

impl Gap {
    fn note(&mut self, now: Instant) {
        let span = now.saturating_duration_since(self.last_commit);
        self.longest = self.longest.max(span);
        self.longest_of_all = self.longest_of_all.max(span);
    }
}

/// What there was since the last figures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Figures {
    /// Since the last ones.
    pub(super) endings: Endings,
    /// How long that was.
    pub(super) span: Duration,
    /// For each shard the longest time without a commit; one that lasts counts.
    pub(super) pauses: Vec<Duration>,
    /// Sums of all accounts that were looked at, since the beginning.
    pub(super) checked: u64,
}

impl Figures {
    /// So many a second.
    pub(super) fn per_second(&self, count: u64) -> u64 {
        (count as f64 / self.span.as_secs_f64().max(f64::EPSILON)).round() as u64
    }

    /// The longest pause, and the shard that had it.
    pub(super) fn longest_pause(&self) -> (usize, Duration) {
        longest(&self.pauses)
    }
}

fn longest(pauses: &[Duration]) -> (usize, Duration) {
    let by_length = pauses.iter().copied().enumerate().max_by_key(|(_, pause)| *pause);
    by_length.unwrap_or_default()
}

/// The counters of a workload.
#[derive(Debug)]
pub(super) struct Tally {
    expected: i64,
    endings: Endings,
    told: (Instant, Endings),
    gaps: Vec<Option<Gap>>,
    checked: u64,
    /// What is wrong with the bank.
    wrong: Option<String>,
    /// By what conflicts aborted.
    aborts: BTreeMap<&'static str, u64>,
    last_refusal: Option<String>,
}

impl Tally {
    /// None of a bank whose accounts hold `expected` together; `shards_in_use` tells of each shard
    /// whether it has accounts.
    pub(super) fn new(expected: i64, shards_in_use: &[bool], now: Instant) -> Self {
        let gap = Gap { last_commit: now, longest: Duration::ZERO, longest_of_all: Duration::ZERO };
        Self {
            expected,
            endings: Endings::default(),
            told: (now, Endings::default()),
            gaps: shards_in_use.iter().map(|in_use| in_use.then_some(gap)).collect(),
            checked: 0,
            wrong: None,
            aborts: BTreeMap::new(),
            last_refusal: None,
        }
    }

    /// A transaction on these shards has committed.
    pub(super) fn committed(&mut self, shards: &[usize], now: Instant) {
        self.endings.committed += 1;
        for &shard in shards {
            let gap = self.gaps[shard].as_mut().expect("an account is on it");
            gap.note(now);
            gap.last_commit = now;
        }
    }

    /// One met a conflict.
    pub(super) fn aborted(&mut self, kind: AbortKind) {
        self.endings.aborted += 1;
        *self.aborts.entry(kind.name()).or_default() += 1;
    }

    /// One was refused.
    pub(super) fn refused(&mut self, why: String) {
        self.endings.refused += 1;
        self.last_refusal = Some(why);
    }

    /// The answer of one was lost.
    pub(super) fn unknown(&mut self) {
        self.endings.unknown += 1;
    }

    /// So much all accounts held together, in one snapshot.
    pub(super) fn check(&mut self, sum: i64) {
        self.checked += 1;
        if sum != self.expected {
            let expected = self.expected;
            self.broken(format!("all accounts sum up to {sum}, not to {expected}"));
        }
    }

    /// The data is not the bank's; the first finding stays.
    pub(super) fn broken(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// What is wrong with the bank.
    pub(super) fn wrong(&self) -> Option<&str> {
        self.wrong.as_deref()
    }

    /// What conflicts aborted, by their kinds.
    pub(super) const fn aborts(&self) -> &BTreeMap<&'static str, u64> {
        &self.aborts
    }

    /// Why the last transaction was refused that was.
    pub(super) fn last_refusal(&self) -> Option<&str> {
        self.last_refusal.as_deref()
    }

    /// Everything since the beginning.
    pub(super) const fn all(&self) -> Endings {
        self.endings
    }

    /// Sums that were looked at.
    pub(super) const fn checked_count(&self) -> u64 {
        self.checked
    }

    /// The longest pause of all, and the shard that had it.
    pub(super) fn longest_pause_of_all(&self) -> (usize, Duration) {
        let pause = |gap: &Option<Gap>| gap.map_or(Duration::ZERO, |gap| gap.longest_of_all);
        longest(&self.gaps.iter().map(pause).collect::<Vec<_>>())
    }

    /// What there was since this was called last.
    pub(super) fn take(&mut self, now: Instant) -> Figures {
        let pause = |gap: &mut Option<Gap>| {
            gap.as_mut().map_or(Duration::ZERO, |gap| {
                gap.note(now);
                core::mem::take(&mut gap.longest)
            })
        };
        let (since, earlier) = core::mem::replace(&mut self.told, (now, self.endings));
        Figures {
            endings: self.endings.since(earlier),
            span: now.saturating_duration_since(since),
            pauses: self.gaps.iter_mut().map(pause).collect(),
            checked: self.checked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_its_own_figures() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let mut tally = Tally::new(100, &[true, false, true], begin);
        tally.committed(&[0, 2], at(100));
        tally.committed(&[0], at(900));
        tally.unknown();
        let figures = tally.take(at(2_000));
        assert_eq!(figures.endings, Endings { committed: 2, unknown: 1, ..Endings::default() });
        assert_eq!(figures.per_second(figures.endings.committed), 1);
        // The last pause goes on.
        assert_eq!(figures.pauses, [1_100, 0, 1_900].map(Duration::from_millis));
        tally.committed(&[2], at(2_500));
        tally.committed(&[0, 2], at(2_600));
        let figures = tally.take(at(3_000));
        assert_eq!(figures.longest_pause(), (2, Duration::from_millis(2_400)));
        assert_eq!(figures.endings.committed, 2);
        assert_eq!(tally.longest_pause_of_all(), (2, Duration::from_millis(2_400)));
    }

    #[test]
    fn the_first_wrong_sum_is_kept() {
        let mut tally = Tally::new(100, &[true], Instant::now());
        tally.check(100);
        assert_eq!(tally.wrong(), None);
        tally.check(99);
        tally.check(98);
        assert_eq!(tally.wrong(), Some("all accounts sum up to 99, not to 100"));
        assert_eq!(tally.checked_count(), 3);
    }
}
