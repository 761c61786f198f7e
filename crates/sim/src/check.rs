//! What must hold at the end of a run: the histories' verdicts, durability, totals, the ring. What must be
//! at rest by then is in `aftermath.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use timestone_workload::check::{
    AnomalyKind, Promise, Verdict, check_bank, check_durability, check_last_values, check_list_append, check_redis,
    check_register, check_single_keys,
};
use timestone_workload::history::{History, Seen};
use timestone_workload::redis::RedisHistory;
use timestone_workload::{KeyIndex, WorkloadKind};

use crate::board::{Account, Board, Work};

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which property does not hold.
    pub property: &'static str,
    /// How that shows: the cycle, the key, the process.
    pub detail: String,
}

impl Finding {
    pub(crate) const fn new(property: &'static str, detail: String) -> Self {
        Self { property, detail }
    }
}

/// What a run can be held to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checks {
    /// What is promised about the order of transactions.
    pub(crate) promise: Promise,
    /// Whether everything was read back in the end.
    pub(crate) complete: bool,
    /// Whether acknowledged data was destroyed: then only that nothing was made up.
    pub(crate) damaged: bool,
    /// How far the clocks that judge expiry may have been wrong.
    pub(crate) clock_slack: Duration,
}

/// Checks everything that the history and the end of the data tell. How many transactions were looked at.
pub(crate) fn all(board: &Board, history: &History, checks: Checks, findings: &mut Vec<Finding>) -> u64 {
    let Checks { promise, complete, damaged, clock_slack } = checks;
    for what in board.all_wrong().into_iter().filter(|_| !damaged) {
        findings.push(Finding::new("answers", what));
    }
    let mut checked = 0;
    let mut judge = |property, verdict: Verdict| {
        checked += verdict.transactions as u64;
        let made_up = |kind| matches!(kind, AnomalyKind::Garbage | AnomalyKind::Malformed);
        for anomaly in verdict.anomalies.iter().filter(|anomaly| !damaged || made_up(anomaly.kind)) {
            findings.push(Finding::new(property, anomaly.to_string()));
        }
    };
    let found = board.all_found();
    match &board.work {
        Work::Ring { nodes, .. } => {
            if complete && let Err(what) = ring(&found, *nodes) {
                findings.push(Finding::new("ring", what));
            }
            // Transactions that turn a part of the ring are seen by those that walk all of it.
            return board.walked();
        }
        Work::Plans(spec) => match spec.kind {
            WorkloadKind::ListAppend => {
                judge("serializability", check_list_append(history, promise));
                if complete {
                    judge("durability and atomicity", check_durability(history, &lists(&found)));
                }
            }
            WorkloadKind::Bank => {
                judge("totals", check_bank(history, spec.keys, spec.total_balance()));
                if complete && let Err(what) = total(&found, spec.total_balance(), spec.delete_percent > 0) {
                    findings.push(Finding::new("totals", what));
                }
                if complete && let Err(what) = balances(&found, spec.initial_balance, &board.accounts()) {
                    findings.push(Finding::new("durability", what));
                }
            }
            // Registers, and fillings that are numbered as registers are.
            _ => {
                judge("serializability", check_register(history, promise));
                if board.singles {
                    let end = if complete { found.clone() } else { BTreeMap::new() };
                    let verdict = check_single_keys(history, &end, clock_slack);
                    // They are the same ones.
                    judge("order of each key", Verdict { transactions: 0, ..verdict });
                }
                if complete {
                    judge("durability", check_last_values(history, &found));
                }
            }
        },
    }
    checked
}

/// Checks what Redis clients were answered. How many calls were looked at.
pub(crate) fn redis(history: &RedisHistory, findings: &mut Vec<Finding>) -> u64 {
    let verdict = check_redis(history);
    findings.extend(verdict.anomalies.iter().map(|anomaly| Finding::new("redis", anomaly.to_string())));
    verdict.transactions as u64
}

