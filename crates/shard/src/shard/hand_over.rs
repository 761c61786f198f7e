//! From a log on disk to none: what an earlier run left in its logs is brought into the store, and
//! only then the logs may go.
//!
//! ```text
//!   Deciding ── no recovered promise, no commit that others still have to be told ──► Syncing ── the store holds it all ──►
//!   Checkpointing ── a checkpoint that began afterwards is complete ──► Over: the logs may go
//! ```
//! Until it is over every start replays these logs again, so nothing in them counts as settled.
//! After a crash at any point the next start finds them whole, or finds a store that needs them no
//! more. What comes meanwhile is not logged: that is what `none` means. With a log on disk there is
//! no such state: the journal releases the logs of earlier runs like its own.
//!
//! A decision about a promise of the earlier run is not logged either, while the promise comes back
//! at every start. So it is acknowledged only when what was put is on the device: the others forget
//! the transaction on that word, and after a crash could not tell this shard any more that it was
//! committed.
//!
//! At its end a run without a log writes what others still need into a log after all
//! ([`Shard::take_log`]). From then on it is a run with one, also for what earlier runs left.
//!
//! Source: docs/protocol/log.md, "From a log to none, and back"; DTranx §3.3.2.

use core::time::Duration;
use std::collections::BTreeMap;

use timestone_seda::StageId;
use timestone_txn::participant::{Input, Token};
use timestone_types::{Timestamp, TxnId};
use timestone_wal::BatchNumber;
use timestone_wire::{self as wire, Message};

use super::{LogPlace, Shard};
use crate::turn::{Output, Turn};

/// How often it is looked whether the next step can be made, and a checkpoint that found no room is
/// asked for again.
const PACE: Duration = Duration::from_millis(100);
/// A checkpoint may be under way when one is asked for: the second one that is complete began
/// afterwards.
const CHECKPOINTS: u8 = 2;

/// How far the hand-over is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandOver {
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

/// The promises of the earlier run that were undecided when this one, which has no log, began.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    promises: BTreeMap<TxnId, Fate>,
    /// Acknowledgements that have to wait.
    withheld: Vec<(Token, TxnId)>,
    /// What the store calls the batch of the puts of now. Without a log they have no other batches.
    batch: u64,
}

impl Inherited {
    pub(super) fn new(promises: impl Iterator<Item = TxnId>, open: BatchNumber) -> Self {
        let promises = promises.map(|txn| (txn, Fate::Promised)).collect();
        Self { promises, withheld: Vec::new(), batch: open.get() }
    }
}

impl Shard {
    /// What is put from here on belongs to a later batch, so that the store can tell when all
    /// before is stable. The number of the one before.
    fn close_store_batch(&mut self) -> u64 {
        let closed = self.inherited.batch;
        self.inherited.batch += 1;
        self.store.begin_batch(self.inherited.batch);
        self.store.sync_soon();
        closed
    }

    /// The writes of a transaction are in the store.
    pub(super) fn inherited_applied(&mut self, txn: TxnId) {
        if timestone_types::is_planted!(EarlyHandOverAck) {
            return;
        }
        if self.inherited.promises.contains_key(&txn) {
            let batch = self.close_store_batch();
            self.inherited.promises.insert(txn, Fate::Put(batch));
        }
    }

    /// Whether a crash now would take a decision from this shard that it was told, with what was
    /// put.
    fn may_forget(&self, txn: TxnId) -> bool {
        self.hand_over != HandOver::Over
            && match self.inherited.promises.get(&txn) {
                Some(Fate::Put(batch)) => self.store.stable_batch() < *batch,
                Some(Fate::Promised) => self.unapplied.iter().any(|work| work.txn == txn),
                None => false,
            }
    }

    /// A decision has been carried out. The others may forget it when they hear so.
    pub(super) fn acknowledge(&mut self, ctx: &mut Turn<'_>, token: Token, txn: TxnId) {
        if self.may_forget(txn) {
            self.inherited.withheld.push((token, txn));
        } else {
            self.requests
                .answer(ctx, token, |envelope, out| wire::DecideAck { txn }.encode(envelope, out));
        }
    }

    /// Sends the acknowledgements that need not wait any more.
    fn acknowledge_withheld(&mut self, ctx: &mut Turn<'_>) {
        for (token, txn) in std::mem::take(&mut self.inherited.withheld) {
            if ctx.is_shutting_down() && self.may_forget(txn) {
                // Whoever asks repeats it, or this shard asks.
                self.requests.close(token);
            } else {
                self.acknowledge(ctx, token, txn);
            }
        }
    }

    /// Writes what others still need into the log of `stage`: all promises, and all outcomes that
    /// are kept. Promises of which nobody here knows how they end may be halves of what was
    /// acknowledged, and decisions may be known here alone.
    pub(super) fn take_log(&mut self, ctx: &mut Turn<'_>, stage: StageId) {
        (self.log, self.has_taken_log) = (LogPlace::Stage(stage), true);
        self.journal.begin(BatchNumber::new(self.inherited.batch));
        self.store.begin_batch(self.journal.open_batch().get());
        // Nobody is to forget a decision before it is in the log: it is asked for again.
        for (token, _) in std::mem::take(&mut self.inherited.withheld) {
            self.requests.close(token);
        }
        // The logs of earlier runs go as those of this one do, or the next start hands them over.
        self.hand_over = HandOver::Over;
        self.inherited.promises.clear();
        self.carry_forward(ctx, self.journal.open_batch());
    }

    /// Goes on with the hand-over. Called every turn.
    pub(super) fn hand_over(&mut self, ctx: &mut Turn<'_>) {
        if !self.inherited.withheld.is_empty() {
            self.acknowledge_withheld(ctx);
        }
        if self.hand_over == HandOver::Over || ctx.now() < self.hand_over_at {
            return;
        }
        self.hand_over_at = ctx.now().saturating_add(PACE);
        match self.hand_over {
            HandOver::Deciding(until) => {
                let open = self.journal.open_batch();
                let is_promised = self.payloads.oldest_batch().is_some_and(|batch| batch < open);
                if !is_promised && !self.owes(ctx, Input::Owes { until }).0 {
                    self.hand_over = HandOver::Syncing(self.close_store_batch());
                }
            }
            HandOver::Syncing(through) if self.store.stable_batch() < through => {
                self.store.sync_soon()
            }
            HandOver::Syncing(_) => {
                self.hand_over = HandOver::Checkpointing(CHECKPOINTS);
                self.store.checkpoint_now();
            }
            HandOver::Checkpointing(_) => self.store.checkpoint_now(),
            HandOver::Over => {}
        }
    }

    /// A checkpoint is complete: with the last one that is waited for, the logs may go.
    pub(super) fn checkpoint_done(&mut self, ctx: &mut Turn<'_>) {
        let HandOver::Checkpointing(left) = self.hand_over else { return };
        if left > 1 {
            self.hand_over = HandOver::Checkpointing(left - 1);
            return self.store.checkpoint_now();
        }
        self.hand_over = HandOver::Over;
        self.inherited.promises.clear();
        tracing::info!(shard = %self.shard, "everything that the logs of earlier runs held is in \
            the store: they may go");
        for index in 0..self.retained.len() {
            let (stage, _) = self.retained[index];
            ctx.send(Output::LogRelease {
                log: stage,
                shard: self.shard,
                keep_from: BatchNumber::MAX,
            });
        }
    }

    /// When to look again.
    pub(super) fn hand_over_deadline(&self) -> Option<Timestamp> {
        (self.hand_over != HandOver::Over).then_some(self.hand_over_at)
    }
}
