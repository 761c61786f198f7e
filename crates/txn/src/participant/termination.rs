//! Bringing transactions to their end when their client is silent (MILANA §4.5, and what mends it).
//!
//! ```text
//!   decision timeout ──▶ lowest participant? ──yes──▶ Collecting ──answers──▶ decided, told to all
//!                              └──no──▶ AskedLowest ──still nothing──▶ Collecting
//!                                            └──it knows the outcome──▶ decided, told to all
//!   an abort: Ending ──the record counts──▶ keys are free, told to all
//! ```
//!
//! *Answering freezes*: who says "prepared at t" promises no later timestamp from then on (a
//! promise that was recovered from the log is always frozen); every other state becomes a durable
//! abort before it is told. So every backup coordinator sees the same states, and the outcome is
//! the same whoever acts: any decision seen → that; all prepared at the same timestamp → commit;
//! anything else → abort. Answers of shards that take no part are not counted.
//!
//! A shard that has *forgotten* the transaction says so: its begin lies below the watermark, or in an earlier
//! run, and the client has not said since what it has acknowledged. Its commit would have been acknowledged by
//! everybody who counts, so whoever is still prepared gives up. It may be a primary that was
//! deposed, though, whose successor has committed. So an abort is recorded first, and the promise
//! holds, and nobody is told, until that record counts: a deposed primary's never does (rule P15).
//!
//! Invariant: an effort is about a transaction in flight, or whose abort is on its way to the log;
//! it ends when that is decided or taken back ([`Termination::ended`]), or recorded
//! ([`Termination::abort_is_recorded`]).

use core::time::Duration;
use std::collections::BTreeMap;

use timestone_types::{AbortKind, ShardId, Timestamp, TxnId, TxnOutcome, is_planted};

use super::appended::AfterAbort;
use super::decisions::{Decision, Unseen};
use super::horizon::Watermark;
use super::input::{DecidedBy, FrozenState, Token, TxnStatus};
use super::life::Lifecycle;
use super::output::Output;
use super::table::{Holder, Phase, TxnPlace};
use super::transactions::Knowledge;
use super::waiting::Timer;
use crate::Refusal;
use crate::limits::MAX_TERMINATION_BACKOFF;
use crate::validation::Validation;

/// How far the effort has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    AskedLowest,
    Collecting,
    /// It is aborted, which the others are told when it is recorded.
    Ending,
}

/// The effort to end one transaction.
#[derive(Clone, Debug)]
struct Effort {
    begin: Timestamp,
    participants: Vec<ShardId>,
    /// Who has answered what.
    answers: Vec<Option<FrozenState>>,
    role: Role,
    pause: Duration,
}

impl Effort {
    /// About a transaction that was not seen here, and whose abort is on its way to the log.
    fn ending(begin: Timestamp, participants: &[ShardId]) -> Self {
        let (answers, pause) = (vec![None; participants.len()], Duration::ZERO);
        let participants = participants.to_vec();
        Self { begin, participants, answers, role: Role::Ending, pause }
    }

    /// Tells the other participants.
    fn tell(&self, own: ShardId, txn: TxnId, outcome: TxnOutcome, out: &mut Vec<Output>) {
        let others = self.participants.iter().copied().filter(|&one| one != own);
        out.extend(others.map(|to| Output::TellDecision { to, txn, outcome }));
    }
}

/// A request for the end of a transaction. See [`super::Input::Terminate`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) token: Token,
    pub(super) txn: TxnId,
    pub(super) begin: Timestamp,
    pub(super) participants: &'a [ShardId],
}

/// See the module.
#[derive(Debug)]
pub(super) struct Termination {
    shard: ShardId,
    efforts: BTreeMap<TxnId, Effort>,
}

