//! Gets and puts in a closed loop: as many requests under way as the experiment says, each followed
//! by the next one when it is over.
//!
//! A turn asks for what may be asked for, lets the store do what is due, lets the time pass that
//! this took, and takes the answers. When a turn had nothing to do, the clock goes to where the
//! next thing happens. Instead of single requests, [sessions] may have transactions.

mod arrivals;
mod sessions;

use std::collections::VecDeque;
use std::time::Duration;

use timestone_flash::{EmulatedMedium, PAGE_BYTES};
use timestone_store::{Lookup, ReadOutcome, ReadToken, StoreError, StoreEvent};
use timestone_types::{ClientId, Expiry, GeneratedRun, KeyRef, KeyspaceId, Timestamp, Version};
use timestone_workload::{KeyIndex, KeyShape, Random, Strewing, Zipf};

use crate::error::ReproError;
use crate::progress::ProgressPart;
use crate::store::device::DeviceMonitor;
use crate::store::part::StorePart;
use crate::store::processor::{Processor, Work};
use crate::store::subject::Subject;
pub(super) use arrivals::Arrivals;
use sessions::StoreSessions;

/// Where the clock begins: versions lie behind it, so that a get at any moment reads the youngest.
const EPOCH: u64 = 1_000_000_000_000_000;
/// Turns between two looks at whoever watches.
const LOOK_TURNS: u64 = 4096;
/// Times in a row that a store may have nothing to do, no deadline and nothing in flight: then it
/// will have nothing to do ever.
const MOST_IDLE_TURNS: u32 = 1000;
/// A turn with nothing to do in virtual time, at least.
const IDLE_STEP: u64 = 1000;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asking {
    /// Every key once, in the order of their numbers.
    Load,
    /// Puts, by popularity, until the device has programmed so many pages more.
    Overwrite(u64),
    /// Puts in so many of a hundred requests, for so long.
    Mixed {
        /// Per cent.
        put_share: f64,
        /// Of the store's clock.
        span: Duration,
    },
    /// Transactions, for so long.
    Transactions {
        /// Of the store's clock.
        span: Duration,
    },
}

/// What came of a measured part.
#[derive(Debug, Default)]
pub(super) struct OperationTally {
    pub(super) span: Duration,
    pub(super) gets: OperationLatencies,
    pub(super) puts: OperationLatencies,
    /// Those that committed, from their first beginning on.
    pub(super) transactions: OperationLatencies,
    /// Attempts that did not.
    pub(super) aborted: u64,
    pub(super) work: Work,
    pub(super) put_bytes: u64,
    pub(super) lower_moved_pages: u64,
    /// What the clock was moved by for work.
    pub(super) busy: Duration,
}

/// What one kind of request took, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct OperationLatencies(Vec<u32>);

impl OperationLatencies {
    fn push(&mut self, now: Timestamp, began: Timestamp) {
        let nanos = now.as_nanos() - began.as_nanos();
        self.0.push(u32::try_from(nanos).unwrap_or(u32::MAX));
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// In microseconds.
    pub(super) fn mean_us(&self) -> Option<f64> {
        let sum: u64 = self.0.iter().map(|&nanos| u64::from(nanos)).sum();
        (!self.0.is_empty()).then(|| sum as f64 / self.0.len() as f64 / 1000.0)
    }

    /// In microseconds; of so many thousandths of the requests at most.
    pub(super) fn quantile_us(&mut self, thousandths: usize) -> Option<f64> {
        self.0.sort_unstable();
        let last = self.0.len().checked_sub(1)?;
        Some(f64::from(self.0[last * thousandths / 1000]) / 1000.0)
    }
}

/// A put under way: its batch, and when it began.
struct Putting {
    batch: u64,
    began: Timestamp,
}

pub(super) struct StoreMix<S> {
    name: &'static str,
    store: S,
    medium: EmulatedMedium,
    monitor: DeviceMonitor,
    processor: Processor,
    keys: u64,
    shape: KeyShape,
    popularity: Zipf,
    strewing: Strewing,
    value_bytes: u32,
    random: Random,
    events: Vec<StoreEvent>,
    key: Vec<u8>,
    value: Vec<u8>,
    /// Requests that may be under way, and those that are.
    limit: u32,
    under_way: u32,
    /// When the get with this token began.
    gets: Vec<Timestamp>,
    free_tokens: Vec<u32>,
    puts: VecDeque<Putting>,
    sessions: StoreSessions,
    /// Gets that were answered at once, since the last answers were taken.
    at_once: u32,
    batch: u64,
    version: u64,
    done: u64,
    /// What was asked for until now.
    work: Work,
    /// All work that the clock was moved for.
    charged: Work,
    tally: OperationTally,
}

impl<S: Subject> StoreMix<S> {
    pub(super) fn new(
        name: &'static str,
        store: S,
        medium: EmulatedMedium,
        monitor: DeviceMonitor,
        part: &StorePart,
        seed: u64,
    ) -> Result<Self, ReproError> {
        Ok(Self {
            name,
            store,
            medium,
            monitor,
            processor: part.processor,
            keys: part.keys,
            shape: KeyShape::new(part.key_bytes),
            popularity: Zipf::new(part.keys, part.zipf),
            strewing: Strewing::new(part.keys),
            value_bytes: part.value_bytes as u32,
            random: Random::new(seed),
            events: Vec::new(),
            key: Vec::new(),
            value: Vec::new(),
            limit: part.in_flight,
            under_way: 0,
            gets: vec![Timestamp::ZERO; part.in_flight as usize],
            free_tokens: (0..part.in_flight).collect(),
            puts: VecDeque::new(),
            sessions: StoreSessions::new(part, seed)?,
            at_once: 0,
            batch: 1,
            version: 1,
            done: 0,
            work: Work::default(),
            charged: Work::default(),
            tally: OperationTally::default(),
        })
    }

