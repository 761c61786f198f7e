//! Commands that take more than one step: all jobs of a gateway, and which of them goes on when.
//!
//! ```text
//!   open ─► starts ─► JobRunner ─┬─ waits for results of the backend
//!             ▲                  ├─► yielded      goes on in the next turn: jobs have had their share of this one
//!             │                  ├─► backing_off  met a conflict: starts again after a while ──┐
//!             │                  └─► (memory)     waits for memory ─────────────────────────┐  │
//!             └─────────────────────────────────────────────────────────────────────────────┴──┘
//! ```
//! Commands that read a key and write it stand in that key's queue ([`key_queues`]), so that one
//! transaction of them runs at a time; so do those that came behind others of their connection on
//! the same key ([`crate::connection::followers`]).
//!
//! Invariants: a job is in the table until its clients are answered; it stands in one of the lists
//! above at most, or waits for results.

pub(crate) mod ask;
pub(crate) mod execute;
pub(crate) mod job;
pub(crate) mod key_queues;
pub(crate) mod key_range;
pub(crate) mod keyspace_scan;
pub(crate) mod results;
pub(crate) mod run;
pub(crate) mod table;

use std::collections::VecDeque;

use timestone_types::Timestamp;

use self::job::{Job, JobCommand, JobId, JobKind, Requester};
use self::key_queues::{BusyKeys, KeyQueue, KeyQueues};
use self::table::JobTable;
use crate::commands::arguments::Args;
use crate::commands::table::{Class, Spec};
use crate::connection::followers::Follower;
use crate::connection::replies::ReplyId;
use crate::limits::{EXEC_BYTES_AT_ONCE, MAX_COMBINED, MAX_COMBINED_BYTES};

/// See the module.
#[derive(Debug)]
pub(crate) struct Jobs {
    pub(crate) table: JobTable,
    /// Jobs to start.
    starts: VecDeque<JobId>,
    /// Jobs that go on in the next turn: they have had their share of this one.
    yielded: VecDeque<JobId>,
    /// Jobs that wait for a while before they start again.
    backing_off: Vec<JobId>,
    key_queues: KeyQueues,
    /// Keys with writes under way, for the fast path.
    pub(crate) busy: BusyKeys,
    /// What jobs have carried out in this turn, in bytes.
    carried_out: usize,
    random: u64,
}

