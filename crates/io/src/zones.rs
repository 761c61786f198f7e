//! Zoned block devices, by the kernel's zone commands (`include/uapi/linux/blkzoned.h`): the report
//! of a device's zones, its limits, and what can be done to a zone.
//!
//! The calls here block. Those of the data path go through [`IoEngine`](crate::IoEngine) as
//! [`IoOp::Zone`](crate::IoOp::Zone); reports are for opening, and for the rare moment after a
//! failure. What zones are used for is nobody's business here.

#![expect(
    unsafe_code,
    reason = "zone commands are ioctls: each call pairs a command with the structure it takes"
)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl, opcode};

use crate::error::IoError;
use crate::file::IoFile;
use crate::limits::{LINUX_SECTOR_BYTES, ZONES_PER_REPORT};

/// The group of block devices' commands.
const GROUP: u8 = 0x12;
const REPORT: Opcode = opcode::read_write::<ReportHeader>(GROUP, 130);
const RESET: Opcode = opcode::write::<ZoneRange>(GROUP, 131);
const ZONE_SECTORS: Opcode = opcode::read::<u32>(GROUP, 132);
const ZONE_COUNT: Opcode = opcode::read::<u32>(GROUP, 133);
const OPEN: Opcode = opcode::write::<ZoneRange>(GROUP, 134);
const CLOSE: Opcode = opcode::write::<ZoneRange>(GROUP, 135);
const FINISH: Opcode = opcode::write::<ZoneRange>(GROUP, 136);
/// The kernel says that it fills in capacities.
const HAS_CAPACITIES: u32 = 1;

/// `struct blk_zone_range`.
#[repr(C)]
struct ZoneRange {
    sector: u64,
    sectors: u64,
}

/// `struct blk_zone_report` without its zones.
#[repr(C)]
#[derive(Clone, Copy)]
struct ReportHeader {
    sector: u64,
    zones: u32,
    flags: u32,
}

/// `struct blk_zone`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawZone {
    start: u64,
    length: u64,
    write_pointer: u64,
    kind: u8,
    condition: u8,
    non_sequential: u8,
    reset: u8,
    reserved: [u8; 4],
    capacity: u64,
    reserved_too: [u8; 24],
}

/// A report with room for so many zones.
#[repr(C)]
struct RawReport {
    header: ReportHeader,
    zones: [RawZone; ZONES_PER_REPORT],
}

const _: () = assert!(size_of::<RawZone>() == 64 && size_of::<ReportHeader>() == 16);
const _: () = assert!(size_of::<RawReport>() == 16 + 64 * ZONES_PER_REPORT);

/// How a zone is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneKind {
    /// Anywhere, as an ordinary disk.
    Conventional,
    /// At its write pointer only.
    Sequential,
    /// At its write pointer for speed; elsewhere it is slow.
    SequentialPreferred,
}

/// The state that a device says a zone is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneCondition {
    /// A conventional zone has none.
    NotWritePointer,
    /// Nothing was written since its reset.
    Empty,
    /// Opened by a write.
    ImplicitlyOpen,
    /// Opened by a command.
    ExplicitlyOpen,
    /// Partly written and not open.
    Closed,
    /// It takes no more writes until its reset.
    Full,
    /// It takes none at all any more.
    ReadOnly,
    /// It can be neither read nor written any more.
    Offline,
    /// A condition that this program does not know.
    Unknown(u8),
}

impl ZoneCondition {
    /// Whether the zone takes one of the device's active resources: it is partly written, and goes
    /// on.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::ImplicitlyOpen | Self::ExplicitlyOpen | Self::Closed)
    }

    /// Whether it can be written no more, for good.
    #[must_use]
    pub const fn is_bad(self) -> bool {
        matches!(self, Self::ReadOnly | Self::Offline | Self::Unknown(_))
    }

    const fn of(code: u8) -> Self {
        match code {
            0x0 => Self::NotWritePointer,
            0x1 => Self::Empty,
            0x2 => Self::ImplicitlyOpen,
            0x3 => Self::ExplicitlyOpen,
            0x4 => Self::Closed,
            0xd => Self::ReadOnly,
            0xe => Self::Full,
            0xf => Self::Offline,
            other => Self::Unknown(other),
        }
    }
}

/// One zone, in bytes from the device's beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zone {
    /// Where it begins.
    pub start: u64,
    /// From its beginning to the next one's.
    pub length: u64,
    /// Bytes of it that can be written.
    pub capacity: u64,
    /// Where the next write goes; says nothing when it is full, bad or conventional.
    pub write_pointer: u64,
    /// How it is written.
    pub kind: ZoneKind,
    /// Its state.
    pub condition: ZoneCondition,
}

