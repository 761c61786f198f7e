//! The collector: one for flash space and for version retention (SEMEL §3.1 "Garbage collection").
//!
//! ```text
//!   free blocks run short ─► choose a victim (cost-benefit) ─► victims: emptied, erased ─► free
//!             │                 └─ none is worth it ─► stuck (room)    │
//!             └─► grow (room)                                          └─► trial: a gain?
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
//! in circles (see [`trial`]).
//!
//! Hidden dependencies that this part made explicit: the pace follows the bytes that puts wrote,
//! and the shortage what they asked for in vain: both are told with each pump; whether collection
//! wins anything depends on what the staging area wrote for moved values.
//!
//! Invariants: at most [`MAX_VICTIMS`] victims; a search that would repeat the last fruitless one
//! is not made.

mod trial;
mod victim;
pub(super) mod victims;

use timestone_flash::{BlockId, PAGE_BYTES, PageId};
use timestone_types::{Timestamp, is_planted};

use super::index::{Ahead, NODES_OF_DEAD};
use super::reads::PendingReads;
use super::space::Spaces;
use crate::kit::Kit;
use crate::kit::blocks::choice::{Search, choose_least_worn, choose_victim};
use crate::kit::blocks::{Blocks, EraseNeed};
use crate::kit::volume::Volume;
use crate::kit::writer::StreamId;
use crate::limits::MAX_VICTIMS;
use trial::Trial;
use victim::RecordOfEpoch;
use victims::Victims;

/// Pages that one pump looks at, at most: some 300 µs of work.
const MAX_PAGES_PER_PUMP: u32 = 64;
/// Victims that are emptied at once when space is short.
const URGENT_VICTIMS: usize = 4;
/// While less than half of the capacity is in use, only blocks with less than this many thousandths
/// alive are collected: room that nobody asked for is cheaper than moving records.
const NEARLY_DEAD: u32 = 100;
/// While the device can grow, only blocks with less than this many thousandths alive are collected.
const EASY: u32 = 500;
/// Without growth, and with no room for puts, blocks up to this live share are collected.
const HARD: u32 = 970;
/// Blocks that are collected between two looks at the spread of wear.
const BLOCKS_PER_LEVELLING: u64 = 16;
/// Keys whose entries are fetched together when a block has been erased.
const ERASED_TOGETHER: usize = 32;

/// Free blocks beyond the floor that are kept, at most: as many as are emptied at once, and as many
/// again. Each further one would hold nothing, and what lives would be moved more often.
const MOST_AHEAD: u32 = 2 * MAX_VICTIMS as u32;

/// Below this many free blocks collection begins (or the device grows).
pub(super) fn low_water(blocks: &Blocks) -> u32 {
    blocks.low_water().min(blocks.floor() + MOST_AHEAD)
}

/// The collector of one store.
#[derive(Default)]
pub(super) struct Collector {
    pub(super) victims: Victims,
    trial: Trial,
    /// Bytes that puts had written at the last pump.
    put_bytes: u64,
    /// Bytes whose pace is not used up.
    credit: u64,
    /// Free blocks that were asked for last in vain.
    short_of: u32,
    /// How many blocks will have been collected when the spread of wear is looked at next.
    levelling_at: u64,
    /// What the last search looked for, if it found nothing; and what is to be expected.
    fruitless: Option<(SearchKey, Search)>,
}

/// When and for what a victim was searched: a search that repeats this finds the same.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SearchKey {
    clock: u64,
    watermark: Timestamp,
    limit: u32,
    short: bool,
}

/// How scarce free blocks are.
#[derive(Clone, Copy)]
struct Scarcity {
    /// Puts are being refused for want of room.
    short: bool,
    /// Thousandths of the way from the low water down to the floor.
    depth: u32,
}

impl Collector {
    /// What holds between calls.
    #[inline]
    pub(super) fn assert_sound(&self) {
        debug_assert!(self.victims.len() <= MAX_VICTIMS, "so many and no more");
    }

