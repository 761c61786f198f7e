//! The default device: one preallocated and written file on any file system, through an I/O engine
//! with O_DIRECT.
//!
//! ```text
//!   submit ─ledger─► reads ───────────────► engine ──► poll: settle ──► completions
//!              ├───► runs (coalesce) ─────►   │
//!              ├───► table (erase, growth) ─► │  copy, sync, other copy
//!              ├───► syncs (shared) ────────► │
//!              └───► growth ────────────────► │  allocate, zeros, sync, table
//! ```
//!
//! [`drive`](FileDevice::drive) moves whatever can move; `poll` drives, collects what the engine
//! has finished, and drives again. The file's layout is in [`layout`], the rules in the ledger,
//! each path's bookkeeping in its own file, here or in `queued`.
//!
//! Invariants: the engine has room for every operation that the queue depth admits plus the
//! device's own; a failed sync ends all writing for good (what it covered may be lost, and asking
//! again would only hide that).

mod growth;
mod image;
pub mod layout;
mod open;
mod table;
mod unreadable;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use timestone_io::{
    AlignedBuffer, BufferPool, EngineKind, IoCompletion, IoConfig, IoEngine, IoFile, IoOp, IoToken,
};

use crate::device::{
    BlockId, DeviceStats, FlashCompletion, FlashDevice, FlashOp, Generation, Geometry, PAGE_BYTES,
    Rejected, Token,
};
use crate::error::FlashError;
use crate::ledger::{Extent, Ledger};
use crate::limits::{OWN_OPS_IN_FLIGHT, TABLE_WRITES_IN_FLIGHT};
use crate::pending::PendingOp;
use crate::queued::reads::{ReadSlot, Reads};
use crate::queued::requests::Requests;
use crate::queued::runs::{RunId, Runs, same_error};
use crate::queued::syncs::Syncs;
use growth::{Growth, GrowthStep};
pub use image::FileImage;
use layout::{DeviceId, Layout};
pub use open::FileConfig;
use open::Opened;
use table::{BlockTable, TableChange, TableStep};
pub use unreadable::{GivenUp, UnreadablePages};

/// A flash device in a file.
#[derive(Debug)]
pub struct FileDevice {
    engine: IoEngine,
    file: IoFile,
    layout: Layout,
    ledger: Ledger,
    requests: Requests,
    keep_free: u64,
    reads: Reads,
    runs: Runs,
    table: BlockTable,
    pages: BufferPool,
    growth: Option<Growth>,
    syncs: Syncs<Syncer>,
    finished: Vec<IoCompletion>,
}

/// Who waits for a sync of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Syncer {
    Caller(Token),
    Table,
    Growth,
}

/// What an operation of the engine is for; travels in its token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EngineOp {
    Read(u32),
    Run(RunId),
    Table,
    Sync,
    Growth,
}

impl EngineOp {
    fn token(self) -> IoToken {
        let (kind, index) = match self {
            Self::Read(index) => (0, index),
            Self::Run(id) => (1, id.0),
            Self::Table => (2, 0),
            Self::Sync => (3, 0),
            Self::Growth => (4, 0),
        };
        IoToken(kind << 32 | u64::from(index))
    }

    fn of(token: IoToken) -> Self {
        let index = token.0 as u32;
        match token.0 >> 32 {
            0 => Self::Read(index),
            1 => Self::Run(RunId(index)),
            2 => Self::Table,
            3 => Self::Sync,
            4 => Self::Growth,
            other => unreachable!("the device hands out no tokens of kind {other}"),
        }
    }
}

impl FileDevice {
    /// Creates the file and opens it; its blocks are erased and known. Blocks while the initial
    /// blocks are written.
    ///
    /// # Errors
    /// When the file exists, cannot be created, or there is no space, or a setting is out of
    /// bounds.
    pub fn create(config: &FileConfig) -> Result<Self, FlashError> {
        open::create(config)?;
        Self::start(config, open::open(config)?, true)
    }

    /// Opens an existing file; its blocks are to be [observed](FlashDevice::observe) or erased
    /// before they are programmed.
    ///
    /// # Errors
    /// When there is no such file, it is in use, not a device, of another version, shape or id, or
    /// damaged beyond repair.
    pub fn open(config: &FileConfig) -> Result<Self, FlashError> {
        Self::start(config, open::open(config)?, false)
    }

