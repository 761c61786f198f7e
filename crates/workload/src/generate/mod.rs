//! Generators: from a specification and a client's number to an endless stream of transactions.
//!
//! ```text
//!   WorkloadSpec ─► Keys (zipf + strewing + random) ─┬─► retwis  ─┐
//!   client number ─► its own stream of randomness    ├─► ycsb     ├─► TxnPlan
//!                                                    ├─► social   │
//!                                                    ├─► bank     │
//!                                                    └─► history ─┘
//! ```
//!
//! # Invariants
//! - Two clients of one run draw from unrelated streams, and share the hot keys.
//! - What one client inserts, appends or writes, no other client of the run does.

mod bank;
mod history;
mod keys;
mod retwis;
mod social;
mod ycsb;

use crate::{Op, TxnPlan, WorkloadError, WorkloadKind, WorkloadSpec};

use bank::Bank;
use history::{ListAppend, Register};
use keys::{Keys, UniqueNumbers};
use retwis::Retwis;
use social::Social;
use ycsb::Ycsb;

/// The transactions of one client.
#[derive(Clone, Debug)]
pub struct Generator {
    keys: Keys,
    mix: Mix,
    /// Of a hundred writes.
    delete_percent: u64,
    expire_percent: u64,
}

/// Shortest and longest time to live of what expires, in milliseconds: it comes and goes within a
/// run, however short.
const TIME_TO_LIVE_MS: (u64, u64) = (50, 500);

#[derive(Clone, Debug)]
enum Mix {
    Retwis(Retwis),
    Ycsb(Ycsb),
    Social(Social),
    Bank(Bank),
    ListAppend(ListAppend),
    Register(Register),
}

impl Generator {
    /// The transactions of client `client` out of `clients`, numbered from 0.
    ///
    /// # Errors
    /// [`WorkloadError::Parameter`] when the specification makes no sense.
    pub fn new(spec: &WorkloadSpec, client: u32, clients: u32) -> Result<Self, WorkloadError> {
        spec.validate()?;
        if client >= clients {
            return Err(WorkloadError::Parameter {
                name: "clients",
                given: clients.to_string(),
                demand: "every client's number lies below it",
            });
        }
        let unique = UniqueNumbers::new(client, clients);
        let mix = match spec.kind {
            WorkloadKind::Retwis => Mix::Retwis(Retwis::milana([5, 10, 35])),
            WorkloadKind::Retwis75 => Mix::Retwis(Retwis::milana([5, 10, 10])),
            WorkloadKind::RetwisTapir => Mix::Retwis(Retwis::tapir()),
            WorkloadKind::YcsbA => Mix::Ycsb(Ycsb::updating(50, spec)),
            WorkloadKind::YcsbB => Mix::Ycsb(Ycsb::updating(5, spec)),
            WorkloadKind::YcsbC => Mix::Ycsb(Ycsb::updating(0, spec)),
            WorkloadKind::YcsbD => Mix::Ycsb(Ycsb::inserting(5, spec, unique)),
            WorkloadKind::YcsbE => Mix::Ycsb(Ycsb::scanning(5, spec, unique)),
            WorkloadKind::YcsbF => Mix::Ycsb(Ycsb::modifying(50, spec)),
            WorkloadKind::YcsbSocial => Mix::Social(Social::new(spec, client)),
            WorkloadKind::GetPut => Mix::Ycsb(Ycsb::modifying(100, spec)),
            WorkloadKind::Bank => Mix::Bank(Bank::new(spec)),
            WorkloadKind::ListAppend => Mix::ListAppend(ListAppend::new(spec, unique, clients)),
            WorkloadKind::Register => Mix::Register(Register::new(spec, unique)),
        };
        let (keys, expire_percent) = (Keys::new(spec, client), spec.expire_percent);
        // The others have their own way to delete.
        let delete_percent = match mix {
            Mix::Register(_) => spec.delete_percent,
            Mix::Ycsb(_) if spec.kind != WorkloadKind::YcsbD => spec.delete_percent,
            _ => 0,
        };
        Ok(Self { keys, mix, delete_percent, expire_percent })
    }

    /// Replaces `plan` by this client's next transaction.
    pub fn next(&mut self, plan: &mut TxnPlan) {
        match &mut self.mix {
            Mix::Retwis(mix) => mix.next(&mut self.keys, plan),
            Mix::Ycsb(mix) => mix.next(&mut self.keys, plan),
            Mix::Social(mix) => mix.next(&mut self.keys, plan),
            Mix::Bank(mix) => mix.next(&mut self.keys, plan),
            Mix::ListAppend(mix) => mix.next(&mut self.keys, plan),
            Mix::Register(mix) => mix.next(&mut self.keys, plan),
        }
        // Nothing is drawn where nothing comes of it: the plans of a seed stay what they were.
        if self.delete_percent > 0 {
            self.delete(plan);
        }
        if self.expire_percent > 0 {
            self.expire(plan);
        }
    }

