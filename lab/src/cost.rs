//! `cargo lab cost`: instructions, copies, hashes and missed cache lines of a transaction and of a
//! Redis request, of this tree or of this tree and a commit.
//!
//! ```text
//!   each case:  callgrind ─► a short run ─┐
//!               callgrind ─► a long run ──┴─► (long - short) / operations ─► a row of the table
//! ```
//! Two runs are subtracted, so that what happens once (loading, start, end) is not counted. The
//! figures do not depend on what else the machine does. Binaries are built with two settings:
//! system calls go through libc (`rustix_use_libc`), for valgrind does not know the way around it,
//! and functions that hash keys are not inlined (`count_costs`), so that calls of them are seen.
//! The simulated last cache has 2 MiB, 16 ways, lines of 64 B.

mod callgrind;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{fs, thread};

use serde_json::{Value, json};
use xtask::steps::{cargo, workspace_root};

use crate::soak::{commit, target_folder};
use crate::table::Table;
use callgrind::Figures;

/// How a case drives the binary.
#[derive(Clone, Copy)]
enum Driver {
    /// `timestone bench WORKLOAD --in-process`; an operation is a committed transaction.
    Bench(&'static str),
    /// `redis-benchmark -t COMMAND -P DEPTH` against a server: the server alone is counted.
    Redis { command: &'static str, depth: u32 },
}

const CASES: [(&str, Driver); 7] = [
    ("ycsb-c", Driver::Bench("ycsb-c")),
    ("ycsb-a", Driver::Bench("ycsb-a")),
    ("retwis", Driver::Bench("retwis")),
    ("get-16", Driver::Redis { command: "get", depth: 16 }),
    ("set-16", Driver::Redis { command: "set", depth: 16 }),
    ("get-1", Driver::Redis { command: "get", depth: 1 }),
    ("set-1", Driver::Redis { command: "set", depth: 1 }),
];
/// Seconds of the two runs of `bench`, which are fifty to a hundred times slower than usual.
const SECONDS: [u32; 2] = [10, 30];
/// Requests of the two runs of `redis-benchmark`.
const REQUESTS: [u32; 2] = [20_000, 60_000];
/// Keys of every case.
const KEYS: u32 = 100_000;

struct Options {
    against: Option<String>,
    cases: Vec<(&'static str, Driver)>,
    lines: bool,
    json: bool,
}

impl Options {
    fn read(words: &[&str]) -> Result<Self, String> {
        let mut options = Self { against: None, cases: Vec::new(), lines: false, json: false };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--lines" => options.lines = true,
                "--against" => options.against = words.next().map(|&commit| commit.to_owned()),
                "-o" => options.json = words.next() == Some(&"json"),
                name => {
                    let case = CASES.into_iter().find(|case| case.0 == name);
                    options.cases.push(case.ok_or_else(|| {
                        let names = CASES.map(|case| case.0).join(", ");
                        format!("cost has no case or option '{name}'; its cases are {names}")
                    })?);
                }
            }
        }
        if options.cases.is_empty() {
            options.cases = CASES.to_vec();
        }
        Ok(options)
    }
}

/// Counts, and prints a table or JSON.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let options = Options::read(words)?;
    let root = workspace_root()?;
    let folder = target_folder(&root)?.join("cost");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut binaries = vec![(commit(&root), build(&root, &folder.join("here"))?)];
    if let Some(before) = &options.against {
        binaries.insert(0, (before.clone(), build_commit(&root, &folder, before)?));
    }
    let mut rows = Vec::new();
    for &(name, driver) in &options.cases {
        let counted: Result<Vec<Figures>, String> = thread::scope(|scope| {
            let running: Vec<_> = binaries
                .iter()
                .enumerate()
                .map(|(at, (_, binary))| {
                    let place = folder.join(format!("{name}-{at}"));
                    scope.spawn(move || count(binary, &place, driver, options.lines))
                })
                .collect();
            running
                .into_iter()
                .map(|one| one.join().map_err(|_| format!("{name}: counting panicked"))?)
                .collect()
        });
        for ((commit, _), figures) in binaries.iter().zip(counted?) {
            eprintln!("   {name} of {commit}: {:.0} instructions", figures.instructions);
            rows.push((name, commit.clone(), figures));
        }
    }
    print!("{}", if options.json { as_json(&rows) } else { as_table(&rows).markdown() });
    Ok(())
}

