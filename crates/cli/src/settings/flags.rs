//! The flags of `timestone serve`, in groups by subject; `--help` shows them in this order.

use std::path::PathBuf;

use clap::Args;
use timestone::server::AcceptedLoss;
use timestone_types::ShardId;

use crate::failure::Failure;

/// Flags of `timestone serve`. Every one may also come from the environment or from the
/// configuration file.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct ServeArgs {
    /// Configuration file (TOML); its keys are the long names of these flags.
    #[arg(long, env = "TIMESTONE_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Data directory; created when missing [default: ./timestone-data].
    #[arg(long, env = "TIMESTONE_DATA", value_name = "DIR")]
    pub(super) data: Option<String>,
    #[command(flatten)]
    pub(super) addresses: AddressArgs,
    #[command(flatten)]
    pub(super) storage: StorageArgs,
    /// Shards of this server; fixed when the data directory is created [default: 4].
    #[arg(long, env = "TIMESTONE_SHARDS", value_name = "N")]
    pub(super) shards: Option<String>,
    /// Reactor threads [default: half the cores].
    #[arg(long, env = "TIMESTONE_THREADS", value_name = "N")]
    pub(super) threads: Option<String>,
    /// Which stages run on which thread: "fused", each reactor thread all stages of its shards, or
    /// "staged", a thread for each stage; with the latter --threads is how many network stages,
    /// gateways and logs there are [default: fused].
    #[arg(long, env = "TIMESTONE_LAYOUT", value_name = "LAYOUT")]
    pub(super) layout: Option<String>,
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
    /// Listen on addresses that other machines can reach although there is neither TLS nor
    /// authentication [default: false].
    #[arg(long, env = "TIMESTONE_INSECURE", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub(super) insecure: Option<String>,
    /// Bind reactor threads to cores [default: false].
    #[arg(long, env = "TIMESTONE_PIN", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub(super) pin: Option<String>,
    /// For trials: set this server's clock wrong, such as by -200ms, or by several in turn, such as
    /// 100ms,-100ms/2s; it says then that nothing disciplines it, and its error bound grows by as
    /// much [default: not at all].
    #[arg(long, env = "TIMESTONE_CLOCK_SHIFT", value_name = "SHIFT", allow_hyphen_values = true)]
    pub(super) clock_shift: Option<String>,
    #[command(flatten)]
    pub(super) log_lines: LogLineArgs,
    /// Go on without files that are gone, of these shards (such as 2 or 0,3), or of all, which a
    /// log file that is gone concerns; `all` also goes on with a data directory that is an older
    /// copy of itself. What only they held is lost. For one start, on purpose: neither the
    /// environment nor the configuration file may say it.
    #[arg(long, value_name = "SHARDS")]
    pub(super) accept_loss: Option<String>,
}

/// Where the server listens.
#[derive(Args, Debug, Clone, Default)]
pub(super) struct AddressArgs {
    /// Address of the native protocol; port 0 takes any free one, "none" switches it off [default:
    /// 127.0.0.1:7400].
    #[arg(long, env = "TIMESTONE_LISTEN", value_name = "HOST:PORT")]
    pub(super) listen: Option<String>,
    /// Address of the Redis protocol (RESP) [default: 127.0.0.1:7401].
    #[arg(long, env = "TIMESTONE_RESP", value_name = "HOST:PORT")]
    pub(super) resp: Option<String>,
    /// Keyspace that Redis clients are served. Until it is created, their commands on keys are
    /// refused. With an ordered index KEYS and SCAN of a prefix read its keys alone [default:
    /// default].
    #[arg(long, env = "TIMESTONE_RESP_KEYSPACE", value_name = "NAME")]
    pub(super) resp_keyspace: Option<String>,
    /// Address of metrics and health over HTTP [default: 127.0.0.1:7402].
    #[arg(long, env = "TIMESTONE_HTTP", value_name = "HOST:PORT")]
    pub(super) http: Option<String>,
    /// Address that other servers and clients shall use, when it differs from --listen.
    #[arg(long, env = "TIMESTONE_ADVERTISE", value_name = "HOST:PORT")]
    pub(super) advertise: Option<String>,
}

