//! What many seeds came to: time, transactions, faults by kind, and the seeds that failed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::HumanDuration;
use serde_json::{Value, json};
use timestone_sim::{Pace, RunReport, TxnTally};
use timestone_workload::SnapshotAges;

use super::seeds_of;
use crate::output::table;

/// When there are enough seeds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal {
    /// After so many.
    Seeds(u64),
    /// When so much virtual time has passed in them.
    VirtualSeconds(f64),
}

/// Sums over seeds.
#[derive(Debug)]
pub(super) struct Sums {
    goal: Goal,
    begin: Instant,
    pub(super) seeds: u64,
    virtual_time: Duration,
    /// Spent in runs, over all threads.
    run_time: Duration,
    tally: TxnTally,
    checked: u64,
    /// By kind of fault or of change at a restart: how often, and in how many seeds.
    faults: BTreeMap<&'static str, (u64, u64)>,
    /// Seeds, and what does not hold in them: property and detail.
    pub(super) failed: Vec<(u64, Vec<(String, String)>)>,
    last_hash: u64,
    pace: Pace,
}

impl Sums {
    pub(super) fn new(goal: Goal) -> Self {
        Self {
            goal,
            begin: Instant::now(),
            seeds: 0,
            virtual_time: Duration::ZERO,
            run_time: Duration::ZERO,
            tally: TxnTally::default(),
            checked: 0,
            faults: BTreeMap::new(),
            failed: Vec::new(),
            last_hash: 0,
            pace: Pace::default(),
        }
    }

    pub(super) fn add(&mut self, report: &RunReport, took: Duration) {
        self.seeds += 1;
        self.virtual_time += report.virtual_time;
        self.run_time += took;
        self.last_hash = report.trace_hash;
        self.pace = report.pace;
        self.checked += report.checked;
        self.tally.begun += report.tally.begun;
        self.tally.committed += report.tally.committed;
        self.tally.aborted += report.tally.aborted;
        self.tally.unknown += report.tally.unknown;
        self.tally.errors += report.tally.errors;
        let faults = report.faults.iter().map(|(kind, count)| (kind.name(), count));
        let changes = report.changes.iter().map(|(change, count)| (change.name(), count));
        let failovers = (report.failovers > 0).then_some(("failover", &report.failovers));
        let reads = (report.backup_reads > 0).then_some(("backup-read", &report.backup_reads));
        for (name, count) in faults.chain(changes).chain(failovers).chain(reads) {
            let entry = self.faults.entry(name).or_default();
            entry.0 += count;
            entry.1 += 1;
        }
        if !report.is_right() {
            let of = |finding: &timestone_sim::Finding| {
                (finding.property.to_owned(), finding.detail.clone())
            };
            self.failed.push((report.seed.0, report.findings.iter().map(of).collect()));
        }
    }

    pub(super) fn virtual_seconds(&self) -> f64 {
        self.virtual_time.as_secs_f64()
    }

    /// Virtual seconds per second of one core.
    fn ratio(&self) -> f64 {
        self.virtual_seconds() / self.run_time.as_secs_f64().max(1e-9)
    }

    fn fault_count(&self) -> u64 {
        self.faults.values().map(|(count, _)| count).sum()
    }

    /// How much longer it takes, if it goes on as it went so far.
    fn left(&self) -> Option<Duration> {
        let done = match self.goal {
            Goal::Seeds(seeds) => self.seeds as f64 / seeds as f64,
            Goal::VirtualSeconds(seconds) => self.virtual_seconds() / seconds,
        };
        let left = self.begin.elapsed().as_secs_f64() * (1.0 - done) / done;
        Duration::try_from_secs_f64(left.max(0.0)).ok().filter(|_| done > 0.0)
    }

    /// For the progress bar.
    pub(super) fn line(&self) -> String {
        let seeds = match self.goal {
            Goal::Seeds(all) if all > 1 => format!("{} of {}", self.seeds, seeds_of(all)),
            _ => seeds_of(self.seeds),
        };
        let left =
            self.left().map_or_else(String::new, |left| format!(", {} left", HumanDuration(left)));
        let failed = if self.failed.is_empty() {
            String::new()
        } else {
            format!(", {} failed", self.failed.len())
        };
        format!(
            "{seeds}{failed}, {:.0} virtual s, {:.0} per real s, {} faults{left}",
            self.virtual_seconds(),
            self.ratio(),
            self.fault_count()
        )
    }

