//! What survives a simulated server's crashes: its flash media, its log disks and the small files
//! beside them.
//!
//! Small files are replaced atomically and durably, as the real ones are; devices lose what was not
//! synced when the power is cut.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use timestone_clock::Clock;
use timestone_cluster::MasterService;
use timestone_flash::{FlashDevice, FlashPace, MemoryConfig, MemoryMedia};
use timestone_seda::Network;
use timestone_seda::simulated::VirtualTime;
use timestone_server::{DirectoryId, Environment, FlashPart, Joining, Registration, ServerError};
use timestone_types::{ClusterId, ShardId};
use timestone_wal::device::FileName;
use timestone_wal::device::memory::{DiskPace, MemoryDisk};
use timestone_wal::{Log, LogConfig, LogRecovery};

use crate::clock::SimClock;
use crate::master::OutsideMaster;
use timestone_costmodel::DevicePace;
use timestone_types::random::Seed;

/// How the flash devices look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlashShape {
    pub(crate) pages_per_block: u32,
    pub(crate) shuffle: bool,
    /// How many times as slow as the others those of keyspaces with index frugal are.
    pub(crate) frugal_slowness: u32,
}

/// What a data directory holds.
#[derive(Default)]
struct DirectoryContents {
    media: BTreeMap<(ShardId, FlashPart), MemoryMedia>,
    disks: BTreeMap<String, MemoryDisk>,
    master: Option<Vec<u8>>,
    manifest: Option<Vec<u8>>,
    cluster: Option<ClusterId>,
}

impl DirectoryContents {
    /// The same, of which nothing is shared.
    fn copy(&self) -> Self {
        Self {
            media: self.media.iter().map(|(place, media)| (*place, media.copy())).collect(),
            disks: self.disks.iter().map(|(name, disk)| (name.clone(), disk.copy())).collect(),
            master: self.master.clone(),
            manifest: self.manifest.clone(),
            cluster: self.cluster,
        }
    }
}

#[derive(Default)]
struct KeptDevices {
    directory: DirectoryContents,
    network: Option<Arc<dyn Network>>,
    registration: Option<Registration>,
    draws: u64,
    /// Data directories that were lost, each with its identity.
    lost: u64,
    /// Devices that were made or taken away, over all lives.
    changes: u64,
    /// What devices were told last of the time.
    now: VirtualTime,
    /// Its devices lie about syncs, and once the power went while they did.
    lies: bool,
    was_lied_to: bool,
    /// What somebody has copied of the data directory.
    copied: Option<CopiedDirectory>,
    /// The directory is an older copy of itself, and the server has not started with it yet.
    is_older: bool,
}

/// A copy of a data directory.
struct CopiedDirectory {
    contents: DirectoryContents,
    /// It is noticed once the master knows of this run of the directory.
    noticed_from: u64,
}

/// The environment of one simulated server; clones are the same environment.
#[derive(Clone)]
pub(crate) struct SimEnvironment {
    seed: Seed,
    shards: u16,
    clock: SimClock,
    shape: FlashShape,
    pace: DevicePace,
    /// Where no server hosts it.
    master: Option<OutsideMaster>,
    kept: Arc<Mutex<KeptDevices>>,
}

impl SimEnvironment {
    pub(crate) fn new(
        seed: Seed,
        shards: u16,
        clock: SimClock,
        shape: FlashShape,
        pace: DevicePace,
    ) -> Self {
        Self { seed, shards, clock, shape, pace, master: None, kept: Arc::default() }
    }

    /// The same in a cluster whose master this is.
    pub(crate) fn mastered_by(self, master: Option<OutsideMaster>) -> Self {
        Self { master, ..self }
    }

    fn kept(&self) -> MutexGuard<'_, KeptDevices> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The network of the process's next life.
    pub(crate) fn connect(&self, network: Arc<dyn Network>) {
        self.kept().network = Some(network);
    }

    /// What the process learned when it joined its cluster.
    pub(crate) fn registered(&self, registration: Registration) {
        self.kept().registration = Some(registration);
    }

    /// How often a device was made or taken away: whoever knows all devices knows how often that
    /// was.
    pub(crate) fn changes(&self) -> u64 {
        self.kept().changes
    }

    /// The whole data directory is gone. Whoever starts next is another server, with nothing.
    pub(crate) fn lose_directory(&self) {
        let mut kept = self.kept();
        *kept = KeptDevices {
            network: kept.network.take(),
            draws: kept.draws,
            lost: kept.lost + 1,
            changes: kept.changes + 1,
            lies: kept.lies,
            was_lied_to: kept.was_lied_to,
            ..KeptDevices::default()
        };
    }

