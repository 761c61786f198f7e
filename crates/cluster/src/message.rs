//! The master's interface: commands and answers, the same for the embedded master and for one on
//! etcd.
//!
//! They travel inside `wire`'s master frames; their bytes are a kind byte and the fields in order
//! (docs/formats/cluster.md).

use timestone_types::{ClientId, ClusterId, Epoch, HashSeed, KeyspaceId, ShardId};

use crate::codec::{Cursor, put_count, put_u8, put_u16, put_u32, put_u64};
use crate::limits::{MAX_ENCODED_BYTES, MAX_KEYSPACES, MAX_REPLICAS, MAX_SERVERS, MAX_SHARDS};
use crate::map::{decode_shard, encode_shard};
use crate::{
    ClusterError, DirectoryId, Keyspace, KeyspaceName, KeyspaceOptions, NormalConfiguration,
    ReplicationFactor, Run, ServerAddresses, ServerId, ShardChange, ShardEntry, ShardMap, Term,
};

/// What the master is asked to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MasterCommand {
    /// Hand out `count` client ids that were never handed out before (1 to
    /// [`crate::limits::MAX_CLIENT_IDS_PER_COMMAND`]).
    RegisterClient {
        /// How many.
        count: u32,
    },
    /// A server starts, for the first time or again: a run of its data directory begins. Repeating
    /// it changes nothing but the addresses.
    RegisterServer {
        /// The cluster its data directory belongs to; [`ClusterId::ZERO`] for a new directory.
        cluster: ClusterId,
        /// Its data directory.
        directory: DirectoryId,
        /// The run that begins, durable in the directory; see [`Run::next`]. One that does not lie
        /// above the last one is refused: the directory is an older copy, or there are two.
        run: Run,
        /// Where it is reached from now on.
        addresses: ServerAddresses,
        /// Of how many shards it wants to be primary, those it has included; it gets them as far as
        /// shards are free. Where shards have several replicas nobody asks for a number of them:
        /// all are given out evenly, once there are enough servers.
        shards_wanted: u16,
    },
    /// The run of a server's data directory that has begun goes on under a higher number, which is
    /// durable in the directory.
    RaiseRun {
        /// The server.
        server: ServerId,
        /// The number, with the run's tag.
        run: Run,
    },
    /// Give the current map.
    FetchMap,
    /// Create a keyspace.
    CreateKeyspace {
        /// Its name.
        name: KeyspaceName,
        /// Its options.
        options: KeyspaceOptions,
    },
    /// List the keyspaces that exist.
    ListKeyspaces,
    /// Drop a keyspace. Whoever asks has fenced its data at every shard first, or does so after:
    /// its id is never used again.
    DropKeyspace {
        /// Its name.
        name: KeyspaceName,
    },
    /// Change a shard's primary or its replicas, if it still has the expected epoch; the next epoch
    /// is one higher. Its primary may ask for a new epoch of the same configuration in
    /// [`Term::ZERO`]; every other change carries the current controller's term.
    ChangeShard {
        /// The term of the controller that asks.
        term: Term,
        /// What is to become of the shard.
        change: ShardChange,
    },
    /// A shard's primary serves in this epoch: the configuration is normal from now on.
    ConfirmShard {
        /// The term of the controller that heard it.
        term: Term,
        /// The shard.
        shard: ShardId,
        /// The epoch in which it serves.
        epoch: Epoch,
    },
    /// Give what a controller has to know.
    FetchControl,
    /// Begin the next term, if `expected` is still the current one. Whoever asks holds the
    /// controller's lease.
    BeginTerm {
        /// The controller of the next term.
        controller: ServerId,
        /// The current term, as far as whoever asks knows.
        expected: Term,
    },
    /// The state comes from a backup: nothing is served until every server that it knows has told
    /// what it has seen. Repeating it changes nothing.
    BeginRestored,
    /// A server tells the latest state that it has seen. Its bytes are those of the master's state.
    TellSeen {
        /// The server.
        server: ServerId,
        /// The state; empty if it has seen none.
        state: Vec<u8>,
    },
    /// Do not wait for a server that is lost for ever, after a restore.
    ForgetServer {
        /// The server.
        server: ServerId,
    },
}

/// A run of client ids, handed out together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientIdBlock {
    /// The first.
    pub first: ClientId,
    /// How many, at least 1.
    pub count: u32,
}

impl ClientIdBlock {
    /// The ids, ascending.
    pub fn iter(self) -> impl Iterator<Item = ClientId> {
        let first = self.first.get();
        (0..self.count).map(move |index| ClientId::new(first + index))
    }
}

