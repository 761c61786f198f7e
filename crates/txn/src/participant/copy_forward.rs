//! What a participant still needs from old log files: asked for when they hold up space, and
//! appended again (DTranx §3.4).

use timestone_types::{AbortKind, PreviousFound, ShardId, Timestamp, TxnId, TxnOutcome};

use super::table::{Phase, Place, Record};
use super::transactions::Transactions;

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

impl Transactions {
    /// The timestamp that a transaction is promised at, or committed and not yet applied and
    /// logged. `None` when it is neither.
    pub(super) fn promised(&self, txn: TxnId) -> Option<Timestamp> {
        self.kept_record(txn).map(|record| record.commit)
    }

    /// What must survive a crash of what [`Self::promised`] tells.
    pub(super) fn kept_promise(&self, txn: TxnId) -> Option<KeptPromise> {
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

    /// Every durable outcome that somebody may still ask for, by transaction.
    pub(super) fn kept_outcomes(&self) -> Vec<KeptOutcome<'_>> {
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
                let ((abort, met), participants) = (kept.fate.abort(), kept.fate.participants());
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
}