    /// The devices of shards and logs are gone; the small files beside them say so.
    pub(crate) fn lose_devices(&self) {
        let mut kept = self.kept();
        kept.directory.media.clear();
        kept.directory.disks.clear();
        kept.changes += 1;
    }

    /// Somebody copies the data directory, all of it at one moment. The copy is noticed once the
    /// master knows of run `noticed_from` of the directory.
    pub(crate) fn copy_directory(&self, noticed_from: u64) {
        let mut kept = self.kept();
        kept.copied = Some(CopiedDirectory { contents: kept.directory.copy(), noticed_from });
    }

    /// The run of the directory from which on its copy, if there is one, is noticed.
    pub(crate) fn copy_is_noticed_from(&self) -> Option<u64> {
        self.kept().copied.as_ref().map(|copied| copied.noticed_from)
    }

    /// The copy takes the place of the data directory. Its server is down.
    pub(crate) fn put_copy_back(&self) {
        let mut kept = self.kept();
        let Some(copied) = kept.copied.take() else { return };
        kept.directory = copied.contents;
        kept.changes += 1;
        kept.is_older = true;
        for media in kept.directory.media.values() {
            media.set_lying(kept.lies);
            media.set_now(kept.now.as_nanos());
        }
        for disk in kept.directory.disks.values() {
            disk.set_lying(kept.lies);
            disk.set_now(kept.now.as_nanos());
        }
        drop(kept);
        self.set_slowness(1);
    }

    /// Whether the data directory is an older copy of itself, with which the server has not started
    /// yet.
    pub(crate) fn is_older(&self) -> bool {
        self.kept().is_older
    }

    /// The server has started.
    pub(crate) fn has_started(&self) {
        self.kept().is_older = false;
    }

    /// The media of all shards.
    pub(crate) fn media(&self) -> Vec<((ShardId, FlashPart), MemoryMedia)> {
        self.kept().directory.media.iter().map(|(place, media)| (*place, media.clone())).collect()
    }

    /// The disks of all logs.
    pub(crate) fn disks(&self) -> Vec<(String, MemoryDisk)> {
        self.kept()
            .directory
            .disks
            .iter()
            .map(|(name, disk)| (name.clone(), disk.clone()))
            .collect()
    }

    /// The process has ended, and the machine with its power if `silent`: see [`Self::end_after`].
    pub(crate) fn end(&self, silent: bool, seed: Seed) {
        self.end_after(None, silent, seed);
    }

    /// How many operations each log disk has been asked for.
    pub(crate) fn operations(&self) -> Vec<u64> {
        self.kept().directory.disks.values().map(MemoryDisk::operations).collect()
    }

    /// The process dies within a turn, in which its devices were asked for what they have not seen
    /// yet: of each one's operations a part, from the front, is going to reach it when it is
    /// dropped.
    pub(crate) fn cut_submissions(&self, seed: Seed) {
        for (index, media) in (0u64..).zip(self.kept().directory.media.values()) {
            media.cut_submissions(seed.derive("submissions", index).0);
        }
    }

    /// The process has ended. `silent`: the power has gone as well, and what is not synced is lost,
    /// kept or torn; otherwise what completed is there and may still be lost by a later cut.
    /// `before`: the log disks' operations before the turn in which the process died; a part of
    /// those since, from the front, was handed in.
    pub(crate) fn end_after(&self, before: Option<&[u64]>, silent: bool, seed: Seed) {
        let mut kept = self.kept();
        kept.was_lied_to |= silent && kept.lies;
        for (index, media) in (0u64..).zip(kept.directory.media.values()) {
            let seed = seed.derive("flash", index).0;
            if silent { media.power_cut(seed) } else { media.kill(seed) }
        }
        for (index, disk) in (0u64..).zip(kept.directory.disks.values()) {
            let crash = seed.derive("log", index).0;
            let last =
                before.and_then(|before| before.get(index as usize)).map_or(u64::MAX, |&before| {
                    let since = disk.operations().saturating_sub(before);
                    before + seed.derive("handed-in", index).dice().below(since + 1)
                });
            if silent { disk.crash_after(last, crash) } else { disk.kill_after(last, crash) }
        }
    }

    /// Makes all devices lie about syncs, or do what they have claimed.
    pub(crate) fn set_lying(&self, lying: bool) {
        let mut kept = self.kept();
        kept.lies = lying;
        kept.directory.media.values().for_each(|media| media.set_lying(lying));
        kept.directory.disks.values().for_each(|disk| disk.set_lying(lying));
    }

    /// Whether the power ever went while devices held what they had acknowledged as synced.
    pub(crate) fn was_lied_to(&self) -> bool {
        self.kept().was_lied_to
    }

