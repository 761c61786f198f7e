//! What tests and models counted (`tests/scores.rs` says how they write it), by region of the page.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::comparisons::Comparisons;
use crate::table::Table;

/// Of one planted bug: seeds from one that finds it to the next, and within how many its test must
/// find it.
struct Planted {
    distances: Vec<u64>,
    bound: u64,
}

#[derive(Default)]
struct Cuts {
    first: u64,
    in_recovery: u64,
}

#[derive(Default)]
struct Bits {
    detected: u64,
    torn: u64,
    harmless: u64,
}

/// One model: interleavings explored, and the planted bugs that it caught.
struct Model {
    interleavings: u64,
    caught: u64,
}

/// Everything that was counted.
#[derive(Default)]
pub(super) struct Scores {
    /// By region: the commits that ran, and whether all or some of its sweeps were full.
    commits: BTreeMap<&'static str, BTreeSet<String>>,
    full: BTreeMap<&'static str, BTreeSet<bool>>,
    /// The commit that the lines which follow were counted on.
    commit: Option<String>,
    planted: BTreeMap<String, Planted>,
    cuts: BTreeMap<String, Cuts>,
    bits: BTreeMap<String, Bits>,
    models: BTreeMap<String, Model>,
    /// Virtual seconds a second of one core, by the transactions a virtual second that were asked
    /// for.
    speeds: BTreeMap<u64, f64>,
    predictions: Comparisons,
}

