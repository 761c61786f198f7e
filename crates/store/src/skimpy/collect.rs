//! Collection: the block at the log's tail is emptied, bucket by bucket (SkimpyFTL §3.4).
//!
//! ```text
//!   free blocks run short ─► tail of the log ─► its pages ─► buckets that have a record there
//!        ─► each: gather its chain ─► keep what the watermark keeps ─► append, all pointers filled in
//!        ─► all of that durable ─► erase
//! ```
//!
//! A bucket whose chain has no record in the block is left as it is: what lies there is void.
//! Everything of a bucket is appended in one step, so that nobody has to wait: what is put while its
//! chain is gathered is gathered before that step. The first record says that a chain begins, the
//! last one that it is complete; until then a scan after a crash goes by the old chain, which is
//! whole, as no block is erased before the new one is durable.
//!
//! Blocks of large values are emptied when little of them is alive: each value whose parts lie
//! there is staged again, its head linked in front of its chain once more, and the block is erased when
//! that is durable.
//!
//! When a whole round of the log wins nothing, the store is *stuck*: really full, until the
//! watermark passes something.
//!
//! Invariants: a bucket is rewritten by one gathering at a time; a block is erased only when nothing
//! reads in it and what replaces its records is durable.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use timestone_flash::{AlignedBuffer, BlockId, PAGE_BYTES, PageId};
use timestone_types::{Timestamp, is_planted};

use super::chain::{Gathering, is_void};
use super::contents::{FrugalContents, fence_record};
use super::keep::{self, KeepVerdict};
use super::reads::{Owner, PartsFor, ServingWalks};
use super::spaces::Fence;
use super::translations::{Name, Youngest};
use crate::kit::blocks::BlockState;
use crate::kit::ledger::Held;
use crate::kit::port::Purpose;
use crate::kit::volume::block_bytes;
use crate::kit::writer::StreamId;
use crate::layout::{self, LargeHead, LinkKind, Links, NO_PAGE, PageKind, Record, RecordKind};
use crate::limits::GROUP_PAGES;

/// Buckets that are gathered at once.
const AT_ONCE: usize = 64;
/// Bytes of gathered buckets that wait to be written.
const MOST_WAITING: usize = 4;
/// Large values that leave blocks at once.
const LEAVING_AT_ONCE: usize = 4;

/// A bucket that is being rewritten.
#[derive(Debug, Default)]
struct BucketJob {
    /// What was gathered before something was linked in front.
    whole: Option<Gathering>,
    of_victim: bool,
}

/// Free blocks that puts leave beside the common reserve, at least: one block's buckets may fill
/// several.
const MORE_RESERVE: u32 = 4;

/// What a victim is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Records,
    Large,
}

/// A block that is being emptied.
#[derive(Debug)]
struct TailVictim {
    block: BlockId,
    what: What,
    /// The next page to read.
    next_page: u32,
    reading: bool,
    /// Buckets that have a record there, and are still to be rewritten; of a block of large values:
    /// those of its values.
    buckets: BTreeSet<u32>,
    under_way: usize,
    /// Values that are read or staged.
    leaving: usize,
    /// Something in it, or in a chain that leads there, is damaged: the block is kept.
    damaged: bool,
}

impl TailVictim {
    fn is_empty(&self, pages: u32) -> bool {
        self.next_page >= pages
            && !self.reading
            && self.buckets.is_empty()
            && self.under_way == 0
            && self.leaving == 0
    }
}

/// Whether a round of the log wins anything.
#[derive(Clone, Copy, Debug, Default)]
struct LogRound {
    left: u32,
    /// Bytes of blocks that were emptied, less those that were written for it.
    won: i64,
    later: u64,
    until: Timestamp,
}

/// A round that won nothing.
#[derive(Clone, Copy, Debug)]
struct Futile {
    mark: Timestamp,
    floor: Timestamp,
    youngest: Timestamp,
    until: Timestamp,
    hope: bool,
}

