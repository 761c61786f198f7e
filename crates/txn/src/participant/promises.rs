//! Up to the promise: prepares that were admitted are validated, promised, or refused.
//!
//! A prepare is identified by (transaction, commit timestamp): a duplicate gets the same vote, a
//! lower one none. A promise that moves to a later timestamp holds until the new one is durable.

use timestone_types::{AbortKind, AbortReason, PreviousFound, Timestamp, TxnOutcome, is_planted};

use super::appended::{AfterAbort, PendingRecord};
use super::horizon::Horizon;
use super::input::{DecidedBy, Prepare, Vote, Wait};
use super::life::Lifecycle;
use super::output::{LogIntent, Output};
use super::table::{Asker, Fate, Holder, Kept, Phase, Written};
use crate::Refusal;
use crate::validation::{Case, Validation, Verdict};

/// What a prepare of a transaction in flight is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Repetition {
    /// It was answered, or is when its record is durable.
    Answered,
    /// It asks for a later timestamp than the one that is promised.
    Next,
}

/// A no because of a timestamp.
const fn reason_at(kind: AbortKind, at: Timestamp) -> AbortReason {
    AbortReason { at, ..AbortReason::of(kind) }
}

impl<V: Validation> Lifecycle<V> {
    fn validate(
        &mut self,
        now: Timestamp,
        expires_by: Timestamp,
        prepare: &Prepare<'_>,
        own: Holder,
    ) -> Verdict {
        debug_assert!(expires_by >= prepare.commit, "what expires before a commit is absent at it");
        let case = Case { now, expires_by, own, others: self.txns.table.others() };
        self.validation.validate(prepare, case)
    }

    /// A prepare of a transaction that was not seen before. Returned is the timestamp at which it is
    /// to be asked again, if the one that it has is too low and the choice is left to the shard.
    pub(super) fn prepare_new(
        &mut self,
        now: Timestamp,
        expires_by: Timestamp,
        prepare: &Prepare<'_>,
        out: &mut Vec<Output>,
    ) -> Option<Timestamp> {
        debug_assert!(
            self.txns.table.find(prepare.txn).is_none() || is_planted!(LatePrepare),
            "it was not seen before"
        );
        let (token, leaves_no_trace) = (prepare.token, prepare.leaves_no_trace());
        match self.validate(now, expires_by, prepare, Holder::NONE) {
            Verdict::Promise if leaves_no_trace => {
                self.validation.promise(Holder::NONE, prepare);
                vote(prepare, Vote::Yes, out);
            }
            Verdict::Promise if Self::may_put_now(prepare) => self.put_now(prepare, out),
            Verdict::Promise => self.promise(now, prepare, out),
            // What stands for forgotten keys lies ahead of the clock only after a restart. Nobody
            // is sent into the future for that.
            Verdict::Later(_) if self.validation.low_water() > now => {
                out.push(Output::Refuse { token, refusal: Refusal::Recovering });
            }
            Verdict::Later(at) if self.config.vote_later => {
                if prepare.may_be_placed_at(at) {
                    return Some(at);
                }
                vote(prepare, Vote::Later(at), out);
            }
            Verdict::Later(at) => self.refuse(prepare, reason_at(AbortKind::Timestamp, at), out),
            Verdict::Wait(until, reason) => match self.may_prepare_wait(now, until, prepare) {
                Some(deadline) => self.park_prepare(token, until, deadline, out),
                None => self.refuse(prepare, reason, out),
            },
            Verdict::Again(_) if prepare.wait != Wait::No => {
                out.push(Output::Again { token, wait: Wait::No })
            }
            Verdict::Again(reason) | Verdict::No(reason) if self.is_to_come(now, reason) => {
                out.push(Output::Refuse { token, refusal: Refusal::Recovering });
            }
            Verdict::Again(reason) | Verdict::No(reason) => self.refuse(prepare, reason, out),
        }
        None
    }

    /// Whether what is in the way lies ahead of the clock because of a restart. What may have been
    /// told expired lies no further ahead than clocks may be.
    fn is_to_come(&self, now: Timestamp, reason: AbortReason) -> bool {
        reason.kind != AbortKind::Expired
            && Horizon::is_to_come(now, reason.at, self.validation.low_water())
    }

    fn promise(&mut self, now: Timestamp, prepare: &Prepare<'_>, out: &mut Vec<Output>) {
        let table = &mut self.txns.table;
        debug_assert!(table.find(prepare.txn).is_none(), "a new promise");
        let phase = Phase::Prepared { durable: false };
        let slot = table.insert(prepare.txn, prepare.begin, prepare.commit, phase);
        table.fill(slot, prepare.single, prepare.participants, prepare.writes);
        table.record_mut(slot).found = prepare.found();
        if !prepare.single {
            table.join_timeouts(slot, now.saturating_add(self.config.decision_timeout));
        }
        self.validation.promise(slot, prepare);
        self.log_promise(slot, prepare, out);
    }

