//! Commands that are not plain GETs and SETs: checked, queued by MULTI, carried out at once, sent
//! on their fast path, or made jobs.

use timestone_seda::MemoryUse;
use timestone_types::Timestamp;
use timestone_wire::resp::ReplyWriter;

use crate::commands::arguments::{Args, ArgumentBuffer};
use crate::commands::local;
use crate::commands::subcommands;
use crate::commands::table::{Class, Cmd, Spec, find};
use crate::connection::followers::Follower;
use crate::connection::inbox::StreamPosition;
use crate::connection::key_access::{AccessKind, KeyAccess};
use crate::connection::replies::{CommandStart, ReplyKind};
use crate::connection::{Connection, ConnectionIndex, Multi, Queued};
use crate::failure::{Failure, shown};
use crate::fast::{FastPath, OneWrite};
use crate::jobs::job::{JobCommand, JobKind, Requester};
use crate::jobs::keyspace_scan::KeyspaceScan;
use crate::limits::{
    CHARGED_ANSWER_BYTES, MAX_FOLLOWING_BYTES, MAX_QUEUED_BYTES, MAX_QUEUED_COMMANDS,
    MAX_RESERVED_KEYS, QUEUED_COMMAND_BYTES, SHOWN_BYTES,
};
use crate::parts::Parts;
use crate::served::ServedKeyspace;

/// How a transaction touches its keys, those that it only reads as well: a read behind it on the
/// same connection could overtake it, and find an older value than the transaction, which starts
/// again where it meets a conflict.
fn in_transaction(class: Class) -> AccessKind {
    if timestone_types::is_planted!(OvertakenTransactions) && class == Class::Read {
        return AccessKind::Read;
    }
    debug_assert!(
        matches!(class, Class::Read | Class::Write),
        "other commands have no keys in a transaction"
    );
    AccessKind::Write
}

/// What became of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Disposition {
    /// It is answered or under way.
    Taken,
    /// It must wait for commands before it; it will be looked at again.
    Wait,
    /// Commands before it were answered meanwhile: it is to be looked at again now.
    Again,
    /// It is for [`Dispatcher::dispatch`].
    Dispatch,
}

/// How Redis words a command that it does not have.
fn unknown_command(args: Args<'_>) -> Failure {
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(shown(args.get(0)));
    text.extend_from_slice(b"', with args beginning with: ");
    let mut quoted = 0;
    for word in args.iter().skip(1) {
        if quoted >= SHOWN_BYTES {
            break;
        }
        let word = &word[..word.len().min(SHOWN_BYTES - quoted)];
        text.push(b'\'');
        text.extend_from_slice(word);
        text.extend_from_slice(b"' ");
        quoted += word.len() + 3;
    }
    Failure::text(text)
}

/// One command on its way to where it belongs.
pub(crate) struct Dispatcher<'a> {
    parts: &'a mut Parts,
    now: Timestamp,
    index: ConnectionIndex,
    position: StreamPosition,
    /// What a command costs that touched no key: how long its answer is, and what counts as much.
    cost_bytes: usize,
}

impl<'a> Dispatcher<'a> {
    /// For the command of a connection that begins at `position`.
    pub(crate) fn new(
        parts: &'a mut Parts,
        now: Timestamp,
        index: ConnectionIndex,
        position: StreamPosition,
    ) -> Self {
        debug_assert!(parts.connections.get(index).is_some(), "a command comes from somebody");
        Self { parts, now, index, position, cost_bytes: 0 }
    }

    /// How long the answer is, in bytes, when the command touched no key and was answered at once;
    /// with what costs the turn as much as so many more.
    pub(crate) const fn cost_bytes(&self) -> usize {
        self.cost_bytes
    }

    fn connection(&mut self) -> Option<&mut Connection> {
        self.parts.connections.get_mut(self.index)
    }

    /// Answers the command with an error.
    fn refuse(&mut self, failure: &Failure) -> Disposition {
        debug_assert_eq!(self.cost_bytes, 0, "a command is answered once");
        let position = self.position;
        if let Some(connection) = self.connection() {
            connection.refuse(position, failure);
        }
        Disposition::Taken
    }

