//! The role "client": gateways for Redis clients, and the clients that the process's owner embeds.

use std::sync::Arc;

use timestone_gateway::{CommandLatencies, Gateway, GatewayGauges, Setup};
use timestone_seda::StageId;
use timestone_shard::gauges::ShardGauges;
use timestone_types::{ClientId, ShardId};

use super::cluster::Place;
use super::plan::StageSlots;
use super::{Ground, Guest, GuestSeat};
use crate::error::ServerError;
use crate::gateway_stage::GatewayStage;
use crate::guest::CountedGuest;

/// Gateways, and what embedded clients are told.
pub(super) struct Clients {
    pub(super) latencies: Vec<Arc<CommandLatencies>>,
    /// The client ids that this process uses itself.
    own: Vec<ClientId>,
    shards: Arc<[Arc<ShardGauges>]>,
    stage_of: Vec<(ShardId, StageId)>,
}

impl Clients {
    /// Puts a gateway on every thread.
    pub(super) fn build(
        ground: &Ground<'_>,
        place: &mut Place,
        stage_of: &[(ShardId, StageId)],
        gauges: &[Arc<ShardGauges>],
        slots: &mut StageSlots,
    ) -> Result<Self, ServerError> {
        let plan = &ground.plan;
        let shards: Arc<[Arc<ShardGauges>]> = gauges.into();
        let (mut latencies, mut own) = (Vec::new(), Vec::new());
        for thread in 0..plan.threads {
            let client = place.client()?;
            own.push(client);
            let gauges = GatewayGauges { shards: Arc::clone(&shards), ..GatewayGauges::default() };
            latencies.push(Arc::clone(&gauges.latencies));
            let gateway = Gateway::new(Setup {
                stage: plan.gateway(thread),
                thread,
                client,
                map: Arc::new(place.map.clone()),
                shards: stage_of.iter().map(|(shard, _)| *shard).collect(),
                seed: ground.premises.draw(),
                memory: Arc::clone(&ground.memory),
                gauges,
            });
            let stage = GatewayStage::new(thread, gateway, plan.node(), stage_of.to_vec());
            slots.put(plan.gateway(thread), stage);
        }
        Ok(Self { latencies, own, shards, stage_of: stage_of.to_vec() })
    }

    /// Puts the embedded clients in place that `make` makes of their seats, and notes all client
    /// ids of this process.
    pub(super) fn embed(
        &self,
        ground: &Ground<'_>,
        place: &mut Place,
        make: Option<impl FnOnce(&[GuestSeat]) -> Vec<Guest>>,
        slots: &mut StageSlots,
    ) -> Result<Vec<GuestSeat>, ServerError> {
        let plan = &ground.plan;
        let mut seats = Vec::new();
        for thread in (0..plan.threads).filter(|_| make.is_some()) {
            seats.push(GuestSeat {
                stage: plan.guest(thread),
                thread,
                client: place.client()?,
                map: Arc::new(place.map.clone()),
                shards: self.stage_of.clone(),
                node: plan.node(),
                clock: Arc::clone(&ground.clock),
            });
        }
        let mut own = self.own.clone();
        own.extend(seats.iter().map(|seat| seat.client));
        ground.manifest.has_clients(&own)?;
        if let Some(make) = make {
            for (seat, guest) in seats.iter().zip(make(&seats)) {
                slots.put(seat.stage, CountedGuest::new(guest, Arc::clone(&self.shards)));
            }
        }
        Ok(seats)
    }
}
