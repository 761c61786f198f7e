//! The block of the log that is being emptied: what lies there, and what of it has to leave.
//!
//! ```text
//!   pages ─► records ─► moving │ their buckets are gathered │ dead ─► nothing left ─► Emptied
//!                                                     └─ damaged, or it has to stay ─► SetAside
//! ```

use std::collections::{BTreeMap, BTreeSet};

use timestone_flash::{BlockId, PAGE_BYTES};
use timestone_types::{KeyspaceId, Timestamp, Version, is_planted};

use super::ahead::NextBlock;
use super::chain::Gathering;
use super::contents::FrugalContents;
use super::emptied::SetAside;
use super::jobs::MOST_FAILURES;
use super::spaces::Fence;
use super::tail::{self, TailFate, TailRecord};
use super::translations::Name;
use crate::kit::volume::Volume;
use crate::layout::{self, PageKind, Record, RecordKind};
use crate::limits::GROUP_PAGES;

/// A block of the log that is being emptied.
#[derive(Debug)]
pub(super) struct TailVictim {
    pub(super) block: BlockId,
    /// The next page to read.
    pub(super) next_page: u32,
    pub(super) reading: bool,
    /// Buckets that have a record there of which memory tells too little; they are still to be
    /// gathered.
    pub(super) buckets: BTreeSet<u32>,
    pub(super) under_way: usize,
    /// By bucket: records that move, if any; all others that it has there are dead.
    pub(super) moving: BTreeMap<u32, Vec<TailRecord>>,
    /// Records of keys that lie there, and their bytes.
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// The youngest version there.
    pub(super) youngest: Timestamp,
    /// Fences that lie there and are to be moved.
    pub(super) fences: Vec<Fenced>,
    /// All buckets that have a record there.
    pub(super) all_buckets: BTreeSet<u32>,
    /// By bucket: keys with tombstones there, or with what may have become one, and the youngest of these.
    tombstones: BTreeMap<u32, BTreeMap<Name, Version>>,
    /// A tombstone was dropped that is forgotten with the block.
    pub(super) forgets: bool,
    /// What such a one hid lies in a block that stays: so does this one.
    pub(super) stays: bool,
    /// How often its pages could not be read.
    pub(super) failures: u32,
    /// Bytes of its own records that were kept.
    pub(super) own: u64,
    /// Bytes that may be written beside them.
    pub(super) budget: u64,
    /// Something in it, or in a chain that leads there, is damaged: the block is kept.
    pub(super) damaged: bool,
    /// What may be in a block that was set aside was asked for.
    asked_beside: bool,
}

/// Reads the next pages of a block that is emptied or looked at. Whether there are any.
pub(super) fn read_on(block: BlockId, next_page: &mut u32, volume: &mut Volume) -> bool {
    let first = *next_page;
    let count = GROUP_PAGES.min(volume.blocks.get(block).readable.saturating_sub(first));
    if count == 0 {
        return false;
    }
    *next_page += count;
    volume.read_victim(block, first, count);
    true
}

/// A fence of a keyspace, and the page of its record.
pub(super) type Fenced = (KeyspaceId, Fence);

impl TailVictim {
    /// One of which nothing has been read yet.
    pub(super) const fn new(block: BlockId, budget: u64) -> Self {
        Self {
            block,
            next_page: 0,
            reading: false,
            buckets: BTreeSet::new(),
            under_way: 0,
            moving: BTreeMap::new(),
            records: 0,
            bytes: 0,
            youngest: Timestamp::ZERO,
            fences: Vec::new(),
            all_buckets: BTreeSet::new(),
            tombstones: BTreeMap::new(),
            forgets: false,
            stays: false,
            failures: 0,
            own: 0,
            budget,
            damaged: false,
            asked_beside: false,
        }
    }

