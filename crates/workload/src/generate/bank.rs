//! A bank: money moves between accounts, and its sum never changes.
//!
//! Four of five transactions transfer 1 to 5 between two accounts (and abort when the first would
//! fall below zero); the others read every account in one snapshot, whose sum the checker knows.
//! Some transfers move everything that an account has and close it: it is deleted, holds nothing,
//! and comes back with the next transfer to it.

use crate::{KeyIndex, Op, TxnPlan, WorkloadSpec};

use super::keys::Keys;

/// Share of transactions that read all accounts.
const READING_PERCENT: u64 = 20;
const MAX_AMOUNT: u64 = 5;

#[derive(Clone, Debug)]
pub(super) struct Bank {
    accounts: u64,
    close_percent: u64,
}

impl Bank {
    pub(super) const fn new(spec: &WorkloadSpec) -> Self {
        Self { accounts: spec.keys, close_percent: spec.delete_percent }
    }

    pub(super) fn next(&self, keys: &mut Keys, plan: &mut TxnPlan) {
        if keys.random.percent(READING_PERCENT) {
            plan.begin("total");
            plan.ops.extend((0..self.accounts).map(|account| Op::Get(KeyIndex(account))));
            return;
        }
        if self.close_percent > 0 && keys.random.percent(self.close_percent) {
            plan.begin("close");
            if let [key, into] = *keys.different(2) {
                plan.push(Op::Close { key, into });
            }
            return;
        }
        plan.begin("transfer");
        let amount = keys.random.between(1, MAX_AMOUNT) as i64;
        if let [from, to] = *keys.different(2) {
            plan.push(Op::Add { key: from, delta: -amount });
            plan.push(Op::Add { key: to, delta: amount });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Generator, WorkloadKind};

    #[test]
    fn transfers_move_money_and_totals_read_every_account() {
        let spec =
            WorkloadSpec { keys: 7, delete_percent: 0, ..WorkloadSpec::of(WorkloadKind::Bank) };
        let mut generator = Generator::new(&spec, 0, 1).unwrap();
        let mut plan = TxnPlan::default();
        let mut totals = 0;
        for _ in 0..10_000 {
            generator.next(&mut plan);
            if plan.is_read_only() {
                totals += 1;
                assert_eq!(
                    plan.ops,
                    (0..7).map(|account| Op::Get(KeyIndex(account))).collect::<Vec<_>>()
                );
                continue;
            }
            let [Op::Add { key: from, delta: out }, Op::Add { key: to, delta: into }] =
                plan.ops[..]
            else {
                panic!("{plan:?}")
            };
            assert!(from != to && out == -into && (1..=5).contains(&into));
        }
        assert!((1_800..2_200).contains(&totals), "{totals}");
    }
}
