//! Collection: the block at the log's tail is emptied, bucket by bucket (SkimpyFTL §3.4).
//!
//! ```text
//!   free blocks run short ─► tail of the log ─► its pages ─► buckets that have a record there
//!        ─► each: gather its chain ─► keep what the watermark keeps ─► append it whole, or move its end
//!        ─► all of that durable ─► erase
//! ```
//!
//! A bucket whose chain has no record in the block is left as it is: what lies there is void.
//! Everything of a bucket is appended in one step, so that nobody has to wait: what is put while its
//! chain is gathered is gathered before that step. The first record says that a chain begins, the
//! last one that it is complete; until then a scan after a crash goes by the old chain, which is
//! whole, as no block is erased before the new one is durable.
//!
//! Blocks of large values are emptied by [`super::parts`].
//!
//! When a whole round of the log wins nothing, nor does one of those blocks, the store is *stuck*:
//! really full, until the watermark passes something.
//!
//! Invariants: a bucket is rewritten by one gathering at a time; a block is erased only when nothing
//! reads in it and what replaces its records is durable.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use timestone_flash::{AlignedBuffer, BlockId, PageId};
use timestone_types::{Timestamp, is_planted};

use super::ahead::{self, EarlyGatherings, ReadAhead};
use super::chain::Gathering;
use super::checkpoint::Chains;
use super::contents::{FrugalContents, fence_record};
use super::displaced::FailedBlocks;
use super::emptied::{Emptied, EmptiedBlocks, SetAside};
use super::futile::{Futile, LogRound};
use super::jobs::{AT_ONCE, BucketJob, Circumstances, LONG_AT_ONCE, MOST_FAILURES, Repair, Why};
use super::keep::{self, Leaving};
use super::parts::{Left, Need, PartsCollector};
use super::reads::{Owner, ServingWalks};
use super::rewrite::{self, Way, Weight};
use super::spaces::Fence;
use super::tail::{self, TailFate};
use super::victim::{TailVictim, read_on};
use crate::kit::blocks::{BlockState, Blocks, EraseNeed};
use crate::kit::ledger::Held;
use crate::kit::volume::{Volume, block_bytes};
use crate::kit::writer::StreamId;
use crate::layout;

/// With so many bytes of gathered buckets, what is there is written; else they are written together
/// when all that are being gathered are there. *Otherwise* each bucket begins a page of its own, where
/// puts are made durable all the time.
const MOST_WAITING: usize = 1 << 20;
/// Below this many free blocks one block is emptied at a time: what is moved out of it may take two
/// others, and deletes may leave two.
const LEAST_FREE: u32 = 5;

/// The collector of one store.
#[derive(Default)]
pub(super) struct TailCollector {
    victim: Option<TailVictim>,
    ahead: ReadAhead,
    pub(super) parts: PartsCollector,
    emptied: EmptiedBlocks,
    /// Buckets that are being rewritten.
    jobs: BTreeMap<u32, BucketJob>,
    /// How many of them only because their chains are long: those are written when they are gathered.
    long_jobs: usize,
    /// Gathered, and there was no room yet.
    waiting: VecDeque<Gathering>,
    /// None of those found room then.
    stalled: Option<Circumstances>,
    repairs: VecDeque<Repair>,
    failed: FailedBlocks,
    round: Option<LogRound>,
    futile: Option<Futile>,
    /// Bytes that were dead in the block of records that was emptied last.
    won_before: u64,
    aside: SetAside,
    pub(super) damaged_buckets: BTreeSet<u32>,
}

impl TailCollector {
    /// Of a store with buckets in pieces, and blocks set aside.
    pub(super) fn opened(core: &FrugalContents) -> Self {
        let repairs = core.buckets.in_pieces().map(|bucket| Repair { bucket, refused: (0, 0) });
        Self { repairs: repairs.collect(), ..Self::default() }
    }

