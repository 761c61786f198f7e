//! What the work of a process costs in virtual time.
//!
//! ```text
//!   costs.toml ─► CostTable ─► Costs ──► Priced: a process's turns, stages, events and frames ─► SimulatedRuntime
//!        ▲                        └────► Counter: its sockets' and devices' system calls ─► Meter ─┘
//!        └─ fit ◄─ Samples ◄─ Priced with a stopwatch: what stages really took, and what they were given (calibration)
//! ```
//! The figures are those of this code on one core of the machine that docs/benchmarks.md names; a
//! scenario may scale them, and `timestone sim --costs` takes others. What they mean and how they
//! are found is in docs/lab/predictions.md.

mod chances;
mod fit;
mod measure;
mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use timestone_client::ClientStageEvent;
use timestone_flash::FlashPace;
use timestone_seda::simulated::{CostModel, Meter, VirtualTime};
use timestone_seda::{NetCommand, NetEvent, StageId};
use timestone_server::Event;
use timestone_wal::device::memory::DiskPace;
use timestone_wire::Frames;

pub use fit::prices;
pub use measure::{Samples, Stopwatch};
pub use table::{CostTable, DeviceCosts, SocketCosts, StageCosts, StageKind, ThreadCosts, Varying};

use chances::CoreChances;
use measure::Counts;
use measure::Taking;
use table::Compiled;
use timestone_types::random::Seed;

/// How fast the devices of a server are.
#[derive(Clone, Copy, Debug)]
pub struct DevicePace {
    /// Its flash devices.
    pub flash: FlashPace,
    /// The devices of its logs.
    pub disk: DiskPace,
}

/// Costs cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CostError(String);

/// CPU costs, all multiplied by a scale.
#[derive(Clone, Debug)]
pub struct Costs {
    /// How much slower than the measured machine the simulated one is.
    pub scale: f64,
    /// The other ends of connections are on other cores of the same machine.
    far: bool,
    /// The stages of servers are on several cores.
    spread: bool,
    figures: Arc<CostFigures>,
}

#[derive(Debug)]
struct CostFigures {
    table: CostTable,
    /// On one core, and on several.
    stages: [Vec<Compiled>; 2],
}

impl Costs {
    /// From a table.
    pub fn new(table: CostTable) -> Self {
        let stages = [false, true].map(|several_cores| Compiled::all(&table, several_cores));
        Self {
            scale: 1.0,
            far: false,
            spread: false,
            figures: Arc::new(CostFigures { table, stages }),
        }
    }

    /// The same for processes that share a machine or not, where connections are between its cores
    /// when it has several, and for stages that have a thread each or share one.
    pub fn placed(&self, together: bool, cores: usize, staged: bool) -> Self {
        Self { far: together && cores > 1, spread: staged && cores > 1, ..self.clone() }
    }

    /// How many times as long work takes where arithmetic takes so many times as long, for others
    /// have the other half of the cores.
    pub fn beside(&self, times: f64) -> f64 {
        ThreadCosts::beside(self.figures.table.thread.neighbours, times)
    }

    fn stage(&self, kind: StageKind) -> &Compiled {
        &self.figures.stages[usize::from(self.spread)][kind as usize]
    }

    /// How fast the measured machine's devices are.
    pub fn pace(&self) -> DevicePace {
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
    pub fn of_process(
        kinds: Vec<StageKind>,
        counter: &Counter,
        watch: Option<&Stopwatch>,
    ) -> Priced {
        let taking = watch
            .map(|watch| Taking::new(watch.clone(), kinds.clone(), Arc::clone(&counter.counts)));
        Priced { counter: counter.clone(), kinds, taking }
    }
}

/// The cost model of one process.
pub struct Priced {
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
        let kind = self.kind(stage);
        let put_off = if kind == StageKind::Shard { self.counter.put_off.some() } else { 0.0 };
        self.counter.spends(self.counter.own(kind).run + put_off)
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
        Event::FrameBatch(frame_batch) => &frame_batch.bytes,
        Event::LogAppend(append) => &append.bytes,
        _ => &[],
    }
}

