//! A device in memory that keeps exactly the rules of the real ones, for tests and simulation.
//!
//! ```text
//!   submit ─► waiting ──poll: starts──► started (the medium has changed) ──poll: completes──► completion
//!                                           └─ held back by completions_per_poll, reordered by shuffle
//! ```
//!
//! Nothing here depends on threads or on any clock but the medium's own, which stands still unless
//! a simulator moves it: the same calls and seeds give the same completions.

mod media;

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use timestone_io::AlignedBuffer;

pub use media::{FlashPace, MemoryConfig, MemoryMedia, PowerCut, Unsettled};
use media::{Media, powered_off};

use crate::device::{
    BlockId, DeviceStats, FlashCompletion, FlashDevice, FlashOp, Generation, Geometry, PAGE_BYTES,
    PageId, Rejected, RejectedReason, Token,
};
use crate::dice::FaultDice;
use crate::error::{FlashError, Misuse};
use crate::faults::Fault;
use crate::ledger::{Extent, Ledger};
use crate::pending::PendingOp;

/// A flash device in memory, opened on a [`MemoryMedia`].
#[derive(Debug)]
pub struct MemoryDevice {
    media: MemoryMedia,
    session: u64,
    config: MemoryConfig,
    ledger: Ledger,
    queue: VecDeque<InFlight>,
    shuffle: Option<FaultDice>,
    growing: bool,
    /// Somebody blocks: the next poll completes something whatever the clock says.
    awaited: bool,
    failed: Option<&'static str>,
    stats: DeviceStats,
}

/// An accepted operation.
#[derive(Debug)]
struct InFlight {
    token: Token,
    work: PendingOp,
    buffer: Option<AlignedBuffer>,
    /// Whether the medium has seen it, and what it said.
    outcome: Option<Result<(), FlashError>>,
    /// When it may complete, by the medium's clock.
    due: u64,
    /// A sync covers programs completed up to this moment of the medium.
    moment: u64,
}

impl MemoryDevice {
    /// A device on a fresh medium of its own; keep a [`MemoryMedia`] instead where faults or
    /// restarts are wanted.
    #[must_use]
    pub fn new(config: MemoryConfig) -> Self {
        MemoryMedia::new(config).open()
    }

    pub(crate) fn open(media: MemoryMedia, config: MemoryConfig) -> Self {
        let (session, ledger) = {
            let mut inner = media.lock();
            let fresh = inner.begin_session();
            let generations = inner.generations.iter().copied();
            (
                inner.session,
                Ledger::new(config.pages_per_block, config.max_blocks, generations, fresh),
            )
        };
        Self {
            media,
            session,
            config,
            ledger,
            queue: VecDeque::new(),
            shuffle: config.shuffle.map(FaultDice::new),
            growing: false,
            awaited: false,
            failed: None,
            stats: DeviceStats::default(),
        }
    }

    /// The medium, for ordering faults.
    #[must_use]
    pub fn media(&self) -> &MemoryMedia {
        &self.media
    }

    /// Checks an operation against the rules and counts it in.
    fn admit(&mut self, op: &FlashOp) -> Result<PendingOp, FlashError> {
        if self.media.lock().session != self.session {
            return Err(powered_off());
        }
        PendingOp::admit(op, self.failed, &mut self.ledger, &mut self.growing)
    }

    /// Lets the medium see everything accepted since the last poll.
    fn start(&mut self) {
        self.start_some(usize::MAX);
    }

    /// The same for so many operations, from the front.
    fn start_some(&mut self, most: usize) {
        let mut media = self.media.lock();
        let pages_per_block = self.config.pages_per_block;
        for op in self.queue.iter_mut().filter(|op| op.outcome.is_none()).take(most) {
            let alive = media.session == self.session;
            op.outcome = Some(if alive {
                perform(&mut media, pages_per_block, op)
            } else {
                Err(powered_off())
            });
        }
    }

    /// When an operation accepted now may complete: programs and erases of one block keep their
    /// order.
    fn due(&self, work: PendingOp) -> u64 {
        let due = self.media.lock().due(work.kind(), work.pages());
        let before = |op: &&InFlight| {
            work.is_ordered() && op.work.is_ordered() && op.work.block() == work.block()
        };
        self.queue.iter().filter(before).map(|op| op.due).fold(due, u64::max)
    }

