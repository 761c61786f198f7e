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

mod config;
mod conversions;
mod interruptions;
mod population;
mod queue;
mod replicas;
mod starts;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use timestone_seda::simulated::{Claim, Cores, SimulatedTurn, VirtualTime};
use timestone_seda::{AdmissionLimit, Readiness, Spin, StageSlot};
use timestone_server::HAND_OVER_TIMEOUT;
use timestone_workload::check::Loss;

pub(crate) use self::config::{ClientsTime, MachineConfig, Members, StorageConfig, WorldConfig};
use self::interruptions::Interruptions;
use self::population::Population;
use self::queue::{EventQueue, Occurrence, Planned};
use crate::board::Board;
use crate::clock::TrueTime;
use crate::error::SimError;
use crate::master::OutsideMaster;
use crate::network::{ProcessId, SimNetwork};
use crate::process::{PlannedCrash, ProcessLife, Role};
use crate::processes::Processes;
use crate::refusals::Refusal;
use crate::restarts::{FLUSH_SLACK, RestartChange};
use crate::trace::{Trace, TraceLine};
use timestone_types::random::Seed;

/// The longest that it takes until the peers of a process that died within a turn are told: what it
/// wrote last may be read before.
const TEARDOWN: Duration = Duration::from_millis(5);

/// Why the owner of the world has it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paused {
    /// A look that was planned, by its token.
    Look(u64),
    /// Nothing is going to happen any more.
    Empty,
}

/// What happened to servers that a run must know to judge it.
#[derive(Default)]
pub(crate) struct Incidents {
    /// Servers that could not start.
    pub(crate) failed_starts: Vec<String>,
    /// Why a server will never start again: it found what a disk that lied had lost, and says so.
    pub(crate) refused: Option<Refusal>,
    /// What restarts changed, and how often.
    pub(crate) changes: BTreeMap<RestartChange, u64>,
    /// When servers without a log may have lost what they had acknowledged.
    pub(crate) losses: Vec<Loss>,
    /// Whether acknowledgements may travel for long, so that what a server without a log holds may
    /// be old.
    pub(crate) may_be_late: bool,
}

pub(crate) struct World {
    pub(crate) config: WorldConfig,
    pub(crate) truth: TrueTime,
    pub(crate) network: SimNetwork,
    pub(crate) board: Arc<Board>,
    pub(crate) trace: Trace,
    pub(crate) processes: Processes,
    pub(crate) machines: Vec<Cores>,
    /// The cluster's master, where no server hosts it.
    pub(crate) master: Option<OutsideMaster>,
    queue: EventQueue,
    ready: Vec<(ProcessId, StageSlot, Readiness)>,
    interruptions: Interruptions,
    seed: Seed,
    pub(crate) incidents: Incidents,
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
    ///
    /// # Errors
    /// No master can found its cluster.
    pub(crate) fn new(
        config: WorldConfig,
        truth: TrueTime,
        board: Arc<Board>,
        seed: Seed,
        keep_lines: usize,
    ) -> Result<Self, SimError> {
        let mut links = config.links.clone();
        let everybody = config.members.processes();
        for process in 0..everybody {
            links.regions.insert(ProcessId(process), process % config.members.regions.max(1));
        }
        let network = SimNetwork::new(links, seed.derive("network", 0));
        let members = &config.members;
        let master = members.outside_master.then(|| {
            let shards = u16::try_from(members.shards()).unwrap_or(u16::MAX);
            let seed = seed.derive("master", 0);
            OutsideMaster::found(truth.clone(), shards, members.replication, seed)
        });
        let master = master.transpose()?;
        let mut world = Self {
            truth,
            master,
            network,
            trace: Trace::new(keep_lines, Arc::clone(&board)),
            board,
            processes: Processes::default(),
            machines: vec![
                Cores::new(config.machine.cores);
                if config.machine.together { 1 } else { everybody as usize }
            ],
            queue: EventQueue::default(),
            ready: Vec::new(),
            interruptions: Interruptions::new(seed),
            seed,
            incidents: Incidents::default(),
            turns: 0,
            config,
        };
        let mut population = Population {
            config: &world.config,
            truth: &world.truth,
            master: world.master.as_ref(),
            seed,
            trace: &mut world.trace,
            processes: &mut world.processes,
            queue: &mut world.queue,
        };
        for number in 0..population.config.members.servers {
            population.add_server(number);
        }
        for number in 0..population.config.members.clients {
            population.add_client(number);
        }
        for number in 0..population.config.members.redis_clients {
            population.add_redis_client(number);
        }
        Ok(world)
    }

