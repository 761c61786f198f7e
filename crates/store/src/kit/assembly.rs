//! Large values that are put together from their parts for a read.
//!
//! ```text
//!   head ─► room for its bytes? ─ yes ─► parts read, in any order ─► all there, checksum ─► value
//!              └─ no: queued, until others are done; then the key is looked up anew
//! ```
//!
//! What is queued keeps no pin: collection may move the value meanwhile, so whoever gets a queued
//! waiter back looks its key up again.
//!
//! Invariants: `bytes` is the sum of what the values in `list` count for; a value in `list` has
//! `outstanding` reads under way, each of which pins its block; parts carry the version of their
//! head, or the value is damaged.

use std::collections::VecDeque;

use timestone_flash::{PAGE_BYTES, PageId};
use timestone_types::{Expiry, KeyHash, Version};

use super::port::Purpose;
use super::volume::Volume;
use crate::layout::{self, Extent, LargeHead, PART_PAYLOAD, PageKind, Record, RecordKind};
use crate::limits::{GROUP_PAGES, MAX_QUEUED_READ_BYTES};

/// What of a large value is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WantedParts {
    /// All of it.
    Value,
    /// The key: the parts that have it, none where it is in the head.
    Key,
}

/// A value and where it came from.
pub(crate) struct Assembly<W> {
    pub(crate) waiter: W,
    pub(crate) kind: RecordKind,
    pub(crate) hash: KeyHash,
    pub(crate) version: Version,
    pub(crate) expires_at: Expiry,
    /// Why it cannot be told, if it cannot.
    pub(crate) damaged: Option<&'static str>,
    head: LargeHead<'static>,
    /// The key, when it is in the head.
    key: Vec<u8>,
    payload: Vec<u8>,
    outstanding: u32,
    /// Bytes that it counts for among those that are put together.
    counted: u64,
}

impl<W> Assembly<W> {
    fn is_whole(&self) -> bool {
        self.payload.len() == self.head.total as usize
    }

    fn outside(&self) -> usize {
        self.head.key_outside as usize
    }

    /// The key, in the head or before the value.
    pub(crate) fn key(&self) -> &[u8] {
        if self.outside() > 0 { &self.payload[..self.outside()] } else { &self.key }
    }

    /// The value.
    pub(crate) fn value(&self) -> &[u8] {
        debug_assert!(self.is_whole(), "all of it was wanted");
        &self.payload[self.outside()..]
    }

    /// Where its parts are.
    pub(crate) fn extents(&self) -> &[Extent] {
        &self.head.extents
    }

    /// The waiter, the expiry and the value.
    pub(crate) fn into_value(mut self) -> (W, Expiry, Vec<u8>) {
        debug_assert!(self.is_whole(), "all of it was wanted");
        let outside = self.outside();
        self.payload.drain(..outside);
        (self.waiter, self.expires_at, self.payload)
    }

    /// The waiter, and bytes for reuse.
    pub(crate) fn into_waiter(self) -> (W, Vec<u8>) {
        (self.waiter, self.payload)
    }

    /// Takes in the parts from `first` on, as far as one read had them.
    fn take_parts(&mut self, first: u32, readable: bool, bytes: &[u8], volume: &mut Volume) {
        let mut at = 0;
        let extent = self.head.extents.iter().find(|extent| {
            let inside = (at..at + extent.pages).contains(&first);
            at += if inside { 0 } else { extent.pages };
            inside
        });
        let Some(&extent) = extent else { return };
        let begin = PageId(extent.page.0 + first - at);
        volume.blocks.unpin(volume.blocks.of(begin));
        assert!(self.outstanding > 0, "a read that ends was counted");
        self.outstanding -= 1;
        if !readable {
            self.damaged = Some("a part of a large value could not be read");
            return;
        }
        let store = volume.writer.stamp.store;
        let pages = (extent.pages - (first - at)).min(GROUP_PAGES);
        for (offset, page) in bytes.chunks_exact(PAGE_BYTES).take(pages as usize).enumerate() {
            let id = PageId(begin.0 + offset as u32);
            let (header, body) = layout::part_header(page);
            let part = first + offset as u32;
            let sound = layout::verify(page, id, extent.generation, store)
                .is_ok_and(|found| found.kind == PageKind::LargePart);
            if !sound || header.part != part || header.version != self.version {
                self.damaged = Some("a part of a large value is damaged");
                continue;
            }
            let start = part as usize * PART_PAYLOAD;
            let end = (start + PART_PAYLOAD).min(self.payload.len());
            if start < end {
                self.payload[start..end].copy_from_slice(&body[..end - start]);
            }
        }
    }
}

