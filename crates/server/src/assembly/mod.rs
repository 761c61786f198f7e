//! From a configuration to stages on threads: one builder a role, in the order in which each needs
//! what the ones before it have found out.
//!
//! ```text
//!   config ─► doors (addresses) ─► cluster (who owns what) ─► primary (stores, logs, shards) ─► clients (gateways, embedded ones)
//!                                                                                            └─► node ─► stages on threads
//! ```
//! Everything that can fail, fails here, before a thread runs: locks, formats, recovery, ports. A
//! further role (a backup of another server's shard) is a builder beside [`primary`].

mod clients;
mod cluster;
mod doors;
mod observed;
mod plan;
mod primary;
mod replicas;
mod run_number;
mod time;

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, RwLock};

use timestone_client::{EngineConfig, InProcess, InProcessClient, in_process};
use timestone_clock::Clock;
use timestone_cluster::{ReplicationFactor, ShardMap};
use timestone_seda::{Layout, Memory, NetMetrics, Pinning, RuntimeConfig, Stage, StageId};
use timestone_txn::participant;
use timestone_types::{ClientId, ShardId};
use timestone_wal::DeviceKind;

use crate::config::{ServerConfig, SizeConfig};
use crate::environment::{Environment, LocalEnvironment};
use crate::error::ServerError;
use crate::event::Event;
use crate::http::HttpServer;
use crate::limits;
use crate::manifest::Manifest;
use crate::memory::Budget;
use crate::node::{Embedded, NearDoor, NodeParts, NodeStage};
use crate::replica_gauges::ReplicaGauges;
use clients::Clients;
pub(crate) use cluster::joining;
use cluster::{ClusterPlace, join_cluster};
pub use cluster::{UNNAMED_CLUSTER, etcd_prefix};
use doors::Doors;
pub(crate) use observed::Observed;
pub(crate) use plan::StagePlan;
use plan::StageSlots;

/// A stage of the process's owner, one per reactor thread: an embedded client.
pub type EmbeddedClient = Box<dyn Stage<Event>>;

/// What an embedded client is told of the place that it gets.
#[derive(Clone, Debug)]
pub struct EmbeddedClientSlot {
    /// Its own stage id.
    pub stage: StageId,
    /// Which reactor thread it runs on.
    pub thread: usize,
    /// A client id of its own, never used before.
    pub client: ClientId,
    /// The shard map.
    pub map: Arc<ShardMap>,
    /// Where it finds the shards of this process, and how it asks them.
    pub wiring: InProcess,
    /// The server's clock, which every part of a process goes by: two clocks of one process may
    /// hold different steps.
    pub clock: Arc<dyn Clock>,
}

impl EmbeddedClientSlot {
    /// The client that belongs there.
    #[must_use]
    pub fn client(&self, engine: EngineConfig) -> InProcessClient<Event> {
        let (wiring, clock) = (self.wiring.clone(), Arc::clone(&self.clock));
        in_process(self.client, &self.map, wiring, engine, clock)
    }
}

/// Everything that is needed to run, and to look at what runs.
pub(crate) struct Assembled {
    pub(crate) stages: Vec<Box<dyn Stage<Event>>>,
    pub(crate) layout: Layout,
    pub(crate) runtime: RuntimeConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) native: Option<SocketAddr>,
    pub(crate) resp: Option<SocketAddr>,
    pub(crate) http: Option<HttpServer>,
    pub(crate) embedded_clients: Vec<EmbeddedClientSlot>,
    pub(crate) shard_stages: Vec<(ShardId, StageId)>,
    pub(crate) log_stages: Vec<StageId>,
    pub(crate) observed: Arc<Observed>,
}

/// Builds everything on this machine; the embedded clients are made by `embedded_clients` once
/// their slots are known.
pub(crate) fn assemble(
    config: &ServerConfig,
    want_embedded_clients: bool,
    embedded_clients: impl FnOnce(&[EmbeddedClientSlot]) -> Vec<EmbeddedClient>,
) -> Result<Assembled, ServerError> {
    refuse_strangers(config)?;
    let mut config = config.clone();
    config.sizes.memory_bytes =
        config.sizes.memory_bytes.or_else(|| Some(timestone_io::machine_memory()? / 2));
    config.listen.max_connections =
        config.listen.max_connections.or_else(|| connections_by_descriptors(config.thread_count()));
    let config = &config;
    let environment = LocalEnvironment::open(config)?;
    config.check_capacity(environment.shards())?;
    assemble_on(config, Arc::new(environment), want_embedded_clients, embedded_clients)
}

