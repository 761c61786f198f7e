//! Where the master is, and how this process asks it.
//!
//! Here: its core runs in this process, and its state is replaced durably before an answer that
//! depends on it leaves; or the environment has one that is asked directly. In another process, or on etcd: asked over the wire, or by a worker's thread; client
//! ids are fetched in blocks, other commands are relayed.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use timestone_cluster::{
    ClientIdBlock, ClusterError, EmbeddedMaster, MapVersion, Master, MasterAnswer, MasterCommand,
    MasterFailure, MasterService, ServerId, ShardMap, Term,
};
use timestone_etcd::{EtcdWorker, MasterNews};
use timestone_seda::ReplyAddress;
use timestone_types::{ClientId, Timestamp};
use timestone_wire::{ErrorCode, ProtocolVersion, RequestId};

use super::joining::{JoinStep, Joining, Registration};
use crate::environment::Environment;
use crate::error::ServerError;

/// Why a command to the master failed.
#[derive(Debug, Error)]
pub(crate) enum MasterError {
    #[error(transparent)]
    Refused(#[from] ClusterError),
    #[error("the command is not for the master of this process; report this as a bug")]
    Elsewhere,
    #[error("the master could not save its state: {0}")]
    Save(String),
}

impl From<MasterFailure> for MasterError {
    fn from(failure: MasterFailure) -> Self {
        match failure {
            MasterFailure::Refused(error) => Self::Refused(error),
            MasterFailure::Unavailable { detail } => Self::Save(detail),
        }
    }
}

impl MasterError {
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::Refused(error) => ErrorCode::from(error),
            Self::Elsewhere => ErrorCode::Internal,
            Self::Save(_) => ErrorCode::StorageFailed,
        }
    }
}

enum MasterAccess {
    /// Asked directly. One that is shared is changed by other processes as well.
    Here {
        master: Box<dyn MasterService>,
        is_shared: bool,
        /// The version of the map that it has told last.
        told: MapVersion,
    },
    Remote {
        address: SocketAddr,
        asking: bool,
    },
    Etcd {
        worker: EtcdWorker,
        asking: bool,
    },
}

/// The way to the master.
pub(crate) struct MasterLink {
    place: MasterAccess,
    blocks: VecDeque<ClientIdBlock>,
    /// Greetings that wait for client ids.
    pub(crate) waiting: VecDeque<(ReplyAddress, RequestId, ProtocolVersion)>,
    relayed: BTreeMap<u64, (ReplyAddress, RequestId)>,
    next_number: u64,
}

impl MasterLink {
    pub(crate) fn embedded(master: Master, environment: Arc<dyn Environment>) -> Self {
        let save =
            move |bytes: &[u8]| environment.save_master(bytes).map_err(|error| error.to_string());
        let master = EmbeddedMaster::new(master, crate::limits::SERVER_LEASE, save);
        Self::here(Box::new(master), false)
    }

    /// The environment's master, which other processes ask as well.
    pub(crate) fn shared(master: Box<dyn MasterService>) -> Self {
        Self::here(master, true)
    }

    fn here(master: Box<dyn MasterService>, is_shared: bool) -> Self {
        Self::new(MasterAccess::Here { master, is_shared, told: MapVersion::ZERO })
    }

    pub(crate) fn remote(address: SocketAddr, clients: ClientIdBlock) -> Self {
        let mut link = Self::new(MasterAccess::Remote { address, asking: false });
        link.blocks.push_back(clients);
        link
    }

    pub(crate) fn etcd(worker: EtcdWorker, clients: ClientIdBlock) -> Self {
        let mut link = Self::new(MasterAccess::Etcd { worker, asking: false });
        link.blocks.push_back(clients);
        link
    }

    const fn new(place: MasterAccess) -> Self {
        Self {
            place,
            blocks: VecDeque::new(),
            waiting: VecDeque::new(),
            relayed: BTreeMap::new(),
            next_number: 1,
        }
    }

    /// Whether the master is asked directly.
    pub(crate) const fn is_here(&self) -> bool {
        matches!(self.place, MasterAccess::Here { .. })
    }

