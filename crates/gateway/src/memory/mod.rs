//! What bounds the gateway's memory: answers that are not read, commands that wait, long commands.
//!
//! ```text
//!   owed = answers here + sent and not written     over the bound: no further command starts, and a long value that arrives all the same
//!                                                  is dropped and read again when there is room (a read changes nothing)
//!   commands that wait                             over the bound: the net stage is told to pause; they wait in the socket
//!   a long command                                 reserved ─► received ─► carried out
//!                                                     └─ no memory: paused ─► reserved later, or TRYAGAIN and closed
//! ```
//! What jobs make out of what is there is counted in [`derived`]. All of it is counted in bytes and published to the process's [`Memory`](timestone_seda::Memory),
//! in steps.

pub(crate) mod derived;

use std::collections::VecDeque;
use std::sync::Arc;

use timestone_seda::limits::{MEMORY_RETRY, MEMORY_TIMEOUT, SCARCE_OUTPUT_BOUND, STALL_LIMIT};
use timestone_seda::{Charge, Memory, MemoryUse, Tally};
use timestone_types::Timestamp;

use self::derived::DerivedValues;
use crate::connection::table::Connections;
use crate::connection::{Connection, ConnectionIndex, MemoryWait};
use crate::failure::Failure;
use crate::figures::GatewayGauges;
use crate::jobs::job::Requester;
use crate::limits::{
    CHARGED_ANSWER_BYTES, OUTPUT_BOUND_BYTES, PAUSE_BACKLOG_BYTES, SCARCE_BACKLOG_BYTES,
    SCARCE_UNRESERVED_BYTES, UNRESERVED_BYTES,
};

/// The process's memory for connections, and what this gateway has of it.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    process: Arc<Memory>,
    input: Tally,
    output: Tally,
    pub(crate) derived: DerivedValues,
    /// Connections whose long commands wait for memory, in their order.
    waiting: VecDeque<ConnectionIndex>,
    next_idle_check: Timestamp,
}

impl MemoryBudget {
    /// Nothing yet of this memory.
    pub(crate) fn new(process: &Arc<Memory>) -> Self {
        Self {
            process: Arc::clone(process),
            input: Tally::new(process, MemoryUse::Input),
            output: Tally::new(process, MemoryUse::Output),
            derived: DerivedValues::new(process),
            waiting: VecDeque::new(),
            next_idle_check: Timestamp::ZERO,
        }
    }

    /// The process's memory.
    #[inline]
    pub(crate) const fn process(&self) -> &Arc<Memory> {
        &self.process
    }

    /// What the process uses of its memory for connections, as far as it is counted.
    pub(crate) fn used_by_connections(&self) -> u64 {
        let uses = [MemoryUse::Input, MemoryUse::Writes, MemoryUse::Output];
        uses.into_iter().map(|of| self.process.used(of)).sum()
    }

    /// Bytes of answers that one connection may be owed.
    #[inline]
    pub(crate) fn output_bound(&self) -> usize {
        output_bound(&self.process)
    }

    /// Whether the answer of a job to this command, of this length, may be kept.
    pub(crate) fn takes_answer(
        &self,
        connection: &Connection,
        requester: Requester,
        length: usize,
    ) -> bool {
        let first = connection.replies.is_first(requester.reply_id) && !lets_oldest_wait();
        connection.life.gone
            || connection.owed().has_room(first, length, self.output_bound().max(length))
    }

    /// A connection has begun a command of which at least `needed` bytes are missing.
    pub(crate) fn collect(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        connection: &mut Connection,
        needed: usize,
    ) {
        let is_scarce = self.process.is_scarce(MemoryUse::Input) && !ignores_begun();
        let unreserved = if is_scarce { SCARCE_UNRESERVED_BYTES } else { UNRESERVED_BYTES };
        let waiting = connection.inbox.waiting_bytes();
        let bytes = waiting + needed;
        let reserved = connection.usage.reserved() as usize;
        if bytes <= unreserved.max(reserved) || connection.usage.wait.is_some() {
            return;
        }
        // A command of many arguments grows piece by piece: a quarter ahead, so that it is not
        // moved at each of them.
        let wanted = if reserved > 0 { bytes + bytes / 4 } else { bytes };
        let granted = match &mut connection.usage.reservation {
            Some(charge) => charge.try_grow((wanted - reserved) as u64),
            none => {
                *none = self.process.try_charge(MemoryUse::Input, wanted as u64);
                none.is_some()
            }
        };
        if granted {
            assert!(wanted >= waiting, "it is collected because bytes of it are missing");
            connection.inbox.reserve(wanted - waiting);
        } else {
            let until = now.saturating_add(MEMORY_TIMEOUT);
            connection.usage.wait = Some(MemoryWait { until, needed });
            self.waiting.push_back(index);
        }
    }

