//! The store of a shard alone (`Mftl` on a file), without server, log and transactions: one store
//! and one loop for each thread, and each loop asks for the keys of its own store.
//!
//! A loop keeps so many operations under way, and pumps its store once a turn. Without a sync a put
//! is done when it is readable. With one it is done when its batch is stable on the device without a
//! log; all puts of a turn are one batch.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use timestone_flash::{FileConfig, FileDevice};
use timestone_store::prelude::*;
use timestone_store::{
    Lookup, Mftl, MftlConfig, ReadOutcome, ReadToken, StoreError, StoreEvent,
};
use timestone_types::{ClientId, Expiry, KeyRef, KeyspaceId, Timestamp, Version};

use super::Engine;
use crate::Fault;
use crate::keys::{self, Draws, Next, Values};
use crate::plan::{Case, Column};
use crate::progress::{Progress, Tally};

/// Where the clock of a store begins: no version is zero.
const EPOCH_NANOS: u64 = 1_000_000_000_000;
/// What the index takes of the memory, for each key.
const INDEX_BYTES: u64 = 36;
/// Calls between two pumps: what a shard does in one turn.
const TURN: u64 = 64;
/// How long a wait for the device lasts at most.
const REST: Duration = Duration::from_micros(200);
/// How long a full page waits for others.
const PACKING: Duration = Duration::from_millis(10);
/// Bytes of an erase block.
const BLOCK_BYTES: u64 = 1 << 20;
/// Blocks that a store needs whatever it holds.
const LEAST_BLOCKS: u64 = 32;

pub(super) struct Stores {
    stores: Vec<Driven>,
    keys: u64,
    outstanding: usize,
    is_synced: bool,
}

impl Stores {
    pub(super) fn open(case: &Case, folder: &Path) -> Result<Self, Fault> {
        let share = case.threads as u64;
        let cache_bytes = match case.column {
            Column::Tenth => case.memory_bytes().saturating_sub(INDEX_BYTES * case.keys),
            Column::Memory | Column::Sync => case.data_bytes() * 2,
        } / share;
        let blocks = (case.capacity_bytes() / share / BLOCK_BYTES).max(LEAST_BLOCKS) as u32;
        let mut stores = Vec::new();
        for number in 0..case.threads {
            let path = folder.join(format!("store-{number}.flash"));
            let config = FileConfig { initial_blocks: blocks, ..FileConfig::new(&path, blocks) };
            let device = Box::new(FileDevice::create(&config)?);
            let config = MftlConfig {
                cache_bytes,
                packing_delay: PACKING,
                partial_page_delay: PACKING,
                without_log: true,
                ..MftlConfig::default()
            };
            let (store, _) = Mftl::open(device, config)?;
            stores.push(Driven::new(store));
        }
        let outstanding = case.outstanding();
        Ok(Self { stores, keys: case.keys, outstanding, is_synced: case.is_synced() })
    }

    /// Runs something on the thread of each store.
    fn on_threads<T: Send>(
        &mut self,
        work: impl Fn(usize, &mut Driven) -> Result<T, Fault> + Sync,
        failed: impl Fn() + Sync,
    ) -> Result<Vec<T>, Fault> {
        let (work, failed) = (&work, &failed);
        thread::scope(|scope| {
            let start = |(number, store)| {
                scope.spawn(move || work(number, store).inspect_err(|_| failed()))
            };
            let threads: Vec<_> = self.stores.iter_mut().enumerate().map(start).collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            ended.map(|thread| thread.map_err(|_| "a loop has ended by a panic")?).collect()
        })
    }
}

impl Engine for Stores {
    fn drivers(&self) -> usize {
        self.stores.len()
    }

