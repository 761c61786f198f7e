//! Small worlds whole: every order in which messages arrive or are lost, logs become durable,
//! primaries write, the master makes primaries, and processes die.
//!
//! A state that was seen is not entered again. Messages that are under way are a set without order;
//! one that is never delivered is lost.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use timestone_replication::ReplicaId;
use timestone_types::Epoch;

use crate::world::World;

/// How much may happen in a world.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    servers: u32,
    /// The highest epoch; the first one serves when the exploration begins.
    epochs: u32,
    /// Batches that primaries write, and how many of them renew the lease: the first ones.
    writes: usize,
    leases: usize,
    kills: usize,
}

/// What may happen next.
#[derive(Clone, Copy, Debug)]
enum Action {
    Deliver(usize),
    Sync(ReplicaId),
    Write(ReplicaId),
    Lead(ReplicaId),
    Kill(ReplicaId),
    Start(ReplicaId),
}

/// A world with what is left to happen in it.
#[derive(Clone, Hash)]
struct State {
    world: World,
    writes: usize,
    kills: usize,
}

impl State {
    fn first(bounds: Bounds) -> Self {
        let mut world = World::new(bounds.servers);
        let ids: Vec<_> = world.servers.keys().copied().collect();
        world.lead(ids[0], &ids);
        world.settle();
        Self { world, writes: 0, kills: 0 }
    }

    fn fingerprint(&mut self) -> u64 {
        self.world.flying.sort();
        // The same message twice under way is once delivered and once late: both are explored with
        // one.
        self.world.flying.dedup();
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    fn actions(&self, bounds: Bounds) -> Vec<Action> {
        let world = &self.world;
        let mut actions: Vec<_> = (0..world.flying.len())
            .filter(|&index| world.is_up(world.flying[index].1))
            .map(Action::Deliver)
            .collect();
        for (&id, server) in &world.servers {
            if !world.is_up(id) {
                actions.push(Action::Start(id));
                continue;
            }
            if server.has_unsynced() {
                actions.push(Action::Sync(id));
            }
            if server.serves.is_some() && self.writes < bounds.writes {
                actions.push(Action::Write(id));
            }
            if world.epoch() < Epoch::new(bounds.epochs) {
                actions.push(Action::Lead(id));
            }
            if self.kills < bounds.kills {
                actions.push(Action::Kill(id));
            }
        }
        actions
    }

    fn take(&mut self, action: Action, bounds: Bounds) {
        let world = &mut self.world;
        match action {
            Action::Deliver(index) => world.deliver(index),
            Action::Sync(id) => world.sync(id, usize::MAX / 2),
            Action::Write(id) => {
                self.writes += 1;
                world.write(id, self.writes <= bounds.leases);
            }
            Action::Lead(id) => {
                let ids: Vec<_> = world.servers.keys().copied().collect();
                world.lead(id, &ids);
            }
            Action::Kill(id) => {
                self.kills += 1;
                world.kill(id, 0);
            }
            Action::Start(id) => {
                world.start(id);
                world.follow_map(id);
            }
        }
    }
}

/// Goes through a world, up to so many states; tells how many there were, and whether those were
/// all. A law that does not hold panics.
fn explore(bounds: Bounds, most: usize) -> (usize, bool) {
    let mut first = State::first(bounds);
    let mut seen = BTreeSet::from([first.fingerprint()]);
    let mut stack = vec![first];
    while let Some(state) = stack.pop() {
        for action in state.actions(bounds) {
            let mut next = state.clone();
            next.take(action, bounds);
            if seen.insert(next.fingerprint()) {
                if seen.len() >= most {
                    return (seen.len(), false);
                }
                stack.push(next);
            }
        }
    }
    (seen.len(), true)
}

/// What is explored whole, within seconds.
const WORLDS: [Bounds; 4] = [
    Bounds { servers: 2, epochs: 2, writes: 1, leases: 1, kills: 1 },
    Bounds { servers: 2, epochs: 3, writes: 1, leases: 0, kills: 0 },
    Bounds { servers: 2, epochs: 2, writes: 2, leases: 1, kills: 0 },
    Bounds { servers: 3, epochs: 2, writes: 1, leases: 1, kills: 0 },
];
/// What takes minutes, and gigabytes.
const LARGE_WORLDS: [Bounds; 4] = [
    Bounds { servers: 2, epochs: 3, writes: 2, leases: 1, kills: 1 },
    Bounds { servers: 3, epochs: 2, writes: 2, leases: 0, kills: 0 },
    Bounds { servers: 3, epochs: 2, writes: 1, leases: 1, kills: 1 },
    Bounds { servers: 3, epochs: 3, writes: 1, leases: 0, kills: 0 },
];

#[test]
#[expect(clippy::disallowed_macros, reason = "it says how much of a large world was seen")]
fn small_worlds_hold() {
    for bounds in WORLDS {
        let (states, is_all) = explore(bounds, 1_000_000);
        assert!(is_all, "{bounds:?} has more than {states} states");
    }
    for bounds in LARGE_WORLDS.iter().filter(|_| crate::is_full()) {
        let (states, is_all) = explore(*bounds, 20_000_000);
        eprintln!("{bounds:?}: {states} states, {}", if is_all { "all" } else { "not all" });
    }
}
