//! Look-ups of youngest versions that wait for the store, and the requests that wait for them.
//!
//! ```text
//!   submit ─► Reads::latest ─┬─ all known ─► Participant::step
//!                            └─ one pending ─► Awaited (frame kept) ─ LatestDone … ─► submit again, with the answers
//!   a write is applied ─────────► raise ────────┘
//! ```
//! Why an answer is right although time has passed: [`Reads`](timestone_store::Reads) only says what
//! was youngest at *some* moment since it was asked. What the participant would need in addition are
//! the writes since then; its access records may have forgotten them, when the window has rotated
//! twice. So every write that this shard puts into the store raises the answers of all rounds
//! ([`Lookups::raise`]), those of keys that were known at once included. Together they are at least
//! as young as what the store holds when the participant is stepped. That an answer may be younger
//! than what a new look-up would find (collection may have dropped it) is what access records do,
//! too.
//!
//! A write that is decided and still waits for room in the store is held by the participant, whose
//! access records of held keys do not go. It raises the answers when it is put.
//!
//! Invariants: a request has one round at most; a round's answers are used by one step, and a
//! request that the core hands back looks up afresh. Nothing here costs anything while nothing is
//! pending.

use std::collections::BTreeMap;

use timestone_store::{Latest, ReadToken, StoreError};
use timestone_txn::participant::{LatestInStore, Token, Wait};
use timestone_types::{KeyHash, KeyspaceId, Version};

/// One key of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) key: KeyHash,
    /// What the store said and what was written since; the youngest of it.
    pub(crate) latest: LatestInStore,
}

/// The keys of one request.
#[derive(Debug)]
struct Awaited {
    items: Vec<Item>,
    /// Look-ups that are not answered yet.
    missing: usize,
    /// What the core gave back with the request, for when it goes on.
    wait: Option<Wait>,
    failed: Option<StoreError>,
}

/// What an answer of the store leads to.
#[derive(Debug)]
pub(crate) enum Answered {
    /// Others are still awaited, or nobody waits any more.
    Waiting,
    /// The request may go on.
    Ready { token: Token, wait: Option<Wait> },
    /// The request cannot go on.
    Failed { token: Token, error: StoreError },
}

/// All rounds of a shard.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    /// Requests by token.
    rounds: BTreeMap<Token, Awaited>,
    /// Which item of which request a look-up is for.
    asked: BTreeMap<ReadToken, (Token, usize)>,
    /// Items whose look-up was found pending in this pass, before there is a round for them.
    pending: Vec<(ReadToken, usize)>,
    /// Look-ups of all rounds that are not answered yet.
    missing: usize,
    next: u64,
}

/// Converts what a store says.
pub(crate) const fn in_store(latest: Latest) -> LatestInStore {
    LatestInStore { version: latest.version, absent: latest.absent }
}

impl Lookups {
    fn assert_sound(&self) {
        debug_assert_eq!(
            self.asked.len(),
            self.missing,
            "rounds miss what the store was asked for"
        );
    }

    /// The name of the next look-up. It is used up only if that turns out to be pending.
    #[inline]
    pub(crate) const fn token(&self) -> ReadToken {
        ReadToken(self.next)
    }

    /// The look-up of the item with this index is pending.
    #[cold]
    pub(crate) fn note_pending(&mut self, index: usize) {
        debug_assert!(
            self.pending.last().is_none_or(|&(_, before)| before < index),
            "each item is looked up once, in their order"
        );
        self.pending.push((self.token(), index));
        self.next += 1;
    }

    /// Whether a look-up of this pass is pending.
    #[inline]
    pub(crate) const fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Begins the round of a request: all its items, in order.
    #[cold]
    pub(crate) fn begin(
        &mut self,
        token: Token,
        wait: Option<Wait>,
        items: impl Iterator<Item = Item>,
    ) {
        let round =
            Awaited { items: items.collect(), missing: self.pending.len(), wait, failed: None };
        self.missing += round.missing;
        for (asked, index) in self.pending.drain(..) {
            assert!(index < round.items.len(), "a look-up is for one of the items");
            self.asked.insert(asked, (token, index));
        }
        let before = self.rounds.insert(token, round);
        assert!(before.is_none(), "a request has one round at most");
        self.assert_sound();
    }

    /// The answers for a request that goes on; `None` when it did not wait for any.
    #[inline]
    pub(crate) fn take(&mut self, token: Token) -> Option<Vec<Item>> {
        if self.rounds.is_empty() {
            return None;
        }
        let round = self.rounds.remove(&token)?;
        assert_eq!(round.missing, 0, "a request goes on when all its answers have come");
        Some(round.items)
    }

