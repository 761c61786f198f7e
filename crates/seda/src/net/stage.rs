//! The I/O stage of TCP connections: accepts and dials (`opening`), reads, writes, closes.
//!
//! Memory: what waits for peers and what they have begun to send is counted ([`Memory`]). Over its
//! bound a connection is not read from; a long frame is collected only once there is memory for it;
//! whoever neither reads nor goes on sending is closed (`stalls`).
//!
//! In a turn: `ready` marks what the poller reported; `handle` queues batches of frames and carries
//! out commands; `turn` accepts, reads and hands on; `flush` writes each connection that has
//! something once.
//!
//! Invariants: a connection is read from only while its output is within the bound, its events are
//! taken by their stages, and it has not ended. A slot's generation rises with every connection, so
//! that answers to a past one are dropped. Edge-triggered: a connection stays `readable` until a
//! read came back short or would block.

mod acceptor;
mod connections;
mod opening;
mod stalls;

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;

use timestone_types::Timestamp;

use self::acceptor::{Acceptor, LISTENER_BIT};
use self::connections::Connections;
use self::stalls::collects_unreserved;
use super::connection::{Connection, Phase, Waiting, Written};
use super::intake::{Ended, Intake};
use super::retry_queue::{Holder, RetryQueue};
use super::{
    ConnectionView, DisconnectReason, FrameBatchEvent, NetCommand, NetConfig, NetEvent, NetMetrics,
    Protocol,
};
use crate::limits::{
    FLUSH_LINGER, HALF_CLOSE_LINGER, MEMORY_RETRY, POOL_LARGEST, READ_BYTES, READ_PER_TURN,
    RETRY_INTERVAL, SCARCE_OUTPUT_BOUND, WRITTEN_REPORT_BYTES,
};
use crate::{
    Context, FrameBatch, MemoryUse, Readiness, ReplyAddress, SedaError, Stage, StageId, Tally,
};

/// The beginning of a frame up to this size is put in front of what is read next; a longer one is
/// collected in its own buffer.
const SCRATCH_HEAD: usize = READ_BYTES / 4;

/// What is looked at again at some time, in the order of these times.
#[derive(Debug, Default)]
struct Watches {
    /// Dials under way.
    dials: VecDeque<(Timestamp, Holder)>,
    /// Connections that are ending.
    ending: VecDeque<(Timestamp, Holder)>,
    /// Connections whose peers may have stalled.
    slow: VecDeque<(Timestamp, Holder)>,
    /// Connections whose long frames wait for memory, and how long they may.
    starving: VecDeque<(Timestamp, Holder)>,
}

impl Watches {
    /// When something is due; connections that wait for memory are tried all the time.
    fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let fronts = [self.dials.front(), self.ending.front(), self.slow.front()];
        let fronts = fronts.into_iter().flatten().map(|&(at, _)| at);
        let starving = (!self.starving.is_empty()).then(|| now.saturating_add(MEMORY_RETRY));
        fronts.chain(starving).min()
    }
}

/// See the module; `E` carries its batches of frames, `P` splits its bytes.
#[derive(Debug)]
pub struct NetStage<E, P> {
    protocol: P,
    config: NetConfig,
    metrics: Arc<NetMetrics>,
    acceptor: Acceptor,
    connections: Connections,
    /// Connections whose frames wait for room at their stage.
    stalled: Vec<u32>,
    watches: Watches,
    input: Tally,
    output: Waiting,
    retry_queue: RetryQueue<E>,
    intake: Intake,
    scratch: Vec<u8>,
    answers: Vec<u8>,
    now: Timestamp,
    /// From the begin of a shutdown on: who has not taken what waits for it by then is given up.
    flush_until: Option<Timestamp>,
}

impl<E: FrameBatchEvent, P: Protocol> NetStage<E, P> {
    /// A net stage without listeners; `protocol` splits what its connections receive.
    pub fn new(protocol: P, config: NetConfig) -> Self {
        Self {
            protocol,
            metrics: Arc::default(),
            acceptor: Acceptor::default(),
            connections: Connections::default(),
            stalled: Vec::new(),
            watches: Watches::default(),
            input: Tally::new(&config.memory, MemoryUse::Input),
            output: Waiting::new(Tally::new(&config.memory, MemoryUse::Output)),
            retry_queue: RetryQueue::new(),
            intake: Intake::new(config.max_frame_bytes),
            config,
            scratch: Vec::new(),
            answers: Vec::new(),
            now: Timestamp::ZERO,
            flush_until: None,
        }
    }

