//! The transaction table: what is in flight, and what became of those that are finished but may be
//! asked for again.
//!
//! ```text
//!   by_id: TxnId ──▶ TxnPlace::Flight(slot) ──▶ Record   promised, or committed and not yet applied and logged
//!                └─▶ TxnPlace::Kept(index)  ──▶ Kept     an outcome, until everybody knows or nobody can ask
//! ```
//!
//! Slabs with free lists: steady state allocates nothing, a record's lists keep their room. Slots
//! are reused, so whatever outlives a record (a pending log ticket) names it by (slot, generation).
//! Iteration is over `live`, in a fixed order.
//!
//! It does not touch keys, clients or the log; MILANA §4.1 calls it the transaction table.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use timestone_types::{
    AbortKind, AbortReason, KeyHash, KeyRange, KeyspaceId, PreviousFound, ShardId, Timestamp,
    TxnId, TxnOutcome,
};

use super::input::{Token, WriteItem, WriteKind};
use crate::ShardList;

/// A transaction in flight, as a validation knows it: where its record lies in the slab.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Holder(u32);

impl Holder {
    /// Nobody.
    pub const NONE: Self = Self(u32::MAX);

    pub(crate) const fn new(index: u32) -> Self {
        Self(index)
    }

    /// Whether this is nobody.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == u32::MAX
    }

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A slot and the generation of its record, for whatever may outlive it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Handle {
    pub(super) slot: Holder,
    generation: u32,
}

/// How far a transaction in flight has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Promised; `durable` once its first promise is.
    Prepared { durable: bool },
    /// Refused by this participant after an earlier promise, which holds until the refusal is
    /// durable.
    Aborting,
    /// Decided; finished when its writes can be read and the decision is durable.
    Committed { at: Timestamp, applied: bool, logged: bool },
}

/// A written key (or a fenced keyspace) as it is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// The keyspace of the key.
    pub keyspace: KeyspaceId,
    /// The key.
    pub key: KeyHash,
    /// What is written.
    pub kind: WriteKind,
}

impl Written {
    pub(super) fn of(item: &WriteItem) -> Self {
        Self { keyspace: item.keyspace, key: item.key, kind: item.kind }
    }
}

/// A list of waiters, by its two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ends {
    pub(super) head: u32,
    pub(super) tail: u32,
}

impl Ends {
    pub(super) const EMPTY: Self = Self { head: u32::MAX, tail: u32::MAX };
}

/// How the timestamp of a promise moves up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moves {
    /// A later promise whose record is not durable yet.
    pub(super) to: Option<Timestamp>,
    /// The highest timestamp that was asked for.
    pub(super) seen: Timestamp,
    /// The timestamp of the very first promise.
    #[cfg(feature = "planted-bugs")]
    pub(super) first: Timestamp,
}

impl Moves {
    /// Of a promise that was never moved.
    const fn none(commit: Timestamp) -> Self {
        Self {
            to: None,
            seen: commit,
            #[cfg(feature = "planted-bugs")]
            first: commit,
        }
    }
}

/// A transaction in flight.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) txn: TxnId,
    pub(super) begin: Timestamp,
    /// The lowest promise that may still be decided: what reads have to respect.
    pub(super) commit: Timestamp,
    pub(super) moves: Moves,
    pub(super) phase: Phase,
    pub(super) single: bool,
    /// What a single-key write found.
    pub(super) found: PreviousFound,
    /// Its state was told to a backup coordinator: the promise no longer moves.
    pub(super) frozen: bool,
    /// It was found in the log at the last restart.
    pub(super) recovered: bool,
    /// Somebody asked about it and waits in `Waiting::asking`.
    pub(super) asked: bool,
    pub(super) participants: ShardList,
    pub(super) writes: Vec<Written>,
    pub(super) waiters: Waiters,
    timeout: Timeout,
    slab: InSlab,
}

/// Who waits for a record: reads are woken first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waiters {
    pub(super) reads: Ends,
    pub(super) others: Ends,
}

