//! The layout of a device's file: where everything lies, and the bytes of the superblock and of the
//! block table.
//!
//! ```text
//!   page 0      superblock            page 2 …        table, copy 0 (T pages)     data_start (1 MiB aligned)
//!   page 1      its twin              page 2 + T …    table, copy 1 (T pages)     block 0, block 1, …
//! ```
//!
//! The specification is `docs/formats/flash.md`; a test compares its tables with the constants
//! here. All numbers are little-endian. Nothing here does I/O.

use core::fmt;

use crate::bytes::{crc_around, get_u32, get_u64, put_u32, put_u64};
use crate::device::{Generation, PAGE_BYTES};
use crate::limits::{MAX_PAGES_PER_BLOCK, MIN_PAGES_PER_BLOCK};

/// First bytes of the superblock.
pub const SUPERBLOCK_MAGIC: [u8; 8] = *b"TSFLASH\0";
/// Version of everything in this file; rises with every incompatible change.
pub const FORMAT_VERSION: u32 = 1;
/// First bytes of a table page.
pub const TABLE_MAGIC: [u8; 4] = *b"TSBT";
/// Copies of the superblock and of the table.
pub const COPIES: u32 = 2;
/// Generations in one table page.
pub const ENTRIES_PER_TABLE_PAGE: u32 = ((PAGE_BYTES - table::ENTRIES) / 4) as u32;
/// Blocks begin at a multiple of this many bytes.
pub const DATA_ALIGNMENT: u64 = 1024 * 1024;

/// Offsets in the superblock, in bytes.
pub mod superblock {
    /// [`SUPERBLOCK_MAGIC`](super::SUPERBLOCK_MAGIC), 8 bytes.
    pub const MAGIC: usize = 0;
    /// [`FORMAT_VERSION`](super::FORMAT_VERSION), u32.
    pub const VERSION: usize = 8;
    /// Bytes of a page, u32.
    pub const PAGE_BYTES: usize = 12;
    /// Pages of a block, u32.
    pub const PAGES_PER_BLOCK: usize = 16;
    /// Blocks that the table has room for, u32.
    pub const TABLE_ROOM: usize = 20;
    /// The device's id, u64.
    pub const DEVICE_ID: usize = 24;
    /// CRC-32C of the page's other bytes in front of and behind it, u32.
    pub const CRC: usize = 32;
    /// Zeros from here to the end of the page.
    pub const RESERVED: usize = 36;
}

/// Offsets in a table page, in bytes.
pub mod table {
    /// [`TABLE_MAGIC`](super::TABLE_MAGIC), 4 bytes.
    pub const MAGIC: usize = 0;
    /// CRC-32C of the page's other bytes in front of and behind it, u32.
    pub const CRC: usize = 4;
    /// Counts the writes of this table page, u64; the copy to be written first is this number's
    /// lowest bit.
    pub const SEQUENCE: usize = 8;
    /// The device's id, u64.
    pub const DEVICE_ID: usize = 16;
    /// Which page of the table, u32.
    pub const INDEX: usize = 24;
    /// Zero, u32.
    pub const RESERVED: usize = 28;
    /// Generations, u32 each; 0 for a block that does not exist yet.
    pub const ENTRIES: usize = 32;
}

/// Identifies one device file for ever, so that a swapped or copied file is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceId(pub u64);

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What the superblock says, and all that follows from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Pages of every block.
    pub pages_per_block: u32,
    /// Blocks that the table has room for.
    pub table_room: u32,
    /// Whose file it is.
    pub device_id: DeviceId,
}

impl Layout {
    /// Pages of one copy of the table.
    #[must_use]
    pub const fn table_pages(self) -> u32 {
        self.table_room.div_ceil(ENTRIES_PER_TABLE_PAGE)
    }

    /// Where a copy of a table page lies, in bytes.
    #[must_use]
    pub const fn table_offset(self, copy: u32, index: u32) -> u64 {
        (COPIES as u64 + copy as u64 * self.table_pages() as u64 + index as u64) * PAGE_BYTES as u64
    }

    /// Where block 0 begins, in bytes.
    #[must_use]
    pub const fn data_start(self) -> u64 {
        self.table_offset(COPIES, 0).next_multiple_of(DATA_ALIGNMENT)
    }

    /// Bytes of one block.
    #[must_use]
    pub const fn block_bytes(self) -> u64 {
        self.pages_per_block as u64 * PAGE_BYTES as u64
    }

    /// Where a block begins, in bytes; for the number of blocks: where the file may end.
    #[must_use]
    pub const fn block_offset(self, block: u32) -> u64 {
        self.data_start() + block as u64 * self.block_bytes()
    }

