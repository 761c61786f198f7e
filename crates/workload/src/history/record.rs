//! Writing a history while it happens.
//!
//! One recorder serves all sessions of a run; threads share it behind a lock and read the clock under it, so that the lines stand
//! in real-time order. Each session has a slot; a slot is one process until an outcome stays unknown, and then the next one:
//! slot + slots, slot + 2 · slots, as Jepsen counts them.
//!
//! # Invariants
//! - Every completion follows its slot's invocation; a slot has one transaction at a time.
//! - A line's text is built in a buffer that is used again.

use std::fmt::Write as _;
use std::io;

use timestone_types::Timestamp;

use super::{EventKind, History, MicroOp, Process, Seen};
use crate::WorkloadError;

/// One session's place in a recorder, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

/// What became of a transaction, with what it read and wrote where that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate<'a> {
    /// It committed, and this is what it saw and did.
    Committed(&'a [MicroOp]),
    /// It certainly did not commit.
    Aborted,
    /// Nobody knows: the answer was lost.
    Unknown,
}

/// Writes events as EDN, one map a line.
#[derive(Debug)]
pub struct HistoryRecorder<W> {
    out: W,
    slots: Vec<SlotState>,
    index: u64,
    line: String,
}

#[derive(Clone, Debug)]
struct SlotState {
    process: u64,
    is_open: bool,
    /// The open invocation's `:value`, which its completion repeats when it has none of its own.
    value: String,
}

impl<W: io::Write> HistoryRecorder<W> {
    /// A recorder for this many sessions, writing to `out` (buffer it).
    pub fn new(out: W, slots: u32) -> Self {
        let slot = |process| SlotState { process, is_open: false, value: String::new() };
        Self { out, slots: (0..u64::from(slots)).map(slot).collect(), index: 0, line: String::new() }
    }

    /// The process that a slot is now.
    ///
    /// # Panics
    /// When the slot is not one of the recorder's.
    #[must_use]
    pub fn process(&self, slot: Slot) -> Process {
        Process(self.slots[slot.0 as usize].process)
    }

    /// A transaction begins; `at` counts from the run's begin.
    ///
    /// # Errors
    /// [`WorkloadError::Write`] from the writer.
    ///
    /// # Panics
    /// When the slot is not one of the recorder's, or its transaction before has not been completed.
    pub fn invoke(&mut self, slot: Slot, at: Timestamp, ops: &[MicroOp]) -> Result<(), WorkloadError> {
        let state = &mut self.slots[slot.0 as usize];
        assert!(!state.is_open, "slot {} invokes a second transaction before its first was completed", slot.0);
        state.is_open = true;
        write_value(ops, &mut state.value);
        self.write_line(slot, at, EventKind::Invoke)
    }

    /// The slot's transaction ends; `at` counts from the run's begin.
    ///
    /// # Errors
    /// [`WorkloadError::Write`] from the writer.
    ///
    /// # Panics
    /// When the slot is not one of the recorder's, or has no open transaction.
    pub fn complete(&mut self, slot: Slot, at: Timestamp, fate: Fate<'_>) -> Result<(), WorkloadError> {
        let state = &mut self.slots[slot.0 as usize];
        assert!(state.is_open, "slot {} completes a transaction that it did not invoke", slot.0);
        state.is_open = false;
        let kind = match fate {
            Fate::Committed(ops) => {
                write_value(ops, &mut state.value);
                EventKind::Ok
            }
            Fate::Aborted => EventKind::Fail,
            Fate::Unknown => EventKind::Info,
        };
        self.write_line(slot, at, kind)?;
        if kind == EventKind::Info {
            self.slots[slot.0 as usize].process += self.slots.len() as u64;
        }
        Ok(())
    }

    /// Ends the history: what is still open stays without a completion, which checkers take for unknown.
    ///
    /// # Errors
    /// [`WorkloadError::Write`] from the writer.
    pub fn finish(mut self) -> Result<W, WorkloadError> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_line(&mut self, slot: Slot, at: Timestamp, kind: EventKind) -> Result<(), WorkloadError> {
        let SlotState { process, value, .. } = &self.slots[slot.0 as usize];
        self.line.clear();
        write_event(&mut self.line, kind, *process, self.index, at, value);
        self.out.write_all(self.line.as_bytes())?;
        self.index += 1;
        Ok(())
    }
}

