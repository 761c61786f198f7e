//! Readiness: which sockets and event descriptors have something to say. A thin face over mio
//! (epoll).
//!
//! Registrations are **edge-triggered**: after an event, read or write until `WouldBlock`. A
//! [`wake_fd`](crate::IoEngine::wake_fd) of an engine needs no reading at all: each signal is an
//! edge of its own.
//!
//! What is deliberately absent: ownership of sockets, timers, and any reaction to an event.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

pub use mio::Interest;
use mio::event::Source;

use crate::error::IoError;

/// Chosen by whoever registers, returned with every event of that source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PollToken(pub usize);

/// One source's readiness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readiness {
    /// Whose.
    pub token: PollToken,
    /// There may be something to read (or a connection to accept, or the peer closed).
    pub readable: bool,
    /// There may be room to write (or a connection attempt ended).
    pub writable: bool,
    /// The peer has closed its sending side or the whole connection: what is still buffered can be
    /// read.
    pub closed: bool,
    /// The source is in an error state; the next call on it says which.
    pub error: bool,
}

/// Room for the events of one [`Poller::poll`], reused from call to call.
#[derive(Debug)]
pub struct PollEvents {
    events: mio::Events,
}

impl PollEvents {
    /// Room for `capacity` events a call; what does not fit comes with the next call.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { events: mio::Events::with_capacity(capacity.max(1)) }
    }

    /// The events of the last poll.
    pub fn iter(&self) -> impl Iterator<Item = Readiness> + '_ {
        self.events.iter().map(|event| Readiness {
            token: PollToken(event.token().0),
            readable: event.is_readable(),
            writable: event.is_writable(),
            closed: event.is_read_closed() || event.is_write_closed(),
            error: event.is_error(),
        })
    }

    /// Whether the last poll found nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

/// Wakes the thread that blocks in [`Poller::poll`], from any other thread. Wakes that arrive
/// before it blocks are kept.
#[derive(Clone, Debug)]
pub struct Waker {
    waker: Arc<mio::Waker>,
}

impl Waker {
    /// Makes the current or next poll return with the waker's token.
    ///
    /// # Errors
    /// When the kernel refuses the write, which it does not while the poller exists.
    pub fn wake(&self) -> io::Result<()> {
        self.waker.wake()
    }
}

/// Waits for readiness of everything registered with it.
#[derive(Debug)]
pub struct Poller {
    poll: mio::Poll,
}

impl Poller {
    /// A poller with nothing registered.
    ///
    /// # Errors
    /// When the system is out of descriptors.
    pub fn new() -> Result<Self, IoError> {
        let poll = mio::Poll::new()
            .map_err(|source| IoError::System { action: "create a poller", source })?;
        Ok(Self { poll })
    }

    /// Starts to watch a mio source (`mio::net::{TcpListener, TcpStream, UdpSocket}` and the like).
    ///
    /// # Errors
    /// When the source is already registered or cannot be polled.
    pub fn register(
        &self,
        source: &mut impl Source,
        token: PollToken,
        interest: Interest,
    ) -> Result<(), IoError> {
        self.poll.registry().register(source, mio::Token(token.0), interest).map_err(registering)
    }

    /// Changes what is watched of a source, and re-arms it: readiness that exists now is reported
    /// again.
    ///
    /// # Errors
    /// When the source is not registered.
    pub fn reregister(
        &self,
        source: &mut impl Source,
        token: PollToken,
        interest: Interest,
    ) -> Result<(), IoError> {
        self.poll.registry().reregister(source, mio::Token(token.0), interest).map_err(registering)
    }

    /// Stops watching a source. Needed before it is handed to another poller; closing it suffices
    /// otherwise.
    ///
    /// # Errors
    /// When the source is not registered.
    pub fn deregister(&self, source: &mut impl Source) -> Result<(), IoError> {
        self.poll.registry().deregister(source).map_err(registering)
    }

    /// Starts to watch a raw descriptor for reading, for example an engine's wake descriptor. The
    /// caller keeps it open.
    ///
    /// # Errors
    /// When the descriptor is already registered or cannot be polled.
    pub fn register_fd(
        &self,
        fd: BorrowedFd<'_>,
        token: PollToken,
        interest: Interest,
    ) -> Result<(), IoError> {
        self.register(&mut mio::unix::SourceFd(&fd.as_raw_fd()), token, interest)
    }

    /// A waker for other threads. At most one per poller; clone it.
    ///
    /// # Errors
    /// When the system is out of descriptors.
    pub fn waker(&self, token: PollToken) -> Result<Waker, IoError> {
        let waker = mio::Waker::new(self.poll.registry(), mio::Token(token.0))
            .map_err(|source| IoError::System { action: "create a waker", source })?;
        Ok(Waker { waker: Arc::new(waker) })
    }

    /// Blocks until something is ready or `timeout` has passed (`None`: for ever; zero: not at
    /// all), and replaces the content of `events`. A signal, or the kernel's own interruption on
    /// behalf of io_uring, ends the wait early and without events.
    ///
    /// # Errors
    /// When the poller itself is broken.
    pub fn poll(
        &mut self,
        events: &mut PollEvents,
        timeout: Option<Duration>,
    ) -> Result<(), IoError> {
        match self.poll.poll(&mut events.events, timeout) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                events.events.clear();
                Ok(())
            }
            Err(source) => Err(IoError::System { action: "poll for readiness", source }),
        }
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poll.registry().as_fd()
    }
}

fn registering(source: io::Error) -> IoError {
    IoError::System { action: "change what a poller watches", source }
}
