//! A backup of a shard: it carries out what the primary has logged, batch by batch, and becomes the
//! shard when it has to.
//!
//! ```text
//!   batches that count ─► Backup ─┬─ decided writes ─► store
//!                                 └─ promises, outcomes: kept until the primary needs them no more
//!   a new epoch ─► promote ─► Shard, as after a restart of the primary
//! ```
//! It validates nothing, and answers nobody but who reads a snapshot that is closed (`closed`,
//! `reads`). What it keeps is what a restart of the primary would
//! find: a promise until it is decided, an outcome until the primary's log lets go of it. The store
//! may be behind: writes that it has no room for wait, in order, and are put in a later turn.
//!
//! Invariants: batches come in the order of their numbers, each once, and only those that count
//! (rule P1); the own log keeps every batch with a promise, an outcome or a put that is needed and
//! is nowhere else. Source: SEMEL §3.2, MILANA §4.5; docs/protocol/replication.md.

mod checkpoints;
mod closed;
mod reads;
#[cfg(test)]
mod tests;

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use timestone_seda::StageId;
use timestone_store::{ReadOutcome, ReadToken, StoreEvent};
use timestone_types::{Epoch, ShardId, Timestamp};
use timestone_wal::{BatchHead, BatchNumber};

use crate::checkpoint::Exports;
use crate::error::ShardError;
use crate::figures::ShardFigures;
use crate::gauges::ShardGauges;
use crate::log_records::log_contents::LogContents;
use crate::log_records::retained::{BatchEpoch, RetainedBatches};
use crate::log_records::unstable::UnstablePuts;
use crate::replay::{Recovering, Replay};
use crate::shard::Shard;
use closed::ClosedTimestamp;
pub use reads::{BackupReadFigures, BackupReads};

/// See the module.
pub struct Backup {
    replay: Replay,
    /// The batch that was taken last.
    last: BatchNumber,
    unstable: UnstablePuts,
    retained: RetainedBatches,
    /// What each log may still hand out at a recovery.
    logs: LogContents,
    end: End,
    /// Checkpoints that others take of it.
    exports: Exports,
    closed: ClosedTimestamp,
    /// What the store has found of reads.
    found: Vec<(ReadToken, ReadOutcome)>,
    figures: Option<ShardFigures>,
    events: Vec<StoreEvent>,
}

/// How far the end of the process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    IsFarOff,
    /// The store is being closed.
    Draining,
    /// It is closed.
    Down,
}

impl Backup {
    /// Goes on from what the own logs have told; `logs` are those that may hold batches of the
    /// shard.
    #[must_use]
    pub fn new(mut replay: Replay, logs: &[StageId]) -> Self {
        replay.leave_device();
        let last = replay.last_batch();
        let mut backup = Self {
            replay,
            last,
            unstable: UnstablePuts::default(),
            retained: RetainedBatches::default(),
            logs: LogContents::of(logs),
            end: End::IsFarOff,
            exports: Exports::default(),
            closed: ClosedTimestamp::default(),
            found: Vec::new(),
            figures: None,
            events: Vec::new(),
        };
        if let Some((lowest, oldest)) = backup.replay.logged() {
            let replayed_above = backup.replay.watermark().min(oldest.previous());
            let at = backup.replay.bound();
            backup.retained.push(BatchEpoch { batch: lowest, at, replayed_above });
            backup.unstable.applied(last.next(), lowest);
        }
        backup.replay.store_mut().begin_batch(last.next().get());
        backup
    }

    /// The shard.
    #[must_use]
    pub const fn shard(&self) -> ShardId {
        self.replay.shard()
    }

    /// The batch that was carried out last.
    #[must_use]
    pub const fn last(&self) -> BatchNumber {
        self.last
    }

