//! From a configuration to stages on threads.
//!
//! ```text
//!   stage ids:  shards 0..S │ log 1 a thread │ native net 1 a thread │ RESP net and gateway 1 a thread │ node │ guests 1 a thread
//!   thread i:   native net i, RESP net i, gateway i, guest i, shards s with s mod T = i, log i          (fused)
//!   one more:   node
//! ```
//! Everything that can fail, fails here, before a thread runs: locks, formats, recovery, ports.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use timestone_clock::Clock;
use timestone_clock::limits::MAX_START_LEAD;
use timestone_cluster::{
    Address, Master, MasterAnswer, MasterCommand, ServerAddresses, ServerId, ShardMap,
};
use timestone_seda::{
    Layout, Memory, NetConfig, NetMetrics, NetStage, Network, Pinning, RuntimeConfig, Stage,
    StageId,
};
use timestone_types::{ClientId, ClusterId, HashSeed, ShardId, Span, Timestamp};
use timestone_wal::DeviceKind;

use crate::cluster_name::ClusterName;
use crate::config::{MasterPlace, ServerConfig, StageLayout};
use crate::error::ServerError;
use crate::event::Event;
use crate::gateway::{CommandLatencies, GatewayGauges};
use crate::gauges::{LogGauges, ShardGauges};
use crate::http::HttpServer;
use crate::limits;
use crate::manifest::{Beginning, Manifest};
use crate::memory::Budget;
use crate::native::{NativeProtocol, ShardTable};
use crate::node::{Embedded, Joining, MasterLink, NodeParts, NodeStage};
use crate::premises::{Local, Premises};
use crate::raw::RawProtocol;
use crate::restart::{open_stores, replay_logs};
use crate::shard::{LogPlace, Peers, Recovering, Replay};

/// A stage of the process's owner, one per reactor thread: an embedded client.
pub type Guest = Box<dyn Stage<Event>>;

/// What a guest is told of the place that it gets.
#[derive(Clone, Debug)]
pub struct GuestSeat {
    /// Its own stage id.
    pub stage: StageId,
    /// Which reactor thread it runs on.
    pub thread: usize,
    /// A client id of its own, never used before.
    pub client: ClientId,
    /// The shard map.
    pub map: Arc<ShardMap>,
    /// The stage of every shard of this process.
    pub shards: Vec<(ShardId, StageId)>,
    /// The stage that answers what concerns the server and the master.
    pub node: StageId,
    /// The server's clock, which every part of a process goes by: two clocks of one process may
    /// hold different steps.
    pub clock: Arc<dyn Clock>,
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
    pub(crate) guests: Vec<GuestSeat>,
    pub(crate) shard_stages: Vec<(ShardId, StageId)>,
    pub(crate) log_stages: Vec<StageId>,
    pub(crate) observed: Arc<Observed>,
}

/// What can be looked at from outside the stages.
pub(crate) struct Observed {
    pub(crate) server: ServerId,
    pub(crate) started: Timestamp,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) shards: Vec<Arc<ShardGauges>>,
    pub(crate) logs: Vec<Arc<LogGauges>>,
    pub(crate) gateways: Vec<Arc<CommandLatencies>>,
    pub(crate) directory: PathBuf,
    pub(crate) log_device: DeviceKind,
    pub(crate) nets: Vec<(&'static str, Arc<NetMetrics>)>,
    pub(crate) map: Arc<RwLock<Arc<ShardMap>>>,
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) ready: AtomicBool,
    pub(crate) budget: Budget,
    pub(crate) memory: Arc<Memory>,
}

impl Observed {
    /// For how long some shard still refuses writes because the clock stands far behind what it has
    /// served.
    pub(crate) fn clock_behind(&self, now: Timestamp) -> Option<Duration> {
        self.shards.iter().filter_map(|shard| shard.clock_behind(now)).max()
    }

    /// The shard map of now.
    pub(crate) fn map(&self) -> Arc<ShardMap> {
        match self.map.read() {
            Ok(map) => Arc::clone(&map),
            Err(poisoned) => Arc::clone(&poisoned.into_inner()),
        }
    }
}

