//! What bounds the gateway's memory: answers that are not read, commands that wait, long commands.
//!
//! ```text
//!   owed = answers here + sent and not written     over the bound: no further command starts, and a long value that arrives all the same
//!                                                  is dropped and read again when there is room (a read changes nothing)
//!   commands that wait                             over the bound: the net stage is told to pause; they wait in the socket
//!   a long command                                 reserved ─► received ─► carried out
//!                                                     └─ no memory: paused ─► reserved later, or TRYAGAIN and closed
//! ```
//! All of it is counted in bytes and published to the process's [`Memory`](timestone_seda::Memory),
//! in steps.

use timestone_seda::limits::{MEMORY_RETRY, MEMORY_TIMEOUT, SCARCE_OUTPUT_BOUND, STALL_LIMIT};
use timestone_seda::{Charge, Memory, MemoryUse};
use timestone_session::{OpId, RequestOptions};
use timestone_types::Timestamp;
use timestone_wire::resp::ReplyWriter;

use super::connection::{Connection, ConnectionIndex};
use super::core::Core;
use super::failure::Failure;
use super::job::{Asker, Operation};
use super::limits::{
    OUTPUT_BOUND_BYTES, PAUSE_BACKLOG_BYTES, SCARCE_BACKLOG_BYTES, SCARCE_UNRESERVED_BYTES,
    UNRESERVED_BYTES,
};
use super::view::KEYSPACE;
use super::words::Words;

impl Core {
    /// What the process uses of its memory, as far as it is counted: data, pages on their way, and
    /// what connections cause.
    pub(super) fn memory_bytes(&self) -> u64 {
        let uses = [MemoryUse::Input, MemoryUse::Writes, MemoryUse::Output];
        let connections: u64 = uses.into_iter().map(|of| self.memory.used(of)).sum();
        self.gauges.dataset_bytes() + self.gauges.buffer_bytes() + connections
    }

    /// Bytes of answers that one connection may be owed.
    pub(super) fn output_bound(&self) -> usize {
        output_bound(&self.memory)
    }

    /// The net stage has written so much of what it was sent for a connection.
    pub(super) fn written(&mut self, index: ConnectionIndex, bytes: usize) {
        if let Some(connection) = self.connection(index) {
            connection.unwritten = connection.unwritten.saturating_sub(bytes);
            self.answered(index);
        }
    }

    /// Asks again for values that had found no room, as far as there is some now.
    pub(super) fn ask_again(&mut self, now: Timestamp, index: ConnectionIndex, bound: usize) {
        let session = self.session;
        let Self { connections, engine, .. } = self;
        let Some(connection) = connections.get_mut(index.0 as usize).and_then(Option::as_deref_mut)
        else {
            return;
        };
        if !connection.replies.has_shed() {
            return;
        }
        if connection.gone {
            // Nobody reads them. Unanswered they would keep the connection for ever.
            while let Some((slot, _)) = connection.replies.ask_again(|_, _| true) {
                connection.answer(slot, |_| ());
            }
            return;
        }
        let owed = connection.owed();
        let fits = |first: bool, length: usize| owed.has_room(first, length, bound);
        let Some((slot, position)) = connection.replies.ask_again(fits) else { return };
        let mut words = Words::default();
        let asked = match connection.inbox.read_again(position, &mut words) {
            Some(_) => {
                let op = OpId(Operation::Fast(index, slot).pack());
                let key = words.word(1);
                engine
                    .get_latest(now, session, KEYSPACE, key, RequestOptions::default(), op)
                    .map(drop)
                    .map_err(Failure::from)
            }
            None => Err(Failure::INTERNAL),
        };
        if let Err(failure) = asked {
            let protocol = connection.client.protocol;
            connection
                .answer(slot, |out| ReplyWriter::new(out, protocol).error_bytes(failure.bytes()));
            if timestone_types::is_planted!(SleepingReads) {
                return;
            }
            // Nothing is under way whose answer would let those behind it be asked for.
            self.answered(index);
        }
    }

    /// Whether the answer of a job to this command, of this length, may be kept.
    pub(super) fn takes_answer(&self, asker: Asker, length: usize) -> bool {
        let connection =
            self.connections.get(asker.connection.0 as usize).and_then(Option::as_deref);
        connection.is_none_or(|connection| {
            let first = connection.replies.is_first(asker.slot) && !lets_oldest_wait();
            connection.gone
                || connection.owed().has_room(first, length, self.output_bound().max(length))
        })
    }

