//! Snapshots that read at backups (docs/protocol/replication.md, closed timestamps).

use crate::model::Small;
use crate::mutation::Mutation;
use crate::world::{At, BOUNDS, World};

impl Small {
    /// A primary closes the snapshot's timestamp: nothing will commit at or below it any more.
    pub fn close(&self, world: &mut World, (shard, primary): At) -> bool {
        let Some(epoch) = self.serves(world, shard, primary) else { return false };
        let Some(at) = self.snapshot else { return false };
        let of_shard = &mut world.shards[shard];
        let one = &mut of_shard.replicas[primary];
        let is_prepared = self.is_written(&one.view, shard, at);
        let has_lease = at < BOUNDS[usize::from(one.lease)];
        if (is_prepared && !self.is(Mutation::ClosesOverPrepared))
            || (!has_lease && !self.is(Mutation::ClosesAboveLease))
            || !self.is_used(shard)
        {
            return false;
        }
        if !self.is(Mutation::ClosesWithoutMark) {
            one.read_mark = one.read_mark.max(at);
        }
        let closed = &mut of_shard.closed[usize::from(epoch) - 1];
        let is_new = closed.is_none();
        *closed = closed.or(Some(of_shard.sent[usize::from(epoch) - 1]));
        is_new
    }

    /// The snapshot reads at a replica that has all records that its timestamp was closed with.
    pub fn read_at_backup(&self, world: &mut World, (shard, replica): At) -> bool {
        let Some(at) = self.snapshot else { return false };
        let of_shard = &world.shards[shard];
        let one = &of_shard.replicas[replica];
        if one.normal == 0 || world.snapshot[shard].is_some() {
            return false;
        }
        let epoch = usize::from(one.normal) - 1;
        let Some(needed) = of_shard.closed[epoch] else { return false };
        let has_all =
            needed.iter().zip(of_shard.acked[replica][epoch]).all(|(sent, has)| sent & !has == 0);
        if !has_all && !self.is(Mutation::BackupReadsBehind) {
            return false;
        }
        world.snapshot[shard] = Some(self.version(&one.table, one.store, shard, at));
        true
    }
}
