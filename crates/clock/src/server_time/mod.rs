//! The servers' time: what a client's process goes by instead of its own clock.
//!
//! ```text
//!   answers ─► Estimate ─► what most servers agree on ─┐
//!                                                      ├─► the offset that is wanted ── slewed, a tenth at most ──► Course
//!   own clock ─────────────────────────────────────────┘
//! ```
//! Clocks decide how often transactions abort and how old a snapshot is, and most clients have poor
//! ones. Servers tell theirs with each batch of answers. Time runs with this machine's oscillator,
//! plus an offset that follows the middle of what is known. Where the own clock says how wrong it may
//! be, and does not contradict the servers, what is known is what both say: so a client with a good
//! clock keeps it. With too few answers, or servers that contradict each other, the own clock is
//! followed, slewed to as to anything else.
//!
//! It reads no clock, and nothing here asks anybody: exchanges and readings are handed in.
//! [`crate::FollowedClock`] is its host. Source: docs/protocol/time.md, "Sessions that follow the
//! servers' time".
//!
//! # Invariants
//! - Time never runs backwards, and never faster or slower than the oscillator by more than a tenth.
//! - While every reading, the own clock and the oscillator are within what is said of them, true time
//!   is within [`ServerTime::error_bound`].
//! - Nothing is allocated for an answer.

mod estimate;
mod interval;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use timestone_types::{Span, Timestamp, is_planted};

pub use self::estimate::{Agreement, Estimate, Exchange, ServerNumber};
pub use self::interval::OffsetInterval;
use crate::discipline::{Course, nanos_of, signed};
use crate::limits::SERVER_TIME_SPAN;
use crate::{BootTime, ErrorBound};

/// What the own clock shows at a moment, beside the oscillator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnReading {
    /// The oscillator.
    pub boot: BootTime,
    /// The own clock.
    pub now: Timestamp,
    /// How wrong that may be.
    pub error_bound: ErrorBound,
}

impl OwnReading {
    /// How far the own clock is ahead of the oscillator.
    fn offset_ns(&self) -> i64 {
        signed(self.now.as_nanos()).saturating_sub(signed(self.boot.as_nanos()))
    }

    /// The true offset as the own clock knows it; `None` when nothing vouches for that.
    fn interval(&self) -> Option<OffsetInterval> {
        let bound = nanos_of(self.error_bound.bound).unsigned_abs();
        let is_vouched = self.error_bound.synchronised;
        is_vouched.then(|| OffsetInterval::around(self.offset_ns(), bound))
    }
}

/// Whom a process's time goes by, and how well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockFigures {
    /// The servers, or which clock of its own.
    pub source: &'static str,
    /// How many servers agree on it.
    pub servers: usize,
    /// How far the process's time is ahead of its own clock, in nanoseconds.
    pub offset_ns: i64,
    /// How far it may be from true time.
    pub error_bound: ErrorBound,
}

impl fmt::Display for ClockFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, servers, offset_ns, error_bound } = *self;
        let sign = if offset_ns < 0 { '-' } else { '+' };
        let offset = Span(Duration::from_nanos(offset_ns.unsigned_abs()));
        match servers {
            0 => write!(f, "{source}, {error_bound}"),
            1 => write!(f, "{source} (1), {sign}{offset} to the own clock, {error_bound}"),
            _ => write!(f, "{source} ({servers}), {sign}{offset} to the own clock, {error_bound}"),
        }
    }
}

/// What is said of the source while servers are followed.
pub const SERVERS: &str = "servers";

/// The state machine. See the module.
#[derive(Clone, Debug)]
pub struct ServerTime {
    estimate: Estimate,
    course: Course,
}

impl ServerTime {
    /// Time begins with what the own clock shows: nothing else is known.
    #[must_use]
    pub fn new(own: &OwnReading) -> Self {
        Self { estimate: Estimate::new(), course: Course::constant(own.offset_ns()) }
    }

    /// Time as it goes on.
    #[must_use]
    pub const fn course(&self) -> &Course {
        &self.course
    }

    /// An answer has arrived at `received`. When its request was sent is said by this time itself.
    pub fn hear(&mut self, exchange: &Exchange<'_>, received: BootTime) {
        let Exchange { server, servers, sent, reading, error } = *exchange;
        if let Some(sent) = self.course.earliest_of(sent, received) {
            debug_assert!(sent <= received, "a request was sent before it was answered");
            self.estimate.hear(&Exchange { server, servers, sent, reading, error }, received);
        }
    }

    /// What is known of the true offset: by the servers, and by the own clock where that does not
    /// contradict them. `None` when the servers say nothing.
    fn known(&self, own: &OwnReading) -> Option<Agreement> {
        let agreed = self.estimate.agreed(own.boot)?;
        let both = |servers: OffsetInterval| own.interval()?.intersection(servers);
        let Some(interval) = both(agreed.interval) else { return Some(agreed) };
        let followed = both(agreed.followed).unwrap_or(agreed.followed);
        Some(Agreement { interval, followed, ..agreed })
    }

    /// Follows what is known now. Without effect while an earlier change has yet to begin. Whether
    /// the course is another one.
    pub fn look(&mut self, own: &OwnReading) -> bool {
        if self.course.is_changing(own.boot) {
            return false;
        }
        let wanted_ns = self.known(own).map_or(own.offset_ns(), |known| known.followed.middle_ns());
        let before = self.course;
        let now_ns = before.offset_at(own.boot);
        if is_planted!(SteppedServerTime) {
            self.course = Course::constant(wanted_ns);
        } else {
            self.course.steer(own.boot, wanted_ns.saturating_sub(now_ns), SERVER_TIME_SPAN);
        }
        before != self.course
    }

    /// How far time may be from the true one.
    #[must_use]
    pub fn error_bound(&self, own: &OwnReading) -> ErrorBound {
        let offset_ns = self.course.offset_at(own.boot);
        if let Some(known) = self.known(own).filter(|known| known.is_vouched) {
            let bound = Duration::from_nanos(known.interval.furthest_from_ns(offset_ns));
            return ErrorBound { bound, synchronised: true };
        }
        let apart = Duration::from_nanos(offset_ns.abs_diff(own.offset_ns()));
        ErrorBound { bound: own.error_bound.bound.saturating_add(apart), ..own.error_bound }
    }

    /// Whom it goes by. `own` is what the own clock calls itself.
    #[must_use]
    pub fn figures(&self, own: &OwnReading, name: &'static str) -> ClockFigures {
        let servers = self.estimate.agreed(own.boot).map_or(0, |agreed| agreed.servers);
        ClockFigures {
            source: if servers > 0 { SERVERS } else { name },
            servers,
            offset_ns: self.course.offset_at(own.boot).saturating_sub(own.offset_ns()),
            error_bound: self.error_bound(own),
        }
    }
}
