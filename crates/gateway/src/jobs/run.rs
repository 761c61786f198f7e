//! How jobs run: start, take answers, execute, commit, answer or start again. See [`super::job`]
//! for the picture.
//!
//! An attempt reads at one snapshot; the commit validates that every version read is still the
//! latest, for transactions that write nothing too (`strict`), so a command sees everything that
//! was acknowledged before it was sent, whichever gateway did it.

use std::sync::Arc;

use timestone_seda::{Charge, Memory, MemoryUse};
use timestone_types::Timestamp;
use timestone_wire::resp::ReplyWriter;

use super::ask;
use super::execute::{Execution, execute};
use super::job::{Job, JobCommand, JobId, JobKind, Operation};
use super::keyspace_scan::{self, ScanStep};
use crate::commands::table::{Cmd, find};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::limits::{
    MAX_WATCHED_KEYS, RETRY_FOR, SHED_FROM_BYTES, UNREAD_PAUSE, WATCHED_KEY_BYTES,
};
use crate::memory::derived::Resumed;
use crate::parts::Parts;

/// Takes jobs on, with the parts that they need.
pub(crate) struct JobRunner<'a> {
    pub(crate) parts: &'a mut Parts,
    pub(crate) now: Timestamp,
}

impl JobRunner<'_> {
    /// Starts a job, for the first time or again.
    pub(crate) fn start(&mut self, id: JobId) {
        let Some(mut job) = self.parts.jobs.table.take(id) else { return };
        debug_assert_eq!(job.attempt.left, 0, "an attempt begins when the last one is over");
        if job.follows && job.retry.attempts == 0 && self.has_left(&job) {
            // What was before it may not have been carried out any more.
            return self.finish(id, job, Some(&Failure::CONTENDED));
        }
        if job.retry.unread && (!self.has_reader(&job, 0) || self.overtakes(&job)) {
            return self.wait_for_reader(id, job);
        }
        job.begin_attempt();
        let Parts { jobs, backend, .. } = &mut *self.parts;
        if let Err(error) = ask::begin(jobs, backend, self.now, id, &mut job) {
            job.cannot_ask(&error);
        }
        let waits = job.attempt.left > 0;
        jobs.table.put_back(id, job);
        if !waits {
            self.proceed(id);
        }
    }

    /// Whether everybody is gone whose commands a job has.
    fn has_left(&self, job: &Job) -> bool {
        job.commands.iter().all(|command| {
            let connection = self.parts.connections.get(command.requester.connection);
            connection.is_none_or(|connection| connection.life.gone)
        })
    }

    /// A job has all the answers that it waited for.
    pub(crate) fn proceed(&mut self, id: JobId) {
        let Some(mut job) = self.parts.jobs.table.take(id) else { return };
        assert_eq!(job.attempt.left, 0, "a job goes on when it has all answers");
        if job.attempt.again {
            return self.retry(id, job);
        }
        if let Some(failure) = job.attempt.failure.take() {
            return self.finish(id, job, Some(&failure));
        }
        if job.attempt.asks_more {
            return self.ask_more(id, job);
        }
        if job.attempt.committing && self.repeats_commit(&job) {
            return self.retry(id, job);
        }
        match job.kind {
            JobKind::OneRead => self.answer_read(id, job),
            JobKind::Transaction | JobKind::Exec | JobKind::Flush if job.attempt.committing => {
                self.finish(id, job, None)
            }
            JobKind::Transaction | JobKind::Exec => self.execute(id, job),
            JobKind::Flush => {
                job.answer_ok();
                self.commit(id, job);
            }
            JobKind::Watch => self.watch(id, job),
            JobKind::Scan(_) => self.proceed_scan(id, job),
        }
    }

    /// Asks for the next keys of a job. With nothing to wait for, since all of these were known, it
    /// goes on in the next turn.
    fn ask_more(&mut self, id: JobId, mut job: Box<Job>) {
        debug_assert_eq!(job.attempt.left, 0, "keys are asked for when those before them came");
        let Parts { jobs, backend, .. } = &mut *self.parts;
        if let Err(error) = job.ask_more(backend, self.now, id) {
            job.attempt.asks_more = false;
            job.cannot_ask(&error);
        }
        if job.attempt.left == 0 {
            jobs.yield_turn(id);
        }
        jobs.table.put_back(id, job);
    }

    /// Planted: a commit that succeeded is taken for one that met a conflict.
    fn repeats_commit(&mut self, job: &Job) -> bool {
        debug_assert!(job.attempt.committing, "there is a commit to repeat");
        timestone_types::is_planted!(RepeatedCommits)
            && job.retry.attempts == 1
            && self.parts.jobs.draw().is_multiple_of(8)
    }

    fn proceed_scan(&mut self, id: JobId, mut job: Box<Job>) {
        debug_assert!(matches!(job.kind, JobKind::Scan(_)));
        let Parts { jobs, backend, .. } = &mut *self.parts;
        match keyspace_scan::proceed(jobs, backend, self.now, id, &mut job) {
            ScanStep::Restart => {
                jobs.table.put_back(id, job);
                jobs.start_soon(id);
            }
            ScanStep::Waits => jobs.table.put_back(id, job),
            ScanStep::Done => self.finish(id, job, None),
            ScanStep::Failed(failure) => self.finish(id, job, Some(&failure)),
        }
    }

    /// Runs a job's commands over its view, and commits.
    fn execute(&mut self, id: JobId, mut job: Box<Job>) {
        debug_assert!(!job.attempt.committing, "what is committed is not carried out again");
        // Its keys were read, and then the gateway went on under a new client id: to commands they
        // would look absent.
        if job.txn.is_some_and(|txn| !self.parts.backend.is_open(txn)) {
            return self.retry(id, job);
        }
        match execute(self.parts, self.now, &mut job) {
            Ok(Execution::Commit) => self.commit(id, job),
            Ok(Execution::Full(place)) => {
                self.parts.jobs.split(self.now, id, &mut job, place);
                self.commit(id, job);
            }
            Ok(Execution::Yielded) => {
                self.parts.jobs.yield_turn(id);
                self.parts.jobs.table.put_back(id, job);
            }
            Ok(Execution::Long) => self.read_alone(id, job),
            Ok(Execution::NoMemory) => self.wait_for_memory(id, job),
            Ok(Execution::Touched) => {
                job.reply.clear();
                if let Some(requester) = job.exec {
                    ReplyWriter::new(&mut job.reply, requester.protocol).null_array();
                }
                self.finish(id, job, None);
            }
            Err(failure) => self.finish(id, job, Some(&failure)),
        }
    }

    /// A job begins with reads of a long value: they leave it, and are answered when their client
    /// has room for that. The others follow them.
    fn read_alone(&mut self, id: JobId, mut job: Box<Job>) {
        debug_assert!(!job.attempt.committing, "nothing was carried out");
        let Parts { connections, backend, memory, jobs, .. } = &mut *self.parts;
        let (Some(requester), Some(txn)) = (job.requester(), job.txn.take()) else {
            return self.finish(id, job, Some(&Failure::INTERNAL));
        };
        let length = backend.value_length(txn, job.args(&job.commands[0]).get(1));
        backend.abort(txn);
        memory.derived.release(&mut job.memory.derived);
        // Values themselves are asked for as those of other GETs that had found no room.
        let gets = job.commands.iter().take_while(|one| one.spec.cmd == Cmd::Get).count();
        let rest = jobs.leave_alone(self.now, id, &mut job, gets.max(1));
        if let Some(connection) = connections.get_mut(requester.connection) {
            for command in &job.commands {
                connection.accesses.reads_alone(command.requester.reply_id);
                if gets > 0 {
                    connection.replies.ask_later(command.requester.reply_id, length);
                }
            }
            rest.into_iter().for_each(|rest| connection.followers.push_front(rest));
        }
        if gets > 0 {
            jobs.close(id, job);
            return connections.answered(requester.connection, memory);
        }
        jobs.table.put_back(id, job);
        jobs.start_soon(id);
    }

    fn commit(&mut self, id: JobId, mut job: Box<Job>) {
        debug_assert!(!job.attempt.committing, "an attempt commits once");
        let Some(txn) = job.txn else { return self.finish(id, job, Some(&Failure::INTERNAL)) };
        let Parts { jobs, backend, .. } = &mut *self.parts;
        jobs.table.number(&mut job, 1);
        job.attempt.committing = true;
        if timestone_types::is_planted!(EndlessWaits) {
            let waited = job.memory.derived.forget_wait();
            job.retry.began = job.retry.began.saturating_add(waited);
        }
        let operation = Operation::Job(id, job.attempt.first_op);
        match backend.commit(self.now, txn, operation) {
            Ok(true) => {
                job.attempt.left = 1;
                jobs.table.put_back(id, job);
            }
            Ok(false) => self.finish(id, job, None),
            Err(error) => {
                job.attempt.again = error.retryable();
                let failure = Failure::from(error);
                if job.attempt.again {
                    job.attempt.failure = Some(failure);
                    self.retry(id, job);
                } else {
                    self.finish(id, job, Some(&failure));
                }
            }
        }
    }

    /// An attempt met a conflict: another one follows after a pause, unless there were enough.
    fn retry(&mut self, id: JobId, mut job: Box<Job>) {
        debug_assert_eq!(job.attempt.left, 0, "an attempt is over when nothing is under way");
        let Parts { backend, memory, .. } = &mut *self.parts;
        if let Some(txn) = job.txn.take() {
            backend.abort(txn);
        }
        memory.derived.release(&mut job.memory.derived);
        // The time that it has waited for memory is none of the time for which conflicts are tried
        // again.
        let tried = self.now.since(job.retry.began).saturating_sub(job.memory.derived.waited());
        if tried >= RETRY_FOR || self.has_left(&job) && job.exec.is_none() {
            let failure = job.attempt.failure.take().unwrap_or(Failure::CONTENDED);
            return self.finish(id, job, Some(&failure));
        }
        let until =
            self.now.saturating_add(self.parts.backend.engine().backoff(job.retry.attempts));
        self.parts.jobs.back_off(id, job, until);
    }

    /// Answers a job's clients, and lets the next in its queue start.
    fn finish(&mut self, id: JobId, mut job: Box<Job>, failure: Option<&Failure>) {
        debug_assert_eq!(job.attempt.left, 0, "a job is over when nothing is under way");
        let Parts { connections, backend, memory, figures, jobs, .. } = &mut *self.parts;
        if let Some(txn) = job.txn.take() {
            // Without effect when it was committed.
            backend.abort(txn);
        }
        memory.derived.release(&mut job.memory.derived);
        if let Some(connection) =
            job.requester().and_then(|one| connections.get_mut(one.connection))
            && failure.is_some_and(Failure::may_be_of_one)
            && (job.follows && job.queue.is_some() && job.commands.len() > 1)
            && !connection.life.gone
        {
            if let Some((rest, reads)) = jobs.take_apart(self.now, id, job) {
                connection.followers.push_front(rest);
                reads.into_iter().for_each(|reply| connection.accesses.reads_alone(reply));
            }
            return;
        }
        if let Some(requester) = job.exec {
            let all = 0..job.reply.len();
            let spec = job.commands.first().map(|command| command.spec).or_else(|| find(b"exec"));
            job.commands.clear();
            job.commands.extend(spec.map(|spec| JobCommand {
                requester,
                spec,
                arguments: 0..0,
                reply: all,
            }));
        }
        for command in &job.commands {
            let requester = command.requester;
            if let Some(connection) = connections.get_mut(requester.connection) {
                let started = connection.answer(requester.reply_id, |out| match failure {
                    Some(failure) => {
                        ReplyWriter::new(out, requester.protocol).error_bytes(failure.bytes())
                    }
                    None => out.extend_from_slice(&job.reply[command.reply.clone()]),
                });
                figures.answered(started, self.now);
            }
            connections.answered(requester.connection, memory);
        }
        jobs.close(id, job);
    }
}

