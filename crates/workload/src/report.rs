//! What came of a run: counts, latencies, processor time; as a table for people and as JSON for
//! programs.
//!
//! ```text
//!   session ─► Recorder (one per thread) ─┐
//!   session ─► Recorder ──────────────────┴─ merge ─► Report::new ─┬─► Display: a table
//!                                                                   └─► to_json: one object
//! ```
//!
//! # Invariants
//! - Recording allocates nothing.
//! - Every attempt is counted once: committed, or aborted for one reason. An attempt whose outcome
//!   nobody knows counts under the reason `unknown`, one that the transport or server refused under
//!   `error`: neither is known to have committed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use hdrhistogram::Histogram;
use serde::Serialize;
use timestone_types::AbortKind;

use crate::limits::{LATENCY_DIGITS, MAX_LATENCY};
use crate::{WorkloadError, WorkloadSpec};

/// Reasons beside the kinds of abort.
const UNKNOWN: &str = "unknown";
const ERROR: &str = "error";

/// Adds another histogram of the same shape.
fn add(sum: &mut Histogram<u64>, other: &Histogram<u64>) {
    // All recorders have the same bounds, so that nothing of one lies outside another.
    sum.add(other).unwrap_or_else(|_| unreachable!("histograms of one shape add up"));
}

/// Collects what became of transactions; one per thread, merged at the end.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// Of those that wrote.
    writing: Histogram<u64>,
    read_only: Histogram<u64>,
    aborted: [u64; AbortKind::ALL.len()],
    read_only_aborted: u64,
    unknown: u64,
    errors: u64,
}

impl Recorder {
    /// A recorder that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self {
            writing: latencies(),
            read_only: latencies(),
            aborted: [0; AbortKind::ALL.len()],
            read_only_aborted: 0,
            unknown: 0,
            errors: 0,
        }
    }

    /// A transaction committed this long after its intended start.
    pub fn committed(&mut self, latency: Duration, is_read_only: bool) {
        let nanos = u64::try_from(latency.min(MAX_LATENCY).as_nanos()).unwrap_or(u64::MAX);
        let of_kind = if is_read_only { &mut self.read_only } else { &mut self.writing };
        of_kind.saturating_record(nanos);
    }

    /// A transaction aborted; a retry is another attempt.
    pub fn aborted(&mut self, kind: AbortKind, is_read_only: bool) {
        self.aborted[kind as usize - 1] += 1;
        self.read_only_aborted += u64::from(is_read_only);
    }

    /// Nobody knows what became of a transaction.
    pub fn unknown(&mut self) {
        self.unknown += 1;
    }

    /// An attempt failed before it could commit or abort.
    pub fn error(&mut self) {
        self.errors += 1;
    }

    /// How many committed so far; for progress bars.
    #[must_use]
    pub fn committed_count(&self) -> u64 {
        self.writing.len() + self.read_only.len()
    }

    /// Latencies of all that committed.
    fn all(&self) -> Histogram<u64> {
        let mut all = self.read_only.clone();
        add(&mut all, &self.writing);
        all
    }

    /// How many attempts did not commit so far.
    #[must_use]
    pub fn aborted_count(&self) -> u64 {
        self.aborted.iter().sum::<u64>() + self.unknown + self.errors
    }

    /// Adds what another recorder saw.
    pub fn merge(&mut self, other: &Self) {
        add(&mut self.writing, &other.writing);
        add(&mut self.read_only, &other.read_only);
        for (mine, theirs) in self.aborted.iter_mut().zip(other.aborted) {
            *mine += theirs;
        }
        self.read_only_aborted += other.read_only_aborted;
        self.unknown += other.unknown;
        self.errors += other.errors;
    }

    /// Forgets everything: the warm-up is over.
    pub fn reset(&mut self) {
        self.writing.reset();
        self.read_only.reset();
        self.aborted = [0; AbortKind::ALL.len()];
        (self.read_only_aborted, self.unknown, self.errors) = (0, 0, 0);
    }

    fn aborts(&self) -> BTreeMap<String, u64> {
        let kinds =
            AbortKind::ALL.iter().map(|kind| (kind.name(), self.aborted[*kind as usize - 1]));
        let all = kinds.chain([(UNKNOWN, self.unknown), (ERROR, self.errors)]);
        all.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

fn latencies() -> Histogram<u64> {
    let highest = u64::try_from(MAX_LATENCY.as_nanos()).unwrap_or(u64::MAX);
    Histogram::new_with_bounds(1, highest, LATENCY_DIGITS)
        .unwrap_or_else(|_| unreachable!("the bounds are constants"))
}

/// Processor time used during the run, as the runner measured it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuUse {
    /// By the process that runs the workload; `None` when it could not be told.
    pub client: Option<Duration>,
    /// By the server; `None` when it could not be told, as when it shares the client's process.
    pub server: Option<Duration>,
}

