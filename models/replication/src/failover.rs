//! Epochs, leases, and how a replica becomes primary (docs/protocol/replication.md).
//!
//! Some of what takes several messages is one step here, because the states between differ from
//! others only by what does not happen in them: the answers to a new primary are taken when the
//! last one is counted (a replica that answered earlier does nothing meanwhile); grants arrive at
//! once (one that is lost only raises a floor); a new primary serves as soon as it may.

use crate::model::Small;
use crate::mutation::Mutation;
use crate::record::Record;
use crate::world::{
    At, BOUNDS, Replica, Replicas, Role, Shard, TXNS, Table, World, committed_versions, each,
};

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
    /// others, and merges them (steps 1 to 4).
    pub fn take_over(&self, world: &mut World, (shard, primary): At, with: Replicas) -> bool {
        let of_shard = &mut world.shards[shard];
        let is_reissued = self.is(Mutation::ReissuesEpoch) && of_shard.epoch == 2;
        if is_reissued && usize::from(of_shard.primary) == primary {
            return false;
        }
        let epoch = if is_reissued { 2 } else { of_shard.epoch + 1 };
        let answering = with | 1 << primary;
        if !self.may_merge(of_shard, primary, answering) {
            return false;
        }
        of_shard.epoch = epoch;
        of_shard.primary = primary as u8;
        for replica in each(answering) {
            let one = &mut of_shard.replicas[replica];
            if one.lost_in.is_some() && self.is(Mutation::AnswersNothingUnpromised) {
                continue;
            }
            one.promised = epoch;
            one.forget_role();
        }
        let mut table = self.merge(of_shard, primary, answering);
        self.resolve(world, shard, &mut table);
        let of_shard = &mut world.shards[shard];
        of_shard.merged[usize::from(epoch) - 1] = Some(table);
        of_shard.replicas[primary].role = Role::Merged(epoch);
        let is_late = self.is(Mutation::ServesWithoutOwnCopy) || self.is(Mutation::DecidesInMerge);
        if !is_late {
            self.install(world, shard, primary);
        }
        true
    }

    /// Whether these answers are enough: f + 1 from each configuration that may have records which
    /// count, and the new primary has the store to them.
    fn may_merge(&self, of_shard: &Shard, primary: usize, answering: Replicas) -> bool {
        let newest = newest_installed(of_shard, answering);
        // Who has lost its state answers that it has nothing. A table of a later epoch has all that
        // it may have acknowledged.
        let counts = |replica: usize| match of_shard.replicas[replica].lost_in {
            Some(_) if self.is(Mutation::SaysNothingOfLoss) => false,
            Some(lost) if self.is(Mutation::CountsLossInBase) => lost <= newest,
            Some(lost) => lost < newest || self.is(Mutation::AnswersWithoutState),
            None => true,
        };
        if !each(answering).all(counts) {
            return false;
        }
        let promised = each(answering).map(|replica| of_shard.replicas[replica].promised).max();
        let last =
            if self.is(Mutation::AsksOneConfiguration) { newest } else { promised.unwrap_or(0) };
        let is_enough = |epoch| (answering & self.members(epoch)).count_ones() as usize > self.f;
        let has_store = self.members(newest) & 1 << primary != 0
            || self.is(Mutation::InstallsWithoutCheckpoint);
        let has_all = self.has_what_was_given_up(of_shard, answering, newest);
        let own = &of_shard.replicas[primary];
        let has_state = own.lost_in.is_none() || self.is(Mutation::AnswersWithoutState);
        let is_here = !own.is_empty && has_state;
        is_here
            && has_all
            && has_store
            && (self.is(Mutation::AsksAnybody) || (newest..=last).all(is_enough))
    }

    /// Whether the others that answer have all that those had of the newest table which have given it
    /// up: they know what it was, and cannot hand it out.
    fn has_what_was_given_up(&self, of_shard: &Shard, answering: Replicas, newest: u8) -> bool {
        let (mut had, mut has) = (Table::default(), Table::default());
        for answer in each(answering).map(|replica| &of_shard.replicas[replica]) {
            if answer.normal == newest {
                let sum = if answer.is_empty { &mut had } else { &mut has };
                for (kept, record) in sum.records.iter_mut().zip(answer.table) {
                    *kept = kept.with(record);
                }
                sum.settled |= answer.settled;
                sum.base = newest;
            }
        }
        let has_all = |txn: usize| {
            let (was, is) = (had.records[txn], has.records[txn]);
            let was_settled = had.settled & 1 << txn != 0;
            has.settled & 1 << txn != 0 || (was.with(is) == is && (!was_settled || is.is_outcome()))
        };
        (has.base == newest && (0..TXNS).all(has_all)) || self.is(Mutation::IgnoresWhatWasGivenUp)
    }

    /// Steps 2 and 4: what the answers say together.
    fn merge(&self, of_shard: &Shard, primary: usize, answering: Replicas) -> Table {
        let newest = newest_installed(of_shard, answering);
        let mut table = Table { base: newest, ..Table::default() };
        for answer in each(answering).map(|replica| &of_shard.replicas[replica]) {
            let has_records =
                !answer.is_empty && (answer.normal == newest || self.is(Mutation::MergesOldTables));
            if has_records {
                for (kept, has) in table.records.iter_mut().zip(answer.table) {
                    *kept = kept.with(has);
                }
                table.settled |= answer.settled;
            }
            if answer.normal == newest || !self.is(Mutation::IgnoresLeases) {
                table.lease = table.lease.max(answer.granted).max(answer.held);
            }
            if !self.is(Mutation::ForgetsWatermark) {
                table.passed |= answer.passed;
            }
        }
        if self.is(Mutation::DropsStablePrepared) {
            self.drop_stable(of_shard, &mut table);
        }
        for txn in 0..TXNS {
            if table.records[txn] != Record::Unseen {
                table.settled &= !(1 << txn);
            }
        }
        let own = &of_shard.replicas[primary];
        table.store = own.store | committed_versions(&own.table, table.settled);
        table
    }

    /// Promises that every replica has are dropped.
    fn drop_stable(&self, of_shard: &Shard, table: &mut Table) {
        let at = usize::from(table.base) - 1;
        for (txn, record) in table.records.iter_mut().enumerate() {
            let has = |replica: usize| of_shard.acked[replica][at][txn] & record.bit() != 0;
            if record.promised().is_some() && each(self.members(table.base)).all(has) {
                *record = Record::Unseen;
            }
        }
    }

    /// Step 2: what the merged records say.
    fn resolve(&self, world: &mut World, shard: usize, table: &mut Table) {
        let records = &mut table.records;
        for txn in 0..TXNS {
            records[txn] = match records[txn] {
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
                && let Some(attempt) = records[txn].promised()
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
            self.keep_one(shard, records);
        }
    }

    /// Of several that hold one key, all but the first are dropped.
    fn keep_one(&self, shard: usize, records: &mut [Record; TXNS]) {
        let mut is_held = false;
        for txn in 0..TXNS {
            if records[txn].promised().is_some() && self.specs[txn].uses(shard) {
                if is_held {
                    records[txn] = Record::Unseen;
                }
                is_held = true;
            }
        }
    }

    /// Step 5, at each replica: it has the epoch's table durably. With itself and f backups the new
    /// primary serves.
    pub fn install(&self, world: &mut World, shard: usize, replica: usize) -> bool {
        let of_shard = &mut world.shards[shard];
        let (epoch, primary) = (of_shard.epoch, usize::from(of_shard.primary));
        let Some(table) = of_shard.merged[usize::from(epoch) - 1] else { return false };
        let one = &mut of_shard.replicas[replica];
        let is_member = self.members(epoch) & 1 << replica != 0;
        if one.normal >= epoch || one.promised > epoch || !is_member {
            return false;
        }
        // What it has acknowledged in this epoch may be more than the table.
        let has_lost = one
            .lost_in
            .is_some_and(|lost| lost == epoch || self.is(Mutation::ReturnsWithoutAsking));
        if has_lost && !self.is(Mutation::RebuildsFromTable) {
            return false;
        }
        if one.promised < epoch {
            one.promised = epoch;
            one.forget_role();
        }
        self.put_table(one, replica, &table);
        one.normal = epoch;
        of_shard.installed[usize::from(epoch) - 1] |= 1 << replica;
        let installed = of_shard.installed[usize::from(epoch) - 1];
        let own = if self.is(Mutation::ServesWithoutOwnCopy) { 1 << primary } else { 0 };
        let is_enough = self.is_enough(epoch, primary, installed | own);
        let one = &mut of_shard.replicas[primary];
        if one.role == Role::Merged(epoch) && is_enough {
            one.role = Role::Serving(epoch);
            one.view = table.records;
            // Everything below the lease may have been read.
            let floor = BOUNDS[usize::from(table.lease)].saturating_sub(1);
            one.read_mark = if self.is(Mutation::NoFloor) { 0 } else { floor };
            one.old_lease = table.lease;
        }
        true
    }

    /// A replica takes an epoch's table in place of the records that it has.
    fn put_table(&self, one: &mut Replica, replica: usize, table: &Table) {
        // What the table leaves out as stable is in the store of whoever was there.
        let was_there =
            one.lost_in.is_none() && !one.is_empty && self.members(table.base) & 1 << replica != 0;
        if !was_there && !self.is(Mutation::InstallsWithoutCheckpoint) {
            one.store = table.store;
        } else if !self.is(Mutation::DropsWhatIsLeftOut) {
            one.store |= committed_versions(&one.table, table.settled);
        }
        if self.is(Mutation::PutsBeforeItCounts) {
            one.store |= committed_versions(&table.records, !0);
        }
        one.table = table.records;
        one.settled = table.settled;
        one.passed |= table.passed;
        one.granted = one.granted.max(table.lease);
        (one.lost_in, one.is_empty) = (None, false);
    }

    /// Backups grant the primary of the epoch that they are in a lease, and the primary notes it.
    pub fn renew(&self, world: &mut World, (shard, primary): At, by: Replicas, lease: u8) -> bool {
        let Some(epoch) = self.serves(world, shard, primary) else { return false };
        let of_shard = &mut world.shards[shard];
        for replica in each(by) {
            let backup = &mut of_shard.replicas[replica];
            let is_promised = backup.promised == epoch
                || (backup.promised > epoch && self.is(Mutation::AcceptsOldEpoch));
            let is_member = self.members(epoch) & 1 << replica != 0;
            if !is_promised || !is_member || backup.lost_in.is_some() || backup.is_empty {
                return false;
            }
            backup.granted = backup.granted.max(lease);
        }
        let one = &mut of_shard.replicas[primary];
        one.lease = one.lease.max(lease);
        one.held = one.held.max(lease);
        true
    }
}

/// The newest epoch whose table one of some replicas has installed.
fn newest_installed(of_shard: &Shard, replicas: Replicas) -> u8 {
    each(replicas).map(|replica| of_shard.replicas[replica].normal).max().unwrap_or(0)
}
