//! Ranges of keys: what transactions read and validate, and what stores look through.

use core::cmp::Ordering;

use crate::KeyspaceId;

/// In which order the keys of a range are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// From the lowest key on.
    #[default]
    Ascending,
    /// From the highest key down.
    Descending,
}

impl Direction {
    /// How two keys follow each other in it.
    #[inline]
    #[must_use]
    pub fn compare(self, one: &[u8], other: &[u8]) -> Ordering {
        match self {
            Self::Ascending => one.cmp(other),
            Self::Descending => other.cmp(one),
        }
    }
}

/// Keys of one keyspace that follow each other in the order of their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyRange<'a> {
    /// The keyspace, whose keys are in order ([`KeyspaceId::is_ordered`]).
    pub keyspace: KeyspaceId,
    /// The first key that is part of it, whether or not that is there.
    pub from: &'a [u8],
    /// The first key behind it; `None`: it goes on to the end of the keyspace.
    pub to: Option<&'a [u8]>,
}

impl<'a> KeyRange<'a> {
    /// All keys of a keyspace.
    #[must_use]
    pub const fn all(keyspace: KeyspaceId) -> Self {
        Self { keyspace, from: &[], to: None }
    }

    /// The keys that begin with `prefix`; `end` is its [`prefix_end`].
    ///
    /// ```
    /// use timestone_types::{KeyRange, KeyspaceId, prefix_end};
    /// let keyspace = KeyspaceId::numbered(1, false).ordered();
    /// let end = prefix_end(b"user:");
    /// let users = KeyRange::prefix(keyspace, b"user:", end.as_deref());
    /// assert!(users.contains(b"user:7") && !users.contains(b"user;"));
    /// ```
    #[must_use]
    pub fn prefix(keyspace: KeyspaceId, prefix: &'a [u8], end: Option<&'a [u8]>) -> Self {
        debug_assert_eq!(end, prefix_end(prefix).as_deref(), "where the keys with the prefix end");
        Self { keyspace, from: prefix, to: end }
    }

    /// Whether a key lies in it.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.from && self.to.is_none_or(|to| key < to)
    }

    /// Whether every key of another one lies in it.
    #[must_use]
    pub fn covers(&self, other: &KeyRange<'_>) -> bool {
        let ends_behind = match (self.to, other.to) {
            (None, _) => true,
            (Some(own), Some(theirs)) => own >= theirs,
            (Some(_), None) => false,
        };
        self.keyspace == other.keyspace && self.from <= other.from && ends_behind
    }

    /// Whether no key can lie in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.to.is_some_and(|to| to <= self.from)
    }
}

/// The first key behind another one.
///
/// ```
/// assert_eq!(timestone_types::key_behind(b"a"), b"a\0");
/// ```
#[must_use]
pub fn key_behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The first key behind all those that begin with `prefix`; `None` when nothing lies behind them:
/// the prefix is empty, or made of 0xff alone.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_behind_its_keys_and_not_behind_others() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b""), None);
        assert_eq!(prefix_end(b"\xff\xff"), None);
        let range = KeyRange { keyspace: KeyspaceId::new(1), from: b"b", to: Some(b"b") };
        assert!(range.is_empty() && !range.contains(b"b"));
        assert!(KeyRange::all(KeyspaceId::new(1)).contains(b""));
    }
}
