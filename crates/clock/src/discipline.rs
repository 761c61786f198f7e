//! A process's time: it runs with the machine's oscillator and follows the physical clock without
//! ever jumping.
//!
//! ```text
//!   time = boot time + offset                      wanted offset = physical clock − boot time
//!
//!   Following ── wanted moves by more than STEP ──► Held ── GLITCH_HOLD later ──► Slewing
//!       ▲  └─ slews, a tenth at most                 │ offset stands still           │ slews, a tenth at most
//!       └───────────── wanted is back, or reached ───┴───────────────────────────────┘
//! ```
//! A clock that steps is either repaired at that moment or broken at that moment, and nobody can
//! tell which. Followed at once, a step forward makes a server promise a future that the true time
//! has yet to reach, and a step back makes it refuse what it promised before. So a step is *held*:
//! time goes on as before while the step is counted and told, and what stays wrong for
//! [`GLITCH_HOLD`] is approached at a rate that timers and expiry do not notice. `CLOCK_BOOTTIME`
//! is the oscillator: unlike `CLOCK_MONOTONIC` it goes on while the machine sleeps, so that waking
//! up is no step (docs/protocol/time.md, "A clock that steps").
//!
//! It reads no clock: [`ClockReading`]s are handed in. [`crate::SystemClock`] reads the kernel's clocks,
//! the simulator makes them up.
//!
//! # Invariants
//! - Time never runs backwards, and never faster or slower than boot time by more than a tenth.
//! - A step that is undone within [`GLITCH_HOLD`] never moves time by more than [`STEP`].
//! - A [`Course`] is a function of boot time: whoever holds one computes the same time from the
//!   same boot time.
//!
//! What is deliberately absent: who is right. No other machine is asked.

use std::fmt;
use std::time::Duration;

use timestone_types::{Span, Timestamp};

use crate::limits::{DEAD_BAND, FOLLOW_SPAN, GLITCH_HOLD, LEAD_IN, MAX_SLEW_DIVISOR, STEP};

/// Nanoseconds since the machine was started, its sleep included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct BootTime(u64);

impl BootTime {
    /// So many nanoseconds after the start of the machine.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start of the machine.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `span` later.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos_of(span).unsigned_abs()))
    }

    /// The span since an earlier moment; zero if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// What both clocks showed at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockReading {
    /// The oscillator.
    pub boot: BootTime,
    /// The physical clock.
    pub physical: Timestamp,
}

impl ClockReading {
    /// How far the physical clock is ahead of the oscillator.
    fn wanted_ns(self) -> i64 {
        signed(self.physical.as_nanos()).saturating_sub(signed(self.boot.0))
    }
}

/// A straight piece of a [`Course`]: the offset changes evenly from one boot time until another
/// one, and then stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Piece {
    from: BootTime,
    until: BootTime,
    offset_ns: i64,
    /// Change of the offset for each 2³² ns of boot time: what is divided by a power of two costs
    /// next to nothing.
    slope: i64,
}

impl Piece {
    #[inline]
    const fn offset_at(&self, boot: BootTime) -> i64 {
        if self.slope == 0 {
            return self.offset_ns;
        }
        let end = if boot.0 < self.until.0 { boot.0 } else { self.until.0 };
        let run = end.saturating_sub(self.from.0);
        self.offset_ns.saturating_add(((run as i128 * self.slope as i128) >> 32) as i64)
    }
}

/// The slope of an offset that grows as fast as time passes.
const ONE_SLOPE: i64 = 1 << 32;

/// How many words a [`Course`] is made of.
pub(crate) const COURSE_WORDS: usize = 8;

/// Time as a function of boot time, from a reading until the next one that changes something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Course {
    before: Piece,
    after: Piece,
}

impl Course {
    pub(crate) fn constant(offset_ns: i64) -> Self {
        let piece = Piece { offset_ns, ..Piece::default() };
        Self { before: piece, after: piece }
    }

    #[inline]
    pub(crate) const fn offset_at(&self, boot: BootTime) -> i64 {
        if boot.0 < self.after.from.0 {
            self.before.offset_at(boot)
        } else {
            self.after.offset_at(boot)
        }
    }

    /// What time it is at a boot time that is not before the reading which the course was made
    /// from.
    #[inline]
    #[must_use]
    pub const fn at(&self, boot: BootTime) -> Timestamp {
        Timestamp::from_nanos(boot.0.saturating_add_signed(self.offset_at(boot)))
    }

