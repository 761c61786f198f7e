//! Blocks behind the log's tail are read ahead while the tail is emptied, and buckets that will have to
//! leave them are gathered.
//!
//! ```text
//!   log:  tail ─ next ─ next ─ …        next: its pages ─► buckets that memory tells too little of
//!          │emptied                            ─► early gathering ─► kept until its block is the tail
//! ```
//!
//! *Otherwise* one block after the other waits for the longest chain of its buckets, page after page,
//! while neither the processor nor the device has much to do.
//!
//! An early gathering is one as any other: what was linked since is gathered before its bucket is
//! written. It goes when its bucket is rewritten, and when the block has left for whose sake it was
//! made.
//!
//! Invariant: what was put since an early gathering began lies in no block that is emptied with it: its
//! block was full by then. A gathering that outlives its block is none for a later block: what was put
//! meanwhile may lie there. Bounded are the pages that are read ahead, the gatherings that are under way,
//! and the bytes of those that are done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use timestone_flash::{BlockId, PAGE_BYTES};
use timestone_types::is_planted;

use super::chain::Gathering;
use super::contents::FrugalContents;
use super::reads::{Owner, ServingWalks};
use super::tail::{self, TailFate};
use super::victim::read_on;
use crate::kit::blocks::BlockState;
use crate::kit::volume::block_bytes;
use crate::layout::{self, PageKind, Record};

/// Blocks that are read ahead, at most.
pub(super) const MOST_BLOCKS: usize = 4;
/// Bytes of their pages, at most.
const MOST_PAGE_BYTES: u64 = 2 << 20;
/// Buckets that are gathered early at once.
const AT_ONCE: usize = 64;
/// With so many bytes of early gatherings no further one begins; a larger one is not kept.
const MOST_BYTES: usize = 1 << 20;

/// A block that is read ahead.
#[derive(Debug)]
pub(super) struct NextBlock {
    block: BlockId,
    /// The next page to read.
    pub(super) next_page: u32,
    pub(super) reading: bool,
    /// Something there could not be read, or is not sound: that is found out when it is emptied.
    given_up: bool,
    /// Buckets that are still to be gathered.
    buckets: BTreeSet<u32>,
}

/// The blocks that are next, in the order of the log.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    blocks: VecDeque<NextBlock>,
}

impl ReadAhead {
    /// The block of the log that is to be read next, behind a tail that is being emptied.
    fn next(&self, wanted: usize, core: &FrugalContents) -> Option<BlockId> {
        let bytes = block_bytes(core.kit.volume.geometry());
        let most = (MOST_PAGE_BYTES / bytes) as usize;
        if self.blocks.len() >= wanted.min(most) {
            return None;
        }
        let &block = core.log.get(1 + self.blocks.len())?;
        let entry = core.kit.volume.blocks.get(block);
        let is_full = entry.state == BlockState::Sealed && entry.readable == entry.pages;
        is_full.then_some(block)
    }

    /// Whether the next pump can do something, if so many blocks are wanted.
    pub(super) fn has_work(
        &self,
        wanted: usize,
        early: &EarlyGatherings,
        core: &FrugalContents,
    ) -> bool {
        let blocks = &core.kit.volume.blocks;
        let reads = |next: &NextBlock| {
            !next.reading && !next.given_up && next.next_page < blocks.get(next.block).readable
        };
        let gathers = |next: &NextBlock| !next.buckets.is_empty();
        self.next(wanted, core).is_some()
            || self.blocks.iter().any(reads)
            || (early.has_room() && self.blocks.iter().any(gathers))
    }

    /// Reads on, and gathers: a little of each.
    pub(super) fn pump(&mut self, wanted: usize, serving: &mut ServingWalks<'_>) {
        let core = &mut *serving.core;
        while let Some(block) = self.next(wanted, core) {
            let (reading, given_up, buckets) = (false, false, BTreeSet::new());
            self.blocks.push_back(NextBlock { block, next_page: 0, reading, given_up, buckets });
        }
        for next in &mut self.blocks {
            if !next.reading && !next.given_up {
                next.reading = read_on(next.block, &mut next.next_page, &mut core.kit.volume);
            }
        }
        for next in &mut self.blocks {
            while serving.reads.early.has_room()
                && let Some(bucket) = next.buckets.pop_first()
            {
                let now = serving.core.buckets.now();
                if serving.reads.early.begin(bucket, next.block, now) {
                    let gathering = serving.core.gathering(bucket, None);
                    serving.gather(Owner::Early, gathering);
                }
            }
        }
    }

    /// Pages of a block have been read. Whether it is one of these.
    pub(super) fn pages_read(
        &mut self,
        block: BlockId,
        first: u32,
        readable: bool,
        bytes: &[u8],
        core: &mut FrugalContents,
    ) -> bool {
        let Some(next) = self.blocks.iter_mut().find(|next| next.block == block) else {
            return false;
        };
        next.reading = false;
        let asks = readable.then(|| buckets_that_ask(block, first, bytes, core)).flatten();
        match asks {
            Some(buckets) => {
                next.buckets.extend(buckets);
                core.tail_pages.add(block, first, bytes);
            }
            None => next.given_up = true,
        }
        true
    }

    /// A block is being emptied: what was read of it ahead, if it was.
    pub(super) fn take(&mut self, block: BlockId) -> Option<NextBlock> {
        debug_assert!(self.blocks.iter().skip(1).all(|next| next.block != block), "in their order");
        self.blocks.pop_front_if(|next| next.block == block)
    }
}

