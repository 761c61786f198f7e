//! One simulated process: a server, a server that is still joining, a client, or one with Redis
//! clients; running, paused or down.
//!
//! ```text
//!   down ── start ──► joining ── registered ──► serving ── kill ──► down
//!            └────── master embedded, client ──►    └── pause ──► paused ── resume ──► …
//! ```

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use timestone_client::{ClientStageEvent, Db};
use timestone_cluster::ServerId;
use timestone_seda::simulated::{
    Claim, Cores, Observer, SimulatedRuntime, SimulatedTurn, VirtualTime,
};
use timestone_seda::{AdmissionLimit, Readiness, StageId};
use timestone_server::{
    Caches, ConnectionFigures, Event, ReplicaFigures, ServerConfig, ServerDeparture, ShardFigures,
};

use crate::clock::{ClientTime, SimClock};
use crate::devices::Devices;
use crate::environment::SimEnvironment;
use crate::joining::JoinOutcome;
use crate::network::{ProcessId, Sleepers};
use crate::restarts::Unlogged;
use timestone_costmodel::Counter;
use timestone_types::random::Seed;

/// What a server is, in all its lives.
pub(crate) struct ServerRole {
    pub(crate) config: ServerConfig,
    pub(crate) environment: SimEnvironment,
    /// What it acknowledges that no log has.
    pub(crate) unlogged: Unlogged,
    /// How often it has started.
    pub(crate) starts: u64,
    /// The slots on the board of its embedded clients' sessions.
    pub(crate) slots: std::ops::Range<usize>,
}

/// What a client is, in all its lives.
pub(crate) struct ClientRole {
    pub(crate) url: String,
    /// Its slots on the board.
    pub(crate) slots: std::ops::Range<usize>,
    pub(crate) seed: Seed,
    pub(crate) lives: u64,
}

/// What a process of Redis clients is, in all its lives.
pub(crate) struct RedisRole {
    /// Where gateways listen.
    pub(crate) servers: Vec<SocketAddr>,
    /// Its connections, among those of all such processes.
    pub(crate) places: std::ops::Range<usize>,
    pub(crate) seed: Seed,
    pub(crate) lives: u64,
}

pub(crate) enum Role {
    Server(Box<ServerRole>),
    Client(ClientRole),
    Redis(RedisRole),
}

/// The runtime of a process's present life.
pub(crate) enum ProcessLife {
    Down,
    Joining {
        runtime: SimulatedRuntime<ClientStageEvent>,
        outcome: JoinOutcome,
    },
    Serving(Box<Serving>),
    Client {
        runtime: SimulatedRuntime<ClientStageEvent>,
        db: Db,
        event_loop: StageId,
        time: ClientTime,
    },
    Redis {
        runtime: SimulatedRuntime<ClientStageEvent>,
    },
}

/// What a serving server is made of.
pub(crate) struct Serving {
    pub(crate) runtime: SimulatedRuntime<Event>,
    /// Where it is told that it is to be stopped.
    pub(crate) departure: ServerDeparture,
    pub(crate) devices: Devices,
    /// The server, as the master knows it.
    pub(crate) server: ServerId,
    pub(crate) figures: Box<dyn Fn() -> Vec<ShardFigures>>,
    pub(crate) replicas: Box<dyn Fn() -> Vec<ReplicaFigures>>,
    pub(crate) connections: Box<dyn Fn() -> ConnectionFigures>,
    pub(crate) caches: Caches,
    /// What may be admitted to which stage when memory is not scarce.
    pub(crate) admission: Vec<(StageId, AdmissionLimit)>,
    /// The clients that live in it, one on each thread, if it is to have some.
    pub(crate) embedded: Vec<(StageId, Db)>,
}

/// A death that comes in the middle of the next turn's system calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedCrash {
    /// The machine goes as well: nobody is told.
    pub(crate) silent: bool,
    pub(crate) seed: Seed,
    /// When the process is started again, if it is dead by then.
    pub(crate) until: VirtualTime,
}

pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) life: ProcessLife,
    /// Counts lives, so that what was planned for an earlier one is recognised.
    pub(crate) lives: u64,
    pub(crate) machine: usize,
    pub(crate) clock: SimClock,
    /// What it does outside of its stages' own code.
    pub(crate) counter: Counter,
    pub(crate) paused: bool,
    /// It never starts again.
    pub(crate) is_gone: bool,
    /// It dies within its next turn.
    pub(crate) planned_crash: Option<PlannedCrash>,
    /// It ends as soon as it has brought everything to its end, and another one takes its place
    /// then.
    pub(crate) leaving: Option<VirtualTime>,
    /// A server that leaves hands its primaries over, and serves meanwhile.
    pub(crate) hands_over: bool,
    /// When its next turn is planned.
    pub(crate) scheduled: Option<Claim>,
    /// Turns, over all lives.
    pub(crate) turns: u64,
}

