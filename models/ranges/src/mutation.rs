//! Rules that are left out on purpose: each must be caught.

/// A rule of docs/design/ranges.md that is broken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mutation {
    /// A range is read, and nothing keeps writes away from the snapshot.
    NoMark,
    /// The pages are read before the range is marked.
    ReadsBeforeMark,
    /// A range is read around what is prepared at or below the snapshot.
    ReadsAround,
    /// What is marked are the keys that were found, and not the gaps between them.
    MarksFoundKeys,
    /// Validation does not look for what others have prepared in a range.
    NoPreparedCheck,
    /// Validation does not look for versions above the snapshot.
    OverlooksNewer,
    /// Validation does not count deletions as versions.
    OverlooksDeletes,
    /// A validated range is not marked at the commit timestamp.
    NoRaise,
    /// Validation looks at the keys that were found alone.
    ValidatesFoundKeys,
    /// Only the shards where something was found or is written validate.
    SkipsEmptyShards,
    /// What was read ends with the last key of each shard, and not with the last one of all.
    EndsWithEachShard,
    /// A restart forgets what was read, and nothing stands for it.
    NoFloor,
    /// A mark that there is no room for is dropped.
    DropsMarks,
    /// A mark for which there is no room stands for itself in the place of another one that it does not
    /// cover.
    ReplacesMarks,
}

impl Mutation {
    pub const ALL: [Self; 14] = [
        Self::NoMark,
        Self::ReadsBeforeMark,
        Self::ReadsAround,
        Self::MarksFoundKeys,
        Self::NoPreparedCheck,
        Self::OverlooksNewer,
        Self::OverlooksDeletes,
        Self::NoRaise,
        Self::ValidatesFoundKeys,
        Self::SkipsEmptyShards,
        Self::EndsWithEachShard,
        Self::NoFloor,
        Self::DropsMarks,
        Self::ReplacesMarks,
    ];
}
