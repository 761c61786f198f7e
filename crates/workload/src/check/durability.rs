//! Durability: what was acknowledged is there in the end, what was refused is not, and all of a
//! transaction or nothing.
//!
//! After the faults end, the runner reads every list once more and hands in what it found. What was
//! deleted is gone, and stays so: what somebody found and deleted must not be there, and only that,
//! or what a deletion of unknown outcome may have found, may be missing.

use std::collections::{BTreeMap, BTreeSet};

use super::transactions::{Transactions, TxnEnd, TxnRef};
use super::verdict::{AnomalyKind, CheckResult, Promise};
use crate::KeyIndex;
use crate::history::{History, MicroOp, Seen};

/// Checks the appends of a history against the lists that are there at its end; a key that is
/// missing has an empty list.
#[must_use]
pub fn check_durability(history: &History, lists: &BTreeMap<KeyIndex, Vec<i64>>) -> CheckResult {
    let mut verdict = CheckResult::default();
    let transactions = Transactions::of(history, &mut verdict);
    let mut present: BTreeSet<(KeyIndex, i64)> = BTreeSet::new();
    for (key, list) in lists {
        for element in list {
            if !present.insert((*key, *element)) {
                verdict.report(AnomalyKind::Duplicate, Promise::Serializable, || {
                    format!("{element} stands in key {} twice", key.0)
                });
            }
        }
    }
    let deleted = Deleted::of(&transactions);
    for (txn, found) in transactions.iter() {
        let (mut there, mut gone) = (Vec::new(), Vec::new());
        for op in found.ops {
            if let MicroOp::Append { key, element } = *op {
                let place = (key, element);
                if present.remove(&place) {
                    there.push(place);
                } else if !deleted.may_have(place) {
                    gone.push(place);
                }
            }
        }
        for (place, by) in
            there.iter().filter_map(|place| Some((*place, *deleted.certain.get(place)?)))
        {
            verdict.report(AnomalyKind::LostWrite, Promise::Serializable, || {
                let ((key, element), by) = (place, transactions.name(by));
                format!("{element} is in key {}, from which {by} deleted it", key.0)
            });
        }
        verdict.transactions += usize::from(found.end == TxnEnd::Committed || !there.is_empty());
        match found.end {
            TxnEnd::Committed => {
                for (key, element) in gone {
                    verdict.report(AnomalyKind::LostWrite, Promise::Serializable, || {
                        format!(
                            "{} was told that {element} is in key {}, and it is not",
                            transactions.name(txn),
                            key.0
                        )
                    });
                }
            }
            TxnEnd::Aborted => {
                for (key, element) in there {
                    verdict.report(AnomalyKind::G1a, Promise::Serializable, || {
                        format!(
                            "{} aborted, and its {element} is in key {}",
                            transactions.name(txn),
                            key.0
                        )
                    });
                }
            }
            TxnEnd::Unknown => {
                if let (Some((key, element)), Some(_)) = (gone.first(), there.first()) {
                    verdict.report(AnomalyKind::LostWrite, Promise::Serializable, || {
                        format!(
                            "{} took effect in part: {element} is not in key {}",
                            transactions.name(txn),
                            key.0
                        )
                    });
                }
            }
        }
    }
    for (key, element) in present {
        verdict.report(AnomalyKind::Garbage, Promise::Serializable, || {
            format!("{element} is in key {}, and nobody appended it", key.0)
        });
    }
    verdict
}

/// What was deleted of the lists.
#[derive(Default)]
struct Deleted {
    /// By whom it certainly was.
    certain: BTreeMap<(KeyIndex, i64), TxnRef>,
    /// Keys of which nobody knows what was deleted.
    vague: BTreeSet<KeyIndex>,
}

