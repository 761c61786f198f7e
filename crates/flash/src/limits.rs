//! Bounds of the flash floor.

/// Pages of an erase block unless configured otherwise: 1 MiB blocks (storage.md).
pub const DEFAULT_PAGES_PER_BLOCK: u32 = 256;
/// Fewest pages of an erase block: below it the store's bookkeeping per block outweighs the data.
pub const MIN_PAGES_PER_BLOCK: u32 = 2;
/// Most pages of an erase block (16 MiB blocks).
pub const MAX_PAGES_PER_BLOCK: u32 = 4096;
/// Operations in flight unless configured otherwise (storage.md: queue depth 128).
pub const DEFAULT_QUEUE_DEPTH: u32 = 128;
/// Most operations in flight.
pub const MAX_QUEUE_DEPTH: u32 = 2048;
