//! One process: loads an engine and measures it with each mix.

use std::fs;
use std::io::Write as _;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::engine::{self, Engine};
use crate::options::Options;
use crate::plan::{Case, Column, TUPLE_BYTES};
use crate::progress::{Progress, Tally};
use crate::row::Row;
use crate::steady::{Amplification, Sample, amplification};
use crate::{Fault, limit, measure};

const MIB: f64 = (1 << 20) as f64;
/// Between two looks at what was written.
const SAMPLING: Duration = Duration::from_millis(500);

/// The command `run`.
pub(crate) fn print(options: &Options) -> Result<(), Fault> {
    let case = options.case()?;
    let mut first = true;
    run(&case, options, |row| {
        let mut out = std::io::stdout().lock();
        if options.json {
            writeln!(out, "{}", serde_json::to_string(row)?)?;
        } else {
            write!(out, "{}", crate::table::markdown(std::slice::from_ref(row), first))?;
        }
        first = false;
        Ok(out.flush()?)
    })
}

/// What loading came to.
struct Loaded {
    seconds: f64,
    amplification: f64,
    memory_limit: &'static str,
}

fn run(
    case: &Case,
    options: &Options,
    mut tell: impl FnMut(&Row) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let folder = options.dir.join(format!("run-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let mut memory_limit = "settings";
    if let (Some(parent), Column::Tenth) = (&options.cgroup, case.column) {
        limit::join(parent, case.memory_bytes())?;
        memory_limit = "group";
    }
    let began = Instant::now();
    let written = measure::bytes_written()?;
    let mut engine = engine::open(case, &folder)?;
    engine.load()?;
    engine.settle()?;
    let written = measure::bytes_written()? - written;
    let loaded = Loaded {
        seconds: began.elapsed().as_secs_f64(),
        amplification: written as f64 / case.data_bytes() as f64,
        memory_limit,
    };
    eprintln!(
        "{}: {} keys loaded and settled in {:.1} s, {:.2} bytes written for each",
        case.engine, case.keys, loaded.seconds, loaded.amplification
    );
    for &gets_percent in &case.mixes {
        let measured = measure_mix(engine.as_mut(), case, options, gets_percent)?;
        for (name, value) in engine.figures() {
            eprintln!("  {gets_percent} % gets: {name} {value}");
        }
        let disk = measure::disk_bytes(&folder)?;
        tell(&measured.row(case, gets_percent, &loaded, disk)?)?;
    }
    engine.close()?;
    if !options.keep {
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// What a mix came to.
struct Measured {
    tally: Tally,
    span: Duration,
    processor: Duration,
    amplification: Option<Amplification>,
}

/// Runs a mix: drivers on their threads, and one that watches them.
fn measure_mix(
    engine: &mut dyn Engine,
    case: &Case,
    options: &Options,
    gets_percent: u64,
) -> Result<Measured, Fault> {
    let progress = Arc::new(Progress::new(engine.drivers()));
    let watched = Arc::clone(&progress);
    let limits = (options.warmup, options.seconds, options.longest());
    let (data_bytes, writes) = (case.data_bytes(), gets_percent < 100);
    thread::scope(|scope| {
        let watch = scope.spawn(move || {
            let outcome = watch(&watched, limits, data_bytes, writes);
            watched.end();
            outcome
        });
        let tallies = engine.run(gets_percent, &progress);
        // Where a driver fails, nobody is left to wait for.
        progress.end();
        let (span, processor, amplification) =
            watch.join().map_err(|_| "the watch has ended by a panic")??;
        let mut tally = Tally::new(0);
        tallies?.iter().for_each(|other| tally.add(other));
        Ok(Measured { tally, span, processor, amplification })
    })
}

type Watched = (Duration, Duration, Option<Amplification>);

/// Lets the mix warm up, and ends it when it was measured long enough.
fn watch(
    progress: &Progress,
    (warmup, seconds, longest): (Duration, Duration, Duration),
    data_bytes: u64,
    writes: bool,
) -> Result<Watched, Fault> {
    let began = Instant::now();
    while began.elapsed() < warmup && !progress.is_over() {
        thread::sleep(SAMPLING.min(warmup));
    }
    progress.measure();
    let (began, processor) = (Instant::now(), measure::processor_time()?);
    let mut samples = Vec::new();
    loop {
        samples.push(Sample {
            at: began.elapsed(),
            put_bytes: progress.puts() * TUPLE_BYTES,
            written_bytes: measure::bytes_written()?,
        });
        let span = began.elapsed();
        let found = amplification(&samples, data_bytes);
        let enough = !writes || found.is_some_and(|found| found.is_steady);
        if progress.is_over() || span >= longest || (span >= seconds && enough) {
            return Ok((span, measure::processor_time()? - processor, found));
        }
        thread::sleep(SAMPLING.min(seconds / 4));
    }
}

impl Measured {
    fn row(&self, case: &Case, gets: u64, loaded: &Loaded, disk: u64) -> Result<Row, Fault> {
        let operations = self.tally.operations();
        if operations == 0 {
            return Err("no operation was measured".into());
        }
        let seconds = self.span.as_secs_f64();
        let us =
            |of: &Histogram<u64>, at: f64| (of.value_at_quantile(at) as f64 / 10.0).round() / 100.0;
        let (gets_of, puts_of) = (&self.tally.gets, &self.tally.puts);
        let (resident, files) = measure::resident_bytes()?;
        Ok(Row {
            engine: case.engine.to_string(),
            column: case.column.name().to_owned(),
            threads: case.callers_shown(),
            outstanding: case.outstanding(),
            keys: case.keys,
            gets_percent: gets,
            seconds: rounded(seconds),
            operations_per_second: (operations as f64 / seconds).round(),
            cpu_us_per_operation: rounded(self.processor.as_secs_f64() * 1e6 / operations as f64),
            get_us_p50: us(gets_of, 0.5),
            get_us_p99: us(gets_of, 0.99),
            get_us_p999: us(gets_of, 0.999),
            put_us_p50: us(puts_of, 0.5),
            put_us_p99: us(puts_of, 0.99),
            put_us_p999: us(puts_of, 0.999),
            write_amplification: self.amplification.map_or(-1.0, |found| rounded(found.factor)),
            is_steady: self.amplification.is_some_and(|found| found.is_steady),
            load_seconds: rounded(loaded.seconds),
            load_amplification: rounded(loaded.amplification),
            rss_mib: rounded(resident as f64 / MIB),
            rss_file_mib: rounded(files as f64 / MIB),
            disk_mib: rounded(disk as f64 / MIB),
            memory_limit: loaded.memory_limit.to_owned(),
        })
    }
}

/// To two digits behind the point.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
