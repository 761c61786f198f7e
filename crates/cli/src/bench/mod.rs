//! `timestone bench`: how fast, and with how many aborts, a workload runs.
//!
//! ```text
//!   flags ─► Setup (spec, pace …) ─► Host: servers over TCP │ a store in this process ─► load ─► measure ─► Report
//!                                     one event loop a thread          sessions as tasks on the loops
//! ```
//! The measured path is the one that applications have: each session is a task on an event loop of
//! the client library (`Db::spawn`), issues its gets one after another, and commits. Nothing of it
//! crosses threads while it runs. Keys live in a keyspace of their own, `bench`, so that a
//! benchmark does not touch anybody's data. What Redis clients do stands in `redis/`.

mod board;
mod clocks;
mod cpu;
mod history;
mod host;
mod limits;
mod load;
mod measure;
pub(crate) mod progress;
mod redis;
mod session;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, ValueEnum};
use timestone_workload::{Pace, Report, ValueKind, WorkloadKind, WorkloadSpec};

use crate::failure::Failure;
use crate::link::Target;
use crate::logging;
use crate::output::{Format, say, write_line};
use crate::signals::Interrupt;

use history::Chronicle;
use host::Host;
use measure::Measured;

/// Flags of `timestone bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// What to run; with --protocol resp there is redis alone, and it may be left out.
    #[arg(value_parser = workloads(), required_unless_present = "protocol")]
    workload: Option<String>,
    /// What is spoken: the native protocol, or RESP as Redis clients do: pipelines of strings, keys
    /// that expire, conditional SETs, counters, MGET and MSET, WATCH with MULTI and EXEC, SCAN and
    /// KEYS. Its latencies are those of commands from when their pipeline was sent [default:
    /// native; resp for redis].
    #[arg(long, value_enum)]
    protocol: Option<Protocol>,
    #[command(flatten)]
    target: Target,
    /// Run on a store in this process instead of on servers: no sockets, no server to start.
    #[arg(long)]
    in_process: bool,
    /// Data directory of the store in this process; kept afterwards [default: a temporary one].
    #[arg(long, value_name = "DIR", requires = "in_process")]
    data: Option<PathBuf>,
    /// Log device of the store in this process: ssd or none.
    #[arg(long, value_name = "DEVICE", default_value = "ssd")]
    log: String,
    /// Shards of the store in this process [default: as the directory has, or the server's
    /// default].
    #[arg(long, value_name = "N", requires = "in_process")]
    shards: Option<u16>,
    /// Sessions, each with one transaction at a time [default: 256]; with RESP connections, each
    /// with one pipeline at a time [default: 50].
    #[arg(short, long, value_name = "N")]
    clients: Option<u32>,
    /// RESP: most commands of a pipeline [default: 4].
    #[arg(long, value_name = "N")]
    depth: Option<u64>,
    /// RESP: commands over the whole keyspace: none, list (SCAN and KEYS of the run's own keys), or
    /// all (DBSIZE and FLUSHDB as well, which DELETES EVERYTHING in the default keyspace, before
    /// the run and now and then) [default: list].
    #[arg(long, value_enum, value_name = "WHICH", hide_possible_values = true)]
    whole: Option<redis::Whole>,
    /// RESP: of a hundred pipelines, so many are cut off before all of it is answered [default: 0].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    cut: Option<u64>,
    /// Threads with an event loop each that run the sessions [default: 1 over TCP, every core in
    /// process].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// How long to measure.
    #[arg(short, long, value_name = "SPAN", default_value = "10s", value_parser = humantime::parse_duration)]
    duration: Duration,
    /// How long to run before measuring.
    #[arg(long, value_name = "SPAN", default_value = "2s", value_parser = humantime::parse_duration)]
    warmup: Duration,
    /// Keys [default: 1000000; 100 accounts for bank, 16 at a time for list-append and register;
    /// 100 of each kind for redis].
    #[arg(short, long, value_name = "N")]
    keys: Option<u64>,
    /// Contention: exponent of Zipf's distribution over the keys, 0 for uniform [default: as the
    /// workload's paper].
    #[arg(short, long, value_name = "ALPHA")]
    zipf: Option<f64>,
    /// Bytes of a key [default: 16; 64 for retwis-tapir].
    #[arg(long, value_name = "N")]
    key_bytes: Option<usize>,
    /// Bytes of a value [default: 496, which makes tuples of 512].
    #[arg(long, value_name = "N")]
    value_bytes: Option<usize>,
    /// Most operations of a transaction of ycsb, list-append and register.
    #[arg(long, value_name = "N")]
    ops: Option<u32>,
    /// Deletions: of a hundred writes of ycsb and register and appends of list-append, so many
    /// delete instead, and what comes next begins anew; of a hundred transfers of bank, so many
    /// close an account, which the next one to it opens again [default: 10 for register, 5 for
    /// list-append and bank, 0 for ycsb; histories of list-append and bank with deletions are not
    /// for other checkers].
    #[arg(long, value_name = "N")]
    delete_percent: Option<u64>,
    /// Expiry: of a hundred writes of ycsb and register, so many expire within 50 to 500 ms
    /// [default: 5 for register, 0 for ycsb].
    #[arg(long, value_name = "N")]
    expire_percent: Option<u64>,
    /// Open loop: start this many transactions a second at random (Poisson), whether or not the
    /// server keeps up; latency counts from the intended start [default: closed loop, each session
    /// starts the next when the last has ended].
    #[arg(short, long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Run an aborted transaction again with the same keys until it commits [default: go on with a
    /// new one].
    #[arg(long)]
    retry: bool,
    /// Write the history as Jepsen's EDN, one event a line, for `timestone check` (bank,
    /// list-append, register, redis).
    #[arg(long, value_name = "FILE", conflicts_with = "retry")]
    history: Option<PathBuf>,
    /// Use the keys that an earlier run loaded.
    #[arg(long)]
    no_load: bool,
    /// The keyspace; created when missing. list-append and register empty it first. Redis clients
    /// have the default one, where the keys of a run begin with `bench:` [default: bench].
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// Everything random derives from it.
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
}

