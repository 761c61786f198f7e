//! One page: header, records from the front, slot directory from the back.
//!
//! ```text
//!   0 magic u32 │ 4 format u16 │ 6 kind u8 │ 7 zero u8 │ 8 crc u32 │ 12 generation u32 │ 16 page u32
//!   20 count u16 │ 22 used u16 │ 24 store u64 │ 32 seed u64 │ 40 sequence u64 │ 48 records … │ … slot 1 │ slot 0
//!   slot: offset u16 │ low 16 bits of the key's check u16
//! ```
//!
//! The header's checksum (CRC-32C) covers the header behind it and the slots; records have their
//! own. In pages of other kinds than records it covers the whole page. Generation and page number
//! tell a page of this life of its block from leftovers and from misdirected writes.

use timestone_flash::{Generation, PAGE_BYTES, PageId};

use super::record::Record;
use super::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};

/// "TSPG" as it lies in memory.
pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"TSPG");
/// First bytes of a page that could not be read, and whose loss somebody has accepted. No page of a
/// store begins with them.
pub(crate) const LOST_MAGIC: [u8; 8] = *b"TSLOST\0\0";
/// The version of everything that this module lays out.
pub(crate) const FORMAT: u16 = 1;
/// Above every number that a store counts pages or checkpoints with: nothing lives to write so
/// many.
pub(crate) const MAX_COUNT: u64 = 1 << 62;
/// Bytes of a page header.
pub(crate) const HEADER_BYTES: usize = 48;
/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = 4;
/// Bytes behind the header of a page that holds no records.
pub(crate) const RAW_PAYLOAD: usize = PAGE_BYTES - HEADER_BYTES;

/// What takes the place of such a page: its number is behind the first bytes.
pub(crate) fn lost_page(page: PageId) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_BYTES];
    bytes[..LOST_MAGIC.len()].copy_from_slice(&LOST_MAGIC);
    put_u32(&mut bytes, LOST_MAGIC.len(), page.0);
    debug_assert!(PageHeader::read(&bytes).is_none(), "no page of a store");
    bytes
}

/// Whether a page's place has that.
pub(crate) fn is_lost_page(bytes: &[u8]) -> bool {
    bytes.starts_with(&LOST_MAGIC)
}

/// What a page holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum PageKind {
    /// Records of ordinary size.
    Records = 1,
    /// Records in a block of large values: their heads.
    LargeHeads = 2,
    /// A part of a large value.
    LargePart = 3,
    /// A part of a checkpoint.
    Checkpoint = 4,
}

/// A page's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageHeader {
    pub(crate) kind: PageKind,
    pub(crate) generation: Generation,
    pub(crate) page: PageId,
    /// Records in it; for other kinds, free for their use.
    pub(crate) count: u16,
    /// Where the next record would go; for other kinds, bytes used.
    pub(crate) used: u16,
    pub(crate) store: u64,
    pub(crate) seed: u64,
    /// Rises with every page that the store begins.
    pub(crate) sequence: u64,
}

impl PageHeader {
    /// The header of a page as it lies there, verified for magic, format and checksum only. `Err`
    /// has the format found.
    pub(crate) fn read(page: &[u8]) -> Option<Result<Self, u16>> {
        if u32_at(page, 0) != MAGIC {
            return None;
        }
        let believed = timestone_types::is_planted!(UncheckedBytes);
        if u32_at(page, 8) != checksum(page)? && !believed {
            return None;
        }
        let format = u16_at(page, 4);
        if format != FORMAT {
            return Some(Err(format));
        }
        let kind = kind_of(page[6])?;
        if u64_at(page, 40) > MAX_COUNT {
            return None;
        }
        Some(Ok(Self {
            kind,
            generation: Generation(u32_at(page, 12)),
            page: PageId(u32_at(page, 16)),
            count: u16_at(page, 20),
            used: u16_at(page, 22),
            store: u64_at(page, 24),
            seed: u64_at(page, 32),
            sequence: u64_at(page, 40),
        }))
    }
}