    /// Whether the next pump can do something.
    pub(super) fn has_work(&self, early: &EarlyGatherings, core: &FrugalContents) -> bool {
        let blocks = &core.kit.volume.blocks;
        let is_stalled = self.is_stalled(core);
        // What waits for buckets that are being gathered is woken by the device.
        let works = |victim: &TailVictim| {
            let pages = blocks.get(victim.block).readable;
            let unread = !victim.reading && victim.next_page < pages;
            let moves = victim.is_read(pages) && !victim.moving.is_empty();
            unread || moves || victim.is_empty(pages) || (!victim.fences.is_empty() && !is_stalled)
        };
        self.victim.as_ref().is_some_and(works)
            || self.ahead.has_work(self.wanted_ahead(core), early, core)
            || self.parts.has_work(blocks)
            || (!self.waiting.is_empty()
                && self.waiting.len() >= self.jobs_to_wait_for()
                && !is_stalled)
            || self.next_to_gather(core).is_some()
            || self.failed.has_work(&core.kit.volume)
            || self.emptied.has_work(&core.kit.volume)
    }

    fn circumstances(&self, core: &FrugalContents) -> Circumstances {
        let volume = &core.kit.volume;
        Circumstances {
            free: volume.blocks.free_count(),
            clean: volume.blocks.clean_count(),
            left: volume.writer.pages_left(StreamId::Hot, &volume.blocks),
            coming: self.coming(),
            parts_work: self.parts.is_at_work(),
            parts_rest: self.parts.rests(),
            may_grow: core.kit.room.may_grow(volume) > 0,
            mark: core.spaces.marks.collection(),
            floor: core.spaces.marks.replay_floor(),
            waiting: self.waiting.len(),
            leaving: self.parts.leaving(),
        }
    }

    /// Whether no gathered bucket found room, and nothing has changed since.
    fn is_stalled(&self, core: &FrugalContents) -> bool {
        self.stalled.is_some_and(|then| then == self.circumstances(core))
    }

    /// The next bucket to put together: where there is room to spare, and more than when there was none
    /// for it.
    fn next_repair(&self, blocks: &Blocks) -> Option<usize> {
        let (free, clean) = (blocks.free_count(), blocks.clean_count());
        if free <= rewrite::spare(blocks) || clean == 0 {
            return None;
        }
        let has_more = |repair: &Repair| free > repair.refused.0 || clean > repair.refused.1;
        self.repairs.iter().position(has_more)
    }

    fn want_repair(&mut self, bucket: u32, refused: (u32, u32)) {
        if !self.repairs.iter().any(|repair| repair.bucket == bucket) {
            self.repairs.push_back(Repair { bucket, refused });
        }
    }

    /// Whether something waits to become durable.
    pub(super) fn waits(&self) -> bool {
        self.emptied.waits() || !self.failed.is_empty()
    }

    /// A block of the log could not be programmed.
    pub(super) fn begin_failed(&mut self, block: BlockId, core: &FrugalContents) {
        self.failed.begin(block, core);
    }

    /// A block could not be erased: it is set aside, with those that have forgotten tombstones of what lies there.
    pub(super) fn erase_failed(&mut self, block: BlockId, volume: &mut Volume) {
        volume.erase_failed(block);
        let was_emptied = self.emptied.erase_failed(block, &mut self.aside, volume);
        if let Some(victim) = self.victim.as_mut().filter(|_| was_emptied) {
            // What tombstones are dropped from now on asks what is set aside.
            victim.stays |= victim.forgets && !is_planted!(ForgetsBesideFailed);
        }
    }

    /// What a checkpoint would find now.
    pub(super) fn state(&self, core: &FrugalContents) -> Chains {
        let is_read = core.kit.volume.blocks.are_all_read() || is_planted!(ForgetsUnread);
        match (self.failed.is_empty(), is_read && self.damaged_buckets.is_empty()) {
            (false, _) => Chains::Displaced,
            (true, true) => Chains::Sound,
            (true, false) => Chains::Damaged,
        }
    }

    /// Blocks that are being emptied or erased.
    fn coming(&self) -> u32 {
        self.emptied.count()
    }

    /// A block is erased.
    pub(super) fn erased(&mut self, block: BlockId) {
        self.emptied.erased(block);
    }

