//! What a server keeps of a replica: its core and log, what it does for its shard, and what waits.

use std::collections::VecDeque;

use timestone_cluster::ReplicaLoss;
use timestone_replication::{Batch, Input, Message, Output, Replica};
use timestone_shard::Backup;
use timestone_types::{Epoch, ShardId, Timestamp};
use timestone_wal::BatchNumber;

use super::bytes::LogBytes;
use super::checkpoints::Takers;
use super::replica_log::ReplicaLog;
use super::role::ReplicaRole;
use super::takeover::TakeoverTimes;
use crate::limits::{MAX_WAITING_APPLIES, NOTHING_COUNTS_AFTER};

/// A replica that is kept here.
pub(crate) struct Kept {
    pub(super) replica: Replica<LogBytes>,
    pub(super) log: ReplicaLog,
    pub(super) role: ReplicaRole,
    /// Batches that count and wait for the backup's store.
    pub(super) applies: VecDeque<Batch<LogBytes>>,
    pub(super) apply_bytes: usize,
    /// What the core wants done, in order.
    pub(super) outputs: VecDeque<Output<LogBytes>>,
    /// For the core; emptied by every step.
    pub(super) step_outputs: Vec<Output<LogBytes>>,
    /// When the shard was last asked to append again what holds up memory.
    pub(super) copied_at: Timestamp,
    /// When it was last looked at what the log is needed for.
    pub(super) looked_at: Timestamp,
    /// When it had its last turn.
    pub(super) turned_at: Timestamp,
    /// Up to which batch everything counts, as a primary has said.
    pub(super) heard_counted: BatchNumber,
    /// What counted last, and since when nothing more has counted although it could.
    pub(super) counts_since: (BatchNumber, Timestamp),
    /// Who takes checkpoints of this primary, and how far the one under way was, as the core knows.
    pub(super) takers: Takers,
    pub(super) checkpoint: Option<(u64, BatchNumber)>,
    /// Its device has not read all that it has, or has read damage: it leads only while no other
    /// replica can, and answers no reads as a backup.
    pub(super) is_unread: bool,
    /// Since when the process ends.
    pub(super) ends_since: Option<Timestamp>,
    /// Of a candidate.
    pub(super) takeover: Option<TakeoverTimes>,
}

impl Kept {
    pub(super) fn new(
        replica: Replica<LogBytes>,
        log: ReplicaLog,
        role: ReplicaRole,
        outputs: Vec<Output<LogBytes>>,
    ) -> Self {
        Self {
            replica,
            log,
            role,
            applies: VecDeque::new(),
            apply_bytes: 0,
            outputs: outputs.into(),
            step_outputs: Vec::new(),
            copied_at: Timestamp::ZERO,
            looked_at: Timestamp::ZERO,
            turned_at: Timestamp::ZERO,
            heard_counted: BatchNumber::ZERO,
            counts_since: (BatchNumber::ZERO, Timestamp::ZERO),
            takers: Takers::default(),
            checkpoint: None,
            is_unread: false,
            ends_since: None,
            takeover: None,
        }
    }

    /// What it has lost of what it had.
    pub(super) fn loss(&self) -> ReplicaLoss {
        let replica = &self.replica;
        let never_had_any = replica.is_whole() && replica.installed() == Epoch::ZERO;
        match replica.void_since().or(never_had_any.then_some(Epoch::ZERO)) {
            Some(since) => ReplicaLoss::VoidSince(since),
            None if replica.remembers() => ReplicaLoss::GivenUp,
            None if self.is_unread => ReplicaLoss::Unread,
            None => ReplicaLoss::None,
        }
    }

    /// Notes whether its device has read all that it has; whether it has not is news. Damage stays
    /// until the store is made anew, or another start.
    pub(super) fn note_unread(&mut self) -> bool {
        let is_news = !self.is_unread && self.role.lacks_data();
        self.is_unread |= is_news;
        is_news
    }

    /// The backup that may answer reads. One that lacks what its device has not read would tell an
    /// older version, or nothing, where others have the right one.
    pub(super) fn readable_backup(&mut self) -> Option<&mut Backup> {
        let is_unread = self.is_unread && !timestone_types::is_planted!(ReadsBesideUnreadPages);
        if self.ends_since.is_some() || is_unread { None } else { self.role.as_backup() }
    }

    pub(super) fn step(&mut self, now: Timestamp, input: Input<LogBytes>) {
        self.replica.step(now, input, &mut self.step_outputs);
        self.outputs.extend(self.step_outputs.drain(..));
    }

    /// Whether the shard is asked here. Without its log it answers nobody: at the end it closes its
    /// store, and otherwise another replica becomes primary.
    pub(super) fn takes_frames(&self) -> bool {
        self.role.is_primary() && !self.role.keeps_nothing()
    }

    /// A primary says how much counts; what of it is here is another matter.
    pub(super) fn hears(&mut self, message: &Message<LogBytes>) {
        if let Message::Append { epoch, counted, .. } | Message::Probe { epoch, counted, .. } =
            message
            && *epoch == self.replica.promised()
        {
            self.heard_counted = self.heard_counted.max(*counted);
        }
    }

    /// Whether nothing has counted for long although something waits for that: the other replicas do
    /// not answer, or have nothing.
    pub(super) fn nothing_counts(&self, now: Timestamp) -> bool {
        now.since(self.counts_since.1) >= NOTHING_COUNTS_AFTER
    }

    /// Whether something that is durable here does not count yet.
    pub(super) fn waits_to_count(&self) -> bool {
        self.replica.durable().last() > self.replica.counted()
    }

    /// Notes what counts.
    pub(super) fn note_counted(&mut self, now: Timestamp) {
        let counted = self.replica.counted();
        if !self.waits_to_count() || counted > self.counts_since.0 {
            self.counts_since = (counted, now);
        }
    }

    /// Whether so much waits for the store that no more is taken.
    pub(super) fn is_full(&self) -> bool {
        self.apply_bytes >= MAX_WAITING_APPLIES
    }

    /// Has the backup take what counts; `all`: whether its store keeps up or not.
    pub(super) fn take_batches(&mut self, now: Timestamp, shard: ShardId, all: bool) {
        if self.ends_since.is_some() {
            // The log has them.
            return;
        }
        while !self.applies.is_empty() && (all || !self.role.is_behind()) {
            let Some(batch) = self.applies.pop_front() else { break };
            self.apply_bytes -= batch.payload.records.len();
            self.role.take(now, shard, &batch);
        }
    }
}