    fn log_promise(&mut self, slot: Holder, prepare: &Prepare<'_>, out: &mut Vec<Output>) {
        let asker = Asker { token: prepare.token, commit: prepare.commit };
        debug_assert!(self.txns.table.record(slot).txn == prepare.txn);
        let record = self.txns.table.handle(slot);
        let pending = PendingRecord::Promise { record, asker, txn: prepare.txn };
        let Prepare { txn, begin, commit, single, .. } = *prepare;
        if is_planted!(EarlyVote) {
            vote(prepare, Vote::Yes, out);
        }
        let found = prepare.found();
        self.log.append(LogIntent::Prepare { txn, begin, commit, single, found }, pending, out);
    }

    /// Records a no, durably before it is sent. A strict read leaves no trace: its no binds nobody.
    pub(super) fn refuse(
        &mut self,
        prepare: &Prepare<'_>,
        reason: AbortReason,
        out: &mut Vec<Output>,
    ) {
        if prepare.leaves_no_trace() {
            return vote(prepare, Vote::No(reason), out);
        }
        let Prepare { txn, begin, commit, token, .. } = *prepare;
        debug_assert!(
            self.txns.table.find(txn).is_none() || is_planted!(LatePrepare),
            "what is promised is taken back, not refused"
        );
        let failed = reason.kind == AbortKind::Condition;
        let (found, met) = if failed {
            (prepare.found(), reason.at)
        } else {
            (PreviousFound::Unasked, Timestamp::ZERO)
        };
        self.txns.keep(Kept { found, ..Kept::aborted(txn, begin, reason) });
        let then = AfterAbort::Vote { asker: Asker { token, commit }, reason };
        let (decided_by, pending) = (DecidedBy::Participant, PendingRecord::Aborted { txn, then });
        let (outcome, abort) = (TxnOutcome::Aborted, Some(reason.kind));
        let intent = LogIntent::Decision { txn, begin, outcome, abort, found, met, decided_by };
        self.log.append(intent, pending, out);
    }

    /// A duplicate gets the same answer again.
    pub(super) fn vote_as_kept(
        &mut self,
        index: u32,
        prepare: &Prepare<'_>,
        out: &mut Vec<Output>,
    ) {
        let kept = self.txns.table.kept_mut(index);
        debug_assert!(kept.txn == prepare.txn, "a repeat is about its transaction");
        if !kept.durable {
            kept.asked = true;
            return self.park_asking(prepare.txn, prepare.token, out);
        }
        let (begin, found) = (kept.begin, kept.found);
        match kept.fate {
            Fate::Aborted(reason) if reason.kind == AbortKind::Condition => {
                // The version that the condition met is the youngest up to here: reading it raised
                // its access record.
                self.repeat(prepare, Vote::No(reason), found, begin.max(reason.at), out);
            }
            Fate::Aborted(reason) => vote(prepare, Vote::No(reason), out),
            Fate::Committed { at, .. } => self.vote_as_committed(prepare, at, found, out),
        }
    }

    fn vote_as_committed(
        &self,
        prepare: &Prepare<'_>,
        at: Timestamp,
        found: PreviousFound,
        out: &mut Vec<Output>,
    ) {
        if prepare.placed_by < at {
            return out.push(Output::Ignored { token: prepare.token });
        }
        let vote =
            if prepare.commit == at { Vote::Yes } else { Vote::Decided(TxnOutcome::Committed(at)) };
        self.repeat(prepare, vote, found, at.previous(), out);
    }

    /// The answer to a repeat. Its first copy's answer may have carried a previous value: the
    /// versions at `at` stay, because the client reports no watermark above the begin of what it
    /// has no answer to. What it *has* an answer to it may not ask again.
    fn repeat(
        &self,
        prepare: &Prepare<'_>,
        known: Vote,
        found: PreviousFound,
        at: Timestamp,
        out: &mut Vec<Output>,
    ) {
        let (token, txn, commit) = (prepare.token, prepare.txn, prepare.commit);
        match found {
            PreviousFound::Unasked => vote(prepare, known, out),
            _ if self.txns.is_acked(txn) => {
                out.push(Output::Refuse { token, refusal: Refusal::Finished })
            }
            found => {
                let present = found == PreviousFound::Present;
                out.push(Output::Repeated { token, txn, commit, vote: known, at, present });
            }
        }
    }

