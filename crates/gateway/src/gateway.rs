//! The RESP gateway: every Redis client is a Timestone client.
//!
//! ```text
//!   RESP net ── bytes ──► Gateway ─► Parts: commands, jobs ─► session::Engine ── frames ──► shard stages
//!            ◄─ answers ──     │ one batch of frames a connection and turn                 ◄─ answers ──
//!                              ├── ServerLinks: frames for shards elsewhere ◄──► native net ◄──► other servers
//!                              └── NodeClient: map, client ids ◄──► node stage
//! ```
//! One gateway a reactor thread, with the connections of that thread; each serves every key of the
//! cluster. A command is a pure function
//! over a view of its keys ([`commands`](crate::commands)); what makes it a transaction, retries it
//! and keeps answers in order is common to all ([`parts`](crate::parts), [`jobs`](crate::jobs)).
//!
//! Where it differs from Redis, by design: one database (0); commands of one pipeline on
//! *different* keys may take effect in any order, as in a pipeline to a Redis Cluster; a command
//! that fails inside EXEC undoes the whole transaction; commands over the whole keyspace are
//! refused inside MULTI; keys are not empty and at most 64 KiB, values at most 16 MiB. CLIENT LIST
//! and INFO's counters are those of the thread that the connection is on.
//!
//! Invariants: answers of a connection leave in the order of its commands; a write is never
//! reported failed when it may have been carried out; what a connection may have under way, queued
//! and waiting is bounded ([`limits`](crate::limits)). Source: docs/redis.md;
//! docs/protocol/transactions.md, "Single keys".

use std::sync::Arc;
use std::sync::atomic::Ordering;

use timestone_cluster::{KeyspaceName, ServerId, ShardMap};
use timestone_seda::{
    ConnectionId, ConnectionView, FrameBatch, Generation, Memory, NetCommand, NetEvent,
    ReplyAddress, StageId,
};
use timestone_session::Routes;
use timestone_types::{ClientId, ShardId, Timestamp, is_planted};
use timestone_wire::{Frame, without_clock};

use crate::connection::ConnectionIndex;
use crate::direct::{Direct, DirectShard};
use crate::figures::GatewayGauges;
use crate::limits::CHARGED_READ_BYTES;
use crate::links::{Destination, OwnProcess, ServerLinks};
use crate::node::NodeClient;
use crate::parts::Parts;
use crate::shutdown::Shutdown;
use crate::turn::{Input, Output, Turn};

/// What a gateway is told when it is made.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The address under which others send it what is for it.
    pub stage: StageId,
    /// The thread that it runs on; connections are numbered by it.
    pub thread: usize,
    /// The client that it is for the shards.
    pub client: ClientId,
    /// Where shards are.
    pub map: Arc<ShardMap>,
    /// The keyspace that it serves. One that is not there yet is waited for: until then commands on
    /// keys are refused.
    pub keyspace: KeyspaceName,
    /// The server that it is part of.
    pub server: ServerId,
    /// The shards of its process.
    pub shards: Vec<ShardId>,
    /// The net stage that dials other servers; without one their keys are refused.
    pub net: Option<StageId>,
    /// Nobody may guess it: it makes hashes and pauses unpredictable.
    pub seed: u64,
    /// The process's memory for connections.
    pub memory: Arc<Memory>,
    /// What it publishes.
    pub gauges: GatewayGauges,
}

/// The RESP gateway of one thread. See the module.
pub struct Gateway {
    parts: Parts,
    links: ServerLinks,
    node: NodeClient,
    shutdown: Shutdown,
    /// Where answers to what this gateway asks go.
    own: ReplyAddress,
    /// The time of the last turn.
    now: Timestamp,
}

