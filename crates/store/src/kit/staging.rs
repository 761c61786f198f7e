//! Values (and keys) larger than a page, from the put until their parts are durable.
//!
//! ```text
//!   accept ─► readable from memory ─► parts programmed ─► durable
//!        ─► next_head: the store writes a head, moves its index to it ─► finish
//! ```
//!
//! The head is written only when its parts are durable, so a head found after a crash has its
//! parts. Values are written one after the other, in the order of their puts; heads are written
//! between two values, so that each value's parts lie in few extents. Collection moves large values
//! through here as well.
//!
//! Hidden dependency that this part made explicit: the pages that moved values took were counted
//! by the collector, which judges its gain by them; it asks here.
//!
//! Invariants: the blocks of a staged value's extents have a pin until its head is written, so that
//! nobody erases them; `bytes` is the sum of the payloads; `order` names exactly the slots in use.

use std::collections::VecDeque;

use timestone_flash::{BlockId, Geometry, PAGE_BYTES, PageId};
use timestone_types::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use timestone_types::{Expiry, KeyHash, KeyspaceId, Timestamp, Version, is_planted};

use super::blocks::Blocks;
use super::key_id::KeyId;
use super::ledger::Held;
use super::volume::Volume;
use super::writer::StreamId;
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
pub(crate) const PARTS_PER_PUMP: u32 = 256;

const _: () = assert!(
    44 + MAX_INLINE_KEY + 20 + 12 * MAX_EXTENTS + MAX_TAIL <= MAX_RECORD_BYTES,
    "a head always fits a page (44: the longest record header, 20 and 12: LargeHead)"
);

/// The longest value for blocks of this size.
pub(crate) fn max_value_bytes(geometry: Geometry) -> usize {
    let parts = (MAX_EXTENTS - 2) * geometry.pages_per_block as usize;
    (parts * PART_PAYLOAD).saturating_sub(MAX_KEY_BYTES).min(MAX_VALUE_BYTES)
}

/// Whether blocks of this size may hold a put of so many bytes of key and value: what is promised must not
/// be refused for good.
///
/// # Errors
/// [`StoreError::ValueTooLarge`].
pub(crate) fn check_put_size(geometry: Geometry, bytes: usize) -> Result<(), StoreError> {
    let limit = max_value_bytes(geometry);
    if limit < MAX_VALUE_BYTES && bytes > limit {
        return Err(StoreError::ValueTooLarge { bytes, limit });
    }
    Ok(())
}

/// How a large record is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cut {
    /// Bytes of the key that lie with the value.
    outside: usize,
    /// Bytes in parts and tail.
    pub(crate) bytes: usize,
    pub(crate) parts: u32,
}

impl Cut {
    /// Of a key and a value of these lengths.
    pub(crate) fn of(key: usize, value: usize) -> Self {
        let outside = if key > MAX_INLINE_KEY { key } else { 0 };
        let bytes = outside + value;
        let rest = bytes % PART_PAYLOAD;
        Self { outside, bytes, parts: (bytes / PART_PAYLOAD) as u32 + u32::from(rest > MAX_TAIL) }
    }
}

/// A value that collection moves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Moved {
    /// The block that is being collected.
    pub(crate) victim: BlockId,
    /// The page of the old head.
    pub(crate) from: PageId,
    /// Where the value's parts were: dead once it has moved.
    pub(crate) extents: Vec<Extent>,
}

/// One value.
pub(crate) struct Staged {
    pub(crate) kind: RecordKind,
    pub(crate) keyspace: KeyspaceId,
    pub(crate) id: KeyId,
    pub(crate) version: Version,
    pub(crate) expires_at: Expiry,
    /// Where its parts are, as far as they are written; each pins its block once.
    pub(crate) extents: Vec<Extent>,
    pub(crate) moved: Option<Moved>,
    hash: KeyHash,
    key: Vec<u8>,
    /// The key when it is outside the head, and the value.
    payload: Vec<u8>,
    cut: Cut,
    written: u32,
    batch: u64,
    /// The ordinal of its last part, once all are written.
    ordinal: Option<u64>,
}