impl Termination {
    pub(super) const fn new(shard: ShardId) -> Self {
        Self { shard, efforts: BTreeMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.efforts.len()
    }

    /// A transaction is decided, or its promise taken back.
    pub(super) fn ended(&mut self, txn: TxnId) {
        let ended = self.efforts.remove(&txn);
        let is_sound = |effort: Effort| effort.answers.len() == effort.participants.len();
        debug_assert!(ended.is_none_or(is_sound), "each has its answer");
    }

    /// The abort of a transaction counts: the others are told, if that was waited for.
    pub(super) fn abort_is_recorded(&mut self, txn: TxnId, out: &mut Vec<Output>) {
        if let Some(effort) = self.efforts.remove(&txn)
            && effort.role == Role::Ending
        {
            effort.tell(self.shard, txn, TxnOutcome::Aborted, out);
        }
    }

    /// The oldest promise has waited too long.
    pub(super) fn time_out<V: Validation>(
        &mut self,
        now: Timestamp,
        life: &mut Lifecycle<V>,
        slot: Holder,
        out: &mut Vec<Output>,
    ) {
        let table = &mut life.txns.table;
        debug_assert!(!table.record(slot).single, "a lone participant decides by its log");
        table.leave_timeouts(slot);
        if !life.txns.is_settled(slot) {
            let again = now.saturating_add(life.config.decision_timeout);
            return life.txns.table.join_timeouts(slot, again);
        }
        let record = life.txns.table.record(slot);
        let (txn, begin, commit) = (record.txn, record.begin, record.commit);
        match record.participants.lowest() {
            Some(lowest) if lowest != self.shard => {
                self.begin(now, life, slot, Role::AskedLowest);
                out.push(Output::AskTerminate { to: lowest, txn, begin, commit });
            }
            _ => self.collect(now, life, slot, out),
        }
    }

    fn begin<V: Validation>(
        &mut self,
        now: Timestamp,
        life: &mut Lifecycle<V>,
        slot: Holder,
        role: Role,
    ) {
        let record = life.txns.table.record(slot);
        assert!(
            matches!(record.phase, Phase::Prepared { .. }),
            "only a promise is brought to its end"
        );
        let participants = record.participants.as_slice().to_vec();
        let pause = life.config.decision_timeout;
        let answers = vec![None; participants.len()];
        let (txn, begin) = (record.txn, record.begin);
        self.efforts.insert(txn, Effort { begin, participants, answers, role, pause });
        life.waiting.set_timer(now.saturating_add(pause), Timer::Effort(txn));
    }

    /// Acts as backup coordinator: freezes its own promise, asks the others.
    fn collect<V: Validation>(
        &mut self,
        now: Timestamp,
        life: &mut Lifecycle<V>,
        slot: Holder,
        out: &mut Vec<Output>,
    ) {
        assert!(life.txns.is_settled(slot), "what is told of a promise does not change");
        life.txns.table.leave_timeouts(slot);
        let record = life.txns.table.record_mut(slot);
        record.frozen = true;
        let (txn, own) = (record.txn, record.commit);
        self.begin(now, life, slot, Role::Collecting);
        let Some(effort) = self.efforts.get_mut(&txn) else { return };
        for (index, &shard) in effort.participants.iter().enumerate() {
            if shard == self.shard {
                effort.answers[index] = Some(FrozenState::Prepared(own));
            } else {
                out.push(Output::AskFreeze { to: shard, txn, begin: effort.begin });
            }
        }
        self.judge(life, txn, out);
    }

    /// The next attempt, after a longer and longer pause; false if there is no effort.
    pub(super) fn try_again<V: Validation>(
        &mut self,
        now: Timestamp,
        life: &mut Lifecycle<V>,
        txn: TxnId,
        out: &mut Vec<Output>,
    ) -> bool {
        let Some(effort) = self.efforts.get_mut(&txn) else { return false };
        if effort.role == Role::Ending {
            return true;
        }
        if effort.role == Role::AskedLowest {
            let pause = effort.pause;
            match life.txns.table.find(txn) {
                Some(TxnPlace::Flight(slot)) if life.txns.is_settled(slot) => {
                    self.collect(now, life, slot, out)
                }
                // Its client prepares it again, or was refused: it is looked at when that is
                // durable.
                Some(TxnPlace::Flight(_)) => {
                    life.waiting.set_timer(now.saturating_add(pause), Timer::Effort(txn));
                }
                Some(TxnPlace::Kept(_)) | None => self.ended(txn),
            }
            return true;
        }
        assert!(effort.answers.len() == effort.participants.len(), "each has its answer");
        effort.pause = (effort.pause * 2).min(MAX_TERMINATION_BACKOFF);
        life.waiting.set_timer(now.saturating_add(effort.pause), Timer::Effort(txn));
        for (&to, answer) in effort.participants.iter().zip(&effort.answers) {
            if answer.is_none() {
                out.push(Output::AskFreeze { to, txn, begin: effort.begin });
            }
        }
        true
    }

    /// A peer's state. It counts once, from participants only, and a promise may be replaced by the
    /// decision.
    pub(super) fn frozen<V: Validation>(
        &mut self,
        life: &mut Lifecycle<V>,
        from: ShardId,
        txn: TxnId,
        state: FrozenState,
        out: &mut Vec<Output>,
    ) {
        let Some(effort) = self.efforts.get_mut(&txn) else { return };
        let counts = match effort.role {
            Role::Collecting => true,
            // Whoever was asked to end the transaction knows how it ended.
            Role::AskedLowest => {
                matches!(state, FrozenState::Decided(_)) && !is_planted!(IgnoredEnds)
            }
            Role::Ending => false,
        };
        if !counts {
            return;
        }
        let Some(index) = effort.participants.iter().position(|&one| one == from) else { return };
        debug_assert!(effort.answers.len() == effort.participants.len(), "each has its answer");
        match state {
            FrozenState::Finished if !life.config.has_replicas => {
                self.forget_finished(life, txn, out)
            }
            FrozenState::Forgotten if is_planted!(TakesForgottenForAborted) => {
                self.decide_now(life, txn, TxnOutcome::Aborted, out)
            }
            FrozenState::Forgotten => match life.txns.table.find(txn) {
                Some(TxnPlace::Flight(slot)) if life.txns.may_be_leftover(slot) => {
                    self.drop_leftover(life, slot, out);
                }
                _ => self.give_up(life, txn, out),
            },
            FrozenState::Finished => self.give_up(life, txn, out),
            FrozenState::Prepared(_) | FrozenState::Decided(_) => {
                effort.answers[index] = Some(state);
                self.judge(life, txn, out);
            }
        }
    }

    /// A peer knows that everybody has acknowledged the decision, this shard as well. It can have
    /// done so only before its last restart, and the record of it is gone: the promise is a
    /// leftover, what it wrote is in the store if it was committed.
    fn forget_finished<V: Validation>(
        &mut self,
        life: &mut Lifecycle<V>,
        txn: TxnId,
        out: &mut Vec<Output>,
    ) {
        let Some(TxnPlace::Flight(slot)) = life.txns.table.find(txn) else { return };
        let record = life.txns.table.record(slot);
        if !record.recovered
            || record.phase != (Phase::Prepared { durable: true })
            || is_planted!(RevivedPromise | WaitsForFinished)
        {
            return;
        }
        self.ended(txn);
        life.forget_promise(slot, out);
        debug_assert!(life.txns.table.find(txn).is_none(), "nothing is left of it");
    }

    fn judge<V: Validation>(&mut self, life: &mut Lifecycle<V>, txn: TxnId, out: &mut Vec<Output>) {
        let Some(effort) = self.efforts.get(&txn) else { return };
        let Some(outcome) = outcome_of(&effort.answers) else { return };
        debug_assert!(
            effort.answers.iter().all(Option::is_some)
                || effort
                    .answers
                    .iter()
                    .flatten()
                    .any(|answer| matches!(answer, FrozenState::Decided(_))),
            "all have answered, or one knows the end"
        );
        match outcome {
            TxnOutcome::Committed(_) => self.decide_now(life, txn, outcome, out),
            TxnOutcome::Aborted => self.give_up(life, txn, out),
        }
    }

    /// Decides, and tells the others at once: that rests on what counts already.
    fn decide_now<V: Validation>(
        &mut self,
        life: &mut Lifecycle<V>,
        txn: TxnId,
        outcome: TxnOutcome,
        out: &mut Vec<Output>,
    ) {
        let Some(effort) = self.efforts.remove(&txn) else { return };
        debug_assert!(effort.role != Role::Ending, "an end is on its way once");
        if let Some(place) = life.txns.table.find(txn) {
            let decided_by = DecidedBy::Termination;
            life.decide(place, Decision { token: None, txn, outcome, decided_by }, out);
        }
        effort.tell(self.shard, txn, outcome, out);
    }

    /// It is aborted. The promise holds until that counts, and nobody is told before: this primary
    /// may have been deposed, and its successor have committed.
    fn give_up<V: Validation>(
        &mut self,
        life: &mut Lifecycle<V>,
        txn: TxnId,
        out: &mut Vec<Output>,
    ) {
        let Some(TxnPlace::Flight(slot)) = life.txns.table.find(txn) else { return };
        if !matches!(life.txns.table.record(slot).phase, Phase::Prepared { .. }) {
            return;
        }
        let Some(effort) = self.efforts.get_mut(&txn) else { return };
        effort.role = Role::Ending;
        life.give_up(slot, AbortKind::Terminated, out);
    }

    /// A promise of an earlier run that may have been carried out, and that the others have forgotten. It
    /// ends here without an outcome, and each of the others ends its own.
    fn drop_leftover<V: Validation>(
        &mut self,
        life: &mut Lifecycle<V>,
        slot: Holder,
        out: &mut Vec<Output>,
    ) {
        let record = life.txns.table.record(slot);
        if !matches!(record.phase, Phase::Prepared { .. }) {
            return;
        }
        self.ended(record.txn);
        life.give_up(slot, AbortKind::TooOld, out);
    }

    /// A question from a backup coordinator. Every state is durable before it is told, and told
    /// states do not change.
    pub(super) fn freeze<V: Validation>(
        &self,
        now: Timestamp,
        life: &mut Lifecycle<V>,
        watermark: &Watermark,
        (token, txn, begin): (Token, TxnId, Timestamp),
        out: &mut Vec<Output>,
    ) {
        let keeps_moving = is_planted!(NoFreeze);
        let answer = |state| Output::FreezeAnswer { token, txn, state };
        match life.txns.table.find(txn) {
            Some(TxnPlace::Kept(index)) => {
                let kept = life.txns.table.kept_mut(index);
                if kept.durable && kept.fate.is_forgotten() {
                    return out.push(answer(FrozenState::Forgotten));
                }
                if kept.durable {
                    return out.push(answer(FrozenState::Decided(kept.fate.outcome())));
                }
                kept.asked = true;
            }
            Some(TxnPlace::Flight(slot)) => {
                let record = life.txns.table.record_mut(slot);
                match record.phase {
                    Phase::Prepared { durable: true }
                        if record.moves.to.is_none() && !record.single =>
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
            None if life.txns.is_acked(txn) => return out.push(answer(FrozenState::Finished)),
            None if is_planted!(SaysNothingOfForgotten) && begin < watermark.durable() => {
                return out.push(Output::Ignored { token });
            }
            // Below the watermark no prepare is let in any more, unless a commit would be carried
            // out there all the same. What became of it is not known. It may have been committed:
            // then everybody has acknowledged that.
            None if begin < watermark.durable() && !watermark.is_uncertain_after(begin) => {
                return out.push(answer(FrozenState::Forgotten));
            }
            None if keeps_moving => {
                return out.push(answer(FrozenState::Decided(TxnOutcome::Aborted)));
            }
            None => {
                // It is kept out from now on, either way.
                let is_forgotten = life.txns.may_be_forgotten(txn, begin);
                let kind = if is_forgotten { AbortKind::TooOld } else { AbortKind::Terminated };
                if !life.abort_unseen(now, watermark, unseen(txn, begin, kind), out) {
                    return out.push(Output::Refuse { token, refusal: Refusal::Busy });
                }
                life.txns.note_asked(txn);
            }
        }
        debug_assert!(
            life.txns.known(txn) == Knowledge::Perhaps,
            "what is durable is told at once"
        );
        life.park_asking(txn, token, out);
    }

    /// A client, or a peer that found this shard to be the lowest, asks for the end of a
    /// transaction.
    pub(super) fn terminate<V: Validation>(
        &mut self,
        now: Timestamp,
        life: &mut Lifecycle<V>,
        watermark: &Watermark,
        ask: Ask<'_>,
        out: &mut Vec<Output>,
    ) {
        let Ask { token, txn, begin, participants } = ask;
        debug_assert!(watermark.durable() <= watermark.pledged());
        if !participants.contains(&self.shard) {
            return out.push(Output::Refuse { token, refusal: Refusal::Contradiction });
        }
        match life.txns.table.find(txn) {
            Some(TxnPlace::Kept(_)) => {}
            Some(TxnPlace::Flight(slot)) => {
                let collects = self.efforts.get(&txn).is_some_and(|e| e.role == Role::Collecting);
                if life.txns.is_settled(slot) && !life.txns.table.record(slot).single && !collects {
                    self.collect(now, life, slot, out);
                }
            }
            None if life.txns.is_acked(txn)
                || begin < watermark.durable()
                || life.txns.may_be_forgotten(txn, begin) =>
            {
                return out.push(Output::StatusIs { token, txn, status: TxnStatus::Unknown });
            }
            None => {
                let unseen = unseen(txn, begin, AbortKind::Terminated);
                if !life.abort_unseen(now, watermark, unseen, out) {
                    return out.push(Output::Refuse { token, refusal: Refusal::Busy });
                }
                self.efforts.insert(txn, Effort::ending(begin, participants));
            }
        }
        match life.txns.status_of(txn) {
            (status @ (TxnStatus::Decided(_) | TxnStatus::Unknown), true) => {
                out.push(Output::StatusIs { token, txn, status })
            }
            _ => {
                life.txns.note_asked(txn);
                life.park_asking(txn, token, out);
            }
        }
    }
}

/// A transaction that was not seen here is aborted by the very question.
const fn unseen(txn: TxnId, begin: Timestamp, kind: AbortKind) -> Unseen {
    let (decided_by, then) = (DecidedBy::Participant, AfterAbort::Nothing);
    Unseen { txn, begin, kind, decided_by, then }
}

/// What the states of all participants come to; `None` while some are missing.
fn outcome_of(answers: &[Option<FrozenState>]) -> Option<TxnOutcome> {
    let decided = answers.iter().find_map(|answer| match answer {
        Some(FrozenState::Decided(outcome)) => Some(*outcome),
        _ => None,
    });
    if decided.is_some() {
        return decided;
    }
    if answers.iter().any(Option::is_none) {
        return None;
    }
    Some(match answers.first() {
        Some(first @ Some(FrozenState::Prepared(at)))
            if is_planted!(OwnTimestamp) || answers.iter().all(|one| one == first) =>
        {
            TxnOutcome::Committed(*at)
        }
        _ => TxnOutcome::Aborted,
    })
}
