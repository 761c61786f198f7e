//! Opening: the map is read from the journal.
//!
//! ```text
//!   1 first page of every block ─► which belong to the journal
//!   2 those blocks ─► flushes that are whole, in order; from the last whole round of the map on
//!   3 map ─► owners, what is free; everything else is erased before its next use
//!   4 the whole map is written by one flush, so that a crash here leaves nothing behind
//! ```
//!
//! What must not happen: a flush is left out whose successors count.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use timestone_flash::ledger::Ledger;
use timestone_flash::{BlockId, FlashDevice, FlashError, Generation, Geometry, PAGE_BYTES, PageId};

use super::blocks::{Blocks, State};
use super::collect::PageCollector;
use super::journal::{self, Header, Journal};
use super::lanes::Lanes;
use super::map::Map;
use super::requests::Programs;
use super::slab::Slab;
use super::stats::FtlMonitor;
use super::{Ftl, FtlConfig, shape};
use crate::error::StoreError;
use crate::kit::bulk_read::{PageRange, read_all, sync};
use crate::kit::port::Port;

/// Reads in flight.
const DEPTH: usize = 96;
/// So often a page is read that cannot be read.
const READ_TRIES: u32 = 4;
/// Pages of one read of the journal.
const READ_PAGES: u32 = 64;

/// A page of the journal.
struct JournalPage {
    header: Header,
    block: BlockId,
    bytes: Vec<u8>,
}

/// What the device holds.
struct Log {
    /// Pages in the order of flush, epoch and place in the flush.
    pages: BTreeMap<(u64, u32, u32), JournalPage>,
    /// The first flush of each of its blocks.
    blocks: BTreeMap<BlockId, u64>,
}

pub(super) fn open(mut device: Box<dyn FlashDevice>, config: FtlConfig) -> Result<Ftl, StoreError> {
    let geometry = device.geometry();
    let (pages_per_block, divisor) = (geometry.pages_per_block, config.spare_divisor);
    let logical = shape::logical_blocks(geometry, geometry.blocks, divisor);
    if logical == 0 {
        let reason = format!("{} blocks are too few for a translation layer", geometry.blocks);
        return Err(FlashError::Full { reason }.into());
    }
    let most = shape::logical_blocks(geometry, geometry.max_blocks, divisor);
    let all = || (0..geometry.blocks).map(BlockId);
    let fresh = all().all(|block| device.programmed(block) == Some(0));
    if !config.journaled && !fresh {
        return Err(corrupt(PageId(0), "the map of what is there was in memory only"));
    }
    let log = read_log(&mut *device, geometry, logical)?;
    let mut map = Map::new(pages_per_block, logical);
    let (next, epoch) = log.replay(&mut map, geometry)?;
    check(&map, geometry)?;
    let mut blocks = Blocks::new(geometry);
    let mut mapped = vec![false; geometry.blocks as usize];
    let logical_pages = || (0..logical * pages_per_block).map(PageId);
    for place in logical_pages().filter_map(|page| map.place(page)) {
        mapped[geometry.block_of(place).0 as usize] = true;
    }
    for block in all() {
        let state = match (mapped[block.0 as usize], log.blocks.contains_key(&block)) {
            (true, true) => {
                return Err(corrupt(geometry.page(block, 0), "the map names its journal"));
            }
            (true, false) => State::Full,
            (false, true) => State::Journal,
            (false, false) if device.programmed(block) == Some(0) => State::Free,
            (false, false) => State::Dirty,
        };
        blocks.add(state, device.generation(block));
    }
    for page in logical_pages() {
        if let Some(place) = map.place(page)
            && !blocks.found(place, page)
        {
            return Err(corrupt(place, "the map names it twice"));
        }
    }
    sync(&mut *device)?;
    let generations = (0..logical).map(|block| map.generation(BlockId(block)));
    let mut ledger = Ledger::new(pages_per_block, most, generations, fresh);
    for block in (0..logical).map(BlockId) {
        let is_empty = map.pages_of(block).all(|page| map.place(PageId(page)).is_none());
        if !fresh && is_empty {
            ledger.observe(block, map.generation(block), 0)?;
        }
    }
    let mut old: VecDeque<(BlockId, u64)> = log.blocks.into_iter().collect();
    old.make_contiguous().sort_unstable_by_key(|&(_, flush)| flush);
    let mut ftl = Ftl {
        config,
        port: Port::new(device),
        ledger,
        map,
        blocks,
        journal: if config.journaled { Journal::new(next, epoch, old) } else { Journal::off() },
        collector: PageCollector::default(),
        lanes: Lanes::default(),
        tasks: Slab::default(),
        reads: Slab::default(),
        programs: Programs::default(),
        failed_pieces: VecDeque::new(),
        failures: 0,
        failed_blocks: 0,
        syncs: VecDeque::new(),
        syncing: 0,
        erases: Vec::new(),
        growing: false,
        done: Vec::new(),
        completions: Vec::new(),
        failed: false,
        host_pages: 0,
        errors: 0,
        misuses: 0,
        monitor: FtlMonitor::default(),
    };
    ftl.lanes.spread_over(shape::lanes(geometry.blocks));
    if config.journaled {
        ftl.journal.want_whole();
    }
    let mut nothing = Vec::new();
    while !ftl.journal.is_idle() {
        ftl.poll(&mut nothing);
        if ftl.failed {
            return Err(Ftl::failure().into());
        }
        if !ftl.journal.is_idle() {
            ftl.wait(Duration::from_millis(10));
        }
    }
    debug_assert!(nothing.is_empty(), "nobody has asked for anything");
    Ok(ftl)
}