    /// Takes a command; `arguments` holds nothing else.
    pub(crate) fn dispatch(&mut self, arguments: &ArgumentBuffer) -> Disposition {
        debug_assert!(arguments.count() > 0, "a command has a name");
        let args = arguments.all();
        let position = self.position;
        let Parts { connections, backend, .. } = &mut *self.parts;
        let Some(connection) = connections.get_mut(self.index) else { return Disposition::Taken };
        let checked = check(args, connection.transaction.multi.is_some());
        let spec = match checked.and_then(|spec| is_served(spec, &backend.served)) {
            Ok(spec) => spec,
            Err(failure) => {
                connection.refuse_command(position, args, &failure);
                return Disposition::Taken;
            }
        };
        connection.client.last_command = spec.name;
        let immediate = matches!(
            spec.cmd,
            Cmd::Exec | Cmd::Discard | Cmd::Multi | Cmd::Watch | Cmd::Quit | Cmd::Reset
        );
        if connection.transaction.multi.is_some() && !immediate {
            queue(connection, spec, args, position);
            return Disposition::Taken;
        }
        match spec.class {
            Class::Local => self.local(spec, args),
            Class::State => self.state(spec, args),
            Class::Read | Class::Write => self.over_keys(spec, args),
            Class::Keyspace => self.keyspace(spec, args),
        }
    }

    fn local(&mut self, spec: &'static Spec, args: Args<'_>) -> Disposition {
        debug_assert_eq!(spec.class, Class::Local);
        // Before any of it is made: an answer that is refused takes no memory.
        let foreseen = self.parts.foresee_local(spec.cmd, args).and_then(|(filter, bytes)| {
            Ok((filter, bytes, self.parts.memory.charge_local(bytes)?))
        });
        let (filter, bound, charge) = match foreseen {
            Ok(foreseen) => foreseen,
            Err(failure) => return self.refuse(&failure),
        };
        let mut scratch = core::mem::take(&mut self.parts.scratch);
        scratch.clear();
        let status = match spec.cmd {
            Cmd::Ping | Cmd::Echo | Cmd::Hello => None,
            _ => Some(self.parts.server_status(self.now, &filter)),
        };
        let Parts { connections, memory, .. } = &mut *self.parts;
        if let Some(connection) = connections.get_mut(self.index) {
            let protocol = connection.client.protocol;
            let client = &mut connection.client;
            let done = match &status {
                _ if spec.cmd == Cmd::Hello => local::hello(args, client, &mut scratch),
                Some(status) => local::execute(
                    spec.cmd,
                    args,
                    status,
                    client,
                    &mut ReplyWriter::new(&mut scratch, protocol),
                ),
                None => local::greet(spec.cmd, args, &mut ReplyWriter::new(&mut scratch, protocol)),
            };
            if let Err(failure) = done {
                scratch.clear();
                ReplyWriter::new(&mut scratch, protocol).error_bytes(failure.bytes());
            }
            debug_assert!(
                scratch.len() <= CHARGED_ANSWER_BYTES + bound,
                "{}: {} bytes, {bound} were foreseen",
                spec.name,
                scratch.len()
            );
            // The lines of clients go before the answer is there twice.
            drop(status);
            connection.replies.now_bytes(self.position, &scratch);
            if charge.is_some() {
                // From now on it counts with its connection.
                memory.count(connection);
            }
        }
        self.cost_bytes = scratch.len() + local::cost_bytes(spec.cmd, args);
        if charge.is_some() {
            scratch = Vec::new();
        }
        self.parts.scratch = scratch;
        Disposition::Taken
    }

    /// SCAN, KEYS, DBSIZE, RANDOMKEY, FLUSHDB.
    fn keyspace(&mut self, spec: &'static Spec, args: Args<'_>) -> Disposition {
        debug_assert_eq!(spec.class, Class::Keyspace);
        let kind = match spec.cmd {
            Cmd::Flushdb | Cmd::Flushall => match args.len() {
                1 => Ok(JobKind::Flush),
                2 if args.is(1, b"SYNC") || args.is(1, b"ASYNC") => Ok(JobKind::Flush),
                _ => Err(Failure::SYNTAX),
            },
            cmd => {
                let Parts { backend, .. } = &*self.parts;
                let (shards, keyspace) = (backend.shard_count(), backend.keyspace());
                KeyspaceScan::parse(cmd, args, shards, keyspace).map(JobKind::Scan)
            }
        };
        match kind {
            Ok(kind) => self.alone(spec, args, kind),
            Err(failure) => self.refuse(&failure),
        }
    }

