//! The collector of the translation layer: it knows pages, and nothing of what they mean.
//!
//! ```text
//!   free blocks run short ─► victim ─► read what is alive ─► program it to the open block ─► map
//!   everything in it has died ─► victim ──────────────────────────────────┐
//!                             the journal has it ─► nobody reads ─► erase ◄┘─► free
//! ```
//!
//! Which block: by cost and benefit ([`Blocks::choose_victim`]). Paced by shortage: the fewer free
//! blocks there are, the more victims are emptied at once, each by a few reads at a time.
//!
//! Invariant: a victim is erased when the journal has everything that left it, and every erase of a
//! logical block that had pages there.

use std::collections::VecDeque;

use timestone_flash::{AlignedBuffer, BlockId, FlashOp, PAGE_BYTES, PageId, Token};

use timestone_types::is_planted;

use super::blocks::{Blocks, Content};
use super::journal::{Entry, Journal};
use super::lanes::Lanes;
use super::map::{Map, NOWHERE};
use super::slab::Slab;
use super::task::Task;
use super::{CHUNK_PAGES, shape};
use crate::kit::port::Port;

/// Victims that are emptied at once, at most.
const MAX_EMPTYING: usize = 8;
/// Reads of one victim at once.
const MOVES_OF_VICTIM: u32 = 2;
/// Blocks that are erased at once, at most.
const MAX_ERASING: u32 = 16;
/// Dirty blocks that are erased ahead of their use.
const CLEAN_AHEAD: u32 = 8;
/// Beside what the host needs, one block in so many is kept free.
const FREE_DIVISOR: u32 = 50;
/// A victim of which so many reads have failed is left as it is: what can be read of it still is.
const MAX_FAILURES: u32 = 4;

/// A block that is being emptied.
struct Victim {
    block: BlockId,
    /// The next page to look at.
    next: u32,
    /// Pages on their way: operations.
    moving: u32,
    /// Reads that have failed.
    failures: u32,
}

/// Pages that were read and have no place yet.
struct Fetched {
    from: PageId,
    pages: u32,
    buffer: AlignedBuffer,
}

/// The collector.
#[derive(Default)]
pub(super) struct PageCollector {
    emptying: Vec<Victim>,
    /// Empty blocks, and the entry of the journal that each waits for.
    drained: Vec<(BlockId, u64)>,
    erasing: u32,
    /// Open blocks for what is moved.
    lanes: Lanes,
    held: VecDeque<Fetched>,
    /// Pages that had died when a search found no victim.
    fruitless: Option<u64>,
    pub(super) moved_pages: u64,
    pub(super) erased_blocks: u64,
}

impl PageCollector {
    /// Blocks that will be free without another search.
    fn coming(&self) -> u32 {
        (self.emptying.len() + self.drained.len()) as u32 + self.erasing
    }

    /// A block is empty: it is erased when the journal has come so far.
    pub(super) fn drained(&mut self, block: BlockId, appended: u64) {
        self.drained.push((block, appended));
    }

    /// Does what is due. `waits`: the host waits for a free block.
    pub(super) fn pump(
        &mut self,
        waits: bool,
        map: &Map,
        blocks: &mut Blocks,
        journal: &mut Journal,
        port: &mut Port,
        tasks: &mut Slab<Task>,
    ) {
        let (logical, pages) = (map.blocks(), blocks.geometry.pages_per_block);
        let floor = shape::host_floor(logical, pages);
        let target =
            floor + shape::lanes(blocks.count()) + 2 + (blocks.count() / FREE_DIVISOR).max(1);
        while let Some(block) = blocks.take_emptied() {
            self.drained(block, journal.appended());
        }
        self.clean(target, blocks, port, tasks);
        let missing = target.saturating_sub(blocks.free_count() + self.coming());
        if missing > 0 && blocks.dirty_count() == 0 {
            let most = (1 + missing as usize / 2).min(MAX_EMPTYING);
            while self.emptying.len() < most && self.fruitless != Some(blocks.died()) {
                match blocks.choose_victim(waits) {
                    Some(block) => {
                        self.emptying.push(Victim { block, next: 0, moving: 0, failures: 0 })
                    }
                    None => self.fruitless = Some(blocks.died()),
                }
            }
        }
        self.place_held(logical, blocks, port, tasks);
        self.empty(blocks, journal, port, tasks);
        self.erase(blocks.free_count() < target, blocks, journal, port, tasks);
    }

