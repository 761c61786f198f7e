//! The table of a new epoch while a replica installs it: all batches that count from then on.
//!
//! What the replica has already is kept beside what it is sent, and replaced by it in one step when
//! all of it is durable: until then its answers tell of the old epoch.

use std::collections::BTreeMap;

use timestone_types::{Epoch, Timestamp};
use timestone_wal::BatchNumber;

use super::Own;
use crate::batches::{Batch, Payload};
use crate::lineage::Lineage;
use crate::message::Message;
use crate::number_set::NumberSet;

/// What a replica has to know to install a table.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct TableHead {
    /// Replicas of this lineage have valid batches, and none that the table lacks counts.
    pub(super) based_on: Lineage,
    /// The last batch.
    pub(super) through: BatchNumber,
    /// The highest lease of earlier epochs.
    pub(super) floor: Timestamp,
}

impl TableHead {
    /// Tells a replica of the table of this epoch.
    pub(super) fn message<B>(&self, epoch: Epoch) -> Message<B> {
        let Self { based_on, through, floor } = self.clone();
        Message::Install { epoch, based_on, through, floor }
    }
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct EpochTable<B> {
    /// The new epoch.
    pub(super) epoch: Epoch,
    pub(super) head: TableHead,
    incoming: BTreeMap<BatchNumber, Batch<B>>,
    /// Their numbers.
    sent: NumberSet,
    durable: NumberSet,
    /// Everything is there; its mark is on the way to the log.
    pub(super) is_complete: bool,
}

impl<B: Payload> EpochTable<B> {
    pub(super) fn new(epoch: Epoch, head: TableHead) -> Self {
        let (incoming, sent, durable) = Default::default();
        Self { epoch, head, incoming, sent, durable, is_complete: false }
    }

    /// Up to where what a replica has is part of the table, whatever else it has.
    fn valid(&self, own: &Own<B>) -> BatchNumber {
        if timestone_types::is_planted!(KeepsCutBatches) {
            return self.head.through;
        }
        let agreed = own.lineage.agrees_up_to(&self.head.based_on).unwrap_or_default();
        agreed.max(own.counted).min(self.head.through)
    }

    /// The lineage of whoever has installed it.
    pub(super) fn lineage(&self) -> Lineage {
        self.head.based_on.followed_by(self.epoch, self.head.through)
    }

    /// What a replica has durably of the table.
    pub(super) fn durable(&self, own: &Own<B>) -> NumberSet {
        let mut durable = own.durable.clone();
        durable.cut(self.valid(own));
        durable.add(&self.durable);
        durable
    }

    /// What a replica was sent of the table.
    pub(super) fn received(&self, own: &Own<B>) -> NumberSet {
        let mut received = own.received.clone();
        received.cut(self.valid(own));
        received.add(&self.sent);
        received
    }

    /// Whether a batch of the table is new to a replica, and it has room; it is taken then. Nothing is
    /// before a checkpoint has come that the replica waits for.
    pub(super) fn take(&mut self, batch: &Batch<B>, own: &Own<B>) -> bool {
        let is_known = batch.number > self.head.through
            || (batch.number <= self.valid(own) && own.received.contains(batch.number))
            || self.incoming.contains_key(&batch.number);
        // What would make too many holes is sent again when there are fewer.
        let takes = !own.emptied
            && !is_known
            && (self.sent.has_room_for(batch.number)
                || self.received(own).has_room_for(batch.number));
        if takes {
            assert!(batch.epoch < self.epoch, "a table is made of earlier epochs");
            self.incoming.insert(batch.number, batch.clone());
            self.sent.insert(batch.number);
        }
        takes
    }

    /// A batch is durable; whether it is one of those that were sent for the table.
    pub(super) fn persisted(&mut self, number: BatchNumber, epoch: Epoch) -> bool {
        let is_ours = self.incoming.get(&number).is_some_and(|batch| batch.epoch == epoch);
        if is_ours {
            self.durable.insert(number);
        }
        is_ours
    }

    /// A batch of the table, if it is here.
    pub(super) fn get<'a>(&'a self, number: BatchNumber, own: &'a Own<B>) -> Option<&'a Batch<B>> {
        let valid = self.valid(own);
        let of_own = || own.batches.get(number).filter(|_| number <= valid);
        self.incoming.get(&number).or_else(of_own)
    }

    /// Whether all of it is here, with the checkpoint that the replica may wait for.
    pub(super) fn is_here(&self, own: &Own<B>) -> bool {
        !own.emptied && self.received(own).prefix() >= self.head.through
    }

    /// All of it is durable: it is what the replica has from now on.
    pub(super) fn settle(self, own: &mut Own<B>) {
        // A checkpoint may have brought more than the table: batches of its own epoch.
        let end = self.head.through.max(own.batches.base());
        assert!(own.counted <= end, "batches that count are never cut");
        let valid = self.valid(own).max(own.counted);
        own.batches.cut(valid);
        own.received.cut(valid);
        own.durable.cut(valid);
        own.durable.add(&self.durable);
        own.lineage = self.lineage();
        own.lease = own.lease.max(self.head.floor);
        for (_, batch) in self.incoming {
            own.take(batch);
        }
        assert_eq!(own.durable, NumberSet::through(end), "a table has no holes");
        (own.lost_before, own.given_up) = (None, None);
    }
}
