//! The engines behind one interface, and the loop of those that block whoever calls them.

mod blocking;
mod fjall;
mod lmdb;
mod nothing;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocks;
mod timestone_open;
mod timestone_store;

use std::path::Path;
use std::sync::Arc;

use crate::Fault;
use crate::plan::{Case, EngineKind};
use crate::progress::{Progress, Tally};
use blocking::Blocked;

/// A store that is measured.
pub(crate) trait Engine {
    /// How many of its drivers note operations.
    fn drivers(&self) -> usize;

    /// Puts every key once, in the order of loading.
    fn load(&mut self) -> Result<(), Fault>;

    /// Waits until what loading left to do is done.
    fn settle(&mut self) -> Result<(), Fault>;

    /// Runs a mix until the progress says that it is over.
    fn run(&mut self, gets_percent: u64, progress: &Arc<Progress>) -> Result<Vec<Tally>, Fault>;

    /// What the engine says of its memory and its reads, for whoever looks at a run.
    fn figures(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Ends orderly.
    fn close(self: Box<Self>) -> Result<(), Fault>;
}

/// Opens the engine of a case in an empty folder.
pub(crate) fn open(case: &Case, folder: &Path) -> Result<Box<dyn Engine>, Fault> {
    Ok(match case.engine {
        #[cfg(feature = "rocksdb")]
        EngineKind::RocksDb => Blocked::boxed(rocks::Rocks::open(case, folder)?, case),
        #[cfg(not(feature = "rocksdb"))]
        EngineKind::RocksDb => return Err("this program was built without RocksDB".into()),
        EngineKind::Fjall => Blocked::boxed(fjall::Fjall::open(case, folder)?, case),
        EngineKind::Lmdb => Blocked::boxed(lmdb::Lmdb::open(case, folder)?, case),
        EngineKind::Redb => Blocked::boxed(redb::Redb::open(case, folder)?, case),
        EngineKind::Nothing => Blocked::boxed(nothing::Nothing::new(), case),
        EngineKind::Timestone(_) => Box::new(timestone_open::Loops::open(case, folder)?),
        EngineKind::TimestoneBlocking => {
            Blocked::boxed(timestone_open::Threads::open(case, folder)?, case)
        }
        EngineKind::TimestoneStore(_) => Box::new(timestone_store::Stores::open(case, folder)?),
    })
}