    /// A command that nothing else of its connection may overlap.
    fn alone(&mut self, spec: &'static Spec, args: Args<'_>, kind: JobKind) -> Disposition {
        debug_assert!(spec.accepts(args.len()), "{} was checked", spec.name);
        let Some(connection) = self.connection() else { return Disposition::Taken };
        if !connection.replies.is_empty() {
            return Disposition::Wait;
        }
        let requester = self.expect(spec.cmd, KeyReservation::Alone);
        self.parts.jobs.open(self.now, kind, requester, spec, args);
        Disposition::Taken
    }

    /// Expects a job's answer to the command, and keeps others away from its keys.
    fn expect(&mut self, cmd: Cmd, reservation: KeyReservation) -> Requester {
        let (now, position, index) = (self.now, self.position, self.index);
        let Some(connection) = self.connection() else {
            unreachable!("a command comes from a connection that is there");
        };
        let protocol = connection.client.protocol;
        let reply_id = connection.replies.expect(ReplyKind::Job, protocol, position);
        connection.replies.note_start(reply_id, CommandStart { cmd, at: now });
        debug_assert!(connection.replies.pending(reply_id).is_some(), "its answer is expected");
        match reservation {
            KeyReservation::Alone => connection.set_barrier(reply_id),
            KeyReservation::Key(access) => connection.accesses.add(access, reply_id),
            KeyReservation::Keys(accesses) => {
                accesses.into_iter().for_each(|access| connection.accesses.add(access, reply_id))
            }
        }
        Requester { connection: index, reply_id, protocol }
    }
}

