//! Writes: values, tombstones, fences.
//!
//! ```text
//!   put ─► index: where would it go? ─► page of a stream │ staging area ─► index ─► cache
//!             └─ there already, or pruned: nothing to do   └─ no room: refused, no trace
//! ```
//!
//! A put finds its place in the index first (one probe), appends its record to a stream
//! ([`placement`](super::placement)), and enters it under the page that it got; the cache gets a copy. Values that do not fit a page go to
//! the staging area.
//!
//! What must not happen: a put that is refused leaves no trace; a put that is there already, or
//! that no reader can want any more, costs no space.
//!
//! Hidden dependency that this module made explicit: a put that supersedes a large value causes a
//! read, so that the blocks of its parts hear of it.

use timestone_flash::PageId;
use timestone_types::limits::MAX_KEY_BYTES;
use timestone_types::{Expiry, KeyHash, KeyRef, KeyspaceId, Timestamp, Version, is_planted};

use super::index::{KeyId, Location, Spot};
use super::placement::Placement;
use super::reads::PendingReads;
use super::space::{Fence, Spaces};
use crate::api::PutSize;
use crate::error::StoreError;
use crate::kit::Kit;
use crate::kit::blocks::Blocks;
use crate::kit::cache::CacheKey;
use crate::kit::room::Room;
use crate::kit::staging::{Cut, Staging, check_put_size, max_value_bytes};
use crate::kit::volume::Volume;
use crate::kit::writer::StreamId;
use crate::layout::{MAX_RECORD_BYTES, Record, RecordKind};
use crate::limits::PROMISE_MARGIN;

/// What puts take of pages, at most, for every byte of theirs: of two pages that follow each other,
/// more than one is filled. For the smallest records it stands for their headers.
const WORST_PACKING: u64 = 2;

/// What writes came to since opening.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct WriteCounts {
    /// Accepted.
    pub(super) puts: u64,
    /// There already, or superseded for every reader.
    pub(super) duplicates: u64,
    /// Bytes of the records of accepted ones.
    pub(super) bytes: u64,
}

/// One version to be written.
#[derive(Clone, Copy)]
pub(super) struct Put<'a> {
    pub(super) key: KeyRef<'a>,
    pub(super) version: Version,
    /// `None` for a tombstone.
    pub(super) value: Option<&'a [u8]>,
    pub(super) expires_at: Expiry,
}

impl<'a> Put<'a> {
    fn record(&self) -> Record<'a> {
        let value = self.value.unwrap_or_default();
        let (key, expires) = (self.key.bytes, !self.expires_at.is_never());
        let large = Record::bytes_for(key.len(), value.len(), expires) > MAX_RECORD_BYTES;
        let kind = match (self.value.is_some(), large) {
            (true, false) => RecordKind::Value,
            (true, true) => RecordKind::Large,
            (false, false) => RecordKind::Tombstone,
            (false, true) => RecordKind::LargeTombstone,
        };
        Record {
            kind,
            keyspace: self.key.keyspace,
            hash: self.key.hash,
            version: self.version,
            expires_at: self.expires_at,
            key,
            value,
            links: None,
        }
    }

    fn check_lengths(&self, volume: &Volume) -> Result<(), StoreError> {
        let (key, value) = (self.key.bytes.len(), self.value.map_or(0, <[u8]>::len));
        if key > MAX_KEY_BYTES {
            return Err(StoreError::KeyTooLong { bytes: key, limit: MAX_KEY_BYTES });
        }
        let limit = max_value_bytes(volume.geometry());
        if value > limit {
            return Err(StoreError::ValueTooLarge { bytes: value, limit });
        }
        Ok(())
    }
}

/// Free blocks that a write must leave: deletes and fences may go deeper than puts, collection
/// deeper still.
fn leave(frees_space: bool, blocks: &Blocks) -> u32 {
    if frees_space { blocks.least_reserve() } else { blocks.reserve() }
}

