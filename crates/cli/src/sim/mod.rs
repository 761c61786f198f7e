//! `timestone sim`: whole clusters under one virtual clock and one seed, with faults on purpose and every history checked.
//!
//! ```text
//!   scenario (by name or file) ─► seeds ─► sim::run, on as many threads as wanted ─► sums ─► table or JSON; exit code 1 on a finding
//!                                              └── a seed that fails ─► once more with words ─► its trace in a file
//! ```
//! Equal seeds give equal runs, so that a failing one is replayed by its number. `--step` shows what happened in one run.

mod scenarios;
mod step;
mod sums;

use std::fs::{self, File};
use std::io::{BufWriter, Write, stderr};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use clap::Args;
use timestone_sim::{RunOptions, RunReport, Scenario, Seed, run as simulate};
use timestone_workload::history;

use crate::bench::progress;
use crate::failure::Failure;
use crate::output::{Format, write_json, write_line};
use sums::Sums;

/// Lines that the trace of a failing seed keeps: the last ones.
const TRACE_LINES: usize = 200_000;

/// Flags of `timestone sim`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  timestone sim --scenario bank --seeds 100
  timestone sim --minutes 60                        the swarm: everything drawn from the seed
  timestone sim --scenario list-append --seed 7 --step --transaction 2-14")]
pub(crate) struct SimArgs {
    /// A scenario's name, or a file that describes one
    #[arg(long, default_value = "swarm", value_name = "NAME|FILE")]
    scenario: String,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds to run, one after another from the first [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "minutes")]
    seeds: Option<u64>,
    /// Run seeds until so much virtual time has passed in them
    #[arg(long, value_name = "M")]
    minutes: Option<f64>,
    /// Seeds run at once
    #[arg(long, default_value_t = 1, value_name = "N")]
    jobs: usize,
    /// Write the history of a single seed to this file, as Jepsen's EDN
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// The folder for traces of failing seeds
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    traces: PathBuf,
    /// Step through a single seed: what happened, in which stage, which message
    #[arg(long)]
    step: bool,
    /// Step: only what concerns this transaction, such as 2-14
    #[arg(long, value_name = "TXN", requires = "step")]
    transaction: Option<String>,
    /// Step: only what concerns this key
    #[arg(long, value_name = "KEY", requires = "step")]
    key: Option<String>,
    /// Step: only what happened in this process, such as server-1
    #[arg(long, value_name = "PROCESS", requires = "step")]
    server: Option<String>,
    /// List the scenarios that have names
    #[arg(long)]
    list: bool,
}

/// Runs the seeds that are asked for.
pub(crate) fn run(args: &SimArgs, format: Format) -> Result<(), Failure> {
    if args.list {
        return scenarios::list(format);
    }
    let scenario = scenarios::find(&args.scenario)?;
    // What panics in a world is a finding of that world, and does not end the process.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let what = panic.payload_as_str().unwrap_or("something that is no text");
        let _ = writeln!(stderr(), "an assertion failed at {place}: {what}");
    }));
    if args.step {
        return step::run(args, &scenario);
    }
    if args.history.is_some() && (args.minutes.is_some() || args.seeds.is_some_and(|seeds| seeds != 1)) {
        return Err(Failure::usage("--history writes the history of one seed; give it with --seed alone"));
    }
    let sums = run_all(args, &scenario)?;
    if format == Format::Json {
        write_json(&sums.json(&scenario.name))?;
    } else {
        write_line(&sums.table())?;
    }
    match sums.failed.len() {
        0 => Ok(()),
        1 => Err(Failure::failed(format!("seed {} of scenario {} failed", sums.failed[0].0, scenario.name))),
        count => Err(Failure::failed(format!("{count} seeds of scenario {} failed", scenario.name))),
    }
}

fn world_failed(error: &timestone_sim::SimError) -> Failure {
    Failure::failed(error.to_string())
}

