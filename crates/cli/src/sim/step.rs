//! Stepping through one seed: every event that a stage was given, as the run goes on, a screenful
//! at a time where a person reads.
//!
//! ```text
//!   sim::watch ─► lines of the last virtual moment ─► filter ─► screen (asks for more) or standard output ─► "go on" or "enough"
//! ```
//! The run waits while a screenful is read, and ends where nothing more is wanted. Nothing is kept
//! but what a moment brought.

use std::collections::BTreeSet;
use std::io::{BufRead, IsTerminal, Write, stderr, stdin, stdout};
use std::ops::ControlFlow;
use std::time::Duration;

use serde_json::json;
use timestone_sim::{RunOptions, RunReport, Scenario, Seed, TraceLine, Watch, watch};

use super::{SimArgs, world_failed};
use crate::failure::Failure;
use crate::output::{Format, or_unread, terminal_width, write_bytes, write_json, write_line};

/// Rows of a terminal that are shown at once.
const SCREEN: usize = 22;

/// Which lines are wanted.
struct Filter<'a> {
    transaction: Option<&'a str>,
    /// As lines name a key.
    key: Option<String>,
    server: Option<&'a str>,
    from: Duration,
    until: Duration,
}

impl<'a> Filter<'a> {
    fn of(args: &'a SimArgs) -> Self {
        Self {
            transaction: args.transaction.as_deref(),
            key: args.key.as_deref().map(named),
            server: args.server.as_deref(),
            from: args.from.map_or(Duration::ZERO, |span| span.0),
            until: args.until.map_or(Duration::MAX, |span| span.0),
        }
    }

    fn wants(&self, line: &TraceLine) -> bool {
        self.server.is_none_or(|server| line.process == server)
            // Faults explain the rest: they are shown whatever the transaction or key is.
            && (is_fault(line) || self.names(line))
            && (self.from..=self.until).contains(&moment(line))
    }

    /// Whether the line is about what was asked for.
    fn names(&self, line: &TraceLine) -> bool {
        self.transaction.is_none_or(|txn| has_word(&line.what, txn))
            && self.key.as_ref().is_none_or(|key| has_word(&line.what, key))
    }
}

fn is_fault(line: &TraceLine) -> bool {
    line.stage == "*"
}

fn moment(line: &TraceLine) -> Duration {
    Duration::from_nanos(line.at.as_nanos())
}

/// How lines name a key: a workload's by its number, with or without the letter and the zeros that
/// its bytes have.
fn named(key: &str) -> String {
    let number = key.strip_prefix('k').unwrap_or(key).parse::<u64>();
    number.map_or_else(|_| format!("key {key}"), |number| format!("key {number}"))
}

/// Whether a text has a word, with nothing around it that could be part of a word.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '-';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// Shows lines as they come.
struct Viewer<'a> {
    filter: Filter<'a>,
    format: Format,
    /// Rows that may be shown until somebody is asked; none where nobody reads along.
    rows_left: Option<usize>,
    shown: u64,
    /// Lines among them that are about what was asked for, faults aside.
    named: u64,
    all: u64,
    processes: BTreeSet<String>,
    /// Why it ended before the run did, and what went wrong.
    ended: Option<&'static str>,
    failure: Option<Failure>,
}

impl Viewer<'_> {
    /// Shows what is wanted of these lines. Whether more may come.
    fn show(&mut self, lines: &[TraceLine]) -> Result<bool, Failure> {
        let mut text = String::new();
        for line in lines {
            self.all += 1;
            if !self.processes.contains(&line.process) {
                self.processes.insert(line.process.clone());
            }
            if !self.filter.wants(line) {
                continue;
            }
            self.shown += 1;
            self.named += u64::from(!is_fault(line) && self.filter.names(line));
            let said = self.said(line);
            let rows = 1 + said.chars().count().saturating_sub(1) / terminal_width();
            text.push_str(&said);
            text.push('\n');
            let Some(left) = self.rows_left else { continue };
            self.rows_left = Some(left.saturating_sub(rows));
            if left <= rows {
                write_bytes(text.as_bytes())?;
                text.clear();
                match ask(self.shown, line) {
                    Some(more) => self.rows_left = more,
                    None => return self.end("you have seen enough"),
                }
            }
        }
        write_bytes(text.as_bytes())?;
        Ok(true)
    }

    fn said(&self, line: &TraceLine) -> String {
        if self.format == Format::Json {
            let at = line.at.as_nanos();
            json!({"at_ns": at, "process": line.process, "stage": line.stage, "what": line.what})
                .to_string()
        } else {
            line.to_string()
        }
    }

    fn end(&mut self, why: &'static str) -> Result<bool, Failure> {
        self.ended = Some(why);
        Ok(false)
    }
}