    /// A connection has begun a command of which at least `needed` bytes are missing.
    pub(super) fn collect(&mut self, now: Timestamp, index: ConnectionIndex, needed: usize) {
        let memory = std::sync::Arc::clone(&self.memory);
        let is_scarce = memory.is_scarce(MemoryUse::Input) && !ignores_begun();
        let unreserved = if is_scarce { SCARCE_UNRESERVED_BYTES } else { UNRESERVED_BYTES };
        let Some(connection) = self.connection(index) else { return };
        let waiting = connection.inbox.waiting_bytes();
        let bytes = waiting + needed;
        let reserved = connection.reservation.as_ref().map_or(0, |charge| charge.bytes() as usize);
        if bytes <= unreserved.max(reserved) || connection.starving.is_some() {
            return;
        }
        // A command of many arguments grows piece by piece: a quarter ahead, so that it is not
        // moved at each of them.
        let wanted = if reserved > 0 { bytes + bytes / 4 } else { bytes };
        let granted = match &mut connection.reservation {
            Some(charge) => charge.try_grow((wanted - reserved) as u64),
            none => {
                *none = memory.try_charge(MemoryUse::Input, wanted as u64);
                none.is_some()
            }
        };
        if granted {
            let missing = wanted - waiting;
            connection.inbox.reserve(missing);
        } else {
            connection.starving = Some((now.saturating_add(MEMORY_TIMEOUT), needed));
            self.starving.push_back(index);
        }
    }

    /// Lets long commands go on that waited for memory, in their order; ends those that have waited
    /// for too long.
    pub(super) fn feed_starving(&mut self, now: Timestamp) {
        while let Some(&index) = self.starving.front() {
            let Some((until, needed)) =
                self.connection(index).and_then(|connection| connection.starving)
            else {
                self.starving.pop_front();
                continue;
            };
            let Some(connection) = self.connection(index) else { return };
            connection.starving = None;
            self.starving.pop_front();
            self.list(index);
            self.collect(now, index, needed);
            let Some(connection) = self.connection(index) else { return };
            if connection.starving.is_none() {
                continue;
            }
            // Still none: it keeps its place.
            self.starving.pop_back();
            let Some(connection) = self.connection(index) else { return };
            if until > now {
                connection.starving = Some((until, needed));
                self.starving.push_front(index);
                return;
            }
            connection.starving = None;
            tracing::warn!(peer = %connection.client.peer, needed, "a redis client's command found \
                no memory; its connection is closed");
            let position = connection.inbox.position();
            connection.refuse(position, &Failure::NO_MEMORY_FOR_COMMAND);
            connection.closing = true;
            connection.inbox.discard();
        }
    }

    /// Closes connections that hold memory for a long command of which nothing has come for a long
    /// time. While input is scarce, whoever has sent nothing for as long holds no more than its
    /// share of it, whatever for: a queue of MULTI or a begun command ends with its connection, and
    /// what is watched is forgotten.
    pub(super) fn end_stalled(&mut self, now: Timestamp) {
        if now < self.next_stall_check {
            return;
        }
        self.next_stall_check = now.saturating_add(STALL_LIMIT / 4);
        let scarce = self.memory.is_scarce(MemoryUse::Input);
        let share = if scarce { self.fair_share() } else { u64::MAX };
        for at in 0..self.connections.len() {
            let Some(connection) =
                self.connections[at].as_deref_mut().filter(|connection| !connection.closing)
            else {
                continue;
            };
            if !connection.replies.is_empty()
                || now.since(connection.client.last_seen) < STALL_LIMIT
            {
                continue;
            }
            let charged = |charge: Option<&Charge>| charge.map_or(0, Charge::bytes);
            let queued = charged(connection.multi.as_ref().and_then(|multi| multi.charge.as_ref()));
            let watched = charged(connection.watched_charge.as_ref());
            // What waits for other commands is not begun only.
            let begun = if connection.blocked || ignores_begun() {
                0
            } else {
                connection.inbox.waiting_bytes() as u64
            };
            if connection.reservation.is_some() || begun + queued > share {
                tracing::warn!(
                    peer = %connection.client.peer,
                    "a redis client has sent nothing of what it began for {STALL_LIMIT:?}; its \
                     connection is closed"
                );
                connection.closing = true;
                connection.reservation = None;
                connection.end_multi();
                connection.inbox.discard();
                self.list(ConnectionIndex(at as u32));
            } else if watched > 0 && begun + queued + watched > share && !ignores_watched() {
                tracing::warn!(
                    peer = %connection.client.peer,
                    keys = connection.watched.len(),
                    "the memory for input is scarce: what a redis client watches that has sent \
                     nothing for {STALL_LIMIT:?} is forgotten"
                );
                connection.lose_watched();
            }
        }
    }

