//! `timestone sim`: whole clusters under one virtual clock and one seed, with faults on purpose and
//! every history checked.
//!
//! ```text
//!   scenario (by name or file) ─► seeds ─► sim::run, on as many threads as wanted ─► sums ─► table or JSON; exit code 1 on a finding
//!                                              └── a seed that fails ─► once more with words ─► its trace in a file
//! ```
//! Equal seeds give equal runs, so that a failing one is replayed by its number. `--step` shows
//! what happened in one run. A signal ends the seeds under way: what the others came to is told all
//! the same. A trace that cannot be written is no reason to end the others.

mod scenarios;
mod step;
mod sums;

use std::fs::{self, File};
use std::io::{BufWriter, Write, stderr};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::RangedU64ValueParser;
use indicatif::ProgressBar;
use timestone_sim::{RunOptions, RunReport, Scenario, Seed, TimeSpan, TraceLine, Watch, watch};
use timestone_workload::history::{self, History};
use timestone_workload::redis::{self, RedisHistory};

use crate::bench::progress;
use crate::failure::Failure;
use crate::logging;
use crate::output::{Format, or_unread, quoted, write_json, write_line};
use crate::signals::Interrupt;
use sums::{Goal, Sums};

/// Lines that the trace of a failing seed keeps: the last ones.
const TRACE_LINES: usize = 200_000;
/// Traces that one run writes: of a bug that fails every seed, a few tell as much as all, and each
/// takes tens of megabytes.
const MOST_TRACES: u64 = 10;
/// How often the progress bar tells how far a seed is.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// Flags of `timestone sim`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  timestone sim --scenario bank --seeds 100
  timestone sim --minutes 60                        the swarm: cluster, sizes, delays and faults from the seed
  timestone sim --scenario list-append --seed 7 --step --transaction T57
  timestone sim --scenario bank --seed 7 --step --server server-1 --from 2s --until 2.5s
  timestone sim --scenario register --seed 7 --history h.edn && timestone check h.edn

Exit codes:
  0    everything is as promised
  1    a seed failed, as standard error says, or could not be run
  2    wrong usage, a broken scenario, or a history that cannot be written
  3    there is no such scenario, file or process
  130  interrupted: what the seeds so far came to is told")]
pub(crate) struct SimArgs {
    /// A scenario's name, or a file that describes one
    #[arg(long, default_value = "swarm", value_name = "NAME|FILE")]
    scenario: String,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds to run, one after another from the first [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "minutes", value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    seeds: Option<u64>,
    /// Run seeds until so much virtual time has passed in them
    #[arg(long, value_name = "M", allow_negative_numbers = true, value_parser = minutes)]
    minutes: Option<f64>,
    /// Seeds run at once
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = RangedU64ValueParser::<u64>::new().range(1..=256))]
    jobs: u64,
    /// Write the history of a single seed to this file, as Jepsen's EDN
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "minutes"])]
    history: Option<PathBuf>,
    /// What work costs on the simulated machines, as measured on some machine: see the
    /// documentation of the simulator
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    #[arg(long, default_value = ".", value_name = "FOLDER",
        help = format!("The folder for traces of failing seeds, of {MOST_TRACES} at the most"))]
    traces: PathBuf,
    /// Step through a single seed as it runs: what happened, in which stage, which message
    #[arg(long, conflicts_with_all = ["seeds", "minutes", "jobs", "history"])]
    step: bool,
    /// Step: only what concerns this transaction, as findings call it (T57) or the store does
    /// (2-14)
    #[arg(long, value_name = "TXN", requires = "step")]
    transaction: Option<String>,
    /// Step: only what concerns this key: its number, as findings have it, or all of it
    #[arg(long, value_name = "KEY", requires = "step")]
    key: Option<String>,
    /// Step: only what happened in this process, such as server-1
    #[arg(long, value_name = "PROCESS", requires = "step")]
    server: Option<String>,
    /// Step: only from this virtual time on, such as 2.5s
    #[arg(long, value_name = "TIME", requires = "step")]
    from: Option<TimeSpan>,
    /// Step: only up to this virtual time; the run ends there
    #[arg(long, value_name = "TIME", requires = "step")]
    until: Option<TimeSpan>,
    /// List the scenarios that have names
    #[arg(long)]
    list: bool,
}

