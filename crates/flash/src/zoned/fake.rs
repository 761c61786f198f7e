//! A strict zoned device over a file, for tests: it refuses what a real one refuses, fails on
//! request, and loses on a power cut what no sync covers.
//!
//! ```text
//!   FakeZones (shared handle, for tests)              FakeMedium (one at a time, opened on it)
//!     inject, set_condition, cut_at, power_cut ──► State ◄── writes, resets, finishes, syncs
//! ```
//!
//! The file holds the bytes, this module the zones' states. What was never written since a reset
//! reads as a pattern that nobody wrote, for real devices promise nothing there. Every refusal for a
//! broken rule is counted (`violations`), so that a test can say that there was none.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use timestone_io::{IoCompletion, IoToken, Zone, ZoneAction, ZoneCondition, ZoneKind, ZoneLimits};

use crate::dice::FaultDice;
use crate::error::FlashError;
use crate::faults::{Fault, FaultOrders, OpKind};
use crate::memory::Unsettled;
use crate::zoned::medium::{ZoneOp, ZonedMedium};

/// What a page reads as that was not written since its zone's reset.
const UNWRITTEN: u8 = 0xa5;

/// Shape and manners of a fake device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FakeConfig {
    /// Where the bytes lie; created, or emptied.
    pub path: PathBuf,
    /// Zones at the beginning that are written as an ordinary disk is.
    pub conventional: u32,
    /// Zones behind them that are written in order.
    pub sequential: u32,
    /// Bytes from one zone to the next.
    pub zone_bytes: u64,
    /// Bytes of a sequential zone that can be written.
    pub capacity_bytes: u64,
    /// Bytes that writes are multiples of, and that a power cut tears between.
    pub unit_bytes: u64,
    /// What bounds the use of its zones.
    pub limits: ZoneLimits,
    /// Most operations that a poll carries out: fewer keep them in flight longer.
    pub ops_per_poll: usize,
    /// Carries operations out in an order drawn from this seed; `None`: in order of submission.
    pub shuffle: Option<u64>,
}

/// The device: outlives who opens it, takes orders for faults. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FakeZones {
    shared: Arc<Mutex<State>>,
    config: FakeConfig,
}

#[derive(Debug)]
struct State {
    file: File,
    zones: Vec<FakeZone>,
    session: u64,
    orders: FaultOrders,
    /// Changing operations until the power goes, bytes of the last that arrive, and the rest's fate.
    cut: Option<(u32, usize, Unsettled)>,
    off: bool,
    operations: u32,
    violations: u64,
    /// Former bytes of conventional zones that no sync covers.
    overwritten: Vec<(u64, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug)]
struct FakeZone {
    kind: ZoneKind,
    condition: ZoneCondition,
    /// Bytes written, and those that a sync covers.
    written: u64,
    durable: u64,
    /// What it held before a reset that no sync covers, until it is written again.
    before_reset: Option<(u64, ZoneCondition)>,
}

