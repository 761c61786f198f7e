//! Blocks: what the log writes and checks as one piece, and the entries inside
//! (docs/formats/wal.md).
//!
//! ```text
//!  0       4         6      7       8      16          24              32       36            40          44       48
//!  │ magic │ version │ kind │ flags │ file │ sequence  │ durable_below │ length │ payload CRC │ reserved │ header CRC │ payload … │ zeros to 4096
//!
//!  payload = entries:  length u32 │ part u8 │ reserved u8 │ shard u16 │ batch u64 │ first u64 │ epoch u32 │ bytes …
//! ```
//!
//! A block belongs to one place only: `file` is the creation time of its file, `sequence` counts
//! all blocks of the log. So the stale blocks of a reused file, zeros of a preallocated one, and
//! log files kept as values by users are never taken for blocks. `durable_below` says which blocks
//! were durable when this one was sent: all of lower sequence. It is the proof that an unreadable
//! block before it was acknowledged once, and so tells damage from a write that a crash cut short.
//!
//! The places of magic, version and header CRC, and the header's length, are the same in every
//! version of the format.

use timestone_types::{Epoch, ShardId, Timestamp};

use crate::device::FileName;
use crate::limits::{MAX_BLOCK_BYTES, SECTOR_BYTES};
use crate::{BatchHead, BatchNumber, RecordNumber};

/// First bytes of every block: "TSLB".
pub const MAGIC: [u8; 4] = *b"TSLB";
/// The version of the format that this program writes and reads.
pub const FORMAT_VERSION: u16 = 2;
/// Bytes of a block's header.
pub const HEADER_BYTES: usize = 48;
/// Bytes of an entry's header.
pub const ENTRY_BYTES: usize = 28;
/// The one kind of block there is.
const KIND_DATA: u8 = 1;
/// Flag of the first block written after the log was opened: an unfinished batch before it was cut
/// short by a crash.
const FLAG_OPENED: u8 = 1;
const CRC_AT: usize = HEADER_BYTES - 4;

/// Counts the blocks of a log, over all its files, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockSequence(pub u64);

impl BlockSequence {
    /// The first block of a new log.
    pub const FIRST: Self = Self(1);

    /// The sequence `count` blocks later.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

/// What a block says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHeader {
    /// The file that it was written to.
    pub file: FileName,
    /// Its place among all blocks.
    pub sequence: BlockSequence,
    /// All blocks of lower sequence were durable when this one was sent.
    pub durable_below: BlockSequence,
    /// Bytes of its payload.
    pub length: u32,
    /// CRC-32C of its payload.
    pub payload_crc: u32,
    /// Whether it is the first since the log was opened.
    pub opened: bool,
}

/// What stands where a header is expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderAt {
    /// A header of this version; whether it belongs to the place is for the reader to compare.
    Header(BlockHeader),
    /// A header of another version of the format.
    OtherVersion(u16),
    /// Anything else.
    Nothing,
}

