//! How a world is made.

use std::time::Duration;

use timestone_client::EngineConfig;
use timestone_clock::SkewModel;
use timestone_cluster::{ControllerLimits, KeyspaceName, ReplicationFactor};
use timestone_costmodel::{Costs, DevicePace, Stopwatch};
use timestone_server::{StageLayout, Tuning};
use timestone_wal::DeviceKind;

use crate::environment::FlashShape;
use crate::network::LinkModel;
use crate::restarts::Vary;

/// How a world is made.
#[derive(Clone, Debug)]
pub(crate) struct WorldConfig {
    pub(crate) members: Members,
    pub(crate) machine: MachineConfig,
    pub(crate) storage: StorageConfig,
    /// What a server draws at every start.
    pub(crate) vary: Vary,
    pub(crate) links: LinkModel,
    pub(crate) skew: SkewModel,
    pub(crate) clients_time: ClientsTime,
    pub(crate) engine: EngineConfig,
}

/// What time clients have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientsTime {
    /// How wrong their clocks are, where that is not as with servers.
    pub(crate) skew: Option<SkewModel>,
    /// Whether they follow the servers' time.
    pub(crate) is_followed: bool,
    /// By how much the last server's clock is ahead, without saying so.
    pub(crate) lie: Duration,
}

/// Who lives in a world, and where.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    pub(crate) servers: u32,
    pub(crate) shards_per_server: u16,
    /// Replicas of each shard.
    pub(crate) replication: ReplicationFactor,
    /// Whether the master is none of the servers.
    pub(crate) outside_master: bool,
    pub(crate) clients: u32,
    /// Sessions of each client.
    pub(crate) sessions: u32,
    /// Sessions of the clients that are embedded in each server.
    pub(crate) embedded_sessions: u32,
    /// Processes of Redis clients; without any, servers have no port for them.
    pub(crate) redis_clients: u32,
    /// The keyspace that they are served, if it is not the default one.
    pub(crate) redis_keyspace: Option<KeyspaceName>,
    /// Connections of each.
    pub(crate) redis_connections: u32,
    pub(crate) regions: u32,
}

/// What processes run on, and what their work costs there.
#[derive(Clone, Debug)]
pub(crate) struct MachineConfig {
    /// Threads of a server.
    pub(crate) threads: usize,
    pub(crate) layout: StageLayout,
    pub(crate) cores: usize,
    /// Whether all processes are on one machine.
    pub(crate) together: bool,
    pub(crate) costs: Costs,
    /// Takes the stages' times, for calibration.
    pub(crate) stopwatch: Option<Stopwatch>,
}

/// What servers keep data on.
#[derive(Clone, Debug)]
pub(crate) struct StorageConfig {
    pub(crate) pace: DevicePace,
    pub(crate) flash: FlashShape,
    pub(crate) tuning: Tuning,
    /// When servers are lost, and their replicas are replaced.
    pub(crate) controller: ControllerLimits,
    /// Of a primary.
    pub(crate) lease: Duration,
    pub(crate) cache_bytes: u64,
    pub(crate) capacity_bytes: u64,
    /// Memory of a server for keyspaces in memory, unless it is the usual.
    pub(crate) dram_bytes: Option<u64>,
    pub(crate) log: DeviceKind,
}

impl Members {
    /// Processes of all kinds.
    pub(crate) const fn processes(&self) -> u32 {
        self.servers + self.clients + self.redis_clients
    }

    /// Shards of all servers.
    pub(crate) const fn shards(&self) -> u32 {
        self.shards_per_server as u32 * self.servers
    }

    /// Sessions of all clients of the native protocol, embedded ones included.
    pub(crate) const fn all_sessions(&self) -> u32 {
        self.clients * self.sessions + self.servers * self.embedded_sessions
    }

    /// Whether shards outlive servers.
    pub(crate) fn are_replicated(&self) -> bool {
        self.replication != ReplicationFactor::ONE
    }

    /// How many servers may be gone at once, with their disks, without the loss of anything.
    pub(crate) const fn spares(&self) -> usize {
        self.replication.replicas() / 2
    }
}
