//! Histories in short, for the checkers' tests.
//!
//! Each line is a process, a mark and the operations: `+` invokes, `=` commits, `!` fails, `?` is
//! unknown; `.` invokes and commits at once, so that it stands before all that follows.

use super::{AnomalyKind, CheckResult, Promise};
use crate::history::{History, read};

/// A history in short.
pub(super) fn history(lines: &[&str]) -> History {
    let mut text = String::new();
    let mut index = 0;
    for line in lines {
        let (process, rest) = line.split_once(' ').unwrap();
        let (mark, value) = rest.split_once(' ').unwrap();
        let kinds: &[&str] = match mark {
            "+" => &["invoke"],
            "=" => &["ok"],
            "!" => &["fail"],
            "?" => &["info"],
            "." => &["invoke", "ok"],
            _ => panic!("'{line}' has no mark"),
        };
        for kind in kinds {
            text.push_str(&format!(
                "{{:type :{kind}, :process {process}, :index {index}, :time {index}, :f :txn, \
                 :value [{value}]}}\n"
            ));
            index += 1;
        }
    }
    read(&text).unwrap()
}

/// All transactions at once, each by a process of its own, all committed.
pub(super) fn concurrent(values: &[&str]) -> History {
    let begin = values.iter().enumerate().map(|(process, value)| format!("{process} + {value}"));
    let end = values.iter().enumerate().map(|(process, value)| format!("{process} = {value}"));
    let lines: Vec<String> = begin.chain(end).collect();
    history(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

/// What was found, in the order in which it was.
pub(super) fn kinds(verdict: &CheckResult) -> Vec<(AnomalyKind, Promise)> {
    verdict.anomalies.iter().map(|anomaly| (anomaly.kind, anomaly.breaks)).collect()
}