    /// Operations that may complete now, as places in the queue.
    fn note_next_due(&self) {
        let next = self.queue.iter().map(|op| op.due).min();
        let mut media = self.media.lock();
        if media.session == self.session {
            media.pacing.next_due = next;
        }
    }

    /// Which operation completes next: the rules bind programs and erases of one block to their
    /// order.
    fn choose(&mut self) -> usize {
        let now = if self.awaited { u64::MAX } else { self.media.lock().pacing.clock.now() };
        let Some(first) = self.queue.iter().position(|op| op.due <= now) else {
            return self.queue.len();
        };
        let Some(dice) = &mut self.shuffle else { return first };
        let drawn = dice.below(self.queue.len());
        if self.queue[drawn].due > now {
            return first;
        }
        let work = self.queue[drawn].work;
        if matches!(work, PendingOp::Program(_) | PendingOp::Erase(_)) {
            let same_block = |op: &InFlight| op.work.block() == work.block();
            return self.queue.iter().position(same_block).unwrap_or(drawn);
        }
        drawn
    }

    fn complete(&mut self, op: InFlight) -> FlashCompletion {
        let mut result = op.outcome.unwrap_or_else(|| Err(powered_off()));
        let mut media = self.media.lock();
        if media.session != self.session {
            result = Err(powered_off());
        }
        let ok = result.is_ok();
        let alive = media.session == self.session;
        match op.work {
            PendingOp::Read(extent) => {
                self.ledger.end_read(extent.block);
                if ok {
                    self.stats.reads += 1;
                    self.stats.read_bytes += u64::from(extent.pages) * PAGE_BYTES as u64;
                }
            }
            PendingOp::Program(extent) => {
                let readable = self.ledger.end_program(extent, ok);
                if readable {
                    media.program_completed(
                        first_page(extent, self.config.pages_per_block),
                        extent.pages,
                    );
                    self.stats.programs += 1;
                    self.stats.program_writes += 1;
                    self.stats.programmed_bytes += u64::from(extent.pages) * PAGE_BYTES as u64;
                } else if ok {
                    result = Err(Misuse::BlockFailed { block: extent.block }.into());
                }
            }
            PendingOp::Erase(block) => {
                if alive {
                    media.erase_ended(block, ok);
                }
                self.ledger.end_erase(block, ok);
                self.stats.erases += u64::from(ok);
            }
            PendingOp::Sync => {
                if ok {
                    media.sync_completed(op.moment);
                    self.stats.syncs += 1;
                    self.stats.medium_syncs += 1;
                } else {
                    self.failed = Some("a sync failed");
                }
            }
            PendingOp::Grow(blocks) => {
                self.growing = false;
                if ok {
                    media.grow_to(blocks);
                    self.ledger.grow_to(blocks);
                }
            }
        }
        self.stats.errors += u64::from(result.is_err());
        FlashCompletion { token: op.token, result, buffer: op.buffer }
    }
}

impl Drop for MemoryDevice {
    fn drop(&mut self) {
        let alive = |media: &Media| media.session == self.session;
        let Some(seed) = Some(self.media.lock())
            .filter(|media| alive(media))
            .and_then(|mut media| media.faults.parting.take())
        else {
            return;
        };
        let waiting = self.queue.iter().filter(|op| op.outcome.is_none()).count();
        self.start_some(FaultDice::new(seed).below(waiting + 1));
    }
}

