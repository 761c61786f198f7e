//! Workloads whose histories betray the order of everything: list-append and register.
//!
//! List-append: a transaction of one to `ops_per_txn` steps, each an append of an element that
//! nobody else appends, or a reading. A list that was read tells every version before it, so the
//! checker knows the order of all writes. Keys retire after `appends_per_key` appends, lest lists
//! grow for ever; clients reckon this from their own share, and so roughly agree. Some appends
//! delete the list instead, after reading it, so that the checker knows what was deleted; whoever
//! appends next begins a new list.
//!
//! Register: integers that nobody else writes, or deletions, always after reading what they
//! replace, so that the order of versions can be traced; else readings.

use crate::{KeyIndex, Op, TxnPlan, WorkloadSpec};

use super::keys::{Keys, UniqueNumbers};

#[derive(Clone, Debug)]
pub(super) struct ListAppend {
    numbers: UniqueNumbers,
    appended: u64,
    clients: u64,
    appends_per_key: u64,
    ops_per_txn: u64,
    delete_percent: u64,
}

impl ListAppend {
    pub(super) fn new(spec: &WorkloadSpec, numbers: UniqueNumbers, clients: u32) -> Self {
        Self {
            numbers,
            appended: 0,
            clients: u64::from(clients),
            appends_per_key: u64::from(spec.appends_per_key),
            ops_per_txn: u64::from(spec.ops_per_txn),
            delete_percent: spec.delete_percent,
        }
    }

    pub(super) fn next(&mut self, keys: &mut Keys, plan: &mut TxnPlan) {
        plan.begin("append");
        // One key retires whenever all clients together have filled one; the next number takes its
        // place.
        let retired = self.appended * self.clients / self.appends_per_key;
        for _ in 0..keys.random.between(1, self.ops_per_txn) {
            let key = KeyIndex(retired + keys.rank());
            if !keys.random.percent(50) {
                plan.push(Op::Get(key));
            } else if self.delete_percent > 0 && keys.random.percent(self.delete_percent) {
                plan.push(Op::Get(key));
                plan.push(Op::Delete(key));
            } else {
                self.appended += 1;
                plan.push(Op::Append { key, element: self.numbers.take() as i64 + 1 });
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Register {
    numbers: UniqueNumbers,
    ops_per_txn: u64,
}

impl Register {
    pub(super) fn new(spec: &WorkloadSpec, numbers: UniqueNumbers) -> Self {
        Self { numbers, ops_per_txn: u64::from(spec.ops_per_txn) }
    }

    pub(super) fn next(&mut self, keys: &mut Keys, plan: &mut TxnPlan) {
        plan.begin("register");
        let wanted = keys.random.between(1, self.ops_per_txn);
        let writes = keys.random.below(wanted + 1) as usize;
        for (at, &key) in keys.different(wanted).iter().enumerate() {
            plan.push(Op::Get(key));
            if at < writes {
                plan.push(Op::Write { key, value: self.numbers.take() as i64 + 1 });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::{Generator, WorkloadKind};

    fn plans(kind: WorkloadKind, client: u32) -> Vec<TxnPlan> {
        let usual = WorkloadSpec::of(kind);
        let spec = WorkloadSpec {
            keys: 4,
            appends_per_key: 20,
            delete_percent: 0,
            expire_percent: 0,
            ..usual
        };
        let mut generator = Generator::new(&spec, client, 2).unwrap();
        let mut plan = TxnPlan::default();
        let mut next = || {
            generator.next(&mut plan);
            plan.clone()
        };
        std::iter::repeat_with(&mut next).take(1_000).collect()
    }

    #[test]
    fn elements_are_unique_and_keys_retire() {
        let mut elements = BTreeSet::new();
        let mut per_key: BTreeMap<u64, u64> = BTreeMap::new();
        for plan in
            plans(WorkloadKind::ListAppend, 0).into_iter().chain(plans(WorkloadKind::ListAppend, 1))
        {
            assert!((1..=4).contains(&plan.ops.len()));
            for op in plan.ops {
                if let Op::Append { key, element } = op {
                    assert!(elements.insert(element), "{element} is appended twice");
                    *per_key.entry(key.0).or_default() += 1;
                }
            }
        }
        assert!(
            per_key.len() > 50 && per_key.values().all(|&appends| appends < 200),
            "{per_key:?}"
        );
    }

    #[test]
    fn a_list_is_read_before_it_is_deleted() {
        let spec =
            WorkloadSpec { delete_percent: 30, ..WorkloadSpec::of(WorkloadKind::ListAppend) };
        let mut generator = Generator::new(&spec, 0, 1).unwrap();
        let (mut plan, mut deletes) = (TxnPlan::default(), 0);
        for _ in 0..1_000 {
            generator.next(&mut plan);
            for (at, op) in
                plan.ops.iter().enumerate().filter(|(_, op)| matches!(op, Op::Delete(_)))
            {
                deletes += 1;
                assert_eq!(plan.ops[at - 1], Op::Get(op.key()));
            }
        }
        assert!(deletes > 200, "{deletes}");
    }

    #[test]
    fn registers_are_deleted_as_often_as_wanted() {
        let spec = WorkloadSpec {
            keys: 4,
            delete_percent: 25,
            expire_percent: 0,
            ..WorkloadSpec::of(WorkloadKind::Register)
        };
        let mut generator = Generator::new(&spec, 0, 1).unwrap();
        let (mut plan, mut writes, mut deletes) = (TxnPlan::default(), 0, 0);
        for _ in 0..2_000 {
            generator.next(&mut plan);
            writes += plan.ops.iter().filter(|op| op.writes()).count();
            deletes += plan.ops.iter().filter(|op| matches!(op, Op::Delete(_))).count();
        }
        assert!((writes / 5..writes * 3 / 10).contains(&deletes), "{deletes} of {writes}");
    }

    #[test]
    fn registers_are_read_before_they_are_written() {
        let mut values = BTreeSet::new();
        for plan in
            plans(WorkloadKind::Register, 0).into_iter().chain(plans(WorkloadKind::Register, 1))
        {
            for (at, op) in plan.ops.iter().enumerate() {
                if let Op::Write { key, value } = *op {
                    assert_eq!(plan.ops[at - 1], Op::Get(key));
                    assert!(values.insert(value));
                }
            }
        }
        assert!(values.len() > 500);
    }
}
