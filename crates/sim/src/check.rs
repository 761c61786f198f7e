//! What must hold at the end of a run: the histories' verdicts, durability, totals, the ring. What
//! must be at rest by then is in `quiescence.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use timestone_workload::check::{
    AnomalyKind, CheckResult, KeptHistory, Loss, Promise, check_bank, check_durability,
    check_last_values, check_list_append, check_redis, check_register, check_single_keys,
    history_until,
};
use timestone_workload::history::{History, Seen};
use timestone_workload::redis::RedisHistory;
use timestone_workload::{KeyIndex, WorkloadKind};

use crate::board::{Account, Board, ClientWork};
use crate::session::VANISHED;

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

/// How far what was acknowledged can be relied on, by what went wrong.
#[derive(Clone, Debug)]
pub(crate) enum Trust {
    /// In all but what servers without a log may have lost.
    Except(Vec<Loss>),
    /// A disk lied about syncs, and lost power: anything may be gone, but nothing is made up, and
    /// nothing that aborted is there.
    LiedTo,
    /// What was stored was destroyed: nothing is made up.
    Damaged,
}

impl Trust {
    /// Whether nothing may be lost.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Self::Except(losses) if losses.is_empty())
    }

    fn losses(&self) -> &[Loss] {
        if let Self::Except(losses) = self { losses } else { &[] }
    }

    /// Whether an anomaly must not be, whatever was lost.
    const fn holds(&self, kind: AnomalyKind) -> bool {
        match self {
            Self::Except(_) => true,
            Self::LiedTo => {
                matches!(
                    kind,
                    AnomalyKind::Garbage
                        | AnomalyKind::Malformed
                        | AnomalyKind::G1a
                        | AnomalyKind::G1b
                )
            }
            Self::Damaged => matches!(kind, AnomalyKind::Garbage | AnomalyKind::Malformed),
        }
    }
}

/// What a run can be held to.
#[derive(Clone, Debug)]
pub(crate) struct Checks {
    /// What is promised about the order of transactions.
    pub(crate) promise: Promise,
    /// Whether everything was read back in the end.
    pub(crate) complete: bool,
    /// How far what was acknowledged can be relied on.
    pub(crate) trust: Trust,
    /// How far the clocks that judge expiry may have been wrong.
    pub(crate) clock_slack: Duration,
}

/// Checks everything that the history and the end of the data tell. How many transactions were
/// looked at.
pub(crate) fn all(
    board: &Board,
    history: &History,
    checks: &Checks,
    findings: &mut Vec<Finding>,
) -> u64 {
    let Checks { promise, complete, clock_slack, ref trust } = *checks;
    let (losses, is_whole) = (trust.losses(), trust.is_whole());
    // What looks at many keys at once, or takes whatever it finds for the last, can be judged until
    // the first loss only.
    let until = losses.iter().map(|loss| loss.to).min();
    let before = until.map(|at| history_until(history, at));
    let before = before.as_ref().unwrap_or(history);
    for what in board.all_wrong() {
        let is_lost = what.contains(VANISHED) || matches!(board.work, ClientWork::Ring { .. });
        if !matches!(trust, Trust::Damaged) && (is_whole || !is_lost) {
            findings.push(Finding::new("answers", what));
        }
    }
    let revived = board.keyspaces.revived(history);
    findings.extend(revived.into_iter().map(|words| Finding::new("memory", words)));
    let mut checked = 0;
    let mut judge = |property, verdict: CheckResult| {
        checked += verdict.transactions as u64;
        for anomaly in verdict.anomalies.iter().filter(|anomaly| trust.holds(anomaly.kind)) {
            findings.push(Finding::new(property, anomaly.to_string()));
        }
    };
    let made_up = |verdict: CheckResult| {
        let is_made_up = |kind| Trust::LiedTo.holds(kind);
        let anomalies =
            verdict.anomalies.into_iter().filter(|anomaly| is_made_up(anomaly.kind)).collect();
        // They are looked at once more, without what may be lost.
        CheckResult { transactions: 0, anomalies, ..verdict }
    };
    let found = board.data.all_found();
    match &board.work {
        ClientWork::Ring { nodes, .. } => {
            if complete
                && is_whole
                && let Err(what) = ring(&found, *nodes)
            {
                findings.push(Finding::new("ring", what));
            }
            // Transactions that turn a part of the ring are seen by those that walk all of it.
            return board.data.walked();
        }
        ClientWork::Plans(spec) => match spec.kind {
            WorkloadKind::ListAppend => {
                let kept = (!losses.is_empty()).then(|| KeptHistory::of(history, losses));
                let (told, end) = kept.as_ref().map_or_else(
                    || (history, found.clone()),
                    |kept| (&kept.history, kept.end(&found)),
                );
                if !is_whole {
                    judge("serializability", made_up(check_list_append(history, promise)));
                }
                judge("serializability", check_list_append(told, promise));
                if complete {
                    judge("durability and atomicity", check_durability(told, &lists(&end)));
                }
            }
            WorkloadKind::Bank if matches!(trust, Trust::LiedTo) => {}
            WorkloadKind::Bank => {
                judge("totals", check_bank(before, spec.keys, spec.total_balance()));
                let complete = complete && is_whole;
                if complete
                    && let Err(what) = total(&found, spec.total_balance(), spec.delete_percent > 0)
                {
                    findings.push(Finding::new("totals", what));
                }
                if complete
                    && let Err(what) =
                        balances(&found, spec.initial_balance, &board.recorder.accounts())
                {
                    findings.push(Finding::new("durability", what));
                }
            }
            // Registers, and fillings that are numbered as registers are.
            _ => {
                let kept = (!losses.is_empty()).then(|| KeptHistory::of(history, losses));
                let (told, end) = kept.as_ref().map_or_else(
                    || (history, found.clone()),
                    |kept| (&kept.history, kept.end(&found)),
                );
                if !is_whole {
                    judge("serializability", made_up(check_register(history, promise)));
                }
                judge("serializability", check_register(told, promise));
                if board.settings.singles && !matches!(trust, Trust::LiedTo) {
                    let end = if complete && is_whole { found.clone() } else { BTreeMap::new() };
                    let verdict = check_single_keys(before, &end, clock_slack);
                    // They are the same ones.
                    judge("order of each key", CheckResult { transactions: 0, ..verdict });
                }
                if complete {
                    judge("durability", check_last_values(told, &end));
                }
            }
        },
    }
    checked
}

