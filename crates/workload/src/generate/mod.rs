//! Generators: from a specification and a client's number to an endless stream of transactions.
//!
//! ```text
//!   WorkloadSpec ─► Keys (zipf + strewing + random) ─┬─► retwis ─┐
//!   client number ─► its own stream of randomness    ├─► ycsb    ├─► TxnPlan
//!                                                    ├─► bank    │
//!                                                    └─► history ┘
//! ```
//!
//! # Invariants
//! - Two clients of one run draw from unrelated streams, and share the hot keys.
//! - What one client inserts, appends or writes, no other client of the run does.

mod bank;
mod history;
mod keys;
mod retwis;
mod ycsb;

use crate::{TxnPlan, WorkloadError, WorkloadKind, WorkloadSpec};

use bank::Bank;
use history::{ListAppend, Register};
use keys::{Keys, UniqueNumbers};
use retwis::Retwis;
use ycsb::Ycsb;

/// The transactions of one client.
#[derive(Clone, Debug)]
pub struct Generator {
    keys: Keys,
    mix: Mix,
}

#[derive(Clone, Debug)]
enum Mix {
    Retwis(Retwis),
    Ycsb(Ycsb),
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
            WorkloadKind::YcsbF => Mix::Ycsb(Ycsb::modifying(50, spec)),
            WorkloadKind::Bank => Mix::Bank(Bank::new(spec)),
            WorkloadKind::ListAppend => Mix::ListAppend(ListAppend::new(spec, unique, clients)),
            WorkloadKind::Register => Mix::Register(Register::new(spec, unique)),
        };
        Ok(Self { keys: Keys::new(spec, client), mix })
    }

    /// Replaces `plan` by this client's next transaction.
    pub fn next(&mut self, plan: &mut TxnPlan) {
        match &mut self.mix {
            Mix::Retwis(mix) => mix.next(&mut self.keys, plan),
            Mix::Ycsb(mix) => mix.next(&mut self.keys, plan),
            Mix::Bank(mix) => mix.next(&mut self.keys, plan),
            Mix::ListAppend(mix) => mix.next(&mut self.keys, plan),
            Mix::Register(mix) => mix.next(&mut self.keys, plan),
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
                let mut generator = Generator::new(&WorkloadSpec { seed, ..spec.clone() }, client, 3).unwrap();
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
    fn no_plan_is_empty_and_every_key_is_a_loaded_or_a_new_one() {
        for name in WorkloadKind::names() {
            let spec = WorkloadSpec { keys: 100, ..WorkloadSpec::named(name).unwrap() };
            let mut generator = Generator::new(&spec, 1, 2).unwrap();
            let mut plan = TxnPlan::default();
            for _ in 0..2_000 {
                generator.next(&mut plan);
                assert!(!plan.ops.is_empty() && !plan.name.is_empty(), "{name}");
                let grows = matches!(spec.kind, WorkloadKind::YcsbD | WorkloadKind::ListAppend);
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