/// The collector of one store.
#[derive(Default)]
pub(super) struct TailCollector {
    victim: Option<TailVictim>,
    large: Option<TailVictim>,
    /// Blocks that are empty when the log's ordinal is durable.
    emptied: Vec<(BlockId, u64)>,
    erasing: Vec<BlockId>,
    /// Buckets that are being rewritten.
    jobs: BTreeMap<u32, BucketJob>,
    /// Gathered, and there was no room yet.
    waiting: VecDeque<Gathering>,
    repairs: VecDeque<u32>,
    round: Option<LogRound>,
    futile: Option<Futile>,
    /// Blocks with damage that were set aside: tombstones stay while there are any.
    aside: u32,
    pub(super) damaged_buckets: BTreeSet<u32>,
}

impl TailCollector {
    /// Of a store with buckets in pieces, and blocks set aside.
    pub(super) fn opened(core: &FrugalContents) -> Self {
        Self { repairs: core.buckets.in_pieces().collect(), ..Self::default() }
    }

    /// Whether the next pump can do something.
    pub(super) fn has_work(&self) -> bool {
        let reads = |victim: &TailVictim| !victim.reading;
        self.victim.as_ref().is_some_and(reads)
            || self.large.as_ref().is_some_and(reads)
            || !self.repairs.is_empty()
    }

    /// Whether something waits to become durable.
    pub(super) fn waits(&self) -> bool {
        !self.emptied.is_empty()
    }

    /// Blocks that are being emptied or erased.
    fn coming(&self) -> u32 {
        (self.emptied.len() + self.erasing.len()) as u32
    }

    /// A block is erased.
    pub(super) fn erased(&mut self, block: BlockId) {
        self.erasing.retain(|&other| other != block);
    }

