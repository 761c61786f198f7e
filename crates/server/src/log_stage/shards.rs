//! The shards of a process, as a log stage knows them: those of its thread append to its log, others
//! may have batches of an earlier run in it.

use std::collections::VecDeque;

use timestone_seda::StageId;
use timestone_types::{ShardId, Timestamp};
use timestone_wal::{BatchHead, BatchNumber};

struct KnownShard {
    id: ShardId,
    stage: StageId,
    /// Its batches that are not durable, and when they were appended. What waits is bounded by what
    /// the log queues.
    appended: VecDeque<(BatchNumber, Timestamp)>,
}

/// See the module.
pub(super) struct LogShards(Vec<KnownShard>);

impl LogShards {
    pub(super) fn new(shards: Vec<(ShardId, StageId)>) -> Self {
        let known = |(id, stage)| KnownShard { id, stage, appended: VecDeque::new() };
        Self(shards.into_iter().map(known).collect())
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn at(&self, index: usize) -> (ShardId, StageId) {
        (self.0[index].id, self.0[index].stage)
    }

    pub(super) fn stage_of(&self, shard: ShardId) -> Option<StageId> {
        self.0.iter().find(|known| known.id == shard).map(|known| known.stage)
    }

    fn find(&mut self, shard: ShardId) -> Option<&mut KnownShard> {
        self.0.iter_mut().find(|known| known.id == shard)
    }

    /// A batch was appended.
    pub(super) fn appended(&mut self, head: &BatchHead, now: Timestamp) {
        let Some(known) = self.find(head.shard) else { return };
        let last = known.appended.back().map(|(batch, _)| *batch);
        assert!(last.is_none_or(|last| last < head.batch), "batches of a shard come in order");
        known.appended.push_back((head.batch, now));
    }

    /// Batches of a shard up to this one are durable. When each of them was appended.
    pub(super) fn durable(
        &mut self,
        shard: ShardId,
        batch: BatchNumber,
    ) -> impl Iterator<Item = Timestamp> + '_ {
        let mut appended = self.find(shard).map(|known| &mut known.appended);
        core::iter::from_fn(move || {
            let (_, at) = appended.as_mut()?.pop_front_if(|(number, _)| *number <= batch)?;
            Some(at)
        })
    }

    /// Nothing becomes durable any more.
    pub(super) fn forget_appended(&mut self) {
        self.0.iter_mut().for_each(|known| known.appended.clear());
    }
}
