//! `timestone bench`: how fast, and with how many aborts, a workload runs.
//!
//! ```text
//!   flags ─► Setup (spec, pace …) ─► Host: servers over TCP │ a store in this process ─► load ─► measure ─► Report
//!                                     one event loop a thread          sessions as tasks on the loops
//! ```
//! The measured path is the one that applications have: each session is a task on an event loop of the client library
//! (`Db::spawn`), issues its gets one after another, and commits. Nothing of it crosses threads while it runs. Keys live in a
//! keyspace of their own, `bench`, so that a benchmark does not touch anybody's data.

mod board;
mod clocks;
mod cpu;
mod history;
mod host;
mod limits;
mod load;
mod measure;
pub(crate) mod progress;
mod session;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use timestone_workload::{Pace, Report, ValueKind, WorkloadKind, WorkloadSpec};

use crate::failure::Failure;
use crate::link::Target;
use crate::logging;
use crate::output::{Format, write_line};
use crate::signals::Interrupt;

use history::Chronicle;
use host::Host;
use measure::Measured;

/// Flags of `timestone bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// What to run.
    #[arg(value_parser = workloads())]
    workload: String,
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
    /// Shards of the store in this process [default: as the directory has, or the server's default].
    #[arg(long, value_name = "N", requires = "in_process")]
    shards: Option<u16>,
    /// Sessions, each with one transaction at a time.
    #[arg(short, long, value_name = "N", default_value_t = 256)]
    clients: u32,
    /// Threads with an event loop each that run the sessions [default: 1 over TCP, every core in process].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// How long to measure.
    #[arg(short, long, value_name = "SPAN", default_value = "10s", value_parser = humantime::parse_duration)]
    duration: Duration,
    /// How long to run before measuring.
    #[arg(long, value_name = "SPAN", default_value = "2s", value_parser = humantime::parse_duration)]
    warmup: Duration,
    /// Keys [default: 1000000; 100 accounts for bank, 16 at a time for list-append and register].
    #[arg(short, long, value_name = "N")]
    keys: Option<u64>,
    /// Contention: exponent of Zipf's distribution over the keys, 0 for uniform [default: as the workload's paper].
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
    /// Open loop: start this many transactions a second at random (Poisson), whether or not the server keeps up; latency counts from
    /// the intended start [default: closed loop, each session starts the next when the last has ended].
    #[arg(short, long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Run an aborted transaction again with the same keys until it commits [default: go on with a new one].
    #[arg(long)]
    retry: bool,
    /// Write the history as Jepsen's EDN, one event a line (bank, list-append, register).
    #[arg(long, value_name = "FILE", conflicts_with = "retry")]
    history: Option<PathBuf>,
    /// Use the keys that an earlier run loaded.
    #[arg(long)]
    no_load: bool,
    /// The keyspace; created when missing. list-append and register empty it first.
    #[arg(long, value_name = "NAME", default_value = "bench")]
    keyspace: String,
    /// Everything random derives from it.
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
}

fn workloads() -> PossibleValuesParser {
    let value = |name| match name {
        "retwis-75" => PossibleValue::new(name).alias("retwis75"),
        _ => PossibleValue::new(name),
    };
    PossibleValuesParser::new(WorkloadKind::names().map(value))
}

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
    fn spec(&self) -> Result<WorkloadSpec, Failure> {
        let name = if self.workload == "retwis75" { "retwis-75" } else { &self.workload };
        let mut spec = WorkloadSpec::named(name).map_err(|error| Failure::usage(error.to_string()))?;
        let value_bytes = spec.tuple_bytes - spec.key_bytes;
        spec.seed = self.seed;
        spec.keys = self.keys.unwrap_or(spec.keys);
        spec.zipf = self.zipf.unwrap_or(spec.zipf);
        spec.key_bytes = self.key_bytes.unwrap_or(spec.key_bytes);
        spec.ops_per_txn = self.ops.unwrap_or(spec.ops_per_txn);
        let is_free = spec.value_kind() == ValueKind::Opaque && spec.kind != WorkloadKind::RetwisTapir;
        if self.value_bytes.is_some() && !is_free {
            return Err(Failure::usage(format!("--value-bytes does not apply to {name}: its values are its own")));
        }
        spec.tuple_bytes = spec.key_bytes.saturating_add(self.value_bytes.unwrap_or(value_bytes));
        spec.validate().map_err(|error| Failure::usage(format!("--{error}")))?;
        Ok(spec)
    }

    fn setup(&self) -> Result<Setup, Failure> {
        let spec = self.spec()?;
        if self.clients == 0 || self.clients > limits::MAX_CLIENTS {
            return Err(Failure::usage(format!(
                "--clients is {}, but it lies from 1 to {}",
                self.clients,
                limits::MAX_CLIENTS
            )));
        }
        if self.duration.is_zero() {
            return Err(Failure::usage("--duration is 0, but something must run"));
        }
        if self.history.is_some() && !spec.has_history() {
            return Err(Failure::usage(format!(
                "{} has no history that could be checked; --history goes with bank, list-append and register",
                spec.kind.name()
            )));
        }
        let pace = match self.rate {
            None => Pace::Closed,
            Some(per_second) => Pace::Open { per_second },
        };
        Ok(Setup { spec, clients: self.clients, pace, warmup: self.warmup, duration: self.duration, retry: self.retry })
    }
}

