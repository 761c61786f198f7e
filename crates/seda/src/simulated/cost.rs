//! What work costs in virtual time, and the virtual cores that it is done on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::VirtualTime;
use crate::StageId;

/// CPU costs of a process's work. Whatever it does not know costs nothing.
///
/// Calls come in the order of the work: a turn begins, and in it stages, each with what it is
/// given. Models that measure instead of knowing time what lies between [`CostModel::begins`] and
/// [`CostModel::ends`].
pub trait CostModel<E>: Send {
    /// A turn of a thread begins on a core: polling, and the loop around the stages.
    fn turn(&mut self, _core: usize) -> Duration {
        Duration::ZERO
    }

    /// Running a stage in a turn, whatever it finds to do.
    fn stage(&mut self, _stage: StageId) -> Duration {
        Duration::ZERO
    }

    /// Handling an event.
    fn event(&mut self, _stage: StageId, _event: &E) -> Duration {
        Duration::ZERO
    }

    /// The stage's own code runs from now on.
    fn begins(&mut self, _stage: StageId) {}

    /// The stage's own code has run.
    fn ends(&mut self, _stage: StageId) {}

    /// What a thread that slept spends until its first turn.
    fn switch(&self) -> Duration {
        Duration::ZERO
    }

    /// How long a core that has had nothing to do for so long takes to get there this time: nobody
    /// spends CPU time meanwhile.
    fn wake_latency(&mut self, _idle: Duration) -> Duration {
        Duration::ZERO
    }

    /// What a thread spends to wake another one that sleeps; `idle`: a core that has had nothing to
    /// do for so long is called for it.
    fn wake_call(&self, _idle: Option<Duration>) -> Duration {
        Duration::ZERO
    }
}

/// Work that costs nothing but [`super::MIN_TURN`] a turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCost;

impl<E> CostModel<E> for NoCost {}

/// Counts CPU time that is spent behind a stage's back: in sockets, say. Whoever charges is running
/// on the thread that pays.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    charged: Arc<AtomicU64>,
    /// What the turn under way has cost so far, besides.
    spent: Arc<AtomicU64>,
}

impl Meter {
    /// Adds to what the turn under way costs.
    pub fn charge(&self, span: Duration) {
        self.charged
            .fetch_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How far the turn under way is: what it has cost until now.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(
            self.charged.load(Ordering::Relaxed) + self.spent.load(Ordering::Relaxed),
        )
    }

    /// The stages of the turn under way have cost so much until now.
    pub(super) fn spent(&self, span: Duration) {
        self.spent.store(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What was charged since the last call.
    pub(super) fn take(&self) -> Duration {
        self.spent.store(0, Ordering::Relaxed);
        Duration::from_nanos(self.charged.swap(0, Ordering::Relaxed))
    }
}

/// From the end of a thread's turn until its core has nothing to do, if it sleeps then.
const SETTLING: Duration = Duration::from_micros(3);

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

    /// When a core is free next: in the past, since then.
    #[must_use]
    pub fn free_at(&self) -> VirtualTime {
        self.free_at.iter().copied().min().unwrap_or(VirtualTime::ZERO)
    }

    /// When this core is free; one that does not exist never is busy.
    pub(super) fn core_free_at(&self, core: usize) -> VirtualTime {
        self.free_at.get(core).copied().unwrap_or(VirtualTime::ZERO)
    }

    /// Where a thread runs that is woken: where it ran last, if nobody else does, or on a core that
    /// has nothing to do. Otherwise it waits where it ran last: operating systems do not move what
    /// has run a moment ago. Whoever has just woken it is still busy for a moment.
    pub(super) fn choose(&self, last: usize, now: VirtualTime) -> usize {
        let first = |within: Duration| {
            let is_free = |core: usize| self.core_free_at(core).after(within) <= now;
            if is_free(last) {
                Some(last)
            } else {
                (0..self.free_at.len()).find(|&core| is_free(core))
            }
        };
        first(SETTLING).or_else(|| first(Duration::ZERO)).unwrap_or(last)
    }

    /// When a core besides the one that is free first has nothing to do; `None`: there is but one.
    #[must_use]
    pub fn idle_besides(&self) -> Option<VirtualTime> {
        let (mut first, mut second) = (None, None);
        for &free_at in &self.free_at {
            if first.is_none_or(|first| free_at < first) {
                second = first.replace(free_at);
            } else if second.is_none_or(|second| free_at < second) {
                second = Some(free_at);
            }
        }
        second
    }

    /// A core that has nothing to do has been called for somebody who runs on it from `until` on:
    /// nobody else is sent there.
    pub(super) fn reserve(&mut self, core: usize, until: VirtualTime) {
        if let Some(free_at) = self.free_at.get_mut(core) {
            *free_at = until.max(*free_at);
        }
    }

    /// Takes a core until `end`.
    pub(super) fn occupy(&mut self, core: usize, begin: VirtualTime, end: VirtualTime) {
        if let Some(free_at) = self.free_at.get_mut(core) {
            *free_at = end;
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
        cores.occupy(0, at(0), at(100));
        assert_eq!((cores.free_at(), cores.choose(0, at(0))), (at(0), 1));
        cores.occupy(1, at(0), at(40));
        assert_eq!((cores.free_at(), cores.choose(0, at(0))), (at(40), 0));
        cores.occupy(1, at(40), at(300));
        assert_eq!((cores.free_at(), cores.busy()), (at(100), Duration::from_nanos(400)));
        assert_eq!((cores.choose(1, at(100)), cores.choose(1, at(300))), (0, 1));
        assert_eq!((cores.idle_besides(), Cores::new(1).idle_besides()), (Some(at(300)), None));
    }
}
