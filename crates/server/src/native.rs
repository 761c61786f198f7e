//! The native protocol at the door: who handles which frame.
//!
//! A frame goes straight to the stage of the shard that its header names; what is for the server
//! itself, or for a shard that is not here, goes to the node stage. The first frame of an accepted
//! connection must be `Hello`: whoever speaks something else (a browser, a redis client on the
//! wrong port) is told so and cut off. So is who has not greeted as a server, and sends what only
//! servers do; and whoever was not asked, and answers as a peer does.

use std::sync::{Arc, OnceLock};

use timestone_cluster::MapVersion;
use timestone_seda::{Break, ConnectionView, Generation, Protocol, Split, StageId};
use timestone_types::Epoch;
use timestone_wire::{
    Envelope, ErrorCode, ErrorReply, Frame, Frames, HEADER_BYTES, Hello, Kind, Message, Role,
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
    // By connection slot: which generation of it has said hello, and whether as a server.
    greeted: Vec<Option<(Generation, bool)>>,
}

impl NativeProtocol {
    /// What is not in `shards` goes to `node`.
    pub(crate) const fn new(node: StageId, shards: ShardTable) -> Self {
        Self { node, shards, greeted: Vec::new() }
    }

    /// Whether who has greeted is a server; `None` before the hello.
    fn greeted_as_server(&self, connection: &ConnectionView) -> Option<bool> {
        let slot = self.greeted.get(connection.reply_to.connection.index());
        let (generation, is_server) = slot.copied().flatten()?;
        (generation == connection.reply_to.generation).then_some(is_server)
    }

    /// Notes who greets. A hello that cannot be read is the node's to refuse.
    fn greet(&mut self, connection: &ConnectionView, frame: &[u8]) {
        let hello = Frame::parse(frame).and_then(|frame| Hello::first(&frame));
        let is_server = hello.is_ok_and(|hello| hello.role == Role::Server);
        let index = connection.reply_to.connection.index();
        if self.greeted.len() <= index {
            self.greeted.resize(index + 1, None);
        }
        self.greeted[index] = Some((connection.reply_to.generation, is_server));
    }
}