/// How many connections each net stage may have so that files, other threads and health checks
/// never lack a descriptor.
fn connections_by_descriptors(threads: usize) -> Option<usize> {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current?;
    let free =
        usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(limits::RESERVED_DESCRIPTORS);
    // One net stage a protocol and thread.
    Some((free / (2 * threads)).max(limits::MIN_CONNECTIONS))
}

/// Addresses that other machines can reach need a word.
fn refuse_strangers(config: &ServerConfig) -> Result<(), ServerError> {
    for address in
        [config.listen.native, config.listen.resp, config.listen.http].into_iter().flatten()
    {
        if !address.ip().is_loopback() && !config.listen.insecure {
            return Err(ServerError::Insecure { address });
        }
    }
    Ok(())
}

/// What every builder needs.
struct Ground<'a> {
    config: &'a ServerConfig,
    environment: &'a Arc<dyn Environment>,
    clock: Arc<dyn Clock>,
    budget: Budget,
    memory: Arc<Memory>,
    manifest: Arc<Manifest>,
    plan: StagePlan,
}

/// Builds everything on a given environment.
pub(crate) fn assemble_on(
    config: &ServerConfig,
    environment: Arc<dyn Environment>,
    want_embedded_clients: bool,
    embedded_clients: impl FnOnce(&[EmbeddedClientSlot]) -> Vec<EmbeddedClient>,
) -> Result<Assembled, ServerError> {
    let budget = budget_of(config);
    let sizes = SizeConfig { cache_bytes: budget.cache, ..config.sizes.clone() };
    let config = &ServerConfig { sizes, ..config.clone() };
    let mut ground = Ground {
        config,
        environment: &environment,
        clock: environment.clock(),
        budget,
        memory: budget.memory(),
        // Before anything is created that could stand in for what is missing.
        manifest: Manifest::open(&environment, &config.accept_loss)?,
        plan: StagePlan::new(config.thread_count()),
    };
    // Addresses first: the master must be told where this server is.
    let mut doors = Doors::open(&ground)?;
    let mut place = join_cluster(config, &environment, &ground.manifest, doors.addresses()?)?;
    // The master may have kept it waiting, and the clock may have been set right meanwhile: nobody
    // has asked for the time yet.
    if !timestone_types::is_planted!(TimeOfStart) {
        ground.clock.begin_anew();
    }
    place.check_shards(&environment, config)?;
    let here: Vec<ShardId> = if place.replication != ReplicationFactor::ONE {
        place.map.shards().iter().map(|entry| entry.id).collect()
    } else {
        place.shards.clone()
    };
    ground.plan.has_shards(here.len());
    let stage_of: Vec<(ShardId, StageId)> =
        here.into_iter().zip(0..).map(|(shard, index)| (shard, ground.plan.shard(index))).collect();
    doors.announce(&stage_of, ground.plan.node());

    let mut slots = StageSlots::new(&ground.plan);
    let build =
        if place.replication != ReplicationFactor::ONE { replicas::build } else { primary::build };
    let primaries = build(&ground, &place, &stage_of, &mut slots)?;
    let nets = doors.put(&ground.plan, &mut slots);
    let gauges = &primaries.gauges;
    let clients =
        Clients::build(&ground, &mut place, &stage_of, gauges, primaries.called, &mut slots)?;
    let embedded_clients = clients.embed(
        &ground,
        &mut place,
        want_embedded_clients.then_some(embedded_clients),
        &mut slots,
    )?;

    let shared_map = Arc::new(RwLock::new(Arc::new(place.map.clone())));
    let stopping = Arc::new(AtomicBool::new(false));
    let observed = Arc::new(Observed {
        server: place.server,
        started: ground.clock.now(),
        clock: Arc::clone(&ground.clock),
        shards: primaries.gauges,
        replicas: primaries.replicas.clone(),
        logs: primaries.log_gauges,
        gateways: clients.latencies,
        unreached: clients.unreached,
        directory: config.data.clone(),
        log_device: config.log,
        nets,
        map: Arc::clone(&shared_map),
        stopping: Arc::clone(&stopping),
        departure: Arc::default(),
        ready: AtomicBool::new(false),
        budget,
        memory: Arc::clone(&ground.memory),
    });
    put_node(&ground, place, &observed, (&stage_of, primaries.replicas), &mut slots);

    let (stages, used) = slots.finish();
    let mut layout = Layout::new(ground.plan.threads_of(config.layout, &used));
    layout.pinning = if config.pin { Pinning::Cores } else { Pinning::None };
    Ok(Assembled {
        stages,
        layout,
        runtime: runtime_config(&ground.plan),
        clock: ground.clock,
        native: doors.native_address(),
        resp: doors.resp_address(),
        http: doors.http,
        embedded_clients,
        shard_stages: stage_of,
        log_stages: primaries.log_stages,
        observed,
    })
}

