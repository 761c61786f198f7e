//! Histories: what was asked and what was answered, in the order in which it happened.
//!
//! ```text
//!   runner ─► HistoryRecorder ─► EDN, one map a line, Jepsen's form ─► read ─► History ─► check
//! ```
//! The form is the one that Jepsen's checkers read:
//!
//! ```text
//!   ; timestone history 1: {:workload :list-append, …}
//!   {:type :invoke, :process 0, :index 0, :time 10, :f :txn, :value [[:r 3 nil] [:append 3 2]]}
//!   {:type :ok, :process 0, :index 1, :time 25, :f :txn, :value [[:r 3 [1]] [:append 3 2]]}
//! ```
//!
//! A write of a value that expires carries when, in nanoseconds from the run's begin:
//! `[:w 3 7 1500000000]`. Readers of Jepsen's form take the first three. A deletion is
//! `[:w 3 nil]`, also of a list, and of an account of the bank, which holds nothing then: for
//! Jepsen's and Elle's checkers of lists, which know no deletion, run list-append without. An
//! operation on one key that looks and writes at once (a take, a compare-and-set, a put that
//! returns what was there) is a transaction of two steps; when its condition did not hold, the
//! completion has the reading only.
//!
//! # Invariants
//! - Events stand in real-time order: whatever completed before another was invoked stands before
//!   it.
//! - A process has one transaction at a time. One whose outcome is unknown ends its process with
//!   `:info`, and whoever was that process goes on as a new one, for the old transaction may still
//!   take effect at any time.
//! - Every invocation has its completion: what was given up, or was still under way at the end, has
//!   `:info`. Only a writer that was killed leaves invocations open, and may leave a piece of a last
//!   line (`cut.rs`).

mod cut;
pub(crate) mod edn;
mod head;
mod read;
mod record;

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_types::Timestamp;

use crate::{KeyIndex, Op, TxnPlan};

pub use cut::without_cut_line;
pub use head::{HistoryHead, Judged};
pub use read::read;
pub(crate) use record::write_value;
pub use record::{Completion, HistoryRecorder, SessionSlot, write};

/// Who ran a transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Process(pub u64);

/// What an event says of its transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// It begins.
    Invoke,
    /// It committed.
    Ok,
    /// It certainly did not commit.
    Fail,
    /// Nobody knows.
    Info,
}

/// What a read returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Nothing: the key is absent, or the transaction has not been answered.
    Nothing,
    /// An integer.
    Integer(i64),
    /// A list.
    List(Vec<i64>),
}

/// One step of a transaction, as a history tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MicroOp {
    /// `[:r key value]`
    Read {
        /// The key.
        key: KeyIndex,
        /// What was there.
        seen: Seen,
    },
    /// `[:append key element]`
    Append {
        /// The key.
        key: KeyIndex,
        /// The element.
        element: i64,
    },
    /// `[:w key value]`
    Write {
        /// The key.
        key: KeyIndex,
        /// The integer; `None` in an invocation that does not know it yet, and when the key was
        /// deleted.
        value: Option<i64>,
    },
    /// `[:w key value until]`: from then on the key is absent again.
    WriteUntil {
        /// The key.
        key: KeyIndex,
        /// The integer.
        value: i64,
        /// When it expires, counted from the run's begin.
        until: Timestamp,
    },
}

impl MicroOp {
    /// The key that the step touches.
    #[must_use]
    pub const fn key(&self) -> KeyIndex {
        match *self {
            Self::Read { key, .. }
            | Self::Append { key, .. }
            | Self::Write { key, .. }
            | Self::WriteUntil { key, .. } => key,
        }
    }

    /// The integer that the step writes, if it is a write that knows it and no deletion.
    #[must_use]
    pub const fn written(&self) -> Option<i64> {
        match *self {
            Self::Write { value, .. } => value,
            Self::WriteUntil { value, .. } => Some(value),
            Self::Read { .. } | Self::Append { .. } => None,
        }
    }
}

/// One line of a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// What it says.
    pub kind: EventKind,
    /// Whose transaction.
    pub process: Process,
    /// Its place, from 0.
    pub index: u64,
    /// When, counted from the run's begin.
    pub time: Timestamp,
    /// The transaction's steps.
    pub ops: Vec<MicroOp>,
}

/// All events of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// What it says of itself, where it does.
    pub head: Option<HistoryHead>,
    /// In real-time order.
    pub events: Vec<Event>,
    /// Processes whose last outcome stayed unknown, and who the same session is from then on.
    /// Jepsen's form does not tell it: there, what is unknown may take effect at any time.
    /// Timestone promises more: what a session does next comes after what it was told is unknown.
    pub successors: BTreeMap<Process, Process>,
}

/// Replaces `ops` by how a history tells a plan before it is answered: reads of nothing, writes of
/// what is known. `now` counts from the run's begin.
pub fn invocation(plan: &TxnPlan, now: Timestamp, ops: &mut Vec<MicroOp>) {
    ops.clear();
    for op in &plan.ops {
        match *op {
            Op::Get(key) => ops.push(MicroOp::Read { key, seen: Seen::Nothing }),
            // Which keys it reads turns out only then.
            Op::Scan { .. } => {}
            Op::Put(key) | Op::Delete(key) | Op::PutFor { key, .. } => {
                ops.push(MicroOp::Write { key, value: None })
            }
            Op::WriteFor { key, value, millis } => {
                ops.push(MicroOp::WriteUntil { key, value, until: expiry(now, millis) });
            }
            Op::Close { key, into } => {
                ops.extend([key, into].map(|key| MicroOp::Read { key, seen: Seen::Nothing }));
                ops.extend([into, key].map(|key| MicroOp::Write { key, value: None }));
            }
            Op::Write { key, value } => ops.push(MicroOp::Write { key, value: Some(value) }),
            Op::Append { key, element } => ops.push(MicroOp::Append { key, element }),
            Op::Add { key, .. } => {
                ops.push(MicroOp::Read { key, seen: Seen::Nothing });
                ops.push(MicroOp::Write { key, value: None });
            }
        }
    }
}

/// When what is written now for so long expires.
#[must_use]
pub const fn expiry(now: Timestamp, millis: u32) -> Timestamp {
    now.saturating_add(Duration::from_millis(millis as u64))
}