    /// Pages of a victim have been read.
    pub(super) fn pages_read(
        &mut self,
        number: u64,
        readable: bool,
        bytes: &AlignedBuffer,
        core: &mut FrugalContents,
    ) {
        let (block, first) = core.kit.volume.first_read(number);
        core.kit.volume.blocks.unpin(block);
        if self.parts.pages_read(block, first, readable, bytes, core)
            || self.ahead.pages_read(block, first, readable, bytes, core)
        {
            return;
        }
        let Some(victim) = self.victim.as_mut().filter(|victim| victim.block == block) else {
            return;
        };
        victim.pages_read(first, readable, bytes, core);
    }

    /// Chooses, gathers, rewrites, erases: a little of each.
    pub(super) fn pump(&mut self, serving: &mut ServingWalks<'_>) {
        let core = &mut *serving.core;
        let mark = core.spaces.marks.collection();
        core.spaces.list.iter_mut().for_each(|space| space.prune_fences(mark));
        let asked = core.kit.room.take_asked();
        let blocks = &core.kit.volume.blocks;
        let (free, low, floor) = (blocks.free_count(), blocks.low_water(), blocks.floor());
        let short = free <= blocks.reserve() || free < asked;
        let ahead = free + self.coming();
        if free > floor && free >= asked {
            core.kit.room.set_stuck(false);
        }
        let urgent = ahead < (floor + 1).max(asked);
        let tries = (urgent || ahead < low && rewrite::is_worthwhile(core)) && self.may_try(core);
        if tries {
            self.choose(core);
        }
        let log_wins = self.futile.is_none() && !self.is_stalled(core) && core.log.len() > 1;
        let need = (ahead < low.max(asked)).then_some(Need { urgent, short, log_wins });
        if let Some(left) = self.parts.pump(need, serving) {
            self.empty_of_parts(left, serving.core);
        }
        let core = &mut *serving.core;
        let can_grow = core.kit.room.may_grow(&core.kit.volume) > 0;
        if ahead < low.max(asked) && can_grow && (short || self.victim.is_none()) {
            core.kit.room.grow(&mut core.kit.volume);
        }
        if urgent && self.futile.is_some() && self.parts.rests() && !can_grow && self.coming() == 0
        {
            self.set_stuck(false, core);
        }
        self.failed.pump(&mut self.aside.buckets, core);
        self.read_victim(core);
        let wanted = self.wanted_ahead(core);
        self.ahead.pump(wanted, serving);
        self.move_fences(serving.core);
        self.move_known(serving);
        self.write_waiting(serving);
        self.gather_more(serving);
        self.finish_victim(serving);
        self.emptied.erase(&mut serving.core.kit.volume, &mut serving.core.buckets);
        let need = EraseNeed::of(short || urgent || free <= floor);
        serving.core.kit.volume.begin_erases(need);
    }

    /// Whether emptying the log may win something that it did not win before.
    fn may_try(&mut self, core: &mut FrugalContents) -> bool {
        if self.futile.is_some_and(|futile| !futile.is_over(core)) {
            return false;
        }
        if self.futile.take().is_some() {
            core.kit.room.set_stuck(false);
        }
        true
    }

    /// Nothing is won by now: the store is full, or busy where the watermark will let something go.
    fn set_stuck(&self, hope: bool, core: &mut FrugalContents) {
        let hope = hope
            || self.futile.is_some_and(|futile| futile.has_hope(core))
            || self.parts.has_hope(core)
            || core.kit.staging.has_puts();
        core.kit.room.set_stuck(!hope);
    }

    fn choose(&mut self, core: &mut FrugalContents) {
        // The room of those that are being emptied comes back first, where it is scarce.
        let is_scarce = core.kit.volume.blocks.free_count() < LEAST_FREE && self.coming() > 0;
        if self.victim.is_some() || is_scarce {
            return;
        }
        let block_bytes = block_bytes(core.kit.volume.geometry());
        let round = self
            .round
            .get_or_insert(LogRound { left: core.log.len() as u32 + 1, ..LogRound::default() });
        if round.left == 0 {
            let won = round.won >= block_bytes as i64;
            let (later, until) = (round.later, round.until);
            self.round = None;
            if !won {
                self.futile = Some(Futile::now(core, until, later >= block_bytes));
            }
            return;
        }
        let Some(&block) = core.log.front() else {
            round.left = 0;
            return;
        };
        let entry = core.kit.volume.blocks.get(block);
        if matches!(entry.state, BlockState::Open(_)) {
            // All of the log is the block that is being written.
            round.left = 0;
            return;
        }
        if entry.state != BlockState::Sealed || entry.readable < entry.pages {
            return;
        }
        round.left -= 1;
        self.begin(block, core);
    }