/// The buckets that have a record in some pages of which memory tells too little. Nothing: the pages are
/// not sound.
fn buckets_that_ask(
    block: BlockId,
    first: u32,
    bytes: &[u8],
    core: &FrugalContents,
) -> Option<BTreeSet<u32>> {
    let geometry = core.kit.volume.geometry();
    let behind = core.log.iter().position(|&other| other == block)?;
    let mut buckets = BTreeSet::new();
    for (offset, page) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
        let id = geometry.page(block, first + offset as u32);
        let header = core.kit.volume.verify(id, page).ok()?;
        if header.kind == PageKind::LargePart {
            return None;
        }
        for raw in layout::records(page) {
            let record = raw.and_then(Record::read_intact)?;
            if record.links.is_none() {
                continue;
            }
            let bucket = core.buckets.of(record.hash);
            let is_void = core.wholes.is_void(bucket, behind) && !record.is_loose();
            if !is_void && tail::fate(&record, id.0, core) == TailFate::Asks {
                buckets.insert(bucket);
            }
        }
    }
    Some(buckets)
}

/// For what a bucket is gathered early.
#[derive(Clone, Copy, Debug)]
struct EarlyRequest {
    /// The block that its records will have to leave.
    block: BlockId,
    /// When it was asked for, by the clock of links: the block was full by then.
    since: u64,
}

/// Gatherings of buckets whose records will have to leave a block that is next.
#[derive(Debug, Default)]
pub(super) struct EarlyGatherings {
    /// By bucket.
    under_way: BTreeMap<u32, EarlyRequest>,
    done: BTreeMap<u32, (EarlyRequest, Gathering)>,
    /// Bytes of those that are done.
    bytes: usize,
}

impl EarlyGatherings {
    fn has_room(&self) -> bool {
        self.under_way.len() < AT_ONCE && self.bytes < MOST_BYTES
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Whether a bucket is to be gathered: not yet, so far.
    fn begin(&mut self, bucket: u32, block: BlockId, now: u64) -> bool {
        if self.done.contains_key(&bucket) || self.under_way.contains_key(&bucket) {
            return false;
        }
        let since = if is_planted!(TakesOutlived) { 0 } else { now };
        self.under_way.insert(bucket, EarlyRequest { block, since });
        true
    }

    /// A bucket is gathered: it may be for a block that has left, while it is under way for a later one.
    pub(super) fn gathered(&mut self, gathering: Gathering) {
        let bucket = gathering.bucket;
        let request = self.under_way.get(&bucket).copied();
        let Some(request) = request.filter(|request| request.since <= gathering.began) else {
            return;
        };
        self.under_way.remove(&bucket);
        if gathering.bytes() < MOST_BYTES {
            self.bytes += gathering.bytes();
            self.done.insert(bucket, (request, gathering));
        }
    }

    /// What was gathered of a bucket, if all of it is here.
    pub(super) fn take(&mut self, bucket: u32) -> Option<Gathering> {
        let (request, gathering) = self.done.remove(&bucket)?;
        debug_assert!(request.since <= gathering.began, "its block was full when it began");
        self.bytes -= gathering.bytes();
        Some(gathering)
    }

    /// A bucket is rewritten, or cannot be gathered: what was gathered before is of no use. Or another
    /// one goes on with what is under way, if something is: with a gathering that began at this time or later.
    pub(super) fn forget(&mut self, bucket: u32) -> Option<u64> {
        self.take(bucket);
        self.under_way.remove(&bucket).map(|request| request.since)
    }

    /// A block has left: so do gatherings that were made for its sake.
    pub(super) fn left(&mut self, block: BlockId) {
        self.under_way.retain(|_, request| request.block != block);
        let bytes = &mut self.bytes;
        self.done.retain(|_, (request, gathering)| {
            let stays = request.block != block;
            *bytes -= if stays { 0 } else { gathering.bytes() };
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use timestone_flash::{MemoryConfig, MemoryMedia};
    use timestone_types::Timestamp;

    use super::super::{Skimpy, SkimpyConfig};
    use super::*;

    /// A bucket is gathered for a block, which leaves before that is over. Then a loose version is put into a
    /// later block, and the bucket is gathered for that one: which gatherings are taken for its, the one that
    /// has outlived its block and one that has begun since.
    fn are_taken() -> [bool; 2] {
        let device = Box::new(MemoryMedia::new(MemoryConfig::default()).open());
        let (mut store, _) = Skimpy::open(device, SkimpyConfig::default()).expect("opens");
        let core = &mut store.core;
        let [first, later] = [BlockId(1), BlockId(2)];
        let mut early = EarlyGatherings::default();
        assert!(early.begin(0, first, core.buckets.now()));
        let outlived = core.gathering(0, None);
        early.left(first);
        core.buckets.put(0, Timestamp::from_nanos(50));
        assert!(early.begin(0, later, core.buckets.now()));
        let since = core.gathering(0, None);
        [outlived, since].map(|gathering| {
            early.gathered(gathering);
            early.take(0).is_some()
        })
    }

    /// *Otherwise* the bucket is rewritten without what was put into the later block, which is erased.
    #[test]
    fn a_gathering_that_outlives_its_block_is_none_for_a_later_one() {
        assert_eq!(are_taken(), [false, true]);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn one_that_is_taken_for_a_later_block_is_found() {
        use timestone_types::planted::{Bug, with};
        assert_eq!(with(Bug::TakesOutlived, are_taken), [true, false]);
    }
}
