//! A hash table in memory that can be walked in the order of hashes, and grows a little at a time
//! (extendible hashing).
//!
//! ```text
//!   directory: the top `depth` bits of a hash ─► segment ─► hash table of at most SEGMENT_ENTRIES
//!      00 ─┐
//!      01 ─┴► segment 0…      (two places lead to a segment that has not been split so often)
//!      10 ──► segment 10…
//!      11 ──► segment 11…
//! ```
//! A segment that is full is split in two by the next bit, which takes as long as its entries take
//! and no longer; the directory doubles when a segment is reached by one place only. A walk goes by
//! segments, and inside a segment by sorted hashes, so that its cursor is a hash: it means the same
//! after any growth.
//!
//! Keys are hashed by a secret seed, so that segments fill evenly. When hashes are equal (tests),
//! a segment that cannot be split grows instead.

use core::mem::size_of;

use hashbrown::HashTable;
use hashbrown::hash_table;

use super::chain::Entry;

/// Entries of a segment before it is split. Splitting one takes some tens of microseconds.
const SEGMENT_ENTRIES: usize = 1024;
/// A segment with fewer than one entry in so many slots gives memory back.
const SPARSE: usize = 8;
/// Bits of a hash that choose the segment, at most: 16 M segments.
const MAX_DEPTH: u32 = 24;

/// The entries whose hashes begin with the same bits.
struct Segment {
    /// How many bits they share.
    depth: u32,
    entries: HashTable<Entry>,
}

impl Segment {
    const fn new(depth: u32) -> Self {
        Self { depth, entries: HashTable::new() }
    }

    fn bytes(&self) -> usize {
        self.entries.allocation_size() + size_of::<Self>()
    }
}

/// See the module.
pub(super) struct Table {
    /// By the top bits of a hash: the number of a segment.
    directory: Vec<u32>,
    depth: u32,
    segments: Vec<Segment>,
    len: usize,
    /// Bytes of the segments' tables.
    bytes: usize,
}

/// Where in its segment a hash is looked for: the bits that choose the segment are the same for all
/// of them, and hash tables look at the lowest and the highest ones.
const fn inner(hash: u64) -> u64 {
    hash.rotate_left(MAX_DEPTH)
}

fn inner_of(entry: &Entry) -> u64 {
    inner(entry.hash)
}

impl Table {
    pub(super) fn new() -> Self {
        let first = Segment::new(0);
        let bytes = first.bytes();
        Self { directory: vec![0], depth: 0, segments: vec![first], len: 0, bytes }
    }

    const fn place(&self, hash: u64) -> usize {
        // A shift by all bits is none.
        if self.depth == 0 { 0 } else { (hash >> (64 - self.depth)) as usize }
    }

    fn segment(&self, hash: u64) -> &Segment {
        &self.segments[self.directory[self.place(hash)] as usize]
    }