    /// Lets long commands go on that waited for memory, in their order; ends those that have waited
    /// for too long.
    pub(crate) fn resume_waiting(&mut self, now: Timestamp, connections: &mut Connections) {
        while let Some(index) = self.waiting.pop_front() {
            let connection = connections.get_mut(index);
            let Some(wait) = connection.and_then(|connection| connection.usage.wait.take()) else {
                continue;
            };
            connections.list(index);
            let Some(connection) = connections.get_mut(index) else { return };
            self.collect(now, index, connection, wait.needed);
            if connection.usage.wait.is_none() {
                continue;
            }
            // Still none: it keeps its place.
            let last = self.waiting.pop_back();
            assert_eq!(last, Some(index), "what finds no memory waits behind the others");
            if wait.until > now {
                connection.usage.wait = Some(wait);
                return self.waiting.push_front(index);
            }
            connection.usage.wait = None;
            tracing::warn!(peer = %connection.client.peer, needed = wait.needed, "a redis client's \
                command found no memory; its connection is closed");
            let position = connection.inbox.position();
            connection.refuse(position, &Failure::NO_MEMORY_FOR_COMMAND);
            connection.close();
        }
    }

    /// Closes connections that hold memory for a long command of which nothing has come for a long
    /// time. While input is scarce, whoever has sent nothing for as long holds no more than its
    /// share of it, whatever for: a queue of MULTI or a begun command ends with its connection, and
    /// what is watched is forgotten. `gauges` know how many gateways share
    /// the process's memory.
    pub(crate) fn end_idle(
        &mut self,
        now: Timestamp,
        connections: &mut Connections,
        gauges: &GatewayGauges,
    ) {
        if now < self.next_idle_check {
            return;
        }
        self.next_idle_check = now.saturating_add(STALL_LIMIT / 4);
        assert!(self.next_idle_check > now, "nobody is looked at twice in a turn");
        let is_scarce = self.process.is_scarce(MemoryUse::Input);
        let share = if is_scarce {
            self.fair_share(connections.clients().max(1) as u64 * gauges.gateways())
        } else {
            u64::MAX
        };
        for index in connections.indices() {
            let connection = connections.get_mut(index);
            let Some(connection) = connection.filter(|connection| is_silent(connection, now))
            else {
                continue;
            };
            if end_idle_connection(connection, share) {
                connections.list(index);
            }
        }
    }

    /// What one of so many clients may hold of the memory for input while it is scarce and the
    /// client is silent: if all did, it would not be scarce.
    fn fair_share(&self, clients: u64) -> u64 {
        assert!(clients > 0, "somebody shares it");
        self.process.limit(MemoryUse::Input) / 2 / clients
    }