    /// Writes the superblock.
    ///
    /// # Panics
    /// When `page` is not one page long.
    pub fn encode(self, page: &mut [u8]) {
        assert_eq!(page.len(), PAGE_BYTES);
        page.fill(0);
        page[superblock::MAGIC..][..8].copy_from_slice(&SUPERBLOCK_MAGIC);
        put_u32(page, superblock::VERSION, FORMAT_VERSION);
        put_u32(page, superblock::PAGE_BYTES, PAGE_BYTES as u32);
        put_u32(page, superblock::PAGES_PER_BLOCK, self.pages_per_block);
        put_u32(page, superblock::TABLE_ROOM, self.table_room);
        put_u64(page, superblock::DEVICE_ID, self.device_id.0);
        put_u32(page, superblock::CRC, crc_around(page, superblock::CRC));
    }

    /// Reads the superblock.
    ///
    /// # Errors
    /// What is wrong with it, from the most telling to the least.
    pub fn decode(page: &[u8]) -> Result<Self, BadSuperblock> {
        if page.len() != PAGE_BYTES || page[superblock::MAGIC..][..8] != SUPERBLOCK_MAGIC {
            return Err(BadSuperblock::NotADevice);
        }
        let version = get_u32(page, superblock::VERSION);
        let intact = get_u32(page, superblock::CRC) == crc_around(page, superblock::CRC);
        if version != FORMAT_VERSION {
            // Only this version's checksum is known to be where we look for it.
            return Err(BadSuperblock::Version(version));
        }
        if !intact {
            return Err(BadSuperblock::Damaged);
        }
        let page_bytes = get_u32(page, superblock::PAGE_BYTES);
        if page_bytes as usize != PAGE_BYTES {
            return Err(BadSuperblock::PageBytes(page_bytes));
        }
        let layout = Self {
            pages_per_block: get_u32(page, superblock::PAGES_PER_BLOCK),
            table_room: get_u32(page, superblock::TABLE_ROOM),
            device_id: DeviceId(get_u64(page, superblock::DEVICE_ID)),
        };
        let numbered = layout.table_room.checked_mul(layout.pages_per_block).is_some();
        let bounded = (MIN_PAGES_PER_BLOCK..=MAX_PAGES_PER_BLOCK).contains(&layout.pages_per_block);
        if numbered && bounded && layout.table_room > 0 {
            Ok(layout)
        } else {
            Err(BadSuperblock::Damaged)
        }
    }

    /// Writes one page of the table: `generations` are those of the blocks that this page covers.
    ///
    /// # Panics
    /// When `page` is not one page long, or there are more generations than fit.
    pub fn encode_table(
        self,
        page: &mut [u8],
        index: u32,
        sequence: u64,
        generations: &[Generation],
    ) {
        assert_eq!(page.len(), PAGE_BYTES);
        assert!(generations.len() <= ENTRIES_PER_TABLE_PAGE as usize);
        page.fill(0);
        page[table::MAGIC..][..4].copy_from_slice(&TABLE_MAGIC);
        put_u64(page, table::SEQUENCE, sequence);
        put_u64(page, table::DEVICE_ID, self.device_id.0);
        put_u32(page, table::INDEX, index);
        for (entry, generation) in page[table::ENTRIES..].chunks_exact_mut(4).zip(generations) {
            entry.copy_from_slice(&generation.0.to_le_bytes());
        }
        put_u32(page, table::CRC, crc_around(page, table::CRC));
    }

    /// The sequence number of a table page, if it is whole, of this device, and where it belongs.
    #[must_use]
    pub fn check_table(self, page: &[u8], index: u32) -> Option<u64> {
        let valid = page.len() == PAGE_BYTES
            && page[table::MAGIC..][..4] == TABLE_MAGIC
            && get_u32(page, table::CRC) == crc_around(page, table::CRC)
            && get_u64(page, table::DEVICE_ID) == self.device_id.0
            && get_u32(page, table::INDEX) == index;
        valid.then(|| get_u64(page, table::SEQUENCE))
    }

    /// The generations in a table page that was checked.
    pub fn table_entries(page: &[u8]) -> impl Iterator<Item = Generation> + '_ {
        page[table::ENTRIES..].chunks_exact(4).map(|entry| Generation(get_u32(entry, 0)))
    }
}