/// Builds everything on this machine; the guests are made by `guests` once their seats are known.
pub(crate) fn assemble(
    config: &ServerConfig,
    want_guests: bool,
    guests: impl FnOnce(&[GuestSeat]) -> Vec<Guest>,
) -> Result<Assembled, ServerError> {
    refuse_strangers(config)?;
    let mut config = config.clone();
    config.memory_bytes = config.memory_bytes.or_else(|| Some(timestone_io::machine_memory()? / 2));
    config.max_connections =
        config.max_connections.or_else(|| connections_by_descriptors(config.thread_count()));
    let config = &config;
    let premises = Local::open(config)?;
    config.check_capacity(premises.shards())?;
    assemble_on(config, Arc::new(premises), want_guests, guests)
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
    for address in [config.listen, config.resp, config.http].into_iter().flatten() {
        if !address.ip().is_loopback() && !config.insecure {
            return Err(ServerError::Insecure { address });
        }
    }
    Ok(())
}

/// Most connections of one net stage.
fn max_connections(config: &ServerConfig) -> usize {
    let bound = timestone_seda::limits::MAX_CONNECTIONS;
    config.max_connections.map_or(bound, |most| most.min(bound))
}

/// Builds everything on given premises.
pub(crate) fn assemble_on(
    config: &ServerConfig,
    premises: Arc<dyn Premises>,
    want_guests: bool,
    guests: impl FnOnce(&[GuestSeat]) -> Vec<Guest>,
) -> Result<Assembled, ServerError> {
    let clock = premises.clock();
    let budget = Budget::of(config);
    if budget.cache < config.cache_bytes {
        let (wanted, got) = (config.cache_bytes, budget.cache);
        tracing::warn!(
            wanted,
            got,
            memory = budget.total,
            "the cache gets no more than half of the process's memory"
        );
    }
    let config = &ServerConfig { cache_bytes: budget.cache, ..config.clone() };
    let memory = budget.memory();
    let tuning = config.tuning();
    let threads = config.thread_count();
    // Before anything is created that could stand in for what is missing.
    let manifest = Manifest::open(&premises, &config.accept_loss)?;

    // Addresses first: the master must be told where this server is.
    let plan = Plan::new(usize::from(premises.shards()), threads);
    let table = ShardTable::default();
    let mut native = native_nets(config, &premises.network(), &memory, &plan, &table)?;
    let mut resp = resp_nets(config, &premises.network(), &memory, &plan)?;
    let http = config.http.map(HttpServer::bind).transpose()?;
    let addresses = ServerAddresses {
        native: config.advertise.or(native.address).map(address_of).transpose()?,
        resp: resp.address.map(address_of).transpose()?,
        http: http.as_ref().map(|http| address_of(http.address())).transpose()?,
    };
    let mut place = join_cluster(config, &premises, &manifest, addresses)?;
    // The master may have kept it waiting, and the clock may have been set right meanwhile: nobody
    // has asked for the time yet.
    if !is_planted!(TimeOfStart) {
        clock.begin_anew();
    }
    if place.shards.len() != usize::from(premises.shards()) {
        return Err(ServerError::Master {
            address: master_address(config),
            detail: format!(
                "it has {} shards for this server, whose data directory holds {}; set \
                 --cluster-shards there to the sum over all servers",
                place.shards.len(),
                premises.shards()
            ),
        });
    }
    let stage_of: Vec<(ShardId, StageId)> =
        place.shards.iter().enumerate().map(|(index, &shard)| (shard, plan.shard(index))).collect();
    let _ = table.set(by_number(&stage_of, plan.node()));

    let mut replays =
        open_stores(config, &*premises, &manifest, &tuning, &place.shards, place.map.cluster())?;
    let log_stages =
        replay_logs(config, &premises, &manifest, &tuning, &plan, &stage_of, &mut replays)?;
    let lived_until = replays
        .iter()
        .map(Replay::lived_until)
        .max()
        .unwrap_or_default()
        .max(manifest.lived_until());
    begin_time(&*clock, lived_until);
    let youngest = replays.iter().map(Replay::youngest).max().unwrap_or_default();
    let past = manifest.begin_run(&Beginning {
        has_log: config.log != DeviceKind::None,
        now: clock.now(),
        youngest: youngest.max(lived_until),
        lived_until,
        bound: replays.iter().map(Replay::bound).max().unwrap_or_default(),
    })?;

    let left = Arc::new(manifest.own_clients());
    let shared_map = Arc::new(RwLock::new(Arc::new(place.map.clone())));
    let stopping = Arc::new(AtomicBool::new(false));
    let mut stages: Vec<Option<Box<dyn Stage<Event>>>> = Vec::new();
    stages.resize_with(plan.total(), || None);
    let mut shard_gauges = Vec::new();
    let logs: Vec<StageId> = (0..log_stages.len()).map(|thread| plan.log(thread)).collect();
    for (index, replay) in replays.into_iter().enumerate() {
        let shard = place.shards[index];
        let gauges = Arc::new(ShardGauges::new(shard));
        shard_gauges.push(Arc::clone(&gauges));
        let log = match config.log {
            DeviceKind::None => LogPlace::Nowhere,
            DeviceKind::Ssd | DeviceKind::Pmem => LogPlace::Stage(plan.log(plan.thread_of(index))),
        };
        let mut peers = Peers::default();
        for entry in place.map.shards() {
            let local = stage_of.iter().find(|(id, _)| *id == entry.id).map(|(_, stage)| *stage);
            peers.add(entry.id, local.unwrap_or_else(|| plan.node()), entry.epoch, local.is_some());
        }
        let epoch = place.map.epoch(shard).unwrap_or_default();
        replay.check(epoch)?;
        let map_version = place.map.version();
        let recovering = Recovering {
            epoch,
            map_version,
            log,
            logs: logs.clone(),
            peers,
            gauges,
            clock: Arc::clone(&clock),
            past,
            left: Arc::clone(&left),
            now: clock.now(),
            participant: tuning.participant,
            memory: Arc::clone(&memory),
        };
        stages[plan.shard(index).index()] = Some(Box::new(replay.finish(recovering)));
    }
    let mut log_gauges = Vec::new();
    for (thread, (stage, gauges)) in log_stages.into_iter().enumerate() {
        if !stage.is_blank() {
            log_gauges.push(gauges);
        }
        stages[plan.log(thread).index()] = Some(Box::new(stage));
    }
    let mut nets = Vec::new();
    for (thread, net) in native.stages.drain(..).enumerate() {
        nets.push(("native", net.metrics()));
        stages[plan.native(thread).index()] = Some(Box::new(net));
    }
    for (thread, net) in resp.stages.drain(..).enumerate() {
        nets.push(("resp", net.metrics()));
        stages[plan.resp(thread).index()] = Some(Box::new(net));
    }
    let mut own = Vec::new();
    let mut seat = |stage: StageId, thread: usize| -> Result<GuestSeat, ServerError> {
        let client = place.client()?;
        own.push(client);
        Ok(GuestSeat {
            stage,
            thread,
            client,
            map: Arc::new(place.map.clone()),
            shards: stage_of.clone(),
            node: plan.node(),
            clock: Arc::clone(&clock),
        })
    };
    let mut gateways = Vec::new();
    let gauges_of_shards: Arc<[Arc<ShardGauges>]> = shard_gauges.clone().into();
    for thread in 0..threads {
        let seat = seat(plan.gateway(thread), thread)?;
        let gauges =
            GatewayGauges { shards: Arc::clone(&gauges_of_shards), ..GatewayGauges::default() };
        gateways.push(Arc::clone(&gauges.latencies));
        let gateway =
            crate::gateway::GatewayStage::new(seat, plan.node(), premises.draw(), &memory, gauges);
        stages[plan.gateway(thread).index()] = Some(Box::new(gateway));
    }
    let mut seats = Vec::new();
    if want_guests {
        for thread in 0..threads {
            seats.push(seat(plan.guest(thread), thread)?);
        }
    }
    manifest.has_clients(&own)?;
    for (seat, guest) in seats.iter().zip(guests(&seats)) {
        let guest = crate::guest::CountedGuest::new(guest, Arc::clone(&gauges_of_shards));
        stages[seat.stage.index()] = Some(Box::new(guest));
    }

    let observed = Arc::new(Observed {
        server: place.server,
        started: clock.now(),
        clock: Arc::clone(&clock),
        shards: shard_gauges,
        logs: log_gauges,
        gateways,
        directory: config.data.clone(),
        log_device: config.log,
        nets,
        map: Arc::clone(&shared_map),
        stopping: Arc::clone(&stopping),
        ready: AtomicBool::new(false),
        budget,
        memory,
    });
    let figures = {
        let observed = Arc::downgrade(&observed);
        Arc::new(move || {
            observed
                .upgrade()
                .map(|observed| crate::running::figures(&observed))
                .unwrap_or_default()
        })
    };
    stages[plan.node().index()] = Some(Box::new(NodeStage::new(NodeParts {
        server: place.server,
        map: Arc::new(place.map),
        cluster_name: place.name,
        master: place.link,
        net: Some(plan.native(0)),
        shard_stages: stage_of.clone(),
        gateways: (0..threads).map(|thread| plan.gateway(thread)).collect(),
        figures,
        shared_map,
        stopping,
        clock: Arc::clone(&clock),
        has_log: config.log != DeviceKind::None,
        life: (config.log == DeviceKind::None).then(|| Arc::clone(&manifest)),
        embedded: Embedded {
            stages: (0..threads)
                .flat_map(|thread| [plan.gateway(thread), plan.guest(thread)])
                .collect(),
            manifest,
        },
    })));

    let used: Vec<bool> = stages.iter().map(Option::is_some).collect();
    let stages: Vec<Box<dyn Stage<Event>>> =
        stages.into_iter().map(|stage| stage.unwrap_or_else(|| Box::new(Empty))).collect();
    let mut layout = Layout::new(plan.threads_of(config.layout, &used));
    layout.pinning = if config.pin { Pinning::Cores } else { Pinning::None };
    let mut admission: Vec<_> =
        (0..plan.shards).map(|index| (plan.shard(index), limits::SHARD_ADMISSION)).collect();
    admission
        .extend((0..plan.threads).map(|thread| (plan.gateway(thread), limits::GATEWAY_ADMISSION)));
    let runtime =
        RuntimeConfig { name: "timestone".to_owned(), admission, ..RuntimeConfig::default() };
    Ok(Assembled {
        stages,
        layout,
        runtime,
        clock,
        native: native.address,
        resp: resp.address,
        http,
        guests: seats,
        shard_stages: stage_of,
        log_stages: logs,
        observed,
    })
}

