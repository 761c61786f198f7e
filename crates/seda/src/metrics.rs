//! What stages and threads report of themselves, readable from any thread.
//!
//! Each value has one writing thread, so counting is a plain load and store; clocks are read in one
//! turn of [`crate::limits::SAMPLE_EVERY`] only.

use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};

/// Counts in a value that only the calling thread writes.
#[inline]
pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// The live counters of one stage.
#[derive(Debug, Default)]
pub struct StageMetrics {
    pub(crate) events: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) turns: AtomicU64,
    pub(crate) queue_length: AtomicU64,
    pub(crate) queue_length_max: AtomicU64,
    /// Written by several threads.
    pub(crate) refused: AtomicU64,
    pub(crate) service_nanos: AtomicU64,
    pub(crate) service_events: AtomicU64,
    pub(crate) service_samples: AtomicU64,
    pub(crate) wait_nanos: AtomicU64,
    pub(crate) wait_samples: AtomicU64,
}

/// What one stage has done so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageSnapshot {
    /// Its name.
    pub name: String,
    /// The thread it runs on.
    pub thread: usize,
    /// Events handled.
    pub events_total: u64,
    /// Batches they came in; `events_total / batches_total` is the mean batch size.
    pub batches_total: u64,
    /// Turns it was given.
    pub turns_total: u64,
    /// Events waiting at the end of its last turn.
    pub queue_length: u64,
    /// The most that were ever waiting when a batch began.
    pub queue_length_max: u64,
    /// Events refused because the queue was full.
    pub refused_total: u64,
    /// Time spent in the stage during timed turns.
    pub service_sampled: Duration,
    /// Events handled in timed turns.
    pub service_events_sampled: u64,
    /// Timed turns.
    pub service_samples: u64,
    /// Time that the first event of timed batches waited in the queue.
    pub wait_sampled: Duration,
    /// Timed batches.
    pub wait_samples: u64,
    /// Requests admitted and not released; zero where no limit is set.
    pub admitted_requests: u64,
    /// Bytes admitted and not released; zero where no limit is set.
    pub admitted_bytes: u64,
}

impl StageSnapshot {
    /// Mean time per event, from timed turns.
    #[must_use]
    pub fn service_per_event(&self) -> Duration {
        mean(self.service_sampled, self.service_events_sampled)
    }

    /// Mean wait in the queue, from timed batches.
    #[must_use]
    pub fn wait_mean(&self) -> Duration {
        mean(self.wait_sampled, self.wait_samples)
    }
}

fn mean(sum: Duration, count: u64) -> Duration {
    Duration::from_nanos((sum.as_nanos() as u64).checked_div(count).unwrap_or(0))
}

impl StageMetrics {
    /// Counts a run of the stage that took `queued` events, left `left` of them, and cost `span`.
    pub(crate) fn ran(&self, queued: u64, left: u64, span: Duration) {
        bump(&self.turns, 1);
        bump(&self.service_nanos, span.as_nanos() as u64);
        bump(&self.service_samples, 1);
        if queued > 0 {
            bump(&self.events, queued.saturating_sub(left));
            bump(&self.service_events, queued.saturating_sub(left));
            bump(&self.batches, 1);
            self.queue_length_max.fetch_max(queued, Ordering::Relaxed);
        }
    }

    pub(crate) fn queue_length_is(&self, length: u64) {
        self.queue_length.store(length, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(
        &self,
        name: &str,
        thread: usize,
        gauge: &crate::Gauge,
    ) -> StageSnapshot {
        let get = |value: &AtomicU64| value.load(Ordering::Relaxed);
        StageSnapshot {
            name: name.to_owned(),
            thread,
            events_total: get(&self.events),
            batches_total: get(&self.batches),
            turns_total: get(&self.turns),
            queue_length: get(&self.queue_length),
            queue_length_max: get(&self.queue_length_max),
            refused_total: get(&self.refused),
            service_sampled: Duration::from_nanos(get(&self.service_nanos)),
            service_events_sampled: get(&self.service_events),
            service_samples: get(&self.service_samples),
            wait_sampled: Duration::from_nanos(get(&self.wait_nanos)),
            wait_samples: get(&self.wait_samples),
            admitted_requests: gauge.requests(),
            admitted_bytes: gauge.bytes(),
        }
    }
}

/// The live counters of one thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadMetrics {
    pub(crate) turns: AtomicU64,
    pub(crate) sleeps: AtomicU64,
    pub(crate) spins: AtomicU64,
    pub(crate) spins_paid: AtomicU64,
    pub(crate) wakes_sent: AtomicU64,
    pub(crate) buffers_allocated: AtomicU64,
}

/// What one thread has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadSnapshot {
    /// Turns.
    pub turns_total: u64,
    /// Times that it went to sleep.
    pub sleeps_total: u64,
    /// Times that it spun before it would have slept.
    pub spins_total: u64,
    /// Times that work came while it spun.
    pub spins_paid_total: u64,
    /// Other threads that it woke.
    pub wakes_sent_total: u64,
    /// Batches of frames that its pool had to allocate.
    pub buffers_allocated_total: u64,
}

impl ThreadMetrics {
    pub(crate) fn snapshot(&self) -> ThreadSnapshot {
        let get = |value: &AtomicU64| value.load(Ordering::Relaxed);
        ThreadSnapshot {
            turns_total: get(&self.turns),
            sleeps_total: get(&self.sleeps),
            spins_total: get(&self.spins),
            spins_paid_total: get(&self.spins_paid),
            wakes_sent_total: get(&self.wakes_sent),
            buffers_allocated_total: get(&self.buffers_allocated),
        }
    }
}

/// All of a runtime at one moment (each value by itself; they are not read in one instant).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeSnapshot {
    /// By stage id.
    pub stages: Vec<StageSnapshot>,
    /// By thread.
    pub threads: Vec<ThreadSnapshot>,
}
