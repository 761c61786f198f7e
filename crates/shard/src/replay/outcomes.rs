//! Outcomes that a log tells of, by transaction and in the order of the batches that tell of them.
//!
//! A backup asks all the time which batch is the lowest that is needed, and forgets what lies below:
//! that must not cost a look at everything. There are some 100 000 of them, so they lie one behind the
//! other as they come and go, and whoever looks for one finds its place by its client and its number,
//! which rises from request to request:
//!
//! ```text
//!   by_number:  (client, number / 32) ─► places of 32 transactions
//!                                           │
//!   outcomes:   … │ batch 7 │ batch 7 │ batch 8 │ …     goes at the front, comes at the end
//! ```
//! In a hash map each was two lines of memory that no cache had, when it came and when it went. A
//! client whose numbers lie far apart, because most of its requests go elsewhere, has a chunk for each.
//!
//! Invariant: `by_number` names the last word of each transaction; other words of it count no more.

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use timestone_types::{ClientId, TxnId};
use timestone_wal::BatchNumber;

use super::Decided;

/// Successive numbers of a client whose places lie together: five lines of memory, which hold what a
/// client has under way at a time.
const CHUNK: u64 = 32;

/// The place of an outcome: how many came before it, whatever has gone since.
type OutcomePlace = u64;

/// No outcome has this place.
const NOWHERE: OutcomePlace = OutcomePlace::MAX;

/// The places of the outcomes of [`CHUNK`] successive numbers.
struct PlacesOfChunk {
    places: [OutcomePlace; CHUNK as usize],
    known: u32,
}

/// See the module.
pub(super) struct Outcomes {
    outcomes: VecDeque<(TxnId, Decided)>,
    /// The place of the first of them. It falls when something is put back in front.
    first: OutcomePlace,
    by_number: HashMap<(ClientId, u64), Box<PlacesOfChunk>, FixedState>,
    /// Transactions that have a place.
    known: usize,
    /// Of several logs one may tell of older batches than the one before it.
    is_in_order: bool,
}

impl Default for Outcomes {
    fn default() -> Self {
        Self {
            outcomes: VecDeque::new(),
            // In the middle: places are taken on both sides.
            first: OutcomePlace::MAX / 2,
            by_number: HashMap::default(),
            known: 0,
            is_in_order: true,
        }
    }
}

/// Where the place of a transaction is kept.
const fn chunk_of(txn: TxnId) -> ((ClientId, u64), usize) {
    let number = txn.sequence.get();
    ((txn.client, number / CHUNK), (number % CHUNK) as usize)
}

impl Outcomes {
    /// Notes an outcome, in the place of an earlier word of it.
    pub(super) fn insert(&mut self, txn: TxnId, decided: Decided) {
        self.is_in_order &=
            self.outcomes.back().is_none_or(|(_, last)| last.batch <= decided.batch);
        let place = self.first + self.outcomes.len() as OutcomePlace;
        self.outcomes.push_back((txn, decided));
        self.set_place(txn, place);
    }

    /// Another batch tells of a transaction whose outcome is known: that stands, and is needed as long
    /// as the later one of the two.
    pub(super) fn told_again(&mut self, txn: TxnId, batch: BatchNumber) {
        if let Some(known) = self.get(txn).filter(|known| known.batch < batch) {
            let again = Decided { batch, ..known.clone() };
            self.insert(txn, again);
        }
    }

    fn set_place(&mut self, txn: TxnId, place: OutcomePlace) {
        let (chunk, at) = chunk_of(txn);
        let chunk = self.by_number.entry(chunk).or_insert_with(|| {
            Box::new(PlacesOfChunk { places: [NOWHERE; CHUNK as usize], known: 0 })
        });
        let before = std::mem::replace(&mut chunk.places[at], place);
        if before == NOWHERE {
            chunk.known += 1;
            self.known += 1;
        }
    }

    fn forget_place(&mut self, txn: TxnId) {
        let (name, at) = chunk_of(txn);
        let Some(chunk) = self.by_number.get_mut(&name) else { return };
        let before = std::mem::replace(&mut chunk.places[at], NOWHERE);
        debug_assert!(before != NOWHERE, "what is forgotten was known");
        chunk.known -= 1;
        self.known -= 1;
        if chunk.known == 0 {
            self.by_number.remove(&name);
        }
    }

    fn place_of(&self, txn: TxnId) -> Option<OutcomePlace> {
        let (chunk, at) = chunk_of(txn);
        self.by_number.get(&chunk).map(|chunk| chunk.places[at]).filter(|&place| place != NOWHERE)
    }

    pub(super) fn get(&self, txn: TxnId) -> Option<&Decided> {
        let place = self.place_of(txn)?;
        let (known, decided) = &self.outcomes[(place - self.first) as usize];
        debug_assert_eq!(*known, txn, "a place names its transaction's last word");
        Some(decided)
    }

    pub(super) fn contains(&self, txn: TxnId) -> bool {
        self.place_of(txn).is_some()
    }