impl Staged {
    fn tail(&self) -> &[u8] {
        &self.payload[(self.cut.parts as usize * PART_PAYLOAD).min(self.payload.len())..]
    }

    /// Writes the head of a value whose parts are all written.
    pub(crate) fn write_head(&self, out: &mut Vec<u8>) {
        assert_eq!(self.written, self.cut.parts, "a head names all parts");
        LargeHead {
            total: self.payload.len() as u32,
            key_outside: self.cut.outside as u32,
            crc: crc32c::crc32c(&self.payload),
            check: self.id.check,
            extents: self.extents.clone(),
            tail: self.tail(),
        }
        .write(out);
    }

    /// The record of a head that [`Self::write_head`] wrote.
    pub(crate) fn head_record<'a>(&'a self, head: &'a [u8]) -> Record<'a> {
        Record {
            kind: self.kind,
            keyspace: self.keyspace,
            hash: self.hash,
            version: self.version,
            expires_at: self.expires_at,
            key: if self.cut.outside > 0 { &[] } else { &self.key },
            value: head,
            links: None,
        }
    }

    /// What of the caller's puts it is.
    pub(crate) fn held(&self) -> Held {
        Held { batch: self.batch, oldest: self.version.timestamp }
    }

    /// Free blocks that its pages leave to others.
    pub(crate) fn leave(&self) -> u32 {
        u32::from(self.moved.is_none())
    }

    /// The same, and while blocks are being emptied of records what these need: each gives room when it is empty,
    /// and a value gives none. One that may not be split leaves them nothing, for heads in such blocks wait for it.
    pub(crate) fn leave_beside(&self, blocks: &Blocks) -> u32 {
        let may_wait = blocks.are_emptying() && self.may_be_split(blocks.geometry);
        if may_wait && !is_planted!(PartsTakeAll) {
            self.leave().max(blocks.least_reserve())
        } else {
            self.leave()
        }
    }

    /// Whether something may be written between its parts: each time splits an extent, and its head has room for
    /// so many.
    fn may_be_split(&self, geometry: Geometry) -> bool {
        let blocks = (self.cut.parts - self.written).div_ceil(geometry.pages_per_block);
        self.extents.len() + (blocks as usize) < MAX_EXTENTS
    }

    /// Whether there is room for a part.
    fn may_write_part(&self, volume: &Volume) -> bool {
        let Volume { writer, blocks, .. } = volume;
        let has_block = blocks.clean_count() > 0 && blocks.free_count() > self.leave_beside(blocks);
        let has_room = has_block || writer.pages_left(StreamId::Large, blocks) > 0;
        has_room && !writer.is_behind()
    }

    /// Writes parts, as long as there are any, the device keeps up and the budget lasts.
    fn write_parts(&mut self, budget: &mut u32, volume: &mut Volume) {
        while self.written < self.cut.parts {
            if *budget == 0 || volume.writer.is_behind() {
                return;
            }
            let start = self.written as usize * PART_PAYLOAD;
            let payload = &self.payload[start..(start + PART_PAYLOAD).min(self.payload.len())];
            let header = PartHeader {
                keyspace: self.keyspace,
                check: self.id.check,
                hash: self.hash,
                version: self.version,
                part: self.written,
            };
            let used = payload.len() as u16;
            let (kind, leave) = (PageKind::LargePart, self.leave_beside(&volume.blocks));
            let page = volume.append_raw(StreamId::Large, kind, used, leave, |page| {
                write_part_header(page, &header);
                let at = page.len() - PART_PAYLOAD;
                page[at..at + payload.len()].copy_from_slice(payload);
            });
            let Some(page) = page else { return };
            *budget -= 1;
            self.written += 1;
            self.wrote(page, volume);
        }
        assert_eq!(self.written, self.cut.parts, "a head follows all of its parts");
        self.ordinal = Some(volume.writer.ordinal(StreamId::Large));
        volume.flush(StreamId::Large);
    }

