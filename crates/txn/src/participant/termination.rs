//! Bringing transactions to their end when their client is silent (MILANA §4.5, and what mends it).
//!
//! ```text
//!   decision timeout ──▶ lowest participant? ──yes──▶ Collecting ──answers──▶ decided, told to all
//!                              └──no──▶ AskedLowest ──still nothing──▶ Collecting
//!                                            └──it knows the outcome──▶ decided, told to all
//!   watermark passes an unacknowledged commit ──▶ Spreading ──all have acknowledged──▶ forgotten
//! ```
//!
//! *Answering freezes*: who says "prepared at t" promises no later timestamp from then on (a
//! promise that was recovered from the log is always frozen); every other state becomes a durable
//! abort before it is told. So every backup coordinator sees the same states, and the outcome is
//! the same whoever acts: any decision seen → that; all prepared at the same timestamp → commit;
//! anything else → abort. Answers of shards that take no part are not counted.

use core::time::Duration;

use timestone_types::{AbortKind, ShardId, Timestamp, TxnId, TxnOutcome};

use super::input::{DecisionOrigin, FrozenState, Token, TxnStatus};
use super::output::Output;
use super::table::{Fate, Holder, Phase, Place};
use super::waiting::Timer;
use super::{AfterAbort, Participant};
use crate::Refusal;
use crate::limits::MAX_TERMINATION_BACKOFF;
use crate::planted::bugs;
use crate::validation::Validation;

/// How far the effort has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    AskedLowest,
    Collecting,
    Spreading(TxnOutcome),
}

/// The effort to end one transaction.
#[derive(Clone, Debug)]
pub(super) struct Resolution {
    begin: Timestamp,
    participants: Vec<ShardId>,
    /// Who has answered what; for `Spreading`, any answer is an acknowledgement.
    answers: Vec<Option<FrozenState>>,
    role: Role,
    pause: Duration,
}

impl<V: Validation> Participant<V> {
    /// The oldest promise has waited too long.
    pub(super) fn lose_patience(&mut self, now: Timestamp, slot: Holder, out: &mut Vec<Output>) {
        if !self.is_settled(slot) {
            return self
                .table
                .join_timeouts(slot, now.saturating_add(self.config.decision_timeout));
        }
        self.table.leave_timeouts(slot);
        let record = self.table.record(slot);
        let (txn, begin) = (record.txn, record.begin);
        match record.participants.lowest() {
            Some(lowest) if lowest != self.shard => {
                self.resolve_as(now, slot, Role::AskedLowest);
                out.push(Output::AskTerminate { to: lowest, txn, begin });
            }
            _ => self.collect(now, slot, out),
        }
    }

    /// Whether a promise stands that is durable, and neither being moved nor being taken back: only
    /// such a one may be told to anybody.
    fn is_settled(&self, slot: Holder) -> bool {
        let record = self.table.record(slot);
        record.phase == Phase::Prepared { durable: true } && record.moving_to.is_none()
    }

    fn resolve_as(&mut self, now: Timestamp, slot: Holder, role: Role) {
        let record = self.table.record(slot);
        let participants = record.participants.as_slice().to_vec();
        let pause = self.config.decision_timeout;
        let answers = vec![None; participants.len()];
        let (txn, begin) = (record.txn, record.begin);
        self.resolutions.insert(txn, Resolution { begin, participants, answers, role, pause });
        self.waiting.set_timer(now.saturating_add(pause), Timer::Resolution(txn));
    }

    /// Acts as backup coordinator: freezes its own promise, asks the others.
    fn collect(&mut self, now: Timestamp, slot: Holder, out: &mut Vec<Output>) {
        self.table.leave_timeouts(slot);
        let record = self.table.record_mut(slot);
        record.frozen = true;
        let (txn, own) = (record.txn, record.commit);
        self.resolve_as(now, slot, Role::Collecting);
        let Some(resolution) = self.resolutions.get_mut(&txn) else { return };
        for (index, &shard) in resolution.participants.iter().enumerate() {
            if shard == self.shard {
                resolution.answers[index] = Some(FrozenState::Prepared(own));
            } else {
                out.push(Output::AskFreeze { to: shard, txn, begin: resolution.begin });
            }
        }
        self.judge(now, txn, out);
    }

