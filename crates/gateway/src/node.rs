//! What a gateway asks the node stage: newer shard maps, client ids, and which keyspace it serves.
//!
//! ```text
//!   a map, a client id or the keyspace is missing ─► question, again and again while it is ─► answer ─► engine
//! ```
//! When a map is asked for is the engine's business; other servers are asked as well
//! ([`links`](crate::links)).

use timestone_cluster::{MasterAnswer, MasterCommand, ShardMap};
use timestone_seda::{FrameBatch, ReplyAddress};
use timestone_types::Timestamp;
use timestone_wire::{
    Envelope, Frame, Kind, MapIs, MapPull, MasterAsk, MasterReply, Message, RequestId,
};

use crate::backend::Backend;
use crate::limits::ASK_INTERVAL;
use crate::parts::Parts;
use crate::turn::{Output, Turn};

/// The number of requests to the node stage; the engine gives it to none of its own.
const NODE_REQUEST: RequestId = RequestId::new(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct NodeClient {
    /// When the node may be asked again for a client id.
    next_ask: Timestamp,
}

impl Default for NodeClient {
    fn default() -> Self {
        Self { next_ask: Timestamp::ZERO }
    }
}

impl NodeClient {
    /// Whether a frame answers a question to the node.
    pub(crate) fn is_answer(frame: &Frame<'_>) -> bool {
        frame.envelope().request == NODE_REQUEST
    }

    /// Takes an answer of the node. A map that is to be followed, if it was one.
    pub(crate) fn replied(
        parts: &mut Parts,
        now: Timestamp,
        frame: &Frame<'_>,
    ) -> Option<ShardMap> {
        debug_assert!(Self::is_answer(frame), "an answer of the node");
        let engine = parts.backend.engine();
        match frame.kind() {
            Kind::MapIs => {
                let map = MapIs::decode(frame).ok().and_then(|is| is.shard_map().ok());
                return map.filter(|map| !engine.shards_mut().routes_are_of(map.version()));
            }
            Kind::MasterReply => {
                let answer =
                    MasterReply::decode(frame).ok().and_then(|reply| reply.master_answer().ok());
                match answer {
                    Some(MasterAnswer::Clients(block)) if engine.wants_client() => {
                        if let Some(client) = block.iter().next() {
                            tracing::warn!(%client, "the gateway was silent for too long and goes \
                                on under a new client id");
                            engine.renew_client(now, client);
                        }
                    }
                    Some(MasterAnswer::Keyspaces(list)) => parts.backend.served.told(&list),
                    _ => {}
                }
            }
            _ => {
                tracing::warn!(kind = ?frame.kind(), "the node refused a question of the gateway; \
                    it will be asked again")
            }
        }
        None
    }

    /// Asks the node for its map.
    pub(crate) fn ask_for_map(ctx: &mut Turn<'_>, own: ReplyAddress) {
        let envelope = Envelope { request: NODE_REQUEST, ..Envelope::default() };
        let mut bytes = ctx.take_buffer();
        MapPull {}.encode(&envelope, &mut bytes);
        ctx.send(Output::ToNode(FrameBatch::new(own, bytes)));
    }

    /// Asks the node for what is missing of a client id and the keyspace.
    pub(crate) fn ask(&mut self, ctx: &mut Turn<'_>, backend: &mut Backend, own: ReplyAddress) {
        if backend.served.asks(ctx.now()) {
            Self::ask_master(ctx, own, &MasterCommand::ListKeyspaces);
        }
        if !backend.engine_ref().wants_client() || ctx.now() < self.next_ask {
            return;
        }
        self.next_ask = ctx.now().saturating_add(ASK_INTERVAL);
        assert!(self.next_ask > ctx.now(), "the node is not asked twice in a turn");
        Self::ask_master(ctx, own, &MasterCommand::RegisterClient { count: 1 });
    }

    fn ask_master(ctx: &mut Turn<'_>, own: ReplyAddress, command: &MasterCommand) {
        let envelope = Envelope { request: NODE_REQUEST, ..Envelope::default() };
        let mut asked = Vec::new();
        command.encode(&mut asked);
        let mut bytes = ctx.take_buffer();
        MasterAsk { command: &asked }.encode(&envelope, &mut bytes);
        ctx.send(Output::ToNode(FrameBatch::new(own, bytes)));
    }

    /// When the node, or another server, is to be asked for something.
    pub(crate) fn next_deadline(&self, backend: &Backend) -> Option<Timestamp> {
        let engine = backend.engine_ref();
        let client = engine.wants_client().then_some(self.next_ask);
        let keyspace = backend.served.next_deadline();
        [client, keyspace, engine.next_pull()].into_iter().flatten().min()
    }
}