    /// Pages of a victim have been read.
    pub(super) fn pages_read(
        &mut self,
        number: u64,
        readable: bool,
        bytes: &AlignedBuffer,
        core: &mut FrugalContents,
    ) {
        let block = BlockId((number >> 32) as u32);
        let first = number as u32;
        core.kit.volume.blocks.unpin(block);
        let victim = [&mut self.victim, &mut self.large]
            .into_iter()
            .filter_map(Option::as_mut)
            .find(|victim| victim.block == block);
        let Some(victim) = victim else { return };
        victim.reading = false;
        if !readable {
            victim.damaged = true;
            return;
        }
        let geometry = core.kit.volume.geometry();
        for (offset, page) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
            let id = geometry.page(block, first + offset as u32);
            let header = match core.kit.volume.verify(id, page) {
                Ok(header) => header,
                Err(_) if core.kit.volume.blocks.is_hole(id) => continue,
                Err(_) => {
                    core.kit.volume.corrupt += 1;
                    victim.damaged = true;
                    continue;
                }
            };
            if header.kind == PageKind::LargePart {
                let (part, _) = layout::part_header(page);
                victim.buckets.insert(core.buckets.of(part.hash));
                continue;
            }
            for raw in layout::records(page) {
                match raw.and_then(Record::read_intact) {
                    Some(record) if record.kind == RecordKind::Fence => {
                        move_fence(id, &record, victim, core);
                    }
                    Some(record) => _ = victim.buckets.insert(core.buckets.of(record.hash)),
                    None => {
                        core.kit.volume.corrupt += 1;
                        victim.damaged = true;
                    }
                }
            }
        }
    }

    /// Chooses, gathers, rewrites, erases: a little of each.
    pub(super) fn pump(&mut self, serving: &mut ServingWalks<'_>) {
        let core = &mut *serving.core;
        let mark = core.spaces.marks.collection();
        core.spaces.list.iter_mut().for_each(|space| space.prune_fences(mark));
        keep_back(core);
        let asked = core.kit.room.take_asked();
        let blocks = &core.kit.volume.blocks;
        let (free, low) = (blocks.free_count(), low_water(core));
        let short = free <= blocks.reserve() || free < asked;
        let ahead = free + self.coming();
        if free > blocks.floor() && free >= asked {
            core.kit.room.set_stuck(false);
        }
        if ahead < low.max(asked) && self.may_try(core) {
            self.choose(core);
            self.choose_large(short, core);
        }
        let can_grow = core.kit.room.may_grow(&core.kit.volume) > 0;
        if ahead < low.max(asked) && can_grow && (short || self.victim.is_none()) {
            core.kit.room.grow(&mut core.kit.volume);
        }
        self.read_victims(core);
        self.write_waiting(serving);
        self.gather_more(serving);
        self.finish_victims(serving.core);
        self.erase(serving.core);
    }

    /// Whether collection may win something that it did not win before.
    fn may_try(&mut self, core: &mut FrugalContents) -> bool {
        let Some(futile) = self.futile else { return true };
        let marks = &core.spaces.marks;
        let (mark, floor) = (marks.collection(), marks.replay_floor());
        let has_died = if futile.hope {
            mark >= futile.until
        } else {
            mark > futile.mark && core.spaces.youngest() > futile.mark
        };
        if has_died
            || (floor > futile.floor && futile.floor < mark)
            || core.spaces.youngest() > futile.youngest && mark > futile.youngest
        {
            self.futile = None;
            core.kit.room.set_stuck(false);
            return true;
        }
        if core.kit.room.may_grow(&core.kit.volume) == 0 {
            let hope = futile.hope && mark < futile.until;
            core.kit.room.set_stuck(!hope);
        }
        false
    }

    fn choose(&mut self, core: &mut FrugalContents) {
        if self.victim.is_some() {
            return;
        }
        let round = self
            .round
            .get_or_insert(LogRound { left: core.log.len() as u32 + 1, ..LogRound::default() });
        if round.left == 0 {
            let won = round.won >= block_bytes(core.kit.volume.geometry()) as i64;
            let (later, until) = (round.later, round.until);
            self.round = None;
            if !won {
                let marks = &core.spaces.marks;
                self.futile = Some(Futile {
                    mark: marks.collection(),
                    floor: marks.replay_floor(),
                    youngest: core.spaces.youngest(),
                    until,
                    hope: later >= block_bytes(core.kit.volume.geometry()),
                });
            }
            return;
        }
        let Some(&block) = core.log.front() else { return };
        let entry = core.kit.volume.blocks.get(block);
        if entry.state != BlockState::Sealed || entry.readable < entry.pages {
            return;
        }
        round.left -= 1;
        self.begin(block, What::Records, core);
    }

    /// A block of large values, if half of it is dead; when it is urgent, the one with the most that is
    /// dead.
    fn choose_large(&mut self, short: bool, core: &mut FrugalContents) {
        if self.large.is_some() {
            return;
        }
        let blocks = &core.kit.volume.blocks;
        let dead = (0..blocks.count()).map(BlockId).filter_map(|id| {
            let block = blocks.get(id);
            let is_large = block.stream == StreamId::Large && block.state == BlockState::Sealed;
            (is_large && block.readable == block.pages)
                .then(|| (block.counts()[3], block.counts()[0].max(1), id))
        });
        let Some((dead, written, block)) = dead.max() else { return };
        if dead * 2 >= written || (short && dead > 0) {
            self.begin(block, What::Large, core);
        }
    }

    fn begin(&mut self, block: BlockId, what: What, core: &mut FrugalContents) {
        core.kit.volume.blocks.begin_victim(block);
        let victim = TailVictim {
            block,
            what,
            next_page: 0,
            reading: false,
            buckets: BTreeSet::new(),
            under_way: 0,
            leaving: 0,
            damaged: false,
        };
        match what {
            What::Records => self.victim = Some(victim),
            What::Large => self.large = Some(victim),
        }
    }

    fn read_victims(&mut self, core: &mut FrugalContents) {
        for victim in [&mut self.victim, &mut self.large].into_iter().flatten() {
            let pages = core.kit.volume.blocks.get(victim.block).readable;
            if victim.reading || victim.next_page >= pages {
                continue;
            }
            let count = GROUP_PAGES.min(pages - victim.next_page);
            let number = u64::from(victim.block.0) << 32 | u64::from(victim.next_page);
            let page = core.kit.volume.geometry().page(victim.block, victim.next_page);
            victim.next_page += count;
            victim.reading = true;
            core.kit.volume.read(Purpose::VictimRead, number, page, count);
        }
    }

    fn gather_more(&mut self, serving: &mut ServingWalks<'_>) {
        while self.jobs.len() < AT_ONCE && self.waiting.len() < MOST_WAITING {
            let next = self.victim.as_ref().and_then(|victim| victim.buckets.first().copied());
            let Some(bucket) = next.or_else(|| self.repairs.front().copied()) else { break };
            if self.jobs.contains_key(&bucket) {
                // It is being rewritten for the other reason: after that.
                break;
            }
            match &mut self.victim {
                Some(victim) if next.is_some() => {
                    victim.buckets.pop_first();
                    victim.under_way += 1;
                }
                _ => _ = self.repairs.pop_front(),
            }
            self.jobs.insert(bucket, BucketJob { whole: None, of_victim: next.is_some() });
            let gathering = Gathering::new(bucket, None, &serving.core.buckets);
            serving.gather(Owner::Rewriting, gathering);
        }
        // The values of a block of large ones, one bucket at a time.
        if let Some(victim) = &mut self.large
            && victim.under_way + victim.leaving < LEAVING_AT_ONCE
            && let Some(bucket) = victim.buckets.pop_first()
        {
            victim.under_way += 1;
            let gathering = Gathering::new(bucket, None, &serving.core.buckets);
            serving.gather(Owner::Leaving(victim.block), gathering);
        }
    }

    /// A bucket is gathered: it is rewritten, if nothing was linked in front meanwhile that the device
    /// has to be asked for.
    pub(super) fn gathered(&mut self, mut gathering: Gathering, serving: &mut ServingWalks<'_>) {
        let bucket = gathering.bucket;
        let Some(job) = self.jobs.get_mut(&bucket) else { return };
        if let Some(mut whole) = job.whole.take()
            && gathering.joined
        {
            whole.put_in_front(&gathering);
            whole.began = gathering.began;
            gathering = whole;
        }
        let core = &*serving.core;
        let mut front = Gathering::new(bucket, gathering.newest(), &core.buckets);
        while let Some(page) = front.page(&core.buckets, &core.kit.volume.blocks) {
            let Some(bytes) = core.kit.volume.page_in_group(PageId(page)) else { break };
            if front.look(bytes, true, &core.buckets).is_err() {
                break;
            }
        }
        let is_unchanged =
            gathering.newest().map_or(core.buckets.head(bucket) == NO_PAGE, |newest| {
                core.buckets.head(bucket) == newest.page
            });
        if front.joined {
            gathering.put_in_front(&front);
        } else if !is_unchanged || core.buckets.was_linked_after(bucket, gathering.began) {
            let until = gathering.newest();
            let front = Gathering::new(bucket, until, &core.buckets);
            job.whole = until.map(|_| gathering);
            return serving.gather(Owner::Rewriting, front);
        }
        self.rewrite(gathering, serving);
    }

    /// A bucket cannot be gathered: the blocks that have a part of it stay.
    pub(super) fn damaged(&mut self, owner: Owner, bucket: u32) {
        match owner {
            Owner::Rewriting => {
                self.damaged_buckets.insert(bucket);
                if self.done(bucket)
                    && let Some(victim) = &mut self.victim
                {
                    victim.damaged = true;
                }
            }
            Owner::Leaving(block) => {
                if let Some(victim) = self.large.as_mut().filter(|victim| victim.block == block) {
                    victim.damaged = true;
                    victim.under_way -= 1;
                }
            }
            Owner::Scan(_) => {}
        }
    }

    fn write_waiting(&mut self, serving: &mut ServingWalks<'_>) {
        for _ in 0..self.waiting.len() {
            let Some(gathering) = self.waiting.pop_front() else { break };
            // Something may have been linked in front since.
            self.gathered(gathering, serving);
        }
    }

    /// Rewrites a bucket whose records are all here.
    fn rewrite(&mut self, gathering: Gathering, serving: &mut ServingWalks<'_>) {
        let (core, bucket) = (&mut *serving.core, gathering.bucket);
        let tail = self.victim.as_ref().map(|victim| victim.block);
        let geometry = core.kit.volume.geometry();
        let in_tail = |page: u32| Some(geometry.block_of(PageId(page))) == tail;
        let is_in_tail = gathering.records.iter().any(|one| in_tail(one.place.page));
        let is_whole = core.buckets.older(bucket).is_empty();
        if is_in_tail || !is_whole {
            // Only then nothing older than what was gathered is in a block that is not erased.
            let nothing_behind = is_in_tail && is_whole;
            let may_drop = nothing_behind && self.aside == 0 && self.damaged_buckets.is_empty();
            let verdict = keep::judge(&gathering, tail, may_drop, core);
            let lengths = verdict.kept.iter().map(|&(at, ..)| {
                gathering.record(&gathering.records[at]).bytes() + layout::SLOT_BYTES
            });
            let bytes: usize = lengths.clone().sum();
            let all = gathering.records.iter().map(|one| gathering.record(one).bytes());
            // What wins nothing leaves room for deletes: only they help a store that is full.
            let wins = bytes * 2 <= all.sum();
            if !has_room(
                lengths,
                if wins { 0 } else { 2 + core.kit.volume.blocks.count() / 32 },
                core,
            ) {
                let (later, until) = (verdict.later, verdict.until);
                self.waiting.push_back(gathering);
                return self.cramped(later, until, serving.core);
            }
            append_all(&gathering, &verdict, core);
            if let Some(round) = &mut self.round {
                round.won -= bytes as i64;
                round.later += verdict.later;
                round.until = round.until.max(verdict.until);
            }
            serving.reads.rewritten(bucket);
        }
        self.done(bucket);
    }

    /// A bucket is done with; whether that was for the victim's sake.
    fn done(&mut self, bucket: u32) -> bool {
        let of_victim = self.jobs.remove(&bucket).is_some_and(|job| job.of_victim);
        if let Some(victim) = self.victim.as_mut().filter(|_| of_victim) {
            victim.under_way -= 1;
        }
        of_victim
    }

    /// There is no room to rewrite a bucket: only less that is kept helps.
    fn cramped(&mut self, later: u64, until: Timestamp, core: &mut FrugalContents) {
        let idle = self.emptied.is_empty() && self.erasing.is_empty() && self.large.is_none();
        if idle && core.kit.room.may_grow(&core.kit.volume) == 0 {
            let hope = later > 0 && core.spaces.marks.collection() < until;
            core.kit.room.set_stuck(!hope);
        }
    }

    fn finish_victims(&mut self, core: &mut FrugalContents) {
        let pages_of = |block: BlockId| core.kit.volume.blocks.get(block).readable;
        let is_done = |victim: &TailVictim| victim.is_empty(pages_of(victim.block));
        let records = self.victim.take_if(|victim| is_done(victim));
        let large = self.large.take_if(|victim| is_done(victim));
        for victim in records.into_iter().chain(large) {
            if victim.what == What::Records {
                debug_assert_eq!(core.log.front(), Some(&victim.block), "the log's tail");
                core.log.pop_front();
            }
            if victim.damaged {
                core.kit.volume.blocks.quarantine(victim.block);
                self.aside += 1;
                continue;
            }
            core.kit.volume.flush(StreamId::Hot);
            let ordinal = core.kit.volume.writer.ordinal(StreamId::Hot);
            self.emptied.push((victim.block, ordinal));
            core.counts.collected_blocks += 1;
            if let Some(round) = &mut self.round {
                round.won += block_bytes(core.kit.volume.geometry()) as i64;
            }
        }
    }

    fn erase(&mut self, core: &mut FrugalContents) {
        let volume = &mut core.kit.volume;
        let mut at = 0;
        while at < self.emptied.len() {
            let (block, ordinal) = self.emptied[at];
            let durable = volume.writer.ledger.is_durable(StreamId::Hot, ordinal)
                || is_planted!(ErasesBeforeDurable);
            if durable && volume.blocks.get(block).readers == 0 {
                self.emptied.remove(at);
                self.erasing.push(block);
                volume.erase(block);
            } else {
                at += 1;
            }
        }
    }

    /// A bucket with values that may have to leave a block is gathered.
    pub(super) fn leave(
        &mut self,
        block: BlockId,
        gathering: &Gathering,
        serving: &mut ServingWalks<'_>,
    ) {
        let Some(victim) = self.large.as_mut().filter(|victim| victim.block == block) else {
            return;
        };
        victim.under_way -= 1;
        let verdict = keep::judge(gathering, None, false, serving.core);
        for (at, name, _) in verdict.kept {
            let gathered = &gathering.records[at];
            let record = gathering.record(gathered);
            let Some(head) =
                record.kind.is_large().then(|| LargeHead::read(record.value)).flatten()
            else {
                continue;
            };
            let blocks = &serving.core.kit.volume.blocks;
            let is_here = head.extents.iter().any(|extent| blocks.of(extent.page) == block);
            if is_here && !is_void(&record, blocks) {
                victim.leaving += 1;
                let parts = PartsFor::Leaving(block, name, gathered.place.page);
                serving.assemble(parts, (&record, head), 0);
            }
        }
    }

    /// A value that leaves a block could not be read: `staged` says whether it could.
    pub(super) fn left(&mut self, block: BlockId, staged: bool) {
        if let Some(victim) = self.large.as_mut().filter(|victim| victim.block == block)
            && !staged
        {
            victim.damaged = true;
            victim.leaving -= 1;
        }
    }

    /// The new head of a value that leaves a block is linked.
    pub(super) fn moved(&mut self, block: BlockId) {
        if let Some(victim) = self.large.as_mut().filter(|victim| victim.block == block) {
            victim.leaving -= 1;
        }
    }
}

