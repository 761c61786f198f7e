//! Blocks on their way to be erased: what still lives in them moves elsewhere.
//!
//! ```text
//!   read, 512 KiB at a time ─► per record: dead │ survivor ─► cold stream, index moved
//!                                               │ large value ─► page read ─► staging
//!     ─► wait until survivors are durable and readers are gone ─► erase ─► free
//! ```
//!
//! A tombstone goes only when its key has no older record on flash at all and the caller has
//! promised that none will come (the replay floor). A block with damaged pages is emptied of what
//! can be saved and then left alone. So is one of which recovery could not read a page, although that may be
//! read now: nothing of it is in the index. So is one with a failed program, whose other pages are taken
//! from the writer's memory, and one that the device calls bad.
//!
//! Hidden dependencies that this part made explicit: large values leave a victim through page reads
//! and the staging area, which report back ([`Victims::restaged`] and the like); parts that die on
//! the way let the collector search anew.
//!
//! Invariants: a block is erased only when everything that moved out of it is durable, no value is
//! on its way out of it, and nobody reads in it; `restaging` counts the values on their way.

use timestone_flash::{AlignedBuffer, BlockId, PAGE_BYTES, PageId};
use timestone_types::{KeyspaceId, Version, is_planted};

use super::super::index::{Ahead, Assessment, KeyId, Location, NODES_OF_RECORD};
use super::super::locate::{head_is_void, is_there};
use super::super::reads::{For, PendingReads, Waiter};
use super::super::space::{Fence, Spaces};
use super::super::stats::CollectionStats;
use super::victim::{
    Chunk, LeavingValue, MAX_RESTAGE_FAILURES, MAX_RESTAGING, RecordOfEpoch, SURVIVORS, ValueId,
    Victim, VictimTurn,
};
use crate::kit::Kit;
use crate::kit::blocks::Blocks;
use crate::kit::staging::Staging;
use crate::kit::volume::Volume;
use crate::kit::writer::{StreamId, Writer};
use crate::layout::{self, LargeHead, PageKind, Record, RecordKind};
use crate::limits::GROUP_PAGES;

/// All victims.
#[derive(Default)]
pub(in super::super) struct Victims {
    list: Vec<Victim>,
    counts: CollectionStats,
}

impl Victims {
    /// What collection came to since opening.
    pub(in super::super) fn counts(&self) -> CollectionStats {
        self.counts
    }

    /// How many were chosen.
    pub(super) fn len(&self) -> usize {
        self.list.iter().filter(|victim| !victim.failed).count()
    }

