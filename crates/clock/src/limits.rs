//! Bounds of this crate, each with its reason.

use std::time::Duration;

/// How old an error bound may be: `adjtimex` costs a microsecond, forty times a reading of the
/// clock, so it is asked this seldom.
pub const ERROR_BOUND_MAX_AGE: Duration = Duration::from_secs(1);

/// The kernel's `NTP_PHASE_LIMIT`: its maximal error grows by 500 µs a second while nobody
/// disciplines the clock and stops here. A clock that shows it has not been synchronised for nine
/// hours, or never.
pub const UNSYNCHRONISED: Duration = Duration::from_secs(16);

/// How often a simulated discipline nudges a clock: between two nudges its offset moves evenly.
pub const SKEW_INTERVAL: Duration = Duration::from_secs(1);

/// The largest average skew that a model may be given: beyond it every request is refused as
/// `ClockAhead` anyway.
pub const MAX_GIVEN_SKEW: Duration = Duration::from_secs(60);

/// A physical clock that moves by more than this against the oscillator has stepped. What
/// disciplines clocks slews them up to here and beyond (ntpd: 128 ms, chrony without limit); a leap
/// second is a step.
pub const STEP: Duration = Duration::from_millis(100);

/// A step is followed when it has lasted for this long. Shorter than it takes a person to notice,
/// longer than a virtual machine that is moved or a time daemon that starts needs to come to its
/// senses.
pub const GLITCH_HOLD: Duration = Duration::from_secs(10);

/// Time runs faster or slower than the oscillator by one part in this many, at most.
pub const MAX_SLEW_DIVISOR: i64 = 10;

/// What is less than a step is made good within this long, evenly.
pub const FOLLOW_SPAN: Duration = Duration::from_secs(1);

/// Two readings of one moment differ by this much, because they are made one after the other: no
/// reason to slew.
pub const DEAD_BAND: Duration = Duration::from_micros(2);

/// A changed course holds from this long after the reading that changed it, so that every thread
/// has it by then.
pub const LEAD_IN: Duration = Duration::from_millis(1);

/// How often the physical clock is compared with the oscillator: a step is noticed within this
/// long.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A comparison that took longer than this says nothing: the thread was interrupted between the two
/// readings.
pub const LONGEST_READING: Duration = Duration::from_micros(50);

/// A process that starts goes on from where its last life was, if the clock is behind that by no
/// more than this. Beyond, the clock was wrong then, or is now, by more than can be slewed away:
/// that is for a person to decide.
pub const MAX_START_LEAD: Duration = Duration::from_secs(600);

/// An oscillator is wrong by no more than so many millionths: quartz without compensation keeps
/// within 100, and what a virtual machine adds is less.
pub const DRIFT_PPM: u64 = 200;

/// A server that has been silent for this long says nothing any more of what time it is: what was
/// known has grown by 2 ms either way.
pub const RECENT: Duration = Duration::from_secs(10);

/// Most servers whose clocks are compared. Half of them being wrong is unlikely enough.
pub const MAX_SERVERS: usize = 16;

/// With fewer servers than this nobody can be outvoted: all must agree.
pub const MIN_VOTERS: usize = 3;

/// What time is apart from the servers' is made good within this long, evenly. As it is approached
/// anew all the time, it takes half a dozen times that until nothing is left, and time stays behind
/// an oscillator that is off by as much as that makes within this: 10 µs with 100 ppm.
pub const SERVER_TIME_SPAN: Duration = Duration::from_millis(100);

const _: () = assert!(LEAD_IN.as_nanos() < POLL_INTERVAL.as_nanos());
const _: () = assert!(POLL_INTERVAL.as_nanos() < SERVER_TIME_SPAN.as_nanos());
const _: () = assert!(DEAD_BAND.as_nanos() < STEP.as_nanos());
// What is closed within the span for following is slower than the fastest slew as long as it is no
// step.
const _: () = assert!(STEP.as_nanos() * MAX_SLEW_DIVISOR as u128 <= FOLLOW_SPAN.as_nanos());
