//! What the work of a process costs in virtual time.
//!
//! ```text
//!   costs.toml ─► CostTable ─► Costs ──► Priced: a process's turns, stages, events and frames ─► SimulatedRuntime
//!        ▲                        └────► Counter: its sockets' and devices' system calls ─► Meter ─┘
//!        └─ fit ◄─ Samples ◄─ Priced with a stopwatch: what stages really took, and what they were given (calibration)
//! ```
//! The figures are those of this code on one core of the machine that docs/benchmarks.md names; a scenario may scale them, and
//! `timestone sim --costs` takes others. What they mean and how they are found is in docs/design/simulator.md.

mod core;
mod fit;
mod measure;
mod table;

use std::sync::Arc;
use std::time::Duration;

use timestone_client::ClientStageEvent;
use timestone_flash::FlashPace;
use timestone_seda::simulated::{CostModel, Meter};
use timestone_seda::{NetCommand, NetEvent, StageId};
use timestone_server::Event;
use timestone_wal::device::memory::DiskPace;
use timestone_wire::Frames;

pub use measure::{Samples, Stopwatch};
pub use table::{CostTable, DeviceCosts, SocketCosts, StageCosts, StageKind, ThreadCosts, Varying};

use crate::premises::DevicePace;
use crate::seed::Seed;
use core::CoreChances;
pub(crate) use measure::Counts;
use measure::Taking;
use table::Compiled;

/// CPU costs, all multiplied by a scale.
#[derive(Clone, Debug)]
pub(crate) struct Costs {
    /// How much slower than the measured machine the simulated one is.
    pub(crate) scale: f64,
    /// The other ends of connections are on other cores of the same machine.
    far: bool,
    /// The stages of servers are on several cores.
    spread: bool,
    figures: Arc<Figures>,
}

#[derive(Debug)]
struct Figures {
    table: CostTable,
    /// On one core, and on several.
    stages: [Vec<Compiled>; 2],
}

impl Costs {
    /// From a table.
    pub(crate) fn new(table: CostTable) -> Self {
        let stages = [false, true].map(|several_cores| Compiled::all(&table, several_cores));
        Self { scale: 1.0, far: false, spread: false, figures: Arc::new(Figures { table, stages }) }
    }

    /// The same for processes that share a machine or not, where connections are between its cores when it has several, and for stages that have
    /// a thread each or share one.
    pub(crate) fn placed(&self, together: bool, cores: usize, staged: bool) -> Self {
        Self { far: together && cores > 1, spread: staged && cores > 1, ..self.clone() }
    }

    /// How many times as long work takes where arithmetic takes so many times as long, for others have the other half of the cores.
    pub(crate) fn beside(&self, times: f64) -> f64 {
        ThreadCosts::beside(self.figures.table.thread.neighbours, times)
    }

    fn stage(&self, kind: StageKind) -> &Compiled {
        &self.figures.stages[usize::from(self.spread)][kind as usize]
    }

    /// How fast the measured machine's devices are.
    pub(crate) fn pace(&self) -> DevicePace {
        let device = &self.figures.table.device;
        let span = |nanos: f64| Duration::from_nanos(nanos as u64);
        DevicePace {
            flash: FlashPace {
                read: span(device.flash_read_latency),
                program: span(device.flash_program_latency),
                per_page: Duration::ZERO,
                erase: span(device.flash_read_latency),
                sync: span(device.log_latency),
                spread: span(device.flash_read_latency / 4.0),
                seed: 0,
            },
            disk: DiskPace {
                write: span(device.log_latency),
                write_per_kib: span(device.flash_program_latency / 1024.0),
                change: span(device.log_latency * 10.0),
                spread: span(device.log_latency / 4.0),
                seed: 0,
            },
        }
    }

    /// The model of a process with these stages.
    pub(crate) fn of_process(kinds: Vec<StageKind>, counter: &Counter, watch: Option<&Stopwatch>) -> Priced {
        let taking = watch.map(|watch| Taking::new(watch.clone(), kinds.clone(), Arc::clone(&counter.counts)));
        Priced { counter: counter.clone(), kinds, taking }
    }
}

/// The cost model of one process.
pub(crate) struct Priced {
    counter: Counter,
    kinds: Vec<StageKind>,
    taking: Option<Taking>,
}

impl Priced {
    fn kind(&self, stage: StageId) -> StageKind {
        self.kinds.get(stage.index()).copied().unwrap_or(StageKind::Other)
    }

    fn begin_turn(&mut self, core: usize) -> Duration {
        if let Some(taking) = &mut self.taking {
            taking.turn(core);
        }
        self.counter.spends(self.counter.thread().turn)
    }

    fn run(&mut self, stage: StageId) -> Duration {
        if let Some(taking) = &mut self.taking {
            taking.ran(stage);
        }
        self.counter.spends(self.counter.own(self.kind(stage)).run)
    }

    /// An event without bytes, or with these.
    fn given(&mut self, stage: StageId, bytes: &[u8]) -> Duration {
        let kind = self.kind(stage);
        let compiled = self.counter.costs.stage(kind);
        let mut nanos = compiled.own.event + compiled.own.byte * bytes.len() as f64;
        if let Some(taking) = &mut self.taking {
            taking.event(stage, bytes.len());
        }
        if kind.takes_frames() {
            for frame in Frames::new(bytes).map_while(Result::ok) {
                nanos += compiled.frames[frame.kind() as usize];
                if let Some(taking) = &mut self.taking {
                    taking.frame(stage, frame.kind());
                }
            }
        }
        self.counter.spends(nanos)
    }
}

