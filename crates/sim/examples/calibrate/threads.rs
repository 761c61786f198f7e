//! Turns, hops between threads, what it takes to wake one, and how often a core is taken away.
//!
//! Turns and hops are counted in the real runtime: a stage that always wants another turn, and two
//! stages on two threads of one core that pass one event to and fro and work in between, for which
//! the time is taken off.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use timestone_seda::{Context, Layout, Pinning, Runtime, RuntimeConfig, Spin, Stage, StageId};
use timestone_sim::{ThreadCosts, Varying};
use timestone_types::Timestamp;

use crate::caches::CacheWork;
use crate::neighbours::Around;
use crate::waking::wake;
use crate::{ROUNDS, median};

/// How long turns or hops are counted.
const SPAN: Duration = Duration::from_millis(300);
/// How long a core is watched for interruptions, and what is long enough to be one.
const BUSY: Duration = Duration::from_secs(2);
const INTERRUPTION: Duration = Duration::from_micros(4);

/// Takes a turn again and again, or works and passes what it is given on to a peer.
struct Busy {
    peer: Option<(StageId, CacheWork)>,
    begins: bool,
    done: Arc<AtomicU64>,
    /// Nanoseconds of work.
    worked: Arc<AtomicU64>,
}

impl Busy {
    fn alone() -> Vec<Self> {
        vec![Self { peer: None, begins: true, done: Arc::default(), worked: Arc::default() }]
    }

    fn pair() -> Vec<Self> {
        let (done, worked) = (Arc::default(), Arc::default());
        let busy = |peer, begins| {
            let peer = Some((StageId::new(peer), CacheWork::new()));
            Self { peer, begins, done: Arc::clone(&done), worked: Arc::clone(&worked) }
        };
        vec![busy(1, true), busy(0, false)]
    }
}

impl Stage<u32> for Busy {
    fn name(&self) -> &str {
        "busy"
    }

    fn start(&mut self, ctx: &mut Context<'_, u32>) {
        match &self.peer {
            Some((peer, _)) if self.begins => {
                assert!(ctx.send(*peer, 0).is_ok(), "an empty queue takes an event")
            }
            Some(_) => {}
            None => ctx.want_turn(),
        }
    }

    fn handle(&mut self, ctx: &mut Context<'_, u32>, events: &mut VecDeque<u32>) {
        for event in events.drain(..) {
            self.done.fetch_add(1, Ordering::Relaxed);
            if let Some((peer, work)) = &mut self.peer {
                self.worked.fetch_add(work.turn().as_nanos() as u64, Ordering::Relaxed);
                assert!(ctx.send(*peer, event).is_ok(), "an empty queue takes an event");
            }
        }
    }

    fn turn(&mut self, ctx: &mut Context<'_, u32>) {
        if self.peer.is_none() {
            self.done.fetch_add(1, Ordering::Relaxed);
            ctx.want_turn();
        }
    }
}

/// All figures of threads.
pub(crate) fn measure(around: &Around) -> Result<ThreadCosts, Box<dyn Error>> {
    let (one, another) = two_cores()?;
    let turn = several(around, || rate(Busy::alone(), &[one]))?;
    // Who hands over on one core wakes a sleeper and sleeps; both ends of that are alike.
    let hop = several(around, || rate(Busy::pair(), &[one, one]))?;
    let half = ((hop - turn) / 2.0).max(0.0);
    let idle = wake(one, another, ThreadCosts::LONG_IDLE)?;
    let napping = wake(one, another, ThreadCosts::SHORT_IDLE)?;
    let awake = wake(one, another, ThreadCosts::HALTING / 2)?;
    let interruptions = interruptions(&around.cores)?;
    Ok(ThreadCosts {
        turn,
        switch: half,
        // The sleeper's own part of it is in `switch`.
        wake_latency: idle.latency.less(half),
        wake_latency_soon: napping.latency.less(half),
        wake_latency_at_once: awake.latency.less(half),
        wake_call: half,
        wake_idle: idle.call,
        interrupted_every: (BUSY.as_nanos() * around.cores.len() as u128) as f64
            / interruptions.len().max(1) as f64,
        interruption: Varying::of(interruptions),
        neighbours: around.neighbours,
    })
}

