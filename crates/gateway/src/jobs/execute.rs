//! How a job's commands are carried out over its transaction: one after the other, as far as memory
//! and the turn's share go.
//!
//! ```text
//!   watched keys as they were? ─► each command: room for what it makes, and for its answer? ─► carried out over the view ─► commit
//! ```
//! What a job does in one turn is bounded, so that others are served in between. WATCH is a list of
//! versions that EXEC compares inside its own transaction: so only watched keys can make it answer
//! nil, everything else that gets in its way is a retry.

use timestone_seda::Charge;
use timestone_session::TxnHandle;
use timestone_types::{Timestamp, Version};
use timestone_wire::resp::ReplyWriter;

use super::job::{Job, JobCommand};
use crate::commands::local::{self, ClientFilter};
use crate::commands::table::{Class, Cmd};
use crate::commands::{keys, strings};
use crate::failure::Failure;
use crate::limits::{COMMAND_BYTES, MAX_COMBINED_ANSWERS, SHED_FROM_BYTES};
use crate::parts::Parts;

/// What executing a job's commands came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Execution {
    /// Their answers are written; commit.
    Commit,
    /// Some are left for the next turn.
    Yielded,
    /// There is no memory for what the next one makes.
    NoMemory,
    /// Their answers are long enough; those from this place on become a job of their own.
    Full(usize),
    /// The first of them reads a long value, for which its client may have no room.
    Long,
    /// A watched key was touched.
    Touched,
}

/// Carries out a job's commands, from where the last turn left off.
///
/// # Errors
/// What the job answers instead.
pub(crate) fn execute(
    parts: &mut Parts,
    now: Timestamp,
    job: &mut Job,
) -> Result<Execution, Failure> {
    assert!(job.attempt.executed <= job.commands.len(), "no command is carried out twice");
    let txn = job.txn.ok_or(Failure::INTERNAL)?;
    if parts.jobs.has_had_its_share() {
        return Ok(Execution::Yielded);
    }
    if job.attempt.executed == 0 {
        if is_touched(parts, txn, job)? {
            return Ok(Execution::Touched);
        }
        job.reply.clear();
        if let Some(requester) = job.exec {
            ReplyWriter::new(&mut job.reply, requester.protocol).array(job.commands.len());
        }
    }
    let is_combined = job.exec.is_none() && job.commands.len() > 1;
    for place in job.attempt.executed..job.commands.len() {
        if parts.jobs.has_had_its_share() {
            job.attempt.executed = place;
            return Ok(Execution::Yielded);
        }
        let is_long = job.follows && reads_long_value(parts, txn, job, place);
        if is_long && place == 0 {
            return Ok(Execution::Long);
        }
        if is_long || is_combined && place > 0 && job.reply.len() >= MAX_COMBINED_ANSWERS {
            return Ok(Execution::Full(place));
        }
        let made = derived_bytes(parts, txn, job, place);
        let queued = job.memory.queued_charge.as_ref().map_or(0, Charge::bytes);
        if !parts.memory.derived.charge(&mut job.memory.derived, queued, made) {
            return Ok(Execution::NoMemory);
        }
        parts.jobs.carried_out(COMMAND_BYTES + bytes_before(parts, txn, job, place) + made);
        let start = job.reply.len();
        // Before the command: nothing may be refused of which something is done.
        let many = bytes_of_many(parts, txn, job, place);
        let room = many.and_then(|many| job.charge_answer(many, parts.memory.process()));
        let done = room.and_then(|()| execute_one(parts, now, txn, job, place));
        let JobCommand { requester, spec, .. } = job.commands[place];
        if let Err(failure) = done {
            if job.exec.is_some() {
                return Err(Failure::in_transaction(place + 1, spec.name, &failure));
            }
            if !is_combined {
                return Err(failure);
            }
            job.reply.truncate(start);
            ReplyWriter::new(&mut job.reply, requester.protocol).error_bytes(failure.bytes());
        }
        job.commands[place].reply = start..job.reply.len();
        parts.jobs.carried_out(job.reply.len() - start);
    }
    Ok(Execution::Commit)
}

