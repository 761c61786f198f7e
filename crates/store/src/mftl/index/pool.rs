//! Further versions of keys: 20-byte nodes in chunks, linked, with a free list.
//!
//! A key's youngest version lives in its [`super::segment`] entry; every other one is a node here.
//! One node of a chain may be its *dead count*: it stands for no version, but holds how many
//! records of the key are dead and whose blocks are not yet erased (see [`super`] for why). Nodes
//! are never moved; memory is returned when the keyspace goes.
//!
//! Invariant: a link is below `len`, or [`Link::NONE`]; a node is either on exactly one chain or on
//! the free list.

use timestone_types::{ClientId, Timestamp, Version};

use super::Location;

/// Nodes of one chunk: 10 KiB, so that a small keyspace stays small and a large one allocates
/// seldom.
const CHUNK: usize = 512;

/// The place of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link(pub(crate) u32);

impl Link {
    /// No node.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// In a dead count: records are among them that were not pruned.
const HAS_OTHERS: u32 = 1 << 31;
/// The most that a dead count says.
const MOST_DEAD: u32 = HAS_OTHERS - 1;

/// One further version, or a dead count. The timestamp is kept in halves so that the node needs no
/// padding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    time_low: u32,
    time_high: u32,
    client: u32,
    location: Location,
    pub(crate) next: Link,
}

const _: () = assert!(size_of::<Node>() == 20, "a further version costs 20 bytes");

impl Node {
    /// A version.
    pub(crate) fn version_at(version: Version, location: Location, next: Link) -> Self {
        let time = version.timestamp.as_nanos();
        Self {
            time_low: time as u32,
            time_high: (time >> 32) as u32,
            client: version.client.get(),
            location,
            next,
        }
    }

    /// The dead count of a key with `dead` dead records.
    pub(crate) fn dead_count(dead: u32, next: Link) -> Self {
        Self {
            time_low: dead.min(MOST_DEAD),
            time_high: 0,
            client: 0,
            location: Location::DEAD_COUNT,
            next,
        }
    }

    /// Whether this is a dead count.
    pub(crate) fn is_dead_count(&self) -> bool {
        self.location == Location::DEAD_COUNT
    }

    /// How many dead records the key has.
    pub(crate) fn dead(&self) -> u32 {
        debug_assert!(self.is_dead_count());
        self.time_low & MOST_DEAD
    }

    /// Changes the number of dead records.
    pub(crate) fn set_dead(&mut self, dead: u32) {
        debug_assert!(self.is_dead_count());
        self.time_low = self.time_low & HAS_OTHERS | dead.min(MOST_DEAD);
    }

    /// Whether records are among the dead ones that were not pruned: copies, and those that a
    /// checkpoint counted. Their versions may be any; those of all others lie below what is left.
    pub(crate) fn has_others(&self) -> bool {
        debug_assert!(self.is_dead_count());
        self.time_low & HAS_OTHERS != 0
    }

    /// Such a record was counted.
    pub(crate) fn note_others(&mut self) {
        debug_assert!(self.is_dead_count());
        self.time_low |= HAS_OTHERS;
    }

    /// Every version below this that the index ever named was pruned; zero when that is not known.
    pub(crate) fn pruned_below(&self) -> Timestamp {
        debug_assert!(self.is_dead_count());
        Timestamp::from_nanos(u64::from(self.time_high) << 32 | u64::from(self.client))
    }

    /// Changes below which version everything is known to be pruned.
    pub(crate) fn set_pruned_below(&mut self, at: Timestamp) {
        debug_assert!(self.is_dead_count());
        self.time_high = (at.as_nanos() >> 32) as u32;
        self.client = at.as_nanos() as u32;
    }

    /// The version of a node that is not a dead count.
    pub(crate) fn version(&self) -> Version {
        debug_assert!(!self.is_dead_count());
        let time = u64::from(self.time_high) << 32 | u64::from(self.time_low);
        Version::new(Timestamp::from_nanos(time), ClientId::new(self.client))
    }

    /// Where its record is.
    pub(crate) fn location(&self) -> Location {
        self.location
    }

    /// Moves its record.
    pub(crate) fn set_location(&mut self, location: Location) {
        debug_assert!(!self.is_dead_count() && location != Location::DEAD_COUNT);
        self.location = location;
    }
}

/// The nodes of one keyspace.
#[derive(Debug)]
pub(crate) struct Pool {
    chunks: Vec<Box<[Node]>>,
    free: Link,
    len: u32,
    used: u32,
}

impl Pool {
    /// No nodes, no memory.
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), free: Link::NONE, len: 0, used: 0 }
    }

    /// Stores a node.
    pub(crate) fn add(&mut self, node: Node) -> Link {
        self.used += 1;
        if self.free != Link::NONE {
            let link = self.free;
            self.free = self.get(link).next;
            *self.get_mut(link) = node;
            return link;
        }
        let link = Link(self.len);
        if self.len as usize == self.chunks.len() * CHUNK {
            let empty = Node::dead_count(0, Link::NONE);
            self.chunks.push(vec![empty; CHUNK].into_boxed_slice());
        }
        self.len += 1;
        assert!(link != Link::NONE, "a keyspace has fewer than 2^32 further versions");
        *self.get_mut(link) = node;
        link
    }

    /// Frees a node.
    pub(crate) fn remove(&mut self, link: Link) {
        let free = self.free;
        *self.get_mut(link) = Node::dead_count(0, free);
        self.free = link;
        assert!(self.used > 0, "a node that is freed was in use");
        self.used -= 1;
    }

    /// The node at a link.
    pub(crate) fn get(&self, link: Link) -> &Node {
        &self.chunks[link.0 as usize / CHUNK][link.0 as usize % CHUNK]
    }

    /// The node at a link, to change it.
    pub(crate) fn get_mut(&mut self, link: Link) -> &mut Node {
        &mut self.chunks[link.0 as usize / CHUNK][link.0 as usize % CHUNK]
    }

    /// Bytes of memory, all in.
    pub(crate) fn bytes(&self) -> u64 {
        (self.chunks.len() * (CHUNK * size_of::<Node>() + 16)
            + self.chunks.capacity() * size_of::<Box<[Node]>>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_nodes_are_used_again_before_memory_grows() {
        let mut pool = Pool::new();
        let version = Version::new(Timestamp::from_nanos(u64::MAX - 5), ClientId::new(9));
        let links: Vec<_> = (0..CHUNK as u32)
            .map(|i| {
                pool.add(Node::version_at(version, Location::new(i, false, false), Link::NONE))
            })
            .collect();
        let bytes = pool.bytes();
        for &link in &links {
            assert_eq!(pool.get(link).version(), version);
            pool.remove(link);
        }
        for _ in 0..CHUNK {
            pool.add(Node::dead_count(3, Link::NONE));
        }
        assert_eq!(pool.bytes(), bytes);
    }
}