/// What the master answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MasterAnswer {
    /// To [`MasterCommand::RegisterClient`].
    Clients(ClientIdBlock),
    /// To [`MasterCommand::RegisterServer`].
    Server {
        /// The server's id.
        server: ServerId,
        /// The cluster's secret seed of key hashes.
        hash_seed: HashSeed,
        /// The shards it is primary of, ascending.
        shards: Vec<ShardId>,
        /// The map with the server in it.
        map: ShardMap,
    },
    /// To [`MasterCommand::FetchMap`].
    Map(ShardMap),
    /// To [`MasterCommand::CreateKeyspace`].
    Created(Keyspace),
    /// To [`MasterCommand::ListKeyspaces`], by ascending id.
    Keyspaces(Vec<Keyspace>),
    /// To [`MasterCommand::DropKeyspace`].
    Dropped {
        /// The id that will not be used again, so that its data can be fenced.
        id: KeyspaceId,
    },
    /// To [`MasterCommand::ChangeShard`] and [`MasterCommand::ConfirmShard`]: done.
    Changed(ShardEntry),
    /// To the same: the shard has another epoch, and nothing was changed.
    Conflict(ShardEntry),
    /// To [`MasterCommand::FetchControl`].
    Control(ControlState),
    /// To [`MasterCommand::BeginTerm`]: the current term and its controller, whoever that is.
    Term {
        /// The term.
        term: Term,
        /// Its controller.
        controller: ServerId,
    },
    /// To [`MasterCommand::BeginRestored`], [`MasterCommand::TellSeen`] and
    /// [`MasterCommand::ForgetServer`]: who is still waited for, ascending.
    Awaited(Vec<ServerId>),
    /// To [`MasterCommand::RaiseRun`].
    Raised,
}

/// What a controller has to know of its cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlState {
    /// How many replicas each shard is to have.
    pub replication: ReplicationFactor,
    /// The term of the last controller that was elected.
    pub term: Term,
    /// The last normal configuration of each shard, in the order of the map's shards.
    pub normal: Vec<NormalConfiguration>,
    /// The last run of each server's data directory, in the order of the map's servers.
    pub runs: Vec<Run>,
    /// The map.
    pub map: ShardMap,
}

impl ControlState {
    /// Of a cluster that keeps one copy of each shard: what a shard has acknowledged lies there, and
    /// nobody controls it.
    #[must_use]
    pub fn of_single_copies(map: ShardMap) -> Self {
        let normal = map.shards().iter().map(NormalConfiguration::of_entry).collect();
        let runs = vec![Run::NONE; map.servers().len()];
        Self { replication: ReplicationFactor::ONE, term: Term::ZERO, normal, runs, map }
    }

    /// The last run of a data directory, as far as the master knows.
    #[must_use]
    pub fn last_run(&self, directory: DirectoryId) -> Run {
        let mut servers = self.map.servers().iter().zip(&self.runs);
        let found = servers.find(|(server, _)| server.directory == directory);
        found.map_or(Run::NONE, |(_, run)| *run)
    }
}