fn kind_of(raw: u8) -> Option<PageKind> {
    Some(match raw {
        1 => PageKind::Records,
        2 => PageKind::LargeHeads,
        3 => PageKind::LargePart,
        4 => PageKind::Checkpoint,
        _ => return None,
    })
}

fn checksum(page: &[u8]) -> Option<u32> {
    match kind_of(page[6])? {
        PageKind::Records | PageKind::LargeHeads => {
            let slots = usize::from(u16_at(page, 20)) * SLOT_BYTES;
            let first_slot = PAGE_BYTES.checked_sub(slots).filter(|&at| at >= HEADER_BYTES)?;
            let head = crc32c::crc32c(&page[12..HEADER_BYTES]);
            Some(crc32c::crc32c_append(head, &page[first_slot..PAGE_BYTES]))
        }
        PageKind::LargePart | PageKind::Checkpoint => Some(crc32c::crc32c(&page[12..PAGE_BYTES])),
    }
}

/// Writes the identity of a page over what is there.
#[cfg(feature = "fuzz")]
pub(crate) fn stamp(
    page: &mut [u8],
    kind: PageKind,
    place: PageId,
    generation: Generation,
    store: u64,
) {
    put_u32(page, 0, MAGIC);
    put_u16(page, 4, FORMAT);
    page[6] = kind as u8;
    put_u32(page, 12, generation.0);
    put_u32(page, 16, place.0);
    put_u64(page, 24, store);
}

/// Fills in the checksums of records whose lengths make sense.
#[cfg(feature = "fuzz")]
pub(crate) fn reseal_records(page: &mut [u8]) {
    let used = usize::from(u16_at(page, 22)).min(PAGE_BYTES);
    let places: Vec<(usize, usize)> = records(page)
        .flatten()
        .filter_map(|raw| {
            let record = Record::read(raw)?;
            let flagged = raw[4] & 2 != 0;
            let links = if record.links.is_some() { super::LINK_BYTES } else { 0 };
            Some((
                used - raw.len(),
                Record::bytes_for(record.key.len(), record.value.len(), flagged) + links,
            ))
        })
        .collect();
    for (at, bytes) in places {
        let crc = crc32c::crc32c(&page[at + 4..at + bytes]);
        put_u32(page, at, crc);
    }
}

/// Whether the page's counts allow a checksum.
#[cfg(feature = "fuzz")]
pub(crate) fn is_sealable(page: &[u8]) -> bool {
    checksum(page).is_some()
}

/// Begins a page: writes its header, without a checksum. A page of records keeps whatever is behind
/// the header until it is sealed; another one is zeroed.
pub(crate) fn init_page(page: &mut [u8], header: &PageHeader) {
    if !matches!(header.kind, PageKind::Records | PageKind::LargeHeads) {
        page.fill(0);
    }
    put_u32(page, 0, MAGIC);
    put_u16(page, 4, FORMAT);
    (page[6], page[7]) = (header.kind as u8, 0);
    put_u32(page, 8, 0);
    put_u32(page, 12, header.generation.0);
    put_u32(page, 16, header.page.0);
    put_u16(page, 20, header.count);
    put_u16(page, 22, header.used);
    put_u64(page, 24, header.store);
    put_u64(page, 32, header.seed);
    put_u64(page, 40, header.sequence);
}

/// Bytes that a further record may have.
pub(crate) fn room(page: &[u8]) -> usize {
    let slots = usize::from(u16_at(page, 20)) + 1;
    (PAGE_BYTES - slots * SLOT_BYTES).saturating_sub(usize::from(u16_at(page, 22)))
}

