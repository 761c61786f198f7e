//! How a replica begins: with what a start has found in its store and its logs, or with nothing.

use std::sync::Arc;
use std::time::Duration;

use timestone_clock::Clock;
use timestone_cluster::ShardMap;
use timestone_replication::limits::Retention;
use timestone_replication::{Output, Replica, ReplicaId, Stored};
use timestone_seda::{Memory, StageId};
use timestone_shard::gauges::ShardGauges;
use timestone_shard::{LogPlace, Past, Peers, Recovering, Replay};
use timestone_store::Store;
use timestone_txn::participant;
use timestone_types::{Epoch, ShardId, Timestamp};
use timestone_wal::BatchNumber;

use super::Kept;
use super::bytes::{LogBytes, head_of};
use super::replica_log::{FoundEntries, ReplicaLog};
use super::role::ReplicaRole;
use crate::error::ServerError;
use crate::replica_gauges::ReplicaGauges;
use crate::restart::StoreOpener;
use crate::shared_shard::ShardSlot;

/// For how long a new primary waits with the watermark for sessions that its predecessor knew: a
/// failover takes about as long.
const OUTAGE: Duration = Duration::from_secs(2);

/// What opens the store of a shard. Blocks.
pub(crate) trait OpenStore: Send {
    /// Opens or creates it.
    fn open(&self, shard: ShardId) -> Result<Replay, ServerError>;

    /// The log says durably that everything here is void.
    fn loss_is_logged(&self, shard: ShardId) -> Result<(), ServerError>;

    /// Makes it anew: what is there goes. Nobody has it open.
    fn open_empty(&self, shard: ShardId) -> Result<Box<dyn Store + Send>, ServerError>;
}

impl OpenStore for Arc<StoreOpener> {
    fn open(&self, shard: ShardId) -> Result<Replay, ServerError> {
        StoreOpener::open(self, shard)
    }

    fn loss_is_logged(&self, shard: ShardId) -> Result<(), ServerError> {
        self.manifest.loss_is_logged(shard)
    }

    fn open_empty(&self, shard: ShardId) -> Result<Box<dyn Store + Send>, ServerError> {
        StoreOpener::open_empty(self, shard)
    }
}

/// What a stage of a replica is given.
pub(crate) struct ReplicaParts {
    /// Where it appends.
    pub(crate) log: StageId,
    /// The net stage that dials other servers.
    pub(crate) net: StageId,
    /// Who carries messages to other shards.
    pub(crate) node: StageId,
    /// The stage itself.
    pub(crate) stage: StageId,
    pub(crate) gauges: Arc<ShardGauges>,
    pub(crate) replica_gauges: Arc<ReplicaGauges>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) participant: participant::Config,
    pub(crate) stores: Box<dyn OpenStore>,
    /// What a primary keeps for replicas that lack it.
    pub(crate) retention: Retention,
    /// Where the gateway of the thread finds the shard, while this replica is the primary.
    pub(crate) slot: ShardSlot,
}

impl ReplicaParts {
    /// A replica that has nothing.
    pub(super) fn begin(
        &self,
        shard: ShardId,
        me: ReplicaId,
        now: Timestamp,
    ) -> Result<Kept, ServerError> {
        let replay = self.stores.open(shard)?;
        let found = FoundEntries::default();
        let log = (self.log, &[self.log][..]);
        Ok(StartedReplica::new((shard, me), log, replay, found, now)?.begin(self.retention))
    }

    /// What a shard is told that serves in this epoch from batch `through` on.
    pub(super) fn recovering(
        &self,
        shard: ShardId,
        (epoch, through): (Epoch, BatchNumber),
        map: &ShardMap,
        now: Timestamp,
    ) -> Recovering {
        let mut peers = Peers::default();
        for entry in map.shards() {
            let is_own = entry.id == shard;
            let stage = if is_own { self.stage } else { self.node };
            peers.add(entry.id, stage, entry.epoch, is_own);
        }
        let outage = (through > BatchNumber::ZERO).then_some(OUTAGE);
        Recovering {
            epoch,
            map_version: map.version(),
            log: LogPlace::Stage(self.log),
            logs: vec![self.log],
            peers,
            gauges: Arc::clone(&self.gauges),
            clock: Arc::clone(&self.clock),
            past: Past { outage, ..Past::default() },
            left: Arc::default(),
            now,
            participant: self.participant,
            memory: Arc::clone(&self.memory),
        }
    }
}

/// What a start has found of a replica, replayed.
pub(crate) struct StartedReplica {
    replica: Replica<LogBytes>,
    log: ReplicaLog,
    own_log: StageId,
    replay: Replay,
    outputs: Vec<Output<LogBytes>>,
}

impl StartedReplica {
    /// Replays what counts of what the logs have. Where everything [is void](FoundEntries::is_emptied),
    /// the store is empty.
    ///
    /// # Errors
    /// A log has records that no replica wrote, or the store cannot take what counts.
    pub(crate) fn new(
        (shard, me): (ShardId, ReplicaId),
        (own_log, logs): (StageId, &[StageId]),
        mut replay: Replay,
        found: FoundEntries,
        now: Timestamp,
    ) -> Result<Self, ServerError> {
        if let Some(batch) = found.stranger() {
            return Err(ServerError::NotOfReplica { shard, batch });
        }
        let void = found.void();
        let (mut log, base, entries) = ReplicaLog::recovered(shard, (own_log, logs), found);
        let stored = Stored { base, entries, void };
        let mut wanted = Vec::new();
        let replica = Replica::recover(me, stored, &mut wanted);
        let mut outputs = Vec::new();
        for output in wanted {
            match output {
                Output::Apply(batch) => {
                    log.counts(&batch);
                    replay.batch(now, head_of(shard, &batch), &batch.payload.records)?;
                }
                output => outputs.push(output),
            }
        }
        Ok(Self { replica, log, own_log, replay, outputs })
    }

    /// What was replayed, for the begin of the process's time.
    pub(crate) const fn replay(&self) -> &Replay {
        &self.replay
    }

    /// It begins as a backup.
    pub(crate) fn begin(self, retention: Retention) -> Kept {
        let Self { mut replica, log, own_log, replay, outputs } = self;
        replica.set_retention(retention);
        Kept::new(replica, log, ReplicaRole::backup(replay, own_log), outputs)
    }
}
