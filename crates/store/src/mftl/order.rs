//! The keys of one keyspace in the order of their bytes, beside its index, which knows no bytes
//! (docs/design/ordered.md).
//!
//! ```text
//!   put, recovery ─► note ──────────────► keys ◄── walk (ranges, checks, checkpoints)
//!   collection drops a tombstone ─► gone ─┘ ▲
//!   a fence empties the index ─► purge: what the index does not know goes, a little at a time
//! ```
//!
//! The index says which versions a key has. A key that is here and not there has none, and reads
//! pass over it: so it may stay a while, and only the reverse must not be. A sweep for a fence does
//! not know the bytes of what it takes out of the index; when much of what is here is not there any
//! more, a purge asks the index about every key.
//!
//! **Keys that share all hashes** (two of 100 million, once in millions of stores) have one entry
//! in the index. Here both are present, and that is how it is noticed: a key is new here, and its
//! entry is there already. The entry's versions are of one or of the other then, so that reads of
//! such keys look at the records.
//!
//! **Keys that lie with their values.** A key above 1 KiB is not in the head of its large value. A
//! restart finds the head, and reads the key at the end: until then the entry is *unread*. A key that
//! cannot be read is *lost*, unless another record of its entry tells it.
//!
//! Invariants: every key with a version in the index is here, or its entry is unread or `lost`;
//! entries that two keys here share are in `shared`.

use std::collections::{BTreeMap, BTreeSet};

use timestone_flash::PageId;
use timestone_types::{Direction, HashSeed, KeyRef, KeyspaceId, Timestamp, Version, is_planted};

use super::index::{Index, KeyId};
use crate::error::StoreError;
use crate::kit::ordered::{Falling, OrderedKeys, Walked, Wanted};

/// Keys that the purges of one pump ask the index about: some 100 µs of work.
const PURGED_AT_ONCE: u32 = 512;
/// A purge begins when one key in so many is not in the index.
const STALE_DIVISOR: u64 = 16;
/// Nodes of trees that nobody wants any more which one pump frees.
const FREED_AT_ONCE: usize = 64;

/// What may be done in one pump, for all orders together.
pub(super) struct TidyBudget {
    keys: u32,
    nodes: usize,
}

impl TidyBudget {
    pub(super) const fn of_pump() -> Self {
        Self { keys: PURGED_AT_ONCE, nodes: FREED_AT_ONCE }
    }
}

/// See the module.
pub(crate) struct Order {
    keys: OrderedKeys,
    /// Ascending.
    shared: Vec<KeyId>,
    /// Where a purge goes on that has begun.
    purge: Option<Vec<u8>>,
    /// Keys that the last purge left, although the index does not seem to know as many.
    left: u64,
    /// Trees of keys that a fence has hidden all of.
    falling: Vec<Falling>,
    /// Entries of the index whose keys are still to be read.
    unread: BTreeSet<KeyId>,
    /// Entries whose keys could not be read, with the youngest version of each and the page of its head.
    lost: BTreeMap<KeyId, (Version, PageId)>,
}

/// What the index knows a key by.
#[inline]
pub(super) fn id_of(seed: HashSeed, keyspace: KeyspaceId, key: &[u8]) -> KeyId {
    KeyId::of(KeyRef::new(seed, keyspace, key).hashed())
}

impl Order {
    /// No keys.
    pub(super) fn new() -> Self {
        Self {
            keys: OrderedKeys::new(),
            shared: Vec::new(),
            purge: None,
            left: 0,
            falling: Vec::new(),
            unread: BTreeSet::new(),
            lost: BTreeMap::new(),
        }
    }

    /// Keys that are here, those included that the index does not know any more.
    #[cfg(test)]
    fn len(&self) -> u64 {
        self.keys.len()
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        let falling = self.falling.iter().map(Falling::bytes).sum::<usize>();
        (self.keys.bytes() + falling + self.shared.capacity() * size_of::<KeyId>()) as u64
    }

    /// A key has a version of this time. `is_known`: the index had an entry for it before.
    pub(super) fn note(&mut self, id: KeyId, key: &[u8], at: Timestamp, is_known: bool) {
        // The key of what was unread is this one. One that is lost may be another, with the same hashes.
        let is_known = is_known && !self.unread.remove(&id);
        self.lost.remove(&id);
        let at = if is_known && is_planted!(UnnotedRewrites) { Timestamp::ZERO } else { at };
        if self.keys.insert(key, at) && is_known {
            self.share(id);
        }
    }

