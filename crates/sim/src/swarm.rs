//! From a scenario and a seed to the world that is run: what is usual here, what the seed draws,
//! and what the file says.
//!
//! ```text
//!   usual ─► drawn, in a swarm ─► as the file says ─► WorldConfig
//! ```
//! Rare paths are made common: blocks of a few pages, caches of a few records, early checkpoints,
//! short log files. A swarm draws these sizes, the cluster, delays, and which faults strike, so
//! that no two seeds meet the same world; what the file says holds whatever is drawn. Invariant:
//! everything is drawn in any case, in one order, so that a file that says more meets the same
//! world in all else.

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_client::{EngineConfig, ReadOnlyCommit};
use timestone_clock::SkewModel;
use timestone_cluster::{ControllerLimits, ReplicationFactor};
use timestone_flash::FlashPace;
use timestone_server::limits::MAX_LEASE;
use timestone_server::{StageLayout, Tuning};
use timestone_wal::DeviceKind;
use timestone_wal::device::memory::DiskPace;
use timestone_workload::redis::Mix;

use crate::board::ClientWork;
use crate::environment::FlashShape;
use crate::fault::{FaultKind, FaultPlan};
use crate::network::LinkModel;
use crate::redis::RedisWork;
use crate::restarts::Vary;
use crate::scenario::{ProtocolPart, Scenario, StoragePart, WorkloadChoice};
use crate::world::{ClientsTime, MachineConfig, Members, StorageConfig, WorldConfig};
use timestone_costmodel::Costs;
use timestone_costmodel::DevicePace;
use timestone_types::random::{Dice, Seed};

/// Everything that decides a run.
pub(crate) struct Drawn {
    pub(crate) world: WorldConfig,
    pub(crate) work: ClientWork,
    /// What Redis clients do, if there are any.
    pub(crate) redis: Option<RedisWork>,
    pub(crate) faults: BTreeMap<FaultKind, FaultPlan>,
    pub(crate) length: Duration,
    /// From one transaction of a session to its next.
    pub(crate) interval: Duration,
    /// The furthest that a clock is set forward or back.
    pub(crate) jump: Duration,
    /// Whether commits wait until the clock's error bound has passed.
    pub(crate) external: bool,
}

/// Servers of a cluster of which nothing is said.
pub(crate) const SERVERS: u32 = 3;
/// Shards of each.
pub(crate) const SHARDS: u16 = 2;
/// The furthest that a clock is set, when nothing is said: less than servers accept as a lead.
const JUMP: Duration = Duration::from_millis(400);
/// Bytes of a cache that a swarm varies, at most, and of a capacity.
const VARIED_CACHE: u64 = 4 * 1024 * 1024;
const VARIED_CAPACITY: u64 = 128 * 1024 * 1024;
/// Request timeouts until a connection is given up: as many as by default, so that this happens
/// often.
const SILENT_TIMEOUTS: u32 = 5;

/// Processes of Redis clients of which nothing is said, and connections of each.
const REDIS_CLIENTS: u32 = 3;
const REDIS_CONNECTIONS: u32 = 2;
/// In front of the keys of Redis clients that share their keyspace with others.
const REDIS_PREFIX: &str = "redis:";

