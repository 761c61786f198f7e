//! The collector: one for flash space and for version retention (SEMEL §3.1 "Garbage collection").
//!
//! ```text
//!   choose victim ─► read it, 512 KiB at a time ─► per record: dead? │ survivor ─► cold stream, index moved
//!        (cost-benefit)                                              │ large value ─► staging
//!                  ─► wait until survivors are durable and readers are gone ─► erase ─► free
//! ```
//!
//! Paced by consumption: each pump moves a few pages for every page that puts have used, more when
//! free blocks run short, and never more than [`MAX_PAGES_PER_PUMP`]. Before it has to work hard
//! the device grows. The scarcer free blocks are, the more a block may be alive that is collected,
//! so that a put finds room as long as there is any to be won; where that takes longer than puts
//! come, they wait.
//!
//! When no block is worth collecting, none will be when the watermark has passed what is superseded
//! already, and no free one is left for puts, the store is *stuck*: really full, until something is
//! deleted and the watermark passes it. What a fence hides counts as dead from the fence on,
//! although blocks hear of it only when the watermark has passed it. So it is when collection goes
//! in circles: what packs badly (parts of large values, say) looks as if it could be packed better,
//! for ever.
//!
//! A tombstone goes only when its key has no older record on flash at all and the caller has
//! promised that none will come (the replay floor). A block with damaged pages is emptied of what can be
//! saved and then left alone.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use timestone_flash::{AlignedBuffer, BlockId, FlashError, FlashOp, PAGE_BYTES, PageId};
use timestone_types::{HashSeed, KeyRef, KeyspaceId, Timestamp, Version};

use super::Mftl;
use super::index::{Assessment, KeyId, Location, PrefetchStep};
use super::reads::{For, Waiter, head_is_void};
use crate::kit::blocks::{BlockState, Search};
use crate::kit::port::Purpose;
use crate::kit::writer::{StreamId, Writer};
use crate::layout::{self, LargeHead, PageKind, Record, RecordKind};
use crate::limits::{self, GROUP_PAGES, MAX_VICTIMS};

/// Pages that one pump looks at, at most: some 300 µs of work.
const MAX_PAGES_PER_PUMP: u32 = 64;
/// Large values of one victim that are moved at once.
const MAX_RESTAGING: u32 = 4;
/// Victims that are emptied at once when space is short.
const URGENT_VICTIMS: usize = 4;
/// While less than half of the capacity is in use, only blocks with less than this many thousandths
/// alive are collected: room that nobody asked for is cheaper than moving records.
const NEARLY_DEAD: u32 = 100;
/// While the device can grow, only blocks with less than this many thousandths alive are collected.
const EASY: u32 = 500;
/// Without growth, and with no room for puts, blocks up to this live share are collected.
const HARD: u32 = 970;
/// So many victims must have won something together, or collection counts as futile.
const TRIAL_VICTIMS: u32 = 8;
/// Thousandths of the erased victims' pages that must be won.
const LEAST_GAIN: u64 = 10;
/// How far the watermark moves before futile collection tries one more victim: something may have
/// died.
const FUTILE_PAUSE: Duration = Duration::from_secs(1);

/// A block on its way to be erased.
struct Victim {
    block: BlockId,
    next_read: u32,
    reading: bool,
    /// Pages that were read and not looked at yet: first index, count, bytes.
    chunk: Option<(u32, u32, AlignedBuffer)>,
    page: u32,
    record: usize,
    dead: Vec<(KeyspaceId, u32, KeyId)>,
    large: VecDeque<(KeyspaceId, KeyId, Version)>,
    restaging: u32,
    damaged: bool,
    /// Ordinals that must be durable, once everything is moved.
    barrier: Option<(u64, u64)>,
    erasing: bool,
}