    /// A part is in `page`: its extent begins, or grows.
    fn wrote(&mut self, page: PageId, volume: &mut Volume) {
        let block = volume.blocks.of(page);
        match self.extents.last_mut() {
            Some(last)
                if volume.blocks.of(last.page) == block && last.page.0 + last.pages == page.0 =>
            {
                last.pages += 1;
            }
            _ => {
                volume.blocks.pin(block);
                let generation = volume.blocks.get(block).generation;
                self.extents.push(Extent { page, pages: 1, generation });
            }
        }
        debug_assert!(self.extents.len() <= MAX_EXTENTS, "a head has room for its extents");
    }
}

/// All staged values.
pub(crate) struct Staging {
    slots: Vec<Option<Staged>>,
    order: VecDeque<u32>,
    bytes: u64,
    most_bytes: u64,
    /// Pages that were begun for values that moved.
    moved_pages: u64,
}

impl Staging {
    /// Room for so many bytes.
    pub(crate) const fn new(most_bytes: u64) -> Self {
        Self { slots: Vec::new(), order: VecDeque::new(), bytes: 0, most_bytes, moved_pages: 0 }
    }

    /// Bytes of the values that are staged.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many values are staged.
    pub(crate) fn count(&self) -> u64 {
        self.order.len() as u64
    }

    /// Pages that were begun for values that moved.
    pub(crate) const fn moved_pages(&self) -> u64 {
        self.moved_pages
    }

