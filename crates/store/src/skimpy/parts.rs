//! Blocks of large values' parts: which of them are worth emptying, and how their values leave.
//!
//! ```text
//!   half of it is known to be dead ─────────────────────────────────────────────────┐
//!   space is short ─► a round: each block ─► pages ─► buckets ─► judged: what lives ─┤ half dead?
//!                       └─ all were looked at: the one with the most that is dead ───┴─► emptied:
//!        pages ─► buckets ─► values that live: staged again, their heads linked anew ─► erase
//! ```
//!
//! That a value has died is known by itself only when the bucket of its head is rewritten. Where little
//! else is written that is never: so whoever needs the room *looks*, and does what a rewriting would
//! do to find out. What a look has found is the least that is dead; it is kept in memory only.
//!
//! A round that found nothing to win rests until something may have died (docs/design/skimpy.md, K19).
//!
//! Invariants: one block is looked at or emptied at a time; a block is emptied only when the heads of
//! all values in it are in their chains.

use std::collections::{BTreeMap, BTreeSet};

use timestone_flash::{AlignedBuffer, BlockId, Generation, PAGE_BYTES};
use timestone_types::{Timestamp, Version, is_planted};

use super::chain::{Gathering, is_in_place, is_void};
use super::contents::FrugalContents;
use super::futile::Futile;
use super::jobs::MOST_FAILURES;
use super::keep::{self, Leaving};
use super::reads::{Owner, PartsFor, ServingWalks};
use super::translations::Name;
use super::victim::read_on;
use crate::kit::blocks::{BlockState, Blocks};
use crate::kit::ledger::Held;
use crate::kit::staging::Moved;
use crate::kit::volume::block_bytes;
use crate::kit::writer::StreamId;
use crate::layout::{self, Extent, LargeHead, PageKind, Record, RecordKind};

/// Buckets that are gathered for a look at once.
const LOOKED_AT_ONCE: usize = 16;
/// Large values that leave a block at once.
const LEAVING_AT_ONCE: usize = 4;
/// While the log wins, so many blocks are looked at for each block that was written.
const LOOKS_FOR_A_BLOCK: u64 = 4;

/// How much room is needed, and who else may win some.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// Puts are about to be refused.
    pub(super) urgent: bool,
    /// Puts are refused.
    pub(super) short: bool,
    /// Emptying the log may win something.
    pub(super) log_wins: bool,
}

/// A block of parts that is looked at, or emptied.
#[derive(Debug)]
struct PartsWalk {
    block: BlockId,
    empties: bool,
    /// The next page to read.
    next_page: u32,
    reading: bool,
    /// How often its pages could not be read.
    failures: u32,
    /// Buckets of its values, and those that are still to be gathered.
    buckets: BTreeSet<u32>,
    todo: BTreeSet<u32>,
    /// While there are pages that no start has read so far: values with parts in it, by bucket.
    values: BTreeMap<u32, BTreeSet<(Name, Version)>>,
    under_way: usize,
    /// Something in it, or in a chain that leads there, is damaged.
    damaged: bool,
    /// A look: pages of parts that live, and bytes of those that die when the watermark has passed
    /// times from `first` to `last`.
    live: u32,
    later: u64,
    first: Timestamp,
    last: Timestamp,
    /// Values that are read or staged; of these, those that are read, and the parts of them all.
    leaving: usize,
    reads: u32,
    parts_read: u32,
    /// There is no room for the next value until all that are leaving have left.
    cramped: bool,
}

/// What is known of a block.
#[derive(Clone, Copy, Debug)]
struct Known {
    generation: Generation,
    /// Bytes of its parts that are dead, at least.
    dead: u64,
    /// So many blocks were free when there was no room for one of its values.
    refused_at: Option<u32>,
}

/// All blocks are looked at once.
#[derive(Debug)]
struct PartsRound {
    left: BTreeSet<BlockId>,
    began: Futile,
    /// Bytes that die when the watermark has passed times from `first` to `last`.
    later: u64,
    first: Timestamp,
    last: Timestamp,
    blocks: u64,
}

