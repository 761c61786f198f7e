//! What a server is told at start. Parsing flags, environment and files is the binary's business;
//! here are the typed values.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use timestone_clock::ClockShift;
use timestone_cluster::{ControllerLimits, KeyspaceName, ReplicationFactor};
use timestone_replication::limits::Retention;
use timestone_txn::participant;
use timestone_types::ShardId;
use timestone_wal::{DeviceKind, LogConfig};

use crate::error::ServerError;
use crate::limits;

/// Where the cluster's master is.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum MasterPlace {
    /// In this process, its state in the data directory.
    #[default]
    Embedded,
    /// In another Timestone process, by its native address.
    Remote(SocketAddr),
    /// Its state on etcd, by the addresses of etcd's members for clients.
    Etcd(Vec<SocketAddr>),
}

/// Where the flash devices of the shards are.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum FlashPlace {
    /// One file a shard, in the data directory.
    #[default]
    Files,
    /// In this process's memory, with the latencies of the papers' SSD, for trials: what it holds is
    /// gone when the process ends. So it is served with a new data directory only, which no later
    /// process opens.
    Emulated,
    /// One zoned block device a shard. A device belongs to one data directory.
    Zoned(Vec<PathBuf>),
}

impl FlashPlace {
    /// As the setting calls it, without which devices they are.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Files => "file",
            Self::Emulated => "emulated",
            Self::Zoned(_) => "zoned",
        }
    }
}

/// Which shards a start may go on without, when files of theirs are gone.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum AcceptedLoss {
    /// None: what is missing is named, and the server refuses to start.
    #[default]
    Nothing,
    /// These.
    Shards(Vec<ShardId>),
    /// All shards of the directory, which a missing log file concerns.
    Everything,
}

impl AcceptedLoss {
    /// Whether this shard is among them.
    #[must_use]
    pub fn includes(&self, shard: ShardId) -> bool {
        match self {
            Self::Nothing => false,
            Self::Shards(shards) => shards.contains(&shard),
            Self::Everything => true,
        }
    }
}

/// Which stages run on which thread (docs/benchmarks.md, "Layouts", compares them).
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum StageLayout {
    /// Each reactor thread runs all stages of its shards to completion: events between them never
    /// leave its core.
    #[default]
    Fused,
    /// Each stage has a thread of its own, and events pass from thread to thread, as in DTranx. The
    /// number of threads says how many net stages, gateways and logs there are.
    Staged,
}

/// A server's configuration. [`ServerConfig::new`] gives the defaults for a data directory.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The data directory; created when missing.
    pub data: PathBuf,
    /// Where clients are served.
    pub listen: ListenConfig,
    /// Memory and space on the device.
    pub sizes: SizeConfig,
    /// Where the flash devices are; fixed when the data directory is created.
    pub flash: FlashPlace,
    /// The log's device.
    pub log: DeviceKind,
    /// Shards that this process holds; fixed when the data directory is created. `None`: as it is,
    /// or the default.
    pub shards: Option<u16>,
    /// Reactor threads; `None`: by the number of cores.
    pub threads: Option<usize>,
    /// Which stages run on which thread.
    pub layout: StageLayout,
    /// Shards of the whole cluster, when this process hosts the master of several; `None`: just
    /// this process's.
    pub cluster_shards: Option<u16>,
    /// How many replicas each shard has, when this process founds a cluster; an existing one keeps
    /// its number.
    pub replication: ReplicationFactor,
    /// When this server, as the cluster's controller, calls others lost, and has their replicas
    /// replaced, where shards have several.
    pub controller: ControllerLimits,
    /// How long a primary may go on to answer without hearing of its backups, which whoever comes
    /// after it waits for: from [`MIN_LEASE`](timestone_txn::limits::MIN_LEASE) to
    /// [`BOUND_AHEAD`](timestone_txn::limits::BOUND_AHEAD). Where clocks may be wrong by a good part of
    /// it, it is longer.
    pub lease: Duration,
    /// The cluster that this server must belong to, by its name (which a new cluster gets) or by
    /// its id in hexadecimal; `None`: whichever the data directory or the master says.
    pub cluster: Option<String>,
    /// Where the master is.
    pub master: MasterPlace,
    /// Whether reactor threads are bound to cores.
    pub pin: bool,
    /// By how much the clock is set wrong, for trials.
    pub clock_shift: ClockShift,
    /// What this start may go on without, if it is missing.
    pub accept_loss: AcceptedLoss,
    /// What the operator does not choose; `None`: as fits the log's device.
    pub tuning: Option<Tuning>,
}

