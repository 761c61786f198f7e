//! A candidate that lacks batches of its table: it asks those that have them.
//!
//! A source may die, or start anew without what it could hand out before. So replicas that answer
//! late are sources, too; one that cannot send all that it is asked for says what it has; and what
//! does not come is asked of another one. A source sends a bounded part of what it is asked for, says
//! what it has once more, and is asked for the rest.

use std::collections::{BTreeMap, BTreeSet};

use timestone_types::{Epoch, Timestamp};
use timestone_wal::BatchNumber;

use super::ReplicaId;
use super::input::Output;
use crate::batches::Payload;
use crate::limits::{ASK_AGAIN_AFTER, FETCH_TIMEOUT};
use crate::message::{JoinAnswer, Message};
use crate::number_set::NumberSet;

/// See the module.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Fetching {
    epoch: Epoch,
    /// The other replicas that were asked to join.
    others: BTreeSet<ReplicaId>,
    /// What all say that have answered, those of older lineages included.
    answers: BTreeMap<ReplicaId, JoinAnswer>,
    /// Those that have valid batches of the table.
    sources: BTreeSet<ReplicaId>,
    /// What each source was asked for since it last answered.
    asked: BTreeMap<ReplicaId, NumberSet>,
    /// Which of several sources is asked.
    turn: usize,
    asked_at: Timestamp,
    /// When a batch came last, or a source.
    progress_at: Timestamp,
    /// Whether a batch has come since a source was asked for the rest.
    has_come: bool,
}

impl Fetching {
    pub(super) fn new(
        now: Timestamp,
        epoch: Epoch,
        others: BTreeSet<ReplicaId>,
        answers: BTreeMap<ReplicaId, JoinAnswer>,
        sources: BTreeSet<ReplicaId>,
    ) -> Self {
        let asked = BTreeMap::new();
        let (asked_at, progress_at) = (now, now);
        let (turn, has_come) = (0, false);
        Self { epoch, others, answers, sources, asked, turn, asked_at, progress_at, has_come }
    }

    /// A replica says what it has, late or anew; `is_source`: that is valid in the table.
    pub(super) fn answered(
        &mut self,
        now: Timestamp,
        from: ReplicaId,
        answer: JoinAnswer,
        is_source: bool,
    ) {
        if !self.others.contains(&from) {
            return;
        }
        if self.answers.get(&from) == Some(&answer) {
            // It has answered twice, or has sent a part of what it was asked for. Without a batch in
            // between asking again would go on for ever.
            if core::mem::take(&mut self.has_come) {
                self.asked.remove(&from);
            }
            return;
        }
        self.asked.remove(&from);
        if is_source && self.sources.insert(from) {
            self.progress_at = now;
        } else if !is_source {
            self.sources.remove(&from);
        }
        self.answers.insert(from, answer);
    }

    /// A batch of the table has come.
    pub(super) const fn has_come(&mut self, now: Timestamp) {
        self.progress_at = now;
        self.has_come = true;
    }

    pub(super) fn deadline(&self) -> Timestamp {
        self.asked_at.saturating_add(ASK_AGAIN_AFTER)
    }

    /// Asks for what is missing and is not under way.
    /// False when nobody has it any more who can still answer.
    pub(super) fn ask<B: Payload>(
        &mut self,
        received: &NumberSet,
        through: BatchNumber,
        out: &mut Vec<Output<B>>,
    ) -> bool {
        let mut wanted: BTreeMap<ReplicaId, NumberSet> = BTreeMap::new();
        for number in received.missing(through) {
            if self.asked.values().any(|asked| asked.contains(number)) {
                continue;
            }
            let Some(source) = self.source_of(number) else {
                if self.others.iter().all(|id| self.answers.contains_key(id)) {
                    return false;
                }
                break;
            };
            wanted.entry(source).or_default().insert(number);
        }
        for (to, set) in wanted {
            let first = BatchNumber::new(1);
            let prefix = (set.prefix() > BatchNumber::ZERO).then_some((first, set.prefix()));
            let runs = prefix.into_iter().chain(set.runs().iter().copied()).collect();
            self.asked.entry(to).or_default().add(&set);
            out.push(Output::Send { to, message: Message::Fetch { epoch: self.epoch, runs } });
        }
        true
    }

    fn source_of(&self, number: BatchNumber) -> Option<ReplicaId> {
        let has = |id: &&ReplicaId| {
            let answer = &self.answers[*id];
            answer.held_above < number && answer.has.contains(number)
        };
        let count = self.sources.iter().filter(has).count();
        let index = self.turn.checked_rem(count)?;
        self.sources.iter().filter(has).nth(index).copied()
    }

    /// Time has passed: asks others for what does not come. False when it is not to be had.
    pub(super) fn tick<B: Payload>(
        &mut self,
        now: Timestamp,
        received: &NumberSet,
        through: BatchNumber,
        out: &mut Vec<Output<B>>,
    ) -> bool {
        if self.deadline() > now {
            return true;
        }
        if self.progress_at.saturating_add(FETCH_TIMEOUT) <= now {
            return false;
        }
        if self.progress_at <= self.asked_at {
            self.asked.clear();
            self.turn = self.turn.wrapping_add(1);
        }
        self.asked_at = now;
        self.ask_silent(|_| true, out);
        self.ask(received, through, out)
    }

    /// Asks those again that have not answered and are meant.
    pub(super) fn ask_silent<B>(
        &self,
        is_meant: impl Fn(ReplicaId) -> bool,
        out: &mut Vec<Output<B>>,
    ) {
        let silent = self.others.iter().filter(|id| !self.answers.contains_key(id));
        for &to in silent.filter(|&&id| is_meant(id)) {
            out.push(Output::Send { to, message: Message::Join { epoch: self.epoch } });
        }
    }
}
