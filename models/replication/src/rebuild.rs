//! Disks that are lost, replicas that give up what they have, and how they come back
//! (docs/protocol/replication.md, lost state).

use crate::model::Small;
use crate::mutation::Mutation;
use crate::record::Record;
use crate::world::{At, Replica, Role, TXNS, World};

impl Small {
    /// A replica loses its disk, or gets an older one back. It knows that, and asks the master for
    /// the newest epoch: whatever it has promised before is no higher.
    pub fn lose(&self, world: &mut World, (shard, replica): At) -> bool {
        let of_shard = &mut world.shards[shard];
        let promised = if self.is(Mutation::ReturnsWithoutAsking) { 0 } else { of_shard.epoch };
        let first = of_shard.first_lost_in[replica].filter(|_| self.is(Mutation::KeepsFirstLoss));
        // Who is not in the configuration of an epoch has acknowledged nothing in it.
        let is_member = self.members(of_shard.epoch) & 1 << replica != 0;
        let last = if is_member { of_shard.epoch } else { of_shard.epoch - 1 };
        let lost_in = Some(first.unwrap_or(last));
        if self.is(Mutation::KeepsFirstLoss) {
            of_shard.first_lost_in[replica] = lost_in;
        }
        of_shard.replicas[replica] = if self.is(Mutation::BelievesOldState) {
            Replica {
                role: Default::default(),
                lease: 0,
                ..Replica::first(replica, self.members[0])
            }
        } else {
            Replica { promised, lost_in, ..Replica::default() }
        };
        world.losses += 1;
        true
    }

    /// A backup lacks what nobody keeps any more, says the primary of its epoch. It gives up what it
    /// has, and remembers what that was.
    pub fn empty(&self, world: &mut World, (shard, replica): At) -> bool {
        let replicas = &world.shards[shard].replicas;
        let promised = replicas[replica].promised;
        let leads = |other: &Replica| {
            other.role == Role::Serving(promised) || other.role == Role::Merged(promised)
        };
        let is_told = replicas.iter().any(leads);
        let one = &mut world.shards[shard].replicas[replica];
        if !is_told || one.lost_in.is_some() || one.is_empty || one.normal == 0 {
            return false;
        }
        (one.store, one.is_empty) = (0, true);
        if self.is(Mutation::ForgetsWhatItGaveUp) {
            (one.table, one.settled, one.normal) = ([Record::Unseen; TXNS], 0, 0);
        }
        world.given_up += 1;
        true
    }

    /// The primary of an epoch gives a replica that has lost or given up its state all that it has
    /// now.
    pub fn rebuild(&self, world: &mut World, (shard, primary): At, replica: usize) -> bool {
        let Some(epoch) = self.serves(world, shard, primary) else { return false };
        let of_shard = &mut world.shards[shard];
        let at = usize::from(epoch) - 1;
        let is_member = self.members(epoch) & 1 << replica != 0;
        if !is_member || of_shard.replicas[replica].promised > epoch {
            return false;
        }
        let from = &of_shard.replicas[primary];
        of_shard.replicas[replica] = Replica {
            promised: epoch,
            normal: epoch,
            table: from.view,
            store: from.store,
            settled: from.settled,
            passed: from.passed,
            granted: from.held.max(from.old_lease),
            ..Replica::default()
        };
        of_shard.installed[at] |= 1 << replica;
        of_shard.acked[replica][at] = of_shard.sent[at];
        for txn in 0..of_shard.marked[at].len() {
            if of_shard.marked[at][txn] != 0 {
                of_shard.marked[at][txn] |= 1 << replica;
            }
        }
        true
    }
}