    pub(crate) fn now(&self) -> VirtualTime {
        self.truth.now()
    }

    // ---- time ----

    /// Plans that [`World::run`] comes back at a moment.
    pub(crate) fn look_at(&mut self, at: VirtualTime, token: u64) {
        self.queue.plan(at, Occurrence::Look(token));
    }

    /// Lets things happen until a planned look.
    ///
    /// # Errors
    /// A server could not be built for a reason that is no fault of this world.
    pub(crate) fn run(&mut self) -> Result<Paused, SimError> {
        while let Some(Planned { at, what, .. }) = self.queue.next() {
            self.truth.set(at);
            match what {
                Occurrence::Packet(packet) => {
                    let queue = &mut self.queue;
                    self.network.deliver(at, packet, |when, packet| {
                        queue.plan(when, Occurrence::Packet(packet))
                    });
                    self.pass_on_readiness(at);
                }
                Occurrence::Turn(id) => self.turn(id, at)?,
                Occurrence::Device(id, life, device) => self.device(id, life, device, at),
                Occurrence::Start(id) => self.start(id)?,
                Occurrence::Resume(id) => self.resume(id),
                Occurrence::HandedOver(id, life) => {
                    if self.processes[id].lives == life {
                        self.end_stages(id);
                    }
                }
                Occurrence::Look(token) => return Ok(Paused::Look(token)),
            }
        }
        Ok(Paused::Empty)
    }

