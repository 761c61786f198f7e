//! What a primary knows of the other replicas of its shard.

use core::time::Duration;

use timestone_types::Timestamp;
use timestone_wal::BatchNumber;

use super::ReplicaId;
use crate::limits::ASK_AGAIN_AFTER;
use crate::number_set::NumberSet;

/// Another replica.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Follower {
    pub(super) id: ReplicaId,
    /// It has installed the epoch's table, durably.
    pub(super) installed: bool,
    /// What it has durably.
    pub(super) acked: NumberSet,
    /// It lacks what is not kept any more: nothing waits for it.
    pub(super) is_lost: bool,
    /// It takes a checkpoint, which brings it everything up to this one.
    pub(super) takes_through: Option<BatchNumber>,
    /// The number of that checkpoint: what it has said before counts no more.
    pub(super) session: Option<u64>,
    /// It has said that it knows that everything up to this one counts.
    pub(super) told: BatchNumber,
    /// When it was last heard, or asked.
    asked_at: Timestamp,
}

impl Follower {
    pub(super) fn new(id: ReplicaId, now: Timestamp) -> Self {
        let (installed, is_lost, takes_through, session) = (false, false, None, None);
        let (acked, told) = (NumberSet::default(), BatchNumber::ZERO);
        Self { id, installed, acked, is_lost, takes_through, session, told, asked_at: now }
    }

    /// It was heard, or owes something only from now on.
    pub(super) fn heard(&mut self, now: Timestamp) {
        self.asked_at = self.asked_at.max(now);
    }

    /// When it is to be asked what it has, if it owes something.
    pub(super) fn ask_at(&self) -> Timestamp {
        const AGAIN: Duration = ASK_AGAIN_AFTER;
        self.asked_at.saturating_add(AGAIN)
    }

    /// Up to where it has everything whatever happens to it, or is brought that by a checkpoint: a
    /// restart drops what was sent of a table that is not installed.
    pub(super) fn keeps(&self) -> BatchNumber {
        let own = if self.installed { self.acked.prefix() } else { BatchNumber::ZERO };
        self.takes_through.map_or(own, |through| own.max(through))
    }

    /// It lacks what is not kept, and is not waited for.
    pub(super) const fn is_left_behind(&mut self) {
        (self.is_lost, self.takes_through) = (true, None);
    }

    /// Whether it has installed the table and has this batch.
    pub(super) fn has(&self, number: BatchNumber) -> bool {
        self.installed && self.acked.contains(number)
    }
}