    /// The next attempt, after a longer and longer pause.
    pub(super) fn resolution_is_due(&mut self, now: Timestamp, txn: TxnId, out: &mut Vec<Output>) {
        let acked = self.is_acked(txn);
        let Some(resolution) = self.resolutions.get_mut(&txn) else { return };
        let (role, pause) = (resolution.role, resolution.pause);
        if role == Role::AskedLowest {
            match self.table.find(txn) {
                Some(Place::Flight(slot)) if self.is_settled(slot) => self.collect(now, slot, out),
                // Its client prepares it again, or was refused: it is looked at when that is
                // durable.
                Some(Place::Flight(_)) => {
                    self.waiting.set_timer(now.saturating_add(pause), Timer::Resolution(txn));
                }
                Some(Place::Kept(_)) | None => {
                    self.resolutions.remove(&txn);
                }
            }
            return;
        }
        let Some(resolution) = self.resolutions.get_mut(&txn) else { return };
        if acked && matches!(role, Role::Spreading(_)) {
            return self.forget_spread(txn);
        }
        resolution.pause = (resolution.pause * 2).min(MAX_TERMINATION_BACKOFF);
        self.waiting.set_timer(now.saturating_add(resolution.pause), Timer::Resolution(txn));
        for (&to, answer) in resolution.participants.iter().zip(&resolution.answers) {
            match role {
                _ if answer.is_some() => {}
                Role::Spreading(outcome) => out.push(Output::TellDecision { to, txn, outcome }),
                Role::Collecting | Role::AskedLowest => {
                    out.push(Output::AskFreeze { to, txn, begin: resolution.begin });
                }
            }
        }
    }

    /// A peer's state. It counts once, from participants only, and a promise may be replaced by the
    /// decision.
    pub(super) fn frozen(
        &mut self,
        now: Timestamp,
        from: ShardId,
        txn: TxnId,
        state: FrozenState,
        out: &mut Vec<Output>,
    ) {
        let ignores_known_ends = bugs().ignore_known_ends;
        let Some(resolution) = self.resolutions.get_mut(&txn) else { return };
        let counts = match resolution.role {
            Role::Collecting => true,
            // Whoever was asked to end the transaction knows how it ended.
            Role::AskedLowest => matches!(state, FrozenState::Decided(_)) && !ignores_known_ends,
            Role::Spreading(_) => false,
        };
        if !counts {
            return;
        }
        let Some(index) = resolution.participants.iter().position(|&one| one == from) else {
            return;
        };
        if state == FrozenState::Finished {
            return self.forget_finished(txn, out);
        }
        resolution.answers[index] = Some(state);
        self.judge(now, txn, out);
    }

    /// A peer knows that everybody has acknowledged the decision, this shard as well. It can have
    /// done so only before its last restart, and the record of it is gone: the promise is a
    /// leftover, what it wrote is in the store if it was committed.
    fn forget_finished(&mut self, txn: TxnId, out: &mut Vec<Output>) {
        let Some(Place::Flight(slot)) = self.table.find(txn) else { return };
        let record = self.table.record(slot);
        if !record.recovered
            || record.phase != (Phase::Prepared { durable: true })
            || bugs().wait_for_finished
        {
            return;
        }
        self.resolutions.remove(&txn);
        self.let_go(slot, None, out);
        self.wake_asking_record(slot, out);
        out.push(Output::ForgetPayload { txn });
        self.table.remove(slot);
    }

    fn judge(&mut self, now: Timestamp, txn: TxnId, out: &mut Vec<Output>) {
        let Some(resolution) = self.resolutions.get(&txn) else { return };
        let decided = resolution.answers.iter().find_map(|answer| match answer {
            Some(FrozenState::Decided(outcome)) => Some(*outcome),
            _ => None,
        });
        let outcome = match decided {
            Some(outcome) => outcome,
            None if resolution.answers.iter().any(Option::is_none) => return,
            None => match resolution.answers.first() {
                Some(Some(FrozenState::Prepared(at)))
                    if bugs().terminate_at_own_timestamp
                        || resolution
                            .answers
                            .iter()
                            .all(|one| *one == Some(FrozenState::Prepared(*at))) =>
                {
                    TxnOutcome::Committed(*at)
                }
                _ => TxnOutcome::Aborted,
            },
        };
        let others: Vec<ShardId> =
            resolution.participants.iter().copied().filter(|&one| one != self.shard).collect();
        self.decide(now, None, txn, outcome, DecisionOrigin::Termination, out);
        out.extend(others.into_iter().map(|to| Output::TellDecision { to, txn, outcome }));
    }

