//! The world: processes, machines, network and time, and the queue of everything that is going to
//! happen.
//!
//! ```text
//!   queue ── next by (time, number) ──► packet │ turn │ device │ restart │ resume │ … ─┐
//!     ▲                                                                                 ▼
//!     └──────── packets that left, completions, next turns ◄──── one process's turn, observed by the trace
//! ```
//! Invariants: what happens at one moment happens in the order in which it was planned, turns last;
//! nothing reads a real clock; a process of a past life gets nothing.

use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use timestone_client::EngineConfig;
use timestone_clock::SkewModel;
use timestone_seda::simulated::{
    Claim, Cores, SimulatedConfig, SimulatedRuntime, Turn, VirtualTime,
};
use timestone_seda::{AdmissionLimit, Readiness, Spin, StageSlot};
use timestone_server::{
    AcceptedLoss, MasterPlace, ServerConfig, ServerError, ServerStages, StageLayout, Tuning,
    joining,
};
use timestone_wal::DeviceKind;
use timestone_workload::check::Loss;

use crate::board::Board;
use crate::clock::{SimClock, TrueTime};
use crate::environment::{FlashShape, SimEnvironment};
use crate::error::SimError;
use crate::network::{Fabric, LinkModel, Packet, ProcessId, address_of};
use crate::process::{
    ClientRole, Doom, Life, Process, RedisRole, Role, ServerRole, Serving, SharedNetwork, devices,
};
use crate::refusals::{Refusal, is_of_configuration, names_damage};
use crate::restarts::{Change, Unlogged, Vary};
use crate::trace::Trace;
use timestone_costmodel::DevicePace;
use timestone_costmodel::{Costs, Counter, StageKind, Stopwatch};
use timestone_types::random::{Dice, Seed};

/// The port that servers listen on.
const PORT: u16 = 7400;
/// The port that their gateways listen on.
const RESP_PORT: u16 = 7401;

/// A server that could not start is started again after this long.
const START_PAUSE: Duration = Duration::from_millis(500);

/// The longest that it takes until the peers of a process that died within a turn are told: what it
/// wrote last may be read before.
const TEARDOWN: Duration = Duration::from_millis(5);

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
    pub(crate) engine: EngineConfig,
    pub(crate) log: DeviceKind,
    pub(crate) costs: Costs,
    /// Takes the stages' times, for calibration.
    pub(crate) stopwatch: Option<Stopwatch>,
}

/// What is going to happen.
#[derive(Debug)]
enum What {
    Packet(Packet),
    Turn(ProcessId),
    Device(ProcessId, u64, usize),
    Start(ProcessId),
    Resume(ProcessId),
    /// The owner of the world wants to look.
    Look(u64),
}

#[derive(Debug)]
struct Planned {
    at: VirtualTime,
    /// Turns come in the order of their threads' places among those that want a core, after
    /// everything else of the moment.
    since: VirtualTime,
    number: u64,
    what: What,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // The heap gives the greatest: the earliest is that.
        (other.at, other.since, other.number).cmp(&(self.at, self.since, self.number))
    }
}

#[derive(Debug, Default)]
struct Queue {
    heap: BinaryHeap<Planned>,
    next: u64,
}

impl Queue {
    fn plan(&mut self, at: VirtualTime, what: What) {
        self.plan_since(at, VirtualTime::ZERO, what);
    }

    fn plan_since(&mut self, at: VirtualTime, since: VirtualTime, what: What) {
        self.next += 1;
        self.heap.push(Planned { at, since, number: self.next, what });
    }
}

/// Why the owner of the world has it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paused {
    /// A look that was planned, by its token.
    Look(u64),
    /// Nothing is going to happen any more.
    Empty,
}

pub(crate) struct World {
    pub(crate) config: WorldConfig,
    pub(crate) truth: TrueTime,
    pub(crate) fabric: Fabric,
    pub(crate) board: Arc<Board>,
    pub(crate) trace: Trace,
    pub(crate) processes: Vec<Process>,
    pub(crate) machines: Vec<Cores>,
    queue: Queue,
    ready: Vec<(ProcessId, StageSlot, Readiness)>,
    /// How often devices interrupt, and until when.
    interruptions: Vec<(u64, VirtualTime)>,
    /// Says whom.
    dice: Dice,
    seed: Seed,
    /// Servers that could not start.
    pub(crate) failed_starts: Vec<String>,
    /// Why a server will never start again: it found what a disk that lied had lost, and says so.
    pub(crate) refused: Option<Refusal>,
    /// What restarts changed, and how often.
    pub(crate) changes: BTreeMap<Change, u64>,
    /// When servers without a log may have lost what they had acknowledged.
    pub(crate) losses: Vec<Loss>,
    /// Whether acknowledgements may travel for long, so that what a server without a log holds may
    /// be old.
    pub(crate) may_be_late: bool,
    pub(crate) turns: u64,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("now", &self.now())
            .field("processes", &self.processes.len())
            .finish_non_exhaustive()
    }
}

