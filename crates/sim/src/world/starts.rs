//! How a process begins: a client connects, a server joins the cluster if it is not known there, and
//! is built as production builds it.
//!
//! ```text
//!   down ── start ──► joining ── registered ──► serving          cannot start ──► down, and again after a pause
//! ```

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use timestone_costmodel::{Costs, StageKind};
use timestone_seda::simulated::{SimulatedConfig, SimulatedRuntime};
use timestone_server::{AcceptedLoss, MasterPlace, ServerError, ServerStages, joining};
use timestone_types::ShardId;

use super::population::counter_of;
use super::queue::Occurrence;
use super::{World, spin_of};
use crate::devices::Devices;
use crate::error::SimError;
use crate::network::ProcessId;
use crate::process::{ClientRole, ProcessLife, RedisRole, Role, Serving, SharedNetwork};
use crate::refusals::{Refusal, is_of_configuration, names_damage};
/// A server that could not start is started again after this long.
const START_PAUSE: Duration = Duration::from_millis(500);

impl World {
    pub(super) fn start(&mut self, id: ProcessId) -> Result<(), SimError> {
        if !matches!(self.processes[id].life, ProcessLife::Down) || self.processes[id].is_gone {
            return Ok(());
        }
        self.network.begin_process(id);
        let process = &self.processes[id];
        let counter = counter_of(&self.config, self.seed, id, &process.role, process.lives + 1);
        let process = &mut self.processes[id];
        process.lives += 1;
        process.counter = counter;
        process.paused = false;
        process.scheduled = None;
        let network: SharedNetwork = Arc::new(self.network.host(id, process.counter.clone()));
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
        match &self.processes[id].role {
            Role::Server(_) => self.serve(id),
            Role::Client(_) => self.connect(id, network),
            Role::Redis(_) => self.connect_redis(id, network),
        }
    }

    fn join(&mut self, id: ProcessId, network: SharedNetwork) -> Result<(), SimError> {
        let now = self.truth.now();
        let process = &mut self.processes[id];
        let Role::Server(server) = &process.role else { return Ok(()) };
        let MasterPlace::Remote(master) = server.config.master else { return Ok(()) };
        let wish = joining(&server.config, Arc::new(server.environment.clone()))
            .map_err(SimError::world)?;
        let (stages, layout, outcome) = crate::joining::stages(master, wish, network);
        let config =
            SimulatedConfig { meter: process.counter.meter(), ..SimulatedConfig::default() };
        let runtime = SimulatedRuntime::start(stages, &layout, config, now, &process.clock)
            .map_err(SimError::world)?;
        self.trace.name_stages(id, runtime.names());
        process.life = ProcessLife::Joining { runtime, outcome };
        self.schedule(id);
        Ok(())
    }

