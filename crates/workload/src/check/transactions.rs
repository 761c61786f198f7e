//! From events to transactions: each invocation with its completion.

use std::collections::BTreeMap;

use super::verdict::{AnomalyKind, CheckResult, Promise};
use crate::history::{Event, EventKind, History, MicroOp, Process};

/// A transaction's place in [`Transactions::all`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct TxnRef(pub(super) u32);

/// How it ended, as far as its process knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TxnEnd {
    Committed,
    Aborted,
    Unknown,
}

/// One transaction of a history.
#[derive(Debug)]
pub(super) struct HistoryTransaction<'a> {
    pub(super) process: Process,
    /// The first process of its session.
    pub(super) session: Process,
    pub(super) end: TxnEnd,
    /// What it did: of its completion when it committed, else of its invocation.
    pub(super) ops: &'a [MicroOp],
    /// Places among the events; an open transaction has not completed at all.
    pub(super) invoked: usize,
    pub(super) completed: Option<usize>,
    /// Whether what its session did next comes after it: it completed, or was told to be unknown to
    /// a session that went on.
    pub(super) is_settled: bool,
    /// The index that the history gives its invocation: how people find it.
    pub(super) index: u64,
}

impl HistoryTransaction<'_> {
    /// Whether it wrote anything.
    pub(super) fn writes(&self) -> bool {
        self.ops.iter().any(|op| !matches!(op, MicroOp::Read { .. }))
    }
}

/// All transactions, by invocation.
pub(super) struct Transactions<'a> {
    pub(super) all: Vec<HistoryTransaction<'a>>,
}

impl<'a> Transactions<'a> {
    /// Pairs the events; what does not pair is reported.
    pub(super) fn of(history: &'a History, verdict: &mut CheckResult) -> Self {
        let mut all: Vec<HistoryTransaction<'a>> = Vec::with_capacity(history.events.len() / 2);
        let mut open: BTreeMap<Process, usize> = BTreeMap::new();
        // Whoever goes on has a later number than who stopped.
        let mut sessions: BTreeMap<Process, Process> = BTreeMap::new();
        for (process, successor) in &history.successors {
            let first = sessions.get(process).copied().unwrap_or(*process);
            sessions.insert(*successor, first);
        }
        for (place, event) in history.events.iter().enumerate() {
            if event.kind == EventKind::Invoke {
                if open.insert(event.process, all.len()).is_some() {
                    malformed(
                        verdict,
                        event,
                        "invokes a transaction before its last one was completed",
                    );
                }
                all.push(HistoryTransaction {
                    process: event.process,
                    session: sessions.get(&event.process).copied().unwrap_or(event.process),
                    end: TxnEnd::Unknown,
                    ops: &event.ops,
                    invoked: place,
                    completed: None,
                    is_settled: false,
                    index: event.index,
                });
                continue;
            }
            let Some(at) = open.remove(&event.process) else {
                malformed(verdict, event, "completes a transaction that it did not invoke");
                continue;
            };
            let txn = &mut all[at];
            match event.kind {
                EventKind::Ok => {
                    if !agree(txn.ops, &event.ops) {
                        malformed(
                            verdict,
                            event,
                            "completes with other operations than it was invoked with",
                        );
                    }
                    (txn.end, txn.ops, txn.completed) =
                        (TxnEnd::Committed, &event.ops, Some(place));
                }
                EventKind::Fail => (txn.end, txn.completed) = (TxnEnd::Aborted, Some(place)),
                // It may take effect at any time from now on, so it never counts as completed.
                EventKind::Info => txn.is_settled = history.successors.contains_key(&txn.process),
                EventKind::Invoke => {}
            }
            txn.is_settled |= txn.completed.is_some();
        }
        Self { all }
    }

    pub(super) fn get(&self, txn: TxnRef) -> &HistoryTransaction<'a> {
        &self.all[txn.0 as usize]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (TxnRef, &HistoryTransaction<'a>)> {
        self.all.iter().enumerate().map(|(at, txn)| (TxnRef(at as u32), txn))
    }

    /// How a story calls a transaction.
    pub(super) fn name(&self, txn: TxnRef) -> String {
        let found = self.get(txn);
        format!("T{} (process {})", found.index, found.process.0)
    }
}

/// Whether an answer fits its question: the same steps on the same keys; what the question left
/// open may be anything.
fn agree(invoked: &[MicroOp], completed: &[MicroOp]) -> bool {
    // Of an operation whose condition did not hold, the reading alone took place.
    let failed = match (invoked, completed) {
        ([MicroOp::Read { key, .. }, write], [MicroOp::Read { .. }]) => {
            matches!(write, MicroOp::Write { .. } | MicroOp::WriteUntil { .. })
                && write.key() == *key
        }
        _ => false,
    };
    let same = |(invoked, completed): (&MicroOp, &MicroOp)| match (invoked, completed) {
        (MicroOp::Read { key, .. }, MicroOp::Read { key: other, .. }) => key == other,
        (MicroOp::Write { key, value: None }, MicroOp::Write { key: other, .. }) => key == other,
        _ => invoked == completed,
    };
    (failed || invoked.len() == completed.len()) && invoked.iter().zip(completed).all(same)
}

fn malformed(verdict: &mut CheckResult, event: &Event, what: &str) {
    verdict.report(AnomalyKind::Malformed, Promise::Serializable, || {
        format!("at index {}, process {} {what}", event.index, event.process.0)
    });
}
