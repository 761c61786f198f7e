//! The bytes of a part of a checkpoint (docs/formats/checkpoint.md).
//!
//! Whoever reads one believes nothing before the checksum was right; lengths are checked all the
//! same.

use timestone_store::{Store, StoreError};
use timestone_types::{ClientId, Epoch, Expiry, KeyRef, KeyspaceId, Timestamp, Version};
use timestone_wal::{BatchNumber, RecordNumber};

/// The first byte of each part.
const FORMAT: u8 = 2;
/// Bytes in front of the items.
const HEAD_BYTES: usize = 40;
/// Where the checksum stands. It covers all other bytes.
const CRC_AT: core::ops::Range<usize> = 4..8;

const PUT: u8 = 1;
const TOMBSTONE: u8 = 2;
const FENCE: u8 = 3;
const BATCH: u8 = 4;

/// What a part is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartKind {
    /// Others follow.
    Some,
    /// It is the last one.
    Last,
    /// There is no such checkpoint any more: begin anew.
    Gone,
}

/// What stands in front of a part's items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartHead {
    pub(crate) kind: PartKind,
    pub(crate) session: u64,
    /// Counted from zero.
    pub(crate) number: u64,
    /// The epoch of the primary that it is from.
    pub(crate) epoch: Epoch,
    /// With the parts before it brings everything up to this batch. The batch itself may have been let
    /// go of.
    pub(crate) through: BatchNumber,
}

/// Something that a checkpoint holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartItem<'a> {
    Put {
        keyspace: KeyspaceId,
        version: Version,
        expires_at: Expiry,
        key: &'a [u8],
        value: &'a [u8],
    },
    Tombstone {
        keyspace: KeyspaceId,
        version: Version,
        key: &'a [u8],
    },
    Fence {
        keyspace: KeyspaceId,
        version: Version,
    },
    /// A batch of log records that counts.
    Batch {
        batch: BatchNumber,
        epoch: Epoch,
        first: RecordNumber,
        bytes: &'a [u8],
    },
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // A value, a key or a batch: each is bounded far below.
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_version(out: &mut Vec<u8>, keyspace: KeyspaceId, version: Version) {
    out.extend_from_slice(&keyspace.get().to_le_bytes());
    out.extend_from_slice(&version.timestamp.as_nanos().to_le_bytes());
    out.extend_from_slice(&version.client.get().to_le_bytes());
}

impl PartItem<'_> {
    /// Appends it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Put { keyspace, version, expires_at, key, value } => {
                out.push(PUT);
                put_version(out, keyspace, version);
                out.extend_from_slice(&expires_at.timestamp().as_nanos().to_le_bytes());
                put_bytes(out, key);
                put_bytes(out, value);
            }
            Self::Tombstone { keyspace, version, key } => {
                out.push(TOMBSTONE);
                put_version(out, keyspace, version);
                put_bytes(out, key);
            }
            Self::Fence { keyspace, version } => {
                out.push(FENCE);
                put_version(out, keyspace, version);
            }
            Self::Batch { batch, epoch, first, bytes } => {
                out.push(BATCH);
                out.extend_from_slice(&batch.get().to_le_bytes());
                out.extend_from_slice(&epoch.get().to_le_bytes());
                out.extend_from_slice(&first.get().to_le_bytes());
                put_bytes(out, bytes);
            }
        }
    }
}

impl PartItem<'_> {
    /// Bytes of its key and its value.
    pub(super) const fn put_bytes(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Tombstone { key, .. } => key.len(),
            Self::Fence { .. } | Self::Batch { .. } => 0,
        }
    }

    /// Puts what is no batch into a store: into another keyspace than it was found in, if one is
    /// named.
    ///
    /// # Errors
    /// What the store says.
    pub(super) fn put_into(
        &self,
        store: &mut (impl Store + ?Sized),
        other: Option<KeyspaceId>,
    ) -> Result<(), StoreError> {
        let seed = store.seed();
        let place = |keyspace| other.unwrap_or(keyspace);
        match *self {
            Self::Put { keyspace, version, expires_at, key, value } => {
                store.put(KeyRef::new(seed, place(keyspace), key), version, value, expires_at)
            }
            Self::Tombstone { keyspace, version, key } => {
                store.delete(KeyRef::new(seed, place(keyspace), key), version)
            }
            Self::Fence { keyspace, version } => store.fence(place(keyspace), version),
            Self::Batch { .. } => {
                debug_assert!(false, "batches are replayed");
                Ok(())
            }
        }
    }
}

