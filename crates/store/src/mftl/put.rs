//! Writes: values, tombstones, fences.
//!
//! A put finds its place in the index first (one probe), appends its record to the hot stream, and
//! enters it under the page that it got; the cache gets a copy. Values that do not fit a page go to
//! [`super::staging`].
//!
//! What must not happen: a put that is refused leaves no trace; a put that is there already, or
//! that no reader can want any more, costs no space.

use timestone_flash::PageId;
use timestone_types::limits::MAX_KEY_BYTES;
use timestone_types::{Expiry, KeyHash, KeyRef, KeyspaceId, Timestamp, Version};

use super::index::{KeyId, Location, Spot};
use super::reads::{For, Waiter};
use super::space::Fence;
use super::{Life, Mftl};
use crate::error::StoreError;
use crate::kit::cache::CacheKey;
use crate::kit::writer::StreamId;
use crate::layout::{MAX_RECORD_BYTES, Record, RecordKind};

impl Mftl {
    /// Free blocks that a write must leave: deletes and fences may go deeper than puts, collection
    /// deeper still.
    fn leave(&self, frees_space: bool) -> u32 {
        if frees_space { 2 } else { self.blocks.reserve() }
    }

    pub(super) fn may_write(&self, version: Version) -> Result<(), StoreError> {
        if self.life != Life::Running {
            return Err(StoreError::ShuttingDown);
        }
        if version.timestamp == Timestamp::ZERO || version.timestamp == Timestamp::MAX {
            return Err(StoreError::BadVersion(version));
        }
        if self.failed || self.writer.is_behind() {
            return Err(StoreError::Busy);
        }
        Ok(())
    }

    /// Why there is no block for a write.
    pub(super) fn no_room(&self) -> StoreError {
        if self.growing || !self.collector.stuck {
            return StoreError::Busy;
        }
        StoreError::DeviceFull {
            live_blocks: self.blocks.count() - self.blocks.free_count(),
            blocks: self.blocks.count(),
            growth: self.collector.growth_refusal().cloned(),
        }
    }

    /// A put (with a value) or a delete (without).
    pub(super) fn write(
        &mut self,
        key: KeyRef<'_>,
        version: Version,
        value: Option<&[u8]>,
        expires_at: Expiry,
    ) -> Result<(), StoreError> {
        self.may_write(version)?;
        if key.bytes.len() > MAX_KEY_BYTES {
            return Err(StoreError::KeyTooLong { bytes: key.bytes.len(), limit: MAX_KEY_BYTES });
        }
        let bytes = value.unwrap_or_default();
        let limit = self.max_value_bytes();
        if bytes.len() > limit {
            return Err(StoreError::ValueTooLarge { bytes: bytes.len(), limit });
        }
        let id = KeyId::of(self.seed, key);
        let space = self.spaces.ensure(key.keyspace);
        if version <= self.spaces.list[space].fence_at(self.collection_watermark) {
            self.stats.duplicate_puts += 1;
            return Ok(());
        }
        let spot = self.spaces.list[space].index.probe(id, version);
        if spot == Spot::Exists
            || (matches!(spot, Spot::Between(_)) && self.is_pruned(space, id, version))
        {
            self.stats.duplicate_puts += 1;
            return Ok(());
        }
        let large = Record::bytes_for(key.bytes.len(), bytes.len(), !expires_at.is_never())
            > MAX_RECORD_BYTES;
        let kind = match (value.is_some(), large) {
            (true, false) => RecordKind::Value,
            (true, true) => RecordKind::Large,
            (false, false) => RecordKind::Tombstone,
            (false, true) => RecordKind::LargeTombstone,
        };
        let record = Record {
            kind,
            keyspace: key.keyspace,
            hash: key.hash,
            version,
            expires_at,
            key: key.bytes,
            value: bytes,
        };
        let location =
            if large { self.stage(&record, id, None)? } else { self.append_put(&record, id)? };
        if let Some(older) = self.enter(space, id, spot, version, location) {
            let older = CacheKey { keyspace: key.keyspace, id, version: older, key: key.bytes };
            self.cache.superseded(older, bytes.len());
        }
        if kind == RecordKind::Value {
            self.cache.insert(
                CacheKey { keyspace: key.keyspace, id, version, key: key.bytes },
                expires_at,
                bytes,
            );
        }
        self.stats.puts += 1;
        self.stats.put_bytes += record.bytes() as u64;
        self.collector.consumed += record.bytes() as u64;
        self.checkpointer.consumed += record.bytes() as u64;
        Ok(())
    }

