//! How jobs run: start, take answers, execute, commit, answer or start again. See [`super::job`]
//! for the picture.
//!
//! An attempt reads at one snapshot; the commit validates that every version read is still the
//! latest, for transactions that write nothing too (`strict`), so a command sees everything that
//! was acknowledged before it was sent, whichever gateway did it. What a job does in one turn is
//! bounded, so that others are served in between: it asks for some keys at a time, and carries out
//! some of an EXEC's commands. WATCH is a list of versions that EXEC compares inside its own
//! transaction: so only watched keys can make it answer nil, everything else that gets in its way
//! is a retry.

use std::sync::Arc;

use timestone_seda::limits::MEMORY_TIMEOUT;
use timestone_seda::{Charge, Memory, MemoryUse};
use timestone_session::{OpId, OpResult, RequestOptions, SessionError, Step, TxnOptions};
use timestone_types::limits::MAX_TXN_BYTES;
use timestone_types::{Timestamp, Version};
use timestone_wire::resp::ReplyWriter;

use super::command::{Class, Cmd};
use super::connection::Watched;
use super::core::Core;
use super::failure::Failure;
use super::job::{Item, Job, JobId, Operation, Work};
use super::keys;
use super::limits::{
    CHARGED_MADE_BYTES, CHARGED_READ_BYTES, COMMAND_BYTES, EXEC_BYTES_AT_ONCE, KEYS_AT_ONCE,
    MAX_ANSWER_BYTES, MAX_WATCHED_KEYS, RETRY_FOR, SHED_FROM_BYTES, UNREAD_PAUSE,
    WATCHED_KEY_BYTES,
};
use super::local::{self, Listing};
use super::marks::Read;
use super::strings;
use super::view::{KEYSPACE, OneKeyView, TransactionView};

/// What executing a job's commands came to.
enum Executed {
    /// Their answers are written; commit.
    Commit,
    /// Some are left for the next turn.
    Paused,
    /// There is no memory for what the next one makes.
    NoMemory,
    /// A watched key was touched.
    Touched,
}

impl Job {
    /// Takes the result of one of the job's operations; its id when that was the last one.
    pub(super) fn take_result(
        &mut self,
        now: Timestamp,
        id: JobId,
        number: u64,
        result: &OpResult<'_>,
        scratch: &mut Vec<u8>,
        memory: &Arc<Memory>,
    ) -> Option<JobId> {
        let place = self.place_of(number)?;
        self.left = self.left.checked_sub(1)?;
        match (&mut self.work, result) {
            (_, OpResult::Failed(SessionError::NoTransaction)) if !self.committing => {}
            (_, OpResult::Failed(error)) => {
                self.again |= error.retryable();
                self.failure = Some(error.into());
            }
            (_, OpResult::Aborted(abort)) => {
                self.again |= abort.retryable();
                self.failure = Some(Failure::aborted(abort));
            }
            (_, OpResult::Unknown(txn)) => {
                self.again = false;
                self.failure = Some(Failure::unknown(*txn));
            }
            (Work::OneRead, OpResult::Value(found)) => {
                self.found = Some(Read { version: found.version, present: found.value.is_some() });
                let view = &mut OneKeyView { found: *found };
                let Some(item) = self.items.first_mut() else { return Some(id) };
                let args = self.words.args(item.words.clone());
                let reply = &mut ReplyWriter::new(&mut self.reply, item.asker.protocol);
                self.failure = keys::execute(item.spec.cmd, args, now, view, scratch, reply).err();
                item.reply = 0..self.reply.len();
            }
            (Work::Transaction | Work::Exec, OpResult::Value(found)) => {
                let bytes = found.value.map_or(0, <[u8]>::len);
                if !self.charge_read(bytes, memory) {
                    self.failure = Some(Failure::NO_MEMORY_FOR_ANSWER);
                    // Nobody waits for the others: they would only take more of it.
                    self.left = 0;
                    self.ops = 0;
                }
            }
            (Work::Watch, OpResult::Value(found)) => {
                let key = Box::from(self.words.word(place as u32 + 1));
                self.watched.push((
                    key,
                    Watched { version: found.version, present: found.value.is_some() },
                ));
            }
            (Work::Whole(whole), OpResult::Frame(bytes)) => {
                let before = whole.found_bytes();
                let taken = whole.take_page(place as usize, bytes, &self.words);
                let more = whole.found_bytes().saturating_sub(before);
                let has_room = self.charge_read(more, memory);
                if let Err(failure) =
                    taken.and(if has_room { Ok(()) } else { Err(Failure::NO_MEMORY_FOR_ANSWER) })
                {
                    self.failure = Some(failure);
                    if let Work::Whole(whole) = &mut self.work {
                        whole.forget();
                    }
                    // Nobody waits for the other pages: they would only take more of it.
                    self.left = 0;
                    self.ops = 0;
                }
            }
            _ => {}
        }
        (self.left == 0).then_some(id)
    }

