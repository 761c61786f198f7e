//! The flags of `timestone bench`, in groups by subject; `--help` shows them in this order.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use timestone_clock::SkewModel;
use timestone_workload::{ValueKind, WorkloadKind, WorkloadSpec};

use super::{ClientProtocol, redis};
use crate::failure::Failure;
use crate::link::Target;

/// Flags of `timestone bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// What to run; with --protocol resp there is redis alone, and it may be left out.
    #[arg(value_parser = workloads(), required_unless_present = "protocol")]
    pub(super) workload: Option<String>,
    /// What is spoken: the native protocol, or RESP as Redis clients do: pipelines of strings, keys
    /// that expire, conditional SETs, counters, MGET and MSET, WATCH with MULTI and EXEC, SCAN and
    /// KEYS. Its latencies are those of commands from when their pipeline was sent [default:
    /// native; resp for redis].
    #[arg(long, value_enum)]
    pub(super) protocol: Option<ClientProtocol>,
    #[command(flatten)]
    pub(super) target: Target,
    #[command(flatten)]
    pub(super) store: StoreArgs,
    /// Sessions, each with one transaction at a time [default: 256]; with RESP connections, each
    /// with one pipeline at a time [default: 50].
    #[arg(short, long, value_name = "N")]
    pub(super) clients: Option<u32>,
    #[command(flatten)]
    pub(super) resp: RespArgs,
    /// Threads with an event loop each that run the sessions [default: 1 over TCP, every core in
    /// process].
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<usize>,
    #[command(flatten)]
    pub(super) time: TimeArgs,
    #[command(flatten)]
    pub(super) shape: ShapeArgs,
    /// Open loop: start this many transactions a second at random (Poisson), whether or not the
    /// server keeps up; latency counts from the intended start [default: closed loop, each session
    /// starts the next when the last has ended].
    #[arg(short, long, value_name = "PER_SECOND")]
    pub(super) rate: Option<f64>,
    /// Let the clock of each event loop be wrong as a model says: perfect, ptp, ntp, azure-ptp, or how
    /// far any two are apart on average, such as 20ms; no clock says so of itself. To see what skew
    /// costs, and what the servers' time is worth.
    #[arg(long, value_name = "MODEL", conflicts_with = "in_process")]
    pub(super) clock_skew: Option<SkewModel>,
    /// Let transactions that only read read so far in the past, at the nearest copy of a shard: also
    /// at backups [default: primaries answer, with the present].
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration, conflicts_with = "in_process")]
    pub(super) max_staleness: Option<Duration>,
    /// Register, get-put: single requests without transactions, each of one key, so that every key
    /// must be linearizable. A get and a put are one request, which answers with the value before.
    #[arg(long, conflicts_with_all = ["max_staleness", "ops", "retry"])]
    pub(super) singles: bool,
    /// Run an aborted transaction again with the same keys until it commits [default: go on with a
    /// new one].
    #[arg(long)]
    pub(super) retry: bool,
    /// Write the history as Jepsen's EDN, one event a line, for `timestone check` (bank,
    /// list-append, register, redis).
    #[arg(long, value_name = "FILE", conflicts_with = "retry")]
    pub(super) history: Option<PathBuf>,
    /// Use the keys that an earlier run loaded.
    #[arg(long)]
    pub(super) no_load: bool,
    /// The keyspace; created when missing. list-append and register empty it first. Redis clients
    /// have the default one, where the keys of a run begin with `bench:` [default: bench].
    #[arg(long, value_name = "NAME")]
    pub(super) keyspace: Option<String>,
    /// Everything random derives from it.
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub(super) seed: u64,
}

/// A store in this process instead of servers.
#[derive(Args, Debug)]
pub(super) struct StoreArgs {
    /// Run on a store in this process instead of on servers: no sockets, no server to start.
    #[arg(long)]
    pub(super) in_process: bool,
    /// Data directory of the store in this process; kept afterwards [default: a temporary one].
    #[arg(long, value_name = "DIR", requires = "in_process")]
    pub(super) data: Option<PathBuf>,
    /// Log device of the store in this process: ssd or none.
    #[arg(long, value_name = "DEVICE", default_value = "ssd")]
    pub(super) log: String,
    /// Shards of the store in this process [default: as the directory has, or the server's
    /// default].
    #[arg(long, value_name = "N", requires = "in_process")]
    pub(super) shards: Option<u16>,
}

/// What there is over RESP alone.
#[derive(Args, Debug)]
pub(super) struct RespArgs {
    /// RESP: most commands of a pipeline [default: 4].
    #[arg(long, value_name = "N")]
    pub(super) depth: Option<u64>,
    /// RESP: commands over the whole keyspace: none, list (SCAN and KEYS of the run's own keys), or
    /// all (DBSIZE and FLUSHDB as well, which DELETES EVERYTHING in the default keyspace, before
    /// the run and now and then) [default: list].
    #[arg(long, value_enum, value_name = "WHICH", hide_possible_values = true)]
    pub(super) whole: Option<redis::Whole>,
    /// RESP: of a hundred pipelines, so many are cut off before all of it is answered [default: 0].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    pub(super) cut: Option<u64>,
}

