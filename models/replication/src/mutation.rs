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
        }
    }

    /// Whether that takes more than a minute.
    pub fn is_slow(self) -> bool {
        self == Self::ForgetsFreeze
    }

    pub const ALL: [Self; 20] = [
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
    ];
}
