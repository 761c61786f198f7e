//! Admission: how much waits for a stage, and whether more may come in.
//!
//! The net stage admits what it forwards; the stage releases what it has answered. Over the limit, the net stage answers `Busy`
//! through its protocol instead of queueing ("overload is refused at the door, never by unbounded queues", server-commit.md).

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

/// What is admitted to one stage and not yet released. Exceeded by at most one parcel per net stage.
#[derive(Debug, Default)]
pub struct Gauge {
    limit: AdmissionLimit,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Gauge {
    /// A gauge with this limit.
    #[must_use]
    pub fn new(limit: AdmissionLimit) -> Self {
        Self { limit, requests: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Whether anything is counted here.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.limit != AdmissionLimit::NONE
    }

    /// Whether more may be admitted now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.is_limited()
            || (self.requests.load(Ordering::Relaxed) < self.limit.requests
                && self.bytes.load(Ordering::Relaxed) < self.limit.bytes)
    }

    /// Counts what is handed to the stage.
    pub fn admit(&self, requests: u64, bytes: u64) {
        if self.is_limited() {
            self.requests.fetch_add(requests, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts what the stage has finished with; the same numbers as were admitted.
    pub fn release(&self, requests: u64, bytes: u64) {
        if self.is_limited() {
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
    fn without_a_limit_nothing_is_counted() {
        let gauge = Gauge::default();
        gauge.admit(u64::MAX, u64::MAX);
        gauge.admit(1, 1);
        assert!(gauge.has_room() && gauge.requests() == 0);
    }
}