fn bytes_of(event: &Event) -> &[u8] {
    match event {
        Event::Parcel(parcel) => &parcel.bytes,
        Event::LogAppend(append) => &append.bytes,
        _ => &[],
    }
}

fn bytes_of_client(event: &ClientStageEvent) -> &[u8] {
    match event {
        ClientStageEvent::Net(NetEvent::Parcel(parcel)) | ClientStageEvent::Command(NetCommand::Send(parcel)) => {
            &parcel.bytes
        }
        _ => &[],
    }
}

/// The same model for both kinds of processes, which differ in where an event has its bytes.
macro_rules! cost_model {
    ($event:ty, $bytes:expr) => {
        impl CostModel<$event> for Priced {
            fn turn(&mut self, core: usize) -> Duration {
                self.begin_turn(core)
            }

            fn stage(&mut self, stage: StageId) -> Duration {
                self.run(stage)
            }

            fn event(&mut self, stage: StageId, event: &$event) -> Duration {
                self.given(stage, $bytes(event))
            }

            fn begins(&mut self, _stage: StageId) {
                if let Some(taking) = &mut self.taking {
                    taking.begins();
                }
            }

            fn ends(&mut self, stage: StageId) {
                if let Some(taking) = &mut self.taking {
                    taking.ends(stage);
                }
            }

            fn switch(&self) -> Duration {
                self.counter.spends(self.counter.thread().switch)
            }

            fn wake_latency(&mut self, idle: Duration) -> Duration {
                self.counter.wake_latency(idle)
            }

            fn wake_call(&self, idle: Option<Duration>) -> Duration {
                self.counter.wake_call(idle)
            }
        }
    };
}

cost_model!(Event, bytes_of);
cost_model!(ClientStageEvent, bytes_of_client);

/// Counts and charges what a process does outside of its stages' own code: system calls on sockets, and devices. Whatever the process spends
/// is spent here, with the interruptions that fall into it.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    costs: Costs,
    net: StageKind,
    meter: Meter,
    counts: Arc<Counts>,
    core: Arc<CoreChances>,
}

impl Counter {
    /// Of one life of a process, whose connections belong to a stage of this kind.
    pub(crate) fn new(costs: &Costs, net: StageKind, seed: Seed) -> Self {
        let core = Arc::new(CoreChances::new(seed, &costs.figures.table.thread));
        Self { costs: costs.clone(), net, meter: Meter::default(), counts: Arc::default(), core }
    }

    pub(crate) fn meter(&self) -> Meter {
        self.meter.clone()
    }

    fn thread(&self) -> &ThreadCosts {
        &self.costs.figures.table.thread
    }

    fn socket(&self) -> &SocketCosts {
        &self.costs.figures.table.socket
    }

    fn device(&self) -> &DeviceCosts {
        &self.costs.figures.table.device
    }

    fn own(&self, kind: StageKind) -> &StageCosts {
        &self.costs.stage(kind).own
    }

    /// So many nanoseconds on the measured machine are, here and now, so much.
    fn spends(&self, nanos: f64) -> Duration {
        Duration::from_nanos(self.core.interrupt(self.thread(), nanos * self.costs.scale) as u64)
    }

    fn charge(&self, nanos: f64) {
        self.meter.charge(self.spends(nanos));
    }

    fn wake_latency(&self, idle: Duration) -> Duration {
        Duration::from_nanos((self.core.wake_latency(self.thread(), idle) * self.costs.scale) as u64)
    }

    fn wake_call(&self, idle: Option<Duration>) -> Duration {
        let thread = self.thread();
        let halted = idle.is_some_and(|idle| idle >= ThreadCosts::HALTING);
        self.spends(if halted { thread.wake_idle } else { thread.wake_call })
    }

    pub(crate) fn read(&self, bytes: usize) {
        self.counts.read(bytes);
        let (socket, own) = (self.socket(), self.own(self.net));
        let byte = if self.costs.far { socket.far_read_byte } else { socket.read_byte };
        self.charge(socket.read + own.read + (byte + own.read_byte) * bytes as f64);
    }

    pub(crate) fn write(&self) {
        self.counts.write();
        self.charge(self.socket().write + self.own(self.net).write);
    }

    /// What a write took of what it was given. How far the turn is with it.
    pub(crate) fn written(&self, bytes: usize) -> Duration {
        self.counts.written(bytes);
        let socket = self.socket();
        let byte = if self.costs.far { socket.far_write_byte } else { socket.write_byte };
        self.charge((byte + self.own(self.net).write_byte) * bytes as f64);
        self.meter.elapsed()
    }

    /// Something was sent to a thread of the same machine that sleeps; `idle`: a core that has had nothing to do for so long is called for it.
    pub(crate) fn wake(&self, idle: Option<Duration>) {
        self.meter.charge(self.wake_call(idle));
    }

    /// What `bench` would write down of a transaction.
    pub(crate) fn bookkeeping(&self) {
        self.charge(self.costs.figures.table.bookkeeping);
    }

    pub(crate) fn open(&self) {
        self.charge(self.socket().open);
    }

    /// What a flash device was asked for.
    pub(crate) fn flash(&self, operations: u64, bytes: u64) {
        self.counts.flash(bytes);
        let (device, shard) = (self.device(), self.own(StageKind::Shard));
        self.charge(device.flash * operations as f64 + (device.flash_byte + shard.flash_byte) * bytes as f64);
    }

    /// What a log's disk was asked for.
    pub(crate) fn log(&self, operations: u64, bytes: u64) {
        let device = self.device();
        self.charge(device.log * operations as f64 + device.log_byte * bytes as f64);
    }
}
