//! What a replica does for its shard: it is a backup, the primary, takes a checkpoint, or can do
//! nothing any more.

use std::os::fd::RawFd;
use std::sync::Arc;

use timestone_replication::{Batch, ReplicaId};
use timestone_seda::{Context, StageId};
use timestone_shard::gauges::ShardGauges;
use timestone_shard::{
    Backup, CheckpointPart, Output, PartAsk, Recovering, Replay, Shard, ShardError, Turn,
};
use timestone_types::{Epoch, ShardId, Timestamp};
use timestone_wal::BatchNumber;

use super::bytes::{LogBytes, head_of};
use super::rebuilding::Rebuilding;
use super::replica_log::ReplicaLog;
use super::start::OpenStore;
use crate::event::Event;
use crate::shard_call;
use crate::shared_shard::{LentShard, ShardSlot};

/// The shard, while it serves.
struct Primary {
    shard: LentShard,
    /// In which epoch.
    epoch: Epoch,
    /// What the shard needs of its log.
    keep_from: BatchNumber,
    /// Emptied by every call.
    outputs: Vec<Output>,
    /// Nothing that it records becomes durable here any more.
    has_lost_log: bool,
    /// At the end of the process: the shard was told so.
    is_told: bool,
}

impl Primary {
    /// Nothing becomes durable in its log any more: nobody asks it.
    fn loses_log(&mut self) {
        self.has_lost_log = true;
        self.shard.withdraw();
    }
}

/// See the module.
enum Kind {
    Backup(Box<Backup>),
    Primary(Box<Primary>),
    Rebuilding(Box<Rebuilding>),
    Failed,
}

/// See the module.
pub(super) struct ReplicaRole(Kind);

impl ReplicaRole {
    /// A backup that goes on from what its log has told.
    pub(super) fn backup(replay: Replay, log: StageId) -> Self {
        Self(Kind::Backup(Box::new(Backup::new(replay, &[log]))))
    }

    pub(super) const fn is_primary(&self) -> bool {
        matches!(self.0, Kind::Primary(_))
    }

    pub(super) const fn is_backup(&self) -> bool {
        matches!(self.0, Kind::Backup(_))
    }

    /// The backup, if it is one.
    pub(super) fn as_backup(&mut self) -> Option<&mut Backup> {
        match &mut self.0 {
            Kind::Backup(backup) => Some(backup),
            Kind::Primary(_) | Kind::Rebuilding(_) | Kind::Failed => None,
        }
    }

    pub(super) const fn has_failed(&self) -> bool {
        matches!(self.0, Kind::Failed)
    }

    /// The epoch in which it serves.
    pub(super) fn serves_in(&self) -> Option<Epoch> {
        match &self.0 {
            Kind::Primary(primary) => Some(primary.epoch),
            Kind::Backup(_) | Kind::Rebuilding(_) | Kind::Failed => None,
        }
    }

    /// Whether it is a primary whose log takes nothing any more.
    pub(super) const fn has_lost_log(&self) -> bool {
        matches!(&self.0, Kind::Primary(primary) if primary.has_lost_log)
    }

    /// Whether it lacks something of what its store was given: its device has not read it, or it is
    /// damaged.
    pub(super) fn lacks_data(&self) -> bool {
        match &self.0 {
            Kind::Backup(backup) => backup.lacks_data(),
            Kind::Primary(primary) => primary.shard.get().lacks_data(),
            Kind::Rebuilding(_) | Kind::Failed => false,
        }
    }

    /// Whether nothing that it is given is kept any more: its log or its device has failed.
    pub(super) fn keeps_nothing(&self) -> bool {
        match &self.0 {
            Kind::Failed => true,
            Kind::Primary(primary) => primary.has_lost_log || primary.shard.get().has_failed(),
            Kind::Backup(_) | Kind::Rebuilding(_) => false,
        }
    }

    /// At the end of the process: the shard is to be told that its log takes nothing any more.
    /// Whether it is news to it.
    pub(super) fn gives_up_log(&mut self) -> bool {
        let Kind::Primary(primary) = &mut self.0 else { return false };
        primary.loses_log();
        !std::mem::replace(&mut primary.is_told, true)
    }

    pub(super) fn fail(&mut self, shard: ShardId, error: &ShardError) {
        tracing::error!(%shard, %error, "a replica cannot carry out what its primary has logged: it \
            counts as lost. Look at its device, then restart the server; if its data is damaged, \
            start it with a new data directory");
        self.0 = Kind::Failed;
    }

    /// Carries out a batch that counts.
    pub(super) fn take(&mut self, now: Timestamp, shard: ShardId, batch: &Batch<LogBytes>) {
        let Kind::Backup(backup) = &mut self.0 else { return };
        if batch.number <= backup.last() {
            return;
        }
        if let Err(error) = backup.take(now, head_of(shard, batch), &batch.payload.records) {
            self.fail(shard, &error);
        }
    }

