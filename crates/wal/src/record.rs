//! The records of the transaction log: what a shard must find again after a crash (DTranx §3.3.1,
//! "TranxLog").
//!
//! A batch is a run of length-prefixed records. [`LogRecord::encode`] appends one, prefix included,
//! to the shard's open batch; recovery hands out each record's bytes without the prefix, and
//! [`LogRecord::decode`] reads them in place. Records have no checksum of their own: the block
//! around them has one.
//!
//! Recovery must not depend on the order of records: a shard groups them by (transaction, commit
//! timestamp). Deliberately absent: the layout of a prepare's body, which is a slice of the wire's
//! frame and opaque here.

use timestone_types::{AbortKind, ClientId, PreviousFound, Sequence, ShardId, Timestamp, TxnId};

use crate::{BatchNumber, WalError};

/// Bytes of the length in front of every record of a batch.
pub const PREFIX_BYTES: usize = 4;

/// Where a byte carries what a single-key write found.
const FOUND_SHIFT: u8 = 4;

/// The lowest number that `Other` may use as its kind; smaller ones belong to this module.
pub const FIRST_OTHER_KIND: u8 = 64;

const PREPARE: u8 = 1;
const DECISION: u8 = 2;
const READ_BOUND: u8 = 3;
const KEEP_FROM: u8 = 4;

/// Who decided a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DecidedBy {
    /// Its own client, the coordinator.
    Client = 1,
    /// The participants, because the client was silent.
    Termination = 2,
}

impl DecidedBy {
    /// Who decided, by the number, as records store it.
    #[must_use]
    pub const fn from_u8(raw: u8) -> Option<Self> {
        match raw {
            1 => Some(Self::Client),
            2 => Some(Self::Termination),
            _ => None,
        }
    }
}

/// The participants of a transaction: a list of shards, borrowed from ids or from a record's bytes.
#[derive(Clone, Copy)]
pub struct Participants<'a>(List<'a>);

#[derive(Clone, Copy)]
enum List<'a> {
    Ids(&'a [ShardId]),
    Bytes(&'a [u8]),
}

impl<'a> Participants<'a> {
    /// A list of these shards; at most `u16::MAX` of them.
    #[must_use]
    pub const fn new(ids: &'a [ShardId]) -> Self {
        Self(List::Ids(ids))
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            List::Ids(ids) => ids.len(),
            List::Bytes(bytes) => bytes.len() / 2,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The shards, in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = ShardId> + 'a {
        let (ids, bytes): (&'a [ShardId], &'a [u8]) = match self.0 {
            List::Ids(ids) => (ids, &[]),
            List::Bytes(bytes) => (&[], bytes),
        };
        ids.iter().copied().chain(
            bytes.chunks_exact(2).map(|pair| ShardId::new(u16::from_le_bytes([pair[0], pair[1]]))),
        )
    }
}

impl PartialEq for Participants<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Participants<'_> {}

impl core::fmt::Debug for Participants<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogRecord<'a> {
    /// This shard promised to commit `txn` at `commit`; with `single`, the promise is the commit
    /// itself.
    Prepare {
        /// The transaction.
        txn: TxnId,
        /// Its snapshot.
        begin: Timestamp,
        /// The commit timestamp that was validated.
        commit: Timestamp,
        /// Whether this shard is the only one, so that the record commits the transaction.
        single: bool,
        /// What a single-key write found: a repeat is told so.
        found: PreviousFound,
        /// All shards that take part.
        participants: Participants<'a>,
        /// Write set and flags, opaque here.
        body: &'a [u8],
    },
    /// The transaction was decided: committed at `commit`, or aborted when that is zero. It says
    /// all that whoever asks or has to be told needs: the promise may leave the log first. Appended
    /// again, as it is, when old files are emptied.
    Decision {
        /// The transaction.
        txn: TxnId,
        /// Its snapshot.
        begin: Timestamp,
        /// The decided commit timestamp; [`Timestamp::ZERO`] is abort.
        commit: Timestamp,
        /// Who decided.
        decided_by: DecidedBy,
        /// Why it was aborted; `None` for a commit.
        abort: Option<AbortKind>,
        /// What a single-key write found, of a commit or of a condition that did not hold: a repeat
        /// is told so.
        found: PreviousFound,
        /// The timestamp of the version that a condition met which did not hold; zero otherwise.
        met: Timestamp,
        /// Of a commit over several shards: all of them. Empty otherwise.
        participants: Participants<'a>,
    },
    /// No read above `bound` was answered before a later record of this kind became durable; the
    /// watermark had reached `watermark`.
    ReadBound {
        /// Reads were answered at timestamps up to this one only.
        bound: Timestamp,
        /// The shard's watermark.
        watermark: Timestamp,
    },
    /// Nothing that this shard wrote in batches below `batch` is needed any more: what they
    /// promised was decided and applied. Files go one by one, and each log for itself, so a promise
    /// can outlast its decision; a recovery forgets it then.
    KeepFrom {
        /// The first batch that is needed.
        batch: BatchNumber,
    },
    /// A record of a kind that its writer knows; `kind` is at least [`FIRST_OTHER_KIND`].
    Other {
        /// The writer's number for it.
        kind: u8,
        /// Its content.
        bytes: &'a [u8],
    },
}

