//! How a shard reaches the primaries of other shards: by their stage in this process, or through
//! the stage that holds the connections to other processes.

use std::collections::BTreeMap;

use timestone_seda::{ConnectionId, Generation, ReplyAddress, StageId};
use timestone_types::{Epoch, ShardId};

/// Where the shards of the cluster are, as this process sees it.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    shards: BTreeMap<ShardId, (StageId, Epoch)>,
    local: Vec<StageId>,
}

impl Peers {
    /// A shard is handled by this stage: its own one (`local`), or the one that forwards to another
    /// process.
    pub fn add(&mut self, shard: ShardId, stage: StageId, epoch: Epoch, local: bool) {
        self.shards.insert(shard, (stage, epoch));
        if local {
            self.local.push(stage);
        }
    }

    /// Whom to send frames for a shard to, and the epoch that they carry.
    pub fn find(&self, shard: ShardId) -> Option<(StageId, Epoch)> {
        self.shards.get(&shard).copied()
    }

    /// A new epoch of a shard.
    pub fn set_epoch(&mut self, shard: ShardId, epoch: Epoch) {
        if let Some(entry) = self.shards.get_mut(&shard) {
            entry.1 = epoch;
        }
    }

    /// Whether frames from this stage come from a shard of this process.
    pub fn is_shard(&self, stage: StageId) -> bool {
        self.local.contains(&stage)
    }
}

/// The reply address under which a stage that has no connections sends frames: answers come back to
/// it.
pub const fn own_reply_address(stage: StageId) -> ReplyAddress {
    ReplyAddress { stage, connection: ConnectionId::new(0), generation: Generation::new(0) }
}
