//! Jobs: commands that take more than one step, with everything that is needed to run them again.
//!
//! ```text
//!   start: begin, ask for the keys ─► answers ─► execute over the view ─► commit ─► committed ─► answer the clients
//!     ▲                                                                       │
//!     └────────── pause, with growing random length, up to RETRY_FOR ◄────────┘ conflict
//! ```
//! A job carries one command, the commands of one MULTI, or several commands on one key from any
//! connections (combined, so that a hot counter costs one transaction a round instead of one a
//! command).
//!
//! Invariants: operations of the engine are numbered without gaps over all jobs, so an answer to an
//! earlier attempt is known by its number; a job is in the table until its clients are answered.

use core::ops::Range;
use core::time::Duration;

use timestone_seda::Charge;
use timestone_session::TxnHandle;
use timestone_types::Timestamp;
use timestone_wire::resp::Protocol;

use super::command::Spec;
use super::connection::{ConnectionIndex, Watched};
use super::failure::Failure;
use super::marks::Read;
use super::replies::SlotId;
use super::whole::Whole;
use super::words::Words;

/// Names a job while it is in the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct JobId(pub(super) u32);

/// Whom an answer is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asker {
    pub(super) connection: ConnectionIndex,
    pub(super) slot: SlotId,
    pub(super) protocol: Protocol,
}

/// One command of a job.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) asker: Asker,
    pub(super) spec: &'static Spec,
    /// Its words.
    pub(super) words: Range<u32>,
    /// Its answer among the job's.
    pub(super) reply: Range<usize>,
}

/// What kind of work a job is.
#[derive(Clone, Debug, Default)]
pub(super) enum Work {
    /// Commands over a view, as one transaction.
    #[default]
    Transaction,
    /// The same for a MULTI: answered as one array, and all or nothing.
    Exec,
    /// One command that only reads one key.
    OneRead,
    /// WATCH.
    Watch,
    /// FLUSHDB.
    Flush,
    /// SCAN, KEYS, DBSIZE, RANDOMKEY.
    Whole(Whole),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) items: Vec<Item>,
    pub(super) words: Words,
    /// EXEC: whom to answer, and what must be as it was.
    pub(super) exec: Option<Asker>,
    pub(super) watched: Vec<(Box<[u8]>, Watched)>,
    pub(super) watched_charge: Option<Charge>,

    pub(super) txn: Option<TxnHandle>,
    pub(super) committing: bool,
    /// Its operations under way have numbers from here on.
    pub(super) first_op: u64,
    pub(super) ops: u64,
    /// How many of them are not answered.
    pub(super) left: u64,
    /// How many keys were asked for, and whether there are more.
    pub(super) asked: usize,
    pub(super) asks_more: bool,
    /// Where to go on: the command, the place among its keys, and the place among what is watched.
    pub(super) asks_from: (usize, usize, usize),
    /// How many of its commands were carried out in this attempt.
    pub(super) executed: usize,
    /// What this attempt met, if it cannot go on.
    pub(super) failure: Option<Failure>,
    /// This attempt met a conflict.
    pub(super) again: bool,
    pub(super) attempts: u32,
    pub(super) began: Timestamp,
    pub(super) paused_until: Timestamp,
    /// Its answer found its connection's answers unread.
    pub(super) unread: bool,
    /// What a read of one key has found.
    pub(super) found: Option<Read>,

    /// The key whose queue it is in, and the job behind it there.
    pub(super) queue: Option<u64>,
    pub(super) next: Option<JobId>,
    pub(super) reply: Vec<u8>,
    /// Bytes of values that this attempt has read, and their memory; what MULTI had queued counts
    /// there as well.
    pub(super) read_bytes: usize,
    pub(super) read_charge: Option<Charge>,
    pub(super) queued_charge: Option<Charge>,
    /// Bytes of values that this attempt makes beside those that its commands brought, how many are
    /// counted for it, and how many of those in the memory for input.
    pub(super) makes: u64,
    pub(super) counted: u64,
    pub(super) charged: u64,
    /// It waits, or has waited, for memory for so much, and would rather have so much.
    pub(super) needs: u64,
    pub(super) wants: u64,
    /// Since when it waits for memory, or has waited the last time, and for how long it has waited
    /// before.
    pub(super) waits_since: Option<Timestamp>,
    pub(super) waited: Duration,
}

/// Memory above this is given back when a job is done.
const KEPT_REPLY_BYTES: usize = 16 * 1024;
/// Finished jobs that are kept for the next ones.
const KEPT_JOBS: usize = 256;