    /// Makes deletions of some writes.
    fn delete(&mut self, plan: &mut TxnPlan) {
        for op in &mut plan.ops {
            if matches!(op, Op::Write { .. } | Op::Put(_))
                && self.keys.random.percent(self.delete_percent)
            {
                *op = Op::Delete(op.key());
            }
        }
    }

    /// Has some writes expire.
    fn expire(&mut self, plan: &mut TxnPlan) {
        let random = &mut self.keys.random;
        for op in &mut plan.ops {
            let is_write = matches!(op, Op::Write { .. } | Op::Put(_));
            if !is_write || !random.percent(self.expire_percent) {
                continue;
            }
            let millis = random.between(TIME_TO_LIVE_MS.0, TIME_TO_LIVE_MS.1) as u32;
            *op = match *op {
                Op::Write { key, value } => Op::WriteFor { key, value, millis },
                other => Op::PutFor { key: other.key(), millis },
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_and_clients_give_equal_plans_and_others_do_not() {
        for name in WorkloadKind::names() {
            let spec = WorkloadSpec::named(name).unwrap();
            let plans = |seed, client| {
                let mut generator =
                    Generator::new(&WorkloadSpec { seed, ..spec.clone() }, client, 3).unwrap();
                let mut plan = TxnPlan::default();
                let mut next = || {
                    generator.next(&mut plan);
                    plan.clone()
                };
                std::iter::repeat_with(&mut next).take(50).collect::<Vec<_>>()
            };
            assert_eq!(plans(1, 0), plans(1, 0), "{name}");
            assert_ne!(plans(1, 0), plans(1, 1), "{name}");
            assert_ne!(plans(1, 0), plans(2, 0), "{name}");
        }
    }

    #[test]
    fn what_is_to_be_deleted_and_to_expire_is_and_published_mixes_do_neither() {
        for name in WorkloadKind::names() {
            let usual = WorkloadSpec { keys: 100, ..WorkloadSpec::named(name).unwrap() };
            let count = |spec: &WorkloadSpec| {
                let mut generator = Generator::new(spec, 0, 1).unwrap();
                let (mut plan, mut writes, mut deletes, mut expiries) =
                    (TxnPlan::default(), 0, 0, 0);
                for _ in 0..4_000 {
                    generator.next(&mut plan);
                    let count = |fits: fn(&&Op) -> bool| plan.ops.iter().filter(fits).count();
                    // A transfer is two steps, and so is a deletion of a list.
                    writes += count(|op| op.writes());
                    deletes += count(|op| matches!(op, Op::Delete(_) | Op::Close { .. }));
                    expiries += count(|op| matches!(op, Op::PutFor { .. } | Op::WriteFor { .. }));
                }
                (writes, deletes, expiries)
            };
            let is_published =
                ["ycsb", "retwis", "get-put"].iter().any(|mix| name.starts_with(mix));
            let (_, deletes, expiries) = count(&usual);
            assert_eq!((deletes, expiries) == (0, 0), is_published, "{name}");
            if !usual.kind.may_delete() || name == "ycsb-c" {
                continue;
            }
            let expire_percent = if usual.kind.may_expire() { 30 } else { 0 };
            let (writes, deletes, expiries) =
                count(&WorkloadSpec { delete_percent: 40, expire_percent, ..usual.clone() });
            assert!((writes / 5..writes / 2).contains(&deletes), "{name}: {deletes} of {writes}");
            assert_eq!(
                expiries > writes / 10,
                usual.kind.may_expire(),
                "{name}: {expiries} of {writes}"
            );
        }
    }

    #[test]
    fn no_plan_is_empty_and_every_key_is_a_loaded_or_a_new_one() {
        for name in WorkloadKind::names() {
            let spec = WorkloadSpec { keys: 100, ..WorkloadSpec::named(name).unwrap() };
            let mut generator = Generator::new(&spec, 1, 2).unwrap();
            let mut plan = TxnPlan::default();
            for _ in 0..2_000 {
                generator.next(&mut plan);
                assert!(!plan.ops.is_empty() && !plan.name.is_empty(), "{name}");
                let grows = matches!(
                    spec.kind,
                    WorkloadKind::YcsbD | WorkloadKind::YcsbE | WorkloadKind::ListAppend
                );
                assert!(grows || plan.ops.iter().all(|op| op.key().0 < 100), "{name}: {plan:?}");
            }
        }
    }

    #[test]
    fn a_client_must_be_one_of_the_clients() {
        let spec = WorkloadSpec::of(WorkloadKind::Retwis);
        assert!(Generator::new(&spec, 3, 3).is_err());
        assert!(Generator::new(&spec, 0, 0).is_err());
    }
}
