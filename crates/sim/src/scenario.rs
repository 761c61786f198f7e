//! Scenarios: a workload, a cluster and what goes wrong, as TOML files that people write.
//!
//! Every table and every key may be left out; what is written is checked, and an error names the
//! file, the line, the key and what would be allowed. `draw = true` in `[swarm]` lets the seed
//! choose what the file does not say.

mod grouped;
mod protocol;
mod storage;
mod workload;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use timestone_clock::SkewModel;
use timestone_cluster::{KeyspaceName, ReplicationFactor};
use timestone_server::StageLayout;
use timestone_workload::{WorkloadKind, WorkloadSpec};
use toml::de::{DeTable, DeValue};

pub use self::protocol::ProtocolPart;
pub use self::storage::{LogDevice, LogPart, StoragePart, VaryPart};
pub use self::workload::{
    DemandsPart, ExternalWait, MixPart, RegistersPart, WorkloadChoice, WorkloadPart,
};
use crate::bounds;
use crate::error::SimError;
use crate::fault::{FaultKind, FaultPlan};
use crate::keyspaces::KeyspacesPart;
use timestone_costmodel::{CostTable, Costs};

/// A span of time as people write it: `250us`, `10ms`, `1.5s`, `2m`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TimeSpan(pub Duration);

impl From<TimeSpan> for Duration {
    fn from(span: TimeSpan) -> Self {
        span.0
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl FromStr for TimeSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_span(text).map(Self).ok_or_else(|| {
            format!(
                "{text:?} is no span of time; write a number with ns, us, ms, s or m, such \
                as \"250ms\""
            )
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
    /// Redis clients, beside the others or alone.
    #[serde(default)]
    pub redis: RedisPart,
    /// Where the workload's keys are kept.
    #[serde(default)]
    pub keyspaces: KeyspacesPart,
    /// Sizes and delays in the servers.
    #[serde(default)]
    pub storage: StoragePart,
    /// What is left out of the protocol.
    #[serde(default)]
    pub protocol: ProtocolPart,
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

/// `[cluster]`. What is left out is usual, or drawn.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ClusterPart {
    /// Server processes; the first one hosts the master, unless it is outside.
    pub servers: Option<u32>,
    /// Shards of each.
    pub shards: Option<u16>,
    /// Replicas of each shard, 1, 3 or 5; one when it is left out. There are as many servers at
    /// least, and the master is outside of them.
    #[serde(deserialize_with = "replication")]
    pub replication: Option<ReplicationFactor>,
    /// Whether the master is none of the servers and outlives them, as one on etcd. Where shards
    /// have several replicas it is.
    pub outside_master: bool,
    /// Reactor threads of each.
    pub threads: Option<usize>,
    /// Whether a server draws at every start how many of those threads it has, at least one. Each
    /// has a log of its own, so that a shard's records spread over several.
    pub vary_threads: Option<bool>,
    /// Whether it draws at every later start which stages run on which thread. How many shards a
    /// thread has follows from both.
    pub vary_layout: Option<bool>,
    /// Which stages run on which thread: `fused` or `staged`.
    #[serde(deserialize_with = "layout")]
    pub layout: Option<StageLayout>,
    /// Cores of every machine.
    pub cores: Option<usize>,
    /// Whether all processes share one machine.
    pub together: bool,
    /// Client processes.
    pub clients: Option<u32>,
    /// Sessions of each, which run one transaction at a time.
    pub sessions: Option<u32>,
    /// Sessions of clients that are embedded in the server, one client on each of its threads; none
    /// when it is left out. Embedded clients know the shards of their own process alone, so there
    /// is one server.
    pub embedded_sessions: Option<u32>,
    /// Regions; processes are spread over them in turn.
    pub regions: Option<u32>,
    /// How wrong clocks are: `perfect`, `ptp`, `ntp`, `azure-ptp`, or an average skew.
    #[serde(deserialize_with = "skew")]
    pub clocks: Option<SkewModel>,
    /// The same of clients, where they are not as wrong as those of servers.
    #[serde(deserialize_with = "skew")]
    pub client_clocks: Option<SkewModel>,
    /// Whether clients follow the servers' time. They go by their own clocks when it is left out.
    pub server_time: Option<bool>,
    /// By how much the last server's clock is ahead, without saying so.
    pub lie: Option<TimeSpan>,
    /// The furthest that a clock is set forward or back.
    pub jump: Option<TimeSpan>,
    /// How much slower than the measured machine the simulated ones are.
    pub slowness: Option<f64>,
    /// How many times as long arithmetic takes than on cores that nobody else shares; what work
    /// takes more then is in the costs.
    pub neighbours: Option<f64>,
}

fn replication<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ReplicationFactor>, D::Error> {
    let replicas = u8::deserialize(deserializer)?;
    ReplicationFactor::new(replicas).map(Some).map_err(|_| {
        de::Error::custom(format!(
            "there are no shards of {replicas} replicas; there are of 1, 3 and 5"
        ))
    })
}

fn layout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<StageLayout>, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "fused" => Ok(Some(StageLayout::Fused)),
        "staged" => Ok(Some(StageLayout::Staged)),
        other => Err(de::Error::custom(format!(
            "there is no layout {other:?}; the layouts are fused and staged"
        ))),
    }
}

fn skew<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SkewModel>, D::Error> {
    String::deserialize(deserializer)?.parse().map(Some).map_err(de::Error::custom)
}

/// `[redis]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RedisPart {
    /// Processes of Redis clients; none, unless the workload is theirs or a swarm draws them. A
    /// world with some has one server unless it is said.
    pub clients: Option<u32>,
    /// Connections of each; two when left out.
    pub connections: Option<u32>,
    /// Pipelines begun a second, over all connections.
    pub rate: f64,
    /// Keys of each of the four kinds: texts, texts with times to live, counters and lists.
    pub keys: u64,
    /// Most requests of a pipeline.
    pub depth: u64,
    /// The keyspace that they are served, such as `keyspace-0`, the first one of `[keyspaces]`; the
    /// default one when left out.
    #[serde(deserialize_with = "keyspace_name")]
    pub keyspace: Option<KeyspaceName>,
}

