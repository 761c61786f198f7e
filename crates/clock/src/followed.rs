//! A client's clock that follows the servers' time: [`ServerTime`] over the clock of the machine.
//!
//! ```text
//!   oscillator (one reading) ── course ──► now
//!                                  ▲
//!   own clock beside it, every 10 ms, and what answers told ─► ServerTime
//! ```
//! Whoever asks what time it is when a look is due takes it; the others go on with the course of
//! before, which says the same for another millisecond. An answer costs a lock that nobody else
//! holds, and nothing is allocated for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use timestone_types::Timestamp;

use crate::limits::{LONGEST_READING, POLL_INTERVAL};
use crate::server_time::{ClockFigures, Exchange, OwnReading, ServerTime};
use crate::shared_course::SharedCourse;
use crate::{BootTime, Clock, ErrorBound};

/// How often a reading of the own clock that was interrupted is tried again.
const READING_ATTEMPTS: u32 = 4;

/// See the module. Every part of a process shares one.
#[derive(Debug)]
pub struct FollowedClock {
    own: Arc<dyn Clock>,
    course: SharedCourse,
    /// When the next look is due, by the oscillator.
    next_look: AtomicU64,
    time: Mutex<ServerTime>,
}

impl FollowedClock {
    /// Time that begins with what `own` shows, and follows what is heard.
    #[must_use]
    pub fn new(own: Arc<dyn Clock>) -> Self {
        let (Ok(first) | Err(first)) = read(&*own);
        let time = ServerTime::new(&first);
        Self {
            course: SharedCourse::new(time.course()),
            next_look: AtomicU64::new(first.boot.after(POLL_INTERVAL).as_nanos()),
            time: Mutex::new(time),
            own,
        }
    }

    /// What time it is at a moment of the oscillator that is not before the last look.
    #[must_use]
    pub fn at(&self, boot: BootTime) -> Timestamp {
        self.course.get().at(boot)
    }

    fn lock(&self) -> MutexGuard<'_, ServerTime> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks what is known, unless another thread does.
    #[cold]
    fn look(&self) {
        let mut time = match self.time.try_lock() {
            Ok(time) => time,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let reading = read(&*self.own);
        let (Ok(at) | Err(at)) = reading;
        self.next_look.store(at.boot.after(POLL_INTERVAL).as_nanos(), Ordering::Relaxed);
        if let Ok(own) = reading
            && time.look(&own)
        {
            self.course.publish(time.course());
        }
    }
}

impl Clock for FollowedClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let boot = self.own.oscillator();
        if boot.as_nanos() >= self.next_look.load(Ordering::Relaxed) {
            self.look();
        }
        self.at(boot)
    }

    fn error_bound(&self) -> ErrorBound {
        let (Ok(own) | Err(own)) = read(&*self.own);
        self.lock().error_bound(&own)
    }

    fn source(&self) -> &'static str {
        self.figures().source
    }

    fn oscillator(&self) -> BootTime {
        self.own.oscillator()
    }

    fn heard(&self, exchange: &Exchange<'_>) {
        let mut time = self.lock();
        // Read now: whatever was waited for makes the interval wider, and not wrong.
        let received = self.own.oscillator();
        time.hear(exchange, received);
    }

    fn figures(&self) -> ClockFigures {
        let (Ok(own) | Err(own)) = read(&*self.own);
        self.lock().figures(&own, self.own.source())
    }
}

/// What the own clock shows; as an error when the thread was interrupted meanwhile, so that it may
/// not belong to the oscillator.
fn read(own: &dyn Clock) -> Result<OwnReading, OwnReading> {
    let error_bound = own.error_bound();
    let attempt = || {
        let before = own.oscillator();
        let now = own.now();
        let took = own.oscillator().since(before);
        (took, OwnReading { boot: before.after(took / 2), now, error_bound })
    };
    let (mut took, mut reading) = attempt();
    for _ in 1..READING_ATTEMPTS {
        if took <= LONGEST_READING {
            break;
        }
        (took, reading) = attempt();
    }
    if took <= LONGEST_READING {
        return Ok(reading);
    }
    // The two are apart by what the interruption took, at most.
    reading.error_bound.bound = error_bound.bound.saturating_add(took);
    Err(reading)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use timestone_types::ClientId;

    use super::*;
    use crate::server_time::{SERVERS, ServerNumber};
    use crate::{ManualClock, SkewModel, SkewedClock};

    const START: Timestamp = Timestamp::from_nanos(1_770_000_000_000_000_000);
    const TRIP: Duration = Duration::from_micros(200);

    /// An answer of a server whose clock is right.
    fn answer(truth: &ManualClock, clock: &FollowedClock) {
        let sent = clock.now();
        let reading = truth.advance(TRIP / 2);
        truth.advance(TRIP / 2);
        let error = Some(Duration::from_micros(1));
        let server = ServerNumber(1);
        clock.heard(&Exchange { server, servers: &[server], sent, reading, error });
    }

    #[test]
    fn it_leaves_its_own_clock_for_the_servers_and_comes_back_when_they_are_silent() {
        let truth = ManualClock::new(START);
        let model = SkewModel::Given(Duration::from_millis(60));
        let own = SkewedClock::new(truth.clone(), model, 3, ClientId::new(5));
        let clock = FollowedClock::new(Arc::new(own.clone()));
        assert_eq!((clock.source(), clock.now()), ("simulated", own.now()));
        let begun = own.offset_ns();
        assert!(begun.unsigned_abs() > 1_000_000, "{begun}");
        let mut last = clock.now();
        for _ in 0..3_000 {
            truth.advance(Duration::from_millis(1));
            answer(&truth, &clock);
            let now = clock.now();
            assert!(now > last, "{now} after {last}");
            last = now;
        }
        let apart = last.as_nanos().abs_diff(truth.now().as_nanos());
        assert!(apart <= 120_000, "{apart}");
        let figures = clock.figures();
        assert_eq!((figures.source, figures.servers), (SERVERS, 1));
        assert!(figures.error_bound.bound >= Duration::from_nanos(apart));
        assert!(figures.error_bound.bound < Duration::from_micros(400), "{figures}");
        // The own clock moves all the time, and so does what time follows then.
        for _ in 0..13_000 {
            truth.advance(Duration::from_millis(1));
            let now = clock.now();
            assert!(now > last, "{now} after {last}");
            last = now;
        }
        let apart = last.as_nanos().abs_diff(own.now().as_nanos());
        assert_eq!((clock.source(), clock.figures().servers), ("simulated", 0));
        assert!(apart < 30_000_000, "{apart}");
        assert!(clock.error_bound().bound >= own.error_bound().bound);
    }
}
