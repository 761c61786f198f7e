//! What goes wrong on an emulated device by itself: operations that fail at a rate, blocks that wear
//! out, bits that flip with time.
//!
//! ```text
//!   program or erase ─► bad already? ─► worn out? ─► drawn? ─► done
//!                            └──────────────┴───────────┴──► fails, and the block is bad for good
//! ```
//!
//! Everything is drawn from one seed, in the order in which operations are started: the same calls
//! at the same times meet the same faults.

use std::time::Duration;

use timestone_types::random::{Dice, Seed};

use crate::device::{BlockId, Generation};
use crate::faults::OpKind;

/// How often operations go wrong by themselves. Zeros: never.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultRates {
    /// What everything is drawn from.
    pub seed: u64,
    /// Reads that fail, of a million. The next read of the page may succeed.
    pub failed_reads: u32,
    /// Programs that fail, of a million. The block is bad from then on.
    pub failed_programs: u32,
    /// Erases that fail, of a million. The block is bad from then on.
    pub failed_erases: u32,
    /// One bit of the device flips in so long, on average. Where it lies is drawn from all pages, so
    /// that what was programmed long ago is hit more often than what lives shortly.
    pub rot_every: Duration,
}

/// Blocks that are bad, and what else may go wrong.
#[derive(Debug)]
pub(super) struct Wear {
    /// Erases after which a block is worn out.
    endurance: Option<u32>,
    bad: Vec<bool>,
    bad_count: u32,
    rates: FaultRates,
    dice: Dice,
    /// When the next bit flips.
    next_flip: Option<u64>,
}

impl Wear {
    pub(super) fn new(blocks: u32, endurance: Option<u32>, rates: FaultRates, now: u64) -> Self {
        let dice = Seed(rates.seed).derive("flash wear", 0).dice();
        let mut wear = Self {
            endurance,
            bad: vec![false; blocks as usize],
            bad_count: 0,
            rates,
            dice,
            next_flip: None,
        };
        wear.set_rates(rates, now);
        wear
    }

    /// Other rates from now on.
    pub(super) fn set_rates(&mut self, rates: FaultRates, now: u64) {
        self.rates = rates;
        self.dice = Seed(rates.seed).derive("flash wear", 0).dice();
        self.next_flip = (!rates.rot_every.is_zero()).then(|| self.flip_after(now));
    }

    /// The device has so many blocks.
    pub(super) fn grow_to(&mut self, blocks: u32) {
        self.bad.resize(blocks as usize, false);
    }

    pub(super) fn is_bad(&self, block: BlockId) -> bool {
        self.bad.get(block.0 as usize).is_some_and(|&bad| bad)
    }

    /// Bad blocks.
    pub(super) fn bad_count(&self) -> u32 {
        self.bad_count
    }

    /// The block is bad for good.
    pub(super) fn set_bad(&mut self, block: BlockId) {
        let bad = &mut self.bad[block.0 as usize];
        self.bad_count += u32::from(!std::mem::replace(bad, true));
    }

    /// Why an operation fails by itself, if it does.
    pub(super) fn failure(
        &mut self,
        kind: OpKind,
        block: Option<BlockId>,
        generation: Generation,
    ) -> Option<&'static str> {
        let changes = matches!(kind, OpKind::Program | OpKind::Erase);
        if changes && block.is_some_and(|block| self.is_bad(block)) {
            return Some("the block is bad");
        }
        let erases = generation.0.saturating_sub(Generation::FIRST.0);
        if kind == OpKind::Erase && self.endurance.is_some_and(|endurance| erases >= endurance) {
            return Some("the block is worn out");
        }
        let rate = match kind {
            OpKind::Read => self.rates.failed_reads,
            OpKind::Program => self.rates.failed_programs,
            OpKind::Erase => self.rates.failed_erases,
            OpKind::Sync | OpKind::Grow => 0,
        };
        (rate > 0 && self.dice.below(1_000_000) < u64::from(rate)).then_some("a drawn fault")
    }

    /// The next bit that has flipped by now, as page (of so many) and bit.
    pub(super) fn flipped(&mut self, now: u64, pages: u32) -> Option<(u32, usize)> {
        let at = self.next_flip.filter(|&at| at <= now)?;
        self.next_flip = Some(self.flip_after(at));
        Some((self.dice.below(pages.into()) as u32, self.dice.below(1 << 15) as usize))
    }

    fn flip_after(&mut self, at: u64) -> u64 {
        let mean = u64::try_from(self.rates.rot_every.as_nanos()).unwrap_or(u64::MAX / 4);
        at.saturating_add(self.dice.between(1, mean.saturating_mul(2)))
    }
}
