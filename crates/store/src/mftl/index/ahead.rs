//! Fetching what look-ups of several keys will read, before the first of them.
//!
//! ```text
//!   keys ─► where each search begins ─► its entry ─► the node behind it ─► the next one …
//! ```
//! Each step asks for one line of memory of every key, and finds it in what the step before has
//! fetched. So the keys of a batch wait for memory together and not one after the other. All of it is
//! a hint: the first key with the tag is taken for the one that is meant.

use timestone_io::prefetch;
use timestone_types::{KeyHash, Version};

use super::pool::Link;
use super::segment::Head;
use super::{Index, KeyId};

/// Keys that are fetched together, at most: what they take fits the nearest cache.
const TOGETHER: usize = 64;
/// Nodes to fetch behind the entry of a key that is put: its dead count, the version before the
/// youngest, which the put may find dead, and the one before that.
pub(crate) const NODES_OF_PUT: usize = 3;
/// Nodes to fetch behind the entry of a key whose record is collected: the same, without the version
/// that a put makes.
pub(crate) const NODES_OF_RECORD: usize = 2;
/// Nodes to fetch behind the entry of a key of which a dead record is gone: its dead count.
pub(crate) const NODES_OF_DEAD: usize = 1;

/// A key, and what was fetched of it last.
#[derive(Clone, Copy)]
struct Place<'a> {
    index: &'a Index,
    id: KeyId,
    entry: Option<&'a Head>,
    node: Link,
    /// How many nodes are wanted.
    nodes: usize,
}

/// Keys whose entries were fetched.
pub(crate) struct Ahead<'a> {
    places: [Option<Place<'a>>; TOGETHER],
    len: usize,
}

impl<'a> Ahead<'a> {
    /// Takes keys until there are as many as are fetched together, and has fetched the entry of each
    /// and the nodes behind it that are wanted. A key without an index takes a place, too. None when
    /// there are no keys.
    pub(crate) fn take(
        keys: &mut impl Iterator<Item = (Option<&'a Index>, KeyHash, usize)>,
    ) -> Option<Self> {
        let mut ahead = Self { places: [None; TOGETHER], len: 0 };
        for (index, hash, nodes) in keys.take(TOGETHER) {
            if let Some(index) = index
                && !index.segments.is_empty()
            {
                let id = KeyId::new(hash, 0);
                index.segments[id.segment as usize].prefetch_search(id.tag);
                let node = Link::NONE;
                ahead.places[ahead.len] = Some(Place { index, id, entry: None, node, nodes });
            }
            ahead.len += 1;
        }
        for place in ahead.places[..ahead.len].iter_mut().flatten() {
            let segment = &place.index.segments[place.id.segment as usize];
            place.entry = segment.find_tag(place.id.tag).map(|at| segment.head(at));
            match place.entry {
                Some(entry) => prefetch(entry),
                None if place.nodes == NODES_OF_PUT => segment.prefetch_place(place.id.tag),
                None => {}
            }
        }
        let most = ahead.places.iter().flatten().map(|place| place.nodes).max();
        for step in 0..most.unwrap_or_default() {
            ahead.fetch_nodes(step);
        }
        (ahead.len > 0).then_some(ahead)
    }

    /// Takes all of them.
    pub(crate) fn take_all(mut keys: impl Iterator<Item = (Option<&'a Index>, KeyHash, usize)>) {
        while Self::take(&mut keys).is_some() {}
    }

    /// Has the node fetched that is so many behind the first one, where it is wanted.
    fn fetch_nodes(&mut self, step: usize) {
        for place in self.places[..self.len].iter_mut().flatten() {
            let Some(entry) = place.entry.filter(|_| step < place.nodes) else { continue };
            let pool = &place.index.pool;
            place.node = match (step, place.node) {
                (0, _) => entry.older,
                (_, Link::NONE) => continue,
                (_, node) => pool.get(node).next,
            };
            if place.node != Link::NONE {
                prefetch(pool.get(place.node));
            }
        }
    }

    /// The youngest version of each key that is in its index, in the order of the keys.
    pub(crate) fn youngest(&self) -> impl Iterator<Item = Option<Version>> + '_ {
        let places = self.places[..self.len].iter();
        places.map(|place| place.and_then(|place| place.entry).map(Head::version))
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::{ClientId, Timestamp};

    use super::super::{Location, Spot};
    use super::*;

    /// More keys than are fetched together, each with so many versions as its number says.
    fn index(keys: u64) -> Index {
        let mut index = Index::new();
        for key in 0..keys {
            for at in 0..=key % 5 {
                let version = Version::new(Timestamp::from_nanos(1 + at), ClientId::new(1));
                let id = KeyId::new(hash(key), 0);
                let spot = index.probe(id, version);
                assert!(spot != Spot::Exists, "versions differ");
                index.put(
                    id,
                    spot,
                    version,
                    Location::new(at as u32, false, false),
                    Timestamp::ZERO,
                );
            }
        }
        index
    }

    fn hash(key: u64) -> KeyHash {
        KeyHash(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    #[test]
    fn every_key_takes_its_place_and_tells_its_youngest_version() {
        let index = index(150);
        let known = |key: u64| (!key.is_multiple_of(7)).then_some(&index);
        let mut keys = (0..200).map(|key| (known(key), hash(key), key as usize % 4));
        let mut told = Vec::new();
        while let Some(ahead) = Ahead::take(&mut keys) {
            told.extend(ahead.youngest());
        }
        for (key, youngest) in (0..200u64).zip(&told) {
            let is_there = key < 150 && known(key).is_some();
            let version = Version::new(Timestamp::from_nanos(1 + key % 5), ClientId::new(1));
            assert_eq!(*youngest, is_there.then_some(version), "key {key}");
        }
        assert_eq!(told.len(), 200);
    }

    #[test]
    fn an_index_without_keys_has_nothing_to_fetch() {
        let index = Index::new();
        let mut keys = [(Some(&index), hash(1), NODES_OF_PUT), (None, hash(2), 0)].into_iter();
        let ahead = Ahead::take(&mut keys).expect("there are keys");
        assert_eq!(ahead.youngest().collect::<Vec<_>>(), [None, None]);
        assert!(Ahead::take(&mut keys).is_none());
    }
}
