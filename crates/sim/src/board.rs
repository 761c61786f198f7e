//! What all clients of a run share: the plans to run, and the history of what came of them.
//!
//! A *slot* is a place for one session at a time. Its plans go on where they stopped when the
//! client of its session dies, so that elements stay unique; its process number in the history
//! changes then, as it does after every unknown outcome.
//!
//! ```text
//!   slots ── what begins and ends ──► recorder: the history        settings: what sessions do
//!   sessions ── loaded, acknowledged, found ──► data               complaints ◄── wrong answers
//! ```

mod complaints;
mod data;
mod recorder;

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use timestone_client::{ClockOffset, ErrorCode};
use timestone_seda::simulated::VirtualTime;
use timestone_types::{ShardId, Timestamp};
use timestone_workload::history::{MicroOp, Process};
use timestone_workload::{
    Generator, KeyIndex, Op, Snapshots, TxnPlan, ValueKind, WorkloadError, WorkloadKind,
    WorkloadSpec,
};

pub(crate) use self::complaints::Complaints;
pub(crate) use self::data::KnownData;
pub use self::recorder::TxnTally;
use self::recorder::name;
pub(crate) use self::recorder::{Account, OpenTransaction, Recorder, TxnEnd};
use crate::clock::{TrueTime, moment};
use crate::keyspaces::Keyspaces;
use crate::redis::{Calls, Mode};
use crate::scenario::WorkloadPart;
use crate::single::{Single, WAYS};
use timestone_types::random::{Dice, Seed};

/// Closed sessions begin within this time.
const STAGGER: Duration = Duration::from_millis(20);

/// What clients do.
#[derive(Clone, Debug)]
pub(crate) enum ClientWork {
    /// One of the workloads.
    Plans(WorkloadSpec),
    /// A ring of keys, each naming the next one, cut and joined again.
    Ring {
        /// Keys.
        nodes: u64,
        /// How keys look.
        spec: WorkloadSpec,
    },
}

impl ClientWork {
    pub(crate) const fn spec(&self) -> &WorkloadSpec {
        match self {
            Self::Plans(spec) | Self::Ring { spec, .. } => spec,
        }
    }

    /// Whether values are a workload's fillings, each led by the number of its write: what was read
    /// is checked as registers are.
    pub(crate) fn is_numbered(&self) -> bool {
        matches!(self, Self::Plans(spec) if spec.value_kind() == ValueKind::Opaque)
    }
}

#[derive(Debug)]
struct BoardSlot {
    process: Process,
    open: Option<OpenTransaction>,
    generator: Option<Generator>,
    dice: Dice,
    /// None before the first.
    next_start: Option<VirtualTime>,
    /// A session runs in it.
    running: bool,
}

#[derive(Debug)]
struct BoardState {
    slots: Vec<BoardSlot>,
    next_process: u64,
    /// The number of the last write that was given one.
    numbered: i64,
    is_over: bool,
    /// The faults are over.
    is_calm: bool,
    /// Loading and auditing that have not ended.
    tasks: usize,
}

/// What sessions do beside the plans of their workload, and what they are held to.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionSettings {
    /// From one transaction of a session to its next, on average.
    pub(crate) interval: Duration,
    /// Nothing but how often is written down.
    pub(crate) closed: bool,
    /// With `closed`: what aborts is tried again.
    pub(crate) retries: bool,
    /// Some appends are acknowledged and never made: whoever checks must find that.
    pub(crate) canary: bool,
    /// Commits are acknowledged when the clock's error bound has passed.
    pub(crate) external: bool,
    /// All clocks show the same, always: what answers tell of servers' clocks can be judged.
    pub(crate) clocks_agree: bool,
    /// No clock is ever further from another one than clocks without faults are: nobody's clock is
    /// too far ahead.
    pub(crate) clocks_hold: bool,
    /// How long sessions wait for an operation, if not as usual.
    pub(crate) deadline: Option<Duration>,
    /// Whether every outcome must be known unless that has passed.
    pub(crate) outcomes_known: bool,
    /// What a single operation can do is done by one.
    pub(crate) singles: bool,
    /// So many of a hundred of those are given up.
    pub(crate) give_ups: u64,
    /// So many of a hundred transactions are scans.
    pub(crate) scans: u64,
    /// So many of a hundred transactions read a range as well.
    pub(crate) ranges: u64,
    /// For about so long values that expire are there; none expires when it is left out.
    pub(crate) expires: Option<Duration>,
    /// So many bytes has every third value.
    pub(crate) large: Option<u32>,
    /// What only reads may read so far in the past, and at backups.
    pub(crate) max_staleness: Option<Duration>,
    /// So many sessions of each client only read.
    pub(crate) readers: u64,
    /// So long they may wait for a snapshot.
    pub(crate) old_reads_within: Option<Duration>,
}

