//! Writing a history while it happens.
//!
//! One recorder serves all sessions of a run; threads share it behind a lock and read the clock
//! under it, so that the lines stand in real-time order. Each session has a slot; a slot is one
//! process until an outcome stays unknown, and then the next one: slot + slots, slot + 2 · slots,
//! as Jepsen counts them.
//!
//! # Invariants
//! - Every completion follows its slot's invocation; a slot has one transaction at a time.
//! - A history that was finished has a completion for every invocation.
//! - A line's text is built in a buffer that is used again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

use timestone_types::Timestamp;

use super::{Event, EventKind, History, HistoryHead, MicroOp, Process, Seen};
use crate::WorkloadError;

/// One session's place in a recorder, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionSlot(pub u32);

/// What became of a transaction, with what it read and wrote where that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion<'a> {
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
        Self {
            out,
            slots: (0..u64::from(slots)).map(slot).collect(),
            index: 0,
            line: String::new(),
        }
    }

    /// Says what the history is, before its first event.
    ///
    /// # Errors
    /// [`WorkloadError::Write`] from the writer.
    ///
    /// # Panics
    /// When there was an event already.
    pub fn begin(&mut self, head: &HistoryHead) -> Result<(), WorkloadError> {
        assert_eq!(self.index, 0, "a history's head is its first line");
        self.out.write_all(head.line().as_bytes())?;
        Ok(())
    }

    /// The process that a slot is now.
    ///
    /// # Panics
    /// When the slot is not one of the recorder's.
    #[must_use]
    pub fn process(&self, slot: SessionSlot) -> Process {
        Process(self.slots[slot.0 as usize].process)
    }

    /// A transaction begins; `at` counts from the run's begin.
    ///
    /// # Errors
    /// [`WorkloadError::Write`] from the writer.
    ///
    /// # Panics
    /// When the slot is not one of the recorder's, or its transaction before has not been
    /// completed.
    pub fn invoke(
        &mut self,
        slot: SessionSlot,
        at: Timestamp,
        ops: &[MicroOp],
    ) -> Result<(), WorkloadError> {
        let state = &mut self.slots[slot.0 as usize];
        assert!(
            !state.is_open,
            "slot {} invokes a second transaction before its first was completed",
            slot.0
        );
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
    pub fn complete(
        &mut self,
        slot: SessionSlot,
        at: Timestamp,
        fate: Completion<'_>,
    ) -> Result<(), WorkloadError> {
        let state = &mut self.slots[slot.0 as usize];
        assert!(state.is_open, "slot {} completes a transaction that it did not invoke", slot.0);
        state.is_open = false;
        let kind = match fate {
            Completion::Committed(ops) => {
                write_value(ops, &mut state.value);
                EventKind::Ok
            }
            Completion::Aborted => EventKind::Fail,
            Completion::Unknown => EventKind::Info,
        };
        self.write_line(slot, at, kind)?;
        if kind == EventKind::Info {
            self.slots[slot.0 as usize].process += self.slots.len() as u64;
        }
        Ok(())
    }

    /// How many transactions have not been completed.
    #[must_use]
    pub fn open(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_open).count()
    }

    /// Ends the history: what is still open is unknown, and says so. `at` counts from the run's
    /// begin.
    ///
    /// # Errors
    /// [`WorkloadError::Write`] from the writer.
    pub fn finish(mut self, at: Timestamp) -> Result<W, WorkloadError> {
        for slot in (0u32..).map(SessionSlot).take(self.slots.len()) {
            if self.slots[slot.0 as usize].is_open {
                self.complete(slot, at, Completion::Unknown)?;
            }
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_line(
        &mut self,
        slot: SessionSlot,
        at: Timestamp,
        kind: EventKind,
    ) -> Result<(), WorkloadError> {
        let SlotState { process, value, .. } = &self.slots[slot.0 as usize];
        self.line.clear();
        write_event(&mut self.line, kind, *process, self.index, at, value);
        self.out.write_all(self.line.as_bytes())?;
        self.index += 1;
        Ok(())
    }
}

/// Writes a history that is in memory, one map a line, as a recorder would have: with its head, and
/// with `:info` for what is open.
///
/// # Errors
/// [`WorkloadError::Write`] from the writer.
pub fn write(history: &History, out: &mut impl io::Write) -> Result<(), WorkloadError> {
    if let Some(head) = &history.head {
        out.write_all(head.line().as_bytes())?;
    }
    let (mut line, mut value) = (String::new(), String::new());
    let mut put = |event: &Event, kind, index| {
        write_value(&event.ops, &mut value);
        line.clear();
        write_event(&mut line, kind, event.process.0, index, event.time, &value);
        out.write_all(line.as_bytes())
    };
    let mut open: BTreeMap<Process, &Event> = BTreeMap::new();
    for event in &history.events {
        put(event, event.kind, event.index)?;
        match event.kind {
            EventKind::Invoke => open.insert(event.process, event),
            EventKind::Ok | EventKind::Fail | EventKind::Info => open.remove(&event.process),
        };
    }
    let Some(last) = history.events.last() else { return Ok(()) };
    for (index, event) in (last.index + 1..).zip(open.into_values()) {
        put(&Event { time: last.time, ..event.clone() }, EventKind::Info, index)?;
    }
    Ok(())
}

fn write_event(
    line: &mut String,
    kind: EventKind,
    process: u64,
    index: u64,
    at: Timestamp,
    value: &str,
) {
    let name = match kind {
        EventKind::Invoke => "invoke",
        EventKind::Ok => "ok",
        EventKind::Fail => "fail",
        EventKind::Info => "info",
    };
    let nanos = at.as_nanos();
    let written = writeln!(
        line,
        "{{:type :{name}, :process {process}, :index {index}, :time {nanos}, :f :txn, :value \
         {value}}}"
    );
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
            MicroOp::WriteUntil { key, value, until } => {
                write!(out, "[:w {} {value} {}]", key.0, until.as_nanos())
            }
            MicroOp::Read { key, seen: Seen::Nothing } => write!(out, "[:r {} nil]", key.0),
            MicroOp::Read { key, seen: Seen::Integer(value) } => {
                write!(out, "[:r {} {value}]", key.0)
            }
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
    use crate::history::{History, read};
    use crate::{KeyIndex, Op, TxnPlan};

    const KEY: KeyIndex = KeyIndex(3);

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn lines_are_jepsens() {
        let mut recorder = HistoryRecorder::new(Vec::new(), 2);
        let plan = TxnPlan {
            ops: vec![Op::Get(KEY), Op::Append { key: KEY, element: 2 }],
            name: "append",
        };
        let mut ops = Vec::new();
        super::super::invocation(&plan, at(9), &mut ops);
        recorder.invoke(SessionSlot(0), at(10), &ops).unwrap();
        ops[0] = MicroOp::Read { key: KEY, seen: Seen::List(vec![1, -5]) };
        recorder.complete(SessionSlot(0), at(25), Completion::Committed(&ops)).unwrap();
        let text = String::from_utf8(recorder.finish(at(9)).unwrap()).unwrap();
        assert_eq!(
            text,
            "{:type :invoke, :process 0, :index 0, :time 10, :f :txn, :value [[:r 3 nil] [:append \
             3 2]]}\n\
             {:type :ok, :process 0, :index 1, :time 25, :f :txn, :value [[:r 3 [1 -5]] [:append 3 \
             2]]}\n"
        );
    }

    #[test]
    fn after_an_unknown_outcome_the_slot_is_a_new_process() {
        let mut recorder = HistoryRecorder::new(Vec::new(), 3);
        let ops = [MicroOp::Write { key: KEY, value: Some(1) }];
        for fate in [
            Completion::Aborted,
            Completion::Unknown,
            Completion::Unknown,
            Completion::Committed(&ops),
        ] {
            recorder.invoke(SessionSlot(1), at(1), &ops).unwrap();
            recorder.complete(SessionSlot(1), at(2), fate).unwrap();
        }
        assert_eq!(
            (recorder.process(SessionSlot(1)), recorder.process(SessionSlot(2))),
            (Process(7), Process(2))
        );
        let text = String::from_utf8(recorder.finish(at(9)).unwrap()).unwrap();
        let history = read(&text).unwrap();
        let seen: Vec<(EventKind, u64)> =
            history.events.iter().map(|event| (event.kind, event.process.0)).collect();
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
            MicroOp::WriteUntil { key: KEY, value: 7, until: at(1_500_000_000) },
        ];
        let mut recorder = HistoryRecorder::new(Vec::new(), 1);
        recorder.invoke(SessionSlot(0), at(5), &ops).unwrap();
        recorder.complete(SessionSlot(0), at(9), Completion::Committed(&ops)).unwrap();
        let text = String::from_utf8(recorder.finish(at(10)).unwrap()).unwrap();
        let event = |kind, index, time| Event {
            kind,
            process: Process(0),
            index,
            time: at(time),
            ops: ops.clone(),
        };
        let events = vec![event(EventKind::Invoke, 0, 5), event(EventKind::Ok, 1, 9)];
        let history = History { events, ..History::default() };
        assert_eq!(read(&text).unwrap(), history);
        let mut again = Vec::new();
        write(&history, &mut again).unwrap();
        assert_eq!(String::from_utf8(again).unwrap(), text);
    }

    #[test]
    fn what_is_open_at_the_end_is_unknown_and_says_so() {
        let ops = [MicroOp::Append { key: KEY, element: 1 }];
        let mut recorder = HistoryRecorder::new(Vec::new(), 3);
        recorder.invoke(SessionSlot(0), at(1), &ops).unwrap();
        recorder.invoke(SessionSlot(2), at(2), &ops).unwrap();
        recorder.complete(SessionSlot(0), at(3), Completion::Aborted).unwrap();
        recorder.invoke(SessionSlot(1), at(4), &ops).unwrap();
        assert_eq!(recorder.open(), 2);
        let text = String::from_utf8(recorder.finish(at(9)).unwrap()).unwrap();
        let ends: Vec<&str> = text.lines().skip(4).collect();
        assert_eq!(
            ends,
            [
                "{:type :info, :process 1, :index 4, :time 9, :f :txn, :value [[:append 3 1]]}",
                "{:type :info, :process 2, :index 5, :time 9, :f :txn, :value [[:append 3 1]]}"
            ]
        );
        // The same for one that is written from memory.
        let mut history = read(&text).unwrap();
        history.events.truncate(4);
        let mut again = Vec::new();
        write(&history, &mut again).unwrap();
        assert_eq!(String::from_utf8(again).unwrap(), text.replace(":time 9", ":time 4"));
    }

    #[test]
    #[should_panic(expected = "before its first was completed")]
    fn a_slot_has_one_transaction_at_a_time() {
        let mut recorder = HistoryRecorder::new(Vec::new(), 1);
        recorder.invoke(SessionSlot(0), at(1), &[]).unwrap();
        let _ = recorder.invoke(SessionSlot(0), at(2), &[]);
    }
}