impl Waiters {
    pub(super) const NONE: Self = Self { reads: Ends::EMPTY, others: Ends::EMPTY };
}

/// A record's place in the list of those that wait for their decision, which is sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Timeout {
    /// When this participant begins to end it.
    decide_by: Timestamp,
    before: Holder,
    after: Holder,
    is_listed: bool,
}

impl Timeout {
    const NONE: Self = Self {
        decide_by: Timestamp::MAX,
        before: Holder::NONE,
        after: Holder::NONE,
        is_listed: false,
    };
}

/// Where a record is in the slab, and how often its place was used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct InSlab {
    live_index: u32,
    generation: u32,
}

/// What became of a finished transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// Committed; the participants are those that may still have to be told.
    Committed { at: Timestamp, participants: ShardList },
    /// Aborted, and what the vote or the status says of it.
    Aborted(AbortReason),
}

impl Fate {
    pub(super) fn outcome(&self) -> TxnOutcome {
        match self {
            Self::Committed { at, .. } => TxnOutcome::Committed(*at),
            Self::Aborted(_) => TxnOutcome::Aborted,
        }
    }

    /// Whether it only keeps the transaction out: what became of it before, if anything, is not known
    /// here any more, and is told to nobody.
    pub(super) const fn is_forgotten(&self) -> bool {
        matches!(self, Self::Aborted(AbortReason { kind: AbortKind::TooOld, .. }))
    }
}

/// A finished transaction.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) txn: TxnId,
    pub(super) begin: Timestamp,
    pub(super) fate: Fate,
    /// What a single-key write found.
    pub(super) found: PreviousFound,
    pub(super) durable: bool,
    pub(super) asked: bool,
    /// Whether it hangs in the list of its client, and the next one there.
    pub(super) is_listed: bool,
    pub(super) next: u32,
}

impl Kept {
    /// An abort whose record is on its way to the log.
    pub(super) const fn aborted(txn: TxnId, begin: Timestamp, reason: AbortReason) -> Self {
        let (fate, found) = (Fate::Aborted(reason), PreviousFound::Unasked);
        Self {
            txn,
            begin,
            fate,
            found,
            durable: false,
            asked: false,
            is_listed: false,
            next: u32::MAX,
        }
    }

    /// A durable outcome, and what a single-key write found.
    pub(super) const fn durable(
        txn: TxnId,
        begin: Timestamp,
        fate: Fate,
        found: PreviousFound,
    ) -> Self {
        Self {
            txn,
            begin,
            fate,
            found,
            durable: true,
            asked: false,
            is_listed: false,
            next: u32::MAX,
        }
    }

    /// An outcome that the log has kept.
    pub(super) const fn recovered(
        txn: TxnId,
        begin: Timestamp,
        fate: Fate,
        found: PreviousFound,
    ) -> Self {
        Self {
            txn,
            begin,
            fate,
            found,
            durable: true,
            asked: false,
            is_listed: false,
            next: u32::MAX,
        }
    }
}

/// Where a transaction is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TxnPlace {
    Flight(Holder),
    Kept(u32),
}

#[derive(Clone, Copy, Debug)]
struct Index {
    txn: TxnId,
    place: TxnPlace,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Table {
    by_id: HashTable<Index>,
    records: Vec<Record>,
    free_records: Vec<Holder>,
    live: Vec<Holder>,
    /// Those of them that write whole keyspaces: few, and asked for by every range.
    fences: Vec<Holder>,
    kept: Vec<Kept>,
    free_kept: Vec<u32>,
    first_timeout: Holder,
    last_timeout: Holder,
}

fn hash_txn(txn: TxnId) -> u64 {
    let mixed = (txn.sequence.get() ^ (u64::from(txn.client.get()) << 40))
        .wrapping_add(u64::from(txn.client.get()));
    let wide = u128::from(mixed ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
    (wide >> 64) as u64 ^ wide as u64
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            by_id: HashTable::new(),
            records: Vec::new(),
            free_records: Vec::new(),
            live: Vec::new(),
            fences: Vec::new(),
            kept: Vec::new(),
            free_kept: Vec::new(),
            first_timeout: Holder::NONE,
            last_timeout: Holder::NONE,
        }
    }