/// Devices, and how much of them and of memory is used.
#[derive(Args, Debug, Clone, Default)]
pub(super) struct StorageArgs {
    /// Log device: "ssd" makes every commit durable before it is acknowledged; "none" relies on the
    /// store's background writes; "pmem" wants persistent memory [default: ssd].
    #[arg(long, env = "TIMESTONE_LOG", value_name = "DEVICE")]
    pub(super) log: Option<String>,
    /// Flash device: "file"; "zoned:DEVICE[,DEVICE…]", a zoned block device for each shard;
    /// "emulated", in memory and gone with the process, for trials. Fixed when the data directory is
    /// created [default: file].
    #[arg(long, env = "TIMESTONE_DEVICE", value_name = "DEVICE")]
    pub(super) device: Option<String>,
    /// Most space on the flash device, such as 20GiB [default: 80 % of the free space; emulated:
    /// 1GiB; zoned: what the devices have].
    #[arg(long, env = "TIMESTONE_CAPACITY", value_name = "SIZE")]
    pub(super) capacity: Option<String>,
    /// Most space on the devices of keyspaces with index frugal, which are files beside the others
    /// [default: as --capacity].
    #[arg(long, env = "TIMESTONE_FRUGAL_CAPACITY", value_name = "SIZE")]
    pub(super) frugal_capacity: Option<String>,
    /// Keys that are expected in keyspaces with index frugal: with more of them reads take longer.
    /// Fixed for a shard when such a keyspace is first written to [default: 10000000].
    #[arg(long, env = "TIMESTONE_FRUGAL_KEYS", value_name = "KEYS")]
    pub(super) frugal_keys: Option<String>,
    /// Of how many of a hundred of these keys memory knows where they are, some 50 bytes each: they are
    /// found with one read [default: 10].
    #[arg(long, env = "TIMESTONE_FRUGAL_PLACES", value_name = "PERCENT")]
    pub(super) frugal_places: Option<String>,
    /// Memory for cached records, such as 512MiB; taken as it fills [default: 1GiB].
    #[arg(long, env = "TIMESTONE_CACHE", value_name = "SIZE")]
    pub(super) cache: Option<String>,
    /// Memory for keyspaces in dram, such as 4GiB, beside --memory; taken as it fills [default:
    /// 256MiB].
    #[arg(long, env = "TIMESTONE_DRAM", value_name = "SIZE")]
    pub(super) dram: Option<String>,
    /// Memory that the process may use, cache included, such as 4GiB [default: half of the
    /// machine's, or of the control group's].
    #[arg(long, env = "TIMESTONE_MEMORY", value_name = "SIZE")]
    pub(super) memory: Option<String>,
}

/// The cluster that the server belongs to.
#[derive(Args, Debug, Clone, Default)]
pub(super) struct ClusterArgs {
    /// Name of the cluster: a new one is called so, another one is refused [default: any].
    #[arg(long, env = "TIMESTONE_CLUSTER", value_name = "NAME")]
    pub(super) cluster: Option<String>,
    /// Shards of the whole cluster, where this server hosts the master of several servers [default:
    /// its own].
    #[arg(long, env = "TIMESTONE_CLUSTER_SHARDS", value_name = "N")]
    pub(super) cluster_shards: Option<String>,
    /// Copies of each shard, where this server founds a cluster: 1, 3 or 5, each on a server of its
    /// own; of 3 copies one may be lost, of 5 two [default: 1, or as the cluster has].
    #[arg(long, env = "TIMESTONE_REPLICATION", value_name = "N")]
    pub(super) replication: Option<String>,
    /// A server that is not heard for as long is lost, where shards have several copies: others take
    /// its place; at least 50ms. All servers should say the same [default: 500ms].
    #[arg(long, env = "TIMESTONE_DETECTION", value_name = "TIME")]
    pub(super) detection: Option<String>,
    /// How long a primary may answer without hearing of its backups, where shards have several
    /// copies: whoever takes its place waits for what is left of it; at least 50ms, at most 1s and
    /// eight detection times [default: twice the detection time, at most 1s].
    #[arg(long, env = "TIMESTONE_LEASE", value_name = "TIME")]
    pub(super) lease: Option<String>,
    /// A copy that is lost for as long is made anew at a server that stands by. All servers should
    /// say the same [default: 1min].
    #[arg(long, env = "TIMESTONE_REPLACE_AFTER", value_name = "TIME")]
    pub(super) replace_after: Option<String>,
    /// Whether primaries move to servers that have fewer, one after the other, when all is well; `true`
    /// or `false`. All servers should say the same [default: true].
    #[arg(long, env = "TIMESTONE_LEVEL_PRIMARIES", value_name = "BOOL")]
    pub(super) level_primaries: Option<String>,
    /// The cluster's master: "embedded", or the native address of the server that hosts it, such as
    /// timestone://127.0.0.1:7400, or etcd://HOST:PORT,HOST:PORT [default: embedded].
    #[arg(long, env = "TIMESTONE_MASTER", value_name = "URL")]
    pub(super) master: Option<String>,
}