    /// Binds a listener now, to be served once the runtime runs; the address tells the port if 0
    /// was asked for.
    ///
    /// # Errors
    /// [`SedaError::Listen`].
    pub fn listen(&mut self, address: SocketAddr) -> Result<SocketAddr, SedaError> {
        let refused = |source| SedaError::Listen { address, source };
        let socket = self.config.network.listen(address).map_err(refused)?;
        let bound = socket.local_address().map_err(refused)?;
        self.acceptor.add(socket);
        Ok(bound)
    }

    /// Its counters.
    pub fn metrics(&self) -> Arc<NetMetrics> {
        Arc::clone(&self.metrics)
    }

    /// Has an ending connection looked at again after a while.
    fn watch(&mut self, index: u32) {
        let Some((holder, connection)) = self.connections.held_at(index) else { return };
        if !connection.watched {
            connection.watched = true;
            self.watches.ending.push_back((self.now.saturating_add(HALF_CLOSE_LINGER), holder));
        }
    }

    // ---- receiving ----

    /// Reads from a connection what one turn allows, and hands the frames on.
    fn receive(&mut self, ctx: &mut Context<'_, E>, index: u32) {
        let mut budget = READ_PER_TURN;
        loop {
            let bound = self.output_bound();
            let now = self.now;
            let shutting_down = self.flush_until.is_some();
            let Self { connections, scratch, .. } = self;
            let Some(connection) = connections.at(index) else { return };
            let discards = matches!(connection.phase, Phase::Draining(_));
            let reads = matches!(connection.phase, Phase::Open)
                && connection.held == 0
                && !connection.stalled
                && !connection.starving
                && !connection.paused
                && connection.queued <= bound
                && !(shutting_down && connection.view.dial.is_none());
            if !connection.readable || connection.ended || !(reads || discards) {
                connection.held_back |= connection.queued > bound;
                return;
            }
            if collects_unreserved(connection, scratch.len()) && !discards && !self.reserve(index) {
                return;
            }
            let Self { connections, scratch, metrics, .. } = self;
            let Some(connection) = connections.at(index) else { return };
            if budget == 0 {
                self.connections.list_to_read(index);
                ctx.want_turn();
                return;
            }
            let head = connection.received.len();
            let collects = head > SCRATCH_HEAD || connection.needed > scratch.len();
            let head = if collects { 0 } else { head };
            if !collects {
                scratch[..head].copy_from_slice(&connection.received);
            }
            metrics.reads_total.add(1);
            match connection.stream.read(&mut scratch[head..]) {
                Ok(0) => {
                    connection.readable = false;
                    self.end_of_stream(ctx, index);
                    return;
                }
                Ok(bytes) => {
                    metrics.bytes_received_total.add(bytes as u64);
                    budget = budget.saturating_sub(bytes);
                    connection.read_at = now;
                    // A short read has emptied the socket, unless the end of the stream is right
                    // behind it.
                    connection.readable = head + bytes == scratch.len() || connection.end_seen;
                    if discards {
                        continue;
                    }
                    if collects {
                        connection.received.extend_from_slice(&scratch[..bytes]);
                        if connection.received.len() >= connection.needed {
                            self.digest_collected(ctx, index);
                        }
                    } else {
                        let scratch = std::mem::take(scratch);
                        let consumed = self.digest(ctx, index, &scratch[..head + bytes]);
                        if let Some(connection) = self.connections.at(index) {
                            connection.keep(&scratch[consumed..head + bytes], ctx.frame_batches());
                        }
                        self.scratch = scratch;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    connection.readable = false;
                    return;
                }
                Err(error) => {
                    self.remove(ctx, index, DisconnectReason::Failed(error));
                    return;
                }
            }
        }
    }

    /// Splits what a connection has collected in its own buffer, and keeps the rest in a buffer no
    /// larger than it needs.
    fn digest_collected(&mut self, ctx: &mut Context<'_, E>, index: u32) {
        let Some(connection) = self.connections.at(index) else { return };
        let mut bytes = std::mem::take(&mut connection.received);
        let consumed = self.digest(ctx, index, &bytes);
        let Some(connection) = self.connections.at(index) else { return };
        let rest = bytes.len() - consumed;
        if rest > SCRATCH_HEAD || (rest > 0 && bytes.capacity() <= POOL_LARGEST) {
            bytes.drain(..consumed);
            bytes.shrink_to(rest.max(POOL_LARGEST));
            connection.reservation = None;
            connection.received = bytes;
        } else {
            connection.keep(&bytes[consumed..], ctx.frame_batches());
            ctx.give_buffer(bytes);
        }
    }

    /// Splits received bytes and hands the batches of frames on. How many bytes are dealt with.
    fn digest(&mut self, ctx: &mut Context<'_, E>, index: u32, bytes: &[u8]) -> usize {
        let Self {
            connections,
            intake,
            protocol,
            answers,
            metrics,
            retry_queue,
            stalled,
            output,
            ..
        } = self;
        let Some((holder, connection)) = connections.held_at(index) else { return bytes.len() };
        let view = connection.view;
        let (pool, driver) = ctx.pool_and_driver();
        let gauge_of = |stage| driver.gauge(stage);
        let outcome = intake.split(protocol, &view, bytes, pool, gauge_of, answers);
        intake.take(|to, frame_batch| {
            metrics.frames_received_total.add(u64::from(frame_batch.frames));
            ctx.gauge(to).admit(u64::from(frame_batch.frames), frame_batch.bytes.len() as u64);
            connection.used = true;
            if !retry_queue.send(
                ctx,
                to,
                E::from_net(NetEvent::FrameBatch(frame_batch)),
                Some(holder),
            ) {
                connection.held += 1;
            }
        });
        metrics.frames_busy_total.add(outcome.busy);
        let mut consumed = outcome.consumed;
        connection.needed = 0;
        match outcome.ended {
            Ended::Wants(needed) => connection.needed = needed,
            Ended::Stalled => {
                connection.stalled = true;
                stalled.push(index);
            }
            Ended::Broken(reason) => {
                protocol.refuse(&view, reason, &bytes[consumed..], answers);
                metrics.broken_total.add(1);
                connection.phase = Phase::Flushing(DisconnectReason::Broken(reason));
                consumed = bytes.len();
            }
        }
        let goes_on = matches!(connection.phase, Phase::Open);
        if !answers.is_empty() {
            let buffer = std::mem::replace(answers, ctx.take_buffer());
            connection.queue(buffer, ctx.frame_batches(), output);
        }
        if connection.queued > 0 || !goes_on {
            self.connections.list_to_write(index);
        }
        if !goes_on {
            self.watch(index);
        }
        consumed
    }

    /// The peer sends nothing more.
    fn end_of_stream(&mut self, ctx: &mut Context<'_, E>, index: u32) {
        let answers = self.config.answers_after_end;
        let Some(connection) = self.connections.at(index) else { return };
        connection.ended = true;
        if connection.dead || !connection.used || matches!(connection.phase, Phase::Draining(_)) {
            self.remove(ctx, index, DisconnectReason::Closed);
            return;
        }
        if !connection.stalled {
            // The beginning of a frame that will never be whole.
            ctx.give_buffer(std::mem::take(&mut connection.received));
        }
        connection.progress = ctx.now();
        let view = connection.view;
        if !answers
            && !connection.stalled
            && connection.held == 0
            && matches!(connection.phase, Phase::Open)
        {
            connection.phase = Phase::Flushing(DisconnectReason::Closed);
            self.connections.list_to_write(index);
        }
        self.watch(index);
        self.tell(ctx, view.owner, NetEvent::HalfClosed(view.reply_to), None);
    }

    /// Tries again what stages had no room for.
    fn retry(&mut self, ctx: &mut Context<'_, E>) {
        if !self.retry_queue.is_empty() {
            let Self { retry_queue, connections, .. } = self;
            retry_queue.pump(ctx, |holder| {
                let Some(connection) = connections.holder(holder) else { return };
                connection.held -= 1;
                if connection.held == 0 {
                    connections.list_to_read(holder.0);
                }
            });
        }
        for index in std::mem::take(&mut self.stalled) {
            let Some(connection) =
                self.connections.at(index).filter(|connection| connection.stalled)
            else {
                continue;
            };
            connection.stalled = false;
            self.digest_collected(ctx, index);
            self.count_input(index);
            self.connections.list_to_read(index);
        }
    }

    // ---- sending ----

    fn send(&mut self, ctx: &mut Context<'_, E>, frame_batch: FrameBatch) {
        let now = self.now;
        let found = self
            .connections
            .named(frame_batch.reply_to)
            .filter(|(_, connection)| connection.takes_output());
        let Some((index, connection)) = found else {
            self.metrics.frame_batches_dropped_total.add(1);
            ctx.give_buffer(frame_batch.bytes);
            return;
        };
        connection.progress = now;
        if connection.queued == 0 {
            connection.untaken_since = now;
        }
        let bytes = if connection.queued + frame_batch.bytes.len() > SCARCE_OUTPUT_BOUND {
            self.within_limit(ctx, index, frame_batch.bytes)
        } else {
            frame_batch.bytes
        };
        let Self { connections, output, .. } = self;
        let Some(connection) = connections.at(index) else { return };
        connection.queue(bytes, ctx.frame_batches(), output);
        let listed = connection.listed_to_write;
        if !listed && matches!(connection.phase, Phase::Open) {
            self.connections.list_to_write(index);
        }
    }

    /// Writes what is queued for a connection, and takes the next step of its end, if it has come
    /// to that.
    fn write(&mut self, ctx: &mut Context<'_, E>, index: u32) {
        let (now, bound, reports) = (self.now, self.output_bound(), self.config.reports_written);
        let Self { connections, output, .. } = self;
        let Some(connection) = connections.at(index) else { return };
        connection.listed_to_write = false;
        let before = connection.queued;
        let mut writes = 0;
        let written = connection.write(ctx.frame_batches(), &mut writes, output);
        let sent = before - connection.queued;
        if sent > 0 {
            connection.progress = now;
            connection.untaken_since = now;
        }
        let resumes = connection.held_back && connection.queued <= bound / 2;
        connection.held_back &= !resumes;
        connection.unreported += if reports { sent } else { 0 };
        let reported = connection.unreported >= WRITTEN_REPORT_BYTES;
        let report =
            reported.then(|| (connection.view, std::mem::take(&mut connection.unreported)));
        let flushing = matches!(connection.phase, Phase::Flushing(_));
        if sent < before {
            self.watch_for_stall(index);
        }
        self.metrics.writes_total.add(writes);
        self.metrics.bytes_sent_total.add(sent as u64);
        if let Some((ConnectionView { reply_to, owner, .. }, bytes)) = report {
            self.tell(ctx, owner, NetEvent::Written { reply_to, bytes }, None);
        }
        match written {
            Written::Failed(error) => self.remove(ctx, index, DisconnectReason::Failed(error)),
            Written::All if flushing => self.shut(ctx, index),
            Written::All | Written::Blocked => {
                if resumes && self.connections.list_to_read(index) {
                    ctx.want_turn();
                }
            }
        }
    }

    /// Everything is written to a connection being closed: shuts our end, and waits for the peer's
    /// unless that came already.
    fn shut(&mut self, ctx: &mut Context<'_, E>, index: u32) {
        let Some(connection) = self.connections.at(index) else { return };
        let Phase::Flushing(reason) = std::mem::replace(&mut connection.phase, Phase::Open) else {
            return;
        };
        if connection.ended || connection.stream.shut_write().is_err() {
            self.remove(ctx, index, reason);
            return;
        }
        connection.phase = Phase::Draining(reason);
        self.watch(index);
        if self.connections.list_to_read(index) {
            ctx.want_turn();
        }
    }

    // ---- ending ----

    fn close(&mut self, ctx: &mut Context<'_, E>, reply_to: ReplyAddress) {
        let Some((index, connection)) = self.connections.named(reply_to) else { return };
        match connection.phase {
            Phase::Dialling => self.remove(ctx, index, DisconnectReason::Asked),
            Phase::Open => {
                connection.phase = Phase::Flushing(DisconnectReason::Asked);
                self.connections.list_to_write(index);
                self.watch(index);
            }
            Phase::Flushing(_) | Phase::Draining(_) => {}
        }
    }

    /// Forgets a connection, and tells its owner.
    fn remove(&mut self, ctx: &mut Context<'_, E>, index: u32, reason: DisconnectReason) {
        let Some(mut connection) = self.connections.take(index) else { return };
        if let Some(io) = ctx.io()
            && let Err(error) = connection.stream.deregister(&io)
        {
            tracing::debug!(peer = %connection.view.peer, %error, "A closed connection was not \
                registered.");
        }
        if connection.view.peer.ip().is_loopback() {
            ctx.note_local_peers(-1);
        }
        self.input.change(connection.counted, 0);
        connection.release(ctx.frame_batches(), &mut self.output);
        self.metrics.connections.set(self.connections.count() as u64);
        let ConnectionView { reply_to, peer, dial, owner } = connection.view;
        let event = match (connection.phase, dial, reason) {
            (Phase::Dialling, Some(dial), DisconnectReason::Failed(error)) => {
                NetEvent::DialFailed { dial, address: peer, error }
            }
            (Phase::Dialling, Some(dial), _) => NetEvent::DialFailed {
                dial,
                address: peer,
                error: io::ErrorKind::ConnectionAborted.into(),
            },
            // Whatever ended the wait for the peer, the reason is why the connection was being
            // closed.
            (Phase::Flushing(reason) | Phase::Draining(reason), dial, _) | (_, dial, reason) => {
                NetEvent::Disconnected { reply_to, dial, reason }
            }
        };
        self.tell(ctx, owner, event, None);
    }

    fn tell(
        &mut self,
        ctx: &mut Context<'_, E>,
        owner: Option<StageId>,
        event: NetEvent,
        holder: Option<Holder>,
    ) {
        if let Some(owner) = owner {
            self.retry_queue.send(ctx, owner, E::from_net(event), holder);
        }
    }

    /// Looks after dials that take too long and connections that take too long to end.
    fn expire(&mut self, ctx: &mut Context<'_, E>) {
        while let Some((_, holder)) = self.watches.dials.pop_front_if(|(at, _)| *at <= self.now) {
            if self
                .connections
                .holder(holder)
                .is_some_and(|connection| matches!(connection.phase, Phase::Dialling))
            {
                self.remove(
                    ctx,
                    holder.0,
                    DisconnectReason::Failed(io::ErrorKind::TimedOut.into()),
                );
            }
        }
        while let Some((_, holder)) = self.watches.ending.pop_front_if(|(at, _)| *at <= self.now) {
            let (now, by_owner) = (self.now, self.config.closed_by_owner);
            let Some(connection) = self.connections.holder(holder) else { continue };
            connection.watched = false;
            let idle = now.since(connection.progress);
            let waits = connection.queued > 0 || connection.stalled || connection.held > 0;
            let over = match connection.phase {
                Phase::Draining(_) => true,
                // The peer may be gone for good: only what it takes tells.
                Phase::Open if by_owner => connection.queued > 0 && idle >= FLUSH_LINGER,
                _ if waits => idle >= FLUSH_LINGER,
                _ => idle >= HALF_CLOSE_LINGER,
            };
            if over {
                self.remove(ctx, holder.0, DisconnectReason::Closed);
            } else {
                self.watch(holder.0);
            }
        }
        self.end_stalled(ctx);
        self.feed_starving(ctx);
        if self.acceptor.again.is_some_and(|at| at <= self.now) {
            self.acceptor.again = None;
        }
    }

    fn begin_shutdown(&mut self, ctx: &mut Context<'_, E>) {
        self.hurry();
        self.acceptor.close(ctx.io());
    }
}

impl<E: FrameBatchEvent, P: Protocol> Stage<E> for NetStage<E, P> {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn start(&mut self, ctx: &mut Context<'_, E>) {
        self.scratch = vec![0; READ_BYTES];
        let Some(io) = ctx.io() else {
            assert!(
                self.acceptor.is_empty(),
                "a net stage with listeners needs a driver with sockets"
            );
            return;
        };
        self.acceptor.register(&io);
    }

