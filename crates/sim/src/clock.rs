//! The clock of one simulated process: a skew model's, made worse on purpose.
//!
//! ```text
//!   true time ── skew model · drift ──► oscillator ── jump · stop ──► physical clock ── Discipline ──► a server's time
//!                                                                          └──────────────────────► a client's time
//! ```
//! Servers go by their clocks as they do in production. Clients follow theirs at once, as processes
//! do that were just started, or that are not ours: whatever their clocks show, the answers must be
//! right. Or they go by the servers' time ([`ClientTime`]): then a model is of their physical clock
//! alone, and their oscillators are off by a constant rate. Its error bound is an honest one: it
//! covers the model, and every fault up to [`SimClock::repair`] widens it. One clock may lie: it is
//! off by a constant, and does not say so.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use timestone_clock::limits::{DEAD_BAND, DRIFT_PPM, POLL_INTERVAL, RECENT};
use timestone_clock::server_time::ClockFigures;
use timestone_clock::{
    BootTime, Clock, ClockHealth, ClockReading, Discipline, ErrorBound, FollowedClock, SkewModel,
};
use timestone_seda::simulated::{LocalTime, VirtualTime};
use timestone_types::{ClientId, Timestamp};

use timestone_types::random::Seed;

/// What an exact clock shows when the world begins: some day in 2026.
pub(crate) const EPOCH: Timestamp = Timestamp::from_nanos(1_770_000_000_000_000_000);

/// How long every machine had been running by then: no fault makes an oscillator show a time before
/// its start.
const UPTIME: u64 = 1_000_000_000_000_000;

/// Clocks that are no further apart than this are never near to what servers let clients lead by.
const CLOSE: Duration = Duration::from_millis(50);

/// How far apart two clocks may be that nothing is wrong with: the model's draws never leave six
/// standard deviations to either side.
pub(crate) fn apart(skew: SkewModel) -> Duration {
    skew.average().mul_f64(24.0)
}

/// Whether clocks that nothing is wrong with are close to each other.
pub(crate) fn are_close(skew: SkewModel) -> bool {
    apart(skew) <= CLOSE
}

/// True time, shared by everything that must know it.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrueTime(Arc<std::sync::atomic::AtomicU64>);

/// A moment as histories have it: counted from the run's begin.
pub(crate) const fn moment(at: VirtualTime) -> Timestamp {
    Timestamp::from_nanos(at.as_nanos())
}

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
    /// How far the clock was set forward.
    jump_ns: i64,
    /// How far the oscillator got ahead.
    ahead_ns: i64,
    /// Parts per million that it runs fast since a moment.
    drift: Option<(i64, VirtualTime)>,
    stopped_at: Option<VirtualTime>,
    /// When the oscillator was last known to run at its own rate alone.
    steady_since: VirtualTime,
    stretch: Option<Stretch>,
    /// How the process makes its time of it; `None` while it follows at once.
    process: Option<Disciplined>,
}

/// A process's time, and when the clocks are compared next.
#[derive(Debug)]
struct Disciplined {
    discipline: Discipline,
    next_reading: BootTime,
    /// How far ahead the clock may be when time begins.
    most: Duration,
}

impl Disciplined {
    fn at(&mut self, reading: ClockReading) -> Timestamp {
        if reading.boot >= self.next_reading {
            self.next_reading = reading.boot.after(POLL_INTERVAL);
            // Nobody reads a simulated server's log.
            let _ = self.discipline.read(reading);
        }
        self.discipline.course().at(reading.boot)
    }
}

/// The model's offset at the two ends of a stretch of time: between them it moves evenly. Drawing
/// it anew for every reading would cost more than most turns.
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
    /// How far it is ahead, whatever it says of itself.
    lie_ns: i64,
    /// Millionths by which its oscillator is off, where it is one of its own.
    ppm: i64,
    faults: Arc<Mutex<Faults>>,
}

/// The time of a client: that of its own clock, or the servers' over its oscillator.
pub(crate) struct ClientTime {
    pub(crate) own: SimClock,
    pub(crate) followed: Option<Arc<FollowedClock>>,
}

impl LocalTime for ClientTime {
    fn at(&self, moment: VirtualTime) -> Timestamp {
        match &self.followed {
            Some(followed) => followed.at(self.own.oscillator_at(moment)),
            None => self.own.at(moment),
        }
    }
}