    /// Whether the master is asked directly, and others change it as well.
    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self.place, MasterAccess::Here { is_shared: true, .. })
    }

    /// The master's address, when it is in another process.
    pub(crate) const fn address(&self) -> Option<SocketAddr> {
        match self.place {
            MasterAccess::Here { .. } | MasterAccess::Etcd { .. } => None,
            MasterAccess::Remote { address, .. } => Some(address),
        }
    }

    /// What the worker that asks etcd has to tell.
    pub(crate) fn news(&self) -> Option<MasterNews> {
        match &self.place {
            MasterAccess::Etcd { worker, .. } => worker.take(),
            _ => None,
        }
    }

    /// Whether the master is on etcd.
    pub(crate) const fn is_on_etcd(&self) -> bool {
        matches!(self.place, MasterAccess::Etcd { .. })
    }

    /// Hands a command to the worker that asks etcd, if there is one: whether it had room. Urgent
    /// ones go first.
    pub(crate) fn ask_etcd(
        &mut self,
        number: RequestId,
        command: &MasterCommand,
        is_urgent: bool,
    ) -> Option<bool> {
        let MasterAccess::Etcd { worker, .. } = &self.place else { return None };
        let (number, command) = (number.get(), command.clone());
        Some(if is_urgent {
            worker.ask_first(number, command)
        } else {
            worker.ask(number, command)
        })
    }

    /// Executes a command at the master that is here: the answer, and the map if it has changed.
    pub(crate) fn execute(
        &mut self,
        command: MasterCommand,
    ) -> Result<(MasterAnswer, Option<ShardMap>), MasterError> {
        let answer = self.ask(command)?;
        Ok((answer, self.newer_map()?))
    }

    /// The same; a change of the map is told another time.
    pub(crate) fn ask(&mut self, command: MasterCommand) -> Result<MasterAnswer, MasterError> {
        let MasterAccess::Here { master, .. } = &mut self.place else {
            return Err(MasterError::Elsewhere);
        };
        Ok(master.execute(command)?)
    }

    /// The map of the master that is here, if it has changed since it was told last.
    pub(crate) fn newer_map(&mut self) -> Result<Option<ShardMap>, MasterError> {
        let MasterAccess::Here { master, told, .. } = &mut self.place else {
            return Err(MasterError::Elsewhere);
        };
        let map = master.map_above(*told)?;
        *told = map.as_ref().map_or(*told, ShardMap::version);
        Ok(map)
    }

    /// This server wants to be the controller, or to stay it, at the master that is here: the term
    /// for which it is.
    pub(crate) fn campaign(
        &mut self,
        now: Timestamp,
        server: ServerId,
    ) -> Result<Option<Term>, MasterError> {
        let MasterAccess::Here { master, .. } = &mut self.place else {
            return Err(MasterError::Elsewhere);
        };
        Ok(master.campaign(now, server)?)
    }

    /// Whether another server than this one may be the controller.
    pub(crate) const fn may_be_controlled_elsewhere(&self) -> bool {
        self.is_shared() || self.is_on_etcd()
    }

    /// Whether the worker that asks etcd may campaign for this server.
    pub(crate) fn set_candidate(&self, may: bool) {
        if let MasterAccess::Etcd { worker, .. } = &self.place {
            worker.set_candidate(may);
        }
    }

    /// This server is the controller no longer, at the master that is here.
    pub(crate) fn resign(&mut self, server: ServerId) -> Result<(), MasterError> {
        let MasterAccess::Here { master, .. } = &mut self.place else {
            return Err(MasterError::Elsewhere);
        };
        Ok(master.resign(server)?)
    }

    /// A client id never used before; `None` when the next block must be fetched first.
    pub(crate) fn client_id(&mut self) -> Result<Option<ClientId>, MasterError> {
        if self.is_here() {
            return match self.ask(MasterCommand::RegisterClient { count: 1 })? {
                MasterAnswer::Clients(block) => Ok(Some(block.first)),
                _ => Err(MasterError::Elsewhere),
            };
        }
        let Some(block) = self.blocks.front_mut() else { return Ok(None) };
        let client = block.first;
        block.first = ClientId::new(client.get() + 1);
        block.count -= 1;
        if block.count == 0 {
            self.blocks.pop_front();
        }
        Ok(Some(client))
    }

    /// Under which number to ask for client ids; `None` when that is under way.
    pub(crate) fn want_clients(&mut self) -> Option<RequestId> {
        let (MasterAccess::Remote { asking, .. } | MasterAccess::Etcd { asking, .. }) =
            &mut self.place
        else {
            return None;
        };
        if std::mem::replace(asking, true) {
            return None;
        }
        Some(self.number())
    }

    pub(crate) fn add_clients(&mut self, block: ClientIdBlock) {
        self.blocks.push_back(block);
        self.link_lost();
    }

    /// Questions under way may be lost: they are asked again.
    pub(crate) fn link_lost(&mut self) {
        if let MasterAccess::Remote { asking, .. } | MasterAccess::Etcd { asking, .. } =
            &mut self.place
        {
            *asking = false;
        }
    }

    /// Remembers who is to get the answer to a relayed command.
    pub(crate) fn relay(&mut self, reply_to: ReplyAddress, request: RequestId) -> RequestId {
        let number = self.number();
        if self.relayed.len() >= crate::limits::MAX_RELAYED {
            self.relayed.pop_first();
        }
        self.relayed.insert(number.get(), (reply_to, request));
        number
    }

    /// Who asked under this number.
    pub(crate) fn relayed(&mut self, number: RequestId) -> Option<(ReplyAddress, RequestId)> {
        self.relayed.remove(&number.get())
    }

    /// A number under which nothing was asked yet.
    pub(crate) fn number(&mut self) -> RequestId {
        let number = RequestId::new(self.next_number);
        self.next_number += 1;
        number
    }
}

