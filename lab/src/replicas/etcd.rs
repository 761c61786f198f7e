//! A get and a put of 256 B in one transaction, 100 clients: Timestone beside etcd, three servers
//! each, both syncing to the same disk.
//!
//! etcd is driven by its own client in Go (`lab/etcd`), each client over a connection of its own. A
//! transaction is one request there, with a get and a put of the same key. Here it is measured twice:
//! as one request as well (`swap`), and as a transaction that reads, and then commits what it writes.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::cluster::{Cluster, Process, answer_of};
use super::{Options, figure, median};
use crate::table::Table;

const CLIENTS: &str = "100";
const KEYS: &str = "100000";
const VALUE_BYTES: &str = "256";
const WARMUP: &str = "3";
/// What a transaction is here, and how `bench` is told.
const FORMS: [(&str, &[&str]); 2] =
    [("one request", &["--singles"]), ("a read, then a commit", &[])];
/// How long etcd may take to elect its leader.
const ELECTED_WITHIN: Duration = Duration::from_secs(10);

/// What one side did in one round.
struct Side {
    per_second: f64,
    p50_us: f64,
    cpu_us: f64,
}

/// The table, in which each round runs one after the other.
pub(super) fn measure(options: &Options, root: &Path) -> Result<String, String> {
    let load = build(root, &options.folder)?;
    let mut table = Table {
        header: vec!["", "transactions a second", "p50", "processor time"],
        rows: Vec::new(),
    };
    let mut ratios = Vec::new();
    for (at, (name, binary)) in options.named().into_iter().enumerate() {
        let mut etcd = Vec::new();
        let mut ours = FORMS.map(|_| Vec::new());
        for _ in 0..options.rounds {
            etcd.push(of_etcd(options, &load)?);
            for ((_, flags), sides) in FORMS.iter().zip(&mut ours) {
                sides.push(of_timestone(options, binary, at, flags)?);
            }
        }
        table.rows.push(row("etcd", &etcd));
        for ((form, _), sides) in FORMS.iter().zip(&ours) {
            let pairs = sides.iter().zip(&etcd);
            let ratio =
                median(pairs.map(|(ours, etcd)| ours.per_second / etcd.per_second).collect());
            ratios.push(format!("{name}, {form}: {ratio:.1}"));
            table.rows.push(row(&format!("{name}, {form}"), sides));
        }
    }
    Ok(format!(
        "{CLIENTS} clients, a get and a put of {VALUE_BYTES} B in a transaction; times etcd's: {}:\n\n{}",
        ratios.join("; "),
        table.markdown()
    ))
}

fn row(name: &str, sides: &[Side]) -> Vec<String> {
    let of = |figure: &dyn Fn(&Side) -> f64| median(sides.iter().map(figure).collect());
    vec![
        name.to_owned(),
        format!("{:.0}", of(&|side| side.per_second)),
        format!("{:.2} ms", of(&|side| side.p50_us / 1000.0)),
        format!("{:.1} µs", of(&|side| side.cpu_us)),
    ]
}

fn of_timestone(
    options: &Options,
    binary: &Path,
    at: usize,
    form: &[&str],
) -> Result<Side, String> {
    let folder = options.folder.join(format!("beside-etcd-{at}"));
    let cluster = Cluster::start(binary, &folder, (3, 1), &[])?;
    let (warmup, duration) = (format!("{WARMUP}s"), format!("{}s", options.seconds));
    let mut flags = vec!["get-put", "--keys", KEYS, "--value-bytes", VALUE_BYTES];
    flags.extend(["--clients", CLIENTS, "--warmup", &warmup, "--duration", &duration]);
    flags.extend(form);
    let run = cluster.measure(&flags)?;
    Ok(Side { per_second: run.per_second, p50_us: run.p50_us, cpu_us: run.cpu_us() })
}

/// The program that loads etcd.
fn build(root: &Path, folder: &Path) -> Result<PathBuf, String> {
    let program = folder.join("etcd-load");
    let mut go = Command::new("go");
    go.current_dir(root.join("lab/etcd")).args(["build", "-o"]).arg(&program).arg(".");
    let status = go.status().map_err(|error| format!("go could not be started: {error}"))?;
    if status.success() { Ok(program) } else { Err(format!("lab/etcd: go build: {status}")) }
}

fn of_etcd(options: &Options, load: &Path) -> Result<Side, String> {
    let ports = free_ports()?;
    let url = |port: &u16| format!("http://127.0.0.1:{port}");
    let members = |at: usize| format!("m{at}={}", url(&ports[3 + at]));
    let cluster = [members(0), members(1), members(2)].join(",");
    let mut nodes = Vec::new();
    for at in 0..3 {
        let data = options.folder.join(format!("etcd-{at}"));
        let _ = std::fs::remove_dir_all(&data);
        let mut etcd = Command::new("etcd");
        etcd.args(["--name", &format!("m{at}"), "--initial-cluster", &cluster, "--data-dir"]);
        etcd.arg(&data);
        for flag in ["--listen-client-urls", "--advertise-client-urls"] {
            etcd.args([flag, &url(&ports[at])]);
        }
        for flag in ["--listen-peer-urls", "--initial-advertise-peer-urls"] {
            etcd.args([flag, &url(&ports[3 + at])]);
        }
        nodes.push(Process::start(etcd, options.folder.join(format!("etcd-{at}.log")))?);
    }
    let begin = Instant::now();
    let answers = |port: u16| TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).is_ok();
    while !ports[..3].iter().all(|&port| answers(port)) {
        if begin.elapsed() > ELECTED_WITHIN {
            return Err(format!("etcd does not answer, see {}", options.folder.display()));
        }
        thread::sleep(Duration::from_millis(20));
    }
    let endpoints: Vec<String> = ports[..3].iter().map(url).collect();
    let mut loading = Command::new(load);
    loading.args([&endpoints.join(","), CLIENTS, KEYS, VALUE_BYTES, WARMUP]);
    loading.arg(options.seconds.to_string());
    let cpu = || nodes.iter().map(Process::cpu).sum::<f64>();
    let (before, begin) = (cpu(), Instant::now());
    let answer = answer_of(loading)?;
    // Of the whole run, warm-up included.
    let nodes_cpu = (cpu() - before) / begin.elapsed().as_secs_f64();
    let (per_second, seconds) = (figure(&answer, "/per_second")?, figure(&answer, "/seconds")?);
    let client_cpu = figure(&answer, "/cpu_seconds")? / seconds;
    Ok(Side {
        per_second,
        p50_us: figure(&answer, "/p50_us")?,
        cpu_us: 1e6 * (nodes_cpu + client_cpu) / per_second,
    })
}

/// Ports that nobody listens on now.
fn free_ports() -> Result<Vec<u16>, String> {
    let listeners: Result<Vec<TcpListener>, _> =
        (0..6).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    let listeners = listeners.map_err(|error| format!("no free ports: {error}"))?;
    let ports = listeners.iter().filter_map(|one| one.local_addr().ok());
    Ok(ports.map(|address| address.port()).collect())
}
