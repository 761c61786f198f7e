//! The index of one keyspace: from keys to the flash pages of their versions (SEMEL §3.1 "Mapping
//! table").
//!
//! ```text
//!   KeyHash ─top 10 bits─► segment ─tag, check─► head (youngest version)
//!                                   └─► [dead count] ─► version ─► version …  (descending)
//! ```
//!
//! **Identity.** Keys are not stored: a key is known by its keyspace, 42 bits of its [`KeyHash`](timestone_types::KeyHash)
//! (segment and tag) and a 32-bit `check` from a second, independently seeded hash of its bytes.
//! Collection trusts these 74 bits (two of 100 million keys agree with probability 3 × 10⁻⁷ in a
//! store's life, and nobody outside knows the seeds); reads compare the full key anyway, and go on
//! down the chain when it is another's.
//!
//! **Dead records.** A record is dead when a younger version of its key lies at or below the
//! watermark. Its node is then freed, but its bytes stay on flash until its block is erased, and a
//! full scan after a crash would find them: harmless below a living version, a resurrection once a
//! tombstone above it has gone. So each key has a *dead count*, a node right behind the head: the
//! collector counts down when the block is erased, and drops a tombstone only when nothing is below
//! it and no dead record is left. The count may be too high after a recovery from a checkpoint (a
//! tombstone stays longer), never too low.
//!
//! Invariants: a chain descends (equal versions only as copies of one record that a crash during
//! collection left); `live_heads + expiring_heads` = heads that are no tombstones; a dead count,
//! where there is one, is the node behind the head and counts at least 1.

mod ahead;
mod chain;
mod dead;
mod location;
mod orphans;
mod pool;
mod segment;
mod walked;

use timestone_types::{Timestamp, Version, is_planted};

use dead::Counted;
use orphans::Orphans;
use pool::{Link, Node, Pool};
use segment::{Growth, Head, Segment};
use walked::Walked;

pub(crate) use self::ahead::{Ahead, NODES_OF_DEAD, NODES_OF_PUT, NODES_OF_RECORD};
pub(crate) use self::chain::Chain;
pub(crate) use self::location::Location;
pub(crate) use crate::kit::key_id::KeyId;

/// How many parts an index is cut into.
pub(crate) const SEGMENTS: usize = 1024;
/// A put looks at this many further versions for dead ones; once in [`LONG_WALK_EVERY`] puts it
/// looks at all, unless the watermark stands where it stood when it did so last.
const SHORT_WALK: usize = 2;
/// See [`SHORT_WALK`]: keeps puts to one very hot key from walking its whole chain each time.
const LONG_WALK_EVERY: u64 = 32;
/// Where a put would go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spot {
    /// The key is new.
    NewKey,
    /// The version is younger than the key's youngest, which is in this slot.
    Youngest(usize),
    /// There are younger versions; the slot of the key.
    Between(usize),
    /// The version is there already.
    Exists,
}

/// What collection may do with a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Assessment {
    /// Somebody may read it, or it hides something: it must be moved.
    Keep,
    /// Nobody needs it; its key's dead count includes it until its block is erased.
    Dead,
    /// Nobody needs it, and nothing counts it.
    Untracked,
    /// It was a tombstone (or expired) above nothing at all: its key has left the index.
    DroppedTombstone,
}

/// A record that recovery found to be superseded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Superseded {
    pub(crate) version: Version,
    pub(crate) location: Location,
    /// The time of its key's youngest version.
    pub(crate) by: Timestamp,
}

/// What a chain knows of a record that is not its head.
enum Older {
    /// Some reader may want it.
    Needed,
    /// A younger version, or a copy, lies at or below the watermark: the node, and the one before
    /// it.
    Unneeded {
        previous: Link,
        at: Link,
    },
    /// It is one of those below the youngest version at or below the watermark, of which nobody needs
    /// any: they begin with the node `first`, and `cover` is the node of that version, or none when that
    /// is the head.
    Pruned {
        cover: Link,
        first: Link,
    },
    /// The index names a copy of the record elsewhere: it was moved, and this one was counted then.
    Twin,
    Unknown,
}

