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
//! Puts become durable in their order, and a page of the warm stream waits for company. So that stream is used
//! where it gets its share of puts: *otherwise* all puts wait for pages that a few fill.
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
/// One of so many puts goes to the warm stream, at least, while that is used.
const LEAST_SHARE: u64 = 8;

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
    /// Puts since the last mark, and those of keys that live long among them.
    puts: u64,
    long_lived: u64,
    /// Whether these were enough before the last mark: the stream is used now.
    is_used: bool,
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
        self.puts += 1;
        self.long_lived += u64::from(lives_long);
        let is_apart = lives_long && self.is_used && blocks.may_separate();
        if is_apart { StreamId::Warm } else { StreamId::Hot }
    }

    #[cold]
    fn mark(&mut self, blocks: &Blocks) {
        let pages = u64::from(blocks.count()) * u64::from(blocks.geometry.pages_per_block);
        self.next_mark = blocks.clock() + (pages / PARTS_OF_DEVICE).max(1);
        self.marks.rotate_right(1);
        self.marks[0] = self.youngest;
        self.is_used = self.long_lived * LEAST_SHARE >= self.puts.max(1);
        (self.puts, self.long_lived) = (0, 0);
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
        for begun in 1..=3 {
            write_pages(PART, &mut blocks);
            let put_at = at(100 * (begun + 1));
            let stream = placement.stream(put_at, Some(at(99)), &blocks);
            // It is used when such keys were met in one part.
            assert_eq!(stream, if begun < 3 { StreamId::Hot } else { StreamId::Warm });
        }
        assert_eq!(placement.stream(at(401), Some(at(99)), &blocks), StreamId::Warm);
        assert_eq!(placement.stream(at(402), Some(at(250)), &blocks), StreamId::Hot);
        assert_eq!(placement.stream(at(403), None, &blocks), StreamId::Hot, "a new key");
    }

    /// The streams to which puts of keys that live long go in the last of some parts, one of so many puts
    /// being such.
    fn streams_of_long_lived(every: u64) -> Vec<StreamId> {
        let (mut blocks, mut placement) = (device(), Placement::default());
        let (at, mut streams) = (Timestamp::from_nanos, Vec::new());
        for part in 1..=5u64 {
            write_pages(PART, &mut blocks);
            for n in 0..160 {
                let now = part * 1000 + n;
                let lives_long = n % every == 0;
                let superseded = at(if lives_long { 1 } else { now - 1 });
                let stream = placement.stream(at(now), Some(superseded), &blocks);
                if lives_long && part == 5 {
                    streams.push(stream);
                }
            }
        }
        streams
    }

    #[test]
    fn few_keys_that_live_long_have_no_stream_of_their_own() {
        assert!(streams_of_long_lived(4).iter().all(|&stream| stream == StreamId::Warm));
        assert!(streams_of_long_lived(20).iter().all(|&stream| stream == StreamId::Hot));
    }
}