impl<'a> LogRecord<'a> {
    /// Appends the record with its length prefix.
    ///
    /// # Panics
    /// When `Other` uses a reserved kind, or the record is longer than a batch may be: bugs of the
    /// caller.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; PREFIX_BYTES]);
        match *self {
            Self::Prepare { txn, begin, commit, single, found, participants, body } => {
                out.push(PREPARE);
                put_txn(out, txn);
                put_time(out, begin);
                put_time(out, commit);
                out.push(u8::from(single) | (found as u8) << FOUND_SHIFT);
                put_participants(out, participants);
                out.extend_from_slice(body);
            }
            Self::Decision { txn, begin, commit, decided_by, abort, found, met, participants } => {
                assert_eq!(
                    abort.is_some(),
                    commit == Timestamp::ZERO,
                    "an abort has a kind and no commit timestamp"
                );
                out.push(DECISION);
                put_txn(out, txn);
                put_time(out, begin);
                put_time(out, if abort.is_some() { met } else { commit });
                out.push(decided_by as u8);
                out.push(abort.map_or(0, |kind| kind as u8) | (found as u8) << FOUND_SHIFT);
                put_participants(out, participants);
            }
            Self::ReadBound { bound, watermark } => {
                out.push(READ_BOUND);
                put_time(out, bound);
                put_time(out, watermark);
            }
            Self::KeepFrom { batch } => {
                out.push(KEEP_FROM);
                out.extend_from_slice(&batch.get().to_le_bytes());
            }
            Self::Other { kind, bytes } => {
                assert!(
                    kind >= FIRST_OTHER_KIND,
                    "kinds below {FIRST_OTHER_KIND} belong to the log's own records"
                );
                out.push(kind);
                out.extend_from_slice(bytes);
            }
        }
        let length = u32::try_from(out.len() - start - PREFIX_BYTES)
            .expect("a record is shorter than the largest batch");
        out[start..start + PREFIX_BYTES].copy_from_slice(&length.to_le_bytes());
    }

    /// Reads a record from its bytes without the prefix, as recovery hands them out.
    ///
    /// # Errors
    /// [`WalError::Record`] when the bytes do not follow the format.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WalError> {
        let mut reader = Reader { rest: bytes };
        let record = match reader.u8()? {
            PREPARE => {
                let (txn, begin, commit) = (reader.txn()?, reader.time()?, reader.time()?);
                let (single, found) = reader.flagged()?;
                let single = match single {
                    0 => false,
                    1 => true,
                    _ => {
                        return Err(WalError::Record {
                            detail: "its `single` flag is neither 0 nor 1",
                        });
                    }
                };
                let participants = reader.participants()?;
                Self::Prepare {
                    txn,
                    begin,
                    commit,
                    single,
                    found,
                    participants,
                    body: reader.all(),
                }
            }
            DECISION => {
                let (txn, begin, at) = (reader.txn()?, reader.time()?, reader.time()?);
                let decided_by = DecidedBy::from_u8(reader.u8()?)
                    .ok_or(WalError::Record { detail: "who decided is unknown" })?;
                let (abort, found) = reader.flagged()?;
                let abort = match abort {
                    0 => None,
                    kind => Some(
                        AbortKind::from_u8(kind)
                            .ok_or(WalError::Record { detail: "its kind of abort is unknown" })?,
                    ),
                };
                let (commit, met) = match abort {
                    None if at > Timestamp::ZERO => (at, Timestamp::ZERO),
                    Some(kind) if kind == AbortKind::Condition || at == Timestamp::ZERO => {
                        (Timestamp::ZERO, at)
                    }
                    _ => {
                        return Err(WalError::Record {
                            detail: "it is neither a commit nor an abort",
                        });
                    }
                };
                Self::Decision {
                    txn,
                    begin,
                    commit,
                    decided_by,
                    abort,
                    found,
                    met,
                    participants: reader.participants()?,
                }
            }
            READ_BOUND => Self::ReadBound { bound: reader.time()?, watermark: reader.time()? },
            KEEP_FROM => {
                Self::KeepFrom { batch: BatchNumber::new(u64::from_le_bytes(reader.array()?)) }
            }
            kind if kind >= FIRST_OTHER_KIND => Self::Other { kind, bytes: reader.all() },
            _ => return Err(WalError::Record { detail: "its kind is unknown" }),
        };
        if reader.rest.is_empty() {
            Ok(record)
        } else {
            Err(WalError::Record { detail: "bytes follow its end" })
        }
    }
}

