//! The master's interface: commands and answers, the same for the embedded master and for one on
//! etcd.
//!
//! They travel inside `wire`'s master frames; their bytes are a kind byte and the fields in order
//! (docs/formats/cluster.md).

use timestone_types::{ClientId, ClusterId, HashSeed, KeyspaceId, ShardId};

use crate::codec::{Cursor, put_count, put_u8, put_u16, put_u32, put_u64};
use crate::limits::{MAX_KEYSPACES, MAX_SHARDS};
use crate::{
    ClusterError, DirectoryId, Keyspace, KeyspaceName, KeyspaceOptions, ServerAddresses, ServerId,
    ShardMap,
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
    /// A server starts, for the first time or again. Repeating it changes nothing but the
    /// addresses.
    RegisterServer {
        /// The cluster its data directory belongs to; [`ClusterId::ZERO`] for a new directory.
        cluster: ClusterId,
        /// Its data directory.
        directory: DirectoryId,
        /// Where it is reached from now on.
        addresses: ServerAddresses,
        /// Of how many shards it wants to be primary, those it has included; it gets them as far as
        /// shards are free.
        shards_wanted: u16,
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
}

impl MasterCommand {
    /// Appends the command's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::RegisterClient { count } => {
                put_u8(out, 1);
                put_u32(out, *count);
            }
            Self::RegisterServer { cluster, directory, addresses, shards_wanted } => {
                put_u8(out, 2);
                put_u64(out, cluster.get());
                put_u64(out, directory.0);
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
        }
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
            _ => return Err(cursor.fail("its kind is unknown")),
        };
        cursor.finish()?;
        Ok(answer)
    }
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
