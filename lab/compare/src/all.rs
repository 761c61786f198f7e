//! Every case, one after the other, each in a process and a directory of its own.

use std::fs::{self, OpenOptions};
use std::io::{BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::plan::{Case, Column};
use crate::row::Row;
use crate::{Fault, limit, table};

/// Has the system's allocator keep little: one arena for all threads, and what is large is a mapping of
/// its own. Otherwise stores that allocate a buffer for each block that they cache take half as much
/// again as they count, and are ended for it in the column `tenth`.
const FRUGAL_MALLOC: [(&str, &str); 3] = [
    ("MALLOC_ARENA_MAX", "1"),
    ("MALLOC_MMAP_THRESHOLD_", "131072"),
    ("MALLOC_TRIM_THRESHOLD_", "131072"),
];

/// The command `all`.
pub(crate) fn all(options: &Options) -> Result<(), Fault> {
    fs::create_dir_all(&options.dir)?;
    if let Some(folder) = options.csv.parent() {
        fs::create_dir_all(folder)?;
    }
    let rows = table::read(&options.csv)?;
    let cases: Vec<Case> = cases(options)
        .into_iter()
        .map(|mut case| {
            case.mixes = missing(&case, &rows);
            case
        })
        .filter(|case| !case.mixes.is_empty())
        .collect();
    let mixes: usize = cases.iter().map(|case| case.mixes.len()).sum();
    let least = (options.warmup + options.seconds) * mixes as u32;
    // What only reads is measured no longer than it has to be.
    let writing = cases.iter().flat_map(|case| &case.mixes).filter(|&&gets| gets < 100).count();
    let most = least + (options.longest() - options.seconds) * writing as u32;
    println!(
        "{} cases with {mixes} mixes: {} to {}, loading not counted; rows go to {}",
        cases.len(),
        minutes(least),
        minutes(most),
        options.csv.display()
    );
    let (began, mut failed) = (Instant::now(), Vec::new());
    for (number, case) in cases.iter().enumerate() {
        let name = format!("{} {} {} threads", case.engine, case.column.name(), case.threads);
        println!("[{}/{}, {}] {name}", number + 1, cases.len(), minutes(began.elapsed()));
        // Another engine's figures do not depend on one that failed.
        if let Err(error) = one(case, options) {
            println!("  failed: {error}");
            failed.push(name);
        }
    }
    match failed.as_slice() {
        [] => Ok(()),
        failed => {
            Err(format!("failed: {}; run the same again for these alone", failed.join(", ")).into())
        }
    }
}

fn minutes(span: Duration) -> String {
    format!("{:.0} min", span.as_secs_f64() / 60.0)
}

fn cases(options: &Options) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for &column in &options.columns {
        for &threads in &options.threads {
            for &engine in &options.engines {
                let case = options.case_of(engine, column, threads);
                // With a sync for each put there are 16 writers, however many threads were asked for,
                // and however many operations.
                let is_same = |other: &Case| {
                    column == Column::Sync
                        && other.column == Column::Sync
                        && std::mem::discriminant(&other.engine) == std::mem::discriminant(&engine)
                };
                if !cases.iter().any(is_same) {
                    cases.push(case);
                }
            }
        }
    }
    cases
}

/// The mixes of a case that have no row yet.
fn missing(case: &Case, rows: &[Row]) -> Vec<u64> {
    let has = |gets: u64| {
        rows.iter().any(|row| {
            row.engine == case.engine.to_string()
                && row.column == case.column.name()
                && row.threads == case.callers_shown()
                && row.keys == case.keys
                && row.gets_percent == gets
        })
    };
    case.mixes.iter().copied().filter(|&gets| !has(gets)).collect()
}

/// Runs one case; its rows are in the CSV as soon as they are known.
fn one(case: &Case, options: &Options) -> Result<(), Fault> {
    let mut command = Command::new(std::env::current_exe()?);
    if case.column == Column::Tenth {
        command.envs(FRUGAL_MALLOC);
    }
    command
        .arg("run")
        .arg(case.engine.to_string())
        .args(["-o", "json", "--column", case.column.name()])
        .arg("--dir")
        .arg(&options.dir)
        .args(["--threads", &case.threads.to_string(), "--keys", &case.keys.to_string()])
        .args(["--mixes", &case.mixes.iter().map(u64::to_string).collect::<Vec<_>>().join(",")])
        .args(["--seconds", &options.seconds.as_secs_f64().to_string()])
        .args(["--most-seconds", &options.longest().as_secs_f64().to_string()])
        .args(["--warmup", &options.warmup.as_secs_f64().to_string()])
        .args(["--capacity", &options.capacity.to_string()])
        .stdout(Stdio::piped());
    if let Some(parent) = &options.cgroup {
        command.arg("--cgroup").arg(parent);
    }
    let mut child = command.spawn()?;
    let out = child.stdout.take().ok_or("a run has no output")?;
    let outcome = keep(BufReader::new(out), options);
    let status = child.wait()?;
    if let Some(parent) = &options.cgroup {
        limit::remove(parent, child.id());
    }
    let leftover = options.dir.join(format!("run-{}", child.id()));
    if leftover.exists() {
        fs::remove_dir_all(leftover)?;
    }
    outcome?;
    if status.success() { Ok(()) } else { Err(format!("it ended with {status}").into()) }
}

fn keep(rows: impl std::io::BufRead, options: &Options) -> Result<(), Fault> {
    for line in rows.lines() {
        let row: Row = serde_json::from_str(&line?)?;
        let is_new = !options.csv.exists();
        let mut file = OpenOptions::new().create(true).append(true).open(&options.csv)?;
        let head = if is_new { Row::HEAD.join(",") + "\n" } else { String::new() };
        file.write_all(format!("{head}{}\n", row.csv()).as_bytes())?;
        print!("  {}", table::markdown(std::slice::from_ref(&row), false));
    }
    Ok(())
}