/// Refuses a map that names what the device does not have.
fn check(map: &Map, geometry: Geometry) -> Result<(), StoreError> {
    let pages = geometry.blocks * geometry.pages_per_block;
    let blocks = || (0..map.blocks()).map(BlockId);
    let mut places = blocks().flat_map(|block| map.pages_of(block)).map(PageId);
    if let Some(place) = places.find_map(|page| map.place(page).filter(|place| place.0 >= pages)) {
        return Err(corrupt(place, "the map names what is not there"));
    }
    if blocks().any(|block| map.generation(block) < Generation::FIRST) {
        return Err(corrupt(PageId(0), "the map has a block that never was"));
    }
    Ok(())
}

fn corrupt(page: PageId, reason: &'static str) -> StoreError {
    StoreError::Corrupt { page: page.0, reason }
}

/// Reads pages. One that cannot be read, in so many tries, is left out: that it is missing is noticed
/// where it matters.
fn read_pages(
    device: &mut dyn FlashDevice,
    mut jobs: VecDeque<PageRange>,
    mut take: impl FnMut(PageId, &[u8]),
) -> Result<(), StoreError> {
    for _ in 0..READ_TRIES {
        let mut failed = VecDeque::new();
        read_all(device, jobs, DEPTH, |(first, pages), result, bytes| {
            let places = (first.0..first.0 + pages).map(PageId);
            match result {
                Ok(()) => places
                    .zip(bytes.chunks_exact(PAGE_BYTES))
                    .for_each(|(place, bytes)| take(place, bytes)),
                Err(_) => failed.extend(places.map(|place| (place, 1))),
            }
            Ok(())
        })?;
        if failed.is_empty() {
            break;
        }
        jobs = failed;
    }
    Ok(())
}

