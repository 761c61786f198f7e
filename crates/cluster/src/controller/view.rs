//! The master's state as a controller knows it: what was fetched, and what its own proposals have
//! changed since.

use std::collections::BTreeMap;

use crate::{
    ControlState, MapVersion, NormalConfiguration, ReplicationFactor, ServerId, ShardEntry,
};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct View {
    replication: ReplicationFactor,
    version: MapVersion,
    servers: Vec<ServerId>,
    shards: Vec<(ShardEntry, NormalConfiguration)>,
}

impl View {
    pub(super) fn new(control: ControlState) -> Self {
        let version = control.map.version();
        let (servers, shards) = control.map.into_parts();
        Self {
            replication: control.replication,
            version,
            servers: servers.iter().map(|server| server.id).collect(),
            shards: shards.into_iter().zip(control.normal).collect(),
        }
    }

    /// How many replicas a shard is to have.
    pub(super) const fn replication(&self) -> ReplicationFactor {
        self.replication
    }

    /// Whether it was fetched before something that the other one knows had happened.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        let mut pairs = self.shards.iter().zip(&other.shards);
        self.version < other.version || pairs.any(|(own, other)| own.0.epoch < other.0.epoch)
    }

    /// All servers, ascending.
    pub(super) fn servers(&self) -> &[ServerId] {
        &self.servers
    }

    /// The shards and their last normal configurations.
    pub(super) fn shards(&self) -> impl Iterator<Item = (&ShardEntry, &NormalConfiguration)> {
        self.shards.iter().map(|(entry, normal)| (entry, normal))
    }

    /// Of how many shards each server is a replica.
    pub(super) fn replicas_of(&self) -> BTreeMap<ServerId, usize> {
        let mut counts: BTreeMap<ServerId, usize> =
            self.servers.iter().map(|&server| (server, 0)).collect();
        for server in self.shards.iter().flat_map(|(entry, _)| &entry.replicas) {
            *counts.entry(*server).or_default() += 1;
        }
        counts
    }

    /// A proposal was carried out: whether that fits what is known.
    pub(super) fn changed(&mut self, changed: ShardEntry) -> bool {
        let Some((entry, normal)) =
            self.shards.iter_mut().find(|(entry, _)| entry.id == changed.id)
        else {
            return false;
        };
        if changed.epoch < entry.epoch {
            return false;
        }
        if changed.epoch == entry.epoch {
            // A confirmation: the configuration is the same, and is normal now.
            *normal = NormalConfiguration::of_entry(&changed);
        }
        *entry = changed;
        true
    }
}
