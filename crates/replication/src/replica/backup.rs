//! A replica as a backup: it promises, installs tables, stores batches and says what it has.

use timestone_types::{Epoch, is_planted};
use timestone_wal::BatchNumber;

use super::input::{Entry, GivenUp, Mark, Output};
use super::persisting::Persisted;
use super::table::EpochTable;
use super::{Replica, ReplicaId};
use crate::batches::{Batch, Payload};
use crate::limits::FETCHED_BYTES;
use crate::message::{JoinAnswer, Message};
use crate::number_set::NumberSet;

impl<B: Payload> Replica<B> {
    /// Somebody wants to lead an epoch that is not below the promised one.
    pub(super) fn join(&mut self, from: ReplicaId, epoch: Epoch, out: &mut Vec<Output<B>>) {
        if epoch > self.own.promised {
            self.promise(epoch, Some(from), out);
        } else if self.leading.is_none() && *self.primary.get_or_insert(from) == from {
            // Asked again: the answer may be lost.
            self.answer(epoch, out);
        }
    }

    /// Lower epochs are refused from now on.
    pub(super) fn promise(
        &mut self,
        epoch: Epoch,
        primary: Option<ReplicaId>,
        out: &mut Vec<Output<B>>,
    ) {
        self.enter(epoch, primary, out);
        let entry = Entry::Mark(self.own.mark());
        self.persist(Persisted::Promise(epoch), entry, out);
    }

    /// Another epoch has begun.
    pub(super) fn enter(
        &mut self,
        epoch: Epoch,
        primary: Option<ReplicaId>,
        out: &mut Vec<Output<B>>,
    ) {
        assert!(epoch > self.own.promised, "promises only rise");
        self.step_down(epoch, out);
        (self.own.promised, self.primary, self.table) = (epoch, primary, None);
    }

    /// Answers the candidate, once the promise is durable.
    pub(super) fn answer(&mut self, epoch: Epoch, out: &mut Vec<Output<B>>) {
        let Some(to) = self.primary else { return };
        if self.persisting.holds(Persisted::Promise(epoch)) {
            return;
        }
        let answer = self.what_it_has();
        out.push(Output::Send { to, message: Message::Joined { epoch, answer } });
    }

    /// As it answers a candidate.
    pub(super) fn what_it_has(&self) -> JoinAnswer {
        let own = &self.own;
        let (lease, void_since) = (own.lease, own.void_since());
        if void_since.is_some() {
            // Nothing, whatever a checkpoint has brought since: it has acknowledged none of that.
            let (lineage, has, held_above) = Default::default();
            return JoinAnswer { lineage, lease, has, held_above, void_since };
        }
        match own.given_up.clone().filter(|_| !is_planted!(ForgetsWhatItGaveUp)) {
            Some(GivenUp { lineage, had }) => {
                let held_above = had.last();
                JoinAnswer { lineage, lease, has: had, held_above, void_since }
            }
            None => JoinAnswer {
                lineage: own.lineage.clone(),
                lease,
                has: own.durable.clone(),
                held_above: own.batches.base(),
                void_since,
            },
        }
    }

    /// A candidate lacks these.
    pub(super) fn fetch(
        &mut self,
        from: ReplicaId,
        epoch: Epoch,
        runs: &[(BatchNumber, BatchNumber)],
        out: &mut Vec<Output<B>>,
    ) {
        if self.own.promised != epoch || self.leading.is_some() {
            return;
        }
        let mut lacking = runs.iter().fold(0u64, |sum, &(first, last)| {
            sum.saturating_add(last.next().get().saturating_sub(first.get()))
        });
        let mut bytes = 0;
        for batch in self.own.batches.iter() {
            let number = batch.number;
            let is_wanted = runs.iter().any(|&(first, last)| first <= number && number <= last);
            if is_wanted && self.own.durable.contains(number) {
                let is_first = bytes == 0;
                bytes += batch.payload.bytes();
                if bytes > FETCHED_BYTES && !is_first && !is_planted!(AnswersFetchWhole) {
                    break;
                }
                let message = Message::Fetched { epoch, batch: batch.clone() };
                out.push(Output::Send { to: from, message });
                lacking = lacking.saturating_sub(1);
            }
        }
        // It may have started anew since it answered, and hold less. What is behind the bound is asked
        // for when that comes.
        if lacking > 0 && *self.primary.get_or_insert(from) == from {
            self.answer(epoch, out);
        }
    }

