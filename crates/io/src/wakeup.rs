//! The event descriptor that tells a sleeping reactor about completions.
//!
//! It is written once or more per completion and needs no reading by edge-triggered pollers. Its
//! counter cannot block a writer: the descriptor is non-blocking, and a full counter is as readable
//! as any other.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;

use crate::error::IoError;

/// An eventfd, non-blocking.
#[derive(Debug)]
pub(crate) struct Wakeup {
    fd: OwnedFd,
}

impl Wakeup {
    /// A descriptor that is not readable yet.
    pub(crate) fn new() -> Result<Self, IoError> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(|errno| {
            IoError::System { action: "create an event descriptor", source: errno.into() }
        })?;
        Ok(Self { fd })
    }

    /// Makes the descriptor readable (again: a new edge).
    pub(crate) fn signal(&self) {
        // Only a full counter can refuse, and then the descriptor is readable already.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Blocks until the descriptor is readable, or `timeout` has passed, or a signal came.
    pub(crate) fn wait(&self, timeout: Duration) {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // An error is a signal: whoever waits looks again.
        let _ = poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout));
    }

    /// Makes the descriptor unreadable until the next signal, for level-triggered pollers.
    pub(crate) fn clear(&self) {
        let mut counter = [0u8; 8];
        // An error says that there was nothing to clear.
        let _ = rustix::io::read(&self.fd, &mut counter);
    }
}

/// A descriptor that several engines of one thread signal, so that the thread waits for one of them
/// all. It outlives each of them.
#[derive(Clone, Debug)]
pub struct WakeSignal(pub(crate) Arc<Wakeup>);

impl WakeSignal {
    /// A descriptor that is not readable yet.
    ///
    /// # Errors
    /// When the system is out of descriptors.
    pub fn new() -> Result<Self, IoError> {
        Ok(Self(Arc::new(Wakeup::new()?)))
    }
}

/// Two are equal when they are the same descriptor.
impl PartialEq for WakeSignal {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for WakeSignal {}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
