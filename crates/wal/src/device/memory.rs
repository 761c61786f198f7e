//! A disk in memory that forgets what was not synced: for tests, and for the simulator's worlds.
//!
//! The [`MemoryDisk`] outlives the devices opened on it. Nothing completes before the owner polls,
//! so at any moment at most one group and one change of the directory are under way;
//! [`MemoryDisk::crash`] decides their fate by a seed: each sector of the group was kept, lost or
//! torn, and the change of the directory happened or not. Everything completed is durable.
//! [`MemoryDisk::cut_power_at`] decides it outright, and ends what its owner does with errors: for
//! sweeps over every moment. With a [`DiskPace`], an operation completes only when the disk's clock
//! has come so far, or when somebody blocks on it: [`MemoryDisk::set_now`] moves that clock,
//! [`MemoryDisk::next_due`] tells the simulator when to look again.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use timestone_io::AlignedBuffer;
use timestone_types::random::{Dice, Seed};

use super::{DeviceEvent, FileInfo, FileName, FileRegistry, FileSource, LogDevice};
use crate::WalError;
use crate::limits::SECTOR_BYTES;

/// A disk with log files in memory; clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<DiskState>>,
}

#[derive(Debug, Default)]
struct DiskState {
    files: BTreeMap<FileName, Vec<u8>>,
    writing: Option<Writing>,
    /// The change under way, when it is over, and its number among the operations.
    changing: Option<(DirectoryChange, u64, u64)>,
    /// Devices of an earlier life do nothing.
    life: u64,
    operations: u64,
    faults: DiskFaults,
    /// Syncs are acknowledged and not done.
    lying: bool,
    /// What was written since then, oldest first.
    unsynced: Vec<Unsynced>,
    clock: DiskClock,
    /// Writes and bytes that were asked for.
    asked: (u64, u64),
}

/// What is to go wrong, as ordered, and what has.
#[derive(Debug, Default)]
struct DiskFaults {
    /// The operation of this number and those after it never complete.
    stop_at: Option<u64>,
    /// Nothing completes.
    held: bool,
    cut: Option<PowerCut>,
    /// The power is off since an ordered cut, which interrupted a write of so many bytes.
    interrupted: Option<usize>,
    failing_writes: bool,
    failing_removals: bool,
    failing_reuses: bool,
    /// Where sectors begin that are not read.
    unread: BTreeSet<(FileName, u64)>,
    /// Bytes of all files beyond which no fresh one is made.
    space_bytes: Option<u64>,
}

impl DiskFaults {
    /// Whether nothing completes any more, or for now, after so many operations.
    fn stops(&self, operations: u64) -> bool {
        self.held || self.stop_at.is_some_and(|stop| operations >= stop)
    }

    /// A new life begins: what ended or held up the one before is over.
    fn restart(&mut self) {
        self.stop_at = None;
        self.held = false;
        self.interrupted = None;
    }
}

/// When operations are over, by a clock that tests move.
#[derive(Debug, Default)]
struct DiskClock {
    pace: Option<DiskPace>,
    draws: u64,
    now: u64,
    /// Somebody blocks: what is under way completes at the next poll.
    awaited: bool,
}

impl DiskClock {
    /// When an operation begun now is over; zero without a pace.
    fn due(&mut self, base: impl FnOnce(&DiskPace) -> Duration) -> u64 {
        let Some(pace) = self.pace else { return 0 };
        self.draws += 1;
        let drawn = Seed(pace.seed ^ self.draws.rotate_left(32)).dice().roll();
        let spread = u64::try_from(pace.spread.as_nanos()).unwrap_or(u64::MAX);
        let longer = ((u128::from(drawn) * u128::from(spread)) >> 64) as u64;
        let base = u64::try_from(base(&pace).as_nanos()).unwrap_or(u64::MAX);
        self.now.saturating_add(base).saturating_add(longer)
    }

