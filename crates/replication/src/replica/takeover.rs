//! How a replica becomes primary of an epoch.
//!
//! ```text
//!   Lead ─► promise ─► Join ─► answers of more than half of the replicas before
//!        ─► table: what those with the highest installed epoch have, up to its first hole (rule P6)
//!        ─► Fetch what is missing here ─► Install at all ─► durable here and at f others ─► Serve (rule P8)
//! ```
//! A batch that counted is in the table: the primary and f others had it, so one of the answers is
//! of a replica that has it; that one had installed the epoch of the batch, and nobody who answers
//! has a later one whose table lacks it. What lies above the first hole never counted: a primary
//! counts in the order of numbers.

use std::collections::{BTreeMap, BTreeSet};

use timestone_types::{Epoch, Timestamp, is_planted};

use super::fetching::Fetching;
use super::followers::Follower;
use super::input::Output;
use super::leading::{LeadPhase, Leading, ask_to_join};
use super::persisting::Persisted;
use super::table::{EpochTable, TableHead};
use super::{Replica, ReplicaId};
use crate::batches::{Batch, Payload};
use crate::limits::MAX_REPLICAS;
use crate::lineage::Lineage;
use crate::message::JoinAnswer;
use crate::number_set::NumberSet;

impl<B: Payload> Replica<B> {
    /// Begins to become primary.
    pub(super) fn lead(
        &mut self,
        now: Timestamp,
        epoch: Epoch,
        (replicas, previous): (&[ReplicaId], Vec<Vec<ReplicaId>>),
        out: &mut Vec<Output<B>>,
    ) {
        assert!(replicas.contains(&self.me), "a primary is one of the replicas");
        assert!(replicas.len() <= MAX_REPLICAS, "replicas of a shard are few");
        if self.leading.as_ref().is_some_and(|leading| leading.epoch == epoch) {
            return;
        }
        if epoch <= self.own.promised && !is_planted!(ReissuesEpoch) {
            return out.push(Output::NeedsEpoch { epoch });
        }
        if epoch > self.own.promised {
            self.promise(epoch, None, out);
        }
        ask_to_join(epoch, &previous, |id| id != self.me, out);
        let others = replicas.iter().filter(|&&id| id != self.me);
        self.leading = Some(Leading {
            me: self.me,
            epoch,
            phase: LeadPhase::Joining { previous, answers: BTreeMap::new() },
            followers: others.map(|&id| Follower::new(id, now)).collect(),
            table: TableHead::default(),
            asked_at: now,
            news_at: now,
        });
    }

    /// A promise is durable: the own one of a candidate, or one that somebody waits for.
    pub(super) fn promise_is_durable(
        &mut self,
        now: Timestamp,
        epoch: Epoch,
        out: &mut Vec<Output<B>>,
    ) {
        if self.leading.is_none() {
            return self.answer(epoch, out);
        }
        // One that does not know what it had leads on nobody's word.
        if self.own.void_since().is_none() {
            let answer = self.what_it_has();
            self.joined(now, (self.me, epoch), answer, out);
        }
        self.merge(now, out);
    }

    /// A replica has joined.
    pub(super) fn joined(
        &mut self,
        now: Timestamp,
        (from, epoch): (ReplicaId, Epoch),
        answer: JoinAnswer,
        out: &mut Vec<Output<B>>,
    ) {
        let Some(leading) = self.leading.as_mut().filter(|leading| leading.epoch == epoch) else {
            return;
        };
        match &mut leading.phase {
            LeadPhase::Joining { previous, answers }
                if previous.iter().flatten().any(|&id| id == from) =>
            {
                if answers.insert(from, answer).is_none() {
                    leading.news_at = now;
                }
                self.merge(now, out);
            }
            LeadPhase::Fetching(fetching) => {
                let is_source = is_source(&answer, &leading.table);
                fetching.answered(now, from, answer, is_source);
                self.fetch_missing(None, out);
            }
            LeadPhase::Joining { .. } | LeadPhase::Installing | LeadPhase::Serving => {}
        }
    }

    /// Makes the table, when enough have answered and the own promise is durable.
    fn merge(&mut self, now: Timestamp, out: &mut Vec<Output<B>>) {
        let Some(leading) = &mut self.leading else { return };
        let epoch = leading.epoch;
        let LeadPhase::Joining { previous, answers } = &mut leading.phase else { return };
        let base = base_of(answers).map_or(Epoch::ZERO, Lineage::installed);
        let counts =
            |id: &&ReplicaId| answers.get(id).is_some_and(|answer| answer.counts_above(base));
        let is_enough =
            |replicas: &Vec<ReplicaId>| replicas.iter().filter(counts).count() > replicas.len() / 2;
        if !previous.iter().all(is_enough) || self.persisting.holds(Persisted::Promise(epoch)) {
            return;
        }
        let (answers, previous) = (std::mem::take(answers), std::mem::take(previous));
        let table = EpochTable::new(epoch, table_of(&answers, self.own.lease));
        let mut others: BTreeSet<ReplicaId> = previous.into_iter().flatten().collect();
        others.remove(&self.me);
        let sources = answers
            .iter()
            .filter(|(id, answer)| others.contains(id) && is_source(answer, &table.head));
        let sources = sources.map(|(&id, _)| id).collect();
        let fetching = Fetching::new(now, epoch, others, answers, sources);
        (leading.phase, leading.table) = (LeadPhase::Fetching(fetching), table.head.clone());
        self.table = Some(table);
        self.fetch_missing(None, out);
        self.install_everywhere(now, out);
    }

