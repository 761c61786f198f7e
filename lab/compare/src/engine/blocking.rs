//! Threads that call a store, one operation after the other.

use std::sync::Arc;
use std::thread;

use super::Engine;
use crate::Fault;
use crate::keys::{self, Draws, KEY_BYTES, Next, VALUE_BYTES, Values};
use crate::plan::Case;
use crate::progress::{Progress, Tally, timed};

/// Tuples that are loaded with one call.
const LOAD_BATCH: u64 = 1000;

/// A tuple to be loaded.
pub(super) type Tuple = ([u8; KEY_BYTES], [u8; VALUE_BYTES]);

/// A store whose calls return when they are done.
pub(super) trait Blocking: Sync {
    /// Reads a key, and checks what is found.
    fn get(&self, index: u64, key: &[u8; KEY_BYTES]) -> Result<(), Fault>;

    /// Writes a key.
    fn put(&self, key: &[u8; KEY_BYTES], value: &[u8; VALUE_BYTES]) -> Result<(), Fault>;

    /// Writes many, as cheaply as the store can; nothing has to be durable.
    fn put_many(&self, tuples: &[Tuple]) -> Result<(), Fault>;

    /// See [`Engine::settle`].
    fn settle(&self) -> Result<(), Fault>;

    /// See [`Engine::close`].
    fn close(self) -> Result<(), Fault>
    where
        Self: Sized,
    {
        Ok(())
    }
}

/// A store with the threads that call it.
pub(super) struct Blocked<S> {
    store: S,
    callers: usize,
    keys: u64,
}

impl<S: Blocking + 'static> Blocked<S> {
    pub(super) fn boxed(store: S, case: &Case) -> Box<dyn Engine> {
        Box::new(Self { store, callers: case.callers(), keys: case.keys })
    }

    fn caller(
        &self,
        number: usize,
        gets_percent: u64,
        progress: &Progress,
    ) -> Result<Tally, Fault> {
        let mut tally = Tally::new(number);
        let mut draws = Draws::new(self.keys, gets_percent, 1 + number as u64);
        let mut values = Values::new(1001 + number as u64);
        loop {
            let next = draws.next();
            let (outcome, took) = match next {
                Next::Get(index) => {
                    let key = keys::key(index);
                    timed(|| self.store.get(index, &key))
                }
                Next::Put(index) => {
                    let (key, value) = (keys::key(index), values.of(index));
                    timed(|| self.store.put(&key, value))
                }
            };
            outcome?;
            if !tally.done(progress, next, took) {
                return Ok(tally);
            }
        }
    }
}

impl<S: Blocking + 'static> Engine for Blocked<S> {
    fn drivers(&self) -> usize {
        self.callers
    }

    fn load(&mut self) -> Result<(), Fault> {
        let mut values = Values::new(0);
        let mut tuples: Vec<Tuple> = Vec::with_capacity(LOAD_BATCH as usize);
        for turn in 0..self.keys {
            let index = keys::loaded(turn, self.keys);
            tuples.push((keys::key(index), *values.of(index)));
            if tuples.len() as u64 == LOAD_BATCH || turn + 1 == self.keys {
                self.store.put_many(&tuples)?;
                tuples.clear();
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Fault> {
        self.store.settle()
    }

    fn run(&mut self, gets_percent: u64, progress: &Arc<Progress>) -> Result<Vec<Tally>, Fault> {
        let this = &*self;
        thread::scope(|scope| {
            let callers: Vec<_> = (0..this.callers)
                .map(|number| {
                    scope.spawn(move || {
                        let outcome = this.caller(number, gets_percent, progress);
                        // Where one fails, the others are not to go on for nothing.
                        if outcome.is_err() {
                            progress.end();
                        }
                        outcome
                    })
                })
                .collect();
            let ended = callers.into_iter().map(|caller| caller.join());
            ended.map(|caller| caller.map_err(|_| "a caller has ended by a panic")?).collect()
        })
    }

    fn close(self: Box<Self>) -> Result<(), Fault> {
        self.store.close()
    }
}