/// What has become of a block.
pub(super) enum Left {
    /// It is empty.
    Empty(BlockId),
    /// Something in it could not be read.
    Damaged(BlockId),
}

/// The collector of blocks of parts.
#[derive(Default)]
pub(super) struct PartsCollector {
    walk: Option<PartsWalk>,
    known: BTreeMap<BlockId, Known>,
    /// The block that was looked at last, and the buckets of its values.
    looked: Option<(BlockId, Generation, BTreeSet<u32>)>,
    round: Option<PartsRound>,
    futile: Option<Futile>,
    /// Bytes of dead parts for which a block is emptied before a new round begins.
    enough: u64,
    /// By the clock of pages: no new round before this while the log wins.
    next_round: u64,
    /// It was asked for room, and has none to win.
    rests: bool,
    /// By bucket: large values on their way out of a block, which will be linked anew.
    leaving: BTreeMap<u32, u32>,
}

impl PartsWalk {
    fn of(block: BlockId, empties: bool) -> Self {
        Self {
            block,
            empties,
            next_page: 0,
            reading: false,
            failures: 0,
            buckets: BTreeSet::new(),
            todo: BTreeSet::new(),
            values: BTreeMap::new(),
            under_way: 0,
            damaged: false,
            live: 0,
            later: 0,
            first: Timestamp::MAX,
            last: Timestamp::ZERO,
            leaving: 0,
            reads: 0,
            parts_read: 0,
            cramped: false,
        }
    }

    fn is_read(&self, blocks: &Blocks) -> bool {
        self.next_page >= blocks.get(self.block).readable && !self.reading
    }

    /// Whether the next bucket can be gathered.
    fn may_gather(&self, blocks: &Blocks) -> bool {
        let at_once = if self.empties { LEAVING_AT_ONCE } else { LOOKED_AT_ONCE };
        !self.todo.is_empty()
            && !self.cramped
            && self.under_way + self.leaving < at_once
            && self.is_read(blocks)
    }

    fn is_done(&self, blocks: &Blocks) -> bool {
        self.is_read(blocks) && self.todo.is_empty() && self.under_way == 0 && self.leaving == 0
    }

    /// Whether there is no room for the next value, and none comes from those that leave.
    fn is_refused(&self) -> bool {
        self.cramped && self.under_way == 0 && self.leaving == 0
    }
}

/// Pages of a block that hold parts of a value.
fn pages_in(block: BlockId, head: &LargeHead<'_>, blocks: &Blocks) -> u32 {
    let here = head.extents.iter().filter(|extent| blocks.of(extent.page) == block);
    here.map(|extent| extent.pages).sum()
}

/// Whether a block holds parts, and is not written any more.
fn is_sealed(block: BlockId, blocks: &Blocks) -> bool {
    let entry = blocks.get(block);
    // What could not be read when the store was opened may be a part of a value.
    let is_unread = blocks.has_unread_in(block) && !is_planted!(ErasesUnread);
    entry.stream == StreamId::Large && entry.state == BlockState::Sealed && !is_unread
}

/// Whether such a block may be looked at: all its pages are programmed.
fn is_whole(block: BlockId, blocks: &Blocks) -> bool {
    let entry = blocks.get(block);
    is_sealed(block, blocks) && entry.readable == entry.pages
}

/// All blocks of parts that are not written any more.
fn all(blocks: &Blocks) -> impl Iterator<Item = BlockId> + '_ {
    (0..blocks.count()).map(BlockId).filter(|&block| is_sealed(block, blocks))
}

impl PartsCollector {
    /// Whether the next pump can do something.
    pub(super) fn has_work(&self, blocks: &Blocks) -> bool {
        self.walk.as_ref().is_some_and(|walk| {
            let unread = !walk.reading && walk.next_page < blocks.get(walk.block).readable;
            unread || walk.may_gather(blocks) || walk.is_done(blocks) || walk.is_refused()
        })
    }

    /// Whether a block is looked at or emptied.
    pub(super) fn is_at_work(&self) -> bool {
        self.walk.is_some()
    }

    /// Whether it was asked for room, and has none to win.
    pub(super) fn rests(&self) -> bool {
        self.rests && self.walk.is_none()
    }

