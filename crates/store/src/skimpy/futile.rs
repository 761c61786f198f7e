//! That nothing was won, and when it is worth trying again.
//!
//! ```text
//!   a round won nothing ─► hope: until the watermark has passed a time     no hope: until it passes a write
//! ```
//!
//! Until then the store is full; or busy, as long as there is hope.

use timestone_types::Timestamp;

use super::contents::FrugalContents;

/// Whether a round of the log wins anything.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogRound {
    pub(super) left: u32,
    /// Bytes of blocks that were emptied, less those that were written for it.
    pub(super) won: i64,
    pub(super) later: u64,
    pub(super) until: Timestamp,
}

/// A round that won nothing: how things stood when it was over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Futile {
    mark: Timestamp,
    floor: Timestamp,
    youngest: Timestamp,
    until: Timestamp,
    hope: bool,
}

impl Futile {
    /// Things as they stand now. `hope`: when the watermark has passed `until`, something dies.
    pub(super) fn now(core: &FrugalContents, until: Timestamp, hope: bool) -> Self {
        let marks = &core.spaces.marks;
        Self {
            mark: marks.collection(),
            floor: marks.replay_floor(),
            youngest: core.spaces.youngest(),
            until,
            hope,
        }
    }

    /// The same, with what was found out about the time to come.
    pub(super) fn until(self, until: Timestamp, hope: bool) -> Self {
        Self { until, hope, ..self }
    }

    /// The same, where the replay floor lets nothing go.
    pub(super) fn whatever_the_floor(self) -> Self {
        Self { floor: Timestamp::MAX, ..self }
    }

    /// Whether something may have died since.
    pub(super) fn is_over(&self, core: &FrugalContents) -> bool {
        let marks = &core.spaces.marks;
        let (mark, floor) = (marks.collection(), marks.replay_floor());
        let has_died = if self.hope {
            mark >= self.until
        } else {
            mark > self.mark && core.spaces.youngest() > self.mark
        };
        has_died
            || (floor > self.floor && self.floor < mark)
            || core.spaces.youngest() > self.youngest && mark > self.youngest
    }

    /// Whether what the watermark will let go was met.
    pub(super) fn has_hope(&self, core: &FrugalContents) -> bool {
        self.hope && core.spaces.marks.collection() < self.until
    }
}
