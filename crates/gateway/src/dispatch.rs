//! Commands that are not plain GETs and SETs: checked, queued by MULTI, carried out at once, sent
//! on their fast path, or made jobs.

use timestone_seda::MemoryUse;
use timestone_types::Timestamp;
use timestone_wire::resp::ReplyWriter;

use crate::commands::arguments::{Args, ArgumentBuffer};
use crate::commands::local::{self, ClientFilter, ServerStatus};
use crate::commands::table::{Class, Cmd, Spec, find};
use crate::connection::client::ClientNumber;
use crate::connection::inbox::StreamPosition;
use crate::connection::key_access::{AccessKind, KeyAccess};
use crate::connection::replies::{CommandStart, ReplyId, ReplyKind};
use crate::connection::{Connection, ConnectionIndex, Multi, Queued};
use crate::failure::{Failure, shown};
use crate::fast::{FastPath, OneWrite};
use crate::jobs::job::{JobCommand, JobId, JobKind, ReplyTo};
use crate::jobs::key_queues::KeyQueue;
use crate::jobs::keyspace_scan::KeyspaceScan;
use crate::limits::{
    MAX_COMBINED, MAX_COMBINED_BYTES, MAX_QUEUED_BYTES, MAX_QUEUED_COMMANDS, MAX_RESERVED_KEYS,
    QUEUED_COMMAND_BYTES, SHOWN_BYTES,
};
use crate::parts::Core;

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
    /// It is for [`Core::dispatch`].
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

impl Core {
    /// Takes a command; `arguments` holds nothing else.
    pub(crate) fn dispatch(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: StreamPosition,
        arguments: &ArgumentBuffer,
    ) -> Disposition {
        let args = arguments.all();
        let Some(connection) = self.connection(index) else { return Disposition::Taken };
        let checked = match find(args.get(0)) {
            None => Err(unknown_command(args)),
            Some(spec) if !spec.accepts(args.len()) => Err(Failure::arity(spec.name)),
            Some(spec) => Ok(spec),
        };
        let checked = checked.and_then(|spec| match (&connection.multi, spec.cmd) {
            (Some(_), Cmd::Hello) => Err(Failure::NOT_IN_MULTI),
            (Some(_), _) if spec.class == Class::Keyspace => Err(Failure::NOT_QUEUEABLE),
            _ => Ok(spec),
        });
        let spec = match checked {
            Ok(spec) => spec,
            Err(failure) => {
                if let Some(multi) = &mut connection.multi {
                    multi.mark_dirty();
                }
                connection.refuse(position, &failure);
                return Disposition::Taken;
            }
        };
        connection.client.last_command = spec.name;
        let immediate = matches!(
            spec.cmd,
            Cmd::Exec | Cmd::Discard | Cmd::Multi | Cmd::Watch | Cmd::Quit | Cmd::Reset
        );
        if connection.multi.is_some() && !immediate {
            queue(connection, spec, args, position);
            return Disposition::Taken;
        }
        match spec.class {
            Class::Local => self.local(now, index, position, spec, args),
            Class::State => self.state(now, index, position, spec, args),
            Class::Read | Class::Write => self.over_keys(now, index, position, spec, args),
            Class::Keyspace => self.keyspace(now, index, position, spec, args),
        }
    }

    /// What local commands are told of the server, with the lines of the clients that are wanted.
    pub(crate) fn server_status(&self, now: Timestamp, listing: &ClientFilter) -> ServerStatus {
        let mut lines = Vec::new();
        match listing {
            ClientFilter::Nobody => {}
            ClientFilter::Everybody => {
                for connection in
                    self.connections.iter().flatten().filter(|connection| !connection.gone)
                {
                    connection.client.describe(now, &mut lines);
                }
            }
            ClientFilter::Of(ids) => {
                for connection in ids.iter().filter_map(|&id| self.find_client(ClientNumber(id))) {
                    connection.client.describe(now, &mut lines);
                }
            }
        }
        ServerStatus {
            now,
            started: self.started,
            clients: self.clients.len(),
            connections: self.accepted,
            commands: self.commands,
            shards: self.engine.routes().shards().len(),
            per_second: self.rate.per_second(),
            dataset_bytes: self.gauges.dataset_bytes(),
            memory_bytes: self.memory_bytes(),
            keys: self.gauges.keys(),
            listing: lines,
        }
    }

