//! A thread that listens to the changes of the state's key, so that a new map is known without
//! asking.
//!
//! It reads the state whole, then hears of changes from the next revision on; after a while, or
//! when anything fails, it does both anew. So nothing that it missed stays missed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::client::{EtcdClient, KeyValue, Revision};
use crate::limits::WATCH_PAUSE;

/// A value, and the id of the etcd cluster that has it.
pub(crate) type Heard = (u64, KeyValue);

/// The value that was heard last.
#[derive(Debug)]
pub(crate) struct StateWatch {
    latest: Arc<Mutex<Option<Heard>>>,
    is_over: Arc<AtomicBool>,
}

impl StateWatch {
    /// Begins to listen, on a thread of its own, which ends some seconds after this is dropped.
    pub(crate) fn begin(client: EtcdClient, key: String) -> std::io::Result<Self> {
        let watched = Self { latest: Arc::default(), is_over: Arc::default() };
        let (latest, is_over) = (Arc::clone(&watched.latest), Arc::clone(&watched.is_over));
        std::thread::Builder::new().name("etcd-watch".to_owned()).spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                if let Err(error) = listen(&client, &key, &latest, &is_over) {
                    tracing::debug!(%error, "the watch on etcd ended; it is begun anew");
                    std::thread::sleep(WATCH_PAUSE);
                }
            }
        })?;
        Ok(watched)
    }

    /// The value that was heard last, once.
    pub(crate) fn take(&self) -> Option<Heard> {
        self.latest.lock().ok()?.take()
    }
}

impl Drop for StateWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn listen(
    client: &EtcdClient,
    key: &str,
    latest: &Mutex<Option<Heard>>,
    is_over: &AtomicBool,
) -> Result<(), crate::EtcdError> {
    let tell = |heard: Heard| {
        if let Ok(mut latest) = latest.lock() {
            *latest = Some(heard);
        }
    };
    let snapshot = client.get(key)?;
    let from = Revision(snapshot.revision.0 + 1);
    let etcd_cluster = snapshot.etcd_cluster;
    snapshot.found.into_iter().for_each(|found| tell((etcd_cluster, found)));
    client.watch(key, from, |heard| {
        heard.into_iter().for_each(tell);
        !is_over.load(Ordering::Relaxed)
    })
}