impl FakeZones {
    /// A device of empty zones.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn new(config: FakeConfig) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&config.path)?;
        let count = config.conventional + config.sequential;
        file.set_len(u64::from(count) * config.zone_bytes)?;
        let zone = |number| {
            let (kind, condition) = match number < config.conventional {
                true => (ZoneKind::Conventional, ZoneCondition::NotWritePointer),
                false => (ZoneKind::Sequential, ZoneCondition::Empty),
            };
            FakeZone { kind, condition, written: 0, durable: 0, before_reset: None }
        };
        let state = State {
            file,
            zones: (0..count).map(zone).collect(),
            session: 0,
            orders: FaultOrders::default(),
            cut: None,
            off: false,
            operations: 0,
            violations: 0,
            overwritten: Vec::new(),
        };
        Ok(Self { shared: Arc::new(Mutex::new(state)), config })
    }

    /// Opens it, and switches the power on. Who opened it before can do nothing any more.
    #[must_use]
    pub fn open(&self) -> FakeMedium {
        let mut state = self.lock();
        state.session += 1;
        state.off = false;
        state.operations = 0;
        FakeMedium {
            zones: self.clone(),
            session: state.session,
            queue: VecDeque::new(),
            dice: self.config.shuffle.map(FaultDice::new),
        }
    }

    /// Orders a fault: reads, programs (writes), erases (resets) and syncs can fail.
    pub fn inject(&self, fault: Fault) {
        self.lock().orders.add(fault);
    }

    /// Faults that were ordered and have not struck yet.
    #[must_use]
    pub fn pending_faults(&self) -> usize {
        self.lock().orders.pending()
    }

    /// A zone goes into a condition by itself, such as read-only or offline.
    pub fn set_condition(&self, zone: u32, condition: ZoneCondition) {
        self.lock().zones[zone as usize].condition = condition;
    }

    /// The power goes at the changing operation of this number, from 1: so many bytes of it arrive
    /// (a reset, finish or sync happens when that is not zero).
    pub fn cut_at(&self, operation: u32, keep_bytes: usize, others: Unsettled) {
        self.lock().cut = Some((operation, keep_bytes, others));
    }

    /// The power goes now.
    pub fn power_cut(&self, others: Unsettled) {
        let unit = self.config.unit_bytes;
        self.lock().settle(others, unit);
    }

    /// Whether the power is off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.lock().off
    }

    /// Changing operations since it was opened.
    #[must_use]
    pub fn operations(&self) -> u32 {
        self.lock().operations
    }

    /// How often somebody broke the rules of zones.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.lock().violations
    }

    /// Zones that are partly written.
    #[must_use]
    pub fn active(&self) -> u32 {
        self.lock().count(ZoneCondition::is_active)
    }

    /// Changes bytes of the device without its knowing.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn overwrite(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.lock().file.write_all_at(bytes, offset)
    }

    /// Bytes of the device as they lie there.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn bytes(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.lock().file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&self, which: impl Fn(ZoneCondition) -> bool) -> u32 {
        self.zones.iter().filter(|zone| which(zone.condition)).count() as u32
    }

    /// Somebody broke the rules.
    fn violation(&mut self, what: &str) -> io::Error {
        self.violations += 1;
        io::Error::other(format!("against the rules of zones: {what}"))
    }

    /// What no sync covers arrives or does not; the power is off.
    fn settle(&mut self, others: Unsettled, unit: u64) {
        let mut dice = match others {
            Unsettled::Drawn(seed) => Some(FaultDice::new(seed)),
            Unsettled::Kept | Unsettled::Lost => None,
        };
        let mut keeps = |most: u64| match (&mut dice, others) {
            (Some(dice), _) => dice.below(most as usize + 1) as u64,
            (None, Unsettled::Kept) => most,
            (None, _) => 0,
        };
        for zone in &mut self.zones {
            if let Some((written, condition)) = zone.before_reset.take()
                && keeps(1) == 0
                && !zone.condition.is_bad()
            {
                (zone.written, zone.durable, zone.condition) = (written, written, condition);
            }
            let volatile = zone.written.saturating_sub(zone.durable) / unit;
            if volatile > 0 && zone.kind == ZoneKind::Sequential && !zone.condition.is_bad() {
                zone.written = zone.durable + keeps(volatile) * unit;
                if zone.condition.is_active() {
                    zone.condition = ZoneCondition::Closed;
                }
            }
            if zone.condition.is_active() && zone.written == 0 {
                zone.condition = ZoneCondition::Empty;
            }
            zone.durable = zone.written;
        }
        for (offset, bytes) in std::mem::take(&mut self.overwritten).into_iter().rev() {
            for (unit_number, piece) in bytes.chunks(unit as usize).enumerate() {
                if keeps(1) == 0 {
                    let at = offset + unit_number as u64 * unit;
                    self.file.write_all_at(piece, at).expect("the test's file can be written");
                }
            }
        }
        self.off = true;
        self.cut = None;
    }

    /// Counts a changing operation; whether the power goes with it, and what arrives.
    fn strikes(&mut self) -> Option<(usize, Unsettled)> {
        self.operations += 1;
        let (operation, keep, others) = self.cut.as_mut()?;
        *operation = operation.saturating_sub(1);
        (*operation == 0).then_some((*keep, *others))
    }
}

/// The fake, opened.
#[derive(Debug)]
pub struct FakeMedium {
    zones: FakeZones,
    session: u64,
    queue: VecDeque<(IoToken, ZoneOp)>,
    dice: Option<FaultDice>,
}

impl FakeMedium {
    fn zone_of(&self, offset: u64) -> usize {
        (offset / self.zones.config.zone_bytes) as usize
    }

    /// Sequential zones that writes under way are in.
    fn is_written(&self, zone: usize) -> bool {
        let here = |(_, op): &(IoToken, ZoneOp)| match op {
            ZoneOp::Write { offset, .. } => self.zone_of(*offset) == zone,
            _ => false,
        };
        self.queue.iter().any(here)
    }