impl Jobs {
    /// No jobs; the seed makes draws unpredictable.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            table: JobTable::default(),
            starts: VecDeque::new(),
            yielded: VecDeque::new(),
            backing_off: Vec::new(),
            key_queues: KeyQueues::default(),
            busy: BusyKeys::new(),
            carried_out: 0,
            random: seed | 1,
        }
    }

    /// A new job of one command, which somebody else starts.
    fn open_idle(
        &mut self,
        now: Timestamp,
        kind: JobKind,
        requester: Requester,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> JobId {
        let id = self.table.open(kind, now);
        if let Some(job) = self.table.get_mut(id) {
            debug_assert!(job.commands.is_empty(), "a job that is new has no command");
            job.push_command(requester, spec, args);
        }
        id
    }

    /// A new job of one command, to be started.
    pub(crate) fn open(
        &mut self,
        now: Timestamp,
        kind: JobKind,
        requester: Requester,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> JobId {
        let id = self.open_idle(now, kind, requester, spec, args);
        self.start_soon(id);
        debug_assert!(self.table.get(id).is_some_and(|job| job.queue.is_none()));
        id
    }

    /// A command over one key: behind those in the key's queue, and together with those that wait
    /// there too.
    pub(crate) fn enqueue_on_key(
        &mut self,
        now: Timestamp,
        hash: u64,
        requester: Requester,
        spec: &'static Spec,
        args: Args<'_>,
    ) {
        if let Some(queue) = self.key_queues.get(hash)
            && self.has_room(queue.last)
            && self.table.get(queue.last).is_some_and(|job| !job.follows)
        {
            self.busy.enter(hash);
            return self.join(queue.last, requester, spec, args);
        }
        let id = self.open_idle(now, JobKind::Transaction, requester, spec, args);
        self.append_to_queue(id, hash);
    }

    /// Whether one command more may join those of a job. None joins what has started.
    pub(crate) fn has_room(&self, id: JobId) -> bool {
        self.table.get(id).is_some_and(|job| {
            job.retry.attempts == 0
                && !job.sealed
                && job.commands.len() < MAX_COMBINED
                && job.arguments.bytes() < MAX_COMBINED_BYTES
        })
    }

    /// A command joins those of a job that has room.
    pub(crate) fn join(
        &mut self,
        id: JobId,
        requester: Requester,
        spec: &'static Spec,
        args: Args<'_>,
    ) {
        assert!(self.has_room(id), "a command joins a job that has not started");
        if let Some(job) = self.table.get_mut(id) {
            job.push_command(requester, spec, args);
        }
    }

    /// No other command joins a job from now on.
    pub(crate) fn seal(&mut self, id: JobId) {
        assert!(self.has_room(id), "a job is sealed once, before it starts");
        if let Some(job) = self.table.get_mut(id) {
            job.sealed = true;
        }
    }

    /// A job goes to the end of a key's queue, and starts when those before it are over.
    fn append_to_queue(&mut self, id: JobId, hash: u64) {
        let Some(job) = self.table.get_mut(id) else { return };
        assert!(job.queue.is_none() && job.next.is_none(), "a job is in one queue at most");
        job.queue = Some(hash);
        (0..job.commands.len()).for_each(|_| self.busy.enter(hash));
        let Some(queue) = self.key_queues.get(hash) else {
            self.key_queues.set(hash, KeyQueue { running: id, last: id });
            return self.start_soon(id);
        };
        if let Some(last) = self.table.get_mut(queue.last) {
            debug_assert!(last.next.is_none(), "nothing is behind the last of a queue");
            last.next = Some(id);
        }
        self.key_queues.set(hash, KeyQueue { last: id, ..queue });
    }

    /// A new job of a command that follows others of its connection on the same key.
    pub(crate) fn open_following(
        &mut self,
        now: Timestamp,
        requester: Requester,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> JobId {
        let id = self.open_idle(now, JobKind::Transaction, requester, spec, args);
        if let Some(job) = self.table.get_mut(id) {
            job.follows = true;
        }
        id
    }

    /// What a job follows is answered: it goes to the end of the key's queue. One that only reads is
    /// started by itself; whose it is, then.
    pub(crate) fn start_following(
        &mut self,
        now: Timestamp,
        follower: Follower,
    ) -> Option<ReplyId> {
        let Follower { hash, job: id, .. } = follower;
        let job = self.table.get_mut(id)?;
        debug_assert!(job.retry.attempts == 0 && job.queue.is_none(), "it waits for others");
        job.retry.began = now;
        if let &[JobCommand { requester, spec, .. }] = &job.commands[..]
            && spec.class == Class::Read
        {
            job.kind = JobKind::OneRead;
            self.start_soon(id);
            return Some(requester.reply_id);
        }
        self.append_to_queue(id, hash);
        None
    }

    /// The commands of a job from `place` on become a job of their own, which is the next in the
    /// key's queue.
    pub(crate) fn split(&mut self, now: Timestamp, id: JobId, job: &mut Job, place: usize) {
        assert!(0 < place && place < job.commands.len(), "each of the two has commands");
        let Some(hash) = job.queue else { return };
        let rest = self.take_rest(now, job, place);
        if let Some(rest) = self.table.get_mut(rest) {
            (rest.queue, rest.next) = (Some(hash), job.next);
        }
        job.next = Some(rest);
        if let Some(queue) = self.key_queues.get(hash).filter(|queue| queue.last == id) {
            self.key_queues.set(hash, KeyQueue { last: rest, ..queue });
        }
    }

    /// The commands of a job from `place` on, in a job of their own which somebody else starts.
    fn take_rest(&mut self, now: Timestamp, job: &mut Job, place: usize) -> JobId {
        let id = self.table.open(JobKind::Transaction, now);
        if let Some(rest) = self.table.get_mut(id) {
            for command in &job.commands[place..] {
                rest.push_command(command.requester, command.spec, job.args(command));
            }
            (rest.follows, rest.singly, rest.sealed) = (job.follows, job.singly, job.sealed);
        }
        job.commands.truncate(place);
        id
    }

    /// A job that follows others leaves its key's queue with its first `count` commands, which only
    /// read. The rest is to follow those.
    pub(crate) fn leave_alone(
        &mut self,
        now: Timestamp,
        id: JobId,
        job: &mut Job,
        count: usize,
    ) -> Option<Follower> {
        assert!(job.follows, "all of its commands are of one connection");
        let hash = job.queue?;
        self.leave_queue(id, job);
        let rest = self.take_following(now, hash, job, count);
        (job.kind, job.follows) = (JobKind::OneRead, false);
        rest
    }

    /// Commands that follow others have failed together, and nothing of them was done: one of them
    /// may be at fault, so each is carried out by itself. The first goes back to the key's queue, or
    /// is a read that is alone; the rest is to follow it.
    pub(crate) fn take_apart(
        &mut self,
        now: Timestamp,
        id: JobId,
        mut job: Box<Job>,
    ) -> Option<(Follower, Option<ReplyId>)> {
        assert!(job.follows && job.commands.len() > 1, "several of one connection have failed");
        let (hash, first) = (job.queue?, job.requester()?.reply_id);
        self.leave_queue(id, &mut job);
        job.singly = true;
        let rest = self.take_following(now, hash, &mut job, 1)?;
        let alone = self.take_rest(now, &mut job, 0);
        self.close(id, job);
        let reads = self.start_following(now, Follower { hash, job: alone, first });
        Some((rest, reads))
    }

    /// What is behind the first command of a job whose commands are carried out one by one: it is to
    /// follow that one.
    pub(crate) fn take_behind_first(
        &mut self,
        now: Timestamp,
        follower: Follower,
    ) -> Option<Follower> {
        let mut job = self.table.take(follower.job)?;
        let rest = match job.singly {
            true => self.take_following(now, follower.hash, &mut job, 1),
            false => None,
        };
        self.table.put_back(follower.job, job);
        rest
    }

    /// The commands of a job from `place` on, if there are any, as a job that is to follow those
    /// before them.
    fn take_following(
        &mut self,
        now: Timestamp,
        hash: u64,
        job: &mut Job,
        place: usize,
    ) -> Option<Follower> {
        debug_assert!(job.follows, "all of its commands are of one connection");
        let first = job.commands.get(place)?.requester.reply_id;
        Some(Follower { hash, job: self.take_rest(now, job, place), first })
    }

    /// A job leaves its key's queue, if it is in one: the next one there starts.
    fn leave_queue(&mut self, id: JobId, job: &mut Job) {
        let Some(hash) = job.queue.take() else { return };
        self.busy.leave(hash, job.commands.len());
        match (self.key_queues.get(hash), job.next.take()) {
            (Some(queue), Some(next)) => {
                debug_assert_eq!(queue.running, id, "the first of a queue ends first");
                self.key_queues.set(hash, KeyQueue { running: next, ..queue });
                self.starts.push_back(next);
            }
            _ => self.key_queues.remove(hash),
        }
    }

    /// A job is to be started.
    pub(crate) fn start_soon(&mut self, id: JobId) {
        debug_assert!(self.table.get(id).is_some(), "a job that is worked on starts later");
        self.starts.push_back(id);
    }

    /// The next job to start.
    #[inline]
    pub(crate) fn next_start(&mut self) -> Option<JobId> {
        debug_assert!(self.starts.len() <= self.table.len(), "a job starts once");
        self.starts.pop_front()
    }

    /// Whether jobs are to be started.
    #[inline]
    pub(crate) fn has_starts(&self) -> bool {
        !self.starts.is_empty()
    }

    /// A job goes on in the next turn.
    pub(crate) fn yield_turn(&mut self, id: JobId) {
        debug_assert!(self.yielded.back() != Some(&id), "a job goes on once a turn");
        self.yielded.push_back(id);
    }

    /// Whether jobs wait for nothing but the next turn.
    pub(crate) fn has_yielded(&self) -> bool {
        !self.yielded.is_empty()
    }

    /// A turn begins: how many jobs wait for it.
    pub(crate) fn begin_turn(&mut self) -> usize {
        debug_assert!(self.yielded.len() <= self.table.len(), "a job goes on once a turn");
        self.carried_out = 0;
        self.yielded.len()
    }

    /// The next job that goes on in this turn, unless jobs have had their share of it.
    pub(crate) fn next_yielded(&mut self) -> Option<JobId> {
        debug_assert!(self.yielded.len() <= self.table.len(), "a job goes on once a turn");
        if self.has_had_its_share() { None } else { self.yielded.pop_front() }
    }

    /// Jobs have carried out so much more in this turn, in bytes.
    pub(crate) fn carried_out(&mut self, bytes: usize) {
        debug_assert!(self.table.len() > 0, "some job carries it out");
        self.carried_out = self.carried_out.saturating_add(bytes);
    }

    /// Whether jobs have had their share of this turn. One share for all: each of them may be one
    /// command that makes much out of little.
    pub(crate) fn has_had_its_share(&self) -> bool {
        if timestone_types::is_planted!(BoundlessTurns) {
            return false;
        }
        self.carried_out > EXEC_BYTES_AT_ONCE
    }

    /// Puts a job back that starts again at `until`.
    pub(crate) fn back_off(&mut self, id: JobId, mut job: Box<Job>, until: Timestamp) {
        job.retry.paused_until = until;
        job.attempt.stop_waiting();
        self.table.put_back(id, job);
        debug_assert!(self.backing_off.last() != Some(&id), "a job pauses once at a time");
        self.backing_off.push(id);
    }

    /// Starts the jobs whose pause is over.
    pub(crate) fn resume_backed_off(&mut self, now: Timestamp) {
        let mut at = 0;
        while at < self.backing_off.len() {
            let id = self.backing_off[at];
            if self.table.get(id).is_none_or(|job| job.retry.paused_until <= now) {
                self.backing_off.swap_remove(at);
                self.starts.push_back(id);
            } else {
                at += 1;
            }
        }
        debug_assert!(self.next_deadline().is_none_or(|until| until > now), "pauses that are over");
    }

    /// When the next pause is over.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let jobs = self.backing_off.iter().filter_map(|&id| self.table.get(id));
        jobs.map(|job| job.retry.paused_until).min()
    }

    /// Ends a job that was taken out and answered, and lets the next in its queue start.
    pub(crate) fn close(&mut self, id: JobId, mut job: Box<Job>) {
        self.leave_queue(id, &mut job);
        self.table.close(id, job);
    }

    /// Whether there are none.
    pub(crate) fn is_quiet(&self) -> bool {
        self.table.len() == 0 && self.starts.is_empty()
    }

    /// The next number of a sequence that is good enough to pick keys by.
    pub(crate) const fn draw(&mut self) -> u64 {
        assert!(self.random != 0, "the sequence never reaches zero, where it would stay");
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}
