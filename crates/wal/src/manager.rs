//! The log manager: groups, rotation, reclaiming, and what to do when a device fails (DTranx
//! §3.3.1; docs/protocol/log.md).
//!
//! ```text
//!   append ─► pending blocks ─► group in flight (one write, durable at completion) ─► Durable
//!                  │ the next block does not fit
//!                  ▼
//!              rotation ◄── spares ◄── made in the background: reclaimed files renamed, else fresh ones
//! ```
//!
//! A spare is made in advance. While none can be made, the owner is told how much it may still
//! admit ([`FileLog::shortage`]): the rest of the current file is a reserve for what was admitted
//! before and for what makes room.
//!
//! Invariants: one group in flight at most; a block of the next file is sent only after the last
//! group of this one is durable; after a failed write nothing is sent and nothing acknowledged; one
//! change of the directory under way at most.

use core::time::Duration;
use std::os::fd::RawFd;

use timestone_io::AlignedBuffer;
use timestone_types::{ShardId, Timestamp};

use crate::block::{BlockHeader, BlockSequence};
use crate::device::{DeviceEvent, FileInfo, FileName, FileSource, LogDevice};
use crate::files::Files;
use crate::limits::{
    GROUP_BLOCKS, MAX_BATCH_BYTES, PREALLOCATE_AT_PERCENT, PREPARE_POLL, PREPARE_RETRY,
    RESERVE_PERCENT, SPARE_FILES,
};
use crate::order::BatchOrder;
use crate::pending::Pending;
use crate::{BatchHead, BatchNumber, LogConfig, LogEvent, LogStats, WalError};

/// What the device does to the directory now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Chore {
    /// Makes a new file.
    Fresh(FileInfo),
    /// Renames the oldest file.
    Reuse { oldest: FileName, spare: FileInfo },
    /// Removes the oldest file.
    Remove(FileName),
    /// Removes what a failed reuse may have left under its new name.
    Clean(FileName),
}

/// A log on files.
pub(crate) struct FileLog {
    config: LogConfig,
    device: Box<dyn LogDevice>,
    pending: Pending,
    files: Files,
    /// Where the next block goes in the current file.
    offset: u64,
    next_sequence: BlockSequence,
    /// Nothing was sent yet since the log was opened.
    fresh: bool,
    in_flight: bool,
    flight_bytes: usize,
    flight_batches: u64,
    /// The last batch of each shard that the group in flight makes durable.
    flight_ends: Vec<(ShardId, BatchNumber)>,
    /// The list for the next group's buffers, reused.
    group: Vec<AlignedBuffer>,
    accepted: BatchOrder,
    chore: Option<Chore>,
    /// A name that a failed reuse may have left.
    leftover: Option<FileName>,
    /// Why the next file could not be made, until one is.
    no_next: Option<String>,
    /// After a failure, no fresh file is tried before the first, nor anything else in the directory
    /// before the second.
    retry_fresh_at: Timestamp,
    retry_at: Timestamp,
    /// The owner was told of a failure, and nothing succeeded since.
    told: bool,
    /// A reuse failed: the oldest file is removed instead.
    no_reuse: bool,
    poisoned: Option<String>,
    /// When shards were asked to carry forward last: rotations, and files reclaimed if that was for
    /// want of room.
    asked_at: Option<(u64, Option<u64>)>,
    /// Nobody was asked the last time, and nothing is appended that would bring the next one.
    asks_after_release: bool,
    holders: Vec<(ShardId, BatchNumber)>,
    device_events: Vec<DeviceEvent>,
    last_now: Timestamp,
    stats: LogStats,
}

impl FileLog {
    /// A log whose first group goes to the start of `files.current()`.
    pub(crate) fn new(
        config: LogConfig,
        device: Box<dyn LogDevice>,
        files: Files,
        next: BlockSequence,
        now: Timestamp,
    ) -> Self {
        Self {
            pending: Pending::new(config.block_bytes),
            config,
            device,
            files,
            offset: 0,
            next_sequence: next,
            fresh: true,
            in_flight: false,
            flight_bytes: 0,
            flight_batches: 0,
            flight_ends: Vec::new(),
            group: Vec::new(),
            accepted: BatchOrder::default(),
            chore: None,
            leftover: None,
            no_next: None,
            retry_fresh_at: Timestamp::ZERO,
            retry_at: Timestamp::ZERO,
            told: false,
            no_reuse: false,
            poisoned: None,
            asked_at: None,
            asks_after_release: false,
            holders: Vec::new(),
            device_events: Vec::new(),
            last_now: now,
            stats: LogStats::default(),
        }
    }

