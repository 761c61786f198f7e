//! Where the flash devices of a data directory's shards are: files in it, memory, or zoned block
//! devices.
//!
//! ```text
//!   open_flash, has_flash, remove_flash ──► FlashDevices ─┬─ Files      shard-NNNN/flash, shard-NNNN/frugal
//!                                                         ├─ Emulated   media in memory, while the process lives
//!                                                         └─ Zoned      a device a shard, which says itself whose it is
//! ```
//!
//! A zoned device names its owner, which is the data directory's id, and by its own id the shard
//! that it holds: so it is found again under whatever name the system gives it. One without a shard
//! is free. What belongs to somebody else is refused before anything is served.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use timestone_flash::layout::DeviceId;
use timestone_flash::{
    EmulatedConfig, EmulatedMedium, FileConfig, FileDevice, FlashClock, FlashDevice, FlashError,
    KernelZones, Overwrite, ZonedConfig, ZonedDevice, ZonedMedium,
};
use timestone_io::WakeSignal;
use timestone_types::ShardId;

use crate::config::FlashPlace;
use crate::datadir::{DataDir, Identity};
use crate::environment::FlashPart;
use crate::error::ServerError;
use crate::limits;

/// Opens the medium that a path names.
type OpenZones = Box<dyn Fn(&Path) -> Result<Box<dyn ZonedMedium>, FlashError> + Send + Sync>;

/// The flash devices of a data directory.
pub(crate) enum FlashDevices {
    /// Files of the directory, which leave so many bytes free for the logs. The files of a shard
    /// signal one descriptor.
    Files { keep_free: u64, wakes: Mutex<BTreeMap<ShardId, WakeSignal>> },
    /// Media in memory.
    Emulated(Mutex<BTreeMap<ShardId, EmulatedMedium>>),
    /// Zoned block devices.
    Zoned(ZonedDevices),
}

/// Zoned devices of one data directory.
pub(crate) struct ZonedDevices {
    open: OpenZones,
    owner: u64,
    /// Which shard each device holds; zero: none.
    ids: Mutex<Vec<(PathBuf, DeviceId)>>,
}

/// The id of a device that is ours and holds no shard.
const FREE: DeviceId = DeviceId(0);

/// The id of the device that holds a shard.
fn id_of(shard: ShardId) -> DeviceId {
    DeviceId(u64::from(shard.get()) + 1)
}

impl FlashDevices {
    /// Whether a new directory with so many shards can have these devices. Changes nothing.
    pub(crate) fn check(place: &FlashPlace, shards: u16) -> Result<(), ServerError> {
        match place {
            FlashPlace::Files | FlashPlace::Emulated => Ok(()),
            FlashPlace::Zoned(paths) => {
                check_count(paths, shards)?;
                // Of a directory that does not exist there is no device yet.
                ZonedDevices::identify(paths, &kernel_zones(), None).map(|_| ())
            }
        }
    }

    /// The devices of a directory. Files leave `keep_free` bytes free.
    pub(crate) fn open(
        place: &FlashPlace,
        directory: Identity,
        keep_free: u64,
    ) -> Result<Self, ServerError> {
        match place {
            FlashPlace::Files => Ok(Self::Files { keep_free, wakes: Mutex::default() }),
            FlashPlace::Emulated => {
                tracing::warn!(
                    "the flash devices are in this process's memory, as --device emulated says: \
                     what is written is gone when the process ends, and nobody can open the data \
                     directory again"
                );
                Ok(Self::Emulated(Mutex::default()))
            }
            FlashPlace::Zoned(paths) => {
                check_count(paths, directory.shards)?;
                ZonedDevices::open(paths, kernel_zones(), directory.directory).map(Self::Zoned)
            }
        }
    }

    /// Whether a device of a shard is there.
    pub(crate) fn has(&self, data: &DataDir, shard: ShardId, part: FlashPart) -> bool {
        match (self, part) {
            (Self::Files { .. }, part) => data.has_flash(shard, part),
            (Self::Emulated(media), FlashPart::Full) => lock(media).contains_key(&shard),
            (Self::Zoned(devices), FlashPart::Full) => devices.find(id_of(shard)).is_some(),
            (Self::Emulated(_) | Self::Zoned(_), FlashPart::Frugal) => false,
        }
    }