    fn is_over(&self, due: u64) -> bool {
        self.awaited || due <= self.now
    }
}

/// How long operations take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskPace {
    /// A write and its sync.
    pub write: Duration,
    /// What each KiB of a write adds.
    pub write_per_kib: Duration,
    /// Making or removing a file.
    pub change: Duration,
    /// Each operation takes up to this much longer, as drawn.
    pub spread: Duration,
    /// What the draws derive from.
    pub seed: u64,
}

/// When the power goes, and what it leaves of the operations under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PowerCut {
    /// The operation of this number, counted from 1 in this life, is under way when the power goes.
    pub operation: u64,
    /// Bytes of the write under way that arrive, from its front.
    pub keep_bytes: usize,
    /// Whether the change of the directory under way happened.
    pub changed: bool,
}

#[derive(Debug)]
struct Writing {
    file: FileName,
    offset: u64,
    buffers: Vec<AlignedBuffer>,
    due: u64,
    /// Its number among the operations.
    number: u64,
}

/// A sector that was written and not synced, and what stood there before.
#[derive(Debug)]
struct Unsynced {
    file: FileName,
    offset: u64,
    before: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum DirectoryChange {
    Prepare(FileName, FileSource),
    Remove(FileName),
}

impl DiskState {
    /// Lets an ordered cut happen if its moment has come, and ends what is under way with errors
    /// while the power is off.
    fn end_by_cut(&mut self, events: &mut Vec<DeviceEvent>) {
        if let Some(cut) = self.faults.cut.take_if(|cut| self.operations >= cut.operation) {
            if let Some(Writing { file, offset, buffers, .. }) = &self.writing {
                let arrived: Vec<u8> = buffers
                    .iter()
                    .flat_map(|buffer| buffer.iter().copied())
                    .take(cut.keep_bytes)
                    .collect();
                let (file, offset) = (*file, *offset);
                self.faults.interrupted = Some(buffers.iter().map(|buffer| buffer.len()).sum());
                self.store(file, offset, &arrived);
            }
            if let Some((change, ..)) = self.changing.filter(|_| cut.changed) {
                self.apply(change);
            }
            self.faults.interrupted.get_or_insert(0);
        }
        if self.faults.interrupted.is_none() {
            return;
        }
        match self.changing.take() {
            Some((DirectoryChange::Prepare(name, _), ..)) => {
                events.push(DeviceEvent::Prepared {
                    name,
                    result: Err(error("prepare", name, io::ErrorKind::NotConnected)),
                });
            }
            Some((DirectoryChange::Remove(name), ..)) => {
                events.push(DeviceEvent::Removed {
                    name,
                    result: Err(error("remove", name, io::ErrorKind::NotConnected)),
                });
            }
            None => {}
        }
        if let Some(Writing { file, buffers, .. }) = self.writing.take() {
            events.push(DeviceEvent::Written {
                buffers,
                result: Err(error("write", file, io::ErrorKind::NotConnected)),
            });
        }
    }

    /// Forgets what is under way with a number above `last`.
    fn forget_after(&mut self, last: u64) {
        self.writing.take_if(|writing| writing.number > last);
        self.changing.take_if(|(.., number)| *number > last);
    }

    fn used_bytes(&self) -> u64 {
        self.files.values().map(|bytes| bytes.len() as u64).sum()
    }

    fn apply(&mut self, change: DirectoryChange) -> DeviceEvent {
        match change {
            DirectoryChange::Prepare(name, FileSource::Reused(old))
                if self.faults.failing_reuses =>
            {
                let result = Err(error("rename", old, io::ErrorKind::Other));
                DeviceEvent::Prepared { name, result }
            }
            DirectoryChange::Prepare(name, source) => {
                DeviceEvent::Prepared { name, result: self.make(name, source) }
            }
            DirectoryChange::Remove(name) if self.faults.failing_removals => DeviceEvent::Removed {
                name,
                result: Err(error("remove", name, io::ErrorKind::Other)),
            },
            DirectoryChange::Remove(name) => {
                self.unsynced.retain(|sector| sector.file != name);
                self.files.remove(&name);
                DeviceEvent::Removed { name, result: Ok(()) }
            }
        }
    }

