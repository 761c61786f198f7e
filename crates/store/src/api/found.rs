//! What is asked of a store and what it finds: tokens, versions, keys of a scan.

use timestone_types::{Expiry, KeyRange, Timestamp, Version};

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

/// Where a scan goes on: the first bits of a key's hash. Cursors survive growth of the index, and
/// restarts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ScanCursor(pub u64);

impl ScanCursor {
    /// The beginning.
    pub const START: Self = Self(0);
    /// Bits of a position in a store; whoever hands cursors out has room above them.
    pub(crate) const BITS: u32 = 42;
    /// Bits of a hash that a position does not have: keys that differ in them alone go together.
    pub(crate) const BELOW: u32 = u64::BITS - Self::BITS;
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

    /// The key that was added last.
    fn last(&self) -> Option<&[u8]> {
        let start = self.ends.len().checked_sub(2).map_or(0, |before| self.ends[before]);
        self.ends.last().map(|&end| &self.bytes[start..end])
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

/// That the keyspace of a range has an order.
///
/// # Errors
/// [`StoreError::NotOrdered`].
pub(crate) fn check_order(range: &KeyRange<'_>) -> Result<(), StoreError> {
    if range.keyspace.is_ordered() { Ok(()) } else { Err(StoreError::NotOrdered(range.keyspace)) }
}

/// A key that was found in a range, with its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeEntry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The version that is visible.
    pub version: Version,
    /// When that stops being visible.
    pub expires_at: Expiry,
}

/// What was found in a range, in the order in which it was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RangeList {
    keys: KeyList,
    versions: Vec<(Version, Expiry)>,
}

impl RangeList {
    /// Adds an entry, whose key comes after all that are here.
    pub fn push(&mut self, RangeEntry { key, version, expires_at }: RangeEntry<'_>) {
        debug_assert!(self.keys.last().is_none_or(|last| last != key), "each key once");
        self.keys.push(key);
        self.versions.push((version, expires_at));
    }

    /// How many entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.versions.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// Bytes of the keys.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.keys.bytes.len()
    }

    /// The entries, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = RangeEntry<'_>> {
        let versions = self.versions.iter();
        self.keys.iter().zip(versions).map(|(key, &(version, expires_at))| RangeEntry {
            key,
            version,
            expires_at,
        })
    }
}

/// Whether something was written to a range after a time, as far as was looked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RangeCheck {
    /// Nothing was.
    None,
    /// Something was: this version is above the time.
    Above {
        /// The key that was written to; `None`: a fence, of the whole keyspace.
        key: Option<Vec<u8>>,
        /// The youngest version of the key, or the fence.
        version: Version,
    },
    /// Nothing was written to keys before this one, which is the first one that was not looked at.
    More(Vec<u8>),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_gives_back_what_was_put_in() {
        let mut list = RangeList::default();
        let entry = |key, nanos| RangeEntry {
            key,
            version: Version::new(Timestamp::from_nanos(nanos), timestone_types::ClientId::ZERO),
            expires_at: Expiry::NEVER,
        };
        let entries = [entry(b"".as_slice(), 3), entry(b"a", 1), entry(b"ab", 2)];
        assert!(list.is_empty());
        entries.iter().for_each(|&entry| list.push(entry));
        assert!(list.iter().eq(entries) && list.len() == 3 && list.key_bytes() == 3);
    }
}
