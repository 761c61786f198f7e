//! A page-mapped flash translation layer: what is inside a drive that cannot be told anything. It
//! offers logical blocks by the interface of a flash device, and knows nothing of what is above it:
//! any page may be anywhere.
//!
//! ```text
//!   host: read, program, erase (trim), sync, grow       rules: the ledger of every flash device
//!      │
//!   Ftl ── map: logical page → page      journal: makes the map durable
//!      │── blocks: owners of pages, free blocks by wear
//!      │── lanes: open blocks for the host's pages      collector: moves what is alive, erases
//!      ▼
//!   port ─► device
//! ```
//!
//! It is built to be a fair one: programs are spread over several open blocks, in pieces; reads of
//! one page go through without a copy; what collection moves is kept apart from what the host
//! writes; collection is paced; least worn blocks are used first. A tenth of the blocks is spare.
//!
//! Durability is that of a flash device: a program is durable after a sync that was submitted after
//! its completion, an erase when it completes. Both wait for the journal. After a crash the map is
//! read from there; pages that the journal does not name read as zeros, as if they had never been
//! written.
//!
//! Invariants: (1) a page of the map has that logical page as its owner; (2) the map names what has
//! been programmed, the journal what is durable; (3) blocks are erased when the journal has what
//! left them.

mod blocks;
mod collect;
mod journal;
mod lanes;
mod map;
mod recover;
mod requests;
mod shape;
mod slab;
mod stats;
mod task;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use timestone_flash::ledger::Ledger;
use timestone_flash::{
    AlignedBuffer, BlockId, DeviceStats, FlashCompletion, FlashDevice, FlashError, FlashOp,
    Generation, Geometry, PAGE_BYTES, PageId, Rejected, RejectedReason, Token,
};

use crate::error::StoreError;
use crate::kit::port::Port;
use crate::limits::RESERVE_DIVISOR;
use blocks::{Blocks, Content, State};
use collect::PageCollector;
use journal::{Entry, Journal};
use lanes::Lanes;
use map::Map;
use requests::{Erase, Program, Programs, Read};
use slab::Slab;
pub use stats::{FtlMonitor, FtlStats};
use task::Task;

/// Pages of one operation on the device at most: what others wait for behind it on its channel.
const CHUNK_PAGES: u32 = 8;
/// Operations of the host in flight.
const QUEUE_DEPTH: usize = timestone_flash::limits::DEFAULT_QUEUE_DEPTH as usize;
/// When so many blocks fail one after the other, it is the device that has failed.
const MAX_FAILURES: u32 = 8;
/// Why nothing is written any more.
const WRITE_FAILED: &str = "a write of the translation layer failed";

/// How a translation layer is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FtlConfig {
    /// One block in so many is spare, at least.
    pub spare_divisor: u32,
    /// The map is kept durable by a journal. If not, it is in memory only, as in the emulator of the
    /// papers: syncs and erases cost no more than they do below, and nothing is found again when the
    /// device is opened again, which is refused therefore. For measurements.
    pub journaled: bool,
    /// What the host erases is dead at once: it trims. If not, its pages stay alive until it has written
    /// them again, as on a drive that is not told of it. Without a journal only.
    pub trims: bool,
}

impl Default for FtlConfig {
    fn default() -> Self {
        Self { spare_divisor: RESERVE_DIVISOR, journaled: true, trims: true }
    }
}

/// A translation layer over a device. See the module.
pub struct Ftl {
    config: FtlConfig,
    port: Port,
    /// The rules, for logical blocks.
    ledger: Ledger,
    map: Map,
    blocks: Blocks,
    journal: Journal,
    collector: PageCollector,
    /// Open blocks for the host's pages.
    lanes: Lanes,
    tasks: Slab<Task>,
    reads: Slab<Read>,
    programs: Programs,
    /// Pieces of programs that are to be programmed elsewhere: program, index, pages.
    failed_pieces: VecDeque<(u64, u32, u32)>,
    /// Blocks that have failed one after the other.
    failures: u32,
    /// Blocks that have failed since the opening.
    failed_blocks: u32,
    syncs: VecDeque<(Token, u64)>,
    /// Syncs that the device was handed as they are.
    syncing: usize,
    erases: Vec<Erase>,
    growing: bool,
    /// The host's completions, until it polls.
    done: Vec<FlashCompletion>,
    /// Kept for its memory.
    completions: Vec<FlashCompletion>,
    failed: bool,
    host_pages: u64,
    errors: u64,
    misuses: u64,
    monitor: FtlMonitor,
}

