//! What befalls the core of a process by chance: it comes late when it is called, and is taken away
//! for moments.
//!
//! Interruptions (timers, the host, other tenants) are what pulls client and server out of step: one
//! that strikes a writer between two segments lets the reader see the first one alone. They come at
//! random in the CPU time of a process, and lengthen whatever runs; those of devices come when
//! something completes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use timestone_seda::simulated::VirtualTime;

use super::table::ThreadCosts;
use timestone_types::random::{Dice, Seed};

/// The chances of one process, in one of its lives.
#[derive(Debug)]
pub(super) struct CoreChances {
    dice: Mutex<Dice>,
    /// Nanoseconds of CPU time until the next interruption.
    left: AtomicU64,
    /// When the turn under way began.
    begun: AtomicU64,
    /// When a device interrupts next; none is at the end of time.
    next: AtomicU64,
    /// When devices interrupt, and how long each of that takes.
    devices: Mutex<BinaryHeap<Reverse<(u64, u64)>>>,
}

const NEVER: u64 = u64::MAX;

impl CoreChances {
    pub(super) fn new(seed: Seed, thread: &ThreadCosts) -> Self {
        let mut dice = seed.dice();
        let left = AtomicU64::new(gap(&mut dice, thread));
        let (begun, next) = (AtomicU64::new(0), AtomicU64::new(NEVER));
        Self { dice: Mutex::new(dice), left, begun, next, devices: Mutex::default() }
    }

    /// How long a core that has been idle for so long takes to come, this time.
    pub(super) fn wake_latency(&self, thread: &ThreadCosts, idle: Duration) -> f64 {
        thread.latency_at(self.dice.lock().unwrap_or_else(PoisonError::into_inner).fraction(), idle)
    }

    /// A turn begins. What struck the core before it struck somebody else, or nobody.
    pub(super) fn begins(&self, at: VirtualTime) {
        self.begun.store(at.as_nanos(), Ordering::Relaxed);
        if self.next.load(Ordering::Relaxed) < at.as_nanos() {
            self.struck(at.as_nanos());
        }
    }

    /// A device is going to interrupt the core for so many nanoseconds.
    pub(super) fn device_at(&self, at: VirtualTime, nanos: f64) {
        self.devices
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Reverse((at.as_nanos(), nanos as u64)));
        self.next.fetch_min(at.as_nanos(), Ordering::Relaxed);
    }

    /// Takes out what devices interrupt before a moment; how long all of that takes.
    fn struck(&self, before: u64) -> u64 {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let mut took = 0;
        while let Some(Reverse((_, nanos))) = devices.peek().filter(|Reverse((at, _))| *at < before)
        {
            took += nanos;
            devices.pop();
        }
        self.next.store(devices.peek().map_or(NEVER, |Reverse((at, _))| *at), Ordering::Relaxed);
        took
    }

    /// Work of so many nanoseconds so far into a turn, with the interruptions that fall into it.
    pub(super) fn interrupt(
        &self,
        thread: &ThreadCosts,
        elapsed: impl FnOnce() -> Duration,
        nanos: f64,
    ) -> f64 {
        let next = self.next.load(Ordering::Relaxed);
        if next == NEVER {
            return self.by_chance(thread, nanos);
        }
        let until = self.begun.load(Ordering::Relaxed) + elapsed().as_nanos() as u64 + nanos as u64;
        let struck = if next < until { self.struck(until) } else { 0 };
        self.by_chance(thread, nanos) + struck as f64
    }

    fn by_chance(&self, thread: &ThreadCosts, nanos: f64) -> f64 {
        let (left, mut rest) = (self.left.load(Ordering::Relaxed), nanos as u64);
        if rest < left {
            self.left.store(left - rest, Ordering::Relaxed);
            return nanos;
        }
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut left, mut whole) = (left, nanos);
        while rest >= left {
            rest -= left;
            whole += thread.interruption.at(dice.fraction());
            left = gap(&mut dice, thread);
        }
        self.left.store(left - rest, Ordering::Relaxed);
        whole
    }
}

/// CPU time until the next interruption: they know nothing of each other.
fn gap(dice: &mut Dice, thread: &ThreadCosts) -> u64 {
    if thread.interrupted_every <= 0.0 {
        return u64::MAX;
    }
    (-(1.0 - dice.fraction()).ln() * thread.interrupted_every) as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::super::table::Varying;
    use super::*;

    #[test]
    fn interruptions_come_as_often_and_last_as_long_as_measured() {
        let interruption = Varying::of((0..1000).map(f64::from).collect());
        let thread =
            ThreadCosts { interrupted_every: 10_000.0, interruption, ..ThreadCosts::default() };
        let core = CoreChances::new(Seed(1), &thread);
        let whole: f64 =
            (0..100_000).map(|_| core.interrupt(&thread, || Duration::ZERO, 100.0)).sum();
        let added = whole - 1e7;
        assert!(
            (450_000.0..550_000.0).contains(&added),
            "{added} ns in some 1000 interruptions of 500 ns"
        );
        let calm = ThreadCosts::default();
        let core = CoreChances::new(Seed(1), &calm);
        assert_eq!(core.interrupt(&calm, || Duration::ZERO, 1e9).to_bits(), 1e9_f64.to_bits());
    }

    #[test]
    fn devices_interrupt_what_runs_when_they_are_done() {
        let (calm, at) = (ThreadCosts::default(), VirtualTime::from_nanos);
        let core = CoreChances::new(Seed(1), &calm);
        for done in [500, 1_100, 1_900, 3_000] {
            core.device_at(at(done), 70.0);
        }
        core.begins(at(1_000));
        let takes =
            |elapsed, nanos| core.interrupt(&calm, || Duration::from_nanos(elapsed), nanos) as u64;
        assert_eq!([takes(0, 100.0), takes(100, 100.0), takes(270, 1_000.0)], [100, 170, 1_070]);
        core.begins(at(5_000));
        assert_eq!(takes(0, 9_000.0), 9_000, "the last one struck before the turn began");
    }

    #[test]
    fn a_core_that_was_idle_for_longer_takes_longer() {
        let times = |from: u32| Varying::of((from..from + 1000).map(f64::from).collect());
        let thread = ThreadCosts {
            wake_latency: times(50_000),
            wake_latency_soon: times(20_000),
            wake_latency_at_once: times(7_000),
            ..ThreadCosts::default()
        };
        let at = |micros| thread.latency_at(0.5, Duration::from_micros(micros)) - 500.0;
        assert_eq!([0, 11].map(|micros| at(micros).round()), [7e3, 7e3]);
        assert_eq!(
            [12, 50, 125, 200, 900].map(|micros| at(micros).round()),
            [20e3, 20e3, 35e3, 50e3, 50e3]
        );
    }

    #[test]
    fn times_are_drawn_between_their_quantiles() {
        let time = Varying::of((0..10_000).map(f64::from).collect());
        let near = |fraction: f64, wanted: f64| (time.at(fraction) - wanted).abs() < 1.0;
        assert!(near(0.0, 10.0) && near(0.5, 5000.0) && near(0.7, 6708.2) && near(1.0, 9990.0));
        assert_eq!(Varying::of(Vec::new()).at(0.5).to_bits(), 0);
    }
}