    /// Whether a backup's store does not keep up.
    pub(super) fn is_behind(&self) -> bool {
        matches!(&self.0, Kind::Backup(backup) if backup.is_behind())
    }

    /// A backup goes on, or ends with its process.
    pub(super) fn turn_backup(&mut self, now: Timestamp, ends: bool, gauges: &Arc<ShardGauges>) {
        let Kind::Backup(backup) = &mut self.0 else { return };
        if ends {
            if let Err(error) = backup.shutdown(now) {
                let shard = backup.shard();
                self.fail(shard, &error);
            }
            return;
        }
        let shard = backup.shard();
        if let Err(error) = backup.turn(now) {
            return self.fail(shard, &error);
        }
        backup.publish(now, gauges);
        if backup.has_failed() {
            self.0 = Kind::Failed;
        }
    }

    /// A backup becomes the shard; everything up to `through` was carried out.
    pub(super) fn promote(
        &mut self,
        (floor, through): (Timestamp, BatchNumber),
        with: Recovering,
        slot: ShardSlot,
    ) {
        let (epoch, keep_from) = (with.epoch, self.keep_from());
        match std::mem::replace(&mut self.0, Kind::Failed) {
            Kind::Backup(backup) => {
                assert_eq!(backup.last(), through, "all of the table was carried out");
                let shard = LentShard::new(backup.promote(floor, with), slot);
                let (outputs, has_lost_log, is_told) = (Vec::new(), false, false);
                let primary = Primary { shard, epoch, keep_from, outputs, has_lost_log, is_told };
                self.0 = Kind::Primary(Box::new(primary));
            }
            // Its store has failed as it took the last of them.
            Kind::Failed => {}
            Kind::Primary(_) => unreachable!("a primary is deposed before it serves anew"),
            Kind::Rebuilding(_) => unreachable!("whoever lacks a table does not serve"),
        }
    }

    /// A primary becomes a backup: of what it did, that counts which is in these batches. One whose
    /// store is being closed, because its process ends, is brought to its end as it is.
    pub(super) fn depose(
        &mut self,
        now: Timestamp,
        id: ShardId,
        log: StageId,
        (batches, counted): (&ReplicaLog, BatchNumber),
    ) {
        if self.is_closing() {
            return self.log_has_failed();
        }
        let Kind::Primary(primary) = std::mem::replace(&mut self.0, Kind::Failed) else { return };
        let has_lost_log = primary.has_lost_log;
        let mut replay = Replay::new(id, primary.shard.take_back().depose()).beside_others();
        for batch in batches.batches(counted) {
            let records = &batch.payload.records;
            if let Err(error) = replay.batch(now, head_of(id, batch), records) {
                return self.fail(id, &error);
            }
        }
        if !has_lost_log {
            *self = Self::backup(replay, log);
        }
    }

    /// Whether it serves, and whoever becomes primary now waits for hardly more than clocks' errors.
    pub(super) fn has_short_lease(&self, now: Timestamp) -> bool {
        matches!(&self.0, Kind::Primary(primary) if primary.shard.get().has_short_lease(now))
    }

    /// Whether it is a primary whose store takes nothing any more, because the process ends.
    pub(super) fn is_closing(&self) -> bool {
        matches!(&self.0, Kind::Primary(primary) if primary.shard.get().is_closing())
    }

