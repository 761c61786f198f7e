//! Reads everything at every replica, in the end: each shard's primary moves on to the next one of
//! its replicas, until each has been primary while everything was read, and has shown the same.
//!
//! ```text
//!   audit ──► every shard's next replica is made its primary ──► all serve ──► audit ─┐
//!                  ▲────────── until each replica has had its turn ───────────────────┘
//! ```
//! What a replica lacks or has too much is seen by whoever reads there. What is deliberately absent:
//! a look into stores from outside.

use timestone_cluster::{ServerId, ShardChange, ShardEntry};
use timestone_types::ShardId;

use crate::world::World;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Of each shard its replicas, in the order in which they serve: as they were when everything
    /// was read first.
    turns: Vec<(ShardId, Vec<ServerId>)>,
    /// How many times everything was read at other replicas.
    round: usize,
}

impl Copies {
    /// Everything was read. Whether it is to be read at other replicas.
    pub(super) fn next_round(&mut self, world: &World) -> bool {
        if self.round == 0 {
            let of_shard = |(entry, _): &(ShardEntry, bool)| (entry.id, in_turn(world, entry));
            self.turns = world.replicated_shards().iter().map(of_shard).collect();
        }
        self.round += 1;
        self.turns.iter().any(|(_, replicas)| self.round < replicas.len())
    }

    /// Makes the replicas whose turn it is primaries. The shards that they do not serve yet.
    pub(super) fn move_on(&self, world: &World) -> Vec<String> {
        let Some(master) = &world.master else { return Vec::new() };
        let mut open = Vec::new();
        for (entry, has_served) in world.replicated_shards() {
            let Some(wanted) = self.turn_of(entry.id) else { continue };
            if entry.primary == wanted && has_served && world.is_served(&entry) {
                continue;
            }
            open.push(format!(
                "server {wanted} does not serve shard {}, which is in epoch {} with server {} as \
                 its primary",
                entry.id, entry.epoch, entry.primary
            ));
            if entry.primary != wanted && has_served {
                // A change that comes too late is made at the next look.
                master.change(ShardChange {
                    shard: entry.id,
                    expected: entry.epoch,
                    primary: wanted,
                    replicas: entry.replicas,
                });
            }
        }
        open
    }

    /// Whose turn it is. A shard with fewer replicas begins again with the first.
    fn turn_of(&self, shard: ShardId) -> Option<ServerId> {
        let (_, replicas) = self.turns.iter().find(|(id, _)| *id == shard)?;
        replicas.get(self.round % replicas.len().max(1)).copied()
    }
}

/// A shard's replicas that live, the primary first.
fn in_turn(world: &World, entry: &ShardEntry) -> Vec<ServerId> {
    let is_other =
        |server: &&ServerId| **server != entry.primary && world.process_of(**server).is_some();
    let others = entry.replicas.iter().filter(is_other);
    std::iter::once(&entry.primary).chain(others).copied().collect()
}