/// Finds the pages of the journal.
fn read_log(
    device: &mut dyn FlashDevice,
    geometry: Geometry,
    logical: u32,
) -> Result<Log, StoreError> {
    let generations: Vec<Generation> =
        (0..geometry.blocks).map(|block| device.generation(BlockId(block))).collect();
    let generation = |page: PageId| generations[geometry.block_of(page).0 as usize];
    let jobs = (0..geometry.blocks)
        .map(BlockId)
        .filter(|&block| device.programmed(block) != Some(0))
        .map(|block| (geometry.page(block, 0), 1))
        .collect();
    let (mut of_journal, mut others) = (Vec::new(), Vec::new());
    read_pages(device, jobs, |page, bytes| match Header::read(bytes, page, generation(page)) {
        Some(header) => of_journal.push((page, header.flush)),
        None if bytes.iter().any(|&byte| byte != 0) => others.push(page),
        None => {}
    })?;
    // A crash may have torn the first flush of all.
    let torn = journal::map_pages(logical, geometry.pages_per_block)
        .div_ceil(geometry.pages_per_block)
        + 1;
    if of_journal.is_empty()
        && let Some(&page) = others.iter().find(|page| geometry.block_of(**page).0 >= torn)
    {
        return Err(corrupt(page, "no journal of a translation layer says what it is"));
    }
    let jobs = of_journal
        .iter()
        .flat_map(|&(first, _)| {
            (0..geometry.pages_per_block).step_by(READ_PAGES as usize).map(move |index| {
                (PageId(first.0 + index), READ_PAGES.min(geometry.pages_per_block - index))
            })
        })
        .collect();
    let mut log = Log { pages: BTreeMap::new(), blocks: BTreeMap::new() };
    read_pages(device, jobs, |place, bytes| {
        if let Some(header) = Header::read(bytes, place, generation(place)) {
            let block = geometry.block_of(place);
            let found = JournalPage { header, block, bytes: bytes.to_vec() };
            log.pages.insert((header.flush, header.epoch, header.index), found);
        }
    })?;
    for (first, flush) in of_journal {
        log.blocks.insert(geometry.block_of(first), flush);
    }
    Ok(log)
}

impl Log {
    /// The flushes that are whole, each by its epoch.
    fn whole(&self) -> BTreeMap<u64, u32> {
        let mut counts: BTreeMap<(u64, u32), (u32, u32)> = BTreeMap::new();
        for (&(flush, epoch, _), found) in &self.pages {
            let count = counts.entry((flush, epoch)).or_default();
            *count = (count.0 + 1, found.header.pages);
        }
        // Of two of one number the later opening counts: the other one was torn.
        let whole = counts.into_iter().filter(|&(_, (found, pages))| found == pages);
        whole.map(|((flush, epoch), _)| (flush, epoch)).collect()
    }

    /// Makes the map what the log says. Gives the number of the next flush, and the next epoch.
    fn replay(&self, map: &mut Map, geometry: Geometry) -> Result<(u64, u32), StoreError> {
        let whole = self.whole();
        let epoch = self.pages.keys().map(|&(_, epoch, _)| epoch).max().unwrap_or(0);
        let Some((&last, _)) = whole.last_key_value() else { return Ok((1, epoch + 1)) };
        let pages_of = |flush: u64, epoch: u32| {
            self.pages.range((flush, epoch, 0)..=(flush, epoch, u32::MAX)).map(|(_, found)| found)
        };
        // The last round that ended, and where it began.
        let (mut ended, mut since) = (false, 1);
        for (&flush, &epoch) in whole.iter().rev() {
            ended |= pages_of(flush, epoch).any(|found| found.header.ends_round());
            if ended && pages_of(flush, epoch).any(|found| found.header.begins_round()) {
                since = flush;
                break;
            }
        }
        let device_pages = geometry.blocks * geometry.pages_per_block;
        for flush in since..=last {
            let missing = || corrupt(PageId(0), "the journal of the translation layer has a gap");
            let epoch = *whole.get(&flush).ok_or_else(missing)?;
            for found in pages_of(flush, epoch) {
                let page = geometry.page(found.block, 0);
                found
                    .header
                    .apply(&found.bytes, map, device_pages)
                    .ok_or_else(|| corrupt(page, "the journal names what is not there"))?;
            }
        }
        Ok((last + 1, epoch + 1))
    }
}