    /// Whether the watermark will let something go.
    pub(super) fn has_hope(&self, core: &FrugalContents) -> bool {
        self.futile.is_some_and(|futile| futile.has_hope(core))
    }

    /// Whether a large value of a bucket will be linked anew.
    pub(super) fn is_leaving(&self, bucket: u32) -> bool {
        self.leaving.contains_key(&bucket)
    }

    /// How many buckets have values that will be linked anew.
    pub(super) fn leaving(&self) -> usize {
        self.leaving.len()
    }

    /// Lets go what is done, chooses, reads, gathers.
    pub(super) fn pump(
        &mut self,
        need: Option<Need>,
        serving: &mut ServingWalks<'_>,
    ) -> Option<Left> {
        let left = self.finish(serving.core);
        self.rests = false;
        if let Some(need) = need.filter(|_| self.walk.is_none()) {
            self.choose(need, serving.core);
        }
        self.read(serving.core);
        self.gather(serving);
        left
    }

    fn known(&self, block: BlockId, blocks: &Blocks) -> Option<&Known> {
        let known = self.known.get(&block)?;
        (known.generation == blocks.get(block).generation).then_some(known)
    }

    /// Bytes that emptying a block wins: of dead parts, and of pages that were never begun.
    fn won_by(&self, block: BlockId, blocks: &Blocks) -> u64 {
        let [written, _, _, dead] = blocks.get(block).counts().map(u64::from);
        let looked = self.known(block, blocks).map_or(0, |known| known.dead);
        block_bytes(blocks.geometry).saturating_sub(written.saturating_sub(dead.max(looked)))
    }

    /// The block with the most that is dead: how much, and whether it can be emptied now. None that
    /// somebody reads, or that has parts of a value whose head is not written yet: who looks for its
    /// values in the chains would not find that one.
    fn most_dead(&self, blocks: &Blocks) -> (Option<(u64, BlockId)>, bool) {
        let (mut best, mut waits) = (None, false);
        for id in all(blocks) {
            let won = self.won_by(id, blocks);
            let refused = self.known(id, blocks).and_then(|known| known.refused_at);
            if won < PAGE_BYTES as u64 || refused.is_some_and(|then| blocks.free_count() <= then) {
                continue;
            }
            let is_read = blocks.get(id).readers > 0 && !is_planted!(EmptiesBesideHeads);
            if is_read || !is_whole(id, blocks) {
                waits = true;
            } else if best.is_none_or(|(most, _)| won > most) {
                best = Some((won, id));
            }
        }
        (best, waits)
    }

    fn choose(&mut self, need: Need, core: &mut FrugalContents) {
        let blocks = &core.kit.volume.blocks;
        let half = block_bytes(blocks.geometry) / 2;
        let (best, waits) = self.most_dead(blocks);
        if let Some((_, block)) = best.filter(|&(won, _)| won >= half) {
            return self.empty(block, core);
        }
        if !need.urgent {
            return;
        }
        if self.round.is_none() {
            // Little is won by a block of which little is dead: not while the log wins more.
            let best = best.filter(|_| need.short || !need.log_wins);
            let is_paced = need.log_wins && blocks.clock() < self.next_round;
            let rests = self.futile.is_some_and(|futile| is_paced || !futile.is_over(core));
            let least = if rests { 0 } else { self.enough };
            if let Some((_, block)) = best.filter(|&(won, _)| won >= least) {
                return self.empty(block, core);
            }
            let left: BTreeSet<BlockId> = all(blocks).collect();
            if rests || left.is_empty() {
                self.rests = !waits;
                return;
            }
            self.futile = None;
            self.round = Some(PartsRound {
                blocks: left.len() as u64,
                left,
                began: Futile::now(core, Timestamp::ZERO, false).whatever_the_floor(),
                later: 0,
                first: Timestamp::MAX,
                last: Timestamp::ZERO,
            });
        }
        let Some(round) = &mut self.round else { return };
        let next = round.left.iter().copied().find(|&block| is_whole(block, blocks));
        if let Some(block) = next {
            round.left.remove(&block);
            core.counts.looks += 1;
            self.walk = Some(PartsWalk::of(block, false));
        } else if !round.left.iter().any(|&block| is_sealed(block, blocks)) {
            self.end_round(core);
            self.choose(need, core);
        }
    }

