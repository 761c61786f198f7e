//! The body of a prepare: the reads and writes of one transaction at one participant.
//!
//! ```text
//!   u32 reads │ u32 writes │ read entries │ write entries
//!   read   keyspace 4 · version 8+4 · expires 8 · absent 1 · key length 4 · key
//!   write  keyspace 4 · kind 1 · expires 8 · key length 4 · value length 4 · key · value
//! ```
//! The region is contiguous and can be read alone: the shard hands exactly these bytes to the log
//! and reads them again at recovery. It is checked once, by [`PrepareBody::parse`], and iterated in
//! place after that. Source: MILANA §4.2 (what a prepare carries), docs/protocol/transactions.md,
//! "Validation".

use timestone_types::limits::{MAX_KEY_BYTES, MAX_TXN_BYTES, MAX_TXN_KEYS, MAX_VALUE_BYTES};
use timestone_types::{Expiry, KeyspaceId, ShardId, Timestamp, TxnId, Version};

use crate::layout::{Codec, Fixed, bounded, checked_codec, entries};
use crate::limits::ENTRY_OVERHEAD_BYTES;
use crate::list::{OpenFrame, Shards};
use crate::range::{PrepareRanges, RangeEntries};
use crate::request::Prepare;
use crate::value::WriteKind;
use crate::{Envelope, Message, WireError};

/// One key that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadEntry<'a> {
    /// The key's keyspace.
    pub keyspace: KeyspaceId,
    /// The version that was read; all absences are equal in validation.
    pub version: Version,
    /// Whether it was absent.
    pub absent: bool,
    /// When the record expires: it must not have at commit.
    pub expires_at: Expiry,
    /// The key.
    pub key: &'a [u8],
}

/// One key to be written, or a fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteEntry<'a> {
    /// The key's keyspace.
    pub keyspace: KeyspaceId,
    /// What to do.
    pub kind: WriteKind,
    /// When the value expires; [`Expiry::NEVER`] for deletes and fences.
    pub expires_at: Expiry,
    /// The key; empty for a fence.
    pub key: &'a [u8],
    /// The value; empty for deletes and fences.
    pub value: &'a [u8],
}

const BODY_HEAD: usize = 8;
const READ_HEAD: usize = 4 + <Version as Fixed>::BYTES + 8 + 1 + 4;
const WRITE_HEAD: usize = 4 + 1 + 8 + 4 + 4;

const _: () = assert!(READ_HEAD <= ENTRY_OVERHEAD_BYTES && WRITE_HEAD <= ENTRY_OVERHEAD_BYTES);

const BAD_READ: WireError = WireError::BadField { field: "a read of a prepare" };
const BAD_WRITE: WireError = WireError::BadField { field: "a write of a prepare" };

#[inline]
fn split_read(bytes: &[u8]) -> Result<(ReadEntry<'_>, &[u8]), WireError> {
    let (head, rest) = bytes.split_first_chunk::<READ_HEAD>().ok_or(BAD_READ)?;
    let key_bytes = u32::load(&head[25..29])? as usize;
    bounded("a key's bytes", key_bytes, MAX_KEY_BYTES)?;
    let (key, rest) = rest.split_at_checked(key_bytes).ok_or(BAD_READ)?;
    let entry = ReadEntry {
        keyspace: Fixed::load(&head[0..4])?,
        version: Fixed::load(&head[4..16])?,
        expires_at: Fixed::load(&head[16..24])?,
        absent: Fixed::load(&head[24..25])?,
        key,
    };
    Ok((entry, rest))
}

#[inline]
fn split_write(bytes: &[u8]) -> Result<(WriteEntry<'_>, &[u8]), WireError> {
    let (head, rest) = bytes.split_first_chunk::<WRITE_HEAD>().ok_or(BAD_WRITE)?;
    let (key_bytes, value_bytes) =
        (u32::load(&head[13..17])? as usize, u32::load(&head[17..21])? as usize);
    bounded("a key's bytes", key_bytes, MAX_KEY_BYTES)?;
    bounded("a value's bytes", value_bytes, MAX_VALUE_BYTES)?;
    let (key, rest) = rest.split_at_checked(key_bytes).ok_or(BAD_WRITE)?;
    let (value, rest) = rest.split_at_checked(value_bytes).ok_or(BAD_WRITE)?;
    let entry = WriteEntry {
        keyspace: Fixed::load(&head[0..4])?,
        kind: Fixed::load(&head[4..5])?,
        expires_at: Fixed::load(&head[5..13])?,
        key,
        value,
    };
    if entry.well_formed() { Ok((entry, rest)) } else { Err(BAD_WRITE) }
}

