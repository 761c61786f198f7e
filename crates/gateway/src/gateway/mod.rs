//! The RESP gateway: every Redis client is a Timestone client.
//!
//! ```text
//!   RESP net ── bytes ──► Gateway ─► Core: commands ─► session::Engine ── frames ──► shard stages
//!            ◄─ answers ──     │ one batch of frames a connection and turn          ◄─ answers ──
//!                              └── map, client ids ◄──► node stage
//! ```
//! One gateway a reactor thread, with the connections of that thread. A command is a pure function
//! over a view of its keys ([`keys`], [`strings`]); what makes it a transaction, retries it and
//! keeps answers in order is common to all ([`core`], [`run`]).
//!
//! Where it differs from Redis, by design: one database (0); commands of one pipeline on
//! *different* keys may take effect in any order, as in a pipeline to a Redis Cluster; a command
//! that fails inside EXEC undoes the whole transaction; commands over the whole keyspace are
//! refused inside MULTI; a key whose shard is another process's is refused, by name; keys are not
//! empty and at most 64 KiB, values at most 16 MiB. CLIENT LIST and INFO's counters are those of
//! the thread that the connection is on.
//!
//! Invariants: answers of a connection leave in the order of its commands; a write is never
//! reported failed when it may have been carried out; what a connection may have under way, queued
//! and waiting is bounded ([`limits`]). Source: docs/redis.md; docs/protocol/transactions.md,
//! "Single keys".

mod client;
mod command;
mod connection;
mod core;
mod dispatch;
mod expiry;
mod extended;
mod failure;
mod fast;
mod figures;
mod glob;
mod hot;
mod inbox;
mod integer;
mod job;
mod keys;
pub(crate) mod limits;
mod local;
mod marks;
mod memory;
mod replies;
mod run;
mod strings;
#[cfg(test)]
mod tests;
mod view;
mod whole;
mod words;

use std::sync::Arc;

use timestone_cluster::{MasterAnswer, MasterCommand, ShardMap};
use timestone_seda::{
    ConnectionId, FrameBatch, Generation, Memory, MemoryUse, NetCommand, NetEvent, ReplyAddress,
    StageId,
};
use timestone_session::Routes;
use timestone_types::{ClientId, ShardId, Timestamp};
use timestone_wire::{
    Envelope, Frame, Kind, MapIs, MapPull, MasterAsk, MasterReply, Message, RequestId,
    without_clock,
};

use self::connection::ConnectionIndex;
use self::core::Core;
pub use self::figures::{CommandLatencies, GatewayGauges, command_names};
use self::limits::{
    ASK_INTERVAL, CHARGED_ANSWER_BYTES, CHARGED_READ_BYTES, LAST_ANSWERS, LAST_COMMANDS,
};
use crate::turn::{Input, Output, Turn};

/// The number of requests to the node stage; the engine gives it to none of its own.
const NODE_REQUEST: RequestId = RequestId::new(1);

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
    /// The shards that it can reach.
    pub shards: Vec<ShardId>,
    /// Nobody may guess it: it makes hashes and pauses unpredictable.
    pub seed: u64,
    /// The process's memory for connections.
    pub memory: Arc<Memory>,
    /// What it publishes.
    pub gauges: GatewayGauges,
}

/// The RESP gateway of one thread. See the module.
pub struct Gateway {
    thread: usize,
    core: Core,
    own: ReplyAddress,
    /// When the node may be asked again for what is missing.
    next_ask: Timestamp,
    now: Timestamp,
    said_goodbye: bool,
    /// Since when the process is shutting down.
    ending_since: Option<Timestamp>,
    /// It ends although not everything is answered: what comes of that is nobody's business any
    /// more, and nothing follows from it.
    gave_up: bool,
    /// The shards know that nothing comes any more.
    has_ended: bool,
}