/// Reads of one key, and WATCH.
impl JobRunner<'_> {
    /// A read of one key has its answer: tells it, unless it must wait.
    fn answer_read(&mut self, id: JobId, job: Box<Job>) {
        debug_assert!(matches!(job.kind, JobKind::OneRead));
        let length = job.reply.len();
        let has_no_reader = length >= SHED_FROM_BYTES && !self.has_reader(&job, length);
        if has_no_reader || self.overtakes(&job) || self.is_outdated(&job) {
            return self.wait_for_reader(id, job);
        }
        if let Some((requester, found)) = job.requester().zip(job.attempt.found)
            && let Some(connection) = self.parts.connections.get_mut(requester.connection)
        {
            connection.accesses.answers(requester.reply_id, found);
        }
        self.finish(id, job, None);
    }

    /// Whether whom a job answers has room for an answer of this length.
    fn has_reader(&self, job: &Job, length: usize) -> bool {
        let Parts { connections, memory, .. } = &*self.parts;
        job.requester().is_none_or(|requester| {
            let connection = connections.get(requester.connection);
            connection.is_none_or(|connection| memory.takes_answer(connection, requester, length))
        })
    }

    /// Whether a read of one key comes before an earlier command of its connection on that key.
    fn overtakes(&self, job: &Job) -> bool {
        let requester = job.requester().filter(|_| matches!(job.kind, JobKind::OneRead));
        let connection =
            requester.and_then(|requester| self.parts.connections.get(requester.connection));
        connection
            .zip(requester)
            .is_some_and(|(connection, requester)| connection.overtakes(requester.reply_id))
    }

    /// Whether an earlier read of its connection was answered with a later state of the key than
    /// this read has found.
    fn is_outdated(&mut self, job: &Job) -> bool {
        debug_assert!(matches!(job.kind, JobKind::OneRead));
        let Some((requester, found)) = job.requester().zip(job.attempt.found) else { return false };
        let connection = self.parts.connections.get_mut(requester.connection);
        connection
            .is_some_and(|connection| connection.accesses.is_outdated(requester.reply_id, found))
    }

    /// A read whose answer found no room, or has overtaken an earlier one, starts again when it may
    /// be answered: what it has read is given back meanwhile.
    fn wait_for_reader(&mut self, id: JobId, mut job: Box<Job>) {
        debug_assert!(matches!(job.kind, JobKind::OneRead), "only reads are asked for again");
        job.retry.unread = true;
        job.retry.began = self.now;
        job.reply = Vec::new();
        self.parts.jobs.back_off(id, job, self.now.saturating_add(UNREAD_PAUSE));
    }

    fn watch(&mut self, id: JobId, mut job: Box<Job>) {
        debug_assert!(matches!(job.kind, JobKind::Watch));
        job.answer_ok();
        let Parts { connections, memory, .. } = &mut *self.parts;
        let connection =
            job.requester().and_then(|requester| connections.get_mut(requester.connection));
        let watched =
            connection.map_or(Ok(()), |connection| watch(connection, &mut job, memory.process()));
        self.finish(id, job, watched.err().as_ref());
    }
}