/// Commands over keys.
impl Dispatcher<'_> {
    fn over_keys(&mut self, spec: &'static Spec, args: Args<'_>) -> Disposition {
        debug_assert!(matches!(spec.class, Class::Read | Class::Write));
        let one_key = spec.key_places(args.len()).count() == 1;
        let (reservation, kind) = match spec.class {
            Class::Write if one_key => {
                return match OneWrite::of(spec.cmd, args, self.now) {
                    Ok(Some(write)) => match self.write_one(spec.cmd, &write) {
                        Disposition::Dispatch => self.queue_on_key(spec, args),
                        disposition => disposition,
                    },
                    Ok(None) => self.queue_on_key(spec, args),
                    Err(failure) => self.refuse(&failure),
                };
            }
            Class::Read if one_key => {
                let access = KeyAccess::new(self.parts.backend.hash(args.get(1)), AccessKind::Read);
                let Some(connection) = self.connection() else { return Disposition::Taken };
                if connection.accesses.blocks(access) {
                    return self.queue_on_key(spec, args);
                }
                (KeyReservation::Key(access), JobKind::OneRead)
            }
            class => {
                let keys = spec.keys(args).map(|key| (key, in_transaction(class)));
                let Some(reservation) = self.reserve_keys(keys) else { return Disposition::Wait };
                (reservation, JobKind::Transaction)
            }
        };
        let requester = self.expect(spec.cmd, reservation);
        self.parts.jobs.open(self.now, kind, requester, spec, args);
        Disposition::Taken
    }

    fn write_one(&mut self, cmd: Cmd, write: &OneWrite<'_>) -> Disposition {
        let Parts { connections, backend, jobs, direct, .. } = &mut *self.parts;
        let Some(connection) = connections.get_mut(self.index) else { return Disposition::Taken };
        debug_assert!(connection.transaction.multi.is_none(), "what MULTI queues is not sent");
        let mut path = FastPath {
            backend,
            now: self.now,
            index: self.index,
            protocol: connection.client.protocol,
            position: self.position,
            replies: &mut connection.replies,
            accesses: &mut connection.accesses,
            busy: &mut jobs.busy,
            direct,
        };
        path.write(cmd, write)
    }

    /// A command over one key that reads it and writes it, or comes behind others of its connection
    /// on that key: it belongs into the key's queue.
    fn queue_on_key(&mut self, spec: &'static Spec, args: Args<'_>) -> Disposition {
        debug_assert_eq!(spec.key_places(args.len()).count(), 1, "{} has one key", spec.name);
        let hash = self.parts.backend.hash(args.get(1));
        let access = KeyAccess::new(hash, AccessKind::Queued);
        let Some(connection) = self.connection() else { return Disposition::Taken };
        let is_blocked = connection.accesses.blocks(access) || spec.class == Class::Read;
        if is_blocked && !timestone_types::is_planted!(HastyFollowers) {
            return self.follow(hash, spec, args);
        }
        let requester = self.expect(spec.cmd, KeyReservation::Key(access));
        self.parts.jobs.enqueue_on_key(self.now, hash, requester, spec, args);
        Disposition::Taken
    }

    /// A command over one key that comes behind others of its connection: it follows them, see
    /// [`crate::connection::followers`].
    fn follow(&mut self, hash: u64, spec: &'static Spec, args: Args<'_>) -> Disposition {
        if self.parts.run_direct(self.now) {
            return Disposition::Again;
        }
        if args.memory_bytes() > MAX_FOLLOWING_BYTES || answers_what_was(spec, args) {
            return Disposition::Wait;
        }
        let Some(connection) = self.connection() else { return Disposition::Taken };
        let last = connection.followers.last_of(hash);
        let access = KeyAccess::new(hash, AccessKind::Write);
        let requester = self.expect(spec.cmd, KeyReservation::Key(access));
        let job = match last.filter(|&job| self.parts.jobs.has_room(job)) {
            Some(job) => {
                self.parts.jobs.join(job, requester, spec, args);
                job
            }
            None => {
                let job = self.parts.jobs.open_following(self.now, requester, spec, args);
                if let Some(connection) = self.connection() {
                    connection.followers.push(Follower { hash, job, first: requester.reply_id });
                }
                job
            }
        };
        if sets_expiry(spec, args) && self.parts.jobs.has_room(job) {
            self.parts.jobs.seal(job);
        }
        Disposition::Taken
    }

    /// The accesses to a command's keys, when it may start now.
    fn reserve_keys<'k>(
        &self,
        keys: impl Iterator<Item = (&'k [u8], AccessKind)>,
    ) -> Option<KeyReservation> {
        let Parts { connections, backend, .. } = &*self.parts;
        let connection = connections.get(self.index)?;
        let mut accesses = Vec::new();
        for (key, kind) in keys {
            if accesses.len() == MAX_RESERVED_KEYS {
                return connection.replies.is_empty().then_some(KeyReservation::Alone);
            }
            let access = KeyAccess::new(backend.hash(key), kind);
            if connection.accesses.blocks(access) {
                return None;
            }
            accesses.push(access);
        }
        if !connection.accesses.has_room(accesses.len()) {
            return None;
        }
        Some(KeyReservation::Keys(accesses))
    }
}