/// Makes a world: the usual one, with what is drawn, with what the file says.
pub(crate) fn draw(scenario: &Scenario, seed: Seed, costs: &Costs) -> Drawn {
    let swarm = scenario.swarm.draw;
    let mut world = usual(scenario, costs);
    let mut faults = scenario.fault_plans();
    if swarm {
        let mut dice = seed.derive("swarm", 0).dice();
        draw_cluster(&mut world, &mut dice);
        let staged = seed.derive("layout", 0).dice().chance(0.3);
        world.machine.layout = if staged { StageLayout::Staged } else { StageLayout::Fused };
        world.vary = draw_vary(seed);
        world.clients_time.is_followed = seed.derive("server-time", 0).dice().chance(0.5);
        draw_storage(&mut world, &mut dice);
        draw_faults(&mut faults, &mut dice, scenario);
    }
    say_cluster(&mut world, scenario);
    say_storage(&mut world, scenario);
    say_protocol(&mut world, scenario.protocol);
    if swarm {
        world.engine.silence_limit = world.engine.request_timeout * SILENT_TIMEOUTS;
    }
    world.storage.tuning.block_bytes = u64::from(world.storage.flash.pages_per_block) * 4096;
    // A drawn layout costs nothing more on several cores: how slow machines are is drawn as well.
    let staged = scenario.cluster.layout == Some(StageLayout::Staged);
    world.machine.costs =
        world.machine.costs.placed(world.machine.together, world.machine.cores, staged);
    let external = scenario.workload.demands.external.map_or_else(
        || swarm && seed.derive("external", 0).dice().chance(0.25),
        |external| external.0,
    );
    let spec = scenario.spec(seed.derive("workload", 0).0);
    let work = match scenario.workload.kind {
        WorkloadChoice::Cycle => ClientWork::Ring { nodes: spec.keys, spec },
        WorkloadChoice::Plans(_) | WorkloadChoice::Redis => ClientWork::Plans(spec),
    };
    let redis = redis_work(&mut world, scenario, seed);
    replicate(&mut world, scenario);
    if swarm && world.members.servers == 1 && seed.derive("embedded", 0).dice().chance(0.5) {
        world.members.embedded_sessions = world.members.sessions;
    }
    let sessions = f64::from(world.members.all_sessions());
    Drawn {
        work,
        redis,
        faults,
        length: Duration::from_nanos((scenario.workload.seconds * 1e9) as u64),
        interval: if scenario.workload.closed {
            Duration::ZERO
        } else {
            Duration::from_nanos((sessions / scenario.workload.rate * 1e9) as u64)
        },
        jump: scenario.cluster.jump.map_or(JUMP, Duration::from),
        external,
        world,
    }
}

/// What Redis clients do, where the file wants some or a swarm draws them. A gateway serves the
/// shards of its own process and refuses all others by name, so that a world with Redis clients has
/// one server unless its file says otherwise; a swarm has several in a quarter of them.
fn redis_work(world: &mut WorldConfig, scenario: &Scenario, seed: Seed) -> Option<RedisWork> {
    let part = &scenario.redis;
    let alone = scenario.workload.kind == WorkloadChoice::Redis;
    let has_room = scenario.cluster.servers.is_none_or(|servers| servers == 1);
    let several = scenario.swarm.draw && seed.derive("redis-servers", 0).dice().chance(0.25);
    let drawn =
        scenario.swarm.draw && has_room && seed.derive("redis-clients", 0).dice().chance(0.25);
    let usual = if alone || drawn { REDIS_CLIENTS } else { 0 };
    world.members.redis_clients = part.clients.unwrap_or(usual);
    world.members.redis_keyspace = part.keyspace.clone();
    if alone {
        world.members.clients = 0;
    }
    if world.members.redis_clients == 0 {
        return None;
    }
    if !several {
        world.members.servers = scenario.cluster.servers.unwrap_or(1);
    }
    say(&mut world.members.redis_connections, part.connections);
    let connections = u64::from(world.members.redis_clients * world.members.redis_connections);
    let prefix = if alone { String::new() } else { REDIS_PREFIX.to_owned() };
    Some(RedisWork {
        mix: Mix { keys: part.keys, depth: part.depth, prefix, alone, lists: true },
        interval: Duration::from_nanos((connections as f64 / part.rate * 1e9) as u64),
        connections,
    })
}

/// What follows from the number of replicas: there are servers enough for them, whose master lives
/// outside of them, and each has a log.
fn replicate(world: &mut WorldConfig, scenario: &Scenario) {
    let members = &mut world.members;
    members.outside_master = scenario.cluster.outside_master || members.are_replicated();
    if members.are_replicated() {
        members.servers = members.servers.max(u32::from(members.replication.get()));
        world.vary.log = false;
    }
}

