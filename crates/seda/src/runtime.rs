//! Starting, feeding, watching and stopping a set of stages.
//!
//! ```text
//!   start ─► running ── shutdown: flag, wake all ─► draining ── all quiet, nothing under way ─► stop ─► joined
//!                                                        └───── time-out ──────────────────────────┘
//! ```
//!
//! Draining ends when every thread says that its stages are drained and its queues empty, and
//! nothing is under way between them (`drain`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::drain::Counts;
use crate::limits::{INJECTOR_CAPACITY, QUEUE_CAPACITY};
use crate::metrics::ThreadMetrics;
use crate::reactor::Reactor;
use crate::shutdown_flags::ShutdownFlags;
use crate::sleep::SleepFlag;
use crate::sync::ArrayQueue;
use crate::{
    AdmissionLimit, Gauge, Layout, Pinning, RuntimeSnapshot, SedaError, Spin, Stage, StageId,
    StageMetrics, TimeSource, drain, handoff, lanes,
};

/// How a runtime behaves.
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// Prefix of the threads' names.
    pub name: String,
    /// How threads wait.
    pub spin: Spin,
    /// Busy threads of this machine that are known beforehand and are not of this runtime (clients,
    /// say). Clients that connect over loopback are noticed by themselves.
    pub other_threads: usize,
    /// Events that may wait for one stage.
    pub queue_capacity: usize,
    /// What may be admitted to stages; those not named have no limit.
    pub admission: Vec<(StageId, AdmissionLimit)>,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            name: "seda".to_owned(),
            spin: Spin::default(),
            other_threads: 0,
            queue_capacity: QUEUE_CAPACITY,
            admission: Vec::new(),
        }
    }
}

/// What all threads know of one stage.
#[derive(Debug)]
pub(crate) struct StageShared {
    pub(crate) name: String,
    pub(crate) thread: usize,
    pub(crate) place: usize,
    pub(crate) metrics: StageMetrics,
    pub(crate) gauge: Gauge,
    pub(crate) drained: AtomicBool,
}

/// What all threads know of one thread.
pub(crate) struct ThreadShared<E> {
    pub(crate) flag: SleepFlag,
    pub(crate) waker: mio::Waker,
    pub(crate) injector: ArrayQueue<(StageId, E)>,
    pub(crate) metrics: ThreadMetrics,
    pub(crate) counts: Counts,
}

impl<E> ThreadShared<E> {
    /// Wakes the thread, whatever it does.
    pub(crate) fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "A thread could not be woken; it will notice at its next \
                deadline.");
        }
    }
}

/// What all threads and handles share.
pub(crate) struct RuntimeShared<E> {
    pub(crate) threads: Vec<ThreadShared<E>>,
    pub(crate) stages: Vec<StageShared>,
    pub(crate) queue_capacity: usize,
    pub(crate) cores: usize,
    pub(crate) other_threads: usize,
    pub(crate) local_peers: AtomicI64,
    pub(crate) shutdown_flags: ShutdownFlags,
}

impl<E> RuntimeShared<E> {
    /// Whether this process and its local clients want more cores than there are now. A thread that
    /// sleeps wants none: one with stages that are asked once a second does not keep the others from
    /// spinning.
    pub(crate) fn is_crowded(&self) -> bool {
        let peers = usize::from(self.local_peers.load(Ordering::Relaxed) > 0);
        let awake = self.threads.iter().filter(|thread| !thread.flag.is_sleeping()).count();
        awake + self.other_threads.max(peers) > self.cores
    }

    fn wake_all(&self) {
        self.threads.iter().for_each(ThreadShared::wake);
    }

    fn snapshot(&self) -> RuntimeSnapshot {
        let stage =
            |stage: &StageShared| stage.metrics.snapshot(&stage.name, stage.thread, &stage.gauge);
        RuntimeSnapshot {
            stages: self.stages.iter().map(stage).collect(),
            threads: self.threads.iter().map(|thread| thread.metrics.snapshot()).collect(),
        }
    }

