//! The coordinator: one per committing transaction, in the client's session or the gateway.
//!
//! ```text
//!   Commit ──▶ Preparing ──all yes──▶ Deciding ──all acknowledged──▶ Done
//!                │  ▲ │ └──a no────▶ (told first, then the participants)
//!                │  └─┘ Later: the maximum and a random step, at most three times
//!                └──silence, refusal, no more rounds──▶ Resolving ──a decision──▶ Deciding
//! ```
//!
//! Invariants: participants never change; a vote counts for the current timestamp only, once per
//! shard, from participants only; abort is decided here only when some participant voted no,
//! otherwise termination is asked (MILANA §4.5); the application is told exactly once and before
//! the participants; `Done` is last. A one-shard transaction is decided by its participant's log.
//!
//! With `external_wait` the decisions leave at once and only the acknowledgement waits until the
//! clock's error bound has passed the commit timestamp. It keeps no read or write set: whoever
//! sends `Prepare` has them.

mod input;
mod output;

use core::time::Duration;

pub use input::{CommitKind, Input};
pub use output::{CommitResult, Output};
use timestone_types::limits::MAX_LATER_ROUNDS;
use timestone_types::{AbortKind, AbortReason, ShardId, Timestamp, TxnId, TxnOutcome, is_planted};

use crate::limits::{
    MAX_PREPARE_RESENDS, MAX_RESOLVE_BACKOFF, PREPARE_RESEND, REFUSED_RESEND, RESOLVE_RESEND,
};
use crate::participant::{TxnStatus, Vote};
use crate::{Refusal, ShardList};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum CommitPhase {
    #[default]
    Idle,
    Preparing,
    Resolving,
    Deciding,
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Member {
    voted: bool,
    yes: bool,
    acked: bool,
    knows_nothing: bool,
    /// It could not take the prepare for now, and has not been sent another since.
    refused: bool,
}

/// What was heard and sent since prepares last went out at a timestamp of their own.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Above every `Later` that came.
    later: Timestamp,
    resends: u32,
    /// Prepares were sent more than once: an answer may be about a copy whose promise has come to
    /// its end meanwhile.
    repeated: bool,
}

/// When something is sent again.
#[derive(Clone, Copy, Debug, Default)]
struct RetryTimes {
    at: Timestamp,
    pause: Duration,
    /// When those that refused are sent their prepares again, if any did, and the pause before
    /// that.
    refused_until: Timestamp,
    refused_pause: Duration,
}

/// One committing transaction. Pool them: [`Coordinator::reset`] keeps what was allocated.
#[derive(Debug, Default)]
pub struct Coordinator {
    phase: CommitPhase,
    txn: TxnId,
    commit: Timestamp,
    strict: bool,
    external_wait: bool,
    error_bound: Duration,
    deadline: Timestamp,
    shards: ShardList,
    members: Vec<Member>,
    /// How often the timestamp has moved.
    moves: u32,
    round: Round,
    retry: RetryTimes,
    /// The member that was asked for termination last.
    asked: usize,
    outcome: Option<TxnOutcome>,
    /// What the application is told.
    answer: Answer,
}

/// What the application is told, and whether it was.
#[derive(Clone, Copy, Debug, Default)]
struct Answer {
    /// If the outcome is abort.
    abort: Option<CommitResult>,
    is_told: bool,
}

impl Coordinator {
    /// A fresh coordinator.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes it fresh again, keeping its allocations.
    pub fn reset(&mut self) {
        let (mut members, mut shards) =
            (core::mem::take(&mut self.members), core::mem::take(&mut self.shards));
        members.clear();
        shards.set(&[]);
        *self = Self { members, shards, ..Self::default() };
        debug_assert!(
            self.is_idle() && !self.answer.is_told,
            "nothing of the last transaction is left"
        );
    }

