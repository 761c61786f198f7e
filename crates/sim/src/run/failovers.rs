//! Watches who serves which shard where shards have several replicas: how often another server
//! becomes primary, and that none is without one for longer than the scenario allows.
//!
//! ```text
//!   served ── its primary is gone ──► unserved ── enough servers are well all the time ──► for too long: a finding
//!     ▲                                  │  └── too few of them, or no master: nothing is demanded until they are back
//!     └───────── another one serves ─────┘
//! ```
//! What it does not do: judge what the shards answer; that is the checkers'.

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_cluster::{ServerId, ShardEntry};
use timestone_seda::simulated::VirtualTime;
use timestone_types::ShardId;

use crate::check::Finding;
use crate::fault::Injector;
use crate::scenario::DemandsPart;
use crate::world::World;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Failovers {
    /// How often another server became primary of a shard.
    pub(super) count: u64,
    /// As often it is wanted.
    wanted: u64,
    /// For so long a shard may be without a primary.
    within: Option<Duration>,
    primaries: BTreeMap<ShardId, ServerId>,
    /// Since when nobody serves a shard although somebody could.
    unserved: BTreeMap<ShardId, VirtualTime>,
}

impl Failovers {
    pub(super) fn new(demands: &DemandsPart) -> Self {
        let within = demands.failover_within.map(Duration::from);
        Self { wanted: demands.failovers, within, ..Self::default() }
    }

    /// Looks at all shards. Finds one that has been without a primary for too long.
    pub(super) fn look(&mut self, world: &World, injector: &Injector) -> Option<Finding> {
        let shards = world.replicated_shards();
        for (entry, _) in &shards {
            let before = self.primaries.insert(entry.id, entry.primary);
            self.count += u64::from(before.is_some_and(|before| before != entry.primary));
        }
        let within = self.within?;
        if !injector.leaves_enough(world) {
            self.unserved.clear();
            return None;
        }
        let now = world.now();
        for (entry, has_served) in &shards {
            let is_served = *has_served && Self::has_primary(world, injector, entry);
            if is_served {
                self.unserved.remove(&entry.id);
                continue;
            }
            let since = *self.unserved.entry(entry.id).or_insert(now);
            if now.since(since) > within {
                let words = format!(
                    "nobody has served shard {} for {:?}, although there are servers enough; server \
                     {} is to be its primary in epoch {}",
                    entry.id,
                    now.since(since),
                    entry.primary,
                    entry.epoch
                );
                return Some(Finding::new("failover", words));
            }
        }
        None
    }

    /// Whether a shard's primary serves those who can reach it, and most can.
    fn has_primary(world: &World, injector: &Injector, entry: &ShardEntry) -> bool {
        let process = world.process_of(entry.primary);
        process.is_some_and(|process| injector.is_reached(world, process.id))
            && world.is_served(entry)
    }

    /// Finds that too few servers took another one's place for the run to mean anything.
    pub(super) fn too_few(&self) -> Option<Finding> {
        let (count, wanted) = (self.count, self.wanted);
        (count < wanted).then(|| {
            let words = format!(
                "servers became primary in place of others {count} times, and {wanted} times are \
                 wanted"
            );
            Finding::new("demands", words)
        })
    }
}
