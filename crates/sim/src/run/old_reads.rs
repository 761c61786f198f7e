//! Watches whether snapshots that may be old must be answered, whoever serves: sessions that only read
//! are held to that ([`crate::board::Board::old_reads`]).
//!
//! ```text
//!   enough servers are well, and each shard was served not long ago ──► since when that has been so
//!   otherwise ──► nobody is held to anything
//! ```
//! A shard that has been served for [`CLOSES_WITHIN`] has timestamps closed at its backups.

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_seda::simulated::VirtualTime;
use timestone_types::ShardId;

use crate::fault::{Hardship, Injector};
use crate::scenario::WorkloadPart;
use crate::world::World;

/// A primary that has served for so long has closed timestamps, and backups have them.
const CLOSES_WITHIN: Duration = Duration::from_secs(2);
/// Snapshots may be older by so much when they are answered.
const MARGIN: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OldReads {
    /// How old snapshots may be; `None`: nobody is held to anything.
    most: Option<Duration>,
    /// Since when each shard has been served.
    served: BTreeMap<ShardId, VirtualTime>,
    /// When it had been for long enough, at last.
    closed: BTreeMap<ShardId, VirtualTime>,
    /// Since when they must be answered.
    pub(super) since: Option<VirtualTime>,
}

impl OldReads {
    pub(super) fn new(part: &WorkloadPart) -> Self {
        let most = part.mix.max_staleness.filter(|_| part.demands.old_reads_within.is_some());
        Self { most: most.map(Duration::from), ..Self::default() }
    }

    /// Looks at all shards.
    pub(super) fn look(&mut self, world: &World, injector: &Injector) {
        let Some(most) = self.most else { return };
        let now = world.now();
        let shards = world.replicated_shards();
        for (entry, has_served) in &shards {
            let process = world.process_of(entry.primary);
            let is_well = process
                .is_some_and(|process| injector.condition(world, process.id) == Hardship::Well);
            if !(*has_served && is_well && world.is_served(entry)) {
                self.served.remove(&entry.id);
                continue;
            }
            let since = *self.served.entry(entry.id).or_insert(now);
            if now.since(since) >= CLOSES_WITHIN {
                self.closed.insert(entry.id, now);
            }
        }
        let is_closed = |closed: &VirtualTime| now.since(*closed) + MARGIN < most;
        let are_closed =
            shards.iter().all(|(entry, _)| self.closed.get(&entry.id).is_some_and(is_closed));
        let must_be_answered = are_closed && injector.leaves_enough(world);
        self.since = must_be_answered.then(|| self.since.unwrap_or(now));
    }
}
