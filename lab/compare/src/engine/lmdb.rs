//! LMDB through `heed`: a transaction for each operation, as point operations are.
//!
//! Without a sync: `NOSYNC` and `WRITEMAP`, its fastest way to write. With one: no flags, so that
//! each commit syncs data and then the page of metadata. Its memory is the page cache: with memory
//! for a tenth only a control group limits it, and read-ahead is off then.

use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, WithTls};

use super::blocking::{Blocking, Tuple};
use crate::Fault;
use crate::keys::{self, KEY_BYTES, VALUE_BYTES};
use crate::plan::{Case, Column, SYNC_WRITERS};

/// Address space for each byte of tuples: half-full pages, and copies that readers hold.
const MAP_FACTOR: usize = 8;
/// Never less than this.
const LEAST_MAP_BYTES: usize = 1 << 30;

pub(super) struct Lmdb {
    env: Env<WithTls>,
    database: Database<Bytes, Bytes>,
}

impl Lmdb {
    pub(super) fn open(case: &Case, folder: &Path) -> Result<Self, Fault> {
        let mut flags = EnvFlags::empty();
        if !case.is_synced() {
            flags |= EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP;
        }
        if case.column == Column::Tenth {
            flags |= EnvFlags::NO_READ_AHEAD;
        }
        let mut options = EnvOpenOptions::new();
        options
            .map_size((case.data_bytes() as usize * MAP_FACTOR).max(LEAST_MAP_BYTES))
            .max_readers(4 * SYNC_WRITERS as u32);
        // SAFETY: the folder is new and of this process alone, and nobody else maps its file.
        let env = unsafe {
            options.flags(flags);
            options.open(folder)?
        };
        let mut transaction = env.write_txn()?;
        let database = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Self { env, database })
    }
}

impl Blocking for Lmdb {
    fn get(&self, index: u64, key: &[u8; KEY_BYTES]) -> Result<(), Fault> {
        let transaction = self.env.read_txn()?;
        keys::check(index, self.database.get(&transaction, key)?)
    }

    fn put(&self, key: &[u8; KEY_BYTES], value: &[u8; VALUE_BYTES]) -> Result<(), Fault> {
        let mut transaction = self.env.write_txn()?;
        self.database.put(&mut transaction, key, value)?;
        Ok(transaction.commit()?)
    }

    fn put_many(&self, tuples: &[Tuple]) -> Result<(), Fault> {
        let mut transaction = self.env.write_txn()?;
        for (key, value) in tuples {
            self.database.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn settle(&self) -> Result<(), Fault> {
        Ok(self.env.force_sync()?)
    }
}
