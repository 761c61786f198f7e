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

use super::{NetStage, SCRATCH_HEAD};
use crate::Context;
use crate::MemoryUse;
use crate::limits::{
    MEMORY_TIMEOUT, OUTPUT_BOUND, OUTPUT_LIMIT, SCARCE_OUTPUT_BOUND, SHUTDOWN_FLUSH_LIMIT,
    SHUTDOWN_STALL_CHECK, SHUTDOWN_STALL_LIMIT, STALL_LIMIT,
};
use crate::net::connection::{Connection, Phase};
use crate::net::{Break, DisconnectReason, FrameBatchEvent, Protocol};

/// Whether a connection is about to collect a frame for which no memory is reserved yet.
pub(super) fn collects_unreserved(connection: &Connection, scratch: usize) -> bool {
    let collects = connection.received.len() > SCRATCH_HEAD || connection.needed > scratch;
    collects && connection.reservation.is_none()
}

impl<E: FrameBatchEvent, P: Protocol> NetStage<E, P> {
    /// Output waiting for one connection above which it is not read from.
    pub(super) fn output_bound(&self) -> usize {
        let bound = self.config.output_bound_bytes;
        if self.config.memory.is_scarce(MemoryUse::Output) {
            bound.min(SCARCE_OUTPUT_BOUND)
        } else {
            bound
        }
    }

    /// Answers for a connection that is owed much already: when it is too much, without those that
    /// may be asked for again.
    pub(super) fn within_limit(
        &mut self,
        ctx: &mut Context<'_, E>,
        index: u32,
        answers: Vec<u8>,
    ) -> Vec<u8> {
        let limit = if self.config.memory.is_scarce(MemoryUse::Output) {
            OUTPUT_BOUND
        } else {
            OUTPUT_LIMIT
        };
        let Some(connection) = self.connections.at(index) else { return answers };
        let (view, queued) = (connection.view, connection.queued);
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
        let (now, memory) = (self.now, std::sync::Arc::clone(&self.config.memory));
        let Some((holder, connection)) = self.connections.held_at(index) else { return false };
        let bytes = connection.needed.max(connection.received.len());
        let Some(charge) = memory.try_charge(MemoryUse::Input, bytes as u64) else {
            if !connection.starving {
                connection.starving = true;
                self.watches.starving.push_back((now.saturating_add(MEMORY_TIMEOUT), holder));
            }
            return false;
        };
        connection.reservation = Some(charge);
        connection.received.reserve_exact(bytes - connection.received.len());
        connection.read_at = now;
        self.watch_for_stall(index);
        true
    }

    /// Lets those go on whose long frames waited for memory, in their order, and ends those that
    /// have waited for too long.
    pub(super) fn feed_starving(&mut self, ctx: &mut Context<'_, E>) {
        while let Some(&(until, holder)) = self.watches.starving.front() {
            let Some(connection) =
                self.connections.holder(holder).filter(|connection| connection.starving)
            else {
                self.watches.starving.pop_front();
                continue;
            };
            let needed = connection.needed.max(connection.received.len());
            if self.config.memory.has_room(MemoryUse::Input, needed as u64) {
                self.watches.starving.pop_front();
                if let Some(connection) = self.connections.holder(holder) {
                    connection.starving = false;
                }
                if self.reserve(holder.0) && self.connections.list_to_read(holder.0) {
                    ctx.want_turn();
                }
                continue;
            }
            if until > self.now {
                return;
            }
            self.watches.starving.pop_front();
            self.end_with_words(ctx, holder.0, Break::NoMemory { needed });
        }
    }

    /// Tells a connection why it is closed, and closes it.
    fn end_with_words(&mut self, ctx: &mut Context<'_, E>, index: u32, reason: Break) {
        let Self { connections, protocol, output, .. } = self;
        let Some(connection) = connections.at(index) else { return };
        let mut words = ctx.take_buffer();
        protocol.refuse(&connection.view, reason, &[], &mut words);
        tracing::warn!(peer = %connection.view.peer, "A connection is closed: {reason}.");
        connection.queue(words, ctx.frame_batches(), output);
        connection.phase = Phase::Flushing(DisconnectReason::Broken(reason));
        ctx.give_buffer(std::mem::take(&mut connection.received));
        self.count_input(index);
        self.connections.list_to_write(index);
        self.watch(index);
    }