    /// The blocks that are being emptied.
    pub(in super::super) fn blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.list.iter().map(|victim| victim.block)
    }

    /// How many will be free as soon as their survivors are durable. (A damaged one is not going to
    /// be free.)
    pub(super) fn coming(&self) -> usize {
        self.list.iter().filter(|victim| victim.barrier.is_some() && !victim.damaged).count()
    }

    /// Whether one is not empty yet.
    pub(super) fn are_emptying(&self) -> bool {
        self.list.iter().any(|victim| victim.barrier.is_none())
    }

    /// How many are being emptied of what needs no turn: where space is short, those that need room
    /// for large values wait for each other.
    pub(super) fn busy(&self) -> usize {
        let busy = |victim: &&Victim| victim.barrier.is_none() && victim.large.is_empty();
        self.list.iter().filter(busy).count()
    }

    /// How many are being emptied of records, and may need room for those before they give any. What only waits does not
    /// count: for values on their way, for its turn, for what is durable.
    pub(super) fn emptying(&self) -> u32 {
        let emptying = |victim: &&Victim| {
            victim.barrier.is_none() && victim.large.is_empty() && victim.restaging == 0
        };
        self.list.iter().filter(emptying).count() as u32
    }

    /// Whether the next pump can do something: what waits for the device, for a value on its way, or
    /// for another victim is woken by these.
    pub(in super::super) fn has_work(&self, volume: &Volume, staging: &Staging) -> bool {
        let may_advance = |at: usize| {
            let restages = |victim: &Victim| {
                victim.may_restage(VictimTurn::of(&self.list, at), volume, staging)
            };
            self.list[at].may_advance(volume, restages)
        };
        (0..self.list.len()).any(may_advance)
    }

    /// Whether some victim waits for its survivors to become durable.
    pub(in super::super) fn waits(&self, writer: &Writer) -> bool {
        self.list.iter().any(|victim| victim.barrier.is_some() && !victim.is_durable(writer))
    }

    fn find(&mut self, block: BlockId) -> Option<&mut Victim> {
        self.list.iter_mut().find(|victim| victim.block == block)
    }

    /// One more block is emptied.
    pub(super) fn begin(&mut self, block: BlockId, volume: &mut Volume) {
        debug_assert!(self.find(block).is_none());
        volume.blocks.begin_victim(block);
        // What could not be read when the store was opened is not known, even if it is read now.
        let is_unread = volume.blocks.has_unread_in(block) && !is_planted!(ErasesUnread);
        let damaged = volume.is_bad(block) || is_unread;
        self.list.push(Victim { damaged, ..Victim::new(block, &volume.blocks) });
    }

    /// A program of a block has failed: the block is emptied.
    pub(in super::super) fn begin_failed(&mut self, block: BlockId, volume: &mut Volume) {
        debug_assert!(self.find(block).is_none(), "what is programmed is not collected");
        volume.blocks.begin_victim(block);
        let victim = Victim::new(block, &volume.blocks);
        self.list.push(Victim { damaged: true, failed: true, ..victim });
    }

    /// A block could not be erased: what was collected in it stays dead, and so does what was moved out of it.
    pub(in super::super) fn erase_failed(&mut self, block: BlockId, spaces: &mut Spaces) {
        if let Some(at) = self.list.iter().position(|victim| victim.block == block) {
            let mut victim = self.list.remove(at);
            assert!(victim.erasing && victim.restaging == 0, "it was empty when it was erased");
            if !is_planted!(ForgetsUnerased) {
                victim.count_copies(spaces);
            }
        }
    }

    /// A block has been erased: the keys whose dead count falls, if it was a victim. What had moved to it
    /// out of others that are not erased yet is counted before that.
    pub(super) fn erased(
        &mut self,
        block: BlockId,
        blocks: &Blocks,
        spaces: &mut Spaces,
    ) -> Option<Vec<RecordOfEpoch>> {
        let at = self.list.iter().position(|victim| victim.block == block)?;
        let victim = self.list.remove(at);
        assert!(victim.erasing && victim.restaging == 0, "it was empty when it was erased");
        let erased = blocks.get(block);
        if SURVIVORS.contains(&erased.stream) && !is_planted!(OutlivesItsMove) {
            let sealed_at = erased.sealed_at();
            let origins = self.list.iter_mut().filter(|one| one.may_have_moved_to(sealed_at));
            origins.for_each(|origin| origin.count_copies(spaces));
        }
        Some(victim.dead)
    }

    /// A large value of a victim has arrived elsewhere, or needs not.
    pub(in super::super) fn restaged(&mut self, block: BlockId) {
        if let Some(victim) = self.find(block) {
            assert!(victim.restaging > 0, "it was on its way");
            victim.restaging -= 1;
        }
    }

    /// A large value has left a victim, and its head was there.
    pub(in super::super) fn head_left(
        &mut self,
        block: BlockId,
        value: ValueId,
        spaces: &mut Spaces,
    ) {
        if let Some(victim) = self.find(block) {
            victim.has_copy(value, spaces);
        }
    }

    /// A large value that left a victim came too late: its head, which was in page `from`, has moved
    /// meanwhile, by itself or with the value, or nobody needs it any more. Looks again whether parts
    /// that somebody may read are still in the victim.
    pub(in super::super) fn restage_again(
        &mut self,
        block: BlockId,
        value: ValueId,
        from: PageId,
        volume: &Volume,
    ) {
        self.restaged(block);
        let head = Some(from).filter(|&page| volume.blocks.of(page) == block);
        if let Some(victim) = self.find(block)
            && !victim.has_large(value)
        {
            debug_assert!(!victim.erasing, "what is erased has nothing left");
            victim.large.push_back(LeavingValue { value, head });
        }
    }

    /// A large value of a victim could not be read.
    pub(in super::super) fn restage_failed(&mut self, block: BlockId) {
        self.restaged(block);
        if let Some(victim) = self.find(block) {
            debug_assert!(!victim.erasing, "what is erased has nothing left");
            victim.damaged = true;
            if victim.failed {
                victim.failures += 1;
                victim.again = victim.failures <= MAX_RESTAGE_FAILURES;
            }
        }
    }

    /// Some pages of a victim have been read.
    pub(in super::super) fn pages_read(
        &mut self,
        number: u64,
        readable: bool,
        bytes: AlignedBuffer,
        volume: &mut Volume,
    ) {
        let (block, first) = volume.first_read(number);
        volume.blocks.unpin(block);
        let count = GROUP_PAGES.min(volume.blocks.get(block).readable - first);
        let Some(victim) = self.find(block) else { return };
        assert!(victim.reading && victim.chunk.is_none(), "one read is under way");
        victim.reading = false;
        (victim.page, victim.record) = (0, 0);
        if readable {
            victim.chunk = Some(Chunk { first, count, bytes });
        } else {
            victim.damaged = true;
            volume.corrupt += 1;
            volume.give(bytes);
        }
    }

    /// Does what can be done for each of them now, and looks at so many pages at most. True when
    /// something died on the way.
    pub(super) fn advance(
        &mut self,
        pages: u32,
        kit: &mut Kit,
        spaces: &mut Spaces,
        reads: &mut PendingReads,
    ) -> bool {
        let Self { list, counts } = self;
        debug_assert!(list.iter().all(|victim| !(victim.erasing && victim.restaging > 0)));
        let mut move_out = MoveOut { pages, parts_died: false, kit, spaces, reads, counts };
        for at in 0..list.len() {
            let turn = VictimTurn::of(list, at);
            move_out.advance(&mut list[at], turn);
        }
        move_out.parts_died
    }

    /// Leaves damaged victims alone out of which everything has moved that could be saved; whether there
    /// were any.
    pub(super) fn set_damaged_aside(&mut self, volume: &mut Volume, spaces: &mut Spaces) -> bool {
        let before = self.list.len();
        self.list.retain_mut(|victim| {
            debug_assert!(!(victim.damaged && victim.erasing), "what is damaged is not erased");
            let done = victim.may_be_set_aside(volume);
            if done {
                victim.count_copies(spaces);
                let (block, failed) = (victim.block, victim.failed);
                tracing::warn!(block = block.0, failed, "a block is emptied and set aside");
                if failed {
                    volume.writer.relocated(block);
                }
                volume.blocks.quarantine(block);
            }
            !done
        });
        self.list.len() < before
    }
}

