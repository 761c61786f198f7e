//! From a scenario and a seed to the world that is run: what the file says, what is usual here, and what the seed draws.
//!
//! Rare paths are made common: blocks of a few pages, caches of a few records, early checkpoints, short log files. A swarm draws
//! all of it, and which faults strike, so that no two seeds meet the same world.

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_clock::SkewModel;
use timestone_flash::FlashPace;
use timestone_server::{StageLayout, Tuning};
use timestone_wal::DeviceKind;
use timestone_wal::device::memory::DiskPace;

use crate::board::Work;
use crate::cost::Costs;
use crate::fault::{FaultKind, FaultPlan};
use crate::network::LinkModel;
use crate::premises::{DevicePace, FlashShape};
use crate::scenario::{Kind, Scenario};
use crate::seed::{Dice, Seed};
use crate::world::WorldConfig;

/// Everything that decides a run.
pub(crate) struct Drawn {
    pub(crate) world: WorldConfig,
    pub(crate) work: Work,
    pub(crate) faults: BTreeMap<FaultKind, FaultPlan>,
    pub(crate) length: Duration,
    /// From one transaction of a session to its next.
    pub(crate) interval: Duration,
    /// The furthest that a clock is set forward or back.
    pub(crate) jump: Duration,
    /// Whether commits wait until the clock's error bound has passed.
    pub(crate) external: bool,
}

/// Draws a world.
pub(crate) fn draw(scenario: &Scenario, seed: Seed, costs: &Costs) -> Drawn {
    let mut dice = seed.derive("swarm", 0).dice();
    let swarm = scenario.swarm.draw;
    let cluster = scenario.cluster.clone();
    let usual = Sizes::of(scenario);
    let mut world = WorldConfig {
        servers: cluster.servers,
        shards_per_server: cluster.shards,
        threads: cluster.threads,
        vary_threads: cluster.vary_threads,
        layout: cluster.layout,
        cores: cluster.cores,
        together: cluster.together,
        clients: cluster.clients,
        sessions: cluster.sessions,
        regions: cluster.regions,
        links: links(scenario),
        skew: cluster.clocks,
        pace: pace(scenario, costs),
        flash: flash(scenario),
        tuning: tuning(scenario),
        cache_bytes: scenario.storage.cache_bytes.unwrap_or(usual.cache_bytes),
        capacity_bytes: scenario.storage.capacity_bytes.unwrap_or(usual.capacity_bytes),
        engine: engine(scenario),
        log: scenario.storage.log.unwrap_or(DeviceKind::Ssd),
        costs: costs.scaled(cluster.slowness).placed(
            cluster.together,
            cluster.cores,
            cluster.layout == StageLayout::Staged,
        ),
        stopwatch: None,
    };
    let mut faults = scenario.fault_plans();
    if swarm {
        draw_cluster(&mut world, &mut dice);
        let staged = seed.derive("layout", 0).dice().chance(0.3);
        world.layout = if staged { StageLayout::Staged } else { StageLayout::Fused };
        world.vary_threads |= seed.derive("vary-threads", 0).dice().chance(0.5);
        draw_storage(&mut world, scenario, &mut dice);
        draw_faults(&mut faults, &mut dice, scenario);
    }
    let external =
        scenario.workload.external.unwrap_or_else(|| swarm && seed.derive("external", 0).dice().chance(0.25));
    world.tuning.block_bytes = u64::from(world.flash.pages_per_block) * 4096;
    let spec = scenario.spec(seed.derive("workload", 0).0);
    let work = match scenario.workload.kind {
        Kind::Cycle => Work::Ring { nodes: spec.keys, spec },
        Kind::Plans(_) => Work::Plans(spec),
    };
    let sessions = f64::from(world.clients * world.sessions);
    Drawn {
        work,
        faults,
        length: Duration::from_nanos((scenario.workload.seconds * 1e9) as u64),
        interval: if scenario.workload.closed {
            Duration::ZERO
        } else {
            Duration::from_nanos((sessions / scenario.workload.rate * 1e9) as u64)
        },
        jump: scenario.cluster.jump.0,
        external,
        world,
    }
}

fn links(scenario: &Scenario) -> LinkModel {
    let part = &scenario.network;
    let usual = LinkModel::default();
    LinkModel {
        near: part.near.map_or(usual.near, |span| span.0),
        // Within a machine, bytes are copied: that costs time of processors, not of a wire.
        bytes_per_second: if scenario.cluster.together { u64::MAX } else { usual.bytes_per_second },
        far: part.far.map_or(usual.far, |span| span.0),
        jitter: part.jitter.unwrap_or(usual.jitter),
        ..usual
    }
}

fn pace(scenario: &Scenario, costs: &Costs) -> DevicePace {
    let part = &scenario.storage;
    let micros = Duration::from_micros;
    if part.as_served {
        return costs.pace();
    }
    DevicePace {
        flash: FlashPace {
            read: part.read.map_or(micros(80), |span| span.0),
            program: micros(200),
            per_page: micros(2),
            erase: micros(1_000),
            sync: micros(500),
            spread: micros(100),
            seed: 0,
        },
        disk: DiskPace {
            write: part.log_write.map_or(micros(150), |span| span.0),
            write_per_kib: Duration::from_nanos(400),
            change: part.log_change.map_or(micros(2_000), |span| span.0),
            spread: micros(100),
            seed: 0,
        },
    }
}

