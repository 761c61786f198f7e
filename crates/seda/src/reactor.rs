//! The fused driver: one thread that runs its stages to completion, turn by turn.
//!
//! ```text
//!   ┌─► take events from lanes and injector, readiness from the poller
//!   │   rounds: each stage with events, readiness, a passed deadline or a wish:  ready · handle · turn
//!   │           … again, while events pass between them (at most MAX_ROUNDS)
//!   │   flush each stage that did anything; push the lanes; wake sleepers
//!   └── nothing to do? spin if that pays, then announce sleep, look once more, block until a wake-up or the next deadline
//! ```
//!
//! Invariants: a thread never blocks while an event that it could handle is queued on it; an event
//! handed to another thread is pushed, and its thread woken, before this one blocks, or else it
//! retries within [`RETRY_INTERVAL`]. The time is read once per turn. A panic of a stage aborts the
//! process: a half-done turn must not be continued by anybody.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use rustix::event::{PollFd, PollFlags, Timespec};
use timestone_types::Timestamp;

use crate::lanes::{LaneReceiver, LaneSender, ThreadLanes};
use crate::limits::{INTAKE_PER_TURN, MAX_ROUNDS, POLL_EVENTS, RETRY_INTERVAL, SAMPLE_EVERY};
use crate::metrics::bump;
use crate::runtime::RuntimeShared;
use crate::spin::{Spin, Spinner};
use crate::stage::TOKEN_BITS;
use crate::{
    Context, Driver, FrameBatchPool, Gauge, IoRegistry, Readiness, Stage, StageId, TimeSource,
    handoff, turn,
};

/// The token of each thread's waker.
pub(crate) const WAKER: Token = Token(usize::MAX);
/// Below a stage's place in a token: whether it is about the stage's wake descriptor.
const WAKE_BIT: usize = 1 << TOKEN_BITS;
/// The operating system's timeouts are whole milliseconds; shorter waits, and odd ones below this,
/// take another way.
const COARSE_WAIT: Duration = Duration::from_millis(20);

/// The operating system counts a timeout's milliseconds in 31 bits.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

const fn token_base(place: usize) -> usize {
    place << (TOKEN_BITS + 1)
}

/// The queue of one stage of this thread.
struct Inbox<E> {
    queue: VecDeque<E>,
    /// In timed turns: when the first event of the next batch was queued.
    probe: Option<Instant>,
}

/// One stage and what the thread knows of it.
struct StageEntry<E> {
    id: StageId,
    stage: Box<dyn Stage<E>>,
    ready: Vec<Readiness>,
    deadline: Option<Timestamp>,
    /// A turn was asked for, by the stage, its wake descriptor or the thread.
    asked: bool,
    /// It did something in this turn.
    worked: bool,
    /// It left events of this turn's batch for the next.
    held: bool,
}

/// The part of the thread that stages see through their context.
struct ThreadDriver<E> {
    thread: usize,
    shared: Arc<RuntimeShared<E>>,
    registry: Registry,
    inboxes: Vec<Inbox<E>>,
    lanes: Vec<Option<LaneSender<E>>>,
    timed: bool,
}

impl<E: Send + 'static> ThreadDriver<E> {
    fn queue(&mut self, place: usize, event: E) {
        let inbox = &mut self.inboxes[place];
        if self.timed && inbox.probe.is_none() {
            inbox.probe = Some(Instant::now());
        }
        inbox.queue.push_back(event);
    }

    /// Moves what fits into the lane to `thread`, and wakes that thread if it sleeps.
    fn push_lane(&mut self, thread: usize) {
        let Some(lane) = self.lanes[thread].as_mut() else { return };
        let own = &self.shared.threads[self.thread];
        let target = &self.shared.threads[thread];
        if handoff::push_lane(lane, &own.counts, &target.flag) {
            bump(&own.metrics.wakes_sent, 1);
            target.wake();
        }
    }

    fn lanes_are_empty(&self) -> bool {
        self.lanes.iter().flatten().all(LaneSender::is_empty)
    }
}

