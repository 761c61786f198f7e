//! EXEC under WATCH: nil when a watched key was touched since, and only then.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::visit::{Visit, Visits};
use super::{name, told, words};
use crate::check::verdict::{AnomalyKind, CheckResult, Promise};
use crate::redis::{RedisHistory, Reply, Request};

/// Judges every EXEC that was answered.
pub(super) fn check(history: &RedisHistory, visits: &Visits, verdict: &mut CheckResult) {
    // By connection: the keys that it watches, and the call that made it do so.
    let mut watched: BTreeMap<u64, Vec<(Rc<str>, usize)>> = BTreeMap::new();
    for (at, call) in history.calls.iter().enumerate() {
        let Some((_, reply)) = &call.answered else { continue };
        match &call.request {
            Request::One(_)
                if call.request.name() == "WATCH" && !matches!(reply, Reply::Error(_)) =>
            {
                let list = watched.entry(call.connection).or_default();
                list.extend(
                    words(&call.request)[1..].iter().map(|key| (Rc::from(key.as_str()), at)),
                );
            }
            Request::One(_) if matches!(call.request.name(), "UNWATCH" | "DISCARD") => {
                watched.remove(&call.connection);
            }
            Request::Transaction(_) => {
                let list = watched.remove(&call.connection).unwrap_or_default();
                judge(history, visits, at, &list, reply, verdict);
            }
            Request::One(_) => {}
        }
    }
}

fn judge(
    history: &RedisHistory,
    visits: &Visits,
    exec: usize,
    watched: &[(Rc<str>, usize)],
    reply: &Reply,
    verdict: &mut CheckResult,
) {
    let of = |key: &Rc<str>| visits.of.get(key).map_or(&[][..], Vec::as_slice);
    match reply {
        Reply::Nil => {
            let may_be = |(key, watch): &(Rc<str>, usize)| {
                of(key).iter().any(|visit| may_touch(history, visit, *watch, exec))
            };
            if !watched.iter().any(may_be) {
                verdict.report(AnomalyKind::WrongExec, Promise::Serializable, || {
                    format!(
                        "nobody touched what {} watches, and it was not carried out",
                        told(history, exec)
                    )
                });
            }
        }
        Reply::Array(_) => {
            for (key, watch) in watched {
                let touched =
                    of(key).iter().find(|visit| has_touched(history, visit, *watch, exec));
                if let Some(visit) = touched {
                    verdict.report(AnomalyKind::WrongExec, Promise::Serializable, || {
                        format!(
                            "{} was carried out although key {key} was touched since {}: {}",
                            told(history, exec),
                            name(history, *watch),
                            told(history, visit.call)
                        )
                    });
                }
            }
        }
        _ => {}
    }
}

/// Whether a visit may have touched its key between a WATCH and an EXEC.
fn may_touch(history: &RedisHistory, visit: &Visit, watch: usize, exec: usize) -> bool {
    let (begun, ended) = (
        history.calls[watch].invoked,
        history.calls[exec].answered.as_ref().map(|(when, _)| *when),
    );
    if visit.call == exec || ended.is_some_and(|ended| visit.begin > ended) {
        return false;
    }
    // What was set to expire before may expire now.
    visit.sets_expiry() || !visit.is_look() && visit.end >= begun
}

/// Whether a visit has touched its key after a WATCH was answered and before EXEC was sent.
fn has_touched(history: &RedisHistory, visit: &Visit, watch: usize, exec: usize) -> bool {
    let Some((watching, _)) = &history.calls[watch].answered else { return false };
    visit.changed() && visit.begin > *watching && visit.end < history.calls[exec].invoked
}
