//! The recent-access table: what a participant remembers of keys that were used lately.
//!
//! Two generations in one table. A record that is used is young; every [`shared::RECENT_ACCESS`] a
//! generation ends: what was young is old, and what was old already is dropped, after the maximum
//! of its timestamps went into `low_water`:
//!
//! ```text
//!   lookup ──▶ generations.rs ─┬─ young
//!                        ├─ old ───▶ young again
//!                        └─ none ──▶ new record: latest_read = low_water, latest from the store
//!   rotation: low_water = max(low_water, old_maximum); young becomes old, old is dropped
//! ```
//!
//! Invariants: every record ever dropped is at or below `low_water`; a key with a prepared or
//! unapplied write always has its record; `low_water` and `high_water` only rise. Memory follows
//! recent activity (MILANA §4.1 keeps these values in DRAM for each active key).
//!
//! It does not know transactions (a record names a [`Holder`]) nor keyspaces (see `keyspaces.rs`).

use timestone_types::{KeyHash, Timestamp, Version, is_planted, limits as shared};

use super::generations::{Generations, Line, Place};
use crate::limits::MAX_GENERATION_ENTRIES;
use crate::participant::{Holder, LatestInStore};

/// What is remembered of one key in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessRecord {
    /// The highest timestamp at which the key was read or validated as read.
    pub(super) latest_read: Timestamp,
    /// The youngest committed version.
    pub(super) latest: Version,
    /// At or above the timestamp of the youngest committed version that was not a tombstone. Two
    /// keys may share this record, so "absent then, absent now" holds only when nothing was put in
    /// between, as far as any reader can tell.
    pub(super) last_present: Timestamp,
    /// The transaction that has the key prepared, or [`Holder::NONE`].
    pub(super) prepared: Holder,
    /// Whether `latest` is a tombstone or nothing.
    pub(super) absent: bool,
}

const _: () = assert!(size_of::<Line<AccessRecord>>() == 64);

impl Default for AccessRecord {
    fn default() -> Self {
        Self::new(Timestamp::ZERO, LatestInStore::NONE)
    }
}

