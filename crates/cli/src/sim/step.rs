//! Stepping through one seed: every event that a stage was given, a screenful at a time where a person reads.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin, stdout};

use timestone_sim::{RunOptions, Scenario, Seed, TraceLine, run as simulate};

use super::{SimArgs, world_failed};
use crate::failure::Failure;
use crate::output::write_line;

/// Lines kept of a run that is stepped through: the last ones of a very long run.
const LINES: usize = 5_000_000;
/// Lines shown at once.
const SCREEN: usize = 20;

/// Which lines are wanted.
struct Filter<'a> {
    transaction: Option<&'a str>,
    key: Option<&'a str>,
    server: Option<&'a str>,
}

impl Filter<'_> {
    fn wants(&self, line: &TraceLine) -> bool {
        // Faults explain the rest: they are shown whatever the transaction or key is.
        let is_fault = line.stage == "*";
        self.server.is_none_or(|server| line.process == server)
            && (is_fault
                || (self.transaction.is_none_or(|txn| has_word(&line.what, txn))
                    && self.key.is_none_or(|key| has_word(&line.what, key))))
    }
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

/// Runs the seed with words and shows them.
pub(super) fn run(args: &SimArgs, scenario: &Scenario) -> Result<(), Failure> {
    let options = RunOptions { keep_lines: LINES, keep_history: false };
    let report = simulate(scenario, Seed(args.seed), options).map_err(|error| world_failed(&error))?;
    let filter =
        Filter { transaction: args.transaction.as_deref(), key: args.key.as_deref(), server: args.server.as_deref() };
    let wanted: Vec<&TraceLine> = report.lines.iter().filter(|line| filter.wants(line)).collect();
    let asks = stdin().is_terminal() && stdout().is_terminal();
    let mut until = SCREEN;
    for (number, line) in (1..).zip(&wanted) {
        write_line(&line.to_string())?;
        if asks && number >= until && number < wanted.len() {
            match ask(number, wanted.len()) {
                Some(more) => until = number + more,
                None => return Ok(()),
            }
        }
    }
    for finding in &report.findings {
        write_line(&format!("{}: {}", finding.property, finding.detail))?;
    }
    let verdict = if report.is_right() { "everything is as promised" } else { "this seed failed" };
    write_line(&format!(
        "seed {} of scenario {}: {} of {} steps shown, {verdict}, trace {:016x}",
        args.seed,
        scenario.name,
        wanted.len(),
        report.lines.len(),
        report.trace_hash
    ))?;
    if report.is_right() { Ok(()) } else { Err(Failure::failed(format!("seed {} failed", args.seed))) }
}

/// How many more lines are wanted; none to end.
fn ask(shown: usize, all: usize) -> Option<usize> {
    let _ = write!(stderr(), "-- {shown} of {all}: Enter goes on, a number shows so many, a all, q ends -- ");
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer).ok().filter(|bytes| *bytes > 0)?;
    match answer.trim() {
        "" => Some(SCREEN),
        "a" => Some(usize::MAX / 2),
        "q" => None,
        number => Some(number.parse().unwrap_or(SCREEN)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_as_wholes() {
        assert!(has_word("prepare txn 2-1 commit 3", "2-1"));
        assert!(has_word("w key k12", "k12") && has_word("k12", "k12"));
        assert!(!has_word("prepare txn 12-1 commit", "2-1") && !has_word("txn 2-14", "2-1"));
        assert!(!has_word("key k123", "k12"));
    }
}
