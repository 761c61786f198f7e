//! `cargo lab`: the laboratory. It counts and measures; what must hold is checked by `cargo xtask`.
//!
//! ```text
//!   simulation ── the seeds of every scenario that CI runs        soak ── random seeds and fuzzing ─► target/soak
//!   predictions ── the simulator's throughput beside the real one ─┐
//!   faults ── which fault is tried where, and how often ───────────┤
//!   scorecard ── what tests, models and soaks counted ─────────────┴─► tables in docs/
//!   replicas ── what several copies cost, and how long a failover takes
//!   cost ── instructions, copies, hashes and cache lines of a transaction
//!   structure ── methods, fields, files, assertions, words
//! ```
//!
//! It starts cargo, git and the `timestone` binary, and reads what they print. It knows nothing of
//! how the store works, and no crate of the store uses it.

mod cost;
mod faults;
mod page;
mod predictions;
mod replicas;
mod scorecard;
mod soak;
mod structure;
mod table;

use std::process::ExitCode;

const USAGE: &str = "\
cargo lab simulation [--program FILE]  the seeds of every scenario that CI runs, always the same, with this `timestone`, or the dev profile's
cargo lab soak [--minutes M] [--jobs N] [--seed S] [--dev] [--without-fuzzing]
                                       random seeds of every scenario, and the fuzz targets, for M minutes (60), N at once (1);
                                       what ran and what failed is kept in target/soak
cargo lab predictions [--rounds N] [--costs FILE]
                                       throughput of Retwis and YCSB on this machine, as bench measures it and as the simulator predicts it
                                       from FILE, or from a calibration in each of N rounds (5), into docs/lab/scorecard.md
cargo lab scorecard [FILE…]            writes kept figures (target/soak/runs.jsonl, target/scores.jsonl) into docs/lab/scorecard.md
cargo lab scorecard --run [--full] [--fuzz SECONDS]
                                       counts planted bugs, crash points, flipped bits, models and the simulator's speed first; --full
                                       tries every sector and every bit, --fuzz gives each fuzz target so long
cargo lab faults [FILE…]               writes the table of faults into docs/verification.md, from what soaks kept
cargo lab faults --run SEEDS           runs so many seeds of each scenario of the table first, with the dev profile
cargo lab cost [--against COMMIT] [--lines] [-o json] [CASE…]
                                       instructions, copies and hashes of a transaction and of a Redis request (with --lines: cache lines
                                       that miss 2 MiB), of this tree, or of both; it needs valgrind, and redis-benchmark for Redis
cargo lab replicas [retwis|copies|etcd|failover…] [--rounds N] [--seconds S] [--zipf Z,…] [--clients N,…] [--runs N]
                   [--detection TIME] [--lease TIME] [--binary FILE]…
                                       three servers on loopback, in Markdown tables: Retwis as TAPIR runs it, what copies cost, etcd
                                       beside it (needs etcd and go), failovers; with several binaries, each in turn
cargo lab structure [--at COMMIT] [-o text|json]
                                       methods, files and fields of types, assertions of cores, names and words, of this tree or a commit
cargo lab structure --lacking CORE|all functions that change state and assert nothing
cargo lab structure --uses WORD|all      where a retired word is still used
cargo lab structure --page COMMIT      the same of COMMIT and of this tree, side by side, into docs/lab/structure.md";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["simulation", options @ ..] => soak::fixed(options),
        ["soak", options @ ..] => soak::soak(options),
        ["predictions", options @ ..] => predictions::run(options),
        ["scorecard", "--run", options @ ..] => scorecard::run(options),
        ["scorecard", files @ ..] => scorecard::write(files),
        ["replicas", options @ ..] => replicas::run(options),
        ["faults", options @ ..] => faults::run(options),
        ["cost", options @ ..] => cost::run(options),
        ["structure", options @ ..] => structure::run(options),
        [] | ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        other => Err(format!("'{}' is no task of ours; these are:\n{USAGE}", other.join(" "))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
