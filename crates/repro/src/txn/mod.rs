//! Clusters in the simulator: transactions in a closed loop, one series for each way of running them.
//!
//! ```text
//!   TransactionsPart ─► scenario + series + place of the axis ─► timestone_sim::watch ─► Pace ─► figures
//! ```
//! Servers, clients, network, clocks, logs and devices are the simulator's, with what work costs
//! there (docs/design/simulator.md). A session begins its next transaction when the last one has
//! ended; what aborts is tried again at once, with the same keys, where the scenario says so.

mod part;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use timestone_sim::{Pace, RunOptions, Scenario, Seed, TraceLine, Watch, watch};

use crate::error::ReproError;
use crate::measured::{Measured, Point};
use crate::progress::ProgressPart;
pub(crate) use part::TransactionsPart;

/// A run lasts longer than its transactions are begun: loading, and coming to rest.
const BESIDE: Duration = Duration::from_secs(2);

/// Runs every series at every place.
pub(crate) fn run(
    part: &TransactionsPart,
    seed: u64,
    progress: &mut ProgressPart<'_>,
) -> Result<Measured, ReproError> {
    let mut measured =
        Measured { x_name: part.sweep.name().to_owned(), points: Vec::new(), notes: Vec::new() };
    let count = part.series.len() * part.over.len();
    for (number, series) in part.series.iter().enumerate() {
        for (place, &x) in part.over.iter().enumerate() {
            let scenario = part.scenario_of(series, x);
            let doing = format!("{} at {} {x}", series.name, part.sweep.name());
            let progress = progress.part(number * part.over.len() + place, count);
            let figures = one(&scenario, seed, &doing, progress)?;
            measured.points.push(Point { series: series.name.clone(), x, figures });
        }
    }
    Ok(measured)
}

/// One run.
fn one(
    scenario: &Scenario,
    seed: u64,
    doing: &str,
    progress: ProgressPart<'_>,
) -> Result<BTreeMap<&'static str, f64>, ReproError> {
    let length = Duration::from_secs_f64(scenario.workload.seconds) + BESIDE;
    let mut watched = WatchedRun { progress, doing, length };
    let ran = watch(scenario, Seed(seed), RunOptions::default(), &mut watched)
        .map_err(|error| ReproError::Run(format!("{doing}: {error}")))?;
    let Some(report) = ran else { return Err(ReproError::Interrupted) };
    if let Some(finding) = report.findings.first() {
        return Err(ReproError::Run(format!("{doing}: {}: {}", finding.property, finding.detail)));
    }
    let sessions = scenario.cluster.clients.unwrap_or(1) * scenario.cluster.sessions.unwrap_or(1);
    Ok(figures(&report.pace, f64::from(sessions)))
}

fn figures(pace: &Pace, sessions: f64) -> BTreeMap<&'static str, f64> {
    let seconds = pace.span.as_secs_f64().max(1e-9);
    let ended = (pace.committed + pace.aborted) as f64;
    BTreeMap::from([
        ("throughput-ktps", pace.committed as f64 / seconds / 1000.0),
        ("abort-percent", pace.aborted as f64 * 100.0 / ended.max(1.0)),
        ("attempts", ended),
        ("local-percent", pace.locally as f64 * 100.0 / (pace.read_only as f64).max(1.0)),
        // Sessions have one transaction under way at any time: Little's law.
        ("latency-mean-us", sessions * seconds * 1e6 / (pace.committed as f64).max(1.0)),
        ("server-processor-percent", pace.servers.as_secs_f64() / seconds * 100.0),
    ])
}

/// Tells how far a run is.
struct WatchedRun<'p, 'a> {
    progress: ProgressPart<'p>,
    doing: &'a str,
    length: Duration,
}

impl Watch for WatchedRun<'_, '_> {
    fn look(&mut self, now: Duration, _: &[TraceLine]) -> ControlFlow<()> {
        let share = now.as_secs_f64() / self.length.as_secs_f64();
        match self.progress.at(share, self.doing) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}
