//! Reads at backups, on the stage: a backup that is read asks its primary for closed timestamps, and
//! answers snapshots below them; a primary closes them when it is asked.
//!
//! ```text
//!   client ─ GetAtBackup ─► backup ─┬─ Value, or the client is to ask the primary
//!                                   └─ ClosedAsk, every CLOSED_PAUSE while it is read ─► primary
//!   backup ◄─ ClosedIs (epoch, batch n, timestamp) ── closes a timestamp ◄───────────────┘
//! ```
//! Nobody asks while nobody reads, so a shard that is not read at backups pays nothing. What is lost is
//! asked again. Rules: docs/protocol/replication.md, P21.

use timestone_replication::ReplicaId;
use timestone_seda::{Context, FrameBatch, ReplyAddress};
use timestone_shard::{BackupReadFigures, BackupReads, Output as ShardOutput, Turn};
use timestone_types::Timestamp;
use timestone_wal::BatchNumber;
use timestone_wire::{self as wire, Frame, Message as _};

use super::refusing::NotServed;
use super::{Kept, ReplicaStage, replica_of};
use crate::event::Event;
use crate::limits::{CLOSED_PAUSE, CLOSED_WANTED_FOR};
use crate::shard_call;

/// What a stage knows of reads at backups.
pub(super) struct ReadsHere {
    reads: BackupReads,
    /// When somebody read here last.
    read_at: Option<Timestamp>,
    /// When the primary was asked last.
    asked_at: Timestamp,
    /// Who has asked this primary, and is not answered.
    askers: Vec<ReplicaId>,
    /// Emptied by every call.
    outputs: Vec<ShardOutput>,
}

impl ReadsHere {
    pub(super) const fn new(reads: BackupReads) -> Self {
        Self {
            reads,
            read_at: None,
            asked_at: Timestamp::ZERO,
            askers: Vec::new(),
            outputs: Vec::new(),
        }
    }

    pub(super) const fn figures(&self) -> BackupReadFigures {
        self.reads.figures()
    }

    /// When the primary is asked again, while somebody reads.
    fn asks_at(&self) -> Option<Timestamp> {
        let read_at = self.read_at?;
        let at = self.asked_at.saturating_add(CLOSED_PAUSE);
        (at <= read_at.saturating_add(CLOSED_WANTED_FOR)).then_some(at)
    }
}

impl ReplicaStage {
    /// Frames of a connection, some of which are reads at a backup.
    pub(super) fn read_at_backup(&mut self, ctx: &mut Context<'_, Event>, frame_batch: FrameBatch) {
        let refusal = NotServed::of(self.shard, &self.map, self.server);
        let Self { reads_here: here, kept, map, .. } = self;
        here.read_at = Some(ctx.now());
        here.reads.set_map(map.epoch(self.shard).unwrap_or_default(), map.version());
        let backup = kept.as_mut().and_then(Kept::readable_backup);
        let (now, stage) = (ctx.now(), ctx.stage());
        let mut turn = Turn::new(now, stage, ctx.frame_batches(), &mut here.outputs);
        here.reads.frames(&mut turn, backup, frame_batch, |frame, out| refusal.answer(frame, out));
        let (requests, bytes) = turn.finished();
        if requests > 0 {
            ctx.gauge(stage).release(requests, bytes);
        }
        self.send_answers(ctx);
    }

    fn send_answers(&mut self, ctx: &mut Context<'_, Event>) {
        for output in self.reads_here.outputs.drain(..) {
            let rest = shard_call::send(ctx, &mut self.outgoing, &self.name, output);
            debug_assert!(rest.is_none(), "a backup records nothing");
        }
    }

    /// Goes on with reads here. Called every turn, behind what the shard does.
    pub(super) fn go_on_reading(&mut self, ctx: &mut Context<'_, Event>) {
        self.close_timestamp(ctx);
        let (now, stage) = (ctx.now(), ctx.stage());
        let Self { reads_here: here, kept, .. } = self;
        let mut backup = None;
        if let Some(kept) = kept {
            let installed = kept.replica.installed();
            backup = kept.readable_backup();
            if let Some(backup) = &mut backup {
                backup.follow_closed(installed);
            }
        }
        let is_backup = backup.is_some();
        if !here.reads.is_idle() {
            let mut turn = Turn::new(now, stage, ctx.frame_batches(), &mut here.outputs);
            here.reads.turn(&mut turn, backup);
            self.send_answers(ctx);
        }
        let here = &mut self.reads_here;
        if is_backup && here.asks_at().is_some_and(|at| at <= now) {
            here.asked_at = now;
            let primary = self.map.primary(self.shard).map(|server| replica_of(server.id));
            if let Some(primary) = primary {
                self.links.ask_closed(primary, self.server);
            }
        }
    }

    /// When it has something to do for reads here.
    pub(super) fn reading_deadline(&self) -> Option<Timestamp> {
        let is_backup =
            |kept: &Kept| kept.role.is_backup() && kept.ends_since.is_none() && !kept.is_unread;
        let is_backup = self.kept.as_ref().is_some_and(is_backup);
        self.reads_here.asks_at().filter(|_| is_backup)
    }

    /// A backup asks for a closed timestamp.
    pub(super) fn asked_for_closed(&mut self, over: ReplyAddress, frame: &Frame<'_>) {
        let Ok(asked) = wire::ClosedAsk::decode(frame) else { return };
        let from = replica_of(asked.from);
        if !self.links.knows(from) {
            return;
        }
        self.links.asked(from, over);
        if !self.reads_here.askers.contains(&from) {
            self.reads_here.askers.push(from);
        }
    }

    /// Closes a timestamp for those who have asked.
    fn close_timestamp(&mut self, ctx: &mut Context<'_, Event>) {
        if self.reads_here.askers.is_empty() {
            return;
        }
        let serves = self.kept.as_ref().filter(|kept| kept.takes_frames());
        let epoch = serves.and_then(|kept| kept.role.serves_in());
        let mut closed = None;
        if epoch.is_some() {
            self.with_shard(ctx, |shard, turn| closed = shard.close_timestamp(turn));
        }
        for to in std::mem::take(&mut self.reads_here.askers) {
            if let (Some(epoch), Some((through, at))) = (epoch, closed) {
                self.links.give_closed(to, epoch, (through, at));
            }
        }
    }

    /// The primary has closed a timestamp.
    pub(super) fn closed_came(&mut self, frame: &Frame<'_>) {
        let Ok(closed) = wire::ClosedIs::decode(frame) else { return };
        let (epoch, through) = (frame.envelope().epoch, BatchNumber::new(closed.through));
        let Some(Kept { role, replica, .. }) = &mut self.kept else { return };
        if epoch == replica.installed()
            && let Some(backup) = role.as_backup()
        {
            backup.tell_closed(epoch, through, closed.at);
        }
    }
}
