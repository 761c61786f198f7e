//! Formatting and opening a zoned device. Blocks; runs before the data path does.
//!
//! ```text
//!   report ─► survey: conventional zones, metadata zones, data zones
//!                └─► what is there: nothing · a device of ours · something else (never overwritten unasked)
//! ```

use std::hash::{BuildHasher, RandomState};

use timestone_io::{AlignedBuffer, IoError, Zone, ZoneAction, ZoneKind, ZoneLimits};

use crate::device::{Generation, PAGE_BYTES};
use crate::error::FlashError;
use crate::file::layout::DeviceId;
use crate::limits::{
    DEFAULT_QUEUE_DEPTH, MAX_DATA_ZONES, MAX_QUEUE_DEPTH, METADATA_READ_PAGES, METADATA_ZONE_PAGES,
    MIN_PAGES_PER_BLOCK,
};
use crate::zoned::journal::{Journal, LogEnd, LogZone};
use crate::zoned::layout::{COPIES, FORMAT_VERSION, Identity};
use crate::zoned::medium::{ZoneOp, ZonedMedium, run};
use crate::zoned::replay::{Replayed, Unreadable, replay};

/// What a zoned device is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZonedConfig {
    /// Blocks that exist after formatting; `None`: all that `max_blocks` allows.
    pub initial_blocks: Option<u32>,
    /// Blocks that it may grow to; `None`: as many as the device has zones for.
    pub max_blocks: Option<u32>,
    /// Blocks that its owner programs at once, between their erases and their ends: a device that
    /// allows fewer active zones is refused.
    pub open_blocks: u32,
    /// At formatting: its id, `None` to draw one. At opening: the id that it must have, `None` for
    /// any.
    pub device_id: Option<DeviceId>,
    /// Whose it is: noted at formatting, compared at opening. Zero: nobody in particular.
    pub owner: u64,
    /// Most operations in flight, 1 to 2048; no more than the medium was opened for.
    pub queue_depth: u32,
}

impl Default for ZonedConfig {
    fn default() -> Self {
        Self {
            initial_blocks: None,
            max_blocks: None,
            open_blocks: 4,
            device_id: None,
            owner: 0,
            queue_depth: DEFAULT_QUEUE_DEPTH,
        }
    }
}

/// What formatting does with what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overwrite {
    /// It is refused, unless there is nothing.
    Refuse,
    /// It is destroyed.
    Everything,
}

/// A device whose zones were looked at.
#[derive(Debug)]
pub(super) struct Survey {
    zones: Vec<Zone>,
    /// Conventional zones at the beginning.
    conventional: u32,
    log: [LogZone; 2],
    /// Which zones those are.
    log_zones: [usize; 2],
    pub(super) first_data_zone: u32,
    data_zones: u32,
    pub(super) pages_per_block: u32,
    pub(super) data_limits: ZoneLimits,
}

/// What is on a device.
#[derive(Debug)]
pub(super) enum Content {
    /// Every zone is empty.
    Nothing,
    /// A device of ours.
    Device(Replayed),
    /// Something else, or a device that cannot be used.
    Other(String),
}

/// A device that can be used.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) journal: Journal,
    pub(super) report: Vec<Zone>,
    pub(super) generations: Vec<Generation>,
    pub(super) max_blocks: u32,
    pub(super) data_limits: ZoneLimits,
    pub(super) repairs: u64,
}

