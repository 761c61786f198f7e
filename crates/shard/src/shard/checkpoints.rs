//! Checkpoints that replicas ask the primary for. See [`crate::checkpoint`].

use timestone_store::StoreEvent;
use timestone_types::Timestamp;
use timestone_wal::{BatchHead, BatchNumber};

use super::Shard;
use crate::checkpoint::{CheckpointPart, PartAsk, ToDo};
use crate::turn::Turn;

/// What the host calls.
impl Shard {
    /// A replica asks for a part of a checkpoint, by a number of its own for the whole of it. It asks
    /// for part 0 first, for each part again until it has come, and then for the next one. The part
    /// comes with [`Shard::take_part`], after some turn; there may be none while another checkpoint
    /// is made. After [`Shard::begin_inputs`].
    pub fn ask_part(&mut self, ctx: &mut Turn<'_>, ask: PartAsk) {
        let has_log = self.log_records.has_log() && !self.log_records.has_failed();
        if !has_log || self.is_closing() {
            return;
        }
        let epoch = self.log_records.epoch();
        if self.exports.ask(ctx.now(), epoch, ask, &*self.store) {
            self.close_batch(ctx, 0);
            let n = self.log_records.open_tap();
            self.exports.begin(ctx.now(), epoch, ask.session, n);
        }
    }

    /// The same where what is written now may never count, because no other replica has everything
    /// that does: the checkpoint ends with what counts. `batches` are those that the log is needed
    /// for, up to the last one that counts, which is `through`.
    pub fn ask_part_of_counted<'a>(
        &mut self,
        now: Timestamp,
        ask: PartAsk,
        (through, batches): (BatchNumber, impl Iterator<Item = (BatchHead, &'a [u8])>),
    ) {
        if let Some((_, durable)) = self.log_records.tapped() {
            self.exports.give_up_live(durable);
        }
        let epoch = self.log_records.epoch();
        let has_anything = through > BatchNumber::ZERO && !self.is_closing();
        if has_anything && self.exports.ask(now, epoch, ask, &*self.store) {
            let what = (epoch, ask.session, through);
            self.exports.begin_fixed(now, what, batches, &*self.store);
        }
    }

    /// Nothing is kept any more for whoever takes the checkpoint of this session: one that does not
    /// bring what follows is forgotten.
    pub fn leave_behind(&mut self, session: u64) {
        self.exports.leave_behind(session);
    }

    /// A part for whoever has asked for it.
    pub fn take_part(&mut self) -> Option<CheckpointPart> {
        self.exports.take_part()
    }

    /// The checkpoint under way, by its session, and the batch up to which it brings everything;
    /// those behind that batch are in parts to come, while there are any.
    #[must_use]
    pub fn checkpoint(&self) -> Option<(u64, BatchNumber)> {
        self.exports.progress()
    }

    /// Whether something of what the store was given is missing in it: pages were not read when it was
    /// opened, or a checkpoint has met damage.
    #[must_use]
    pub fn lacks_data(&self) -> bool {
        self.store.unread_pages() > 0 || self.exports.have_met_damage()
    }

    /// Goes on with a checkpoint. Called every turn.
    pub(super) fn export(&mut self, ctx: &mut Turn<'_>) {
        self.exports.forget_old(ctx.now());
        if !self.exports.taps() {
            self.log_records.close_tap();
        }
        if !self.exports.is_under_way() {
            return;
        }
        let is_copying = self.log_records.is_copying();
        let tapped = self.log_records.tapped();
        let to_do = self.exports.go_on(ctx.now(), tapped, is_copying, &mut *self.store);
        if let ToDo::Record(n) = to_do {
            if !timestone_types::is_planted!(CheckpointWithoutState) {
                self.copy_forward(ctx, n.next());
            }
            let m = self.log_records.copied_in().unwrap_or(n);
            if let Some((tap, _)) = self.log_records.tapped() {
                tap.note_state(m);
            }
            self.exports.recorded(ctx.now(), m, &*self.store);
        }
    }

    pub(super) fn export_deadline(&self) -> Option<Timestamp> {
        self.exports.deadline(Timestamp::ZERO)
    }

    /// Deals with an event of the store that is for a checkpoint; gives others back.
    pub(super) fn take_exported(
        &mut self,
        event: StoreEvent,
        now: Timestamp,
    ) -> Option<StoreEvent> {
        self.exports.take_event(event, now, &mut *self.store)
    }
}
