//! A thread that asks etcd for a host that must not block.
//!
//! ```text
//!   host ── ask(number, command) ──► thread ── EtcdMaster ──► etcd
//!   host ◄── take: Answered, Map, ◄──  │
//!            Control, Controller       └─ between commands: the server's lease, word of a new map; in a cluster of
//!                                         several copies the controller's lease, and the configurations as well
//! ```
//! Commands are carried out in their order, those of the controller before others. A host that is dropped ends the thread after the call
//! that is under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

use timestone_cluster::{
    ControlState, MapVersion, MasterAnswer, MasterCommand, MasterFailure, MasterService, ServerId,
    ShardMap, Term,
};
use timestone_types::Timestamp;

use crate::EtcdMaster;
use crate::limits::{CAMPAIGN_PAUSE, MAP_PAUSE, MAX_ASKED, MAX_URGENT};

/// What the thread has to tell.
#[derive(Debug)]
pub enum MasterNews {
    /// The answer to a command, by its number.
    Answered(u64, Result<MasterAnswer, MasterFailure>),
    /// A newer map.
    Map(ShardMap),
    /// The configurations of shards, after each change of the state.
    Control(Box<ControlState>),
    /// The term for which this server is the controller; `None` while another one is.
    Controller(Option<Term>),
}

/// A server of the cluster, and what it follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServedServer {
    /// The server.
    pub server: ServerId,
    /// The version of the map that it knows.
    pub known: MapVersion,
    /// Whether shards have several replicas: it is told their configurations, and may become the
    /// controller.
    pub is_replicated: bool,
}

/// A command, and the number of its answer.
type Numbered = (u64, MasterCommand);

/// The host's end.
#[derive(Debug)]
pub struct EtcdWorker {
    /// What is to be carried out; `None` wakes the thread.
    asked: SyncSender<Option<Numbered>>,
    /// What is to be carried out before that.
    urgent: SyncSender<Numbered>,
    news: Receiver<MasterNews>,
    is_candidate: Arc<AtomicBool>,
}

impl EtcdWorker {
    /// Begins to ask for a server.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn begin(master: EtcdMaster, follower: ServedServer) -> std::io::Result<Self> {
        let (asked, waiting) = sync_channel(MAX_ASKED);
        let (urgent, first) = sync_channel(MAX_URGENT);
        let commands = Commands { first, waiting };
        // Every command has one answer, and what has changed is told when there is room.
        let (tell, news) = sync_channel(2 * MAX_ASKED);
        let now = Instant::now();
        let is_candidate = Arc::new(AtomicBool::new(true));
        let mut work = Work {
            master,
            follower,
            told: None,
            renew_at: now,
            campaign_at: now,
            is_candidate: Arc::clone(&is_candidate),
            may_be_controller: false,
            tell,
        };
        std::thread::Builder::new()
            .name("etcd-master".to_owned())
            .spawn(move || while work.turn(&commands) {})?;
        Ok(Self { asked, urgent, news, is_candidate })
    }

    /// Whether the server may be the controller, as it may at first. If not, it resigns.
    pub fn set_candidate(&self, may: bool) {
        if self.is_candidate.swap(may, Ordering::Relaxed) != may {
            // A thread that has something to do looks by itself.
            drop(self.asked.try_send(None));
        }
    }

    /// Asks for a command to be carried out: whether there is room for it.
    pub fn ask(&self, number: u64, command: MasterCommand) -> bool {
        self.asked.try_send(Some((number, command))).is_ok()
    }

    /// The same, before all that was asked in the other way and is not under way yet.
    pub fn ask_first(&self, number: u64, command: MasterCommand) -> bool {
        let has_room = self.urgent.try_send((number, command)).is_ok();
        // A thread that has something to do looks by itself.
        drop(self.asked.try_send(None));
        has_room
    }

    /// What there is to tell, oldest first; `None` if there is nothing.
    pub fn take(&self) -> Option<MasterNews> {
        self.news.try_recv().ok()
    }
}

/// What the thread was asked.
struct Commands {
    first: Receiver<Numbered>,
    waiting: Receiver<Option<Numbered>>,
}

