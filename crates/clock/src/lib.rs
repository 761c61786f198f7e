//! Clocks: where time enters Timestone.
//!
//! ```text
//!   CLOCK_REALTIME ─► Discipline ─► SystemClock ─┐
//!   CLOCK_BOOTTIME ──┘   adjtimex ─► its bound   │
//!   a test, simulator ────────────► ManualClock ─┼─► Clock::now() ──► physical: Timestamp ──► SessionClock::begin ──► txn's begin, commit
//!   a skew model ─────────────────► SkewedClock ─┤                                                ▲
//!   servers' answers ─► ServerTime ─► FollowedClock                                               │
//!                                                     last commit, bound learned from an abort ───┘
//! ```
//! A [`Clock`] is a clock with a bound on its error. The physical one beneath a [`SystemClock`] may
//! stand still, jump and step backwards, as real ones do; its [`Discipline`] makes of that a time
//! that only ever runs forward, and smoothly. A [`SessionClock`] turns its readings into strictly
//! rising timestamps that lie above everything that the session has seen (SEMEL §3, MILANA §4.1).
//! [`SkewModel`] reproduces the clock disciplines that the papers measured, from a seed.
//!
//! A [`ClockShift`] sets a [`SystemClock`] wrong on purpose, and the bound on its error says so.
//!
//! A [`FollowedClock`] puts the servers' time in the place of a client's own. Skew costs performance
//! and never correctness, and nothing here asks other machines what time it is: what their answers
//! say is handed in.
//!
//! # Invariants
//! - This is the only crate of ours that reads the system's clock: everything else is handed a
//!   [`Timestamp`] or a [`Clock`].
//! - Nothing here draws entropy: a [`SkewedClock`] is a function of its seed, its client and the
//!   clock beneath it.
//! - Timestamps that one [`SessionClock`] issues rise strictly.
//!
//! What is deliberately absent: the watermark and `max_clock_lead` (the `txn` core has them),
//! timers, and sleeping (`seda`).

mod discipline;
mod error;
mod followed;
pub mod limits;
mod manual;
pub mod server_time;
mod session;
mod shared_course;
mod shift;
mod skew;
mod system;

use std::time::Duration;

use timestone_types::Timestamp;

pub use discipline::{
    BootTime, ClockEvent, ClockHealth, ClockReading, ClockState, Course, Discipline,
};
pub use error::ClockError;
pub use followed::FollowedClock;
pub use manual::ManualClock;
use server_time::{ClockFigures, Exchange};
pub use session::SessionClock;
pub use shift::ClockShift;
pub use skew::{SkewModel, SkewedClock};
pub use system::SystemClock;

/// How far a clock may be from true time, as its source says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorBound {
    /// True time lies within this span of [`Clock::now`], either way.
    pub bound: Duration,
    /// Whether anything disciplines the clock. When nothing does, `bound` is what the source claims
    /// and guarantees nothing.
    pub synchronised: bool,
}

impl ErrorBound {
    /// No error at all: a clock that is true by definition, as in tests and simulations.
    pub const NONE: Self = Self { bound: Duration::ZERO, synchronised: true };
}

impl std::fmt::Display for ErrorBound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.synchronised {
            write!(f, "±{:?}", self.bound)
        } else {
            f.write_str("unsynchronised")
        }
    }
}

/// A clock. Cheap to read (tens of nanoseconds), shared between threads, not necessarily monotonic.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The time that the clock shows.
    fn now(&self) -> Timestamp;

    /// How wrong it may be; may be as old as [`limits::ERROR_BOUND_MAX_AGE`].
    fn error_bound(&self) -> ErrorBound;

    /// What the clock is, as `status` and the metrics show it: `system`, `manual`, `simulated`.
    fn source(&self) -> &'static str;

    /// The oscillator that drives it: no discipline and no step ever moves that, and it keeps its
    /// rate to within [`limits::DRIFT_PPM`]. Clocks without one count as theirs.
    fn oscillator(&self) -> BootTime {
        BootTime::from_nanos(self.now().as_nanos())
    }

    /// A server's clock was read, and the answer that says so has arrived just now. Clocks that
    /// follow nobody ignore it.
    fn heard(&self, exchange: &Exchange<'_>) {
        let _ = exchange;
    }

    /// Whom it goes by, and how well.
    fn figures(&self) -> ClockFigures {
        ClockFigures {
            source: self.source(),
            servers: 0,
            offset_ns: 0,
            error_bound: self.error_bound(),
        }
    }

    /// How its time stands to the physical clock beneath it. Clocks without one have nothing to
    /// tell.
    fn health(&self) -> ClockHealth {
        ClockHealth::default()
    }

    /// How far the physical clock leads, because a step of it is held or being followed. Cheap: it
    /// may be asked for every request.
    fn held_back(&self) -> Duration {
        self.health().held_back()
    }

    /// Time begins now, with what the physical clock shows now: a process may have waited for
    /// others, or read its logs for minutes, and the clock may have been set right meanwhile. Asked
    /// for at the start, before the time was told to anybody and before [`Clock::go_on_from`].
    /// Clocks without a physical one beneath go on as they are.
    fn begin_anew(&self) {}

    /// Time goes on from `at`, unless it is there already: what an earlier life of the process
    /// promised is not undercut. Asked for at the start, before the time was told to anybody.
    /// Clocks that cannot be told anything go on as they are.
    fn go_on_from(&self, at: Timestamp) {
        let _ = at;
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn error_bound(&self) -> ErrorBound {
        (**self).error_bound()
    }

    fn source(&self) -> &'static str {
        (**self).source()
    }

    fn oscillator(&self) -> BootTime {
        (**self).oscillator()
    }

    fn heard(&self, exchange: &Exchange<'_>) {
        (**self).heard(exchange);
    }

    fn figures(&self) -> ClockFigures {
        (**self).figures()
    }

    fn health(&self) -> ClockHealth {
        (**self).health()
    }

    fn held_back(&self) -> Duration {
        (**self).held_back()
    }

    fn begin_anew(&self) {
        (**self).begin_anew();
    }

    fn go_on_from(&self, at: Timestamp) {
        (**self).go_on_from(at);
    }
}