/// Most keys of a range that a transaction reads.
const MAX_RANGE_KEYS: u64 = 12;

/// A range that a transaction reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlannedRange {
    /// Its keys, whether or not they are there.
    pub(crate) keys: Range<KeyIndex>,
    /// It stops after so many.
    pub(crate) limit: Option<usize>,
    /// The operation of the plan that comes next.
    pub(crate) before: usize,
}

impl PlannedRange {
    /// Whether it is read from its last key down, as every second one is.
    pub(crate) const fn is_descending(&self) -> bool {
        self.keys.start.0 % 2 == 1
    }
}

/// Transactions that only read and committed, since the world began.
#[derive(Debug, Default)]
pub(crate) struct ReadOnlyCounts {
    /// All of them.
    pub(crate) committed: AtomicU64,
    /// Those that committed without a message.
    pub(crate) locally: AtomicU64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Board {
    truth: TrueTime,
    pub(crate) work: ClientWork,
    pub(crate) settings: SessionSettings,
    /// Where keys are kept.
    pub(crate) keyspaces: Keyspaces,
    /// What the Redis clients share, if there are any.
    pub(crate) redis: Option<Arc<Calls>>,
    pub(crate) recorder: Recorder,
    pub(crate) data: KnownData,
    /// How old what read-only transactions read is.
    pub(crate) snapshots: Snapshots,
    pub(crate) complaints: Complaints,
    /// Reads that backups have answered.
    pub(crate) backup_reads: AtomicU64,
    /// What only read and committed, and what of it did so in the client.
    pub(crate) read_only: ReadOnlyCounts,
    /// Since when snapshots that may be old must be answered, if they must.
    pub(crate) old_reads: Mutex<Option<VirtualTime>>,
    state: Mutex<BoardState>,
}

impl SessionSettings {
    /// As the file says; what depends on the seed is added.
    pub(crate) fn of(part: &WorkloadPart) -> Self {
        let (demands, registers) = (&part.demands, &part.registers);
        Self {
            closed: part.closed,
            retries: part.retries,
            canary: part.canary,
            deadline: demands.deadline.map(Duration::from),
            outcomes_known: demands.outcomes_known,
            singles: registers.singles,
            give_ups: registers.give_ups,
            scans: registers.scans.unwrap_or(0),
            ranges: part.mix.ranges,
            expires: registers.expires.map(Duration::from),
            large: registers.large,
            max_staleness: part.mix.max_staleness.map(Duration::from),
            readers: part.mix.readers,
            old_reads_within: demands.old_reads_within.map(Duration::from),
            ..Self::default()
        }
    }
}

impl BoardSlot {
    /// From one start to the next.
    fn pause(&mut self, interval: u64) -> Duration {
        Duration::from_nanos(interval / 2 + self.dice.below(interval + 1))
    }
}

impl Board {
    pub(crate) fn new(
        truth: TrueTime,
        work: ClientWork,
        slots: u32,
        settings: SessionSettings,
        seed: Seed,
    ) -> Result<Self, WorkloadError> {
        let mut made = Vec::new();
        for slot in 0..slots {
            let generator = match &work {
                ClientWork::Plans(spec) => Some(Generator::new(spec, slot, slots)?),
                ClientWork::Ring { .. } => None,
            };
            let dice = seed.derive("slot", u64::from(slot)).dice();
            made.push(BoardSlot {
                process: Process(u64::from(slot)),
                open: None,
                generator,
                dice,
                next_start: None,
                running: false,
            });
        }
        let state = BoardState {
            slots: made,
            next_process: u64::from(slots),
            numbered: 0,
            is_over: false,
            is_calm: false,
            tasks: 0,
        };
        Ok(Self {
            work,
            settings,
            keyspaces: Keyspaces::default(),
            redis: None,
            recorder: Recorder::new(truth.clone()),
            data: KnownData::default(),
            snapshots: Snapshots::default(),
            complaints: Complaints::new(truth.clone()),
            backup_reads: AtomicU64::new(0),
            read_only: ReadOnlyCounts::default(),
            old_reads: Mutex::default(),
            state: Mutex::new(state),
            truth,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a session waits before its next transaction; none when the run is over.
    pub(crate) fn next_wait(&self, slot: usize) -> Option<Duration> {
        let now = self.truth.now();
        let mut state = self.lock();
        if state.is_over {
            return None;
        }
        let interval = self.settings.interval.as_nanos() as u64;
        let closed = self.settings.closed;
        let slot = &mut state.slots[slot];
        let Some(next_start) = slot.next_start else {
            // In step for ever, were closed sessions to begin together: all with the client, then
            // all with the server.
            let first = if closed { slot.dice.below(STAGGER.as_nanos() as u64) } else { 0 };
            let start = now.after(Duration::from_nanos(first));
            slot.next_start = Some(start.after(slot.pause(interval)));
            return Some(start.since(now));
        };
        let start = next_start.max(now);
        // Evenly between half and one and a half of the interval after the one before, or at once
        // when that is past.
        slot.next_start = Some(next_start.after(slot.pause(interval)).max(now));
        Some(start.since(now))
    }

    /// The slot's next plan. Puts of fillings become writes of numbers that no other write carries.
    pub(crate) fn plan(&self, slot: usize, plan: &mut TxnPlan) {
        self.draw(&mut self.lock(), slot, plan);
    }

    fn draw(&self, state: &mut BoardState, slot: usize, plan: &mut TxnPlan) {
        let BoardState { slots, numbered, .. } = state;
        let Some(generator) = &mut slots[slot].generator else { return };
        generator.next(plan);
        if !self.work.is_numbered() {
            return;
        }
        for op in &mut plan.ops {
            let (key, millis) = match *op {
                Op::Put(key) => (key, None),
                Op::PutFor { key, millis } => (key, Some(millis)),
                _ => continue,
            };
            *numbered += 1;
            let value = *numbered;
            *op = millis.map_or(Op::Write { key, value }, |millis| Op::WriteFor {
                key,
                value,
                millis,
            });
        }
    }

    /// The operation on one key that carries a plan out, if one does.
    pub(crate) fn single(&self, slot: usize, plan: &TxnPlan) -> Option<Single> {
        if !self.settings.singles {
            return None;
        }
        let way = self.roll(slot, WAYS);
        Single::of(plan, way, self.until(slot))
    }

    /// When a value that is written now expires, if any does.
    fn until(&self, slot: usize) -> Option<Timestamp> {
        self.settings.expires.map(|span| {
            let span = span.as_nanos() as u64;
            self.at().saturating_add(Duration::from_nanos(span / 2 + self.roll(slot, span)))
        })
    }

    pub(crate) fn roll(&self, slot: usize, bound: u64) -> u64 {
        self.lock().slots[slot].dice.below(bound)
    }

    /// A session is begun in a slot.
    pub(crate) fn session_begins(&self, slot: usize) {
        self.lock().slots[slot].running = true;
    }

    /// Whoever works in this slot next is another session, and need not see what this one wrote.
    pub(crate) fn session_ends(&self, slot: usize) {
        let mut state = self.lock();
        state.slots[slot].running = false;
        state.rename(slot);
    }

    /// Loading or auditing is begun.
    pub(crate) fn task_begins(&self) {
        self.lock().tasks += 1;
    }

    pub(crate) fn task_ends(&self) {
        self.lock().tasks -= 1;
    }

    /// Sessions, loading and auditing that have not ended.
    pub(crate) fn live(&self) -> usize {
        let state = self.lock();
        let redis = self.redis.as_ref().map_or(0, |calls| calls.live());
        state.slots.iter().filter(|slot| slot.running).count() + state.tasks + redis
    }

    /// What Redis clients do from now on.
    pub(crate) fn set_redis_mode(&self, mode: Mode) {
        if let Some(calls) = &self.redis {
            calls.set_mode(mode);
        }
    }

    /// What the sessions that have not ended are doing.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        let state = self.lock();
        let running = state.slots.iter().filter(|slot| slot.running);
        let one = |slot: &BoardSlot| match &slot.open {
            Some(open) => format!(
                "{} is under way, with {} steps",
                name(open.index, slot.process),
                open.ops.len()
            ),
            None => format!("process {} is between transactions", slot.process.0),
        };
        let redis = self.redis.iter().flat_map(|calls| calls.unfinished());
        running.map(one).chain(redis).collect()
    }

    /// No more transactions begin, until [`Board::resume`].
    pub(crate) fn finish(&self) {
        self.lock().is_over = true;
        self.set_redis_mode(Mode::Idle);
    }

    /// Sessions may be begun again, in calm.
    pub(crate) fn resume(&self) {
        let mut state = self.lock();
        (state.is_over, state.is_calm) = (false, true);
    }

    /// How long the slot's session waits for a single operation that it gives up, if it does: not at
    /// all, or a moment.
    pub(crate) fn gives_up(&self, slot: usize) -> Option<Duration> {
        let share = self.settings.give_ups;
        let gives_up = share > 0 && self.roll(slot, 100) < share && !self.lock().is_calm;
        let moment = Duration::from_micros(200).as_nanos() as u64;
        gives_up.then(|| Duration::from_nanos(self.roll(slot, 2) * self.roll(slot, moment)))
    }

    /// Whether the slot's next transaction is a scan.
    pub(crate) fn draws_scan(&self, slot: usize) -> bool {
        self.settings.scans > 0 && self.roll(slot, 100) < self.settings.scans
    }

    /// The range that the slot's next transaction reads, if it reads one: around one of its keys.
    pub(crate) fn draws_range(&self, slot: usize, plan: &TxnPlan) -> Option<PlannedRange> {
        if self.settings.ranges == 0 || plan.ops.is_empty() {
            return None;
        }
        let drawn = self.roll(slot, 100) < self.settings.ranges;
        let of = plan.ops[self.roll(slot, plan.ops.len() as u64) as usize].key();
        let width = 1 + self.roll(slot, MAX_RANGE_KEYS);
        let first = of.0.saturating_sub(self.roll(slot, width));
        let limit = (self.roll(slot, 3) == 0).then(|| 1 + self.roll(slot, 4) as usize);
        let before = self.roll(slot, plan.ops.len() as u64 + 1) as usize;
        let keys = KeyIndex(first)..KeyIndex(first + width);
        drawn.then_some(PlannedRange { keys, limit, before })
    }

    /// The number of the keyspace of the slot's next scan.
    pub(crate) fn draws_keyspace(&self, slot: usize) -> u64 {
        let count = self.keyspaces.count();
        if count > 1 { self.roll(slot, count) } else { 0 }
    }

    pub(crate) fn touched(&self) -> u64 {
        self.data.touched() + self.redis.as_ref().map_or(0, |calls| calls.touched())
    }

    /// Now, counted from the run's begin.
    pub(crate) fn at(&self) -> Timestamp {
        moment(self.truth.now())
    }

    /// A transaction of the slot begins.
    pub(crate) fn invoke(&self, slot: usize, ops: Vec<MicroOp>) {
        let slot = &mut self.lock().slots[slot];
        assert!(slot.open.is_none(), "a session runs one transaction at a time");
        slot.open = Some(self.recorder.invoke(slot.process, ops));
    }

    /// The slot's transaction was invoked to do this.
    pub(crate) fn amends(&self, slot: usize, ops: Vec<MicroOp>) {
        if let Some(open) = &mut self.lock().slots[slot].open {
            self.recorder.amend(open, ops);
        }
    }

    /// The slot's transaction asks to be committed; what it adds to which account, in a bank.
    pub(crate) fn commits(&self, slot: usize, adds: Vec<(KeyIndex, i64)>) {
        if self.work.spec().kind == WorkloadKind::Bank
            && let Some(open) = &mut self.lock().slots[slot].open
        {
            open.adds = adds;
        }
    }

    /// The slot's transaction ends. After an unknown outcome its session goes on as another
    /// process.
    pub(crate) fn complete(&self, slot: usize, fate: TxnEnd, seen: Vec<MicroOp>) {
        let mut state = self.lock();
        if self.end(&mut state, slot, fate, seen) && fate == TxnEnd::Unknown {
            let before = state.slots[slot].process;
            state.rename(slot);
            self.recorder.succeed(before, state.slots[slot].process);
        }
    }

    /// Writes down how a slot's transaction ended, if it has one.
    fn end(&self, state: &mut BoardState, slot: usize, fate: TxnEnd, seen: Vec<MicroOp>) -> bool {
        let slot = &mut state.slots[slot];
        let Some(open) = slot.open.take() else { return false };
        self.recorder.complete(slot.process, open, fate, seen);
        true
    }

    /// The transactions under way in these slots.
    pub(crate) fn open(&self, slots: Range<usize>) -> Vec<OpenTransaction> {
        self.lock().slots[slots].iter().filter_map(|slot| slot.open.clone()).collect()
    }

    /// A closed session begins its next transaction; whether the run goes on. Nothing is kept of it
    /// but its count: sessions of `bench` have no board either.
    /// `again`: it is the last one once more.
    pub(crate) fn begin_closed(&self, slot: usize, again: bool, plan: &mut TxnPlan) -> bool {
        let mut state = self.lock();
        if state.is_over {
            return false;
        }
        self.recorder.begin_closed();
        if !again {
            self.draw(&mut state, slot, plan);
        }
        true
    }

    /// The client of these slots has died: what they were doing is unknown.
    pub(crate) fn abandon(&self, slots: Range<usize>) {
        let mut state = self.lock();
        for slot in slots {
            self.end(&mut state, slot, TxnEnd::Unknown, Vec::new());
            state.rename(slot);
            state.slots[slot].running = false;
        }
    }

    /// A server has restarted that has these shards, of `total`: what it had in memory is gone. The
    /// history tells that as deletions, each of one key and by nobody's session.
    pub(crate) fn lose_memory(&self, shards: &[ShardId], total: u16) {
        let keys = self.recorder.written_keys();
        let shape = self.work.spec().key_shape();
        let mut state = self.lock();
        for key in self.keyspaces.in_memory_of(shards, total, shape, keys.into_iter()) {
            let process = state.next_process();
            self.keyspaces.lose(key, self.recorder.delete(process, key));
        }
    }

    /// Judges what a client has learned of the clocks of servers.
    pub(crate) fn judge_clocks(&self, offsets: &[(ShardId, ClockOffset)]) {
        for (shard, offset) in offsets.iter().filter(|_| self.settings.clocks_agree) {
            if offset.least_ns > 0 || offset.most_ns < 0 {
                let (least, most) = (offset.least_ns, offset.most_ns);
                self.complaints.wrong(format!(
                    "the clock of shard {shard}'s server is said to be {least} to {most} ns ahead, \
                     and is not"
                ));
            }
        }
    }

    /// Judges an error that a client was told: where all clocks are right, none is said to be ahead.
    pub(crate) fn judge_error(&self, error: &timestone_client::Error) {
        if self.settings.clocks_hold && error.code() == ErrorCode::ClockAhead {
            self.complaints
                .wrong(format!("no clock is far ahead of another one, and yet: {error}"));
        }
    }

    /// An operation that began at `invoked` has ended, and nobody knows how.
    pub(crate) fn ended_unknown(&self, invoked: VirtualTime) {
        let allowed = self
            .settings
            .deadline
            .unwrap_or_else(|| timestone_client::EngineConfig::default().default_deadline);
        let took = self.truth.now().since(invoked);
        // A client's clock may run a little faster than true time.
        if self.settings.outcomes_known && took.saturating_add(took / 10) < allowed {
            self.complaints.wrong(format!(
                "nobody knows how an operation ended that took {took:?} of {allowed:?}"
            ));
        }
    }

    /// A session that only reads has its snapshot, which it asked for at `asked`.
    pub(crate) fn answered_old_read(&self, asked: VirtualTime) {
        let since = *self.old_reads.lock().unwrap_or_else(PoisonError::into_inner);
        let (took, within) = (self.now().since(asked), self.settings.old_reads_within);
        if within.is_some_and(|within| took > within) && since.is_some_and(|since| since <= asked) {
            self.complaints.wrong(format!(
                "a snapshot that may be old was answered after {took:?}, although there are servers \
                 enough, and every shard was served not long before"
            ));
        }
    }

    /// True time.
    pub(crate) fn now(&self) -> VirtualTime {
        self.truth.now()
    }

    pub(crate) fn last_words(&self) -> Option<String> {
        self.complaints.last_words().or_else(|| self.redis.as_ref()?.last_error())
    }

    pub(crate) fn all_wrong(&self) -> Vec<String> {
        let mut wrong = self.complaints.all_wrong();
        wrong.extend(self.redis.iter().flat_map(|calls| calls.all_wrong()));
        wrong
    }

    pub(crate) fn tally(&self) -> TxnTally {
        let native = self.recorder.tally();
        self.redis.as_ref().map_or(native, |calls| native.plus(calls.tally()))
    }

    /// The same of those whose history is judged for liveness: sessions of the native protocol, or
    /// calls of Redis clients where those do nothing.
    pub(crate) fn tally_of_sessions(&self) -> TxnTally {
        let native = self.recorder.tally();
        if native.begun > 0 { native } else { self.tally() }
    }
}

impl BoardState {
    /// The number of a process that was not there yet.
    const fn next_process(&mut self) -> Process {
        let process = Process(self.next_process);
        self.next_process += 1;
        process
    }

    fn rename(&mut self, slot: usize) {
        self.slots[slot].process = self.next_process();
    }
}
