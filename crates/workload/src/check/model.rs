//! The checkers against stores whose faults are known: a correct one must never be accused, a
//! broken one always.
//!
//! A store in memory runs the generators' plans by several processes at once. Each transaction
//! takes effect at one moment between its invocation and its completion, unless a fault is planted;
//! some answers get lost.

use std::collections::BTreeMap;

use timestone_types::Timestamp;

use super::{
    AnomalyKind, CheckResult, Promise, check_bank, check_durability, check_list_append,
    check_register,
};
use crate::history::{
    Completion, History, HistoryRecorder, MicroOp, Seen, SessionSlot, invocation, read,
};
use crate::{Generator, KeyIndex, Op, Random, TxnPlan, WorkloadKind, WorkloadSpec};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// Reads come from a snapshot at the invocation, and nothing is validated.
    NoValidation,
    /// Reads come from a snapshot at the invocation; only writes are validated.
    WritesOnly,
    /// Some read-only transactions are answered from an old state.
    StaleReads,
    /// Some acknowledged transactions do not take effect.
    LostWrites,
    /// Some transactions take effect with their first write only.
    Torn,
}

const SLOTS: u32 = 8;
/// From this seed on, plans delete.
const DELETING: u64 = 100;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Value {
    Integer(i64),
    List(Vec<i64>),
    Absent,
}

type Registers = BTreeMap<KeyIndex, Value>;

struct ModelTransaction {
    plan: TxnPlan,
    snapshot: Registers,
    effect: Option<Option<Vec<MicroOp>>>,
}

struct World {
    random: Random,
    state: Registers,
    old: Registers,
    fault: Fault,
}

impl World {
    /// Runs a plan on a snapshot; `None` when it aborts. Writes go to the state.
    fn execute(&mut self, open: &ModelTransaction) -> Option<Vec<MicroOp>> {
        let at_begin = matches!(self.fault, Fault::NoValidation | Fault::WritesOnly);
        let is_stale =
            self.fault == Fault::StaleReads && open.plan.is_read_only() && self.random.percent(30);
        let base = if at_begin {
            &open.snapshot
        } else if is_stale {
            &self.old
        } else {
            &self.state
        };
        if self.fault == Fault::WritesOnly {
            let changed = |op: &Op| op.writes() && base.get(&op.key()) != self.state.get(&op.key());
            if open.plan.ops.iter().any(changed) {
                return None;
            }
        }
        let mut own: Registers = BTreeMap::new();
        let mut ops = Vec::new();
        for op in &open.plan.ops {
            let key = op.key();
            let held = own.get(&key).or_else(|| base.get(&key)).cloned();
            match *op {
                Op::Get(_) => {
                    let seen = match held {
                        None | Some(Value::Absent) => Seen::Nothing,
                        Some(Value::Integer(value)) => Seen::Integer(value),
                        Some(Value::List(list)) => Seen::List(list),
                    };
                    ops.push(MicroOp::Read { key, seen });
                }
                Op::Append { element, .. } => {
                    let mut list =
                        if let Some(Value::List(list)) = held { list } else { Vec::new() };
                    list.push(element);
                    own.insert(key, Value::List(list));
                    ops.push(MicroOp::Append { key, element });
                }
                Op::Write { value, .. } => {
                    own.insert(key, Value::Integer(value));
                    ops.push(MicroOp::Write { key, value: Some(value) });
                }
                Op::Add { delta, .. } => {
                    let (balance, seen) = balance(held);
                    ops.push(MicroOp::Read { key, seen });
                    if balance + delta < 0 {
                        return None;
                    }
                    own.insert(key, Value::Integer(balance + delta));
                    ops.push(MicroOp::Write { key, value: Some(balance + delta) });
                }
                Op::Delete(_) => {
                    own.insert(key, Value::Absent);
                    ops.push(MicroOp::Write { key, value: None });
                }
                Op::Close { into, .. } => {
                    let ((moved, seen), (other, seen_there)) =
                        (balance(held), balance(base.get(&into).cloned()));
                    if seen == Seen::Nothing {
                        return None;
                    }
                    ops.push(MicroOp::Read { key, seen });
                    ops.push(MicroOp::Read { key: into, seen: seen_there });
                    ops.push(MicroOp::Write { key: into, value: Some(other + moved) });
                    ops.push(MicroOp::Write { key, value: None });
                    own.insert(into, Value::Integer(other + moved));
                    own.insert(key, Value::Absent);
                }
                Op::Scan { .. } | Op::Put(_) | Op::PutFor { .. } | Op::WriteFor { .. } => {
                    panic!("nothing is opaque, scanned or expires here")
                }
            }
        }
        match self.fault {
            Fault::LostWrites if self.random.percent(2) => {}
            Fault::Torn if self.random.percent(5) => self.state.extend(own.into_iter().take(1)),
            _ => self.state.extend(own),
        }
        Some(ops)
    }
}

