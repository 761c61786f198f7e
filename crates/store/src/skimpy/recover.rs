//! Recovery: the bucket heads are rebuilt from the newest sound checkpoint and a scan of what was
//! programmed since, in the order of the log.
//!
//! ```text
//!   1 first page of every block ─► what it is, its generation, its place in the log
//!   2 checkpoints, newest first ─► heads, fences
//!   3 scan, in the order of the log: each record goes in front of its bucket
//!   4 block table; the device learns the write pointers
//! ```
//!
//! A record that does not point to what is its bucket's head by then has lost what was between: the
//! head becomes one of the older beginnings, and the bucket is rewritten soon. A rewritten chain counts
//! from its last record on, if all of it is there; then everything before it is void. Of one that is
//! not, the copies are beginnings, too: they are searched last.
//!
//! What must not happen: a damaged page hides what lies behind it; an incomplete new chain hides the
//! old one; a pointer to a page that is gone is followed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use timestone_flash::{BlockId, FlashDevice, Generation, Geometry, PAGE_BYTES, PageId};
use timestone_types::{HashSeed, Timestamp, is_planted};

use super::buckets::{Beginning, Buckets, RecordPlace};
use super::chain::is_void;
use super::checkpoint::{self, CheckpointContent, Checkpointer};
use super::collect::TailCollector;
use super::contents::{FrugalContents, FrugalCounts, name_of};
use super::epochs::WholeRewritings;
use super::long::LongChains;
use super::loose::{LooseVersion, LooseVersions};
use super::reads::PendingReads;
use super::scan::Scans;
use super::spaces::{Fence, FencedSpaces};
use super::tail_pages::TailPages;
use super::translations::Translations;
use super::{Skimpy, SkimpyConfig};
use crate::error::StoreError;
use crate::kit::Kit;
use crate::kit::blocks::Blocks;
use crate::kit::buffers::Buffers;
use crate::kit::bulk_read::{PageRange, chunks, read_all, sync};
use crate::kit::cache::Cache;
use crate::kit::invalid_pages::InvalidPages;
use crate::kit::life::Life;
use crate::kit::room::Room;
use crate::kit::scrub::Scrubber;
use crate::kit::staging::Staging;
use crate::kit::volume::Volume;
use crate::kit::watermarks::Watermarks;
use crate::kit::writer::{Stamp, StreamId, Writer};
use crate::layout::{self, LargeHead, Links, NO_PAGE, PageHeader, PageKind, Record, RecordKind};
use crate::mftl::RecoveryReport;

/// Reads of the scan in flight.
const SCAN_DEPTH: usize = 16;
/// First pages of blocks in flight.
const PROBE_DEPTH: usize = 96;
/// Bytes that are read before they are looked at in their order.
const AT_ONCE: usize = 16 << 20;
/// Pages that a pointer has room for.
const MAX_PAGES: u64 = 1 << 30;
/// What the first page of a block shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FirstPage {
    Empty,
    /// Something that does not check out: the pages behind it decide, of this kind if one is sound.
    Damaged(Option<PageKind>),
    Page(PageKind),
}

/// A bucket while its chain is put together.
#[derive(Clone, Copy)]
struct Chain {
    /// The slot of the head.
    slot: u16,
}

/// ChainCopies of a chain that is being rewritten.
#[derive(Clone, Copy)]
struct ChainCopies {
    newest: RecordPlace,
    /// They are there from the beginning of their chain on.
    is_whole: bool,
}

