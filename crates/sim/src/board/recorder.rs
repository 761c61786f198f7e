//! The history of a run as sessions tell it: what began, how it ended, and how often.
//!
//! Events bear the numbers of their places. What nobody may know in the end, such as how an
//! abandoned transaction ended, is written down as unknown. It does not judge: checkers do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use timestone_seda::simulated::VirtualTime;
use timestone_types::Timestamp;
use timestone_workload::KeyIndex;
use timestone_workload::history::{Event, EventKind, History, MicroOp, Process};

use crate::clock::{TrueTime, moment};
use crate::{names, words};

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxnTally {
    /// Transactions begun.
    pub begun: u64,
    /// That were told that they committed.
    pub committed: u64,
    /// That certainly did not.
    pub aborted: u64,
    /// Of which nobody knows.
    pub unknown: u64,
    /// Of the aborted: by errors other than conflicts.
    pub errors: u64,
}

impl TxnTally {
    /// Both together.
    pub(super) const fn plus(self, other: Self) -> Self {
        Self {
            begun: self.begun + other.begun,
            committed: self.committed + other.committed,
            aborted: self.aborted + other.aborted,
            unknown: self.unknown + other.unknown,
            errors: self.errors + other.errors,
        }
    }

    const fn count(&mut self, fate: TxnEnd) {
        match fate {
            TxnEnd::Committed => self.committed += 1,
            TxnEnd::Aborted => self.aborted += 1,
            TxnEnd::Failed => {
                self.aborted += 1;
                self.errors += 1;
            }
            TxnEnd::Unknown => self.unknown += 1,
        }
    }
}

/// A transaction under way.
#[derive(Clone, Debug)]
pub(crate) struct OpenTransaction {
    /// The index of its invocation: how the history calls it.
    pub(crate) index: u64,
    pub(crate) ops: Vec<MicroOp>,
    /// What it adds to which account, once it asked to be committed.
    pub(super) adds: Vec<(KeyIndex, i64)>,
}

/// What happened to an account of the bank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// The sum of what was acknowledged.
    pub(crate) acknowledged: i64,
    /// What is of unknown outcome.
    pub(crate) unknown: Vec<i64>,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxnEnd {
    Committed,
    Aborted,
    Failed,
    Unknown,
}

