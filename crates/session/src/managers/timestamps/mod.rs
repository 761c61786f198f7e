//! Transactions that read a snapshot and are validated by timestamps, coordinated by the client.
//!
//! Reads go to the shards at once and may overlap; writes stay here until commit. A commit takes
//! one of four paths:
//!
//! ```text
//!   writes? ── no ── strict, or a read met a prepared write? ── no ──► at once, without a message
//!     │                             └─ yes ─► every shard read validates that the versions are still the latest
//!     │                                       (a snapshot in the past cannot be: aborted, `Prepared`)
//!     └─ yes ── one shard ──► one phase: validate, make durable, apply, answer
//!                └─ several ─► two-phase commit, run by txn's Coordinator
//! ```
//! `table.rs` has the transactions and their ends, `reads.rs` what concerns their reads under way,
//! `commit.rs` the commits; this file what the engine calls. Source: MILANA §4.2–4.3;
//! docs/protocol/transactions.md.

#![expect(
    private_bounds,
    reason = "caches are of this crate; hosts name an engine by its kind of transactions"
)]

mod commit;
mod frames;
mod keys;
mod open;
mod ranges;
mod reads;
mod record;
mod refusals;
mod table;

use timestone_txn::coordinator::Output;
use timestone_types::{
    AbortKind, Expiry, HashSeed, KeyspaceId, Timestamp, TxnId, hash_key, is_planted,
};
use timestone_wire::RangeEntry;

use self::keys::{KeySet, PendingWrite, ReadState};
use self::record::{Phase, Txn, TxnResult};
use self::table::Txns;
use super::{Manager, TxnOwner};
use crate::cache::{Cache, NoCache};
use crate::engine::context::{Again, Context};
use crate::engine::number::{Asker, Number};
use crate::engine::replies::Reply;
use crate::engine::reports::Reports;
use crate::engine::shards::ShardIndex;
use crate::engine::slab::SlabKey;
use crate::handle::TicketKind;
use crate::{
    Abort, Committed, KeyName, OpId, OpResult, OwnWrite, SessionError, Step, Ticket, TxnHandle,
    TxnOptions, ValueView, limits,
};

/// See the module's description.
#[derive(Debug)]
pub struct Timestamps<C = NoCache> {
    txns: Txns,
    /// Kept for its memory.
    outputs: Vec<Output>,
    hash_seed: HashSeed,
    cache: C,
}

impl From<TxnHandle> for SlabKey {
    #[inline]
    fn from(TxnHandle { index, generation }: TxnHandle) -> Self {
        Self { index, generation }
    }
}

impl<C: Cache> Manager for Timestamps<C> {
    fn new(seed: u64) -> Self {
        Self {
            txns: Txns::new(),
            outputs: Vec::new(),
            hash_seed: HashSeed(seed),
            cache: C::default(),
        }
    }

    fn begin(
        &mut self,
        context: &mut Context,
        session: SlabKey,
        options: TxnOptions,
    ) -> Result<TxnHandle, SessionError> {
        let now = context.now();
        let staleness = options.max_staleness.filter(|_| options.reads_at_backups());
        let old = staleness.map(|most| context.old_snapshot(most));
        let Some(clock) = context.session_clock(session) else {
            return Err(SessionError::NoSession);
        };
        let begin = match options.snapshot_at {
            Some(at) if at == Timestamp::ZERO || at > clock.peek(now) => {
                return Err(SessionError::SnapshotInFuture { at, now });
            }
            Some(at) => at,
            None => match staleness.zip(old) {
                Some((most, _)) if is_planted!(SnapshotsGoBack) => now.saturating_sub(most),
                // It is not issued: what the session has seen is said when the transaction ends.
                Some((_, old)) => clock.peek(old),
                None => clock.begin(now),
            },
        };
        let Some((slot, txn)) = self.txns.take() else {
            return Err(SessionError::Busy { retry_after: limits::MIN_RETRY_PAUSE });
        };
        txn.open(session, options, begin, (now, context.watermark()));
        self.txns.has_begun(session, slot.index);
        self.txns.assert_one(slot.index);
        Ok(TxnHandle { index: slot.index, generation: slot.generation })
    }

    fn begin_timestamp(&self, txn: TxnHandle) -> Result<Timestamp, SessionError> {
        let txn = self.txns.get(txn.into()).filter(|txn| txn.is_open());
        txn.map(|txn| txn.begin).ok_or(SessionError::NoTransaction)
    }