impl Gateway {
    /// The gateway of a thread.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let Setup { stage, thread, client, map, shards, seed, memory, gauges } = setup;
        let Ok(mut core) = Core::new(client, Routes::from(&*map), thread, seed, &memory) else {
            unreachable!("an engine without sessions has room for one")
        };
        // There is no way from here to shards of other processes. They hear nothing of this
        // gateway, and their own gateways move their watermarks.
        core.engine.shards_mut().reach_only(&shards);
        core.name_servers(&map);
        core.gauges = gauges;
        Self {
            thread,
            core,
            own: ReplyAddress {
                stage,
                connection: ConnectionId::new(0),
                generation: Generation::new(0),
            },
            next_ask: Timestamp::ZERO,
            now: Timestamp::ZERO,
            said_goodbye: false,
            ending_since: None,
            gave_up: false,
            has_ended: false,
        }
    }

    fn frame_batch(&mut self, ctx: &mut Turn<'_>, frame_batch: FrameBatch) {
        let now = ctx.now();
        if self.gave_up {
            let is_own = frame_batch.reply_to.stage == self.own.stage;
            return if is_own {
                ctx.give_buffer(frame_batch.bytes)
            } else {
                ctx.finish_frame_batch(frame_batch)
            };
        }
        if frame_batch.reply_to.stage == self.own.stage {
            self.replies(now, &frame_batch.bytes);
            if frame_batch.bytes.len() >= CHARGED_READ_BYTES {
                // Large answers are taken one by one, so that no more than one of them is here
                // twice.
                self.core.work(now);
            }
            return ctx.give_buffer(frame_batch.bytes);
        }
        let (frames, bytes) = (u64::from(frame_batch.frames), frame_batch.bytes.len() as u64);
        let Some(index) = self.core.find(frame_batch.reply_to) else {
            return ctx.finish_frame_batch(frame_batch);
        };
        let spare = self.core.received(now, index, frame_batch.bytes);
        ctx.give_buffer(spare);
        if let Some(connection) = self.core.connection(index) {
            connection.admitted.0 += frames;
            connection.admitted.1 += bytes;
            let (frames, bytes) = connection.give_up_admitted();
            ctx.release(frames, bytes);
        } else {
            ctx.release(frames, bytes);
        }
    }

    /// Takes reply frames of shards, or of the node.
    fn replies(&mut self, now: Timestamp, bytes: &[u8]) {
        let answer = first_frame(without_clock(bytes));
        let node =
            Frame::parse(answer).ok().filter(|frame| frame.envelope().request == NODE_REQUEST);
        match node {
            Some(frame) => self.node_replied(now, &frame),
            None => {
                if let Err(error) = self.core.engine.deliver_batch(now, bytes) {
                    tracing::error!(%error, "a shard's answer could not be read; the request will \
                        be sent again");
                }
            }
        }
    }

    fn node_replied(&mut self, now: Timestamp, frame: &Frame<'_>) {
        match frame.kind() {
            Kind::MapIs => {
                if let Some(map) = MapIs::decode(frame).ok().and_then(|is| is.shard_map().ok())
                    && !self.core.engine.shards_mut().routes_are_of(map.version())
                {
                    self.core.engine.set_routes(now, Routes::from(&map));
                    self.core.name_servers(&map);
                }
            }
            Kind::MasterReply => {
                let answer =
                    MasterReply::decode(frame).ok().and_then(|reply| reply.master_answer().ok());
                if let Some(MasterAnswer::Clients(block)) = answer
                    && self.core.engine.wants_client()
                    && let Some(client) = block.iter().next()
                {
                    tracing::warn!(%client, "the gateway was silent for too long and goes on under \
                        a new client id");
                    self.core.engine.renew_client(now, client);
                }
            }
            _ => {
                tracing::warn!(kind = ?frame.kind(), "the node refused a question of the gateway; \
                    it will be asked again")
            }
        }
    }

    fn net_event(&mut self, ctx: &Turn<'_>, event: NetEvent) {
        match event {
            NetEvent::Connected(view) => self.core.connect(ctx.now(), view.reply_to, view.peer),
            NetEvent::Disconnected { reply_to, .. } => self.core.disconnect(reply_to),
            NetEvent::Written { reply_to, bytes } => {
                if let Some(index) = self.core.find(reply_to) {
                    self.core.written(index, bytes);
                }
            }
            NetEvent::HalfClosed(reply_to) => {
                if let Some(index) = self.core.find(reply_to) {
                    if let Some(connection) = self.core.connection(index) {
                        connection.half_closed = true;
                    }
                    self.core.list(index);
                }
            }
            NetEvent::FrameBatch(_) | NetEvent::DialFailed { .. } => {}
        }
    }

    /// Asks the node for a newer map or a new client id, when the engine misses one.
    fn ask_node(&mut self, ctx: &mut Turn<'_>) {
        let (routes, client) =
            (self.core.engine.shards().wants_routes(), self.core.engine.wants_client());
        if !(routes || client) || ctx.now() < self.next_ask {
            return;
        }
        self.next_ask = ctx.now().saturating_add(ASK_INTERVAL);
        let envelope = Envelope { request: NODE_REQUEST, ..Envelope::default() };
        if routes {
            let mut bytes = ctx.take_buffer();
            MapPull {}.encode(&envelope, &mut bytes);
            ctx.send(Output::ToNode(FrameBatch::new(self.own, bytes)));
        }
        if client {
            let mut command = Vec::new();
            MasterCommand::RegisterClient { count: 1 }.encode(&mut command);
            let mut bytes = ctx.take_buffer();
            MasterAsk { command: &command }.encode(&envelope, &mut bytes);
            ctx.send(Output::ToNode(FrameBatch::new(self.own, bytes)));
        }
    }

    /// Sends what the engine has for shards.
    fn ship(&mut self, ctx: &mut Turn<'_>) {
        while let Some((shard, outbox)) = self.core.engine.shards_mut().next_dirty() {
            let bytes = std::mem::replace(outbox, ctx.take_buffer());
            ctx.send(Output::ToShard { shard, frame_batch: FrameBatch::new(self.own, bytes) });
        }
    }

    /// Sends what connections are owed, closes those that are done, forgets those that are gone.
    fn look_after_connections(&mut self, ctx: &mut Turn<'_>) {
        let mut listed = std::mem::take(&mut self.core.listed);
        for index in listed.drain(..) {
            self.look_after(ctx, index);
        }
        // What could not be done now was listed again.
        listed.append(&mut self.core.listed);
        self.core.listed = listed;
        if !self.core.listed.is_empty() {
            ctx.want_turn();
        }
    }

    fn look_after(&mut self, ctx: &mut Turn<'_>, index: ConnectionIndex) {
        self.attend(ctx, index);
        self.core.count(index);
        if let Some(pause) = self.core.change_of_pause(ctx.now(), index)
            && let Some(reply_to) =
                self.core.connection(index).map(|connection| connection.reply_to)
        {
            let command =
                if pause { NetCommand::Pause(reply_to) } else { NetCommand::Resume(reply_to) };
            ctx.send(Output::Net { to: reply_to.stage, command });
        }
    }

    fn attend(&mut self, ctx: &mut Turn<'_>, index: ConnectionIndex) {
        let bound = self.core.output_bound();
        let Core { connections, memory, .. } = &mut self.core;
        let Some(connection) = connections.get_mut(index.0 as usize).and_then(Option::as_deref_mut)
        else {
            return;
        };
        connection.listed = false;
        if connection.gone {
            connection.replies.drop_output();
        }
        let reply_to = connection.reply_to;
        if connection.replies.has_output() {
            while let Some(bytes) = connection.replies.take() {
                let (length, memory_bytes) = (bytes.len(), bytes.capacity());
                // The net stage counts it when it takes it: shards may answer before that.
                let charged = memory_bytes >= CHARGED_ANSWER_BYTES && !memory::forgets_passing();
                let charge = charged.then(|| memory.charge(MemoryUse::Output, memory_bytes as u64));
                let frame_batch = FrameBatch { charge, ..FrameBatch::new(reply_to, bytes) };
                ctx.send(Output::Answer(frame_batch));
                connection.unwritten += length;
            }
            // An answer that had to wait for room may have been all that held its connection's next
            // commands back.
            if connection.blocked && connection.may_start(bound) {
                self.core.answered(index);
                ctx.want_turn();
            }
        }
        let Some(connection) = self.core.connection(index) else { return };
        let (frames, bytes) = connection.give_up_admitted();
        ctx.release(frames, bytes);
        if !connection.replies.is_empty() {
            return;
        }
        if connection.gone {
            if let Some(connection) = self.core.remove(index) {
                ctx.give_buffer(connection.inbox.into_bytes());
            }
            return;
        }
        if let Some(bytes) = connection.inbox.release() {
            ctx.give_buffer(bytes);
        }
        let done = connection.closing || connection.half_closed && !connection.blocked;
        if done && !connection.closed {
            connection.closed = true;
            connection.closing = true;
            ctx.send(Output::Net { to: reply_to.stage, command: NetCommand::Close(reply_to) });
        }
    }

    /// Whether it has nothing more to do.
    fn is_over(&self) -> bool {
        let is_over = self.gave_up || self.core.listed.is_empty() && self.is_done();
        self.said_goodbye && is_over
    }

    fn is_done(&self) -> bool {
        self.core.is_quiet() && self.core.engine.unresolved() == 0
    }

    /// The end, bounded in time: shards close their stores only when no gateway is left that may
    /// write.
    fn end(&mut self, ctx: &Turn<'_>) {
        let now = ctx.now();
        let waited = now.since(*self.ending_since.get_or_insert(now));
        let waits = waits_for_everything();
        if waited >= LAST_COMMANDS && !waits {
            self.core.drop_what_was_not_begun();
        }
        let (is_done, is_over) = (self.is_done(), waited >= LAST_ANSWERS && !waits);
        if !self.said_goodbye && (is_done || is_over) {
            self.said_goodbye = true;
            self.core.engine.close(now);
        }
        if is_over && !is_done && !self.gave_up {
            self.gave_up = true;
            let unresolved = self.core.engine.unresolved();
            tracing::warn!(
                gateway = self.thread,
                unresolved,
                "some commands of redis clients got no answer in time; they are given up"
            );
        }
    }

    /// When [`Gateway::end`] has something to do.
    fn end_deadline(&self) -> Option<Timestamp> {
        let since = self.ending_since?;
        [LAST_COMMANDS, LAST_ANSWERS]
            .into_iter()
            .map(|span| since.saturating_add(span))
            .find(|at| *at > self.now)
    }
}