    #[inline]
    pub(super) fn find(&self, txn: TxnId) -> Option<TxnPlace> {
        self.by_id.find(hash_txn(txn), |one| one.txn == txn).map(|one| one.place)
    }

    /// Every transaction that is in some place, in no meaningful order.
    pub(super) fn places(&self) -> impl Iterator<Item = (TxnId, TxnPlace)> + '_ {
        self.by_id.iter().map(|one| (one.txn, one.place))
    }

    /// What holds between changes: every place of the slabs is in use or free.
    fn assert_sound(&self) {
        assert!(
            self.live.len() + self.free_records.len() == self.records.len(),
            "a record is in flight or free"
        );
        assert!(self.free_kept.len() <= self.kept.len(), "what is free was in use");
        assert!(self.fences.len() <= self.live.len(), "a fence is of a transaction in flight");
        debug_assert!(
            self.by_id.len() <= self.live.len() + self.kept_len(),
            "a transaction is in at most one place"
        );
        debug_assert!(self.first_timeout.is_none() == self.last_timeout.is_none());
    }

    fn set_place(&mut self, txn: TxnId, place: TxnPlace) {
        debug_assert!(match place {
            TxnPlace::Flight(slot) => self.record(slot).txn == txn,
            TxnPlace::Kept(index) => self.kept(index).txn == txn,
        });
        match self.by_id.entry(hash_txn(txn), |one| one.txn == txn, |one| hash_txn(one.txn)) {
            Entry::Occupied(mut found) => found.get_mut().place = place,
            Entry::Vacant(free) => {
                free.insert(Index { txn, place });
            }
        }
    }

    #[inline]
    pub(super) fn record(&self, slot: Holder) -> &Record {
        &self.records[slot.index()]
    }

    #[inline]
    pub(super) fn record_mut(&mut self, slot: Holder) -> &mut Record {
        &mut self.records[slot.index()]
    }

    pub(super) fn handle(&self, slot: Holder) -> Handle {
        Handle { slot, generation: self.record(slot).slab.generation }
    }

    /// The record that a handle means, unless it has gone meanwhile.
    pub(super) fn alive(&self, handle: Handle) -> Option<Holder> {
        (self.record(handle.slot).slab.generation == handle.generation).then_some(handle.slot)
    }

    /// Adds a record for a transaction that is in no other place. Its lists are empty and keep
    /// their room.
    pub(super) fn insert(
        &mut self,
        txn: TxnId,
        begin: Timestamp,
        commit: Timestamp,
        phase: Phase,
    ) -> Holder {
        let slot = match self.free_records.pop() {
            Some(slot) => slot,
            None => self.grow(),
        };
        let live_index = self.live.len() as u32;
        self.live.push(slot);
        let record = self.record_mut(slot);
        record.txn = txn;
        record.begin = begin;
        record.commit = commit;
        record.moves = Moves::none(commit);
        record.phase = phase;
        record.single = false;
        record.found = PreviousFound::Unasked;
        record.frozen = false;
        record.recovered = false;
        record.asked = false;
        record.slab.live_index = live_index;
        debug_assert!(!self.record(slot).timeout.is_listed, "who is new waits for nothing yet");
        self.set_place(txn, TxnPlace::Flight(slot));
        self.assert_sound();
        slot
    }

    fn grow(&mut self) -> Holder {
        let slot = Holder::new(self.records.len() as u32);
        self.records.push(Record {
            txn: TxnId::default(),
            begin: Timestamp::ZERO,
            commit: Timestamp::ZERO,
            moves: Moves::none(Timestamp::ZERO),
            phase: Phase::Aborting,
            single: false,
            found: PreviousFound::Unasked,
            frozen: false,
            recovered: false,
            asked: false,
            participants: ShardList::default(),
            writes: Vec::new(),
            waiters: Waiters::NONE,
            timeout: Timeout::NONE,
            slab: InSlab { live_index: 0, generation: 0 },
        });
        assert!(slot.index() + 1 == self.records.len(), "numbers of records have 32 bits");
        slot
    }

    /// Fills a record that was just inserted.
    pub(super) fn fill(
        &mut self,
        slot: Holder,
        single: bool,
        participants: &[ShardId],
        writes: &[WriteItem],
    ) {
        let record = self.record_mut(slot);
        assert!(record.writes.is_empty(), "a record is filled once");
        record.single = single;
        record.participants.set(participants);
        record.writes.extend(writes.iter().map(Written::of));
        if writes.iter().any(|one| one.kind == WriteKind::Fence) {
            self.fences.push(slot);
        }
    }

    /// Takes a record out of the slab; its place in `by_id` has to be set or removed by the caller.
    fn free(&mut self, slot: Holder) {
        self.leave_timeouts(slot);
        let live_index = self.record(slot).slab.live_index as usize;
        self.live.swap_remove(live_index);
        if let Some(&moved) = self.live.get(live_index) {
            self.record_mut(moved).slab.live_index = live_index as u32;
        }
        let record = self.record_mut(slot);
        assert!(record.waiters == Waiters::NONE, "waiters are woken before a record goes");
        record.slab.generation = record.slab.generation.wrapping_add(1);
        record.writes.clear();
        record.participants.set(&[]);
        self.fences.retain(|&one| one != slot);
        self.free_records.push(slot);
    }

    /// Turns a record into an outcome.
    pub(super) fn finish(&mut self, slot: Holder, fate: Fate, durable: bool) -> u32 {
        let record = self.record(slot);
        let (txn, begin, found, asked) = (record.txn, record.begin, record.found, record.asked);
        debug_assert!(self.find(txn) == Some(TxnPlace::Flight(slot)), "it is in flight until now");
        self.free(slot);
        self.keep(Kept {
            txn,
            begin,
            fate,
            found,
            durable,
            asked,
            is_listed: false,
            next: u32::MAX,
        })
    }

    /// Takes a record out without an outcome: nobody will ask for one.
    pub(super) fn remove(&mut self, slot: Holder) {
        let txn = self.record(slot).txn;
        self.free(slot);
        self.forget_id(txn);
        self.assert_sound();
    }

    fn forget_id(&mut self, txn: TxnId) {
        if let Ok(found) = self.by_id.find_entry(hash_txn(txn), |one| one.txn == txn) {
            found.remove();
        }
        debug_assert!(self.find(txn).is_none(), "a transaction is in at most one place");
    }

    /// Adds an outcome.
    pub(super) fn keep(&mut self, kept: Kept) -> u32 {
        let txn = kept.txn;
        let index = match self.free_kept.pop() {
            Some(index) => {
                self.kept[index as usize] = kept;
                index
            }
            None => {
                self.kept.push(kept);
                self.kept.len() as u32 - 1
            }
        };
        self.set_place(txn, TxnPlace::Kept(index));
        self.assert_sound();
        index
    }

    pub(super) fn kept(&self, index: u32) -> &Kept {
        &self.kept[index as usize]
    }

    pub(super) fn kept_mut(&mut self, index: u32) -> &mut Kept {
        &mut self.kept[index as usize]
    }

    /// Forgets an outcome.
    pub(super) fn forget(&mut self, index: u32) {
        assert!(!self.kept(index).is_listed, "an outcome leaves its client's list before it goes");
        // Of a few only: there may be millions.
        debug_assert!(self.free_kept.len() > 64 || !self.free_kept.contains(&index));
        self.forget_id(self.kept[index as usize].txn);
        self.kept[index as usize].fate = Fate::Aborted(AbortReason::of(AbortKind::Terminated));
        self.free_kept.push(index);
    }

    /// Everything in flight.
    pub(super) fn live(&self) -> impl Iterator<Item = (Holder, &Record)> {
        self.live.iter().map(|&slot| (slot, self.record(slot)))
    }

    /// What a validation may know of them.
    #[inline]
    pub(super) fn others(&self) -> InFlight<'_> {
        InFlight(self)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.live.len()
    }

    pub(super) fn kept_len(&self) -> usize {
        self.kept.len() - self.free_kept.len()
    }

    /// Appends to the list of those that wait for their decision. Deadlines are given in rising
    /// order.
    pub(super) fn join_timeouts(&mut self, slot: Holder, decide_by: Timestamp) {
        self.leave_timeouts(slot);
        let last = self.last_timeout;
        debug_assert!(last.is_none() || self.record(last).timeout.decide_by <= decide_by);
        let record = self.record_mut(slot);
        record.timeout = Timeout { decide_by, before: last, after: Holder::NONE, is_listed: true };
        if last.is_none() {
            self.first_timeout = slot;
        } else {
            self.record_mut(last).timeout.after = slot;
        }
        self.last_timeout = slot;
    }

    pub(super) fn leave_timeouts(&mut self, slot: Holder) {
        let record = self.record_mut(slot);
        if !record.timeout.is_listed {
            return;
        }
        assert!(!self.first_timeout.is_none(), "who is listed is in a list");
        let record = self.record_mut(slot);
        record.timeout.is_listed = false;
        let Timeout { before, after, .. } = record.timeout;
        if before.is_none() {
            self.first_timeout = after;
        } else {
            self.record_mut(before).timeout.after = after;
        }
        if after.is_none() {
            self.last_timeout = before;
        } else {
            self.record_mut(after).timeout.before = before;
        }
    }

    /// The transaction that has waited longest for its decision.
    pub(super) fn first_timeout(&self) -> Option<(Holder, Timestamp)> {
        (!self.first_timeout.is_none())
            .then(|| (self.first_timeout, self.record(self.first_timeout).timeout.decide_by))
    }
}

