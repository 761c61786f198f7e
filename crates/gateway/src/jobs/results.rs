//! What a job does with the results of its operations: it keeps what it needs of them, counts it,
//! and says when it has all.
//!
//! Deliberately absent: what follows from having all of them; see [`super::run`].

use std::sync::Arc;

use timestone_seda::{Charge, Memory, MemoryUse};
use timestone_session::{OpResult, SessionError};
use timestone_types::Timestamp;
use timestone_wire::resp::ReplyWriter;

use super::job::{Job, JobId, JobKind};
use crate::commands::keys;
use crate::commands::view::OneKeyView;
use crate::connection::Watched;
use crate::connection::key_access::KeyState;
use crate::failure::Failure;
use crate::limits::{CHARGED_READ_BYTES, MAX_ANSWER_BYTES};

impl Job {
    /// Takes the result of one of the job's operations; its id when that was the last one.
    pub(crate) fn take_result(
        &mut self,
        now: Timestamp,
        id: JobId,
        number: u64,
        result: &OpResult<'_>,
        scratch: &mut Vec<u8>,
        memory: &Arc<Memory>,
    ) -> Option<JobId> {
        let place = self.attempt.place_of(number)?;
        debug_assert!(place < self.attempt.ops, "only operations under way are answered");
        self.attempt.left = self.attempt.left.checked_sub(1)?;
        match (&mut self.kind, result) {
            (_, OpResult::Failed(SessionError::NoTransaction)) if !self.attempt.committing => {}
            (JobKind::Scan(scan), OpResult::Aborted(abort)) if scan.is_lost(&abort.reason) => {
                self.attempt.again = false;
                self.attempt.failure = Some(Failure::LOST_CURSOR);
            }
            (_, OpResult::Failed(error)) => {
                self.attempt.again |= error.retryable();
                self.attempt.failure = Some(error.into());
            }
            (_, OpResult::Aborted(abort)) => {
                self.attempt.again |= abort.retryable();
                self.attempt.failure = Some(Failure::aborted(abort));
            }
            (_, OpResult::Unknown(txn)) => {
                self.attempt.again = false;
                self.attempt.failure = Some(Failure::unknown(*txn));
            }
            (JobKind::OneRead, OpResult::Value(found)) => {
                self.attempt.found =
                    Some(KeyState { version: found.version, present: found.value.is_some() });
                let view = &mut OneKeyView { found: *found };
                let Some(command) = self.commands.first_mut() else { return Some(id) };
                let args = self.arguments.args(command.arguments.clone());
                let reply = &mut ReplyWriter::new(&mut self.reply, command.requester.protocol);
                self.attempt.failure =
                    keys::execute(command.spec.cmd, args, now, view, scratch, reply).err();
                command.reply = 0..self.reply.len();
            }
            (JobKind::Transaction | JobKind::Exec, OpResult::Value(found)) => {
                let bytes = found.value.map_or(0, <[u8]>::len);
                if !self.charge_read(bytes, memory) {
                    self.attempt.failure = Some(Failure::NO_MEMORY_FOR_ANSWER);
                    // Nobody waits for the others: they would only take more of it.
                    self.attempt.stop_waiting();
                }
            }
            (JobKind::Watch, OpResult::Value(found)) => {
                let key = Box::from(self.arguments.argument(place as u32 + 1));
                self.watched.push((
                    key,
                    Watched { version: found.version, present: found.value.is_some() },
                ));
            }
            (JobKind::Scan(scan), OpResult::Frame(bytes)) => {
                let before = scan.found_bytes();
                let taken = scan.take_page(place as usize, bytes, &self.arguments);
                let more = scan.found_bytes().saturating_sub(before);
                let has_room = self.charge_read(more, memory);
                if let Err(failure) =
                    taken.and(if has_room { Ok(()) } else { Err(Failure::NO_MEMORY_FOR_ANSWER) })
                {
                    self.attempt.failure = Some(failure);
                    if let JobKind::Scan(scan) = &mut self.kind {
                        scan.forget();
                    }
                    // Nobody waits for the other pages: they would only take more of it.
                    self.attempt.stop_waiting();
                }
            }
            _ => {}
        }
        (self.attempt.left == 0).then_some(id)
    }

    /// Counts a value that the transaction has read, or keys that were found; large ones in the
    /// process's memory, twice: there and in the answer. Whether there is room.
    fn charge_read(&mut self, bytes: usize, memory: &Arc<Memory>) -> bool {
        if timestone_types::is_planted!(UncountedKeys) && matches!(self.kind, JobKind::Scan(_)) {
            return true;
        }
        debug_assert!(
            self.memory.read_bytes < CHARGED_READ_BYTES || self.memory.read_charge.is_some(),
            "what is much is charged"
        );
        self.memory.read_bytes += bytes;
        let wanted = 2 * self.memory.read_bytes as u64;
        match &mut self.memory.read_charge {
            None if self.memory.read_bytes < CHARGED_READ_BYTES => true,
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
    pub(crate) fn charge_answer(
        &mut self,
        more: usize,
        memory: &Arc<Memory>,
    ) -> Result<(), Failure> {
        if timestone_types::is_planted!(BoundlessAnswers) {
            return Ok(());
        }
        let bytes = self.reply.len().saturating_add(more);
        if bytes > MAX_ANSWER_BYTES {
            return Err(Failure::ANSWER_TOO_LONG);
        }
        let wanted = (self.memory.read_bytes + bytes) as u64;
        let has_room = match &mut self.memory.read_charge {
            _ if bytes < CHARGED_READ_BYTES => true,
            Some(charge) if charge.bytes() >= wanted => true,
            Some(charge) => charge.try_grow(wanted - charge.bytes()),
            none => {
                *none = memory.try_charge(MemoryUse::Output, wanted);
                none.is_some()
            }
        };
        let covered = self.memory.read_charge.as_ref().map_or(0, Charge::bytes);
        debug_assert!(!has_room || bytes < CHARGED_READ_BYTES || covered >= wanted);
        if has_room { Ok(()) } else { Err(Failure::NO_MEMORY_FOR_ANSWER) }
    }
}
