//! Who lives in a world: its servers, clients and Redis clients, all down and planned to start.

use std::time::Duration;

use timestone_clock::SkewModel;
use timestone_costmodel::{Counter, StageKind};
use timestone_seda::simulated::VirtualTime;
use timestone_server::{ListenConfig, MasterPlace, ServerConfig, SizeConfig};
use timestone_types::random::Seed;

use super::WorldConfig;
use super::queue::{EventQueue, Occurrence};
use crate::clock::{SimClock, TrueTime};
use crate::environment::SimEnvironment;
use crate::master::OutsideMaster;
use crate::network::{ProcessId, address_of};
use crate::process::{ClientRole, Process, ProcessLife, RedisRole, Role, ServerRole};
use crate::processes::Processes;
use crate::restarts::Unlogged;
use crate::trace::Trace;

/// The port that servers listen on.
const PORT: u16 = 7400;
/// Keys that a server expects in keyspaces with their index on flash: about those of a workload.
const FRUGAL_KEYS: u64 = 2000;
/// The port that their gateways listen on.
const RESP_PORT: u16 = 7401;

/// Adds processes to a world that is being made.
pub(super) struct Population<'a> {
    pub(super) config: &'a WorldConfig,
    pub(super) truth: &'a TrueTime,
    /// Where no server hosts it.
    pub(super) master: Option<&'a OutsideMaster>,
    pub(super) seed: Seed,
    pub(super) trace: &'a mut Trace,
    pub(super) processes: &'a mut Processes,
    pub(super) queue: &'a mut EventQueue,
}

/// What one life of a process spends and by chance waits for.
pub(super) fn counter_of(
    config: &WorldConfig,
    seed: Seed,
    id: ProcessId,
    role: &Role,
    life: u64,
) -> Counter {
    let core = seed.derive("core", u64::from(id.0)).derive("life", life);
    Counter::new(&config.machine.costs, net_kind(role), core)
}

/// The kind of the net stages of a process.
const fn net_kind(role: &Role) -> StageKind {
    match role {
        Role::Server(_) => StageKind::Net,
        Role::Client(_) | Role::Redis(_) => StageKind::ClientNet,
    }
}

impl Population<'_> {
    fn add_process(&mut self, name: String, role: Role, clock: SimClock) {
        let id = self.processes.next_id();
        let counter = counter_of(self.config, self.seed, id, &role, 0);
        self.processes.push(Process {
            id,
            name,
            role,
            life: ProcessLife::Down,
            lives: 0,
            machine: if self.config.machine.together { 0 } else { id.0 as usize },
            clock,
            counter,
            paused: false,
            is_gone: false,
            planned_crash: None,
            leaving: None,
            hands_over: false,
            scheduled: None,
            turns: 0,
        });
        // They do not all begin at the same moment.
        let begin = VirtualTime::from_nanos(1_000 * u64::from(id.0));
        self.queue.plan(begin, Occurrence::Start(id));
    }

    fn clock(&self, number: u32, skew: SkewModel) -> SimClock {
        SimClock::new(self.truth.clone(), skew, self.seed.derive("clocks", 0), number)
    }

    fn clock_of_client(&self, number: u32) -> SimClock {
        let skew = self.config.clients_time.skew.unwrap_or(self.config.skew);
        self.clock(self.config.members.servers + number, skew)
    }

    pub(super) fn add_server(&mut self, number: u32) {
        let id = self.processes.next_id();
        let listen = address_of(id, PORT);
        let config = self.config;
        // One that is outside is nobody's to host, and none to dial.
        let master = if number == 0 || self.master.is_some() {
            MasterPlace::Embedded
        } else {
            MasterPlace::Remote(address_of(ProcessId(0), PORT))
        };
        let total = config.members.shards();
        let usual = ServerConfig::new("simulated".into());
        let server = ServerConfig {
            listen: ListenConfig {
                native: Some(listen),
                resp: (config.members.redis_clients > 0).then(|| address_of(id, RESP_PORT)),
                resp_keyspace: config.members.redis_keyspace.clone(),
                insecure: true,
                ..ListenConfig::default()
            },
            sizes: SizeConfig {
                cache_bytes: config.storage.cache_bytes,
                capacity_bytes: Some(config.storage.capacity_bytes),
                dram_bytes: config.storage.dram_bytes.unwrap_or(usual.sizes.dram_bytes),
                frugal_keys: FRUGAL_KEYS,
                ..usual.sizes
            },
            shards: Some(config.members.shards_per_server),
            threads: Some(config.machine.threads),
            layout: config.machine.layout,
            cluster_shards: Some(u16::try_from(total).unwrap_or(u16::MAX)),
            replication: config.members.replication,
            controller: config.storage.controller,
            lease: config.storage.lease,
            log: config.storage.log,
            master,
            tuning: Some(config.storage.tuning.clone()),
            ..usual
        };
        let lies = number + 1 == config.members.servers;
        let lie = if lies { config.clients_time.lie } else { Duration::ZERO };
        let clock = self.clock(id.0, config.skew).lying(lie);
        let seed = self.seed.derive("server", u64::from(number));
        let environment = SimEnvironment::new(
            seed,
            config.members.shards_per_server,
            clock.clone(),
            config.storage.flash,
            config.storage.pace,
        )
        .mastered_by(self.master.map(|master| master.asked_by(id)));
        let unlogged = Unlogged::default();
        // Behind those of clients that are processes of their own.
        let members = &config.members;
        let first = members.clients * members.sessions + number * members.embedded_sessions;
        let slots = first as usize..(first + members.embedded_sessions) as usize;
        self.trace.name_client(id, slots.clone());
        let role = Role::Server(Box::new(ServerRole {
            config: server,
            environment,
            unlogged,
            starts: 0,
            slots,
        }));
        self.add_process(format!("server-{number}"), role, clock);
    }

    pub(super) fn add_client(&mut self, number: u32) {
        let addresses: Vec<String> = (0..self.config.members.servers)
            .map(|server| address_of(ProcessId(server), PORT).to_string())
            .collect();
        let sessions = self.config.members.sessions as usize;
        let slots = number as usize * sessions..(number as usize + 1) * sessions;
        self.trace.name_client(self.processes.next_id(), slots.clone());
        let role = Role::Client(ClientRole {
            url: format!("timestone://{}", addresses.join(",")),
            slots,
            seed: self.seed.derive("client", u64::from(number)),
            lives: 0,
        });
        let clock = self.clock_of_client(number);
        self.add_process(format!("client-{number}"), role, clock);
    }

    pub(super) fn add_redis_client(&mut self, number: u32) {
        let connections = self.config.members.redis_connections as usize;
        let role = Role::Redis(RedisRole {
            servers: (0..self.config.members.servers)
                .map(|server| address_of(ProcessId(server), RESP_PORT))
                .collect(),
            places: number as usize * connections..(number as usize + 1) * connections,
            seed: self.seed.derive("redis", u64::from(number)),
            lives: 0,
        });
        let clock = self.clock_of_client(self.config.members.clients + number);
        self.add_process(format!("redis-{number}"), role, clock);
    }
}