    /// Queues a batch of so many records.
    pub(crate) fn append(
        &mut self,
        head: BatchHead,
        records: u64,
        bytes: &[u8],
    ) -> Result<(), WalError> {
        self.accepts(bytes.len())?;
        if let Err(disorder) = self.accepted.follow(head, records) {
            panic!("what a shard appends goes on: {disorder}");
        }
        self.pending.push(head, bytes);
        self.stats.batches += 1;
        self.stats.batch_bytes += bytes.len() as u64;
        Ok(())
    }

    fn accepts(&self, bytes: usize) -> Result<(), WalError> {
        if let Some(cause) = &self.poisoned {
            return Err(WalError::Poisoned { cause: cause.clone() });
        }
        if bytes > MAX_BATCH_BYTES {
            return Err(WalError::BatchTooLarge { bytes, limit: MAX_BATCH_BYTES });
        }
        let queued = self.queued_bytes();
        if queued >= self.config.queue_bytes {
            return Err(WalError::Busy { queued, limit: self.config.queue_bytes });
        }
        if let Some(cause) = &self.no_next
            && self.files.spare_count() == 0
        {
            let room = self.files.current().bytes - self.offset;
            if self.pending.padded_bytes_with(bytes) as u64 > room {
                return Err(WalError::NoSpace { cause: cause.clone() });
            }
        }
        Ok(())
    }

    fn queued_bytes(&self) -> usize {
        self.pending.bytes() + self.flight_bytes
    }

    pub(crate) fn pump(&mut self, now: Timestamp, events: &mut Vec<LogEvent>) {
        self.last_now = now;
        let mut device_events = core::mem::take(&mut self.device_events);
        self.device.poll(&mut device_events);
        for event in device_events.drain(..) {
            match event {
                DeviceEvent::Written { buffers, result } => self.written(buffers, result, events),
                DeviceEvent::Prepared { name, result } => self.prepared(name, result, events),
                DeviceEvent::Removed { name, result } => self.removed(name, result, events),
            }
        }
        self.device_events = device_events;
        if self.poisoned.is_some() {
            return;
        }
        if !self.in_flight {
            self.send_group();
            #[cfg(feature = "planted-bugs")]
            if crate::planted::bugs().acknowledge_before_sync {
                events.extend(
                    self.flight_ends
                        .drain(..)
                        .map(|(shard, batch)| LogEvent::Durable { shard, batch }),
                );
            }
        }
        if self.chore.is_none() {
            self.begin_chore(now);
        }
        self.ask_to_carry(events);
    }

    fn written(
        &mut self,
        mut buffers: Vec<AlignedBuffer>,
        result: Result<(), WalError>,
        events: &mut Vec<LogEvent>,
    ) {
        assert!(self.in_flight, "a group that completes was in flight");
        self.in_flight = false;
        for buffer in buffers.drain(..) {
            self.pending.give_buffer(buffer);
        }
        self.group = buffers;
        if let Err(error) = result {
            self.poisoned = Some(error.to_string());
            events.push(LogEvent::Failed(error));
            return;
        }
        self.flight_bytes = 0;
        self.stats.groups += 1;
        if self.flight_batches > 0 {
            let class =
                (self.flight_batches.ilog2() as usize).min(self.stats.group_sizes.len() - 1);
            self.stats.group_sizes[class] += 1;
        }
        events.extend(
            self.flight_ends.drain(..).map(|(shard, batch)| LogEvent::Durable { shard, batch }),
        );
    }

    /// Sends the blocks that wait, as many as fit the current file and a group.
    fn send_group(&mut self) {
        let Some(front) = self.pending.front_bytes() else { return };
        if front as u64 > self.files.current().bytes - self.offset {
            if !self.files.rotate() {
                return;
            }
            self.stats.rotations += 1;
            self.offset = 0;
        }
        let file = self.files.current();
        let start = self.offset;
        let durable_below = self.next_sequence;
        self.flight_batches = 0;
        while self.group.len() < GROUP_BLOCKS
            && self
                .pending
                .front_bytes()
                .is_some_and(|bytes| bytes as u64 <= file.bytes - self.offset)
        {
            let Some(block) = self.pending.pop() else { break };
            self.flight_bytes += block.used;
            self.flight_batches += block.batches;
            self.offset += block.padded_bytes() as u64;
            let header = BlockHeader {
                file: file.name,
                sequence: self.next_sequence,
                durable_below,
                length: 0,
                payload_crc: 0,
                opened: self.fresh,
            };
            self.fresh = false;
            self.next_sequence = self.next_sequence.plus(1);
            let (buffer, touches) = block.seal(header);
            self.files.note(&touches);
            for touch in &touches {
                let Some(ended) = touch.ended else { continue };
                match self.flight_ends.iter_mut().find(|end| end.0 == touch.shard) {
                    Some(end) => end.1 = ended,
                    None => self.flight_ends.push((touch.shard, ended)),
                }
            }
            self.pending.give_touches(touches);
            self.group.push(buffer);
            self.stats.blocks += 1;
        }
        assert!(!self.group.is_empty(), "a file has room for at least one block");
        self.stats.written_bytes += self.offset - start;
        self.in_flight = true;
        self.device.write(file.name, start, core::mem::take(&mut self.group));
    }