/// How long each interruption of a thread lasted that looks at the clock again and again until it
/// is over.
fn watch(core: usize, over: impl Fn() -> bool) -> Result<Vec<f64>, std::io::Error> {
    pin(core)?;
    let (begin, mut before, mut found) = (Instant::now(), Duration::ZERO, Vec::new());
    while !over() {
        let now = begin.elapsed();
        if now - before > INTERRUPTION {
            found.push((now - before).as_nanos() as f64);
        }
        before = now;
    }
    Ok(found)
}

/// Nanoseconds that interruptions took from such a thread altogether.
pub(crate) fn missing(core: usize, over: impl Fn() -> bool) -> Result<f64, std::io::Error> {
    Ok(watch(core, over)?.iter().sum())
}

/// How long each interruption lasted of threads, one on each core, that look at the clock again and
/// again.
fn interruptions(cores: &[usize]) -> Result<Vec<f64>, Box<dyn Error>> {
    thread::scope(|scope| {
        let begin = Instant::now();
        let spin = |core| scope.spawn(move || watch(core, || begin.elapsed() >= BUSY));
        let spinning: Vec<_> = cores.iter().map(|&core| spin(core)).collect();
        let mut found = Vec::new();
        for one in spinning {
            found.extend(one.join().map_err(|_| "a spinning thread panicked")??);
        }
        Ok(found)
    })
}

fn several(
    around: &Around,
    mut one: impl FnMut() -> Result<f64, Box<dyn Error>>,
) -> Result<f64, Box<dyn Error>> {
    Ok(median((0..ROUNDS).map(|_| around.time(&mut one)).collect::<Result<_, _>>()?))
}

/// Nanoseconds for each thing that the stages, each on a thread on its core, count; their work is
/// not included.
fn rate(stages: Vec<Busy>, cores: &[usize]) -> Result<f64, Box<dyn Error>> {
    let first = stages.first().ok_or("no stage counts anything")?;
    let (done, worked) = (Arc::clone(&first.done), Arc::clone(&first.worked));
    let threads = (0..stages.len()).map(|stage| vec![StageId::new(stage as u16)]).collect();
    let layout = Layout { threads, pinning: Pinning::List(cores.to_vec()) };
    let stages = stages.into_iter().map(|stage| Box::new(stage) as Box<dyn Stage<u32>>).collect();
    let begin = Instant::now();
    let clock = move || Timestamp::from_nanos(begin.elapsed().as_nanos() as u64);
    let handle = Runtime::start(
        stages,
        layout,
        clock,
        RuntimeConfig { spin: Spin::Off, ..RuntimeConfig::default() },
    )?;
    thread::sleep(SPAN / 4);
    let figures = || {
        (
            done.load(Ordering::Relaxed),
            worked.load(Ordering::Relaxed),
            begin.elapsed().as_nanos() as u64,
        )
    };
    let before = figures();
    thread::sleep(SPAN);
    let after = figures();
    drop(handle);
    let took = (after.2 - before.2).saturating_sub(after.1 - before.1);
    Ok(took as f64 / (after.0 - before.0).max(1) as f64)
}

/// Two of the cores that this process may use.
pub(crate) fn two_cores() -> Result<(usize, usize), Box<dyn Error>> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let mut cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let (one, another) = (cores.next(), cores.next());
    one.zip(another)
        .ok_or_else(|| "two cores are needed to see what waking an idle one takes".into())
}

/// Holds this thread to a core.
pub(crate) fn pin(core: usize) -> Result<(), std::io::Error> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}
