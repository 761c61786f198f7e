//! The record cache: whole records in an append log of segments, admitted and kept by frequency
//! (S3-FIFO).
//!
//! ```text
//!   insert ─► small queue (a 50th) ──asked for──► main queue ──asked for──► main again
//!                     └──not──► ghost (remembers the key)  └──not──► ghost
//!                                  └─ insert of a remembered key ─► main queue
//! ```
//!
//! Most of what fills up such a cache under writes is versions that were superseded since. They
//! stay for a while, for older snapshots; but a segment with many of them is cleaned before
//! anything else is given up: what is not superseded in it moves to the main queue.
//!
//! Segments of [`SEGMENT_BYTES`] are allocated as they are needed, up to the bound; a full queue
//! gives up its oldest segment whole, copying only what was asked for. Records are found through a
//! table of 8-byte slots in cache-line-sized buckets of eight: a hit costs one miss for the bucket
//! and one for the record. All versions of a key share a bucket, and what is remembered of a key
//! that left is a slot of it, too: a put that supersedes a version looks at one line, which can be
//! fetched before any version is known. The table is sized when the cache is made or resized, and
//! zeroed lazily by the system: an idle cache costs next to nothing. It follows when what is charged
//! to the cache has halved what it may take, or doubled it again (`fit.rs`).
//!
//! What it deliberately does not do: serve as the truth. A record that is not here is on flash or
//! in a page that is being written.
//!
//! Invariants: the last segment of each queue is being filled, and one more is always free or
//! unallocated; a slot in the table points to a record whose header repeats what it is filed under;
//! a record without slot is dead.

mod fit;
mod table;
#[cfg(test)]
mod tests;

use core::ops::Range;
use std::collections::VecDeque;

use timestone_io::{HUGE_PAGE_BYTES, Region, prefetch, prefetch_bytes};
use timestone_types::{Expiry, KeyspaceId, Timestamp, Version};

pub(crate) use self::table::CachedRecord;
use self::table::{Bucket, Name, TableSlot, WAYS};
use super::key_id::KeyId;
use crate::layout::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};

/// Bytes of a log segment: small enough that giving one up takes tens of microseconds.
const SEGMENT_BYTES: usize = 256 * 1024;
/// Records longer than this are not cached: one would push too many others out.
const MAX_RECORD: usize = SEGMENT_BYTES / 8;
/// Thousandths of a segment that must be superseded before it is cleaned: copying the rest then
/// costs about what it wins. Also where there is memory that was never touched: the system has to
/// bring and clear that first, which costs several times as much as copying.
const WORTH_CLEANING: usize = 500;
/// Segments that are cleaned for one that is needed, at most; after that, records go.
const MAX_CLEANED: u32 = 3;

/// The part of the cache that new records have: a fiftieth. Under Zipf with memory for a fiftieth of
/// the records a tenth answered 67.7 % of the reads, a fiftieth 69.3 %, and nothing more than 73 %.
const SMALL_PART: usize = 50;
/// Bits of a version's hash that its fingerprint does not have.
const CHANCE_SHIFT: u32 = 16;

/// Segments of the smallest cache: one of each queue, and one more.
const MIN_SEGMENTS: usize = 3;
/// The part of what it was made for that a cache keeps whatever is charged to it: an eighth.
const KEPT_WHEN_CHARGED: usize = 8;
/// The part of what it was made for that must have become free before a cache takes it back: a
/// sixteenth. Buffers come and go, and memory that was given back is dear to touch again.
const WORTH_TAKING_BACK: usize = 16;
/// Segments whose memory is given back in one step: about 100 µs.
const GIVEN_BACK_AT_ONCE: usize = 4;

const HEADER: usize = 48;

/// What a record is filed under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CacheKey<'a> {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) id: KeyId,
    pub(crate) version: Version,
    pub(crate) key: &'a [u8],
}

impl CacheKey<'_> {
    /// What it is found by: not the key's bytes, which the id stands for.
    #[inline]
    fn name(&self) -> Name {
        Name::new(self.keyspace, self.id, self.version)
    }
}

/// What [`Cache::prefetch_record`] asks for: the lines of a record of common size; its length is
/// not known before it is here.
const PREFETCHED_BYTES: usize = 640;

