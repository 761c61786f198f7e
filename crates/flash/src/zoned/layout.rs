//! The layout of a zoned device's metadata zones: a log of table pages, each of which also says
//! whose device it is.
//!
//! ```text
//!   metadata zone    snapshot (all T table pages)      batch              batch …
//!                    ├ page 0, page 0 again, page 1, … ┤ page i, page i ┤
//! ```
//!
//! The specification is `docs/formats/zoned.md`; a test compares its tables with the constants
//! here. All numbers are little-endian. Nothing here does I/O.

use crate::bytes::{crc_around, get_u32, get_u64, put_u32, put_u64};
use crate::device::{Generation, PAGE_BYTES};
use crate::file::layout::DeviceId;
use crate::limits::MAX_DATA_ZONES;

/// First bytes of a table page.
pub const MAGIC: [u8; 8] = *b"TSZONED\0";
/// Version of everything here; rises with every incompatible change.
pub const FORMAT_VERSION: u32 = 1;
/// Copies of each table page, one behind the other.
pub const COPIES: u32 = 2;
/// Generations in one table page.
pub const ENTRIES_PER_PAGE: u32 = ((PAGE_BYTES - page::ENTRIES) / 4) as u32;

/// Offsets in a table page, in bytes.
pub mod page {
    /// [`MAGIC`](super::MAGIC), 8 bytes.
    pub const MAGIC: usize = 0;
    /// [`FORMAT_VERSION`](super::FORMAT_VERSION), u32.
    pub const VERSION: usize = 8;
    /// CRC-32C of the page's other bytes in front of and behind it, u32.
    pub const CRC: usize = 12;
    /// The device's id, u64.
    pub const DEVICE_ID: usize = 16;
    /// Whose device it is, u64.
    pub const OWNER: usize = 24;
    /// Bytes of a zone, u64.
    pub const ZONE_BYTES: usize = 32;
    /// Pages of a block, u32.
    pub const PAGES_PER_BLOCK: usize = 40;
    /// The zone of block 0, u32.
    pub const FIRST_DATA_ZONE: usize = 44;
    /// Zones that hold blocks, u32.
    pub const DATA_ZONES: usize = 48;
    /// Which page of the table, u32.
    pub const INDEX: usize = 52;
    /// Counts the table pages that were written, u64.
    pub const SEQUENCE: usize = 56;
    /// The sequence of the batch's first page, u64.
    pub const BATCH_FIRST: usize = 64;
    /// The sequence of the batch's last page, u64.
    pub const BATCH_LAST: usize = 72;
    /// Zeros.
    pub const RESERVED: usize = 80;
    /// Generations, u32 each; 0 for a block that does not exist yet.
    pub const ENTRIES: usize = 96;
}

/// What every table page says of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Drawn when the device was formatted.
    pub device_id: DeviceId,
    /// Whose it is: what the formatter chose; zero for nobody in particular.
    pub owner: u64,
    /// Bytes from one zone to the next.
    pub zone_bytes: u64,
    /// Pages of every block: what fits the capacity of a zone.
    pub pages_per_block: u32,
    /// The zone of block 0.
    pub first_data_zone: u32,
    /// Zones that hold blocks.
    pub data_zones: u32,
}

impl Identity {
    /// Pages of the table.
    #[must_use]
    pub const fn table_pages(self) -> u32 {
        self.data_zones.div_ceil(ENTRIES_PER_PAGE)
    }

    /// Whether the numbers can be those of a device.
    fn is_sound(self) -> bool {
        let numbered = self.data_zones.checked_mul(self.pages_per_block).is_some();
        let fits = u64::from(self.pages_per_block) * PAGE_BYTES as u64 <= self.zone_bytes;
        numbered
            && fits
            && self.pages_per_block >= crate::limits::MIN_PAGES_PER_BLOCK
            && (1..=MAX_DATA_ZONES).contains(&self.data_zones)
    }
}

/// Where a table page stands in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Which page of the table.
    pub index: u32,
    /// Its number among all that were written.
    pub sequence: u64,
    /// The sequences of the first and the last page of its batch.
    pub batch: (u64, u64),
}