impl Deleted {
    fn of(transactions: &Transactions<'_>) -> Self {
        let mut deleted = Self::default();
        for (by, txn) in transactions.iter().filter(|(_, txn)| txn.end != TxnEnd::Aborted) {
            let mut known: BTreeMap<KeyIndex, Vec<i64>> = BTreeMap::new();
            let mut is_read: BTreeSet<KeyIndex> = BTreeSet::new();
            for op in txn.ops {
                match op {
                    MicroOp::Read { key, seen } if txn.end == TxnEnd::Committed => {
                        let list =
                            if let Seen::List(list) = seen { list.clone() } else { Vec::new() };
                        known.insert(*key, list);
                        is_read.insert(*key);
                    }
                    MicroOp::Append { key, element } => {
                        known.entry(*key).or_default().push(*element)
                    }
                    MicroOp::Write { key, value: None } => {
                        if !is_read.contains(key) {
                            deleted.vague.insert(*key);
                        }
                        for element in known.remove(key).unwrap_or_default() {
                            // Of a transaction of unknown outcome, its own elements are not there
                            // either way.
                            deleted.certain.insert((*key, element), by);
                        }
                        is_read.insert(*key);
                    }
                    _ => {}
                }
            }
        }
        deleted
    }

    fn may_have(&self, place: (KeyIndex, i64)) -> bool {
        self.vague.contains(&place.0) || self.certain.contains_key(&place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::read;

    fn check(end: &str, lists: &[(u64, &[i64])]) -> Vec<AnomalyKind> {
        let value = "[[:append 1 7] [:append 2 8]]";
        let text = ["invoke", end]
            .map(|kind| format!("{{:type :{kind}, :process 0, :f :txn, :value {value}}}\n"));
        let lists = lists.iter().map(|(key, list)| (KeyIndex(*key), list.to_vec())).collect();
        let verdict = check_durability(&read(&text.concat()).unwrap(), &lists);
        verdict.anomalies.iter().map(|anomaly| anomaly.kind).collect()
    }

    #[test]
    fn what_should_be_there_is() {
        assert_eq!(check("ok", &[(1, &[7]), (2, &[8])]), []);
        assert_eq!(check("fail", &[]), []);
        assert_eq!(check("info", &[]), []);
        assert_eq!(check("info", &[(1, &[7]), (2, &[8])]), []);
    }

    #[test]
    fn what_should_not_be_is_found() {
        assert_eq!(check("ok", &[(1, &[7])]), [AnomalyKind::LostWrite]);
        assert_eq!(check("fail", &[(1, &[7])]), [AnomalyKind::G1a]);
        assert_eq!(check("info", &[(2, &[8])]), [AnomalyKind::LostWrite]);
        assert_eq!(check("ok", &[(1, &[7, 7]), (2, &[8])]), [AnomalyKind::Duplicate]);
        assert_eq!(check("ok", &[(1, &[7, 9]), (2, &[8])]), [AnomalyKind::Garbage]);
    }

    #[test]
    fn what_was_deleted_may_be_gone_and_must_not_come_back() {
        use crate::check::testing::history;
        let check = |lines: &[&str], list: &[i64]| -> Vec<AnomalyKind> {
            let verdict = check_durability(&history(lines), &[(KeyIndex(1), list.to_vec())].into());
            verdict.anomalies.iter().map(|anomaly| anomaly.kind).collect()
        };
        let deleted = ["0 . [:append 1 7]", "1 . [:r 1 [7]] [:w 1 nil]", "2 . [:append 1 8]"];
        assert_eq!(check(&deleted, &[8]), []);
        assert_eq!(check(&deleted, &[]), [AnomalyKind::LostWrite], "nobody deleted 8");
        assert_eq!(check(&deleted, &[7, 8]), [AnomalyKind::LostWrite], "7 has come back");
        let unknown =
            ["0 . [:append 1 7]", "1 + [:r 1 nil] [:w 1 nil]", "1 ? [:r 1 nil] [:w 1 nil]"];
        assert_eq!(check(&unknown, &[]), []);
        assert_eq!(check(&unknown, &[7]), []);
        assert_eq!(check(&["0 . [:append 1 7] [:w 1 nil] [:append 1 8]"], &[8]), []);
        assert_eq!(check(&["0 . [:append 1 7] [:w 1 nil]"], &[7]), [AnomalyKind::LostWrite]);
    }
}
