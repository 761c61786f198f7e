//! Writes: values, tombstones, fences.
//!
//! ```text
//!   put ─► known? there already, or nobody can want it ─► nothing
//!            └─► linked in front of its chain │ staged (large), linked when its parts are durable
//! ```
//!
//! What must not happen: a put that is refused leaves no trace.

use timestone_types::limits::MAX_KEY_BYTES;
use timestone_types::{Expiry, KeyRef, KeyspaceId, Version};

use super::chain::SoughtKey;
use super::contents::{FrugalContents, Known, StagedVersion, fence_record, key_id};
use super::spaces::Fence;
use crate::api::PutSize;
use crate::error::StoreError;
use crate::kit::blocks::Blocks;
use crate::kit::cache::CacheKey;
use crate::kit::ledger::Held;
use crate::kit::room::Room;
use crate::kit::staging::{Cut, Moved, PARTS_PER_PUMP, Staging, check_put_size, max_value_bytes};
use crate::kit::volume::Volume;
use crate::layout::{LINK_BYTES, MAX_RECORD_BYTES, Record, RecordKind};
use crate::limits::PROMISE_MARGIN;

/// What puts take of pages, at most, for every byte of theirs.
const WORST_PACKING: u64 = 2;

/// Free blocks that a write must leave: deletes and fences may go deeper than puts.
fn leave(frees_space: bool, blocks: &Blocks) -> u32 {
    if frees_space { 2 } else { blocks.reserve() }
}

fn record_of<'a>(
    key: KeyRef<'a>,
    version: Version,
    value: Option<&'a [u8]>,
    expires_at: Expiry,
) -> Record<'a> {
    let bytes = value.unwrap_or_default();
    let length = Record::bytes_for(key.bytes.len(), bytes.len(), !expires_at.is_never());
    let kind = match (value.is_some(), length + LINK_BYTES > MAX_RECORD_BYTES) {
        (true, false) => RecordKind::Value,
        (true, true) => RecordKind::Large,
        (false, false) => RecordKind::Tombstone,
        (false, true) => RecordKind::LargeTombstone,
    };
    let (keyspace, hash, key) = (key.keyspace, key.hash, key.bytes);
    Record { kind, keyspace, hash, version, expires_at, key, value: bytes, links: None }
}

/// A put, or a delete (no value), which the store's life allows.
pub(super) fn write(
    key: KeyRef<'_>,
    version: Version,
    value: Option<&[u8]>,
    expires_at: Expiry,
    core: &mut FrugalContents,
) -> Result<(), StoreError> {
    let (key_bytes, value_bytes) = (key.bytes.len(), value.map_or(0, <[u8]>::len));
    if key_bytes > MAX_KEY_BYTES {
        return Err(StoreError::KeyTooLong { bytes: key_bytes, limit: MAX_KEY_BYTES });
    }
    let limit = max_value_bytes(core.kit.volume.geometry());
    if value_bytes > limit {
        return Err(StoreError::ValueTooLarge { bytes: value_bytes, limit });
    }
    let mark = core.spaces.marks.collection();
    let sought = SoughtKey::of(key);
    let staged = core.staged.get(&sought.name);
    let pruned = match core.spaces.ensure(key.keyspace).fence_at(mark) >= version
        || staged.is_some_and(|all| all.iter().any(|one| one.version == version))
    {
        true => true,
        false => match core.known(sought, version) {
            Known::Exists => true,
            Known::Youngest(youngest) => {
                youngest.version > version && youngest.version.timestamp <= mark
            }
            Known::Unknown => false,
        },
    };
    if pruned {
        core.counts.duplicates += 1;
        return Ok(());
    }
    let record = record_of(key, version, value, expires_at);
    if record.kind.is_large() {
        stage(&record, sought, core)?;
    } else {
        let older = core.translations.peek(sought.name).map(|known| known.version);
        let leave = leave(record.kind.is_tombstone(), &core.kit.volume.blocks);
        let batch = core.kit.volume.writer.batch();
        let held = Held { batch, oldest: version.timestamp };
        let page = core.link(&record, sought.name, held, leave);
        page.ok_or_else(|| core.kit.room.none(&core.kit.volume.blocks))?;
        let (keyspace, id, key) = (key.keyspace, key_id(sought.name), key.bytes);
        if let Some(older) = older.filter(|&older| older < version && !older.is_zero()) {
            let older = CacheKey { keyspace, id, version: older, key };
            core.kit.cache.superseded(older, record.value.len());
        }
        if record.kind == RecordKind::Value {
            let filed = CacheKey { keyspace, id, version, key };
            core.kit.cache.insert(filed, expires_at, record.value);
        }
    }
    let space = core.spaces.ensure(key.keyspace);
    space.youngest = space.youngest.max(version);
    core.counts.puts += 1;
    core.counts.put_bytes += record.bytes() as u64;
    Ok(())
}

