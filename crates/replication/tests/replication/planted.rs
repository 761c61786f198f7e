//! Each bug on purpose is caught by the random runs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use timestone_types::planted::{self, Bug};

use crate::random::run;

/// The first of the seeds that finds the bug.
fn found_by(bug: Bug) -> Option<u64> {
    (0..3_000).find(|&seed| {
        planted::with(bug, || catch_unwind(AssertUnwindSafe(|| run(seed, 600))).is_err())
    })
}

#[test]
fn every_planted_bug_is_caught() {
    std::panic::set_hook(Box::new(|_| {}));
    let bugs = [
        Bug::AcceptsOldEpoch,
        Bug::AcksBeforeLog,
        Bug::AcksBeforeInstall,
        Bug::AnswersAfterLoss,
        Bug::MergesOldTables,
        Bug::ServesWithoutOwnCopy,
        Bug::CountsWithoutItself,
        Bug::AppliesUncounted,
        Bug::KeepsCutBatches,
        Bug::ReissuesEpoch,
    ];
    let found: Vec<(Bug, Option<u64>)> = bugs.iter().map(|&bug| (bug, found_by(bug))).collect();
    drop(std::panic::take_hook());
    let missed: Vec<_> = found.iter().filter(|(_, seed)| seed.is_none()).collect();
    assert!(missed.is_empty(), "not found: {missed:?} of {found:?}");
}
