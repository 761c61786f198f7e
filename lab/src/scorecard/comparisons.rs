//! Predicted beside measured throughput: the middle of several rounds, and how far these lie apart.
//!
//! A machine that others share is faster and slower by a third from one second to the next; how
//! much they took of it is part of what is predicted, as far as arithmetic that was timed meanwhile
//! tells it, and the middle of several rounds is compared.

use std::collections::BTreeMap;

use serde_json::Value;

use super::scores::{count, text};
use crate::table::Table;

/// A prediction is good when it lies within so much of what was measured, as a share.
const GOAL: f64 = 0.2;

/// What was run: cores, layout, workload.
type Case = (u64, String, String);

/// Of each case, what was measured and predicted in each round.
#[derive(Default)]
pub(super) struct Comparisons {
    cases: BTreeMap<Case, Vec<Value>>,
}

impl Comparisons {
    /// Adds a round of one case.
    pub(super) fn add(&mut self, line: &Value) -> Result<(), String> {
        let case = (count(line, "cores"), text(line, "layout")?, text(line, "workload")?);
        if figures(line, "measured")
            .chain(figures(line, "predicted"))
            .any(|rate| rate.is_nan() || rate <= 0.0)
        {
            return Err(format!("a prediction or what was measured is no throughput in {line}"));
        }
        self.cases.entry(case).or_default().push(line.clone());
        Ok(())
    }

    pub(super) fn table(&self) -> Table {
        let row = |((cores, layout, workload), rounds): (&Case, &Vec<Value>)| {
            let cpu = |name: &str| {
                format!("{:.1} + {:.1}", middle_of(rounds, name, 0), middle_of(rounds, name, 1))
            };
            vec![
                workload.clone(),
                cores.to_string(),
                layout.clone(),
                format!("{:.0}", middle_of(rounds, "measured", 0)),
                format!("{:.0}", middle_of(rounds, "predicted", 0)),
                format!("{:.2}", ratio(rounds)),
                range(rounds, "measured"),
                range(rounds, "predicted"),
                cpu("measured_cpu"),
                cpu("predicted_cpu"),
                format!("{:.2}", middle_of(rounds, "neighbours", 0)),
            ]
        };
        Table {
            header: vec![
                "workload",
                "cores",
                "layout",
                "measured /s",
                "predicted /s",
                "ratio",
                "measured, thousands",
                "predicted, thousands",
                "measured µs",
                "predicted µs",
                "arithmetic",
            ],
            rows: self.cases.iter().map(row).collect(),
        }
    }

    /// How many of them are good; nothing, when there are none.
    pub(super) fn verdict(&self) -> String {
        let rounds = self.cases.values().map(Vec::len).min().unwrap_or(0);
        let good = self.cases.values().filter(|rounds| (ratio(rounds) - 1.0).abs() <= GOAL).count();
        let of = self.cases.len();
        if of == 0 {
            String::new()
        } else {
            format!(" The middle of {rounds} rounds; {good} of {of} within 20 %.")
        }
    }
}

/// A figure, or the several that stand under one name.
fn figures(line: &Value, name: &str) -> impl Iterator<Item = f64> {
    let value = &line[name];
    let several = value.as_array().into_iter().flatten();
    several
        .chain((!value.is_array()).then_some(value))
        .map(|figure| figure.as_f64().unwrap_or(f64::NAN))
}

fn middle_of(rounds: &[Value], name: &str, place: usize) -> f64 {
    let mut figures: Vec<f64> =
        rounds.iter().filter_map(|round| figures(round, name).nth(place)).collect();
    figures.sort_unstable_by(f64::total_cmp);
    match figures.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => figures[odd / 2],
        even => f64::midpoint(figures[even / 2 - 1], figures[even / 2]),
    }
}

fn ratio(rounds: &[Value]) -> f64 {
    middle_of(rounds, "predicted", 0) / middle_of(rounds, "measured", 0)
}

/// The least and the most of all rounds.
fn range(rounds: &[Value], name: &str) -> String {
    let wider = |(least, most): (f64, f64), rate: f64| (least.min(rate), most.max(rate));
    let (least, most) =
        rounds.iter().flat_map(|round| figures(round, name)).fold((f64::MAX, 0.0), wider);
    format!("{:.0}–{:.0}", least / 1e3, most / 1e3)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn round(layout: &str, measured: f64, predicted: f64) -> Value {
        json!({"workload": "retwis", "cores": 2, "layout": layout, "measured": measured, "predicted": predicted,
            "measured_cpu": [11.5, 5.0], "predicted_cpu": [12.0, 4.75], "neighbours": 1.04})
    }

    #[test]
    fn the_middle_of_each_side_is_compared() {
        let mut comparisons = Comparisons::default();
        for (measured, predicted) in [(20e3, 19e3), (30e3, 18e3), (10e3, 25e3)] {
            comparisons.add(&round("fused", measured, predicted)).unwrap();
        }
        for (measured, predicted) in [(10e3, 13e3), (20e3, 23e3), (40e3, 90e3)] {
            comparisons.add(&round("staged", measured, predicted)).unwrap();
        }
        comparisons.add(&round("staged", 30e3, 27.5e3)).unwrap();
        let table = comparisons.table().markdown();
        assert!(
            table.contains(
                "| retwis | 2 | fused | 20000 | 19000 | 0.95 | 10–30 | 18–25 | 11.5 + 5.0 | 12.0 + \
                 4.8 | 1.04 |"
            ),
            "{table}"
        );
        // Of four, what lies between the middle two.
        assert!(table.contains("| retwis | 2 | staged | 25000 | 25250 | 1.01 |"), "{table}");
        assert_eq!(comparisons.verdict(), " The middle of 3 rounds; 2 of 2 within 20 %.");
        comparisons
            .add(&json!({"workload": "ycsb-a", "layout": "fused", "measured": 10.0, "predicted": 12.1}))
            .unwrap();
        assert_eq!(comparisons.verdict(), " The middle of 1 rounds; 2 of 3 within 20 %.");
    }

    #[test]
    fn what_is_no_throughput_is_refused() {
        let said = Comparisons::default().add(&round("fused", 0.0, 1.0)).unwrap_err();
        assert!(said.contains("no throughput"), "{said}");
        assert!(
            Comparisons::default().add(&json!({"workload": "ycsb-a", "layout": "fused"})).is_err()
        );
        assert!(Comparisons::default().add(&json!({"measured": 1.0})).is_err());
    }
}
