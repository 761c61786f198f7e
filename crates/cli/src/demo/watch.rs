//! What servers say of themselves, asked again and again: a thread for each, so that one that
//! hangs delays nothing.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use timestone_cluster::ShardMap;
use timestone_types::ShardId;

use super::limits::{PROBE_PAUSE, SILENT_AFTER};
use crate::failure::Failure;
use crate::probe::{self, Answer};

/// The last answer of a server.
struct LastAnswer {
    /// When the question was asked.
    asked: Instant,
    answer: Answer,
}

/// A server that is being asked.
struct WatchedServer {
    address: String,
    last: Mutex<Option<LastAnswer>>,
}

impl WatchedServer {
    fn with<T>(&self, look: impl FnOnce(Option<&LastAnswer>) -> T) -> T {
        look(self.last.lock().unwrap_or_else(PoisonError::into_inner).as_ref())
    }
}

/// All servers. Their threads end some time after this is dropped.
pub(super) struct Watch {
    servers: Vec<Arc<WatchedServer>>,
    is_over: Arc<AtomicBool>,
}

impl Watch {
    /// Begins to ask the servers at these addresses (`host:port`).
    pub(super) fn begin(addresses: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let is_over = Arc::new(AtomicBool::new(false));
        let begin = |address: String| {
            let server = Arc::new(WatchedServer { address, last: Mutex::new(None) });
            let (watched, is_over) = (Arc::clone(&server), Arc::clone(&is_over));
            let ask = move || {
                while !is_over.load(Relaxed) {
                    let asked = Instant::now();
                    if let Ok(answer) = probe::ask(&watched.address) {
                        let last = Some(LastAnswer { asked, answer });
                        *watched.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
                    }
                    std::thread::sleep(PROBE_PAUSE);
                }
            };
            let started = std::thread::Builder::new().name("watch".to_owned()).spawn(ask);
            started.map(|_| server).map_err(|error| {
                Failure::failed(format!("could not start a thread that asks a server: {error}"))
            })
        };
        let servers = addresses.map(begin).collect::<Result<_, _>>();
        // Threads that were started before one could not be.
        is_over.store(servers.is_err(), Relaxed);
        Ok(Self { servers: servers?, is_over })
    }

    /// Whether a server has answered a question that was asked after this moment.
    pub(super) fn has_answered_since(&self, server: usize, since: Instant) -> bool {
        self.servers[server].with(|last| last.is_some_and(|last| last.asked >= since))
    }

    /// Whether a server has not answered for a while.
    pub(super) fn is_silent(&self, server: usize) -> bool {
        self.servers[server].with(|last| {
            last.is_none_or(|last| last.asked.elapsed() > SILENT_AFTER + last.answer.round_trip)
        })
    }

    /// The newest map that any server has told.
    pub(super) fn newest_map(&self) -> Option<ShardMap> {
        let maps = self
            .servers
            .iter()
            .filter_map(|server| server.with(|last| last.map(|last| last.answer.map.clone())));
        maps.max_by_key(ShardMap::version)
    }

    /// Whether a server said last that its replica of a shard is in the shard's configuration.
    pub(super) fn keeps_up(&self, server: usize, shard: ShardId, epoch: u32) -> bool {
        self.servers[server].with(|last| {
            let figure = |name: &str| {
                last.and_then(|last| last.answer.figure(&format!("shard_{shard}_{name}")))
            };
            let is_there = matches!(figure("step"), Some("backup" | "serving"));
            is_there && figure("installed_epoch") == Some(epoch.to_string().as_str())
        })
    }

    /// The number of the server at an address, counted from nought.
    pub(super) fn at(&self, address: &str) -> Option<usize> {
        self.servers.iter().position(|server| server.address == address)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}
