//! From a log on disk to none: what an earlier run left in its logs is brought into the store, and
//! only then the logs may go.
//!
//! ```text
//!   Deciding ── no recovered promise, no commit that others still have to be told ──► Syncing ── the store holds it all ──►
//!   Checkpointing ── a checkpoint that began afterwards is complete ──► Over: the logs may go
//! ```
//! Until it is over every start replays these logs again, so the replay floor stays below what is in
//! them. After a crash at any point the next start finds them whole, or finds a store that needs them
//! no more. What comes meanwhile is not logged: that is what `none` means. With a log on disk there is
//! no such state: the journal releases the logs of earlier runs like its own.
//!
//! A decision about a promise of the earlier run is not logged either, while the promise comes back
//! at every start. So it is acknowledged only when what was put is on the device: the others forget
//! the transaction on that word, and after a crash could not tell this shard any more that it was
//! committed.
//!
//! At its end a run without a log writes what others still need into a log after all
//! ([`HandOver::end`]). From then on it is a run with one, also for what earlier runs left.
//!
//! Source: docs/protocol/log.md, "From a log to none, and back"; DTranx §3.3.2.

use core::time::Duration;
use std::collections::BTreeMap;

use timestone_txn::participant::Token;
use timestone_types::{Timestamp, TxnId};
use timestone_wal::BatchNumber;
use timestone_wire::{self as wire, Message};

use crate::requests::Requests;
use crate::shard::ShardStore;
use crate::turn::Turn;
use crate::write_sets::WriteSets;

/// How often it is looked whether the next step can be made, and a checkpoint that found no room is
/// asked for again.
const PACE: Duration = Duration::from_millis(100);
/// A checkpoint may be under way when one is asked for: the second one that is complete began
/// afterwards.
const CHECKPOINTS: u8 = 2;

/// How far the hand-over is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandOverStep {
    /// The logs hold nothing of this shard that is needed, or there is a log.
    Over,
    /// Transactions of the earlier run, up to this commit timestamp, are not through everywhere.
    Deciding(Timestamp),
    /// Puts of batches up to this one are not on the device yet.
    Syncing(u64),
    /// So many checkpoints have to be completed.
    Checkpointing(u8),
}

/// How far a promise of the earlier run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Undecided, aborted, or committed with puts that are not in the store yet.
    Promised,
    /// Its puts are in the store, in this batch or an earlier one.
    Put(u64),
}

/// The hand-over, and the promises of the earlier run that were undecided when this one, which has
/// no log, began.
#[derive(Debug)]
pub(crate) struct HandOver {
    step: HandOverStep,
    /// When to look again.
    again_at: Timestamp,
    promises: BTreeMap<TxnId, Fate>,
    /// Acknowledgements that have to wait.
    withheld: Vec<(Token, TxnId)>,
    /// What the store calls the batch of the puts of now. Without a log they have no other batches.
    batch: u64,
}

impl HandOver {
    /// Begins at `step`; `open` is the batch that the store is told of first.
    pub(crate) fn new(
        step: HandOverStep,
        promises: impl Iterator<Item = TxnId>,
        open: BatchNumber,
    ) -> Self {
        let promises = promises.map(|txn| (txn, Fate::Promised)).collect();
        let (withheld, batch) = (Vec::new(), open.get());
        Self { step, again_at: Timestamp::ZERO, promises, withheld, batch }
    }

    fn assert_sound(&self) {
        debug_assert!(
            match self.step {
                HandOverStep::Over => self.promises.is_empty(),
                HandOverStep::Deciding(_) => true,
                HandOverStep::Syncing(through) => through < self.batch,
                HandOverStep::Checkpointing(left) => 0 < left && left <= CHECKPOINTS,
            },
            "a step waits for what can come"
        );
    }

    /// What is put from here on belongs to a later batch, so that the store can tell when all
    /// before is stable. The number of the one before.
    fn close_batch(&mut self, store: &mut ShardStore) -> u64 {
        let closed = self.batch;
        self.batch += 1;
        store.begin_batch(self.batch);
        store.sync_soon();
        assert!(closed < self.batch, "later puts belong to a later batch");
        closed
    }

    /// The writes of a transaction are in the store.
    #[inline]
    pub(crate) fn applied(&mut self, txn: TxnId, store: &mut ShardStore) {
        if timestone_types::is_planted!(EarlyHandOverAck) {
            return;
        }
        if self.promises.contains_key(&txn) {
            let batch = self.close_batch(store);
            self.promises.insert(txn, Fate::Put(batch));
            debug_assert!(batch < self.batch, "the store can tell when what was put is stable");
        }
        self.assert_sound();
    }

