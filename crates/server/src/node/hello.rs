//! Who comes: greetings of clients and of other processes, and what the node tells of itself.

use timestone_seda::{Context, FrameBatch, NetCommand, ReplyAddress};
use timestone_types::{ClientId, ClusterId, Epoch, ShardId};
use timestone_wire::{
    self as wire, Envelope, ErrorCode, ErrorReply, Frame, Hello, Limits, Message, Role, Shards,
    StatusListWriter, Welcome,
};

use super::NodeStage;
use crate::event::Event;

/// The figure of a node's status under which it tells the cluster's name.
pub(super) const CLUSTER_NAME: &str = "cluster_name";

impl NodeStage {
    pub(super) fn hello(
        &mut self,
        ctx: &mut Context<'_, Event>,
        reply_to: ReplyAddress,
        frame: &Frame<'_>,
    ) {
        let hello = match Hello::first(frame)
            .and_then(|hello| hello.negotiate().map(|version| (hello, version)))
        {
            Ok((hello, version)) => (hello, version),
            Err(error) => {
                return self.turn_away(
                    ctx,
                    reply_to,
                    frame,
                    ErrorCode::from(&error),
                    &error.to_string(),
                );
            }
        };
        let (hello, protocol) = hello;
        let cluster = self.maps.map().cluster();
        if hello.cluster != ClusterId::ZERO && hello.cluster != cluster {
            let words = format!(
                "this server belongs to cluster {:016x}, not to {:016x}; check the address",
                cluster.get(),
                hello.cluster.get()
            );
            return self.turn_away(ctx, reply_to, frame, ErrorCode::WrongCluster, &words);
        }
        if hello.role != Role::Client || hello.client != ClientId::ZERO {
            return self.welcome(ctx, reply_to, frame.envelope().request, protocol, hello.client);
        }
        match self.master.client_id() {
            Ok(Some(client)) => {
                self.welcome(ctx, reply_to, frame.envelope().request, protocol, client)
            }
            Ok(None) => {
                // The ids of the last block are used up: the answer waits for the next one.
                self.master.waiting.push_back((reply_to, frame.envelope().request, protocol));
                self.ask_for_clients(ctx);
            }
            Err(error) => {
                let words = error.to_string();
                self.answer(ctx, reply_to, frame, |envelope, out| {
                    ErrorReply::new(ErrorCode::Unavailable, &words).encode(envelope, out);
                });
            }
        }
    }

    /// Says why not, and ends the connection: who does not belong here must not go on.
    fn turn_away(
        &mut self,
        ctx: &mut Context<'_, Event>,
        reply_to: ReplyAddress,
        frame: &Frame<'_>,
        code: ErrorCode,
        words: &str,
    ) {
        self.answer(ctx, reply_to, frame, |envelope, out| {
            ErrorReply::new(code, words).encode(envelope, out)
        });
        self.outgoing.send(ctx, reply_to.stage, Event::NetCommand(NetCommand::Close(reply_to)));
    }

    /// The shards that a client need not look for over another connection.
    fn near(&self, reply_to: ReplyAddress) -> Vec<ShardId> {
        let door = self.doors.iter().find(|door| door.net == reply_to.stage);
        match door.filter(|door| door.has_room()) {
            Some(door) => door.shards.clone(),
            None => self.shard_stages.iter().map(|(shard, _)| *shard).collect(),
        }
    }

    pub(super) fn welcome(
        &mut self,
        ctx: &mut Context<'_, Event>,
        reply_to: ReplyAddress,
        request: wire::RequestId,
        protocol: wire::ProtocolVersion,
        client: ClientId,
    ) {
        let mut map = Vec::new();
        self.maps.map().encode(&mut map);
        let envelope = Envelope {
            shard: ShardId::ZERO,
            epoch: Epoch::ZERO,
            request,
            map_version: self.maps.map().version(),
        };
        let near = self.near(reply_to);
        let welcome = Welcome {
            protocol,
            cluster: self.maps.map().cluster(),
            client,
            now: ctx.now(),
            limits: Limits::OURS,
            near: Shards::new(&near),
            map: &map,
        };
        let mut bytes = ctx.take_buffer();
        welcome.encode(&envelope, &mut bytes);
        self.outgoing.send(
            ctx,
            reply_to.stage,
            Event::FrameBatch(FrameBatch::new(reply_to, bytes)),
        );
    }

    pub(super) fn status(
        &mut self,
        ctx: &mut Context<'_, Event>,
        reply_to: ReplyAddress,
        frame: &Frame<'_>,
    ) {
        let mut figures = vec![
            ("server".to_owned(), self.server.to_string()),
            ("cluster".to_owned(), format!("{:016x}", self.maps.map().cluster().get())),
            ("shards".to_owned(), self.shard_stages.len().to_string()),
        ];
        figures
            .extend(self.cluster_name.iter().map(|name| (CLUSTER_NAME.to_owned(), name.clone())));
        figures.extend((self.figures)());
        if self.maps.is_replicated() {
            self.replication_figures(ctx.now(), &mut figures);
        }
        self.answer(ctx, reply_to, frame, |envelope, out| {
            let mut list = StatusListWriter::begin(envelope, out);
            for (name, value) in &figures {
                if !list.push(name, value) {
                    tracing::warn!(
                        name,
                        "the node's figures do not fit one answer; the rest of them is left out"
                    );
                    break;
                }
            }
            list.finish();
        });
    }
}