impl Watch for Viewer<'_> {
    fn look(&mut self, now: Duration, lines: &[TraceLine]) -> ControlFlow<()> {
        let goes_on = self.show(lines).and_then(|goes_on| {
            if goes_on && now > self.filter.until {
                self.end("--until has passed")
            } else {
                Ok(goes_on)
            }
        });
        match goes_on {
            Ok(true) => ControlFlow::Continue(()),
            Ok(false) => ControlFlow::Break(()),
            Err(failure) => {
                self.failure = Some(failure);
                ControlFlow::Break(())
            }
        }
    }
}

/// Runs the seed with words and shows them.
pub(super) fn run(args: &SimArgs, scenario: &Scenario, format: Format) -> Result<(), Failure> {
    let filter = Filter::of(args);
    if filter.until < filter.from {
        return Err(Failure::usage("--until lies before --from: nothing would be shown"));
    }
    let asks = format != Format::Json && stdin().is_terminal() && stdout().is_terminal();
    let mut viewer = Viewer {
        filter,
        format,
        rows_left: asks.then_some(SCREEN),
        shown: 0,
        named: 0,
        all: 0,
        processes: BTreeSet::new(),
        ended: None,
        failure: None,
    };
    let options = RunOptions { words: true, ..RunOptions::default() };
    let report = watch(scenario, Seed(args.seed), options, &mut viewer)
        .map_err(|error| world_failed(&error))?;
    if let Some(failure) = viewer.failure {
        return Err(failure);
    }
    or_unread(conclude(args, &viewer, report.as_ref()))?;
    if let Some(server) = args.server.as_ref().filter(|server| !viewer.processes.contains(*server))
    {
        let known: Vec<&str> = viewer.processes.iter().map(String::as_str).collect();
        return Err(Failure::not_found(format!(
            "no process is called {server:?}; there are {}",
            known.join(", ")
        )));
    }
    match report {
        Some(report) if !report.is_right() => {
            Err(Failure::failed(format!("seed {} failed", args.seed)))
        }
        _ => Ok(()),
    }
}

/// The last lines: what was found, and how much was shown.
fn conclude(
    args: &SimArgs,
    viewer: &Viewer<'_>,
    report: Option<&RunReport>,
) -> Result<(), Failure> {
    let findings = report.map_or(&[][..], |report| &report.findings);
    let Viewer { shown, all, .. } = viewer;
    if viewer.format == Format::Json {
        let of = |finding: &timestone_sim::Finding| json!({"property": finding.property, "detail": finding.detail});
        return write_json(&json!({
            "scenario": args.scenario,
            "seed": args.seed,
            "shown": shown,
            "steps": all,
            "complete": report.is_some(),
            "findings": findings.iter().map(of).collect::<Vec<_>>(),
            "trace": report.map(|report| format!("{:016x}", report.trace_hash)),
        }));
    }
    for finding in findings {
        write_line(&format!("{}: {}", finding.property, finding.detail))?;
    }
    let verdict = match report {
        None => format!("not run to its end, for {}", viewer.ended.unwrap_or("nobody watches")),
        Some(report) if report.is_right() => {
            format!("everything is as promised, trace {:016x}", report.trace_hash)
        }
        Some(report) => format!("this seed failed, trace {:016x}", report.trace_hash),
    };
    let asked = viewer.filter.transaction.is_some() || viewer.filter.key.is_some();
    let nothing =
        if asked && viewer.named == 0 { "; none of them is about what you asked for" } else { "" };
    write_line(&format!(
        "seed {} of scenario {}: {shown} of {all} steps shown{nothing}; {verdict}",
        args.seed, args.scenario
    ))
}

/// How many more rows are wanted, or all; none to end.
#[expect(clippy::option_option, reason = "an answer, a bound: either may be missing")]
fn ask(shown: u64, line: &TraceLine) -> Option<Option<usize>> {
    let _ = write!(
        stderr(),
        "-- {shown} shown, at {}: Enter goes on, a number shows so many rows, a all, q ends -- ",
        line.at
    );
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer).ok().filter(|bytes| *bytes > 0)?;
    match answer.trim() {
        "q" => None,
        "a" => Some(None),
        number => Some(Some(number.parse().ok().filter(|rows| *rows > 0).unwrap_or(SCREEN))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_as_wholes() {
        assert!(has_word("prepare txn 2-1 commit 3", "2-1"));
        assert!(has_word("w key 12", "key 12") && has_word("key 12@3.4 w key 5", "key 12"));
        assert!(
            has_word("vote: txn 2-14 (T57) Yes", "T57")
                && has_word("txn 2-14 (T57 or T60)", "2-14")
        );
        assert!(!has_word("prepare txn 12-1 commit", "2-1") && !has_word("txn 2-14", "2-1"));
        assert!(!has_word("key 123", "key 12") && !has_word("shard 12 of key 3", "key 12"));
    }

    #[test]
    fn a_key_is_asked_for_by_its_number_or_its_bytes() {
        for key in ["17", "017", "k17", "k000000000000017"] {
            assert_eq!(named(key), "key 17");
        }
        assert_eq!((named("k0").as_str(), named("kiwi").as_str()), ("key 0", "key kiwi"));
    }
}
