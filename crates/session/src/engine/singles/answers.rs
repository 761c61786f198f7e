//! What comes back about requests outside transactions, and what becomes of them then.

use timestone_txn::participant::Vote;
use timestone_types::{AbortKind, AbortReason, Timestamp, TxnId, TxnOutcome, is_planted};
use timestone_wire::{ErrorCode, Frame};

use super::Singles;
use super::record::{Single, SingleResult, Want};
use crate::TxnStatus;
use crate::engine::context::Context;
use crate::engine::number::Number;
use crate::engine::replies::{Fault, ReadAnswer, Reply};
use crate::engine::shards::ShardIndex;

impl Singles {
    /// A reply from a shard. `None` when nobody waits for it.
    pub(in crate::engine) fn deliver(
        &mut self,
        context: &mut Context,
        from: ShardIndex,
        number: Number,
        frame: &Frame<'_>,
        reply: Reply<'_>,
    ) -> Option<()> {
        let index = self.0.key(number.slot.index).filter(|&slot| number.is_for(slot))?.index;
        let single = self.0.at_mut(index);
        let is_asked = single.want == Want::Status || single.shard == from;
        // A refusal of an earlier identity says nothing about the one that is tried now.
        let is_of_before = single.is_write() && !single.copies.are_about(number.item);
        if single.is_settled || !is_asked || is_of_before {
            return None;
        }
        match (single.want, reply) {
            (_, Reply::Fault(fault)) => self.fault(context, index, fault),
            // The shard read around a write that was not decided or applied in time. What was
            // acknowledged to somebody else may be in there: not the latest, then.
            (Want::Get, Reply::Value(ReadAnswer { prepared_before: true, .. })) => {
                self.fault(context, index, Fault::Prepared { other: TxnId::default() });
            }
            (Want::Get, Reply::Value(ReadAnswer { version, expires_at, value, .. })) => {
                single.bytes.replace(value.unwrap_or_default());
                let present = value.is_some();
                self.end(context, index, SingleResult::Value { version, expires_at, present });
            }
            // Nobody can have written at a timestamp that was never tried, nor left to the shard.
            (
                Want::Put | Want::Delete,
                Reply::Written { commit: at, vote: Vote::Yes, .. }
                | Reply::Status { status: TxnStatus::Committed(at), .. },
            ) if at > single.last_chance() => return None,
            (Want::Put | Want::Delete, Reply::Written { commit, vote, previous }) => {
                let is_current = commit == single.commit;
                if !matches!(vote, Vote::Later(_)) {
                    single.bytes.keep_previous(previous);
                }
                self.vote(context, index, commit, vote, is_current)?;
            }
            (Want::Put | Want::Delete, Reply::Status { txn, status }) if txn == single.id => {
                let vote = Vote::Decided(status.outcome()?);
                self.vote(context, index, Timestamp::ZERO, vote, true)?;
            }
            (Want::Status, Reply::Status { txn, status }) if txn == single.id => {
                self.merge_status(context, index, from, status);
            }
            (Want::Ask, _) => {
                single.bytes.replace(frame.bytes());
                self.end(context, index, SingleResult::Frame);
            }
            _ => return None,
        }
        self.assert_one(index);
        Some(())
    }

    /// A vote about a single-key write. A decision counts whichever round it answers; `Later` only
    /// when it answers the present one.
    fn vote(
        &mut self,
        context: &mut Context,
        index: u32,
        commit: Timestamp,
        vote: Vote,
        is_current: bool,
    ) -> Option<()> {
        let single = self.0.at(index);
        debug_assert!(single.is_write() && !single.is_settled, "a vote about no write");
        let is_told = single.result.is_some();
        let aborted = |kind| SingleResult::Aborted(AbortReason::of(kind));
        match vote {
            Vote::Yes => self.wrote(context, index, commit),
            Vote::Decided(TxnOutcome::Committed(at)) => self.wrote(context, index, at),
            // Too old for a copy means too old to be remembered: an earlier one may have been
            // carried out, unless each was refused.
            Vote::No(reason) if reason.kind == AbortKind::TooOld && single.may_be_forgotten() => {
                self.end(context, index, SingleResult::Unknown);
            }
            Vote::No(reason) if self.is_tried_again(context, index, &reason) => {
                self.try_again(context, index, reason);
            }
            Vote::No(reason) => self.end(context, index, SingleResult::Aborted(reason)),
            Vote::Decided(TxnOutcome::Aborted) => {
                self.end(context, index, aborted(AbortKind::Terminated));
            }
            // It was reported as unknown. Others, its own session first, may have gone on from what
            // they found: it takes place at the time at which it was asked, or never. Access
            // records only rise, so no copy of it has a chance any more: what was left to a shard lies
            // below as well.
            Vote::Later(_) if is_current && is_told && !is_planted!(UndoneWrite) => {
                self.end(context, index, aborted(AbortKind::Timestamp));
            }
            Vote::Later(bound) if is_current => self.later(context, index, bound),
            Vote::Later(_) => return None,
        }
        Some(())
    }

    /// Whether a refused write is tried once more: it met somebody else's write, which was not over
    /// in time. Its server does what the write depends on afresh, so nobody needs to be told.
    fn is_tried_again(&self, context: &Context, index: u32, reason: &AbortReason) -> bool {
        let (single, config) = (self.0.at(index), context.config());
        let has_time = single.times.deadline > context.now();
        reason.kind == AbortKind::WriteConflict
            && config.wait
            && config.tries_again
            && single.result.is_none()
            && has_time
    }

