//! What a scenario may ask for: every number and every span of time has a range, and what lies
//! outside of it is named with its place.
//!
//! A range ends where no world comes up, where none comes to rest within the time-outs of a run, or
//! where a machine's memory does: of such a file the file is to blame, and its run would blame the
//! code under test. Where two values bound each other, what the file leaves out counts as what is
//! usual.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::time::Duration;

use timestone_clock::SkewModel;
use timestone_cluster::ReplicationFactor;
use timestone_cluster::limits::MIN_DETECTION;
use timestone_flash::limits::{MAX_PAGES_PER_BLOCK, MIN_PAGES_PER_BLOCK};
use timestone_server::limits::{MAX_LEASE, MIN_BLOCKS, MIN_LEASE};
use timestone_wal::DeviceKind;
use timestone_wal::limits::{MAX_BLOCK_BYTES, MIN_FILE_BYTES, SECTOR_BYTES};
use timestone_workload::{WorkloadError, WorkloadKind, WorkloadSpec};

use crate::fault::FaultKind;
use crate::scenario::{ExternalWait, LogDevice, Scenario, TimeSpan, WorkloadChoice};
use crate::swarm::{SERVERS, SHARDS, Sizes, Slowest};

/// Operations of a transaction, at most: a larger one takes longer to make up than anybody waits.
const MOST_OPS: u32 = 1000;
/// Keys, at most: loading them, 64 in a transaction of some milliseconds, fills the minute that a
/// run has for it.
const MOST_KEYS: u64 = 1_000_000;
/// Keys of a ring: a turn of it is about three of them, and one transaction walks all, one after
/// the other.
const RING_KEYS: RangeInclusive<u64> = 3..=1000;
/// Appends to a key, at most: every one of them writes the whole list.
const MOST_APPENDS: u32 = 10_000;
/// Bytes of a log file, at most: it is in memory.
const MOST_LOG_FILE_BYTES: u64 = 1_000_000_000;
/// Bytes of a server's cache, at most: the table that finds its records is allocated at once.
const MOST_CACHE_BYTES: u64 = 8 << 30;
/// Bytes of a server's devices, at most, and of records between two checkpoints: they are in
/// memory.
const MOST_BYTES: u64 = 64 << 30;
/// The furthest that a clock may be set: it counts again when the others have caught up with it,
/// which a run has a minute for.
const JUMP: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(10);
/// By how much a clock may be ahead that does not say so: less than servers accept as a lead.
const LIE: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_millis(300);
/// How far clocks are apart on average: commits that wait for them do so for fifteen times as long.
const CLOCKS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_millis(200);
/// One way through the network: a server that joins has five seconds for four of them there and
/// back, participants have two for a decision.
const LATENCY: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_millis(200);
/// The same with what jitter adds to it.
const SLOWEST_LATENCY: Duration = Duration::from_millis(400);
/// A run reads all keys in the end, one after the other, and has a minute for it, of which commits
/// and repetitions take a part.
const AUDIT: Duration = Duration::from_secs(40);
/// What reading one takes besides its way through the network.
const READ: Duration = Duration::from_micros(200);
/// A request is looked at every millisecond, and is given up after ten seconds.
const REQUEST_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(10);
/// A participant asks others no more often than it looks at its timers, and no later than those who
/// wait for it have given up.
const DECISION_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(10);
/// Each number is a change of the master's state, and a sync of a small file.
const RUN_INTERVAL: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(3600);
/// An operation of a device: a transaction takes several of them one after the other.
const OPERATION: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_millis(500);
/// The same where slow disks make it up to 200 times slower still.
const SLOWED_OPERATION: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_millis(50);
/// A partly filled page waits for four times as long, and its log records with it.
const PACKING_DELAY: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(1);
/// A sync takes half a millisecond; the log keeps what none has covered.
const SYNC_INTERVAL: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(5);
/// Transactions of a client after which it spreads its watermark.
const WATERMARK_EVERY: RangeInclusive<u32> = 1..=1_000_000;
/// A watermark trails by a second in any case, and by ten more when a client has fallen silent.
const WATERMARK_LAG: RangeInclusive<Duration> =
    Duration::from_secs(12)..=Duration::from_secs(3_600);
