//! What drivers and the watch share while a mix runs: the phase, and how far everybody is.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::keys::Next;

const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const OVER: u8 = 2;
/// Latencies above are counted as this one.
const LONGEST_NANOS: u64 = 100_000_000_000;
/// Digits of a latency that are kept.
const DIGITS: u8 = 3;

/// One driver's counter of puts, in a line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicU64);

/// The state of a mix.
pub(crate) struct Progress {
    phase: AtomicU8,
    puts: Vec<Counter>,
}

impl Progress {
    pub(crate) fn new(drivers: usize) -> Self {
        let puts = std::iter::repeat_with(Counter::default).take(drivers).collect();
        Self { phase: AtomicU8::new(WARMING), puts }
    }

    /// The warm-up is over.
    pub(crate) fn measure(&self) {
        self.phase.store(MEASURING, Ordering::Relaxed);
    }

    /// Everybody is to end.
    pub(crate) fn end(&self) {
        self.phase.store(OVER, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == OVER
    }

    /// Puts that were done since the mix began.
    pub(crate) fn puts(&self) -> u64 {
        self.puts.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
    }
}

/// What one driver has measured.
pub(crate) struct Tally {
    driver: usize,
    measuring: bool,
    puts_ever: u64,
    pub(crate) gets: Histogram<u64>,
    pub(crate) puts: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new(driver: usize) -> Self {
        let histogram = || {
            Histogram::new_with_bounds(1, LONGEST_NANOS, DIGITS)
                .expect("bounds and digits are constants that a histogram allows")
        };
        Self { driver, measuring: false, puts_ever: 0, gets: histogram(), puts: histogram() }
    }

    /// Notes an operation that is done; false when the mix is over.
    pub(crate) fn done(&mut self, progress: &Progress, what: Next, took: Duration) -> bool {
        let phase = progress.phase.load(Ordering::Relaxed);
        if phase == MEASURING && !self.measuring {
            self.measuring = true;
        }
        let nanos = took.as_nanos() as u64;
        match what {
            Next::Get(_) if self.measuring => self.gets.saturating_record(nanos),
            Next::Put(_) if self.measuring => self.puts.saturating_record(nanos),
            _ => {}
        }
        if matches!(what, Next::Put(_)) {
            self.puts_ever += 1;
            progress.puts[self.driver].0.store(self.puts_ever, Ordering::Relaxed);
        }
        phase != OVER
    }

    /// Adds what another one has measured.
    pub(crate) fn add(&mut self, other: &Self) {
        self.gets += &other.gets;
        self.puts += &other.puts;
    }

    pub(crate) fn operations(&self) -> u64 {
        self.gets.len() + self.puts.len()
    }
}

/// Runs `operation` and tells how long it took.
pub(crate) fn timed<T>(operation: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let outcome = operation();
    (outcome, began.elapsed())
}