fn as_table(rows: &[(&str, String, Figures)]) -> Table {
    let header = vec!["operation", "commit", "instructions", "copies", "hashes", "missed lines"];
    let row = |(name, commit, of): &(&str, String, Figures)| {
        let cells = [
            format!("{:.0}", of.instructions),
            format!("{:.1}", of.copies),
            format!("{:.1}", of.hashes),
            if of.missed_lines > 0.0 {
                format!("{:.1}", of.missed_lines)
            } else {
                "–".to_owned()
            },
        ];
        [(*name).to_owned(), commit.clone()].into_iter().chain(cells).collect()
    };
    Table { header, rows: rows.iter().map(row).collect() }
}

fn as_json(rows: &[(&str, String, Figures)]) -> String {
    let row = |(name, commit, of): &(&str, String, Figures)| {
        json!({
            "operation": name, "commit": commit, "instructions": of.instructions,
            "copies": of.copies, "hashes": of.hashes, "missed_lines": of.missed_lines,
        })
    };
    format!("{:#}\n", Value::Array(rows.iter().map(row).collect()))
}

/// The release binary of a tree, with the settings that counting needs.
fn build(tree: &Path, target: &Path) -> Result<PathBuf, String> {
    println!("── build: {}", tree.display());
    let status = cargo(tree)
        .args(["build", "--release", "--locked", "-p", "timestone-cli", "--bin", "timestone"])
        .env("RUSTFLAGS", "--cfg rustix_use_libc --cfg count_costs")
        .env("CARGO_TARGET_DIR", target)
        .status()
        .map_err(|error| format!("cargo could not be started: {error}"))?;
    if status.success() {
        Ok(target.join("release/timestone"))
    } else {
        Err(format!("{} could not be built: {status}", tree.display()))
    }
}

/// The same of a commit, in a work tree of its own.
fn build_commit(root: &Path, folder: &Path, commit: &str) -> Result<PathBuf, String> {
    let tree = folder.join(format!("tree-{commit}"));
    if !tree.exists() {
        let made = Command::new("git")
            .current_dir(root)
            .args(["worktree", "add", "--detach", "--quiet"])
            .arg(&tree)
            .arg(commit)
            .status()
            .map_err(|error| format!("git could not be started: {error}"))?;
        if !made.success() {
            return Err(format!("git could not check out '{commit}': {made}"));
        }
    }
    let binary = build(&tree, &folder.join(format!("target-{commit}")));
    let _ = Command::new("git")
        .current_dir(root)
        .args(["worktree", "remove", "--force"])
        .arg(&tree)
        .status();
    binary
}

/// A case, run twice.
fn count(binary: &Path, place: &Path, driver: Driver, lines: bool) -> Result<Figures, String> {
    let mut runs = Vec::new();
    for length in 0..2 {
        let file = place.with_extension(format!("{length}.callgrind"));
        let _ = fs::remove_file(&file);
        let mut counted = callgrind(binary, &file, lines);
        let operations = match driver {
            Driver::Bench(workload) => bench(&mut counted, workload, SECONDS[length])?,
            Driver::Redis { command, depth } => {
                let data = place.with_extension("data");
                redis(counted, &data, command, depth, REQUESTS[length])?
            }
        };
        let text = fs::read_to_string(&file)
            .map_err(|error| format!("callgrind left no {}: {error}", file.display()))?;
        runs.push((operations, Figures::read(&text)?));
    }
    match runs.as_slice() {
        [shorter, longer] if longer.0 > shorter.0 => {
            Ok(shorter.1.each(longer.1, longer.0 - shorter.0))
        }
        _ => Err("the longer run did no more than the shorter one".to_owned()),
    }
}