/// Checks what Redis clients were answered. How many calls were looked at.
/// What may be lost takes its part with it: of a history with losses, what was answered before the
/// first one is judged.
pub(crate) fn redis(history: &RedisHistory, trust: &Trust, findings: &mut Vec<Finding>) -> u64 {
    let Trust::Except(losses) = trust else { return 0 };
    let cut = losses.iter().map(|loss| loss.to).min().map(|at| history.until(at));
    let verdict = check_redis(cut.as_ref().unwrap_or(history));
    findings
        .extend(verdict.anomalies.iter().map(|anomaly| Finding::new("redis", anomaly.to_string())));
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
fn total(
    found: &BTreeMap<KeyIndex, Seen>,
    expected: i64,
    may_be_closed: bool,
) -> Result<(), String> {
    let mut sum = 0i64;
    for (key, seen) in found {
        match seen {
            Seen::Integer(balance) => sum = sum.saturating_add(*balance),
            Seen::Nothing if may_be_closed => {}
            _ => return Err(format!("in the end, account {} holds no balance", key.0)),
        }
    }
    if sum == expected {
        Ok(())
    } else {
        Err(format!("in the end, the accounts hold {sum} together, not {expected}"))
    }
}

/// Each account holds what it began with and all that was acknowledged; what is of unknown outcome
/// may have been added or not.
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
                    "in the end, account {key} holds {seen:?}; by what was acknowledged it holds \
                     {certain}, and the {count} additions \
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
        let accounts =
            [(KeyIndex(1), Account { acknowledged: -5, unknown: vec![3, -4, 3] })].into();
        let check =
            |balance| balances(&[(KeyIndex(1), Seen::Integer(balance))].into(), 100, &accounts);
        for right in [95, 98, 101, 91, 94, 97] {
            check(right).unwrap();
        }
        for wrong in [100, 96, 92, 104] {
            let said = check(wrong).unwrap_err();
            assert!(
                said.contains("account 1 ")
                    && said.contains("95")
                    && said.contains("the 3 additions"),
                "{said}"
            );
        }
        let emptied = [(KeyIndex(3), Account { acknowledged: -100, unknown: Vec::new() })].into();
        balances(&[(KeyIndex(3), Seen::Nothing)].into(), 100, &emptied).unwrap();
        assert!(
            balances(&[(KeyIndex(1), Seen::Nothing)].into(), 100, &accounts).is_err(),
            "it held something"
        );
        let untouched = balances(&[(KeyIndex(2), Seen::Integer(99))].into(), 100, &accounts);
        assert!(untouched.is_err(), "nobody added anything to it");
    }
}
