//! The ranges that a transaction has read, as far as it has read them: what goes along in its prepares.
//!
//! ```text
//!   [a, c) read ── [c, f) read ──► [a, f)       ranges that touch or overlap are one
//! ```
//! A range is one of all shards: keys are spread over them by their hashes, and what came first was known
//! only when all of them had answered. The host reads the pages; here is what it says of them.
//! Invariant: no two ranges of a keyspace touch each other.

use timestone_types::limits::{MAX_TXN_RANGE_BYTES, MAX_TXN_RANGES};
use timestone_types::{Expiry, KeyspaceId};
use timestone_wire::{RangeEntry, RangeListWriter};

use crate::LimitError;

#[derive(Clone, Debug)]
struct RangeRead {
    keyspace: KeyspaceId,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    expires_at: Expiry,
}

impl RangeRead {
    fn bytes(&self) -> usize {
        self.from.len() + self.to.as_ref().map_or(0, Vec::len)
    }

    fn touches(&self, other: &Self) -> bool {
        let reaches = |one: &Self, next: &Self| one.to.as_ref().is_none_or(|to| *to >= next.from);
        self.keyspace == other.keyspace && reaches(self, other) && reaches(other, self)
    }

    /// Both as one.
    fn join(self, other: Self) -> Self {
        let to = match (self.to, other.to) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (None, _) | (_, None) => None,
        };
        let from = self.from.min(other.from);
        let expires_at = Expiry::at(self.expires_at.timestamp().min(other.expires_at.timestamp()));
        Self { keyspace: self.keyspace, from, to, expires_at }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ranges(Vec<RangeRead>);

impl Ranges {
    pub(crate) fn clear(&mut self) {
        self.0 = Vec::new();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A range was read at every shard, to its end; when the first of its values expires. Nothing is noted
    /// if there are too many.
    pub(crate) fn add(&mut self, read: &RangeEntry<'_>) -> Result<(), LimitError> {
        let RangeEntry { keyspace, from, to, expires_at } = *read;
        if to.is_some_and(|to| to <= from) {
            return Ok(());
        }
        let (from, to) = (from.to_vec(), to.map(<[u8]>::to_vec));
        let mut one = RangeRead { keyspace, from, to, expires_at };
        let (touching, mut apart): (Vec<_>, Vec<_>) =
            self.0.iter().cloned().partition(|other| other.touches(&one));
        for other in touching {
            one = one.join(other);
        }
        apart.push(one);
        if apart.len() > MAX_TXN_RANGES
            || apart.iter().map(RangeRead::bytes).sum::<usize>() > MAX_TXN_RANGE_BYTES
        {
            return Err(LimitError::TooManyRanges);
        }
        self.0 = apart;
        Ok(())
    }

    /// Laid out for a prepare.
    pub(crate) fn list(&self) -> RangeListWriter {
        let mut list = RangeListWriter::default();
        for RangeRead { keyspace, from, to, expires_at } in &self.0 {
            let (keyspace, expires_at, to) = (*keyspace, *expires_at, to.as_deref());
            list.push(&RangeEntry { keyspace, expires_at, from, to });
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::Timestamp;

    use super::*;

    const fn read<'a>(keyspace: u32, from: &'a [u8], to: Option<&'a [u8]>) -> RangeEntry<'a> {
        let keyspace = KeyspaceId::new(keyspace);
        RangeEntry { keyspace, from, to, expires_at: Expiry::NEVER }
    }

    fn shown(ranges: &Ranges) -> Vec<String> {
        let list = ranges.list();
        let show = |one: RangeEntry<'_>| {
            let to = one.to.unwrap_or_default().escape_ascii();
            format!("{}/{}..{to}", one.keyspace, one.from.escape_ascii())
        };
        list.entries().map(show).collect()
    }

    #[test]
    fn ranges_that_touch_are_one() {
        let mut ranges = Ranges::default();
        for (from, to) in [(&b"a"[..], &b"c"[..]), (b"x", b"z"), (b"d", b"f"), (b"c", b"d")] {
            ranges.add(&read(1, from, Some(to))).unwrap();
        }
        ranges.add(&read(2, b"f", Some(b"x"))).unwrap();
        ranges.add(&read(1, b"k", Some(b"k"))).unwrap();
        assert_eq!(shown(&ranges), ["1/x..z", "1/a..f", "2/f..x"]);
        ranges.add(&read(1, b"e", None)).unwrap();
        assert_eq!(shown(&ranges), ["2/f..x", "1/a.."]);
        ranges.clear();
        assert!(ranges.is_empty());
    }

    #[test]
    fn what_expires_first_counts_and_there_are_not_too_many() {
        let mut ranges = Ranges::default();
        let at = |nanos| Expiry::at(Timestamp::from_nanos(nanos));
        for (expires_at, from, to) in [(at(5), &b"b"[..], &b"c"[..]), (at(3), b"a", b"b")] {
            ranges.add(&RangeEntry { expires_at, ..read(1, from, Some(to)) }).unwrap();
        }
        assert_eq!(ranges.list().entries().next().unwrap().expires_at, at(3));
        let mut ranges = Ranges::default();
        for n in 0..MAX_TXN_RANGES as u32 {
            let (from, to) = ((2 * n).to_be_bytes(), (2 * n + 1).to_be_bytes());
            ranges.add(&read(1, &from, Some(&to))).unwrap();
        }
        assert_eq!(ranges.add(&read(2, b"a", None)), Err(LimitError::TooManyRanges));
        assert_eq!(ranges.list().entries().len(), MAX_TXN_RANGES);
        // It takes the others in, so that one is left, which is too long.
        let long = vec![1; MAX_TXN_RANGE_BYTES + 1];
        assert_eq!(ranges.add(&read(1, b"", Some(&long))), Err(LimitError::TooManyRanges));
    }
}
