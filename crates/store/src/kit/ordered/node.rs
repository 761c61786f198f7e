//! Nodes of a tree of keys: leaves of keys, and inner nodes of children.
//!
//! A node that gets too large leaves what does not fit to new nodes behind it, which its parent
//! takes in. Keys that come in order leave full nodes behind: what follows the last one begins a
//! node of its own.

use timestone_types::{Direction, Timestamp, key_behind};

use super::packed::{ALLOCATION_BYTES, End, Packed, common};
use super::{Walked, Wanted, cost_of};

/// Keys of a leaf, at most.
const LEAF_KEYS: usize = 128;
/// Bytes of their suffixes, at most. (A leaf of one key has no suffixes.)
const LEAF_BYTES: usize = 4096;
/// Children of an inner node before it is split.
const CHILDREN: usize = 64;
/// A node that is emptier than one in so many parts is joined with a neighbour, when both fill one
/// by half.
const SPARSE: usize = 4;

const _: () = assert!(LEAF_BYTES <= <u16 as End>::MAX, "ends in a leaf are two bytes");

type LeafKeys = Packed<u16>;

/// A part of the tree.
pub(super) enum TreeNode {
    /// Keys.
    Leaf(Box<LeafKeys>),
    /// Other parts.
    Inner(Box<Inner>),
}

/// Other parts, in order.
pub(super) struct Inner {
    /// Between each two of them: above the keys of the first, and not above those of the second.
    separators: Packed<u32>,
    children: Vec<Child>,
}

/// A part below an inner node.
pub(super) struct Child {
    /// No version of its keys is younger.
    pub(super) newest: Timestamp,
    pub(super) node: TreeNode,
}

/// A node that was split off, and what separates it from the one before it.
pub(super) struct SplitOff {
    separator: Vec<u8>,
    node: TreeNode,
}

/// What an insertion came to.
pub(super) struct Inserted {
    pub(super) is_new: bool,
    /// What did not fit, ascending, behind the node.
    pub(super) split: Vec<SplitOff>,
}

/// The shortest string above `before` and not above `after`.
fn separator(before: &[u8], after: &[u8]) -> Vec<u8> {
    debug_assert!(before < after, "keys ascend");
    after[..=common(before, after)].to_vec()
}

/// Leaves with all keys of one that has no room for another key, and that key.
fn split_leaf(mut keys: LeafKeys, key: &[u8], place: usize, into: &mut Vec<LeafKeys>) {
    if keys.len() == 0 || fits(&keys, key) {
        keys.insert(place, key);
        into.push(keys);
    } else if place == keys.len() {
        into.extend([keys, LeafKeys::of(key)]);
    } else if place == 0 {
        into.extend([LeafKeys::of(key), keys]);
    } else {
        let middle = keys.len() / 2;
        let (left, right) = (keys.part(0..middle), keys.part(middle..keys.len()));
        if place <= middle {
            split_leaf(left, key, place, into);
            into.push(right);
        } else {
            into.push(left);
            split_leaf(right, key, place - middle, into);
        }
    }
}

/// Whether a leaf has room for another key.
fn fits(keys: &LeafKeys, key: &[u8]) -> bool {
    keys.len() < LEAF_KEYS && keys.suffix_bytes_with(key) <= LEAF_BYTES
}

impl TreeNode {
    /// A leaf without keys.
    pub(super) fn empty() -> Self {
        Self::Leaf(Box::new(LeafKeys::new()))
    }

    /// Bytes of memory, without those of children.
    pub(super) fn own_bytes(&self) -> usize {
        ALLOCATION_BYTES
            + match self {
                Self::Leaf(keys) => size_of::<LeafKeys>() + keys.heap_bytes(),
                Self::Inner(inner) => {
                    let children = inner.children.capacity() * size_of::<Child>();
                    let separators = inner.separators.heap_bytes();
                    size_of::<Inner>() + ALLOCATION_BYTES + children + separators
                }
            }
    }

