//! Direct conflicts in real time: of two read-write transactions that met on one key, one of them
//! writing, the one that had completed before the other was invoked comes first.
//!
//! This is what the store promises without waiting out its clocks (docs/protocol/transactions.md,
//! "Real time"). It needs no cycles: the checkers walk each key's transactions in the order of its
//! versions, and whoever stands behind a transaction that was invoked after it had completed stands
//! wrongly. The latest invocation so far is all that must be remembered.
//!
//! ```text
//!   versions of key 3:   T1 wrote ─► T4, T2 read ─► T5 wrote ─► T3 read …
//!                        latest invocation among those before: of writers (for who reads), of all (for who writes)
//! ```

use super::graph::{Edge, Why};
use super::transactions::{Transactions, TxnEnd, TxnRef};
use crate::KeyIndex;

/// Two transactions in the order of their key, and the real time that contradicts it.
pub(super) type Contradiction = [Edge; 2];

/// A walk along one key's versions.
pub(super) struct ConflictWalk<'w, 'a> {
    transactions: &'w Transactions<'a>,
    key: KeyIndex,
    found: &'w mut Vec<Contradiction>,
    latest_writer: Option<Latest>,
    latest: Option<Latest>,
}

/// Whoever was invoked last so far.
#[derive(Clone, Copy)]
struct Latest {
    invoked: usize,
    by: TxnRef,
    is_writer: bool,
}

impl<'w, 'a> ConflictWalk<'w, 'a> {
    /// From before the key's first version.
    pub(super) const fn new(
        transactions: &'w Transactions<'a>,
        key: KeyIndex,
        found: &'w mut Vec<Contradiction>,
    ) -> Self {
        Self { transactions, key, found, latest_writer: None, latest: None }
    }

    /// This transaction read the version that was reached.
    pub(super) fn read(&mut self, by: TxnRef) {
        self.judge(by, self.latest_writer, false, None);
        let met = Latest { invoked: self.transactions.get(by).invoked, by, is_writer: false };
        if self.transactions.get(by).writes()
            && self.latest.is_none_or(|latest| latest.invoked < met.invoked)
        {
            self.latest = Some(met);
        }
    }

    /// This transaction wrote the next version.
    /// `None`: the key was deleted.
    pub(super) fn write(&mut self, by: TxnRef, value: Option<i64>) {
        self.judge(by, self.latest, true, value);
        let met = Some(Latest { invoked: self.transactions.get(by).invoked, by, is_writer: true });
        for latest in [&mut self.latest, &mut self.latest_writer] {
            if latest.is_none_or(|latest| Some(latest.invoked) < met.map(|met| met.invoked)) {
                *latest = met;
            }
        }
    }

    /// This transaction wrote one of the versions that follow in an unknown order.
    pub(super) fn write_unseen(&mut self, by: TxnRef, value: i64) {
        self.judge(by, self.latest, true, Some(value));
    }

    fn judge(&mut self, by: TxnRef, before: Option<Latest>, wrote: bool, value: Option<i64>) {
        let txn = self.transactions.get(by);
        let (Some(before), Some(completed)) = (before, txn.completed) else { return };
        if before.invoked < completed || txn.end != TxnEnd::Committed || !txn.writes() {
            return;
        }
        let why = match before.is_writer {
            _ if !wrote => Why::Wr,
            true => Why::Ww,
            false => Why::Rw,
        };
        let order = Edge { from: before.by.0, to: by.0, why, key: self.key, value };
        self.found.push([order, Edge::of_order(by.0, before.by.0, Why::RealTime)]);
    }
}
