//! The connections of a replica to the other replicas of its shard.
//!
//! ```text
//!   asks (Join, Fetch, Install, Append, Probe, NeedsCheckpoint, CheckpointAsk, ClosedAsk)
//!     ─► own connection, dialled when it is needed
//!   answers (Joined, Fetched, Acked, Refused, CheckpointPart, ClosedIs)
//!     ─► the connection over which that replica asked last
//! ```
//! What is sent in one turn to one replica leaves together. Nothing is kept for whoever cannot take
//! it: replicas ask again for what was lost.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use timestone_cluster::{Address, ServerId, ShardMap};
use timestone_replication::{Message, ReplicaId};
use timestone_seda::{
    ConnectionView, Context, DialId, FrameBatch, NetCommand, ReplyAddress, StageId,
};
use timestone_shard::{CheckpointPart, PartAsk};
use timestone_types::{ClusterId, Epoch, ShardId, Timestamp};
use timestone_wal::BatchNumber;
use timestone_wire::{
    self as wire, CheckpointAsk, ClosedAsk, ClosedIs, Envelope, Message as _, RequestId,
    encode_replica_message,
};

use super::bytes::LogBytes;
use crate::event::Event;
use crate::limits::MAX_UNWRITTEN_TO_REPLICA;
use crate::node::links::Links;
use crate::outgoing::Outgoing;

/// What one other replica is sent.
#[derive(Debug, Default)]
struct Peer {
    address: Option<SocketAddr>,
    /// Over which connection it asked last.
    asked_over: Option<ReplyAddress>,
    asks: Vec<u8>,
    answers: Vec<u8>,
}

/// See the module.
pub(super) struct ReplicaLinks {
    shard: ShardId,
    me: ReplicaId,
    cluster: ClusterId,
    links: Links,
    peers: BTreeMap<ReplicaId, Peer>,
    /// Bytes of asks that are not written, by connection.
    unwritten: BTreeMap<ReplyAddress, u64>,
}

/// Whether a message is an ask, which needs a connection of its own; else it is an answer.
fn is_ask<B>(message: &Message<B>) -> bool {
    match message {
        Message::Join { .. }
        | Message::Fetch { .. }
        | Message::Install { .. }
        | Message::Append { .. }
        | Message::Probe { .. }
        | Message::NeedsCheckpoint { .. } => true,
        Message::Joined { .. }
        | Message::Fetched { .. }
        | Message::Acked { .. }
        | Message::Refused { .. } => false,
    }
}

impl ReplicaLinks {
    pub(super) const fn new(shard: ShardId, me: ReplicaId, net: StageId) -> Self {
        Self {
            shard,
            me,
            cluster: ClusterId::ZERO,
            links: Links::new(Some(net)),
            peers: BTreeMap::new(),
            unwritten: BTreeMap::new(),
        }
    }

    /// The stage that hears of connections.
    pub(super) const fn set_owner(&mut self, owner: StageId) {
        self.links.set_owner(owner);
    }

    /// Follows a map: where the other servers are.
    pub(super) fn follow(&mut self, map: &ShardMap) {
        self.cluster = map.cluster();
        for server in map.servers() {
            let address = server.addresses.native.as_ref().and_then(Address::socket_address);
            self.peers.entry(replica_of(server.id)).or_default().address = address;
        }
    }

    /// Whether a server of the cluster has this number.
    pub(super) fn knows(&self, replica: ReplicaId) -> bool {
        replica != self.me && self.peers.contains_key(&replica)
    }