/// The index of one keyspace.
#[derive(Debug)]
pub(crate) struct Index {
    segments: Vec<Segment>,
    growth: Growth,
    pool: Pool,
    keys: u64,
    further: u64,
    dead: u64,
    live_heads: u64,
    expiring_heads: u64,
    walked: Walked,
    /// Tombstones that hide nothing any more, for whoever asks next.
    bare: Vec<(KeyId, Version, Location)>,
    /// Dead records of keys that have no version now.
    orphans: Orphans,
}

impl Index {
    /// No keys, no memory.
    pub(crate) fn new() -> Self {
        Self {
            segments: Vec::new(),
            growth: Growth::Tight,
            pool: Pool::new(),
            keys: 0,
            further: 0,
            dead: 0,
            live_heads: 0,
            expiring_heads: 0,
            walked: Walked::default(),
            bare: Vec::new(),
            orphans: Orphans::default(),
        }
    }

    /// The same, for everything that a log has: tables have more room until [`Self::end_recovery`],
    /// or [`Self::grow_tightly`] where memory is scarce.
    pub(crate) fn roomy() -> Self {
        Self { growth: Growth::Roomy, ..Self::new() }
    }

    /// Bytes that it takes at most while tables have more room.
    pub(crate) fn roomy_bytes(&self) -> u64 {
        self.keys * segment::ROOMY_KEY_BYTES + self.further * size_of::<Node>() as u64
    }

    /// From now on tables grow a little at a time.
    pub(crate) fn grow_tightly(&mut self) {
        self.growth = Growth::Tight;
    }

    /// The log was read: tables are as large as they have to be, and grow a little at a time.
    pub(crate) fn end_recovery(&mut self) {
        self.grow_tightly();
        self.segments.iter_mut().for_each(Segment::trim);
        self.assert_sound();
    }

    /// Keys, tombstones included.
    pub(crate) fn keys(&self) -> u64 {
        self.keys
    }

    /// Versions in all.
    pub(crate) fn versions(&self) -> u64 {
        self.keys + self.further
    }

    /// Dead records of all keys, as their dead counts say.
    pub(crate) fn dead(&self) -> u64 {
        self.dead
    }

    /// Keys whose youngest version is neither a tombstone nor may expire.
    pub(crate) fn live_heads(&self) -> u64 {
        self.live_heads
    }

    /// Keys whose youngest version may expire.
    pub(crate) fn expiring_heads(&self) -> u64 {
        self.expiring_heads
    }

    /// Bytes of memory, all in.
    pub(crate) fn bytes(&self) -> u64 {
        let tables: u64 = self.segments.iter().map(Segment::bytes).sum();
        let beside = self.segments.capacity() * size_of::<Segment>() + self.walked.bytes();
        tables + beside as u64 + self.pool.bytes() + self.orphans.bytes()
    }

    #[inline]
    fn slot(&self, id: KeyId) -> Option<usize> {
        self.segments.get(id.segment as usize)?.find(id.tag, id.check)
    }

    #[inline]
    fn head(&self, id: KeyId, slot: usize) -> &Head {
        self.segments[id.segment as usize].head(slot)
    }

    fn head_mut(&mut self, id: KeyId, slot: usize) -> &mut Head {
        self.segments[id.segment as usize].head_mut(slot)
    }

    /// The youngest version of a key.
    #[inline]
    pub(crate) fn latest(&self, id: KeyId) -> Option<(Version, Location)> {
        let head = self.head(id, self.slot(id)?);
        Some((head.version(), head.location))
    }

