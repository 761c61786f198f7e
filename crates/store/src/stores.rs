//! The stores of a shard: a keyspace says by its id which one is its own.
//!
//! ```text
//!   key ─► KeyspaceId::is_in_memory? ─┬─ no ─► Mftl
//!                                     └─ yes ► Dram
//! ```
//! The id alone decides, so that a shard need not be told of a keyspace before the first request or
//! log record for it arrives. The choice is a test of one bit; nothing is dispatched dynamically.
//!
//! What concerns durability concerns the store on flash alone: batches, syncs, checkpoints, scrubs
//! and the end. Nobody has to wait for a store that keeps nothing.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use timestone_types::{Expiry, HashSeed, KeyRef, KeyspaceId, Timestamp, Version};

use crate::api::{
    AsOf, Count, Figure, FigureValues, Figures, KeyRange, KeysAhead, Latest, LatestLookup, Lookup,
    PromisedPuts, PutSize, RangeCheck, ReadToken, Reads, ScanCursor, ScanLimit, StoreEvent, Upkeep,
    Writes,
};
use crate::dram::Dram;
use crate::error::StoreError;
use crate::mftl::Mftl;

/// See the module.
pub struct Stores {
    flash: Mftl,
    dram: Dram,
    /// Keyspaces in memory have been written to in this run.
    uses_dram: bool,
}

impl Stores {
    /// A store on flash, and one in memory that was opened
    /// [in recovery](Dram::in_recovery) or is new.
    ///
    /// # Panics
    /// The two hash keys by different seeds.
    #[must_use]
    pub fn new(flash: Mftl, dram: Dram) -> Self {
        assert_eq!(flash.seed(), dram.seed(), "a key has one hash");
        Self { flash, dram, uses_dram: false }
    }
}

impl Stores {
    /// The store in memory is kept going as soon as it has something.
    #[inline]
    fn assert_sound(&self) {
        debug_assert!(self.uses_dram || !self.dram.has_puts(), "what is there is collected");
    }
}

impl Reads for Stores {
    #[inline]
    fn seed(&self) -> HashSeed {
        self.flash.seed()
    }

