//! The sliding window of marks: what a participant remembers of keys that were used lately.
//!
//! Two generations of hash tables. A mark that is used moves from `old` to `young`; every
//! [`shared::WINDOW`] the old generation is dropped as a whole, after the maximum of its marks went
//! into `floor`, and the young one becomes old:
//!
//! ```text
//!   lookup ──▶ young ──miss──▶ old ──miss──▶ new mark: latest_read = floor, latest from the store
//!                ▲               │
//!                └──── copied ◀──┘         rotation: floor = max(floor, old_maximum); old = young; young = {}
//! ```
//!
//! Invariants: every mark ever dropped is at or below `floor`; a key with a prepared or unapplied
//! write always has its mark; `floor` and `ceiling` only rise; the copy in `young` is the true one,
//! a copy left behind in `old` is never looked at again. Memory follows recent activity (MILANA
//! §4.1 keeps these values in DRAM for each active key).
//!
//! It does not know transactions (a mark names a slot of the table) nor keyspaces (see
//! `keyspaces.rs`).

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use timestone_types::{KeyHash, Timestamp, Version, limits as shared};

use super::input::LatestInStore;
use super::table::Slot;
use crate::limits::MAX_GENERATION_ENTRIES;

/// What is remembered of one key in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    key: KeyHash,
    /// The highest timestamp at which the key was read or validated as read.
    pub(super) latest_read: Timestamp,
    /// The youngest committed version.
    pub(super) latest: Version,
    /// At or above the timestamp of the youngest committed version that was not a tombstone. Two
    /// keys may share this mark, so "absent then, absent now" holds only when nothing was put in
    /// between, as far as any reader can tell.
    pub(super) last_present: Timestamp,
    /// The transaction that has the key prepared, or [`Slot::NONE`].
    pub(super) prepared: Slot,
    /// Whether `latest` is a tombstone or nothing.
    pub(super) absent: bool,
}

const _: () = assert!(size_of::<Mark>() == 48);

impl Mark {
    fn new(key: KeyHash, floor: Timestamp, store: LatestInStore) -> Self {
        Self {
            key,
            latest_read: floor,
            latest: store.version,
            last_present: store.version.timestamp,
            prepared: Slot::NONE,
            absent: store.absent,
        }
    }

    /// Combines with what the store knows: the later version counts.
    fn merge(&mut self, store: LatestInStore) {
        if store.version > self.latest {
            self.latest = store.version;
            self.absent = store.absent;
            self.last_present = self.last_present.max(store.version.timestamp);
        }
    }

