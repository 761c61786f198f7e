//! Commands over the whole keyspace: a SCAN returns every key that was there throughout, and none
//! that never was; DBSIZE counts the keys of one moment between its invocation and its answer.
//!
//! What is certain of a key follows from calls that cannot stand anywhere else: it was written and
//! answered before, and nothing that may take it away overlaps what came since.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use timestone_types::Timestamp;

use super::visit::{Left, Visit, Visits, fits};
use super::{misfit, told, words};
use crate::check::verdict::{AnomalyKind, CheckResult, Promise};
use crate::redis::{RedisHistory, Reply};

/// Judges every scan and every count.
pub(super) fn check(history: &RedisHistory, visits: &Visits, verdict: &mut CheckResult) {
    let proofs: ByKey<'_> =
        visits.of.iter().map(|(key, visits)| (key, Proofs::of(visits))).collect();
    let mut scans: BTreeMap<u64, OpenScan> = BTreeMap::new();
    for (at, call) in history.calls.iter().enumerate() {
        let Some((when, reply)) = &call.answered else { continue };
        match (call.request.name(), reply) {
            ("DBSIZE", Reply::Integer(count)) => {
                judge_count(history, &proofs, at, (call.invoked, *when), *count, verdict);
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
                    scans.insert(call.connection, OpenScan::begin(at, words));
                }
                let Some(scan) = scans.get_mut(&call.connection) else { continue };
                scan.found.extend(keys);
                scan.pages += 1;
                if cursor == "0"
                    && let Some(scan) = scans.remove(&call.connection)
                {
                    scan.judge(history, &proofs, at, *when, verdict);
                }
            }
            _ => {}
        }
    }
}

/// What is proved of each key.
type ByKey<'v> = BTreeMap<&'v Rc<str>, Proofs>;

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

struct OpenScan {
    first: usize,
    pages: usize,
    pattern: String,
    found: BTreeSet<Rc<str>>,
}

impl OpenScan {
    fn begin(first: usize, words: &[String]) -> Self {
        let pattern =
            words.iter().position(|word| word == "MATCH").and_then(|at| words.get(at + 1));
        let pattern = pattern.map_or_else(|| "*".to_owned(), Clone::clone);
        Self { first, pages: 0, pattern, found: BTreeSet::new() }
    }

    fn judge(
        self,
        history: &RedisHistory,
        proofs: &ByKey<'_>,
        last: usize,
        end: Timestamp,
        verdict: &mut CheckResult,
    ) {
        let begin = history.calls[self.first].invoked;
        let scan = || {
            let pages = self.pages;
            format!(
                "a scan of {pages} pages, from {} to {}",
                told(history, self.first),
                told(history, last)
            )
        };
        for (key, proofs) in proofs.iter().filter(|(key, _)| fits(&self.pattern, key)) {
            let is_found = self.found.contains(*key);
            if !is_found && let Some(proof) = proofs.is_present(begin, end) {
                verdict.report(AnomalyKind::WrongScan, Promise::Serializable, || {
                    format!(
                        "{} does not return key {key}, which was there throughout: {}",
                        scan(),
                        told(history, proof)
                    )
                });
            }
            if is_found && proofs.is_absent(begin, end) {
                verdict.report(AnomalyKind::WrongScan, Promise::Serializable, || {
                    format!("{} returns key {key}, which was never there", scan())
                });
            }
        }
    }
}