struct Recovery {
    config: SkimpyConfig,
    seed: Option<HashSeed>,
    geometry: Geometry,
    generations: Vec<Generation>,
    first: Vec<FirstPage>,
    /// Sequence number of the first sound page of each block.
    order: Vec<u64>,
    blocks: Blocks,
    spaces: FencedSpaces,
    buckets: Option<Buckets>,
    chains: Vec<Chain>,
    older: BTreeMap<u32, Vec<Beginning>>,
    loose: LooseVersions,
    /// By bucket: copies of chains that are not complete, the last one last.
    copies: BTreeMap<u32, Vec<ChainCopies>>,
    sequence: u64,
    pages: Vec<u32>,
    /// Blocks in which the head of a large value that was found has its parts.
    claimed: Vec<bool>,
    /// Blocks that could not be read: they are left alone, and what leads there is followed.
    unread: BTreeSet<u32>,
    invalid: InvalidPages,
    /// Pages with damaged records.
    scars: Vec<u32>,
    records: u64,
    record_bytes: u64,
    report: RecoveryReport,
}

pub(super) fn open(
    mut device: Box<dyn FlashDevice>,
    config: SkimpyConfig,
) -> Result<(Skimpy, RecoveryReport), StoreError> {
    let geometry = device.geometry();
    let pages = u64::from(geometry.max_blocks) * u64::from(geometry.pages_per_block);
    if pages > MAX_PAGES {
        return Err(StoreError::DeviceTooLarge { pages, limit: MAX_PAGES });
    }
    let blocks = geometry.blocks as usize;
    let mut recovery = Recovery {
        config,
        seed: None,
        geometry,
        generations: (0..geometry.blocks).map(|block| device.generation(BlockId(block))).collect(),
        first: vec![FirstPage::Empty; blocks],
        order: vec![u64::MAX; blocks],
        blocks: Blocks::new(geometry),
        spaces: FencedSpaces::default(),
        buckets: None,
        chains: Vec::new(),
        older: BTreeMap::new(),
        loose: LooseVersions::default(),
        copies: BTreeMap::new(),
        sequence: 0,
        pages: vec![0; blocks],
        claimed: vec![false; blocks],
        unread: BTreeSet::new(),
        invalid: InvalidPages::default(),
        scars: Vec::new(),
        records: 0,
        record_bytes: 0,
        report: RecoveryReport::default(),
    };
    let candidates = recovery.probe(&mut *device)?;
    for &generation in &recovery.generations {
        recovery.blocks.add_sealed(generation);
    }
    let (content, complete) = recovery.load_checkpoint(&mut *device, &candidates)?;
    let watermark = content.as_ref().map_or(Timestamp::ZERO, |content| content.watermark);
    let sound = content.filter(|content| content.sound);
    recovery.scan(&mut *device, sound)?;
    sync(&mut *device)?;
    recovery.complete_blocks(&mut *device)?;
    let newest = candidates.keys().next_back().copied().unwrap_or(0);
    // Those whose first page is damaged as well, which are parts of none.
    let is_checkpoint = |block: &BlockId| {
        let first = recovery.first[block.0 as usize];
        matches!(first, FirstPage::Page(PageKind::Checkpoint))
    };
    let all = (0..geometry.blocks).map(BlockId).filter(is_checkpoint);
    let old: Vec<BlockId> = all.filter(|block| !complete.contains(block)).collect();
    Ok(recovery.finish(device, watermark, newest, complete, &old))
}

