//! Scenarios: a workload, a cluster and what goes wrong, as TOML files that people write.
//!
//! Every table and every key may be left out; what is written is checked, and an error names the file, the line, the key and what
//! would be allowed. `draw = true` in `[swarm]` lets the seed choose what the file does not say.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use timestone_clock::SkewModel;
use timestone_server::StageLayout;
use timestone_wal::DeviceKind;
use timestone_workload::{WorkloadError, WorkloadKind, WorkloadSpec};

use crate::cost::{CostTable, Costs};
use crate::error::SimError;
use crate::fault::{FaultKind, FaultPlan};

/// Operations of a transaction, at most: a larger one takes longer to make up than anybody waits.
const MOST_OPS: f64 = 1000.0;

/// A span of time as people write it: `250us`, `10ms`, `1.5s`, `2m`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span(pub Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_span(text).map(Self).ok_or_else(|| {
            format!("{text:?} is no span of time; write a number with ns, us, ms, s or m, such as \"250ms\"")
        })
    }
}

fn parse_span(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let number: f64 = text[..split].parse().ok()?;
    let unit = match text[split..].trim() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        _ => return None,
    };
    let nanos = number * unit;
    (nanos < 1e18).then(|| Duration::from_nanos(nanos as u64))
}

/// A scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// What it is called.
    #[serde(default)]
    pub name: String,
    /// What it is for, in a sentence.
    #[serde(default)]
    pub about: String,
    /// Who takes part.
    #[serde(default)]
    pub cluster: ClusterPart,
    /// What clients do.
    #[serde(default)]
    pub workload: WorkloadPart,
    /// Sizes and delays in the servers.
    #[serde(default)]
    pub storage: StoragePart,
    /// How the network is when nothing is wrong.
    #[serde(default)]
    pub network: NetworkPart,
    /// What goes wrong, by kind.
    #[serde(default)]
    pub faults: BTreeMap<FaultKind, FaultPart>,
    /// What the seed chooses.
    #[serde(default)]
    pub swarm: SwarmPart,
    /// What work costs; the figures that come with the binary when left out. Not part of the file.
    #[serde(skip)]
    pub costs: Option<CostTable>,
}

/// `[cluster]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ClusterPart {
    /// Server processes; the first one hosts the master.
    pub servers: u32,
    /// Shards of each.
    pub shards: u16,
    /// Reactor threads of each.
    pub threads: usize,
    /// Whether a server draws at every start how many of those threads it has, at least one. Each has a log of its own, so that a
    /// shard's records spread over several.
    pub vary_threads: bool,
    /// Which stages run on which thread: `fused` or `staged`.
    #[serde(deserialize_with = "layout")]
    pub layout: StageLayout,
    /// Cores of every machine.
    pub cores: usize,
    /// Whether all processes share one machine.
    pub together: bool,
    /// Client processes.
    pub clients: u32,
    /// Sessions of each, which run one transaction at a time.
    pub sessions: u32,
    /// Regions; processes are spread over them in turn.
    pub regions: u32,
    /// How wrong clocks are: `perfect`, `ptp`, `ntp`, `azure-ptp`, or an average skew.
    #[serde(deserialize_with = "skew")]
    pub clocks: SkewModel,
    /// The furthest that a clock is set forward or back.
    pub jump: Span,
    /// How much slower than the measured machine the simulated ones are.
    pub slowness: f64,
}

impl Default for ClusterPart {
    fn default() -> Self {
        Self {
            servers: 3,
            shards: 2,
            threads: 1,
            vary_threads: false,
            layout: StageLayout::Fused,
            cores: 2,
            together: false,
            clients: 8,
            sessions: 2,
            regions: 1,
            clocks: SkewModel::Ptp,
            jump: Span(Duration::from_millis(400)),
            slowness: 1.0,
        }
    }
}

fn layout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StageLayout, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "fused" => Ok(StageLayout::Fused),
        "staged" => Ok(StageLayout::Staged),
        other => Err(de::Error::custom(format!("there is no layout {other:?}; the layouts are fused and staged"))),
    }
}

fn log_device<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DeviceKind>, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "ssd" => Ok(Some(DeviceKind::Ssd)),
        "none" => Ok(Some(DeviceKind::None)),
        other => Err(de::Error::custom(format!("there is no log device {other:?}; here they are ssd and none"))),
    }
}

fn skew<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SkewModel, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

fn external<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "none" => Ok(Some(false)),
        "wait" => Ok(Some(true)),
        other => Err(de::Error::custom(format!("there is no mode {other:?}; external is none or wait"))),
    }
}

