//! Epochs, leases, and how a replica becomes primary (docs/protocol/replication.md).
//!
//! Some of what takes several messages is one step here, because the states between differ from
//! others only by what does not happen in them: the answers to a new primary are taken when the
//! last one is counted (a replica that answered earlier does nothing meanwhile); a grant arrives at
//! once (one that is lost only raises a floor); a new primary serves as soon as it may.

use crate::model::Small;
use crate::mutation::Mutation;
use crate::record::Record;
use crate::world::{BOUNDS, F, REPLICAS, Replica, Role, TXNS, World};

impl Replica {
    /// What it keeps in memory is gone, or void.
    fn forget_role(&mut self) {
        self.role = Role::Idle;
        self.view = [Record::Unseen; TXNS];
        self.read_mark = 0;
        self.lease = 0;
        self.old_lease = 0;
    }
}

impl Small {
    /// A replica's process starts anew. While it is away it does nothing, as whoever is slow.
    pub fn restart(&self, world: &mut World, shard: usize, replica: usize) -> bool {
        let one = &mut world.shards[shard].replicas[replica];
        one.forget_role();
        if self.is(Mutation::GrantIsVolatile) {
            one.granted = 0;
        }
        world.restarts += 1;
        true
    }

    /// The master names a new primary, which collects the promises and answers of itself and
    /// another replica, and merges them (steps 1 to 4).
    pub fn take_over(
        &self,
        world: &mut World,
        shard: usize,
        (primary, with): (usize, usize),
    ) -> bool {
        let of_shard = &mut world.shards[shard];
        let is_reissued = self.is(Mutation::ReissuesEpoch) && of_shard.epoch == 2;
        if is_reissued && usize::from(of_shard.primary) == primary {
            return false;
        }
        let epoch = if is_reissued { 2 } else { of_shard.epoch + 1 };
        of_shard.epoch = epoch;
        of_shard.primary = primary as u8;
        for replica in [primary, with] {
            let one = &mut of_shard.replicas[replica];
            one.promised = epoch;
            one.forget_role();
        }
        let answers = [&of_shard.replicas[primary], &of_shard.replicas[with]];
        let newest = answers.iter().map(|answer| answer.normal).max().unwrap_or(0);
        let mut table = [Record::Unseen; TXNS];
        let mut lease = 0;
        for answer in answers {
            if answer.normal == newest || self.is(Mutation::MergesOldTables) {
                for (kept, has) in table.iter_mut().zip(answer.table) {
                    *kept = kept.with(has);
                }
            }
            if answer.normal == newest || !self.is(Mutation::IgnoresLeases) {
                lease = lease.max(answer.granted).max(answer.held);
            }
        }
        self.resolve(world, shard, &mut table);
        let of_shard = &mut world.shards[shard];
        of_shard.merged[usize::from(epoch) - 1] = Some((table, lease));
        of_shard.replicas[primary].role = Role::Merged(epoch);
        let is_late = self.is(Mutation::ServesWithoutOwnCopy) || self.is(Mutation::DecidesInMerge);
        if !is_late {
            self.install(world, shard, primary);
        }
        true
    }

    /// Step 2: what the merged records say.
    fn resolve(&self, world: &mut World, shard: usize, table: &mut [Record; TXNS]) {
        for txn in 0..TXNS {
            table[txn] = match table[txn] {
                Record::Prepared(attempt) | Record::Frozen(attempt)
                    if self.specs[txn].is_single() =>
                {
                    Record::Committed(attempt)
                }
                Record::Prepared(_) | Record::Frozen(_) if self.is(Mutation::DropsPrepared) => {
                    Record::Unseen
                }
                Record::Frozen(attempt) if self.is(Mutation::ForgetsFreeze) => {
                    Record::Prepared(attempt)
                }
                Record::Aborted if self.is(Mutation::ForgetsOutcomes) => Record::Unseen,
                record => record,
            };
            if self.is(Mutation::DecidesInMerge)
                && let Some(attempt) = table[txn].promised()
            {
                let is_prepared = |other: usize| {
                    let has = |replica: &Replica| replica.view[txn].promised() == Some(attempt);
                    other == shard || world.shards[other].replicas.iter().any(has)
                };
                if self.specs[txn].participants().all(is_prepared) {
                    world.txns[txn].told.commits |= 1 << attempt;
                }
            }
        }
        if self.is(Mutation::KeepsOneOfTwo) {
            self.keep_one(shard, table);
        }
    }

    /// Of several that hold one key, all but the first are dropped.
    fn keep_one(&self, shard: usize, table: &mut [Record; TXNS]) {
        let mut is_held = false;
        for txn in 0..TXNS {
            if table[txn].promised().is_some() && self.specs[txn].uses(shard) {
                if is_held {
                    table[txn] = Record::Unseen;
                }
                is_held = true;
            }
        }
    }

    /// Step 5, at each replica: it has the epoch's table durably. With itself and F backups the new
    /// primary serves.
    pub fn install(&self, world: &mut World, shard: usize, replica: usize) -> bool {
        let of_shard = &mut world.shards[shard];
        let (epoch, primary) = (of_shard.epoch, usize::from(of_shard.primary));
        let Some((table, lease)) = of_shard.merged[usize::from(epoch) - 1] else { return false };
        let one = &mut of_shard.replicas[replica];
        if one.normal >= epoch || one.promised > epoch {
            return false;
        }
        if one.promised < epoch {
            one.promised = epoch;
            one.forget_role();
        }
        one.table = table;
        one.normal = epoch;
        one.granted = one.granted.max(lease);
        of_shard.installed[usize::from(epoch) - 1] |= 1 << replica;
        let installed = of_shard.installed[usize::from(epoch) - 1];
        let others = (0..REPLICAS).filter(|&at| at != primary && installed & 1 << at != 0).count();
        let has_own = installed & 1 << primary != 0 || self.is(Mutation::ServesWithoutOwnCopy);
        let one = &mut of_shard.replicas[primary];
        if one.role == Role::Merged(epoch) && has_own && others >= F {
            one.role = Role::Serving(epoch);
            one.view = table;
            // Everything below the lease may have been read.
            let floor = BOUNDS[usize::from(lease)].saturating_sub(1);
            one.read_mark = if self.is(Mutation::NoFloor) { 0 } else { floor };
            one.old_lease = lease;
        }
        true
    }

    /// A backup grants the primary of the epoch that it is in a lease, and the primary notes it.
    pub fn renew(
        &self,
        world: &mut World,
        shard: usize,
        (primary, replica): (usize, usize),
        lease: u8,
    ) -> bool {
        let Some(epoch) = self.serves(world, shard, primary) else { return false };
        let of_shard = &mut world.shards[shard];
        let backup = &mut of_shard.replicas[replica];
        let is_promised = backup.promised == epoch
            || (backup.promised > epoch && self.is(Mutation::AcceptsOldEpoch));
        if !is_promised {
            return false;
        }
        backup.granted = backup.granted.max(lease);
        let one = &mut of_shard.replicas[primary];
        one.lease = one.lease.max(lease);
        one.held = one.held.max(lease);
        true
    }
}

const _: () = assert!(F == 1, "one grant, and one answer beside the own, are enough");
