//! Bugs on purpose, of every crate that a server is built of, one of which a test plants for its thread: the simulator must then
//! find it. They exist only with the feature `planted-bugs`, which no release has.
//!
//! ```text
//!   plant(Bug) ─┬─► txn: participants, coordinators       ├─► store: collection
//!               └─► wal: acknowledgements, recovery       └─► session: reports, silence
//! ```

/// One bug.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bug {
    /// Validated reads do not raise `latest_read` (step 3 of validation left out).
    NoStep3,
    /// The read bound is forgotten at a restart.
    ForgottenReadBound,
    /// The log reports batches as durable before they are synced.
    EarlyAcknowledgement,
    /// A participant votes before its promise is durable.
    EarlyVote,
    /// Recovery skips the last block of the log.
    SkippedBlock,
    /// Reads of absent keys leave no mark.
    NoMarkOfAbsence,
    /// A commit is applied at the first promised timestamp instead of the decided one.
    AppliedAtPrepared,
    /// Outcomes are forgotten at once, so that a late prepare is accepted after its decision.
    LatePrepare,
    /// Tombstones are collected too early.
    EarlyTombstone,
    /// A shard's watermark looks at one session only.
    WatermarkOfOne,
    /// A client's report ignores its oldest open transaction.
    IgnoredSession,
    /// The floor of marks moves backwards.
    FallingFloor,
    /// A duplicate of a promised prepare is validated again.
    RevalidatedDuplicate,
    /// A participant's vote counts as often as it comes.
    DuplicateVote,
    /// Votes for lower timestamps count.
    LowerVote,
    /// Termination answers without freezing.
    NoFreeze,
    /// A key is free before its put can be read.
    EarlyRelease,
    /// Recovery drops prepared transactions.
    LostPromise,
    /// Connections that are silent are never given up.
    NeverRedials,
    /// A commit that should wait for the clocks is acknowledged without the wait.
    NoExternalWait,
    /// Versions that nobody may read any more are never given up.
    DeadVersions,
    /// Outcomes of decided transactions are never forgotten.
    HoardedOutcomes,
    /// Clients that are gone are never forgotten.
    HoardedClients,
    /// A shard never tells its log what it no longer needs.
    HoardedLog,
    /// Recovery believes promises whose decisions are gone from the log.
    RevivedPromise,
    /// A write that was reported as unknown goes on being tried at later timestamps.
    UndoneWrite,
    /// Clients that say goodbye are waited for like those that fall silent.
    DeafToFarewells,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 27] = [
        Self::NoStep3,
        Self::ForgottenReadBound,
        Self::EarlyAcknowledgement,
        Self::EarlyVote,
        Self::SkippedBlock,
        Self::NoMarkOfAbsence,
        Self::AppliedAtPrepared,
        Self::LatePrepare,
        Self::EarlyTombstone,
        Self::WatermarkOfOne,
        Self::IgnoredSession,
        Self::FallingFloor,
        Self::RevalidatedDuplicate,
        Self::DuplicateVote,
        Self::LowerVote,
        Self::NoFreeze,
        Self::EarlyRelease,
        Self::LostPromise,
        Self::NeverRedials,
        Self::NoExternalWait,
        Self::DeadVersions,
        Self::HoardedOutcomes,
        Self::HoardedClients,
        Self::HoardedLog,
        Self::RevivedPromise,
        Self::UndoneWrite,
        Self::DeafToFarewells,
    ];
}

std::thread_local! {
    static HOARDS_LOG: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    static REVIVES_PROMISES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    static DEFERS_PUTS: std::cell::Cell<Option<u32>> = const { std::cell::Cell::new(None) };
}

/// For so many turns puts wait.
const TURNS: u32 = 256;

/// Makes a rare path common on this thread, no bug by itself: puts of decided transactions wait for some turns of their shard, as
/// they do when the store has no room for them at once.
pub fn defer_puts(wanted: bool) {
    DEFERS_PUTS.set(wanted.then_some(0));
}

pub(crate) fn defers_puts() -> bool {
    DEFERS_PUTS.get().is_some()
}

/// Whether puts that wait go on waiting in this turn.
pub(crate) fn puts_still_wait() -> bool {
    let Some(turn) = DEFERS_PUTS.get() else { return false };
    DEFERS_PUTS.set(Some((turn + 1) % TURNS));
    turn != 0
}

/// Whether shards never release what their log holds.
pub(crate) fn hoards_log() -> bool {
    HOARDS_LOG.get()
}

/// Whether a recovery believes every promise that it finds.
pub(crate) fn revives_promises() -> bool {
    REVIVES_PROMISES.get()
}

/// Plants a bug on this thread, instead of the one that is planted there; `None` ends that.
pub fn plant(bug: Option<Bug>) {
    let is = |one| bug == Some(one);
    HOARDS_LOG.set(is(Bug::HoardedLog));
    REVIVES_PROMISES.set(is(Bug::RevivedPromise));
    timestone_txn::plant(bug.map(|_| timestone_txn::PlantedBugs {
        skip_step_3: is(Bug::NoStep3),
        forget_read_bound: is(Bug::ForgottenReadBound),
        vote_before_durable: is(Bug::EarlyVote),
        forget_absent_marks: is(Bug::NoMarkOfAbsence),
        apply_at_prepared: is(Bug::AppliedAtPrepared),
        forget_outcomes: is(Bug::LatePrepare),
        watermark_of_one: is(Bug::WatermarkOfOne),
        lower_floor: is(Bug::FallingFloor),
        revalidate_duplicates: is(Bug::RevalidatedDuplicate),
        count_duplicates: is(Bug::DuplicateVote),
        count_stale_votes: is(Bug::LowerVote),
        answer_without_freezing: is(Bug::NoFreeze),
        free_before_applied: is(Bug::EarlyRelease),
        recover_without_prepared: is(Bug::LostPromise),
        skip_external_wait: is(Bug::NoExternalWait),
        hoard_outcomes: is(Bug::HoardedOutcomes),
        hoard_clients: is(Bug::HoardedClients),
        deaf_to_farewells: is(Bug::DeafToFarewells),
        ..timestone_txn::PlantedBugs::default()
    }));
    timestone_wal::planted::plant(timestone_wal::planted::PlantedBugs {
        acknowledge_before_sync: is(Bug::EarlyAcknowledgement),
        skip_last_block: is(Bug::SkippedBlock),
    });
    timestone_store::planted::plant(timestone_store::planted::PlantedBugs {
        drop_tombstones_early: is(Bug::EarlyTombstone),
        keep_dead_versions: is(Bug::DeadVersions),
    });
    timestone_session::planted::plant(timestone_session::planted::PlantedBugs {
        ignore_oldest_session: is(Bug::IgnoredSession),
        never_gives_up: is(Bug::NeverRedials),
        undoes_later_writes: is(Bug::UndoneWrite),
    });
}