    /// A question from a backup coordinator. Every state is durable before it is told, and told
    /// states do not change.
    pub(super) fn freeze(
        &mut self,
        now: Timestamp,
        token: Token,
        txn: TxnId,
        begin: Timestamp,
        out: &mut Vec<Output>,
    ) {
        let keeps_moving = bugs().answer_without_freezing;
        let answer = |state| Output::FreezeAnswer { token, txn, state };
        match self.table.find(txn) {
            Some(Place::Kept(index)) => {
                let kept = self.table.kept_mut(index);
                if kept.durable {
                    return out.push(answer(FrozenState::Decided(kept.fate.outcome())));
                }
                kept.asked = true;
            }
            Some(Place::Flight(slot)) => {
                let record = self.table.record_mut(slot);
                match record.phase {
                    Phase::Prepared { durable: true }
                        if record.moving_to.is_none() && !record.single =>
                    {
                        record.frozen |= !keeps_moving;
                        return out.push(answer(FrozenState::Prepared(record.commit)));
                    }
                    Phase::Committed { at, logged: true, .. } => {
                        return out.push(answer(FrozenState::Decided(TxnOutcome::Committed(at))));
                    }
                    Phase::Prepared { .. } | Phase::Committed { .. } | Phase::Aborting => {
                        record.asked = true
                    }
                }
            }
            None if self.is_acked(txn) => return out.push(answer(FrozenState::Finished)),
            // Below the watermark no prepare is let in any more: aborted, and no record is needed
            // to keep it so, unless a commit would be carried out there all the same.
            None if begin < self.watermark && !self.is_uncertain_after(begin) => {
                return out.push(answer(FrozenState::Decided(TxnOutcome::Aborted)));
            }
            None if keeps_moving => {
                return out.push(answer(FrozenState::Decided(TxnOutcome::Aborted)));
            }
            None => {
                let origin = DecisionOrigin::Participant;
                if !self.abort_unseen(
                    now,
                    txn,
                    begin,
                    AbortKind::Terminated,
                    origin,
                    AfterAbort::Nothing,
                    out,
                ) {
                    return out.push(Output::Refuse { token, refusal: Refusal::Busy });
                }
                self.mark_asked(txn);
            }
        }
        self.park_asking(txn, token, out);
    }

    /// A client, or a peer that found this shard to be the lowest, asks for the end of a
    /// transaction.
    pub(super) fn terminate(
        &mut self,
        now: Timestamp,
        token: Token,
        txn: TxnId,
        begin: Timestamp,
        participants: &[ShardId],
        out: &mut Vec<Output>,
    ) {
        if !participants.contains(&self.shard) {
            return out.push(Output::Refuse { token, refusal: Refusal::Contradiction });
        }
        match self.table.find(txn) {
            Some(Place::Kept(_)) => {}
            Some(Place::Flight(slot)) => {
                let collecting =
                    self.resolutions.get(&txn).is_some_and(|one| one.role == Role::Collecting);
                if self.is_settled(slot) && !self.table.record(slot).single && !collecting {
                    self.collect(now, slot, out);
                }
            }
            None if self.is_acked(txn) || begin < self.watermark => {
                return out.push(Output::StatusIs { token, txn, status: TxnStatus::Unknown });
            }
            None => {
                let origin = DecisionOrigin::Participant;
                if !self.abort_unseen(
                    now,
                    txn,
                    begin,
                    AbortKind::Terminated,
                    origin,
                    AfterAbort::Nothing,
                    out,
                ) {
                    return out.push(Output::Refuse { token, refusal: Refusal::Busy });
                }
                let others = participants.iter().copied().filter(|&one| one != self.shard);
                out.extend(others.map(|to| Output::TellDecision {
                    to,
                    txn,
                    outcome: TxnOutcome::Aborted,
                }));
            }
        }
        match self.status_of(txn) {
            (status @ TxnStatus::Decided(_), true) => {
                out.push(Output::StatusIs { token, txn, status })
            }
            _ => {
                self.mark_asked(txn);
                self.park_asking(txn, token, out);
            }
        }
    }

