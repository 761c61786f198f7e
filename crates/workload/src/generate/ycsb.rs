//! YCSB's core workloads A to F (Cooper et al. 2010), one or several operations to a
//! transaction.
//!
//! | workload | reads | else | keys |
//! |---|---|---|---|
//! | A | 50 % | update | zipf |
//! | B | 95 % | update | zipf |
//! | C | 100 % | | zipf |
//! | D | 95 % | insert | latest: zipf, counted back from the newest |
//! | E | 95 % scans | insert | zipf, and from there on 1 to 100 keys in their order |
//! | F | 50 % | read-modify-write | zipf |
//!
//! `get-put` is F without reads, on uniformly drawn keys.
//!
//! A transaction's operations touch different keys. D's inserts go to keys of the client's own;
//! what it reads as "latest" is the newest of its own inserts and, behind them, of the loaded keys,
//! so that a read never names a key that another client has not inserted yet.
//!
//! E's keys are spelled so that those which are inserted lie between the loaded ones, as YCSB's hashes do; scans
//! begin at a loaded key, and are as long as YCSB draws them: uniformly.
//!
//! None of them deletes, as published. Where deletions are asked for, they stand in the place of
//! some updates; D deletes what it would have read instead of inserting. E never deletes.

use crate::limits::MAX_SCAN_KEYS;
use crate::{KeyIndex, Op, TxnPlan, WorkloadSpec};

use super::keys::{Keys, UniqueNumbers};

#[derive(Clone, Debug)]
pub(super) struct Ycsb {
    other_percent: u64,
    other: Other,
    ops_per_txn: u64,
}

/// What is done where nothing is just read.
#[derive(Clone, Debug)]
enum Other {
    Update,
    Modify,
    Insert {
        numbers: UniqueNumbers,
        inserted: u64,
        delete_percent: u64,
    },
    /// As Insert; and what is read is scanned.
    ScanOrInsert {
        numbers: UniqueNumbers,
    },
}

impl Ycsb {
    pub(super) fn updating(percent: u64, spec: &WorkloadSpec) -> Self {
        Self {
            other_percent: percent,
            other: Other::Update,
            ops_per_txn: u64::from(spec.ops_per_txn),
        }
    }

    pub(super) fn modifying(percent: u64, spec: &WorkloadSpec) -> Self {
        Self {
            other_percent: percent,
            other: Other::Modify,
            ops_per_txn: u64::from(spec.ops_per_txn),
        }
    }

    pub(super) fn inserting(percent: u64, spec: &WorkloadSpec, numbers: UniqueNumbers) -> Self {
        let other = Other::Insert { numbers, inserted: 0, delete_percent: spec.delete_percent };
        Self { other_percent: percent, other, ops_per_txn: u64::from(spec.ops_per_txn) }
    }

    pub(super) fn scanning(percent: u64, spec: &WorkloadSpec, numbers: UniqueNumbers) -> Self {
        let other = Other::ScanOrInsert { numbers };
        Self { other_percent: percent, other, ops_per_txn: u64::from(spec.ops_per_txn) }
    }

    pub(super) fn next(&mut self, keys: &mut Keys, plan: &mut TxnPlan) {
        plan.begin("read");
        let others =
            (0..self.ops_per_txn).filter(|_| keys.random.percent(self.other_percent)).count();
        let reads = self.ops_per_txn as usize - others;
        if let Other::Insert { numbers, inserted, delete_percent } = &mut self.other {
            for _ in 0..reads {
                plan.push(Op::Get(latest(keys, numbers, *inserted)));
            }
            for _ in 0..others {
                if *delete_percent > 0 && keys.random.percent(*delete_percent) {
                    plan.name = "delete";
                    plan.push(Op::Delete(latest(keys, numbers, *inserted)));
                    continue;
                }
                plan.name = "insert";
                plan.push(Op::Put(KeyIndex(keys.count() + numbers.take())));
                *inserted += 1;
            }
            return;
        }
        if let Other::ScanOrInsert { numbers } = &mut self.other {
            plan.name = if others > 0 { "insert" } else { "scan" };
            for _ in 0..reads {
                let count = keys.random.between(1, u64::from(MAX_SCAN_KEYS)) as u32;
                plan.push(Op::Scan { from: keys.one(), count });
            }
            for _ in 0..others {
                plan.push(Op::Put(KeyIndex(keys.count() + numbers.take())));
            }
            return;
        }
        let picked = keys.different(self.ops_per_txn);
        plan.ops.extend(picked.iter().take(reads).map(|&key| Op::Get(key)));
        for &key in picked.iter().skip(reads) {
            if matches!(self.other, Other::Modify) {
                plan.name = "read_modify_write";
                plan.push(Op::Get(key));
            } else {
                plan.name = "update";
            }
            plan.push(Op::Put(key));
        }
    }
}

