//! Bounds of the flash floor.

/// Pages of an erase block unless configured otherwise: 1 MiB blocks (docs/protocol/storage.md).
pub const DEFAULT_PAGES_PER_BLOCK: u32 = 256;
/// Fewest pages of an erase block: below it the store's bookkeeping per block outweighs the data.
pub const MIN_PAGES_PER_BLOCK: u32 = 2;
/// Most pages of an erase block (16 MiB blocks).
pub const MAX_PAGES_PER_BLOCK: u32 = 4096;
/// Operations in flight unless configured otherwise.
pub const DEFAULT_QUEUE_DEPTH: u32 = 128;
/// Most operations in flight.
pub const MAX_QUEUE_DEPTH: u32 = 2048;
/// Pages of an erase block of the papers' emulated SSD (SEMEL §5, SkimpyFTL §4).
pub const PAPERS_PAGES_PER_BLOCK: u32 = 32;
/// Channels of an emulated device unless configured otherwise. The papers do not say how many their
/// SSD has. SEMEL's Table 1 has 456 000 gets a second at 59.9 µs with reads of 50 µs, so 22.8 reads
/// are served at a time and waiting takes less than 10 µs; random reads on `c` channels wait
/// `50 µs × u ÷ 2(1 − u)` with `u = 22.8 ÷ c`: 13.8 µs on 64 channels, 5.4 µs on 128. So 128 is the
/// least power of two that agrees with it. It is also their queue depth.
pub const DEFAULT_CHANNELS: u32 = 128;
/// Channels of one block of the papers' SSD. It programs pages side by side: SEMEL's Table 1 has
/// 142 000 puts a second of eight tuples a page, 17 700 pages without what collection moves; a
/// block on one channel takes 10 000. The least power of two that leaves collection as much again.
pub const PAPERS_CHANNELS_PER_BLOCK: u32 = 4;
/// What a power cut can tear: the unit in which disks write atomically.
pub const SECTOR_BYTES: usize = 512;
/// Most pages that adjacent programs are coalesced into one write for (1 MiB): larger writes gain
/// no bandwidth.
pub const MAX_RUN_PAGES: u32 = 256;
/// Writes of the block table in flight at once.
pub const TABLE_WRITES_IN_FLIGHT: usize = 4;
/// Writes of zeros in flight while the device grows: enough to go on, few enough not to slow reads
/// down.
pub const GROW_WRITES_IN_FLIGHT: usize = 2;
/// Operations of its own that a file device may have in flight: table writes, zero writes, one
/// sync, one allocation.
pub const OWN_OPS_IN_FLIGHT: usize = TABLE_WRITES_IN_FLIGHT + GROW_WRITES_IN_FLIGHT + 2;
/// How far beyond its capacity at creation a file device can grow at least: room in its block
/// table.
pub const TABLE_ROOM_FACTOR: u32 = 8;
/// Pages of the block table that are read at once when a device is opened.
pub const TABLE_READ_PAGES: u32 = 64;

/// Most pages of a zoned device's metadata zone that are used (16 MiB): so much is read at opening.
pub const METADATA_ZONE_PAGES: u32 = 4096;
/// Pages of a metadata zone that are read at once when a device is opened.
pub const METADATA_READ_PAGES: u32 = 64;
/// Zones of a zoned device that are reset at once: each is a command that the device works on for
/// milliseconds.
pub const RESETS_IN_FLIGHT: usize = 8;
/// Operations of its own that a zoned device may have in flight: resets before programs and after
/// erases, one finish, one write or reset of its table, one sync.
pub const ZONED_OPS_IN_FLIGHT: usize = 2 * RESETS_IN_FLIGHT + 3;
/// Most data zones of a zoned device: what one batch of its table can record in a single write.
pub const MAX_DATA_ZONES: u32 = 64_000;

const _: () = assert!(
    MAX_QUEUE_DEPTH as usize + ZONED_OPS_IN_FLIGHT <= timestone_io::limits::MAX_DEPTH as usize
);
const _: () = assert!(MAX_RUN_PAGES as usize <= timestone_io::limits::MAX_VECTORS);
const _: () = assert!(
    MAX_QUEUE_DEPTH as usize + OWN_OPS_IN_FLIGHT <= timestone_io::limits::MAX_DEPTH as usize
);
const _: () = assert!(crate::device::PAGE_BYTES == timestone_io::ALIGNMENT);
const _: () = assert!(crate::device::PAGE_BYTES.is_multiple_of(SECTOR_BYTES));