/// All values that are being put together; `W` is whoever waits for one.
pub(crate) struct Assemblies<W> {
    list: Vec<Option<Assembly<W>>>,
    /// Bytes of the values that count, and the bound.
    bytes: u64,
    most_bytes: u64,
    /// Those that wait until there are fewer, with their values' lengths.
    queued: VecDeque<(W, u64)>,
    queued_bytes: u64,
    /// There are fewer since they were last looked at.
    freed: bool,
}

impl<W> Assemblies<W> {
    /// None; `most_bytes` may be put together at once, besides one value.
    pub(crate) const fn new(most_bytes: u64) -> Self {
        Self {
            list: Vec::new(),
            bytes: 0,
            most_bytes,
            queued: VecDeque::new(),
            queued_bytes: 0,
            freed: false,
        }
    }

    /// Whoever waits for a value.
    pub(crate) fn waiters_mut(&mut self) -> impl Iterator<Item = &mut W> + '_ {
        let under_way = self.list.iter_mut().flatten().map(|assembly| &mut assembly.waiter);
        under_way.chain(self.queued.iter_mut().map(|(waiter, _)| waiter))
    }

    /// Whether the next pump can let a queued waiter go on.
    pub(crate) fn has_work(&self) -> bool {
        !self.queued.is_empty() && self.freed
    }

    /// Whether a value of so many bytes may be put together now.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.bytes == 0 || self.bytes + bytes <= self.most_bytes
    }

    /// Has a waiter wait for room. Gives it back when too much is queued already.
    pub(crate) fn queue(&mut self, waiter: W, bytes: u64) -> Result<(), W> {
        debug_assert!(!self.has_room(bytes), "what has room is not queued");
        if self.queued_bytes + bytes > MAX_QUEUED_READ_BYTES {
            return Err(waiter);
        }
        self.queued_bytes += bytes;
        self.queued.push_back((waiter, bytes));
        Ok(())
    }

    /// The queued waiters that there is room for now, in their order.
    pub(crate) fn take_queued(&mut self) -> Vec<W> {
        self.freed = false;
        let (mut bytes, mut taken) = (self.bytes, Vec::new());
        while let Some((waiter, length)) = self.queued.pop_front() {
            if bytes > 0 && bytes + length > self.most_bytes {
                self.queued.push_front((waiter, length));
                break;
            }
            bytes += length;
            assert!(self.queued_bytes >= length, "what is queued was counted");
            self.queued_bytes -= length;
            taken.push(waiter);
        }
        taken
    }

    /// Begins to read the parts of a value, whose `head` was found in `record`, as far as they are
    /// `wanted`. `counted` are the bytes that it counts for; `payload` gets the value. Returns it when
    /// nothing has to be read.
    pub(crate) fn begin(
        &mut self,
        waiter: W,
        (record, head): (&Record<'_>, LargeHead<'_>),
        wanted: WantedParts,
        counted: u64,
        mut payload: Vec<u8>,
        volume: &mut Volume,
    ) -> Option<Assembly<W>> {
        debug_assert!(counted == 0 || self.has_room(counted));
        self.bytes += counted;
        let bytes = match wanted {
            WantedParts::Value => head.total as usize,
            WantedParts::Key => head.key_outside as usize,
        };
        payload.resize(bytes, 0);
        let tail_at = head.total as usize - head.tail.len();
        if let Some(end) = payload.get_mut(tail_at..) {
            end.copy_from_slice(&head.tail[..end.len()]);
        }
        let slot = match self.list.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                self.list.push(None);
                self.list.len() - 1
            }
        };
        let parts = bytes.div_ceil(PART_PAYLOAD) as u32;
        let outstanding = read_parts(slot, &head.extents, parts, volume);
        self.list[slot] = Some(Assembly {
            waiter,
            kind: record.kind,
            hash: record.hash,
            version: record.version,
            expires_at: record.expires_at,
            damaged: None,
            head: LargeHead { tail: &[], ..head },
            key: record.key.to_vec(),
            payload,
            outstanding,
            counted,
        });
        self.finished(slot)
    }

    /// Parts of a value have been read: the value, if these were the last ones. `number` is the
    /// read's.
    pub(crate) fn part_read(
        &mut self,
        number: u64,
        readable: bool,
        bytes: &[u8],
        volume: &mut Volume,
    ) -> Option<Assembly<W>> {
        let (slot, first) = ((number >> 32) as usize, number as u32);
        debug_assert!(slot < self.list.len(), "a part of what is put together");
        self.list.get_mut(slot)?.as_mut()?.take_parts(first, readable, bytes, volume);
        self.finished(slot)
    }

    fn finished(&mut self, slot: usize) -> Option<Assembly<W>> {
        if self.list[slot].as_ref()?.outstanding > 0 {
            return None;
        }
        let mut assembly = self.list[slot].take()?;
        assert!(self.bytes >= assembly.counted, "what is put together was counted");
        self.bytes -= assembly.counted;
        self.freed = true;
        // What was read of it alone has the checksums of its pages.
        if assembly.damaged.is_none()
            && assembly.is_whole()
            && crc32c::crc32c(&assembly.payload) != assembly.head.crc
        {
            assembly.damaged = Some("the checksum of a large value does not match");
        }
        Some(assembly)
    }
}