    /// Opens the file if it exists, creates it otherwise. Says whether it was created.
    ///
    /// # Errors
    /// Those of [`create`](Self::create) and [`open`](Self::open).
    pub fn open_or_create(config: &FileConfig) -> Result<(Self, bool), FlashError> {
        let exists = config.path.exists();
        let device = if exists { Self::open(config)? } else { Self::create(config)? };
        Ok((device, !exists))
    }

    /// The id drawn when the device was created.
    #[must_use]
    pub fn device_id(&self) -> DeviceId {
        self.layout.device_id
    }

    /// Which I/O engine it runs on.
    #[must_use]
    pub fn engine(&self) -> EngineKind {
        self.engine.kind()
    }

    /// Whether it bypasses the page cache; not where the file system refuses O_DIRECT.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    fn start(config: &FileConfig, opened: Opened, fresh: bool) -> Result<Self, FlashError> {
        let Opened { file, layout, table, generations, max_blocks, repairs } = opened;
        let depth = config.queue_depth + OWN_OPS_IN_FLIGHT as u32;
        let io = IoConfig { depth, engine: config.engine };
        let engine = match &config.wake {
            Some(wake) => IoEngine::signalling(io, wake)?,
            None => IoEngine::new(io)?,
        };
        tracing::debug!(
            path = %file.path().display(), engine = engine.kind().name(), direct = file.is_direct(),
            blocks = generations.len(), max_blocks, "flash device opened"
        );
        Ok(Self {
            engine,
            file,
            layout,
            ledger: Ledger::new(layout.pages_per_block, max_blocks, generations.into_iter(), fresh),
            requests: Requests::new(
                config.queue_depth as usize,
                DeviceStats { repairs, ..DeviceStats::default() },
            ),
            keep_free: config.keep_free_bytes,
            reads: Reads::default(),
            runs: Runs::default(),
            table,
            pages: BufferPool::new(TABLE_WRITES_IN_FLIGHT * PAGE_BYTES),
            growth: None,
            syncs: Syncs::default(),
            finished: Vec::new(),
        })
    }

    /// Hands an operation to the engine, which has room for all that the queue depth admits and the
    /// device's own.
    fn start_op(&mut self, purpose: EngineOp, op: IoOp) {
        if let Err(refused) = self.engine.submit(purpose.token(), op) {
            unreachable!("the engine refused an operation of the device: {:?}", refused.reason);
        }
    }

    fn offset_of(&self, extent: Extent) -> u64 {
        self.layout.block_offset(extent.block.0) + u64::from(extent.index) * PAGE_BYTES as u64
    }

    fn read(&mut self, token: Token, extent: Extent, buffer: AlignedBuffer) {
        let index = self.reads.begin(ReadSlot { token, extent, asked: extent.pages });
        let length = extent.pages as usize * PAGE_BYTES;
        let op =
            IoOp::Read { file: self.file.clone(), offset: self.offset_of(extent), buffer, length };
        self.start_op(EngineOp::Read(index), op);
    }

    /// Moves everything that can move.
    fn drive(&mut self, completions: &mut Vec<FlashCompletion>) {
        self.drive_runs();
        self.drive_growth(completions);
        self.drive_table(completions);
        self.drive_syncs(completions);
    }

    fn drive_runs(&mut self) {
        while let Some((id, extent, buffers)) = self.runs.take() {
            self.requests.stats.program_writes += 1;
            let op = IoOp::WriteMany {
                file: self.file.clone(),
                offset: self.offset_of(extent),
                buffers,
            };
            self.start_op(EngineOp::Run(id), op);
        }
    }

    fn drive_growth(&mut self, completions: &mut Vec<FlashCompletion>) {
        while let Some(growth) = &mut self.growth {
            match growth.next(&self.file) {
                GrowthStep::Start(op) => self.start_op(EngineOp::Growth, op),
                GrowthStep::Wait => return,
                GrowthStep::Sync => self.syncs.request(Syncer::Growth),
                GrowthStep::Record(to) => self.table.request(TableChange::Grow { to }),
                GrowthStep::Failed(error) => self.end_growth(Err(error), completions),
            }
        }
    }

    fn drive_table(&mut self, completions: &mut Vec<FlashCompletion>) {
        let ledger = &self.ledger;
        let is_due = |change: &TableChange| match change {
            TableChange::Erase { block, .. } => ledger.erase_is_due(*block),
            TableChange::Grow { .. } => true,
        };
        if let Some(reason) = self.syncs.failed() {
            let mut doomed: Vec<TableChange> =
                self.table.waiting().extract_if(.., |change| is_due(change)).collect();
            self.end_changes(&mut doomed, |_| Err(FlashError::Failed { reason }), completions);
        } else {
            self.table.begin(is_due);
        }
        match self.table.advance() {
            TableStep::Nothing => {}
            TableStep::Sync => self.syncs.request(Syncer::Table),
            TableStep::Failed(error) => self.end_batch(Some(&error), completions),
        }
        while let Some(write) = self.table.next_write(TABLE_WRITES_IN_FLIGHT) {
            let mut buffer = self.pages.take(PAGE_BYTES);
            self.table.encode(write.index, &mut buffer);
            let offset = self.layout.table_offset(write.copy, write.index);
            let op = IoOp::Write { file: self.file.clone(), offset, buffer, length: PAGE_BYTES };
            self.start_op(EngineOp::Table, op);
        }
    }

    fn drive_syncs(&mut self, completions: &mut Vec<FlashCompletion>) {
        if !self.syncs.begin() {
            return;
        }
        if self.syncs.failed().is_some() {
            self.end_syncs(Err(io::ErrorKind::Other.into()), completions);
        } else {
            self.start_op(EngineOp::Sync, IoOp::Sync { file: self.file.clone() });
        }
    }

    /// Takes in what the engine has finished.
    fn settle(&mut self, done: IoCompletion, completions: &mut Vec<FlashCompletion>) {
        let IoCompletion { token, result, buffer, buffers } = done;
        match EngineOp::of(token) {
            EngineOp::Read(index) => self.end_read(index, result, buffer, completions),
            EngineOp::Run(id) => {
                self.runs.finish(id, buffers, result.map(|_| ()));
                self.requests.end_programs(&mut self.runs, &mut self.ledger, completions);
            }
            EngineOp::Table => {
                self.table.wrote(result.map(|_| ()));
                buffer.into_iter().for_each(|buffer| self.pages.give(buffer));
            }
            EngineOp::Sync => self.end_syncs(result.map(|_| ()), completions),
            EngineOp::Growth => {
                if let Some(growth) = &mut self.growth {
                    growth.settle(result, buffer);
                }
            }
        }
    }

    fn end_read(
        &mut self,
        index: u32,
        result: io::Result<usize>,
        buffer: Option<AlignedBuffer>,
        completions: &mut Vec<FlashCompletion>,
    ) {
        let ReadSlot { token, extent, .. } = self.reads.end(index);
        self.ledger.end_read(extent.block);
        let bytes = extent.pages as usize * PAGE_BYTES;
        let result = match result {
            Ok(read) if read == bytes => {
                self.requests.stats.reads += 1;
                self.requests.stats.read_bytes += bytes as u64;
                Ok(())
            }
            Ok(_) => Err(FlashError::Medium {
                operation: "read",
                source: io::ErrorKind::UnexpectedEof.into(),
            }),
            Err(source) => Err(FlashError::Medium { operation: "read", source }),
        };
        self.requests.complete(token, result, buffer, completions);
    }

    fn end_syncs(&mut self, result: io::Result<()>, completions: &mut Vec<FlashCompletion>) {
        let earlier = self.syncs.failed();
        let mut covered = self.syncs.end(result.is_ok());
        if result.is_err() && earlier.is_none() {
            tracing::error!(path = %self.file.path().display(), "a sync failed: the device takes \
                no more writes");
        }
        self.requests.stats.medium_syncs += u64::from(result.is_ok());
        for syncer in covered.drain(..) {
            let medium = |source: &io::Error| match earlier {
                Some(reason) => FlashError::Failed { reason },
                None => FlashError::Medium { operation: "sync", source: same_error(source) },
            };
            match (syncer, &result) {
                (Syncer::Caller(token), Ok(())) => {
                    self.requests.stats.syncs += 1;
                    self.requests.complete(token, Ok(()), None, completions);
                }
                (Syncer::Caller(token), Err(error)) => {
                    self.requests.complete(token, Err(medium(error)), None, completions)
                }
                (Syncer::Table, Ok(())) => {
                    self.table.synced();
                    self.end_batch(None, completions);
                }
                (Syncer::Table, Err(error)) => {
                    self.table.sync_failed();
                    self.end_batch(Some(error), completions);
                }
                (Syncer::Growth, Ok(())) => {
                    if let Some(growth) = &mut self.growth {
                        growth.synced();
                    }
                }
                (Syncer::Growth, Err(error)) => self.end_growth(Err(medium(error)), completions),
            }
        }
        self.syncs.reuse(covered);
    }

    /// The changes of the table's batch are durable, or failed for a reason.
    fn end_batch(&mut self, error: Option<&io::Error>, completions: &mut Vec<FlashCompletion>) {
        let mut changes = std::mem::take(self.table.active());
        let outcome = |operation| match error {
            None => Ok(()),
            Some(source) => Err(FlashError::Medium { operation, source: same_error(source) }),
        };
        self.end_changes(&mut changes, outcome, completions);
        *self.table.active() = changes;
    }

    fn end_changes(
        &mut self,
        changes: &mut Vec<TableChange>,
        outcome: impl Fn(&'static str) -> Result<(), FlashError>,
        completions: &mut Vec<FlashCompletion>,
    ) {
        for change in changes.drain(..) {
            match change {
                TableChange::Erase { token, block } => {
                    let result = outcome("erase");
                    self.ledger.end_erase(block, result.is_ok());
                    self.requests.stats.erases += u64::from(result.is_ok());
                    self.requests.complete(token, result, None, completions);
                }
                TableChange::Grow { to } => {
                    let result = outcome("grow");
                    if result.is_ok() {
                        self.ledger.grow_to(to);
                    }
                    self.end_growth(result, completions);
                }
            }
        }
    }

    fn end_growth(
        &mut self,
        result: Result<(), FlashError>,
        completions: &mut Vec<FlashCompletion>,
    ) {
        if let Some(growth) = self.growth.take() {
            self.requests.complete(growth.token(), result, None, completions);
        }
    }
}