    fn begin(&mut self, block: BlockId, core: &mut FrugalContents) {
        core.kit.volume.blocks.begin_victim(block);
        let budget = rewrite::budget(self.won_before, core);
        let mut victim = TailVictim::new(block, budget);
        // What could not be read when the store was opened is in no chain, even if it is read now.
        victim.damaged = core.kit.volume.blocks.has_unread_in(block) && !is_planted!(ErasesUnread);
        if let Some(next) = self.ahead.take(block) {
            victim.go_on(&next, core);
        }
        self.victim = Some(victim);
    }

    /// How many blocks are to be read while one is emptied: one of those that will have to be emptied then;
    /// more where puts are refused soon.
    fn wanted_ahead(&self, core: &FrugalContents) -> usize {
        let blocks = &core.kit.volume.blocks;
        let coming = blocks.free_count() + self.coming() + 1;
        let left = blocks.low_water().saturating_sub(coming) as usize;
        let most = match coming <= blocks.floor() + 1 {
            true => ahead::MOST_BLOCKS,
            false => usize::from(rewrite::is_worthwhile(core)),
        };
        if self.victim.is_some() && self.futile.is_none() { left.min(most) } else { 0 }
    }

    fn read_victim(&mut self, core: &mut FrugalContents) {
        let Some(victim) = &mut self.victim else { return };
        if !victim.reading {
            victim.reading = read_on(victim.block, &mut victim.next_page, &mut core.kit.volume);
        }
    }

    /// Moves fences out of the log's tail, as far as there is room.
    fn move_fences(&mut self, core: &mut FrugalContents) {
        let Some(victim) = &mut self.victim else { return };
        while let Some(&(keyspace, known)) = victim.fences.last() {
            // Others have been moved before, or a younger one stands for them.
            if core.spaces.get(keyspace).is_some_and(|space| space.fences.contains(&known)) {
                let record = fence_record(keyspace, known.version);
                let Some(to) = core.append(&record, 0, Held::NOTHING, 0) else {
                    return self.cramped(0, Timestamp::ZERO, core);
                };
                core.spaces.ensure(keyspace).add_fence(Fence { page: to.0, ..known });
            }
            victim.fences.pop();
        }
    }

    /// Moves what memory knows to be wanted out of the log's tail. Where it knows that no more, or there
    /// is no room, the buckets are gathered.
    fn move_known(&mut self, serving: &mut ServingWalks<'_>) {
        let Some(victim) = &mut self.victim else { return };
        let core = &mut *serving.core;
        if !victim.is_read(core.kit.volume.blocks.get(victim.block).readable) {
            return;
        }
        victim.ask_beside(&self.aside);
        let before = core.kit.volume.writer.ordinal(StreamId::Hot);
        while let Some((bucket, mut records)) = victim.moving.pop_first() {
            if victim.buckets.contains(&bucket) {
                continue;
            }
            records.retain(|one| one.fate(core) != TailFate::Dead);
            let lengths = || records.iter().map(|one| one.bytes() + layout::SLOT_BYTES);
            // What could not be read may be wanted, and what lies behind it.
            let asks = victim.damaged
                || records.iter().any(|one| one.fate(core) == TailFate::Asks)
                || self.jobs.contains_key(&bucket)
                || !core.buckets.older(bucket).is_empty()
                || !rewrite::has_room_at_all(lengths(), core);
            if asks {
                victim.buckets.insert(bucket);
                continue;
            }
            victim.own += lengths().sum::<usize>() as u64;
            tail::append(bucket, &records, victim.block, core);
            serving.reads.rewritten(bucket);
        }
        if let Some(round) = &mut self.round {
            round.won -= rewrite::grown_since(before, core) as i64;
        }
    }