fn judge_count(
    history: &RedisHistory,
    proofs: &ByKey<'_>,
    at: usize,
    (begin, end): (Timestamp, Timestamp),
    count: i64,
    verdict: &mut CheckResult,
) {
    let certain: Vec<&Rc<str>> = proofs
        .iter()
        .filter(|(_, proofs)| proofs.is_present(begin, end).is_some())
        .map(|(key, _)| *key)
        .collect();
    let possible = proofs.values().filter(|proofs| !proofs.is_absent(begin, end)).count();
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

/// What proves that a key was there, or was not, throughout a span of time.
struct Proofs {
    present: Lasting,
    absent: Lasting,
    /// When the first visit begins that may have made it.
    first_maker: Option<Timestamp>,
}

impl Proofs {
    fn of(visits: &[Visit]) -> Self {
        let never = Visits::is_lasting(visits);
        let is_made = |visit: &Visit| visit.left(never) == Left::Present;
        let is_gone = |visit: &Visit| visit.left(false) == Left::Absent;
        Self {
            present: Lasting::of(visits, is_made, Visit::may_remove),
            absent: Lasting::of(visits, is_gone, Visit::may_create),
            first_maker: visits
                .iter()
                .filter(|visit| visit.may_create())
                .map(|visit| visit.begin)
                .min(),
        }
    }

    /// The call that proves that the key was there all the time from one moment to another.
    fn is_present(&self, begin: Timestamp, end: Timestamp) -> Option<usize> {
        self.present.proof(begin, end)
    }

    /// Whether it was certainly not there at any time from one moment to another.
    fn is_absent(&self, begin: Timestamp, end: Timestamp) -> bool {
        self.first_maker.is_none_or(|first| first > end) || self.absent.proof(begin, end).is_some()
    }
}

/// Visits that leave a key so, and those that may leave it otherwise: it is so throughout a span of
/// time when one of the former was over before, and each of the latter that begins by the end of
/// the span was over before that one began. Looked up, not looked through: scans are many, and so
/// are visits.
struct Lasting {
    /// By begin: until when one of the opponents up to here lasts.
    opponents: Vec<(Timestamp, Timestamp)>,
    /// By begin: which of the proofs from here on is over first.
    proofs: Vec<(Timestamp, Timestamp, usize)>,
    /// Proofs that are opponents of others as well: few.
    both: Vec<(Timestamp, Timestamp, usize)>,
    /// The opponents one by one, for those.
    each: Vec<(Timestamp, Timestamp, usize)>,
}

impl Lasting {
    fn of(
        visits: &[Visit],
        is_proof: impl Fn(&Visit) -> bool,
        opposes: impl Fn(&Visit) -> bool,
    ) -> Self {
        let told = |visit: &Visit| (visit.begin, visit.end, visit.call);
        let mut each: Vec<_> = visits.iter().filter(|visit| opposes(visit)).map(told).collect();
        each.sort_unstable();
        let mut last = Timestamp::ZERO;
        let upto = |&(begin, end, _): &(Timestamp, Timestamp, usize)| {
            last = last.max(end);
            (begin, last)
        };
        let opponents = each.iter().map(upto).collect();
        let (both, proofs): (Vec<&Visit>, Vec<&Visit>) =
            visits.iter().filter(|visit| is_proof(visit)).partition(|visit| opposes(visit));
        let mut proofs: Vec<_> = proofs.into_iter().map(told).collect();
        proofs.sort_unstable();
        let mut first = (Timestamp::MAX, 0);
        for (_, end, call) in proofs.iter_mut().rev() {
            first = first.min((*end, *call));
            (*end, *call) = first;
        }
        let both = both.into_iter().map(told).collect();
        Self { opponents, proofs, both, each }
    }

    fn proof(&self, begin: Timestamp, end: Timestamp) -> Option<usize> {
        let opponents = self.opponents.partition_point(|(from, _)| *from <= end);
        let from = match opponents.checked_sub(1).map(|last| self.opponents[last].1) {
            Some(until) => self.proofs.partition_point(|(from, _, _)| *from <= until),
            None => 0,
        };
        let found =
            self.proofs.get(from).filter(|(_, over, _)| *over < begin).map(|(_, _, call)| *call);
        found.or_else(|| {
            let others = |call: usize| {
                self.each[..opponents].iter().filter(move |(_, _, other)| *other != call)
            };
            let proves = |(from, over, call): &&(Timestamp, Timestamp, usize)| {
                *over < begin && others(*call).all(|(_, until, _)| until < from)
            };
            self.both.iter().find(proves).map(|(_, _, call)| *call)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::{Call, Request};

    /// What is looked up is what looking through everything finds.
    #[test]
    fn proofs_are_found_as_by_looking_through_everything() {
        let mut random = crate::Random::new(7);
        for _ in 0..200 {
            let mut calls = Vec::new();
            let mut now = 0;
            for connection in 0..12 {
                now += random.below(4);
                let (text, reply) = match random.below(7) {
                    0 => ("SET k v1", Reply::Status("OK".to_owned())),
                    1 => ("SET k v2 PX 100", Reply::Status("OK".to_owned())),
                    2 => ("DEL k", Reply::Integer(random.below(2) as i64)),
                    3 => ("GET k", Reply::Nil),
                    4 => ("GETDEL k", Reply::Text("v1".to_owned())),
                    5 => ("GET k", Reply::Text("v1".to_owned())),
                    _ => ("INCR k", Reply::Integer(1)),
                };
                let at = Timestamp::from_nanos;
                let answered = (random.below(8) > 0).then(|| (at(now + random.below(6)), reply));
                calls.push(Call {
                    connection,
                    request: Request::command(text),
                    invoked: at(now),
                    answered,
                });
            }
            let history = RedisHistory { calls, ..RedisHistory::default() };
            let visits = Visits::of(&history, &mut CheckResult::default());
            let Some(visits) = visits.of.get("k") else { continue };
            let proofs = Proofs::of(visits);
            for (begin, length) in
                (0..60).flat_map(|begin| (0..6).map(move |length| (begin, length)))
            {
                let (begin, end) =
                    (Timestamp::from_nanos(begin), Timestamp::from_nanos(begin + length));
                assert_eq!(proofs.is_present(begin, end).is_some(), is_present(visits, begin, end));
                assert_eq!(proofs.is_absent(begin, end), is_absent(visits, begin, end));
            }
        }
    }

    fn is_present(visits: &[Visit], begin: Timestamp, end: Timestamp) -> bool {
        let never = Visits::is_lasting(visits);
        let lasts = |made: &Visit| {
            let takes_away = |other: &Visit| {
                other.call != made.call
                    && other.may_remove()
                    && other.begin <= end
                    && other.end >= made.begin
            };
            made.end < begin && made.left(never) == Left::Present && !visits.iter().any(takes_away)
        };
        visits.iter().any(lasts)
    }

    fn is_absent(visits: &[Visit], begin: Timestamp, end: Timestamp) -> bool {
        let creators = visits.iter().filter(|visit| visit.may_create() && visit.begin <= end);
        if creators.clone().next().is_none() {
            return true;
        }
        let lasts = |gone: &Visit| {
            gone.end < begin
                && gone.left(false) == Left::Absent
                && creators.clone().all(|other| other.call == gone.call || other.end < gone.begin)
        };
        visits.iter().any(lasts)
    }
}
