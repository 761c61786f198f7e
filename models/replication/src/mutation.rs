//! Rules that are left out on purpose: each must be caught.

/// A rule of docs/protocol/replication.md that is broken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mutation {
    /// A new primary serves when its backups have installed the merged table, and it has not.
    ServesWithoutOwnCopy,
    /// What step 2 finds prepared at every shard is decided there and then.
    DecidesInMerge,
    /// A new primary says *yes* while the old one may still answer single reads.
    VotesUnderOldLease,
    /// A new primary answers single reads while the old one may.
    ReadsUnderOldLease,
    /// The merge forgets that a promise is frozen.
    ForgetsFreeze,
    /// Of two transactions that hold one key the new primary keeps one.
    KeepsOneOfTwo,
    /// Who asks for termination does not answer itself first.
    AskerDoesNotAnswer,
    /// Termination commits what is prepared everywhere, at whatever timestamps.
    IgnoresTimestamps,
    /// Replicas acknowledge records of epochs below the one that they have promised.
    AcceptsOldEpoch,
    /// Leases count from the answers with the newest table only.
    IgnoresLeases,
    /// A grant is forgotten when who granted it starts anew.
    GrantIsVolatile,
    /// The merge drops promises that are not decided.
    DropsPrepared,
    /// A *no* is told before it is replicated.
    NoIsNotReplicated,
    /// A backup acknowledges records of an epoch before it has installed the epoch's table.
    AcksBeforeInstall,
    /// A backup acknowledges a record before it has it.
    AcksBeforeLog,
    /// A deposed primary answers single reads when its lease is over.
    ReadsAboveLease,
    /// The merge forgets outcomes.
    ForgetsOutcomes,
    /// The master hands an epoch out twice.
    ReissuesEpoch,
    /// Records count from all answers of the merge, not from those with the newest table only.
    MergesOldTables,
    /// A new primary does not take the old leases as its floor.
    NoFloor,
    /// The merge drops a promise that every replica has: its number is at or below `stable`.
    DropsStablePrepared,
    /// Records become stable when all replicas but one have them.
    StableWithoutOne,
    /// A replica that has dropped a transaction's records stores another copy of one.
    RevivesDropped,
    /// Who installs a table drops its own records that the table leaves out as stable.
    DropsWhatIsLeftOut,
    /// What a table says is committed is put into the store before the table counts.
    PutsBeforeItCounts,
    /// An outcome is dropped before its client has acknowledged it, or the watermark has passed.
    DropsUnacknowledged,
    /// A commit is dropped before every participant has acknowledged it.
    DropsUntold,
    /// A participant acknowledges a commit that is not replicated.
    AcknowledgesDecisionEarly,
    /// A primary acts on its watermark before that is replicated.
    WatermarkIsLocal,
    /// The merge forgets the watermark.
    ForgetsWatermark,
    /// What began below the watermark is answered *no*, a repeat of something forgotten as well.
    TooOldIsNo,
    /// Who asks for termination takes it for an abort that somebody has forgotten a transaction.
    TakesForgottenForAborted,
    /// Who has forgotten a transaction does not answer termination.
    SaysNothingOfForgotten,
    /// Who gives a promise up frees its key before the abort counts.
    FreesWhatItGivesUp,
    /// A replica that has lost its state answers step 1.
    AnswersWithoutState,
    /// A replica that has lost its state answers nothing before it is rebuilt.
    SaysNothingOfLoss,
    /// That a replica has nothing counts, and the table rests on the epoch in which it lost its state.
    CountsLossInBase,
    /// A replica that has lost its state says that it has nothing, and promises nothing.
    AnswersNothingUnpromised,
    /// A replica that loses its state once more says that it has nothing since the first time.
    KeepsFirstLoss,
    /// A replica that got an older state back takes it for its newest.
    BelievesOldState,
    /// A replica that has given up what it had answers step 1 as if it had never had anything.
    ForgetsWhatItGaveUp,
    /// A merge goes on without what a replica had that has given it up.
    IgnoresWhatWasGivenUp,
    /// A replica that has lost its state joins whatever epoch it hears of.
    ReturnsWithoutAsking,
    /// A replica that has lost its state gets the table that the epoch began with.
    RebuildsFromTable,
    /// A replica that was not in the last configuration installs a table without a checkpoint.
    InstallsWithoutCheckpoint,
    /// Step 1 takes the answers of any f + 1 replicas.
    AsksAnybody,
    /// Step 1 asks the configuration of the newest table that it hears of, and no later one.
    AsksOneConfiguration,
    /// A record counts when the primary and one backup have it, whatever f is.
    OneBackupIsEnough,
    /// A timestamp is closed while something at or below it is prepared.
    ClosesOverPrepared,
    /// A timestamp is closed at or above the lease.
    ClosesAboveLease,
    /// Closing a timestamp does not count as a read of every key.
    ClosesWithoutMark,
    /// A backup reads at a closed timestamp without all records up to it.
    BackupReadsBehind,
}

