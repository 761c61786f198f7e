//! From the promise on: what becomes durable, what is decided, what can be read.
//!
//! ```text
//!   Prepared ──Decide(commit)──▶ Committed ──Applied──┐
//!      │                            └──logged─────────┴──▶ kept(committed) ──acked or watermark──▶ forgotten
//!      └──Decide(abort)──▶ keys free at once, kept(aborted), acknowledged when durable
//! ```
//!
//! A commit is applied at the *decided* timestamp; a key is free only when the put can be read;
//! waiting reads go before new prepares. An abort that a coordinator or a peer tells frees the keys at
//! once: whoever decided it rests on a durable no or on frozen states, so that every later question
//! about the transaction has the same answer, whether or not this participant's record of it
//! survives. One that this participant concludes itself frees them when its record is durable
//! ([`super::termination`]).

use timestone_types::{
    AbortKind, AbortReason, Timestamp, TxnId, TxnOutcome, is_planted, limits as shared,
};

use super::appended::{AfterAbort, PendingRecord};
use super::horizon::Watermark;
use super::input::{DecidedBy, Prepare, Token, Vote};
use super::life::Lifecycle;
use super::output::{LogIntent, Output};
use super::table::{Asker, Fate, Handle, Holder, Kept, Phase, TxnPlace};
use crate::validation::Validation;
use crate::{Refusal, ShardList};

/// A decision, as it arrives from a coordinator or a peer, or is made here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decision {
    /// Who waits for an acknowledgement; nobody when it is made here.
    pub(super) token: Option<Token>,
    pub(super) txn: TxnId,
    pub(super) outcome: TxnOutcome,
    pub(super) decided_by: DecidedBy,
}

impl<V: Validation> Lifecycle<V> {
    /// What follows when a record is durable. Tells the transaction that is aborted by it, if there is
    /// one.
    pub(super) fn recorded(
        &mut self,
        pending: PendingRecord,
        out: &mut Vec<Output>,
    ) -> Option<TxnId> {
        match pending {
            PendingRecord::Nothing | PendingRecord::Bound { .. } => {}
            PendingRecord::Promise { record, txn, asker } => {
                self.promise_is_durable(record, txn, asker, out)
            }
            PendingRecord::AbortedPromise { record, txn, asker, reason } => {
                let slot = self.txns.alive(record);
                if let Some(slot) = slot {
                    self.release(slot, None, out);
                    assert!(self.txns.table.record(slot).phase == Phase::Aborting, "and stays so");
                    self.finish(slot, Fate::Aborted(reason), out);
                }
                let Asker { token, commit } = asker;
                out.push(Output::Vote { token, txn, commit, vote: Vote::No(reason) });
                return slot.map(|_| txn);
            }
            PendingRecord::GivenUp { kind, record, txn } => {
                if let Some(slot) = self.txns.alive(record) {
                    self.release(slot, None, out);
                    assert!(self.txns.table.record(slot).phase == Phase::Aborting, "and stays so");
                    self.finish(slot, Fate::Aborted(AbortReason::of(kind)), out);
                }
                return Some(txn);
            }
            PendingRecord::Committed { record, txn, token } => {
                self.commit_is_durable(record, txn, token, out)
            }
            PendingRecord::Aborted { txn, then } => {
                self.abort_is_durable(txn, then, out);
                return Some(txn);
            }
        }
        None
    }

    fn promise_is_durable(
        &mut self,
        record: Handle,
        txn: TxnId,
        asker: Asker,
        out: &mut Vec<Output>,
    ) {
        let (token, commit) = (asker.token, asker.commit);
        let vote = Output::Vote { token, txn, commit, vote: Vote::Yes };
        let Some(slot) = self.txns.alive(record) else {
            return out.push(Output::Ignored { token });
        };
        let record = self.txns.table.record_mut(slot);
        debug_assert!(record.txn == txn, "a handle means one transaction");
        match record.phase {
            Phase::Prepared { .. } => {
                record.phase = Phase::Prepared { durable: true };
                record.commit = record.commit.max(commit);
                if record.moves.to == Some(commit) {
                    record.moves.to = None;
                }
                let single = record.single;
                self.wake_asking(slot, out);
                if single {
                    self.commit(slot, commit, true, out);
                }
                if !is_planted!(EarlyVote) {
                    out.push(vote);
                }
            }
            Phase::Committed { at, .. } if at == commit => out.push(vote),
            Phase::Committed { .. } | Phase::Aborting => out.push(Output::Ignored { token }),
        }
    }

