//! Where HTTP connections come from: bounded in number and in time, and served also when the
//! process is short of descriptors.
//!
//! A peer has [`HTTP_IDLE_TIMEOUT`] from the beginning of its connection, or from the last answer, to
//! send its next request; however slowly its headers come, then it is closed. One descriptor is
//! kept in reserve: health checks are answered when clients have taken all others.
//!
//! ```text
//!   no descriptor is free ─► the reserve is closed, and its number accepts a connection ─► that ends: its number is the reserve again
//! ```
//! The number is free for a moment only, between a reserve that is given up for a connection that
//! waits and the accepting of that: while clients wait for descriptors, another listener of the
//! process would take it, and no health check would be answered any more.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::serve::Listener;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::limits::{HTTP_ACCEPT_PAUSE, HTTP_IDLE_TIMEOUT, MAX_HTTP_CONNECTIONS};

/// A listener with these bounds.
pub(crate) struct BoundedListener {
    listener: TcpListener,
    places: Arc<Semaphore>,
    reserve: Arc<Reserve>,
}

impl BoundedListener {
    pub(crate) fn new(listener: TcpListener) -> Self {
        let reserve = Reserve { null: null(), spare: Mutex::new(null()) };
        Self {
            listener,
            places: Arc::new(Semaphore::new(MAX_HTTP_CONNECTIONS)),
            reserve: Arc::new(reserve),
        }
    }
}

/// A descriptor that can be given up.
struct Reserve {
    /// What stands in its place: no file of anybody's.
    null: Option<OwnedFd>,
    spare: Mutex<Option<OwnedFd>>,
}

fn null() -> Option<OwnedFd> {
    File::open("/dev/null").ok().map(OwnedFd::from)
}

impl Reserve {
    /// Gives the descriptor up; whether there was one.
    fn give_up(&self) -> bool {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }

    /// Takes one again that is free, unless there is one.
    fn refill(&self) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.is_none() {
            *spare = null();
        }
    }

    /// Ends a connection; its descriptor becomes the reserve, if there is none.
    fn end(&self, stream: TcpStream) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.is_none()
            && let Some(null) = &self.null
            && let Ok(stream) = stream.into_std()
        {
            let mut descriptor = OwnedFd::from(stream);
            // The connection is closed by it, and its number is not free for a moment.
            if rustix::io::dup3(null, &mut descriptor, rustix::io::DupFlags::CLOEXEC).is_ok() {
                *spare = Some(descriptor);
            }
        }
    }
}

/// Whether a connection waits to be accepted.
fn is_waited_for(listener: &TcpListener) -> bool {
    let mut looked = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut looked, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

impl Listener for BoundedListener {
    type Io = BoundedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let place = Arc::clone(&self.places).acquire_owned().await.ok();
            self.reserve.refill();
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    return (BoundedStream::new(stream, place, &self.reserve), peer);
                }
                // Without the reserve the next attempt succeeds. The system says that it lacks a
                // descriptor also when nobody waits: given up then, the number would be free for
                // others until somebody comes.
                Err(_) if is_waited_for(&self.listener) && self.reserve.give_up() => {
                    if let Ok((stream, peer)) = self.listener.accept().await {
                        return (BoundedStream::new(stream, place, &self.reserve), peer);
                    }
                }
                Err(_) => sleep(HTTP_ACCEPT_PAUSE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A connection that waits for its peer only for a while.
pub(crate) struct BoundedStream {
    /// There until it is dropped.
    stream: Option<TcpStream>,
    over: Pin<Box<Sleep>>,
    reserve: Arc<Reserve>,
    _place: Option<OwnedSemaphorePermit>,
}

impl BoundedStream {
    fn new(stream: TcpStream, place: Option<OwnedSemaphorePermit>, reserve: &Arc<Reserve>) -> Self {
        let over = Box::pin(sleep(HTTP_IDLE_TIMEOUT));
        Self { stream: Some(stream), over, reserve: Arc::clone(reserve), _place: place }
    }

    fn stream(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        self.over.as_mut().poll(context).is_ready()
    }
}

impl Drop for BoundedStream {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.reserve.end(stream);
        }
    }
}

fn too_slow<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
}

impl AsyncRead for BoundedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_over(context) {
            return too_slow();
        }
        self.stream()?.poll_read(context, into)
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream()?.poll_write(context, bytes);
        match written {
            // The peer takes its answer; its time for the next request begins anew.
            Poll::Ready(_) => self.over.set(sleep_until(Instant::now() + HTTP_IDLE_TIMEOUT)),
            Poll::Pending if self.is_over(context) => return too_slow(),
            Poll::Pending => {}
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(context)
    }
}