/// Memory.
impl JobRunner<'_> {
    /// There is no memory for what a job makes: it starts again when there is, and holds nothing
    /// until then.
    fn wait_for_memory(&mut self, id: JobId, mut job: Box<Job>) {
        debug_assert!(!job.attempt.committing, "what is made is made before the commit");
        let Parts { jobs, backend, memory, .. } = &mut *self.parts;
        if let Some(txn) = job.txn.take() {
            backend.abort(txn);
        }
        (job.memory.read_bytes, job.memory.read_charge) = (0, None);
        job.reply = Vec::new();
        job.attempt.stop_waiting();
        memory.derived.wait(self.now, id, &mut job.memory.derived);
        jobs.table.put_back(id, job);
    }

    /// Starts the jobs again that have waited for memory, as far as there is some; ends those that
    /// have waited for too long.
    pub(crate) fn resume_waiting(&mut self) {
        while let Some(id) = self.parts.memory.derived.first_waiting() {
            let Parts { jobs, memory, .. } = &mut *self.parts;
            let Some(job) = jobs.table.get_mut(id) else { return };
            debug_assert!(job.txn.is_none() && job.reply.is_empty(), "who waits holds nothing");
            let queued = job.memory.queued_charge.as_ref().map_or(0, Charge::bytes);
            match memory.derived.resume(self.now, &mut job.memory.derived, queued) {
                None => return,
                Some(Resumed::Starts) => jobs.start_soon(id),
                Some(Resumed::GivesUp) => {
                    let Some(job) = jobs.table.take(id) else { return };
                    self.finish(id, job, Some(&Failure::NO_MEMORY_TO_MAKE));
                }
            }
        }
    }
}