    /// Begins the next change of the directory, if one is due: making room before making files.
    fn begin_chore(&mut self, now: Timestamp) {
        let may_change = now >= self.retry_at;
        let oldest = if may_change { self.files.reclaimable() } else { None };
        let chore = if let Some(name) = self.leftover.take_if(|_| may_change) {
            Chore::Clean(name)
        } else if let Some(oldest) = oldest {
            let reuse = !self.no_reuse
                && self.files.spare_count() < SPARE_FILES
                && oldest.bytes == self.config.file_bytes;
            let spare = FileInfo { name: self.next_name(now), bytes: oldest.bytes };
            if reuse {
                Chore::Reuse { oldest: oldest.name, spare }
            } else {
                Chore::Remove(oldest.name)
            }
        } else if self.files.spare_count() == 0 && self.wants_spare() && now >= self.retry_fresh_at
        {
            Chore::Fresh(FileInfo { name: self.next_name(now), bytes: self.config.file_bytes })
        } else {
            return;
        };
        self.chore = Some(chore);
        match chore {
            Chore::Fresh(FileInfo { name, bytes }) => {
                self.device.prepare(name, FileSource::Fresh { bytes })
            }
            Chore::Reuse { oldest, spare } => {
                self.device.prepare(spare.name, FileSource::Reused(oldest))
            }
            Chore::Remove(name) | Chore::Clean(name) => self.device.remove(name),
        }
    }

    fn wants_spare(&self) -> bool {
        let file = self.files.current();
        self.is_blocked()
            || self.offset.saturating_mul(100) >= file.bytes.saturating_mul(PREALLOCATE_AT_PERCENT)
    }

    /// Whether blocks wait that the current file has no room for.
    fn is_blocked(&self) -> bool {
        self.pending
            .front_bytes()
            .is_some_and(|front| front as u64 > self.files.current().bytes - self.offset)
    }

    fn next_name(&self, now: Timestamp) -> FileName {
        FileName::new(now.max(self.files.last_name().created().next()))
    }

    fn prepared(
        &mut self,
        name: FileName,
        result: Result<(), WalError>,
        events: &mut Vec<LogEvent>,
    ) {
        let chore = self.chore.take();
        let Some(Chore::Fresh(spare) | Chore::Reuse { spare, .. }) = chore else {
            unreachable!("file {name} was made while the log did {chore:?}")
        };
        let reused =
            if let Some(Chore::Reuse { oldest, .. }) = chore { Some(oldest) } else { None };
        match result {
            Ok(()) => {
                if let Some(oldest) = reused {
                    self.files.reclaimed(oldest);
                    self.stats.reclaimed += 1;
                }
                self.files.add_spare(spare);
                self.no_next = None;
                self.told = false;
            }
            Err(error) => {
                self.no_next = Some(error.to_string());
                if reused.is_some() {
                    self.no_reuse = true;
                    self.leftover = Some(name);
                    self.retry_at = self.retry_time();
                } else {
                    self.retry_fresh_at = self.retry_time();
                }
                self.degraded(error, events);
            }
        }
    }

    fn removed(
        &mut self,
        name: FileName,
        result: Result<(), WalError>,
        events: &mut Vec<LogEvent>,
    ) {
        let chore = self.chore.take();
        match (chore, result) {
            (Some(Chore::Remove(oldest)), Ok(())) => {
                assert_eq!(name, oldest, "the file that was removed is the one that was to be");
                self.files.reclaimed(oldest);
                self.stats.reclaimed += 1;
                self.no_reuse = false;
                // Room was made: the next file may be tried at once.
                self.retry_fresh_at = Timestamp::ZERO;
                self.told = false;
            }
            (_, Ok(())) => {}
            (chore, Err(error)) => {
                // The oldest file stays in the table, the name left by a failed reuse in its place:
                // both are tried again.
                if let Some(Chore::Clean(name)) = chore {
                    self.leftover = Some(name);
                }
                self.retry_at = self.retry_time();
                self.degraded(error, events);
            }
        }
    }

