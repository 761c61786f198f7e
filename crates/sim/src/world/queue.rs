//! The queue of everything that is going to happen in a world.
//!
//! Invariant: what happens at one moment comes in the order in which it was planned, turns last.

use std::collections::BinaryHeap;

use timestone_seda::simulated::VirtualTime;

use crate::network::{Packet, ProcessId};

/// What is going to happen.
#[derive(Debug)]
pub(super) enum Occurrence {
    Packet(Packet),
    Turn(ProcessId),
    Device(ProcessId, u64, usize),
    Start(ProcessId),
    Resume(ProcessId),
    /// Nobody waits longer until a server of this life has handed its primaries over.
    HandedOver(ProcessId, u64),
    /// The owner of the world wants to look.
    Look(u64),
}

#[derive(Debug)]
pub(super) struct Planned {
    pub(super) at: VirtualTime,
    /// Turns come in the order of their threads' places among those that want a core, after
    /// everything else of the moment.
    since: VirtualTime,
    number: u64,
    pub(super) what: Occurrence,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // The heap gives the greatest: the earliest is that.
        (other.at, other.since, other.number).cmp(&(self.at, self.since, self.number))
    }
}

#[derive(Debug, Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Planned>,
    planned: u64,
}

impl EventQueue {
    pub(super) fn plan(&mut self, at: VirtualTime, what: Occurrence) {
        self.plan_since(at, VirtualTime::ZERO, what);
    }

    pub(super) fn plan_since(&mut self, at: VirtualTime, since: VirtualTime, what: Occurrence) {
        self.planned += 1;
        self.heap.push(Planned { at, since, number: self.planned, what });
    }

    /// Takes what happens next.
    pub(super) fn next(&mut self) -> Option<Planned> {
        self.heap.pop()
    }
}