/// Segments of one memory region.
const SEGMENTS_PER_REGION: usize = HUGE_PAGE_BYTES / SEGMENT_BYTES;

#[derive(Debug, Default)]
struct LogSegment {
    used: usize,
    /// About how many bytes of it were superseded.
    superseded: usize,
}

/// What is kept of a segment that is emptied; never what was superseded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Retention {
    Clean,
    KeepAskedFor,
    DropAll,
}

/// The region of a segment, and the part of it.
#[inline]
fn part_of(segment: u32) -> (usize, Range<usize>) {
    let (region, place) =
        (segment as usize / SEGMENTS_PER_REGION, segment as usize % SEGMENTS_PER_REGION);
    (region, place * SEGMENT_BYTES..(place + 1) * SEGMENT_BYTES)
}

/// What a record says that it is filed under, beside its key's bytes.
fn identity(record: &[u8]) -> (KeyspaceId, KeyId, Version) {
    let id =
        KeyId { segment: u16_at(record, 4), tag: u32_at(record, 12), check: u32_at(record, 16) };
    let (at, client) = (u64_at(record, 24), u32_at(record, 20));
    let version = Version::new(Timestamp::from_nanos(at), timestone_types::ClientId::new(client));
    (KeyspaceId::new(u32_at(record, 8)), id, version)
}

/// The records of a segment's bytes.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let (record, rest) = bytes.split_at(u32_at(bytes, 40) as usize);
        bytes = rest;
        Some(record)
    })
}

/// The cache of one store.
pub(crate) struct Cache {
    buckets: Vec<Bucket>,
    segments: Vec<LogSegment>,
    /// The memory of the segments, in their order.
    regions: Vec<Region>,
    /// The records of a segment that is being emptied.
    scratch: Vec<(CachedRecord, Name, usize)>,
    free: Vec<u32>,
    /// Oldest first; the last of each is being filled.
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    /// How many segments there may be now: what is charged to the cache is taken from it.
    max_segments: usize,
    /// How many the cache was made for.
    most_segments: usize,
    /// Buckets of the table for so many.
    most_buckets: usize,
    /// Segments whose memory was given back to the system.
    given_back: Vec<u32>,
    told_too_much: bool,
}

impl Cache {
    /// A cache of `bytes`, table included; below about three segments there is none.
    pub(crate) fn new(bytes: u64) -> Self {
        let buckets = fit::buckets_for(bytes);
        let table = (buckets * size_of::<Bucket>()) as u64;
        let max_segments = (bytes.saturating_sub(table) as usize) / SEGMENT_BYTES;
        let max_segments = if max_segments < MIN_SEGMENTS { 0 } else { max_segments.min(1 << 20) };
        let buckets = if max_segments == 0 { 0 } else { buckets };
        Self {
            buckets: vec![Bucket::default(); buckets],
            segments: Vec::new(),
            regions: Vec::new(),
            scratch: Vec::new(),
            free: Vec::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            max_segments,
            most_segments: max_segments,
            most_buckets: buckets,
            given_back: Vec::new(),
            told_too_much: false,
        }
    }

    /// Makes it one of so many bytes. It starts empty: what would stay is cheaper to read again
    /// than to move while a shard waits, and all of the memory goes back at once.
    pub(crate) fn resize(&mut self, bytes: u64) {
        *self = Self::new(bytes);
        self.assert_sound();
    }

    /// So many bytes of what the cache was made for are used by others: it keeps an eighth of it,
    /// and gives the rest of them back, some with each call.
    pub(crate) fn charge(&mut self, bytes: u64) {
        self.assert_sound();
        let least = (self.most_segments / KEPT_WHEN_CHARGED).max(MIN_SEGMENTS);
        let charged = usize::try_from(bytes.div_ceil(SEGMENT_BYTES as u64)).unwrap_or(usize::MAX);
        let left = self.most_segments.saturating_sub(charged).max(least).min(self.most_segments);
        self.tell_when_too_much(charged, self.most_segments - least.min(self.most_segments));
        let gained = left.saturating_sub(self.max_segments);
        if left < self.max_segments || gained > self.most_segments / WORTH_TAKING_BACK {
            self.max_segments = left;
            self.fit_table();
        }
        for _ in 0..GIVEN_BACK_AT_ONCE {
            if self.taken_segments() <= self.max_segments {
                break;
            }
            self.give_up_until(2);
            let Some(segment) = self.free.pop() else { break };
            let (region, part) = part_of(segment);
            self.regions[region].give_back(part);
            self.given_back.push(segment);
        }
    }

