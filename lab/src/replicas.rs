//! `cargo lab replicas`: what several copies of a shard cost, and how long a failover takes, with
//! real processes on loopback.
//!
//! ```text
//!   retwis    three servers, one shard, Retwis as TAPIR's prototype runs it: transactions for a second of
//!             processor time of all servers and the client, by contention and concurrency
//!   copies    the same on one server with one copy; and the latency of one client alone
//!   etcd      a get and a put of 256 B in a transaction, 100 clients, beside a three-node etcd
//!   failover  kill -9 of a primary under load: detection, lease, merge, rebuild
//! ```
//! It prints Markdown tables, as docs/benchmarks.md has them. Every figure is the median of all
//! rounds; with several binaries each round runs one after the other, so that their ratio means
//! something on a machine that others use. The log is `ssd` everywhere: each group is synced.

mod cluster;
mod copies;
mod etcd;
mod failover;
mod retwis;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use xtask::steps::workspace_root;

use crate::soak::{build, commit, number, target_folder};

/// What is to be measured, and how.
struct Options {
    parts: Vec<String>,
    binaries: Vec<PathBuf>,
    rounds: usize,
    seconds: u32,
    clients: Vec<u32>,
    zipf: Vec<f64>,
    runs: u32,
    detection: String,
    lease: String,
    folder: PathBuf,
}

/// The parts, in the order in which they are run.
const PARTS: [&str; 4] = ["retwis", "copies", "etcd", "failover"];

impl Options {
    fn read(words: &[&str], folder: PathBuf) -> Result<Self, String> {
        let mut options = Self {
            parts: Vec::new(),
            binaries: Vec::new(),
            rounds: 3,
            seconds: 6,
            clients: vec![4, 256, 512, 1024],
            zipf: vec![0.5, 0.75, 0.99],
            runs: 5,
            detection: "50ms".to_owned(),
            lease: "50ms".to_owned(),
            folder,
        };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--binary" => options.binaries.push(PathBuf::from(text(word, words.next())?)),
                "--rounds" => options.rounds = number(word, words.next())?,
                "--seconds" => options.seconds = number(word, words.next())?,
                "--clients" => options.clients = list(word, words.next())?,
                "--zipf" => options.zipf = list(word, words.next())?,
                "--runs" => options.runs = number(word, words.next())?,
                "--detection" => options.detection = text(word, words.next())?,
                "--lease" => options.lease = text(word, words.next())?,
                part if PARTS.contains(&part) => options.parts.push(part.to_owned()),
                other => {
                    return Err(format!(
                        "replicas has no part or option '{other}'; its parts are {}, its options \
                         those of cargo lab help",
                        PARTS.join(", ")
                    ));
                }
            }
        }
        if options.rounds == 0 || options.seconds == 0 || options.runs == 0 {
            return Err("--rounds, --seconds and --runs must be more than zero".to_owned());
        }
        if options.parts.is_empty() {
            options.parts = PARTS.map(str::to_owned).to_vec();
        }
        Ok(options)
    }

    /// The binaries, and what they are called in tables.
    fn named(&self) -> Vec<(String, &Path)> {
        let name = |binary: &PathBuf| {
            binary.file_name().unwrap_or_default().to_string_lossy().into_owned()
        };
        self.binaries.iter().map(|binary| (name(binary), binary.as_path())).collect()
    }
}

fn text(option: &str, word: Option<&&str>) -> Result<String, String> {
    word.map(|&word| word.to_owned()).ok_or_else(|| format!("{option} needs a value"))
}

fn list<T: std::str::FromStr>(option: &str, word: Option<&&str>) -> Result<Vec<T>, String> {
    text(option, word)?.split(',').map(|one| number(option, Some(&one))).collect()
}

/// Measures, and prints.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let root = workspace_root()?;
    let folder = target_folder(&root)?.join("replicas");
    let mut options = Options::read(words, folder)?;
    if options.binaries.is_empty() {
        options.binaries.push(build(&root, "release")?);
    }
    let _ = fs::remove_dir_all(&options.folder);
    fs::create_dir_all(&options.folder)
        .map_err(|error| format!("could not make {}: {error}", options.folder.display()))?;
    println!("commit {}, log ssd, one thread a server\n", commit(&root));
    for part in &options.parts {
        let tables = match part.as_str() {
            "retwis" => retwis::measure(&options)?,
            "copies" => copies::measure(&options)?,
            "etcd" => etcd::measure(&options, &root)?,
            _ => failover::measure(&options)?,
        };
        println!("{tables}");
    }
    fs::remove_dir_all(&options.folder)
        .map_err(|error| format!("could not remove {}: {error}", options.folder.display()))
}

/// A figure of an answer.
fn figure(answer: &Value, path: &str) -> Result<f64, String> {
    answer.pointer(path).and_then(Value::as_f64).ok_or_else(|| format!("no {path} in {answer}"))
}

/// The middle one; of two the lower one.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_unknown_ones_are_refused() {
        let read = |words: &[&str]| Options::read(words, PathBuf::new());
        let options = read(&["etcd", "--clients", "4,256", "--binary", "a/b", "--zipf", "0.5"]);
        let options = options.expect("these exist");
        assert_eq!((options.parts, options.clients), (vec!["etcd".to_owned()], vec![4, 256]));
        assert_eq!((options.binaries.len(), options.zipf), (1, vec![0.5]));
        assert_eq!(read(&[]).expect("all parts").parts, PARTS);
        assert!(read(&["--rounds", "0"]).is_err() && read(&["zookeeper"]).is_err());
        assert!(read(&["--clients"]).is_err() && read(&["--clients", "4,x"]).is_err());
    }

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 1.0);
        assert!(median(Vec::new()).is_nan());
    }
}