    const fn retry_time(&self) -> Timestamp {
        self.last_now.saturating_add(PREPARE_RETRY)
    }

    fn degraded(&mut self, error: WalError, events: &mut Vec<LogEvent>) {
        if !core::mem::replace(&mut self.told, true) {
            events.push(LogEvent::Degraded(error));
        }
    }

    /// Asks the shards that hold the oldest file, once per rotation, when too many files are closed
    /// and either few batches hold it or there are far too many files; and once per file when room
    /// is short, for then only an old file makes the next one. A log that nothing is appended to
    /// does not rotate: it asks once per file, and looks again when a shard lets go of something.
    fn ask_to_carry(&mut self, events: &mut Vec<LogEvent>) {
        let closed = self.files.closed_count();
        let short = closed > 0 && self.shortage().is_some();
        let asked = (self.stats.rotations, (short || self.fresh).then_some(self.stats.reclaimed));
        if (closed <= self.config.carry_after_files && !short) || self.asked_at == Some(asked) {
            return;
        }
        self.asked_at = Some(asked);
        self.holders.clear();
        let few = self.files.holders(&mut self.holders);
        if few || short || closed > 4 * self.config.carry_after_files.max(1) {
            events.extend(
                self.holders.iter().map(|&(shard, below)| LogEvent::PleaseCarry { shard, below }),
            );
        } else {
            self.asks_after_release = self.fresh;
        }
    }

    /// Why the next file could not be made, and how many bytes may be admitted nevertheless: what
    /// is left of the current file beyond the reserve. `None` while there is a spare, or one may be
    /// made.
    pub(crate) fn shortage(&self) -> Option<(&str, u64)> {
        let cause = self.no_next.as_deref().filter(|_| self.files.spare_count() == 0)?;
        let file = self.files.current();
        let reserve = file.bytes / 100 * RESERVE_PERCENT;
        let taken = self.offset + self.pending.bytes() as u64;
        Some((cause, file.bytes.saturating_sub(taken + reserve)))
    }

    pub(crate) fn release(&mut self, shard: ShardId, keep_from: BatchNumber) {
        let is_more = self.files.release(shard, keep_from);
        #[cfg(feature = "planted-bugs")]
        let is_more = is_more && !crate::planted::bugs().ask_once;
        if is_more && core::mem::take(&mut self.asks_after_release) {
            self.asked_at = None;
        }
    }

    pub(crate) fn retained_from(&self, shard: ShardId) -> Option<BatchNumber> {
        self.files.retained_from(shard)
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        if self.poisoned.is_some() {
            None
        } else if self.chore.is_some() && self.is_blocked() {
            Some(self.last_now.saturating_add(PREPARE_POLL))
        } else {
            let retry = self.retry_fresh_at.max(self.retry_at);
            (retry > self.last_now).then_some(retry)
        }
    }

    pub(crate) fn wake_fd(&self) -> Option<RawFd> {
        self.device.wake_fd()
    }

    pub(crate) fn wait(&mut self, timeout: Duration) {
        self.device.wait(timeout);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty() && !self.in_flight
    }

    pub(crate) const fn is_changing(&self) -> bool {
        self.chore.is_some()
    }

    /// Pumps until everything accepted is durable.
    pub(crate) fn drain(
        &mut self,
        now: Timestamp,
        events: &mut Vec<LogEvent>,
    ) -> Result<(), WalError> {
        loop {
            self.pump(now, events);
            if let Some(cause) = &self.poisoned {
                return Err(WalError::Poisoned { cause: cause.clone() });
            }
            if self.is_idle() && self.chore.is_none() {
                return Ok(());
            }
            if !self.in_flight
                && self.chore.is_none()
                && let Some(cause) = &self.no_next
            {
                return Err(WalError::NoSpace { cause: cause.clone() });
            }
            self.device.wait(PREPARE_POLL);
        }
    }

    pub(crate) fn stats(&self) -> LogStats {
        LogStats {
            files: self.files.closed_count() as u64 + 1,
            space_bytes: self.files.space_bytes(),
            queued_bytes: self.queued_bytes() as u64,
            ..self.stats
        }
    }
}