/// What a validation may know of the transactions in flight.
#[derive(Clone, Copy, Debug)]
pub struct InFlight<'a>(&'a Table);

impl InFlight<'_> {
    /// Which transaction a holder is.
    #[must_use]
    pub fn txn(self, holder: Holder) -> TxnId {
        self.0.record(holder).txn
    }

    /// The lowest timestamp at which a holder may commit.
    #[inline]
    #[must_use]
    pub fn may_commit_at(self, holder: Holder) -> Timestamp {
        let record = self.0.record(holder);
        match record.phase {
            Phase::Committed { at, .. } => at,
            Phase::Prepared { .. } | Phase::Aborting => record.commit,
        }
    }

    /// Somebody other than `except` who writes in the keyspace.
    #[must_use]
    pub fn writer_in(self, keyspace: KeyspaceId, except: Holder) -> Option<Holder> {
        self.writers_in(keyspace).find(|&holder| holder != except)
    }

    /// Those of some transactions that hold what they write, and whoever holds the range's whole keyspace.
    pub(crate) fn writers_of(
        self,
        range: KeyRange<'_>,
        writers: &[TxnId],
    ) -> impl Iterator<Item = Holder> {
        let table = self.0;
        let keyspace = range.keyspace;
        let in_flight = writers.iter().filter_map(move |&txn| match table.find(txn) {
            Some(TxnPlace::Flight(slot)) => Some(slot),
            Some(TxnPlace::Kept(_)) | None => None,
        });
        let holding = in_flight.filter(move |&slot| !table.record(slot).writes.is_empty());
        let fences = table.fences.iter().copied().filter(move |&holder| {
            let is_fence = |one: &Written| one.kind == WriteKind::Fence && one.keyspace == keyspace;
            table.record(holder).writes.iter().any(is_fence)
        });
        holding.chain(fences)
    }

    /// Everybody who writes in the keyspace.
    pub(super) fn writers_in(self, keyspace: KeyspaceId) -> impl Iterator<Item = Holder> {
        let writes = move |record: &Record| record.writes.iter().any(|w| w.keyspace == keyspace);
        self.0.live().filter(move |(_, record)| writes(record)).map(|(holder, _)| holder)
    }
}