/// Servers tell of themselves five times within it.
const DETECTION: RangeInclusive<Duration> = MIN_DETECTION..=Duration::from_secs(10);
/// A server is called lost after half a second, and another controller takes two seconds to be
/// elected first where it was the controller's.
const FAILOVER: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(60);
/// No answer comes sooner; and what is awaited for longer would outlive the run's time-outs.
const DEADLINE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
/// Twice as large, and a server of the usual size in scenarios is full of them.
const MOST_VALUE_BYTES: u32 = 1_000_000;
/// Keyspaces of a workload, at most: each is created before the run, one after the other.
const MOST_KEYSPACES: usize = 8;
/// Bytes of memory that a server has for keyspaces in memory: with less, a shard has no room for
/// its tables.
const MEMORY_BYTES: RangeInclusive<u64> = 65_536..=MOST_BYTES;
/// A value of 512 bytes takes half a millisecond of the slowest.
const BANDWIDTH: RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;
/// More often, and there is nothing but faults.
const FAULT_EVERY: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(86_400);
/// Whatever lasts longer lasts to the end of most runs, and is undone then.
const FAULT_LASTING: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(30);
/// A pause is not undone, may last half as long again as is said, and must be over before
/// transactions are awaited that begin in calm.
const PAUSE_LASTING: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(5);

/// A connection is closed half a minute after its client has read last; half as long again as is
/// said is a minute.
const READER_LASTING: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(40);

/// A value that makes no sense.
#[derive(Debug)]
pub(crate) struct Wrong {
    /// Its tables, and its key.
    pub(crate) path: Vec<&'static str>,
    /// What it is, and what would be allowed.
    pub(crate) what: String,
}

