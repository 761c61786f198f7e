//! Which files hold what, who still needs them, and which may go (docs/protocol/log.md,
//! "Reclaiming").
//!
//! ```text
//!   oldest ─ closed ─ closed ─ current │ spares
//!     └─ reclaimed when no shard keeps any of its batches: reused as a spare, or removed
//! ```
//!
//! Invariants: names rise from the oldest to the last spare; only the oldest closed file is ever
//! reclaimed, so block sequences on disk have no gap; the current file is never reclaimed.

use std::collections::VecDeque;

use timestone_types::ShardId;

use crate::BatchNumber;
use crate::device::{FileInfo, FileName};
use crate::pending::BatchTouch;

/// The batches of one shard with a part in one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchRange {
    pub(crate) shard: ShardId,
    pub(crate) first: BatchNumber,
    pub(crate) last: BatchNumber,
}

/// Widens the shard's range by `first..=last`, or adds it.
pub(crate) fn widen(
    ranges: &mut Vec<BatchRange>,
    shard: ShardId,
    first: BatchNumber,
    last: BatchNumber,
) {
    match ranges.iter_mut().find(|range| range.shard == shard) {
        Some(range) => {
            range.first = range.first.min(first);
            range.last = range.last.max(last);
        }
        None => ranges.push(BatchRange { shard, first, last }),
    }
}

/// A file that holds batches.
#[derive(Clone, Debug)]
pub(crate) struct HeldFile {
    pub(crate) info: FileInfo,
    pub(crate) ranges: Vec<BatchRange>,
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Oldest first.
    closed: VecDeque<HeldFile>,
    current: Option<HeldFile>,
    spares: VecDeque<FileInfo>,
    keep_from: Vec<(ShardId, BatchNumber)>,
    /// Something changed that may let a file go.
    dirty: bool,
    idle_ranges: Vec<BatchRange>,
}

impl Files {
    /// The table after recovery: `closed` files, oldest first, and a fresh current one.
    pub(crate) fn new(closed: Vec<HeldFile>, current: FileInfo) -> Self {
        let current = Some(HeldFile { info: current, ranges: Vec::new() });
        Self { closed: closed.into(), current, dirty: true, ..Self::default() }
    }

    /// The file that is appended to.
    pub(crate) fn current(&self) -> FileInfo {
        self.current
            .as_ref()
            .map(|file| file.info)
            .expect("there is a current file from the start to the end of the log")
    }

    /// The largest name in use.
    pub(crate) fn last_name(&self) -> FileName {
        self.spares.back().map_or(self.current().name, |spare| spare.name)
    }

    pub(crate) fn closed_count(&self) -> usize {
        self.closed.len()
    }

    pub(crate) fn spare_count(&self) -> usize {
        self.spares.len()
    }

    /// Bytes of all files, spares included.
    pub(crate) fn space_bytes(&self) -> u64 {
        let closed: u64 = self.closed.iter().map(|file| file.info.bytes).sum();
        closed + self.current().bytes + self.spares.iter().map(|spare| spare.bytes).sum::<u64>()
    }

    pub(crate) fn add_spare(&mut self, spare: FileInfo) {
        assert!(spare.name > self.last_name(), "names of files rise");
        self.spares.push_back(spare);
    }

    /// Closes the current file and goes on in the next spare; `false` when there is none.
    pub(crate) fn rotate(&mut self) -> bool {
        let Some(info) = self.spares.pop_front() else { return false };
        let next = HeldFile { info, ranges: core::mem::take(&mut self.idle_ranges) };
        if let Some(old) = self.current.replace(next) {
            self.closed.push_back(old);
        }
        self.dirty = true;
        true
    }

    /// Notes what a block sent to the current file holds.
    pub(crate) fn note(&mut self, touches: &[BatchTouch]) {
        if let Some(current) = &mut self.current {
            for touch in touches {
                widen(&mut current.ranges, touch.shard, touch.first, touch.last);
            }
        }
    }

