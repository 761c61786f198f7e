//! Recovery: the index is rebuilt from the newest sound checkpoint and a scan of what was
//! programmed since.
//!
//! ```text
//!   1 first pages of every block ─► what it is, its generation
//!   2 checkpoints, newest first ─► marks, fences, index
//!   3 scan: pages behind each block's mark (all pages without one), and those that no start has read so far
//!   4 block table; the device learns the write pointers
//! ```
//!
//! Records may be found in any order, and more than once (collection was moving them): the index
//! keeps each copy, so that it knows everything that another scan would find. Entries whose block
//! has another generation than their checkpoint says are void. Reads are 256 KiB, many in flight.
//! Damaged records and pages are counted and skipped.
//!
//! What must not happen: a damaged page hides the pages behind it; a record below a fence, or the
//! head of a large value whose parts are gone, comes back; a block is erased that something is known
//! of, or that could not be read.

mod orders;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use timestone_flash::{BlockId, FlashDevice, Generation, Geometry, PAGE_BYTES, PageId};
use timestone_types::{HashSeed, KeyspaceId, Timestamp, Version, is_planted};

use super::checkpoint::{self, BlockMark, Checkpointer, Content, NamedKey, StreamItem};
use super::collect::Collector;
use super::index::{Ahead, KeyId, Location, NODES_OF_PUT, Superseded};
use super::locate::head_is_void;
use super::outside::{OutsideKey, read_keys};
use super::placement::Placement;
use super::put::WriteCounts;
use super::ranges::RangeReads;
use super::reads::PendingReads;
use super::space::{Fence, Space, Spaces, id_of_record};
use super::walk::Walks;
use super::{GetCounts, Mftl, MftlConfig, RecoveryReport};
use crate::error::StoreError;
use crate::kit::Kit;
use crate::kit::blocks::Blocks;
use crate::kit::buffers::Buffers;
use crate::kit::bulk_read::{chunks, read_all, runs, sync};
use crate::kit::cache::Cache;
use crate::kit::invalid_pages::InvalidPages;
use crate::kit::life::Life;
use crate::kit::room::Room;
use crate::kit::scrub::Scrubber;
use crate::kit::staging::Staging;
use crate::kit::volume::Volume;
use crate::kit::watermarks::Watermarks;
use crate::kit::writer::{Stamp, StreamId, Writer};
use crate::layout::{self, LargeHead, PageHeader, PageKind, Record, RecordKind};
use orders::{restore_key, restore_orders};

/// Reads of the scan in flight.
const SCAN_DEPTH: usize = 16;
/// Pages of records whose keys are fetched together: those of common size are some 60.
const PAGES_AHEAD: u32 = 8;
/// First pages of blocks in flight.
const PROBE_DEPTH: usize = 96;
/// How many of each block: a first page that is empty may be damage, where another one follows.
const PROBED_PAGES: u32 = 2;

/// What the first page of a block shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FirstPage {
    /// Nothing of this generation.
    Empty,
    /// Something that does not check out: the pages behind it decide.
    Damaged,
    Page(PageKind),
}

/// Blocks of checkpoints by number, with their first page's place.
type Candidates = BTreeMap<u64, Vec<(u32, BlockId)>>;

struct Recovery {
    config: MftlConfig,
    seed: Option<HashSeed>,
    geometry: Geometry,
    generations: Vec<Generation>,
    first: Vec<FirstPage>,
    /// Blocks in which the checkpoint's index has something.
    named: Vec<bool>,
    /// Blocks in which the head of a large value that was found has its parts.
    claimed: Vec<bool>,
    blocks: Blocks,
    spaces: Spaces,
    sequence: u64,
    /// Pages of each block that are known to be programmed.
    pages: Vec<u32>,
    invalid: InvalidPages,
    /// Superseded records in blocks that may be of large values: those let the blocks of their parts
    /// know, once it is clear which blocks those are.
    superseded: Vec<(KeyspaceId, KeyId, Superseded)>,
    /// Tombstones with parts.
    tombstones: Vec<(KeyspaceId, KeyId, Version, Location)>,
    /// Keys in keyspaces that are ordered that are not in the heads of their values.
    outside: Vec<OutsideKey>,
    /// Blocks that collection was emptying: scanned whole, beside what the checkpoint knows of
    /// them.
    emptied: Vec<BlockId>,
    /// Pages that no start has read so far, and that the checkpoint's marks leave out.
    listed: BTreeSet<PageId>,
    report: RecoveryReport,
}