    /// The bucket to gather next, and what for; nothing while it is being rewritten for another
    /// reason: after that.
    fn next_to_gather(&self, core: &FrugalContents) -> Option<(u32, Why)> {
        let blocks = &core.kit.volume.blocks;
        if self.jobs.len() >= AT_ONCE {
            return None;
        }
        // Not before all its pages are read: a bucket that is in several would leave it twice.
        let read = |victim: &&TailVictim| victim.is_read(blocks.get(victim.block).readable);
        let in_tail = || {
            let victim = self.victim.as_ref().filter(read)?;
            victim.buckets.first().map(|&bucket| (bucket, Why::Tail))
        };
        let in_pieces = || {
            let repair = self.next_repair(blocks)?;
            Some((self.repairs[repair].bucket, Why::Repair))
        };
        let displaced = self.failed.next_bucket().map(|bucket| (bucket, Why::Displaced));
        let long = || {
            let may_shorten =
                self.has_room_for_long() && rewrite::may_shorten(self.won_before, core);
            let bucket = may_shorten.then(|| core.long_chains.first()).flatten();
            bucket.map(|bucket| (bucket, Why::Long))
        };
        let next = displaced.or_else(in_tail).or_else(long).or_else(in_pieces);
        next.filter(|(bucket, _)| !self.jobs.contains_key(bucket))
    }

    fn gather_more(&mut self, serving: &mut ServingWalks<'_>) {
        while let Some((bucket, why)) = self.next_to_gather(serving.core) {
            let repair = self.repairs.iter().position(|repair| repair.bucket == bucket);
            match (why, &mut self.victim) {
                (Why::Displaced, _) => self.failed.take(bucket),
                (Why::Long, _) => {
                    serving.core.long_chains.take(bucket);
                    self.long_jobs += 1;
                }
                (Why::Tail, Some(victim)) => {
                    victim.buckets.pop_first();
                    victim.under_way += 1;
                }
                _ => _ = repair.and_then(|at| self.repairs.remove(at)),
            }
            self.jobs.insert(bucket, BucketJob { whole: None, why, failures: 0 });
            let is_tail = why == Why::Tail;
            let early = is_tail.then(|| serving.reads.early.take(bucket)).flatten();
            if let Some(early) = early {
                self.gathered(early, serving);
            } else if !is_tail || !serving.reads.adopt(bucket) {
                let gathering = serving.core.gathering(bucket, None);
                serving.gather(Owner::Rewriting, gathering);
            }
        }
    }

    /// A bucket is gathered.
    pub(super) fn gathered(&mut self, gathering: Gathering, serving: &mut ServingWalks<'_>) {
        let is_long = self.jobs.get(&gathering.bucket).is_some_and(|job| job.why == Why::Long);
        let stale = is_long && is_planted!(ShortensStale);
        let all = if stale { Some(gathering) } else { self.completed(gathering, serving) };
        let Some(gathering) = all else { return };
        if is_long {
            self.shorten(&gathering, serving);
        } else {
            self.waiting.push_back(gathering);
        }
    }

    /// A look-up has gone through a chain that has grown: the bucket is written whole, as nobody has to
    /// follow the chain again for that.
    pub(super) fn walked(&mut self, gathering: Gathering, serving: &mut ServingWalks<'_>) {
        let (core, bucket) = (&mut *serving.core, gathering.bucket);
        if self.jobs.contains_key(&bucket)
            || self.jobs.len() >= AT_ONCE
            || !self.has_room_for_long()
            || !core.buckets.is_worth_a_rewriting(bucket)
            || !rewrite::may_shorten(self.won_before, core)
        {
            return;
        }
        core.long_chains.take(bucket);
        self.long_jobs += 1;
        self.jobs.insert(bucket, BucketJob { whole: None, why: Why::Long, failures: 0 });
        if gathering.is_over() || is_planted!(HandsOverParts) {
            self.gathered(gathering, serving);
        } else {
            serving.gather_on(Owner::Rewriting, gathering);
        }
    }

