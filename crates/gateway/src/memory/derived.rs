//! Memory of values that jobs make out of what is there (SETRANGE, APPEND, EXPIRE …): such a
//! command may write far more than it brings.
//!
//! ```text
//!   a command is about to make a value ─┬─ room: counted, until its job is over
//!                                       └─ none: the job waits, in order ─┬─ room: counted ahead, starts again
//!                                                                         └─ too long: its command fails
//! ```
//! Invariants: `total` is the sum of what jobs are counted for; a job is charged for no more than it
//! is counted for; a job that waits is counted for nothing.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use timestone_seda::limits::MEMORY_TIMEOUT;
use timestone_seda::{Memory, MemoryUse, Tally};
use timestone_types::Timestamp;
use timestone_types::limits::MAX_TXN_BYTES;

use crate::jobs::job::JobId;
use crate::limits::CHARGED_MADE_BYTES;

/// What one job makes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Derived {
    /// Bytes of values that this attempt makes beside those that its commands brought.
    bytes: u64,
    /// How many are counted for it, and how many of those in the memory for input.
    counted: u64,
    charged: u64,
    /// It waits, or has waited, for memory for so much, and would rather have so much.
    needs: u64,
    wants: u64,
    /// Since when it waits for memory, or has waited the last time, and for how long it has waited
    /// before.
    waits_since: Option<Timestamp>,
    waited: Duration,
}

impl Derived {
    /// Another attempt begins: nothing is made yet. What is counted ahead stays.
    pub(crate) const fn begin(&mut self) {
        assert!(self.charged <= self.counted, "what is charged is counted");
        self.bytes = 0;
    }

    /// Whether nothing is counted for the job.
    pub(crate) const fn is_uncounted(&self) -> bool {
        self.counted == 0 && self.charged == 0
    }

    /// For how long the job has waited for memory.
    pub(crate) const fn waited(&self) -> Duration {
        self.waited
    }

    /// Planted: what the job has waited, which does not count as time for which it was tried.
    pub(crate) fn forget_wait(&mut self) -> Duration {
        assert!(timestone_types::is_planted!(EndlessWaits), "what has waited has waited");
        self.waits_since = None;
        core::mem::replace(&mut self.waited, Duration::ZERO)
    }

    /// How long the job has waited in all, at `now`.
    fn waited_at(&self, now: Timestamp) -> Duration {
        self.waited + self.waits_since.map_or(MEMORY_TIMEOUT, |since| now.since(since))
    }
}

/// What becomes of the first job that waits for memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resumed {
    /// There is room, and it is counted ahead: the job starts again.
    Starts,
    /// It has waited for too long.
    GivesUp,
}

/// What all jobs make, until it is committed.
#[derive(Debug)]
pub(crate) struct DerivedValues {
    memory: Arc<Memory>,
    /// All of it, and what of it counts as input.
    total: u64,
    charged: Tally,
    /// Jobs that wait for memory for what they make, in their order.
    waiting: VecDeque<JobId>,
}

impl DerivedValues {
    pub(crate) fn new(memory: &Arc<Memory>) -> Self {
        Self {
            memory: Arc::clone(memory),
            total: 0,
            charged: Tally::new(memory, MemoryUse::Input),
            waiting: VecDeque::new(),
        }
    }

    /// Whether jobs wait for memory.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The first job that waits for memory.
    pub(crate) fn first_waiting(&self) -> Option<JobId> {
        self.waiting.front().copied()
    }

    /// Counts the bytes that a job is about to make; whether there is memory for them. Nothing of
    /// them is made before.
    pub(crate) fn charge(&mut self, job: &mut Derived, queued: u64, more: usize) -> bool {
        if timestone_types::is_planted!(UncountedMaking) {
            return true;
        }
        debug_assert!(job.charged <= job.counted && job.counted <= self.total);
        if more == 0 {
            return true;
        }
        // Values that are made again and again for one key are written once: a transaction writes
        // no more than that.
        job.bytes = (job.bytes + more as u64).min(MAX_TXN_BYTES as u64);
        if job.bytes < CHARGED_MADE_BYTES || job.bytes <= job.counted {
            return true;
        }
        // Those that wait come first, however little this one asks for.
        let has_room =
            (job.counted > 0 || self.waiting.is_empty()) && self.has_room(job, queued, job.bytes);
        if has_room {
            self.count(job, job.bytes);
        } else {
            self.memory.note_refused(MemoryUse::Input);
        }
        has_room
    }