fn stage(
    record: &Record<'_>,
    key: SoughtKey<'_>,
    core: &mut FrugalContents,
) -> Result<(), StoreError> {
    let cut = Cut::of(record.key.len(), record.value.len());
    let kit = &mut core.kit;
    kit.volume.blocks.note_large(cut.parts);
    if kit.staging.is_full() {
        return Err(StoreError::Busy);
    }
    if !kit.room.take_large(cut.bytes as u64, &kit.volume, &kit.staging) {
        return Err(kit.room.none(&kit.volume.blocks));
    }
    let batch = kit.volume.writer.batch();
    let slot = kit.staging.accept(record, key_id(key.name), batch, None);
    core.staged.entry(key.name).or_default().push(StagedVersion {
        version: record.version,
        slot,
        tombstone: record.kind.is_tombstone(),
        may_expire: !record.expires_at.is_never(),
    });
    Ok(())
}

/// Writes heads whose parts are durable, then parts. Gives where values have moved from, and their
/// buckets.
pub(super) fn pump_staging(core: &mut FrugalContents) -> Vec<(Moved, u32)> {
    let (mut at, mut budget, mut moved) = (0, PARTS_PER_PUMP, Vec::new());
    while let Some((slot, staged)) =
        core.kit.staging.next_head(&mut at, &mut budget, &mut core.kit.volume)
    {
        let mut value = core.kit.buffers.take();
        staged.write_head(&mut value);
        let record = staged.head_record(&value);
        let name = core.name_of(&record);
        let held = if staged.moved.is_none() { staged.held() } else { Held::NOTHING };
        let linked = core.link(&record, name, held, staged.leave());
        core.kit.buffers.give(value);
        if linked.is_none() {
            core.kit.staging.put_back(slot, staged);
            at += 1;
            continue;
        }
        core.buckets.linked_large();
        if let Some(versions) = core.staged.get_mut(&name) {
            versions.retain(|one| one.slot != slot);
            if versions.is_empty() {
                core.staged.remove(&name);
            }
        }
        for extent in &staged.extents {
            let blocks = &mut core.kit.volume.blocks;
            blocks.unpin(blocks.of(extent.page));
        }
        core.kit.staging.finish(at, &staged, 0);
        let bucket = core.buckets.of(name.hash);
        moved.extend(staged.moved.map(|moved| (moved, bucket)));
    }
    moved
}

/// A fence, which the store's life allows.
pub(super) fn write_fence(
    keyspace: KeyspaceId,
    version: Version,
    core: &mut FrugalContents,
) -> Result<(), StoreError> {
    if core.spaces.ensure(keyspace).has_fence(version) {
        core.counts.duplicates += 1;
        return Ok(());
    }
    let batch = core.kit.volume.writer.batch();
    let held = Held { batch, oldest: version.timestamp };
    let leave = leave(true, &core.kit.volume.blocks);
    let page = core.append(&fence_record(keyspace, version), 0, held, leave);
    let page = page.ok_or_else(|| core.kit.room.none(&core.kit.volume.blocks))?;
    core.spaces.ensure(keyspace).add_fence(Fence { version, page: page.0 });
    core.counts.puts += 1;
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
    let margin = u64::from(PROMISE_MARGIN) * u64::from(volume.geometry().pages_per_block);
    let ahead = promised * WORST_PACKING + margin * timestone_flash::PAGE_BYTES as u64;
    let (mut small, mut values, mut large) = (0, 0, 0);
    for PutSize { bytes, .. } in puts {
        check_put_size(volume.geometry(), bytes)?;
        if Record::bytes_for(bytes, 0, true) + LINK_BYTES > MAX_RECORD_BYTES {
            values += 1;
            large += bytes as u64;
        } else {
            small += bytes as u64 * WORST_PACKING;
        }
    }
    if values == 0 && small == 0 {
        return Ok(None);
    }
    Ok(if values == 0 {
        room.lacks_small(ahead + small, volume, staging)
    } else {
        room.lacks_large(values, ahead + small + large, volume, staging)
    })
}
