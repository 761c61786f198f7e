//! `[storage]`: sizes and delays in the servers.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, de};
use timestone_wal::DeviceKind;

use super::TimeSpan;
use super::grouped::read_grouped;

/// `[storage]`.
#[derive(Clone, Debug, Default)]
pub struct StoragePart {
    /// Sizes and delays that are not named are those of `timestone serve`, not the small ones that
    /// make rare paths common.
    pub as_served: bool,
    /// The log of a server.
    pub log: LogPart,
    /// What a server draws at every start but its first.
    pub vary: VaryPart,
    /// Shards with several replicas.
    pub replica: ReplicaPart,
    /// How many times as slow as others the devices of keyspaces with index frugal are; as fast when it
    /// is left out.
    pub frugal_slowness: Option<u32>,
    /// Pages of 4 KiB in an erase block.
    pub block_pages: Option<u32>,
    /// Bytes that all flash devices of a server may take.
    pub capacity_bytes: Option<u64>,
    /// Bytes of a server's record cache.
    pub cache_bytes: Option<u64>,
    /// Bytes of records between two checkpoints.
    pub checkpoint_bytes: Option<u64>,
    /// How long a full page waits for others.
    pub packing_delay: Option<TimeSpan>,
    /// Shortest time between two syncs of a flash device.
    pub sync_interval: Option<TimeSpan>,
    /// What reading a page takes.
    pub read: Option<TimeSpan>,
    /// How long a prepared transaction waits before its participants end it themselves.
    pub decision_timeout: Option<TimeSpan>,
    /// How long a server runs under one number of its data directory.
    pub run_interval: Option<TimeSpan>,
    /// Whether devices complete operations out of order.
    pub shuffle: Option<bool>,
}

/// Of `[storage]`: the log of a server, by keys that begin with `log`.
#[derive(Clone, Debug, Default)]
pub struct LogPart {
    /// Its device.
    pub device: Option<LogDevice>,
    /// Bytes of a file; rounded up to whole sectors of 4 KiB, as are those of a block.
    pub file_bytes: Option<u64>,
    /// Bytes of a block.
    pub block_bytes: Option<usize>,
    /// What a write with its sync takes.
    pub write: Option<TimeSpan>,
    /// What making, renaming or removing a file takes.
    pub change: Option<TimeSpan>,
}

/// Of `[storage]`: what is kept for replicas, and how long for them, by keys that begin with
/// `replica`.
#[derive(Clone, Debug, Default)]
pub struct ReplicaPart {
    /// Bytes of batches that a primary keeps for replicas that lack them.
    pub kept_bytes: Option<usize>,
    /// How long a server is not heard before it is lost.
    pub detection: Option<TimeSpan>,
    /// How long the lease of a primary is.
    pub lease: Option<TimeSpan>,
    /// How long a replica is lost before another one takes its place.
    pub replace_after: Option<TimeSpan>,
}

/// Of `[storage]`: what a server draws at its starts, by keys that begin with `vary`.
#[derive(Clone, Debug, Default)]
pub struct VaryPart {
    /// Whether a server draws at every start but its first whether it has a log.
    pub log: Option<bool>,
    /// At every start but its first, a server's cache has between none and so many bytes.
    pub cache: Option<u64>,
    /// With every start, a server's devices may take more bytes, up to so many.
    pub capacity: Option<u64>,
    /// Whether a server's keyspaces get another index between two of its starts.
    pub index: Option<bool>,
}

read_grouped!(StoragePart, StorageKey {
    AsServed => as_served,
    Log => log.device,
    VaryLog => vary.log,
    VaryCache => vary.cache,
    VaryCapacity => vary.capacity,
    VaryIndex => vary.index,
    FrugalSlowness => frugal_slowness,
    BlockPages => block_pages,
    CapacityBytes => capacity_bytes,
    CacheBytes => cache_bytes,
    CheckpointBytes => checkpoint_bytes,
    PackingDelay => packing_delay,
    SyncInterval => sync_interval,
    LogFileBytes => log.file_bytes,
    LogBlockBytes => log.block_bytes,
    LogWrite => log.write,
    ReplicaKeptBytes => replica.kept_bytes,
    ReplicaDetection => replica.detection,
    ReplicaLease => replica.lease,
    ReplicaReplaceAfter => replica.replace_after,
    LogChange => log.change,
    Read => read,
    DecisionTimeout => decision_timeout,
    RunInterval => run_interval,
    Shuffle => shuffle,
});

/// The device of a log: `ssd`, or `none`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogDevice(pub DeviceKind);

impl<'de> Deserialize<'de> for LogDevice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "ssd" => Ok(Self(DeviceKind::Ssd)),
            "none" => Ok(Self(DeviceKind::None)),
            other => Err(de::Error::custom(format!(
                "there is no log device {other:?}; here they are ssd and none"
            ))),
        }
    }
}
