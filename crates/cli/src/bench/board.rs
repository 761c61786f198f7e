//! What the sessions of one event loop write down together, and what all loops of a run share.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use timestone_types::Timestamp;
use timestone_workload::{Arrivals, Recorder, Snapshots, WorkloadSpec};

use super::Setup;
use super::history::Chronicle;
use crate::failure::Failure;

/// What the run is doing. It only goes forward.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(super) enum CoursePhase {
    /// Running, and not measured yet.
    Warmup = 0,
    /// Measured.
    Measure = 1,
    /// Coming to its end: no new transactions.
    Stop = 2,
}

/// How far a run is, whatever it runs.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) begin: Instant,
    phase: AtomicU8,
    /// Committed while measured, as last published; for the progress bar.
    pub(super) committed: AtomicU64,
}

impl Course {
    /// One that begins now.
    pub(super) fn new() -> Self {
        let begin = Instant::now();
        Self {
            begin,
            phase: AtomicU8::new(CoursePhase::Warmup as u8),
            committed: AtomicU64::new(0),
        }
    }

    /// Goes on to a later phase.
    pub(super) fn enter(&self, phase: CoursePhase) {
        self.phase.fetch_max(phase as u8, Relaxed);
    }

    /// Whether transactions that end now count.
    pub(super) fn is_measured(&self) -> bool {
        self.phase.load(Relaxed) == CoursePhase::Measure as u8
    }

    /// Whether no new transactions are to begin.
    pub(super) fn is_over(&self) -> bool {
        self.phase.load(Relaxed) == CoursePhase::Stop as u8
    }
}

/// What all threads of a run share.
#[derive(Debug)]
pub(super) struct BenchRun {
    pub(super) spec: WorkloadSpec,
    pub(super) retry: bool,
    /// How far in the past what only reads may read, and at backups.
    pub(super) max_staleness: Option<Duration>,
    /// Whether operations are requests of their own, not in transactions.
    pub(super) singles: bool,
    pub(super) chronicle: Option<Chronicle>,
    /// How old what is read is, where clocks are wrong or snapshots old on purpose.
    pub(super) snapshots: Option<Snapshots>,
    pub(super) course: Course,
}

impl BenchRun {
    /// A run that begins now.
    pub(super) fn new(
        setup: &Setup,
        chronicle: Option<Chronicle>,
        snapshots: Option<Snapshots>,
    ) -> Self {
        Self {
            spec: setup.spec.clone(),
            retry: setup.retry,
            max_staleness: setup.max_staleness,
            singles: setup.singles,
            chronicle,
            snapshots,
            course: Course::new(),
        }
    }
}

/// Sums over all accounts of the bank, in snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Totals {
    /// Snapshots that were looked at.
    pub(super) checked: u64,
    /// Those whose sum was not the bank's total.
    pub(super) wrong: u64,
    /// The first wrong sum.
    pub(super) first_wrong: i64,
}

impl Totals {
    /// Looks at one sum.
    pub(super) fn check(&mut self, sum: i64, expected: i64) {
        self.checked += 1;
        if sum != expected {
            if self.wrong == 0 {
                self.first_wrong = sum;
            }
            self.wrong += 1;
        }
    }

    /// Adds what another loop saw.
    pub(super) fn merge(&mut self, other: &Self) {
        if self.wrong == 0 {
            self.first_wrong = other.first_wrong;
        }
        self.checked += other.checked;
        self.wrong += other.wrong;
    }
}

/// What one event loop's sessions share. One histogram for all of them: 256 of their own would not
/// fit the processor's caches.
#[derive(Debug)]
pub(super) struct Board {
    pub(super) run: Arc<BenchRun>,
    pub(super) recorder: RefCell<Recorder>,
    pub(super) totals: Cell<Totals>,
    /// Sessions that have not ended.
    pub(super) live: Cell<u32>,
    arrivals: Option<RefCell<Arrivals>>,
    /// The first error that was no abort; shown when nothing commits.
    pub(super) first_error: RefCell<Option<timestone::Error>>,
    /// Something that makes the run worthless; ends it.
    pub(super) broken: RefCell<Option<Failure>>,
}

impl Board {
    /// An empty board for `sessions` sessions.
    pub(super) fn new(run: Arc<BenchRun>, sessions: u32, arrivals: Option<Arrivals>) -> Self {
        Self {
            run,
            recorder: RefCell::default(),
            totals: Cell::default(),
            live: Cell::new(sessions),
            arrivals: arrivals.map(RefCell::new),
            first_error: RefCell::default(),
            broken: RefCell::default(),
        }
    }

    /// Open loop: when the next transaction is meant to start, counted from the run's begin. Closed
    /// loop: `None`, at once.
    pub(super) fn next_start(&self) -> Option<Duration> {
        let start = self.arrivals.as_ref()?.borrow_mut().next_start();
        Some(start.since(Timestamp::ZERO))
    }

    /// Whether the loop is closed: the next transaction starts when the last one has ended.
    pub(super) const fn next_is_at_once(&self) -> bool {
        self.arrivals.is_none()
    }

    /// Ends the run because of `failure`.
    pub(super) fn give_up(&self, failure: Failure) {
        self.broken.borrow_mut().get_or_insert(failure);
        self.run.course.enter(CoursePhase::Stop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_only_go_forward() {
        let run = Course::new();
        assert!(!run.is_measured() && !run.is_over());
        run.enter(CoursePhase::Measure);
        assert!(run.is_measured());
        run.enter(CoursePhase::Stop);
        run.enter(CoursePhase::Measure);
        assert!(run.is_over() && !run.is_measured());
    }

    #[test]
    fn wrong_totals_are_counted_and_the_first_is_kept() {
        let (mut totals, mut other) = (Totals::default(), Totals::default());
        totals.check(100, 100);
        other.check(99, 100);
        other.check(98, 100);
        totals.merge(&other);
        assert_eq!(totals, Totals { checked: 3, wrong: 2, first_wrong: 99 });
    }
}
