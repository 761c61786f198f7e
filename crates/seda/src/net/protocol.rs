//! How bytes become frames, and how stages and net stages talk: the vocabulary of
//! [`crate::NetStage`].
//!
//! seda knows neither the messages nor the event enum of its user: a [`Protocol`] splits bytes and
//! words refusals, a [`FrameBatchEvent`] wraps what the net stage says into the user's events, and
//! unwraps what it is told.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::{FrameBatch, ReplyAddress, StageId};

/// What a dial is called by the stage that asked for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DialId(u64);

impl DialId {
    /// The dial with this number, chosen by the asker.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// What a protocol may know of a connection when it splits its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionView {
    /// The connection.
    pub reply_to: ReplyAddress,
    /// The other end.
    pub peer: SocketAddr,
    /// By which dial it was opened; none when it was accepted.
    pub dial: Option<DialId>,
    /// The stage that is told of its opening and closing, if any.
    pub owner: Option<StageId>,
}

/// What stands at the beginning of some received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// A whole frame of `length` bytes (at least 1, at most all of them) for stage `to`. A protocol
    /// without frames passes everything.
    Frame {
        /// Bytes of the frame.
        length: usize,
        /// Who handles it.
        to: StageId,
    },
    /// Not yet a whole frame; it will have `needed` bytes in total, as far as is known (more than
    /// there are).
    Incomplete {
        /// Bytes of the whole frame, or of what must be seen to know.
        needed: usize,
    },
    /// No frame of this protocol: the connection is answered by [`Protocol::refuse`] and closed.
    Broken,
}

/// Why a connection is refused or ended by this side, for the words of [`Protocol::refuse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// [`Split::Broken`].
    Malformed,
    /// A frame of this many bytes is longer than this bound.
    TooLong {
        /// Bytes that the frame would have.
        needed: usize,
        /// Bytes that it may have.
        bound: usize,
    },
    /// There are this many connections already.
    TooManyConnections {
        /// Most connections of the net stage.
        bound: usize,
    },
    /// The server is shutting down.
    ShuttingDown,
    /// There is no memory for a frame of this many bytes.
    NoMemory {
        /// Bytes that the frame has.
        needed: usize,
    },
}

/// Splits received bytes into frames and words refusals. One per net stage; called on its thread
/// only; never blocks.
pub trait Protocol: Send + 'static {
    /// What stands at the beginning of `bytes` (never empty). Called again with the rest after each
    /// frame.
    fn split(&mut self, connection: &ConnectionView, bytes: &[u8]) -> Split;

    /// Appends the answer to `frame`, refused because its stage has too much to do. `false`: this
    /// protocol cannot say so; then the connection is not read from until there is room.
    fn busy(&mut self, connection: &ConnectionView, frame: &[u8], out: &mut Vec<u8>) -> bool;

    /// Appends `answers` with those that may be asked for again replaced by "busy", because the
    /// peer does not read what it is owed. `false`: this protocol cannot, and they are all kept.
    fn shed(&mut self, connection: &ConnectionView, answers: &[u8], out: &mut Vec<u8>) -> bool {
        let _ = (connection, answers, out);
        false
    }

    /// Appends the last words to a connection that is closed for `reason`; nothing, if the protocol
    /// has none. `rest` is what could not be split.
    fn refuse(
        &mut self,
        connection: &ConnectionView,
        reason: Break,
        rest: &[u8],
        out: &mut Vec<u8>,
    );
}

/// Why a connection ended.
#[derive(Debug)]
pub enum DisconnectReason {
    /// The peer closed it.
    Closed,
    /// It broke the protocol, or sent too long a frame, and was told so.
    Broken(Break),
    /// This side asked for it with [`NetCommand::Close`].
    Asked,
    /// The peer has taken nothing of what waits for it, or sent nothing of a long frame, for
    /// [`crate::limits::STALL_LIMIT`].
    Stalled,
    /// The operating system reported an error: reset, timed out, unreachable.
    Failed(io::Error),
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("its bytes do not follow the protocol"),
            Self::TooLong { needed, bound } => {
                write!(f, "a frame of {needed} bytes is longer than {bound}")
            }
            Self::TooManyConnections { bound } => {
                write!(f, "there are {bound} connections already")
            }
            Self::ShuttingDown => f.write_str("the server is shutting down"),
            Self::NoMemory { needed } => {
                write!(f, "there was no memory for a frame of {needed} bytes")
            }
        }
    }
}

impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the other end closed it"),
            Self::Broken(reason) => write!(f, "{reason}"),
            Self::Asked => f.write_str("it was closed here"),
            Self::Stalled => {
                f.write_str("the other end neither read nor sent anything for too long")
            }
            Self::Failed(error) => write!(f, "{error}"),
        }
    }
}

/// What a net stage tells other stages.
#[derive(Debug)]
pub enum NetEvent {
    /// Frames that arrived.
    FrameBatch(FrameBatch),
    /// A connection is open: accepted, or dialled.
    Connected(ConnectionView),
    /// The peer will send nothing more, and still takes answers: [`NetCommand::Close`] it once they
    /// are sent. If nobody does, the net stage closes it [`crate::limits::HALF_CLOSE_LINGER`] after
    /// the last answer.
    HalfClosed(ReplyAddress),
    /// So many bytes of what was sent to a connection are written, beside those told before. Only
    /// where [`super::NetConfig::reports_written`] is set, in steps of at least
    /// [`crate::limits::WRITTEN_REPORT_BYTES`].
    Written {
        /// The connection.
        reply_to: ReplyAddress,
        /// Bytes.
        bytes: usize,
    },
    /// It is gone, after everything that it sent was delivered; what is sent to it from now on is
    /// dropped.
    Disconnected {
        /// The connection.
        reply_to: ReplyAddress,
        /// By which dial it was opened; none when it was accepted.
        dial: Option<DialId>,
        /// Why.
        reason: DisconnectReason,
    },
    /// A dial came to nothing.
    DialFailed {
        /// The dial.
        dial: DialId,
        /// The address that was dialled.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
}

/// What other stages tell a net stage.
#[derive(Debug)]
pub enum NetCommand {
    /// Write these bytes to the connection `reply_to`; dropped when it is gone.
    Send(FrameBatch),
    /// Open a connection; `owner` is told what becomes of it, and is named to the protocol.
    Dial {
        /// Its name in the answers.
        dial: DialId,
        /// Where to.
        address: SocketAddr,
        /// Who wants to know.
        owner: StageId,
    },
    /// Close a connection, once everything sent to it so far is written.
    Close(ReplyAddress),
    /// Read nothing more from a connection, so that what its peer sends waits in its socket, until
    /// it is resumed.
    Pause(ReplyAddress),
    /// Read on.
    Resume(ReplyAddress),
    /// Close a connection at once, dropping what is not written.
    Abort(ReplyAddress),
    /// Take over a connection that another net stage accepted.
    Adopt {
        /// The socket, not registered with any poller.
        stream: super::Stream,
        /// The other end.
        peer: SocketAddr,
    },
}

/// How the user's events carry what net stages say and are told.
pub trait FrameBatchEvent: Sized + Send + 'static {
    /// Wraps what a net stage says.
    fn from_net(event: NetEvent) -> Self;

    /// Wraps a command to a net stage (net stages hand accepted connections to each other).
    fn from_command(command: NetCommand) -> Self;

    /// Unwraps a command; any other event sent to a net stage is given back, and is a mistake of
    /// the sender.
    ///
    /// # Errors
    /// The event itself, if it is no command.
    fn into_command(self) -> Result<NetCommand, Self>;
}
