//! Where HTTP connections come from: bounded in number and in time, and served also when the process is short of descriptors.
//!
//! A peer has [`HTTP_PATIENCE`] from the beginning of its connection, or from the last answer, to send its next request; however slowly its
//! headers come, then it is closed. One descriptor is kept in reserve: health checks are answered when clients have taken all others.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::limits::{HTTP_ACCEPT_PAUSE, HTTP_PATIENCE, MAX_HTTP_CONNECTIONS};

/// A listener with these bounds.
pub(crate) struct BoundedListener {
    listener: TcpListener,
    places: Arc<Semaphore>,
    reserve: Option<File>,
}

impl BoundedListener {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(MAX_HTTP_CONNECTIONS)), reserve: spare() }
    }
}

/// A descriptor that can be given up.
fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

impl Listener for BoundedListener {
    type Io = BoundedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let place = Arc::clone(&self.places).acquire_owned().await.ok();
            self.reserve = self.reserve.take().or_else(spare);
            match self.listener.accept().await {
                Ok((stream, peer)) => return (BoundedStream::new(stream, place), peer),
                // Without the reserve the next attempt succeeds; it is taken again when a descriptor is free.
                Err(_) if self.reserve.take().is_some() => {
                    if let Ok((stream, peer)) = self.listener.accept().await {
                        return (BoundedStream::new(stream, place), peer);
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
    stream: TcpStream,
    over: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl BoundedStream {
    fn new(stream: TcpStream, place: Option<OwnedSemaphorePermit>) -> Self {
        Self { stream, over: Box::pin(sleep(HTTP_PATIENCE)), _place: place }
    }

    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        self.over.as_mut().poll(context).is_ready()
    }
}

fn too_slow<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
}

impl AsyncRead for BoundedStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.is_over(context) {
            return too_slow();
        }
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        match written {
            // The peer takes its answer; its time for the next request begins anew.
            Poll::Ready(_) => self.over.set(sleep_until(Instant::now() + HTTP_PATIENCE)),
            Poll::Pending if self.is_over(context) => return too_slow(),
            Poll::Pending => {}
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