fn keyspace_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<KeyspaceName>, D::Error> {
    String::deserialize(deserializer)?.parse().map(Some).map_err(de::Error::custom)
}

impl Default for RedisPart {
    fn default() -> Self {
        let (clients, connections, keyspace) = (None, None, None);
        Self { clients, connections, rate: 100.0, keys: 5, depth: 4, keyspace }
    }
}

/// `[network]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct NetworkPart {
    /// One way within a region.
    pub near: Option<TimeSpan>,
    /// One way between regions.
    pub far: Option<TimeSpan>,
    /// Share of a latency by which it varies.
    pub jitter: Option<f64>,
    /// Bytes a second of every link, one way; 1.25 GB when left out, and no bound on processes that
    /// are together.
    pub bandwidth: Option<u64>,
    /// An unanswered request is asked again after this long.
    pub request_timeout: Option<TimeSpan>,
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
    pub every: TimeSpan,
    /// How long it lasts, on average.
    pub lasting: Option<TimeSpan>,
}

/// `[swarm]`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SwarmPart {
    /// Whether the seed draws what the file does not say: the cluster with its clocks and its
    /// network, sizes and delays in the servers, whether commits wait for their clocks, and which
    /// faults strike. What clients ask for, how fast devices are and how much they hold is not
    /// drawn.
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
        let scenario: Self = toml::from_str(text).map_err(|error| {
            SimError::Scenario(format!("{file}: {}", plain(error.to_string().trim_end())))
        })?;
        if let Err(wrong) = bounds::check(&scenario) {
            let line = line_of(text, &wrong.path);
            let (key, tables) = wrong.path.split_last().unwrap_or((&"", &[]));
            let (table, what) = (tables.join("."), wrong.what);
            return Err(SimError::Scenario(format!(
                "{file}, line {line}: {key} in [{table}]: {what}"
            )));
        }
        Ok(scenario)
    }

    /// What work costs on machines as fast as the measured one.
    pub(crate) fn costs(&self) -> Result<Costs, SimError> {
        Ok(Costs::new(self.costs.clone().map_or_else(CostTable::usual, Ok)?))
    }

    /// The workload with all its parameters.
    pub(crate) fn spec(&self, seed: u64) -> WorkloadSpec {
        let part = &self.workload;
        let usual = match part.kind {
            WorkloadChoice::Plans(kind) => WorkloadSpec::of(kind),
            WorkloadChoice::Cycle | WorkloadChoice::Redis => {
                WorkloadSpec { keys: 16, ..WorkloadSpec::of(WorkloadKind::Register) }
            }
        };
        let fewer = match usual.kind {
            WorkloadKind::Bank => 20,
            WorkloadKind::ListAppend | WorkloadKind::Register => usual.keys,
            _ => 1_000,
        };
        WorkloadSpec {
            keys: part.mix.keys.unwrap_or(fewer),
            zipf: part.mix.zipf.unwrap_or(usual.zipf),
            ops_per_txn: part.mix.ops.unwrap_or(usual.ops_per_txn),
            appends_per_key: part.mix.appends_per_key.unwrap_or(64),
            delete_percent: part.mix.deletes.unwrap_or(0),
            expire_percent: part.mix.expiring.unwrap_or(0),
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

/// The line of a key, from 1; of the innermost of its tables that the file has, when the key is not
/// in the file.
fn line_of(text: &str, path: &[&str]) -> usize {
    let Ok(root) = DeTable::parse(text) else { return 1 };
    let (mut table, mut begin) = (root.get_ref(), 0);
    for key in path {
        let Some((name, value)) = table.get_key_value(*key) else { break };
        begin = name.span().start;
        let DeValue::Table(inner) = value.get_ref() else { break };
        table = inner;
    }
    1 + text.bytes().take(begin).filter(|&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_scenario_is_whole() {
        let scenario = Scenario::read("empty.toml", "").unwrap();
        assert_eq!((scenario.cluster.servers, scenario.faults.len()), (None, 0));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_file_its_line_and_what_is_allowed() {
        let text = |text: &str| Scenario::read("broken.toml", text).unwrap_err().to_string();
        for (broken, parts) in [
            (
                "[cluster]\nservers = 0",
                vec!["broken.toml, line 2", "servers in [cluster]", "between 1 and 64"],
            ),
            (
                "[cluster]\nserver = 3",
                vec!["broken.toml", "line 2", "unknown field `server`", "servers"],
            ),
            (
                "[storage]\nlogs = \"ssd\"",
                vec!["line 2", "unknown field `logs`", "`log-file-bytes`", "`vary-capacity`"],
            ),
            ("[storage]\nlog = \"tape\"", vec!["line 2", "\"tape\"", "ssd and none"]),
            (
                "[workload]\nrate = 1\nkeyz = 2",
                vec!["line 3", "unknown field `keyz`", "`keys`", "`watermark-lag`"],
            ),
            ("[workload]\nkind = \"tpcc\"", vec!["line 2", "\"tpcc\"", "list-append"]),
            ("[workload]\nrate = \"fast\"", vec!["line 2", "expected a number"]),
            (
                "[faults]\nearthquake = { every = \"1s\" }",
                vec!["line 2", "earthquake", "power-cut"],
            ),
            (
                "[faults]\nkill = { every = \"soon\" }",
                vec!["line 2", "\"soon\" is no span of time", "250ms"],
            ),
            (
                "[faults]\nkill = { every = \"1ns\" }",
                vec!["line 2", "every in [faults.kill]", "is 1ns", "1ms"],
            ),
            ("[cluster]\nclocks = \"sundial\"", vec!["line 2", "sundial", "ptp"]),
            ("[workload]\nexternal = \"yes\"", vec!["line 2", "\"yes\"", "none or wait"]),
            ("[cluster]\nlayout = \"round\"", vec!["line 2", "\"round\"", "fused and staged"]),
            ("[cluster]\nreplication = 2", vec!["line 2", "of 2 replicas", "of 1, 3 and 5"]),
            ("[faults]\nkill = \"1s\"", vec!["line 2", "{ every = \"2s\", lasting = \"300ms\" }"]),
            ("[workload]\nrate = 1\nops = 1000000", vec!["line 3", "ops in [workload]", "1000"]),
            ("[workload]\nkeys = 99999999999999999999", vec!["line 2", "a whole number"]),
            (
                "[workload]\nrate = 1\nzipf = 99.0",
                vec!["line 3", "zipf in [workload]", "between 0 and 5"],
            ),
            (
                "[workload]\nkind = \"cycle\"\nclosed = true",
                vec!["line 3", "closed in [workload]", "bench"],
            ),
            (
                "[workload]\nrate = 1\nwarmup = \"10s\"",
                vec!["line 3", "warmup in [workload]: is 10s", "run of 10 s"],
            ),
            (
                "[keyspaces]\nstores = [\"mftl\", \"tape\"]",
                vec!["broken.toml", "line 2", "\"tape\"", "mftl, dram and frugal"],
            ),
            (
                "[storage]\nlog = \"ssd\"\n[keyspaces]\ndram-bytes = 1048576\nstores = [\"dram\"]",
                vec!["broken.toml, line 5", "stores in [keyspaces]", "log = \"none\""],
            ),
            (
                "[workload]\nkind = \"bank\"\n[storage]\nlog = \"none\"\n[keyspaces]\nstores = [\"dram\"]",
                vec!["line 6", "stores in [keyspaces]", "list-append"],
            ),
            (
                "[keyspaces]\ndram-bytes = 1048576",
                vec!["line 2", "dram-bytes in [keyspaces]", "\"dram\""],
            ),
            ("servers 3", vec!["line 1"]),
        ] {
            let said = text(broken);
            for part in parts {
                assert!(
                    said.contains(part),
                    "{broken:?} is answered by {said:?}, without {part:?}"
                );
            }
        }
    }

    #[test]
    fn a_wrong_value_is_found_however_the_file_writes_it() {
        for (broken, line, place) in [
            ("cluster.servers = 0", 1, "servers in [cluster]"),
            ("name = \"a\"\ncluster = { clients = 2, servers = 0 }", 2, "servers in [cluster]"),
            ("cluster = {\n  clients = 2,\n  servers = 0,\n}", 3, "servers in [cluster]"),
            ("[cluster] # three, or none\n\n  servers=0", 3, "servers in [cluster]"),
            ("[cluster]\r\nclients = 1\r\n\"servers\" = 0", 3, "servers in [cluster]"),
            ("[ cluster ]\n'servers' = 0", 2, "servers in [cluster]"),
            (
                "about = \"\"\"\n[cluster]\nservers = 0\n\"\"\"\n[cluster]\nservers = 0",
                6,
                "servers in [cluster]",
            ),
            (
                "[faults.kill] # often\nevery = \"2s\"\nlasting = \"1m\"",
                3,
                "lasting in [faults.kill]",
            ),
            ("[faults]\nkill.every = \"1us\"", 2, "every in [faults.kill]"),
            // What is wrong for what the file does not say stands where it would be said.
            (
                "name = \"a\"\n[workload] # much\nkind = \"retwis\"\n[storage]\ncapacity-bytes = \
                 0x40000\nblock-pages = 2\n[cluster]\nservers = 1\nshards = 1",
                2,
                "keys in [workload]",
            ),
        ] {
            let said = Scenario::read("broken.toml", broken).unwrap_err().to_string();
            assert!(
                said.starts_with(&format!("broken.toml, line {line}: {place}: is ")),
                "{broken:?}: {said}"
            );
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
