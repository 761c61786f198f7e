//! Under which id the client asks, and the numbers of its transactions and writes.
//!
//! Invariant: no transaction or write has the name of an earlier one, whatever ids come. Whoever
//! hands them out may hand one out again, for which servers may still keep outcomes: its numbers
//! go on then. Only under an id that is above all others do they begin at the first.

use timestone_types::{ClientId, Sequence, TxnId};

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    id: ClientId,
    last: Sequence,
    /// Some server said that the session of this client is over.
    is_over: bool,
    /// The highest id so far, and the highest number under any.
    highest: (ClientId, Sequence),
}

impl Identity {
    pub(super) const fn new(id: ClientId) -> Self {
        Self { id, last: Sequence::ZERO, is_over: false, highest: (id, Sequence::ZERO) }
    }

    /// The id that requests carry.
    #[inline]
    pub(crate) const fn id(&self) -> ClientId {
        self.id
    }

    /// Whether the server ended this client's session: the host asks for a new client id and calls
    /// [`crate::Engine::renew_client`].
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The last number that was given out.
    pub(super) const fn last(&self) -> Sequence {
        self.last
    }

    /// The name of another transaction or write.
    pub(super) fn next_id(&mut self) -> TxnId {
        let last = self.last;
        self.last = last.next();
        assert!(self.last > last, "an id was used before");
        TxnId::new(self.id, self.last)
    }

    /// Some server said that the session of this client is over.
    pub(super) const fn end(&mut self) {
        self.is_over = true;
        debug_assert!(self.id.get() <= self.highest.0.get(), "an id that was never handed out");
    }

    /// Goes on under an id that was handed out.
    pub(super) fn renew(&mut self, id: ClientId) {
        let (highest, last) = self.highest;
        let last = last.max(self.last);
        self.highest = (highest.max(id), last);
        self.id = id;
        self.last = if id > highest { Sequence::ZERO } else { last };
        self.is_over = false;
        debug_assert!(self.last <= last && self.id <= self.highest.0, "numbers go back");
    }

    /// What has the present id has a number that was given out.
    pub(super) fn assert_begun(&self, txn: TxnId) {
        let is_given_out = txn.client != self.id || txn.sequence <= self.last;
        debug_assert!(is_given_out && txn != TxnId::default(), "{txn} was never begun");
    }
}