    /// A replica has asked over this connection.
    pub(super) fn asked(&mut self, from: ReplicaId, over: ReplyAddress) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.asked_over = Some(over);
        }
    }

    /// A message, to leave with this turn.
    pub(super) fn send(&mut self, to: ReplicaId, message: &Message<LogBytes>) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        let envelope = Envelope {
            shard: self.shard,
            epoch: message.epoch(),
            request: RequestId::NONE,
            ..Envelope::default()
        };
        let out = if is_ask(message) { &mut peer.asks } else { &mut peer.answers };
        encode_replica_message(&envelope, self.me, message, LogBytes::as_sent, out);
    }

    /// Asks the primary for a part of a checkpoint, with this turn.
    pub(super) fn ask_part(&mut self, primary: ReplicaId, from: ServerId, ask: PartAsk) {
        let envelope = Envelope { shard: self.shard, ..Envelope::default() };
        if let Some(peer) = self.peers.get_mut(&primary).filter(|_| primary != self.me) {
            CheckpointAsk { from, after: &ask.to_bytes() }.encode(&envelope, &mut peer.asks);
        }
    }

    /// Asks the primary for a closed timestamp, with this turn.
    pub(super) fn ask_closed(&mut self, primary: ReplicaId, from: ServerId) {
        let envelope = Envelope { shard: self.shard, ..Envelope::default() };
        if let Some(peer) = self.peers.get_mut(&primary).filter(|_| primary != self.me) {
            ClosedAsk { from }.encode(&envelope, &mut peer.asks);
        }
    }

    /// A timestamp that was closed in this epoch, to leave with this turn.
    pub(super) fn give_closed(
        &mut self,
        to: ReplicaId,
        epoch: Epoch,
        (through, at): (BatchNumber, Timestamp),
    ) {
        let envelope = Envelope { shard: self.shard, epoch, ..Envelope::default() };
        if let Some(peer) = self.peers.get_mut(&to) {
            ClosedIs { through: through.get(), at }.encode(&envelope, &mut peer.answers);
        }
    }

    /// A part of a checkpoint, to leave with this turn.
    pub(super) fn give_part(&mut self, to: ReplicaId, part: &CheckpointPart) {
        let envelope = Envelope { shard: self.shard, ..Envelope::default() };
        if let Some(peer) = self.peers.get_mut(&to) {
            let cursor = part.ask.next().to_bytes();
            let message =
                wire::CheckpointPart { last: part.is_last, cursor: &cursor, part: &part.bytes };
            message.encode(&envelope, &mut peer.answers);
        }
    }

    /// Sends what this turn has for others.
    pub(super) fn flush(&mut self, ctx: &mut Context<'_, Event>, outgoing: &mut Outgoing) {
        for peer in self.peers.values_mut() {
            if let Some(over) = peer.asked_over.filter(|_| !peer.answers.is_empty()) {
                let bytes = std::mem::replace(&mut peer.answers, ctx.take_buffer());
                outgoing.send(ctx, over.stage, Event::FrameBatch(FrameBatch::new(over, bytes)));
            }
            peer.answers.clear();
            let Some(address) = peer.address.filter(|_| !peer.asks.is_empty()) else {
                peer.asks.clear();
                continue;
            };
            let bytes = std::mem::replace(&mut peer.asks, ctx.take_buffer());
            let (net, events) = self.links.send(ctx.now(), address, bytes);
            let Some(net) = net else { continue };
            for event in events {
                if let Event::FrameBatch(frame_batch) = &event {
                    let unwritten = self.unwritten.entry(frame_batch.reply_to).or_default();
                    if *unwritten > MAX_UNWRITTEN_TO_REPLICA {
                        continue;
                    }
                    *unwritten += frame_batch.bytes.len() as u64;
                }
                if let Event::NetCommand(NetCommand::Abort(reply_to)) = &event {
                    self.unwritten.remove(reply_to);
                }
                outgoing.send(ctx, net, event);
            }
        }
    }

    /// Something came over a connection; whether it was dialled here.
    pub(super) fn heard(&mut self, now: Timestamp, over: ReplyAddress) -> bool {
        self.links.heard(now, over).is_some()
    }

    /// So much of what was sent over a connection is written.
    pub(super) fn written(&mut self, over: ReplyAddress, bytes: u64) {
        if let Some(unwritten) = self.unwritten.get_mut(&over) {
            *unwritten = unwritten.saturating_sub(bytes);
        }
    }

    /// A connection stands that was dialled: to which replicas it leads.
    pub(super) fn connected(
        &mut self,
        ctx: &mut Context<'_, Event>,
        view: &ConnectionView,
        outgoing: &mut Outgoing,
    ) -> Option<ReplicaId> {
        let (net, events) = self.links.connected(ctx.now(), view, self.cluster);
        let net = net?;
        for event in events {
            outgoing.send(ctx, net, event);
        }
        let address = self.links.heard(ctx.now(), view.reply_to)?;
        let mut peers = self.peers.iter();
        peers.find(|(_, peer)| peer.address == Some(address)).map(|(id, _)| *id)
    }

    /// A connection is gone, or could not be made.
    pub(super) fn disconnected(&mut self, dial: Option<DialId>, over: Option<ReplyAddress>) {
        if let Some(dial) = dial {
            self.links.disconnected(dial);
        }
        if let Some(over) = over {
            self.unwritten.remove(&over);
            for peer in self.peers.values_mut().filter(|peer| peer.asked_over == Some(over)) {
                peer.asked_over = None;
            }
        }
    }
}

/// A server's replicas go by its number.
pub(crate) const fn replica_of(server: ServerId) -> ReplicaId {
    ReplicaId(server.get())
}
