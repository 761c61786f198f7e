//! Checkpoints on the stage: a primary, or a candidate, gives them; a replica that lacks what nobody
//! keeps takes one.

use timestone_replication::{Entry, Input, ReplicaId};
use timestone_seda::{Context, ReplyAddress};
use timestone_shard::{PartAsk, RebuildStep};
use timestone_wire::{self as wire, Frame, Message};

use super::{ReplicaStage, replica_of};
use crate::event::Event;

/// Who takes checkpoints of a primary: the session of each, by replica.
#[derive(Debug, Default)]
pub(super) struct Takers {
    sessions: Vec<(ReplicaId, u64)>,
}

impl Takers {
    /// A replica asks, in this session. It has one at a time.
    fn asks(&mut self, replica: ReplicaId, session: u64) {
        self.sessions.retain(|(one, _)| *one != replica);
        self.sessions.push((replica, session));
    }

    /// The checkpoint that a replica asks for.
    fn session_of(&self, replica: ReplicaId) -> Option<u64> {
        self.sessions.iter().find(|(one, _)| *one == replica).map(|(_, session)| *session)
    }

    fn of(&self, session: u64) -> Option<ReplicaId> {
        self.sessions.iter().find(|(_, one)| *one == session).map(|(replica, _)| *replica)
    }
}

impl ReplicaStage {
    /// Everything here is void, as the log says: a checkpoint is taken from the beginning.
    pub(super) fn take_checkpoint(&mut self, ctx: &mut Context<'_, Event>) {
        let Some(kept) = &mut self.kept else { return };
        if kept.ends_since.is_some() {
            // The next start finds it in the log.
            return;
        }
        tracing::info!(shard = %self.shard, is_member = self.is_member, "this replica has \
            nothing that counts: while it is one of the shard's, it takes a checkpoint of the \
            primary");
        kept.applies.clear();
        kept.apply_bytes = 0;
        kept.is_unread = false;
        kept.log.give_up();
        if let Err(error) = self.parts.stores.loss_is_logged(self.shard) {
            tracing::warn!(shard = %self.shard, %error, "a loss that was accepted stays noted: the \
                next start takes another checkpoint");
        }
        let me = (self.shard, replica_of(self.server));
        kept.role.empty(ctx.now(), me, &*self.parts.stores);
    }

    /// Goes on with the checkpoint that is being taken.
    pub(super) fn rebuild(&mut self, ctx: &mut Context<'_, Event>) {
        // Not while others have its place, and not at the end; what its device has done is taken.
        let is_member = self.is_member;
        let Some(kept) = &mut self.kept else { return };
        let asks = is_member && kept.ends_since.is_none();
        let Some(rebuilding) = kept.role.rebuilding() else { return };
        let progress = match rebuilding.turn(ctx.now(), asks) {
            Ok(_) if rebuilding.has_failed() => return kept.role.log_has_failed(),
            Ok(progress) => progress,
            Err(error) => return kept.role.fail(self.shard, &error),
        };
        while let Some(batch) = kept.role.rebuilding().and_then(|one| one.take_batch()) {
            let (entry, buffer) = (Entry::Batch(batch), ctx.take_buffer());
            let (to, event) = kept.log.append(ctx.now(), None, &entry, buffer);
            self.outgoing.send(ctx, to, event);
        }
        match progress {
            RebuildStep::Ask(ask) => {
                let primary = self.map.primary(self.shard).map(|server| replica_of(server.id));
                if let Some(primary) = primary {
                    self.links.ask_part(primary, self.server, ask);
                }
            }
            RebuildStep::Wait => {}
            RebuildStep::Done { epoch, through } => {
                tracing::info!(shard = %self.shard, %epoch, %through, "this replica has taken a \
                    checkpoint, and follows its primary");
                let (lease, session) =
                    kept.role.rebuilding().map(|one| one.lease_and_session()).unwrap_or_default();
                // The mark of the table, which comes next, says so in the log.
                kept.log.needs_from(kept.role.keep_from());
                kept.role.rebuilt(self.parts.log);
                self.step(ctx, Input::Rebased { epoch, through, lease, session });
            }
            RebuildStep::Anew => self.take_checkpoint(ctx),
        }
    }

    /// A replica asks for a part of a checkpoint.
    pub(super) fn asked_for_part(
        &mut self,
        ctx: &mut Context<'_, Event>,
        over: ReplyAddress,
        frame: &Frame<'_>,
    ) {
        let Ok(asked) = wire::CheckpointAsk::decode(frame) else { return };
        let from = replica_of(asked.from);
        let Some(ask) = PartAsk::from_bytes(asked.after).filter(|_| self.links.knows(from)) else {
            return;
        };
        self.links.asked(from, over);
        let Some(kept) = &mut self.kept else { return };
        kept.takers.asks(from, ask.session);
        let is_stuck = kept.takes_frames() && kept.nothing_counts(ctx.now());
        if let Some(epoch) = kept.replica.candidate().or(kept.role.serves_in().filter(|_| is_stuck))
        {
            let which = (self.shard, epoch);
            let counted = (&kept.log, kept.replica.counted());
            kept.role.ask_part_of_counted(ctx.now(), which, ask, counted);
        } else if kept.takes_frames() {
            self.with_shard(ctx, |shard, turn| shard.ask_part(turn, ask));
        }
        self.note_taker(ctx);
    }

    /// Nothing is kept any more for a replica.
    pub(super) fn leave_behind(&mut self, replica: ReplicaId) {
        let Some(kept) = &mut self.kept else { return };
        if let Some(session) = kept.takers.session_of(replica) {
            kept.role.leave_behind(session);
        }
    }

    /// A part of the checkpoint that is being taken.
    pub(super) fn part_came(&mut self, ctx: &mut Context<'_, Event>, frame: &Frame<'_>) {
        let Ok(came) = wire::CheckpointPart::decode(frame) else { return };
        let Some(kept) = &mut self.kept else { return };
        let Some(rebuilding) = kept.role.rebuilding() else { return };
        if let Err(error) = rebuilding.part(ctx.now(), came.part) {
            tracing::warn!(shard = %self.shard, %error, "a part of a checkpoint cannot be read: it is \
                taken from the beginning");
            self.take_checkpoint(ctx);
        }
    }

    /// Sends the parts that are ready, and has the core keep for their takers what follows.
    pub(super) fn give_parts(&mut self, ctx: &mut Context<'_, Event>) {
        let Some(kept) = &mut self.kept else { return };
        while let Some(part) = kept.role.take_part() {
            if let Some(to) = kept.takers.of(part.ask.session) {
                self.links.give_part(to, &part);
            }
        }
        self.note_taker(ctx);
    }

    /// Tells the core who takes a checkpoint, and how far it goes: before anything else counts.
    fn note_taker(&mut self, ctx: &mut Context<'_, Event>) {
        let Some(kept) = &mut self.kept else { return };
        let given = kept.role.given_checkpoint();
        if given != kept.checkpoint {
            kept.checkpoint = given;
            let Some((session, through)) = given else { return };
            if let Some(replica) = kept.takers.of(session) {
                self.step(ctx, Input::TakesCheckpoint { replica, session, through });
            }
        }
    }
}
