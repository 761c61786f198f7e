//! One process: its stages on virtual threads.
//!
//! ```text
//!   idle ── readiness, event, deadline, wish ──► due ── a core is free ──► turn ── busy until its end ──► due again, or idle
//! ```
//! Invariant: a thread that has something to do has a `due`; nothing runs before it. Time stands
//! still within a turn. Of those that want one core, the one whose place is the oldest gets it. It
//! keeps its place while it has more to do, until a [`SLICE`] of CPU time is used up, and over a
//! [`NAP`] if it has used [`LITTLE`] of it: so threads with little to do come first, and none
//! starves.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use timestone_types::Timestamp;

use super::{
    Cores, CostModel, LITTLE, LocalTime, MIN_SLEEP, MIN_TURN, Meter, NAP, NoCost, SLICE,
    VirtualTime,
};
use crate::limits::{MAX_ROUNDS, QUEUE_CAPACITY, RETRY_INTERVAL};
use crate::metrics::bump;
use crate::spin::{Spin, Spinner};
use crate::{
    AdmissionLimit, Context, Driver, FrameBatchPool, Gauge, IoRegistry, Layout, Readiness,
    RuntimeSnapshot, SedaError, Stage, StageId, StageMetrics, turn,
};

/// How a simulated process behaves.
pub struct SimulatedConfig<E> {
    /// Events that may wait for one stage.
    pub queue_capacity: usize,
    /// What may be admitted to stages; those not named have no limit.
    pub admission: Vec<(StageId, AdmissionLimit)>,
    /// What work costs.
    pub costs: Box<dyn CostModel<E>>,
    /// What is spent behind the stages' backs.
    pub meter: Meter,
    /// How threads wait that have nothing to do. Those that look around for a moment find what
    /// comes at once, and nobody has to wake them; that their core is taken meanwhile is not
    /// modelled, for they only do so where cores are left over.
    pub spin: Spin,
}

impl<E> Default for SimulatedConfig<E> {
    fn default() -> Self {
        Self {
            queue_capacity: QUEUE_CAPACITY,
            admission: Vec::new(),
            costs: Box::new(NoCost),
            meter: Meter::default(),
            spin: Spin::Off,
        }
    }
}

impl<E> fmt::Debug for SimulatedConfig<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedConfig")
            .field("queue_capacity", &self.queue_capacity)
            .finish_non_exhaustive()
    }
}

/// Sees what happens: for traces.
pub trait Observer<E> {
    /// A stage is about to handle an event.
    fn event(&mut self, at: VirtualTime, stage: StageId, event: &E);
}

/// Sees nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl<E> Observer<E> for Silent {
    fn event(&mut self, _at: VirtualTime, _stage: StageId, _event: &E) {}
}

/// When a thread wants a core, and its place among those that do: the earlier is first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Claim {
    /// When it can run next, if a core is free by then.
    pub due: VirtualTime,
    /// Since when it has had its place.
    pub since: VirtualTime,
}

/// A turn that was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulatedTurn {
    /// Which thread of the layout.
    pub thread: usize,
    /// When it began.
    pub begin: VirtualTime,
    /// When it was over: what it sent leaves then.
    pub end: VirtualTime,
}

struct SimulatedStage<E> {
    stage: Box<dyn Stage<E>>,
    ready: Vec<Readiness>,
    deadline: Option<Timestamp>,
    asked: bool,
    worked: bool,
    held: bool,
}

/// An event on its way from another thread or from outside.
struct Arrival<E> {
    at: VirtualTime,
    to: StageId,
    event: E,
}

struct Thread<E> {
    stages: Vec<StageId>,
    arrivals: VecDeque<Arrival<E>>,
    pool: FrameBatchPool,
    due: Option<VirtualTime>,
    /// Since when it has had its place among those that want its core.
    place: VirtualTime,
    /// The place that it waits in, if it waits.
    waits_in: Option<VirtualTime>,
    /// CPU time since it has had its place.
    used: Duration,
    free_at: VirtualTime,
    rest: Rest,
    spinner: Spinner,
    /// Looks around before it sleeps.
    spins: bool,
    /// When it sleeps, if it does by then.
    sleeps_at: VirtualTime,
    /// Where it ran last, or is going to run.
    core: usize,
    busy: Duration,
}

/// Whether a thread runs turn after turn, or blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rest {
    Awake,
    Asleep,
    /// It has a core, or the place in the queue for one, and is not there yet.
    Waking,
}