    /// Everything was looked at. What is known of it is used up before the next round.
    fn end_round(&mut self, core: &FrugalContents) {
        let Some(round) = self.round.take() else { return };
        let blocks = &core.kit.volume.blocks;
        // Half of what will die has died by then.
        let first = round.first.max(core.spaces.marks.collection());
        let until = first.saturating_add(round.last.since(first) / 2);
        let hope = round.later >= block_bytes(blocks.geometry);
        self.futile = Some(round.began.until(until, hope));
        let most = self.most_dead(blocks).0.map_or(0, |(won, _)| won);
        self.enough = (most / 2).max(PAGE_BYTES as u64);
        let pages = round.blocks * u64::from(blocks.geometry.pages_per_block);
        self.next_round = blocks.clock() + pages / LOOKS_FOR_A_BLOCK;
    }

    fn empty(&mut self, block: BlockId, core: &mut FrugalContents) {
        let mut walk = PartsWalk::of(block, true);
        let entry = core.kit.volume.blocks.get(block);
        let is_known = core.kit.volume.blocks.are_all_read();
        if let Some((_, _, buckets)) =
            self.looked.take().filter(|_| is_known).filter(|(looked, generation, _)| {
                *looked == block && *generation == entry.generation
            })
        {
            walk.next_page = entry.readable;
            (walk.todo, walk.buckets) = (buckets.clone(), buckets);
        }
        core.kit.volume.blocks.begin_victim(block);
        self.walk = Some(walk);
    }

    /// What has become of a block that is done with.
    fn finish(&mut self, core: &mut FrugalContents) -> Option<Left> {
        let blocks = &mut core.kit.volume.blocks;
        let walk = self.walk.take_if(|walk| walk.is_done(blocks) || walk.is_refused())?;
        let (block, generation) = (walk.block, blocks.get(walk.block).generation);
        if walk.is_refused() {
            let free = blocks.free_count();
            self.note(block, blocks).refused_at = Some(free);
            blocks.end_victim(block);
            return None;
        }
        if walk.empties {
            self.known.remove(&block);
            return Some(if walk.damaged { Left::Damaged(block) } else { Left::Empty(block) });
        }
        if !walk.damaged {
            let live = walk.live + core.kit.staging.pages_in(block, blocks);
            let written = u64::from(blocks.get(block).counts()[0]);
            let dead = written.saturating_sub(u64::from(live) * PAGE_BYTES as u64);
            self.note(block, blocks).dead = dead;
            self.looked = Some((block, generation, walk.buckets));
        }
        if let Some(round) = &mut self.round {
            round.later += walk.later;
            round.first = round.first.min(walk.first);
            round.last = round.last.max(walk.last);
        }
        None
    }

    /// What is known of a block, to be changed.
    fn note(&mut self, block: BlockId, blocks: &Blocks) -> &mut Known {
        let generation = blocks.get(block).generation;
        let nothing = Known { generation, dead: 0, refused_at: None };
        let known = self.known.entry(block).or_insert(nothing);
        if known.generation != generation {
            *known = nothing;
        }
        known
    }

    fn read(&mut self, core: &mut FrugalContents) {
        let Some(walk) = &mut self.walk else { return };
        if !walk.reading {
            walk.reading = read_on(walk.block, &mut walk.next_page, &mut core.kit.volume);
        }
    }

