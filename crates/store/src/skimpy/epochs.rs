//! When each bucket was rewritten whole: what of it is older in the log is void, and nobody has to follow
//! its chain to find that out.
//!
//! ```text
//!   log:  tail ─ block ─ block ─ block ─ … ─ block      bucket ─► epoch in which its chain begins (4 bits)
//!          └──── epoch ────┘└─── epoch ───┘  …
//! ```
//!
//! Blocks are counted as they join the log; some in a row are an epoch. Nothing is known after a restart.
//!
//! Invariant: a mark names an epoch that is not before the tail's, so that 15 marks are enough, and what
//! was appended since is not taken for what was void before (planted bug `KeepsOldMarks`).

use timestone_types::is_planted;

use super::packed::Nibbles;

/// No rewriting is known.
const NONE: u8 = 0;
/// Epochs have so many different marks.
const MARKS: u64 = Nibbles::MOST as u64;
/// Epochs that the log has, at most, but for one more of which it has a part.
const MOST_EPOCHS: u64 = 12;

/// By bucket: the epoch in which it was rewritten whole.
pub(super) struct WholeRewritings {
    marks: Nibbles,
    blocks_per_epoch: u64,
    /// The number of the log's tail among all blocks that were in the log.
    tail: u64,
}

impl WholeRewritings {
    /// Of so many buckets on a device of at most so many blocks.
    pub(super) fn new(buckets: u32, most_blocks: u32) -> Self {
        let blocks_per_epoch = u64::from(most_blocks) / MOST_EPOCHS + 1;
        Self { marks: Nibbles::zeros(buckets as usize), blocks_per_epoch, tail: 0 }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        self.marks.memory_bytes() as u64
    }

    fn epoch(&self, block: u64) -> u64 {
        block / self.blocks_per_epoch
    }

    fn mark(epoch: u64) -> u8 {
        (epoch % MARKS) as u8 + 1
    }

    /// A bucket's chain begins in a block of the log, the tail being number zero; nothing of it was
    /// linked in that block or later before.
    pub(super) fn rewritten(&mut self, bucket: u32, block: usize) {
        let epoch = self.epoch(self.tail + block as u64);
        assert!(epoch - self.epoch(self.tail) < MARKS, "the log has no more epochs");
        self.marks.set(bucket as usize, Self::mark(epoch));
    }

    /// Whether what a bucket has in a block of the log is known to be void; the tail is number zero.
    pub(super) fn is_void(&self, bucket: u32, block: usize) -> bool {
        let mark = self.marks.get(bucket as usize);
        if mark == NONE {
            return false;
        }
        let first = self.epoch(self.tail);
        let since = (u64::from(mark) + MARKS - u64::from(Self::mark(first))) % MARKS;
        since > self.epoch(self.tail + block as u64) - first
    }

    /// The tail has left the log.
    pub(super) fn tail_left(&mut self) {
        let before = self.epoch(self.tail);
        self.tail += 1;
        if self.epoch(self.tail) != before && !is_planted!(KeepsOldMarks) {
            self.marks.clear(Self::mark(before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_a_rewriting_is_void() {
        let mut wholes = WholeRewritings::new(4, 30);
        wholes.rewritten(1, 7);
        for block in 0..2000 {
            // Three blocks are an epoch.
            assert_eq!(wholes.is_void(1, 0), block < 6, "{block}");
            assert_eq!(wholes.is_void(1, 2), block < 4, "{block}");
            assert!(!wholes.is_void(2, 0), "{block}");
            wholes.tail_left();
        }
        wholes.rewritten(1, 0);
        assert!(!wholes.is_void(1, 0), "it begins there");
    }

    #[test]
    fn marks_are_used_again() {
        let mut wholes = WholeRewritings::new(1, 10);
        for _ in 0..1000 {
            wholes.rewritten(0, 9);
            for _ in 0..9 {
                assert!(wholes.is_void(0, 0));
                wholes.tail_left();
            }
            assert!(!wholes.is_void(0, 0));
            wholes.tail_left();
            assert!(!wholes.is_void(0, 0));
        }
    }
}
