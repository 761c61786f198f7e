//! One of the 1024 parts of a keyspace's index: a table of keys, open-addressed, ordered by tag.
//!
//! ```text
//!   tags   │ 7 │ 9 │   │ 31│ 31│ 40│   │ …   4 B each, 0 = empty; home = tag × capacity / 2^32
//!   heads  │ A │ B │   │ C │ D │ E │   │ …   24 B each: check, youngest version, its page, a link
//! ```
//!
//! Linear probing with Robin Hood order: along the (circular) table homes never decrease, and equal
//! homes are ordered by tag. So a search stops as soon as it passes where the tag would be, at any
//! load; keys come in the order of their tags; and the table can be kept 88 to 94 % full, growing
//! by a twentieth at a time: at most 28 B ÷ 0.893 = 31.4 B a key. Tags lie apart from heads so that
//! a probe of ten slots touches one cache line.
//!
//! Invariants: at least one slot is empty (when there is any); two entries never agree in tag and
//! check.

use timestone_io::{prefetch, prefetch_lines};
use timestone_types::{ClientId, Timestamp, Version, is_planted};

use super::Location;
use super::pool::Link;

/// Tags in a line of the processor's cache.
const TAGS_OF_LINE: usize = 16;

/// Entries that a new one most often goes among, or moves.
const HEADS_OF_PLACE: usize = 8;

/// Tags that a search compares at once.
const TAGS_AT_ONCE: usize = 8;

/// When a table is full, and by how much it grows then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Growth {
    /// At fifteen sixteenths, by a twentieth: little memory is unused.
    Tight,
    /// At seven eighths, by a quarter, while a log is read: entries are moved four times on the way,
    /// not twenty times. And a new entry moves all up to the next gap: that is up to 30 entries away,
    /// not 130.
    Roomy,
}

/// Bytes that a key of a large table takes at most if that grows roomily: 28 ÷ (7/8 ÷ 1.25).
pub(crate) const ROOMY_KEY_BYTES: u64 = 40;

/// The youngest version of a key, and the way to the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    timestamp: u64,
    client: u32,
    pub(crate) check: u32,
    pub(crate) location: Location,
    pub(crate) older: Link,
}

const _: () = assert!(size_of::<Head>() == 24, "an entry is 24 bytes beside its tag");

impl Head {
    const EMPTY: Self = Self {
        timestamp: 0,
        client: 0,
        check: 0,
        location: Location::DEAD_COUNT,
        older: Link::NONE,
    };

    /// Whether its block takes the record for alive: a tombstone that hides nothing counts as dead.
    pub(super) fn counts_as_alive(&self) -> bool {
        let is_bare = self.location.tombstone() && self.older == Link::NONE;
        !is_bare || is_planted!(CountsBareAgain)
    }

    /// A key with one version.
    pub(crate) fn new(check: u32, version: Version, location: Location) -> Self {
        let mut head = Self { check, location, ..Self::EMPTY };
        head.set_version(version);
        head
    }

    /// The youngest version.
    pub(crate) fn version(&self) -> Version {
        Version::new(Timestamp::from_nanos(self.timestamp), ClientId::new(self.client))
    }

    /// Changes the youngest version.
    pub(crate) fn set_version(&mut self, version: Version) {
        self.timestamp = version.timestamp.as_nanos();
        self.client = version.client.get();
        debug_assert_eq!(self.version(), version, "it reads back as it was");
    }
}

/// The table. An empty one has no memory.
#[derive(Debug)]
pub(crate) struct Segment {
    tags: Box<[u32]>,
    heads: Box<[Head]>,
    len: u32,
}

impl Segment {
    /// No keys, no memory.
    pub(crate) fn new() -> Self {
        Self { tags: Box::default(), heads: Box::default(), len: 0 }
    }