impl Zone {
    /// Bytes that were written since its reset, as far as the device tells: all of a zone that is
    /// full, read-only or conventional.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        match self.condition {
            ZoneCondition::Empty => 0,
            ZoneCondition::ImplicitlyOpen
            | ZoneCondition::ExplicitlyOpen
            | ZoneCondition::Closed => {
                self.write_pointer.saturating_sub(self.start).min(self.capacity)
            }
            _ => self.capacity,
        }
    }
}

/// What can be done to a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneAction {
    /// It is erased: empty, its write pointer at its beginning.
    Reset,
    /// It is opened, and stays open until it is closed, finished or reset.
    Open,
    /// It keeps what it holds and its write pointer, and gives its open resource back.
    Close,
    /// It counts as full: it gives its resources back, and takes no writes until its reset.
    Finish,
}

/// What bounds the use of a device's zones. Zero: no bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneLimits {
    /// Zones that may be open at once.
    pub max_open: u32,
    /// Zones that may be partly written at once, open or not.
    pub max_active: u32,
}

/// Opens a zoned block device for reading and writing, with O_DIRECT, and with O_EXCL: a device
/// that is mounted, or that another program holds so, is refused.
///
/// # Errors
/// When it is no block device, not zoned, in use, or cannot be opened directly.
pub fn open_zoned(path: &Path) -> Result<IoFile, IoError> {
    let failed = |source| IoError::File { action: "open", path: path.to_owned(), source };
    let kind = std::fs::metadata(path).map_err(failed)?.file_type();
    if !kind.is_block_device() {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "it is not a block device");
        return Err(failed(source));
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_DIRECT | libc::O_EXCL);
    let file = IoFile::new(options.open(path).map_err(failed)?, path, true);
    if zone_bytes(&file)? == 0 {
        let source = io::Error::new(io::ErrorKind::Unsupported, "the block device has no zones");
        return Err(failed(source));
    }
    Ok(file)
}

/// Bytes of a zone; zero when the device has none.
///
/// # Errors
/// When the device does not answer.
pub fn zone_bytes(file: &IoFile) -> Result<u64, IoError> {
    // SAFETY: BLKGETZONESZ writes one u32, which is what the getter holds.
    let sectors = unsafe { ioctl(file.file(), Getter::<ZONE_SECTORS, u32>::new()) };
    match sectors {
        Ok(sectors) => Ok(u64::from(sectors) * LINUX_SECTOR_BYTES),
        Err(rustix::io::Errno::NOTTY | rustix::io::Errno::INVAL) => Ok(0),
        Err(errno) => Err(failed(file, "ask for the zone size of", errno)),
    }
}

/// How many zones the device has.
///
/// # Errors
/// When the device does not answer.
pub fn zone_count(file: &IoFile) -> Result<u32, IoError> {
    // SAFETY: BLKGETNRZONES writes one u32, which is what the getter holds.
    unsafe { ioctl(file.file(), Getter::<ZONE_COUNT, u32>::new()) }
        .map_err(|errno| failed(file, "count the zones of", errno))
}

/// The zones from the one at `offset` on, at most `most` of them; blocks.
///
/// # Errors
/// When the device does not answer.
pub fn report_zones(file: &IoFile, offset: u64, most: usize) -> Result<Vec<Zone>, IoError> {
    let mut zones = Vec::new();
    let mut sector = offset / LINUX_SECTOR_BYTES;
    while zones.len() < most {
        let room = (most - zones.len()).min(ZONES_PER_REPORT);
        let blank = RawZone {
            start: 0,
            length: 0,
            write_pointer: 0,
            kind: 0,
            condition: 0,
            non_sequential: 0,
            reset: 0,
            reserved: [0; 4],
            capacity: 0,
            reserved_too: [0; 24],
        };
        let header = ReportHeader { sector, zones: room as u32, flags: 0 };
        let mut report = Box::new(RawReport { header, zones: [blank; ZONES_PER_REPORT] });
        // SAFETY: BLKREPORTZONE reads the header and writes at most `header.zones` zones behind it,
        // which the array has room for; every bit pattern is a valid one of these structures.
        unsafe { ioctl(file.file(), Updater::<REPORT, RawReport>::new(&mut report)) }
            .map_err(|errno| failed(file, "ask for the zones of", errno))?;
        let told = (report.header.zones as usize).min(room);
        let has_capacities = report.header.flags & HAS_CAPACITIES != 0;
        let found = &report.zones[..told];
        zones.extend(found.iter().map(|raw| raw.zone(has_capacities)));
        match found.last() {
            Some(last) if told == room => sector = last.start + last.length,
            _ => break,
        }
    }
    Ok(zones)
}

