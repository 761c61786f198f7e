//! The node stage: what concerns the whole process rather than one shard.
//!
//! ```text
//!   client ── Hello ──► node ── Welcome{client id, map} ──► client
//!   anybody ─ MapPull, MasterAsk, NodeStatus ──► node ──► embedded master │ master in another process
//!   other servers ── Heartbeat ──► node ──► controller, if this server is it ──► master
//!   shard ── Freeze, Decide for a shard elsewhere ──► node ── connection ──► that shard's server, and its answers back
//! ```
//! It runs on a thread of its own, because it may block: the embedded master's state is written and
//! synced before an answer that depends on it leaves. Nothing of the data path passes through here
//! on a single node. Source: docs/protocol/membership.md, "The master".

mod candidacy;
mod controlling;
mod following;
mod heartbeats;
mod hello;
mod joining;
mod leaving;
mod life;
pub(crate) mod links;
mod maps;
mod master;
mod master_requests;
mod parts;
mod replication_status;
mod runs;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use timestone_clock::Clock;
use timestone_cluster::ServerId;
use timestone_seda::{Context, FrameBatch, NetEvent, ReplyAddress, Stage, StageId};
use timestone_types::{Epoch, ShardId, Timestamp};
use timestone_wire::{
    self as wire, Envelope, ErrorCode, ErrorReply, Frame, Frames, Kind, MapIs, Message,
};

use crate::event::Event;
use crate::node::controlling::Controlling;
use crate::node::heartbeats::Heartbeats;
pub use crate::node::joining::{JoinStep, Joining, Registration};
use crate::node::leaving::Leaving;
use crate::node::life::NodeLife;
use crate::node::links::Links;
use crate::node::maps::Maps;
pub(crate) use crate::node::master::{MasterLink, register};
pub(crate) use crate::node::parts::{Embedded, NearDoor, NodeParts};
use crate::node::runs::Runs;
use crate::outgoing::Outgoing;

/// The node stage.
pub(crate) struct NodeStage {
    server: ServerId,
    maps: Maps,
    cluster_name: Option<String>,
    master: MasterLink,
    links: Links,
    heartbeats: Heartbeats,
    controlling: Controlling,
    leaving: Leaving,
    shard_stages: Vec<(ShardId, StageId)>,
    doors: Vec<NearDoor>,
    gateways: Vec<StageId>,
    outgoing: Outgoing,
    figures: Arc<dyn Fn() -> Vec<(String, String)> + Send + Sync>,
    stopping: Arc<AtomicBool>,
    // Read for answers only; time comes with every turn.
    clock: Arc<dyn Clock>,
    life: NodeLife,
    runs: Runs,
    embedded: Embedded,
}

impl NodeStage {
    pub(crate) fn new(parts: NodeParts) -> Self {
        let is_told = !parts.master.is_here() || parts.master.is_shared();
        let manifest = Arc::clone(&parts.embedded.manifest);
        Self {
            server: parts.server,
            maps: Maps::new(parts.map, parts.control, parts.shared_map),
            cluster_name: parts.cluster_name,
            master: parts.master,
            links: Links::new(parts.net),
            heartbeats: Heartbeats::new(parts.replicas, parts.limits.detection),
            controlling: Controlling::new(parts.limits),
            leaving: Leaving::new(parts.departure),
            shard_stages: parts.shard_stages,
            doors: parts.doors,
            gateways: parts.gateways,
            outgoing: Outgoing::default(),
            figures: parts.figures,
            stopping: parts.stopping,
            clock: parts.clock,
            life: NodeLife::new(parts.life),
            runs: Runs::new(manifest, parts.run_interval, is_told),
            embedded: parts.embedded,
        }
    }

    fn frame_batch(&mut self, ctx: &mut Context<'_, Event>, frame_batch: FrameBatch) {
        let dialled = self.links.heard(ctx.now(), frame_batch.reply_to);
        let mut frames = Frames::new(&frame_batch.bytes);
        for frame in &mut frames {
            match frame {
                Ok(frame) => self.frame(ctx, (frame_batch.reply_to, dialled), &frame),
                Err(error) => {
                    tracing::warn!(%error, "a frame_batch for the node holds bytes that are no frame; \
                        the rest of it is dropped");
                    break;
                }
            }
        }
        ctx.finish_frame_batch(frame_batch);
    }

    /// A frame of a connection, which this process has `dialled` or somebody else.
    fn frame(
        &mut self,
        ctx: &mut Context<'_, Event>,
        (reply_to, dialled): (ReplyAddress, Option<SocketAddr>),
        frame: &Frame<'_>,
    ) {
        if self.shard_stages.iter().any(|(_, stage)| *stage == reply_to.stage) {
            return self.forward(ctx, frame);
        }
        match frame.kind() {
            Kind::Hello => self.hello(ctx, reply_to, frame),
            Kind::MapPull => self.answer_map(ctx, reply_to, frame),
            Kind::MasterAsk => self.master_ask(ctx, reply_to, frame),
            Kind::NodeStatus => self.status(ctx, reply_to, frame),
            Kind::Heartbeat => self.heartbeat(ctx, reply_to, frame),
            // Answers count from those that were asked: a client could tell this process of another
            // map, and its shards of decisions.
            kind if kind.is_reply() => {
                if let Some(from) = dialled {
                    self.reply(ctx, from, frame);
                }
            }
            // A peer was told another's decision and has no prepare: only the client has the write
            // set. The peer is told again, until the client has helped it, or its watermark shows
            // that it has forgotten.
            Kind::FetchWriteSet => {}
            _ => {
                let shard = frame.envelope().shard;
                let words =
                    format!("shard {shard} is not on this server; fetch the shard map again");
                self.answer(ctx, reply_to, frame, |envelope, out| {
                    ErrorReply::new(ErrorCode::WrongShard, &words).encode(envelope, out)
                });
            }
        }
    }