/// What it takes to move the survivors of victims.
struct MoveOut<'a> {
    /// Pages that may still be looked at.
    pages: u32,
    /// Parts of large values were found dead.
    parts_died: bool,
    kit: &'a mut Kit,
    spaces: &'a mut Spaces,
    reads: &'a mut PendingReads,
    counts: &'a mut CollectionStats,
}

impl MoveOut<'_> {
    /// Does what can be done for one victim now.
    fn advance(&mut self, victim: &mut Victim, turn: VictimTurn) {
        let pages = self.kit.volume.blocks.get(victim.block).pages;
        debug_assert!(victim.next_read <= pages, "no more is read than was written");
        if let Some(chunk) = victim.chunk.take() {
            if self.look_at_chunk(victim, &chunk) {
                victim.chunk = Some(chunk);
                return;
            }
            self.kit.volume.give(chunk.bytes);
        }
        if !victim.reading && victim.next_read < pages {
            return self.read_next(victim, pages);
        }
        if victim.reading {
            return;
        }
        self.restage_some(victim, turn);
        if victim.restaging > 0 || !victim.large.is_empty() {
            return;
        }
        let volume = &mut self.kit.volume;
        if victim.barrier.is_none() {
            victim.barrier = Some(SURVIVORS.map(|stream| volume.writer.ordinal(stream)));
            if volume.blocks.free_count() < super::low_water(&volume.blocks) {
                SURVIVORS.into_iter().for_each(|stream| volume.flush(stream));
            }
            return;
        }
        if victim.may_be_erased(volume) {
            victim.erasing = true;
            self.counts.collected_blocks += 1;
            volume.erase(victim.block);
        }
    }

    fn read_next(&mut self, victim: &mut Victim, pages: u32) {
        let first = victim.next_read;
        let readable = self.kit.volume.blocks.get(victim.block).readable;
        debug_assert!(victim.failed || readable == pages, "only a failed block lacks pages");
        let on_device = first < readable;
        let count = GROUP_PAGES.min(if on_device { readable } else { pages } - first);
        victim.next_read += count;
        debug_assert!(victim.next_read <= pages, "no more is read than was written");
        if !on_device {
            let bytes = self.kit.volume.copy_of_group_pages(victim.block, first, count);
            (victim.page, victim.record) = (0, 0);
            victim.chunk = Some(Chunk { first, count, bytes });
            return;
        }
        victim.reading = true;
        self.kit.volume.read_victim(victim.block, first, count);
    }

    /// Looks at the pages of a chunk. True when the budget (or the space for survivors) ended
    /// first.
    fn look_at_chunk(&mut self, victim: &mut Victim, chunk: &Chunk) -> bool {
        debug_assert!(
            !victim.erasing && victim.page <= chunk.count,
            "what is looked at is still to be emptied"
        );
        while victim.page < chunk.count {
            if self.pages == 0 || self.kit.volume.writer.is_behind() {
                return true;
            }
            let volume = &mut self.kit.volume;
            let page = volume.geometry().page(victim.block, chunk.first + victim.page);
            let at = victim.page as usize * PAGE_BYTES;
            let bytes = &chunk.bytes[at..at + PAGE_BYTES];
            match volume.verify(page, bytes).map(|header| header.kind) {
                Ok(PageKind::Records | PageKind::LargeHeads) => {
                    if !self.look_at_records(victim, page, bytes) {
                        return true;
                    }
                }
                Ok(PageKind::LargePart) => self.look_at_part(victim, bytes),
                Ok(PageKind::Checkpoint) => {}
                Err(_) if volume.blocks.is_hole(page) => {}
                Err(_) => {
                    volume.corrupt += 1;
                    victim.damaged = true;
                }
            }
            self.pages -= 1;
            victim.page += 1;
            victim.record = 0;
        }
        false
    }

    /// Decides about every record of a page. False when there is no space for survivors.
    fn look_at_records(&mut self, victim: &mut Victim, page: PageId, bytes: &[u8]) -> bool {
        debug_assert!(victim.barrier.is_none(), "survivors move before they are waited for");
        self.prefetch_entries(bytes, victim.record);
        for raw in layout::records(bytes).skip(victim.record) {
            match raw.and_then(Record::read_intact) {
                Some(record) => {
                    if !self.look_at_record(victim, page, &record) {
                        return false;
                    }
                }
                None => {
                    self.kit.volume.corrupt += 1;
                    victim.damaged = true;
                }
            }
            victim.record += 1;
        }
        true
    }

    /// Has the index entries of a page's records fetched: collection looks at keys that nobody has
    /// asked for lately.
    fn prefetch_entries(&self, bytes: &[u8], done: usize) {
        let records = layout::records(bytes).skip(done).flatten().filter_map(Record::read);
        let index = |keyspace| self.spaces.index(keyspace);
        Ahead::take_all(
            records.map(|record| (index(record.keyspace), record.hash, NODES_OF_RECORD)),
        );
    }

    /// Decides about one record. False when there is no space for it.
    fn look_at_record(&mut self, victim: &mut Victim, page: PageId, record: &Record<'_>) -> bool {
        debug_assert_eq!(self.kit.volume.blocks.of(page), victim.block, "a record of the victim");
        let marks = self.spaces.marks;
        if record.kind == RecordKind::Fence {
            return self.move_fence(page, record);
        }
        let head = if record.kind.is_large() { LargeHead::read(record.value) } else { None };
        let id = self.spaces.id_of_record(record, head.as_ref());
        let blocks = &self.kit.volume.blocks;
        let key = head.as_ref().is_none_or(|head| head.key_outside == 0).then_some(record.key);
        let Some(space) = self.spaces.get_mut(record.keyspace) else { return true };
        let is_hidden = record.version <= space.fence_at(marks.collection());
        let void = head.as_ref().filter(|head| head_is_void(head, blocks));
        if is_hidden {
            // Nobody knows whether it was counted before.
            let (keyspace, version) = (record.keyspace, record.version);
            if self.spaces.forget_hidden(keyspace, id, version, page.0)
                && !(void.is_some() && is_planted!(VoidKeepsParts))
            {
                self.parts_died(head.as_ref());
            }
            if let Some(space) = self.spaces.get_mut(keyspace) {
                space.key_left(id, key);
            }
            return true;
        }
        if let Some(void) = void {
            let is_named = space.index.forget_void(id, record.version, page.0);
            let is_counted = is_known(void, blocks) && !is_named && space.index.has_dead(id);
            if is_counted {
                victim.dead.push(RecordOfEpoch::new(space, id, record.version));
            }
            space.key_left(id, key);
            return true;
        }
        let expired = marks.has_expired(record.expires_at);
        let droppable = (record.kind.is_tombstone() || expired)
            && record.version.timestamp <= marks.replay_floor();
        match space.index.assess(id, record.version, page.0, marks.collection(), droppable) {
            Assessment::Keep if record.kind.is_large() && (!expired || record.key.is_empty()) => {
                let home = blocks.of(page);
                let apart = head.as_ref().is_some_and(|head| {
                    !head.extents.iter().any(|extent| blocks.of(extent.page) == home)
                });
                if apart {
                    return self.move_record(victim, page, record, id, false);
                }
                let value = (record.keyspace, id, record.version);
                victim.large.push_back(LeavingValue { value, head: Some(page) });
                true
            }
            Assessment::Keep => {
                let moved = self.move_record(victim, page, record, id, expired);
                if moved {
                    self.parts_died(head.as_ref());
                }
                moved
            }
            Assessment::Dead => {
                victim.dead.push(RecordOfEpoch::new(space, id, record.version));
                if is_planted!(LeavesOrderEarly)
                    && let Some(order) = &mut space.order
                {
                    order.gone(record.key);
                }
                true
            }
            Assessment::Untracked => true,
            Assessment::DroppedTombstone => {
                space.key_left(id, key);
                self.counts.dropped_tombstones += 1;
                // Those of a tombstone died when it hid nothing any more.
                if !record.kind.is_tombstone() {
                    self.parts_died(head.as_ref());
                }
                true
            }
        }
    }

    /// The parts of a large value that has expired, or that a fence hides, are dead, as far as they are
    /// there. (Where a younger version came, they were told then.)
    fn parts_died(&mut self, head: Option<&LargeHead<'_>>) {
        let blocks = &mut self.kit.volume.blocks;
        for extent in head.iter().flat_map(|head| &head.extents) {
            if is_there(extent, blocks) {
                blocks.usage(blocks.of(extent.page)).died(extent.pages * PAGE_BYTES as u32);
                self.parts_died = true;
            }
        }
    }

    /// Moves a survivor. What has expired for every reader goes on as a tombstone.
    fn move_record(
        &mut self,
        victim: &mut Victim,
        page: PageId,
        record: &Record<'_>,
        id: KeyId,
        expired: bool,
    ) -> bool {
        let mut copy = *record;
        if expired {
            copy.kind = RecordKind::Tombstone;
            copy.value = &[];
        }
        let latest = self.latest(record.keyspace, id);
        let Some(to) = self.append_survivor(&copy, id, latest) else { return false };
        let volume = &mut self.kit.volume;
        let location = Location::new(to.0, copy.kind.is_tombstone(), !copy.expires_at.is_never());
        let watermark = self.spaces.marks.collection();
        if let Some(space) = self.spaces.get_mut(record.keyspace) {
            let moved = space.index.moved(id, record.version, page.0, location);
            debug_assert!(moved, "a survivor is in the index");
            let is_bare = || !space.index.hides(id) || is_planted!(TombstonesCountAsDead);
            if latest != record.version || (location.tombstone() && is_bare()) {
                volume.blocks.superseded(to, latest.timestamp, watermark);
            }
        }
        // A tombstone that stays hides nothing that is not to be hidden, nor does what has expired.
        if !location.tombstone() {
            victim.has_copy((record.keyspace, id, record.version), self.spaces);
        }
        self.counts.moved_records += 1;
        true
    }

    /// The youngest version of a key.
    fn latest(&self, keyspace: KeyspaceId, id: KeyId) -> Version {
        let latest = self.spaces.get(keyspace).and_then(|space| space.index.latest(id));
        latest.map_or(Version::ZERO, |(version, _)| version)
    }

    /// Writes a survivor to where what dies at the same time is. One that a younger version
    /// supersedes is dead when the watermark has passed that one, as are all others of its block by
    /// then: nothing of it has to be moved again.
    fn append_survivor(&mut self, copy: &Record<'_>, id: KeyId, latest: Version) -> Option<PageId> {
        let volume = &mut self.kit.volume;
        let separate = volume.blocks.may_separate();
        if copy.kind.is_large() {
            if !self.kit.staging.may_be_split(volume.geometry()) {
                return None;
            }
            return volume.append(StreamId::Large, copy, id.check, 0);
        }
        if separate && latest > copy.version {
            let reserve = volume.blocks.reserve() / 2;
            let page = volume.append(StreamId::Superseded, copy, id.check, reserve);
            if page.is_some() {
                return page;
            }
        }
        volume.append(StreamId::Cold, copy, id.check, 0)
    }

    fn move_fence(&mut self, page: PageId, record: &Record<'_>) -> bool {
        let Some(space) = self.spaces.get_mut(record.keyspace) else { return true };
        let known = Fence { version: record.version, page: page.0 };
        if !space.fences.contains(&known) {
            return true;
        }
        let Some(to) = self.kit.volume.append(StreamId::Cold, record, 0, 0) else { return false };
        space.fence_moved(record.version, to.0);
        debug_assert!(space.fences.is_sorted_by_key(|fence| fence.version));
        true
    }

    /// A part of a large value: if the value lives, and its head will not be met in this block, it
    /// must be moved.
    fn look_at_part(&mut self, victim: &mut Victim, bytes: &[u8]) {
        debug_assert!(!victim.erasing, "what is erased was looked at");
        let (part, _) = layout::part_header(bytes);
        let id = KeyId::new(part.hash, part.check);
        let value = (part.keyspace, id, part.version);
        if victim.has_large(value) {
            return;
        }
        let watermark = self.spaces.marks.collection();
        let blocks = &self.kit.volume.blocks;
        let lives = self.spaces.get(part.keyspace).is_some_and(|space| {
            let apart = |place: Location| {
                place.staged().is_none() && blocks.of(PageId(place.page())) != victim.block
            };
            part.version > space.fence_at(watermark)
                && space.index.needed(id, part.version, watermark).is_some_and(apart)
        });
        if lives {
            victim.large.push_back(LeavingValue { value, head: None });
        } else if !blocks.are_all_read() && !is_planted!(DropsHeadless) {
            // Its head may be on a page that the next start reads.
            victim.damaged |= !self.is_known_to_be_dead(value);
        }
    }

    /// Whether a value that is not needed was known: it is in the index, or superseded there.
    fn is_known_to_be_dead(&self, (keyspace, id, version): ValueId) -> bool {
        let watermark = self.spaces.marks.collection();
        self.spaces.get(keyspace).is_some_and(|space| {
            let stands_for = |(known, _): (Version, Location)| {
                known == version || (known > version && known.timestamp <= watermark)
            };
            version <= space.fence_at(watermark) || space.index.chain(id).any(stands_for)
        })
    }

    /// Begins to read large values that must leave a victim.
    fn restage_some(&mut self, victim: &mut Victim, turn: VictimTurn) {
        debug_assert!(victim.restaging <= MAX_RESTAGING, "so many and no more");
        if victim.again && victim.restaging == 0 {
            victim.again = false;
            victim.large.extend(victim.attempted.drain(..));
        }
        while victim.may_restage(turn, &self.kit.volume, &self.kit.staging) {
            let Some(leaving) = victim.large.pop_front() else { return };
            let (keyspace, id, version) = leaving.value;
            let watermark = self.spaces.marks.collection();
            let place = self
                .spaces
                .get(keyspace)
                .and_then(|space| space.index.needed(id, version, watermark));
            let is_elsewhere =
                |place: Location| leaving.head.is_some_and(|head| head.0 != place.page());
            match place {
                Some(place) if place.staged().is_none() && !is_elsewhere(place) => {
                    victim.restaging += 1;
                    if victim.failed {
                        victim.attempted.push(leaving);
                    }
                    let (who, page) = (For::Restage(victim.block), PageId(place.page()));
                    let waiter = Waiter::keyless(who, keyspace, id, version, page);
                    self.reads.wait(waiter, &mut self.kit.volume);
                }
                Some(place) if place.staged().is_some() => {}
                None if is_planted!(LeavesNodes) => {}
                _ => self.forget_head(victim, leaving),
            }
        }
    }

    /// A large value was to leave a victim, and its head is not needed there any more: the watermark has
    /// passed the version above it since, or a fence, or the value has left with its head because of
    /// another block. If the head lies in the victim, nobody may look for it there, and it is gone with
    /// the block, which stays until the head has been read where a fence hides it.
    fn forget_head(&mut self, victim: &mut Victim, LeavingValue { value, head }: LeavingValue) {
        let Some(page) = head else { return };
        let (keyspace, id, version) = value;
        let watermark = self.spaces.marks.collection();
        let Some(space) = self.spaces.get_mut(keyspace) else { return };
        if version <= space.fence_at(watermark) {
            if !is_planted!(NamesErasedHeads)
                && self.spaces.forget_hidden(keyspace, id, version, page.0)
            {
                let dead = (keyspace, id, version, Location::new(page.0, false, false));
                self.reads.note_dead_parts(dead, version.timestamp, &mut self.kit.volume);
            }
        } else if space.index.assess(id, version, page.0, watermark, false) == Assessment::Dead {
            victim.dead.push(RecordOfEpoch::new(space, id, version));
        }
    }
}