/// The world of a file that says nothing but how its devices are, and whether all processes are
/// together.
fn usual(scenario: &Scenario, costs: &Costs) -> WorldConfig {
    let (together, storage) = (scenario.cluster.together, &scenario.storage);
    let sizes = Sizes::of(storage);
    let links = LinkModel::default();
    WorldConfig {
        members: Members {
            servers: SERVERS,
            shards_per_server: SHARDS,
            replication: ReplicationFactor::ONE,
            outside_master: false,
            clients: 8,
            sessions: 2,
            embedded_sessions: 0,
            redis_clients: 0,
            redis_keyspace: None,
            redis_connections: REDIS_CONNECTIONS,
            regions: 1,
        },
        machine: MachineConfig {
            threads: 1,
            layout: StageLayout::Fused,
            cores: 2,
            together,
            costs: costs.clone(),
            stopwatch: None,
        },
        storage: StorageConfig {
            pace: if storage.as_served { costs.pace() } else { pace() },
            flash: FlashShape {
                pages_per_block: sizes.block_pages,
                shuffle: !storage.as_served,
                frugal_slowness: storage.frugal_slowness.unwrap_or(1),
            },
            tuning: sizes.tuning,
            controller: ControllerLimits::default(),
            lease: MAX_LEASE,
            cache_bytes: sizes.cache_bytes,
            capacity_bytes: sizes.capacity_bytes,
            dram_bytes: scenario.keyspaces.dram_bytes,
            log: device(storage),
        },
        vary: Vary::default(),
        // Within a machine, bytes are copied: that costs time of processors, not of a wire.
        links: LinkModel {
            bytes_per_second: if together { u64::MAX } else { links.bytes_per_second },
            ..links
        },
        skew: SkewModel::Ptp,
        clients_time: ClientsTime::default(),
        engine: EngineConfig::default(),
    }
}

/// How fast devices are that nobody measured.
pub(crate) fn pace() -> DevicePace {
    let micros = Duration::from_micros;
    DevicePace {
        flash: FlashPace {
            read: micros(80),
            program: micros(200),
            per_page: micros(2),
            erase: micros(1_000),
            sync: micros(500),
            spread: micros(100),
            seed: 0,
        },
        disk: DiskPace {
            write: micros(150),
            write_per_kib: Duration::from_nanos(400),
            change: micros(2_000),
            spread: micros(100),
            seed: 0,
        },
    }
}

fn device(storage: &StoragePart) -> DeviceKind {
    storage.log.device.map_or(DeviceKind::Ssd, |log| log.0)
}

/// Sizes that hold unless the file says otherwise: small ones, or those of `timestone serve`.
pub(crate) struct Sizes {
    pub(crate) block_pages: u32,
    cache_bytes: u64,
    pub(crate) capacity_bytes: u64,
    pub(crate) tuning: Tuning,
}

impl Sizes {
    pub(crate) fn of(storage: &StoragePart) -> Self {
        let mut tuning = Tuning::of(device(storage));
        if storage.as_served {
            let block_pages = u32::try_from(tuning.block_bytes / 4096).unwrap_or(u32::MAX);
            return Self { block_pages, cache_bytes: 1 << 30, capacity_bytes: 8 << 30, tuning };
        }
        tuning.checkpoint_bytes = 512 * 1024;
        tuning.packing_delay = Duration::from_millis(2);
        tuning.partial_page_delay = tuning.packing_delay * 4;
        tuning.sync_interval = Duration::from_millis(50);
        tuning.log.file_bytes = 256 * 1024;
        tuning.log.block_bytes = 16 * 1024;
        Self { block_pages: 8, cache_bytes: 256 * 1024, capacity_bytes: 32 * 1024 * 1024, tuning }
    }
}

/// How slow the network and the machines may be of which nothing is said.
pub(crate) struct Slowest {
    pub(crate) near: Duration,
    pub(crate) far: Duration,
    pub(crate) jitter: f64,
    pub(crate) regions: u32,
    pub(crate) slowness: f64,
}

impl Slowest {
    /// The ends of what [`draw_cluster`] draws, or what is usual.
    pub(crate) fn of(drawn: bool) -> Self {
        if drawn {
            let (near, far) = (Duration::from_micros(500), Duration::from_millis(40));
            return Self { near, far, jitter: 2.0, regions: 3, slowness: 10.0 };
        }
        let LinkModel { near, far, jitter, .. } = LinkModel::default();
        Self { near, far, jitter, regions: 1, slowness: 1.0 }
    }
}

/// What the file says takes the place of what is usual or was drawn.
fn say<T>(place: &mut T, said: Option<impl Into<T>>) {
    if let Some(said) = said {
        *place = said.into();
    }
}