    /// How many keys there are.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the table itself: slots, used or not, and directory.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes + self.directory.capacity() * size_of::<u32>()
    }

    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<&Entry> {
        self.segment(hash)
            .entries
            .find(inner(hash), |entry| entry.hash == hash && *entry.key == *key)
    }

    #[inline]
    pub(super) fn find_mut(&mut self, hash: u64, key: &[u8]) -> Option<&mut Entry> {
        let number = self.directory[self.place(hash)] as usize;
        let is_it = |entry: &Entry| entry.hash == hash && *entry.key == *key;
        self.segments[number].entries.find_mut(inner(hash), is_it)
    }

    /// Adds an entry of a key that is not there.
    pub(super) fn insert(&mut self, entry: Entry) {
        debug_assert!(self.find(entry.hash, &entry.key).is_none(), "a key has one entry");
        let mut number = self.directory[self.place(entry.hash)] as usize;
        if self.segments[number].entries.len() >= SEGMENT_ENTRIES && self.split(entry.hash) {
            number = self.directory[self.place(entry.hash)] as usize;
        }
        let segment = &mut self.segments[number];
        let before = segment.bytes();
        segment.entries.insert_unique(inner(entry.hash), entry, inner_of);
        self.bytes = self.bytes - before + segment.bytes();
        self.len += 1;
    }

    /// The entries with this hash, to change them.
    pub(super) fn with_hash(&mut self, hash: u64) -> impl Iterator<Item = &mut Entry> {
        let number = self.directory[self.place(hash)] as usize;
        let entries = self.segments[number].entries.iter_hash_mut(inner(hash));
        entries.filter(move |entry| entry.hash == hash)
    }

    /// Takes out an entry with this hash that `is_wanted`.
    pub(super) fn take(&mut self, hash: u64, is_wanted: impl Fn(&Entry) -> bool) -> Option<Entry> {
        let number = self.directory[self.place(hash)] as usize;
        let is_it = |entry: &Entry| entry.hash == hash && is_wanted(entry);
        let segment = &mut self.segments[number];
        let found = segment.entries.find_entry(inner(hash), is_it);
        let entry = found.ok().map(hash_table::OccupiedEntry::remove)?.0;
        debug_assert!(self.len > 0, "what is taken was counted");
        self.len -= 1;
        if segment.entries.len() * SPARSE < segment.entries.capacity() {
            let before = segment.bytes();
            segment.entries.shrink_to_fit(inner_of);
            self.bytes = self.bytes - before + segment.bytes();
        }
        Some(entry)
    }

    /// Keeps what `keep` says of the segment in which `from` lies; the first hash behind that
    /// segment, if there are more.
    pub(super) fn retain_segment(
        &mut self,
        from: u64,
        keep: impl FnMut(&mut Entry) -> bool,
    ) -> Option<u64> {
        let number = self.directory[self.place(from)] as usize;
        let segment = &mut self.segments[number];
        let (before, bytes) = (segment.entries.len(), segment.bytes());
        segment.entries.retain(keep);
        if segment.entries.len() < before / 2 {
            segment.entries.shrink_to_fit(inner_of);
        }
        self.len -= before - segment.entries.len();
        self.bytes = self.bytes - bytes + segment.bytes();
        let depth = segment.depth;
        debug_assert!(depth <= self.depth, "the directory tells all segments apart");
        Self::behind(from, depth)
    }

    /// The entries at or behind `from` of the segment in which it lies, in the order of their
    /// hashes; and the first hash behind that segment, if there are more.
    pub(super) fn from(&self, from: u64) -> (Vec<&Entry>, Option<u64>) {
        let segment = self.segment(from);
        let mut entries: Vec<&Entry> =
            segment.entries.iter().filter(|entry| entry.hash >= from).collect();
        entries.sort_unstable_by(|one, other| (one.hash, &one.key).cmp(&(other.hash, &other.key)));
        (entries, Self::behind(from, segment.depth))
    }

    /// The first hash behind all those that share the first `depth` bits with `hash`.
    const fn behind(hash: u64, depth: u32) -> Option<u64> {
        if depth == 0 {
            return None;
        }
        let step = 1 << (64 - depth);
        (hash & !(step - 1)).checked_add(step)
    }

    /// Splits the segment of a hash by one more bit; false when it must not get any smaller.
    fn split(&mut self, hash: u64) -> bool {
        let number = self.directory[self.place(hash)] as usize;
        let depth = self.segments[number].depth;
        if depth >= MAX_DEPTH {
            return false;
        }
        if depth == self.depth {
            self.directory = self.directory.iter().flat_map(|&segment| [segment; 2]).collect();
            self.depth += 1;
        }
        let bit = 1 << (63 - depth);
        let segment = &mut self.segments[number];
        let before = segment.bytes();
        let upper: Vec<Entry> = segment.entries.extract_if(|entry| entry.hash & bit != 0).collect();
        segment.depth += 1;
        segment.entries.shrink_to_fit(inner_of);
        let mut new = Segment::new(depth + 1);
        new.entries.reserve(upper.len(), inner_of);
        for entry in upper {
            new.entries.insert_unique(inner(entry.hash), entry, inner_of);
        }
        self.bytes = self.bytes - before + segment.bytes() + new.bytes();
        // Of the places that led here, the upper half leads to the new one.
        let half = 1 << (self.depth - depth - 1);
        let first = self.place(hash) & !(2 * half - 1);
        self.directory[first + half..first + 2 * half].fill(self.segments.len() as u32);
        self.segments.push(new);
        debug_assert_eq!(self.directory.len(), 1 << self.depth, "a place for each prefix");
        true
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::{Expiry, Version};

    use super::super::chain::Stored;
    use super::*;

    fn entry(hash: u64, key: &[u8]) -> Entry {
        let newest = Stored { version: Version::ZERO, expires_at: Expiry::NEVER, value: None };
        Entry::new(hash, key, newest)
    }

    fn hash(n: u64) -> u64 {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn walk(table: &Table) -> Vec<u64> {
        let (mut found, mut from) = (Vec::new(), Some(0));
        while let Some(at) = from {
            let (entries, next) = table.from(at);
            found.extend(entries.iter().map(|entry| entry.hash));
            from = next;
        }
        found
    }

    #[test]
    fn keys_are_found_and_walked_in_order_while_the_table_grows() {
        let mut table = Table::new();
        for n in 0..20_000u64 {
            table.insert(entry(hash(n), &n.to_be_bytes()));
        }
        assert!(table.segments.len() > 16 && table.len() == 20_000);
        assert!((0..20_000u64).all(|n| table.find(hash(n), &n.to_be_bytes()).is_some()));
        assert!(table.find(hash(1), b"other").is_none());
        let found = walk(&table);
        assert!(found.len() == 20_000 && found.is_sorted());
        let bytes: usize = table.segments.iter().map(Segment::bytes).sum();
        assert_eq!(bytes, table.bytes, "what is counted is what there is");
        for n in 0..20_000u64 {
            if n % 2 == 0 {
                assert!(table.take(hash(n), |one| *one.key == n.to_be_bytes()).is_some());
            }
            assert!(table.take(hash(n), |one| *one.key == *b"other").is_none());
            assert_eq!(table.with_hash(hash(n)).count(), (n % 2) as usize);
        }
        assert_eq!(walk(&table).len(), table.len());
        let mut from = Some(0);
        while let Some(at) = from {
            from = table.retain_segment(at, |_| false);
        }
        assert_eq!(table.len(), 0);
        let bytes: usize = table.segments.iter().map(Segment::bytes).sum();
        assert_eq!(bytes, table.bytes);
    }

    #[test]
    fn equal_hashes_make_a_segment_long_and_nothing_else() {
        let mut table = Table::new();
        for n in 0..3000u64 {
            table.insert(entry(0x1234_5678, &n.to_be_bytes()));
        }
        assert!((0..3000u64).all(|n| table.find(0x1234_5678, &n.to_be_bytes()).is_some()));
        assert_eq!(walk(&table).len(), 3000);
    }
}