/// Whose vote waits for the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asker {
    pub(super) token: Token,
    pub(super) commit: Timestamp,
}

#[cfg(test)]
mod tests {
    use timestone_types::{AbortKind, ClientId, KeyHash, Sequence};

    use super::*;
    use crate::participant::LatestInStore;

    fn txn(sequence: u64) -> TxnId {
        TxnId::new(ClientId::new(1), Sequence::new(sequence))
    }

    #[test]
    fn a_range_looks_at_those_that_hold_its_keyspace_and_at_no_others() {
        let mut table = Table::new();
        let keyspace = KeyspaceId::numbered(3, false).ordered();
        let range = KeyRange::all(keyspace);
        let begin = |table: &mut Table, n, kind| {
            let (phase, at) = (Phase::Prepared { durable: true }, Timestamp::from_nanos(n));
            let slot = table.insert(txn(n), Timestamp::ZERO, at, phase);
            let (key, latest) = (KeyHash(n), LatestInStore::NONE);
            let range_read = Timestamp::ZERO;
            let item = WriteItem { keyspace, key, kind, latest, range_read };
            table.fill(slot, false, &[], &[item]);
            slot
        };
        let puts: Vec<Holder> = (1..100).map(|n| begin(&mut table, n, WriteKind::Put)).collect();
        assert!(table.fences.is_empty(), "nobody is looked at for a range without writers");
        let fence = begin(&mut table, 100, WriteKind::Fence);
        let writers_of = |table: &Table, writers: &[TxnId]| {
            table.others().writers_of(range, writers).collect::<Vec<_>>()
        };
        assert_eq!(writers_of(&table, &[]), [fence]);
        assert_eq!(writers_of(&table, &[txn(7), txn(500)]), [puts[6], fence]);
        assert_eq!(table.fences, [fence]);
        table.remove(fence);
        assert_eq!(writers_of(&table, &[]), []);
        assert!(table.fences.is_empty());
    }