    /// Erases dirty blocks ahead of their use.
    fn clean(&mut self, target: u32, blocks: &mut Blocks, port: &mut Port, tasks: &mut Slab<Task>) {
        while self.erasing < MAX_ERASING
            && blocks.free_count() + self.erasing < target + CLEAN_AHEAD
            && let Some(block) = blocks.take_dirty()
        {
            self.submit_erase(block, port, tasks);
        }
    }

    fn submit_erase(&mut self, block: BlockId, port: &mut Port, tasks: &mut Slab<Task>) {
        let token = Token(tasks.add(Task::Erase { block }).into());
        port.write(FlashOp::Erase { token, block });
        self.erasing += 1;
    }

    /// Reads what is alive in the victims, a little of each.
    fn empty(
        &mut self,
        blocks: &mut Blocks,
        journal: &Journal,
        port: &mut Port,
        tasks: &mut Slab<Task>,
    ) {
        let geometry = blocks.geometry;
        for victim in &mut self.emptying {
            while victim.moving < MOVES_OF_VICTIM && victim.next < geometry.pages_per_block {
                let is_live = |index: u32, blocks: &Blocks| {
                    index < geometry.pages_per_block
                        && blocks.owner(geometry.page(victim.block, index)) != NOWHERE
                };
                if !is_live(victim.next, blocks) {
                    victim.next += 1;
                    continue;
                }
                let first = victim.next;
                while victim.next - first < CHUNK_PAGES && is_live(victim.next, blocks) {
                    victim.next += 1;
                }
                let (from, pages) = (geometry.page(victim.block, first), victim.next - first);
                let token = Token(tasks.add(Task::MoveRead { from, pages }).into());
                let buffer = port.buffer(pages);
                port.read(FlashOp::Read { token, page: from, pages, buffer });
                blocks.pin(victim.block);
                victim.moving += 1;
            }
        }
        let drained = &mut self.drained;
        self.emptying.retain(|victim| {
            let over = victim.next == geometry.pages_per_block && victim.moving == 0;
            if over {
                drained.push((victim.block, journal.appended()));
            }
            !over
        });
    }

    /// Erases the drained blocks that the journal has let go of.
    fn erase(
        &mut self,
        short: bool,
        blocks: &mut Blocks,
        journal: &mut Journal,
        port: &mut Port,
        tasks: &mut Slab<Task>,
    ) {
        let mut at = 0;
        while let Some(&(block, appended)) = self.drained.get(at) {
            if !journal.is_durable(appended) && !is_planted!(ErasesUnjournaled) {
                if short {
                    journal.want();
                }
                at += 1;
            } else if blocks.is_unread(block) && self.erasing < MAX_ERASING {
                self.drained.swap_remove(at);
                blocks.begin_erase(block);
                self.submit_erase(block, port, tasks);
            } else {
                at += 1;
            }
        }
    }

    /// A block has been erased.
    pub(super) fn erased(&mut self, block: BlockId, blocks: &mut Blocks, port: &Port) {
        self.erasing -= 1;
        self.erased_blocks += 1;
        blocks.erased(block, port.device.generation(block));
    }

    /// Pages of a victim have been read.
    pub(super) fn read(
        &mut self,
        from: PageId,
        pages: u32,
        buffer: AlignedBuffer,
        blocks: &mut Blocks,
    ) {
        blocks.unpin(blocks.geometry.block_of(from));
        self.held.push_back(Fetched { from, pages, buffer });
    }

