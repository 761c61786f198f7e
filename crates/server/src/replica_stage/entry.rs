//! What a replica has in its log: each log batch is a mark, or a batch of the shard.
//!
//! ```text
//!   log batch (numbered by the replica's own count)
//!     record 1   Other: mark                             promised epoch, lineage, lease, what counts
//!                Other: number, epoch, first record, lease of a batch ─► the batch's records follow
//! ```
//! Both begin with the first batch of the shard that is still needed from this log: what is below
//! it is in the store, and counts. And with the life of the replica: what an earlier life wrote is
//! void. The layout is in docs/formats/wal.md.

use std::sync::Arc;

use timestone_replication::{Batch, Entry, GivenUp, Lineage, Mark, NumberSet};
use timestone_types::{Epoch, Timestamp};
use timestone_wal::record::{FIRST_OTHER_KIND, PREFIX_BYTES};
use timestone_wal::{BatchNumber, BatchRecords, LogRecord, RecordNumber};

use super::bytes::LogBytes;

/// The kind of a record that says which batch follows.
const BATCH: u8 = FIRST_OTHER_KIND;
/// The kind of a mark.
const MARK: u8 = FIRST_OTHER_KIND + 1;

/// What stands in front of an entry.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct EntryHead {
    /// The first batch that the log was needed for when it was written.
    pub(super) keep_from: BatchNumber,
    /// The replica's life: how often it has given up all that it had.
    pub(super) life: u32,
}

/// Something was lost.
const LOST: u8 = 1;
/// Everything before is void.
const EMPTIED: u8 = 2;
/// What was given up is known.
const GIVEN_UP: u8 = 4;

/// Appends the records of an entry. How many records they are.
pub(super) fn encode(entry: &Entry<LogBytes>, head: EntryHead, out: &mut Vec<u8>) -> u64 {
    let mut bytes = Vec::with_capacity(64);
    bytes.extend(head.keep_from.get().to_le_bytes());
    bytes.extend(head.life.to_le_bytes());
    match entry {
        Entry::Batch(batch) => {
            bytes.extend(batch.number.get().to_le_bytes());
            bytes.extend(batch.epoch.get().to_le_bytes());
            bytes.extend(batch.payload.first.get().to_le_bytes());
            bytes.extend(batch.lease.as_nanos().to_le_bytes());
            LogRecord::Other { kind: BATCH, bytes: &bytes }.encode(out);
            out.extend_from_slice(&batch.payload.records);
            1 + BatchRecords::new(&batch.payload.records).count() as u64
        }
        Entry::Mark(mark) => {
            bytes.extend(mark.promised.get().to_le_bytes());
            bytes.extend(mark.lease.as_nanos().to_le_bytes());
            bytes.extend(mark.counted.get().to_le_bytes());
            let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
            let lost = flag(mark.lost_before.is_some(), LOST);
            let given_up = flag(mark.given_up.is_some(), GIVEN_UP);
            bytes.push(lost | flag(mark.emptied, EMPTIED) | given_up);
            bytes.extend(mark.lost_before.unwrap_or_default().get().to_le_bytes());
            bytes.extend(mark.session.to_le_bytes());
            if let Some(given_up) = &mark.given_up {
                encode_given_up(given_up, &mut bytes);
            }
            encode_lineage(&mark.lineage, &mut bytes);
            LogRecord::Other { kind: MARK, bytes: &bytes }.encode(out);
            1
        }
    }
}

fn encode_lineage(lineage: &Lineage, out: &mut Vec<u8>) {
    for (epoch, end) in lineage.epochs() {
        out.extend(epoch.get().to_le_bytes());
        out.extend(end.get().to_le_bytes());
    }
}

fn encode_given_up(given_up: &GivenUp, out: &mut Vec<u8>) {
    let GivenUp { lineage, had } = given_up;
    out.extend((lineage.epochs().len() as u32).to_le_bytes());
    encode_lineage(lineage, out);
    out.extend(had.prefix().get().to_le_bytes());
    out.extend((had.runs().len() as u32).to_le_bytes());
    for (first, last) in had.runs() {
        out.extend(first.get().to_le_bytes());
        out.extend(last.get().to_le_bytes());
    }
}

/// Reads numbers from the front of a record.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*first))
    }

    fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    fn number(&mut self) -> Option<BatchNumber> {
        self.u64().map(BatchNumber::new)
    }

    fn epoch(&mut self) -> Option<Epoch> {
        self.u32().map(Epoch::new)
    }

    fn time(&mut self) -> Option<Timestamp> {
        self.u64().map(Timestamp::from_nanos)
    }

    fn of_lineage(&mut self) -> Option<(Epoch, BatchNumber)> {
        Some((self.epoch()?, self.number()?))
    }

    fn given_up(&mut self) -> Option<GivenUp> {
        let epochs = (0..self.u32()?).map(|_| self.of_lineage()).collect::<Option<_>>()?;
        let (lineage, through) = (Lineage::new(epochs)?, self.number()?);
        let runs = (0..self.u32()?).map(|_| Some((self.number()?, self.number()?)));
        let had = NumberSet::new(through, runs.collect::<Option<_>>()?)?;
        Some(GivenUp { lineage, had })
    }
}