impl Commands {
    /// The next one, waited for for a while. None comes of being woken.
    fn next(&self) -> Result<Option<Numbered>, RecvTimeoutError> {
        match self.first.try_recv() {
            Ok(command) => Ok(Some(command)),
            Err(_) => self.waiting.recv_timeout(MAP_PAUSE),
        }
    }
}

/// The thread's end.
struct Work {
    master: EtcdMaster,
    follower: ServedServer,
    /// The revision of the state whose configurations were told last.
    told: Option<u64>,
    renew_at: Instant,
    campaign_at: Instant,
    is_candidate: Arc<AtomicBool>,
    /// It has campaigned, and not resigned since.
    may_be_controller: bool,
    tell: SyncSender<MasterNews>,
}

impl Work {
    /// Carries out a command, or waits for one for a while, and does what is due beside: whether
    /// the host is there. What has changed is told however many commands there are: a new primary
    /// waits for it.
    fn turn(&mut self, commands: &Commands) -> bool {
        self.renew();
        if self.follower.is_replicated && !self.stand() {
            return false;
        }
        match commands.next() {
            Ok(Some((number, command))) => {
                let answer = self.master.execute(command);
                // A host that takes nothing is not waited for: it asks again.
                self.is_there(MasterNews::Answered(number, answer)).is_some() && self.follow()
            }
            Ok(None) | Err(RecvTimeoutError::Timeout) => self.follow(),
            Err(RecvTimeoutError::Disconnected) => false,
        }
    }

    /// Tells the host: whether it had room; `None` if it is gone.
    fn is_there(&self, news: MasterNews) -> Option<bool> {
        match self.tell.try_send(news) {
            Ok(()) => Some(true),
            Err(TrySendError::Full(_)) => Some(false),
            Err(TrySendError::Disconnected(_)) => None,
        }
    }

    /// Renews the server's lease when that is due.
    fn renew(&mut self) {
        if Instant::now() < self.renew_at {
            return;
        }
        if let Err(error) = self.master.renew(Timestamp::ZERO, self.follower.server) {
            tracing::warn!(%error, "the server's lease on etcd could not be renewed; it is tried again");
        }
        self.renew_at = Instant::now() + self.master.time_to_live() / 3;
    }

    /// Campaigns when that is due, or resigns: whether the host is there.
    fn stand(&mut self) -> bool {
        if self.is_candidate.load(Ordering::Relaxed) {
            self.may_be_controller = true;
            return Instant::now() < self.campaign_at || self.campaign();
        }
        if !self.may_be_controller {
            return true;
        }
        match self.master.resign(self.follower.server) {
            Ok(()) => {
                self.may_be_controller = false;
                self.is_there(MasterNews::Controller(None)).is_some()
            }
            Err(error) => {
                tracing::debug!(%error, "the controller's lease ends by itself");
                true
            }
        }
    }

    /// Asks to be the controller, or to stay it: whether the host is there.
    fn campaign(&mut self) -> bool {
        let done = self.master.campaign(Timestamp::ZERO, self.follower.server);
        self.campaign_at = Instant::now() + CAMPAIGN_PAUSE;
        match done {
            Ok(term) => self.is_there(MasterNews::Controller(term)).is_some(),
            Err(error) => {
                tracing::debug!(%error, "it is not known who is the controller");
                true
            }
        }
    }

    /// Tells what has changed: whether the host is there.
    fn follow(&mut self) -> bool {
        match self.master.map_above(self.follower.known) {
            Ok(None) => {}
            Ok(Some(map)) => {
                let version = map.version();
                match self.is_there(MasterNews::Map(map)) {
                    Some(true) => self.follower.known = version,
                    Some(false) => {}
                    None => return false,
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the map cannot be followed");
                return true;
            }
        }
        let latest = self.master.latest().filter(|_| self.follower.is_replicated);
        let Some(latest) = latest.filter(|latest| Some(latest.revision()) != self.told) else {
            return true;
        };
        let revision = latest.revision();
        match self.is_there(MasterNews::Control(Box::new(latest.control()))) {
            Some(true) => self.told = Some(revision),
            Some(false) => {}
            None => return false,
        }
        true
    }
}
