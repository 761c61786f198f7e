//! The clock that says when operations are over: the machine's, or one that a simulator moves.
//!
//! What is deliberately absent: dates. A clock counts nanoseconds from an origin of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A device's clock. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct FlashClock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// Since this moment, by the machine's monotonic clock.
    Real(Instant),
    /// As it was set.
    Virtual(Arc<AtomicU64>),
}

impl FlashClock {
    /// The machine's monotonic clock, from zero at this moment.
    #[must_use]
    pub fn real() -> Self {
        Self(Source::Real(Instant::now()))
    }

    /// A clock that stands at zero until somebody moves it.
    #[must_use]
    pub fn stopped() -> Self {
        Self(Source::Virtual(Arc::new(AtomicU64::new(0))))
    }

    /// Whether somebody moves it: time does not pass by itself.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        matches!(self.0, Source::Virtual(_))
    }

    /// The time, in nanoseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        match &self.0 {
            Source::Real(origin) => u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Source::Virtual(nanos) => nanos.load(Ordering::Relaxed),
        }
    }

    /// Sets a virtual clock. The machine's is nobody's to set: nothing happens.
    pub fn set(&self, nanos: u64) {
        if let Source::Virtual(now) = &self.0 {
            now.store(nanos, Ordering::Relaxed);
        }
    }

    /// Moves a virtual clock forward to this time, if it is not there yet.
    pub fn advance_to(&self, nanos: u64) {
        if let Source::Virtual(now) = &self.0 {
            now.fetch_max(nanos, Ordering::Relaxed);
        }
    }
}

impl Default for FlashClock {
    fn default() -> Self {
        Self::stopped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_goes_where_it_is_moved_and_its_clones_with_it() {
        let clock = FlashClock::stopped();
        let same = clock.clone();
        clock.advance_to(7);
        same.advance_to(5);
        assert_eq!((clock.now(), same.now()), (7, 7));
        same.set(3);
        assert_eq!(clock.now(), 3);
    }

    #[test]
    fn the_machines_clock_goes_by_itself() {
        let clock = FlashClock::real();
        let before = clock.now();
        clock.set(u64::MAX);
        clock.advance_to(u64::MAX);
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!((before + 1_000_000..u64::MAX).contains(&clock.now()));
    }
}