    /// Lets the offset move by `gap_ns` from [`LEAD_IN`] after `boot` on, evenly within `span`, or
    /// for longer where that would be faster than time is slewed; and then stand still.
    pub(crate) fn steer(&mut self, boot: BootTime, gap_ns: i64, span: Duration) {
        let from = boot.after(LEAD_IN);
        let offset_ns = self.offset_at(from);
        // What moves anyway until the new piece begins needs not be moved again.
        let gap_ns = gap_ns.saturating_sub(offset_ns.saturating_sub(self.offset_at(boot)));
        let is_small = gap_ns.unsigned_abs() <= nanos_of(DEAD_BAND).unsigned_abs();
        if is_small && self.after.until <= boot {
            return;
        }
        let fastest = nanos_of(span) / MAX_SLEW_DIVISOR;
        let per_span = if is_small { 0 } else { gap_ns.clamp(-fastest, fastest) };
        let slope = ((i128::from(per_span) << 32) / i128::from(nanos_of(span))) as i64;
        let run =
            if slope == 0 { 0 } else { ((i128::from(gap_ns) << 32) / i128::from(slope)) as u64 };
        let after = Piece { from, until: BootTime(from.0.saturating_add(run)), offset_ns, slope };
        *self = Self { before: self.after, after };
    }

    /// Whether a change of it has yet to begin at `boot`.
    pub(crate) fn is_changing(&self, boot: BootTime) -> bool {
        boot < self.after.from
    }

    /// The earliest boot time at which time may have been `at`, seen from `boot`: by the slowest
    /// that time has run since, as far as the course knows. `None` when time has yet to come there.
    pub(crate) fn earliest_of(&self, at: Timestamp, boot: BootTime) -> Option<BootTime> {
        let now = self.at(boot);
        if at > now {
            return None;
        }
        let slowest = if at < self.at(self.before.from) {
            -ONE_SLOPE / MAX_SLEW_DIVISOR
        } else {
            self.before.slope.min(self.after.slope).min(0)
        };
        let passed = i128::from(nanos_of(now.since(at))) * i128::from(ONE_SLOPE);
        // Rounded up, and one more for the rounding of both ends.
        let passed = passed / i128::from(ONE_SLOPE + slowest) + 2;
        Some(BootTime(boot.0.saturating_sub(u64::try_from(passed).unwrap_or(u64::MAX))))
    }

    /// As words, for who shares it between threads.
    pub(crate) const fn to_words(self) -> [u64; COURSE_WORDS] {
        let Self { before, after } = self;
        [
            before.from.0,
            before.until.0,
            before.offset_ns as u64,
            before.slope as u64,
            after.from.0,
            after.until.0,
            after.offset_ns as u64,
            after.slope as u64,
        ]
    }

    /// The course of these words.
    pub(crate) const fn from_words(words: [u64; COURSE_WORDS]) -> Self {
        let [from, until, offset, slope, then, end, later, rate] = words;
        Self {
            before: Piece {
                from: BootTime(from),
                until: BootTime(until),
                offset_ns: offset as i64,
                slope: slope as i64,
            },
            after: Piece {
                from: BootTime(then),
                until: BootTime(end),
                offset_ns: later as i64,
                slope: rate as i64,
            },
        }
    }
}

/// What a process makes of its physical clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClockState {
    /// It follows: both agree, or are less than a step apart.
    #[default]
    Following,
    /// The physical clock has stepped; time goes on as if it had not.
    Held,
    /// The step has lasted: time approaches the physical clock, a tenth faster or slower than it
    /// would run.
    Slewing,
}

impl fmt::Display for ClockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Following => "following",
            Self::Held => "held",
            Self::Slewing => "slewing",
        })
    }
}

/// How a process's time stands to its physical clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClockHealth {
    /// What it makes of it.
    pub state: ClockState,
    /// How far the process's time is ahead of the physical clock, in nanoseconds; negative when it
    /// is behind.
    pub offset_ns: i64,
    /// Steps of the physical clock that were held, since the clock was made.
    pub held_steps: u64,
}

