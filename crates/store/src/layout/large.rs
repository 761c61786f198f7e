//! Values larger than a page: parts in pages of their own, and a head record that lists them.
//!
//! ```text
//!   part page: page header (kind 3, count = bytes used) │ 48 keyspace u32 │ 52 check u32 │ 56 hash u64 │ 64 timestamp u64
//!              72 client u32 │ 76 part u32 │ 80 payload …
//!   head record's value: 0 total length u32 │ 4 key length u32 │ 8 crc u32 │ 12 extents u32 │ 16 check u32
//!              │ extents (page u32, pages u32, generation u32) … │ tail …
//! ```
//!
//! The payload is the key, when it is too long for the head record (key length > 0), and the value.
//! What is left over behind the last full part lies in the head itself when it fits (tail). The
//! head is written when the parts are durable: where a head is, there its parts are, unless their
//! block has another generation since (then the value was moved, and this head is void).

use timestone_flash::{Generation, PAGE_BYTES, PageId};
use timestone_types::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use timestone_types::{ClientId, KeyHash, KeyspaceId, Timestamp, Version};

use super::{HEADER_BYTES, put_u32, put_u64, u32_at, u64_at};

const PART_HEADER: usize = HEADER_BYTES + 32;
/// Payload bytes of one part.
pub(crate) const PART_PAYLOAD: usize = PAGE_BYTES - PART_HEADER;
/// Payload bytes of the largest value with the longest key.
const MAX_PAYLOAD: usize = MAX_KEY_BYTES + MAX_VALUE_BYTES;
/// Parts of that value.
pub(crate) const MAX_PARTS: u32 = MAX_PAYLOAD.div_ceil(PART_PAYLOAD) as u32;
const HEAD_FIXED: usize = 20;
const EXTENT_BYTES: usize = 12;

/// Whose part a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartHeader {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) check: u32,
    pub(crate) hash: KeyHash,
    pub(crate) version: Version,
    pub(crate) part: u32,
}

/// Writes what is behind the page header of a part.
pub(crate) fn write_part_header(page: &mut [u8], header: &PartHeader) {
    put_u32(page, 48, header.keyspace.get());
    put_u32(page, 52, header.check);
    put_u64(page, 56, header.hash.0);
    put_u64(page, 64, header.version.timestamp.as_nanos());
    put_u32(page, 72, header.version.client.get());
    put_u32(page, 76, header.part);
}

/// Reads what [`write_part_header`] wrote, and the payload.
pub(crate) fn part_header(page: &[u8]) -> (PartHeader, &[u8]) {
    let version =
        Version::new(Timestamp::from_nanos(u64_at(page, 64)), ClientId::new(u32_at(page, 72)));
    let header = PartHeader {
        keyspace: KeyspaceId::new(u32_at(page, 48)),
        check: u32_at(page, 52),
        hash: KeyHash(u64_at(page, 56)),
        version,
        part: u32_at(page, 76),
    };
    (header, &page[PART_HEADER..])
}

/// Consecutive part pages of one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    pub(crate) page: PageId,
    pub(crate) pages: u32,
    pub(crate) generation: Generation,
}

/// The value of a large record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LargeHead<'a> {
    /// Bytes of the payload: key, when it is outside, and value.
    pub(crate) total: u32,
    /// Bytes of the key when it is outside the record, else zero.
    pub(crate) key_outside: u32,
    /// CRC-32C of the whole payload.
    pub(crate) crc: u32,
    /// The key's check, which the head cannot compute when the key is outside.
    pub(crate) check: u32,
    pub(crate) extents: Vec<Extent>,
    /// The end of the payload.
    pub(crate) tail: &'a [u8],
}

impl<'a> LargeHead<'a> {
    /// Appends it to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for number in
            [self.total, self.key_outside, self.crc, self.extents.len() as u32, self.check]
        {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for extent in &self.extents {
            for number in [extent.page.0, extent.pages, extent.generation.0] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        out.extend_from_slice(self.tail);
    }

    /// Pages that hold its parts.
    pub(crate) fn parts(&self) -> u32 {
        self.extents.iter().map(|extent| extent.pages).sum()
    }

    /// Reads it; `None` when lengths make no sense, or are beyond what any value has.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() < HEAD_FIXED {
            return None;
        }
        let count = u32_at(bytes, 12) as usize;
        let tail_at = HEAD_FIXED.checked_add(count.checked_mul(EXTENT_BYTES)?)?;
        let tail = bytes.get(tail_at..)?;
        let extents: Vec<Extent> = bytes[HEAD_FIXED..tail_at]
            .chunks_exact(EXTENT_BYTES)
            .map(|raw| Extent {
                page: PageId(u32_at(raw, 0)),
                pages: u32_at(raw, 4),
                generation: Generation(u32_at(raw, 8)),
            })
            .collect();
        let total = u32_at(bytes, 0);
        if total as usize > MAX_PAYLOAD {
            return None;
        }
        let capacity: u64 =
            extents.iter().map(|extent| u64::from(extent.pages) * PART_PAYLOAD as u64).sum();
        let key_outside = u32_at(bytes, 4);
        let fits = u64::from(total) == capacity + tail.len() as u64
            || (tail.is_empty()
                && u64::from(total) <= capacity
                && capacity - u64::from(total) < PART_PAYLOAD as u64);
        (fits && key_outside <= total).then_some(Self {
            total,
            key_outside,
            crc: u32_at(bytes, 8),
            check: u32_at(bytes, 16),
            extents,
            tail,
        })
    }
}