impl World {
    /// A world in which nothing has happened: all processes are down and planned to start.
    pub(crate) fn new(
        config: WorldConfig,
        truth: TrueTime,
        board: Arc<Board>,
        seed: Seed,
        keep_lines: usize,
    ) -> Self {
        let mut links = config.links.clone();
        let everybody = config.servers + config.clients + config.redis_clients;
        for process in 0..everybody {
            links.regions.insert(ProcessId(process), process % config.regions.max(1));
        }
        let fabric = Fabric::new(links, seed.derive("network", 0));
        let mut world = Self {
            truth,
            fabric,
            trace: Trace::new(keep_lines, Arc::clone(&board)),
            board,
            processes: Vec::new(),
            machines: vec![
                Cores::new(config.cores);
                if config.together { 1 } else { everybody as usize }
            ],
            queue: Queue::default(),
            ready: Vec::new(),
            interruptions: Vec::new(),
            dice: seed.derive("interruptions", 0).dice(),
            seed,
            failed_starts: Vec::new(),
            refused: None,
            changes: BTreeMap::new(),
            losses: Vec::new(),
            may_be_late: false,
            turns: 0,
            config,
        };
        for number in 0..world.config.servers {
            world.add_server(number);
        }
        for number in 0..world.config.clients {
            world.add_client(number);
        }
        for number in 0..world.config.redis_clients {
            world.add_redis_client(number);
        }
        world
    }

    pub(crate) fn now(&self) -> VirtualTime {
        self.truth.now()
    }

    /// What one life of a process spends and by chance waits for.
    fn counter_of(&self, id: ProcessId, role: &Role, life: u64) -> Counter {
        let core = self.seed.derive("core", u64::from(id.0)).derive("life", life);
        Counter::new(&self.config.costs, net_kind(role), core)
    }

    fn add_process(&mut self, name: String, role: Role, clock: SimClock) {
        let id = ProcessId(self.processes.len() as u32);
        let counter = self.counter_of(id, &role, 0);
        self.processes.push(Process {
            id,
            name,
            role,
            life: Life::Down,
            lives: 0,
            machine: if self.config.together { 0 } else { id.0 as usize },
            clock,
            counter,
            paused: false,
            doomed: None,
            leaving: None,
            scheduled: None,
            turns: 0,
        });
        // They do not all begin at the same moment.
        let begin = VirtualTime::from_nanos(1_000 * u64::from(id.0));
        self.queue.plan(begin, What::Start(id));
    }

    fn clock(&self, number: u32) -> SimClock {
        SimClock::new(self.truth.clone(), self.config.skew, self.seed.derive("clocks", 0), number)
    }

    fn add_server(&mut self, number: u32) {
        let id = ProcessId(self.processes.len() as u32);
        let listen = address_of(id, PORT);
        let config = &self.config;
        let master = if number == 0 {
            MasterPlace::Embedded
        } else {
            MasterPlace::Remote(address_of(ProcessId(0), PORT))
        };
        let total = u32::from(config.shards_per_server) * config.servers;
        let server = ServerConfig {
            listen: Some(listen),
            resp: (config.redis_clients > 0).then(|| address_of(id, RESP_PORT)),
            http: None,
            shards: Some(config.shards_per_server),
            threads: Some(config.threads),
            layout: config.layout,
            cluster_shards: Some(u16::try_from(total).unwrap_or(u16::MAX)),
            cache_bytes: config.cache_bytes,
            capacity_bytes: Some(config.capacity_bytes),
            log: config.log,
            master,
            insecure: true,
            tuning: Some(config.tuning.clone()),
            ..ServerConfig::new("simulated".into())
        };
        let clock = self.clock(id.0);
        let seed = self.seed.derive("server", u64::from(number));
        let environment = SimEnvironment::new(
            seed,
            config.shards_per_server,
            clock.clone(),
            config.flash,
            config.pace,
        );
        let unlogged = Unlogged::default();
        let role =
            Role::Server(Box::new(ServerRole { config: server, environment, unlogged, starts: 0 }));
        self.add_process(format!("server-{number}"), role, clock);
    }

