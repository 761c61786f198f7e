//! From a log on disk to none: what an earlier run left in its logs is brought into the store, and only then the logs may go.
//!
//! ```text
//!   Deciding ── no recovered promise, no commit that others still have to be told ──► Syncing ── the store holds it all ──►
//!   Checkpointing ── a checkpoint that began afterwards is complete ──► Over: the logs may go
//! ```
//! Until it is over every start replays these logs again, so nothing in them counts as settled. After a crash at any point the next
//! start finds them whole, or finds a store that needs them no more. What comes meanwhile is not logged: that is what `none` means.
//! With a log on disk there is no such state: the journal releases the logs of earlier runs like its own.
//!
//! Source: time.md, "Restart and release"; DTranx §3.4.

use core::time::Duration;

use timestone_seda::Context;
use timestone_types::Timestamp;
use timestone_wal::BatchNumber;

use super::ShardStage;
use crate::event::Event;

/// How often it is looked whether the next step can be made, and a checkpoint that found no room is asked for again.
const PACE: Duration = Duration::from_millis(100);
/// A checkpoint may be under way when one is asked for: the second one that is complete began afterwards.
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

impl ShardStage {
    /// Goes on with the hand-over. Called every turn.
    pub(super) fn hand_over(&mut self, ctx: &mut Context<'_, Event>) {
        if self.hand_over == HandOver::Over || ctx.now() < self.hand_over_at {
            return;
        }
        self.hand_over_at = ctx.now().saturating_add(PACE);
        match self.hand_over {
            HandOver::Deciding(until) => {
                let open = self.journal.open_batch();
                let is_promised = self.payloads.oldest_batch().is_some_and(|batch| batch < open);
                if !is_promised && !self.participant.owes_decisions(until) {
                    // What is put from here on belongs to a later batch, so that the store can tell when all before is stable.
                    self.store.begin_batch(open.next().get());
                    self.hand_over = HandOver::Syncing(open.get());
                    self.store.sync_soon();
                }
            }
            HandOver::Syncing(through) if self.store.stable_batch() < through => self.store.sync_soon(),
            HandOver::Syncing(_) => {
                self.hand_over = HandOver::Checkpointing(CHECKPOINTS);
                self.store.checkpoint_now();
            }
            HandOver::Checkpointing(_) => self.store.checkpoint_now(),
            HandOver::Over => {}
        }
    }

    /// A checkpoint is complete: with the last one that is waited for, the logs may go.
    pub(super) fn checkpoint_done(&mut self, ctx: &mut Context<'_, Event>) {
        let HandOver::Checkpointing(left) = self.hand_over else { return };
        if left > 1 {
            self.hand_over = HandOver::Checkpointing(left - 1);
            return self.store.checkpoint_now();
        }
        self.hand_over = HandOver::Over;
        tracing::info!(shard = %self.shard, "everything that the logs of earlier runs held is in the store: they may go");
        for index in 0..self.retained.len() {
            let (stage, _) = self.retained[index];
            self.send(ctx, stage, Event::LogRelease { shard: self.shard, keep_from: BatchNumber::MAX });
        }
    }

    /// When to look again.
    pub(super) fn hand_over_deadline(&self) -> Option<Timestamp> {
        (self.hand_over != HandOver::Over).then_some(self.hand_over_at)
    }
}