    /// A key could not be asked for: no attempt can do without it.
    fn cannot_ask(&mut self, error: &SessionError) {
        self.again |= error.retryable();
        let (item, ..) = self.asks_from;
        let failure = Failure::from(error);
        self.failure = Some(match (error, self.items.get(item)) {
            // A key that nobody may have is the fault of the command that names it.
            (SessionError::Limit(_), Some(at_fault)) if self.exec.is_some() => {
                Failure::in_transaction(item + 1, at_fault.spec.name, &failure)
            }
            _ => failure,
        });
    }

    /// Counts a value that the transaction has read, or keys that were found; large ones in the
    /// process's memory, twice: there and in the answer. Whether there is room.
    fn charge_read(&mut self, bytes: usize, memory: &Arc<Memory>) -> bool {
        if timestone_types::is_planted!(UncountedKeys) && matches!(self.work, Work::Whole(_)) {
            return true;
        }
        self.read_bytes += bytes;
        let wanted = 2 * self.read_bytes as u64;
        match &mut self.read_charge {
            None if self.read_bytes < CHARGED_READ_BYTES => true,
            Some(charge) => charge.try_grow(wanted.saturating_sub(charge.bytes())),
            none => {
                *none = memory.try_charge(MemoryUse::Output, wanted);
                none.is_some()
            }
        }
    }

    /// Counts the answer, which is about to be `more` bytes longer. What the values that were read
    /// are counted for covers it as far as each of them is answered once; commands may answer the
    /// same value, or one that they have written, again and again.
    fn charge_answer(&mut self, more: usize, memory: &Arc<Memory>) -> Result<(), Failure> {
        if timestone_types::is_planted!(BoundlessAnswers) {
            return Ok(());
        }
        let bytes = self.reply.len().saturating_add(more);
        if bytes > MAX_ANSWER_BYTES {
            return Err(Failure::ANSWER_TOO_LONG);
        }
        let wanted = (self.read_bytes + bytes) as u64;
        let has_room = match &mut self.read_charge {
            _ if bytes < CHARGED_READ_BYTES => true,
            Some(charge) if charge.bytes() >= wanted => true,
            Some(charge) => charge.try_grow(wanted - charge.bytes()),
            none => {
                *none = memory.try_charge(MemoryUse::Output, wanted);
                none.is_some()
            }
        };
        if has_room { Ok(()) } else { Err(Failure::NO_MEMORY_FOR_ANSWER) }
    }
}

impl Core {
    /// Starts a job, for the first time or again.
    pub(super) fn start(&mut self, now: Timestamp, id: JobId) {
        let Some(mut job) = self.jobs.lift(id) else { return };
        if job.unread && (!self.has_reader(&job, 0) || self.overtakes(&job)) {
            return self.wait_for_reader(now, id, job);
        }
        job.read_bytes = 0;
        job.read_charge = None;
        job.attempts += 1;
        job.committing = false;
        job.failure = None;
        job.found = None;
        job.again = false;
        (job.asked, job.asks_more, job.executed, job.makes) = (0, false, 0, 0);
        job.asks_from = (0, 0, 0);
        job.reply.clear();
        if let Err(error) = self.ask_for_keys(now, id, &mut job) {
            job.cannot_ask(&error);
        }
        let waits = job.left > 0;
        self.jobs.put_back(id, job);
        if !waits {
            self.proceed(now, id);
        }
    }