/// What an account holds, and how a history tells it.
fn balance(held: Option<Value>) -> (i64, Seen) {
    match held {
        Some(Value::Integer(balance)) => (balance, Seen::Integer(balance)),
        _ => (0, Seen::Nothing),
    }
}

fn run(kind: WorkloadKind, fault: Fault, seed: u64, transactions: usize) -> (History, Registers) {
    // Keys are deleted under the higher seeds.
    let delete_percent = if seed >= DELETING { 20 } else { 0 };
    let spec =
        WorkloadSpec { keys: 6, seed, delete_percent, expire_percent: 0, ..WorkloadSpec::of(kind) };
    let mut generators: Vec<Generator> =
        (0..SLOTS).map(|slot| Generator::new(&spec, slot, SLOTS).unwrap()).collect();
    let mut open: Vec<Option<ModelTransaction>> = (0..SLOTS).map(|_| None).collect();
    let mut recorder = HistoryRecorder::new(Vec::new(), SLOTS);
    let loaded =
        (0..spec.loaded_keys()).map(|key| (KeyIndex(key), Value::Integer(spec.initial_balance)));
    let mut world = World {
        random: Random::derived(seed, 99),
        state: loaded.collect(),
        old: Registers::new(),
        fault,
    };
    world.old = world.state.clone();
    let (mut begun, mut now, mut ops) = (0, 0, Vec::new());
    while begun < transactions || open.iter().any(Option::is_some) {
        now += 1;
        if now % 200 == 0 {
            world.old = world.state.clone();
        }
        let slot = SessionSlot(world.random.below(u64::from(SLOTS)) as u32);
        let place = slot.0 as usize;
        let at = Timestamp::from_nanos(now);
        match open[place].take() {
            None if begun == transactions => {}
            None => {
                begun += 1;
                let mut plan = TxnPlan::default();
                generators[place].next(&mut plan);
                invocation(&plan, at, &mut ops);
                recorder.invoke(slot, at, &ops).unwrap();
                let snapshot = if matches!(fault, Fault::NoValidation | Fault::WritesOnly) {
                    world.state.clone()
                } else {
                    Registers::new()
                };
                open[place] = Some(ModelTransaction { plan, snapshot, effect: None });
            }
            Some(mut txn) if txn.effect.is_none() => {
                txn.effect = Some(world.execute(&txn));
                open[place] = Some(txn);
            }
            Some(txn) => {
                let effect = txn.effect.flatten();
                let fate = match &effect {
                    _ if world.random.percent(2) => Completion::Unknown,
                    Some(ops) => Completion::Committed(ops),
                    None => Completion::Aborted,
                };
                recorder.complete(slot, at, fate).unwrap();
            }
        }
    }
    (
        read(&String::from_utf8(recorder.finish(Timestamp::from_nanos(now)).unwrap()).unwrap())
            .unwrap(),
        world.state,
    )
}

fn lists(state: &Registers) -> BTreeMap<KeyIndex, Vec<i64>> {
    let list =
        |value: &Value| if let Value::List(list) = value { list.clone() } else { Vec::new() };
    state.iter().map(|(key, value)| (*key, list(value))).collect()
}

fn appended(fault: Fault, seed: u64) -> CheckResult {
    check_list_append(&run(WorkloadKind::ListAppend, fault, seed, 1_500).0, Promise::RealTime)
}