impl Gateway {
    /// The gateway of a thread.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let Setup {
            stage,
            thread,
            client,
            map,
            keyspace,
            server,
            shards,
            net,
            seed,
            memory,
            gauges,
        } = setup;
        let routes = Routes::from(&*map);
        let Ok(mut parts) = Parts::new(client, routes, keyspace, thread, seed, &memory, gauges)
        else {
            unreachable!("an engine without sessions has room for one")
        };
        let mut links = ServerLinks::new(OwnProcess { stage, net, server, shards });
        parts.follow(Timestamp::ZERO, &mut links, &map);
        let (connection, generation) = (ConnectionId::new(0), Generation::new(0));
        Self {
            parts,
            links,
            node: NodeClient::default(),
            shutdown: Shutdown::new(thread),
            own: ReplyAddress { stage, connection, generation },
            now: Timestamp::ZERO,
        }
    }

    /// The same, with shards of its own thread that it may call.
    #[must_use]
    pub fn calling(mut self, shards: Vec<Box<dyn DirectShard>>) -> Self {
        self.parts.direct = Direct::new(shards);
        self
    }

    /// Time never runs backwards.
    #[inline]
    fn assert_time(&self, now: Timestamp) {
        debug_assert!(now >= self.now, "{now} is before {}", self.now);
    }

    fn frame_batch(&mut self, ctx: &mut Turn<'_>, frame_batch: FrameBatch) {
        self.assert_time(ctx.now());
        let now = ctx.now();
        if self.shutdown.gave_up() {
            let is_own = frame_batch.reply_to.stage == self.own.stage;
            return if is_own {
                ctx.buffers().give(frame_batch.bytes)
            } else {
                ctx.finish_frame_batch(frame_batch)
            };
        }
        if frame_batch.reply_to.stage == self.own.stage {
            self.replies(now, &frame_batch.bytes);
            if frame_batch.bytes.len() >= CHARGED_READ_BYTES {
                // Large answers are taken one by one, so that no more than one of them is here
                // twice.
                self.parts.run(now);
            }
            return ctx.buffers().give(frame_batch.bytes);
        }
        if self.links.is_of(frame_batch.reply_to.stage) {
            let newer = self.links.arrived(ctx, self.parts.backend.engine(), &frame_batch);
            if let Some(map) = newer {
                self.parts.follow(now, &mut self.links, &map);
            }
            if frame_batch.bytes.len() >= CHARGED_READ_BYTES {
                self.parts.run(now);
            }
            return ctx.finish_frame_batch(frame_batch);
        }
        if self.shutdown.has_closed_session() && !is_planted!(TakesLateCommands) {
            // Shards close their stores when no gateway is left that may write: nothing begins any
            // more, and whoever has sent it gets no answer.
            return ctx.finish_frame_batch(frame_batch);
        }
        let (frames, bytes) = (u64::from(frame_batch.frames), frame_batch.bytes.len() as u64);
        let Some(index) = self.parts.connections.find(frame_batch.reply_to) else {
            return ctx.finish_frame_batch(frame_batch);
        };
        let spare = self.parts.received(now, index, frame_batch.bytes);
        ctx.buffers().give(spare);
        if let Some(connection) = self.parts.connections.get_mut(index) {
            connection.usage.admitted.0 += frames;
            connection.usage.admitted.1 += bytes;
            let (frames, bytes) = connection.give_up_admitted();
            ctx.release(frames, bytes);
        } else {
            ctx.release(frames, bytes);
        }
    }

    /// Takes reply frames of shards, or of the node.
    fn replies(&mut self, now: Timestamp, bytes: &[u8]) {
        debug_assert!(!self.shutdown.gave_up(), "nothing is waited for any more");
        let answer = first_frame(without_clock(bytes));
        match Frame::parse(answer).ok().filter(NodeClient::is_answer) {
            Some(frame) => {
                if let Some(map) = NodeClient::replied(&mut self.parts, now, &frame) {
                    self.parts.follow(now, &mut self.links, &map);
                }
            }
            None => {
                if let Err(error) = self.parts.backend.deliver(now, bytes) {
                    tracing::error!(%error, "a shard's answer could not be read; the request will \
                        be sent again");
                }
            }
        }
    }

    fn net_event(&mut self, ctx: &mut Turn<'_>, event: NetEvent) {
        self.assert_time(ctx.now());
        if self.is_of_link(&event) {
            return self.links.net_event(ctx, self.parts.backend.engine(), event);
        }
        match event {
            NetEvent::Connected(view) => {
                self.parts.connections.connect(ctx.now(), view.reply_to, view.peer)
            }
            NetEvent::Disconnected { reply_to, .. } => self.parts.disconnect(reply_to),
            NetEvent::Written { reply_to, bytes } => {
                if let Some(index) = self.parts.connections.find(reply_to) {
                    self.parts.written(index, bytes);
                }
            }
            NetEvent::HalfClosed(reply_to) => {
                if let Some(index) = self.parts.connections.find(reply_to) {
                    if let Some(connection) = self.parts.connections.get_mut(index) {
                        connection.life.half_closed = true;
                    }
                    self.parts.connections.list(index);
                }
            }
            NetEvent::FrameBatch(_) | NetEvent::DialFailed { .. } => {}
        }
    }

    /// Whether an event concerns a connection to another server.
    fn is_of_link(&self, event: &NetEvent) -> bool {
        match event {
            NetEvent::Connected(ConnectionView { reply_to, .. })
            | NetEvent::Disconnected { reply_to, .. }
            | NetEvent::HalfClosed(reply_to)
            | NetEvent::Written { reply_to, .. } => self.links.is_of(reply_to.stage),
            NetEvent::DialFailed { .. } => true,
            NetEvent::FrameBatch(_) => false,
        }
    }

    /// Sends what the engine has for shards.
    fn ship(&mut self, ctx: &mut Turn<'_>) {
        debug_assert!(self.parts.direct.is_empty(), "what was collected is carried out");
        self.parts.direct.take_called().for_each(|shard| ctx.send(Output::Called(shard)));
        let bound = self.parts.memory.output_bound();
        while let Some((shard, outbox)) = self.parts.backend.engine().shards_mut().next_dirty() {
            let destination = self.links.destination(shard, bound);
            if destination == Destination::Nobody {
                outbox.clear();
                continue;
            }
            let bytes = std::mem::replace(outbox, ctx.take_buffer());
            debug_assert!(!bytes.is_empty(), "{shard} is asked nothing");
            if let Destination::Connection(reply_to) = destination {
                self.links.sent(reply_to, bytes.len());
                ctx.send(Output::ToServer(FrameBatch::new(reply_to, bytes)));
            } else {
                ctx.send(Output::ToShard { shard, frame_batch: FrameBatch::new(self.own, bytes) });
            }
        }
    }

    /// Sends what connections are owed, closes those that are done, forgets those that are gone.
    fn flush_connections(&mut self, ctx: &mut Turn<'_>) {
        let mut listed = self.parts.connections.take_listed();
        for index in listed.drain(..) {
            self.flush_connection(ctx, index);
        }
        // What could not be done now was listed again.
        if self.parts.connections.relist(listed) {
            ctx.wants_turn = true;
        }
        debug_assert!(self.parts.connections.is_nobody_listed() || ctx.wants_turn());
    }

    fn flush_connection(&mut self, ctx: &mut Turn<'_>, index: ConnectionIndex) {
        self.flush_answers(ctx, index);
        self.settle_connection(ctx, index);
        let Parts { connections, memory, .. } = &mut self.parts;
        let Some(connection) = connections.get_mut(index) else { return };
        memory.count(connection);
        debug_assert_eq!(connection.usage.counted.1, connection.replies.memory_bytes() as u64);
        if let Some(pause) = memory.change_of_pause(ctx.now(), connection) {
            let reply_to = connection.reply_to;
            let command =
                if pause { NetCommand::Pause(reply_to) } else { NetCommand::Resume(reply_to) };
            ctx.send(Output::Net { to: reply_to.stage, command });
        }
    }

    /// Sends the answers of a connection that can leave.
    fn flush_answers(&mut self, ctx: &mut Turn<'_>, index: ConnectionIndex) {
        let bound = self.parts.memory.output_bound();
        let Parts { connections, memory, .. } = &mut self.parts;
        let Some(connection) = connections.get_mut(index) else { return };
        connection.turn.listed = false;
        if connection.life.gone {
            connection.replies.drop_output();
        }
        if !connection.replies.has_output() {
            return;
        }
        let reply_to = connection.reply_to;
        while let Some(bytes) = connection.replies.take() {
            connection.usage.unwritten += bytes.len();
            let charge = memory.charge_output(bytes.capacity());
            let frame_batch = FrameBatch { charge, ..FrameBatch::new(reply_to, bytes) };
            ctx.send(Output::Answer(frame_batch));
        }
        debug_assert!(!connection.replies.has_output(), "all that can leave has left");
        // An answer that had to wait for room may have been all that held its connection's next
        // commands back.
        if connection.turn.blocked && connection.may_start(bound) {
            self.parts.answered(index);
            ctx.wants_turn = true;
        }
    }

    /// Closes a connection that is done, forgets one that is gone, and gives back what a connection
    /// with nothing under way does not need.
    fn settle_connection(&mut self, ctx: &mut Turn<'_>, index: ConnectionIndex) {
        let Parts { connections, memory, .. } = &mut self.parts;
        let Some(connection) = connections.get_mut(index) else { return };
        debug_assert!(!connection.replies.has_output(), "answers leave before a connection ends");
        let (frames, bytes) = connection.give_up_admitted();
        ctx.release(frames, bytes);
        if !connection.replies.is_empty() {
            return;
        }
        if connection.life.gone {
            if let Some(connection) = connections.remove(index) {
                memory.forget(&connection);
                ctx.buffers().give(connection.inbox.into_bytes());
            }
            return;
        }
        if let Some(bytes) = connection.inbox.release() {
            ctx.buffers().give(bytes);
        }
        let life = &mut connection.life;
        let done = life.closing || life.half_closed && !connection.turn.blocked;
        if done && !life.closed {
            (life.closed, life.closing) = (true, true);
            let reply_to = connection.reply_to;
            ctx.send(Output::Net { to: reply_to.stage, command: NetCommand::Close(reply_to) });
        }
    }

    /// Whether it has nothing more to do.
    fn is_over(&self) -> bool {
        let is_over = self.shutdown.gave_up()
            || self.parts.connections.is_nobody_listed() && self.parts.is_done();
        self.shutdown.has_closed_session() && is_over
    }
}

