//! A flash device on a zoned block device (ZNS): erase block = zone, program = write at the write
//! pointer, erase = zone reset.
//!
//! ```text
//!   submit ─ledger─► reads ─────────────────────────────────► medium ──► poll: settle ──► completions
//!              ├───► runs (coalesce) ─zones: may it be written?─►  │  one write in flight a zone
//!              ├───► log (erase, growth) ─► append, sync ─────►│  then resets
//!              └───► syncs (shared) ──────────────────────────────►│
//! ```
//!
//! [`drive`](ZonedDevice::drive) moves whatever can move; `poll` drives, collects what the medium has
//! finished, and drives again. docs/design/zoned.md has the decisions, docs/formats/zoned.md what
//! lies on the device; the rules of flash are in the ledger, those of zones in `zones.rs`.
//!
//! Invariants: a zone is written at its write pointer, by one write at a time; a generation is
//! recorded and durable before the zone is reset; what the medium does not hold below a write
//! pointer reads as zeros; a failed sync ends all writing for good, and so does a failed snapshot of
//! the table.

mod fake;
mod kernel;
pub mod layout;
mod log;
mod medium;
mod open;
mod purpose;
mod replay;
mod zones;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use timestone_io::{AlignedBuffer, IoCompletion, ZoneAction};

use crate::device::{
    BlockId, DeviceStats, FlashCompletion, FlashDevice, FlashOp, Generation, Geometry, PAGE_BYTES,
    Rejected, Token,
};
use crate::error::FlashError;
use crate::ledger::{Extent, Ledger};
use crate::limits::RESETS_IN_FLIGHT;
use crate::pending::PendingOp;
use crate::queued::reads::{ReadSlot, Reads};
use crate::queued::requests::Requests;
use crate::queued::runs::{RunId, Runs, same_error};
use crate::queued::syncs::Syncs;
pub use fake::{FakeConfig, FakeMedium, FakeZones};
pub use kernel::KernelZones;
use layout::ZonedIdentity;
use log::{LogStep, TableChange, TableLog};
pub use medium::{ZoneOp, ZonedMedium};
use open::{MediumContent, Opened, survey, unusable};
pub use open::{Overwrite, ZonedConfig};
use purpose::{Erasing, Purpose, Syncer};
use zones::{Admission, DataZones};

/// A flash device on zones.
#[derive(Debug)]
pub struct ZonedDevice {
    medium: Box<dyn ZonedMedium>,
    ledger: Ledger,
    zones: DataZones,
    requests: Requests,
    reads: Reads,
    runs: Runs,
    log: TableLog,
    /// Blocks whose new generation is recorded and whose zone is to be reset, or being reset.
    erasing: Vec<Erasing>,
    /// Resets before a first program.
    clearing: usize,
    /// A zone is being finished.
    finishing: bool,
    /// The device cannot grow twice at once.
    growing: bool,
    syncs: Syncs<Syncer>,
    finished: Vec<IoCompletion>,
    /// Scratch of `drive_runs`.
    blocks: Vec<BlockId>,
}

impl ZonedDevice {
    /// Makes a new device of a medium and opens it; its blocks are erased and known. Blocks while
    /// zones are reset.
    ///
    /// # Errors
    /// When something is on it and that is not to be overwritten, its zones or limits will not do,
    /// or it fails.
    pub fn format(
        mut medium: Box<dyn ZonedMedium>,
        config: &ZonedConfig,
        overwrite: Overwrite,
    ) -> Result<Self, FlashError> {
        let survey = survey(&mut *medium, config)?;
        if overwrite == Overwrite::Refuse {
            let reason = match survey.content(&mut *medium)? {
                MediumContent::Nothing => None,
                MediumContent::Device(found) => Some(format!(
                    "it is a device already ({}, of {:016x})",
                    found.identity.device_id, found.identity.owner
                )),
                MediumContent::Other(reason) => Some(reason),
            };
            if let Some(reason) = reason {
                let reason = format!("{reason}; formatting would destroy what it holds");
                return Err(unusable(&*medium, reason));
            }
        }
        let opened = survey.format(&mut *medium, config)?;
        tracing::info!(path = %medium.path().display(), identity = ?opened.log.identity(),
            "zoned flash device formatted");
        Ok(Self::start(medium, config, opened, true))
    }

