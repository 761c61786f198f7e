//! What becomes durable, what is decided, what can be read: the way of a transaction out of the
//! table.
//!
//! ```text
//!   Prepared ──Decide(commit)──▶ Committed ──Applied──┐
//!      │                            └──logged─────────┴──▶ Kept(committed) ──acked or watermark──▶ forgotten
//!      └──Decide(abort)──▶ keys free at once, Kept(aborted), acknowledged when durable
//! ```
//!
//! A commit is applied at the *decided* timestamp; a key is free only when the put can be read;
//! waiting reads go before new prepares. An abort frees the keys at once: whoever decided it rests
//! on a durable no or on frozen states, so that every later question about the transaction has the
//! same answer, whether or not this participant's record of it survives.

use timestone_types::{
    AbortKind, AbortReason, PreviousFound, Timestamp, TxnId, TxnOutcome, Version, limits as shared,
};

use super::input::{DecisionOrigin, Ticket, Token, Vote};
use super::output::{LogIntent, Output};
use super::table::{Fate, Handle, Holder, Kept, Phase, Place};
use super::{AfterAbort, Participant, Pending};
use crate::planted::bugs;
use crate::validation::Validation;
use crate::{Refusal, ShardList};

impl<V: Validation> Participant<V> {
    /// Every ticket up to this one is durable.
    pub(super) fn durable(&mut self, now: Timestamp, through: Ticket, out: &mut Vec<Output>) {
        while let Some(&(ticket, pending)) = self.pending.front() {
            if ticket > through {
                break;
            }
            self.pending.pop_front();
            match pending {
                Pending::Nothing => {}
                Pending::Promise { record, txn, asker } => {
                    self.promise_is_durable(record, txn, asker, out)
                }
                Pending::AbortedPromise { record, txn, asker, reason } => {
                    if let Some(slot) = self.table.alive(record) {
                        self.let_go(slot, None, out);
                        self.finish(slot, Fate::Aborted(reason), out);
                    }
                    out.push(Output::Vote {
                        token: asker.token,
                        txn,
                        commit: asker.commit,
                        vote: Vote::No(reason),
                    });
                }
                Pending::Committed { record, txn, token } => {
                    self.commit_is_durable(record, txn, token, out)
                }
                Pending::Aborted { txn, then } => self.abort_is_durable(txn, then, out),
                Pending::Bound { bound, watermark } => {
                    self.bound_is_durable(now, bound, watermark, out)
                }
            }
        }
    }

