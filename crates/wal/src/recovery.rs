//! Reads the log back after a restart, then opens it for appending in a fresh file.
//!
//! Nothing on disk is changed before [`LogRecovery::finish`], so a recovery that ends in an error can
//! be repeated. Old files stay until their shards release them. Appending never continues in an old
//! file: what a crash left behind its last whole block stays there, and the fresh file's first
//! block says where the log went on.

use core::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use timestone_types::{Epoch, ShardId, Timestamp};

use crate::assemble::{AssembleStep, Assembler, BatchAt};
use crate::device::{DeviceEvent, FileInfo, FileName, FileSource, LogDevice, SsdDevice};
use crate::files::{BatchRange, Files, HeldFile, widen};
use crate::log::{Log, Store};
use crate::manager::FileLog;
use crate::order::BatchOrder;
use crate::record::PREFIX_BYTES;
use crate::walker::{BlockPlace, Walker};
use crate::{
    BatchHead, BatchNumber, DeviceKind, LogConfig, RecordNumber, RecoveryReport, WalError,
};

/// How long to wait at once for a file to be made; only the number of wake-ups depends on it.
const WAIT: Duration = Duration::from_millis(100);

/// One record of one whole batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveredRecord<'a> {
    /// The shard that wrote it.
    pub shard: ShardId,
    /// The batch that it is part of.
    pub batch: BatchNumber,
    /// The shard's epoch when it was written.
    pub epoch: Epoch,
    /// Its number among the shard's records.
    pub number: RecordNumber,
    /// Its bytes, for [`LogRecord::decode`](crate::LogRecord::decode).
    pub bytes: &'a [u8],
}

/// A log that is being read back, record by record.
#[derive(Debug)]
pub struct LogRecovery {
    config: LogConfig,
    report: RecoveryReport,
    /// `None` for the device that keeps nothing.
    reading: Option<FileReader>,
}

struct FileReader {
    walker: Walker,
    assembler: Assembler,
    order: BatchOrder,
    ranges: Vec<Vec<BatchRange>>,
    place: Option<BlockPlace>,
    /// The batch whose records are being handed out.
    batch: Option<Current>,
    done: bool,
}

struct Current {
    head: BatchHead,
    at: BatchAt,
    cursor: usize,
    /// Records that were handed out.
    records: u64,
}

impl core::fmt::Debug for FileReader {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FileReader")
            .field("place", &self.place)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl LogRecovery {
    pub(crate) fn open(directory: &Path, config: LogConfig) -> Result<Self, WalError> {
        config.validate()?;
        match config.device {
            DeviceKind::None => {
                Ok(Self { config, report: RecoveryReport::default(), reading: None })
            }
            DeviceKind::Pmem => {
                Err(WalError::Unsupported { what: "the log device `pmem` (persistent memory)" })
            }
            DeviceKind::Ssd => Self::with_device(Box::new(SsdDevice::open(directory)?), config),
        }
    }

    pub(crate) fn with_device(
        mut device: Box<dyn LogDevice>,
        config: LogConfig,
    ) -> Result<Self, WalError> {
        config.validate()?;
        if let Some(registry) = &config.registry {
            device.register(Arc::clone(registry));
        }
        let walker = Walker::open(device, &config.lost)?;
        let files = walker.files();
        let report = RecoveryReport {
            files: files.iter().filter(|file| file.first.is_some()).count() as u64,
            ..RecoveryReport::default()
        };
        let ranges = vec![Vec::new(); files.len()];
        let reading = FileReader {
            walker,
            assembler: Assembler::default(),
            order: BatchOrder::default(),
            ranges,
            place: None,
            batch: None,
            done: false,
        };
        Ok(Self { config, report, reading: Some(reading) })
    }

    /// The next record in file order; `None` at the end.
    ///
    /// # Errors
    /// [`WalError::Corrupt`] and others; recovery is over then, and nothing on disk was changed.
    pub fn next_record(&mut self) -> Result<Option<RecoveredRecord<'_>>, WalError> {
        let Some(reading) = &mut self.reading else { return Ok(None) };
        let Some((head, number, range)) = reading.next(&mut self.report)? else { return Ok(None) };
        self.report.records += 1;
        let bytes = reading
            .batch
            .as_ref()
            .and_then(|current| reading.bytes_of(current).get(range))
            .unwrap_or_default();
        let BatchHead { shard, batch, epoch, .. } = head;
        Ok(Some(RecoveredRecord { shard, batch, epoch, number, bytes }))
    }

    /// What was found so far.
    #[must_use]
    pub const fn report(&self) -> RecoveryReport {
        self.report
    }

    /// Reads to the end, starts a fresh file, and opens the log for appending. Blocks.
    ///
    /// # Errors
    /// As [`LogRecovery::next_record`], or the fresh file could not be made.
    pub fn finish(mut self, now: Timestamp) -> Result<Log, WalError> {
        while self.next_record()?.is_some() {}
        let Some(reading) = self.reading else { return Ok(Log::new(Store::nothing())) };
        tracing::debug!(
            files = self.report.files,
            blocks = self.report.blocks,
            batches = self.report.batches,
            records = self.report.records,
            bytes = self.report.bytes,
            incomplete_batches = self.report.incomplete_batches,
            "the log was read back"
        );
        let next = reading.walker.next_sequence();
        let last = reading
            .walker
            .files()
            .last()
            .map_or(Timestamp::ZERO, |file| file.info.name.created().next());
        let mut held = Vec::new();
        let mut blank = Vec::new();
        for (file, ranges) in reading.walker.files().iter().zip(reading.ranges) {
            if file.first.is_some() {
                held.push(HeldFile { info: file.info, ranges })
            } else {
                blank.push(file.info)
            }
        }
        let mut device = reading.walker.into_device();
        let current =
            FileInfo { name: FileName::new(now.max(last)), bytes: self.config.file_bytes };
        make_first(device.as_mut(), current, blank)?;
        Ok(Log::new(Store::Files(Box::new(FileLog::new(
            self.config,
            device,
            Files::new(held, current),
            next,
            now,
        )))))
    }
}

