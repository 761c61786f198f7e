//! Retwis as TAPIR's prototype runs it, on one shard with three copies.

use super::cluster::{Cluster, Measured};
use super::{Options, median};
use crate::table::Table;

/// Keys that are loaded.
pub(super) const KEYS: &str = "100000";

/// Loads the keys.
pub(super) fn load(cluster: &Cluster) -> Result<(), String> {
    let load = ["retwis-tapir", "--keys", KEYS, "--clients", "64"];
    cluster.measure(&[&load[..], &["--warmup", "1s", "--duration", "2s"]].concat()).map(drop)
}

/// One run.
pub(super) fn once(
    cluster: &Cluster,
    (zipf, clients, seconds): (f64, u32, u32),
) -> Result<Measured, String> {
    let (zipf, clients) = (zipf.to_string(), clients.to_string());
    let (warmup, duration) = (format!("{}s", seconds.div_ceil(3)), format!("{seconds}s"));
    cluster.measure(&[
        "retwis-tapir",
        "--no-load",
        "--keys",
        KEYS,
        "--zipf",
        &zipf,
        "--clients",
        &clients,
        "--warmup",
        &warmup,
        "--duration",
        &duration,
    ])
}

/// The table; each round starts a cluster anew.
pub(super) fn measure(options: &Options) -> Result<String, String> {
    let binaries = options.named();
    let cases = || {
        let of = |&zipf: &f64| options.clients.iter().map(move |&clients| (zipf, clients));
        options.zipf.iter().flat_map(of)
    };
    let mut measured: Vec<Vec<Vec<Measured>>> =
        binaries.iter().map(|_| cases().map(|_| Vec::new()).collect()).collect();
    for round in 1..=options.rounds {
        let clusters: Result<Vec<Cluster>, String> = binaries
            .iter()
            .enumerate()
            .map(|(at, (_, binary))| {
                let folder = options.folder.join(format!("retwis-{at}"));
                let cluster = Cluster::start(binary, &folder, (3, 1), &[])?;
                load(&cluster)?;
                Ok(cluster)
            })
            .collect();
        let clusters = clusters?;
        for (case, (zipf, clients)) in cases().enumerate() {
            for ((name, _), (cluster, runs)) in
                binaries.iter().zip(clusters.iter().zip(&mut measured))
            {
                let one = once(cluster, (zipf, clients, options.seconds))?;
                eprintln!(
                    "   round {round}, {name}, zipf {zipf}, {clients} clients: {:.0} a second of \
                     processor time, {:.0} a second",
                    1e6 / one.cpu_us(),
                    one.per_second
                );
                runs[case].push(one);
            }
        }
    }
    let mut table = Table {
        header: vec![
            "zipf, clients",
            "a CPU-second",
            "of each round",
            "a second",
            "aborted",
            "p50",
            "primary",
            "a backup",
            "client",
        ],
        rows: Vec::new(),
    };
    for ((name, _), runs) in binaries.iter().zip(&measured) {
        for ((zipf, clients), runs) in cases().zip(runs) {
            let binary = if binaries.len() > 1 { format!("{name}, ") } else { String::new() };
            table.rows.push(row(format!("{binary}{zipf}, {clients}"), runs));
        }
    }
    Ok(format!("Retwis as TAPIR's prototype runs it, f = 1:\n\n{}", table.markdown()))
}

fn row(name: String, runs: &[Measured]) -> Vec<String> {
    let of = |figure: &dyn Fn(&Measured) -> f64| median(runs.iter().map(figure).collect());
    let each: Vec<String> = runs.iter().map(|run| format!("{:.0}", 1e6 / run.cpu_us())).collect();
    // The busiest server is the primary.
    let primary = |run: &Measured| run.server_us.iter().copied().fold(0.0, f64::max);
    let backup = |run: &Measured| {
        let backups = run.server_us.len().saturating_sub(1).max(1);
        (run.server_us.iter().sum::<f64>() - primary(run)) / backups as f64
    };
    vec![
        name,
        format!("{:.0}", of(&|run| 1e6 / run.cpu_us())),
        each.join(", "),
        format!("{:.0}", of(&|run| run.per_second)),
        format!("{:.1} %", of(&|run| 100.0 * run.abort_rate)),
        format!("{:.2} ms", of(&|run| run.p50_us / 1000.0)),
        format!("{:.1} µs", of(&primary)),
        format!("{:.1} µs", of(&backup)),
        format!("{:.1} µs", of(&|run| run.client_us)),
    ]
}
