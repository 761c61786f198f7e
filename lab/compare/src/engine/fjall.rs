//! fjall, the log-structured merge tree in Rust, with values in the tree (they are small).
//!
//! No compression, filters of 10 bits, gets expected to hit, two workers. Without a sync its
//! journal is left in the process's memory until it is flushed (`manual_journal_persist`); with one
//! each put ends with `persist(SyncData)`. It reads through the page cache: with memory for a tenth
//! only a control group limits all of it.

use std::path::Path;

use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::blocking::{Blocking, Tuple};
use crate::Fault;
use crate::keys::{self, KEY_BYTES, VALUE_BYTES};
use crate::plan::Case;

/// The default size of a memtable.
const MEMTABLE_BYTES: u64 = 64 << 20;

pub(super) struct Fjall {
    database: Database,
    keyspace: Keyspace,
    is_synced: bool,
}

impl Fjall {
    pub(super) fn open(case: &Case, folder: &Path) -> Result<Self, Fault> {
        let memory = case.memory_bytes();
        // As RocksDB's: a quarter of the memory for the memtable that fills and one that is flushed.
        let memtable = (memory / 4 / 2).min(MEMTABLE_BYTES);
        let database = Database::builder(folder)
            .cache_size(memory - 2 * memtable)
            .journal_compression(CompressionType::None)
            .manual_journal_persist(true)
            .worker_threads(2)
            .open()?;
        let filters = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0));
        let options = KeyspaceCreateOptions::default()
            .data_block_compression_policy(CompressionPolicy::disabled())
            .index_block_compression_policy(CompressionPolicy::disabled())
            .filter_policy(FilterPolicy::all(filters))
            .expect_point_read_hits(true)
            .manual_journal_persist(true)
            .max_memtable_size(memtable);
        let keyspace = database.keyspace("tuples", || options)?;
        Ok(Self { database, keyspace, is_synced: case.is_synced() })
    }
}

impl Blocking for Fjall {
    fn get(&self, index: u64, key: &[u8; KEY_BYTES]) -> Result<(), Fault> {
        let found = self.keyspace.get(key)?;
        keys::check(index, found.as_deref())
    }

    fn put(&self, key: &[u8; KEY_BYTES], value: &[u8; VALUE_BYTES]) -> Result<(), Fault> {
        self.keyspace.insert(key, value)?;
        if self.is_synced {
            self.database.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }

    fn put_many(&self, tuples: &[Tuple]) -> Result<(), Fault> {
        let mut batch = self.database.batch();
        for (key, value) in tuples {
            batch.insert(&self.keyspace, key, value);
        }
        Ok(batch.commit()?)
    }

    fn settle(&self) -> Result<(), Fault> {
        self.keyspace.rotate_memtable_and_wait()?;
        while self.database.outstanding_flushes() > 0 || self.database.active_compactions() > 0 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }
}
