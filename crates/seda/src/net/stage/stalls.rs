//! What bounds the memory of connections: peers that do not read, frames that are longer than what
//! is read at once.
//!
//! ```text
//!   queued > bound          not read from, until half of it is taken
//!   queued > limit          answers that may be asked for again become "busy"      (Protocol::shed)
//!   a long frame            reserved ─► collected ─► digested, or closed when its peer sends nothing for STALL_LIMIT
//!                              └─ no memory: not read from ─► reserved later, or told "busy" and closed after MEMORY_TIMEOUT
//!   nothing taken           closed after STALL_LIMIT, at a shutdown after SHUTDOWN_STALL_LIMIT
//! ```
//! What it does not do: bound what other stages keep for a connection; those have the process's
//! memory in common with it.

use std::time::Duration;

use timestone_types::Timestamp;

use super::NetStage;
use crate::limits::{
    OUTPUT_BOUND, OUTPUT_LIMIT, SCARCE_OUTPUT_BOUND, SHUTDOWN_FLUSH_LIMIT, SHUTDOWN_STALL_CHECK,
    SHUTDOWN_STALL_LIMIT, STALL_LIMIT,
};
use crate::net::connection::ConnectionPhase;
use crate::net::{Break, DisconnectReason, FrameBatchEvent, NetConfig, Protocol};
use crate::{Context, MemoryUse};

/// From the begin of a shutdown on: until when peers have time to take what waits for them. Who has
/// not by then is given up.
#[derive(Debug, Default)]
pub(super) struct FlushDeadline(Option<Timestamp>);

impl FlushDeadline {
    /// A shutdown has begun.
    pub(super) fn begin(&mut self, now: Timestamp) {
        assert!(self.0.is_none(), "a shutdown begins once");
        self.0 = Some(now.saturating_add(SHUTDOWN_FLUSH_LIMIT));
    }

    /// Whether a shutdown has begun.
    #[inline]
    pub(super) const fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// How often peers that may have stalled are looked at.
    fn check_interval(&self) -> Duration {
        if self.is_set() { SHUTDOWN_STALL_CHECK } else { STALL_LIMIT / 4 }
    }

    /// For how long a peer has to have taken nothing of what waits for it until it is given up;
    /// none while it is not.
    fn stall_limit(&self, now: Timestamp, accepted: bool) -> Option<Duration> {
        match self.0.filter(|_| !waits_for_readers()) {
            Some(until) if until <= now => Some(Duration::ZERO),
            Some(_) => Some(SHUTDOWN_STALL_LIMIT),
            None => accepted.then_some(STALL_LIMIT),
        }
    }
}

impl NetConfig {
    /// Output waiting for one connection above which it is not read from, as things are.
    #[inline]
    pub(super) fn output_bound(&self) -> usize {
        if self.memory.is_scarce(MemoryUse::Output) {
            self.output_bound_bytes.min(SCARCE_OUTPUT_BOUND)
        } else {
            self.output_bound_bytes
        }
    }

    /// Output waiting for one connection above which answers become "busy", as things are.
    fn output_limit(&self) -> usize {
        if self.memory.is_scarce(MemoryUse::Output) { OUTPUT_BOUND } else { OUTPUT_LIMIT }
    }
}

impl<E: FrameBatchEvent, P: Protocol> NetStage<E, P> {
    /// Answers for a connection that is owed much already: when it is too much, without those that
    /// may be asked for again.
    pub(super) fn within_limit(
        &mut self,
        ctx: &mut Context<'_, E>,
        index: u32,
        answers: Vec<u8>,
    ) -> Vec<u8> {
        let limit = self.config.output_limit();
        let Some(connection) = self.connections.at(index) else { return answers };
        let (view, queued) = (connection.view, connection.output.bytes());
        // A single answer of any length is sent: whoever reads gets everything.
        if queued == 0 || queued + answers.len() <= limit || view.dial.is_some() || ignores_limit()
        {
            return answers;
        }
        let mut kept = ctx.take_buffer();
        if !self.protocol.shed(&view, &answers, &mut kept) {
            ctx.give_buffer(kept);
            return answers;
        }
        self.metrics.shed_total.add(1);
        self.config.memory.note_refused(MemoryUse::Output);
        ctx.give_buffer(answers);
        kept
    }

