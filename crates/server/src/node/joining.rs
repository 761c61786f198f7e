//! How a process registers with a master in another process, without I/O: frames out, frames in.
//!
//! ```text
//!   Hello ──►   ◄── Welcome      NodeStatus ──►   ◄── StatusList (where a name is expected)      FetchControl ──►   ◄── Control (may it join, and in which run?)      RegisterServer ──►   ◄── Server{id, shards, map}      FetchControl ──►   ◄── Control (where shards have several copies)      RegisterClient ──►   ◄── Clients
//! ```

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use timestone_cluster::{
    ClientIdBlock, ControlState, DirectoryId, MasterAnswer, MasterCommand, ReplicationFactor, Run,
    ServerAddresses, ServerId,
};
use timestone_types::{ClientId, ClusterId, HashSeed};
use timestone_wire::{
    Envelope, ErrorReply, Frame, Hello, MasterAsk, MasterReply, Message, NodeStatus, Role,
    StatusList, Welcome,
};

use crate::cluster_name::ClusterName;

/// What a process learns when it registers with the master of its cluster.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Its id.
    pub server: ServerId,
    /// The cluster's secret seed of key hashes.
    pub hash_seed: HashSeed,
    /// The shard map, the configurations of its shards, and how many replicas each is to have.
    pub control: ControlState,
    /// Client ids to hand out.
    pub clients: ClientIdBlock,
    /// The cluster's name, if it was asked for (because a name was expected) and there is one.
    pub cluster_name: Option<String>,
}

/// Which run of its data directory a process begins, by what the master knows, durable there; or why
/// it may not join.
type BeginRun = dyn Fn(&ControlState) -> Result<Run, String> + Send + Sync;

/// A process that wants to join a cluster.
#[derive(Clone)]
pub struct Joining {
    cluster: ClusterId,
    /// What says that it is this cluster.
    place: PathBuf,
    wanted: Option<ClusterName>,
    directory: DirectoryId,
    addresses: ServerAddresses,
    shards: u16,
    found: (ClusterId, Option<String>),
    server: Option<(ServerId, HashSeed)>,
    is_replicated: bool,
    control: Option<ControlState>,
    begin_run: Arc<BeginRun>,
    asked: Asked,
}

impl fmt::Debug for Joining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joining").field("asked", &self.asked).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    Hello,
    Status,
    Replication,
    Server,
    Control,
    Clients,
}

/// What to do next.
#[derive(Clone, Debug)]
pub enum JoinStep {
    /// Send these bytes, and hand in the frame that answers them.
    Send(Vec<u8>),
    /// Done.
    Joined(Registration),
}

impl Joining {
    pub(crate) fn new(
        (cluster, place): (ClusterId, PathBuf),
        wanted: Option<ClusterName>,
        directory: DirectoryId,
        addresses: ServerAddresses,
        shards: u16,
        begin_run: impl Fn(&ControlState) -> Result<Run, String> + Send + Sync + 'static,
    ) -> Self {
        let found = (ClusterId::ZERO, None);
        Self {
            cluster,
            place,
            wanted,
            directory,
            addresses,
            shards,
            found,
            server: None,
            is_replicated: false,
            control: None,
            begin_run: Arc::new(begin_run),
            asked: Asked::Nothing,
        }
    }

    /// Begins on a new connection.
    #[must_use]
    pub fn begin(&mut self) -> Vec<u8> {
        self.asked = Asked::Hello;
        let mut out = Vec::new();
        Hello::new(Role::Server, self.cluster, ClientId::ZERO, "timestone-server")
            .encode(&Envelope::default(), &mut out);
        out
    }