/// Runs the seeds that are asked for.
pub(crate) fn run(args: &SimArgs, format: Format) -> Result<(), Failure> {
    logging::start_if_asked()?;
    if args.list {
        return scenarios::list(format);
    }
    let mut scenario = scenarios::find(&args.scenario)?;
    if let Some(file) = &args.costs {
        scenario.costs = Some(scenarios::costs(file)?);
    }
    // What panics in a world is a finding of that world, and does not end the process.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let what = panic.payload_as_str().unwrap_or("something that is no text");
        let _ = writeln!(stderr(), "an assertion failed at {place}: {what}");
    }));
    if args.step {
        return step::run(args, &scenario, format);
    }
    let interrupt = Interrupt::register()?;
    let batch = Batch::new(args, &scenario, &interrupt)?;
    let sums = batch.run()?;
    let interrupted = interrupt.has_come();
    if format == Format::Json {
        let mut said = sums.json(&scenario.name);
        if interrupted && let Some(object) = said.as_object_mut() {
            object.insert("interrupted".to_owned(), true.into());
        }
        or_unread(write_json(&said))?;
    } else {
        or_unread(write_line(&sums.table()))?;
        if let Some(judge) = batch.judge() {
            or_unread(write_line(&judge))?;
        }
    }
    if interrupted {
        return Err(Failure::interrupted(format!("interrupted after {}", seeds_of(sums.seeds))));
    }
    match sums.failed.len() {
        0 => Ok(()),
        1 => Err(Failure::failed(format!(
            "seed {} of scenario {} failed",
            sums.failed[0].0, scenario.name
        ))),
        count => {
            Err(Failure::failed(format!("{count} seeds of scenario {} failed", scenario.name)))
        }
    }
}

fn seeds_of(count: u64) -> String {
    if count == 1 { "1 seed".to_owned() } else { format!("{count} seeds") }
}

fn world_failed(error: &timestone_sim::SimError) -> Failure {
    Failure::failed(error.to_string())
}

/// Reads how many virtual minutes are wanted.
fn minutes(text: &str) -> Result<f64, String> {
    let wanted: Option<f64> =
        text.parse().ok().filter(|minutes: &f64| minutes.is_finite() && *minutes > 0.0);
    wanted.ok_or_else(|| "it is a number of minutes above zero, such as 60 or 0.5".to_owned())
}