    /// All of them, in no order of transactions.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TxnId, &Decided)> {
        let places = self.first..;
        let current = places
            .zip(&self.outcomes)
            .filter(|(place, (txn, _))| self.place_of(*txn) == Some(*place));
        current.map(|(_, (txn, decided))| (*txn, decided))
    }

    /// The lowest batch that an outcome is known from.
    pub(super) fn lowest(&self) -> Option<BatchNumber> {
        let mut batches = self.iter().map(|(_, decided)| decided.batch);
        if self.is_in_order { batches.next() } else { batches.min() }
    }

    /// Forgets what is known from batches below this one, but for what is still needed.
    pub(super) fn forget_below(&mut self, batch: BatchNumber, is_needed: impl Fn(TxnId) -> bool) {
        if !self.is_in_order {
            self.put_in_order();
        }
        let mut kept = Vec::new();
        while let Some((txn, decided)) =
            self.outcomes.pop_front_if(|(_, decided)| decided.batch < batch)
        {
            let is_current = self.place_of(txn) == Some(self.first);
            self.first += 1;
            match (is_current, is_needed(txn)) {
                (true, true) => kept.push((txn, decided)),
                (true, false) => self.forget_place(txn),
                (false, _) => {}
            }
        }
        while let Some((txn, decided)) = kept.pop() {
            self.first -= 1;
            self.outcomes.push_front((txn, decided));
            self.set_place(txn, self.first);
        }
        debug_assert!(self.known <= self.outcomes.len(), "whatever has a place is there");
    }

    /// Sorts them by their batches.
    fn put_in_order(&mut self) {
        self.keep(|_| true);
        self.outcomes.make_contiguous().sort_by_key(|(_, decided)| decided.batch);
        self.is_in_order = true;
        self.place_all();
    }

    /// Forgets all that is not needed.
    pub(super) fn forget_all(&mut self, is_needed: impl Fn(TxnId) -> bool) {
        self.keep(is_needed);
        self.place_all();
    }

    /// Drops what is not needed, and earlier words of what is. Places are wrong after it.
    fn keep(&mut self, is_needed: impl Fn(TxnId) -> bool) {
        let (mut place, first) = (self.first, &self.by_number);
        let is_current = |txn: TxnId, place: OutcomePlace| {
            let (chunk, at) = chunk_of(txn);
            first.get(&chunk).is_some_and(|chunk| chunk.places[at] == place)
        };
        self.outcomes.retain(|(txn, _)| {
            let stays = is_current(*txn, place) && is_needed(*txn);
            place += 1;
            stays
        });
    }

    /// Notes all places anew.
    fn place_all(&mut self) {
        self.by_number.clear();
        self.known = 0;
        for at in 0..self.outcomes.len() {
            self.set_place(self.outcomes[at].0, self.first + at as OutcomePlace);
        }
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
    fn a_later_word_stands_and_the_outcome_with_it() {
        let mut outcomes = told(&[(1, 3), (2, 4)]);
        outcomes.told_again(txn(1), BatchNumber::new(6));
        outcomes.told_again(txn(2), BatchNumber::new(2));
        outcomes.told_again(txn(9), BatchNumber::new(6));
        assert_eq!(known(&outcomes), [txn(1), txn(2)]);
        assert_eq!(outcomes.lowest(), Some(BatchNumber::new(4)));
        outcomes.forget_below(BatchNumber::new(5), |_| false);
        assert_eq!(
            (known(&outcomes), outcomes.lowest()),
            (vec![txn(1)], Some(BatchNumber::new(6)))
        );
        assert_eq!(outcomes.get(txn(1)).map(|known| known.batch), Some(BatchNumber::new(6)));
        assert!(!outcomes.contains(txn(2)));
    }

    #[test]
    fn clients_and_numbers_that_lie_far_apart_are_told_apart_and_leave_nothing_behind() {
        let mut outcomes = Outcomes::default();
        let far =
            |client: u32, number: u64| TxnId::new(ClientId::new(client), Sequence::new(number));
        let all: Vec<_> = [0, 31, 32, 1 << 40, u64::MAX].map(|number| far(1, number)).into();
        let all = [all, vec![far(2, 0), far(2, 31)]].concat();
        for (txn, batch) in all.iter().zip(1..) {
            outcomes.insert(*txn, decided(batch));
        }
        for (txn, batch) in all.iter().zip(1..) {
            assert_eq!(outcomes.get(*txn).map(|known| known.batch.get()), Some(batch));
        }
        assert!(!outcomes.contains(far(2, 32)) && !outcomes.contains(far(3, 0)));
        outcomes.forget_below(BatchNumber::new(99), |one| one == far(1, 32));
        assert_eq!(known(&outcomes), [far(1, 32)]);
        outcomes.forget_all(|_| false);
        assert_eq!((known(&outcomes), outcomes.by_number.len()), (vec![], 0));
    }

    #[test]
    fn what_is_told_twice_in_any_order_is_known_once() {
        let mut outcomes = told(&[(1, 8), (2, 9), (1, 3), (3, 2), (2, 10)]);
        assert_eq!(outcomes.lowest(), Some(BatchNumber::new(2)));
        assert_eq!(outcomes.get(txn(1)).map(|known| known.batch.get()), Some(3), "the last word");
        outcomes.forget_below(BatchNumber::new(3), |_| false);
        assert_eq!(
            (known(&outcomes), outcomes.lowest()),
            (vec![txn(1), txn(2)], Some(BatchNumber::new(3)))
        );
        outcomes.forget_below(BatchNumber::new(10), |one| one == txn(1));
        assert_eq!((known(&outcomes), outcomes.outcomes.len()), (vec![txn(1), txn(2)], 2));
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