/// Writes one table page: `generations` are those of the blocks that it covers.
///
/// # Panics
/// When `page` is not one page long, or there are more generations than fit.
pub fn encode(identity: Identity, place: Place, generations: &[Generation], page: &mut [u8]) {
    assert!(page.len() == PAGE_BYTES && generations.len() <= ENTRIES_PER_PAGE as usize);
    page.fill(0);
    page[page::MAGIC..][..8].copy_from_slice(&MAGIC);
    put_u32(page, page::VERSION, FORMAT_VERSION);
    put_u64(page, page::DEVICE_ID, identity.device_id.0);
    put_u64(page, page::OWNER, identity.owner);
    put_u64(page, page::ZONE_BYTES, identity.zone_bytes);
    put_u32(page, page::PAGES_PER_BLOCK, identity.pages_per_block);
    put_u32(page, page::FIRST_DATA_ZONE, identity.first_data_zone);
    put_u32(page, page::DATA_ZONES, identity.data_zones);
    put_u32(page, page::INDEX, place.index);
    put_u64(page, page::SEQUENCE, place.sequence);
    put_u64(page, page::BATCH_FIRST, place.batch.0);
    put_u64(page, page::BATCH_LAST, place.batch.1);
    for (entry, generation) in page[page::ENTRIES..].chunks_exact_mut(4).zip(generations) {
        entry.copy_from_slice(&generation.0.to_le_bytes());
    }
    put_u32(page, page::CRC, crc_around(page, page::CRC));
}

/// What is wrong with a table page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadPage {
    /// It does not begin as one.
    NotATablePage,
    /// Another version of the format.
    Version(u32),
    /// Its checksum or its numbers are wrong.
    Damaged,
}

/// Reads what a table page says of the device and of itself.
///
/// # Errors
/// What is wrong with it.
pub fn decode(page: &[u8]) -> Result<(Identity, Place), BadPage> {
    if page.len() != PAGE_BYTES || page[page::MAGIC..][..8] != MAGIC {
        return Err(BadPage::NotATablePage);
    }
    let version = get_u32(page, page::VERSION);
    if version != FORMAT_VERSION {
        // Only this version's checksum is known to be where we look for it.
        return Err(BadPage::Version(version));
    }
    if get_u32(page, page::CRC) != crc_around(page, page::CRC) {
        return Err(BadPage::Damaged);
    }
    let identity = Identity {
        device_id: DeviceId(get_u64(page, page::DEVICE_ID)),
        owner: get_u64(page, page::OWNER),
        zone_bytes: get_u64(page, page::ZONE_BYTES),
        pages_per_block: get_u32(page, page::PAGES_PER_BLOCK),
        first_data_zone: get_u32(page, page::FIRST_DATA_ZONE),
        data_zones: get_u32(page, page::DATA_ZONES),
    };
    let place = Place {
        index: get_u32(page, page::INDEX),
        sequence: get_u64(page, page::SEQUENCE),
        batch: (get_u64(page, page::BATCH_FIRST), get_u64(page, page::BATCH_LAST)),
    };
    let within = (place.batch.0..=place.batch.1).contains(&place.sequence);
    let sound = identity.is_sound() && within && place.sequence > 0;
    match sound && place.index < identity.table_pages() {
        true => Ok((identity, place)),
        false => Err(BadPage::Damaged),
    }
}