/// A part with these items, which are encoded already.
pub(crate) fn encode(head: &PartHead, items: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + items.len());
    let kind = match head.kind {
        PartKind::Some => 0,
        PartKind::Last => 1,
        PartKind::Gone => 2,
    };
    out.extend_from_slice(&[FORMAT, kind, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&head.session.to_le_bytes());
    out.extend_from_slice(&head.number.to_le_bytes());
    out.extend_from_slice(&u64::from(head.epoch.get()).to_le_bytes());
    out.extend_from_slice(&head.through.get().to_le_bytes());
    debug_assert_eq!(out.len(), HEAD_BYTES);
    out.extend_from_slice(items);
    let crc = checksum(&out);
    out[CRC_AT].copy_from_slice(&crc.to_le_bytes());
    out
}

fn checksum(part: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&part[..CRC_AT.start]), &part[CRC_AT.end..])
}

/// Why a part cannot be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum PartError {
    /// Its first byte.
    #[error("a part of a checkpoint has format {0}; this server knows format {FORMAT}")]
    Format(u8),
    /// What is in it makes no sense.
    #[error("a part of a checkpoint is damaged: {0}")]
    Damaged(&'static str),
}

/// Bytes that are taken from the front.
struct PartReader<'a>(&'a [u8]);

impl<'a> PartReader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], PartError> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or(PartError::Damaged("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], PartError> {
        self.take(N)?.try_into().map_err(|_| PartError::Damaged("it ends too early"))
    }

    fn u32(&mut self) -> Result<u32, PartError> {
        self.number().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, PartError> {
        self.number().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Result<&'a [u8], PartError> {
        let count = self.u32()? as usize;
        self.take(count)
    }

    fn version(&mut self) -> Result<(KeyspaceId, Version), PartError> {
        let keyspace = KeyspaceId::new(self.u32()?);
        let timestamp = Timestamp::from_nanos(self.u64()?);
        Ok((keyspace, Version::new(timestamp, ClientId::new(self.u32()?))))
    }

    fn item(&mut self) -> Result<PartItem<'a>, PartError> {
        let [tag] = self.number()?;
        if tag == BATCH {
            let (batch, epoch) = (BatchNumber::new(self.u64()?), Epoch::new(self.u32()?));
            let first = RecordNumber::new(self.u64()?);
            return Ok(PartItem::Batch { batch, epoch, first, bytes: self.bytes()? });
        }
        let (keyspace, version) = self.version()?;
        Ok(match tag {
            PUT => {
                let expires_at = Expiry::at(Timestamp::from_nanos(self.u64()?));
                let (key, value) = (self.bytes()?, self.bytes()?);
                PartItem::Put { keyspace, version, expires_at, key, value }
            }
            TOMBSTONE => PartItem::Tombstone { keyspace, version, key: self.bytes()? },
            FENCE => PartItem::Fence { keyspace, version },
            _ => return Err(PartError::Damaged("an item is of no kind that is known")),
        })
    }
}

/// The head of a part, and its items.
pub(crate) fn decode(bytes: &[u8]) -> Result<(PartHead, Items<'_>), PartError> {
    let mut cursor = PartReader(bytes);
    let [format, ..] = cursor.number::<4>()?;
    if format != FORMAT {
        return Err(PartError::Format(format));
    }
    if checksum(bytes) != cursor.u32()? {
        return Err(PartError::Damaged("its checksum does not match"));
    }
    decode_sound(bytes)
}

/// The same of a part whose checksum was found right before.
pub(crate) fn decode_sound(bytes: &[u8]) -> Result<(PartHead, Items<'_>), PartError> {
    let mut cursor = PartReader(bytes);
    let [_, kind, ..] = cursor.number::<8>()?;
    let kind = match kind {
        0 => PartKind::Some,
        1 => PartKind::Last,
        2 => PartKind::Gone,
        _ => return Err(PartError::Damaged("it is of no kind that is known")),
    };
    let (session, number) = (cursor.u64()?, cursor.u64()?);
    let epoch = u32::try_from(cursor.u64()?).map_err(|_| PartError::Damaged("its epoch"))?;
    let (epoch, through) = (Epoch::new(epoch), BatchNumber::new(cursor.u64()?));
    Ok((PartHead { kind, session, number, epoch, through }, Items(cursor)))
}