impl Ftl {
    /// Opens the layer on a device: reads its map, or makes one on a fresh device; blocking.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the journal does not give a map, and failures of the device.
    pub fn open(device: Box<dyn FlashDevice>, config: FtlConfig) -> Result<Self, StoreError> {
        recover::open(device, config)
    }

    /// Shows its statistics when it has been given away.
    #[must_use]
    pub fn monitor(&self) -> FtlMonitor {
        self.monitor.clone()
    }

    /// What it counts.
    #[must_use]
    pub fn ftl_stats(&self) -> FtlStats {
        FtlStats {
            host_pages: self.host_pages,
            moved_pages: self.collector.moved_pages,
            journal_pages: self.journal.pages(),
            erased_blocks: self.collector.erased_blocks,
            live_pages: self.blocks.live_pages(),
            pages: u64::from(self.blocks.count()) * u64::from(self.blocks.geometry.pages_per_block),
            free_blocks: u64::from(self.blocks.free_count()),
            journal_blocks: u64::from(self.journal.blocks()),
            map_bytes: self.map.bytes() + self.blocks.bytes(),
        }
    }

    /// Ends it and gives the device back, as after a crash of the process.
    #[must_use]
    pub fn into_device(self) -> Box<dyn FlashDevice> {
        self.port.device
    }

    /// Logical blocks of a device of so many.
    fn logical_blocks(&self, blocks: u32) -> u32 {
        shape::logical_blocks(self.blocks.geometry, blocks, self.config.spare_divisor)
    }

    fn failure() -> FlashError {
        FlashError::Failed { reason: WRITE_FAILED }
    }

    /// Nothing is written any more.
    fn fail(&mut self) {
        self.failed = true;
    }

    fn tell(
        &mut self,
        token: Token,
        result: Result<(), FlashError>,
        buffer: Option<AlignedBuffer>,
    ) {
        self.errors += u64::from(result.is_err());
        self.done.push(FlashCompletion { token, result, buffer });
    }

    /// Checks an operation against the rules and takes it on.
    fn admit(&mut self, op: FlashOp) -> Result<(), (FlashError, FlashOp)> {
        if self.failed && !matches!(op, FlashOp::Read { .. }) {
            return Err((Self::failure(), op));
        }
        match op {
            FlashOp::Read { token, page, pages, buffer } => {
                match self.ledger.begin_read(page, pages, &buffer) {
                    Ok(extent) => {
                        let read =
                            Read { token, extent, buffer: Some(buffer), left: 0, error: None };
                        self.start_read(page, read);
                    }
                    Err(error) => {
                        return Err((error, FlashOp::Read { token, page, pages, buffer }));
                    }
                }
            }
            FlashOp::Program { token, page, buffer } => {
                match self.ledger.begin_program(page, &buffer) {
                    Ok(extent) => {
                        self.host_pages += u64::from(extent.pages);
                        let places = self.programs.places();
                        self.programs.push(Program {
                            token,
                            extent,
                            first: page,
                            buffer: Some(buffer),
                            placed: 0,
                            places,
                            failed_pieces: 0,
                            left: 0,
                            error: None,
                            is_told: false,
                        });
                    }
                    Err(error) => return Err((error, FlashOp::Program { token, page, buffer })),
                }
            }
            FlashOp::Erase { token, block } => match self.ledger.begin_erase(block) {
                Ok(()) => self.erases.push(Erase { token, block, appended: None }),
                Err(error) => return Err((error, op)),
            },
            FlashOp::Sync { token } if !self.config.journaled => {
                let task = Token(self.tasks.add(Task::Sync { token }).into());
                self.port.write(FlashOp::Sync { token: task });
                self.syncing += 1;
            }
            FlashOp::Sync { token } => {
                self.syncs.push_back((token, self.journal.appended()));
                self.journal.want();
            }
            FlashOp::Grow { token, blocks } => match self.blocks_to_grow(blocks) {
                Ok(more) => {
                    self.growing = true;
                    let task = Token(self.tasks.add(Task::Grow { token }).into());
                    self.port.write(FlashOp::Grow { token: task, blocks: more });
                }
                Err(error) => return Err((error, op)),
            },
        }
        Ok(())
    }