/// Sees all events of all processes.
pub(crate) trait TurnObserver: Observer<Event> + Observer<ClientStageEvent> {}

impl<T: Observer<Event> + Observer<ClientStageEvent>> TurnObserver for T {}

impl Process {
    pub(crate) const fn is_up(&self) -> bool {
        matches!(
            self.life,
            ProcessLife::Serving(_) | ProcessLife::Client { .. } | ProcessLife::Redis { .. }
        )
    }

    pub(crate) const fn is_server(&self) -> bool {
        matches!(self.role, Role::Server(_))
    }

    /// Whether it is a client of the native protocol.
    pub(crate) const fn is_native(&self) -> bool {
        matches!(self.role, Role::Client(_))
    }

    /// Whether it has Redis clients.
    pub(crate) const fn is_redis(&self) -> bool {
        matches!(self.role, Role::Redis(_))
    }

    /// The slots on the board of the sessions that live and die with it.
    pub(crate) fn slots(&self) -> std::ops::Range<usize> {
        match &self.role {
            Role::Server(server) => server.slots.clone(),
            Role::Client(client) => client.slots.clone(),
            Role::Redis(_) => 0..0,
        }
    }

    /// How many operations each of its log disks has been asked for.
    pub(crate) fn submitted(&self) -> Vec<u64> {
        match &self.role {
            Role::Server(server) => server.environment.operations(),
            Role::Client(_) | Role::Redis(_) => Vec::new(),
        }
    }

    pub(crate) fn due(&self) -> Option<Claim> {
        match &self.life {
            ProcessLife::Down => None,
            ProcessLife::Joining { runtime, .. } => runtime.due(),
            ProcessLife::Serving(serving) => serving.runtime.due(),
            ProcessLife::Client { runtime, .. } | ProcessLife::Redis { runtime } => runtime.due(),
        }
    }

    pub(crate) fn ready(&mut self, at: VirtualTime, stage: StageId, readiness: Readiness) {
        match &mut self.life {
            ProcessLife::Down => {}
            ProcessLife::Joining { runtime, .. } => runtime.ready(at, stage, readiness),
            ProcessLife::Serving(serving) => serving.runtime.ready(at, stage, readiness),
            ProcessLife::Client { runtime, .. } | ProcessLife::Redis { runtime } => {
                runtime.ready(at, stage, readiness)
            }
        }
    }

    /// Lists the stages whose threads block.
    pub(crate) fn list_sleepers(&self, sleepers: &mut Sleepers) {
        match &self.life {
            ProcessLife::Serving(serving) => sleepers.add(self.id, serving.runtime.sleepers()),
            ProcessLife::Client { runtime, .. } | ProcessLife::Redis { runtime } => {
                sleepers.add(self.id, runtime.sleepers())
            }
            ProcessLife::Down | ProcessLife::Joining { .. } => {}
        }
    }

    pub(crate) fn call(&mut self, at: VirtualTime, stage: StageId) {
        match &mut self.life {
            ProcessLife::Serving(serving) => serving.runtime.call(at, stage),
            ProcessLife::Client { runtime, .. } | ProcessLife::Redis { runtime } => {
                runtime.call(at, stage)
            }
            ProcessLife::Down | ProcessLife::Joining { .. } => {}
        }
    }

    pub(crate) fn run<W: TurnObserver>(
        &mut self,
        now: VirtualTime,
        cores: &mut Cores,
        observer: &mut W,
    ) -> Option<SimulatedTurn> {
        let clock = &self.clock;
        match &mut self.life {
            ProcessLife::Down => None,
            ProcessLife::Joining { runtime, .. } => runtime.run(now, cores, clock, observer),
            ProcessLife::Serving(serving) => {
                if let Role::Server(server) = &self.role {
                    server.environment.set_now(now);
                }
                serving.runtime.run(now, cores, clock, observer)
            }
            ProcessLife::Client { runtime, time, .. } => runtime.run(now, cores, time, observer),
            ProcessLife::Redis { runtime } => runtime.run(now, cores, clock, observer),
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A shared handle on the network, for a process's life.
pub(crate) type SharedNetwork = Arc<dyn timestone_seda::Network>;
