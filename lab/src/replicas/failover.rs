//! `kill -9` of a primary under load: how long until its shard is served again, and what that time
//! is made of, by the log lines of controller and new primary.
//!
//! ```text
//!   kill ── detection ──► the controller changes the shard ── map ──► it is to be primary
//!        ── merge: join, fetch, install ──► table ── rebuild ──► it is primary ── leases ──► served
//! ```
//! The master is at the first server, which is not the one that is killed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::Value;

use super::cluster::Cluster;
use super::{Options, figure, median, retwis};
use crate::table::Table;

/// Shards, so that each server is primary of one.
const SHARDS: usize = 3;
/// The server that hosts the master, and is not killed.
const MASTER: usize = 0;
const CLIENTS: &str = "64";
/// How long another server may take to serve the shard.
const SERVED_WITHIN: Duration = Duration::from_secs(20);
const MS_OF_DAY: f64 = 86_400_000.0;

/// The parts of one failover, in milliseconds.
struct Failover {
    detection: f64,
    map: f64,
    joined: f64,
    fetched: f64,
    installed: f64,
    rebuilt: f64,
    leases: f64,
    /// From the kill until the shard is served.
    served: f64,
    /// The longest latency of a transaction of the load.
    longest: f64,
}

impl Failover {
    /// What lies between detection and service, beside the leases.
    fn own(&self) -> f64 {
        self.served - self.detection - self.leases
    }
}

/// The table; each run starts a cluster anew.
pub(super) fn measure(options: &Options) -> Result<String, String> {
    let mut table = Table {
        header: vec![
            "",
            "detection",
            "map",
            "merge: join, fetch, install",
            "rebuild",
            "lease's rest",
            "served after",
            "beside detection and lease",
            "longest transaction",
        ],
        rows: Vec::new(),
    };
    for (name, binary) in options.named() {
        let mut runs = Vec::new();
        for run in 1..=options.runs {
            let folder = options.folder.join("failover");
            let times = ["--detection", &options.detection, "--lease", &options.lease];
            let mut cluster = Cluster::start(binary, &folder, (3, SHARDS), &times)?;
            retwis::load(&cluster)?;
            let one = once(&mut cluster)?;
            table.rows.push(row(format!("{name}, run {run}"), |of| of(&one)));
            runs.push(one);
        }
        let middle = |of: &dyn Fn(&Failover) -> f64| median(runs.iter().map(of).collect());
        table.rows.push(row(format!("{name}, median"), middle));
    }
    Ok(format!(
        "kill -9 of a primary under load, detection {}, lease {}, in ms:\n\n{}",
        options.detection,
        options.lease,
        table.markdown()
    ))
}

fn row(name: String, figure: impl Fn(&dyn Fn(&Failover) -> f64) -> f64) -> Vec<String> {
    let of = |one: &dyn Fn(&Failover) -> f64| format!("{:.1}", figure(one));
    let merge = [
        of(&|one: &Failover| one.joined),
        of(&|one: &Failover| one.fetched),
        of(&|one: &Failover| one.installed),
    ];
    vec![
        name,
        of(&|one: &Failover| one.detection),
        of(&|one: &Failover| one.map),
        merge.join(", "),
        of(&|one: &Failover| one.rebuilt),
        of(&|one: &Failover| one.leases),
        of(&|one: &Failover| one.served),
        of(&Failover::own),
        of(&|one: &Failover| one.longest),
    ]
}