    /// By how much the device has to grow for so many logical blocks more.
    fn blocks_to_grow(&self, blocks: u32) -> Result<u32, FlashError> {
        if self.growing {
            return Err(timestone_flash::Misuse::Growing.into());
        }
        let wanted = self.ledger.check_growth(blocks)?;
        let (have, most) = (self.blocks.count(), self.blocks.geometry.max_blocks);
        let enough = (have..=most).find(|&sum| self.logical_blocks(sum) >= wanted);
        Ok(enough.unwrap_or(most).saturating_sub(have).max(1))
    }

    /// Asks the device for what a read wants. What was never written is zeros.
    fn start_read(&mut self, first: PageId, read: Read) {
        let pages = read.extent.pages;
        let geometry = self.blocks.geometry;
        let run = |map: &Map, from: u32| {
            let place = map.place(PageId(first.0 + from));
            let follows = |n: &u32| {
                map.place(PageId(first.0 + from + n)) == place.map(|place| PageId(place.0 + n))
                    && place
                        .is_none_or(|place| geometry.index_of(place) + n < geometry.pages_per_block)
            };
            (place, (1..pages - from).take_while(follows).count() as u32 + 1)
        };
        let number = self.reads.add(read);
        let mut from = 0;
        while from < pages {
            let (place, count) = run(&self.map, from);
            let Some(read) = self.reads.get(number) else { return };
            let Some(place) = place else {
                if let Some(buffer) = &mut read.buffer {
                    let bytes = from as usize * PAGE_BYTES..(from + count) as usize * PAGE_BYTES;
                    buffer[bytes].fill(0);
                }
                from += count;
                continue;
            };
            let block = geometry.block_of(place);
            self.blocks.pin(block);
            read.left += 1;
            let (task, buffer) = if count == pages
                && let Some(buffer) = read.buffer.take()
            {
                (Task::Read { read: number, block }, buffer)
            } else {
                let part = Task::ReadPart { read: number, block, offset: from, pages: count };
                (part, self.port.buffer(count))
            };
            let token = Token(self.tasks.add(task).into());
            self.port.read(FlashOp::Read { token, page: place, pages: count, buffer });
            from += count;
        }
        self.end_read(number);
    }

    /// Answers a read that waits for nothing more.
    fn end_read(&mut self, number: u32) {
        if self.reads.get(number).is_none_or(|read| read.left > 0) {
            return;
        }
        let Some(read) = self.reads.take(number) else { return };
        self.ledger.end_read(read.extent.block);
        self.tell(read.token, read.error.map_or(Ok(()), Err), read.buffer);
    }

    /// Some of the pages of a read have come.
    fn read_arrived(
        &mut self,
        number: u32,
        block: BlockId,
        result: Result<(), FlashError>,
        mut put: impl FnMut(&mut Read, &mut Port),
    ) {
        self.blocks.unpin(block);
        if let Some(read) = self.reads.get(number) {
            read.left -= 1;
            if let Err(error) = result {
                read.error = Some(error);
            }
            put(read, &mut self.port);
        }
        self.end_read(number);
    }

    /// Gives the host's pages their places, as far as there is room; says whether there was none.
    fn place_programs(&mut self) -> bool {
        let floor = shape::host_floor(self.map.blocks(), self.blocks.geometry.pages_per_block);
        while let Some(&(number, index, pages)) = self.failed_pieces.front() {
            if self.failed {
                self.failed_pieces.pop_front();
                if let Some(program) = self.programs.get(number) {
                    program.error = Some(Self::failure());
                }
                continue;
            }
            let Some(block) = self.lanes.next(&mut self.blocks, floor) else { return true };
            let placed = self.place_piece(number, index, pages, block);
            self.failed_pieces.pop_front();
            if placed < pages {
                self.failed_pieces.push_front((number, index + placed, pages - placed));
            } else if let Some(program) = self.programs.get(number) {
                program.failed_pieces -= 1;
            }
        }
        while let Some((number, program)) = self.programs.next_to_place() {
            if self.failed {
                program.error = Some(Self::failure());
                continue;
            }
            let (index, left) = (program.placed, program.extent.pages - program.placed);
            let Some(block) = self.lanes.next(&mut self.blocks, floor) else { return true };
            let placed = self.place_piece(number, index, left, block);
            if let Some(program) = self.programs.get(number) {
                program.placed += placed;
            }
        }
        false
    }