    fn perform(&mut self, op: &mut ZoneOp) -> io::Result<usize> {
        let zones = self.zones.clone();
        let mut state = zones.lock();
        if state.off || state.session != self.session {
            return Err(io::Error::other("the power is off"));
        }
        let kind = match op {
            ZoneOp::Read { .. } => OpKind::Read,
            ZoneOp::Write { .. } => OpKind::Program,
            ZoneOp::Zone { .. } => OpKind::Erase,
            ZoneOp::Sync => OpKind::Sync,
        };
        if let Some(Fault::Fail { .. }) = state.orders.strike(kind) {
            return Err(io::Error::other("an injected fault"));
        }
        let struck = if kind == OpKind::Read { None } else { state.strikes() };
        let keep = struck.map_or(usize::MAX, |(keep, _)| keep);
        let result = match op {
            ZoneOp::Read { offset, buffer, length } => {
                self.read(&mut state, *offset, &mut buffer[..*length])
            }
            ZoneOp::Write { offset, buffers } => {
                let bytes: Vec<u8> =
                    buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect();
                self.write(&mut state, *offset, &bytes, keep)
            }
            ZoneOp::Sync if keep == 0 => Ok(0),
            ZoneOp::Sync => {
                for zone in &mut state.zones {
                    (zone.durable, zone.before_reset) = (zone.written, None);
                }
                state.overwritten.clear();
                Ok(0)
            }
            ZoneOp::Zone { .. } if keep == 0 => Ok(0),
            ZoneOp::Zone { action, offset, length } => {
                self.act(&mut state, *action, *offset, *length)
            }
        };
        if let Some((_, others)) = struck {
            state.settle(others, zones.config.unit_bytes);
            return Err(io::Error::other("the power went"));
        }
        result
    }

    fn read(&self, state: &mut State, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let (number, length) = (self.zone_of(offset), into.len() as u64);
        if number != self.zone_of(offset + length - 1) {
            return Err(state.violation("a read across zones"));
        }
        let zone = state.zones[number];
        if zone.condition == ZoneCondition::Offline {
            return Err(io::Error::other("the zone is offline"));
        }
        state.file.read_exact_at(into, offset)?;
        if zone.kind == ZoneKind::Sequential {
            let begin = offset % self.zones.config.zone_bytes;
            let there = zone.written.saturating_sub(begin).min(length) as usize;
            into[there..].fill(UNWRITTEN);
        }
        Ok(into.len())
    }

    fn write(
        &self,
        state: &mut State,
        offset: u64,
        bytes: &[u8],
        keep: usize,
    ) -> io::Result<usize> {
        let config = &self.zones.config;
        let number = self.zone_of(offset);
        let begin = offset % config.zone_bytes;
        let end = begin + bytes.len() as u64;
        if !(offset | bytes.len() as u64).is_multiple_of(config.unit_bytes) || bytes.is_empty() {
            return Err(state.violation("a write off the grid"));
        }
        let kept = keep.min(bytes.len()) / config.unit_bytes as usize * config.unit_bytes as usize;
        let zone = state.zones[number];
        if zone.kind == ZoneKind::Conventional {
            if end > config.zone_bytes {
                return Err(state.violation("a write across zones"));
            }
            let mut before = vec![0; kept];
            state.file.read_exact_at(&mut before, offset)?;
            state.overwritten.push((offset, before));
            state.file.write_all_at(&bytes[..kept], offset)?;
            return Ok(bytes.len());
        }
        if zone.condition.is_bad() {
            return Err(io::Error::other("the zone is read-only or offline"));
        }
        if zone.condition == ZoneCondition::Full || end > config.capacity_bytes {
            return Err(state.violation("a write beyond the zone's capacity"));
        }
        if begin != zone.written {
            return Err(state.violation("a write that is not at the write pointer"));
        }
        self.open_zone(state, number, ZoneCondition::ImplicitlyOpen)?;
        state.file.write_all_at(&bytes[..kept], offset)?;
        let zone = &mut state.zones[number];
        zone.written += kept as u64;
        if kept > 0 {
            zone.before_reset = None;
        }
        if zone.written == config.capacity_bytes {
            zone.condition = ZoneCondition::Full;
        }
        Ok(bytes.len())
    }

