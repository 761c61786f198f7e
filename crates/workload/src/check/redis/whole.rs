//! Commands over the whole keyspace: a SCAN returns every key that was there throughout, and none that never was; DBSIZE counts the keys
//! of one moment between its invocation and its answer.
//!
//! What is certain of a key follows from calls that cannot stand anywhere else: it was written and answered before, and nothing that
//! may take it away overlaps what came since.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use timestone_types::Timestamp;

use super::visit::{Left, Visit, Visits, fits};
use super::{misfit, told, words};
use crate::check::verdict::{AnomalyKind, Promise, Verdict};
use crate::redis::{RedisHistory, Reply};

/// Judges every scan and every count.
pub(super) fn check(history: &RedisHistory, visits: &Visits, verdict: &mut Verdict) {
    let mut scans: BTreeMap<u64, Scan> = BTreeMap::new();
    for (at, call) in history.calls.iter().enumerate() {
        let Some((when, reply)) = &call.answered else { continue };
        match (call.request.name(), reply) {
            ("DBSIZE", Reply::Integer(count)) => {
                judge_count(history, visits, at, (call.invoked, *when), *count, verdict);
            }
            ("SCAN", Reply::Error(_)) => {
                scans.remove(&call.connection);
            }
            ("SCAN", reply) => {
                let Some((cursor, keys)) = page(reply) else {
                    misfit(history, at, verdict);
                    continue;
                };
                let words = words(&call.request);
                if words.get(1).is_some_and(|word| word == "0") {
                    scans.insert(call.connection, Scan::begin(at, words));
                }
                let Some(scan) = scans.get_mut(&call.connection) else { continue };
                scan.found.extend(keys);
                scan.pages += 1;
                if cursor == "0"
                    && let Some(scan) = scans.remove(&call.connection)
                {
                    scan.judge(history, visits, at, *when, verdict);
                }
            }
            _ => {}
        }
    }
}

/// A page: the cursor behind it, and its keys.
fn page(reply: &Reply) -> Option<(&str, Vec<Rc<str>>)> {
    let Reply::Array(parts) = reply else { return None };
    let [Reply::Text(cursor), Reply::Array(keys)] = parts.as_slice() else { return None };
    let key = |reply: &Reply| match reply {
        Reply::Text(key) => Some(Rc::from(key.as_str())),
        _ => None,
    };
    Some((cursor, keys.iter().map(key).collect::<Option<_>>()?))
}

struct Scan {
    first: usize,
    pages: usize,
    pattern: String,
    found: BTreeSet<Rc<str>>,
}

impl Scan {
    fn begin(first: usize, words: &[String]) -> Self {
        let pattern = words.iter().position(|word| word == "MATCH").and_then(|at| words.get(at + 1));
        let pattern = pattern.map_or_else(|| "*".to_owned(), Clone::clone);
        Self { first, pages: 0, pattern, found: BTreeSet::new() }
    }

    fn judge(self, history: &RedisHistory, visits: &Visits, last: usize, end: Timestamp, verdict: &mut Verdict) {
        let begin = history.calls[self.first].invoked;
        let scan = || {
            let pages = self.pages;
            format!("a scan of {pages} pages, from {} to {}", told(history, self.first), told(history, last))
        };
        for (key, visits) in visits.of.iter().filter(|(key, _)| fits(&self.pattern, key)) {
            let is_found = self.found.contains(key);
            if !is_found && let Some(proof) = is_present(visits, begin, end) {
                verdict.report(AnomalyKind::WrongScan, Promise::Serializable, || {
                    format!(
                        "{} does not return key {key}, which was there throughout: {}",
                        scan(),
                        told(history, proof)
                    )
                });
            }
            if is_found && is_absent(visits, begin, end) {
                verdict.report(AnomalyKind::WrongScan, Promise::Serializable, || {
                    format!("{} returns key {key}, which was never there", scan())
                });
            }
        }
    }
}

fn judge_count(
    history: &RedisHistory,
    visits: &Visits,
    at: usize,
    (begin, end): (Timestamp, Timestamp),
    count: i64,
    verdict: &mut Verdict,
) {
    let certain: Vec<&Rc<str>> =
        visits.of.iter().filter(|(_, visits)| is_present(visits, begin, end).is_some()).map(|(key, _)| key).collect();
    let possible = visits.of.values().filter(|visits| !is_absent(visits, begin, end)).count();
    let counted = usize::try_from(count).unwrap_or(usize::MAX);
    if counted < certain.len() || counted > possible {
        verdict.report(AnomalyKind::WrongCount, Promise::Serializable, || {
            let certain: Vec<&str> = certain.iter().map(|key| &***key).collect();
            format!(
                "{}: {} keys were there throughout ({}), and {possible} at the most",
                told(history, at),
                certain.len(),
                certain.join(" ")
            )
        });
    }
}

/// The call that proves that a key was there all the time from one moment to another.
fn is_present(visits: &[Visit], begin: Timestamp, end: Timestamp) -> Option<usize> {
    let never = Visits::is_lasting(visits);
    let lasts = |made: &&Visit| {
        let takes_away = |other: &Visit| {
            other.call != made.call && other.may_remove() && other.begin <= end && !other.precedes(made)
        };
        made.end < begin && made.left(never) == Left::Present && !visits.iter().any(takes_away)
    };
    visits.iter().rev().find(lasts).map(|visit| visit.call)
}

/// Whether a key was certainly not there at any time from one moment to another.
fn is_absent(visits: &[Visit], begin: Timestamp, end: Timestamp) -> bool {
    let creators = visits.iter().filter(|visit| visit.may_create() && visit.begin <= end);
    if creators.clone().next().is_none() {
        return true;
    }
    let lasts = |gone: &Visit| {
        gone.end < begin
            && gone.left(false) == Left::Absent
            && creators.clone().all(|other| other.call == gone.call || other.precedes(gone))
    };
    visits.iter().any(lasts)
}