    fn commit_is_durable(
        &mut self,
        record: Handle,
        txn: TxnId,
        token: Option<Token>,
        out: &mut Vec<Output>,
    ) {
        if let Some(token) = token {
            out.push(Output::AckDecision { token, txn });
        }
        let Some(slot) = self.txns.alive(record) else { return };
        let record = self.txns.table.record_mut(slot);
        if let Phase::Committed { at, applied, logged } = record.phase {
            assert!(!logged || record.recovered, "a decision is logged once");
            record.phase = Phase::Committed { at, applied, logged: true };
            self.wake_asking(slot, out);
            if applied {
                self.finish_committed(slot, at, out);
            }
        }
    }

    fn abort_is_durable(&mut self, txn: TxnId, then: AfterAbort, out: &mut Vec<Output>) {
        if let Some(TxnPlace::Kept(index)) = self.txns.table.find(txn) {
            let kept = self.txns.table.kept_mut(index);
            debug_assert!(kept.durable || kept.fate.outcome() == TxnOutcome::Aborted);
            kept.durable = true;
            if core::mem::take(&mut kept.asked) {
                self.waiting.wake_asking(txn, out);
            }
        }
        match then {
            AfterAbort::Vote { asker: Asker { token, commit }, reason } => {
                out.push(Output::Vote { token, txn, commit, vote: Vote::No(reason) });
            }
            AfterAbort::Acknowledge(token) => out.push(Output::AckDecision { token, txn }),
            AfterAbort::Nothing => {}
        }
    }

    /// A decision about a transaction that is known here; true when it was decided by it.
    pub(super) fn decide(
        &mut self,
        place: TxnPlace,
        decision: Decision,
        out: &mut Vec<Output>,
    ) -> bool {
        debug_assert!(
            self.txns.table.find(decision.txn) == Some(place),
            "it is about what is there"
        );
        match place {
            TxnPlace::Kept(index) => {
                let kept = self.txns.table.kept_mut(index);
                let durable = kept.durable;
                kept.asked |= !durable;
                // What is forgotten was acknowledged here before, if it was committed.
                let agrees = kept.fate.is_forgotten() || kept.fate.outcome() == decision.outcome;
                self.answer_decided(&decision, agrees, durable, out);
                false
            }
            TxnPlace::Flight(slot) => self.decide_in_flight(slot, decision, out),
        }
    }

    /// A decision about something that is decided already. Only what is durable contradicts it: a
    /// primary that was deposed may be about to record what its successor has decided otherwise.
    fn answer_decided(
        &mut self,
        decision: &Decision,
        agrees: bool,
        durable: bool,
        out: &mut Vec<Output>,
    ) {
        let (Some(token), txn) = (decision.token, decision.txn) else { return };
        debug_assert!(self.txns.table.find(txn).is_some(), "what is decided is known");
        if !durable {
            self.park_asking(txn, token, out);
        } else if agrees {
            out.push(Output::AckDecision { token, txn });
        } else {
            out.push(Output::Refuse { token, refusal: Refusal::Contradiction });
        }
    }

    fn decide_in_flight(
        &mut self,
        slot: Holder,
        decision: Decision,
        out: &mut Vec<Output>,
    ) -> bool {
        let outcome = decision.outcome;
        let record = self.txns.table.record_mut(slot);
        assert!(record.txn == decision.txn, "a decision is about its transaction");
        match (record.phase, outcome) {
            (Phase::Committed { at, logged, .. }, _) => {
                record.asked |= !logged;
                let agrees = outcome == TxnOutcome::Committed(at);
                self.answer_decided(&decision, agrees, logged, out);
                false
            }
            (Phase::Aborting, _) => {
                record.asked = true;
                self.answer_decided(&decision, outcome == TxnOutcome::Aborted, false, out);
                false
            }
            // Only this participant decides about a transaction of its own, and it does so by its
            // log.
            (Phase::Prepared { .. }, _) if record.single => {
                self.answer_decided(&decision, false, true, out);
                false
            }
            (Phase::Prepared { .. }, TxnOutcome::Committed(at)) => {
                self.decide_commit(slot, at, &decision, out);
                true
            }
            (Phase::Prepared { .. }, TxnOutcome::Aborted) => {
                self.decide_abort(slot, &decision, out);
                true
            }
        }
    }

    fn decide_commit(
        &mut self,
        slot: Holder,
        at: Timestamp,
        decision: &Decision,
        out: &mut Vec<Output>,
    ) {
        let Decision { token, txn, outcome: _, decided_by } = *decision;
        assert!(!self.txns.table.record(slot).single, "a lone participant decides by its log");
        let begin = self.txns.table.record(slot).begin;
        let pending = PendingRecord::Committed { record: self.txns.table.handle(slot), txn, token };
        self.wake_asking(slot, out);
        self.log.append(LogIntent::committed(txn, begin, at, decided_by), pending, out);
        self.commit(slot, at, false, out);
    }