/// Begins the server's time with what the clock shows now, but not before the time by which stores
/// and logs were read: reading them may take minutes. Lets it go on from where it was when the last
/// life ended, should the clock have been set back meanwhile: what was served then stays in the
/// past. A clock that is further behind is left as it is: reads are served, and writes refused
/// until it has passed that.
fn begin_time(clock: &dyn Clock, lived_until: Timestamp) {
    let read_at = clock.now();
    if !is_planted!(TimeOfStart) {
        clock.begin_anew();
        clock.go_on_from(read_at);
    }
    let behind = lived_until.since(clock.now());
    if behind <= MAX_START_LEAD {
        return clock.go_on_from(lived_until);
    }
    tracing::error!(
        behind = %Span(behind),
        "the system's clock is far behind what was served before the restart; nothing is written \
         until it has passed that: set the \
         clock right and restart the server, or wait"
    );
}

/// Which stage has which id, and which thread runs it.
pub(crate) struct Plan {
    shards: usize,
    pub(crate) threads: usize,
}

impl Plan {
    const fn new(shards: usize, threads: usize) -> Self {
        Self { shards, threads }
    }

    fn id(index: usize) -> StageId {
        StageId::new(u16::try_from(index).unwrap_or(u16::MAX))
    }

    fn shard(&self, index: usize) -> StageId {
        Self::id(index)
    }