    fn owner(&self, txn: TxnHandle) -> Result<TxnOwner, SessionError> {
        let txn = self.txns.get(txn.into()).filter(|txn| txn.is_open());
        let owner = |txn: &Txn| TxnOwner { session: txn.session, deadline: txn.options.deadline };
        txn.map(owner).ok_or(SessionError::NoTransaction)
    }

    fn get(
        &mut self,
        context: &mut Context,
        txn: TxnHandle,
        key: KeyName<'_>,
        op: OpId,
    ) -> Result<Step<'_>, SessionError> {
        let slot = self.txns.open(context, txn)?;
        check_not_cleared(&self.txns.at(slot.index).keys, key.keyspace)?;
        let at = self.txns.entry_to_read(context, slot, (self.hash(key), key))?;
        self.txns.assert_one(slot.index);
        let is_known = self.txns.at(slot.index).keys.is_known(at);
        if is_known || self.txns.read_from_cache(&mut self.cache, slot, at)? {
            return match self.txns.at(slot.index).keys.view(at) {
                Some(view) => Ok(Step::Value(view)),
                None => Err(SessionError::NoTransaction),
            };
        }
        self.txns.read(context, slot, at, op);
        let SlabKey { index, generation } = slot;
        Ok(Step::Pending(Ticket { kind: TicketKind::Read, index, generation, item: at, op }))
    }

    fn peek(&self, txn: TxnHandle, key: KeyName<'_>) -> Option<ValueView<'_>> {
        let txn = self.txns.get(txn.into()).filter(|txn| txn.is_open())?;
        check_not_cleared(&txn.keys, key.keyspace).ok()?;
        txn.keys.view(txn.keys.find(self.hash(key), key.keyspace, key.key)?)
    }

    fn read_range(
        &mut self,
        context: &mut Context,
        txn: TxnHandle,
        read: &RangeEntry<'_>,
    ) -> Result<(), SessionError> {
        let slot = self.txns.open(context, txn)?;
        check_not_cleared(&self.txns.at(slot.index).keys, read.keyspace)?;
        Ok(self.txns.at_mut(slot.index).ranges.add(read)?)
    }

    fn writes_in(
        &self,
        txn: TxnHandle,
        range: &RangeEntry<'_>,
    ) -> Result<Vec<OwnWrite<'_>>, SessionError> {
        let txn = self.txns.get(txn.into()).filter(|txn| txn.is_open());
        let keys = &txn.ok_or(SessionError::NoTransaction)?.keys;
        let mut writes: Vec<_> = keys.writes_in(range).collect();
        writes.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        Ok(writes)
    }

    fn write(
        &mut self,
        context: &mut Context,
        txn: TxnHandle,
        key: KeyName<'_>,
        value: Option<&[u8]>,
        expires_at: Expiry,
    ) -> Result<(), SessionError> {
        let slot = self.txns.open(context, txn)?;
        let hash = self.hash(key);
        let shard = context.shard_of(key.key)?;
        let txn = self.txns.at_mut(slot.index);
        if txn.is_read_only() {
            return Err(SessionError::ReadOnly);
        }
        check_not_cleared(&txn.keys, key.keyspace)?;
        // What has expired when the transaction begins is gone for everybody who could read it, and
        // for the transaction itself.
        let begin = txn.begin;
        let value = value.filter(|_| !expires_at.has_passed(begin));
        let expires_at = if value.is_some() { expires_at } else { Expiry::NEVER };
        let at = txn.keys.find_or_insert(hash, key.keyspace, key.key, shard)?;
        txn.keys.write(at, value, expires_at)?;
        debug_assert!(txn.keys.writes() > 0, "a write that is not counted");
        Ok(())
    }

    fn fence(
        &mut self,
        context: &mut Context,
        txn: TxnHandle,
        keyspace: KeyspaceId,
    ) -> Result<(), SessionError> {
        let slot = self.txns.open(context, txn)?;
        let txn = self.txns.at_mut(slot.index);
        if txn.is_read_only() {
            return Err(SessionError::ReadOnly);
        }
        if txn.keys.writes_to(keyspace) && !is_planted!(WritesBesideFence) {
            return Err(SessionError::ClearsKeyspace { keyspace });
        }
        for shard in context.shards() {
            txn.keys.fence(keyspace, context.reach(shard)?)?;
        }
        self.txns.assert_one(slot.index);
        Ok(())
    }

    fn wait_for_clocks(&mut self, txn: TxnHandle) {
        if let Some(txn) = self.txns.get_mut(txn.into()).filter(|txn| txn.is_open()) {
            txn.options.external_wait = true;
            txn.assert_sound();
        }
    }

    fn abort(&mut self, context: &mut Context, txn: TxnHandle) {
        if self.txns.get(txn.into()).is_some_and(Txn::is_open) {
            self.txns.has_seen(context, txn.index);
            self.txns.close(context, txn.index, None);
            debug_assert!(self.txns.get(txn.into()).is_none(), "what was aborted lives on");
        }
    }

    fn commit(
        &mut self,
        context: &mut Context,
        txn: TxnHandle,
        op: OpId,
    ) -> Result<Step<'_>, SessionError> {
        let slot = self.txns.open(context, txn)?;
        self.txns.fail_reads(context, slot.index, &SessionError::NoTransaction);
        self.txns.assert_one(slot.index);
        self.commit_open(context, slot, op)
    }

    fn cancel(&mut self, ticket: Ticket) {
        let slot = SlabKey { index: ticket.index, generation: ticket.generation };
        let Some(txn) = self.txns.get_mut(slot) else { return };
        if ticket.kind == TicketKind::Read {
            txn.waiters.retain(|&(entry, op)| entry != ticket.item || op != ticket.op);
            if txn.is_open() {
                txn.keys.forget_waiter(ticket.item, ticket.op);
            }
        } else if txn.op == Some(ticket.op) && txn.result.is_none() {
            txn.op = None;
            self.txns.release_if_over(ticket.index);
        }
        self.txns.assert_one(ticket.index);
    }

    #[inline]
    fn read_result(&self, ticket: Ticket) -> Option<ValueView<'_>> {
        let slot = SlabKey { index: ticket.index, generation: ticket.generation };
        let is_read = ticket.kind == TicketKind::Read;
        let txn = self.txns.get(slot).filter(|txn| is_read && txn.is_open())?;
        txn.keys.view_read(ticket.item)
    }

    #[inline]
    fn finished_read(&self, txn: SlabKey, item: u32) -> Option<ValueView<'_>> {
        self.txns.get(txn)?.keys.view_read(item)
    }

    fn commit_result(&self, txn: SlabKey) -> Option<OpResult<'_>> {
        Some(result_of(self.txns.get(txn)?))
    }

    fn handed_out(&mut self, txn: SlabKey) {
        if let Some(ended) = self.txns.get_mut(txn) {
            assert!(ended.result.is_some(), "the end of a transaction that goes on");
            ended.op = None;
            self.txns.release_if_over(txn.index);
        }
    }

    #[inline]
    fn deliver(
        &mut self,
        context: &mut Context,
        from: ShardIndex,
        number: Number,
        reply: Reply<'_>,
    ) -> Option<()> {
        let slot = self.txns.key(number.slot.index).filter(|&slot| number.is_for(slot))?;
        self.txns.assert_one(slot.index);
        match number.asker {
            Asker::Read => {
                let (from, item) = ((from, slot), number.item);
                self.txns.deliver_read(context, &mut self.cache, from, item, reply)
            }
            _ => self.deliver_commit(context, from, slot.index, reply),
        }
    }

    fn sweep(&mut self, context: &mut Context) {
        for index in 0..self.txns.slots() {
            if self.txns.key(index).is_none() {
                continue;
            }
            match self.txns.at(index).phase {
                Phase::Open => self.txns.sweep_reads(context, index),
                Phase::Committing | Phase::Told => self.sweep_commit(context, index),
                Phase::Closed => {}
            }
            self.txns.assert_one(index);
        }
    }

    fn follow_routes(&mut self, context: &mut Context) {
        for index in 0..self.txns.slots() {
            if self.txns.key(index).is_none() || !self.txns.at(index).is_open() {
                continue;
            }
            let keys = &mut self.txns.at_mut(index).keys;
            for at in 0..keys.len() {
                if keys.entry(at).write == PendingWrite::Fence {
                    continue;
                }
                let owner = context.owner_of(keys.key(at).key);
                let entry = keys.entry_mut(at);
                if let Some(shard) = owner.filter(|&shard| shard != entry.shard) {
                    entry.shard = shard;
                    if matches!(entry.read, ReadState::Asked(_)) {
                        entry.asked.due = context.now();
                        context.wake_at(entry.asked.due);
                    }
                }
            }
            self.txns.assert_one(index);
        }
    }

    fn ask_again(&mut self, context: &mut Context, again: Again) {
        for index in 0..self.txns.slots() {
            if self.txns.key(index).is_none() {
                continue;
            }
            match self.txns.at(index).phase {
                Phase::Open => self.txns.repeat_reads(context, index, again),
                Phase::Committing | Phase::Told => self.tell_of_loss(context, index, again),
                Phase::Closed => {}
            }
            self.txns.assert_one(index);
        }
    }

    fn close_session(&mut self, context: &mut Context, session: SlabKey) {
        self.txns.close_session(context, session);
    }

    fn end_snapshots(&mut self, context: &mut Context) {
        for index in 0..self.txns.slots() {
            if self.txns.key(index).is_some() && self.txns.at(index).is_open() {
                self.txns.close_as_too_old(context, index, None, Timestamp::ZERO);
            }
        }
        assert!(self.txns.iter().all(|(_, txn)| !txn.is_open()), "a snapshot outlives its client");
    }

    fn report(&self, context: &Context, reports: &mut Reports) {
        if let Some(at) = context.held_snapshot() {
            reports.hold_everywhere(at);
        }
        for (_, txn) in self.txns.iter() {
            txn.assert_sound();
            match txn.phase {
                Phase::Open => reports.hold_everywhere(txn.begin),
                Phase::Committing | Phase::Told if txn.commit.is_owing => {
                    hold_participants(context, txn, reports);
                }
                Phase::Committing | Phase::Told | Phase::Closed => {}
            }
        }
    }

    fn assert_sound(&self, context: &Context) {
        assert!(self.outputs.is_empty(), "what a coordinator wants done is not done");
        if self.txns.slots() > limits::CHECKED_SLOTS {
            return;
        }
        self.txns.assert_sound();
        self.txns.assert_lists_sound();
        for (_, txn) in self.txns.iter() {
            txn.assert_sound();
            txn.assert_reads_sound();
            let has_session = txn.session.is_some_and(|session| context.has_session(session));
            assert!(!txn.is_open() || has_session, "a transaction is open, its session is not");
            context.assert_wakes_by(txn.due());
        }
    }

    fn unresolved(&self) -> usize {
        self.txns.iter().filter(|(_, txn)| txn.commit.is_owing).count()
    }
}

