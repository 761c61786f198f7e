//! The transactions of a manager: their slots, and how they end.
//!
//! ```text
//!   taken ──► open ──► closed ─┬─► released, when nobody waits for its result
//!               └──► committing ──► told ─┘   and no participant is owed anything
//! ```
//! Invariants: a slot is released when its transaction is over, and not before; the open ones of a
//! session are in its list.

use core::ops::{Deref, DerefMut};

use timestone_types::{AbortKind, AbortReason, Timestamp, is_planted};

use super::open::OpenTxns;
use super::record::{Ending, Phase, Txn, TxnResult};
use crate::engine::context::Context;
use crate::engine::replies::Fault;
use crate::engine::results::ResultAt;
use crate::engine::slab::{Slab, SlabKey};
use crate::{SessionError, TxnHandle, limits};

/// See the module's description. Reads under way are in `reads.rs`.
#[derive(Debug)]
pub(super) struct Txns(Slab<Txn>, OpenTxns);

impl Deref for Txns {
    type Target = Slab<Txn>;

    #[inline]
    fn deref(&self) -> &Slab<Txn> {
        &self.0
    }
}

impl DerefMut for Txns {
    #[inline]
    fn deref_mut(&mut self) -> &mut Slab<Txn> {
        &mut self.0
    }
}

impl Txns {
    pub(super) const fn new() -> Self {
        Self(Slab::new(limits::MAX_TRANSACTIONS), OpenTxns::new())
    }

    /// The lists agree with the transactions. Walks all slots.
    pub(super) fn assert_lists_sound(&self) {
        let open = || self.0.iter().filter(|(_, txn)| txn.is_open());
        let is_listed = |(index, txn): (u32, &Txn)| {
            txn.session.is_some_and(|session| self.1.has(session.index, index))
        };
        assert!(open().all(is_listed), "an open transaction is not in its session's list");
        assert_eq!(open().count(), self.1.count(), "what is not open is in a list");
    }

    /// The transaction in a slot has begun.
    pub(super) fn has_begun(&mut self, session: SlabKey, index: u32) {
        debug_assert!(self.0.at(index).is_open() && self.0.at(index).session == Some(session));
        self.1.opened(session.index, index);
    }

    /// The transaction in a slot asks for its commit.
    pub(super) fn is_committing(&mut self, index: u32) {
        let txn = self.0.at_mut(index);
        assert!(txn.is_open() && !txn.commit.is_owing, "a transaction commits once");
        txn.phase = Phase::Committing;
        self.1.ended(index);
    }

    /// Ends the open transactions of a session.
    pub(super) fn close_session(&mut self, context: &mut Context, session: SlabKey) {
        while let Some(index) = self.1.last_of(session.index) {
            assert_eq!(self.0.at(index).session, Some(session), "an earlier session left it open");
            self.close(context, index, None);
        }
    }

    /// The invariants of the transaction in a slot, when it is taken.
    #[inline]
    pub(super) fn assert_one(&self, index: u32) {
        if cfg!(debug_assertions) && self.0.key(index).is_some() {
            self.0.at(index).assert_sound();
        }
    }

    /// The open transaction of a handle, which must not be too old.
    #[inline]
    pub(super) fn open(
        &mut self,
        context: &mut Context,
        txn: TxnHandle,
    ) -> Result<SlabKey, SessionError> {
        let slot = SlabKey::from(txn);
        let Some(txn) = self.0.get(slot).filter(|txn| txn.is_open()) else {
            return Err(SessionError::NoTransaction);
        };
        let limit = context.config().max_transaction_age;
        if context.now().since(txn.opened) > limit && !txn.is_read_only() {
            self.close(context, slot.index, None);
            return Err(SessionError::TooLong { limit });
        }
        self.assert_one(slot.index);
        Ok(slot)
    }

    /// Whatever the session of a transaction begins from now on does not lie below its snapshot.
    pub(super) fn has_seen(&mut self, context: &mut Context, index: u32) {
        let txn = self.0.at(index);
        if txn.follows_backups() && !is_planted!(SnapshotsGoBack) {
            context.session_learned(txn.session, txn.begin);
        }
    }

    /// Ends an open transaction: reads under way fail; a result, when there is one, waits for its
    /// operation.
    pub(super) fn close(&mut self, context: &mut Context, index: u32, result: Option<TxnResult>) {
        self.fail_reads(context, index, &SessionError::NoTransaction);
        let Some(slot) = self.0.key(index) else { return };
        let txn = self.0.at_mut(index);
        assert!(txn.is_open(), "only an open transaction is closed");
        assert!(!txn.commit.is_owing, "an open transaction owes nothing");
        self.1.ended(index);
        txn.phase = Phase::Closed;
        txn.result = result;
        match (result, txn.op) {
            (Some(result), Some(op)) => {
                let is_abort = matches!(result, TxnResult::Aborted { .. });
                context.stats().aborted += u64::from(is_abort);
                context.finish(op, ResultAt::Commit(slot));
            }
            _ => txn.op = None,
        }
        self.release_if_over(index);
    }

    /// Ends a transaction whose snapshot the servers do not hold any more. The read that learned it
    /// tells, when there is one; other reads under way hear why, too.
    pub(super) fn close_as_too_old(
        &mut self,
        context: &mut Context,
        index: u32,
        entry: Option<u32>,
        watermark: Timestamp,
    ) {
        let txn = self.0.at_mut(index);
        assert!(txn.is_open() && txn.op.is_none(), "an open transaction waits for its end");
        txn.op = entry.and_then(|at| txn.keys.take_waiter(at));
        context.session_learned(txn.session, watermark.next());
        let reason = AbortReason { at: watermark, ..AbortReason::of(AbortKind::TooOld) };
        let (result, told) =
            match context.lag_behind(&reason).map(|lag| Ending::ClockBehind { lag }) {
                Some(ending) => (TxnResult::Failed(ending), ending.into()),
                None => (TxnResult::Aborted { reason, entry }, Fault::TooOld { watermark }.into()),
            };
        self.fail_reads(context, index, &told);
        self.close(context, index, Some(result));
    }

    /// Ends a transaction that a read found to be impossible. Other reads under way hear the same: whoever
    /// looks at one of them first is to know whether a retry is worth while.
    pub(super) fn close_with(
        &mut self,
        context: &mut Context,
        index: u32,
        entry: u32,
        ending: Ending,
    ) {
        let txn = self.0.at_mut(index);
        assert!(txn.is_open() && txn.op.is_none(), "an open transaction waits for its end");
        txn.op = txn.keys.take_waiter(entry);
        self.fail_reads(context, index, &ending.into());
        self.close(context, index, Some(TxnResult::Failed(ending)));
    }

    /// Releases a transaction that was told and owes nothing.
    #[inline]
    pub(super) fn release_if_over(&mut self, index: u32) {
        if self.0.at(index).is_over() {
            self.end(index);
        }
        self.assert_one(index);
    }

    pub(super) fn end(&mut self, index: u32) {
        let txn = self.0.at_mut(index);
        assert!(!txn.commit.is_owing, "some participant is owed something");
        txn.keys.close();
        txn.ranges.clear();
        if txn.is_open() {
            // It was committed without asking anybody.
            self.1.ended(index);
        }
        self.0.release(index);
    }
}