    #[inline]
    fn get_as_of(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
        token: ReadToken,
    ) -> Result<Lookup<'_>, StoreError> {
        self.assert_sound();
        if key.keyspace.is_in_memory() {
            return self.dram.get_as_of(key, at, judged, token);
        }
        self.flash.get_as_of(key, at, judged, token)
    }

    #[inline]
    fn get_in_memory(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
    ) -> Result<Lookup<'_>, StoreError> {
        self.assert_sound();
        if key.keyspace.is_in_memory() {
            return self.dram.get_in_memory(key, at, judged);
        }
        self.flash.get_in_memory(key, at, judged)
    }

    fn is_beside_fence(&self, key: KeyRef<'_>, fence: Version) -> bool {
        if key.keyspace.is_in_memory() {
            return self.dram.is_beside_fence(key, fence);
        }
        self.flash.is_beside_fence(key, fence)
    }

    #[inline]
    fn latest(&mut self, key: KeyRef<'_>, token: ReadToken) -> LatestLookup {
        self.assert_sound();
        if key.keyspace.is_in_memory() {
            return self.dram.latest(key, token);
        }
        self.flash.latest(key, token)
    }

    #[inline]
    fn latest_in_memory(&self, key: KeyRef<'_>) -> Option<Latest> {
        self.assert_sound();
        if key.keyspace.is_in_memory() {
            return self.dram.latest_in_memory(key);
        }
        self.flash.latest_in_memory(key)
    }

    fn newest(&self, keyspace: KeyspaceId) -> Timestamp {
        if keyspace.is_in_memory() {
            return self.dram.newest(keyspace);
        }
        self.flash.newest(keyspace)
    }

    #[inline]
    fn lost(&self, keyspace: KeyspaceId) -> Timestamp {
        if keyspace.is_in_memory() { self.dram.lost(keyspace) } else { self.flash.lost(keyspace) }
    }

    #[inline]
    fn fetch_ahead(&self, keys: KeysAhead<'_>) {
        // Keyspaces in memory are unknown there, which costs next to nothing.
        self.flash.fetch_ahead(keys);
    }

    fn scan_as_of(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<(), StoreError> {
        self.assert_sound();
        if keyspace.is_in_memory() {
            return self.dram.scan_as_of(keyspace, cursor, limit, as_of, token);
        }
        self.flash.scan_as_of(keyspace, cursor, limit, as_of, token)
    }

    fn range_as_of(
        &mut self,
        range: KeyRange<'_>,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<(), StoreError> {
        self.assert_sound();
        if range.keyspace.is_in_memory() {
            return self.dram.range_as_of(range, limit, as_of, token);
        }
        self.flash.range_as_of(range, limit, as_of, token)
    }

    fn first_above(
        &self,
        range: KeyRange<'_>,
        t: Timestamp,
        max_keys: u32,
    ) -> Result<RangeCheck, StoreError> {
        self.assert_sound();
        if range.keyspace.is_in_memory() {
            return self.dram.first_above(range, t, max_keys);
        }
        self.flash.first_above(range, t, max_keys)
    }

    fn list_keys(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        token: ReadToken,
    ) {
        self.assert_sound();
        if keyspace.is_in_memory() {
            return self.dram.list_keys(keyspace, cursor, limit, token);
        }
        self.flash.list_keys(keyspace, cursor, limit, token);
    }

    fn kept_keyspaces(&self) -> Vec<KeyspaceId> {
        self.flash.kept_keyspaces()
    }

    fn fences(&self, keyspace: KeyspaceId) -> Vec<Version> {
        if keyspace.is_in_memory() {
            return self.dram.fences(keyspace);
        }
        self.flash.fences(keyspace)
    }

    fn count_as_of(
        &mut self,
        keyspace: KeyspaceId,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<Count, StoreError> {
        self.assert_sound();
        if keyspace.is_in_memory() {
            return self.dram.count_as_of(keyspace, as_of, token);
        }
        self.flash.count_as_of(keyspace, as_of, token)
    }

    fn recycle(&mut self, bytes: Vec<u8>) {
        self.assert_sound();
        self.flash.recycle(bytes);
    }
}

impl Writes for Stores {
    #[inline]
    fn put(
        &mut self,
        key: KeyRef<'_>,
        version: Version,
        value: &[u8],
        expires_at: Expiry,
    ) -> Result<(), StoreError> {
        self.assert_sound();
        if key.keyspace.is_in_memory() {
            self.uses_dram = true;
            return self.dram.put(key, version, value, expires_at);
        }
        self.flash.put(key, version, value, expires_at)
    }

    #[inline]
    fn delete(&mut self, key: KeyRef<'_>, version: Version) -> Result<(), StoreError> {
        self.assert_sound();
        if key.keyspace.is_in_memory() {
            self.uses_dram = true;
            return self.dram.delete(key, version);
        }
        self.flash.delete(key, version)
    }

    fn fence(&mut self, keyspace: KeyspaceId, version: Version) -> Result<(), StoreError> {
        self.assert_sound();
        if keyspace.is_in_memory() {
            self.uses_dram = true;
            return self.dram.fence(keyspace, version);
        }
        self.flash.fence(keyspace, version)
    }

    #[inline]
    fn admit(
        &mut self,
        puts: &mut dyn Iterator<Item = PutSize>,
        promised: PromisedPuts,
    ) -> Result<(), StoreError> {
        self.assert_sound();
        let mut in_memory_puts = PromisedPuts::default();
        let mut on_flash = puts
            .filter(|put| {
                let in_memory = put.keyspace.is_in_memory();
                if in_memory {
                    in_memory_puts.count += 1;
                    in_memory_puts.bytes += Dram::most_bytes(*put);
                }
                !in_memory
            })
            .peekable();
        // A device that is behind does not hold up what is not for it.
        if on_flash.peek().is_some() {
            self.flash.admit(&mut on_flash, promised)?;
            // It need not have looked at all of them.
            on_flash.for_each(drop);
        }
        self.dram.admit_puts(in_memory_puts, promised)
    }
}

impl Upkeep for Stores {
    fn recovered(&mut self, bound: Timestamp) {
        self.assert_sound();
        self.flash.recovered(bound);
        self.dram.recovered(bound);
    }

    fn begin_life(&mut self) {
        self.assert_sound();
        self.flash.begin_life();
        self.dram.begin_life();
    }

    fn has_failed(&self) -> bool {
        self.flash.has_failed()
    }

    fn advance_watermark(&mut self, t: Timestamp) {
        self.assert_sound();
        self.flash.advance_watermark(t);
        self.dram.advance_watermark(t);
    }

    fn watermark(&self) -> Timestamp {
        self.flash.watermark()
    }

    fn youngest(&self) -> Timestamp {
        self.flash.youngest().max(self.dram.youngest())
    }

    fn advance_replay_floor(&mut self, t: Timestamp) {
        self.assert_sound();
        self.flash.advance_replay_floor(t);
        self.dram.advance_replay_floor(t);
    }

    fn begin_batch(&mut self, batch: u64) {
        self.assert_sound();
        self.flash.begin_batch(batch);
    }

    fn stable_batch(&self) -> u64 {
        self.flash.stable_batch()
    }

    fn sync_soon(&mut self) {
        self.assert_sound();
        self.flash.sync_soon();
    }

    fn checkpoint_now(&mut self) {
        self.assert_sound();
        self.flash.checkpoint_now();
    }

    fn scrub(&mut self) {
        self.assert_sound();
        self.flash.scrub();
    }

    fn pump(&mut self, now: Timestamp, events: &mut Vec<StoreEvent>) {
        self.assert_sound();
        self.flash.pump(now, events);
        // Walks over keyspaces that nobody has written to yet are answered, too.
        if self.uses_dram || self.dram.next_deadline().is_some() {
            self.dram.pump(now, events);
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        [self.flash.next_deadline(), self.dram.next_deadline()].into_iter().flatten().min()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.flash.wake_fd()
    }

    fn wait(&mut self, timeout: Duration) {
        self.assert_sound();
        self.flash.wait(timeout);
    }

    fn resize_cache(&mut self, bytes: u64) {
        self.assert_sound();
        self.flash.resize_cache(bytes);
    }

    fn charge_cache(&mut self, beside: u64) {
        self.assert_sound();
        self.flash.charge_cache(beside);
    }

    fn shutdown(&mut self) {
        self.assert_sound();
        self.flash.shutdown();
        self.dram.close();
    }
}

impl Figures for Stores {
    fn figures(&self) -> FigureValues {
        let mut figures = self.flash.figures();
        if self.uses_dram {
            figures.add_all(&self.dram.figures());
        } else {
            figures.add(Figure::DramLimitBytes, self.dram.figures().get(Figure::DramLimitBytes));
        }
        figures
    }

    fn is_full(&self) -> bool {
        self.flash.is_full()
    }

    fn growth_error(&self) -> Option<&str> {
        self.flash.growth_error()
    }
}