impl Job {
    fn reset(&mut self) {
        self.work = Work::Transaction;
        self.items.clear();
        self.items.shrink_to(64);
        self.words.clear();
        self.exec = None;
        self.watched = Vec::new();
        self.watched_charge = None;
        self.txn = None;
        self.committing = false;
        self.failure = None;
        self.again = false;
        self.unread = false;
        self.found = None;
        self.attempts = 0;
        self.queue = None;
        self.next = None;
        self.reply.clear();
        if self.reply.capacity() > KEPT_REPLY_BYTES {
            self.reply = Vec::new();
        }
        self.read_bytes = 0;
        self.read_charge = None;
        self.queued_charge = None;
        (self.makes, self.needs, self.wants) = (0, 0, 0);
        (self.waits_since, self.waited) = (None, Duration::ZERO);
        debug_assert!(
            self.counted == 0 && self.charged == 0,
            "a job that is over is not counted any more"
        );
    }
}

/// All jobs. A job is taken out while it is worked on, and put back.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    table: Vec<Option<Box<Job>>>,
    free: Vec<JobId>,
    #[expect(
        clippy::vec_box,
        reason = "jobs move between here and the table without being copied"
    )]
    spare: Vec<Box<Job>>,
    next_op: u64,
}

impl Jobs {
    /// A new job, in the table.
    pub(super) fn open(&mut self, work: Work, now: Timestamp) -> JobId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.table.push(None);
            JobId(u32::try_from(self.table.len() - 1).unwrap_or(u32::MAX))
        });
        let mut job = self.spare.pop().unwrap_or_default();
        job.work = work;
        job.began = now;
        self.table[id.0 as usize] = Some(job);
        id
    }

    pub(super) fn get(&self, id: JobId) -> Option<&Job> {
        self.table.get(id.0 as usize)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.table.get_mut(id.0 as usize)?.as_deref_mut()
    }

    /// Takes a job out to work on it.
    pub(super) fn lift(&mut self, id: JobId) -> Option<Box<Job>> {
        self.table.get_mut(id.0 as usize)?.take()
    }

    /// Puts it back.
    pub(super) fn put_back(&mut self, id: JobId, job: Box<Job>) {
        self.table[id.0 as usize] = Some(job);
    }

    /// Ends a job that was taken out.
    pub(super) fn close(&mut self, id: JobId, mut job: Box<Job>) {
        job.reset();
        if self.spare.len() < KEPT_JOBS {
            self.spare.push(job);
        }
        self.free.push(id);
    }

    /// Numbers for `count` operations of a job, which waits for all of them.
    pub(super) const fn number(&mut self, job: &mut Job, count: u64) {
        job.first_op = self.next_op;
        job.ops = count;
        job.left = 0;
        self.next_op += count;
    }

    /// How many jobs there are.
    pub(super) fn len(&self) -> usize {
        self.table.len() - self.free.len()
    }
}

/// Bits of an operation's name that hold its number; above them is the job's place, and one bit
/// that says that it is a job's.
const NUMBER_BITS: u32 = 40;
const JOB_BIT: u64 = 1 << 63;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// What an operation of the engine is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    /// A command that goes its own fast way.
    Fast(ConnectionIndex, SlotId),
    /// One operation of a job, by its number.
    Job(JobId, u64),
}

impl Operation {
    #[inline]
    pub(super) const fn pack(self) -> u64 {
        match self {
            Self::Fast(connection, slot) => (connection.0 as u64) << 32 | slot.0 as u64,
            Self::Job(job, number) => JOB_BIT | (job.0 as u64) << NUMBER_BITS | number & NUMBER,
        }
    }

    #[inline]
    pub(super) const fn unpack(raw: u64) -> Self {
        if raw & JOB_BIT == 0 {
            Self::Fast(ConnectionIndex((raw >> 32) as u32), SlotId(raw as u32))
        } else {
            Self::Job(JobId(((raw & !JOB_BIT) >> NUMBER_BITS) as u32), raw & NUMBER)
        }
    }
}

impl Job {
    /// Which of the operations under way has this number; `None` when it belongs to an earlier
    /// attempt.
    pub(super) const fn place_of(&self, number: u64) -> Option<u64> {
        let place = number.wrapping_sub(self.first_op) & NUMBER;
        if place < self.ops { Some(place) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_keep_their_names() {
        for operation in [
            Operation::Fast(ConnectionIndex(0x7fff_ffff), SlotId(u32::MAX)),
            Operation::Fast(ConnectionIndex(0), SlotId(0)),
            Operation::Job(JobId(5), NUMBER),
        ] {
            assert_eq!(Operation::unpack(operation.pack()), operation);
        }
    }

    #[test]
    fn answers_to_an_earlier_attempt_are_not_taken_for_the_present_one() {
        let mut jobs = Jobs::default();
        let id = jobs.open(Work::Transaction, Timestamp::ZERO);
        let mut job = jobs.lift(id).unwrap();
        jobs.number(&mut job, 2);
        assert_eq!((job.place_of(1), job.place_of(2)), (Some(1), None));
        jobs.number(&mut job, 3);
        assert_eq!((job.place_of(1), job.place_of(2), job.place_of(4)), (None, Some(0), Some(2)));
        jobs.close(id, job);
        assert_eq!(jobs.len(), 0);
        assert_eq!(jobs.open(Work::Watch, Timestamp::ZERO), id);
    }
}
