//! The bank: whatever read every account saw the whole money, and no account was ever below zero.
//!
//! An account that was closed is absent and holds nothing, until money comes to it again. One that
//! nobody closed, or may have closed, is never absent. An invocation does not tell a closing from
//! another write, so a write of unknown outcome may have been one.

use std::collections::{BTreeMap, BTreeSet};

use super::transactions::{Transactions, TxnEnd};
use super::verdict::{AnomalyKind, CheckResult, Promise};
use crate::KeyIndex;
use crate::history::{History, MicroOp, Seen};

/// Checks every committed transaction that read all of `accounts` accounts against `total`, and
/// every balance against zero.
#[must_use]
pub fn check_bank(history: &History, accounts: u64, total: i64) -> CheckResult {
    let mut verdict = CheckResult::default();
    let transactions = Transactions::of(history, &mut verdict);
    let may_close =
        |op: &MicroOp| if let MicroOp::Write { key, value: None } = op { Some(*key) } else { None };
    let in_effect = transactions.iter().filter(|(_, txn)| txn.end != TxnEnd::Aborted);
    let closed: BTreeSet<KeyIndex> =
        in_effect.flat_map(|(_, txn)| txn.ops.iter().filter_map(may_close)).collect();
    for (txn, found) in transactions.iter().filter(|(_, txn)| txn.end == TxnEnd::Committed) {
        verdict.transactions += 1;
        let mut balances: BTreeMap<KeyIndex, i64> = BTreeMap::new();
        for op in found.ops {
            let (key, balance) = match *op {
                MicroOp::Read { key, seen: Seen::Integer(balance) } => {
                    // What counts is the snapshot: the first reading, before the transaction's own
                    // writes.
                    balances.entry(key).or_insert(balance);
                    (key, balance)
                }
                MicroOp::Read { key, seen: Seen::Nothing } if closed.contains(&key) => {
                    balances.entry(key).or_insert(0);
                    continue;
                }
                MicroOp::Write { key, value: Some(balance) } => (key, balance),
                _ => continue,
            };
            if balance < 0 {
                verdict.report(AnomalyKind::WrongTotal, Promise::Serializable, || {
                    format!("{} saw {balance} in account {}", transactions.name(txn), key.0)
                });
            }
        }
        let read_all = balances.len() as u64 == accounts;
        let attempted =
            found.ops.iter().filter(|op| matches!(op, MicroOp::Read { .. })).count() as u64;
        let sum: i128 = balances.values().map(|balance| i128::from(*balance)).sum();
        if read_all && sum != i128::from(total) {
            verdict.report(AnomalyKind::WrongTotal, Promise::Serializable, || {
                format!(
                    "{} read {accounts} accounts with {sum} in them, which hold {total}",
                    transactions.name(txn)
                )
            });
        } else if !read_all && attempted >= accounts {
            verdict.report(AnomalyKind::WrongTotal, Promise::Serializable, || {
                format!(
                    "{} read {accounts} accounts and found only {}",
                    transactions.name(txn),
                    balances.len()
                )
            });
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::read;

    fn check(value: &str) -> CheckResult {
        let lines = ["invoke", "ok"]
            .map(|kind| format!("{{:type :{kind}, :process 0, :f :txn, :value [{value}]}}\n"));
        check_bank(&read(&lines.concat()).unwrap(), 3, 30)
    }

    #[test]
    fn the_whole_money_is_right_and_a_part_proves_nothing() {
        assert!(check("[:r 0 5] [:r 1 25] [:r 2 0]").is_valid());
        assert!(check("[:r 0 5] [:w 0 4] [:r 1 90]").is_valid());
    }

    #[test]
    fn a_closed_account_holds_nothing_and_one_that_nobody_closed_is_never_absent() {
        use crate::check::testing::history;
        let check = |lines: &[&str]| check_bank(&history(lines), 3, 30);
        let total = "1 . [:r 0 nil] [:r 1 30] [:r 2 0]";
        let close = ["0 . [:r 0 5] [:r 1 25] [:w 1 30] [:w 0 nil]", total];
        assert!(check(&close).is_valid());
        assert!(check(&[total]).has(AnomalyKind::WrongTotal), "nobody closed it");
        assert!(
            check(&[close[0], "1 . [:r 0 nil] [:r 1 25] [:r 2 0]"]).has(AnomalyKind::WrongTotal)
        );
        let unknown = [
            "0 + [:r 0 nil] [:r 1 nil] [:w 1 nil] [:w 0 nil]",
            "0 ? [:r 0 nil] [:r 1 nil] [:w 1 nil] [:w 0 nil]",
        ];
        assert!(check(&[&unknown[..], &[total]].concat()).is_valid(), "it may have been closed");
    }

    #[test]
    fn money_lost_or_made_is_found() {
        for wrong in [
            "[:r 0 5] [:r 1 25] [:r 2 1]",
            "[:r 0 5] [:r 1 25] [:r 2 nil]",
            "[:r 0 -1]",
            "[:r 0 2] [:w 0 -1]",
        ] {
            assert!(check(wrong).has(AnomalyKind::WrongTotal), "{wrong}");
        }
    }
}