    pub(super) fn store(&self) -> &S {
        &self.store
    }

    /// From now on so many requests are under way, at most as many as the experiment began with.
    pub(super) fn set_in_flight(&mut self, requests: u32) {
        assert!(requests as usize <= self.gets.len(), "every get has a token");
        self.limit = requests;
    }

    /// From now on so many sessions have transactions.
    pub(super) fn set_sessions(&mut self, sessions: u32) {
        self.sessions.set_limit(sessions);
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(EPOCH + self.medium.clock().now())
    }

    /// So many turns in which nothing is asked for.
    pub(super) fn idle_turns(&mut self, count: u64) {
        for _ in 0..count {
            self.batch += 1;
            self.store.begin_batch(self.batch);
            self.store.pump(self.now(), &mut self.events);
        }
    }

    /// Asks until it has been enough, and tells what came of it.
    pub(super) fn drive(
        &mut self,
        asking: Asking,
        doing: &str,
        part: &mut ProgressPart<'_>,
    ) -> Result<OperationTally, ReproError> {
        self.tally = OperationTally::default();
        let (began, before, moved_before) =
            (self.now(), self.counted(), self.store.translated_pages().1);
        let mut goal = Goal { asking, asked: 0, begun: began, pages: before.programmed_pages };
        let (mut refused, mut idle_turns) = (None, 0);
        loop {
            let answered = (self.done, goal.asked);
            self.turn(&mut goal, &mut refused)?;
            if self.work.turns.is_multiple_of(LOOK_TURNS) {
                part.at(goal.share(self), doing)?;
            }
            if goal.is_reached(self) && self.in_flight_of_goal(&goal) == 0 {
                break;
            }
            if answered == (self.done, goal.asked) {
                idle_turns = if self.rest() { 0 } else { idle_turns + 1 };
                if idle_turns > MOST_IDLE_TURNS {
                    return Err(ReproError::Run(format!(
                        "{} has nothing to do, and {} requests are not answered",
                        self.name,
                        self.puts.len()
                    )));
                }
            }
        }
        let mut tally = std::mem::take(&mut self.tally);
        tally.span = Duration::from_nanos(self.now().as_nanos() - began.as_nanos());
        tally.work = self.counted().since(&before);
        tally.lower_moved_pages = self.store.translated_pages().1 - moved_before;
        Ok(tally)
    }

    /// Requests that have to be over before a part of so many requests is; one that lasts for a
    /// time is over when the time is.
    fn in_flight_of_goal(&self, goal: &Goal) -> usize {
        match goal.asking {
            Asking::Mixed { .. } | Asking::Transactions { .. } => 0,
            Asking::Load | Asking::Overwrite(_) => self.puts.len(),
        }
    }

