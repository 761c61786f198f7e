//! What a server is told at start. Parsing flags, environment and files is the binary's business; here are the typed values.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use timestone_wal::DeviceKind;

/// Where the cluster's master is.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum MasterPlace {
    /// In this process, its state in the data directory.
    #[default]
    Embedded,
    /// In another Timestone process, by its native address.
    Remote(SocketAddr),
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
    /// Shards of the whole cluster, when this process hosts the master of several; `None`: just this process's.
    pub cluster_shards: Option<u16>,
    /// Where the master is.
    pub master: MasterPlace,
    /// Whether addresses that other machines can reach are allowed without protection.
    pub insecure: bool,
    /// Whether reactor threads are bound to cores.
    pub pin: bool,
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
            cluster_shards: None,
            master: MasterPlace::Embedded,
            insecure: false,
            pin: false,
        }
    }

    /// The same without any port: for a store embedded in an application.
    #[must_use]
    pub fn embedded(data: PathBuf) -> Self {
        Self { listen: None, resp: None, http: None, ..Self::new(data) }
    }

    /// Reactor threads to run: as said, else half the cores (clients of one machine need the others), at least one.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, core::num::NonZero::get);
        self.threads.unwrap_or_else(|| (cores / 2).max(1)).clamp(1, crate::limits::MAX_THREADS)
    }
}
