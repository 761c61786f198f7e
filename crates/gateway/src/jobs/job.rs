//! One job: a command that takes more than one step, with everything that is needed to run them again.
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
//! What belongs to one attempt is in [`Attempt`], what stays from attempt to attempt in [`Retry`].

use core::ops::Range;

use timestone_seda::Charge;
use timestone_session::TxnHandle;
use timestone_types::Timestamp;
use timestone_wire::resp::{Protocol, ReplyWriter};

use crate::commands::arguments::{Args, ArgumentBuffer};
use crate::commands::table::Spec;
use crate::connection::key_access::KeyState;
use crate::connection::replies::ReplyId;
use crate::connection::{ConnectionIndex, Watched};
use crate::failure::Failure;
use crate::jobs::keyspace_scan::KeyspaceScan;
use crate::memory::derived::Derived;

/// Names a job while it is in the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct JobId(pub(crate) u32);

/// Whom an answer is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Requester {
    pub(crate) connection: ConnectionIndex,
    pub(crate) reply_id: ReplyId,
    pub(crate) protocol: Protocol,
}

/// One command of a job.
#[derive(Clone, Debug)]
pub(crate) struct JobCommand {
    pub(crate) requester: Requester,
    pub(crate) spec: &'static Spec,
    /// Its arguments.
    pub(crate) arguments: Range<u32>,
    /// Its answer among the job's.
    pub(crate) reply: Range<usize>,
}

/// What kind of job it is.
#[derive(Clone, Debug, Default)]
pub(crate) enum JobKind {
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
    Scan(KeyspaceScan),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Job {
    pub(crate) kind: JobKind,
    pub(crate) commands: Vec<JobCommand>,
    pub(crate) arguments: ArgumentBuffer,
    /// EXEC: whom to answer, and what must be as it was.
    pub(crate) exec: Option<Requester>,
    pub(crate) watched: Vec<(Box<[u8]>, Watched)>,
    pub(crate) txn: Option<TxnHandle>,
    pub(crate) attempt: Attempt,
    pub(crate) retry: Retry,
    /// The key whose queue it is in, and the job behind it there.
    pub(crate) queue: Option<u64>,
    pub(crate) next: Option<JobId>,
    /// Its commands are of one connection and followed others of it; no others join them.
    pub(crate) follows: bool,
    /// No other command joins it: its last one says when the key expires.
    pub(crate) sealed: bool,
    /// They are carried out one by one: together they have failed.
    pub(crate) singly: bool,
    pub(crate) reply: Vec<u8>,
    pub(crate) memory: JobMemory,
}

/// How far this attempt of a job has come.
#[derive(Debug, Default)]
pub(crate) struct Attempt {
    pub(crate) committing: bool,
    /// Its operations under way have numbers from here on.
    pub(crate) first_op: u64,
    pub(crate) ops: u64,
    /// How many of them are not answered.
    pub(crate) left: u64,
    /// How many keys were asked for, and whether there are more.
    pub(crate) asked: usize,
    pub(crate) asks_more: bool,
    /// Where to go on with asking.
    pub(crate) cursor: AskCursor,
    /// How many of its commands were carried out.
    pub(crate) executed: usize,
    /// What it met, if it cannot go on.
    pub(crate) failure: Option<Failure>,
    /// It met a conflict.
    pub(crate) again: bool,
    /// What a read of one key has found.
    pub(crate) found: Option<KeyState>,
}

/// Where a job goes on with asking for keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AskCursor {
    /// The command, by its place.
    pub(crate) command: usize,
    /// The place among its keys.
    pub(crate) key: usize,
    /// The place among what is watched.
    pub(crate) watched: usize,
}

/// What stays of a job from attempt to attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retry {
    pub(crate) attempts: u32,
    pub(crate) began: Timestamp,
    pub(crate) paused_until: Timestamp,
    /// Its answer found its connection's answers unread.
    pub(crate) unread: bool,
}

/// What a job is counted for.
#[derive(Debug, Default)]
pub(crate) struct JobMemory {
    /// Bytes of values that this attempt has read, and their memory.
    pub(crate) read_bytes: usize,
    pub(crate) read_charge: Option<Charge>,
    /// What MULTI had queued, and what was watched.
    pub(crate) queued_charge: Option<Charge>,
    pub(crate) watched_charge: Option<Charge>,
    /// What this attempt makes out of what is there.
    pub(crate) derived: Derived,
}

/// Memory above this is given back when a job is done.
const KEPT_REPLY_BYTES: usize = 16 * 1024;
impl Job {
    /// As a new one, with the memory that is worth keeping.
    pub(crate) fn reset(&mut self) {
        assert!(self.memory.derived.is_uncounted(), "a job that is over is not counted any more");
        let (mut commands, mut arguments) =
            (core::mem::take(&mut self.commands), core::mem::take(&mut self.arguments));
        commands.clear();
        commands.shrink_to(64);
        arguments.clear();
        let mut reply = core::mem::take(&mut self.reply);
        reply.clear();
        if reply.capacity() > KEPT_REPLY_BYTES {
            reply = Vec::new();
        }
        *self = Self { commands, arguments, reply, ..Self::default() };
    }

