//! Transactional YCSB as SkimpyFTL's evaluation runs it (§4): a social network, where the data of popular
//! users is read more often, and users write at different rates.
//!
//! | transaction | share | keys | Zipf's α |
//! |---|---|---|---|
//! | read | 90 % | 1–10 gets | the specification's (0.99 there) |
//! | update | 10 % | 1–5 keys, each read and written | 0.75 |
//!
//! The same keys are popular among both.

use crate::{Op, TxnPlan, WorkloadSpec};

use super::keys::Keys;

/// Of a hundred transactions.
const READ_PERCENT: u64 = 90;
/// Contention of what writes.
const UPDATE_ZIPF: f64 = 0.75;
/// What is drawn for updates has nothing to do with what is drawn for reads.
const UPDATE_SEED: u64 = 0x5ca1_ab1e;

#[derive(Clone, Debug)]
pub(super) struct Social {
    of_updates: Keys,
}

impl Social {
    pub(super) fn new(spec: &WorkloadSpec, client: u32) -> Self {
        let of_updates =
            WorkloadSpec { zipf: UPDATE_ZIPF, seed: spec.seed ^ UPDATE_SEED, ..spec.clone() };
        Self { of_updates: Keys::new(&of_updates, client) }
    }

    pub(super) fn next(&mut self, keys: &mut Keys, plan: &mut TxnPlan) {
        if keys.random.percent(READ_PERCENT) {
            plan.begin("read");
            let wanted = keys.random.between(1, 10);
            plan.ops.extend(keys.different(wanted).iter().map(|&key| Op::Get(key)));
            return;
        }
        plan.begin("update");
        let wanted = keys.random.between(1, 5);
        for &key in self.of_updates.different(wanted) {
            plan.push(Op::Get(key));
            plan.push(Op::Put(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Generator, WorkloadKind};

    #[test]
    fn a_tenth_updates_and_the_popular_keys_are_popular_among_both() {
        let spec =
            WorkloadSpec { keys: 1000, zipf: 0.99, ..WorkloadSpec::of(WorkloadKind::YcsbSocial) };
        let mut generator = Generator::new(&spec, 0, 1).unwrap();
        let (mut plan, mut updates) = (TxnPlan::default(), 0);
        let mut drawn = [BTreeMap::new(), BTreeMap::new()];
        for _ in 0..20_000 {
            generator.next(&mut plan);
            let is_update = !plan.is_read_only();
            updates += u32::from(is_update);
            let gets: Vec<_> =
                plan.ops.iter().filter(|op| matches!(op, Op::Get(_))).map(|op| op.key()).collect();
            assert!((1..=if is_update { 5 } else { 10 }).contains(&gets.len()));
            assert_eq!(plan.ops.len(), gets.len() * (1 + usize::from(is_update)));
            for key in gets {
                *drawn[usize::from(is_update)].entry(key).or_insert(0u32) += 1;
            }
        }
        assert!((1_800..2_200).contains(&updates), "{updates}");
        let [most_read, most_written] =
            drawn.map(|of| of.into_iter().max_by_key(|one| one.1).unwrap().0);
        assert_eq!(most_read, most_written);
    }
}