    /// Whether it has nothing to do: fresh, or `Done` was put out.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, CommitPhase::Idle | CommitPhase::Done)
    }

    /// The timestamp that is being tried, or that was decided.
    #[must_use]
    pub fn commit_timestamp(&self) -> Timestamp {
        self.commit
    }

    /// The transaction that this is about.
    #[must_use]
    pub fn txn(&self) -> TxnId {
        self.txn
    }

    /// All participants.
    #[must_use]
    pub fn participants(&self) -> &[ShardId] {
        self.shards.as_slice()
    }

    /// All participants, and whether each needs nothing more of this transaction: it has made the
    /// decision durable, or has refused for good.
    pub fn acknowledgements(&self) -> impl Iterator<Item = (ShardId, bool)> {
        debug_assert!(self.members.len() == self.participants().len(), "each has its member");
        let members = self.members.iter().map(|member| member.acked);
        self.participants().iter().copied().zip(members)
    }

    /// What was decided.
    #[must_use]
    pub fn outcome(&self) -> Option<TxnOutcome> {
        self.outcome
    }

    /// When the next `Tick` is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        if self.is_idle() {
            return None;
        }
        let mut next = self.retry.at;
        if self.phase == CommitPhase::Preparing && self.members.iter().any(|member| member.refused)
        {
            next = next.min(self.retry.refused_until);
        }
        if !self.answer.is_told {
            next = next.min(match self.outcome {
                Some(TxnOutcome::Committed(at)) => {
                    at.next().saturating_add(self.error_bound).min(self.deadline)
                }
                Some(TxnOutcome::Aborted) | None => self.deadline,
            });
        }
        Some(next)
    }

    /// How long after its timestamp a commit that waits for the clocks is told, by what is known of
    /// them now.
    pub fn set_error_bound(&mut self, bound: Duration) {
        self.error_bound = bound;
    }

    /// Takes one input; appends what is to be done to `out`, in order. Late and foreign inputs
    /// change nothing.
    pub fn step(&mut self, now: Timestamp, input: Input<'_>, out: &mut Vec<Output>) {
        match input {
            Input::Commit {
                txn,
                begin,
                commit,
                participants,
                kind,
                external_wait,
                error_bound,
                deadline,
            } => {
                assert!(
                    self.phase == CommitPhase::Idle,
                    "a coordinator commits one transaction between resets"
                );
                assert!(!participants.is_empty(), "a transaction that commits has a participant");
                self.txn = txn;
                self.strict = kind == CommitKind::StrictReadOnly;
                self.external_wait = external_wait;
                self.error_bound = error_bound;
                self.deadline = deadline;
                self.shards.set(participants);
                self.members.resize(participants.len(), Member::default());
                self.commit = commit.max(begin.next());
                self.begin_round(now, out);
            }
            Input::Vote { from, commit, vote, step } => {
                self.vote(now, from, commit, vote, step, out)
            }
            Input::Refused { from, refusal } => self.refused(now, from, refusal, out),
            Input::Acked { from } => {
                if let Some(index) = self.shards.position(from)
                    && self.phase == CommitPhase::Deciding
                {
                    self.members[index].acked = true;
                    self.close(out);
                }
            }
            Input::StatusIs { from, status } => self.status(now, from, status, out),
            Input::WriteSetWanted { from } => {
                if let (Some(TxnOutcome::Committed(commit)), Some(_)) =
                    (self.outcome, self.shards.position(from))
                {
                    out.push(Output::SendWriteSet { to: from, commit });
                }
            }
            Input::Disconnected { from } => {
                if !self.is_idle() && self.shards.position(from).is_some() {
                    self.retry.at = self.retry.at.min(now);
                }
            }
            Input::Tick { error_bound } => {
                self.error_bound = error_bound;
                self.tick(now, out);
            }
        }
        self.assert_sound();
    }

    /// What holds between inputs.
    fn assert_sound(&self) {
        debug_assert!(self.members.len() == self.participants().len(), "each has its member");
        debug_assert!(self.moves <= MAX_LATER_ROUNDS, "timestamps are moved so often and no more");
        debug_assert!(self.round.resends <= MAX_PREPARE_RESENDS);
        match self.phase {
            CommitPhase::Idle => debug_assert!(!self.answer.is_told && self.outcome.is_none()),
            CommitPhase::Preparing | CommitPhase::Resolving => {
                debug_assert!(self.outcome.is_none(), "what is decided is not asked for");
                debug_assert!(self.asked < self.members.len());
            }
            CommitPhase::Deciding => {
                debug_assert!(self.outcome.is_some(), "participants are told a decision");
                debug_assert!(!self.members.iter().all(|one| one.acked) || !self.answer.is_told);
            }
            CommitPhase::Done => {
                debug_assert!(self.answer.is_told, "the application is told first")
            }
        }
        if let Some(TxnOutcome::Committed(at)) = self.outcome {
            debug_assert!(at == self.commit, "the timestamp is the one that was decided");
        }
    }

    /// One participant decides by itself, and nobody needs to be told.
    fn decides_alone(&self) -> bool {
        self.strict || self.members.len() == 1
    }

    fn begin_round(&mut self, now: Timestamp, out: &mut Vec<Output>) {
        assert!(self.outcome.is_none() && !self.answer.is_told, "a round follows no decision");
        self.phase = CommitPhase::Preparing;
        self.round = Round::default();
        self.retry.at = now.saturating_add(PREPARE_RESEND);
        self.retry.refused_pause = REFUSED_RESEND;
        self.members.fill(Member::default());
        self.send_prepares(|member| !member.voted, out);
    }

    fn send_prepares(&mut self, to_whom: fn(&Member) -> bool, out: &mut Vec<Output>) {
        assert!(self.phase == CommitPhase::Preparing, "prepares are sent while votes count");
        let (commit, single) = (self.commit, self.decides_alone());
        for (&to, member) in self
            .shards
            .as_slice()
            .iter()
            .zip(&mut self.members)
            .filter(|(_, member)| to_whom(member))
        {
            member.refused = false;
            out.push(Output::Prepare { to, commit, single });
        }
    }

    /// A participant is there, and cannot take the prepare just now: the others hold their promises
    /// for it, so it is asked again soon.
    fn ask_again(&mut self, now: Timestamp, index: usize) {
        debug_assert!(self.phase == CommitPhase::Preparing);
        self.round.resends = 0;
        if self.members[index].voted {
            return;
        }
        if !self.members.iter().any(|member| member.refused) {
            self.retry.refused_until = now.saturating_add(self.retry.refused_pause);
            self.retry.refused_pause = (self.retry.refused_pause * 2).min(PREPARE_RESEND);
        }
        self.members[index].refused = true;
    }

    fn vote(
        &mut self,
        now: Timestamp,
        from: ShardId,
        commit: Timestamp,
        vote: Vote,
        step: Duration,
        out: &mut Vec<Output>,
    ) {
        if !matches!(self.phase, CommitPhase::Preparing | CommitPhase::Resolving) {
            return;
        }
        assert!(self.outcome.is_none(), "votes count before a decision");
        let index = match self.shards.position(from) {
            Some(index) => index,
            None if is_planted!(CountedStrangers) => {
                self.members.iter().position(|one| !one.voted).unwrap_or(0)
            }
            None => return,
        };
        if let Vote::Decided(outcome) = vote {
            return self.settle(now, outcome, out);
        }
        if commit != self.commit && !is_planted!(LowerVote) {
            return;
        }
        let index = match self.members.iter().position(|one| !one.voted) {
            Some(other) if is_planted!(DuplicateVote) && self.members[index].voted => other,
            _ => index,
        };
        if self.members[index].voted {
            return;
        }
        match vote {
            // Too old for a copy means too old to be remembered: an earlier one may have been
            // promised, and the participants may have committed among themselves since. Only they
            // can tell, if anybody can.
            Vote::No(reason)
                if reason.kind == AbortKind::TooOld
                    && self.round.repeated
                    && !is_planted!(TooOldIsNo) =>
            {
                if self.phase == CommitPhase::Preparing {
                    self.give_up(now, out);
                }
                return;
            }
            Vote::No(reason) => {
                self.members[index].acked = true;
                self.answer.abort = Some(CommitResult::Aborted { reason, by: Some(from) });
                return self.settle(now, TxnOutcome::Aborted, out);
            }
            // Termination was asked for: promises do not move any more.
            Vote::Later(_) if self.phase == CommitPhase::Resolving => return,
            Vote::Later(at) => self.round.later = self.round.later.max(at.saturating_add(step)),
            Vote::Yes => self.members[index].yes = true,
            Vote::Decided(_) => {}
        }
        (self.members[index].voted, self.members[index].refused) = (true, false);
        if !self.members.iter().all(|one| one.voted) {
            return;
        }
        if self.members.iter().all(|one| one.yes) {
            self.settle(now, TxnOutcome::Committed(self.commit), out);
        } else if self.phase == CommitPhase::Preparing {
            // While it is resolved, there are no more rounds: it may have been reported as unknown
            // at the timestamp that it has.
            self.next_round(now, out);
        }
    }

    /// Everybody has voted, some with `Later`.
    fn next_round(&mut self, now: Timestamp, out: &mut Vec<Output>) {
        debug_assert!(self.members.iter().all(|one| one.voted), "everybody has voted");
        if self.moves < MAX_LATER_ROUNDS {
            self.moves += 1;
            self.commit = self.round.later.max(self.commit.next());
            return self.begin_round(now, out);
        }
        let reason = AbortReason { at: self.round.later, ..AbortReason::of(AbortKind::Timestamp) };
        self.answer.abort = Some(CommitResult::Aborted { reason, by: None });
        self.give_up(now, out);
    }

    /// No more rounds, or silence: the participants decide among themselves. Nothing is to be ended
    /// after a strict read.
    fn give_up(&mut self, now: Timestamp, out: &mut Vec<Output>) {
        if self.strict {
            return self.settle(now, TxnOutcome::Aborted, out);
        }
        assert!(self.outcome.is_none(), "what is decided is not given up");
        self.phase = CommitPhase::Resolving;
        self.retry.pause = RESOLVE_RESEND;
        let lowest = self.shards.lowest().and_then(|lowest| self.shards.position(lowest));
        self.asked = lowest.unwrap_or(0);
        self.ask_termination(now, out);
    }

    fn ask_termination(&mut self, now: Timestamp, out: &mut Vec<Output>) {
        assert!(self.phase == CommitPhase::Resolving, "termination is asked for after giving up");
        self.retry.at = now.saturating_add(self.retry.pause);
        out.push(Output::Terminate { to: self.shards.as_slice()[self.asked] });
    }

    fn refused(&mut self, now: Timestamp, from: ShardId, refusal: Refusal, out: &mut Vec<Output>) {
        let Some(index) = self.shards.position(from) else { return };
        debug_assert!(index < self.members.len());
        match self.phase {
            CommitPhase::Preparing if refusal.retryable() => self.ask_again(now, index),
            CommitPhase::Preparing => {
                // Whether a copy of the prepare is still on its way is not known, so even this ends
                // in a durable state.
                if !matches!(refusal, Refusal::Terminating | Refusal::Contradiction) {
                    self.answer.abort = Some(CommitResult::Refused { refusal, by: from });
                }
                self.give_up(now, out);
            }
            // It has recorded the opposite, which no repetition changes; its operator was told by
            // the refusal's text.
            CommitPhase::Deciding if refusal == Refusal::Contradiction => {
                self.members[index].acked = true;
                self.close(out);
            }
            CommitPhase::Idle
            | CommitPhase::Resolving
            | CommitPhase::Deciding
            | CommitPhase::Done => {}
        }
    }

    fn status(&mut self, now: Timestamp, from: ShardId, status: TxnStatus, out: &mut Vec<Output>) {
        let Some(index) = self.shards.position(from) else { return };
        if !matches!(self.phase, CommitPhase::Resolving | CommitPhase::Preparing) {
            return;
        }
        debug_assert!(self.outcome.is_none(), "nothing is decided yet");
        match status {
            TxnStatus::Decided(outcome) => self.settle(now, outcome, out),
            TxnStatus::Prepared(_) => {}
            TxnStatus::Unknown if self.phase == CommitPhase::Resolving => {
                self.members[index].knows_nothing = true;
                if self.members.iter().all(|one| one.knows_nothing) {
                    self.tell(CommitResult::Unknown, out);
                    self.phase = CommitPhase::Done;
                    return out.push(Output::Done);
                }
                self.retry.at = now;
            }
            TxnStatus::Unknown => {}
        }
    }

    fn tell(&mut self, result: CommitResult, out: &mut Vec<Output>) {
        if self.answer.is_told {
            return;
        }
        assert!(!self.is_idle(), "the application is told of what is under way");
        self.answer.is_told = true;
        out.push(Output::Finished(result));
    }

    /// The outcome is known: the application first, then the participants.
    fn settle(&mut self, now: Timestamp, outcome: TxnOutcome, out: &mut Vec<Output>) {
        assert!(self.outcome.is_none(), "a transaction is decided once");
        self.outcome = Some(outcome);
        self.phase = CommitPhase::Deciding;
        self.retry.pause = RESOLVE_RESEND;
        self.retry.at = now.saturating_add(self.retry.pause);
        match outcome {
            TxnOutcome::Committed(at) => {
                self.commit = at;
                self.tell_committed(now, out);
            }
            TxnOutcome::Aborted => {
                let reason = AbortReason::of(AbortKind::Terminated);
                let result =
                    self.answer.abort.unwrap_or(CommitResult::Aborted { reason, by: None });
                self.tell(result, out);
            }
        }
        if self.decides_alone() {
            self.members.iter_mut().for_each(|one| one.acked = true);
        }
        self.send_decisions(out);
        self.close(out);
    }

    /// With `external_wait`, only once no clock within its bounds can still show a time at or below
    /// the commit.
    fn tell_committed(&mut self, now: Timestamp, out: &mut Vec<Output>) {
        debug_assert!(self.outcome == Some(TxnOutcome::Committed(self.commit)));
        if !self.external_wait
            || is_planted!(NoExternalWait)
            || now.saturating_sub(self.error_bound) > self.commit
        {
            self.tell(CommitResult::Committed(self.commit), out);
        }
    }

    fn send_decisions(&self, out: &mut Vec<Output>) {
        let Some(outcome) = self.outcome else { return };
        let open =
            self.shards.as_slice().iter().zip(&self.members).filter(|(_, member)| !member.acked);
        out.extend(open.map(|(&to, _)| Output::Decide { to, outcome }));
    }

    fn close(&mut self, out: &mut Vec<Output>) {
        debug_assert!(self.phase != CommitPhase::Deciding || self.outcome.is_some());
        if self.phase == CommitPhase::Deciding
            && self.answer.is_told
            && self.members.iter().all(|one| one.acked)
        {
            self.phase = CommitPhase::Done;
            out.push(Output::Done);
        }
    }

    fn tick(&mut self, now: Timestamp, out: &mut Vec<Output>) {
        if self.is_idle() {
            return;
        }
        debug_assert!(!self.members.is_empty(), "what is under way has a participant");
        if matches!(self.outcome, Some(TxnOutcome::Committed(_))) {
            self.tell_committed(now, out);
            if now >= self.deadline && !self.answer.is_told && !is_planted!(OutwaitedDeadlines) {
                // It has committed, and others may see it; that no clock is behind it any more is
                // not known in time.
                self.tell(CommitResult::Unknown, out);
            }
            self.close(out);
        } else if now >= self.deadline && !self.answer.is_told {
            if self.phase == CommitPhase::Preparing {
                self.give_up(now, out);
            }
            self.tell(CommitResult::Unknown, out);
        }
        if self.phase == CommitPhase::Preparing && now >= self.retry.refused_until {
            self.round.repeated |= self.members.iter().any(|member| member.refused);
            self.send_prepares(|member| member.refused, out);
        }
        if now < self.retry.at {
            return;
        }
        match self.phase {
            CommitPhase::Preparing if is_planted!(AbortOnTimeout) => {
                self.settle(now, TxnOutcome::Aborted, out)
            }
            CommitPhase::Preparing if self.round.resends < MAX_PREPARE_RESENDS => {
                self.round.resends += 1;
                self.round.repeated = true;
                self.retry.at = now.saturating_add(PREPARE_RESEND);
                self.send_prepares(|member| !member.voted, out);
            }
            CommitPhase::Preparing => self.give_up(now, out),
            CommitPhase::Resolving => {
                self.asked = (self.asked + 1) % self.members.len();
                self.retry.pause = (self.retry.pause * 2).min(MAX_RESOLVE_BACKOFF);
                self.ask_termination(now, out);
            }
            CommitPhase::Deciding => {
                self.retry.pause = (self.retry.pause * 2).min(MAX_RESOLVE_BACKOFF);
                self.retry.at = now.saturating_add(self.retry.pause);
                self.send_decisions(out);
            }
            CommitPhase::Idle | CommitPhase::Done => {}
        }
    }
}
