//! Commands that are not plain GETs and SETs: checked, queued by MULTI, carried out at once, sent
//! on their fast way, or made jobs.

use timestone_seda::MemoryUse;
use timestone_types::Timestamp;
use timestone_wire::resp::ReplyWriter;

use super::client::ClientNumber;
use super::command::{Class, Cmd, Spec, find};
use super::connection::{Connection, ConnectionIndex, Multi, Queued};
use super::core::Core;
use super::failure::{Failure, shown};
use super::fast::{OneWrite, Way};
use super::hot::HotKey;
use super::inbox::Position;
use super::job::{Asker, Item, JobId, Work};
use super::limits::{
    MAX_COMBINED, MAX_COMBINED_BYTES, MAX_MARKED_KEYS, MAX_QUEUED_BYTES, MAX_QUEUED_COMMANDS,
    QUEUED_COMMAND_BYTES, SHOWN_BYTES,
};
use super::local::{self, Listing, Surroundings};
use super::marks::{Mark, Touch};
use super::replies::{Asked, SlotId, Want};
use super::whole::Whole;
use super::words::{Args, Words};

/// How a transaction touches its keys, those that it only reads as well: a read behind it on the
/// same connection could overtake it, and find an older value than the transaction, which starts
/// again where it meets a conflict.
fn in_transaction(class: Class) -> Touch {
    if timestone_types::is_planted!(OvertakenTransactions) && class == Class::Read {
        return Touch::Read;
    }
    debug_assert!(
        matches!(class, Class::Read | Class::Write),
        "other commands have no keys in a transaction"
    );
    Touch::Write
}