    fn turn(
        &mut self,
        goal: &mut Goal,
        refused: &mut Option<Option<u64>>,
    ) -> Result<(), ReproError> {
        self.begin_turn();
        match goal.asking {
            Asking::Transactions { .. } => self.ask_sessions(goal)?,
            _ => self.ask_some(goal, refused)?,
        }
        self.end_turn()
    }

    fn begin_turn(&mut self) {
        self.batch += 1;
        self.store.begin_batch(self.batch);
    }

    /// Lets the store do what is due, and takes its answers.
    fn end_turn(&mut self) -> Result<(), ReproError> {
        // A little behind, so that what is superseded can go.
        let youngest = self.version.saturating_sub(1);
        let read_as_of = self.sessions.oldest_snapshot().unwrap_or(youngest);
        let watermark = Timestamp::from_nanos(read_as_of.min(youngest));
        self.store.advance_watermark(watermark);
        self.store.advance_replay_floor(watermark);
        self.store.pump(self.now(), &mut self.events);
        self.charge();
        self.answers()
    }

    /// As many single requests as may be under way.
    fn ask_some(
        &mut self,
        goal: &mut Goal,
        refused: &mut Option<Option<u64>>,
    ) -> Result<(), ReproError> {
        while self.under_way < self.limit && !goal.is_reached(self) {
            let put = match refused.take() {
                Some(again) => again,
                None => self.draw(goal),
            };
            match self.ask(put, self.now()) {
                Ok(true) => goal.asked += 1,
                Ok(false) => {
                    *refused = Some(put);
                    break;
                }
                Err(error) => return Err(self.refused(error)),
            }
        }
        Ok(())
    }

    /// What a store has refused, and when.
    fn refused(&self, error: StoreError) -> ReproError {
        ReproError::Store { store: self.name.to_owned(), requests: self.done, error }
    }

    /// What is asked for next: a put of this key, or a get.
    fn draw(&mut self, goal: &Goal) -> Option<u64> {
        match goal.asking {
            Asking::Load => Some(goal.asked),
            Asking::Overwrite(_) => Some(self.popular()),
            Asking::Mixed { put_share, .. } => {
                (self.random.unit() * 100.0 < put_share).then(|| self.popular())
            }
            Asking::Transactions { .. } => None,
        }
    }

    fn popular(&mut self) -> u64 {
        let rank = self.popularity.draw(&mut self.random);
        self.strewing.key(rank).0
    }

