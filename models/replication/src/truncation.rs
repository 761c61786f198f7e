//! Watermarks, and records that are dropped because every replica has them
//! (docs/protocol/replication.md, truncation).
//!
//! A watermark is known for each transaction: it has passed its begin, or the client has acknowledged
//! the outcome. Records are numbered in the protocol and become stable in the order of their numbers.
//! Here each transaction's become stable by themselves, which allows more.

use crate::model::Small;
use crate::mutation::Mutation;
use crate::record::Record;
use crate::world::{At, World, committed_versions, each};

impl Small {
    /// Whether a primary may act on it that a transaction began below the watermark.
    pub fn has_passed(&self, world: &World, (shard, primary): At, txn: usize) -> bool {
        let Some(epoch) = self.serves(world, shard, primary) else { return false };
        let (of_shard, at) = (&world.shards[shard], usize::from(epoch) - 1);
        if of_shard.replicas[primary].passed & 1 << txn == 0 {
            return false;
        }
        self.is(Mutation::WatermarkIsLocal)
            || of_shard.merged[at].is_some_and(|table| table.passed & 1 << txn != 0)
            || self.is_enough(epoch, primary, of_shard.marked[at][txn])
    }

    /// A primary's watermark passes a transaction whose client is dead, or has acknowledged its
    /// outcome.
    pub fn pass(&self, world: &mut World, (shard, primary): At, txn: usize) -> bool {
        let Some(epoch) = self.serves(world, shard, primary) else { return false };
        let one = &world.txns[txn];
        let is_over = one.told.is_any() || !one.is_client_up || self.has_silence;
        let of_shard = &mut world.shards[shard];
        if !is_over || of_shard.replicas[primary].passed & 1 << txn != 0 {
            return false;
        }
        let having = if self.is_steady(shard) { self.members(epoch) } else { 1 << primary };
        for replica in each(having) {
            of_shard.replicas[replica].passed |= 1 << txn;
        }
        of_shard.marked[usize::from(epoch) - 1][txn] |= having;
        if self.marks_at_once {
            for replica in each(self.members(epoch)) {
                self.store_mark(world, (shard, replica), epoch, txn);
            }
        }
        true
    }

    /// A backup has the watermark durably.
    pub fn store_mark(
        &self,
        world: &mut World,
        (shard, replica): At,
        epoch: u8,
        txn: usize,
    ) -> bool {
        let of_shard = &mut world.shards[shard];
        let one = &mut of_shard.replicas[replica];
        if one.promised != epoch || one.normal != epoch || one.is_empty {
            return false;
        }
        one.passed |= 1 << txn;
        of_shard.marked[usize::from(epoch) - 1][txn] |= 1 << replica;
        true
    }

    /// A participant tells the others that it has the commit, when that counts.
    pub fn acknowledge_decision(
        &self,
        world: &mut World,
        (shard, primary): At,
        txn: usize,
    ) -> bool {
        let record = world.shards[shard].replicas[primary].view[txn];
        let has_commit = matches!(record, Record::Committed(_))
            && (self.counts(world, (shard, primary), txn, record)
                || self.is(Mutation::AcknowledgesDecisionEarly));
        world.txns[txn].acknowledged[shard] |= has_commit;
        has_commit
    }

    /// A primary tells that a transaction's records may go: all replicas have the outcome, and
    /// nobody will ask for it.
    pub fn settle(&self, world: &mut World, (shard, primary): At, txn: usize) -> bool {
        let Some(epoch) = self.serves(world, shard, primary) else { return false };
        let (of_shard, at) = (&world.shards[shard], usize::from(epoch) - 1);
        let record = of_shard.replicas[primary].view[txn];
        let has_all = |replica: usize| {
            let is_installed = of_shard.installed[at] & 1 << replica != 0;
            is_installed && of_shard.acked[replica][at][txn] == of_shard.sent[at][txn]
        };
        let lagging = each(self.members(epoch)).filter(|&replica| !has_all(replica)).count();
        let may_lag = usize::from(self.is(Mutation::StableWithoutOne));
        if !record.is_outcome() || lagging > may_lag {
            return false;
        }
        let may_be_asked = !self.has_passed(world, (shard, primary), txn)
            && !self.is(Mutation::DropsUnacknowledged);
        let must_be_told = !self.specs[txn].is_single()
            && matches!(record, Record::Committed(_))
            && !self.specs[txn].participants().all(|other| world.txns[txn].acknowledged[other])
            && !self.is(Mutation::DropsUntold);
        if may_be_asked || must_be_told {
            return false;
        }
        world.shards[shard].stable[at] |= 1 << txn;
        if self.is_steady(shard) {
            for replica in each(self.members(epoch)) {
                self.truncate(world, (shard, replica), txn);
            }
        }
        true
    }

    /// Whether a replica knows of records that it may drop.
    pub fn may_truncate(&self, world: &World, (shard, replica): At, txn: usize) -> bool {
        let of_shard = &world.shards[shard];
        let one = &of_shard.replicas[replica];
        one.normal > 0
            && !one.is_empty
            && of_shard.stable[usize::from(one.normal) - 1] & 1 << txn != 0
            && one.table[txn] != Record::Unseen
    }

    /// A replica drops a transaction's records. What is committed is in its store by then.
    pub fn truncate(&self, world: &mut World, (shard, replica): At, txn: usize) -> bool {
        if !self.may_truncate(world, (shard, replica), txn) {
            return false;
        }
        let epoch = self.serves(world, shard, replica);
        let one = &mut world.shards[shard].replicas[replica];
        one.store |= committed_versions(&one.table, 1 << txn);
        one.settled |= 1 << txn;
        one.table[txn] = Record::Unseen;
        if epoch == Some(one.normal) {
            one.view[txn] = Record::Unseen;
        }
        true
    }
}
