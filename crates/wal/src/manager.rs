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

mod chores;
mod flight;

use core::time::Duration;
use std::os::fd::RawFd;

use timestone_io::AlignedBuffer;
use timestone_types::{ShardId, Timestamp, is_planted};

use self::chores::{Chore, Chores};
use self::flight::Flight;
use crate::block::{BlockHeader, BlockSequence};
use crate::device::{DeviceEvent, FileInfo, FileName, FileSource, LogDevice};
use crate::files::Files;
use crate::limits::{
    MAX_BATCH_BYTES, PREALLOCATE_AT_PERCENT, PREPARE_POLL, RESERVE_PERCENT, SPARE_FILES,
};
use crate::order::BatchOrder;
use crate::pending::PendingBatches;
use crate::{BatchHead, BatchNumber, LogConfig, LogEvent, LogStats, WalError};

/// Asking shards to copy forward what keeps the oldest file.
#[derive(Debug, Default)]
struct CopyForward {
    /// When shards were asked to copy forward last: rotations, and files reclaimed.
    asked_at: Option<(u64, u64)>,
    /// Many batches held the oldest file, and nobody was asked.
    asks_after_release: bool,
    holders: Vec<(ShardId, BatchNumber)>,
}

/// A log on files.
pub(crate) struct FileLog {
    config: LogConfig,
    device: Box<dyn LogDevice>,
    pending: PendingBatches,
    files: Files,
    /// Where the next block goes in the current file.
    offset: u64,
    next_sequence: BlockSequence,
    /// Nothing was sent yet since the log was opened.
    fresh: bool,
    flight: Flight,
    accepted: BatchOrder,
    chores: Chores,
    poisoned: Option<String>,
    copy_forward: CopyForward,
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
            pending: PendingBatches::new(config.block_bytes),
            config,
            device,
            files,
            offset: 0,
            next_sequence: next,
            fresh: true,
            flight: Flight::default(),
            accepted: BatchOrder::default(),
            chores: Chores::default(),
            poisoned: None,
            copy_forward: CopyForward::default(),
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
        if let Some(cause) = self.chores.no_next()
            && self.files.spare_count() == 0
        {
            let room = self.files.current().bytes - self.offset;
            if self.pending.padded_bytes_with(bytes) as u64 > room {
                return Err(WalError::NoSpace { cause: cause.to_owned() });
            }
        }
        Ok(())
    }

    fn queued_bytes(&self) -> usize {
        self.pending.bytes() + self.flight.bytes()
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
        if !self.flight.is_under_way() {
            self.send_group();
            if is_planted!(EarlyAcknowledgement) {
                events.extend(
                    self.flight
                        .take_ends()
                        .map(|(shard, batch)| LogEvent::Durable { shard, batch }),
                );
            }
        }
        if !self.chores.is_under_way() {
            self.begin_chore(now);
        }
        self.ask_to_copy_forward(events);
    }

    fn written(
        &mut self,
        mut buffers: Vec<AlignedBuffer>,
        result: Result<(), WalError>,
        events: &mut Vec<LogEvent>,
    ) {
        for buffer in buffers.drain(..) {
            self.pending.give_buffer(buffer);
        }
        self.flight.arrive(buffers);
        if let Err(error) = result {
            self.poisoned = Some(error.to_string());
            events.push(LogEvent::Failed(error));
            return;
        }
        self.flight.forget_bytes();
        self.stats.groups += 1;
        if self.flight.batches() > 0 {
            let class =
                (self.flight.batches().ilog2() as usize).min(self.stats.group_sizes.len() - 1);
            self.stats.group_sizes[class] += 1;
        }
        events.extend(
            self.flight.take_ends().map(|(shard, batch)| LogEvent::Durable { shard, batch }),
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
        self.flight.begin();
        while self.flight.has_room()
            && self
                .pending
                .front_bytes()
                .is_some_and(|bytes| bytes as u64 <= file.bytes - self.offset)
        {
            let Some(block) = self.pending.pop() else { break };
            let (bytes, batches) = (block.used, block.batches);
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
                self.flight.makes_durable(touch.shard, ended);
            }
            self.pending.give_touches(touches);
            self.flight.add(buffer, bytes, batches);
            self.stats.blocks += 1;
        }
        self.stats.written_bytes += self.offset - start;
        self.device.write(file.name, start, self.flight.depart());
    }

    /// Begins the next change of the directory, if one is due: making room before making files.
    fn begin_chore(&mut self, now: Timestamp) {
        let may_change = self.chores.may_change(now);
        let oldest = if may_change { self.files.reclaimable() } else { None };
        let chore = if let Some(name) = if may_change { self.chores.take_leftover() } else { None }
        {
            Chore::Clean(name)
        } else if let Some(oldest) = oldest {
            let reuse = self.chores.may_reuse()
                && self.files.spare_count() < SPARE_FILES
                && oldest.bytes == self.config.file_bytes;
            let spare = FileInfo { name: self.next_name(now), bytes: oldest.bytes };
            if reuse {
                Chore::Reuse { oldest: oldest.name, spare }
            } else {
                Chore::Remove(oldest.name)
            }
        } else if self.files.spare_count() == 0
            && self.wants_spare()
            && self.chores.may_try_fresh(now)
        {
            Chore::Fresh(FileInfo { name: self.next_name(now), bytes: self.config.file_bytes })
        } else {
            return;
        };
        self.chores.begin(chore);
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
        let last = self.files.last_name();
        let taken = self.chores.last_leftover().map_or(last, |left| left.max(last));
        FileName::new(now.max(taken.created().next()))
    }

    fn prepared(
        &mut self,
        name: FileName,
        result: Result<(), WalError>,
        events: &mut Vec<LogEvent>,
    ) {
        let chore = self.chores.end();
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
                self.chores.made();
            }
            Err(error) => {
                self.chores.not_made(self.last_now, name, reused.is_some(), &error);
                self.chores.tell(error, events);
            }
        }
    }

    fn removed(
        &mut self,
        name: FileName,
        result: Result<(), WalError>,
        events: &mut Vec<LogEvent>,
    ) {
        let chore = self.chores.end();
        match (chore, result) {
            (Some(Chore::Remove(oldest)), Ok(())) => {
                assert_eq!(name, oldest, "the file that was removed is the one that was to be");
                self.files.reclaimed(oldest);
                self.stats.reclaimed += 1;
                self.chores.removed();
            }
            (_, Ok(())) => {}
            (chore, Err(error)) => {
                self.chores.not_removed(self.last_now, chore);
                self.chores.tell(error, events);
            }
        }
    }

    /// Asks the shards that hold the oldest file, once per file and rotation, when too many files are
    /// closed and either few batches hold it or there are far too many files; and when room is short,
    /// for then only an old file makes the next one. Where many batches hold it, the log looks again
    /// when a shard lets go of something: nothing may be appended any more.
    fn ask_to_copy_forward(&mut self, events: &mut Vec<LogEvent>) {
        let closed = self.files.closed_count();
        let short = closed > 0 && self.shortage().is_some();
        let asked = (self.stats.rotations, self.stats.reclaimed);
        if (closed <= self.config.copy_forward_after_files && !short)
            || self.copy_forward.asked_at == Some(asked)
        {
            return;
        }
        self.copy_forward.asked_at = Some(asked);
        self.copy_forward.holders.clear();
        let few = self.files.holders(&mut self.copy_forward.holders);
        if few || short || closed > 4 * self.config.copy_forward_after_files.max(1) {
            events.extend(
                self.copy_forward
                    .holders
                    .iter()
                    .map(|&(shard, below)| LogEvent::CopyForwardWanted { shard, below }),
            );
        } else {
            self.copy_forward.asks_after_release = true;
        }
    }

    /// Why the next file could not be made, and how many bytes may be admitted nevertheless: what
    /// is left of the current file beyond the reserve. `None` while there is a spare, or one may be
    /// made.
    pub(crate) fn shortage(&self) -> Option<(&str, u64)> {
        let cause = self.chores.no_next().filter(|_| self.files.spare_count() == 0)?;
        let file = self.files.current();
        let reserve = file.bytes / 100 * RESERVE_PERCENT;
        let taken = self.offset + self.pending.bytes() as u64;
        Some((cause, file.bytes.saturating_sub(taken + reserve)))
    }

    pub(crate) fn release(&mut self, shard: ShardId, keep_from: BatchNumber) {
        let is_more = self.files.release(shard, keep_from);
        let is_more = is_more && !is_planted!(AsksOnce);
        if is_more && core::mem::take(&mut self.copy_forward.asks_after_release) {
            self.copy_forward.asked_at = None;
        }
    }

    pub(crate) fn retained_from(&self, shard: ShardId) -> Option<BatchNumber> {
        self.files.retained_from(shard)
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        if self.poisoned.is_some() {
            None
        } else if self.chores.is_under_way() && self.is_blocked() {
            Some(self.last_now.saturating_add(PREPARE_POLL))
        } else {
            let retry = self.chores.retry_at();
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
        self.pending.is_empty() && !self.flight.is_under_way()
    }

    pub(crate) const fn is_changing(&self) -> bool {
        self.chores.is_under_way()
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
            if self.is_idle() && !self.chores.is_under_way() {
                return Ok(());
            }
            if !self.flight.is_under_way()
                && !self.chores.is_under_way()
                && let Some(cause) = self.chores.no_next()
            {
                return Err(WalError::NoSpace { cause: cause.to_owned() });
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