/// MULTI and its kin.
impl Dispatcher<'_> {
    fn state(&mut self, spec: &'static Spec, args: Args<'_>) -> Disposition {
        debug_assert_eq!(spec.class, Class::State);
        let position = self.position;
        let Parts { connections, memory, .. } = &mut *self.parts;
        let Some(connection) = connections.get_mut(self.index) else { return Disposition::Taken };
        let in_multi = connection.transaction.multi.is_some();
        let refusal = match spec.cmd {
            Cmd::Multi if in_multi => Some(Failure::NESTED_MULTI),
            Cmd::Watch if in_multi => Some(Failure::WATCH_IN_MULTI),
            Cmd::Exec if !in_multi => Some(Failure::EXEC_WITHOUT_MULTI),
            Cmd::Discard if !in_multi => Some(Failure::DISCARD_WITHOUT_MULTI),
            _ => None,
        };
        if let Some(refusal) = refusal {
            connection.refuse(position, &refusal);
            return Disposition::Taken;
        }
        match spec.cmd {
            Cmd::Exec => return self.exec(),
            Cmd::Watch => return self.alone(spec, args, JobKind::Watch),
            Cmd::Multi => {
                let charge = Some(memory.process().charge(MemoryUse::Input, 0));
                connection.begin_multi(Multi { charge, ..Multi::default() });
            }
            Cmd::Discard => {
                connection.end_multi();
                connection.unwatch();
            }
            Cmd::Unwatch => connection.unwatch(),
            Cmd::Quit => connection.life.closing = true,
            Cmd::Reset => {
                connection.end_multi();
                connection.unwatch();
                connection.client.reset();
                connection
                    .replies
                    .now(connection.client.protocol, position, |reply| reply.simple("RESET"));
                return Disposition::Taken;
            }
            _ => unreachable!("{} is no command on the transaction state", spec.name),
        }
        connection.replies.now(connection.client.protocol, position, |reply| reply.ok());
        Disposition::Taken
    }

    /// EXEC: the queued commands become a job.
    fn exec(&mut self) -> Disposition {
        let position = self.position;
        let Some(connection) = self.connection() else { return Disposition::Taken };
        debug_assert!(connection.transaction.multi.is_some(), "EXEC without MULTI is refused");
        let Some(multi) = connection.end_multi() else { return Disposition::Taken };
        let protocol = connection.client.protocol;
        if multi.dirty {
            connection.unwatch();
            connection.refuse(position, &Failure::EXEC_ABORTED);
            return Disposition::Taken;
        }
        if connection.transaction.watch_lost {
            connection.unwatch();
            connection.replies.now(protocol, position, |reply| reply.null_array());
            return Disposition::Taken;
        }
        if multi.commands.is_empty() && connection.transaction.watched.is_empty() {
            connection.replies.now(protocol, position, |reply| reply.array(0));
            return Disposition::Taken;
        }
        let Some(reservation) = self.reserve_for_exec(&multi) else {
            if let Some(connection) = self.connection() {
                connection.begin_multi(*multi);
            }
            return Disposition::Wait;
        };
        let Some(connection) = self.connection() else { return Disposition::Taken };
        let watched = core::mem::take(&mut connection.transaction.watched);
        let watched_charge = connection.transaction.watched_charge.take();
        connection.client.watched = 0;
        let requester = self.expect(Cmd::Exec, reservation);
        let jobs = &mut self.parts.jobs;
        let id = jobs.table.open(JobKind::Exec, self.now);
        if let Some(job) = jobs.table.get_mut(id) {
            let Multi { arguments, commands, charge, .. } = *multi;
            job.arguments = arguments;
            job.memory.queued_charge = charge;
            job.exec = Some(requester);
            job.watched = watched.into_iter().collect();
            job.memory.watched_charge = watched_charge;
            job.commands.extend(commands.into_iter().map(|Queued { spec, arguments }| {
                JobCommand { requester, spec, arguments, reply: 0..0 }
            }));
        }
        jobs.start_soon(id);
        Disposition::Taken
    }

    /// The accesses to the keys of what MULTI has queued, and to those that are watched, when EXEC
    /// may start now.
    fn reserve_for_exec(&self, multi: &Multi) -> Option<KeyReservation> {
        let connection = self.parts.connections.get(self.index)?;
        let mut keys = Vec::new();
        for command in &multi.commands {
            let kind_of = |key| (key, in_transaction(command.spec.class));
            let args = multi.arguments.args(command.arguments.clone());
            keys.extend(command.spec.keys(args).map(kind_of));
        }
        let watched = connection.transaction.watched.keys();
        keys.extend(watched.map(|key| (&**key, in_transaction(Class::Read))));
        self.reserve_keys(keys.into_iter())
    }
}

