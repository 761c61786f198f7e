//! Bugs on purpose, of every crate that a server is built of, one of which a test plants for its
//! thread: the simulator must then find it. They exist only with the feature `planted-bugs`, which
//! no release has.
//!
//! ```text
//!   plant(Bug) ─┬─► txn: participants, coordinators       ├─► store: collection
//!               ├─► wal: acknowledgements, recovery       ├─► session: reports, silence
//!               └─► seda: what is owed to peers
//! ```

pub use timestone_types::planted::{Bug, defer_puts, is_planted, shorten_scan_pages};

/// What this comes to with the bug planted on this thread.
#[cfg(test)]
pub(crate) fn with<T>(bug: Bug, run: impl FnOnce() -> T) -> T {
    plant(Some(bug));
    let found = run();
    plant(None);
    found
}

/// Plants a bug on this thread, instead of the one that is planted there; `None` ends that.
pub fn plant(bug: Option<Bug>) {
    let is = |one| bug == Some(one);
    timestone_types::planted::set(bug);
    timestone_txn::plant(bug.map(|_| timestone_txn::PlantedBugs {
        skip_step_3: is(Bug::NoStep3),
        forget_read_bound: is(Bug::ForgottenReadBound),
        read_before_first_bound: is(Bug::ReadBeforeFirstBound),
        vote_before_durable: is(Bug::EarlyVote),
        forget_absent_marks: is(Bug::NoMarkOfAbsence),
        apply_at_prepared: is(Bug::AppliedAtPrepared),
        forget_outcomes: is(Bug::LatePrepare),
        scan_below_acknowledged: is(Bug::ScanBelowAcknowledged),
        keep_conditions_over_fences: is(Bug::ConditionOverFence),
        watermark_of_one: is(Bug::WatermarkOfOne),
        lower_low_water: is(Bug::FallingFloor),
        revalidate_duplicates: is(Bug::RevalidatedDuplicate),
        count_duplicates: is(Bug::DuplicateVote),
        count_stale_votes: is(Bug::LowerVote),
        answer_without_freezing: is(Bug::NoFreeze),
        free_before_applied: is(Bug::EarlyRelease),
        recover_without_prepared: is(Bug::LostPromise),
        judge_expiry_by_clients: is(Bug::ExpiryByClients),
        skip_external_wait: is(Bug::NoExternalWait),
        forget_expiry: is(Bug::ForgottenExpiry),
        forget_told_expiry: is(Bug::ForgottenToldExpiry),
        tell_expiry_at_once: is(Bug::UnsettledExpiry),
        forget_sessions: is(Bug::ForgottenSessions),
        hoard_outcomes: is(Bug::HoardedOutcomes),
        hoard_clients: is(Bug::HoardedClients),
        deaf_to_farewells: is(Bug::DeafToFarewells),
        believe_late_clocks: is(Bug::BelievedLateClocks),
        // A revived promise that a peer calls finished would be forgotten at once.
        wait_for_finished: is(Bug::RevivedPromise),
        // One whose put is in the store would be known as committed.
        overlook_applied: is(Bug::RevivedPromise),
        ignore_known_ends: is(Bug::IgnoredEnds),
        ..timestone_txn::PlantedBugs::default()
    }));
    timestone_wal::planted::plant(timestone_wal::planted::PlantedBugs {
        acknowledge_before_sync: is(Bug::EarlyAcknowledgement),
        skip_last_block: is(Bug::SkippedBlock),
        believe_everything: is(Bug::UncheckedBytes),
        ask_once: false,
    });
    timestone_store::planted::plant(timestone_store::planted::PlantedBugs {
        drop_tombstones_early: is(Bug::EarlyTombstone),
        trust_unsynced_pages: is(Bug::UnsyncedIsStable),
        keep_dead_versions: is(Bug::DeadVersions),
        prune_by_what_is_not_durable: is(Bug::BuriedTooEarly),
        forget_deletes: is(Bug::ForgottenDeletes),
        forget_what_was_lost: is(Bug::ForgottenMemoryLoss),
        collect_one_too_many: is(Bug::OneVersionTooFew),
        drop_what_a_page_cannot_hold: is(Bug::ScanSkips),
        believe_everything: is(Bug::UncheckedBytes),
        ..timestone_store::planted::PlantedBugs::default()
    });
    timestone_seda::planted::plant(timestone_seda::planted::PlantedBugs {
        ignores_output_limit: is(Bug::BoundlessOutput),
        waits_for_readers: is(Bug::WaitsForReaders),
        ..timestone_seda::planted::PlantedBugs::default()
    });
}