impl LogRecovery {
    /// Removes all files, oldest first, and with them the log. For a log that holds nothing that
    /// anybody needs and that nobody appends to. Blocks.
    ///
    /// # Errors
    /// As [`LogRecovery::next_record`], or a file cannot be removed; the younger ones are still there
    /// then.
    pub fn discard(mut self) -> Result<(), WalError> {
        while self.next_record()?.is_some() {}
        let Some(reading) = self.reading else { return Ok(()) };
        let names: Vec<FileName> =
            reading.walker.files().iter().map(|file| file.info.name).collect();
        let mut device = reading.walker.into_device();
        for name in names {
            device.remove(name);
            wait_for(device.as_mut())?;
        }
        Ok(())
    }
}

/// Makes the file that is appended to first, from a blank one when there is one, and removes the
/// other blanks.
fn make_first(
    device: &mut dyn LogDevice,
    first: FileInfo,
    mut blank: Vec<FileInfo>,
) -> Result<(), WalError> {
    let reused =
        blank.iter().rposition(|file| file.bytes == first.bytes).map(|at| blank.remove(at));
    for file in blank {
        device.remove(file.name);
        wait_for(device)?;
    }
    device.prepare(
        first.name,
        reused
            .map_or(FileSource::Fresh { bytes: first.bytes }, |file| FileSource::Reused(file.name)),
    );
    wait_for(device)
}

fn wait_for(device: &mut dyn LogDevice) -> Result<(), WalError> {
    let mut events = Vec::new();
    loop {
        device.poll(&mut events);
        match events.pop() {
            Some(
                DeviceEvent::Prepared { result, .. }
                | DeviceEvent::Removed { result, .. }
                | DeviceEvent::Written { result, .. },
            ) => {
                return result;
            }
            None => device.wait(WAIT),
        }
    }
}

impl FileReader {
    fn bytes_of(&self, current: &Current) -> &[u8] {
        match &current.at {
            BatchAt::Payload(range) => self.walker.payload().get(range.clone()).unwrap_or_default(),
            BatchAt::Joined => self.assembler.joined(),
        }
    }

    fn corrupt(&self, detail: String) -> WalError {
        match self.place {
            Some(place) => WalError::Corrupt { file: place.file, offset: place.offset, detail },
            None => WalError::Record { detail: "a batch came before any block" },
        }
    }

    /// The next record: its batch, its number, and its range in the batch's bytes.
    fn next(
        &mut self,
        report: &mut RecoveryReport,
    ) -> Result<Option<(BatchHead, RecordNumber, Range<usize>)>, WalError> {
        while !self.done {
            if let Some(current) = &self.batch {
                let (head, cursor, records) = (current.head, current.cursor, current.records);
                let bytes = self.bytes_of(current);
                if cursor < bytes.len() {
                    let Some(range) = record_at(bytes, cursor) else {
                        self.done = true;
                        let BatchHead { shard, batch, .. } = head;
                        return Err(self.corrupt(format!(
                            "a record of batch {batch} of shard {shard} is longer than the batch"
                        )));
                    };
                    if let Some(current) = &mut self.batch {
                        current.cursor = range.end;
                        current.records += 1;
                    }
                    return Ok(Some((head, head.first.plus(records), range)));
                }
                self.batch = None;
                if let Err(disorder) = self.order.follow(head, records) {
                    self.done = true;
                    return Err(self.corrupt(disorder));
                }
            }
            if let Err(error) = self.next_batch(report) {
                self.done = true;
                return Err(error);
            }
        }
        Ok(None)
    }

    /// Goes on by one entry or block.
    fn next_batch(&mut self, report: &mut RecoveryReport) -> Result<(), WalError> {
        let step = if self.place.is_some() {
            self.assembler.step(self.walker.payload())
        } else {
            Ok(AssembleStep::End)
        };
        match step.map_err(|detail| self.corrupt(detail.into()))? {
            AssembleStep::Batch(head, at) => {
                self.note(head);
                report.batches += 1;
                self.batch = Some(Current { head, at, cursor: 0, records: 0 });
            }
            AssembleStep::Part(head) => self.note(head),
            AssembleStep::End => match self.walker.next_block()? {
                Some((place, header)) => {
                    if self.walker.passed_lost_file() {
                        report.incomplete_batches += u64::from(self.assembler.reset());
                    }
                    self.place = Some(place);
                    report.blocks += 1;
                    report.bytes += header.padded_bytes() as u64;
                    report.incomplete_batches += u64::from(self.assembler.begin_block(&header));
                }
                None => {
                    self.done = true;
                    report.incomplete_batches += u64::from(self.assembler.is_open());
                }
            },
        }
        Ok(())
    }

    fn note(&mut self, BatchHead { shard, batch, .. }: BatchHead) {
        if let Some(place) = self.place {
            widen(&mut self.ranges[place.index], shard, batch, batch);
        }
    }
}

/// The range of the record whose prefix stands at `cursor`.
fn record_at(batch: &[u8], cursor: usize) -> Option<Range<usize>> {
    let prefix = batch.get(cursor..)?.first_chunk::<PREFIX_BYTES>()?;
    let start = cursor + PREFIX_BYTES;
    let end = start.checked_add(usize::try_from(u32::from_le_bytes(*prefix)).ok()?)?;
    if end <= batch.len() { Some(start..end) } else { None }
}
