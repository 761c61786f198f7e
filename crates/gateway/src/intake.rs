//! From received bytes to commands under way: a connection's inbox is read until a command must
//! wait or nothing is left.
//!
//! ```text
//!   bytes ─► inbox ─► one command ─┬─ GET, SET: fast path ─► backend
//!                                  ├─ no redis client: answered in its own protocol, closed
//!                                  └─ anything else ─► Dispatcher
//! ```
//! Deliberately absent: what commands mean, and what becomes of them.

use timestone_types::Timestamp;
use timestone_wire::resp::{Parsed, ProtocolError, ReplyWriter};
use timestone_wire::strangers::Stranger;

use crate::backend::Backend;
use crate::commands::arguments::ArgumentBuffer;
use crate::commands::table::{Class, find};
use crate::connection::inbox::StreamPosition;
use crate::connection::replies::ReplyId;
use crate::connection::{Connection, ConnectionIndex};
use crate::dispatch::{Dispatcher, Disposition};
use crate::failure::Failure;
use crate::fast::{FastPath, SimpleCommand};
use crate::jobs::job::{JobKind, Operation, Requester};
use crate::limits::{ANSWER_BYTES_A_COMMAND, COMMANDS_AT_ONCE, MAX_BACKLOG_BYTES};
use crate::parts::Parts;

impl Parts {
    /// Takes what a client has sent; gives back a buffer that is not needed.
    pub(crate) fn received(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        bytes: Vec<u8>,
    ) -> Vec<u8> {
        let connection = self.connections.get_mut(index);
        let Some(connection) = connection.filter(|connection| !connection.life.closing) else {
            return bytes;
        };
        connection.client.last_seen = now;
        let oldest = connection.replies.oldest();
        let count = bytes.len();
        let spare = connection.inbox.append(bytes, oldest);
        debug_assert!(connection.inbox.backlog() >= count, "what came is to be carried out");
        if connection.inbox.backlog() > MAX_BACKLOG_BYTES {
            tracing::warn!(
                peer = %connection.client.peer,
                "a redis client has sent {MAX_BACKLOG_BYTES} bytes of commands without giving them \
                 time to run; its connection is closed"
            );
            connection.close();
        }
        self.advance(now, index);
        spare
    }

    /// Carries out a connection's commands until one must wait or they are at their end.
    pub(crate) fn advance(&mut self, now: Timestamp, index: ConnectionIndex) {
        self.connections.list(index);
        let bound = self.memory.output_bound();
        self.ask_again(now, index, bound);
        self.start_followers(now, index);
        let mut carried_out = 0;
        loop {
            let Self { connections, backend, jobs, figures, arguments, memory, direct, .. } = self;
            let Some(connection) = connections.get_mut(index) else { return };
            if connection.turn.postponed || !connection.may_start(bound) {
                connection.turn.blocked = connection.inbox.backlog() > 0;
                return;
            }
            if carried_out >= COMMANDS_AT_ONCE {
                return connections.postpone(index);
            }
            carried_out += 1;
            let position = connection.inbox.position();
            let (disposition, consumed) = match connection.inbox.parse() {
                Ok(Parsed::Incomplete { consumed, needed }) => {
                    connection.inbox.consume(consumed);
                    connection.turn.blocked = false;
                    if let Some(stranger) = Stranger::of_first(connection.inbox.unparsed()) {
                        return turn_away(connection, position, stranger);
                    }
                    return memory.collect(now, index, connection, needed);
                }
                Err(error) => {
                    return match Stranger::of_first(connection.inbox.unparsed()) {
                        Some(stranger) => turn_away(connection, position, stranger),
                        None => refuse_bytes(connection, position, &error),
                    };
                }
                Ok(Parsed::Command(command)) => {
                    // What it still waited for has come: the rest of it was on its way before
                    // reading could be stopped.
                    (connection.usage.reservation, connection.usage.wait) = (None, None);
                    let consumed = command.consumed();
                    let simple = SimpleCommand::of(&command)
                        .filter(|_| connection.transaction.multi.is_none())
                        .filter(|_| backend.served.refusal().is_none());
                    let disposition = match simple {
                        Some(simple) => {
                            let mut path = FastPath {
                                backend,
                                now,
                                index,
                                protocol: connection.client.protocol,
                                position,
                                replies: &mut connection.replies,
                                accesses: &mut connection.accesses,
                                busy: &mut jobs.busy,
                                direct,
                            };
                            connection.client.last_command = simple.name();
                            path.start(simple)
                        }
                        None => Disposition::Dispatch,
                    };
                    if disposition == Disposition::Dispatch {
                        if let Some(stranger) = Stranger::of(command.args(), command.is_inline()) {
                            return turn_away(connection, position, stranger);
                        }
                        arguments.clear();
                        arguments.push_command(&command);
                    }
                    (disposition, consumed)
                }
            };
            figures.took(u64::from(disposition == Disposition::Taken));
            let disposition = if disposition == Disposition::Dispatch {
                let (disposition, cost_bytes) = self.dispatch(now, index, position);
                // Others of this turn wait for long answers as they wait for many commands.
                carried_out += (cost_bytes / ANSWER_BYTES_A_COMMAND) as u32;
                disposition
            } else {
                disposition
            };
            let Some(connection) = self.connections.get_mut(index) else { return };
            match disposition {
                Disposition::Again => continue,
                Disposition::Wait => {
                    connection.turn.blocked = true;
                    return;
                }
                Disposition::Taken | Disposition::Dispatch => {}
            }
            debug_assert!(consumed <= connection.inbox.backlog(), "a command came whole");
            connection.inbox.consume(consumed);
            if self.direct.is_full() {
                self.run_direct(now);
            }
        }
    }

