//! What must hold at the end of a run: the histories' verdicts, durability, totals, the ring. What
//! must be at rest by then is in `quiescence.rs`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use timestone_workload::check::{
    AnomalyKind, CheckResult, KeptHistory, Loss, Promise, check_bank, check_durability,
    check_last_values, check_list_append, check_redis, check_register, check_single_keys,
    history_until,
};
use timestone_workload::history::{History, Seen};
use timestone_workload::redis::{RedisHistory, Reply};
use timestone_workload::{KeyIndex, WorkloadKind, WorkloadSpec};

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
    let is_whole = checks.trust.is_whole();
    for what in board.all_wrong() {
        let is_lost = what.contains(VANISHED) || matches!(board.work, ClientWork::Ring { .. });
        if !matches!(checks.trust, Trust::Damaged) && (is_whole || !is_lost) {
            findings.push(Finding::new("answers", what));
        }
    }
    let revived = board.keyspaces.revived(history);
    findings.extend(revived.into_iter().map(|words| Finding::new("memory", words)));
    let mut judging = Judging { board, history, checks, findings, checked: 0 };
    match &board.work {
        ClientWork::Ring { nodes, .. } => judging.ring(*nodes),
        ClientWork::Plans(spec) => match spec.kind {
            WorkloadKind::ListAppend => judging.list_append(),
            WorkloadKind::Bank if matches!(checks.trust, Trust::LiedTo) => {}
            WorkloadKind::Bank => judging.bank(spec),
            // Registers, and fillings that are numbered as registers are.
            _ => judging.registers(),
        },
    }
    judging.checked
}

/// The verdicts about one history.
struct Judging<'a> {
    board: &'a Board,
    history: &'a History,
    checks: &'a Checks,
    findings: &'a mut Vec<Finding>,
    /// Transactions that were looked at.
    checked: u64,
}

impl Judging<'_> {
    fn take(&mut self, property: &'static str, verdict: CheckResult) {
        self.checked += verdict.transactions as u64;
        let trust = &self.checks.trust;
        for anomaly in verdict.anomalies.iter().filter(|anomaly| trust.holds(anomaly.kind)) {
            self.findings.push(Finding::new(property, anomaly.to_string()));
        }
    }

    /// Takes what was made up and nothing else: the transactions are looked at once more, without
    /// what may be lost.
    fn take_made_up(&mut self, property: &'static str, verdict: CheckResult) {
        let is_made_up = |kind| Trust::LiedTo.holds(kind);
        let anomalies =
            verdict.anomalies.into_iter().filter(|anomaly| is_made_up(anomaly.kind)).collect();
        self.take(property, CheckResult { transactions: 0, anomalies, ..verdict });
    }

    fn find(&mut self, property: &'static str, verdict: Result<(), String>) {
        self.findings.extend(verdict.err().map(|what| Finding::new(property, what)));
    }

    /// Whether everything was read in the end, and nothing may be lost.
    fn is_complete(&self) -> bool {
        self.checks.complete && self.checks.trust.is_whole()
    }

    /// What looks at many keys at once, or takes whatever it finds for the last, can be judged
    /// until the first loss only.
    fn before_losses(&self) -> Cow<'_, History> {
        let until = self.checks.trust.losses().iter().map(|loss| loss.to).min();
        until.map_or(Cow::Borrowed(self.history), |at| Cow::Owned(history_until(self.history, at)))
    }

    /// The history and what was found in the end, without what may be lost.
    fn without_losses(&self) -> (Cow<'_, History>, BTreeMap<KeyIndex, Seen>) {
        let (losses, found) = (self.checks.trust.losses(), self.board.data.all_found());
        if losses.is_empty() {
            return (Cow::Borrowed(self.history), found);
        }
        let kept = KeptHistory::of(self.history, losses);
        let end = kept.end(&found);
        (Cow::Owned(kept.history), end)
    }

    fn ring(&mut self, nodes: u64) {
        if self.is_complete() {
            self.find("ring", ring(&self.board.data.all_found(), nodes));
        }
        // Transactions that turn a part of the ring are seen by those that walk all of it.
        self.checked = self.board.data.walked();
    }

    fn list_append(&mut self) {
        let promise = self.checks.promise;
        if !self.checks.trust.is_whole() {
            self.take_made_up("serializability", check_list_append(self.history, promise));
        }
        let (told, end) = self.without_losses();
        let order = check_list_append(&told, promise);
        let durability = self.checks.complete.then(|| check_durability(&told, &lists(&end)));
        self.take("serializability", order);
        if let Some(durability) = durability {
            self.take("durability and atomicity", durability);
        }
    }

    fn bank(&mut self, spec: &WorkloadSpec) {
        let totals = check_bank(&self.before_losses(), spec.keys, spec.total_balance());
        self.take("totals", totals);
        if self.is_complete() {
            let found = self.board.data.all_found();
            let may_be_closed = spec.delete_percent > 0;
            self.find("totals", total(&found, spec.total_balance(), may_be_closed));
            let accounts = self.board.recorder.accounts();
            self.find("durability", balances(&found, spec.initial_balance, &accounts));
        }
    }

    fn registers(&mut self) {
        let Checks { promise, clock_slack, complete, ref trust } = *self.checks;
        if !trust.is_whole() {
            self.take_made_up("serializability", check_register(self.history, promise));
        }
        let (told, end) = self.without_losses();
        let order = check_register(&told, promise);
        let last = complete.then(|| check_last_values(&told, &end));
        self.take("serializability", order);
        if self.board.settings.singles && !matches!(trust, Trust::LiedTo) {
            let found = self.board.data.all_found();
            let end = if self.is_complete() { found } else { BTreeMap::new() };
            let verdict = check_single_keys(&self.before_losses(), &end, clock_slack);
            // They are the same ones.
            self.take("order of each key", CheckResult { transactions: 0, ..verdict });
        }
        if let Some(last) = last {
            self.take("durability", last);
        }
    }
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

/// Checks that KEYS was answered in the order of keys, each once: where the keyspace has one.
pub(crate) fn redis_order(history: &RedisHistory, findings: &mut Vec<Finding>) {
    for call in history.calls.iter().filter(|call| call.request.name() == "KEYS") {
        let Some((_, Reply::Array(keys))) = &call.answered else { continue };
        let is_next = |pair: &[Reply; 2]| match pair {
            [Reply::Text(one), Reply::Text(next)] => one < next,
            _ => false,
        };
        if !keys.array_windows().all(is_next) {
            let words = format!("{} is answered in no order: {:?}", call.request, call.answered);
            findings.push(Finding::new("redis", words));
        }
    }
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