    /// Whether puts of large values must wait.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= self.most_bytes
    }

    /// Whether nothing is staged.
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn staged(&self) -> impl Iterator<Item = &Staged> {
        self.order.iter().filter_map(|&slot| self.slot(slot))
    }

    /// Whether some value's parts wait to become durable.
    pub(crate) fn waits(&self) -> bool {
        let first = self.order.front().and_then(|&slot| self.slot(slot));
        first.is_some_and(|staged| staged.ordinal.is_some())
    }

    /// Whether the next pump can do something, which [`Self::next_head`] does in its order: the device wakes what
    /// waits for it, and what waits for room lets nothing pass.
    pub(crate) fn has_work(&self, volume: &Volume) -> bool {
        let ledger = &volume.writer.ledger;
        let may_link = !self.is_writing();
        for staged in self.order.iter().filter_map(|&slot| self.slot(slot)) {
            match staged.ordinal {
                None => return staged.may_write_part(volume),
                Some(ordinal) if may_link && ledger.is_synced(StreamId::Large, ordinal) => {
                    return true;
                }
                Some(_) => {}
            }
        }
        false
    }

    /// The lowest batch of a staged put.
    pub(crate) fn lowest_batch(&self) -> u64 {
        self.staged().map(|staged| staged.batch).min().unwrap_or(u64::MAX)
    }

    /// Batches are numbered anew: what is staged belongs to one below all of them.
    pub(crate) fn number_anew(&mut self) {
        for staged in self.slots.iter_mut().flatten().filter(|staged| staged.moved.is_none()) {
            staged.batch = 0;
        }
        debug_assert!([0, u64::MAX].contains(&self.lowest_batch()), "nothing keeps its number");
    }

    /// The lowest timestamp of a staged put; collection's own moves do not count.
    pub(crate) fn oldest_put(&self) -> Timestamp {
        let puts = self.staged().filter(|staged| staged.moved.is_none());
        puts.map(|staged| staged.version.timestamp).min().unwrap_or(Timestamp::MAX)
    }

    /// Whether a put is staged. What it supersedes is not known to be dead yet, and blocks that hold its
    /// parts are not emptied: so much may come free that nobody can tell whether the store is full.
    pub(crate) fn has_puts(&self) -> bool {
        self.staged().any(|staged| staged.moved.is_none())
    }

    /// Pages of a block that hold parts of staged values.
    pub(crate) fn pages_in(&self, block: BlockId, blocks: &Blocks) -> u32 {
        let extents = self.staged().flat_map(|staged| &staged.extents);
        extents.filter(|one| blocks.of(one.page) == block).map(|one| one.pages).sum()
    }

    /// Parts that are still to be written.
    pub(crate) fn parts_ahead(&self) -> u32 {
        self.staged().map(|staged| staged.cut.parts - staged.written).sum()
    }

    fn slot(&self, slot: u32) -> Option<&Staged> {
        self.slots.get(slot as usize).and_then(Option::as_ref)
    }

    /// The key of a staged value.
    pub(crate) fn key(&self, slot: u32) -> &[u8] {
        self.slot(slot).map_or(&[], |staged| &staged.key)
    }

    /// Expiry and value of a staged value.
    pub(crate) fn value(&self, slot: u32) -> (Expiry, &[u8]) {
        self.slot(slot).map_or((Expiry::NEVER, &[]), |staged| {
            (staged.expires_at, &staged.payload[staged.cut.outside..])
        })
    }

    /// Takes a large record in, as a put of `batch` or as one that collection has `moved`; it can
    /// be read at once, under the slot that is returned.
    pub(crate) fn accept(
        &mut self,
        record: &Record<'_>,
        id: KeyId,
        batch: u64,
        moved: Option<Moved>,
    ) -> u32 {
        let cut = Cut::of(record.key.len(), record.value.len());
        let mut payload = Vec::with_capacity(cut.bytes);
        payload.extend_from_slice(&record.key[..cut.outside]);
        payload.extend_from_slice(record.value);
        let slot = match self.slots.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        assert_eq!(payload.len(), cut.bytes);
        self.bytes += cut.bytes as u64;
        self.order.push_back(slot as u32);
        self.slots[slot] = Some(Staged {
            kind: record.kind,
            keyspace: record.keyspace,
            id,
            version: record.version,
            expires_at: record.expires_at,
            extents: Vec::new(),
            batch: if moved.is_some() { u64::MAX } else { batch },
            moved,
            hash: record.hash,
            key: record.key.to_vec(),
            payload,
            cut,
            written: 0,
            ordinal: None,
        });
        slot as u32
    }

    /// Whether a value is half written: heads wait, so that its extents stay together.
    fn is_writing(&self) -> bool {
        self.staged().any(|staged| staged.ordinal.is_none() && staged.written > 0)
    }

    /// Whether something may be written between the parts of a value that is half written.
    pub(crate) fn may_be_split(&self, geometry: Geometry) -> bool {
        let is_half = |staged: &&Staged| staged.ordinal.is_none() && staged.written > 0;
        self.staged().filter(is_half).all(|staged| staged.may_be_split(geometry))
    }

    /// Writes parts from place `at` of the order on, up to the first value whose head is due: that
    /// one leaves its slot until [`Self::put_back`] or [`Self::finish`].
    pub(crate) fn next_head(
        &mut self,
        at: &mut usize,
        budget: &mut u32,
        volume: &mut Volume,
    ) -> Option<(u32, Staged)> {
        debug_assert!(self.order.len() <= self.slots.len(), "what is staged is staged once");
        while *at < self.order.len() {
            let slot = self.order[*at];
            match self.slot(slot)?.ordinal {
                Some(ordinal)
                    // None of its parts is displaced: it would be written again.
                    if volume.writer.ledger.is_synced(StreamId::Large, ordinal)
                        && !self.is_writing() =>
                {
                    return Some((slot, self.slots[slot as usize].take()?));
                }
                Some(_) => {}
                None => {
                    let staged = self.slots[slot as usize].as_mut()?;
                    let before = staged.written;
                    staged.write_parts(budget, volume);
                    if staged.moved.is_some() {
                        self.moved_pages += u64::from(staged.written - before);
                    }
                    staged.ordinal?;
                }
            }
            *at += 1;
        }
        None
    }

    /// A block has failed: values with parts in it are written again from the first part on. What
    /// was written of them is dead.
    pub(crate) fn block_failed(&mut self, block: BlockId, blocks: &mut Blocks) {
        let in_block = |staged: &&mut Staged| {
            staged.extents.iter().any(|extent| blocks.of(extent.page) == block)
                && !is_planted!(KeepsLostParts)
        };
        let mut again: Vec<&mut Staged> =
            self.slots.iter_mut().flatten().filter(in_block).collect();
        for staged in &mut again {
            for extent in staged.extents.drain(..) {
                let home = blocks.of(extent.page);
                blocks.unpin(home);
                blocks.usage(home).died(extent.pages * PAGE_BYTES as u32);
            }
            (staged.written, staged.ordinal) = (0, None);
        }
    }

    /// There was no room for a head: it waits for the next pump.
    pub(crate) fn put_back(&mut self, slot: u32, staged: Staged) {
        let entry = &mut self.slots[slot as usize];
        assert!(entry.is_none(), "its slot was left alone");
        *entry = Some(staged);
    }

    /// The head of the value at place `at` of the order is written, or nobody wants it any more.
    /// `head_pages`: pages that were begun for the head.
    pub(crate) fn finish(&mut self, at: usize, staged: &Staged, head_pages: u64) {
        let slot = self.order.remove(at);
        assert!(slot.is_some_and(|slot| self.slot(slot).is_none()), "it was taken before");
        self.bytes -= staged.payload.len() as u64;
        if staged.moved.is_some() {
            self.moved_pages += head_pages;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use timestone_types::ClientId;

    use super::super::volume::tests::{run_until_idle, volume, volume_of};
    use super::*;

    fn record(key: &[u8], value: &[u8]) -> (Record<'static>, Vec<u8>, Vec<u8>) {
        let record = Record {
            kind: RecordKind::Large,
            keyspace: KeyspaceId::DEFAULT,
            hash: KeyHash(5),
            version: Version::new(Timestamp::from_nanos(3), ClientId::new(1)),
            expires_at: Expiry::NEVER,
            key: &[],
            value: &[],
            links: None,
        };
        (record, key.to_vec(), value.to_vec())
    }

    fn accept(staging: &mut Staging, key: &[u8], value: &[u8], batch: u64) -> u32 {
        let (record, key, value) = record(key, value);
        let record = Record { key: &key, value: &value, ..record };
        staging.accept(&record, KeyId::new(record.hash, 77), batch, None)
    }

    /// Accepts a value that has not been written yet.
    pub(crate) fn stage_one(staging: &mut Staging) {
        accept(staging, b"key", b"value", 1);
    }

    fn durable(volume: &mut Volume) {
        volume.flush_all();
        run_until_idle(volume);
        volume.sync(core::time::Duration::ZERO, true);
        run_until_idle(volume);
    }

    /// Writes the parts of a value; the bytes of its head.
    pub(crate) fn staged_value(volume: &mut Volume, value: &[u8]) -> Vec<u8> {
        let mut staging = Staging::new(1 << 20);
        accept(&mut staging, b"key", value, 1);
        let (mut at, mut budget) = (0, 100);
        assert!(staging.next_head(&mut at, &mut budget, volume).is_none());
        durable(volume);
        at = 0;
        let (_, staged) = staging.next_head(&mut at, &mut budget, volume).expect("durable");
        let mut head = Vec::new();
        staged.write_head(&mut head);
        for extent in &staged.extents {
            volume.blocks.unpin(volume.blocks.of(extent.page));
        }
        staging.finish(at, &staged, 0);
        head
    }

    #[test]
    fn a_value_is_readable_until_its_head_is_written() {
        let (mut volume, mut staging) = (volume(), Staging::new(1 << 20));
        let value = vec![3; 9000];
        let slot = accept(&mut staging, b"key", &value, 4);
        assert_eq!((staging.key(slot), staging.value(slot).1), (&b"key"[..], &value[..]));
        assert_eq!((staging.bytes(), staging.lowest_batch()), (9000, 4));
        let (mut at, mut budget) = (0, 100);
        assert!(staging.next_head(&mut at, &mut budget, &mut volume).is_none(), "not durable");
        assert_eq!((budget, staging.waits()), (98, true), "two parts, the tail is in the head");
        durable(&mut volume);
        at = 0;
        let (slot, staged) = staging.next_head(&mut at, &mut budget, &mut volume).expect("due");
        assert_eq!(staged.extents.iter().map(|extent| extent.pages).sum::<u32>(), 2);
        staging.put_back(slot, staged);
        assert_eq!(staging.value(slot).1, &value[..], "a head without room waits");
        let (_, staged) = staging.next_head(&mut at, &mut budget, &mut volume).expect("due");
        staging.finish(at, &staged, 1);
        assert!(staging.is_empty() && staging.bytes() == 0 && staging.moved_pages() == 0);
    }

    /// Free blocks that are left of seven when a value of more than these is written while three blocks are being
    /// emptied of records, and when they are empty.
    fn left_to_others(moved: Option<Moved>) -> [u32; 2] {
        let (mut volume, mut staging) = (volume_of(40), Staging::new(1 << 20));
        while volume.blocks.free_count() > 7 {
            volume.blocks.take(StreamId::Cold, 0).expect("free");
        }
        let (record, key, value) = record(b"key", &vec![3; 200_000]);
        let record = Record { key: &key, value: &value, ..record };
        volume.blocks.note_large(Cut::of(key.len(), value.len()).parts);
        staging.accept(&record, KeyId::new(record.hash, 77), 1, moved);
        [3, 0].map(|emptying| {
            volume.blocks.note_emptying(emptying);
            for _ in 0..20 {
                let (mut at, mut budget) = (0, 8);
                assert!(staging.next_head(&mut at, &mut budget, &mut volume).is_none());
                volume.flush_all();
                run_until_idle(&mut volume);
            }
            assert!(!staging.has_work(&volume), "it waits for room");
            volume.blocks.free_count()
        })
    }

    fn moved() -> Moved {
        Moved { victim: BlockId(0), from: PageId(0), extents: Vec::new() }
    }

    #[test]
    fn a_value_takes_no_room_that_blocks_need_to_be_emptied() {
        assert_eq!(left_to_others(None), [5, 1]);
        assert_eq!(left_to_others(Some(moved())), [5, 0]);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn values_that_take_what_is_needed_to_empty_blocks_are_found() {
        use timestone_types::planted::{Bug, with};

        assert_eq!(with(Bug::PartsTakeAll, || left_to_others(None)), [1, 1]);
        assert_eq!(with(Bug::PartsTakeAll, || left_to_others(Some(moved()))), [0, 0]);
    }

    #[test]
    fn a_half_written_value_keeps_its_parts_together() {
        let (mut volume, mut staging) = (volume(), Staging::new(1 << 20));
        accept(&mut staging, b"one", &[1; 9000], 1);
        accept(&mut staging, b"two", &[2; 9000], 1);
        let (mut at, mut budget) = (0, 3);
        assert!(staging.next_head(&mut at, &mut budget, &mut volume).is_none());
        durable(&mut volume);
        // The first one's head is due, but one part of the second is written already.
        (at, budget) = (0, 0);
        assert!(staging.next_head(&mut at, &mut budget, &mut volume).is_none());
        (at, budget) = (0, 9);
        assert!(staging.next_head(&mut at, &mut budget, &mut volume).is_none());
        at = 0;
        let (_, first) = staging.next_head(&mut at, &mut budget, &mut volume).expect("due");
        assert_eq!(first.key, b"one");
    }

    #[test]
    fn the_largest_value_has_no_more_extents_than_its_head_has_room_for() {
        let (mut volume, mut staging) = (volume_of(600), Staging::new(16 << 20));
        let bytes = max_value_bytes(volume.geometry());
        accept(&mut staging, b"key", &vec![3; bytes], 1);
        let (head, key, _) = record(b"key", b"");
        let (mut between, mut at, mut budget) = (0, 0, 1);
        while staging.staged().any(|staged| staged.ordinal.is_none()) {
            assert!(staging.next_head(&mut at, &mut budget, &mut volume).is_none(), "parts first");
            (at, budget) = (0, 1);
            if staging.may_be_split(volume.geometry()) {
                let record = Record { key: &key, ..head };
                volume.append(StreamId::Large, &record, 77, 0).expect("there is room");
                between += 1;
            }
            volume.flush_all();
            run_until_idle(&mut volume);
        }
        let extents = staging.staged().map(|staged| staged.extents.len()).max();
        assert!(extents <= Some(MAX_EXTENTS) && between > 0, "{extents:?} and {between} between");
    }

    #[test]
    fn a_long_key_lies_with_the_value() {
        let mut staging = Staging::new(100);
        let key = vec![9; MAX_INLINE_KEY + 1];
        let slot = accept(&mut staging, &key, b"value", 1);
        assert_eq!((staging.key(slot), staging.value(slot).1), (&key[..], &b"value"[..]));
        assert!(staging.is_full());
    }
}