    #[test]
    fn a_reused_slot_is_not_taken_for_its_former_record() {
        let mut table = Table::new();
        let slot = table.insert(
            txn(1),
            Timestamp::ZERO,
            Timestamp::ZERO,
            Phase::Prepared { durable: false },
        );
        let handle = table.handle(slot);
        assert_eq!(table.alive(handle), Some(slot));
        let kept = table.finish(slot, Fate::Aborted(AbortReason::of(AbortKind::Requested)), true);
        assert_eq!(table.find(txn(1)), Some(TxnPlace::Kept(kept)));
        assert_eq!(
            table.insert(
                txn(2),
                Timestamp::ZERO,
                Timestamp::ZERO,
                Phase::Prepared { durable: false }
            ),
            slot
        );
        assert_eq!(table.alive(handle), None);
        table.forget(kept);
        assert_eq!((table.find(txn(1)), table.kept_len(), table.in_flight()), (None, 0, 1));
    }

    #[test]
    fn timeouts_stay_in_order_whatever_leaves() {
        let mut table = Table::new();
        let at = Timestamp::from_nanos;
        let slots: Vec<Holder> = (0..4)
            .map(|n| {
                let slot = table.insert(
                    txn(n),
                    Timestamp::ZERO,
                    Timestamp::ZERO,
                    Phase::Prepared { durable: true },
                );
                table.join_timeouts(slot, at(n));
                slot
            })
            .collect();
        table.leave_timeouts(slots[1]);
        table.join_timeouts(slots[0], at(9));
        let mut order = Vec::new();
        while let Some((slot, by)) = table.first_timeout() {
            order.push(by.as_nanos());
            table.leave_timeouts(slot);
        }
        assert_eq!(order, [2, 3, 9]);
    }
}