/// What is wrong with a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadSuperblock {
    /// It does not begin as one.
    NotADevice,
    /// Another version of the format.
    Version(u32),
    /// Another page size.
    PageBytes(u32),
    /// Its checksum or its numbers are wrong.
    Damaged,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        pages_per_block: 256,
        table_room: 2000,
        device_id: DeviceId(0x1122_3344_5566_7788),
    };

    fn superblock_page() -> Vec<u8> {
        let mut page = vec![0xff; PAGE_BYTES];
        LAYOUT.encode(&mut page);
        page
    }

    #[test]
    fn a_superblock_reads_back_as_written() {
        assert_eq!(Layout::decode(&superblock_page()), Ok(LAYOUT));
    }

    #[test]
    fn every_flipped_bit_of_a_superblock_is_noticed() {
        for bit in 0..PAGE_BYTES * 8 {
            let mut page = superblock_page();
            page[bit / 8] ^= 1 << (bit % 8);
            let found = Layout::decode(&page).expect_err("a flipped bit");
            let expected = match bit / 8 {
                0..8 => matches!(found, BadSuperblock::NotADevice),
                8..12 => matches!(found, BadSuperblock::Version(_)),
                _ => found == BadSuperblock::Damaged,
            };
            assert!(expected, "bit {bit}: {found:?}");
        }
    }

    #[test]
    fn a_table_page_reads_back_and_notices_flips_and_strangers() {
        let generations: Vec<_> = (1..=ENTRIES_PER_TABLE_PAGE).map(Generation).collect();
        let mut page = vec![0; PAGE_BYTES];
        LAYOUT.encode_table(&mut page, 1, 77, &generations);
        assert_eq!(LAYOUT.check_table(&page, 1), Some(77));
        assert_eq!(Layout::table_entries(&page).collect::<Vec<_>>(), generations);
        assert_eq!(LAYOUT.check_table(&page, 0), None, "a misdirected write");
        let other = Layout { device_id: DeviceId(1), ..LAYOUT };
        assert_eq!(other.check_table(&page, 1), None, "a page of another device");
        for bit in (0..PAGE_BYTES * 8).step_by(7) {
            page[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(LAYOUT.check_table(&page, 1), None, "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// Reads `| name | value |` rows out of the format's specification.
    fn specified(name: &str) -> u64 {
        let text = include_str!("../../../../docs/formats/flash.md");
        let row = text
            .lines()
            .filter(|line| line.starts_with('|'))
            .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>())
            .find(|cells| cells.get(1) == Some(&name));
        let row = row.unwrap_or_else(|| panic!("docs/formats/flash.md has no row `{name}`"));
        row[2]
            .replace(' ', "")
            .parse()
            .unwrap_or_else(|_| panic!("the value of `{name}` is no number: {}", row[2]))
    }

    #[test]
    fn the_specification_agrees_with_the_code() {
        let pairs: [(&str, u64); 25] = [
            ("format version", FORMAT_VERSION.into()),
            ("page bytes", PAGE_BYTES as u64),
            ("copies", COPIES.into()),
            ("data alignment", DATA_ALIGNMENT),
            ("entries per table page", ENTRIES_PER_TABLE_PAGE.into()),
            ("superblock.magic", superblock::MAGIC as u64),
            ("superblock.version", superblock::VERSION as u64),
            ("superblock.page_bytes", superblock::PAGE_BYTES as u64),
            ("superblock.pages_per_block", superblock::PAGES_PER_BLOCK as u64),
            ("superblock.table_room", superblock::TABLE_ROOM as u64),
            ("superblock.device_id", superblock::DEVICE_ID as u64),
            ("superblock.crc", superblock::CRC as u64),
            ("superblock.reserved", superblock::RESERVED as u64),
            ("table.magic", table::MAGIC as u64),
            ("table.crc", table::CRC as u64),
            ("table.sequence", table::SEQUENCE as u64),
            ("table.device_id", table::DEVICE_ID as u64),
            ("table.index", table::INDEX as u64),
            ("table.reserved", table::RESERVED as u64),
            ("table.entries", table::ENTRIES as u64),
            ("example: table pages of one copy", LAYOUT.table_pages().into()),
            ("example: offset of table copy 0", LAYOUT.table_offset(0, 0)),
            ("example: offset of table copy 1", LAYOUT.table_offset(1, 0)),
            ("example: offset of block 0", LAYOUT.block_offset(0)),
            ("example: offset of block 3", LAYOUT.block_offset(3)),
        ];
        for (name, value) in pairs {
            assert_eq!(specified(name), value, "{name}");
        }
    }

    #[test]
    fn known_bytes_of_a_superblock_do_not_change() {
        let page = superblock_page();
        assert_eq!(page[..8], *b"TSFLASH\0");
        assert_eq!(
            page[8..32],
            [
                1, 0, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0xd0, 7, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44,
                0x33, 0x22, 0x11
            ]
        );
        assert!(page[36..].iter().all(|&byte| byte == 0));
    }
}