    /// Records died without a write or a move of the watermark: what was looked for in vain may be
    /// found.
    pub(super) fn much_died(&mut self) {
        self.fruitless = None;
        self.trial.forget();
        debug_assert!(self.trial.futile().is_none(), "another look may find something");
    }

    /// A block has been erased: what it held is really gone.
    pub(super) fn erased(&mut self, block: BlockId, volume: &mut Volume, spaces: &mut Spaces) {
        debug_assert!(volume.blocks.get(block).readers == 0, "what is read is not erased");
        self.fruitless = None;
        // A free block that a crash left in doubt is no victim: collection has won nothing by it.
        if let Some(dead) = self.victims.erased(block, &volume.blocks, spaces) {
            self.trial.erased();
            count_down(&dead, spaces);
            debug_assert!(!spaces.name_block(block, volume), "whoever looks there finds nothing");
        }
        volume.erased(block);
    }

    /// A block could not be erased: it is left alone, and what it held counts as dead for good.
    pub(super) fn erase_failed(
        &mut self,
        block: BlockId,
        volume: &mut Volume,
        spaces: &mut Spaces,
    ) {
        self.fruitless = None;
        self.victims.erase_failed(block, spaces);
        volume.erase_failed(block);
        self.assert_sound();
    }

    /// Grows, chooses, moves, erases: a little of each. `put_bytes` are those that puts have
    /// written since opening.
    pub(super) fn pump(
        &mut self,
        put_bytes: u64,
        kit: &mut Kit,
        spaces: &mut Spaces,
        reads: &mut PendingReads,
    ) {
        assert!(put_bytes >= self.put_bytes, "bytes that were put only rise");
        let consumed = put_bytes - core::mem::replace(&mut self.put_bytes, put_bytes);
        bare_tombstones_died(spaces, reads, &mut kit.volume);
        let asked = kit.room.take_asked();
        let blocks = &kit.volume.blocks;
        let (free, low, reserve) = (blocks.free_count(), low_water(blocks), blocks.reserve());
        let ahead = free + self.victims.coming() as u32;
        let floor = blocks.floor();
        assert!(floor < low, "collection begins before puts are refused");
        let scarcity = Scarcity {
            short: free <= reserve || free < asked,
            depth: (low.saturating_sub(ahead) * 1000 / (low - floor)).min(1000),
        };
        if asked > 0 {
            self.short_of = asked;
        }
        self.judge(free > reserve && free >= self.short_of, kit, spaces);
        if ahead < low.max(asked) {
            self.make_room(scarcity, kit, (spaces, reads));
        }
        let pages = self.pages_to_look_at(consumed, scarcity);
        if self.victims.advance(pages, kit, spaces, reads) {
            self.fruitless = None;
        }
        kit.volume.blocks.note_emptying(self.victims.emptying());
        kit.volume.begin_erases(EraseNeed::of(scarcity.short || free <= floor));
        if self.victims.set_damaged_aside(&mut kit.volume, spaces) {
            // What such a block held counts as durable from here on.
            spaces.marks.follow(&kit.volume.writer, &kit.staging);
        }
    }

    /// How many pages of victims this pump looks at.
    fn pages_to_look_at(&mut self, consumed: u64, scarcity: Scarcity) -> u32 {
        // Moving a page's worth wins less than a page: four pages for each one used keep up until
        // blocks are four fifths alive; scarcer blocks raise the pace.
        let pace = if scarcity.depth < 500 { 4 } else { 8 };
        self.credit = (self.credit + consumed * pace).min(u64::from(MAX_PAGES_PER_PUMP) << 12);
        let mut pages = (self.credit / PAGE_BYTES as u64) as u32;
        if scarcity.short {
            pages = MAX_PAGES_PER_PUMP;
        } else if consumed == 0 {
            pages = pages.max(8);
        }
        assert!(pages <= MAX_PAGES_PER_PUMP);
        self.credit -= (u64::from(pages) * PAGE_BYTES as u64).min(self.credit);
        pages
    }

