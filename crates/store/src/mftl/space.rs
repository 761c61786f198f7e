//! Keyspaces: an index each, and the fences that hide what lies at or below them.
//!
//! A fence acts as a tombstone of every key of its keyspace. Once the watermark has passed it, what
//! it hides leaves the index: whole, when nothing was written since, else segment by segment. The
//! youngest fence at or below the watermark is kept for ever (one record a keyspace), because a
//! scan after a crash may find records that it hides.
//!
//! ```text
//!   put, get, collect ─► keyspace ─► fences │ index ─► versions of a key
//!                                       └─ passed by the watermark ─► sweep ─► blocks hear
//!                                                                       └─► heads read: parts
//! ```
//!
//! Hidden dependency that this module made explicit: blocks hear of the parts of large values when their
//! heads have been read, so a sweep goes only so far ahead of these reads; and no block is erased while an
//! index that was dropped names something in it.
//!
//! Invariants: `list` ascends by keyspace; fences of a keyspace ascend by version; a keyspace is
//! swept for a fence only when the collection watermark has passed it.

use timestone_flash::{BlockId, PageId};
use timestone_types::{HashSeed, KeyspaceId, Timestamp, Version, check_key, is_planted};

use super::index::{Index, KeyId, Location, SEGMENTS};
use super::order::{Order, TidyBudget};
use super::reads::PendingReads;
use crate::error::StoreError;
use crate::kit::volume::Volume;
use crate::kit::watermarks::Watermarks;
use crate::layout::{LargeHead, Record};

/// A fence and the page of its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fence {
    pub(crate) version: Version,
    pub(crate) page: u32,
}

/// A sweep waits while so many heads are being read.
const MOST_HEADS_READ: u32 = 256;

/// An index that was dropped whole, and the next segment of which blocks do not know it yet.
struct Dropped {
    keyspace: KeyspaceId,
    index: Index,
    next: u16,
}

/// One keyspace.
pub(crate) struct Space {
    pub(crate) id: KeyspaceId,
    pub(crate) index: Index,
    /// The keys in their order, where the keyspace has one.
    pub(crate) order: Option<Box<Order>>,
    /// Ascending by version.
    pub(crate) fences: Vec<Fence>,
    /// The youngest version ever put.
    pub(crate) youngest: Version,
    /// Rises whenever the index is dropped whole: what was counted in an earlier one is not counted
    /// down in this one.
    pub(crate) epoch: u32,
    /// The fence that the index has been swept for, and the next segment of the sweep that is going
    /// on.
    pub(crate) swept: Version,
    pub(crate) sweep_next: u16,
    /// The fence of the sweep that is going on. A younger one that the watermark has passed meanwhile
    /// gets a sweep of its own: this one has passed segments already.
    sweeping: Version,
}

impl Space {
    fn new(id: KeyspaceId, index: Index) -> Self {
        Self {
            id,
            index,
            order: id.is_ordered().then(|| Box::new(Order::new())),
            fences: Vec::new(),
            youngest: Version::ZERO,
            epoch: 0,
            swept: Version::ZERO,
            sweep_next: 0,
            sweeping: Version::ZERO,
        }
    }

    /// The youngest fence at or before `at`; zero when there is none.
    pub(crate) fn fence_at(&self, at: Timestamp) -> Version {
        self.fences
            .iter()
            .rev()
            .map(|fence| fence.version)
            .find(|version| version.timestamp <= at)
            .unwrap_or(Version::ZERO)
    }

    /// That every key of the keyspace is in its order of which a read at this time may see something.
    pub(super) fn check_order_at(&self, at: Timestamp) -> Result<(), StoreError> {
        let fence = self.fence_at(at);
        self.order.as_ref().map_or(Ok(()), |order| order.check_whole(|version| version > fence))
    }

    /// That every key of the keyspace is in its order that was written after a time.
    pub(super) fn check_order_above(&self, t: Timestamp) -> Result<(), StoreError> {
        let is_above = |version: Version| version.timestamp > t;
        self.order.as_ref().map_or(Ok(()), |order| order.check_whole(is_above))
    }

    /// The youngest fence; zero when there is none.
    #[inline]
    pub(crate) fn latest_fence(&self) -> Version {
        self.fences.last().map_or(Version::ZERO, |fence| fence.version)
    }

    /// The highest timestamp of any version and fence; zero when there is none.
    pub(crate) fn newest(&self) -> Timestamp {
        self.youngest.max(self.latest_fence()).timestamp
    }