    /// Inserts a key that has a version of this time, and notes the bytes that nodes take more.
    pub(super) fn insert(&mut self, key: &[u8], at: Timestamp, bytes: &mut usize) -> Inserted {
        match self {
            Self::Leaf(keys) => match keys.find(key) {
                Ok(_) => Inserted { is_new: false, split: Vec::new() },
                Err(place) => {
                    *bytes -= self.own_bytes();
                    let split = self.insert_in_leaf(key, place);
                    *bytes += self.own_bytes();
                    *bytes += split.iter().map(|split| split.node.own_bytes()).sum::<usize>();
                    Inserted { is_new: true, split }
                }
            },
            Self::Inner(inner) => {
                let place = inner.child_of(key);
                let child = &mut inner.children[place];
                child.newest = child.newest.max(at);
                let Inserted { is_new, split } = child.node.insert(key, at, bytes);
                if split.is_empty() {
                    return Inserted { is_new, split };
                }
                *bytes -= self.own_bytes();
                let split = self.adopt(place, split);
                *bytes += self.own_bytes();
                *bytes += split.iter().map(|split| split.node.own_bytes()).sum::<usize>();
                Inserted { is_new, split }
            }
        }
    }

    fn insert_in_leaf(&mut self, key: &[u8], place: usize) -> Vec<SplitOff> {
        let Self::Leaf(keys) = self else { unreachable!("it is a leaf") };
        if keys.len() == 0 || fits(keys, key) {
            keys.insert(place, key);
            return Vec::new();
        }
        let mut pieces = Vec::with_capacity(3);
        split_leaf(core::mem::replace(&mut **keys, LeafKeys::new()), key, place, &mut pieces);
        let separators: Vec<Vec<u8>> = pieces
            .windows(2)
            .map(|pair| separator(&pair[0].get(pair[0].len() - 1), &pair[1].get(0)))
            .collect();
        let mut pieces = pieces.into_iter();
        **keys = pieces.next().unwrap_or_else(LeafKeys::new);
        let nodes = pieces.map(|piece| Self::Leaf(Box::new(piece)));
        separators
            .into_iter()
            .zip(nodes)
            .map(|(separator, node)| SplitOff { separator, node })
            .collect()
    }

    /// An inner node takes in what was split off a child, and is split itself when it has too many.
    fn adopt(&mut self, place: usize, split: Vec<SplitOff>) -> Vec<SplitOff> {
        let Self::Inner(inner) = self else { unreachable!("it has children") };
        let newest = inner.children[place].newest;
        let was_last = place + 1 == inner.children.len();
        for (at, SplitOff { separator, node }) in split.into_iter().enumerate() {
            inner.separators.insert(place + at, &separator);
            inner.children.insert(place + at + 1, Child { newest, node });
        }
        if inner.children.len() <= CHILDREN {
            return Vec::new();
        }
        // Keys that come in order leave a full node behind.
        let left = if was_last { CHILDREN } else { inner.children.len() / 2 };
        let separator = inner.separators.get(left - 1);
        let right = Inner {
            separators: inner.separators.part(left..inner.separators.len()),
            children: inner.children.split_off(left),
        };
        inner.separators = inner.separators.part(0..left - 1);
        inner.assert_sound();
        right.assert_sound();
        vec![SplitOff { separator, node: Self::Inner(Box::new(right)) }]
    }

    /// Takes a key out; whether it was there.
    pub(super) fn remove(&mut self, key: &[u8], bytes: &mut usize) -> bool {
        match self {
            Self::Leaf(keys) => {
                let Ok(place) = keys.find(key) else { return false };
                let before = keys.heap_bytes();
                keys.remove(place);
                *bytes = *bytes + keys.heap_bytes() - before;
                true
            }
            Self::Inner(inner) => {
                let place = inner.child_of(key);
                let removed = inner.children[place].node.remove(key, bytes);
                if removed && inner.children[place].node.is_sparse() {
                    let whole = |inner: &Inner| {
                        let children = inner.children.iter();
                        children.map(|child| child.node.own_bytes()).sum::<usize>()
                    };
                    *bytes -= whole(inner);
                    *bytes -= self.own_bytes();
                    if let Self::Inner(inner) = self {
                        inner.join_child(place);
                        *bytes += whole(inner);
                    }
                    *bytes += self.own_bytes();
                }
                removed
            }
        }
    }

