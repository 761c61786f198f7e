//! How many logical blocks a device is worth, and what the rest is for.
//!
//! ```text
//!   blocks of the device = logical blocks + spare
//!   spare = a tenth, and at least: journal + open blocks + free blocks that are kept + 2
//! ```
//!
//! Why that is enough: when free blocks are down to those that are kept, the full blocks are more
//! than the logical ones, so some of their pages are dead, and collection wins something.

use timestone_flash::Geometry;

use super::journal;

/// Blocks that host pages are spread over, at most: several programs at once.
const MAX_LANES: u32 = 8;
/// One lane for so many blocks.
const BLOCKS_PER_LANE: u32 = 64;
/// Free blocks that collection may take and the host may not.
const KEPT_FOR_COLLECTION: u32 = 2;
/// Blocks of dead pages, at least, when nothing is free.
const SLACK: u32 = 2;

/// Blocks over which host pages are spread.
pub(super) fn lanes(blocks: u32) -> u32 {
    (blocks / BLOCKS_PER_LANE).clamp(1, MAX_LANES)
}

/// Blocks over which pages are spread that collection moves.
pub(super) fn collection_lanes(blocks: u32) -> u32 {
    (lanes(blocks) / 2).max(1)
}

/// Free blocks that only the journal may take.
pub(super) fn journal_floor(logical_blocks: u32, pages_per_block: u32) -> u32 {
    1 + journal::map_pages(logical_blocks, pages_per_block).div_ceil(pages_per_block)
}

/// Free blocks that the host may not take.
pub(super) fn host_floor(logical_blocks: u32, pages_per_block: u32) -> u32 {
    journal_floor(logical_blocks, pages_per_block) + KEPT_FOR_COLLECTION
}

/// Logical blocks of a device of this shape, were it `blocks` large; `divisor`: one block in so
/// many is spare, at least. Never fewer than those of a smaller one.
pub(super) fn logical_blocks(geometry: Geometry, blocks: u32, divisor: u32) -> u32 {
    let of = |blocks: u32| {
        let pages = geometry.pages_per_block;
        let least = journal::most_blocks(blocks, pages)
            + lanes(blocks)
            + collection_lanes(blocks)
            + host_floor(blocks, pages)
            + SLACK;
        blocks.saturating_sub(least.max(blocks.div_ceil(divisor.max(1))))
    };
    // What a step of the bounds takes, a smaller device may have had: it is looked at, too.
    (blocks.saturating_sub(2 * BLOCKS_PER_LANE)..=blocks).map(of).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_is_spare_and_a_larger_device_has_no_fewer_logical_blocks() {
        for pages_per_block in [8, 32, 256] {
            let geometry = Geometry { pages_per_block, blocks: 0, max_blocks: 0 };
            let mut before = 0;
            for blocks in 0..3000 {
                let logical = logical_blocks(geometry, blocks, 10);
                assert!(logical >= before && logical <= blocks * 9 / 10, "{blocks} blocks");
                before = logical;
            }
            assert!(before > 2600, "{before} of 3000 blocks of {pages_per_block} pages");
        }
    }
}