fn say_cluster(world: &mut WorldConfig, scenario: &Scenario) {
    let (part, network) = (&scenario.cluster, &scenario.network);
    say(&mut world.members.servers, part.servers);
    say(&mut world.members.shards_per_server, part.shards);
    say(&mut world.members.replication, part.replication);
    say(&mut world.machine.threads, part.threads);
    say(&mut world.vary.threads, part.vary_threads);
    say(&mut world.vary.layout, part.vary_layout);
    say(&mut world.machine.layout, part.layout);
    say(&mut world.machine.cores, part.cores);
    say(&mut world.members.clients, part.clients);
    say(&mut world.members.sessions, part.sessions);
    say(&mut world.members.embedded_sessions, part.embedded_sessions);
    say(&mut world.members.regions, part.regions);
    say(&mut world.skew, part.clocks);
    let time = &mut world.clients_time;
    say(&mut time.is_followed, part.server_time);
    say(&mut time.lie, part.lie);
    time.skew = part.client_clocks.or(time.skew);
    say(&mut world.machine.costs.scale, part.slowness);
    world.machine.costs.scale *=
        part.neighbours.map_or(1.0, |times| world.machine.costs.beside(times));
    say(&mut world.links.near, network.near);
    say(&mut world.links.far, network.far);
    say(&mut world.links.jitter, network.jitter);
    say(&mut world.links.bytes_per_second, network.bandwidth);
    say(&mut world.engine.request_timeout, network.request_timeout);
}

/// How often clients report that spread watermarks by their transactions: often enough to be taken for
/// alive, and hardly ever while there are transactions.
const SELDOM: Duration = Duration::from_millis(500);

fn say_protocol(world: &mut WorldConfig, part: ProtocolPart) {
    say(&mut world.engine.wait, part.wait);
    if part.local_validation == Some(false) {
        let is_recorded = part.recorded_reads == Some(true);
        world.engine.read_only =
            if is_recorded { ReadOnlyCommit::Recorded } else { ReadOnlyCommit::Remotely };
    }
    if let Some(every) = part.watermark_every {
        world.engine.read_only = ReadOnlyCommit::BelowWatermark { every };
        world.engine.report_interval = SELDOM;
        world.storage.tuning.participant.watermark_lag = Duration::ZERO;
        world.storage.tuning.participant.notes_reads = false;
    }
    say(&mut world.storage.tuning.single_version, part.single_version);
    say(&mut world.storage.tuning.participant.vote_later, part.later);
}

fn say_storage(world: &mut WorldConfig, scenario: &Scenario) {
    let (replica, controller) = (&scenario.storage.replica, &mut world.storage.controller);
    say(&mut controller.replace_after, replica.replace_after);
    say(&mut controller.detection, replica.detection);
    say(&mut world.storage.lease, replica.lease);
    let (part, tuning) = (&scenario.storage, &mut world.storage.tuning);
    say(&mut world.storage.flash.pages_per_block, part.block_pages);
    say(&mut world.storage.flash.shuffle, part.shuffle);
    say(&mut world.storage.capacity_bytes, part.capacity_bytes);
    say(&mut world.storage.cache_bytes, part.cache_bytes);
    say(&mut world.vary.log, part.vary.log);
    say(&mut world.vary.index, part.vary.index);
    if part.vary.cache.is_some() {
        world.vary.cache_bytes = part.vary.cache;
    }
    if part.vary.capacity.is_some() {
        world.vary.capacity_bytes = part.vary.capacity;
    }
    say(&mut world.storage.pace.flash.read, part.read);
    say(&mut world.storage.pace.disk.write, part.log.write);
    say(&mut world.storage.pace.disk.change, part.log.change);
    say(&mut tuning.checkpoint_bytes, part.checkpoint_bytes);
    say(&mut tuning.retention.bytes, part.replica.kept_bytes);
    say(&mut tuning.sync_interval, part.sync_interval);
    say(&mut tuning.participant.decision_timeout, part.decision_timeout);
    say(&mut tuning.run_interval, part.run_interval);
    say(&mut tuning.packing_delay, part.packing_delay);
    say(&mut tuning.partial_page_delay, part.packing_delay.map(|delay| delay.0 * 4));
    say(
        &mut tuning.log.block_bytes,
        part.log.block_bytes.map(|bytes| bytes.next_multiple_of(4096)),
    );
    say(&mut tuning.log.file_bytes, part.log.file_bytes.map(|bytes| bytes.next_multiple_of(4096)));
    // A file of which nothing is said has room for two blocks of which something is.
    tuning.log.file_bytes = tuning.log.file_bytes.max(2 * tuning.log.block_bytes as u64);
}

