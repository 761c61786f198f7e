//! The system's clock: `CLOCK_REALTIME`, whatever disciplines it (chrony, ntpd, PTP's phc2sys), and the kernel's word on its
//! error.
//!
//! ```text
//!   clock_gettime (vDSO, ~25 ns) ──► now
//!   adjtimex (~1 µs) ── once a second at most ──► cached ErrorBound
//! ```
//!
//! # Invariants
//! - Whoever finds the cached bound old claims the refresh first, so that many threads ask the kernel once.
//! - What the kernel will not tell (a sandbox that forbids `adjtimex`) counts as unsynchronised, never as exact.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rtime_clock::adjtime::{Timex, adjtimex};
use rustix::time::{ClockId, Timespec, clock_gettime};
use timestone_types::Timestamp;

use crate::limits::{ERROR_BOUND_MAX_AGE, UNSYNCHRONISED};
use crate::{Clock, ErrorBound};

/// `STA_UNSYNC` of `<linux/timex.h>`: nothing disciplines the clock.
const STATUS_UNSYNCHRONISED: i32 = 0x40;

/// The machine's `CLOCK_REALTIME`.
///
/// ```
/// use timestone_clock::{Clock, SystemClock};
///
/// let clock = SystemClock::new();
/// assert!(clock.now().as_nanos() > 1_700_000_000_000_000_000);
/// println!("{} {}", clock.source(), clock.error_bound());
/// ```
#[derive(Debug)]
pub struct SystemClock {
    /// When the bound was asked for last, in nanoseconds of `CLOCK_MONOTONIC`: a step of the realtime clock must not freeze it.
    asked_at: AtomicU64,
    bound: AtomicU64,
}

impl SystemClock {
    /// The system's clock, with its error bound already asked for.
    #[must_use]
    pub fn new() -> Self {
        Self { asked_at: AtomicU64::new(read(ClockId::Monotonic)), bound: AtomicU64::new(pack(ask_kernel())) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(read(ClockId::Realtime))
    }

    fn error_bound(&self) -> ErrorBound {
        let now = read(ClockId::Monotonic);
        let asked_at = self.asked_at.load(Ordering::Acquire);
        let is_old = u128::from(now.saturating_sub(asked_at)) >= ERROR_BOUND_MAX_AGE.as_nanos();
        if is_old && self.asked_at.compare_exchange(asked_at, now, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.bound.store(pack(ask_kernel()), Ordering::Release);
        }
        unpack(self.bound.load(Ordering::Acquire))
    }

    fn source(&self) -> &'static str {
        "system"
    }
}

fn read(clock: ClockId) -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    let seconds = u64::try_from(tv_sec).unwrap_or(0);
    let nanos = u64::try_from(tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

fn ask_kernel() -> ErrorBound {
    let mut answer = Timex::new();
    match adjtimex(&mut answer) {
        Ok(_) => judge(answer.0.maxerror, answer.0.status),
        Err(_) => ErrorBound { bound: UNSYNCHRONISED, synchronised: false },
    }
}

/// What the kernel's `maxerror` (microseconds) and `status` mean.
fn judge(maxerror_us: i64, status: i32) -> ErrorBound {
    let bound = u64::try_from(maxerror_us).map_or(UNSYNCHRONISED, Duration::from_micros);
    let synchronised = bound < UNSYNCHRONISED && status & STATUS_UNSYNCHRONISED == 0;
    ErrorBound { bound: bound.min(UNSYNCHRONISED), synchronised }
}

/// One word for both fields, so that no reader sees one without the other.
const SYNCHRONISED_BIT: u64 = 1 << 63;

const _: () = assert!(UNSYNCHRONISED.as_nanos() < SYNCHRONISED_BIT as u128);

fn pack(bound: ErrorBound) -> u64 {
    let nanos = u64::try_from(bound.bound.as_nanos()).unwrap_or(SYNCHRONISED_BIT - 1).min(SYNCHRONISED_BIT - 1);
    if bound.synchronised { nanos | SYNCHRONISED_BIT } else { nanos }
}

const fn unpack(word: u64) -> ErrorBound {
    ErrorBound { bound: Duration::from_nanos(word & !SYNCHRONISED_BIT), synchronised: word & SYNCHRONISED_BIT != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the standard library's word is what ours is held against")]
    fn it_agrees_with_the_standard_library() {
        let clock = SystemClock::new();
        let nanos_of = |time: std::time::SystemTime| time.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
        let before = nanos_of(std::time::SystemTime::now());
        let shown = u128::from(clock.now().as_nanos());
        let after = nanos_of(std::time::SystemTime::now());
        assert!(before <= shown && shown <= after, "{before} {shown} {after}");
    }

    #[test]
    fn the_kernels_word_is_judged() {
        let sixteen = ErrorBound { bound: UNSYNCHRONISED, synchronised: false };
        assert_eq!(judge(16_000_000, 0), sixteen);
        assert_eq!(judge(16_000_000, STATUS_UNSYNCHRONISED), sixteen);
        assert_eq!(judge(99_000_000, 0), sixteen);
        assert_eq!(judge(-1, 0), sixteen);
        assert_eq!(judge(250, 0), ErrorBound { bound: Duration::from_micros(250), synchronised: true });
        assert!(!judge(250, STATUS_UNSYNCHRONISED).synchronised);
    }

    #[test]
    fn a_bound_survives_its_packing() {
        for synchronised in [false, true] {
            let bound = ErrorBound { bound: Duration::from_nanos(53_200), synchronised };
            assert_eq!(unpack(pack(bound)), bound);
        }
    }

    #[test]
    fn the_kernel_is_asked_again_only_when_the_bound_is_old() {
        let planted = ErrorBound { bound: Duration::from_nanos(7), synchronised: true };
        let clock = SystemClock::new();
        clock.bound.store(pack(planted), Ordering::Release);
        assert_eq!(clock.error_bound(), planted);
        clock.asked_at.fetch_sub(2_000_000_000, Ordering::AcqRel);
        assert_ne!(clock.error_bound(), planted);
    }

    #[test]
    fn an_unsynchronised_clock_says_so() {
        assert_eq!(judge(16_000_000, 0).to_string(), "unsynchronised");
        assert_eq!(judge(250, 0).to_string(), "±250µs");
    }
}