/// Lets the medium see one operation.
fn perform(media: &mut Media, pages_per_block: u32, op: &mut InFlight) -> Result<(), FlashError> {
    let struck = media.faults.single.strike(op.work.kind());
    let is_unreadable = matches!(op.work, PendingOp::Read(extent)
        if media.faults.strike_pages(first_page(extent, pages_per_block), extent.pages));
    if is_unreadable || matches!(struck, Some(Fault::Fail { .. })) {
        return Err(FlashError::Medium {
            operation: op.work.kind().name(),
            source: io::Error::other("an injected fault"),
        });
    }
    if let Some(cut) = struck_by_cut(media, op) {
        // Everything else first: of this operation exactly what was ordered arrives.
        media.settle_by_cut(cut.others);
        match (op.work, &op.buffer) {
            (PendingOp::Program(extent), Some(buffer)) => {
                let arriving = cut.keep_bytes.next_multiple_of(PAGE_BYTES).min(buffer.len());
                media.program(
                    first_page(extent, pages_per_block),
                    &buffer[..arriving],
                    cut.keep_bytes,
                );
                media.settle_page_writes();
            }
            (PendingOp::Erase(block), _) if cut.keep_bytes > 0 => media.erase_ended(block, true),
            (PendingOp::Grow(blocks), _) if cut.keep_bytes > 0 => media.grow_to(blocks),
            _ => {}
        }
        return Err(powered_off());
    }
    match op.work {
        PendingOp::Read(extent) => {
            let bytes = extent.pages as usize * PAGE_BYTES;
            let buffer = op.buffer.as_mut().expect("a read has a buffer");
            media.read(first_page(extent, pages_per_block), &mut buffer[..bytes]);
        }
        PendingOp::Program(extent) => {
            let buffer = op.buffer.as_ref().expect("a program has a buffer");
            let page = match struck {
                Some(Fault::MisdirectedProgram { pages, .. }) => {
                    media.astray(first_page(extent, pages_per_block), pages, extent.pages)
                }
                _ => first_page(extent, pages_per_block),
            };
            let keep_bytes = match struck {
                Some(Fault::TornProgram { keep_bytes, .. }) => keep_bytes,
                _ => buffer.len(),
            };
            media.program(page, buffer, keep_bytes);
        }
        PendingOp::Erase(block) => media.erase_started(block),
        PendingOp::Sync => {}
        PendingOp::Grow(_) if media.faults.full => {
            return Err(FlashError::Full { reason: "the medium was told to be full".to_owned() });
        }
        PendingOp::Grow(_) => {}
    }
    Ok(())
}

fn struck_by_cut(media: &mut Media, op: &InFlight) -> Option<PowerCut> {
    match op.work {
        PendingOp::Read(_) => None,
        PendingOp::Program(_) => {
            media.faults.struck_by_cut(op.buffer.as_ref().map_or(PAGE_BYTES, |buffer| buffer.len()))
        }
        PendingOp::Erase(_) | PendingOp::Sync | PendingOp::Grow(_) => {
            media.faults.struck_by_cut(PAGE_BYTES)
        }
    }
}

fn first_page(extent: Extent, pages_per_block: u32) -> PageId {
    PageId(extent.block.0 * pages_per_block + extent.index)
}

impl FlashDevice for MemoryDevice {
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
        let before = self.ledger.generation(block);
        let after = self.ledger.observe(block, generation, programmed_pages)?;
        if after > before {
            self.media.lock().adopt(block, after);
        }
        Ok(())
    }

    fn submit(&mut self, op: FlashOp) -> Result<(), Rejected> {
        if self.queue.len() >= self.config.queue_depth as usize {
            return Err(Rejected { reason: RejectedReason::QueueFull, op });
        }
        let work = match self.admit(&op) {
            Ok(work) => work,
            Err(error) => {
                self.stats.misuses += u64::from(matches!(error, FlashError::Misuse(_)));
                return Err(Rejected { reason: RejectedReason::Refused(error), op });
            }
        };
        let token = op.token();
        let buffer = match op {
            FlashOp::Read { buffer, .. } | FlashOp::Program { buffer, .. } => Some(buffer),
            FlashOp::Erase { .. } | FlashOp::Sync { .. } | FlashOp::Grow { .. } => None,
        };
        let due = self.due(work);
        let moment = self.media.lock().moment();
        self.queue.push_back(InFlight { token, work, buffer, outcome: None, due, moment });
        self.note_next_due();
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<FlashCompletion>) -> usize {
        self.start();
        let most = self.queue.len().min(self.config.completions_per_poll);
        let mut count = 0;
        while count < most {
            let chosen = self.choose();
            let Some(op) = self.queue.remove(chosen) else { break };
            let completion = self.complete(op);
            completions.push(completion);
            count += 1;
        }
        self.awaited = false;
        self.note_next_due();
        count
    }

    fn in_flight(&self) -> usize {
        self.queue.len()
    }

    fn wait(&mut self, _timeout: Duration) {
        // Whoever blocks lets time pass: every poll after this makes progress.
        self.awaited = true;
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn stats(&self) -> DeviceStats {
        let (wear_min, wear_max) = self.ledger.wear();
        DeviceStats { wear_min, wear_max, ..self.stats }
    }
}