fn draw_cluster(world: &mut WorldConfig, dice: &mut Dice) {
    world.members.servers = dice.between(1, 5) as u32;
    world.members.shards_per_server = dice.between(1, 4) as u16;
    world.machine.threads = dice.between(1, 2) as usize;
    world.machine.cores = dice.between(1, 4) as usize;
    world.members.clients = dice.between(1, 8) as u32;
    world.members.sessions = dice.between(1, 4) as u32;
    world.members.regions = dice.between(1, 3) as u32;
    let models = [
        SkewModel::Perfect,
        SkewModel::Ptp,
        SkewModel::AzurePtp,
        SkewModel::Ntp,
        SkewModel::Given(Duration::from_millis(20)),
    ];
    world.skew = dice.pick(&models).copied().unwrap_or_default();
    world.links.near = Duration::from_micros(dice.between(20, 500));
    world.links.far = Duration::from_millis(dice.between(1, 40));
    world.links.jitter = dice.below(200) as f64 / 100.0;
    world.engine.request_timeout = Duration::from_millis(dice.between(50, 1_000));
    world.engine.report_interval = Duration::from_millis(dice.between(20, 200));
    world.engine.wait = dice.chance(0.7);
    world.machine.costs.scale = dice.between(1, 20) as f64 / 2.0;
}

/// What a swarm's servers change from start to start: each in a quarter of the worlds, threads in
/// half of them.
fn draw_vary(seed: Seed) -> Vary {
    let one_in_four = |name| seed.derive(name, 0).dice().chance(0.25);
    Vary {
        threads: seed.derive("vary-threads", 0).dice().chance(0.5),
        layout: one_in_four("vary-layout"),
        log: one_in_four("vary-log"),
        index: false,
        cache_bytes: one_in_four("vary-cache").then_some(VARIED_CACHE),
        capacity_bytes: one_in_four("vary-capacity").then_some(VARIED_CAPACITY),
    }
}

fn draw_storage(world: &mut WorldConfig, dice: &mut Dice) {
    let tuning = &mut world.storage.tuning;
    world.storage.flash.pages_per_block = 1 << dice.between(2, 6);
    world.storage.cache_bytes = [0, 16 * 1024, 256 * 1024, 4 * 1024 * 1024][dice.below(4) as usize];
    tuning.checkpoint_bytes = 1 << dice.between(14, 22);
    tuning.packing_delay = Duration::from_micros(dice.between(50, 10_000));
    tuning.partial_page_delay = tuning.packing_delay * dice.between(1, 8) as u32;
    tuning.sync_interval = Duration::from_millis(dice.between(1, 200));
    tuning.log.block_bytes = 4096 * dice.between(1, 8) as usize;
    tuning.log.file_bytes = 4096 * dice.between(16, 128);
    tuning.log.copy_forward_after_files = dice.between(1, 4) as usize;
    tuning.participant.decision_timeout = Duration::from_millis(dice.between(100, 2_000));
    tuning.participant.prepared_wait = Duration::from_millis(dice.between(1, 60));
    tuning.participant.vote_later = dice.chance(0.8);
    world.storage.flash.shuffle = dice.chance(0.8);
}