fn put_txn(out: &mut Vec<u8>, txn: TxnId) {
    out.extend_from_slice(&txn.client.get().to_le_bytes());
    out.extend_from_slice(&txn.sequence.get().to_le_bytes());
}

fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    out.extend_from_slice(&time.as_nanos().to_le_bytes());
}

fn put_participants(out: &mut Vec<u8>, participants: Participants<'_>) {
    let count =
        u16::try_from(participants.len()).expect("a shard id has 16 bits, so do their number");
    out.extend_from_slice(&count.to_le_bytes());
    match participants.0 {
        List::Ids(ids) => ids.iter().for_each(|id| out.extend_from_slice(&id.get().to_le_bytes())),
        List::Bytes(bytes) => out.extend_from_slice(bytes),
    }
}

/// Appends the bytes of a record, as [`BatchRecords`] gives them, to a batch.
///
/// # Panics
/// The record is longer than a batch may be.
pub fn put_record(record: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(record.len()).expect("a record is shorter than the largest batch");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(record);
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], WalError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(WalError::Record { detail: "it ends too early" })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WalError> {
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(WalError::Record { detail: "it ends too early" })?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, WalError> {
        Ok(self.array::<1>()?[0])
    }

    /// A byte that carries what a write found in its upper half.
    fn flagged(&mut self) -> Result<(u8, PreviousFound), WalError> {
        let byte = self.u8()?;
        let found = PreviousFound::from_u8(byte >> FOUND_SHIFT)
            .ok_or(WalError::Record { detail: "what its write found is unknown" })?;
        Ok((byte & 0x0f, found))
    }

    fn time(&mut self) -> Result<Timestamp, WalError> {
        Ok(Timestamp::from_nanos(u64::from_le_bytes(self.array()?)))
    }

    fn txn(&mut self) -> Result<TxnId, WalError> {
        let client = ClientId::new(u32::from_le_bytes(self.array()?));
        Ok(TxnId::new(client, Sequence::new(u64::from_le_bytes(self.array()?))))
    }

    fn participants(&mut self) -> Result<Participants<'a>, WalError> {
        let count = usize::from(u16::from_le_bytes(self.array()?));
        Ok(Participants(List::Bytes(self.take(count * 2)?)))
    }

    fn all(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }
}

/// Iterates over the records of one batch, without their prefixes.
///
/// Yields an error once, and nothing after it, when the lengths do not add up.
#[derive(Clone, Copy, Debug)]
pub struct BatchRecords<'a> {
    rest: &'a [u8],
}

impl<'a> BatchRecords<'a> {
    /// Over the records of `batch`.
    #[must_use]
    pub const fn new(batch: &'a [u8]) -> Self {
        Self { rest: batch }
    }
}