impl ClockHealth {
    /// How far the physical clock leads the process's time because a step is held or being
    /// followed: so far ahead, a timestamp of another process on this machine is nobody's fault.
    #[must_use]
    pub const fn held_back(&self) -> Duration {
        match self.state {
            ClockState::Held | ClockState::Slewing if self.offset_ns < 0 => {
                Duration::from_nanos(self.offset_ns.unsigned_abs())
            }
            _ => Duration::ZERO,
        }
    }

    /// How far apart the two are, either way.
    #[must_use]
    pub const fn apart(&self) -> Duration {
        Duration::from_nanos(self.offset_ns.unsigned_abs())
    }
}

impl fmt::Display for ClockHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let apart = Span(self.apart());
        let way = if self.offset_ns < 0 { "behind" } else { "ahead of" };
        match self.state {
            ClockState::Following => write!(f, "the process follows the system's clock"),
            ClockState::Held => write!(
                f,
                "the system's clock has stepped; the process goes on with its own time, {apart} \
                 {way} it, and follows when \
                 that lasts for {}",
                Span(GLITCH_HOLD)
            ),
            ClockState::Slewing => {
                let left = Span(self.apart().saturating_mul(MAX_SLEW_DIVISOR as u32));
                write!(
                    f,
                    "the process's time is {apart} {way} the system's clock and approaches it, for \
                     another {left}"
                )
            }
        }
    }
}

/// What a reading has brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockEvent {
    /// The physical clock has stepped away, by so many nanoseconds; time is held.
    Stepped {
        /// Forward, or back when negative.
        by_ns: i64,
    },
    /// The step has lasted: time begins to follow.
    Slews,
    /// Both agree again.
    Agrees,
}

/// The state machine. See the module.
#[derive(Clone, Debug)]
pub struct Discipline {
    course: Course,
    state: ClockState,
    /// When the present hold began.
    held_since: BootTime,
    /// What was wanted at the last reading.
    wanted_ns: i64,
    held_steps: u64,
    /// The physical clock is followed at once, steps and all: a bug on purpose, and how clocks
    /// without a discipline are.
    follows_steps: bool,
}

impl Discipline {
    /// A process that begins at this reading: it takes the physical clock for true.
    #[must_use]
    pub fn new(first: ClockReading) -> Self {
        let wanted_ns = first.wanted_ns();
        Self {
            course: Course::constant(wanted_ns),
            state: ClockState::Following,
            held_since: first.boot,
            wanted_ns,
            held_steps: 0,
            follows_steps: false,
        }
    }

    /// Follows every step at once from now on: what this module is there to prevent.
    pub const fn follow_steps(&mut self) {
        self.follows_steps = true;
    }

    /// Time as it goes on from the last reading.
    #[must_use]
    pub const fn course(&self) -> &Course {
        &self.course
    }

    /// Time begins at this reading, whatever the physical clock has done since the first one: it is
    /// taken for true as it is now. To be called at the start of a process, before anybody has
    /// asked what time it is: this is a jump. Returns how far time moves by it, in nanoseconds.
    pub fn begin_anew(&mut self, reading: ClockReading) -> i64 {
        let moves_ns = self.gap_ns(reading);
        *self = Self { follows_steps: self.follows_steps, ..Self::new(reading) };
        moves_ns
    }

    /// Time goes on from `at`, unless it is there already: what an earlier life of the process
    /// promised is not undercut. To be called at its start, before anybody has asked what time it
    /// is: this is a jump.
    pub fn go_on_from(&mut self, reading: ClockReading, at: Timestamp) {
        let now = self.course.at(reading.boot);
        if at <= now {
            return;
        }
        let ahead = at.since(now);
        self.course =
            Course::constant(self.course.offset_at(reading.boot).saturating_add(nanos_of(ahead)));
        if self.gap_ns(reading).unsigned_abs() > nanos_of(STEP).unsigned_abs() {
            self.hold(reading.boot);
        }
    }

    /// How it stands at a boot time, by the last reading.
    #[must_use]
    pub const fn health(&self, boot: BootTime) -> ClockHealth {
        let offset_ns = self.course.offset_at(boot).saturating_sub(self.wanted_ns);
        ClockHealth { state: self.state, offset_ns, held_steps: self.held_steps }
    }

    /// How far the physical clock is ahead of time.
    fn gap_ns(&self, reading: ClockReading) -> i64 {
        reading.wanted_ns().saturating_sub(self.course.offset_at(reading.boot))
    }