fn callgrind(binary: &Path, file: &Path, lines: bool) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=callgrind", "--error-limit=no"]);
    if lines {
        command.args(["--cache-sim=yes", "--LL=2097152,16,64"]);
    }
    command.arg(format!("--callgrind-out-file={}", file.display())).arg(binary);
    command
}

/// Transactions that committed while `bench` measured.
fn bench(command: &mut Command, workload: &str, seconds: u32) -> Result<f64, String> {
    command.args(["-o", "json", "bench", workload, "--in-process", "--log", "none"]);
    command.args(["--threads", "1", "--keys", &KEYS.to_string(), "--warmup", "1s"]);
    command.args(["--duration", &format!("{seconds}s")]);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("valgrind could not be started ({error}); install it"))?;
    if !output.status.success() {
        return Err(format!("bench failed: {}", output.status));
    }
    let answer: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("bench answered no JSON: {error}"))?;
    let of = |name: &str| answer[name].as_f64().ok_or_else(|| format!("no {name} in {answer}"));
    Ok(of("committed_per_second")? * of("duration_s")?)
}

/// Requests that a server was sent, which ends with them.
fn redis(
    mut command: Command,
    data: &Path,
    request: &str,
    depth: u32,
    requests: u32,
) -> Result<f64, String> {
    let _ = fs::remove_dir_all(data);
    command.args([
        "-o",
        "json",
        "serve",
        "--log",
        "none",
        "--cache",
        "512MiB",
        "--capacity",
        "4GiB",
        "--data",
    ]);
    command.arg(data);
    for port in ["--listen", "--resp", "--http"] {
        command.args([port, "127.0.0.1:0"]);
    }
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let process =
        started.map_err(|error| format!("valgrind could not be started ({error}); install it"))?;
    let mut server = Server(process);
    let port = server.redis_port()?;
    let sent = Command::new("redis-benchmark")
        .args(["-p", &port, "-c", "50", "-d", "512", "-q"])
        .args(["-r", &KEYS.to_string(), "-t", request])
        .args(["-P", &depth.to_string(), "-n", &requests.to_string()])
        .stdout(Stdio::null())
        .status()
        .map_err(|error| format!("redis-benchmark could not be started ({error}); install it"))?;
    if !sent.success() {
        return Err(format!("redis-benchmark failed: {sent}"));
    }
    server.stop()?;
    let _ = fs::remove_dir_all(data);
    Ok(f64::from(requests))
}

/// A server under valgrind. It is killed when it is dropped before it was stopped.
struct Server(Child);

impl Server {
    /// Of its Redis interface, which it tells when it is ready.
    fn redis_port(&mut self) -> Result<String, String> {
        let lines = self.0.stdout.take().map(BufReader::new);
        for line in lines.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
            let ready: Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some((_, port)) = ready["resp"].as_str().and_then(|url| url.rsplit_once(':')) {
                return Ok(port.to_owned());
            }
        }
        Err("the server ended before it was ready".to_owned())
    }

    /// Asks it to stop, and waits: callgrind writes its file at the end.
    fn stop(mut self) -> Result<(), String> {
        let asked = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        asked.map_err(|error| format!("the server could not be told to stop: {error}"))?;
        let ended = self.0.wait().map_err(|error| format!("the server: {error}"))?;
        if ended.success() { Ok(()) } else { Err(format!("the server ended with {ended}")) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_unknown_cases_are_refused() {
        let options = Options::read(&["get-16", "--lines", "--against", "abc", "-o", "json"]);
        let options = options.expect("these options exist");
        assert_eq!(options.cases.iter().map(|case| case.0).collect::<Vec<_>>(), ["get-16"]);
        assert!(options.lines && options.json);
        assert_eq!(options.against.as_deref(), Some("abc"));
        assert_eq!(Options::read(&[]).expect("all cases").cases.len(), CASES.len());
        let refused = Options::read(&["get-17"]).err().unwrap_or_default();
        assert!(refused.contains("get-17") && refused.contains("set-16"), "{refused}");
    }
}
