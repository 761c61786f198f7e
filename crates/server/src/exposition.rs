//! The metrics that people alert on: how long things took, what became of transactions, room, and
//! the process itself.
//!
//! Names follow Prometheus: units last, `process_…` as its own client libraries have them,
//! histograms with `le` in seconds.

use core::sync::atomic::Ordering::Relaxed;
use std::fmt::Write;

use timestone_types::AbortKind;

use crate::assembly::Observed;
use crate::http::Page;
use crate::process::ProcessFigures;
use timestone_gateway::command_names;
use timestone_seda::LatencyCounts;
use timestone_shard::gauges::Timed;

/// Adds them to a page.
pub(crate) fn add(page: &mut Page, observed: &Observed) {
    latencies(page, observed);
    outcomes(page, observed);
    room(page, observed);
    process(page, observed);
}

/// One histogram for each label set.
fn histogram(
    page: &mut Page,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (String, LatencyCounts)>,
) {
    // Writing to a String cannot fail.
    let _ = writeln!(page.0, "# HELP {name} {help}\n# TYPE {name} histogram");
    for (labels, counts) in samples {
        for (bound, below) in counts.cumulative() {
            let _ = writeln!(page.0, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}");
        }
        let (total, sum) = (counts.total(), counts.sum_seconds());
        let _ = writeln!(page.0, "{name}_bucket{{{labels},le=\"+Inf\"}} {total}");
        let _ = writeln!(page.0, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {total}");
    }
}

fn latencies(page: &mut Page, observed: &Observed) {
    let commands = command_names().filter_map(|(at, name)| {
        let mut counts = LatencyCounts::default();
        observed.gateways.iter().for_each(|gateway| counts.add(&gateway.of(at).counts()));
        (counts.total() > 0).then(|| (format!("command=\"{name}\""), counts))
    });
    histogram(
        page,
        "timestone_command_duration_seconds",
        "How long commands of Redis clients on keys took, by the clock of the turns in which they \
         were read and answered.",
        commands,
    );
    let kinds = observed.shards.iter().flat_map(|shard| {
        Timed::ALL.iter().filter_map(move |(timed, name)| {
            let counts = shard.latencies.of(*timed).counts();
            (counts.total() > 0)
                .then(|| (format!("shard=\"{}\",kind=\"{name}\"", shard.shard), counts))
        })
    });
    histogram(
        page,
        "timestone_request_duration_seconds",
        "How long requests took at their shard: reads, single writes, and the phases of commits \
         (prepare, decide, resolve).",
        kinds,
    );
    let logs = observed.logs.iter().enumerate();
    histogram(
        page,
        "timestone_log_durable_seconds",
        "How long batches waited from being appended to being durable.",
        logs.map(|(index, log)| (format!("log=\"{index}\""), log.durable.counts())),
    );
}

fn outcomes(page: &mut Page, observed: &Observed) {
    let committed = observed.shards.iter().map(|shard| {
        (format!("{{shard=\"{}\"}}", shard.shard), shard.votes.committed.load(Relaxed) as f64)
    });
    page.family(
        "timestone_commits_total",
        "counter",
        "Transactions and single writes that took effect at a shard; a transaction over several \
         counts at each.",
        committed,
    );
    let aborted = observed.shards.iter().flat_map(|shard| {
        let kinds = AbortKind::ALL.iter().zip(&shard.votes.no);
        let kinds = kinds.map(|(kind, count)| (kind.name(), count.load(Relaxed)));
        let told = [("decided", shard.votes.aborts_decided.load(Relaxed))];
        kinds.chain(told).map(move |(reason, count)| {
            (format!("{{shard=\"{}\",reason=\"{reason}\"}}", shard.shard), count as f64)
        })
    });
    page.family(
        "timestone_aborts_total",
        "counter",
        "Transactions and single writes that a shard refused, by reason; \"decided\": promised \
         here, and aborted for another shard.",
        aborted,
    );
}

fn room(page: &mut Page, observed: &Observed) {
    if let Some((size, free)) = crate::process::file_system(&observed.directory) {
        let one = |value: u64| [(String::new(), value as f64)];
        page.family(
            "timestone_filesystem_size_bytes",
            "gauge",
            "Size of the data directory's file system.",
            one(size),
        );
        page.family(
            "timestone_filesystem_free_bytes",
            "gauge",
            "Bytes of the data directory's file system that the server may still use.",
            one(free),
        );
    }
}

fn process(page: &mut Page, observed: &Observed) {
    let build = format!(
        "{{version=\"{}\",arch=\"{}\"}}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    );
    page.family("timestone_build_info", "gauge", "Which build this is; always 1.", [(build, 1.0)]);
    let ProcessFigures { cpu_seconds, resident_bytes, virtual_bytes, open_fds, max_fds } =
        crate::process::figures();
    let started = observed.started.as_nanos() as f64 / 1e9;
    for (name, kind, help, value) in [
        (
            "process_cpu_seconds_total",
            "counter",
            "User and system processor time used.",
            cpu_seconds,
        ),
        ("process_resident_memory_bytes", "gauge", "Memory that is in use.", resident_bytes),
        ("process_virtual_memory_bytes", "gauge", "Address space that is in use.", virtual_bytes),
        ("process_open_fds", "gauge", "Open files and connections.", open_fds),
        ("process_max_fds", "gauge", "The most files and connections that may be open.", max_fds),
        (
            "process_start_time_seconds",
            "gauge",
            "When the server started, since the Unix epoch.",
            Some(started),
        ),
    ] {
        if let Some(value) = value {
            page.family(name, kind, help, [(String::new(), value)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::Timestamp;

    use super::*;
    use timestone_seda::Latencies;

    #[test]
    fn a_histogram_is_cumulative_and_ends_with_everything() {
        let latencies = Latencies::default();
        latencies.since(Timestamp::ZERO, Timestamp::from_nanos(1_000));
        latencies.since(Timestamp::ZERO, Timestamp::from_nanos(3_000));
        latencies.since(Timestamp::ZERO, Timestamp::from_nanos(100_000_000_000));
        let mut page = Page::default();
        histogram(
            &mut page,
            "t_seconds",
            "How long.",
            [("kind=\"get\"".to_owned(), latencies.counts())],
        );
        let lines: Vec<&str> = page.0.lines().collect();
        assert_eq!(&lines[..2], ["# HELP t_seconds How long.", "# TYPE t_seconds histogram"]);
        assert_eq!(lines[2], "t_seconds_bucket{kind=\"get\",le=\"0.000001024\"} 1");
        assert_eq!(lines[4], "t_seconds_bucket{kind=\"get\",le=\"0.000004096\"} 2");
        assert_eq!(lines[27], "t_seconds_bucket{kind=\"get\",le=\"+Inf\"} 3");
        assert!(lines[28].starts_with("t_seconds_sum{kind=\"get\"} 100.0000"), "{}", lines[28]);
        assert_eq!(lines[29], "t_seconds_count{kind=\"get\"} 3");
    }
}