    /// Tells the devices what time it is.
    pub(crate) fn set_now(&self, now: VirtualTime) {
        let mut kept = self.kept();
        kept.now = now;
        kept.directory.media.values().for_each(|media| media.set_now(now.as_nanos()));
        kept.directory.disks.values().for_each(|disk| disk.set_now(now.as_nanos()));
    }

    /// Makes all devices this many times slower than they are by nature.
    pub(crate) fn set_slowness(&self, times: u32) {
        let kept = self.kept();
        for (index, (&(_, part), media)) in (0u64..).zip(&kept.directory.media) {
            media.set_pace(Some(self.flash_pace(index, part, times)));
        }
        for (index, disk) in (0u64..).zip(kept.directory.disks.values()) {
            disk.set_pace(Some(self.disk_pace(index, times)));
        }
    }

    fn flash_pace(&self, index: u64, part: FlashPart, times: u32) -> FlashPace {
        let pace = self.pace.flash;
        let times = times * if part == FlashPart::Frugal { self.shape.frugal_slowness } else { 1 };
        FlashPace {
            read: pace.read * times,
            program: pace.program * times,
            per_page: pace.per_page * times,
            erase: pace.erase * times,
            sync: pace.sync * times,
            spread: pace.spread * times,
            seed: self.seed.derive("flash-pace", index).0,
        }
    }

    fn disk_pace(&self, index: u64, times: u32) -> DiskPace {
        let pace = self.pace.disk;
        DiskPace {
            write: pace.write * times,
            write_per_kib: pace.write_per_kib * times,
            change: pace.change * times,
            spread: pace.spread * times,
            seed: self.seed.derive("disk-pace", index).0,
        }
    }
}

