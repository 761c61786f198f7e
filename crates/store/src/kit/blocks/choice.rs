//! Which block to collect next, by cost and benefit.
//!
//! ```text
//!   sealed blocks ─► live share below the limit? ─ yes ─► space won × age ÷ data moved: the most
//!                                                   └─ no ─► later, when the watermark has moved?
//! ```
//!
//! Nothing is kept here: a search looks at all blocks.

use timestone_flash::BlockId;
use timestone_types::Timestamp;

use super::{BlockState, Blocks};
use crate::kit::writer::StreamId;

/// What a search for a block to collect came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Search {
    /// Collect this one.
    Found(BlockId),
    /// Nothing yet: a block will be worth it when the watermark has moved on, or when it is
    /// programmed and not read any more.
    Later,
    /// Nothing, and waiting does not help.
    Nothing,
}

/// The sealed block whose collection wins most: space won × age ÷ data moved (cost-benefit), if
/// its live share is below `limit` thousandths. When it is urgent, age does not count.
pub(crate) fn choose_victim(
    blocks: &Blocks,
    watermark: Timestamp,
    limit: u32,
    urgent: bool,
) -> Search {
    let pages_per_block = blocks.geometry.pages_per_block;
    let (mut best, mut later) = (None, false);
    for (number, block) in blocks.list.iter().enumerate() {
        if !block.is_collectable() {
            continue;
        }
        let live = block.live_share(watermark, pages_per_block).min(1000);
        let busy = block.readable < block.pages || block.readers > 0;
        // What is superseded dies by itself, soon: nothing of it has to be moved then.
        let dies = !urgent
            && block.stream == StreamId::Superseded
            && block.usage.superseded_until() > watermark;
        if live >= limit || busy || dies {
            later |= block.live_share_later(watermark, pages_per_block) < limit;
            continue;
        }
        let age =
            if urgent { 1 } else { u128::from(blocks.clock.saturating_sub(block.sealed_at) + 1) };
        let score = u128::from(1000 - live) * age * 1024 / u128::from(1000 + live);
        if best.is_none_or(|(most, _)| score > most) {
            best = Some((score, BlockId(number as u32)));
        }
    }
    match best {
        Some((_, block)) => Search::Found(block),
        None if later => Search::Later,
        None => Search::Nothing,
    }
}

/// The timestamp which the watermark must pass for everything that is superseded already to
/// count, if by then a block has a live share below `limit` that has a larger one now.
pub(crate) fn worth_waiting_for(
    blocks: &Blocks,
    watermark: Timestamp,
    limit: u32,
) -> Option<Timestamp> {
    let pages_per_block = blocks.geometry.pages_per_block;
    let later = blocks.list.iter().filter(|block| {
        block.is_collectable()
            && block.live_share(watermark, pages_per_block) >= limit
            && block.live_share_later(watermark, pages_per_block) < limit
    });
    later.map(|block| block.usage.superseded_until()).max()
}

/// A block that is worn less than another by more than this holds what does not die: it is collected
/// although nothing is won, so that puts wear it as well. Each block of such data is moved once for so
/// many erases of the others: that costs a few thousandths of what is written.
const MAX_WEAR_SPREAD: u32 = 256;

/// The least worn block that can be collected, if wear is spread too far.
pub(crate) fn choose_least_worn(blocks: &Blocks) -> Option<BlockId> {
    let idle = |block: &&super::Block| {
        block.is_collectable() && block.readable == block.pages && block.readers == 0
    };
    let in_use = blocks.list.iter().filter(|block| block.state != BlockState::Quarantined);
    let most = in_use.map(|block| block.generation.0).max()?;
    let numbered = blocks.list.iter().zip(0..).filter(|(block, _)| idle(block));
    let (least, number) = numbered.map(|(block, number)| (block.generation.0, number)).min()?;
    debug_assert!(least <= most, "the least is no more than the most");
    (most - least > MAX_WEAR_SPREAD).then_some(BlockId(number))
}

#[cfg(test)]
mod tests {
    use timestone_flash::{Generation, PageId};

    use super::super::tests::table;
    use super::*;

    /// A table with one sealed block of ten records, and its first page.
    fn one_sealed(stream: StreamId) -> (Blocks, BlockId, PageId) {
        let mut blocks = table();
        let block = blocks.take(stream, 0).expect("free");
        for _ in 0..10 {
            blocks.usage(block).wrote(1000, None);
        }
        (0..4).for_each(|_| blocks.page_begun(block));
        blocks.programmed(block, 4);
        blocks.seal(block);
        let page = blocks.geometry.page(block, 0);
        (blocks, block, page)
    }

    #[test]
    fn what_is_superseded_above_the_watermark_counts_later() {
        let (mut blocks, block, page) = one_sealed(StreamId::Hot);
        for _ in 0..9 {
            blocks.superseded(page, Timestamp::from_nanos(50), Timestamp::from_nanos(10));
        }
        assert_eq!(blocks.get(block).live_share(Timestamp::from_nanos(10), 4), 1000);
        assert_eq!(choose_victim(&blocks, Timestamp::from_nanos(10), 600, false), Search::Later);
        assert_eq!(choose_victim(&blocks, Timestamp::from_nanos(10), 50, false), Search::Nothing);
        assert_eq!(
            worth_waiting_for(&blocks, Timestamp::from_nanos(10), 600),
            Some(Timestamp::from_nanos(50))
        );
        assert_eq!(blocks.get(block).live_share(Timestamp::from_nanos(50), 4), 100);
        assert_eq!(
            choose_victim(&blocks, Timestamp::from_nanos(50), 600, false),
            Search::Found(block)
        );
        assert_eq!(
            worth_waiting_for(&blocks, Timestamp::from_nanos(50), 600),
            None,
            "it is worth it now"
        );
    }

    #[test]
    fn what_dies_by_itself_soon_is_not_moved_unless_it_is_urgent() {
        let (mut blocks, block, page) = one_sealed(StreamId::Superseded);
        let [early, between, late] = [10, 40, 50].map(Timestamp::from_nanos);
        for by in 41..=50 {
            blocks.superseded(page, Timestamp::from_nanos(by), early);
        }
        assert_eq!(choose_victim(&blocks, between, 1001, false), Search::Later);
        assert_eq!(choose_victim(&blocks, between, 1001, true), Search::Found(block));
        assert_eq!(choose_victim(&blocks, late, 1001, false), Search::Found(block));
    }

    #[test]
    fn a_block_is_chosen_for_its_little_wear_when_the_spread_is_too_large() {
        let (mut blocks, block, _) = one_sealed(StreamId::Cold);
        let other = blocks.take(StreamId::Hot, 0).expect("free");
        for (wear, chosen) in [(MAX_WEAR_SPREAD, None), (MAX_WEAR_SPREAD + 1, Some(block))] {
            let generation = Generation(blocks.get(block).generation.0 + wear);
            blocks.list[other.0 as usize].generation = generation;
            assert_eq!(choose_least_worn(&blocks), chosen);
        }
    }
}