impl<E> Thread<E> {
    /// When it is due, and its place among those that are due then.
    fn claim(&self) -> Option<Claim> {
        let due = self.due?;
        let keeps = if due == self.free_at { self.used < SLICE } else { self.used < LITTLE };
        let new = if keeps && due.since(self.free_at) <= NAP { self.place } else { due };
        Some(Claim { due, since: self.waits_in.unwrap_or(new) })
    }

    /// Whether it blocks, and nobody has called it.
    fn sleeps(&self, now: VirtualTime) -> bool {
        self.rest == Rest::Asleep && self.sleeps_at <= now && self.due.is_none_or(|due| due > now)
    }

    fn call(&mut self, at: VirtualTime) {
        if self.rest == Rest::Waking && self.due.is_some() {
            // The core that is on its way comes no sooner for that.
            return;
        }
        let at = at.max(self.free_at);
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

/// The part that stages see through their context.
struct SimulatedDriver<E> {
    homes: Vec<usize>,
    inboxes: Vec<VecDeque<E>>,
    gauges: Vec<Gauge>,
    metrics: Vec<StageMetrics>,
    /// Events of the turn under way for stages of other threads.
    outgoing: Vec<(StageId, E)>,
    /// How many of each stage's events are on their way to it.
    travelling: Vec<usize>,
    capacity: usize,
    thread: usize,
}

impl<E> Driver<E> for SimulatedDriver<E> {
    fn send(&mut self, _from: StageId, to: StageId, event: E) -> Result<(), E> {
        let Some(&home) = self.homes.get(to.index()) else {
            debug_assert!(false, "there is no stage {to}");
            return Err(event);
        };
        if self.inboxes[to.index()].len() + self.travelling[to.index()] >= self.capacity {
            bump(&self.metrics[to.index()].refused, 1);
            return Err(event);
        }
        if home == self.thread {
            self.inboxes[to.index()].push_back(event);
        } else {
            self.travelling[to.index()] += 1;
            self.outgoing.push((to, event));
        }
        Ok(())
    }

    fn gauge(&self, stage: StageId) -> &Gauge {
        &self.gauges[stage.index()]
    }

    fn io(&self, stage: StageId) -> Option<IoRegistry<'_>> {
        Some(IoRegistry { registry: None, base: 0, stage })
    }

    fn note_local_peers(&mut self, _change: i64) {}
}

/// The stages of one process, run by hand under virtual time.
pub struct SimulatedRuntime<E> {
    slots: Vec<SimulatedStage<E>>,
    threads: Vec<Thread<E>>,
    local: SimulatedDriver<E>,
    costs: Box<dyn CostModel<E>>,
    meter: Meter,
    batch: VecDeque<E>,
    names: Vec<String>,
    shutting_down: bool,
}

impl<E> SimulatedRuntime<E> {
    /// Starts `stages` at `now`, on one virtual thread per entry of `layout`. A stage's id is its
    /// index.
    ///
    /// # Errors
    /// An impossible layout.
    pub fn start(
        stages: Vec<Box<dyn Stage<E>>>,
        layout: &Layout,
        config: SimulatedConfig<E>,
        now: VirtualTime,
        clock: &dyn LocalTime,
    ) -> Result<Self, SedaError> {
        let homes: Vec<usize> =
            layout.homes(stages.len())?.into_iter().map(|(thread, _)| thread).collect();
        let limit_of = |id: usize| {
            let named = config.admission.iter().find(|(stage, _)| stage.index() == id);
            named.map_or(AdmissionLimit::NONE, |&(_, limit)| limit)
        };
        let thread = |stages: &Vec<StageId>| Thread {
            stages: stages.clone(),
            arrivals: VecDeque::new(),
            pool: FrameBatchPool::new(),
            due: Some(now),
            place: now,
            waits_in: None,
            used: Duration::ZERO,
            free_at: now,
            rest: Rest::Awake,
            spinner: Spinner::new(config.spin),
            spins: false,
            sleeps_at: now,
            core: 0,
            busy: Duration::ZERO,
        };
        let mut runtime = Self {
            threads: layout.threads.iter().map(thread).collect(),
            local: SimulatedDriver {
                inboxes: stages.iter().map(|_| VecDeque::new()).collect(),
                gauges: (0..stages.len()).map(|id| Gauge::new(limit_of(id))).collect(),
                metrics: stages.iter().map(|_| StageMetrics::default()).collect(),
                outgoing: Vec::new(),
                travelling: vec![0; stages.len()],
                capacity: config.queue_capacity,
                thread: 0,
                homes,
            },
            names: stages.iter().map(|stage| stage.name().to_owned()).collect(),
            slots: stages
                .into_iter()
                .map(|stage| SimulatedStage {
                    stage,
                    ready: Vec::new(),
                    deadline: None,
                    asked: true,
                    worked: false,
                    held: false,
                })
                .collect(),
            costs: config.costs,
            meter: config.meter,
            batch: VecDeque::new(),
            shutting_down: false,
        };
        let local_now = clock.at(now);
        for thread in 0..runtime.threads.len() {
            runtime.local.thread = thread;
            for place in 0..runtime.threads[thread].stages.len() {
                let id = runtime.threads[thread].stages[place];
                let Self { slots, threads, local, .. } = &mut runtime;
                let mut ctx = Context::new(local, &mut threads[thread].pool, local_now, id, false);
                slots[id.index()].stage.start(&mut ctx);
            }
            runtime.deliver(now);
        }
        Ok(runtime)
    }

