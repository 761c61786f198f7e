//! The embedded master's core: one command in, one answer out, and whether the state must be
//! durable before the answer leaves.
//!
//! ```text
//!   command ─► step ─► MasterStep { answer, persist }
//!                         persist? ─► encode ─► write a new file, sync, rename, sync the folder ─► then send the answer
//!                         no       ─► send the answer at once
//! ```
//! Invariants:
//! - a client id leaves only when a durable state reserves it, and after a restart nothing below
//!   the reservation leaves again;
//! - keyspace ids and server numbers are never used twice, also not after a drop;
//! - the map's version rises with every change of the map, a shard's epoch with every change of its
//!   primary;
//! - a refused command changes nothing.
//!
//! Source: docs/protocol/membership.md, "The master". What is deliberately absent: file I/O, time,
//! who is allowed to ask.

use timestone_types::{ClientId, ClusterId, Epoch, HashSeed, KeyspaceId, ShardId};

use crate::limits::{
    CLIENT_ID_BLOCK, MAX_CLIENT_ID, MAX_CLIENT_IDS_PER_COMMAND, MAX_KEYSPACES, MAX_SERVERS,
};
use crate::state::MasterState;
use crate::{
    ClientIdBlock, ClusterError, DirectoryId, Keyspace, KeyspaceName, KeyspaceOptions,
    MasterAnswer, MasterCommand, ServerAddresses, ServerId, ServerInfo, ShardMap, StoreKind,
};

/// What came of one command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MasterStep {
    /// The answer.
    pub answer: MasterAnswer,
    /// Whether the state changed: it must be durable before the answer leaves.
    pub persist: bool,
}

/// The embedded master of one cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Master {
    state: MasterState,
    /// The next client id to hand out; reserved while below `state.clients_reserved_to`.
    next_client: u32,
}

impl Master {
    /// A new cluster of `shards` shards that no server has taken yet, with the seed of key hashes
    /// that all its servers will use. Persist it before use.
    ///
    /// # Errors
    /// [`ClusterError::Limit`] when `shards` is 0 or above [`crate::limits::MAX_SHARDS`].
    pub fn create(
        cluster: ClusterId,
        shards: u16,
        hash_seed: HashSeed,
    ) -> Result<Self, ClusterError> {
        let state = MasterState {
            map: ShardMap::even(cluster, shards)?,
            hash_seed,
            next_server: ServerId::new(1),
            clients_reserved_to: 1,
            next_keyspace: KeyspaceId::new(KeyspaceId::DEFAULT.get() + 1),
            keyspaces: vec![Keyspace::default_keyspace()],
        };
        Ok(Self { next_client: state.clients_reserved_to, state })
    }