    /// Whether a fence of this version is known.
    pub(crate) fn has_fence(&self, version: Version) -> bool {
        self.fences.iter().any(|known| known.version == version)
    }

    /// The record of a fence is in another page now.
    pub(crate) fn fence_moved(&mut self, version: Version, page: u32) {
        debug_assert!(self.has_fence(version));
        for fence in self.fences.iter_mut().filter(|fence| fence.version == version) {
            fence.page = page;
        }
    }

    /// A key has a version of this time. `is_known`: the index had an entry for it before.
    #[inline]
    pub(super) fn note_key(&mut self, id: KeyId, key: &[u8], at: Timestamp, is_known: bool) {
        if let Some(order) = &mut self.order {
            order.note(id, key, at, is_known);
        }
    }

    /// The last version of a key may have left the index; `key` is none where its bytes are not at
    /// hand.
    pub(super) fn key_left(&mut self, id: KeyId, key: Option<&[u8]>) {
        if let (Some(order), Some(key)) = (&mut self.order, key)
            && self.index.latest(id).is_none()
        {
            order.gone(key);
        }
    }

    /// Bytes of memory of the index and of the order of keys.
    pub(super) fn index_bytes(&self) -> u64 {
        self.index.bytes() + self.order_bytes()
    }

    /// Bytes of memory of the order of keys.
    pub(super) fn order_bytes(&self) -> u64 {
        self.order.as_ref().map_or(0, |order| order.bytes())
    }

    /// Adds a fence; false when it is there already.
    pub(crate) fn add_fence(&mut self, fence: Fence) -> bool {
        match self.fences.binary_search_by_key(&fence.version, |known| known.version) {
            Ok(_) => false,
            Err(at) => {
                self.fences.insert(at, fence);
                debug_assert!(self.fences.is_sorted_by_key(|known| known.version));
                true
            }
        }
    }

    /// Forgets fences that a younger one at or below the watermark stands for.
    pub(crate) fn prune_fences(&mut self, watermark: Timestamp) {
        let keep = self.fence_at(watermark);
        self.fences.retain(|fence| fence.version >= keep);
        debug_assert_eq!(self.fence_at(watermark), keep, "the youngest one stays");
    }
}

/// All keyspaces, and indexes that were dropped but whose blocks do not know it yet.
#[derive(Default)]
pub(crate) struct Spaces {
    pub(crate) seed: HashSeed,
    pub(super) marks: Watermarks,
    pub(crate) list: Vec<Space>,
    dropped: Vec<Dropped>,
    /// The whole log is being read, and there is memory for tables with more room than they need.
    has_room: bool,
}

impl Spaces {
    /// For everything that a log has.
    pub(super) fn of_whole_log() -> Self {
        Self { has_room: true, ..Self::default() }
    }

    /// While a whole log is read: tables have more room than they need as long as they fit `bytes` so.
    pub(super) fn bound_growth(&mut self, bytes: u64) {
        let roomy: u64 = self.list.iter().map(|space| space.index.roomy_bytes()).sum();
        if self.has_room && roomy > bytes {
            self.has_room = false;
            self.list.iter_mut().for_each(|space| space.index.grow_tightly());
        }
    }

    /// The log was read.
    pub(super) fn end_recovery(&mut self) {
        self.has_room = false;
        self.list.iter_mut().for_each(|space| space.index.end_recovery());
    }

    /// What a record's key is known by; `head` is that of a large value.
    pub(crate) fn id_of_record(&self, record: &Record<'_>, head: Option<&LargeHead<'_>>) -> KeyId {
        id_of_record(self.seed, record, head)
    }

    /// Whether an index names something in a block; of small stores only, for it looks at everything.
    pub(super) fn name_block(&self, block: BlockId, volume: &Volume) -> bool {
        const MOST: u64 = 1000;
        let is_there = |(_, place): (Version, Location)| {
            place.staged().is_none() && volume.blocks.of(PageId(place.page())) == block
        };
        let names = |space: &Space| {
            (0..SEGMENTS as u16)
                .flat_map(|segment| space.index.keys_from(segment, 0))
                .any(|(_, mut chain, _)| chain.any(is_there))
        };
        self.list.iter().map(|space| space.index.versions()).sum::<u64>() <= MOST
            && self.list.iter().any(names)
    }