    /// Counts what a connection holds of an unfinished frame, beside what is reserved for it.
    pub(super) fn count_input(&mut self, index: u32) {
        let Some(connection) = self.connections.at(index) else { return };
        let reserved = connection.reservation.as_ref().map_or(0, crate::Charge::bytes);
        let bytes = (connection.received.capacity() as u64).saturating_sub(reserved);
        let before = std::mem::replace(&mut connection.counted, bytes);
        if before != bytes {
            self.input.change(before, bytes);
        }
    }

    /// Has a connection looked at after a while, whose peer may have stalled.
    pub(super) fn watch_for_stall(&mut self, index: u32) {
        let Some((holder, connection)) = self.connections.held_at(index) else { return };
        if !std::mem::replace(&mut connection.slow, true) {
            let pause =
                if self.flush_until.is_some() { SHUTDOWN_STALL_CHECK } else { STALL_LIMIT / 4 };
            self.watches.slow.push_back((self.now.saturating_add(pause), holder));
        }
    }

    /// From the begin of a shutdown on, peers that read nothing are waited for only briefly: all of
    /// them are looked at again soon.
    pub(super) fn hurry(&mut self) {
        self.flush_until = Some(self.now.saturating_add(SHUTDOWN_FLUSH_LIMIT));
        self.watches.slow.clear();
        for index in 0..self.connections.slots() {
            let Some(connection) = self.connections.at(index) else { continue };
            connection.slow = false;
            if connection.queued > 0 || connection.reservation.is_some() {
                self.watch_for_stall(index);
            }
        }
    }

    /// For how long a peer has to have taken nothing of what waits for it until it is given up;
    /// none while it is not.
    fn stall_limit(&self, accepted: bool) -> Option<Duration> {
        match self.flush_until.filter(|_| !waits_for_readers()) {
            Some(until) if until <= self.now => Some(Duration::ZERO),
            Some(_) => Some(SHUTDOWN_STALL_LIMIT),
            None => accepted.then_some(STALL_LIMIT),
        }
    }

    /// Closes connections whose peers neither read nor go on sending.
    pub(super) fn end_stalled(&mut self, ctx: &mut Context<'_, E>) {
        while let Some((_, holder)) = self.watches.slow.pop_front_if(|(at, _)| *at <= self.now) {
            let now = self.now;
            let Some(connection) = self.connections.holder(holder) else { continue };
            connection.slow = false;
            let (peer, queued) = (connection.view.peer, connection.queued);
            let (accepted, untaken) =
                (connection.view.dial.is_none(), now.since(connection.untaken_since));
            let limit = self.stall_limit(accepted);
            let Some(connection) = self.connections.holder(holder) else { continue };
            if queued > 0 && limit.is_some_and(|limit| untaken >= limit) {
                tracing::warn!(%peer, queued, "A connection is closed: its peer has read nothing \
                    for {untaken:?}.");
            } else if connection.reservation.is_some()
                && now.since(connection.read_at) >= STALL_LIMIT
            {
                tracing::warn!(%peer, "A connection is closed: its peer has sent nothing of a long \
                    frame for {STALL_LIMIT:?}.");
            } else {
                if queued > 0 || connection.reservation.is_some() {
                    self.watch_for_stall(holder.0);
                }
                continue;
            }
            self.metrics.stalled_total.add(1);
            self.remove(ctx, holder.0, DisconnectReason::Stalled);
        }
    }

    /// Reads nothing more from a connection, or reads on.
    pub(super) fn pause(&mut self, reply_to: crate::ReplyAddress, paused: bool) {
        let Some((index, connection)) = self.connections.named(reply_to) else { return };
        connection.paused = paused;
        if !paused {
            self.connections.list_to_read(index);
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