    /// Begins what a job needs, and asks for its first keys.
    fn ask_for_keys(
        &mut self,
        now: Timestamp,
        id: JobId,
        job: &mut Job,
    ) -> Result<(), SessionError> {
        match &job.work {
            Work::OneRead | Work::Watch => {
                let count = u64::from(job.words.count() - 1);
                let keys = if matches!(job.work, Work::OneRead) { 1 } else { count };
                job.watched.clear();
                self.jobs.number(job, keys);
                self.ask_more(now, id, job)
            }
            Work::Transaction | Work::Exec | Work::Flush => {
                let options = TxnOptions { strict: true, ..TxnOptions::default() };
                let txn = self.engine.begin(now, self.session, options)?;
                job.txn = Some(txn);
                if matches!(job.work, Work::Flush) {
                    return self.engine.fence(now, txn, KEYSPACE);
                }
                let most = job.words.count() as usize + job.watched.len();
                self.jobs.number(job, most as u64);
                self.ask_more(now, id, job)
            }
            Work::Whole(whole) if !whole.knows_newest() => self.ask_newest(now, id, job),
            Work::Whole(_) => {
                // A SCAN that would stop at the first shard of another server is not begun.
                self.engine.shards().reaches_all()?;
                let options = TxnOptions { read_only: true, ..TxnOptions::default() };
                let txn = self.engine.begin(now, self.session, options)?;
                job.txn = Some(txn);
                let at = self.engine.begin_timestamp(txn)?;
                #[cfg(feature = "planted-bugs")]
                let at = if timestone_types::is_planted!(StaleCounts) {
                    Timestamp::from_nanos(at.as_nanos().saturating_sub(20_000_000))
                } else {
                    at
                };
                let random = self.draw();
                if let Work::Whole(whole) = &mut job.work {
                    whole.begin(at, random);
                }
                self.ask_shards(now, id, job)
            }
        }
    }

    /// Asks for the next keys of a job: some at a time, so that neither this stage nor a shard has
    /// too much to do in one turn.
    fn ask_more(&mut self, now: Timestamp, id: JobId, job: &mut Job) -> Result<(), SessionError> {
        if matches!(job.work, Work::OneRead | Work::Watch) {
            let until = (job.ops as usize).min(job.asked + KEYS_AT_ONCE);
            for place in job.asked..until {
                let op = OpId(Operation::Job(id, job.first_op + place as u64).pack());
                let key = job.words.word(place as u32 + 1);
                self.engine.get_latest(
                    now,
                    self.session,
                    KEYSPACE,
                    key,
                    RequestOptions::default(),
                    op,
                )?;
                job.left += 1;
            }
            (job.asked, job.asks_more) = (until, until < job.ops as usize);
            return Ok(());
        }
        let Some(txn) = job.txn else { return Ok(()) };
        let Job { items, words, watched, left, first_op, asked, asks_more, asks_from, .. } = job;
        let until = *asked + KEYS_AT_ONCE;
        let (item, key, watch) = asks_from;
        while *asked < until {
            let next = match items.get(*item) {
                Some(next) => {
                    let args = words.args(next.words.clone());
                    let at =
                        next.spec.key_place(args.len(), *key).filter(|_| next.spec.reads(args));
                    let next = at.map(|at| args.get(at));
                    *key += 1;
                    if next.is_none() {
                        (*item, *key) = (*item + 1, 0);
                        continue;
                    }
                    next
                }
                None => {
                    *watch += 1;
                    watched.get(*watch - 1).map(|(key, _)| &**key)
                }
            };
            let Some(name) = next else { break };
            let op = OpId(Operation::Job(id, *first_op + *asked as u64).pack());
            if let Step::Pending(_) = self.engine.get(now, txn, KEYSPACE, name, op)? {
                *left += 1;
            }
            *asked += 1;
        }
        *asks_more = *asked == until;
        Ok(())
    }

