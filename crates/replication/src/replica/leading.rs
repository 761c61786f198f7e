//! A replica as a primary: it sends batches to the others, counts who has them, and sends again
//! what was lost.

use std::collections::{BTreeMap, BTreeSet};

use timestone_types::{Epoch, Timestamp};
use timestone_wal::BatchNumber;

use super::fetching::Fetching;
use super::followers::Follower;
use super::input::{Entry, Output, Step};
use super::persisting::Persisted;
use super::table::TableHead;
use super::{Own, Replica, ReplicaId};
use crate::batches::{Batch, Payload};
use crate::limits::{ASK_AGAIN_AFTER, FETCH_TIMEOUT, MAX_RETAINED_BATCHES};
use crate::message::{JoinAnswer, Message};
use crate::number_set::NumberSet;

/// How far a candidate is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum LeadPhase {
    /// Waits for answers of more than half of each configuration in `previous`.
    Joining { previous: Vec<Vec<ReplicaId>>, answers: BTreeMap<ReplicaId, JoinAnswer> },
    /// Waits for batches of the table that it lacks, from those that have answered.
    Fetching(Fetching),
    /// Waits until it and enough others have installed the table.
    Installing,
    /// Is primary.
    Serving,
}

/// What a candidate or a primary knows beside what it has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Leading {
    pub(super) me: ReplicaId,
    pub(super) epoch: Epoch,
    pub(super) phase: LeadPhase,
    /// The other replicas of the epoch.
    pub(super) followers: Vec<Follower>,
    /// The table of the epoch, once it is known.
    pub(super) table: TableHead,
    /// When those that were asked to join were asked last.
    pub(super) asked_at: Timestamp,
    /// When another replica said something new last, or something began to wait for one.
    pub(super) news_at: Timestamp,
}

impl Leading {
    pub(super) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(super) const fn state(&self) -> Step {
        match self.phase {
            LeadPhase::Joining { .. } => Step::Joining,
            LeadPhase::Fetching(_) => Step::Fetching,
            LeadPhase::Installing => Step::Installing,
            LeadPhase::Serving => Step::Serving,
        }
    }

    /// How many others must have something beside this replica: f of 2f + 1.
    fn needed(&self) -> usize {
        self.followers.len().div_ceil(2)
    }

    /// Whether enough others have installed the table.
    pub(super) fn is_installed(&self) -> bool {
        self.followers.iter().filter(|follower| follower.installed).count() >= self.needed()
    }

    pub(super) const fn is_serving(&self) -> bool {
        matches!(self.phase, LeadPhase::Serving)
    }

    /// Whether something waits for other replicas, and none of them has said anything new for long.
    /// What is fetched has a time of its own ([`Fetching`]).
    pub(super) fn hears_nobody<B>(&self, now: Timestamp, own: &Own<B>) -> bool {
        let waits = match self.phase {
            LeadPhase::Joining { .. } | LeadPhase::Installing => true,
            LeadPhase::Fetching(_) => false,
            LeadPhase::Serving => own.counted < own.received.last(),
        };
        waits && self.needed() > 0 && now >= self.news_at.saturating_add(FETCH_TIMEOUT)
    }

    pub(super) fn lag(&self, last: BatchNumber) -> impl Iterator<Item = (ReplicaId, u64, bool)> {
        self.followers.iter().map(move |one| {
            (one.id, last.get().saturating_sub(one.acked.prefix().get()), one.is_lost)
        })
    }

    /// The last batch that is counted after `counted`, and all before it.
    fn count<B>(&self, own: &Own<B>) -> BatchNumber {
        let mut counted = own.counted;
        loop {
            let next = counted.next();
            let is_here = own.durable.contains(next)
                || (timestone_types::is_planted!(CountsWithoutItself)
                    && own.received.contains(next));
            let others = self.followers.iter().filter(|follower| follower.has(next)).count();
            if !is_here || others < self.needed() {
                return counted;
            }
            counted = next;
        }
    }