    /// Reserves memory for the long frame that a connection has begun; if there is none, it waits.
    pub(super) fn reserve(&mut self, index: u32) -> bool {
        let Some(connection) = self.connections.at(index) else { return false };
        let bytes = connection.input.needed() as u64;
        let memory = &self.config.memory;
        // Answers are not kept waiting for memory: what was asked for them holds some until they
        // are here.
        let charge = match connection.view.dial {
            Some(_) => Some(memory.charge(MemoryUse::Input, bytes)),
            None => memory.try_charge(MemoryUse::Input, bytes),
        };
        let Some(charge) = charge else {
            self.connections.wait_for_memory(index, self.now);
            return false;
        };
        connection.input.reserve(charge, self.now);
        self.watch_for_stall(index);
        true
    }

    /// Lets those go on whose long frames waited for memory, in their order, and ends those that
    /// have waited for too long.
    pub(super) fn feed_starving(&mut self, ctx: &mut Context<'_, E>) {
        while let Some((until, index, connection)) = self.connections.first_starving() {
            let needed = connection.input.needed();
            if self.config.memory.has_room(MemoryUse::Input, needed as u64) {
                connection.holds.starving = false;
                self.connections.drop_first_starving();
                if self.reserve(index) && self.connections.list_to_read(index) {
                    ctx.want_turn();
                }
                continue;
            }
            if until > self.now {
                return;
            }
            self.connections.drop_first_starving();
            self.refuse_and_close(ctx, index, Break::NoMemory { needed });
        }
    }

    /// Tells a connection why it is closed, and closes it.
    fn refuse_and_close(&mut self, ctx: &mut Context<'_, E>, index: u32, reason: Break) {
        let Self { connections, protocol, input, output, .. } = self;
        let Some(connection) = connections.at(index) else { return };
        let mut answer = ctx.take_buffer();
        protocol.refuse(&connection.view, reason, &[], &mut answer);
        tracing::warn!(peer = %connection.view.peer, "A connection is closed: {reason}.");
        connection.output.queue(answer, ctx.frame_batches(), output);
        connection.phase = ConnectionPhase::Flushing(DisconnectReason::Broken(reason));
        ctx.give_buffer(connection.input.take());
        connection.input.count(input);
        self.connections.list_to_write(index);
        self.connections.watch_ending(index, self.now);
    }

    /// Has a connection looked at after a while, whose peer may have stalled.
    pub(super) fn watch_for_stall(&mut self, index: u32) {
        self.connections.watch_for_stall(index, self.now, self.flush_deadline.check_interval());
    }

    /// From the begin of a shutdown on, peers that read nothing are waited for only briefly: all of
    /// them are looked at again soon.
    pub(super) fn begin_shutdown(&mut self, ctx: &mut Context<'_, E>) {
        self.flush_deadline.begin(self.now);
        self.connections.watch_all_for_stall(self.now, self.flush_deadline.check_interval());
        self.acceptor.close(ctx.io());
    }

    /// Closes connections whose peers neither read nor go on sending.
    pub(super) fn end_stalled(&mut self, ctx: &mut Context<'_, E>) {
        let now = self.now;
        while let Some((index, connection)) = self.connections.next_slow(now) {
            let (peer, queued) = (connection.view.peer, connection.output.bytes());
            let untaken = now.since(connection.output.untaken_since);
            let limit = self.flush_deadline.stall_limit(now, connection.view.dial.is_none());
            if queued > 0 && limit.is_some_and(|limit| untaken >= limit) {
                tracing::warn!(%peer, queued, "A connection is closed: its peer has read nothing \
                    for {untaken:?}.");
            } else if connection.input.is_reserved()
                && now.since(connection.input.read_at) >= STALL_LIMIT
            {
                tracing::warn!(%peer, "A connection is closed: its peer has sent nothing of a long \
                    frame for {STALL_LIMIT:?}.");
            } else {
                if connection.may_stall() {
                    self.watch_for_stall(index);
                }
                continue;
            }
            self.metrics.stalled_total.add(1);
            self.remove(ctx, index, DisconnectReason::Stalled);
        }
    }
}

/// Whether a connection that is owed too much gets more all the same.
fn ignores_limit() -> bool {
    timestone_types::is_planted!(BoundlessOutput)
}

/// Whether a shutdown waits for peers that read nothing.
fn waits_for_readers() -> bool {
    timestone_types::is_planted!(WaitsForReaders)
}
