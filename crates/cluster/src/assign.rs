//! Which servers get the shards that nobody has, and the replicas that shards lack.
//!
//! Where shards have one copy, a server gets as many free ones as it wants. Where they have several,
//! all are given out at once and evenly, when the cluster has enough servers for complete sets: a
//! primary that served alone would acknowledge what only it has. A set that is complete stays as it
//! is, however the load lies: moving a replica moves data, which is no business of a
//! registration. Source: docs/protocol/membership.md, "Replica sets".

use std::collections::BTreeMap;

use timestone_types::Epoch;

use crate::{NormalConfiguration, ReplicationFactor, ServerId, ServerInfo, ShardEntry};

/// Gives `server` free shards until it is primary of `wanted`: how many it was given.
pub(crate) fn take_free(
    shards: &mut [ShardEntry],
    normal: &mut [NormalConfiguration],
    server: ServerId,
    wanted: usize,
) -> usize {
    let has = shards.iter().filter(|shard| shard.primary == server).count();
    let mut given = 0;
    for (shard, normal) in shards.iter_mut().zip(normal) {
        if has + given >= wanted {
            break;
        }
        if shard.primary.is_none() {
            give(shard, server);
            *normal = NormalConfiguration::of_entry(shard);
            given += 1;
        }
    }
    given
}

/// Gives all free shards out, if there are enough servers for complete sets: each to the server that
/// is primary of the fewest, with those for company that have the fewest replicas. How many were
/// given. Nobody has acknowledged anything yet, so what was acknowledged lies in the whole set.
pub(crate) fn give_sets(
    shards: &mut [ShardEntry],
    normal: &mut [NormalConfiguration],
    servers: &[ServerInfo],
    factor: ReplicationFactor,
) -> usize {
    if servers.len() < factor.replicas() {
        return 0;
    }
    let mut primaries_of: BTreeMap<ServerId, usize> =
        servers.iter().map(|server| (server.id, 0)).collect();
    for shard in shards.iter().filter(|shard| !shard.primary.is_none()) {
        *primaries_of.entry(shard.primary).or_default() += 1;
    }
    for shard in shards.iter_mut().filter(|shard| shard.primary.is_none()) {
        let least = primaries_of.iter().min_by_key(|&(&server, &count)| (count, server));
        let Some((&server, _)) = least else { break };
        give(shard, server);
        *primaries_of.entry(server).or_default() += 1;
    }
    let is_alone: Vec<bool> = shards.iter().map(|shard| shard.replicas.len() == 1).collect();
    let given = complete_sets(shards, servers, factor);
    for ((shard, normal), _) in
        shards.iter().zip(normal).zip(is_alone).filter(|(_, is_alone)| *is_alone)
    {
        *normal = NormalConfiguration::never_served(shard);
    }
    given
}

fn give(shard: &mut ShardEntry, server: ServerId) {
    assert!(shard.primary.is_none(), "a shard is given away once");
    shard.primary = server;
    shard.replicas = vec![server];
    shard.epoch = Epoch::new(shard.epoch.get() + 1);
}

/// Completes the replica sets of shards that have a primary alone, where there are servers enough:
/// each time with those that have the fewest replicas. How many sets were completed.
fn complete_sets(
    shards: &mut [ShardEntry],
    servers: &[ServerInfo],
    factor: ReplicationFactor,
) -> usize {
    let mut replicas_of: BTreeMap<ServerId, usize> =
        servers.iter().map(|server| (server.id, 0)).collect();
    for server in shards.iter().flat_map(|shard| &shard.replicas) {
        *replicas_of.entry(*server).or_default() += 1;
    }
    let mut completed = 0;
    for shard in shards.iter_mut().filter(|shard| shard.replicas.len() == 1) {
        while shard.replicas.len() < factor.replicas() {
            let least = replicas_of
                .iter()
                .filter(|(server, _)| !shard.replicas.contains(server))
                .min_by_key(|&(&server, &count)| (count, server));
            let Some((&server, _)) = least else { break };
            shard.replicas.push(server);
            *replicas_of.entry(server).or_default() += 1;
        }
        assert_eq!(shard.replicas.len(), factor.replicas(), "a set is completed at once");
        shard.epoch = Epoch::new(shard.epoch.get() + 1);
        completed += 1;
    }
    completed
}
