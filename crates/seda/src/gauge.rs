//! Admission: how much waits for a stage, and whether more may come in.
//!
//! The net stage admits what it forwards; the stage releases what it has answered. Over the limit,
//! the net stage answers `Busy` through its protocol instead of queueing: overload is refused on
//! arrival, and no queue grows without a bound.

use crate::sync::{AtomicU64, Ordering};

/// How much may be admitted to a stage at once. The default is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionLimit {
    /// Most requests admitted and not released.
    pub requests: u64,
    /// Most bytes admitted and not released.
    pub bytes: u64,
}

impl AdmissionLimit {
    /// Nothing is refused, and nothing is counted.
    pub const NONE: Self = Self { requests: u64::MAX, bytes: u64::MAX };
}

impl Default for AdmissionLimit {
    fn default() -> Self {
        Self::NONE
    }
}

/// What is admitted to one stage and not yet released. Exceeded by at most one batch of frames per
/// net stage.
///
/// Whether it counts is decided when it is made, so that what was admitted is what is released; its
/// limit may change at any time, and holds for what comes from then on.
#[derive(Debug)]
pub struct Gauge {
    counts: bool,
    most_requests: AtomicU64,
    most_bytes: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Default for Gauge {
    fn default() -> Self {
        Self::new(AdmissionLimit::NONE)
    }
}

impl Gauge {
    /// A gauge with this limit.
    #[must_use]
    pub fn new(limit: AdmissionLimit) -> Self {
        Self {
            counts: limit != AdmissionLimit::NONE,
            most_requests: AtomicU64::new(limit.requests),
            most_bytes: AtomicU64::new(limit.bytes),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Changes the limit, for servers whose memory becomes scarce or plentiful. What is admitted
    /// already stays. A gauge that was made without a limit counts nothing, and goes on so.
    pub fn set_limit(&self, limit: AdmissionLimit) {
        self.most_requests.store(limit.requests, Ordering::Relaxed);
        self.most_bytes.store(limit.bytes, Ordering::Relaxed);
    }

    /// Whether anything is counted here.
    #[must_use]
    pub const fn is_limited(&self) -> bool {
        self.counts
    }

    /// Whether more may be admitted now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.counts
            || (self.requests.load(Ordering::Relaxed) < self.most_requests.load(Ordering::Relaxed)
                && self.bytes.load(Ordering::Relaxed) < self.most_bytes.load(Ordering::Relaxed))
    }

    /// Counts what is handed to the stage.
    pub fn admit(&self, requests: u64, bytes: u64) {
        if self.counts {
            self.requests.fetch_add(requests, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts what the stage has finished with; the same numbers as were admitted.
    pub fn release(&self, requests: u64, bytes: u64) {
        if self.counts {
            let before = self.requests.fetch_sub(requests, Ordering::Relaxed);
            debug_assert!(before >= requests, "released {requests} requests of {before}");
            let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            debug_assert!(before >= bytes, "released {bytes} bytes of {before}");
        }
    }

    /// Requests admitted and not released.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Bytes admitted and not released.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_refuses_at_either_limit_until_enough_is_released() {
        let gauge = Gauge::new(AdmissionLimit { requests: 3, bytes: 100 });
        gauge.admit(2, 10);
        assert!(gauge.has_room());
        gauge.admit(1, 10);
        assert!(!gauge.has_room());
        gauge.release(2, 10);
        gauge.admit(1, 95);
        assert!(!gauge.has_room());
        gauge.release(1, 95);
        assert!(gauge.has_room());
        assert_eq!((gauge.requests(), gauge.bytes()), (1, 10));
    }

    #[test]
    fn a_limit_that_shrinks_refuses_what_comes_next_and_one_that_grows_lets_it_in() {
        let gauge = Gauge::new(AdmissionLimit { requests: 10, bytes: 100 });
        gauge.admit(3, 30);
        gauge.set_limit(AdmissionLimit { requests: 2, bytes: 100 });
        assert!(!gauge.has_room());
        gauge.release(2, 20);
        assert!(gauge.has_room(), "one of two");
        gauge.set_limit(AdmissionLimit { requests: 2, bytes: 5 });
        assert!(!gauge.has_room());
        gauge.set_limit(AdmissionLimit::NONE);
        gauge.admit(50, 500);
        assert!(gauge.has_room() && gauge.requests() == 51, "it counts on");
        let uncounted = Gauge::default();
        uncounted.set_limit(AdmissionLimit { requests: 0, bytes: 0 });
        assert!(uncounted.has_room());
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let gauge = Gauge::default();
        gauge.admit(u64::MAX, u64::MAX);
        gauge.admit(1, 1);
        assert!(gauge.has_room() && gauge.requests() == 0);
    }
}