    /// Whether one more bucket may be gathered because its chain is long.
    fn has_room_for_long(&self) -> bool {
        self.long_jobs < LONG_AT_ONCE || is_planted!(ShortensManyAtOnce)
    }

    /// Jobs whose buckets are written together.
    fn jobs_to_wait_for(&self) -> usize {
        self.jobs.len() - self.long_jobs
    }

    /// Writes a bucket with a long chain whole, if there is room; nobody waits for it.
    fn shorten(&mut self, gathering: &Gathering, serving: &mut ServingWalks<'_>) {
        let (core, bucket) = (&mut *serving.core, gathering.bucket);
        let verdict = keep::judge(gathering, Leaving::Nothing, false, core);
        if rewrite::may_shorten(self.won_before, core)
            && rewrite::has_room_to_shorten(gathering, &verdict, core)
        {
            rewrite::append_whole(gathering, &verdict, core);
            serving.reads.rewritten(bucket);
        } else {
            // It is noted again when it has grown by as much.
            core.buckets.forget_detours(bucket);
        }
        _ = self.done(bucket);
    }

    /// What was gathered, with what was linked in front meanwhile. Where the device has to be asked for
    /// that, nothing: it comes back.
    fn completed(
        &mut self,
        mut gathering: Gathering,
        serving: &mut ServingWalks<'_>,
    ) -> Option<Gathering> {
        let bucket = gathering.bucket;
        let job = self.jobs.get_mut(&bucket)?;
        if job.why == Why::Tail && is_planted!(TrustsEarly) {
            return Some(gathering);
        }
        if let Some(mut whole) = job.whole.take()
            && gathering.joined
        {
            whole.put_in_front(&gathering);
            whole.began = gathering.began;
            gathering = whole;
        }
        let core = &*serving.core;
        let mut front = core.gathering(bucket, Some(&gathering));
        while let Some(page) = front.page(&core.buckets, &core.kit.volume.blocks) {
            let Some(bytes) = core.kit.volume.page_in_group(PageId(page)) else { break };
            if front.look(bytes, true, &core.buckets).is_err() {
                break;
            }
        }
        if front.joined {
            gathering.put_in_front(&front);
        } else if front.is_over() {
            // All of the chain is in memory: what was gathered before is passed over by now.
            gathering = front;
        } else if !gathering.is_all(&core.buckets) {
            let front = core.gathering(bucket, Some(&gathering));
            job.whole = Some(gathering);
            serving.gather(Owner::Rewriting, front);
            return None;
        }
        Some(gathering)
    }

    /// A bucket cannot be gathered. After some more trials the blocks that have a part of it stay; what
    /// could not be programmed stays in memory.
    pub(super) fn damaged(&mut self, owner: Owner, bucket: u32, serving: &mut ServingWalks<'_>) {
        match owner {
            Owner::Rewriting => {
                let Some(job) = self.jobs.get_mut(&bucket) else { return };
                job.failures += 1;
                if job.failures < MOST_FAILURES {
                    job.whole = None;
                    let again = serving.core.gathering(bucket, None);
                    return serving.gather(Owner::Rewriting, again);
                }
                self.damaged_buckets.insert(bucket);
                if job.why == Why::Displaced {
                    self.jobs.remove(&bucket);
                } else if self.done(bucket)
                    && let Some(victim) = &mut self.victim
                {
                    victim.damaged = true;
                }
            }
            Owner::Parts(block) => self.parts.damaged(block),
            Owner::Early => _ = serving.reads.early.forget(bucket),
            Owner::Scan(_) => {}
        }
    }

    fn write_waiting(&mut self, serving: &mut ServingWalks<'_>) {
        let bytes: usize = self.waiting.iter().map(Gathering::bytes).sum();
        if self.jobs_to_wait_for() > self.waiting.len() && bytes < MOST_WAITING {
            return;
        }
        if self.is_stalled(serving.core) {
            return;
        }
        let count = self.waiting.len();
        for _ in 0..count {
            let Some(gathering) = self.waiting.pop_front() else { break };
            // Something may have been linked in front since.
            if let Some(gathering) = self.completed(gathering, serving) {
                self.rewrite(gathering, serving);
            }
        }
        let is_stalled =
            count > 0 && self.waiting.len() == count && self.jobs_to_wait_for() == count;
        self.stalled = is_stalled.then(|| self.circumstances(serving.core));
    }

