//! The closed timestamp of a backup: up to where it may answer snapshots.
//!
//! ```text
//!   the primary: (epoch, batch n, t) ─► told ── carried out up to n, every put in the store ─► closed = t
//! ```
//! What commits at or below t stands in batches up to n, and nothing more comes there: neither in
//! this epoch, whose primary has counted t as a read of every key, nor in a later one, which begins
//! above the lease of this. So a closed timestamp stays closed, whatever epoch begins. But n numbers
//! batches of the primary's epoch: one that was told and is not reached when another epoch is
//! installed is forgotten.
//!
//! Source: MILANA §4.6; docs/protocol/replication.md, rule P21.

use std::collections::VecDeque;

use timestone_types::{Epoch, Timestamp, is_planted};
use timestone_wal::BatchNumber;

/// What a primary has told.
#[derive(Clone, Copy, Debug)]
struct Told {
    epoch: Epoch,
    through: BatchNumber,
    at: Timestamp,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ClosedTimestamp {
    at: Timestamp,
    /// What waits for its batches, the next one first: two of them, so that a backup which always
    /// lags a little gets on.
    told: VecDeque<Told>,
}

impl ClosedTimestamp {
    /// Snapshots at or below it may be answered.
    pub(super) const fn at(&self) -> Timestamp {
        self.at
    }

    /// The primary of this epoch has closed a timestamp.
    pub(super) fn tell(&mut self, epoch: Epoch, through: BatchNumber, at: Timestamp) {
        if at <= self.at {
            return;
        }
        self.told.truncate(1);
        self.told.push_back(Told { epoch, through, at });
        debug_assert!(self.told.len() <= 2, "one is reached next, and one is the latest");
    }

    /// Everything up to `last` is carried out, in the store if `is_put`, with the table of the epoch
    /// `installed`.
    pub(super) fn follow(&mut self, installed: Epoch, last: BatchNumber, is_put: bool) {
        self.told.retain(|told| told.epoch == installed);
        while let Some(told) = self.told.front() {
            let is_reached = (told.through <= last && is_put) || is_planted!(BackupReadsBehind);
            if !is_reached {
                break;
            }
            self.at = self.at.max(told.at);
            self.told.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    const EPOCH: Epoch = Epoch::new(3);

    #[test]
    fn a_timestamp_is_closed_when_what_belongs_to_it_is_in_the_store() {
        let mut closed = ClosedTimestamp::default();
        closed.tell(EPOCH, BatchNumber::new(7), at(70));
        closed.follow(EPOCH, BatchNumber::new(6), true);
        assert_eq!(closed.at(), Timestamp::ZERO, "a batch is missing");
        closed.follow(EPOCH, BatchNumber::new(7), false);
        assert_eq!(closed.at(), Timestamp::ZERO, "a put waits for room");
        closed.follow(EPOCH, BatchNumber::new(8), true);
        assert_eq!(closed.at(), at(70));
        closed.tell(EPOCH, BatchNumber::new(9), at(60));
        closed.follow(EPOCH, BatchNumber::new(9), true);
        assert_eq!(closed.at(), at(70), "what came late changes nothing");
    }

    #[test]
    fn what_another_epoch_was_told_is_forgotten_and_what_is_closed_stays() {
        let mut closed = ClosedTimestamp::default();
        closed.tell(EPOCH, BatchNumber::new(7), at(70));
        closed.follow(EPOCH, BatchNumber::new(7), true);
        closed.tell(EPOCH, BatchNumber::new(9), at(90));
        closed.follow(Epoch::new(4), BatchNumber::new(9), true);
        assert_eq!(closed.at(), at(70), "its batches up to nine are others");
    }

    #[test]
    fn a_backup_that_always_lags_a_little_gets_on() {
        let mut closed = ClosedTimestamp::default();
        for n in 1..20 {
            closed.tell(EPOCH, BatchNumber::new(n), at(n));
            closed.follow(EPOCH, BatchNumber::new(n.saturating_sub(3)), true);
        }
        assert!(closed.at() >= at(10), "{}", closed.at());
    }
}
