//! Values (and keys) larger than a page, from the put until they are on flash whole.
//!
//! ```text
//!   put ─► staged: readable from memory ─► parts programmed ─► synced ─► head record written, index moved to it ─► gone from here
//! ```
//!
//! The head is written only when its parts are durable, so a head found after a crash has its
//! parts. Values are written one after the other, in the order of their puts; heads are written
//! between two values, so that each value's parts lie in few extents. Collection moves large values
//! through here as well.
//!
//! Invariants: the blocks of a staged value's extents have a reader until its head is written, so
//! that nobody erases them; a block that is collected is not let go before every head that names
//! parts in it was replaced, also when a head moved while its value was staged.

use std::collections::VecDeque;

use timestone_flash::{BlockId, Geometry, PageId};
use timestone_types::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use timestone_types::{Expiry, KeyHash, KeyspaceId, Timestamp, Version};

use super::index::{KeyId, Location};
use super::writer::{Held, StreamId, Writer};
use super::{Mftl, collect};
use crate::error::StoreError;
use crate::layout::{
    Extent, LargeHead, MAX_RECORD_BYTES, PART_PAYLOAD, PageKind, PartHeader, Record, RecordKind,
    write_part_header,
};

/// Keys longer than this lie with the value, not in the head.
const MAX_INLINE_KEY: usize = 1024;
/// The end of a value stays in its head when it is no longer than this.
const MAX_TAIL: usize = 1300;
/// Extents of a value at most: enough for 16 MiB in blocks of 32 pages.
const MAX_EXTENTS: usize = 134;
/// Parts that are written in one pump: 1 MiB.
const PARTS_PER_PUMP: u32 = 256;

const _: () = assert!(
    44 + MAX_INLINE_KEY + 20 + 12 * MAX_EXTENTS + MAX_TAIL <= MAX_RECORD_BYTES,
    "a head always fits a page (44: the longest record header, 20 and 12: LargeHead)"
);

/// The longest value for blocks of this size.
pub(super) fn max_value_bytes(geometry: Geometry) -> usize {
    let parts = (MAX_EXTENTS - 2) * geometry.pages_per_block as usize;
    (parts * PART_PAYLOAD).saturating_sub(MAX_KEY_BYTES).min(MAX_VALUE_BYTES)
}

/// A value that collection moves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Moved {
    /// The block that is being collected.
    pub(super) victim: BlockId,
    /// The page of the old head.
    pub(super) from: PageId,
    /// Where the value's parts were: dead once it has moved.
    pub(super) extents: Vec<Extent>,
}

struct Staged {
    kind: RecordKind,
    keyspace: KeyspaceId,
    id: KeyId,
    hash: KeyHash,
    version: Version,
    expires_at: Expiry,
    key: Vec<u8>,
    /// The key when it is outside the head, and the value.
    payload: Vec<u8>,
    outside: usize,
    parts: u32,
    written: u32,
    extents: Vec<Extent>,
    batch: u64,
    moved: Option<Moved>,
    /// The ordinal of its last part, once all are written.
    ordinal: Option<u64>,
}

impl Staged {
    fn tail(&self) -> &[u8] {
        &self.payload[(self.parts as usize * PART_PAYLOAD).min(self.payload.len())..]
    }
}

/// All staged values.
pub(super) struct Staging {
    slots: Vec<Option<Staged>>,
    order: VecDeque<u32>,
    bytes: u64,
    most_bytes: u64,
}

impl Staging {
    /// Room for so many bytes.
    pub(super) const fn new(most_bytes: u64) -> Self {
        Self { slots: Vec::new(), order: VecDeque::new(), bytes: 0, most_bytes }
    }

    /// Bytes of the values that are staged.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether puts of large values must wait.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= self.most_bytes
    }

    /// Whether nothing is staged.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Whether some value's parts wait to become durable.
    pub(super) fn waits(&self) -> bool {
        self.order
            .front()
            .is_some_and(|&slot| self.slot(slot).is_some_and(|staged| staged.ordinal.is_some()))
    }

    /// Whether the next pump can do something.
    pub(super) fn has_work(&self, writer: &Writer) -> bool {
        self.order.iter().filter_map(|&slot| self.slot(slot)).any(|staged| match staged.ordinal {
            None => true,
            Some(ordinal) => writer.is_durable(StreamId::Large, ordinal),
        })
    }

    /// The lowest batch of a staged put.
    pub(super) fn lowest_batch(&self) -> u64 {
        self.order
            .iter()
            .filter_map(|&slot| self.slot(slot))
            .map(|staged| staged.batch)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// The lowest timestamp of a staged put; collection's own moves do not count.
    pub(super) fn oldest_put(&self) -> Timestamp {
        let staged = self.order.iter().filter_map(|&slot| self.slot(slot));
        let puts = staged.filter(|staged| staged.moved.is_none());
        puts.map(|staged| staged.version.timestamp).min().unwrap_or(Timestamp::MAX)
    }

    fn slot(&self, slot: u32) -> Option<&Staged> {
        self.slots.get(slot as usize).and_then(Option::as_ref)
    }

    /// The key of a staged value.
    pub(super) fn key(&self, slot: u32) -> &[u8] {
        self.slot(slot).map_or(&[], |staged| &staged.key)
    }

    /// Expiry and value of a staged value.
    pub(super) fn value(&self, slot: u32) -> (Expiry, &[u8]) {
        self.slot(slot).map_or((Expiry::NEVER, &[]), |staged| {
            (staged.expires_at, &staged.payload[staged.outside..])
        })
    }
}