    /// Whether a younger version lies at or below the watermark already, so that no reader can want
    /// this one: a log that is replayed brings back what was overwritten or deleted long ago, on a
    /// device that may have no room for it.
    fn is_pruned(&self, space: usize, id: KeyId, version: Version) -> bool {
        let mut younger =
            self.spaces.list[space].index.chain(id).take_while(|&(found, _)| found > version);
        younger.any(|(found, _)| found.timestamp <= self.collection_watermark)
    }

    fn append_put(&mut self, record: &Record<'_>, id: KeyId) -> Result<Location, StoreError> {
        let tombstone = record.kind == RecordKind::Tombstone;
        let leave = self.leave(tombstone);
        let page = self
            .writer
            .append(StreamId::Hot, record, id.check, leave, &mut self.blocks, &mut self.port)
            .ok_or_else(|| self.no_room())?;
        Ok(Location::new(page.0, tombstone, !record.expires_at.is_never()))
    }

    /// Enters a record into the index and lets blocks know what it supersedes: the version is
    /// returned.
    fn enter(
        &mut self,
        space: usize,
        id: KeyId,
        spot: Spot,
        version: Version,
        location: Location,
    ) -> Option<Version> {
        let space = &mut self.spaces.list[space];
        let keyspace = space.id;
        space.youngest = space.youngest.max(version);
        let superseded = space.index.put(id, spot, version, location, self.collection_watermark);
        if let Some((older, old)) = superseded
            && !old.tombstone()
        {
            self.note_dead(old, version.timestamp);
            self.note_dead_parts(keyspace, id, older, old, version.timestamp);
        }
        if location.tombstone() || matches!(spot, Spot::Between(_)) {
            self.note_dead(location, version.timestamp);
        }
        superseded.map(|(older, _)| older)
    }

    /// The record at a location will not be needed once the watermark has passed `by`.
    pub(super) fn note_dead(&mut self, location: Location, by: Timestamp) {
        if location.page() < Location::MAX_PAGES {
            self.blocks.superseded(PageId(location.page()), by, self.collection_watermark);
        }
    }

    /// If a superseded record is a large one, the blocks of its parts must know: its head is read
    /// for that.
    pub(super) fn note_dead_parts(
        &mut self,
        keyspace: KeyspaceId,
        id: KeyId,
        version: Version,
        location: Location,
        by: Timestamp,
    ) {
        let page = PageId(location.page());
        if page.0 < Location::MAX_PAGES && self.blocks.is_large(page) {
            self.wait_for_page(Waiter::keyless(For::DeadParts(by), keyspace, id, version, page));
        }
    }

    pub(super) fn write_fence(
        &mut self,
        keyspace: KeyspaceId,
        version: Version,
    ) -> Result<(), StoreError> {
        self.may_write(version)?;
        let space = self.spaces.ensure(keyspace);
        if self.spaces.list[space].fences.iter().any(|fence| fence.version == version) {
            self.stats.duplicate_puts += 1;
            return Ok(());
        }
        let record = Record {
            kind: RecordKind::Fence,
            keyspace,
            hash: KeyHash(0),
            version,
            expires_at: Expiry::NEVER,
            key: &[],
            value: &[],
        };
        let leave = self.leave(true);
        let page = self
            .writer
            .append(StreamId::Hot, &record, 0, leave, &mut self.blocks, &mut self.port)
            .ok_or_else(|| self.no_room())?;
        self.spaces.list[space].add_fence(Fence { version, page: page.0 });
        self.stats.puts += 1;
        Ok(())
    }
}