/// Where a server's clients are served, and how many.
#[derive(Clone, Debug, Default)]
pub struct ListenConfig {
    /// Native protocol; `None`: not served (an embedded store).
    pub native: Option<SocketAddr>,
    /// RESP gateway; `None`: not served.
    pub resp: Option<SocketAddr>,
    /// The keyspace that Redis clients are served; `None`: the one that always exists. While there is
    /// none of this name, their commands on keys are refused.
    pub resp_keyspace: Option<KeyspaceName>,
    /// HTTP: metrics and health; `None`: not served.
    pub http: Option<SocketAddr>,
    /// The address that others are told to connect to, when it differs from the listening one.
    pub advertise: Option<SocketAddr>,
    /// Whether addresses that other machines can reach are allowed without protection.
    pub insecure: bool,
    /// Most connections of each net stage; `None`: as many as the process's descriptors allow.
    pub max_connections: Option<usize>,
}

impl ListenConfig {
    /// Whether nobody but the application that holds the store asks it for data.
    pub(crate) const fn is_embedded(&self) -> bool {
        self.native.is_none() && self.resp.is_none()
    }
}

/// Memory of a server, and its space on the device.
#[derive(Clone, Debug)]
pub struct SizeConfig {
    /// Most bytes on the flash device, over all shards; `None`: 80 % of the free space.
    pub capacity_bytes: Option<u64>,
    /// Most bytes on the devices of the keyspaces with their index on flash, over all shards; `None`:
    /// as many as on those of the others.
    pub frugal_capacity_bytes: Option<u64>,
    /// Keys that are expected in these keyspaces, over all shards: with more of them their chains get
    /// longer. Fixed for a shard when its first such key is written.
    pub frugal_keys: u64,
    /// Of how many of a hundred of these keys memory knows where their youngest version lies, some 50
    /// bytes each; 1 to 100. What is asked most stays.
    pub frugal_places: u32,
    /// Bytes of the record cache, over all shards; allocated as it fills.
    pub cache_bytes: u64,
    /// Memory of the keyspaces in dram, over all shards, in bytes, beside
    /// [`Self::memory_bytes`]; taken as it fills.
    pub dram_bytes: u64,
    /// Memory that the process may use, caches included; `None`: half of what the machine, or the
    /// control group, has.
    pub memory_bytes: Option<u64>,
}

impl Default for SizeConfig {
    fn default() -> Self {
        Self {
            capacity_bytes: None,
            frugal_capacity_bytes: None,
            frugal_keys: crate::limits::DEFAULT_FRUGAL_KEYS,
            frugal_places: crate::limits::DEFAULT_FRUGAL_PLACES,
            cache_bytes: crate::limits::DEFAULT_CACHE_BYTES,
            dram_bytes: crate::limits::DEFAULT_DRAM_BYTES,
            memory_bytes: None,
        }
    }
}

/// What a configuration comes to where it left the choice to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Shards of the data directory: as it has them, or as it would get them.
    pub shards: u16,
    /// Whether there is no data directory yet.
    pub is_new: bool,
    /// Reactor threads.
    pub threads: usize,
    /// Most bytes on the flash device, over all shards, by the free space of now; none where it is
    /// what the devices have.
    pub capacity_bytes: Option<u64>,
}

/// Sizes and delays inside a server: fixed for those who run one, varied by those who test it.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Bytes of an erase block.
    pub block_bytes: u64,
    /// How long a full page waits for others.
    pub packing_delay: Duration,
    /// How long a partly filled page waits for company.
    pub partial_page_delay: Duration,
    /// Shortest time between two syncs of a shard's device.
    pub sync_interval: Duration,
    /// Bytes of records between two checkpoints.
    pub checkpoint_bytes: u64,
    /// Files and blocks of the log.
    pub log: LogConfig,
    /// Waiting and timeouts of the participants.
    pub participant: participant::Config,
    /// Stores on flash keep the newest version of a key and no other, and refuse older snapshots: for
    /// experiments. Such a server has no keyspaces in memory.
    pub single_version: bool,
    /// What a primary keeps for replicas that lack it; those that are further behind take a
    /// checkpoint.
    pub retention: Retention,
    /// How long a server runs under one number of its data directory.
    pub run_interval: Duration,
}

impl Tuning {
    /// What fits the log's device.
    #[must_use]
    pub fn of(log: DeviceKind) -> Self {
        let mftl = timestone_store::MftlConfig::default();
        let (packing_delay, partial_page_delay, sync_interval) = match log {
            DeviceKind::None => (
                limits::PACKING_DELAY_WITHOUT_LOG,
                limits::PACKING_DELAY_WITHOUT_LOG,
                limits::SYNC_INTERVAL_WITHOUT_LOG,
            ),
            DeviceKind::Ssd | DeviceKind::Pmem => {
                (limits::PACKING_DELAY, mftl.partial_page_delay, limits::SYNC_INTERVAL)
            }
        };
        Self {
            block_bytes: limits::BLOCK_BYTES,
            packing_delay,
            partial_page_delay,
            sync_interval,
            checkpoint_bytes: mftl.checkpoint_bytes,
            log: LogConfig::default(),
            participant: participant::Config::default(),
            single_version: false,
            retention: Retention::default(),
            run_interval: limits::RUN_INTERVAL,
        }
    }
}