impl Environment for SimEnvironment {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock.clone())
    }

    fn network(&self) -> Arc<dyn Network> {
        // Connected before every life; a server without a network finds nobody.
        self.kept().network.clone().unwrap_or_else(|| Arc::new(timestone_seda::Tcp))
    }

    fn shards(&self) -> u16 {
        self.shards
    }

    fn directory(&self) -> DirectoryId {
        DirectoryId(self.seed.derive("hash", self.kept().lost).0)
    }

    fn draw(&self) -> u64 {
        let mut kept = self.kept();
        kept.draws += 1;
        self.seed.derive("draw", kept.draws).0
    }

    fn load_manifest(&self) -> Result<Option<Vec<u8>>, ServerError> {
        Ok(self.kept().directory.manifest.clone())
    }

    fn save_manifest(&self, bytes: &[u8]) -> Result<(), ServerError> {
        self.kept().directory.manifest = Some(bytes.to_vec());
        Ok(())
    }

    fn has_flash(&self, shard: ShardId, part: FlashPart) -> bool {
        self.kept().directory.media.contains_key(&(shard, part))
    }

    fn log_files(&self, name: &str) -> Result<Vec<FileName>, ServerError> {
        Ok(self.kept().directory.disks.get(name).map(MemoryDisk::files).unwrap_or_default())
    }

    fn open_flash(
        &self,
        shard: ShardId,
        part: FlashPart,
        blocks: u32,
    ) -> Result<Box<dyn FlashDevice>, ServerError> {
        let index = self.kept().directory.media.len() as u64;
        let pace = self.flash_pace(index, part, 1);
        let shape = self.shape;
        let shuffle = shape.shuffle.then(|| self.seed.derive("flash-order", index).0);
        let mut kept = self.kept();
        let (lies, now) = (kept.lies, kept.now);
        kept.changes += u64::from(!kept.directory.media.contains_key(&(shard, part)));
        let media = kept.directory.media.entry((shard, part)).or_insert_with(|| {
            let media = MemoryMedia::new(MemoryConfig {
                pages_per_block: shape.pages_per_block,
                initial_blocks: blocks.min(timestone_server::limits::INITIAL_BLOCKS),
                max_blocks: blocks,
                shuffle,
                ..MemoryConfig::default()
            });
            media.set_pace(Some(pace));
            media.set_lying(lies);
            // A replica's is made in the middle of a life.
            if self.master.is_some() {
                media.set_now(now.as_nanos());
            }
            media
        });
        *media = media.with_room(blocks);
        Ok(Box::new(media.open()))
    }

    fn remove_flash(&self, shard: ShardId) -> Result<(), ServerError> {
        let mut kept = self.kept();
        for part in FlashPart::ALL {
            kept.changes += u64::from(kept.directory.media.remove(&(shard, part)).is_some());
        }
        Ok(())
    }

    fn capacity_bytes(&self) -> Result<u64, ServerError> {
        Ok(64 * 1024 * 1024)
    }

    fn logs(&self) -> Result<Vec<String>, ServerError> {
        Ok(self.kept().directory.disks.keys().cloned().collect())
    }

    fn open_log(&self, name: &str, config: LogConfig) -> Result<LogRecovery, ServerError> {
        let index = self.kept().directory.disks.len() as u64;
        let pace = self.disk_pace(index, 1);
        let mut kept = self.kept();
        let lies = kept.lies;
        kept.changes += u64::from(!kept.directory.disks.contains_key(name));
        let disk = kept.directory.disks.entry(name.to_owned()).or_insert_with(|| {
            let disk = MemoryDisk::new();
            disk.set_pace(Some(pace));
            disk.set_lying(lies);
            disk
        });
        Log::open_on(disk.device(), config).map_err(|error| ServerError::Part(Box::new(error)))
    }

    fn remove_log(&self, name: &str) -> Result<(), ServerError> {
        let mut kept = self.kept();
        kept.changes += u64::from(kept.directory.disks.remove(name).is_some());
        Ok(())
    }

    fn load_master(&self) -> Result<Option<Vec<u8>>, ServerError> {
        Ok(self.kept().directory.master.clone())
    }

    fn save_master(&self, bytes: &[u8]) -> Result<(), ServerError> {
        self.kept().directory.master = Some(bytes.to_vec());
        Ok(())
    }

    fn load_cluster(&self) -> Result<ClusterId, ServerError> {
        Ok(self.kept().directory.cluster.unwrap_or(ClusterId::ZERO))
    }

    fn save_cluster(&self, cluster: ClusterId) -> Result<(), ServerError> {
        self.kept().directory.cluster = Some(cluster);
        Ok(())
    }

    fn register(
        &self,
        address: SocketAddr,
        _joining: Joining,
    ) -> Result<Registration, ServerError> {
        let registration = self.kept().registration.take();
        let detail = || "this process has not joined its cluster yet".to_owned();
        registration.ok_or_else(|| ServerError::Master { address, detail: detail() })
    }

    fn open_master(&self) -> Result<Option<Box<dyn MasterService>>, ServerError> {
        Ok(self.master.clone().map(|master| Box::new(master) as Box<dyn MasterService>))
    }

    fn place(&self) -> PathBuf {
        PathBuf::from("simulated")
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use timestone_clock::SkewModel;
    use timestone_server::{AcceptedLoss, ServerConfig, ServerError, ServerStages};

    use super::*;
    use crate::clock::TrueTime;

    fn environment() -> SimEnvironment {
        let clock = SimClock::new(TrueTime::default(), SkewModel::Perfect, Seed(1), 1);
        let shape = FlashShape { pages_per_block: 16, shuffle: false, frugal_slowness: 1 };
        SimEnvironment::new(Seed(1), 2, clock, shape, crate::swarm::pace())
    }

    fn start(environment: &SimEnvironment, accept_loss: AcceptedLoss) -> Result<(), ServerError> {
        let config = ServerConfig {
            threads: Some(1),
            accept_loss,
            ..ServerConfig::embedded(PathBuf::from("unused"))
        };
        ServerStages::build(&config, Arc::new(environment.clone())).map(drop)
    }

    fn missing(outcome: Result<(), ServerError>) -> String {
        match outcome {
            Err(ServerError::Missing { names, .. }) => names,
            Err(error) => panic!("{error}"),
            Ok(()) => panic!("it started"),
        }
    }

    #[test]
    fn a_device_that_is_gone_is_missed_as_a_file_is() {
        let environment = environment();
        start(&environment, AcceptedLoss::Nothing).unwrap();
        start(&environment, AcceptedLoss::Nothing).unwrap();
        environment.kept().directory.media.remove(&(ShardId::new(1), FlashPart::Full));
        assert_eq!(missing(start(&environment, AcceptedLoss::Nothing)), "shard-0001/flash");
        assert_eq!(
            missing(start(&environment, AcceptedLoss::Shards(vec![ShardId::new(0)]))),
            "shard-0001/flash"
        );
        start(&environment, AcceptedLoss::Shards(vec![ShardId::new(1)])).unwrap();
        start(&environment, AcceptedLoss::Nothing).unwrap();

        let disk = environment.disks()[0].1.clone();
        let newest = *disk.files().last().unwrap();
        disk.delete(newest);
        assert_eq!(
            missing(start(&environment, AcceptedLoss::Nothing)),
            format!("wal/thread-0/{newest}")
        );
        environment.kept().directory.disks.clear();
        let names = missing(start(&environment, AcceptedLoss::Shards(vec![ShardId::new(1)])));
        assert!(names.starts_with("wal/thread-0/"), "{names}");
        start(&environment, AcceptedLoss::Everything).unwrap();
        start(&environment, AcceptedLoss::Nothing).unwrap();
    }
}