    /// A zone is opened, which may close another one that a write has opened and that is not being
    /// written.
    fn open_zone(&self, state: &mut State, number: usize, to: ZoneCondition) -> io::Result<()> {
        let limits = self.zones.config.limits;
        let now = state.zones[number].condition;
        let is_open = |condition| {
            matches!(condition, ZoneCondition::ImplicitlyOpen | ZoneCondition::ExplicitlyOpen)
        };
        if is_open(now) {
            return Ok(());
        }
        let active = state.count(ZoneCondition::is_active);
        if !now.is_active() && limits.max_active > 0 && active >= limits.max_active {
            return Err(state.violation("too many active zones"));
        }
        if limits.max_open > 0 && state.count(is_open) >= limits.max_open {
            let closable = (0..state.zones.len()).find(|&other| {
                state.zones[other].condition == ZoneCondition::ImplicitlyOpen
                    && !self.is_written(other)
            });
            let Some(other) = closable else {
                return Err(state.violation("too many open zones"));
            };
            state.zones[other].condition = ZoneCondition::Closed;
        }
        state.zones[number].condition = to;
        Ok(())
    }

    fn act(
        &self,
        state: &mut State,
        action: ZoneAction,
        offset: u64,
        length: u64,
    ) -> io::Result<usize> {
        let config = &self.zones.config;
        let number = self.zone_of(offset);
        if !offset.is_multiple_of(config.zone_bytes) || length != config.zone_bytes {
            return Err(state.violation("a command for something that is not one zone"));
        }
        let zone = state.zones[number];
        if zone.kind == ZoneKind::Conventional {
            return Err(state.violation("a command for a conventional zone"));
        }
        if zone.condition.is_bad() {
            return Err(io::Error::other("the zone is read-only or offline"));
        }
        if self.is_written(number) {
            return Err(state.violation("a command for a zone that is being written"));
        }
        match action {
            ZoneAction::Reset => {
                let before = zone.before_reset.or(Some((zone.durable, zone.condition)));
                state.zones[number] = FakeZone {
                    kind: zone.kind,
                    condition: ZoneCondition::Empty,
                    written: 0,
                    durable: 0,
                    before_reset: before.filter(|&(durable, _)| durable > 0),
                };
            }
            ZoneAction::Open => self.open_zone(state, number, ZoneCondition::ExplicitlyOpen)?,
            ZoneAction::Close if zone.condition.is_active() => {
                state.zones[number].condition = match zone.written {
                    0 => ZoneCondition::Empty,
                    _ => ZoneCondition::Closed,
                };
            }
            ZoneAction::Close => return Err(state.violation("closing a zone that is not open")),
            ZoneAction::Finish => state.zones[number].condition = ZoneCondition::Full,
        }
        Ok(0)
    }
}

impl ZonedMedium for FakeMedium {
    fn path(&self) -> &Path {
        &self.zones.config.path
    }

    fn limits(&self) -> ZoneLimits {
        self.zones.config.limits
    }

    fn report(&mut self, offset: u64, most: usize) -> Result<Vec<Zone>, FlashError> {
        let config = &self.zones.config;
        let state = self.zones.lock();
        let zone = |(number, zone): (usize, &FakeZone)| {
            let start = number as u64 * config.zone_bytes;
            let sequential = zone.kind == ZoneKind::Sequential;
            Zone {
                start,
                length: config.zone_bytes,
                capacity: if sequential { config.capacity_bytes } else { config.zone_bytes },
                write_pointer: start + zone.written,
                kind: zone.kind,
                condition: zone.condition,
            }
        };
        let zones = state.zones.iter().enumerate().skip(self.zone_of(offset)).take(most);
        Ok(zones.map(zone).collect())
    }

    fn submit(&mut self, token: IoToken, op: ZoneOp) {
        if let ZoneOp::Write { offset, .. } = op {
            let number = self.zone_of(offset);
            let mut state = self.zones.lock();
            if state.zones[number].kind == ZoneKind::Sequential && self.is_written(number) {
                state.violation("two writes of a zone at once");
            }
        }
        self.queue.push_back((token, op));
    }

    fn poll(&mut self, completions: &mut Vec<IoCompletion>) -> usize {
        let most = self.queue.len().min(self.zones.config.ops_per_poll);
        for _ in 0..most {
            let at = self.dice.as_mut().map_or(0, |dice| dice.below(self.queue.len()));
            let Some((token, mut op)) = self.queue.remove(at) else { break };
            let result = self.perform(&mut op);
            let (buffer, buffers) = match op {
                ZoneOp::Read { buffer, .. } => (Some(buffer), Vec::new()),
                ZoneOp::Write { buffers, .. } => (None, buffers),
                ZoneOp::Sync | ZoneOp::Zone { .. } => (None, Vec::new()),
            };
            completions.push(IoCompletion { token, result, buffer, buffers });
        }
        most
    }

    fn flush(&mut self) {}

    fn in_flight(&self) -> usize {
        self.queue.len()
    }

    fn wait(&mut self, _timeout: Duration) {}

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