impl ServerConfig {
    /// The defaults for a data directory: the standard ports on loopback, durable log.
    #[must_use]
    pub fn new(data: PathBuf) -> Self {
        let loopback = |port| Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
        Self {
            data,
            listen: ListenConfig {
                native: loopback(crate::limits::NATIVE_PORT),
                resp: loopback(crate::limits::RESP_PORT),
                http: loopback(crate::limits::HTTP_PORT),
                ..ListenConfig::default()
            },
            sizes: SizeConfig::default(),
            flash: FlashPlace::Files,
            log: DeviceKind::Ssd,
            shards: None,
            threads: None,
            layout: StageLayout::default(),
            cluster_shards: None,
            replication: ReplicationFactor::ONE,
            controller: ControllerLimits::default(),
            lease: timestone_txn::limits::BOUND_AHEAD,
            cluster: None,
            master: MasterPlace::Embedded,
            pin: false,
            clock_shift: ClockShift::default(),
            accept_loss: AcceptedLoss::Nothing,
            tuning: None,
        }
    }

    /// The same without any port: for a store embedded in an application.
    #[must_use]
    pub fn embedded(data: PathBuf) -> Self {
        Self { listen: ListenConfig::default(), ..Self::new(data) }
    }

    /// The tuning in force.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        self.tuning.clone().unwrap_or_else(|| Tuning::of(self.log))
    }

    /// What this configuration comes to on this machine. Changes nothing.
    ///
    /// # Errors
    /// The data directory cannot be read, has another number of shards, or the capacity is too
    /// small.
    pub fn in_force(&self) -> Result<InForce, ServerError> {
        let existing = crate::datadir::existing_shards(&self.data)?;
        if let (Some(existing), Some(wanted)) = (existing, self.shards)
            && existing != wanted
        {
            return Err(ServerError::ShardCount { path: self.data.clone(), existing, wanted });
        }
        let shards = existing.unwrap_or_else(|| self.new_shards());
        self.check_capacity(shards)?;
        let capacity_bytes = match (self.sizes.capacity_bytes, &self.flash) {
            (Some(bytes), _) => Some(bytes),
            (None, FlashPlace::Files) => Some(crate::datadir::default_capacity(&self.data)?),
            (None, FlashPlace::Emulated) => Some(limits::EMULATED_CAPACITY_BYTES),
            (None, FlashPlace::Zoned(_)) => None,
        };
        let is_new = existing.is_none();
        Ok(InForce { shards, is_new, threads: self.thread_count(), capacity_bytes })
    }

    /// Shards that a new data directory gets.
    pub(crate) fn new_shards(&self) -> u16 {
        let usual = match &self.flash {
            FlashPlace::Files | FlashPlace::Emulated => limits::DEFAULT_SHARDS,
            FlashPlace::Zoned(devices) => u16::try_from(devices.len()).unwrap_or(u16::MAX),
        };
        self.shards.unwrap_or(usual)
    }

    /// Refuses what a flash device in memory cannot keep for others.
    pub(crate) fn check_flash(&self) -> Result<(), ServerError> {
        if self.flash != FlashPlace::Emulated {
            return Ok(());
        }
        if self.master != MasterPlace::Embedded {
            return Err(ServerError::EmulatedAlone { what: "--master elsewhere" });
        }
        if self.replication != ReplicationFactor::ONE {
            return Err(ServerError::EmulatedAlone { what: "--replication above 1" });
        }
        Ok(())
    }

    /// Refuses a capacity that would be exceeded at once.
    pub(crate) fn check_capacity(&self, shards: u16) -> Result<(), ServerError> {
        let least = u64::from(shards) * u64::from(limits::MIN_BLOCKS) * limits::BLOCK_BYTES;
        match self.sizes.capacity_bytes {
            Some(wanted) if wanted < least => {
                Err(ServerError::CapacityTooSmall { wanted, least, shards })
            }
            _ => Ok(()),
        }
    }

    /// Reactor threads to run: as said, else half the cores (clients of one machine need the
    /// others), at least one.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, core::num::NonZero::get);
        self.threads.unwrap_or_else(|| (cores / 2).max(1)).clamp(1, crate::limits::MAX_THREADS)
    }
}