    fn log(&self, thread: usize) -> StageId {
        Self::id(self.shards + thread)
    }

    fn native(&self, thread: usize) -> StageId {
        Self::id(self.shards + self.threads + thread)
    }

    fn resp(&self, thread: usize) -> StageId {
        Self::id(self.shards + 2 * self.threads + thread)
    }

    fn gateway(&self, thread: usize) -> StageId {
        Self::id(self.shards + 3 * self.threads + thread)
    }

    fn guest(&self, thread: usize) -> StageId {
        Self::id(self.shards + 4 * self.threads + thread)
    }

    fn node(&self) -> StageId {
        Self::id(self.shards + 5 * self.threads)
    }

    const fn total(&self) -> usize {
        self.shards + 5 * self.threads + 1
    }

    const fn thread_of(&self, shard: usize) -> usize {
        shard % self.threads
    }

    /// The stages of every thread, net stages first; the node has a thread of its own, because it
    /// may block. Ids of stages that this configuration does not have go there too.
    fn threads_of(&self, layout: StageLayout, used: &[bool]) -> Vec<Vec<StageId>> {
        let mut threads = match layout {
            StageLayout::Fused => self.fused(used),
            StageLayout::Staged => {
                let stages = (0..self.total())
                    .filter(|&index| used[index] && Self::id(index) != self.node());
                stages.map(|index| vec![Self::id(index)]).collect()
            }
        };
        let mut last = vec![self.node()];
        last.extend((0..self.total()).filter(|&index| !used[index]).map(Self::id));
        threads.push(last);
        threads
    }