    /// Several keys may have this entry of the index.
    pub(super) fn share(&mut self, id: KeyId) {
        if let Err(place) = self.shared.binary_search(&id) {
            self.shared.insert(place, id);
            debug_assert!(self.shared.is_sorted(), "found by a search");
        }
    }

    /// Whether several keys may have this entry of the index.
    #[inline]
    pub(super) fn is_shared(&self, id: KeyId) -> bool {
        !self.shared.is_empty() && self.shared.binary_search(&id).is_ok()
    }

    /// The entries that several keys may have, ascending.
    pub(super) fn shared(&self) -> &[KeyId] {
        &self.shared
    }

    /// A checkpoint knows this key, with versions up to whatever [`Self::are_older_than`] says.
    pub(super) fn restore(&mut self, key: &[u8]) {
        self.keys.insert(key, Timestamp::ZERO);
    }

    /// No version of a key that is here is younger, but those that were noted with their time.
    pub(super) fn are_older_than(&mut self, t: Timestamp) {
        self.keys.are_older_than(t);
    }

    /// A record was found whose key is to be read. `is_known`: the index had an entry for it before.
    pub(super) fn expect(&mut self, id: KeyId, is_known: bool) {
        if !is_known {
            self.unread.insert(id);
        }
    }

    /// The key of a version, whose head is in this page, could not be read. It may be any that is here.
    pub(super) fn lose(&mut self, id: KeyId, version: Version, page: PageId) {
        self.are_older_than(version.timestamp);
        if self.unread.contains(&id) {
            let lost = self.lost.entry(id).or_insert((version, page));
            *lost = (version, page).max(*lost);
        }
    }

    /// All keys were read that could be.
    pub(super) fn end_reading(&mut self) {
        self.unread = BTreeSet::new();
        for (version, page) in self.lost.values() {
            tracing::warn!(
                page = page.0,
                %version,
                "a key could not be read; ranges of its keyspace are refused until it is put again, or \
                 the keyspace dropped"
            );
        }
    }

    /// That no key is missing of which a version matters.
    pub(super) fn check_whole(&self, matters: impl Fn(Version) -> bool) -> Result<(), StoreError> {
        match self.lost.values().find(|&&(version, _)| matters(version)) {
            None => Ok(()),
            Some((_, page)) => {
                let reason = "a key in it cannot be read, and may belong to the range";
                Err(StoreError::Corrupt { page: page.0, reason })
            }
        }
    }

    /// Whether it has the key of each entry of the index.
    pub(super) fn is_whole(&self, index: &Index) -> bool {
        self.lost.keys().all(|&id| index.latest(id).is_none())
    }

    /// The last version of a key has left the index.
    pub(super) fn gone(&mut self, key: &[u8]) {
        self.keys.remove(key);
    }

    /// All keys have left the index.
    pub(super) fn all_gone(&mut self) {
        let keys = core::mem::replace(&mut self.keys, OrderedKeys::new());
        self.falling.push(keys.give_up());
        (self.purge, self.left) = (None, 0);
        self.shared = Vec::new();
        self.lost.clear();
    }

    /// The keys.
    pub(super) const fn keys(&self) -> &OrderedKeys {
        &self.keys
    }

    /// Visits keys; see [`OrderedKeys::walk`].
    pub(super) fn walk(
        &self,
        wanted: Wanted<'_>,
        budget: &mut u32,
        visit: impl FnMut(&[u8]) -> bool,
    ) -> Walked {
        self.keys.walk(wanted, budget, visit)
    }

    /// Keys that the index does not know, about.
    fn stale(&self, index: &Index) -> u64 {
        self.keys.len().saturating_sub(index.keys() + self.shared.len() as u64)
    }

    /// Whether [`Self::tidy`] has something to do.
    pub(super) fn has_work(&self, index: &Index) -> bool {
        self.purge.is_some() || !self.falling.is_empty() || self.is_stale(index)
    }

    /// Whether a purge is worth while.
    fn is_stale(&self, index: &Index) -> bool {
        self.stale(index) > self.left + self.keys.len() / STALE_DIVISOR
    }