#[derive(Debug, Default)]
struct RecorderState {
    events: Vec<Event>,
    successors: BTreeMap<Process, Process>,
    accounts: BTreeMap<KeyIndex, Account>,
    tally: TxnTally,
    /// What sessions did, in words, until the trace takes it.
    notes: Vec<(VirtualTime, String)>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Recorder {
    truth: TrueTime,
    /// What sessions do is noted in words.
    pub(crate) notes: bool,
    state: Mutex<RecorderState>,
}

/// A transaction and who runs it, as checkers call them.
pub(super) fn name(index: u64, process: Process) -> String {
    format!("{} (process {})", names::transaction(index), process.0)
}

impl RecorderState {
    /// Adds an event; its index.
    fn push(
        &mut self,
        kind: EventKind,
        process: Process,
        time: Timestamp,
        ops: Vec<MicroOp>,
    ) -> u64 {
        let last = self.events.last().map_or(Timestamp::ZERO, |event| event.time);
        assert!(last <= time, "events are written down in the order of true time");
        let index = self.events.len() as u64;
        self.events.push(Event { kind, process, index, time, ops });
        index
    }
}

impl Recorder {
    pub(super) fn new(truth: TrueTime) -> Self {
        Self { truth, notes: false, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, RecorderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at(&self) -> Timestamp {
        moment(self.truth.now())
    }

    /// What a transaction does turns out only while it runs: how far a range is read that ends with so many
    /// keys. It was invoked to do that, before it asks for a commit.
    pub(super) fn amend(&self, open: &mut OpenTransaction, ops: Vec<MicroOp>) {
        let mut state = self.lock();
        let event = &mut state.events[open.index as usize];
        assert!(event.kind == EventKind::Invoke, "an invocation is amended");
        event.ops.clone_from(&ops);
        open.ops = ops;
    }

    /// A transaction of a process begins.
    pub(super) fn invoke(&self, process: Process, ops: Vec<MicroOp>) -> OpenTransaction {
        let mut state = self.lock();
        state.tally.begun += 1;
        let open = OpenTransaction {
            index: state.events.len() as u64,
            ops: ops.clone(),
            adds: Vec::new(),
        };
        self.note(&mut state, open.index, process, "begins", &ops);
        state.push(EventKind::Invoke, process, self.at(), ops);
        open
    }

    /// How a process's transaction ended, and what it saw.
    pub(super) fn complete(
        &self,
        process: Process,
        open: OpenTransaction,
        fate: TxnEnd,
        seen: Vec<MicroOp>,
    ) {
        let OpenTransaction { index: invocation, ops: invoked, adds } = open;
        let (kind, ended, ops) = match fate {
            TxnEnd::Committed => (EventKind::Ok, "committed", seen),
            TxnEnd::Aborted => (EventKind::Fail, "aborted", invoked),
            TxnEnd::Failed => (EventKind::Fail, "failed", invoked),
            TxnEnd::Unknown => (EventKind::Info, "ended, and nobody knows how", invoked),
        };
        let mut state = self.lock();
        state.tally.count(fate);
        for (key, delta) in adds {
            let account = state.accounts.entry(key).or_default();
            match fate {
                TxnEnd::Committed => account.acknowledged += delta,
                TxnEnd::Unknown => account.unknown.push(delta),
                TxnEnd::Aborted | TxnEnd::Failed => {}
            }
        }
        self.note(&mut state, invocation, process, ended, &ops);
        state.push(kind, process, self.at(), ops);
    }

    fn note(
        &self,
        state: &mut RecorderState,
        index: u64,
        process: Process,
        what: &str,
        ops: &[MicroOp],
    ) {
        if self.notes {
            let steps = words::steps(ops);
            let colon = if steps.is_empty() { "" } else { ":" };
            let line = format!("{} {what}{colon}{steps}", name(index, process));
            state.notes.push((self.truth.now(), line));
        }
    }

    /// A session goes on as another process.
    pub(super) fn succeed(&self, before: Process, after: Process) {
        let replaced = self.lock().successors.insert(before, after);
        assert_eq!(replaced, None, "a process ends once");
    }

    /// A key was deleted by nobody's session; the place of the deletion's completion.
    pub(super) fn delete(&self, process: Process, key: KeyIndex) -> usize {
        let (mut state, time) = (self.lock(), self.at());
        let ops = vec![MicroOp::Write { key, value: None }];
        state.push(EventKind::Invoke, process, time, ops.clone());
        state.push(EventKind::Ok, process, time, ops) as usize
    }

    /// Counts a transaction of which nothing else is kept.
    pub(super) fn begin_closed(&self) {
        self.lock().tally.begun += 1;
    }

    /// Counts how it ended.
    pub(crate) fn end_closed(&self, fate: TxnEnd) {
        self.lock().tally.count(fate);
    }

    pub(super) fn tally(&self) -> TxnTally {
        self.lock().tally
    }

    /// Takes what sessions did since the last time.
    pub(crate) fn take_notes(&self) -> Vec<(VirtualTime, String)> {
        std::mem::take(&mut self.lock().notes)
    }

    pub(crate) fn accounts(&self) -> BTreeMap<KeyIndex, Account> {
        self.lock().accounts.clone()
    }

    /// Every key that somebody tried to write.
    pub(crate) fn written_keys(&self) -> BTreeSet<KeyIndex> {
        let mut keys = BTreeSet::new();
        for op in self.lock().events.iter().flat_map(|event| &event.ops) {
            if !matches!(op, MicroOp::Read { .. }) {
                keys.insert(op.key());
            }
        }
        keys
    }

    /// Takes the history out, at the end.
    pub(crate) fn take_history(&self) -> History {
        let mut state = self.lock();
        History {
            head: None,
            events: std::mem::take(&mut state.events),
            successors: std::mem::take(&mut state.successors),
        }
    }
}