/// `[workload]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct WorkloadPart {
    /// `cycle`, or one of the workloads of `timestone bench`.
    pub kind: Kind,
    /// Transactions begun a second, over all sessions.
    pub rate: f64,
    /// Each session begins its next transaction when the last one has ended, whatever the rate, and nothing is checked: for predictions of
    /// throughput.
    pub closed: bool,
    /// Keys; the workload's usual number when left out.
    pub keys: Option<u64>,
    /// Contention.
    pub zipf: Option<f64>,
    /// Most operations of a transaction.
    pub ops: Option<u32>,
    /// List-append: appends to a key before another takes its place.
    pub appends_per_key: Option<u32>,
    /// Register: how many of a hundred writes are deletions.
    pub deletes: Option<u64>,
    /// Whether commits are acknowledged only when the clock's error bound has passed: `none` or `wait`. List-append and register histories
    /// are then held to real time, as long as no fault of a clock strikes. A swarm draws it when it is left out.
    #[serde(deserialize_with = "external")]
    pub external: Option<bool>,
    /// How long an application waits for one operation; the client's usual time when left out. What takes longer has an unknown outcome.
    pub deadline: Option<Span>,
    /// Register, with `ops = 1`: what one operation on one key can do is no transaction but a get, a put, a delete or a compare-and-set.
    pub singles: bool,
    /// List-append: every tenth append is acknowledged and never made, so that the run fails. What finds nothing here finds nothing.
    pub canary: bool,
    /// For how long transactions are begun and faults strike.
    pub seconds: f64,
    /// What the run says of its pace begins after this much of it.
    pub warmup: Span,
}

impl Default for WorkloadPart {
    fn default() -> Self {
        Self {
            kind: Kind::Plans(WorkloadKind::ListAppend),
            rate: 200.0,
            closed: false,
            keys: None,
            zipf: None,
            ops: None,
            appends_per_key: None,
            deletes: None,
            external: None,
            deadline: None,
            singles: false,
            canary: false,
            seconds: 10.0,
            warmup: Span(Duration::ZERO),
        }
    }
}

/// What clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// One of the workloads that `bench` knows.
    Plans(WorkloadKind),
    /// A ring of keys.
    Cycle,
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "cycle" {
            return Ok(Self::Cycle);
        }
        text.parse().map(Self::Plans).map_err(|_| {
            let names = WorkloadKind::names().join(", ");
            de::Error::custom(format!("there is no workload {text:?}; the workloads are cycle, {names}"))
        })
    }
}

/// `[storage]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct StoragePart {
    /// Sizes and delays that are not named are those of `timestone serve`, not the small ones that make rare paths common.
    pub as_served: bool,
    /// The log's device: `ssd`, or `none`.
    #[serde(deserialize_with = "log_device")]
    pub log: Option<DeviceKind>,
    /// Pages of 4 KiB in an erase block.
    pub block_pages: Option<u32>,
    /// Bytes that all flash devices of a server may take.
    pub capacity_bytes: Option<u64>,
    /// Bytes of a server's record cache.
    pub cache_bytes: Option<u64>,
    /// Bytes of records between two checkpoints.
    pub checkpoint_bytes: Option<u64>,
    /// How long a full page waits for others.
    pub packing_delay: Option<Span>,
    /// Shortest time between two syncs of a flash device.
    pub sync_interval: Option<Span>,
    /// Bytes of a log file.
    pub log_file_bytes: Option<u64>,
    /// Bytes of a log block.
    pub log_block_bytes: Option<usize>,
    /// What a log write with its sync takes.
    pub log_write: Option<Span>,
    /// What making, renaming or removing a log file takes.
    pub log_change: Option<Span>,
    /// What reading a page takes.
    pub read: Option<Span>,
    /// How long a prepared transaction waits before its participants end it themselves.
    pub decision_timeout: Option<Span>,
    /// Whether devices complete operations out of order.
    pub shuffle: Option<bool>,
}

/// `[network]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct NetworkPart {
    /// One way within a region.
    pub near: Option<Span>,
    /// One way between regions.
    pub far: Option<Span>,
    /// Share of a latency by which it varies.
    pub jitter: Option<f64>,
    /// An unanswered request is asked again after this long.
    pub request_timeout: Option<Span>,
}

/// One kind of fault: `{ every = "2s", lasting = "300ms" }`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table such as { every = \"2s\", lasting = \"300ms\" }"
)]
pub struct FaultPart {
    /// From one to the next, on average.
    pub every: Span,
    /// How long it lasts, on average.
    pub lasting: Option<Span>,
}

/// `[swarm]`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SwarmPart {
    /// Whether the seed draws what the file does not say: the cluster, sizes, delays, and which faults strike.
    pub draw: bool,
}