fn workloads() -> PossibleValuesParser {
    let value = |name| match name {
        "retwis-75" => PossibleValue::new(name).alias("retwis75"),
        _ => PossibleValue::new(name),
    };
    PossibleValuesParser::new(WorkloadKind::names().into_iter().chain([redis::NAME]).map(value))
}

/// What clients speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Protocol {
    Native,
    Resp,
}

/// Sessions where nothing else is said.
const SESSIONS: u32 = 256;
/// The keyspace where nothing else is said.
const KEYSPACE: &str = "bench";

/// What is to be run, checked.
#[derive(Clone, Debug)]
struct Setup {
    spec: WorkloadSpec,
    clients: u32,
    pace: Pace,
    warmup: Duration,
    duration: Duration,
    retry: bool,
}

impl BenchArgs {
    /// What is to be spoken, and whether that goes with the workload.
    fn protocol(&self) -> Result<Protocol, Failure> {
        let is_redis = self.workload.as_deref().is_none_or(|name| name == redis::NAME);
        match (self.protocol, &self.workload) {
            (None, _) => Ok(if is_redis { Protocol::Resp } else { Protocol::Native }),
            (Some(Protocol::Resp), Some(name)) if !is_redis => Err(Failure::usage(format!(
                "{name} is a workload of the native protocol; over RESP there is redis"
            ))),
            (Some(Protocol::Native), None) => {
                Err(Failure::usage("name a workload, such as retwis"))
            }
            (Some(Protocol::Native), _) if is_redis => Err(Failure::usage(
                "redis is a workload over RESP; add --protocol resp, or leave --protocol out",
            )),
            (Some(protocol), _) => Ok(protocol),
        }
    }

    fn keyspace(&self) -> &str {
        self.keyspace.as_deref().unwrap_or(KEYSPACE)
    }

    const fn pace(&self) -> Pace {
        match self.rate {
            None => Pace::Closed,
            Some(per_second) => Pace::Open { per_second },
        }
    }

    fn measured_span(&self) -> Result<Duration, Failure> {
        if self.duration.is_zero() {
            return Err(Failure::usage("--duration is 0, but something must run"));
        }
        Ok(self.duration)
    }

    fn spec(&self) -> Result<WorkloadSpec, Failure> {
        let name = match self.workload.as_deref().unwrap_or_default() {
            "retwis75" => "retwis-75",
            name => name,
        };
        let mut spec =
            WorkloadSpec::named(name).map_err(|error| Failure::usage(error.to_string()))?;
        let value_bytes = spec.tuple_bytes - spec.key_bytes;
        spec.seed = self.seed;
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
        spec.validate().map_err(|error| Failure::usage(format!("--{error}")))?;
        Ok(spec)
    }