    /// When some thread has something to do next, cores aside; `None` when nothing happens without
    /// an event from outside.
    #[must_use]
    pub fn due(&self) -> Option<Claim> {
        self.threads.iter().filter_map(Thread::claim).min()
    }

    /// Tells a stage what became of a socket that it registered.
    pub fn ready(&mut self, at: VirtualTime, stage: StageId, readiness: Readiness) {
        self.slots[stage.index()].ready.push(readiness);
        self.wake(at, stage);
    }

    /// Gives a stage a turn, as its wake descriptor would.
    pub fn call(&mut self, at: VirtualTime, stage: StageId) {
        self.slots[stage.index()].asked = true;
        self.wake(at, stage);
    }

    /// The stages of threads that block, from when on, and until when if they wake by themselves.
    pub fn sleepers(&self) -> impl Iterator<Item = (StageId, VirtualTime, Option<VirtualTime>)> {
        let asleep = self.threads.iter().filter(|thread| thread.rest == Rest::Asleep);
        asleep.flat_map(|thread| {
            thread.stages.iter().map(|&stage| (stage, thread.sleeps_at, thread.due))
        })
    }

    /// Sends an event from outside.
    pub fn inject(&mut self, at: VirtualTime, to: StageId, event: E) {
        let home = self.local.homes[to.index()];
        self.local.travelling[to.index()] += 1;
        self.arrive(home, Arrival { at, to, event });
    }

    /// Tells all stages to finish.
    pub fn begin_shutdown(&mut self, at: VirtualTime) {
        self.shutting_down = true;
        self.slots.iter_mut().for_each(|slot| slot.asked = true);
        self.threads.iter_mut().for_each(|thread| thread.call(at));
    }

    /// Whether every stage says that it is drained, and nothing is queued or on its way.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.local.inboxes.iter().all(VecDeque::is_empty)
            && self.threads.iter().all(|thread| thread.arrivals.is_empty())
            && self.slots.iter().all(|slot| !slot.asked && slot.stage.drained())
    }