    /// A prepare of a transaction that is in flight: a duplicate, an old one, or the next round,
    /// which the caller still has to admit.
    pub(super) fn prepare_again(
        &mut self,
        slot: Holder,
        prepare: &Prepare<'_>,
        out: &mut Vec<Output>,
    ) -> Repetition {
        let record = self.txns.table.record_mut(slot);
        debug_assert!(record.txn == prepare.txn, "a repeat is about its transaction");
        debug_assert!(record.moves.seen >= record.commit, "what is promised was seen");
        let (token, commit) = (prepare.token, prepare.commit);
        match record.phase {
            Phase::Committed { at, logged: true, .. } => {
                let found = record.found;
                self.vote_as_committed(prepare, at, found, out);
            }
            Phase::Prepared { durable: true }
                if commit == record.commit && commit == record.moves.seen =>
            {
                vote(prepare, Vote::Yes, out);
            }
            Phase::Prepared { .. } if prepare.placed_by < record.moves.seen => {
                out.push(Output::Ignored { token })
            }
            Phase::Prepared { .. }
                if commit > record.commit && record.moves.to != Some(commit) && !record.single =>
            {
                if record.frozen {
                    out.push(Output::Refuse { token, refusal: Refusal::Terminating });
                } else if prepare.single
                    || !record.writes.iter().copied().eq(prepare.writes.iter().map(Written::of))
                {
                    // What it writes, and whether it is alone, is the same in every round.
                    out.push(Output::Refuse { token, refusal: Refusal::Contradiction });
                } else {
                    return Repetition::Next;
                }
            }
            Phase::Prepared { .. } | Phase::Aborting | Phase::Committed { .. } => {
                record.asked = true;
                self.park_asking(prepare.txn, token, out);
            }
        }
        Repetition::Answered
    }

    /// Validates at a later timestamp; the promise that is there holds until the new one is
    /// durable.
    pub(super) fn next_round(
        &mut self,
        now: Timestamp,
        expires_by: Timestamp,
        slot: Holder,
        prepare: &Prepare<'_>,
        out: &mut Vec<Output>,
    ) {
        let record = self.txns.table.record_mut(slot);
        assert!(!record.frozen && prepare.commit > record.commit, "a promise moves up, or not");
        record.moves.seen = prepare.commit;
        if is_planted!(DroppedPromise) {
            self.free_keys(slot, None);
        }
        match self.validate(now, expires_by, prepare, slot) {
            Verdict::Promise => {
                self.validation.promise(slot, prepare);
                self.txns.table.record_mut(slot).moves.to = Some(prepare.commit);
                self.log_promise(slot, prepare, out);
            }
            Verdict::Later(at) if self.config.vote_later => vote(prepare, Vote::Later(at), out),
            Verdict::Later(at) => {
                self.take_back(slot, prepare, reason_at(AbortKind::Timestamp, at), out);
            }
            Verdict::Wait(until, reason) => match self.may_prepare_wait(now, until, prepare) {
                Some(deadline) => self.park_prepare(prepare.token, until, deadline, out),
                None => self.take_back(slot, prepare, reason, out),
            },
            Verdict::Again(reason) | Verdict::No(reason) => {
                self.take_back(slot, prepare, reason, out)
            }
        }
    }

    /// Planted: a duplicate is judged by access records that have moved on since, its own among
    /// them. True when it was.
    pub(super) fn judge_duplicate(
        &mut self,
        now: Timestamp,
        expires_by: Timestamp,
        slot: Holder,
        prepare: &Prepare<'_>,
        out: &mut Vec<Output>,
    ) -> bool {
        assert!(is_planted!(RevalidatedDuplicate), "a repeat is answered as the first copy was");
        let record = self.txns.table.record(slot);
        let is_durable = record.phase == (Phase::Prepared { durable: true });
        if !is_durable || record.commit != prepare.commit {
            return false;
        }
        match self.validate(now, expires_by, prepare, slot) {
            Verdict::Promise => vote(prepare, Vote::Yes, out),
            Verdict::Later(at) => {
                self.take_back(slot, prepare, reason_at(AbortKind::Timestamp, at), out);
            }
            Verdict::Wait(_, reason) | Verdict::Again(reason) | Verdict::No(reason) => {
                self.take_back(slot, prepare, reason, out);
            }
        }
        true
    }

    /// A no after an earlier yes: the promise holds until the no is durable, or a crash in between
    /// would free the keys of a transaction that recovery finds prepared.
    fn take_back(
        &mut self,
        slot: Holder,
        prepare: &Prepare<'_>,
        reason: AbortReason,
        out: &mut Vec<Output>,
    ) {
        let asker = Asker { token: prepare.token, commit: prepare.commit };
        let table = &mut self.txns.table;
        assert!(matches!(table.record(slot).phase, Phase::Prepared { .. }), "a promise stands");
        table.record_mut(slot).phase = Phase::Aborting;
        table.leave_timeouts(slot);
        let (record, txn) = (table.handle(slot), prepare.txn);
        let pending = PendingRecord::AbortedPromise { record, txn, asker, reason };
        let abort = Some(reason.kind);
        let intent = LogIntent::aborted(txn, prepare.begin, abort, DecidedBy::Participant);
        self.log.append(intent, pending, out);
    }
}

/// The vote about a prepare.
pub(super) fn vote(prepare: &Prepare<'_>, vote: Vote, out: &mut Vec<Output>) {
    let Prepare { token, txn, commit, .. } = *prepare;
    out.push(Output::Vote { token, txn, commit, vote });
}
