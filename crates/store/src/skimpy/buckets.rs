//! The table of buckets: where each chain begins.
//!
//! ```text
//!   hash ─ highest bits ─► head: page of the chain's newest record ─► flash: record ─► record ─► …
//!                            older: further beginnings, where a crash has cut the chain
//! ```
//!
//! A pointer names a page: it means the last record of the bucket in that page, or the last one
//! before the record that points, where that lies in the same page. Records of all buckets go into
//! one stream, so a chain always leads back in the log. Where a pointer's block was erased since, the
//! chain ends: the block is used anew, or not at all, and its *life* began after the pointer was written.
//!
//! Neighbouring buckets share a group, which tells the highest timestamp that was ever linked there:
//! a put above it is its key's youngest version. It also tells when something was last linked, so
//! that a look-up knows whether it was overtaken.
//!
//! Invariant: `older` is empty but for buckets that recovery found in pieces, until they are
//! rewritten.

use std::collections::{BTreeMap, BTreeSet};

use timestone_flash::BlockId;
use timestone_types::{KeyHash, Timestamp};

use super::loose::LooseVersion;
use super::packed::{Nibbles, PackedPages};
use crate::layout::NO_PAGE;

/// The logarithm of the buckets of a group.
const GROUP_BITS: u8 = 8;
/// The same for those that a checkpoint tells of.
const SAVED_GROUP_BITS: u8 = 6;
/// The life of a block that is not of the log.
const NOT_LOG: u64 = u64::MAX;
/// Pages beside the way for which a bucket is written whole that a look-up has gathered.
const LEAST_DETOURS: u8 = 3;
/// The logarithms that a record has room for.
const BITS: core::ops::RangeInclusive<u8> = 1..=31;

/// A record of a page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RecordPlace {
    pub(super) page: u32,
    pub(super) slot: u16,
}

/// What nothing else leads to: a part of a chain, or loose versions of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Beginning {
    Chain(RecordPlace),
    Loose(LooseVersion),
}

