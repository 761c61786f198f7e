//! `cargo lab soak` and `cargo lab simulation`: many seeds of every scenario, and the fuzz
//! targets, for as long as one likes.
//!
//! ```text
//!   scenarios/*.toml ─► batch: `timestone sim -o json` ─► sums ─► table at the end; exit code 1 when something failed
//!   fuzz_targets/*.rs ─► batch: `fuzz/run SECONDS`   ─┤
//!                                                    └─► target/soak/runs.jsonl, failures.jsonl ─► `cargo lab scorecard`
//! ```
//! A soak begins at a seed of its own and never ends early: what fails is kept, and the rest goes
//! on. `simulation` runs the same seeds each time, which is what CI does, and keeps nothing but
//! failures' traces.
//!
//! It knows scenarios by their files and the simulator by its JSON; what a property means is the
//! simulator's matter.

mod batch;
pub(crate) mod sums;

use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use batch::{Fuzzing, Simulation};
use sums::Sums;
use xtask::steps::{cargo_program, output_of, workspace_root};

/// Seeds of each scenario that CI runs, from 1 on, such that it takes 6 s of a core or so: all of
/// them together are to take no more than a tenth of CI's time. A scenario that is not listed gets
/// [`FIXED_SEEDS`]. Measured in the dev profile, with the simulator's crates at opt-level 1 (at 2, as
/// they are now, a quarter less): a seed of those takes 0.1 s to 0.3 s of a core, most others 0.4 s to
/// 0.6 s; one of `threads`, which runs three times as long, 1.3 s; one of `restarts`, with waits for
/// all that restarts leave open, 0.9 s; one of `lying-disk`, which is over where a server names what
/// is damaged, 0.05 s; one of `unread`, which lasts a minute, 0.5 s. Three replicas of everything take
/// 1 s to 3 s. CI's seeds show that nothing is broken outright; what is rare is found by many more,
/// which is what `cargo lab soak` is for.
const FIXED: [(&str, u64); 36] = [
    ("as-published", 22),
    ("backup-reads", 6),
    ("calls", 16),
    ("calm", 16),
    ("centiman", 16),
    ("conversions", 16),
    ("deposed", 11),
    ("dram", 14),
    ("embedded", 27),
    ("embedded-stops", 4),
    ("failover", 6),
    ("failover-bank", 6),
    ("frugal", 16),
    ("frugal-failover", 3),
    ("gateway", 27),
    ("gateway-failover", 7),
    ("gateways", 27),
    ("gateways-ordered", 11),
    ("hand-over", 6),
    ("leaving", 14),
    ("lying-disk", 80),
    ("master-cut", 2),
    ("no-master", 6),
    ("old-reads", 4),
    ("older-copy", 6),
    ("ranges-failover", 3),
    ("rebuilding", 6),
    ("restarts", 11),
    ("retwis", 16),
    ("scans", 22),
    ("server-time", 22),
    ("short-leases", 11),
    ("standing-by", 7),
    ("threads", 8),
    ("unread", 11),
    ("ycsb", 16),
];
/// See [`FIXED`].
const FIXED_SEEDS: u64 = 40;
/// Seeds of one call of the simulator in a soak, for each job: some ten seconds.
const SEEDS_PER_JOB: u64 = 25;
/// Seeds begin below this, so that they can be written down.
const FIRST_SEEDS: u64 = 1_000_000_000;
/// A round of all scenarios is followed by fuzzing for this part of the time it took.
const FUZZ_SHARE: u32 = 8;
const LEAST_FUZZING: Duration = Duration::from_secs(5);

/// What is wanted of a soak.
struct Options {
    minutes: f64,
    jobs: u64,
    first_seed: Option<u64>,
    profile: &'static str,
    fuzzing: bool,
}

impl Options {
    fn read(words: &[&str]) -> Result<Self, String> {
        let mut options =
            Self { minutes: 60.0, jobs: 1, first_seed: None, profile: "release", fuzzing: true };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--minutes" => options.minutes = number(word, words.next())?,
                "--jobs" => options.jobs = number(word, words.next())?,
                "--seed" => options.first_seed = Some(number(word, words.next())?),
                "--dev" => options.profile = "dev",
                "--without-fuzzing" => options.fuzzing = false,
                other => return Err(format!("soak has no option '{other}'; see cargo lab help")),
            }
        }
        if !options.minutes.is_finite() || options.minutes <= 0.0 || options.jobs == 0 {
            return Err("--minutes and --jobs must be more than zero".to_owned());
        }
        Ok(options)
    }
}

