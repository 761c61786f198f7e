//! A replica that lacks batches which nobody keeps any more: it gives up all that it has, and takes a
//! checkpoint.
//!
//! ```text
//!   NeedsCheckpoint ─► mark: everything before is void ─► durable ─► TakeCheckpoint
//!     ─► the host empties the store, and fills it ─► Rebased ─► the table of the epoch is installed
//! ```
//! One that has lost its log or its store begins in the same way, and one whose place others have:
//! nobody asks it for what it has.
//!
//! What it has acknowledged it does not have any more. It remembers what that was, and answers
//! candidates by that: none makes a table without it. It hands out none of it. So where another
//! replica has everything, that one can lead, whoever else takes a checkpoint. One that has lost its
//! log does not know, and answers nobody before it is rebuilt (rule P16).
//!
//! A primary that gives it a checkpoint forgets what it has said before: by the number of the
//! checkpoint, which is in every acknowledgement from then on. So what counted by its word is in that
//! checkpoint, or was counted by others (rule P18). The checkpoint is from a primary of the epoch
//! that it had installed or a later one: one that was deposed before does not know what it has
//! acknowledged since.
//!
//! A candidate that installs its table gives checkpoints of what counts already: else nobody could
//! serve where just one replica has that. Its table brings the rest. The leases that the taker had
//! granted are in the mark; what they were, if it has lost that, lies below the read bound in the
//! checkpoint. A restart before the end begins anew.

use timestone_types::{Epoch, Timestamp, is_planted};
use timestone_wal::BatchNumber;

use super::input::{Entry, GivenUp, Output};
use super::leading::Leading;
use super::persisting::Persisted;
use super::table::EpochTable;
use super::{Own, Replica, ReplicaId};
use crate::batches::{Batches, Payload};
use crate::lineage::Lineage;
use crate::number_set::NumberSet;

impl<B: Payload> Replica<B> {
    /// The primary keeps nothing up to this batch.
    pub(super) fn needs_checkpoint(
        &mut self,
        (from, epoch): (ReplicaId, Epoch),
        held_above: BatchNumber,
        out: &mut Vec<Output<B>>,
    ) {
        let is_told = self.leading.is_none() && self.own.promised == epoch;
        if !is_told || *self.primary.get_or_insert(from) != from || self.own.emptied {
            return;
        }
        let own = &self.own;
        let received = match &self.table {
            Some(table) if table.epoch == epoch => table.received(own).prefix(),
            _ if own.installed() == epoch => own.received.prefix(),
            // It has to hear of the table first.
            _ => return,
        };
        if received >= held_above {
            // This comes late.
            return;
        }
        self.give_up(out);
    }

    /// Others have its place since this epoch.
    pub(super) fn replaced(&mut self, by: Epoch, out: &mut Vec<Output<B>>) {
        if self.leading.as_ref().is_some_and(|leading| leading.epoch() < by) {
            self.step_down(by, out);
        }
        self.give_up(out);
    }

    /// Everything here is void from now on.
    pub(super) fn give_up(&mut self, out: &mut Vec<Output<B>>) {
        if self.own.emptied || self.leading.is_some() {
            return;
        }
        let own = &mut self.own;
        let given_up = match own.lost_before {
            Some(_) => own.given_up.take(),
            None => {
                let (lineage, had) = (own.lineage.clone(), own.durable.clone());
                Some(GivenUp { lineage, had })
            }
        };
        self.own = Own {
            promised: own.promised,
            lineage: Lineage::default(),
            lease: own.lease,
            batches: Batches::above(BatchNumber::ZERO),
            received: NumberSet::default(),
            durable: NumberSet::default(),
            counted: BatchNumber::ZERO,
            applied: BatchNumber::ZERO,
            lost_before: own.lost_before.max(Some(own.installed())),
            given_up,
            emptied: true,
            session: own.session,
        };
        // What was sent of the table is void as well.
        let table = self.table.take();
        self.table = table.map(|table| EpochTable::new(table.epoch, table.head));
        if is_planted!(GivesUpInSilence) {
            return self.take_checkpoint(out);
        }
        let mark = Entry::Mark(self.own.mark());
        self.persist(Persisted::Emptied, mark, out);
    }

    /// Asks for a checkpoint; its log says that everything is void.
    pub(super) fn take_checkpoint(&self, out: &mut Vec<Output<B>>) {
        if self.own.emptied {
            out.push(Output::TakeCheckpoint);
        }
    }

    /// A checkpoint brought everything up to this batch, durably.
    pub(super) fn rebased(
        &mut self,
        now: Timestamp,
        (epoch, through): (Epoch, BatchNumber),
        (lease, session): (Timestamp, u64),
        out: &mut Vec<Output<B>>,
    ) {
        if self.leading.as_ref().is_some_and(|leading| leading.epoch() < epoch) {
            // A later primary has served; this one has not heard of it.
            self.step_down(epoch, out);
        }
        if self.leading.as_ref().is_some_and(Leading::is_serving) {
            // All that counted before its epoch is in its table, and the rest is its own.
            return;
        }
        if self.own.emptied {
            if Some(epoch) < self.own.lost_before && !is_planted!(RebuildsFromDeposed) {
                // A primary that was deposed may not have what this one has acknowledged since.
                return self.take_checkpoint(out);
            }
            (self.own.emptied, self.own.session) = (false, session);
            if epoch > self.own.promised && !is_planted!(StaysInOldEpoch) {
                // No primary before can know what this one has acknowledged to it.
                self.enter(epoch, None, out);
            }
        }
        let own = &mut self.own;
        if through > own.applied {
            own.lease = own.lease.max(lease);
            own.count(through);
            own.applied = through;
            own.durable.add(&NumberSet::through(through));
            own.received.add(&NumberSet::through(through));
            own.batches.drop_through(through);
            own.apply(out);
        }
        match &self.leading {
            Some(_) => self.install_everywhere(now, out),
            None => self.complete_table(out),
        }
        if let Some(primary) = self.primary {
            self.probe(primary, self.own.promised, out);
        }
    }
}
