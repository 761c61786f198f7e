//! Clocks that are wrong the way real disciplines make them wrong, from a seed.
//!
//! The papers report one number per discipline, the *average skew between two clients*: 53.2 µs for
//! PTP with software timestamps and 1.51 ms for NTP (MILANA §5), 400 µs for Azure's PTP (Kairos
//! §5). A client's offset is drawn anew, normally distributed, at every
//! [`SKEW_INTERVAL`](crate::limits::SKEW_INTERVAL), or less often where clocks are far apart, and moves
//! smoothly in between:
//!
//! ```text
//!   offset    x₁                      offset(k + f) = ((1 − f)·xₖ + f·xₖ₊₁) / √((1 − f)² + f²)
//!     │      ╱  ╲           x₃
//!     │     ╱    ╲        ╱           the root keeps the spread the same between two draws as at them
//!     │   x₀      ╲      ╱
//!     └────┬───┬───x₂───┬──► interval
//! ```
//! For two independent normal offsets E|x − y| = 2σ/√π, hence σ = average · √π / 2.
//!
//! # Invariants
//! - An offset is a function of (seed, client, time): no state, no entropy, the same on every
//!   machine. The normal draws use additions and one correctly rounded root only, so no libm
//!   decides a simulation's fate.
//! - A skewed clock over a rising one rises: an offset moves by less than an interval per interval.
//!   Where the spread is large, intervals are long for that.

use std::str::FromStr;
use std::time::Duration;

use timestone_types::random::Seed;
use timestone_types::{ClientId, Timestamp};

use crate::limits::{MAX_GIVEN_SKEW, SKEW_INTERVAL};
use crate::{BootTime, Clock, ClockError, ErrorBound};

/// √π / 2: from the average difference of two normal offsets to the spread of each.
const SPREAD_PER_AVERAGE: f64 = 0.886_226_925_452_758;

/// How far apart the clocks of clients are, on average. Read from text with [`str::parse`]:
/// `perfect`, `ptp`, `ntp`, `azure-ptp`, or a duration such as `250us`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SkewModel {
    /// All clocks agree.
    #[default]
    Perfect,
    /// PTP with software timestamps: 53.2 µs (MILANA §5).
    Ptp,
    /// NTP: 1.51 ms (MILANA §5).
    Ntp,
    /// Azure's PTP source: 400 µs (Kairos §5).
    AzurePtp,
    /// This average skew, at most [`MAX_GIVEN_SKEW`].
    Given(Duration),
}

/// The fastest that an offset moves, in spreads per interval: from one end of the draws to the other
/// (6 to each side), half-way between the two, where the root is √½.
const STEEPEST: f64 = 12.0 * std::f64::consts::SQRT_2;
/// The most that an offset may move per time: less than time itself, with room for an oscillator that
/// drifts beside it.
const FASTEST: f64 = 0.95;

impl SkewModel {
    /// How often an offset is drawn anew, in nanoseconds.
    fn interval_ns(spread_ns: f64) -> u64 {
        (SKEW_INTERVAL.as_nanos() as u64).max((spread_ns * (STEEPEST / FASTEST)).ceil() as u64)
    }

    /// The average difference between two clients' clocks.
    #[must_use]
    pub const fn average(self) -> Duration {
        match self {
            Self::Perfect => Duration::ZERO,
            Self::Ptp => Duration::from_nanos(53_200),
            Self::Ntp => Duration::from_micros(1_510),
            Self::AzurePtp => Duration::from_micros(400),
            Self::Given(average) => average,
        }
    }

    /// How far the clock of `client` is ahead of true time at `at`, in nanoseconds; negative when
    /// it is behind.
    #[must_use]
    pub fn offset_ns(self, seed: u64, client: ClientId, at: Timestamp) -> i64 {
        let spread_ns = self.average().min(MAX_GIVEN_SKEW).as_nanos() as f64 * SPREAD_PER_AVERAGE;
        if spread_ns == 0.0 {
            return 0;
        }
        let interval = Self::interval_ns(spread_ns);
        // Every client's intervals start elsewhere, so that they do not all turn at one moment.
        let stream = mix(seed ^ mix(u64::from(client.get())));
        let shifted = u128::from(at.as_nanos()) + u128::from(stream % interval);
        let index = (shifted / u128::from(interval)) as u64;
        let f = (shifted % u128::from(interval)) as f64 / interval as f64;
        let (here, next) = (normal(stream, index), normal(stream, index + 1));
        let rest = 1.0 - f;
        (spread_ns * ((rest * here + f * next) / (rest * rest + f * f).sqrt())) as i64
    }
}