/// How long a run takes.
#[derive(Args, Debug)]
pub(super) struct TimeArgs {
    /// How long to measure.
    #[arg(short, long, value_name = "SPAN", default_value = "10s", value_parser = humantime::parse_duration)]
    pub(super) duration: Duration,
    /// How long to run before measuring.
    #[arg(long, value_name = "SPAN", default_value = "2s", value_parser = humantime::parse_duration)]
    pub(super) warmup: Duration,
}

/// What a workload is made of, where its paper does not decide.
#[derive(Args, Debug)]
pub(super) struct ShapeArgs {
    /// Keys [default: 1000000; 100 accounts for bank, 16 at a time for list-append and register;
    /// 100 of each kind for redis].
    #[arg(short, long, value_name = "N")]
    pub(super) keys: Option<u64>,
    /// Contention: exponent of Zipf's distribution over the keys, 0 for uniform [default: as the
    /// workload's paper].
    #[arg(short, long, value_name = "ALPHA")]
    pub(super) zipf: Option<f64>,
    /// Bytes of a key [default: 16; 64 for retwis-tapir].
    #[arg(long, value_name = "N")]
    pub(super) key_bytes: Option<usize>,
    /// Bytes of a value [default: 496, which makes tuples of 512].
    #[arg(long, value_name = "N")]
    pub(super) value_bytes: Option<usize>,
    /// Most operations of a transaction of ycsb, list-append and register.
    #[arg(long, value_name = "N")]
    pub(super) ops: Option<u32>,
    /// Deletions: of a hundred writes of ycsb and register and appends of list-append, so many
    /// delete instead, and what comes next begins anew; of a hundred transfers of bank, so many
    /// close an account, which the next one to it opens again [default: 10 for register, 5 for
    /// list-append and bank, 0 for ycsb; histories of list-append and bank with deletions are not
    /// for other checkers].
    #[arg(long, value_name = "N")]
    pub(super) delete_percent: Option<u64>,
    /// Expiry: of a hundred writes of ycsb and register, so many expire within 50 to 500 ms
    /// [default: 5 for register, 0 for ycsb].
    #[arg(long, value_name = "N")]
    pub(super) expire_percent: Option<u64>,
}

fn workloads() -> PossibleValuesParser {
    let value = |name| match name {
        "retwis-75" => PossibleValue::new(name).alias("retwis75"),
        _ => PossibleValue::new(name),
    };
    PossibleValuesParser::new(WorkloadKind::names().into_iter().chain([redis::NAME]).map(value))
}

impl RespArgs {
    /// The first of these flags that was given.
    pub(super) fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--depth", self.depth.is_some()),
            ("--whole", self.whole.is_some()),
            ("--cut", self.cut.is_some()),
        ];
        flags.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
    }
}

impl TimeArgs {
    /// How long to measure, checked.
    pub(super) fn measured_span(&self) -> Result<Duration, Failure> {
        if self.duration.is_zero() {
            return Err(Failure::usage("--duration is 0, but something must run"));
        }
        Ok(self.duration)
    }
}

impl ShapeArgs {
    /// The first of these flags that was given, but for the number of keys.
    pub(super) fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--zipf", self.zipf.is_some()),
            ("--key-bytes", self.key_bytes.is_some()),
            ("--value-bytes", self.value_bytes.is_some()),
            ("--ops", self.ops.is_some()),
            ("--delete-percent", self.delete_percent.is_some()),
            ("--expire-percent", self.expire_percent.is_some()),
        ];
        flags.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
    }

    /// The specification of a workload with what was given.
    pub(super) fn applied_to(&self, mut spec: WorkloadSpec) -> Result<WorkloadSpec, Failure> {
        let name = spec.kind.name();
        let value_bytes = spec.tuple_bytes - spec.key_bytes;
        spec.keys = self.keys.unwrap_or(spec.keys);
        spec.zipf = self.zipf.unwrap_or(spec.zipf);
        spec.key_bytes = self.key_bytes.unwrap_or(spec.key_bytes);
        spec.ops_per_txn = self.ops.unwrap_or(spec.ops_per_txn);
        for (flag, given) in
            [("--delete-percent", self.delete_percent), ("--expire-percent", self.expire_percent)]
        {
            let applies = if flag == "--delete-percent" {
                spec.kind.may_delete()
            } else {
                spec.kind.may_expire()
            };
            if given.is_some_and(|percent| percent > 0) && !applies {
                return Err(Failure::usage(format!("{flag} does not apply to {name}")));
            }
        }
        spec.delete_percent = self.delete_percent.unwrap_or(spec.delete_percent);
        spec.expire_percent = self.expire_percent.unwrap_or(spec.expire_percent);
        let is_free =
            spec.value_kind() == ValueKind::Opaque && spec.kind != WorkloadKind::RetwisTapir;
        if self.value_bytes.is_some() && !is_free {
            return Err(Failure::usage(format!(
                "--value-bytes does not apply to {name}: its values are its own"
            )));
        }
        spec.tuple_bytes = spec.key_bytes.saturating_add(self.value_bytes.unwrap_or(value_bytes));
        Ok(spec)
    }
}