    /// Takes the frame that answers what was sent last.
    ///
    /// # Errors
    /// The master refused, in its words.
    pub fn answered(&mut self, bytes: &[u8]) -> Result<JoinStep, String> {
        match self.asked {
            Asked::Nothing => Err("it answered before it was asked".to_owned()),
            Asked::Hello => {
                let welcome = parse::<Welcome<'_>, _>(bytes, |welcome| Ok(welcome.cluster));
                self.found.0 = welcome.map_err(|refused| self.explained(refused))?;
                if self.wanted.is_none() {
                    return Ok(self.ask_for_replication());
                }
                self.asked = Asked::Status;
                let mut out = Vec::new();
                NodeStatus {}.encode(&Envelope::default(), &mut out);
                Ok(JoinStep::Send(out))
            }
            Asked::Status => {
                self.found.1 = parse::<StatusList<'_>, _>(bytes, |list| {
                    let mut entries = list.entries;
                    let entry = entries.find(|(name, _)| *name == super::hello::CLUSTER_NAME);
                    Ok(entry.map(|(_, value)| value.to_owned()))
                })?;
                if let Some(wanted) = &self.wanted
                    && !wanted.means(self.found.0, self.found.1.as_deref())
                {
                    let found = ClusterName::describe(self.found.0, self.found.1.as_deref());
                    let wanted = wanted.as_str();
                    return Err(format!(
                        "--cluster says '{wanted}', and it belongs to cluster {found}; give the \
                         right name, or another --master"
                    ));
                }
                Ok(self.ask_for_replication())
            }
            Asked::Replication => match master_answer(bytes)? {
                MasterAnswer::Control(control) => {
                    let run = (self.begin_run)(&control)?;
                    self.is_replicated = control.replication != ReplicationFactor::ONE;
                    Ok(self.ask_for_shards(run))
                }
                _ => Err(misunderstood()),
            },
            Asked::Server => match master_answer(bytes)? {
                MasterAnswer::Server { server, hash_seed, map, .. } => {
                    self.server = Some((server, hash_seed));
                    if self.is_replicated {
                        self.asked = Asked::Control;
                        return Ok(ask(&MasterCommand::FetchControl));
                    }
                    self.control = Some(ControlState::of_single_copies(map));
                    Ok(self.ask_for_clients())
                }
                _ => Err(misunderstood()),
            },
            Asked::Control => match master_answer(bytes)? {
                MasterAnswer::Control(control) => {
                    self.control = Some(control);
                    Ok(self.ask_for_clients())
                }
                _ => Err(misunderstood()),
            },
            Asked::Clients => {
                let MasterAnswer::Clients(clients) = master_answer(bytes)? else {
                    return Err(misunderstood());
                };
                self.joined(clients).map(JoinStep::Joined)
            }
        }
    }

    fn ask_for_clients(&mut self) -> JoinStep {
        self.asked = Asked::Clients;
        ask(&MasterCommand::RegisterClient { count: crate::limits::CLIENT_BLOCK })
    }

    fn joined(&mut self, clients: ClientIdBlock) -> Result<Registration, String> {
        let (server, hash_seed) = self.server.take().ok_or_else(misunderstood)?;
        let control = self.control.take().ok_or_else(misunderstood)?;
        Ok(Registration { server, hash_seed, control, clients, cluster_name: self.found.1.take() })
    }

    /// A refused greeting, with whence we have the cluster that we greeted as a part of.
    fn explained(&self, refused: String) -> String {
        if self.cluster == ClusterId::ZERO {
            return refused;
        }
        let place = self.place.display();
        format!(
            "{refused}; {place} says that this data directory belongs to cluster {:016x}",
            self.cluster.get()
        )
    }

    /// A process that may not join must not be registered: it would be given replicas.
    fn ask_for_replication(&mut self) -> JoinStep {
        self.asked = Asked::Replication;
        ask(&MasterCommand::FetchControl)
    }

    fn ask_for_shards(&mut self, run: Run) -> JoinStep {
        self.asked = Asked::Server;
        let (cluster, directory, shards_wanted) = (self.cluster, self.directory, self.shards);
        let addresses = self.addresses.clone();
        ask(&MasterCommand::RegisterServer { cluster, directory, run, addresses, shards_wanted })
    }
}

fn misunderstood() -> String {
    "it answered something else than asked".to_owned()
}

fn ask(command: &MasterCommand) -> JoinStep {
    let mut bytes = Vec::new();
    command.encode(&mut bytes);
    let mut out = Vec::new();
    MasterAsk { command: &bytes }.encode(&Envelope::default(), &mut out);
    JoinStep::Send(out)
}

fn master_answer(bytes: &[u8]) -> Result<MasterAnswer, String> {
    parse::<MasterReply<'_>, _>(bytes, |reply| {
        reply.master_answer().map_err(|error| error.to_string())
    })
}

fn parse<'a, M: Message<'a>, T>(
    bytes: &'a [u8],
    read: impl FnOnce(M) -> Result<T, String>,
) -> Result<T, String> {
    let frame = Frame::parse(bytes).map_err(|error| error.to_string())?;
    if let Ok(refused) = ErrorReply::decode(&frame) {
        return Err(refused.to_string());
    }
    let message = M::decode(&frame).map_err(|error| error.to_string())?;
    read(message)
}
