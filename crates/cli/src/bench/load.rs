//! Before the run: the keyspace, and the keys in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use timestone::{
    Db, Error, ErrorCode, Keyspace, KeyspaceId, KeyspaceOptions, LocalDb, TransactOptions,
    TransactionOptions,
};
use timestone_cluster::IndexKind;
use timestone_workload::{KeyIndex, WorkloadSpec};

use super::limits::{
    LOAD_BYTES, LOAD_KEYS, LOAD_PAUSE, LOAD_TIMEOUT, LOADERS, PREPARING, TICK, TOLD_WAIT,
};
use super::progress::{LOADING, bar, waiting};
use super::{clocks, say};
use crate::failure::Failure;
use crate::signals::Interrupt;

/// The keyspace of a run.
pub(super) struct Prepared {
    pub(super) keyspace: Keyspace,
    /// It was there before, and the workload, whose history is to be checked, wants it empty.
    must_be_emptied: bool,
}

/// Finds the keyspace or creates it. Nothing in it is changed yet.
pub(super) fn find_keyspace(
    loops: &[Db],
    name: &str,
    spec: &WorkloadSpec,
    reuse: bool,
) -> Result<Prepared, Failure> {
    let found =
        loops[0].keyspaces().wait()?.into_iter().find(|keyspace| keyspace.name.as_str() == name);
    let must_be_emptied = found.is_some() && spec.loaded_keys() == 0 && !reuse;
    let keyspace = match found {
        Some(keyspace) if spec.kind.scans() && !keyspace.id.is_ordered() => {
            return Err(Failure::usage(format!(
                "{} scans keys in their order, and the keyspace '{name}' keeps none: name another one with \
                 --keyspace, or drop it (timestone keyspace drop {name})",
                spec.kind.name()
            )));
        }
        Some(keyspace) => keyspace,
        None => loops[0].create_keyspace(name, options_of(spec)).wait()?,
    };
    if must_be_emptied && keyspace.id == KeyspaceId::DEFAULT {
        return Err(Failure::usage(format!(
            "{} empties its keyspace first, and that would be '{name}': name another one with \
             --keyspace, or say --no-load",
            spec.kind.name()
        )));
    }
    // Every loop is a client of its own: each must know how the keyspace's commits are
    // acknowledged.
    for db in &loops[1..] {
        db.keyspaces().wait()?;
    }
    Ok(Prepared { keyspace, must_be_emptied })
}

/// What the keyspace of a workload is like where nobody has created it.
const fn options_of(spec: &WorkloadSpec) -> KeyspaceOptions {
    let index = if spec.kind.scans() { IndexKind::Ordered } else { IndexKind::Full };
    KeyspaceOptions { index, ..KeyspaceOptions::DEFAULT }
}

/// Empties the keyspace where the workload wants that, and says so where its commit waits for
/// clocks.
pub(super) fn empty_keyspace(db: &Db, prepared: &Prepared) -> Result<(), Failure> {
    if !prepared.must_be_emptied {
        return Ok(());
    }
    let Keyspace { id, name, .. } = &prepared.keyspace;
    let doing = match clocks::wait_of_commits(&prepared.keyspace, clocks::bound_of(db)) {
        Some(wait) if wait >= TOLD_WAIT => {
            let words = format!(
                "emptying the keyspace '{name}' first: its commit is acknowledged in about {wait:?}"
            );
            say(&words);
            words
        }
        _ => format!("emptying the keyspace '{name}'"),
    };
    let waiting = waiting(doing);
    let (id, options) =
        (*id, TransactOptions { transaction: preparing(), ..TransactOptions::default() });
    let done = db.spawn(move |db| async move {
        db.transact_with(&options, |tx| async move { tx.clear_keyspace(id) }).await
    });
    let done = done.wait();
    waiting.finish_and_clear();
    Ok(done.map(drop)?)
}

