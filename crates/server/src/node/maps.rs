//! The shard map as this process knows it, and the configurations of shards that have several
//! replicas.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use timestone_cluster::{ControlState, ReplicationFactor, ShardMap};
use timestone_types::Timestamp;

/// How often a process that is not the master asks for the map.
pub(super) const PULL_INTERVAL: Duration = Duration::from_secs(1);
/// The same in a cluster whose shards have several replicas: as long a new primary may wait until it
/// hears that it is.
pub(super) const CONTROL_INTERVAL: Duration = Duration::from_millis(100);
/// How often it looks for what the worker that asks etcd has to tell.
pub(super) const NEWS_INTERVAL: Duration = Duration::from_millis(20);

/// See the module.
pub(super) struct Maps {
    own: Arc<ShardMap>,
    control: Arc<ControlState>,
    /// The map as the rest of the process reads it.
    shared: Arc<RwLock<Arc<ShardMap>>>,
    next_pull: Timestamp,
}

impl Maps {
    pub(super) const fn new(
        own: Arc<ShardMap>,
        control: Arc<ControlState>,
        shared: Arc<RwLock<Arc<ShardMap>>>,
    ) -> Self {
        Self { own, control, shared, next_pull: Timestamp::ZERO }
    }

    /// The configurations of now. They follow where shards have several replicas.
    pub(super) const fn control(&self) -> &Arc<ControlState> {
        &self.control
    }

    /// Whether shards have several replicas.
    pub(super) fn is_replicated(&self) -> bool {
        self.control.replication > ReplicationFactor::ONE
    }

    /// Takes configurations that the master has given, if they are others and not older.
    pub(super) fn change_control(&mut self, control: ControlState) -> Option<Arc<ControlState>> {
        let old = &self.control;
        let mut pairs = old.normal.iter().zip(&control.normal);
        let is_older = control.map.version() < old.map.version()
            || pairs.any(|(old, new)| new.epoch < old.epoch);
        if is_older || (control.map == old.map && control.normal == old.normal) {
            return None;
        }
        self.control = Arc::new(control);
        Some(Arc::clone(&self.control))
    }

    /// The map of now.
    pub(super) fn map(&self) -> &ShardMap {
        &self.own
    }

    /// Takes a map that the master has given, if it is newer.
    pub(super) fn change(&mut self, map: ShardMap) -> Option<Arc<ShardMap>> {
        if map.version() <= self.own.version() {
            return None;
        }
        self.own = Arc::new(map);
        if let Ok(mut shared) = self.shared.write() {
            *shared = Arc::clone(&self.own);
        }
        Some(Arc::clone(&self.own))
    }

    /// Whether the master is asked for its map now; if so, the next time is this much later.
    pub(super) fn wants(&mut self, now: Timestamp, interval: Duration) -> bool {
        let wants = now >= self.next_pull;
        if wants {
            self.next_pull = now.saturating_add(interval);
        }
        wants
    }

    /// When the master is asked next.
    pub(super) const fn next_pull(&self) -> Timestamp {
        self.next_pull
    }
}
