//! What must hold once the faults have stopped: everything ends, nothing stays behind, bounds are
//! kept.
//!
//! ```text
//!   faults ──────────────► calm ──── timeout ────► end of the run
//!                            │ invoked from here on: answered in time, and the answer is known
//!                            └ open since before: completed, somehow, by calm + timeout
//! ```
//! Whoever runs the world counts what is left and what is held, under names of its own; what the
//! numbers may be is judged here.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use timestone_types::Timestamp;

use super::transactions::{Transactions, TxnEnd};
use super::verdict::{AnomalyKind, CheckResult, Promise};
use crate::history::{Event, History};

/// A quantity of a server, a shard, a log …, and the most that it may be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quantity {
    /// Whose, as people find it: "shard 3 of server 2".
    pub whose: String,
    /// Of what, with its unit: "bytes of log", "prepared transactions", "versions".
    pub what: &'static str,
    /// How much there is.
    pub held: u64,
    /// How much there may be; zero for what must be gone.
    pub bound: u64,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { whose, what, held, bound } = self;
        match bound {
            0 => write!(f, "{whose} still has {held} {what}, and should have none"),
            _ => write!(
                f,
                "{whose} has {held} {what}, {} more than the bound of {bound}",
                held.saturating_sub(*bound)
            ),
        }
    }
}

/// Checks bounds on memory, logs, versions, queues: [`AnomalyKind::OutOfBounds`] for each quantity
/// above its bound.
#[must_use]
pub fn check_bounds(quantities: impl IntoIterator<Item = Quantity>) -> CheckResult {
    judge(quantities, AnomalyKind::OutOfBounds)
}

/// Checks that what must go goes (prepared transactions, parked requests, open decisions):
/// [`AnomalyKind::Stuck`] for each quantity above its bound.
#[must_use]
pub fn check_left_over(quantities: impl IntoIterator<Item = Quantity>) -> CheckResult {
    judge(quantities, AnomalyKind::Stuck)
}

fn judge(quantities: impl IntoIterator<Item = Quantity>, kind: AnomalyKind) -> CheckResult {
    let mut verdict = CheckResult::default();
    for quantity in quantities.into_iter().filter(|quantity| quantity.held > quantity.bound) {
        verdict.report(kind, Promise::Serializable, || quantity.to_string());
    }
    verdict
}

/// When the faults stopped, and how long everything may take from then on. Times are those of the
/// history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Calm {
    /// The last fault had ended.
    pub since: Timestamp,
    /// How long a transaction may take then.
    pub timeout: Duration,
    /// When the run ended: what has not had its time by then says nothing.
    pub until: Timestamp,
}

/// Checks that every transaction ends once the faults have: those that were open when they stopped
/// are completed in time, in whatever way; those invoked afterwards are completed in time with a
/// known outcome, and some of them commit.
#[must_use]
pub fn check_liveness(history: &History, calm: Calm) -> CheckResult {
    let mut verdict = CheckResult::default();
    let transactions = Transactions::of(history, &mut verdict);
    let completions = completions(history);
    let (mut asked, mut committed) = (0_usize, 0_usize);
    for (txn, found) in transactions.iter() {
        verdict.transactions += 1;
        let invoked = history.events[found.invoked].time;
        let is_calm = invoked >= calm.since;
        let due = invoked.max(calm.since).saturating_add(calm.timeout);
        committed += usize::from(is_calm && found.end == TxnEnd::Committed);
        if due > calm.until {
            continue;
        }
        asked += usize::from(is_calm);
        let completed = completions.get(&found.invoked).map(|event| event.time);
        if completed.is_none_or(|completed| completed > due) {
            verdict.report(AnomalyKind::Stuck, Promise::Serializable, || {
                let since = if is_calm { "invoked in calm" } else { "open when the faults ended" };
                let when = completed.map_or_else(
                    || "it never was".to_owned(),
                    |completed| format!("it was at {}", completed.as_nanos()),
                );
                let (name, due) = (transactions.name(txn), due.as_nanos());
                format!("{name}, {since}, should have been completed by {due} ns, and {when}")
            });
        } else if is_calm && found.end == TxnEnd::Unknown {
            verdict.report(AnomalyKind::Stuck, Promise::Serializable, || {
                format!(
                    "{} was invoked in calm, and yet its outcome is unknown",
                    transactions.name(txn)
                )
            });
        }
    }
    if asked > 0 && committed == 0 {
        verdict.report(AnomalyKind::Stuck, Promise::Serializable, || {
            format!("none of {asked} transactions committed after the faults had ended")
        });
    }
    verdict
}