/// Which command this is.
///
/// # Errors
/// What is answered instead: it is none, or may not be given so.
fn check(args: Args<'_>, in_multi: bool) -> Result<&'static Spec, Failure> {
    let spec = find(args.get(0)).ok_or_else(|| unknown_command(args))?;
    match spec.cmd {
        _ if !spec.accepts(args.len()) => Err(Failure::arity(spec.name)),
        Cmd::Hello if in_multi => Err(Failure::NOT_IN_MULTI),
        _ if in_multi && spec.class == Class::Keyspace => Err(Failure::NOT_QUEUEABLE),
        _ => subcommands::check(spec, args).map(|()| spec),
    }
}

/// The command, unless it concerns keys and the keyspace is not there.
///
/// # Errors
/// What is answered instead.
fn is_served(spec: &'static Spec, served: &ServedKeyspace) -> Result<&'static Spec, Failure> {
    let has_keys = matches!(spec.class, Class::Read | Class::Write | Class::Keyspace)
        || spec.cmd == Cmd::Watch;
    served.refusal().filter(|_| has_keys).map_or(Ok(spec), |refusal| Err(refusal.clone()))
}

/// Whether a write answers with the value that was there: it cannot be read again when its client
/// has no room for it.
fn answers_what_was(spec: &Spec, args: Args<'_>) -> bool {
    match spec.cmd {
        Cmd::Getset | Cmd::Getdel | Cmd::Getex => true,
        Cmd::Set => (3..args.len()).any(|place| args.is(place, b"GET")),
        _ => false,
    }
}

/// Whether a command says when its key expires. What is behind it in one transaction would not see
/// that this moment has come, so it is the last of a job.
fn sets_expiry(spec: &Spec, args: Args<'_>) -> bool {
    const OPTIONS: [&[u8]; 4] = [b"EX", b"PX", b"EXAT", b"PXAT"];
    match spec.cmd {
        Cmd::Set => (3..args.len()).any(|at| OPTIONS.iter().any(|option| args.is(at, option))),
        Cmd::Setex | Cmd::Psetex | Cmd::Expire | Cmd::Pexpire | Cmd::Expireat | Cmd::Pexpireat => {
            true
        }
        _ => false,
    }
}

/// What keeps others away from a command's keys.
enum KeyReservation {
    /// The access to its only key.
    Key(KeyAccess),
    /// The accesses to its keys.
    Keys(Vec<KeyAccess>),
    /// It runs alone.
    Alone,
}

/// Queues a command in MULTI.
fn queue(
    connection: &mut Connection,
    spec: &'static Spec,
    args: Args<'_>,
    position: StreamPosition,
) {
    debug_assert!(spec.class != Class::Keyspace, "{} is not queued", spec.name);
    let Some(multi) = &mut connection.transaction.multi else { return };
    let bytes = args.memory_bytes();
    if !multi.dirty
        && !multi
            .charge
            .as_mut()
            .is_none_or(|charge| charge.try_grow((bytes + QUEUED_COMMAND_BYTES) as u64))
    {
        multi.mark_dirty();
        return connection.refuse(position, &Failure::NO_MEMORY_FOR_QUEUE);
    }
    if multi.arguments.memory_bytes() + bytes > MAX_QUEUED_BYTES
        || multi.commands.len() >= MAX_QUEUED_COMMANDS
    {
        multi.mark_dirty();
        return connection.refuse(position, &Failure::TOO_MANY_QUEUED);
    }
    if multi.dirty {
        // It will not be carried out: nothing of it is kept.
        return connection
            .replies
            .now(connection.client.protocol, position, |reply| reply.simple("QUEUED"));
    }
    let arguments = multi.arguments.push_args(args);
    multi.commands.push(Queued { spec, arguments });
    connection.client.queued = Some(multi.commands.len());
    connection.replies.now(connection.client.protocol, position, |reply| reply.simple("QUEUED"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_commands_are_quoted_as_redis_quotes_them() {
        let mut arguments = ArgumentBuffer::default();
        [&b"FOO"[..], b"a", b"b c"].iter().for_each(|word| arguments.push(word));
        let text = b"ERR unknown command 'FOO', with args beginning with: 'a' 'b c' ";
        assert_eq!(unknown_command(arguments.all()), Failure::text(*text));
        arguments.clear();
        arguments.push(&[b'x'; 300]);
        arguments.push(&[b'y'; 300]);
        arguments.push(b"z");
        let failure = unknown_command(arguments.all());
        let text = String::from_utf8(failure.bytes().to_vec()).unwrap();
        assert!(
            text.contains(&format!("'{}'", "x".repeat(128)))
                && text.ends_with(&format!("'{}' ", "y".repeat(128)))
        );
    }
}