    /// Whether collection wins anything, or goes in circles; `enough` when there are as many free
    /// blocks as were asked for last.
    fn judge(&mut self, enough: bool, kit: &mut Kit, spaces: &Spaces) {
        self.assert_sound();
        let moved =
            [StreamId::Cold, StreamId::Superseded].map(|one| kit.volume.writer.ordinal(one));
        let taken = moved.iter().sum::<u64>() + kit.staging.moved_pages();
        if enough {
            kit.room.set_stuck(false);
            self.trial.begin(taken);
        }
        if self.trial.judge(taken, &kit.volume.blocks, spaces.marks.collection()) {
            kit.room.set_stuck(false);
        }
    }

    /// Chooses a victim, or grows.
    fn make_room(
        &mut self,
        scarcity: Scarcity,
        kit: &mut Kit,
        (spaces, reads): (&Spaces, &PendingReads),
    ) {
        self.assert_sound();
        let can_grow = kit.room.may_grow(&kit.volume) > 0;
        let watermark = spaces.marks.collection();
        let futile = self.trial.futile().filter(|futile| watermark < futile.until);
        match futile.filter(|_| scarcity.short && !can_grow) {
            Some(futile) => kit.room.set_stuck(!futile.hope && !may_win_room(kit, spaces, reads)),
            None => self.search_victim(scarcity, can_grow, kit, (spaces, reads)),
        }
        // Puts that are being refused wait for no victim.
        if can_grow && (scarcity.short || !self.victims.are_emptying()) {
            kit.room.grow(&mut kit.volume);
        }
    }

    /// Begins to empty one more block, if one is worth it. If none is, and puts need room, says
    /// whether there will ever be one.
    fn search_victim(
        &mut self,
        scarcity: Scarcity,
        can_grow: bool,
        kit: &mut Kit,
        (spaces, reads): (&Spaces, &PendingReads),
    ) {
        self.assert_sound();
        let Scarcity { short, depth } = scarcity;
        let blocks = &kit.volume.blocks;
        let wanted = match depth {
            _ if short => URGENT_VICTIMS,
            500.. => 2,
            _ => 1,
        };
        let busy = self.victims.busy();
        // Victims take room before they give any: what they take must not be what puts need now.
        let crowded = !short && blocks.free_count() <= blocks.floor() + busy as u32;
        let full = busy >= wanted || self.victims.len() >= MAX_VICTIMS;
        if full
            || (crowded && self.victims.len() > 0)
            || !blocks.may_empty_another(self.victims.emptying())
        {
            return;
        }
        if !short && self.level(kit) {
            return;
        }
        let blocks = &kit.volume.blocks;
        let roomy = can_grow && blocks.count() < blocks.geometry.max_blocks / 2;
        let limit = live_share_limit(scarcity, can_grow, roomy);
        let watermark = spaces.marks.collection();
        // On a large device a search takes a while, and one page more in use makes no difference.
        let step = u64::from(blocks.count() / 4).max(8);
        let key = SearchKey { clock: blocks.clock() / step, watermark, limit, short };
        let outcome = match self.fruitless {
            Some((last, outcome)) if last == key => outcome,
            _ => choose_victim(blocks, watermark, limit, short),
        };
        self.fruitless = Some((key, outcome));
        match outcome {
            Search::Found(block) => {
                self.fruitless = None;
                self.victims.begin(block, &mut kit.volume);
                // A trial's outcome is waited for.
                let stuck = kit.room.is_stuck() && self.trial.futile().is_some();
                kit.room.set_stuck(stuck);
            }
            Search::Later if short => kit.room.set_stuck(false),
            Search::Nothing if short && !can_grow && self.victims.len() == 0 => {
                kit.room.set_stuck(!may_win_room(kit, spaces, reads));
            }
            Search::Later | Search::Nothing => {}
        }
    }
}

