//! Whether what the logs hold of a shard fits together: its records are numbered on from batch to
//! batch, whichever thread's log took them, and its epoch never falls.
//!
//! Each log checks itself; this looks over all of them. Logs are replayed one after the other, so
//! runs of batches are collected and compared at the end. A shard changes its log only with the
//! number of threads, so that runs are few.

use timestone_types::Epoch;
use timestone_wal::{BatchNumber, RecordNumber};

/// Where a record stands among those of its shard.
#[derive(Clone, Copy, Debug)]
pub struct RecordPlace {
    /// The batch that it came in.
    pub batch: BatchNumber,
    /// The shard's epoch when it was written.
    pub epoch: Epoch,
    /// Its number among the records of the shard.
    pub number: RecordNumber,
}

/// Records with successive numbers, of one epoch, in successive batches of one log.
#[derive(Clone, Copy, Debug)]
struct RecordRun {
    first: RecordPlace,
    last: RecordPlace,
}

impl RecordRun {
    fn takes(&self, next: RecordPlace) -> bool {
        let last = self.last;
        next.number == last.number.plus(1)
            && next.epoch == last.epoch
            && (next.batch == last.batch || next.batch == last.batch.next())
    }

    /// Whether its last record may be in one run with its first.
    fn is_sound(&self) -> bool {
        let Self { first, last } = self;
        first.number <= last.number && first.batch <= last.batch && first.epoch == last.epoch
    }

    /// Whether `next` may come right after this run; what lies between may have left the logs.
    fn may_precede(&self, next: &Self) -> bool {
        let (last, next) = (self.last, next.first);
        let successive = next.batch != last.batch.next() || next.number == last.number.plus(1);
        next.batch > last.batch
            && next.number > last.number
            && next.epoch >= last.epoch
            && successive
    }
}

/// What was seen of one shard.
#[derive(Debug, Default)]
pub(crate) struct RecordOrder {
    runs: Vec<RecordRun>,
}

impl RecordOrder {
    /// Takes the next record of the log that is being replayed.
    pub(crate) fn take(&mut self, next: RecordPlace) {
        match self.runs.last_mut() {
            Some(run) if run.takes(next) => run.last = next,
            _ => self.runs.push(RecordRun { first: next, last: next }),
        }
        debug_assert!(
            self.runs.last().is_some_and(RecordRun::is_sound),
            "a run goes on from its first"
        );
    }

    /// The last record of all logs, if there is any.
    pub(crate) fn last(&self) -> Option<RecordPlace> {
        self.runs.iter().map(|run| run.last).max_by_key(|last| last.batch)
    }

    /// Whether it all fits together; `epoch` is the one that the master gave the shard.
    ///
    /// # Errors
    /// What does not fit, in words.
    pub(crate) fn check(&self, epoch: Epoch) -> Result<(), String> {
        let mut runs = self.runs.clone();
        runs.sort_by_key(|run| run.first.batch);
        if let Some(pair) = runs.windows(2).find(|pair| !pair[0].may_precede(&pair[1])) {
            let (last, next) = (pair[0].last, pair[1].first);
            return Err(format!(
                "record {} of batch {} (epoch {}) does not follow record {} of batch {} (epoch {})",
                next.number, next.batch, next.epoch, last.number, last.batch, last.epoch
            ));
        }
        match runs.last() {
            Some(run) if run.last.epoch > epoch => Err(format!(
                "it was written in epoch {}, and the master says that the shard is in epoch {epoch}",
                run.last.epoch
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(records: &[(u64, u32, u64)]) -> RecordOrder {
        let mut order = RecordOrder::default();
        for &(batch, epoch, number) in records {
            let (batch, number) = (BatchNumber::new(batch), RecordNumber::new(number));
            order.take(RecordPlace { batch, epoch: Epoch::new(epoch), number });
        }
        order
    }

    #[test]
    fn what_a_shard_wrote_to_several_logs_is_one_row_of_records() {
        let one = order(&[
            (7, 2, 40),
            (8, 2, 41),
            (8, 2, 42),
            (1, 1, 3),
            (1, 1, 4),
            (2, 1, 5),
            (3, 2, 6),
            (5, 2, 20),
        ]);
        one.check(Epoch::new(2)).unwrap();
        assert_eq!(one.last().unwrap().number.get(), 42);
        assert!(one.check(Epoch::new(1)).is_err(), "the master is behind");
        order(&[]).check(Epoch::new(0)).unwrap();
    }

    #[test]
    fn gaps_between_successive_batches_and_falling_epochs_are_refused() {
        for wrong in [
            &[(1, 1, 1), (2, 1, 3)][..],
            &[(1, 1, 1), (2, 1, 1)],
            &[(1, 1, 1), (1, 1, 3)],
            &[(1, 2, 1), (2, 1, 2)],
            &[(5, 1, 9), (1, 1, 9)],
        ] {
            assert!(order(wrong).check(Epoch::new(2)).is_err(), "{wrong:?}");
        }
    }
}
