//! The checkers against brute force: on histories of a few transactions, every serial order is
//! tried.
//!
//! A history is drawn from a tape of choices (so that a failing one shrinks): transactions run in a
//! random serial order, overlap at random, some end unknown or aborted, and some readings are then
//! falsified. Where a last transaction reads every key, the order of versions is known, and the
//! checker must agree with the oracle exactly; else it must not accuse what some order explains.

use std::collections::BTreeMap;

use proptest::prelude::*;
use timestone_types::Timestamp;

use super::{CheckResult, Promise, check_list_append, check_register};
use crate::KeyIndex;
use crate::history::{Event, EventKind, History, MicroOp, Process, Seen};

const KEYS: u64 = 3;
const PROCESSES: usize = 3;

/// Choices, one byte each; zeros when it has ended.
struct Tape<'t>(std::slice::Iter<'t, u8>);

impl HistoryShape {
    const fn is_of_lists(self) -> bool {
        matches!(self, Self::Lists | Self::DeletedLists)
    }
}

impl Tape<'_> {
    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % bound
    }

    fn percent(&mut self, percent: usize) -> bool {
        self.below(100) >= 100 - percent
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HistoryShape {
    Lists,
    /// Some appends delete the list instead, most of them after reading it.
    DeletedLists,
    /// Every write follows a reading of its key.
    Registers,
    /// Some do not, and some are deletions.
    BlindRegisters,
}

#[derive(Clone, Debug)]
struct Txn {
    process: Process,
    ops: Vec<MicroOp>,
    end: EventKind,
    invoked: usize,
    completed: usize,
}

type Lists = BTreeMap<KeyIndex, Vec<i64>>;

/// Runs a transaction on a state, a register being the last element of its list; `fill` takes what
/// it reads, or it is compared.
fn execute(kind: HistoryShape, ops: &mut [MicroOp], state: &mut Lists, fill: bool) -> bool {
    for op in ops {
        match op {
            MicroOp::Append { key, element } => state.entry(*key).or_default().push(*element),
            MicroOp::Write { key, value: Some(value) } => {
                state.entry(*key).or_default().push(*value)
            }
            MicroOp::Write { key, value: None } => _ = state.remove(key),
            MicroOp::WriteUntil { .. } => panic!("nothing expires here"),
            MicroOp::Read { key, seen } => {
                let list = state.get(key).map_or(&[][..], Vec::as_slice);
                let found = match (kind, list.last()) {
                    (kind, _) if kind.is_of_lists() => Seen::List(list.to_vec()),
                    (_, None) => Seen::Nothing,
                    (_, Some(value)) => Seen::Integer(*value),
                };
                if fill {
                    *seen = found;
                } else if *seen != found {
                    return false;
                }
            }
        }
    }
    true
}

fn draw(kind: HistoryShape, tape: &mut Tape<'_>, with_last: bool) -> Vec<Txn> {
    let count = 2 + tape.below(4);
    let mut next_value = 0;
    let mut txns: Vec<Txn> = Vec::new();
    for _ in 0..count {
        let mut ops = Vec::new();
        for _ in 0..1 + tape.below(3) {
            let key = KeyIndex(tape.below(KEYS as usize) as u64);
            let read = MicroOp::Read { key, seen: Seen::Nothing };
            next_value += 1;
            match (kind, tape.percent(50)) {
                (HistoryShape::Lists, true) => {
                    ops.push(MicroOp::Append { key, element: next_value })
                }
                (HistoryShape::DeletedLists, true) if !tape.percent(35) => {
                    ops.push(MicroOp::Append { key, element: next_value })
                }
                (HistoryShape::DeletedLists, true) => {
                    ops.extend(tape.percent(80).then_some(read));
                    ops.push(MicroOp::Write { key, value: None });
                }
                (_, false) => ops.push(read),
                (HistoryShape::Registers, true) => {
                    ops.extend([read, MicroOp::Write { key, value: Some(next_value) }])
                }
                (HistoryShape::BlindRegisters, true) => {
                    ops.extend(tape.percent(50).then_some(read));
                    let value = (!tape.percent(20)).then_some(next_value);
                    ops.push(MicroOp::Write { key, value });
                }
            }
        }
        // What an unknown transaction read of a register is unknown too, and so is the place of
        // what it wrote.
        let end = match tape.below(10) {
            9 if kind != HistoryShape::Registers => EventKind::Info,
            8 => EventKind::Fail,
            _ => EventKind::Ok,
        };
        let process = Process(tape.below(PROCESSES) as u64);
        txns.push(Txn { process, ops, end, invoked: 0, completed: 0 });
    }
    interleave(&mut txns, tape);
    // Executed in the order of this permutation; whatever ended unknown may not have been.
    let mut order: Vec<usize> = (0..txns.len()).collect();
    for at in (1..order.len()).rev() {
        let other = if tape.percent(40) { tape.below(at + 1) } else { at };
        order.swap(at, other);
    }
    let mut state = Lists::new();
    for at in order {
        let txn = &mut txns[at];
        let takes_effect = match txn.end {
            EventKind::Fail => tape.percent(5),
            EventKind::Info => tape.percent(60),
            EventKind::Ok | EventKind::Invoke => true,
        };
        let mut unseen = state.clone();
        execute(kind, &mut txn.ops, if takes_effect { &mut state } else { &mut unseen }, true);
    }
    let values: Vec<i64> = state.values().flatten().copied().chain([99]).collect();
    for txn in &mut txns {
        for op in &mut txn.ops {
            if let MicroOp::Read { seen, .. } = op
                && tape.percent(20)
            {
                falsify(seen, values[tape.below(values.len())], tape);
            }
        }
    }
    if with_last {
        let read = |key| MicroOp::Read { key: KeyIndex(key), seen: Seen::Nothing };
        let mut ops: Vec<MicroOp> = (0..KEYS).map(read).collect();
        execute(kind, &mut ops, &mut state, true);
        let completed = 4 * txns.len();
        txns.push(Txn { process: Process(9), ops, end: EventKind::Ok, invoked: 0, completed });
    }
    txns
}

fn falsify(seen: &mut Seen, value: i64, tape: &mut Tape<'_>) {
    match seen {
        Seen::List(list) => match tape.below(3) {
            0 => list.truncate(list.len().saturating_sub(1)),
            1 => list.push(value),
            _ => list.reverse(),
        },
        Seen::Nothing => *seen = Seen::Integer(value),
        Seen::Integer(_) => {
            *seen = if tape.percent(50) { Seen::Nothing } else { Seen::Integer(value) }
        }
    }
}

/// Gives each transaction its interval: processes take turns at random, each with one transaction
/// after another. Places begin at 1, as the last reader is invoked first of all.
fn interleave(txns: &mut [Txn], tape: &mut Tape<'_>) {
    let mut open: [Option<usize>; PROCESSES] = [None; PROCESSES];
    let mut now = 1;
    let mut waiting: Vec<usize> = (0..txns.len()).collect();
    while !waiting.is_empty() || open.iter().any(Option::is_some) {
        let process = (0..PROCESSES).map(|at| (at + now + tape.below(PROCESSES)) % PROCESSES).find(
            |process| {
                open[*process].is_some()
                    || waiting.iter().any(|at| txns[*at].process.0 as usize == *process)
            },
        );
        let Some(process) = process else { continue };
        match open[process].take() {
            Some(at) => txns[at].completed = now,
            None => {
                let place = waiting.iter().position(|at| txns[*at].process.0 as usize == process);
                let Some(at) = place.map(|place| waiting.remove(place)) else { continue };
                txns[at].invoked = now;
                open[process] = Some(at);
            }
        }
        now += 1;
    }
}

fn history(txns: &[Txn]) -> History {
    let mut events: Vec<(usize, Event)> = Vec::new();
    for txn in txns {
        let event = |kind, ops: Vec<MicroOp>| Event {
            kind,
            process: txn.process,
            index: 0,
            time: Timestamp::ZERO,
            ops,
        };
        events.push((txn.invoked, event(EventKind::Invoke, txn.ops.clone())));
        events.push((txn.completed, event(txn.end, txn.ops.clone())));
    }
    events.sort_by_key(|(place, _)| *place);
    let mut events: Vec<Event> = events.into_iter().map(|(_, event)| event).collect();
    for (index, event) in events.iter_mut().enumerate() {
        event.index = index as u64;
    }
    History { events, ..History::default() }
}

/// Whether `one` must stand before `two`.
fn must_precede(one: &Txn, two: &Txn, promise: Promise) -> bool {
    if one.end == EventKind::Info || one.completed > two.invoked {
        return false;
    }
    let writes = |txn: &Txn| -> Vec<KeyIndex> { keys(txn, false) };
    // What a transaction of unknown outcome read, and when, nobody knows.
    let touches = |txn: &Txn| keys(txn, txn.end == EventKind::Ok);
    let meets =
        |writer: &Txn, other: &Txn| writes(writer).iter().any(|key| touches(other).contains(key));
    let conflict =
        !writes(one).is_empty() && !writes(two).is_empty() && (meets(one, two) || meets(two, one));
    (promise >= Promise::Session && one.process == two.process)
        || (promise >= Promise::Conflicts && conflict)
        || promise >= Promise::RealTime
}

fn keys(txn: &Txn, with_reads: bool) -> Vec<KeyIndex> {
    let key = |op: &MicroOp| match *op {
        MicroOp::Read { key, .. } => with_reads.then_some(key),
        ref write => Some(write.key()),
    };
    txn.ops.iter().filter_map(key).collect()
}

/// Whether some serial order of what committed and of some of what may have explains every reading.
fn is_explained(kind: HistoryShape, txns: &[Txn], promise: Promise) -> bool {
    fn go(kind: HistoryShape, txns: &[Txn], promise: Promise, done: u32, state: &Lists) -> bool {
        let is_done = |at: usize| done >> at & 1 == 1;
        if txns.iter().enumerate().all(|(at, txn)| is_done(at) || txn.end != EventKind::Ok) {
            return true;
        }
        (0..txns.len()).any(|at| {
            let txn = &txns[at];
            // Whatever must come first and is left out now would be too late afterwards.
            let too_early = |(other, before): (usize, &Txn)| {
                !is_done(other)
                    && other != at
                    && before.end == EventKind::Ok
                    && must_precede(before, txn, promise)
            };
            let too_late =
                |(other, after): (usize, &Txn)| is_done(other) && must_precede(txn, after, promise);
            if is_done(at)
                || txn.end == EventKind::Fail
                || txns.iter().enumerate().any(too_early)
                || txns.iter().enumerate().any(too_late)
            {
                return false;
            }
            let (mut state, mut ops) = (state.clone(), txn.ops.clone());
            // Nobody was told what a transaction of unknown outcome read.
            let fits = execute(kind, &mut ops, &mut state, txn.end == EventKind::Info);
            fits && go(kind, txns, promise, done | 1 << at, &state)
        })
    }
    go(kind, txns, promise, 0, &Lists::new())
}

fn compare(kind: HistoryShape, tape: &[u8], is_exact: bool) -> Result<(), TestCaseError> {
    let txns = draw(kind, &mut Tape(tape.iter()), is_exact);
    let history = history(&txns);
    for promise in Promise::ALL {
        let verdict: CheckResult = if kind.is_of_lists() {
            check_list_append(&history, promise)
        } else {
            check_register(&history, promise)
        };
        let explained = is_explained(kind, &txns, promise);
        prop_assert!(
            verdict.is_valid() || !explained,
            "some order explains what is accused under {promise:?}: {verdict}\n{}",
            told(&txns)
        );
        prop_assert!(
            !is_exact || !verdict.is_valid() || explained,
            "no order explains what is passed under {promise:?}: {verdict}\n{}",
            told(&txns)
        );
        prop_assert!(verdict.anomalies.iter().all(|anomaly| anomaly.breaks <= promise));
    }
    Ok(())
}

/// A history for people: each transaction's interval, process, end and operations.
fn told(txns: &[Txn]) -> String {
    let mut text = String::new();
    for Txn { process, ops, end, invoked, completed } in txns {
        let mut value = String::new();
        crate::history::write_value(ops, &mut value);
        text.push_str(&format!(
            "{invoked} to {completed}, process {}, {end:?}: {value}\n",
            process.0
        ));
    }
    text
}

fn tapes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 20..90)
}