    fn setup(&self) -> Result<Setup, Failure> {
        let spec = self.spec()?;
        let of_redis = [
            ("--depth", self.depth.is_some()),
            ("--whole", self.whole.is_some()),
            ("--cut", self.cut.is_some()),
        ];
        if let Some((flag, _)) = of_redis.iter().find(|(_, is_given)| *is_given) {
            return Err(Failure::usage(format!("{flag} goes with --protocol resp")));
        }
        let clients = self.clients.unwrap_or(SESSIONS);
        if clients == 0 || clients > limits::MAX_CLIENTS {
            return Err(Failure::usage(format!(
                "--clients is {clients}, but it lies from 1 to {}",
                limits::MAX_CLIENTS
            )));
        }
        let duration = self.measured_span()?;
        if self.history.is_some() && !spec.has_history() {
            return Err(Failure::usage(format!(
                "{} has no history that could be checked; --history goes with bank, list-append \
                 and register",
                spec.kind.name()
            )));
        }
        Ok(Setup {
            spec,
            clients,
            pace: self.pace(),
            warmup: self.warmup,
            duration,
            retry: self.retry,
        })
    }
}

/// Loads, runs, reports.
pub(crate) fn run(args: &BenchArgs, format: Format) -> Result<(), Failure> {
    logging::start_if_asked()?;
    if args.protocol()? == Protocol::Resp {
        return redis::run(args, format);
    }
    let setup = args.setup()?;
    let interrupt = Interrupt::register()?;
    let host = Host::open(args)?;
    let outcome = run_on(args, &setup, &host, &interrupt, format);
    // Closed on every path: the store in this process and its temporary folder must not stay
    // behind.
    let closed = host.close();
    outcome.and(closed)
}

fn run_on(
    args: &BenchArgs,
    setup: &Setup,
    host: &Host,
    interrupt: &Interrupt,
    format: Format,
) -> Result<(), Failure> {
    let prepared = load::find_keyspace(host.loops(), args.keyspace(), &setup.spec, args.no_load)?;
    let keyspace = &prepared.keyspace;
    // Before anything waits for the clocks itself.
    let clocks = clocks::why_nothing_commits(keyspace, setup.warmup + setup.duration);
    if let Some(why) = &clocks {
        say(&format!("warning: {why}"));
    }
    load::empty_keyspace(host.db(), &prepared)?;
    if !args.no_load {
        load::load(host.loops(), keyspace.id, &setup.spec, interrupt)?;
    }
    let chronicle = match (&args.history, history::head_of(&setup.spec, keyspace)) {
        (Some(path), Some(head)) => Some(Chronicle::create(path, setup.clients, &head)?),
        _ => None,
    };
    let measured = measure::measure(host, keyspace.id, setup, chronicle, interrupt)?;
    let total = match setup.spec.kind {
        // Its own commit would wait as long as the others did.
        WorkloadKind::Bank if clocks.is_none() => {
            Some(measure::final_total(host.db(), keyspace.id, &setup.spec)?)
        }
        _ => None,
    };
    print(&report(args, setup, host, &measured), format)?;
    verdict(setup, &measured, total, clocks.as_deref())
}

fn report(args: &BenchArgs, setup: &Setup, host: &Host, measured: &Measured) -> Report {
    let mut report = Report::new(
        &setup.spec,
        setup.clients,
        measured.duration,
        &measured.recorder,
        measured.used.cpu,
    );
    report.note("version", env!("CARGO_PKG_VERSION"));
    report.note("keyspace", args.keyspace());
    report.note("protocol", "native");
    report.note("threads", host.loops().len());
    report.note("warmup_s", setup.warmup.as_secs_f64());
    report.note("retry", setup.retry);
    match setup.pace {
        Pace::Closed => report.note("pace", "closed"),
        Pace::Open { per_second } => {
            report.note("pace", "open");
            report.note("rate", per_second);
        }
    }
    if setup.spec.kind == WorkloadKind::Bank {
        report.note("totals_checked", measured.totals.checked);
    }
    for (name, value) in host.notes() {
        report.note(name, value);
    }
    if measured.used.restarted {
        report.note(
            "server_cpu",
            "a server restarted during the run, and its processor time began anew",
        );
    }
    if measured.abandoned > 0 {
        report.note("abandoned", measured.abandoned);
    }
    report
}