pub(crate) fn number<T: std::str::FromStr>(option: &str, word: Option<&&str>) -> Result<T, String> {
    let word = word.ok_or_else(|| format!("{option} needs a number"))?;
    word.parse().map_err(|_| format!("{option} needs a number, not '{word}'"))
}

/// Random seeds of every scenario, and fuzzing, until the time is up.
pub(crate) fn soak(words: &[&str]) -> Result<(), String> {
    let options = Options::read(words)?;
    let root = workspace_root()?;
    let folder = target_folder(&root)?.join("soak");
    let program = build(&root, options.profile)?;
    let keeper = Keeper::new(&root, &folder, options.profile)?;
    let end = Instant::now() + Duration::from_secs_f64(options.minutes * 60.0);
    let seeds = SEEDS_PER_JOB * options.jobs;
    let mut seed =
        options.first_seed.unwrap_or_else(|| RandomState::new().hash_one("soak") % FIRST_SEEDS);
    println!(
        "── soak: {} minutes from seed {seed} on; what it finds is kept in {}",
        options.minutes,
        folder.display()
    );
    let scenarios = files(&root.join("scenarios"), "toml")?;
    let targets = files(&root.join("fuzz/fuzz_targets"), "rs")?;
    let mut sums = Sums::default();
    let mut targets = targets.iter().cycle();
    while Instant::now() < end {
        let round = Instant::now();
        for scenario in &scenarios {
            if Instant::now() >= end {
                break;
            }
            let batch = Simulation {
                program: &program,
                folder: &folder,
                scenario,
                seed,
                seeds,
                jobs: options.jobs,
            };
            keeper.keep(&batch.run(), &mut sums)?;
        }
        seed += seeds;
        let left = end.saturating_duration_since(Instant::now());
        let next = if options.fuzzing { targets.next() } else { None };
        if let Some(target) = next.filter(|_| left >= LEAST_FUZZING) {
            let length = (round.elapsed() / FUZZ_SHARE).max(LEAST_FUZZING).min(left);
            keeper
                .keep(&Fuzzing { root: &root, folder: &folder, target, length }.run(), &mut sums)?;
        }
    }
    println!("\n{}", sums.text());
    verdict(&sums, &folder)
}

/// The same seeds of every scenario: what CI runs, which has a program already; else the one of the dev
/// profile.
pub(crate) fn fixed(words: &[&str]) -> Result<(), String> {
    let root = workspace_root()?;
    let folder = target_folder(&root)?.join("simulation");
    let program = match words {
        [] => build(&root, "dev")?,
        ["--program", program] => PathBuf::from(program),
        other => {
            let other = other.join(" ");
            return Err(format!(
                "simulation takes --program FILE, not '{other}'; see cargo lab help"
            ));
        }
    };
    fs::create_dir_all(&folder)
        .map_err(|error| format!("could not make {}: {error}", folder.display()))?;
    let jobs = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let mut sums = Sums::default();
    for scenario in &files(&root.join("scenarios"), "toml")? {
        let name = stem(scenario);
        let seeds = FIXED
            .iter()
            .find(|(listed, _)| *listed == name)
            .map_or(FIXED_SEEDS, |(_, seeds)| *seeds);
        let batch =
            Simulation { program: &program, folder: &folder, scenario, seed: 1, seeds, jobs };
        sums.add(&batch.run());
    }
    println!("\n{}", sums.text());
    verdict(&sums, &folder)
}

/// The first seeds of some scenarios, with the binary of the dev profile: the file that keeps what
/// was run, and nothing else.
pub(crate) fn run_scenarios(names: &[&str], seeds: u64) -> Result<PathBuf, String> {
    let root = workspace_root()?;
    let folder = target_folder(&root)?.join("faults");
    let program = build(&root, "dev")?;
    // What an earlier run left.
    let _ = fs::remove_dir_all(&folder);
    let keeper = Keeper::new(&root, &folder, "dev")?;
    let jobs = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let mut sums = Sums::default();
    for name in names {
        let scenario = &root.join("scenarios").join(format!("{name}.toml"));
        let batch =
            Simulation { program: &program, folder: &folder, scenario, seed: 1, seeds, jobs };
        keeper.keep(&batch.run(), &mut sums)?;
    }
    Ok(keeper.runs)
}

