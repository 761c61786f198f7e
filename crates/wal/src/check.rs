//! Explains a log without changing it: what each file holds, and everything that is wrong
//! (`timestone log check`).
//!
//! Where recovery stops at the first damage, this goes on behind it, so that one run shows all
//! there is.

use core::fmt;
use std::path::Path;

use timestone_types::ShardId;

use crate::assemble::{AssembleStep, Assembler, BatchAt};
use crate::block::BlockSequence;
use crate::device::{FileInfo, FileName, LogDevice, SsdDevice};
use crate::files::{BatchRange, widen};
use crate::order::BatchOrder;
use crate::record::BatchRecords;
use crate::walker::{BlockPlace, Walker};
use crate::{BatchHead, BatchNumber, LogRecord, WalError};

/// What one file holds.
#[derive(Clone, Debug)]
pub struct FileReport {
    /// The file and its size.
    pub file: FileInfo,
    /// Its first readable block.
    pub first: Option<BlockSequence>,
    /// Readable blocks.
    pub blocks: u64,
    /// Bytes of readable blocks.
    pub bytes: u64,
    /// Whole batches that end here.
    pub batches: u64,
    /// Their records.
    pub records: u64,
    ranges: Vec<BatchRange>,
}

impl FileReport {
    /// The shards with a part in the file, with their first and last batch here.
    pub fn shards(&self) -> impl Iterator<Item = (ShardId, BatchNumber, BatchNumber)> + '_ {
        self.ranges.iter().map(|range| (range.shard, range.first, range.last))
    }
}

/// Something that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// In which file.
    pub file: FileName,
    /// Where, in bytes.
    pub offset: u64,
    /// What.
    pub detail: String,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// All files, oldest first.
    pub files: Vec<FileReport>,
    /// Everything that is wrong; empty when recovery will succeed.
    pub findings: Vec<Finding>,
    /// Files that are gone, where somebody accepted that: no damage, and what they held is lost.
    pub accepted: Vec<FileName>,
    /// Batches without an end, cut short by a crash and never acknowledged: no damage.
    pub incomplete_batches: u64,
}

impl CheckReport {
    /// Whether recovery will succeed.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            write!(
                f,
                "{}: {} of {} bytes in {} blocks",
                file.file.name, file.bytes, file.file.bytes, file.blocks
            )?;
            if let Some(first) = file.first {
                write!(
                    f,
                    " from block {} on, {} batches, {} records",
                    first.0, file.batches, file.records
                )?;
            }
            for (shard, first, last) in file.shards() {
                write!(f, "; shard {shard}: batches {first} to {last}")?;
            }
            writeln!(f)?;
        }
        if self.incomplete_batches > 0 {
            writeln!(
                f,
                "{} batches were cut short by a crash before they were acknowledged: no damage",
                self.incomplete_batches
            )?;
        }
        for file in &self.accepted {
            writeln!(
                f,
                "LOST, and that was accepted: {file}; what only it held is gone, and recovery goes \
                 on behind it"
            )?;
        }
        for finding in &self.findings {
            writeln!(
                f,
                "DAMAGED: {} at offset {}: {}",
                finding.file, finding.offset, finding.detail
            )?;
        }
        match self.findings.len() {
            0 if self.files.is_empty() => write!(f, "there is no log file, so nothing was checked"),
            0 => {
                let blocks: u64 = self.files.iter().map(|file| file.blocks).sum();
                let records: u64 = self.files.iter().map(|file| file.records).sum();
                let files = self.files.len();
                let but = if self.accepted.is_empty() { "" } else { ", but for the accepted loss" };
                write!(
                    f,
                    "the log is sound{but}: {records} records in {blocks} blocks of {files} files \
                     were read"
                )
            }
            _ => write!(
                f,
                "the log is damaged: recovery refuses it; restore it from a backup or a replica"
            ),
        }
    }
}

/// Reads all log files in the directory. Changes nothing, also when a server appends to it (its
/// last group may look cut short then). `lost` are the files that are gone and whose loss was
/// accepted.
///
/// # Errors
/// When the directory or a file cannot be read, or has another format version. Damage is no error:
/// it is reported.
pub fn check(directory: &Path, lost: &[FileName]) -> Result<CheckReport, WalError> {
    check_device(Box::new(SsdDevice::open_read_only(directory)?), lost)
}

/// As [`check`], for files on any device.
///
/// # Errors
/// As [`check`].
pub fn check_device(
    device: Box<dyn LogDevice>,
    lost: &[FileName],
) -> Result<CheckReport, WalError> {
    let mut walker = Walker::open(device, lost)?;
    let (mut assembler, mut order) = (Assembler::default(), BatchOrder::default());
    let mut report = CheckReport::default();
    report.files.extend(walker.files().iter().map(|file| FileReport {
        file: file.info,
        first: None,
        blocks: 0,
        bytes: 0,
        batches: 0,
        records: 0,
        ranges: Vec::new(),
    }));
    loop {
        match walker.next_block() {
            Ok(Some((place, header))) => {
                if walker.passed_lost_file() {
                    report.incomplete_batches += u64::from(assembler.reset());
                }
                let file = &mut report.files[place.index];
                file.first.get_or_insert(header.sequence);
                file.blocks += 1;
                file.bytes += header.padded_bytes() as u64;
                report.incomplete_batches += u64::from(assembler.begin_block(&header));
                let payload = walker.payload();
                if let Err(detail) = read_payload(&mut assembler, &mut order, payload, file) {
                    assembler.reset();
                    report.findings.push(Finding {
                        file: place.file,
                        offset: place.offset,
                        detail,
                    });
                }
            }
            Ok(None) => break,
            Err(WalError::Corrupt { file, offset, detail }) => {
                assembler.reset();
                let (detail, resumed) = match walker.skip_damage()? {
                    Some(BlockPlace { file, offset, .. }) => (
                        format!("{detail}; readable again from file {file} at offset {offset}"),
                        true,
                    ),
                    None => (format!("{detail}; nothing is readable behind it"), false),
                };
                report.findings.push(Finding { file, offset, detail });
                if !resumed {
                    break;
                }
            }
            Err(error) => return Err(error),
        }
    }
    report.incomplete_batches += u64::from(assembler.is_open());
    let is_there = |name: &FileName| report.files.iter().any(|file| file.file.name == *name);
    report.accepted = lost.iter().copied().filter(|name| !is_there(name)).collect();
    Ok(report)
}

fn read_payload(
    assembler: &mut Assembler,
    order: &mut BatchOrder,
    payload: &[u8],
    file: &mut FileReport,
) -> Result<(), String> {
    loop {
        match assembler.step(payload)? {
            AssembleStep::End => return Ok(()),
            AssembleStep::Part(BatchHead { shard, batch, .. }) => {
                widen(&mut file.ranges, shard, batch, batch)
            }
            AssembleStep::Batch(head, at) => {
                let BatchHead { shard, batch, .. } = head;
                widen(&mut file.ranges, shard, batch, batch);
                file.batches += 1;
                let bytes = match at {
                    BatchAt::Payload(range) => payload.get(range).unwrap_or_default(),
                    BatchAt::Joined => assembler.joined(),
                };
                let mut records = 0;
                for record in BatchRecords::new(bytes) {
                    let read = record.and_then(|record| LogRecord::decode(record).map(drop));
                    read.map_err(|error| format!("batch {batch} of shard {shard}: {error}"))?;
                    records += 1;
                }
                file.records += records;
                order.follow(head, records)?;
            }
        }
    }
}