/// Whether the end of a process waits for whoever does not read, and for answers that never come.
fn waits_for_everything() -> bool {
    timestone_types::is_planted!(EndlessGateway)
}

/// What the host calls.
impl Gateway {
    /// Begins to serve; once, before anything else.
    pub fn start(&mut self, ctx: &mut Turn<'_>) {
        self.core.started = ctx.now();
        self.core.gauges.begin();
    }

    /// Takes what it is told.
    pub fn input(&mut self, ctx: &mut Turn<'_>, input: Input) {
        match input {
            Input::FrameBatch(frame_batch) => self.frame_batch(ctx, frame_batch),
            Input::Net(event) => self.net_event(ctx, event),
            Input::MapChanged(map) => {
                self.core.engine.set_routes(ctx.now(), Routes::from(&*map));
                self.core.name_servers(&map);
            }
        }
    }

    /// The end of a turn, or a deadline that has passed.
    pub fn turn(&mut self, ctx: &mut Turn<'_>) {
        if !self.said_goodbye {
            self.core.tick(ctx.now());
        }
        self.now = ctx.now();
        if !self.gave_up {
            self.core.feed_starving(ctx.now());
            self.core.end_stalled(ctx.now());
            self.core.work(ctx.now());
            if self.core.goes_on() {
                ctx.want_turn();
            }
            self.ask_node(ctx);
        }
        if ctx.is_shutting_down() {
            self.end(ctx);
        }
        self.ship(ctx);
        self.look_after_connections(ctx);
        if !self.has_ended && self.is_over() {
            if ctx.has_sent_all() {
                self.has_ended = true;
                self.core.gauges.end();
            } else {
                ctx.want_turn();
            }
        }
    }

    /// When [`Gateway::turn`] wants to be called at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let misses = self.core.engine.shards().wants_routes() || self.core.engine.wants_client();
        let core = if self.said_goodbye { None } else { self.core.next_deadline() };
        let memory = self.core.memory_deadline(self.now);
        let end = self.end_deadline();
        if self.gave_up {
            return None;
        }
        core.into_iter().chain(misses.then_some(self.next_ask)).chain(memory).chain(end).min()
    }

    /// Whether it has come to its end.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.has_ended && self.is_over()
    }
}

/// The first frame of a run, as far as its length can be read.
fn first_frame(bytes: &[u8]) -> &[u8] {
    match timestone_wire::frame_length(bytes) {
        Ok(Some(length)) => bytes.get(..length).unwrap_or_default(),
        _ => &[],
    }
}