    /// When [`Self::resume_waiting`] or [`Self::end_idle`] has something to do.
    pub(crate) fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let waits = !self.waiting.is_empty() || self.derived.has_waiting();
        let feeds = waits.then(|| now.saturating_add(MEMORY_RETRY));
        let holds = self.input.bytes() > UNRESERVED_BYTES as u64
            || self.process.is_scarce(MemoryUse::Input);
        feeds.into_iter().chain(holds.then_some(self.next_idle_check)).min()
    }

    /// Counts what a connection holds now.
    pub(crate) fn count(&mut self, connection: &mut Connection) {
        let held =
            (connection.inbox.memory_bytes() as u64).saturating_sub(connection.usage.reserved());
        let held = held + connection.client.memory_bytes() as u64;
        // What is sent is counted where it is queued.
        let owed = connection.replies.memory_bytes() as u64;
        let before = core::mem::replace(&mut connection.usage.counted, (held, owed));
        if before != (held, owed) {
            self.input.change(before.0, held);
            self.output.change(before.1, owed);
        }
        debug_assert!(self.input.bytes() >= held, "what a connection holds is counted");
    }

    /// A connection that was removed holds nothing any more.
    pub(crate) fn forget(&mut self, connection: &Connection) {
        assert!(connection.life.gone, "a connection is counted until its client has left");
        let (input, output) = connection.usage.counted;
        self.input.change(input, 0);
        self.output.change(output, 0);
    }

    /// Memory for the buffer of answers on its way to the net stage, which counts it when it takes
    /// it: shards may answer before that.
    pub(crate) fn charge_output(&self, bytes: usize) -> Option<Charge> {
        let is_charged = bytes >= CHARGED_ANSWER_BYTES && !forgets_passing();
        is_charged.then(|| self.process.charge(MemoryUse::Output, bytes as u64))
    }

    /// Memory for an answer that is made at once, twice: in the buffer that all commands share, and
    /// in its connection's. Nothing for a short one: those are bounded by what a connection may be
    /// owed.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn charge_local(&self, bytes: usize) -> Result<Option<Charge>, Failure> {
        if bytes < CHARGED_ANSWER_BYTES || ignores_local_answers() {
            return Ok(None);
        }
        let charge = self.process.try_charge(MemoryUse::Output, 2 * bytes as u64);
        charge.map(Some).ok_or(Failure::NO_MEMORY_FOR_ANSWER)
    }

    /// Whether the net stage should read nothing more from a connection, if that is not how it is.
    pub(crate) fn change_of_pause(
        &self,
        now: Timestamp,
        connection: &mut Connection,
    ) -> Option<bool> {
        let is_scarce = self.process.is_scarce(MemoryUse::Input);
        let bound = if is_scarce { SCARCE_BACKLOG_BYTES } else { PAUSE_BACKLOG_BYTES };
        let bound = if connection.turn.paused { bound / 2 } else { bound };
        let pause = should_pause(connection, bound);
        debug_assert!(!pause || !connection.life.gone, "nobody who has left is paused");
        let changes = core::mem::replace(&mut connection.turn.paused, pause) != pause;
        if changes && !pause && !blames_unread() {
            // It was not silent as long as nobody has read from it.
            connection.client.last_seen = now;
        }
        changes.then_some(pause)
    }
}

/// Whether a client is owed nothing and has sent nothing for a long time.
fn is_silent(connection: &Connection, now: Timestamp) -> bool {
    !connection.life.closing
        && connection.replies.is_empty()
        && now.since(connection.client.last_seen) >= STALL_LIMIT
}

/// Ends what a silent client holds above `share` bytes; whether its connection is closed by that.
fn end_idle_connection(connection: &mut Connection, share: u64) -> bool {
    debug_assert!(!connection.life.closing, "who is closed holds nothing for long");
    let queued = connection.transaction.queued_bytes();
    let watched = connection.transaction.watched_bytes();
    // What waits for other commands is not begun only.
    let begun = if connection.turn.blocked || ignores_begun() {
        0
    } else {
        connection.inbox.waiting_bytes() as u64
    };
    if connection.usage.reservation.is_some() || begun + queued > share {
        tracing::warn!(
            peer = %connection.client.peer,
            "a redis client has sent nothing of what it began for {STALL_LIMIT:?}; its \
             connection is closed"
        );
        connection.usage.reservation = None;
        connection.end_multi();
        connection.close();
        return true;
    }
    if watched > 0 && begun + queued + watched > share && !ignores_watched() {
        tracing::warn!(
            peer = %connection.client.peer,
            keys = connection.transaction.watched.len(),
            "the memory for input is scarce: what a redis client watches that has sent nothing \
             for {STALL_LIMIT:?} is forgotten"
        );
        connection.lose_watched();
    }
    false
}

/// Bytes of answers that one connection may be owed.
pub(crate) fn output_bound(memory: &Memory) -> usize {
    if memory.is_scarce(MemoryUse::Output) { SCARCE_OUTPUT_BOUND } else { OUTPUT_BOUND_BYTES }
}

fn should_pause(connection: &Connection, bound: usize) -> bool {
    !connection.life.closing
        && (connection.usage.wait.is_some()
            || connection.turn.blocked && connection.inbox.backlog() > bound)
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
pub(crate) fn forgets_passing() -> bool {
    timestone_types::is_planted!(UncountedPassing)
}

/// Whether commands that touch no key answer whatever they are asked, however long it gets.
pub(crate) fn ignores_local_answers() -> bool {
    timestone_types::is_planted!(BoundlessLocalAnswers)
}

/// Whether connections are owed more and more, whether they read it or not.
pub(crate) fn ignores_bound() -> bool {
    timestone_types::is_planted!(BoundlessOutput)
}