    /// Pages of a block have been read: whether it is the one that is looked at or emptied.
    pub(super) fn pages_read(
        &mut self,
        block: BlockId,
        first: u32,
        readable: bool,
        bytes: &AlignedBuffer,
        core: &mut FrugalContents,
    ) -> bool {
        let Some(walk) = self.walk.as_mut().filter(|walk| walk.block == block) else {
            return false;
        };
        walk.reading = false;
        if !readable {
            walk.failures += 1;
            if walk.failures < MOST_FAILURES {
                walk.next_page = first;
            } else {
                walk.damaged = true;
            }
            return true;
        }
        let geometry = core.kit.volume.geometry();
        for (offset, page) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
            let id = geometry.page(block, first + offset as u32);
            match core.kit.volume.verify(id, page) {
                Ok(header) if header.kind == PageKind::LargePart => {
                    let (part, _) = layout::part_header(page);
                    let bucket = core.buckets.of(part.hash);
                    walk.buckets.insert(bucket);
                    walk.todo.insert(bucket);
                    if walk.empties && !core.kit.volume.blocks.are_all_read() {
                        let name =
                            Name { keyspace: part.keyspace, hash: part.hash, check: part.check };
                        walk.values.entry(bucket).or_default().insert((name, part.version));
                    }
                }
                Err(_) if core.kit.volume.blocks.is_hole(id) => {}
                Ok(_) | Err(_) => {
                    core.kit.volume.corrupt += u64::from(walk.empties);
                    walk.damaged = true;
                }
            }
        }
        true
    }

    fn gather(&mut self, serving: &mut ServingWalks<'_>) {
        let Some(walk) = &mut self.walk else { return };
        while walk.may_gather(&serving.core.kit.volume.blocks) {
            let Some(bucket) = walk.todo.pop_first() else { break };
            walk.under_way += 1;
            let gathering = serving.core.gathering(bucket, None);
            serving.gather(Owner::Parts(walk.block), gathering);
        }
    }

    /// A bucket with values in a block is gathered.
    pub(super) fn gathered(
        &mut self,
        block: BlockId,
        gathering: &Gathering,
        serving: &mut ServingWalks<'_>,
    ) {
        let Some(walk) = self.walk.as_mut().filter(|walk| walk.block == block) else { return };
        walk.under_way -= 1;
        if walk.empties {
            self.leave(block, gathering, serving);
        } else {
            walk.look(gathering, serving.core);
        }
    }

    /// A bucket cannot be gathered.
    pub(super) fn damaged(&mut self, block: BlockId) {
        if let Some(walk) = self.walk.as_mut().filter(|walk| walk.block == block) {
            walk.damaged = true;
            walk.under_way -= 1;
        }
    }

    /// The values of a bucket that live are staged again. Of what has expired only a tombstone stays.
    fn leave(&mut self, block: BlockId, gathering: &Gathering, serving: &mut ServingWalks<'_>) {
        let Some(walk) = &mut self.walk else { return };
        let bucket = gathering.bucket;
        // The head of a value may be on a page that the next start reads.
        let mut values = walk.values.get(&bucket).into_iter().flatten();
        let has_headless = values.any(|value| !is_known(value, gathering, serving.core));
        walk.damaged |= has_headless && !is_planted!(DropsHeadless);
        let verdict = keep::judge(gathering, Leaving::Nothing, false, serving.core);
        let mut died = Vec::new();
        for kept in verdict.kept() {
            let gathered = &gathering.records[kept.at];
            let record = gathering.record(gathered);
            let blocks = &serving.core.kit.volume.blocks;
            let Some(head) = head_of(&record) else { continue };
            if pages_in(block, &head, blocks) == 0 || is_void(&record, blocks) {
                continue;
            }
            if kept.shrinks {
                let core = &mut *serving.core;
                let (kind, value) = (RecordKind::Tombstone, &[][..]);
                let tombstone = Record { kind, value, links: None, ..record };
                if core.link(&tombstone, kept.name, Held::NOTHING, 0).is_none() {
                    walk.cramped = true;
                    break;
                }
                core.buckets.linked_large();
                serving.reads.rewritten(bucket);
                died.extend(head.extents);
                continue;
            }
            if !walk.has_room_for(head.parts(), serving.core) {
                walk.cramped = true;
                break;
            }
            walk.leaving += 1;
            walk.reads += 1;
            walk.parts_read += head.parts();
            *self.leaving.entry(bucket).or_default() += 1;
            let parts = PartsFor::Leaving(block, kept.name, gathered.place.page);
            serving.assemble(parts, (&record, head), 0);
        }
        if walk.cramped {
            walk.todo.insert(bucket);
        }
        self.died(&died, &serving.core.kit.volume.blocks);
    }

    /// A value of a bucket that leaves a block was read: `staged` says whether it could.
    pub(super) fn left(&mut self, block: BlockId, bucket: u32, staged: bool) {
        if let Some(walk) = self.walk.as_mut().filter(|walk| walk.block == block) {
            walk.reads -= 1;
            if walk.reads == 0 {
                walk.parts_read = 0;
            }
            walk.damaged |= !staged;
        }
        if !staged {
            self.has_left(block, bucket);
        }
    }

    /// The new head of a value that leaves a block is linked.
    pub(super) fn moved(&mut self, moved: &Moved, bucket: u32, blocks: &Blocks) {
        self.has_left(moved.victim, bucket);
        self.died(&moved.extents, blocks);
    }

    fn has_left(&mut self, block: BlockId, bucket: u32) {
        if let Some(values) = self.leaving.get_mut(&bucket) {
            *values -= 1;
            if *values == 0 {
                self.leaving.remove(&bucket);
            }
        }
        if let Some(walk) = self.walk.as_mut().filter(|walk| walk.block == block) {
            walk.leaving -= 1;
            walk.cramped &= walk.leaving > 0;
        }
    }

    /// Parts have another head, or none any more. Their blocks may have no other way to hear that: the
    /// old head is void as soon as one of them is erased.
    fn died(&mut self, extents: &[Extent], blocks: &Blocks) {
        for extent in extents {
            let block = blocks.of(extent.page);
            if is_in_place(extent, blocks) {
                self.note(block, blocks).dead += u64::from(extent.pages) * PAGE_BYTES as u64;
            }
        }
    }
}