    fn handle(&mut self, ctx: &mut Context<'_, E>, events: &mut VecDeque<E>) {
        self.now = ctx.now();
        for event in events.drain(..) {
            match event.into_command() {
                Ok(NetCommand::Send(frame_batch)) => self.send(ctx, frame_batch),
                Ok(NetCommand::Dial { dial, address, owner }) => {
                    self.dial(ctx, dial, address, owner)
                }
                Ok(NetCommand::Close(reply_to)) => self.close(ctx, reply_to),
                Ok(NetCommand::Pause(reply_to)) => self.pause(reply_to, true),
                Ok(NetCommand::Resume(reply_to)) => {
                    self.pause(reply_to, false);
                    ctx.want_turn();
                }
                Ok(NetCommand::Abort(reply_to)) => {
                    if let Some((index, _)) = self.connections.named(reply_to) {
                        self.remove(ctx, index, DisconnectReason::Asked);
                    }
                }
                Ok(NetCommand::Adopt { stream, peer }) => self.adopt(ctx, stream, peer),
                Err(_) => {
                    debug_assert!(false, "a net stage was sent an event that is no command");
                    tracing::error!(stage = %self.config.name, "An event that is no command was \
                        dropped.");
                }
            }
        }
    }

    fn ready(&mut self, ctx: &mut Context<'_, E>, ready: &[Readiness]) {
        self.now = ctx.now();
        for event in ready {
            if event.token & LISTENER_BIT != 0 {
                self.acceptor.mark_ready(event.token);
                continue;
            }
            let index = event.token as u32;
            let Some(connection) = self.connections.at(index) else { continue };
            if matches!(connection.phase, Phase::Dialling) {
                connection.readable |= event.readable;
                connection.end_seen |= event.read_closed;
                if event.writable {
                    self.dialled(ctx, index);
                    self.connections.list_to_read(index);
                }
                continue;
            }
            connection.readable |= event.readable;
            connection.end_seen |= event.read_closed;
            connection.dead |= event.write_closed;
            connection.writable |= event.writable;
            let (writes, gone) =
                (connection.queued > 0 && event.writable, connection.dead && connection.ended);
            if gone {
                self.remove(ctx, index, DisconnectReason::Closed);
                continue;
            }
            self.connections.list_to_read(index);
            if writes {
                self.connections.list_to_write(index);
            }
        }
    }