    /// What a medium is; none when every zone is empty. Changes nothing.
    ///
    /// # Errors
    /// When something else is on it, its zones or limits will not do, or it fails.
    pub fn identify(
        medium: &mut dyn ZonedMedium,
        config: &ZonedConfig,
    ) -> Result<Option<ZonedIdentity>, FlashError> {
        match survey(medium, config)?.content(medium)? {
            MediumContent::Nothing => Ok(None),
            MediumContent::Device(found) => Ok(Some(found.identity)),
            MediumContent::Other(reason) => Err(unusable(medium, reason)),
        }
    }

    /// Bytes of the blocks that a medium has, or would get.
    ///
    /// # Errors
    /// Its zones or limits will not do, or it fails.
    pub fn block_bytes(
        medium: &mut dyn ZonedMedium,
        config: &ZonedConfig,
    ) -> Result<u64, FlashError> {
        Ok(u64::from(survey(medium, config)?.pages_per_block) * PAGE_BYTES as u64)
    }

    /// Opens a device that was formatted; its blocks are to be [observed](FlashDevice::observe) or
    /// erased before they are programmed.
    ///
    /// # Errors
    /// When it was not formatted, has another owner, id, version or shape, is damaged beyond
    /// repair, or fails.
    pub fn open(medium: Box<dyn ZonedMedium>, config: &ZonedConfig) -> Result<Self, FlashError> {
        let (opened, medium) = Self::open_found(medium, config)?;
        match opened {
            Some(opened) => Ok(Self::start(medium, config, opened, false)),
            None => Err(unusable(&*medium, "it is empty; format it first")),
        }
    }

    /// Opens a device, or formats one whose zones are all empty. Says whether it was formatted.
    /// What holds something else is never overwritten.
    ///
    /// # Errors
    /// Those of [`format`](Self::format) and [`open`](Self::open).
    pub fn open_or_format(
        medium: Box<dyn ZonedMedium>,
        config: &ZonedConfig,
    ) -> Result<(Self, bool), FlashError> {
        let (opened, medium) = Self::open_found(medium, config)?;
        match opened {
            Some(opened) => Ok((Self::start(medium, config, opened, false), false)),
            None => Ok((Self::format(medium, config, Overwrite::Refuse)?, true)),
        }
    }

    /// What a device that is there comes to; none when there is nothing.
    fn open_found(
        mut medium: Box<dyn ZonedMedium>,
        config: &ZonedConfig,
    ) -> Result<(Option<Opened>, Box<dyn ZonedMedium>), FlashError> {
        let survey = survey(&mut *medium, config)?;
        let opened = match survey.content(&mut *medium)? {
            MediumContent::Nothing => None,
            MediumContent::Device(found) => Some(survey.open(&mut *medium, config, found)?),
            MediumContent::Other(reason) => {
                let reason = format!("{reason}; nothing of it was changed");
                return Err(unusable(&*medium, reason));
            }
        };
        Ok((opened, medium))
    }

