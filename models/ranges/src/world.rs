//! What is there: shards with versions, promises and marks; transactions and what they have seen.

/// Shards; a key belongs to the one of its parity.
pub const SHARDS: usize = 2;
/// Most transactions.
pub const TXNS: usize = 3;
/// Who wrote what was there at first.
pub const FIRST: u8 = 9;

pub type Key = u8;
pub type At = u8;

/// The shard of a key.
pub fn shard_of(key: Key) -> usize {
    usize::from(key) % SHARDS
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VersionOf {
    pub key: Key,
    pub at: At,
    pub by: u8,
    pub deleted: bool,
}

/// Nothing commits in these keys, both ends included, at or below a timestamp.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mark {
    pub at: At,
    pub from: Key,
    pub to: Key,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Shard {
    pub versions: Vec<VersionOf>,
    pub prepared: Vec<(u8, At)>,
    pub marks: Vec<Mark>,
    /// The same for every key.
    pub floor: At,
}

impl Shard {
    /// The highest timestamp at which a key counts as read.
    pub fn read_at(&self, key: Key) -> At {
        let marks = self.marks.iter().filter(|mark| (mark.from..=mark.to).contains(&key));
        marks.map(|mark| mark.at).max().unwrap_or(0).max(self.floor)
    }

    /// What is there in a range at a timestamp.
    pub fn snapshot(&self, (from, to): (Key, Key), at: At) -> Vec<(Key, u8)> {
        let mut found = Vec::new();
        for key in from..=to {
            let of_key = self.versions.iter().filter(|one| one.key == key && one.at <= at);
            if let Some(newest) = of_key.max().filter(|one| !one.deleted) {
                found.push((key, newest.by));
            }
        }
        found
    }

    pub fn put(&mut self, version: VersionOf) {
        self.versions.push(version);
        self.versions.sort_unstable();
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Vote {
    Yes,
    Later(At),
    No,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    Idle,
    Reading,
    Preparing { commit: At },
    Committed { at: At },
    Aborted,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Txn {
    pub phase: Phase,
    pub begin: At,
    /// Where the range was marked.
    pub marked: [bool; SHARDS],
    /// What each shard's pages had.
    pub pages: [Option<Vec<(Key, u8)>>; SHARDS],
    pub votes: [Option<Vote>; SHARDS],
    pub applied: [bool; SHARDS],
    pub rounds: u8,
}

impl Txn {
    pub fn new() -> Self {
        Self {
            phase: Phase::Idle,
            begin: 0,
            marked: [false; SHARDS],
            pages: [None, None],
            votes: [None; SHARDS],
            applied: [false; SHARDS],
            rounds: 0,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct World {
    pub shards: [Shard; SHARDS],
    pub txns: Vec<Txn>,
    pub restarts: u8,
}