    /// What one client may hold of the memory for input while it is scarce and the client is
    /// silent: if all did, it would not be scarce.
    fn fair_share(&self) -> u64 {
        let clients = self.clients.len().max(1) as u64 * self.gauges.gateways();
        self.memory.limit(MemoryUse::Input) / 2 / clients
    }

    /// When [`Core::feed_starving`] has something to do.
    pub(super) fn memory_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let waits = !self.starving.is_empty() || !self.without_memory.is_empty();
        let feeds = waits.then(|| now.saturating_add(MEMORY_RETRY));
        let holds =
            self.input.bytes() > UNRESERVED_BYTES as u64 || self.memory.is_scarce(MemoryUse::Input);
        feeds.into_iter().chain(holds.then_some(self.next_stall_check)).min()
    }

    /// Counts what a connection holds now.
    pub(super) fn count(&mut self, index: ConnectionIndex) {
        let Self { connections, input, output, .. } = self;
        let Some(connection) = connections.get_mut(index.0 as usize).and_then(Option::as_deref_mut)
        else {
            return;
        };
        let reserved = connection.reservation.as_ref().map_or(0, timestone_seda::Charge::bytes);
        let held = (connection.inbox.memory_bytes() as u64).saturating_sub(reserved);
        let held = held + connection.client.memory_bytes() as u64;
        // What is sent is counted where it is queued.
        let owed = connection.replies.memory_bytes() as u64;
        let before = core::mem::replace(&mut connection.counted, (held, owed));
        if before != (held, owed) {
            input.change(before.0, held);
            output.change(before.1, owed);
        }
    }

    /// Whether the net stage should read nothing more from a connection, if that is not how it is.
    pub(super) fn change_of_pause(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
    ) -> Option<bool> {
        let scarce = self.memory.is_scarce(MemoryUse::Input);
        let connection = self.connection(index)?;
        let bound = if scarce { SCARCE_BACKLOG_BYTES } else { PAUSE_BACKLOG_BYTES };
        let bound = if connection.paused { bound / 2 } else { bound };
        let pause = should_pause(connection, bound);
        let changes = core::mem::replace(&mut connection.paused, pause) != pause;
        if changes && !pause && !blames_unread() {
            // It was not silent as long as nobody has read from it.
            connection.client.last_seen = now;
        }
        changes.then_some(pause)
    }
}

/// Bytes of answers that one connection may be owed.
pub(super) fn output_bound(memory: &Memory) -> usize {
    if memory.is_scarce(MemoryUse::Output) { SCARCE_OUTPUT_BOUND } else { OUTPUT_BOUND_BYTES }
}

fn should_pause(connection: &Connection, bound: usize) -> bool {
    !connection.closing
        && (connection.starving.is_some()
            || connection.blocked && connection.inbox.backlog() > bound)
}

/// Whether the oldest command's answer waits for those behind it to leave, which wait for it.
fn lets_oldest_wait() -> bool {
    timestone_types::is_planted!(OldestAnswerWaits)
}

/// Whether silent clients keep what they watch, however scarce memory is.
fn ignores_watched() -> bool {
    timestone_types::is_planted!(SilentWatchers)
}

/// Whether clients count as silent for as long as nothing was read from them.
fn blames_unread() -> bool {
    timestone_types::is_planted!(BlamedForPauses)
}

/// Whether commands that are begun are bounded one by one only.
fn ignores_begun() -> bool {
    timestone_types::is_planted!(BoundlessBeginnings)
}

/// Whether answers are not counted between the batch of frames that brings them and the net stage.
pub(super) fn forgets_passing() -> bool {
    timestone_types::is_planted!(UncountedPassing)
}

/// Whether connections are owed more and more, whether they read it or not.
pub(super) fn ignores_bound() -> bool {
    timestone_types::is_planted!(BoundlessOutput)
}