/// An item that was [encoded](PartItem::encode) a moment ago.
pub(super) fn decode_item(bytes: &[u8]) -> Result<PartItem<'_>, PartError> {
    PartReader(bytes).item()
}

/// The items of a part, in their order.
pub(crate) struct Items<'a>(PartReader<'a>);

impl Items<'_> {
    /// Bytes of those that are left.
    pub(crate) const fn left(&self) -> usize {
        self.0.0.len()
    }

    /// Goes on where so many bytes are left.
    pub(crate) fn skip_to(&mut self, left: usize) {
        self.0.0 = &self.0.0[self.left().saturating_sub(left)..];
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<PartItem<'a>, PartError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.0.is_empty() {
            return None;
        }
        let item = self.0.item();
        if item.is_err() {
            self.0.0 = &[];
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_reads_as_it_was_written_and_damage_is_noticed() {
        let keyspace = KeyspaceId::new(7);
        let version = Version::new(Timestamp::from_nanos(9), ClientId::new(3));
        let expires_at = Expiry::at(Timestamp::from_nanos(11));
        let (batch, epoch, first) = (BatchNumber::new(5), Epoch::new(2), RecordNumber::new(8));
        let written = [
            PartItem::Put { keyspace, version, expires_at, key: b"key", value: b"value" },
            PartItem::Tombstone { keyspace, version, key: b"other" },
            PartItem::Fence { keyspace, version },
            PartItem::Batch { batch, epoch, first, bytes: b"records" },
        ];
        let mut items = Vec::new();
        written.iter().for_each(|item| item.encode(&mut items));
        for kind in [PartKind::Some, PartKind::Last, PartKind::Gone] {
            let head =
                PartHead { kind, session: 4, number: 6, epoch, through: BatchNumber::new(3) };
            let bytes = encode(&head, &items);
            let (read, items) = decode(&bytes).unwrap();
            assert_eq!(read, head);
            assert!(items.map(Result::unwrap).eq(written));
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                assert!(decode(&damaged).is_err(), "byte {at}");
            }
        }
        assert!(decode(&[]).is_err() && decode(&[FORMAT; 8]).is_err());
    }

    /// The cells of the rows of a table of docs/formats/checkpoint.md.
    fn rows(section: &str) -> Vec<Vec<&'static str>> {
        let page = include_str!("../../../../docs/formats/checkpoint.md");
        let table = page.split(section).nth(1).expect("the section");
        let lines = table.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
        let rows = lines.take_while(|line| line.starts_with('|'));
        rows.map(|row| row.split('|').map(str::trim).skip(1).collect()).collect()
    }

    #[test]
    fn the_page_says_what_is_written() {
        let mut end = 0;
        for row in rows("## Head") {
            assert_eq!(row[0].parse(), Ok(end), "{row:?}");
            end += row[1].parse::<usize>().unwrap();
            let is_crc = row[2] == "crc";
            assert_eq!(is_crc, row[0].parse() == Ok(CRC_AT.start), "{row:?}");
        }
        assert_eq!(end, HEAD_BYTES);
        let items = rows("## Items");
        let items = items.iter().map(|row| (row[0].parse().unwrap(), row[1]));
        let known = [(PUT, "put"), (TOMBSTONE, "tombstone"), (FENCE, "fence"), (BATCH, "batch")];
        assert!(items.eq(known));
    }

    #[test]
    fn items_that_end_too_early_are_refused() {
        let mut items = Vec::new();
        PartItem::Tombstone { keyspace: KeyspaceId::DEFAULT, version: Version::ZERO, key: b"key" }
            .encode(&mut items);
        for length in 1..items.len() {
            let mut read = Items(PartReader(&items[..length]));
            assert!(read.next().is_some_and(|item| item.is_err()) && read.next().is_none());
        }
    }
}