    /// Whether nobody waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// A version of a key can be read from the store from now on.
    pub(crate) fn raise(
        &mut self,
        keyspace: KeyspaceId,
        key: KeyHash,
        version: Version,
        absent: bool,
    ) {
        debug_assert!(!self.is_empty(), "nothing is raised for nobody");
        #[cfg(feature = "planted-bugs")]
        if timestone_types::is_planted!(StaleLookups) {
            return;
        }
        let items = self.rounds.values_mut().flat_map(|round| &mut round.items);
        for item in items.filter(|item| item.keyspace == keyspace && item.key == key) {
            item.merge(LatestInStore { version, absent });
        }
    }

    /// A fence is in force from now on.
    pub(crate) fn raise_all(&mut self, keyspace: KeyspaceId, version: Version) {
        debug_assert!(!self.is_empty(), "nothing is raised for nobody");
        let items = self.rounds.values_mut().flat_map(|round| &mut round.items);
        for item in items.filter(|item| item.keyspace == keyspace) {
            item.merge(LatestInStore { version, absent: true });
        }
    }

    /// The store has answered.
    pub(crate) fn answer(
        &mut self,
        token: ReadToken,
        found: Result<Latest, StoreError>,
    ) -> Answered {
        let Some((token, index)) = self.asked.remove(&token) else { return Answered::Waiting };
        let Some(round) = self.rounds.get_mut(&token) else { return Answered::Waiting };
        assert!(round.missing > 0, "each look-up is answered once");
        round.missing -= 1;
        self.missing -= 1;
        match found {
            Ok(latest) => round.items[index].merge(in_store(latest)),
            Err(error) => round.failed = Some(error),
        }
        if round.missing > 0 {
            return Answered::Waiting;
        }
        let wait = round.wait;
        let failed = round.failed.take();
        self.assert_sound();
        match failed {
            None => Answered::Ready { token, wait },
            Some(error) => {
                self.rounds.remove(&token);
                Answered::Failed { token, error }
            }
        }
    }
}

impl Item {
    /// The later version counts.
    fn merge(&mut self, latest: LatestInStore) {
        if latest.version > self.latest.version {
            self.latest = latest;
        }
        debug_assert!(self.latest.version >= latest.version, "an answer is as young as a write");
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::{ClientId, Timestamp};

    use super::*;

    const SPACE: KeyspaceId = KeyspaceId::DEFAULT;
    const REQUEST: Token = Token(9);

    fn latest(nanos: u64, absent: bool) -> LatestInStore {
        let version = Version::new(Timestamp::from_nanos(nanos), ClientId::new(1));
        LatestInStore { version, absent }
    }

    fn of_store(nanos: u64) -> Latest {
        let LatestInStore { version, absent } = latest(nanos, false);
        Latest { version, absent, may_expire: false }
    }

    /// A request with two keys, the second of which is pending.
    fn begun() -> (Lookups, ReadToken) {
        let mut lookups = Lookups::default();
        let asked = lookups.token();
        lookups.note_pending(1);
        let known = Item { keyspace: SPACE, key: KeyHash(1), latest: latest(5, false) };
        let awaited = Item { keyspace: SPACE, key: KeyHash(2), latest: LatestInStore::NONE };
        lookups.begin(REQUEST, Some(Wait::No), [known, awaited].into_iter());
        (lookups, asked)
    }

    #[test]
    fn writes_since_the_look_up_raise_what_was_known_and_what_is_answered_later() {
        let (mut lookups, asked) = begun();
        lookups.raise(SPACE, KeyHash(1), latest(7, false).version, false);
        lookups.raise(SPACE, KeyHash(2), latest(8, true).version, true);
        lookups.raise(SPACE, KeyHash(3), latest(9, true).version, true);
        lookups.raise(KeyspaceId::new(4), KeyHash(1), latest(10, true).version, true);
        let answered = lookups.answer(asked, Ok(of_store(6)));
        assert!(matches!(answered, Answered::Ready { token: REQUEST, wait: Some(Wait::No) }));
        let items = lookups.take(REQUEST).unwrap();
        assert_eq!((items[0].latest, items[1].latest), (latest(7, false), latest(8, true)));
        assert!(lookups.is_empty());
    }

    #[test]
    fn a_fence_raises_every_key_of_its_keyspace() {
        let (mut lookups, asked) = begun();
        lookups.raise_all(SPACE, latest(6, true).version);
        lookups.answer(asked, Ok(of_store(7)));
        let items = lookups.take(REQUEST).unwrap();
        assert_eq!((items[0].latest, items[1].latest), (latest(6, true), latest(7, false)));
    }

    #[test]
    fn a_failed_look_up_ends_the_round_and_late_answers_find_nobody() {
        let (mut lookups, asked) = begun();
        let answered = lookups.answer(asked, Err(StoreError::Busy));
        assert!(matches!(answered, Answered::Failed { token: REQUEST, .. }));
        assert!(lookups.take(REQUEST).is_none());
        assert!(matches!(lookups.answer(asked, Ok(of_store(1))), Answered::Waiting));
    }
}
