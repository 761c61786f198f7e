//! The native protocol at the door: who handles which frame.
//!
//! A frame goes straight to the stage of the shard that its header names; what is for the server
//! itself, or for a shard that is not here, goes to the node stage. The first frame of an accepted
//! connection must be `Hello`: whoever speaks something else (a browser, a redis client on the
//! wrong port) is told so and cut off.

use std::sync::{Arc, OnceLock};

use timestone_cluster::MapVersion;
use timestone_seda::{Break, ConnectionView, Generation, Protocol, Split, StageId};
use timestone_types::Epoch;
use timestone_wire::{
    Envelope, ErrorCode, ErrorReply, Frame, Frames, HEADER_BYTES, Hello, Kind, Message,
    frame_length,
};

use timestone_wire::strangers::{http_answer, is_http, is_resp};

/// The stage of every shard of the process, by id; gaps are the node stage. Set once, when the
/// server knows its shards: its address must be known before.
pub(crate) type ShardTable = Arc<OnceLock<Vec<StageId>>>;

/// Splits and routes frames of the native protocol.
pub(crate) struct NativeProtocol {
    node: StageId,
    shards: ShardTable,
    // By connection slot: which generation of it has said hello.
    greeted: Vec<Option<Generation>>,
}

impl NativeProtocol {
    /// What is not in `shards` goes to `node`.
    pub(crate) const fn new(node: StageId, shards: ShardTable) -> Self {
        Self { node, shards, greeted: Vec::new() }
    }

    fn has_greeted(&self, connection: &ConnectionView) -> bool {
        let slot = self.greeted.get(connection.reply_to.connection.index());
        slot.is_some_and(|generation| *generation == Some(connection.reply_to.generation))
    }

    fn greet(&mut self, connection: &ConnectionView) {
        let index = connection.reply_to.connection.index();
        if self.greeted.len() <= index {
            self.greeted.resize(index + 1, None);
        }
        self.greeted[index] = Some(connection.reply_to.generation);
    }
}

impl Protocol for NativeProtocol {
    #[inline]
    fn split(&mut self, connection: &ConnectionView, bytes: &[u8]) -> Split {
        let greeted = connection.dial.is_some() || self.has_greeted(connection);
        if !greeted && (is_http(bytes) || is_resp(bytes)) {
            // No frame begins so: read as its length, these letters are far above the bound.
            return Split::Broken;
        }
        let length = match if greeted { frame_length(bytes) } else { Hello::first_length(bytes) } {
            Ok(Some(length)) => length,
            Ok(None) => return Split::Incomplete { needed: HEADER_BYTES },
            Err(_) => return Split::Broken,
        };
        if bytes.len() < length {
            return Split::Incomplete { needed: length };
        }
        let (kind, flags) = (bytes[4], bytes[5]);
        if flags != 0 {
            // Of a later version, or garbage: whoever reads on would drop it without a word.
            return Split::Broken;
        }
        if !greeted {
            if kind != Kind::Hello as u8 {
                return Split::Broken;
            }
            self.greet(connection);
        }
        if let Some(owner) = connection.owner
            && connection.dial.is_some()
        {
            return Split::Frame { length, to: owner };
        }
        let to = match Kind::from_u8(kind) {
            None => return Split::Broken,
            Some(
                Kind::Hello
                | Kind::NodeStatus
                | Kind::MapPull
                | Kind::MapPush
                | Kind::MasterAsk
                | Kind::Heartbeat,
            ) => self.node,
            Some(_) => {
                let shard = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
                self.shards.get().and_then(|shards| shards.get(shard)).copied().unwrap_or(self.node)
            }
        };
        Split::Frame { length, to }
    }

    fn busy(&mut self, _connection: &ConnectionView, frame: &[u8], out: &mut Vec<u8>) -> bool {
        let Ok(frame) = Frame::parse(frame) else { return false };
        let error = ErrorReply::new(
            ErrorCode::Busy,
            "the shard has too many requests waiting; try again shortly",
        );
        let envelope = frame.reply_envelope(frame.envelope().epoch, frame.envelope().map_version);
        error.with_retry_after(timestone_shard::limits::BUSY_RETRY_AFTER).encode(&envelope, out);
        true
    }

    fn shed(&mut self, _connection: &ConnectionView, answers: &[u8], out: &mut Vec<u8>) -> bool {
        // Whole frames, as the shards wrote them. A value can be read again; what a write answers
        // cannot.
        for frame in Frames::new(answers) {
            let Ok(frame) = frame else { return false };
            if frame.kind() == Kind::Value {
                let error = ErrorReply::new(
                    ErrorCode::Busy,
                    "too many answers wait to be read on this connection",
                );
                error
                    .with_retry_after(timestone_shard::limits::UNREAD_RETRY_AFTER)
                    .encode(frame.envelope(), out);
            } else {
                out.extend_from_slice(frame.bytes());
            }
        }
        true
    }

    fn refuse(
        &mut self,
        _connection: &ConnectionView,
        reason: Break,
        rest: &[u8],
        out: &mut Vec<u8>,
    ) {
        if is_http(rest) {
            return out.extend_from_slice(&http_answer("Timestone's native protocol"));
        }
        if is_resp(rest) {
            return out.extend_from_slice(
                b"-ERR this port speaks Timestone's native protocol; Redis clients are served on \
                  another port, 7401 by default\r\n",
            );
        }
        let (code, words) = match reason {
            Break::Malformed => (
                ErrorCode::Malformed,
                "these bytes are no frame of Timestone's native protocol; the connection is closed"
                    .to_owned(),
            ),
            Break::TooLong { needed, bound } => (
                ErrorCode::Malformed,
                format!("a frame of {needed} bytes is longer than the {bound} that are allowed"),
            ),
            Break::TooManyConnections { bound } => (
                ErrorCode::Busy,
                format!(
                    "this server has {bound} connections already; close some, or use another server"
                ),
            ),
            Break::NoMemory { needed } => (
                ErrorCode::Busy,
                format!(
                    "this server has no memory for a frame of {needed} bytes at the moment; try \
                     again"
                ),
            ),
            Break::ShuttingDown => (
                ErrorCode::Unavailable,
                "this server is shutting down; use another one, or come back".to_owned(),
            ),
        };
        let envelope = Envelope {
            epoch: Epoch::ZERO,
            map_version: MapVersion::default(),
            ..Envelope::default()
        };
        ErrorReply::new(code, &words).encode(&envelope, out);
    }
}
