//! The role "client": gateways for Redis clients, and the clients that the process's owner embeds.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use timestone_client::{ByCalls, InProcess};
use timestone_cluster::{KeyspaceName, ReplicationFactor};
use timestone_gateway::{CommandLatencies, DirectShard, Gateway, GatewayGauges, Setup};
use timestone_seda::StageId;
use timestone_shard::gauges::ShardGauges;
use timestone_types::{ClientId, ShardId};
use timestone_wal::DeviceKind;

use super::cluster::ClusterPlace;
use super::plan::StageSlots;
use super::{EmbeddedClient, EmbeddedClientSlot, Ground};
use crate::embedded_client::CountedClient;
use crate::error::ServerError;
use crate::gateway_stage::GatewayStage;
use crate::shared_shard::CalledShard;

/// Gateways, and what embedded clients are told.
pub(super) struct Clients {
    pub(super) latencies: Vec<Arc<CommandLatencies>>,
    pub(super) unreached: Vec<Arc<AtomicU64>>,
    /// The client ids that this process uses itself.
    own: Vec<ClientId>,
    shards: Arc<[Arc<ShardGauges>]>,
    stage_of: Vec<(ShardId, StageId)>,
}

impl Clients {
    /// Puts a gateway on every thread, which may call the shards of that thread.
    pub(super) fn build(
        ground: &Ground<'_>,
        place: &mut ClusterPlace,
        stage_of: &[(ShardId, StageId)],
        gauges: &[Arc<ShardGauges>],
        called: Vec<Vec<CalledShard>>,
        slots: &mut StageSlots,
    ) -> Result<Self, ServerError> {
        let plan = &ground.plan;
        let shards: Arc<[Arc<ShardGauges>]> = gauges.into();
        let (mut latencies, mut unreached, mut own) = (Vec::new(), Vec::new(), Vec::new());
        for (thread, called) in called.into_iter().enumerate() {
            let client = place.client()?;
            own.push(client);
            let gauges = GatewayGauges { shards: Arc::clone(&shards), ..GatewayGauges::default() };
            latencies.push(Arc::clone(&gauges.latencies));
            unreached.push(Arc::clone(&gauges.unreached));
            let gateway = Gateway::new(Setup {
                stage: plan.gateway(thread),
                thread,
                client,
                map: Arc::new(place.map.clone()),
                keyspace: (ground.config.listen.resp_keyspace.clone())
                    .unwrap_or_else(KeyspaceName::default_keyspace),
                server: place.server,
                shards: stage_of.iter().map(|(shard, _)| *shard).collect(),
                // Whoever has no port for Redis clients passes no commands on.
                net: ground.config.listen.resp.map(|_| plan.native(thread)),
                seed: ground.environment.draw(),
                memory: Arc::clone(&ground.memory),
                gauges,
            });
            let called = called.into_iter().map(|one| Box::new(one) as Box<dyn DirectShard>);
            let gateway = gateway.calling(called.collect());
            let stage = GatewayStage::new(thread, gateway, plan.node(), stage_of.to_vec());
            slots.put(plan.gateway(thread), stage);
        }
        Ok(Self { latencies, unreached, own, shards, stage_of: stage_of.to_vec() })
    }

    /// Puts the embedded clients in place that `make` makes of their slots, and notes all client
    /// ids of this process.
    pub(super) fn embed(
        &self,
        ground: &Ground<'_>,
        place: &mut ClusterPlace,
        make: Option<impl FnOnce(&[EmbeddedClientSlot]) -> Vec<EmbeddedClient>>,
        slots: &mut StageSlots,
    ) -> Result<Vec<EmbeddedClientSlot>, ServerError> {
        let plan = &ground.plan;
        let by_calls = match ground.config.log {
            // Primaries of shards with replicas change.
            _ if place.replication != ReplicationFactor::ONE => ByCalls::Nothing,
            DeviceKind::None => ByCalls::ReadsAndPuts,
            DeviceKind::Ssd | DeviceKind::Pmem => ByCalls::Reads,
        };
        let mut places = Vec::new();
        for thread in (0..plan.threads).filter(|_| make.is_some()) {
            places.push(EmbeddedClientSlot {
                stage: plan.embedded_client(thread),
                thread,
                client: place.client()?,
                map: Arc::new(place.map.clone()),
                wiring: InProcess {
                    shards: self.stage_of.clone(),
                    server: plan.node(),
                    seed: ground.environment.draw(),
                    by_calls,
                },
                clock: Arc::clone(&ground.clock),
            });
        }
        let mut own = self.own.clone();
        own.extend(places.iter().map(|at| at.client));
        ground.manifest.has_clients(&own)?;
        if let Some(make) = make {
            for (at, client) in places.iter().zip(make(&places)) {
                slots.put(at.stage, CountedClient::new(client, Arc::clone(&self.shards)));
            }
        }
        Ok(places)
    }
}