    /// The table of an epoch is to be installed.
    pub(super) fn install(
        &mut self,
        from: ReplicaId,
        table: EpochTable<B>,
        out: &mut Vec<Output<B>>,
    ) {
        let epoch = table.epoch;
        if epoch > self.own.promised {
            self.enter(epoch, Some(from), out);
        } else if self.leading.is_some() {
            return;
        }
        self.primary = Some(from);
        let is_new = self.table.as_ref().is_none_or(|known| known.epoch < epoch);
        if self.own.installed() < epoch && is_new {
            self.table = Some(table);
            self.complete_table(out);
        }
        self.probe(from, epoch, out);
    }

    /// Makes a table durable when all of it is here. The log keeps the order: when the mark is
    /// durable, the batches are.
    pub(super) fn complete_table(&mut self, out: &mut Vec<Output<B>>) {
        let Some(table) = &mut self.table else { return };
        if table.is_complete || !table.is_here(&self.own) {
            return;
        }
        table.is_complete = true;
        let epoch = table.epoch;
        let own = self.own.mark();
        let lease = own.lease.max(table.head.floor);
        let (lineage, lost_before, given_up) = (table.lineage(), None, None);
        let mark = Mark { lineage, lease, lost_before, given_up, ..own };
        self.persist(Persisted::Table(epoch), Entry::Mark(mark), out);
        if is_planted!(AcksBeforeInstall) && self.leading.is_none() {
            self.table_is_durable(epoch);
        }
    }

    /// A table's mark is durable, and with it all of its batches.
    pub(super) fn table_is_durable(&mut self, epoch: Epoch) {
        if let Some(table) = self.table.take_if(|table| table.epoch == epoch && table.is_complete) {
            table.settle(&mut self.own);
        }
    }

    /// A batch of the epoch's primary.
    pub(super) fn store(
        &mut self,
        from: ReplicaId,
        epoch: Epoch,
        batch: Batch<B>,
        out: &mut Vec<Output<B>>,
    ) {
        if self.leading.is_some() {
            return;
        }
        let what = Persisted::Batch { number: batch.number, epoch: batch.epoch };
        if self.own.installed() == epoch {
            self.primary = Some(from);
            // What would make too many holes is sent again when there are fewer.
            let received = &self.own.received;
            if received.contains(batch.number) || !received.has_room_for(batch.number) {
                return;
            }
            self.persist(what, Entry::Batch(batch.clone()), out);
            let number = batch.number;
            self.own.take(batch);
            if is_planted!(AcksBeforeLog | AcceptsOldEpoch) {
                let mut durable = self.own.durable.clone();
                durable.insert(number);
                let (counted, session, received) = (self.own.counted, self.own.session, None);
                let installed = true;
                let message =
                    Message::Acked { epoch, installed, counted, session, durable, received };
                out.push(Output::Send { to: from, message });
            }
            return;
        }
        // Whoever has not heard of the epoch's table is asked by the primary, and told of it.
        let table = self.table.as_mut().filter(|table| table.epoch == epoch);
        if table.is_some_and(|table| table.take(&batch, &self.own)) {
            self.persist(what, Entry::Batch(batch), out);
            self.complete_table(out);
        }
    }

    /// What the primary says of all replicas.
    pub(super) fn told(
        &mut self,
        epoch: Epoch,
        (counted, stable): (BatchNumber, BatchNumber),
        out: &mut Vec<Output<B>>,
    ) {
        // What is here above an older table may be no part of what counts.
        if self.own.installed() != epoch || self.leading.is_some() {
            return;
        }
        self.own.count_received(counted);
        self.own.apply(out);
        self.own.drop_stable(stable);
    }

    /// Says what is here.
    pub(super) fn probe(&self, from: ReplicaId, epoch: Epoch, out: &mut Vec<Output<B>>) {
        let own = &self.own;
        let installed = own.installed() == epoch;
        let (durable, received) = match &self.table {
            _ if installed => (own.durable.clone(), Some(own.received.clone())),
            Some(table) if table.epoch == epoch => (table.durable(own), Some(table.received(own))),
            _ => (NumberSet::default(), None),
        };
        let (counted, session) = (own.counted, own.session);
        let message = Message::Acked { epoch, installed, counted, session, durable, received };
        out.push(Output::Send { to: from, message });
    }

    /// Says that more is durable.
    pub(super) fn acknowledge(&self, out: &mut Vec<Output<B>>) {
        let Some(to) = self.primary else { return };
        let own = &self.own;
        if own.installed() != own.promised {
            return;
        }
        let (epoch, counted, durable) = (own.promised, own.counted, own.durable.clone());
        let (installed, session, received) = (true, own.session, None);
        let message = Message::Acked { epoch, installed, counted, session, durable, received };
        out.push(Output::Send { to, message });
    }

    /// Hands something to the log.
    pub(super) fn persist(&mut self, what: Persisted, entry: Entry<B>, out: &mut Vec<Output<B>>) {
        let ticket = self.persisting.push(what);
        out.push(Output::Persist { ticket, entry });
    }
}
