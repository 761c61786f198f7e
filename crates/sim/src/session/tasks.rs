//! What one session does for all: it loads the data before the others begin, and writes and reads
//! all of it when they have ended.

use std::collections::BTreeSet;
use std::sync::Arc;

use timestone_client::{LocalDb, Result, TransactionOptions};
use timestone_types::{Expiry, Timestamp};
use timestone_workload::history::Seen;
use timestone_workload::{KeyIndex, write_integer};

use super::ERROR_PAUSE;
use super::values::{LOADED, read_value, write_numbered};
use crate::board::{Board, ClientWork};

/// Keys written by one loading transaction, and read by one auditing one.
const KEYS_AT_ONCE: usize = 64;

/// Writes what a workload expects to find.
pub(crate) async fn load(db: LocalDb, board: Arc<Board>) -> Result<()> {
    while let Err(error) = board.keyspaces.create(&db).await {
        board.complaints.said(error.to_string());
        db.sleep(ERROR_PAUSE).await?;
    }
    let count = if let ClientWork::Ring { nodes, .. } = board.work {
        nodes
    } else {
        board.work.spec().loaded_keys()
    };
    let keys: Vec<u64> = (0..count).collect();
    for chunk in keys.chunks(KEYS_AT_ONCE) {
        loop {
            match load_some(&db, &board, chunk).await {
                Ok(at) => {
                    board.data.load(at);
                    break;
                }
                // Loading writes the same values whenever it is repeated.
                Err(error) => {
                    board.complaints.said(error.to_string());
                    db.sleep(ERROR_PAUSE).await?;
                }
            }
        }
    }
    board.task_ends();
    Ok(())
}

/// Writes some of what a workload expects, in one transaction; its timestamp.
async fn load_some(db: &LocalDb, board: &Board, keys: &[u64]) -> Result<Timestamp> {
    let (spec, tx) = (board.work.spec(), db.begin(&TransactionOptions::default())?);
    for &index in keys {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        spec.key_shape().write(KeyIndex(index), &mut key);
        if let ClientWork::Ring { nodes, .. } = board.work {
            write_integer(((index + 1) % nodes) as i64, &mut value);
        } else if board.work.is_numbered() {
            write_numbered(&board.work, KeyIndex(index), LOADED, &mut value);
        } else {
            spec.write_value(KeyIndex(index), &mut value);
        }
        tx.put_in(board.keyspaces.of(KeyIndex(index)), &key, &value, Expiry::NEVER)?;
    }
    tx.commit().await
}

/// The keys that matter: those that were loaded, and `more`.
fn audited(work: &ClientWork, more: BTreeSet<KeyIndex>) -> Vec<KeyIndex> {
    let count =
        if let ClientWork::Ring { nodes, .. } = work { *nodes } else { work.spec().loaded_keys() };
    (0..count).map(KeyIndex).chain(more.into_iter().filter(|key| key.0 >= count)).collect()
}

/// Reads all keys that matter, after everything has come to rest: those that were loaded, and
/// `more`.
pub(crate) async fn audit(db: LocalDb, board: Arc<Board>, more: BTreeSet<KeyIndex>) -> Result<()> {
    for chunk in audited(&board.work, more).chunks(KEYS_AT_ONCE) {
        loop {
            match read_all(&db, &board, chunk).await {
                Ok(found) => {
                    for (key, seen) in found {
                        match seen {
                            Ok(seen) => board.data.found(key, seen),
                            Err(what) => board.complaints.wrong(format!("in the end, {what}")),
                        }
                    }
                    break;
                }
                Err(error) => {
                    board.complaints.said(error.to_string());
                    db.sleep(ERROR_PAUSE).await?;
                }
            }
        }
    }
    board.task_ends();
    Ok(())
}

/// Writes every key that matters once more, as it is: afterwards a store has no reason to keep more
/// than two versions of it.
pub(crate) async fn touch(db: LocalDb, board: Arc<Board>, more: BTreeSet<KeyIndex>) -> Result<()> {
    for chunk in audited(&board.work, more).chunks(KEYS_AT_ONCE) {
        while let Err(error) = touch_all(&db, &board, chunk).await {
            board.complaints.said(error.to_string());
            db.sleep(ERROR_PAUSE).await?;
        }
    }
    board.task_ends();
    Ok(())
}

async fn touch_all(db: &LocalDb, board: &Board, keys: &[KeyIndex]) -> Result<()> {
    board.data.touch(keys.len());
    let tx = db.begin(&TransactionOptions::default())?;
    for &index in keys {
        let mut key = Vec::new();
        board.work.spec().key_shape().write(index, &mut key);
        let keyspace = board.keyspaces.of(index);
        match tx.get_in(keyspace, &key).await? {
            Some(value) => tx.put_in(keyspace, &key, &value, value.expires_at())?,
            None => tx.delete_in(keyspace, &key)?,
        }
    }
    tx.commit().await?;
    Ok(())
}

type FoundKeys = Vec<(KeyIndex, std::result::Result<Seen, String>)>;

async fn read_all(db: &LocalDb, board: &Board, keys: &[KeyIndex]) -> Result<FoundKeys> {
    let work = &board.work;
    // A clock that is behind would show how things were.
    let tx = db.begin(&TransactionOptions { strict: true, ..TransactionOptions::default() })?;
    let mut found = Vec::new();
    for &index in keys {
        let mut key = Vec::new();
        work.spec().key_shape().write(index, &mut key);
        let value = tx.get_in(board.keyspaces.of(index), &key).await?;
        found.push((index, read_value(work, index, value.as_deref())));
    }
    tx.commit().await?;
    Ok(found)
}
