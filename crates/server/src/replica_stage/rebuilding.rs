//! A replica that takes a checkpoint: it asks the primary for part after part, and fills an empty
//! store with them.
//!
//! ```text
//!   due ─► CheckpointAsk ─► the primary ─► CheckpointPart ─► store, and batches for the own log
//!   the last part is durable ─► Rebased, and a backup
//! ```
//! Source: docs/design/replication.md, "Checkpoints".

use std::os::fd::RawFd;

use timestone_replication::{Batch, ReplicaId};
use timestone_seda::StageId;
use timestone_shard::{Backup, PartAsk, Rebuild, RebuildStep, ShardError};
use timestone_store::Store;
use timestone_types::{ShardId, Timestamp};
use timestone_wal::BatchNumber;

use super::bytes::{LogBytes, lease_in};
use crate::limits::{PART_AGAIN, REBUILD_STALLS_AFTER};

/// See the module.
pub(super) struct Rebuilding {
    rebuild: Rebuild,
    session: u64,
    /// What was asked for last, and when.
    asked: Option<(PartAsk, Timestamp)>,
    /// When something came last.
    progress_at: Timestamp,
    /// The highest read bound in what came.
    lease: Timestamp,
}

impl Rebuilding {
    /// Into an empty store.
    pub(super) fn new(
        now: Timestamp,
        (shard, me): (ShardId, ReplicaId),
        store: Box<dyn Store + Send>,
    ) -> Self {
        // Nobody has used it for this shard: a server goes by its own time, which rises, and its
        // number tells it from others.
        let session = now.as_nanos() & !0xff | u64::from(me.0 & 0xff);
        let rebuild = Rebuild::new(shard, store, session);
        Self { rebuild, session, asked: None, progress_at: now, lease: Timestamp::ZERO }
    }

    /// A part has come.
    pub(super) fn part(&mut self, now: Timestamp, bytes: &[u8]) -> Result<(), ShardError> {
        self.progress_at = now;
        self.rebuild.part(now, bytes.to_vec())
    }

    /// Goes on; called every turn. `asks`: whether it may ask for more. A part is to be asked for when
    /// that is due.
    pub(super) fn turn(&mut self, now: Timestamp, asks: bool) -> Result<RebuildStep, ShardError> {
        self.rebuild.turn(now)?;
        if !asks {
            self.asked = None;
            return Ok(RebuildStep::Wait);
        }
        let step = self.rebuild.step();
        let RebuildStep::Ask(ask) = step else { return Ok(step) };
        let waits =
            |(asked, at): (PartAsk, Timestamp)| asked == ask && now < at.saturating_add(PART_AGAIN);
        if self.asked.is_some_and(waits) {
            return Ok(RebuildStep::Wait);
        }
        self.asked = Some((ask, now));
        Ok(step)
    }

    /// The next batch for the own log.
    pub(super) fn take_batch(&mut self) -> Option<Batch<LogBytes>> {
        let (head, bytes) = self.rebuild.take_batch()?;
        let (lease, records) = (lease_in(&bytes), std::sync::Arc::from(bytes));
        self.lease = self.lease.max(lease);
        let payload = LogBytes { first: head.first, records };
        Some(Batch { number: head.batch, epoch: head.epoch, lease, payload })
    }

    /// The highest read bound in the batches that were taken, and the number of the checkpoint.
    pub(super) const fn lease_and_session(&self) -> (Timestamp, u64) {
        (self.lease, self.session)
    }

    /// The first batch that the log is needed for.
    pub(super) fn keep_from(&self) -> BatchNumber {
        self.rebuild.keep_from().unwrap_or_default()
    }

    /// Whether it gets on: not where nobody has sent anything for long.
    pub(super) fn gets_on(&self, now: Timestamp) -> bool {
        now.since(self.progress_at) < REBUILD_STALLS_AFTER
    }

    pub(super) fn has_failed(&self) -> bool {
        self.rebuild.has_failed()
    }

    pub(super) fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let asks = matches!(self.rebuild.step(), RebuildStep::Ask(_));
        let asked = self.asked.filter(|_| asks);
        let again = asked.map(|(_, at)| at.saturating_add(PART_AGAIN));
        [self.rebuild.next_deadline(now), again].into_iter().flatten().min()
    }

    pub(super) fn wake_fd(&self) -> Option<RawFd> {
        self.rebuild.wake_fd()
    }

    /// The backup that it has become.
    pub(super) fn into_backup(self, log: StageId) -> Backup {
        self.rebuild.into_backup(&[log])
    }
}