    /// Whether a crash now would take a decision from this shard that it was told, with what was
    /// put.
    fn may_forget(&self, txn: TxnId, store: &ShardStore, write_sets: &WriteSets) -> bool {
        self.step != HandOverStep::Over
            && match self.promises.get(&txn) {
                Some(Fate::Put(batch)) => store.stable_batch() < *batch,
                Some(Fate::Promised) => write_sets.is_unapplied(txn),
                None => false,
            }
    }

    /// A decision has been carried out. The others may forget it when they hear so.
    #[inline]
    pub(crate) fn acknowledge(
        &mut self,
        ctx: &mut Turn<'_>,
        (token, txn): (Token, TxnId),
        requests: &mut Requests,
        (store, write_sets): (&ShardStore, &WriteSets),
    ) {
        if self.may_forget(txn, store, write_sets) {
            debug_assert!(
                self.promises.contains_key(&txn),
                "only what was promised in the earlier run is acknowledged late"
            );
            self.withheld.push((token, txn));
        } else {
            requests
                .answer(ctx, token, |envelope, out| wire::DecideAck { txn }.encode(envelope, out));
        }
        self.assert_sound();
    }

    /// Sends the acknowledgements that need not wait any more.
    pub(crate) fn acknowledge_withheld(
        &mut self,
        ctx: &mut Turn<'_>,
        requests: &mut Requests,
        (store, write_sets): (&ShardStore, &WriteSets),
    ) {
        for (token, txn) in std::mem::take(&mut self.withheld) {
            if ctx.is_shutting_down() && self.may_forget(txn, store, write_sets) {
                // Whoever asks repeats it, or this shard asks.
                requests.close(token);
            } else {
                self.acknowledge(ctx, (token, txn), requests, (store, write_sets));
            }
        }
        self.assert_sound();
    }

    /// A log is taken: those of earlier runs go as those of this one do, or the next start hands
    /// them over. The last batch that the store was told of.
    pub(crate) fn end(&mut self, requests: &mut Requests) -> BatchNumber {
        // Nobody is to forget a decision before it is in the log: it is asked for again.
        for (token, _) in std::mem::take(&mut self.withheld) {
            requests.close(token);
        }
        self.step = HandOverStep::Over;
        self.promises.clear();
        assert!(self.withheld.is_empty(), "nobody waits for what is over");
        BatchNumber::new(self.batch)
    }

    /// Goes on, once every [`PACE`]. The commit timestamp up to which transactions have to be
    /// through everywhere, if that is what is waited for: [`HandOver::decided`] is called then.
    pub(crate) fn go_on(&mut self, now: Timestamp, store: &mut ShardStore) -> Option<Timestamp> {
        if self.step == HandOverStep::Over || now < self.again_at {
            return None;
        }
        self.again_at = now.saturating_add(PACE);
        assert!(self.again_at > now, "the steps are paced");
        match self.step {
            HandOverStep::Deciding(until) => return Some(until),
            HandOverStep::Syncing(through) if store.stable_batch() < through => store.sync_soon(),
            HandOverStep::Syncing(_) => {
                self.step = HandOverStep::Checkpointing(CHECKPOINTS);
                store.checkpoint_now();
            }
            HandOverStep::Checkpointing(_) => store.checkpoint_now(),
            HandOverStep::Over => {}
        }
        None
    }

    /// All transactions of the earlier run are through everywhere.
    pub(crate) fn decided(&mut self, store: &mut ShardStore) {
        assert!(matches!(self.step, HandOverStep::Deciding(_)), "decisions are waited for first");
        self.step = HandOverStep::Syncing(self.close_batch(store));
    }

    /// A checkpoint is complete: whether it is the last one that is waited for, so that the logs
    /// may go.
    pub(crate) fn checkpoint_done(&mut self, store: &mut ShardStore) -> bool {
        let HandOverStep::Checkpointing(left) = self.step else { return false };
        assert!(left > 0, "checkpoints are waited for");
        if left > 1 {
            self.step = HandOverStep::Checkpointing(left - 1);
            store.checkpoint_now();
            return false;
        }
        self.step = HandOverStep::Over;
        self.promises.clear();
        true
    }

    /// When to look again.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        (self.step != HandOverStep::Over).then_some(self.again_at)
    }
}
