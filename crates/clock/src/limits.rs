//! Bounds of this crate, each with its reason.

use std::time::Duration;

/// How old an error bound may be: `adjtimex` costs a microsecond, forty times a reading of the clock, so it is asked this seldom.
pub const ERROR_BOUND_MAX_AGE: Duration = Duration::from_secs(1);

/// The kernel's `NTP_PHASE_LIMIT`: its maximal error grows by 500 µs a second while nobody disciplines the clock and stops
/// here. A clock that shows it has not been synchronised for nine hours, or never.
pub const UNSYNCHRONISED: Duration = Duration::from_secs(16);

/// How often a simulated discipline nudges a clock: between two nudges its offset moves evenly.
pub const SKEW_INTERVAL: Duration = Duration::from_secs(1);

/// The largest average skew that a model may be given: beyond it every request is refused as `ClockAhead` anyway.
pub const MAX_GIVEN_SKEW: Duration = Duration::from_secs(60);