fn once(cluster: &mut Cluster) -> Result<Failover, String> {
    // On a busy machine primaries may have moved already.
    let places = (0..SHARDS).map(|shard| (shard.to_string(), cluster.primary(&shard.to_string())));
    let place = places.into_iter().find(|(_, primary)| *primary != MASTER);
    let (shard, killed_server) = place.ok_or(
        "all shards have moved to the master's server, which is not killed: the machine is too busy \
         for this detection time",
    )?;
    let mut load: Command = cluster.bench(&[
        "retwis-tapir",
        "--no-load",
        "--keys",
        retwis::KEYS,
        "--clients",
        CLIENTS,
        "--warmup",
        "1s",
        "--duration",
        "8s",
    ]);
    let load = load.stdout(Stdio::piped()).spawn();
    let load = load.map_err(|error| format!("the load could not be started: {error}"))?;
    thread::sleep(Duration::from_secs(4));
    let killed = written_ms(&cluster.servers[killed_server].log.with_extension("killed"))?;
    cluster.servers[killed_server].kill();
    let begin = Instant::now();
    while cluster.primary(&shard) == killed_server {
        if begin.elapsed() > SERVED_WITHIN {
            return Err(format!("nobody serves shard {shard} after {SERVED_WITHIN:?}"));
        }
        thread::sleep(Duration::from_millis(20));
    }
    let output = load.wait_with_output().map_err(|error| format!("the load: {error}"))?;
    let answer: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("the load answered no JSON: {error}"))?;
    // The first line of each kind after the kill.
    let after = |message: &str| -> Result<(f64, Value), String> {
        let mut lines = cluster.lines(message);
        lines.retain(|(_, line)| line["shard"].as_str() == Some(&*shard));
        let passed = lines.into_iter().filter_map(|(_, line)| {
            let ms = ms_of(line["timestamp"].as_str()?)?;
            Some(((ms - killed).rem_euclid(MS_OF_DAY), line))
        });
        let passed = passed.filter(|(ms, _)| *ms < SERVED_WITHIN.as_secs_f64() * 1000.0);
        let first = passed.min_by(|one, other| one.0.total_cmp(&other.0));
        first.ok_or_else(|| format!("no line '{message}' of shard {shard} after the kill"))
    };
    let (detection, _) = after("the controller changes a shard")?;
    let (told, _) = after("this server is to be primary")?;
    let (serves, line) = after("this server is primary")?;
    let of = |name: &str| figure(&line, &format!("/{name}"));
    let leases = of("leases_ms")?;
    Ok(Failover {
        detection,
        map: told - detection,
        joined: of("joined_ms")?,
        fetched: of("fetched_ms")?,
        installed: of("installed_ms")?,
        rebuilt: of("rebuilt_ms")?,
        leases,
        served: serves + leases,
        longest: figure(&answer, "/latency_us/max")? / 1000.0,
    })
}

/// Milliseconds of the day, in UTC: when this file is written. The kernel counts that in steps of up
/// to four.
fn written_ms(file: &Path) -> Result<f64, String> {
    let failed = |error| format!("{}: {error}", file.display());
    fs::write(file, "killed\n").map_err(failed)?;
    let at = fs::metadata(file).and_then(|about| about.modified()).map_err(failed)?;
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok((since.as_secs_f64() * 1000.0).rem_euclid(MS_OF_DAY))
}

/// The same of a log line's time stamp, such as `2026-11-26T14:12:36.413593Z`.
fn ms_of(stamp: &str) -> Option<f64> {
    let (_, time) = stamp.trim_end_matches('Z').split_once('T')?;
    let mut parts = time.split(':').map(|part| part.parse::<f64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    Some(((hours * 60.0 + minutes) * 60.0 + seconds) * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stamps_are_read_as_milliseconds_of_the_day() {
        assert_eq!(ms_of("2026-11-26T14:12:36.500Z"), Some(51_156_500.0));
        assert_eq!(ms_of("yesterday"), None);
    }

    #[test]
    fn what_is_neither_detection_nor_lease_is_told() {
        let mut one = Failover {
            detection: 60.0,
            map: 1.0,
            joined: 2.0,
            fetched: 0.0,
            installed: 3.0,
            rebuilt: 4.0,
            leases: 100.0,
            served: 170.0,
            longest: 180.0,
        };
        assert_eq!(one.own(), 10.0);
        one.served = 200.0;
        assert_eq!(row("a".to_owned(), |of| of(&one))[7], "40.0");
    }
}
