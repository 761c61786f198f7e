//! `cargo lab predictions`: throughput as the simulator predicts it, beside what
//! `timestone bench` measures on this machine.
//!
//! ```text
//!   each round:                      calibrate ─► what work costs, this hour
//!   each workload × cores × layout:  timestone serve + bench, held to so many cores ─┐
//!                                    timestone sim, the same cluster, one machine ───┴─► target/predictions.jsonl ─► docs/lab/scorecard.md
//!   meanwhile: how much longer arithmetic takes on these cores than alone ──► the simulated machine has such neighbours
//! ```
//! Both sides overwrite their devices once before they are measured, so that collection runs: a
//! fresh server touches memory for the first time and collects nothing. The machine should have
//! nothing else to do. Where others share its hardware, it is faster and slower by a third from one
//! second to the next: how much they took of it while a case was measured is part of what is
//! predicted, and what is told of a case is the middle of all rounds. It starts and ends its own
//! servers, on ports that were free.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::{fmt, fs, thread};

use serde_json::{Value, json};

use crate::scorecard;
use crate::soak::{append, build, commit, target_folder};
use xtask::steps::{cargo, workspace_root};

/// Workloads, and seconds until their devices have been written over.
const WORKLOADS: [(&str, u32); 4] = [("retwis", 8), ("ycsb-a", 8), ("ycsb-b", 8), ("ycsb-c", 2)];
const KEYS: u32 = 100_000;
const SESSIONS: u32 = 256;
const ZIPF: f64 = 0.75;
const CACHE_MEBIBYTES: u64 = 96;
const CAPACITY_MEBIBYTES: u64 = 512;
/// How long `bench` measures.
const SECONDS: u32 = 3;
/// How often it does, until others leave the cores alone: arithmetic takes no more than so many
/// times as long then.
const TRIES: usize = 4;
const NEARLY_ALONE: f64 = 1.03;
/// How long the simulator counts.
const VIRTUAL_SECONDS: u32 = 2;
/// How often everything is measured and predicted when nothing else is said.
const ROUNDS: usize = 5;

/// One comparison.
struct Case {
    workload: &'static str,
    warmup: u32,
    cores: usize,
    layout: &'static str,
}

/// Throughput, and CPU time of a transaction.
struct Pace {
    per_second: f64,
    server_us: f64,
    client_us: f64,
}

/// Measures, predicts, and writes both into the page.
pub(crate) fn run(options: &[&str]) -> Result<(), String> {
    let (mut given, mut wanted) = (None, ROUNDS);
    let mut words = options.iter();
    while let Some(&word) = words.next() {
        match (word, words.next()) {
            ("--costs", Some(file)) => given = Some(PathBuf::from(file)),
            ("--rounds", Some(number)) => {
                let rounds = number.parse().ok().filter(|rounds| *rounds > 0);
                wanted = rounds
                    .ok_or_else(|| format!("--rounds is a number from 1 on, not '{number}'"))?;
            }
            _ => {
                return Err(format!(
                    "predictions has no option '{word}', or it lacks its value; see cargo lab \
                     help"
                ));
            }
        }
    }
    let root = workspace_root()?;
    let program = build(&root, "release")?;
    let folder = target_folder(&root)?.join("predictions");
    let kept = folder.with_extension("jsonl");
    let _ = fs::remove_dir_all(&folder);
    let _ = fs::remove_file(&kept);
    fs::create_dir_all(&folder)
        .map_err(|error| format!("could not make {}: {error}", folder.display()))?;
    append(&kept, &json!({"kind": "commit", "commit": commit(&root)}))?;
    for round in 1..=wanted {
        let costs = match &given {
            Some(file) => file.clone(),
            None => calibrate(&root, &folder.join(format!("costs-{round}.toml")))?,
        };
        let mut neighbours = Neighbours::watch(&root)?;
        let mut measured = Vec::new();
        for case in cases() {
            measured.push(case.measure(&program, &folder, &mut neighbours)?);
        }
        drop(neighbours);
        let predicted = predict_all(&program, &folder, &costs, &measured)?;
        for (case, (measured, predicted)) in cases().zip(measured.iter().zip(predicted)) {
            let (measured, slowness) = measured;
            let (real, expected) = (measured.per_second, predicted.per_second);
            println!(
                "   {case}, round {round}: {real:.0} a second, predicted {expected:.0} ({:.2}); \
                 arithmetic took {slowness:.2} times as long as alone",
                expected / real
            );
            let line = json!({
                "kind": "prediction",
                "workload": case.workload,
                "cores": case.cores,
                "layout": case.layout,
                "round": round,
                "neighbours": slowness,
                "measured": real,
                "predicted": expected,
                "measured_cpu": [measured.server_us, measured.client_us],
                "predicted_cpu": [predicted.server_us, predicted.client_us],
            });
            append(&kept, &line)?;
        }
    }
    if given.is_none() {
        println!("each round's costs are in {}", folder.display());
    }
    scorecard::write(&[&kept.to_string_lossy()])
}

