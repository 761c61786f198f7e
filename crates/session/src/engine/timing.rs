//! The time as the hosts tell it, and when something is due next.
//!
//! Nothing is kept per request: one due time for the whole engine, at or before the earliest thing
//! that is due. Invariant: `now` never runs backwards.

use core::time::Duration;

use timestone_types::{AbortKind, AbortReason, Timestamp, limits as shared};

use crate::limits;

const MAX_SLEW_DIVISOR: u32 = timestone_clock::limits::MAX_SLEW_DIVISOR as u32;

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    now: Timestamp,
    /// How far this clock may be from true time, as it was said at `bounded`.
    error_bound: Duration,
    bounded: Timestamp,
    /// How far behind the latest reading of a server's clock this one was when that came, at least.
    lag: Duration,
    next_due: Timestamp,
}

impl Timing {
    pub(super) const fn new() -> Self {
        Self {
            now: Timestamp::ZERO,
            error_bound: Duration::ZERO,
            bounded: Timestamp::ZERO,
            lag: Duration::ZERO,
            next_due: Timestamp::MAX,
        }
    }

    /// Takes note of the time, which never runs backwards here. A clock that shows no time of this
    /// age is wrong by centuries, and leaves room for what is due later.
    #[inline]
    pub(super) fn advance(&mut self, now: Timestamp) {
        let now = now.min(limits::LAST_TIMESTAMP);
        self.now = self.now.max(now);
        debug_assert!(self.now >= now, "the engine's time is behind its host's");
    }

    #[inline]
    pub(super) const fn now(&self) -> Timestamp {
        self.now
    }

    /// How far this clock may be from true time now, either way. Whoever waits for the clocks is
    /// looked at when that is much less than before.
    pub(super) fn set_error_bound(&mut self, bound: Duration) {
        if bound < self.error_bound / 4 * 3 {
            self.wake_at(self.now);
        }
        self.error_bound = bound;
        self.bounded = self.now;
        debug_assert!(self.external_lead() <= bound, "a commit leads by more than it may have to");
    }

    /// How far ahead of this clock a commit is proposed that waits for the clocks: then it is not
    /// behind true time, and so not behind what was acknowledged before, whatever the error bounds of
    /// others are.
    #[inline]
    pub(super) fn external_lead(&self) -> Duration {
        self.present_bound().min(limits::EXTERNAL_LEAD)
    }

    /// How far this clock may be from true time by now: whatever became known since, time is slewed
    /// by a tenth at most.
    #[inline]
    fn present_bound(&self) -> Duration {
        let grown = if self.error_bound.is_zero() {
            Duration::ZERO
        } else {
            self.now.since(self.bounded) / MAX_SLEW_DIVISOR
        };
        self.error_bound.saturating_add(grown)
    }

    /// How long after its timestamp, by this clock, a commit is acknowledged that waits for the
    /// clocks: true time has passed it then. Where the lead does not make up for all of the error
    /// bound, neither may that of others, whose clocks are taken to be as wrong as this one.
    #[inline]
    pub(super) fn external_wait(&self) -> Duration {
        let wait = self.present_bound().saturating_mul(2).saturating_sub(self.external_lead());
        debug_assert!(wait >= self.error_bound, "true time may have yet to come");
        wait
    }

    /// A server's clock showed `reading` a moment ago.
    pub(super) fn compare(&mut self, reading: Timestamp) {
        self.lag = reading.since(self.now);
        debug_assert!(self.lag.is_zero() || reading > self.now, "who is ahead does not lag");
    }

    /// How far this process's clock is behind the servers' by their latest reading, if that is why
    /// something was too old for them: who is further behind than they wait for holds nothing back.
    pub(super) fn lag_behind(&self, reason: &AbortReason) -> Option<Duration> {
        let is_late = reason.kind == AbortKind::TooOld && self.lag > shared::MAX_CLOCK_LAG;
        is_late.then_some(self.lag)
    }

    /// Something is to be done at `due`.
    #[inline]
    pub(super) fn wake_at(&mut self, due: Timestamp) {
        self.next_due = self.next_due.min(due);
        debug_assert!(self.next_due <= due, "something would be done too late");
    }

    pub(super) const fn next_due(&self) -> Timestamp {
        self.next_due
    }

    /// The engine is woken for what is due at `due`; sweeps keep their distance.
    pub(super) fn assert_wakes_by(&self, due: Timestamp) {
        let latest = due.max(self.now.saturating_add(limits::SWEEP_INTERVAL));
        assert!(self.next_due <= latest, "due at {due}, and nobody looks before {}", self.next_due);
    }

    /// Everything is looked at now: whatever is due later says so again.
    pub(super) fn begin_sweep(&mut self) {
        debug_assert!(self.next_due <= self.now, "a sweep before anything is due");
        self.next_due = Timestamp::MAX;
    }

    /// Sweeps keep a distance from each other.
    pub(super) fn end_sweep(&mut self) {
        self.next_due = self.next_due.max(self.now.saturating_add(limits::SWEEP_INTERVAL));
        assert!(self.next_due > self.now, "a sweep would follow at once");
    }
}
