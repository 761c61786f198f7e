//! What has become durable: programs in the order of their submission, and syncs over them.
//!
//! ```text
//!   submitted ─► [ done │ done │ under way │ done │ … ] ─ a sync covers the prefix that is done
//!                └─────── sync completes ──┘► durable: the stream's ordinal
//! ```
//!
//! A sync covers the programs that had completed when it was submitted, as far as everything before
//! them had, too; when it completes, these are durable, and leave the ledger.
//!
//! A program that *failed* stands in nobody's way: what it held is *displaced* until collection has
//! moved it out of memory to another block, and that is durable.
//!
//! Invariants: `first` is the number of the first program in the list; a sync's target lies in the
//! list; ordinals of a stream are synced in order; nothing of a stream counts as durable while
//! something of it is displaced.

use core::time::Duration;
use std::collections::VecDeque;

use timestone_flash::{BlockId, FlashOp};
use timestone_types::{Timestamp, is_planted};

use super::port::{Port, Purpose};
use super::writer::StreamId;

/// What of the caller's puts some pages hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    /// The lowest log batch.
    pub(crate) batch: u64,
    /// The lowest timestamp.
    pub(crate) oldest: Timestamp,
}

impl Held {
    /// Nothing but what the store wrote by itself.
    pub(crate) const NOTHING: Self = Self { batch: u64::MAX, oldest: Timestamp::MAX };

    pub(super) fn add(&mut self, other: Self) {
        self.batch = self.batch.min(other.batch);
        self.oldest = self.oldest.min(other.oldest);
        debug_assert!(self.batch <= other.batch && self.oldest <= other.oldest);
    }

    /// Puts belong to a batch below all numbers from now on.
    pub(super) fn number_anew(&mut self) {
        if self.batch != Self::NOTHING.batch {
            self.batch = 0;
        }
    }
}

/// Pages that were handed to the device together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    /// The writer's group that they are of.
    pub(super) group: u64,
    pub(super) stream: StreamId,
    pub(super) pages: u32,
    /// The stream's ordinal of the last page.
    pub(super) ordinal: u64,
    pub(super) held: Held,
}

/// Pages of a block that could not be programmed.
#[derive(Clone, Copy, Debug)]
struct Displaced {
    block: BlockId,
    stream: StreamId,
    held: Held,
}

/// All programs that are not durable.
#[derive(Default)]
pub(crate) struct Ledger {
    /// In the order in which the blocks failed.
    displaced: Vec<Displaced>,
    programs: VecDeque<(Program, bool)>,
    /// The number of the first program.
    first: u64,
    /// The program before which everything is durable when the sync under way completes.
    sync_target: Option<u64>,
    last_sync: Timestamp,
    /// By stream: the ordinal up to which its pages are durable.
    durable: [u64; StreamId::ALL.len()],
}

impl Ledger {
    /// A program is handed to the device: its number.
    pub(super) fn submitted(&mut self, program: Program) -> u64 {
        debug_assert!(program.pages > 0 && !self.is_synced(program.stream, program.ordinal));
        self.programs.push_back((program, false));
        self.first + self.programs.len() as u64 - 1
    }

    /// A program has completed: its group and pages.
    pub(super) fn programmed(&mut self, number: u64) -> Option<(u64, u32)> {
        let at = number.checked_sub(self.first)?;
        let (program, done) = self.programs.get_mut(at as usize)?;
        assert!(!*done, "a program completes once");
        *done = true;
        Some((program.group, program.pages))
    }

    /// A program has failed: its group, and what it held, which has to be displaced.
    pub(super) fn failed(&mut self, number: u64) -> Option<(u64, Held)> {
        let (group, _) = self.programmed(number)?;
        let (program, _) = &mut self.programs[(number - self.first) as usize];
        Some((group, core::mem::replace(&mut program.held, Held::NOTHING)))
    }

    /// What pages of a block hold that could not be programmed. Says whether it is the block's first
    /// failure.
    pub(super) fn displace(&mut self, block: BlockId, stream: StreamId, held: Held) -> bool {
        let held = if is_planted!(ForgetsDisplaced) { Held::NOTHING } else { held };
        if let Some(displaced) = self.displaced.iter_mut().find(|one| one.block == block) {
            displaced.held.add(held);
            return false;
        }
        self.displaced.push(Displaced { block, stream, held });
        true
    }

    /// Pages of a stream up to an ordinal will never be handed to the device: nobody waits for them.
    pub(super) fn skipped(&mut self, stream: StreamId, ordinal: u64) {
        debug_assert!(self.durable[stream as usize] < ordinal, "they were not durable");
        let held = Held::NOTHING;
        self.programs
            .push_back((Program { group: u64::MAX, stream, pages: 0, ordinal, held }, true));
    }

    /// Blocks that failed and that hold something which is not durable elsewhere yet.
    pub(super) fn failed_blocks(&self) -> usize {
        self.displaced.len()
    }

    /// What was displaced from a block is durable elsewhere, or nobody wants it any more.
    pub(super) fn relocated(&mut self, block: BlockId) {
        let before = self.displaced.len();
        self.displaced.retain(|displaced| displaced.block != block);
        assert_eq!(self.displaced.len() + 1, before, "a block that failed is relocated once");
    }

    /// The number of the first program before which not all have completed.
    fn completed(&self) -> u64 {
        self.first + self.programs.iter().take_while(|(_, done)| *done).count() as u64
    }

