//! Where connections come from: the operating system's TCP, or whatever else a [`Network`] hands
//! out.
//!
//! A net stage speaks to a [`Stream`] as it would to a socket that does not block: partial reads
//! and writes, "would block", ends and resets, readiness on edges. The simulator's network hands
//! out streams of its own, so that the same stage runs on it. What is deliberately absent: anything
//! but byte streams.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};

use mio::Interest;

use crate::limits::{KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES};
use crate::{IoRegistry, StageId};

/// Hands out listeners and streams.
pub trait Network: Send + Sync + fmt::Debug {
    /// A listener on `address`; port 0 asks for any.
    ///
    /// # Errors
    /// The address is taken or not ours.
    fn listen(&self, address: SocketAddr) -> io::Result<Listener>;

    /// Begins to connect; the stream becomes writable when that has succeeded or failed.
    ///
    /// # Errors
    /// It cannot even begin.
    fn connect(&self, address: SocketAddr) -> io::Result<Stream>;
}

/// The operating system's TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

impl Network for Tcp {
    fn listen(&self, address: SocketAddr) -> io::Result<Listener> {
        mio::net::TcpListener::bind(address).map(Listener::Tcp)
    }

    fn connect(&self, address: SocketAddr) -> io::Result<Stream> {
        mio::net::TcpStream::connect(address).map(Stream::Tcp)
    }
}

/// Where a socket that is not the operating system's reports its readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageSlot {
    /// The stage.
    pub stage: StageId,
    /// Its token for the socket.
    pub token: u64,
}

/// A byte stream that is not the operating system's. Reads and writes never block.
pub trait StreamSocket: Read + Write + Send + fmt::Debug {
    /// Reports readiness to `slot` from now on, edge-triggered; what is ready already is reported
    /// as well.
    fn register(&mut self, slot: StageSlot);

    /// Reports nothing more.
    fn deregister(&mut self);

    /// How connecting went.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotConnected`] while it is not decided, else why it failed.
    fn connected(&self) -> io::Result<()>;

    /// Nothing more will be written.
    ///
    /// # Errors
    /// The stream is gone.
    fn shut_write(&mut self) -> io::Result<()>;
}

/// A listener that is not the operating system's.
pub trait ListenerSocket: Send + fmt::Debug {
    /// Where it listens.
    fn local_address(&self) -> SocketAddr;

    /// Reports readiness to `slot` from now on, edge-triggered; what is ready already is reported
    /// as well.
    fn register(&mut self, slot: StageSlot);

    /// Reports nothing more.
    fn deregister(&mut self);

    /// The next connection.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when nobody waits.
    fn accept(&mut self) -> io::Result<(Stream, SocketAddr)>;
}

/// A connection's bytes.
#[derive(Debug)]
pub enum Stream {
    /// The operating system's.
    Tcp(mio::net::TcpStream),
    /// Another one.
    Given(Box<dyn StreamSocket>),
}

impl Stream {
    pub(crate) fn register(&mut self, io: &IoRegistry<'_>, token: u64) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                io.register(stream, token, Interest::READABLE | Interest::WRITABLE)
            }
            Self::Given(stream) => {
                stream.register(StageSlot { stage: io.stage(), token });
                Ok(())
            }
        }
    }

    pub(crate) fn deregister(&mut self, io: &IoRegistry<'_>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => io.deregister(stream),
            Self::Given(stream) => {
                stream.deregister();
                Ok(())
            }
        }
    }

    /// How connecting went; an error of the kind "not connected" when that is not decided.
    pub(crate) fn connected(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => match stream.take_error() {
                Ok(None) => stream.peer_addr().map(|_| ()),
                Ok(Some(error)) | Err(error) => Err(error),
            },
            Self::Given(stream) => stream.connected(),
        }
    }

    pub(crate) fn set_nodelay(&self) -> io::Result<()> {
        if let Self::Tcp(stream) = self { stream.set_nodelay(true) } else { Ok(()) }
    }

    /// Lets the operating system find out when the other end is gone without a word.
    pub(crate) fn keep_alive(&self) -> io::Result<()> {
        use rustix::net::sockopt;
        let Self::Tcp(stream) = self else { return Ok(()) };
        sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
        Ok(sockopt::set_socket_keepalive(stream, true)?)
    }

    pub(crate) fn shut_write(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Given(stream) => stream.shut_write(),
        }
    }
}

impl Read for Stream {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Given(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Given(stream) => stream.write(bytes),
        }
    }

    #[inline]
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_vectored(slices),
            Self::Given(stream) => stream.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where connections arrive.
#[derive(Debug)]
pub enum Listener {
    /// The operating system's.
    Tcp(mio::net::TcpListener),
    /// Another one.
    Given(Box<dyn ListenerSocket>),
}

impl Listener {
    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr(),
            Self::Given(listener) => Ok(listener.local_address()),
        }
    }

    pub(crate) fn register(&mut self, io: &IoRegistry<'_>, token: u64) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => io.register(listener, token, Interest::READABLE),
            Self::Given(listener) => {
                listener.register(StageSlot { stage: io.stage(), token });
                Ok(())
            }
        }
    }

    pub(crate) fn deregister(&mut self, io: &IoRegistry<'_>) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => io.deregister(listener),
            Self::Given(listener) => {
                listener.deregister();
                Ok(())
            }
        }
    }

    pub(crate) fn accept(&mut self) -> io::Result<(Stream, SocketAddr)> {
        match self {
            Self::Tcp(listener) => {
                listener.accept().map(|(stream, peer)| (Stream::Tcp(stream), peer))
            }
            Self::Given(listener) => listener.accept(),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt;

    use super::*;

    #[test]
    fn the_operating_system_looks_after_connections_that_are_silent() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = Tcp.connect(listener.local_addr().unwrap()).unwrap();
        let Stream::Tcp(socket) = &stream else { unreachable!("it is the system's") };
        assert!(!sockopt::socket_keepalive(socket).unwrap());
        stream.keep_alive().unwrap();
        assert!(sockopt::socket_keepalive(socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(socket).unwrap(), KEEPALIVE_IDLE);
        assert_eq!(sockopt::tcp_keepintvl(socket).unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(socket).unwrap(), KEEPALIVE_PROBES);
    }
}