    /// What is known, and whether it is durable.
    pub(super) fn status_of(&self, txn: TxnId) -> (TxnStatus, bool) {
        match self.table.find(txn) {
            None => (TxnStatus::Unknown, true),
            Some(Place::Kept(index)) => {
                let kept = self.table.kept(index);
                (TxnStatus::Decided(kept.fate.outcome()), kept.durable)
            }
            Some(Place::Flight(slot)) => {
                let record = self.table.record(slot);
                match record.phase {
                    Phase::Prepared { durable } => (TxnStatus::Prepared(record.commit), durable),
                    Phase::Aborting => (TxnStatus::Prepared(record.commit), true),
                    Phase::Committed { at, logged, .. } => {
                        (TxnStatus::Decided(TxnOutcome::Committed(at)), logged)
                    }
                }
            }
        }
    }

    fn mark_asked(&mut self, txn: TxnId) {
        match self.table.find(txn) {
            Some(Place::Kept(index)) => self.table.kept_mut(index).asked = true,
            Some(Place::Flight(slot)) => self.table.record_mut(slot).asked = true,
            None => {}
        }
    }

    /// The client of a commit never said that everybody has acknowledged, and the watermark has
    /// passed it: this shard tells the others itself, and forgets when they have it.
    pub(super) fn spread(&mut self, now: Timestamp, index: u32, out: &mut Vec<Output>) -> bool {
        let kept = self.table.kept(index);
        let (txn, begin, outcome) = (kept.txn, kept.begin, kept.fate.outcome());
        let Fate::Committed { participants, .. } = &kept.fate else { return false };
        let participants: Vec<ShardId> =
            participants.as_slice().iter().copied().filter(|&one| one != self.shard).collect();
        if participants.is_empty() {
            return false;
        }
        let pause = self.config.decision_timeout;
        out.extend(participants.iter().map(|&to| Output::TellDecision { to, txn, outcome }));
        let answers = vec![None; participants.len()];
        let role = Role::Spreading(outcome);
        self.resolutions.insert(txn, Resolution { begin, participants, answers, role, pause });
        self.waiting.set_timer(now.saturating_add(pause), Timer::Resolution(txn));
        true
    }

    /// Whether commits below the watermark are being told to participants that have not
    /// acknowledged them. Until they have, the records of these commits must survive a crash, or be
    /// carried forward ([`Self::kept_outcomes`]).
    #[must_use]
    pub fn is_spreading(&self) -> bool {
        self.resolutions.values().any(|one| matches!(one.role, Role::Spreading(_)))
    }

    /// A peer has the decision.
    pub(super) fn decision_acked(&mut self, from: ShardId, txn: TxnId) {
        let Some(resolution) = self.resolutions.get_mut(&txn) else { return };
        let Role::Spreading(outcome) = resolution.role else { return };
        let Some(index) = resolution.participants.iter().position(|&one| one == from) else {
            return;
        };
        resolution.answers[index] = Some(FrozenState::Decided(outcome));
        if resolution.answers.iter().all(Option::is_some) {
            self.forget_spread(txn);
        }
    }

    /// Before the end of a run without a log: all commits over several shards are told to the
    /// others, which would ask in vain later.
    pub(super) fn spread_all(&mut self, now: Timestamp, out: &mut Vec<Output>) {
        self.is_closing = true;
        let mut kept: Vec<(TxnId, u32)> = self.table.places().filter_map(kept_place).collect();
        kept.sort_unstable();
        for (txn, index) in kept {
            if self.table.kept(index).durable && !self.resolutions.contains_key(&txn) {
                self.spread(now, index, out);
            }
        }
    }

    fn forget_spread(&mut self, txn: TxnId) {
        self.resolutions.remove(&txn);
        let Some(Place::Kept(index)) = self.table.find(txn) else { return };
        if !self.is_closing {
            return self.table.forget(index);
        }
        // The others tell this shard in turn, and must be answered; nobody has to be told any more.
        if let Fate::Committed { participants, .. } = &mut self.table.kept_mut(index).fate {
            *participants = crate::ShardList::default();
        }
    }
}

const fn kept_place((txn, place): (TxnId, Place)) -> Option<(TxnId, u32)> {
    match place {
        Place::Kept(index) => Some((txn, index)),
        Place::Flight(_) => None,
    }
}