impl Protocol for NativeProtocol {
    #[inline]
    fn split(&mut self, connection: &ConnectionView, bytes: &[u8]) -> Split {
        let role = self.greeted_as_server(connection);
        let greeted = connection.dial.is_some() || role.is_some();
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
            self.greet(connection, &bytes[..length]);
        }
        if let Some(owner) = connection.owner
            && connection.dial.is_some()
        {
            return Split::Frame { length, to: owner };
        }
        let to = match Kind::from_u8(kind) {
            None => return Split::Broken,
            // What only servers tell each other: a client that sends it has lost its way.
            Some(Kind::Heartbeat | Kind::ReplicaAsk | Kind::CheckpointAsk | Kind::ClosedAsk)
                if connection.dial.is_none() && role != Some(true) =>
            {
                return Split::Broken;
            }
            // What peers answer comes over the connection that this server has dialled to ask: from
            // anybody else it is made up, and would end somebody's transaction.
            Some(Kind::FreezeAnswer | Kind::StatusIs | Kind::DecideAck)
                if !timestone_types::is_planted!(TakesAnswersOfAnybody) =>
            {
                return Split::Broken;
            }
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
        // Whole frames, as the shards wrote them. A value or a page can be read again; what a write
        // answers cannot.
        let is_page = |kind| matches!(kind, Kind::ScanPage | Kind::RangePage);
        let is_page = |kind| is_page(kind) && !timestone_types::is_planted!(UncountedPages);
        for frame in Frames::new(answers) {
            let Ok(frame) = frame else { return false };
            if frame.kind() == Kind::Value || is_page(frame.kind()) {
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

#[cfg(test)]
mod tests {
    use timestone_seda::{ConnectionId, DialId, ReplyAddress};
    use timestone_types::{ClientId, ClusterId, Expiry, TxnId, Version};
    use timestone_wire::{
        CheckpointAsk, DecideAck, FreezeAnswer, Heartbeat, NodeStatus, RangePageWriter, ScanEntry,
        ScanPageWriter, StatusIs, TxnState, Value,
    };

    use super::*;

    const NODE: StageId = StageId::new(0);
    const SHARD: StageId = StageId::new(1);

    fn view(connection: u32, dial: Option<DialId>) -> ConnectionView {
        let reply_to = ReplyAddress {
            stage: StageId::new(9),
            connection: ConnectionId::new(connection),
            generation: Generation::new(1),
        };
        let owner = dial.map(|_| NODE);
        ConnectionView { reply_to, peer: "127.0.0.1:7400".parse().unwrap(), dial, owner }
    }

    fn hello(role: Role) -> Vec<u8> {
        let mut bytes = Vec::new();
        Hello::new(role, ClusterId::ZERO, ClientId::ZERO, "")
            .encode(&Envelope::default(), &mut bytes);
        bytes
    }

    /// A heartbeat, an ask of a replica, and an ask for a checkpoint.
    fn of_servers() -> [Vec<u8>; 3] {
        let mut frames = [Vec::new(), Vec::new(), Vec::new()];
        Heartbeat { beat: &[] }.encode(&Envelope::default(), &mut frames[0]);
        let from = timestone_cluster::ServerId::new(2);
        CheckpointAsk { from, after: &[] }.encode(&Envelope::default(), &mut frames[1]);
        frames[2] = frames[1].clone();
        frames[2][4] = Kind::ReplicaAsk as u8;
        frames
    }

    /// What a peer answers that was asked how a transaction ended, or told of it.
    fn of_peers() -> [Vec<u8>; 3] {
        let (txn, state) = (TxnId::default(), TxnState::Aborted);
        let mut frames = [Vec::new(), Vec::new(), Vec::new()];
        FreezeAnswer { txn, state }.encode(&Envelope::default(), &mut frames[0]);
        StatusIs { txn, state }.encode(&Envelope::default(), &mut frames[1]);
        DecideAck { txn }.encode(&Envelope::default(), &mut frames[2]);
        frames
    }

    /// How many of a peer's answers come through from whoever greets, and was not asked.
    fn made_up_answers_that_come_through() -> usize {
        let mut protocol = protocol();
        let mut through = 0;
        for (connection, role) in (0..).zip([Role::Client, Role::Tool, Role::Server]) {
            let view = view(connection, None);
            protocol.split(&view, &hello(role));
            let frames = of_peers();
            let splits = frames.iter().map(|frame| protocol.split(&view, frame));
            through += splits.filter(|split| *split != Split::Broken).count();
        }
        through
    }

    #[test]
    fn what_peers_answer_is_taken_from_those_alone_that_were_dialled() {
        assert_eq!(made_up_answers_that_come_through(), 0);
        let mut protocol = protocol();
        let view = view(5, Some(DialId::new(1)));
        for frame in of_peers() {
            let length = frame.len();
            assert_eq!(protocol.split(&view, &frame), Split::Frame { length, to: NODE });
        }
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn an_answer_that_is_taken_from_anybody_is_found() {
        use timestone_types::planted::{Bug, with};
        let through = with(Bug::TakesAnswersOfAnybody, made_up_answers_that_come_through);
        assert_eq!(through, 9, "the planted bug is found");
    }

    /// What is left of answers to a connection that is owed too much.
    fn shed() -> Vec<Kind> {
        let (envelope, mut answers, mut out) = (Envelope::default(), Vec::new(), Vec::new());
        let (version, expires_at) = (Version::ZERO, Expiry::NEVER);
        Value { version, expires_at, prepared_before: false, present: true, value: b"value" }
            .encode(&envelope, &mut answers);
        let entry = ScanEntry { version, expires_at, key: b"key", value: b"" };
        let mut page = RangePageWriter::begin(&envelope, Some(&b"next"[..]), &mut answers);
        assert!(page.push(&entry));
        page.finish();
        let mut page = ScanPageWriter::begin(&envelope, &mut answers);
        assert!(page.push(&entry));
        page.finish(7, false);
        DecideAck { txn: TxnId::default() }.encode(&envelope, &mut answers);
        assert!(protocol().shed(&view(1, None), &answers, &mut out));
        let frames = Frames::new(&out).map(|frame| {
            let frame = frame.unwrap();
            if let Ok(error) = ErrorReply::decode(&frame) {
                assert_eq!(error.code, ErrorCode::Busy);
                assert!(error.retry_after().is_some(), "it says when to ask again");
            }
            frame.kind()
        });
        frames.collect()
    }

    #[test]
    fn what_can_be_read_again_is_not_kept_for_a_connection_that_does_not_read() {
        let busy = Kind::ErrorReply;
        assert_eq!(shed(), [busy, busy, busy, Kind::DecideAck]);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_page_that_is_kept_for_a_connection_that_does_not_read_is_found() {
        use timestone_types::planted::{Bug, with};
        let pages = [Kind::RangePage, Kind::ScanPage];
        assert_eq!(with(Bug::UncountedPages, shed)[1..3], pages);
    }

    fn protocol() -> NativeProtocol {
        let shards = ShardTable::default();
        shards.set(vec![SHARD]).unwrap();
        NativeProtocol::new(NODE, shards)
    }

    #[test]
    fn what_only_servers_say_is_taken_from_those_alone_that_greeted_as_servers() {
        let mut protocol = protocol();
        for (connection, role) in (0..).zip([Role::Client, Role::Tool, Role::Server]) {
            let view = view(connection, None);
            let greeting = hello(role);
            let length = greeting.len();
            assert_eq!(protocol.split(&view, &greeting), Split::Frame { length, to: NODE });
            for (frame, to) in of_servers().iter().zip([NODE, SHARD, SHARD]) {
                let taken = Split::Frame { length: frame.len(), to };
                let expected = if role == Role::Server { taken } else { Split::Broken };
                assert_eq!(protocol.split(&view, frame), expected, "{role:?}: {}", frame[4]);
            }
            let mut status = Vec::new();
            NodeStatus {}.encode(&Envelope::default(), &mut status);
            let length = status.len();
            assert_eq!(protocol.split(&view, &status), Split::Frame { length, to: NODE });
        }
        // The next connection in a server's slot is nobody yet.
        let mut next = view(2, None);
        next.reply_to.generation = Generation::new(2);
        assert_eq!(protocol.split(&next, &of_servers()[0]), Split::Broken);
        protocol.split(&next, &hello(Role::Client));
        assert_eq!(protocol.split(&next, &of_servers()[0]), Split::Broken);
    }

    /// Who was dialled needs no greeting: everything goes to whoever dialled.
    #[test]
    fn of_a_connection_that_was_dialled_everything_goes_to_its_owner() {
        let mut protocol = protocol();
        let view = view(5, Some(DialId::new(1)));
        for frame in of_servers() {
            let length = frame.len();
            assert_eq!(protocol.split(&view, &frame), Split::Frame { length, to: NODE });
        }
    }
}
