//! What is in memory: keyspaces, what of them is to be collected, and how many bytes that takes.
//!
//! ```text
//!   add, add_fence ─► Spaces ─► bytes ─► room for further ones?
//!        └──────────► Collector ─► collect ─► Spaces
//! ```
//!
//! Invariants: `table_bytes` is at or above what the keyspaces take, so that what an admission
//! counted on finds room; every key in a table has a version.

use timestone_types::{KeyRef, KeyspaceId, Timestamp, Version};

use super::chain::{Added, Entry, Stored};
use super::collect::Collector;
use super::space::{Space, Spaces};
use super::watermarks::Watermarks;
use crate::api::PutsInMemory;
use crate::error::StoreError;

/// One byte in this many is kept back from admissions: for tables that grow, and for writes that
/// nobody asked an admission for.
const MARGIN_DIVISOR: u64 = 16;

/// Keyspaces, and the memory for them.
pub(super) struct Contents {
    spaces: Spaces,
    collector: Collector,
    /// Bytes of the keyspaces.
    table_bytes: u64,
    limit_bytes: u64,
}

impl Contents {
    /// Nothing, which may take so many bytes.
    pub(super) fn new(limit_bytes: u64) -> Self {
        let (spaces, collector) = (Spaces::default(), Collector::default());
        Self { spaces, collector, table_bytes: 0, limit_bytes }
    }

    /// What holds between turns.
    pub(super) fn assert_sound(&self) {
        self.spaces.iter().for_each(Space::assert_sound);
    }

    /// What holds of one keyspace between calls: to look at all of them for each would cost more than the call.
    #[inline]
    pub(super) fn assert_sound_in(&self, keyspace: KeyspaceId) {
        if cfg!(debug_assertions) {
            self.get(keyspace).into_iter().for_each(Space::assert_sound);
        }
    }

    /// A keyspace that is there.
    #[inline]
    pub(super) fn get(&self, id: KeyspaceId) -> Option<&Space> {
        self.spaces.get(id)
    }

    /// All keyspaces, by id.
    pub(super) fn spaces(&self) -> impl Iterator<Item = &Space> {
        self.spaces.iter()
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        self.table_bytes + self.collector.bytes() as u64
    }

    /// Bytes of memory that it may take.
    pub(super) const fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Why there is no room.
    pub(super) fn full(&self) -> StoreError {
        StoreError::MemoryFull { used_bytes: self.bytes(), limit_bytes: self.limit_bytes }
    }

    /// Whether a version finds room, of so many bytes of key and value.
    #[inline]
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.bytes() + Entry::bytes_for(bytes) as u64 <= self.limit_bytes
    }

    /// Whether there is room for these puts, after those that were promised before. Each takes an
    /// entry beside its bytes, whether it is wanted now or promised already.
    pub(super) fn admit(
        &self,
        wanted: PutsInMemory,
        promised: PutsInMemory,
    ) -> Result<(), StoreError> {
        let limit = self.limit_bytes - self.limit_bytes / MARGIN_DIVISOR;
        let entries = (wanted.count + promised.count) * Entry::bytes_for(0) as u64;
        let taken = self.bytes() + wanted.bytes + promised.bytes + entries;
        if wanted.count > 0 && taken > limit { Err(self.full()) } else { Ok(()) }
    }

    /// Adds a version; false when it is there already, or a fence that the watermark has passed
    /// hides it.
    pub(super) fn add(&mut self, key: KeyRef<'_>, stored: Stored, marks: &Watermarks) -> bool {
        self.assert_sound_in(key.keyspace);
        let (space, made_bytes) = self.spaces.ensure(key.keyspace, marks.lost());
        self.table_bytes += made_bytes as u64;
        let by = marks.collected(space);
        if stored.version <= by.fence {
            return false;
        }
        let (hash, before) = (key.hash.0, space.bytes());
        if space.add(hash, key.bytes, stored, &by) == Added::Duplicate {
            return false;
        }
        let (due, after) = (space.due(hash, key.bytes), space.bytes());
        self.table_bytes = self.table_bytes + after as u64 - before as u64;
        if let Some(at) = due {
            self.collector.note(at, key.keyspace, hash);
        }
        true
    }

    /// Adds a fence; false when it is there already.
    pub(super) fn add_fence(
        &mut self,
        keyspace: KeyspaceId,
        version: Version,
        marks: &Watermarks,
    ) -> bool {
        let (space, made_bytes) = self.spaces.ensure(keyspace, marks.lost());
        self.table_bytes += made_bytes as u64;
        let before = space.bytes();
        let is_new = space.add_fence(version);
        assert!(space.latest_fence() >= version, "a fence is in force at once");
        self.table_bytes = self.table_bytes + space.bytes() as u64 - before as u64;
        is_new
    }

    /// Drops some of what nobody may ask for any more.
    pub(super) fn collect(&mut self, now: Timestamp, marks: &Watermarks) {
        self.collector.pump(now, marks, &mut self.spaces);
        self.table_bytes = self.spaces.iter().map(|space| space.bytes() as u64).sum();
        self.assert_sound();
    }

    /// When there is something to collect next.
    pub(super) fn next_deadline(&self, now: Timestamp, marks: &Watermarks) -> Option<Timestamp> {
        self.collector.next_deadline(now, marks, &self.spaces)
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::{ClientId, Expiry, HashSeed};

    use super::*;

    #[test]
    fn a_keyspace_is_counted_from_its_first_write_on() {
        let (mut contents, marks) = (Contents::new(1 << 20), Watermarks::new());
        let (put, fenced) = (KeyspaceId::new(1), KeyspaceId::new(2));
        let version = Version::new(Timestamp::from_nanos(1), ClientId::new(1));
        let key = KeyRef::new(HashSeed(1), put, b"key");
        let stored = Stored { version, expires_at: Expiry::NEVER, value: Some([7; 9].into()) };
        assert!(contents.add(key, stored, &marks) && contents.add_fence(fenced, version, &marks));
        let bytes: usize = contents.spaces().map(Space::bytes).sum();
        assert_eq!(contents.table_bytes, bytes as u64);
    }

    #[test]
    fn what_is_admitted_finds_room() {
        let (mut contents, marks) = (Contents::new(1 << 20), Watermarks::new());
        let put = PutsInMemory { count: 1, bytes: 1001 };
        let mut count: u16 = 0;
        while contents.admit(put, PutsInMemory::default()).is_ok() {
            assert!(contents.has_room(1001), "put {count}");
            let bytes = count.to_be_bytes();
            let key = KeyRef::new(HashSeed(1), KeyspaceId::DEFAULT, &bytes);
            let version = Version::new(Timestamp::from_nanos(1), ClientId::new(1));
            let value = Some(vec![7; 999].into());
            let stored = Stored { version, expires_at: Expiry::NEVER, value };
            assert!(contents.add(key, stored, &marks));
            count += 1;
        }
        assert!(count > 700, "most of the memory is used: {count}");
        assert!(contents.bytes() < contents.limit_bytes());
        assert!(contents.admit(PutsInMemory::default(), put).is_ok(), "nothing is wanted");
    }
}