    /// Whether the store is so far behind that the next batch should wait.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.replay.is_behind()
    }

    /// Carries out a batch that counts.
    ///
    /// # Errors
    /// A record cannot be understood, or the store cannot take it and never will: the backup is
    /// worth nothing any more.
    pub fn take(
        &mut self,
        now: Timestamp,
        head: BatchHead,
        bytes: &[u8],
    ) -> Result<(), ShardError> {
        assert!(head.batch > self.last, "batches come in order, each once");
        assert!(self.end == End::IsFarOff, "a store that is being closed takes nothing");
        self.last = head.batch;
        self.replay.store_mut().begin_batch(head.batch.get());
        self.replay.batch(now, head, bytes)?;
        self.replay.prune();
        self.note_applied(head.batch);
        self.note_retained(now);
        self.replay.store_mut().begin_batch(head.batch.next().get());
        Ok(())
    }

    /// The batch may be handed out by a recovery: what is in it lies above this.
    fn note_retained(&mut self, now: Timestamp) {
        let shown = (now, self.replay.watermark(), self.replay.oldest_of_batch());
        if let Some(epoch) = BatchEpoch::begun_by(self.last, shown, self.retained.last()) {
            self.retained.push(epoch);
        }
    }

    /// Puts went into the store that it counts to this batch.
    fn note_applied(&mut self, counted_to: BatchNumber) {
        if let Some(lowest) = self.replay.take_applied() {
            self.unstable.applied(counted_to, lowest);
        }
    }

    /// Goes on: with what the store had no room for, and with the store. Called every turn.
    ///
    /// # Errors
    /// As [`Backup::take`]; or the device has failed.
    pub fn turn(&mut self, now: Timestamp) -> Result<(), ShardError> {
        if self.end == End::IsFarOff {
            self.replay.go_on(now)?;
            self.note_applied(self.last.next());
        }
        let mut events = std::mem::take(&mut self.events);
        self.replay.store_mut().pump(now, &mut events);
        for event in events.drain(..) {
            let Some(event) = self.exports.take_event(event, now, self.replay.store_mut()) else {
                continue;
            };
            match event {
                StoreEvent::DeviceFailed(error) => {
                    tracing::error!(shard = %self.shard(), %error, "the device of a backup has \
                        failed: what the primary logs is not carried out here any more");
                }
                StoreEvent::ShutDown => self.end = End::Down,
                StoreEvent::ReadDone { token, outcome } if BackupReads::is_token(token) => {
                    self.found.push((token, outcome));
                }
                // The store's checkpoints and scrubs are for whoever asked.
                _ => {}
            }
        }
        self.events = events;
        self.give(now);
        Ok(())
    }

    /// The primary of this epoch has closed a timestamp, and says up to which batch everything has to
    /// be carried out for it.
    pub fn tell_closed(&mut self, epoch: Epoch, through: BatchNumber, at: Timestamp) {
        self.closed.tell(epoch, through, at);
    }

    /// Batches of the epoch whose table is `installed` were carried out, or puts have found room.
    pub fn follow_closed(&mut self, installed: Epoch) {
        self.closed.follow(installed, self.last, !self.replay.has_left());
    }

    /// Snapshots at or below it may be read here; zero while there are none.
    #[must_use]
    pub const fn closed(&self) -> Timestamp {
        self.closed.at()
    }

    /// Whether its device has failed: it will never put again what it is given.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.replay.store().has_failed()
    }

    /// The process ends: the store is made durable, with a checkpoint, and closed. What it had no
    /// room for stays in the own log. No batches are taken any more; [`Backup::turn`] goes on until
    /// the backup [has drained](Backup::is_drained).
    ///
    /// # Errors
    /// As [`Backup::turn`].
    pub fn shutdown(&mut self, now: Timestamp) -> Result<(), ShardError> {
        if self.end == End::IsFarOff {
            self.end = End::Draining;
            self.replay.store_mut().shutdown();
        }
        self.turn(now)
    }

    /// Whether it may be dropped at the end of the process: its store is closed, or will never be.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.end == End::Down || self.has_failed()
    }

    /// Publishes what there is to say of its store, now and then, and follows what is wished of it.
    pub fn publish(&mut self, now: Timestamp, gauges: &Arc<ShardGauges>) {
        let figures = self.figures.get_or_insert_with(|| ShardFigures::new(Arc::clone(gauges)));
        if figures.is_due(now) {
            let prepared = self.replay.promised();
            figures.publish_without(self.replay.store(), self.replay.watermark(), prepared);
            figures.size_cache(self.replay.store_mut());
        }
    }

    /// When the next turn is due.
    #[must_use]
    pub fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let store = self.replay.store().next_deadline();
        let puts = self.end == End::IsFarOff && self.replay.has_left();
        let left = puts.then_some(now);
        let gives = self.exports.deadline(now);
        [store, left, gives].into_iter().flatten().min()
    }

    /// Readable when the device has completed something.
    #[must_use]
    pub fn wake_fd(&self) -> Option<RawFd> {
        self.replay.store().wake_fd().map(|fd| fd.as_raw_fd())
    }

    /// The own log needs nothing below this batch any more; the last batch, and those with the highest
    /// read bound and watermark, are always needed.
    pub fn keep_from(&mut self) -> BatchNumber {
        if timestone_types::is_planted!(CarelessBackup) {
            return self.last.next();
        }
        self.unstable.stable(BatchNumber::new(self.replay.store().stable_batch()));
        let puts = self.unstable.lowest();
        let kept = self.replay.lowest_needed();
        // The last of all tells which numbers come next.
        [puts, kept].into_iter().flatten().fold(self.last, BatchNumber::min)
    }

    /// A log can hand out nothing before `from` at a recovery any more.
    pub fn log_retained(&mut self, log: StageId, from: BatchNumber) {
        self.logs.told(log, from, None);
        let oldest = self.logs.oldest();
        if let Some(below) = oldest.and_then(|oldest| self.retained.replayed_above(oldest)) {
            self.replay.store_mut().advance_replay_floor(below);
        }
    }

    /// Becomes the shard: everything that counts was carried out, and nothing was served at or
    /// above `floor` (rule P7).
    #[must_use]
    pub fn promote(mut self, floor: Timestamp, with: Recovering) -> Shard {
        assert!(self.end == End::IsFarOff, "a store that is being closed serves nobody");
        self.replay.served_below(floor);
        let keep_from = self.keep_from();
        self.replay.kept_from(keep_from);
        self.replay.finish(with)
    }
}
