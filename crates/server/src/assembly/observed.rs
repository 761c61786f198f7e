//! What can be looked at from outside the stages.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use timestone_clock::Clock;
use timestone_cluster::{ServerId, ShardMap};
use timestone_gateway::CommandLatencies;
use timestone_seda::{Memory, NetMetrics};
use timestone_shard::gauges::ShardGauges;
use timestone_types::Timestamp;
use timestone_wal::DeviceKind;

use crate::departure::Departure;
use crate::gauges::LogGauges;
use crate::memory::Budget;
use crate::replica_gauges::ReplicaGauges;

/// What can be looked at from outside the stages.
pub(crate) struct Observed {
    pub(crate) server: ServerId,
    pub(crate) started: Timestamp,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) shards: Vec<Arc<ShardGauges>>,
    /// Of a cluster whose shards have several replicas.
    pub(crate) replicas: Vec<Arc<ReplicaGauges>>,
    pub(crate) logs: Vec<Arc<LogGauges>>,
    pub(crate) gateways: Vec<Arc<CommandLatencies>>,
    /// By gateway: how many shards of the cluster it does not reach.
    pub(crate) unreached: Vec<Arc<AtomicU64>>,
    pub(crate) directory: PathBuf,
    pub(crate) log_device: DeviceKind,
    pub(crate) nets: Vec<(&'static str, Arc<NetMetrics>)>,
    pub(crate) map: Arc<RwLock<Arc<ShardMap>>>,
    pub(crate) stopping: Arc<AtomicBool>,
    /// Before it stops, its primaries are handed over.
    pub(crate) departure: Arc<Departure>,
    pub(crate) ready: AtomicBool,
    pub(crate) budget: Budget,
    pub(crate) memory: Arc<Memory>,
}

impl Observed {
    /// For how long some shard still refuses writes because the clock stands far behind what it has
    /// served.
    pub(crate) fn clock_behind(&self, now: Timestamp) -> Option<Duration> {
        self.shards.iter().filter_map(|shard| shard.clock_behind(now)).max()
    }

    /// The shard map of now.
    pub(crate) fn map(&self) -> Arc<ShardMap> {
        match self.map.read() {
            Ok(map) => Arc::clone(&map),
            Err(poisoned) => Arc::clone(&poisoned.into_inner()),
        }
    }
}