impl Recovery {
    /// Looks at the first page of every block. Returns the blocks of checkpoints by number.
    fn probe(
        &mut self,
        device: &mut dyn FlashDevice,
    ) -> Result<BTreeMap<u64, Vec<BlockId>>, StoreError> {
        let mut candidates: BTreeMap<u64, Vec<BlockId>> = BTreeMap::new();
        let geometry = self.geometry;
        let jobs = (0..geometry.blocks)
            .map(BlockId)
            .filter(|&block| device.programmed(block) != Some(0))
            .map(|block| (geometry.page(block, 0), 1))
            .collect();
        let read = read_all(device, jobs, PROBE_DEPTH, |(page, _), result, bytes| {
            let block = geometry.block_of(page);
            let at = block.0 as usize;
            self.first[at] = match (result, PageHeader::read(bytes)) {
                (Ok(()), None) if bytes.iter().all(|&byte| byte == 0) => FirstPage::Empty,
                (Err(_), _) | (_, None) => FirstPage::Damaged(None),
                (_, Some(Err(found))) => {
                    return Err(StoreError::Format { found, expected: layout::FORMAT });
                }
                (_, Some(Ok(header))) => {
                    self.check_store(&header)?;
                    self.seed = Some(HashSeed(header.seed));
                    self.sequence = self.sequence.max(header.sequence);
                    if header.page != page {
                        FirstPage::Damaged(None)
                    } else if header.generation < self.generations[at] {
                        FirstPage::Empty
                    } else {
                        self.generations[at] = header.generation;
                        self.order[at] = header.sequence;
                        if header.kind == PageKind::Checkpoint
                            && let Some((number, ..)) =
                                layout::read_checkpoint_page(bytes, header.count)
                        {
                            candidates.entry(number).or_default().push(block);
                        }
                        FirstPage::Page(header.kind)
                    }
                }
            };
            Ok(())
        })?;
        self.report.read_bytes += read;
        self.probe_damaged(device)?;
        Ok(candidates)
    }

