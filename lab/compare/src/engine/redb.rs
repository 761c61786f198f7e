//! redb: a transaction for each operation, as point operations are.
//!
//! Without a sync commits are `Durability::None`. Pages that they free can be used again only after
//! a durable commit, so one in a thousand is durable; else the file grows without end. With a sync
//! every commit is durable. Its own cache is half of the memory; the page cache below it is limited
//! by a control group alone.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{Database, Durability, ReadableDatabase as _, TableDefinition};

use super::blocking::{Blocking, Tuple};
use crate::Fault;
use crate::keys::{self, KEY_BYTES, VALUE_BYTES};
use crate::plan::{Case, Column};

const TUPLES: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("tuples");
/// Commits without durability before one that is durable.
const UNDURABLE: u64 = 1000;

pub(super) struct Redb {
    database: Database,
    is_synced: bool,
    commits: AtomicU64,
}

impl Redb {
    pub(super) fn open(case: &Case, folder: &Path) -> Result<Self, Fault> {
        let share = if case.column == Column::Tenth { 2 } else { 1 };
        let database = Database::builder()
            .set_cache_size((case.memory_bytes() / share) as usize)
            .create(folder.join("tuples.redb"))?;
        Ok(Self { database, is_synced: case.is_synced(), commits: AtomicU64::new(0) })
    }

    fn write(
        &self,
        durability: Durability,
        tuples: &mut dyn Iterator<Item = (&[u8], &[u8])>,
    ) -> Result<(), Fault> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(durability)?;
        {
            let mut table = transaction.open_table(TUPLES)?;
            for (key, value) in tuples {
                table.insert(key, value)?;
            }
        }
        Ok(transaction.commit()?)
    }
}

impl Blocking for Redb {
    fn get(&self, index: u64, key: &[u8; KEY_BYTES]) -> Result<(), Fault> {
        let transaction = self.database.begin_read()?;
        let table = transaction.open_table(TUPLES)?;
        let found = table.get(key.as_slice())?;
        keys::check(index, found.as_ref().map(redb::AccessGuard::value))
    }

    fn put(&self, key: &[u8; KEY_BYTES], value: &[u8; VALUE_BYTES]) -> Result<(), Fault> {
        let number = self.commits.fetch_add(1, Ordering::Relaxed);
        let is_durable = self.is_synced || number % UNDURABLE == UNDURABLE - 1;
        let durability = if is_durable { Durability::Immediate } else { Durability::None };
        self.write(durability, &mut std::iter::once((key.as_slice(), value.as_slice())))
    }

    fn put_many(&self, tuples: &[Tuple]) -> Result<(), Fault> {
        let mut tuples = tuples.iter().map(|(key, value)| (key.as_slice(), value.as_slice()));
        self.write(Durability::Immediate, &mut tuples)
    }

    fn settle(&self) -> Result<(), Fault> {
        Ok(())
    }
}