    /// Asks for one thing that somebody wants since `began`; `false` when it was refused for now.
    fn ask(&mut self, put: Option<u64>, began: Timestamp) -> Result<bool, StoreError> {
        let number = put.unwrap_or_else(|| self.popular());
        if put.is_some() {
            match self.put_one(KeyIndex(number), self.version) {
                Ok(()) => {}
                Err(StoreError::Busy) => return Ok(false),
                Err(error) => return Err(error),
            }
            self.version += 1;
            self.under_way += 1;
            self.puts.push_back(Putting { batch: self.batch, began });
            return Ok(true);
        }
        let Some(token) = self.free_tokens.pop() else { return Ok(false) };
        let key = spelled(&self.store, self.shape, KeyIndex(number), &mut self.key);
        let at = Timestamp::from_nanos(EPOCH - 1);
        match self.store.get(key, at, ReadToken(token.into())) {
            Ok(Lookup::Present { .. }) => {
                self.free_tokens.push(token);
                self.at_once += 1;
            }
            Ok(Lookup::Pending) => {
                self.gets[token as usize] = began;
                self.under_way += 1;
            }
            Ok(Lookup::Absent { .. }) => panic!("key {number} was put, and is absent"),
            Err(StoreError::Busy) => {
                self.free_tokens.push(token);
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        self.work.gets += 1;
        Ok(true)
    }

    /// Puts a version of a key.
    fn put_one(&mut self, number: KeyIndex, version: u64) -> Result<(), StoreError> {
        let key = spelled(&self.store, self.shape, number, &mut self.key);
        self.value.clear();
        // No two values are the same.
        let seed = version ^ number.0 << 40;
        GeneratedRun { seed, length: self.value_bytes }.append(&mut self.value);
        let version = Version::new(Timestamp::from_nanos(version), ClientId::new(1));
        self.store.put(key, version, &self.value, Expiry::NEVER)?;
        self.work.puts += 1;
        self.tally.put_bytes += (self.key.len() + self.value.len()) as u64;
        Ok(())
    }

    /// What was done until now.
    fn counted(&self) -> Work {
        let asked = self.monitor.asked();
        let (translated, _) = self.store.translated_pages();
        let reads_below = if translated > 0 { asked.reads } else { 0 };
        Work {
            reads: asked.reads,
            programmed_pages: asked.programmed_pages,
            moved_records: self.store.moved_records(),
            translated_pages: translated + reads_below,
            ..self.work
        }
    }

    /// Lets the time pass that the turn's work took.
    fn charge(&mut self) {
        self.work.turns += 1;
        if !self.medium.clock().is_virtual() {
            return;
        }
        let counted = self.counted();
        let took = self.processor.time_of(&counted.since(&self.charged));
        self.charged = counted;
        self.tally.busy += took;
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.medium.clock().set(self.medium.clock().now() + nanos);
    }

    fn answers(&mut self) -> Result<(), ReproError> {
        let now = self.now();
        let mut events = core::mem::take(&mut self.events);
        for event in events.drain(..) {
            let StoreEvent::ReadDone { token, outcome } = event else { continue };
            let ReadOutcome::Present { value, .. } = outcome else {
                return Err(ReproError::Run(format!(
                    "{} answers a get of a key that is there with {outcome:?}",
                    self.name
                )));
            };
            self.store.recycle(value);
            if self.session_read(token) {
                continue;
            }
            self.tally.gets.push(now, self.gets[token.0 as usize]);
            self.free_tokens.push(token.0 as u32);
            self.under_way -= 1;
            self.done += 1;
        }
        self.events = events;
        for _ in 0..std::mem::take(&mut self.at_once) {
            self.tally.gets.0.push(0);
            self.done += 1;
        }
        let stable = self.store.stable_batch();
        while self.puts.front().is_some_and(|put| put.batch <= stable) {
            let Some(put) = self.puts.pop_front() else { break };
            self.tally.puts.push(now, put.began);
            self.under_way -= 1;
            self.done += 1;
        }
        self.sessions_durable(stable);
        Ok(())
    }

    /// Nothing can be done before the device or the store has something: the clock goes there.
    /// Whether there is something to wait for.
    fn rest(&mut self) -> bool {
        self.rest_until(None)
    }

    /// As [`Self::rest`]; at a moment something else happens.
    fn rest_until(&mut self, moment: Option<u64>) -> bool {
        if !self.medium.clock().is_virtual() {
            return true;
        }
        let now = self.medium.clock().now();
        let deadline = self.store.next_deadline().map(|at| at.as_nanos().saturating_sub(EPOCH));
        let next = deadline.into_iter().chain(self.medium.next_due()).chain(moment).min();
        self.medium.clock().set(next.unwrap_or(0).max(now + IDLE_STEP));
        next.is_some()
    }
}

/// How much is to be asked for, and how much was.
struct Goal {
    asking: Asking,
    asked: u64,
    begun: Timestamp,
    /// That were programmed when it began.
    pages: u64,
}

impl Goal {
    fn share<S: Subject>(&self, mix: &StoreMix<S>) -> f64 {
        match self.asking {
            Asking::Load => self.asked as f64 / mix.keys as f64,
            Asking::Overwrite(pages) => {
                (mix.monitor.asked().programmed_pages - self.pages) as f64 / pages.max(1) as f64
            }
            Asking::Mixed { span, .. } | Asking::Transactions { span } => {
                let passed = mix.now().as_nanos() - self.begun.as_nanos();
                passed as f64 / span.as_nanos().max(1) as f64
            }
        }
    }

    fn is_reached<S: Subject>(&self, mix: &StoreMix<S>) -> bool {
        match self.asking {
            Asking::Load => self.asked >= mix.keys,
            _ => self.share(mix) >= 1.0,
        }
    }
}

/// A key by its number, in a buffer of the caller.
fn spelled<'a>(
    store: &impl Subject,
    shape: KeyShape,
    number: KeyIndex,
    buffer: &'a mut Vec<u8>,
) -> KeyRef<'a> {
    buffer.clear();
    shape.write(number, buffer);
    KeyRef::new(store.seed(), KeyspaceId::DEFAULT, buffer)
}

/// Pages of a device of so many bytes.
pub(super) fn pages_of(bytes: f64) -> u64 {
    (bytes / PAGE_BYTES as f64) as u64
}
