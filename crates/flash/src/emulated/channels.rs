//! When operations are over: a queue for each channel, and the time that each page takes.
//!
//! ```text
//!   channel 0 │ read ▒│ program ▒▒▒▒│ read ▒│        an operation begins when its channel is free,
//!   channel 1 │ erase ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒│        and not before it was started
//! ```
//!
//! A channel serves its operations in the order in which they were started, one after the other.
//! What each takes is known, so the moment at which the channel is free again says all about its
//! queue: nothing is simulated step by step, and an operation costs the same however long the
//! queue is.
//!
//! Invariants: the moment at which a channel is free never moves back; programs and erases of one
//! block are over in the order in which they were started.

use std::time::Duration;

use crate::device::BlockId;
use crate::pending::PendingOp;

/// How long the parts of an operation take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latencies {
    /// Reading one page.
    pub read: Duration,
    /// Programming one page.
    pub program: Duration,
    /// Erasing one block; also growing, whose blocks come erased.
    pub erase: Duration,
    /// A sync. It waits for no channel.
    pub sync: Duration,
}

impl Latencies {
    /// Those of the papers' emulated SSD: 50 µs, 100 µs, 1 ms (SEMEL §5, SkimpyFTL §4), and syncs
    /// that take no time, because a program is durable there when it completes.
    pub const PAPERS: Self = Self {
        read: Duration::from_micros(50),
        program: Duration::from_micros(100),
        erase: Duration::from_millis(1),
        sync: Duration::ZERO,
    };

    /// Operations take no time at all.
    pub const ZERO: Self = Self {
        read: Duration::ZERO,
        program: Duration::ZERO,
        erase: Duration::ZERO,
        sync: Duration::ZERO,
    };
}

/// The channels of a device.
#[derive(Debug)]
pub(super) struct Channels {
    latencies: Latencies,
    /// Channels that the pages of one block are spread over.
    per_block: u32,
    /// When each channel is free.
    free_at: Vec<u64>,
    /// When the last program or erase of each block is over.
    block_free_at: Vec<u64>,
}

impl Channels {
    pub(super) fn new(channels: u32, per_block: u32, blocks: u32, latencies: Latencies) -> Self {
        assert!(per_block >= 1 && per_block <= channels, "a block lies on channels that are there");
        Self {
            latencies,
            per_block,
            free_at: vec![0; channels as usize],
            block_free_at: vec![0; blocks as usize],
        }
    }

    /// The device has so many blocks.
    pub(super) fn grow_to(&mut self, blocks: u32) {
        self.block_free_at.resize(blocks as usize, 0);
    }

    /// Takes the channels that an operation started `now` needs; says when it is over.
    pub(super) fn serve(&mut self, op: PendingOp, now: u64) -> u64 {
        match op {
            PendingOp::Read(extent) => {
                self.serve_pages(extent.block, extent.index, extent.pages, self.latencies.read, now)
            }
            PendingOp::Program(extent) => {
                let each = self.latencies.program;
                let over = self.serve_pages(extent.block, extent.index, extent.pages, each, now);
                self.in_turn(extent.block, over)
            }
            PendingOp::Erase(block) => {
                // The whole block at once: on all its channels, from when the last of them is free.
                let begin = (0..self.per_block).map(|page| self.channel_of(block, page));
                let begin = begin.map(|channel| self.free_at[channel]).fold(now, u64::max);
                let over = begin.saturating_add(nanos(self.latencies.erase));
                for page in 0..self.per_block {
                    let channel = self.channel_of(block, page);
                    self.free_at[channel] = over;
                }
                self.in_turn(block, over)
            }
            PendingOp::Sync => now.saturating_add(nanos(self.latencies.sync)),
            PendingOp::Grow(_) => now.saturating_add(nanos(self.latencies.erase)),
        }
    }

    /// Pages one after another on each channel; over when the last one is.
    fn serve_pages(
        &mut self,
        block: BlockId,
        index: u32,
        pages: u32,
        each: Duration,
        now: u64,
    ) -> u64 {
        let mut over = now;
        for page in index..index + pages {
            let channel = self.channel_of(block, page);
            let free_at = &mut self.free_at[channel];
            *free_at = (*free_at).max(now).saturating_add(nanos(each));
            over = over.max(*free_at);
        }
        over
    }

