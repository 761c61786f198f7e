//! Prepares: validation at the primary (Algorithm 1 of MILANA §4.2, with step 3 of Kairos §4.3),
//! promises and refusals.
//!
//! ```text
//!   unseen ──pass──▶ Prepared ──durable──▶ Vote Yes           (single: Apply, then Yes)
//!     │                 │ again, later timestamp: the old promise holds until the new one is durable
//!     ├─too low──▶ Vote Later(t), nothing promised
//!     ├─blocked──▶ parked ──▶ Again, or No when the time is up
//!     └─refused──▶ aborted ──durable──▶ Vote No(reason)
//! ```
//!
//! Rules, atomically per shard: (1) every read key has no prepared write of another transaction at
//! *any* timestamp, its latest version is the one read, not expired at commit nor by the server's
//! time, nor told expired before a restart; (2) every written key has no prepared write of another,
//! and all its marks lie below commit; (3) then `latest_read` of every validated read key rises to
//! commit, and the written keys are prepared.
//!
//! A prepare is identified by (transaction, commit timestamp): a duplicate gets the same vote, a
//! lower one none.

use timestone_types::{AbortKind, AbortReason, PreviousFound, ShardId, Timestamp, TxnOutcome};

use super::input::{DecisionOrigin, Prepare, Token, Vote, Wait, WriteItem};
use super::output::{LogIntent, Output};
use super::table::{Asker, Fate, Holder, Kept, Phase, Place, Written};
use super::{AfterAbort, Participant, Pending};
use crate::Refusal;
use crate::limits::{MAX_FLOOR_LEAD, MAX_KEPT_OUTCOMES, MAX_PREPARED, PROMISED_WAIT};
use crate::planted::bugs;
use crate::validation::{Case, Until, Validation, Verdict};

impl<V: Validation> Participant<V> {
    pub(super) fn prepare(&mut self, now: Timestamp, prepare: &Prepare<'_>, out: &mut Vec<Output>) {
        let token = prepare.token;
        match self.table.find(prepare.txn) {
            Some(Place::Flight(slot)) => return self.prepare_again(now, slot, prepare, out),
            Some(Place::Kept(index)) if !bugs().forget_outcomes => {
                return self.vote_as_kept(index, prepare, out);
            }
            Some(Place::Kept(_)) | None => {}
        }
        if self.is_acked(prepare.txn) {
            return out.push(Output::Refuse { token, refusal: Refusal::Finished });
        }
        let leaves_no_trace = prepare.single && prepare.writes.is_empty();
        let latest = prepare.commit.max(prepare.begin);
        let admitted = match leaves_no_trace {
            true => self.may_read_at(now, latest),
            false => self.clock_has_passed_floor(now).and_then(|()| self.within_lead(now, latest)),
        };
        if let Err(refusal) = admitted {
            return out.push(Output::Refuse { token, refusal });
        }
        if prepare.begin < self.watermark {
            // Not recorded: the watermark is durable and only rises, so it will say no for ever.
            let reason = AbortReason { at: self.watermark, ..AbortReason::of(AbortKind::TooOld) };
            return self.vote(prepare, Vote::No(reason), out);
        }
        if prepare.begin < self.pledged_watermark {
            let reason =
                AbortReason { at: self.pledged_watermark, ..AbortReason::of(AbortKind::TooOld) };
            return match self.know_client(now, prepare.txn.client, prepare.begin) {
                true => self.refuse(prepare, reason, false, out),
                false => out.push(Output::Refuse { token, refusal: Refusal::Busy }),
            };
        }
        if !self.bound.admits(prepare.commit) {
            return self.park_behind_bound(now, token, prepare.wait, prepare.commit, out);
        }
        let room =
            self.table.in_flight() < MAX_PREPARED && self.table.kept_len() < MAX_KEPT_OUTCOMES;
        if !room || !self.know_client(now, prepare.txn.client, prepare.begin) {
            return out.push(Output::Refuse { token, refusal: Refusal::Busy });
        }
        match self.validate(now, prepare, Holder::NONE) {
            Verdict::Promise if leaves_no_trace => {
                self.validation.promise(Holder::NONE, prepare);
                self.vote(prepare, Vote::Yes, out);
            }
            Verdict::Promise => self.promise(now, prepare, out),
            // The floor lies ahead of the clock only after a restart. Nobody is sent into the
            // future for that.
            Verdict::Later(_) if self.validation.low_water() > now => {
                out.push(Output::Refuse { token, refusal: Refusal::Recovering });
            }
            Verdict::Later(at) if self.config.vote_later => {
                self.vote(prepare, Vote::Later(at), out)
            }
            Verdict::Later(at) => {
                self.refuse(
                    prepare,
                    AbortReason { at, ..AbortReason::of(AbortKind::Timestamp) },
                    leaves_no_trace,
                    out,
                );
            }
            Verdict::Wait(until, reason) => match self.may_wait_for(now, until, prepare) {
                Some(deadline) => self.park_until(token, until, deadline, out),
                None => self.refuse(prepare, reason, leaves_no_trace, out),
            },
            Verdict::Again(_) if prepare.wait != Wait::No => {
                out.push(Output::Again { token, wait: Wait::No })
            }
            Verdict::Again(reason) | Verdict::No(reason) => {
                self.refuse(prepare, reason, leaves_no_trace, out)
            }
        }
    }