/// Loads, runs, reports.
pub(crate) fn run(args: &BenchArgs, format: Format) -> Result<(), Failure> {
    logging::start_if_asked()?;
    let setup = args.setup()?;
    let interrupt = Interrupt::register()?;
    let host = Host::open(args)?;
    let outcome = run_on(args, &setup, &host, &interrupt, format);
    // Closed on every path: the store in this process and its temporary folder must not stay behind.
    let closed = host.close();
    outcome.and(closed)
}

fn run_on(args: &BenchArgs, setup: &Setup, host: &Host, interrupt: &Interrupt, format: Format) -> Result<(), Failure> {
    let keyspace = load::prepare_keyspace(host.loops(), &args.keyspace, &setup.spec, args.no_load)?;
    let clocks = clocks::why_nothing_commits(&keyspace, setup.warmup + setup.duration);
    if let Some(why) = &clocks {
        warn(why);
    }
    if !args.no_load {
        load::load(host.loops(), keyspace.id, &setup.spec, interrupt)?;
    }
    let chronicle = match (&args.history, history::head_of(&setup.spec, &keyspace)) {
        (Some(path), Some(head)) => Some(Chronicle::create(path, setup.clients, &head)?),
        _ => None,
    };
    let measured = measure::measure(host, keyspace.id, setup, chronicle, interrupt)?;
    let total = match setup.spec.kind {
        // Its own commit would wait as long as the others did.
        WorkloadKind::Bank if clocks.is_none() => Some(measure::final_total(host.db(), keyspace.id, &setup.spec)?),
        _ => None,
    };
    print(&report(args, setup, host, &measured), format)?;
    verdict(setup, &measured, total, clocks.as_deref())
}

/// Says something on standard error; when nobody listens, nothing is lost.
fn warn(words: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr().lock(), "warning: {words}");
}

fn report(args: &BenchArgs, setup: &Setup, host: &Host, measured: &Measured) -> Report {
    let mut report = Report::new(&setup.spec, setup.clients, measured.duration, &measured.recorder, measured.used.cpu);
    report.note("version", env!("CARGO_PKG_VERSION"));
    report.note("keyspace", args.keyspace.as_str());
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
        report.note("server_cpu", "a server restarted during the run, and its processor time began anew");
    }
    if measured.abandoned > 0 {
        report.note("abandoned", measured.abandoned);
    }
    report
}

fn print(report: &Report, format: Format) -> Result<(), Failure> {
    match format {
        Format::Json => write_line(&report.to_json().map_err(|error| Failure::failed(error.to_string()))?),
        Format::Text | Format::Table => write_line(&report.to_string()),
    }
}

/// Whether the run may stand: the bank's totals were right, and something was measured.
fn verdict(setup: &Setup, measured: &Measured, final_total: Option<i64>, clocks: Option<&str>) -> Result<(), Failure> {
    let expected = setup.spec.total_balance();
    if measured.totals.wrong > 0 {
        return Err(Failure::failed(format!(
            "the bank is wrong: {} of {} snapshots of all accounts did not sum up to {expected}; the first one gave {}",
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
        let why = first.or_else(|| clocks.map(str::to_owned)).map_or_else(String::new, |why| format!(": {why}"));
        return Err(Failure::failed(format!("not one transaction committed{why}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::*;
    use crate::{Arguments, Command};

    fn args(text: &str) -> BenchArgs {
        let words = ["timestone", "bench"].into_iter().chain(text.split(' '));
        let matches = Arguments::command().try_get_matches_from(words).unwrap();
        match Arguments::from_arg_matches(&matches).unwrap().command {
            Command::Bench(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_become_the_specification() {
        let setup = args("retwis75 --keys 500 --zipf 0.9 --value-bytes 100 --rate 1000 --seed 7 --duration 500ms")
            .setup()
            .unwrap();
        let spec = &setup.spec;
        assert_eq!((spec.kind, spec.keys, spec.tuple_bytes, spec.seed), (WorkloadKind::Retwis75, 500, 116, 7));
        assert_eq!((setup.pace, setup.duration), (Pace::Open { per_second: 1000.0 }, Duration::from_millis(500)));
        assert_eq!(args("retwis").setup().unwrap().spec.tuple_bytes, 512);
        assert_eq!(args("ycsb-a --key-bytes 32").setup().unwrap().spec.tuple_bytes, 528);
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
        ] {
            let failure = args(text).setup().unwrap_err();
            assert!(failure.to_string().contains(expected) && failure.code == 2, "{text}: {failure}");
        }
    }
}
