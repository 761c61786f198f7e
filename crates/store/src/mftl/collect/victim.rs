//! One block on its way to be erased: how far it is, what of it is counted, and what it may do next.
//!
//! A head of a large value that nobody needs is in its key's dead count like any record. It may be met
//! late: the value waited for its turn to leave, or its parts' block was erased before. So a victim
//! notes which values' heads it has met, and the count falls with its erase all the same.
//!
//! A head that a value has left because of *another* block, with its parts, is counted from then on, and
//! so is what has moved out of a block that is not going to be erased. *Counterexample (`ForgetsOldHeads`):* nobody
//! counts it. x@10 has its head in block 1 and its parts in block 2. Block 2 is emptied: the new head
//! lies in block 3. x@20 and x@30 come, tombstones, and the watermark passes x@20: x@10 is pruned, and
//! counted once. Block 1 is emptied, its head is taken for the one that was counted; nothing is left,
//! x@30 goes, and a scan after a crash finds x@10 in block 3.
//!
//! What has moved out of a block that *is* going to be erased is not counted, for that is a look-up and a
//! node for each survivor. It is when a block is erased first that it may have moved to. *Counterexample
//! (`OutlivesItsMove`):* x@10 moves from block 1 to block 2, and the erase of block 1 takes long. x@30
//! comes, a tombstone, and the watermark passes it. Block 2 is erased, nothing is left, x@30 goes, and a
//! scan after a crash finds x@10 in block 1.
//!
//! A key may have left the index by then, with a value that has expired: nothing of it is counted, or
//! counted down (`CountsUncountedDown`: what is counted of the key when it is put anew would go).
//!
//! Invariant: what the block holds of a key, and the index does not name there, is gone when it is
//! erased, or is in the key's dead count, or the block that it moved to is not erased.

use std::collections::VecDeque;

use timestone_flash::{AlignedBuffer, BlockId, PageId};
use timestone_types::{KeyspaceId, Version, is_planted};

use super::super::index::KeyId;
use super::super::space::{Space, Spaces};
use crate::kit::blocks::Blocks;
use crate::kit::staging::Staging;
use crate::kit::volume::Volume;
use crate::kit::writer::{StreamId, Writer};

/// Large values of one victim that are moved at once.
pub(super) const MAX_RESTAGING: u32 = 4;

/// How often values that could not be read are tried again that must leave a block with a failed
/// program: their heads may be nowhere but in memory. With more, the block keeps that memory until a
/// restart, and what it holds is not stable: the log has it.
pub(super) const MAX_RESTAGE_FAILURES: u32 = 16;

/// Where survivors go.
pub(super) const SURVIVORS: [StreamId; 3] = [StreamId::Cold, StreamId::Superseded, StreamId::Large];

/// A version of a key of a keyspace's epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RecordOfEpoch {
    pub(super) keyspace: KeyspaceId,
    pub(super) epoch: u32,
    pub(super) id: KeyId,
    version: Version,
}

impl RecordOfEpoch {
    pub(super) fn new(space: &Space, id: KeyId, version: Version) -> Self {
        Self { keyspace: space.id, epoch: space.epoch, id, version }
    }

    /// Its keyspace, unless nothing may be counted of it any more: the index it was of has gone whole, or a
    /// fence hides it. That need not have been through: what it hides may have been met before, and then
    /// the count has gone. *Otherwise* something else of its key is counted down.
    pub(super) fn counting(self, spaces: &mut Spaces) -> Option<&mut Space> {
        let watermark = spaces.marks.collection();
        let space = spaces.get_mut(self.keyspace)?;
        let is_counted = space.epoch == self.epoch
            && (self.version > space.fence_at(watermark) || is_planted!(CountsHiddenDown));
        is_counted.then_some(space)
    }
}

/// A version of a key.
pub(super) type ValueId = (KeyspaceId, KeyId, Version);

/// A large value that must leave a victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LeavingValue {
    pub(super) value: ValueId,
    /// Where its head was met, if that is in the victim, too.
    pub(super) head: Option<PageId>,
}