    /// Tells once that more is charged than the cache can give; again when that was over.
    fn tell_when_too_much(&mut self, charged: usize, bound: usize) {
        if charged > bound && !self.told_too_much && self.most_segments > 0 {
            tracing::warn!(
                cache_bytes = self.most_segments * SEGMENT_BYTES,
                "the index, page buffers and access records of a shard take their share of \
                 --memory and more than seven eighths of its record cache's: what is beyond that \
                 is not within --memory; give more --memory"
            );
            self.told_too_much = true;
        }
        // Buffers come and go.
        self.told_too_much &= charged > bound / 2;
    }

    /// Segments that take memory.
    fn taken_segments(&self) -> usize {
        self.segments.len() - self.given_back.len()
    }

    /// Segments that there may be more than there are now.
    fn room(&self) -> usize {
        self.max_segments.saturating_sub(self.taken_segments())
    }

    fn table_bytes(&self) -> u64 {
        (self.buckets.len() * size_of::<Bucket>()) as u64
    }

    /// Bytes of memory in use, as far as the table is touched in proportion to the log.
    pub(crate) fn bytes(&self) -> u64 {
        (self.taken_segments() * SEGMENT_BYTES) as u64 + self.table_bytes()
    }

    /// Bytes of memory that may be in use now.
    pub(crate) fn limit_bytes(&self) -> u64 {
        (self.max_segments * SEGMENT_BYTES) as u64 + self.table_bytes()
    }

    /// How many full segments the small queue keeps. With less of them the main queue has more, and
    /// what is asked for now and then is kept by what is remembered of keys.
    fn small_target(&self) -> usize {
        (self.max_segments / SMALL_PART).max(1)
    }