fn bytes_of_client(event: &ClientStageEvent) -> &[u8] {
    match event {
        ClientStageEvent::Net(NetEvent::FrameBatch(frame_batch))
        | ClientStageEvent::Command(NetCommand::Send(frame_batch)) => &frame_batch.bytes,
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

/// Work of shards that is not done at once: a store fills a group of pages put by put before it is
/// programmed, and looks through one that was read a few pages at a time, as fast as others are
/// written.
#[derive(Debug, Default)]
struct PutOff(AtomicU64);

impl PutOff {
    /// What is put off is done over about so many runs of shards.
    const RUNS: u64 = 32;
    /// No less is done at once, in nanoseconds.
    const LEAST: u64 = 500;

    fn add(&self, nanos: f64) {
        self.0.fetch_add(nanos as u64, Ordering::Relaxed);
    }

    /// What a run does of it, in nanoseconds.
    fn some(&self) -> f64 {
        let all = self.0.load(Ordering::Relaxed);
        let some = all.min((all / Self::RUNS).max(Self::LEAST));
        self.0.fetch_sub(some, Ordering::Relaxed);
        some as f64
    }
}

/// Counts and charges what a process does outside of its stages' own code: system calls on sockets,
/// and devices. Whatever the process spends is spent here, with the interruptions that fall into
/// it.
#[derive(Clone, Debug)]
pub struct Counter {
    costs: Costs,
    net: StageKind,
    meter: Meter,
    counts: Arc<Counts>,
    core: Arc<CoreChances>,
    put_off: Arc<PutOff>,
}

impl Counter {
    /// Of one life of a process, whose connections belong to a stage of this kind.
    pub fn new(costs: &Costs, net: StageKind, seed: Seed) -> Self {
        let core = Arc::new(CoreChances::new(seed, &costs.figures.table.thread));
        let (meter, counts, put_off) = Default::default();
        Self { costs: costs.clone(), net, meter, counts, core, put_off }
    }

    /// What the runtime asks for the costs of a turn.
    pub fn meter(&self) -> Meter {
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
        let elapsed = || self.meter.elapsed();
        Duration::from_nanos(
            self.core.interrupt(self.thread(), elapsed, nanos * self.costs.scale) as u64
        )
    }

    fn charge(&self, nanos: f64) {
        self.meter.charge(self.spends(nanos));
    }

    fn wake_latency(&self, idle: Duration) -> Duration {
        Duration::from_nanos(
            (self.core.wake_latency(self.thread(), idle) * self.costs.scale) as u64,
        )
    }

    fn wake_call(&self, idle: Option<Duration>) -> Duration {
        let thread = self.thread();
        let halted = idle.is_some_and(|idle| idle >= ThreadCosts::HALTING);
        self.spends(if halted { thread.wake_idle } else { thread.wake_call })
    }

    /// A socket was read.
    pub fn read(&self, bytes: usize) {
        self.counts.read(bytes);
        let (socket, own) = (self.socket(), self.own(self.net));
        let byte = if self.costs.far { socket.far_read_byte } else { socket.read_byte };
        self.charge(socket.read + own.read + (byte + own.read_byte) * bytes as f64);
    }

    /// A socket is written to.
    pub fn write(&self) {
        self.counts.write();
        self.charge(self.socket().write + self.own(self.net).write);
    }

    /// What a write took of what it was given. How far the turn is with it.
    pub fn written(&self, bytes: usize) -> Duration {
        self.counts.written(bytes);
        let socket = self.socket();
        let byte = if self.costs.far { socket.far_write_byte } else { socket.write_byte };
        self.charge((byte + self.own(self.net).write_byte) * bytes as f64);
        self.meter.elapsed()
    }

    /// Something was sent to a thread of the same machine that sleeps; `idle`: a core that has had
    /// nothing to do for so long is called for it.
    pub fn wake(&self, idle: Option<Duration>) {
        self.meter.charge(self.wake_call(idle));
    }

    /// What `bench` would write down of a transaction.
    pub fn bookkeeping(&self) {
        self.charge(self.costs.figures.table.bookkeeping);
    }

    /// A connection is made or taken.
    pub fn open(&self) {
        self.charge(self.socket().open);
    }

    /// A turn of the process begins.
    pub fn begins(&self, at: VirtualTime) {
        self.core.begins(at);
    }

    /// The core that the process is on looks after a device then, whose operation completes in
    /// part.
    pub fn device_at(&self, at: VirtualTime) {
        self.core.device_at(at, self.device().interruption * self.costs.scale);
    }

    /// What a flash device was asked for; what shards do about it is put off.
    pub fn flash(&self, operations: u64, bytes: u64) {
        self.counts.flash(bytes);
        let (device, shard) = (self.device(), self.own(StageKind::Shard));
        self.charge(device.flash * operations as f64 + device.flash_byte * bytes as f64);
        self.put_off.add(shard.flash_byte * bytes as f64);
    }

    /// What a log's disk was asked for.
    pub fn log(&self, operations: u64, bytes: u64) {
        let device = self.device();
        self.charge(device.log * operations as f64 + device.log_byte * bytes as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_is_put_off_is_done_little_by_little_and_all_of_it() {
        let put_off = PutOff::default();
        put_off.add(64_000.0);
        put_off.add(400.5);
        let done: Vec<f64> =
            std::iter::repeat_with(|| put_off.some()).take_while(|&some| some > 0.0).collect();
        assert!(done.iter().all(|&some| some <= 64_400.0 / PutOff::RUNS as f64), "{done:?}");
        assert!((PutOff::RUNS as usize..200).contains(&done.len()), "{}", done.len());
        assert!((done.iter().sum::<f64>() - 64_400.0).abs() < 1.0);
    }
}
