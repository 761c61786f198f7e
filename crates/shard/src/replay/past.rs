//! What a run is told of earlier ones, as far as its logs may not tell it.

use std::time::Duration;

use timestone_types::Timestamp;
use timestone_types::limits::MAX_CLOCK_LEAD;

/// What a run is told of earlier ones, beside what the logs hold.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Past {
    /// What they served, as far as the logs may not tell it.
    pub served: Served,
    /// How long nobody was served, if the sessions that were live are to be waited for: their last
    /// server has not been gone for long, the logs tell of them, and it did not begin again and
    /// again before they can have come back.
    pub outage: Option<Duration>,
}

/// A bound on what earlier runs did that no log tells of: they had none, or it is lost. Zero when
/// the logs tell everything.
///
/// Two things follow from it, and both need it. The low-water timestamp of the shard begins at it, so
/// that nothing is written below what was read. And the watermark begins [`MAX_CLOCK_LEAD`] below
/// it, at the timestamp that it was made of: collection went by a watermark of which the
/// checkpoints tell an early one only, so that a snapshot below this may miss versions, and would
/// be answered as if they had never been.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Served {
    below: Timestamp,
}

impl Served {
    /// What was saved of it: nanoseconds, zero for none.
    pub const fn below(below: Timestamp) -> Self {
        Self { below }
    }

    /// By a clock that shows `now`, and a directory in which nothing is younger than `youngest`.
    /// The watermark trails the clock, and should the clock have been set back, every version that
    /// collection may have spared a younger one lies below the youngest.
    pub fn by(now: Timestamp, youngest: Timestamp) -> Self {
        Self { below: now.max(youngest).saturating_add(MAX_CLOCK_LEAD) }
    }

    /// As it is saved.
    pub const fn as_timestamp(self) -> Timestamp {
        self.below
    }

    /// The later one of both.
    pub fn max(self, other: Self) -> Self {
        Self { below: self.below.max(other.below) }
    }

    /// At or above the watermark that was in force.
    pub(super) fn watermark(self) -> Timestamp {
        if timestone_types::is_planted!(StaleWatermark) {
            return Timestamp::ZERO;
        }
        self.below.saturating_sub(MAX_CLOCK_LEAD)
    }
}