impl FlashDevice for FileDevice {
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
            tracing::warn!(%block, %before, %after, "the block table lags behind the pages of a \
                block");
            self.table.adopt(block, after);
        }
        Ok(())
    }

    fn submit(&mut self, op: FlashOp) -> Result<(), Rejected> {
        let (failed, growing) = (self.syncs.failed(), &mut self.growth.is_some());
        let (op, admitted) = self.requests.begin(op, failed, &mut self.ledger, growing)?;
        match (op, admitted) {
            (FlashOp::Read { token, buffer, .. }, PendingOp::Read(extent)) => {
                self.read(token, extent, buffer)
            }
            (FlashOp::Program { token, buffer, .. }, PendingOp::Program(extent)) => {
                self.runs.add(token, extent, buffer)
            }
            (FlashOp::Erase { token, block }, _) => {
                self.table.request(TableChange::Erase { token, block })
            }
            (FlashOp::Sync { token }, _) => self.syncs.request(Syncer::Caller(token)),
            (FlashOp::Grow { token, .. }, PendingOp::Grow(to)) => {
                let from = self.ledger.geometry().blocks;
                self.growth = Some(Growth::new(token, self.layout, from, to, self.keep_free));
            }
            (op, admitted) => unreachable!("{op:?} was admitted as {admitted:?}"),
        }
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<FlashCompletion>) -> usize {
        let before = completions.len();
        completions.append(&mut self.requests.ready);
        if self.requests.in_flight() == 0 && self.engine.in_flight() == 0 {
            return completions.len() - before;
        }
        self.drive(completions);
        let mut finished = std::mem::take(&mut self.finished);
        self.engine.poll(&mut finished);
        if !finished.is_empty() {
            for done in finished.drain(..) {
                self.settle(done, completions);
            }
            self.drive(completions);
            self.engine.flush();
        }
        self.finished = finished;
        completions.len() - before
    }

    fn in_flight(&self) -> usize {
        self.requests.in_flight() + self.requests.ready.len()
    }

    fn wait(&mut self, timeout: Duration) {
        let mut ready = std::mem::take(&mut self.requests.ready);
        self.drive(&mut ready);
        self.requests.ready = ready;
        if self.requests.ready.is_empty() {
            self.engine.wait(timeout);
        }
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.engine.wake_fd())
    }

    fn wears_out(&self) -> bool {
        false
    }

    fn stats(&self) -> DeviceStats {
        let (wear_min, wear_max) = self.ledger.wear();
        DeviceStats { wear_min, wear_max, ..self.requests.stats }
    }
}