    /// Submits a sync when it is due or wanted, none is running, and it would make something
    /// durable.
    pub(super) fn sync(
        &mut self,
        now: Timestamp,
        interval: Duration,
        wanted: bool,
        port: &mut Port,
    ) {
        if self.sync_target.is_some() || (!wanted && now < self.last_sync.saturating_add(interval))
        {
            return;
        }
        let target = self.completed();
        debug_assert!(target >= self.first, "what is synced was completed");
        if target > self.first {
            self.sync_target = Some(target);
            self.last_sync = now;
            port.write(FlashOp::Sync { token: Purpose::Sync.token(0) });
        }
    }

    /// When a background sync is due, if one would make something durable.
    pub(crate) fn sync_deadline(&self, interval: Duration) -> Option<Timestamp> {
        (self.sync_target.is_none() && self.completed() > self.first)
            .then(|| self.last_sync.saturating_add(interval))
    }

    /// The sync has completed: the prefix it covers is durable.
    pub(crate) fn synced(&mut self) {
        let Some(target) = self.sync_target.take() else { return };
        while self.first < target {
            let Some((program, done)) = self.programs.pop_front() else { break };
            let durable = &mut self.durable[program.stream as usize];
            assert!(done && *durable < program.ordinal, "what is synced had completed, in order");
            *durable = program.ordinal;
            self.first += 1;
        }
    }

    /// Whether the pages of a stream up to an ordinal are durable, where they were written or
    /// elsewhere.
    pub(crate) fn is_durable(&self, stream: StreamId, ordinal: u64) -> bool {
        self.is_synced(stream, ordinal)
            && (is_planted!(ForgetsDisplaced)
                || self.displaced.iter().all(|displaced| displaced.stream != stream))
    }

    /// As [`Self::is_durable`], for what leaves a block that failed: what was displaced later may be
    /// of it, what was displaced from the block itself or earlier cannot be.
    pub(crate) fn is_durable_out_of(&self, block: BlockId, stream: StreamId, ordinal: u64) -> bool {
        let mut later = self.displaced.iter().skip_while(|displaced| displaced.block != block);
        debug_assert!(later.clone().next().is_some(), "the block has failed");
        later.next();
        self.is_synced(stream, ordinal) && later.all(|displaced| displaced.stream != stream)
    }

    /// Whether every program of a stream up to an ordinal that succeeded is durable.
    pub(crate) fn is_synced(&self, stream: StreamId, ordinal: u64) -> bool {
        self.durable[stream as usize] >= ordinal
    }

    /// As [`Self::held`], to change it.
    pub(super) fn held_mut(&mut self) -> impl Iterator<Item = &mut Held> + '_ {
        let programs = self.programs.iter_mut().map(|(program, _)| &mut program.held);
        programs.chain(self.displaced.iter_mut().map(|displaced| &mut displaced.held))
    }

    /// What the programs hold of the caller's puts, and what was displaced.
    pub(super) fn held(&self) -> impl Iterator<Item = Held> + '_ {
        let programs = self.programs.iter().map(|(program, _)| program.held);
        programs.chain(self.displaced.iter().map(|displaced| displaced.held))
    }
}

#[cfg(test)]
mod tests {
    use timestone_flash::{MemoryConfig, MemoryDevice};

    use super::*;

    fn program(stream: StreamId, ordinal: u64) -> Program {
        let held = Held { batch: ordinal, oldest: Timestamp::MAX };
        Program { group: 0, stream, pages: 1, ordinal, held }
    }

    #[test]
    fn a_sync_makes_durable_what_had_completed_before_it_without_a_gap() {
        let mut port = Port::new(Box::new(MemoryDevice::new(MemoryConfig::default())));
        let (mut ledger, now) = (Ledger::default(), Timestamp::from_nanos(1));
        let (hot, cold) = (StreamId::Hot, StreamId::Cold);
        let numbers = [(hot, 1), (cold, 1), (hot, 2), (hot, 3)]
            .map(|(stream, ordinal)| ledger.submitted(program(stream, ordinal)));
        for at in [0, 1, 3] {
            assert!(ledger.programmed(numbers[at]).is_some());
        }
        ledger.sync(now, Duration::ZERO, true, &mut port);
        assert_eq!(ledger.sync_deadline(Duration::ZERO), None, "one is under way");
        // This one completes too late for the sync.
        assert!(ledger.programmed(numbers[2]).is_some());
        ledger.synced();
        assert_eq!([1, 2, 3].map(|at| ledger.is_durable(hot, at)), [true, false, false]);
        assert!(ledger.is_durable(cold, 1));
        assert_eq!(ledger.held().map(|held| held.batch).min(), Some(2));
        assert_eq!(ledger.sync_deadline(Duration::ZERO), Some(now));
        ledger.sync(now, Duration::ZERO, true, &mut port);
        ledger.synced();
        assert!(ledger.is_durable(hot, 3) && ledger.held().next().is_none());
    }

    #[test]
    fn a_sync_is_not_asked_for_when_it_would_make_nothing_durable() {
        let mut port = Port::new(Box::new(MemoryDevice::new(MemoryConfig::default())));
        let mut ledger = Ledger::default();
        ledger.submitted(program(StreamId::Hot, 1));
        ledger.sync(Timestamp::from_nanos(1), Duration::ZERO, true, &mut port);
        ledger.synced();
        assert!(!ledger.is_durable(StreamId::Hot, 1));
    }
}
