//! Below which timestamps reads are refused, versions may go, and tombstones may go; and what was
//! lost with an earlier run.
//!
//! Invariants: watermark and replay floor only rise; what was lost is told before anything is put.

use timestone_types::{ClientId, Timestamp, Version};

use super::chain::Collected;
use super::space::Space;
use crate::error::StoreError;

/// The timestamps, and the version that stands for an earlier run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watermarks {
    /// Reads below it are refused; what a version at or below it supersedes may go.
    watermark: Timestamp,
    /// No write at or below it arrives any more.
    replay_floor: Timestamp,
    /// Everything at or below it was lost with an earlier run.
    lost: Version,
}

/// The youngest version of a timestamp.
const fn last_of(timestamp: Timestamp) -> Version {
    Version::new(timestamp, ClientId::new(u32::MAX))
}

impl Watermarks {
    /// Of a store that had no earlier run.
    pub(super) const fn new() -> Self {
        Self { watermark: Timestamp::ZERO, replay_floor: Timestamp::ZERO, lost: Version::ZERO }
    }

    /// Of a store whose earlier runs are being told: whatever is written was lost with them.
    pub(super) const fn in_recovery() -> Self {
        Self { lost: last_of(Timestamp::MAX), ..Self::new() }
    }

    /// Reads below it are refused.
    pub(super) const fn watermark(&self) -> Timestamp {
        self.watermark
    }

    /// What was lost acts as a fence at this version, which nobody wrote.
    pub(super) const fn lost(&self) -> Version {
        self.lost
    }

    /// Up to here tombstones may go that are all that is left of their keys.
    pub(super) fn tombstone_floor(&self) -> Timestamp {
        self.replay_floor.min(self.watermark)
    }

    /// What decides about the versions of a keyspace.
    #[inline]
    pub(super) fn collected(&self, space: &Space) -> Collected {
        let (watermark, floor) = (self.watermark, self.replay_floor);
        Collected { watermark, floor, fence: space.fence_at(watermark) }
    }

    /// Whether a read at this time may be asked.
    #[inline]
    pub(super) fn check_age(&self, at: Timestamp) -> Result<(), StoreError> {
        let watermark = self.watermark.max(self.lost.timestamp);
        if at < watermark { Err(StoreError::TooOld { at, watermark }) } else { Ok(()) }
    }

    /// Whether a version was lost before it came: its fellow writes of an earlier run are gone.
    #[inline]
    pub(super) fn is_lost(&self, version: Version) -> bool {
        version <= self.lost
    }

    /// Everything of earlier runs lies at or below `bound`; zero when there were none.
    pub(super) fn recovered(&mut self, bound: Timestamp) {
        self.lost = if bound == Timestamp::ZERO { Version::ZERO } else { last_of(bound) };
        debug_assert!(self.lost.timestamp == bound, "no more is lost than earlier runs had");
    }

    /// What earlier lives did is told again: whatever is written until that is over was lost. What
    /// was said of reads and late writes stands.
    pub(super) fn begin_recovery(&mut self) {
        self.lost = Self::in_recovery().lost;
        debug_assert!(self.is_lost(last_of(Timestamp::MAX)), "everything is told by a log");
    }

    /// Reads below `t` will not be asked any more.
    pub(super) fn raise(&mut self, t: Timestamp) {
        self.watermark = self.watermark.max(t);
        debug_assert!(self.watermark >= t, "the watermark only rises");
    }

    /// No write at or below `t` arrives any more.
    pub(super) fn raise_replay_floor(&mut self, t: Timestamp) {
        self.replay_floor = self.replay_floor.max(t);
        debug_assert!(self.replay_floor >= t, "the replay floor only rises");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_is_refused_and_nothing_above_it() {
        let at = Timestamp::from_nanos;
        let mut marks = Watermarks::in_recovery();
        assert!(marks.is_lost(last_of(Timestamp::MAX)), "everything is told by a log");
        marks.recovered(at(10));
        let (last, next) = (last_of(at(10)), Version::new(at(11), ClientId::new(0)));
        assert!(marks.is_lost(last) && !marks.is_lost(next));
        assert!(marks.check_age(at(9)).is_err() && marks.check_age(at(10)).is_ok());
    }

    #[test]
    fn tombstones_wait_for_the_watermark_and_the_replay_floor() {
        let at = Timestamp::from_nanos;
        let mut marks = Watermarks::new();
        marks.raise(at(30));
        marks.raise(at(20));
        assert_eq!((marks.watermark(), marks.tombstone_floor()), (at(30), Timestamp::ZERO));
        marks.raise_replay_floor(at(7));
        marks.raise_replay_floor(at(5));
        assert_eq!(marks.tombstone_floor(), at(7));
    }
}