    /// Frees a little of what is not wanted any more.
    pub(super) fn tidy(
        &mut self,
        seed: HashSeed,
        keyspace: KeyspaceId,
        index: &Index,
        budget: &mut TidyBudget,
    ) {
        if let Some(falling) = self.falling.last_mut()
            && budget.nodes > 0
            && !falling.free_some(core::mem::take(&mut budget.nodes))
        {
            self.falling.pop();
        }
        self.left = self.left.min(self.stale(index));
        if self.purge.is_none() && self.is_stale(index) {
            self.purge = Some(Vec::new());
        }
        let Some(from) = self.purge.take_if(|_| budget.keys > 0) else { return };
        let mut stale = Vec::new();
        let wanted = Wanted { from: &from, to: None, direction: Direction::Ascending, above: None };
        let walked = self.keys.walk(wanted, &mut budget.keys, |key| {
            if index.latest(id_of(seed, keyspace, key)).is_none() {
                stale.push(key.to_vec());
            }
            true
        });
        for key in stale {
            self.keys.remove(&key);
        }
        match walked {
            Walked::UpTo(next) => self.purge = Some(next),
            Walked::ToEnd | Walked::Stopped => {
                self.left = self.stale(index);
                self.shared.retain(|&id| index.latest(id).is_some());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::{ClientId, KeyRange, KeyspaceId, Version};

    use super::super::index::{Location, Spot};
    use super::*;
    use crate::api::RangeCheck;

    const SEED: HashSeed = HashSeed(3);
    const SPACE: KeyspaceId = KeyspaceId::numbered(1, false).ordered();

    fn put(order: &mut Order, index: &mut Index, key: &[u8]) {
        let id = id_of(SEED, SPACE, key);
        let version = Version::new(Timestamp::from_nanos(1), ClientId::ZERO);
        let place = Location::new(1, false, false);
        let is_known = index.latest(id).is_some();
        index.put(id, Spot::NewKey, version, place, Timestamp::ZERO);
        order.note(id, key, version.timestamp, is_known);
    }

    #[test]
    fn an_entry_that_is_there_before_its_key_is_shared() {
        let mut order = Order::new();
        let id = id_of(SEED, SPACE, b"one");
        order.note(id, b"one", Timestamp::ZERO, false);
        order.note(id, b"one", Timestamp::ZERO, true);
        assert!(!order.is_shared(id));
        order.note(id, b"other, with the same hashes", Timestamp::ZERO, true);
        assert!(order.is_shared(id) && order.shared() == [id]);
    }

    /// *Otherwise* a range that was read before it is taken for unchanged.
    #[test]
    fn a_key_is_as_young_as_a_version_of_it_whose_key_could_not_be_read() {
        let (mut order, at) = (Order::new(), Timestamp::from_nanos);
        let id = id_of(SEED, SPACE, b"one");
        order.note(id, b"one", at(5), false);
        let range = KeyRange { keyspace: SPACE, from: b"a", to: None };
        let rewritten = Version::new(at(50), ClientId::ZERO);
        let newer = |order: &Order| order.keys().first_above(range, at(10), 9, |_| Some(rewritten));
        assert!(matches!(newer(&order), RangeCheck::None));
        order.expect(id, true);
        order.lose(id, rewritten, PageId(7));
        order.end_reading();
        assert!(matches!(newer(&order), RangeCheck::Above { .. }));
    }

    #[test]
    fn a_purge_takes_what_the_index_does_not_know_and_nothing_else() {
        let (mut order, mut index) = (Order::new(), Index::new());
        for n in 0..5000u32 {
            put(&mut order, &mut index, &n.to_be_bytes());
        }
        assert!(!order.has_work(&index), "each key is known");
        let mut known = Index::new();
        for n in (0..5000u32).step_by(10) {
            put(&mut order, &mut known, &n.to_be_bytes());
        }
        let mut pumps = 0u32;
        while order.has_work(&known) {
            order.tidy(SEED, SPACE, &known, &mut TidyBudget::of_pump());
            // What comes meanwhile stays.
            put(&mut order, &mut known, &(10_000 + pumps).to_be_bytes());
            pumps += 1;
            assert!(pumps < 100, "it comes to an end");
        }
        assert!(pumps >= 9, "{pumps} pumps: a little at a time");
        assert_eq!(order.len(), known.keys());
    }

    #[test]
    fn orders_are_tidied_within_one_budget() {
        let (mut orders, known) = ([Order::new(), Order::new(), Order::new()], Index::new());
        for order in &mut orders {
            for n in 0..2000u32 {
                put(order, &mut Index::new(), &n.to_be_bytes());
            }
        }
        let mut left = orders.iter().map(Order::len).sum::<u64>();
        while left > 0 {
            let mut budget = TidyBudget::of_pump();
            orders.iter_mut().for_each(|order| order.tidy(SEED, SPACE, &known, &mut budget));
            let now = orders.iter().map(Order::len).sum::<u64>();
            assert!((1..=512).contains(&(left - now)), "{} keys in one pump", left - now);
            left = now;
        }
    }
}
