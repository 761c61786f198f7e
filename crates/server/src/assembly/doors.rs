//! The role "door": the net stages of both protocols, and where they listen.

use std::net::SocketAddr;
use std::sync::Arc;

use timestone_cluster::{Address, ServerAddresses};
use timestone_seda::{Memory, NetConfig, NetMetrics, NetStage, Network, Protocol, StageId};
use timestone_types::ShardId;

use super::Ground;
use super::plan::{StagePlan, StageSlots};
use crate::config::ServerConfig;
use crate::error::ServerError;
use crate::event::Event;
use crate::http::HttpServer;
use crate::native::{NativeProtocol, ShardTable};
use crate::raw::RawProtocol;

/// Every way into the process.
pub(super) struct Doors {
    native: Nets<NativeProtocol>,
    resp: Nets<RawProtocol>,
    pub(super) http: Option<HttpServer>,
    advertised: Option<SocketAddr>,
    table: ShardTable,
}

impl Doors {
    /// Binds all addresses.
    pub(super) fn open(ground: &Ground<'_>) -> Result<Self, ServerError> {
        let Ground { config, environment, memory, plan, .. } = ground;
        let table = ShardTable::default();
        Ok(Self {
            native: native_nets(config, &environment.network(), memory, plan, &table)?,
            resp: resp_nets(config, &environment.network(), memory, plan)?,
            http: config.listen.http.map(HttpServer::bind).transpose()?,
            advertised: config.listen.advertise,
            table,
        })
    }

    /// What the master is told.
    pub(super) fn addresses(&self) -> Result<ServerAddresses, ServerError> {
        Ok(ServerAddresses {
            native: self.advertised.or(self.native.address).map(address_of).transpose()?,
            resp: self.resp.address.map(address_of).transpose()?,
            http: self.http.as_ref().map(|http| address_of(http.address())).transpose()?,
        })
    }

    /// Tells the doors where shards are; what is for others goes to `node`.
    pub(super) fn announce(&self, stage_of: &[(ShardId, StageId)], node: StageId) {
        let _ = self.table.set(by_number(stage_of, node));
    }

    /// Puts the net stages in place. What they count, by protocol.
    pub(super) fn put(
        &mut self,
        plan: &StagePlan,
        slots: &mut StageSlots,
    ) -> Vec<(&'static str, Arc<NetMetrics>)> {
        let mut metrics = Vec::new();
        for (thread, net) in self.native.stages.drain(..).enumerate() {
            metrics.push(("native", net.metrics()));
            slots.put(plan.native(thread), net);
        }
        for (thread, net) in self.resp.stages.drain(..).enumerate() {
            metrics.push(("resp", net.metrics()));
            slots.put(plan.resp(thread), net);
        }
        metrics
    }

    /// Where the native protocol is served.
    pub(super) const fn native_address(&self) -> Option<SocketAddr> {
        self.native.address
    }

    /// Where Redis clients are served.
    pub(super) const fn resp_address(&self) -> Option<SocketAddr> {
        self.resp.address
    }
}

/// Most connections of one net stage.
pub(super) fn max_connections(config: &ServerConfig) -> usize {
    let bound = timestone_seda::limits::MAX_CONNECTIONS;
    config.listen.max_connections.map_or(bound, |most| most.min(bound))
}

/// The stage of every shard number; `node` where a number is not here.
fn by_number(stage_of: &[(ShardId, StageId)], node: StageId) -> Vec<StageId> {
    let count = stage_of.iter().map(|(shard, _)| usize::from(shard.get()) + 1).max().unwrap_or(0);
    let mut stages = vec![node; count];
    for (shard, stage) in stage_of {
        stages[usize::from(shard.get())] = *stage;
    }
    stages
}

/// The net stages of one protocol, and where they listen.
struct Nets<P: Protocol> {
    stages: Vec<NetStage<Event, P>>,
    address: Option<SocketAddr>,
}

/// The doors of the native protocol.
fn native_nets(
    config: &ServerConfig,
    network: &Arc<dyn Network>,
    memory: &Arc<Memory>,
    plan: &StagePlan,
    table: &ShardTable,
) -> Result<Nets<NativeProtocol>, ServerError> {
    // Net stages exist without a listener as well: they dial other processes.
    let stage = |thread| {
        let share_with = (0..plan.threads).map(|thread| plan.native(thread)).collect();
        let net = NetConfig {
            name: format!("native-{thread}"),
            owner: None,
            // Of a replica, the longest batch that a log takes.
            max_frame_bytes: timestone_wire::limits::MAX_FRAME_BYTES,
            share_with,
            max_connections: max_connections(config),
            // Clients that leave have been answered, or wait for nothing more.
            answers_after_end: false,
            // Gateways bound what waits for other servers.
            reports_written: true,
            memory: Arc::clone(memory),
            network: Arc::clone(network),
            ..NetConfig::default()
        };
        NetStage::new(NativeProtocol::new(plan.node(), Arc::clone(table)), net)
    };
    let mut nets = Nets { stages: (0..plan.threads).map(stage).collect(), address: None };
    nets.listen(config.listen.native, "the native protocol")?;
    Ok(nets)
}

/// The doors of Redis clients.
fn resp_nets(
    config: &ServerConfig,
    network: &Arc<dyn Network>,
    memory: &Arc<Memory>,
    plan: &StagePlan,
) -> Result<Nets<RawProtocol>, ServerError> {
    if config.listen.resp.is_none() {
        return Ok(Nets { stages: Vec::new(), address: None });
    }
    let stage = |thread| {
        let share_with = (0..plan.threads).map(|thread| plan.resp(thread)).collect();
        let gateway = plan.gateway(thread);
        let net = NetConfig {
            name: format!("resp-{thread}"),
            owner: Some(gateway),
            share_with,
            max_connections: max_connections(config),
            closed_by_owner: !cuts_half_closed(),
            reports_written: true,
            memory: Arc::clone(memory),
            network: Arc::clone(network),
            ..NetConfig::default()
        };
        NetStage::new(RawProtocol::new(gateway), net)
    };
    let mut nets = Nets { stages: (0..plan.threads).map(stage).collect(), address: None };
    nets.listen(config.listen.resp, "the Redis protocol")?;
    Ok(nets)
}

/// Whether redis clients that have sent their last word are cut off before they are answered.
fn cuts_half_closed() -> bool {
    timestone_types::is_planted!(CutsHalfClosed)
}

impl<P: Protocol> Nets<P> {
    fn listen(
        &mut self,
        address: Option<SocketAddr>,
        purpose: &'static str,
    ) -> Result<(), ServerError> {
        if let (Some(address), Some(first)) = (address, self.stages.first_mut()) {
            let bound = first
                .listen(address)
                .map_err(|error| ServerError::listen(address, purpose, error))?;
            self.address = Some(bound);
        }
        Ok(())
    }
}

/// An address as the master knows it.
fn address_of(address: SocketAddr) -> Result<Address, ServerError> {
    Address::new(&address.to_string()).map_err(ServerError::part)
}
