//! Bounds of the cluster's metadata; every decoder checks against them before it allocates.

use core::time::Duration;

use timestone_types::{ClientId, SLOT_COUNT};

/// Most shards of one cluster. Each owns at least one slot, and 4096 shards of 4 slots are more
/// than any master wants to list.
pub const MAX_SHARDS: u16 = 4096;
/// Most slot ranges over all shards of one map: a shard's ranges fragment when slots are moved.
pub const MAX_SLOT_RANGES: usize = SLOT_COUNT as usize;
/// Most servers of one cluster.
pub const MAX_SERVERS: usize = 4096;
/// Most replicas of one shard (2f+1 with f = 7).
pub const MAX_REPLICAS: usize = 15;
/// The highest replication factor of a cluster (2f+1 with f = 2).
pub const MAX_REPLICATION: u8 = 5;
/// The shortest time without a heartbeat after which a server may be called lost, and the shortest
/// lease: five heartbeats of 10 ms, which a loaded machine still sends in time.
pub const MIN_DETECTION: Duration = Duration::from_millis(50);
/// How long a server that has just registered may take until it is heard for the first time: it
/// opens its stores and reads its logs.
pub const START_TIME: Duration = Duration::from_secs(10);
/// How long a shard must have served in one epoch until it is forgotten that its primaries needed
/// other ones: one that fails again within it is not given the shard again while another replica can
/// have it.
pub const STEADY_TIME: Duration = Duration::from_secs(10);
/// A live primary that has not heard of its epoch for so long is followed by another one. A watch of
/// etcd may take 5 s to be noticed as silent, and the next call 2 s.
pub const HEARS_WITHIN: Duration = Duration::from_secs(10);
/// How long a replica that was to lead in the place of one with unread pages is not tried again: at
/// first, and twice as long each further time until it has served for [`STEADY_TIME`]. Each try may
/// cost some detection times without a primary.
pub const TRY_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// The longest such pause: meanwhile a primary serves that may tell clients older versions.
pub const MAX_TRY_AGAIN_AFTER: Duration = Duration::from_secs(600);
/// A primary hands its shard over to a replica that lacks no more records than this: what is on its
/// way to it.
pub const MAX_HAND_OVER_LAG: u64 = 1000;
/// All shards are well for so long before one moves to a server that is primary of fewer.
pub const LEVEL_AFTER: Duration = Duration::from_secs(10);
/// The same after another one has moved.
pub const LEVEL_NEXT_AFTER: Duration = Duration::from_secs(1);
/// A move that comes to nothing is given up after this long.
pub const LEVEL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long after that nothing is moved.
pub const LEVEL_PAUSE: Duration = Duration::from_secs(60);
/// By how much epochs, terms and the map's version are raised above all that is known when a master
/// goes on from a backup: for what only servers have seen that the backup does not know.
pub const RESTORED_MARGIN: u32 = 1024;
/// Most keyspaces of one cluster that exist at the same time.
pub const MAX_KEYSPACES: usize = 1024;
/// Longest name of a keyspace, in bytes.
pub const MAX_KEYSPACE_NAME_BYTES: usize = 64;
/// Longest address (`host:port`), in bytes: a DNS name is at most 253 bytes, brackets and port
/// take 8.
pub const MAX_ADDRESS_BYTES: usize = 261;
/// How many client ids are reserved durably at a time. A crash wastes at most this many of four
/// billion.
pub const CLIENT_ID_BLOCK: u32 = 1024;
/// Most client ids that one command may ask for.
pub const MAX_CLIENT_IDS_PER_COMMAND: u32 = 1024;
/// The highest client id; the one above marks "none left".
pub const MAX_CLIENT_ID: ClientId = ClientId::new(u32::MAX - 1);
/// Longest encoding of a whole map, a command, an answer or the master's state, in bytes.
pub const MAX_ENCODED_BYTES: usize = 16 * 1024 * 1024;

const _: () = assert!(MAX_SHARDS <= SLOT_COUNT);
const _: () = assert!(MAX_REPLICATION as usize <= MAX_REPLICAS);
const _: () = assert!(MAX_CLIENT_IDS_PER_COMMAND <= CLIENT_ID_BLOCK);
// A full map: every server with three addresses, every shard with all replicas, every range.
const _: () = assert!(
    MAX_SERVERS * (16 + 3 * (MAX_ADDRESS_BYTES + 2))
        + MAX_SHARDS as usize * (16 + 4 * MAX_REPLICAS)
        + MAX_SLOT_RANGES * 4
        < MAX_ENCODED_BYTES
);
