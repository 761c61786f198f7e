//! Going on from a backup of the master's state: nothing is served until every server has told the
//! latest state that it has seen, and every number lies above all of them.
//!
//! ```text
//!   BeginRestored ─► awaited = all servers ─► TellSeen of each: the later state wins, numbers by maximum
//!                                                └─► the last one: every number is raised by a margin, and the master serves
//! ```
//! The states that servers have seen are states of one history, so the one with the highest
//! revision holds all that the others hold. No step in between counts: a backup that is two states
//! older than what the last server tells is older. The margin is for servers that the backup does not
//! know, and for those that are not waited for any more. Source: docs/protocol/membership.md, "A
//! master that was restored".

use timestone_types::{Epoch, KeyspaceId, ShardId};

use crate::limits::{CLIENT_ID_BLOCK, MAX_CLIENT_ID, RESTORED_MARGIN};
use crate::state::MasterState;
use crate::{ClusterError, MapVersion, ServerId, ShardMap, Term};

/// Begins to wait for every server: whether that is new.
pub(crate) fn begin(state: &mut MasterState) -> Result<bool, ClusterError> {
    if !state.awaited.is_empty() {
        return Ok(false);
    }
    state.awaited = state.map.servers().iter().map(|server| server.id).collect();
    if state.awaited.is_empty() {
        raise(state)?;
    }
    Ok(true)
}

/// Takes what a server has seen: whether anything changed.
pub(crate) fn tell(
    state: &mut MasterState,
    server: ServerId,
    seen: Option<MasterState>,
) -> Result<bool, ClusterError> {
    if state.awaited.is_empty() {
        return Ok(false);
    }
    if let Some(seen) = seen {
        if seen.map.cluster() != state.map.cluster() {
            return Err(ClusterError::WrongCluster {
                ours: state.map.cluster().get(),
                theirs: seen.map.cluster().get(),
            });
        }
        let revision = state.revision.max(seen.revision);
        if !timestone_types::is_planted!(ReissuesEpochs) {
            merge(state, seen)?;
        }
        state.revision = revision;
    }
    forget(state, server)?;
    Ok(true)
}

/// Waits for a server no longer: whether it was waited for.
pub(crate) fn forget(state: &mut MasterState, server: ServerId) -> Result<bool, ClusterError> {
    let awaited = state.awaited.len();
    state.awaited.retain(|&one| one != server);
    if awaited > 0 && state.awaited.is_empty() {
        raise(state)?;
    }
    Ok(state.awaited.len() != awaited)
}

/// The later of two states, with the higher of all numbers.
fn merge(state: &mut MasterState, seen: MasterState) -> Result<(), ClusterError> {
    // A server that registered after the backup has seen things as well.
    let unknown: Vec<ServerId> = seen
        .map
        .servers()
        .iter()
        .map(|server| server.id)
        .filter(|&server| state.map.server(server).is_none())
        .collect();
    let mut awaited = std::mem::take(&mut state.awaited);
    let older = if seen.revision > state.revision {
        awaited.extend(unknown);
        std::mem::replace(state, seen)
    } else {
        seen
    };
    state.awaited = awaited;
    state.awaited.sort_unstable();
    state.awaited.dedup();
    state.clients_reserved_to = state.clients_reserved_to.max(older.clients_reserved_to);
    state.next_server = state.next_server.max(older.next_server);
    state.next_keyspace = state.next_keyspace.max(older.next_keyspace);
    for (server, run) in older.map.servers().iter().zip(&older.runs) {
        let known = state.map.servers().binary_search_by_key(&server.id, |server| server.id);
        let latest = known.ok().and_then(|index| state.runs.get_mut(index));
        if let Some(latest) = latest.filter(|latest| latest.number < run.number) {
            *latest = *run;
        }
    }
    if older.term > state.term {
        (state.term, state.controller) = (older.term, older.controller);
    }
    let version = state.map.version().max(older.map.version());
    renumber(state, version, |entry| older.map.epoch(entry).unwrap_or(Epoch::ZERO))
}

/// Puts every number above all that is known.
fn raise(state: &mut MasterState) -> Result<(), ClusterError> {
    state.revision = state.revision.saturating_add(u64::from(RESTORED_MARGIN));
    if timestone_types::is_planted!(ReissuesEpochs) {
        return Ok(());
    }
    let clients = state.clients_reserved_to.saturating_add(CLIENT_ID_BLOCK);
    state.clients_reserved_to = clients.min(MAX_CLIENT_ID.get() + 1);
    state.next_server = ServerId::new(state.next_server.get().saturating_add(RESTORED_MARGIN));
    let keyspace = state.next_keyspace.get().saturating_add(RESTORED_MARGIN);
    state.next_keyspace = KeyspaceId::new(keyspace.min(KeyspaceId::MAX_NUMBER));
    state.term = Term::new(state.term.get().saturating_add(u64::from(RESTORED_MARGIN)));
    state.controller = ServerId::NONE;
    let version = MapVersion::new(state.map.version().get().saturating_add(RESTORED_MARGIN));
    let before = state.map.clone();
    renumber(state, version, |shard| {
        let epoch = before.epoch(shard).unwrap_or(Epoch::ZERO);
        Epoch::new(epoch.get().saturating_add(RESTORED_MARGIN))
    })
}

/// The map in another version, each shard in an epoch that is no lower than `epoch` says.
fn renumber(
    state: &mut MasterState,
    version: MapVersion,
    epoch: impl Fn(ShardId) -> Epoch,
) -> Result<(), ClusterError> {
    let cluster = state.map.cluster();
    let (servers, mut shards) = state.map.clone().into_parts();
    for shard in &mut shards {
        shard.epoch = shard.epoch.max(epoch(shard.id));
    }
    state.map = ShardMap::new(cluster, version, servers, shards)?;
    Ok(())
}
