//! What many batches came to: by scenario, by kind of fault, by fuzz target; as text for a terminal
//! and as Markdown for a page.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::table::Table;

/// Of one scenario.
#[derive(Default)]
struct Scenario {
    seeds: u64,
    failed: u64,
    virtual_seconds: f64,
    /// Of one core: virtual seconds divided by virtual seconds a second.
    core_seconds: f64,
    committed: u64,
    checked: u64,
}

/// Something that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The scenario or the fuzz target.
    pub(crate) of: String,
    /// None for a fuzz target.
    pub(crate) seed: Option<u64>,
    pub(crate) property: String,
    pub(crate) detail: String,
}

/// Sums over batches.
#[derive(Default)]
pub(crate) struct Sums {
    scenarios: BTreeMap<String, Scenario>,
    /// By kind: how often, and in how many seeds.
    faults: BTreeMap<String, (u64, u64)>,
    /// Seconds by target.
    fuzzed: BTreeMap<String, u64>,
    commits: BTreeSet<String>,
    pub(crate) failures: Vec<Failure>,
}

impl Sums {
    /// Adds a line of `runs.jsonl`; gives the failures that were in it.
    pub(crate) fn add(&mut self, run: &Value) -> Vec<Failure> {
        let name =
            run["scenario"].as_str().or(run["target"].as_str()).unwrap_or("unnamed").to_owned();
        self.commits.extend(run["commit"].as_str().map(str::to_owned));
        let failures = failures_of(&name, run);
        if run["kind"] == "fuzzing" {
            *self.fuzzed.entry(name).or_default() += count(&run["seconds"]);
        } else {
            let scenario = self.scenarios.entry(name).or_default();
            let virtual_seconds = run["virtual_seconds"].as_f64().unwrap_or(0.0);
            scenario.seeds += count(&run["seeds"]);
            scenario.failed += run["failed"].as_array().map_or(0, |failed| failed.len() as u64);
            scenario.virtual_seconds += virtual_seconds;
            if let Some(rate) = run["virtual_per_real"].as_f64().filter(|rate| *rate > 0.0) {
                scenario.core_seconds += virtual_seconds / rate;
            }
            scenario.committed += count(&run["transactions"]["committed"]);
            scenario.checked += count(&run["transactions"]["checked"]);
            for (kind, fault) in run["faults"].as_object().into_iter().flatten() {
                let sum = self.faults.entry(kind.clone()).or_default();
                sum.0 += count(&fault["struck"]);
                sum.1 += count(&fault["seeds"]);
            }
        }
        self.failures.extend(failures.iter().cloned());
        failures
    }

    fn scenario_table(&self) -> Table {
        let mut rows = Vec::new();
        let mut all = Scenario::default();
        for (name, scenario) in &self.scenarios {
            rows.push(scenario.row(name));
            all.seeds += scenario.seeds;
            all.failed += scenario.failed;
            all.virtual_seconds += scenario.virtual_seconds;
            all.core_seconds += scenario.core_seconds;
            all.committed += scenario.committed;
            all.checked += scenario.checked;
        }
        rows.push(all.row("all"));
        let header = vec![
            "scenario",
            "seeds",
            "failed",
            "virtual hours",
            "virtual s per core s",
            "committed",
            "checked",
        ];
        Table { header, rows }
    }

    fn fault_table(&self) -> Table {
        let row = |(kind, (struck, seeds)): (&String, &(u64, u64))| {
            vec![kind.clone(), struck.to_string(), seeds.to_string()]
        };
        Table {
            header: vec!["fault", "struck", "in seeds"],
            rows: self.faults.iter().map(row).collect(),
        }
    }

    /// Minutes by target.
    pub(crate) fn fuzz_table(&self) -> Table {
        let row = |(target, seconds): (&String, &u64)| {
            vec![target.clone(), format!("{:.1}", *seconds as f64 / 60.0)]
        };
        Table {
            header: vec!["fuzz target", "minutes"],
            rows: self.fuzzed.iter().map(row).collect(),
        }
    }

    fn simulation_tables(&self) -> impl Iterator<Item = Table> {
        [self.scenario_table(), self.fault_table()]
            .into_iter()
            .filter(|table| !table.rows.is_empty())
    }

    /// Whether any seed was run.
    pub(crate) fn has_simulations(&self) -> bool {
        !self.scenarios.is_empty()
    }