impl Beginning {
    /// The page where it begins.
    pub(super) const fn page(&self) -> u32 {
        match self {
            Self::Chain(place) => place.page,
            Self::Loose(version) => version.page,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Group {
    youngest: Timestamp,
    linked: u64,
}

/// All buckets.
pub(super) struct Buckets {
    bits: u8,
    heads: PackedPages,
    /// By bucket, since it was written whole: pages by which its chain has grown, and pages that look-ups
    /// have read behind the first one; so many as four bits can tell.
    detours: Nibbles,
    groups: Vec<Group>,
    older: BTreeMap<u32, Vec<Beginning>>,
    /// Pages in which recovery found damaged records: these are gone, and what is there beside them
    /// is believed.
    scars: BTreeSet<u32>,
    /// By block: the sequence number of the page with which its life in the log began; [`NOT_LOG`]
    /// for others.
    lives: Vec<u64>,
    /// Blocks of the log that were given up to be erased.
    retired: u64,
    clock: u64,
    /// When the head of a staged value was linked last.
    large_linked: u64,
}

impl Buckets {
    /// Empty ones, `2^bits` of them, on a device of at most so many pages.
    pub(super) fn new(bits: u8, pages: u32) -> Self {
        assert!(BITS.contains(&bits), "a record has room for it");
        let count = 1usize << bits;
        Self {
            bits,
            heads: PackedPages::none(count, pages),
            detours: Nibbles::zeros(count),
            groups: vec![Group::default(); count.div_ceil(1 << GROUP_BITS)],
            older: BTreeMap::new(),
            scars: BTreeSet::new(),
            lives: Vec::new(),
            retired: 0,
            clock: 1,
            large_linked: 0,
        }
    }

    /// The logarithm of a number of buckets that gives each at most so many of the keys.
    pub(super) fn bits_for(keys: u64, keys_per_bucket: u32) -> u8 {
        let buckets = keys.div_ceil(u64::from(keys_per_bucket.max(1))).max(2);
        (buckets.next_power_of_two().trailing_zeros() as u8).clamp(*BITS.start(), *BITS.end())
    }

    /// Whether so many buckets can be.
    pub(super) fn has_room_for(bits: u8) -> bool {
        BITS.contains(&bits)
    }

    /// The logarithm of their number.
    pub(super) fn bits(&self) -> u8 {
        self.bits
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.heads.count() as u32
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        let older = self.older.values();
        let older: usize = older.map(|roots| 32 + roots.capacity() * size_of::<Beginning>()).sum();
        let blocks = self.lives.len() * 8;
        let heads = self.heads.memory_bytes() + self.detours.memory_bytes();
        (heads + self.groups.len() * size_of::<Group>() + blocks + older) as u64
    }

    /// The bucket of a key.
    pub(super) fn of(&self, hash: KeyHash) -> u32 {
        bucket_of(hash, self.bits)
    }

    /// The page of the newest record of a bucket.
    pub(super) fn head(&self, bucket: u32) -> u32 {
        self.heads.get(bucket as usize)
    }

    /// A bucket's chain begins in a page.
    fn begin_in(&mut self, bucket: u32, page: u32) {
        self.heads.set(bucket as usize, page);
    }

    /// Pages by which a chain has grown since it was written whole, and pages that look-ups have read
    /// since behind the first one.
    pub(super) fn detours(&self, bucket: u32) -> u8 {
        self.detours.get(bucket as usize)
    }

    /// A chain has got longer by some pages, or a look-up has read them.
    pub(super) fn add_detours(&mut self, bucket: u32, pages: u8) {
        let detours = self.detours(bucket).saturating_add(pages);
        self.detours.set(bucket as usize, detours.min(Nibbles::MOST));
    }

    /// Whether a chain has grown so much that it is written whole by whoever has all of it at hand.
    pub(super) fn is_worth_a_rewriting(&self, bucket: u32) -> bool {
        self.detours(bucket) >= LEAST_DETOURS
    }

    /// A chain is taken for a short one.
    pub(super) fn forget_detours(&mut self, bucket: u32) {
        self.detours.set(bucket as usize, 0);
    }

    /// Further beginnings, the newest first; their chains have lost what connected them.
    pub(super) fn older(&self, bucket: u32) -> &[Beginning] {
        self.older.get(&bucket).map_or(&[], Vec::as_slice)
    }

    /// Buckets whose chains are in pieces.
    pub(super) fn in_pieces(&self) -> impl Iterator<Item = u32> + '_ {
        self.older.keys().copied()
    }

    /// Recovery found damaged records in a page.
    pub(super) fn add_scar(&mut self, page: u32) {
        self.scars.insert(page);
    }

    /// Whether damaged records of a page are known to be gone.
    pub(super) fn is_scarred(&self, page: u32) -> bool {
        self.scars.contains(&page)
    }

    /// Pages with damaged records.
    pub(super) fn scars(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.scars.iter().copied()
    }

    /// A block of the log begins with a page of this sequence number.
    pub(super) fn begun(&mut self, block: BlockId, sequence: u64) {
        let at = block.0 as usize;
        if self.lives.len() <= at {
            self.lives.resize(at + 1, NOT_LOG);
        }
        debug_assert!(self.lives[at] == NOT_LOG, "a block is filled once");
        self.lives[at] = sequence;
    }

    /// Whether a block is the one that somebody meant who wrote at this sequence number.
    pub(super) fn was_begun_by(&self, block: BlockId, sequence: u64) -> bool {
        let began = self.lives.get(block.0 as usize).copied().unwrap_or(NOT_LOG);
        began != NOT_LOG && began <= sequence
    }

    /// A block of the log is about to be erased: pointers into it lead nowhere from here on.
    pub(super) fn retire(&mut self) {
        self.retired += 1;
    }

    /// How many blocks of the log were about to be erased by now.
    pub(super) fn retired(&self) -> u64 {
        self.retired
    }

    /// A block with these pages is erased: the buckets that have lost beginnings there. Whoever goes through
    /// those has to begin anew, or passes one over.
    #[must_use]
    pub(super) fn erased(&mut self, block: BlockId, first: u32, pages: u32) -> Vec<u32> {
        if let Some(life) = self.lives.get_mut(block.0 as usize) {
            *life = NOT_LOG;
        }
        while let Some(&page) = self.scars.range(first..first + pages).next() {
            self.scars.remove(&page);
        }
        // Whoever has put a bucket in pieces meanwhile may have met what was dead there.
        let mut changed = Vec::new();
        self.older.retain(|&bucket, older| {
            let before = older.len();
            older.retain(|one| !(first..first + pages).contains(&one.page()));
            if older.len() < before {
                changed.push(bucket);
            }
            !older.is_empty()
        });
        changed
    }

    /// A record is the newest of its bucket now.
    pub(super) fn link(&mut self, bucket: u32, page: u32, at: Timestamp) {
        debug_assert!(page != NO_PAGE);
        self.begin_in(bucket, page);
        self.put(bucket, at);
    }

    /// A version of a key of a bucket was put.
    pub(super) fn put(&mut self, bucket: u32, at: Timestamp) {
        self.clock += 1;
        let group = &mut self.groups[bucket as usize >> GROUP_BITS];
        group.linked = self.clock;
        group.youngest = group.youngest.max(at);
    }

    /// The hashes of the keys of a bucket.
    pub(super) fn hashes(&self, bucket: u32) -> core::ops::RangeInclusive<u64> {
        let first = u64::from(bucket) << (64 - self.bits);
        first..=first + (u64::MAX >> self.bits)
    }

    /// A bucket's chain was rewritten: it begins in `page` now.
    pub(super) fn rewritten(&mut self, bucket: u32, page: u32) {
        self.begin_in(bucket, page);
        self.forget_detours(bucket);
        self.older.remove(&bucket);
        debug_assert!(self.older(bucket).is_empty(), "it is in one piece");
    }

    /// Copies of a bucket's records were put in front: it begins in `page` now. Beginnings among `gone`
    /// pages have been copied.
    pub(super) fn moved(&mut self, bucket: u32, page: u32, gone: core::ops::Range<u32>) {
        if self.head(bucket) != page {
            self.add_detours(bucket, 1);
        }
        self.begin_in(bucket, page);
        if let Some(older) = self.older.get_mut(&bucket) {
            older.retain(|one| !gone.contains(&one.page()));
            if older.is_empty() {
                self.older.remove(&bucket);
            }
        }
    }

    /// Copies of what could not be programmed were put in front: a bucket begins in `page` now, and goes
    /// on at `behind`.
    pub(super) fn displaced(&mut self, bucket: u32, page: u32, behind: &[RecordPlace]) {
        self.begin_in(bucket, page);
        let older = self.older.entry(bucket).or_default();
        let behind: Vec<Beginning> = behind.iter().copied().map(Beginning::Chain).collect();
        let known = core::mem::take(older);
        let known = known.into_iter().filter(|one| !behind.contains(one));
        *older = behind.iter().copied().chain(known).collect();
        if older.is_empty() {
            self.older.remove(&bucket);
        }
    }

    /// All heads, for a checkpoint.
    pub(super) fn heads(&self) -> impl Iterator<Item = u32> + '_ {
        self.heads.iter()
    }

    /// The first bucket of each group of a checkpoint: it tells the youngest timestamp of each.
    pub(super) fn saved_groups(&self) -> impl Iterator<Item = u32> + use<> {
        (0..self.count()).step_by(1 << SAVED_GROUP_BITS)
    }

    /// Whether a page may be a head.
    pub(super) fn may_begin_in(&self, page: u32) -> bool {
        self.heads.has_room_for(page)
    }

    /// Recovery knows where a chain begins, and where its pieces do.
    pub(super) fn restore(&mut self, bucket: u32, head: u32, older: Vec<Beginning>) {
        self.begin_in(bucket, head);
        if older.is_empty() {
            self.older.remove(&bucket);
        } else {
            self.older.insert(bucket, older);
        }
    }

    /// Something of a bucket's group lies at `at`, and nothing of it above that and what is known already.
    pub(super) fn raise_youngest(&mut self, bucket: u32, at: Timestamp) {
        let group = &mut self.groups[bucket as usize >> GROUP_BITS];
        group.youngest = group.youngest.max(at);
    }

    /// At or above everything that was ever linked in a bucket.
    pub(super) fn youngest(&self, bucket: u32) -> Timestamp {
        self.groups[bucket as usize >> GROUP_BITS].youngest
    }

    /// What is linked from now on is linked after this.
    pub(super) fn now(&self) -> u64 {
        self.clock
    }

    /// What was linked last is the head of a value that was staged.
    pub(super) fn linked_large(&mut self) {
        self.large_linked = self.clock;
    }

    /// Whether a value that was staged then may have been linked in a bucket since.
    pub(super) fn was_large_linked_after(&self, bucket: u32, then: u64) -> bool {
        self.large_linked > then && self.was_linked_after(bucket, then)
    }

    /// Whether something may have been linked in a bucket after `then`.
    pub(super) fn was_linked_after(&self, bucket: u32, then: u64) -> bool {
        self.groups[bucket as usize >> GROUP_BITS].linked > then
    }
}

/// The bucket of a key among `2^bits`: buckets are in the order of hashes.
pub(super) fn bucket_of(hash: KeyHash, bits: u8) -> u32 {
    debug_assert!(BITS.contains(&bits));
    (hash.0 >> (64 - bits)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_buckets_as_keys_ask_for() {
        assert_eq!([0, 9, 11, 1_000_000].map(|keys| Buckets::bits_for(keys, 5)), [1, 1, 2, 18]);
    }

    #[test]
    fn buckets_are_in_the_order_of_hashes() {
        let buckets = Buckets::new(8, 100);
        let hash = KeyHash(0xabcd << 48);
        assert_eq!(buckets.of(hash), 0xab);
        assert!(buckets.of(KeyHash(hash.0 - (1 << 63))) < 0xab && buckets.count() == 256);
    }

    #[test]
    fn a_group_knows_the_youngest_and_when_something_was_linked() {
        let mut buckets = Buckets::new(12, 100);
        let then = buckets.now();
        buckets.link(3, 77, Timestamp::from_nanos(5));
        assert_eq!((buckets.head(3), buckets.youngest(4)), (77, Timestamp::from_nanos(5)));
        assert!(buckets.was_linked_after(255, then) && !buckets.was_linked_after(256, then));
    }
}