impl MasterCommand {
    /// Appends the command's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::RegisterClient { count } => {
                put_u8(out, 1);
                put_u32(out, *count);
            }
            Self::RegisterServer { cluster, directory, run, addresses, shards_wanted } => {
                put_u8(out, 2);
                put_u64(out, cluster.get());
                put_u64(out, directory.0);
                run.encode(out);
                put_u16(out, *shards_wanted);
                addresses.encode(out);
            }
            Self::FetchMap => put_u8(out, 3),
            Self::CreateKeyspace { name, options } => {
                put_u8(out, 4);
                name.encode(out);
                options.encode(out);
            }
            Self::ListKeyspaces => put_u8(out, 5),
            Self::DropKeyspace { name } => {
                put_u8(out, 6);
                name.encode(out);
            }
            Self::ChangeShard { term, change } => {
                put_u8(out, 7);
                put_u64(out, term.get());
                put_u16(out, change.shard.get());
                put_u32(out, change.expected.get());
                put_u32(out, change.primary.get());
                put_servers(out, &change.replicas);
            }
            Self::ConfirmShard { term, shard, epoch } => {
                put_u8(out, 8);
                put_u64(out, term.get());
                put_u16(out, shard.get());
                put_u32(out, epoch.get());
            }
            Self::FetchControl => put_u8(out, 9),
            Self::BeginTerm { controller, expected } => {
                put_u8(out, 10);
                put_u32(out, controller.get());
                put_u64(out, expected.get());
            }
            Self::BeginRestored => put_u8(out, 11),
            Self::TellSeen { server, state } => {
                put_u8(out, 12);
                put_u32(out, server.get());
                put_count(out, state.len());
                out.extend_from_slice(state);
            }
            Self::ForgetServer { server } => {
                put_u8(out, 13);
                put_u32(out, server.get());
            }
            Self::RaiseRun { server, run } => {
                put_u8(out, 14);
                put_u32(out, server.get());
                run.encode(out);
            }
        }
    }

    /// Whether it changes who serves what, which is a controller's or an operator's business.
    #[must_use]
    pub const fn is_of_controllers(&self) -> bool {
        matches!(
            self,
            Self::ChangeShard { .. }
                | Self::ConfirmShard { .. }
                | Self::BeginTerm { .. }
                | Self::BeginRestored
                | Self::TellSeen { .. }
                | Self::ForgetServer { .. }
        )
    }

    /// Reads what [`MasterCommand::encode`] wrote.
    ///
    /// # Errors
    /// [`ClusterError::Malformed`] for bytes that do not follow the layout; a name or address that
    /// is not one.
    pub fn decode(bytes: &[u8]) -> Result<Self, ClusterError> {
        let mut cursor = Cursor::new("a command to the master", bytes);
        let command = match cursor.u8()? {
            1 => Self::RegisterClient { count: cursor.u32()? },
            2 => Self::RegisterServer {
                cluster: ClusterId::new(cursor.u64()?),
                directory: DirectoryId(cursor.u64()?),
                run: Run::decode(&mut cursor)?,
                shards_wanted: cursor.u16()?,
                addresses: ServerAddresses::decode(&mut cursor)?,
            },
            3 => Self::FetchMap,
            4 => Self::CreateKeyspace {
                name: KeyspaceName::decode(&mut cursor)?,
                options: KeyspaceOptions::decode(&mut cursor)?,
            },
            5 => Self::ListKeyspaces,
            6 => Self::DropKeyspace { name: KeyspaceName::decode(&mut cursor)? },
            7 => Self::ChangeShard {
                term: Term::new(cursor.u64()?),
                change: ShardChange {
                    shard: ShardId::new(cursor.u16()?),
                    expected: Epoch::new(cursor.u32()?),
                    primary: ServerId::new(cursor.u32()?),
                    replicas: decode_servers(&mut cursor, MAX_REPLICAS)?,
                },
            },
            8 => Self::ConfirmShard {
                term: Term::new(cursor.u64()?),
                shard: ShardId::new(cursor.u16()?),
                epoch: Epoch::new(cursor.u32()?),
            },
            9 => Self::FetchControl,
            10 => Self::BeginTerm {
                controller: ServerId::new(cursor.u32()?),
                expected: Term::new(cursor.u64()?),
            },
            11 => Self::BeginRestored,
            12 => {
                let server = ServerId::new(cursor.u32()?);
                let bytes = cursor.count(MAX_ENCODED_BYTES, 1)?;
                Self::TellSeen { server, state: cursor.bytes(bytes)?.to_vec() }
            }
            13 => Self::ForgetServer { server: ServerId::new(cursor.u32()?) },
            14 => Self::RaiseRun {
                server: ServerId::new(cursor.u32()?),
                run: Run::decode(&mut cursor)?,
            },
            _ => return Err(cursor.fail("its kind is unknown")),
        };
        cursor.finish()?;
        Ok(command)
    }
}