    /// Everybody who is waited for has everything up to this one.
    fn stable<B>(&self, own: &Own<B>) -> BatchNumber {
        let waited = self.followers.iter().filter(|follower| !follower.is_lost);
        let least = waited.map(Follower::keeps).min();
        own.durable.prefix().min(own.counted).min(least.unwrap_or(BatchNumber::MAX))
    }

    /// A replica takes a checkpoint: it is waited for again, from there on.
    pub(super) fn takes_checkpoint(
        &mut self,
        now: Timestamp,
        (replica, session): (ReplicaId, u64),
        through: BatchNumber,
    ) {
        self.news_at = now;
        let follower = self.followers.iter_mut().find(|follower| follower.id == replica);
        let Some(follower) = follower else { return };
        // Numbers of one replica rise: a question that came late begins nothing.
        if follower.session.is_some_and(|known| session < known) {
            return;
        }
        if follower.session != Some(session) {
            (follower.session, follower.installed) = (Some(session), false);
            follower.acked = NumberSet::default();
        }
        if !follower.installed {
            (follower.is_lost, follower.takes_through) = (false, Some(through));
        }
    }

    /// Whether a follower owes an answer.
    fn owes<B>(&self, follower: &Follower, own: &Own<B>) -> bool {
        match self.phase {
            LeadPhase::Joining { .. } | LeadPhase::Fetching(_) => false,
            LeadPhase::Installing => !follower.installed,
            LeadPhase::Serving => {
                !follower.installed
                    || follower.acked.prefix() < own.received.last()
                    || follower.told < own.counted
            }
        }
    }

    pub(super) fn deadline<B>(&self, own: &Own<B>) -> Option<Timestamp> {
        let owing = self.followers.iter().filter(|follower| self.owes(follower, own));
        let of_followers = owing.map(Follower::ask_at);
        let again = match &self.phase {
            LeadPhase::Joining { .. } => Some(self.asked_at.saturating_add(ASK_AGAIN_AFTER)),
            LeadPhase::Fetching(fetching) => Some(fetching.deadline()),
            LeadPhase::Installing | LeadPhase::Serving => None,
        };
        of_followers.chain(again).min()
    }

    /// Asks again those who owe an answer for too long.
    pub(super) fn tick<B: Payload>(
        &mut self,
        now: Timestamp,
        own: &Own<B>,
        out: &mut Vec<Output<B>>,
    ) {
        let owing: Vec<ReplicaId> = self
            .followers
            .iter()
            .filter(|follower| self.owes(follower, own) && follower.ask_at() <= now)
            .map(|follower| follower.id)
            .collect();
        for id in owing {
            self.ask_again(now, id, own, out);
        }
        if self.asked_at.saturating_add(ASK_AGAIN_AFTER) > now {
            return;
        }
        if let LeadPhase::Joining { previous, answers } = &self.phase {
            self.asked_at = now;
            let is_meant = |id| id != self.me && !answers.contains_key(&id);
            ask_to_join(self.epoch, previous, is_meant, out);
        }
    }

    /// Asks one replica what it has, or tells it the table anew.
    pub(super) fn ask_again<B: Payload>(
        &mut self,
        now: Timestamp,
        to: ReplicaId,
        own: &Own<B>,
        out: &mut Vec<Output<B>>,
    ) {
        let (epoch, counted, stable) = (self.epoch, own.counted, self.stable(own));
        match &self.phase {
            LeadPhase::Joining { previous, answers } => {
                let is_meant = |id| id == to && !answers.contains_key(&id);
                return ask_to_join(epoch, previous, is_meant, out);
            }
            // The tick asks whoever is a source.
            LeadPhase::Fetching(fetching) => return fetching.ask_silent(|id| id == to, out),
            LeadPhase::Installing | LeadPhase::Serving => {}
        }
        let Some(follower) = self.followers.iter_mut().find(|follower| follower.id == to) else {
            return;
        };
        follower.heard(now);
        let message = if follower.installed {
            Message::Probe { epoch, counted, stable }
        } else {
            self.table.message(epoch)
        };
        out.push(Output::Send { to, message });
    }
}