/// Each kind of fault is on in two of five worlds, each with its own frequency.
fn draw_faults(faults: &mut BTreeMap<FaultKind, FaultPlan>, dice: &mut Dice, scenario: &Scenario) {
    for kind in FaultKind::all().filter(|kind| !kind.is_damage() && !kind.is_of_failover()) {
        let (on, every, lasting) =
            (dice.chance(0.4), dice.between(300, 6_000), dice.between(20, 2_000));
        // A disk that lies takes all that is promised of durability away, so that it is on in one
        // of ten.
        let on = on && (kind != FaultKind::LyingSync || dice.chance(0.25));
        if scenario.faults.contains_key(&kind) || !on {
            continue;
        }
        // Who reads nothing for a moment only is not noticed.
        let lasting = if kind == FaultKind::StalledReader { lasting * 10 } else { lasting };
        let lasting = Duration::from_millis(lasting).min(kind.usual_length() * 4);
        faults.insert(kind, FaultPlan { every: Duration::from_millis(every), lasting });
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use timestone_costmodel::CostTable;

    fn drawn(text: &str, seed: u64) -> Drawn {
        let scenario = Scenario::read("test.toml", text).unwrap();
        draw(&scenario, Seed(seed), &Costs::new(CostTable::usual().unwrap()))
    }

    fn shown(value: impl Debug) -> String {
        format!("{value:?}")
    }

    /// A table, a line of it, and what it decides, which a seed draws unless it is said.
    type Said = (&'static str, &'static str, fn(&Drawn) -> String, &'static str);

    const SAID: [Said; 41] = [
        ("cluster", "servers = 7", |drawn| shown(drawn.world.members.servers), "7"),
        ("cluster", "shards = 7", |drawn| shown(drawn.world.members.shards_per_server), "7"),
        ("cluster", "threads = 5", |drawn| shown(drawn.world.machine.threads), "5"),
        ("cluster", "vary-threads = false", |drawn| shown(drawn.world.vary.threads), "false"),
        ("cluster", "vary-threads = true", |drawn| shown(drawn.world.vary.threads), "true"),
        ("cluster", "vary-layout = true", |drawn| shown(drawn.world.vary.layout), "true"),
        ("storage", "vary-log = false", |drawn| shown(drawn.world.vary.log), "false"),
        ("storage", "vary-log = true", |drawn| shown(drawn.world.vary.log), "true"),
        ("storage", "vary-index = true", |drawn| shown(drawn.world.vary.index), "true"),
        ("storage", "vary-cache = 7", |drawn| shown(drawn.world.vary.cache_bytes), "Some(7)"),
        ("storage", "vary-cache = 0", |drawn| shown(drawn.world.vary.cache_bytes), "Some(0)"),
        (
            "storage",
            "vary-capacity = 50000000",
            |drawn| shown(drawn.world.vary.capacity_bytes),
            "Some(50000000)",
        ),
        ("cluster", "layout = \"fused\"", |drawn| shown(drawn.world.machine.layout), "Fused"),
        ("cluster", "layout = \"staged\"", |drawn| shown(drawn.world.machine.layout), "Staged"),
        ("cluster", "cores = 9", |drawn| shown(drawn.world.machine.cores), "9"),
        ("cluster", "clients = 17", |drawn| shown(drawn.world.members.clients), "17"),
        ("cluster", "sessions = 17", |drawn| shown(drawn.world.members.sessions), "17"),
        ("cluster", "regions = 9", |drawn| shown(drawn.world.members.regions), "9"),
        ("cluster", "clocks = \"7ms\"", |drawn| shown(drawn.world.skew), "Given(7ms)"),
        (
            "cluster",
            "client-clocks = \"7ms\"",
            |drawn| shown(drawn.world.clients_time.skew),
            "Some(Given(7ms))",
        ),
        (
            "cluster",
            "server-time = true",
            |drawn| shown(drawn.world.clients_time.is_followed),
            "true",
        ),
        (
            "cluster",
            "server-time = false",
            |drawn| shown(drawn.world.clients_time.is_followed),
            "false",
        ),
        ("cluster", "lie = \"7ms\"", |drawn| shown(drawn.world.clients_time.lie), "7ms"),
        ("cluster", "slowness = 0.25", |drawn| shown(drawn.world.machine.costs.scale), "0.25"),
        ("workload", "external = \"wait\"", |drawn| shown(drawn.external), "true"),
        ("network", "near = \"3ms\"", |drawn| shown(drawn.world.links.near), "3ms"),
        ("network", "far = \"77ms\"", |drawn| shown(drawn.world.links.far), "77ms"),
        (
            "network",
            "bandwidth = 2000000",
            |drawn| shown(drawn.world.links.bytes_per_second),
            "2000000",
        ),
        ("network", "jitter = 3.5", |drawn| shown(drawn.world.links.jitter), "3.5"),
        (
            "network",
            "request-timeout = \"20ms\"",
            |drawn| shown(drawn.world.engine.request_timeout),
            "20ms",
        ),
        (
            "storage",
            "block-pages = 3",
            |drawn| shown(drawn.world.storage.tuning.block_bytes),
            "12288",
        ),
        ("storage", "cache-bytes = 7", |drawn| shown(drawn.world.storage.cache_bytes), "7"),
        (
            "storage",
            "checkpoint-bytes = 9999",
            |drawn| shown(drawn.world.storage.tuning.checkpoint_bytes),
            "9999",
        ),
        (
            "storage",
            "packing-delay = \"20ms\"",
            |drawn| shown(drawn.world.storage.tuning.packing_delay),
            "20ms",
        ),
        (
            "storage",
            "sync-interval = \"300ms\"",
            |drawn| shown(drawn.world.storage.tuning.sync_interval),
            "300ms",
        ),
        (
            "storage",
            "log-file-bytes = 999999",
            |drawn| shown(drawn.world.storage.tuning.log.file_bytes),
            "1003520",
        ),
        (
            "storage",
            "log-block-bytes = 99999",
            |drawn| shown(drawn.world.storage.tuning.log.block_bytes),
            "102400",
        ),
        (
            "storage",
            "decision-timeout = \"50ms\"",
            |drawn| shown(drawn.world.storage.tuning.participant.decision_timeout),
            "50ms",
        ),
        (
            "storage",
            "run-interval = \"700ms\"",
            |drawn| shown(drawn.world.storage.tuning.run_interval),
            "700ms",
        ),
        ("storage", "shuffle = false", |drawn| shown(drawn.world.storage.flash.shuffle), "false"),
        ("storage", "shuffle = true", |drawn| shown(drawn.world.storage.flash.shuffle), "true"),
    ];

    #[test]
    fn what_the_file_says_is_not_drawn_and_changes_nothing_else_that_is() {
        for (table, line, decided, said) in SAID {
            let mut others = 0;
            for seed in 0..20 {
                let plain = drawn("[swarm]\ndraw = true", seed);
                let with = drawn(&format!("[{table}]\n{line}\n[swarm]\ndraw = true"), seed);
                assert_eq!(decided(&with), said, "{line} under seed {seed}");
                assert_eq!(with.faults, plain.faults, "{line} shifts what seed {seed} draws");
                others += u32::from(decided(&plain) != said);
            }
            assert!(others > 0, "no seed draws anything else than {line}");
        }
    }

    #[test]
    fn what_follows_from_a_value_follows_from_what_the_file_says() {
        let text = "[network]\nrequest-timeout = \"20ms\"\n[storage]\npacking-delay \
            = \"20ms\"\nlog-block-bytes = 4194304\n";
        for seed in 0..20 {
            let world = drawn(&format!("{text}[swarm]\ndraw = true"), seed).world;
            assert_eq!(world.engine.silence_limit, Duration::from_millis(100));
            assert_eq!(world.storage.tuning.partial_page_delay, Duration::from_millis(80));
            assert_eq!(world.storage.tuning.log.file_bytes, 2 * 4_194_304);
        }
    }

    #[test]
    fn neighbours_slow_work_down_by_more_than_arithmetic() {
        let scale = |text: &str| drawn(text, 1).world.machine.costs.scale;
        let (alone, beside) = (
            scale("[cluster]\nslowness = 2.0"),
            scale("[cluster]\nslowness = 2.0\nneighbours = 1.1"),
        );
        let more = CostTable::usual().unwrap().thread.neighbours;
        assert!(
            more > 1.0 && (beside / alone - (1.0 + more * 0.1)).abs() < 1e-9,
            "{alone} {beside}"
        );
    }

    #[test]
    fn no_world_is_slower_than_is_reckoned_with() {
        for (text, is_drawn) in [("", false), ("[swarm]\ndraw = true", true)] {
            let slowest = Slowest::of(is_drawn);
            for seed in 0..500 {
                let world = drawn(text, seed).world;
                assert!(world.links.near <= slowest.near && world.links.far <= slowest.far);
                assert!(
                    world.links.jitter <= slowest.jitter
                        && world.members.regions <= slowest.regions
                );
                assert!(world.machine.costs.scale <= slowest.slowness);
            }
        }
    }

    #[test]
    fn what_nobody_says_is_usual() {
        let usual = drawn("", 1);
        assert_eq!(
            (
                usual.world.members.servers,
                usual.world.members.shards_per_server,
                usual.faults.len()
            ),
            (SERVERS, SHARDS, 0)
        );
        let served = drawn("[storage]\nas-served = true\nread = \"7ms\"", 1).world;
        assert_eq!(
            (served.storage.cache_bytes, served.storage.pace.flash.read),
            (1 << 30, Duration::from_millis(7))
        );
    }
}