/// A put or a delete, which the store's life allows.
pub(super) fn write(
    put: Put<'_>,
    kit: &mut Kit,
    spaces: &mut Spaces,
    reads: &mut PendingReads,
    (placement, counts): (&mut Placement, &mut WriteCounts),
) -> Result<(), StoreError> {
    put.check_lengths(&kit.volume)?;
    let Put { key, version, expires_at, .. } = put;
    let id = KeyId::of(key.hashed());
    let space = spaces.ensure(key.keyspace);
    if version <= spaces.list[space].fence_at(spaces.marks.collection()) {
        counts.duplicates += 1;
        return Ok(());
    }
    let spot = spaces.list[space].index.probe(id, version);
    if spot == Spot::Exists
        || (matches!(spot, Spot::Between(_)) && spaces.is_pruned(space, id, version))
    {
        counts.duplicates += 1;
        return Ok(());
    }
    let record = put.record();
    let location = if record.kind.is_large() {
        stage_put(&record, id, kit)?
    } else {
        let superseded = spaces.list[space].index.superseded_by(id, spot);
        let stream = stream_of(&record, superseded, placement, &kit.volume.blocks);
        append_put(&record, id, stream, kit)?
    };
    if let Some(older) = enter(&record, (space, id, spot), location, kit, spaces, reads) {
        let older = CacheKey { keyspace: key.keyspace, id, version: older, key: key.bytes };
        kit.cache.superseded(older, record.value.len());
    }
    spaces.list[space].note_key(id, key.bytes, version.timestamp, spot != Spot::NewKey);
    debug_assert!(spaces.list[space].index.chain(id).any(|(known, _)| known == version));
    if record.kind == RecordKind::Value {
        let filed = CacheKey { keyspace: key.keyspace, id, version, key: key.bytes };
        kit.cache.insert(filed, expires_at, record.value);
    }
    counts.puts += 1;
    counts.bytes += record.bytes() as u64;
    Ok(())
}

/// Tombstones and what expires die early.
fn stream_of(
    record: &Record<'_>,
    superseded: Option<Version>,
    placement: &mut Placement,
    blocks: &Blocks,
) -> StreamId {
    if record.kind == RecordKind::Value && record.expires_at.is_never() {
        placement.stream(record.version.timestamp, superseded.map(|older| older.timestamp), blocks)
    } else {
        StreamId::Hot
    }
}

fn append_put(
    record: &Record<'_>,
    id: KeyId,
    stream: StreamId,
    kit: &mut Kit,
) -> Result<Location, StoreError> {
    let volume = &mut kit.volume;
    let tombstone = record.kind == RecordKind::Tombstone;
    let apart = if stream == StreamId::Hot {
        None
    } else {
        // What was promised room is counted as if it went into one stream: where there is not much
        // left it does.
        volume.append(stream, record, id.check, volume.blocks.floor())
    };
    let leave = leave(tombstone, &volume.blocks);
    let page = apart.or_else(|| volume.append(StreamId::Hot, record, id.check, leave));
    let page = page.ok_or_else(|| kit.room.none(&kit.volume.blocks))?;
    assert!(page.0 < Location::MAX_PAGES, "the device was refused if it had more pages");
    Ok(Location::new(page.0, tombstone, !record.expires_at.is_never()))
}

fn stage_put(record: &Record<'_>, id: KeyId, kit: &mut Kit) -> Result<Location, StoreError> {
    debug_assert!(record.kind.is_large(), "small records go into pages");
    // Also when it is refused: room is made for the largest value that somebody wants to put.
    let cut = Cut::of(record.key.len(), record.value.len());
    kit.volume.blocks.note_large(cut.parts);
    if kit.staging.is_full() {
        return Err(StoreError::Busy);
    }
    if !kit.room.take_large(cut.bytes as u64, &kit.volume, &kit.staging) {
        return Err(kit.room.none(&kit.volume.blocks));
    }
    Ok(super::large::stage(record, id, kit.volume.writer.batch(), None, kit))
}

