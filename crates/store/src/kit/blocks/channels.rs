//! Which channels of the device are busy for long: whether a block is erased now or later, and which free
//! one is written next.
//!
//! ```text
//!   erase asked for ─► waiting ─ nobody writes on its channel, or room is short ─► under way ─► erased
//!   a stream needs a block ─► of the free ones, the least worn on a channel without erases and writers
//! ```
//!
//! An erase takes as long as ten programs, and a channel serves one operation after the other. A page that
//! is programmed behind an erase makes all puts in it wait, and all that become durable after them. Both
//! rules together keep them apart: while a block is open nothing is erased on its channel, and no block is
//! opened where something is being erased.
//!
//! A device that tells no channels has all of this at once, least worn first.
//!
//! Invariants: a block waits or is under way from when its erase is asked for until it is over; at most
//! [`MOST_WAITING`] wait when an erase was asked for or a pump has gone by.

use std::collections::VecDeque;

use timestone_flash::BlockId;
use timestone_types::is_planted;

use crate::kit::writer::StreamId;

/// Erases that wait for their channel, at most: on a device of few channels some stream may always be
/// writing there.
pub(super) const MOST_WAITING: usize = 4;

/// How much a free block's channel is in the way of whoever writes there; less is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Nuisance {
    None,
    /// Another stream writes there, or an erase waits.
    Some,
    /// An erase is under way.
    Erase,
}

/// How scarce free blocks are, for those that wait to be erased.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EraseNeed {
    /// Puts have room: an erase may wait for its channel.
    MayWait,
    /// Puts are refused, or will be soon.
    Urgent,
}

impl EraseNeed {
    /// Where puts are refused, or are not.
    pub(crate) const fn of(is_urgent: bool) -> Self {
        if is_urgent { Self::Urgent } else { Self::MayWait }
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct BusyChannels {
    /// By block: its channel. Those behind the end, and all of a device that tells none, have none.
    channels: Vec<Option<u32>>,
    /// By stream: the block that it writes.
    open: [Option<BlockId>; StreamId::ALL.len()],
    /// In the order in which their erases were asked for.
    waiting: VecDeque<BlockId>,
    erasing: Vec<BlockId>,
}

impl BusyChannels {
    /// The device has these channels, by block.
    pub(super) fn tell(&mut self, channels: Vec<Option<u32>>) {
        assert!(channels.len() >= self.channels.len(), "a device only grows");
        self.channels = channels;
    }

    fn of(&self, block: BlockId) -> Option<u32> {
        self.channels.get(block.0 as usize).copied().flatten()
    }

    fn share(&self, one: BlockId, other: BlockId) -> bool {
        self.of(one).is_some_and(|channel| self.of(other) == Some(channel))
    }

    fn is_written(&self, block: BlockId) -> bool {
        !is_planted!(ErasesInFrontOfPrograms)
            && self.open.iter().flatten().any(|&open| self.share(open, block))
    }

    /// How much whoever writes a block next would be held up there.
    pub(super) fn nuisance(&self, block: BlockId) -> Nuisance {
        if self.erasing.iter().any(|&other| self.share(block, other)) {
            return Nuisance::Erase;
        }
        let writers = self.open.iter().flatten().chain(&self.waiting);
        let is_busy = { writers }.any(|&other| self.share(block, other));
        if is_busy { Nuisance::Some } else { Nuisance::None }
    }

    /// A stream writes a block now.
    pub(super) fn opened(&mut self, stream: StreamId, block: BlockId) {
        debug_assert!(!self.waiting.contains(&block) && !self.erasing.contains(&block));
        self.open[stream as usize] = Some(block);
    }

    /// Nobody writes in a block any more.
    pub(super) fn sealed(&mut self, block: BlockId) {
        for open in self.open.iter_mut().filter(|open| **open == Some(block)) {
            *open = None;
        }
    }

    /// A block is to be erased.
    pub(super) fn ask_erase(&mut self, block: BlockId) {
        debug_assert!(!self.waiting.contains(&block) && !self.erasing.contains(&block));
        self.waiting.push_back(block);
    }

    /// The next block whose erase is begun now.
    pub(super) fn next_erase(&mut self, need: EraseNeed) -> Option<BlockId> {
        let must = need == EraseNeed::Urgent || self.waiting.len() > MOST_WAITING;
        let quiet = self.waiting.iter().position(|&block| !self.is_written(block));
        let at = quiet.or_else(|| (must && !self.waiting.is_empty()).then_some(0))?;
        let block = self.waiting.remove(at)?;
        self.erasing.push(block);
        Some(block)
    }

    /// An erase is over, whatever came of it.
    pub(super) fn erase_over(&mut self, block: BlockId) {
        self.erasing.retain(|&other| other != block);
        debug_assert!(!self.waiting.contains(&block), "it was begun");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight blocks on four channels.
    fn of_four() -> BusyChannels {
        let mut busy = BusyChannels::default();
        busy.tell((0..8).map(|block| Some(block % 4)).collect());
        busy
    }

    #[test]
    fn an_erase_waits_while_somebody_writes_on_its_channel() {
        let mut busy = of_four();
        busy.opened(StreamId::Hot, BlockId(1));
        [5, 2].into_iter().for_each(|block| busy.ask_erase(BlockId(block)));
        assert_eq!(busy.next_erase(EraseNeed::MayWait), Some(BlockId(2)));
        assert_eq!(busy.next_erase(EraseNeed::MayWait), None, "block 5 shares block 1's channel");
        let ranks = [1, 2, 3].map(|block| busy.nuisance(BlockId(4 + block)));
        assert_eq!(ranks, [Nuisance::Some, Nuisance::Erase, Nuisance::None]);
        busy.sealed(BlockId(1));
        assert_eq!(busy.next_erase(EraseNeed::MayWait), Some(BlockId(5)));
        [5, 2].into_iter().for_each(|block| busy.erase_over(BlockId(block)));
        assert_eq!(busy.nuisance(BlockId(6)), Nuisance::None);
    }

    #[test]
    fn an_erase_does_not_wait_when_room_is_short_or_many_wait() {
        let mut busy = of_four();
        busy.tell(vec![Some(0); 16]);
        busy.opened(StreamId::Cold, BlockId(0));
        (1..=5).for_each(|block| busy.ask_erase(BlockId(block)));
        assert_eq!(busy.next_erase(EraseNeed::MayWait), Some(BlockId(1)), "five wait");
        assert_eq!(busy.next_erase(EraseNeed::MayWait), None);
        assert_eq!(busy.next_erase(EraseNeed::Urgent), Some(BlockId(2)));
    }

    #[test]
    fn a_device_that_tells_no_channels_is_never_busy() {
        let mut busy = BusyChannels::default();
        busy.opened(StreamId::Hot, BlockId(0));
        busy.ask_erase(BlockId(1));
        assert_eq!(busy.next_erase(EraseNeed::MayWait), Some(BlockId(1)));
        assert_eq!(busy.nuisance(BlockId(1)), Nuisance::None);
    }
}
