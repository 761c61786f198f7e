//! The versions of one key in memory.
//!
//! Most keys have one version, so that the youngest is part of the entry and the older ones are a
//! list that only keys with several versions have. A lone version costs two allocations: key and
//! value. A key that is written often may have very many versions until the watermark has passed
//! them: a younger one is added, and the oldest are dropped, in constant time.

use core::mem::size_of;
use std::collections::VecDeque;

use timestone_types::{Expiry, Timestamp, Version, is_planted};

/// What the allocator takes for an allocation beside its bytes, about.
const ALLOCATION_BYTES: usize = 16;
/// A list with fewer than one version in so many places gives memory back.
const SPARSE: usize = 8;

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
    /// The others; none most of the time, and never an empty list.
    older: Option<Box<Older>>,
}

/// All versions of a key but the youngest.
#[derive(Debug, Default)]
struct Older {
    /// Oldest first.
    list: VecDeque<Stored>,
    /// Of their values.
    heap_bytes: usize,
}

impl Older {
    /// Adds a version that is younger than all that are here.
    fn push(&mut self, stored: Stored) {
        debug_assert!(self.list.back().is_none_or(|last| last.version < stored.version));
        self.heap_bytes += stored.heap_bytes();
        self.list.push_back(stored);
    }

    /// Adds a version in its place; false if it is there already.
    fn insert(&mut self, stored: Stored) -> bool {
        match self.list.binary_search_by_key(&stored.version, |one| one.version) {
            Ok(_) => false,
            Err(place) => {
                self.heap_bytes += stored.heap_bytes();
                self.list.insert(place, stored);
                debug_assert!(self.list.iter().is_sorted_by_key(|one| one.version));
                true
            }
        }
    }

    /// How many lie at or below a timestamp.
    fn count_to(&self, at: Timestamp) -> usize {
        self.list.partition_point(|stored| stored.version.timestamp <= at)
    }

    /// Drops the oldest ones, and memory that the rest does not need.
    fn drop_oldest(&mut self, count: usize) {
        let gone: usize = self.list.drain(..count).map(|stored| stored.heap_bytes()).sum();
        self.heap_bytes -= gone;
        if self.list.len() * SPARSE < self.list.capacity() {
            self.list.shrink_to(2 * self.list.len());
        }
        assert!(!self.list.is_empty() || self.heap_bytes == 0, "nothing takes no memory");
    }

    fn bytes(&self) -> usize {
        let list = self.list.capacity() * size_of::<Stored>();
        size_of::<Self>() + list + 2 * ALLOCATION_BYTES + self.heap_bytes
    }
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
        let older = self.older.iter().flat_map(|older| older.list.iter().rev());
        core::iter::once(&self.newest).chain(older)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        1 + self.older.as_ref().map_or(0, |older| older.list.len())
    }

    /// The youngest version at or before `at`.
    #[inline]
    pub(super) fn at(&self, at: Timestamp) -> Option<&Stored> {
        if self.newest.version.timestamp <= at {
            return Some(&self.newest);
        }
        let older = self.older.as_ref()?;
        older.list.get(older.count_to(at).checked_sub(1)?)
    }

    /// Adds a version, wherever it belongs.
    pub(super) fn add(&mut self, stored: Stored) -> Added {
        if stored.version > self.newest.version {
            let before = core::mem::replace(&mut self.newest, stored);
            debug_assert!(before.version < self.newest.version, "the newest is the newest");
            self.older.get_or_insert_default().push(before);
            return Added::Youngest;
        }
        let is_new = stored.version < self.newest.version
            && self.older.get_or_insert_default().insert(stored);
        if is_new { Added::Older } else { Added::Duplicate }
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
        older.drop_oldest(older.list.partition_point(|stored| stored.version <= by.fence));
        let below = older.count_to(by.watermark);
        if let Some(last) = below.checked_sub(1) {
            let needed = by.keeps(&older.list[last]);
            let needed = needed && !is_planted!(OneVersionTooFew);
            older.drop_oldest(if needed { last } else { below });
        }
        if older.list.is_empty() {
            self.older = None;
        }
        debug_assert!(self.count() >= 1 && self.count() <= before, "the newest stays");
        (before - self.count(), true)
    }

    /// Bytes of memory beside the table's slot.
    pub(super) fn heap_bytes(&self) -> usize {
        let older = self.older.as_ref().map_or(0, |older| older.bytes());
        self.key.len() + ALLOCATION_BYTES + older + self.newest.heap_bytes()
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