impl BlockHeader {
    /// Writes the header to the first [`HEADER_BYTES`] of a block.
    pub fn write(&self, block: &mut [u8]) {
        block[0..4].copy_from_slice(&MAGIC);
        block[4..6].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        block[6] = KIND_DATA;
        block[7] = if self.opened { FLAG_OPENED } else { 0 };
        block[8..16].copy_from_slice(&self.file.created().as_nanos().to_le_bytes());
        block[16..24].copy_from_slice(&self.sequence.0.to_le_bytes());
        block[24..32].copy_from_slice(&self.durable_below.0.to_le_bytes());
        block[32..36].copy_from_slice(&self.length.to_le_bytes());
        block[36..40].copy_from_slice(&self.payload_crc.to_le_bytes());
        block[40..CRC_AT].fill(0);
        let crc = crc32c::crc32c(&block[..CRC_AT]);
        block[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads what stands at the start of `block`; shorter than a header is nothing.
    #[must_use]
    pub fn read(block: &[u8]) -> HeaderAt {
        let Some(header) = block.first_chunk::<HEADER_BYTES>() else { return HeaderAt::Nothing };
        if header[0..4] != MAGIC || crc32c::crc32c(&header[..CRC_AT]) != u32_at(header, CRC_AT) {
            return HeaderAt::Nothing;
        }
        let version = u16::from_le_bytes([header[4], header[5]]);
        if version != FORMAT_VERSION {
            return HeaderAt::OtherVersion(version);
        }
        let length = u32_at(header, 32);
        let sane = header[6] == KIND_DATA && length as usize <= MAX_BLOCK_BYTES - HEADER_BYTES;
        if !sane {
            return HeaderAt::Nothing;
        }
        HeaderAt::Header(Self {
            file: FileName::new(Timestamp::from_nanos(u64_at(header, 8))),
            sequence: BlockSequence(u64_at(header, 16)),
            durable_below: BlockSequence(u64_at(header, 24)),
            length,
            payload_crc: u32_at(header, 36),
            opened: header[7] & FLAG_OPENED != 0,
        })
    }

    /// Bytes that the block takes in its file.
    #[must_use]
    pub const fn padded_bytes(&self) -> usize {
        padded(HEADER_BYTES + self.length as usize)
    }
}

/// `bytes` rounded up to whole sectors.
#[must_use]
pub const fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(SECTOR_BYTES)
}

fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Which part of a batch an entry carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Part {
    /// All of it.
    Whole = 1,
    /// Its beginning.
    First = 2,
    /// Something between.
    Middle = 3,
    /// Its end.
    Last = 4,
}

impl Part {
    /// Whether a batch begins here.
    #[must_use]
    pub const fn begins(self) -> bool {
        matches!(self, Self::Whole | Self::First)
    }

    /// Whether a batch ends here.
    #[must_use]
    pub const fn ends(self) -> bool {
        matches!(self, Self::Whole | Self::Last)
    }

    const fn of(begins: bool, ends: bool) -> Self {
        match (begins, ends) {
            (true, true) => Self::Whole,
            (true, false) => Self::First,
            (false, false) => Self::Middle,
            (false, true) => Self::Last,
        }
    }
}

/// An entry's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Bytes that follow.
    pub length: u32,
    /// Which part of the batch they are.
    pub part: Part,
    /// The batch; the same in all its parts.
    pub head: BatchHead,
}

impl Entry {
    /// The entry for `length` bytes of a batch.
    #[must_use]
    pub const fn new(head: BatchHead, length: u32, begins: bool, ends: bool) -> Self {
        Self { length, part: Part::of(begins, ends), head }
    }

