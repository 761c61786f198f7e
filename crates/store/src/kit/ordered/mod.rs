//! Keys in the order of their bytes, in memory: a B-tree of packed lists, which also knows of each
//! part of itself how young its youngest version may be.
//!
//! ```text
//!   inner │ separators │ children: newest, node │
//!             └─► leaf │ prefix │ suffixes │ ends │      up to 128 keys, 4 KiB of suffixes
//! ```
//!
//! A store keeps one beside the hash index of a keyspace whose keys are in order. It holds the keys
//! and nothing else: what versions a key has is asked of the index. So it costs little more than
//! the bytes in which neighbours differ, and a get needs nothing of it.
//!
//! **Newest.** Each child has a bound: no version of a key below it is younger. Whoever asks
//! whether something in a range was written after a time passes over parts whose bound is not
//! above it, however large they are ([`OrderedKeys::walk`]). A bound rises with every write and
//! does not fall when keys go: what lies above it is looked at key by key.
//!
//! Prefixes and short separators are those of prefix B-trees (Bayer and Unterauer, 1977). Leaves take
//! as much memory as they need, and not pages, because nothing of this is on flash. Why a tree of
//! its own: docs/design/ordered.md.
//!
//! What is deliberately absent: values, versions, any knowledge of a store.
//!
//! Invariants: all leaves are equally deep; a separator is above every key before it and not above
//! any behind it; no leaf is empty but the only one; `heap_bytes` is what the nodes take.

mod left;
mod node;
mod packed;

#[cfg(test)]
mod tests;

use timestone_types::{Direction, Timestamp, Version};

use crate::api::{KeyRange, RangeCheck};

pub(crate) use left::RangeLeft;
use node::{Child, Inner, TreeNode};
pub(crate) use packed::common;

/// Bytes of a key that cost as much as another key: to copy and to hash them takes as long.
const BYTES_OF_A_STEP: usize = 1024;

/// What a look at a key costs of a walk's budget.
pub(crate) const fn cost_of(key: &[u8]) -> u32 {
    1 + (key.len() / BYTES_OF_A_STEP) as u32
}

/// How a walk ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Walked {
    /// There is nothing more in the range.
    ToEnd,
    /// The visitor stopped it.
    Stopped,
    /// The budget is used up. Every key before this string was seen or passed over, and no other
    /// one; downwards every key that is not before it, and no other one. It need not be a key itself.
    UpTo(Vec<u8>),
}

/// Which keys a walk sees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// The first one.
    pub(crate) from: &'a [u8],
    /// The first one behind; none: to the end.
    pub(crate) to: Option<&'a [u8]>,
    /// Which of them first.
    pub(crate) direction: Direction,
    /// Only parts of the tree in which some version may be younger.
    pub(crate) above: Option<Timestamp>,
}

/// See the module.
pub(crate) struct OrderedKeys {
    root: TreeNode,
    /// No version of a key is younger.
    newest: Timestamp,
    /// Nor of those whose time was not told.
    floor: Timestamp,
    len: u64,
    heap_bytes: usize,
}

impl OrderedKeys {
    /// No keys.
    pub(crate) fn new() -> Self {
        let root = TreeNode::empty();
        let heap_bytes = root.own_bytes();
        Self { root, newest: Timestamp::ZERO, floor: Timestamp::ZERO, len: 0, heap_bytes }
    }

    /// How many keys.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of memory.
    pub(crate) const fn bytes(&self) -> usize {
        self.heap_bytes + size_of::<Self>()
    }

    /// Notes that a key has a version of this time; true when the key was not there.
    pub(crate) fn insert(&mut self, key: &[u8], at: Timestamp) -> bool {
        self.newest = self.newest.max(at);
        let inserted = self.root.insert(key, at, &mut self.heap_bytes);
        if !inserted.split.is_empty() {
            // What was the root is a child of a new one.
            let newest = self.newest;
            let first =
                Child { newest, node: core::mem::replace(&mut self.root, TreeNode::empty()) };
            self.root = TreeNode::Inner(Box::new(Inner::over(first, inserted.split, newest)));
            self.heap_bytes += self.root.own_bytes();
        }
        self.len += u64::from(inserted.is_new);
        inserted.is_new
    }