/// The key that lies a drawn rank behind the newest one.
fn latest(keys: &mut Keys, numbers: &UniqueNumbers, inserted: u64) -> KeyIndex {
    let back = keys.rank();
    match back.checked_sub(inserted) {
        None => KeyIndex(keys.count() + numbers.taken(back)),
        // The rank lies below the count, so the difference does.
        Some(behind) => KeyIndex(keys.count() - 1 - behind),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Generator;

    fn plans(name: &str, ops_per_txn: u32) -> Vec<TxnPlan> {
        let spec = WorkloadSpec { keys: 10_000, ops_per_txn, ..WorkloadSpec::named(name).unwrap() };
        let mut generator = Generator::new(&spec, 1, 4).unwrap();
        let mut plan = TxnPlan::default();
        let mut next = || {
            generator.next(&mut plan);
            plan.clone()
        };
        std::iter::repeat_with(&mut next).take(20_000).collect()
    }

    fn read_only_percent(plans: &[TxnPlan]) -> f64 {
        100.0 * plans.iter().filter(|plan| plan.is_read_only()).count() as f64 / plans.len() as f64
    }

    #[test]
    fn the_shares_of_reads_are_ycsbs() {
        for (name, percent) in [
            ("ycsb-a", 50.0),
            ("ycsb-b", 95.0),
            ("ycsb-c", 100.0),
            ("ycsb-d", 95.0),
            ("ycsb-e", 95.0),
            ("ycsb-f", 50.0),
        ] {
            let seen = read_only_percent(&plans(name, 1));
            assert!((seen - percent).abs() < 1.5, "{name}: {seen}");
        }
    }

    #[test]
    fn get_put_gets_and_puts_one_key_in_each_transaction() {
        for plan in plans("get-put", 1) {
            let key = plan.ops[0].key();
            assert_eq!(plan.ops, [Op::Get(key), Op::Put(key)]);
        }
    }

    #[test]
    fn f_reads_what_it_writes() {
        for plan in plans("ycsb-f", 1).iter().filter(|plan| !plan.is_read_only()) {
            let key = plan.ops[0].key();
            assert_eq!(plan.ops, [Op::Get(key), Op::Put(key)]);
        }
    }

    #[test]
    fn e_scans_one_to_a_hundred_keys_from_loaded_ones_on_and_inserts_new_ones() {
        let (mut lengths, mut inserted) = (BTreeSet::new(), BTreeSet::new());
        let mut starts = std::collections::BTreeMap::<KeyIndex, u32>::new();
        for plan in plans("ycsb-e", 1) {
            match plan.ops[..] {
                [Op::Scan { from, count }] => {
                    assert!(from.0 < 10_000 && plan.is_read_only());
                    lengths.insert(count);
                    *starts.entry(from).or_default() += 1;
                }
                [Op::Put(key)] => {
                    assert!(key.0 >= 10_000 && (key.0 - 10_000) % 4 == 1);
                    assert!(inserted.insert(key), "inserted twice");
                }
                ref other => panic!("{other:?}"),
            }
        }
        assert_eq!(lengths, (1..=100).collect(), "all lengths are drawn");
        assert!(*starts.values().max().unwrap() > 500, "some keys are hot");
    }

    #[test]
    fn d_reads_only_what_was_loaded_or_inserted_by_itself() {
        let mut inserted = BTreeSet::new();
        let (mut fresh, mut reads) = (0, 0);
        for plan in plans("ycsb-d", 1) {
            for op in plan.ops {
                match op {
                    Op::Put(key) => {
                        assert!(key.0 >= 10_000 && (key.0 - 10_000) % 4 == 1);
                        assert!(inserted.insert(key), "inserted twice");
                    }
                    other => {
                        reads += 1;
                        fresh += u32::from(inserted.contains(&other.key()));
                        assert!(other.key().0 < 10_000 || inserted.contains(&other.key()));
                    }
                }
            }
        }
        assert!(fresh * 2 > reads, "most reads are of late inserts: {fresh} of {reads}");
    }

    #[test]
    fn a_transaction_of_several_operations_touches_different_keys() {
        for plan in plans("ycsb-a", 4) {
            let keys: BTreeSet<_> = plan.ops.iter().map(|op| op.key()).collect();
            assert_eq!((plan.ops.len(), keys.len()), (4, 4));
        }
    }
}