/// Registers with a master in another process, before any stage runs; tries until `timeout` is
/// over.
#[expect(
    clippy::disallowed_methods,
    reason = "before any stage runs, the process waits for its master as any program does"
)]
pub(crate) fn register(
    address: SocketAddr,
    joining: &Joining,
    timeout: Duration,
) -> Result<Registration, ServerError> {
    let deadline = Instant::now() + timeout;
    loop {
        match try_register(address, joining.clone()) {
            Ok(registration) => return Ok(registration),
            Err(Attempt::Refused(words)) => {
                return Err(ServerError::Master { address, detail: words });
            }
            Err(Attempt::Unreachable(error)) if Instant::now() >= deadline => {
                return Err(ServerError::Master { address, detail: error.to_string() });
            }
            Err(Attempt::Unreachable(error)) => {
                tracing::warn!(%address, %error, "the cluster's master does not answer yet; trying \
                    again");
                std::thread::sleep(Duration::from_millis(250));
            }
        }
    }
}

enum Attempt {
    Unreachable(std::io::Error),
    Refused(String),
}

impl From<std::io::Error> for Attempt {
    fn from(error: std::io::Error) -> Self {
        Self::Unreachable(error)
    }
}

fn try_register(address: SocketAddr, mut joining: Joining) -> Result<Registration, Attempt> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut out = joining.begin();
    loop {
        let answer = ask(&mut stream, &out)?;
        match joining.answered(&answer).map_err(Attempt::Refused)? {
            JoinStep::Send(bytes) => out = bytes,
            JoinStep::Joined(registration) => return Ok(registration),
        }
    }
}

fn ask(stream: &mut TcpStream, frame: &[u8]) -> Result<Vec<u8>, Attempt> {
    stream.write_all(frame)?;
    loop {
        let mut head = [0u8; 4];
        stream.read_exact(&mut head)?;
        let length = timestone_wire::frame_length(&head)
            .ok()
            .flatten()
            .ok_or_else(|| Attempt::Refused("it does not speak the native protocol".to_owned()))?;
        let mut bytes = vec![0; length];
        bytes[..4].copy_from_slice(&head);
        stream.read_exact(&mut bytes[4..])?;
        // The master's clock is of no use here.
        if !timestone_wire::without_clock(&bytes).is_empty() {
            return Ok(bytes);
        }
    }
}
