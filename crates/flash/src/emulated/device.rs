//! The device: operations from their acceptance to their release.
//!
//! Invariants: an operation holds one slot from its acceptance to its completion; it is either
//! accepted or started; completions are released in the order of their due times, and of their
//! start where these are equal.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use timestone_io::{AlignedBuffer, IoError};

use crate::clock::FlashClock;
use crate::device::{
    BlockId, DeviceStats, FlashCompletion, FlashDevice, FlashOp, Generation, Geometry, PAGE_BYTES,
    PageId, Rejected, RejectedReason, Token,
};
use crate::emulated::channels::Channels;
use crate::emulated::medium::{EmulatedMedium, Medium};
use crate::emulated::release::{Alarm, ReleaseErrors, block_until};
use crate::error::{FlashError, Misuse};
use crate::faults::{Fault, OpKind};
use crate::ledger::{Extent, Ledger};
use crate::pending::PendingOp;

/// An emulated flash device, opened on an [`EmulatedMedium`].
#[derive(Debug)]
pub struct EmulatedDevice {
    medium: EmulatedMedium,
    clock: FlashClock,
    session: u64,
    ledger: Ledger,
    channels: Channels,
    slots: Slots,
    /// Slots of what was not started yet.
    accepted: VecDeque<u32>,
    /// What was started: when it is due, which start it was, its slot.
    started: BinaryHeap<Reverse<(u64, u64, u32)>>,
    starts: u64,
    growing: bool,
    failed: Option<&'static str>,
    alarm: Option<Alarm>,
    release_errors: ReleaseErrors,
    stats: DeviceStats,
}

/// An accepted operation.
#[derive(Debug)]
struct AcceptedOp {
    token: Token,
    work: PendingOp,
    buffer: Option<AlignedBuffer>,
    /// What the medium said when it was started.
    outcome: Result<(), FlashError>,
}

/// Room for as many operations as the queue is deep.
#[derive(Debug)]
struct Slots {
    list: Vec<Option<AcceptedOp>>,
    free: Vec<u32>,
}

impl Slots {
    fn new(depth: u32) -> Self {
        Self { list: (0..depth).map(|_| None).collect(), free: (0..depth).rev().collect() }
    }

    fn in_use(&self) -> usize {
        self.list.len() - self.free.len()
    }

    fn put(&mut self, op: AcceptedOp) -> Option<u32> {
        let slot = self.free.pop()?;
        let before = self.list[slot as usize].replace(op);
        assert!(before.is_none(), "a free slot is empty");
        Some(slot)
    }

    fn get_mut(&mut self, slot: u32) -> &mut AcceptedOp {
        self.list[slot as usize].as_mut().expect("an operation keeps its slot")
    }

    fn take(&mut self, slot: u32) -> AcceptedOp {
        self.free.push(slot);
        self.list[slot as usize].take().expect("an operation keeps its slot")
    }
}

impl EmulatedDevice {
    pub(super) fn open(medium: EmulatedMedium) -> Result<Self, IoError> {
        let config = *medium.config();
        let clock = medium.clock().clone();
        let wakes = config.wakes && !clock.is_virtual();
        let alarm = if wakes { Some(Alarm::new()?) } else { None };
        let (session, ledger) = {
            let mut inner = medium.lock();
            let known = inner.begin_session();
            let generations = inner.generations.iter().copied();
            let ledger = Ledger::new(config.pages_per_block, config.max_blocks, generations, known);
            (inner.session, ledger)
        };
        let channels = Channels::new(
            config.channels,
            config.channels_per_block,
            ledger.geometry().blocks,
            config.latencies,
        );
        Ok(Self {
            medium,
            clock,
            session,
            ledger,
            channels,
            slots: Slots::new(config.queue_depth),
            accepted: VecDeque::with_capacity(config.queue_depth as usize),
            started: BinaryHeap::with_capacity(config.queue_depth as usize),
            starts: 0,
            growing: false,
            failed: None,
            alarm,
            release_errors: ReleaseErrors::new(),
            stats: DeviceStats::default(),
        })
    }

    /// The medium, for ordering faults and moving the clock.
    #[must_use]
    pub fn medium(&self) -> &EmulatedMedium {
        &self.medium
    }