    fn hold(&mut self, boot: BootTime) {
        self.state = ClockState::Held;
        self.held_since = boot;
        self.held_steps += 1;
    }

    /// Takes a reading, not earlier than the last one. What it changes holds from [`LEAD_IN`] after
    /// it, so that threads which still hold the course of before compute the same. Readings within
    /// that are ignored.
    pub fn read(&mut self, reading: ClockReading) -> Option<ClockEvent> {
        if reading.boot < self.course.after.from {
            return None;
        }
        let wanted_ns = reading.wanted_ns();
        if self.follows_steps {
            self.wanted_ns = wanted_ns;
            self.course = Course::constant(wanted_ns);
            return None;
        }
        let moved_ns = wanted_ns.saturating_sub(self.wanted_ns);
        self.wanted_ns = wanted_ns;
        let gap_ns = self.gap_ns(reading);
        let event = self.judge(reading.boot, moved_ns, gap_ns);
        let target_ns = if self.state == ClockState::Held { 0 } else { gap_ns };
        self.steer(reading.boot, target_ns);
        event
    }

    fn judge(&mut self, boot: BootTime, moved_ns: i64, gap_ns: i64) -> Option<ClockEvent> {
        let is_step = |ns: i64| ns.unsigned_abs() > nanos_of(STEP).unsigned_abs();
        if !is_step(gap_ns) {
            let agreed = self.state == ClockState::Following;
            self.state = ClockState::Following;
            return (!agreed).then_some(ClockEvent::Agrees);
        }
        // Without a step in one piece it was many small ones, or an oscillator that is off by more
        // than is slewed.
        if is_step(moved_ns) || self.state == ClockState::Following {
            self.hold(boot);
            return Some(ClockEvent::Stepped {
                by_ns: if is_step(moved_ns) { moved_ns } else { gap_ns },
            });
        }
        if self.state == ClockState::Held && boot.since(self.held_since) >= GLITCH_HOLD {
            self.state = ClockState::Slewing;
            return Some(ClockEvent::Slews);
        }
        None
    }

    /// Lets the offset move by `gap_ns` and then stand still, however long it takes until the next
    /// reading.
    fn steer(&mut self, boot: BootTime, gap_ns: i64) {
        self.course.steer(boot, gap_ns, FOLLOW_SPAN);
    }
}

