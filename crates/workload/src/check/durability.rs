//! Durability: what was acknowledged is there in the end, what was refused is not, and all of a transaction or nothing.
//!
//! After the faults end, the runner reads every list once more and hands in what it found.

use std::collections::{BTreeMap, BTreeSet};

use super::transactions::{End, Transactions};
use super::verdict::{AnomalyKind, Promise, Verdict};
use crate::KeyIndex;
use crate::history::{History, MicroOp};

/// Checks the appends of a history against the lists that are there at its end; a key that is missing has an empty list.
#[must_use]
pub fn check_durability(history: &History, lists: &BTreeMap<KeyIndex, Vec<i64>>) -> Verdict {
    let mut verdict = Verdict::default();
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
    for (txn, found) in transactions.iter() {
        let (mut there, mut gone) = (Vec::new(), Vec::new());
        for op in found.ops {
            if let MicroOp::Append { key, element } = *op {
                let place = (key, element);
                if present.remove(&place) { there.push(place) } else { gone.push(place) }
            }
        }
        verdict.transactions += usize::from(found.end == End::Committed || !there.is_empty());
        match found.end {
            End::Committed => {
                for (key, element) in gone {
                    verdict.report(AnomalyKind::LostWrite, Promise::Serializable, || {
                        format!("{} was told that {element} is in key {}, and it is not", transactions.name(txn), key.0)
                    });
                }
            }
            End::Aborted => {
                for (key, element) in there {
                    verdict.report(AnomalyKind::G1a, Promise::Serializable, || {
                        format!("{} aborted, and its {element} is in key {}", transactions.name(txn), key.0)
                    });
                }
            }
            End::Unknown => {
                if let (Some((key, element)), Some(_)) = (gone.first(), there.first()) {
                    verdict.report(AnomalyKind::LostWrite, Promise::Serializable, || {
                        format!("{} took effect in part: {element} is not in key {}", transactions.name(txn), key.0)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::read;

    fn check(end: &str, lists: &[(u64, &[i64])]) -> Vec<AnomalyKind> {
        let value = "[[:append 1 7] [:append 2 8]]";
        let text = ["invoke", end].map(|kind| format!("{{:type :{kind}, :process 0, :f :txn, :value {value}}}\n"));
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
}