/// Asks those replicas to join that are meant, each once.
pub(super) fn ask_to_join<B>(
    epoch: Epoch,
    previous: &[Vec<ReplicaId>],
    is_meant: impl Fn(ReplicaId) -> bool,
    out: &mut Vec<Output<B>>,
) {
    let asked: BTreeSet<ReplicaId> = previous.iter().flatten().copied().collect();
    for to in asked.into_iter().filter(|&id| is_meant(id)) {
        out.push(Output::Send { to, message: Message::Join { epoch } });
    }
}

impl<B: Payload> Replica<B> {
    /// A batch of the shard, which serves: it goes to the own log and to all others.
    pub(super) fn append(
        &mut self,
        now: Timestamp,
        (number, lease, payload): (BatchNumber, Timestamp, B),
        out: &mut Vec<Output<B>>,
    ) {
        let Some(leading) = self.leading.as_mut().filter(|leading| leading.is_serving()) else {
            // It was deposed in the same turn: what the shard records counts for nobody.
            return;
        };
        let own = &mut self.own;
        if own.counted == own.received.last() {
            leading.news_at = now;
        }
        assert_eq!(number, own.received.last().next(), "batches are numbered one after the other");
        let batch = Batch { number, epoch: leading.epoch, lease, payload };
        let (epoch, counted, stable) = (leading.epoch, own.counted, leading.stable(own));
        for follower in leading.followers.iter_mut().filter(|follower| follower.installed) {
            if follower.is_lost {
                continue;
            }
            if follower.acked.prefix() == own.received.last() {
                follower.heard(now);
            }
            let message = Message::Append { epoch, counted, stable, batch: batch.clone() };
            out.push(Output::Send { to: follower.id, message });
        }
        own.take(batch.clone());
        self.persist(Persisted::Batch { number, epoch }, Entry::Batch(batch), out);
        self.bound_memory(out);
    }

    /// Waits no more for those that are too far behind.
    fn bound_memory(&mut self, out: &mut Vec<Output<B>>) {
        let Some(leading) = &mut self.leading else { return };
        let most = self.retention.batches.min(MAX_RETAINED_BATCHES);
        while self.own.batches.bytes() > self.retention.bytes || self.own.batches.span() > most {
            let counted = self.own.counted;
            let behind = leading.followers.iter_mut().filter(|follower| !follower.is_lost);
            let last = behind.min_by_key(|follower| follower.keeps());
            // What does not count yet is kept, whatever it takes: the shard's own admission bounds
            // it.
            let Some(last) = last.filter(|last| last.keeps() < counted) else { return };
            last.is_left_behind();
            out.push(Output::Behind { replica: last.id });
            let stable = leading.stable(&self.own);
            self.own.drop_stable(stable);
        }
    }

