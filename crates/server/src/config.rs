//! What a server is told at start. Parsing flags, environment and files is the binary's business; here are the typed values.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use timestone_txn::participant;
use timestone_wal::{DeviceKind, LogConfig};

use crate::limits;

/// Where the cluster's master is.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum MasterPlace {
    /// In this process, its state in the data directory.
    #[default]
    Embedded,
    /// In another Timestone process, by its native address.
    Remote(SocketAddr),
}

/// Which stages run on which thread (server-commit.md "Stages").
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum StageLayout {
    /// Each reactor thread runs all stages of its shards to completion: events between them never leave its core.
    #[default]
    Fused,
    /// Each stage has a thread of its own, and events pass from thread to thread, as in DTranx. The number of threads says how many net
    /// stages, gateways and logs there are.
    Staged,
}

/// A server's configuration. [`ServerConfig::new`] gives the defaults for a data directory.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The data directory; created when missing.
    pub data: PathBuf,
    /// Native protocol; `None`: not served (an embedded store).
    pub listen: Option<SocketAddr>,
    /// RESP gateway; `None`: not served.
    pub resp: Option<SocketAddr>,
    /// HTTP: metrics and health; `None`: not served.
    pub http: Option<SocketAddr>,
    /// The address that others are told to connect to, when it differs from the listening one.
    pub advertise: Option<SocketAddr>,
    /// The log's device.
    pub log: DeviceKind,
    /// Most bytes on the flash device, over all shards; `None`: 80 % of the free space.
    pub capacity_bytes: Option<u64>,
    /// Bytes of the record cache, over all shards; allocated as it fills.
    pub cache_bytes: u64,
    /// Shards that this process holds; fixed when the data directory is created. `None`: as it is, or the default.
    pub shards: Option<u16>,
    /// Reactor threads; `None`: by the number of cores.
    pub threads: Option<usize>,
    /// Which stages run on which thread.
    pub layout: StageLayout,
    /// Shards of the whole cluster, when this process hosts the master of several; `None`: just this process's.
    pub cluster_shards: Option<u16>,
    /// The cluster that this server must belong to, by its name (which a new cluster gets) or by its id in hexadecimal; `None`: whichever
    /// the data directory or the master says.
    pub cluster: Option<String>,
    /// Where the master is.
    pub master: MasterPlace,
    /// Whether addresses that other machines can reach are allowed without protection.
    pub insecure: bool,
    /// Whether reactor threads are bound to cores.
    pub pin: bool,
    /// What the operator does not choose; `None`: as fits the log's device.
    pub tuning: Option<Tuning>,
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
            listen: loopback(crate::limits::NATIVE_PORT),
            resp: loopback(crate::limits::RESP_PORT),
            http: loopback(crate::limits::HTTP_PORT),
            advertise: None,
            log: DeviceKind::Ssd,
            capacity_bytes: None,
            cache_bytes: crate::limits::DEFAULT_CACHE_BYTES,
            shards: None,
            threads: None,
            layout: StageLayout::default(),
            cluster_shards: None,
            cluster: None,
            master: MasterPlace::Embedded,
            insecure: false,
            pin: false,
            tuning: None,
        }
    }

    /// The same without any port: for a store embedded in an application.
    #[must_use]
    pub fn embedded(data: PathBuf) -> Self {
        Self { listen: None, resp: None, http: None, ..Self::new(data) }
    }

    /// The tuning in force.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        self.tuning.clone().unwrap_or_else(|| Tuning::of(self.log))
    }

    /// Reactor threads to run: as said, else half the cores (clients of one machine need the others), at least one.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, core::num::NonZero::get);
        self.threads.unwrap_or_else(|| (cores / 2).max(1)).clamp(1, crate::limits::MAX_THREADS)
    }
}
