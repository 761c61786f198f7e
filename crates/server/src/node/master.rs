//! Where the master is, and how this process asks it.
//!
//! Embedded: its core runs here, and its state is replaced durably before an answer that depends on it leaves. In another process: asked over
//! the wire; client ids are fetched in blocks, other commands are relayed.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use timestone_cluster::{
    ClientIdBlock, ClusterError, DirectoryId, Master, MasterAnswer, MasterCommand, ServerAddresses, ServerId, ShardMap,
};
use timestone_seda::Origin;
use timestone_types::{ClientId, ClusterId, ShardId};
use timestone_wire::{
    Envelope, ErrorCode, ErrorReply, Frame, Hello, MasterAsk, MasterReply, Message, ProtocolVersion, RequestId, Role,
    Welcome,
};

use crate::datadir::DataDir;
use crate::error::ServerError;

/// Why a command to the master failed.
#[derive(Debug, Error)]
pub(crate) enum MasterError {
    #[error(transparent)]
    Refused(#[from] ClusterError),
    #[error("the command is not for the master of this process; report this as a bug")]
    Elsewhere,
    #[error("the master could not save its state: {0}")]
    Save(#[from] ServerError),
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

enum Place {
    Embedded { master: Box<Master>, data: Arc<DataDir> },
    Remote { address: SocketAddr, asking: bool },
}

/// The way to the master.
pub(crate) struct MasterLink {
    place: Place,
    blocks: VecDeque<ClientIdBlock>,
    /// Greetings that wait for client ids.
    pub(crate) waiting: VecDeque<(Origin, RequestId, ProtocolVersion)>,
    relayed: BTreeMap<u64, (Origin, RequestId)>,
    next_number: u64,
}

impl MasterLink {
    pub(crate) fn embedded(master: Master, data: Arc<DataDir>) -> Self {
        Self::new(Place::Embedded { master: Box::new(master), data })
    }

    pub(crate) fn remote(address: SocketAddr, clients: ClientIdBlock) -> Self {
        let mut link = Self::new(Place::Remote { address, asking: false });
        link.blocks.push_back(clients);
        link
    }

    const fn new(place: Place) -> Self {
        Self { place, blocks: VecDeque::new(), waiting: VecDeque::new(), relayed: BTreeMap::new(), next_number: 1 }
    }

    pub(crate) const fn is_embedded(&self) -> bool {
        matches!(self.place, Place::Embedded { .. })
    }

    /// The master's address, when it is in another process.
    pub(crate) const fn address(&self) -> Option<SocketAddr> {
        match self.place {
            Place::Embedded { .. } => None,
            Place::Remote { address, .. } => Some(address),
        }
    }

    /// Executes a command at the embedded master: the answer, and the map if it changed.
    pub(crate) fn execute(&mut self, command: MasterCommand) -> Result<(MasterAnswer, Option<ShardMap>), MasterError> {
        let Place::Embedded { master, data } = &mut self.place else {
            return Err(MasterError::Elsewhere);
        };
        let before = master.map().version();
        // A command whose state could not be saved must not have happened.
        let mut next = master.clone();
        let step = next.step(command)?;
        if step.persist {
            let mut bytes = Vec::new();
            next.encode(&mut bytes);
            data.save_master(&bytes)?;
        }
        **master = *next;
        let map = (master.map().version() != before).then(|| master.map().clone());
        Ok((step.answer, map))
    }

    /// A client id never used before; `None` when the next block must be fetched first.
    pub(crate) fn client_id(&mut self) -> Result<Option<ClientId>, MasterError> {
        if self.is_embedded() {
            let (answer, _) = self.execute(MasterCommand::RegisterClient { count: 1 })?;
            return match answer {
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

    /// Whom to ask for client ids, and under which number; `None` when that is under way.
    pub(crate) fn want_clients(&mut self) -> Option<(SocketAddr, RequestId)> {
        let Place::Remote { address, asking } = &mut self.place else { return None };
        if std::mem::replace(asking, true) {
            return None;
        }
        let address = *address;
        Some((address, self.number()))
    }

    pub(crate) fn add_clients(&mut self, block: ClientIdBlock) {
        self.blocks.push_back(block);
        self.link_lost();
    }

    /// Questions under way may be lost: they are asked again.
    pub(crate) fn link_lost(&mut self) {
        if let Place::Remote { asking, .. } = &mut self.place {
            *asking = false;
        }
    }

    /// Remembers who is to get the answer to a relayed command.
    pub(crate) fn relay(&mut self, origin: Origin, request: RequestId) -> RequestId {
        let number = self.number();
        if self.relayed.len() >= crate::limits::MAX_RELAYED {
            self.relayed.pop_first();
        }
        self.relayed.insert(number.get(), (origin, request));
        number
    }

    /// Who asked under this number.
    pub(crate) fn relayed(&mut self, number: RequestId) -> Option<(Origin, RequestId)> {
        self.relayed.remove(&number.get())
    }

    fn number(&mut self) -> RequestId {
        let number = RequestId::new(self.next_number);
        self.next_number += 1;
        number
    }
}

/// What a process learns when it registers with the master of its cluster.
pub(crate) struct Registration {
    pub(crate) server: ServerId,
    pub(crate) shards: Vec<ShardId>,
    pub(crate) map: ShardMap,
    pub(crate) clients: ClientIdBlock,
}

/// Registers with a master in another process, before any stage runs; tries until `patience` is over.
pub(crate) fn register(
    address: SocketAddr,
    cluster: ClusterId,
    directory: DirectoryId,
    addresses: &ServerAddresses,
    shards_wanted: u16,
    patience: Duration,
) -> Result<Registration, ServerError> {
    let deadline = Instant::now() + patience;
    loop {
        match try_register(address, cluster, directory, addresses, shards_wanted) {
            Ok(registration) => return Ok(registration),
            Err(Attempt::Refused(words)) => return Err(ServerError::Master { address, detail: words }),
            Err(Attempt::Unreachable(error)) if Instant::now() >= deadline => {
                return Err(ServerError::Master { address, detail: error.to_string() });
            }
            Err(Attempt::Unreachable(error)) => {
                tracing::warn!(%address, %error, "the cluster's master does not answer yet; trying again");
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

fn try_register(
    address: SocketAddr,
    cluster: ClusterId,
    directory: DirectoryId,
    addresses: &ServerAddresses,
    shards_wanted: u16,
) -> Result<Registration, Attempt> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut out = Vec::new();
    Hello::new(Role::Server, cluster, ClientId::ZERO, "timestone-server").encode(&Envelope::default(), &mut out);
    let welcomed = ask(&mut stream, &out)?;
    parse::<Welcome<'_>, _>(&welcomed, |welcome| Ok(welcome.cluster))?;
    let command = MasterCommand::RegisterServer { cluster, directory, addresses: addresses.clone(), shards_wanted };
    let MasterAnswer::Server { server, shards, map } = command_answer(&mut stream, &command)? else {
        return Err(Attempt::Refused("it answered something else than asked".to_owned()));
    };
    let command = MasterCommand::RegisterClient { count: crate::limits::CLIENT_BLOCK };
    let MasterAnswer::Clients(clients) = command_answer(&mut stream, &command)? else {
        return Err(Attempt::Refused("it answered something else than asked".to_owned()));
    };
    Ok(Registration { server, shards, map, clients })
}

fn command_answer(stream: &mut TcpStream, command: &MasterCommand) -> Result<MasterAnswer, Attempt> {
    let mut bytes = Vec::new();
    command.encode(&mut bytes);
    let mut out = Vec::new();
    MasterAsk { command: &bytes }.encode(&Envelope::default(), &mut out);
    let answer = ask(stream, &out)?;
    parse::<MasterReply<'_>, _>(&answer, |reply| reply.master_answer().map_err(|error| error.to_string()))
}

fn ask(stream: &mut TcpStream, frame: &[u8]) -> Result<Vec<u8>, Attempt> {
    stream.write_all(frame)?;
    let mut head = [0u8; 4];
    stream.read_exact(&mut head)?;
    let length = timestone_wire::frame_length(&head)
        .ok()
        .flatten()
        .ok_or_else(|| Attempt::Refused("it does not speak the native protocol".to_owned()))?;
    let mut bytes = vec![0; length];
    bytes[..4].copy_from_slice(&head);
    stream.read_exact(&mut bytes[4..])?;
    Ok(bytes)
}

fn parse<'a, M: Message<'a>, T>(bytes: &'a [u8], read: impl FnOnce(M) -> Result<T, String>) -> Result<T, Attempt> {
    let frame = Frame::parse(bytes).map_err(|error| Attempt::Refused(error.to_string()))?;
    if let Ok(refused) = ErrorReply::decode(&frame) {
        return Err(Attempt::Refused(refused.to_string()));
    }
    let message = M::decode(&frame).map_err(|error| Attempt::Refused(error.to_string()))?;
    read(message).map_err(Attempt::Refused)
}