    /// Whether it has nothing at all.
    fn is_empty(&self) -> bool {
        match self {
            Self::Leaf(keys) => keys.len() == 0,
            Self::Inner(inner) => inner.children.is_empty(),
        }
    }

    /// Whether it is to be joined with a neighbour, or to go.
    fn is_sparse(&self) -> bool {
        match self {
            Self::Leaf(keys) => {
                keys.len() < LEAF_KEYS / SPARSE && keys.suffix_bytes() < LEAF_BYTES / SPARSE
            }
            Self::Inner(inner) => inner.children.len() < CHILDREN / SPARSE,
        }
    }

    /// Whether it and the node behind it fill one node by half at most.
    fn is_joinable(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::Leaf(keys), Self::Leaf(next)) => {
                keys.len() + next.len() <= LEAF_KEYS / 2
                    && keys.suffix_bytes_joined(next) <= LEAF_BYTES / 2
            }
            (Self::Inner(inner), Self::Inner(next)) => {
                inner.children.len() + next.children.len() <= CHILDREN / 2
            }
            _ => false,
        }
    }

    /// Takes in the node behind it.
    fn join(&mut self, separator: &[u8], next: Self) {
        match (self, next) {
            (Self::Leaf(keys), Self::Leaf(next)) => keys.append(&next),
            (Self::Inner(inner), Self::Inner(next)) => {
                inner.separators.insert(inner.separators.len(), separator);
                inner.separators.append(&next.separators);
                inner.children.extend(next.children);
                inner.assert_sound();
            }
            _ => unreachable!("all leaves are equally deep"),
        }
    }

    /// The only child that it has, which takes its place.
    pub(super) fn take_only_child(&mut self, bytes: &mut usize) -> Option<Self> {
        let Self::Inner(inner) = self else { return None };
        if inner.children.len() > 1 {
            return None;
        }
        let child = inner.children.pop().map(|child| child.node);
        *bytes -= self.own_bytes();
        Some(child.unwrap_or_else(|| {
            let empty = Self::empty();
            *bytes += empty.own_bytes();
            empty
        }))
    }

    /// See [`OrderedKeys::walk`](super::OrderedKeys::walk); `key` is scratch.
    pub(super) fn walk(
        &self,
        wanted: Wanted<'_>,
        budget: &mut u32,
        key: &mut Vec<u8>,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Walked {
        match self {
            Self::Leaf(keys) => walk_leaf(keys, wanted, budget, key, visit),
            Self::Inner(inner) => inner.walk(wanted, budget, key, visit),
        }
    }

    /// Its children.
    #[cfg(test)]
    pub(super) fn children(&self) -> impl Iterator<Item = &Self> {
        let children = if let Self::Inner(inner) = self { &inner.children[..] } else { &[] };
        children.iter().map(|child| &child.node)
    }

    /// Leaves its children to others.
    pub(super) fn fall_into(self, nodes: &mut Vec<Self>) {
        if let Self::Inner(inner) = self {
            nodes.extend(inner.children.into_iter().map(|child| child.node));
        }
    }
}