    /// The versions of a key, youngest first.
    pub(crate) fn chain(&self, id: KeyId) -> Chain<'_> {
        match self.slot(id) {
            Some(slot) => self.chain_of(self.head(id, slot)),
            None => Chain { pool: &self.pool, first: None, next: Link::NONE },
        }
    }

    fn chain_of<'a>(&'a self, head: &Head) -> Chain<'a> {
        Chain { pool: &self.pool, first: Some((head.version(), head.location)), next: head.older }
    }

    /// Where a version would go.
    pub(crate) fn probe(&self, id: KeyId, version: Version) -> Spot {
        let Some(slot) = self.slot(id) else { return Spot::NewKey };
        let head = self.head(id, slot);
        if version > head.version() {
            return Spot::Youngest(slot);
        }
        match self.chain_of(head).find(|&(found, _)| found <= version) {
            Some((found, _)) if found == version => Spot::Exists,
            _ => Spot::Between(slot),
        }
    }

    /// The version that one would supersede as its key's youngest, where [`Self::probe`] said.
    #[inline]
    pub(crate) fn superseded_by(&self, id: KeyId, spot: Spot) -> Option<Version> {
        match spot {
            Spot::Youngest(slot) => Some(self.head(id, slot).version()),
            Spot::NewKey | Spot::Between(_) | Spot::Exists => None,
        }
    }

    /// What holds between changes.
    #[inline]
    fn assert_sound(&self) {
        debug_assert!(self.live_heads <= self.keys, "a key has one head");
        debug_assert!(self.expiring_heads <= self.keys, "a key has one head");
    }

    /// Adds a version where [`Self::probe`] said; the index must not have changed since. Returns
    /// the version that it supersedes as the youngest, if any.
    pub(crate) fn put(
        &mut self,
        id: KeyId,
        spot: Spot,
        version: Version,
        location: Location,
        watermark: Timestamp,
    ) -> Option<(Version, Location)> {
        self.assert_sound();
        match spot {
            Spot::NewKey => {
                if self.segments.is_empty() {
                    self.segments = core::iter::repeat_with(Segment::new).take(SEGMENTS).collect();
                }
                self.segments[id.segment as usize].insert(
                    id.tag,
                    Head::new(id.check, version, location),
                    self.growth,
                );
                self.keys += 1;
                self.count_head(location, true);
                self.adopt(id);
                None
            }
            Spot::Youngest(slot) => {
                let head = *self.head(id, slot);
                self.further += 1;
                self.count_head(head.location, false);
                self.count_head(location, true);
                // The dead count stays behind the head.
                let older = if head.older != Link::NONE && self.pool.get(head.older).is_dead_count()
                {
                    let next = self.pool.get(head.older).next;
                    let demoted =
                        self.pool.add(Node::version_at(head.version(), head.location, next));
                    self.pool.get_mut(head.older).next = demoted;
                    head.older
                } else {
                    self.pool.add(Node::version_at(head.version(), head.location, head.older))
                };
                let entry = self.head_mut(id, slot);
                entry.set_version(version);
                entry.location = location;
                entry.older = older;
                self.prune(id, slot, watermark, version.timestamp.as_nanos());
                Some((head.version(), head.location))
            }
            Spot::Between(slot) => {
                self.insert_below(id, slot, version, location);
                None
            }
            Spot::Exists => unreachable!("a version that exists is not put again"),
        }
    }

    /// Adds a record that recovery found, also when it is a copy of one that is known. Returns what
    /// is superseded by that: an older version or the record itself.
    pub(crate) fn put_found(
        &mut self,
        id: KeyId,
        version: Version,
        location: Location,
    ) -> Option<Superseded> {
        self.assert_sound();
        let (slot, superseded) = match self.probe(id, version) {
            Spot::Exists => {
                if self
                    .chain(id)
                    .any(|(found, place)| found == version && place.page() == location.page())
                {
                    return None;
                }
                // The copy that was just seen takes the first place: one that only a checkpoint
                // knows may be void (a large value that was moved since).
                let slot = self.slot(id)?;
                let (_, known) = self.chain(id).find(|&(found, _)| found == version)?;
                self.moved(id, version, known.page(), location);
                self.insert_below(id, slot, version, known);
                (slot, (version, known))
            }
            Spot::Between(slot) => {
                self.insert_below(id, slot, version, location);
                (slot, (version, location))
            }
            Spot::NewKey => {
                self.put(id, Spot::NewKey, version, location, Timestamp::ZERO);
                return None;
            }
            Spot::Youngest(slot) => {
                let spot = Spot::Youngest(slot);
                (slot, self.put(id, spot, version, location, Timestamp::ZERO)?)
            }
        };
        let by = self.head(id, slot).version().timestamp;
        let (version, location) = superseded;
        Some(Superseded { version, location, by })
    }

    /// Inserts a version that is not younger than the head, behind everything that is at least as
    /// young.
    fn insert_below(&mut self, id: KeyId, slot: usize, version: Version, location: Location) {
        self.assert_sound();
        self.further += 1;
        let head = *self.head(id, slot);
        if let Some(dead_count) = self.dead_count_of(&head)
            && version.timestamp < self.pool.get(dead_count).pruned_below()
        {
            // A late version among the pruned: the chain has to be walked again to know.
            self.pool.get_mut(dead_count).set_pruned_below(Timestamp::ZERO);
        }
        let first = head.older;
        let mut previous = Link::NONE;
        let mut next = first;
        while next != Link::NONE {
            let node = self.pool.get(next);
            if !node.is_dead_count() && node.version() < version {
                break;
            }
            previous = next;
            next = node.next;
        }
        let link = self.pool.add(Node::version_at(version, location, next));
        if previous == Link::NONE {
            self.head_mut(id, slot).older = link;
        } else {
            self.pool.get_mut(previous).next = link;
        }
    }

    fn count_head(&mut self, location: Location, add: bool) {
        if location.tombstone() {
            return;
        }
        let counter =
            if location.may_expire() { &mut self.expiring_heads } else { &mut self.live_heads };
        assert!(add || *counter > 0, "a head that goes was counted");
        if add { *counter += 1 } else { *counter -= 1 }
    }

    /// Frees the nodes of dead versions and adds them to the dead count.
    fn prune(&mut self, id: KeyId, slot: usize, watermark: Timestamp, dice: u64) {
        self.assert_sound();
        if is_planted!(DeadVersions) {
            return;
        }
        let head = *self.head(id, slot);
        // Nanosecond timestamps are even in their low bits: mix before drawing.
        let long = dice.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & (LONG_WALK_EVERY - 1) == 0;
        if head.version().timestamp <= watermark {
            let after = if head.older != Link::NONE && self.pool.get(head.older).is_dead_count() {
                self.pool.get(head.older).next
            } else {
                head.older
            };
            self.prune_rest(id, slot, Link::NONE, after);
            return;
        }
        let walk = if long && self.is_worth_a_walk(id, &head, watermark) {
            usize::MAX
        } else {
            SHORT_WALK
        };
        let mut at = head.older;
        for _ in 0..walk {
            if at == Link::NONE {
                return;
            }
            let node = *self.pool.get(at);
            if !node.is_dead_count() && node.version().timestamp <= watermark {
                self.prune_rest(id, slot, at, node.next);
                return;
            }
            at = node.next;
        }
    }

    /// Whether a walk over the whole chain of a key may find enough.
    fn is_worth_a_walk(&mut self, id: KeyId, head: &Head, watermark: Timestamp) -> bool {
        let pruned_below = self.dead_count_of(head).map(|link| self.pool.get(link).pruned_below());
        let pruned_below = pruned_below.unwrap_or(Timestamp::ZERO);
        let (youngest, walked) = (head.version().timestamp, &mut self.walked);
        walked::finds_enough(pruned_below, watermark, youngest)
            && walked.is_worth_one(id, watermark)
    }

    /// Prunes the rest of a chain from `first` on; `keep_last` is the node before it, or none when
    /// that is the head (or its dead count).
    fn prune_rest(&mut self, id: KeyId, slot: usize, keep_last: Link, first: Link) {
        let mut count = 0;
        let mut at = first;
        while at != Link::NONE {
            let next = self.pool.get(at).next;
            self.pool.remove(at);
            count += 1;
            at = next;
        }
        if count == 0 {
            return;
        }
        let older = self.head(id, slot).older;
        if keep_last != Link::NONE {
            self.pool.get_mut(keep_last).next = Link::NONE;
        } else if older == first {
            self.head_mut(id, slot).older = Link::NONE;
        } else {
            self.pool.get_mut(older).next = Link::NONE;
        }
        assert!(self.further >= u64::from(count), "further versions are counted");
        self.further -= u64::from(count);
        self.count_dead(id, slot, count, Counted::Pruned);
        let head = *self.head(id, slot);
        let oldest = if keep_last == Link::NONE {
            head.version()
        } else {
            self.pool.get(keep_last).version()
        };
        if let Some(dead_count) = self.dead_count_of(&head) {
            self.pool.get_mut(dead_count).set_pruned_below(oldest.timestamp);
        }
    }

    /// Decides what collection does with the record of `version` in `page`. `droppable`: a
    /// tombstone (or a record that has expired for every reader) that no older write will follow
    /// any more. A version that is dead takes all of its key with it that are dead by now: collection
    /// meets those as well, and would walk down to each.
    pub(crate) fn assess(
        &mut self,
        id: KeyId,
        version: Version,
        page: u32,
        watermark: Timestamp,
        droppable: bool,
    ) -> Assessment {
        let Some(slot) = self.slot(id) else {
            let is_counted = self.orphans.has(id);
            return if is_counted { Assessment::Dead } else { Assessment::Untracked };
        };
        let head = *self.head(id, slot);
        let dead_count = self.dead_count_of(&head);
        let untracked = if dead_count.is_some() { Assessment::Dead } else { Assessment::Untracked };
        // The chains of hot keys are long and most of their records were pruned long ago: no walk
        // for those.
        if dead_count.is_some_and(|link| version.timestamp < self.pool.get(link).pruned_below()) {
            return Assessment::Dead;
        }
        if head.version() == version && head.location.page() == page {
            if head.location.tombstone() && is_planted!(EarlyTombstone) {
                self.remove_key(id, slot);
                return Assessment::DroppedTombstone;
            }
            if droppable && version.timestamp <= watermark && head.older == Link::NONE {
                self.remove_key(id, slot);
                return Assessment::DroppedTombstone;
            }
            return Assessment::Keep;
        }
        if version > head.version() {
            return untracked;
        }
        match self.find_older(&head, version, page, watermark) {
            Older::Needed => Assessment::Keep,
            Older::Pruned { cover, first } => {
                self.prune_rest(id, slot, cover, first);
                Assessment::Dead
            }
            Older::Unneeded { previous, at } => {
                let next = self.pool.get(at).next;
                if previous == Link::NONE {
                    self.head_mut(id, slot).older = next;
                } else {
                    self.pool.get_mut(previous).next = next;
                }
                self.pool.remove(at);
                assert!(self.further > 0, "further versions are counted");
                self.further -= 1;
                self.count_dead(id, slot, 1, Counted::Others);
                Assessment::Dead
            }
            Older::Twin | Older::Unknown => untracked,
        }
    }

    /// Looks for a version that is not the head itself, in a chain.
    fn find_older(&self, head: &Head, version: Version, page: u32, watermark: Timestamp) -> Older {
        // Behind which node everything is dead: a younger version lies at or below the watermark.
        let mut cover = (head.version().timestamp <= watermark).then_some(Link::NONE);
        let mut twin = head.version() == version;
        let mut previous = Link::NONE;
        let mut at = head.older;
        while at != Link::NONE {
            let node = self.pool.get(at);
            if !node.is_dead_count() {
                let found = node.version();
                if found < version {
                    break;
                }
                if found == version && node.location().page() == page {
                    return match cover {
                        Some(cover) => {
                            Older::Pruned { cover, first: self.first_behind(head, cover) }
                        }
                        None if twin => Older::Unneeded { previous, at },
                        None => Older::Needed,
                    };
                }
                twin |= found == version;
                if cover.is_none() && found.timestamp <= watermark {
                    cover = Some(at);
                }
            }
            previous = at;
            at = node.next;
        }
        if twin { Older::Twin } else { Older::Unknown }
    }

    /// The first version behind a node, or behind the head.
    fn first_behind(&self, head: &Head, node: Link) -> Link {
        match (node, self.dead_count_of(head)) {
            (Link::NONE, Some(dead_count)) => self.pool.get(dead_count).next,
            (Link::NONE, None) => head.older,
            (node, _) => self.pool.get(node).next,
        }
    }

    /// Where a version is that somebody at or above the watermark may still read.
    pub(crate) fn needed(
        &self,
        id: KeyId,
        version: Version,
        watermark: Timestamp,
    ) -> Option<Location> {
        for (found, place) in self.chain(id) {
            if found == version {
                return Some(place);
            }
            if found < version || found.timestamp <= watermark {
                return None;
            }
        }
        None
    }

    fn remove_key(&mut self, id: KeyId, slot: usize) {
        let head = *self.head(id, slot);
        self.count_head(head.location, false);
        self.segments[id.segment as usize].remove(slot);
        assert!(self.keys > 0, "a key that goes was counted");
        self.keys -= 1;
    }

    /// The record of `version` has moved from one page to another. False when the index does not
    /// name it there (any more).
    pub(crate) fn moved(&mut self, id: KeyId, version: Version, from: u32, to: Location) -> bool {
        self.assert_sound();
        let Some(slot) = self.slot(id) else { return false };
        let head = *self.head(id, slot);
        if head.version() == version && head.location.page() == from {
            self.count_head(head.location, false);
            self.count_head(to, true);
            self.head_mut(id, slot).location = to;
            return true;
        }
        let mut at = head.older;
        while at != Link::NONE {
            let node = self.pool.get_mut(at);
            if !node.is_dead_count() && node.version() == version && node.location().page() == from
            {
                node.set_location(to);
                return true;
            }
            at = node.next;
        }
        false
    }

    /// Removes a version at a page, without counting it: nothing that a scan finds there will be
    /// taken for it.
    /// Whether it was there.
    pub(crate) fn forget(&mut self, id: KeyId, version: Version, page: u32) -> bool {
        self.assert_sound();
        let Some(slot) = self.slot(id) else { return false };
        if !self.chain(id).any(|(found, place)| found == version && place.page() == page) {
            return false;
        }
        let head = *self.head(id, slot);
        let survivors: Vec<_> = self
            .chain_of(&head)
            .filter(|&(found, place)| !(found == version && place.page() == page))
            .collect();
        let dead = self.dead_count_of(&head).map_or(0, |link| self.pool.get(link).dead());
        self.drop_chain(id, slot);
        self.install(id, &survivors, (dead, Counted::Others));
        if head.version() != version {
            self.note_bare(id);
        }
        true
    }

    fn drop_chain(&mut self, id: KeyId, slot: usize) {
        self.assert_sound();
        let mut at = self.head(id, slot).older;
        while at != Link::NONE {
            let node = *self.pool.get(at);
            if node.is_dead_count() {
                self.dead -= u64::from(node.dead());
            } else {
                self.further -= 1;
            }
            self.pool.remove(at);
            at = node.next;
        }
        self.remove_key(id, slot);
    }

    /// So many keys are about to be installed in a segment: an empty one gets its table at once.
    pub(crate) fn expect_keys(&mut self, segment: u16, keys: u32) {
        // A table that is grown anyway gains nothing, and a damaged checkpoint must not ask for the
        // moon.
        const MOST: u32 = 1 << 22;
        if self.segments.is_empty() {
            self.segments = core::iter::repeat_with(Segment::new).take(SEGMENTS).collect();
        }
        let table = &mut self.segments[segment as usize];
        if table.len() == 0 {
            table.reserve(keys.min(MOST));
        }
        debug_assert_eq!(self.segments.len(), SEGMENTS, "a segment for each number");
    }

    /// Installs a chain (youngest first) of a key that is not there, as a checkpoint has it. Without a version its
    /// dead records wait for one.
    pub(crate) fn restore(&mut self, id: KeyId, versions: &[(Version, Location)], dead: u32) {
        if versions.is_empty() {
            self.orphans.add(id, dead);
        }
        self.install(id, versions, (dead, Counted::Others));
    }

    /// Installs a chain (youngest first) of a key that is not there.
    fn install(
        &mut self,
        id: KeyId,
        versions: &[(Version, Location)],
        (dead, what): (u32, Counted),
    ) {
        self.assert_sound();
        let Some((&(version, location), further)) = versions.split_first() else { return };
        self.put(id, Spot::NewKey, version, location, Timestamp::ZERO);
        let mut older = Link::NONE;
        for &(version, location) in further.iter().rev() {
            older = self.pool.add(Node::version_at(version, location, older));
        }
        self.further += further.len() as u64;
        let Some(slot) = self.slot(id) else { return };
        self.head_mut(id, slot).older = older;
        if dead > 0 {
            self.count_dead(id, slot, dead, what);
        }
    }

    /// The keys of one segment from `tag` on, in the order of tags, with their chains and dead
    /// counts.
    pub(crate) fn keys_from(
        &self,
        segment: u16,
        tag: u32,
    ) -> impl Iterator<Item = (KeyId, Chain<'_>, u32)> + '_ {
        self.segments.get(segment as usize).into_iter().flat_map(move |table| {
            table.in_order(tag).map(move |at| {
                let head = table.head(at);
                let id = KeyId { segment, tag: table.tag(at), check: head.check };
                let dead = self.dead_count_of(head).map_or(0, |link| self.pool.get(link).dead());
                (id, self.chain_of(head), dead)
            })
        })
    }

    /// Keys of one segment.
    pub(crate) fn keys_in(&self, segment: u16) -> u32 {
        self.segments.get(segment as usize).map_or(0, Segment::len)
    }
}

#[cfg(test)]
mod tests;
