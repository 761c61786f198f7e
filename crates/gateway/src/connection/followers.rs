//! Commands of one connection that follow others of it on the same key: they are collected in a job
//! of the connection, and carried out together when those before them are answered.
//!
//! ```text
//!   SET k │ GET k  APPEND k  GET k │        the first is under way alone, the others follow in one job
//!         └───────────┬────────────┘
//!   SET k answered ─► key's queue           behind what other connections have there
//! ```
//! Without them a pipeline on one key would wait for one durable batch of the log after the other.
//! A job follows commands of its own connection only, and holds no others: nobody else waits for
//! answers that a client does not read. Reads that find a long value leave their job for that
//! reason: they are carried out by themselves, and the rest of the job follows them.
//!
//! Invariants: while a job follows commands on a key, every later command of the connection on the
//! key joins the last such job or follows it; jobs on a key are in the order of their commands.

use crate::connection::key_access::KeyAccesses;
use crate::connection::replies::ReplyId;
use crate::jobs::job::JobId;

/// A job that waits for commands of its connection on one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Follower {
    /// The hash of the key.
    pub(crate) hash: u64,
    pub(crate) job: JobId,
    /// Its first command.
    pub(crate) first: ReplyId,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    waiting: Vec<Follower>,
}

impl Followers {
    /// Whether no command follows another.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The last job of the key, if there is one.
    pub(crate) fn last_of(&self, hash: u64) -> Option<JobId> {
        let of_key = |follower: &&Follower| follower.hash == hash;
        self.waiting.iter().rev().find(of_key).map(|follower| follower.job)
    }

    /// A job follows everything that its connection has under way on the key.
    pub(crate) fn push(&mut self, follower: Follower) {
        debug_assert!(self.waiting.iter().all(|other| other.job != follower.job));
        self.waiting.push(follower);
    }

    /// A job follows commands that left it, in front of what follows the job.
    pub(crate) fn push_front(&mut self, follower: Follower) {
        debug_assert!(self.waiting.iter().all(|other| other.job != follower.job));
        self.waiting.insert(0, follower);
    }

    /// Takes a job that has nothing left to wait for.
    pub(crate) fn take_released(&mut self, accesses: &KeyAccesses) -> Option<Follower> {
        let is_released = |follower: &Follower| !accesses.overtakes(follower.first);
        let place = self.waiting.iter().position(is_released)?;
        Some(self.waiting.remove(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::key_access::{AccessKind, KeyAccess};

    #[test]
    fn a_job_is_released_when_all_before_it_on_its_key_are_answered() {
        let mut accesses = KeyAccesses::default();
        let mut followers = Followers::default();
        let commands = [
            (0x40, 1, AccessKind::Read),
            (0x40, 2, AccessKind::Queued),
            (0x80, 3, AccessKind::Write),
            (0x40, 4, AccessKind::Write),
            (0x80, 5, AccessKind::Write),
            (0x40, 6, AccessKind::Write),
        ];
        for (hash, reply, kind) in commands {
            accesses.add(KeyAccess::new(hash, kind), ReplyId(reply));
        }
        let [first, other, second] = [(0x40, 7, 4), (0x80, 8, 5), (0x40, 9, 6)]
            .map(|(hash, job, first)| Follower { hash, job: JobId(job), first: ReplyId(first) });
        followers.push(other);
        followers.push(second);
        followers.push_front(first);
        assert_eq!((followers.last_of(0x40), followers.last_of(0x41)), (Some(JobId(9)), None));
        accesses.remove(ReplyId(1));
        assert_eq!(followers.take_released(&accesses), None, "a queued one is under way");
        accesses.remove(ReplyId(2));
        assert_eq!(followers.take_released(&accesses), Some(first));
        assert_eq!(followers.take_released(&accesses), None, "the first job is under way");
        accesses.remove(ReplyId(3));
        assert_eq!(followers.take_released(&accesses), Some(other));
        accesses.remove(ReplyId(4));
        assert_eq!(followers.take_released(&accesses), Some(second));
        assert!(followers.is_empty());
    }
}