impl PartsWalk {
    /// What of a block lives, as far as it is of one bucket.
    fn look(&mut self, gathering: &Gathering, core: &FrugalContents) {
        let blocks = &core.kit.volume.blocks;
        for kept in keep::judge(gathering, Leaving::Nothing, false, core).kept() {
            let record = gathering.record(&gathering.records[kept.at]);
            let Some(head) = head_of(&record).filter(|_| !kept.shrinks) else { continue };
            let pages = pages_in(self.block, &head, blocks);
            if pages == 0 || is_void(&record, blocks) {
                continue;
            }
            self.live += pages;
            if kept.later > 0 {
                self.later += u64::from(pages) * PAGE_BYTES as u64;
                self.first = self.first.min(kept.dies);
                self.last = self.last.max(kept.dies);
            }
        }
    }

    /// Whether there are blocks for a value of so many parts beside all that are on their way, and one
    /// for heads. *Otherwise* values that are staged wait for room that only this block would give.
    fn has_room_for(&self, parts: u32, core: &FrugalContents) -> bool {
        let volume = &core.kit.volume;
        let open = volume.writer.pages_left(StreamId::Large, &volume.blocks);
        let pages = core.kit.staging.parts_ahead() + self.parts_read + parts;
        let blocks = pages.saturating_sub(open).div_ceil(volume.geometry().pages_per_block);
        volume.blocks.free_count() > blocks
    }
}

/// Whether a value whose bucket is gathered is there, or superseded, hidden, or on its way. A void head says
/// nothing of where the value is.
fn is_known(
    &(name, version): &(Name, Version),
    gathering: &Gathering,
    core: &FrugalContents,
) -> bool {
    let mark = core.spaces.marks.collection();
    let stands_for =
        |known: Version| known == version || (known > version && known.timestamp <= mark);
    let staged = core.staged.get(&name).into_iter().flatten();
    version <= core.spaces.fence_at(name.keyspace, mark)
        || staged.map(|staged| staged.version).any(stands_for)
        || gathering.records.iter().any(|gathered| {
            let record = gathering.record(gathered);
            let is_left = record.version == version
                && is_void(&record, &core.kit.volume.blocks)
                && !is_planted!(TrustsVoidHeads);
            core.name_of(&record) == name && stands_for(record.version) && !is_left
        })
}

fn head_of<'a>(record: &Record<'a>) -> Option<LargeHead<'a>> {
    record.kind.is_large().then(|| LargeHead::read(record.value)).flatten()
}