    fn turn(&mut self, id: ProcessId, at: VirtualTime) -> Result<(), SimError> {
        let process = &mut self.processes[id];
        if process.scheduled.is_some_and(|claim| claim.due == at) {
            process.scheduled = None;
        }
        if process.paused {
            return Ok(());
        }
        self.list_sleepers(id, at);
        let process = &mut self.processes[id];
        process.counter.begins(at);
        let cores = &mut self.machines[process.machine];
        let submitted = process.planned_crash.map(|_| process.submitted());
        if let Some(turn) = process.run(at, cores, self.trace.of(id)) {
            self.turns += 1;
            process.turns += 1;
            if let (Some(crash), Some(submitted)) = (process.planned_crash.take(), submitted) {
                self.die_within(id, crash, turn, &submitted);
                self.pass_on_readiness(at);
                return Ok(());
            }
            let queue = &mut self.queue;
            self.network.flush(turn.begin, turn.end, |when, packet| {
                queue.plan(when, Occurrence::Packet(packet))
            });
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
        if !self.config.machine.together {
            return;
        }
        let mut network = self.network.lock();
        network.sleepers.begin(at, self.machines[self.processes[id].machine].idle_besides());
        for process in self.processes.iter().filter(|process| process.id != id) {
            process.list_sleepers(&mut network.sleepers);
        }
    }

    /// Plans the next turn of a process, if it is not planned early enough.
    pub(crate) fn schedule(&mut self, id: ProcessId) {
        let process = &mut self.processes[id];
        let Some(claim) = process.due().filter(|_| !process.paused) else { return };
        let claim = Claim { due: claim.due.max(self.truth.now()), ..claim };
        if process.scheduled.is_none_or(|planned| claim < planned) {
            process.scheduled = Some(claim);
            self.queue.plan_since(claim.due, claim.since, Occurrence::Turn(id));
        }
    }

    fn pass_on_readiness(&mut self, at: VirtualTime) {
        let mut ready = std::mem::take(&mut self.ready);
        self.network.take_ready(&mut ready);
        for (id, slot, readiness) in ready.drain(..) {
            self.processes[id].ready(at, slot.stage, readiness);
            self.schedule(id);
        }
        self.ready = ready;
    }

    fn plan_devices(&mut self, id: ProcessId) {
        let process = &mut self.processes[id];
        let (life, now) = (process.lives, self.truth.now());
        let ProcessLife::Serving(serving) = &mut process.life else { return };
        if let Role::Server(server) = &process.role {
            serving.devices.find(&server.environment);
        }
        for (index, device) in serving.devices.iter_mut().enumerate() {
            let interruptions = device.charge(&process.counter);
            let due = device.kind.next_due();
            if interruptions > 0 {
                let done = due.map_or(now, VirtualTime::from_nanos);
                self.interruptions.push(interruptions, done);
            }
            if let Some(due) = due
                && device.scheduled.is_none_or(|planned| due < planned)
            {
                device.scheduled = Some(due);
                self.queue.plan(
                    VirtualTime::from_nanos(due).max(now),
                    Occurrence::Device(id, life, index),
                );
            }
        }
        self.interruptions.plan(&self.config, &self.processes, now);
    }

    fn device(&mut self, id: ProcessId, life: u64, index: usize, at: VirtualTime) {
        let process = &mut self.processes[id];
        if process.lives != life {
            return;
        }
        let ProcessLife::Serving(serving) = &mut process.life else { return };
        let Some(device) = serving.devices.get_mut(index) else { return };
        device.scheduled = None;
        let stage = device.stage;
        process.call(at, stage);
        self.schedule(id);
    }

    // ---- lives ----

    /// Writes down what a server that dies now may lose, because it has no log.
    pub(crate) fn note_loss(&mut self, id: ProcessId) {
        let tuning = &self.config.storage.tuning;
        // A put waits for its page, that for its program, and for the sync after the one that is
        // under way; a decision that got lost is asked for.
        let delay = tuning.partial_page_delay
            + 2 * tuning.sync_interval
            + 2 * tuning.participant.decision_timeout;
        let delay = (!self.incidents.may_be_late).then_some(delay + FLUSH_SLACK);
        let now = self.truth.now();
        let process = &mut self.processes[id];
        let (Role::Server(server), ProcessLife::Serving(_)) = (&mut process.role, &process.life)
        else {
            return;
        };
        if let Some(loss) = server.unlogged.dies(now, delay) {
            self.incidents.losses.push(loss);
            self.board.data.lose();
        }
    }

    /// Tells a server's devices apart that cannot keep up, from now on or no longer.
    pub(crate) fn hinder(&mut self, id: ProcessId, hindered: bool) {
        let now = self.truth.now();
        if let Role::Server(server) = &mut self.processes[id].role {
            if hindered { server.unlogged.hinder(now) } else { server.unlogged.ease() }
        }
    }

    /// Takes the lines of the trace that were kept.
    pub(crate) fn take_trace_lines(&mut self) -> Vec<TraceLine> {
        let processes = &self.processes;
        let line = |(id, stage, at, what): (ProcessId, String, VirtualTime, String)| TraceLine {
            at,
            process: processes[id].name.clone(),
            stage,
            what,
        };
        self.trace.take_lines().map(line).collect()
    }

    /// CPU time spent on all machines.
    pub(crate) fn busy(&self) -> Duration {
        self.machines.iter().map(Cores::busy).sum()
    }

    /// Ends a process at once. `silent`: its machine loses its power as well, so that nobody is
    /// told, and devices lose what was not synced.
    pub(crate) fn kill(&mut self, id: ProcessId, silent: bool, seed: Seed) {
        let now = self.truth.now();
        self.trace.note(now, id, if silent { "its machine loses power" } else { "is killed" });
        self.note_loss(id);
        let life = self.take_down(id, silent, now);
        if let Role::Server(server) = &self.processes[id].role {
            server.environment.end(silent, seed);
        }
        drop(life);
    }

    /// Lets a client end as one that is dropped does: what is open is aborted, what was committed
    /// is brought to its participants, its session is closed. A server is stopped as by SIGTERM: what was
    /// begun is finished, checkpoints are written and synced. Another one takes its place at
    /// `until`, or when it is gone. Whether it was not leaving yet.
    pub(crate) fn leave(&mut self, id: ProcessId, until: VirtualTime) -> bool {
        let now = self.truth.now();
        let process = &mut self.processes[id];
        if process.leaving.is_some() {
            return false;
        }
        match &mut process.life {
            ProcessLife::Client { runtime, .. } => runtime.begin_shutdown(now),
            ProcessLife::Serving(serving) => {
                serving.departure.begin();
                process.hands_over = !serving.departure.is_over();
                if process.hands_over {
                    let late = now.after(HAND_OVER_TIMEOUT);
                    self.queue.plan(late, Occurrence::HandedOver(id, process.lives));
                } else {
                    serving.runtime.begin_shutdown(now);
                }
            }
            ProcessLife::Down | ProcessLife::Joining { .. } | ProcessLife::Redis { .. } => {
                return false;
            }
        }
        process.leaving = Some(until);
        self.trace.note(now, id, if process.is_server() { "is stopped" } else { "leaves" });
        self.schedule(id);
        true
    }

    /// A server has handed its primaries over, or others had time enough to take them: its stages
    /// end.
    fn end_stages(&mut self, id: ProcessId) {
        let now = self.truth.now();
        let process = &mut self.processes[id];
        if let ProcessLife::Serving(serving) = &mut process.life
            && std::mem::take(&mut process.hands_over)
        {
            serving.runtime.begin_shutdown(now);
            self.trace.note(now, id, "has handed over");
            self.schedule(id);
        }
    }

    fn look_at_leaving(&mut self, id: ProcessId) {
        let process = &self.processes[id];
        if let ProcessLife::Serving(serving) = &process.life
            && process.hands_over
            && serving.departure.is_over()
        {
            self.end_stages(id);
        }
        let now = self.truth.now();
        let process = &mut self.processes[id];
        let Some(until) = process.leaving.filter(|_| !process.hands_over) else { return };
        let is_drained = match &process.life {
            ProcessLife::Client { runtime, .. } => runtime.is_drained(),
            ProcessLife::Serving(serving) => serving.runtime.is_drained(),
            ProcessLife::Down | ProcessLife::Joining { .. } | ProcessLife::Redis { .. } => false,
        };
        if !is_drained {
            return;
        }
        // Its sockets are closed, and what was written to them arrives.
        drop(self.take_life(id));
        self.trace.note(now, id, "has left");
        let queue = &mut self.queue;
        self.network.flush(now, now, |when, packet| queue.plan(when, Occurrence::Packet(packet)));
        if let Role::Server(server) = &mut self.processes[id].role {
            server.unlogged.stops(now);
            let seed = self.seed.derive("stop", u64::from(id.0) << 32 | server.starts);
            server.environment.end(false, seed);
            self.network.end_process(id, false, now, |when, packet| {
                queue.plan(when, Occurrence::Packet(packet))
            });
        }
        self.queue.plan(until.max(now), Occurrence::Start(id));
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
        self.processes[id].planned_crash.get_or_insert(PlannedCrash { silent, seed, until });
    }

    /// A turn has ended in its middle; `submitted` is what the log disks had been asked for before
    /// it.
    fn die_within(
        &mut self,
        id: ProcessId,
        crash: PlannedCrash,
        turn: SimulatedTurn,
        submitted: &[u64],
    ) {
        let (PlannedCrash { silent, seed, until }, SimulatedTurn { begin, end, .. }) =
            (crash, turn);
        let words = if silent {
            "its machine loses power within a turn"
        } else {
            "is killed within a turn"
        };
        self.trace.note(end, id, words);
        let mut dice = seed.derive("output", 0).dice();
        self.network.cut_output(id, &mut dice);
        let queue = &mut self.queue;
        self.network.flush(begin, end, |when, packet| queue.plan(when, Occurrence::Packet(packet)));
        let told = end.after(Duration::from_nanos(dice.below(TEARDOWN.as_nanos() as u64 + 1)));
        if let Role::Server(server) = &self.processes[id].role {
            server.environment.cut_submissions(seed);
        }
        self.note_loss(id);
        // Its devices see what was handed in when they are dropped.
        drop(self.take_down(id, silent, told));
        if let Role::Server(server) = &self.processes[id].role {
            server.environment.end_after(Some(submitted), silent, seed);
        }
        self.start_at(id, until.max(told));
    }

    /// Takes a process's life. Its peers are told at `told`, unless its machine is gone as well.
    fn take_down(&mut self, id: ProcessId, silent: bool, told: VirtualTime) -> ProcessLife {
        let queue = &mut self.queue;
        self.network.end_process(id, silent, told, |when, packet| {
            queue.plan(when, Occurrence::Packet(packet))
        });
        self.take_life(id)
    }

    /// Ends a life: nothing that was planned for it holds any more, and what its sessions had begun
    /// has an unknown end.
    fn take_life(&mut self, id: ProcessId) -> ProcessLife {
        let process = &mut self.processes[id];
        let life = std::mem::replace(&mut process.life, ProcessLife::Down);
        process.hands_over = false;
        (process.paused, process.planned_crash, process.leaving, process.scheduled) =
            (false, None, None, None);
        process.lives += 1;
        if matches!(life, ProcessLife::Client { .. } | ProcessLife::Serving(_)) {
            self.board.abandon(process.slots());
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
        let process = &self.processes[id];
        let (ProcessLife::Serving(serving), Role::Server(server)) = (&process.life, &process.role)
        else {
            return;
        };
        let usual = server.config.sizes.cache_bytes;
        serving.caches.resize(scarce.map_or(usual, |(cache_bytes, _)| cache_bytes));
        for &(stage, limit) in &serving.admission {
            serving.runtime.set_admission(stage, scarce.map_or(limit, |(_, admission)| admission));
        }
    }

    /// Plans that a process that is down starts.
    pub(crate) fn start_at(&mut self, id: ProcessId, at: VirtualTime) {
        self.queue.plan(at, Occurrence::Start(id));
    }

    /// Stops a process until it is resumed.
    pub(crate) fn pause(&mut self, id: ProcessId, until: VirtualTime) {
        self.trace.note(self.truth.now(), id, "is paused");
        self.processes[id].paused = true;
        self.queue.plan(until, Occurrence::Resume(id));
    }

    fn resume(&mut self, id: ProcessId) {
        if std::mem::take(&mut self.processes[id].paused) {
            self.trace.note(self.truth.now(), id, "goes on");
            self.schedule(id);
        }
    }

    /// Heals one link, or all.
    pub(crate) fn heal(&mut self, link: Option<(ProcessId, ProcessId)>) {
        let now = self.truth.now();
        let queue = &mut self.queue;
        self.network.heal(link, now, |when, packet| queue.plan(when, Occurrence::Packet(packet)));
        self.pass_on_readiness(now);
    }

    /// Breaks a connection drawn by the dice. Whether there was one.
    pub(crate) fn break_connection(&mut self, dice: &mut timestone_types::random::Dice) -> bool {
        let broken = self.network.break_one(dice);
        self.pass_on_readiness(self.truth.now());
        broken
    }
}

/// How long the threads of a process with so many look around before they sleep: not at all where
/// its peers want the cores as well.
pub(crate) fn spin_of(config: &WorldConfig, threads: usize) -> Spin {
    if config.machine.together && threads < config.machine.cores {
        Spin::default()
    } else {
        Spin::Off
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Clients end on the thread that they lived on, before the board that their tasks share.
        for process in self.processes.iter_mut() {
            process.life = ProcessLife::Down;
        }
    }
}
