//! The versions of one key in memory.
//!
//! Most keys have one version, so that the youngest is part of the entry and the older ones are a
//! list that only keys with several versions have. A lone version costs two allocations: key and
//! value.

use core::mem::size_of;

use timestone_types::{Expiry, Timestamp, Version};

/// What the allocator takes for an allocation beside its bytes, about.
const ALLOCATION_BYTES: usize = 16;

/// One version of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stored {
    pub(super) version: Version,
    pub(super) expires_at: Expiry,
    /// None: a tombstone.
    pub(super) value: Option<Box<[u8]>>,
}

impl Stored {
    /// Bytes of memory beside the entry.
    fn heap_bytes(&self) -> usize {
        self.value.as_ref().map_or(0, |value| value.len() + ALLOCATION_BYTES)
    }
}

/// A key with its versions.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) hash: u64,
    pub(super) key: Box<[u8]>,
    pub(super) newest: Stored,
    /// The others, youngest first; none most of the time.
    #[expect(clippy::box_collection, reason = "most entries have none: 8 bytes instead of 24")]
    older: Option<Box<Vec<Stored>>>,
}

/// What decides which versions nobody may ask for any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Collected {
    /// Nobody reads below it.
    pub(super) watermark: Timestamp,
    /// Nothing is written at or below it any more.
    pub(super) floor: Timestamp,
    /// The youngest fence at or below the watermark.
    pub(super) fence: Version,
}

impl Collected {
    /// Whether the youngest version at or below the watermark is needed: it has a value, or hides
    /// an older one that may still arrive.
    fn keeps(&self, last: &Stored) -> bool {
        let absent = last.value.is_none() || last.expires_at.has_passed(self.watermark);
        !absent || last.version.timestamp > self.floor.min(self.watermark)
    }
}

impl Collected {
    /// Whether an entry that was trimmed has nothing left that is needed.
    pub(super) fn is_dead(&self, entry: &Entry) -> bool {
        let newest = &entry.newest;
        newest.version <= self.fence
            || (newest.version.timestamp <= self.watermark && !self.keeps(newest))
    }
}

/// What an addition came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Added {
    /// It is the youngest now.
    Youngest,
    /// A younger one is there.
    Older,
    /// It was there already.
    Duplicate,
}

impl Entry {
    pub(super) fn new(hash: u64, key: &[u8], newest: Stored) -> Self {
        Self { hash, key: key.into(), newest, older: None }
    }

    /// Youngest first.
    pub(super) fn versions(&self) -> impl Iterator<Item = &Stored> {
        core::iter::once(&self.newest).chain(self.older.iter().flat_map(|older| older.iter()))
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        1 + self.older.as_ref().map_or(0, |older| older.len())
    }

    /// The youngest version at or before `at`.
    #[inline]
    pub(super) fn at(&self, at: Timestamp) -> Option<&Stored> {
        if self.newest.version.timestamp <= at {
            return Some(&self.newest);
        }
        self.older.as_ref()?.iter().find(|stored| stored.version.timestamp <= at)
    }

    /// Whether this version is there.
    pub(super) fn has(&self, version: Version) -> bool {
        self.versions().any(|stored| stored.version == version)
    }

    /// Adds a version, wherever it belongs.
    pub(super) fn add(&mut self, stored: Stored) -> Added {
        if stored.version > self.newest.version {
            let before = core::mem::replace(&mut self.newest, stored);
            self.older.get_or_insert_default().insert(0, before);
            return Added::Youngest;
        }
        if self.has(stored.version) {
            return Added::Duplicate;
        }
        let older = self.older.get_or_insert_default();
        let place = older.partition_point(|other| other.version > stored.version);
        older.insert(place, stored);
        debug_assert!(older.is_sorted_by(|one, other| one.version > other.version));
        Added::Older
    }