    /// Whether a younger version lies at or below the watermark already, so that no reader can want
    /// this one: a log that is replayed brings back what was overwritten or deleted long ago, on a
    /// device that may have no room for it.
    pub(super) fn is_pruned(&self, space: usize, id: KeyId, version: Version) -> bool {
        let chain = self.list[space].index.chain(id);
        let mut younger = chain.take_while(|&(found, _)| found > version);
        younger.any(|(found, _)| found.timestamp <= self.marks.collection())
    }

    /// The highest timestamp of any version and fence.
    pub(super) fn youngest(&self) -> Timestamp {
        self.list.iter().map(Space::newest).max().unwrap_or_default()
    }

    /// Whether [`Self::sweep`] has something to do, once there are few enough reads.
    pub(super) fn has_unswept(&self, reads: &PendingReads) -> bool {
        let collection = self.marks.collection();
        let unswept = |space: &Space| space.fence_at(collection) > space.swept;
        let has_unswept = !self.dropped.is_empty() || self.list.iter().any(unswept);
        has_unswept && reads.dead_parts() < MOST_HEADS_READ
    }

    /// Whether a sweep has begun, and not come to its end.
    pub(super) fn is_sweeping(&self) -> bool {
        !self.dropped.is_empty() || self.list.iter().any(|space| space.sweep_next > 0)
    }

    /// Whether [`Self::tidy_orders`] has something to do.
    pub(super) fn are_untidy(&self) -> bool {
        let untidy =
            |space: &Space| space.order.as_ref().is_some_and(|order| order.has_work(&space.index));
        self.list.iter().any(untidy)
    }

    /// Takes a little of what the indexes do not know any more out of the orders of keys.
    pub(super) fn tidy_orders(&mut self) {
        let (seed, mut budget) = (self.seed, TidyBudget::of_pump());
        for Space { id, index, order, .. } in &mut self.list {
            if let Some(order) = order {
                order.tidy(seed, *id, index, &mut budget);
            }
        }
    }

    /// The position of a keyspace.
    pub(crate) fn find(&self, id: KeyspaceId) -> Option<usize> {
        self.list.binary_search_by_key(&id, |space| space.id).ok()
    }

    /// A keyspace that is there.
    #[inline]
    pub(crate) fn get(&self, id: KeyspaceId) -> Option<&Space> {
        self.find(id).map(|at| &self.list[at])
    }

    /// The index of a keyspace.
    pub(crate) fn index(&self, id: KeyspaceId) -> Option<&Index> {
        self.get(id).map(|space| &space.index)
    }

    /// A keyspace that is there, to change it.
    pub(crate) fn get_mut(&mut self, id: KeyspaceId) -> Option<&mut Space> {
        self.find(id).map(|at| &mut self.list[at])
    }

    /// The position of a keyspace, which is made when it is not there.
    pub(crate) fn ensure(&mut self, id: KeyspaceId) -> usize {
        match self.list.binary_search_by_key(&id, |space| space.id) {
            Ok(at) => at,
            Err(at) => {
                let index = if self.has_room { Index::roomy() } else { Index::new() };
                self.list.insert(at, Space::new(id, index));
                debug_assert!(self.list.is_sorted_by_key(|space| space.id), "found by their ids");
                at
            }
        }
    }

    /// Whether a fence hides keys that still take room: collection wins that room once the
    /// watermark has passed the fence.
    pub(crate) fn are_emptying(&self) -> bool {
        let emptying = |space: &Space| space.latest_fence() > space.swept && space.index.keys() > 0;
        !self.dropped.is_empty() || self.list.iter().any(emptying)
    }

    /// A record that a fence hides is met in a block that is being emptied: no index names it any more. Whether
    /// one did that takes it for alive; if so, nobody has told that its parts are dead.
    pub(super) fn forget_hidden(
        &mut self,
        keyspace: KeyspaceId,
        id: KeyId,
        version: Version,
        page: u32,
    ) -> bool {
        let now = self.find(keyspace).map(|at| &mut self.list[at].index);
        let dropped = self.dropped.iter_mut().filter(|one| one.keyspace == keyspace);
        let before = dropped.filter(|one| id.segment >= one.next).map(|one| &mut one.index);
        now.into_iter().chain(before).fold(false, |alive, index| {
            let counts_as_alive = index.counts_as_alive(id, version, page);
            index.forget(id, version, page);
            alive || counts_as_alive
        })
    }