/// Looks at a device and checks what is asked of it.
pub(super) fn survey(
    medium: &mut dyn ZonedMedium,
    config: &ZonedConfig,
) -> Result<Survey, FlashError> {
    let (low, high, value) = (1, MAX_QUEUE_DEPTH.into(), config.queue_depth.into());
    if !(low..=high).contains(&value) {
        let what = "the flash device's queue depth";
        return Err(IoError::OutOfBounds { what, value, low, high }.into());
    }
    let zones = medium.report(0, usize::MAX)?;
    let unusable = |reason: String| unusable(medium, reason);
    let is_conventional = |zone: &Zone| zone.kind == ZoneKind::Conventional;
    let conventional = zones.iter().take_while(|zone| is_conventional(zone)).count();
    if zones[conventional..].iter().any(is_conventional) {
        return Err(unusable("it has conventional zones among sequential ones".to_owned()));
    }
    // Two conventional zones hold the table, or the first two sequential ones do.
    let in_order = conventional < 2;
    let first_log = if in_order { conventional } else { 0 };
    let first_data = if in_order { conventional + 2 } else { conventional };
    let length = zones.get(first_data).map_or(0, |zone| zone.length);
    let data = zones.get(first_data..).unwrap_or_default();
    let regular = data.iter().take_while(|zone| zone.length == length).count();
    let sound = data[..regular].iter().filter(|zone| !zone.condition.is_bad());
    let capacity = sound.map(|zone| zone.capacity).min().unwrap_or(0);
    let pages_per_block = u32::try_from(capacity / PAGE_BYTES as u64).unwrap_or(u32::MAX);
    if regular == 0 || pages_per_block < MIN_PAGES_PER_BLOCK {
        return Err(unusable(format!(
            "of its {} zones none is left to hold data: two hold the block table",
            zones.len()
        )));
    }
    let most = MAX_DATA_ZONES.min(u32::MAX / pages_per_block);
    let data_zones = (regular as u32).min(most);
    let log = [first_log, first_log + 1].map(|number| LogZone {
        start: zones[number].start,
        length: zones[number].length,
        pages: (zones[number].capacity / PAGE_BYTES as u64).min(METADATA_ZONE_PAGES.into()) as u32
            / COPIES
            * COPIES,
        sequential: in_order,
    });
    let survey = Survey {
        conventional: conventional as u32,
        log,
        log_zones: [first_log, first_log + 1],
        first_data_zone: first_data as u32,
        data_zones,
        pages_per_block,
        data_limits: data_limits(medium, config, in_order)?,
        zones,
    };
    Ok(survey)
}

/// What the device's limits leave for data.
fn data_limits(
    medium: &dyn ZonedMedium,
    config: &ZonedConfig,
    table_in_order: bool,
) -> Result<ZoneLimits, FlashError> {
    let limits = medium.limits();
    let (active, open) = if table_in_order { (2, 1) } else { (0, 0) };
    let needed = config.open_blocks.max(1) + active;
    if limits.max_active > 0 && limits.max_active < needed {
        return Err(unusable(
            medium,
            format!(
                "it allows {} active zones, and {needed} are needed: {} blocks are programmed at once, \
             and {active} zones hold the block table; use a device that allows more",
                limits.max_active, config.open_blocks
            ),
        ));
    }
    if limits.max_open > 0 && limits.max_open <= open {
        return Err(unusable(
            medium,
            format!("it allows {} open zones, and {} are needed", limits.max_open, open + 1),
        ));
    }
    let left = |limit: u32, used: u32| if limit == 0 { 0 } else { limit - used };
    Ok(ZoneLimits {
        max_active: left(limits.max_active, active),
        max_open: left(limits.max_open, open),
    })
}

impl Survey {
    /// What is on the device.
    pub(super) fn content(&self, medium: &mut dyn ZonedMedium) -> Result<Content, FlashError> {
        for (number, log) in self.log_zones.iter().zip(&self.log) {
            let zone = &self.zones[*number];
            if log.sequential && zone.condition == timestone_io::ZoneCondition::Offline {
                let reason = "a zone that holds its block table is offline: what it held is lost; \
                    restore the shard from a replica or backup";
                return Ok(Content::Other(reason.to_owned()));
            }
        }
        let [first, second] = [self.read_log(medium, 0)?, self.read_log(medium, 1)?];
        let data_is_empty = self.zones[self.conventional as usize..]
            .iter()
            .enumerate()
            .filter(|(at, _)| !self.log_zones.contains(&(at + self.conventional as usize)))
            .all(|(_, zone)| zone.written_bytes() == 0 || zone.condition.is_bad());
        Ok(match replay([&first, &second]) {
            Ok(Some(mut found)) => {
                self.look_behind(&mut found);
                Content::Device(found)
            }
            Err(Unreadable::Version(version)) => Content::Other(format!(
                "its format has version {version}, this program reads and writes version \
                 {FORMAT_VERSION}; use a matching program"
            )),
            Err(Unreadable::Unfinished) if data_is_empty => Content::Nothing,
            Err(Unreadable::Damaged | Unreadable::Unfinished) => Content::Other(
                "its block table is damaged; restore the shard from a replica or backup".to_owned(),
            ),
            Ok(None) => {
                let blank = [first, second].iter().flatten().all(|&byte| byte == 0);
                match blank && data_is_empty {
                    true => Content::Nothing,
                    false => Content::Other("there is something else on it".to_owned()),
                }
            }
        })
    }

    /// A write pointer that is not where the log ends stands in its way.
    fn look_behind(&self, found: &mut Replayed) {
        let zone = &self.zones[self.log_zones[found.end.zone]];
        if self.log[found.end.zone].sequential {
            let at_end = zone.written_bytes() == u64::from(found.end.used) * PAGE_BYTES as u64;
            found.end.clean &= at_end && !zone.condition.is_bad();
        }
    }