fn print(report: &Report, format: Format) -> Result<(), Failure> {
    match format {
        Format::Json => {
            write_line(&report.to_json().map_err(|error| Failure::failed(error.to_string()))?)
        }
        Format::Text | Format::Table => write_line(&report.to_string()),
    }
}

/// Whether the run may stand: the bank's totals were right, and something was measured.
fn verdict(
    setup: &Setup,
    measured: &Measured,
    final_total: Option<i64>,
    clocks: Option<&str>,
) -> Result<(), Failure> {
    let expected = setup.spec.total_balance();
    if measured.totals.wrong > 0 {
        return Err(Failure::failed(format!(
            "the bank is wrong: {} of {} snapshots of all accounts did not sum up to {expected}; \
             the first one gave {}",
            measured.totals.wrong, measured.totals.checked, measured.totals.first_wrong
        )));
    }
    if let Some(total) = final_total.filter(|total| *total != expected) {
        return Err(Failure::failed(format!(
            "the bank is wrong: at the end all accounts sum up to {total}, not to {expected}"
        )));
    }
    if measured.recorder.committed_count() == 0 {
        let first = measured.first_error.as_ref().map(ToString::to_string);
        let why = first
            .or_else(|| clocks.map(str::to_owned))
            .map_or_else(String::new, |why| format!(": {why}"));
        return Err(Failure::failed(format!("not one transaction committed{why}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::*;
    use crate::{Arguments, Command};

    pub(super) fn args(text: &str) -> BenchArgs {
        let words = ["timestone", "bench"].into_iter().chain(text.split(' '));
        let matches = Arguments::command().try_get_matches_from(words).unwrap();
        match Arguments::from_arg_matches(&matches).unwrap().command {
            Command::Bench(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_become_the_specification() {
        let setup = args(
            "retwis75 --keys 500 --zipf 0.9 --value-bytes 100 --rate 1000 --seed 7 \
            --duration 500ms",
        )
        .setup()
        .unwrap();
        let spec = &setup.spec;
        assert_eq!(
            (spec.kind, spec.keys, spec.tuple_bytes, spec.seed),
            (WorkloadKind::Retwis75, 500, 116, 7)
        );
        assert_eq!(
            (setup.pace, setup.duration),
            (Pace::Open { per_second: 1000.0 }, Duration::from_millis(500))
        );
        assert_eq!(args("retwis").setup().unwrap().spec.tuple_bytes, 512);
        assert_eq!(args("ycsb-a --key-bytes 32").setup().unwrap().spec.tuple_bytes, 528);
    }

    #[test]
    fn each_protocol_has_its_workloads() {
        for (text, protocol) in [
            ("retwis", Protocol::Native),
            ("redis", Protocol::Resp),
            ("--protocol resp", Protocol::Resp),
            ("ycsb-a --protocol native", Protocol::Native),
        ] {
            assert_eq!(args(text).protocol().unwrap(), protocol, "{text}");
        }
        for text in ["retwis --protocol resp", "redis --protocol native", "--protocol native"] {
            assert_eq!(args(text).protocol().unwrap_err().code, 2, "{text}");
        }
    }

    #[test]
    fn flags_that_make_no_sense_are_refused_by_name() {
        for (text, expected) in [
            ("retwis --clients 0", "--clients"),
            ("retwis --duration 0s", "--duration"),
            ("retwis --keys 3", "--keys"),
            ("retwis --history x.edn", "--history"),
            ("bank --value-bytes 10", "--value-bytes"),
            ("retwis-tapir --value-bytes 10", "--value-bytes"),
            ("retwis --zipf 9", "--zipf"),
            ("retwis --delete-percent 5", "--delete-percent"),
            ("bank --expire-percent 5", "--expire-percent"),
            ("ycsb-a --delete-percent 101", "--delete-percent"),
            ("ycsb-a --depth 3", "--depth"),
        ] {
            let failure = args(text).setup().unwrap_err();
            assert!(
                failure.to_string().contains(expected) && failure.code == 2,
                "{text}: {failure}"
            );
        }
    }
}