    /// The next number of a sequence that is good enough to pick keys by.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// A job has all the answers that it waited for.
    pub(super) fn proceed(&mut self, now: Timestamp, id: JobId) {
        let Some(mut job) = self.jobs.lift(id) else { return };
        if job.again {
            return self.pause(now, id, job);
        }
        if let Some(failure) = job.failure.take() {
            return self.finish(id, job, Some(&failure));
        }
        if job.asks_more {
            if let Err(error) = self.ask_more(now, id, &mut job) {
                job.asks_more = false;
                job.cannot_ask(&error);
            }
            // With nothing to wait for, since all of these were known, it goes on in the next turn.
            if job.left == 0 {
                self.paused.push_back(id);
            }
            return self.jobs.put_back(id, job);
        }
        let committed = job.committing;
        if committed
            && timestone_types::is_planted!(RepeatedCommits)
            && job.attempts == 1
            && self.draw().is_multiple_of(8)
        {
            return self.pause(now, id, job);
        }
        match job.work {
            Work::OneRead
                if job.reply.len() >= SHED_FROM_BYTES
                    && !self.has_reader(&job, job.reply.len()) =>
            {
                self.wait_for_reader(now, id, job);
            }
            Work::OneRead if self.overtakes(&job) || self.is_outdated(&job) => {
                self.wait_for_reader(now, id, job)
            }
            Work::OneRead => {
                self.note_read(&job);
                self.finish(id, job, None);
            }
            Work::Transaction | Work::Exec | Work::Flush if committed => self.finish(id, job, None),
            Work::Transaction | Work::Exec => self.execute(now, id, job),
            Work::Flush => {
                answer_ok(&mut job);
                self.commit(now, id, job);
            }
            Work::Watch => self.watch(id, job),
            Work::Whole(_) => self.proceed_whole(now, id, job),
        }
    }

    /// Whether whom a job answers has room for an answer of this length.
    fn has_reader(&self, job: &Job, length: usize) -> bool {
        job.items.first().is_none_or(|item| self.takes_answer(item.asker, length))
    }

    /// Whether a read of one key comes before an earlier command of its connection on that key.
    fn overtakes(&self, job: &Job) -> bool {
        let asker =
            job.items.first().map(|item| item.asker).filter(|_| matches!(job.work, Work::OneRead));
        let connection =
            asker.and_then(|asker| self.connections.get(asker.connection.0 as usize)?.as_deref());
        connection.zip(asker).is_some_and(|(connection, asker)| connection.overtakes(asker.slot))
    }

    /// Whether an earlier read of its connection was answered with a later state of the key than
    /// this read has found.
    fn is_outdated(&mut self, job: &Job) -> bool {
        let Some((asker, found)) = job.items.first().map(|item| item.asker).zip(job.found) else {
            return false;
        };
        self.connection(asker.connection)
            .is_some_and(|connection| connection.marks.is_outdated(asker.slot, found))
    }

    /// A read of one key is about to be answered.
    fn note_read(&mut self, job: &Job) {
        let Some((asker, found)) = job.items.first().map(|item| item.asker).zip(job.found) else {
            return;
        };
        if let Some(connection) = self.connection(asker.connection) {
            connection.marks.answers(asker.slot, found);
        }
    }

    /// A read whose answer found no room, or has overtaken an earlier one, starts again when it may
    /// be answered: what it has read is given back meanwhile.
    fn wait_for_reader(&mut self, now: Timestamp, id: JobId, mut job: Box<Job>) {
        job.unread = true;
        job.reply = Vec::new();
        job.began = now;
        job.left = 0;
        job.ops = 0;
        job.paused_until = now.saturating_add(UNREAD_PAUSE);
        self.jobs.put_back(id, job);
        self.pausing.push(id);
    }