    /// A frame of one of our shards for a shard elsewhere.
    fn forward(&mut self, ctx: &mut Context<'_, Event>, frame: &Frame<'_>) {
        let Some(native) = self
            .maps
            .map()
            .primary(frame.envelope().shard)
            .and_then(|server| server.addresses.native.as_ref())
        else {
            return;
        };
        let mut out = ctx.take_buffer();
        out.extend_from_slice(frame.bytes());
        match links::resolve(native.as_str()) {
            Some(address) => {
                self.send_to(ctx, address, out);
            }
            None => ctx.give_buffer(out),
        }
    }

    /// An answer from another process: to one of our shards, or from the master.
    fn reply(&mut self, ctx: &mut Context<'_, Event>, from: SocketAddr, frame: &Frame<'_>) {
        let is_of_master = self.master.address() == Some(from);
        match frame.kind() {
            Kind::FreezeAnswer | Kind::DecideAck | Kind::StatusIs => {
                let asker = frame.envelope().request.get();
                let stage =
                    self.shard_stages.iter().find(|(shard, _)| u64::from(shard.get()) + 1 == asker);
                if let Some(&(_, stage)) = stage {
                    let mut out = ctx.take_buffer();
                    out.extend_from_slice(frame.bytes());
                    let reply_to =
                        ReplyAddress { stage, ..timestone_shard::own_reply_address(ctx.stage()) };
                    self.outgoing.send(
                        ctx,
                        stage,
                        Event::FrameBatch(FrameBatch::new(reply_to, out)),
                    );
                }
            }
            Kind::MapIs if is_of_master => {
                if let Ok(map) =
                    MapIs::decode(frame).map_err(drop).and_then(|is| is.shard_map().map_err(drop))
                {
                    self.set_map(ctx, map);
                }
            }
            Kind::MasterReply | Kind::ErrorReply if is_of_master => {
                self.master_replied(ctx, frame);
            }
            _ => {}
        }
    }

    fn answer(
        &mut self,
        ctx: &mut Context<'_, Event>,
        reply_to: ReplyAddress,
        frame: &Frame<'_>,
        write: impl FnOnce(&Envelope, &mut Vec<u8>),
    ) {
        let envelope = frame.reply_envelope(Epoch::ZERO, self.maps.map().version());
        let mut bytes = ctx.take_buffer();
        if frame.kind() != Kind::Hello {
            self.tell_clock(&mut bytes);
        }
        write(&envelope, &mut bytes);
        self.outgoing.send(
            ctx,
            reply_to.stage,
            Event::FrameBatch(FrameBatch::new(reply_to, bytes)),
        );
    }

    /// Begins a batch of answers with a reading of the clock. Not before a `Welcome`, which is the
    /// first thing that a peer hears.
    fn tell_clock(&self, bytes: &mut Vec<u8>) {
        let envelope = Envelope {
            shard: wire::SERVER_ITSELF,
            map_version: self.maps.map().version(),
            ..Envelope::default()
        };
        timestone_shard::reading(&*self.clock).encode(&envelope, bytes);
    }

    /// Sends frames to another process.
    fn send_to(&mut self, ctx: &mut Context<'_, Event>, address: SocketAddr, bytes: Vec<u8>) {
        let (stage, events) = self.links.send(ctx.now(), address, bytes);
        self.send_all(ctx, stage, events);
    }

    fn send_all(
        &mut self,
        ctx: &mut Context<'_, Event>,
        stage: Option<StageId>,
        events: Vec<Event>,
    ) {
        if let Some(stage) = stage {
            for event in events {
                self.outgoing.send(ctx, stage, event);
            }
        }
    }
}

impl Stage<Event> for NodeStage {
    fn name(&self) -> &str {
        "node"
    }

    fn start(&mut self, ctx: &mut Context<'_, Event>) {
        self.links.set_owner(ctx.stage());
        self.life.begin(ctx.now());
        self.runs.begin(ctx.now());
        if self.maps.is_replicated() {
            self.tell_control(ctx);
        }
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        while let Some(event) = events.pop_front() {
            match event {
                Event::FrameBatch(frame_batch) => self.frame_batch(ctx, frame_batch),
                Event::Net(NetEvent::Connected(view)) => {
                    let (stage, events) =
                        self.links.connected(ctx.now(), &view, self.maps.map().cluster());
                    self.send_all(ctx, stage, events);
                }
                Event::Net(
                    NetEvent::Disconnected { dial: Some(dial), .. }
                    | NetEvent::DialFailed { dial, .. },
                ) => {
                    // One that was given up before may have been the master's.
                    let lost = self.links.disconnected(dial);
                    if lost.is_none() || lost == self.master.address() {
                        self.master.link_lost();
                    }
                }
                _ => {}
            }
        }
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        self.outgoing.send_again(ctx);
        self.life.turn(ctx.now(), ctx.is_shutting_down());
        if ctx.is_shutting_down() {
            self.stopping.store(true, Ordering::Relaxed);
        } else {
            self.follow_master(ctx);
            self.raise_run(ctx);
            self.leave(ctx);
            self.beat(ctx);
            self.control(ctx);
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let map = self.follows().then_some(self.maps.next_pull());
        let beat = self.maps.is_replicated().then_some(self.heartbeats.next());
        let own = [self.life.deadline(), self.runs.deadline()].into_iter().flatten().min();
        let deadlines = [map, beat, self.control_deadline(), self.leaving.deadline(), own];
        deadlines.into_iter().flatten().min()
    }

    fn drained(&self) -> bool {
        self.outgoing.is_empty()
    }
}

#[cfg(test)]
mod tests;