    /// Where in the log a block is whose first page is damaged, its other pages tell. An empty first
    /// page may be damage, too, where others follow.
    fn probe_damaged(&mut self, device: &mut dyn FlashDevice) -> Result<(), StoreError> {
        let geometry = self.geometry;
        let blocks = (0..geometry.blocks).map(BlockId).filter(|block| {
            let first = self.first[block.0 as usize];
            matches!(first, FirstPage::Damaged(_))
                || (first == FirstPage::Empty && device.programmed(*block) != Some(0))
        });
        let jobs: VecDeque<PageRange> =
            blocks.flat_map(|block| chunks(geometry, block, 0)).collect();
        let (mut found, mut unread) = (Vec::<(usize, PageHeader)>::new(), BTreeMap::new());
        let read = read_all(device, jobs, SCAN_DEPTH, |(first, _), result, bytes| {
            if result.is_err() {
                *unread.entry(geometry.block_of(first).0).or_default() += 1;
            }
            for (offset, page) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
                let id = PageId(first.0 + offset as u32);
                let at = geometry.block_of(id).0 as usize;
                if result.is_ok()
                    && let Some(Ok(header)) = PageHeader::read(page)
                    && header.page == id
                    && header.store == self.config.store_id
                    && header.generation >= self.generations[at]
                {
                    found.push((at, header));
                }
            }
            Ok(())
        })?;
        self.report.read_bytes += read;
        for (at, header) in found {
            // An empty first page is damaged, or its program was lost, where others are there: a
            // power cut may have kept these by chance.
            self.first[at] = FirstPage::Damaged(Some(header.kind));
            self.generations[at] = header.generation;
            self.order[at] = self.order[at].min(header.sequence);
            self.sequence = self.sequence.max(header.sequence);
        }
        // Nobody knows where in the log these are: they are not scanned, also where that could be.
        unread.retain(|&block, _| self.first[block as usize] == FirstPage::Damaged(None));
        self.report.unread_pages += unread.values().sum::<u64>();
        self.unread = unread.into_keys().collect();
        Ok(())
    }

    fn check_store(&self, header: &PageHeader) -> Result<(), StoreError> {
        if header.store == self.config.store_id {
            return Ok(());
        }
        Err(StoreError::ForeignStore { found: header.store, expected: self.config.store_id })
    }

    /// Loads the newest checkpoint that is whole.
    fn load_checkpoint(
        &mut self,
        device: &mut dyn FlashDevice,
        candidates: &BTreeMap<u64, Vec<BlockId>>,
    ) -> Result<(Option<CheckpointContent>, Vec<BlockId>), StoreError> {
        for (&number, blocks) in candidates.iter().rev() {
            let bytes = self.read_checkpoint(device, number, blocks)?;
            if bytes.as_deref().is_some_and(checkpoint::is_earlier) {
                return Err(StoreError::EarlierChains);
            }
            if let Some(bytes) = bytes
                && let Some(content) = checkpoint::read(&bytes, self.geometry.most_pages())
                && content.blocks.iter().all(|mark| mark.scan_from <= self.geometry.pages_per_block)
                && content.largest <= self.blocks.blocks_of(layout::MAX_PARTS)
            {
                self.report.checkpoint = Some(number);
                return Ok((Some(content), blocks.clone()));
            }
            self.report.bad_checkpoints += 1;
        }
        Ok((None, Vec::new()))
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
            for (offset, page) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
                let id = PageId(first.0 + offset as u32);
                let generation = generations[geometry.block_of(id).0 as usize];
                if result.is_ok()
                    && let Ok(header) = layout::verify(page, id, generation, store)
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
        let whole =
            parts.keys().next_back().is_some_and(|&place| place.checked_add(1) == Some(count))
                && parts.values().next_back().is_some_and(|(last, _)| *last);
        Ok(whole.then(|| parts.into_values().flat_map(|(_, payload)| payload).collect()))
    }

    /// Takes in what a checkpoint knows. Where each block is to be scanned from.
    fn restore(&mut self, content: CheckpointContent) -> Vec<u32> {
        let is_same = |at: usize| {
            content.blocks.get(at).is_some_and(|mark| self.generations[at] == mark.generation)
        };
        let (geometry, mut buckets) = (self.geometry, content.buckets);
        let is_there = |page: u32| {
            let block = geometry.block_of(PageId(page)).0 as usize;
            block < content.blocks.len().min(self.generations.len()) && is_same(block)
        };
        for bucket in 0..buckets.count() {
            let head = buckets.head(bucket);
            let older = buckets.older(bucket).iter().copied().filter(|one| is_there(one.page()));
            let older: Vec<Beginning> = older.collect();
            if head != NO_PAGE || !older.is_empty() {
                let head = if head != NO_PAGE && is_there(head) { head } else { NO_PAGE };
                buckets.restore(bucket, head, Vec::new());
                if !older.is_empty() {
                    self.older.insert(bucket, older);
                }
            }
        }
        for (version, exact) in content.loose {
            if is_there(version.page) {
                self.loose.restore(version, exact);
            }
        }
        // What a scan would find again is noted there.
        for &hole in content.holes.iter().filter(|page| is_there(page.0)) {
            let at = geometry.block_of(hole).0 as usize;
            if geometry.index_of(hole) < content.blocks[at].scan_from
                && !is_planted!(ForgetsTornPages)
            {
                self.blocks.add_hole(hole);
            }
        }
        // A head of the checkpoint is the last of its bucket in its page.
        self.chains = vec![Chain { slot: u16::MAX - 1 }; buckets.count() as usize];
        self.buckets = Some(buckets);
        (self.records, self.record_bytes) = (content.records, content.record_bytes);
        for (id, youngest, fences) in content.spaces {
            let space = self.spaces.ensure(id);
            space.youngest = youngest;
            fences.into_iter().for_each(|fence| space.add_fence(fence));
        }
        self.blocks.restore_largest(content.largest);
        let mut from = vec![0; self.generations.len()];
        for (at, mark) in content.blocks.iter().enumerate().take(from.len()) {
            if self.generations[at] == mark.generation {
                self.blocks.usage(BlockId(at as u32)).restore_counts(mark.counts);
                self.pages[at] = mark.scan_from;
                from[at] = mark.scan_from;
            }
        }
        from
    }

    /// Links the records of all pages that the checkpoint does not cover, in the order of the log.
    fn scan(
        &mut self,
        device: &mut dyn FlashDevice,
        content: Option<CheckpointContent>,
    ) -> Result<(), StoreError> {
        let geometry = self.geometry;
        let from = match content {
            Some(content) => self.restore(content),
            None => vec![0; self.generations.len()],
        };
        let mut blocks: Vec<BlockId> = Vec::new();
        for number in 0..geometry.blocks {
            let at = number as usize;
            if self.first[at] == FirstPage::Empty && from[at] > 0 {
                self.first[at] = FirstPage::Damaged(None);
            }
            let skipped =
                matches!(self.first[at], FirstPage::Empty | FirstPage::Page(PageKind::Checkpoint));
            if !skipped && from[at] < geometry.pages_per_block && !self.unread.contains(&number) {
                blocks.push(BlockId(number));
            }
        }
        blocks.sort_by_key(|block| self.order[block.0 as usize]);
        self.report.scanned_blocks = blocks.len() as u32;
        let block_bytes = geometry.pages_per_block as usize * PAGE_BYTES;
        for some in blocks.chunks((AT_ONCE / block_bytes).max(1)) {
            let jobs =
                some.iter().flat_map(|&block| chunks(geometry, block, from[block.0 as usize]));
            let mut pages: BTreeMap<u32, Option<Vec<u8>>> = BTreeMap::new();
            let read =
                read_all(device, jobs.collect(), SCAN_DEPTH, |(first, _), result, bytes| {
                    for (offset, page) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
                        let page = result.is_ok().then(|| page.to_vec());
                        pages.insert(first.0 + offset as u32, page);
                    }
                    Ok(())
                })?;
            self.report.read_bytes += read;
            for &block in some {
                for index in from[block.0 as usize]..geometry.pages_per_block {
                    let page = geometry.page(block, index);
                    let bytes = pages.remove(&page.0).flatten();
                    self.scan_page(page, bytes.as_deref())?;
                }
            }
        }
        self.blocks.unclaimed_parts_died();
        let damaged = self.invalid.settle(&mut self.pages, geometry, &mut self.blocks);
        self.report.corrupt_pages += damaged.inside;
        self.report.unreadable_tails += damaged.behind;
        self.report.unread_pages += self.invalid.unread_pages();
        Ok(())
    }

    fn scan_page(&mut self, page: PageId, bytes: Option<&[u8]>) -> Result<(), StoreError> {
        let block = self.geometry.block_of(page);
        let (at, index) = (block.0 as usize, self.geometry.index_of(page));
        let header = match bytes.map(PageHeader::read) {
            Some(Some(Ok(header)))
                if header.page == page && header.generation == self.generations[at] =>
            {
                header
            }
            Some(Some(Err(found))) => {
                return Err(StoreError::Format { found, expected: layout::FORMAT });
            }
            other => {
                let earlier = other.flatten().and_then(Result::ok).is_some_and(|header| {
                    header.page == page && header.generation < self.generations[at]
                });
                let blank = bytes.is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0));
                let (unreadable, failed) = (!(earlier || blank), bytes.is_none());
                self.invalid.push(block, index, unreadable, failed);
                return Ok(());
            }
        };
        self.check_store(&header)?;
        self.seed = Some(HashSeed(header.seed));
        self.pages[at] = self.pages[at].max(index + 1);
        self.sequence = self.sequence.max(header.sequence);
        if matches!(self.first[at], FirstPage::Damaged(_)) {
            self.first[at] = FirstPage::Page(header.kind);
        }
        let Some(bytes) = bytes else { return Ok(()) };
        match header.kind {
            PageKind::Records | PageKind::LargeHeads => {
                for slot in 0..layout::count(bytes) {
                    let raw = layout::record_at(bytes, slot);
                    if raw.is_some_and(Record::is_of_earlier_chains) {
                        return Err(StoreError::EarlierChains);
                    }
                    match raw.and_then(Record::read_intact) {
                        Some(record) => self.found(RecordPlace { page: page.0, slot }, &record),
                        None => {
                            self.report.corrupt_records += 1;
                            self.scars.push(page.0);
                        }
                    }
                }
            }
            PageKind::LargePart => self.blocks.usage(block).found_parts(1),
            PageKind::Checkpoint => {}
        }
        Ok(())
    }

    fn found(&mut self, place: RecordPlace, record: &Record<'_>) {
        self.report.scanned_records += 1;
        let block = self.geometry.block_of(PageId(place.page));
        let expires = (!record.expires_at.is_never()).then(|| record.expires_at.timestamp());
        let bytes = record.bytes();
        self.blocks.usage(block).wrote((bytes + layout::SLOT_BYTES) as u32, expires);
        let space = self.spaces.ensure(record.keyspace);
        if record.kind == RecordKind::Fence {
            return space.add_fence(Fence { version: record.version, page: place.page });
        }
        space.youngest = space.youngest.max(record.version);
        let Some(links) = record.links else { return };
        if record.kind.is_large()
            && let Some(head) = LargeHead::read(record.value)
        {
            self.blocks.note_large(head.parts());
            if !is_void(record, &self.blocks) {
                for extent in &head.extents {
                    let home = self.geometry.block_of(extent.page);
                    // Parts are durable before their head is written.
                    self.claimed[home.0 as usize] = !is_planted!(BelievesEmptyPages);
                    self.blocks.usage(home).found_parts(-i64::from(extent.pages));
                }
            }
        }
        if !Buckets::has_room_for(links.bits) {
            self.report.corrupt_records += 1;
            return;
        }
        let pages = self.geometry.most_pages();
        let buckets = self.buckets.get_or_insert_with(|| Buckets::new(links.bits, pages));
        if links.bits != buckets.bits() {
            self.report.corrupt_records += 1;
            return;
        }
        self.chains.resize(buckets.count() as usize, Chain { slot: 0 });
        (self.records, self.record_bytes) = (self.records + 1, self.record_bytes + bytes as u64);
        let bucket = buckets.of(record.hash);
        buckets.raise_youngest(bucket, record.version.timestamp);
        let seed = self.seed.unwrap_or_default();
        if links.kind.is_loose() {
            let name = name_of(record, seed);
            let (version, page) = (record.version, place.page);
            return self.loose.found(LooseVersion { name, version, page }, links);
        }
        if !self.loose.is_empty() {
            let name = name_of(record, seed);
            self.loose.found_in_chain(name, record.version, links);
        }
        if links.kind.is_put() {
            return self.linked(bucket, place, links);
        }
        // A run of copies without its beginning, and nothing before it: collection has moved what was
        // there, and erased its blocks.
        let is_next = self
            .copies
            .get(&bucket)
            .is_some_and(|copies| copies.last().is_some_and(|last| last.newest.page == links.next));
        let head = buckets.head(bucket);
        let is_first = !self.copies.contains_key(&bucket) && !self.older.contains_key(&bucket);
        let goes_on = head == links.next || (head == NO_PAGE && is_first);
        if !links.kind.begins() && !is_next && goes_on {
            return self.linked(bucket, place, links);
        }
        let copies = self.copies.entry(bucket).or_default();
        match copies.last_mut().filter(|last| last.newest.page == links.next) {
            Some(last) if !links.kind.begins() => {
                last.newest = place;
            }
            _ => copies.push(ChainCopies { newest: place, is_whole: links.kind.begins() }),
        }
        if links.kind.completes() && copies.last().is_some_and(|copies| copies.is_whole) {
            self.copies.remove(&bucket);
            self.chains[bucket as usize] = Chain { slot: place.slot };
            buckets.restore(bucket, place.page, Vec::new());
            self.older.remove(&bucket);
        }
    }

    /// A put: it goes in front of its bucket. If it does not point to what is there, something is
    /// missing between the two.
    fn linked(&mut self, bucket: u32, place: RecordPlace, links: Links) {
        let Some(buckets) = &mut self.buckets else { return };
        let (head, chain) = (buckets.head(bucket), &mut self.chains[bucket as usize]);
        if links.next != head && head != NO_PAGE {
            let older = self.older.entry(bucket).or_default();
            older.insert(0, Beginning::Chain(RecordPlace { page: head, slot: chain.slot }));
        }
        chain.slot = place.slot;
        buckets.restore(bucket, place.page, Vec::new());
    }

    /// Completes the block table and tells the device where each block's write pointer is.
    fn complete_blocks(&mut self, device: &mut dyn FlashDevice) -> Result<(), StoreError> {
        let failed = self.invalid.unread_blocks().into_iter();
        let is_blank = |block: &u32| self.pages[*block as usize] == 0;
        self.unread.extend(failed.filter(is_blank).collect::<Vec<u32>>());
        for number in 0..self.geometry.blocks {
            let (block, at) = (BlockId(number), number as usize);
            let generation = self.generations[at];
            if matches!(self.first[at], FirstPage::Page(PageKind::Checkpoint)) {
                self.pages[at] = self.geometry.pages_per_block;
            }
            let fresh = device.programmed(block) == Some(0);
            if self.pages[at] == 0 && self.claimed[at] && !fresh {
                // Nothing of it can be read: whoever looks for something there is told so.
                self.pages[at] = self.geometry.pages_per_block;
                self.first[at] = FirstPage::Damaged(Some(PageKind::LargePart));
                self.report.corrupt_pages += u64::from(self.pages[at]);
            }
            if self.unread.contains(&number) {
                // The device may read it the next time.
                tracing::warn!(block = number, "a block cannot be read, and is set aside");
                self.pages[at] = self.geometry.pages_per_block;
                self.report.corrupt_pages += u64::from(self.pages[at]);
            }
            let pages = self.pages[at];
            if device.programmed(block).is_none() {
                device.observe(block, generation, pages)?;
            }
            if pages == 0 {
                if device.is_bad(block) {
                    self.blocks.quarantine(block);
                } else if fresh {
                    self.blocks.release(block, generation);
                } else {
                    self.blocks.set_dirty(block);
                }
                continue;
            }
            // *Otherwise* a block of large values whose first page cannot be read once is one of the log,
            // and is erased when nothing of the log is found there.
            let kind = match self.first[at] {
                FirstPage::Page(kind) => Some(kind),
                FirstPage::Damaged(kind) => kind,
                FirstPage::Empty => None,
            };
            let stream = match kind {
                Some(PageKind::LargeHeads | PageKind::LargePart) => StreamId::Large,
                Some(PageKind::Checkpoint) => StreamId::Checkpoint,
                Some(PageKind::Records) | None => StreamId::Hot,
            };
            self.blocks.found_pages(block, stream, pages);
            if self.unread.contains(&number) {
                self.blocks.add_unread(self.geometry.page(block, 0));
                self.blocks.quarantine(block);
            }
            // What was written before the restart is not written on.
            device.seal(block);
        }
        Ok(())
    }

    /// The buckets with all their beginnings. Loose versions have their translations, as far as there are
    /// places.
    fn beginnings(&mut self, translations: &mut Translations) -> Buckets {
        let bits = Buckets::bits_for(self.config.keys, self.config.keys_per_bucket);
        let pages = self.geometry.most_pages();
        let mut buckets = self.buckets.take().unwrap_or_else(|| Buckets::new(bits, pages));
        let (mut older, copies) =
            (core::mem::take(&mut self.older), core::mem::take(&mut self.copies));
        for (bucket, all) in copies {
            let older = older.entry(bucket).or_default();
            // ChainCopies may lie in the head's page, behind it: it is named by its slot.
            let head = buckets.head(bucket);
            if head != NO_PAGE {
                let slot = self.chains[bucket as usize].slot;
                older.insert(0, Beginning::Chain(RecordPlace { page: head, slot }));
                buckets.restore(bucket, NO_PAGE, Vec::new());
            }
            older.extend(all.iter().rev().map(|copies| Beginning::Chain(copies.newest)));
        }
        let loose = core::mem::take(&mut self.loose);
        for lost in loose.settle(|name, youngest| translations.restore(name, youngest)) {
            older.entry(buckets.of(lost.name.hash)).or_default().push(Beginning::Loose(lost));
        }
        self.scars.iter().for_each(|&page| buckets.add_scar(page));
        for (bucket, older) in older {
            let head = buckets.head(bucket);
            buckets.restore(bucket, head, older);
        }
        buckets
    }

    fn finish(
        mut self,
        device: Box<dyn FlashDevice>,
        watermark: Timestamp,
        newest: u64,
        complete: Vec<BlockId>,
        old: &[BlockId],
    ) -> (Skimpy, RecoveryReport) {
        let config = self.config;
        let mut translations =
            Translations::new(config.translations(), config.loose, self.geometry);
        let mut buckets = self.beginnings(&mut translations);
        let seed = self.seed.unwrap_or(config.seed);
        let mut report = self.report;
        report.keys = self.records;
        let writer = Writer::new(Stamp { store: config.store_id, seed }, self.sequence + 1);
        let mut spaces = self.spaces;
        (spaces.seed, spaces.marks) = (seed, Watermarks::opened(watermark, config.without_log));
        let mut log: Vec<BlockId> = (0..self.geometry.blocks)
            .map(BlockId)
            .filter(|&block| self.pages[block.0 as usize] > 0)
            .filter(|&block| self.blocks.get(block).stream == StreamId::Hot)
            .filter(|block| !self.unread.contains(&block.0))
            .collect();
        log.sort_by_key(|block| self.order[block.0 as usize]);
        log.iter().for_each(|&block| buckets.begun(block, self.order[block.0 as usize]));
        // Who is led there tries to read it.
        self.unread.iter().for_each(|&block| buckets.begun(BlockId(block), 0));
        if !self.unread.is_empty() || !self.invalid.unread_blocks().is_empty() {
            spaces.marks.keep_tombstones();
        }
        let mut volume = Volume::new(device, self.blocks, writer);
        volume.corrupt = report.corrupt_records + report.corrupt_pages;
        for &block in old {
            if volume.is_bad(block) {
                volume.blocks.quarantine(block);
            } else {
                volume.erase(block);
            }
        }
        volume.clean_blocks();
        let wholes = WholeRewritings::new(buckets.count(), self.geometry.max_blocks);
        let core = FrugalContents {
            kit: Kit {
                volume,
                room: Room::new(config.without_log),
                cache: Cache::new(config.cache_bytes),
                staging: Staging::new(config.staged_bytes),
                buffers: Buffers::default(),
            },
            spaces,
            buckets,
            translations,
            staged: BTreeMap::new(),
            log: log.into(),
            tail_pages: TailPages::default(),
            wholes,
            long_chains: LongChains::default(),
            records: self.records,
            record_bytes: self.record_bytes,
            superseded_bytes: 0,
            counts: FrugalCounts::default(),
        };
        let mut store = Skimpy {
            config,
            collector: TailCollector::opened(&core),
            core,
            reads: PendingReads::new(config.assembled_bytes),
            scans: Scans::default(),
            scrubber: Scrubber::default(),
            checkpointer: Checkpointer::resume(newest, complete, config.checkpoint_bytes),
            life: Life::running(),
            events: Vec::new(),
        };
        // A store that was used before begins with a few clean blocks.
        let lacks_blocks = |store: &Skimpy| {
            let blocks = &store.core.kit.volume.blocks;
            blocks.clean_count() == 0 && blocks.free_count() > 0 && !store.life.has_failed()
        };
        while lacks_blocks(&store) {
            store.poll();
            // Instead of those that could not be erased.
            store.core.kit.volume.clean_blocks();
            store.core.kit.volume.wait(Duration::from_millis(10));
        }
        tracing::debug!(?report, "store recovered");
        (store, report)
    }
}
