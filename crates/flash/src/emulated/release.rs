//! Waking whoever sleeps until the next completion, and how late completions were released.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use hdrhistogram::Histogram;
use timestone_io::{IoError, Timer};

use crate::clock::FlashClock;
use crate::device::ReleaseError;

/// Nothing is set.
const NEVER: u64 = u64::MAX;
/// Release errors above it count as this one: nobody sleeps for minutes with completions due.
const LARGEST_ERROR_NS: u64 = 60_000_000_000;

/// The alarm is set again only after so long, or it goes off so much later than due: setting it is a
/// system call, which a device that completes something every 2 µs cannot make each time, and a
/// thread takes longer to wake up.
const LEAST_GAP_NS: u64 = 10_000;

/// The timer behind a device's wake descriptor, by the machine's clock.
#[derive(Debug)]
pub(super) struct Alarm {
    timer: Timer,
    /// When it goes off next; it has gone off when this has passed.
    at: u64,
    /// Not set again before.
    next: u64,
}

impl Alarm {
    /// One that is not set.
    pub(super) fn new() -> Result<Self, IoError> {
        Ok(Self { timer: Timer::new()?, at: NEVER, next: 0 })
    }

    /// Lets the descriptor become readable at `due`, or a little later on a busy device. An alarm
    /// that goes off earlier stays: whoever it wakes polls, and sets the next one.
    pub(super) fn set(&mut self, due: u64, now: u64) {
        let due = due.max(self.next);
        if self.at > now && self.at <= due {
            return;
        }
        let after = Duration::from_nanos(due.saturating_sub(now));
        // Set again at the next poll when the kernel refuses it.
        self.at = if self.timer.set(after).is_ok() { due } else { NEVER };
        self.next = now.saturating_add(LEAST_GAP_NS);
    }

    /// Blocks until it goes off, or `timeout` has passed.
    pub(super) fn wait(&self, timeout: Duration) {
        self.timer.wait(timeout);
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

/// How much later than due completions were released.
#[derive(Debug)]
pub(super) struct ReleaseErrors {
    histogram: Histogram<u64>,
}

impl ReleaseErrors {
    pub(super) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LARGEST_ERROR_NS, 2);
        Self { histogram: histogram.expect("these bounds are a histogram's") }
    }

    /// One completion that was due then and is released now.
    pub(super) fn note(&mut self, due: u64, now: u64) {
        self.histogram.saturating_record(now.saturating_sub(due));
    }

    pub(super) fn figures(&self) -> ReleaseError {
        ReleaseError {
            count: self.histogram.len(),
            p50_ns: self.histogram.value_at_quantile(0.5),
            p99_ns: self.histogram.value_at_quantile(0.99),
            max_ns: self.histogram.max(),
        }
    }
}

/// Lets the time pass that somebody blocks for: until `due`, or for `timeout`.
pub(super) fn block_until(
    due: Option<u64>,
    timeout: Duration,
    clock: &FlashClock,
    alarm: Option<&Alarm>,
) {
    if clock.is_virtual() {
        let latest = clock.now().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(NEVER));
        clock.advance_to(due.unwrap_or(NEVER).min(latest));
        return;
    }
    match (due, alarm) {
        (Some(_), Some(alarm)) => alarm.wait(timeout),
        (Some(due), None) => {
            let remaining = Duration::from_nanos(due.saturating_sub(clock.now()));
            std::thread::sleep(remaining.min(timeout));
        }
        (None, _) => std::thread::sleep(timeout),
    }
}