/// Writes a history that is in memory, one map a line, as a recorder would have.
///
/// # Errors
/// [`WorkloadError::Write`] from the writer.
pub fn write(history: &History, out: &mut impl io::Write) -> Result<(), WorkloadError> {
    let (mut line, mut value) = (String::new(), String::new());
    for event in &history.events {
        write_value(&event.ops, &mut value);
        line.clear();
        write_event(&mut line, event.kind, event.process.0, event.index, event.time, &value);
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

fn write_event(line: &mut String, kind: EventKind, process: u64, index: u64, at: Timestamp, value: &str) {
    let name = match kind {
        EventKind::Invoke => "invoke",
        EventKind::Ok => "ok",
        EventKind::Fail => "fail",
        EventKind::Info => "info",
    };
    let nanos = at.as_nanos();
    let written =
        writeln!(line, "{{:type :{name}, :process {process}, :index {index}, :time {nanos}, :f :txn, :value {value}}}");
    debug_assert!(written.is_ok(), "a String takes everything");
}

pub(crate) fn write_value(ops: &[MicroOp], out: &mut String) {
    out.clear();
    out.push('[');
    for (at, op) in ops.iter().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        // Writing to a String cannot fail.
        let _ = match op {
            MicroOp::Append { key, element } => write!(out, "[:append {} {element}]", key.0),
            MicroOp::Write { key, value: Some(value) } => write!(out, "[:w {} {value}]", key.0),
            MicroOp::Write { key, value: None } => write!(out, "[:w {} nil]", key.0),
            MicroOp::Read { key, seen: Seen::Nothing } => write!(out, "[:r {} nil]", key.0),
            MicroOp::Read { key, seen: Seen::Integer(value) } => write!(out, "[:r {} {value}]", key.0),
            MicroOp::Read { key, seen: Seen::List(list) } => {
                let _ = write!(out, "[:r {} [", key.0);
                for (place, element) in list.iter().enumerate() {
                    let gap = if place > 0 { " " } else { "" };
                    let _ = write!(out, "{gap}{element}");
                }
                out.push_str("]]");
                Ok(())
            }
        };
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Event, History, read};
    use crate::{KeyIndex, Op, TxnPlan};

    const KEY: KeyIndex = KeyIndex(3);

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn lines_are_jepsens() {
        let mut recorder = HistoryRecorder::new(Vec::new(), 2);
        let plan = TxnPlan { ops: vec![Op::Get(KEY), Op::Append { key: KEY, element: 2 }], name: "append" };
        let mut ops = Vec::new();
        super::super::invocation(&plan, &mut ops);
        recorder.invoke(Slot(0), at(10), &ops).unwrap();
        ops[0] = MicroOp::Read { key: KEY, seen: Seen::List(vec![1, -5]) };
        recorder.complete(Slot(0), at(25), Fate::Committed(&ops)).unwrap();
        let text = String::from_utf8(recorder.finish().unwrap()).unwrap();
        assert_eq!(
            text,
            "{:type :invoke, :process 0, :index 0, :time 10, :f :txn, :value [[:r 3 nil] [:append 3 2]]}\n\
             {:type :ok, :process 0, :index 1, :time 25, :f :txn, :value [[:r 3 [1 -5]] [:append 3 2]]}\n"
        );
    }

    #[test]
    fn after_an_unknown_outcome_the_slot_is_a_new_process() {
        let mut recorder = HistoryRecorder::new(Vec::new(), 3);
        let ops = [MicroOp::Write { key: KEY, value: Some(1) }];
        for fate in [Fate::Aborted, Fate::Unknown, Fate::Unknown, Fate::Committed(&ops)] {
            recorder.invoke(Slot(1), at(1), &ops).unwrap();
            recorder.complete(Slot(1), at(2), fate).unwrap();
        }
        assert_eq!((recorder.process(Slot(1)), recorder.process(Slot(2))), (Process(7), Process(2)));
        let text = String::from_utf8(recorder.finish().unwrap()).unwrap();
        let history = read(&text).unwrap();
        let seen: Vec<(EventKind, u64)> = history.events.iter().map(|event| (event.kind, event.process.0)).collect();
        let begins = |process| (EventKind::Invoke, process);
        assert_eq!(
            seen,
            [
                begins(1),
                (EventKind::Fail, 1),
                begins(1),
                (EventKind::Info, 1),
                begins(4),
                (EventKind::Info, 4),
                begins(7),
                (EventKind::Ok, 7)
            ]
        );
    }

    #[test]
    fn a_history_reads_back_as_written() {
        let ops = vec![
            MicroOp::Read { key: KEY, seen: Seen::List(vec![]) },
            MicroOp::Read { key: KEY, seen: Seen::List(vec![1, 2, 3]) },
            MicroOp::Read { key: KEY, seen: Seen::Integer(-9) },
            MicroOp::Read { key: KEY, seen: Seen::Nothing },
            MicroOp::Append { key: KeyIndex(u64::MAX >> 1), element: i64::MIN },
            MicroOp::Write { key: KEY, value: Some(0) },
            MicroOp::Write { key: KEY, value: None },
        ];
        let mut recorder = HistoryRecorder::new(Vec::new(), 1);
        recorder.invoke(Slot(0), at(5), &ops).unwrap();
        let text = String::from_utf8(recorder.finish().unwrap()).unwrap();
        let event = Event { kind: EventKind::Invoke, process: Process(0), index: 0, time: at(5), ops };
        let history = History { events: vec![event], ..History::default() };
        assert_eq!(read(&text).unwrap(), history);
        let mut again = Vec::new();
        write(&history, &mut again).unwrap();
        assert_eq!(String::from_utf8(again).unwrap(), text);
    }

    #[test]
    #[should_panic(expected = "before its first was completed")]
    fn a_slot_has_one_transaction_at_a_time() {
        let mut recorder = HistoryRecorder::new(Vec::new(), 1);
        recorder.invoke(Slot(0), at(1), &[]).unwrap();
        let _ = recorder.invoke(Slot(0), at(2), &[]);
    }
}