/// Puts leave what the rewriting of a log takes that was written at random: see [`low_water`].
fn keep_back(core: &mut FrugalContents) {
    let blocks = &mut core.kit.volume.blocks;
    let live = core.record_bytes.saturating_sub(core.superseded_bytes);
    let wanted = live * 3 / 10 / block_bytes(blocks.geometry);
    let most = blocks.count() / 6;
    let least = MORE_RESERVE.min(blocks.count() / 8);
    blocks.keep_back(u32::try_from(wanted).unwrap_or(most).clamp(least, most.max(least)));
}

/// Below this many free blocks collection begins. A block's buckets have most of their records
/// elsewhere, and each is rewritten whole: until the chains of a log that was written at random are
/// rewritten, that takes up to half of what lives beside. So where much is dead, it begins early.
fn low_water(core: &FrugalContents) -> u32 {
    let blocks = &core.kit.volume.blocks;
    let used = blocks.count() - blocks.free_count();
    let worthwhile = u64::from(used / 10) * block_bytes(blocks.geometry);
    let early = if core.superseded_bytes > worthwhile { used * 2 / 5 } else { 0 };
    blocks.low_water().max(early.min(blocks.count() / 2))
}

/// Whether records of these lengths find room, and so many blocks stay.
fn has_room(lengths: impl Iterator<Item = usize>, leave: u32, core: &FrugalContents) -> bool {
    const ROOM: usize = PAGE_BYTES - layout::HEADER_BYTES;
    let volume = &core.kit.volume;
    // The open page may have room for none of them.
    let (mut pages, mut left) = (0u32, 0);
    for length in lengths {
        if length > left {
            (pages, left) = (pages + 1, ROOM);
        }
        left -= length;
    }
    let wanted = pages.div_ceil(volume.geometry().pages_per_block) + leave;
    pages == 0 || volume.blocks.clean_count() > wanted
}

