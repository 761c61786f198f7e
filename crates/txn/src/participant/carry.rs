//! What a participant still needs from old log files: asked for when they hold up space, and appended again (DTranx §3.4).

use timestone_types::{Timestamp, TxnId, TxnOutcome};

use super::Participant;
use super::table::{Phase, Place};

impl Participant {
    /// The timestamp of a promise that must survive a crash: of a transaction that is prepared, or committed and not yet applied
    /// and logged. `None` when there is none.
    #[must_use]
    pub fn promised(&self, txn: TxnId) -> Option<Timestamp> {
        let Some(Place::Flight(slot)) = self.table.find(txn) else { return None };
        match self.table.record(slot).phase {
            Phase::Prepared { durable: true } | Phase::Committed { .. } => Some(self.table.record(slot).commit),
            Phase::Prepared { durable: false } | Phase::Aborting => None,
        }
    }

    /// Every durable outcome that somebody may still ask for, by transaction.
    #[must_use]
    pub fn kept_outcomes(&self) -> Vec<(TxnId, TxnOutcome)> {
        let outcome = |place| match place {
            Place::Flight(slot) => match self.table.record(slot).phase {
                Phase::Committed { at, logged: true, .. } => Some(TxnOutcome::Committed(at)),
                _ => None,
            },
            Place::Kept(index) => {
                let kept = self.table.kept(index);
                kept.durable.then(|| kept.fate.outcome())
            }
        };
        let mut outcomes: Vec<_> =
            self.table.places().filter_map(|(txn, place)| outcome(place).map(|outcome| (txn, outcome))).collect();
        outcomes.sort_unstable_by_key(|&(txn, _)| txn);
        outcomes
    }

    /// No timestamp at or above it has been served.
    #[must_use]
    pub fn read_bound(&self) -> Timestamp {
        self.bound.durable
    }
}