/// Judges the time of a client that follows the servers': whether it is as right as it claims, and
/// goes smoothly.
#[derive(Debug)]
pub(crate) struct TimeJudge {
    own: SimClock,
    /// What was shown last, and when.
    last: Option<(VirtualTime, Timestamp)>,
}

/// What comes of an oscillator that was off by more than is allowed for is over after this long.
const HEALING: Duration = RECENT.saturating_add(Duration::from_secs(1));

impl TimeJudge {
    pub(crate) const fn new(own: SimClock) -> Self {
        Self { own, last: None }
    }

    /// What is wrong about a client that has this time now.
    pub(crate) fn look(&mut self, shown: Timestamp, figures: ClockFigures) -> Option<String> {
        let now = self.own.truth.now();
        let last = self.last.replace((now, shown));
        if let Some((then, before)) = last {
            // A tenth, the most that an oscillator drifts, and what is cut off.
            let passed = now.since(then);
            let went = shown.since(before);
            let slack = passed.mul_f64(0.125) + Duration::from_nanos(10);
            if shown < before || went > passed + slack || went + slack < passed {
                return Some(format!(
                    "a client's time goes from {before} to {shown} while {passed:?} pass"
                ));
            }
        }
        let is_steady = self
            .own
            .steady_since()
            .is_some_and(|since| since == VirtualTime::ZERO || now.since(since) >= HEALING);
        let truth = EPOCH.as_nanos() + now.as_nanos();
        let wrong = Duration::from_nanos(shown.as_nanos().abs_diff(truth));
        let bound = figures.error_bound.bound;
        (is_steady && wrong > bound).then(|| {
            format!("a client's time ({figures}) is wrong by {wrong:?}, and said to be by {bound:?} at most")
        })
    }
}

/// Oscillators of clients that follow the servers' time are off by up to so many millionths: half
/// of what is allowed for.
const MOST_PPM: u64 = DRIFT_PPM / 2;

impl SimClock {
    pub(crate) fn new(truth: TrueTime, model: SkewModel, seed: Seed, number: u32) -> Self {
        let mut dice = seed.derive("oscillator", u64::from(number)).dice();
        let ppm = dice.below(2 * MOST_PPM + 1) as i64 - MOST_PPM as i64;
        let number = ClientId::new(number);
        Self { truth, model, seed, number, lie_ns: 0, ppm, faults: Arc::default() }
    }