    fn load(&mut self) -> Result<(), Fault> {
        let (keys, of) = (self.keys, self.stores.len() as u64);
        self.on_threads(|number, store| store.load(keys, number as u64, of), || ())?;
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Fault> {
        self.on_threads(|_, store| store.drain(), || ())?;
        Ok(())
    }

    fn run(&mut self, gets_percent: u64, progress: &Arc<Progress>) -> Result<Vec<Tally>, Fault> {
        let (keys, of) = (self.keys, self.stores.len());
        let (outstanding, is_synced) = (self.outstanding, self.is_synced);
        let work = |number: usize, store: &mut Driven| {
            let plan = Plan {
                draws: Draws::new(keys, gets_percent, 1 + number as u64),
                values: Values::new(1001 + number as u64),
                share: (number as u64, of as u64),
                outstanding,
                is_synced,
            };
            store.run(plan, Tally::new(number), progress)
        };
        self.on_threads(work, || progress.end())
    }

    fn close(mut self: Box<Self>) -> Result<(), Fault> {
        self.on_threads(|_, store| store.shutdown(), || ())?;
        Ok(())
    }
}

/// Whose key it is.
fn is_of(index: u64, (number, of): (u64, u64)) -> bool {
    keys::mixed(index) % of == number
}

/// What a loop is to do.
struct Plan {
    draws: Draws,
    values: Values,
    share: (u64, u64),
    outstanding: usize,
    is_synced: bool,
}

/// An operation under way: of which slot of the loop.
#[derive(Clone, Copy)]
struct Begun {
    next: Next,
    at: Instant,
}

/// A store and its clock.
struct Driven {
    store: Mftl,
    began: Instant,
    version: u64,
    batch: u64,
    events: Vec<StoreEvent>,
}

impl Driven {
    fn new(mut store: Mftl) -> Self {
        let batch = store.stable_batch() + 1;
        store.begin_batch(batch);
        Self { store, began: Instant::now(), version: EPOCH_NANOS, batch, events: Vec::new() }
    }

    fn now(&self) -> u64 {
        EPOCH_NANOS + self.began.elapsed().as_nanos() as u64
    }

    /// Gives the store its turn; what has completed is in the events.
    fn pump(&mut self) -> Result<(), Fault> {
        let now = Timestamp::from_nanos(self.now().max(self.version));
        self.store.advance_watermark(Timestamp::from_nanos(self.version));
        self.store.pump(now, &mut self.events);
        for event in &self.events {
            if let StoreEvent::DeviceFailed(error) = event {
                return Err(error.to_string().into());
            }
        }
        Ok(())
    }

    fn put(&mut self, index: u64, value: &[u8]) -> Result<(), StoreError> {
        self.version = (self.version + 1).max(self.now());
        let version = Version::new(Timestamp::from_nanos(self.version), ClientId::new(1));
        let key = keys::key(index);
        let key = KeyRef::new(self.store.seed(), KeyspaceId::DEFAULT, &key);
        self.store.put(key, version, value, Expiry::NEVER)
    }

    fn load(&mut self, keys: u64, number: u64, of: u64) -> Result<(), Fault> {
        let mut values = Values::new(number);
        let mut puts = 0;
        for turn in 0..keys {
            let index = keys::loaded(turn, keys);
            if !is_of(index, (number, of)) {
                continue;
            }
            let value = *values.of(index);
            while let Err(error) = self.put(index, &value) {
                if !matches!(error, StoreError::Busy) {
                    return Err(error.into());
                }
                self.pump()?;
                self.events.clear();
                self.store.wait(REST);
            }
            puts += 1;
            if puts % TURN == 0 {
                self.pump()?;
                self.events.clear();
            }
        }
        Ok(())
    }

    /// Waits until everything is on the device.
    fn drain(&mut self) -> Result<(), Fault> {
        let wanted = self.batch;
        self.batch += 1;
        self.store.begin_batch(self.batch);
        self.store.sync_soon();
        while self.store.stable_batch() < wanted {
            self.pump()?;
            self.events.clear();
            self.store.wait(REST);
        }
        Ok(())
    }

    fn shutdown(&mut self) -> Result<(), Fault> {
        self.store.shutdown();
        loop {
            self.pump()?;
            if self.events.iter().any(|event| matches!(event, StoreEvent::ShutDown)) {
                return Ok(());
            }
            self.events.clear();
            self.store.wait(REST);
        }
    }