    /// Appends a command.
    pub(crate) fn push_command(
        &mut self,
        requester: Requester,
        spec: &'static Spec,
        args: Args<'_>,
    ) {
        debug_assert!(spec.accepts(args.len()), "{} was checked", spec.name);
        let arguments = self.arguments.push_args(args);
        self.commands.push(JobCommand { requester, spec, arguments, reply: 0..0 });
    }

    /// Another attempt begins.
    pub(crate) fn begin_attempt(&mut self) {
        assert_eq!(self.attempt.left, 0, "an attempt begins when the last one is over");
        (self.memory.read_bytes, self.memory.read_charge) = (0, None);
        self.retry.attempts += 1;
        self.attempt = Attempt { first_op: self.attempt.first_op, ..Attempt::default() };
        self.memory.derived.begin();
        self.reply.clear();
    }

    /// What a command of it names.
    pub(crate) fn args(&self, command: &JobCommand) -> Args<'_> {
        self.arguments.args(command.arguments.clone())
    }

    /// Whom a job of one command answers.
    pub(crate) fn requester(&self) -> Option<Requester> {
        self.commands.first().map(|command| command.requester)
    }

    /// The answer of a command that has nothing to say.
    pub(crate) fn answer_ok(&mut self) {
        debug_assert_eq!(self.commands.len(), 1, "it is one command");
        let Some(command) = self.commands.first_mut() else { return };
        self.reply.clear();
        ReplyWriter::new(&mut self.reply, command.requester.protocol).ok();
        command.reply = 0..self.reply.len();
    }
}

impl Attempt {
    /// Operations under way have these numbers from now on.
    pub(crate) const fn expect(&mut self, first_op: u64, count: u64) {
        assert!(self.left == 0, "operations are numbered when none are under way");
        (self.first_op, self.ops, self.left) = (first_op, count, 0);
    }

    /// Nobody waits for the operations under way any more.
    pub(crate) const fn stop_waiting(&mut self) {
        debug_assert!(self.left <= self.ops, "each operation has a number");
        (self.left, self.ops) = (0, 0);
    }

    /// Which of the operations under way has this number; `None` when it belongs to an earlier
    /// attempt.
    pub(crate) const fn place_of(&self, number: u64) -> Option<u64> {
        let place = number.wrapping_sub(self.first_op) & NUMBER;
        if place < self.ops { Some(place) } else { None }
    }
}

/// Bits of an operation's name that hold its number; above them is the job's place, and one bit
/// that says that it is a job's.
const NUMBER_BITS: u32 = 40;
const JOB_BIT: u64 = 1 << 63;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// What an operation of the engine is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    /// A command that takes the fast path.
    Fast(ConnectionIndex, ReplyId),
    /// One operation of a job, by its number.
    Job(JobId, u64),
}

impl Operation {
    /// Whose result it will be is found again.
    #[inline]
    pub(crate) fn assert_packs(self) {
        // Numbers are told apart by their lower bits.
        let named = match self {
            Self::Job(job, number) => Self::Job(job, number & NUMBER),
            fast @ Self::Fast(..) => fast,
        };
        debug_assert_eq!(Self::unpack(self.pack()), named, "a result finds whom it is for");
    }

    #[inline]
    pub(crate) const fn pack(self) -> u64 {
        match self {
            Self::Fast(connection, reply_id) => (connection.0 as u64) << 32 | reply_id.0 as u64,
            Self::Job(job, number) => JOB_BIT | (job.0 as u64) << NUMBER_BITS | number & NUMBER,
        }
    }

    #[inline]
    pub(crate) const fn unpack(raw: u64) -> Self {
        if raw & JOB_BIT == 0 {
            Self::Fast(ConnectionIndex((raw >> 32) as u32), ReplyId(raw as u32))
        } else {
            Self::Job(JobId(((raw & !JOB_BIT) >> NUMBER_BITS) as u32), raw & NUMBER)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_keep_their_names() {
        for operation in [
            Operation::Fast(ConnectionIndex(0x7fff_ffff), ReplyId(u32::MAX)),
            Operation::Fast(ConnectionIndex(0), ReplyId(0)),
            Operation::Job(JobId(5), NUMBER),
        ] {
            assert_eq!(Operation::unpack(operation.pack()), operation);
        }
    }

    #[test]
    fn an_operation_after_a_trillion_others_finds_its_job() {
        let mut attempt = Attempt::default();
        attempt.expect(NUMBER, 2);
        for place in [0, 1] {
            let operation = Operation::Job(JobId(5), NUMBER + place);
            operation.assert_packs();
            let Operation::Job(JobId(5), number) = Operation::unpack(operation.pack()) else {
                panic!("{operation:?}")
            };
            assert_eq!(attempt.place_of(number), Some(place));
        }
    }
}