    /// The same, ahead by so much without saying so.
    pub(crate) fn lying(self, by: Duration) -> Self {
        Self { lie_ns: by.as_nanos() as i64, ..self }
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process begins that goes by this clock smoothly. It takes it as it is, but no further
    /// ahead than `most`: who starts has nothing to tell a clock by that is ahead.
    pub(crate) fn begin_process(&self, most: Duration) {
        let mut faults = self.faults();
        faults.jump_ns = faults.jump_ns.min(most.as_nanos() as i64 - faults.ahead_ns.min(0));
        let reading = self.reading(&mut faults, self.truth.now());
        let mut discipline = Discipline::new(reading);
        if follows_steps() {
            discipline.follow_steps();
        }
        faults.process = Some(Disciplined { discipline, next_reading: BootTime::default(), most });
    }

    /// How far the process's time is behind what an honest clock would show.
    pub(crate) fn behind(&self) -> Duration {
        let mut faults = self.faults();
        let now = self.truth.now();
        let (skew_ns, shown) = (self.skew_ns(&mut faults, now), self.show(&mut faults, now));
        let honest = (EPOCH.as_nanos() + now.as_nanos()).saturating_add_signed(skew_ns);
        Timestamp::from_nanos(honest).since(shown)
    }

    /// Sets it forward or back.
    pub(crate) fn jump(&self, by_ns: i64) {
        self.faults().jump_ns += by_ns;
    }

    /// Since when its oscillator has run at its own rate; `None` while it does not.
    pub(crate) fn steady_since(&self) -> Option<VirtualTime> {
        let faults = self.faults();
        faults.drift.is_none().then_some(faults.steady_since)
    }

    /// What the oscillator of a client shows that follows the servers' time.
    fn oscillator_at(&self, moment: VirtualTime) -> BootTime {
        let faults = self.faults();
        let own = i128::from(moment.as_nanos()) * i128::from(self.ppm) / 1_000_000;
        let ahead_ns = own as i64 + faults.ahead_ns + drifted(&faults, moment);
        BootTime::from_nanos((UPTIME + moment.as_nanos()).saturating_add_signed(ahead_ns))
    }

    /// Lets it run fast, or slow, from now on.
    pub(crate) fn drift(&self, ppm: i64) {
        let mut faults = self.faults();
        let now = self.truth.now();
        faults.ahead_ns += drifted(&faults, now);
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
        let (stretch, process) = (faults.stretch, faults.process.take());
        let steady_since = faults.drift.map_or(faults.steady_since, |_| self.truth.now());
        // What the oscillator has lost or won, it never gets back: the clock is set right beside
        // it.
        let ahead_ns = faults.ahead_ns + drifted(&faults, self.truth.now());
        let jump_ns = -ahead_ns;
        *faults = Faults { stretch, process, ahead_ns, jump_ns, steady_since, ..Faults::default() };
    }

    fn model_ns(&self, nanos: u64) -> i64 {
        self.model.offset_ns(
            self.seed.0,
            self.number,
            EPOCH.saturating_add(Duration::from_nanos(nanos)),
        )
    }

    fn skew_ns(&self, faults: &mut Faults, moment: VirtualTime) -> i64 {
        if self.model == SkewModel::Perfect {
            return 0;
        }
        let (number, within) = (moment.as_nanos() / STRETCH, moment.as_nanos() % STRETCH);
        let stretch = match faults.stretch.filter(|stretch| stretch.number == number) {
            Some(stretch) => stretch,
            None => {
                let (begin_ns, end_ns) =
                    (self.model_ns(number * STRETCH), self.model_ns((number + 1) * STRETCH));
                *faults.stretch.insert(Stretch { number, begin_ns, end_ns })
            }
        };
        stretch.begin_ns + (stretch.end_ns - stretch.begin_ns) * within as i64 / STRETCH as i64
    }

    /// How far the oscillator is ahead of true time.
    fn oscillator_ns(&self, faults: &mut Faults, moment: VirtualTime) -> i64 {
        self.lie_ns + self.skew_ns(faults, moment) + faults.ahead_ns + drifted(faults, moment)
    }

    /// What the process's two clocks show. The world begins [`UPTIME`] after the machine.
    fn reading(&self, faults: &mut Faults, moment: VirtualTime) -> ClockReading {
        let oscillator_ns = self.oscillator_ns(faults, moment);
        let stopped_ns = faults.stopped_at.map_or(0, |at| moment.since(at).as_nanos() as i64);
        let boot = (UPTIME + moment.as_nanos()).saturating_add_signed(oscillator_ns);
        let physical =
            (EPOCH.as_nanos() - UPTIME + boot).saturating_add_signed(faults.jump_ns - stopped_ns);
        ClockReading { boot: BootTime::from_nanos(boot), physical: Timestamp::from_nanos(physical) }
    }

    fn show(&self, faults: &mut Faults, moment: VirtualTime) -> Timestamp {
        let reading = self.reading(faults, moment);
        faults.process.as_mut().map_or(reading.physical, |process| process.at(reading))
    }
}

/// Whether servers take every step of their clocks at once: a bug on purpose.
fn follows_steps() -> bool {
    #[cfg(feature = "planted-bugs")]
    return timestone_server::planted::is_planted(timestone_server::planted::Bug::FollowedStep);
    #[cfg(not(feature = "planted-bugs"))]
    false
}

fn drifted(faults: &Faults, moment: VirtualTime) -> i64 {
    faults.drift.map_or(0, |(ppm, since)| {
        (moment.since(since).as_nanos() as i128 * i128::from(ppm) / 1_000_000) as i64
    })
}

impl LocalTime for SimClock {
    fn at(&self, moment: VirtualTime) -> Timestamp {
        self.show(&mut self.faults(), moment)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        self.at(self.truth.now())
    }