impl<E: Send + 'static> Driver<E> for ThreadDriver<E> {
    fn send(&mut self, _from: StageId, to: StageId, event: E) -> Result<(), E> {
        let Some(target) = self.shared.stages.get(to.index()) else {
            debug_assert!(false, "there is no stage {to}");
            return Err(event);
        };
        let (thread, place) = (target.thread, target.place);
        let sent = if thread == self.thread {
            if self.inboxes[place].queue.len() < self.shared.queue_capacity {
                self.queue(place, event);
                return Ok(());
            }
            Err(event)
        } else if target.metrics.queue_length.load(Ordering::Relaxed)
            >= self.shared.queue_capacity as u64
        {
            Err(event)
        } else {
            match self.lanes[thread].as_mut() {
                Some(lane) => lane.queue(to, event).map(|()| lane.has_chunk()),
                None => Err(event),
            }
        };
        match sent {
            Ok(true) => self.push_lane(thread),
            Ok(false) => {}
            Err(event) => {
                self.shared.stages[to.index()].metrics.refused.fetch_add(1, Ordering::Relaxed);
                return Err(event);
            }
        }
        Ok(())
    }

    fn gauge(&self, stage: StageId) -> &Gauge {
        &self.shared.stages[stage.index()].gauge
    }

    fn io(&self, stage: StageId) -> Option<IoRegistry<'_>> {
        let place = self.shared.stages[stage.index()].place;
        Some(IoRegistry { registry: Some(&self.registry), base: token_base(place), stage })
    }

    fn note_local_peers(&mut self, change: i64) {
        self.shared.local_peers.fetch_add(change, Ordering::Relaxed);
    }
}

/// One thread of a runtime.
pub(crate) struct Reactor<E> {
    shared: Arc<RuntimeShared<E>>,
    local: ThreadDriver<E>,
    slots: Vec<StageEntry<E>>,
    receivers: Vec<LaneReceiver<E>>,
    pool: FrameBatchPool,
    poll: Poll,
    events: Events,
    time: Arc<dyn TimeSource>,
    spinner: Spinner,
    batch: VecDeque<E>,
    /// The stage being run, for the last words of a panic.
    current: Option<StageId>,
    turns: u32,
    received: u64,
    shutting_down: bool,
}