/// Predicts all cases, several at once: virtual time does not mind.
fn predict_all(
    program: &Path,
    folder: &Path,
    costs: &Path,
    measured: &[(Pace, f64)],
) -> Result<Vec<Pace>, String> {
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    let mut paces = Vec::new();
    for batch in cases().zip(measured).collect::<Vec<_>>().chunks(jobs) {
        let batch: Result<Vec<Pace>, String> = thread::scope(|scope| {
            let running: Vec<_> = batch
                .iter()
                .map(|(case, (_, slowness))| {
                    scope.spawn(|| case.predict(program, folder, costs, *slowness))
                })
                .collect();
            running
                .into_iter()
                .map(|one| one.join().map_err(|_| "a prediction panicked".to_owned())?)
                .collect()
        });
        paces.extend(batch?);
    }
    Ok(paces)
}

/// What work costs on this machine at this hour.
fn calibrate(root: &Path, file: &Path) -> Result<PathBuf, String> {
    println!("── calibration: {}", file.display());
    let log = fs::File::create(file.with_extension("log"))
        .map_err(|error| format!("{}: {error}", file.display()))?;
    let status = calibrating(root).arg(file).stdout(log).status();
    let status = status.map_err(|error| format!("cargo could not be started: {error}"))?;
    if status.success() {
        Ok(file.to_owned())
    } else {
        Err(format!("the calibration failed: {status}"))
    }
}

fn calibrating(root: &Path) -> Command {
    let mut command = cargo(root);
    command.args([
        "run",
        "--quiet",
        "--locked",
        "--release",
        "-p",
        "timestone-sim",
        "--example",
        "calibrate",
        "--",
    ]);
    command
}

/// Looks at the cores now and then: others on the same hardware slow them down.
struct Neighbours {
    process: Child,
    ask: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Neighbours {
    fn watch(root: &Path) -> Result<Self, String> {
        let mut command = calibrating(root);
        let started =
            command.arg("--neighbours").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process =
            started.map_err(|error| format!("cargo could not be started: {error}"))?;
        let (Some(ask), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("the program that looks at the cores has no pipes".to_owned());
        };
        Ok(Self { process, ask, answers: BufReader::new(answers).lines() })
    }

    /// How many times as long as alone arithmetic took in the last seconds, on so many cores.
    fn before(&mut self, seconds: f64, cores: usize) -> Result<f64, String> {
        writeln!(self.ask, "{seconds}")
            .map_err(|error| format!("nobody looks at the cores any more: {error}"))?;
        let line = self.answers.next().and_then(Result::ok).unwrap_or_default();
        let figures = line.split(' ').map_while(|figure| figure.parse::<f64>().ok()).take(cores);
        let (count, sum) =
            figures.fold((0.0, 0.0), |(count, sum), figure| (count + 1.0, sum + figure));
        if count > 0.0 {
            Ok(sum / count)
        } else {
            Err(format!("whoever looks at the cores said '{line}'"))
        }
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Pace {
    /// From what a program answered, and the CPU time of a transaction in server and client, in µs.
    fn read(of: &Value, [server_us, client_us]: [Option<f64>; 2]) -> Result<Self, String> {
        let rate = of["committed_per_second"].as_f64().filter(|rate| *rate > 0.0);
        let per_second = rate.ok_or_else(|| format!("no throughput in {of}"))?;
        Ok(Self {
            per_second,
            server_us: server_us.unwrap_or(0.0),
            client_us: client_us.unwrap_or(0.0),
        })
    }
}

fn cases() -> impl Iterator<Item = Case> {
    let layouts = ["fused", "staged"];
    let places = [1, 2].into_iter().flat_map(move |cores| layouts.map(|layout| (cores, layout)));
    places.flat_map(|(cores, layout)| {
        WORKLOADS.map(|(workload, warmup)| Case { workload, warmup, cores, layout })
    })
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, cores, layout, .. } = self;
        write!(f, "{workload:<8} {cores} cores, {layout:<6}")
    }
}

impl Case {
    /// What `bench` says, with server and client on the same cores, when those had the fewest
    /// neighbours; and how many times as long as alone arithmetic took then.
    fn measure(
        &self,
        program: &Path,
        folder: &Path,
        neighbours: &mut Neighbours,
    ) -> Result<(Pace, f64), String> {
        let data = folder.join("data");
        let server = Server::start(self.held(program), self.layout, &data)?;
        let mut best: Option<(Pace, f64)> = None;
        // The first is over when the devices have been written over.
        for warmup in [self.warmup].into_iter().chain(std::iter::repeat_n(1, TRIES - 1)) {
            let pace = self.bench(program, &server, warmup)?;
            let slowness = neighbours.before(f64::from(SECONDS), self.cores)?;
            if best.as_ref().is_none_or(|best| slowness < best.1) {
                best = Some((pace, slowness));
            }
            if slowness <= NEARLY_ALONE {
                break;
            }
        }
        drop(server);
        fs::remove_dir_all(&data)
            .map_err(|error| format!("could not remove {}: {error}", data.display()))?;
        best.ok_or_else(|| "nothing was measured".to_owned())
    }