impl<'de> Deserialize<'de> for FaultKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Scenario {
    /// Reads a scenario; `file` is how errors call it.
    ///
    /// # Errors
    /// [`SimError::Scenario`], which names the file, the line, the key and what is allowed.
    pub fn read(file: &str, text: &str) -> Result<Self, SimError> {
        let scenario: Self = toml::from_str(text)
            .map_err(|error| SimError::Scenario(format!("{file}: {}", plain(error.to_string().trim_end()))))?;
        if let Err((table, key, what)) = scenario.check() {
            let line = line_of(text, table, key);
            return Err(SimError::Scenario(format!("{file}, line {line}: {key} in [{table}]: {what}")));
        }
        Ok(scenario)
    }

    /// The first value that makes no sense: its table, its key, and what is allowed.
    fn check(&self) -> Result<(), (&'static str, &'static str, String)> {
        let (cluster, workload, storage) = (&self.cluster, &self.workload, &self.storage);
        let within = |table, key, value: f64, low: f64, high: f64| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err((table, key, format!("is {value}; it lies between {low} and {high}")))
            }
        };
        within("cluster", "servers", f64::from(cluster.servers), 1.0, 64.0)?;
        within("cluster", "shards", f64::from(cluster.shards), 1.0, 64.0)?;
        within("cluster", "threads", cluster.threads as f64, 1.0, 16.0)?;
        within("cluster", "cores", cluster.cores as f64, 1.0, 64.0)?;
        within("cluster", "clients", f64::from(cluster.clients), 1.0, 256.0)?;
        within("cluster", "sessions", f64::from(cluster.sessions), 1.0, 1024.0)?;
        within("cluster", "regions", f64::from(cluster.regions), 1.0, 16.0)?;
        within("cluster", "slowness", cluster.slowness, 0.01, 1000.0)?;
        within("workload", "rate", workload.rate, 0.01, 1e6)?;
        within("workload", "seconds", workload.seconds, 0.01, 86_400.0)?;
        if workload.warmup.0.as_secs_f64() >= workload.seconds {
            let what = format!("is {:?}; it is shorter than the run of {} s", workload.warmup.0, workload.seconds);
            return Err(("workload", "warmup", what));
        }
        if workload.closed && workload.kind == Kind::Cycle {
            let what =
                "is for the workloads of `timestone bench`, whose throughput it predicts; cycle is not one of them";
            return Err(("workload", "closed", what.to_owned()));
        }
        let are_singles = workload.kind == Kind::Plans(WorkloadKind::Register) && workload.ops == Some(1);
        if workload.singles && (!are_singles || workload.external != Some(false)) {
            let what = "is for kind = \"register\" with ops = 1 and external = \"none\"";
            return Err(("workload", "singles", what.to_owned()));
        }
        if let Some(pages) = storage.block_pages {
            within("storage", "block-pages", f64::from(pages), 2.0, 4096.0)?;
        }
        if let Some(bytes) = storage.log_file_bytes {
            within("storage", "log-file-bytes", bytes as f64, 65_536.0, 1e9)?;
        }
        if let Some(jitter) = self.network.jitter {
            within("network", "jitter", jitter, 0.0, 10.0)?;
        }
        for (kind, fault) in &self.faults {
            if fault.every.0 < Duration::from_millis(1) {
                return Err(("faults", kind.name(), "strikes more often than every 1ms".to_owned()));
            }
        }
        if let Some(ops) = workload.ops {
            within("workload", "ops", f64::from(ops), 1.0, MOST_OPS)?;
        }
        if let Err(error) = self.spec(0).validate() {
            return Err(("workload", key_of(&error), error.to_string()));
        }
        Ok(())
    }

    /// What work costs on machines as fast as the measured one.
    pub(crate) fn costs(&self) -> Result<Costs, SimError> {
        self.costs.clone().map_or_else(CostTable::usual, Ok).map(Costs::new)
    }

    /// The workload with all its parameters.
    pub(crate) fn spec(&self, seed: u64) -> WorkloadSpec {
        let part = &self.workload;
        let usual = match part.kind {
            Kind::Plans(kind) => WorkloadSpec::of(kind),
            Kind::Cycle => WorkloadSpec { keys: 16, ..WorkloadSpec::of(WorkloadKind::Register) },
        };
        let fewer = match usual.kind {
            WorkloadKind::Bank => 20,
            WorkloadKind::ListAppend | WorkloadKind::Register => usual.keys,
            _ => 1_000,
        };
        WorkloadSpec {
            keys: part.keys.unwrap_or(fewer),
            zipf: part.zipf.unwrap_or(usual.zipf),
            ops_per_txn: part.ops.unwrap_or(usual.ops_per_txn),
            appends_per_key: part.appends_per_key.unwrap_or(64),
            delete_percent: part.deletes.unwrap_or(usual.delete_percent),
            seed,
            ..usual
        }
    }

    /// The faults with their lengths.
    pub(crate) fn fault_plans(&self) -> BTreeMap<FaultKind, FaultPlan> {
        let plan = |(kind, part): (&FaultKind, &FaultPart)| {
            let lasting = part.lasting.map_or(kind.usual_length(), |span| span.0);
            (*kind, FaultPlan { every: part.every.0, lasting })
        };
        self.faults.iter().map(plan).collect()
    }
}