    #[inline]
    fn bucket_of(&self, key: u64) -> usize {
        ((u128::from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)) * self.buckets.len() as u128) >> 64)
            as usize
    }

    /// What holds between changes.
    #[inline]
    fn assert_sound(&self) {
        let filed = self.free.len() + self.small.len() + self.main.len() + self.given_back.len();
        debug_assert!(filed <= self.segments.len(), "a segment stands in one queue");
        debug_assert!(self.max_segments <= self.most_segments, "no more than it was made for");
        debug_assert!(self.segments.len() <= self.regions.len() * SEGMENTS_PER_REGION);
    }

    /// Finds a record and notes that it was asked for.
    pub(crate) fn find(&mut self, key: CacheKey<'_>) -> Option<CachedRecord> {
        self.assert_sound();
        if self.max_segments == 0 {
            return None;
        }
        let name = key.name();
        let bucket = self.bucket_of(name.key);
        for way in 0..WAYS {
            let slot = TableSlot(self.buckets[bucket].0[way]);
            if slot.matches(name.version) && self.is(slot.place(), key) {
                self.buckets[bucket].0[way] = slot.asked_for().0;
                return Some(slot.place());
            }
        }
        None
    }

    /// Has the line of the table fetched in which the versions of a key are found.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, keyspace: KeyspaceId, id: KeyId) {
        if self.max_segments > 0 {
            prefetch(&self.buckets[self.bucket_of(Name::key(keyspace, id))]);
        }
    }

    /// Has a record fetched, if it is there; it counts for nothing.
    #[inline]
    pub(crate) fn prefetch_record(&self, keyspace: KeyspaceId, id: KeyId, version: Version) {
        if self.max_segments == 0 {
            return;
        }
        let name = Name::new(keyspace, id, version);
        let mut slots = self.buckets[self.bucket_of(name.key)].slots();
        if let Some(slot) = slots.find(|slot| slot.matches(name.version)) {
            let record = self.record(slot.place());
            prefetch_bytes(&record[..record.len().min(PREFETCHED_BYTES)]);
        }
    }

    /// The key of a cached version that is known by its id only.
    pub(crate) fn find_by_id(
        &self,
        keyspace: KeyspaceId,
        id: KeyId,
        version: Version,
    ) -> Option<CachedRecord> {
        if self.max_segments == 0 {
            return None;
        }
        let name = Name::new(keyspace, id, version);
        self.buckets[self.bucket_of(name.key)]
            .slots()
            .filter(|slot| slot.matches(name.version))
            .map(TableSlot::place)
            .find(|&place| {
                let found = self.filed_under(place);
                found.keyspace == keyspace && found.id == id && found.version == version
            })
    }

    fn record(&self, place: CachedRecord) -> &[u8] {
        &self.bytes_of(place.segment)[place.offset as usize..]
    }

    fn bytes_of(&self, segment: u32) -> &[u8] {
        let (region, part) = part_of(segment);
        &self.regions[region][part]
    }

    fn bytes_of_mut(&mut self, segment: u32) -> &mut [u8] {
        let (region, part) = part_of(segment);
        &mut self.regions[region][part]
    }

    fn filed_under(&self, place: CachedRecord) -> CacheKey<'_> {
        let bytes = self.record(place);
        let key_end = HEADER + usize::from(u16_at(bytes, 6));
        let (keyspace, id, version) = identity(bytes);
        CacheKey { keyspace, id, version, key: &bytes[HEADER..key_end] }
    }

    fn is(&self, place: CachedRecord, key: CacheKey<'_>) -> bool {
        let found = self.filed_under(place);
        found.version == key.version && found.keyspace == key.keyspace && found.key == key.key
    }

    /// The key of a record.
    pub(crate) fn key(&self, place: CachedRecord) -> &[u8] {
        self.filed_under(place).key
    }

    /// The value of a record.
    pub(crate) fn value(&self, place: CachedRecord) -> &[u8] {
        let bytes = self.record(place);
        let start = HEADER + usize::from(u16_at(bytes, 6));
        &bytes[start..start + u32_at(bytes, 0) as usize]
    }

    /// The expiry of a record.
    pub(crate) fn expires_at(&self, place: CachedRecord) -> Expiry {
        Expiry::at(Timestamp::from_nanos(u64_at(self.record(place), 32)))
    }

    /// Adds a record that is not there. Records that are too long are left out.
    pub(crate) fn insert(&mut self, key: CacheKey<'_>, expires_at: Expiry, value: &[u8]) {
        let bytes = (HEADER + key.key.len() + value.len()).next_multiple_of(8);
        if self.max_segments == 0 || bytes > MAX_RECORD {
            return;
        }
        let name = key.name();
        let remembered = self.take_ghost(name.key);
        let Some(place) = self.reserve(remembered, bytes) else { return };
        let at = place.offset as usize;
        assert!(at + bytes <= SEGMENT_BYTES, "a record lies in one segment");
        let out = &mut self.bytes_of_mut(place.segment)[at..at + bytes];
        put_u32(out, 0, value.len() as u32);
        put_u16(out, 4, key.id.segment);
        put_u16(out, 6, key.key.len() as u16);
        put_u32(out, 8, key.keyspace.get());
        put_u32(out, 12, key.id.tag);
        put_u32(out, 16, key.id.check);
        put_u32(out, 20, key.version.client.get());
        put_u64(out, 24, key.version.timestamp.as_nanos());
        put_u64(out, 32, expires_at.timestamp().as_nanos());
        put_u32(out, 40, bytes as u32);
        let value_at = HEADER + key.key.len();
        out[HEADER..value_at].copy_from_slice(key.key);
        out[value_at..value_at + value.len()].copy_from_slice(value);
        self.file(name, 0, place);
    }

    /// Whether a record of the key has left lately; it is not remembered any more then.
    fn take_ghost(&mut self, key: u64) -> bool {
        self.assert_sound();
        let bucket = self.bucket_of(key);
        let ghost = TableSlot::ghost(key).0;
        let found = self.buckets[bucket].slots_mut().find(|raw| **raw == ghost);
        found.map(|raw| *raw = 0).is_some()
    }

    /// A younger version, of `value_bytes`, of the record has been put: few will ask for this one
    /// again.
    pub(crate) fn superseded(&mut self, key: CacheKey<'_>, value_bytes: usize) {
        self.assert_sound();
        if self.max_segments == 0 {
            return;
        }
        let name = key.name();
        let bucket = self.bucket_of(name.key);
        // Another record with this fingerprint would be taken for superseded and leave early, which
        // costs a read later.
        let is_it = |slot: TableSlot| slot.matches(name.version) && !slot.is_superseded();
        let found = self.buckets[bucket].slots_mut().find(|raw| is_it(TableSlot(**raw)));
        if let Some(raw) = found {
            *raw = TableSlot(*raw).supersede().0;
            let segment = &mut self.segments[TableSlot(*raw).place().segment as usize];
            // Its own length is not at hand without a look at the record; versions of a key are of
            // a size more often than not.
            segment.superseded += (HEADER + key.key.len() + value_bytes).next_multiple_of(8);
        }
    }

    /// Puts a slot into its bucket, over the one that is worth least.
    fn file(&mut self, name: Name, frequency: u64, place: CachedRecord) {
        let bucket = self.bucket_of(name.key);
        let filed = TableSlot::new(name.version, frequency, place);
        debug_assert!(filed.matches(name.version) && filed.place() == place);
        // Of those that are worth as little any of them goes, by chance: what is remembered of keys
        // would never be forgotten in the last places.
        let by_chance = (name.version >> CHANCE_SHIFT) as usize;
        let (one, other) = self.buckets[bucket].0.split_at_mut(by_chance % WAYS);
        let slots = other.iter_mut().chain(one);
        if let Some(raw) = slots.min_by_key(|raw| TableSlot(**raw).worth()) {
            *raw = filed.0;
        }
    }

    /// Room for a record at the end of a queue.
    fn reserve(&mut self, main: bool, bytes: usize) -> Option<CachedRecord> {
        let last = if main { self.main.back() } else { self.small.back() };
        let fits = last
            .is_some_and(|&segment| self.segments[segment as usize].used + bytes <= SEGMENT_BYTES);
        if !fits {
            let segment = self.free_segment()?;
            // Giving a segment up may have begun a new one at the end of the main queue: it stays
            // in use.
            if main { self.main.push_back(segment) } else { self.small.push_back(segment) }
        }
        let segment = if main { *self.main.back()? } else { *self.small.back()? };
        let offset = self.segments[segment as usize].used;
        self.segments[segment as usize].used += bytes;
        assert!(offset.is_multiple_of(8) && offset + bytes <= SEGMENT_BYTES);
        Some(CachedRecord { segment, offset: offset as u32 })
    }

    /// An empty segment; one more always stays free, for what is kept when a segment is given up.
    fn free_segment(&mut self) -> Option<u32> {
        self.assert_sound();
        let mut cleaned = 0;
        // What is kept when a segment is cleaned takes a free one, too.
        while self.free.len() < 2
            && cleaned < MAX_CLEANED
            && let Some(segment) = self.worth_cleaning()
        {
            self.empty(segment, Retention::Clean);
            cleaned += 1;
        }
        if self.give_up_until(2) { self.take_free() } else { None }
    }

    /// Gives up records until there are so many segments that are free or may still be taken.
    /// Whether there are.
    fn give_up_until(&mut self, wanted: usize) -> bool {
        let mut round = 0;
        while self.free.len() + self.room() < wanted {
            let victim =
                if self.small.len() > self.small_target() { self.small.pop_front() } else { None };
            match victim.or_else(|| self.main.pop_front()).or_else(|| self.small.pop_front()) {
                Some(segment) if round >= 2 => self.empty(segment, Retention::DropAll),
                Some(segment) => self.empty(segment, Retention::KeepAskedFor),
                None => return false,
            }
            round += 1;
        }
        true
    }

    /// Takes the oldest segment out of its queue that is worth being cleaned. Not the last of a
    /// queue: it is being filled.
    fn worth_cleaning(&mut self) -> Option<u32> {
        self.assert_sound();
        let Self { small, main, segments, .. } = self;
        let enough = |&segment: &u32| {
            segments[segment as usize].superseded * 1000 >= SEGMENT_BYTES * WORTH_CLEANING
        };
        // The main queue first: the small one always has some.
        [main, small].into_iter().find_map(|queue| {
            let filled = queue.len().saturating_sub(1);
            let at = queue.iter().take(filled).position(enough)?;
            queue.remove(at)
        })
    }

    /// A segment that holds nothing; none when the system has no memory for another.
    fn take_free(&mut self) -> Option<u32> {
        self.assert_sound();
        if let Some(segment) = self.free.pop() {
            return Some(segment);
        }
        if let Some(segment) = self.given_back.pop() {
            let (region, _) = part_of(segment);
            let is_of_it = |&other: &u32| part_of(other).0 == region;
            if !self.given_back.iter().any(is_of_it) {
                self.regions[region].is_whole_again();
            }
            return Some(segment);
        }
        if self.segments.len() == self.regions.len() * SEGMENTS_PER_REGION {
            match Region::new(HUGE_PAGE_BYTES) {
                Ok(region) => self.regions.push(region),
                Err(error) => {
                    tracing::warn!(%error, "no memory for more of the record cache; it stays as \
                        large as it is");
                    self.most_segments = self.segments.len();
                    self.max_segments = self.max_segments.min(self.most_segments);
                    return None;
                }
            }
        }
        self.segments.push(LogSegment::default());
        Some((self.segments.len() - 1) as u32)
    }

    /// Empties a segment; what is worth keeping moves to the main queue.
    fn empty(&mut self, segment: u32, how: Retention) {
        let used = core::mem::take(&mut self.segments[segment as usize]).used;
        let mut filed = core::mem::take(&mut self.scratch);
        let mut at = 0;
        for record in records(&self.bytes_of(segment)[..used]) {
            let place = CachedRecord { segment, offset: at as u32 };
            let name = Self::name_of(record);
            prefetch(&self.buckets[self.bucket_of(name.key)]);
            filed.push((place, name, record.len()));
            at += record.len();
        }
        assert!(at == used && self.segments[segment as usize].used == 0, "it is emptied whole");
        for (place, name, bytes) in filed.drain(..) {
            let Some((bucket, way)) = self.slot_at(name, place) else { continue };
            let slot = TableSlot(core::mem::take(&mut self.buckets[bucket].0[way]));
            let frequency = slot.frequency();
            match how {
                _ if slot.is_superseded() => {}
                Retention::Clean => self.keep(name, frequency, place, bytes),
                Retention::KeepAskedFor if frequency > 0 => {
                    self.keep(name, frequency - 1, place, bytes)
                }
                Retention::KeepAskedFor | Retention::DropAll => {
                    self.buckets[bucket].0[way] = TableSlot::ghost(name.key).0;
                }
            }
        }
        self.scratch = filed;
        self.free.push(segment);
    }

    fn name_of(record: &[u8]) -> Name {
        let (keyspace, id, version) = identity(record);
        Name::new(keyspace, id, version)
    }

    fn slot_at(&self, name: Name, place: CachedRecord) -> Option<(usize, usize)> {
        let bucket = self.bucket_of(name.key);
        let mut slots = self.buckets[bucket].slots();
        let way = slots.position(|slot| slot.matches(name.version) && slot.place() == place)?;
        Some((bucket, way))
    }

    /// Appends a record to the main queue again; the spare segment is there for it.
    fn keep(&mut self, name: Name, frequency: u64, record: CachedRecord, bytes: usize) {
        debug_assert!(bytes <= SEGMENT_BYTES, "a record fits a segment");
        let fits = self
            .main
            .back()
            .is_some_and(|&last| self.segments[last as usize].used + bytes <= SEGMENT_BYTES);
        if !fits {
            if self.free.is_empty() && self.room() == 0 {
                return;
            }
            let Some(fresh) = self.take_free() else { return };
            self.main.push_back(fresh);
        }
        let Some(&last) = self.main.back() else { return };
        let place =
            CachedRecord { segment: last, offset: self.segments[last as usize].used as u32 };
        self.copy(record, place, bytes);
        self.segments[last as usize].used += bytes;
        self.file(name, frequency, place);
    }

    /// Copies a record to another segment.
    fn copy(&mut self, from: CachedRecord, to: CachedRecord, bytes: usize) {
        assert!(from.segment != to.segment, "nothing is kept where it is emptied");
        let [(from_region, from), (to_region, to)] = [from, to].map(|place| {
            let (region, part) = part_of(place.segment);
            (region, part.start + place.offset as usize)
        });
        if from_region == to_region {
            return self.regions[from_region].copy_within(from..from + bytes, to);
        }
        if let Ok([source, target]) = self.regions.get_disjoint_mut([from_region, to_region]) {
            target[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
        }
    }
}
