//! What callers have asked for: how much of it is under way, how it ended, and the counts of it.

use timestone_io::AlignedBuffer;

use crate::device::{DeviceStats, FlashCompletion, Token};
use crate::error::FlashError;

/// See the module.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Most requests under way.
    depth: usize,
    in_flight: usize,
    /// Completions that came about in `wait`; the next poll delivers them.
    pub(crate) ready: Vec<FlashCompletion>,
    pub(crate) stats: DeviceStats,
}

impl Requests {
    pub(crate) fn new(depth: usize, stats: DeviceStats) -> Self {
        Self { depth, in_flight: 0, ready: Vec::new(), stats }
    }

    /// Whether another one may begin.
    pub(crate) const fn has_room(&self) -> bool {
        self.in_flight < self.depth
    }

    /// Requests that have not ended.
    pub(crate) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// One begins.
    pub(crate) fn begin(&mut self) {
        debug_assert!(self.has_room(), "a request begins only while there is room");
        self.in_flight += 1;
    }

    /// One has ended.
    pub(crate) fn complete(
        &mut self,
        token: Token,
        result: Result<(), FlashError>,
        buffer: Option<AlignedBuffer>,
        completions: &mut Vec<FlashCompletion>,
    ) {
        debug_assert!(self.in_flight > 0, "a request ends that had not begun");
        self.in_flight -= 1;
        self.stats.errors += u64::from(result.is_err());
        completions.push(FlashCompletion { token, result, buffer });
    }
}