    /// Lets the medium see what was accepted since the last poll, and gives each its time.
    fn start(&mut self, now: u64) {
        if self.accepted.is_empty() {
            return;
        }
        let mut medium = self.medium.lock();
        let alive = medium.session == self.session;
        if alive {
            medium.rot(now);
        }
        while let Some(slot) = self.accepted.pop_front() {
            let op = self.slots.get_mut(slot);
            op.outcome = if alive {
                perform(&mut medium, self.ledger.geometry(), op)
            } else {
                Err(opened_again())
            };
            let due = self.channels.serve(op.work, now);
            self.starts += 1;
            self.started.push(Reverse((due, self.starts, slot)));
        }
    }

    /// What is due.
    fn release(&mut self, now: u64, completions: &mut Vec<FlashCompletion>) -> usize {
        let mut count = 0;
        while let Some(&Reverse((due, _, slot))) = self.started.peek() {
            if due > now {
                break;
            }
            self.started.pop();
            self.release_errors.note(due, now);
            let op = self.slots.take(slot);
            completions.push(self.complete(op));
            count += 1;
        }
        count
    }

    fn next_due(&self) -> Option<u64> {
        self.started.peek().map(|&Reverse((due, ..))| due)
    }

    /// Whoever sleeps, or moves the clock, gets to know when the next completion is due.
    fn announce(&mut self, now: u64) {
        let next = self.next_due();
        if let Some(alarm) = &mut self.alarm {
            if let Some(due) = next {
                alarm.set(due, now);
            }
            return;
        }
        let mut medium = self.medium.lock();
        if medium.session == self.session {
            medium.next_due = next;
        }
    }

    fn complete(&mut self, op: AcceptedOp) -> FlashCompletion {
        let mut result = op.outcome;
        let ok = result.is_ok();
        match op.work {
            PendingOp::Read(extent) => {
                self.ledger.end_read(extent.block);
                if ok {
                    self.stats.reads += 1;
                    self.stats.read_bytes += u64::from(extent.pages) * PAGE_BYTES as u64;
                }
            }
            PendingOp::Program(extent) => {
                if self.ledger.end_program(extent, ok) {
                    self.stats.programs += 1;
                    self.stats.program_writes += 1;
                    self.stats.programmed_bytes += u64::from(extent.pages) * PAGE_BYTES as u64;
                } else if ok {
                    result = Err(Misuse::BlockFailed { block: extent.block }.into());
                }
            }
            PendingOp::Erase(block) => {
                if ok {
                    result = self.on_medium(|medium| medium.erased(block));
                }
                self.ledger.end_erase(block, result.is_ok());
                self.stats.erases += u64::from(result.is_ok());
            }
            PendingOp::Sync if ok => {
                self.stats.syncs += 1;
                self.stats.medium_syncs += 1;
            }
            PendingOp::Sync => self.failed = Some("a sync failed"),
            PendingOp::Grow(blocks) => {
                self.growing = false;
                if ok {
                    result = self.on_medium(|medium| medium.grow_to(blocks));
                }
                if result.is_ok() {
                    self.ledger.grow_to(blocks);
                    self.channels.grow_to(blocks);
                }
            }
        }
        self.stats.errors += u64::from(result.is_err());
        FlashCompletion { token: op.token, result, buffer: op.buffer }
    }

    /// Changes the medium, unless another device has been opened on it.
    fn on_medium(&self, change: impl FnOnce(&mut Medium)) -> Result<(), FlashError> {
        let mut medium = self.medium.lock();
        if medium.session != self.session {
            return Err(opened_again());
        }
        change(&mut medium);
        Ok(())
    }
}