/// Percentiles of latency in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct LatencyUs {
    /// Half of all were at most this.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl LatencyUs {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1_000.0;
        Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1_000.0,
        }
    }
}

/// Processor microseconds per committed transaction.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct CpuUsPerTxn {
    /// Of the process that runs the workload.
    pub client: Option<f64>,
    /// Of the server.
    pub server: Option<f64>,
}

/// The part of the run that only read.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct ReadOnlyReport {
    /// Commits a second.
    pub committed_per_second: f64,
    /// Aborts a second.
    pub aborted_per_second: f64,
    /// Aborted of all attempts.
    pub abort_rate: f64,
    /// Latency of commits.
    pub latency_us: LatencyUs,
}

/// The whole run. Its fields are the JSON object's, in order.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The workload's name.
    pub workload: String,
    /// Sessions that ran it.
    pub clients: u32,
    /// How long, in seconds.
    pub duration_s: f64,
    /// Commits a second.
    pub committed_per_second: f64,
    /// Attempts a second that did not commit.
    pub aborted_per_second: f64,
    /// Attempts that did not commit, of all.
    pub abort_rate: f64,
    /// How many did not commit, by reason.
    pub aborts: BTreeMap<String, u64>,
    /// Latency of commits, from the intended start.
    pub latency_us: LatencyUs,
    /// Processor time per commit.
    pub cpu_us_per_txn: CpuUsPerTxn,
    /// The read-only transactions among them.
    pub read_only: ReadOnlyReport,
    /// The workload's parameters, and what the runner adds to them.
    pub config: serde_json::Map<String, serde_json::Value>,
}

impl Report {
    /// Sums up a run of `duration` by `clients` sessions.
    #[must_use]
    pub fn new(
        spec: &WorkloadSpec,
        clients: u32,
        duration: Duration,
        recorder: &Recorder,
        cpu: CpuUse,
    ) -> Self {
        let config = match serde_json::to_value(spec) {
            Ok(serde_json::Value::Object(config)) => config,
            _ => unreachable!("a specification is a plain struct"),
        };
        Self { config, ..Self::of(spec.kind.name(), clients, duration, recorder, cpu) }
    }

