//! The system's clock, as a process goes by it: `CLOCK_BOOTTIME` with an offset that follows
//! `CLOCK_REALTIME` (whatever disciplines that: chrony, ntpd, PTP's phc2sys) without ever jumping,
//! and the kernel's word on the error.
//!
//! ```text
//!   clock_gettime (vDSO, ~25 ns) ─► boot time ── course ──► now
//!                                                  ▲
//!   realtime beside it, every 10 ms ─► Discipline ─┘         adjtimex (~1 µs), once a second at most ─► cached ErrorBound
//! ```
//!
//! # Invariants
//! - Whoever finds a reading due takes it; the others go on with the course of before, which says
//!   the same for another millisecond.
//! - Whoever finds the cached bound old claims the refresh first, so that many threads ask the
//!   kernel once.
//! - What the kernel will not tell (a sandbox that forbids `adjtimex`) counts as unsynchronised,
//!   never as exact.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Duration;

use rtime_clock::adjtime::{Timex, adjtimex};
use rustix::time::{ClockId, Timespec, clock_gettime};
use timestone_types::{Span, Timestamp};

use crate::discipline::{BootTime, ClockEvent, ClockHealth, ClockReading, Discipline};
use crate::limits::{
    ERROR_BOUND_MAX_AGE, GLITCH_HOLD, LONGEST_READING, POLL_INTERVAL, STEP, UNSYNCHRONISED,
};
use crate::shared_course::SharedCourse;
use crate::{Clock, ClockShift, ErrorBound};

/// `STA_UNSYNC` of `<linux/timex.h>`: nothing disciplines the clock.
const STATUS_UNSYNCHRONISED: i32 = 0x40;
/// How often a reading that was interrupted is tried again before it is left for the next time.
const READING_ATTEMPTS: u32 = 4;

/// A process's time, which follows the machine's `CLOCK_REALTIME`. Every part of a process shares
/// one: two of them may hold different steps.
///
/// ```
/// use timestone_clock::{Clock, SystemClock};
///
/// let clock = SystemClock::new();
/// assert!(clock.now().as_nanos() > 1_700_000_000_000_000_000);
/// println!("{} {} {}", clock.source(), clock.error_bound(), clock.health());
/// ```
#[derive(Debug)]
pub struct SystemClock {
    course: SharedCourse,
    /// When the next reading is due, by boot time.
    next_reading: AtomicU64,
    discipline: Mutex<Discipline>,
    /// As of the last reading, for those who do not want to wait for the lock: how far time is
    /// ahead of the physical clock, and how far that leads because a step is held.
    offset_ns: AtomicI64,
    held_back_ns: AtomicU64,
    /// When the bound was asked for last, in nanoseconds of `CLOCK_MONOTONIC`: a step of the
    /// realtime clock must not freeze it.
    asked_at: AtomicU64,
    bound: AtomicU64,
    /// How far the realtime clock is taken to be set wrong.
    shift: ClockShift,
    /// How far the realtime clock is set wrong.
    #[cfg(test)]
    set_by_ns: AtomicI64,
}

impl SystemClock {
    /// The system's clock, with its error bound already asked for.
    #[must_use]
    pub fn new() -> Self {
        Self::set_wrong(ClockShift::default())
    }

    /// The system's clock as it would be if it were set wrong: for trials. It vouches for nothing,
    /// and its error bound is larger by the most by which it is wrong.
    #[must_use]
    pub fn set_wrong(shift: ClockShift) -> Self {
        // Interrupted, too, a first reading is better than none: what it is wrong by is followed.
        let first = read_both(shift.at(boot())).unwrap_or_else(|reading| reading);
        let discipline = Discipline::new(first);
        Self {
            course: SharedCourse::new(discipline.course()),
            next_reading: AtomicU64::new(first.boot.after(POLL_INTERVAL).as_nanos()),
            discipline: Mutex::new(discipline),
            offset_ns: AtomicI64::new(0),
            held_back_ns: AtomicU64::new(0),
            asked_at: AtomicU64::new(read(ClockId::Monotonic)),
            bound: AtomicU64::new(pack(ask_kernel())),
            shift,
            #[cfg(test)]
            set_by_ns: AtomicI64::new(0),
        }
    }