    /// Whether so much may be counted for a job, `queued` of which MULTI had queued. Whatever its
    /// size, what the only job makes that makes anything here has room: it may wait for what it
    /// takes itself, as the command that it came with, and others may hold what they have for as
    /// long as they like.
    fn has_room(&self, job: &Derived, queued: u64, bytes: u64) -> bool {
        if timestone_types::is_planted!(GreedyMakers) {
            let used = self.memory.used(MemoryUse::Input);
            return job.counted == 0 && used <= queued || bytes - job.counted <= self.room();
        }
        if timestone_types::is_planted!(RestartedMakers) && job.counted > 0 {
            return bytes - job.counted <= self.room();
        }
        self.total == job.counted || bytes - job.counted <= self.room()
    }

    /// What is left for jobs to make. They have half of the memory for input, so that what is
    /// received always finds the other half.
    fn room(&self) -> u64 {
        let limit = self.memory.limit(MemoryUse::Input);
        if timestone_types::is_planted!(GreedyMakers) {
            return limit.saturating_sub(self.memory.used(MemoryUse::Input));
        }
        (limit / 2).saturating_sub(self.memory.used(MemoryUse::Input))
    }

    /// Counts so much for what a job makes. What has room only because nothing else is made is not
    /// charged: it would keep out what is received, for as long as one such job follows another.
    fn count(&mut self, job: &mut Derived, bytes: u64) {
        assert!(bytes >= job.counted, "{bytes} are fewer than {}", job.counted);
        let more = bytes - job.counted;
        let charged = job.charged + more.min(self.room());
        self.total += more;
        self.charged.change(job.charged, charged);
        (job.counted, job.charged) = (bytes, charged);
    }

    /// What a job makes is made, or will not be.
    pub(crate) fn release(&mut self, job: &mut Derived) {
        assert!(
            self.total >= job.counted && job.counted >= job.charged,
            "what a job makes is counted once"
        );
        self.total -= job.counted;
        self.charged.change(job.charged, 0);
        (job.counted, job.charged) = (0, 0);
    }

    /// There is no memory for what a job makes: it starts again when there is, and is counted for
    /// nothing until then.
    pub(crate) fn wait(&mut self, now: Timestamp, id: JobId, job: &mut Derived) {
        debug_assert!(
            self.waiting.front() != Some(&id) && self.waiting.back() != Some(&id),
            "a job waits once"
        );
        // A transaction of many commands asks for a quarter more than it needed so far: it would
        // begin again at each of them.
        let ahead = if job.counted > 0 { job.bytes / 4 } else { 0 };
        (job.needs, job.wants) = (job.bytes, job.bytes + ahead);
        self.release(job);
        if job.waits_since.replace(now).is_some() {
            self.waiting.push_front(id);
        } else {
            self.waiting.push_back(id);
        }
    }

    /// What becomes of the first job that waits; nothing while there is no room for it. `queued`:
    /// bytes that MULTI had queued for it.
    pub(crate) fn resume(
        &mut self,
        now: Timestamp,
        job: &mut Derived,
        queued: u64,
    ) -> Option<Resumed> {
        assert!(job.is_uncounted(), "a job that waits is counted for nothing");
        let waited = job.waited_at(now);
        if waited >= MEMORY_TIMEOUT {
            self.waiting.pop_front();
            return Some(Resumed::GivesUp);
        }
        if !self.has_room(job, queued, job.needs) {
            return None;
        }
        self.waiting.pop_front();
        job.waited = waited;
        // Of what it would rather have, as much as there is: with less it would begin again
        // although nothing has become free.
        let bytes = job.wants.min(self.room()).max(job.needs);
        self.count(job, bytes);
        Some(Resumed::Starts)
    }
}