/// Does something to the zones of a range; blocks.
pub(crate) fn act(file: &IoFile, action: ZoneAction, offset: u64, length: u64) -> io::Result<()> {
    let range =
        ZoneRange { sector: offset / LINUX_SECTOR_BYTES, sectors: length / LINUX_SECTOR_BYTES };
    let file = file.file();
    // SAFETY: each of these commands reads one `struct blk_zone_range`, which the setter holds.
    unsafe {
        match action {
            ZoneAction::Reset => ioctl(file, Setter::<RESET, ZoneRange>::new(range)),
            ZoneAction::Open => ioctl(file, Setter::<OPEN, ZoneRange>::new(range)),
            ZoneAction::Close => ioctl(file, Setter::<CLOSE, ZoneRange>::new(range)),
            ZoneAction::Finish => ioctl(file, Setter::<FINISH, ZoneRange>::new(range)),
        }
    }?;
    Ok(())
}

/// The limits of a device, as sysfs has them.
///
/// # Errors
/// When the device's folder in sysfs cannot be read.
pub fn zone_limits(file: &IoFile) -> Result<ZoneLimits, IoError> {
    let queue = queue_folder(file.file(), file.path())?;
    // Kernels before 5.9 have no such files, and no devices with such limits.
    let limit = |name: &str| number_in(&queue.join(name)).map(Option::unwrap_or_default);
    Ok(ZoneLimits { max_open: limit("max_open_zones")?, max_active: limit("max_active_zones")? })
}

/// The unit of writing, in bytes: the larger one of the logical block and of what writes to zones
/// must be multiples of.
///
/// # Errors
/// When the device's folder in sysfs cannot be read.
pub fn write_unit_bytes(file: &IoFile) -> Result<u32, IoError> {
    let queue = queue_folder(file.file(), file.path())?;
    let logical = number_in(&queue.join("logical_block_size"))?.unwrap_or(512);
    Ok(logical.max(number_in(&queue.join("zone_write_granularity"))?.unwrap_or(0)))
}

fn queue_folder(file: &File, path: &Path) -> Result<PathBuf, IoError> {
    let device = file
        .metadata()
        .map_err(|source| IoError::File { action: "measure", path: path.to_owned(), source })?
        .st_rdev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    Ok(PathBuf::from(format!("/sys/dev/block/{major}:{minor}/queue")))
}

/// The number in a file of sysfs; `None` when there is no such file.
fn number_in(path: &Path) -> Result<Option<u32>, IoError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().parse().ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(IoError::File { action: "read", path: path.to_owned(), source }),
    }
}

fn failed(file: &IoFile, action: &'static str, errno: rustix::io::Errno) -> IoError {
    IoError::File { action, path: file.path().to_owned(), source: errno.into() }
}

impl RawZone {
    fn zone(&self, has_capacities: bool) -> Zone {
        let capacity = if has_capacities { self.capacity } else { self.length };
        Zone {
            start: self.start * LINUX_SECTOR_BYTES,
            length: self.length * LINUX_SECTOR_BYTES,
            capacity: capacity * LINUX_SECTOR_BYTES,
            write_pointer: self.write_pointer.saturating_mul(LINUX_SECTOR_BYTES),
            kind: match self.kind {
                1 => ZoneKind::Conventional,
                3 => ZoneKind::SequentialPreferred,
                _ => ZoneKind::Sequential,
            },
            condition: ZoneCondition::of(self.condition),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel's header has them, on the machines whose commands are coded so.
    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn commands_have_the_kernel_s_numbers() {
        let known = [
            (REPORT, 0xc010_1282),
            (RESET, 0x4010_1283),
            (ZONE_SECTORS, 0x8004_1284),
            (ZONE_COUNT, 0x8004_1285),
            (OPEN, 0x4010_1286),
            (CLOSE, 0x4010_1287),
            (FINISH, 0x4010_1288),
        ];
        for (ours, theirs) in known {
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn a_zone_says_what_was_written() {
        let raw = |condition, write_pointer| RawZone {
            start: 0x1000,
            length: 0x1000,
            write_pointer,
            kind: 2,
            condition,
            non_sequential: 0,
            reset: 0,
            reserved: [0; 4],
            capacity: 0x800,
            reserved_too: [0; 24],
        };
        let written = |code, pointer| raw(code, pointer).zone(true).written_bytes() / 512;
        assert_eq!(written(0x1, 0x1000), 0);
        assert_eq!((written(0x2, 0x1010), written(0x4, 0x1010)), (0x10, 0x10));
        assert_eq!((written(0xe, u64::MAX), written(0xd, u64::MAX)), (0x800, 0x800));
        assert_eq!(raw(0x1, 0).zone(false).capacity, 0x1000 * 512, "a kernel without capacities");
        assert!(ZoneCondition::of(7).is_bad() && ZoneCondition::of(0xf).is_bad());
    }

    #[test]
    fn what_is_no_zoned_device_is_refused_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"hello").unwrap();
        let refusal = open_zoned(&path).unwrap_err().to_string();
        assert!(refusal.contains("not a block device"), "{refusal}");
        assert_eq!(std::fs::read(&path).unwrap(), b"hello");
    }
}
