//! What is on its way to the log, and what follows when it is durable.
//!
//! ```text
//!   append(intent, pending) ──▶ Output::Log { sequence } ─ ─ ─ the log ─ ─ ─▶ Durable { range } ──▶ pending, in order
//!
//!   1 ─── durable ───▶│ hole │── beyond ──│ hole │── beyond ──│ ─── last
//! ```
//!
//! Invariants: sequence numbers rise by one; what follows a record happens once, behind what
//! follows every lower one; ranges beyond the first hole are disjoint, rising, and have a hole
//! below each.
//!
//! It does not know what a record says.

use std::collections::VecDeque;

use timestone_types::{AbortKind, AbortReason, Timestamp, TxnId};

use super::input::{LogRange, LogSequence, Token};
use super::output::{LogIntent, Output};
use super::table::{Asker, Handle};

/// What is waited for in the log, and what follows.
#[derive(Clone, Copy, Debug)]
pub(super) enum PendingRecord {
    Nothing,
    Promise {
        record: Handle,
        txn: TxnId,
        asker: Asker,
    },
    AbortedPromise {
        record: Handle,
        txn: TxnId,
        asker: Asker,
        reason: AbortReason,
    },
    /// A promise that termination has ended.
    GivenUp {
        kind: AbortKind,
        record: Handle,
        txn: TxnId,
    },
    Committed {
        record: Handle,
        txn: TxnId,
        token: Option<Token>,
    },
    Aborted {
        txn: TxnId,
        then: AfterAbort,
    },
    Bound {
        bound: Timestamp,
        watermark: Timestamp,
    },
}

/// What follows when an abort is durable.
#[derive(Clone, Copy, Debug)]
pub(super) enum AfterAbort {
    Vote { asker: Asker, reason: AbortReason },
    Acknowledge(Token),
    Nothing,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Appended {
    pending: VecDeque<(LogSequence, PendingRecord)>,
    last: LogSequence,
    /// Everything up to here is durable.
    durable: LogSequence,
    /// Durable as well, beyond what is not. There are none on one node, whose log is one prefix.
    beyond: Vec<LogRange>,
}

impl Appended {
    /// Asks for a record; `pending` follows when it is durable.
    pub(super) fn append(
        &mut self,
        intent: LogIntent,
        pending: PendingRecord,
        out: &mut Vec<Output>,
    ) {
        self.last = self.last.next();
        let sequence = self.last;
        debug_assert!(self.pending.back().is_none_or(|last| last.0 < sequence), "numbers rise");
        assert!(self.durable < sequence, "nothing is durable before it is appended");
        self.pending.push_back((sequence, pending));
        out.push(Output::Log { sequence, intent });
    }

    /// A range is durable. What was never asked for is nobody's record.
    #[inline]
    pub(super) fn durable(&mut self, range: LogRange) {
        let range = LogRange { last: range.last.min(self.last), ..range };
        if range.first <= self.durable.next() {
            self.durable = self.durable.max(range.last);
            if !self.beyond.is_empty() {
                self.close_holes();
            }
        } else if range.first <= range.last {
            self.add_beyond(range);
        }
        assert!(self.durable <= self.last, "nothing is durable that was not appended");
        debug_assert!(self.beyond.iter().all(|one| one.first > self.durable.next()));
    }

    /// What lies beyond a hole that is gone joins the prefix.
    #[cold]
    fn close_holes(&mut self) {
        let durable = &mut self.durable;
        self.beyond.retain(|range| {
            let joins = range.first <= durable.next();
            if joins {
                *durable = range.last.max(*durable);
            }
            !joins
        });
        debug_assert!(self.beyond.is_sorted_by(|one, other| one.last < other.first));
    }

    #[cold]
    fn add_beyond(&mut self, new: LogRange) {
        let mut new = new;
        self.beyond.retain(|old| {
            let touches = new.first <= old.last.next() && old.first <= new.last.next();
            if touches {
                new = LogRange { first: new.first.min(old.first), last: new.last.max(old.last) };
            }
            !touches
        });
        let at = self.beyond.partition_point(|old| old.first < new.first);
        self.beyond.insert(at, new);
        assert!(
            self.beyond.len() <= self.pending.len(),
            "each range has records that are waited for"
        );
    }

    /// What follows next, now that it is durable.
    #[inline]
    pub(super) fn next_durable(&mut self) -> Option<PendingRecord> {
        let &(sequence, pending) = self.pending.front()?;
        if sequence > self.durable {
            return None;
        }
        self.pending.pop_front();
        debug_assert!(self.pending.front().is_none_or(|next| next.0 > sequence), "in order");
        Some(pending)
    }

    /// The last number that was given out.
    #[cfg(test)]
    pub(super) const fn last(&self) -> LogSequence {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many records are carried out after each of these ranges, of ten.
    fn carried_out(ranges: &[(u64, u64)]) -> Vec<usize> {
        let (mut appended, mut out) = (Appended::default(), Vec::new());
        for n in 0..10 {
            let bound = Timestamp::from_nanos(n);
            let intent = LogIntent::ReadBound { bound, watermark: bound, is_propagating: false };
            appended.append(intent, PendingRecord::Bound { bound, watermark: bound }, &mut out);
        }
        let mut next = 0;
        let carried_out = ranges.iter().map(|&(first, last)| {
            appended.durable(LogRange { first: LogSequence(first), last: LogSequence(last) });
            let mut count = 0;
            while let Some(PendingRecord::Bound { bound, .. }) = appended.next_durable() {
                assert_eq!(bound, Timestamp::from_nanos(next), "in order, each once");
                (next, count) = (next + 1, count + 1);
            }
            count
        });
        carried_out.collect()
    }

    #[test]
    fn a_prefix_is_carried_out_at_once() {
        assert_eq!(carried_out(&[(1, 3), (1, 3), (1, 10), (1, 99)]), [3, 0, 7, 0]);
    }

    #[test]
    fn what_lies_beyond_a_hole_waits_until_it_is_filled() {
        assert_eq!(carried_out(&[(3, 4), (6, 7), (5, 5), (2, 2), (1, 1)]), [0, 0, 0, 0, 7]);
        assert_eq!(carried_out(&[(9, 10), (4, 6), (5, 9), (1, 3)]), [0, 0, 0, 10]);
        assert_eq!(carried_out(&[(5, 4), (8, 20), (1, 7)]), [0, 0, 10]);
    }
}