    fn watch(&mut self, id: JobId, mut job: Box<Job>) {
        answer_ok(&mut job);
        let memory = Arc::clone(&self.memory);
        let mut failure = None;
        if let Some(connection) =
            job.items.first().and_then(|item| self.connection(item.asker.connection))
        {
            job.watched.retain(|(key, _)| !connection.watched.contains_key(key));
            let bytes: usize =
                job.watched.iter().map(|(key, _)| key.len() + WATCHED_KEY_BYTES).sum();
            if connection.watched.len() + job.watched.len() > MAX_WATCHED_KEYS {
                failure = Some(Failure::TOO_MANY_WATCHED);
            } else if !grow(&mut connection.watched_charge, &memory, bytes as u64) {
                failure = Some(Failure::NO_MEMORY_FOR_WATCH);
            } else {
                for (key, found) in job.watched.drain(..) {
                    connection.watched.entry(key).or_insert(found);
                }
            }
            connection.client.watched = connection.watched.len();
        }
        self.finish(id, job, failure.as_ref());
    }

    /// Runs a job's commands over its view, and commits.
    fn execute(&mut self, now: Timestamp, id: JobId, mut job: Box<Job>) {
        match self.execute_commands(now, &mut job) {
            Ok(Executed::Commit) => self.commit(now, id, job),
            Ok(Executed::Paused) => {
                self.paused.push_back(id);
                self.jobs.put_back(id, job);
            }
            Ok(Executed::NoMemory) => self.wait_for_memory(now, id, job),
            Ok(Executed::Touched) => {
                job.reply.clear();
                if let Some(asker) = job.exec {
                    ReplyWriter::new(&mut job.reply, asker.protocol).null_array();
                }
                self.finish(id, job, None);
            }
            Err(failure) => self.finish(id, job, Some(&failure)),
        }
    }

    fn execute_commands(&mut self, now: Timestamp, job: &mut Job) -> Result<Executed, Failure> {
        let txn = job.txn.ok_or(Failure::INTERNAL)?;
        if self.has_had_its_share() {
            return Ok(Executed::Paused);
        }
        if job.executed == 0 {
            for (key, watched) in &job.watched {
                let found = self.engine.peek(txn, KEYSPACE, key).ok_or(Failure::INTERNAL)?;
                if timestone_types::is_planted!(IgnoredWatch) {
                    continue;
                }
                if watched.is_touched(&found) {
                    return Ok(Executed::Touched);
                }
            }
            job.reply.clear();
            if let Some(asker) = job.exec {
                ReplyWriter::new(&mut job.reply, asker.protocol).array(job.items.len());
            }
        }
        let combined = job.exec.is_none() && job.items.len() > 1;
        for place in job.executed..job.items.len() {
            if self.has_had_its_share() {
                job.executed = place;
                return Ok(Executed::Paused);
            }
            let made = self.bytes_made(txn, job, place);
            if !self.charge_made(job, made) {
                return Ok(Executed::NoMemory);
            }
            self.carried_out += COMMAND_BYTES + self.bytes_before(txn, job, place) + made;
            let start = job.reply.len();
            // Before the command: nothing may be refused of which something is done.
            let many = self.bytes_of_many(txn, job, place);
            let room = job.charge_answer(many, &self.memory);
            let done = match room {
                Ok(()) => self.execute_one(now, txn, job, place),
                Err(failure) => Err(failure),
            };
            let Item { asker, spec, .. } = job.items[place];
            if let Err(failure) = done {
                if job.exec.is_some() {
                    return Err(Failure::in_transaction(place + 1, spec.name, &failure));
                }
                if !combined {
                    return Err(failure);
                }
                job.reply.truncate(start);
                ReplyWriter::new(&mut job.reply, asker.protocol).error_bytes(failure.bytes());
            }
            job.items[place].reply = start..job.reply.len();
            self.carried_out += job.reply.len() - start;
        }
        Ok(Executed::Commit)
    }

    /// The bytes that a command is about to go through: its own, and the value that its first key
    /// has.
    fn bytes_before(&self, txn: timestone_session::TxnHandle, job: &Job, place: usize) -> usize {
        let args = job.words.args(job.items[place].words.clone());
        let own: usize = args.iter().map(<[u8]>::len).sum();
        let found = self.engine.peek(txn, KEYSPACE, args.get(1)).and_then(|view| view.value);
        own + found.map_or(0, <[u8]>::len)
    }

