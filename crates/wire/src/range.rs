//! Ranges of keys in order: reading one, and validating those that a transaction has read.
//!
//! ```text
//!   Range          ─► RangePage       some keys of a range as of a snapshot, ascending
//!   RangeDown      ─► RangePage       the same, descending
//!   PrepareRanges  ─► Vote            a prepare with the ranges that the transaction has read at the shard
//!     a range   keyspace 4 · expires 8 · has_end 1 · from length 4 · to length 4 · from · to
//! ```
//! All of version [`READS_RANGES`](crate::READS_RANGES) of the protocol, but for `RangeDown`, which is of
//! [`READS_DOWNWARDS`](crate::READS_DOWNWARDS): who does not know them refuses them as kinds that it does not serve. Source: docs/design/ranges.md.

use timestone_types::limits::{MAX_TXN_RANGE_BYTES, MAX_TXN_RANGES};
use timestone_types::{ClientId, Direction, Expiry, KeyspaceId, Timestamp, TxnId};

use crate::layout::{Codec, EdgeBytes, Fixed, bounded, checked_codec, entries, message};
use crate::limits::{MAX_EDGE_BYTES, RANGE_ENTRY_OVERHEAD_BYTES};
use crate::list::{OpenFrame, ScanCodec, ScanEntries, ScanEntry, Shards, ShardsCodec};
use crate::prepare::{BodyCodec, PrepareBody};
use crate::request::Prepare;
use crate::{Envelope, Frame, Kind, Message, WireError};

message! {
    /// Reads some keys of the shard's part of a keyspace whose keys are in order, ascending, as of a
    /// snapshot. Answered by [`crate::RangePage`].
    Range<'a> {
        fixed {
            /// The keyspace.
            keyspace: KeyspaceId,
            /// The snapshot.
            at: Timestamp,
            /// Who asks.
            client: ClientId,
            /// How many entries at most (1 to [`crate::limits::MAX_SCAN_ENTRIES`]).
            limit: u32,
            /// Whether the range ends at `to`, or with the keyspace.
            has_end: bool,
        }
        variable {
            /// The first key that is part of it.
            from: &'a [u8] => EdgeBytes,
            /// The first key behind it; empty when it has no end.
            to: &'a [u8] => EdgeBytes,
        }
    }
}

impl<'a> Range<'a> {
    /// The first key behind the range, if it has an end.
    #[must_use]
    pub const fn end(&self) -> Option<&'a [u8]> {
        if self.has_end { Some(self.to) } else { None }
    }

    /// Writes the frame that asks for it in a direction.
    pub fn encode_in(&self, direction: Direction, envelope: &Envelope, out: &mut Vec<u8>) {
        let Self { keyspace, at, client, limit, has_end, from, to } = *self;
        match direction {
            Direction::Ascending => self.encode(envelope, out),
            Direction::Descending => {
                RangeDown { keyspace, at, client, limit, has_end, from, to }.encode(envelope, out);
            }
        }
    }

    /// Reads a frame that asks for a range, in either direction.
    ///
    /// # Errors
    /// Why the frame is neither.
    pub fn decode_any(frame: &Frame<'a>) -> Result<(Self, Direction), WireError> {
        if frame.kind() == Kind::RangeDown {
            let RangeDown { keyspace, at, client, limit, has_end, from, to } =
                RangeDown::decode(frame)?;
            let range = Self { keyspace, at, client, limit, has_end, from, to };
            return Ok((range, Direction::Descending));
        }
        Ok((Self::decode(frame)?, Direction::Ascending))
    }
}