    fn decide_abort(&mut self, slot: Holder, decision: &Decision, out: &mut Vec<Output>) {
        let Decision { token, txn, outcome: _, decided_by } = *decision;
        let record = self.txns.table.record(slot);
        assert!(matches!(record.phase, Phase::Prepared { .. }), "a commit is not taken back");
        let begin = record.begin;
        self.release(slot, None, out);
        let kind = if decided_by == DecidedBy::Client {
            AbortKind::Requested
        } else {
            AbortKind::Terminated
        };
        let asked = core::mem::take(&mut self.txns.table.record_mut(slot).asked);
        let index = self.finish(slot, Fate::Aborted(AbortReason::of(kind)), out);
        let kept = self.txns.table.kept_mut(index);
        kept.durable = false;
        kept.asked = asked;
        let then = token.map_or(AfterAbort::Nothing, AfterAbort::Acknowledge);
        let intent = LogIntent::aborted(txn, begin, Some(kind), decided_by);
        self.log.append(intent, PendingRecord::Aborted { txn, then }, out);
    }

    /// A decision about a transaction that is not known here. An abort that overtook its prepare is
    /// remembered, so that the late prepare does not prepare for ever; a commit without a prepare
    /// asks for the write set. What was finished and forgotten is acknowledged again.
    pub(super) fn decide_unseen(
        &mut self,
        now: Timestamp,
        watermark: &Watermark,
        decision: Decision,
        out: &mut Vec<Output>,
    ) {
        let Decision { token, txn, outcome, decided_by } = decision;
        debug_assert!(self.txns.table.find(txn).is_none(), "what is known is decided where it is");
        let Some(token) = token else { return };
        if let TxnOutcome::Committed(at) = outcome
            && self.waits_for_watermark(watermark, at)
        {
            return out.push(Output::Refuse { token, refusal: Refusal::Busy });
        }
        let forgotten =
            matches!(outcome, TxnOutcome::Committed(at) if !watermark.is_asked_for(now, at));
        if forgotten || self.txns.is_acked(txn) {
            return out.push(Output::AckDecision { token, txn });
        }
        if outcome != TxnOutcome::Aborted {
            if is_planted!(EmptyWriteSet) {
                return out.push(Output::AckDecision { token, txn });
            }
            return out.push(Output::AskWriteSet { token, txn });
        }
        // Its begin is not known here, but it cannot lie further ahead than the clock guard allows.
        let begin = now.saturating_add(shared::MAX_CLOCK_LEAD);
        let then = AfterAbort::Acknowledge(token);
        let unseen = Unseen { txn, begin, kind: AbortKind::Requested, decided_by, then };
        if !self.abort_unseen(now, watermark, unseen, out) {
            out.push(Output::Refuse { token, refusal: Refusal::Busy });
        }
    }

    /// Whether a commit that is not known here lies below a watermark that does not count yet. With
    /// replicas it is not taken for one that was carried out and forgotten: this primary may have
    /// been deposed, and the promise be its successor's (rule P14). Nor may it be carried out here any
    /// more. Whoever tells it does so again.
    pub(super) fn waits_for_watermark(&self, watermark: &Watermark, at: Timestamp) -> bool {
        self.config.has_replicas && watermark.is_passing(at) && !is_planted!(WatermarkIsLocal)
    }

    /// A promise is given up. It holds until the abort is durable, as one that is taken back does.
    pub(super) fn give_up(&mut self, slot: Holder, kind: AbortKind, out: &mut Vec<Output>) {
        let table = &mut self.txns.table;
        let record = table.record_mut(slot);
        assert!(matches!(record.phase, Phase::Prepared { .. }), "a promise stands");
        record.phase = Phase::Aborting;
        let (txn, begin) = (record.txn, record.begin);
        table.leave_timeouts(slot);
        let pending = PendingRecord::GivenUp { kind, record: table.handle(slot), txn };
        let by = DecidedBy::Termination;
        self.log.append(LogIntent::aborted(txn, begin, Some(kind), by), pending, out);
    }

    /// Records a transaction that was never seen here as aborted; false when there is no room.
    pub(super) fn abort_unseen(
        &mut self,
        now: Timestamp,
        watermark: &Watermark,
        unseen: Unseen,
        out: &mut Vec<Output>,
    ) -> bool {
        let Unseen { txn, begin, kind, decided_by, then } = unseen;
        debug_assert!(self.txns.table.find(txn).is_none(), "what is aborted unseen is not known");
        // As long as its commit could be carried out, the abort must be remembered: it may have
        // been told.
        let begin = if watermark.is_uncertain_after(begin) {
            begin.max(watermark.uncertain_end())
        } else {
            begin
        };
        if !self.txns.has_room() || !self.txns.know_client(now, txn.client, begin) {
            return false;
        }
        self.txns.keep(Kept::aborted(txn, begin, AbortReason::of(kind)));
        let intent = LogIntent::aborted(txn, begin, Some(kind), decided_by);
        self.log.append(intent, PendingRecord::Aborted { txn, then }, out);
        true
    }

