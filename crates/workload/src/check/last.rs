//! Durability of registers: what is there in the end was written, and nothing that was acknowledged
//! lies above it.
//!
//! ```text
//!   w x 1 ── acknowledged ──► w x 4 ── acknowledged ──► the end: x must be 4, or what is certainly not before it
//!                             └ read 1 before it wrote, or was invoked when 1 was acknowledged: 1 is gone for ever
//! ```
//! Registers forget, so a lost write shows only while nothing later stands in its place; the cycles
//! of `register.rs` find the rest. After the faults end, the runner reads every register once more
//! and hands in what it found.

use std::collections::BTreeMap;

use super::transactions::{HistoryTransaction, Transactions, TxnEnd, TxnRef};
use super::verdict::{AnomalyKind, CheckResult, Promise};
use crate::KeyIndex;
use crate::history::{History, MicroOp, Seen};

/// Checks the writes of a history against what is there at its end, and nothing of keys that were
/// not read then.
#[must_use]
pub fn check_last_values(history: &History, found: &BTreeMap<KeyIndex, Seen>) -> CheckResult {
    let mut verdict = CheckResult::default();
    let transactions = Transactions::of(history, &mut verdict);
    let mut keys: BTreeMap<KeyIndex, Vec<KeyTouch>> = BTreeMap::new();
    for (by, txn) in transactions.iter() {
        verdict.transactions += usize::from(txn.end == TxnEnd::Committed && txn.writes());
        for (key, touch) in touches(by, txn) {
            keys.entry(key).or_default().push(touch);
        }
    }
    for (key, seen) in found {
        let touches = keys.get(key).map_or(&[][..], Vec::as_slice);
        match seen {
            Seen::Integer(value) => judge_value(&transactions, *key, *value, touches, &mut verdict),
            Seen::Nothing => judge_absence(&transactions, *key, touches, &mut verdict),
            Seen::List(_) => verdict.report(AnomalyKind::Malformed, Promise::Serializable, || {
                format!("in the end, key {} holds a list, where this workload has registers", key.0)
            }),
        }
    }
    verdict
}

/// What a transaction did to a key that it wrote.
struct KeyTouch {
    by: TxnRef,
    /// What it read there before it wrote, if it did.
    before: Option<Seen>,
    /// All that it wrote there, in order; `None` is a deletion.
    wrote: Vec<Option<i64>>,
    /// What it wrote expires.
    expires: bool,
}

impl KeyTouch {
    fn last(&self) -> Option<i64> {
        self.wrote.last().copied().flatten()
    }

    /// Whether nothing may be left of it.
    fn leaves_nothing(&self) -> bool {
        self.expires || self.last().is_none()
    }
}

fn touches(by: TxnRef, txn: &HistoryTransaction<'_>) -> BTreeMap<KeyIndex, KeyTouch> {
    let mut all: BTreeMap<KeyIndex, KeyTouch> = BTreeMap::new();
    for op in txn.ops {
        match op {
            MicroOp::Read { key, seen } => {
                let known = txn.end == TxnEnd::Committed;
                let touch = KeyTouch {
                    by,
                    before: known.then(|| seen.clone()),
                    wrote: Vec::new(),
                    expires: false,
                };
                all.entry(*key).or_insert(touch);
            }
            MicroOp::Write { key, .. } | MicroOp::WriteUntil { key, .. } => {
                let nothing = KeyTouch { by, before: None, wrote: Vec::new(), expires: false };
                let touch = all.entry(*key).or_insert(nothing);
                touch.wrote.push(op.written());
                touch.expires = matches!(op, MicroOp::WriteUntil { .. });
            }
            MicroOp::Append { .. } => {}
        }
    }
    all.retain(|_, touch| !touch.wrote.is_empty());
    all
}

/// A committed write that certainly stands above `below`: it replaced that version, or began when
/// that was acknowledged or, to the same session, told to be unknown.
fn above<'t>(
    transactions: &Transactions<'_>,
    touches: &'t [KeyTouch],
    version: &Seen,
    below: Option<&KeyTouch>,
) -> Option<&'t KeyTouch> {
    let below_txn = below.map(|touch| transactions.get(touch.by));
    touches.iter().find(|touch| {
        let txn = transactions.get(touch.by);
        let later = below_txn.is_some_and(|below| {
            let own = below.is_settled && below.session == txn.session;
            below.completed.is_some_and(|at| txn.invoked > at) || own && txn.invoked > below.invoked
        });
        let another = below.is_none_or(|below| below.by != touch.by);
        another && txn.end == TxnEnd::Committed && (later || touch.before.as_ref() == Some(version))
    })
}