    /// Appends what of a bucket lies in pages that could not be programmed.
    fn move_displaced(&mut self, gathering: Gathering, serving: &mut ServingWalks<'_>) {
        let (core, bucket) = (&mut *serving.core, gathering.bucket);
        let displaced = self.failed.displaced(&gathering, core);
        if displaced.contains(&true) {
            let verdict = keep::judge(&gathering, Leaving::Records(&displaced), false, core);
            let is_displaced = |at: usize| displaced[at];
            if !rewrite::has_room_for(&gathering, &verdict, is_displaced, core) {
                return self.waiting.push_back(gathering);
            }
            rewrite::append_displaced(&gathering, &verdict, is_displaced, core);
            if !core.buckets.older(bucket).is_empty() {
                self.want_repair(bucket, (0, 0));
            }
            serving.reads.rewritten(bucket);
        }
        _ = self.done(bucket);
    }

    /// Appends what is kept of a bucket whose records are all here.
    fn rewrite(&mut self, gathering: Gathering, serving: &mut ServingWalks<'_>) {
        if self.jobs.get(&gathering.bucket).is_some_and(|job| job.why == Why::Displaced) {
            return self.move_displaced(gathering, serving);
        }
        let (core, bucket) = (&mut *serving.core, gathering.bucket);
        let tail = self.victim.as_ref().map(|victim| victim.block);
        let blocks = &core.kit.volume.blocks;
        if let Some(victim) = &mut self.victim {
            victim.ask_forgotten(&gathering, &self.aside, core);
        }
        let in_tail = |at: usize| gathering.is_in(at, tail, blocks);
        let tail = tail.filter(|_| (0..gathering.records.len()).any(in_tail));
        let is_whole = core.buckets.older(bucket).is_empty();
        if tail.is_none() && is_whole {
            _ = self.done(bucket);
            return;
        }
        // Only then nothing older than what was gathered is in a block that is not erased.
        let nothing_behind = tail.is_some() && is_whole && !self.aside.may_have(bucket);
        let comes_back = self.parts.is_leaving(bucket) || !self.damaged_buckets.is_empty();
        let leaving = tail.map_or(Leaving::Nothing, Leaving::Block);
        let verdict = keep::judge(&gathering, leaving, nothing_behind && !comes_back, core);
        let weight = Weight::of(&gathering, &verdict);
        let before = core.kit.volume.writer.ordinal(StreamId::Hot);
        let dead_parts = core.counts.dead_part_bytes;
        let budget = self.victim.as_ref().map_or(0, |victim| victim.budget);
        let way = rewrite::choose(&gathering, &verdict, weight, tail, budget, core);
        match (way, tail) {
            (Way::Whole, _) => rewrite::append_whole(&gathering, &verdict, core),
            (Way::Moved, Some(block)) => {
                rewrite::append_moved(&gathering, &verdict, block, core);
            }
            (Way::Waits, Some(_)) => {
                let later = verdict.kept().map(|kept| kept.later).sum();
                self.waiting.push_back(gathering);
                return self.cramped(later, verdict.until, serving.core);
            }
            (Way::Moved | Way::Waits, None) => {
                // It is put together when there is room to spare.
                let refused = (blocks.free_count(), blocks.clean_count());
                self.want_repair(bucket, refused);
                _ = self.done(bucket);
                return;
            }
        }
        if let Some(victim) = self.victim.as_mut().filter(|_| tail.is_some()) {
            victim.forgets |= verdict.forgets();
            victim.own += weight.own();
            if way == Way::Whole {
                victim.budget = victim.budget.saturating_sub(weight.beside());
            }
        }
        if let Some(round) = self.round.as_mut().filter(|_| tail.is_some()) {
            let own = verdict
                .kept()
                .filter(|kept| gathering.is_in(kept.at, tail, &core.kit.volume.blocks));
            // Whatever a whole bucket takes beside is an investment.
            let grown = rewrite::grown_since(before, core);
            round.won -= if way == Way::Whole { weight.share(grown) } else { grown } as i64;
            round.won += (core.counts.dead_part_bytes - dead_parts) as i64;
            round.later += own.map(|kept| kept.later).sum::<u64>();
            round.until = round.until.max(verdict.until);
        }
        serving.reads.rewritten(bucket);
        _ = self.done(bucket);
    }

