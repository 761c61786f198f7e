//! How jobs run: start, take answers, execute, commit, answer or start again. See [`super::job`] for the picture.
//!
//! An attempt reads at one snapshot; the commit validates that every version read is still the latest, for transactions that write
//! nothing too (`strict`), so a command sees everything that was acknowledged before it was sent, whichever gateway did it.
//! WATCH is a list of versions that EXEC compares inside its own transaction: so only watched keys can make it answer nil,
//! everything else that gets in its way is a retry.

use timestone_session::{OpId, OpResult, RequestOptions, SessionError, Step, TxnOptions};
use timestone_types::Timestamp;
use timestone_wire::resp::ReplyWriter;

use super::command::{Class, Cmd};
use super::connection::Watched;
use super::core::Core;
use super::failure::Failure;
use super::job::{Item, Job, JobId, Operation, Work};
use super::keys;
use super::limits::RETRY_FOR;
use super::local;
use super::view::{KEYSPACE, OneKeyView, TransactionView};

/// What executing a job's commands came to.
enum Executed {
    /// Their answers are written; commit.
    Commit,
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
                let view = &mut OneKeyView { found: *found };
                let Some(item) = self.items.first_mut() else { return Some(id) };
                let args = self.words.args(item.words.clone());
                let reply = &mut ReplyWriter::new(&mut self.reply, item.asker.protocol);
                self.failure = keys::execute(item.spec.cmd, args, now, view, scratch, reply).err();
                item.reply = 0..self.reply.len();
            }
            (Work::Watch, OpResult::Value(found)) => {
                let key = Box::from(self.words.word(place as u32 + 1));
                self.watched.push(Watched { key, version: found.version, present: found.value.is_some() });
            }
            (Work::Whole(whole), OpResult::Frame(bytes)) => {
                if let Err(failure) = whole.take_page(place as usize, bytes, &self.words) {
                    self.failure = Some(failure);
                }
            }
            _ => {}
        }
        (self.left == 0).then_some(id)
    }
}

impl Core {
    /// Starts a job, for the first time or again.
    pub(super) fn start(&mut self, now: Timestamp, id: JobId) {
        let Some(mut job) = self.jobs.lift(id) else { return };
        job.attempts += 1;
        job.committing = false;
        job.failure = None;
        job.again = false;
        job.reply.clear();
        if let Err(error) = self.ask_for_keys(now, id, &mut job) {
            job.again |= error.retryable();
            job.failure = Some(error.into());
        }
        let waits = job.left > 0;
        self.jobs.put_back(id, job);
        if !waits {
            self.proceed(now, id);
        }
    }

    /// Begins what a job needs, and asks for all its keys at once.
    fn ask_for_keys(&mut self, now: Timestamp, id: JobId, job: &mut Job) -> Result<(), SessionError> {
        match &job.work {
            Work::OneRead | Work::Watch => {
                let count = u64::from(job.words.count() - 1);
                let keys = if matches!(job.work, Work::OneRead) { 1 } else { count };
                job.watched.clear();
                self.jobs.number(job, keys);
                for place in 0..keys {
                    let op = OpId(Operation::Job(id, job.first_op + place).pack());
                    let key = job.words.word(place as u32 + 1);
                    self.engine.get_latest(now, self.session, KEYSPACE, key, RequestOptions::default(), op)?;
                    job.left += 1;
                }
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
                let Job { items, words, watched, left, first_op, .. } = job;
                let read = items.iter().map(|item| (item.spec, words.args(item.words.clone())));
                let read = read.filter(|(spec, args)| spec.reads(*args)).flat_map(|(spec, args)| spec.keys(args));
                for (place, key) in (0..).zip(read.chain(watched.iter().map(|watched| &*watched.key))) {
                    let op = OpId(Operation::Job(id, *first_op + place).pack());
                    if let Step::Pending(_) = self.engine.get(now, txn, KEYSPACE, key, op)? {
                        *left += 1;
                    }
                }
            }
            Work::Whole(_) => {
                let options = TxnOptions { read_only: true, ..TxnOptions::default() };
                let txn = self.engine.begin(now, self.session, options)?;
                job.txn = Some(txn);
                let at = self.engine.begin_timestamp(txn)?;
                let random = self.draw();
                if let Work::Whole(whole) = &mut job.work {
                    whole.begin(at, random);
                }
                return self.ask_shards(now, id, job);
            }
        }
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
        let committed = job.committing;
        match job.work {
            Work::OneRead => self.finish(id, job, None),
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

    fn watch(&mut self, id: JobId, mut job: Box<Job>) {
        answer_ok(&mut job);
        if let Some(connection) = job.items.first().and_then(|item| self.connection(item.asker.connection)) {
            for found in job.watched.drain(..) {
                // What is watched already stays as it was found first.
                if connection.watched.iter().all(|watched| watched.key != found.key) {
                    connection.watched.push(found);
                }
            }
            connection.client.watched = connection.watched.len();
        }
        self.finish(id, job, None);
    }

    /// Runs a job's commands over its view, and commits.
    fn execute(&mut self, now: Timestamp, id: JobId, mut job: Box<Job>) {
        match self.execute_commands(now, &mut job) {
            Ok(Executed::Commit) => self.commit(now, id, job),
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
        for watched in &job.watched {
            let found = self.engine.peek(txn, KEYSPACE, &watched.key).ok_or(Failure::INTERNAL)?;
            if watched.is_touched(&found) {
                return Ok(Executed::Touched);
            }
        }
        job.reply.clear();
        if let Some(asker) = job.exec {
            ReplyWriter::new(&mut job.reply, asker.protocol).array(job.items.len());
        }
        let combined = job.exec.is_none() && job.items.len() > 1;
        for place in 0..job.items.len() {
            let start = job.reply.len();
            let done = self.execute_one(now, txn, job, place);
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
        }
        Ok(Executed::Commit)
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
                let around = self.surroundings(now, cmd == Cmd::Client && args.is(1, b"LIST"));
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

    pub(super) fn commit(&mut self, now: Timestamp, id: JobId, mut job: Box<Job>) {
        let Some(txn) = job.txn else { return self.finish(id, job, Some(&Failure::INTERNAL)) };
        self.jobs.number(&mut job, 1);
        job.committing = true;
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
        let gone = |item: &Item| {
            let connection = self.connections.get(item.asker.connection.0 as usize).and_then(Option::as_deref);
            connection.is_none_or(|connection| connection.gone)
        };
        if now.since(job.began) >= RETRY_FOR || job.items.iter().all(gone) && job.exec.is_none() {
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
                connection.answer(asker.slot, |out| match failure {
                    Some(failure) => ReplyWriter::new(out, asker.protocol).error_bytes(failure.bytes()),
                    None => out.extend_from_slice(&job.reply[item.reply.clone()]),
                });
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

/// The answer of a command that has nothing to say.
fn answer_ok(job: &mut Job) {
    let Some(item) = job.items.first_mut() else { return };
    job.reply.clear();
    ReplyWriter::new(&mut job.reply, item.asker.protocol).ok();
    item.reply = 0..job.reply.len();
}
