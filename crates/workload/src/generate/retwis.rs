//! Retwis, the clone of Twitter that transactional stores are measured with.
//!
//! | transaction | MILANA Table 2: gets / puts | as TAPIR's prototype runs it |
//! |---|---|---|
//! | add user | 1 / 2 | get k₀; put k₀, k₁, k₂ |
//! | follow | 2 / 2 | (get, put) × 2 |
//! | post | 3 / 5 | (get, put) × 3, put × 2 |
//! | timeline | 1–10 / 0 | 1–10 gets |
//!
//! MILANA's shares are 5, 10, 35 and 50 % (or 5, 10, 10 and 75 %), TAPIR's 5, 15, 30 and 50 %. In
//! the former a transaction's keys differ, and what was read is written before other keys are; in
//! the latter they are drawn independently and sorted.

use crate::{Op, TxnPlan};

use super::keys::Keys;

#[derive(Clone, Debug)]
pub(super) struct Retwis {
    /// Below the first percentage: add user, below the second: follow, below the third: post, else
    /// timeline.
    below: [u64; 3],
    is_tapir: bool,
}

impl Retwis {
    /// With these shares of add user, follow and post; the rest is timelines.
    pub(super) const fn milana(shares: [u64; 3]) -> Self {
        Self {
            below: [shares[0], shares[0] + shares[1], shares[0] + shares[1] + shares[2]],
            is_tapir: false,
        }
    }

    pub(super) const fn tapir() -> Self {
        Self { below: [5, 20, 50], is_tapir: true }
    }

    pub(super) fn next(&self, keys: &mut Keys, plan: &mut TxnPlan) {
        let drawn = keys.random.below(100);
        let place = self.below.iter().position(|&below| drawn < below);
        let (name, gets, puts) = match place {
            Some(0) if self.is_tapir => ("add_user", 1, 3),
            Some(0) => ("add_user", 1, 2),
            Some(1) => ("follow", 2, 2),
            Some(_) => ("post", 3, 5),
            None => ("timeline", keys.random.between(1, 10), 0),
        };
        plan.begin(name);
        let wanted = gets.max(puts);
        if self.is_tapir {
            for (at, &key) in keys.independent_sorted(wanted).iter().enumerate() {
                let at = at as u64;
                if at < gets {
                    plan.push(Op::Get(key));
                }
                if at < puts {
                    plan.push(Op::Put(key));
                }
            }
        } else {
            let picked = keys.different(wanted);
            plan.ops.extend(picked.iter().take(gets as usize).map(|&key| Op::Get(key)));
            plan.ops.extend(picked.iter().take(puts as usize).map(|&key| Op::Put(key)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Generator, WorkloadSpec};

    /// Share in percent, and the pairs of (gets, puts) that occurred.
    type Observed = (f64, Vec<(usize, usize)>);

    fn observe(name: &str) -> BTreeMap<&'static str, Observed> {
        const TRANSACTIONS: u32 = 40_000;
        let spec = WorkloadSpec::named(name).unwrap();
        let mut generator = Generator::new(&spec, 0, 1).unwrap();
        let mut plan = TxnPlan::default();
        let mut seen: BTreeMap<_, Observed> = BTreeMap::new();
        for _ in 0..TRANSACTIONS {
            generator.next(&mut plan);
            let gets = plan.ops.iter().filter(|op| matches!(op, Op::Get(_))).count();
            let entry = seen.entry(plan.name).or_default();
            entry.0 += 100.0 / f64::from(TRANSACTIONS);
            let shape = (gets, plan.ops.len() - gets);
            if !entry.1.contains(&shape) {
                entry.1.push(shape);
            }
            if name != "retwis-tapir" {
                let mut read: Vec<_> = plan.ops[..gets].iter().map(|op| op.key()).collect();
                let written: Vec<_> = plan.ops[gets..].iter().map(|op| op.key()).collect();
                assert!(written.is_empty() || written.starts_with(&read));
                read.dedup();
                assert_eq!(read.len(), gets);
            }
        }
        seen
    }

    fn assert_mix(name: &str, shares: [f64; 4], puts_of_add_user: usize) {
        let mut seen = observe(name);
        let expected = [
            ("add_user", vec![(1, puts_of_add_user)]),
            ("follow", vec![(2, 2)]),
            ("post", vec![(3, 5)]),
            ("timeline", (1..=10).map(|gets| (gets, 0)).collect()),
        ];
        for ((transaction, shapes), share) in expected.into_iter().zip(shares) {
            let (seen_share, mut seen_shapes) = seen.remove(transaction).unwrap();
            assert!((seen_share - share).abs() < 1.0, "{name} {transaction}: {seen_share} %");
            seen_shapes.sort_unstable();
            assert_eq!(seen_shapes, shapes, "{name} {transaction}");
        }
        assert!(seen.is_empty());
    }

    #[test]
    fn the_mixes_are_those_of_the_papers() {
        assert_mix("retwis", [5.0, 10.0, 35.0, 50.0], 2);
        assert_mix("retwis-75", [5.0, 10.0, 10.0, 75.0], 2);
        assert_mix("retwis-tapir", [5.0, 15.0, 30.0, 50.0], 3);
    }

    #[test]
    fn tapirs_follow_reads_and_writes_key_by_key_in_order() {
        let mut generator =
            Generator::new(&WorkloadSpec::named("retwis-tapir").unwrap(), 0, 1).unwrap();
        let mut plan = TxnPlan::default();
        while plan.name != "follow" {
            generator.next(&mut plan);
        }
        let (first, second) = (plan.ops[0].key(), plan.ops[2].key());
        assert!(first <= second);
        assert_eq!(plan.ops, [Op::Get(first), Op::Put(first), Op::Get(second), Op::Put(second)]);
    }
}
