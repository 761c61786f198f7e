//! How long a takeover takes, step by step: for the log.

use std::time::Duration;

use timestone_replication::Step;
use timestone_types::Timestamp;

/// When a candidate began, and when it had come how far.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakeoverTimes {
    began: Timestamp,
    /// Enough replicas had joined.
    joined: Option<Timestamp>,
    /// All of the table was here.
    fetched: Option<Timestamp>,
}

impl TakeoverTimes {
    pub(super) const fn begin(now: Timestamp) -> Self {
        Self { began: now, joined: None, fetched: None }
    }

    /// The candidate is at this step.
    pub(super) fn note(&mut self, now: Timestamp, step: Step) {
        if matches!(step, Step::Fetching | Step::Installing | Step::Serving) {
            self.joined.get_or_insert(now);
        }
        if matches!(step, Step::Installing | Step::Serving) {
            self.fetched.get_or_insert(now);
        }
        debug_assert!(
            self.joined <= self.fetched || self.fetched.is_none(),
            "it joins, then fetches"
        );
    }

    /// What joining, fetching and installing took; the last of them has ended now.
    pub(super) fn took(&self, now: Timestamp) -> [Duration; 3] {
        let joined = self.joined.unwrap_or(now);
        let fetched = self.fetched.unwrap_or(now);
        [joined.since(self.began), fetched.since(joined), now.since(fetched)]
    }
}

/// Milliseconds, as log lines have them.
pub(super) fn millis(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e5).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn each_step_is_told_from_the_one_before_it() {
        let mut times = TakeoverTimes::begin(at(10));
        times.note(at(11), Step::Joining);
        times.note(at(14), Step::Fetching);
        times.note(at(16), Step::Fetching);
        times.note(at(19), Step::Installing);
        assert_eq!(times.took(at(29)).map(millis), [4.0, 5.0, 10.0]);
    }

    #[test]
    fn steps_that_are_made_at_once_take_no_time() {
        let mut times = TakeoverTimes::begin(at(10));
        times.note(at(12), Step::Serving);
        assert_eq!(times.took(at(12)).map(millis), [2.0, 0.0, 0.0]);
    }
}