    /// Programs some pages of a program from `index` on, `most` at most, to a block with room; how
    /// many.
    fn place_piece(&mut self, number: u64, index: u32, most: u32, block: BlockId) -> u32 {
        let pages = most.min(CHUNK_PAGES).min(self.blocks.room(block));
        let Some(program) = self.programs.get(number) else { return most };
        let content = Content::Host(PageId(program.first.0 + index));
        let place = self.blocks.begin_program(block, pages, content);
        if self.blocks.room(block) == 0 {
            self.lanes.filled(block);
        }
        let own = pages == program.extent.pages;
        let task = Task::Program { program: number, block, index, own };
        let token = Token(self.tasks.add(task).into());
        let buffer = match program.buffer.take() {
            Some(buffer) if own => buffer,
            whole => {
                let mut piece = self.port.buffer(pages);
                let from = index as usize * PAGE_BYTES;
                if let Some(whole) = &whole {
                    piece.copy_from_slice(&whole[from..from + pages as usize * PAGE_BYTES]);
                }
                program.buffer = whole;
                piece
            }
        };
        program.left += 1;
        program.places.push((index, place, pages));
        self.port.write(FlashOp::Program { token, page: place, buffer });
        pages
    }

    /// A piece of a program could not be programmed: elsewhere.
    fn piece_failed(&mut self, number: u64, index: u32) {
        let Some(program) = self.programs.get(number) else { return };
        let Some(at) = program.places.iter().position(|&(first, _, _)| first == index) else {
            return;
        };
        let (_, place, pages) = program.places.swap_remove(at);
        program.failed_pieces += 1;
        (0..pages).for_each(|n| self.blocks.die(PageId(place.0 + n)));
        self.failed_pieces.push_back((number, index, pages));
    }

    /// A block has failed: it is not written any more. When one after the other does, it is the
    /// device.
    fn block_failed(&mut self, block: BlockId, error: &FlashError) {
        self.lanes.filled(block);
        if self.blocks.fail(block) {
            self.failed_blocks += 1;
            self.failures += 1;
            tracing::warn!(%block, %error, "a block of the device has failed");
        }
        if self.failures >= MAX_FAILURES || matches!(error, FlashError::Failed { .. }) {
            self.fail();
        }
    }

    /// Answers programs, in the order of each logical block, and lets the map know.
    fn tell_programs(&mut self) {
        while let Some(program) = self.programs.next_to_tell() {
            let (extent, token) = (program.extent, program.token);
            let (error, buffer) = (program.error.take(), program.buffer.take());
            let readable = self.ledger.end_program(extent, error.is_none());
            for &(index, place, pages) in &program.places {
                let page = PageId(program.first.0 + index);
                for n in 0..pages {
                    let place = PageId(place.0 + n);
                    if readable {
                        let page = PageId(page.0 + n);
                        if let Some(old) = self.map.place(page) {
                            debug_assert!(!self.config.trims, "what was trimmed is nowhere");
                            self.blocks.die(old);
                        }
                        self.map.set(page, place);
                    } else {
                        self.blocks.die(place);
                    }
                }
                if readable {
                    self.journal.append(Entry::Placed { page: page.0, place: place.0, pages });
                }
                // Only now may collection have what is there: the map names it.
                self.blocks.end_program(self.blocks.geometry.block_of(place));
            }
            let result = match error {
                Some(error) => Err(error),
                None if readable => Ok(()),
                None => Err(Self::failure()),
            };
            self.tell(token, result, buffer);
        }
        self.programs.forget_told();
    }

    /// Trims the logical blocks whose erase is due, and answers what the journal has made durable.
    fn tell_durable(&mut self) {
        let mut at = 0;
        while let Some(erase) = self.erases.get_mut(at) {
            let block = erase.block;
            if !self.ledger.erase_is_due(block) {
                at += 1;
                continue;
            }
            if erase.appended.is_none() && !self.failed {
                let generation = self.map.generation(block).next();
                debug_assert!(generation == self.ledger.generation(block).next(), "both count");
                if self.config.trims {
                    for place in self.map.trim(block, generation) {
                        self.blocks.die(place);
                    }
                } else {
                    self.map.erase_untold(block, generation);
                }
                self.journal.append(Entry::Trimmed { block: block.0, generation: generation.0 });
                self.journal.want();
                erase.appended = Some(self.journal.appended());
            }
            let is_durable =
                erase.appended.is_some_and(|appended| self.journal.is_durable(appended));
            if !is_durable && !self.failed {
                at += 1;
                continue;
            }
            let token = erase.token;
            self.erases.swap_remove(at);
            self.ledger.end_erase(block, is_durable);
            self.tell(token, if is_durable { Ok(()) } else { Err(Self::failure()) }, None);
        }
        while let Some(&(token, appended)) = self.syncs.front() {
            let is_durable = self.journal.is_durable(appended);
            if !is_durable && !self.failed {
                break;
            }
            self.syncs.pop_front();
            self.tell(token, if is_durable { Ok(()) } else { Err(Self::failure()) }, None);
        }
    }