    fn add_client(&mut self, number: u32) {
        let addresses: Vec<String> = (0..self.config.servers)
            .map(|server| address_of(ProcessId(server), PORT).to_string())
            .collect();
        let sessions = self.config.sessions as usize;
        let slots = number as usize * sessions..(number as usize + 1) * sessions;
        self.trace.name_client(ProcessId(self.processes.len() as u32), slots.clone());
        let role = Role::Client(ClientRole {
            url: format!("timestone://{}", addresses.join(",")),
            slots,
            seed: self.seed.derive("client", u64::from(number)),
            lives: 0,
        });
        let clock = self.clock(self.config.servers + number);
        self.add_process(format!("client-{number}"), role, clock);
    }

    fn add_redis_client(&mut self, number: u32) {
        let connections = self.config.redis_connections as usize;
        let role = Role::Redis(RedisRole {
            servers: (0..self.config.servers)
                .map(|server| address_of(ProcessId(server), RESP_PORT))
                .collect(),
            places: number as usize * connections..(number as usize + 1) * connections,
            seed: self.seed.derive("redis", u64::from(number)),
            lives: 0,
        });
        let clock = self.clock(self.config.servers + self.config.clients + number);
        self.add_process(format!("redis-{number}"), role, clock);
    }

    // ---- time ----

    /// Plans that [`World::run`] comes back at a moment.
    pub(crate) fn look_at(&mut self, at: VirtualTime, token: u64) {
        self.queue.plan(at, What::Look(token));
    }

    /// Lets things happen until a planned look.
    ///
    /// # Errors
    /// A server could not be built for a reason that is no fault of this world.
    pub(crate) fn run(&mut self) -> Result<Paused, SimError> {
        while let Some(Planned { at, what, .. }) = self.queue.heap.pop() {
            self.truth.set(at);
            match what {
                What::Packet(packet) => {
                    let queue = &mut self.queue;
                    self.fabric
                        .deliver(at, packet, |when, packet| queue.plan(when, What::Packet(packet)));
                    self.pass_on_readiness(at);
                }
                What::Turn(id) => self.turn(id, at)?,
                What::Device(id, life, device) => self.device(id, life, device, at),
                What::Start(id) => self.start(id)?,
                What::Resume(id) => self.resume(id),
                What::Look(token) => return Ok(Paused::Look(token)),
            }
        }
        Ok(Paused::Empty)
    }

    fn turn(&mut self, id: ProcessId, at: VirtualTime) -> Result<(), SimError> {
        let process = &mut self.processes[id.0 as usize];
        if process.scheduled.is_some_and(|claim| claim.due == at) {
            process.scheduled = None;
        }
        if process.paused {
            return Ok(());
        }
        self.list_sleepers(id, at);
        let process = &mut self.processes[id.0 as usize];
        process.counter.begins(at);
        let cores = &mut self.machines[process.machine];
        let submitted = process.doomed.map(|_| process.submitted());
        if let Some(turn) = process.run(at, cores, self.trace.of(id)) {
            self.turns += 1;
            process.turns += 1;
            if let (Some(doom), Some(submitted)) = (process.doomed.take(), submitted) {
                self.die_within(id, doom, turn, &submitted);
                self.pass_on_readiness(at);
                return Ok(());
            }
            let queue = &mut self.queue;
            self.fabric
                .flush(turn.begin, turn.end, |when, packet| queue.plan(when, What::Packet(packet)));
            self.plan_devices(id);
            self.look_at_joining(id)?;
            self.look_at_leaving(id);
            self.pass_on_readiness(at);
        }
        self.schedule(id);
        Ok(())
    }

    /// Lists whom a turn of a process would wake by what it writes; on other machines, that is
    /// nobody's CPU time here.
    fn list_sleepers(&mut self, id: ProcessId, at: VirtualTime) {
        if !self.config.together {
            return;
        }
        let mut network = self.fabric.lock();
        network
            .sleepers
            .begin(at, self.machines[self.processes[id.0 as usize].machine].idle_besides());
        for process in self.processes.iter().filter(|process| process.id != id) {
            process.list_sleepers(&mut network.sleepers);
        }
    }

