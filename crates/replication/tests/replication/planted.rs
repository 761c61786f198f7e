//! Each bug on purpose is caught by the random runs, or by a golden run of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};

use timestone_types::planted::{self, Bug};

use crate::random::run;
use crate::rebuilding;

/// The first of the seeds that finds the bug.
fn found_by(bug: Bug) -> Option<u64> {
    (0..3_000).find(|&seed| {
        planted::with(bug, || catch_unwind(AssertUnwindSafe(|| run(seed, 600))).is_err())
    })
}

/// Bugs that take more than chance, and what runs into them.
const BY_SCRIPT: [(Bug, fn()); 8] = [
    (Bug::ForgetsWhatItGaveUp, rebuilding::who_has_a_batch_has_given_it_up),
    (Bug::CountsEarlierLives, rebuilding::an_acknowledgement_is_late),
    (Bug::RebuildsFromDeposed, rebuilding::a_deposed_primary_gives_a_checkpoint),
    (Bug::ForgetsGrants, rebuilding::a_lease_was_granted_before_the_log_was_lost),
    (Bug::CountsLossInBase, rebuilding::who_has_a_batch_has_lost_it_in_the_same_epoch),
    (Bug::KeepsFirstLoss, rebuilding::who_has_a_batch_has_lost_it_after_an_earlier_loss),
    (Bug::WaitsForTakenCheckpoint, rebuilding::another_primary_ends_the_checkpoint),
    (Bug::StaysInOldEpoch, rebuilding::a_candidate_gives_a_checkpoint_and_the_old_primary_asks),
];

#[test]
fn every_planted_bug_is_caught() {
    std::panic::set_hook(Box::new(|_| {}));
    let missed = BY_SCRIPT
        .iter()
        .filter(|(bug, run)| planted::with(*bug, || catch_unwind(AssertUnwindSafe(run)).is_ok()));
    let missed: Vec<Bug> = missed.map(|(bug, _)| *bug).collect();
    assert!(missed.is_empty(), "not found by a golden run: {missed:?}");
    let bugs = [
        Bug::AcceptsOldEpoch,
        Bug::AcksBeforeLog,
        Bug::AcksBeforeInstall,
        Bug::AnswersAfterLoss,
        Bug::GivesUpInSilence,
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