    /// Keys in it.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Bytes of memory beside the struct itself, with what the allocator adds.
    pub(crate) fn bytes(&self) -> u64 {
        if self.tags.is_empty() {
            0
        } else {
            (self.tags.len() * (4 + size_of::<Head>()) + 32) as u64
        }
    }

    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.tags.len() as u64) >> 32) as usize
    }

    fn step(&self, at: usize) -> usize {
        if at + 1 == self.tags.len() { 0 } else { at + 1 }
    }

    /// How far the entry with `tag` at `at` is from its home.
    fn distance(&self, tag: u32, at: usize) -> usize {
        let home = self.home(tag);
        if at >= home { at - home } else { at + self.tags.len() - home }
    }

    /// The slot of a key.
    pub(crate) fn find(&self, tag: u32, check: u32) -> Option<usize> {
        self.probe(tag, |at| self.heads[at].check == check)
    }

    /// The slot of the first key with `tag`, which is almost always the only one.
    pub(crate) fn find_tag(&self, tag: u32) -> Option<usize> {
        self.probe(tag, |_| true)
    }

    /// The first slot with `tag` that is the one.
    #[inline]
    fn probe(&self, tag: u32, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        if self.tags.is_empty() {
            return None;
        }
        let mut at = self.home(tag);
        let mut distance = 0;
        // A few tags with one comparison, as long as they do not pass the end of the table.
        while let Some(tags) = self.tags[at..].first_chunk::<TAGS_AT_ONCE>() {
            let (mut equal, mut empty) = (0u8, false);
            for (lane, &found) in tags.iter().enumerate() {
                equal |= u8::from(found == tag) << lane;
                empty |= found == 0;
            }
            while equal != 0 {
                let slot = at + equal.trailing_zeros() as usize;
                if is_it(slot) {
                    return Some(slot);
                }
                equal &= equal - 1;
            }
            let last = TAGS_AT_ONCE - 1;
            if empty || self.distance(tags[last], at + last) < distance + last {
                return None;
            }
            at += TAGS_AT_ONCE;
            distance += TAGS_AT_ONCE;
        }
        if at == self.tags.len() {
            at = 0;
        }
        loop {
            let found = self.tags[at];
            if found == tag {
                if is_it(at) {
                    return Some(at);
                }
            } else if found == 0 || self.distance(found, at) < distance {
                return None;
            }
            at = self.step(at);
            distance += 1;
        }
    }

    /// Has the tags fetched among which a search for `tag` begins.
    pub(crate) fn prefetch_search(&self, tag: u32) {
        if !self.tags.is_empty() {
            let home = self.home(tag);
            prefetch(&self.tags[home]);
            // Entries lie a few places behind their home.
            prefetch(&self.tags[(home + TAGS_OF_LINE).min(self.tags.len() - 1)]);
        }
    }

    /// Has the entries fetched among which one for a tag that is not there would go.
    pub(crate) fn prefetch_place(&self, tag: u32) {
        if !self.tags.is_empty() {
            let home = self.home(tag);
            let end = (home + HEADS_OF_PLACE).min(self.heads.len());
            prefetch_lines(&self.heads[home..end], HEADS_OF_PLACE);
        }
    }

    /// The entry in a slot.
    pub(crate) fn head(&self, at: usize) -> &Head {
        debug_assert!(self.tags[at] != 0);
        &self.heads[at]
    }

    /// The entry in a slot, to change it.
    pub(crate) fn head_mut(&mut self, at: usize) -> &mut Head {
        debug_assert!(self.tags[at] != 0);
        &mut self.heads[at]
    }

    /// The tag in a slot.
    pub(crate) fn tag(&self, at: usize) -> u32 {
        self.tags[at]
    }

    /// Adds a key that is not there.
    pub(crate) fn insert(&mut self, tag: u32, head: Head, growth: Growth) {
        debug_assert!(tag != 0 && self.find(tag, head.check).is_none());
        let capacity = self.tags.len();
        let full = match growth {
            Growth::Tight => capacity * 15,
            Growth::Roomy => capacity * 14,
        };
        if (self.len as usize + 1) * 16 > full || self.len as usize + 1 >= capacity {
            self.grow(growth);
        }
        self.place(tag, head);
        self.len += 1;
    }

    /// Makes an empty table large enough for so many keys.
    pub(crate) fn reserve(&mut self, keys: u32) {
        debug_assert!(self.len == 0);
        let capacity = capacity_for(keys);
        if self.tags.len() < capacity {
            self.resize(capacity);
        }
    }

    /// Gives back what a roomy growth has left, if that is more than a tight one leaves.
    pub(crate) fn trim(&mut self) {
        if self.tags.len() > self.len as usize + self.len as usize / 8 + 2 {
            self.resize(capacity_for(self.len));
        }
    }

    fn grow(&mut self, growth: Growth) {
        let part = match growth {
            Growth::Tight => 20,
            Growth::Roomy => 4,
        };
        self.resize(self.tags.len() + self.tags.len() / part + 2);
        debug_assert!((self.len as usize) < self.tags.len(), "there is a gap");
    }

    fn resize(&mut self, capacity: usize) {
        assert!(capacity > self.len as usize, "a slot stays empty");
        let mut other = Self {
            tags: vec![0; capacity].into_boxed_slice(),
            heads: vec![Head::EMPTY; capacity].into_boxed_slice(),
            len: self.len,
        };
        // In the order of tags each entry goes right behind the one before it, or to its home; only
        // those that would pass the end of the table need a search.
        let mut next = 0;
        for at in self.in_order(0) {
            let tag = self.tags[at];
            let place = other.home(tag).max(next);
            if place < capacity {
                other.tags[place] = tag;
                other.heads[place] = self.heads[at];
                next = place + 1;
            } else {
                other.place(tag, self.heads[at]);
            }
        }
        *self = other;
    }

    /// Puts an entry where it belongs, moving those behind it by one up to the next gap.
    fn place(&mut self, tag: u32, head: Head) {
        debug_assert!(tag != 0, "zero is no tag");
        let home = self.home(tag);
        let mut at = home;
        let mut distance = 0;
        loop {
            let found = self.tags[at];
            if found == 0 {
                break;
            }
            let theirs = self.distance(found, at);
            if theirs < distance || (theirs == distance && found > tag) {
                self.open(at);
                break;
            }
            at = self.step(at);
            distance += 1;
        }
        self.tags[at] = tag;
        self.heads[at] = head;
    }

    /// Moves the run of entries that begins at `at` by one.
    fn open(&mut self, at: usize) {
        debug_assert!((self.len as usize) < self.tags.len(), "there is a gap");
        let last = self.tags.len() - 1;
        let mut gap = at;
        while self.tags[gap] != 0 {
            gap = self.step(gap);
        }
        if gap < at {
            self.tags.copy_within(0..gap, 1);
            self.heads.copy_within(0..gap, 1);
            self.tags[0] = self.tags[last];
            self.heads[0] = self.heads[last];
            gap = last;
        }
        self.tags.copy_within(at..gap, at + 1);
        self.heads.copy_within(at..gap, at + 1);
    }

    /// Removes the entry in a slot.
    pub(crate) fn remove(&mut self, at: usize) {
        debug_assert!(self.tags[at] != 0);
        let mut hole = at;
        loop {
            let next = self.step(hole);
            let tag = self.tags[next];
            if tag == 0 || self.distance(tag, next) == 0 {
                break;
            }
            self.tags[hole] = tag;
            self.heads[hole] = self.heads[next];
            hole = next;
        }
        self.tags[hole] = 0;
        self.heads[hole] = Head::EMPTY;
        assert!(self.len > 0, "a key that goes was counted");
        self.len -= 1;
    }

    /// The slots of entries whose tag is at least `from`, in the order of tags.
    pub(crate) fn in_order(&self, from: u32) -> impl Iterator<Item = usize> + '_ {
        let capacity = self.tags.len();
        // Entries that were pushed past the end sit at the front: the order begins behind them.
        let wrapped = (0..capacity)
            .take_while(|&at| self.tags[at] != 0 && self.home(self.tags[at]) > at)
            .count();
        let start = self.home(from).max(wrapped);
        (start..capacity)
            .chain(0..wrapped)
            .filter(move |&at| self.tags[at] != 0 && self.tags[at] >= from)
    }
}