fn run_all(args: &SimArgs, scenario: &Scenario) -> Result<Sums, Failure> {
    let seeds = match (args.seeds, args.minutes) {
        (_, Some(_)) => u64::MAX,
        (seeds, None) => seeds.unwrap_or(1),
    };
    let enough = args.minutes.map_or(f64::INFINITY, |minutes| minutes * 60.0);
    let length = args.minutes.map_or(seeds, |minutes| (minutes * 60.0) as u64);
    let bar = progress::bar(length, "{wide_bar} {msg}");
    let sums = Mutex::new(Sums::new());
    let first_failure: Mutex<Option<Failure>> = Mutex::new(None);
    let (next, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = || {
        while !over.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= seeds {
                break;
            }
            let seed = args.seed.wrapping_add(number);
            let begin = Instant::now();
            let ran = one(args, scenario, seed);
            let Ok(mut sums) = sums.lock() else { break };
            match ran {
                Ok((report, trace)) => {
                    sums.add(&report, begin.elapsed());
                    if !report.is_right() {
                        let said = tell(scenario, &report, trace.as_deref());
                        bar.suspend(|| drop(writeln!(stderr(), "{said}")));
                    }
                    let position = if args.minutes.is_some() { sums.virtual_seconds() as u64 } else { sums.seeds };
                    bar.set_position(position.min(length));
                    bar.set_message(sums.line());
                    if sums.virtual_seconds() >= enough {
                        over.store(true, Ordering::Relaxed);
                    }
                }
                Err(failure) => {
                    over.store(true, Ordering::Relaxed);
                    if let Ok(mut first) = first_failure.lock() {
                        first.get_or_insert(failure);
                    }
                }
            }
        }
    };
    std::thread::scope(|threads| {
        for _ in 1..args.jobs.clamp(1, 256) {
            threads.spawn(work);
        }
        work();
    });
    bar.finish_and_clear();
    if let Ok(Some(failure)) = first_failure.into_inner() {
        return Err(failure);
    }
    sums.into_inner().map_err(|_| Failure::failed("a thread of the simulator ended early"))
}

/// Runs one seed; a failing one once more, for its trace.
fn one(args: &SimArgs, scenario: &Scenario, seed: u64) -> Result<(RunReport, Option<PathBuf>), Failure> {
    let options = RunOptions { keep_lines: 0, keep_history: args.history.is_some() };
    let report = simulate(scenario, Seed(seed), options).map_err(|error| world_failed(&error))?;
    if let (Some(file), Some(history)) = (&args.history, &report.history) {
        let failed = |error: String| Failure::failed(format!("could not write {}: {error}", file.display()));
        let mut out = BufWriter::new(File::create(file).map_err(|error| failed(error.to_string()))?);
        history::write(history, &mut out).map_err(|error| failed(error.to_string()))?;
        out.flush().map_err(|error| failed(error.to_string()))?;
    }
    if report.is_right() {
        return Ok((report, None));
    }
    let options = RunOptions { keep_lines: TRACE_LINES, keep_history: false };
    let again = simulate(scenario, Seed(seed), options).map_err(|error| world_failed(&error))?;
    let file = args.traces.join(format!("sim-{}-{seed}.trace", scenario.name));
    let mut text = String::new();
    for line in &again.lines {
        text.push_str(&line.to_string());
        text.push('\n');
    }
    for finding in &again.findings {
        text.push_str(&format!("{}: {}\n", finding.property, finding.detail));
    }
    let written = fs::create_dir_all(&args.traces).and_then(|()| fs::write(&file, text));
    written.map_err(|error| Failure::failed(format!("could not write the trace {}: {error}", file.display())))?;
    Ok((report, Some(file)))
}

/// What a failing seed says of itself.
fn tell(scenario: &Scenario, report: &RunReport, trace: Option<&std::path::Path>) -> String {
    let (seed, name) = (report.seed.0, &scenario.name);
    let mut said = format!("seed {seed} of scenario {name} failed:");
    for finding in &report.findings {
        said.push_str(&format!("\n  {}: {}", finding.property, finding.detail));
    }
    if let Some(file) = trace {
        said.push_str(&format!("\n  its trace: {}", file.display()));
    }
    said.push_str(&format!("\n  again, step by step: timestone sim --scenario {name} --seed {seed} --step"));
    said
}
