//! A thread that asks etcd for a host that must not block.
//!
//! ```text
//!   host ── ask(number, command) ──► thread ── EtcdMaster ──► etcd
//!   host ◄── take: Answered, Map ◄──   │
//!                                      └─ between commands: the server's lease, and word of a new map
//! ```
//! Commands are carried out in their order. A host that is dropped ends the thread after the call
//! that is under way.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

use timestone_cluster::{
    MapVersion, MasterAnswer, MasterCommand, MasterFailure, MasterService, ServerId, ShardMap,
};
use timestone_types::Timestamp;

use crate::EtcdMaster;
use crate::limits::{MAP_PAUSE, MAX_ASKED};

/// What the thread has to tell.
#[derive(Debug)]
pub enum MasterNews {
    /// The answer to a command, by its number.
    Answered(u64, Result<MasterAnswer, MasterFailure>),
    /// A newer map.
    Map(ShardMap),
}

/// The host's end.
#[derive(Debug)]
pub struct EtcdWorker {
    asked: SyncSender<(u64, MasterCommand)>,
    news: Receiver<MasterNews>,
}

impl EtcdWorker {
    /// Begins to ask for a server, which knows a map of this version.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn begin(master: EtcdMaster, server: ServerId, known: MapVersion) -> std::io::Result<Self> {
        let (asked, commands) = sync_channel(MAX_ASKED);
        // Every command has one answer, and a map is told when there is room.
        let (tell, news) = sync_channel(2 * MAX_ASKED);
        std::thread::Builder::new()
            .name("etcd-master".to_owned())
            .spawn(move || work(master, server, known, &commands, &tell))?;
        Ok(Self { asked, news })
    }

    /// Asks for a command to be carried out: whether there is room for it.
    pub fn ask(&self, number: u64, command: MasterCommand) -> bool {
        self.asked.try_send((number, command)).is_ok()
    }

    /// What there is to tell, oldest first; `None` if there is nothing.
    pub fn take(&self) -> Option<MasterNews> {
        self.news.try_recv().ok()
    }
}

fn work(
    mut master: EtcdMaster,
    server: ServerId,
    mut known: MapVersion,
    commands: &Receiver<(u64, MasterCommand)>,
    tell: &SyncSender<MasterNews>,
) {
    let mut renew_at = Instant::now();
    loop {
        if Instant::now() >= renew_at {
            renew(&mut master, server);
            renew_at = Instant::now() + master.time_to_live() / 3;
        }
        let news = match commands.recv_timeout(MAP_PAUSE) {
            Ok((number, command)) => MasterNews::Answered(number, master.execute(command)),
            Err(RecvTimeoutError::Timeout) => match master.map_above(known) {
                Ok(Some(map)) => MasterNews::Map(map),
                Ok(None) => continue,
                Err(error) => {
                    tracing::debug!(%error, "the map cannot be followed");
                    continue;
                }
            },
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if let MasterNews::Map(map) = &news {
            known = map.version();
        }
        // A host that is gone, or takes nothing, is not waited for: it asks again.
        if tell.try_send(news).is_err_and(|error| matches!(error, TrySendError::Disconnected(_))) {
            return;
        }
    }
}

fn renew(master: &mut EtcdMaster, server: ServerId) {
    if let Err(error) = master.renew(Timestamp::ZERO, server) {
        tracing::warn!(%error, "the server's lease on etcd could not be renewed; it is tried again");
    }
}