    /// Pages of a victim could not be read: again, or never.
    pub(super) fn unreadable(&mut self, from: PageId, blocks: &mut Blocks) {
        let block = blocks.geometry.block_of(from);
        blocks.unpin(block);
        let Some(victim) = victim_of(&mut self.emptying, from, blocks) else { return };
        victim.moving -= 1;
        victim.failures += 1;
        victim.next = victim.next.min(blocks.geometry.index_of(from));
        if victim.failures == MAX_FAILURES {
            tracing::warn!(%block, "a block of the device cannot be read, and is not used again");
            self.emptying.retain(|victim| victim.block != block);
        }
    }

    /// Programs what was read, as far as there is room.
    fn place_held(
        &mut self,
        logical: u32,
        blocks: &mut Blocks,
        port: &mut Port,
        tasks: &mut Slab<Task>,
    ) {
        let floor = shape::journal_floor(logical, blocks.geometry.pages_per_block);
        while let Some(held) = self.held.front_mut() {
            self.lanes.spread_over(shape::collection_lanes(blocks.count()));
            let Some(block) = self.lanes.next(blocks, floor) else { return };
            let pages = blocks.room(block).min(held.pages);
            let from = held.from;
            let to = blocks.begin_program(block, pages, Content::Moved(from));
            if blocks.room(block) == 0 {
                self.lanes.filled(block);
            }
            let token = Token(tasks.add(Task::MoveProgram { from, to, pages }).into());
            let bytes = pages as usize * PAGE_BYTES;
            self.moved_pages += u64::from(pages);
            if pages == held.pages {
                let Some(mut held) = self.held.pop_front() else { return };
                held.buffer.set_length(bytes);
                port.write(FlashOp::Program { token, page: to, buffer: held.buffer });
                continue;
            }
            let mut piece = port.buffer(pages);
            piece.copy_from_slice(&held.buffer[..bytes]);
            port.write(FlashOp::Program { token, page: to, buffer: piece });
            held.buffer.copy_within(bytes.., 0);
            held.from = PageId(from.0 + pages);
            held.pages -= pages;
            if let Some(victim) = victim_of(&mut self.emptying, from, blocks) {
                victim.moving += 1;
            }
        }
    }

    /// Pages could not be programmed: elsewhere.
    pub(super) fn not_moved(
        &mut self,
        (from, to, pages): (PageId, PageId, u32),
        buffer: AlignedBuffer,
        blocks: &mut Blocks,
    ) {
        for place in (to.0..to.0 + pages).map(PageId) {
            if blocks.owner(place) != NOWHERE {
                blocks.die(place);
            }
        }
        let block = blocks.geometry.block_of(to);
        blocks.end_program(block);
        self.lanes.filled(block);
        self.held.push_front(Fetched { from, pages, buffer });
    }

    /// A block could not be erased.
    pub(super) fn not_erased(&mut self, block: BlockId, blocks: &mut Blocks) {
        self.erasing -= 1;
        blocks.retire(block);
    }

    /// Pages are where they were moved to: as far as they are still needed, the map says so.
    pub(super) fn moved(
        &mut self,
        (from, to, pages): (PageId, PageId, u32),
        map: &mut Map,
        blocks: &mut Blocks,
        journal: &mut Journal,
    ) {
        for n in 0..pages {
            let (old, new) = (PageId(from.0 + n), PageId(to.0 + n));
            let page = blocks.owner(new);
            if page == NOWHERE {
                continue;
            }
            if blocks.owner(old) == page {
                map.set(PageId(page), new);
                journal.append(Entry::Placed { page, place: new.0, pages: 1 });
                blocks.die(old);
            } else {
                blocks.die(new);
            }
        }
        blocks.end_program(blocks.geometry.block_of(to));
        if let Some(victim) = victim_of(&mut self.emptying, from, blocks) {
            victim.moving -= 1;
        }
    }
}

/// The victim whose page this is.
fn victim_of<'a>(
    emptying: &'a mut [Victim],
    from: PageId,
    blocks: &Blocks,
) -> Option<&'a mut Victim> {
    let block = blocks.geometry.block_of(from);
    emptying.iter_mut().find(|victim| victim.block == block)
}
