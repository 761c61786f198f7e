//! The role "primary": stores and logs are recovered, and each shard of this server gets its stage, and
//! each thread its log.

use std::sync::Arc;

use timestone_cluster::ShardMap;
use timestone_seda::StageId;
use timestone_shard::gauges::ShardGauges;
use timestone_shard::{LogPlace, Past, Peers, Recovering, Replay};
use timestone_types::ShardId;
use timestone_wal::DeviceKind;

use super::cluster::ClusterPlace;
use super::plan::{StagePlan, StageSlots};
use super::time::begin_time;
use super::{Ground, participant_of};
use crate::config::StageLayout;
use crate::convert::end_left_over;
use crate::error::ServerError;
use crate::gauges::LogGauges;
use crate::manifest::Beginning;
use crate::replica_gauges::ReplicaGauges;
use crate::restart::{LogStages, ReplayedInto, StoreOpener, replay_logs};
use crate::shard_stage::ShardStage;
use crate::shared_shard::{CalledShard, SharedShard};

/// What others need of the primaries.
pub(super) struct Primaries {
    pub(super) gauges: Vec<Arc<ShardGauges>>,
    pub(super) log_gauges: Vec<Arc<LogGauges>>,
    pub(super) log_stages: Vec<StageId>,
    /// The shards of each thread, for the gateway of the thread; none where stages have threads of
    /// their own.
    pub(super) called: Vec<Vec<CalledShard>>,
    /// What replicas tell, where shards have several.
    pub(super) replicas: Vec<Arc<ReplicaGauges>>,
}

/// Recovers this server's shards, and puts their stages and those of the logs in place.
pub(super) fn build(
    ground: &Ground<'_>,
    place: &ClusterPlace,
    stage_of: &[(ShardId, StageId)],
    slots: &mut StageSlots,
) -> Result<Primaries, ServerError> {
    let Ground { config, environment, clock, plan, manifest, .. } = ground;
    let tuning = config.tuning();
    let opener = opener(ground, place, place.shards.len());
    end_left_over(&opener);
    let mut replays = opener.open_all(&place.shards)?;
    let into = ReplayedInto::Shards(&mut replays);
    let logs = replay_logs(config, environment, manifest, &tuning, plan, stage_of, into)?;
    let past = begin_run(ground, &replays.iter().collect::<Vec<_>>())?;
    let left = Arc::new(manifest.own_clients());
    let log_stages: Vec<StageId> = (0..logs.len()).map(|thread| plan.log(thread)).collect();
    let mut gauges = Vec::new();
    let mut called: Vec<_> = (0..plan.threads).map(|_| Vec::new()).collect();
    for (index, replay) in replays.into_iter().enumerate() {
        let shard = place.shards[index];
        let epoch = place.map.epoch(shard).unwrap_or_default();
        replay.check(epoch)?;
        let own = Arc::new(ShardGauges::new(shard));
        gauges.push(Arc::clone(&own));
        let shard_core = replay.finish(Recovering {
            epoch,
            map_version: place.map.version(),
            log: match config.log {
                DeviceKind::None => LogPlace::Nowhere,
                DeviceKind::Ssd | DeviceKind::Pmem => {
                    LogPlace::Stage(plan.log(plan.thread_of(index)))
                }
            },
            logs: log_stages.clone(),
            peers: peers_of(&place.map, stage_of, plan),
            gauges: own,
            clock: Arc::clone(clock),
            past,
            left: Arc::clone(&left),
            now: clock.now(),
            participant: participant_of(ground, stage_of.len()),
            memory: Arc::clone(&ground.memory),
        });
        let shared = SharedShard::new(shard_core);
        if config.layout == StageLayout::Fused {
            let takes_puts = config.log == DeviceKind::None;
            let shard = CalledShard::always(shard, shared.clone(), takes_puts);
            called[plan.thread_of(index)].push(shard);
        }
        slots.put(plan.shard(index), ShardStage::new(shard, shared));
    }
    let log_gauges = put_logs(logs, plan, slots);
    Ok(Primaries { gauges, log_gauges, log_stages, called, replicas: Vec::new() })
}

/// What opens the stores of this server, which has so many shards.
pub(super) fn opener(ground: &Ground<'_>, place: &ClusterPlace, shards: usize) -> StoreOpener {
    StoreOpener {
        config: ground.config.clone(),
        environment: Arc::clone(ground.environment),
        manifest: Arc::clone(&ground.manifest),
        tuning: ground.config.tuning(),
        cluster: place.map.cluster(),
        shards,
    }
}

/// Puts the stages of the logs in place; their figures.
pub(super) fn put_logs(
    logs: LogStages,
    plan: &StagePlan,
    slots: &mut StageSlots,
) -> Vec<Arc<LogGauges>> {
    let mut log_gauges = Vec::new();
    for (thread, (stage, gauges)) in logs.into_iter().enumerate() {
        if !stage.is_blank() {
            log_gauges.push(gauges);
        }
        slots.put(plan.log(thread), stage);
    }
    log_gauges
}

/// Begins this run's time, and tells the manifest that it begins.
pub(super) fn begin_run(ground: &Ground<'_>, replays: &[&Replay]) -> Result<Past, ServerError> {
    let (clock, manifest) = (&ground.clock, &ground.manifest);
    let lived_until = replays
        .iter()
        .map(|replay| replay.lived_until())
        .max()
        .unwrap_or_default()
        .max(manifest.lived_until());
    begin_time(&**clock, lived_until);
    let youngest = replays.iter().map(|replay| replay.youngest()).max().unwrap_or_default();
    manifest.begin_run(&Beginning {
        has_log: ground.config.log != DeviceKind::None,
        now: clock.now(),
        youngest: youngest.max(lived_until),
        lived_until,
        bound: replays.iter().map(|replay| replay.bound()).max().unwrap_or_default(),
    })
}

/// How a shard of this process reaches all others.
fn peers_of(map: &ShardMap, stage_of: &[(ShardId, StageId)], plan: &StagePlan) -> Peers {
    let mut peers = Peers::default();
    for entry in map.shards() {
        let local = stage_of.iter().find(|(id, _)| *id == entry.id).map(|(_, stage)| *stage);
        peers.add(entry.id, local.unwrap_or_else(|| plan.node()), entry.epoch, local.is_some());
    }
    peers
}
