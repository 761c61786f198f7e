//! The clock of one simulated process: a skew model's, made worse on purpose.
//!
//! ```text
//!   true time ── skew model ──► what an honest clock shows ── drift · jump · stop ──► what this one shows
//! ```
//! Its error bound is an honest one: it covers the model, and every fault up to [`SimClock::repair`] widens it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use timestone_clock::{Clock, ErrorBound, SkewModel};
use timestone_seda::simulated::{LocalTime, VirtualTime};
use timestone_types::{ClientId, Timestamp};

use crate::seed::Seed;

/// What an exact clock shows when the world begins: some day in 2026.
pub(crate) const EPOCH: Timestamp = Timestamp::from_nanos(1_770_000_000_000_000_000);

/// True time, shared by everything that must know it.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrueTime(Arc<std::sync::atomic::AtomicU64>);

impl TrueTime {
    pub(crate) fn now(&self) -> VirtualTime {
        VirtualTime::from_nanos(self.0.load(std::sync::atomic::Ordering::Relaxed))
    }

    pub(crate) fn set(&self, now: VirtualTime) {
        self.0.store(now.as_nanos(), std::sync::atomic::Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Faults {
    offset_ns: i64,
    /// Parts per million that it runs fast since a moment.
    drift: Option<(i64, VirtualTime)>,
    stopped_at: Option<VirtualTime>,
    stretch: Option<Stretch>,
}

/// The model's offset at the two ends of a stretch of time: between them it moves evenly. Drawing it anew for every reading would cost
/// more than most turns.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    number: u64,
    begin_ns: i64,
    end_ns: i64,
}

/// Nanoseconds of a stretch: a power of two, about a millisecond.
const STRETCH: u64 = 1 << 20;

/// A process's clock; clones are the same clock.
#[derive(Clone, Debug)]
pub(crate) struct SimClock {
    truth: TrueTime,
    model: SkewModel,
    seed: Seed,
    number: ClientId,
    faults: Arc<Mutex<Faults>>,
}

impl SimClock {
    pub(crate) fn new(truth: TrueTime, model: SkewModel, seed: Seed, number: u32) -> Self {
        Self { truth, model, seed, number: ClientId::new(number), faults: Arc::default() }
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets it forward or back.
    pub(crate) fn jump(&self, by_ns: i64) {
        self.faults().offset_ns += by_ns;
    }

    /// Lets it run fast, or slow, from now on.
    pub(crate) fn drift(&self, ppm: i64) {
        let mut faults = self.faults();
        let now = self.truth.now();
        faults.offset_ns += drifted(&faults, now);
        faults.drift = Some((ppm, now));
    }

    /// Lets it stand still.
    pub(crate) fn stop(&self) {
        let now = self.truth.now();
        self.faults().stopped_at.get_or_insert(now);
    }

    /// Sets it right again.
    pub(crate) fn repair(&self) {
        let mut faults = self.faults();
        *faults = Faults { stretch: faults.stretch, ..Faults::default() };
    }

    fn model_ns(&self, nanos: u64) -> i64 {
        self.model.offset_ns(self.seed.0, self.number, EPOCH.saturating_add(Duration::from_nanos(nanos)))
    }

    fn skew_ns(&self, faults: &mut Faults, moment: VirtualTime) -> i64 {
        if self.model == SkewModel::Perfect {
            return 0;
        }
        let (number, within) = (moment.as_nanos() / STRETCH, moment.as_nanos() % STRETCH);
        let stretch = match faults.stretch.filter(|stretch| stretch.number == number) {
            Some(stretch) => stretch,
            None => {
                let (begin_ns, end_ns) = (self.model_ns(number * STRETCH), self.model_ns((number + 1) * STRETCH));
                *faults.stretch.insert(Stretch { number, begin_ns, end_ns })
            }
        };
        stretch.begin_ns + (stretch.end_ns - stretch.begin_ns) * within as i64 / STRETCH as i64
    }

    fn offset_ns(&self, faults: &mut Faults, moment: VirtualTime) -> i64 {
        let skew = self.skew_ns(faults, moment);
        let stopped = faults.stopped_at.map_or(0, |at| moment.since(at).as_nanos() as i64);
        skew + faults.offset_ns + drifted(faults, moment) - stopped
    }
}

fn drifted(faults: &Faults, moment: VirtualTime) -> i64 {
    faults.drift.map_or(0, |(ppm, since)| (moment.since(since).as_nanos() as i128 * i128::from(ppm) / 1_000_000) as i64)
}

impl LocalTime for SimClock {
    fn at(&self, moment: VirtualTime) -> Timestamp {
        let mut faults = self.faults();
        let offset = self.offset_ns(&mut faults, moment);
        Timestamp::from_nanos(EPOCH.as_nanos().saturating_add(moment.as_nanos()).saturating_add_signed(offset))
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        self.at(self.truth.now())
    }

    fn error_bound(&self) -> ErrorBound {
        // As a skewed clock's own bound: draws never leave ±6 σ, times √2 between two of them.
        let model = self.model.average().mul_f64(0.886_226_925_452_758 * 6.0 * std::f64::consts::SQRT_2);
        let mut faults = self.faults();
        let wrong = (self.offset_ns(&mut faults, self.truth.now())).unsigned_abs();
        let is_faulty = faults.offset_ns != 0 || faults.drift.is_some() || faults.stopped_at.is_some();
        let extra = if is_faulty { Duration::from_nanos(wrong.saturating_mul(2)) } else { Duration::ZERO };
        ErrorBound { bound: model.saturating_add(extra), synchronised: true }
    }

    fn source(&self) -> &'static str {
        "simulated"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_drifts_stops_jumps_and_is_repaired() {
        let truth = TrueTime::default();
        let clock = SimClock::new(truth.clone(), SkewModel::Perfect, Seed(1), 1);
        let shows = |seconds: u64| {
            truth.set(VirtualTime::from_nanos(seconds * 1_000_000_000));
            clock.now().as_nanos() as i64 - EPOCH.as_nanos() as i64 - seconds as i64 * 1_000_000_000
        };
        assert_eq!(shows(1), 0);
        clock.drift(100);
        assert_eq!(shows(11), 1_000_000);
        clock.drift(-100);
        assert_eq!(shows(12), 900_000);
        clock.jump(-900_000);
        clock.drift(0);
        assert_eq!(shows(13), 0);
        clock.stop();
        assert_eq!(shows(15), -2_000_000_000);
        assert!(clock.error_bound().bound >= Duration::from_secs(2));
        clock.repair();
        assert_eq!((shows(16), clock.error_bound().bound), (0, Duration::ZERO));
    }
}