#[inline]
fn append_write(entry: &WriteEntry<'_>, out: &mut Vec<u8>) {
    let mut head = [0u8; WRITE_HEAD];
    entry.keyspace.store(&mut head[0..4]);
    entry.kind.store(&mut head[4..5]);
    entry.expires_at.store(&mut head[5..13]);
    (entry.key.len() as u32).store(&mut head[13..17]);
    (entry.value.len() as u32).store(&mut head[17..21]);
    out.reserve(WRITE_HEAD + entry.key.len() + entry.value.len());
    out.extend_from_slice(&head);
    out.extend_from_slice(entry.key);
    out.extend_from_slice(entry.value);
}

impl WriteEntry<'_> {
    /// Whether the fields fit the kind.
    #[inline]
    fn well_formed(&self) -> bool {
        match self.kind {
            WriteKind::Put => true,
            WriteKind::Delete => self.value.is_empty(),
            WriteKind::Fence => self.value.is_empty() && self.key.is_empty(),
        }
    }
}

/// The reads and writes of one transaction at one participant, checked and ready to be iterated in
/// place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrepareBody<'a> {
    bytes: &'a [u8],
    reads: u32,
    writes: u32,
    writes_at: usize,
}

impl<'a> PrepareBody<'a> {
    /// Neither reads nor writes.
    pub const EMPTY: PrepareBody<'static> =
        PrepareBody { bytes: &[0; BODY_HEAD], reads: 0, writes: 0, writes_at: BODY_HEAD };

    /// Checks a body: from a frame, or from the log.
    ///
    /// # Errors
    /// [`WireError::BadField`] for bytes that do not follow the layout, [`WireError::TooLong`] for
    /// what is above a limit.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (head, mut rest) = bytes.split_first_chunk::<BODY_HEAD>().ok_or(BAD_READ)?;
        let (reads, writes) = (u32::load(&head[0..4])?, u32::load(&head[4..8])?);
        bounded("keys of a transaction", reads as usize + writes as usize, MAX_TXN_KEYS)?;
        let mut carried = 0;
        for _ in 0..reads {
            let (entry, after) = split_read(rest)?;
            carried += entry.key.len();
            rest = after;
        }
        let writes_at = bytes.len() - rest.len();
        for _ in 0..writes {
            let (entry, after) = split_write(rest)?;
            carried += entry.key.len() + entry.value.len();
            rest = after;
        }
        if !rest.is_empty() {
            return Err(WireError::BadField { field: "the end of a prepare's body" });
        }
        bounded("bytes of a transaction", carried, MAX_TXN_BYTES)?;
        Ok(Self { bytes, reads, writes, writes_at })
    }

    /// Lays out a body that is one write, at the end of `out`, as [`PrepareBody::parse`] takes it.
    ///
    /// # Panics
    /// A delete has a value, or a fence key or value.
    #[inline]
    pub fn of_one_write(entry: &WriteEntry<'_>, out: &mut Vec<u8>) {
        assert!(entry.well_formed(), "deletes have no value, fences neither key nor value");
        let mut head = [0u8; BODY_HEAD];
        1u32.store(&mut head[4..8]);
        out.extend_from_slice(&head);
        append_write(entry, out);
    }

    /// Exactly the region, as [`PrepareBody::parse`] takes it.
    #[must_use]
    #[inline]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The writes alone, at the end of `out`, as a body that [`PrepareBody::parse`] takes: what is
    /// kept of a prepare once it is validated.
    #[inline]
    pub fn append_writes(&self, out: &mut Vec<u8>) {
        let writes = &self.bytes[self.writes_at..];
        let mut head = [0u8; BODY_HEAD];
        self.writes.store(&mut head[4..8]);
        out.reserve(BODY_HEAD + writes.len());
        out.extend_from_slice(&head);
        out.extend_from_slice(writes);
    }

    /// How many bytes [`PrepareBody::append_writes`] appends.
    #[must_use]
    #[inline]
    pub const fn bytes_of_writes(&self) -> usize {
        BODY_HEAD + self.bytes.len() - self.writes_at
    }

    /// How many writes a body has that [`PrepareBody::parse`] took: read from its head alone.
    #[must_use]
    #[inline]
    pub fn write_count(bytes: &[u8]) -> u32 {
        bytes.get(4..8).and_then(|count| u32::load(count).ok()).unwrap_or(0)
    }

    /// The reads, in order.
    #[must_use]
    #[inline]
    pub fn reads(&self) -> ReadEntries<'a> {
        ReadEntries { count: self.reads, bytes: &self.bytes[BODY_HEAD..self.writes_at] }
    }

    /// The writes, in order.
    #[must_use]
    #[inline]
    pub fn writes(&self) -> WriteEntries<'a> {
        WriteEntries { count: self.writes, bytes: &self.bytes[self.writes_at..] }
    }
}