    /// The bytes of a metadata zone, as far as they are used at most; pages that cannot be read are
    /// zeros.
    fn read_log(&self, medium: &mut dyn ZonedMedium, which: usize) -> Result<Vec<u8>, FlashError> {
        let (log, zone) = (self.log[which], &self.zones[self.log_zones[which]]);
        let most = u64::from(log.pages) * PAGE_BYTES as u64;
        let written = if log.sequential { zone.written_bytes().min(most) } else { most };
        let mut bytes = Vec::with_capacity(written as usize);
        // What lies behind the last whole page was torn.
        let end = written / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        while (bytes.len() as u64) < end {
            let left = usize::try_from(end - bytes.len() as u64).unwrap_or(usize::MAX);
            let piece = left.min(METADATA_READ_PAGES as usize * PAGE_BYTES);
            let at = log.start + bytes.len() as u64;
            match read(medium, at, piece) {
                Ok(read) => bytes.extend_from_slice(&read),
                Err(_) => {
                    for page in (0..piece).step_by(PAGE_BYTES) {
                        let read = read(medium, at + page as u64, PAGE_BYTES);
                        bytes.extend_from_slice(
                            &read.unwrap_or_else(|_| AlignedBuffer::zeroed(PAGE_BYTES)),
                        );
                    }
                }
            }
        }
        // A page that was torn counts as written: something stands there.
        let torn = usize::try_from(written - end).unwrap_or(0);
        bytes.extend(std::iter::repeat_n(0xff, torn));
        Ok(bytes)
    }

    /// Makes a new device of it.
    pub(super) fn format(
        self,
        medium: &mut dyn ZonedMedium,
        config: &ZonedConfig,
    ) -> Result<Opened, FlashError> {
        let identity = Identity {
            device_id: config.device_id.unwrap_or_else(draw_id),
            owner: config.owner,
            zone_bytes: self.zones[self.first_data_zone as usize].length,
            pages_per_block: self.pages_per_block,
            first_data_zone: self.first_data_zone,
            data_zones: self.data_zones,
        };
        if identity.table_pages() * COPIES > self.log[0].pages {
            let reason = format!(
                "a metadata zone has {} pages, and a table of {} blocks needs {}",
                self.log[0].pages,
                identity.data_zones,
                identity.table_pages() * COPIES
            );
            return Err(unusable(medium, reason));
        }
        self.clear(medium)?;
        let max_blocks = config.max_blocks.unwrap_or(u32::MAX).min(identity.data_zones);
        let initial = config.initial_blocks.unwrap_or(max_blocks).min(max_blocks);
        let mut generations = vec![Generation::default(); identity.data_zones as usize];
        generations[..initial as usize].fill(Generation::FIRST);
        let end = LogEnd { zone: 0, used: 0, sequence: 0, clean: true };
        let mut journal = Journal::new(identity, self.log, generations.clone(), end);
        let (offset, bytes) = journal.first_snapshot();
        let failed = |source| FlashError::Medium { operation: "format", source };
        run(medium, ZoneOp::Write { offset, buffers: vec![bytes] }).0.map_err(failed)?;
        run(medium, ZoneOp::Sync).0.map_err(failed)?;
        generations.truncate(initial as usize);
        Ok(Opened {
            journal,
            report: report_data(medium, &identity)?,
            generations,
            max_blocks,
            data_limits: self.data_limits,
            repairs: 0,
        })
    }

    /// Empties every zone, those of the table last: a device that is cut short in between is still
    /// what it was, or empty.
    fn clear(&self, medium: &mut dyn ZonedMedium) -> Result<(), FlashError> {
        let failed = |source| FlashError::Medium { operation: "format", source };
        let holds_log = |number: &usize| self.log_zones.contains(number);
        let data = (0..self.zones.len()).filter(|number| !holds_log(number));
        for number in data.chain(self.log_zones) {
            let (zone, holds_log) = (&self.zones[number], holds_log(&number));
            if zone.kind == ZoneKind::Conventional {
                if holds_log {
                    let bytes =
                        METADATA_READ_PAGES.min(METADATA_ZONE_PAGES) as u64 * PAGE_BYTES as u64;
                    let end = u64::from(self.log[0].pages) * PAGE_BYTES as u64;
                    for at in (0..end).step_by(bytes as usize) {
                        let zeros = AlignedBuffer::zeroed(bytes.min(end - at) as usize);
                        let op = ZoneOp::Write { offset: zone.start + at, buffers: vec![zeros] };
                        run(medium, op).0.map_err(failed)?;
                    }
                }
            } else if zone.condition.is_bad() && !holds_log {
                tracing::warn!(zone = number, condition = ?zone.condition, "a zone cannot be written");
            } else if zone.written_bytes() > 0 {
                let (action, offset, length) = (ZoneAction::Reset, zone.start, zone.length);
                run(medium, ZoneOp::Zone { action, offset, length }).0.map_err(failed)?;
            }
        }
        run(medium, ZoneOp::Sync).0.map_err(failed)?;
        Ok(())
    }

