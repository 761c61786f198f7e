//! What all clients of a run share: the plans to run, and the history of what came of them.
//!
//! A *slot* is a place for one session at a time. Its plans go on where they stopped when the
//! client of its session dies, so that elements stay unique; its process number in the history
//! changes then, as it does after every unknown outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use timestone_client::ClockOffset;
use timestone_seda::simulated::VirtualTime;
use timestone_types::{ShardId, Timestamp};
use timestone_workload::history::{Event, EventKind, History, MicroOp, Process, Seen};
use timestone_workload::{
    Generator, KeyIndex, Op, TxnPlan, ValueKind, WorkloadError, WorkloadKind, WorkloadSpec,
};

use crate::clock::TrueTime;
use crate::keyspaces::Keyspaces;
use crate::redis::{Calls, Mode};
use crate::single::{Single, WAYS};
use crate::{names, words};
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

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Transactions begun.
    pub begun: u64,
    /// That were told that they committed.
    pub committed: u64,
    /// That certainly did not.
    pub aborted: u64,
    /// Of which nobody knows.
    pub unknown: u64,
    /// Of the aborted: by errors other than conflicts.
    pub errors: u64,
}

impl Tally {
    /// Both together.
    const fn plus(self, other: Self) -> Self {
        Self {
            begun: self.begun + other.begun,
            committed: self.committed + other.committed,
            aborted: self.aborted + other.aborted,
            unknown: self.unknown + other.unknown,
            errors: self.errors + other.errors,
        }
    }

    const fn count(&mut self, fate: TxnEnd) {
        match fate {
            TxnEnd::Committed => self.committed += 1,
            TxnEnd::Aborted => self.aborted += 1,
            TxnEnd::Failed => {
                self.aborted += 1;
                self.errors += 1;
            }
            TxnEnd::Unknown => self.unknown += 1,
        }
    }
}

/// A transaction under way.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// The index of its invocation: how the history calls it.
    pub(crate) index: u64,
    pub(crate) ops: Vec<MicroOp>,
    /// What it adds to which account, once it asked to be committed.
    adds: Vec<(KeyIndex, i64)>,
}

/// What happened to an account of the bank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// The sum of what was acknowledged.
    pub(crate) acknowledged: i64,
    /// What is of unknown outcome.
    pub(crate) unknown: Vec<i64>,
}

