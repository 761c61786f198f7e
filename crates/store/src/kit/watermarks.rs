//! Below which timestamps reads are refused, versions may go, and tombstones may go.
//!
//! ```text
//!   replay floor ≤ what the caller says          collection ≤ watermark
//!   ──┴──── no write comes any more below ────┴──── superseded here: garbage ────┴──── reads ───►
//! ```
//!
//! Hidden dependency that this part made explicit: without a log, collection follows the watermark
//! only as far as what the writer and the staging area hold is durable.
//!
//! Invariants: all three only rise; `collection ≤ watermark`.

use timestone_types::{Expiry, Timestamp, is_planted};

use super::staging::Staging;
use super::writer::Writer;
use crate::error::StoreError;

/// The three timestamps.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Watermarks {
    /// Reads below it are refused.
    watermark: Timestamp,
    /// What a version at or below it supersedes may go. Without a log it may trail the watermark.
    collection: Timestamp,
    /// No write at or below it arrives any more.
    replay_floor: Timestamp,
    /// What has expired by a later time is kept.
    expiry: Option<Timestamp>,
    without_log: bool,
    /// What a deletion hides may come back, whatever the replay floor.
    keeps_tombstones: bool,
}

impl Watermarks {
    /// Those of a store that was opened with this watermark.
    pub(crate) fn opened(watermark: Timestamp, without_log: bool) -> Self {
        Self {
            watermark,
            collection: watermark,
            replay_floor: Timestamp::ZERO,
            expiry: None,
            without_log,
            keeps_tombstones: false,
        }
    }

    /// What holds between calls.
    #[inline]
    pub(crate) fn assert_sound(&self) {
        debug_assert!(self.collection <= self.watermark, "what may be read is not collected");
    }

    /// Reads below it are refused.
    #[inline]
    pub(crate) fn watermark(&self) -> Timestamp {
        self.watermark
    }

    /// What a version at or below it supersedes may go.
    #[inline]
    pub(crate) fn collection(&self) -> Timestamp {
        self.collection
    }

    /// Whether a record has expired for every reader.
    pub(crate) fn has_expired(&self, expires_at: Expiry) -> bool {
        expires_at.has_passed(self.expiry.map_or(self.collection, |t| self.collection.min(t)))
    }

    /// What has expired by a later time than `t` is kept, although the watermark has passed it.
    pub(crate) fn keep_expired(&mut self, t: Timestamp) {
        self.expiry = Some(t);
    }

    /// No write at or below it arrives any more, and deletions at or below it may be forgotten.
    pub(crate) fn replay_floor(&self) -> Timestamp {
        if self.keeps_tombstones { Timestamp::ZERO } else { self.replay_floor }
    }

    /// No deletion is forgotten from now on: a block could not be read, and what they hide may be found
    /// there at the next start.
    pub(crate) fn keep_tombstones(&mut self) {
        self.keeps_tombstones = true;
    }

    /// Whether a read at this time may be asked.
    #[inline]
    pub(crate) fn check_age(&self, at: Timestamp) -> Result<(), StoreError> {
        if at < self.watermark {
            Err(StoreError::TooOld { at, watermark: self.watermark })
        } else {
            Ok(())
        }
    }

    /// Reads below `t` will not be asked any more.
    pub(crate) fn raise(&mut self, t: Timestamp, writer: &Writer, staging: &Staging) {
        if t > self.watermark {
            self.watermark = t;
            self.follow(writer, staging);
        }
        self.assert_sound();
        debug_assert!(self.watermark >= t, "the watermark only rises");
    }

    /// No write at or below `t` arrives any more.
    pub(crate) fn raise_replay_floor(&mut self, t: Timestamp) {
        self.replay_floor = self.replay_floor.max(t);
        debug_assert!(self.replay_floor >= t, "the replay floor only rises");
    }

    /// Lets collection follow the watermark. With a log at once: the log has what is not durable
    /// here. Without one a put lets what it supersedes go only when it is durable itself, or a
    /// crash would take both: the new version from memory, the old one from the device.
    pub(crate) fn follow(&mut self, writer: &Writer, staging: &Staging) {
        if self.collection == self.watermark {
            return;
        }
        let mut durable_below = Timestamp::MAX;
        if self.without_log && !is_planted!(PrunedTooEarly) {
            durable_below = writer.oldest_unstable().min(staging.oldest_put());
        }
        self.collection = self.collection.max(self.watermark.min(durable_below.previous()));
        assert!(self.collection <= self.watermark);
    }
}

#[cfg(test)]
mod tests {
    use super::super::volume::tests::volume;
    use super::*;

    #[test]
    fn all_of_them_only_rise() {
        let (volume, staging) = (volume(), Staging::new(0));
        let at = Timestamp::from_nanos;
        let mut marks = Watermarks::opened(at(10), false);
        marks.raise(at(30), &volume.writer, &staging);
        marks.raise(at(20), &volume.writer, &staging);
        marks.raise_replay_floor(at(7));
        marks.raise_replay_floor(at(5));
        assert_eq!((marks.watermark(), marks.collection()), (at(30), at(30)));
        assert_eq!(marks.replay_floor(), at(7));
        assert!(marks.check_age(at(30)).is_ok() && marks.check_age(at(29)).is_err());
    }
}