impl Mftl {
    /// Takes a large record in; it can be read from here at once.
    pub(super) fn stage(
        &mut self,
        record: &Record<'_>,
        id: KeyId,
        moved: Option<Moved>,
    ) -> Result<Location, StoreError> {
        let outside = if record.key.len() > MAX_INLINE_KEY { record.key.len() } else { 0 };
        let total = outside + record.value.len();
        let rest = total % PART_PAYLOAD;
        let parts = (total / PART_PAYLOAD) as u32 + u32::from(rest > MAX_TAIL);
        self.blocks.note_large(parts);
        if moved.is_none() {
            if self.staging.is_full() {
                return Err(StoreError::Busy);
            }
            if !self.has_room_for_large(1, total as u64) {
                return Err(self.no_room());
            }
        }
        let mut payload = Vec::with_capacity(total);
        if outside > 0 {
            payload.extend_from_slice(record.key);
        }
        payload.extend_from_slice(record.value);
        let slot = match self.staging.slots.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                self.staging.slots.push(None);
                self.staging.slots.len() - 1
            }
        };
        self.staging.bytes += total as u64;
        self.staging.order.push_back(slot as u32);
        self.staging.slots[slot] = Some(Staged {
            kind: record.kind,
            keyspace: record.keyspace,
            id,
            hash: record.hash,
            version: record.version,
            expires_at: record.expires_at,
            key: record.key.to_vec(),
            payload,
            outside,
            parts,
            written: 0,
            extents: Vec::new(),
            batch: if moved.is_some() { u64::MAX } else { self.writer.batch },
            moved,
            ordinal: None,
        });
        let expires = !record.expires_at.is_never();
        Ok(Location::new(Location::STAGED + slot as u32, record.kind.is_tombstone(), expires))
    }

    /// Whether there are blocks for everything that is staged, for so many values more, and one for
    /// heads. If not, they are asked for.
    pub(super) fn has_room_for_large(&mut self, values: u64, bytes: u64) -> bool {
        let pages = (self.staging.bytes + bytes) / PART_PAYLOAD as u64
            + self.staging.order.len() as u64
            + values
            + 1;
        let blocks = pages / u64::from(self.blocks.geometry.pages_per_block) + 2;
        let wanted = u64::from(self.blocks.reserve()) + blocks + 1;
        let has_room = u64::from(self.blocks.free_count()) >= wanted;
        if !has_room {
            self.collector.asked =
                self.collector.asked.max(u32::try_from(wanted).unwrap_or(u32::MAX));
        }
        has_room
    }

    /// Takes a value in that collection moves. The index stays with the old head until the new one
    /// is written.
    pub(super) fn restage(&mut self, record: &Record<'_>, id: KeyId, moved: Moved) {
        // Staging for collection never refuses.
        let _ = self.stage(record, id, Some(moved));
    }

    /// Writes heads whose parts are durable, then parts.
    pub(super) fn pump_staging(&mut self) {
        let mut budget = PARTS_PER_PUMP;
        let mut at = 0;
        while at < self.staging.order.len() {
            let slot = self.staging.order[at] as usize;
            let Some(staged) = self.staging.slots[slot].take() else { break };
            let (staged, done) = match staged.ordinal {
                Some(ordinal) if self.writer.is_durable(StreamId::Large, ordinal) => {
                    self.write_head(slot, staged)
                }
                Some(_) => (Some(staged), false),
                None => {
                    let staged = self.write_parts(staged, &mut budget);
                    let whole = staged.ordinal.is_some();
                    self.staging.slots[slot] = Some(staged);
                    if !whole {
                        break;
                    }
                    at += 1;
                    continue;
                }
            };
            self.staging.slots[slot] = staged;
            if done {
                self.staging.order.remove(at);
                // A half-written value further on keeps its extents together: its heads wait.
            } else {
                at += 1;
            }
        }
    }

    fn write_parts(&mut self, mut staged: Staged, budget: &mut u32) -> Staged {
        while staged.written < staged.parts {
            if *budget == 0 || self.writer.is_behind() {
                return staged;
            }
            let start = staged.written as usize * PART_PAYLOAD;
            let payload = &staged.payload[start..(start + PART_PAYLOAD).min(staged.payload.len())];
            let header = PartHeader {
                keyspace: staged.keyspace,
                check: staged.id.check,
                hash: staged.hash,
                version: staged.version,
                part: staged.written,
            };
            let leave = u32::from(staged.moved.is_none());
            let into = (&mut self.blocks, &mut self.port);
            let page = self.writer.append_raw(
                StreamId::Large,
                PageKind::LargePart,
                payload.len() as u16,
                leave,
                into,
                |page| {
                    write_part_header(page, &header);
                    let at = page.len() - PART_PAYLOAD;
                    page[at..at + payload.len()].copy_from_slice(payload);
                },
            );
            let Some(page) = page else { return staged };
            *budget -= 1;
            staged.written += 1;
            self.collector.moved_pages += u64::from(staged.moved.is_some());
            let block = self.blocks.of(page);
            match staged.extents.last_mut() {
                Some(last)
                    if self.blocks.of(last.page) == block && last.page.0 + last.pages == page.0 =>
                {
                    last.pages += 1;
                }
                _ => {
                    let entry = self.blocks.get_mut(block);
                    entry.readers += 1;
                    staged.extents.push(Extent { page, pages: 1, generation: entry.generation });
                }
            }
        }
        staged.ordinal = Some(self.writer.ordinal(StreamId::Large));
        self.writer.flush(StreamId::Large, &self.blocks, &mut self.port);
        staged
    }

    /// Writes the head of a value whose parts are durable, and moves the index to it. Gives the
    /// value back when there is no room.
    fn write_head(&mut self, slot: usize, staged: Staged) -> (Option<Staged>, bool) {
        // Between two values only: see the module.
        let writing = self.staging.order.iter().any(|&other| {
            self.staging
                .slot(other)
                .is_some_and(|other| other.ordinal.is_none() && other.written > 0)
        });
        if writing {
            return (Some(staged), false);
        }
        let from = match &staged.moved {
            Some(moved) => moved.from.0,
            None => Location::STAGED + slot as u32,
        };
        let wanted = self.spaces.get(staged.keyspace).is_some_and(|space| {
            space
                .index
                .chain(staged.id)
                .any(|(version, place)| version == staged.version && place.page() == from)
        });
        let mut superseded = None;
        if wanted {
            let mut value = self.bytes();
            LargeHead {
                total: staged.payload.len() as u32,
                key_outside: staged.outside as u32,
                crc: crc32c::crc32c(&staged.payload),
                check: staged.id.check,
                extents: staged.extents.clone(),
                tail: staged.tail(),
            }
            .write(&mut value);
            let record = Record {
                kind: staged.kind,
                keyspace: staged.keyspace,
                hash: staged.hash,
                version: staged.version,
                expires_at: staged.expires_at,
                key: if staged.outside > 0 { &[] } else { &staged.key },
                value: &value,
            };
            let leave = u32::from(staged.moved.is_none());
            let pages_before = self.writer.ordinal(StreamId::Large);
            let page = self.writer.append(
                StreamId::Large,
                &record,
                staged.id.check,
                leave,
                &mut self.blocks,
                &mut self.port,
            );
            crate::api::Reads::recycle(self, value);
            let Some(page) = page else { return (Some(staged), false) };
            if staged.moved.is_none() {
                let held = Held { batch: staged.batch, oldest: staged.version.timestamp };
                self.writer.note_put(StreamId::Large, held);
            }
            if staged.moved.is_some() {
                self.collector.moved_pages += self.writer.ordinal(StreamId::Large) - pages_before;
            }
            let to =
                Location::new(page.0, staged.kind.is_tombstone(), !staged.expires_at.is_never());
            if let Some(space) = self.spaces.get_mut(staged.keyspace) {
                space.index.moved(staged.id, staged.version, from, to);
                let latest =
                    space.index.latest(staged.id).map_or(Version::ZERO, |(version, _)| version);
                let dead = latest != staged.version || staged.kind.is_tombstone();
                superseded = dead.then_some((page, latest.timestamp));
            }
        }
        for extent in &staged.extents {
            let block = self.blocks.of(extent.page);
            self.blocks.get_mut(block).readers -= 1;
            let bytes = extent.pages * timestone_flash::PAGE_BYTES as u32;
            if !wanted {
                self.blocks.died(block, bytes);
            } else if let Some((_, by)) = superseded {
                self.blocks.superseded_bytes(block, bytes, by, self.collection_watermark);
            }
        }
        if let Some((page, by)) = superseded {
            self.blocks.superseded(page, by, self.collection_watermark);
        }
        self.staging.bytes -= staged.payload.len() as u64;
        if let Some(moved) = staged.moved {
            for extent in &moved.extents {
                let block = self.blocks.of(extent.page);
                if wanted && self.blocks.get(block).generation == extent.generation {
                    self.blocks.died(block, extent.pages * timestone_flash::PAGE_BYTES as u32);
                }
            }
            if wanted {
                collect::restaged(&mut self.collector, moved.victim);
            } else {
                let value = (staged.keyspace, staged.id, staged.version);
                collect::restage_again(&mut self.collector, moved.victim, value);
            }
        }
        (None, true)
    }
}