/// Transactions before the run wait for clocks as long as it takes: they are not what is measured.
fn preparing() -> TransactionOptions {
    TransactionOptions { deadline: Some(PREPARING), ..TransactionOptions::default() }
}

/// What all loaders share.
struct Loading {
    spec: WorkloadSpec,
    keys: u64,
    keys_per_txn: u64,
    next: AtomicU64,
    done: AtomicU64,
    stop: AtomicBool,
}

/// Writes every key that the workload expects to be there.
pub(super) fn load(
    loops: &[Db],
    keyspace: KeyspaceId,
    spec: &WorkloadSpec,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let keys = spec.loaded_keys();
    if keys == 0 {
        return Ok(());
    }
    let keys_per_txn = ((LOAD_BYTES / spec.tuple_bytes.max(1)) as u64).clamp(1, LOAD_KEYS);
    let loading = Arc::new(Loading {
        spec: spec.clone(),
        keys,
        keys_per_txn,
        next: AtomicU64::new(0),
        done: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    });
    let (sender, results) = std::sync::mpsc::channel();
    for db in loops.iter().flat_map(|db| (0..LOADERS).map(move |_| db)) {
        let (loading, sender) = (Arc::clone(&loading), sender.clone());
        let task = db.in_keyspace(keyspace).spawn(move |db| async move {
            let result = load_chunks(&db, &loading).await;
            loading.stop.fetch_or(result.is_err(), Relaxed);
            // The receiver is gone only when loading was given up.
            let _ = sender.send(result);
            Ok(())
        });
        // The result comes through the channel; the task runs whether or not it is waited for.
        drop(task);
    }
    drop(sender);
    let bar = bar(keys, LOADING);
    let mut first_error = None;
    loop {
        match results.recv_timeout(TICK) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                first_error.get_or_insert(error);
            }
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                bar.set_position(loading.done.load(Relaxed))
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
        }
        loading.stop.fetch_or(interrupt.has_come(), Relaxed);
    }
    bar.finish_and_clear();
    let done = loading.done.load(Relaxed);
    match first_error {
        Some(error) => {
            Err(Failure::failed(format!("loading stopped after {done} of {keys} keys: {error}")))
        }
        None if done < keys => {
            Err(Failure::failed(format!("loading was interrupted after {done} of {keys} keys")))
        }
        None => Ok(()),
    }
}

/// Takes runs of keys and writes each in one transaction, until there are none.
async fn load_chunks(db: &LocalDb, loading: &Loading) -> Result<(), Error> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    while !loading.stop.load(Relaxed) {
        let first = loading.next.fetch_add(loading.keys_per_txn, Relaxed);
        if first >= loading.keys {
            break;
        }
        let end = first.saturating_add(loading.keys_per_txn).min(loading.keys);
        let begin = Instant::now();
        while let Err(error) = load_chunk(db, &loading.spec, first..end, &mut key, &mut value).await
        {
            // Writing the same again does no harm, so that an unknown outcome is as good as a
            // refusal.
            let again = error.retryable() || error.code() == ErrorCode::UnknownOutcome;
            if !again || begin.elapsed() > LOAD_TIMEOUT || loading.stop.load(Relaxed) {
                return Err(error);
            }
            db.sleep(error.retry_after().unwrap_or(LOAD_PAUSE).min(LOAD_PAUSE)).await?;
        }
        loading.done.fetch_add(end - first, Relaxed);
    }
    Ok(())
}

async fn load_chunk(
    db: &LocalDb,
    spec: &WorkloadSpec,
    keys: std::ops::Range<u64>,
    key: &mut Vec<u8>,
    value: &mut Vec<u8>,
) -> Result<(), Error> {
    let shape = spec.key_shape();
    let tx = db.begin(&preparing())?;
    for index in keys.map(KeyIndex) {
        key.clear();
        shape.write(index, key);
        value.clear();
        spec.write_value(index, value);
        tx.put(key, value)?;
    }
    tx.commit().await.map(drop)
}
