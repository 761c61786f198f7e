//! Runs everything that counts something for the scorecard: one step after another, each with its
//! progress on the terminal.
//!
//! Tests and models write their counts themselves, into the file that `TIMESTONE_TEST_SCORES`
//! names; the speed and the fuzzing are written here. The file has its name only once everything
//! has passed.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::soak::{append, build, commit, number};
use xtask::steps::{Steps, cargo, output_of, status_of};

/// Transactions a virtual second of the scenario whose speed is measured: what it says, and a
/// tenth.
const SPEED_RATES: [u64; 2] = [500, 50];
const SPEED_SCENARIO: &str = "scenarios/calm.toml";
/// Virtual minutes of each measurement.
const SPEED_MINUTES: &str = "1";

/// What is wanted beyond the usual.
#[derive(Default)]
pub(super) struct Options {
    /// Every sector and every bit, optimised.
    full: bool,
    /// For each target; none without.
    fuzz_seconds: Option<u64>,
}

impl Options {
    pub(super) fn read(words: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--full" => options.full = true,
                "--fuzz" => options.fuzz_seconds = Some(number(word, words.next())?),
                other => {
                    return Err(format!(
                        "scorecard --run has no option '{other}'; see cargo lab help"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// Counts everything anew, into `file`.
pub(super) fn count(root: &Path, file: &Path, options: &Options) -> Result<(), String> {
    let part = file.with_extension("part");
    let failed = |error: std::io::Error| format!("could not write {}: {error}", part.display());
    fs::create_dir_all(part.parent().unwrap_or(root)).map_err(failed)?;
    fs::write(&part, "").map_err(failed)?;
    append(&part, &json!({"kind": "commit", "commit": commit(root)}))?;
    let counting = Counting { root, file: &part };
    let mut steps = Steps::new(root);
    let sweeps = sweeps(options.full);
    let planted = ["test", "--package", "timestone-sim", "--test", "sim", "planted"];
    steps.own("planted bugs", || counting.cargo(&planted, options));
    steps.own("crash points and flipped bits", || counting.cargo(&sweeps, options));
    steps.own("models", || counting.models());
    steps.own("speed", || counting.speed());
    if let Some(seconds) = options.fuzz_seconds {
        steps.own("fuzzing", || counting.fuzz(seconds));
    }
    steps.outcome()?;
    fs::rename(&part, file).map_err(failed)
}

/// The arguments of the tests that sweep: all of them begin with these words.
fn sweeps(full: bool) -> Vec<&'static str> {
    let mut words = vec!["test"];
    words.extend(
        ["timestone-wal", "timestone-store", "timestone-server"]
            .iter()
            .flat_map(|name| ["--package", name]),
    );
    words.extend(full.then_some("--release"));
    words.extend(["--tests", "--", "sweep", "bits"]);
    words
}

struct Counting<'a> {
    root: &'a Path,
    file: &'a Path,
}

impl Counting<'_> {
    fn counted(&self, mut command: Command) -> Result<(), String> {
        command.env("TIMESTONE_TEST_SCORES", self.file);
        status_of(command)
    }

    fn cargo(&self, words: &[&str], options: &Options) -> Result<(), String> {
        let mut command = cargo(self.root);
        command.args(words).env("TIMESTONE_TEST_SWEEP", if options.full { "full" } else { "" });
        self.counted(command)
    }

    fn models(&self) -> Result<(), String> {
        let mut command = Command::new(self.root.join("models/run"));
        // A workspace of its own, whose programs are built otherwise than ours.
        command.env_remove("CARGO_TARGET_DIR");
        self.counted(command)
    }

    /// How fast the simulator is: virtual seconds a second of one core.
    fn speed(&self) -> Result<(), String> {
        let program = build(self.root, "release")?;
        let text = fs::read_to_string(self.root.join(SPEED_SCENARIO))
            .map_err(|error| format!("could not read {SPEED_SCENARIO}: {error}"))?;
        let scenario = self.file.with_extension("speed.toml");
        for rate in SPEED_RATES {
            fs::write(&scenario, with_rate(&text, rate)?)
                .map_err(|error| format!("could not write {}: {error}", scenario.display()))?;
            let answer = self.simulate(&program, &scenario)?;
            let ratio = answer["virtual_per_real"]
                .as_f64()
                .ok_or("the simulator does not tell its speed")?;
            println!(
                "   {rate} transactions a virtual second: {ratio:.0} virtual seconds per core \
                 second"
            );
            append(self.file, &json!({"kind": "speed", "rate": rate, "virtual_per_real": ratio}))?;
        }
        fs::remove_file(&scenario)
            .map_err(|error| format!("could not remove {}: {error}", scenario.display()))
    }

    fn simulate(&self, program: &Path, scenario: &Path) -> Result<Value, String> {
        let (program, scenario) = (program.to_string_lossy(), scenario.to_string_lossy());
        let words = ["-o", "json", "sim", "--scenario", &scenario, "--minutes", SPEED_MINUTES];
        let answer = output_of(self.root, &program, &words)?;
        serde_json::from_slice(&answer)
            .map_err(|error| format!("the simulator's answer is no JSON: {error}"))
    }

    /// Each target for so long; `fuzz/run` ends at the first that fails.
    fn fuzz(&self, seconds: u64) -> Result<(), String> {
        for target in crate::soak::fuzz_targets(self.root)? {
            let mut command = Command::new(self.root.join("fuzz/run"));
            command.arg(seconds.to_string()).arg(&target).env_remove("CARGO_TARGET_DIR");
            status_of(command)?;
            append(
                self.file,
                &json!({"kind": "fuzzing", "target": target, "seconds": seconds, "failed": []}),
            )?;
        }
        Ok(())
    }
}

/// A scenario with another rate.
fn with_rate(scenario: &str, rate: u64) -> Result<String, String> {
    let is_rate = |line: &&str| line.split('=').next().is_some_and(|key| key.trim() == "rate");
    let line =
        scenario.lines().find(is_rate).ok_or_else(|| format!("{SPEED_SCENARIO} has no rate"))?;
    Ok(scenario.replacen(line, &format!("rate = {rate}"), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_wrong_ones_are_named() {
        let options = Options::read(&["--full", "--fuzz", "30"]).unwrap();
        assert_eq!((options.full, options.fuzz_seconds), (true, Some(30)));
        assert!(Options::read(&["--ful"]).err().unwrap().contains("--ful"));
        assert!(Options::read(&["--fuzz"]).is_err() && Options::read(&["--fuzz", "long"]).is_err());
    }

    #[test]
    fn the_rate_of_the_measured_scenario_can_be_changed() {
        let changed = with_rate(include_str!("../../../scenarios/calm.toml"), 7).unwrap();
        assert!(changed.contains("\nrate = 7\n") && !changed.contains("rate = 500"), "{changed}");
        assert!(with_rate("[workload]\n", 7).is_err());
    }
}