    fn is_drained(&self) -> bool {
        drain::is_drained(self.threads.iter().map(|thread| &thread.counts))
    }
}

/// Starts stages.
#[derive(Debug)]
pub struct Runtime;

impl Runtime {
    /// Starts one thread per entry of `layout`, which run `stages` until the handle stops them. A
    /// stage's id is its index.
    ///
    /// # Errors
    /// An impossible layout, or what the operating system refuses.
    pub fn start<E: Send + 'static>(
        stages: Vec<Box<dyn Stage<E>>>,
        layout: Layout,
        time: impl TimeSource,
        config: RuntimeConfig,
    ) -> Result<Handle<E>, SedaError> {
        let homes = layout.homes(stages.len())?;
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let limit_of = |id: usize| {
            let named = config.admission.iter().find(|(stage, _)| stage.index() == id);
            named.map_or(AdmissionLimit::NONE, |&(_, limit)| limit)
        };
        let described =
            stages.iter().zip(&homes).enumerate().map(|(id, (stage, &(thread, place)))| {
                StageShared {
                    name: stage.name().to_owned(),
                    thread,
                    place,
                    metrics: StageMetrics::default(),
                    gauge: Gauge::new(limit_of(id)),
                    drained: AtomicBool::new(false),
                }
            });
        let described = described.collect();
        let start = |what| move |source| SedaError::Start { what, source };
        let mut polls = Vec::new();
        let mut threads = Vec::new();
        for _ in &layout.threads {
            let poll = mio::Poll::new().map_err(start("poller"))?;
            let waker =
                mio::Waker::new(poll.registry(), crate::reactor::WAKER).map_err(start("waker"))?;
            polls.push(poll);
            threads.push(ThreadShared {
                flag: SleepFlag::default(),
                waker,
                injector: ArrayQueue::new(INJECTOR_CAPACITY),
                metrics: ThreadMetrics::default(),
                counts: Counts::default(),
            });
        }
        let shared = Arc::new(RuntimeShared {
            threads,
            stages: described,
            queue_capacity: config.queue_capacity,
            cores,
            other_threads: config.other_threads,
            local_peers: AtomicI64::new(0),
            shutdown_flags: ShutdownFlags::default(),
        });
        let mut handle = Handle { shared: Arc::clone(&shared), threads: Vec::new() };
        let time: Arc<dyn TimeSource> = Arc::new(time);
        let mut stages: Vec<Option<Box<dyn Stage<E>>>> = stages.into_iter().map(Some).collect();
        for (index, (poll, lanes)) in
            polls.into_iter().zip(lanes::mesh(layout.threads.len())).enumerate()
        {
            let own = layout.threads[index].iter();
            let own =
                own.filter_map(|&id| stages[id.index()].take().map(|stage| (id, stage))).collect();
            let reactor = Reactor::new(
                index,
                Arc::clone(&shared),
                own,
                lanes,
                poll,
                Arc::clone(&time),
                config.spin,
            )
            .map_err(start("poller"))?;
            let core = core_of(&layout.pinning, index, cores);
            let spawned =
                thread::Builder::new().name(format!("{}-{index}", config.name)).spawn(move || {
                    pin(core);
                    reactor.run_or_abort();
                });
            handle.threads.push(spawned.map_err(start("thread"))?);
        }
        Ok(handle)
    }
}

fn core_of(pinning: &Pinning, thread: usize, cores: usize) -> Option<usize> {
    match pinning {
        Pinning::None => None,
        Pinning::Cores => {
            // The cores that the process may use need not be numbered from zero.
            let allowed = rustix::thread::sched_getaffinity(None).ok()?;
            let usable = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
            usable.cycle().nth(thread % cores.max(1))
        }
        Pinning::List(list) => list.get(thread % list.len().max(1)).copied(),
    }
}

/// Binds the calling thread; a core that cannot be had is a matter of speed, not of correctness.
fn pin(core: Option<usize>) {
    let Some(core) = core.filter(|&core| core < rustix::thread::CpuSet::MAX_CPU) else { return };
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(core, %error, "A thread could not be bound to its core and runs unbound.");
    }
}