/// Sizes that hold unless the file says otherwise: small ones, or those of `timestone serve`.
struct Sizes {
    block_pages: u32,
    cache_bytes: u64,
    capacity_bytes: u64,
    tuning: Tuning,
}

impl Sizes {
    fn of(scenario: &Scenario) -> Self {
        let mut tuning = Tuning::of(scenario.storage.log.unwrap_or(DeviceKind::Ssd));
        if scenario.storage.as_served {
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

fn flash(scenario: &Scenario) -> FlashShape {
    FlashShape {
        pages_per_block: scenario.storage.block_pages.unwrap_or(Sizes::of(scenario).block_pages),
        shuffle: scenario.storage.shuffle.unwrap_or(!scenario.storage.as_served),
    }
}

fn tuning(scenario: &Scenario) -> Tuning {
    let part = &scenario.storage;
    let mut tuning = Sizes::of(scenario).tuning;
    tuning.checkpoint_bytes = part.checkpoint_bytes.unwrap_or(tuning.checkpoint_bytes);
    if let Some(delay) = part.packing_delay {
        tuning.packing_delay = delay.0;
        tuning.partial_page_delay = delay.0 * 4;
    }
    tuning.sync_interval = part.sync_interval.map_or(tuning.sync_interval, |span| span.0);
    tuning.log.file_bytes = part.log_file_bytes.unwrap_or(tuning.log.file_bytes).next_multiple_of(4096);
    tuning.log.block_bytes = part.log_block_bytes.unwrap_or(tuning.log.block_bytes).next_multiple_of(4096);
    tuning.log.file_bytes = tuning.log.file_bytes.max(2 * tuning.log.block_bytes as u64);
    if let Some(span) = part.decision_timeout {
        tuning.participant.decision_timeout = span.0;
    }
    tuning
}

fn engine(scenario: &Scenario) -> timestone_client::EngineConfig {
    let usual = timestone_client::EngineConfig::default();
    timestone_client::EngineConfig {
        request_timeout: scenario.network.request_timeout.map_or(usual.request_timeout, |span| span.0),
        ..usual
    }
}

fn draw_cluster(world: &mut WorldConfig, dice: &mut Dice) {
    world.servers = dice.between(1, 5) as u32;
    world.shards_per_server = dice.between(1, 4) as u16;
    world.threads = dice.between(1, 2) as usize;
    world.cores = dice.between(1, 4) as usize;
    world.clients = dice.between(1, 8) as u32;
    world.sessions = dice.between(1, 4) as u32;
    world.regions = dice.between(1, 3) as u32;
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
    // As many request timeouts as by default, so that connections are given up often.
    world.engine.silence_limit = world.engine.request_timeout * 5;
    world.engine.report_interval = Duration::from_millis(dice.between(20, 200));
    world.engine.wait = dice.chance(0.7);
    world.costs.scale = dice.between(1, 20) as f64 / 2.0;
}

fn draw_storage(world: &mut WorldConfig, scenario: &Scenario, dice: &mut Dice) {
    let part = &scenario.storage;
    let tuning = &mut world.tuning;
    if part.block_pages.is_none() {
        world.flash.pages_per_block = 1 << dice.between(2, 6);
    }
    if part.cache_bytes.is_none() {
        world.cache_bytes = [0, 16 * 1024, 256 * 1024, 4 * 1024 * 1024][dice.below(4) as usize];
    }
    if part.checkpoint_bytes.is_none() {
        tuning.checkpoint_bytes = 1 << dice.between(14, 22);
    }
    if part.packing_delay.is_none() {
        tuning.packing_delay = Duration::from_micros(dice.between(50, 10_000));
        tuning.partial_page_delay = tuning.packing_delay * dice.between(1, 8) as u32;
    }
    if part.sync_interval.is_none() {
        tuning.sync_interval = Duration::from_millis(dice.between(1, 200));
    }
    if part.log_block_bytes.is_none() {
        tuning.log.block_bytes = 4096 * dice.between(1, 8) as usize;
    }
    if part.log_file_bytes.is_none() {
        tuning.log.file_bytes = (4096 * dice.between(16, 128)).max(2 * tuning.log.block_bytes as u64);
    }
    tuning.log.carry_after_files = dice.between(1, 4) as usize;
    if part.decision_timeout.is_none() {
        tuning.participant.decision_timeout = Duration::from_millis(dice.between(100, 2_000));
    }
    tuning.participant.prepared_wait = Duration::from_millis(dice.between(1, 60));
    tuning.participant.vote_later = dice.chance(0.8);
    world.flash.shuffle = dice.chance(0.8);
}

/// Each kind of fault is on in two of five worlds, each with its own frequency.
fn draw_faults(faults: &mut BTreeMap<FaultKind, FaultPlan>, dice: &mut Dice, scenario: &Scenario) {
    for kind in FaultKind::all().filter(|kind| !kind.is_damage()) {
        let (on, every, lasting) = (dice.chance(0.4), dice.between(300, 6_000), dice.between(20, 2_000));
        if scenario.faults.contains_key(&kind) || !on {
            continue;
        }
        let lasting = Duration::from_millis(lasting).min(kind.usual_length() * 4);
        faults.insert(kind, FaultPlan { every: Duration::from_millis(every), lasting });
    }
}