    fn local(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: StreamPosition,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> Disposition {
        let mut scratch = core::mem::take(&mut self.scratch);
        scratch.clear();
        let status = match spec.cmd {
            Cmd::Ping | Cmd::Echo | Cmd::Hello => None,
            _ => Some(
                ClientFilter::wanted(spec.cmd, args)
                    .map(|listing| self.server_status(now, &listing)),
            ),
        };
        if let Some(connection) = self.connection(index) {
            let protocol = connection.client.protocol;
            let client = &mut connection.client;
            let done = match &status {
                _ if spec.cmd == Cmd::Hello => local::hello(args, client, &mut scratch),
                Some(Ok(status)) => local::execute(
                    spec.cmd,
                    args,
                    status,
                    client,
                    &mut ReplyWriter::new(&mut scratch, protocol),
                ),
                Some(Err(failure)) => Err(failure.clone()),
                None => local::greet(spec.cmd, args, &mut ReplyWriter::new(&mut scratch, protocol)),
            };
            if let Err(failure) = done {
                scratch.clear();
                ReplyWriter::new(&mut scratch, protocol).error_bytes(failure.bytes());
            }
            connection.replies.now_bytes(position, &scratch);
        }
        self.local_bytes = scratch.len();
        self.scratch = scratch;
        Disposition::Taken
    }

    /// MULTI and its kin.
    fn state(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: StreamPosition,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> Disposition {
        let memory = std::sync::Arc::clone(&self.memory);
        let Some(connection) = self.connection(index) else { return Disposition::Taken };
        let in_multi = connection.multi.is_some();
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
            Cmd::Exec => return self.exec(now, index, position),
            Cmd::Watch => return self.alone(now, index, position, spec, args, JobKind::Watch),
            Cmd::Multi => {
                let charge = Some(memory.charge(MemoryUse::Input, 0));
                connection.multi = Some(Box::new(Multi { charge, ..Multi::default() }));
                connection.client.queued = Some(0);
            }
            Cmd::Discard => {
                connection.end_multi();
                connection.unwatch();
            }
            Cmd::Unwatch => connection.unwatch(),
            Cmd::Quit => {
                connection.closing = true;
            }
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
    fn exec(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: StreamPosition,
    ) -> Disposition {
        let Some(connection) = self.connection(index) else { return Disposition::Taken };
        let Some(multi) = connection.end_multi() else { return Disposition::Taken };
        if multi.dirty {
            connection.unwatch();
            connection.refuse(position, &Failure::EXEC_ABORTED);
            return Disposition::Taken;
        }
        if connection.watch_lost {
            connection.unwatch();
            connection
                .replies
                .now(connection.client.protocol, position, |reply| reply.null_array());
            return Disposition::Taken;
        }
        if multi.commands.is_empty() && connection.watched.is_empty() {
            connection.replies.now(connection.client.protocol, position, |reply| reply.array(0));
            return Disposition::Taken;
        }
        let mut accesses = Vec::new();
        for command in &multi.commands {
            for key in command.spec.keys(multi.arguments.args(command.arguments.clone())) {
                accesses.push((key, in_transaction(command.spec.class)));
            }
        }
        let Some(connection) = self.connections[index.0 as usize].as_deref() else {
            return Disposition::Taken;
        };
        accesses.extend(connection.watched.keys().map(|key| (&**key, in_transaction(Class::Read))));
        let accesses = self.reserve_keys(index, accesses.into_iter());
        let Some(connection) = self.connection(index) else { return Disposition::Taken };
        let Some(accesses) = accesses else {
            connection.client.queued = Some(multi.commands.len());
            connection.multi = Some(multi);
            return Disposition::Wait;
        };
        let watched = core::mem::take(&mut connection.watched);
        let watched_charge = connection.watched_charge.take();
        connection.client.watched = 0;
        let reply_to = self.expect(now, index, position, Cmd::Exec, accesses);
        let id = self.jobs.open(JobKind::Exec, now);
        if let Some(job) = self.jobs.get_mut(id) {
            let Multi { arguments, commands, charge, .. } = *multi;
            job.arguments = arguments;
            job.queued_charge = charge;
            job.exec = Some(reply_to);
            job.watched = watched.into_iter().collect();
            job.watched_charge = watched_charge;
            job.commands.extend(commands.into_iter().map(|Queued { spec, arguments }| {
                JobCommand { reply_to, spec, arguments, reply: 0..0 }
            }));
        }
        self.starts.push_back(id);
        Disposition::Taken
    }

    /// A command over keys.
    fn over_keys(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: StreamPosition,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> Disposition {
        let one_key = spec.key_places(args.len()).count() == 1;
        if spec.class == Class::Write && one_key {
            match OneWrite::of(spec.cmd, args, now) {
                Ok(Some(write)) => {
                    let disposition = self.write_one(now, index, position, spec.cmd, &write);
                    if disposition != Disposition::Dispatch {
                        return disposition;
                    }
                    return self.queue_on_key(now, index, position, spec, args);
                }
                Ok(None) => return self.queue_on_key(now, index, position, spec, args),
                Err(failure) => {
                    if let Some(connection) = self.connection(index) {
                        connection.refuse(position, &failure);
                    }
                    return Disposition::Taken;
                }
            }
        }
        let accesses = if one_key {
            let access_kind =
                if spec.class == Class::Write { AccessKind::Write } else { AccessKind::Read };
            self.reserve_key(index, args.get(1), access_kind)
        } else {
            self.reserve_keys(index, spec.keys(args).map(|key| (key, in_transaction(spec.class))))
        };
        let Some(accesses) = accesses else { return Disposition::Wait };
        let kind = if one_key { JobKind::OneRead } else { JobKind::Transaction };
        let reply_to = self.expect(now, index, position, spec.cmd, accesses);
        self.open_job(now, kind, reply_to, spec, args);
        Disposition::Taken
    }

    fn write_one(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: StreamPosition,
        cmd: Cmd,
        write: &OneWrite<'_>,
    ) -> Disposition {
        let Self { connections, engine, session, seed, busy, .. } = self;
        let Some(connection) = connections[index.0 as usize].as_deref_mut() else {
            return Disposition::Taken;
        };
        let mut path = FastPath {
            engine,
            session: *session,
            seed: *seed,
            now,
            index,
            protocol: connection.client.protocol,
            position,
            replies: &mut connection.replies,
            accesses: &mut connection.accesses,
            busy,
        };
        path.write(cmd, write)
    }

    /// A command that reads one key and writes it: behind those on the same key, and together with
    /// those that wait there too.
    fn queue_on_key(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: StreamPosition,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> Disposition {
        let key = args.get(1);
        let hash = self.hash(key);
        let Some(accesses) = self.reserve_key(index, key, AccessKind::Queued) else {
            return Disposition::Wait;
        };
        let reply_to = self.expect(now, index, position, spec.cmd, accesses);
        self.busy.enter(hash);
        let Some(queue) = self.key_queues.get(hash) else {
            let id = self.open_job(now, JobKind::Transaction, reply_to, spec, args);
            self.set_queue(id, hash);
            self.key_queues.set(hash, KeyQueue { running: id, last: id });
            return Disposition::Taken;
        };
        if queue.last != queue.running
            && let Some(job) = self.jobs.get_mut(queue.last)
            && job.commands.len() < MAX_COMBINED
            && job.arguments.bytes() < MAX_COMBINED_BYTES
        {
            let arguments = job.arguments.push_args(args);
            job.commands.push(JobCommand { reply_to, spec, arguments, reply: 0..0 });
            return Disposition::Taken;
        }
        let id = self.new_job(now, JobKind::Transaction, reply_to, spec, args);
        self.set_queue(id, hash);
        if let Some(last) = self.jobs.get_mut(queue.last) {
            last.next = Some(id);
        }
        self.key_queues.set(hash, KeyQueue { last: id, ..queue });
        Disposition::Taken
    }

    fn set_queue(&mut self, id: JobId, hash: u64) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.queue = Some(hash);
        }
    }

    /// SCAN, KEYS, DBSIZE, RANDOMKEY, FLUSHDB.
    fn keyspace(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: StreamPosition,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> Disposition {
        let kind = match spec.cmd {
            Cmd::Flushdb | Cmd::Flushall => match args.len() {
                1 => Ok(JobKind::Flush),
                2 if args.is(1, b"SYNC") || args.is(1, b"ASYNC") => Ok(JobKind::Flush),
                _ => Err(Failure::SYNTAX),
            },
            cmd => KeyspaceScan::parse(cmd, args, self.engine.routes().shards().len())
                .map(JobKind::Scan),
        };
        match kind {
            Ok(kind) => self.alone(now, index, position, spec, args, kind),
            Err(failure) => {
                if let Some(connection) = self.connection(index) {
                    connection.refuse(position, &failure);
                }
                Disposition::Taken
            }
        }
    }

    /// A command that nothing else of its connection may overlap.
    fn alone(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: StreamPosition,
        spec: &'static Spec,
        args: Args<'_>,
        kind: JobKind,
    ) -> Disposition {
        let Some(connection) = self.connection(index) else { return Disposition::Taken };
        if !connection.replies.is_empty() {
            return Disposition::Wait;
        }
        let reply_to = self.expect(now, index, position, spec.cmd, KeyReservation::Alone);
        self.open_job(now, kind, reply_to, spec, args);
        Disposition::Taken
    }

    /// The access of a command's only key, when it may start now.
    fn reserve_key(
        &self,
        index: ConnectionIndex,
        key: &[u8],
        kind: AccessKind,
    ) -> Option<KeyReservation> {
        let connection = self.connections.get(index.0 as usize)?.as_deref()?;
        let access = KeyAccess::new(self.hash(key), kind);
        (!connection.accesses.blocks(access)).then_some(KeyReservation::Key(access))
    }

    /// The accesses of a command's keys, when it may start now.
    fn reserve_keys<'k>(
        &self,
        index: ConnectionIndex,
        keys: impl Iterator<Item = (&'k [u8], AccessKind)>,
    ) -> Option<KeyReservation> {
        let connection = self.connections.get(index.0 as usize)?.as_deref()?;
        let mut accesses = Vec::new();
        for (key, kind) in keys {
            if accesses.len() == MAX_RESERVED_KEYS {
                return connection.replies.is_empty().then_some(KeyReservation::Alone);
            }
            let access = KeyAccess::new(self.hash(key), kind);
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

    /// Expects a job's answer to a command.
    fn expect(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: StreamPosition,
        cmd: Cmd,
        accesses: KeyReservation,
    ) -> ReplyTo {
        let Some(connection) = self.connection(index) else {
            unreachable!("a command comes from a connection that is there");
        };
        let protocol = connection.client.protocol;
        let reply_id = connection.replies.expect(ReplyKind::Job, protocol, position);
        connection.replies.note_start(reply_id, CommandStart { cmd, at: now });
        match accesses {
            KeyReservation::Alone => connection.barrier = Some(reply_id),
            KeyReservation::Key(access) => connection.accesses.add(access, reply_id),
            KeyReservation::Keys(accesses) => {
                accesses.into_iter().for_each(|access| connection.accesses.add(access, reply_id))
            }
        }
        ReplyTo { connection: index, reply_id, protocol }
    }

    fn new_job(
        &mut self,
        now: Timestamp,
        kind: JobKind,
        reply_to: ReplyTo,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> JobId {
        let id = self.jobs.open(kind, now);
        if let Some(job) = self.jobs.get_mut(id) {
            let arguments = job.arguments.push_args(args);
            job.commands.push(JobCommand { reply_to, spec, arguments, reply: 0..0 });
        }
        id
    }

    fn open_job(
        &mut self,
        now: Timestamp,
        kind: JobKind,
        reply_to: ReplyTo,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> JobId {
        let id = self.new_job(now, kind, reply_to, spec, args);
        self.starts.push_back(id);
        id
    }

    /// A fast command met a conflict, or a server that was not ready: read again, it goes on as a
    /// job, in its old place.
    pub(crate) fn run_again(&mut self, now: Timestamp, index: ConnectionIndex, reply_id: ReplyId) {
        let Some(connection) = self.connections[index.0 as usize].as_deref() else { return };
        let Some(&expected) = connection.replies.pending(reply_id) else { return };
        let mut arguments = ArgumentBuffer::default();
        let spec = connection
            .inbox
            .read_again(expected.position, &mut arguments)
            .and_then(|_| find(arguments.argument(0)));
        match spec {
            Some(spec) => {
                let kind =
                    if spec.class == Class::Read { JobKind::OneRead } else { JobKind::Transaction };
                let reply_to = ReplyTo { connection: index, reply_id, protocol: expected.protocol };
                self.open_job(now, kind, reply_to, spec, arguments.all());
            }
            None => {
                if let Some(connection) = self.connection(index) {
                    let protocol = expected.protocol;
                    connection.answer(reply_id, |out| {
                        ReplyWriter::new(out, protocol).error_bytes(Failure::CONTENDED.bytes());
                    });
                }
                self.answered(index);
            }
        }
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
    let Some(multi) = &mut connection.multi else { return };
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