/// Adds what a WATCH has found to what its connection watches.
///
/// # Errors
/// There are too many keys, or no memory for them.
fn watch(connection: &mut Connection, job: &mut Job, memory: &Arc<Memory>) -> Result<(), Failure> {
    let state = &mut connection.transaction;
    job.watched.retain(|(key, _)| !state.watched.contains_key(key));
    let bytes: usize = job.watched.iter().map(|(key, _)| key.len() + WATCHED_KEY_BYTES).sum();
    if state.watched.len() + job.watched.len() > MAX_WATCHED_KEYS {
        return Err(Failure::TOO_MANY_WATCHED);
    }
    if !grow(&mut state.watched_charge, memory, bytes as u64) {
        return Err(Failure::NO_MEMORY_FOR_WATCH);
    }
    for (key, found) in job.watched.drain(..) {
        state.watched.entry(key).or_insert(found);
    }
    assert!(state.watched.len() <= MAX_WATCHED_KEYS, "what is watched is bounded");
    connection.client.watched = state.watched.len();
    Ok(())
}

/// Counts so many bytes of input more, if they fit.
fn grow(charge: &mut Option<Charge>, memory: &Arc<Memory>, bytes: u64) -> bool {
    let fits = match charge {
        Some(charge) => charge.try_grow(bytes),
        None => {
            *charge = memory.try_charge(MemoryUse::Input, bytes);
            charge.is_some()
        }
    };
    debug_assert!(!fits || charge.as_ref().is_some_and(|charge| charge.bytes() >= bytes));
    fits
}