    /// The header's bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[0..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4] = self.part as u8;
        bytes[6..8].copy_from_slice(&self.head.shard.get().to_le_bytes());
        bytes[8..16].copy_from_slice(&self.head.batch.get().to_le_bytes());
        bytes[16..24].copy_from_slice(&self.head.first.get().to_le_bytes());
        bytes[24..28].copy_from_slice(&self.head.epoch.get().to_le_bytes());
        bytes
    }

    /// Takes the first entry of `payload` off it; `None` when the bytes do not follow the format.
    #[must_use]
    pub fn split(payload: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        let (header, rest) = payload.split_first_chunk::<ENTRY_BYTES>()?;
        let part = match header[4] {
            1 => Part::Whole,
            2 => Part::First,
            3 => Part::Middle,
            4 => Part::Last,
            _ => return None,
        };
        let length = u32_at(header, 0);
        let (bytes, rest) = rest.split_at_checked(length as usize)?;
        let head = BatchHead {
            shard: ShardId::new(u16::from_le_bytes([header[6], header[7]])),
            batch: BatchNumber::new(u64_at(header, 8)),
            epoch: Epoch::new(u32_at(header, 24)),
            first: RecordNumber::new(u64_at(header, 16)),
        };
        Some((Self { length, part, head }, bytes, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> BlockHeader {
        BlockHeader {
            file: FileName::new(Timestamp::from_nanos(0x0102_0304_0506_0708)),
            sequence: BlockSequence(0x1112_1314_1516_1718),
            durable_below: BlockSequence(0x2122_2324_2526_2728),
            length: 0x3132,
            payload_crc: 0x4142_4344,
            opened: true,
        }
    }

    /// Reads the table "Block header" of docs/formats/wal.md: (offset, bytes, field).
    fn documented(title: &str) -> Vec<(usize, usize, String)> {
        let page = include_str!("../../../docs/formats/wal.md");
        let section =
            page.split(&format!("## {title}\n")).nth(1).expect("the page has this section");
        let section = section.split("\n## ").next().unwrap();
        section
            .lines()
            .filter_map(|line| {
                let mut cells = line.split('|').map(str::trim).skip(1);
                let (offset, bytes) = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
                Some((offset, bytes, cells.next()?.to_owned()))
            })
            .collect()
    }

    /// Checks that the rows follow each other without gaps and that each field's bytes are the
    /// given ones.
    fn assert_layout(title: &str, bytes: &[u8], fields: &[(&str, Vec<u8>)]) {
        let rows = documented(title);
        let names: Vec<_> = rows.iter().map(|row| row.2.as_str()).collect();
        assert_eq!(
            names,
            fields.iter().map(|field| field.0).collect::<Vec<_>>(),
            "fields of {title}"
        );
        let mut at = 0;
        for ((offset, length, name), (_, expected)) in rows.iter().zip(fields) {
            assert_eq!(*offset, at, "{title}: {name} begins where the field before it ends");
            assert_eq!(&bytes[*offset..offset + length], expected.as_slice(), "{title}: {name}");
            at += length;
        }
        assert_eq!(at, bytes.len(), "{title} is documented whole");
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let mut block = [0xee; HEADER_BYTES];
        header().write(&mut block);
        let crc = crc32c::crc32c(&block[..44]);
        let le = |value: u64, bytes: usize| value.to_le_bytes()[..bytes].to_vec();
        assert_layout(
            "Block header",
            &block,
            &[
                ("magic", b"TSLB".to_vec()),
                ("version", le(2, 2)),
                ("kind", le(1, 1)),
                ("flags", le(1, 1)),
                ("file", le(0x0102_0304_0506_0708, 8)),
                ("sequence", le(0x1112_1314_1516_1718, 8)),
                ("durable_below", le(0x2122_2324_2526_2728, 8)),
                ("length", le(0x3132, 4)),
                ("payload_crc", le(0x4142_4344, 4)),
                ("reserved", le(0, 4)),
                ("header_crc", le(u64::from(crc), 4)),
            ],
        );
        let head = BatchHead {
            shard: ShardId::new(0x5152),
            batch: BatchNumber::new(0x6162_6364_6566_6768),
            epoch: Epoch::new(0x9192_9394),
            first: RecordNumber::new(0x8182_8384_8586_8788),
        };
        let entry = Entry::new(head, 0x71, true, false);
        assert_layout(
            "Entry",
            &entry.to_bytes(),
            &[
                ("length", le(0x71, 4)),
                ("part", le(2, 1)),
                ("reserved", le(0, 1)),
                ("shard", le(0x5152, 2)),
                ("batch", le(0x6162_6364_6566_6768, 8)),
                ("first", le(0x8182_8384_8586_8788, 8)),
                ("epoch", le(0x9192_9394, 4)),
            ],
        );
    }

    #[test]
    fn a_header_reads_back_and_every_flipped_bit_is_noticed() {
        let mut block = [0; HEADER_BYTES];
        header().write(&mut block);
        assert_eq!(BlockHeader::read(&block), HeaderAt::Header(header()));
        for bit in 0..HEADER_BYTES * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BlockHeader::read(&block), HeaderAt::Nothing, "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let mut block = [0; HEADER_BYTES];
        header().write(&mut block);
        block[4] = 9;
        let crc = crc32c::crc32c(&block[..CRC_AT]);
        block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(BlockHeader::read(&block), HeaderAt::OtherVersion(9));
    }

    #[test]
    fn entries_split_off_and_refuse_what_is_short() {
        let (shard, batch) = (ShardId::new(3), BatchNumber::new(9));
        let head = BatchHead { shard, batch, epoch: Epoch::new(4), first: RecordNumber::new(70) };
        let entry = Entry::new(head, 2, true, true);
        let mut payload = entry.to_bytes().to_vec();
        payload.extend_from_slice(b"abrest");
        assert_eq!(Entry::split(&payload), Some((entry, &b"ab"[..], &b"rest"[..])));
        for length in 0..ENTRY_BYTES + 2 {
            assert_eq!(Entry::split(&payload[..length]), None);
        }
    }
}