    fn promise_is_durable(
        &mut self,
        record: Handle,
        txn: TxnId,
        asker: super::table::Asker,
        out: &mut Vec<Output>,
    ) {
        let (token, commit) = (asker.token, asker.commit);
        let vote = Output::Vote { token, txn, commit, vote: Vote::Yes };
        let Some(slot) = self.table.alive(record) else {
            return out.push(Output::Ignored { token });
        };
        let bugs = bugs();
        let record = self.table.record_mut(slot);
        match record.phase {
            Phase::Prepared { .. } => {
                record.phase = Phase::Prepared { durable: true };
                record.commit = record.commit.max(commit);
                if record.moving_to == Some(commit) {
                    record.moving_to = None;
                }
                let single = record.single;
                self.wake_asking_record(slot, out);
                if single {
                    self.commit(slot, commit, true, out);
                }
                if !bugs.vote_before_durable {
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
        let Some(slot) = self.table.alive(record) else { return };
        if let Phase::Committed { at, applied, .. } = self.table.record(slot).phase {
            self.table.record_mut(slot).phase = Phase::Committed { at, applied, logged: true };
            self.wake_asking_record(slot, out);
            if applied {
                self.finish_committed(slot, at, out);
            }
        }
    }

    fn abort_is_durable(&mut self, txn: TxnId, then: AfterAbort, out: &mut Vec<Output>) {
        if let Some(Place::Kept(index)) = self.table.find(txn) {
            let kept = self.table.kept_mut(index);
            kept.durable = true;
            if core::mem::take(&mut kept.asked) {
                self.waiting.wake_asking(txn, out);
            }
        }
        match then {
            AfterAbort::Vote { asker, reason } => {
                out.push(Output::Vote {
                    token: asker.token,
                    txn,
                    commit: asker.commit,
                    vote: Vote::No(reason),
                });
            }
            AfterAbort::Acknowledge(token) => out.push(Output::AckDecision { token, txn }),
            AfterAbort::Nothing => {}
        }
    }

    pub(super) fn wake_asking_record(&mut self, slot: Holder, out: &mut Vec<Output>) {
        let record = self.table.record_mut(slot);
        if core::mem::take(&mut record.asked) {
            let txn = record.txn;
            self.waiting.wake_asking(txn, out);
        }
    }

    /// A decision arrives, from a coordinator or a peer, or is made here (then nobody waits for an
    /// acknowledgement).
    pub(super) fn decide(
        &mut self,
        now: Timestamp,
        token: Option<Token>,
        txn: TxnId,
        outcome: TxnOutcome,
        origin: DecisionOrigin,
        out: &mut Vec<Output>,
    ) {
        match self.table.find(txn) {
            Some(Place::Kept(index)) => {
                let kept = self.table.kept_mut(index);
                let (known, durable) = (kept.fate.outcome(), kept.durable);
                kept.asked |= !durable;
                self.answer_decided(token, txn, known == outcome, durable, out);
            }
            Some(Place::Flight(slot)) => self.decide_in_flight(token, slot, outcome, origin, out),
            None => self.decide_unseen(now, token, txn, outcome, origin, out),
        }
    }

    /// A decision about something that is decided already.
    fn answer_decided(
        &mut self,
        token: Option<Token>,
        txn: TxnId,
        agrees: bool,
        durable: bool,
        out: &mut Vec<Output>,
    ) {
        let Some(token) = token else { return };
        if !agrees {
            out.push(Output::Refuse { token, refusal: Refusal::Contradiction });
        } else if durable {
            out.push(Output::AckDecision { token, txn });
        } else {
            self.park_asking(txn, token, out);
        }
    }

    pub(super) fn decide_in_flight(
        &mut self,
        token: Option<Token>,
        slot: Holder,
        outcome: TxnOutcome,
        origin: DecisionOrigin,
        out: &mut Vec<Output>,
    ) {
        let record = self.table.record_mut(slot);
        let (txn, begin) = (record.txn, record.begin);
        match (record.phase, outcome) {
            (Phase::Committed { at, logged, .. }, _) => {
                record.asked |= !logged;
                self.answer_decided(token, txn, outcome == TxnOutcome::Committed(at), logged, out);
            }
            (Phase::Aborting, _) => {
                record.asked = true;
                self.answer_decided(token, txn, outcome == TxnOutcome::Aborted, false, out);
            }
            // Only this participant decides about a transaction of its own, and it does so by its
            // log.
            (Phase::Prepared { .. }, _) if record.single => {
                self.answer_decided(token, txn, false, false, out)
            }
            (Phase::Prepared { .. }, TxnOutcome::Committed(at)) => {
                self.resolutions.remove(&txn);
                let pending = Pending::Committed { record: self.table.handle(slot), txn, token };
                self.wake_asking_record(slot, out);
                self.log_decision(txn, begin, outcome, None, origin, pending, out);
                self.commit(slot, at, false, out);
            }
            (Phase::Prepared { .. }, TxnOutcome::Aborted) => {
                self.let_go(slot, None, out);
                let kind = if origin == DecisionOrigin::Client {
                    AbortKind::Requested
                } else {
                    AbortKind::Terminated
                };
                let asked = core::mem::take(&mut self.table.record_mut(slot).asked);
                let index = self.finish(slot, Fate::Aborted(AbortReason::of(kind)), out);
                let kept = self.table.kept_mut(index);
                kept.durable = false;
                kept.asked = asked;
                let then = token.map_or(AfterAbort::Nothing, AfterAbort::Acknowledge);
                self.log_decision(
                    txn,
                    begin,
                    outcome,
                    Some(kind),
                    origin,
                    Pending::Aborted { txn, then },
                    out,
                );
            }
        }
    }

    /// An abort that overtook its prepare is remembered, so that the late prepare does not prepare
    /// for ever; a commit without a prepare asks for the write set. What was finished and forgotten
    /// is acknowledged again.
    fn decide_unseen(
        &mut self,
        now: Timestamp,
        token: Option<Token>,
        txn: TxnId,
        outcome: TxnOutcome,
        origin: DecisionOrigin,
        out: &mut Vec<Output>,
    ) {
        let Some(token) = token else { return };
        let forgotten = matches!(outcome, TxnOutcome::Committed(at) if !self.is_asked_for(now, at));
        if forgotten || self.is_acked(txn) {
            return out.push(Output::AckDecision { token, txn });
        }
        if outcome != TxnOutcome::Aborted {
            if bugs().apply_empty_write_set {
                return out.push(Output::AckDecision { token, txn });
            }
            return out.push(Output::AskWriteSet { token, txn });
        }
        // Its begin is not known here, but it cannot lie further ahead than the clock guard allows.
        let begin = now.saturating_add(shared::MAX_CLOCK_LEAD);
        if !self.abort_unseen(
            now,
            txn,
            begin,
            AbortKind::Requested,
            origin,
            AfterAbort::Acknowledge(token),
            out,
        ) {
            out.push(Output::Refuse { token, refusal: Refusal::Busy });
        }
    }

    /// Records a transaction that was never seen here as aborted; false when there is no room.
    #[allow(clippy::too_many_arguments, reason = "one record")]
    pub(super) fn abort_unseen(
        &mut self,
        now: Timestamp,
        txn: TxnId,
        begin: Timestamp,
        kind: AbortKind,
        origin: DecisionOrigin,
        then: AfterAbort,
        out: &mut Vec<Output>,
    ) -> bool {
        // As long as its commit could be carried out, the abort must be remembered: it may have
        // been told.
        let begin =
            if self.is_uncertain_after(begin) { begin.max(self.uncertain.end) } else { begin };
        if !self.know_client(now, txn.client, begin) {
            return false;
        }
        let fate = Fate::Aborted(AbortReason::of(kind));
        let found = PreviousFound::Unasked;
        self.keep(Kept { txn, begin, fate, found, durable: false, asked: false, next: u32::MAX });
        let (outcome, pending) = (TxnOutcome::Aborted, Pending::Aborted { txn, then });
        self.log_decision(txn, begin, outcome, Some(kind), origin, pending, out);
        true
    }

    /// Decided: the writes go to the store, the keys stay held until they can be read.
    pub(super) fn commit(
        &mut self,
        slot: Holder,
        at: Timestamp,
        logged: bool,
        out: &mut Vec<Output>,
    ) {
        self.table.leave_timeouts(slot);
        #[cfg(feature = "planted-bugs")]
        let at = if bugs().apply_at_prepared { self.table.record(slot).first } else { at };
        let record = self.table.record_mut(slot);
        let (txn, applied) = (record.txn, record.writes.is_empty());
        record.phase = Phase::Committed { at, applied, logged };
        record.moving_to = None;
        if !applied {
            out.push(Output::Apply { txn, commit: at });
            #[cfg(feature = "planted-bugs")]
            if bugs().free_before_applied {
                self.let_go(slot, Some(at), out);
            }
        } else {
            // Nothing is put here; what was read may be held all the same.
            self.release_keys(slot, Some(at));
            if logged {
                self.finish_committed(slot, at, out);
            }
        }
    }

    /// The writes can be read.
    pub(super) fn applied(&mut self, txn: TxnId, out: &mut Vec<Output>) {
        let Some(Place::Flight(slot)) = self.table.find(txn) else { return };
        let Phase::Committed { at, applied: false, logged } = self.table.record(slot).phase else {
            return;
        };
        self.let_go(slot, Some(at), out);
        self.table.record_mut(slot).phase = Phase::Committed { at, applied: true, logged };
        if logged {
            self.finish_committed(slot, at, out);
        }
    }

    /// Frees the keys, as committed at a timestamp or as they were, and wakes who waits for them.
    pub(super) fn let_go(
        &mut self,
        slot: Holder,
        committed: Option<Timestamp>,
        out: &mut Vec<Output>,
    ) {
        self.release_keys(slot, committed);
        self.table.record_mut(slot).writes.clear();
        self.waiting.wake(self.table.record_mut(slot), out);
    }

    pub(super) fn release_keys(&mut self, slot: Holder, committed: Option<Timestamp>) {
        let record = self.table.record(slot);
        let version = committed.map(|at| Version::new(at, record.txn.client));
        self.validation.decided(slot, &record.writes, version);
    }

    fn finish_committed(&mut self, slot: Holder, at: Timestamp, out: &mut Vec<Output>) {
        let record = self.table.record_mut(slot);
        let participants = if record.single {
            ShardList::default()
        } else {
            core::mem::take(&mut record.participants)
        };
        self.finish(slot, Fate::Committed { at, participants }, out);
    }

    /// Turns a record into a durable outcome; its payload is not needed any more.
    fn finish(&mut self, slot: Holder, fate: Fate, out: &mut Vec<Output>) -> u32 {
        let txn = self.table.record(slot).txn;
        // However it ended: a promise that was refused later ends without a decision from anybody.
        self.resolutions.remove(&txn);
        self.waiting.wake(self.table.record_mut(slot), out);
        self.wake_asking_record(slot, out);
        out.push(Output::ForgetPayload { txn });
        let index = self.table.finish(slot, fate, true);
        self.link(index);
        index
    }

    #[allow(clippy::too_many_arguments, reason = "one record")]
    pub(super) fn log_decision(
        &mut self,
        txn: TxnId,
        begin: Timestamp,
        outcome: TxnOutcome,
        abort: Option<AbortKind>,
        origin: DecisionOrigin,
        pending: Pending,
        out: &mut Vec<Output>,
    ) {
        let (found, met) = (PreviousFound::Unasked, Timestamp::ZERO);
        self.log(
            LogIntent::Decision { txn, begin, outcome, abort, found, met, origin },
            pending,
            out,
        );
    }
}