#[derive(Debug)]
struct BoardSlot {
    process: u64,
    open: Option<Open>,
    generator: Option<Generator>,
    dice: Dice,
    /// None before the first.
    next_start: Option<VirtualTime>,
    /// A session runs in it.
    running: bool,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxnEnd {
    Committed,
    Aborted,
    Failed,
    Unknown,
}

#[derive(Debug)]
struct BoardState {
    slots: Vec<BoardSlot>,
    next_process: u64,
    events: Vec<Event>,
    successors: BTreeMap<Process, Process>,
    accounts: BTreeMap<KeyIndex, Account>,
    tally: Tally,
    /// Why an answer cannot be right, whatever the order of things was.
    wrong: Vec<String>,
    last_words: Option<String>,
    /// By slot: how often its sessions were told that their client's clock is late.
    told_late: BTreeMap<usize, u64>,
    /// Writes of keys once more, attempts included.
    touched: u64,
    /// What sessions did, in words, until the trace takes it.
    notes: Vec<(VirtualTime, String)>,
    /// The highest timestamp of what was loaded.
    loaded: Timestamp,
    /// The highest timestamp of a write that was acknowledged, by the number of its keyspace.
    acknowledged: BTreeMap<u64, Timestamp>,
    /// Walks of the whole ring.
    walked: u64,
    /// How many numbers writes were given.
    numbered: i64,
    is_over: bool,
    tasks: usize,
    found: BTreeMap<KeyIndex, Seen>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Board {
    truth: TrueTime,
    pub(crate) work: ClientWork,
    /// From one transaction of a session to its next, on average.
    interval: Duration,
    /// Nothing but how often is written down.
    pub(crate) closed: bool,
    /// Some appends are acknowledged and never made: whoever checks must find that.
    pub(crate) canary: bool,
    /// Commits are acknowledged when the clock's error bound has passed.
    pub(crate) external: bool,
    /// All clocks show the same, always: what answers tell of servers' clocks can be judged.
    pub(crate) clocks_agree: bool,
    /// How long sessions wait for an operation, if not as usual.
    pub(crate) deadline: Option<Duration>,
    /// Whether every outcome must be known unless that has passed.
    pub(crate) outcomes_known: bool,
    /// What a single operation can do is done by one.
    pub(crate) singles: bool,
    /// So many of a hundred transactions are scans.
    pub(crate) scans: u64,
    /// For about so long values that expire are there; none expires when it is left out.
    pub(crate) expires: Option<Duration>,
    /// So many bytes has every third value.
    pub(crate) large: Option<u32>,
    /// Where keys are kept.
    pub(crate) keyspaces: Keyspaces,
    /// What sessions do is noted in words.
    pub(crate) notes: bool,
    /// What the Redis clients share, if there are any.
    pub(crate) redis: Option<Arc<Calls>>,
    state: Mutex<BoardState>,
}

/// A transaction and who runs it, as checkers call them.
fn name(index: u64, process: u64) -> String {
    format!("{} (process {process})", names::transaction(index))
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
        interval: Duration,
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
                process: u64::from(slot),
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
            events: Vec::new(),
            successors: BTreeMap::new(),
            accounts: BTreeMap::new(),
            tally: Tally::default(),
            wrong: Vec::new(),
            last_words: None,
            told_late: BTreeMap::new(),
            touched: 0,
            notes: Vec::new(),
            loaded: Timestamp::ZERO,
            acknowledged: BTreeMap::new(),
            walked: 0,
            numbered: 0,
            is_over: false,
            tasks: 0,
            found: BTreeMap::new(),
        };
        let state = Mutex::new(state);
        Ok(Self {
            truth,
            work,
            interval,
            closed: false,
            canary: false,
            external: false,
            clocks_agree: false,
            deadline: None,
            outcomes_known: false,
            singles: false,
            expires: None,
            large: None,
            keyspaces: Keyspaces::default(),
            scans: 0,
            notes: false,
            redis: None,
            state,
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
        let interval = self.interval.as_nanos() as u64;
        let closed = self.closed;
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
        if !self.singles {
            return None;
        }
        let way = self.roll(slot, WAYS);
        Single::of(plan, way, self.until(slot))
    }

    /// When a value that is written now expires, if any does.
    fn until(&self, slot: usize) -> Option<Timestamp> {
        self.expires.map(|span| {
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
            None => format!("process {} is between transactions", slot.process),
        };
        let redis = self.redis.iter().flat_map(|calls| calls.unfinished());
        running.map(one).chain(redis).collect()
    }

    /// No more transactions begin, until [`Board::resume`].
    pub(crate) fn finish(&self) {
        self.lock().is_over = true;
        self.set_redis_mode(Mode::Idle);
    }

    /// Sessions may be begun again.
    pub(crate) fn resume(&self) {
        self.lock().is_over = false;
    }

    /// So many keys are about to be written once more.
    pub(crate) fn touch(&self, keys: usize) {
        self.lock().touched += keys as u64;
    }

    /// Something was loaded at `at`.
    pub(crate) fn load(&self, at: Timestamp) {
        let mut state = self.lock();
        state.loaded = state.loaded.max(at);
    }

    /// Whether a snapshot is of a time when not everything was loaded: a clock that is behind sees
    /// how things were.
    pub(crate) fn precedes_load(&self, snapshot: Timestamp) -> bool {
        snapshot < self.lock().loaded
    }

    /// A write of a key was acknowledged, at `at`.
    pub(crate) fn acknowledge(&self, key: KeyIndex, at: Timestamp) {
        let mut state = self.lock();
        let latest = state.acknowledged.entry(self.keyspaces.number_of(key)).or_default();
        *latest = at.max(*latest);
    }

    /// The highest timestamp of a write to a keyspace that was acknowledged by now.
    pub(crate) fn acknowledged(&self, keyspace: u64) -> Timestamp {
        self.lock().acknowledged.get(&keyspace).copied().unwrap_or_default()
    }

    /// Whether the slot's next transaction is a scan.
    pub(crate) fn draws_scan(&self, slot: usize) -> bool {
        self.scans > 0 && self.roll(slot, 100) < self.scans
    }

    /// The number of the keyspace of the slot's next scan.
    pub(crate) fn draws_keyspace(&self, slot: usize) -> u64 {
        let count = self.keyspaces.count();
        if count > 1 { self.roll(slot, count) } else { 0 }
    }

    /// The whole ring was walked and looked at.
    pub(crate) fn walk(&self) {
        self.lock().walked += 1;
    }

    pub(crate) fn walked(&self) -> u64 {
        self.lock().walked
    }

    pub(crate) fn touched(&self) -> u64 {
        self.lock().touched + self.redis.as_ref().map_or(0, |calls| calls.touched())
    }

    /// Now, counted from the run's begin.
    pub(crate) fn at(&self) -> Timestamp {
        Timestamp::from_nanos(self.truth.now().as_nanos())
    }

    /// A transaction of the slot begins.
    pub(crate) fn invoke(&self, slot: usize, ops: Vec<MicroOp>) {
        let time = self.at();
        let mut state = self.lock();
        state.tally.begun += 1;
        let index = state.events.len() as u64;
        let entry = &mut state.slots[slot];
        let process = Process(entry.process);
        entry.open = Some(Open { index, ops: ops.clone(), adds: Vec::new() });
        self.note(&mut state, index, process, "begins", &ops);
        state.events.push(Event { kind: EventKind::Invoke, process, index, time, ops });
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
            let before = Process(state.slots[slot].process);
            state.rename(slot);
            let after = Process(state.slots[slot].process);
            state.successors.insert(before, after);
        }
    }

    fn note(
        &self,
        state: &mut BoardState,
        index: u64,
        process: Process,
        what: &str,
        ops: &[MicroOp],
    ) {
        if self.notes {
            let steps = words::steps(ops);
            let colon = if steps.is_empty() { "" } else { ":" };
            state.notes.push((
                self.truth.now(),
                format!("{} {what}{colon}{steps}", name(index, process.0)),
            ));
        }
    }

    /// Writes down how a slot's transaction ended, if it has one.
    fn end(&self, state: &mut BoardState, slot: usize, fate: TxnEnd, seen: Vec<MicroOp>) -> bool {
        let entry = &mut state.slots[slot];
        let Some(Open { index: invocation, ops: invoked, adds }) = entry.open.take() else {
            return false;
        };
        let process = Process(entry.process);
        let (kind, ended, ops) = match fate {
            TxnEnd::Committed => (EventKind::Ok, "committed", seen),
            TxnEnd::Aborted => (EventKind::Fail, "aborted", invoked),
            TxnEnd::Failed => (EventKind::Fail, "failed", invoked),
            TxnEnd::Unknown => (EventKind::Info, "ended, and nobody knows how", invoked),
        };
        state.tally.count(fate);
        for (key, delta) in adds {
            let account = state.accounts.entry(key).or_default();
            match fate {
                TxnEnd::Committed => account.acknowledged += delta,
                TxnEnd::Unknown => account.unknown.push(delta),
                TxnEnd::Aborted | TxnEnd::Failed => {}
            }
        }
        self.note(state, invocation, process, ended, &ops);
        let index = state.events.len() as u64;
        state.events.push(Event { kind, process, index, time: self.at(), ops });
        true
    }

    /// A session was told that its client's clock is too far behind.
    pub(crate) fn clock_is_late(&self, slot: usize) {
        *self.lock().told_late.entry(slot).or_default() += 1;
    }

    /// How often that was told to sessions of these slots.
    pub(crate) fn told_late(&self, slots: Range<usize>) -> u64 {
        self.lock().told_late.range(slots).map(|(_, times)| *times).sum()
    }

    /// Takes what sessions did since the last time.
    pub(crate) fn take_notes(&self) -> Vec<(VirtualTime, String)> {
        std::mem::take(&mut self.lock().notes)
    }

    /// The transactions under way in these slots.
    pub(crate) fn open(&self, slots: std::ops::Range<usize>) -> Vec<Open> {
        self.lock().slots[slots].iter().filter_map(|slot| slot.open.clone()).collect()
    }

    /// A closed session begins its next transaction; whether the run goes on. Nothing is kept of it
    /// but its count: sessions of `bench` have no board either.
    pub(crate) fn begin_closed(&self, slot: usize, plan: &mut TxnPlan) -> bool {
        let mut state = self.lock();
        if state.is_over {
            return false;
        }
        state.tally.begun += 1;
        self.draw(&mut state, slot, plan);
        true
    }

    pub(crate) fn end_closed(&self, fate: TxnEnd) {
        self.lock().tally.count(fate);
    }

    /// The client of these slots has died: what they were doing is unknown.
    pub(crate) fn abandon(&self, slots: std::ops::Range<usize>) {
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
        let (keys, time) = (self.written_keys(), self.at());
        let shape = self.work.spec().key_shape();
        let mut state = self.lock();
        for key in self.keyspaces.in_memory_of(shards, total, shape, keys.into_iter()) {
            let process = Process(state.next_process);
            state.next_process += 1;
            for kind in [EventKind::Invoke, EventKind::Ok] {
                let index = state.events.len() as u64;
                let ops = vec![MicroOp::Write { key, value: None }];
                state.events.push(Event { kind, process, index, time, ops });
            }
            self.keyspaces.lose(key, state.events.len() - 1);
        }
    }

    /// Judges what a client has learned of the clocks of servers.
    pub(crate) fn judge_clocks(&self, offsets: &[(ShardId, ClockOffset)]) {
        for (shard, offset) in offsets.iter().filter(|_| self.clocks_agree) {
            if offset.least_ns > 0 || offset.most_ns < 0 {
                let (least, most) = (offset.least_ns, offset.most_ns);
                self.wrong(format!(
                    "the clock of shard {shard}'s server is said to be {least} to {most} ns ahead, \
                     and is not"
                ));
            }
        }
    }

    /// Notes an answer that is wrong by itself.
    pub(crate) fn wrong(&self, what: String) {
        let at = self.truth.now();
        let mut state = self.lock();
        if state.wrong.len() < 20 {
            state.wrong.push(format!("at {at}: {what}"));
        }
    }

    /// An operation that began at `invoked` has ended, and nobody knows how.
    pub(crate) fn ended_unknown(&self, invoked: VirtualTime) {
        let allowed = self
            .deadline
            .unwrap_or_else(|| timestone_client::EngineConfig::default().default_deadline);
        let took = self.truth.now().since(invoked);
        // A client's clock may run a little faster than true time.
        if self.outcomes_known && took.saturating_add(took / 10) < allowed {
            self.wrong(format!(
                "nobody knows how an operation ended that took {took:?} of {allowed:?}"
            ));
        }
    }

    /// True time.
    pub(crate) fn now(&self) -> VirtualTime {
        self.truth.now()
    }

    pub(crate) fn said(&self, words: String) {
        self.lock().last_words = Some(words);
    }

    pub(crate) fn last_words(&self) -> Option<String> {
        self.lock().last_words.clone().or_else(|| self.redis.as_ref()?.last_error())
    }

    pub(crate) fn found(&self, key: KeyIndex, seen: Seen) {
        self.lock().found.insert(key, seen);
    }

    pub(crate) fn all_found(&self) -> BTreeMap<KeyIndex, Seen> {
        self.lock().found.clone()
    }

    pub(crate) fn accounts(&self) -> BTreeMap<KeyIndex, Account> {
        self.lock().accounts.clone()
    }

    pub(crate) fn all_wrong(&self) -> Vec<String> {
        let mut wrong = self.lock().wrong.clone();
        wrong.extend(self.redis.iter().flat_map(|calls| calls.all_wrong()));
        wrong
    }

    pub(crate) fn tally(&self) -> Tally {
        let native = self.lock().tally;
        self.redis.as_ref().map_or(native, |calls| native.plus(calls.tally()))
    }

    /// The same of those whose history is judged for liveness: sessions of the native protocol, or
    /// calls of Redis clients where those do nothing.
    pub(crate) fn tally_of_sessions(&self) -> Tally {
        let native = self.lock().tally;
        if native.begun > 0 { native } else { self.tally() }
    }

    /// Every key that somebody tried to write.
    pub(crate) fn written_keys(&self) -> BTreeSet<KeyIndex> {
        let mut keys = BTreeSet::new();
        for op in self.lock().events.iter().flat_map(|event| &event.ops) {
            if !matches!(op, MicroOp::Read { .. }) {
                keys.insert(op.key());
            }
        }
        keys
    }

    /// Takes the history out, at the end.
    pub(crate) fn take_history(&self) -> History {
        let mut state = self.lock();
        History {
            head: None,
            events: std::mem::take(&mut state.events),
            successors: std::mem::take(&mut state.successors),
        }
    }
}

impl BoardState {
    fn rename(&mut self, slot: usize) {
        self.slots[slot].process = self.next_process;
        self.next_process += 1;
    }
}