    fn bench(&self, program: &Path, server: &Server, warmup: u32) -> Result<Pace, String> {
        let mut bench = self.held(program);
        bench.args(["-o", "json", "bench", self.workload, "--address", &server.address]);
        bench.args([
            "--keys",
            &KEYS.to_string(),
            "--zipf",
            &ZIPF.to_string(),
            "--clients",
            &SESSIONS.to_string(),
        ]);
        bench.args(["--warmup", &format!("{warmup}s"), "--duration", &format!("{SECONDS}s")]);
        let answer = json_of(bench)?;
        Pace::read(
            &answer,
            ["server", "client"].map(|name| answer["cpu_us_per_txn"][name].as_f64()),
        )
    }

    /// What the simulator says of the same.
    fn predict(
        &self,
        program: &Path,
        folder: &Path,
        costs: &Path,
        slowness: f64,
    ) -> Result<Pace, String> {
        let Self { workload, cores, layout, .. } = self;
        let file = folder.join(format!("{workload}-{cores}-{layout}.toml"));
        fs::write(&file, self.scenario(slowness))
            .map_err(|error| format!("could not write {}: {error}", file.display()))?;
        let mut simulator = Command::new(program);
        simulator.args(["-o", "json", "sim", "--scenario"]).arg(&file).arg("--costs").arg(costs);
        let mut answer = json_of(simulator)?;
        let pace = answer["pace"].take();
        let each = 1e6 / pace["committed"].as_f64().unwrap_or(1.0);
        Pace::read(
            &pace,
            ["server_cpu_seconds", "client_cpu_seconds"]
                .map(|name| pace[name].as_f64().map(|cpu| cpu * each)),
        )
    }

    fn scenario(&self, slowness: f64) -> String {
        let Self { workload, warmup, cores, layout } = self;
        format!(
            "name = \"prediction\"\n\
             [cluster]\nservers = 1\nshards = 4\nclients = 1\nsessions = {SESSIONS}\ntogether = \
             true\ncores = {cores}\n\
             layout = \"{layout}\"\nclocks = \"perfect\"\nneighbours = {slowness:?}\n\
             [workload]\nkind = \"{workload}\"\nclosed = true\nkeys = {KEYS}\nzipf = \
             {ZIPF}\nseconds = {}\nwarmup = \"{warmup}s\"\n\
             [storage]\nas-served = true\nlog = \"none\"\ncache-bytes = {}\ncapacity-bytes = {}\n\
             [network]\nnear = \"1us\"\njitter = 0\n",
            warmup + VIRTUAL_SECONDS,
            CACHE_MEBIBYTES << 20,
            CAPACITY_MEBIBYTES << 20
        )
    }

    /// The program, held to the first cores.
    fn held(&self, program: &Path) -> Command {
        let mut command = Command::new("taskset");
        command.arg("--cpu-list").arg(format!("0-{}", self.cores - 1)).arg(program);
        command
    }
}

/// A server that ends when it is dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(mut command: Command, layout: &str, data: &Path) -> Result<Self, String> {
        command.args(["serve", "--log", "none", "--layout", layout, "--data"]).arg(data);
        command.args([
            "--cache",
            &format!("{CACHE_MEBIBYTES}MiB"),
            "--capacity",
            &format!("{CAPACITY_MEBIBYTES}MiB"),
        ]);
        for port in ["--listen", "--resp", "--http"] {
            command.args([port, "127.0.0.1:0"]);
        }
        let started =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut process = started
            .map_err(|error| format!("the server could not be started by taskset: {error}"))?;
        let lines = process.stdout.take().map(BufReader::new);
        let mut server = Self { process, address: String::new() };
        for line in lines.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
            if let Some(addresses) = line.strip_prefix("timestone ready: ") {
                server.address = addresses.split(' ').next().unwrap_or_default().to_owned();
                return Ok(server);
            }
        }
        Err("the server ended before it was ready".to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn json_of(mut command: Command) -> Result<Value, String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", output.status));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{command:?} answered no JSON: {error}"))
}