fn budget_of(config: &ServerConfig) -> Budget {
    let budget = Budget::of(config);
    // Whoever gives the cache all of the memory wants what is left of it.
    let wants_the_rest = config.sizes.cache_bytes >= budget.total && config.listen.is_embedded();
    if budget.cache < config.sizes.cache_bytes && !wants_the_rest {
        let (wanted, got) = (config.sizes.cache_bytes, budget.cache);
        tracing::warn!(
            wanted,
            got,
            memory = budget.total,
            "the cache gets no more than its share of the process's memory"
        );
    }
    budget
}

/// How a shard's participant runs, one of so many.
fn participant_of(ground: &Ground<'_>, shards: usize) -> participant::Config {
    let config = ground.config.tuning().participant;
    let recent_keys = config.recent_keys.min(ground.budget.recent_keys(shards));
    participant::Config { recent_keys, ..config }
}

/// The native net stages, as clients are told of them.
fn native_doors(
    ground: &Ground<'_>,
    observed: &Observed,
    stage_of: &[(ShardId, StageId)],
) -> Vec<NearDoor> {
    let native = observed.nets.iter().filter(|(protocol, _)| *protocol == "native");
    let door = |(thread, (_, metrics)): (usize, &(&str, Arc<NetMetrics>))| NearDoor {
        net: ground.plan.native(thread),
        shards: ground.plan.near(ground.config.layout, stage_of, thread),
        metrics: Arc::clone(metrics),
        max_connections: doors::max_connections(ground.config),
    };
    native.enumerate().map(door).collect()
}

/// The stage that answers what concerns the server and the master.
fn put_node(
    ground: &Ground<'_>,
    place: ClusterPlace,
    observed: &Arc<Observed>,
    (stage_of, replicas): (&[(ShardId, StageId)], Vec<Arc<ReplicaGauges>>),
    slots: &mut StageSlots,
) {
    let (plan, manifest) = (&ground.plan, &ground.manifest);
    let figures = {
        let observed = Arc::downgrade(observed);
        Arc::new(move || {
            observed
                .upgrade()
                .map(|observed| crate::running::figures(&observed))
                .unwrap_or_default()
        })
    };
    let node = NodeStage::new(NodeParts {
        server: place.server,
        map: Arc::new(place.map),
        control: Arc::new(place.control),
        replicas,
        limits: ground.config.controller,
        cluster_name: place.name,
        master: place.link,
        net: Some(plan.native(0)),
        shard_stages: stage_of.to_vec(),
        doors: native_doors(ground, observed, stage_of),
        gateways: (0..plan.threads).map(|thread| plan.gateway(thread)).collect(),
        figures,
        shared_map: Arc::clone(&observed.map),
        stopping: Arc::clone(&observed.stopping),
        departure: Arc::clone(&observed.departure),
        clock: Arc::clone(&ground.clock),
        life: (ground.config.log == DeviceKind::None).then(|| Arc::clone(manifest)),
        run_interval: ground.config.tuning().run_interval,
        embedded: Embedded {
            stages: (0..plan.threads)
                .flat_map(|thread| [plan.gateway(thread), plan.embedded_client(thread)])
                .collect(),
            manifest: Arc::clone(manifest),
        },
    });
    slots.put(plan.node(), node);
}

fn runtime_config(plan: &StagePlan) -> RuntimeConfig {
    let mut admission: Vec<_> =
        (0..plan.shards).map(|index| (plan.shard(index), limits::SHARD_ADMISSION)).collect();
    admission.extend(
        (0..plan.threads)
            .map(|thread| (plan.gateway(thread), timestone_gateway::GATEWAY_ADMISSION)),
    );
    RuntimeConfig { name: "timestone".to_owned(), admission, ..RuntimeConfig::default() }
}
