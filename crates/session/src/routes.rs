//! The shard map as the engine needs it: slot → shard in one load, and each shard's epoch.
//!
//! Deliberately without addresses: which connection leads to a shard is the host's business.

use std::collections::BTreeSet;

use timestone_clock::server_time::ServerNumber;
use timestone_cluster::ShardMap;
use timestone_types::{Epoch, SLOT_COUNT, ShardId, Slot};

/// Where keys live, compiled from the cluster's shard map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Routes {
    version: u32,
    slots: Box<[u16]>,
    shards: Vec<(ShardId, Epoch)>,
    /// Who serves each of them, where that is known.
    servers: Box<[Option<ServerNumber>]>,
    /// Who keeps a replica of each of them, where there are several; the primary included.
    replicas: Box<[Vec<ServerNumber>]>,
}

/// Marks a slot that nobody owns.
const NOBODY: u16 = u16::MAX;

impl Routes {
    /// Routes of map `version` to `shards`, which are sorted here; `owner` tells who serves each
    /// slot.
    #[must_use]
    pub fn new(
        version: u32,
        mut shards: Vec<(ShardId, Epoch)>,
        owner: impl Fn(Slot) -> Option<ShardId>,
    ) -> Self {
        shards.sort_unstable();
        shards.dedup_by_key(|entry| entry.0);
        let slots = (0..SLOT_COUNT)
            .map(|raw| {
                let shard = Slot::new(raw).and_then(&owner);
                let place = shard
                    .and_then(|shard| shards.binary_search_by_key(&shard, |entry| entry.0).ok());
                place.map_or(NOBODY, |place| u16::try_from(place).unwrap_or(NOBODY))
            })
            .collect();
        let servers = vec![None; shards.len()].into();
        let replicas = vec![Vec::new(); shards.len()].into();
        Self { version, slots, shards, servers, replicas }
    }

    /// The same, where `server` tells who serves each shard.
    #[must_use]
    pub fn with_servers(self, server: impl Fn(ShardId) -> Option<ServerNumber>) -> Self {
        let servers = self.shards.iter().map(|&(shard, _)| server(shard)).collect();
        Self { servers, ..self }
    }

    /// The same, where `replicas` tells who keeps a replica of each shard.
    #[must_use]
    pub fn with_replicas(self, replicas: impl Fn(ShardId) -> Vec<ServerNumber>) -> Self {
        let replicas = self.shards.iter().map(|&(shard, _)| replicas(shard)).collect();
        Self { replicas, ..self }
    }

    /// Who keeps a replica of a shard, as far as that is known; nobody where there is one copy.
    #[must_use]
    pub fn replicas_of(&self, shard: ShardId) -> &[ServerNumber] {
        let place = self.shards.binary_search_by_key(&shard, |entry| entry.0);
        place.map_or(&[], |place| &self.replicas[place])
    }

    /// Who serves a shard, if that is known.
    #[must_use]
    pub fn server_of(&self, shard: ShardId) -> Option<ServerNumber> {
        let place = self.shards.binary_search_by_key(&shard, |entry| entry.0).ok()?;
        self.servers[place]
    }

    /// Which servers serve these shards, as far as that is known; each once, in ascending order.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerNumber> {
        let servers: BTreeSet<_> = self.servers.iter().flatten().copied().collect();
        servers.into_iter().collect()
    }

    /// The version of the map that these routes were made from.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// All shards, sorted by id, with their epochs.
    #[must_use]
    pub fn shards(&self) -> &[(ShardId, Epoch)] {
        &self.shards
    }

    /// The shard that serves a slot.
    #[must_use]
    pub fn shard_of(&self, slot: Slot) -> Option<ShardId> {
        self.shards.get(usize::from(self.slots[usize::from(slot.get())])).map(|entry| entry.0)
    }

    /// The owner of every slot, in the order of the slots.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Option<ShardId>> + '_ {
        self.slots.iter().map(|&place| self.shards.get(usize::from(place)).map(|entry| entry.0))
    }

    /// The epoch of a shard, as far as this map knows.
    #[must_use]
    pub fn epoch(&self, shard: ShardId) -> Option<Epoch> {
        let place = self.shards.binary_search_by_key(&shard, |entry| entry.0).ok()?;
        Some(self.shards[place].1)
    }
}

impl From<&ShardMap> for Routes {
    fn from(map: &ShardMap) -> Self {
        let shards = map.shards().iter().map(|shard| (shard.id, shard.epoch)).collect();
        let server = |shard| map.primary(shard).map(|server| ServerNumber(server.id.get()));
        let replicas = |shard| {
            let entry = map.shards().iter().find(|entry| entry.id == shard);
            let replicas = entry.map_or(&[][..], |entry| &entry.replicas);
            replicas.iter().map(|server| ServerNumber(server.get())).collect()
        };
        Self::new(map.version().get(), shards, |slot| Some(map.shard_of(slot)))
            .with_servers(server)
            .with_replicas(replicas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_lead_to_their_owner_and_unowned_slots_nowhere() {
        let shards = vec![(ShardId::new(7), Epoch::new(2)), (ShardId::new(3), Epoch::new(1))];
        let routes = Routes::new(5, shards, |slot| match slot.get() {
            0..100 => Some(ShardId::new(3)),
            100..200 => Some(ShardId::new(7)),
            200..300 => Some(ShardId::new(9)),
            _ => None,
        });
        let shard_of = |raw| routes.shard_of(Slot::new(raw).unwrap());
        assert_eq!(shard_of(99), Some(ShardId::new(3)));
        assert_eq!(shard_of(100), Some(ShardId::new(7)));
        assert_eq!(shard_of(250), None, "shard 9 is not in the list of shards");
        assert_eq!(shard_of(16_383), None);
        assert_eq!(routes.epoch(ShardId::new(7)), Some(Epoch::new(2)));
        assert_eq!(routes.epoch(ShardId::new(9)), None);
        assert_eq!(routes.version(), 5);
        assert_eq!((routes.server_of(ShardId::new(3)), routes.servers()), (None, vec![]));
        let routes = routes.with_servers(|shard| (shard.get() == 7).then_some(ServerNumber(2)));
        assert_eq!(routes.server_of(ShardId::new(7)), Some(ServerNumber(2)));
        assert_eq!(
            (routes.server_of(ShardId::new(3)), routes.servers()),
            (None, vec![ServerNumber(2)])
        );
    }
}
