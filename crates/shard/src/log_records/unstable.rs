//! Puts that the store may lose with the process: the log keeps their prepares.

use std::collections::VecDeque;

use timestone_wal::BatchNumber;

/// See the module. For each batch that the store counts puts to, the lowest batch with a prepare of
/// one of them; oldest first.
#[derive(Debug, Default)]
pub(crate) struct UnstablePuts(VecDeque<(BatchNumber, BatchNumber)>);

impl UnstablePuts {
    /// Puts whose prepare is in `prepared_in` went into the store, which counts them to a batch.
    pub(crate) fn applied(&mut self, counted_to: BatchNumber, prepared_in: BatchNumber) {
        debug_assert!(prepared_in <= counted_to, "a prepare is not recorded after its puts");
        match self.0.back_mut() {
            Some((batch, lowest)) if *batch == counted_to => *lowest = (*lowest).min(prepared_in),
            _ => self.0.push_back((counted_to, prepared_in)),
        }
    }

    /// The store counts all of them to this batch.
    pub(crate) fn count_all_to(&mut self, batch: BatchNumber) {
        self.0.iter_mut().for_each(|(counted_to, _)| *counted_to = batch);
    }

    /// What the store counts to batches up to this one is durable.
    pub(crate) fn stable(&mut self, through: BatchNumber) {
        while self.0.front().is_some_and(|&(batch, _)| batch <= through) {
            self.0.pop_front();
        }
    }

    /// The lowest batch that is needed for them.
    pub(crate) fn lowest(&self) -> Option<BatchNumber> {
        self.0.iter().map(|&(_, lowest)| lowest).min()
    }
}