    /// Whether jobs have had their share of this turn. One share for all: each of them may be one
    /// command that makes much out of little.
    pub(super) fn has_had_its_share(&self) -> bool {
        if timestone_types::is_planted!(BoundlessTurns) {
            return false;
        }
        self.carried_out > EXEC_BYTES_AT_ONCE
    }

    /// The bytes that a command makes beside those that it brings: what it leaves as it is of a
    /// value is written again, and zeros fill gaps.
    fn bytes_made(&self, txn: timestone_session::TxnHandle, job: &Job, place: usize) -> usize {
        let Item { spec, words, .. } = &job.items[place];
        if !strings::makes(spec.cmd) {
            return 0;
        }
        let args = job.words.args(words.clone());
        let found = self.engine.peek(txn, KEYSPACE, args.get(1));
        let length = found.and_then(|found| found.value).map_or(0, <[u8]>::len);
        // What the transaction has written itself came with its commands, or was counted when it
        // was made.
        let is_own = found.is_some_and(|found| found.version == Version::ZERO);
        strings::bytes_made(spec.cmd, args, length).saturating_sub(if is_own { length } else { 0 })
    }

    /// How long the values are that a command over many keys answers with.
    fn bytes_of_many(&self, txn: timestone_session::TxnHandle, job: &Job, place: usize) -> usize {
        let Item { spec, words, .. } = &job.items[place];
        if spec.cmd != Cmd::Mget {
            return 0;
        }
        let value = |key| {
            self.engine.peek(txn, KEYSPACE, key).and_then(|view| view.value).map_or(0, <[u8]>::len)
        };
        spec.keys(job.words.args(words.clone())).map(value).fold(0, usize::saturating_add)
    }

    fn execute_one(
        &mut self,
        now: Timestamp,
        txn: timestone_session::TxnHandle,
        job: &mut Job,
        place: usize,
    ) -> Result<(), Failure> {
        let Job { items, words, reply, .. } = job;
        let item = &items[place];
        let args = words.args(item.words.clone());
        let cmd = item.spec.cmd;
        let reply = &mut ReplyWriter::new(reply, item.asker.protocol);
        match item.spec.class {
            Class::Read | Class::Write => {
                let view = &mut TransactionView { engine: &mut self.engine, txn, now };
                keys::execute(cmd, args, now, view, &mut self.scratch, reply)
            }
            Class::Local => {
                let around = self.surroundings(now, &Listing::wanted(cmd, args)?);
                let connection = self.connection(item.asker.connection).ok_or(Failure::INTERNAL)?;
                local::execute(cmd, args, &around, &mut connection.client, reply)
            }
            // UNWATCH inside of a transaction comes too late to matter.
            Class::State | Class::Whole => {
                reply.ok();
                Ok(())
            }
        }
    }

    /// Counts the bytes that a job is about to make; whether there is memory for them. Nothing of
    /// them is made before.
    fn charge_made(&mut self, job: &mut Job, more: usize) -> bool {
        if timestone_types::is_planted!(UncountedMaking) {
            return true;
        }
        if more == 0 {
            return true;
        }
        // Values that are made again and again for one key are written once: a transaction writes
        // no more than that.
        job.makes = (job.makes + more as u64).min(MAX_TXN_BYTES as u64);
        if job.makes < CHARGED_MADE_BYTES || job.makes <= job.counted {
            return true;
        }
        // Those that wait come first, however little this one asks for.
        let has_room = (job.counted > 0 || self.without_memory.is_empty())
            && self.has_room_to_make(job, job.makes);
        if has_room {
            self.count_made(job, job.makes);
        } else {
            self.memory.note_refused(MemoryUse::Input);
        }
        has_room
    }

