//! How long it takes to check a history of 100 000 transactions: seconds, for a right one and for
//! wrong ones.
//!
//! `cargo bench -p timestone-workload --bench check`. Sixteen processes run list-append or register
//! transactions on ten keys (or on three) against a store in memory, each taking effect at one
//! moment between its invocation and its completion. A stale history answers some read-only
//! transactions from long ago, so that real time has cycles thousands of transactions wide.

use std::collections::BTreeMap;
use std::time::Instant;

use timestone_types::Timestamp;
use timestone_workload::check::{Promise, check_list_append, check_register};
use timestone_workload::history::{Event, EventKind, History, MicroOp, Process, Seen, invocation};
use timestone_workload::{Generator, KeyIndex, Op, Random, TxnPlan, WorkloadKind, WorkloadSpec};

const TRANSACTIONS: usize = 100_000;
const PROCESSES: u32 = 16;

type Lists = BTreeMap<KeyIndex, Vec<i64>>;

fn execute(plan: &TxnPlan, state: &mut Lists, is_register: bool) -> Vec<MicroOp> {
    let read = |state: &Lists, key| match state
        .get(&key)
        .and_then(|list| list.last().map(|last| (list, last)))
    {
        Some((_, last)) if is_register => Seen::Integer(*last),
        Some((list, _)) => Seen::List(list.clone()),
        None => Seen::Nothing,
    };
    plan.ops
        .iter()
        .map(|op| match *op {
            Op::Get(key) => MicroOp::Read { key, seen: read(state, key) },
            Op::Append { key, element } => {
                state.entry(key).or_default().push(element);
                MicroOp::Append { key, element }
            }
            Op::Write { key, value } => {
                state.insert(key, vec![value]);
                MicroOp::Write { key, value: Some(value) }
            }
            _ => unreachable!("neither workload plans these"),
        })
        .collect()
}

fn history(kind: WorkloadKind, keys: u64, stale_percent: u64) -> History {
    let spec =
        WorkloadSpec { keys, delete_percent: 0, expire_percent: 0, ..WorkloadSpec::of(kind) };
    let mut generators: Vec<Generator> = (0..PROCESSES)
        .map(|process| Generator::new(&spec, process, PROCESSES).expect("the parameters are valid"))
        .collect();
    let mut random = Random::new(1);
    let (mut state, mut old) = (Lists::new(), Lists::new());
    let mut open: Vec<Option<(TxnPlan, Option<Vec<MicroOp>>)>> = vec![None; PROCESSES as usize];
    let (mut history, mut begun, mut ops) = (History::default(), 0, Vec::new());
    while begun < TRANSACTIONS || open.iter().any(Option::is_some) {
        let index = history.events.len() as u64;
        if index.is_multiple_of(20_000) {
            old.clone_from(&state);
        }
        let place = random.below(u64::from(PROCESSES)) as usize;
        let event = |kind, ops| Event {
            kind,
            process: Process(place as u64),
            index,
            time: Timestamp::from_nanos(index),
            ops,
        };
        match open[place].take() {
            None if begun == TRANSACTIONS => {}
            None => {
                begun += 1;
                let mut plan = TxnPlan::default();
                generators[place].next(&mut plan);
                invocation(&plan, Timestamp::ZERO, &mut ops);
                history.events.push(event(EventKind::Invoke, ops.clone()));
                open[place] = Some((plan, None));
            }
            Some((plan, None)) => {
                let is_stale = plan.is_read_only() && random.percent(stale_percent);
                let base = if is_stale { &mut old } else { &mut state };
                let done = execute(&plan, base, kind == WorkloadKind::Register);
                open[place] = Some((plan, Some(done)));
            }
            Some((_, Some(done))) => history.events.push(event(EventKind::Ok, done)),
        }
    }
    history
}

fn main() {
    for (kind, keys, stale_percent) in [
        (WorkloadKind::ListAppend, 10, 0),
        (WorkloadKind::ListAppend, 3, 0),
        (WorkloadKind::ListAppend, 10, 1),
        (WorkloadKind::Register, 10, 0),
        (WorkloadKind::Register, 10, 1),
    ] {
        let history = history(kind, keys, stale_percent);
        for promise in [Promise::Serializable, Promise::RealTime] {
            let begun = Instant::now();
            let verdict = if kind == WorkloadKind::Register {
                check_register(&history, promise)
            } else {
                check_list_append(&history, promise)
            };
            let seconds = begun.elapsed().as_secs_f64();
            let found = verdict.anomalies.len() + verdict.unreported;
            println!(
                "{} on {keys} keys, {stale_percent} % stale, {:13} {} transactions in {seconds:.2} \
                 s, {found} anomalies",
                kind.name(),
                promise.name(),
                verdict.transactions,
            );
        }
    }
}