impl FromStr for SkewModel {
    type Err = ClockError;

    fn from_str(text: &str) -> Result<Self, ClockError> {
        match text {
            "perfect" => Ok(Self::Perfect),
            "ptp" => Ok(Self::Ptp),
            "ntp" => Ok(Self::Ntp),
            "azure-ptp" => Ok(Self::AzurePtp),
            other => span(other)
                .filter(|average| *average <= MAX_GIVEN_SKEW)
                .map(Self::Given)
                .ok_or_else(|| ClockError::UnknownModel(other.to_owned())),
        }
    }
}

impl std::fmt::Display for SkewModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Perfect => f.write_str("perfect"),
            Self::Ptp => f.write_str("ptp"),
            Self::Ntp => f.write_str("ntp"),
            Self::AzurePtp => f.write_str("azure-ptp"),
            Self::Given(average) => write!(f, "{}ns", average.as_nanos()),
        }
    }
}

/// A whole number with `ns`, `us`, `µs`, `ms` or `s`.
pub(crate) fn span(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    let unit_ns = match &text[digits..] {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(unit_ns).map(Duration::from_nanos)
}

/// Sixty-four bits that a number determines: the first draw of the dice with this seed.
const fn mix(x: u64) -> u64 {
    Seed(x).dice().roll()
}

/// The `index`-th standard normal draw of a stream: the sum of twelve uniform numbers minus six
/// (Irwin–Hall), which has mean 0, variance 1 and never leaves ±6.
fn normal(stream: u64, index: u64) -> f64 {
    let mut sum = 0.0;
    for half in 0..6 {
        let bits = mix(stream ^ mix(index.wrapping_mul(6).wrapping_add(half)));
        sum += (bits >> 32) as f64 + (bits & 0xffff_ffff) as f64;
    }
    sum / 4_294_967_296.0 - 6.0
}

/// A clock that is off by what a [`SkewModel`] says, over a clock that is right.
#[derive(Clone, Debug)]
pub struct SkewedClock<C> {
    truth: C,
    model: SkewModel,
    seed: u64,
    client: ClientId,
}

impl<C: Clock> SkewedClock<C> {
    /// The clock of `client` under `model`, where `truth` shows true time. Equal arguments give
    /// equal clocks.
    pub const fn new(truth: C, model: SkewModel, seed: u64, client: ClientId) -> Self {
        Self { truth, model, seed, client }
    }

    /// How far this clock is ahead of the truth now, in nanoseconds.
    pub fn offset_ns(&self) -> i64 {
        self.model.offset_ns(self.seed, self.client, self.truth.now())
    }
}

impl<C: Clock> Clock for SkewedClock<C> {
    fn now(&self) -> Timestamp {
        let truth = self.truth.now();
        let offset = self.model.offset_ns(self.seed, self.client, truth);
        Timestamp::from_nanos(truth.as_nanos().saturating_add_signed(offset))
    }

    fn error_bound(&self) -> ErrorBound {
        // The draws never leave ±6 σ, and between two draws the two add up to at most √2 of that.
        const WIDEST_DRAW: f64 = 6.0 * std::f64::consts::SQRT_2;
        let truth = self.truth.error_bound();
        let widest =
            self.model.average().min(MAX_GIVEN_SKEW).mul_f64(SPREAD_PER_AVERAGE * WIDEST_DRAW);
        ErrorBound { bound: truth.bound.saturating_add(widest), ..truth }
    }

    fn source(&self) -> &'static str {
        "simulated"
    }

    fn oscillator(&self) -> BootTime {
        // A model is of the clock, not of what drives it.
        self.truth.oscillator()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;

    const START: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

    fn average_difference(model: SkewModel, moments: u64) -> Duration {
        let mut sum = 0u128;
        for moment in 0..moments {
            let at = START.saturating_add(Duration::from_millis(moment * 370));
            let one = model.offset_ns(7, ClientId::new(1), at);
            let two = model.offset_ns(7, ClientId::new(2), at);
            sum += u128::from(one.abs_diff(two));
        }
        Duration::from_nanos(u64::try_from(sum / u128::from(moments)).unwrap())
    }

    #[test]
    fn two_clients_differ_by_the_published_average() {
        for model in [
            SkewModel::Ptp,
            SkewModel::Ntp,
            SkewModel::AzurePtp,
            SkewModel::Given(Duration::from_millis(20)),
        ] {
            let ratio =
                average_difference(model, 50_000).as_secs_f64() / model.average().as_secs_f64();
            assert!((0.97..1.03).contains(&ratio), "{model}: {ratio}");
        }
    }

    #[test]
    fn perfect_clocks_agree() {
        assert_eq!(average_difference(SkewModel::Perfect, 100), Duration::ZERO);
    }

    #[test]
    fn equal_seeds_give_equal_clocks_and_others_do_not() {
        let offset = |seed, client| SkewModel::Ntp.offset_ns(seed, ClientId::new(client), START);
        assert_eq!(offset(1, 1), offset(1, 1));
        assert_ne!(offset(1, 1), offset(2, 1));
        assert_ne!(offset(1, 1), offset(1, 2));
    }

    #[test]
    fn an_offset_is_a_known_number() {
        let offsets =
            [1, 2, 3].map(|client| SkewModel::Ptp.offset_ns(42, ClientId::new(client), START));
        assert_eq!(offsets, [17_072, 51_246, -8_152]);
    }

    #[test]
    fn a_skewed_clock_over_a_rising_one_rises_and_stays_within_its_bound() {
        let far = |millis| SkewModel::Given(Duration::from_millis(millis));
        for model in [SkewModel::Ntp, far(20), far(200), far(5_000), far(60_000)] {
            for client in 1..20 {
                let truth = ManualClock::new(START);
                let clock = SkewedClock::new(truth.clone(), model, 3, ClientId::new(client));
                let bound = i64::try_from(clock.error_bound().bound.as_nanos()).unwrap();
                let mut last = clock.now();
                for _ in 0..20_000 {
                    truth.advance(Duration::from_micros(7_770));
                    let now = clock.now();
                    assert!(now > last, "{model}, client {client}: {last} to {now}");
                    assert!(clock.offset_ns().abs() <= bound);
                    last = now;
                }
            }
        }
    }

    #[test]
    fn an_offset_is_never_faster_than_is_said() {
        // The steepest of all pairs of draws: it is one of the corners, as the slope is linear in both.
        let step = 1e-4;
        let offset = |here: f64, next: f64, f: f64| {
            ((1.0 - f) * here + f * next) / ((1.0 - f) * (1.0 - f) + f * f).sqrt()
        };
        let mut steepest = 0.0_f64;
        for (here, next) in [(-6.0, 6.0), (6.0, -6.0), (6.0, 6.0)] {
            for at in 0..10_000 {
                let f = f64::from(at) * step;
                let slope = (offset(here, next, f + step) - offset(here, next, f)) / step;
                steepest = steepest.max(slope.abs());
            }
        }
        assert!((STEEPEST - 0.01..=STEEPEST + 1e-6).contains(&steepest), "{steepest}");
    }

    #[test]
    fn models_read_back_as_written() {
        for model in [
            SkewModel::Perfect,
            SkewModel::Ptp,
            SkewModel::Ntp,
            SkewModel::AzurePtp,
            SkewModel::Given(Duration::from_micros(250)),
        ] {
            assert_eq!(model.to_string().parse(), Ok(model));
        }
        assert_eq!("2ms".parse(), Ok(SkewModel::Given(Duration::from_millis(2))));
        for bad in ["", "2", "ms", "61s", "-1s", "1.5ms", "gps", "99999999999999999999s"] {
            assert!(bad.parse::<SkewModel>().is_err(), "{bad}");
        }
        let message = "gps".parse::<SkewModel>().unwrap_err().to_string();
        assert!(message.contains("'gps'") && message.contains("azure-ptp"), "{message}");
    }
}