    /// A bucket is done with; whether that was for the victim's sake.
    fn done(&mut self, bucket: u32) -> bool {
        let why = self.jobs.remove(&bucket).map(|job| job.why);
        match why {
            Some(Why::Displaced) => self.failed.done(bucket),
            Some(Why::Long) => self.long_jobs -= 1,
            _ => {}
        }
        if let Some(victim) = self.victim.as_mut().filter(|_| why == Some(Why::Tail)) {
            victim.under_way -= 1;
        }
        why == Some(Why::Tail)
    }

    /// There is no room to rewrite a bucket: only less that is kept helps.
    fn cramped(&mut self, later: u64, until: Timestamp, core: &mut FrugalContents) {
        let blocks = &core.kit.volume.blocks;
        let idle =
            self.coming() == 0 && self.parts.rests() && blocks.clean_count() == blocks.free_count();
        if idle && core.kit.room.may_grow(&core.kit.volume) == 0 {
            self.set_stuck(later > 0 && core.spaces.marks.collection() < until, core);
        }
    }

    fn finish_victim(&mut self, ServingWalks { core, reads, .. }: &mut ServingWalks<'_>) {
        let pages_of = |block: BlockId| core.kit.volume.blocks.get(block).readable;
        let victim = self.victim.take_if(|victim| victim.is_empty(pages_of(victim.block)));
        let Some(victim) = victim else { return };
        let block = victim.block;
        debug_assert_eq!(core.log.front(), Some(&block), "the log's tail");
        core.log.pop_front();
        core.tail_pages.left(block);
        reads.early.left(block);
        core.wholes.tail_left();
        core.left_log(victim.records, victim.bytes);
        if victim.damaged || victim.stays || core.kit.volume.is_bad(block) {
            core.kit.volume.blocks.quarantine(block);
            self.aside.unknown |= victim.damaged;
            self.aside.buckets.extend(victim.all_buckets);
            return;
        }
        let leads_there = |page: u32| core.kit.volume.blocks.of(PageId(page)) == block;
        debug_assert!(
            !core.translations.loose_pages().any(leads_there),
            "nothing else leads to a loose version, and this one goes with its block"
        );
        core.translations.set_horizon(victim.youngest);
        self.emptied(block, victim.forgets, victim.all_buckets, core);
        let block_bytes = block_bytes(core.kit.volume.geometry());
        self.won_before = block_bytes.saturating_sub(victim.own);
        if let Some(round) = &mut self.round {
            round.won += block_bytes as i64;
        }
    }

    /// A block of parts is done with. Old heads are void now: the log may have something to win.
    fn empty_of_parts(&mut self, left: Left, core: &mut FrugalContents) {
        match left {
            Left::Empty(block) if !core.kit.volume.is_bad(block) => {
                self.emptied(block, false, BTreeSet::new(), core);
                self.futile = None;
            }
            Left::Empty(block) => core.kit.volume.blocks.quarantine(block),
            Left::Damaged(block) => {
                core.kit.volume.blocks.quarantine(block);
                self.aside.unknown = true;
            }
        }
    }

    /// The open page is not ended for it: that would cost a page for every block.
    fn emptied(
        &mut self,
        block: BlockId,
        forgets: bool,
        buckets: BTreeSet<u32>,
        core: &mut FrugalContents,
    ) {
        let ordinal = core.kit.volume.writer.ordinal(StreamId::Hot);
        self.emptied.push(Emptied { block, ordinal, forgets, buckets });
        core.counts.collected_blocks += 1;
    }
}
