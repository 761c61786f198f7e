//! Which puts are kept apart: a key that was not put for long will not be put for as long again.
//!
//! ```text
//!   put ─► when was the version put that it supersedes? ─ not long ago, new key ─► Hot
//!                                                        └─ long ago ────────────► Warm
//! ```
//! What was put in one go dies in one go, so that blocks with puts of keys that change often are
//! soon nearly dead, and little has to be moved out of them. *Long ago* is before the last
//! [`PARTS_OF_LONG`] eighths of the device were written. The lifetime of the last version as an
//! estimate for the next one is that of SepBIT (Wang and others, FAST 2022, §3), for puts; two
//! streams of puts gain nearly as much as four.
//!
//! Hidden dependency that this module made explicit: places depend on timestamps, which the caller
//! chooses. Wrong ones cost moves, and nothing else.
//!
//! Invariant: `marks` rise from the oldest to the youngest.

use timestone_types::Timestamp;

use crate::kit::blocks::Blocks;
use crate::kit::writer::StreamId;

/// In so many parts a device is divided, to tell when it was written.
const PARTS_OF_DEVICE: u64 = 8;
/// How many of them were written since what was put long ago.
const PARTS_OF_LONG: usize = 2;

/// When which part of the device was written.
#[derive(Default)]
pub(super) struct Placement {
    /// The youngest timestamp that had been put when a part of the device had been written; the
    /// youngest part first.
    marks: [Timestamp; PARTS_OF_LONG + 1],
    /// The youngest timestamp that was put.
    youngest: Timestamp,
    /// When the next part has been written, by the clock of the blocks.
    next_mark: u64,
}

impl Placement {
    /// Where a value that is put now goes, if it supersedes one that was put at a time.
    #[inline]
    pub(super) fn stream(
        &mut self,
        put_at: Timestamp,
        superseded: Option<Timestamp>,
        blocks: &Blocks,
    ) -> StreamId {
        self.youngest = self.youngest.max(put_at);
        if blocks.clock() >= self.next_mark {
            self.mark(blocks);
        }
        let [.., long_ago] = self.marks;
        let lives_long = superseded.is_some_and(|at| at < long_ago);
        if lives_long && blocks.may_separate() { StreamId::Warm } else { StreamId::Hot }
    }

    #[cold]
    fn mark(&mut self, blocks: &Blocks) {
        let pages = u64::from(blocks.count()) * u64::from(blocks.geometry.pages_per_block);
        self.next_mark = blocks.clock() + (pages / PARTS_OF_DEVICE).max(1);
        self.marks.rotate_right(1);
        self.marks[0] = self.youngest;
        debug_assert!(self.marks.is_sorted_by(|younger, older| younger >= older));
    }
}

#[cfg(test)]
mod tests {
    use timestone_flash::{Generation, Geometry};

    use super::*;

    /// As many pages as one part of a device of 64 blocks has.
    const PART: u64 = 64;

    fn device() -> Blocks {
        let geometry = Geometry { pages_per_block: 8, blocks: 64, max_blocks: 64 };
        let mut blocks = Blocks::new(geometry);
        (0..64).for_each(|_| blocks.add_free(Generation(1)));
        blocks
    }

    fn write_pages(pages: u64, blocks: &mut Blocks) {
        let block = blocks.take(StreamId::Hot, 0);
        let mut block = block.expect("free");
        for page in 0..pages {
            if page > 0 && page % 8 == 0 {
                blocks.seal(block);
                block = blocks.take(StreamId::Hot, 0).expect("free");
            }
            blocks.page_begun(block);
        }
        blocks.seal(block);
    }

    #[test]
    fn what_lived_for_a_quarter_of_the_device_goes_to_the_warm_stream() {
        let (mut blocks, mut placement) = (device(), Placement::default());
        let at = Timestamp::from_nanos;
        assert_eq!(placement.stream(at(100), None, &blocks), StreamId::Hot, "a new key");
        assert_eq!(placement.stream(at(101), Some(at(1)), &blocks), StreamId::Hot, "who knows");
        for begun in 1..=2 {
            write_pages(PART, &mut blocks);
            let put_at = at(100 * (begun + 1));
            assert_eq!(
                placement.stream(put_at, Some(at(99)), &blocks),
                if begun < 2 { StreamId::Hot } else { StreamId::Warm }
            );
        }
        assert_eq!(placement.stream(at(301), Some(at(99)), &blocks), StreamId::Warm);
        assert_eq!(placement.stream(at(302), Some(at(150)), &blocks), StreamId::Hot);
        assert_eq!(placement.stream(at(303), None, &blocks), StreamId::Hot, "a new key");
    }
}