impl Collector {
    /// Begins to empty a block that is worn far less than others, now and then. True when it did.
    fn level(&mut self, kit: &mut Kit) -> bool {
        let collected = self.victims.counts().collected_blocks;
        if collected < self.levelling_at || !kit.volume.device().wears_out() {
            return false;
        }
        self.levelling_at = collected + BLOCKS_PER_LEVELLING;
        let Some(block) = choose_least_worn(&kit.volume.blocks) else { return false };
        self.victims.begin(block, &mut kit.volume);
        let stream = kit.volume.blocks.get(block).stream;
        kit.volume.blocks.rest_next(stream);
        true
    }
}

/// Whether room may come of what collection cannot see yet.
fn may_win_room(kit: &Kit, spaces: &Spaces, reads: &PendingReads) -> bool {
    spaces.are_emptying() || kit.staging.has_puts() || reads.dead_parts() > 0
}

/// Up to which live share, in thousandths, blocks are collected.
fn live_share_limit(scarcity: Scarcity, can_grow: bool, roomy: bool) -> u32 {
    match (roomy, can_grow) {
        (true, _) => NEARLY_DEAD,
        (false, true) => EASY,
        (false, false) if scarcity.short => HARD,
        (false, false) => EASY + (HARD - EASY) * scarcity.depth / 1000,
    }
}

/// The records of a block are gone: the dead counts of their keys fall.
fn count_down(dead: &[RecordOfEpoch], spaces: &mut Spaces) {
    debug_assert!(spaces.list.is_sorted_by_key(|space| space.id), "spaces are found by id");
    for few in dead.chunks(ERASED_TOGETHER) {
        let keys = few.iter();
        Ahead::take_all(
            keys.map(|one| (spaces.index(one.keyspace), one.id.place(), NODES_OF_DEAD)),
        );
        for record in few {
            if let Some(space) = record.counting(spaces) {
                space.index.erased(record.id);
            }
        }
    }
}

/// Tombstones that hide nothing any more are dead from now on, and not before: what seems dead and has to be moved
/// wins no room, however often it is moved. So are the parts of one whose key does not fit a page. (One that is still
/// staged is looked at when its head is written.)
fn bare_tombstones_died(spaces: &mut Spaces, reads: &mut PendingReads, volume: &mut Volume) {
    let watermark = spaces.marks.collection();
    for space in &mut spaces.list {
        for (id, version, place) in space.index.take_bare() {
            if place.staged().is_some() || is_planted!(TombstonesCountAsDead) {
                continue;
            }
            volume.blocks.superseded(PageId(place.page()), version.timestamp, watermark);
            if !is_planted!(KeepsTombstoneParts) {
                reads.note_dead_parts((space.id, id, version, place), version.timestamp, volume);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::volume::tests::{run_until_idle, volume};

    #[test]
    fn only_victims_count_as_tried() {
        let (mut volume, mut collector) = (volume(), Collector::default());
        let block = volume.blocks.take(StreamId::Hot, 0).expect("free");
        volume.blocks.seal(block);
        volume.erase(block);
        // Polled by hand: the collector is told, not the volume.
        while volume.blocks.get(block).state != crate::kit::blocks::BlockState::Free {
            let mut completions = volume.poll();
            for _ in completions.drain(..) {
                collector.erased(block, &mut volume, &mut Spaces::default());
            }
            volume.polled(completions);
        }
        run_until_idle(&mut volume);
        for _ in 0..8 {
            assert!(!collector.trial.judge(0, &volume.blocks, Timestamp::ZERO));
        }
        assert_eq!(collector.trial.futile(), None, "nothing was tried");
    }

    #[test]
    fn the_scarcer_blocks_are_the_more_may_be_alive_in_a_victim() {
        let limit = |short, depth, can_grow, roomy| {
            live_share_limit(Scarcity { short, depth }, can_grow, roomy)
        };
        assert_eq!(limit(true, 1000, true, true), NEARLY_DEAD);
        assert_eq!(limit(true, 1000, true, false), EASY);
        assert_eq!(limit(false, 500, false, false), EASY + (HARD - EASY) / 2);
        assert_eq!(limit(true, 0, false, false), HARD);
    }
}
