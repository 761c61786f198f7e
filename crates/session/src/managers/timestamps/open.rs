//! Which transactions of a session are open: a session that is closed finds its own ones, however many
//! others have.
//!
//! ```text
//!   session's slot ─► first ⇄ … ⇄ last, slots of transactions
//! ```
//! Invariant: a transaction is in the list of its session from its begin until it asks for its
//! commit, or ends.

/// A place in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ListPlace {
    session: u32,
    previous: Option<u32>,
    next: Option<u32>,
}

/// See the module's description. Slots are reused, so that a steady state allocates nothing.
#[derive(Debug, Default)]
pub(super) struct OpenTxns {
    /// By the session's slot.
    first: Vec<Option<u32>>,
    /// By the transaction's slot.
    places: Vec<Option<ListPlace>>,
}

impl OpenTxns {
    pub(super) const fn new() -> Self {
        Self { first: Vec::new(), places: Vec::new() }
    }

    /// A transaction has begun.
    pub(super) fn opened(&mut self, session: u32, txn: u32) {
        if self.first.len() <= session as usize {
            self.first.resize(session as usize + 1, None);
        }
        if self.places.len() <= txn as usize {
            self.places.resize(txn as usize + 1, None);
        }
        assert!(self.places[txn as usize].is_none(), "slot {txn} was opened twice");
        let next = self.first[session as usize].replace(txn);
        self.places[txn as usize] = Some(ListPlace { session, previous: None, next });
        if let Some(next) = next {
            self.change(next, |place| place.previous = Some(txn));
        }
    }

    /// A transaction is not open any more.
    pub(super) fn ended(&mut self, txn: u32) {
        let place = self.places.get_mut(txn as usize).and_then(Option::take);
        let ListPlace { session, previous, next } =
            place.expect("a transaction is open until it ends");
        match previous {
            Some(previous) => self.change(previous, |place| place.next = next),
            None => self.first[session as usize] = next,
        }
        if let Some(next) = next {
            self.change(next, |place| place.previous = previous);
        }
    }

    /// The one of a session that has begun last.
    pub(super) fn last_of(&self, session: u32) -> Option<u32> {
        self.first.get(session as usize).copied().flatten()
    }

    /// Whether a transaction is open, and of this session.
    pub(super) fn has(&self, session: u32, txn: u32) -> bool {
        let place = self.places.get(txn as usize).copied().flatten();
        place.is_some_and(|place| place.session == session)
    }

    /// How many there are; walks all slots.
    pub(super) fn count(&self) -> usize {
        self.places.iter().flatten().count()
    }

    fn change(&mut self, txn: u32, how: impl FnOnce(&mut ListPlace)) {
        how(self.places[txn as usize].as_mut().expect("a neighbour is in the list"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_of(open: &OpenTxns, session: u32) -> Vec<u32> {
        let next = |txn: &u32| open.places[*txn as usize].and_then(|place| place.next);
        core::iter::successors(open.last_of(session), next).collect()
    }

    #[test]
    fn a_session_finds_its_own_ones_whichever_have_ended() {
        let mut open = OpenTxns::new();
        for txn in 0..10 {
            open.opened(txn % 2, txn);
        }
        assert_eq!(all_of(&open, 0), [8, 6, 4, 2, 0]);
        for (ended, left) in [(4, vec![8, 6, 2, 0]), (8, vec![6, 2, 0]), (0, vec![6, 2])] {
            open.ended(ended);
            assert_eq!(all_of(&open, 0), left);
        }
        assert_eq!(all_of(&open, 1), [9, 7, 5, 3, 1]);
        open.opened(1, 4);
        assert_eq!(all_of(&open, 1), [4, 9, 7, 5, 3, 1]);
        assert!(open.has(1, 4) && !open.has(0, 4) && !open.has(0, 0));
        assert_eq!((open.count(), open.last_of(7)), (8, None));
    }
}