/// Pages that were read and not looked at yet.
pub(super) struct Chunk {
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) bytes: AlignedBuffer,
}

/// A block on its way to be erased.
pub(super) struct Victim {
    pub(super) block: BlockId,
    pub(super) next_read: u32,
    pub(super) reading: bool,
    pub(super) chunk: Option<Chunk>,
    /// The next page of the chunk, and the next record of that page.
    pub(super) page: u32,
    pub(super) record: usize,
    /// Keys whose dead count falls when the block is erased.
    pub(super) dead: Vec<RecordOfEpoch>,
    /// Keys of values that have moved, and are not counted as dead here.
    pub(super) copies: Vec<RecordOfEpoch>,
    /// The write clock when it began to be emptied: blocks that were sealed before have nothing of it.
    pub(super) began: u64,
    /// Values that must leave it, and how many are on their way.
    pub(super) large: VecDeque<LeavingValue>,
    pub(super) restaging: u32,
    /// It is not erased.
    pub(super) damaged: bool,
    /// A program of it failed: what the device does not have is in the writer's memory.
    pub(super) failed: bool,
    /// Of a failed one: values that were read to be moved, and how often one could not be.
    pub(super) attempted: Vec<LeavingValue>,
    pub(super) failures: u32,
    /// All of them are tried again.
    pub(super) again: bool,
    /// Ordinals of the streams of survivors that must be durable, once everything is moved.
    pub(super) barrier: Option<[u64; SURVIVORS.len()]>,
    pub(super) erasing: bool,
}

impl Victim {
    pub(super) fn new(block: BlockId, blocks: &Blocks) -> Self {
        Self {
            block,
            began: blocks.clock(),
            next_read: 0,
            reading: false,
            chunk: None,
            page: 0,
            record: 0,
            dead: Vec::new(),
            copies: Vec::new(),
            large: VecDeque::new(),
            restaging: 0,
            damaged: false,
            failed: false,
            attempted: Vec::new(),
            failures: 0,
            again: false,
            barrier: None,
            erasing: false,
        }
    }

    /// Whether everything that moved out of it is durable.
    pub(super) fn is_durable(&self, writer: &Writer) -> bool {
        let Some(ordinals) = self.barrier else { return false };
        let durable = |stream, ordinal| {
            if self.failed && !is_planted!(ForgetsDisplaced) {
                writer.ledger.is_durable_out_of(self.block, stream, ordinal)
            } else {
                writer.ledger.is_durable(stream, ordinal)
            }
        };
        SURVIVORS.into_iter().zip(ordinals).all(|(stream, ordinal)| durable(stream, ordinal))
    }

    /// A value of a key has moved out of it.
    pub(super) fn has_copy(&mut self, (keyspace, id, version): ValueId, spaces: &mut Spaces) {
        let Some(space) = spaces.get(keyspace) else { return };
        self.copies.push(RecordOfEpoch::new(space, id, version));
        if self.damaged {
            self.count_copies(spaces);
        }
    }

    /// The block is not going to be erased, or not before what has moved out of it: that is dead here
    /// until it is.
    pub(super) fn count_copies(&mut self, spaces: &mut Spaces) {
        if is_planted!(ForgetsOldHeads) {
            return;
        }
        for copy in self.copies.drain(..) {
            if let Some(space) = copy.counting(spaces)
                && (space.index.left_behind(copy.id) || is_planted!(CountsUncountedDown))
            {
                self.dead.push(copy);
            }
        }
    }

    /// Whether something of it may have moved to a block that was sealed at a time of the write clock.
    pub(super) fn may_have_moved_to(&self, sealed_at: u64) -> bool {
        self.began <= sealed_at
    }

    /// Whether a large value is to leave it.
    pub(super) fn has_large(&self, value: ValueId) -> bool {
        self.large.iter().any(|leaving| leaving.value == value)
    }

    /// Whether everything that could be saved of a damaged one has moved.
    pub(super) fn may_be_set_aside(&self, volume: &Volume) -> bool {
        let has_moved =
            self.damaged && self.barrier.is_some() && !self.reading && self.restaging == 0;
        if !has_moved || !self.failed {
            return has_moved;
        }
        // Until then its pages are read from memory, where nothing else has them.
        self.failures <= MAX_RESTAGE_FAILURES
            && self.is_durable(&volume.writer)
            && volume.blocks.get(self.block).readers == 0
    }