    /// Checks a device that was found, and opens it.
    pub(super) fn open(
        self,
        medium: &mut dyn ZonedMedium,
        config: &ZonedConfig,
        found: Replayed,
    ) -> Result<Opened, FlashError> {
        let identity = found.identity;
        if let Some(reason) = self.mismatch(config, &identity) {
            return Err(unusable(medium, reason));
        }
        let data = &self.zones[self.first_data_zone as usize..][..identity.data_zones as usize];
        let block_bytes = u64::from(identity.pages_per_block) * PAGE_BYTES as u64;
        if data.iter().any(|zone| zone.capacity < block_bytes && !zone.condition.is_bad()) {
            let reason = "a zone's capacity is smaller than it was when the device was formatted";
            return Err(unusable(medium, reason));
        }
        let usable = found.generations.iter().position(|generation| generation.0 == 0);
        let usable = usable.unwrap_or(found.generations.len());
        if found.generations[usable..].iter().any(|generation| *generation > Generation::FIRST) {
            return Err(unusable(
                medium,
                "its block table has a gap; restore the shard from a \
                replica or backup",
            ));
        }
        // What the log says may sit in a cache still; what follows rests on it.
        run(medium, ZoneOp::Sync)
            .0
            .map_err(|source| FlashError::Medium { operation: "sync", source })?;
        if found.damaged > 0 {
            tracing::warn!(
                pages = found.damaged,
                "pages of the block table are damaged; their \
                second copies are whole, and the table is written anew with its next change"
            );
        }
        let wanted = config.max_blocks.unwrap_or(u32::MAX);
        let max_blocks = wanted.max(usable as u32).min(identity.data_zones);
        let mut generations = found.generations.clone();
        generations[usable..].fill(Generation::default());
        let journal = Journal::new(identity, self.log, generations.clone(), found.end);
        generations.truncate(usable);
        Ok(Opened {
            journal,
            report: data.to_vec(),
            generations,
            max_blocks,
            data_limits: self.data_limits,
            repairs: found.damaged,
        })
    }

    /// Why a device that was found is not the one that is wanted, or not on these zones.
    fn mismatch(&self, config: &ZonedConfig, identity: &Identity) -> Option<String> {
        if let Some(expected) = config.device_id.filter(|&id| id != identity.device_id) {
            let found = identity.device_id;
            return Some(format!("it is device {found}, but {expected} belongs here"));
        }
        if config.owner != identity.owner {
            return Some(format!(
                "it belongs to {:016x}, and this is {:016x}: another data directory's device is \
                 not used; to give it away for good, format it",
                identity.owner, config.owner
            ));
        }
        let zone_bytes = self.zones[self.first_data_zone as usize].length;
        let fits = identity.zone_bytes == zone_bytes
            && identity.first_data_zone == self.first_data_zone
            && identity.data_zones <= self.data_zones
            && identity.table_pages() * COPIES <= self.log[0].pages;
        (!fits).then(|| "its zones are not those that it was formatted with".to_owned())
    }
}

fn report_data(medium: &mut dyn ZonedMedium, identity: &Identity) -> Result<Vec<Zone>, FlashError> {
    let first = medium.report(0, identity.first_data_zone as usize + 1)?;
    let start = first.last().map_or(0, |zone| zone.start);
    medium.report(start, identity.data_zones as usize)
}

fn read(
    medium: &mut dyn ZonedMedium,
    offset: u64,
    length: usize,
) -> std::io::Result<AlignedBuffer> {
    let buffer = AlignedBuffer::zeroed(length);
    let (result, buffer) = run(medium, ZoneOp::Read { offset, buffer, length });
    match (result?, buffer) {
        (read, Some(buffer)) if read == length => Ok(buffer),
        _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

/// An id that no other device has, from the hasher's process-wide entropy.
fn draw_id() -> DeviceId {
    DeviceId(RandomState::new().hash_one(std::process::id()))
}

pub(super) fn unusable(medium: &dyn ZonedMedium, reason: impl Into<String>) -> FlashError {
    FlashError::Unusable { path: medium.path().to_owned(), reason: reason.into() }
}