    fn turn(&mut self, ctx: &mut Context<'_, E>) {
        self.now = ctx.now();
        if ctx.is_shutting_down() && self.flush_until.is_none() {
            self.begin_shutdown(ctx);
        }
        self.expire(ctx);
        self.retry(ctx);
        if self.acceptor.again.is_none() {
            self.accept(ctx);
        }
        // Connections listed meanwhile belong to the next turn.
        let listed = self.connections.listed_to_read();
        for position in 0..listed {
            if let Some(index) = self.connections.unlist_to_read(position) {
                self.receive(ctx, index);
                self.count_input(index);
            }
        }
        self.connections.drop_to_read(listed);
    }

    fn flush(&mut self, ctx: &mut Context<'_, E>) {
        self.now = ctx.now();
        let mut position = 0;
        while let Some(index) = self.connections.to_write(position) {
            self.write(ctx, index);
            position += 1;
        }
        self.connections.clear_to_write();
        self.metrics.queued_bytes.set(self.output.bytes());
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let waits = !self.retry_queue.is_empty() || !self.stalled.is_empty();
        let retry = waits.then(|| self.now.saturating_add(RETRY_INTERVAL));
        let watched = self.watches.next_deadline(self.now);
        [watched, self.acceptor.again, retry].into_iter().flatten().min()
    }

    fn drained(&self) -> bool {
        let idle = |connection: &Connection| {
            connection.queued == 0
                && connection.held == 0
                && !connection.stalled
                && connection.takes_output()
        };
        self.retry_queue.is_empty() && self.connections.iter().all(idle)
    }
}