impl<C: Cache> Timestamps<C> {
    #[inline]
    fn hash(&self, key: KeyName<'_>) -> u64 {
        hash_key(self.hash_seed, key.keyspace, key.key).0
    }
}

/// What a transaction clears it neither writes nor reads any more. Writes and fence would have one
/// version, and a fence hides what has its own; reads would find what was there before.
#[inline]
fn check_not_cleared(keys: &KeySet, keyspace: KeyspaceId) -> Result<(), SessionError> {
    if keys.is_fenced(keyspace) && !is_planted!(WritesBesideFence) {
        return Err(SessionError::ClearsKeyspace { keyspace });
    }
    Ok(())
}

/// A transaction that is being committed: its begin may be used where the decision is not
/// acknowledged yet. Its outcome is kept by every participant until all have acknowledged it.
fn hold_participants(context: &Context, txn: &Txn, reports: &mut Reports) {
    debug_assert!(!txn.commit.participants.is_empty(), "{} owes nobody", txn.commit.id);
    debug_assert_eq!(txn.commit.coordinator.participants(), txn.commit.participants);
    for (participant, has_acknowledged) in txn.commit.coordinator.acknowledgements() {
        let Some(shard) = context.index_of(participant) else { continue };
        reports.owe(shard, txn.commit.id);
        if !has_acknowledged {
            reports.hold(shard, txn.begin);
        }
    }
}

fn result_of(txn: &Txn) -> OpResult<'_> {
    let id = (txn.commit.id != TxnId::default()).then_some(txn.commit.id);
    match txn.result {
        Some(TxnResult::Committed(timestamp)) => {
            OpResult::Committed(Committed { timestamp, txn: id })
        }
        Some(TxnResult::Aborted { reason, entry }) => match &txn.commit.fault {
            Some(fault) if reason.kind == AbortKind::Terminated => OpResult::Failed(fault.clone()),
            _ => {
                let read = entry.map(|at| txn.keys.entry(at));
                let read = read.filter(|entry| entry.read == ReadState::Known);
                OpResult::Aborted(Abort {
                    reason,
                    key: entry.map(|at| txn.keys.key(at)),
                    read: read.map(|entry| entry.version),
                    found: None,
                    txn: id,
                })
            }
        },
        Some(TxnResult::Failed(error)) => OpResult::Failed(error.into()),
        Some(TxnResult::Unknown) | None => OpResult::Unknown(txn.commit.id),
    }
}
