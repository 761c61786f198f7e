//! Histories of Redis clients against what docs/redis.md promises.
//!
//! ```text
//!   RedisHistory ─► visits: what each call did to each key, and saw there
//!                      ├─► linear ─► every key by itself is linearizable, expiry included
//!                      ├─► multi  ─► reads and writes of many keys ─► check_register: serializable
//!                      ├─► exec   ─► EXEC is nil when a watched key was touched, and only then
//!                      └─► whole  ─► SCAN returns what is there throughout, DBSIZE counts one moment's keys
//! ```
//! KEYS and FLUSHDB are visits of every key. What was never answered may have been done or not,
//! once, and at any time since it was sent; what was refused was not done.
//!
//! # Invariants
//! - No false alarm: what is reported, no execution explains that keeps the promises.
//! - A key that takes too many steps to judge is counted as undecided, and nothing is said of it.

mod exec;
mod linear;
mod multi;
#[cfg(test)]
mod tests;
mod visit;
mod whole;

use super::verdict::{AnomalyKind, CheckResult, Promise};
use crate::redis::{RedisHistory, Request};
use visit::Visits;

/// Checks a history of Redis clients.
#[must_use]
pub fn check_redis(history: &RedisHistory) -> CheckResult {
    let answered = history.calls.iter().filter(|call| call.answered.is_some()).count();
    let mut verdict = CheckResult { transactions: answered, ..CheckResult::default() };
    let visits = Visits::of(history, &mut verdict);
    linear::check(history, &visits, &mut verdict);
    exec::check(history, &visits, &mut verdict);
    whole::check(history, &visits, &mut verdict);
    verdict.absorb(multi::check(history, &visits));
    verdict
}

/// A call as stories name it: its place in the history, whose it is, and what it asked.
fn name(history: &RedisHistory, call: usize) -> String {
    let one = &history.calls[call];
    format!("C{call} (connection {}) {}", one.connection, one.request)
}

/// The same with its answer, and when it was sent and answered.
fn told(history: &RedisHistory, call: usize) -> String {
    let one = &history.calls[call];
    let millis = |at: timestone_types::Timestamp| at.as_nanos() as f64 / 1e6;
    let begun = millis(one.invoked);
    match &one.answered {
        Some((when, reply)) => {
            format!("{} -> {reply} [{begun:.3} ms to {:.3} ms]", name(history, call), millis(*when))
        }
        None => format!("{} -> never answered [from {begun:.3} ms]", name(history, call)),
    }
}

/// The answer does not fit what was asked.
fn misfit(history: &RedisHistory, call: usize, verdict: &mut CheckResult) {
    verdict.report(AnomalyKind::WrongAnswer, Promise::Serializable, || {
        format!("no {} is answered so: {}", history.calls[call].request.name(), told(history, call))
    });
}

/// The words of a call that is one command.
fn words(request: &Request) -> &[String] {
    match request {
        Request::One(words) => words,
        Request::Transaction(_) => &[],
    }
}