/// What is logged, and how.
#[derive(Args, Debug, Clone, Default)]
pub(super) struct LogLineArgs {
    /// Which log lines to write, in the notation of RUST_LOG, such as "debug" or
    /// "warn,timestone_server=debug" [default: RUST_LOG, or info].
    #[arg(long, env = "TIMESTONE_LOG_FILTER", value_name = "FILTER")]
    pub(super) log_filter: Option<String>,
    /// How log lines look: "human", "json", or "auto": human on a terminal, JSON otherwise
    /// [default: auto].
    #[arg(long, env = "TIMESTONE_LOG_FORMAT", value_name = "FORMAT")]
    pub(super) log_format: Option<String>,
}

impl ServeArgs {
    /// What this start may go on without.
    pub(crate) fn accepted_loss(&self) -> Result<AcceptedLoss, Failure> {
        let Some(text) = &self.accept_loss else { return Ok(AcceptedLoss::Nothing) };
        accepted_loss(text)
            .map_err(|wrong| Failure::usage(format!("--accept-loss is '{text}': {wrong}")))
    }

    pub(super) fn given(&self, name: &str) -> Option<&String> {
        match name {
            "data" => self.data.as_ref(),
            "listen" => self.addresses.listen.as_ref(),
            "resp" => self.addresses.resp.as_ref(),
            "resp-keyspace" => self.addresses.resp_keyspace.as_ref(),
            "http" => self.addresses.http.as_ref(),
            "advertise" => self.addresses.advertise.as_ref(),
            "log" => self.storage.log.as_ref(),
            "device" => self.storage.device.as_ref(),
            "capacity" => self.storage.capacity.as_ref(),
            "frugal-capacity" => self.storage.frugal_capacity.as_ref(),
            "frugal-keys" => self.storage.frugal_keys.as_ref(),
            "frugal-places" => self.storage.frugal_places.as_ref(),
            "cache" => self.storage.cache.as_ref(),
            "dram" => self.storage.dram.as_ref(),
            "memory" => self.storage.memory.as_ref(),
            "shards" => self.shards.as_ref(),
            "threads" => self.threads.as_ref(),
            "layout" => self.layout.as_ref(),
            "cluster" => self.cluster.cluster.as_ref(),
            "cluster-shards" => self.cluster.cluster_shards.as_ref(),
            "replication" => self.cluster.replication.as_ref(),
            "detection" => self.cluster.detection.as_ref(),
            "lease" => self.cluster.lease.as_ref(),
            "replace-after" => self.cluster.replace_after.as_ref(),
            "level-primaries" => self.cluster.level_primaries.as_ref(),
            "master" => self.cluster.master.as_ref(),
            "insecure" => self.insecure.as_ref(),
            "pin" => self.pin.as_ref(),
            "clock-shift" => self.clock_shift.as_ref(),
            "log-filter" => self.log_lines.log_filter.as_ref(),
            "log-format" => self.log_lines.log_format.as_ref(),
            _ => None,
        }
    }
}

/// Shards whose loss is accepted.
pub(crate) fn accepted_loss(text: &str) -> Result<AcceptedLoss, String> {
    if text == "all" {
        return Ok(AcceptedLoss::Everything);
    }
    let shards: Result<Vec<ShardId>, _> =
        text.split(',').map(|number| number.trim().parse().map(ShardId::new)).collect();
    shards
        .map(AcceptedLoss::Shards)
        .map_err(|_| "it must be shard numbers with commas, such as 2 or 0,3, or all".to_owned())
}