#[test]
fn a_correct_store_is_never_accused() {
    for seed in (0..12).chain(DELETING..DELETING + 12) {
        let (history, state) = run(WorkloadKind::ListAppend, Fault::None, seed, 1_500);
        for promise in Promise::ALL {
            let verdict = check_list_append(&history, promise);
            assert!(verdict.is_valid() && verdict.transactions > 1_300, "seed {seed}: {verdict}");
        }
        let durable = check_durability(&history, &lists(&state));
        assert!(durable.is_valid(), "seed {seed}: {durable}");
        let registers = check_register(
            &run(WorkloadKind::Register, Fault::None, seed, 1_500).0,
            Promise::RealTime,
        );
        assert!(registers.is_valid(), "seed {seed}: {registers}");
        let bank = check_bank(&run(WorkloadKind::Bank, Fault::None, seed, 1_500).0, 6, 6_000);
        // From an account that is closed nobody takes anything: more transfers abort.
        let fewest = if seed < DELETING { 1_000 } else { 800 };
        assert!(bank.is_valid() && bank.transactions > fewest, "seed {seed}: {bank}");
    }
}

#[test]
fn validation_left_out_is_caught() {
    for seed in (0..5).chain(DELETING..DELETING + 5) {
        assert!(!appended(Fault::NoValidation, seed).is_valid(), "seed {seed}");
        let registers = check_register(
            &run(WorkloadKind::Register, Fault::NoValidation, seed, 1_500).0,
            Promise::Serializable,
        );
        assert!(registers.has(AnomalyKind::LostUpdate), "seed {seed}: {registers}");
        let bank =
            check_bank(&run(WorkloadKind::Bank, Fault::NoValidation, seed, 1_500).0, 6, 6_000);
        assert!(bank.has(AnomalyKind::WrongTotal), "seed {seed}: {bank}");
    }
}

#[test]
fn snapshot_isolation_is_told_from_serializability() {
    for seed in (0..5).chain(DELETING..DELETING + 5) {
        let verdict = appended(Fault::WritesOnly, seed);
        assert!(verdict.has(AnomalyKind::G2Item), "seed {seed}: {verdict}");
        let weaker = [
            AnomalyKind::G0,
            AnomalyKind::G1a,
            AnomalyKind::G1b,
            AnomalyKind::G1c,
            AnomalyKind::GSingle,
            AnomalyKind::LostUpdate,
        ];
        assert!(!weaker.into_iter().any(|kind| verdict.has(kind)), "seed {seed}: {verdict}");
    }
}

#[test]
fn stale_reads_are_caught_in_real_time() {
    for seed in (0..5).chain(DELETING..DELETING + 5) {
        let (history, _) = run(WorkloadKind::ListAppend, Fault::StaleReads, seed, 1_500);
        let verdict = check_list_append(&history, Promise::RealTime);
        assert!(!verdict.is_valid(), "seed {seed}");
        assert!(
            check_list_append(&history, Promise::Serializable).is_valid(),
            "an old snapshot is serializable: seed {seed}"
        );
    }
}

#[test]
fn lost_and_torn_writes_are_caught_in_the_end() {
    for seed in (0..5).chain(DELETING..DELETING + 5) {
        for fault in [Fault::LostWrites, Fault::Torn] {
            let (history, state) = run(WorkloadKind::ListAppend, fault, seed, 1_500);
            let verdict = check_durability(&history, &lists(&state));
            assert!(verdict.has(AnomalyKind::LostWrite), "{fault:?} seed {seed}: {verdict}");
        }
        let bank = check_bank(&run(WorkloadKind::Bank, Fault::Torn, seed, 1_500).0, 6, 6_000);
        assert!(bank.has(AnomalyKind::WrongTotal), "seed {seed}: {bank}");
    }
}

#[test]
fn a_hundred_thousand_transactions_are_no_burden() {
    let (history, _) = run(WorkloadKind::ListAppend, Fault::None, 1, 100_000);
    let verdict = check_list_append(&history, Promise::RealTime);
    assert!(verdict.is_valid() && verdict.transactions > 95_000, "{verdict}");
}