    /// Plans the next turn of a process, if it is not planned early enough.
    pub(crate) fn schedule(&mut self, id: ProcessId) {
        let process = &mut self.processes[id.0 as usize];
        let Some(claim) = process.due().filter(|_| !process.paused) else { return };
        let claim = Claim { due: claim.due.max(self.truth.now()), ..claim };
        if process.scheduled.is_none_or(|planned| claim < planned) {
            process.scheduled = Some(claim);
            self.queue.plan_since(claim.due, claim.since, What::Turn(id));
        }
    }

    fn pass_on_readiness(&mut self, at: VirtualTime) {
        let mut ready = std::mem::take(&mut self.ready);
        self.fabric.take_ready(&mut ready);
        for (id, slot, readiness) in ready.drain(..) {
            self.processes[id.0 as usize].ready(at, slot.stage, readiness);
            self.schedule(id);
        }
        self.ready = ready;
    }

    fn plan_devices(&mut self, id: ProcessId) {
        let process = &mut self.processes[id.0 as usize];
        let (life, now) = (process.lives, self.truth.now());
        let Life::Serving(serving) = &mut process.life else { return };
        for (index, device) in serving.devices.iter_mut().enumerate() {
            let interruptions = device.charge(&process.counter);
            let due = device.kind.next_due();
            if interruptions > 0 {
                let done = due.map_or(now, VirtualTime::from_nanos);
                self.interruptions.push((interruptions, done));
            }
            if let Some(due) = due
                && device.scheduled.is_none_or(|planned| due < planned)
            {
                device.scheduled = Some(due);
                self.queue
                    .plan(VirtualTime::from_nanos(due).max(now), What::Device(id, life, index));
            }
        }
        self.plan_interruptions(now);
    }

    /// When a device has done something, one of the machine's cores looks after it, whoever works
    /// there: parts of what is large are done one after another. With a single core, that is in
    /// what the device costs.
    fn plan_interruptions(&mut self, now: VirtualTime) {
        let shared = self.config.together && self.config.cores > 1;
        let cores = self.config.cores.max(self.processes.len()) as u64;
        for (count, done) in self.interruptions.drain(..).filter(|_| shared) {
            let each = done.since(now) / u32::try_from(count).unwrap_or(u32::MAX);
            for part in 1..=count {
                let at = now.after(each * u32::try_from(part).unwrap_or(u32::MAX));
                if let Some(process) = self.processes.get(self.dice.below(cores) as usize) {
                    process.counter.device_at(at);
                }
            }
        }
    }

    fn device(&mut self, id: ProcessId, life: u64, index: usize, at: VirtualTime) {
        let process = &mut self.processes[id.0 as usize];
        if process.lives != life {
            return;
        }
        let Life::Serving(serving) = &mut process.life else { return };
        let Some(device) = serving.devices.get_mut(index) else { return };
        device.scheduled = None;
        let stage = device.stage;
        process.call(at, stage);
        self.schedule(id);
    }

    // ---- lives ----

    fn start(&mut self, id: ProcessId) -> Result<(), SimError> {
        if !matches!(self.processes[id.0 as usize].life, Life::Down) {
            return Ok(());
        }
        self.fabric.begin_process(id);
        let process = &self.processes[id.0 as usize];
        let counter = self.counter_of(id, &process.role, process.lives + 1);
        let process = &mut self.processes[id.0 as usize];
        process.lives += 1;
        process.counter = counter;
        process.paused = false;
        process.scheduled = None;
        let network: SharedNetwork = Arc::new(self.fabric.host(id, process.counter.clone()));
        let is_joining = match &mut process.role {
            Role::Server(server) => {
                process.clock.begin_process(crate::fault::most_ahead_at_start(&self.config));
                server.environment.connect(Arc::clone(&network));
                matches!(server.config.master, MasterPlace::Remote(_))
            }
            Role::Client(ClientRole { lives, .. }) | Role::Redis(RedisRole { lives, .. }) => {
                *lives += 1;
                false
            }
        };
        self.trace.note(self.truth.now(), id, "starts");
        if is_joining {
            return self.join(id, network);
        }
        match &self.processes[id.0 as usize].role {
            Role::Server(_) => self.serve(id),
            Role::Client(_) => self.connect(id, network),
            Role::Redis(_) => self.connect_redis(id, network),
        }
    }