fn walk_leaf(
    keys: &LeafKeys,
    wanted: Wanted<'_>,
    budget: &mut u32,
    key: &mut Vec<u8>,
    visit: &mut dyn FnMut(&[u8]) -> bool,
) -> Walked {
    let first = keys.find(wanted.from).unwrap_or_else(|place| place);
    let end = wanted.to.map(|to| keys.find(to).unwrap_or_else(|place| place));
    let count = end.unwrap_or(keys.len()).saturating_sub(first);
    key.clear();
    key.extend_from_slice(keys.prefix());
    for step in 0..count {
        let at = wanted.place(first, count, step);
        key.truncate(keys.prefix().len());
        key.extend_from_slice(keys.suffix(at));
        if *budget == 0 {
            return Walked::UpTo(match wanted.direction {
                Direction::Ascending => key.clone(),
                Direction::Descending => key_behind(key),
            });
        }
        *budget = budget.saturating_sub(cost_of(key));
        if !visit(key) {
            return Walked::Stopped;
        }
    }
    Walked::ToEnd
}

impl Wanted<'_> {
    /// The place that comes after so many steps, of `count` places from `first` on.
    fn place(&self, first: usize, count: usize, step: usize) -> usize {
        match self.direction {
            Direction::Ascending => first + step,
            Direction::Descending => first + count - 1 - step,
        }
    }
}

impl Inner {
    /// A node over a first child and what was split off it.
    pub(super) fn over(first: Child, split: Vec<SplitOff>, newest: Timestamp) -> Self {
        let mut inner = Self { separators: Packed::new(), children: vec![first] };
        for SplitOff { separator, node } in split {
            inner.separators.insert(inner.separators.len(), &separator);
            inner.children.push(Child { newest, node });
        }
        inner.assert_sound();
        inner
    }

    fn assert_sound(&self) {
        debug_assert_eq!(self.separators.len() + 1, self.children.len(), "one between each two");
    }

    /// In which child a key is, or would be.
    #[inline]
    fn child_of(&self, key: &[u8]) -> usize {
        self.separators.find(key).map_or_else(|place| place, |place| place + 1)
    }

    /// A child has become sparse: it goes when it is empty, or is joined with a neighbour.
    fn join_child(&mut self, place: usize) {
        if self.children[place].node.is_empty() {
            self.children.remove(place);
            if self.separators.len() > 0 {
                self.separators.remove(place.saturating_sub(1));
            }
            return;
        }
        // With the one before it or the one behind it: those may have become sparse at any time.
        let joinable = |left: &usize| {
            let pair = self.children.get(*left).zip(self.children.get(*left + 1));
            pair.is_some_and(|(left, next)| left.node.is_joinable(&next.node))
        };
        let before = place.checked_sub(1);
        let Some(left) = before.into_iter().chain([place]).find(joinable) else { return };
        let next = self.children.remove(left + 1);
        let separator = self.separators.get(left);
        self.separators.remove(left);
        let child = &mut self.children[left];
        child.newest = child.newest.max(next.newest);
        child.node.join(&separator, next.node);
        self.assert_sound();
    }

    fn walk(
        &self,
        wanted: Wanted<'_>,
        budget: &mut u32,
        key: &mut Vec<u8>,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Walked {
        let first = self.child_of(wanted.from);
        // What begins at the end of the range has nothing of it.
        let last = wanted.to.map(|to| self.separators.find(to).unwrap_or_else(|place| place));
        let count = (last.unwrap_or(self.children.len() - 1) + 1).saturating_sub(first);
        for step in 0..count {
            let at = wanted.place(first, count, step);
            // Before the descent, because only here is it known where the child begins: further
            // down the walk would have to begin again, and would never get past this place.
            if *budget == 0 && step > 0 {
                return Walked::UpTo(match wanted.direction {
                    Direction::Ascending => self.separators.get(at - 1),
                    Direction::Descending => self.separators.get(at),
                });
            }
            let child = &self.children[at];
            if wanted.above.is_none_or(|above| child.newest > above) {
                match child.node.walk(wanted, budget, key, visit) {
                    Walked::ToEnd => {}
                    ended => return ended,
                }
            } else {
                debug_assert!(
                    *budget > 0,
                    "a walk begins with some, and a child with what is left"
                );
                *budget -= 1;
            }
        }
        Walked::ToEnd
    }
}