fn judge_value(
    transactions: &Transactions<'_>,
    key: KeyIndex,
    value: i64,
    touches: &[KeyTouch],
    verdict: &mut CheckResult,
) {
    let Some(writer) = touches.iter().find(|touch| touch.wrote.contains(&Some(value))) else {
        // A write of unknown outcome that does not tell its value may have been it.
        let is_vague = |touch: &KeyTouch| {
            transactions.get(touch.by).end == TxnEnd::Unknown && touch.wrote.contains(&None)
        };
        if !touches.iter().any(is_vague) {
            verdict.report(AnomalyKind::Garbage, Promise::Serializable, || {
                format!("in the end, key {} holds {value}, and nobody wrote it", key.0)
            });
        }
        return;
    };
    let name = |touch: &KeyTouch| transactions.name(touch.by);
    if transactions.get(writer.by).end == TxnEnd::Aborted {
        verdict.report(AnomalyKind::G1a, Promise::Serializable, || {
            format!(
                "in the end, key {} holds {value}, which {} wrote before it aborted",
                key.0,
                name(writer)
            )
        });
    } else if writer.last() != Some(value) {
        verdict.report(AnomalyKind::G1b, Promise::Serializable, || {
            format!(
                "in the end, key {} holds {value}, which {} overwrote itself",
                key.0,
                name(writer)
            )
        });
    } else if let Some(lost) = above(transactions, touches, &Seen::Integer(value), Some(writer)) {
        verdict.report(AnomalyKind::LostWrite, Promise::Serializable, || {
            let (lost, writer) = (name(lost), name(writer));
            format!("{lost} wrote key {} after {writer}, whose {value} is there in the end", key.0)
        });
    }
}

fn judge_absence(
    transactions: &Transactions<'_>,
    key: KeyIndex,
    touches: &[KeyTouch],
    verdict: &mut CheckResult,
) {
    let may_delete = |touch: &&KeyTouch| {
        transactions.get(touch.by).end != TxnEnd::Aborted && touch.leaves_nothing()
    };
    let deletions: Vec<&KeyTouch> = touches.iter().filter(may_delete).collect();
    // Absence is what the latest deletion left. Only a write that is above all of them is certainly
    // lost.
    let lost = touches.iter().find(|touch| {
        let txn = transactions.get(touch.by);
        let is_above = |deletion: &&KeyTouch| {
            transactions.get(deletion.by).completed.is_some_and(|completed| txn.invoked > completed)
        };
        txn.end == TxnEnd::Committed && !touch.leaves_nothing() && deletions.iter().all(is_above)
    });
    if let Some(lost) = lost {
        verdict.report(AnomalyKind::LostWrite, Promise::Serializable, || {
            format!(
                "{} was told that it wrote key {}, and nothing is there",
                transactions.name(lost.by),
                key.0
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{history, kinds};

    fn check(lines: &[&str], end: Seen) -> Vec<AnomalyKind> {
        let verdict = check_last_values(&history(lines), &[(KeyIndex(1), end)].into());
        kinds(&verdict).into_iter().map(|(kind, _)| kind).collect()
    }

    #[test]
    fn what_may_be_last_is_right() {
        assert_eq!(check(&[], Seen::Nothing), []);
        assert_eq!(check(&["0 . [:w 1 7]"], Seen::Integer(7)), []);
        let two = ["0 + [:w 1 7]", "1 + [:w 1 8]", "0 = [:w 1 7]", "1 = [:w 1 8]"];
        assert_eq!(check(&two, Seen::Integer(7)), [], "they were concurrent");
        assert_eq!(check(&two, Seen::Integer(8)), []);
        let unknown = ["0 + [:w 1 7]", "0 ? [:w 1 7]", "1 . [:w 1 8]"];
        assert_eq!(check(&unknown, Seen::Integer(7)), [], "it may have taken effect late");
        assert_eq!(check(&["0 . [:w 1 7]", "1 . [:r 1 7] [:w 1 nil]"], Seen::Nothing), []);
        assert_eq!(check(&["0 . [:w 1 nil]", "1 + [:w 1 8]", "1 ! [:w 1 8]"], Seen::Nothing), []);
    }

    #[test]
    fn what_a_session_was_told_is_unknown_lies_below_what_it_wrote_next() {
        let mut told = history(&["0 + [:w 1 7]", "0 ? [:w 1 7]", "5 . [:w 1 8]"]);
        let end = [(KeyIndex(1), Seen::Integer(7))].into();
        assert!(
            check_last_values(&told, &end).is_valid(),
            "another session's may take effect late"
        );
        told.successors.insert(crate::history::Process(0), crate::history::Process(5));
        assert!(check_last_values(&told, &end).has(AnomalyKind::LostWrite));
    }

    #[test]
    fn what_is_gone_or_never_was_is_found() {
        assert_eq!(check(&["0 . [:w 1 7]"], Seen::Nothing), [AnomalyKind::LostWrite]);
        assert_eq!(
            check(&["0 . [:w 1 7]", "1 . [:w 1 8]"], Seen::Integer(7)),
            [AnomalyKind::LostWrite]
        );
        let replaced =
            ["0 + [:w 1 7]", "1 + [:r 1 nil] [:w 1 8]", "0 ? [:w 1 7]", "1 = [:r 1 7] [:w 1 8]"];
        assert_eq!(
            check(&replaced, Seen::Integer(7)),
            [AnomalyKind::LostWrite],
            "its reader replaced it"
        );
        assert_eq!(
            check(&["0 . [:w 1 nil]", "1 . [:w 1 8]"], Seen::Nothing),
            [AnomalyKind::LostWrite]
        );
        assert_eq!(check(&["0 + [:w 1 7]", "0 ! [:w 1 7]"], Seen::Integer(7)), [AnomalyKind::G1a]);
        assert_eq!(check(&["0 . [:w 1 7] [:w 1 9]"], Seen::Integer(7)), [AnomalyKind::G1b]);
        assert_eq!(check(&["0 . [:w 1 7]"], Seen::Integer(8)), [AnomalyKind::Garbage]);
    }
}