fn verdict(sums: &Sums, folder: &Path) -> Result<(), String> {
    match sums.failures.len() {
        0 => Ok(()),
        count => {
            Err(format!("── {count} failures; traces and findings are in {}", folder.display()))
        }
    }
}

/// Writes down what was run and what failed, one line of JSON each.
struct Keeper {
    runs: PathBuf,
    failures: PathBuf,
    commit: String,
    profile: &'static str,
}

impl Keeper {
    fn new(root: &Path, folder: &Path, profile: &'static str) -> Result<Self, String> {
        fs::create_dir_all(folder)
            .map_err(|error| format!("could not make {}: {error}", folder.display()))?;
        let (runs, failures) = (folder.join("runs.jsonl"), folder.join("failures.jsonl"));
        Ok(Self { runs, failures, commit: commit(root), profile })
    }

    fn keep(&self, run: &Value, sums: &mut Sums) -> Result<(), String> {
        let mut kept = run.clone();
        kept["commit"] = self.commit.as_str().into();
        kept["profile"] = self.profile.into();
        append(&self.runs, &kept)?;
        for failure in sums.add(run) {
            append(
                &self.failures,
                &json!({
                    "scenario": failure.of, "seed": failure.seed, "property": failure.property,
                    "detail": failure.detail, "commit": self.commit,
                }),
            )?;
        }
        Ok(())
    }
}

/// What is checked out, by its commit; in an unpacked archive, without git, nobody knows it.
pub(crate) fn commit(root: &Path) -> String {
    let name = output_of(root, "git", &["describe", "--always", "--dirty", "--exclude=*"]);
    name.map_or_else(
        |_| "unknown".to_owned(),
        |name| String::from_utf8_lossy(&name).trim().to_owned(),
    )
}

pub(crate) fn append(file: &Path, line: &Value) -> Result<(), String> {
    let opened = OpenOptions::new().create(true).append(true).open(file);
    let written = opened.and_then(|mut out| out.write_all(format!("{line}\n").as_bytes()));
    written.map_err(|error| format!("could not write {}: {error}", file.display()))
}

/// Builds the program and gives its path.
pub(crate) fn build(root: &Path, profile: &str) -> Result<PathBuf, String> {
    println!("── building timestone, profile {profile}");
    output_of(
        root,
        &cargo_program(),
        &["build", "--locked", "--quiet", "--package", "timestone-cli", "--profile", profile],
    )?;
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(target_folder(root)?.join(folder).join(format!("timestone{}", std::env::consts::EXE_SUFFIX)))
}

pub(crate) fn target_folder(root: &Path) -> Result<PathBuf, String> {
    let metadata = output_of(
        root,
        &cargo_program(),
        &["metadata", "--locked", "--no-deps", "--format-version", "1"],
    )?;
    let metadata: Value =
        serde_json::from_slice(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let folder = metadata["target_directory"]
        .as_str()
        .ok_or("cargo metadata does not tell the target folder")?;
    Ok(PathBuf::from(folder))
}

/// The files of a folder with this extension, in the order of their names.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("could not list {}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|end| end == extension) {
            found.push(path);
        }
    }
    if found.is_empty() {
        return Err(format!("there is no .{extension} file in {}", folder.display()));
    }
    found.sort();
    Ok(found)
}

/// The names of the fuzz targets.
pub(crate) fn fuzz_targets(root: &Path) -> Result<Vec<String>, String> {
    Ok(files(&root.join("fuzz/fuzz_targets"), "rs")?.iter().map(|file| stem(file)).collect())
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_wrong_ones_are_named() {
        let options =
            Options::read(&["--minutes", "1.5", "--jobs", "2", "--seed", "7", "--dev"]).unwrap();
        assert_eq!(
            (options.minutes, options.jobs, options.first_seed, options.profile),
            (1.5, 2, Some(7), "dev")
        );
        assert!(Options::read(&["--minuets", "1"]).err().unwrap().contains("--minuets"));
        assert!(Options::read(&["--jobs"]).err().unwrap().contains("needs a number"));
        assert!(
            Options::read(&["--jobs", "0"]).is_err()
                && Options::read(&["--minutes", "NaN"]).is_err()
        );
    }
}