    /// The same for a workload that has no specification; its parameters are noted one by one.
    #[must_use]
    pub fn of(
        workload: &str,
        clients: u32,
        duration: Duration,
        recorder: &Recorder,
        cpu: CpuUse,
    ) -> Self {
        let seconds = duration.as_secs_f64();
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let rate = |part: u64, rest: u64| {
            if part + rest > 0 { part as f64 / (part + rest) as f64 } else { 0.0 }
        };
        let (committed, aborted) = (recorder.committed_count(), recorder.aborted_count());
        let reads = recorder.read_only.len();
        let per_txn = |used: Option<Duration>| {
            used.filter(|_| committed > 0)
                .map(|used| used.as_nanos() as f64 / 1_000.0 / committed as f64)
        };
        Self {
            workload: workload.to_owned(),
            clients,
            duration_s: seconds,
            committed_per_second: per_second(committed),
            aborted_per_second: per_second(aborted),
            abort_rate: rate(aborted, committed),
            aborts: recorder.aborts(),
            latency_us: LatencyUs::of(&recorder.all()),
            cpu_us_per_txn: CpuUsPerTxn {
                client: per_txn(cpu.client),
                server: per_txn(cpu.server),
            },
            read_only: ReadOnlyReport {
                committed_per_second: per_second(reads),
                aborted_per_second: per_second(recorder.read_only_aborted),
                abort_rate: rate(recorder.read_only_aborted, reads),
                latency_us: LatencyUs::of(&recorder.read_only),
            },
            config: serde_json::Map::new(),
        }
    }

    /// Adds a setting of the runner's own (address, log, pace …) to `config`.
    pub fn note(&mut self, name: &str, value: impl Into<serde_json::Value>) {
        self.config.insert(name.to_owned(), value.into());
    }

