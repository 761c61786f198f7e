//! The lives of clients: how their stages come up, and how sessions are begun in them.

use std::sync::Arc;

use timestone_client::{ClientStageEvent, ClientStages, ConnectOptions, Db};
use timestone_clock::Clock;
use timestone_seda::simulated::{LocalTime, SimulatedConfig, SimulatedRuntime};
use timestone_seda::{Layout, Stage};

use crate::clock::{ClientTime, TimeJudge};
use crate::error::SimError;
use crate::network::ProcessId;
use crate::process::{ProcessLife, Role, SharedNetwork};
use crate::world::{World, spin_of};
use timestone_costmodel::{Costs, StageKind};

/// An event loop among those of its process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventLoop {
    pub(crate) number: usize,
    pub(crate) of: usize,
}

impl World {
    pub(crate) fn connect_redis(
        &mut self,
        id: ProcessId,
        network: SharedNetwork,
    ) -> Result<(), SimError> {
        let process = &self.processes[id];
        let (Role::Redis(redis), Some(calls)) = (&process.role, &self.board.redis) else {
            return Ok(());
        };
        let seed = redis.seed.derive("life", redis.lives);
        let (stages, layout) =
            crate::redis::stages(calls, &redis.servers, redis.places.clone(), seed, network);
        let clock = self.processes[id].clock.clone();
        let runtime = self.client_runtime(id, stages, &layout, &clock)?;
        self.processes[id].life = ProcessLife::Redis { runtime };
        self.schedule(id);
        Ok(())
    }

    /// The runtime of a process of clients, of whatever kind, which go by `clock`.
    fn client_runtime(
        &mut self,
        id: ProcessId,
        stages: Vec<Box<dyn Stage<ClientStageEvent>>>,
        layout: &Layout,
        clock: &dyn LocalTime,
    ) -> Result<SimulatedRuntime<ClientStageEvent>, SimError> {
        let now = self.truth.now();
        let process = &self.processes[id];
        let kinds = stages.iter().map(|stage| StageKind::of_client(stage.name())).collect();
        let costs =
            Costs::of_process(kinds, &process.counter, self.config.machine.stopwatch.as_ref());
        let config = SimulatedConfig {
            spin: spin_of(&self.config, layout.threads.len()),
            costs: Box::new(costs),
            meter: process.counter.meter(),
            ..SimulatedConfig::default()
        };
        let runtime =
            SimulatedRuntime::start(stages, layout, config, now, clock).map_err(SimError::world)?;
        self.trace.name_stages(id, runtime.names());
        Ok(runtime)
    }

    pub(crate) fn connect(
        &mut self,
        id: ProcessId,
        network: SharedNetwork,
    ) -> Result<(), SimError> {
        let process = &self.processes[id];
        let Role::Client(client) = &process.role else { return Ok(()) };
        let clock: Arc<dyn Clock> = Arc::new(process.clock.clone());
        // Servers come back: clients of the simulation wait for them.
        let options = ConnectOptions {
            name: process.name.clone(),
            engine: self.config.engine,
            refused_timeout: ConnectOptions::default().connect_timeout,
            server_time: self.config.clients_time.is_followed,
            ..ConnectOptions::default()
        };
        let seed = client.seed.derive("engine", client.lives).0;
        let built = ClientStages::build(&client.url, &options, &clock, network, seed)
            .map_err(SimError::world)?;
        let ClientStages { stages, event_loop, db, followed, .. } = built;
        let layout = Layout::single(u16::try_from(stages.len()).unwrap_or(u16::MAX));
        let own = self.processes[id].clock.clone();
        let time = ClientTime { own, followed };
        let runtime = self.client_runtime(id, stages, &layout, &time)?;
        self.processes[id].life = ProcessLife::Client { runtime, db, event_loop, time };
        self.schedule(id);
        Ok(())
    }

    /// Runs something on the event loop of a client that is up; where it is embedded, on each one of
    /// its process, which is told with how many others it is.
    pub(crate) fn on_client(&mut self, id: ProcessId, mut begin: impl FnMut(&Db, EventLoop)) {
        let now = self.truth.now();
        let mut called = Vec::new();
        match &self.processes[id].life {
            ProcessLife::Client { db, event_loop, .. } => {
                begin(db, EventLoop { number: 0, of: 1 });
                called.push(*event_loop);
            }
            ProcessLife::Serving(serving) => {
                let of = serving.embedded.len();
                for (number, (event_loop, db)) in serving.embedded.iter().enumerate() {
                    begin(db, EventLoop { number, of });
                    called.push(*event_loop);
                }
            }
            ProcessLife::Down | ProcessLife::Joining { .. } | ProcessLife::Redis { .. } => {}
        }
        for event_loop in called {
            self.processes[id].call(now, event_loop);
        }
        self.schedule(id);
    }

    /// Begins the sessions of a client in its slots, those of embedded clients in turn.
    pub(crate) fn begin_sessions(&mut self, id: ProcessId) {
        let (board, process) = (Arc::clone(&self.board), &self.processes[id]);
        let (slots, is_native) = (process.slots(), process.is_native());
        if slots.is_empty() {
            return;
        }
        let (counter, clock) = (process.counter.clone(), process.clock.clone());
        // Whoever is embedded goes by its server's clock.
        let judged = (self.config.clients_time.is_followed && is_native).then_some(clock);
        self.on_client(id, |db, event_loop| {
            let own = slots.clone().enumerate().skip(event_loop.number).step_by(event_loop.of);
            for (number, slot) in own {
                let (board, counter) = (Arc::clone(&board), counter.clone());
                let judge = judged.clone().map(TimeJudge::new);
                board.session_begins(slot);
                // The task tells the board what comes of it.
                drop(db.spawn(move |local| {
                    crate::session::run(local, board, (slot, number), counter, judge)
                }));
            }
        });
    }
}