/// What the host calls.
impl Gateway {
    /// Begins to serve; once, before anything else.
    pub fn start(&mut self, ctx: &mut Turn<'_>) {
        assert_eq!(self.now, Timestamp::ZERO, "a gateway starts once, before its first turn");
        self.parts.figures.begin(ctx.now());
    }

    /// Takes what it is told.
    pub fn input(&mut self, ctx: &mut Turn<'_>, input: Input) {
        self.assert_time(ctx.now());
        match input {
            Input::FrameBatch(frame_batch) => self.frame_batch(ctx, frame_batch),
            Input::Net(event) => self.net_event(ctx, event),
            Input::MapChanged(map) => self.parts.follow(ctx.now(), &mut self.links, &map),
        }
    }

    /// The end of a turn, or a deadline that has passed.
    pub fn turn(&mut self, ctx: &mut Turn<'_>) {
        self.assert_time(ctx.now());
        let now = ctx.now();
        if !self.shutdown.has_closed_session() {
            self.parts.tick(now);
        }
        self.now = now;
        if self.links.has_others() && !self.shutdown.has_ended() {
            self.links.turn(ctx, self.parts.backend.engine());
            let unreached = self.links.unreached() as u64;
            self.parts.figures.gauges().unreached.store(unreached, Ordering::Relaxed);
        }
        if !self.shutdown.gave_up() {
            let Parts { connections, memory, figures, .. } = &mut self.parts;
            memory.resume_waiting(now, connections);
            memory.end_idle(now, connections, figures.gauges());
            self.parts.run(now);
            if self.parts.goes_on() {
                ctx.wants_turn = true;
            }
            self.node.ask(ctx, &mut self.parts.backend, self.own);
            if let Some(turn) = self.parts.backend.engine().begin_pull(now) {
                NodeClient::ask_for_map(ctx, self.own);
                self.links.ask_for_map(ctx, turn);
            }
        }
        if ctx.is_shutting_down() {
            // Shards close their stores only when no gateway is left that may write.
            self.shutdown.advance(now, &mut self.parts);
        }
        self.ship(ctx);
        self.flush_connections(ctx);
        if !self.shutdown.has_ended() && self.is_over() {
            if ctx.has_sent_all() {
                self.shutdown.end();
                self.links.leave(ctx);
                self.parts.figures.gauges().end();
            } else {
                ctx.wants_turn = true;
            }
        }
    }

    /// When [`Gateway::turn`] wants to be called at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        if self.shutdown.gave_up() {
            return None;
        }
        let closed = self.shutdown.has_closed_session();
        let parts = if closed { None } else { self.parts.next_deadline() };
        let ended = self.shutdown.has_ended();
        let links = if ended { None } else { self.links.next_deadline() };
        let node = self.node.next_deadline(&self.parts.backend);
        let memory = self.parts.memory.next_deadline(self.now);
        let end = self.shutdown.next_deadline(self.now);
        [parts, links, node, memory, end].into_iter().flatten().min()
    }

    /// Whether it has come to its end.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.shutdown.has_ended() && self.is_over()
    }
}

/// The first frame of a run, as far as its length can be read.
fn first_frame(bytes: &[u8]) -> &[u8] {
    match timestone_wire::frame_length(bytes) {
        Ok(Some(length)) => bytes.get(..length).unwrap_or_default(),
        _ => &[],
    }
}