    /// Goes on from durable state. Client ids that the last incarnation reserved are skipped: some
    /// of them were handed out.
    ///
    /// # Errors
    /// [`ClusterError::Format`], [`ClusterError::Checksum`] or [`ClusterError::Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, ClusterError> {
        let state = MasterState::decode(bytes)?;
        Ok(Self { next_client: state.clients_reserved_to, state })
    }

    /// Appends the durable state: magic, format, body, CRC. Replace the old bytes by it atomically.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.state.encode(out);
    }

    /// The cluster's id.
    #[must_use]
    pub const fn cluster(&self) -> ClusterId {
        self.state.map.cluster()
    }

    /// The current map.
    #[must_use]
    pub const fn map(&self) -> &ShardMap {
        &self.state.map
    }

    /// The keyspaces that exist, by ascending id.
    #[must_use]
    pub fn keyspaces(&self) -> &[Keyspace] {
        &self.state.keyspaces
    }

    /// A keyspace by its name.
    #[must_use]
    pub fn keyspace(&self, name: &str) -> Option<&Keyspace> {
        self.state.keyspaces.iter().find(|keyspace| keyspace.name.as_str() == name)
    }

    /// Executes one command.
    ///
    /// # Errors
    /// Why the command is refused; nothing has changed then.
    pub fn step(&mut self, command: MasterCommand) -> Result<MasterStep, ClusterError> {
        let before = (self.next_client, self.state.next_keyspace, self.state.next_server);
        let done = match command {
            MasterCommand::RegisterClient { count } => self.register_client(count),
            MasterCommand::RegisterServer { cluster, directory, addresses, shards_wanted } => {
                self.register_server(cluster, directory, addresses, shards_wanted)
            }
            MasterCommand::FetchMap => Ok(unchanged(MasterAnswer::Map(self.state.map.clone()))),
            MasterCommand::CreateKeyspace { name, options } => self.create_keyspace(name, options),
            MasterCommand::ListKeyspaces => {
                Ok(unchanged(MasterAnswer::Keyspaces(self.state.keyspaces.clone())))
            }
            MasterCommand::DropKeyspace { name } => self.drop_keyspace(&name),
        };
        let after = (self.next_client, self.state.next_keyspace, self.state.next_server);
        assert!(
            after.0 >= before.0 && after.1 >= before.1 && after.2 >= before.2,
            "numbers are given out once"
        );
        assert!(done.is_ok() || after == before, "a refused command changes nothing");
        self.assert_sound();
        done
    }

    /// What holds between commands.
    fn assert_sound(&self) {
        assert!(
            self.next_client <= self.state.clients_reserved_to,
            "a client id leaves only when it is reserved"
        );
        assert!(self.state.check() == Ok(()), "what is written can be read again");
    }

    fn register_client(&mut self, count: u32) -> Result<MasterStep, ClusterError> {
        if count == 0 || count > MAX_CLIENT_IDS_PER_COMMAND {
            return Err(ClusterError::Limit {
                what: "client ids in one request (at least 1)",
                asked: u64::from(count),
                limit: u64::from(MAX_CLIENT_IDS_PER_COMMAND),
            });
        }
        let end = MAX_CLIENT_ID.get() + 1;
        let left = end - self.next_client;
        if count > left {
            return Err(ClusterError::Limit {
                what: "client ids of this cluster's lifetime that are left",
                asked: u64::from(count),
                limit: u64::from(left),
            });
        }
        let block = ClientIdBlock { first: ClientId::new(self.next_client), count };
        self.next_client += count;
        let persist = self.next_client > self.state.clients_reserved_to;
        if persist {
            self.state.clients_reserved_to =
                self.next_client.saturating_add(CLIENT_ID_BLOCK).min(end);
        }
        assert!(
            self.next_client <= self.state.clients_reserved_to,
            "ids leave only from the reservation"
        );
        Ok(MasterStep { answer: MasterAnswer::Clients(block), persist })
    }

    fn register_server(
        &mut self,
        cluster: ClusterId,
        directory: DirectoryId,
        addresses: ServerAddresses,
        shards_wanted: u16,
    ) -> Result<MasterStep, ClusterError> {
        if cluster != ClusterId::ZERO && cluster != self.cluster() {
            return Err(ClusterError::WrongCluster {
                ours: self.cluster().get(),
                theirs: cluster.get(),
            });
        }
        let (mut servers, mut shards) = self.state.map.clone().into_parts();
        let known = servers.iter().position(|server| server.directory == directory);
        let mut changed = false;
        let id = match known {
            Some(index) => {
                changed |= servers[index].addresses != addresses;
                servers[index].addresses = addresses;
                servers[index].id
            }
            None if servers.len() >= MAX_SERVERS => {
                return Err(ClusterError::Limit {
                    what: "servers of a cluster",
                    asked: servers.len() as u64 + 1,
                    limit: MAX_SERVERS as u64,
                });
            }
            None => {
                changed = true;
                servers.push(ServerInfo { id: self.state.next_server, directory, addresses });
                self.state.next_server
            }
        };
        let has = shards.iter().filter(|shard| shard.primary == id).count();
        let free = shards.iter_mut().filter(|shard| shard.primary.is_none());
        for shard in free.take(usize::from(shards_wanted).saturating_sub(has)) {
            shard.primary = id;
            shard.replicas = vec![id];
            shard.epoch = Epoch::new(shard.epoch.get() + 1);
            changed = true;
        }
        if changed {
            self.state.map =
                ShardMap::new(self.cluster(), self.state.map.version().next(), servers, shards)?;
        }
        if known.is_none() {
            self.state.next_server = ServerId::new(id.get() + 1);
        }
        let map = self.state.map.clone();
        let owned: Vec<ShardId> = map.owned_by(id).map(|shard| shard.id).collect();
        assert!(owned.len() >= has, "a server that comes again keeps its shards");
        let hash_seed = self.state.hash_seed;
        Ok(MasterStep {
            answer: MasterAnswer::Server { server: id, hash_seed, shards: owned, map },
            persist: changed,
        })
    }

    fn create_keyspace(
        &mut self,
        name: KeyspaceName,
        options: KeyspaceOptions,
    ) -> Result<MasterStep, ClusterError> {
        options.check_served()?;
        if self.keyspace(name.as_str()).is_some() {
            return Err(ClusterError::KeyspaceExists { name: name.to_string() });
        }
        if self.state.keyspaces.len() >= MAX_KEYSPACES {
            return Err(ClusterError::Limit {
                what: "keyspaces of a cluster",
                asked: self.state.keyspaces.len() as u64 + 1,
                limit: MAX_KEYSPACES as u64,
            });
        }
        let number = self.state.next_keyspace.get();
        if number >= KeyspaceId::MAX_NUMBER {
            return Err(ClusterError::Limit {
                what: "keyspace ids of this cluster's lifetime",
                asked: u64::from(number) + 1,
                limit: u64::from(KeyspaceId::MAX_NUMBER),
            });
        }
        let id = KeyspaceId::numbered(number, options.store == StoreKind::Dram);
        self.state.next_keyspace = KeyspaceId::new(number + 1);
        let keyspace = Keyspace { id, name, options };
        assert!(self.state.keyspaces.iter().all(|one| one.id != id), "an id is given out once");
        self.state.keyspaces.push(keyspace.clone());
        Ok(MasterStep { answer: MasterAnswer::Created(keyspace), persist: true })
    }

    fn drop_keyspace(&mut self, name: &KeyspaceName) -> Result<MasterStep, ClusterError> {
        if name.as_str() == KeyspaceName::DEFAULT {
            return Err(ClusterError::KeyspacePermanent);
        }
        let Some(index) = self.state.keyspaces.iter().position(|keyspace| keyspace.name == *name)
        else {
            return Err(ClusterError::KeyspaceUnknown { name: name.to_string() });
        };
        let dropped = self.state.keyspaces.remove(index);
        assert!(self.keyspace(name.as_str()).is_none(), "a name is that of one keyspace");
        Ok(MasterStep { answer: MasterAnswer::Dropped { id: dropped.id }, persist: true })
    }
}

const fn unchanged(answer: MasterAnswer) -> MasterStep {
    MasterStep { answer, persist: false }
}