/// Lets the medium see one operation.
fn perform(medium: &mut Medium, geometry: Geometry, op: &mut AcceptedOp) -> Result<(), FlashError> {
    let kind = op.work.kind();
    let struck = medium.orders.strike(kind);
    let reason = match struck {
        Some(Fault::Fail { .. }) => Some("an injected fault"),
        _ => medium.failure(op.work),
    };
    if let Some(reason) = reason {
        if let (OpKind::Program | OpKind::Erase, Some(block)) = (kind, op.work.block()) {
            medium.wear.set_bad(block);
        }
        let source = io::Error::other(reason);
        return Err(FlashError::Medium { operation: kind.name(), source });
    }
    match op.work {
        PendingOp::Read(extent) => {
            let buffer = op.buffer.as_mut().expect("a read has a buffer");
            for (page, into) in pages_of(extent, geometry).zip(buffer.chunks_exact_mut(PAGE_BYTES))
            {
                if !medium.pages.read(page, into) {
                    return Err(FlashError::Medium {
                        operation: "read",
                        source: io::Error::other("generated bytes are not what was programmed"),
                    });
                }
            }
        }
        PendingOp::Program(extent) => {
            let buffer = op.buffer.as_ref().expect("a program has a buffer");
            let first = geometry.page(extent.block, extent.index);
            let (first, mut arriving) = match struck {
                Some(Fault::MisdirectedProgram { pages, .. }) => {
                    (medium.astray(first, pages, extent.pages), buffer.len())
                }
                Some(Fault::TornProgram { keep_bytes, .. }) => (first, keep_bytes),
                _ => (first, buffer.len()),
            };
            for (page, bytes) in (first.0..).zip(buffer.chunks_exact(PAGE_BYTES)) {
                medium.pages.program(PageId(page), bytes, arriving);
                arriving = arriving.saturating_sub(PAGE_BYTES);
            }
        }
        PendingOp::Grow(_) if medium.full => {
            return Err(FlashError::Full { reason: "the medium was told to be full".to_owned() });
        }
        PendingOp::Erase(_) | PendingOp::Sync | PendingOp::Grow(_) => {}
    }
    Ok(())
}

fn pages_of(extent: Extent, geometry: Geometry) -> impl Iterator<Item = PageId> {
    let first = geometry.page(extent.block, extent.index).0;
    (first..first + extent.pages).map(PageId)
}

/// The error of a device whose medium has gone on without it.
fn opened_again() -> FlashError {
    FlashError::Failed { reason: "the medium was opened again" }
}

impl FlashDevice for EmulatedDevice {
    fn geometry(&self) -> Geometry {
        self.ledger.geometry()
    }

    fn generation(&self, block: BlockId) -> Generation {
        self.ledger.generation(block)
    }

    fn programmed(&self, block: BlockId) -> Option<u32> {
        self.ledger.programmed(block)
    }

    fn channel(&self, block: BlockId) -> Option<u32> {
        self.channels.first_of(block)
    }

    fn is_bad(&self, block: BlockId) -> bool {
        self.medium.lock().wear.is_bad(block)
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
            self.on_medium(|medium| medium.adopt(block, after))?;
        }
        Ok(())
    }

    fn submit(&mut self, op: FlashOp) -> Result<(), Rejected> {
        if self.slots.free.is_empty() {
            return Err(Rejected { reason: RejectedReason::QueueFull, op });
        }
        let admitted = PendingOp::admit(&op, self.failed, &mut self.ledger, &mut self.growing);
        let work = match admitted {
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
        let slot = self.slots.put(AcceptedOp { token, work, buffer, outcome: Ok(()) });
        self.accepted.push_back(slot.expect("there is a free slot"));
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<FlashCompletion>) -> usize {
        if self.slots.in_use() == 0 {
            return 0;
        }
        let now = self.clock.now();
        self.start(now);
        let count = self.release(now, completions);
        self.announce(now);
        count
    }

    fn in_flight(&self) -> usize {
        self.slots.in_use()
    }

    fn wait(&mut self, timeout: Duration) {
        let now = self.clock.now();
        self.start(now);
        self.announce(now);
        block_until(self.next_due(), timeout, &self.clock, self.alarm.as_ref());
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.alarm.as_ref().map(Alarm::fd)
    }

    fn stats(&self) -> DeviceStats {
        let (wear_min, wear_max) = self.ledger.wear();
        let release_error = self.release_errors.figures();
        let bad_blocks = self.medium.lock().wear.bad_count();
        DeviceStats { wear_min, wear_max, bad_blocks, release_error, ..self.stats }
    }
}