pub(super) fn open(
    mut device: Box<dyn FlashDevice>,
    config: MftlConfig,
) -> Result<(Mftl, RecoveryReport), StoreError> {
    let geometry = device.geometry();
    let pages = u64::from(geometry.max_blocks) * u64::from(geometry.pages_per_block);
    let limit = u64::from(Location::MAX_PAGES);
    if pages > limit {
        return Err(StoreError::DeviceTooLarge { pages, limit });
    }
    let mut recovery = Recovery {
        config,
        seed: None,
        geometry,
        generations: (0..geometry.blocks).map(|block| device.generation(BlockId(block))).collect(),
        first: vec![FirstPage::Empty; geometry.blocks as usize],
        named: vec![false; geometry.blocks as usize],
        claimed: vec![false; geometry.blocks as usize],
        blocks: Blocks::new(geometry),
        spaces: Spaces::default(),
        sequence: 0,
        pages: vec![0; geometry.blocks as usize],
        invalid: InvalidPages::default(),
        superseded: Vec::new(),
        tombstones: Vec::new(),
        outside: Vec::new(),
        emptied: Vec::new(),
        listed: BTreeSet::new(),
        report: RecoveryReport::default(),
    };
    let candidates = recovery.probe(&mut *device)?;
    for &generation in &recovery.generations {
        recovery.blocks.add_sealed(generation);
    }
    let (content, complete) = recovery.load_checkpoint(&mut *device, &candidates)?;
    recovery.scan(&mut *device, &content)?;
    sync(&mut *device)?;
    recovery.complete_blocks(&mut *device)?;
    let newest = candidates.keys().next_back().copied().unwrap_or(0);
    // Those whose first page is damaged as well, which are parts of none.
    let old: Vec<BlockId> = (0..geometry.blocks)
        .map(BlockId)
        .filter(|block| recovery.first[block.0 as usize] == FirstPage::Page(PageKind::Checkpoint))
        .filter(|block| !complete.contains(block))
        .collect();
    Ok(recovery.finish(device, content.watermark, newest, complete, &old))
}