    /// The loop of a mix.
    fn run(&mut self, plan: Plan, tally: Tally, progress: &Progress) -> Result<Tally, Fault> {
        let mut turns = Turns {
            free: (0..plan.outstanding).collect(),
            begun: vec![None; plan.outstanding],
            syncing: VecDeque::new(),
            refused: None,
            plan,
            tally,
        };
        while !progress.is_over() {
            let did = turns.start(self, progress)?;
            if turns.plan.is_synced && turns.syncing.back().is_some_and(|put| put.0 == self.batch) {
                self.batch += 1;
                self.store.begin_batch(self.batch);
                self.store.sync_soon();
            }
            self.pump()?;
            let completed = turns.complete(self, progress)?;
            if !did && !completed {
                self.store.wait(REST);
            }
        }
        turns.finish(self)
    }
}

/// The slots of a loop.
struct Turns {
    plan: Plan,
    free: Vec<usize>,
    begun: Vec<Option<Begun>>,
    /// Puts that wait for their batch: its number, the slot.
    syncing: VecDeque<(u64, usize)>,
    /// A put that the store was too busy for.
    refused: Option<(usize, Begun)>,
    tally: Tally,
}

impl Turns {
    /// Starts operations in free slots, a turn's worth at most; those that are answered at once are
    /// done, and free their slot. Tells whether any was.
    fn start(&mut self, driven: &mut Driven, progress: &Progress) -> Result<bool, Fault> {
        let mut did = false;
        if let Some((slot, begun)) = self.refused.take() {
            did |= self.begin(slot, begun, driven, progress)?;
        }
        for _ in 0..TURN {
            if self.refused.is_some() {
                break;
            }
            let Some(slot) = self.free.pop() else { break };
            let next = loop {
                let next = self.plan.draws.next();
                let (Next::Get(index) | Next::Put(index)) = next;
                if is_of(index, self.plan.share) {
                    break next;
                }
            };
            did |= self.begin(slot, Begun { next, at: Instant::now() }, driven, progress)?;
        }
        Ok(did)
    }

    fn begin(
        &mut self,
        slot: usize,
        begun: Begun,
        driven: &mut Driven,
        progress: &Progress,
    ) -> Result<bool, Fault> {
        match begun.next {
            Next::Get(index) => {
                let key = keys::key(index);
                let key = KeyRef::new(driven.store.seed(), KeyspaceId::DEFAULT, &key);
                let at = Timestamp::from_nanos(driven.version);
                match driven.store.get(key, at, ReadToken(slot as u64))? {
                    Lookup::Present { value, .. } => keys::check(index, Some(value))?,
                    Lookup::Absent { .. } => keys::check(index, None)?,
                    Lookup::Pending => {
                        self.begun[slot] = Some(begun);
                        return Ok(false);
                    }
                }
            }
            Next::Put(index) => {
                let value = *self.plan.values.of(index);
                match driven.put(index, &value) {
                    Ok(()) => {}
                    Err(StoreError::Busy) => {
                        self.refused = Some((slot, begun));
                        return Ok(false);
                    }
                    Err(error) => return Err(error.into()),
                }
                if self.plan.is_synced {
                    self.begun[slot] = Some(begun);
                    self.syncing.push_back((driven.batch, slot));
                    return Ok(false);
                }
            }
        }
        self.done(slot, begun, progress);
        Ok(true)
    }

    fn done(&mut self, slot: usize, begun: Begun, progress: &Progress) {
        self.tally.done(progress, begun.next, begun.at.elapsed());
        self.free.push(slot);
    }

    /// Takes in what has completed; tells whether anything has.
    fn complete(&mut self, driven: &mut Driven, progress: &Progress) -> Result<bool, Fault> {
        let mut did = false;
        let mut events = std::mem::take(&mut driven.events);
        for event in events.drain(..) {
            let StoreEvent::ReadDone { token, outcome } = event else { continue };
            let slot = token.0 as usize;
            let begun = self.begun[slot].take().ok_or("an answer that nobody waits for")?;
            let (Next::Get(index) | Next::Put(index)) = begun.next;
            match outcome {
                ReadOutcome::Present { value, .. } => {
                    keys::check(index, Some(&value))?;
                    driven.store.recycle(value);
                }
                ReadOutcome::Absent { .. } => keys::check(index, None)?,
                ReadOutcome::Failed(error) => return Err(error.into()),
            }
            self.done(slot, begun, progress);
            did = true;
        }
        driven.events = events;
        while let Some(&(batch, slot)) = self.syncing.front() {
            if batch > driven.store.stable_batch() {
                break;
            }
            self.syncing.pop_front();
            let begun = self.begun[slot].take().ok_or("a put that nobody waits for")?;
            self.done(slot, begun, progress);
            did = true;
        }
        Ok(did)
    }

    /// Waits for what is under way.
    fn finish(mut self, driven: &mut Driven) -> Result<Tally, Fault> {
        let over = Progress::new(self.plan.share.1 as usize);
        over.end();
        while self.begun.iter().any(Option::is_some) {
            driven.pump()?;
            self.complete(driven, &over)?;
            driven.store.wait(REST);
        }
        Ok(self.tally)
    }
}
