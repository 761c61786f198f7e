//! How much of a block is in use: what was written to it, and an estimate of what is dead.
//!
//! Dead bytes are an estimate, kept without reading anything: a superseded record counts as its
//! block's average one. What was superseded by versions above the watermark cannot be collected
//! yet; it waits in two buckets, each as if what is in it had been superseded at a steady pace, so
//! that a watermark that has stood still for long finds garbage as soon as it moves.
//!
//! ```text
//!   superseded at t ─► recent ─ the watermark passed closing ─► closing ─► dead
//!   died for good ───────────────────────────────────────────────────────► dead
//! ```
//!
//! Invariant: what `closing` holds was superseded before what `recent` holds was first noted.

use timestone_flash::PAGE_BYTES;
use timestone_types::Timestamp;

/// Bytes that versions between two timestamps have superseded.
#[derive(Clone, Copy, Default, Debug)]
struct Bucket {
    bytes: u32,
    from: Timestamp,
    until: Timestamp,
}

impl Bucket {
    fn add(&mut self, bytes: u32, by: Timestamp) {
        self.from = if self.bytes == 0 { by } else { self.from.min(by) };
        self.until = self.until.max(by);
        self.bytes = self.bytes.saturating_add(bytes);
        debug_assert!(self.from <= self.until);
    }

    /// How many of them the watermark has passed, if they came at a steady pace.
    fn below(&self, watermark: Timestamp) -> u64 {
        let bytes = u64::from(self.bytes);
        if self.until <= watermark {
            return bytes;
        }
        let (passed, whole) =
            (watermark.since(self.from).as_nanos(), self.until.since(self.from).as_nanos());
        (u128::from(bytes) * passed / whole.max(1)) as u64
    }
}

/// What one block holds.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Usage {
    /// Bytes of records (or pages of parts) written.
    written: u32,
    /// Records written.
    records: u32,
    /// Bytes of records alone: parts of large values are accounted for exactly, records by their
    /// average.
    weight: u32,
    /// Bytes known to be dead.
    dead: u32,
    /// Recovery only: bytes of parts found less bytes claimed by heads found.
    unclaimed: i64,
    /// Superseded above the watermark, earlier and later.
    closing: Bucket,
    recent: Bucket,
    /// Records with an expiry, and the latest of them.
    expiring: u32,
    expires_by: Timestamp,
}

impl Usage {
    /// What a record of it takes on average.
    pub(super) fn average(&self) -> u32 {
        self.weight.checked_div(self.records).unwrap_or(0)
    }

    /// How many thousandths of its bytes are alive, by estimate.
    pub(super) fn live_share(&self, watermark: Timestamp) -> Share {
        self.share_without(self.dead_below(watermark))
    }

    /// The same once the watermark has passed whatever is superseded already. What only expires
    /// does not count: that may be far away.
    pub(super) fn live_share_later(&self, watermark: Timestamp) -> Share {
        let superseded =
            u64::from(self.dead) + u64::from(self.closing.bytes) + u64::from(self.recent.bytes);
        self.share_without(superseded.max(self.dead_below(watermark)))
    }

    /// When the watermark will have passed whatever is superseded already.
    pub(super) fn superseded_until(&self) -> Timestamp {
        self.closing.until.max(self.recent.until)
    }

    fn dead_below(&self, watermark: Timestamp) -> u64 {
        let mut dead =
            u64::from(self.dead) + self.closing.below(watermark) + self.recent.below(watermark);
        if self.expiring > 0 && self.expires_by <= watermark {
            dead = dead.max(u64::from(self.expiring) * u64::from(self.average()));
        }
        dead
    }

    fn share_without(&self, dead: u64) -> Share {
        let written = u64::from(self.written);
        Share { live: written.saturating_sub(dead), written: written.max(1) }
    }

    /// Counts for a checkpoint.
    pub(super) fn counts(&self) -> [u32; 4] {
        let dead = self.dead.saturating_add(self.closing.bytes).saturating_add(self.recent.bytes);
        [self.written, self.weight, self.records, dead]
    }

    /// Counts that a checkpoint remembers.
    pub(crate) fn restore_counts(&mut self, counts: [u32; 4]) {
        debug_assert!(
            self.closing.bytes == 0 && self.recent.bytes == 0 && self.unclaimed == 0,
            "a checkpoint comes before what is found beside it"
        );
        [self.written, self.weight, self.records, self.dead] = counts;
    }

