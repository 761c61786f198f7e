//! Servers of one cluster on loopback, which end when they are dropped; and `bench` against them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::figure;

/// How long a cluster may take until it serves.
const SERVES_WITHIN: Duration = Duration::from_secs(30);
/// The clock ticks of a second in `/proc/PID/stat`, on every Linux that we know.
const TICKS: f64 = 100.0;

/// A process that is killed when it is dropped.
pub(super) struct Process {
    child: Child,
    /// What it writes about itself.
    pub(super) log: PathBuf,
}

impl Process {
    /// Starts a program whose messages go to a file.
    pub(super) fn start(mut command: Command, log: PathBuf) -> Result<Self, String> {
        let file = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file).spawn();
        let child =
            started.map_err(|error| format!("{command:?} could not be started: {error}"))?;
        Ok(Self { child, log })
    }

    /// Seconds of processor time that it has used.
    pub(super) fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.unwrap_or_default();
        // The name, in parentheses, may have spaces.
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
        let times = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
        times.sum::<f64>() / TICKS
    }

    /// `kill -9`.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The first line of its output that begins so, without the beginning.
    fn line_after(&mut self, beginning: &str) -> Result<String, String> {
        let lines = self.child.stdout.take().map(BufReader::new);
        for line in lines.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
            if let Some(rest) = line.strip_prefix(beginning) {
                return Ok(rest.to_owned());
            }
        }
        Err(format!("a server ended before it was ready, see {}", self.log.display()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// See the module.
pub(super) struct Cluster {
    program: PathBuf,
    folder: PathBuf,
    pub(super) servers: Vec<Process>,
    /// Of all servers, as `--address` takes it.
    address: String,
}

impl Cluster {
    /// Starts as many servers as there are copies, with so many shards, and waits until all shards
    /// are served. `more`: further flags of each server.
    pub(super) fn start(
        program: &Path,
        folder: &Path,
        (copies, shards): (usize, usize),
        more: &[&str],
    ) -> Result<Self, String> {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut cluster = Self {
            program: program.to_owned(),
            folder: folder.to_owned(),
            servers: Vec::new(),
            address: String::new(),
        };
        for at in 0..copies {
            let mut serve = Command::new(program);
            serve.args([
                "serve",
                "--log-format",
                "json",
                "--listen",
                "127.0.0.1:0",
                "--resp",
                "none",
                "--http",
                "none",
            ]);
            serve.args(["--log", "ssd", "--threads", "1", "--cache", "512MiB"]);
            serve.args(["--capacity", "8GiB", "--data"]).arg(folder.join(at.to_string()));
            if copies == 1 {
                serve.args(["--shards", &shards.to_string()]);
            } else if at == 0 {
                serve.args(["--replication", &copies.to_string()]);
                serve.args(["--cluster-shards", &shards.to_string()]);
            } else {
                let founder = cluster.address.split(',').next().unwrap_or_default();
                serve.args(["--master", &format!("timestone://{founder}")]);
            }
            serve.args(more);
            let mut server = Process::start(serve, folder.join(format!("{at}.log")))?;
            let ready = server.line_after("timestone ready: timestone://")?;
            let address = ready.split(' ').next().unwrap_or_default();
            if at > 0 {
                cluster.address.push(',');
            }
            cluster.address.push_str(address);
            cluster.servers.push(server);
        }
        cluster.wait(copies, shards)?;
        Ok(cluster)
    }

    /// Waits until all shards have a primary.
    fn wait(&self, copies: usize, shards: usize) -> Result<(), String> {
        let begin = Instant::now();
        while copies > 1 && self.lines("this server is primary").len() < shards {
            if begin.elapsed() > SERVES_WITHIN {
                return Err(format!("nothing is served, see {}", self.folder.display()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The lines of all servers' logs with this message, each with the server's number.
    pub(super) fn lines(&self, message: &str) -> Vec<(usize, Value)> {
        let of_server = |(at, server): (usize, &Process)| {
            let text = fs::read_to_string(&server.log).unwrap_or_default();
            let lines: Vec<Value> =
                text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            let found = lines.into_iter().filter(|line| {
                line["message"].as_str().is_some_and(|said| said.starts_with(message))
            });
            found.map(move |line| (at, line)).collect::<Vec<_>>()
        };
        self.servers.iter().enumerate().flat_map(of_server).collect()
    }

    /// The server that is primary of a shard.
    pub(super) fn primary(&self, shard: &str) -> usize {
        let mut lines = self.lines("this server is primary");
        lines.retain(|(_, line)| line["shard"].as_str() == Some(shard));
        let latest = lines.into_iter().max_by_key(|(_, line)| {
            line["epoch"].as_str().and_then(|epoch| epoch.parse::<u64>().ok())
        });
        latest.map_or(0, |(at, _)| at)
    }

    /// `bench` with these arguments.
    pub(super) fn bench(&self, arguments: &[&str]) -> Command {
        let mut bench = Command::new(&self.program);
        bench.args(["-o", "json", "bench", "--address", &format!("timestone://{}", self.address)]);
        bench.args(arguments).stderr(Stdio::inherit());
        bench
    }

    /// Runs it, and takes the processor time of each server while it ran.
    pub(super) fn measure(&self, arguments: &[&str]) -> Result<Measured, String> {
        let cpu = || self.servers.iter().map(Process::cpu).collect::<Vec<f64>>();
        let before = cpu();
        let answer = answer_of(self.bench(arguments))?;
        let used = cpu().iter().zip(before).map(|(later, earlier)| later - earlier).collect();
        Measured::new(answer, used)
    }
}

/// The JSON that a program prints.
pub(super) fn answer_of(mut command: Command) -> Result<Value, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", output.status));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{command:?} answered no JSON: {error}"))
}

/// What `bench` said of one run.
pub(super) struct Measured {
    pub(super) per_second: f64,
    pub(super) abort_rate: f64,
    pub(super) p50_us: f64,
    pub(super) client_us: f64,
    /// Of each server for a transaction.
    pub(super) server_us: Vec<f64>,
}

impl Measured {
    /// `bench` takes the processor time of all servers over the measured window; how it is divided
    /// among them is taken from the whole run.
    fn new(answer: Value, used: Vec<f64>) -> Result<Self, String> {
        let servers = figure(&answer, "/cpu_us_per_txn/server")?;
        let all = used.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        Ok(Self {
            per_second: figure(&answer, "/committed_per_second")?,
            abort_rate: figure(&answer, "/abort_rate")?,
            p50_us: figure(&answer, "/latency_us/p50")?,
            client_us: figure(&answer, "/cpu_us_per_txn/client")?,
            server_us: used.iter().map(|one| servers * one / all).collect(),
        })
    }

    /// Microseconds of processor time of all processes for a transaction.
    pub(super) fn cpu_us(&self) -> f64 {
        self.client_us + self.server_us.iter().sum::<f64>()
    }
}