    /// Starts what is due, and takes in what has completed; how much that was.
    fn step(&mut self) -> usize {
        self.advance();
        let mut arrived = core::mem::take(&mut self.completions);
        self.port.submit(&mut arrived);
        self.port.device.poll(&mut arrived);
        let count = arrived.len();
        for completion in arrived.drain(..) {
            self.complete(completion);
        }
        self.completions = arrived;
        count
    }

    /// Everything that is due.
    fn advance(&mut self) {
        self.tell_programs();
        self.tell_durable();
        let waits = self.place_programs();
        if self.failed {
            self.tell_programs();
            return;
        }
        let Self { map, blocks, journal, port, tasks, collector, .. } = self;
        collector.pump(waits, map, blocks, journal, port, tasks);
        journal.pump(map, blocks, port, tasks);
        if waits && self.failed_blocks > 0 && self.tasks.len() == 0 {
            tracing::warn!(self.failed_blocks, "the device has lost more blocks than are spare");
            self.fail();
        }
        self.monitor.set(self.ftl_stats());
    }

    /// Hands a completion of the device to whoever asked for it.
    fn complete(&mut self, FlashCompletion { token, result, buffer }: FlashCompletion) {
        let Some(task) = u32::try_from(token.0).ok().and_then(|number| self.tasks.take(number))
        else {
            return;
        };
        let failed = result.is_err();
        match task {
            Task::Read { read, block } => {
                self.port.read_done();
                let mut buffer = buffer;
                self.read_arrived(read, block, result, |read, _| read.buffer = buffer.take());
                return;
            }
            Task::ReadPart { read, block, offset, pages } => {
                self.port.read_done();
                let mut piece = buffer;
                self.read_arrived(read, block, result, |read, port| {
                    let from = offset as usize * PAGE_BYTES;
                    let bytes = pages as usize * PAGE_BYTES;
                    if let (Some(whole), Some(piece)) = (&mut read.buffer, &piece) {
                        whole[from..from + bytes].copy_from_slice(&piece[..bytes]);
                    }
                    if let Some(piece) = piece.take() {
                        port.give(piece);
                    }
                });
                return;
            }
            Task::Program { program: number, block, index, own } => {
                if let Some(program) = self.programs.get(number) {
                    program.left -= 1;
                    if own {
                        program.buffer = buffer;
                    } else if let Some(buffer) = buffer {
                        self.port.give(buffer);
                    }
                }
                match result {
                    Ok(()) => self.failures = 0,
                    Err(error) => {
                        self.blocks.end_program(block);
                        self.piece_failed(number, index);
                        self.block_failed(block, &error);
                    }
                }
                return;
            }
            Task::MoveRead { from, pages } => {
                self.port.read_done();
                match buffer {
                    Some(buffer) if !failed => {
                        self.collector.read(from, pages, buffer, &mut self.blocks);
                    }
                    _ => self.collector.unreadable(from, &mut self.blocks),
                }
                return;
            }
            _ => {}
        }
        let buffer = match (&result, buffer) {
            (Err(error), Some(buffer)) => {
                let Some(buffer) = self.program_failed(task, error, buffer) else { return };
                Some(buffer)
            }
            (_, buffer) => buffer,
        };
        if let Some(buffer) = buffer {
            self.port.give(buffer);
        }
        if let (Task::Erase { block }, Err(error)) = (task, &result) {
            self.collector.not_erased(block, &mut self.blocks);
            return self.block_failed(block, error);
        }
        if let Task::Sync { token } = task {
            self.syncing -= 1;
            if failed {
                self.fail();
            }
            return self.tell(token, result, None);
        }
        if failed && !matches!(task, Task::Grow { .. }) {
            return self.fail();
        }
        let Self { map, blocks, journal, port, tasks, collector, .. } = self;
        match task {
            Task::MoveProgram { from, to, pages } => {
                collector.moved((from, to, pages), map, blocks, journal);
            }
            Task::Erase { block } => collector.erased(block, blocks, port),
            Task::JournalProgram { block } => {
                blocks.end_program(block);
                journal.programmed(port, tasks);
            }
            Task::JournalSync => {
                let appended = journal.appended();
                journal.synced(blocks, port, tasks, |block| collector.drained(block, 0));
                debug_assert!(appended == journal.appended(), "a flush changes nothing");
            }
            Task::Grow { token } => {
                self.growing = false;
                if result.is_ok() {
                    self.grown();
                }
                self.tell(token, result, None);
            }
            _ => {}
        }
    }

