//! `cargo xtask`: the checks and fixes of the workspace, the same on a developer's machine and in
//! CI.
//!
//! ```text
//!   verify ── fmt ─ clippy ─ doc ─ tidy ─ licences ─ tests     (never writes)
//!   tidy   ── our own checks alone, seconds
//!   fix    ── fmt, clippy --fix, the ratchet lowered            (writes)
//! ```
//!
//! Soaks, scorecards and predictions count instead of checking: `cargo lab` has them.

use std::process::ExitCode;

use xtask::check_list;

const USAGE: &str = "\
cargo xtask verify [--without-tests]   everything CI checks; writes nothing outside the target folder
cargo xtask tidy                       our own checks alone
cargo xtask licences                   the licences of all dependencies alone
cargo xtask fix                        formats, applies clippy's suggestions, lowers the ratchet
cargo lab help                         simulation, soak, predictions, scorecard, structure";

/// Tasks that have moved to the laboratory.
const MOVED: [&str; 4] = ["simulation", "soak", "predictions", "scorecard"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["verify"] => check_list::verify(true),
        ["verify", "--without-tests"] => check_list::verify(false),
        ["tidy"] => check_list::tidy(),
        ["licences"] => check_list::licences(),
        ["fix"] => check_list::fix(),
        [] | ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        [task, ..] if MOVED.contains(task) => {
            Err(format!("'{task}' is a task of the laboratory: cargo lab {}", words.join(" ")))
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
