//! What a job asks for: its transaction, and the keys that its commands read.
//!
//! ```text
//!   begin ─► keys, some at a time ─► results ─► the next keys … ─► all are there
//! ```
//! It asks for some keys at a time, so that neither this gateway nor a shard has too much to do in
//! one turn.

use timestone_session::{SessionError, TxnHandle};
use timestone_types::Timestamp;

use super::Jobs;
use super::job::{AskCursor, Job, JobCommand, JobId, JobKind, Operation};
use crate::backend::Backend;
use crate::commands::arguments::ArgumentBuffer;
use crate::connection::Watched;
use crate::failure::Failure;
use crate::limits::KEYS_AT_ONCE;

/// Begins what a job needs, and asks for its first keys.
///
/// # Errors
/// Something could not be asked for. What was asked for already may still be answered.
pub(crate) fn begin(
    jobs: &mut Jobs,
    backend: &mut Backend,
    now: Timestamp,
    id: JobId,
    job: &mut Job,
) -> Result<(), SessionError> {
    assert_eq!(job.attempt.left, 0, "an attempt begins with nothing under way");
    match &job.kind {
        JobKind::OneRead | JobKind::Watch => {
            let count = u64::from(job.arguments.count() - 1);
            let keys = if matches!(job.kind, JobKind::OneRead) { 1 } else { count };
            job.watched.clear();
            jobs.table.number(job, keys);
            job.ask_more(backend, now, id)
        }
        JobKind::Transaction | JobKind::Exec | JobKind::Flush => {
            let txn = backend.begin_strict(now)?;
            job.txn = Some(txn);
            if matches!(job.kind, JobKind::Flush) {
                return backend.clear_keyspace(now, txn);
            }
            let most = job.arguments.count() as usize + job.watched.len();
            jobs.table.number(job, most as u64);
            job.ask_more(backend, now, id)
        }
        JobKind::Scan(scan) if !scan.knows_newest() => {
            super::keyspace_scan::ask_newest(jobs, backend, now, id, job)
        }
        JobKind::Scan(_) => {
            let (txn, at) = backend.begin_snapshot(now)?;
            job.txn = Some(txn);
            #[cfg(feature = "planted-bugs")]
            let at = if timestone_types::is_planted!(StaleCounts) {
                Timestamp::from_nanos(at.as_nanos().saturating_sub(20_000_000))
            } else {
                at
            };
            let random = jobs.draw();
            if let JobKind::Scan(scan) = &mut job.kind {
                scan.begin(at, random);
            }
            super::keyspace_scan::ask_shards(jobs, backend, now, id, job)
        }
    }
}

impl Job {
    /// Asks for the next keys.
    ///
    /// # Errors
    /// As for [`begin`].
    pub(crate) fn ask_more(
        &mut self,
        backend: &mut Backend,
        now: Timestamp,
        id: JobId,
    ) -> Result<(), SessionError> {
        debug_assert_eq!(self.attempt.left, 0, "keys are asked for when those before them came");
        match (&self.kind, self.txn) {
            (JobKind::OneRead | JobKind::Watch, _) => self.ask_latest(backend, now, id),
            (_, Some(txn)) => self.ask_in_transaction(backend, now, id, txn),
            _ => Ok(()),
        }
    }

    /// Asks for the next keys of a job without a transaction: its arguments.
    fn ask_latest(
        &mut self,
        backend: &mut Backend,
        now: Timestamp,
        id: JobId,
    ) -> Result<(), SessionError> {
        let Self { arguments, attempt, .. } = self;
        let until = (attempt.ops as usize).min(attempt.asked + KEYS_AT_ONCE);
        for place in attempt.asked..until {
            let operation = Operation::Job(id, attempt.first_op + place as u64);
            backend.get_latest(now, arguments.argument(place as u32 + 1), operation)?;
            attempt.left += 1;
        }
        (attempt.asked, attempt.asks_more) = (until, until < attempt.ops as usize);
        debug_assert!(attempt.left <= attempt.ops, "each operation has a number");
        Ok(())
    }

    /// Asks for the next keys that commands of a transaction read, and then for those that are
    /// watched.
    fn ask_in_transaction(
        &mut self,
        backend: &mut Backend,
        now: Timestamp,
        id: JobId,
        txn: TxnHandle,
    ) -> Result<(), SessionError> {
        let Self { commands, arguments, watched, attempt, .. } = self;
        let until = attempt.asked + KEYS_AT_ONCE;
        while attempt.asked < until {
            let read = next_read(commands, arguments, &mut attempt.cursor);
            let Some(key) = read.or_else(|| next_watched(watched, &mut attempt.cursor)) else {
                break;
            };
            let number = attempt.first_op + attempt.asked as u64;
            let is_pending = backend.get(now, txn, key, Operation::Job(id, number))?;
            attempt.left += u64::from(is_pending);
            attempt.asked += 1;
        }
        attempt.asks_more = attempt.asked == until;
        debug_assert!(attempt.left <= attempt.ops, "each operation has a number");
        Ok(())
    }

    /// A key could not be asked for: no attempt can do without it.
    pub(crate) fn cannot_ask(&mut self, error: &SessionError) {
        debug_assert!(self.attempt.failure.is_none(), "an attempt fails once");
        self.attempt.again |= error.retryable();
        let at = self.attempt.cursor.command;
        let failure = Failure::from(error);
        self.attempt.failure = Some(match (error, self.commands.get(at)) {
            // A key that nobody may have is the fault of the command that names it.
            (SessionError::Limit(_), Some(at_fault)) if self.exec.is_some() => {
                Failure::in_transaction(at + 1, at_fault.spec.name, &failure)
            }
            _ => failure,
        });
    }
}

/// The next key that commands read; the cursor moves on behind it.
fn next_read<'j>(
    commands: &[JobCommand],
    arguments: &'j ArgumentBuffer,
    cursor: &mut AskCursor,
) -> Option<&'j [u8]> {
    while let Some(command) = commands.get(cursor.command) {
        let args = arguments.args(command.arguments.clone());
        let at = command.spec.key_place(args.len(), cursor.key);
        if let Some(at) = at.filter(|_| command.spec.reads(args)) {
            cursor.key += 1;
            return Some(args.get(at));
        }
        (cursor.command, cursor.key) = (cursor.command + 1, 0);
    }
    debug_assert_eq!(cursor.command, commands.len(), "every command was asked for");
    None
}

/// The next key that is watched; the cursor moves on behind it.
fn next_watched<'j>(
    watched: &'j [(Box<[u8]>, Watched)],
    cursor: &mut AskCursor,
) -> Option<&'j [u8]> {
    debug_assert!(cursor.watched <= watched.len());
    let (key, _) = watched.get(cursor.watched)?;
    cursor.watched += 1;
    Some(key)
}