    /// How far the realtime clock is set wrong now.
    fn set_by_ns(&self) -> i64 {
        let by = self.shift.at(boot());
        #[cfg(test)]
        let by = by + self.set_by_ns.load(Ordering::Relaxed);
        by
    }

    /// Compares the clocks, unless another thread does.
    #[cold]
    fn take_reading(&self) {
        let mut discipline = match self.discipline.try_lock() {
            Ok(discipline) => discipline,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let reading = read_both(self.set_by_ns());
        let (Ok(at) | Err(at)) = reading;
        self.next_reading.store(at.boot.after(POLL_INTERVAL).as_nanos(), Ordering::Relaxed);
        let Ok(reading) = reading else { return };
        let before = *discipline.course();
        let event = discipline.read(reading);
        if *discipline.course() != before {
            self.course.publish(discipline.course());
        }
        self.note(&discipline.health(reading.boot));
        if let Some(event) = event {
            tell(event, &discipline.health(reading.boot));
        }
    }

    /// Puts time elsewhere at the start of the process, by the clocks as they are now. Returns what
    /// that came to, and how the clock is then.
    fn begin<T>(&self, put: impl FnOnce(&mut Discipline, ClockReading) -> T) -> (T, ClockHealth) {
        let mut discipline = self.discipline.lock().unwrap_or_else(PoisonError::into_inner);
        let (Ok(reading) | Err(reading)) = read_both(self.set_by_ns());
        let result = put(&mut discipline, reading);
        self.course.publish(discipline.course());
        let health = discipline.health(reading.boot);
        self.note(&health);
        (result, health)
    }

    fn note(&self, health: &ClockHealth) {
        self.offset_ns.store(health.offset_ns, Ordering::Relaxed);
        let held_back = u64::try_from(health.held_back().as_nanos()).unwrap_or(u64::MAX);
        self.held_back_ns.store(held_back, Ordering::Relaxed);
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let boot = read(ClockId::Boottime);
        if boot >= self.next_reading.load(Ordering::Relaxed) {
            self.take_reading();
        }
        self.course.get().at(BootTime::from_nanos(boot))
    }

    fn error_bound(&self) -> ErrorBound {
        let now = read(ClockId::Monotonic);
        let asked_at = self.asked_at.load(Ordering::Acquire);
        let is_old = u128::from(now.saturating_sub(asked_at)) >= ERROR_BOUND_MAX_AGE.as_nanos();
        if is_old
            && self
                .asked_at
                .compare_exchange(asked_at, now, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        {
            self.bound.store(pack(ask_kernel()), Ordering::Release);
        }
        let kernel = unpack(self.bound.load(Ordering::Acquire));
        // True time is within the kernel's bound of the physical clock, and time may be apart from
        // that.
        let apart = Duration::from_nanos(self.offset_ns.load(Ordering::Relaxed).unsigned_abs());
        ErrorBound {
            bound: kernel.bound.saturating_add(apart).saturating_add(self.shift.most()),
            synchronised: kernel.synchronised && self.shift.is_none(),
        }
    }

    fn source(&self) -> &'static str {
        "system"
    }

    fn oscillator(&self) -> BootTime {
        boot()
    }

    fn health(&self) -> ClockHealth {
        let discipline = self.discipline.lock().unwrap_or_else(PoisonError::into_inner);
        discipline.health(boot())
    }

    fn held_back(&self) -> Duration {
        Duration::from_nanos(self.held_back_ns.load(Ordering::Relaxed))
    }

    fn begin_anew(&self) {
        let (moves_ns, _) = self.begin(|discipline, reading| {
            self.next_reading
                .store(reading.boot.after(POLL_INTERVAL).as_nanos(), Ordering::Relaxed);
            discipline.begin_anew(reading)
        });
        let moves = Duration::from_nanos(moves_ns.unsigned_abs());
        if moves > STEP {
            let way = if moves_ns < 0 { "back" } else { "forward" };
            tracing::warn!(step = %Span(moves), way, "the system's clock has stepped while the \
                process started; time begins with what it shows now");
        }
    }

    fn go_on_from(&self, at: Timestamp) {
        let ((), health) = self.begin(|discipline, reading| discipline.go_on_from(reading, at));
        if health.state == crate::ClockState::Held {
            tracing::warn!(
                behind = %Span(health.apart()),
                "the system's clock is behind what was promised before the start; time goes on \
                 from there"
            );
        }
    }
}

/// Says what has happened to the clock. Cold: steps are rare.
fn tell(event: ClockEvent, health: &ClockHealth) {
    let apart = Span(health.apart());
    match event {
        ClockEvent::Stepped { by_ns } => {
            let step = Span(Duration::from_nanos(by_ns.unsigned_abs()));
            let way = if by_ns < 0 { "back" } else { "forward" };
            tracing::warn!(
                %step, way, %apart, held_steps = health.held_steps,
                "the system's clock has stepped; time goes on as before, and follows if that lasts \
                 for {}", Span(GLITCH_HOLD)
            );
        }
        ClockEvent::Slews => {
            tracing::warn!(%apart, "the step of the system's clock has lasted; time approaches it \
                slowly");
        }
        ClockEvent::Agrees => {
            tracing::info!("the system's clock and the process's time agree again")
        }
    }
}

/// What both clocks show; as an error when the thread was interrupted in between, so that they may
/// not belong together.
fn read_both(set_by_ns: i64) -> Result<ClockReading, ClockReading> {
    let mut reading = ClockReading { boot: BootTime::default(), physical: Timestamp::ZERO };
    for _ in 0..READING_ATTEMPTS {
        let before = read(ClockId::Boottime);
        let physical = read(ClockId::Realtime).saturating_add_signed(set_by_ns);
        let took = read(ClockId::Boottime).saturating_sub(before);
        reading = ClockReading {
            boot: BootTime::from_nanos(before + took / 2),
            physical: Timestamp::from_nanos(physical),
        };
        if u128::from(took) <= LONGEST_READING.as_nanos() {
            return Ok(reading);
        }
    }
    Err(reading)
}

fn boot() -> BootTime {
    BootTime::from_nanos(read(ClockId::Boottime))
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
    let nanos = u64::try_from(bound.bound.as_nanos())
        .unwrap_or(SYNCHRONISED_BIT - 1)
        .min(SYNCHRONISED_BIT - 1);
    if bound.synchronised { nanos | SYNCHRONISED_BIT } else { nanos }
}

const fn unpack(word: u64) -> ErrorBound {
    ErrorBound {
        bound: Duration::from_nanos(word & !SYNCHRONISED_BIT),
        synchronised: word & SYNCHRONISED_BIT != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "the standard library's word is what ours is held against"
    )]
    fn it_agrees_with_the_standard_library() {
        let clock = SystemClock::new();
        let nanos_of = |time: std::time::SystemTime| {
            time.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()
        };
        let before = nanos_of(std::time::SystemTime::now());
        let shown = u128::from(clock.now().as_nanos());
        let after = nanos_of(std::time::SystemTime::now());
        // The two clocks are read one after the other, and the thread may be interrupted in
        // between.
        let slack = 1_000_000;
        assert!(before <= shown + slack && shown <= after + slack, "{before} {shown} {after}");
    }