impl<E: Send + 'static> Reactor<E> {
    pub(crate) fn new(
        thread: usize,
        shared: Arc<RuntimeShared<E>>,
        stages: Vec<(StageId, Box<dyn Stage<E>>)>,
        (lanes, receivers): ThreadLanes<E>,
        poll: Poll,
        time: Arc<dyn TimeSource>,
        spin: Spin,
    ) -> io::Result<Self> {
        let registry = poll.registry().try_clone()?;
        let inboxes =
            stages.iter().map(|_| Inbox { queue: VecDeque::new(), probe: None }).collect();
        let slot = |(id, stage)| StageEntry {
            id,
            stage,
            ready: Vec::new(),
            deadline: None,
            asked: true,
            worked: false,
            held: false,
        };
        Ok(Self {
            shared: Arc::clone(&shared),
            local: ThreadDriver { thread, shared, registry, inboxes, lanes, timed: false },
            slots: stages.into_iter().map(slot).collect(),
            receivers,
            pool: FrameBatchPool::new(),
            poll,
            events: Events::with_capacity(POLL_EVENTS),
            time,
            spinner: Spinner::new(spin),
            batch: VecDeque::new(),
            current: None,
            turns: 0,
            received: 0,
            shutting_down: false,
        })
    }

    /// Runs until the runtime is stopped; a panic ends the process, and says where it came from.
    pub(crate) fn run_or_abort(mut self) {
        let ended = catch_unwind(AssertUnwindSafe(|| self.run()));
        if ended.is_err() {
            let name = self
                .current
                .map_or("the runtime itself", |id| &self.shared.stages[id.index()].name);
            let text = format!(
                "Stage {name} panicked (see above). Its state cannot be trusted any more: the \
                 process is aborted."
            );
            tracing::error!("{text}");
            let _ = io::Write::write_all(&mut io::stderr(), format!("{text}\n").as_bytes());
            std::process::abort();
        }
    }

    fn run(&mut self) {
        self.start_stages();
        while !self.shared.shutdown_flags.is_stopped() {
            let took = self.take_events();
            if took || self.has_work() {
                self.poll_now();
            } else {
                self.rest();
            }
            self.turn();
        }
    }

    fn start_stages(&mut self) {
        let now = self.time.now();
        for place in 0..self.slots.len() {
            let slot = &mut self.slots[place];
            self.current = Some(slot.id);
            if let Some(descriptor) = slot.stage.wake_fd() {
                let token = Token(token_base(place) | WAKE_BIT);
                let registered = self.local.registry.register(
                    &mut SourceFd(&descriptor),
                    token,
                    Interest::READABLE,
                );
                assert!(
                    registered.is_ok(),
                    "the wake descriptor of a stage is refused by the poller: {registered:?}"
                );
            }
            let mut ctx = Context::new(&mut self.local, &mut self.pool, now, slot.id, false);
            slot.stage.start(&mut ctx);
        }
    }

    /// Takes what other threads have sent. Whether there was anything.
    fn take_events(&mut self) -> bool {
        let mut taken = 0;
        let Self { shared, receivers, local, .. } = self;
        for receiver in receivers {
            taken += receiver.take(INTAKE_PER_TURN, |to, event| {
                local.queue(shared.stages[to.index()].place, event)
            });
        }
        let injector = &shared.threads[local.thread].injector;
        for _ in 0..INTAKE_PER_TURN {
            let Some((to, event)) = injector.pop() else { break };
            local.queue(shared.stages[to.index()].place, event);
            taken += 1;
        }
        self.received = self.received.wrapping_add(taken as u64);
        taken > 0
    }

    /// Whether a turn is due at once, deadlines aside.
    fn has_work(&self) -> bool {
        let begins = !self.shutting_down && self.shared.shutdown_flags.is_shutting_down();
        let busy = |(slot, inbox): (&StageEntry<E>, &Inbox<E>)| {
            slot.asked || (!inbox.queue.is_empty() && !slot.held)
        };
        begins || self.slots.iter().zip(&self.local.inboxes).any(busy)
    }

    fn poll_now(&mut self) {
        self.wait(Some(Duration::ZERO));
        self.take_readiness();
    }

    /// Asks the operating system; an interrupted call is like one that found nothing.
    fn wait(&mut self, timeout: Option<Duration>) {
        let fine = timeout.filter(|&wait| !wait.is_zero() && wait < COARSE_WAIT);
        let timeout = if let Some(wait) = fine {
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
            // Whether it was ready, interrupted or late: the poll below tells.
            let _ = rustix::event::poll(
                &mut [PollFd::new(self.poll.registry(), PollFlags::IN)],
                Some(&timeout),
            );
            Some(Duration::ZERO)
        } else {
            timeout
        };
        if let Err(error) = self.poll.poll(&mut self.events, timeout) {
            assert!(
                error.kind() == io::ErrorKind::Interrupted,
                "the poller of a thread failed: {error}"
            );
            self.events.clear();
        }
    }

    /// Hands readiness to the slots. Whether there was any but the waker's.
    fn take_readiness(&mut self) -> bool {
        let mut any = false;
        for event in &self.events {
            let token = event.token();
            if token == WAKER {
                continue;
            }
            any = true;
            let place = token.0 >> (TOKEN_BITS + 1);
            let Some(slot) = self.slots.get_mut(place) else { continue };
            if token.0 & WAKE_BIT != 0 {
                slot.asked = true;
                continue;
            }
            let bad = event.is_error();
            slot.ready.push(Readiness {
                token: (token.0 & (WAKE_BIT - 1)) as u64,
                readable: event.is_readable() || event.is_read_closed() || bad,
                writable: event.is_writable() || event.is_write_closed() || bad,
                read_closed: event.is_read_closed(),
                write_closed: event.is_write_closed(),
            });
        }
        self.events.clear();
        any
    }

    /// Waits for something to do, or for the next deadline.
    fn rest(&mut self) {
        let now = self.time.now();
        let deadline = self.slots.iter().filter_map(|slot| slot.deadline).min();
        let mut wait = deadline.map(|deadline| deadline.since(now).min(LONGEST_WAIT));
        let stuck = !self.local.lanes_are_empty() || self.slots.iter().any(|slot| slot.held);
        if stuck {
            wait = Some(wait.map_or(RETRY_INTERVAL, |wait| wait.min(RETRY_INTERVAL)));
        }
        if wait.is_some_and(|wait| wait.is_zero()) {
            self.poll_now();
            return;
        }
        if self.spin(wait) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let own = &shared.threads[self.local.thread];
        let idle = || {
            self.receivers.iter().all(LaneReceiver::is_empty)
                && own.injector.is_empty()
                && shared.shutdown_flags.nothing_new(self.shutting_down)
        };
        if own.flag.may_sleep(idle) {
            bump(&own.metrics.sleeps, 1);
            self.wait(wait);
            own.flag.awake();
            self.take_readiness();
        }
        self.take_events();
    }

    /// Spins for a moment, if that pays. Whether something came, or a deadline passed.
    fn spin(&mut self, wait: Option<Duration>) -> bool {
        let crowded = self.shared.is_crowded();
        let Some(budget) = self.spinner.budget(crowded) else { return false };
        let shared = Arc::clone(&self.shared);
        let own = &shared.threads[self.local.thread];
        bump(&own.metrics.spins, 1);
        let begin = Instant::now();
        let until = wait.map_or(budget, |wait| wait.min(budget));
        loop {
            self.wait(Some(Duration::ZERO));
            let ready = self.take_readiness();
            if self.take_events() || ready {
                self.spinner.learn(true);
                bump(&own.metrics.spins_paid, 1);
                return true;
            }
            if begin.elapsed() >= until || shared.is_crowded() {
                break;
            }
            for _ in 0..8 {
                std::hint::spin_loop();
            }
        }
        if until < budget {
            return true;
        }
        self.spinner.learn(false);
        false
    }

    fn turn(&mut self) {
        let now = self.time.now();
        let begins_shutdown = !self.shutting_down && self.shared.shutdown_flags.is_shutting_down();
        self.shutting_down |= begins_shutdown;
        if self.shutting_down {
            self.shared.threads[self.local.thread].counts.begin_turn();
        }
        self.turns = self.turns.wrapping_add(1);
        self.local.timed = self.turns.is_multiple_of(SAMPLE_EVERY);
        for slot in &mut self.slots {
            slot.held = false;
            slot.asked |= begins_shutdown || slot.deadline.is_some_and(|deadline| deadline <= now);
        }
        for round in 0..MAX_ROUNDS {
            let mut any = false;
            for place in 0..self.slots.len() {
                let slot = &self.slots[place];
                let due = round == 0 && slot.asked;
                let events = !slot.held && !self.local.inboxes[place].queue.is_empty();
                if due || events || !slot.ready.is_empty() {
                    any = true;
                    self.run_stage(place, now, due);
                }
            }
            if !any {
                break;
            }
        }
        self.finish_turn(now);
    }

    /// Gives one stage its readiness, its events and a turn; a wish that it utters counts for the
    /// next turn of the thread.
    fn run_stage(&mut self, place: usize, now: Timestamp, due: bool) {
        let Self { shared, slots, local, pool, batch, current, shutting_down, .. } = self;
        let slot = &mut slots[place];
        *current = Some(slot.id);
        slot.worked = true;
        if due {
            slot.asked = false;
        }
        let metrics = &shared.stages[slot.id.index()].metrics;
        let begin = local.timed.then(Instant::now);
        let inbox = &mut local.inboxes[place];
        let queued = if slot.held { 0 } else { inbox.queue.len() };
        if queued > 0 {
            std::mem::swap(&mut inbox.queue, batch);
            if let (Some(probe), Some(begin)) = (inbox.probe.take(), begin) {
                bump(&metrics.wait_nanos, begin.duration_since(probe).as_nanos() as u64);
                bump(&metrics.wait_samples, 1);
            }
            if queued as u64 > metrics.queue_length_max.load(Ordering::Relaxed) {
                metrics.queue_length_max.store(queued as u64, Ordering::Relaxed);
            }
        }
        let mut ctx = Context::new(local, pool, now, slot.id, *shutting_down);
        turn::run(&mut *slot.stage, &mut ctx, &mut slot.ready, batch);
        slot.asked |= ctx.wants_turn();
        let left = turn::put_back(batch, &mut local.inboxes[place].queue);
        slot.held |= left > 0;
        let handled = queued.saturating_sub(left) as u64;
        bump(&metrics.turns, 1);
        if queued > 0 {
            bump(&metrics.events, handled);
            bump(&metrics.batches, 1);
        }
        if let Some(begin) = begin {
            bump(&metrics.service_nanos, begin.elapsed().as_nanos() as u64);
            bump(&metrics.service_events, handled);
            bump(&metrics.service_samples, 1);
        }
        // Another thread may be waiting for just this: it gets what is for it before the next stage
        // runs here, not after the turn.
        for thread in 0..shared.threads.len() {
            local.push_lane(thread);
        }
    }

    /// Flushes what worked, pushes the lanes, and publishes.
    fn finish_turn(&mut self, now: Timestamp) {
        let shared = Arc::clone(&self.shared);
        for place in 0..self.slots.len() {
            let slot = &mut self.slots[place];
            if !slot.worked {
                continue;
            }
            slot.worked = false;
            self.current = Some(slot.id);
            let begin = self.local.timed.then(Instant::now);
            let mut ctx =
                Context::new(&mut self.local, &mut self.pool, now, slot.id, self.shutting_down);
            slot.stage.flush(&mut ctx);
            slot.asked |= ctx.wants_turn();
            slot.deadline = slot.stage.next_deadline();
            let metrics = &shared.stages[slot.id.index()].metrics;
            if let Some(begin) = begin {
                bump(&metrics.service_nanos, begin.elapsed().as_nanos() as u64);
            }
        }
        self.current = None;
        for (slot, inbox) in self.slots.iter().zip(&self.local.inboxes) {
            let length = &shared.stages[slot.id.index()].metrics.queue_length;
            if length.load(Ordering::Relaxed) != inbox.queue.len() as u64 {
                length.store(inbox.queue.len() as u64, Ordering::Relaxed);
            }
        }
        for thread in 0..shared.threads.len() {
            self.local.push_lane(thread);
        }
        let own = &shared.threads[self.local.thread];
        bump(&own.metrics.turns, 1);
        own.metrics.buffers_allocated.store(self.pool.allocated(), Ordering::Relaxed);
        own.counts.end_turn(self.received);
        if self.shutting_down {
            self.publish_quiet();
        }
    }

    fn publish_quiet(&self) {
        let shared = &self.shared;
        let mut quiet = self.local.lanes_are_empty();
        for (slot, inbox) in self.slots.iter().zip(&self.local.inboxes) {
            let drained = inbox.queue.is_empty() && !slot.asked && slot.stage.drained();
            shared.stages[slot.id.index()].drained.store(drained, Ordering::Release);
            quiet &= drained;
        }
        shared.threads[self.local.thread].counts.say_quiet(quiet);
    }
}