impl MasterAnswer {
    /// Appends the answer's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Clients(block) => {
                put_u8(out, 1);
                put_u32(out, block.first.get());
                put_u32(out, block.count);
            }
            Self::Server { server, hash_seed, shards, map } => {
                put_u8(out, 2);
                put_u32(out, server.get());
                put_u64(out, hash_seed.0);
                put_count(out, shards.len());
                for shard in shards {
                    put_u16(out, shard.get());
                }
                map.encode(out);
            }
            Self::Map(map) => {
                put_u8(out, 3);
                map.encode(out);
            }
            Self::Created(keyspace) => {
                put_u8(out, 4);
                keyspace.encode(out);
            }
            Self::Keyspaces(keyspaces) => {
                put_u8(out, 5);
                put_count(out, keyspaces.len());
                for keyspace in keyspaces {
                    keyspace.encode(out);
                }
            }
            Self::Dropped { id } => {
                put_u8(out, 6);
                put_u32(out, id.get());
            }
            Self::Changed(entry) => {
                put_u8(out, 7);
                encode_shard(entry, out);
            }
            Self::Conflict(entry) => {
                put_u8(out, 8);
                encode_shard(entry, out);
            }
            Self::Control(control) => {
                put_u8(out, 9);
                put_u8(out, control.replication.get());
                put_u64(out, control.term.get());
                put_count(out, control.normal.len());
                for normal in &control.normal {
                    encode_normal(normal, out);
                }
                encode_runs(&control.runs, out);
                control.map.encode(out);
            }
            Self::Term { term, controller } => {
                put_u8(out, 10);
                put_u64(out, term.get());
                put_u32(out, controller.get());
            }
            Self::Awaited(servers) => {
                put_u8(out, 11);
                put_servers(out, servers);
            }
            Self::Raised => put_u8(out, 12),
        }
    }

    /// Reads what [`MasterAnswer::encode`] wrote.
    ///
    /// # Errors
    /// [`ClusterError::Malformed`] for bytes that do not follow the layout; a map that
    /// [`ShardMap::new`] refuses.
    pub fn decode(bytes: &[u8]) -> Result<Self, ClusterError> {
        let mut cursor = Cursor::new("an answer of the master", bytes);
        let answer = match cursor.u8()? {
            1 => Self::Clients(decode_block(&mut cursor)?),
            2 => {
                let server = ServerId::new(cursor.u32()?);
                let hash_seed = HashSeed(cursor.u64()?);
                let mut shards = Vec::new();
                for _ in 0..cursor.count(usize::from(MAX_SHARDS), 2)? {
                    shards.push(ShardId::new(cursor.u16()?));
                }
                Self::Server {
                    server,
                    hash_seed,
                    shards,
                    map: ShardMap::decode(cursor.remainder())?,
                }
            }
            3 => Self::Map(ShardMap::decode(cursor.remainder())?),
            4 => Self::Created(Keyspace::decode(&mut cursor)?),
            5 => {
                let mut keyspaces = Vec::new();
                for _ in 0..cursor.count(MAX_KEYSPACES, Keyspace::MIN_BYTES)? {
                    keyspaces.push(Keyspace::decode(&mut cursor)?);
                }
                Self::Keyspaces(keyspaces)
            }
            6 => Self::Dropped { id: KeyspaceId::new(cursor.u32()?) },
            7 => Self::Changed(decode_shard(&mut cursor)?),
            8 => Self::Conflict(decode_shard(&mut cursor)?),
            9 => Self::Control(decode_control(&mut cursor)?),
            10 => Self::Term {
                term: Term::new(cursor.u64()?),
                controller: ServerId::new(cursor.u32()?),
            },
            11 => Self::Awaited(decode_servers(&mut cursor, MAX_SERVERS)?),
            12 => Self::Raised,
            _ => return Err(cursor.fail("its kind is unknown")),
        };
        cursor.finish()?;
        Ok(answer)
    }
}

fn decode_control(cursor: &mut Cursor<'_>) -> Result<ControlState, ClusterError> {
    let replication = ReplicationFactor::new(cursor.u8()?)?;
    let term = Term::new(cursor.u64()?);
    let mut normal = Vec::new();
    for _ in 0..cursor.count(usize::from(MAX_SHARDS), 8)? {
        normal.push(decode_normal(cursor)?);
    }
    let runs = decode_runs(cursor)?;
    let map = ShardMap::decode(cursor.remainder())?;
    if normal.len() != map.shards().len() {
        return Err(cursor.fail("it does not have one normal configuration for each shard"));
    }
    if runs.len() != map.servers().len() {
        return Err(cursor.fail("it does not have one run for each server"));
    }
    Ok(ControlState { replication, term, normal, runs, map })
}

pub(crate) fn encode_runs(runs: &[Run], out: &mut Vec<u8>) {
    put_count(out, runs.len());
    runs.iter().for_each(|run| run.encode(out));
}

pub(crate) fn decode_runs(cursor: &mut Cursor<'_>) -> Result<Vec<Run>, ClusterError> {
    let count = cursor.count(MAX_SERVERS, Run::BYTES)?;
    (0..count).map(|_| Run::decode(cursor)).collect()
}

pub(crate) fn encode_normal(normal: &NormalConfiguration, out: &mut Vec<u8>) {
    put_u32(out, normal.epoch.get());
    put_servers(out, &normal.replicas);
}

pub(crate) fn decode_normal(cursor: &mut Cursor<'_>) -> Result<NormalConfiguration, ClusterError> {
    let epoch = Epoch::new(cursor.u32()?);
    Ok(NormalConfiguration { epoch, replicas: decode_servers(cursor, MAX_REPLICAS)? })
}

fn put_servers(out: &mut Vec<u8>, servers: &[ServerId]) {
    put_count(out, servers.len());
    for server in servers {
        put_u32(out, server.get());
    }
}

fn decode_servers(cursor: &mut Cursor<'_>, limit: usize) -> Result<Vec<ServerId>, ClusterError> {
    let count = cursor.count(limit, 4)?;
    (0..count).map(|_| cursor.u32().map(ServerId::new)).collect()
}

fn decode_block(cursor: &mut Cursor<'_>) -> Result<ClientIdBlock, ClusterError> {
    let block = ClientIdBlock { first: ClientId::new(cursor.u32()?), count: cursor.u32()? };
    if block.count == 0
        || block.first == ClientId::ZERO
        || block.first.get().checked_add(block.count).is_none()
    {
        return Err(cursor.fail("its client ids are out of bounds"));
    }
    Ok(block)
}
