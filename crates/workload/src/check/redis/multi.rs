//! Reads and writes of several keys at once, as transactions over registers: what the keys that
//! hold texts and never expire show of them.
//!
//! Values are unique there, so that who read what is certain; which order that leaves is the
//! checker's of registers. Every call is a process of its own: a pipeline has no order but that of
//! single keys.

use std::collections::BTreeMap;
use std::rc::Rc;

use timestone_types::Timestamp;

use super::visit::{KeyStep, Visit, Visits};
use crate::KeyIndex;
use crate::check::register::check_register;
use crate::check::verdict::{CheckResult, Promise};
use crate::history::{Event, EventKind, History, MicroOp, Process, Seen};
use crate::redis::RedisHistory;

/// Checks what calls on texts read and wrote.
pub(super) fn check(history: &RedisHistory, visits: &Visits) -> CheckResult {
    check_register(&registers(history, visits), Promise::Conflicts)
}

/// A call's part in it: whether it certainly took place, and what it read and wrote.
struct Part {
    is_known: bool,
    begin: Timestamp,
    end: Timestamp,
    ops: Vec<MicroOp>,
}

fn registers(history: &RedisHistory, visits: &Visits) -> History {
    let mut numbers: BTreeMap<Rc<str>, i64> = BTreeMap::new();
    let mut parts: BTreeMap<usize, Part> = BTreeMap::new();
    for (index, (_, visits)) in
        (0..).zip(visits.of.iter().filter(|(_, visits)| is_register(visits)))
    {
        let key = KeyIndex(index);
        for visit in visits {
            let end = history.calls[visit.call]
                .answered
                .as_ref()
                .map_or(Timestamp::MAX, |(when, _)| *when);
            let part = parts.entry(visit.call).or_insert_with(|| Part {
                is_known: visit.is_known(),
                begin: visit.begin,
                end,
                ops: Vec::new(),
            });
            for step in &visit.steps {
                let mut number = |value: &Rc<str>| {
                    let next = numbers.len() as i64;
                    *numbers.entry(Rc::clone(value)).or_insert(next)
                };
                match step {
                    KeyStep::Read(Some(value)) => {
                        let seen = Seen::Integer(number(value));
                        part.ops.push(MicroOp::Read { key, seen });
                    }
                    KeyStep::Read(None) | KeyStep::Present(false) => {
                        part.ops.push(MicroOp::Read { key, seen: Seen::Nothing });
                    }
                    KeyStep::Put { value, .. } => {
                        let value = Some(number(value));
                        part.ops.push(MicroOp::Write { key, value });
                    }
                    KeyStep::Remove => part.ops.push(MicroOp::Write { key, value: None }),
                    _ => {}
                }
            }
        }
    }
    events(parts)
}

/// Whether nothing but texts was ever written to a key, and nothing of it expires.
fn is_register(visits: &[Visit]) -> bool {
    let fits =
        |step: &KeyStep| matches!(step, KeyStep::Put { .. } | KeyStep::Remove) || step.is_look();
    Visits::is_lasting(visits) && visits.iter().flat_map(|visit| &visit.steps).all(fits)
}

fn events(parts: BTreeMap<usize, Part>) -> History {
    let mut order: Vec<(Timestamp, bool, usize)> = Vec::new();
    for (call, part) in parts.iter().filter(|(_, part)| !part.ops.is_empty()) {
        order.push((part.begin, false, *call));
        order.push((part.end, true, *call));
    }
    order.sort_unstable();
    let mut history = History::default();
    for (index, (time, is_end, call)) in (0..).zip(order) {
        let part = &parts[&call];
        let kind = match (is_end, part.is_known) {
            (false, _) => EventKind::Invoke,
            (true, true) => EventKind::Ok,
            (true, false) => EventKind::Info,
        };
        let ops = match kind {
            // What was read is not known before.
            EventKind::Invoke => part.ops.iter().map(asked).collect(),
            _ => part.ops.clone(),
        };
        history.events.push(Event { kind, process: Process(call as u64), index, time, ops });
    }
    history
}

fn asked(op: &MicroOp) -> MicroOp {
    match op {
        MicroOp::Read { key, .. } => MicroOp::Read { key: *key, seen: Seen::Nothing },
        other => other.clone(),
    }
}