impl Mutation {
    /// The world in which it is caught.
    pub const fn caught_in(self) -> &'static str {
        match self {
            Self::ServesWithoutOwnCopy
            | Self::VotesUnderOldLease
            | Self::ReadsUnderOldLease
            | Self::AcceptsOldEpoch
            | Self::AcksBeforeInstall
            | Self::AcksBeforeLog
            | Self::ReadsAboveLease
            | Self::ReissuesEpoch => "single",
            Self::NoFloor | Self::GrantIsVolatile => "two-singles",
            Self::AskerDoesNotAnswer | Self::DropsPrepared => "two-shards",
            Self::KeepsOneOfTwo => "two-over-two",
            Self::DecidesInMerge => "decided-too-early",
            Self::IgnoresLeases | Self::MergesOldTables => "leases",
            Self::NoIsNotReplicated | Self::ForgetsOutcomes => "late-prepare",
            Self::ForgetsFreeze | Self::IgnoresTimestamps => "rounds",
            Self::DropsUnacknowledged => "repeats",
            Self::DropsWhatIsLeftOut | Self::PutsBeforeItCounts | Self::StableWithoutOne => {
                "left-out"
            }
            Self::DropsUntold
            | Self::TakesForgottenForAborted
            | Self::TooOldIsNo
            | Self::SaysNothingOfForgotten => "forgotten",
            Self::FreesWhatItGivesUp => "given-up",
            Self::DropsStablePrepared => "late-prepare",
            Self::RevivesDropped | Self::AcknowledgesDecisionEarly => "dropped",
            Self::WatermarkIsLocal | Self::ForgetsWatermark => "too-old",
            Self::AnswersWithoutState
            | Self::BelievesOldState
            | Self::ReturnsWithoutAsking
            | Self::RebuildsFromTable => "lost-disk",
            Self::SaysNothingOfLoss
            | Self::CountsLossInBase
            | Self::AnswersNothingUnpromised
            | Self::KeepsFirstLoss => "lost-twice",
            Self::ForgetsWhatItGaveUp | Self::IgnoresWhatWasGivenUp => "given-up-copies",
            Self::InstallsWithoutCheckpoint => "leaves",
            Self::AsksAnybody | Self::AsksOneConfiguration => "replaced",
            Self::OneBackupIsEnough => "five",
            Self::ClosesOverPrepared
            | Self::ClosesAboveLease
            | Self::ClosesWithoutMark
            | Self::BackupReadsBehind => "closed",
        }
    }

    pub const ALL: [Self; 52] = [
        Self::ServesWithoutOwnCopy,
        Self::DecidesInMerge,
        Self::VotesUnderOldLease,
        Self::ReadsUnderOldLease,
        Self::ForgetsFreeze,
        Self::KeepsOneOfTwo,
        Self::AskerDoesNotAnswer,
        Self::IgnoresTimestamps,
        Self::AcceptsOldEpoch,
        Self::IgnoresLeases,
        Self::GrantIsVolatile,
        Self::DropsPrepared,
        Self::NoIsNotReplicated,
        Self::AcksBeforeInstall,
        Self::AcksBeforeLog,
        Self::ReadsAboveLease,
        Self::ForgetsOutcomes,
        Self::ReissuesEpoch,
        Self::MergesOldTables,
        Self::NoFloor,
        Self::DropsStablePrepared,
        Self::StableWithoutOne,
        Self::RevivesDropped,
        Self::DropsWhatIsLeftOut,
        Self::PutsBeforeItCounts,
        Self::DropsUnacknowledged,
        Self::DropsUntold,
        Self::AcknowledgesDecisionEarly,
        Self::WatermarkIsLocal,
        Self::ForgetsWatermark,
        Self::TooOldIsNo,
        Self::TakesForgottenForAborted,
        Self::SaysNothingOfForgotten,
        Self::FreesWhatItGivesUp,
        Self::AnswersWithoutState,
        Self::SaysNothingOfLoss,
        Self::CountsLossInBase,
        Self::AnswersNothingUnpromised,
        Self::KeepsFirstLoss,
        Self::BelievesOldState,
        Self::ForgetsWhatItGaveUp,
        Self::IgnoresWhatWasGivenUp,
        Self::ReturnsWithoutAsking,
        Self::RebuildsFromTable,
        Self::InstallsWithoutCheckpoint,
        Self::AsksAnybody,
        Self::AsksOneConfiguration,
        Self::OneBackupIsEnough,
        Self::ClosesOverPrepared,
        Self::ClosesAboveLease,
        Self::ClosesWithoutMark,
        Self::BackupReadsBehind,
    ];
}