/// Whether a watched key was touched since.
fn is_touched(parts: &Parts, txn: TxnHandle, job: &Job) -> Result<bool, Failure> {
    for (key, watched) in &job.watched {
        let found = parts.backend.peek(txn, key).ok_or(Failure::INTERNAL)?;
        if timestone_types::is_planted!(IgnoredWatch) {
            continue;
        }
        if watched.is_touched(&found) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a command only reads, and what it reads is long.
fn reads_long_value(parts: &Parts, txn: TxnHandle, job: &Job, place: usize) -> bool {
    let command = &job.commands[place];
    command.spec.class == Class::Read
        && parts.backend.value_length(txn, job.args(command).get(1)) >= SHED_FROM_BYTES
        && !timestone_types::is_planted!(BoundlessFollowers)
}

/// The bytes that a command is about to go through: its own, the value that its first key has, and
/// what costs as much.
fn bytes_before(parts: &Parts, txn: TxnHandle, job: &Job, place: usize) -> usize {
    let command = &job.commands[place];
    let args = job.args(command);
    let own: usize = args.iter().map(<[u8]>::len).sum();
    own + local::cost_bytes(command.spec.cmd, args) + parts.backend.value_length(txn, args.get(1))
}

/// The bytes that a command makes beside those that it brings: what it leaves as it is of a value
/// is written again, and zeros fill gaps.
fn derived_bytes(parts: &Parts, txn: TxnHandle, job: &Job, place: usize) -> usize {
    let command = &job.commands[place];
    if !strings::makes(command.spec.cmd) {
        return 0;
    }
    let args = job.args(command);
    let found = parts.backend.peek(txn, args.get(1));
    let length = found.and_then(|found| found.value).map_or(0, <[u8]>::len);
    // What the transaction has written itself came with its commands, or was counted when it was
    // made.
    let is_own = found.is_some_and(|found| found.version == Version::ZERO);
    let made = strings::bytes_made(command.spec.cmd, args, length);
    made.saturating_sub(if is_own { length } else { 0 })
}

/// How long the values are that a command over many keys answers with, or the answer of one that
/// touches no key.
///
/// # Errors
/// What it answers instead.
fn bytes_of_many(parts: &Parts, txn: TxnHandle, job: &Job, place: usize) -> Result<usize, Failure> {
    let command = &job.commands[place];
    let args = job.args(command);
    match command.spec.cmd {
        Cmd::Mget => {
            let lengths = command.spec.keys(args).map(|key| parts.backend.value_length(txn, key));
            Ok(lengths.fold(0, usize::saturating_add))
        }
        cmd if command.spec.class == Class::Local => {
            parts.foresee_local(cmd, args).map(|(_, bytes)| bytes)
        }
        _ => Ok(0),
    }
}

fn execute_one(
    parts: &mut Parts,
    now: Timestamp,
    txn: TxnHandle,
    job: &mut Job,
    place: usize,
) -> Result<(), Failure> {
    debug_assert!(place >= job.attempt.executed, "no command is carried out twice");
    let Job { commands, arguments, reply, .. } = job;
    let command = &commands[place];
    let args = arguments.args(command.arguments.clone());
    let cmd = command.spec.cmd;
    let reply = &mut ReplyWriter::new(reply, command.requester.protocol);
    match command.spec.class {
        Class::Read | Class::Write => {
            let view = &mut parts.backend.view(txn, now);
            keys::execute(cmd, args, now, view, &mut parts.scratch, reply)
        }
        Class::Local => {
            let status = parts.server_status(now, &ClientFilter::wanted(cmd, args)?);
            let connection = parts.connections.get_mut(command.requester.connection);
            let client = &mut connection.ok_or(Failure::INTERNAL)?.client;
            local::execute(cmd, args, &status, client, reply)
        }
        // UNWATCH inside of a transaction comes too late to matter.
        Class::State | Class::Keyspace => {
            reply.ok();
            Ok(())
        }
    }
}
