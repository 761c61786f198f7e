//! What a participant still needs from old log files: asked for when they hold up space, and
//! appended again (DTranx §3.3.2).

use timestone_types::{AbortKind, PreviousFound, Timestamp, TxnId, TxnOutcome};

use super::table::{Kept, Phase, Record, TxnPlace};
use super::transactions::Transactions;
use crate::ShardList;

/// Everything that must survive a crash.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopyForward {
    /// Promises, by transaction.
    pub promises: Vec<KeptPromise>,
    /// Durable outcomes that somebody may still ask for, by transaction. There may be millions.
    pub outcomes: Vec<KeptOutcome>,
    /// No timestamp at or above it has been served.
    pub bound: Timestamp,
}

impl CopyForward {
    /// What must survive of a promise.
    #[must_use]
    pub fn promise(&self, txn: TxnId) -> Option<&KeptPromise> {
        let found = self.promises.binary_search_by_key(&txn, |promise| promise.txn);
        found.ok().map(|index| &self.promises[index])
    }
}

/// A durable outcome that somebody may still ask for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptOutcome {
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
    pub participants: ShardList,
}

/// A promise that must survive a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptPromise {
    /// Whose.
    pub txn: TxnId,
    /// Its timestamp; of one that is moving, the later one.
    pub commit: Timestamp,
    /// It is committed, and the decision is on its way to the log: without it, a promise that is
    /// appended behind it could outlive it.
    pub is_decided: bool,
    /// What a single-key write found.
    pub found: PreviousFound,
}

impl Transactions {
    /// Everything that must survive a crash of what is known here.
    pub(super) fn copy_forward(&self, bound: Timestamp) -> CopyForward {
        let mut copy = CopyForward { bound, ..CopyForward::default() };
        for (_, place) in self.table.places() {
            match place {
                TxnPlace::Flight(slot) => {
                    let record = self.table.record(slot);
                    copy.promises.extend(promise_of(record));
                    copy.outcomes.extend(outcome_of_record(record));
                }
                TxnPlace::Kept(index) => copy.outcomes.extend(outcome_of(self.table.kept(index))),
            }
        }
        copy.promises.sort_unstable_by_key(|promise| promise.txn);
        copy.outcomes.sort_unstable_by_key(|kept| kept.txn);
        copy
    }
}

const fn promise_of(record: &Record) -> Option<KeptPromise> {
    let (txn, found) = (record.txn, record.found);
    let (commit, is_decided) = match (record.phase, record.moves.to) {
        (Phase::Committed { logged, .. }, _) => (record.commit, !logged),
        (Phase::Prepared { durable: true }, Some(later)) => (later, false),
        (Phase::Prepared { durable: true }, None) => (record.commit, false),
        (Phase::Prepared { durable: false } | Phase::Aborting, _) => return None,
    };
    Some(KeptPromise { txn, commit, is_decided, found })
}

fn outcome_of_record(record: &Record) -> Option<KeptOutcome> {
    let Phase::Committed { at, logged: true, .. } = record.phase else { return None };
    Some(KeptOutcome {
        txn: record.txn,
        begin: record.begin,
        outcome: TxnOutcome::Committed(at),
        abort: None,
        found: record.found,
        met: Timestamp::ZERO,
        participants: match record.single {
            true => ShardList::default(),
            false => record.participants.clone(),
        },
    })
}

fn outcome_of(kept: &Kept) -> Option<KeptOutcome> {
    if !kept.durable {
        return None;
    }
    let (abort, met) = kept.fate.abort();
    Some(KeptOutcome {
        txn: kept.txn,
        begin: kept.begin,
        outcome: kept.fate.outcome(),
        abort,
        found: kept.found,
        met,
        participants: ShardList::new(kept.fate.participants()),
    })
}