/// Slots for so many keys: 92 % of them are used.
const fn capacity_for(keys: u32) -> usize {
    keys as usize + keys as usize / 12 + 2
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn head(check: u32) -> Head {
        Head::new(
            check,
            Version::new(Timestamp::from_nanos(u64::from(check)), ClientId::ZERO),
            Location::new(check, false, false),
        )
    }

    proptest! {
        #[test]
        fn behaves_like_an_ordered_map(
            ops in proptest::collection::vec((any::<bool>(), 0u32..40, 0u32..3), 1..400),
            roomy in any::<bool>(),
        ) {
            let growth = if roomy { Growth::Roomy } else { Growth::Tight };
            let mut segment = Segment::new();
            let mut model = BTreeMap::new();
            for (insert, tag, check) in ops {
                // Tags crowd together at both ends of the table, where wrapping happens.
                let tag = if tag < 20 { tag + 1 } else { u32::MAX - 40 + tag };
                match (insert, segment.find(tag, check)) {
                    (true, None) => {
                        segment.insert(tag, head(check), growth);
                        model.insert((tag, check), ());
                    }
                    (false, Some(at)) => {
                        segment.remove(at);
                        model.remove(&(tag, check));
                    }
                    (true, Some(_)) if roomy => segment.trim(),
                    _ => {}
                }
                prop_assert_eq!(segment.len() as usize, model.len());
                for &(tag, check) in model.keys() {
                    let at = segment.find(tag, check).expect("present");
                    prop_assert_eq!(segment.head(at).location.page(), check);
                }
                for from in [0, 10, 21, u32::MAX - 10] {
                    let tags: Vec<u32> = segment.in_order(from).map(|at| segment.tag(at)).collect();
                    let tags_of_model = model.keys().map(|&(tag, _)| tag);
                    let expected: Vec<u32> = tags_of_model.filter(|&tag| tag >= from).collect();
                    prop_assert_eq!(tags, expected);
                }
            }
        }
    }

    #[test]
    fn a_key_costs_at_most_32_bytes_at_any_size() {
        let (mut segment, mut roomy) = (Segment::new(), Segment::new());
        let mut tag = 1u32;
        for n in 1..6000u64 {
            tag = tag.wrapping_mul(0x9e37_79b1).wrapping_add(12345);
            if tag != 0 && segment.find(tag, 0).is_none() {
                segment.insert(tag, head(0), Growth::Tight);
                roomy.insert(tag, head(0), Growth::Roomy);
            }
            assert!(n < 200 || roomy.bytes() <= ROOMY_KEY_BYTES * u64::from(roomy.len()) + 128);
            if n % 1000 == 0 {
                roomy.trim();
                assert!(roomy.bytes() <= 32 * u64::from(roomy.len()));
            }
            if n > 200 {
                let all = segment.bytes() + size_of::<Segment>() as u64;
                assert!(
                    all <= 32 * u64::from(segment.len()),
                    "{all} bytes for {} keys",
                    segment.len()
                );
            }
        }
    }
}
