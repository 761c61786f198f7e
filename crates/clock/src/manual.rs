//! A clock that stands still until it is told otherwise: for tests, and under the simulator's
//! virtual time.
//!
//! Clones show the same hands. It is never read by production code.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use timestone_types::Timestamp;

use crate::{Clock, ErrorBound};

/// A clock moved by hand; clones share its hands.
///
/// ```
/// use std::time::Duration;
/// use timestone_clock::{Clock, ManualClock};
/// use timestone_types::Timestamp;
///
/// let clock = ManualClock::new(Timestamp::from_nanos(1_000));
/// let same = clock.clone();
/// clock.advance(Duration::from_nanos(5));
/// assert_eq!(same.now(), Timestamp::from_nanos(1_005));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    nanos: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self { nanos: Arc::new(AtomicU64::new(start.as_nanos())) }
    }

    /// Moves the hands to `at`, which may lie in the clock's past: real clocks are set back as
    /// well.
    pub fn set(&self, at: Timestamp) {
        self.nanos.store(at.as_nanos(), Ordering::Release);
    }

    /// Moves the hands forward, stopping at [`Timestamp::MAX`], and returns what the clock shows
    /// then.
    pub fn advance(&self, span: Duration) -> Timestamp {
        let step = |nanos| Some(Timestamp::from_nanos(nanos).saturating_add(span).as_nanos());
        let (Ok(before) | Err(before)) =
            self.nanos.fetch_update(Ordering::AcqRel, Ordering::Acquire, step);
        Timestamp::from_nanos(before).saturating_add(span)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.nanos.load(Ordering::Acquire))
    }

    fn error_bound(&self) -> ErrorBound {
        ErrorBound::NONE
    }

    fn source(&self) -> &'static str {
        "manual"
    }

    fn go_on_from(&self, at: Timestamp) {
        self.nanos.fetch_max(at.as_nanos(), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_moves_only_when_told_and_may_go_back() {
        let clock = ManualClock::new(Timestamp::from_nanos(10));
        assert_eq!(clock.now(), clock.now());
        assert_eq!(clock.advance(Duration::from_nanos(7)), Timestamp::from_nanos(17));
        clock.set(Timestamp::from_nanos(3));
        assert_eq!(clock.now(), Timestamp::from_nanos(3));
        clock.go_on_from(Timestamp::from_nanos(5));
        clock.go_on_from(Timestamp::from_nanos(4));
        assert_eq!(clock.now(), Timestamp::from_nanos(5));
        clock.set(Timestamp::MAX);
        assert_eq!(clock.advance(Duration::from_secs(1)), Timestamp::MAX);
    }
}