    fn make(&mut self, name: FileName, source: FileSource) -> Result<(), WalError> {
        let bytes = match source {
            FileSource::Fresh { bytes }
                if self
                    .faults
                    .space_bytes
                    .is_some_and(|limit| self.used_bytes() + bytes > limit) =>
            {
                return Err(error("preallocate", name, io::ErrorKind::StorageFull));
            }
            FileSource::Fresh { bytes } => vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)],
            FileSource::Reused(old) => {
                self.unsynced
                    .iter_mut()
                    .filter(|sector| sector.file == old)
                    .for_each(|sector| sector.file = name);
                self.files
                    .remove(&old)
                    .ok_or_else(|| error("rename", old, io::ErrorKind::NotFound))?
            }
        };
        self.files.insert(name, bytes);
        Ok(())
    }

    /// The power goes, and with it what was acknowledged and not synced: half of the time the end
    /// of it, half of the time any of its sectors.
    fn lose_unsynced(&mut self, dice: &mut Dice) {
        let unsynced = std::mem::take(&mut self.unsynced);
        if unsynced.is_empty() {
            return;
        }
        let lying = std::mem::take(&mut self.lying);
        let whole = usize::try_from(dice.roll()).unwrap_or(0) % (unsynced.len() + 1);
        let is_suffix = dice.roll().is_multiple_of(2);
        for (at, Unsynced { file, offset, mut before }) in unsynced.into_iter().enumerate().rev() {
            let is_lost = if is_suffix { at >= whole } else { dice.roll().is_multiple_of(4) };
            if !is_lost {
                continue;
            }
            // Some of it arrived, from the front.
            if at == whole
                && let Some(content) = self.files.get(&file)
            {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
                let arrived = (usize::try_from(dice.roll()).unwrap_or(0) % before.len().max(1))
                    .min(content.len() - start);
                before[..arrived].copy_from_slice(&content[start..start + arrived]);
            }
            self.store(file, offset, &before);
        }
        self.lying = lying;
    }

    /// Copies `bytes` to the file; what reaches beyond its end is lost, as the manager never asks
    /// for it.
    fn store(&mut self, file: FileName, offset: u64, bytes: &[u8]) {
        let Some(content) = self.files.get_mut(&file) else { return };
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let end = (start + bytes.len()).min(content.len());
        if self.lying {
            for (at, before) in
                (offset..).step_by(SECTOR_BYTES).zip(content[start..end].chunks(SECTOR_BYTES))
            {
                self.unsynced.push(Unsynced { file, offset: at, before: before.to_vec() });
            }
        }
        content[start..end].copy_from_slice(&bytes[..end - start]);
    }
}

fn error(action: &'static str, file: FileName, kind: io::ErrorKind) -> WalError {
    WalError::io(action, PathBuf::from(format!("memory/{file}")), kind.into())
}

