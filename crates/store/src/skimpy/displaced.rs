//! Blocks of the log whose programs failed: what is in memory alone moves on.
//!
//! ```text
//!   failed ─► pages that are not on flash ─► their fences and buckets ─► copies in front of the chains
//!        ─► all of that durable ─► the pages' memory goes; what was programmed stays a part of the log
//! ```
//!
//! Chains lead through such pages. What lies behind them becomes a further beginning of its bucket, as
//! when a crash has taken the pages, and the bucket is put together when there is room.
//!
//! Invariant: nothing of the log counts as durable while such a block is here (CO4 of
//! docs/protocol/storage.md).

use std::collections::{BTreeSet, VecDeque};

use timestone_flash::{BlockId, PageId};

use super::chain::{Gathered, Gathering};
use super::contents::{FrugalContents, fence_record};
use super::spaces::Fence;
use super::translations::Name;
use crate::kit::blocks::Blocks;
use crate::kit::ledger::Held;
use crate::kit::volume::Volume;
use crate::kit::writer::StreamId;
use crate::layout::{self, Record, RecordKind};

/// A block whose program failed.
#[derive(Debug)]
struct FailedBlock {
    block: BlockId,
    /// Its pages from this one on are in memory alone.
    first: u32,
    /// Those before it were looked at.
    next: u32,
    buckets: BTreeSet<u32>,
    /// Those that are being gathered.
    under_way: BTreeSet<u32>,
    /// Free and clean blocks when there was no room for a fence of the page at `next`.
    refused: Option<(u32, u32)>,
    /// The log's ordinal when everything had moved.
    barrier: Option<u64>,
}

/// All of them, in the order in which they failed.
#[derive(Debug, Default)]
pub(super) struct FailedBlocks {
    list: VecDeque<FailedBlock>,
}

impl FailedBlocks {
    /// A block of the log has failed.
    pub(super) fn begin(&mut self, block: BlockId, core: &FrugalContents) {
        let first = core.kit.volume.blocks.get(block).readable;
        let (buckets, under_way) = (BTreeSet::new(), BTreeSet::new());
        self.list.push_back(FailedBlock {
            block,
            first,
            next: first,
            buckets,
            under_way,
            refused: None,
            barrier: None,
        });
    }

    /// Whether nothing is to be moved, and nothing waits to become durable.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether the next pump can do something here: the device wakes what waits for it, and buckets
    /// are gathered by the collector.
    pub(super) fn has_work(&self, volume: &Volume) -> bool {
        self.list.iter().any(|failed| failed.has_work(volume))
    }

    /// Whether a page could not be programmed.
    pub(super) fn has(&self, page: u32, core: &FrugalContents) -> bool {
        let blocks = &core.kit.volume.blocks;
        let (block, index) = (blocks.of(PageId(page)), blocks.geometry.index_of(PageId(page)));
        self.list.iter().any(|failed| failed.block == block && index >= failed.first)
    }

    /// Which records of a bucket have to be written again: those that lie there, and all that are loose of a key
    /// of which one lies there that alone leads to others.
    pub(super) fn displaced(&self, gathering: &Gathering, core: &FrugalContents) -> Vec<bool> {
        let lies_there = |one: &Gathered| self.has(one.place.page, core);
        let leads_alone = |one: &&Gathered| {
            let links = gathering.record(one).links;
            lies_there(one) && (one.is_loose || links.is_some_and(|links| links.loose_prior))
        };
        let name = |one: &Gathered| core.name_of(&gathering.record(one));
        let keys: BTreeSet<Name> = gathering.records.iter().filter(leads_alone).map(name).collect();
        let is_displaced =
            |one: &Gathered| lies_there(one) || (one.is_loose && keys.contains(&name(one)));
        gathering.records.iter().map(is_displaced).collect()
    }

    /// The next bucket that has records there.
    pub(super) fn next_bucket(&self) -> Option<u32> {
        self.list.iter().find_map(|failed| failed.buckets.first().copied())
    }

