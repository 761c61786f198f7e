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
use self::stalls::FlushDeadline;
use super::connection::{ConnectionPhase, NetConnection, QueuedOutput, WriteResult};
use super::intake::{Ended, Intake};
use super::retry_queue::{Holder, RetryQueue};
use super::{
    ConnectionView, DisconnectReason, FrameBatchEvent, NetCommand, NetConfig, NetEvent, NetMetrics,
    Protocol,
};
use crate::limits::{
    FLUSH_LINGER, HALF_CLOSE_LINGER, READ_BY_ALL_PER_TURN, READ_BYTES, READ_PER_TURN,
    RETRY_INTERVAL, SCARCE_OUTPUT_BOUND,
};
use crate::{
    Context, FrameBatch, MemoryUse, Readiness, ReplyAddress, SedaError, Stage, StageId, Tally,
};

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
    input: Tally,
    output: QueuedOutput,
    retry_queue: RetryQueue<E>,
    intake: Intake,
    scratch: Vec<u8>,
    /// Bytes read in this turn.
    read_bytes: usize,
    answers: Vec<u8>,
    now: Timestamp,
    flush_deadline: FlushDeadline,
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
            input: Tally::new(&config.memory, MemoryUse::Input),
            output: QueuedOutput::new(Tally::new(&config.memory, MemoryUse::Output)),
            retry_queue: RetryQueue::new(),
            intake: Intake::new(config.max_frame_bytes),
            config,
            scratch: Vec::new(),
            read_bytes: 0,
            answers: Vec::new(),
            now: Timestamp::ZERO,
            flush_deadline: FlushDeadline::default(),
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

    // ---- receiving ----

    /// Reads from a connection what one turn allows, and hands the frames on.
    fn receive(&mut self, ctx: &mut Context<'_, E>, index: u32) {
        let mut budget = READ_PER_TURN;
        loop {
            let bound = self.config.output_bound();
            let now = self.now;
            let shutting_down = self.flush_deadline.is_set();
            let Self { connections, scratch, .. } = self;
            let Some(connection) = connections.at(index) else { return };
            let discards = matches!(connection.phase, ConnectionPhase::Draining(_));
            let reads = matches!(connection.phase, ConnectionPhase::Open)
                && connection.holds.allow_reading()
                && connection.output.bytes() <= bound
                && !(shutting_down && connection.view.dial.is_none());
            if !connection.socket.readable || connection.socket.ended || !(reads || discards) {
                connection.holds.output_full |= connection.output.bytes() > bound;
                return;
            }
            if connection.input.collects_unreserved(scratch.len())
                && !discards
                && !self.reserve(index)
            {
                return;
            }
            let Self { connections, scratch, metrics, .. } = self;
            let Some(connection) = connections.at(index) else { return };
            if budget == 0 {
                self.connections.list_to_read(index);
                ctx.want_turn();
                return;
            }
            let collects = connection.input.collects(scratch.len());
            let head = if collects { 0 } else { connection.input.bytes().len() };
            if !collects {
                scratch[..head].copy_from_slice(connection.input.bytes());
            }
            metrics.reads_total.add(1);
            match connection.socket.stream.read(&mut scratch[head..]) {
                Ok(0) => {
                    connection.socket.readable = false;
                    self.end_of_stream(ctx, index);
                    return;
                }
                Ok(bytes) => {
                    metrics.bytes_received_total.add(bytes as u64);
                    budget = budget.saturating_sub(bytes);
                    self.read_bytes += bytes;
                    connection.input.read_at = now;
                    // A short read has emptied the socket, unless the end of the stream is right
                    // behind it.
                    connection.socket.readable =
                        head + bytes == scratch.len() || connection.socket.end_seen;
                    if discards {
                        continue;
                    }
                    if collects {
                        if connection.input.collect(&scratch[..bytes]) {
                            self.digest_collected(ctx, index);
                        }
                    } else {
                        let scratch = std::mem::take(scratch);
                        let consumed = self.digest(ctx, index, &scratch[..head + bytes]);
                        if let Some(connection) = self.connections.at(index) {
                            connection
                                .input
                                .keep(&scratch[consumed..head + bytes], ctx.frame_batches());
                        }
                        self.scratch = scratch;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    connection.socket.readable = false;
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
        let bytes = connection.input.take();
        let consumed = self.digest(ctx, index, &bytes);
        let Some(connection) = self.connections.at(index) else { return };
        connection.input.keep_rest(bytes, consumed, ctx.frame_batches());
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
                connection.holds.event_kept();
            }
        });
        metrics.frames_busy_total.add(outcome.busy);
        let mut consumed = outcome.consumed;
        connection.input.set_needed(0);
        match outcome.ended {
            Ended::Wants(needed) => connection.input.set_needed(needed),
            Ended::Stalled => {
                connection.holds.stalled = true;
                stalled.push(index);
            }
            Ended::Broken(reason) => {
                protocol.refuse(&view, reason, &bytes[consumed..], answers);
                metrics.broken_total.add(1);
                connection.phase = ConnectionPhase::Flushing(DisconnectReason::Broken(reason));
                consumed = bytes.len();
            }
        }
        let goes_on = matches!(connection.phase, ConnectionPhase::Open);
        if !answers.is_empty() {
            let buffer = std::mem::replace(answers, ctx.take_buffer());
            connection.output.queue(buffer, ctx.frame_batches(), output);
        }
        if connection.output.bytes() > 0 || !goes_on {
            self.connections.list_to_write(index);
        }
        if !goes_on {
            self.connections.watch_ending(index, self.now);
        }
        consumed
    }

    /// The peer sends nothing more.
    fn end_of_stream(&mut self, ctx: &mut Context<'_, E>, index: u32) {
        let answers = self.config.answers_after_end;
        let Some(connection) = self.connections.at(index) else { return };
        connection.socket.ended = true;
        if connection.socket.dead
            || !connection.used
            || matches!(connection.phase, ConnectionPhase::Draining(_))
        {
            self.remove(ctx, index, DisconnectReason::Closed);
            return;
        }
        if !connection.holds.stalled {
            // The beginning of a frame that will never be whole.
            ctx.give_buffer(connection.input.take());
        }
        connection.progress = ctx.now();
        let view = connection.view;
        if !answers
            && connection.holds.all_taken()
            && matches!(connection.phase, ConnectionPhase::Open)
        {
            connection.phase = ConnectionPhase::Flushing(DisconnectReason::Closed);
            self.connections.list_to_write(index);
        }
        self.connections.watch_ending(index, self.now);
        self.tell(ctx, view.owner, NetEvent::HalfClosed(view.reply_to), None);
    }

    /// Counts what a connection holds of an unfinished frame.
    fn count_input(&mut self, index: u32) {
        let Some(connection) = self.connections.at(index) else { return };
        connection.input.count(&mut self.input);
    }

    /// Tries again what stages had no room for.
    fn retry(&mut self, ctx: &mut Context<'_, E>) {
        if !self.retry_queue.is_empty() {
            let Self { retry_queue, connections, .. } = self;
            retry_queue.pump(ctx, |holder| {
                let Some(connection) = connections.holder(holder) else { return };
                if connection.holds.event_sent() {
                    connections.list_to_read(holder.0);
                }
            });
        }
        for index in std::mem::take(&mut self.stalled) {
            let Some(connection) =
                self.connections.at(index).filter(|connection| connection.holds.stalled)
            else {
                continue;
            };
            connection.holds.stalled = false;
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
        if connection.output.bytes() == 0 {
            connection.output.untaken_since = now;
        }
        let bytes = if connection.output.bytes() + frame_batch.bytes.len() > SCARCE_OUTPUT_BOUND {
            self.within_limit(ctx, index, frame_batch.bytes)
        } else {
            frame_batch.bytes
        };
        let Self { connections, output, .. } = self;
        let Some(connection) = connections.at(index) else { return };
        connection.output.queue(bytes, ctx.frame_batches(), output);
        let listed = connection.lists.to_write;
        if !listed && matches!(connection.phase, ConnectionPhase::Open) {
            self.connections.list_to_write(index);
        }
    }

    /// Writes what is queued for a connection, and takes the next step of its end, if it has come
    /// to that.
    fn write(&mut self, ctx: &mut Context<'_, E>, index: u32) {
        let (now, bound, reports) =
            (self.now, self.config.output_bound(), self.config.reports_written);
        let Self { connections, output, .. } = self;
        let Some(connection) = connections.at(index) else { return };
        connection.lists.to_write = false;
        let before = connection.output.bytes();
        let mut writes = 0;
        let written = connection.write(ctx.frame_batches(), &mut writes, output);
        let sent = before - connection.output.bytes();
        if sent > 0 {
            connection.progress = now;
            connection.output.untaken_since = now;
        }
        let resumes = connection.holds.output_full && connection.output.bytes() <= bound / 2;
        connection.holds.output_full &= !resumes;
        let report = connection.output.report(if reports { sent } else { 0 });
        let report = report.map(|bytes| (connection.view, bytes));
        let flushing = matches!(connection.phase, ConnectionPhase::Flushing(_));
        if sent < before {
            self.watch_for_stall(index);
        }
        self.metrics.writes_total.add(writes);
        self.metrics.bytes_sent_total.add(sent as u64);
        if let Some((ConnectionView { reply_to, owner, .. }, bytes)) = report {
            self.tell(ctx, owner, NetEvent::Written { reply_to, bytes }, None);
        }
        match written {
            WriteResult::Failed(error) => self.remove(ctx, index, DisconnectReason::Failed(error)),
            WriteResult::All if flushing => self.shut(ctx, index),
            WriteResult::All | WriteResult::Blocked => {
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
        let ConnectionPhase::Flushing(reason) =
            std::mem::replace(&mut connection.phase, ConnectionPhase::Open)
        else {
            return;
        };
        if connection.socket.ended || connection.socket.stream.shut_write().is_err() {
            self.remove(ctx, index, reason);
            return;
        }
        connection.phase = ConnectionPhase::Draining(reason);
        self.connections.watch_ending(index, self.now);
        if self.connections.list_to_read(index) {
            ctx.want_turn();
        }
    }

    // ---- ending ----

    fn close(&mut self, ctx: &mut Context<'_, E>, reply_to: ReplyAddress) {
        let Some((index, connection)) = self.connections.named(reply_to) else { return };
        match connection.phase {
            ConnectionPhase::Dialling => self.remove(ctx, index, DisconnectReason::Asked),
            ConnectionPhase::Open => {
                connection.phase = ConnectionPhase::Flushing(DisconnectReason::Asked);
                self.connections.list_to_write(index);
                self.connections.watch_ending(index, self.now);
            }
            ConnectionPhase::Flushing(_) | ConnectionPhase::Draining(_) => {}
        }
    }

    /// Forgets a connection, and tells its owner.
    fn remove(&mut self, ctx: &mut Context<'_, E>, index: u32, reason: DisconnectReason) {
        let Some(mut connection) = self.connections.take(index) else { return };
        if let Some(io) = ctx.io()
            && let Err(error) = connection.socket.stream.deregister(&io)
        {
            tracing::debug!(peer = %connection.view.peer, %error, "A closed connection was not \
                registered.");
        }
        if connection.view.peer.ip().is_loopback() {
            ctx.note_local_peers(-1);
        }
        connection.input.uncount(&mut self.input);
        connection.release(ctx.frame_batches(), &mut self.output);
        self.metrics.connections.set(self.connections.count() as u64);
        let ConnectionView { reply_to, peer, dial, owner } = connection.view;
        let event = match (connection.phase, dial, reason) {
            (ConnectionPhase::Dialling, Some(dial), DisconnectReason::Failed(error)) => {
                NetEvent::DialFailed { dial, address: peer, error }
            }
            (ConnectionPhase::Dialling, Some(dial), _) => NetEvent::DialFailed {
                dial,
                address: peer,
                error: io::ErrorKind::ConnectionAborted.into(),
            },
            // Whatever ended the wait for the peer, the reason is why the connection was being
            // closed.
            (ConnectionPhase::Flushing(reason) | ConnectionPhase::Draining(reason), dial, _)
            | (_, dial, reason) => NetEvent::Disconnected { reply_to, dial, reason },
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
        let now = self.now;
        while let Some(index) = self.connections.next_late_dial(now) {
            let late = io::ErrorKind::TimedOut.into();
            self.remove(ctx, index, DisconnectReason::Failed(late));
        }
        while let Some((index, connection)) = self.connections.next_ending(now) {
            let idle = now.since(connection.progress);
            let queued = connection.output.bytes() > 0;
            let over = match connection.phase {
                ConnectionPhase::Draining(_) => true,
                // The peer may be gone for good: only what it takes tells.
                ConnectionPhase::Open if self.config.closed_by_owner => {
                    queued && idle >= FLUSH_LINGER
                }
                _ if queued || !connection.holds.all_taken() => idle >= FLUSH_LINGER,
                _ => idle >= HALF_CLOSE_LINGER,
            };
            if over {
                self.remove(ctx, index, DisconnectReason::Closed);
            } else {
                self.connections.watch_ending(index, now);
            }
        }
        self.end_stalled(ctx);
        self.feed_starving(ctx);
        if self.acceptor.again.is_some_and(|at| at <= self.now) {
            self.acceptor.again = None;
        }
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
                Ok(NetCommand::Pause(reply_to)) => self.connections.pause(reply_to),
                Ok(NetCommand::Resume(reply_to)) => {
                    self.connections.resume(reply_to);
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
            if matches!(connection.phase, ConnectionPhase::Dialling) {
                connection.socket.note_input(event);
                if event.writable {
                    self.dialled(ctx, index);
                    self.connections.list_to_read(index);
                }
                continue;
            }
            connection.socket.note_input(event);
            connection.socket.note_output(event);
            let (writes, gone) = (
                connection.output.bytes() > 0 && event.writable,
                connection.socket.dead && connection.socket.ended,
            );
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
        if ctx.is_shutting_down() && !self.flush_deadline.is_set() {
            self.begin_shutdown(ctx);
        }
        self.expire(ctx);
        self.retry(ctx);
        if self.acceptor.again.is_none() {
            self.accept(ctx);
        }
        // Connections listed meanwhile belong to the next turn, and so does what is too much for
        // this one.
        let listed = self.connections.listed_to_read();
        let mut position = 0;
        self.read_bytes = 0;
        while position < listed && self.read_bytes < READ_BY_ALL_PER_TURN {
            if let Some(index) = self.connections.unlist_to_read(position) {
                self.receive(ctx, index);
                self.count_input(index);
            }
            position += 1;
        }
        self.connections.drop_to_read(position);
        if position < listed {
            ctx.want_turn();
        }
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
        let watched = self.connections.next_deadline(self.now);
        [watched, self.acceptor.again, retry].into_iter().flatten().min()
    }

    fn drained(&self) -> bool {
        let idle = |connection: &NetConnection| {
            connection.output.bytes() == 0
                && connection.holds.all_taken()
                && connection.takes_output()
        };
        self.retry_queue.is_empty() && self.connections.iter().all(idle)
    }
}
