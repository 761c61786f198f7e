//! How a world is made.

use timestone_client::EngineConfig;
use timestone_clock::SkewModel;
use timestone_costmodel::{Costs, DevicePace, Stopwatch};
use timestone_server::{StageLayout, Tuning};
use timestone_wal::DeviceKind;

use crate::environment::FlashShape;
use crate::network::LinkModel;
use crate::restarts::Vary;

/// How a world is made.
#[derive(Clone, Debug)]
pub(crate) struct WorldConfig {
    pub(crate) servers: u32,
    pub(crate) shards_per_server: u16,
    pub(crate) threads: usize,
    /// What a server draws at every start.
    pub(crate) vary: Vary,
    pub(crate) layout: StageLayout,
    pub(crate) cores: usize,
    /// Whether all processes are on one machine.
    pub(crate) together: bool,
    pub(crate) clients: u32,
    pub(crate) sessions: u32,
    /// Processes of Redis clients; without any, servers have no port for them.
    pub(crate) redis_clients: u32,
    /// Connections of each.
    pub(crate) redis_connections: u32,
    pub(crate) regions: u32,
    pub(crate) links: LinkModel,
    pub(crate) skew: SkewModel,
    pub(crate) pace: DevicePace,
    pub(crate) flash: FlashShape,
    pub(crate) tuning: Tuning,
    pub(crate) cache_bytes: u64,
    pub(crate) capacity_bytes: u64,
    /// Memory of a server for keyspaces in memory, unless it is the usual.
    pub(crate) dram_bytes: Option<u64>,
    pub(crate) engine: EngineConfig,
    pub(crate) log: DeviceKind,
    pub(crate) costs: Costs,
    /// Takes the stages' times, for calibration.
    pub(crate) stopwatch: Option<Stopwatch>,
}