impl<'a> Iterator for BatchRecords<'a> {
    type Item = Result<&'a [u8], WalError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let split = self.rest.split_first_chunk::<PREFIX_BYTES>().and_then(|(prefix, rest)| {
            let length = usize::try_from(u32::from_le_bytes(*prefix)).ok()?;
            rest.split_at_checked(length)
        });
        let Some((record, rest)) = split else {
            self.rest = &[];
            return Some(Err(WalError::Record { detail: "its length reaches beyond its batch" }));
        };
        self.rest = rest;
        Some(Ok(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples<'a>(ids: &'a [ShardId], body: &'a [u8]) -> Vec<LogRecord<'a>> {
        let txn = TxnId::new(ClientId::new(7), Sequence::new(0x0102_0304_0506_0708));
        let at = Timestamp::from_nanos(0x1112_1314_1516_1718);
        vec![
            LogRecord::Prepare {
                txn,
                begin: at,
                commit: at.next(),
                single: false,
                found: PreviousFound::Unasked,
                participants: Participants::new(ids),
                body,
            },
            LogRecord::Decision {
                txn,
                begin: at,
                commit: at.next(),
                decided_by: DecidedBy::Client,
                abort: None,
                found: PreviousFound::Present,
                met: Timestamp::ZERO,
                participants: Participants::new(ids),
            },
            LogRecord::Decision {
                txn,
                begin: at,
                commit: Timestamp::ZERO,
                decided_by: DecidedBy::Termination,
                abort: Some(AbortKind::Condition),
                found: PreviousFound::Absent,
                met: at.previous(),
                participants: Participants::new(&[]),
            },
            LogRecord::ReadBound { bound: at, watermark: at.previous() },
            LogRecord::KeepFrom { batch: BatchNumber::new(0x2122_2324_2526_2728) },
            LogRecord::Other { kind: FIRST_OTHER_KIND, bytes: body },
        ]
    }

    #[test]
    fn a_batch_of_every_kind_reads_back_as_written() {
        let ids = [ShardId::new(1), ShardId::new(0x0203)];
        let records = samples(&ids, b"body");
        let mut batch = Vec::new();
        records.iter().for_each(|record| record.encode(&mut batch));
        let read: Vec<_> = BatchRecords::new(&batch)
            .map(|bytes| LogRecord::decode(bytes.unwrap()).unwrap())
            .collect();
        assert_eq!(read, records);
        let mut again = Vec::new();
        read.iter().for_each(|record| record.encode(&mut again));
        assert_eq!(again, batch, "a decoded record encodes to the same bytes");
    }

    /// The rows of the table "Records" of docs/formats/wal.md: kind, name, bytes of the parts of
    /// fixed size.
    fn documented() -> Vec<(u8, String, usize)> {
        let page = include_str!("../../../docs/formats/wal.md");
        let section = page.split("## Records\n").nth(1).expect("the page has this section");
        let section = section.split("\n## ").next().expect("a section ends");
        let row = |line: &str| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let kind = cells.get(1)?.split(' ').next()?.parse().ok()?;
            // Explanations stand in parentheses; what is left is "name size, name size".
            let content: String = cells
                .get(3)?
                .split('(')
                .map(|part| part.rsplit(')').next().unwrap_or(""))
                .collect();
            let sizes = content
                .split(',')
                .filter_map(|part| part.split_whitespace().nth(1)?.parse::<usize>().ok());
            Some((kind, cells.get(2)?.to_string(), sizes.sum()))
        };
        section.lines().filter_map(row).collect()
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let rows = documented();
        assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), [1, 2, 3, 4, 64]);
        for record in samples(&[], b"") {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let row = rows
                .iter()
                .find(|row| row.0 == bytes[PREFIX_BYTES])
                .expect("every kind is documented");
            assert!(format!("{record:?}").starts_with(&row.1), "{record:?} is called {}", row.1);
            assert_eq!(bytes.len() - PREFIX_BYTES - 1, row.2, "size of {}", row.1);
        }
    }

    #[test]
    fn every_truncation_of_a_fixed_record_is_refused() {
        let mut batch = Vec::new();
        samples(&[], b"")[1].encode(&mut batch);
        let record = &batch[PREFIX_BYTES..];
        let (kind, abort) = (record[0], record.len() - 3);
        assert_eq!(kind, DECISION);
        for (damage, what) in
            [(0x30, "what its write found"), (0x0f, "its kind of abort"), (0x08, "neither")]
        {
            let mut other = record.to_vec();
            other[abort] = damage;
            let error = LogRecord::decode(&other).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        for length in 0..record.len() {
            assert!(
                LogRecord::decode(&record[..length]).is_err(),
                "{length} bytes of {} were accepted",
                record.len()
            );
        }
        let mut longer = record.to_vec();
        longer.push(0);
        assert!(LogRecord::decode(&longer).is_err());
    }

    #[test]
    fn a_length_beyond_the_batch_is_an_error_once() {
        let mut batch = Vec::new();
        samples(&[], b"")[2].encode(&mut batch);
        batch.extend_from_slice(&[9, 0, 0, 0, 1]);
        let read: Vec<_> = BatchRecords::new(&batch).map(|record| record.is_ok()).collect();
        assert_eq!(read, [true, false]);
    }
}