/// The completion of each invocation, by the invocation's place.
fn completions(history: &History) -> BTreeMap<usize, &Event> {
    let (mut open, mut found) = (BTreeMap::new(), BTreeMap::new());
    for (place, event) in history.events.iter().enumerate() {
        if event.kind == crate::history::EventKind::Invoke {
            open.insert(event.process, place);
        } else if let Some(invoked) = open.remove(&event.process) {
            found.insert(invoked, event);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{history, kinds};

    #[test]
    fn quantities_are_held_to_their_bounds() {
        let quantity = |held, bound| Quantity {
            whose: "shard 1".to_owned(),
            what: "bytes of log",
            held,
            bound,
        };
        assert!(check_bounds([quantity(5, 5), quantity(0, 0)]).is_valid());
        let verdict = check_bounds([quantity(5, 5), quantity(7, 5)]);
        assert!(verdict.has(AnomalyKind::OutOfBounds) && verdict.anomalies.len() == 1);
        assert!(
            verdict.to_string().contains("shard 1 has 7 bytes of log, 2 more than the bound of 5"),
            "{verdict}"
        );
        let verdict = check_left_over([quantity(1, 0)]);
        assert!(
            verdict.has(AnomalyKind::Stuck) && verdict.to_string().contains("still has 1"),
            "{verdict}"
        );
    }

    /// The times of these histories are their lines' numbers.
    fn live(lines: &[&str]) -> Vec<AnomalyKind> {
        let calm = Calm {
            since: Timestamp::from_nanos(2),
            timeout: Duration::from_nanos(3),
            until: Timestamp::from_nanos(20),
        };
        kinds(&check_liveness(&history(lines), calm)).into_iter().map(|(kind, _)| kind).collect()
    }

    #[test]
    fn what_ends_in_time_is_alive() {
        assert_eq!(
            live(&[
                "0 + [:r 1 nil]",
                "1 + [:r 1 nil]",
                "0 ? [:r 1 nil]",
                "1 = [:r 1 []]",
                "2 . [:r 1 []]"
            ]),
            []
        );
    }

    #[test]
    fn what_does_not_end_is_stuck() {
        let stuck = [AnomalyKind::Stuck];
        assert_eq!(live(&["0 + [:r 1 nil]"]), stuck, "open when the faults ended, and for ever");
        let slow =
            ["0 + [:r 1 nil]", "1 . [:r 1 []]", "1 . [:r 1 []]", "1 . [:r 1 []]", "0 = [:r 1 []]"];
        assert_eq!(live(&slow), stuck, "completed, but late");
        let unknown = ["1 . [:r 1 []]", "1 . [:r 1 []]", "0 + [:r 1 nil]", "0 ? [:r 1 nil]"];
        assert_eq!(live(&unknown), stuck, "unknown in calm");
        let refused = ["1 . [:r 1 []]", "0 + [:r 1 nil]", "0 ! [:r 1 nil]"];
        assert_eq!(live(&refused), stuck, "nothing commits in calm");
    }

    #[test]
    fn what_has_had_no_time_says_nothing() {
        let calm = Calm {
            since: Timestamp::ZERO,
            timeout: Duration::from_nanos(5),
            until: Timestamp::from_nanos(4),
        };
        assert!(check_liveness(&history(&["0 + [:r 1 nil]"]), calm).is_valid());
        let calm = Calm { until: Timestamp::from_nanos(6), ..calm };
        let refused = ["0 + [:r 1 nil]", "0 ! [:r 1 nil]"];
        assert!(!check_liveness(&history(&refused), calm).is_valid());
        let late = ["0 + [:r 1 nil]", "0 ! [:r 1 nil]", "1 + [:r 1 nil]", "1 = [:r 1 []]"];
        assert!(
            check_liveness(&history(&late), calm).is_valid(),
            "what commits before its time is over has committed"
        );
    }
}