    /// Whether so much may be counted for a job. Whatever its size, what the only job makes that
    /// makes anything here has room: it may wait for what it takes itself, as the command that it
    /// came with, and others may hold what they have for as long as they like.
    fn has_room_to_make(&self, job: &Job, bytes: u64) -> bool {
        if timestone_types::is_planted!(GreedyMakers) {
            let used = self.memory.used(MemoryUse::Input);
            let queued = job.queued_charge.as_ref().map_or(0, Charge::bytes);
            return job.counted == 0 && used <= queued
                || bytes - job.counted <= self.room_to_make();
        }
        if timestone_types::is_planted!(RestartedMakers) && job.counted > 0 {
            return bytes - job.counted <= self.room_to_make();
        }
        self.makes == job.counted || bytes - job.counted <= self.room_to_make()
    }

    /// What is left for jobs to make. They have half of the memory for input, so that what is
    /// received always finds the other half.
    fn room_to_make(&self) -> u64 {
        let limit = self.memory.limit(MemoryUse::Input);
        if timestone_types::is_planted!(GreedyMakers) {
            return limit.saturating_sub(self.memory.used(MemoryUse::Input));
        }
        (limit / 2).saturating_sub(self.memory.used(MemoryUse::Input))
    }

    /// Counts so much for what a job makes. What has room only because nothing else is made is not
    /// charged: it would keep out what is received, for as long as one such job follows another.
    fn count_made(&mut self, job: &mut Job, bytes: u64) {
        debug_assert!(bytes >= job.counted, "{bytes} are fewer than {}", job.counted);
        let more = bytes - job.counted;
        let charged = job.charged + more.min(self.room_to_make());
        self.makes += more;
        self.made.change(job.charged, charged);
        (job.counted, job.charged) = (bytes, charged);
    }

    /// What a job makes is made, or will not be.
    fn give_back_made(&mut self, job: &mut Job) {
        debug_assert!(
            self.makes >= job.counted && job.counted >= job.charged,
            "what a job makes is counted once"
        );
        self.makes -= job.counted;
        self.made.change(job.charged, 0);
        (job.counted, job.charged) = (0, 0);
    }

    /// There is no memory for what a job makes: it starts again when there is, and holds nothing
    /// until then.
    fn wait_for_memory(&mut self, now: Timestamp, id: JobId, mut job: Box<Job>) {
        if let Some(txn) = job.txn.take() {
            self.engine.abort(txn);
        }
        (job.read_bytes, job.read_charge) = (0, None);
        job.reply = Vec::new();
        // A transaction of many commands asks for a quarter more than it needed so far: it would
        // begin again at each of them.
        let ahead = if job.counted > 0 { job.makes / 4 } else { 0 };
        (job.needs, job.wants) = (job.makes, job.makes + ahead);
        self.give_back_made(&mut job);
        (job.left, job.ops) = (0, 0);
        let has_waited = job.waits_since.replace(now).is_some();
        self.jobs.put_back(id, job);
        if has_waited {
            self.without_memory.push_front(id);
        } else {
            self.without_memory.push_back(id);
        }
    }

    /// Starts the jobs again that have waited for memory, as far as there is some; ends those that
    /// have waited for too long.
    pub(super) fn feed_jobs(&mut self, now: Timestamp) {
        while let Some(&id) = self.without_memory.front() {
            let Some(job) = self.jobs.get(id) else { return };
            let waited =
                job.waited + job.waits_since.map_or(MEMORY_TIMEOUT, |since| now.since(since));
            let is_over = waited >= MEMORY_TIMEOUT;
            if !is_over && !self.has_room_to_make(job, job.needs) {
                return;
            }
            self.without_memory.pop_front();
            let Some(mut job) = self.jobs.lift(id) else { return };
            if is_over {
                self.finish(id, job, Some(&Failure::NO_MEMORY_TO_MAKE));
                continue;
            }
            job.waited = waited;
            // Of what it would rather have, as much as there is: with less it would begin again
            // although nothing has become free.
            let bytes = job.wants.min(self.room_to_make()).max(job.needs);
            self.count_made(&mut job, bytes);
            self.jobs.put_back(id, job);
            self.starts.push_back(id);
        }
    }