    pub(super) fn table(&self) -> String {
        let mut shown = table(&["FAULT", "STRUCK", "SEEDS"]);
        for (kind, (count, seeds)) in &self.faults {
            shown.add_row([(*kind).to_owned(), count.to_string(), seeds.to_string()]);
        }
        let TxnTally { begun, committed, aborted, unknown, errors } = self.tally;
        let mut text = if self.faults.is_empty() { String::new() } else { format!("{shown}\n") };
        text.push_str(&format!(
            "seeds         {} ({} failed)\nvirtual time  {:.1} s in {:.1} s: {:.0} virtual seconds \
             per second and core\n",
            self.seeds,
            self.failed.len(),
            self.virtual_seconds(),
            self.begin.elapsed().as_secs_f64(),
            self.ratio()
        ));
        text.push_str(&format!(
            "transactions  {begun} begun, {committed} committed, {aborted} aborted ({errors} by \
             errors), {unknown} unknown\n\
             checked       {} transactions",
            self.checked
        ));
        if self.seeds == 1 {
            let per_transaction =
                |time: Duration| time.as_secs_f64() * 1e6 / self.pace.committed.max(1) as f64;
            text.push_str(&format!(
                "\npace          {:.0} committed a second; {:.1} µs of CPU time each in servers, \
                 {:.1} in clients",
                self.pace.per_second(),
                per_transaction(self.pace.servers),
                per_transaction(self.pace.clients)
            ));
            let ages = self.pace.snapshots;
            let SnapshotAges { begun, stale, .. } = ages;
            text.push_str(&format!(
                "\nsnapshots     {begun} of read-only transactions, {stale} below what was \
                 acknowledged, by {:.3} ms on average",
                ages.mean_behind().as_secs_f64() * 1e3
            ));
            text.push_str(&format!("\ntrace         {:016x}", self.last_hash));
        }
        text
    }

    pub(super) fn json(&self, scenario: &str) -> Value {
        let faults: BTreeMap<&str, Value> = self
            .faults
            .iter()
            .map(|(kind, (count, seeds))| (*kind, json!({"struck": count, "seeds": seeds})))
            .collect();
        let failed: Vec<Value> = self
            .failed
            .iter()
            .map(|(seed, findings)| {
                let of = |(property, detail): &(String, String)| json!({"property": property, "detail": detail});
                json!({"seed": seed, "findings": findings.iter().map(of).collect::<Vec<_>>()})
            })
            .collect();
        let mut all = json!({
            "scenario": scenario,
            "seeds": self.seeds,
            "failed": failed,
            "virtual_seconds": self.virtual_seconds(),
            "real_seconds": self.begin.elapsed().as_secs_f64(),
            "virtual_per_real": self.ratio(),
            "transactions": {
                "begun": self.tally.begun,
                "committed": self.tally.committed,
                "aborted": self.tally.aborted,
                "aborted_by_errors": self.tally.errors,
                "unknown": self.tally.unknown,
                "checked": self.checked,
            },
            "faults": faults,
        });
        if self.seeds == 1
            && let Some(object) = all.as_object_mut()
        {
            object.insert("trace".to_owned(), format!("{:016x}", self.last_hash).into());
            let pace = json!({
                "committed_per_second": self.pace.per_second(),
                "committed": self.pace.committed,
                "aborted": self.pace.aborted,
                "read_only": self.pace.snapshots.begun,
                "stale": self.pace.snapshots.stale,
                "stale_by_seconds": self.pace.snapshots.behind.as_secs_f64(),
                "virtual_seconds": self.pace.span.as_secs_f64(),
                "server_cpu_seconds": self.pace.servers.as_secs_f64(),
                "client_cpu_seconds": self.pace.clients.as_secs_f64(),
            });
            object.insert("pace".to_owned(), pace);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_says_how_many_seeds_there_are_and_how_much_is_left() {
        let mut sums = Sums::new(Goal::Seeds(8));
        let line = sums.line();
        assert!(
            line.starts_with("0 of 8 seeds, ") && !line.contains("left"),
            "nothing is known yet: {line}"
        );
        sums.seeds = 3;
        assert!(
            sums.line().starts_with("3 of 8 seeds, ") && sums.line().ends_with(" left"),
            "{}",
            sums.line()
        );
        assert!(Sums::new(Goal::Seeds(1)).line().starts_with("0 seeds, "));
        let mut sums = Sums::new(Goal::VirtualSeconds(60.0));
        (sums.seeds, sums.virtual_time) = (1, Duration::from_secs(15));
        assert!(
            sums.line().starts_with("1 seed, ") && sums.line().ends_with(" left"),
            "{}",
            sums.line()
        );
    }
}