    fn fused(&self, used: &[bool]) -> Vec<Vec<StageId>> {
        let of_thread = |thread| {
            let mut stages = vec![
                self.native(thread),
                self.resp(thread),
                self.gateway(thread),
                self.guest(thread),
            ];
            stages.extend(
                (0..self.shards).filter(|&shard| self.thread_of(shard) == thread).map(Self::id),
            );
            stages.push(self.log(thread));
            stages.retain(|stage| used[stage.index()]);
            stages
        };
        (0..self.threads).map(of_thread).collect()
    }
}

/// In the place of a stage that this configuration does not have.
struct Empty;

impl Stage<Event> for Empty {
    fn name(&self) -> &str {
        "unused"
    }

    fn handle(
        &mut self,
        _ctx: &mut timestone_seda::Context<'_, Event>,
        events: &mut std::collections::VecDeque<Event>,
    ) {
        events.clear();
    }
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
struct Nets<P: timestone_seda::Protocol> {
    stages: Vec<NetStage<Event, P>>,
    address: Option<SocketAddr>,
}

fn native_nets(
    config: &ServerConfig,
    network: &Arc<dyn Network>,
    memory: &Arc<Memory>,
    plan: &Plan,
    table: &ShardTable,
) -> Result<Nets<NativeProtocol>, ServerError> {
    // Net stages exist without a listener as well: they dial other processes.
    let stage = |thread| {
        let share_with = (0..plan.threads).map(|thread| plan.native(thread)).collect();
        let net = NetConfig {
            name: format!("native-{thread}"),
            owner: None,
            share_with,
            max_connections: max_connections(config),
            // Clients that leave have been answered, or wait for nothing more.
            answers_after_end: false,
            memory: Arc::clone(memory),
            network: Arc::clone(network),
            ..NetConfig::default()
        };
        NetStage::new(NativeProtocol::new(plan.node(), Arc::clone(table)), net)
    };
    let mut nets = Nets { stages: (0..plan.threads).map(stage).collect(), address: None };
    nets.listen(config.listen, "the native protocol")?;
    Ok(nets)
}

fn resp_nets(
    config: &ServerConfig,
    network: &Arc<dyn Network>,
    memory: &Arc<Memory>,
    plan: &Plan,
) -> Result<Nets<RawProtocol>, ServerError> {
    if config.resp.is_none() {
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
    nets.listen(config.resp, "the Redis protocol")?;
    Ok(nets)
}

/// Whether redis clients that have sent their last word are cut off before they are answered.
fn cuts_half_closed() -> bool {
    is_planted!(CutsHalfClosed)
}

impl<P: timestone_seda::Protocol> Nets<P> {
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

fn address_of(address: SocketAddr) -> Result<Address, ServerError> {
    Address::new(&address.to_string()).map_err(ServerError::part)
}

/// What this server is in its cluster.
struct Place {
    server: ServerId,
    shards: Vec<ShardId>,
    map: ShardMap,
    link: MasterLink,
    name: Option<String>,
}

impl Place {
    fn client(&mut self) -> Result<ClientId, ServerError> {
        match self.link.client_id() {
            Ok(Some(client)) => Ok(client),
            Ok(None) => Err(ServerError::Internal(
                "the master's first block of client ids is too small".to_owned(),
            )),
            Err(error) => Err(ServerError::part(error)),
        }
    }
}

const fn master_address(config: &ServerConfig) -> SocketAddr {
    match config.master {
        MasterPlace::Remote(address) => address,
        MasterPlace::Embedded => SocketAddr::new(
            std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
            limits::NATIVE_PORT,
        ),
    }
}

/// The exchange by which this server would join the cluster of a master elsewhere.
pub(crate) fn joining(
    config: &ServerConfig,
    premises: &dyn Premises,
    addresses: ServerAddresses,
) -> Result<Joining, ServerError> {
    let directory = premises.directory();
    let cluster = premises.load_cluster()?;
    let wanted = config.cluster.as_deref().map(ClusterName::parse).transpose()?;
    if let Some(wanted) = wanted.as_ref().filter(|_| cluster != ClusterId::ZERO) {
        let name = premises.load_cluster_name()?;
        wanted.check(&premises.cluster_place(name.is_some()), cluster, name.as_deref())?;
    }
    let place = premises.cluster_place(false);
    Ok(Joining::new((cluster, place), wanted, directory, addresses, premises.shards()))
}

fn join_cluster(
    config: &ServerConfig,
    premises: &Arc<dyn Premises>,
    manifest: &Manifest,
    addresses: ServerAddresses,
) -> Result<Place, ServerError> {
    let directory = premises.directory();
    let shards_wanted = premises.shards();
    if let MasterPlace::Remote(address) = config.master {
        let registration = premises.register(address, joining(config, &**premises, addresses)?)?;
        premises.save_cluster(registration.map.cluster())?;
        let name = registration.cluster_name;
        if name.is_some() && name != premises.load_cluster_name()? {
            premises.save_cluster_name(name.as_deref().unwrap_or_default())?;
        }
        let link = MasterLink::remote(address, registration.clients);
        manifest.keep_seed(registration.hash_seed, master_address(config))?;
        let (server, shards, map) = (registration.server, registration.shards, registration.map);
        return Ok(Place { server, shards, map, link, name });
    }
    let master = match premises.load_master()? {
        Some(bytes) => Master::decode(&bytes).map_err(|error| ServerError::BadMaster {
            path: premises.place(),
            detail: error.to_string(),
        })?,
        None => {
            let (cluster, seed) = (ClusterId::new(premises.draw()), HashSeed(premises.draw()));
            Master::create(cluster, config.cluster_shards.unwrap_or(shards_wanted), seed)
                .map_err(ServerError::part)?
        }
    };
    let cluster = master.cluster();
    let mut name = premises.load_cluster_name()?;
    if let Some(wanted) = config.cluster.as_deref().map(ClusterName::parse).transpose()? {
        if name.is_none() && !wanted.is_id_of(cluster) {
            premises.save_cluster_name(wanted.as_str())?;
            name = Some(wanted.as_str().to_owned());
        }
        let place = if name.is_some() { premises.cluster_place(true) } else { premises.place() };
        wanted.check(&place, cluster, name.as_deref())?;
    }
    let mut link = MasterLink::embedded(master, Arc::clone(premises));
    let command = MasterCommand::RegisterServer { cluster, directory, addresses, shards_wanted };
    match link.execute(command).map_err(ServerError::part)? {
        (MasterAnswer::Server { server, hash_seed, shards, map }, _) => {
            manifest.keep_seed(hash_seed, master_address(config))?;
            Ok(Place { server, shards, map, link, name })
        }
        _ => Err(ServerError::Internal("the master answered something else than asked".to_owned())),
    }
}
