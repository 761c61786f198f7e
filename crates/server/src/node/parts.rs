//! What a node stage is made of.

use std::sync::Arc;
use std::sync::RwLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use timestone_clock::Clock;
use timestone_cluster::{ControlState, ControllerLimits, ServerId, ShardMap};
use timestone_seda::{NetMetrics, StageId};
use timestone_types::ShardId;

use super::MasterLink;
use crate::departure::Departure;
use crate::manifest::Manifest;
use crate::replica_gauges::ReplicaGauges;

/// The stages whose clients end with this process, and where these are written down for the next
/// one.
pub(crate) struct Embedded {
    pub(crate) stages: Vec<StageId>,
    pub(crate) manifest: Arc<Manifest>,
}

/// A native net stage, and the shards that run on its thread.
pub(crate) struct NearDoor {
    pub(crate) net: StageId,
    pub(crate) shards: Vec<ShardId>,
    pub(crate) metrics: Arc<NetMetrics>,
    pub(crate) max_connections: usize,
}

impl NearDoor {
    /// Whether clients may have further connections. The second half of all that there may be is
    /// for those who have none.
    pub(crate) fn has_room(&self) -> bool {
        self.metrics.snapshot().connections * 2 < self.max_connections as u64
    }
}

/// What a node stage is made of.
pub(crate) struct NodeParts {
    pub(crate) server: ServerId,
    pub(crate) map: Arc<ShardMap>,
    /// The configurations of its shards.
    pub(crate) control: Arc<ControlState>,
    /// What the replicas of this process tell, if shards have several.
    pub(crate) replicas: Vec<Arc<ReplicaGauges>>,
    /// When servers are lost, and when their replicas are replaced.
    pub(crate) limits: ControllerLimits,
    /// The cluster's name, if it has one.
    pub(crate) cluster_name: Option<String>,
    pub(crate) master: MasterLink,
    /// The net stage that dials other processes.
    pub(crate) net: Option<StageId>,
    pub(crate) shard_stages: Vec<(ShardId, StageId)>,
    /// The native net stages.
    pub(crate) doors: Vec<NearDoor>,
    /// Who else is told of a new map.
    pub(crate) gateways: Vec<StageId>,
    /// Figures for `NodeStatus`.
    pub(crate) figures: Arc<dyn Fn() -> Vec<(String, String)> + Send + Sync>,
    /// The map as the rest of the process reads it.
    pub(crate) shared_map: Arc<RwLock<Arc<ShardMap>>>,
    /// Set when the process is about to stop: readiness says no.
    pub(crate) stopping: Arc<AtomicBool>,
    /// Before that, its primaries are handed over.
    pub(crate) departure: Arc<Departure>,
    /// The process's clock, of which answers carry a reading.
    pub(crate) clock: Arc<dyn Clock>,
    /// For a run without a log: where it is saved how far that has lived.
    pub(crate) life: Option<Arc<Manifest>>,
    /// How long it runs under one number of its data directory.
    pub(crate) run_interval: Duration,
    /// Whose client ids the manifest must have.
    pub(crate) embedded: Embedded,
}