/// The generations in a table page that was decoded.
pub fn entries(page: &[u8]) -> impl Iterator<Item = Generation> + '_ {
    page[page::ENTRIES..].chunks_exact(4).map(|entry| Generation(get_u32(entry, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity = Identity {
        device_id: DeviceId(0x1122_3344_5566_7788),
        owner: 0x99,
        zone_bytes: 2 << 30,
        pages_per_block: 275_712,
        first_data_zone: 2,
        data_zones: 3598,
    };
    const PLACE: Place = Place { index: 3, sequence: 77, batch: (76, 78) };

    fn sample() -> Vec<u8> {
        let generations: Vec<_> = (1..=ENTRIES_PER_PAGE).map(Generation).collect();
        let mut page = vec![0xff; PAGE_BYTES];
        encode(IDENTITY, PLACE, &generations, &mut page);
        page
    }

    #[test]
    fn a_table_page_reads_back_as_written() {
        let page = sample();
        assert_eq!(decode(&page), Ok((IDENTITY, PLACE)));
        assert!(entries(&page).map(|generation| generation.0).eq(1..=ENTRIES_PER_PAGE));
        assert_eq!(IDENTITY.table_pages(), 4);
    }

    #[test]
    fn every_flipped_bit_of_a_table_page_is_noticed() {
        for bit in 0..PAGE_BYTES * 8 {
            let mut page = sample();
            page[bit / 8] ^= 1 << (bit % 8);
            let found = decode(&page).expect_err("a flipped bit");
            let expected = match bit / 8 {
                0..8 => found == BadPage::NotATablePage,
                8..12 => matches!(found, BadPage::Version(_)),
                _ => found == BadPage::Damaged,
            };
            assert!(expected, "bit {bit}: {found:?}");
        }
    }

    #[test]
    fn numbers_that_no_device_has_are_refused() {
        let bad = [
            Identity { data_zones: 0, ..IDENTITY },
            Identity { data_zones: u32::MAX, ..IDENTITY },
            Identity { pages_per_block: 1, ..IDENTITY },
            Identity { zone_bytes: 4096, ..IDENTITY },
        ];
        for identity in bad {
            let mut page = vec![0; PAGE_BYTES];
            encode(identity, PLACE, &[], &mut page);
            assert_eq!(decode(&page), Err(BadPage::Damaged), "{identity:?}");
        }
        for place in [
            Place { index: 4, ..PLACE },
            Place { sequence: 79, ..PLACE },
            Place { sequence: 0, batch: (0, 0), index: 0 },
        ] {
            let mut page = vec![0; PAGE_BYTES];
            encode(IDENTITY, place, &[], &mut page);
            assert_eq!(decode(&page), Err(BadPage::Damaged), "{place:?}");
        }
    }

    #[test]
    fn the_specification_agrees_with_the_code() {
        let text = include_str!("../../../../docs/formats/zoned.md");
        let specified = |name: &str| -> u64 {
            let rows = text.lines().filter(|line| line.starts_with('|'));
            let cells = rows.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
            let mut found = cells.filter(|cells| cells.get(1) == Some(&name));
            let row = found.next().unwrap_or_else(|| panic!("zoned.md has no row `{name}`"));
            row[2].replace(' ', "").parse().unwrap_or_else(|_| panic!("{name}: {}", row[2]))
        };
        let pairs: [(&str, u64); 18] = [
            ("format version", FORMAT_VERSION.into()),
            ("copies", COPIES.into()),
            ("entries per table page", ENTRIES_PER_PAGE.into()),
            ("pages used of a metadata zone, at most", crate::limits::METADATA_ZONE_PAGES.into()),
            ("page.magic", page::MAGIC as u64),
            ("page.version", page::VERSION as u64),
            ("page.crc", page::CRC as u64),
            ("page.device_id", page::DEVICE_ID as u64),
            ("page.owner", page::OWNER as u64),
            ("page.zone_bytes", page::ZONE_BYTES as u64),
            ("page.pages_per_block", page::PAGES_PER_BLOCK as u64),
            ("page.first_data_zone", page::FIRST_DATA_ZONE as u64),
            ("page.data_zones", page::DATA_ZONES as u64),
            ("page.index", page::INDEX as u64),
            ("page.sequence", page::SEQUENCE as u64),
            ("page.batch_first", page::BATCH_FIRST as u64),
            ("page.batch_last", page::BATCH_LAST as u64),
            ("page.entries", page::ENTRIES as u64),
        ];
        for (name, value) in pairs {
            assert_eq!(specified(name), value, "{name}");
        }
    }
}
