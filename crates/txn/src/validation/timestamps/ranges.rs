//! At which timestamps ranges of keys were read: nothing commits in a range at or below its record.
//!
//! ```text
//!   records  [ keyspace, from, to, at ] …       ascending by `at`, a bounded number of them
//!      └─ no room ──▶ the lowest one goes, and counts for its whole keyspace
//! ```
//! Records of reads lie below the clock, because a transaction begins before it writes: the one for a
//! whole keyspace that a full list falls back to costs a write a later timestamp only if it comes from a clock
//! that is behind. Invariants: what a record says holds until the low-water timestamp has passed it,
//! here or for its keyspace; no record covers another one that is not higher.

use timestone_types::{KeyRange, KeyspaceId, Timestamp};

use crate::limits::{MAX_RANGE_RECORD_BYTES, MAX_RANGE_RECORDS};

#[derive(Debug)]
struct RangeRecord {
    at: Timestamp,
    keyspace: KeyspaceId,
    from: Box<[u8]>,
    to: Option<Box<[u8]>>,
}

impl RangeRecord {
    fn range(&self) -> KeyRange<'_> {
        KeyRange { keyspace: self.keyspace, from: &self.from, to: self.to.as_deref() }
    }

    fn bytes(&self) -> usize {
        self.from.len() + self.to.as_ref().map_or(0, |to| to.len())
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RangeRecords {
    records: Vec<RangeRecord>,
    bytes: usize,
}

impl RangeRecords {
    /// A range is read at a timestamp. What there is no room for is handed to `fold`: it counts for
    /// its keyspace from then on.
    pub(super) fn note(
        &mut self,
        range: KeyRange<'_>,
        at: Timestamp,
        mut fold: impl FnMut(KeyspaceId, Timestamp),
    ) {
        if range.is_empty()
            || self.records.iter().any(|record| record.at >= at && record.range().covers(&range))
        {
            return;
        }
        let KeyRange { keyspace, from, to } = range;
        self.retain(|record| record.at > at || !range.covers(&record.range()));
        let place = self.records.partition_point(|record| record.at <= at);
        let record = RangeRecord { at, keyspace, from: from.into(), to: to.map(Into::into) };
        self.bytes += record.bytes();
        self.records.insert(place, record);
        while self.records.len() > MAX_RANGE_RECORDS || self.bytes > MAX_RANGE_RECORD_BYTES {
            let lowest = self.records.remove(0);
            self.bytes -= lowest.bytes();
            fold(lowest.keyspace, lowest.at);
        }
    }

    /// The highest record at or above `above` that covers a key; zero if there is none.
    #[inline]
    pub(super) fn read_at(&self, keyspace: KeyspaceId, key: &[u8], above: Timestamp) -> Timestamp {
        let highest = self.records.iter().rev().take_while(|record| record.at >= above);
        let covers =
            |record: &&RangeRecord| record.keyspace == keyspace && record.range().contains(key);
        highest.filter(covers).map(|record| record.at).next().unwrap_or(Timestamp::ZERO)
    }

    /// The highest timestamp at which any range of a keyspace was read.
    pub(super) fn newest(&self, keyspace: KeyspaceId) -> Timestamp {
        let mut highest = self.records.iter().rev().filter(|record| record.keyspace == keyspace);
        highest.next().map_or(Timestamp::ZERO, |record| record.at)
    }

    /// Forgets what the low-water timestamp stands for.
    pub(super) fn drop_through(&mut self, low_water: Timestamp) {
        self.retain(|record| record.at > low_water);
    }

    fn retain(&mut self, keeps: impl Fn(&RangeRecord) -> bool) {
        let bytes = &mut self.bytes;
        self.records.retain(|record| {
            let keeps = keeps(record);
            *bytes -= if keeps { 0 } else { record.bytes() };
            keeps
        });
        debug_assert!(
            !self.records.is_empty() || self.bytes == 0,
            "the sum is that of the records"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYSPACE: KeyspaceId = KeyspaceId::new(7);

    const fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    const fn range<'a>(from: &'a [u8], to: Option<&'a [u8]>) -> KeyRange<'a> {
        KeyRange { keyspace: KEYSPACE, from, to }
    }

    #[test]
    fn a_record_covers_its_range_and_the_highest_one_counts() {
        let mut records = RangeRecords::default();
        let mut note = |range, time| records.note(range, at(time), |_, _| panic!("there is room"));
        note(range(b"b", Some(b"d")), 5);
        note(range(b"c", None), 9);
        note(range(b"c", Some(b"cc")), 7);
        let read = |key: &[u8], above| records.read_at(KEYSPACE, key, at(above)).as_nanos();
        assert_eq!(records.records.len(), 2, "the last one is covered");
        assert_eq!((read(b"a", 0), read(b"b", 0), read(b"c", 0), read(b"d", 0)), (0, 5, 9, 9));
        assert_eq!((read(b"b", 5), read(b"b", 6), read(b"zz", 9)), (5, 0, 9));
        assert_eq!(records.read_at(KeyspaceId::new(8), b"b", at(0)), at(0));
        assert_eq!(records.newest(KEYSPACE), at(9));
    }

    #[test]
    fn what_is_covered_goes_and_the_bytes_are_counted() {
        let mut records = RangeRecords::default();
        for key in 0..20_u8 {
            records.note(range(&[key], Some(&[key + 1])), at(u64::from(key)), |_, _| ());
        }
        assert_eq!((records.records.len(), records.bytes), (20, 40));
        records.note(range(b"", None), at(30), |_, _| panic!("there is room"));
        assert_eq!((records.records.len(), records.bytes), (1, 0));
        records.note(range(b"x", Some(b"x")), at(40), |_, _| panic!("there is room"));
        assert_eq!(records.records.len(), 1, "an empty range is no range");
        records.drop_through(at(30));
        assert!(records.records.is_empty());
    }

    #[test]
    fn what_there_is_no_room_for_counts_for_its_keyspace() {
        let (mut records, mut folded) = (RangeRecords::default(), Vec::new());
        for n in 0..MAX_RANGE_RECORDS as u32 + 3 {
            let (from, to) = (n.to_be_bytes(), (n + 1).to_be_bytes());
            let time = at(100 + u64::from(n));
            records.note(range(&from, Some(&to)), time, |keyspace, at| folded.push((keyspace, at)));
        }
        assert_eq!(folded, [(KEYSPACE, at(100)), (KEYSPACE, at(101)), (KEYSPACE, at(102))]);
        let long = vec![b'l'; MAX_RANGE_RECORD_BYTES / 2 + 1];
        records.note(range(&long, None), at(900), |_, _| ());
        folded.clear();
        let longer = [&long[..], b"l"].concat();
        records
            .note(range(b"", Some(&longer)), at(800), |keyspace, at| folded.push((keyspace, at)));
        assert_eq!(folded.last(), Some(&(KEYSPACE, at(800))));
        assert!(records.bytes <= MAX_RANGE_RECORD_BYTES);
    }
}