    /// A bucket is gathered for their sake.
    pub(super) fn take(&mut self, bucket: u32) {
        for failed in &mut self.list {
            if failed.buckets.remove(&bucket) {
                failed.under_way.insert(bucket);
            }
        }
    }

    /// A bucket that was taken has nothing there any more.
    pub(super) fn done(&mut self, bucket: u32) {
        for failed in &mut self.list {
            failed.under_way.remove(&bucket);
        }
    }

    /// Looks at their pages, and lets those go that are empty.
    /// `stay`: the buckets of what may be on flash all the same, and never goes.
    pub(super) fn pump(&mut self, stay: &mut BTreeSet<u32>, core: &mut FrugalContents) {
        for failed in &mut self.list {
            failed.look(stay, core);
        }
        let (before, volume) = (self.list.len(), &mut core.kit.volume);
        self.list.retain(|failed| {
            let is_done = failed.is_done(volume);
            if is_done {
                volume.writer.relocated(failed.block);
                volume.blocks.cut_to_readable(failed.block);
            }
            !is_done
        });
        if self.list.len() < before {
            // What they held counts as durable from here on.
            core.spaces.marks.follow(&core.kit.volume.writer, &core.kit.staging);
        }
    }
}

/// Free and clean blocks: more of them is more room.
fn room(blocks: &Blocks) -> (u32, u32) {
    (blocks.free_count(), blocks.clean_count())
}

impl FailedBlock {
    /// Whether everything has moved, that is durable, and nobody reads here.
    fn is_done(&self, volume: &Volume) -> bool {
        let is_durable = self.barrier.is_some_and(|ordinal| {
            volume.writer.ledger.is_durable_out_of(self.block, StreamId::Hot, ordinal)
        });
        is_durable && volume.blocks.get(self.block).readers == 0
    }

    /// Whether all of its pages were looked at, and what was found has moved.
    fn has_moved(&self, volume: &Volume) -> bool {
        self.next >= volume.blocks.get(self.block).pages
            && self.buckets.is_empty()
            && self.under_way.is_empty()
    }

    fn has_work(&self, volume: &Volume) -> bool {
        let unread = self.next < volume.blocks.get(self.block).pages;
        let may_look = unread && self.refused != Some(room(&volume.blocks));
        let may_flush = self.barrier.is_none() && self.has_moved(volume);
        may_look || may_flush || self.is_done(volume)
    }

    fn look(&mut self, stay: &mut BTreeSet<u32>, core: &mut FrugalContents) {
        let pages = core.kit.volume.blocks.get(self.block).pages;
        while self.next < pages {
            let page = core.kit.volume.geometry().page(self.block, self.next);
            if !self.look_at(page, stay, core) {
                self.refused = Some(room(&core.kit.volume.blocks));
                return;
            }
            self.next += 1;
        }
        if self.barrier.is_none() && self.has_moved(&core.kit.volume) {
            core.kit.volume.flush(StreamId::Hot);
            self.barrier = Some(core.kit.volume.writer.ordinal(StreamId::Hot));
        }
    }

    /// Looks at a page: false when there is no room for its fences.
    fn look_at(
        &mut self,
        page: PageId,
        stay: &mut BTreeSet<u32>,
        core: &mut FrugalContents,
    ) -> bool {
        let Some(bytes) = core.kit.volume.page_in_group(page) else { return true };
        let mut fences = Vec::new();
        for record in layout::records(bytes).filter_map(|raw| raw.and_then(Record::read)) {
            if record.kind == RecordKind::Fence {
                fences.push((record.keyspace, Fence { version: record.version, page: page.0 }));
            } else {
                let bucket = core.buckets.of(record.hash);
                self.buckets.insert(bucket);
                stay.insert(bucket);
            }
        }
        for (keyspace, known) in fences {
            if core.spaces.get(keyspace).is_none_or(|space| !space.fences.contains(&known)) {
                continue;
            }
            let record = fence_record(keyspace, known.version);
            let Some(to) = core.append(&record, 0, Held::NOTHING, 0) else { return false };
            core.spaces.ensure(keyspace).add_fence(Fence { page: to.0, ..known });
        }
        true
    }
}
