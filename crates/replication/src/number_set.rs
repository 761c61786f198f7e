//! Which batches somebody has: all of them up to a number, and some above it.

use timestone_wal::BatchNumber;

use crate::limits::{MAX_RUNS, MAX_RUNS_TOLD};

/// See the module. Runs above the first hole are few: they come from lost messages.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NumberSet {
    through: BatchNumber,
    /// First and last of each run above the first hole, ascending, with a hole before each.
    above: Vec<(BatchNumber, BatchNumber)>,
}

impl NumberSet {
    /// All batches up to this one.
    #[must_use]
    pub const fn through(through: BatchNumber) -> Self {
        Self { through, above: Vec::new() }
    }

    /// A set as another replica told it; `None` where these are no runs of one: they ascend, with a
    /// hole before each, and are at most [`MAX_RUNS_TOLD`].
    #[must_use]
    pub fn new(through: BatchNumber, runs: Vec<(BatchNumber, BatchNumber)>) -> Option<Self> {
        let set = Self { through, above: runs };
        (set.above.len() <= MAX_RUNS_TOLD && set.is_sound()).then_some(set)
    }

    /// A set of runs in any order, which may touch.
    #[must_use]
    pub fn from_runs(
        through: BatchNumber,
        runs: impl IntoIterator<Item = (BatchNumber, BatchNumber)>,
    ) -> Self {
        let mut set = Self::through(through);
        for (first, last) in runs {
            set.insert_run(first, last);
        }
        set
    }

    /// The last batch before the first hole.
    #[must_use]
    pub const fn prefix(&self) -> BatchNumber {
        self.through
    }

    /// First and last of each run above the first hole, ascending.
    #[must_use]
    pub fn runs(&self) -> &[(BatchNumber, BatchNumber)] {
        &self.above
    }

    /// The highest batch.
    #[must_use]
    pub fn last(&self) -> BatchNumber {
        self.above.last().map_or(self.through, |run| run.1)
    }

    /// Whether the batch is in it.
    #[must_use]
    pub fn contains(&self, number: BatchNumber) -> bool {
        number <= self.through
            || self.above.iter().any(|&(first, last)| first <= number && number <= last)
    }

    /// Whether a batch can be added without more than [`MAX_RUNS`] runs.
    pub(crate) fn has_room_for(&self, number: BatchNumber) -> bool {
        let touches = |&(first, last): &(BatchNumber, BatchNumber)| {
            number.next() >= first && number <= last.next()
        };
        self.above.len() < MAX_RUNS
            || number <= self.through.next()
            || self.above.iter().any(touches)
    }

    /// Adds a batch.
    pub fn insert(&mut self, number: BatchNumber) {
        if self.above.is_empty() && number == self.through.next() {
            self.through = number;
            return;
        }
        self.insert_run(number, number);
    }

    /// Adds what another one has.
    pub fn add(&mut self, other: &Self) {
        self.insert_run(BatchNumber::ZERO, other.through);
        for &(first, last) in &other.above {
            self.insert_run(first, last);
        }
    }

    /// Forgets what lies above this batch.
    pub fn cut(&mut self, at: BatchNumber) {
        self.through = self.through.min(at);
        self.above.retain_mut(|(first, last)| {
            *last = (*last).min(at);
            *first <= at
        });
    }

    /// The batches up to `until` that are not in it, ascending.
    pub fn missing(&self, until: BatchNumber) -> impl Iterator<Item = BatchNumber> + '_ {
        let numbers = self.through.next().get()..=until.get();
        numbers.map(BatchNumber::new).filter(|&number| !self.contains(number))
    }

    fn insert_run(&mut self, mut first: BatchNumber, mut last: BatchNumber) {
        if last < first || last <= self.through {
            return;
        }
        if first <= self.through.next() {
            self.through = last;
        } else {
            self.above.retain(|run| {
                let touches = run.0 <= last.next() && first <= run.1.next();
                if touches {
                    (first, last) = (first.min(run.0), last.max(run.1));
                }
                !touches
            });
            let at = self.above.partition_point(|run| run.0 < first);
            self.above.insert(at, (first, last));
        }
        while let Some(&(first, last)) = self.above.first()
            && first <= self.through.next()
        {
            self.through = self.through.max(last);
            self.above.remove(0);
        }
        debug_assert!(self.is_sound(), "runs ascend with holes between them");
    }

    fn is_sound(&self) -> bool {
        let mut before = self.through;
        self.above.iter().all(|&(first, last)| {
            let follows = before.next() < first && first <= last;
            before = last;
            follows
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use timestone_types::random::Seed;

    use super::*;

    fn number(raw: u64) -> BatchNumber {
        BatchNumber::new(raw)
    }

    #[test]
    fn a_set_says_what_was_put_into_it() {
        for seed in 0..300 {
            let mut dice = Seed(seed).dice();
            let (mut set, mut model) = (NumberSet::default(), BTreeSet::new());
            for _ in 0..40 {
                match dice.below(8) {
                    0 => {
                        let at = dice.below(30);
                        set.cut(number(at));
                        model.retain(|&one| one <= at);
                    }
                    1 => {
                        let (first, other) = (dice.below(30) + 1, dice.below(6));
                        let runs = [(number(first), number(first + other))];
                        set.add(&NumberSet::from_runs(number(0), runs));
                        model.extend(first..=first + other);
                    }
                    _ => {
                        let one = dice.below(30) + 1;
                        set.insert(number(one));
                        model.insert(one);
                    }
                }
                assert!(set.is_sound());
                for one in 1..40 {
                    assert_eq!(set.contains(number(one)), model.contains(&one), "{one} in {set:?}");
                }
                let missing: Vec<u64> = set.missing(number(35)).map(BatchNumber::get).collect();
                let lacked: Vec<u64> = (1..=35).filter(|one| !model.contains(one)).collect();
                assert_eq!(missing, lacked);
                assert_eq!(set.last().get(), model.last().copied().unwrap_or(0));
                assert_eq!(NumberSet::from_runs(set.prefix(), set.runs().iter().copied()), set);
                assert_eq!(NumberSet::new(set.prefix(), set.runs().to_vec()), Some(set.clone()));
            }
        }
    }

    #[test]
    fn what_is_no_set_is_not_taken_for_one() {
        let told = |through: u64, runs: &[(u64, u64)]| {
            let runs = runs.iter().map(|&(first, last)| (number(first), number(last))).collect();
            NumberSet::new(number(through), runs)
        };
        assert!(told(3, &[(5, 5), (7, 9)]).is_some() && told(u64::MAX, &[]).is_some());
        assert!(told(3, &[(u64::MAX, u64::MAX)]).is_some());
        for runs in [
            &[(4, 5)][..],
            &[(3, 5)],
            &[(0, 9)],
            &[(6, 5)],
            &[(7, 9), (5, 5)],
            &[(5, 6), (7, 9)],
            &[(5, 7), (7, 9)],
            &[(5, u64::MAX), (u64::MAX, u64::MAX)],
        ] {
            assert_eq!(told(3, runs), None, "{runs:?}");
        }
        assert_eq!(told(u64::MAX, &[(u64::MAX, u64::MAX)]), None);
        let many: Vec<_> = (1..=MAX_RUNS_TOLD as u64 + 1).map(|run| (2 * run, 2 * run)).collect();
        assert_eq!(told(0, &many), None, "too many runs");
        assert!(told(0, &many[1..]).is_some());
    }
}
