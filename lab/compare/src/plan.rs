//! What is compared: engines, columns, and what a run of one of them is made of.

use std::fmt;
use std::str::FromStr;

use crate::Fault;

/// Bytes of a key and its value together.
pub(crate) const TUPLE_BYTES: u64 = 512;
/// Writers of the column with a sync for each put.
pub(crate) const SYNC_WRITERS: usize = 16;
/// Threads of the stores that run by loops, in that column: one for each core of a small machine.
pub(crate) const SYNC_THREADS: usize = 2;

/// Where the data is, and when a put is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Column {
    /// Caches hold everything; nothing is synced.
    Memory,
    /// Memory for a tenth of the tuples, whatever it is used for; nothing is synced.
    Tenth,
    /// As `Memory`, but a put is done when it is synced.
    Sync,
}

impl Column {
    pub(crate) const fn keys(self) -> u64 {
        match self {
            Self::Memory => 2_000_000,
            Self::Tenth => 5_000_000,
            Self::Sync => 1_000_000,
        }
    }

    pub(crate) fn mixes(self) -> Vec<u64> {
        if self == Self::Sync { vec![50] } else { vec![100, 95, 50] }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Tenth => "tenth",
            Self::Sync => "sync",
        }
    }
}

impl FromStr for Column {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        [Self::Memory, Self::Tenth, Self::Sync]
            .into_iter()
            .find(|column| column.name() == text)
            .ok_or_else(|| format!("there is no column {text}: memory, tenth, sync").into())
    }
}

/// A store, and how it is driven.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EngineKind {
    RocksDb,
    Fjall,
    Lmdb,
    Redb,
    /// `timestone::open`, by tasks on its loops; so many operations under way for each thread.
    Timestone(usize),
    /// `timestone::open`, by threads that wait for each operation.
    TimestoneBlocking,
    /// The store's trait alone, one store and loop for each thread; so many operations under way.
    TimestoneStore(usize),
    /// No store: what the harness itself takes.
    Nothing,
}

impl EngineKind {
    pub(crate) fn usual() -> Vec<Self> {
        let ours = [Self::Timestone(1), Self::Timestone(32)];
        let stores = [Self::TimestoneStore(1), Self::TimestoneStore(32)];
        let others = [Self::RocksDb, Self::Fjall, Self::Lmdb, Self::Redb];
        others.into_iter().chain(ours).chain(stores).collect()
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RocksDb => f.write_str("rocksdb"),
            Self::Fjall => f.write_str("fjall"),
            Self::Lmdb => f.write_str("lmdb"),
            Self::Redb => f.write_str("redb"),
            Self::Timestone(outstanding) => write!(f, "timestone@{outstanding}"),
            Self::TimestoneBlocking => f.write_str("timestone-blocking"),
            Self::TimestoneStore(outstanding) => write!(f, "timestone-store@{outstanding}"),
            Self::Nothing => f.write_str("nothing"),
        }
    }
}

impl FromStr for EngineKind {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let (name, outstanding) = text.split_once('@').unwrap_or((text, "1"));
        let outstanding: usize = outstanding.parse()?;
        if outstanding == 0 || outstanding > 1024 {
            return Err("after the @: 1 to 1024 operations under way".into());
        }
        Ok(match name {
            "timestone" => Self::Timestone(outstanding),
            "timestone-store" => Self::TimestoneStore(outstanding),
            _ if text.contains('@') => {
                return Err(format!("{name} has one operation under way for each thread").into());
            }
            "rocksdb" => Self::RocksDb,
            "fjall" => Self::Fjall,
            "lmdb" => Self::Lmdb,
            "redb" => Self::Redb,
            "timestone-blocking" => Self::TimestoneBlocking,
            "nothing" => Self::Nothing,
            _ => return Err(format!("there is no engine {name}").into()),
        })
    }
}

/// One process: an engine, loaded once, and the mixes that it is measured with, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) engine: EngineKind,
    pub(crate) column: Column,
    /// Threads of the application.
    pub(crate) threads: usize,
    pub(crate) keys: u64,
    /// Shares of gets, per cent.
    pub(crate) mixes: Vec<u64>,
    /// What our stores may use of the device, as a multiple of all tuples.
    pub(crate) capacity: f64,
}

impl Case {
    /// Bytes of all tuples.
    pub(crate) const fn data_bytes(&self) -> u64 {
        self.keys * TUPLE_BYTES
    }

    /// What a store may take of memory, all in. Where everything is in memory: more than enough.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self.column {
            Column::Tenth => self.data_bytes() / 10,
            Column::Memory | Column::Sync => self.data_bytes() * 4,
        }
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.column == Column::Sync
    }

    /// Threads that call a store which blocks them.
    pub(crate) fn callers(&self) -> usize {
        if self.is_synced() { SYNC_WRITERS } else { self.threads }
    }

    /// Threads that work, as shown.
    pub(crate) fn callers_shown(&self) -> usize {
        match self.engine {
            EngineKind::Timestone(_) | EngineKind::TimestoneStore(_) => self.threads,
            _ => self.callers(),
        }
    }

    /// Operations that each thread of a store that runs by loops keeps under way.
    pub(crate) fn outstanding(&self) -> usize {
        match self.engine {
            EngineKind::Timestone(_) | EngineKind::TimestoneStore(_) if self.is_synced() => {
                SYNC_WRITERS / self.threads
            }
            EngineKind::Timestone(outstanding) | EngineKind::TimestoneStore(outstanding) => {
                outstanding
            }
            _ => 1,
        }
    }

    /// What our stores may use of the device, in bytes.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        (self.data_bytes() as f64 * self.capacity) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_is_found_by_its_name() {
        let others = [EngineKind::TimestoneBlocking, EngineKind::Nothing];
        for engine in EngineKind::usual().into_iter().chain(others) {
            assert_eq!(engine.to_string().parse::<EngineKind>().unwrap(), engine);
        }
        assert!("rocksdb@2".parse::<EngineKind>().is_err());
        assert!("timestone@0".parse::<EngineKind>().is_err());
    }

    #[test]
    fn sixteen_writers_are_sixteen_however_a_store_is_driven() {
        for engine in EngineKind::usual() {
            let mut case = Case {
                engine,
                column: Column::Sync,
                threads: SYNC_THREADS,
                keys: 1000,
                mixes: vec![50],
                capacity: 2.0,
            };
            let ours = case.outstanding() * case.threads;
            let is_ours = matches!(engine, EngineKind::Timestone(_) | EngineKind::TimestoneStore(_));
            assert_eq!(if is_ours { ours } else { case.callers() }, SYNC_WRITERS);
            case.column = Column::Tenth;
            assert_eq!(case.memory_bytes(), 51_200);
        }
    }
}