    /// The names of the stages, by id.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// CPU time that all threads have used.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.threads.iter().map(|thread| thread.busy).sum()
    }

    /// Changes what may be admitted to a stage that was started with a limit.
    pub fn set_admission(&self, stage: StageId, limit: AdmissionLimit) {
        if let Some(gauge) = self.local.gauges.get(stage.index()) {
            gauge.set_limit(limit);
        }
    }

    /// What the stages have done so far.
    #[must_use]
    pub fn metrics(&self) -> RuntimeSnapshot {
        let stage = |id: usize| {
            self.local.metrics[id].snapshot(
                &self.names[id],
                self.local.homes[id],
                &self.local.gauges[id],
            )
        };
        RuntimeSnapshot { stages: (0..self.slots.len()).map(stage).collect(), threads: Vec::new() }
    }

    /// Runs one turn of the thread that is due first, if it is due by `now` and a core is free.
    pub fn run(
        &mut self,
        now: VirtualTime,
        cores: &mut Cores,
        clock: &dyn LocalTime,
        observer: &mut dyn Observer<E>,
    ) -> Option<SimulatedTurn> {
        let thread = loop {
            let claims = self
                .threads
                .iter()
                .enumerate()
                .filter_map(|(number, thread)| Some((thread.claim()?, number)));
            // All that are due now want a core now: only their places count.
            let due = claims
                .filter(|(claim, _)| claim.due <= now)
                .map(|(claim, number)| (claim.since, number));
            let (_, first) = due.min()?;
            // One that gets no core is due later.
            if self.gets_core(first, now, cores) {
                break first;
            }
        };
        let entry = &mut self.threads[thread];
        if let Some(claim) = entry.claim().filter(|claim| claim.since != entry.place) {
            (entry.place, entry.used) = (claim.since, Duration::ZERO);
        }
        (entry.due, entry.waits_in) = (None, None);
        let mut cost = Duration::ZERO;
        if std::mem::replace(&mut self.threads[thread].rest, Rest::Awake) != Rest::Awake {
            cost = self.costs.switch();
        }
        cost += self.turn(thread, now, clock, observer);
        let over = now.after(cost);
        let idle = cores.idle_besides().filter(|from| *from <= over).map(|from| over.since(from));
        cost = (cost + self.wake_calls(over, idle)).max(MIN_TURN);
        let end = now.after(cost);
        cores.occupy(self.threads[thread].core, now, end);
        self.threads[thread].free_at = end;
        self.threads[thread].busy += cost;
        self.threads[thread].used += cost;
        self.deliver(end);
        self.rest(thread, end, clock);
        Some(SimulatedTurn { thread, begin: now, end })
    }

    /// Whether a thread that is due can run now; if not, it is due again when that may have
    /// changed.
    fn gets_core(&mut self, thread: usize, now: VirtualTime, cores: &mut Cores) -> bool {
        let thread = &mut self.threads[thread];
        if thread.rest == Rest::Asleep {
            // What came before it slept, even within its last turn, it finds without being woken.
            let found = now <= thread.sleeps_at;
            if std::mem::take(&mut thread.spins) {
                thread.spinner.learn(found);
                thread.busy += now.min(thread.sleeps_at).since(thread.free_at);
            }
            if found {
                thread.rest = Rest::Awake;
            }
        }
        let sleeps = thread.rest == Rest::Asleep;
        if sleeps {
            thread.core = cores.choose(thread.core, now);
        }
        let free_at = cores.core_free_at(thread.core);
        if sleeps && free_at < now {
            // The core had nothing to do, and went to sleep itself.
            let latency = self.costs.wake_latency(now.since(free_at));
            if !latency.is_zero() {
                thread.rest = Rest::Waking;
                let due = now.after(latency);
                thread.due = Some(due);
                cores.reserve(thread.core, due);
                return false;
            }
        }
        if free_at > now {
            if sleeps {
                thread.rest = Rest::Waking;
            }
            thread.waits_in = thread.claim().map(|claim| claim.since);
            thread.due = Some(free_at);
            return false;
        }
        true
    }

    fn wake(&mut self, at: VirtualTime, stage: StageId) {
        self.threads[self.local.homes[stage.index()]].call(at);
    }

    fn arrive(&mut self, home: usize, arrival: Arrival<E>) {
        let (at, to) = (arrival.at, arrival.to);
        let thread = &mut self.threads[home];
        // Arrivals come nearly in order of time; of equal ones, the earlier sent stays first.
        let place = thread
            .arrivals
            .iter()
            .rposition(|earlier| earlier.at <= at)
            .map_or(0, |place| place + 1);
        thread.arrivals.insert(place, arrival);
        self.wake(at, to);
    }

    /// Sends off what the turn that ended now has for other threads.
    fn deliver(&mut self, at: VirtualTime) {
        let mut outgoing = std::mem::take(&mut self.local.outgoing);
        for (to, event) in outgoing.drain(..) {
            let home = self.local.homes[to.index()];
            self.arrive(home, Arrival { at, to, event });
        }
        self.local.outgoing = outgoing;
    }

    /// One turn, as the fused driver does it; what it costs.
    fn turn(
        &mut self,
        thread: usize,
        now: VirtualTime,
        clock: &dyn LocalTime,
        observer: &mut dyn Observer<E>,
    ) -> Duration {
        let local_now = clock.at(now);
        self.local.thread = thread;
        let mut cost = self.costs.turn(self.threads[thread].core);
        while let Some(arrival) =
            self.threads[thread].arrivals.pop_front_if(|arrival| arrival.at <= now)
        {
            self.local.travelling[arrival.to.index()] -= 1;
            self.local.inboxes[arrival.to.index()].push_back(arrival.event);
        }
        let stages = std::mem::take(&mut self.threads[thread].stages);
        for id in &stages {
            let slot = &mut self.slots[id.index()];
            slot.held = false;
            slot.asked |= slot.deadline.is_some_and(|deadline| deadline <= local_now);
        }
        for round in 0..MAX_ROUNDS {
            let mut any = false;
            for &id in &stages {
                let slot = &self.slots[id.index()];
                let due = round == 0 && slot.asked;
                let events = !slot.held && !self.local.inboxes[id.index()].is_empty();
                if due || events || !slot.ready.is_empty() {
                    any = true;
                    self.meter.spent(cost);
                    cost += self.run_stage(thread, id, now, local_now, due, observer);
                }
            }
            if !any {
                break;
            }
        }
        self.meter.spent(cost);
        for &id in &stages {
            let Self { slots, threads, local, costs, shutting_down, .. } = self;
            let slot = &mut slots[id.index()];
            if !std::mem::take(&mut slot.worked) {
                continue;
            }
            let mut ctx =
                Context::new(local, &mut threads[thread].pool, local_now, id, *shutting_down);
            costs.begins(id);
            slot.stage.flush(&mut ctx);
            costs.ends(id);
            slot.asked |= ctx.wants_turn();
            slot.deadline = slot.stage.next_deadline();
            local.metrics[id.index()].queue_length_is(local.inboxes[id.index()].len() as u64);
        }
        self.threads[thread].stages = stages;
        cost + self.meter.take()
    }

    /// What waking the sleepers costs for which the turn has something.
    fn wake_calls(&self, now: VirtualTime, idle: Option<Duration>) -> Duration {
        let mut cost = Duration::ZERO;
        for (home, target) in self.threads.iter().enumerate() {
            let is_home = |(to, _): &(StageId, E)| self.local.homes[to.index()] == home;
            if target.sleeps(now) && self.local.outgoing.iter().any(is_home) {
                cost += self.costs.wake_call(idle);
            }
        }
        cost
    }

    fn run_stage(
        &mut self,
        thread: usize,
        id: StageId,
        now: VirtualTime,
        local_now: Timestamp,
        due: bool,
        observer: &mut dyn Observer<E>,
    ) -> Duration {
        let Self { slots, threads, local, batch, costs, shutting_down, .. } = self;
        let slot = &mut slots[id.index()];
        slot.worked = true;
        slot.asked &= !due;
        let mut cost = costs.stage(id);
        let queued = if slot.held { 0 } else { local.inboxes[id.index()].len() };
        if queued > 0 {
            std::mem::swap(&mut local.inboxes[id.index()], batch);
            for event in &*batch {
                cost += costs.event(id, event);
                observer.event(now, id, event);
            }
        }
        let mut ctx = Context::new(local, &mut threads[thread].pool, local_now, id, *shutting_down);
        costs.begins(id);
        turn::run(&mut *slot.stage, &mut ctx, &mut slot.ready, batch);
        costs.ends(id);
        slot.asked |= ctx.wants_turn();
        let left = turn::put_back(batch, &mut local.inboxes[id.index()]);
        slot.held |= left > 0;
        local.metrics[id.index()].ran(queued as u64, left as u64, cost);
        cost
    }

    /// Decides when the thread runs again.
    fn rest(&mut self, thread: usize, end: VirtualTime, clock: &dyn LocalTime) {
        let entry = &self.threads[thread];
        let busy = |id: &StageId| {
            let slot = &self.slots[id.index()];
            slot.asked
                || !slot.ready.is_empty()
                || (!slot.held && !self.local.inboxes[id.index()].is_empty())
        };
        let due = if entry.stages.iter().any(busy) {
            Some(end)
        } else {
            let local_end = clock.at(end);
            let deadlines = entry.stages.iter().filter_map(|id| self.slots[id.index()].deadline);
            let timer = deadlines.min().map(|at| {
                let left = at.since(local_end);
                if left.is_zero() { end } else { end.after(left.max(MIN_SLEEP)) }
            });
            let stuck = entry.stages.iter().any(|id| self.slots[id.index()].held);
            let retry = stuck.then(|| end.after(RETRY_INTERVAL));
            let arrival = entry.arrivals.front().map(|arrival| arrival.at.max(end));
            [timer, retry, arrival].into_iter().flatten().min()
        };
        let entry = &mut self.threads[thread];
        if due != Some(end) {
            let budget = entry.spinner.budget(false);
            (entry.rest, entry.spins) = (Rest::Asleep, budget.is_some());
            entry.sleeps_at = end.after(budget.unwrap_or_default());
        }
        entry.due = match (entry.due, due) {
            (Some(one), Some(other)) => Some(one.min(other).max(end)),
            (one, other) => one.or(other),
        };
    }
}

impl<E> fmt::Debug for SimulatedRuntime<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedRuntime").field("stages", &self.names).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
