//! Timestone as an application opens it (`timestone::open`): by tasks on its loops, each with a
//! session of its own, or by threads that wait for each operation.
//!
//! Every operation is linearizable and a transaction of its own. Without a sync the log is `none`:
//! a crash loses what is not on the device yet, a hundredth of a second. With one it is `ssd`: a
//! group of the log is written and synced before its puts are acknowledged.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use timestone::server::DeviceKind;
use timestone::{Embedded, LocalDb, OpenOptions, blocking};

use super::Engine;
use super::blocking::{Blocking, Tuple};
use crate::Fault;
use crate::keys::{self, Draws, KEY_BYTES, Next, VALUE_BYTES, Values};
use crate::plan::{Case, Column};
use crate::progress::{Progress, Tally};

/// Sessions of each loop that load.
const LOADERS: u64 = 64;
/// What it takes for program, threads and queues, beside what the store keeps of tuples.
const PROGRAM_BYTES: u64 = 56 << 20;
/// Between two looks at whether all tasks have ended.
const LOOK: Duration = Duration::from_millis(5);
/// How long a store may take to become quiet.
const SETTLING: Duration = Duration::from_secs(2);

fn open(case: &Case, folder: &Path) -> Result<Embedded, Fault> {
    let mut options = OpenOptions::new(folder.join("data"));
    options.server.threads = Some(case.threads);
    options.server.log = if case.is_synced() { DeviceKind::Ssd } else { DeviceKind::None };
    options.server.sizes.capacity_bytes = Some(case.capacity_bytes().max(256 << 20));
    let mut options = match case.column {
        // All in, the program too: index and buffers take what they need, records have the rest.
        Column::Tenth => options.memory(case.memory_bytes() + PROGRAM_BYTES),
        Column::Memory | Column::Sync => options.memory(case.memory_bytes().max(1 << 30)),
    };
    if case.column != Column::Tenth {
        options.server.sizes.cache_bytes = case.data_bytes() * 2;
    }
    Ok(timestone::open_with(&options)?)
}

/// Tasks on the loops.
pub(super) struct Loops {
    store: Embedded,
    keys: u64,
    outstanding: usize,
}

impl Loops {
    pub(super) fn open(case: &Case, folder: &Path) -> Result<Self, Fault> {
        let store = open(case, folder)?;
        Ok(Self { store, keys: case.keys, outstanding: case.outstanding() })
    }
}

/// What the tasks of a loop share.
struct Shared {
    tally: RefCell<Tally>,
    /// Tasks that have not ended, and the first failure of any.
    left: RefCell<(usize, Option<String>)>,
    progress: Arc<Progress>,
}

impl Shared {
    fn ended(&self, outcome: Result<(), String>) {
        let mut left = self.left.borrow_mut();
        left.0 -= 1;
        if let Err(error) = outcome {
            left.1.get_or_insert(error);
            // Where one fails, the others are not to go on for nothing.
            self.progress.end();
        }
    }
}

/// One session: an operation after the other.
async fn session(
    db: LocalDb,
    (keys, gets_percent, seed): (u64, u64, u64),
    shared: &Shared,
) -> Result<(), String> {
    let mut draws = Draws::new(keys, gets_percent, 1 + seed);
    let mut values = Values::new(1001 + seed);
    loop {
        let next = draws.next();
        let began = Instant::now();
        match next {
            Next::Get(index) => {
                let found = db.get(&keys::key(index)).await.map_err(|error| error.to_string())?;
                keys::check(index, found.as_deref()).map_err(|error| error.to_string())?;
            }
            Next::Put(index) => {
                let value = values.of(index);
                // Where another write of the key is under way for too long, it is put again: what
                // others do by waiting.
                while let Err(error) = db.put(&keys::key(index), value).await {
                    if !error.retryable() {
                        return Err(error.to_string());
                    }
                }
            }
        }
        let took = began.elapsed();
        if !shared.tally.borrow_mut().done(&shared.progress, next, took) {
            return Ok(());
        }
    }
}