    fn start(
        medium: Box<dyn ZonedMedium>,
        config: &ZonedConfig,
        opened: Opened,
        fresh: bool,
    ) -> Self {
        let Opened { log, report, generations, max_blocks, data_limits, repairs } = opened;
        let pages_per_block = log.identity().pages_per_block;
        let zones = DataZones::new(&report, pages_per_block, data_limits);
        tracing::debug!(path = %medium.path().display(), blocks = generations.len(), max_blocks,
            pages_per_block, ?data_limits, bad = zones.bad_count(u32::MAX), "zoned flash device opened");
        let stats = DeviceStats { repairs, ..DeviceStats::default() };
        Self {
            medium,
            ledger: Ledger::new(pages_per_block, max_blocks, generations.into_iter(), fresh),
            zones,
            requests: Requests::new(config.queue_depth as usize, stats),
            reads: Reads::default(),
            runs: Runs::default(),
            log,
            erasing: Vec::new(),
            clearing: 0,
            finishing: false,
            growing: false,
            syncs: Syncs::default(),
            finished: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// What the device says of itself.
    #[must_use]
    pub fn identity(&self) -> ZonedIdentity {
        self.log.identity()
    }

    /// Data zones that take an active resource of the medium now, and how many may; `u32::MAX`: no
    /// bound.
    #[must_use]
    pub fn activity(&self) -> (u32, u32) {
        self.zones.activity()
    }

    fn start_op(&mut self, purpose: Purpose, op: ZoneOp) {
        self.medium.submit(purpose.token(), op);
    }

    fn start_command(&mut self, purpose: Purpose, block: BlockId, action: ZoneAction) {
        self.zones.begin_command(block);
        let (offset, length) = (self.zones.start(block), self.zones.zone_bytes());
        self.start_op(purpose, ZoneOp::Zone { action, offset, length });
    }

    fn offset_of(&self, extent: Extent) -> u64 {
        self.zones.start(extent.block) + u64::from(extent.index) * PAGE_BYTES as u64
    }

    /// Reads what the medium holds below the write pointer; the rest is zeros.
    fn read(&mut self, token: Token, extent: Extent, buffer: AlignedBuffer) {
        let there = self.zones.filled(extent.block).saturating_sub(extent.index);
        let asked = there.min(extent.pages);
        let slot = ReadSlot { token, extent, asked };
        if asked == 0 {
            let mut ready = std::mem::take(&mut self.requests.ready);
            self.finish_read(slot, Ok(0), Some(buffer), &mut ready);
            self.requests.ready = ready;
            return;
        }
        let index = self.reads.begin(slot);
        let (offset, length) = (self.offset_of(extent), asked as usize * PAGE_BYTES);
        self.start_op(Purpose::Read(index), ZoneOp::Read { offset, buffer, length });
    }

    fn finish_read(
        &mut self,
        slot: ReadSlot,
        result: io::Result<usize>,
        mut buffer: Option<AlignedBuffer>,
        completions: &mut Vec<FlashCompletion>,
    ) {
        let ReadSlot { token, extent, asked } = slot;
        self.ledger.end_read(extent.block);
        let (asked, bytes) = (asked as usize * PAGE_BYTES, extent.pages as usize * PAGE_BYTES);
        let medium = |source| Err(FlashError::Medium { operation: "read", source });
        let result = match result {
            Ok(read) if read == asked => {
                if let Some(buffer) = &mut buffer {
                    buffer[asked..bytes].fill(0);
                }
                self.requests.stats.reads += 1;
                self.requests.stats.read_bytes += bytes as u64;
                Ok(())
            }
            Ok(_) => medium(io::ErrorKind::UnexpectedEof.into()),
            Err(source) => medium(source),
        };
        self.requests.complete(token, result, buffer, completions);
    }

    /// Moves everything that can move.
    fn drive(&mut self, completions: &mut Vec<FlashCompletion>) {
        self.drive_runs(completions);
        self.drive_table(completions);
        self.drive_erases(completions);
        self.drive_syncs(completions);
    }

    fn drive_runs(&mut self, completions: &mut Vec<FlashCompletion>) {
        let mut blocks = std::mem::take(&mut self.blocks);
        self.runs.waiting(&mut blocks);
        let mut without_room = None;
        for &block in &blocks {
            match self.zones.admission(block) {
                Admission::Write => self.write_run(block),
                Admission::Reset if self.clearing < RESETS_IN_FLIGHT => {
                    self.clearing += 1;
                    self.start_command(Purpose::Clear(block), block, ZoneAction::Reset);
                }
                Admission::Reset | Admission::Wait => {}
                Admission::NoRoom => without_room = Some(block),
                Admission::Refused(reason) => self.refuse_runs(block, reason, completions),
            }
        }
        if let Some(block) = without_room {
            self.make_room(block, &blocks, completions);
        }
        self.blocks = blocks;
    }

    /// Writes what has gathered for a block.
    fn write_run(&mut self, block: BlockId) {
        let Some((id, extent, buffers)) = self.runs.take_of(block) else { return };
        assert_eq!(extent.index, self.zones.filled(block), "programs go to the write pointer");
        self.zones.begin_write(block);
        self.requests.stats.program_writes += 1;
        let offset = self.offset_of(extent);
        self.start_op(Purpose::Run(id), ZoneOp::Write { offset, buffers });
    }

    /// The programs of a block cannot be written.
    fn refuse_runs(
        &mut self,
        block: BlockId,
        reason: &'static str,
        completions: &mut Vec<FlashCompletion>,
    ) {
        while let Some((id, _, buffers)) = self.runs.take_of(block) {
            self.runs.finish(id, buffers, Err(io::Error::other(reason)));
        }
        self.requests.end_programs(&mut self.runs, &mut self.ledger, completions);
    }

    /// As many zones are active as may be, and one more is wanted: one that its owner is done with is
    /// finished. Where there is none, and none can come, the programs fail.
    fn make_room(
        &mut self,
        block: BlockId,
        waiting: &[BlockId],
        completions: &mut Vec<FlashCompletion>,
    ) {
        if self.finishing {
            return;
        }
        if let Some(done) = self.zones.to_finish(|done| !waiting.contains(&done)) {
            self.finishing = true;
            return self.start_command(Purpose::Finish(done), done, ZoneAction::Finish);
        }
        let erases_come = !self.erasing.is_empty()
            || !self.log.waiting().is_empty()
            || !self.log.active().is_empty();
        if self.medium.in_flight() == 0 && !erases_come {
            let reason = "as many zones are being programmed as the device allows";
            self.refuse_runs(block, reason, completions);
        }
    }

    fn drive_table(&mut self, completions: &mut Vec<FlashCompletion>) {
        let (ledger, zones) = (&self.ledger, &self.zones);
        let is_due = |change: &TableChange| match change {
            TableChange::Erase { block, .. } => {
                ledger.erase_is_due(*block) && !zones.is_busy(*block)
            }
            TableChange::Grow { .. } => true,
        };
        let is_bad = |change: &TableChange| match change {
            TableChange::Erase { block, .. } => zones.is_bad(*block),
            TableChange::Grow { .. } => false,
        };
        let failed = self.failed();
        let doomed = |change: &TableChange| is_due(change) && (failed.is_some() || is_bad(change));
        let mut refused: Vec<TableChange> =
            self.log.waiting().extract_if(.., |change| doomed(change)).collect();
        if failed.is_none() {
            self.log.begin(is_due);
        }
        let reason = |operation| match failed {
            Some(reason) => FlashError::Failed { reason },
            None => {
                let source = io::Error::other("the zone takes no writes any more");
                FlashError::Medium { operation, source }
            }
        };
        self.refuse_changes(&mut refused, reason, completions);
        loop {
            match self.log.next() {
                LogStep::Nothing => return,
                LogStep::Reset(zone) => {
                    let (action, offset, length) = (ZoneAction::Reset, zone.start, zone.length);
                    self.start_op(Purpose::Log, ZoneOp::Zone { action, offset, length });
                }
                LogStep::Write(offset, bytes) => {
                    self.start_op(Purpose::Log, ZoneOp::Write { offset, buffers: vec![bytes] });
                }
                LogStep::Sync => self.syncs.request(Syncer::Table),
            }
        }
    }

    /// Why the device takes no more writes, if so.
    fn failed(&self) -> Option<&'static str> {
        let table = || self.log.has_failed().then_some("the block table could not be written");
        self.syncs.failed().or_else(table)
    }

    fn refuse_changes(
        &mut self,
        changes: &mut Vec<TableChange>,
        why: impl Fn(&'static str) -> FlashError,
        completions: &mut Vec<FlashCompletion>,
    ) {
        for change in changes.drain(..) {
            match change {
                TableChange::Erase { token, block, .. } => {
                    self.ledger.end_erase(block, false);
                    self.requests.complete(token, Err(why("erase")), None, completions);
                }
                TableChange::Grow { token, .. } => {
                    self.growing = false;
                    self.requests.complete(token, Err(why("grow")), None, completions);
                }
            }
        }
    }

    /// Zones of recorded erases are reset, where there is something in them.
    fn drive_erases(&mut self, completions: &mut Vec<FlashCompletion>) {
        let mut started = self.erasing.iter().filter(|erasing| erasing.started).count();
        let mut at = 0;
        while started < RESETS_IN_FLIGHT && at < self.erasing.len() {
            let Erasing { block, started: begun, .. } = self.erasing[at];
            if begun || self.zones.is_busy(block) {
                at += 1;
            } else if self.zones.is_empty(block) {
                self.zones.begin_command(block);
                self.end_erase(block, Ok(0), completions);
            } else {
                self.erasing[at].started = true;
                started += 1;
                self.start_command(Purpose::Erase(block), block, ZoneAction::Reset);
            }
        }
    }

    fn drive_syncs(&mut self, completions: &mut Vec<FlashCompletion>) {
        if !self.syncs.begin() {
            return;
        }
        if self.syncs.failed().is_some() {
            self.end_syncs(Err(io::ErrorKind::Other.into()), completions);
        } else {
            self.start_op(Purpose::Sync, ZoneOp::Sync);
        }
    }

    /// Takes in what the medium has finished.
    fn settle(&mut self, done: IoCompletion, completions: &mut Vec<FlashCompletion>) {
        let IoCompletion { token, result, buffer, buffers } = done;
        match Purpose::of(token) {
            Purpose::Read(index) => {
                let slot = self.reads.end(index);
                self.finish_read(slot, result, buffer, completions);
            }
            Purpose::Run(id) => self.end_run(id, buffers, result, completions),
            Purpose::Log => self.end_log_step(result, completions),
            Purpose::Sync => self.end_syncs(result.map(|_| ()), completions),
            Purpose::Erase(block) => self.end_erase(block, result, completions),
            Purpose::Clear(block) => {
                self.clearing -= 1;
                self.zones.was_reset(block, result.is_ok());
                if let Err(error) = result {
                    tracing::warn!(%block, %error, "a zone could not be reset");
                    self.look_at(block);
                }
            }
            Purpose::Finish(block) => {
                self.finishing = false;
                match result {
                    Ok(_) => self.zones.was_finished(block),
                    Err(error) => {
                        tracing::warn!(%block, %error, "a zone could not be finished");
                        self.zones.finish_failed(block);
                        self.look_at(block);
                    }
                }
            }
        }
    }

    fn end_run(
        &mut self,
        id: RunId,
        buffers: Vec<AlignedBuffer>,
        result: io::Result<usize>,
        completions: &mut Vec<FlashCompletion>,
    ) {
        let Extent { block, pages, .. } = self.runs.extent(id);
        match &result {
            Ok(_) => self.zones.wrote(block, pages),
            Err(error) => {
                tracing::warn!(%block, %error, "a zone could not be written");
                self.zones.write_failed(block);
                self.look_at(block);
            }
        }
        self.runs.finish(id, buffers, result.map(|_| ()));
        self.requests.end_programs(&mut self.runs, &mut self.ledger, completions);
    }

    /// Something failed in a zone: what does the device say of it? This blocks for the time of one
    /// command.
    fn look_at(&mut self, block: BlockId) {
        match self.medium.report(self.zones.start(block), 1) {
            Ok(report) if report.len() == 1 => {
                self.zones.reported(block, &report[0]);
                if self.zones.is_bad(block) {
                    let condition = report[0].condition;
                    tracing::warn!(%block, ?condition, "a zone takes no writes any more");
                }
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%block, %error, "a zone's condition cannot be told"),
        }
    }

    /// A write or reset of the log has ended.
    fn end_log_step(&mut self, result: io::Result<usize>, completions: &mut Vec<FlashCompletion>) {
        if let Err(error) = self.log.ended(result) {
            tracing::error!(path = %self.medium.path().display(), %error, "the block table could not \
                be written: the device takes no more writes");
            let mut changes = std::mem::take(self.log.active());
            let why = |operation| FlashError::Medium { operation, source: same_error(&error) };
            self.refuse_changes(&mut changes, why, completions);
        }
    }

    /// The batch under way is recorded.
    fn recorded(&mut self, completions: &mut Vec<FlashCompletion>) {
        let mut changes = std::mem::take(self.log.active());
        for change in changes.drain(..) {
            match change {
                TableChange::Erase { token, block, .. } => {
                    self.erasing.push(Erasing { token, block, started: false });
                }
                TableChange::Grow { token, to } => {
                    let from = self.ledger.geometry().blocks;
                    self.ledger.grow_to(to);
                    (from..to).for_each(|block| self.zones.added(BlockId(block)));
                    self.growing = false;
                    self.requests.complete(token, Ok(()), None, completions);
                }
            }
        }
        *self.log.active() = changes;
    }

    fn end_erase(
        &mut self,
        block: BlockId,
        result: io::Result<usize>,
        completions: &mut Vec<FlashCompletion>,
    ) {
        let at = self.erasing.iter().position(|erasing| erasing.block == block);
        let Erasing { token, .. } = self.erasing.swap_remove(at.expect("an erase that began"));
        self.zones.was_reset(block, result.is_ok());
        self.ledger.end_erase(block, result.is_ok());
        self.requests.stats.erases += u64::from(result.is_ok());
        let result = result.map(|_| ()).map_err(|source| {
            tracing::warn!(%block, error = %source, "a zone could not be reset");
            FlashError::Medium { operation: "erase", source }
        });
        if result.is_err() {
            self.look_at(block);
        }
        self.requests.complete(token, result, None, completions);
    }

    fn end_syncs(&mut self, result: io::Result<()>, completions: &mut Vec<FlashCompletion>) {
        let earlier = self.syncs.failed();
        let mut covered = self.syncs.end(result.is_ok());
        if result.is_err() && earlier.is_none() {
            tracing::error!(path = %self.medium.path().display(), "a sync failed: the device takes \
                no more writes");
        }
        self.requests.stats.medium_syncs += u64::from(result.is_ok());
        for syncer in covered.drain(..) {
            let why = |operation, source: &io::Error| match earlier {
                Some(reason) => FlashError::Failed { reason },
                None => FlashError::Medium { operation, source: same_error(source) },
            };
            match (syncer, &result) {
                (Syncer::Caller(token), Ok(())) => {
                    self.requests.stats.syncs += 1;
                    self.requests.complete(token, Ok(()), None, completions);
                }
                (Syncer::Caller(token), Err(error)) => {
                    self.requests.complete(token, Err(why("sync", error)), None, completions);
                }
                (Syncer::Table, Ok(())) => {
                    self.log.synced(true);
                    self.recorded(completions);
                }
                (Syncer::Table, Err(error)) => {
                    self.log.synced(false);
                    let mut changes = std::mem::take(self.log.active());
                    self.refuse_changes(
                        &mut changes,
                        |operation| why(operation, error),
                        completions,
                    );
                }
            }
        }
        self.syncs.reuse(covered);
    }
}

impl FlashDevice for ZonedDevice {
    fn geometry(&self) -> Geometry {
        self.ledger.geometry()
    }

    fn generation(&self, block: BlockId) -> Generation {
        self.ledger.generation(block)
    }

    fn programmed(&self, block: BlockId) -> Option<u32> {
        self.ledger.programmed(block)
    }

    fn is_bad(&self, block: BlockId) -> bool {
        self.zones.is_bad(block)
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
            self.log.adopt(block, after);
        }
        let pages = self.ledger.programmed(block).unwrap_or(0);
        if !self.zones.observed(block, pages) {
            self.ledger.require_erase(block);
            self.zones.seal(block);
        }
        Ok(())
    }

    fn seal(&mut self, block: BlockId) {
        if block.0 < self.ledger.geometry().blocks {
            self.ledger.seal(block);
            self.zones.seal(block);
        }
    }

    fn submit(&mut self, op: FlashOp) -> Result<(), Rejected> {
        let (failed, growing) = (self.failed(), &mut self.growing);
        let (op, admitted) = self.requests.begin(op, failed, &mut self.ledger, growing)?;
        match (op, admitted) {
            (FlashOp::Read { token, buffer, .. }, PendingOp::Read(extent)) => {
                self.read(token, extent, buffer);
            }
            (FlashOp::Program { token, buffer, .. }, PendingOp::Program(extent)) => {
                self.runs.add(token, extent, buffer);
            }
            (FlashOp::Erase { token, block }, _) => {
                let to = self.ledger.generation(block).next();
                self.log.request(TableChange::Erase { token, block, to });
            }
            (FlashOp::Sync { token }, _) => self.syncs.request(Syncer::Caller(token)),
            (FlashOp::Grow { token, .. }, PendingOp::Grow(to)) => {
                self.log.request(TableChange::Grow { token, to });
            }
            (op, admitted) => unreachable!("{op:?} was admitted as {admitted:?}"),
        }
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<FlashCompletion>) -> usize {
        let before = completions.len();
        completions.append(&mut self.requests.ready);
        if self.requests.in_flight() == 0 && self.medium.in_flight() == 0 {
            return completions.len() - before;
        }
        self.drive(completions);
        let mut finished = std::mem::take(&mut self.finished);
        self.medium.poll(&mut finished);
        if !finished.is_empty() {
            for done in finished.drain(..) {
                self.settle(done, completions);
            }
            self.drive(completions);
            self.medium.flush();
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
            self.medium.wait(timeout);
        }
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.medium.wake_fd()
    }

    fn stats(&self) -> DeviceStats {
        let (wear_min, wear_max) = self.ledger.wear();
        let bad_blocks = self.zones.bad_count(self.ledger.geometry().blocks);
        DeviceStats { wear_min, wear_max, bad_blocks, ..self.requests.stats }
    }
}