    /// Writes commit above the floor, and nobody is sent further ahead than clocks may be. Only a
    /// restart whose clock was set back puts the floor so far ahead that there is no waiting for
    /// it.
    #[inline]
    fn clock_has_passed_floor(&self, now: Timestamp) -> Result<(), Refusal> {
        let left = self.validation.low_water().since(now);
        if left > MAX_FLOOR_LEAD { Err(Refusal::ClockBehind { left }) } else { Ok(()) }
    }

    /// Until when a prepare may wait; `None`: it is refused at once. Wait-die: what has promises at
    /// other shards waits only for lower timestamps, so that no two transactions wait for each
    /// other at two shards, and only for a moment, because others wait for those promises.
    fn may_wait_for(
        &self,
        now: Timestamp,
        until: Until,
        prepare: &Prepare<'_>,
    ) -> Option<Timestamp> {
        let deadline = self.may_wait(now, prepare.wait)?;
        if prepare.single {
            return Some(deadline);
        }
        let is_older = match until {
            Until::Decided(holder) => self.table.others().may_commit_at(holder) < prepare.commit,
            Until::Passed(_) => true,
        };
        is_older.then(|| deadline.min(now.saturating_add(PROMISED_WAIT)))
    }

    fn park_until(
        &mut self,
        token: Token,
        until: Until,
        deadline: Timestamp,
        out: &mut Vec<Output>,
    ) {
        match until {
            Until::Decided(holder) => {
                self.park(token, self.table.handle(holder), false, deadline, out)
            }
            Until::Passed(at) => {
                self.waiting.park_until(token, at, deadline);
                out.push(Output::Parked { token });
            }
        }
    }

    pub(super) fn vote(&self, prepare: &Prepare<'_>, vote: Vote, out: &mut Vec<Output>) {
        out.push(Output::Vote {
            token: prepare.token,
            txn: prepare.txn,
            commit: prepare.commit,
            vote,
        });
    }

    fn validate(&mut self, now: Timestamp, prepare: &Prepare<'_>, own: Holder) -> Verdict {
        let expires_by =
            self.judges_expiry(now, prepare.commit).max(prepare.commit).max(self.expiry.told);
        let case = Case { now, expires_by, own, others: self.table.others() };
        self.validation.validate(prepare, case)
    }

    /// Step 3, both halves, and the promise's way into the log.
    fn promise(&mut self, now: Timestamp, prepare: &Prepare<'_>, out: &mut Vec<Output>) {
        let phase = Phase::Prepared { durable: false };
        let slot = self.table.insert(prepare.txn, prepare.begin, prepare.commit, phase);
        self.table.fill(slot, prepare.single, prepare.participants, prepare.writes);
        self.validation.promise(slot, prepare);
        self.table.record_mut(slot).found = prepare.found();
        if !prepare.single {
            self.table.join_timeouts(slot, now.saturating_add(self.config.decision_timeout));
        }
        self.log_promise(slot, prepare, out);
    }

    fn log_promise(&mut self, slot: Holder, prepare: &Prepare<'_>, out: &mut Vec<Output>) {
        let asker = Asker { token: prepare.token, commit: prepare.commit };
        let pending = Pending::Promise { record: self.table.handle(slot), asker, txn: prepare.txn };
        let Prepare { txn, begin, commit, single, .. } = *prepare;
        if bugs().vote_before_durable {
            self.vote(prepare, Vote::Yes, out);
        }
        let found = prepare.found();
        self.log(LogIntent::Prepare { txn, begin, commit, single, found }, pending, out);
    }