    /// Whether it can be erased now.
    pub(super) fn may_be_erased(&self, volume: &Volume) -> bool {
        !self.damaged
            && !self.erasing
            && self.is_durable(&volume.writer)
            && volume.blocks.get(self.block).readers == 0
    }

    /// Whether one more of its large values may begin to leave it.
    pub(super) fn may_restage(&self, turn: VictimTurn, volume: &Volume, staging: &Staging) -> bool {
        let short = volume.blocks.free_count() <= volume.blocks.reserve();
        let most = if short { 1 } else { MAX_RESTAGING };
        // Where space is short, one victim at a time: its values need room before it gives any
        // back.
        let has_turn = !(short && turn.earlier_waits);
        has_turn && turn.elsewhere + self.restaging < most && !staging.is_full()
    }

    /// Whether the next pump can go a step further with it; `restages` says whether one more of its
    /// large values may begin to leave it.
    pub(super) fn may_advance(
        &self,
        volume: &Volume,
        restages: impl FnOnce(&Self) -> bool,
    ) -> bool {
        if self.chunk.is_some() || self.reading {
            return self.chunk.is_some() && !volume.writer.is_behind();
        }
        if self.next_read < volume.blocks.get(self.block).pages {
            return true;
        }
        if !self.large.is_empty() {
            return restages(self);
        }
        if self.restaging > 0 {
            return false;
        }
        self.again
            || self.barrier.is_none()
            || self.may_be_erased(volume)
            || self.may_be_set_aside(volume)
    }
}

/// What other victims are doing.
#[derive(Clone, Copy)]
pub(super) struct VictimTurn {
    /// Large values that are on their way out of other victims.
    pub(super) elsewhere: u32,
    /// An earlier victim has large values that have not begun to move.
    pub(super) earlier_waits: bool,
}