/// Whether a head that is void by now was not when the store was opened: then it was named by the index
/// or counted.
fn is_known(head: &LargeHead<'_>, blocks: &Blocks) -> bool {
    head.extents.iter().all(|extent| extent.generation >= blocks.opened(blocks.of(extent.page)))
}

#[cfg(test)]
mod tests {
    use timestone_types::{ClientId, KeyHash, Timestamp};

    use super::super::super::index::Spot;
    use super::*;
    use crate::kit::volume::tests::volume;

    /// Something has moved out of a block, and one of a stream that was sealed since is erased first. How many
    /// dead records are counted.
    fn counted_beside(stream: StreamId) -> u64 {
        let (mut volume, mut spaces, mut victims) =
            (volume(), Spaces::default(), Victims::default());
        let [origin, other] = [StreamId::Hot, stream].map(|stream| {
            let block = volume.blocks.take(stream, 0).expect("free");
            volume.blocks.seal(block);
            victims.begin(block, &mut volume);
            block
        });
        let (keyspace, id) = (KeyspaceId::DEFAULT, KeyId::new(KeyHash(7), 7));
        let version = Version::new(Timestamp::from_nanos(10), ClientId::ZERO);
        let place = spaces.ensure(keyspace);
        let (index, location) = (&mut spaces.list[place].index, Location::new(3, false, false));
        index.put(id, Spot::NewKey, version, location, Timestamp::ZERO);
        victims.head_left(origin, (keyspace, id, version), &mut spaces);
        victims.find(other).expect("it is a victim").erasing = true;
        victims.erased(other, &volume.blocks, &mut spaces).expect("it was one");
        spaces.list[place].index.dead()
    }

    #[test]
    fn copies_are_counted_before_a_block_goes_that_takes_survivors_and_no_other() {
        for stream in StreamId::ALL {
            let expected = u64::from(SURVIVORS.contains(&stream));
            assert_eq!(counted_beside(stream), expected, "{stream:?}");
        }
    }
}