impl Scores {
    /// Regions of the page that are filled from here.
    #[cfg(test)]
    pub(super) const REGIONS: [&'static str; 6] =
        ["planted", "crash points", "flipped bits", "models", "speed", "predictions"];

    /// Adds a line.
    pub(super) fn add(&mut self, line: &Value) -> Result<(), String> {
        let region = match line["kind"].as_str() {
            Some("commit") => {
                self.commit = Some(text(line, "commit")?);
                return Ok(());
            }
            Some("planted") => {
                let distances = line["distances"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_u64)
                    .collect();
                self.planted
                    .insert(text(line, "bug")?, Planted { distances, bound: count(line, "bound") });
                "planted"
            }
            Some("crash points") => {
                let cuts = self.cuts.entry(text(line, "of")?).or_default();
                cuts.first += count(line, "cuts");
                cuts.in_recovery += count(line, "recovery_cuts");
                "crash points"
            }
            Some("flipped bits") => {
                let bits = self.bits.entry(text(line, "of")?).or_default();
                bits.detected += count(line, "detected");
                bits.torn += count(line, "torn");
                bits.harmless += count(line, "harmless");
                "flipped bits"
            }
            Some("model") => {
                let model = Model {
                    interleavings: count(line, "interleavings"),
                    caught: count(line, "caught"),
                };
                self.models.insert(text(line, "of")?, model);
                "models"
            }
            Some("speed") => {
                let ratio = line["virtual_per_real"].as_f64().ok_or("a speed without a number")?;
                self.speeds.insert(count(line, "rate"), ratio);
                "speed"
            }
            Some("prediction") => {
                self.predictions.add(line)?;
                "predictions"
            }
            other => return Err(format!("{} is no kind of score", other.unwrap_or("nothing"))),
        };
        let commit = self.commit.clone().unwrap_or_else(|| "unknown".to_owned());
        self.commits.entry(region).or_default().insert(commit);
        if line["full"].is_u64() {
            self.full.entry(region).or_default().insert(count(line, "full") > 0);
        }
        Ok(())
    }

    fn planted_table(&self) -> Table {
        let row = |(bug, planted): (&String, &Planted)| {
            let tried: u64 = planted.distances.iter().sum();
            let longest = planted.distances.iter().max().copied().unwrap_or(0);
            let found = planted.distances.len() as u64;
            let numbers = [median(&planted.distances), longest, found, tried, planted.bound];
            std::iter::once(bug.clone()).chain(numbers.map(|number| number.to_string())).collect()
        };
        Table {
            header: vec!["planted bug", "median seeds", "most", "found by", "of seeds", "bound"],
            rows: self.planted.iter().map(row).collect(),
        }
    }

    fn cuts_table(&self) -> Table {
        let row = |(of, cuts): (&String, &Cuts)| {
            vec![of.clone(), cuts.first.to_string(), cuts.in_recovery.to_string(), "0".to_owned()]
        };
        Table {
            header: vec!["what", "cuts", "cuts in a recovery", "lost or made up"],
            rows: self.cuts.iter().map(row).collect(),
        }
    }

    fn bits_table(&self) -> Table {
        let row = |(of, bits): (&String, &Bits)| {
            let flips = bits.detected + bits.torn + bits.harmless;
            let numbers = [flips, bits.detected, bits.torn, bits.harmless, 0];
            std::iter::once(of.clone()).chain(numbers.map(|number| number.to_string())).collect()
        };
        Table {
            header: vec![
                "what",
                "flips",
                "detected",
                "looked like a torn last group",
                "harmless",
                "answered wrongly",
            ],
            rows: self.bits.iter().map(row).collect(),
        }
    }

    fn models_table(&self) -> Table {
        let row = |(of, model): (&String, &Model)| {
            vec![format!("`{of}`"), model.interleavings.to_string(), model.caught.to_string()]
        };
        Table {
            header: vec!["model", "interleavings", "planted bugs caught"],
            rows: self.models.iter().map(row).collect(),
        }
    }

    fn speed_table(&self) -> Table {
        let row = |(rate, ratio): (&u64, &f64)| vec![rate.to_string(), format!("{ratio:.0}")];
        Table {
            header: vec!["transactions a virtual second", "virtual seconds per core second"],
            rows: self.speeds.iter().map(row).collect(),
        }
    }

    fn tables(&self) -> impl Iterator<Item = (&'static str, Table)> {
        let tables = [
            ("planted", self.planted_table()),
            ("crash points", self.cuts_table()),
            ("flipped bits", self.bits_table()),
            ("models", self.models_table()),
            ("speed", self.speed_table()),
            ("predictions", self.predictions.table()),
        ];
        tables.into_iter().filter(|(_, table)| !table.rows.is_empty())
    }

    /// The regions that something was counted for, and their new text.
    pub(super) fn regions(&self) -> Vec<(&'static str, String)> {
        self.tables()
            .map(|(region, table)| (region, format!("{}\n{}", self.head(region), table.markdown())))
            .collect()
    }

    /// Which commits ran, and how thoroughly.
    fn head(&self, region: &str) -> String {
        let commits: Vec<&str> =
            self.commits.get(region).into_iter().flatten().map(String::as_str).collect();
        let sweeps =
            match self.full.get(region).map(|full| (full.contains(&true), full.contains(&false))) {
                Some((true, false)) => " Full sweeps.",
                Some((true, true)) => " Some sweeps full, some as CI runs them.",
                Some((false, _)) => " Sweeps as CI runs them.",
                None => "",
            };
        let verdict =
            if region == "predictions" { self.predictions.verdict() } else { String::new() };
        format!("Commit that ran: {}.{sweeps}{verdict}\n", commits.join(", "))
    }

    /// For a terminal.
    pub(super) fn text(&self) -> String {
        self.tables()
            .map(|(region, table)| format!("── {region}. {}{}\n", self.head(region), table.text()))
            .collect()
    }
}

/// The one in the middle, the lower of two.
fn median(numbers: &[u64]) -> u64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

pub(super) fn count(line: &Value, name: &str) -> u64 {
    line[name].as_u64().unwrap_or(0)
}

pub(super) fn text(line: &Value, name: &str) -> Result<String, String> {
    line[name].as_str().map(str::to_owned).ok_or_else(|| format!("'{name}' is missing"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn regions(lines: &[Value]) -> BTreeMap<&'static str, String> {
        let mut scores = Scores::default();
        for line in lines {
            scores.add(line).unwrap();
        }
        scores.regions().into_iter().collect()
    }

    #[test]
    fn the_median_is_of_distances_and_not_of_the_first_seed() {
        assert_eq!((median(&[90, 2, 3]), median(&[4, 1]), median(&[])), (3, 1, 0));
        let regions = regions(&[
            json!({"kind": "commit", "commit": "abc"}),
            json!({"kind": "planted", "bug": "no fsync", "distances": [90, 2, 3], "bound": 100}),
        ]);
        assert!(regions["planted"].contains("| no fsync | 3 | 90 | 3 | 95 | 100 |"), "{regions:?}");
        assert!(regions["planted"].contains("Commit that ran: abc."), "{regions:?}");
        assert_eq!(regions.len(), 1, "what was not counted has no new text");
    }

    #[test]
    fn sweeps_of_one_thing_add_up_and_say_how_thorough_they_were() {
        let regions = regions(&[
            json!({"kind": "crash points", "of": "log", "cuts": 7, "full": 0}),
            json!({"kind": "crash points", "of": "log", "recovery_cuts": 9, "full": 1}),
            json!({"kind": "flipped bits", "of": "log", "detected": 5, "torn": 2, "harmless": 3, "full": 1}),
            json!({"kind": "model", "of": "lanes", "interleavings": 1000, "caught": 3}),
            json!({"kind": "speed", "rate": 500, "virtual_per_real": 48.7}),
        ]);
        assert!(regions["crash points"].contains("| log | 7 | 9 | 0 |"), "{regions:?}");
        assert!(regions["crash points"].contains("unknown. Some sweeps full"), "{regions:?}");
        assert!(regions["flipped bits"].contains("| log | 10 | 5 | 2 | 3 | 0 |"), "{regions:?}");
        assert!(regions["flipped bits"].contains("Full sweeps."), "{regions:?}");
        assert!(regions["models"].contains("| `lanes` | 1000 | 3 |"), "{regions:?}");
        assert!(regions["speed"].contains("| 500 | 49 |"), "{regions:?}");
    }

    #[test]
    fn a_line_that_is_none_of_ours_is_named() {
        assert!(
            Scores::default().add(&json!({"kind": "weather"})).unwrap_err().contains("weather")
        );
        assert!(Scores::default().add(&json!({"kind": "model"})).unwrap_err().contains("'of'"));
    }
}
