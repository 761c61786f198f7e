//! Outcomes that a log tells of, by transaction and in the order of the batches that tell of them.
//!
//! A backup asks all the time which batch is the lowest that is needed, and forgets what lies below:
//! that must not cost a look at everything.
//!
//! Invariant: every outcome has its place in the order.

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use timestone_types::TxnId;
use timestone_wal::BatchNumber;

use super::Decided;

/// See the module.
pub(super) struct Outcomes {
    by_txn: HashMap<TxnId, Decided, FixedState>,
    /// A place whose batch is not that of the outcome is an earlier one's.
    order: VecDeque<(BatchNumber, TxnId)>,
    /// Of several logs one may tell of older batches than the one before it.
    is_in_order: bool,
}

impl Default for Outcomes {
    fn default() -> Self {
        Self { by_txn: HashMap::default(), order: VecDeque::new(), is_in_order: true }
    }
}

impl Outcomes {
    /// Notes an outcome, in the place of an earlier word of it.
    pub(super) fn insert(&mut self, txn: TxnId, decided: Decided) {
        self.place((decided.batch, txn));
        self.by_txn.insert(txn, decided);
    }

    /// Another batch tells of a transaction whose outcome is known: that stands, and is needed as long
    /// as the later one of the two.
    pub(super) fn told_again(&mut self, txn: TxnId, batch: BatchNumber) {
        if let Some(known) = self.by_txn.get_mut(&txn).filter(|known| known.batch < batch) {
            known.batch = batch;
            self.place((batch, txn));
        }
    }

    fn place(&mut self, place: (BatchNumber, TxnId)) {
        self.is_in_order &= self.order.back().is_none_or(|last| last.0 <= place.0);
        self.order.push_back(place);
    }

    pub(super) fn get(&self, txn: TxnId) -> Option<&Decided> {
        self.by_txn.get(&txn)
    }

    pub(super) fn contains(&self, txn: TxnId) -> bool {
        self.by_txn.contains_key(&txn)
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TxnId, &Decided)> {
        self.by_txn.iter().map(|(txn, decided)| (*txn, decided))
    }

    fn is_current(&self, &(batch, txn): &(BatchNumber, TxnId)) -> bool {
        self.get(txn).is_some_and(|decided| decided.batch == batch)
    }

    /// The lowest batch that an outcome is known from.
    pub(super) fn lowest(&self) -> Option<BatchNumber> {
        if !self.is_in_order {
            return self.by_txn.values().map(|decided| decided.batch).min();
        }
        self.order.iter().find(|place| self.is_current(place)).map(|place| place.0)
    }

    /// Forgets what is known from batches below this one, but for what is still needed.
    pub(super) fn forget_below(&mut self, batch: BatchNumber, is_needed: impl Fn(TxnId) -> bool) {
        if !self.is_in_order {
            self.order.make_contiguous().sort_unstable_by_key(|place| place.0);
            self.is_in_order = true;
        }
        let mut kept = Vec::new();
        while let Some(place) = self.order.pop_front_if(|place| place.0 < batch) {
            match (self.is_current(&place), is_needed(place.1)) {
                (true, true) => kept.push(place),
                (true, false) => drop(self.by_txn.remove(&place.1)),
                (false, _) => {}
            }
        }
        while let Some(place) = kept.pop() {
            self.order.push_front(place);
        }
        debug_assert!(self.order.len() >= self.by_txn.len(), "every outcome has its place");
    }

    /// Forgets all that is not needed.
    pub(super) fn forget_all(&mut self, is_needed: impl Fn(TxnId) -> bool) {
        self.by_txn.retain(|txn, _| is_needed(*txn));
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::{ClientId, PreviousFound, Sequence, Timestamp, TxnOutcome};

    use super::*;

    fn txn(number: u32) -> TxnId {
        TxnId::new(ClientId::new(7), Sequence::new(number.into()))
    }

    fn decided(batch: u64) -> Decided {
        Decided {
            begin: Timestamp::ZERO,
            outcome: TxnOutcome::Aborted,
            abort: None,
            found: PreviousFound::Unasked,
            met: Timestamp::ZERO,
            batch: BatchNumber::new(batch),
            participants: Vec::new(),
        }
    }

    fn told(batches: &[(u32, u64)]) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for &(number, batch) in batches {
            outcomes.insert(txn(number), decided(batch));
        }
        outcomes
    }

    fn known(outcomes: &Outcomes) -> Vec<TxnId> {
        let mut known: Vec<TxnId> = outcomes.iter().map(|(txn, _)| txn).collect();
        known.sort_unstable();
        known
    }

    #[test]
    fn what_is_known_from_later_batches_stays() {
        let mut outcomes = told(&[(1, 3), (2, 3), (3, 5), (1, 6)]);
        assert_eq!(outcomes.lowest(), Some(BatchNumber::new(3)));
        outcomes.forget_below(BatchNumber::new(5), |_| false);
        assert_eq!(known(&outcomes), [txn(1), txn(3)]);
        assert_eq!(outcomes.lowest(), Some(BatchNumber::new(5)));
        outcomes.forget_below(BatchNumber::new(9), |_| false);
        assert_eq!((known(&outcomes), outcomes.lowest()), (vec![], None));
    }

    #[test]
    fn what_is_needed_stays_the_lowest_and_hides_nothing_behind_it() {
        let mut outcomes = told(&[(1, 3), (2, 3), (3, 5)]);
        outcomes.forget_below(BatchNumber::new(9), |one| one == txn(2));
        assert_eq!(known(&outcomes), [txn(2)]);
        assert_eq!(outcomes.lowest(), Some(BatchNumber::new(3)));
        outcomes.insert(txn(4), decided(7));
        outcomes.forget_below(BatchNumber::new(9), |_| false);
        assert_eq!(known(&outcomes), []);
    }

    #[test]
    fn logs_may_come_in_any_order() {
        let mut outcomes = told(&[(1, 8), (2, 9), (3, 2), (4, 4)]);
        assert_eq!(outcomes.lowest(), Some(BatchNumber::new(2)));
        outcomes.forget_below(BatchNumber::new(5), |_| false);
        assert_eq!(known(&outcomes), [txn(1), txn(2)]);
        assert_eq!(outcomes.lowest(), Some(BatchNumber::new(8)));
    }
}