/// How many of so many drawn histories are right and wrong under a promise: both kinds must be
/// common for a test to mean anything.
fn shares(kind: HistoryShape, promise: Promise) -> (usize, usize) {
    let mut random = crate::Random::derived(7, 7);
    let explained = (0..1_000).filter(|_| {
        let tape: Vec<u8> = (0..80).map(|_| random.below(256) as u8).collect();
        is_explained(kind, &draw(kind, &mut Tape(tape.iter()), true), promise)
    });
    let right = explained.count();
    (right, 1_000 - right)
}

#[test]
fn the_drawn_histories_are_of_both_kinds() {
    for kind in [
        HistoryShape::Lists,
        HistoryShape::DeletedLists,
        HistoryShape::Registers,
        HistoryShape::BlindRegisters,
    ] {
        for promise in Promise::ALL {
            let (right, wrong) = shares(kind, promise);
            assert!(
                right >= 100 && wrong >= 100,
                "{kind:?} {promise:?}: {right} right, {wrong} wrong"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn lists_are_judged_as_every_serial_order_says(tape in tapes()) {
        compare(HistoryShape::Lists, &tape, true)?;
    }

    #[test]
    fn lists_that_nobody_read_to_the_end_are_never_accused_wrongly(tape in tapes()) {
        compare(HistoryShape::Lists, &tape, false)?;
    }

    #[test]
    fn lists_that_are_deleted_are_never_accused_wrongly(tape in tapes()) {
        compare(HistoryShape::DeletedLists, &tape, false)?;
    }

    #[test]
    fn registers_are_judged_as_every_serial_order_says(tape in tapes()) {
        compare(HistoryShape::Registers, &tape, true)?;
    }

    #[test]
    fn blind_registers_are_never_accused_wrongly(tape in tapes()) {
        compare(HistoryShape::BlindRegisters, &tape, false)?;
    }
}