    /// Notes a version that has become readable.
    pub(super) fn commit(&mut self, version: Version, absent: bool) {
        if version > self.latest {
            self.latest = version;
            self.absent = absent;
        }
        if !absent {
            // Below a mark that was set while this was prepared: somebody read around it, so it
            // counts as put after that read.
            let read_around = version.timestamp <= self.latest_read;
            let since = if read_around { self.latest_read.next() } else { version.timestamp };
            self.last_present = self.last_present.max(since);
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Window {
    young: HashTable<Mark>,
    old: HashTable<Mark>,
    young_maximum: Timestamp,
    old_maximum: Timestamp,
    floor: Timestamp,
    ceiling: Timestamp,
    rotate_at: Timestamp,
    /// Further prepared writes of a key that has one already. Only a recovery from an unordered log
    /// makes any.
    crowded: Vec<(KeyHash, Slot)>,
}

fn hasher(mark: &Mark) -> u64 {
    mark.key.0
}

impl Window {
    pub(super) fn new() -> Self {
        Self {
            young: HashTable::new(),
            old: HashTable::new(),
            young_maximum: Timestamp::ZERO,
            old_maximum: Timestamp::ZERO,
            floor: Timestamp::ZERO,
            ceiling: Timestamp::ZERO,
            rotate_at: Timestamp::ZERO,
            crowded: Vec::new(),
        }
    }

    /// The mark of a key, made when there is none, in the young generation afterwards.
    #[inline]
    pub(super) fn mark(&mut self, key: KeyHash, store: LatestInStore) -> &mut Mark {
        match self.young.entry(key.0, |mark| mark.key == key, hasher) {
            Entry::Occupied(found) => {
                let mark = found.into_mut();
                mark.merge(store);
                mark
            }
            Entry::Vacant(place) => {
                let mark = match self.old.find(key.0, |mark| mark.key == key) {
                    Some(old) => {
                        let mut mark = *old;
                        mark.merge(store);
                        mark
                    }
                    None => Mark::new(key, self.floor, store),
                };
                let highest = mark.latest_read.max(mark.latest.timestamp);
                self.young_maximum = self.young_maximum.max(highest);
                self.ceiling = self.ceiling.max(highest);
                place.insert(mark).into_mut()
            }
        }
    }

    /// Looks whether a key has a mark, for the sake of the processor's cache alone.
    #[inline]
    pub(super) fn touch(&self, key: KeyHash) -> bool {
        self.young.find(key.0, |mark| mark.key == key).is_some()
    }

    /// Raises the running maxima to a mark that was just set.
    #[inline]
    pub(super) fn note(&mut self, at: Timestamp) {
        self.young_maximum = self.young_maximum.max(at);
        self.ceiling = self.ceiling.max(at);
    }

    /// At or above every mark that was dropped.
    pub(super) fn floor(&self) -> Timestamp {
        self.floor
    }

    /// At or above every mark there ever was.
    pub(super) fn ceiling(&self) -> Timestamp {
        self.ceiling
    }

    pub(super) fn raise_floor(&mut self, floor: Timestamp) {
        self.floor = self.floor.max(floor);
        self.ceiling = self.ceiling.max(floor);
    }

    /// Planted: what was read is forgotten.
    #[cfg(feature = "planted-bugs")]
    pub(super) fn lower_floor(&mut self) {
        self.floor = Timestamp::ZERO;
    }

    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    pub(super) fn rotate_at(&self) -> Timestamp {
        self.rotate_at
    }

    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        now >= self.rotate_at || self.young.len() >= MAX_GENERATION_ENTRIES
    }

    /// Drops the old generation, except the marks of `held` keys (those with a prepared or
    /// unapplied write).
    pub(super) fn rotate(&mut self, now: Timestamp, held: impl Iterator<Item = KeyHash>) {
        for key in held {
            self.mark(key, LatestInStore::NONE);
        }
        let floor_before = self.floor;
        self.floor = self.floor.max(self.old_maximum);
        assert!(
            self.floor >= floor_before && self.floor <= self.ceiling,
            "the floor only rises, and stays below the ceiling"
        );
        self.old_maximum = self.young_maximum;
        self.young_maximum = Timestamp::ZERO;
        core::mem::swap(&mut self.young, &mut self.old);
        self.young.clear();
        self.rotate_at = now.saturating_add(shared::WINDOW);
    }

    /// Marks a key as prepared by `slot`.
    pub(super) fn hold(&mut self, key: KeyHash, slot: Slot, store: LatestInStore) {
        let mark = self.mark(key, store);
        if mark.prepared.is_none() || mark.prepared == slot {
            mark.prepared = slot;
        } else {
            self.crowded.push((key, slot));
        }
    }

    /// The opposite of [`Window::hold`]; with `version`, notes it as committed first. Releasing
    /// twice is harmless: two keys of one transaction may share a hash.
    pub(super) fn release(&mut self, key: KeyHash, slot: Slot, committed: Option<(Version, bool)>) {
        let crowded = self.crowded.iter().position(|&one| one == (key, slot));
        let mark = self.mark(key, LatestInStore::NONE);
        let holds = mark.prepared == slot;
        if let Some((version, absent)) = committed {
            mark.commit(version, absent);
            self.note(version.timestamp);
        }
        if let Some(place) = crowded {
            self.crowded.remove(place);
        } else if holds {
            let next = self.take_crowded(key);
            self.mark(key, LatestInStore::NONE).prepared = next;
        }
    }

    fn take_crowded(&mut self, key: KeyHash) -> Slot {
        match self.crowded.iter().position(|&(one, _)| one == key) {
            Some(place) => self.crowded.remove(place).1,
            None => Slot::NONE,
        }
    }

    /// The holders of a key besides the one that its mark names.
    #[inline]
    pub(super) fn crowd(&self, key: KeyHash) -> impl Iterator<Item = Slot> {
        self.crowded.iter().filter(move |one| one.0 == key).map(|one| one.1)
    }

    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        !self.crowded.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::ClientId;

    use super::*;

    const KEY: KeyHash = KeyHash(7);

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn a_mark_that_is_used_survives_rotations_and_one_that_is_not_goes_into_the_floor() {
        let mut window = Window::new();
        window.mark(KEY, LatestInStore::NONE).latest_read = at(5);
        window.note(at(5));
        window.mark(KeyHash(8), LatestInStore::NONE).latest_read = at(9);
        window.note(at(9));
        window.rotate(at(100), [].into_iter());
        assert_eq!(window.floor(), Timestamp::ZERO, "nothing was dropped yet");
        assert_eq!(window.mark(KEY, LatestInStore::NONE).latest_read, at(5));
        window.rotate(at(200), [].into_iter());
        assert_eq!(window.floor(), at(9));
        assert_eq!(
            window.mark(KEY, LatestInStore::NONE).latest_read,
            at(5),
            "moved to the young generation by its use"
        );
        assert_eq!(
            window.mark(KeyHash(8), LatestInStore::NONE).latest_read,
            at(9),
            "a new mark starts at the floor"
        );
    }

    #[test]
    fn a_held_key_is_never_dropped() {
        let mut window = Window::new();
        let slot = Slot::new(3);
        window.hold(KEY, slot, LatestInStore::NONE);
        for turn in 1..5 {
            window.rotate(at(turn * 100), [KEY].into_iter());
        }
        assert_eq!(window.mark(KEY, LatestInStore::NONE).prepared, slot);
        window.release(KEY, slot, Some((Version::new(at(50), ClientId::new(1)), false)));
        assert!(window.mark(KEY, LatestInStore::NONE).prepared.is_none());
        assert_eq!(window.mark(KEY, LatestInStore::NONE).latest.timestamp, at(50));
    }

    #[test]
    fn the_later_of_store_and_mark_counts() {
        let mut window = Window::new();
        let version = |nanos| Version::new(at(nanos), ClientId::new(1));
        window.mark(KEY, LatestInStore { version: version(5), absent: false });
        assert_eq!(
            window.mark(KEY, LatestInStore { version: version(4), absent: true }).latest,
            version(5)
        );
        let mark = *window.mark(KEY, LatestInStore { version: version(6), absent: true });
        assert_eq!((mark.latest, mark.absent), (version(6), true));
    }

    #[test]
    fn two_holders_of_one_key_are_released_in_either_order() {
        for first_goes_first in [true, false] {
            let mut window = Window::new();
            let (one, two) = (Slot::new(1), Slot::new(2));
            window.hold(KEY, one, LatestInStore::NONE);
            window.hold(KEY, two, LatestInStore::NONE);
            assert_eq!(window.crowd(KEY).collect::<Vec<_>>(), [two]);
            let (first, second) = if first_goes_first { (one, two) } else { (two, one) };
            window.release(KEY, first, None);
            assert_eq!(window.mark(KEY, LatestInStore::NONE).prepared, second);
            window.release(KEY, second, None);
            assert!(
                window.mark(KEY, LatestInStore::NONE).prepared.is_none() && !window.is_crowded()
            );
        }
    }
}