pub(crate) fn signed(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

pub(crate) fn nanos_of(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EPOCH: u64 = 1_770_000_000_000_000_000;
    const MILLI: i64 = 1_000_000;
    const SECOND: i64 = 1_000 * MILLI;
    /// From one reading to the next.
    const POLL: Duration = Duration::from_millis(10);

    /// A machine whose physical clock is off by so much, and a process on it.
    struct Machine {
        boot: BootTime,
        off_ns: i64,
        discipline: Discipline,
        last: Timestamp,
        events: Vec<ClockEvent>,
    }

    impl Machine {
        fn new() -> Self {
            let boot = BootTime::from_nanos(5_000_000_000);
            let reading =
                ClockReading { boot, physical: Timestamp::from_nanos(EPOCH + boot.as_nanos()) };
            let discipline = Discipline::new(reading);
            Self { boot, off_ns: 0, discipline, last: reading.physical, events: Vec::new() }
        }

        fn reading(&self) -> ClockReading {
            let physical = (EPOCH + self.boot.as_nanos()).saturating_add_signed(self.off_ns);
            ClockReading { boot: self.boot, physical: Timestamp::from_nanos(physical) }
        }

        /// Lets time pass, with a reading now and then.
        fn pass(&mut self, span: Duration) {
            let end = self.boot.after(span);
            while self.boot < end {
                self.boot = self.boot.after(POLL).min(end);
                let event = self.discipline.read(self.reading());
                self.events.extend(event);
                self.check();
            }
        }

        /// Time rises, by nine to eleven tenths of what passes.
        fn check(&mut self) {
            let now = self.discipline.course().at(self.boot);
            assert!(now > self.last, "{now} after {}", self.last);
            self.last = now;
        }

        /// How far the process is ahead of true time.
        fn error_ns(&self) -> i64 {
            let truth = EPOCH + self.boot.as_nanos();
            self.discipline.course().at(self.boot).as_nanos() as i64 - truth as i64
        }

        fn state(&self) -> ClockState {
            self.discipline.health(self.boot).state
        }
    }

    #[test]
    fn a_glitch_that_passes_moves_nothing() {
        for by_ns in [300 * SECOND, -5 * SECOND, 150 * MILLI] {
            let mut machine = Machine::new();
            machine.pass(Duration::from_secs(1));
            machine.off_ns = by_ns;
            machine.pass(Duration::from_secs(9));
            assert_eq!((machine.state(), machine.error_ns()), (ClockState::Held, 0));
            let health = machine.discipline.health(machine.boot);
            assert_eq!((health.offset_ns, health.held_steps), (-by_ns, 1));
            let led = if by_ns > 0 { Duration::from_nanos(by_ns as u64) } else { Duration::ZERO };
            assert_eq!(health.held_back(), led);
            machine.off_ns = 0;
            machine.pass(Duration::from_secs(30));
            assert_eq!((machine.state(), machine.error_ns()), (ClockState::Following, 0));
            assert_eq!(machine.events, [ClockEvent::Stepped { by_ns }, ClockEvent::Agrees]);
        }
    }

    #[test]
    fn a_step_that_lasts_is_followed_after_the_hold_by_a_tenth() {
        for by_ns in [5 * SECOND, -5 * SECOND] {
            let mut machine = Machine::new();
            machine.off_ns = by_ns;
            machine.pass(GLITCH_HOLD);
            assert_eq!(machine.error_ns(), 0);
            machine.pass(Duration::from_secs(10));
            let moved = machine.error_ns() * by_ns.signum();
            assert!((900 * MILLI..=SECOND).contains(&moved), "{moved}");
            machine.pass(Duration::from_secs(60));
            assert!(
                (machine.error_ns() - by_ns).abs() <= nanos_of(DEAD_BAND),
                "{}",
                machine.error_ns()
            );
            assert_eq!(
                machine.events,
                [ClockEvent::Stepped { by_ns }, ClockEvent::Slews, ClockEvent::Agrees]
            );
        }
    }

    #[test]
    fn a_second_step_is_held_anew_and_counted() {
        let mut machine = Machine::new();
        machine.off_ns = 60 * SECOND;
        machine.pass(Duration::from_secs(15));
        assert_eq!(machine.state(), ClockState::Slewing);
        machine.off_ns = -60 * SECOND;
        machine.pass(Duration::from_secs(5));
        assert_eq!(
            (machine.state(), machine.discipline.health(machine.boot).held_steps),
            (ClockState::Held, 2)
        );
    }

    #[test]
    fn less_than_a_step_is_followed_smoothly() {
        let mut machine = Machine::new();
        machine.off_ns = 50 * MILLI;
        machine.pass(Duration::from_millis(100));
        assert!((0..15 * MILLI).contains(&machine.error_ns()));
        machine.pass(Duration::from_secs(20));
        assert!((machine.error_ns() - machine.off_ns).abs() <= nanos_of(DEAD_BAND));
        assert_eq!(machine.events, []);
    }

    #[test]
    fn many_small_steps_are_a_step() {
        let mut machine = Machine::new();
        for _ in 0..200 {
            machine.off_ns += 20 * MILLI;
            machine.pass(POLL);
        }
        assert!(machine.discipline.health(machine.boot).held_steps >= 1);
    }

    #[test]
    fn nobody_reads_for_an_hour_and_time_does_not_overshoot() {
        let mut machine = Machine::new();
        machine.off_ns = 40 * MILLI;
        machine.pass(POLL);
        machine.boot = machine.boot.after(Duration::from_secs(3_600));
        machine.check();
        assert!(
            (machine.error_ns() - machine.off_ns).abs() <= nanos_of(DEAD_BAND),
            "{}",
            machine.error_ns()
        );
    }

    #[test]
    fn a_new_life_goes_on_where_the_last_one_was() {
        let mut machine = Machine::new();
        let reading = machine.reading();
        let before = reading.physical.saturating_add(Duration::from_secs(5));
        machine.discipline.go_on_from(reading, before);
        assert_eq!(machine.discipline.course().at(machine.boot), before);
        let health = machine.discipline.health(machine.boot);
        assert_eq!(
            (health.state, health.offset_ns, health.held_steps),
            (ClockState::Held, 5 * SECOND, 1)
        );
        machine.last = before;
        machine.pass(GLITCH_HOLD + Duration::from_secs(60));
        assert!(machine.error_ns().abs() <= nanos_of(DEAD_BAND));
        // What lies behind already changes nothing.
        machine.discipline.go_on_from(machine.reading(), before);
        assert_eq!(machine.state(), ClockState::Following);
    }

    #[test]
    fn who_begins_anew_takes_the_clock_as_it_is_by_then() {
        for by_ns in [300 * SECOND, -5 * SECOND] {
            let mut machine = Machine::new();
            machine.off_ns = by_ns;
            machine.pass(Duration::from_secs(12));
            assert_eq!(machine.state(), ClockState::Slewing);
            let moves_ns = machine.discipline.begin_anew(machine.reading());
            assert_eq!(machine.error_ns(), by_ns);
            assert!(
                (moves_ns - by_ns).abs() <= SECOND && moves_ns.signum() == by_ns.signum(),
                "{moves_ns}"
            );
            assert_eq!(machine.discipline.health(machine.boot), ClockHealth::default());
            // From then on steps are held as ever.
            machine.last = machine.discipline.course().at(machine.boot);
            machine.off_ns = 0;
            machine.pass(Duration::from_secs(5));
            assert_eq!((machine.state(), machine.error_ns()), (ClockState::Held, by_ns));
        }
    }

    #[test]
    fn a_clock_without_discipline_takes_every_step() {
        let mut machine = Machine::new();
        machine.discipline.follow_steps();
        machine.off_ns = 300 * SECOND;
        machine.pass(POLL);
        assert_eq!(machine.error_ns(), 300 * SECOND);
    }

    #[test]
    fn a_course_survives_its_words() {
        let mut machine = Machine::new();
        machine.off_ns = -50 * MILLI;
        machine.pass(Duration::from_secs(1));
        let course = *machine.discipline.course();
        assert_eq!(Course::from_words(course.to_words()), course);
    }

    #[test]
    fn people_are_told_what_the_clock_does() {
        let told = |state, offset_ns| ClockHealth { state, offset_ns, held_steps: 1 }.to_string();
        assert!(
            told(ClockState::Held, 5 * SECOND).contains("5 s ahead of it"),
            "{}",
            told(ClockState::Held, 5 * SECOND)
        );
        let slewing = told(ClockState::Slewing, -SECOND);
        assert!(
            slewing.contains("1 s behind the system's clock") && slewing.contains("another 10 s"),
            "{slewing}"
        );
    }

    proptest! {
        /// Whatever the physical clock does and whenever it is read: time rises, within a tenth of
        /// the oscillator's pace, and two holders of one course after the other agree until the new
        /// one begins.
        #[test]
        fn time_never_jumps(steps in prop::collection::vec((0u64..20_000, -400i64..400, 0u8..4), 1..80)) {
            let mut machine = Machine::new();
            let mut at = machine.discipline.course().at(machine.boot);
            for (wait_ms, off_ms, kind) in steps {
                machine.off_ns = if kind == 0 { machine.off_ns } else { off_ms * MILLI * if kind == 1 { 1_000 } else { 1 } };
                let boot = machine.boot.after(Duration::from_millis(wait_ms) + LEAD_IN);
                let old = *machine.discipline.course();
                let passed = nanos_of(boot.since(machine.boot));
                machine.boot = boot;
                machine.discipline.read(machine.reading());
                for span in [Duration::ZERO, LEAD_IN / 2, LEAD_IN] {
                    prop_assert_eq!(old.at(boot.after(span)), machine.discipline.course().at(boot.after(span)));
                }
                let now = machine.discipline.course().at(boot);
                let went = now.as_nanos() as i64 - at.as_nanos() as i64;
                prop_assert!((went - passed).abs() <= passed / MAX_SLEW_DIVISOR + 2, "{} of {}", went, passed);
                at = now;
            }
        }

        /// A glitch of any size that is undone within the hold leaves no trace.
        #[test]
        fn glitches_leave_no_trace(by_ms in -1_000_000i64..1_000_000, for_ms in 1u64..9_900) {
            let mut machine = Machine::new();
            machine.off_ns = by_ms * MILLI;
            machine.pass(Duration::from_millis(for_ms));
            machine.off_ns = 0;
            machine.pass(Duration::from_secs(20));
            prop_assert!(machine.error_ns().abs() <= nanos_of(DEAD_BAND));
            prop_assert_eq!(machine.state(), ClockState::Following);
        }
    }
}
