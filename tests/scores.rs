//! What tests count for the scorecard of docs/lab/scorecard.md: a line of JSON each, in the file
//! that `TIMESTONE_TEST_SCORES` names.
//!
//! ```text
//!   a test, its assertions behind it ─► keep(kind, fields) ─► {"kind":…} in the file ─► `cargo lab scorecard` ─► the tables
//! ```
//! The tests of several crates include this file by its path, so that no crate has to exist for it.
//! Without the variable nothing is written. A line is written at once, so that tests of several
//! threads and processes may share a file.

#![allow(dead_code, reason = "each test that includes it needs another part of it")]

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;

/// One figure, or a list of them, or a name.
pub(crate) enum Score<'a> {
    /// Words.
    Name(&'a str),
    /// How many.
    Count(u64),
    /// How many each time.
    Counts(&'a [u64]),
}

/// The file that scores are wanted in, if they are.
fn file() -> Option<std::ffi::OsString> {
    std::env::var_os("TIMESTONE_TEST_SCORES").filter(|name| !name.is_empty())
}

/// Whether scores are wanted: some tests then look longer than it takes to pass.
pub(crate) fn are_wanted() -> bool {
    file().is_some()
}

/// Whether sweeps try everything (`TIMESTONE_TEST_SWEEP=full`) or what CI has time for.
pub(crate) fn sweep_is_full() -> bool {
    std::env::var("TIMESTONE_TEST_SWEEP").is_ok_and(|value| value == "full")
}

/// Writes a line. Names must be plain: letters, digits and punctuation without quotes and
/// backslashes.
///
/// # Panics
/// When the file cannot be written: whoever asked for scores shall not miss one unnoticed.
pub(crate) fn keep(kind: &str, scores: &[(&str, Score<'_>)]) {
    let Some(file) = file() else { return };
    let plain =
        |text: &str| assert!(!text.contains(['"', '\\', '\n']), "{text:?} is no plain name");
    plain(kind);
    let mut line = format!("{{\"kind\":\"{kind}\"");
    for (name, score) in scores {
        plain(name);
        // Writing to a String cannot fail.
        let _ = match score {
            Score::Name(text) => {
                plain(text);
                write!(line, ",\"{name}\":\"{text}\"")
            }
            Score::Count(count) => write!(line, ",\"{name}\":{count}"),
            Score::Counts(counts) => write!(line, ",\"{name}\":{counts:?}"),
        };
    }
    line.push_str("}\n");
    let opened = OpenOptions::new().create(true).append(true).open(&file);
    let written = opened.and_then(|mut out| out.write_all(line.as_bytes()));
    assert!(written.is_ok(), "TIMESTONE_TEST_SCORES={}: {written:?}", file.display());
}
