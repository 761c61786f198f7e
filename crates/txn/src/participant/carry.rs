//! What a participant still needs from old log files: asked for when they hold up space, and
//! appended again (DTranx §3.4).

use timestone_types::{AbortKind, PreviousFound, ShardId, Timestamp, TxnId, TxnOutcome};

use super::Participant;
use super::table::{Fate, Phase, Place, Record};
use crate::validation::Validation;

/// A durable outcome that somebody may still ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptOutcome<'a> {
    /// Whose.
    pub txn: TxnId,
    /// Its snapshot.
    pub begin: Timestamp,
    /// What became of it.
    pub outcome: TxnOutcome,
    /// Why, when it was aborted.
    pub abort: Option<AbortKind>,
    /// What a single-key write found.
    pub found: PreviousFound,
    /// The timestamp of the version that a condition met which did not hold; zero otherwise.
    pub met: Timestamp,
    /// Of a commit over several shards: all of them. They must come back after a crash, or nobody
    /// could tell one that still waits for the decision.
    pub participants: &'a [ShardId],
}

/// A promise that must survive a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptPromise {
    /// Its timestamp; of one that is moving, the later one.
    pub commit: Timestamp,
    /// It is committed, and the decision is on its way to the log: without it, a promise that is
    /// appended behind it could outlive it.
    pub is_decided: bool,
    /// What a single-key write found.
    pub found: PreviousFound,
}

impl<V: Validation> Participant<V> {
    /// The timestamp that a transaction is promised at, or committed and not yet applied and
    /// logged. `None` when it is neither.
    #[must_use]
    pub fn promised(&self, txn: TxnId) -> Option<Timestamp> {
        self.kept_record(txn).map(|record| record.commit)
    }

    /// What must survive a crash of what [`Self::promised`] tells.
    #[must_use]
    pub fn kept_promise(&self, txn: TxnId) -> Option<KeptPromise> {
        let record = self.kept_record(txn)?;
        let found = record.found;
        Some(match record.phase {
            Phase::Committed { logged, .. } => {
                KeptPromise { commit: record.commit, is_decided: !logged, found }
            }
            _ => KeptPromise {
                commit: record.moving_to.unwrap_or(record.commit),
                is_decided: false,
                found,
            },
        })
    }

    fn kept_record(&self, txn: TxnId) -> Option<&Record> {
        let Some(Place::Flight(slot)) = self.table.find(txn) else { return None };
        let record = self.table.record(slot);
        match record.phase {
            Phase::Prepared { durable: true } | Phase::Committed { .. } => Some(record),
            Phase::Prepared { durable: false } | Phase::Aborting => None,
        }
    }

    /// Whether a prepare of the transaction would be looked at as a new one. If not, it may be a
    /// repeated one of a transaction that has been promised, or committed, and must be answered by
    /// the core and nobody else.
    #[must_use]
    pub fn is_new(&self, txn: TxnId, begin: Timestamp) -> bool {
        self.table.find(txn).is_none()
            && !self.is_acked(txn)
            && begin >= self.watermark
            && begin >= self.pledged_watermark
    }

    /// Every durable outcome that somebody may still ask for, by transaction.
    #[must_use]
    pub fn kept_outcomes(&self) -> Vec<KeptOutcome<'_>> {
        let outcome = |txn, place| match place {
            Place::Flight(slot) => {
                let record = self.table.record(slot);
                let Phase::Committed { at, logged: true, .. } = record.phase else { return None };
                let participants =
                    if record.single { &[][..] } else { record.participants.as_slice() };
                let (begin, outcome) = (record.begin, TxnOutcome::Committed(at));
                let (found, met) = (record.found, Timestamp::ZERO);
                Some(KeptOutcome { txn, begin, outcome, abort: None, found, met, participants })
            }
            Place::Kept(index) => {
                let kept = self.table.kept(index);
                let (abort, met, participants) = match &kept.fate {
                    Fate::Committed { participants, .. } => {
                        (None, Timestamp::ZERO, participants.as_slice())
                    }
                    Fate::Aborted(reason) if reason.kind == AbortKind::Condition => {
                        (Some(reason.kind), reason.at, &[][..])
                    }
                    Fate::Aborted(reason) => (Some(reason.kind), Timestamp::ZERO, &[][..]),
                };
                let (begin, outcome, found) = (kept.begin, kept.fate.outcome(), kept.found);
                kept.durable.then_some(KeptOutcome {
                    txn,
                    begin,
                    outcome,
                    abort,
                    found,
                    met,
                    participants,
                })
            }
        };
        let mut outcomes: Vec<_> =
            self.table.places().filter_map(|(txn, place)| outcome(txn, place)).collect();
        outcomes.sort_unstable_by_key(|kept| kept.txn);
        outcomes
    }

    /// Whether others may still have to be told of a commit at or below `until`: it must not be
    /// lost before they have it.
    #[must_use]
    pub fn owes_decisions(&self, until: Timestamp) -> bool {
        self.table.places().any(|(_, place)| match place {
            Place::Flight(slot) => {
                let record = self.table.record(slot);
                let is_committed = matches!(record.phase, Phase::Committed { at, logged: true, .. } if at <= until);
                is_committed && !record.single && record.participants.as_slice().len() > 1
            }
            Place::Kept(index) => {
                let kept = self.table.kept(index);
                let Fate::Committed { at, participants } = &kept.fate else { return false };
                kept.durable && *at <= until && participants.as_slice().len() > 1
            }
        })
    }

    /// Whether an abort that was told must survive a restart, as its commit could still be carried
    /// out after one. Others need no record: who is asked about a transaction that it does not know
    /// says that it was aborted.
    #[must_use]
    pub fn must_remember(&self) -> bool {
        self.table.places().any(|(_, place)| {
            let Place::Kept(index) = place else { return false };
            let kept = self.table.kept(index);
            matches!(kept.fate, Fate::Aborted(_))
                && kept.begin <= self.uncertain.end
                && self.is_uncertain_after(self.watermark)
        })
    }

    /// No timestamp at or above it has been served.
    #[must_use]
    pub fn read_bound(&self) -> Timestamp {
        self.bound.durable
    }
}