    /// Never over before what was started earlier in the block.
    fn in_turn(&mut self, block: BlockId, over: u64) -> u64 {
        let block_free_at = &mut self.block_free_at[block.0 as usize];
        *block_free_at = over.max(*block_free_at);
        *block_free_at
    }

    /// The first channel of a block, where blocks share all of their channels or none.
    pub(super) fn first_of(&self, block: BlockId) -> Option<u32> {
        let alike = self.free_at.len().is_multiple_of(self.per_block as usize);
        alike.then(|| self.channel_of(block, 0) as u32)
    }

    /// Blocks lie on the channels in turn.
    fn channel_of(&self, block: BlockId, index: u32) -> usize {
        let channels = self.free_at.len() as u64;
        let first = u64::from(block.0) * u64::from(self.per_block);
        ((first + u64::from(index % self.per_block)) % channels) as usize
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Extent;

    const US: u64 = 1000;

    fn read(block: u32, index: u32, pages: u32) -> PendingOp {
        PendingOp::Read(Extent { block: BlockId(block), index, pages })
    }

    fn program(block: u32, index: u32, pages: u32) -> PendingOp {
        PendingOp::Program(Extent { block: BlockId(block), index, pages })
    }

    #[test]
    fn operations_of_one_channel_follow_each_other_and_others_go_beside_them() {
        let mut channels = Channels::new(2, 1, 4, Latencies::PAPERS);
        assert_eq!(channels.serve(read(0, 0, 1), 0), 50 * US);
        assert_eq!(channels.serve(read(2, 0, 1), 0), 100 * US, "block 2 shares block 0's channel");
        assert_eq!(channels.serve(program(1, 0, 3), 0), 300 * US, "a page after the other");
        assert_eq!(channels.serve(PendingOp::Erase(BlockId(0)), 20 * US), 1100 * US);
        assert_eq!(channels.serve(read(2, 1, 2), 20 * US), 1200 * US, "behind the erase");
        assert_eq!(channels.serve(read(2, 1, 1), 2000 * US), 2050 * US, "an idle channel is free");
        assert_eq!(channels.serve(PendingOp::Sync, 2000 * US), 2000 * US);
    }

    #[test]
    fn a_block_on_several_channels_programs_pages_side_by_side_and_erases_as_a_whole() {
        let mut channels = Channels::new(4, 2, 4, Latencies::PAPERS);
        assert_eq!(channels.serve(program(0, 0, 3), 0), 200 * US);
        assert_eq!(channels.serve(program(0, 3, 1), 0), 200 * US);
        assert_eq!(channels.serve(read(2, 1, 1), 0), 250 * US, "block 2 shares its channels");
        assert_eq!(channels.serve(read(1, 0, 2), 0), 50 * US, "block 1 does not");
        assert_eq!(channels.serve(PendingOp::Erase(BlockId(0)), 0), 1250 * US);
        assert_eq!(channels.serve(read(2, 0, 1), 0), 1300 * US);
    }

    #[test]
    fn blocks_with_the_same_first_channel_share_all_of_them() {
        let first = |channels, per_block| {
            let channels = Channels::new(channels, per_block, 4, Latencies::PAPERS);
            [0, 1, 2, 3].map(|block| channels.first_of(BlockId(block)))
        };
        assert_eq!(first(2, 1), [Some(0), Some(1), Some(0), Some(1)]);
        assert_eq!(first(6, 2), [Some(0), Some(2), Some(4), Some(0)]);
        assert_eq!(first(3, 2), [None; 4], "block 0 shares one channel with block 1");
    }

    #[test]
    fn programs_of_a_block_are_over_in_their_order_whichever_channel_is_free_first() {
        let mut channels = Channels::new(2, 2, 2, Latencies::PAPERS);
        assert_eq!(channels.serve(read(1, 0, 3), 0), 100 * US, "channel 0 twice, channel 1 once");
        assert_eq!(channels.serve(program(0, 0, 1), 0), 200 * US);
        assert_eq!(channels.serve(program(0, 1, 1), 0), 200 * US, "its channel was done at 150");
    }
}