/// The key of a scenario that a workload's complaint is about.
fn key_of(error: &WorkloadError) -> &'static str {
    match error {
        WorkloadError::Parameter { name: "ops-per-txn", .. } => "ops",
        WorkloadError::Parameter { name: "delete-percent", .. } => "deletes",
        WorkloadError::Parameter { name, .. } => name,
        _ => "kind",
    }
}

/// A complaint of the reader of TOML without the names that Rust has for numbers.
fn plain(complaint: &str) -> String {
    let mut said = complaint.to_owned();
    for (rust, word) in [
        (" as i128", ""),
        ("floating point", "number"),
        ("expected f64", "expected a number"),
        ("expected u16", "expected a whole number from 0 to 65535"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u64", "expected a whole number, not negative"),
        ("expected usize", "expected a whole number, not negative"),
        ("expected a string", "expected a text in quotes"),
    ] {
        said = said.replace(rust, word);
    }
    said
}

/// The line of a key in its table, or of the table, from 1.
fn line_of(text: &str, table: &str, key: &str) -> usize {
    let mut inside = false;
    let mut found = 1;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.starts_with('[') {
            inside = line == format!("[{table}]");
            if inside || line == format!("[{table}.{key}]") {
                found = number;
            }
        } else if inside && line.split('=').next().is_some_and(|name| name.trim() == key) {
            return number;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_scenario_is_whole() {
        let scenario = Scenario::read("empty.toml", "").unwrap();
        assert_eq!((scenario.cluster.servers, scenario.faults.len()), (3, 0));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_file_its_line_and_what_is_allowed() {
        let text = |text: &str| Scenario::read("broken.toml", text).unwrap_err().to_string();
        for (broken, parts) in [
            ("[cluster]\nservers = 0", vec!["broken.toml, line 2", "servers in [cluster]", "between 1 and 64"]),
            ("[cluster]\nserver = 3", vec!["broken.toml", "line 2", "unknown field `server`", "servers"]),
            ("[workload]\nkind = \"tpcc\"", vec!["line 2", "\"tpcc\"", "list-append"]),
            ("[workload]\nrate = \"fast\"", vec!["line 2", "expected a number"]),
            ("[faults]\nearthquake = { every = \"1s\" }", vec!["line 2", "earthquake", "power-cut"]),
            ("[faults]\nkill = { every = \"soon\" }", vec!["line 2", "\"soon\" is no span of time", "250ms"]),
            ("[faults]\nkill = { every = \"1ns\" }", vec!["broken.toml, line 2", "kill in [faults]", "every 1ms"]),
            ("[cluster]\nclocks = \"sundial\"", vec!["line 2", "sundial", "ptp"]),
            ("[workload]\nexternal = \"yes\"", vec!["line 2", "\"yes\"", "none or wait"]),
            ("[cluster]\nlayout = \"round\"", vec!["line 2", "\"round\"", "fused and staged"]),
            ("[faults]\nkill = \"1s\"", vec!["line 2", "{ every = \"2s\", lasting = \"300ms\" }"]),
            ("[workload]\nrate = 1\nops = 1000000", vec!["line 3", "ops in [workload]", "1000"]),
            ("[workload]\nkeys = 99999999999999999999", vec!["line 2", "a whole number"]),
            ("[workload]\nrate = 1\nzipf = 99.0", vec!["line 3", "zipf in [workload]", "between 0 and 5"]),
            ("[workload]\nkind = \"cycle\"\nclosed = true", vec!["line 3", "closed in [workload]", "bench"]),
            ("servers 3", vec!["line 1"]),
        ] {
            let said = text(broken);
            for part in parts {
                assert!(said.contains(part), "{broken:?} is answered by {said:?}, without {part:?}");
            }
        }
    }

    #[test]
    fn spans_are_read_as_people_write_them() {
        assert_eq!(parse_span("250us"), Some(Duration::from_micros(250)));
        assert_eq!(parse_span("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse_span("2m"), Some(Duration::from_secs(120)));
        for bad in ["", "5", "ms", "5 parsecs", "-1s"] {
            assert_eq!(parse_span(bad), None, "{bad}");
        }
    }
}
