//! RocksDB, set up as its tuning guide says for point look-ups that find what they ask for.
//!
//! No compression (values do not compress), full Bloom filters of 10 bits for all levels but the
//! last (every get hits), a hash index inside data blocks, dynamic level sizes, two background
//! jobs. Without a sync there is no write-ahead log either: as ours, it loses what is not flushed.
//! With memory for a tenth: direct reads, flushes and compactions, so that the block cache and the
//! memtables are all the memory there is. One of the two memtables is within it: both are full for
//! moments only, and what a process may take beside has room for that.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DataBlockIndexType, Options, ReadOptions,
    WriteBatch, WriteOptions, properties,
};

use super::blocking::{Blocking, Tuple};
use crate::Fault;
use crate::keys::{self, KEY_BYTES, VALUE_BYTES};
use crate::plan::{Case, Column};

/// Memtables: the one that fills, and one that is flushed.
const MEMTABLES: usize = 2;
/// Between two looks at whether compactions are over.
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);
/// The default size of a memtable.
const MEMTABLE_BYTES: usize = 64 << 20;

pub(super) struct Rocks {
    db: DB,
    writes: WriteOptions,
    loads: WriteOptions,
    reads: ReadOptions,
}

impl Rocks {
    pub(super) fn open(case: &Case, folder: &Path) -> Result<Self, Fault> {
        let memory = case.memory_bytes() as usize;
        // A quarter of the memory for memtables at most, and never more than the default.
        let memtable = (memory / 4 / MEMTABLES).min(MEMTABLE_BYTES);
        let mut blocks = BlockBasedOptions::default();
        let beside_cache = if case.column == Column::Tenth { 1 } else { MEMTABLES };
        blocks.set_block_cache(&Cache::new_lru_cache(memory - beside_cache * memtable));
        blocks.set_bloom_filter(10.0, false);
        blocks.set_cache_index_and_filter_blocks(true);
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
        blocks.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        blocks.set_data_block_hash_ratio(0.75);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&blocks);
        options.set_compression_type(DBCompressionType::None);
        options.set_optimize_filters_for_hits(true);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_max_background_jobs(2);
        options.set_write_buffer_size(memtable);
        options.set_max_write_buffer_number(MEMTABLES as i32);
        options.set_bytes_per_sync(1 << 20);
        if case.column == Column::Tenth {
            options.set_use_direct_reads(true);
            options.set_use_direct_io_for_flush_and_compaction(true);
        }
        let db = DB::open(&options, folder)?;
        let without_log = || {
            let mut writes = WriteOptions::default();
            writes.disable_wal(true);
            writes
        };
        let mut writes = without_log();
        if case.is_synced() {
            writes = WriteOptions::default();
            writes.set_sync(true);
        }
        let mut reads = ReadOptions::default();
        // Pages come from a device that checks them, and other engines do not verify either.
        reads.set_verify_checksums(true);
        Ok(Self { db, writes, loads: without_log(), reads })
    }
}

impl Blocking for Rocks {
    fn get(&self, index: u64, key: &[u8; KEY_BYTES]) -> Result<(), Fault> {
        let found = self.db.get_pinned_opt(key, &self.reads)?;
        keys::check(index, found.as_deref())
    }

    fn put(&self, key: &[u8; KEY_BYTES], value: &[u8; VALUE_BYTES]) -> Result<(), Fault> {
        Ok(self.db.put_opt(key, value, &self.writes)?)
    }

    fn put_many(&self, tuples: &[Tuple]) -> Result<(), Fault> {
        let mut batch = WriteBatch::default();
        for (key, value) in tuples {
            batch.put(key, value);
        }
        Ok(self.db.write_opt(batch, &self.loads)?)
    }

    fn settle(&self) -> Result<(), Fault> {
        self.db.flush()?;
        let left = |name| self.db.property_int_value(name).map(|left| left.unwrap_or(0));
        while left(properties::COMPACTION_PENDING)? + left(properties::NUM_RUNNING_COMPACTIONS)? > 0
        {
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}