    /// For a terminal.
    pub(crate) fn text(&self) -> String {
        let fuzz = Some(self.fuzz_table()).filter(|table| !table.rows.is_empty());
        let mut text: String =
            self.simulation_tables().chain(fuzz).map(|table| table.text() + "\n").collect();
        for Failure { of, seed, property, detail } in &self.failures {
            let seed_said = seed.map(|seed| format!(" seed {seed}")).unwrap_or_default();
            text.push_str(&format!("{of}{seed_said} failed: {property}: {detail}\n"));
            if let Some(seed) = seed {
                text.push_str(&format!(
                    "  again, step by step: timestone sim --scenario {of} --seed {seed} --step\n"
                ));
            }
        }
        text.push_str(&format!("{} failures\n", self.failures.len()));
        text
    }

    /// What the simulator ran, for a page.
    pub(crate) fn markdown(&self) -> String {
        let commits: Vec<&str> = self.commits.iter().map(String::as_str).collect();
        let mut text = format!("Commits that ran: {}.\n\n", commits.join(", "));
        for table in self.simulation_tables() {
            text.push_str(&table.markdown());
            text.push('\n');
        }
        if self.failures.is_empty() {
            text.push_str("No seed and no fuzzed input failed in these runs.\n");
        }
        for Failure { of, seed, property, .. } in &self.failures {
            let seed = seed.map(|seed| format!(", seed {seed}")).unwrap_or_default();
            text.push_str(&format!("- failed: {of}{seed}: {property}\n"));
        }
        text
    }
}

impl Scenario {
    fn row(&self, name: &str) -> Vec<String> {
        let rate = if self.core_seconds > 0.0 {
            format!("{:.0}", self.virtual_seconds / self.core_seconds)
        } else {
            "–".to_owned()
        };
        vec![
            name.to_owned(),
            self.seeds.to_string(),
            self.failed.to_string(),
            format!("{:.2}", self.virtual_seconds / 3600.0),
            rate,
            self.committed.to_string(),
            self.checked.to_string(),
        ]
    }
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// One for each property that does not hold in a seed.
fn failures_of(of: &str, run: &Value) -> Vec<Failure> {
    let mut failures = Vec::new();
    for failed in run["failed"].as_array().into_iter().flatten() {
        for finding in failed["findings"].as_array().into_iter().flatten() {
            let text = |field: &str| finding[field].as_str().unwrap_or_default().to_owned();
            failures.push(Failure {
                of: of.to_owned(),
                seed: failed["seed"].as_u64(),
                property: text("property"),
                detail: text("detail"),
            });
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bank(seeds: u64, failed: &Value) -> Value {
        json!({
            "kind": "simulation", "scenario": "bank", "commit": "abc", "seeds": seeds, "failed": failed,
            "virtual_seconds": 1800.0, "virtual_per_real": 30.0, "transactions": {"committed": 10, "checked": 20},
            "faults": {"kill": {"struck": 7, "seeds": 3}},
        })
    }

    #[test]
    fn batches_add_up() {
        let mut sums = Sums::default();
        assert_eq!(sums.add(&bank(100, &json!([]))), []);
        sums.add(&bank(50, &json!([])));
        sums.add(&json!({"kind": "fuzzing", "target": "resp", "seconds": 1800, "failed": []}));
        let page = sums.markdown();
        assert!(page.contains("| bank | 150 | 0 | 1.00 | 30 | 20 | 40 |"), "{page}");
        assert!(page.contains("| all | 150 | 0 | 1.00 | 30 | 20 | 40 |"), "{page}");
        assert!(page.contains("| kill | 14 | 6 |"), "{page}");
        assert!(
            sums.fuzz_table().markdown().contains("| resp | 30.0 |")
                && sums.text().contains("30.0")
        );
        assert!(page.contains("Commits that ran: abc.") && page.contains("No seed"), "{page}");
    }

    #[test]
    fn what_fails_is_counted_and_named_with_its_seed() {
        let mut sums = Sums::default();
        let failed = json!([{"seed": 7, "findings": [{"property": "total", "detail": "1 of 2"}]}]);
        let expected = Failure {
            of: "bank".into(),
            seed: Some(7),
            property: "total".into(),
            detail: "1 of 2".into(),
        };
        assert_eq!(sums.add(&bank(100, &failed)), std::slice::from_ref(&expected));
        assert_eq!(sums.failures, [expected]);
        assert!(sums.text().contains("bank seed 7 failed: total: 1 of 2"), "{}", sums.text());
        assert!(sums.markdown().contains("- failed: bank, seed 7: total"), "{}", sums.markdown());
    }
}
