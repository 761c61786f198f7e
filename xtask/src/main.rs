//! `cargo xtask`: the checks and fixes of the workspace, the same on a developer's machine and in
//! CI.
//!
//! ```text
//!   verify ── fmt ─ clippy ─ doc ─ tidy ─ licences ─ tests     (never writes)
//!   tidy   ── our own checks alone, seconds
//!   fix    ── fmt, clippy --fix, the ratchet lowered            (writes)
//!   soak ─ simulation: many seeds through the simulator; the same seeds each time
//!   predictions ── the simulator's throughput beside the real one, into docs
//!   scorecard ── what tests, models and soaks counted, into docs
//! ```
//!
//! It starts cargo and git and reads the tree; it knows nothing of how the store works, and no
//! crate of the store uses it.

mod check_list;
mod lexer;
mod licences;
mod manifest;
mod predictions;
mod scorecard;
mod soak;
mod steps;
mod table;
mod tidy;
mod tree;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask verify [--without-tests]   everything CI checks; writes nothing outside the target folder
cargo xtask tidy                       our own checks alone
cargo xtask licences                   the licences of all dependencies alone
cargo xtask fix                        formats, applies clippy's suggestions, lowers the ratchet
cargo xtask simulation                 the seeds of every scenario that CI runs, always the same, with the dev profile
cargo xtask soak [--minutes M] [--jobs N] [--seed S] [--dev] [--without-fuzzing]
                                       random seeds of every scenario, and the fuzz targets, for M minutes (60), N at once (1);
                                       what ran and what failed is kept in target/soak
cargo xtask predictions [--rounds N] [--costs FILE]
                                       throughput of Retwis and YCSB on this machine, as bench measures it and as the simulator predicts it
                                       from FILE, or from a calibration in each of N rounds (5), into docs/verification.md
cargo xtask scorecard [FILE…]          writes kept figures (target/soak/runs.jsonl, target/scores.jsonl) into docs/verification.md
cargo xtask scorecard --run [--full] [--fuzz SECONDS]
                                       counts planted bugs, crash points, flipped bits, models and the simulator's speed first; --full
                                       tries every sector and every bit, --fuzz gives each fuzz target so long";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["verify"] => check_list::verify(true),
        ["verify", "--without-tests"] => check_list::verify(false),
        ["tidy"] => check_list::tidy(),
        ["licences"] => check_list::licences(),
        ["fix"] => check_list::fix(),
        ["simulation"] => soak::fixed(),
        ["soak", options @ ..] => soak::soak(options),
        ["predictions", options @ ..] => predictions::run(options),
        ["scorecard", "--run", options @ ..] => scorecard::run(options),
        ["scorecard", files @ ..] => scorecard::write(files),
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
