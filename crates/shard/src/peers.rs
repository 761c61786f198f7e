//! How a shard reaches the primaries of other shards: by their stage in this process, or through
//! the stage that holds the connections to other processes.

use std::collections::BTreeMap;

use timestone_cluster::{MapVersion, ShardMap};
use timestone_seda::{ConnectionId, FrameBatch, Generation, ReplyAddress, StageId};
use timestone_types::{Epoch, ShardId};
use timestone_wire::{Envelope, Frame, RequestId};

use crate::turn::{Output, Turn};

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
        let before = self.shards.insert(shard, (stage, epoch));
        assert!(before.is_none(), "a shard is in one place");
        if local {
            self.local.push(stage);
        }
    }

    /// Whom to send frames for a shard to, and the epoch that they carry.
    pub fn find(&self, shard: ShardId) -> Option<(StageId, Epoch)> {
        self.shards.get(&shard).copied()
    }

    /// Whether frames from this stage come from a shard of this process.
    pub fn is_shard(&self, stage: StageId) -> bool {
        self.local.contains(&stage)
    }
}

/// What one shard sends to the primaries of others.
pub(crate) struct Messages {
    shard: ShardId,
    map_version: MapVersion,
    peers: Peers,
}

impl Messages {
    /// Of this shard.
    pub(crate) const fn new(shard: ShardId, map_version: MapVersion, peers: Peers) -> Self {
        Self { shard, map_version, peers }
    }

    /// Another map is in force.
    pub(crate) fn map_changed(&mut self, map: &ShardMap) {
        assert!(self.map_version <= map.version(), "a map is followed by younger ones");
        self.map_version = map.version();
        for shard in map.shards() {
            if let Some((_, epoch)) = self.peers.shards.get_mut(&shard.id) {
                *epoch = shard.epoch;
            }
        }
    }

    /// Whether frames from this address come from a shard of this process.
    pub(crate) fn are_from_peer(&self, from: ReplyAddress) -> bool {
        self.peers.is_shard(from.stage)
    }

    /// Sends one frame to the primary of another shard.
    pub(crate) fn tell(
        &self,
        ctx: &mut Turn<'_>,
        to: ShardId,
        write: impl FnOnce(&Envelope, &mut Vec<u8>),
    ) {
        let Some((stage, epoch)) = self.peers.find(to) else { return };
        // The number tells the node stage of this process whom an answer from another process is
        // for.
        let envelope = Envelope {
            shard: to,
            epoch,
            request: RequestId::new(u64::from(self.shard.get()) + 1),
            map_version: self.map_version,
        };
        let mut bytes = ctx.buffers.take();
        write(&envelope, &mut bytes);
        debug_assert!(
            Frame::parse(&bytes).is_ok_and(|frame| frame.envelope().shard == to),
            "one frame, for the shard that it goes to"
        );
        let frame_batch = FrameBatch::new(own_reply_address(ctx.stage()), bytes);
        ctx.send(Output::ToPeer { to: stage, frame_batch });
    }
}

/// The reply address under which a stage that has no connections sends frames: answers come back to
/// it.
pub const fn own_reply_address(stage: StageId) -> ReplyAddress {
    ReplyAddress { stage, connection: ConnectionId::new(0), generation: Generation::new(0) }
}
