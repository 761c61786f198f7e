//! The table of jobs, and the numbers of their operations.
//!
//! A job is taken out while it is worked on, and put back: whoever works on it may then use
//! everything else. Invariants: operations of the backend are numbered without gaps over all jobs,
//! so an answer to an earlier attempt is known by its number; a place is free only when its job was
//! closed.

use timestone_types::Timestamp;

use super::job::{Job, JobId, JobKind};

/// Finished jobs that are kept for the next ones.
const KEPT_JOBS: usize = 256;

/// All jobs. A job is taken out while it is worked on, and put back.
#[derive(Debug, Default)]
pub(crate) struct JobTable {
    table: Vec<Option<Box<Job>>>,
    free: Vec<JobId>,
    #[expect(
        clippy::vec_box,
        reason = "jobs move between here and the table without being copied"
    )]
    spare: Vec<Box<Job>>,
    next_op: u64,
}

impl JobTable {
    /// A new job, in the table.
    pub(crate) fn open(&mut self, kind: JobKind, now: Timestamp) -> JobId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.table.push(None);
            JobId(u32::try_from(self.table.len() - 1).unwrap_or(u32::MAX))
        });
        let mut job = self.spare.pop().unwrap_or_default();
        job.kind = kind;
        job.retry.began = now;
        let before = self.table[id.0 as usize].replace(job);
        assert!(before.is_none(), "a free place has no job");
        id
    }

    pub(crate) fn get(&self, id: JobId) -> Option<&Job> {
        self.table.get(id.0 as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.table.get_mut(id.0 as usize)?.as_deref_mut()
    }

    /// Takes a job out to work on it.
    pub(crate) fn take(&mut self, id: JobId) -> Option<Box<Job>> {
        let job = self.table.get_mut(id.0 as usize)?.take();
        debug_assert!(job.is_none() || self.len() > 0, "a job is in a place that is not free");
        job
    }

    /// Puts it back.
    pub(crate) fn put_back(&mut self, id: JobId, job: Box<Job>) {
        let before = self.table[id.0 as usize].replace(job);
        assert!(before.is_none(), "a job is put back where it was taken");
    }

    /// Ends a job that was taken out.
    pub(crate) fn close(&mut self, id: JobId, mut job: Box<Job>) {
        assert!(self.table[id.0 as usize].is_none(), "a job is taken out before it is closed");
        job.reset();
        if self.spare.len() < KEPT_JOBS {
            self.spare.push(job);
        }
        self.free.push(id);
    }

    /// Numbers for `count` operations of a job, which waits for all of them.
    pub(crate) fn number(&mut self, job: &mut Job, count: u64) {
        debug_assert_eq!(job.attempt.left, 0, "operations are numbered when none are under way");
        job.attempt.expect(self.next_op, count);
        self.next_op += count;
    }

    /// How many jobs there are.
    pub(crate) fn len(&self) -> usize {
        self.table.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_to_an_earlier_attempt_are_not_taken_for_the_present_one() {
        let mut jobs = JobTable::default();
        let id = jobs.open(JobKind::Transaction, Timestamp::ZERO);
        let mut job = jobs.take(id).unwrap();
        jobs.number(&mut job, 2);
        assert_eq!((job.attempt.place_of(1), job.attempt.place_of(2)), (Some(1), None));
        jobs.number(&mut job, 3);
        assert_eq!(
            (job.attempt.place_of(1), job.attempt.place_of(2), job.attempt.place_of(4)),
            (None, Some(0), Some(2))
        );
        jobs.close(id, job);
        assert_eq!(jobs.len(), 0);
        assert_eq!(jobs.open(JobKind::Watch, Timestamp::ZERO), id);
    }
}