/// Adds a record, which must fit.
pub(crate) fn append(page: &mut [u8], record: &Record<'_>, check: u32) {
    let bytes = record.bytes();
    assert!(bytes <= room(page), "a record of {bytes} bytes fits the page");
    let (count, used) = (u16_at(page, 20), u16_at(page, 22));
    record.write(&mut page[usize::from(used)..]);
    let slot = PAGE_BYTES - (usize::from(count) + 1) * SLOT_BYTES;
    put_u16(page, slot, used);
    put_u16(page, slot + 2, check as u16);
    put_u16(page, 20, count + 1);
    put_u16(page, 22, used + bytes as u16);
}

/// Zeroes what no record has filled, and writes the checksum: the page is complete.
pub(crate) fn seal(page: &mut [u8]) {
    if matches!(kind_of(page[6]), Some(PageKind::Records | PageKind::LargeHeads)) {
        let slots = usize::from(u16_at(page, 20)) * SLOT_BYTES;
        let used = usize::from(u16_at(page, 22)).max(HEADER_BYTES);
        // Nothing is between the two in a page that is full, or that is none.
        if let Some(unused) = page.get_mut(used..PAGE_BYTES.saturating_sub(slots)) {
            unused.fill(0);
        }
    }
    let crc = checksum(page).expect("the header was written by init_page");
    put_u32(page, 8, crc);
}

/// Whether this is page `page` of a store's block in `generation`, complete and undamaged in header
/// and slots.
pub(crate) fn verify(
    bytes: &[u8],
    page: PageId,
    generation: Generation,
    store: u64,
) -> Result<PageHeader, &'static str> {
    match PageHeader::read(bytes) {
        None => Err("its header does not check out"),
        Some(Err(_)) => Err("it is of another format"),
        Some(Ok(header)) if header.store != store => Err("it belongs to another store"),
        Some(Ok(header)) if header.page != page => Err("it was written to another place"),
        Some(Ok(header)) if header.generation != generation => Err("it is of another generation"),
        Some(Ok(header)) => Ok(header),
    }
}

/// The raw bytes of every record of a page, from its start to the end of the record area. `None`: a
/// slot makes no sense.
pub(crate) fn records(page: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let count = usize::from(u16_at(page, 20)).min(RAW_PAYLOAD / SLOT_BYTES);
    let used = usize::from(u16_at(page, 22)).min(PAGE_BYTES);
    (0..count).map(move |slot| {
        let at = usize::from(u16_at(page, PAGE_BYTES - (slot + 1) * SLOT_BYTES));
        (HEADER_BYTES..used).contains(&at).then(|| &page[at..used])
    })
}

/// Records of a page.
pub(crate) fn count(page: &[u8]) -> u16 {
    u16_at(page, 20).min((RAW_PAYLOAD / SLOT_BYTES) as u16)
}

/// The sequence number of a page.
pub(crate) fn sequence(page: &[u8]) -> u64 {
    u64_at(page, 40)
}

/// The raw bytes of the record of a slot, to the end of the record area. `None`: the slot makes no
/// sense.
pub(crate) fn record_at(page: &[u8], slot: u16) -> Option<&[u8]> {
    let used = usize::from(u16_at(page, 22)).min(PAGE_BYTES);
    let at = usize::from(u16_at(page, PAGE_BYTES - (usize::from(slot) + 1) * SLOT_BYTES));
    (HEADER_BYTES..used).contains(&at).then(|| &page[at..used])
}

/// The record of a page for which `wanted` holds, among those whose slot agrees with `check` and
/// whose version is `version`.
pub(crate) fn find(
    page: &[u8],
    check: u32,
    version: timestone_types::Version,
    wanted: impl Fn(&Record<'_>) -> bool,
) -> Option<&[u8]> {
    records(page).enumerate().find_map(|(slot, bytes)| {
        let bytes = bytes?;
        if u16_at(page, PAGE_BYTES - (slot + 1) * SLOT_BYTES + 2) != check as u16
            || Record::peek_version(bytes) != Some(version)
        {
            return None;
        }
        wanted(&Record::read(bytes)?).then_some(bytes)
    })
}