    /// Records a no, durably before it is sent. A strict read leaves no trace: its no binds nobody.
    fn refuse(
        &mut self,
        prepare: &Prepare<'_>,
        reason: AbortReason,
        leaves_no_trace: bool,
        out: &mut Vec<Output>,
    ) {
        if leaves_no_trace {
            return self.vote(prepare, Vote::No(reason), out);
        }
        let Prepare { txn, begin, commit, token, .. } = *prepare;
        let failed = reason.kind == AbortKind::Condition;
        let (found, met) = if failed {
            (prepare.found(), reason.at)
        } else {
            (PreviousFound::Unasked, Timestamp::ZERO)
        };
        let fate = Fate::Aborted(reason);
        self.keep(Kept { txn, begin, fate, found, durable: false, asked: false, next: u32::MAX });
        let then = AfterAbort::Vote { asker: Asker { token, commit }, reason };
        let (origin, pending) = (DecisionOrigin::Participant, Pending::Aborted { txn, then });
        let (outcome, abort) = (TxnOutcome::Aborted, Some(reason.kind));
        self.log(
            LogIntent::Decision { txn, begin, outcome, abort, found, met, origin },
            pending,
            out,
        );
    }

    /// A duplicate gets the same answer again.
    fn vote_as_kept(&mut self, index: u32, prepare: &Prepare<'_>, out: &mut Vec<Output>) {
        let kept = self.table.kept_mut(index);
        if !kept.durable {
            kept.asked = true;
            return self.park_asking(prepare.txn, prepare.token, out);
        }
        let (begin, found) = (kept.begin, kept.found);
        match kept.fate {
            Fate::Aborted(reason) if reason.kind == AbortKind::Condition => {
                // The version that the condition met is the youngest up to here: reading it raised
                // its mark.
                self.repeat(prepare, Vote::No(reason), found, begin.max(reason.at), out);
            }
            Fate::Aborted(reason) => self.vote(prepare, Vote::No(reason), out),
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
        if prepare.commit < at {
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
        vote: Vote,
        found: PreviousFound,
        at: Timestamp,
        out: &mut Vec<Output>,
    ) {
        let (token, txn, commit) = (prepare.token, prepare.txn, prepare.commit);
        match found {
            PreviousFound::Unasked => self.vote(prepare, vote, out),
            _ if self.is_acked(txn) => {
                out.push(Output::Refuse { token, refusal: Refusal::Finished })
            }
            found => {
                let present = found == PreviousFound::Present;
                out.push(Output::Repeated { token, txn, commit, vote, at, present });
            }
        }
    }

    /// A prepare of a transaction that is in flight: a duplicate, an old one, or the next round.
    fn prepare_again(
        &mut self,
        now: Timestamp,
        slot: Holder,
        prepare: &Prepare<'_>,
        out: &mut Vec<Output>,
    ) {
        if bugs().revalidate_duplicates
            && self.table.record(slot).phase == (Phase::Prepared { durable: true })
            && self.table.record(slot).commit == prepare.commit
        {
            return self.validate_again(now, slot, prepare, out);
        }
        let record = self.table.record_mut(slot);
        let (token, commit) = (prepare.token, prepare.commit);
        match record.phase {
            Phase::Committed { at, logged: true, .. } => {
                let found = record.found;
                return self.vote_as_committed(prepare, at, found, out);
            }
            Phase::Prepared { durable: true }
                if commit == record.commit && commit == record.seen =>
            {
                return self.vote(prepare, Vote::Yes, out);
            }
            Phase::Prepared { .. } if commit < record.seen => {
                return out.push(Output::Ignored { token });
            }
            Phase::Prepared { .. }
                if commit > record.commit && record.moving_to != Some(commit) && !record.single => {
            }
            Phase::Prepared { .. } | Phase::Aborting | Phase::Committed { .. } => {
                record.asked = true;
                return self.park_asking(prepare.txn, token, out);
            }
        }
        if record.frozen {
            return out.push(Output::Refuse { token, refusal: Refusal::Terminating });
        }
        if !record.writes.iter().copied().eq(prepare.writes.iter().map(Written::of)) {
            return out.push(Output::Refuse { token, refusal: Refusal::Contradiction });
        }
        if let Err(refusal) = self.within_lead(now, commit) {
            return out.push(Output::Refuse { token, refusal });
        }
        if commit >= self.bound.durable {
            return self.park_behind_bound(now, token, prepare.wait, commit, out);
        }
        self.next_round(now, slot, prepare, out);
    }

    /// Validates at a later timestamp; the promise that is there holds until the new one is
    /// durable.
    fn next_round(
        &mut self,
        now: Timestamp,
        slot: Holder,
        prepare: &Prepare<'_>,
        out: &mut Vec<Output>,
    ) {
        self.table.record_mut(slot).seen = prepare.commit;
        if bugs().drop_old_promise {
            self.release_keys(slot, None);
        }
        match self.validate(now, prepare, slot) {
            Verdict::Promise => {
                self.validation.promise(slot, prepare);
                self.table.record_mut(slot).moving_to = Some(prepare.commit);
                self.log_promise(slot, prepare, out);
            }
            Verdict::Later(at) if self.config.vote_later => {
                self.vote(prepare, Vote::Later(at), out)
            }
            Verdict::Later(at) => {
                self.abort_promise(
                    slot,
                    prepare,
                    AbortReason { at, ..AbortReason::of(AbortKind::Timestamp) },
                    out,
                );
            }
            Verdict::Wait(until, reason) => match self.may_wait_for(now, until, prepare) {
                Some(deadline) => self.park_until(prepare.token, until, deadline, out),
                None => self.abort_promise(slot, prepare, reason, out),
            },
            Verdict::Again(reason) | Verdict::No(reason) => {
                self.abort_promise(slot, prepare, reason, out)
            }
        }
    }

    /// Planted: a duplicate is judged by marks that have moved on since, its own among them.
    fn validate_again(
        &mut self,
        now: Timestamp,
        slot: Holder,
        prepare: &Prepare<'_>,
        out: &mut Vec<Output>,
    ) {
        match self.validate(now, prepare, slot) {
            Verdict::Promise => self.vote(prepare, Vote::Yes, out),
            Verdict::Later(at) => {
                self.abort_promise(
                    slot,
                    prepare,
                    AbortReason { at, ..AbortReason::of(AbortKind::Timestamp) },
                    out,
                );
            }
            Verdict::Wait(_, reason) | Verdict::Again(reason) | Verdict::No(reason) => {
                self.abort_promise(slot, prepare, reason, out);
            }
        }
    }

    /// A no after an earlier yes: the promise holds until the no is durable, or a crash in between
    /// would free the keys of a transaction that recovery finds prepared.
    fn abort_promise(
        &mut self,
        slot: Holder,
        prepare: &Prepare<'_>,
        reason: AbortReason,
        out: &mut Vec<Output>,
    ) {
        let asker = Asker { token: prepare.token, commit: prepare.commit };
        self.table.record_mut(slot).phase = Phase::Aborting;
        self.table.leave_timeouts(slot);
        let pending = Pending::AbortedPromise {
            record: self.table.handle(slot),
            txn: prepare.txn,
            asker,
            reason,
        };
        let (origin, abort) = (DecisionOrigin::Participant, Some(reason.kind));
        self.log_decision(
            prepare.txn,
            prepare.begin,
            TxnOutcome::Aborted,
            abort,
            origin,
            pending,
            out,
        );
    }

    /// A committed transaction whose prepare never arrived brings its write set: applied without
    /// validation, since it *is* committed, and recorded with its decision.
    pub(super) fn decided_write_set(
        &mut self,
        now: Timestamp,
        prepare: &Prepare<'_>,
        out: &mut Vec<Output>,
    ) {
        let outcome = TxnOutcome::Committed(prepare.commit);
        if self.table.find(prepare.txn).is_some() || self.is_acked(prepare.txn) {
            return self.decide(
                now,
                Some(prepare.token),
                prepare.txn,
                outcome,
                DecisionOrigin::Client,
                out,
            );
        }
        // As for a decision alone: below the watermark this repeats what was carried out. Nothing
        // may be written there any more, or what was deleted since would come back.
        if self.was_carried_out(prepare.commit) && !bugs().write_below_watermark {
            return out.push(Output::AckDecision { token: prepare.token, txn: prepare.txn });
        }
        if !self.know_client(now, prepare.txn.client, prepare.begin) {
            return out.push(Output::Refuse { token: prepare.token, refusal: Refusal::Busy });
        }
        let Prepare { txn, begin, commit, single, token, .. } = *prepare;
        let slot = self.table.insert(txn, begin, commit, Phase::Prepared { durable: false });
        self.adopt(slot, single, prepare.participants, prepare.writes);
        let found = PreviousFound::Unasked;
        self.log(LogIntent::Prepare { txn, begin, commit, single, found }, Pending::Nothing, out);
        self.decide(now, Some(token), txn, outcome, DecisionOrigin::Client, out);
    }

    /// Fills a record with what it writes, and holds the keys whoever else does.
    pub(super) fn adopt(
        &mut self,
        slot: Holder,
        single: bool,
        participants: &[ShardId],
        writes: &[WriteItem],
    ) {
        self.table.fill(slot, single, participants, writes);
        self.validation.restore(slot, writes);
    }
}