/// Asks for the first parts of a value, so many at most; how many reads that takes.
fn read_parts(slot: usize, extents: &[Extent], most: u32, volume: &mut Volume) -> u32 {
    let (mut part, mut reads) = (0, 0);
    for extent in extents {
        let mut done = 0;
        while done < extent.pages && part < most {
            let pages = (extent.pages - done).min(GROUP_PAGES).min(most - part);
            let number = (slot as u64) << 32 | u64::from(part);
            volume.read(Purpose::PartRead, number, PageId(extent.page.0 + done), pages);
            reads += 1;
            done += pages;
            part += pages;
        }
    }
    let all: u32 = extents.iter().map(|extent| extent.pages).sum();
    debug_assert_eq!(part, all.min(most), "each page once");
    reads
}

#[cfg(test)]
mod tests {
    use timestone_types::{ClientId, KeyspaceId, Timestamp};

    use super::super::staging::tests::staged_value;
    use super::super::volume::tests::{run_until_idle, volume};
    use super::*;

    fn record<'a>(version: Version, value: &'a [u8]) -> Record<'a> {
        Record {
            kind: RecordKind::Large,
            keyspace: KeyspaceId::DEFAULT,
            hash: KeyHash(5),
            version,
            expires_at: Expiry::NEVER,
            key: b"key",
            value,
            links: None,
        }
    }

    /// Writes a value of two pages and a bit, and begins to put it together again.
    fn begin(volume: &mut Volume, all: &mut Assemblies<u32>, value: &[u8], version: Version) {
        let head = staged_value(volume, value);
        let bytes = head.clone();
        let head = LargeHead::read(&bytes).expect("a head");
        let found = (&record(version, &bytes), head);
        let (counted, wanted) = (value.len() as u64, WantedParts::Value);
        assert!(all.begin(9, found, wanted, counted, Vec::new(), volume).is_none());
    }

    fn finish(volume: &mut Volume, all: &mut Assemblies<u32>) -> Option<Assembly<u32>> {
        let mut last = None;
        for (_, number, bytes) in run_until_idle(volume) {
            last = all.part_read(number, true, &bytes, volume);
        }
        last
    }

    const VERSION: Version = Version::new(Timestamp::from_nanos(3), ClientId::new(1));

    #[test]
    fn a_value_is_put_together_from_its_parts() {
        let (mut volume, mut all) = (volume(), Assemblies::new(1 << 20));
        let value: Vec<u8> = (0..9000u32).map(|at| (at / 7) as u8).collect();
        begin(&mut volume, &mut all, &value, VERSION);
        assert!(all.bytes > 0);
        let done = finish(&mut volume, &mut all).expect("all parts are there");
        assert_eq!((done.damaged, done.key(), done.value()), (None, &b"key"[..], &value[..]));
        assert_eq!(done.into_value(), (9, Expiry::NEVER, value));
        assert_eq!((all.bytes, all.has_work()), (0, false), "nobody is queued");
    }

    #[test]
    fn parts_of_another_version_are_damage() {
        let (mut volume, mut all) = (volume(), Assemblies::new(1 << 20));
        let other = Version::new(Timestamp::from_nanos(4), ClientId::new(1));
        begin(&mut volume, &mut all, &[1; 9000], other);
        let done = finish(&mut volume, &mut all).expect("all parts are there");
        assert_eq!(done.damaged, Some("a part of a large value is damaged"));
    }

    #[test]
    fn waiters_queue_for_room_and_go_on_in_their_order() {
        let (mut volume, mut all) = (volume(), Assemblies::new(9500));
        begin(&mut volume, &mut all, &[1; 9000], VERSION);
        assert!(all.has_room(500) && !all.has_room(501));
        assert_eq!([all.queue(1, 6000), all.queue(2, 600), all.queue(3, 5000)], [Ok(()); 3]);
        assert_eq!(all.queue(4, MAX_QUEUED_READ_BYTES), Err(4), "that would be too much");
        assert!(!all.has_work() && all.take_queued().is_empty());
        assert!(finish(&mut volume, &mut all).is_some());
        assert!(all.has_work());
        assert_eq!(all.take_queued(), [1, 2], "the third one would be too much");
        assert!(!all.has_work(), "until something else is done");
    }
}