    /// Calls the shard, if this is the primary: what it wants done, to be
    /// [given back](Self::give_back) when that was carried out.
    pub(super) fn call(
        &mut self,
        ctx: &mut Context<'_, Event>,
        (has_unsent, is_log_busy): (bool, bool),
        run: impl FnOnce(&mut Shard, &mut Turn<'_>),
    ) -> Option<Vec<Output>> {
        let Kind::Primary(primary) = &mut self.0 else { return None };
        let mut outputs = std::mem::take(&mut primary.outputs);
        let is_log_busy = is_log_busy && !primary.has_lost_log;
        let state = (has_unsent, is_log_busy);
        shard_call::call(ctx, &mut primary.shard.get(), state, &mut outputs, run);
        Some(outputs)
    }

    /// See [`Self::call`].
    pub(super) fn give_back(&mut self, outputs: Vec<Output>) {
        debug_assert!(outputs.is_empty(), "what the shard wants is carried out");
        if let Kind::Primary(primary) = &mut self.0 {
            primary.outputs = outputs;
        }
    }

    /// The shard needs nothing below this batch.
    pub(super) fn needs_from(&mut self, keep_from: BatchNumber) {
        if let Kind::Primary(primary) = &mut self.0 {
            primary.keep_from = primary.keep_from.max(keep_from);
        }
    }

    /// The first batch that the log is needed for.
    pub(super) fn keep_from(&mut self) -> BatchNumber {
        match &mut self.0 {
            Kind::Backup(backup) => backup.keep_from(),
            Kind::Primary(primary) => primary.keep_from,
            Kind::Rebuilding(rebuilding) => rebuilding.keep_from(),
            Kind::Failed => BatchNumber::ZERO,
        }
    }

    /// No log can hand out anything before this batch any more.
    pub(super) fn retained(&mut self, log: StageId, from: BatchNumber) {
        if let Kind::Backup(backup) = &mut self.0 {
            backup.log_retained(log, from);
        }
    }

    /// Nothing becomes durable in its log any more.
    pub(super) fn log_has_failed(&mut self) {
        match &mut self.0 {
            Kind::Primary(primary) => primary.loses_log(),
            Kind::Backup(_) | Kind::Rebuilding(_) => self.0 = Kind::Failed,
            Kind::Failed => {}
        }
    }

    pub(super) fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            Kind::Backup(backup) => backup.next_deadline(now),
            Kind::Primary(primary) => primary.shard.get().next_deadline(),
            Kind::Rebuilding(rebuilding) => rebuilding.next_deadline(now),
            Kind::Failed => None,
        }
    }

    pub(super) fn wake_fd(&self) -> Option<RawFd> {
        match &self.0 {
            Kind::Backup(backup) => backup.wake_fd(),
            Kind::Primary(primary) => primary.shard.get().wake_fd(),
            Kind::Rebuilding(rebuilding) => rebuilding.wake_fd(),
            Kind::Failed => None,
        }
    }

    /// Everything here is void: the store is emptied, and filled from a checkpoint.
    pub(super) fn empty(
        &mut self,
        now: Timestamp,
        (shard, me): (ShardId, ReplicaId),
        stores: &dyn OpenStore,
    ) {
        // What has it open goes first.
        self.0 = Kind::Failed;
        match stores.open_empty(shard) {
            Ok(store) => {
                let rebuilding = Rebuilding::new(now, (shard, me), store);
                self.0 = Kind::Rebuilding(Box::new(rebuilding));
            }
            Err(error) => {
                tracing::error!(%shard, %error, "a replica that lacks what the others do \
                not keep cannot empty its store: it counts as lost. Remove the cause, and restart \
                the server")
            }
        }
    }

    /// The checkpoint that is being taken.
    pub(super) fn rebuilding(&mut self) -> Option<&mut Rebuilding> {
        match &mut self.0 {
            Kind::Rebuilding(rebuilding) => Some(rebuilding),
            Kind::Backup(_) | Kind::Primary(_) | Kind::Failed => None,
        }
    }

    /// The checkpoint is whole.
    pub(super) fn rebuilt(&mut self, log: StageId) {
        if let Kind::Rebuilding(rebuilding) = std::mem::replace(&mut self.0, Kind::Failed) {
            self.0 = Kind::Backup(Box::new(rebuilding.into_backup(log)));
        }
    }

    /// Another replica asks for a part of a checkpoint that ends with what counts now: of a
    /// candidate for this epoch, or of a primary for which nothing counts any more.
    pub(super) fn ask_part_of_counted(
        &mut self,
        now: Timestamp,
        (id, epoch): (ShardId, Epoch),
        ask: PartAsk,
        (batches, counted): (&ReplicaLog, BatchNumber),
    ) {
        let up_to = |through| {
            let batches = batches.batches(through);
            batches.map(|batch| (head_of(id, batch), &batch.payload.records[..]))
        };
        match &mut self.0 {
            Kind::Backup(backup) => {
                let (base, batches) = (batches.base(), up_to(backup.last()));
                backup.ask_part(now, epoch, ask, base, batches);
            }
            Kind::Primary(primary) => {
                primary.shard.get().ask_part_of_counted(now, ask, (counted, up_to(counted)));
            }
            Kind::Rebuilding(_) | Kind::Failed => {}
        }
    }

    /// A part of a checkpoint for whoever has asked for it.
    pub(super) fn take_part(&mut self) -> Option<CheckpointPart> {
        match &mut self.0 {
            Kind::Primary(primary) => primary.shard.get().take_part(),
            Kind::Backup(backup) => backup.take_part(),
            Kind::Rebuilding(_) | Kind::Failed => None,
        }
    }

    /// The checkpoint that is given, by its session, and the batch up to which it brings everything.
    pub(super) fn given_checkpoint(&self) -> Option<(u64, BatchNumber)> {
        match &self.0 {
            Kind::Primary(primary) => primary.shard.get().checkpoint(),
            Kind::Backup(backup) => backup.checkpoint(),
            Kind::Rebuilding(_) | Kind::Failed => None,
        }
    }

    /// Nothing is kept any more for whoever takes the checkpoint of this session.
    pub(super) fn leave_behind(&mut self, session: u64) {
        if let Kind::Primary(primary) = &mut self.0 {
            primary.shard.get().leave_behind(session);
        }
    }

    /// Whether it has come to its end.
    pub(super) fn is_drained(&self) -> bool {
        match &self.0 {
            Kind::Backup(backup) => backup.is_drained(),
            Kind::Primary(primary) => primary.shard.get().is_drained(),
            // Nothing of it is of any worth before it is whole.
            Kind::Rebuilding(_) | Kind::Failed => true,
        }
    }
}