    /// One JSON object, on one line.
    ///
    /// # Errors
    /// [`WorkloadError::Write`] when a number is not finite, which no run produces.
    pub fn to_json(&self) -> Result<String, WorkloadError> {
        serde_json::to_string(self).map_err(|error| WorkloadError::Write(error.into()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, clients, duration_s, .. } = self;
        writeln!(f, "{workload}: {clients} clients, {duration_s:.1} s")?;
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY).set_header(["", "all", "read-only"]);
        let mut row = |name: &str, all: String, read_only: String| {
            table.add_row([name.to_owned(), all, read_only]);
        };
        let (all, reads) = (&self.latency_us, &self.read_only.latency_us);
        row(
            "committed/s",
            whole(self.committed_per_second),
            whole(self.read_only.committed_per_second),
        );
        row("aborted/s", whole(self.aborted_per_second), whole(self.read_only.aborted_per_second));
        row("abort rate", percent(self.abort_rate), percent(self.read_only.abort_rate));
        for (name, of) in PERCENTILES {
            row(name, micros(of(all)), micros(of(reads)));
        }
        for (name, used) in [
            ("client CPU/txn", self.cpu_us_per_txn.client),
            ("server CPU/txn", self.cpu_us_per_txn.server),
        ] {
            row(name, used.map_or_else(|| "–".to_owned(), micros), String::new());
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        write!(f, "{table}")?;
        for (reason, count) in &self.aborts {
            write!(f, "\n  {} {reason}", grouped(*count))?;
        }
        Ok(())
    }
}

type Percentile = (&'static str, fn(&LatencyUs) -> f64);

const PERCENTILES: [Percentile; 5] = [
    ("latency p50", |latency| latency.p50),
    ("latency p90", |latency| latency.p90),
    ("latency p99", |latency| latency.p99),
    ("latency p99.9", |latency| latency.p999),
    ("latency max", |latency| latency.max),
];

fn whole(number: f64) -> String {
    grouped(number.round() as u64)
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn micros(us: f64) -> String {
    if us >= 10_000.0 { format!("{:.1} ms", us / 1_000.0) } else { format!("{us:.1} µs") }
}

/// A whole number with thin gaps between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkloadKind;

    fn report() -> Report {
        let (mut one, mut two) = (Recorder::new(), Recorder::new());
        for us in 1..=1_000 {
            one.committed(Duration::from_micros(us), us % 2 == 0);
        }
        two.committed(Duration::from_secs(7_200), false);
        for _ in 0..30 {
            two.aborted(AbortKind::ReadConflict, true);
        }
        two.aborted(AbortKind::WriteConflict, false);
        two.unknown();
        two.error();
        one.merge(&two);
        let spec = WorkloadSpec::of(WorkloadKind::Retwis);
        let cpu = CpuUse { client: Some(Duration::from_micros(2_002)), server: None };
        Report::new(&spec, 8, Duration::from_secs(2), &one, cpu)
    }

    #[test]
    fn a_run_is_summed_up() {
        let report = report();
        assert_eq!((report.committed_per_second, report.aborted_per_second), (500.5, 16.5));
        assert!((report.abort_rate - 33.0 / 1_034.0).abs() < 1e-9);
        let aborts: Vec<(&str, u64)> =
            report.aborts.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(
            aborts,
            [("error", 1), ("read_conflict", 30), ("unknown", 1), ("write_conflict", 1)]
        );
        let within = |seen: f64, expected: f64| (seen / expected - 1.0).abs() < 0.002;
        assert!(
            within(report.latency_us.p50, 501.0) && within(report.latency_us.p99, 991.0),
            "{:?}",
            report.latency_us
        );
        assert!(within(report.latency_us.max, 3.6e9), "longer than the bound counts as the bound");
        assert_eq!(report.cpu_us_per_txn, CpuUsPerTxn { client: Some(2.0), server: None });
        assert_eq!(report.read_only.committed_per_second, 250.0);
        assert_eq!(report.read_only.abort_rate, 30.0 / 530.0);
    }

    #[test]
    fn the_json_has_the_documented_fields_in_order() {
        let mut report = report();
        report.note("address", "in-process");
        let json = report.to_json().unwrap();
        assert!(!json.contains('\n'));
        let fields = [
            "workload",
            "clients",
            "duration_s",
            "committed_per_second",
            "aborted_per_second",
            "abort_rate",
            "aborts",
            "latency_us",
            "cpu_us_per_txn",
            "read_only",
            "config",
        ];
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let mut sorted = fields.to_vec();
        sorted.sort_unstable();
        assert_eq!(
            value.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>(),
            sorted
        );
        let places: Vec<usize> =
            fields.iter().map(|field| json.find(&format!("\"{field}\":")).unwrap()).collect();
        assert!(places.is_sorted(), "{json}");
        assert_eq!(value["workload"], "retwis");
        assert_eq!(value["aborts"]["read_conflict"], 30);
        for percentile in ["p50", "p90", "p99", "p999", "max"] {
            assert!(
                value["latency_us"][percentile].is_f64()
                    && value["read_only"]["latency_us"][percentile].is_f64()
            );
        }
        assert_eq!(value["cpu_us_per_txn"], serde_json::json!({ "client": 2.0, "server": null }));
        assert_eq!(
            (&value["config"]["keys"], &value["config"]["address"]),
            (&1_000_000.into(), &"in-process".into())
        );
    }

    #[test]
    fn the_table_shows_what_people_ask_for() {
        let text = report().to_string();
        for shown in [
            "retwis: 8 clients, 2.0 s",
            "committed/s",
            "p99.9",
            "3.19 %",
            "30 read_conflict",
            "2.0 µs",
            "–",
        ] {
            assert!(text.contains(shown), "{shown} in\n{text}");
        }
    }

    #[test]
    fn an_empty_run_divides_by_nothing() {
        let spec = WorkloadSpec::of(WorkloadKind::YcsbA);
        let cpu = CpuUse { client: Some(Duration::from_secs(1)), server: None };
        let report = Report::new(&spec, 1, Duration::ZERO, &Recorder::new(), cpu);
        assert_eq!(
            (report.committed_per_second, report.abort_rate, report.cpu_us_per_txn.client),
            (0.0, 0.0, None)
        );
        report.to_json().unwrap();
    }

    #[test]
    fn a_reset_forgets_the_warm_up() {
        let mut recorder = Recorder::new();
        recorder.committed(Duration::from_micros(5), true);
        recorder.aborted(AbortKind::TooOld, true);
        recorder.unknown();
        recorder.reset();
        assert_eq!((recorder.committed_count(), recorder.aborted_count()), (0, 0));
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1 000", "1 234 567"]);
    }
}
