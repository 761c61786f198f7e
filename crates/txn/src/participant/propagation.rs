//! Propagation of decisions: a shard that knows a commit tells the other participants itself.
//!
//! ```text
//!   watermark passes an unacknowledged commit ─┐
//!   the run ends, and has no log ──────────────┴─▶ TellDecision to all ──all have acknowledged──▶ forgotten
//! ```
//!
//! The client of such a commit never said that everybody has acknowledged it. Until they have, its
//! record must survive a crash, or be copied forward.
//!
//! Invariant: an effort is about a durable outcome that is kept.

use core::time::Duration;
use std::collections::BTreeMap;

use timestone_types::{ShardId, Timestamp, TxnId, TxnOutcome};

use super::output::Output;
use super::table::{Fate, Kept};
use super::transactions::Transactions;
use super::waiting::{Timer, Waiting};
use crate::limits::MAX_TERMINATION_BACKOFF;

/// The effort to tell one decision.
#[derive(Clone, Debug)]
struct Effort {
    outcome: TxnOutcome,
    /// Who has to be told, and whether it has acknowledged.
    others: Vec<(ShardId, bool)>,
    pause: Duration,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Propagation {
    shard: ShardId,
    pause: Duration,
    efforts: BTreeMap<TxnId, Effort>,
    /// Nothing of this run outlives it: see [`super::Input::Closing`].
    is_closing: bool,
}

impl Propagation {
    /// `pause` is that between the first two attempts.
    pub(super) const fn new(shard: ShardId, pause: Duration) -> Self {
        Self { shard, pause, efforts: BTreeMap::new(), is_closing: false }
    }

    pub(super) fn len(&self) -> usize {
        self.efforts.len()
    }

    /// Whether commits below the watermark are being told to participants that have not
    /// acknowledged them.
    pub(super) fn is_active(&self) -> bool {
        !self.efforts.is_empty()
    }

    /// Tells a commit to the other participants; false if there are none.
    pub(super) fn begin(
        &mut self,
        now: Timestamp,
        waiting: &mut Waiting,
        kept: &Kept,
        out: &mut Vec<Output>,
    ) -> bool {
        assert!(kept.durable, "only what is durable is propagated");
        let (txn, outcome) = (kept.txn, kept.fate.outcome());
        let Fate::Committed { participants, .. } = &kept.fate else { return false };
        let shards = participants.as_slice().iter().copied();
        let others: Vec<_> =
            shards.filter(|&one| one != self.shard).map(|one| (one, false)).collect();
        if others.is_empty() {
            return false;
        }
        out.extend(others.iter().map(|&(to, _)| Output::TellDecision { to, txn, outcome }));
        self.efforts.insert(txn, Effort { outcome, others, pause: self.pause });
        waiting.set_timer(now.saturating_add(self.pause), Timer::Effort(txn));
        true
    }

    /// The next attempt, after a longer and longer pause.
    pub(super) fn try_again(
        &mut self,
        now: Timestamp,
        txns: &mut Transactions,
        waiting: &mut Waiting,
        txn: TxnId,
        out: &mut Vec<Output>,
    ) {
        let Some(effort) = self.efforts.get_mut(&txn) else { return };
        debug_assert!(effort.others.iter().any(|one| !one.1), "somebody has not acknowledged it");
        if txns.is_acked(txn) {
            return self.end(txns, txn);
        }
        effort.pause = (effort.pause * 2).min(MAX_TERMINATION_BACKOFF);
        waiting.set_timer(now.saturating_add(effort.pause), Timer::Effort(txn));
        let outcome = effort.outcome;
        let missing = effort.others.iter().filter(|one| !one.1);
        out.extend(missing.map(|&(to, _)| Output::TellDecision { to, txn, outcome }));
    }

    /// A peer has the decision.
    pub(super) fn acked(&mut self, txns: &mut Transactions, from: ShardId, txn: TxnId) {
        let Some(effort) = self.efforts.get_mut(&txn) else { return };
        debug_assert!(effort.others.iter().all(|one| one.0 != self.shard));
        let Some(other) = effort.others.iter_mut().find(|one| one.0 == from) else { return };
        other.1 = true;
        if effort.others.iter().all(|one| one.1) {
            self.end(txns, txn);
        }
    }

    /// Before the end of a run without a log: all commits over several shards are told to the
    /// others, which would ask in vain later.
    pub(super) fn begin_all(
        &mut self,
        now: Timestamp,
        txns: &Transactions,
        waiting: &mut Waiting,
        out: &mut Vec<Output>,
    ) {
        self.is_closing = true;
        for (txn, index) in txns.durable_outcomes() {
            if !self.efforts.contains_key(&txn) {
                self.begin(now, waiting, txns.table.kept(index), out);
            }
        }
        let is_owed = |effort: &Effort| effort.others.iter().any(|one| !one.1);
        debug_assert!(self.efforts.values().all(is_owed), "who has acknowledged is not told again");
    }

    fn end(&mut self, txns: &mut Transactions, txn: TxnId) {
        let ended = self.efforts.remove(&txn);
        assert!(ended.is_some(), "an effort ends once");
        txns.propagated(txn, self.is_closing);
    }
}