/// The collector of one store.
#[derive(Default)]
pub(super) struct Collector {
    victims: Vec<Victim>,
    /// Bytes put since the last pump.
    pub(super) consumed: u64,
    /// Nothing is worth collecting.
    pub(super) stuck: bool,
    growth: GrowthPause,
    /// Free blocks that a put asked for in vain since the last pump; 0 when none did. Large values
    /// need more than the low water.
    pub(super) asked: u32,
    /// What was asked for last in vain.
    short_of: u32,
    credit: u64,
    /// What the last search looked for, if it found nothing; and what is to be expected.
    fruitless: Option<(Sought, Search)>,
    /// Pages that were begun for large values that moved.
    pub(super) moved_pages: u64,
    /// Victims erased since the trial began, and the pages that survivors took until then.
    tried: u32,
    taken_before: u64,
    /// The last trial won nothing.
    futile: Option<Futile>,
}

/// When and for what a victim was searched: a search that repeats this finds the same.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sought {
    clock: u64,
    watermark: Timestamp,
    limit: u32,
}

/// Collection goes in circles.
#[derive(Clone, Copy)]
struct Futile {
    /// Another victim is tried when the watermark is here.
    until: Timestamp,
    /// Until then something dies of which that victim may win.
    hope: bool,
}

/// How scarce free blocks are.
#[derive(Clone, Copy)]
struct Scarcity {
    /// Puts are being refused for want of room.
    short: bool,
    /// Thousandths of the way from the low water down to the floor.
    depth: u32,
}

/// A device that could not grow is asked again after a while: a full disk may have room by then.
#[derive(Clone, Default)]
struct GrowthPause {
    until: Timestamp,
    last: Duration,
    /// Why it could not.
    cause: Option<Arc<str>>,
}

impl Collector {
    /// The device could not grow at `now`; how long it is left alone, and whether that is news.
    pub(super) fn growth_failed(&mut self, now: Timestamp, cause: String) -> (Duration, bool) {
        let is_news = self.growth.cause.is_none();
        let pause = (self.growth.last * 2).clamp(limits::GROWTH_RETRY, limits::MAX_GROWTH_RETRY);
        self.growth = GrowthPause {
            until: now.saturating_add(pause),
            last: pause,
            cause: Some(cause.into()),
        };
        (pause, is_news)
    }

    /// Why the device could not grow when it was asked last; `None` when it could, or was not
    /// asked.
    pub(super) fn growth_refusal(&self) -> Option<&Arc<str>> {
        self.growth.cause.as_ref()
    }

    /// Records died without a write or a move of the watermark: what was looked for in vain may be
    /// found.
    pub(super) fn much_died(&mut self) {
        (self.fruitless, self.futile) = (None, None);
    }

    /// The device has grown.
    pub(super) fn growth_done(&mut self) {
        self.growth = GrowthPause::default();
        self.stuck = false;
    }

    /// Whether the next pump can do something.
    pub(super) fn has_work(&self) -> bool {
        self.victims.iter().any(|victim| victim.chunk.is_some())
    }

    /// Whether some victim waits for its survivors to become durable.
    pub(super) fn waits(&self, writer: &Writer) -> bool {
        self.victims.iter().any(|victim| {
            victim.barrier.is_some_and(|(cold, large)| {
                !writer.is_durable(StreamId::Cold, cold)
                    || !writer.is_durable(StreamId::Large, large)
            })
        })
    }

    /// The blocks that are being emptied.
    pub(super) fn victims(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.victims.iter().map(|victim| victim.block)
    }

    /// A block has been erased; returns which dead counts of a victim's keys go down by one.
    pub(super) fn erased(&mut self, block: BlockId) -> Vec<(KeyspaceId, u32, KeyId)> {
        self.fruitless = None;
        match self.victims.iter().position(|victim| victim.block == block) {
            Some(at) => {
                self.tried += 1;
                self.victims.remove(at).dead
            }
            // A free block that a crash left in doubt: collection has won nothing by it.
            None => Vec::new(),
        }
    }
}

/// A large value of a victim has arrived elsewhere, or needs not.
pub(super) fn restaged(collector: &mut Collector, block: BlockId) {
    if let Some(victim) = collector.victims.iter_mut().find(|victim| victim.block == block) {
        victim.restaging -= 1;
    }
}