/// What became of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    /// It is answered or under way.
    Taken,
    /// It must wait for commands before it; it will be looked at again.
    Wait,
    /// It is for [`Core::dispatch`].
    Elsewhere,
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
    /// Takes a command; `words` holds nothing else.
    pub(super) fn dispatch(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: Position,
        words: &Words,
    ) -> Flow {
        let args = words.all();
        let Some(connection) = self.connection(index) else { return Flow::Taken };
        let checked = match find(args.get(0)) {
            None => Err(unknown_command(args)),
            Some(spec) if !spec.accepts(args.len()) => Err(Failure::arity(spec.name)),
            Some(spec) => Ok(spec),
        };
        let checked = checked.and_then(|spec| match (&connection.multi, spec.cmd) {
            (Some(_), Cmd::Hello) => Err(Failure::NOT_IN_MULTI),
            (Some(_), _) if spec.class == Class::Whole => Err(Failure::NOT_QUEUEABLE),
            _ => Ok(spec),
        });
        let spec = match checked {
            Ok(spec) => spec,
            Err(failure) => {
                if let Some(multi) = &mut connection.multi {
                    multi.spoil();
                }
                connection.refuse(position, &failure);
                return Flow::Taken;
            }
        };
        connection.client.last_command = spec.name;
        let immediate = matches!(
            spec.cmd,
            Cmd::Exec | Cmd::Discard | Cmd::Multi | Cmd::Watch | Cmd::Quit | Cmd::Reset
        );
        if connection.multi.is_some() && !immediate {
            queue(connection, spec, args, position);
            return Flow::Taken;
        }
        match spec.class {
            Class::Local => self.local(now, index, position, spec, args),
            Class::State => self.state(now, index, position, spec, args),
            Class::Read | Class::Write => self.over_keys(now, index, position, spec, args),
            Class::Whole => self.whole(now, index, position, spec, args),
        }
    }

    /// What local commands are told of the server, with the lines of the clients that are wanted.
    pub(super) fn surroundings(&self, now: Timestamp, listing: &Listing) -> Surroundings {
        let mut lines = Vec::new();
        match listing {
            Listing::Nobody => {}
            Listing::Everybody => {
                for connection in
                    self.connections.iter().flatten().filter(|connection| !connection.gone)
                {
                    connection.client.describe(now, &mut lines);
                }
            }
            Listing::Of(ids) => {
                for connection in ids.iter().filter_map(|&id| self.find_client(ClientNumber(id))) {
                    connection.client.describe(now, &mut lines);
                }
            }
        }
        Surroundings {
            now,
            started: self.started,
            clients: self.clients.len(),
            connections: self.accepted,
            commands: self.commands,
            shards: self.engine.shards().routes().shards().len(),
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
        position: Position,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> Flow {
        let mut scratch = core::mem::take(&mut self.scratch);
        scratch.clear();
        let around = match spec.cmd {
            Cmd::Ping | Cmd::Echo | Cmd::Hello => None,
            _ => Some(
                Listing::wanted(spec.cmd, args).map(|listing| self.surroundings(now, &listing)),
            ),
        };
        if let Some(connection) = self.connection(index) {
            let protocol = connection.client.protocol;
            let client = &mut connection.client;
            let done = match &around {
                _ if spec.cmd == Cmd::Hello => local::hello(args, client, &mut scratch),
                Some(Ok(around)) => local::execute(
                    spec.cmd,
                    args,
                    around,
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
        Flow::Taken
    }

    /// MULTI and its kin.
    fn state(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: Position,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> Flow {
        let memory = std::sync::Arc::clone(&self.memory);
        let Some(connection) = self.connection(index) else { return Flow::Taken };
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
            return Flow::Taken;
        }
        match spec.cmd {
            Cmd::Exec => return self.exec(now, index, position),
            Cmd::Watch => return self.alone(now, index, position, spec, args, Work::Watch),
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
                return Flow::Taken;
            }
            _ => unreachable!("{} is no command on the transaction state", spec.name),
        }
        connection.replies.now(connection.client.protocol, position, |reply| reply.ok());
        Flow::Taken
    }

    /// EXEC: the queued commands become a job.
    fn exec(&mut self, now: Timestamp, index: ConnectionIndex, position: Position) -> Flow {
        let Some(connection) = self.connection(index) else { return Flow::Taken };
        let Some(multi) = connection.end_multi() else { return Flow::Taken };
        if multi.spoilt {
            connection.unwatch();
            connection.refuse(position, &Failure::EXEC_ABORTED);
            return Flow::Taken;
        }
        if connection.watch_lost {
            connection.unwatch();
            connection
                .replies
                .now(connection.client.protocol, position, |reply| reply.null_array());
            return Flow::Taken;
        }
        if multi.commands.is_empty() && connection.watched.is_empty() {
            connection.replies.now(connection.client.protocol, position, |reply| reply.array(0));
            return Flow::Taken;
        }
        let mut marks = Vec::new();
        for command in &multi.commands {
            for key in command.spec.keys(multi.words.args(command.words.clone())) {
                marks.push((key, in_transaction(command.spec.class)));
            }
        }
        let Some(connection) = self.connections[index.0 as usize].as_deref() else {
            return Flow::Taken;
        };
        marks.extend(connection.watched.keys().map(|key| (&**key, in_transaction(Class::Read))));
        let marks = self.free_marks(index, marks.into_iter());
        let Some(connection) = self.connection(index) else { return Flow::Taken };
        let Some(marks) = marks else {
            connection.client.queued = Some(multi.commands.len());
            connection.multi = Some(multi);
            return Flow::Wait;
        };
        let watched = core::mem::take(&mut connection.watched);
        let watched_charge = connection.watched_charge.take();
        connection.client.watched = 0;
        let asker = self.expect(now, index, position, Cmd::Exec, marks);
        let id = self.jobs.open(Work::Exec, now);
        if let Some(job) = self.jobs.get_mut(id) {
            let Multi { words, commands, charge, .. } = *multi;
            job.words = words;
            job.queued_charge = charge;
            job.exec = Some(asker);
            job.watched = watched.into_iter().collect();
            job.watched_charge = watched_charge;
            job.items.extend(commands.into_iter().map(|Queued { spec, words }| Item {
                asker,
                spec,
                words,
                reply: 0..0,
            }));
        }
        self.starts.push_back(id);
        Flow::Taken
    }

    /// A command over keys.
    fn over_keys(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: Position,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> Flow {
        let one_key = spec.key_places(args.len()).count() == 1;
        if spec.class == Class::Write && one_key {
            match OneWrite::of(spec.cmd, args, now) {
                Ok(Some(write)) => {
                    let flow = self.write_one(now, index, position, spec.cmd, &write);
                    if flow != Flow::Elsewhere {
                        return flow;
                    }
                    return self.queue_on_key(now, index, position, spec, args);
                }
                Ok(None) => return self.queue_on_key(now, index, position, spec, args),
                Err(failure) => {
                    if let Some(connection) = self.connection(index) {
                        connection.refuse(position, &failure);
                    }
                    return Flow::Taken;
                }
            }
        }
        let marks = if one_key {
            let touch = if spec.class == Class::Write { Touch::Write } else { Touch::Read };
            self.free_mark(index, args.get(1), touch)
        } else {
            self.free_marks(index, spec.keys(args).map(|key| (key, in_transaction(spec.class))))
        };
        let Some(marks) = marks else { return Flow::Wait };
        let work = if one_key { Work::OneRead } else { Work::Transaction };
        let asker = self.expect(now, index, position, spec.cmd, marks);
        self.open_job(now, work, asker, spec, args);
        Flow::Taken
    }

    fn write_one(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: Position,
        cmd: Cmd,
        write: &OneWrite<'_>,
    ) -> Flow {
        let Self { connections, engine, session, seed, busy, .. } = self;
        let Some(connection) = connections[index.0 as usize].as_deref_mut() else {
            return Flow::Taken;
        };
        let mut way = Way {
            engine,
            session: *session,
            seed: *seed,
            now,
            index,
            protocol: connection.client.protocol,
            position,
            replies: &mut connection.replies,
            marks: &mut connection.marks,
            busy,
        };
        way.write(cmd, write)
    }

    /// A command that reads one key and writes it: behind those on the same key, and together with
    /// those that wait there too.
    fn queue_on_key(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: Position,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> Flow {
        let key = args.get(1);
        let hash = self.hash(key);
        let Some(marks) = self.free_mark(index, key, Touch::Queued) else { return Flow::Wait };
        let asker = self.expect(now, index, position, spec.cmd, marks);
        self.busy.enter(hash);
        let Some(queue) = self.hot.get(hash) else {
            let id = self.open_job(now, Work::Transaction, asker, spec, args);
            self.set_queue(id, hash);
            self.hot.set(hash, HotKey { running: id, last: id });
            return Flow::Taken;
        };
        if queue.last != queue.running
            && let Some(job) = self.jobs.get_mut(queue.last)
            && job.items.len() < MAX_COMBINED
            && job.words.bytes() < MAX_COMBINED_BYTES
        {
            let words = job.words.push_args(args);
            job.items.push(Item { asker, spec, words, reply: 0..0 });
            return Flow::Taken;
        }
        let id = self.new_job(now, Work::Transaction, asker, spec, args);
        self.set_queue(id, hash);
        if let Some(last) = self.jobs.get_mut(queue.last) {
            last.next = Some(id);
        }
        self.hot.set(hash, HotKey { last: id, ..queue });
        Flow::Taken
    }

    fn set_queue(&mut self, id: JobId, hash: u64) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.queue = Some(hash);
        }
    }

    /// SCAN, KEYS, DBSIZE, RANDOMKEY, FLUSHDB.
    fn whole(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: Position,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> Flow {
        let work = match spec.cmd {
            Cmd::Flushdb | Cmd::Flushall => match args.len() {
                1 => Ok(Work::Flush),
                2 if args.is(1, b"SYNC") || args.is(1, b"ASYNC") => Ok(Work::Flush),
                _ => Err(Failure::SYNTAX),
            },
            cmd => Whole::parse(cmd, args, self.engine.shards().routes().shards().len())
                .map(Work::Whole),
        };
        match work {
            Ok(work) => self.alone(now, index, position, spec, args, work),
            Err(failure) => {
                if let Some(connection) = self.connection(index) {
                    connection.refuse(position, &failure);
                }
                Flow::Taken
            }
        }
    }

    /// A command that nothing else of its connection may overlap.
    fn alone(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: Position,
        spec: &'static Spec,
        args: Args<'_>,
        work: Work,
    ) -> Flow {
        let Some(connection) = self.connection(index) else { return Flow::Taken };
        if !connection.replies.is_empty() {
            return Flow::Wait;
        }
        let asker = self.expect(now, index, position, spec.cmd, Marked::Alone);
        self.open_job(now, work, asker, spec, args);
        Flow::Taken
    }

    /// The mark of a command's only key, when it may start now.
    fn free_mark(&self, index: ConnectionIndex, key: &[u8], touch: Touch) -> Option<Marked> {
        let connection = self.connections.get(index.0 as usize)?.as_deref()?;
        let mark = Mark::new(self.hash(key), touch);
        (!connection.marks.blocks(mark)).then_some(Marked::Key(mark))
    }

    /// The marks of a command's keys, when it may start now.
    fn free_marks<'k>(
        &self,
        index: ConnectionIndex,
        keys: impl Iterator<Item = (&'k [u8], Touch)>,
    ) -> Option<Marked> {
        let connection = self.connections.get(index.0 as usize)?.as_deref()?;
        let mut marks = Vec::new();
        for (key, touch) in keys {
            if marks.len() == MAX_MARKED_KEYS {
                return connection.replies.is_empty().then_some(Marked::Alone);
            }
            let mark = Mark::new(self.hash(key), touch);
            if connection.marks.blocks(mark) {
                return None;
            }
            marks.push(mark);
        }
        if !connection.marks.has_room(marks.len()) {
            return None;
        }
        Some(Marked::Keys(marks))
    }

    /// Expects a job's answer to a command.
    fn expect(
        &mut self,
        now: Timestamp,
        index: ConnectionIndex,
        position: Position,
        cmd: Cmd,
        marks: Marked,
    ) -> Asker {
        let Some(connection) = self.connection(index) else {
            unreachable!("a command comes from a connection that is there");
        };
        let protocol = connection.client.protocol;
        let slot = connection.replies.expect(Want::Job, protocol, position);
        connection.replies.note_asked(slot, Asked { cmd, at: now });
        match marks {
            Marked::Alone => connection.barrier = Some(slot),
            Marked::Key(mark) => connection.marks.add(mark, slot),
            Marked::Keys(marks) => {
                marks.into_iter().for_each(|mark| connection.marks.add(mark, slot))
            }
        }
        Asker { connection: index, slot, protocol }
    }

    fn new_job(
        &mut self,
        now: Timestamp,
        work: Work,
        asker: Asker,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> JobId {
        let id = self.jobs.open(work, now);
        if let Some(job) = self.jobs.get_mut(id) {
            let words = job.words.push_args(args);
            job.items.push(Item { asker, spec, words, reply: 0..0 });
        }
        id
    }

    fn open_job(
        &mut self,
        now: Timestamp,
        work: Work,
        asker: Asker,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> JobId {
        let id = self.new_job(now, work, asker, spec, args);
        self.starts.push_back(id);
        id
    }

    /// A fast command met a conflict, or a server that was not ready: read again, it goes on as a
    /// job, in its old place.
    pub(super) fn run_again(&mut self, now: Timestamp, index: ConnectionIndex, slot: SlotId) {
        let Some(connection) = self.connections[index.0 as usize].as_deref() else { return };
        let Some(&expected) = connection.replies.slot(slot) else { return };
        let mut words = Words::default();
        let spec = connection
            .inbox
            .read_again(expected.position, &mut words)
            .and_then(|_| find(words.word(0)));
        match spec {
            Some(spec) => {
                let work =
                    if spec.class == Class::Read { Work::OneRead } else { Work::Transaction };
                let asker = Asker { connection: index, slot, protocol: expected.protocol };
                self.open_job(now, work, asker, spec, words.all());
            }
            None => {
                if let Some(connection) = self.connection(index) {
                    let protocol = expected.protocol;
                    connection.answer(slot, |out| {
                        ReplyWriter::new(out, protocol).error_bytes(Failure::CONTENDED.bytes());
                    });
                }
                self.answered(index);
            }
        }
    }
}

/// What keeps others away from a command's keys.
enum Marked {
    /// A mark on its only key.
    Key(Mark),
    /// Marks on its keys.
    Keys(Vec<Mark>),
    /// It runs alone.
    Alone,
}

/// Queues a command in MULTI.
fn queue(connection: &mut Connection, spec: &'static Spec, args: Args<'_>, position: Position) {
    let Some(multi) = &mut connection.multi else { return };
    let bytes = args.memory_bytes();
    if !multi.spoilt
        && !multi
            .charge
            .as_mut()
            .is_none_or(|charge| charge.try_grow((bytes + QUEUED_COMMAND_BYTES) as u64))
    {
        multi.spoil();
        return connection.refuse(position, &Failure::NO_MEMORY_FOR_QUEUE);
    }
    if multi.words.memory_bytes() + bytes > MAX_QUEUED_BYTES
        || multi.commands.len() >= MAX_QUEUED_COMMANDS
    {
        multi.spoil();
        return connection.refuse(position, &Failure::TOO_MANY_QUEUED);
    }
    if multi.spoilt {
        // It will not be carried out: nothing of it is kept.
        return connection
            .replies
            .now(connection.client.protocol, position, |reply| reply.simple("QUEUED"));
    }
    let words = multi.words.push_args(args);
    multi.commands.push(Queued { spec, words });
    connection.client.queued = Some(multi.commands.len());
    connection.replies.now(connection.client.protocol, position, |reply| reply.simple("QUEUED"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_commands_are_quoted_as_redis_quotes_them() {
        let mut words = Words::default();
        [&b"FOO"[..], b"a", b"b c"].iter().for_each(|word| words.push(word));
        let text = b"ERR unknown command 'FOO', with args beginning with: 'a' 'b c' ";
        assert_eq!(unknown_command(words.all()), Failure::text(*text));
        words.clear();
        words.push(&[b'x'; 300]);
        words.push(&[b'y'; 300]);
        words.push(b"z");
        let failure = unknown_command(words.all());
        let text = String::from_utf8(failure.bytes().to_vec()).unwrap();
        assert!(
            text.contains(&format!("'{}'", "x".repeat(128)))
                && text.ends_with(&format!("'{}' ", "y".repeat(128)))
        );
    }
}