    /// No version of a key that is there is younger, but those whose time was given.
    pub(crate) fn are_older_than(&mut self, t: Timestamp) {
        self.floor = self.floor.max(t);
        debug_assert!(self.floor >= t, "bounds do not fall");
    }

    /// Takes a key out; whether it was there.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let removed = self.root.remove(key, &mut self.heap_bytes);
        while let Some(child) = self.root.take_only_child(&mut self.heap_bytes) {
            self.root = child;
        }
        debug_assert!(!removed || self.len > 0, "what goes was counted");
        self.len -= u64::from(removed);
        removed
    }

    /// Whether a key is there.
    #[cfg(test)]
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let budget = &mut u32::MAX.clone();
        let mut found = false;
        let wanted = Wanted { from: key, to: None, direction: Direction::Ascending, above: None };
        self.walk(wanted, budget, |first| {
            found = first == key;
            false
        });
        found
    }

    /// Visits keys, in the direction that is wanted, until the visitor says false or the budget is used up. A key costs what
    /// [`cost_of`] says, and each part that is passed over 1.
    pub(crate) fn walk(
        &self,
        wanted: Wanted<'_>,
        budget: &mut u32,
        mut visit: impl FnMut(&[u8]) -> bool,
    ) -> Walked {
        if wanted.to.is_some_and(|to| to <= wanted.from) {
            return Walked::ToEnd;
        }
        // What was restored may be as young as the floor.
        let above = wanted.above.filter(|&above| above >= self.floor);
        if above.is_some_and(|above| self.newest <= above) {
            return Walked::ToEnd;
        }
        self.root.walk(Wanted { above, ..wanted }, budget, &mut Vec::new(), &mut visit)
    }

    /// The first key of a range whose youngest version lies above `t`. `youngest` is asked about keys
    /// of parts in which there may be one; so many keys and parts are looked at.
    pub(crate) fn first_above(
        &self,
        range: KeyRange<'_>,
        t: Timestamp,
        max_keys: u32,
        youngest: impl Fn(&[u8]) -> Option<Version>,
    ) -> RangeCheck {
        let (from, to, direction) = (range.from, range.to, Direction::Ascending);
        let wanted = Wanted { from, to, direction, above: Some(t) };
        let mut above = None;
        let walked = self.walk(wanted, &mut max_keys.max(1), |key| {
            above = youngest(key)
                .filter(|version| version.timestamp > t)
                .map(|version| (key.to_vec(), version));
            above.is_none()
        });
        match (above, walked) {
            (Some((key, version)), _) => RangeCheck::Above { key: Some(key), version },
            (None, Walked::UpTo(next)) => RangeCheck::More(next),
            (None, _) => RangeCheck::None,
        }
    }

    /// Gives it up, to be freed a little at a time.
    pub(crate) fn give_up(self) -> Falling {
        Falling { heap_bytes: self.heap_bytes, nodes: vec![self.root] }
    }
}

/// A tree that nobody wants any more. To free a large one takes a while.
pub(crate) struct Falling {
    nodes: Vec<TreeNode>,
    heap_bytes: usize,
}

impl Falling {
    /// Frees so many nodes at most; false when nothing is left.
    pub(crate) fn free_some(&mut self, most: usize) -> bool {
        for _ in 0..most {
            let Some(node) = self.nodes.pop() else { break };
            self.heap_bytes -= node.own_bytes();
            node.fall_into(&mut self.nodes);
        }
        debug_assert!(!self.nodes.is_empty() || self.heap_bytes == 0, "nothing takes nothing");
        !self.nodes.is_empty()
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.heap_bytes + self.nodes.capacity() * size_of::<TreeNode>()
    }
}