/// Loads every `of`th key, from the `from`th on.
async fn loader(db: LocalDb, keys: u64, from: u64, of: u64) -> Result<(), String> {
    let mut values = Values::new(from);
    for turn in (from..keys).step_by(of as usize) {
        let index = keys::loaded(turn, keys);
        let value = values.of(index);
        db.put(&keys::key(index), value).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

impl Engine for Loops {
    fn drivers(&self) -> usize {
        self.store.loops().len()
    }

    fn load(&mut self) -> Result<(), Fault> {
        let (keys, loops) = (self.keys, self.store.loops().len() as u64);
        let mut running = Vec::new();
        for (number, db) in self.store.loops().iter().enumerate() {
            running.push(db.spawn(move |db: LocalDb| async move {
                let left = Rc::new(RefCell::new((LOADERS, None)));
                for loader_number in 0..LOADERS {
                    let (session, left) = (db.new_session()?, Rc::clone(&left));
                    let from = number as u64 * LOADERS + loader_number;
                    db.spawn(async move {
                        let outcome = loader(session, keys, from, loops * LOADERS).await;
                        let mut left = left.borrow_mut();
                        left.0 -= 1;
                        if let Err(error) = outcome {
                            left.1.get_or_insert(error);
                        }
                    });
                }
                while left.borrow().0 > 0 {
                    db.sleep(LOOK).await?;
                }
                Ok(left.take().1)
            }));
        }
        for one in running {
            if let Some(error) = one.wait()? {
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Fault> {
        std::thread::sleep(SETTLING);
        Ok(())
    }

    fn run(&mut self, gets_percent: u64, progress: &Arc<Progress>) -> Result<Vec<Tally>, Fault> {
        let (keys, outstanding) = (self.keys, self.outstanding);
        let mut running = Vec::new();
        for (number, db) in self.store.loops().iter().enumerate() {
            let progress = Arc::clone(progress);
            running.push(db.spawn(move |db: LocalDb| async move {
                let shared = Rc::new(Shared {
                    tally: RefCell::new(Tally::new(number)),
                    left: RefCell::new((outstanding, None)),
                    progress,
                });
                for task in 0..outstanding {
                    let (session_db, shared) = (db.new_session()?, Rc::clone(&shared));
                    let seed = (number * outstanding + task) as u64;
                    db.spawn(async move {
                        let plan = (keys, gets_percent, seed);
                        let outcome = session(session_db, plan, &shared).await;
                        shared.ended(outcome);
                    });
                }
                while shared.left.borrow().0 > 0 {
                    db.sleep(LOOK).await?;
                }
                let failure = shared.left.borrow_mut().1.take();
                Ok((shared.tally.replace(Tally::new(number)), failure))
            }));
        }
        let mut tallies = Vec::new();
        for one in running {
            let (tally, failure) = one.wait()?;
            if let Some(failure) = failure {
                return Err(failure.into());
            }
            tallies.push(tally);
        }
        Ok(tallies)
    }

    fn figures(&self) -> Vec<(String, String)> {
        let is_wanted = |name: &str| {
            name.starts_with("memory_") || name.contains("cache") || name.contains("read")
        };
        let figures = self.store.server().figures().into_iter();
        figures.filter(|(name, _)| is_wanted(name)).collect()
    }

    fn close(self: Box<Self>) -> Result<(), Fault> {
        Ok(self.store.close()?)
    }
}

/// Threads that wait for each operation, each with a handle on a loop.
pub(super) struct Threads {
    store: Embedded,
    handles: Vec<blocking::Db>,
}

thread_local! {
    /// Which handle this thread uses.
    static HANDLE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
}
static NEXT: AtomicUsize = AtomicUsize::new(0);

impl Threads {
    pub(super) fn open(case: &Case, folder: &Path) -> Result<Self, Fault> {
        let store = open(case, folder)?;
        let handles = store.loops().iter().map(|db| blocking::Db::from(db.clone())).collect();
        Ok(Self { store, handles })
    }

    fn db(&self) -> &blocking::Db {
        &self.handles[HANDLE.with(|number| *number) % self.handles.len()]
    }
}

impl Blocking for Threads {
    fn get(&self, index: u64, key: &[u8; KEY_BYTES]) -> Result<(), Fault> {
        keys::check(index, self.db().get(key)?.as_deref())
    }

    fn put(&self, key: &[u8; KEY_BYTES], value: &[u8; VALUE_BYTES]) -> Result<(), Fault> {
        self.db().put(key, value)?;
        Ok(())
    }

    fn put_many(&self, tuples: &[Tuple]) -> Result<(), Fault> {
        let db = self.db().as_async();
        let puts: Vec<_> = tuples.iter().map(|(key, value)| db.put(key, value)).collect();
        for put in puts {
            put.wait()?;
        }
        Ok(())
    }

    fn settle(&self) -> Result<(), Fault> {
        std::thread::sleep(SETTLING);
        Ok(())
    }

    fn close(self) -> Result<(), Fault> {
        drop(self.handles);
        Ok(self.store.close()?)
    }
}