    /// The shard keeps its batches from here on only. Whether it kept more before.
    pub(crate) fn release(&mut self, shard: ShardId, keep_from: BatchNumber) -> bool {
        match self.keep_from.iter_mut().find(|kept| kept.0 == shard) {
            Some(kept) if kept.1 >= keep_from => return false,
            Some(kept) => kept.1 = keep_from,
            None => self.keep_from.push((shard, keep_from)),
        }
        self.dirty = true;
        true
    }

    fn kept_from(&self, shard: ShardId) -> BatchNumber {
        self.keep_from.iter().find(|kept| kept.0 == shard).map_or(BatchNumber::ZERO, |kept| kept.1)
    }

    /// The oldest file, when nobody needs it.
    pub(crate) fn reclaimable(&mut self) -> Option<FileInfo> {
        if !self.dirty {
            return None;
        }
        let oldest = self.closed.front()?;
        if oldest.ranges.iter().all(|range| range.last < self.kept_from(range.shard)) {
            return Some(oldest.info);
        }
        self.dirty = false;
        None
    }

    /// Forgets the oldest file, which was reclaimed.
    pub(crate) fn reclaimed(&mut self, name: FileName) {
        let oldest = self.closed.pop_front().expect("a file that was reclaimed is in the table");
        assert_eq!(oldest.info.name, name, "only the oldest file is reclaimed");
        self.idle_ranges = oldest.ranges;
        self.idle_ranges.clear();
    }

    /// The shards that hold the oldest file, with the batch below which each should carry forward,
    /// and whether they hold few of its batches (at most a quarter).
    pub(crate) fn holders(&self, holders: &mut Vec<(ShardId, BatchNumber)>) -> bool {
        let (mut held, mut all) = (0_u64, 0_u64);
        for range in self.closed.front().map_or(&[][..], |oldest| &oldest.ranges) {
            all = all.saturating_add(range.last.get() - range.first.get() + 1);
            let kept = self.kept_from(range.shard).max(range.first);
            if kept <= range.last {
                held = held.saturating_add(range.last.get() - kept.get() + 1);
                holders.push((range.shard, range.last.next()));
            }
        }
        held <= all / 4
    }

    /// The oldest batch of the shard in any file.
    pub(crate) fn retained_from(&self, shard: ShardId) -> Option<BatchNumber> {
        let files = self.closed.iter().chain(self.current.as_ref());
        files
            .flat_map(|file| &file.ranges)
            .filter(|range| range.shard == shard)
            .map(|range| range.first)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use timestone_types::Timestamp;

    fn info(name: u64) -> FileInfo {
        FileInfo { name: FileName::new(Timestamp::from_nanos(name)), bytes: 100 }
    }

    fn range(shard: u16, first: u64, last: u64) -> BatchRange {
        BatchRange {
            shard: ShardId::new(shard),
            first: BatchNumber::new(first),
            last: BatchNumber::new(last),
        }
    }

    #[test]
    fn only_the_oldest_file_goes_and_only_when_every_shard_let_it_go() {
        let closed = vec![
            HeldFile { info: info(1), ranges: vec![range(1, 1, 4), range(2, 1, 2)] },
            HeldFile { info: info(2), ranges: vec![range(1, 5, 6)] },
        ];
        let mut files = Files::new(closed, info(3));
        assert_eq!(files.reclaimable(), None);
        files.release(ShardId::new(1), BatchNumber::new(7));
        assert_eq!(files.reclaimable(), None, "the second file is free, the first is not");
        files.release(ShardId::new(2), BatchNumber::new(2));
        assert_eq!(files.reclaimable(), None);
        let mut holders = Vec::new();
        assert!(files.holders(&mut holders), "one batch of six is few");
        assert_eq!(holders, [(ShardId::new(2), BatchNumber::new(3))]);
        files.release(ShardId::new(2), BatchNumber::MAX);
        assert_eq!(files.reclaimable(), Some(info(1)));
        files.reclaimed(info(1).name);
        assert_eq!(files.retained_from(ShardId::new(1)), Some(BatchNumber::new(5)));
        assert_eq!(files.reclaimable(), Some(info(2)));
        files.reclaimed(info(2).name);
        assert_eq!(files.reclaimable(), None, "the current file stays");
    }
}
