//! The shard map as this process knows it.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use timestone_cluster::ShardMap;
use timestone_types::Timestamp;

/// How often a process that is not the master asks for the map.
pub(super) const PULL_INTERVAL: Duration = Duration::from_secs(1);
/// How often it looks for what the worker that asks etcd has to tell.
pub(super) const NEWS_INTERVAL: Duration = Duration::from_millis(20);

/// See the module.
pub(super) struct Maps {
    own: Arc<ShardMap>,
    /// The map as the rest of the process reads it.
    shared: Arc<RwLock<Arc<ShardMap>>>,
    next_pull: Timestamp,
}

impl Maps {
    pub(super) const fn new(own: Arc<ShardMap>, shared: Arc<RwLock<Arc<ShardMap>>>) -> Self {
        Self { own, shared, next_pull: Timestamp::ZERO }
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