    fn join(&mut self, id: ProcessId, network: SharedNetwork) -> Result<(), SimError> {
        let now = self.truth.now();
        let process = &mut self.processes[id.0 as usize];
        let Role::Server(server) = &process.role else { return Ok(()) };
        let MasterPlace::Remote(master) = server.config.master else { return Ok(()) };
        let wish = joining(&server.config, &server.environment).map_err(SimError::world)?;
        let (stages, layout, outcome) = crate::joining::stages(master, wish, network);
        let config =
            SimulatedConfig { meter: process.counter.meter(), ..SimulatedConfig::default() };
        let runtime = SimulatedRuntime::start(stages, &layout, config, now, &process.clock)
            .map_err(SimError::world)?;
        self.trace.name_stages(id, runtime.names());
        process.life = Life::Joining { runtime, outcome };
        self.schedule(id);
        Ok(())
    }

    fn look_at_joining(&mut self, id: ProcessId) -> Result<(), SimError> {
        let process = &mut self.processes[id.0 as usize];
        let Life::Joining { outcome, .. } = &process.life else { return Ok(()) };
        let Some(outcome) = outcome.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(());
        };
        match outcome {
            Ok(registration) => {
                if let Role::Server(server) = &process.role {
                    server.environment.registered(registration);
                }
                // The joining life ends as a process would: its sockets are closed.
                process.life = Life::Down;
                let queue = &mut self.queue;
                self.fabric.flush(self.truth.now(), self.truth.now(), |when, packet| {
                    queue.plan(when, What::Packet(packet))
                });
                self.serve(id)
            }
            Err(words) => {
                let words = format!("{} was refused by the master: {words}", process.name);
                process.life = Life::Down;
                self.fail_start(id, words);
                Ok(())
            }
        }
    }

    fn serve(&mut self, id: ProcessId) -> Result<(), SimError> {
        let now = self.truth.now();
        let process = &mut self.processes[id.0 as usize];
        let lives = process.lives;
        let Role::Server(server) = &mut process.role else { return Ok(()) };
        let drawn = self.seed.derive("restart", u64::from(id.0) << 32 | lives);
        for change in
            self.config.vary.draw(&self.config, &mut server.config, server.starts == 0, drawn)
        {
            *self.changes.entry(change).or_default() += 1;
        }
        server.environment.set_now(now);
        let built = match ServerStages::build(&server.config, Arc::new(server.environment.clone()))
        {
            Ok(built) => built,
            Err(error) => {
                let words = format!("{} could not start: {error}", process.name);
                if is_of_configuration(&error) {
                    return Err(SimError::world(words));
                }
                if server.environment.was_lied_to() {
                    match &error {
                        // What an operator says who has no backup.
                        ServerError::Missing { .. } => {
                            server.config.accept_loss = AcceptedLoss::Everything
                        }
                        _ => {
                            self.refused = Some(Refusal {
                                is_clear: names_damage(&error),
                                words: words.clone(),
                            })
                        }
                    }
                }
                process.life = Life::Down;
                self.fail_start(id, words);
                return Ok(());
            }
        };
        server.starts += 1;
        server.config.accept_loss = AcceptedLoss::Nothing;
        server.unlogged.begins(server.config.log, now);
        let (figures, caches) = (Box::new(built.figures()), built.caches());
        let connections = Box::new(built.connections());
        let devices = devices(&server.environment, &built.shards, &built.logs);
        let ServerStages { stages, layout, admission, .. } = built;
        let kinds = stages.iter().map(|stage| StageKind::of_server(stage.name())).collect();
        let costs = Costs::of_process(kinds, &process.counter, self.config.stopwatch.as_ref());
        let config = SimulatedConfig {
            admission: admission.clone(),
            spin: spin_of(&self.config, layout.threads.len()),
            costs: Box::new(costs),
            meter: process.counter.meter(),
            ..SimulatedConfig::default()
        };
        let runtime = SimulatedRuntime::start(stages, &layout, config, now, &process.clock)
            .map_err(SimError::world)?;
        self.trace.name_stages(id, runtime.names());
        process.life = Life::Serving(Box::new(Serving {
            runtime,
            devices,
            figures,
            connections,
            caches,
            admission,
        }));
        let queue = &mut self.queue;
        self.fabric.flush(now, now, |when, packet| queue.plan(when, What::Packet(packet)));
        self.plan_devices(id);
        self.pass_on_readiness(now);
        self.schedule(id);
        Ok(())
    }

    /// A server did not come up: whoever looks after it starts it again. After the faults that is a
    /// finding, for it stays down.
    fn fail_start(&mut self, id: ProcessId, words: String) {
        let now = self.truth.now();
        self.trace.note(now, id, &words);
        self.failed_starts.push(words);
        let queue = &mut self.queue;
        self.fabric
            .end_process(id, false, now, |when, packet| queue.plan(when, What::Packet(packet)));
        self.queue.plan(now.after(START_PAUSE), What::Start(id));
    }

    /// Ends a process at once. `silent`: its machine loses its power as well, so that nobody is
    /// told, and devices lose what was not synced.
    pub(crate) fn kill(&mut self, id: ProcessId, silent: bool, seed: Seed) {
        let now = self.truth.now();
        self.trace.note(now, id, if silent { "its machine loses power" } else { "is killed" });
        self.note_loss(id);
        let life = self.bury(id, silent, now);
        if let Role::Server(server) = &self.processes[id.0 as usize].role {
            server.environment.end(silent, seed);
        }
        drop(life);
    }

    /// Lets a client end as one that is dropped does: what is open is aborted, what was committed
    /// is brought to its participants, goodbye is said. A server is stopped as by SIGTERM: what was
    /// begun is finished, checkpoints are written and synced. Another one takes its place at
    /// `until`, or when it is gone. Whether it was not leaving yet.
    pub(crate) fn leave(&mut self, id: ProcessId, until: VirtualTime) -> bool {
        let now = self.truth.now();
        let process = &mut self.processes[id.0 as usize];
        if process.leaving.is_some() {
            return false;
        }
        match &mut process.life {
            Life::Client { runtime, .. } => runtime.begin_shutdown(now),
            Life::Serving(serving) => serving.runtime.begin_shutdown(now),
            Life::Down | Life::Joining { .. } | Life::Redis { .. } => return false,
        }
        process.leaving = Some(until);
        self.trace.note(now, id, if process.is_server() { "is stopped" } else { "leaves" });
        self.schedule(id);
        true
    }

    fn look_at_leaving(&mut self, id: ProcessId) {
        let now = self.truth.now();
        let process = &mut self.processes[id.0 as usize];
        let Some(until) = process.leaving else { return };
        let is_drained = match &process.life {
            Life::Client { runtime, .. } => runtime.is_drained(),
            Life::Serving(serving) => serving.runtime.is_drained(),
            Life::Down | Life::Joining { .. } | Life::Redis { .. } => false,
        };
        if !is_drained {
            return;
        }
        // Its sockets are closed, and what was written to them arrives.
        drop(self.take_life(id));
        self.trace.note(now, id, "has left");
        let queue = &mut self.queue;
        self.fabric.flush(now, now, |when, packet| queue.plan(when, What::Packet(packet)));
        if let Role::Server(server) = &mut self.processes[id.0 as usize].role {
            server.unlogged.stops(now);
            let seed = self.seed.derive("stop", u64::from(id.0) << 32 | server.starts);
            server.environment.end(false, seed);
            self.fabric
                .end_process(id, false, now, |when, packet| queue.plan(when, What::Packet(packet)));
        }
        self.queue.plan(until.max(now), What::Start(id));
    }

    /// Ends a process in its next turn: of what that writes and hands in, a part gets out. It is
    /// started again at `until`, or when it is dead.
    pub(crate) fn kill_within_turn(
        &mut self,
        id: ProcessId,
        silent: bool,
        seed: Seed,
        until: VirtualTime,
    ) {
        self.processes[id.0 as usize].doomed.get_or_insert(Doom { silent, seed, until });
    }

    /// A turn has ended in its middle; `submitted` is what the log disks had been asked for before
    /// it.
    fn die_within(&mut self, id: ProcessId, doom: Doom, turn: Turn, submitted: &[u64]) {
        let (Doom { silent, seed, until }, Turn { begin, end, .. }) = (doom, turn);
        let words = if silent {
            "its machine loses power within a turn"
        } else {
            "is killed within a turn"
        };
        self.trace.note(end, id, words);
        let mut dice = seed.derive("output", 0).dice();
        self.fabric.cut_output(id, &mut dice);
        let queue = &mut self.queue;
        self.fabric.flush(begin, end, |when, packet| queue.plan(when, What::Packet(packet)));
        let told = end.after(Duration::from_nanos(dice.below(TEARDOWN.as_nanos() as u64 + 1)));
        if let Role::Server(server) = &self.processes[id.0 as usize].role {
            server.environment.cut_submissions(seed);
        }
        self.note_loss(id);
        // Its devices see what was handed in when they are dropped.
        drop(self.bury(id, silent, told));
        if let Role::Server(server) = &self.processes[id.0 as usize].role {
            server.environment.end_after(Some(submitted), silent, seed);
        }
        self.start_at(id, until.max(told));
    }

    /// Takes a process's life. Its peers are told at `told`, unless its machine is gone as well.
    fn bury(&mut self, id: ProcessId, silent: bool, told: VirtualTime) -> Life {
        let queue = &mut self.queue;
        self.fabric
            .end_process(id, silent, told, |when, packet| queue.plan(when, What::Packet(packet)));
        self.take_life(id)
    }

    /// Ends a life: nothing that was planned for it holds any more, and what its sessions had begun
    /// has an unknown end.
    fn take_life(&mut self, id: ProcessId) -> Life {
        let process = &mut self.processes[id.0 as usize];
        let life = std::mem::replace(&mut process.life, Life::Down);
        (process.paused, process.doomed, process.leaving, process.scheduled) =
            (false, None, None, None);
        process.lives += 1;
        if let (Role::Client(client), Life::Client { .. }) = (&process.role, &life) {
            self.board.abandon(client.slots.clone());
        }
        if let (Role::Redis(redis), Some(calls)) = (&process.role, &self.board.redis) {
            // The next life reads.
            calls.set_unreading(redis.places.clone(), false);
        }
        life
    }

    /// Makes memory scarce on a server: its caches get `cache_bytes` together, and no stage takes
    /// on more than `admission`. `None`: it is as plentiful as at the start again.
    pub(crate) fn press_memory(&mut self, id: ProcessId, scarce: Option<(u64, AdmissionLimit)>) {
        let process = &self.processes[id.0 as usize];
        let (Life::Serving(serving), Role::Server(server)) = (&process.life, &process.role) else {
            return;
        };
        let usual = server.config.cache_bytes;
        serving.caches.resize(scarce.map_or(usual, |(cache_bytes, _)| cache_bytes));
        for &(stage, limit) in &serving.admission {
            serving.runtime.set_admission(stage, scarce.map_or(limit, |(_, admission)| admission));
        }
    }

    /// Plans that a process that is down starts.
    pub(crate) fn start_at(&mut self, id: ProcessId, at: VirtualTime) {
        self.queue.plan(at, What::Start(id));
    }

    /// Stops a process until it is resumed.
    pub(crate) fn pause(&mut self, id: ProcessId, until: VirtualTime) {
        self.trace.note(self.truth.now(), id, "is paused");
        self.processes[id.0 as usize].paused = true;
        self.queue.plan(until, What::Resume(id));
    }

    fn resume(&mut self, id: ProcessId) {
        if std::mem::take(&mut self.processes[id.0 as usize].paused) {
            self.trace.note(self.truth.now(), id, "goes on");
            self.schedule(id);
        }
    }

    /// Heals one link, or all.
    pub(crate) fn heal(&mut self, link: Option<(ProcessId, ProcessId)>) {
        let now = self.truth.now();
        let queue = &mut self.queue;
        self.fabric.heal(link, now, |when, packet| queue.plan(when, What::Packet(packet)));
        self.pass_on_readiness(now);
    }

    /// Breaks a connection drawn by the dice. Whether there was one.
    pub(crate) fn break_connection(&mut self, dice: &mut timestone_types::random::Dice) -> bool {
        let broken = self.fabric.break_one(dice);
        self.pass_on_readiness(self.truth.now());
        broken
    }
}

/// How long the threads of a process with so many look around before they sleep: not at all where
/// its peers want the cores as well.
pub(crate) fn spin_of(config: &WorldConfig, threads: usize) -> Spin {
    if config.together && threads < config.cores { Spin::default() } else { Spin::Off }
}

/// The kind of the net stages of a process.
const fn net_kind(role: &Role) -> StageKind {
    match role {
        Role::Server(_) => StageKind::Net,
        Role::Client(_) | Role::Redis(_) => StageKind::ClientNet,
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Clients end on the thread that they lived on, before the board that their tasks share.
        for process in &mut self.processes {
            process.life = Life::Down;
        }
    }
}