    #[test]
    fn the_kernels_word_is_judged() {
        let sixteen = ErrorBound { bound: UNSYNCHRONISED, synchronised: false };
        assert_eq!(judge(16_000_000, 0), sixteen);
        assert_eq!(judge(16_000_000, STATUS_UNSYNCHRONISED), sixteen);
        assert_eq!(judge(99_000_000, 0), sixteen);
        assert_eq!(judge(-1, 0), sixteen);
        assert_eq!(
            judge(250, 0),
            ErrorBound { bound: Duration::from_micros(250), synchronised: true }
        );
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

    /// Waits until the clock has been read again.
    fn next_reading(clock: &SystemClock) {
        let due = clock.next_reading.load(Ordering::Relaxed);
        while clock.next_reading.load(Ordering::Relaxed) == due {
            let _ = clock.now();
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_clock_that_is_set_wrong_shows_it_and_says_so() {
        let right = SystemClock::new();
        let late = SystemClock::set_wrong("-30s".parse().unwrap());
        let apart = right.now().since(late.now());
        assert!((29..31).contains(&apart.as_secs()), "{apart:?}");
        let bound = late.error_bound();
        assert!(!bound.synchronised && bound.bound >= Duration::from_secs(30), "{bound:?}");
        assert_eq!(late.health().state, crate::ClockState::Following);
    }

    #[test]
    fn a_step_of_the_realtime_clock_is_held_and_shown() {
        for by in [3_600_000_000_000i64, -5_000_000_000] {
            let clock = SystemClock::new();
            let bound = clock.error_bound().bound;
            let before = clock.now();
            clock.set_by_ns.store(by, Ordering::Relaxed);
            next_reading(&clock);
            let after = clock.now();
            assert!(
                after >= before && after.since(before) < Duration::from_secs(5),
                "{before} {after}"
            );
            let health = clock.health();
            assert_eq!((health.state, health.held_steps), (crate::ClockState::Held, 1));
            let apart =
                Duration::from_nanos(by.unsigned_abs()).saturating_sub(Duration::from_millis(1));
            assert!(health.apart() >= apart && clock.error_bound().bound >= bound + apart);
            assert_eq!(clock.held_back() >= apart, by > 0);
            clock.set_by_ns.store(0, Ordering::Relaxed);
            next_reading(&clock);
            assert_eq!(
                (clock.health().state, clock.held_back()),
                (crate::ClockState::Following, Duration::ZERO)
            );
        }
    }

    #[test]
    fn a_clock_that_is_set_right_while_a_process_starts_is_taken_as_it_is() {
        for by in [3_600_000_000_000i64, -5_000_000_000] {
            let clock = SystemClock::new();
            let begun = clock.now();
            clock.set_by_ns.store(by, Ordering::Relaxed);
            next_reading(&clock);
            clock.begin_anew();
            let moved = clock.now().as_nanos() as i64 - begun.as_nanos() as i64;
            assert!((by..by + 5_000_000_000).contains(&moved), "{moved}");
            assert_eq!(
                (clock.health().state, clock.held_back()),
                (crate::ClockState::Following, Duration::ZERO)
            );
        }
    }

    #[test]
    fn a_process_that_starts_goes_on_from_where_it_was() {
        let clock = SystemClock::new();
        let at = clock.now().saturating_add(Duration::from_secs(20));
        clock.go_on_from(at);
        assert!(clock.now() >= at && clock.now().since(at) < Duration::from_secs(5));
        assert!(clock.error_bound().bound >= Duration::from_secs(15));
    }

    #[test]
    fn threads_that_read_while_the_course_changes_see_time_rise() {
        let clock = SystemClock::new();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = clock.now();
                    for _ in 0..200_000 {
                        let now = clock.now();
                        assert!(now >= last, "{now} after {last}");
                        last = now;
                    }
                });
            }
            for by in [30_000_000, -30_000_000, 60_000_000, 0] {
                clock.set_by_ns.store(by, Ordering::Relaxed);
                next_reading(&clock);
            }
        });
    }

    #[test]
    fn an_unsynchronised_clock_says_so() {
        assert_eq!(judge(16_000_000, 0).to_string(), "unsynchronised");
        assert_eq!(judge(250, 0).to_string(), "±250µs");
    }
}