message! {
    /// As [`Range`], descending: from the last key of the range down. See [`Range::encode_in`].
    RangeDown<'a> {
        fixed {
            /// The keyspace.
            keyspace: KeyspaceId,
            /// The snapshot.
            at: Timestamp,
            /// Who asks.
            client: ClientId,
            /// How many entries at most (1 to [`crate::limits::MAX_SCAN_ENTRIES`]).
            limit: u32,
            /// Whether the range ends at `to`, or with the keyspace.
            has_end: bool,
        }
        variable {
            /// The first key that is part of it.
            from: &'a [u8] => EdgeBytes,
            /// The first key behind it; empty when it has no end.
            to: &'a [u8] => EdgeBytes,
        }
    }
}

message! {
    /// Answers [`crate::Range`] and [`crate::RangeDown`]. [`crate::RangePageWriter`] writes one entry by entry.
    RangePage<'a> {
        fixed {
            /// Nothing is left.
            done: bool,
        }
        variable {
            /// The first key that was not looked at, or, downwards, the first one behind what was not looked at;
            /// empty when nothing is left.
            next: &'a [u8] => EdgeBytes,
            /// The keys, in the direction that was asked for, with their versions and without values.
            entries: ScanEntries<'a> => ScanCodec,
        }
    }
}

message! {
    /// As [`crate::Prepare`], with the ranges that the transaction has read at this participant. Answered
    /// by [`crate::Vote`].
    PrepareRanges<'a> {
        fixed {
            /// The transaction.
            txn: TxnId,
            /// Its begin.
            begin: Timestamp,
            /// Its commit timestamp in this round.
            commit: Timestamp,
            /// The shard is the only participant.
            single: bool,
            /// Whether to wait (bounded) for the decision of a prepared write, instead of refusing.
            wait: bool,
        }
        variable {
            /// All participants; the same list in every round.
            participants: Shards<'a> => ShardsCodec,
            /// What it has read in ranges.
            ranges: RangeEntries<'a> => RangesCodec,
            /// Reads of single keys, and writes, of this participant.
            body: PrepareBody<'a> => BodyCodec,
        }
    }
}

impl<'a> PrepareRanges<'a> {
    /// The same without the ranges.
    #[must_use]
    pub const fn prepare(&self) -> Prepare<'a> {
        let Self { txn, begin, commit, single, wait, participants, body, .. } = *self;
        Prepare { txn, begin, commit, single, wait, participants, body }
    }
}

impl<'a> Prepare<'a> {
    /// Reads a prepare, with ranges or without.
    ///
    /// # Errors
    /// Why the frame is neither.
    #[inline]
    pub fn decode_any(frame: &Frame<'a>) -> Result<(Self, RangeEntries<'a>), WireError> {
        if frame.kind() == Kind::PrepareRanges {
            let with_ranges = PrepareRanges::decode(frame)?;
            return Ok((with_ranges.prepare(), with_ranges.ranges));
        }
        Ok((Self::decode(frame)?, RangeEntries::EMPTY))
    }
}

/// A range that a transaction has read at its begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeEntry<'a> {
    /// The keyspace of its keys.
    pub keyspace: KeyspaceId,
    /// When the first of the values in it expires: none must have at commit.
    pub expires_at: Expiry,
    /// The first key that is part of it.
    pub from: &'a [u8],
    /// The first key behind it; `None`: it goes on to the end of the keyspace.
    pub to: Option<&'a [u8]>,
}

const RANGE_HEAD: usize = 4 + 8 + 1 + 4 + 4;
const _: () = assert!(RANGE_HEAD == RANGE_ENTRY_OVERHEAD_BYTES);

fn split_range(bytes: &[u8]) -> Result<(RangeEntry<'_>, &[u8]), WireError> {
    const FIELD: WireError = WireError::BadField { field: "a range of a prepare" };
    let (head, rest) = bytes.split_first_chunk::<RANGE_HEAD>().ok_or(FIELD)?;
    let (from_bytes, to_bytes) =
        (u32::load(&head[13..17])? as usize, u32::load(&head[17..21])? as usize);
    bounded("the end of a range", from_bytes.max(to_bytes), MAX_EDGE_BYTES)?;
    let (from, rest) = rest.split_at_checked(from_bytes).ok_or(FIELD)?;
    let (to, rest) = rest.split_at_checked(to_bytes).ok_or(FIELD)?;
    let has_end = bool::load(&head[12..13])?;
    if !has_end && !to.is_empty() {
        return Err(FIELD);
    }
    let to = has_end.then_some(to);
    let (keyspace, expires_at) = (Fixed::load(&head[0..4])?, Fixed::load(&head[4..12])?);
    Ok((RangeEntry { keyspace, expires_at, from, to }, rest))
}