/// The seeds that are asked for, and what they have come to so far.
struct Batch<'a> {
    args: &'a SimArgs,
    scenario: &'a Scenario,
    interrupt: &'a Interrupt,
    /// How many seeds at the most, and after how many virtual seconds no other one is begun.
    seeds: u64,
    enough: f64,
    next: AtomicU64,
    over: AtomicBool,
    /// Traces begun.
    traces: AtomicU64,
    /// Opened before anything runs: nobody waits for a history that cannot be written.
    history: Option<Mutex<File>>,
    judged: Mutex<Option<String>>,
    bar: ProgressBar,
    sums: Mutex<Sums>,
    first_failure: Mutex<Option<Failure>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Batch<'a> {
    fn new(
        args: &'a SimArgs,
        scenario: &'a Scenario,
        interrupt: &'a Interrupt,
    ) -> Result<Self, Failure> {
        let history = match &args.history {
            Some(file) => {
                let created = File::create(file)
                    .map_err(|error| Failure::usage(not_written(file, &error)))?;
                Some(Mutex::new(created))
            }
            None => None,
        };
        let goal = match (args.seeds, args.minutes) {
            (Some(seeds), _) => Goal::Seeds(seeds),
            (None, Some(minutes)) => Goal::VirtualSeconds(minutes * 60.0),
            (None, None) => Goal::Seeds(1),
        };
        let seeds = args.seeds.unwrap_or(if args.minutes.is_some() { u64::MAX } else { 1 });
        Ok(Self {
            args,
            scenario,
            interrupt,
            seeds,
            enough: args.minutes.map_or(f64::INFINITY, |minutes| minutes * 60.0),
            next: AtomicU64::new(0),
            over: AtomicBool::new(false),
            traces: AtomicU64::new(0),
            history,
            judged: Mutex::new(None),
            bar: progress::bar(
                args.minutes.map_or(seeds, |minutes| (minutes * 60.0) as u64),
                "{wide_bar} {msg}",
            ),
            sums: Mutex::new(Sums::new(goal)),
            first_failure: Mutex::new(None),
        })
    }

    /// Runs seeds on as many threads as wanted, until there are enough, one could not be run, or a
    /// signal comes.
    fn run(&self) -> Result<Sums, Failure> {
        std::thread::scope(|threads| {
            for _ in 1..self.args.jobs {
                threads.spawn(|| self.work());
            }
            self.work();
        });
        self.bar.finish_and_clear();
        match lock(&self.first_failure).take() {
            Some(failure) => Err(failure),
            None => {
                Ok(std::mem::replace(&mut *lock(&self.sums), Sums::new(Goal::Seeds(self.seeds))))
            }
        }
    }

    fn work(&self) {
        while !self.over.load(Ordering::Relaxed) && !self.interrupt.has_come() {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.seeds {
                break;
            }
            let begin = Instant::now();
            match self.one(self.args.seed.wrapping_add(number)) {
                Ok(Some((report, trace))) => self.add(&report, &trace, begin.elapsed()),
                Ok(None) => break,
                Err(failure) => {
                    self.over.store(true, Ordering::Relaxed);
                    lock(&self.first_failure).get_or_insert(failure);
                }
            }
        }
    }

    fn add(&self, report: &RunReport, trace: &str, took: Duration) {
        let mut sums = lock(&self.sums);
        sums.add(report, took);
        if !report.is_right() {
            let said = tell(self.args, report, trace);
            self.bar.suspend(|| drop(writeln!(stderr(), "{said}")));
        }
        let position =
            if self.args.minutes.is_some() { sums.virtual_seconds() as u64 } else { sums.seeds };
        self.bar.set_position(position.min(self.bar.length().unwrap_or(u64::MAX)));
        self.bar.set_message(sums.line());
        if sums.virtual_seconds() >= self.enough {
            self.over.store(true, Ordering::Relaxed);
        }
    }

    /// Runs one seed; a failing one once more, for its trace, and says where that is. Nothing, when
    /// a signal came before it was through.
    fn one(&self, seed: u64) -> Result<Option<(RunReport, String)>, Failure> {
        let options = RunOptions { keep_history: self.history.is_some(), ..RunOptions::default() };
        let Some(report) = self.watched(seed, "seed", options)? else { return Ok(None) };
        if let (Some(file), Some(history)) = (&self.history, &report.histories.sessions) {
            match &report.histories.redis {
                Some(calls) if history.events.is_empty() => self.write_redis(&lock(file), calls)?,
                _ => self.write_history(&lock(file), history)?,
            }
            *lock(&self.judged) = Some(self.judged_by(&report));
        }
        let trace = if report.is_right() { String::new() } else { self.trace(seed) };
        Ok(Some((report, trace)))
    }

    /// Runs a seed while the bar says how far it is, until a signal comes.
    fn watched(
        &self,
        seed: u64,
        what: &'static str,
        options: RunOptions,
    ) -> Result<Option<RunReport>, Failure> {
        let mut observer = RunObserver { batch: self, what, seed, told: Instant::now() };
        watch(self.scenario, Seed(seed), options, &mut observer)
            .map_err(|error| world_failed(&error))
    }

    fn write_redis(&self, file: &File, history: &RedisHistory) -> Result<(), Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::usage(not_written(
                self.args.history.as_deref().unwrap_or(Path::new("the history")),
                error,
            ))
        };
        let mut out = BufWriter::new(file);
        redis::write(history, &mut out).map_err(|error| failed(&error))?;
        out.flush().map_err(|error| failed(&error))
    }

    fn write_history(&self, file: &File, history: &History) -> Result<(), Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::usage(not_written(
                self.args.history.as_deref().unwrap_or(Path::new("the history")),
                error,
            ))
        };
        let mut out = BufWriter::new(file);
        history::write(history, &mut out).map_err(|error| failed(&error))?;
        out.flush().map_err(|error| failed(&error))
    }

    /// Runs a seed that failed once more, and writes its trace. Says where that is, or why there is
    /// none.
    fn trace(&self, seed: u64) -> String {
        if self.traces.fetch_add(1, Ordering::Relaxed) >= MOST_TRACES {
            return format!("no trace of it: {MOST_TRACES} were written; run it alone for its own");
        }
        let options = RunOptions { keep_lines: TRACE_LINES, ..RunOptions::default() };
        match self.watched(seed, "for its trace, seed", options) {
            Ok(Some(again)) => match self.write_trace(seed, &again) {
                Ok(file) => format!("its trace: {}", file.display()),
                Err(problem) => format!("no trace of it: {problem}"),
            },
            Ok(None) => "no trace of it: interrupted while it ran once more".to_owned(),
            Err(problem) => format!("no trace of it: {problem}"),
        }
    }

    fn write_trace(&self, seed: u64, again: &RunReport) -> Result<PathBuf, String> {
        // A name from a file may have anything in it.
        let name: String = self
            .scenario
            .name
            .chars()
            .map(|c| if c.is_alphanumeric() || c == '-' { c } else { '_' })
            .collect();
        let file = self.args.traces.join(format!("sim-{name}-{seed}.trace"));
        let mut text = String::new();
        for line in &again.lines {
            text.push_str(&line.to_string());
            text.push('\n');
        }
        for finding in &again.findings {
            text.push_str(&format!("{}: {}\n", finding.property, finding.detail));
        }
        let written = fs::create_dir_all(&self.args.traces).and_then(|()| fs::write(&file, text));
        written.map_err(|error| not_written(&file, &error))?;
        Ok(file)
    }

    fn judged_by(&self, report: &RunReport) -> String {
        let file =
            self.args.history.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
        match report.histories.judge {
            Ok(judge) => format!("{file}; judge it by: timestone check {} {judge}", quoted(&file)),
            Err(why) => format!("{file}; {why}"),
        }
    }

    /// How the history that was written is judged.
    fn judge(&self) -> Option<String> {
        lock(&self.judged).as_ref().map(|said| format!("history       {said}"))
    }
}

