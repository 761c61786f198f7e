//! The timer descriptor that wakes a sleeping reactor at a moment to come.
//!
//! Each expiry is a new edge for an edge-triggered poller, which needs no reading; setting the timer
//! again takes back an expiry that nobody has seen.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::error::IoError;

/// A timer of the monotonic clock, as a descriptor.
#[derive(Debug)]
pub struct Timer {
    fd: OwnedFd,
}

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// When the system is out of descriptors.
    pub fn new() -> Result<Self, IoError> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(|errno| {
            IoError::System { action: "create a timer descriptor", source: errno.into() }
        })?;
        Ok(Self { fd })
    }

    /// The descriptor becomes readable after so long, once; what it was set to before counts no
    /// more.
    ///
    /// # Errors
    /// When the kernel refuses, which it does for no duration that a `Duration` of years has.
    pub fn set(&self, after: Duration) -> io::Result<()> {
        // Zero would stop the timer.
        let value = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(after.max(Duration::from_nanos(1))),
        };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &value)?;
        Ok(())
    }

    /// Blocks until the timer has expired since it was set, or `timeout` has passed. A signal ends
    /// the wait early.
    pub fn wait(&self, timeout: Duration) {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        // An error is a signal: whoever waits looks again.
        let _ = poll(&mut fds, Some(&timespec(timeout)));
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::poller::{Interest, PollEvents, PollToken, Poller};

    #[test]
    fn each_expiry_is_an_edge_that_needs_no_reading() {
        let (timer, mut poller) = (Timer::new().unwrap(), Poller::new().unwrap());
        poller.register_fd(timer.as_fd(), PollToken(7), Interest::READABLE).unwrap();
        let mut events = PollEvents::with_capacity(4);
        for _ in 0..3 {
            let begin = Instant::now();
            timer.set(Duration::from_millis(2)).unwrap();
            poller.poll(&mut events, Some(Duration::from_secs(10))).unwrap();
            assert_eq!(events.iter().map(|event| event.token).collect::<Vec<_>>(), [PollToken(7)]);
            assert!(begin.elapsed() >= Duration::from_millis(2));
            poller.poll(&mut events, Some(Duration::from_millis(5))).unwrap();
            assert!(events.is_empty(), "one expiry, one edge");
        }
    }

    #[test]
    fn a_wait_ends_with_the_timer_or_with_its_timeout() {
        let timer = Timer::new().unwrap();
        let begin = Instant::now();
        timer.wait(Duration::from_millis(3));
        assert!(begin.elapsed() >= Duration::from_millis(3), "it is not set");
        timer.set(Duration::ZERO).unwrap();
        timer.wait(Duration::from_secs(100));
        assert!(begin.elapsed() < Duration::from_secs(50));
    }
}