    /// Opens a device of a shard, of up to `blocks` blocks of [`limits::BLOCK_BYTES`], creating it when
    /// it is missing.
    pub(crate) fn open_shard(
        &self,
        data: &DataDir,
        shard: ShardId,
        part: FlashPart,
        blocks: u32,
    ) -> Result<Box<dyn FlashDevice>, ServerError> {
        match self {
            Self::Files { keep_free, wakes } => {
                let wake = wake_of(&mut lock(wakes), shard)?;
                open_file(data, (shard, part), blocks, (*keep_free, wake))
            }
            Self::Emulated(_) | Self::Zoned(_) if part == FlashPart::Frugal => {
                Err(ServerError::NoFrugalDevice)
            }
            Self::Emulated(media) => {
                let mut media = lock(media);
                let medium = media.entry(shard).or_insert_with(|| {
                    let config = EmulatedConfig {
                        initial_blocks: blocks.min(limits::INITIAL_BLOCKS),
                        max_blocks: blocks,
                        ..EmulatedConfig::default()
                    };
                    EmulatedMedium::new(config, FlashClock::real())
                });
                Ok(Box::new(medium.open().map_err(ServerError::part)?))
            }
            Self::Zoned(devices) => devices.open_shard(shard, blocks),
        }
    }

    /// Removes a shard's devices with all that is on them, durably. Nobody has one open.
    pub(crate) fn remove(&self, data: &DataDir, shard: ShardId) -> Result<(), ServerError> {
        match self {
            Self::Files { .. } => data.remove_flash(shard),
            Self::Emulated(media) => {
                lock(media).remove(&shard);
                Ok(())
            }
            Self::Zoned(devices) => devices.remove(shard),
        }
    }

    /// Bytes that all devices together may take when nothing is said.
    pub(crate) fn capacity_bytes(&self, data: &DataDir) -> Result<u64, ServerError> {
        match self {
            Self::Files { .. } => data.default_capacity(),
            Self::Emulated(_) => Ok(limits::EMULATED_CAPACITY_BYTES),
            // Each device is used whole.
            Self::Zoned(_) => Ok(u64::MAX),
        }
    }
}

fn check_count(paths: &[PathBuf], shards: u16) -> Result<(), ServerError> {
    match paths.len() < usize::from(shards) {
        true => Err(ServerError::TooFewDevices { shards, devices: paths.len() }),
        false => Ok(()),
    }
}

/// The descriptor that the devices of a shard signal, from the first one on.
fn wake_of(
    wakes: &mut BTreeMap<ShardId, WakeSignal>,
    shard: ShardId,
) -> Result<WakeSignal, ServerError> {
    match wakes.entry(shard) {
        Entry::Occupied(entry) => Ok(entry.get().clone()),
        Entry::Vacant(entry) => {
            Ok(entry.insert(WakeSignal::new().map_err(ServerError::part)?).clone())
        }
    }
}

fn open_file(
    data: &DataDir,
    (shard, part): (ShardId, FlashPart),
    blocks: u32,
    (keep_free, wake): (u64, WakeSignal),
) -> Result<Box<dyn FlashDevice>, ServerError> {
    let mut file = FileConfig::new(data.flash_file(shard, part)?, blocks);
    file.initial_blocks = file.initial_blocks.min(limits::INITIAL_BLOCKS);
    file.table_blocks = limits::TABLE_BLOCKS;
    file.keep_free_bytes = keep_free;
    file.wake = Some(wake);
    let (device, created) = FileDevice::open_or_create(&file).map_err(ServerError::part)?;
    let possible = device.geometry().max_blocks;
    if possible < blocks {
        tracing::warn!(
            %shard, file = part.file_name(), capacity_bytes = u64::from(possible) * limits::BLOCK_BYTES,
            "the shard's flash file cannot grow to the whole capacity: the size of its block \
             table was fixed when it was created, at the \
             larger of 256 GiB and eight times the capacity of then. To go beyond, write the \
             keys into a file with `timestone dump`, and \
             load it with `timestone load` into a server on a new --data directory with this \
             --capacity"
        );
    }
    tracing::debug!(%shard, file = part.file_name(), created, engine = ?device.engine(), direct = device.is_direct(), "flash device open");
    Ok(Box::new(device))
}

fn kernel_zones() -> OpenZones {
    Box::new(|path| {
        let depth = timestone_flash::limits::DEFAULT_QUEUE_DEPTH;
        let medium = KernelZones::open(path, depth, timestone_io::EngineChoice::Auto)?;
        Ok(Box::new(medium))
    })
}

fn zoned_config() -> ZonedConfig {
    ZonedConfig { open_blocks: timestone_store::limits::OPEN_BLOCKS, ..ZonedConfig::default() }
}

impl ZonedDevices {
    fn open(paths: &[PathBuf], open: OpenZones, owner: u64) -> Result<Self, ServerError> {
        let ids = Self::identify(paths, &open, Some(owner))?;
        let mut shards: Vec<_> = ids.iter().filter(|(_, id)| *id != FREE).collect();
        shards.sort_by_key(|(_, id)| id.0);
        if let Some([_, (path, _)]) = shards.array_windows().find(|[one, two]| one.1 == two.1) {
            let detail = "it holds the same shard as another one: one is a copy of the other";
            return Err(ServerError::ZonedDevice { path: path.clone(), detail: detail.to_owned() });
        }
        Ok(Self { open, owner, ids: Mutex::new(ids) })
    }