fn not_written(file: &Path, error: &dyn std::fmt::Display) -> String {
    format!("could not write {}: {error}", file.display())
}

/// Tells how far a seed is, and ends it when a signal comes.
struct RunObserver<'a> {
    batch: &'a Batch<'a>,
    /// What runs, before its number.
    what: &'static str,
    seed: u64,
    told: Instant,
}

impl Watch for RunObserver<'_> {
    fn look(&mut self, now: Duration, _: &[TraceLine]) -> ControlFlow<()> {
        if self.batch.interrupt.has_come() {
            return ControlFlow::Break(());
        }
        if self.told.elapsed() >= TELL_EVERY {
            self.told = Instant::now();
            let line = lock(&self.batch.sums).line();
            self.batch.bar.set_message(format!(
                "{line}; {} {} at {:.0} s",
                self.what,
                self.seed,
                now.as_secs_f64()
            ));
        }
        ControlFlow::Continue(())
    }
}

/// What a failing seed says of itself.
fn tell(args: &SimArgs, report: &RunReport, trace: &str) -> String {
    let (scenario, seed) = (&args.scenario, report.seed.0);
    let mut said = format!("seed {seed} of scenario {scenario} failed:");
    for finding in &report.findings {
        said.push_str(&format!("\n  {}: {}", finding.property, finding.detail));
    }
    let costs =
        args.costs.as_ref().map(|file| format!(" --costs {}", quoted(&file.display().to_string())));
    said.push_str(&format!(
        "\n  {trace}\n  again, step by step: timestone sim --scenario {}{} --seed {seed} --step",
        quoted(scenario),
        costs.unwrap_or_default()
    ));
    said
}