/// A large value that left a victim came too late: its head has moved meanwhile, by itself or with
/// the value. Looks again whether parts that somebody may read are still in the victim.
pub(super) fn restage_again(
    collector: &mut Collector,
    block: BlockId,
    value: (KeyspaceId, KeyId, Version),
) {
    if let Some(victim) = collector.victims.iter_mut().find(|victim| victim.block == block) {
        victim.restaging -= 1;
        if !victim.large.contains(&value) {
            victim.large.push_back(value);
        }
    }
}

/// A large value of a victim could not be read.
pub(super) fn restage_failed(collector: &mut Collector, block: BlockId) {
    if let Some(victim) = collector.victims.iter_mut().find(|victim| victim.block == block) {
        victim.damaged = true;
        victim.restaging -= 1;
    }
}

impl Mftl {
    /// Grows, chooses, moves, erases: a little of each.
    pub(super) fn pump_collector(&mut self) {
        let consumed = core::mem::take(&mut self.collector.consumed);
        let asked = core::mem::take(&mut self.collector.asked);
        let (free, low, reserve) =
            (self.blocks.free_count(), self.blocks.low_water(), self.blocks.reserve());
        // A damaged victim is not going to be free.
        let coming = self
            .collector
            .victims
            .iter()
            .filter(|victim| victim.barrier.is_some() && !victim.damaged)
            .count();
        let ahead = free + coming as u32;
        let floor = self.blocks.floor();
        let scarcity = Scarcity {
            short: free <= reserve || free < asked,
            depth: (low.saturating_sub(ahead) * 1000 / (low - floor)).min(1000),
        };
        if asked > 0 {
            self.collector.short_of = asked;
        }
        self.judge_collection(free > reserve && free >= self.collector.short_of);
        if ahead < low.max(asked) {
            self.make_room(scarcity);
        }
        let mut pages = self.pages_to_look_at(consumed, scarcity);
        for at in 0..self.collector.victims.len() {
            self.advance(at, &mut pages);
        }
        let mut at = 0;
        while at < self.collector.victims.len() {
            let victim = &self.collector.victims[at];
            if victim.damaged
                && victim.barrier.is_some()
                && !victim.reading
                && victim.restaging == 0
            {
                // What could be saved has moved. The rest stays for whoever wants to look.
                let block = victim.block;
                tracing::warn!(block = block.0, "a block with damaged pages is set aside");
                self.blocks.get_mut(block).state = BlockState::Quarantined;
                self.collector.victims.remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// How many pages of victims this pump looks at.
    fn pages_to_look_at(&mut self, consumed: u64, scarcity: Scarcity) -> u32 {
        // Moving a page's worth wins less than a page: four pages for each one used keep up until
        // blocks are four fifths alive; scarcer blocks raise the pace.
        let pace = if scarcity.depth < 500 { 4 } else { 8 };
        self.collector.credit =
            (self.collector.credit + consumed * pace).min(u64::from(MAX_PAGES_PER_PUMP) << 12);
        let mut pages = (self.collector.credit / PAGE_BYTES as u64) as u32;
        if scarcity.short {
            pages = MAX_PAGES_PER_PUMP;
        } else if consumed == 0 {
            pages = pages.max(8);
        }
        self.collector.credit -= (u64::from(pages) * PAGE_BYTES as u64).min(self.collector.credit);
        pages
    }

    /// Whether collection wins anything, or goes in circles; `enough` when there are as many free
    /// blocks as were asked for last.
    fn judge_collection(&mut self, enough: bool) {
        let taken = self.writer.ordinal(StreamId::Cold) + self.collector.moved_pages;
        let collector = &mut self.collector;
        if enough {
            (collector.stuck, collector.futile) = (false, None);
            (collector.tried, collector.taken_before) = (0, taken);
        }
        let trial = if collector.futile.is_some() { 1 } else { TRIAL_VICTIMS };
        if collector.tried < trial {
            return;
        }
        let erased = u64::from(collector.tried) * u64::from(self.blocks.geometry.pages_per_block);
        let won = erased.saturating_sub(taken - collector.taken_before);
        if won * 1000 >= erased * LEAST_GAIN {
            (collector.stuck, collector.futile) = (false, None);
        } else {
            let pause = self.collection_watermark.saturating_add(FUTILE_PAUSE);
            let better = self.blocks.worth_waiting_for(self.collection_watermark, HARD);
            let until = better.map_or(pause, |at| at.min(pause));
            collector.futile = Some(Futile { until, hope: better.is_some() });
        }
        (collector.tried, collector.taken_before) = (0, taken);
    }

    /// Chooses a victim, or grows.
    fn make_room(&mut self, scarcity: Scarcity) {
        let room = self.blocks.geometry.max_blocks - self.blocks.count();
        let can_grow = room > 0 && self.writer.now >= self.collector.growth.until;
        let futile =
            self.collector.futile.filter(|futile| self.collection_watermark < futile.until);
        match futile.filter(|_| scarcity.short && !can_grow) {
            Some(futile) => self.collector.stuck = !futile.hope && !self.spaces.are_emptying(),
            None => self.search_victim(scarcity, can_grow),
        }
        // Puts that are being refused wait for no victim.
        let emptying = self.collector.victims.iter().any(|victim| victim.barrier.is_none());
        if can_grow && !self.growing && (scarcity.short || !emptying) {
            let blocks = (self.blocks.count() / 8).clamp(16, 1024).min(room);
            self.growing = true;
            self.port.write(FlashOp::Grow { token: Purpose::Grow.token(0), blocks });
        }
    }

    /// Begins to empty one more block, if one is worth it. If none is, and puts need room, says
    /// whether there will ever be one.
    fn search_victim(&mut self, scarcity: Scarcity, can_grow: bool) {
        let Scarcity { short, depth } = scarcity;
        let roomy = can_grow && self.blocks.count() < self.blocks.geometry.max_blocks / 2;
        let limit = match (roomy, can_grow) {
            (true, _) => NEARLY_DEAD,
            (false, true) => EASY,
            (false, false) if short => HARD,
            (false, false) => EASY + (HARD - EASY) * depth / 1000,
        };
        let wanted = match depth {
            _ if short => URGENT_VICTIMS,
            500.. => 2,
            _ => 1,
        };
        // Those that are empty only wait for the device. Where space is short, victims that need
        // room for large values wait their turn, too; others may need none.
        let emptied = self
            .collector
            .victims
            .iter()
            .filter(|victim| victim.barrier.is_none() && victim.large.is_empty());
        let emptied = emptied.count();
        // Victims take room before they give any: what they take must not be what puts need now.
        let crowded = !short && self.blocks.free_count() <= self.blocks.floor() + emptied as u32;
        let full = emptied >= wanted || self.collector.victims.len() >= MAX_VICTIMS;
        if full || (crowded && !self.collector.victims.is_empty()) {
            return;
        }
        // On a large device a search takes a while, and one page more in use makes no difference.
        let step = u64::from(self.blocks.count() / 4).max(8);
        let sought =
            Sought { clock: self.blocks.clock / step, watermark: self.collection_watermark, limit };
        let outcome = match self.collector.fruitless {
            Some((last, outcome)) if last == sought => outcome,
            _ => self.blocks.choose_victim(self.collection_watermark, limit, short),
        };
        self.collector.fruitless = Some((sought, outcome));
        match outcome {
            Search::Found(block) => {
                self.collector.fruitless = None;
                self.begin_victim(block);
                // A trial's outcome is waited for.
                self.collector.stuck &= self.collector.futile.is_some();
            }
            Search::Later if short => self.collector.stuck = false,
            Search::Nothing if short && !can_grow && self.collector.victims.is_empty() => {
                self.collector.stuck = !self.spaces.are_emptying();
            }
            Search::Later | Search::Nothing => {}
        }
    }

    fn begin_victim(&mut self, block: BlockId) {
        self.blocks.get_mut(block).state = BlockState::Victim;
        self.collector.victims.push(Victim {
            block,
            next_read: 0,
            reading: false,
            chunk: None,
            page: 0,
            record: 0,
            dead: Vec::new(),
            large: VecDeque::new(),
            restaging: 0,
            damaged: false,
            barrier: None,
            erasing: false,
        });
    }

    /// Does what can be done for one victim now.
    fn advance(&mut self, at: usize, budget: &mut u32) {
        let victim = &mut self.collector.victims[at];
        let block = victim.block;
        let pages = self.blocks.get(block).pages;
        if let Some((first, count, bytes)) = victim.chunk.take() {
            let rest = self.collect_chunk(at, first, count, &bytes, budget);
            if rest {
                self.collector.victims[at].chunk = Some((first, count, bytes));
                return;
            }
            self.port.give(bytes);
        }
        let victim = &mut self.collector.victims[at];
        if !victim.reading && victim.chunk.is_none() && victim.next_read < pages {
            let count = GROUP_PAGES.min(pages - victim.next_read);
            let first = victim.next_read;
            victim.next_read += count;
            victim.reading = true;
            self.blocks.get_mut(block).readers += 1;
            let page = self.blocks.geometry.page(block, first);
            let buffer = self.port.buffer(count);
            let token = Purpose::VictimRead.token(u64::from(block.0) << 16 | u64::from(first));
            self.port.read(FlashOp::Read { token, page, pages: count, buffer });
            return;
        }
        if victim.reading || victim.next_read < pages {
            return;
        }
        self.restage_some(at);
        let victim = &mut self.collector.victims[at];
        if victim.restaging > 0 || !victim.large.is_empty() {
            return;
        }
        let Some((cold, large)) = victim.barrier else {
            victim.barrier =
                Some((self.writer.ordinal(StreamId::Cold), self.writer.ordinal(StreamId::Large)));
            if self.blocks.free_count() < self.blocks.low_water() {
                self.writer.flush(StreamId::Cold, &self.blocks, &mut self.port);
                self.writer.flush(StreamId::Large, &self.blocks, &mut self.port);
            }
            return;
        };
        let durable = self.writer.is_durable(StreamId::Cold, cold)
            && self.writer.is_durable(StreamId::Large, large);
        let victim = &mut self.collector.victims[at];
        if durable && !victim.erasing && !victim.damaged && self.blocks.get(block).readers == 0 {
            victim.erasing = true;
            self.stats.collected_blocks += 1;
            self.erase(block);
        }
    }

    /// Some pages of a victim have been read.
    pub(super) fn victim_read(
        &mut self,
        number: u64,
        result: Result<(), FlashError>,
        bytes: AlignedBuffer,
    ) {
        let (block, first) = (BlockId((number >> 16) as u32), (number & 0xffff) as u32);
        self.blocks.get_mut(block).readers -= 1;
        let count = GROUP_PAGES.min(self.blocks.get(block).pages - first);
        let Some(victim) = self.collector.victims.iter_mut().find(|victim| victim.block == block)
        else {
            return;
        };
        victim.reading = false;
        victim.page = 0;
        victim.record = 0;
        if result.is_err() {
            victim.damaged = true;
            self.stats.corrupt += 1;
            self.port.give(bytes);
            return;
        }
        victim.chunk = Some((first, count, bytes));
    }

    /// Looks at the pages of a chunk. True when the budget (or the space for survivors) ended
    /// first.
    fn collect_chunk(
        &mut self,
        at: usize,
        first: u32,
        count: u32,
        bytes: &[u8],
        budget: &mut u32,
    ) -> bool {
        let block = self.collector.victims[at].block;
        let generation = self.blocks.get(block).generation;
        while self.collector.victims[at].page < count {
            if *budget == 0 || self.writer.is_behind() {
                return true;
            }
            let index = self.collector.victims[at].page;
            let page = self.blocks.geometry.page(block, first + index);
            let bytes = &bytes[index as usize * PAGE_BYTES..(index as usize + 1) * PAGE_BYTES];
            match layout::verify(bytes, page, generation, self.config.store_id) {
                Ok(header) if matches!(header.kind, PageKind::Records | PageKind::LargeHeads) => {
                    if !self.collect_records(at, page, bytes) {
                        return true;
                    }
                }
                Ok(header) if header.kind == PageKind::LargePart => self.collect_part(at, bytes),
                Ok(_) => {}
                Err(_) if self.blocks.is_hole(page) => {}
                Err(_) => {
                    self.stats.corrupt += 1;
                    self.collector.victims[at].damaged = true;
                }
            }
            *budget -= 1;
            let victim = &mut self.collector.victims[at];
            victim.page += 1;
            victim.record = 0;
        }
        false
    }

    /// Decides about every record of a page. False when there is no space for survivors.
    fn collect_records(&mut self, at: usize, page: PageId, bytes: &[u8]) -> bool {
        let done = self.collector.victims[at].record;
        self.prefetch_entries(bytes, done);
        for raw in layout::records(bytes).skip(done) {
            match raw.and_then(Record::read_intact) {
                Some(record) => {
                    if !self.collect_record(at, page, &record) {
                        return false;
                    }
                }
                None => {
                    self.stats.corrupt += 1;
                    self.collector.victims[at].damaged = true;
                }
            }
            self.collector.victims[at].record += 1;
        }
        true
    }

    /// Has the index entries of a page's records fetched: collection looks at keys that nobody has
    /// asked for lately.
    fn prefetch_entries(&self, bytes: &[u8], done: usize) {
        for step in [PrefetchStep::Search, PrefetchStep::Entry, PrefetchStep::Older] {
            for record in layout::records(bytes).skip(done).flatten().filter_map(Record::read) {
                if let Some(space) = self.spaces.get(record.keyspace) {
                    space.index.prefetch(record.hash, step);
                }
            }
        }
    }

    fn collect_record(&mut self, at: usize, page: PageId, record: &Record<'_>) -> bool {
        let (watermark, replay_floor) = (self.collection_watermark, self.replay_floor);
        if record.kind == RecordKind::Fence {
            return self.move_fence(page, record);
        }
        let head = if record.kind.is_large() { LargeHead::read(record.value) } else { None };
        let Some(space) = self.spaces.find(record.keyspace) else { return true };
        let id = id_of(self.seed, record, head.as_ref());
        if head.as_ref().is_some_and(|head| head_is_void(head, &self.blocks)) {
            self.spaces.list[space].index.forget(id, record.version, page.0);
            return true;
        }
        let apart = head.as_ref().is_some_and(|head| !self.has_part_in(head, page));
        let space = &mut self.spaces.list[space];
        if record.version <= space.fence_at(watermark) {
            space.index.forget(id, record.version, page.0);
            return true;
        }
        let expired = record.expires_at.has_passed(watermark);
        let droppable =
            (record.kind.is_tombstone() || expired) && record.version.timestamp <= replay_floor;
        match space.index.assess(id, record.version, page.0, watermark, droppable) {
            Assessment::Keep if record.kind.is_large() && (!expired || record.key.is_empty()) => {
                if apart {
                    return self.move_record(page, record, id, false);
                }
                self.collector.victims[at].large.push_back((record.keyspace, id, record.version));
                true
            }
            Assessment::Keep => {
                let moved = self.move_record(page, record, id, expired);
                if moved {
                    self.parts_died(head.as_ref());
                }
                moved
            }
            Assessment::Dead => {
                let epoch = space.epoch;
                self.collector.victims[at].dead.push((record.keyspace, epoch, id));
                true
            }
            Assessment::Untracked => true,
            Assessment::DroppedTombstone => {
                self.stats.dropped_tombstones += 1;
                self.parts_died(head.as_ref());
                true
            }
        }
    }

    /// Whether a large value has a part in the block of `page`.
    fn has_part_in(&self, head: &LargeHead<'_>, page: PageId) -> bool {
        head.extents.iter().any(|extent| self.blocks.of(extent.page) == self.blocks.of(page))
    }

    /// The parts of a large value that has expired are dead. (Where a younger version came, they
    /// were told then.)
    fn parts_died(&mut self, head: Option<&LargeHead<'_>>) {
        for extent in head.iter().flat_map(|head| &head.extents) {
            let block = self.blocks.of(extent.page);
            self.blocks.died(block, extent.pages * PAGE_BYTES as u32);
            self.collector.fruitless = None;
        }
    }

    /// Moves a survivor to the cold stream. What has expired for every reader goes on as a
    /// tombstone.
    fn move_record(&mut self, page: PageId, record: &Record<'_>, id: KeyId, expired: bool) -> bool {
        let mut copy = *record;
        if expired {
            copy.kind = RecordKind::Tombstone;
            copy.value = &[];
        }
        let stream = if copy.kind.is_large() { StreamId::Large } else { StreamId::Cold };
        let Some(to) =
            self.writer.append(stream, &copy, id.check, 0, &mut self.blocks, &mut self.port)
        else {
            return false;
        };
        let location = Location::new(to.0, copy.kind.is_tombstone(), !copy.expires_at.is_never());
        if let Some(space) = self.spaces.get_mut(record.keyspace) {
            let moved = space.index.moved(id, record.version, page.0, location);
            debug_assert!(moved, "a survivor is in the index");
            let latest = space.index.latest(id).map_or(Version::ZERO, |(version, _)| version);
            if location.tombstone() || latest != record.version {
                self.blocks.superseded(to, latest.timestamp, self.collection_watermark);
            }
        }
        self.stats.moved_records += 1;
        true
    }

    fn move_fence(&mut self, page: PageId, record: &Record<'_>) -> bool {
        let known = self.spaces.get(record.keyspace).is_some_and(|space| {
            space.fences.iter().any(|fence| fence.version == record.version && fence.page == page.0)
        });
        if !known {
            return true;
        }
        let Some(to) =
            self.writer.append(StreamId::Cold, record, 0, 0, &mut self.blocks, &mut self.port)
        else {
            return false;
        };
        if let Some(space) = self.spaces.get_mut(record.keyspace) {
            for fence in space.fences.iter_mut().filter(|fence| fence.version == record.version) {
                fence.page = to.0;
            }
        }
        true
    }

    /// A part of a large value: if the value lives, and its head will not be met in this block, it
    /// must be moved.
    fn collect_part(&mut self, at: usize, bytes: &[u8]) {
        let (part, _) = layout::part_header(bytes);
        let id = KeyId::new(part.hash, part.check);
        let victim = &self.collector.victims[at];
        let value = (part.keyspace, id, part.version);
        if victim.large.contains(&value) {
            return;
        }
        let lives = self.spaces.get(part.keyspace).is_some_and(|space| {
            part.version > space.fence_at(self.collection_watermark)
                && space.index.needed(id, part.version, self.collection_watermark).is_some_and(
                    |place| {
                        let page = PageId(place.page());
                        page.0 < Location::MAX_PAGES && self.blocks.of(page) != victim.block
                    },
                )
        });
        if lives {
            self.collector.victims[at].large.push_back(value);
        }
    }

    /// Begins to read large values that must leave a victim.
    fn restage_some(&mut self, at: usize) {
        let short = self.blocks.free_count() <= self.blocks.reserve();
        loop {
            let running: u32 = self.collector.victims.iter().map(|victim| victim.restaging).sum();
            if running >= if short { 1 } else { MAX_RESTAGING } || self.staging.is_full() {
                return;
            }
            // Where space is short, one victim at a time: its values need room before it gives any
            // back.
            if short
                && self.collector.victims[..at]
                    .iter()
                    .any(|victim| victim.next_read > 0 && !victim.large.is_empty())
            {
                return;
            }
            let victim = &mut self.collector.victims[at];
            let block = victim.block;
            let Some((keyspace, id, version)) = victim.large.pop_front() else { return };
            let watermark = self.collection_watermark;
            let place = self
                .spaces
                .get(keyspace)
                .and_then(|space| space.index.needed(id, version, watermark));
            if let Some(place) = place.filter(|place| place.page() < Location::MAX_PAGES) {
                self.collector.victims[at].restaging += 1;
                let page = PageId(place.page());
                self.wait_for_page(Waiter::keyless(
                    For::Restage(block),
                    keyspace,
                    id,
                    version,
                    page,
                ));
            }
        }
    }
}

/// What the index knows a record's key by.
pub(super) fn id_of(seed: HashSeed, record: &Record<'_>, head: Option<&LargeHead<'_>>) -> KeyId {
    match head {
        Some(head) => KeyId::new(record.hash, head.check),
        None => KeyId::of(
            seed,
            KeyRef { keyspace: record.keyspace, bytes: record.key, hash: record.hash },
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_victims_count_as_tried() {
        let mut collector = Collector::default();
        collector.erased(BlockId(3));
        assert_eq!(collector.tried, 0);
    }
}