    fn error_bound(&self) -> ErrorBound {
        // As a skewed clock's own bound: draws never leave ±6 σ, times √2 between two of them.
        let model =
            self.model.average().mul_f64(0.886_226_925_452_758 * 6.0 * std::f64::consts::SQRT_2);
        let mut faults = self.faults();
        let now = self.truth.now();
        let shown = self.show(&mut faults, now).as_nanos() as i64;
        let truth = (EPOCH.as_nanos() + now.as_nanos()) as i64;
        let wrong = (shown - truth - self.lie_ns).unsigned_abs();
        let is_set_wrong = faults.jump_ns + faults.ahead_ns != 0;
        // By what both clocks show now: the process may have compared them before a fault.
        let physical = self.reading(&mut faults, now).physical.as_nanos() as i64;
        let apart = shown - physical;
        let is_apart = apart.unsigned_abs() > DEAD_BAND.as_nanos() as u64;
        let is_faulty =
            is_set_wrong || is_apart || faults.drift.is_some() || faults.stopped_at.is_some();
        let extra =
            if is_faulty { Duration::from_nanos(wrong.saturating_mul(2)) } else { Duration::ZERO };
        ErrorBound { bound: model.saturating_add(extra), synchronised: true }
    }

    fn source(&self) -> &'static str {
        "simulated"
    }

    fn oscillator(&self) -> BootTime {
        self.oscillator_at(self.truth.now())
    }

    fn health(&self) -> ClockHealth {
        let mut faults = self.faults();
        let reading = self.reading(&mut faults, self.truth.now());
        faults
            .process
            .as_ref()
            .map_or_else(ClockHealth::default, |process| process.discipline.health(reading.boot))
    }

    fn begin_anew(&self) {
        let most = self.faults().process.as_ref().map(|process| process.most);
        if let Some(most) = most {
            self.begin_process(most);
        }
    }

    fn go_on_from(&self, at: Timestamp) {
        let mut faults = self.faults();
        let reading = self.reading(&mut faults, self.truth.now());
        if let Some(process) = &mut faults.process {
            process.discipline.go_on_from(reading, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use timestone_clock::ClockState;

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

    /// Found by the assertion that a shard's time goes on: with clocks 200 ms apart on average an
    /// oscillator has shown less than a moment before.
    #[test]
    fn an_oscillator_and_what_goes_by_it_never_go_back_however_far_clocks_are_apart() {
        let skew = SkewModel::Given(Duration::from_millis(200));
        for number in 0..12 {
            let truth = TrueTime::default();
            let clock = SimClock::new(truth.clone(), skew, Seed(12), number);
            clock.begin_process(Duration::from_secs(1));
            clock.drift(-20_000);
            let mut last = (BootTime::default(), Timestamp::ZERO);
            for half_ms in 0..120_000 {
                let now = VirtualTime::from_nanos(half_ms * 500_000);
                truth.set(now);
                let boot = clock.reading(&mut clock.faults(), now).boot;
                let shown = (boot, clock.now());
                assert!(shown.0 > last.0 && shown.1 >= last.1, "{number}: {last:?}, {shown:?}");
                last = shown;
            }
        }
    }

    #[test]
    fn a_server_goes_on_through_steps_and_from_where_its_last_life_was() {
        let truth = TrueTime::default();
        let clock = SimClock::new(truth.clone(), SkewModel::Perfect, Seed(1), 1);
        clock.begin_process(Duration::from_secs(1));
        let shows = |seconds: u64| {
            truth.set(VirtualTime::from_nanos(seconds * 1_000_000_000));
            clock.now().as_nanos() as i64 - EPOCH.as_nanos() as i64 - seconds as i64 * 1_000_000_000
        };
        assert_eq!(shows(1), 0);
        clock.jump(120_000_000_000);
        assert_eq!((shows(2), shows(5)), (0, 0));
        assert_eq!(clock.held_back(), Duration::from_secs(120));
        clock.jump(-125_000_000_000);
        assert_eq!((shows(6), shows(7), clock.held_back()), (0, 0, Duration::ZERO));
        // Another process takes the clock as it is, unless it is told better.
        clock.begin_process(Duration::from_secs(1));
        assert_eq!(shows(8), -5_000_000_000);
        clock.go_on_from(EPOCH.saturating_add(Duration::from_secs(8)));
        assert_eq!((shows(8), shows(9)), (0, 0));
        clock.repair();
        assert_eq!((shows(10), shows(60)), (0, 0));
        assert_eq!(clock.health().held_steps, 1);
        clock.stop();
        assert_eq!((shows(61), shows(63)), (0, 0), "a clock that stands still is held as well");
        clock.repair();
        assert_eq!((shows(64), clock.health().state), (0, ClockState::Following));
        // What the oscillator wins is followed, and made good when the clock is repaired.
        clock.drift(20_000);
        assert_eq!(shows(66), 40_000_000);
        clock.repair();
        assert!(shows(67) > 0 && shows(90).abs() < 10_000);
    }
}
