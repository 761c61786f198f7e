//! The role "replica": in a cluster whose shards have several replicas, a server has a stage for each
//! shard, and keeps those that the master gives it.

use std::sync::Arc;

use timestone_replication::Void;
use timestone_seda::StageId;
use timestone_shard::Replay;
use timestone_shard::gauges::ShardGauges;
use timestone_txn::participant;
use timestone_types::{Epoch, ShardId};
use timestone_wal::DeviceKind;

use super::cluster::ClusterPlace;
use super::plan::StageSlots;
use super::primary::{Primaries, begin_run, opener, put_logs};
use super::{Ground, participant_of};
use crate::config::StageLayout;
use crate::convert::end_left_over;
use crate::environment::FlashPart;
use crate::error::ServerError;
use crate::replica_gauges::ReplicaGauges;
use crate::replica_stage::{
    FoundEntries, Kept, ReplicaParts, ReplicaStage, StartedReplica, replica_of,
};
use crate::restart::{ReplayedInto, replay_logs};
use crate::shared_shard::{CalledShard, ShardSlot};

/// Recovers this server's replicas, and puts the stages of all shards and those of the logs in place.
pub(super) fn build(
    ground: &Ground<'_>,
    place: &ClusterPlace,
    stage_of: &[(ShardId, StageId)],
    slots: &mut StageSlots,
) -> Result<Primaries, ServerError> {
    let Ground { config, environment, clock, plan, manifest, .. } = ground;
    assert_ne!(config.log, DeviceKind::None, "whoever joined keeps what it promises in a log");
    let tuning = config.tuning();
    let opener = Arc::new(opener(ground, place, stage_of.len()));
    end_left_over(&opener);
    let mut found: Vec<FoundEntries> = stage_of.iter().map(|_| FoundEntries::default()).collect();
    let into = ReplayedInto::Replicas(&mut found);
    let logs = replay_logs(config, environment, manifest, &tuning, plan, stage_of, into)?;
    let log_stages: Vec<StageId> = (0..logs.len()).map(|thread| plan.log(thread)).collect();
    let mut started = Vec::new();
    for (index, mut found) in found.into_iter().enumerate() {
        let shard = stage_of[index].0;
        if manifest.is_void(shard) {
            // The master was asked for the map at this start (rule P17).
            let entry = place.map.shard(shard);
            let newest = entry.map_or(Epoch::ZERO, |entry| entry.epoch);
            let is_member = entry.is_none_or(|entry| entry.replicas.contains(&place.server));
            found.is_void(Void::found(newest, is_member));
        }
        if !keeps(ground, place, shard) && found.is_empty() && !manifest.is_void(shard) {
            started.push(None);
            continue;
        }
        let replay = if found.is_emptied() {
            Replay::new(shard, opener.open_empty(shard)?)
        } else {
            opener.open(shard)?
        };
        let log = (plan.log(plan.thread_of(index)), &log_stages[..]);
        let who = (shard, replica_of(place.server));
        started.push(Some(StartedReplica::new(who, log, replay, found, clock.now())?));
    }
    let replays = started.iter().flatten().map(StartedReplica::replay);
    begin_run(ground, &replays.collect::<Vec<_>>())?;
    let seed = manifest.hash_seed()?;
    let (mut gauges, mut replicas) = (Vec::new(), Vec::new());
    let mut called: Vec<_> = (0..plan.threads).map(|_| Vec::new()).collect();
    for (index, started) in started.into_iter().enumerate() {
        let (shard, stage) = stage_of[index];
        let thread = plan.thread_of(index);
        let slot = ShardSlot::default();
        if config.layout == StageLayout::Fused {
            let slot = slot.clone();
            called[thread].push(CalledShard { id: shard, seed, slot, takes_puts: false });
        }
        let parts = ReplicaParts {
            log: plan.log(thread),
            net: plan.native(thread),
            node: plan.node(),
            stage,
            gauges: Arc::new(ShardGauges::new(shard)),
            replica_gauges: Arc::new(ReplicaGauges::new(shard)),
            clock: Arc::clone(clock),
            memory: Arc::clone(&ground.memory),
            participant: participant::Config {
                has_replicas: true,
                lease: ground.config.lease,
                ..participant_of(ground, stage_of.len())
            },
            stores: Box::new(Arc::clone(&opener)),
            retention: tuning.retention,
            slot,
        };
        gauges.push(Arc::clone(&parts.gauges));
        replicas.push(Arc::clone(&parts.replica_gauges));
        let kept: Option<Kept> = started.map(|started| started.begin(tuning.retention));
        let map = Arc::new(place.map.clone());
        slots.put(stage, ReplicaStage::new((shard, place.server), map, kept, parts));
    }
    let log_gauges = put_logs(logs, plan, slots);
    Ok(Primaries { gauges, log_gauges, log_stages, called, replicas })
}

/// Whether this server keeps a shard, or will: where there are no more servers than replicas, each
/// keeps everything.
fn keeps(ground: &Ground<'_>, place: &ClusterPlace, shard: ShardId) -> bool {
    let entry = place.map.shard(shard);
    let is_named = entry.is_some_and(|entry| entry.replicas.contains(&place.server));
    let is_everywhere = place.map.servers().len() <= place.control.replication.replicas();
    is_named || is_everywhere || ground.environment.has_flash(shard, FlashPart::Full)
}