    /// A program of the layer's own has failed: its pages go elsewhere. Gives the buffer back where
    /// it was something else.
    fn program_failed(
        &mut self,
        task: Task,
        error: &FlashError,
        buffer: AlignedBuffer,
    ) -> Option<AlignedBuffer> {
        let block = match task {
            Task::MoveProgram { from, to, pages } => {
                self.collector.not_moved((from, to, pages), buffer, &mut self.blocks);
                self.blocks.geometry.block_of(to)
            }
            Task::JournalProgram { block } => {
                self.blocks.end_program(block);
                let Self { blocks, journal, port, tasks, .. } = self;
                journal.not_programmed(buffer, block, blocks, port, tasks);
                block
            }
            _ => return Some(buffer),
        };
        self.block_failed(block, error);
        None
    }

    /// The device has grown.
    fn grown(&mut self) {
        let geometry = self.port.device.geometry();
        self.blocks.geometry.blocks = geometry.blocks;
        while self.blocks.count() < geometry.blocks {
            let generation = self.port.device.generation(BlockId(self.blocks.count()));
            self.blocks.add(State::Free, generation);
        }
        let logical = self.logical_blocks(geometry.blocks);
        self.ledger.grow_to(logical);
        self.map.grow_to(logical);
        self.lanes.spread_over(shape::lanes(geometry.blocks));
    }
}

impl FlashDevice for Ftl {
    fn geometry(&self) -> Geometry {
        self.ledger.geometry()
    }

    fn generation(&self, block: BlockId) -> Generation {
        self.ledger.generation(block)
    }

    fn programmed(&self, block: BlockId) -> Option<u32> {
        self.ledger.programmed(block)
    }

    fn observe(
        &mut self,
        block: BlockId,
        generation: Generation,
        programmed_pages: u32,
    ) -> Result<(), FlashError> {
        self.ledger.observe(block, generation, programmed_pages).map(|_| ())
    }

    fn submit(&mut self, op: FlashOp) -> Result<(), Rejected> {
        if self.in_flight() >= QUEUE_DEPTH {
            return Err(Rejected { reason: RejectedReason::QueueFull, op });
        }
        self.admit(op).map_err(|(error, op)| {
            self.misuses += u64::from(matches!(error, FlashError::Misuse(_)));
            Rejected { reason: RejectedReason::Refused(error), op }
        })
    }

    fn poll(&mut self, completions: &mut Vec<FlashCompletion>) -> usize {
        // Where a descriptor wakes the owner, what follows from a completion has to be started now:
        // nothing else would.
        while self.step() > 0 && self.wake_fd().is_some() {}
        self.advance();
        self.port.submit(&mut self.completions);
        let count = self.done.len();
        completions.append(&mut self.done);
        count
    }

    fn in_flight(&self) -> usize {
        self.reads.len()
            + self.programs.len()
            + self.syncs.len()
            + self.syncing
            + self.erases.len()
            + self.done.len()
            + usize::from(self.growing)
    }

    fn wait(&mut self, timeout: Duration) {
        self.advance();
        self.port.submit(&mut self.completions);
        if self.done.is_empty() && self.completions.is_empty() {
            self.port.device.wait(timeout);
        }
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.port.device.wake_fd()
    }

    fn stats(&self) -> DeviceStats {
        let device = self.port.device.stats();
        DeviceStats {
            errors: device.errors + self.errors,
            misuses: device.misuses + self.misuses,
            ..device
        }
    }
}
