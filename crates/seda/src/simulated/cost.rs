//! What work costs in virtual time, and the virtual cores that it is done on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::VirtualTime;
use crate::StageId;

/// CPU costs of a process's work. Whatever it does not know costs nothing.
pub trait CostModel<E>: Send {
    /// A turn of a thread: polling, and the loop around the stages.
    fn turn(&self) -> Duration {
        Duration::ZERO
    }

    /// Running a stage in a turn, whatever it finds to do.
    fn stage(&self, _stage: StageId) -> Duration {
        Duration::ZERO
    }

    /// Handling an event.
    fn event(&self, _stage: StageId, _event: &E) -> Duration {
        Duration::ZERO
    }

    /// From a wake-up to the first turn of a thread that slept.
    fn wake(&self) -> Duration {
        Duration::ZERO
    }
}

/// Work that costs nothing but [`super::MIN_TURN`] a turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCost;

impl<E> CostModel<E> for NoCost {}

/// Counts CPU time that is spent behind a stage's back: in sockets, say. Whoever charges is running on the thread that pays.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<AtomicU64>);

impl Meter {
    /// Adds to what the turn under way costs.
    pub fn charge(&self, span: Duration) {
        self.0.fetch_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What was charged since the last call.
    pub(super) fn take(&self) -> Duration {
        Duration::from_nanos(self.0.swap(0, Ordering::Relaxed))
    }
}

/// The cores of one virtual machine, shared by the threads of all its processes.
#[derive(Clone, Debug)]
pub struct Cores {
    free_at: Vec<VirtualTime>,
    busy: Duration,
}

impl Cores {
    /// A machine with this many cores, at least one.
    #[must_use]
    pub fn new(cores: usize) -> Self {
        Self { free_at: vec![VirtualTime::ZERO; cores.max(1)], busy: Duration::ZERO }
    }

    /// When a core is free next.
    #[must_use]
    pub fn free_at(&self) -> VirtualTime {
        self.free_at.iter().copied().min().unwrap_or(VirtualTime::ZERO)
    }

    /// Takes the core that is free next until `end`.
    pub(super) fn occupy(&mut self, begin: VirtualTime, end: VirtualTime) {
        if let Some(core) = self.free_at.iter_mut().min() {
            *core = end;
        }
        self.busy = self.busy.saturating_add(end.since(begin));
    }

    /// CPU time that was spent on all cores together.
    #[must_use]
    pub const fn busy(&self) -> Duration {
        self.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_runs_one_thing_at_a_time() {
        let mut cores = Cores::new(2);
        let at = VirtualTime::from_nanos;
        cores.occupy(at(0), at(100));
        assert_eq!(cores.free_at(), at(0));
        cores.occupy(at(0), at(40));
        assert_eq!(cores.free_at(), at(40));
        cores.occupy(at(40), at(300));
        assert_eq!((cores.free_at(), cores.busy()), (at(100), Duration::from_nanos(400)));
    }
}