impl AccessRecord {
    fn new(low_water: Timestamp, store: LatestInStore) -> Self {
        Self {
            latest_read: low_water,
            latest: store.version,
            last_present: store.version.timestamp,
            prepared: Holder::NONE,
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
        debug_assert!(self.latest >= store.version, "the later version counts");
    }

    /// Notes a version that has become readable.
    pub(super) fn commit(&mut self, version: Version, absent: bool) {
        if version > self.latest {
            self.latest = version;
            self.absent = absent;
        }
        if !absent {
            // Below a record that was set while this was prepared: somebody read around it, so it
            // counts as put after that read.
            let read_around = version.timestamp <= self.latest_read;
            let since = if read_around { self.latest_read.next() } else { version.timestamp };
            self.last_present = self.last_present.max(since);
        }
        debug_assert!(self.latest >= version, "the later version counts");
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct RecentAccess {
    table: Generations<AccessRecord>,
    /// Most records that were used in this generation.
    most_young: usize,
    young_maximum: Timestamp,
    old_maximum: Timestamp,
    low_water: Timestamp,
    high_water: Timestamp,
    rotate_at: Timestamp,
    /// Further prepared writes of a key that has one already. Only a recovery from an unordered log
    /// makes any.
    more_holders: Vec<(KeyHash, Holder)>,
}

impl Default for RecentAccess {
    fn default() -> Self {
        Self::of(MAX_GENERATION_ENTRIES)
    }
}

impl RecentAccess {
    /// One that ends a generation of so many records, whatever the time.
    pub(super) fn of(most_young: usize) -> Self {
        Self {
            table: Generations::default(),
            most_young: most_young.clamp(1, MAX_GENERATION_ENTRIES),
            young_maximum: Timestamp::default(),
            old_maximum: Timestamp::default(),
            low_water: Timestamp::default(),
            high_water: Timestamp::default(),
            rotate_at: Timestamp::default(),
            more_holders: Vec::new(),
        }
    }

    /// The record of a key, made when there is none, in the young generation afterwards.
    #[inline]
    pub(super) fn record(&mut self, key: KeyHash, store: LatestInStore) -> &mut AccessRecord {
        match self.find(key, store) {
            Place::Young(at) | Place::Old(at) => self.table.entry(at),
            Place::New(at) => {
                let record = AccessRecord::new(self.low_water, store);
                let highest = record.latest_read.max(record.latest.timestamp);
                self.young_maximum = self.young_maximum.max(highest);
                self.high_water = self.high_water.max(highest);
                self.table.insert(key, at, record)
            }
        }
    }

    /// Where the record of a key is, young from now on and with what the store knows; or where one
    /// would be.
    #[inline]
    fn find(&mut self, key: KeyHash, store: LatestInStore) -> Place {
        match self.table.find(key) {
            Place::Young(at) => {
                self.table.entry(at).merge(store);
                Place::Young(at)
            }
            Place::Old(at) => {
                let record = self.table.renew(at);
                record.merge(store);
                let highest = record.latest_read.max(record.latest.timestamp);
                self.young_maximum = self.young_maximum.max(highest);
                self.high_water = self.high_water.max(highest);
                Place::Young(at)
            }
            new @ Place::New(_) => new,
        }
    }

    /// The record of a key, or what it would be: none is made. Who does no more than write a key
    /// needs none, for the store knows the key's youngest version.
    #[inline]
    pub(super) fn look(&mut self, key: KeyHash, store: LatestInStore) -> AccessRecord {
        match self.find(key, store) {
            Place::Young(at) | Place::Old(at) => *self.table.entry(at),
            Place::New(_) => AccessRecord::new(self.low_water, store),
        }
    }

    /// A key was written, at a version that can be read. A key without a record gets none: what is
    /// made later begins with what the store says.
    #[inline]
    pub(super) fn written(&mut self, key: KeyHash, version: Version, absent: bool) {
        if let Place::Young(at) = self.find(key, LatestInStore::NONE) {
            let record = self.table.entry(at);
            debug_assert!(record.prepared.is_none(), "what another holds is waited for");
            record.commit(version, absent);
        }
        self.note(version.timestamp);
    }

    /// Where a look-up of the key's record begins, for the sake of the processor's cache alone.
    #[inline]
    pub(super) fn home_of(&self, key: KeyHash) -> Option<&Line<AccessRecord>> {
        self.table.home_line(key)
    }

    /// Raises the running maxima to a record that was just set.
    #[inline]
    pub(super) fn note(&mut self, at: Timestamp) {
        self.young_maximum = self.young_maximum.max(at);
        self.high_water = self.high_water.max(at);
        debug_assert!(self.high_water >= self.young_maximum);
    }

    /// Raises `latest_read` of a key whose record was looked up just before.
    #[inline]
    pub(super) fn raise_read(&mut self, key: KeyHash, at: Timestamp) {
        let record = self.record(key, LatestInStore::NONE);
        if at > record.latest_read {
            record.latest_read = at;
            self.note(at);
        }
        debug_assert!(self.high_water >= at, "a read stands below the high-water timestamp");
    }

    /// At or above every record that was dropped.
    pub(super) fn low_water(&self) -> Timestamp {
        self.low_water
    }

    /// At or above every record there ever was.
    pub(super) fn high_water(&self) -> Timestamp {
        self.high_water
    }

    pub(super) fn raise_low_water(&mut self, low_water: Timestamp) {
        self.low_water = self.low_water.max(low_water);
        self.high_water = self.high_water.max(low_water);
        assert!(self.low_water <= self.high_water);
    }

    /// What holds between inputs.
    #[inline]
    pub(super) fn assert_sound(&self) {
        debug_assert!(self.low_water <= self.high_water, "what was dropped was there");
        debug_assert!(self.young_maximum.max(self.old_maximum) <= self.high_water);
    }

    /// Planted: what was read is forgotten.
    pub(super) fn lower_low_water(&mut self) {
        assert!(is_planted!(FallingLowWater), "what stands for dropped records rises");
        self.low_water = Timestamp::ZERO;
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    pub(super) fn rotate_at(&self) -> Timestamp {
        self.rotate_at
    }

    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        // What would become the low-water timestamp does not lie ahead of the clock, or writers with
        // right clocks would be refused for as long as it does.
        let is_full = self.table.young() >= self.most_young && self.old_maximum <= now;
        now >= self.rotate_at || is_full
    }

    /// Ends a generation: drops what was old already, except the records of `held` keys (those with a prepared or
    /// unapplied write).
    pub(super) fn rotate(&mut self, now: Timestamp, held: impl Iterator<Item = KeyHash>) {
        for key in held {
            self.record(key, LatestInStore::NONE);
        }
        let before = self.low_water;
        self.low_water = self.low_water.max(self.old_maximum);
        assert!(
            self.low_water >= before && self.low_water <= self.high_water,
            "the low-water timestamp only rises, and stays below the high-water one"
        );
        self.old_maximum = self.young_maximum;
        self.young_maximum = Timestamp::ZERO;
        self.table.next_generation();
        self.rotate_at = now.saturating_add(shared::RECENT_ACCESS);
    }

    /// Notes a key as prepared by `holder`.
    pub(super) fn hold(&mut self, key: KeyHash, holder: Holder, store: LatestInStore) {
        debug_assert!(!holder.is_none(), "somebody holds");
        let record = self.record(key, store);
        if record.prepared.is_none() || record.prepared == holder {
            record.prepared = holder;
        } else if !self.more_holders.contains(&(key, holder)) {
            self.more_holders.push((key, holder));
        }
    }

    /// The opposite of [`RecentAccess::hold`]; with `version`, notes it as committed first. Releasing
    /// twice is harmless: two keys of one transaction may share a hash.
    pub(super) fn release(
        &mut self,
        key: KeyHash,
        holder: Holder,
        committed: Option<(Version, bool)>,
    ) {
        let record = self.record(key, LatestInStore::NONE);
        let holds = record.prepared == holder;
        if holds {
            record.prepared = Holder::NONE;
        }
        if let Some((version, absent)) = committed {
            record.commit(version, absent);
            self.note(version.timestamp);
        }
        if self.has_more_holders() {
            self.release_of_many(key, holder, holds);
        } else if committed.is_some() {
            self.drop_if_unread(key);
        }
    }

    /// Drops the record of a key that was written and can be read, if it says no more than one would
    /// that is made anew: a key that nobody reads needs none.
    #[inline]
    fn drop_if_unread(&mut self, key: KeyHash) {
        let Place::Young(at) = self.table.find(key) else { return };
        let record = self.table.entry(at);
        // Two keys of one transaction may share a hash, and another one may hold it since the first
        // of them was freed.
        if record.prepared.is_none()
            && record.latest_read <= self.low_water
            && record.last_present <= record.latest.timestamp
        {
            self.table.take_out(at);
        }
    }

    /// The rest of [`RecentAccess::release`] where keys may have several holders: another one takes
    /// the place of the one that the record has named.
    #[cold]
    fn release_of_many(&mut self, key: KeyHash, holder: Holder, was_named: bool) {
        if let Some(place) = self.more_holders.iter().position(|&one| one == (key, holder)) {
            debug_assert!(!was_named, "a holder is noted once");
            self.more_holders.remove(place);
        } else if was_named {
            let next = self.take_holder(key);
            self.record(key, LatestInStore::NONE).prepared = next;
        }
    }

    fn take_holder(&mut self, key: KeyHash) -> Holder {
        let place = self.more_holders.iter().position(|&(one, _)| one == key);
        let taken = place.map_or(Holder::NONE, |place| self.more_holders.remove(place).1);
        debug_assert!(!self.more_holders.contains(&(key, taken)), "a holder is noted once");
        taken
    }

    /// The holders of a key besides the one that its record names.
    #[inline]
    pub(super) fn more_holders(&self, key: KeyHash) -> impl Iterator<Item = Holder> {
        self.more_holders.iter().filter(move |one| one.0 == key).map(|one| one.1)
    }

    #[inline]
    pub(super) fn has_more_holders(&self) -> bool {
        !self.more_holders.is_empty()
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
    fn a_record_that_is_used_survives_rotations_and_others_raise_the_low_water_timestamp() {
        let mut recent = RecentAccess::default();
        recent.record(KEY, LatestInStore::NONE).latest_read = at(5);
        recent.note(at(5));
        recent.record(KeyHash(8), LatestInStore::NONE).latest_read = at(9);
        recent.note(at(9));
        recent.rotate(at(100), [].into_iter());
        assert_eq!(recent.low_water(), Timestamp::ZERO, "nothing was dropped yet");
        assert_eq!(recent.record(KEY, LatestInStore::NONE).latest_read, at(5));
        recent.rotate(at(200), [].into_iter());
        assert_eq!(recent.low_water(), at(9));
        assert_eq!(
            recent.record(KEY, LatestInStore::NONE).latest_read,
            at(5),
            "moved to the young generation by its use"
        );
        assert_eq!(
            recent.record(KeyHash(8), LatestInStore::NONE).latest_read,
            at(9),
            "a new record starts at the low-water timestamp"
        );
    }

    #[test]
    fn a_held_key_is_never_dropped() {
        let mut recent = RecentAccess::default();
        let holder = Holder::new(3);
        recent.hold(KEY, holder, LatestInStore::NONE);
        for turn in 1..5 {
            recent.rotate(at(turn * 100), [KEY].into_iter());
        }
        assert_eq!(recent.record(KEY, LatestInStore::NONE).prepared, holder);
        recent.record(KEY, LatestInStore::NONE).latest_read = at(40);
        recent.note(at(40));
        recent.release(KEY, holder, Some((Version::new(at(50), ClientId::new(1)), false)));
        assert!(recent.record(KEY, LatestInStore::NONE).prepared.is_none());
        assert_eq!(recent.record(KEY, LatestInStore::NONE).latest.timestamp, at(50));
    }

    #[test]
    fn a_key_that_nobody_reads_has_a_record_for_as_long_as_it_is_held() {
        let mut recent = RecentAccess::default();
        let holder = Holder::new(3);
        recent.hold(KEY, holder, LatestInStore::NONE);
        assert_eq!(recent.len(), 1);
        recent.release(KEY, holder, Some((Version::new(at(50), ClientId::new(1)), false)));
        assert_eq!((recent.len(), recent.high_water()), (0, at(50)));
        recent.hold(KEY, holder, LatestInStore::NONE);
        recent.release(KEY, holder, None);
        assert_eq!(recent.len(), 1, "what was taken back says nothing of the store");
        // Of two transactions that hold a key after a restart, one names it twice.
        let (version, other) = (Version::new(at(60), ClientId::new(1)), Holder::new(4));
        recent.hold(KEY, holder, LatestInStore::NONE);
        recent.hold(KEY, other, LatestInStore::NONE);
        recent.release(KEY, holder, Some((version, false)));
        recent.release(KEY, holder, Some((version, false)));
        assert_eq!(recent.record(KEY, LatestInStore::NONE).prepared, other);
    }

    #[test]
    fn with_as_many_keys_as_it_may_have_a_generation_is_over() {
        let mut recent = RecentAccess::of(3);
        recent.rotate(at(1), core::iter::empty());
        for key in 0..3 {
            assert!(!recent.is_due(at(2)), "{key} keys");
            recent.record(KeyHash(key << 30), LatestInStore::NONE);
        }
        assert!(recent.is_due(at(2)));
        recent.rotate(at(2), core::iter::empty());
        assert!(!recent.is_due(at(3)), "the next one has just begun");
    }

    #[test]
    fn the_later_of_store_and_record_counts() {
        let mut recent = RecentAccess::default();
        let version = |nanos| Version::new(at(nanos), ClientId::new(1));
        recent.record(KEY, LatestInStore { version: version(5), absent: false });
        assert_eq!(
            recent.record(KEY, LatestInStore { version: version(4), absent: true }).latest,
            version(5)
        );
        let record = *recent.record(KEY, LatestInStore { version: version(6), absent: true });
        assert_eq!((record.latest, record.absent), (version(6), true));
    }

    #[test]
    fn two_holders_of_one_key_are_released_in_either_order() {
        for first_goes_first in [true, false] {
            let mut recent = RecentAccess::default();
            let (one, two) = (Holder::new(1), Holder::new(2));
            recent.hold(KEY, one, LatestInStore::NONE);
            recent.hold(KEY, two, LatestInStore::NONE);
            assert_eq!(recent.more_holders(KEY).collect::<Vec<_>>(), [two]);
            let (first, second) = if first_goes_first { (one, two) } else { (two, one) };
            recent.release(KEY, first, None);
            assert_eq!(recent.record(KEY, LatestInStore::NONE).prepared, second);
            recent.release(KEY, second, None);
            assert!(
                recent.record(KEY, LatestInStore::NONE).prepared.is_none()
                    && !recent.has_more_holders()
            );
        }
    }
}
