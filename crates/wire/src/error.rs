//! Why bytes are not a message.

use thiserror::Error;

use crate::hello::ProtocolVersion;

/// Why bytes from a peer were not understood. The connection they came from cannot be trusted
/// further and is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum WireError {
    /// A frame announces a length that no frame has: most likely the peer does not speak this
    /// protocol.
    #[error(
        "a frame announces {length} bytes, frames have {least} to {most}: the peer does not speak \
         Timestone's native protocol (Redis clients use the RESP port)"
    )]
    FrameLength {
        /// The announced length.
        length: u32,
        /// The shortest frame.
        least: u32,
        /// The longest frame.
        most: u32,
    },
    /// A frame's kind has no meaning in this version.
    #[error(
        "a frame has the unknown kind {0}: the peer speaks another version, update the older side"
    )]
    UnknownKind(u8),
    /// A frame of one kind was decoded as another.
    #[error(
        "a frame has kind {found}, expected was kind {expected}: the peer answered something that \
         was not asked"
    )]
    WrongKind {
        /// The kind that the caller can use here.
        expected: u8,
        /// The kind of the frame.
        found: u8,
    },
    /// A frame ends before its message does.
    #[error(
        "a frame of kind {kind} ends before its message does: it is damaged, or the peer is broken"
    )]
    Truncated {
        /// The frame's kind.
        kind: u8,
    },
    /// A frame goes on after its message.
    #[error(
        "a frame of kind {kind} goes on after its message: it is damaged, or the peer is broken"
    )]
    Trailing {
        /// The frame's kind.
        kind: u8,
    },
    /// A field has a value that it cannot have.
    #[error(
        "{field} has a value without a meaning: the frame is damaged, or the peer speaks another \
         version"
    )]
    BadField {
        /// The field.
        field: &'static str,
    },
    /// Something is longer than its bound.
    #[error("{what}: {length} given, at most {limit} possible")]
    TooLong {
        /// What is bounded, with its unit.
        what: &'static str,
        /// How long it is.
        length: u64,
        /// The bound.
        limit: u64,
    },
    /// The two sides share no version of the protocol.
    #[error(
        "the peer speaks protocol {theirs_least} to {theirs_most}, this program {ours_least} to \
         {ours_most}: update the older side"
    )]
    Version {
        /// The peer's lowest version.
        theirs_least: ProtocolVersion,
        /// The peer's highest version.
        theirs_most: ProtocolVersion,
        /// Our lowest version.
        ours_least: ProtocolVersion,
        /// Our highest version.
        ours_most: ProtocolVersion,
    },
    /// The connection's first message is not a hello.
    #[error(
        "the connection does not begin with a hello: the peer does not speak Timestone's native \
         protocol"
    )]
    NotHello,
}
