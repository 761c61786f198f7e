//! What a trace calls things, so that a finding and the trace of its run agree: keys by their
//! numbers, transactions as the history does.
//!
//! ```text
//!   board ── the transactions under way ──► what a client prepares fits one of them ──► "txn 2-14 (T57)" wherever the id stands
//!   a frame that asks for a key, under a number ──► the frame that answers under that number is about the key, too
//! ```
//! A session does not know its transaction's id: the client gives it one at commit. So the first
//! prepare of an id is compared with what the sessions of that client have begun. What is appended
//! and what registers hold is unique, so that one alone fits; where only keys can be compared,
//! several may, and all of them are named. Nothing of this is made where no words are wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use timestone_seda::ReplyAddress;
use timestone_types::TxnId;
use timestone_wire::{Frame, Get, GetAtBackup, Kind, Message, Prepare, PrepareBody, RequestId};
use timestone_workload::history::MicroOp;
use timestone_workload::{KeyIndex, KeyShape, ValueKind, write_list_element};

use crate::board::{Board, OpenTransaction};
use crate::network::ProcessId;

/// The number of a workload's key.
fn index_of(key: &[u8]) -> Option<KeyIndex> {
    KeyShape::new(key.len()).read(key)
}

/// A key as findings have it: by its number, where it is a workload's.
pub(crate) fn key(bytes: &[u8]) -> String {
    index_of(bytes).map_or_else(|| bytes.escape_ascii().to_string(), |key| key.0.to_string())
}

/// A transaction as findings have it: by the index of its invocation in the history.
pub(crate) fn transaction(index: u64) -> String {
    format!("T{index}")
}

/// See the module.
pub(crate) struct Names {
    board: Arc<Board>,
    /// The slots of each client's sessions.
    slots: BTreeMap<ProcessId, Range<usize>>,
    /// The transactions of the history that an id may belong to.
    transactions: BTreeMap<TxnId, Vec<u64>>,
    /// Those that have an id.
    identified: BTreeSet<u64>,
    /// Keys that were asked for and have not been answered.
    asked: BTreeMap<(ProcessId, ReplyAddress, RequestId), String>,
}

impl Names {
    pub(crate) const fn new(board: Arc<Board>) -> Self {
        Self {
            board,
            slots: BTreeMap::new(),
            transactions: BTreeMap::new(),
            identified: BTreeSet::new(),
            asked: BTreeMap::new(),
        }
    }

    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    /// What the values are that sessions read.
    pub(crate) fn values(&self) -> ValueKind {
        self.board.work.spec().value_kind()
    }

    /// The sessions of a client work in these slots.
    pub(crate) fn client(&mut self, process: ProcessId, slots: Range<usize>) {
        self.slots.insert(process, slots);
    }

    /// What a transaction is called: its id, and what the history calls it, if it is one of the
    /// history's.
    pub(crate) fn of(&self, txn: TxnId) -> String {
        let named: Vec<String> = self
            .transactions
            .get(&txn)
            .into_iter()
            .flatten()
            .map(|index| transaction(*index))
            .collect();
        if named.is_empty() {
            format!("txn {txn}")
        } else {
            format!("txn {txn} ({})", named.join(" or "))
        }
    }

    /// Looks at a frame that a process sends or is given. The key that it answers for, if it
    /// answers for one.
    pub(crate) fn learn(
        &mut self,
        process: ProcessId,
        reply_to: ReplyAddress,
        frame: &Frame<'_>,
    ) -> Option<String> {
        let place = (process, reply_to, frame.envelope().request);
        match frame.kind() {
            Kind::Get => {
                if let Ok(get) = Get::decode(frame) {
                    self.asked.insert(place, key(get.key));
                }
            }
            Kind::GetAtBackup => {
                if let Ok(get) = GetAtBackup::decode(frame) {
                    self.asked.insert(place, key(get.key));
                }
            }
            Kind::Prepare => {
                if let Ok(prepare) = Prepare::decode(frame) {
                    self.identify(process, &prepare);
                }
            }
            kind if kind.is_reply() => return self.asked.remove(&place),
            _ => {}
        }
        None
    }

    fn identify(&mut self, process: ProcessId, prepare: &Prepare<'_>) {
        let Some(slots) = self.slots.get(&process) else { return };
        let fitting = self
            .board
            .open(slots.clone())
            .into_iter()
            .filter(|open| fits(&open.ops, &prepare.body));
        let fitting: Vec<u64> = fitting.map(|open: OpenTransaction| open.index).collect();
        let identified = &self.identified;
        let known = self.transactions.entry(prepare.txn).or_insert_with(|| {
            fitting.iter().copied().filter(|index| !identified.contains(index)).collect()
        });
        // Another shard's part tells more.
        if known.len() > 1 && known.iter().any(|index| fitting.contains(index)) {
            known.retain(|index| fitting.contains(index));
        }
        if let [only] = known[..] {
            self.identified.insert(only);
        }
    }
}

/// Whether a transaction that does this may have such a part.
fn fits(ops: &[MicroOp], part: &PrepareBody<'_>) -> bool {
    let touches = |key: KeyIndex| ops.iter().any(|op| op.key() == key);
    let wrote =
        |key: KeyIndex, value: &[u8]| ops.iter().any(|op| op.key() == key && writes(op, value));
    part.reads().all(|read| index_of(read.key).is_some_and(touches))
        && part.writes().all(|write| index_of(write.key).is_some_and(|key| wrote(key, write.value)))
}

/// Whether a step may be what left this value: a list ends with what was appended, a filling begins
/// with its number.
fn writes(op: &MicroOp, value: &[u8]) -> bool {
    match *op {
        MicroOp::Read { .. } => false,
        MicroOp::Append { element, .. } => {
            let mut end = Vec::new();
            write_list_element(element, &mut end);
            value.ends_with(&end)
        }
        MicroOp::Write { value: Some(number), .. } | MicroOp::WriteUntil { value: number, .. } => {
            let rest = value.strip_prefix(number.to_string().as_bytes());
            rest.is_some_and(|rest| !rest.first().is_some_and(u8::is_ascii_digit))
        }
        MicroOp::Write { value: None, .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use timestone_workload::write_integer;

    use super::*;

    #[test]
    fn keys_are_called_as_findings_call_them() {
        assert_eq!(key(b"k000000000000017"), "17");
        assert_eq!(key(b"k000000000000000"), "0");
        assert_eq!(key(b"user\x00"), "user\\x00");
    }

    #[test]
    fn a_value_tells_which_step_left_it() {
        let key = KeyIndex(3);
        let mut list = Vec::new();
        write_list_element(7, &mut list);
        write_list_element(8, &mut list);
        assert!(writes(&MicroOp::Append { key, element: 8 }, &list));
        assert!(!writes(&MicroOp::Append { key, element: 7 }, &list));
        let mut number = Vec::new();
        write_integer(12, &mut number);
        assert!(writes(&MicroOp::Write { key, value: Some(12) }, &number));
        assert!(!writes(&MicroOp::Write { key, value: Some(1) }, &number));
        number.extend_from_slice(b"|aaaa");
        assert!(writes(&MicroOp::Write { key, value: Some(12) }, &number));
        assert!(
            writes(&MicroOp::Write { key, value: None }, b"")
                && !writes(&MicroOp::Write { key, value: Some(0) }, b"")
        );
    }
}