    /// A record was written, which expires at a time or never.
    #[inline]
    pub(crate) fn wrote(&mut self, bytes: u32, expires_by: Option<Timestamp>) {
        assert!(bytes > 0, "a record takes some bytes");
        self.written += bytes;
        self.weight += bytes;
        self.records += 1;
        if let Some(at) = expires_by {
            self.expiring += 1;
            self.expires_by = self.expires_by.max(at);
        }
    }

    /// A page without records was written.
    pub(crate) fn wrote_raw(&mut self) {
        self.written += PAGE_BYTES as u32;
        debug_assert!(self.written >= PAGE_BYTES as u32, "a page was written");
    }

    /// Bytes were superseded by a version at `by`.
    #[inline]
    pub(super) fn superseded(&mut self, bytes: u32, by: Timestamp, watermark: Timestamp) {
        if self.closing.until <= watermark {
            self.dead = self.dead.saturating_add(self.closing.bytes);
            self.closing = core::mem::take(&mut self.recent);
        }
        self.recent.add(bytes, by);
        debug_assert!(self.recent.bytes >= bytes && self.recent.until >= by, "it waits there");
    }

    /// Bytes are dead for good.
    pub(crate) fn died(&mut self, bytes: u32) {
        self.dead = self.dead.saturating_add(bytes);
        debug_assert!(self.dead >= bytes, "what is dead is counted");
    }

    /// Parts of a large value were found, or (negative) a head that claims them.
    pub(crate) fn found_parts(&mut self, pages: i64) {
        let bytes = pages * PAGE_BYTES as i64;
        if pages > 0 {
            self.written += bytes as u32;
        }
        self.unclaimed += bytes;
        debug_assert!(self.unclaimed <= i64::from(self.written), "what was found was written");
    }

    /// Parts that no head has claimed are dead.
    pub(super) fn unclaimed_parts_died(&mut self) {
        let unclaimed = core::mem::take(&mut self.unclaimed);
        debug_assert!(unclaimed <= i64::from(self.written), "what dies was written");
        self.died(u32::try_from(unclaimed).unwrap_or(0));
    }
}

/// What is alive of what was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Share {
    live: u64,
    written: u64,
}

impl Share {
    /// In thousandths of a block of which so many pages are begun: space that was lost to packing
    /// moves with its records and is not won; pages never begun are.
    pub(super) fn of_pages(self, pages: u32, pages_per_block: u32) -> u32 {
        (self.live * 1000 * u64::from(pages) / (self.written * u64::from(pages_per_block))) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    fn ten_records() -> Usage {
        let mut usage = Usage::default();
        (0..10).for_each(|_| usage.wrote(1000, None));
        usage
    }

    fn live(usage: &Usage, watermark: u64) -> u32 {
        usage.live_share(at(watermark)).of_pages(4, 4)
    }

    #[test]
    fn garbage_is_seen_as_soon_as_the_watermark_moves_that_stood_still() {
        let mut usage = ten_records();
        (0..10).for_each(|n| usage.superseded(usage.average(), at(100 + 10 * n), at(50)));
        assert_eq!([50, 100, 145, 190].map(|at| live(&usage, at)), [1000, 900, 506, 0]);
        // More comes, younger than what the watermark has passed.
        usage.superseded(usage.average(), at(300), at(145));
        assert_eq!(live(&usage, 145), 506);
    }

    #[test]
    fn what_expires_is_dead_when_the_last_of_it_has() {
        let mut usage = Usage::default();
        (1..=4).for_each(|n| usage.wrote(100, Some(at(n))));
        assert_eq!([3, 4].map(|at| live(&usage, at)), [1000, 0]);
        assert_eq!(usage.live_share_later(at(3)).of_pages(4, 4), 1000, "that may be far away");
    }

    #[test]
    fn parts_that_no_head_claims_are_dead() {
        let mut usage = Usage::default();
        usage.found_parts(4);
        usage.found_parts(-3);
        usage.unclaimed_parts_died();
        assert_eq!(live(&usage, 0), 750);
    }

    #[test]
    fn pages_never_begun_are_won() {
        assert_eq!(ten_records().live_share(at(0)).of_pages(2, 4), 500);
    }
}
