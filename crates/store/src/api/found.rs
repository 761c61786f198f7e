//! What is asked of a store and what it finds: tokens, versions, keys of a scan.

use timestone_types::{Expiry, Timestamp, Version};

#[allow(unused_imports, reason = "for the documentation")]
use super::Reads;
use crate::error::StoreError;

/// Names a read, scan or count of the caller; returned in its event, never interpreted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ReadToken(pub u64);

/// What a get found at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup<'a> {
    /// A version that is visible.
    Present {
        /// Its version.
        version: Version,
        /// When it stops being visible.
        expires_at: Expiry,
        /// Its value.
        value: &'a [u8],
    },
    /// No version is visible.
    Absent {
        /// The tombstone's, the expired record's or the fence's version; [`Version::ZERO`] when
        /// there is nothing at all.
        version: Version,
        /// The expired record's expiry, else never.
        expires_at: Expiry,
    },
    /// The device is being asked; a [`StoreEvent::ReadDone`](crate::StoreEvent::ReadDone) with the
    /// token follows.
    Pending,
}

/// The youngest version of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Latest {
    /// The youngest version (a record's, a tombstone's or a fence's); [`Version::ZERO`] when there
    /// is none.
    pub version: Version,
    /// Whether that is a tombstone, a fence or nothing. Expiry is not considered.
    pub absent: bool,
    /// Whether that version carries an expiry.
    pub may_expire: bool,
}

/// What a look-up of the youngest version found at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LatestLookup {
    /// The youngest version.
    Known(Latest),
    /// The device is being asked; a [`StoreEvent::LatestDone`](super::StoreEvent::LatestDone) with
    /// the token follows.
    Pending,
}

/// What a read that went to the device found.
#[derive(Debug)]
pub enum ReadOutcome {
    /// A version that is visible. Give `value` back with [`Reads::recycle`] when done.
    Present {
        /// Its version.
        version: Version,
        /// When it stops being visible.
        expires_at: Expiry,
        /// Its value.
        value: Vec<u8>,
    },
    /// No version is visible; as in [`Lookup::Absent`].
    Absent {
        /// As in [`Lookup::Absent`].
        version: Version,
        /// As in [`Lookup::Absent`].
        expires_at: Expiry,
    },
    /// The read failed.
    Failed(StoreError),
}

/// Where a scan goes on. Cursors survive growth of the index, and restarts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ScanCursor(pub u64);

impl ScanCursor {
    /// The beginning.
    pub const START: Self = Self(0);
}

/// How much one answer of a scan holds at most: a position with more keys than that comes whole all
/// the same, alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanLimit {
    /// Keys; at least one is taken.
    pub keys: u32,
    /// Bytes of keys.
    pub bytes: usize,
}

/// Keys found by a scan: their bytes one after the other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyList {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyList {
    /// Adds a key.
    pub fn push(&mut self, key: &[u8]) {
        debug_assert_eq!(self.ends.last().map_or(0, |end| *end), self.bytes.len());
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// How many keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The keys in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = core::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(self.ends.iter()).map(|(start, &end)| &self.bytes[start..end])
    }
}

/// The answer to a count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// The number, at once.
    Keys(u64),
    /// A [`StoreEvent::CountDone`](crate::StoreEvent::CountDone) with the token follows.
    Pending,
}

/// Which versions a walk sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AsOf {
    /// The youngest at or before it.
    pub at: Timestamp,
    /// Those whose expiry lies after it.
    pub judged: Timestamp,
}