/// A running runtime; dropping it stops the threads without draining.
pub struct Handle<E: Send + 'static> {
    shared: Arc<RuntimeShared<E>>,
    threads: Vec<JoinHandle<()>>,
}

impl<E: Send + 'static> Handle<E> {
    /// For threads outside.
    #[must_use]
    pub fn injector(&self) -> Injector<E> {
        Injector { shared: Arc::clone(&self.shared) }
    }

    /// Changes what may be admitted to a stage that was started with a limit.
    pub fn set_admission(&self, stage: StageId, limit: AdmissionLimit) {
        if let Some(stage) = self.shared.stages.get(stage.index()) {
            stage.gauge.set_limit(limit);
        }
    }

    /// What all stages and threads have done so far.
    #[must_use]
    pub fn metrics(&self) -> RuntimeSnapshot {
        self.shared.snapshot()
    }

    /// Whether this is called on one of its threads, which cannot wait for themselves.
    #[must_use]
    pub fn runs_here(&self) -> bool {
        let here = thread::current().id();
        self.threads.iter().any(|thread| thread.thread().id() == here)
    }

    /// Tells all stages to finish, waits until they are drained, stops and joins the threads. Never
    /// on one of these threads ([`runs_here`](Self::runs_here)): it would wait for itself until the
    /// time is over.
    ///
    /// # Errors
    /// [`SedaError::NotDrained`] when that takes longer than `timeout`; the threads are stopped
    /// nevertheless.
    pub fn shutdown(mut self, timeout: Duration) -> Result<(), SedaError> {
        self.shared.shutdown_flags.begin_shutdown();
        self.shared.wake_all();
        let begin = Instant::now();
        let mut drained = self.shared.is_drained();
        while !drained && begin.elapsed() < timeout {
            thread::sleep(Duration::from_micros(200));
            drained = self.shared.is_drained();
        }
        let result = if drained { Ok(()) } else { Err(self.undrained(timeout)) };
        self.stop();
        result
    }

    fn undrained(&self, waited: Duration) -> SedaError {
        let busy = self.shared.stages.iter().filter(|stage| !stage.drained.load(Ordering::Acquire));
        let mut stages: Vec<String> = busy.map(|stage| stage.name.clone()).collect();
        if stages.is_empty() {
            stages.push("queues between stages".to_owned());
        }
        SedaError::NotDrained { waited, stages }
    }

    fn stop(&mut self) {
        self.shared.shutdown_flags.stop();
        self.shared.wake_all();
        let here = thread::current().id();
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != here) {
            // A panicking stage has aborted the process, so a thread ends by returning.
            let _ = thread.join();
        }
    }
}

impl<E: Send + 'static> Drop for Handle<E> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<E: Send + 'static> fmt::Debug for Handle<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// Sends events into a runtime from threads outside of it: bounded, many producers.
pub struct Injector<E: Send + 'static> {
    shared: Arc<RuntimeShared<E>>,
}

impl<E: Send + 'static> Clone for Injector<E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<E: Send + 'static> Injector<E> {
    /// What all stages and threads have done so far.
    #[must_use]
    pub fn metrics(&self) -> RuntimeSnapshot {
        self.shared.snapshot()
    }

    /// Queues an event for a stage, and wakes its thread if that sleeps.
    ///
    /// # Errors
    /// The event itself when the queue is full, when there is no such stage, or when the runtime
    /// has stopped.
    pub fn send(&self, to: StageId, event: E) -> Result<(), E> {
        let Some(stage) = self.shared.stages.get(to.index()) else { return Err(event) };
        if self.shared.shutdown_flags.is_stopped() {
            return Err(event);
        }
        let thread = &self.shared.threads[stage.thread];
        if handoff::inject(&thread.injector, to, event, (&thread.counts, &thread.flag))? {
            thread.wake();
        }
        Ok(())
    }
}

impl<E: Send + 'static> fmt::Debug for Injector<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injector").finish_non_exhaustive()
    }
}