impl VictimTurn {
    /// Of the victim at a place of the list.
    pub(super) fn of(list: &[Victim], at: usize) -> Self {
        let on_their_way = list.iter().map(|victim| victim.restaging).sum::<u32>();
        let waits = |victim: &Victim| victim.next_read > 0 && !victim.large.is_empty();
        Self {
            elsewhere: on_their_way - list[at].restaging,
            earlier_waits: list[..at].iter().any(waits),
        }
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::{ClientId, KeyHash, Timestamp};

    use super::super::super::index::{Assessment, Location, Spot};
    use super::super::super::reads::PendingReads;
    use super::super::super::space::Fence;
    use super::*;
    use crate::kit::volume::tests::volume;

    fn at(nanos: u64) -> Version {
        Version::new(Timestamp::from_nanos(nanos), ClientId::ZERO)
    }

    fn put(space: &mut Space, id: KeyId, nanos: u64, watermark: u64) {
        let spot = space.index.probe(id, at(nanos));
        assert_ne!(spot, Spot::Exists);
        let location = Location::new(nanos as u32, false, false);
        space.index.put(id, spot, at(nanos), location, Timestamp::from_nanos(watermark));
        space.youngest = at(nanos);
    }

    /// A dead record of a key is met; a fence hides it, and goes through; something else of the key is dead;
    /// then the record's block is erased. How many dead records are counted.
    fn counted() -> u64 {
        let (mut spaces, mut volume) = (Spaces::default(), volume());
        let (place, id) = (spaces.ensure(KeyspaceId::DEFAULT), KeyId::new(KeyHash(7), 7));
        let put = |spaces: &mut Spaces, nanos: u64| {
            put(&mut spaces.list[place], id, nanos, nanos - 5);
        };
        (1..=3).for_each(|n| put(&mut spaces, 10 * n));
        let met = RecordOfEpoch::new(&spaces.list[place], id, at(10));
        assert!(met.counting(&mut spaces).is_some());
        put(&mut spaces, 40);
        let fence = Fence { version: at(32), page: 1 };
        assert!(spaces.list[place].add_fence(fence));
        let staging = Staging::new(0);
        spaces.marks.raise(Timestamp::from_nanos(33), &volume.writer, &staging);
        let mut reads = PendingReads::new(0);
        while spaces.sweep(&mut volume, &mut reads, true) {}
        assert_eq!(spaces.list[place].index.dead(), 0, "all of it is hidden");
        (5..=6).for_each(|n| put(&mut spaces, 10 * n));
        assert_eq!(spaces.list[place].index.dead(), 1);
        if let Some(space) = met.counting(&mut spaces) {
            space.index.erased(id);
        }
        spaces.list[place].index.dead()
    }

    /// The same where another block is emptied before the fence goes through: the last version that it hides is
    /// met there, and the key leaves the index with its count.
    fn counted_before_sweep() -> u64 {
        let (mut spaces, volume) = (Spaces::default(), volume());
        let (place, id) = (spaces.ensure(KeyspaceId::DEFAULT), KeyId::new(KeyHash(7), 7));
        put(&mut spaces.list[place], id, 15, 10);
        put(&mut spaces.list[place], id, 20, 21);
        assert_eq!(spaces.list[place].index.dead(), 1);
        let met = RecordOfEpoch::new(&spaces.list[place], id, at(15));
        assert!(spaces.list[place].add_fence(Fence { version: at(25), page: 1 }));
        spaces.marks.raise(Timestamp::from_nanos(36), &volume.writer, &Staging::new(0));
        assert!(spaces.forget_hidden(KeyspaceId::DEFAULT, id, at(20), 20));
        assert_eq!(spaces.list[place].index.dead(), 0, "the key has left the index");
        for nanos in [30, 35, 40] {
            put(&mut spaces.list[place], id, nanos, 36);
        }
        assert!(spaces.list[place].index.dead() > 0);
        if let Some(space) = met.counting(&mut spaces) {
            space.index.erased(id);
        }
        spaces.list[place].index.dead()
    }

    #[test]
    fn what_a_fence_has_hidden_is_not_counted_down() {
        assert_eq!(counted(), 1);
        assert_eq!(counted_before_sweep(), 1);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn what_is_counted_down_although_a_fence_hides_it_is_noticed() {
        use timestone_types::planted::{Bug, with};
        assert_eq!(with(Bug::CountsHiddenDown, counted), 0);
        assert_eq!(with(Bug::CountsHiddenDown, counted_before_sweep), 0);
    }

    /// What has moved out of a block expires, and its key leaves the index; then the block is counted that it has
    /// moved to. The key is put anew, and something of it is dead when the first block is erased. How many dead
    /// records are counted.
    fn counted_after_expiry() -> u64 {
        let (mut spaces, volume) = (Spaces::default(), volume());
        let (place, id) = (spaces.ensure(KeyspaceId::DEFAULT), KeyId::new(KeyHash(7), 7));
        let mut victim = Victim::new(BlockId(0), &volume.blocks);
        put(&mut spaces.list[place], id, 10, 5);
        victim.has_copy((KeyspaceId::DEFAULT, id, at(10)), &mut spaces);
        let index = &mut spaces.list[place].index;
        let outcome = index.assess(id, at(10), 10, Timestamp::from_nanos(12), true);
        assert_eq!(outcome, Assessment::DroppedTombstone);
        victim.count_copies(&mut spaces);
        for (nanos, watermark) in [(20, 15), (25, 15), (40, 27)] {
            put(&mut spaces.list[place], id, nanos, watermark);
        }
        assert_eq!(spaces.list[place].index.dead(), 1, "one was pruned");
        for record in victim.dead {
            record.counting(&mut spaces).expect("no fence is there").index.erased(id);
        }
        spaces.list[place].index.dead()
    }

    #[test]
    fn what_was_not_counted_is_not_counted_down() {
        assert_eq!(counted_after_expiry(), 1);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn what_is_counted_down_and_was_not_counted_is_noticed() {
        use timestone_types::planted::{Bug, with};
        assert_eq!(with(Bug::CountsUncountedDown, counted_after_expiry), 0);
    }
}