    /// Asks for batches of the table that are missing here; `ticked` when time has passed.
    pub(super) fn fetch_missing(&mut self, ticked: Option<Timestamp>, out: &mut Vec<Output<B>>) {
        let (Some(leading), Some(table)) = (&mut self.leading, &self.table) else { return };
        let LeadPhase::Fetching(fetching) = &mut leading.phase else { return };
        let (received, through) = (table.received(&self.own), table.head.through);
        let is_to_be_had = match ticked {
            Some(now) => fetching.tick(now, &received, through, out),
            None => fetching.ask(&received, through, out),
        };
        if !is_to_be_had {
            let epoch = leading.epoch;
            (self.leading, self.table) = (None, None);
            out.push(Output::CannotLead { epoch });
        }
    }

    /// A batch that was fetched.
    pub(super) fn fetched(
        &mut self,
        now: Timestamp,
        epoch: Epoch,
        batch: Batch<B>,
        out: &mut Vec<Output<B>>,
    ) {
        let Some(leading) = self.leading.as_mut().filter(|leading| leading.epoch == epoch) else {
            return;
        };
        let LeadPhase::Fetching(fetching) = &mut leading.phase else { return };
        let Some(table) = &mut self.table else { return };
        if table.take(&batch, &self.own) {
            fetching.has_come(now);
            let what = Persisted::Batch { number: batch.number, epoch: batch.epoch };
            self.persist(what, super::Entry::Batch(batch), out);
            self.install_everywhere(now, out);
        }
    }

    /// Tells all replicas of the table, once all of it is here.
    pub(super) fn install_everywhere(&mut self, now: Timestamp, out: &mut Vec<Output<B>>) {
        let (Some(leading), Some(table)) = (&mut self.leading, &self.table) else { return };
        if !matches!(leading.phase, LeadPhase::Fetching(_)) || !table.is_here(&self.own) {
            return;
        }
        (leading.phase, leading.news_at) = (LeadPhase::Installing, now);
        for follower in &mut leading.followers {
            follower.heard(now);
            let message = leading.table.message(leading.epoch);
            out.push(Output::Send { to: follower.id, message });
        }
        self.complete_table(out);
    }

    /// Serves, when the table is durable here and at enough others.
    pub(super) fn serve(&mut self, now: Timestamp, out: &mut Vec<Output<B>>) {
        let Some(leading) = &mut self.leading else { return };
        let is_here = self.own.installed() == leading.epoch || is_planted!(ServesWithoutOwnCopy);
        if !is_here || !leading.is_installed() {
            return;
        }
        if is_planted!(ServesWithoutOwnCopy)
            && let Some(table) = self.table.take()
        {
            table.settle(&mut self.own);
        }
        let own = &mut self.own;
        own.count(own.lineage.table_end());
        own.apply(out);
        assert_eq!(
            own.applied,
            own.lineage.table_end(),
            "all of the table was handed out before it serves"
        );
        (leading.phase, leading.news_at) = (LeadPhase::Serving, now);
        leading.followers.iter_mut().for_each(|follower| follower.heard(now));
        let (epoch, through, floor) = (leading.epoch, own.lineage.table_end(), own.lease);
        out.push(Output::Serve { epoch, through, floor });
    }
}

/// The highest lineage in these answers: the table rests on its last epoch.
fn base_of(answers: &BTreeMap<ReplicaId, JoinAnswer>) -> Option<&Lineage> {
    let known = answers.values().filter(|answer| answer.void_since.is_none());
    known.map(|answer| &answer.lineage).max_by_key(|one| one.installed())
}

/// What counts from now on, by these answers.
fn table_of(answers: &BTreeMap<ReplicaId, JoinAnswer>, own_lease: Timestamp) -> TableHead {
    let based_on = base_of(answers).cloned().unwrap_or_default();
    let mut head = TableHead { based_on, ..TableHead::default() };
    let mut has = NumberSet::default();
    for answer in answers.values().filter(|answer| is_source(answer, &head)) {
        has.add(&answer.has);
    }
    head.through = has.prefix();
    // Leases count from every answer (rule P6).
    let floor = answers.values().map(|answer| answer.lease).max().unwrap_or_default();
    head.floor = floor.max(own_lease);
    head
}

/// Whether what a replica has is valid in a table: what others have above their own, older tables
/// may have been cut.
fn is_source(answer: &JoinAnswer, table: &TableHead) -> bool {
    let is_known = answer.void_since.is_none();
    is_known && (answer.lineage == table.based_on || is_planted!(MergesOldTables))
}
