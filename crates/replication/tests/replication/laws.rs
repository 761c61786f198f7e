//! What must hold whatever happens.

use std::collections::BTreeMap;

use timestone_replication::ReplicaId;
use timestone_types::{Epoch, Timestamp};
use timestone_wal::BatchNumber;

/// What has happened, by those who see everything.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Laws {
    /// What primaries have written.
    written: BTreeMap<(Epoch, BatchNumber), (u64, Timestamp)>,
    /// What counts, by number.
    canon: BTreeMap<BatchNumber, u64>,
    /// The tables of epochs that served: their last batch and their floor.
    tables: BTreeMap<Epoch, (BatchNumber, Timestamp)>,
    /// The highest lease that the primary of an epoch was granted.
    leases: BTreeMap<Epoch, Timestamp>,
}

impl Laws {
    pub(crate) fn written(&mut self, at: (Epoch, BatchNumber), content: u64, lease: Timestamp) {
        let before = self.written.insert(at, (content, lease));
        assert!(before.is_none(), "a primary writes each number once");
    }

    /// A primary says that its batch counts: it is in every table from now on, and was in those of
    /// later epochs; a lease in it lies below the floors of those.
    pub(crate) fn counted(&mut self, epoch: Epoch, number: BatchNumber) -> u64 {
        let &(content, lease) = self.written.get(&(epoch, number)).expect("it was written");
        self.is_canon(number, content);
        let held = self.leases.entry(epoch).or_default();
        *held = (*held).max(lease);
        for (later, (through, floor)) in self.tables.range(epoch..).filter(|(at, _)| **at > epoch) {
            assert!(number <= *through, "batch {number} of {epoch} is not in the table of {later}");
            assert!(lease <= *floor, "the floor of {later} lies below a lease of {epoch}");
        }
        content
    }

    fn is_canon(&mut self, number: BatchNumber, content: u64) {
        let known = *self.canon.entry(number).or_insert(content);
        assert_eq!(known, content, "two batches count as number {number}");
    }

    /// An epoch's primary begins to serve.
    pub(crate) fn serves(
        &mut self,
        (epoch, id): (Epoch, ReplicaId),
        applied: &[u64],
        floor: Timestamp,
    ) {
        for (number, &content) in (1..).zip(applied) {
            self.is_canon(BatchNumber::new(number), content);
        }
        let through = BatchNumber::new(applied.len() as u64);
        let last = self.canon.keys().next_back().copied().unwrap_or_default();
        let earlier = self.tables.range(..epoch).next_back();
        let is_latest = self.tables.range(epoch..).next().is_none();
        assert!(
            !is_latest || last <= through,
            "{id} serves in {epoch} without batch {last}, which counts"
        );
        assert!(earlier.is_none_or(|(_, (before, _))| *before <= through));
        for (before, lease) in self.leases.range(..epoch) {
            assert!(*lease <= floor, "the floor of {epoch} lies below a lease of {before}");
        }
        let before = self.tables.insert(epoch, (through, floor));
        assert!(before.is_none(), "two primaries serve in {epoch}");
    }

    /// A replica has carried a batch out.
    pub(crate) fn carried_out(&self, id: ReplicaId, number: BatchNumber, content: u64) {
        assert_eq!(
            self.canon.get(&number),
            Some(&content),
            "{id} has carried out batch {number}, which does not count"
        );
    }

    /// How many batches count.
    pub(crate) fn count(&self) -> usize {
        self.canon.len()
    }
}