    /// The write set of a committed transaction whose prepare never arrived: applied without
    /// validation, since it *is* committed, and recorded with its decision.
    pub(super) fn adopt_committed(&mut self, prepare: &Prepare<'_>, out: &mut Vec<Output>) {
        let Prepare { txn, begin, commit, single, token, .. } = *prepare;
        debug_assert!(self.txns.table.find(txn).is_none(), "its prepare never arrived");
        let phase = Phase::Prepared { durable: false };
        let slot = self.txns.table.insert(txn, begin, commit, phase);
        self.adopt(slot, single, prepare.participants, prepare.writes);
        self.validation.came_late(prepare.writes);
        let found = timestone_types::PreviousFound::Unasked;
        let intent = LogIntent::Prepare { txn, begin, commit, single, found };
        self.log.append(intent, PendingRecord::Nothing, out);
        let (outcome, decided_by) = (TxnOutcome::Committed(commit), DecidedBy::Client);
        self.decide_in_flight(slot, Decision { token: Some(token), txn, outcome, decided_by }, out);
    }

    /// Decided: the writes go to the store, the keys stay held until they can be read.
    pub(super) fn commit(
        &mut self,
        slot: Holder,
        at: Timestamp,
        logged: bool,
        out: &mut Vec<Output>,
    ) {
        self.txns.table.leave_timeouts(slot);
        #[cfg(feature = "planted-bugs")]
        let at = if is_planted!(AppliedAtPrepared) {
            self.txns.table.record(slot).moves.first
        } else {
            at
        };
        let record = self.txns.table.record_mut(slot);
        assert!(matches!(record.phase, Phase::Prepared { .. }), "what is committed was promised");
        let (txn, applied) = (record.txn, record.writes.is_empty());
        record.phase = Phase::Committed { at, applied, logged };
        record.moves.to = None;
        if !applied {
            out.push(Output::Apply { txn, commit: at });
            if is_planted!(EarlyRelease) {
                self.release(slot, Some(at), out);
            }
            return;
        }
        // Nothing is put here; what was read may be held all the same.
        self.free_keys(slot, Some(at));
        if logged {
            self.finish_committed(slot, at, out);
        }
    }

    /// The writes can be read.
    pub(super) fn applied(&mut self, txn: TxnId, out: &mut Vec<Output>) {
        let Some(TxnPlace::Flight(slot)) = self.txns.table.find(txn) else { return };
        let Phase::Committed { at, applied: false, logged } = self.txns.table.record(slot).phase
        else {
            return;
        };
        self.release(slot, Some(at), out);
        let record = self.txns.table.record_mut(slot);
        assert!(record.writes.is_empty(), "what is applied holds no key");
        record.phase = Phase::Committed { at, applied: true, logged };
        if logged {
            self.finish_committed(slot, at, out);
        }
    }

    fn finish_committed(&mut self, slot: Holder, at: Timestamp, out: &mut Vec<Output>) {
        let record = self.txns.table.record_mut(slot);
        let ended = Phase::Committed { at, applied: true, logged: true };
        assert!(record.phase == ended || record.writes.is_empty(), "its writes can be read");
        let participants = if record.single {
            ShardList::default()
        } else {
            core::mem::take(&mut record.participants)
        };
        self.finish(slot, Fate::Committed { at, participants }, out);
    }

    /// Turns a record into a durable outcome; its payload is not needed any more.
    fn finish(&mut self, slot: Holder, fate: Fate, out: &mut Vec<Output>) -> u32 {
        let txn = self.txns.table.record(slot).txn;
        debug_assert!(self.txns.table.find(txn) == Some(TxnPlace::Flight(slot)));
        self.waiting.wake(self.txns.table.record_mut(slot), out);
        self.wake_asking(slot, out);
        out.push(Output::ForgetPayload { txn });
        self.txns.finish(slot, fate)
    }

    /// Drops a promise of an earlier run, which everybody has acknowledged the end of.
    pub(super) fn forget_promise(&mut self, slot: Holder, out: &mut Vec<Output>) {
        let record = self.txns.table.record(slot);
        assert!(record.recovered, "only a promise of an earlier run ends without a decision");
        let txn = record.txn;
        self.release(slot, None, out);
        self.wake_asking(slot, out);
        out.push(Output::ForgetPayload { txn });
        self.txns.table.remove(slot);
    }
}

/// A transaction that is to be recorded as aborted, although it was never seen here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unseen {
    pub(super) txn: TxnId,
    pub(super) begin: Timestamp,
    pub(super) kind: AbortKind,
    pub(super) decided_by: DecidedBy,
    pub(super) then: AfterAbort,
}
