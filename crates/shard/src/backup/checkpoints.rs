//! Checkpoints of a backup: where a candidate for primary is the only replica that has what counts,
//! the others take them, so that it may serve. See [`crate::checkpoint`].

use timestone_types::{Epoch, Timestamp};
use timestone_wal::{BatchHead, BatchNumber};

use super::{Backup, End};
use crate::checkpoint::{CheckpointPart, PartAsk};

impl Backup {
    /// A replica asks for a part of a checkpoint, as with [`crate::Shard::ask_part`]. `epoch` is the
    /// one that this replica is a candidate for. `batches` are those that the own log is needed for,
    /// up to the last one that was [taken](Backup::take); everything up to `base` is in the store and
    /// in no log, where none was taken since the start.
    pub fn ask_part<'a>(
        &mut self,
        now: Timestamp,
        epoch: Epoch,
        ask: PartAsk,
        base: BatchNumber,
        batches: impl Iterator<Item = (BatchHead, &'a [u8])>,
    ) {
        let through = self.last.max(base);
        let has_anything = through > BatchNumber::ZERO && self.end == End::IsFarOff;
        let store = self.replay.store();
        if has_anything && self.exports.ask(now, epoch, ask, store) {
            let what = (epoch, ask.session, through);
            self.exports.begin_fixed(now, what, batches, store);
        }
    }

    /// A part for whoever has asked for it.
    pub fn take_part(&mut self) -> Option<CheckpointPart> {
        self.exports.take_part()
    }

    /// The checkpoint under way, by its session, and the batch up to which it brings everything.
    #[must_use]
    pub fn checkpoint(&self) -> Option<(u64, BatchNumber)> {
        self.exports.progress()
    }

    /// As [`crate::Shard::lacks_data`].
    #[must_use]
    pub fn lacks_data(&self) -> bool {
        self.replay.store().unread_pages() > 0 || self.exports.have_met_damage()
    }

    /// Goes on with a checkpoint. Called every turn.
    pub(super) fn give(&mut self, now: Timestamp) {
        self.exports.forget_old(now);
        if self.exports.is_under_way() {
            self.exports.go_on(now, None, false, self.replay.store_mut());
        }
    }
}