    /// Starts the jobs of a connection that have followed what is answered now.
    #[inline]
    fn start_followers(&mut self, now: Timestamp, index: ConnectionIndex) {
        let Self { connections, jobs, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return };
        if connection.followers.is_empty() {
            return;
        }
        while let Some(follower) = connection.followers.take_released(&connection.accesses) {
            if let Some(rest) = jobs.take_behind_first(now, follower) {
                connection.followers.push_front(rest);
            }
            if let Some(reply_id) = jobs.start_following(now, follower) {
                connection.accesses.reads_alone(reply_id);
            }
        }
    }

    /// Sends the command in the shared buffer where it belongs. Tells what it has cost, as bytes of
    /// an answer, when it was answered at once.
    fn dispatch(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: StreamPosition,
    ) -> (Disposition, usize) {
        debug_assert!(self.arguments.count() > 0, "a command has a name");
        let arguments = core::mem::take(&mut self.arguments);
        let mut dispatcher = Dispatcher::new(self, now, index, position);
        let disposition = dispatcher.dispatch(&arguments);
        let cost_bytes = dispatcher.cost_bytes();
        self.arguments = arguments;
        self.figures.took(u64::from(disposition == Disposition::Taken));
        (disposition, cost_bytes)
    }

    /// A fast command met a conflict, or a server that was not ready: read again, it goes on as a
    /// job, in its old place.
    pub(crate) fn run_as_job(&mut self, now: Timestamp, index: ConnectionIndex, id: ReplyId) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Some(&expected) = connection.replies.pending(id) else { return };
        let protocol = expected.protocol;
        let mut arguments = ArgumentBuffer::default();
        let spec = connection
            .inbox
            .read_again(expected.position, &mut arguments)
            .and_then(|_| find(arguments.argument(0)));
        let Some(spec) = spec else {
            connection.answer(id, |out| {
                ReplyWriter::new(out, protocol).error_bytes(Failure::CONTENDED.bytes());
            });
            return self.answered(index);
        };
        debug_assert!(
            matches!(spec.class, Class::Read | Class::Write),
            "only commands over keys take the fast path"
        );
        let kind = if spec.class == Class::Read { JobKind::OneRead } else { JobKind::Transaction };
        let requester = Requester { connection: index, reply_id: id, protocol };
        self.jobs.open(now, kind, requester, spec, arguments.all());
    }

    /// Asks again for values that had found no room, as far as there is some now.
    #[inline]
    fn ask_again(&mut self, now: Timestamp, index: ConnectionIndex, bound: usize) {
        debug_assert!(bound > 0, "some answer always has room");
        let Self { connections, backend, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return };
        if connection.replies.has_shed() && ask_again(backend, connection, index, now, bound) {
            self.answered(index);
        }
    }
}

/// Asks again for the oldest value of a connection that had found no room, if there is some now.
/// Whether it was answered with an error instead, so that those behind it may be asked for.
fn ask_again(
    backend: &mut Backend,
    connection: &mut Connection,
    index: ConnectionIndex,
    now: Timestamp,
    bound: usize,
) -> bool {
    debug_assert!(connection.replies.has_shed(), "something is to be asked for again");
    if connection.life.gone {
        // Nobody reads them. Unanswered they would keep the connection for ever.
        while let Some((id, _)) = connection.replies.ask_again(|_, _| true) {
            connection.answer(id, |_| ());
        }
        return false;
    }
    let owed = connection.owed();
    let fits = |first: bool, length: usize| {
        owed.has_room(first, length, bound) || crate::memory::ignores_bound()
    };
    let Some((id, position)) = connection.replies.ask_again(fits) else { return false };
    let mut arguments = ArgumentBuffer::default();
    let asked = match connection.inbox.read_again(position, &mut arguments) {
        Some(_) => {
            let operation = Operation::Fast(index, id);
            backend.get_latest(now, arguments.argument(1), operation).map_err(Failure::from)
        }
        None => Err(Failure::INTERNAL),
    };
    let Err(failure) = asked else { return false };
    let protocol = connection.client.protocol;
    connection.answer(id, |out| ReplyWriter::new(out, protocol).error_bytes(failure.bytes()));
    // Nothing is under way whose answer would let those behind it be asked for.
    !timestone_types::is_planted!(SleepingReads)
}

/// Answers bytes that are no command, and closes the connection.
fn refuse_bytes(connection: &mut Connection, position: StreamPosition, error: &ProtocolError) {
    debug_assert!(!connection.life.gone, "somebody is there to be answered");
    let mut text = b"ERR ".to_vec();
    error.write(&mut text);
    let protocol = connection.client.protocol;
    connection.replies.now(protocol, position, |reply| reply.error_bytes(&text));
    connection.usage.wait = None;
    connection.close();
}

/// Answers whoever is no Redis client in its own protocol, and closes the connection: nothing more
/// of what it has sent is carried out.
fn turn_away(connection: &mut Connection, position: StreamPosition, stranger: Stranger) {
    debug_assert!(!connection.life.gone, "somebody is there to be answered");
    tracing::warn!(peer = %connection.client.peer, ?stranger, "no redis client speaks here; \
        the connection is closed");
    connection.replies.now_bytes(position, &stranger.answer());
    connection.usage.wait = None;
    connection.end_multi();
    connection.close();
}
