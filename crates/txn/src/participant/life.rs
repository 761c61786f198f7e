//! The life of a transaction at this shard, whatever the validation:
//!
//! ```text
//!   unseen ──pass──▶ Prepared ──durable──▶ Vote Yes ──Decide(commit)──▶ Committed ──Applied, logged──▶ kept
//!     │                 │ again, later: the old promise holds             (one-phase: at once)
//!     │                 │ until the new one is durable
//!     ├─too low──▶ Vote Later(t), nothing promised     Prepared ──Decide(abort)──▶ kept (aborted)
//!     ├─in the way──▶ parked ──▶ Again, or No when the time is up
//!     └─refused──▶ kept (aborted) ──durable──▶ Vote No(reason)
//!
//!   promises.rs: up to the promise · decisions.rs: from there on · at_once.rs: all of it in one go
//! ```
//!
//! Invariants: nothing is answered before what it rests on is durable; a commit is applied at the
//! *decided* timestamp; a key is free only when the put can be read; who waits is woken when the
//! holder has freed its keys, reads before prepares.
//!
//! It knows neither clocks nor watermarks (whoever calls has admitted the input, [`super::horizon`])
//! nor how transactions are ended when their client is silent ([`super::termination`]).

use timestone_types::{ShardId, Timestamp, TxnId, Version, is_planted};

use super::Config;
use super::appended::Appended;
use super::at_once::PutsNow;
use super::input::{Token, Wait, WriteItem};
use super::output::Output;
use super::table::{Holder, TxnPlace};
use super::transactions::Transactions;
use super::waiting::Waiting;
use crate::Refusal;
use crate::limits::PROMISED_WAIT;
use crate::validation::{Until, Validation};

/// See the module.
#[derive(Debug)]
pub(super) struct Lifecycle<V> {
    pub(super) config: Config,
    pub(super) txns: Transactions,
    pub(super) waiting: Waiting,
    pub(super) log: Appended,
    pub(super) validation: V,
    /// Who puts its writes just now.
    pub(super) puts_now: Option<PutsNow>,
}

impl<V: Validation> Lifecycle<V> {
    pub(super) fn new(validation: V, config: Config) -> Self {
        Self {
            config,
            txns: Transactions::new(),
            waiting: Waiting::default(),
            log: Appended::default(),
            validation,
            puts_now: None,
        }
    }

    /// Until when an input may wait for a decision; `None` when it may not.
    pub(super) fn may_wait(&self, now: Timestamp, wait: Wait) -> Option<Timestamp> {
        let deadline = match wait {
            Wait::No => return None,
            Wait::Yes => now.saturating_add(self.config.prepared_wait),
            Wait::Until(deadline) => deadline,
        };
        (deadline > now && !self.waiting.is_full()).then_some(deadline)
    }

    /// Until when a prepare may wait; `None`: it is refused at once. Wait-die: what has promises at
    /// other shards waits only for lower timestamps, so that no two transactions wait for each
    /// other at two shards, and only for a moment, because others wait for those promises.
    pub(super) fn may_prepare_wait(
        &self,
        now: Timestamp,
        until: Until,
        prepare: &super::Prepare<'_>,
    ) -> Option<Timestamp> {
        let deadline = self.may_wait(now, prepare.wait)?;
        if prepare.single {
            return Some(deadline);
        }
        let goes_first = match until {
            Until::Decided(holder) => {
                self.txns.table.others().may_commit_at(holder) < prepare.commit
            }
            Until::Passed(_) => true,
        };
        goes_first.then(|| deadline.min(now.saturating_add(PROMISED_WAIT)))
    }

    /// Lets a read wait for a holder.
    pub(super) fn park_read(
        &mut self,
        token: Token,
        holder: Holder,
        deadline: Timestamp,
        out: &mut Vec<Output>,
    ) {
        debug_assert!(!holder.is_none(), "a read waits for somebody");
        self.waiting.park(&mut self.txns.table, holder, true, token, deadline);
        out.push(Output::Parked { token });
    }

    /// Lets a prepare wait.
    pub(super) fn park_prepare(
        &mut self,
        token: Token,
        until: Until,
        deadline: Timestamp,
        out: &mut Vec<Output>,
    ) {
        debug_assert!(!self.waiting.is_full(), "there is room for whoever may wait");
        match until {
            Until::Decided(holder) => {
                self.waiting.park(&mut self.txns.table, holder, false, token, deadline)
            }
            Until::Passed(at) => self.waiting.park_until(token, at, deadline),
        }
        out.push(Output::Parked { token });
    }

    /// Parks a question about a transaction; the caller has marked it as asked about.
    pub(super) fn park_asking(&mut self, txn: TxnId, token: Token, out: &mut Vec<Output>) {
        if self.waiting.is_full() {
            return out.push(Output::Refuse { token, refusal: Refusal::Busy });
        }
        debug_assert!(
            self.txns.table.find(txn).is_some_and(|place| match place {
                TxnPlace::Flight(slot) => self.txns.table.record(slot).asked,
                TxnPlace::Kept(index) => self.txns.table.kept(index).asked,
            }),
            "who waits is woken by what it asks about"
        );
        self.waiting.park_asking(txn, token);
        out.push(Output::Parked { token });
    }

    /// Wakes who asked about what has just become durable.
    pub(super) fn wake_asking(&mut self, slot: Holder, out: &mut Vec<Output>) {
        let record = self.txns.table.record_mut(slot);
        if core::mem::take(&mut record.asked) {
            let txn = record.txn;
            debug_assert!(self.txns.table.find(txn) == Some(TxnPlace::Flight(slot)));
            self.waiting.wake_asking(txn, out);
        }
    }

    /// Fills a record with what it writes, and holds the keys whoever else does.
    pub(super) fn adopt(
        &mut self,
        slot: Holder,
        single: bool,
        participants: &[ShardId],
        writes: &[WriteItem],
    ) {
        self.txns.table.fill(slot, single, participants, writes);
        debug_assert!(self.txns.table.record(slot).writes.len() == writes.len());
        self.validation.restore(slot, writes);
    }

    /// Frees the keys, as committed at a timestamp or as they were.
    pub(super) fn free_keys(&mut self, slot: Holder, committed: Option<Timestamp>) {
        let record = self.txns.table.record(slot);
        debug_assert!(committed.is_none_or(|at| at > Timestamp::ZERO), "versions lie above zero");
        let version = committed.map(|at| Version::new(at, record.txn.client));
        self.validation.decided(slot, &record.writes, version);
    }

    /// The same, and wakes who waits for them.
    pub(super) fn release(
        &mut self,
        slot: Holder,
        committed: Option<Timestamp>,
        out: &mut Vec<Output>,
    ) {
        self.free_keys(slot, committed);
        let record = self.txns.table.record_mut(slot);
        record.writes.clear();
        self.waiting.wake(record, out);
        assert!(self.txns.table.record(slot).writes.is_empty(), "it holds no key any more");
    }

    /// Forgets what is known of keys that were not used for long.
    pub(super) fn retire(&mut self, now: Timestamp) {
        let low_water = self.validation.low_water();
        let held = self.txns.table.live().flat_map(|(_, record)| &record.writes);
        let held = held.filter(|one| one.kind != super::WriteKind::Fence).map(|one| one.key);
        self.validation.retire(now, held);
        assert!(
            self.validation.low_water() >= low_water || is_planted!(FallingLowWater),
            "what stands for forgotten keys only rises"
        );
    }
}