    /// Does a little of what fences ask for: blocks hear of what they lose. True when
    /// something is left to do. `forgets_dead`: dead records that a fence hides are counted no more.
    pub(super) fn sweep(
        &mut self,
        volume: &mut Volume,
        reads: &mut PendingReads,
        forgets_dead: bool,
    ) -> bool {
        const STEP: u16 = 8;
        if reads.dead_parts() >= MOST_HEADS_READ {
            return false;
        }
        let watermark = self.marks.collection();
        let mut gone = |dead: (KeyspaceId, KeyId, Version, Location), by: Timestamp| {
            let (.., location) = dead;
            if location.staged().is_some() {
                return false;
            }
            volume.blocks.superseded(PageId(location.page()), by, watermark);
            !is_planted!(FenceKeepsParts) && reads.note_dead_parts(dead, by, volume)
        };
        for space in &mut self.list {
            let fence = space.fence_at(watermark);
            if fence <= space.swept || fence.is_zero() {
                continue;
            }
            space.prune_fences(watermark);
            if space.youngest <= fence {
                let index = core::mem::replace(&mut space.index, Index::new());
                space.epoch += 1;
                if let Some(order) = &mut space.order {
                    order.all_gone();
                }
                assert!(space.index.keys() == 0 && space.sweep_next < SEGMENTS as u16);
                space.swept = fence;
                space.sweep_next = 0;
                self.dropped.push(Dropped { keyspace: space.id, index, next: 0 });
                return true;
            }
            if space.sweep_next == 0 {
                space.sweeping = fence;
            }
            let fence = space.sweeping;
            let (keyspace, mut heads) = (space.id, 0);
            let end = (space.sweep_next + STEP).min(SEGMENTS as u16);
            while space.sweep_next < end && heads < MOST_HEADS_READ {
                let gone = |id, version, location| {
                    heads += u32::from(gone((keyspace, id, version, location), fence.timestamp));
                };
                space.index.sweep(space.sweep_next, fence, forgets_dead, gone);
                space.sweep_next += 1;
            }
            space.sweep_next %= SEGMENTS as u16;
            if space.sweep_next == 0 {
                space.swept = fence;
            }
            return true;
        }
        let Some(Dropped { keyspace, index, next }) = self.dropped.last_mut() else { return false };
        let end = (*next + STEP).min(SEGMENTS as u16);
        let mut heads = 0;
        while *next < end && heads < MOST_HEADS_READ {
            for (id, version, location) in index.alive_in(*next) {
                heads += u32::from(gone((*keyspace, id, version, location), version.timestamp));
            }
            *next += 1;
        }
        if *next == SEGMENTS as u16 {
            self.dropped.pop();
        }
        true
    }
}

/// What a record's key is known by under a seed; `head` is that of a large value.
pub(super) fn id_of_record(
    seed: HashSeed,
    record: &Record<'_>,
    head: Option<&LargeHead<'_>>,
) -> KeyId {
    let check = match head {
        Some(head) => head.check,
        None => check_key(seed, record.keyspace, record.key),
    };
    KeyId::new(record.hash, check)
}

#[cfg(test)]
mod tests {
    use timestone_types::{ClientId, KeyHash};

    use super::super::index::{KeyId, Location};
    use super::*;

    #[test]
    fn an_index_has_more_room_than_it_needs_as_long_as_memory_has_it() {
        const KEYS: u64 = 300_000;
        let peak = |bound: u64| {
            let mut spaces = Spaces::of_whole_log();
            let place = spaces.ensure(KeyspaceId::DEFAULT);
            let mut most = 0.0f64;
            for n in 1..=KEYS {
                let hash = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let key = KeyId::new(KeyHash(hash ^ hash >> 29), n as u32);
                let version = Version::new(Timestamp::from_nanos(n), ClientId::ZERO);
                spaces.list[place].index.put_found(key, version, Location::new(1, false, false));
                spaces.bound_growth(bound);
                if n % 1000 == 0 && n > KEYS / 2 {
                    most = most.max(spaces.list[place].index.bytes() as f64 / n as f64);
                }
            }
            spaces.end_recovery();
            let index = &spaces.list[place].index;
            assert_eq!(index.keys(), KEYS);
            assert!(index.bytes() <= 33 * KEYS, "{} bytes at the end", index.bytes());
            most
        };
        let (scarce, plenty) = (peak(KEYS / 4 * 40), peak(u64::MAX));
        assert!(scarce <= 33.0, "{scarce} bytes a key");
        assert!((36.0..41.0).contains(&plenty), "{plenty} bytes a key");
    }
}