impl MemoryDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// No sector of a file is read that begins at one of these offsets, multiples of 4096.
    pub fn set_unread(&self, file: FileName, sectors: impl IntoIterator<Item = u64>) {
        let unread = &mut self.lock().faults.unread;
        unread.retain(|(other, _)| *other != file);
        unread.extend(sectors.into_iter().map(|sector| (file, sector)));
    }

    /// A device on this disk.
    #[must_use]
    pub fn device(&self) -> Box<dyn LogDevice> {
        let mut state = self.lock();
        if state.faults.interrupted.is_some() {
            state.restart();
        }
        let life = state.life;
        drop(state);
        Box::new(MemoryDevice { disk: self.clone(), life, registry: None })
    }

    /// Cuts the power: each sector of the write under way was kept, lost or torn, and the change of
    /// the directory under way happened or not, as the seed says. Devices opened before do nothing
    /// any more.
    pub fn crash(&self, seed: u64) {
        self.crash_after(u64::MAX, seed);
    }

    /// The same when its process died while it handed in its operations: those after number `last`
    /// never reached the disk, as if they had not been asked for. [`MemoryDisk::operations`]
    /// numbers them.
    pub fn crash_after(&self, last: u64, seed: u64) {
        // Remainders, not numbers below a bound: regression seeds hang on this sequence.
        let mut dice = Seed(seed).dice();
        let mut state = self.lock();
        state.forget_after(last);
        state.lose_unsynced(&mut dice);
        if let Some(Writing { file, offset, buffers, .. }) = state.writing.take() {
            let mut at = offset;
            for buffer in &buffers {
                for sector in buffer.chunks(SECTOR_BYTES) {
                    let kept = match dice.roll() % 4 {
                        0 => 0,
                        1 => usize::try_from(dice.roll()).unwrap_or(0) % sector.len(),
                        _ => sector.len(),
                    };
                    state.store(file, at, &sector[..kept]);
                    at += sector.len() as u64;
                }
            }
        }
        if let Some((change, ..)) = state.changing.take()
            && dice.roll().is_multiple_of(2)
        {
            state.apply(change);
        }
        state.unsynced.clear();
        state.restart();
    }

    /// Ends the process that has the disk open, and leaves the machine on: the write under way, if
    /// it is among the operations up to `last`, arrived whole or was never begun, as the seed says;
    /// so did the change of the directory.
    pub fn kill_after(&self, last: u64, seed: u64) {
        // Remainders, not numbers below a bound: regression seeds hang on this sequence.
        let mut dice = Seed(seed).dice();
        let mut state = self.lock();
        state.forget_after(last);
        if let Some(Writing { file, offset, buffers, .. }) = state.writing.take()
            && dice.roll().is_multiple_of(2)
        {
            let arrived: Vec<u8> =
                buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect();
            state.store(file, offset, &arrived);
        }
        if let Some((change, ..)) = state.changing.take()
            && dice.roll().is_multiple_of(2)
        {
            state.apply(change);
        }
        state.restart();
    }

    /// Cuts the power when an operation is under way. What waits for the disk then is told of a
    /// failure, and so is everything after it, until the next device is opened on the disk.
    pub fn cut_power_at(&self, cut: PowerCut) {
        self.lock().faults.cut = Some(cut);
    }

    /// Since a cut that was ordered has come: bytes of the write that it interrupted. `None` while
    /// the power is on.
    #[must_use]
    pub fn interrupted_bytes(&self) -> Option<usize> {
        self.lock().faults.interrupted
    }

    /// Flips one bit of a file, which must be that long: rot.
    pub fn flip_bit(&self, file: FileName, bit: usize) {
        if let Some(byte) =
            self.lock().files.get_mut(&file).and_then(|content| content.get_mut(bit / 8))
        {
            *byte ^= 1 << (bit % 8);
        }
    }

    /// How many writes, and of how many bytes together, were asked for since the disk was made.
    #[must_use]
    pub fn asked(&self) -> (u64, u64) {
        self.lock().asked
    }

    /// How many operations (writes, files made, files removed) were begun in this life.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// The operation of this number, counted from 1, never completes, and none after it.
    pub fn stop_at(&self, operation: u64) {
        self.lock().faults.stop_at = Some(operation);
    }

    /// While held, nothing completes.
    pub fn hold(&self, held: bool) {
        self.lock().faults.held = held;
    }

    /// Sets how long operations take that are begun from now on; `None`: they complete when the
    /// owner polls.
    pub fn set_pace(&self, pace: Option<DiskPace>) {
        self.lock().clock.pace = pace;
    }

    /// Moves the disk's clock, in nanoseconds of any origin.
    pub fn set_now(&self, nanos: u64) {
        self.lock().clock.now = nanos;
    }

    /// When something under way completes next, by the disk's clock.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        let state = self.lock();
        if state.faults.stops(state.operations) {
            return None;
        }
        let writing = state.writing.as_ref().map(|writing| writing.due);
        writing.into_iter().chain(state.changing.as_ref().map(|&(_, due, _)| due)).min()
    }

    /// Lets every write fail from now on, or not.
    pub fn fail_writes(&self, failing: bool) {
        self.lock().faults.failing_writes = failing;
    }

    /// Lets the removal of every file fail from now on, or not.
    pub fn fail_removals(&self, failing: bool) {
        self.lock().faults.failing_removals = failing;
    }

    /// From now on files cannot be reused, and stay under their old names; or can again.
    pub fn fail_reuses(&self, failing: bool) {
        self.lock().faults.failing_reuses = failing;
    }

    /// From now on the disk lies: writes are acknowledged as synced, and a cut of the power takes
    /// some of them. When it no longer lies, all of them are synced at once. Files are made,
    /// renamed and removed durably in any case.
    pub fn set_lying(&self, lying: bool) {
        let mut state = self.lock();
        state.lying = lying;
        if !lying {
            state.unsynced.clear();
        }
    }

    /// Fresh files beyond this many bytes in all fail with "no space".
    pub fn limit_space(&self, bytes: Option<u64>) {
        self.lock().faults.space_bytes = bytes;
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.lock().used_bytes()
    }

    /// The files, oldest first.
    #[must_use]
    pub fn files(&self) -> Vec<FileName> {
        self.lock().files.keys().copied().collect()
    }

    /// A copy of a file's bytes; empty when there is none.
    #[must_use]
    pub fn content(&self, file: FileName) -> Vec<u8> {
        self.lock().files.get(&file).cloned().unwrap_or_default()
    }

    /// Replaces a file's bytes, or makes the file.
    pub fn set_content(&self, file: FileName, content: Vec<u8>) {
        self.lock().files.insert(file, content);
    }

    /// Takes a file away.
    pub fn delete(&self, file: FileName) {
        self.lock().files.remove(&file);
    }

    /// A disk of its own with the same files.
    #[must_use]
    pub fn copy(&self) -> Self {
        let state = DiskState { files: self.lock().files.clone(), ..DiskState::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Length in bytes of the write under way; 0 when there is none.
    #[must_use]
    pub fn writing_bytes(&self) -> usize {
        self.lock()
            .writing
            .as_ref()
            .map_or(0, |writing| writing.buffers.iter().map(|buffer| buffer.len()).sum())
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskState {
    fn restart(&mut self) {
        self.life += 1;
        self.operations = 0;
        self.clock.awaited = false;
        self.faults.restart();
    }
}

#[derive(Debug)]
struct MemoryDevice {
    disk: MemoryDisk,
    life: u64,
    registry: Option<Arc<dyn FileRegistry>>,
}

impl MemoryDevice {
    fn alive(&self) -> Option<MutexGuard<'_, DiskState>> {
        let state = self.disk.lock();
        (state.life == self.life).then_some(state)
    }

    /// Notes that a file is going to be removed or renamed. A registry in memory does not fail.
    fn removing(&self, file: FileName) {
        if let Some(registry) = self.registry.as_ref().filter(|_| self.alive().is_some()) {
            registry.removing(file).expect("a registry in memory takes everything");
        }
    }

    /// Notes the file that was made, if one was.
    fn created(&self, event: &DeviceEvent) {
        if let (Some(registry), DeviceEvent::Prepared { name, result: Ok(()) }) =
            (&self.registry, event)
        {
            registry.created(*name).expect("a registry in memory takes everything");
        }
    }
}

impl LogDevice for MemoryDevice {
    fn list(&mut self) -> Result<Vec<FileInfo>, WalError> {
        let state = self.disk.lock();
        Ok(state
            .files
            .iter()
            .map(|(&name, content)| FileInfo { name, bytes: content.len() as u64 })
            .collect())
    }

    fn read(&mut self, file: FileName, offset: u64, into: &mut [u8]) -> Result<usize, WalError> {
        let state = self.disk.lock();
        let content =
            state.files.get(&file).ok_or_else(|| error("read", file, io::ErrorKind::NotFound))?;
        let end = offset + into.len() as u64;
        let first = offset - offset % SECTOR_BYTES as u64;
        if state.faults.unread.range((file, first)..(file, end)).next().is_some() {
            let path = PathBuf::from(format!("memory/{file}"));
            return Err(WalError::io("read", path, Errno::IO.into()));
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let count = into.len().min(content.len() - start);
        into[..count].copy_from_slice(&content[start..start + count]);
        Ok(count)
    }

    fn register(&mut self, registry: Arc<dyn FileRegistry>) {
        self.registry = Some(registry);
    }

    fn prepare(&mut self, name: FileName, source: FileSource) {
        if let FileSource::Reused(old) = source {
            self.removing(old);
        }
        if let Some(mut state) = self.alive() {
            assert!(state.changing.is_none(), "one change of the directory at a time");
            state.operations += 1;
            let due = state.clock.due(|pace| pace.change);
            state.changing = Some((DirectoryChange::Prepare(name, source), due, state.operations));
        }
    }

    fn remove(&mut self, file: FileName) {
        self.removing(file);
        if let Some(mut state) = self.alive() {
            assert!(state.changing.is_none(), "one change of the directory at a time");
            state.operations += 1;
            let due = state.clock.due(|pace| pace.change);
            state.changing = Some((DirectoryChange::Remove(file), due, state.operations));
        }
    }

    fn write(&mut self, file: FileName, offset: u64, buffers: Vec<AlignedBuffer>) {
        if let Some(mut state) = self.alive() {
            assert!(state.writing.is_none(), "one write at a time");
            let length: usize = buffers.iter().map(|buffer| buffer.len()).sum();
            let room = state.files.get(&file).map_or(0, Vec::len);
            assert!(offset as usize + length <= room, "a write stays within its file");
            state.operations += 1;
            state.asked.0 += 1;
            state.asked.1 += length as u64;
            let due = state.clock.due(|pace| {
                pace.write + pace.write_per_kib * u32::try_from(length / 1024).unwrap_or(u32::MAX)
            });
            state.writing = Some(Writing { file, offset, buffers, due, number: state.operations });
        }
    }

    fn poll(&mut self, events: &mut Vec<DeviceEvent>) {
        let Some(mut state) = self.alive() else { return };
        state.end_by_cut(events);
        if state.faults.stops(state.operations) {
            return;
        }
        if let Some((change, due, _)) = state.changing
            && state.clock.is_over(due)
        {
            state.changing = None;
            let event = state.apply(change);
            // The registry has a lock of its own, which must not be taken within the disk's.
            drop(state);
            self.created(&event);
            events.push(event);
            let Some(next) = self.alive() else { return };
            state = next;
        }
        let over = state.writing.as_ref().is_some_and(|writing| state.clock.is_over(writing.due));
        if over && let Some(Writing { file, offset, buffers, .. }) = state.writing.take() {
            let result = if state.faults.failing_writes {
                Err(error("write", file, io::ErrorKind::Other))
            } else {
                let mut at = offset;
                for buffer in &buffers {
                    state.store(file, at, buffer);
                    at += buffer.len() as u64;
                }
                Ok(())
            };
            events.push(DeviceEvent::Written { buffers, result });
        }
        state.clock.awaited = false;
    }

    fn wait(&mut self, _timeout: Duration) {
        if let Some(mut state) = self.alive() {
            state.clock.awaited = true;
        }
    }

    fn wake_fd(&self) -> Option<RawFd> {
        None
    }
}