    /// Pages of it have been read, from the one with an index on, or could not be.
    pub(super) fn pages_read(
        &mut self,
        first: u32,
        readable: bool,
        bytes: &[u8],
        core: &mut FrugalContents,
    ) {
        self.reading = false;
        if !readable {
            self.failures += 1;
            if self.failures < MOST_FAILURES {
                self.next_page = first;
            } else {
                self.damaged = true;
            }
            return;
        }
        let geometry = core.kit.volume.geometry();
        let mut is_sound = true;
        for (offset, page) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
            let id = geometry.page(self.block, first + offset as u32);
            let header = match core.kit.volume.verify(id, page) {
                Ok(header) => header,
                Err(_) if core.kit.volume.blocks.is_hole(id) => {
                    is_sound = false;
                    continue;
                }
                Err(_) => {
                    core.kit.volume.corrupt += 1;
                    self.damaged = true;
                    continue;
                }
            };
            if header.kind == PageKind::LargePart {
                // Nobody looks for values in the log: they stay.
                self.damaged = true;
                continue;
            }
            for raw in layout::records(page) {
                match raw.and_then(Record::read_intact) {
                    Some(record) if record.kind == RecordKind::Fence => {
                        let fence = Fence { version: record.version, page: id.0 };
                        self.fences.push((record.keyspace, fence));
                    }
                    Some(record) => self.met(&record, id.0, core),
                    None => {
                        core.kit.volume.corrupt += 1;
                        self.damaged = true;
                    }
                }
            }
        }
        if is_sound && !self.damaged {
            core.tail_pages.add(self.block, first, bytes);
        }
    }

    /// Goes on with what was read ahead.
    pub(super) fn go_on(&mut self, next: &NextBlock, core: &mut FrugalContents) {
        let bytes = core.tail_pages.take(self.block);
        self.pages_read(0, true, &bytes, core);
        self.next_page = (bytes.len() / PAGE_BYTES) as u32;
        if next.reading {
            (self.next_page, self.reading) = (next.next_page, true);
        }
    }

    /// A record of a key is met in a page.
    fn met(&mut self, record: &Record<'_>, page: u32, core: &FrugalContents) {
        let bucket = core.buckets.of(record.hash);
        self.all_buckets.insert(bucket);
        self.records += 1;
        self.bytes += record.bytes() as u64;
        self.youngest = self.youngest.max(record.version.timestamp);
        let is_void = core.wholes.is_void(bucket, 0) && !record.is_loose();
        if is_void {
            return;
        }
        if record.kind.is_tombstone() || !record.expires_at.is_never() {
            let youngest = self.tombstones.entry(bucket).or_default();
            let youngest = youngest.entry(core.name_of(record)).or_insert(record.version);
            *youngest = record.version.max(*youngest);
        }
        if self.buckets.contains(&bucket) {
            return;
        }
        match tail::fate(record, page, core) {
            TailFate::Moves => {
                let one = TailRecord::new(record, page, core);
                let records = self.moving.entry(bucket).or_default();
                records.retain(|other| !other.is_same(&one));
                records.push(one);
            }
            TailFate::Dead if !core.begins_in(bucket, self.block) => {}
            // Somebody has to set the head.
            TailFate::Dead if core.buckets.older(bucket).is_empty() => {
                self.moving.entry(bucket).or_default();
            }
            TailFate::Dead | TailFate::Asks => {
                self.moving.remove(&bucket);
                self.buckets.insert(bucket);
            }
        }
    }

    /// What may have records in a block that was set aside is gathered, all of it: the tail has not the ends of its
    /// chain, so whatever goes with the tail may be what leads there.
    pub(super) fn ask_beside(&mut self, aside: &SetAside) {
        if !core::mem::replace(&mut self.asked_beside, true) && !is_planted!(MovesBesideAside) {
            let beside = self.all_buckets.iter().filter(|&&bucket| aside.may_have(bucket));
            self.buckets.extend(beside);
        }
    }

    /// A bucket is gathered. Tombstones that lie here, are in its chain no more, and have nothing there that stands
    /// for them, were dropped before a restart, which goes by a checkpoint: they are forgotten with the block all the
    /// same.
    pub(super) fn ask_forgotten(
        &mut self,
        gathering: &Gathering,
        aside: &SetAside,
        core: &FrugalContents,
    ) {
        let Some(mut tombstones) = self.tombstones.remove(&gathering.bucket) else { return };
        let mark = core.spaces.marks.collection();
        tombstones.retain(|name, version| *version > core.spaces.fence_at(name.keyspace, mark));
        for gathered in &gathering.records {
            let record = gathering.record(gathered);
            let name = core.name_of(&record);
            if tombstones.get(&name).is_some_and(|version| record.version >= *version) {
                tombstones.remove(&name);
            }
        }
        if !tombstones.is_empty() && !is_planted!(ForgetsDropped) {
            self.forgets = true;
            self.stays |= aside.may_have(gathering.bucket);
        }
    }

    /// Whether all its pages have been read.
    pub(super) fn is_read(&self, pages: u32) -> bool {
        self.next_page >= pages && !self.reading
    }

    /// Whether nothing of it has to leave any more.
    pub(super) fn is_empty(&self, pages: u32) -> bool {
        self.is_read(pages)
            && self.buckets.is_empty()
            && self.moving.is_empty()
            && self.fences.is_empty()
            && self.under_way == 0
    }
}