    /// A replica says what it has.
    pub(super) fn acked(
        &mut self,
        now: Timestamp,
        (from, epoch, session): (ReplicaId, Epoch, u64),
        (installed, counted, durable, received): (
            bool,
            BatchNumber,
            &NumberSet,
            Option<&NumberSet>,
        ),
        out: &mut Vec<Output<B>>,
    ) {
        let Some(leading) = self.leading.as_mut().filter(|leading| leading.epoch == epoch) else {
            return;
        };
        if !matches!(leading.phase, LeadPhase::Installing | LeadPhase::Serving) {
            return;
        }
        let Some(follower) = leading.followers.iter_mut().find(|follower| follower.id == from)
        else {
            return;
        };
        let is_earlier = follower.session.is_some_and(|taken| taken != session);
        if is_earlier && !timestone_types::is_planted!(CountsEarlierLives) {
            // It says what it had before it took a checkpoint of this primary; it is there at least.
            leading.news_at = now;
            return;
        }
        let is_first = installed && !follower.installed;
        let before = follower.acked.prefix();
        if !installed {
            // Of a table it may have less after a restart; or it has lost its disk, or this is late.
            // What it has now is what counts from now on.
            follower.acked = NumberSet::default();
        }
        follower.installed = installed;
        follower.acked.add(durable);
        // Who has not installed the table yet is there at least.
        if !installed || is_first {
            leading.news_at = now;
        }
        follower.told = counted;
        // Batches above a hole say nothing of the hole: it is asked for while they flow.
        if received.is_some() || is_first || follower.acked.prefix() > before {
            follower.heard(now);
        }
        if follower.acked.prefix() > before {
            leading.news_at = now;
        }
        if follower.is_lost && follower.acked.prefix() >= self.own.batches.base() {
            follower.is_lost = false;
        }
        let has = follower.acked.prefix();
        // With its number it has taken the checkpoint. If it lacks something of it nevertheless, it was
        // another primary that gave the rest, and that had less.
        let waits = timestone_types::is_planted!(WaitsForTakenCheckpoint);
        follower.takes_through.take_if(|through| match has >= *through {
            true => installed,
            false => !waits,
        });
        if !installed && received.is_none() {
            let message = leading.table.message(epoch);
            out.push(Output::Send { to: from, message });
        }
        // Whoever has just installed was sent nothing of the epoch so far.
        let received = match received {
            Some(received) => Some(received.clone()),
            None if is_first => Some(durable.clone()),
            None => None,
        };
        if let Some(received) = received {
            self.send_missing(from, installed, &received, out);
        }
        self.go_on(now, out);
    }

    /// Sends a replica what it lacks: of the table, or of everything.
    fn send_missing(
        &mut self,
        to: ReplicaId,
        installed: bool,
        received: &NumberSet,
        out: &mut Vec<Output<B>>,
    ) {
        let Some(leading) = &mut self.leading else { return };
        let (epoch, own) = (leading.epoch, &self.own);
        let (counted, stable) = (own.counted, leading.stable(own));
        let table = self.table.as_ref();
        let table_end = table.map_or(own.lineage.table_end(), |table| table.head.through);
        let until = if installed { own.received.last() } else { table_end };
        let Some(follower) = leading.followers.iter_mut().find(|follower| follower.id == to) else {
            return;
        };
        for number in received.missing(until) {
            if follower.takes_through.is_some_and(|through| number <= through) {
                // A checkpoint brings it.
                return;
            }
            let batch = match table {
                Some(table) => table.get(number, own),
                None => own.batches.get(number),
            };
            let Some(batch) = batch.cloned() else {
                let held_above = own.batches.base();
                // What is given up has to be here durably: a candidate's table may not be yet.
                if number <= held_above && table.is_none() {
                    if !std::mem::replace(&mut follower.is_lost, true) {
                        out.push(Output::Behind { replica: to });
                    }
                    let message = Message::NeedsCheckpoint { epoch, held_above };
                    out.push(Output::Send { to, message });
                }
                return;
            };
            let message = Message::Append { epoch, counted, stable, batch };
            out.push(Output::Send { to, message });
        }
    }

    /// Something is durable here or elsewhere: serves when that is enough, and counts.
    pub(super) fn go_on(&mut self, now: Timestamp, out: &mut Vec<Output<B>>) {
        let Some(leading) = &mut self.leading else { return };
        if matches!(leading.phase, LeadPhase::Installing) {
            self.serve(now, out);
        }
        let Some(leading) = self.leading.as_ref().filter(|leading| leading.is_serving()) else {
            return;
        };
        let counted = leading.count(&self.own);
        if counted > self.own.counted {
            self.own.count(counted);
            // The shard knows what it has recorded itself.
            self.own.applied = counted;
            out.push(Output::Counted { through: counted });
        }
        self.own.drop_stable(leading.stable(&self.own));
    }
}