fn lists(found: &BTreeMap<KeyIndex, Seen>) -> BTreeMap<KeyIndex, Vec<i64>> {
    let list = |(key, seen): (&KeyIndex, &Seen)| match seen {
        Seen::List(list) => Some((*key, list.clone())),
        Seen::Nothing | Seen::Integer(_) => None,
    };
    found.iter().filter_map(list).collect()
}

/// The accounts hold so much together; those that are closed, where some are, hold nothing.
fn total(found: &BTreeMap<KeyIndex, Seen>, expected: i64, may_be_closed: bool) -> Result<(), String> {
    let mut sum = 0i64;
    for (key, seen) in found {
        match seen {
            Seen::Integer(balance) => sum = sum.saturating_add(*balance),
            Seen::Nothing if may_be_closed => {}
            _ => return Err(format!("in the end, account {} holds no balance", key.0)),
        }
    }
    if sum == expected { Ok(()) } else { Err(format!("in the end, the accounts hold {sum} together, not {expected}")) }
}

/// Each account holds what it began with and all that was acknowledged; what is of unknown outcome may have been added or not.
fn balances(
    found: &BTreeMap<KeyIndex, Seen>,
    initial: i64,
    accounts: &BTreeMap<KeyIndex, Account>,
) -> Result<(), String> {
    let nothing = Account::default();
    for (key, seen) in found {
        let account = accounts.get(key).unwrap_or(&nothing);
        let certain = initial + account.acknowledged;
        let mut possible = BTreeSet::from([certain]);
        for delta in &account.unknown {
            possible.extend(possible.iter().map(|sum| sum + delta).collect::<Vec<_>>());
        }
        match seen {
            Seen::Integer(balance) if possible.contains(balance) => {}
            // Closed; whether it may be is judged with the total.
            Seen::Nothing if possible.contains(&0) => {}
            _ => {
                let (key, count) = (key.0, account.unknown.len());
                return Err(format!(
                    "in the end, account {key} holds {seen:?}; by what was acknowledged it holds {certain}, and the {count} additions \
                     of unknown outcome do not make up for it"
                ));
            }
        }
    }
    Ok(())
}

fn ring(found: &BTreeMap<KeyIndex, Seen>, nodes: u64) -> Result<(), String> {
    let mut at = 0;
    for length in 1..=nodes {
        match found.get(&KeyIndex(at)) {
            Some(Seen::Integer(next)) => at = *next as u64,
            _ => return Err(format!("in the end, key {at} of the ring names no next one")),
        }
        if at == 0 {
            return if length == nodes {
                Ok(())
            } else {
                Err(format!("in the end, the ring has {length} keys, not {nodes}"))
            };
        }
    }
    Err("in the end, the ring does not come back to its first key".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledged_addition_is_missed_and_an_unknown_one_may_be_there_or_not() {
        let accounts = [(KeyIndex(1), Account { acknowledged: -5, unknown: vec![3, -4, 3] })].into();
        let check = |balance| balances(&[(KeyIndex(1), Seen::Integer(balance))].into(), 100, &accounts);
        for right in [95, 98, 101, 91, 94, 97] {
            check(right).unwrap();
        }
        for wrong in [100, 96, 92, 104] {
            let said = check(wrong).unwrap_err();
            assert!(said.contains("account 1 ") && said.contains("95") && said.contains("the 3 additions"), "{said}");
        }
        let emptied = [(KeyIndex(3), Account { acknowledged: -100, unknown: Vec::new() })].into();
        balances(&[(KeyIndex(3), Seen::Nothing)].into(), 100, &emptied).unwrap();
        assert!(balances(&[(KeyIndex(1), Seen::Nothing)].into(), 100, &accounts).is_err(), "it held something");
        let untouched = balances(&[(KeyIndex(2), Seen::Integer(99))].into(), 100, &accounts);
        assert!(untouched.is_err(), "nobody added anything to it");
    }
}