impl Wrong {
    fn new(path: &[&'static str], what: String) -> Self {
        Self { path: path.to_vec(), what }
    }
}

type Checked = Result<(), Wrong>;

/// What is left out is right.
fn within<T: PartialOrd + Debug>(
    path: &[&'static str],
    value: Option<T>,
    allowed: RangeInclusive<T>,
) -> Checked {
    match value {
        Some(value) if !allowed.contains(&value) => {
            let (low, high) = allowed.into_inner();
            Err(Wrong::new(path, format!("is {value:?}; it lies between {low:?} and {high:?}")))
        }
        _ => Ok(()),
    }
}

/// The same for a span of time.
fn lasts(
    path: &[&'static str],
    span: Option<TimeSpan>,
    allowed: RangeInclusive<Duration>,
) -> Checked {
    within(path, span.map(Duration::from), allowed)
}

/// The first value that makes no sense, if there is one.
pub(crate) fn check(scenario: &Scenario) -> Checked {
    check_cluster(scenario)?;
    check_workload(scenario)?;
    check_redis(scenario)?;
    check_keyspaces(scenario)?;
    check_storage(scenario)?;
    check_network(scenario)?;
    let every = scenario.protocol.watermark_every;
    within(&["protocol", "watermark-every"], every, WATERMARK_EVERY)?;
    for (kind, fault) in &scenario.faults {
        lasts(&["faults", kind.name(), "every"], Some(fault.every), FAULT_EVERY)?;
        let lasting = match kind {
            FaultKind::Pause | FaultKind::ClientPause => PAUSE_LASTING,
            FaultKind::StalledReader => READER_LASTING,
            _ => FAULT_LASTING,
        };
        lasts(&["faults", kind.name(), "lasting"], fault.lasting, lasting)?;
    }
    Ok(())
}

fn check_cluster(scenario: &Scenario) -> Checked {
    let part = &scenario.cluster;
    within(&["cluster", "servers"], part.servers, 1..=64)?;
    within(&["cluster", "shards"], part.shards, 1..=64)?;
    within(&["cluster", "threads"], part.threads, 1..=16)?;
    within(&["cluster", "cores"], part.cores, 1..=64)?;
    within(&["cluster", "clients"], part.clients, 1..=256)?;
    within(&["cluster", "sessions"], part.sessions, 1..=1024)?;
    within(&["cluster", "embedded-sessions"], part.embedded_sessions, 1..=1024)?;
    if part.embedded_sessions.is_some() && part.servers != Some(1) {
        let what =
            "is for servers = 1: embedded clients know the shards of their own process alone";
        return Err(Wrong::new(&["cluster", "embedded-sessions"], what.to_owned()));
    }
    within(&["cluster", "regions"], part.regions, 1..=16)?;
    within(&["cluster", "slowness"], part.slowness, 0.01..=1000.0)?;
    within(&["cluster", "neighbours"], part.neighbours, 1.0..=10.0)?;
    lasts(&["cluster", "jump"], part.jump, JUMP)?;
    within(&["cluster", "clocks"], part.clocks.map(SkewModel::average), CLOCKS)?;
    lasts(&["cluster", "lie"], part.lie, LIE)?;
    within(&["cluster", "client-clocks"], part.client_clocks.map(SkewModel::average), CLOCKS)?;
    check_replication(scenario)
}

/// What goes with several replicas of each shard, and what only with them.
fn check_replication(scenario: &Scenario) -> Checked {
    let (part, demands) = (&scenario.cluster, &scenario.workload.demands);
    let replicas = part.replication.unwrap_or(ReplicationFactor::ONE);
    let are_replicated = replicas != ReplicationFactor::ONE;
    if part.servers.is_some_and(|servers| servers < u32::from(replicas.get())) {
        let what = format!("are fewer than the {replicas} replicas of each shard");
        return Err(Wrong::new(&["cluster", "servers"], what));
    }
    if are_replicated && scenario.storage.log.device == Some(LogDevice(DeviceKind::None)) {
        let what = "is none, and what replicas acknowledge is in their logs".to_owned();
        return Err(Wrong::new(&["storage", "log"], what));
    }
    if are_replicated && scenario.storage.vary.log == Some(true) {
        let what = "is true, and what replicas acknowledge is in their logs".to_owned();
        return Err(Wrong::new(&["storage", "vary-log"], what));
    }
    let is_outside = part.outside_master || are_replicated;
    for &kind in scenario.faults.keys() {
        if kind.takes_a_copy() && !are_replicated {
            let what = "takes the only copy; it is for replication = 3 or 5 in [cluster]";
            return Err(Wrong::new(&["faults", kind.name()], what.to_owned()));
        }
        if kind == FaultKind::MasterGone && !is_outside {
            let what = "is for clusters with outside-master = true, or with several replicas";
            return Err(Wrong::new(&["faults", kind.name()], what.to_owned()));
        }
        if kind == FaultKind::RegionLoss && demands.failover_within.is_some() {
            let what = "takes more servers than there are to spare where failover-within is said";
            return Err(Wrong::new(&["faults", kind.name()], what.to_owned()));
        }
    }
    if !are_replicated && (demands.failover_within.is_some() || demands.failovers > 0) {
        let key = if demands.failovers > 0 { "failovers" } else { "failover-within" };
        let what = "is for replication = 3 or 5 in [cluster]".to_owned();
        return Err(Wrong::new(&["workload", key], what));
    }
    let staleness = scenario.workload.mix.max_staleness;
    if !are_replicated && staleness.is_some() {
        let what = "is for replication = 3 or 5 in [cluster]".to_owned();
        return Err(Wrong::new(&["workload", "max-staleness"], what));
    }
    lasts(&["workload", "max-staleness"], staleness, DEADLINE)?;
    let old_reads = demands.old_reads_within;
    if old_reads.is_some() && (staleness.is_none() || scenario.workload.mix.readers == 0) {
        let what = "is for max-staleness with readers".to_owned();
        return Err(Wrong::new(&["workload", "old-reads-within"], what));
    }
    lasts(&["workload", "old-reads-within"], old_reads, DEADLINE)?;
    lasts(&["workload", "failover-within"], demands.failover_within, FAILOVER)
}

fn check_workload(scenario: &Scenario) -> Checked {
    let part = &scenario.workload;
    within(&["workload", "rate"], Some(part.rate), 0.01..=1e6)?;
    within(&["workload", "seconds"], Some(part.seconds), 0.01..=86_400.0)?;
    lasts(&["workload", "watermark-lag"], part.demands.watermark_lag, WATERMARK_LAG)?;
    if part.warmup.0.as_secs_f64() >= part.seconds {
        let what =
            format!("is {:?}; it is shorter than the run of {} s", part.warmup.0, part.seconds);
        return Err(Wrong::new(&["workload", "warmup"], what));
    }
    if part.closed && matches!(part.kind, WorkloadChoice::Cycle | WorkloadChoice::Redis) {
        let what = "is for the workloads of `timestone bench`, whose throughput it predicts; cycle \
            and redis are none of them";
        return Err(Wrong::new(&["workload", "closed"], what.to_owned()));
    }
    let is_register = part.kind == WorkloadChoice::Plans(WorkloadKind::Register);
    let does_not_wait = part.demands.external == Some(ExternalWait(false));
    if part.registers.singles && !(is_register && does_not_wait) {
        let what = "is for kind = \"register\" with external = \"none\"";
        return Err(Wrong::new(&["workload", "singles"], what.to_owned()));
    }
    let is_register = is_register && !part.closed;
    if part.registers.scans.is_some_and(|scans| scans > 0) && !is_register {
        return Err(Wrong::new(
            &["workload", "scans"],
            "is for kind = \"register\", which is not closed".to_owned(),
        ));
    }
    within(&["workload", "scans"], part.registers.scans, 0..=100)?;
    within(&["workload", "ranges"], Some(part.mix.ranges), 0..=100)?;
    if part.registers.singles && part.mix.ranges > 0 {
        let what = "is for scenarios without singles = true, whose keys are judged one by one";
        return Err(Wrong::new(&["workload", "ranges"], what.to_owned()));
    }
    within(&["workload", "give-ups"], Some(part.registers.give_ups), 0..=100)?;
    if part.registers.give_ups > 0 && !part.registers.singles {
        let what = "is for scenarios with singles = true".to_owned();
        return Err(Wrong::new(&["workload", "give-ups"], what));
    }
    let is_list = part.kind == WorkloadChoice::Plans(WorkloadKind::ListAppend) && !part.closed;
    if part.mix.ranges > 0 && !(is_register || is_list) {
        let what = "is for kind = \"list-append\" or \"register\", which is not closed".to_owned();
        return Err(Wrong::new(&["workload", "ranges"], what));
    }
    if matches!(part.kind, WorkloadChoice::Plans(kind) if kind.scans()) {
        let what = "is none of the simulator's: ranges = N has the transactions of list-append and register \
                    read ranges, and checks them";
        return Err(Wrong::new(&["workload", "kind"], what.to_owned()));
    }
    if part.registers.large.is_some() && !is_register {
        let what = "is for kind = \"register\", which is not closed".to_owned();
        return Err(Wrong::new(&["workload", "large"], what));
    }
    if !part.registers.singles && part.registers.expires.is_some() {
        let what = "is for scenarios with singles = true".to_owned();
        return Err(Wrong::new(&["workload", "expires"], what));
    }
    lasts(&["workload", "deadline"], part.demands.deadline, DEADLINE)?;
    lasts(&["workload", "expires"], part.registers.expires, DEADLINE)?;
    within(&["workload", "large"], part.registers.large, 1..=MOST_VALUE_BYTES)?;
    within(&["workload", "ops"], part.mix.ops, 1..=MOST_OPS)?;
    within(&["workload", "appends-per-key"], part.mix.appends_per_key, 1..=MOST_APPENDS)?;
    within(&["workload", "deletes"], part.mix.deletes, 0..=100)?;
    within(&["workload", "expiring"], part.mix.expiring, 0..=100)?;
    let spec = scenario.spec(0);
    spec.validate()
        .map_err(|error| Wrong::new(&["workload", key_of(&error)], error.to_string()))?;
    let keys = if part.kind == WorkloadChoice::Cycle { RING_KEYS } else { 1..=MOST_KEYS };
    within(&["workload", "keys"], part.mix.keys, keys)?;
    check_room(scenario, &spec)?;
    check_audit(scenario, &spec)
}

fn check_keyspaces(scenario: &Scenario) -> Checked {
    let (part, workload) = (&scenario.keyspaces, &scenario.workload);
    let wrong = |what: &str| Err(Wrong::new(&["keyspaces", "stores"], what.to_owned()));
    let knows_absence = matches!(
        workload.kind,
        WorkloadChoice::Plans(WorkloadKind::Register | WorkloadKind::ListAppend)
    );
    if !part.stores.is_empty() && (workload.closed || !knows_absence) {
        return wrong("is for kind = \"register\" and \"list-append\", which are not closed");
    }
    if part.stores.len() > MOST_KEYSPACES {
        return wrong(&format!("names {} keyspaces; {MOST_KEYSPACES} at most", part.stores.len()));
    }
    let varies = scenario.storage.vary.log.unwrap_or(scenario.swarm.draw);
    if part.has_memory()
        && (scenario.storage.log.device != Some(LogDevice(DeviceKind::None)) || varies)
    {
        return wrong(
            "has a keyspace in memory, for which servers have no log: it asks for log = \"none\" in \
             [storage], and for vary-log = false where a seed draws it",
        );
    }
    if part.has_frugal() && part.ordered {
        return wrong("has one with its index on flash, which keeps no order: ordered = false");
    }
    if !part.has_memory() && part.dram_bytes.is_some() {
        let what = "is for keyspaces in memory: no store is \"dram\"".to_owned();
        return Err(Wrong::new(&["keyspaces", "dram-bytes"], what));
    }
    within(&["keyspaces", "dram-bytes"], part.dram_bytes, MEMORY_BYTES)
}

fn check_redis(scenario: &Scenario) -> Checked {
    let part = &scenario.redis;
    within(&["redis", "clients"], part.clients, 0..=64)?;
    within(&["redis", "connections"], part.connections, 1..=64)?;
    within(&["redis", "rate"], Some(part.rate), 0.01..=1e6)?;
    within(&["redis", "keys"], Some(part.keys), 1..=1000)?;
    within(&["redis", "depth"], Some(part.depth), 1..=64)?;
    if scenario.workload.kind == WorkloadChoice::Redis && part.clients == Some(0) {
        return Err(Wrong::new(
            &["redis", "clients"],
            "is 0, and the workload is theirs".to_owned(),
        ));
    }
    Ok(())
}

/// What is loaded takes half of the room at most: the other half is for what it is overwritten
/// with.
fn check_room(scenario: &Scenario, spec: &WorkloadSpec) -> Checked {
    // A seed may draw a single server.
    let servers = scenario.cluster.servers.unwrap_or(if scenario.swarm.draw { 1 } else { SERVERS });
    let room =
        scenario.storage.capacity_bytes.unwrap_or(Sizes::of(&scenario.storage).capacity_bytes);
    let bytes = match spec.kind {
        // Values are integers of a few digits, in records with headers.
        WorkloadKind::Bank => 128,
        _ => spec.tuple_bytes as u64,
    };
    let replicas = scenario.cluster.replication.unwrap_or(ReplicationFactor::ONE);
    let copies = u64::from(replicas.get());
    let most = u64::from(servers).saturating_mul(room) / 2 / bytes / copies;
    if spec.loaded_keys() <= most {
        return Ok(());
    }
    let what = format!(
        "is {}; half of {servers} times the capacity-bytes of {room} holds {most}, of {bytes} \
         bytes each",
        spec.loaded_keys()
    );
    Err(Wrong::new(&["workload", "keys"], what))
}

/// A run that is checked can read all of its keys in the end.
fn check_audit(scenario: &Scenario, spec: &WorkloadSpec) -> Checked {
    let (part, network) = (&scenario.workload, &scenario.network);
    if part.closed {
        return Ok(());
    }
    let slowest = Slowest::of(scenario.swarm.draw);
    let near = network.near.map_or(slowest.near, Duration::from).as_secs_f64();
    let far = network.far.map_or(slowest.far, Duration::from).as_secs_f64();
    let jitter = network.jitter.unwrap_or(slowest.jitter);
    let regions = f64::from(scenario.cluster.regions.unwrap_or(slowest.regions));
    let beside = scenario
        .cluster
        .neighbours
        .map_or(1.0, |times| scenario.costs().map_or(1.0, |costs| costs.beside(times)));
    let slowness = scenario.cluster.slowness.unwrap_or(slowest.slowness) * beside;
    let way = (near + far.max(near) * (regions - 1.0)) / regions;
    let read = 2.0 * way * (1.0 + jitter / 2.0) + READ.as_secs_f64() * slowness;
    let most = (AUDIT.as_secs_f64() / read) as u64;
    // Of keys that are not loaded, those count that are written.
    let written = (part.rate * part.seconds * f64::from(spec.ops_per_txn)) as u64;
    let is_loaded = part.kind == WorkloadChoice::Cycle || spec.loaded_keys() > 0;
    let keys = if is_loaded { spec.keys } else { spec.keys.min(written) };
    if keys <= most {
        return Ok(());
    }
    let read = Duration::from_micros((read * 1e6) as u64);
    let what = format!(
        "is {}; at {read:?} each, {most} are read in the {AUDIT:?} that a run has for it",
        spec.keys
    );
    Err(Wrong::new(&["workload", "keys"], what))
}

fn check_storage(scenario: &Scenario) -> Checked {
    let (part, usual) = (&scenario.storage, Sizes::of(&scenario.storage));
    within(&["storage", "frugal-slowness"], part.frugal_slowness, 1..=10_000)?;
    within(
        &["storage", "block-pages"],
        part.block_pages,
        MIN_PAGES_PER_BLOCK..=MAX_PAGES_PER_BLOCK,
    )?;
    let block = u64::from(part.block_pages.unwrap_or(usual.block_pages)) * 4096;
    // A shard's device has some blocks, whatever is said.
    let shards = scenario.cluster.shards.unwrap_or(SHARDS);
    let least = u64::from(MIN_BLOCKS) * block * u64::from(shards);
    within(&["storage", "capacity-bytes"], part.capacity_bytes, least..=MOST_BYTES)?;
    let least = part.capacity_bytes.unwrap_or(usual.capacity_bytes);
    within(&["storage", "vary-capacity"], part.vary.capacity, least..=MOST_BYTES)?;
    within(&["storage", "cache-bytes"], part.cache_bytes, 0..=MOST_CACHE_BYTES)?;
    within(&["storage", "vary-cache"], part.vary.cache, 0..=MOST_CACHE_BYTES)?;
    within(&["storage", "checkpoint-bytes"], part.checkpoint_bytes, 4096..=MOST_BYTES)?;
    within(&["storage", "log-block-bytes"], part.log.block_bytes, SECTOR_BYTES..=MAX_BLOCK_BYTES)?;
    // Two blocks fit a file. A seed draws blocks that do in any case.
    let drawn = scenario.swarm.draw && part.log.block_bytes.is_none();
    let log_block = if drawn {
        SECTOR_BYTES
    } else {
        part.log.block_bytes.unwrap_or(usual.tuning.log.block_bytes)
    };
    let least = MIN_FILE_BYTES.max(2 * log_block.next_multiple_of(SECTOR_BYTES) as u64);
    within(&["storage", "log-file-bytes"], part.log.file_bytes, least..=MOST_LOG_FILE_BYTES)?;
    lasts(&["storage", "packing-delay"], part.packing_delay, PACKING_DELAY)?;
    lasts(&["storage", "sync-interval"], part.sync_interval, SYNC_INTERVAL)?;
    let is_slowed = scenario.swarm.draw || scenario.faults.contains_key(&FaultKind::SlowDisk);
    let operation = if is_slowed { SLOWED_OPERATION } else { OPERATION };
    lasts(&["storage", "replica-detection"], part.replica.detection, DETECTION)?;
    lasts(&["storage", "replica-lease"], part.replica.lease, MIN_LEASE..=MAX_LEASE)?;
    lasts(&["storage", "log-write"], part.log.write, operation.clone())?;
    lasts(&["storage", "log-change"], part.log.change, operation.clone())?;
    lasts(&["storage", "read"], part.read, operation)?;
    lasts(&["storage", "decision-timeout"], part.decision_timeout, DECISION_TIMEOUT)?;
    lasts(&["storage", "run-interval"], part.run_interval, RUN_INTERVAL)
}

fn check_network(scenario: &Scenario) -> Checked {
    let part = &scenario.network;
    lasts(&["network", "near"], part.near, LATENCY)?;
    lasts(&["network", "far"], part.far, LATENCY)?;
    lasts(&["network", "request-timeout"], part.request_timeout, REQUEST_TIMEOUT)?;
    within(&["network", "bandwidth"], part.bandwidth, BANDWIDTH)?;
    let longest = part.near.max(part.far).map_or(Duration::ZERO, Duration::from).as_secs_f64();
    let most = (SLOWEST_LATENCY.as_secs_f64() / longest - 1.0).min(10.0);
    within(&["network", "jitter"], part.jitter, 0.0..=most)
}

/// The key of a scenario that a workload's complaint is about.
fn key_of(error: &WorkloadError) -> &'static str {
    match error {
        WorkloadError::Parameter { name: "ops-per-txn", .. } => "ops",
        WorkloadError::Parameter { name: "delete-percent", .. } => "deletes",
        WorkloadError::Parameter { name: "expire-percent", .. } => "expiring",
        WorkloadError::Parameter { name, .. } => name,
        _ => "kind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table, a key, a value that is too small, the ends of what is allowed, and a value that is
    /// too large. No word where nothing is.
    type Range =
        (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

    const RANGES: [Range; 46] = [
        ("cluster", "servers", "0", "1", "64", "65"),
        ("cluster", "shards", "0", "1", "64", "65"),
        ("cluster", "threads", "0", "1", "16", "17"),
        ("cluster", "cores", "0", "1", "64", "65"),
        ("cluster", "clients", "0", "1", "256", "257"),
        ("cluster", "sessions", "0", "1", "1024", "1025"),
        ("cluster", "regions", "0", "1", "16", "17"),
        ("cluster", "slowness", "0.0", "0.01", "1000.0", "nan"),
        ("cluster", "slowness", "-1.0", "0.01", "1000.0", "inf"),
        ("cluster", "neighbours", "0.99", "1.0", "10.0", "nan"),
        ("cluster", "jump", "'0ns'", "'1µs'", "'10s'", "'11s'"),
        ("cluster", "clocks", "", "'0ns'", "'200ms'", "'201ms'"),
        ("cluster", "client-clocks", "", "'0ns'", "'200ms'", "'201ms'"),
        ("cluster", "lie", "'0ns'", "'1µs'", "'300ms'", "'301ms'"),
        ("workload", "rate", "0.0", "0.01", "1000000.0", "inf"),
        ("workload", "seconds", "0.0", "0.01", "86400.0", "86401.0"),
        ("workload", "keys", "", "1", "1000000", "1000001"),
        ("workload", "ops", "0", "1", "1000", "1001"),
        ("workload", "appends-per-key", "0", "1", "10000", "10001"),
        ("workload", "deadline", "'0ns'", "'1ms'", "'10s'", "'11s'"),
        ("workload", "deletes", "", "0", "100", "101"),
        ("storage", "frugal-slowness", "0", "1", "10000", "10001"),
        ("storage", "block-pages", "1", "2", "4096", "4097"),
        ("storage", "capacity-bytes", "1048575", "1048576", "68719476736", "9223372036854775807"),
        ("storage", "replica-detection", "'49ms'", "'50ms'", "'10s'", "'11s'"),
        ("storage", "replica-lease", "'49ms'", "'50ms'", "'1s'", "'2s'"),
        ("storage", "cache-bytes", "", "0", "8589934592", "9223372036854775807"),
        ("storage", "vary-cache", "", "0", "8589934592", "9223372036854775807"),
        ("storage", "vary-capacity", "33554431", "33554432", "68719476736", "9223372036854775807"),
        ("storage", "checkpoint-bytes", "0", "4096", "68719476736", "9223372036854775807"),
        ("storage", "packing-delay", "'0ns'", "'1µs'", "'1s'", "'9000000s'"),
        ("storage", "sync-interval", "'0ns'", "'1ms'", "'5s'", "'6s'"),
        ("storage", "log-file-bytes", "65535", "65536", "1000000000", "9223372036854775807"),
        ("storage", "log-block-bytes", "0", "4096", "4194304", "9223372036854775807"),
        ("storage", "log-write", "", "'0ns'", "'500ms'", "'501ms'"),
        ("storage", "log-change", "", "'0ns'", "'500ms'", "'501ms'"),
        ("storage", "read", "", "'0ns'", "'500ms'", "'501ms'"),
        ("storage", "decision-timeout", "'0ns'", "'1ms'", "'10s'", "'11s'"),
        ("storage", "run-interval", "'99ms'", "'100ms'", "'3600s'", "'3601s'"),
        ("protocol", "watermark-every", "0", "1", "1000000", "1000001"),
        ("network", "near", "'0ns'", "'1µs'", "'200ms'", "'201ms'"),
        ("network", "far", "'0ns'", "'1µs'", "'200ms'", "'201ms'"),
        ("network", "bandwidth", "999999", "1000000", "1000000000000", "9223372036854775807"),
        ("network", "jitter", "-0.5", "0.0", "10.0", "10.5"),
        ("network", "request-timeout", "'0ns'", "'1ms'", "'10s'", "'11s'"),
        ("faults", "kill.every", "'0ns'", "'1ms'", "'86400s'", "'86401s'"),
    ];

    #[test]
    fn every_value_has_a_range_that_is_told() {
        let read =
            |table, key, value| Scenario::read("file.toml", &format!("[{table}]\n{key} = {value}"));
        for (table, key, below, low, high, above) in RANGES {
            for right in [low, high] {
                read(table, key, right).unwrap();
            }
            for wrong in [below, above].into_iter().filter(|wrong| !wrong.is_empty()) {
                let said = read(table, key, wrong).unwrap_err().to_string();
                let told = format!(" is {wrong}; it lies between {low} and {high}")
                    .replace('\'', "")
                    .replace("nan", "NaN");
                assert!(
                    said.starts_with("file.toml, line 2: ") && said.ends_with(&told),
                    "{key} = {wrong}: {said}"
                );
                assert!(
                    said.contains(key) || said.contains("every in [faults.kill]"),
                    "{key} = {wrong}: {said}"
                );
            }
        }
    }

    #[test]
    fn values_bound_each_other() {
        for (broken, line, told) in [
            (
                "[storage]\nlog-block-bytes = 262145\nlog-file-bytes = 65536",
                3,
                "is 65536; it lies between 532480 and",
            ),
            (
                "[storage]\nas-served = true\nlog-file-bytes = 65536",
                3,
                "is 65536; it lies between 524288 and",
            ),
            (
                "[storage]\nblock-pages = 4096\ncapacity-bytes = 1048576",
                3,
                "it lies between 536870912 and",
            ),
            ("[network]\nfar = \"200ms\"\njitter = 3.0", 3, "is 3.0; it lies between 0.0 and 1.0"),
            (
                "[faults]\nslow-disk.every = \"1s\"\n[storage]\nlog-write = \"51ms\"",
                4,
                "is 51ms; it lies between 0ns and 50ms",
            ),
            (
                "[faults.pause]\nevery = \"1s\"\nlasting = \"6s\"",
                3,
                "is 6s; it lies between 0ns and 5s",
            ),
            (
                "[cluster]\nservers = 1\nembedded-sessions = 0",
                3,
                "is 0; it lies between 1 and 1024",
            ),
            ("[cluster]\nembedded-sessions = 4", 2, "is for servers = 1: embedded clients"),
            (
                "[workload]\nkind = \"register\"\ngive-ups = 3",
                3,
                "is for scenarios with singles = true",
            ),
            (
                "[workload]\nkind = \"register\"\nexternal = \"none\"\nsingles = true\nranges = 3",
                5,
                "whose keys are judged one by one",
            ),
            ("[workload]\nkind = \"cycle\"\nkeys = 2", 3, "is 2; it lies between 3 and 1000"),
            ("[workload]\nkind = \"retwis\"\nkeys = 98305", 3, "holds 98304, of 512 bytes each"),
            (
                "[workload]\nkind = \"retwis\"\nkeys = 98304\n[swarm]\ndraw = true",
                3,
                "holds 32768, of 512 bytes each",
            ),
            ("[workload]\nkind = \"bank\"\nkeys = 20000", 3, "10 000 accounts"),
            (
                "[cluster]\nregions = 3\n[workload]\nkind = \"retwis\"\nkeys = 2000",
                5,
                "796 are read in the 40s",
            ),
            ("[swarm]\ndraw = true\n[workload]\nkind = \"retwis\"", 3, "are read in the 40s"),
            (
                "[workload]\nkind = \"register\"\nexpires = '1s'",
                3,
                "is for scenarios with singles = true",
            ),
            (
                "[storage]\ncapacity-bytes = 9000000\nvary-capacity = 8999999",
                3,
                "it lies between 9000000 and",
            ),
            (
                "[workload]\nkind = \"list-append\"\nlarge = 9",
                3,
                "is for kind = \"register\", which is not closed",
            ),
            (
                "[workload]\nkind = \"register\"\nclosed = true\nlarge = 9",
                4,
                "is for kind = \"register\", which is not closed",
            ),
            (
                "[workload]\nkind = \"register\"\nsingles = true",
                3,
                "is for kind = \"register\" with external =",
            ),
            (
                "[faults.kill]\nevery = \"1s\"\nlasting = \"31s\"",
                3,
                "is 31s; it lies between 0ns and 30s",
            ),
            (
                "[cluster]\nreplication = 5\nservers = 4",
                3,
                "are fewer than the 5 replicas of each shard",
            ),
            ("[cluster]\nreplication = 3\n[storage]\nlog = \"none\"", 4, "is in their logs"),
            ("[faults]\ndeath = { every = \"1s\" }", 2, "takes the only copy"),
            ("[faults]\nmaster-gone = { every = \"1s\" }", 2, "outside-master = true"),
            (
                "[cluster]\nreplication = 3\n[workload]\nfailover-within = \"400ms\"",
                4,
                "is 400ms; it lies between 500ms and 60s",
            ),
            ("[workload]\nfailovers = 1", 2, "is for replication = 3 or 5"),
            (
                "[cluster]\nreplication = 3\n[workload]\nmax-staleness = \"5s\"\nold-reads-within = \"1s\"",
                5,
                "is for max-staleness with readers",
            ),
        ] {
            let said = Scenario::read("file.toml", broken).unwrap_err().to_string();
            assert!(
                said.starts_with(&format!("file.toml, line {line}: ")) && said.contains(told),
                "{broken:?}: {said}"
            );
        }
        for right in [
            "[workload]\nkind = \"retwis\"\nkeys = 98304",
            "[storage]\nas-served = true\nlog-file-bytes = 65536\n[swarm]\ndraw = true",
            "[storage]\nlog-block-bytes = 32768\nlog-file-bytes = 65536",
            "[workload]\nkind = \"register\"\nlarge = 9",
        ] {
            Scenario::read("file.toml", right).unwrap();
        }
    }
}