    pub(super) fn look_at_joining(&mut self, id: ProcessId) -> Result<(), SimError> {
        let process = &mut self.processes[id];
        let ProcessLife::Joining { outcome, .. } = &process.life else { return Ok(()) };
        let Some(outcome) = outcome.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(());
        };
        match outcome {
            Ok(registration) => {
                if let Role::Server(server) = &process.role {
                    server.environment.registered(registration);
                }
                // The joining life ends as a process would: its sockets are closed.
                process.life = ProcessLife::Down;
                let queue = &mut self.queue;
                self.network.flush(self.truth.now(), self.truth.now(), |when, packet| {
                    queue.plan(when, Occurrence::Packet(packet))
                });
                self.serve(id)
            }
            Err(words) => {
                let words = format!("{} was refused by the master: {words}", process.name);
                process.life = ProcessLife::Down;
                self.fail_start(id, words);
                Ok(())
            }
        }
    }

    fn serve(&mut self, id: ProcessId) -> Result<(), SimError> {
        let now = self.truth.now();
        let process = &mut self.processes[id];
        let lives = process.lives;
        let Role::Server(server) = &mut process.role else { return Ok(()) };
        let drawn = self.seed.derive("restart", u64::from(id.0) << 32 | lives);
        for change in
            self.config.vary.draw(&self.config, &mut server.config, server.starts == 0, drawn)
        {
            *self.incidents.changes.entry(change).or_default() += 1;
        }
        server.environment.set_now(now);
        if self.config.vary.index && server.starts > 0 {
            self.convert(id, drawn.derive("index", 0))?;
        }
        let process = &mut self.processes[id];
        let Role::Server(server) = &mut process.role else { return Ok(()) };
        let environment = Arc::new(server.environment.clone());
        let mut embedded = Vec::new();
        let built = if server.slots.is_empty() {
            ServerStages::build(&server.config, environment)
        } else {
            let engine = self.config.engine;
            ServerStages::build_with(&server.config, environment, |slots| {
                let clients = slots.iter().map(|slot| {
                    let (stage, attachment) = slot.client(engine).split();
                    embedded.push((slot.stage, attachment.attach_by_hand()));
                    stage
                });
                clients.collect()
            })
        };
        let built = match built {
            Ok(built) => built,
            Err(error) => return self.fail_to_build(id, &error),
        };
        server.starts += 1;
        server.environment.has_started();
        server.config.accept_loss = AcceptedLoss::Nothing;
        server.unlogged.begins(server.config.log, now);
        let (figures, caches) = (Box::new(built.figures()), built.caches());
        let departure = built.departure();
        let (connections, replicas) = (Box::new(built.connections()), Box::new(built.replicas()));
        if server.starts > 1 {
            let shards: Vec<ShardId> = built.shards.iter().map(|(shard, _)| *shard).collect();
            let total = self.config.members.shards();
            self.board.lose_memory(&shards, u16::try_from(total).unwrap_or(u16::MAX));
        }
        let ServerStages { stages, layout, admission, server: number, shards, logs, .. } = built;
        let devices = Devices::of(&server.environment, shards, &logs);
        let kinds = stages.iter().map(|stage| StageKind::of_server(stage.name())).collect();
        let costs =
            Costs::of_process(kinds, &process.counter, self.config.machine.stopwatch.as_ref());
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
        process.life = ProcessLife::Serving(Box::new(Serving {
            runtime,
            departure,
            devices,
            server: number,
            figures,
            replicas,
            connections,
            caches,
            admission,
            embedded,
        }));
        let queue = &mut self.queue;
        self.network.flush(now, now, |when, packet| queue.plan(when, Occurrence::Packet(packet)));
        self.plan_devices(id);
        self.pass_on_readiness(now);
        self.schedule(id);
        Ok(())
    }

    /// A server could not be built. It is told to accept what a disk that lied has lost, or is
    /// refused for good, or is started again.
    fn fail_to_build(&mut self, id: ProcessId, error: &ServerError) -> Result<(), SimError> {
        let process = &mut self.processes[id];
        let words = format!("{} could not start: {error}", process.name);
        if is_of_configuration(error) {
            return Err(SimError::world(words));
        }
        let Role::Server(server) = &mut process.role else { return Ok(()) };
        if matches!(error, ServerError::OlderCopy { .. }) && server.environment.is_older() {
            // What an operator says who does not have the latest one any more.
            server.config.accept_loss = AcceptedLoss::Everything;
        } else if server.environment.was_lied_to() {
            match error {
                // What an operator says who has no backup.
                ServerError::Missing { .. } => {
                    server.config.accept_loss = AcceptedLoss::Everything;
                }
                _ => {
                    let is_clear = names_damage(error);
                    self.incidents.refused = Some(Refusal { is_clear, words: words.clone() });
                }
            }
        }
        process.life = ProcessLife::Down;
        self.fail_start(id, words);
        Ok(())
    }

    /// A server did not come up: whoever looks after it starts it again. After the faults that is a
    /// finding, for it stays down.
    fn fail_start(&mut self, id: ProcessId, words: String) {
        let now = self.truth.now();
        self.trace.note(now, id, &words);
        self.incidents.failed_starts.push(words);
        let queue = &mut self.queue;
        self.network.end_process(id, false, now, |when, packet| {
            queue.plan(when, Occurrence::Packet(packet))
        });
        self.queue.plan(now.after(START_PAUSE), Occurrence::Start(id));
    }
}