    /// Tries a write again under a new identity: under the one that it has it is refused for good.
    fn try_again(&mut self, context: &mut Context, index: u32, reason: AbortReason) {
        let single = self.0.at_mut(index);
        single.id = context.next_id();
        single.copies.next_identity();
        if !is_planted!(KeepsRefusedPrevious) {
            single.bytes.forget_previous();
        }
        single.met = Some(reason);
        context.session_learned(single.session, reason.at.next());
        self.fault(context, index, Fault::Prepared { other: reason.other.unwrap_or_default() });
    }

    /// Tries a write again at a later timestamp.
    fn later(&mut self, context: &mut Context, index: u32, bound: Timestamp) {
        context.stats().later_rounds += 1;
        let step = context.later_step();
        let single = self.0.at_mut(index);
        let tried = single.commit;
        single.commit = bound.max(tried.next()).saturating_add(step);
        assert!(single.commit > tried, "{} goes back to {}", single.id, single.commit);
        single.copies.next_round();
        self.send(context, index);
    }

    /// A single-key write took place at `at`: told at once, or when the clock's error bound has
    /// passed.
    fn wrote(&mut self, context: &mut Context, index: u32, at: Timestamp) {
        let single = self.0.at_mut(index);
        assert!(single.is_write() && !single.is_settled, "{} is no write under way", single.id);
        let waits = single.write.external_wait && single.result.is_none();
        if waits && !context.has_passed(at) {
            single.is_settled = true;
            single.commit = at;
            single.times.due = context.passed_at(at);
            context.wake_at(single.times.due);
        } else {
            self.end(context, index, SingleResult::Committed(at));
        }
    }

    fn fault(&mut self, context: &mut Context, index: u32, fault: Fault<'_>) {
        let single = self.0.at_mut(index);
        assert!(!single.is_settled, "{} is over", single.id);
        let Some(pause) = context.pause_for(&fault, single.copies.attempts) else {
            context.note(&fault);
            let result = result_of(single, fault);
            return self.end(context, index, result);
        };
        let is_told = single.is_write() && single.result.is_some();
        if is_told && fault.lacks_room() && !is_planted!(KeepsRefusedWrites) {
            // Nobody waits for it, and as long as it is asked it keeps the room from becoming free
            // that it asks for. An earlier copy takes place at its timestamp or, below the
            // watermark, never.
            return self.end(context, index, SingleResult::Unknown);
        }
        single.copies.refused();
        single.times.due = context.now().saturating_add(pause);
        context.wake_at(single.times.due);
    }

    /// Counts one shard's answer to a question about a transaction; the strongest answer wins.
    fn merge_status(
        &mut self,
        context: &mut Context,
        index: u32,
        from: ShardIndex,
        status: TxnStatus,
    ) {
        let poll = &mut self.0.at_mut(index).poll;
        let Some(at) = poll.silent.iter().position(|&shard| shard == from) else { return };
        poll.silent.swap_remove(at);
        debug_assert!(!poll.silent.contains(&from), "a shard was asked twice");
        let best = poll.best.filter(|known| known.strength() >= status.strength());
        let best = *poll.best.insert(best.unwrap_or(status));
        let is_decided = matches!(best, TxnStatus::Committed(_) | TxnStatus::Aborted);
        if poll.silent.is_empty() || is_decided {
            self.end(context, index, SingleResult::Status(best));
        }
    }
}

/// What a request comes to that was refused for good.
fn result_of(single: &Single, fault: Fault<'_>) -> SingleResult {
    let (is_write, is_forgotten) = (single.is_write(), single.may_be_forgotten());
    let is_doubtful = single.copies.doubtful && !is_planted!(FailsForCopies);
    match fault {
        // Forgotten, perhaps after it was carried out.
        Fault::TooOld { .. } if is_write && is_forgotten => SingleResult::Unknown,
        Fault::TooOld { watermark } => SingleResult::Aborted(AbortReason {
            at: watermark,
            ..AbortReason::of(AbortKind::TooOld)
        }),
        // Under this id it was carried out or refused before, and nobody remembers which.
        Fault::SessionEnded | Fault::Terminating if is_write => SingleResult::Unknown,
        Fault::Other { code: ErrorCode::UnknownOutcome, .. } if is_write => SingleResult::Unknown,
        // Whatever this copy met, an earlier one may have been carried out, or be waiting at the
        // server for its turn.
        _ if is_write && is_doubtful => SingleResult::Unknown,
        // The server was restarted, and does not say whether it has forgotten an earlier copy.
        Fault::Other { code: ErrorCode::ClockBehind, .. } if is_write && is_forgotten => {
            SingleResult::Unknown
        }
        other => SingleResult::Failed(other.into()),
    }
}

impl TxnStatus {
    /// The decision, when there is one.
    const fn outcome(self) -> Option<TxnOutcome> {
        match self {
            Self::Committed(at) => Some(TxnOutcome::Committed(at)),
            Self::Aborted => Some(TxnOutcome::Aborted),
            Self::Prepared(_) | Self::Unknown => None,
        }
    }

    /// A decision outweighs a promise, and a promise outweighs ignorance.
    const fn strength(self) -> u8 {
        match self {
            Self::Committed(_) | Self::Aborted => 2,
            Self::Prepared(_) => 1,
            Self::Unknown => 0,
        }
    }
}

impl From<TxnOutcome> for TxnStatus {
    fn from(outcome: TxnOutcome) -> Self {
        match outcome {
            TxnOutcome::Committed(at) => Self::Committed(at),
            TxnOutcome::Aborted => Self::Aborted,
        }
    }
}