impl RangeEntry<'_> {
    fn append(&self, out: &mut Vec<u8>) {
        let mut head = [0u8; RANGE_HEAD];
        let to = self.to.unwrap_or_default();
        self.keyspace.store(&mut head[0..4]);
        self.expires_at.store(&mut head[4..12]);
        self.to.is_some().store(&mut head[12..13]);
        (self.from.len() as u32).store(&mut head[13..17]);
        (to.len() as u32).store(&mut head[17..21]);
        out.extend_from_slice(&head);
        out.extend_from_slice(self.from);
        out.extend_from_slice(to);
    }
}

/// The ranges of a prepare, laid out to be sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RangeListWriter {
    count: u32,
    bytes: Vec<u8>,
}

impl RangeListWriter {
    /// Adds a range. How many there are, and how long they are, is bounded when they are read.
    pub fn push(&mut self, entry: &RangeEntry<'_>) {
        entry.append(&mut self.bytes);
        self.count += 1;
        assert!(self.count as usize <= MAX_TXN_RANGES, "ranges are bounded when they are read");
    }

    /// The list.
    #[must_use]
    pub fn entries(&self) -> RangeEntries<'_> {
        RangeEntries { count: self.count, bytes: &self.bytes }
    }
}

entries! {
    /// The ranges of a prepare, in order. The iterator is the list: copy it to iterate again.
    RangeEntries, RangeEntry, split_range
}

impl<'a> RangeEntries<'a> {
    /// No ranges.
    pub const EMPTY: Self = Self { count: 0, bytes: &[] };

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn check(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (mut rest, mut count, mut carried) = (bytes, 0u32, 0);
        while !rest.is_empty() {
            let (entry, after) = split_range(rest)?;
            count += 1;
            carried += entry.from.len() + entry.to.map_or(0, <[u8]>::len);
            bounded("ranges of a transaction", count as usize, MAX_TXN_RANGES)?;
            bounded("bytes of a transaction's ranges", carried, MAX_TXN_RANGE_BYTES)?;
            rest = after;
        }
        Ok(Self { count, bytes })
    }
}

checked_codec! {
    /// [`RangeEntries`] as a variable field.
    RangesCodec, RangeEntries, check
}

/// Writes a [`RangePage`] entry by entry, straight into the outgoing bytes. Dropped without
/// [`RangePageWriter::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct RangePageWriter<'v> {
    frame: OpenFrame<'v>,
    count: u32,
}

impl<'v> RangePageWriter<'v> {
    /// Opens a frame at the end of `out`; `next` is where to go on, if anything is left.
    pub fn begin(envelope: &Envelope, next: Option<&[u8]>, out: &'v mut Vec<u8>) -> Self {
        let start = out.len();
        let entries = ScanEntries::EMPTY;
        RangePage { done: next.is_none(), next: next.unwrap_or_default(), entries }
            .encode(envelope, out);
        let tail = out.len();
        Self { frame: OpenFrame::with_tail(out, start, RangePage::FIXED_BYTES, tail), count: 0 }
    }

    /// Appends an entry; `false`, and nothing appended, when the page is full.
    #[must_use]
    pub fn push(&mut self, entry: &ScanEntry<'_>) -> bool {
        self.frame.push_scan_entry(entry, &mut self.count)
    }

    /// Closes the frame.
    pub fn finish(self) {
        self.frame.close();
    }
}
