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
mod flags;
mod history;
mod host;
mod limits;
mod load;
mod measure;
pub(crate) mod progress;
mod redis;
mod session;

use std::time::Duration;

use clap::ValueEnum;
use timestone_workload::{Pace, Report, WorkloadKind, WorkloadSpec};

use crate::failure::Failure;
use crate::logging;
use crate::output::{Format, or_unread, say, write_line};
use crate::signals::Interrupt;

pub(crate) use flags::BenchArgs;
use history::Chronicle;
use host::Host;
use measure::Measured;

/// What clients speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ClientProtocol {
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
    max_staleness: Option<Duration>,
    /// Whether operations are requests of their own, not in transactions.
    singles: bool,
    /// Whether clocks are wrong on purpose, or snapshots may be old, so that it is looked at how old
    /// they are.
    looks_at_ages: bool,
}

impl BenchArgs {
    /// What is to be spoken, and whether that goes with the workload.
    fn protocol(&self) -> Result<ClientProtocol, Failure> {
        let is_redis = self.workload.as_deref().is_none_or(|name| name == redis::NAME);
        match (self.protocol, &self.workload) {
            (None, _) => Ok(if is_redis { ClientProtocol::Resp } else { ClientProtocol::Native }),
            (Some(ClientProtocol::Resp), Some(name)) if !is_redis => Err(Failure::usage(format!(
                "{name} is a workload of the native protocol; over RESP there is redis"
            ))),
            (Some(ClientProtocol::Native), None) => {
                Err(Failure::usage("name a workload, such as retwis"))
            }
            (Some(ClientProtocol::Native), _) if is_redis => Err(Failure::usage(
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

    fn spec(&self) -> Result<WorkloadSpec, Failure> {
        let name = match self.workload.as_deref().unwrap_or_default() {
            "retwis75" => "retwis-75",
            name => name,
        };
        let mut spec =
            WorkloadSpec::named(name).map_err(|error| Failure::usage(error.to_string()))?;
        spec.seed = self.seed;
        let mut spec = self.shape.applied_to(spec)?;
        if self.singles {
            if !matches!(spec.kind, WorkloadKind::Register | WorkloadKind::GetPut) {
                return Err(Failure::usage(format!(
                    "--singles goes with register and get-put, not with {name}"
                )));
            }
            spec.ops_per_txn = 1;
        }
        spec.validate().map_err(|error| Failure::usage(format!("--{error}")))?;
        Ok(spec)
    }

    fn setup(&self) -> Result<Setup, Failure> {
        let spec = self.spec()?;
        if let Some(flag) = self.resp.given() {
            return Err(Failure::usage(format!("{flag} goes with --protocol resp")));
        }
        let clients = self.clients.unwrap_or(SESSIONS);
        if clients == 0 || clients > limits::MAX_CLIENTS {
            return Err(Failure::usage(format!(
                "--clients is {clients}, but it lies from 1 to {}",
                limits::MAX_CLIENTS
            )));
        }
        let duration = self.time.measured_span()?;
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
            warmup: self.time.warmup,
            duration,
            retry: self.retry,
            max_staleness: self.max_staleness,
            singles: self.singles,
            looks_at_ages: self.clock_skew.is_some() || self.max_staleness.is_some(),
        })
    }
}

/// Loads, runs, reports.
pub(crate) fn run(args: &BenchArgs, format: Format) -> Result<(), Failure> {
    logging::start_if_asked()?;
    if args.protocol()? == ClientProtocol::Resp {
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
    let bound = clocks::bound_of(host.db());
    let clocks = clocks::why_nothing_commits(keyspace, bound, setup.warmup + setup.duration);
    if let Some(why) = &clocks {
        say(&format!("warning: {why}"));
    }
    load::empty_keyspace(host.db(), &prepared)?;
    if !args.no_load {
        load::load(host.loops(), keyspace.id, &setup.spec, interrupt)?;
    }
    let chronicle = match (&args.history, history::head_of(setup, keyspace)) {
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
    or_unread(print(&report(args, setup, host, &measured), format))?;
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
    if setup.singles {
        report.note("singles", true);
    }
    if let Some(span) = setup.max_staleness {
        report.note("max_staleness_s", span.as_secs_f64());
        let stats = host.loops().iter().filter_map(|db| db.stats().wait().ok());
        report.note("backup_reads", stats.map(|stats| stats.answered_by_backups).sum::<u64>());
    }
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
    if let Some(clock) = clocks::worst_of(host.loops()) {
        report.note("clock", clock.to_string());
        report.note("clock_offset_us", clock.offset_ns as f64 / 1e3);
        report.note("clock_error_us", clock.error_bound.bound.as_secs_f64() * 1e6);
    }
    if let Some(ages) = measured.ages {
        report.note("snapshots", ages.begun);
        report.note("stale_snapshots", ages.stale);
        report.note("stale_by_ms", ages.mean_behind().as_secs_f64() * 1e3);
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
    fn single_requests_are_of_registers() {
        let setup = args("register --singles").setup().unwrap();
        assert_eq!((setup.singles, setup.spec.ops_per_txn), (true, 1));
        assert!(!args("register").setup().unwrap().singles);
        let refused = args("list-append --singles").setup().map(drop).unwrap_err().to_string();
        assert!(refused.contains("--singles goes with register and get-put"), "{refused}");
    }

    #[test]
    fn each_protocol_has_its_workloads() {
        for (text, protocol) in [
            ("retwis", ClientProtocol::Native),
            ("redis", ClientProtocol::Resp),
            ("--protocol resp", ClientProtocol::Resp),
            ("ycsb-a --protocol native", ClientProtocol::Native),
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