impl Recovery {
    /// Looks at the first pages of every block. Returns the blocks of checkpoints.
    fn probe(&mut self, device: &mut dyn FlashDevice) -> Result<Candidates, StoreError> {
        let mut candidates = Candidates::new();
        let geometry = self.geometry;
        let probed = PROBED_PAGES.min(geometry.pages_per_block);
        let jobs = (0..geometry.blocks)
            .map(BlockId)
            .filter(|&block| device.programmed(block) != Some(0))
            .map(|block| (geometry.page(block, 0), probed))
            .collect();
        let mut behind: Vec<PageHeader> = Vec::new();
        let read = read_all(device, jobs, PROBE_DEPTH, |(first, _), result, bytes| {
            for (offset, bytes) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
                let page = PageId(first.0 + offset as u32);
                let bytes = result.is_ok().then_some(bytes);
                if geometry.index_of(page) == 0 {
                    self.probe_first(page, bytes, &mut candidates)?;
                } else if let Some(Ok(header)) = bytes.and_then(PageHeader::read)
                    && header.page == page
                    && header.store == self.config.store_id
                {
                    behind.push(header);
                }
            }
            Ok(())
        })?;
        for header in behind {
            // A power cut may have kept that one by chance; or the first page is damaged.
            let at = geometry.block_of(header.page).0 as usize;
            if self.first[at] == FirstPage::Empty
                && header.generation >= self.generations[at]
                && !is_planted!(BelievesEmptyPages)
            {
                self.generations[at] = header.generation;
                self.first[at] = FirstPage::Damaged;
            }
        }
        self.report.read_bytes += read;
        debug_assert!(
            candidates.values().map(Vec::len).sum::<usize>() <= self.first.len(),
            "a block is part of one checkpoint"
        );
        Ok(candidates)
    }

    /// Notes what the first page of a block shows, `None` where it was not read.
    fn probe_first(
        &mut self,
        page: PageId,
        bytes: Option<&[u8]>,
        candidates: &mut Candidates,
    ) -> Result<(), StoreError> {
        let block = self.geometry.block_of(page);
        let at = block.0 as usize;
        debug_assert_eq!(self.geometry.index_of(page), 0, "a first page");
        let Some(bytes) = bytes else {
            self.first[at] = FirstPage::Damaged;
            return Ok(());
        };
        self.first[at] = match PageHeader::read(bytes) {
            None if bytes.iter().all(|&byte| byte == 0) => FirstPage::Empty,
            None => FirstPage::Damaged,
            Some(Err(found)) => {
                return Err(StoreError::Format { found, expected: layout::FORMAT });
            }
            Some(Ok(header)) => {
                if header.store != self.config.store_id {
                    return Err(StoreError::ForeignStore {
                        found: header.store,
                        expected: self.config.store_id,
                    });
                }
                self.seed = Some(HashSeed(header.seed));
                self.sequence = self.sequence.max(header.sequence);
                if header.page != page {
                    FirstPage::Damaged
                } else if header.generation < self.generations[at] {
                    FirstPage::Empty
                } else {
                    self.generations[at] = header.generation;
                    if header.kind == PageKind::Checkpoint
                        && let Some((number, place, _, _)) =
                            layout::read_checkpoint_page(bytes, header.count)
                    {
                        candidates.entry(number).or_default().push((place, block));
                    }
                    FirstPage::Page(header.kind)
                }
            }
        };
        Ok(())
    }

    /// Loads the newest checkpoint that is whole.
    fn load_checkpoint(
        &mut self,
        device: &mut dyn FlashDevice,
        candidates: &Candidates,
    ) -> Result<(Content, Vec<BlockId>), StoreError> {
        for (&number, blocks) in candidates.iter().rev() {
            debug_assert!(self.spaces.list.is_empty(), "a checkpoint is loaded into nothing");
            let blocks: Vec<BlockId> = blocks.iter().map(|&(_, block)| block).collect();
            if let Some(bytes) = self.read_checkpoint(device, number, &blocks)?
                && let Some(content) = self.parse_checkpoint(&bytes)
            {
                self.report.checkpoint = Some(number);
                return Ok((content, blocks));
            }
            self.report.bad_checkpoints += 1;
            self.named.fill(false);
            self.spaces = Spaces::default();
        }
        self.spaces = Spaces::of_whole_log();
        Ok((Content::default(), Vec::new()))
    }

    /// The joined payloads of a checkpoint; `None` when pages are missing or damaged.
    fn read_checkpoint(
        &mut self,
        device: &mut dyn FlashDevice,
        number: u64,
        blocks: &[BlockId],
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let geometry = self.geometry;
        let jobs = blocks.iter().flat_map(|&block| chunks(geometry, block, 0)).collect();
        let mut parts: BTreeMap<u32, (bool, Vec<u8>)> = BTreeMap::new();
        let (generations, store) = (&self.generations, self.config.store_id);
        let read = read_all(device, jobs, SCAN_DEPTH, |(first, _), result, bytes| {
            if result.is_err() {
                return Ok(());
            }
            for (offset, page) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
                let id = PageId(first.0 + offset as u32);
                let generation = generations[geometry.block_of(id).0 as usize];
                if let Ok(header) = layout::verify(page, id, generation, store)
                    && let Some((found, place, last, payload)) =
                        layout::read_checkpoint_page(page, header.count)
                    && found == number
                {
                    parts.insert(place, (last, payload.to_vec()));
                }
            }
            Ok(())
        })?;
        self.report.read_bytes += read;
        let count = parts.len() as u32;
        debug_assert!(
            u64::from(count) <= blocks.len() as u64 * u64::from(geometry.pages_per_block),
            "a page has one place"
        );
        let whole =
            parts.keys().next_back().is_some_and(|&place| place.checked_add(1) == Some(count))
                && parts.values().next_back().is_some_and(|(last, _)| *last);
        Ok(whole.then(|| {
            let mut joined =
                Vec::with_capacity(parts.values().map(|(_, payload)| payload.len()).sum());
            parts.into_values().for_each(|(_, payload)| joined.extend_from_slice(&payload));
            joined
        }))
    }

    fn parse_checkpoint(&mut self, bytes: &[u8]) -> Option<Content> {
        let (spaces, generations, geometry) = (&mut self.spaces, &self.generations, self.geometry);
        let named = &mut self.named;
        named.fill(false);
        let (mut kept, mut twice) = (Vec::new(), false);
        let content = checkpoint::read(bytes, |marks, item| {
            let NamedKey { keyspace, id, versions, dead, left } = match item {
                StreamItem::Key(key) => key,
                StreamItem::Ordered(keyspace, key) => return restore_key(spaces, keyspace, key),
            };
            kept.clear();
            kept.extend(versions.iter().copied().filter(|&(_, place)| {
                let block = geometry.block_of(PageId(place.page())).0 as usize;
                let is_there = marks
                    .get(block)
                    .is_some_and(|mark| generations.get(block) == Some(&mark.generation));
                if is_there {
                    named[block] = true;
                }
                is_there
            }));
            let space = spaces.ensure(keyspace);
            let Space { index, order, .. } = &mut spaces.list[space];
            if index.latest(id).is_some() {
                twice = true;
                return;
            }
            index.expect_keys(id.segment, left);
            index.restore(id, &kept, dead);
            if let (Some(order), Some((youngest, _))) = (order, kept.first()) {
                order.are_older_than(youngest.timestamp);
            }
        })?;
        let beyond = |mark: &BlockMark| mark.scan_from > geometry.pages_per_block;
        if twice
            || !restore_orders(spaces, &content)
            || content.blocks.iter().any(beyond)
            || content.largest > self.blocks.blocks_of(layout::MAX_PARTS)
        {
            return None;
        }
        for &(id, youngest) in &content.spaces {
            let space = self.spaces.ensure(id);
            self.spaces.list[space].youngest = youngest;
        }
        for &(id, fence) in &content.fences {
            let space = self.spaces.ensure(id);
            self.spaces.list[space].add_fence(fence);
        }
        self.blocks.restore_largest(content.largest);
        for (number, mark) in content.blocks.iter().enumerate() {
            if self.generations.get(number) == Some(&mark.generation) {
                self.blocks.usage(BlockId(number as u32)).restore_counts(mark.counts);
                self.pages[number] = mark.scan_from;
            }
        }
        debug_assert!(
            self.pages.iter().all(|&pages| pages <= geometry.pages_per_block),
            "marks beyond a block were refused"
        );
        // What a scan looks at again is noted there.
        let is_unread = |page: &PageId| content.unread.binary_search(page).is_ok();
        for &hole in content.holes.iter().filter(|page| !is_unread(page)) {
            if self.lies_before_scan(hole, &content) {
                self.blocks.add_hole(hole);
            }
        }
        Some(content)
    }

    /// Whether a page lies before where the scan of its block begins, by a checkpoint that knows its life.
    fn lies_before_scan(&self, page: PageId, content: &Content) -> bool {
        let block = self.geometry.block_of(page);
        let at = block.0 as usize;
        let mark = content.blocks.get(at);
        mark.is_some_and(|mark| {
            self.generations.get(at) == Some(&mark.generation)
                && self.geometry.index_of(page) < mark.scan_from
        }) && !content.emptied.contains(&block)
    }

    /// Finds the records of all pages that the checkpoint does not cover.
    fn scan(&mut self, device: &mut dyn FlashDevice, content: &Content) -> Result<(), StoreError> {
        debug_assert!(self.invalid.is_empty(), "pages are scanned once");
        let geometry = self.geometry;
        let mut jobs = VecDeque::new();
        self.emptied.clone_from(&content.emptied);
        for &block in &self.emptied {
            // Everything has left it: an erase may have been interrupted.
            if let Some(named) = self.named.get_mut(block.0 as usize) {
                *named = false;
            }
        }
        for number in 0..geometry.blocks {
            let at = number as usize;
            if self.first[at] == FirstPage::Empty && self.is_named(at) {
                self.first[at] = FirstPage::Damaged;
            }
            if matches!(self.first[at], FirstPage::Empty | FirstPage::Page(PageKind::Checkpoint)) {
                continue;
            }
            let block = BlockId(number);
            let marked =
                content.blocks.get(at).filter(|mark| mark.generation == self.generations[at]);
            let from = match marked {
                Some(_) if content.emptied.contains(&block) => {
                    self.blocks.usage(block).restore_counts([0; 4]);
                    0
                }
                Some(mark) => mark.scan_from,
                None => 0,
            };
            let before = jobs.len();
            jobs.extend(chunks(geometry, block, from));
            self.report.scanned_blocks += u32::from(jobs.len() > before);
        }
        // What could not be read before the checkpoint was written is not in its index.
        let listed = content.unread.iter().copied();
        let is_scanned = |page: &PageId| {
            let first = self.first[self.geometry.block_of(*page).0 as usize];
            first != FirstPage::Page(PageKind::Checkpoint)
        };
        let listed = listed.filter(|&page| self.lies_before_scan(page, content));
        self.listed = listed.filter(is_scanned).collect();
        jobs.extend(runs(&self.listed, geometry));
        // Nothing is in the cache yet.
        let bound = self.config.cache_bytes.saturating_add(self.config.beside_bytes);
        let read = read_all(device, jobs, SCAN_DEPTH, |(first, pages), result, bytes| {
            self.spaces.bound_growth(bound);
            for offset in 0..pages {
                if offset % PAGES_AHEAD == 0 && result.is_ok() {
                    let ahead = PAGES_AHEAD.min(pages - offset) as usize * PAGE_BYTES;
                    self.fetch_ahead(&bytes[offset as usize * PAGE_BYTES..][..ahead]);
                }
                let page = PageId(first.0 + offset);
                let bytes =
                    &bytes[offset as usize * PAGE_BYTES..(offset as usize + 1) * PAGE_BYTES];
                self.scan_page(page, result.is_ok(), bytes)?;
            }
            Ok(())
        })?;
        self.report.read_bytes += read;
        self.blocks.unclaimed_parts_died();
        let damaged = self.invalid.settle(&mut self.pages, geometry, &mut self.blocks);
        self.report.corrupt_pages += damaged.inside;
        self.report.unreadable_tails += damaged.behind;
        self.report.unread_pages += self.invalid.unread_pages();
        Ok(())
    }

    /// Whether the checkpoint knows of something in a block. It was not erased since, so it is not empty,
    /// whatever its first page looks like.
    fn is_named(&self, block: usize) -> bool {
        self.named[block] && !is_planted!(BelievesEmptyPages)
    }

    fn scan_page(&mut self, page: PageId, readable: bool, bytes: &[u8]) -> Result<(), StoreError> {
        let block = self.geometry.block_of(page);
        let (at, index) = (block.0 as usize, self.geometry.index_of(page));
        let header = match PageHeader::read(bytes) {
            Some(Ok(header))
                if readable && header.page == page && header.generation == self.generations[at] =>
            {
                header
            }
            Some(Err(found)) if readable => {
                return Err(StoreError::Format { found, expected: layout::FORMAT });
            }
            other => {
                let earlier = other.and_then(Result::ok).is_some_and(|header| {
                    header.page == page && header.generation < self.generations[at]
                });
                let blank = bytes.iter().all(|&byte| byte == 0);
                let unreadable = !readable || !(earlier || blank);
                self.invalid.push(block, index, unreadable, !readable);
                return Ok(());
            }
        };
        if header.store != self.config.store_id {
            return Err(StoreError::ForeignStore {
                found: header.store,
                expected: self.config.store_id,
            });
        }
        self.seed = Some(HashSeed(header.seed));
        self.pages[at] = self.pages[at].max(index + 1);
        debug_assert!(self.pages[at] <= self.geometry.pages_per_block, "pages of one block");
        self.sequence = self.sequence.max(header.sequence);
        if self.first[at] == FirstPage::Damaged {
            self.first[at] = FirstPage::Page(header.kind);
        }
        self.scan_content(page, &header, bytes);
        Ok(())
    }

    /// Has what the index knows of the keys in some pages fetched, for all of them at once: each
    /// would be waited for otherwise, and that is most of what a scan takes. A hint; nothing is checked.
    fn fetch_ahead(&self, pages: &[u8]) {
        let has_records = |page: &&[u8]| {
            let header = PageHeader::read(page).and_then(Result::ok);
            header.is_some_and(|header| {
                matches!(header.kind, PageKind::Records | PageKind::LargeHeads)
            })
        };
        let records = pages.chunks_exact(PAGE_BYTES).filter(has_records).flat_map(layout::records);
        let keys = records.flatten().filter_map(Record::read).map(|record| {
            let space = self.spaces.get(record.keyspace);
            (space.map(|space| &space.index), record.hash, NODES_OF_PUT)
        });
        Ahead::take_all(keys);
    }

    /// Takes in what a sound page holds.
    fn scan_content(&mut self, page: PageId, header: &PageHeader, bytes: &[u8]) {
        let block = self.geometry.block_of(page);
        debug_assert_eq!(
            (header.page, header.generation),
            (page, self.generations[block.0 as usize]),
            "only what belongs there is taken in"
        );
        match header.kind {
            PageKind::Records | PageKind::LargeHeads => {
                for raw in layout::records(bytes) {
                    match raw.and_then(Record::read_intact) {
                        Some(record) => self.found(page, HashSeed(header.seed), &record),
                        None => self.report.corrupt_records += 1,
                    }
                }
            }
            // Heads that the checkpoint knows are not found.
            PageKind::LargePart if self.emptied.contains(&block) || self.listed.contains(&page) => {
                self.blocks.usage(block).wrote_raw();
            }
            PageKind::LargePart => self.blocks.usage(block).found_parts(1),
            PageKind::Checkpoint => {}
        }
    }

    fn found(&mut self, page: PageId, seed: HashSeed, record: &Record<'_>) {
        self.report.scanned_records += 1;
        let block = self.geometry.block_of(page);
        let expires = (!record.expires_at.is_never()).then(|| record.expires_at.timestamp());
        self.blocks.usage(block).wrote((record.bytes() + layout::SLOT_BYTES) as u32, expires);
        let space = self.spaces.ensure(record.keyspace);
        let space = &mut self.spaces.list[space];
        if record.kind == RecordKind::Fence {
            if !space.add_fence(Fence { version: record.version, page: page.0 }) {
                space.fence_moved(record.version, page.0);
            }
            return;
        }
        let head = if record.kind.is_large() { LargeHead::read(record.value) } else { None };
        if record.kind.is_large()
            && head.as_ref().is_none_or(|head| head_is_void(head, &self.blocks))
        {
            return;
        }
        for extent in head.iter().flat_map(|head| &head.extents) {
            let home = self.geometry.block_of(extent.page);
            // Parts are durable before their head is written.
            self.claimed[home.0 as usize] = !is_planted!(BelievesEmptyPages);
            self.blocks.usage(home).found_parts(-i64::from(extent.pages));
        }
        if let Some(head) = &head {
            self.blocks.note_large(head.parts());
        }
        let id = id_of_record(seed, record, head.as_ref());
        self.note_key(page, id, record, head.as_ref());
        let space = self.spaces.ensure(record.keyspace);
        let space = &mut self.spaces.list[space];
        let location = Location::new(page.0, record.kind.is_tombstone(), expires.is_some());
        space.youngest = space.youngest.max(record.version);
        if let Some(superseded) = space.index.put_found(id, record.version, location) {
            let page = PageId(superseded.location.page());
            self.blocks.superseded(page, superseded.by, Timestamp::ZERO);
            let first = self.first.get(self.geometry.block_of(page).0 as usize);
            if first != Some(&FirstPage::Page(PageKind::Records)) {
                self.superseded.push((record.keyspace, id, superseded));
            }
        }
        debug_assert!(
            space.index.chain(id).any(|(known, _)| known == record.version),
            "what was found is known"
        );
        if location.tombstone() {
            self.blocks.superseded(page, record.version.timestamp, Timestamp::ZERO);
            if head.is_some() {
                self.tombstones.push((record.keyspace, id, record.version, location));
            }
        }
    }

    /// A record was found: its key takes its place in the order, where there is one.
    fn note_key(
        &mut self,
        page: PageId,
        id: KeyId,
        record: &Record<'_>,
        head: Option<&LargeHead<'_>>,
    ) {
        let Some(space) = self.spaces.get_mut(record.keyspace) else { return };
        if space.order.is_none() || is_planted!(ScanMissesKeys) {
            return;
        }
        let is_known = space.index.latest(id).is_some();
        if let Some(order) = &mut space.order
            && head.is_some_and(|head| head.key_outside > 0)
        {
            order.expect(id, is_known);
            let (keyspace, version) = (record.keyspace, record.version);
            self.outside.push(OutsideKey { keyspace, id, version, page });
            return;
        }
        space.note_key(id, record.key, record.version.timestamp, is_known);
    }

    /// Completes the block table and tells the device where each block's write pointer is.
    fn complete_blocks(&mut self, device: &mut dyn FlashDevice) -> Result<(), StoreError> {
        assert_eq!(self.blocks.count(), self.geometry.blocks, "each block is in the table");
        let failed = self.invalid.unread_blocks();
        for number in 0..self.geometry.blocks {
            let (block, at) = (BlockId(number), number as usize);
            let generation = self.generations[at];
            if matches!(self.first[at], FirstPage::Page(PageKind::Checkpoint)) {
                self.pages[at] = self.geometry.pages_per_block;
            }
            let fresh = device.programmed(block) == Some(0);
            if self.pages[at] == 0 && (self.is_named(at) || (self.claimed[at] && !fresh)) {
                // Nothing of it can be read: whoever looks for something there is told so.
                self.pages[at] = self.geometry.pages_per_block;
                self.report.corrupt_pages += u64::from(self.pages[at]);
            }
            let pages = self.pages[at];
            if device.programmed(block).is_none() {
                device.observe(block, generation, pages)?;
            }
            if pages == 0 {
                // Behind an empty first page there may be pages that a power cut kept by chance:
                // erase before use.
                if device.is_bad(block) {
                    self.blocks.quarantine(block);
                } else if failed.contains(&number) {
                    // The device may read it the next time.
                    tracing::warn!(block = number, "a block cannot be read, and is set aside");
                    self.blocks.quarantine(block);
                } else if fresh {
                    self.blocks.release(block, generation);
                } else {
                    self.blocks.set_dirty(block);
                }
                continue;
            }
            let stream = match self.first[at] {
                FirstPage::Page(PageKind::LargeHeads | PageKind::LargePart) => StreamId::Large,
                FirstPage::Page(PageKind::Checkpoint) => StreamId::Checkpoint,
                _ => StreamId::Hot,
            };
            self.blocks.found_pages(block, stream, pages);
            // What was written before the restart is not written on.
            device.seal(block);
        }
        Ok(())
    }

    fn finish(
        self,
        device: Box<dyn FlashDevice>,
        watermark: Timestamp,
        newest: u64,
        complete: Vec<BlockId>,
        old: &[BlockId],
    ) -> (Mftl, RecoveryReport) {
        let seed = self.seed.unwrap_or(self.config.seed);
        let mut report = self.report;
        report.keys = self.spaces.list.iter().map(|space| space.index.keys()).sum();
        let config = self.config;
        let mut writer = Writer::new(Stamp { store: config.store_id, seed }, self.sequence + 1);
        writer.bound_groups(config.page_buffer_bytes);
        let mut spaces = self.spaces;
        spaces.end_recovery();
        (spaces.seed, spaces.marks) = (seed, Watermarks::opened(watermark, config.without_log));
        if !self.invalid.unread_blocks().is_empty() {
            spaces.marks.keep_tombstones();
        }
        let mut volume = Volume::new(device, self.blocks, writer);
        volume.corrupt = report.corrupt_records + report.corrupt_pages;
        let mut reads = PendingReads::new(config.assembled_bytes);
        for &block in old {
            if volume.is_bad(block) {
                volume.blocks.quarantine(block);
            } else {
                volume.erase(block);
            }
        }
        for (keyspace, id, Superseded { version, location, by }) in self.superseded {
            reads.note_dead_parts((keyspace, id, version, location), by, &mut volume);
        }
        for (keyspace, id, version, location) in self.tombstones {
            let index = spaces.index(keyspace);
            if index.is_some_and(|index| index.is_bare(id, version, location)) {
                let by = version.timestamp;
                reads.note_dead_parts((keyspace, id, version, location), by, &mut volume);
            }
        }
        volume.clean_blocks();
        let checkpointer = Checkpointer::resume(newest, complete, config.checkpoint_bytes);
        let mut store = assemble(config, volume, spaces, reads, checkpointer);
        read_keys(&mut store, &self.outside);
        // A store that was used before begins with a few clean blocks.
        let lacks_blocks = |store: &Mftl| {
            let blocks = &store.kit.volume.blocks;
            blocks.clean_count() == 0 && blocks.free_count() > 0 && !store.life.has_failed()
        };
        while lacks_blocks(&store) {
            store.poll();
            // Instead of those that could not be erased.
            store.kit.volume.clean_blocks();
            store.kit.volume.wait(Duration::from_millis(10));
        }
        tracing::debug!(?report, "store recovered");
        (store, report)
    }
}

/// A store whose parts recovery has filled.
fn assemble(
    config: MftlConfig,
    volume: Volume,
    spaces: Spaces,
    reads: PendingReads,
    checkpointer: Checkpointer,
) -> Mftl {
    Mftl {
        config,
        kit: Kit {
            volume,
            room: Room::new(config.without_log),
            cache: Cache::new(config.cache_bytes),
            staging: Staging::new(config.staged_bytes),
            buffers: Buffers::default(),
        },
        spaces,
        reads,
        walks: Walks::default(),
        ranges: RangeReads::default(),
        scrubber: Scrubber::default(),
        collector: Collector::default(),
        checkpointer,
        life: Life::running(),
        gets: GetCounts::default(),
        placement: Placement::default(),
        writes: WriteCounts::default(),
        events: Vec::new(),
    }
}