entries! {
    /// The reads of a prepare.
    ReadEntries, ReadEntry, split_read
}
entries! {
    /// The writes of a prepare.
    WriteEntries, WriteEntry, split_write
}

checked_codec! {
    /// [`PrepareBody`] as a variable field.
    BodyCodec, PrepareBody, parse
}

/// What a prepare says besides its reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrepareHead<'a> {
    /// The transaction.
    pub txn: TxnId,
    /// Its begin.
    pub begin: Timestamp,
    /// Its commit timestamp in this round.
    pub commit: Timestamp,
    /// The shard is the only participant.
    pub single: bool,
    /// Whether to wait (bounded) for the decision of a prepared write.
    pub wait: bool,
    /// All participants, the same in every round.
    pub participants: &'a [ShardId],
}

/// Writes a [`Prepare`] frame straight from read and write sets: first all reads, then all writes.
///
/// Limits are checked at `put` and when keys are read, long before; a body above them is a fault of
/// the caller and panics in [`PrepareWriter::finish`]. Dropped without `finish`, it leaves nothing
/// behind.
#[derive(Debug)]
pub struct PrepareWriter<'v> {
    frame: OpenFrame<'v>,
    reads: u32,
    writes: u32,
}

impl<'v> PrepareWriter<'v> {
    /// Opens a frame at the end of `out`.
    #[inline]
    pub fn begin(envelope: &Envelope, head: &PrepareHead<'_>, out: &'v mut Vec<u8>) -> Self {
        Self::begin_with(envelope, head, RangeEntries::EMPTY, out)
    }

    /// Opens a frame at the end of `out`, of a transaction that has read ranges at this participant: a
    /// [`PrepareRanges`], unless there are none.
    #[inline]
    pub fn begin_with(
        envelope: &Envelope,
        head: &PrepareHead<'_>,
        ranges: RangeEntries<'_>,
        out: &'v mut Vec<u8>,
    ) -> Self {
        let start = out.len();
        let PrepareHead { txn, begin, commit, single, wait, participants } = *head;
        let (participants, body) = (Shards::new(participants), PrepareBody::EMPTY);
        let fixed_bytes = if ranges.is_empty() {
            Prepare { txn, begin, commit, single, wait, participants, body }.encode(envelope, out);
            Prepare::FIXED_BYTES
        } else {
            PrepareRanges { txn, begin, commit, single, wait, participants, ranges, body }
                .encode(envelope, out);
            PrepareRanges::FIXED_BYTES
        };
        let tail = out.len() - BODY_HEAD;
        Self { frame: OpenFrame::with_tail(out, start, fixed_bytes, tail), reads: 0, writes: 0 }
    }

    /// Appends a read; every read comes before the first write.
    #[inline]
    pub fn read(&mut self, entry: &ReadEntry<'_>) {
        assert!(self.writes == 0, "reads come before writes");
        let mut head = [0u8; READ_HEAD];
        entry.keyspace.store(&mut head[0..4]);
        entry.version.store(&mut head[4..16]);
        entry.expires_at.store(&mut head[16..24]);
        entry.absent.store(&mut head[24..25]);
        (entry.key.len() as u32).store(&mut head[25..29]);
        let out = self.frame.out();
        out.extend_from_slice(&head);
        out.extend_from_slice(entry.key);
        self.reads += 1;
    }

    /// Appends a write.
    #[inline]
    pub fn write(&mut self, entry: &WriteEntry<'_>) {
        assert!(entry.well_formed(), "deletes have no value, fences neither key nor value");
        append_write(entry, self.frame.out());
        self.writes += 1;
    }

    /// Closes the frame.
    #[inline]
    pub fn finish(mut self) {
        let (reads, writes) = (self.reads, self.writes);
        assert!(
            reads as usize + writes as usize <= MAX_TXN_KEYS,
            "a transaction's keys are bounded when they are added"
        );
        let body = self.frame.tail_mut();
        reads.store(&mut body[0..4]);
        writes.store(&mut body[4..8]);
        self.frame.close();
    }
}