fn move_fence(
    page: PageId,
    record: &Record<'_>,
    victim: &mut TailVictim,
    core: &mut FrugalContents,
) {
    let (keyspace, version) = (record.keyspace, record.version);
    let known = Fence { version, page: page.0 };
    if core.spaces.get(keyspace).is_none_or(|space| !space.fences.contains(&known)) {
        return;
    }
    match core.append(&fence_record(keyspace, version), 0, Held::NOTHING, 0) {
        Some(to) => core.spaces.ensure(keyspace).add_fence(Fence { version, page: to.0 }),
        None => victim.damaged = true,
    }
}

/// Appends what is kept, the oldest first, with all pointers; the bucket's head is the last one.
fn append_all(gathering: &Gathering, verdict: &KeepVerdict, core: &mut FrugalContents) {
    let bucket = gathering.bucket;
    let mut newest: BTreeMap<Name, Youngest> =
        verdict.names.iter().map(|&name| (name, Youngest::NONE)).collect();
    let mut head = NO_PAGE;
    let count = verdict.kept.len();
    for (number, &(at, name, shrinks)) in verdict.kept.iter().enumerate() {
        let mut record = gathering.record(&gathering.records[at]);
        if shrinks {
            (record.kind, record.value) = (RecordKind::Tombstone, &[]);
        }
        record.links = Some(Links {
            next: head,
            prior: newest.get(&name).map_or(NO_PAGE, |known| known.page),
            kind: LinkKind::of_copy(number, count),
            bits: core.buckets.bits(),
        });
        let page = core.append(&record, name.check, Held::NOTHING, 0);
        let page = page.expect("there was room for all of them");
        head = page.0;
        newest.insert(
            name,
            Youngest {
                version: record.version,
                page: page.0,
                tombstone: record.kind.is_tombstone(),
                may_expire: !record.expires_at.is_never(),
                exact: true,
            },
        );
        core.record_bytes += record.bytes() as u64;
    }
    core.buckets.rewritten(bucket, head);
    for (name, youngest) in newest {
        core.translations.update(name, youngest);
    }
    for gathered in &gathering.records {
        core.record_bytes -= (gathering.record(gathered).bytes() as u64).min(core.record_bytes);
    }
    let blocks = &mut core.kit.volume.blocks;
    let dropped = verdict.dropped.iter().copied();
    let shrunk = verdict.kept.iter().filter(|(_, _, shrinks)| *shrinks).map(|&(at, ..)| at);
    for at in dropped.chain(shrunk) {
        let record = gathering.record(&gathering.records[at]);
        if record.kind.is_large()
            && !is_void(&record, blocks)
            && let Some(head) = LargeHead::read(record.value)
        {
            for extent in &head.extents {
                blocks.usage(blocks.of(extent.page)).died(extent.pages * PAGE_BYTES as u32);
            }
        }
    }
    let dropped =
        verdict.dropped.iter().map(|&at| gathering.record(&gathering.records[at]).bytes());
    let dropped: u64 = dropped.map(|bytes| bytes as u64).sum();
    core.superseded_bytes -= dropped.min(core.superseded_bytes);
    core.records = core.records + count as u64 - gathering.records.len() as u64;
    core.counts.moved += count as u64;
    core.counts.dropped_records += verdict.dropped.len() as u64;
    core.counts.rewritten_buckets += 1;
    core.counts.dropped_tombstones += verdict.tombstones;
}