    pub(super) fn commit(&mut self, now: Timestamp, id: JobId, mut job: Box<Job>) {
        let Some(txn) = job.txn else { return self.finish(id, job, Some(&Failure::INTERNAL)) };
        self.jobs.number(&mut job, 1);
        job.committing = true;
        if timestone_types::is_planted!(EndlessWaits) {
            job.began = job.began.saturating_add(core::mem::take(&mut job.waited));
            job.waits_since = None;
        }
        let op = OpId(Operation::Job(id, job.first_op).pack());
        match self.engine.commit(now, txn, op).map(|step| matches!(step, Step::Pending(_))) {
            Ok(true) => {
                job.left = 1;
                self.jobs.put_back(id, job);
            }
            Ok(false) => self.finish(id, job, None),
            Err(error) => {
                job.again = error.retryable();
                let failure = Failure::from(error);
                if job.again {
                    job.failure = Some(failure);
                    self.pause(now, id, job);
                } else {
                    self.finish(id, job, Some(&failure));
                }
            }
        }
    }

    /// An attempt met a conflict: another one follows after a pause, unless there were enough.
    fn pause(&mut self, now: Timestamp, id: JobId, mut job: Box<Job>) {
        if let Some(txn) = job.txn.take() {
            self.engine.abort(txn);
        }
        self.give_back_made(&mut job);
        let gone = |item: &Item| {
            let connection =
                self.connections.get(item.asker.connection.0 as usize).and_then(Option::as_deref);
            connection.is_none_or(|connection| connection.gone)
        };
        // The time that it has waited for memory is none of the time for which conflicts are tried
        // again.
        let tried = now.since(job.began).saturating_sub(job.waited);
        if tried >= RETRY_FOR || job.items.iter().all(gone) && job.exec.is_none() {
            let failure = job.failure.take().unwrap_or(Failure::CONTENDED);
            return self.finish(id, job, Some(&failure));
        }
        job.paused_until = now.saturating_add(self.engine.backoff(job.attempts));
        job.left = 0;
        job.ops = 0;
        self.jobs.put_back(id, job);
        self.pausing.push(id);
    }

    /// Answers a job's clients, and lets the next in its queue start.
    pub(super) fn finish(&mut self, id: JobId, mut job: Box<Job>, failure: Option<&Failure>) {
        if let Some(txn) = job.txn.take() {
            // Without effect when it was committed.
            self.engine.abort(txn);
        }
        self.give_back_made(&mut job);
        if let Some(asker) = job.exec {
            let whole = 0..job.reply.len();
            let spec = job.items.first().map(|item| item.spec);
            let spec = spec.or_else(|| super::command::find(b"exec"));
            job.items.clear();
            job.items.extend(spec.map(|spec| Item { asker, spec, words: 0..0, reply: whole }));
        }
        for item in &job.items {
            let asker = item.asker;
            if let Some(connection) = self.connection(asker.connection) {
                let asked = connection.answer(asker.slot, |out| match failure {
                    Some(failure) => {
                        ReplyWriter::new(out, asker.protocol).error_bytes(failure.bytes())
                    }
                    None => out.extend_from_slice(&job.reply[item.reply.clone()]),
                });
                self.gauges.answered(asked, self.clock);
            }
            self.answered(asker.connection);
        }
        if let Some(hash) = job.queue {
            self.busy.leave(hash, job.items.len());
            match (self.hot.get(hash), job.next) {
                (Some(queue), Some(next)) => {
                    self.hot.set(hash, super::hot::HotKey { running: next, ..queue });
                    self.starts.push_back(next);
                }
                _ => self.hot.remove(hash),
            }
        }
        self.jobs.close(id, job);
    }
}

/// Counts so many bytes of input more, if they fit.
fn grow(charge: &mut Option<Charge>, memory: &Arc<Memory>, bytes: u64) -> bool {
    match charge {
        Some(charge) => charge.try_grow(bytes),
        none => {
            *none = memory.try_charge(MemoryUse::Input, bytes);
            none.is_some()
        }
    }
}

/// The answer of a command that has nothing to say.
fn answer_ok(job: &mut Job) {
    let Some(item) = job.items.first_mut() else { return };
    job.reply.clear();
    ReplyWriter::new(&mut job.reply, item.asker.protocol).ok();
    item.reply = 0..job.reply.len();
}