    /// What each device is; refuses what is not ours.
    fn identify(
        paths: &[PathBuf],
        open: &OpenZones,
        owner: Option<u64>,
    ) -> Result<Vec<(PathBuf, DeviceId)>, ServerError> {
        let identify = |path: &PathBuf| {
            let mut medium = open(path).map_err(|error| refusal(path, &error))?;
            let found = ZonedDevice::identify(&mut *medium, &zoned_config());
            let id = match found.map_err(|error| refusal(path, &error))? {
                None => FREE,
                Some(identity) if Some(identity.owner) == owner => identity.device_id,
                Some(identity) => {
                    let detail = format!(
                        "it belongs to another data directory ({:016x}), whose data would be lost: \
                         name another device, or empty this one's zones first (`blkzone reset`)",
                        identity.owner
                    );
                    return Err(ServerError::ZonedDevice { path: path.clone(), detail });
                }
            };
            Ok((path.clone(), id))
        };
        paths.iter().map(identify).collect()
    }

    fn find(&self, id: DeviceId) -> Option<PathBuf> {
        let ids = lock(&self.ids);
        ids.iter().find(|(_, found)| *found == id).map(|(path, _)| path.clone())
    }

    fn note(&self, path: &Path, id: DeviceId) {
        lock(&self.ids).iter_mut().filter(|(found, _)| found == path).for_each(|at| at.1 = id);
    }

    fn open_shard(&self, shard: ShardId, blocks: u32) -> Result<Box<dyn FlashDevice>, ServerError> {
        let id = id_of(shard);
        let (path, is_new) = match (self.find(id), self.find(FREE)) {
            (Some(path), _) => (path, false),
            (None, Some(path)) => (path, true),
            (None, None) => {
                let devices = lock(&self.ids).len();
                let shards = u16::try_from(devices + 1).unwrap_or(u16::MAX);
                return Err(ServerError::TooFewDevices { shards, devices });
            }
        };
        let failed = |error: FlashError| refusal(&path, &error);
        let mut medium = (self.open)(&path).map_err(failed)?;
        let block_bytes =
            ZonedDevice::block_bytes(&mut *medium, &zoned_config()).map_err(failed)?;
        let most = u64::from(limits::MAX_DEVICE_PAGES) * timestone_flash::PAGE_BYTES as u64;
        let wanted = (u64::from(blocks) * limits::BLOCK_BYTES).min(most) / block_bytes;
        let max_blocks = u32::try_from(wanted).unwrap_or(u32::MAX).max(limits::MIN_BLOCKS);
        let config = ZonedConfig {
            max_blocks: Some(max_blocks),
            device_id: Some(id),
            owner: self.owner,
            ..zoned_config()
        };
        let device = match is_new {
            // A free device of ours holds nothing, and its table says so.
            true if self.is_ours(&mut *medium, &path)? => {
                ZonedDevice::format(medium, &config, Overwrite::Everything)
            }
            true => ZonedDevice::format(medium, &config, Overwrite::Refuse),
            false => ZonedDevice::open(medium, &config),
        };
        let device = device.map_err(failed)?;
        self.note(&path, id);
        let found = device.geometry();
        if found.max_blocks < limits::MIN_BLOCKS {
            let detail = format!(
                "it has {} zones for data, and {} are needed",
                found.max_blocks,
                limits::MIN_BLOCKS
            );
            return Err(ServerError::ZonedDevice { path, detail });
        }
        tracing::info!(%shard, path = %path.display(), zones = found.blocks,
            zone_bytes = found.block_bytes(), is_new, "zoned flash device open");
        Ok(Box::new(device))
    }

    fn is_ours(&self, medium: &mut dyn ZonedMedium, path: &Path) -> Result<bool, ServerError> {
        let found = ZonedDevice::identify(medium, &zoned_config());
        let found = found.map_err(|error| refusal(path, &error))?;
        Ok(found.is_some_and(|identity| identity.owner == self.owner && identity.device_id == FREE))
    }

    /// The shard's device is ours and free.
    fn remove(&self, shard: ShardId) -> Result<(), ServerError> {
        let Some(path) = self.find(id_of(shard)) else { return Ok(()) };
        let config = ZonedConfig { device_id: Some(FREE), owner: self.owner, ..zoned_config() };
        let emptied = (self.open)(&path)
            .and_then(|medium| ZonedDevice::format(medium, &config, Overwrite::Everything));
        emptied.map_err(|error| refusal(&path, &error))?;
        self.note(&path, FREE);
        Ok(())
    }
}

fn refusal(path: &Path, error: &FlashError) -> ServerError {
    ServerError::ZonedDevice { path: path.to_owned(), detail: error.to_string() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each holder leaves it whole between two calls.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