/// An entry, and what stands in front of it. `bytes` are the records of one log batch. `None`: they
/// are none of a replica's.
pub(super) fn decode(bytes: &[u8]) -> Option<(EntryHead, Entry<LogBytes>)> {
    let head = BatchRecords::new(bytes).next()?.ok()?;
    let records = &bytes[PREFIX_BYTES + head.len()..];
    let Ok(LogRecord::Other { kind, bytes }) = LogRecord::decode(head) else { return None };
    let mut fields = Fields(bytes);
    let head = EntryHead { keep_from: fields.number()?, life: fields.u32()? };
    let entry = match kind {
        BATCH => {
            let (number, epoch) = (fields.number()?, fields.epoch()?);
            let (first, lease) = (RecordNumber::new(fields.u64()?), fields.time()?);
            let payload = LogBytes { first, records: Arc::from(records) };
            Entry::Batch(Batch { number, epoch, lease, payload })
        }
        MARK => {
            let (promised, lease, counted) = (fields.epoch()?, fields.time()?, fields.number()?);
            let (flags, before) = (fields.u8()?, fields.epoch()?);
            if flags & !(LOST | EMPTIED | GIVEN_UP) != 0 {
                return None;
            }
            let session = fields.u64()?;
            let given_up = match flags & GIVEN_UP != 0 {
                true => Some(fields.given_up()?),
                false => None,
            };
            let mut epochs = Vec::new();
            while !fields.0.is_empty() {
                epochs.push(fields.of_lineage()?);
            }
            let lineage = Lineage::new(epochs)?;
            let lost_before = (flags & LOST != 0).then_some(before);
            let emptied = flags & EMPTIED != 0;
            let mark =
                Mark { promised, lineage, lease, counted, lost_before, emptied, session, given_up };
            Entry::Mark(mark)
        }
        _ => return None,
    };
    fields.0.is_empty().then_some((head, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Entry<LogBytes> {
        let mut records = Vec::new();
        let bound =
            LogRecord::ReadBound { bound: Timestamp::from_nanos(7), watermark: Timestamp::ZERO };
        bound.encode(&mut records);
        LogRecord::KeepFrom { batch: BatchNumber::new(3) }.encode(&mut records);
        let payload = LogBytes { first: RecordNumber::new(12), records: Arc::from(records) };
        let (number, epoch, lease) = (BatchNumber::new(9), Epoch::new(2), Timestamp::from_nanos(7));
        Entry::Batch(Batch { number, epoch, lease, payload })
    }

    fn mark() -> Entry<LogBytes> {
        let epochs = vec![(Epoch::ZERO, BatchNumber::ZERO), (Epoch::new(4), BatchNumber::new(8))];
        let lineage = Lineage::new(epochs).unwrap();
        let runs = vec![(BatchNumber::new(12), BatchNumber::new(14))];
        let had = NumberSet::new(BatchNumber::new(10), runs).unwrap();
        Entry::Mark(Mark {
            promised: Epoch::new(5),
            given_up: Some(GivenUp { lineage: lineage.clone(), had }),
            lineage,
            lease: Timestamp::from_nanos(77),
            counted: BatchNumber::new(8),
            lost_before: Some(Epoch::new(3)),
            emptied: true,
            session: 12,
        })
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        for (entry, records) in [(batch(), 3), (mark(), 1)] {
            let mut bytes = Vec::new();
            let head = EntryHead { keep_from: BatchNumber::new(6), life: 7 };
            assert_eq!(encode(&entry, head, &mut bytes), records);
            assert_eq!(decode(&bytes), Some((head, entry)));
        }
    }

    #[test]
    fn the_lease_of_a_batch_is_its_highest_read_bound() {
        let Entry::Batch(batch) = batch() else { panic!("a batch") };
        assert_eq!(super::super::bytes::lease_in(&batch.payload.records), batch.lease);
    }

    #[test]
    fn what_no_replica_wrote_is_no_entry() {
        let mut plain = Vec::new();
        LogRecord::KeepFrom { batch: BatchNumber::ZERO }.encode(&mut plain);
        assert_eq!(decode(&plain), None);
        let mut bytes = Vec::new();
        encode(&mark(), EntryHead::default(), &mut bytes);
        let LogRecord::Other { kind, bytes } = LogRecord::decode(&bytes[4..]).unwrap() else {
            panic!("a mark")
        };
        for length in 0..bytes.len() {
            let mut cut = Vec::new();
            LogRecord::Other { kind, bytes: &bytes[..length] }.encode(&mut cut);
            // A lineage may end with any of its epochs, but for none.
            let ends = length == bytes.len() - 12;
            assert_eq!(decode(&cut).is_some(), ends, "{length}");
        }
    }
}