/// Enters a record into the index and lets blocks know what it supersedes: the version is returned.
fn enter(
    record: &Record<'_>,
    (space, id, spot): (usize, KeyId, Spot),
    location: Location,
    kit: &mut Kit,
    spaces: &mut Spaces,
    reads: &mut PendingReads,
) -> Option<Version> {
    let watermark = spaces.marks.collection();
    let space = &mut spaces.list[space];
    let version = record.version;
    space.youngest = space.youngest.max(version);
    let hid = matches!(spot, Spot::Youngest(slot) if space.index.hides_in(id, slot));
    let superseded = space.index.put(id, spot, version, location, watermark);
    debug_assert!(superseded.is_none_or(|(older, _)| older < version));
    if let Some((older, old)) = superseded
        && (!old.tombstone() || hid)
    {
        note_dead(old, version.timestamp, watermark, &mut kit.volume.blocks);
        let dead = (space.id, id, older, old);
        reads.note_dead_parts(dead, version.timestamp, &mut kit.volume);
    }
    // A tombstone stays until what it hides is gone, and dies then.
    let hides = match spot {
        Spot::Youngest(_) => true,
        // What it has of dead records waited for it.
        Spot::NewKey => location.tombstone() && space.index.hides(id),
        Spot::Between(_) | Spot::Exists => false,
    };
    let hides = hides && !is_planted!(TombstonesCountAsDead);
    if (location.tombstone() && !hides) || matches!(spot, Spot::Between(_)) {
        note_dead(location, version.timestamp, watermark, &mut kit.volume.blocks);
    }
    superseded.map(|(older, _)| older)
}

/// The record at a location will not be needed once the watermark has passed `by`.
fn note_dead(location: Location, by: Timestamp, watermark: Timestamp, blocks: &mut Blocks) {
    debug_assert!(
        location.staged().is_some() || blocks.of(PageId(location.page())).0 < blocks.count()
    );
    if location.staged().is_none() {
        blocks.superseded(PageId(location.page()), by, watermark);
    }
}

/// A fence, which the store's life allows.
pub(super) fn write_fence(
    keyspace: KeyspaceId,
    version: Version,
    kit: &mut Kit,
    spaces: &mut Spaces,
    counts: &mut WriteCounts,
) -> Result<(), StoreError> {
    let space = spaces.ensure(keyspace);
    if spaces.list[space].has_fence(version) {
        counts.duplicates += 1;
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
        links: None,
    };
    let leave = leave(true, &kit.volume.blocks);
    let page = kit.volume.append(StreamId::Hot, &record, 0, leave);
    let page = page.ok_or_else(|| kit.room.none(&kit.volume.blocks))?;
    let is_new = spaces.list[space].add_fence(Fence { version, page: page.0 });
    assert!(is_new, "the fence was not known");
    counts.puts += 1;
    Ok(())
}

/// Whether puts of these sizes find room, beside what was promised before. If not, it is asked for.
///
/// # Errors
/// One of them never will.
pub(super) fn lacking(
    puts: &mut dyn Iterator<Item = PutSize>,
    promised: u64,
    room: &Room,
    volume: &Volume,
    staging: &Staging,
) -> Result<Option<u32>, StoreError> {
    // A promise must hold even if collection takes a block or two until it is kept, and however
    // badly its records pack.
    let margin = u64::from(PROMISE_MARGIN) * u64::from(volume.geometry().pages_per_block);
    let ahead = promised * WORST_PACKING + margin * timestone_flash::PAGE_BYTES as u64;
    let (mut small, mut values, mut large) = (0, 0, 0);
    for PutSize { bytes, .. } in puts {
        check_put_size(volume.geometry(), bytes)?;
        if Record::bytes_for(bytes, 0, true) > MAX_RECORD_BYTES {
            values += 1;
            large += bytes as u64;
        } else {
            small += bytes as u64 * WORST_PACKING;
        }
    }
    debug_assert!(large == 0 || values > 0, "large bytes are of large values");
    if values == 0 && small == 0 {
        return Ok(None);
    }
    Ok(if values == 0 {
        room.lacks_small(ahead + small, volume, staging)
    } else {
        room.lacks_large(values, ahead + small + large, volume, staging)
    })
}
