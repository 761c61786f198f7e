//! One call of the simulator or of a fuzz target, as a line of JSON: what it did, and what it
//! found.
//!
//! A program that neither ends nor answers is ended, and is a finding as well; it never stops the
//! soak.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::stem;

/// What no call takes, on however slow a machine: seconds for each seed.
const TIMEOUT_PER_SEED: Duration = Duration::from_secs(120);
/// Beyond a fuzz target's own time, for building it.
const BUILD_TIMEOUT: Duration = Duration::from_secs(1800);
const LOOK: Duration = Duration::from_millis(50);

/// Seeds of one scenario, one after another.
pub(super) struct Simulation<'a> {
    pub(super) program: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) scenario: &'a Path,
    pub(super) seed: u64,
    pub(super) seeds: u64,
    pub(super) jobs: u64,
}

impl Simulation<'_> {
    pub(super) fn run(&self) -> Value {
        let answer = self.folder.join("answer.json");
        let mut command = Command::new(self.program);
        command.args(["-o", "json", "sim", "--scenario"]).arg(self.scenario);
        command.args(["--seed", &self.seed.to_string(), "--seeds", &self.seeds.to_string()]);
        command.args(["--jobs", &self.jobs.to_string(), "--traces"]).arg(self.folder);
        let begin = Instant::now();
        // Those that fail write traces, which takes longer.
        let timeout =
            TIMEOUT_PER_SEED.saturating_mul(u32::try_from(self.seeds).unwrap_or(u32::MAX));
        let ended = call(command, &answer, timeout);
        let said =
            fs::read(&answer).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        let mut run = match (said, &ended) {
            (Some(run), Ok(_)) if run.is_object() => run,
            (_, ended) => self.without_answer(ended, begin.elapsed()),
        };
        run["kind"] = "simulation".into();
        run["first_seed"] = self.seed.into();
        let failed = run["failed"].as_array().map_or(0, Vec::len);
        println!(
            "   {}: {} seeds from {} on, {failed} failed, {:.1} s",
            stem(self.scenario),
            self.seeds,
            self.seed,
            begin.elapsed().as_secs_f64()
        );
        run
    }

    /// The simulator gave no numbers: that is a failure of some seed of these, and of the first as
    /// far as one can tell.
    fn without_answer(&self, ended: &Result<ExitStatus, String>, took: Duration) -> Value {
        let detail = match ended {
            Ok(status) => format!(
                "the simulator ended with {status} and gave no result for seeds {} to {}",
                self.seed,
                self.seed + self.seeds - 1
            ),
            Err(error) => error.clone(),
        };
        json!({
            "scenario": stem(self.scenario),
            "seeds": 0,
            "real_seconds": took.as_secs_f64(),
            "failed": [{"seed": self.seed, "findings": [{"property": "the simulator answers", "detail": detail}]}],
        })
    }
}

/// One fuzz target for a time.
pub(super) struct Fuzzing<'a> {
    pub(super) root: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) target: &'a Path,
    pub(super) length: Duration,
}

impl Fuzzing<'_> {
    pub(super) fn run(&self) -> Value {
        let target = stem(self.target);
        let seconds = self.length.as_secs().max(1);
        let log = self.folder.join(format!("fuzz-{target}.log"));
        let mut command = Command::new(self.root.join("fuzz/run"));
        // Where `fuzz/run` builds is its own choice: its programs are built otherwise than ours.
        command.arg(seconds.to_string()).arg(&target).env_remove("CARGO_MANIFEST_DIR");
        command.env("CARGO_TARGET_DIR", self.folder.join("fuzz"));
        let detail = match call(command, &log, self.length + BUILD_TIMEOUT) {
            Ok(status) if status.success() => None,
            Ok(status) => Some(format!(
                "fuzz/run ended with {status}; see {} and fuzz/artifacts/{target}",
                log.display()
            )),
            Err(error) => Some(error),
        };
        println!(
            "   fuzzing {target}: {seconds} s, {}",
            if detail.is_none() { "passed" } else { "FAILED" }
        );
        let failed: Vec<Value> = detail
            .iter()
            .map(|detail| json!({"seed": null, "findings": [{"property": "no input fails", "detail": detail}]}))
            .collect();
        json!({"kind": "fuzzing", "target": target, "seconds": seconds, "failed": failed})
    }
}

/// Runs a command with its output in a file, for no longer than `timeout`.
fn call(mut command: Command, output: &Path, timeout: Duration) -> Result<ExitStatus, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let file = File::create(output)
        .map_err(|error| format!("could not write {}: {error}", output.display()))?;
    let started = command.stdin(Stdio::null()).stdout(file).spawn();
    let mut child = started.map_err(|error| format!("{program} could not be started: {error}"))?;
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if begin.elapsed() < timeout => sleep(LOOK),
            Ok(None) => {
                let ended = child.kill().and_then(|()| child.wait());
                let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                return Err(format!(
                    "{program} was not done after {} s, and was ended: {how}",
                    timeout.as_secs()
                ));
            }
            Err(error) => return Err(format!("{program}: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_with(program: &str) -> Value {
        let folder = std::env::temp_dir().join(format!(
            "lab-batch-{}-{}",
            std::process::id(),
            program.len()
        ));
        fs::create_dir_all(&folder).unwrap();
        let scenario = Path::new("scenarios/bank.toml");
        let run = Simulation {
            program: Path::new(program),
            folder: &folder,
            scenario,
            seed: 7,
            seeds: 3,
            jobs: 1,
        }
        .run();
        fs::remove_dir_all(&folder).unwrap();
        run
    }

    #[test]
    fn a_simulator_that_says_nothing_is_a_failure_of_its_first_seed() {
        for program in ["true", "/nonexistent/simulator"] {
            let run = run_with(program);
            assert_eq!(
                (&run["scenario"], &run["seeds"], &run["failed"][0]["seed"]),
                (&json!("bank"), &json!(0), &json!(7))
            );
            assert!(!run["failed"][0]["findings"][0]["detail"].as_str().unwrap().is_empty());
        }
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let output = std::env::temp_dir().join(format!("lab-call-{}", std::process::id()));
        let error = call(command, &output, Duration::from_millis(1)).unwrap_err();
        fs::remove_file(&output).unwrap();
        assert!(error.contains("was ended"), "{error}");
    }
}
