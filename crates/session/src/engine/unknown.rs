//! Transactions and writes that were reported `Unknown`, with what was learned since, oldest first.
//!
//! They hold the acknowledged bound back for a while. That does not keep participants from forgetting what became of
//! them: the watermark does, which is not held for them, or what is overwritten could not be collected. Bounds: [`limits::UNKNOWN_OUTCOME_KEPT`], [`limits::MAX_UNKNOWN_OUTCOMES`].

use std::collections::VecDeque;

use timestone_types::{ShardId, Timestamp, TxnId, TxnOutcome};

use crate::limits;

/// One that was reported `Unknown`.
#[derive(Clone, Debug)]
pub(crate) struct UnknownOutcome {
    until: Timestamp,
    pub(super) txn: TxnId,
    /// Where it may be known.
    pub(super) at: Box<[ShardId]>,
    /// What became of it, once that is known.
    outcome: Option<TxnOutcome>,
}

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct UnknownOutcomes(VecDeque<UnknownOutcome>);

impl UnknownOutcomes {
    /// One more; `outcome` is what is known of it already.
    pub(super) fn remember(
        &mut self,
        now: Timestamp,
        txn: TxnId,
        at: Box<[ShardId]>,
        outcome: Option<TxnOutcome>,
    ) {
        assert!(!at.is_empty(), "{txn} may be known nowhere");
        let until = now.saturating_add(limits::UNKNOWN_OUTCOME_KEPT);
        assert!(self.0.back().is_none_or(|last| last.until <= until), "{txn} is not the youngest");
        self.0.push_back(UnknownOutcome { until, txn, at, outcome });
    }

    /// What became of one of them; the first answer stays.
    pub(super) fn learn(&mut self, txn: TxnId, outcome: Option<TxnOutcome>) {
        if let Some(known) = self.0.iter_mut().find(|known| known.txn == txn) {
            known.outcome = known.outcome.or(outcome);
        }
        let is_sorted = || self.0.iter().is_sorted_by_key(|known| known.until);
        debug_assert!(is_sorted(), "the oldest is not first");
    }

    pub(super) fn outcome_of(&self, txn: TxnId) -> Option<TxnOutcome> {
        self.0.iter().find(|known| known.txn == txn).and_then(|known| known.outcome)
    }

    /// Forgets those whose time is over, and the oldest of too many.
    #[inline]
    pub(super) fn trim(&mut self, now: Timestamp) {
        let count = self.0.len();
        let is_over = |oldest: &UnknownOutcome, count: usize| {
            oldest.until <= now || count > limits::MAX_UNKNOWN_OUTCOMES
        };
        while self.0.front().is_some_and(|oldest| is_over(oldest, self.0.len())) {
            self.0.pop_front();
        }
        debug_assert!(self.0.len() <= count.min(limits::MAX_UNKNOWN_OUTCOMES));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &UnknownOutcome> {
        self.0.iter()
    }
}