    /// Drops what nobody may ask for any more: what lies below the youngest version at or below the
    /// watermark, and that one as well if it is absent for all who may still ask, and nothing older
    /// can arrive any more (`floor`). What lies at or below `fence`, which is at or below the
    /// watermark, goes in any case. How many versions went; false when nothing is left, and the
    /// whole entry is to go.
    pub(super) fn trim(&mut self, by: &Collected) -> (usize, bool) {
        let before = self.count();
        if self.newest.version <= by.fence {
            self.older = None;
            return (before - 1, false);
        }
        if self.newest.version.timestamp <= by.watermark {
            self.older = None;
            return (before - 1, by.keeps(&self.newest));
        }
        let Some(older) = &mut self.older else { return (0, true) };
        older.retain(|stored| stored.version > by.fence);
        if let Some(last) = older.iter().position(|one| one.version.timestamp <= by.watermark) {
            let kept = last + usize::from(by.keeps(&older[last]));
            #[cfg(feature = "planted-bugs")]
            let kept = if crate::planted::bugs().collect_one_too_many { last } else { kept };
            older.truncate(kept);
        }
        if older.is_empty() {
            self.older = None;
        }
        (before - self.count(), true)
    }

    /// Bytes of memory beside the table's slot.
    pub(super) fn heap_bytes(&self) -> usize {
        let older = self.older.as_ref().map_or(0, |older| {
            older.capacity() * size_of::<Stored>() + size_of::<Vec<Stored>>() + 2 * ALLOCATION_BYTES
        });
        let values: usize = self.versions().map(Stored::heap_bytes).sum();
        self.key.len() + ALLOCATION_BYTES + older + values
    }

    /// Bytes that a lone version of a key takes, the table's slot at its emptiest included.
    pub(super) const fn bytes_for(key_and_value: usize) -> usize {
        // A version that is added to another one takes a place in a list that may double.
        key_and_value + 3 * ALLOCATION_BYTES + 3 * size_of::<Self>()
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::ClientId;

    use super::*;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    fn stored(nanos: u64, value: Option<&[u8]>) -> Stored {
        let version = Version::new(at(nanos), ClientId::new(1));
        Stored { version, expires_at: Expiry::NEVER, value: value.map(Box::from) }
    }

    fn entry(versions: &[(u64, Option<&[u8]>)]) -> Entry {
        let mut versions = versions.iter().map(|&(nanos, value)| stored(nanos, value));
        let mut entry = Entry::new(7, b"key", versions.next().unwrap());
        versions.for_each(|stored| assert_ne!(entry.add(stored), Added::Duplicate));
        entry
    }

    fn by(watermark: u64, floor: u64) -> Collected {
        Collected { watermark: at(watermark), floor: at(floor), fence: Version::ZERO }
    }

    fn times(entry: &Entry) -> Vec<u64> {
        entry.versions().map(|stored| stored.version.timestamp.as_nanos()).collect()
    }

    #[test]
    fn versions_are_in_order_whatever_the_order_of_arrival() {
        let mut entry = entry(&[(20, Some(b"b")), (40, None), (10, Some(b"a")), (30, Some(b"c"))]);
        assert_eq!(times(&entry), [40, 30, 20, 10]);
        assert_eq!(entry.add(stored(30, None)), Added::Duplicate);
        let found = |nanos| entry.at(at(nanos)).map(|one| one.version.timestamp.as_nanos());
        assert_eq!([9, 10, 29, 30, 99].map(found), [None, Some(10), Some(20), Some(30), Some(40)]);
    }

    #[test]
    fn the_youngest_version_at_or_below_the_watermark_stays() {
        let mut three = entry(&[(10, Some(b"a")), (20, Some(b"b")), (30, Some(b"c"))]);
        assert_eq!(three.trim(&by(25, 25)), (1, true));
        assert_eq!(times(&three), [30, 20]);
        assert_eq!(three.trim(&by(30, 30)), (1, true));
        assert_eq!(times(&three), [30]);
    }

    #[test]
    fn a_tombstone_stays_until_nothing_older_can_arrive() {
        let mut deleted = entry(&[(10, Some(b"a")), (20, None)]);
        assert_eq!(deleted.trim(&by(20, 19)), (1, true), "a write at 15 may be on its way");
        assert_eq!(times(&deleted), [20]);
        assert_eq!(deleted.trim(&by(20, 20)), (0, false));
    }

    #[test]
    fn what_a_fence_hides_goes() {
        let by = Collected { fence: Version::new(at(20), ClientId::new(9)), ..by(20, 0) };
        assert_eq!(entry(&[(10, Some(b"a")), (20, Some(b"b"))]).trim(&by), (1, false));
        let mut two = entry(&[(10, Some(b"a")), (30, Some(b"b"))]);
        assert_eq!(two.trim(&by), (1, true));
        assert_eq!(times(&two), [30]);
    }
}
