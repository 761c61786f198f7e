//! After a restart: what the log says, in any order, becomes marks, promises and outcomes again.
//!
//! Records are grouped by transaction; of several promises the latest counts. A promise of a single-shard transaction *is* its
//! commit. Whatever is committed is applied again at the decided timestamp (a put that is there already changes nothing).
//! Promises are frozen: nobody knows whom their timestamp was told. The read bound becomes the floor. Nothing is served, and
//! above all no vote is cast, before the log was read to its end.

use std::collections::BTreeMap;

use timestone_types::{AbortKind, AbortReason, Timestamp, TxnId, TxnOutcome};

use super::Participant;
use super::input::{Recovered, WriteItem};
use super::output::Output;
use super::table::{Fate, Kept, Phase};
use crate::ShardList;

#[derive(Debug)]
struct Promise {
    begin: Timestamp,
    commit: Timestamp,
    single: bool,
    participants: ShardList,
    writes: Vec<WriteItem>,
}

/// What the log has said so far.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    promises: BTreeMap<TxnId, Promise>,
    decisions: BTreeMap<TxnId, TxnOutcome>,
    bound: Timestamp,
    watermark: Timestamp,
}

impl Recovery {
    pub(super) fn add(&mut self, record: Recovered<'_>) {
        match record {
            Recovered::Prepare { txn, begin, commit, single, participants, writes } => {
                self.bound = self.bound.max(commit);
                if self.promises.get(&txn).is_some_and(|known| known.commit >= commit) {
                    return;
                }
                let participants = ShardList::new(participants);
                self.promises.insert(txn, Promise { begin, commit, single, participants, writes: writes.to_vec() });
            }
            Recovered::Decision { txn, outcome } => {
                if let TxnOutcome::Committed(at) = outcome {
                    self.bound = self.bound.max(at);
                }
                self.decisions.insert(txn, outcome);
            }
            Recovered::ReadBound { bound, watermark } => {
                self.bound = self.bound.max(bound);
                self.watermark = self.watermark.max(watermark);
            }
        }
    }
}

impl Participant {
    pub(super) fn recovery_done(&mut self, now: Timestamp, recovery: Recovery, out: &mut Vec<Output>) {
        let Recovery { promises, mut decisions, bound, watermark } = recovery;
        if !self.bugs().forget_read_bound {
            self.window.raise_floor(bound);
            self.bound.durable = bound;
            self.bound.asked = bound;
        }
        self.watermark = watermark;
        self.pledged_watermark = watermark;
        self.window.rotate(now, core::iter::empty());
        for (txn, promise) in promises {
            let decision = decisions.remove(&txn);
            self.recover_promise(now, txn, &promise, decision, out);
        }
        for (txn, outcome) in decisions {
            let fate = match outcome {
                TxnOutcome::Committed(at) => Fate::Committed { at, participants: ShardList::default() },
                TxnOutcome::Aborted => Fate::Aborted(AbortReason::of(AbortKind::Terminated)),
            };
            // When it began is not known any more; nothing that is in this log began after the bound.
            self.know_client(now, txn.client, bound);
            self.keep(Kept { txn, begin: bound, fate, durable: true, asked: false, next: u32::MAX });
        }
        self.ask_bound(now, now, out);
    }

    fn recover_promise(
        &mut self,
        now: Timestamp,
        txn: TxnId,
        promise: &Promise,
        decision: Option<TxnOutcome>,
        out: &mut Vec<Output>,
    ) {
        let &Promise { begin, commit, single, .. } = promise;
        self.know_client(now, txn.client, begin);
        let decided = match decision {
            Some(TxnOutcome::Aborted) => {
                let fate = Fate::Aborted(AbortReason::of(AbortKind::Terminated));
                self.keep(Kept { txn, begin, fate, durable: true, asked: false, next: u32::MAX });
                return out.push(Output::ForgetPayload { txn });
            }
            Some(TxnOutcome::Committed(at)) => Some(at),
            None if single => Some(commit),
            None if self.bugs().recover_without_prepared => return,
            None => None,
        };
        let slot = self.table.insert(txn, begin, commit, Phase::Prepared { durable: true });
        self.adopt(slot, single, promise.participants.as_slice(), &promise.writes);
        match decided {
            Some(at) => self.commit(slot, at, true, out),
            None => {
                self.table.record_mut(slot).frozen = true;
                self.table.join_timeouts(slot, now.saturating_add(self.config.decision_timeout));
            }
        }
    }
}
