//! `cargo xtask predictions`: throughput as the simulator predicts it, beside what `timestone bench` measures on this machine.
//!
//! ```text
//!   each workload × cores × layout:  timestone serve + bench, held to so many cores ─┐
//!                                    timestone sim, the same cluster, one machine ───┴─► target/predictions.jsonl ─► docs/verification.md
//! ```
//! Both sides overwrite their devices once before they are measured, so that collection runs: a fresh server touches memory for the first time
//! and collects nothing. The machine should have nothing else to do. It starts and ends its own servers, on ports that were free.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::scorecard;
use crate::soak::{append, build, commit, target_folder};
use crate::steps::workspace_root;

/// Workloads, and seconds until their devices have been written over.
const WORKLOADS: [(&str, u32); 4] = [("retwis", 8), ("ycsb-a", 8), ("ycsb-b", 8), ("ycsb-c", 2)];
const KEYS: u32 = 100_000;
const SESSIONS: u32 = 256;
const ZIPF: f64 = 0.75;
const CACHE_MEBIBYTES: u64 = 96;
const CAPACITY_MEBIBYTES: u64 = 512;
/// How long `bench` measures.
const SECONDS: u32 = 6;

/// One comparison.
struct Case {
    workload: &'static str,
    warmup: u32,
    cores: usize,
    layout: &'static str,
}

/// Measures, predicts, and writes both into the page.
pub(crate) fn run(options: &[&str]) -> Result<(), String> {
    let costs = match options {
        [] => None,
        ["--costs", file] => Some(PathBuf::from(file)),
        other => return Err(format!("predictions has no option '{}'; see cargo xtask help", other.join(" "))),
    };
    let root = workspace_root()?;
    let program = build(&root, "release")?;
    let folder = target_folder(&root)?.join("predictions");
    let kept = folder.with_extension("jsonl");
    let _ = fs::remove_dir_all(&folder);
    let _ = fs::remove_file(&kept);
    fs::create_dir_all(&folder).map_err(|error| format!("could not make {}: {error}", folder.display()))?;
    append(&kept, &json!({"kind": "commit", "commit": commit(&root)}))?;
    let mut failed = 0;
    for case in cases() {
        let (measured, predicted) =
            (case.measure(&program, &folder)?, case.predict(&program, &folder, costs.as_deref())?);
        let ratio = per_second(&predicted["pace"])? / per_second(&measured)?;
        failed += u32::from(!(0.8..=1.2).contains(&ratio));
        println!(
            "   {:<8} {} cores, {:<6}: predicted {ratio:.2} of what was measured",
            case.workload, case.cores, case.layout
        );
        let (pace, committed) = (&predicted["pace"], predicted["pace"]["committed"].as_f64().unwrap_or(1.0));
        let line = json!({
            "kind": "prediction",
            "workload": case.workload,
            "cores": case.cores,
            "layout": case.layout,
            "measured": per_second(&measured)?,
            "predicted": per_second(pace)?,
            "measured_cpu": [measured["cpu_us_per_txn"]["server"], measured["cpu_us_per_txn"]["client"]],
            "predicted_cpu": [
                pace["server_cpu_seconds"].as_f64().unwrap_or(0.0) * 1e6 / committed,
                pace["client_cpu_seconds"].as_f64().unwrap_or(0.0) * 1e6 / committed,
            ],
        });
        append(&kept, &line)?;
    }
    println!("{failed} of {} predictions are more than 20 % beside what was measured", cases().count());
    scorecard::write(&[&kept.to_string_lossy()])
}

fn cases() -> impl Iterator<Item = Case> {
    let layouts = ["fused", "staged"];
    let places = [1, 2].into_iter().flat_map(move |cores| layouts.map(|layout| (cores, layout)));
    places.flat_map(|(cores, layout)| WORKLOADS.map(|(workload, warmup)| Case { workload, warmup, cores, layout }))
}

fn per_second(of: &Value) -> Result<f64, String> {
    of["committed_per_second"].as_f64().filter(|rate| *rate > 0.0).ok_or_else(|| format!("no throughput in {of}"))
}

impl Case {
    /// What `bench` says, with server and client on the same cores.
    fn measure(&self, program: &Path, folder: &Path) -> Result<Value, String> {
        let data = folder.join("data");
        let server = Server::start(self.held(program), self.layout, &data)?;
        let mut bench = self.held(program);
        bench.args(["-o", "json", "bench", self.workload, "--address", &server.address]);
        bench.args(["--keys", &KEYS.to_string(), "--zipf", &ZIPF.to_string(), "--clients", &SESSIONS.to_string()]);
        bench.args(["--warmup", &format!("{}s", self.warmup), "--duration", &format!("{SECONDS}s")]);
        let answer = json_of(bench);
        drop(server);
        fs::remove_dir_all(&data).map_err(|error| format!("could not remove {}: {error}", data.display()))?;
        answer
    }

    /// What the simulator says of the same.
    fn predict(&self, program: &Path, folder: &Path, costs: Option<&Path>) -> Result<Value, String> {
        let file = folder.join("scenario.toml");
        fs::write(&file, self.scenario()).map_err(|error| format!("could not write {}: {error}", file.display()))?;
        let mut simulator = Command::new(program);
        simulator.args(["-o", "json", "sim", "--scenario"]).arg(&file);
        if let Some(costs) = costs {
            simulator.arg("--costs").arg(costs);
        }
        json_of(simulator)
    }

    fn scenario(&self) -> String {
        let Self { workload, warmup, cores, layout } = self;
        format!(
            "name = \"prediction\"\n\
             [cluster]\nservers = 1\nshards = 4\nclients = 1\nsessions = {SESSIONS}\ntogether = true\ncores = {cores}\n\
             layout = \"{layout}\"\nclocks = \"perfect\"\n\
             [workload]\nkind = \"{workload}\"\nclosed = true\nkeys = {KEYS}\nzipf = {ZIPF}\nseconds = {}\nwarmup = \"{warmup}s\"\n\
             [storage]\nas-served = true\nlog = \"none\"\ncache-bytes = {}\ncapacity-bytes = {}\n\
             [network]\nnear = \"1us\"\njitter = 0\n",
            warmup + 1,
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
        command.args(["--cache", &format!("{CACHE_MEBIBYTES}MiB"), "--capacity", &format!("{CAPACITY_MEBIBYTES}MiB")]);
        for port in ["--listen", "--resp", "--http"] {
            command.args([port, "127.0.0.1:0"]);
        }
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut process = started.map_err(|error| format!("the server could not be started by taskset: {error}"))?;
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
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{command:?} answered no JSON: {error}"))
}
