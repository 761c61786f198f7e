//! The client's half of Centiman's validation, for comparisons: a transaction that only reads commits in
//! the client where every version that it read lies below the watermark, and asks the shards where one
//! does not (MILANA §5.3).
//!
//! ```text
//!        versions read                                begin
//!   ──────┼────┼──────────────── watermark ─────────────┼──▶ t
//!         └────┴─ all of them below: it read the state as of the watermark
//! ```
//! The watermark is one that was known before the first read. Nothing below it was under way any more
//! when the key was read, and nothing is let in there later. So the version that was found at begin, if
//! it lies below, is the one as of the watermark, whatever commits between the two afterwards. That is
//! why no shard needs to remember reads ([`crate::participant::Config::notes_reads`]).
//!
//! The transaction takes place at the watermark, which may lie before what its session committed last:
//! it is serializable, and the order of a session is not promised.

use timestone_types::{Expiry, Timestamp, Version, is_planted};

/// Collects what the rule needs to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BelowWatermark {
    watermark: Timestamp,
    is_kept: bool,
}

impl BelowWatermark {
    /// Nothing was read yet. `watermark` is at or below that of every shard, and was known before
    /// anything was read.
    #[must_use]
    pub const fn new(watermark: Timestamp) -> Self {
        Self { watermark, is_kept: true }
    }

    /// Notes one answered read. What expires may have expired between the watermark and begin.
    #[inline]
    pub fn observe(&mut self, version: Version, expires_at: Expiry) {
        let is_below = version.timestamp < self.watermark || is_planted!(CommitsAboveWatermark);
        self.is_kept &= is_below && expires_at == Expiry::NEVER;
    }

    /// Whether everything that was read is the state as of the watermark.
    #[must_use]
    pub const fn holds(self) -> bool {
        self.is_kept
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::ClientId;

    use super::*;

    fn holds(watermark: u64, read: &[(u64, Expiry)]) -> bool {
        let mut rule = BelowWatermark::new(Timestamp::from_nanos(watermark));
        for &(at, expires_at) in read {
            let version = Version::new(Timestamp::from_nanos(at), ClientId::new(1));
            rule.observe(version, expires_at);
        }
        rule.holds()
    }

    #[test]
    fn one_version_at_the_watermark_or_one_that_expires_is_enough() {
        let never = Expiry::NEVER;
        assert!(holds(10, &[]));
        assert!(holds(10, &[(0, never), (9, never)]));
        assert!(!holds(10, &[(0, never), (10, never), (3, never)]));
        assert!(!holds(10, &[(4, Expiry::at(Timestamp::from_nanos(50)))]));
    }

    #[test]
    fn without_a_watermark_nothing_commits_that_found_something() {
        assert!(!holds(0, &[(0, Expiry::NEVER)]));
    }
}
