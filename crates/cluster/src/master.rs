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
//! - the map's version rises with every change of the map, a shard's epoch by one with every change
//!   of its primary or its replicas;
//! - a change of a shard counts only if the shard has the epoch, and the cluster the term, that
//!   whoever asks believes it to have;
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
    ClientIdBlock, ClusterError, ControlState, DirectoryId, IndexKind, Keyspace, KeyspaceName,
    KeyspaceOptions, MasterAnswer, MasterCommand, NormalConfiguration, ReplicationFactor, Run,
    ServerAddresses, ServerId, ServerInfo, ShardChange, ShardMap, Term, assign, restored,
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
    /// A new cluster of `shards` shards of one copy each that no server has taken yet, with the
    /// seed of key hashes that all its servers will use. Persist it before use.
    ///
    /// # Errors
    /// [`ClusterError::Limit`] when `shards` is 0 or above [`crate::limits::MAX_SHARDS`].
    pub fn create(
        cluster: ClusterId,
        shards: u16,
        hash_seed: HashSeed,
    ) -> Result<Self, ClusterError> {
        Self::create_replicated(cluster, shards, ReplicationFactor::ONE, hash_seed)
    }

    /// The same with several copies of each shard, as soon as there are servers enough.
    ///
    /// # Errors
    /// As [`Master::create`].
    pub fn create_replicated(
        cluster: ClusterId,
        shards: u16,
        replication: ReplicationFactor,
        hash_seed: HashSeed,
    ) -> Result<Self, ClusterError> {
        let state = MasterState::create(cluster, shards, replication, hash_seed)?;
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

    /// Of two states of one cluster's history, the one with the higher number is the later one.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.state.revision
    }

    /// The client ids that are reserved and not handed out: from the first up to the second, which
    /// is not among them.
    #[must_use]
    pub const fn reserved_clients(&self) -> (ClientId, ClientId) {
        (ClientId::new(self.next_client), ClientId::new(self.state.clients_reserved_to))
    }

    /// The last controller that was elected, and its term.
    #[must_use]
    pub const fn controller(&self) -> (Term, ServerId) {
        (self.state.term, self.state.controller)
    }

    /// After a restore: the servers that have not told yet what they have seen, ascending.
    #[must_use]
    pub fn awaited(&self) -> &[ServerId] {
        &self.state.awaited
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

    /// Notes how keys of a keyspace are found since a data directory was converted. Whether that was
    /// another way before.
    ///
    /// # Errors
    /// No such keyspace, or one that cannot have this index.
    pub fn note_index(&mut self, id: KeyspaceId, index: IndexKind) -> Result<bool, ClusterError> {
        let unknown = || ClusterError::KeyspaceUnknown { name: id.to_string() };
        let found = self.state.keyspaces.iter_mut().find(|keyspace| keyspace.id == id);
        let keyspace = found.ok_or_else(unknown)?;
        let options = KeyspaceOptions { index, ..keyspace.options };
        if !options.fit(id) {
            return Err(ClusterError::Unsupported {
                option: "index",
                value: index.name(),
                served: "full or frugal, for keyspaces on flash that were created with one of these",
            });
        }
        if keyspace.options == options {
            return Ok(false);
        }
        keyspace.options = options;
        self.state.revision += 1;
        self.assert_sound();
        Ok(true)
    }

    /// Executes one command.
    ///
    /// # Errors
    /// Why the command is refused; nothing has changed then.
    pub fn step(&mut self, command: MasterCommand) -> Result<MasterStep, ClusterError> {
        let before = (self.next_client, self.state.next_keyspace, self.state.next_server);
        let was_restoring = !self.state.awaited.is_empty();
        let done = match command {
            MasterCommand::BeginRestored => self.restore(restored::begin),
            MasterCommand::TellSeen { server, state } => self.tell_seen(server, &state),
            MasterCommand::ForgetServer { server } => {
                self.restore(|state| restored::forget(state, server))
            }
            _ if !self.state.awaited.is_empty() => Err(self.is_restored()),
            MasterCommand::RegisterClient { count } => self.register_client(count),
            MasterCommand::RegisterServer { cluster, directory, run, addresses, shards_wanted } => {
                self.register_server(cluster, (directory, run), addresses, shards_wanted)
            }
            MasterCommand::RaiseRun { server, run } => self.raise_run(server, run),
            MasterCommand::FetchMap => Ok(unchanged(MasterAnswer::Map(self.state.map.clone()))),
            MasterCommand::CreateKeyspace { name, options } => self.create_keyspace(name, options),
            MasterCommand::ListKeyspaces => {
                Ok(unchanged(MasterAnswer::Keyspaces(self.state.keyspaces.clone())))
            }
            MasterCommand::DropKeyspace { name } => self.drop_keyspace(&name),
            MasterCommand::ChangeShard { term, change } => self.change_shard(term, change),
            MasterCommand::ConfirmShard { term, shard, epoch } => {
                self.confirm_shard(term, shard, epoch)
            }
            MasterCommand::FetchControl => Ok(unchanged(MasterAnswer::Control(self.control()))),
            MasterCommand::BeginTerm { controller, expected } => {
                self.begin_term(controller, expected)
            }
        };
        // On the way back from a backup the number tells how late the latest state is that was told.
        let is_restoring = (was_restoring || !self.state.awaited.is_empty())
            && !timestone_types::is_planted!(CountsWayBack);
        if matches!(done, Ok(MasterStep { persist: true, .. })) && !is_restoring {
            self.state.revision += 1;
        }
        let after = (self.next_client, self.state.next_keyspace, self.state.next_server);
        assert!(
            after.0 >= before.0 && after.1 >= before.1 && after.2 >= before.2,
            "numbers are given out once"
        );
        assert!(done.is_ok() || after == before, "a refused command changes nothing");
        self.assert_reserved();
        // What changes is persisted: other commands leave what was checked before.
        if matches!(done, Ok(MasterStep { persist: true, .. })) {
            self.assert_sound();
        }
        done
    }

    fn assert_reserved(&self) {
        assert!(
            self.next_client <= self.state.clients_reserved_to,
            "a client id leaves only when it is reserved"
        );
    }

    /// What holds between commands. It takes as long as the cluster is large.
    fn assert_sound(&self) {
        self.assert_reserved();
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
        (directory, run): (DirectoryId, Run),
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
        let (mut normal, mut runs) = (self.state.normal.clone(), self.state.runs.clone());
        let known = servers.iter().position(|server| server.directory == directory);
        let mut changed = false;
        let id = match known {
            Some(index) if !run.may_begin(runs[index]) => {
                return Err(ClusterError::StaleRun { asked: run, known: runs[index] });
            }
            Some(index) => {
                runs[index] = run;
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
                // Its number is the highest: it is the last of the map's servers.
                runs.push(run);
                servers.push(ServerInfo { id: self.state.next_server, directory, addresses });
                self.state.next_server
            }
        };
        let has = shards.iter().filter(|shard| shard.primary == id).count();
        let wanted = usize::from(shards_wanted);
        let factor = self.state.replication;
        changed |= match factor {
            ReplicationFactor::ONE => assign::take_free(&mut shards, &mut normal, id, wanted) > 0,
            _ => assign::give_sets(&mut shards, &mut normal, &servers, factor) > 0,
        };
        if changed {
            self.state.map =
                ShardMap::new(self.cluster(), self.state.map.version().next(), servers, shards)?;
            self.state.normal = normal;
        }
        let persist = changed || runs != self.state.runs;
        self.state.runs = runs;
        if known.is_none() {
            self.state.next_server = ServerId::new(id.get() + 1);
        }
        let map = self.state.map.clone();
        let owned: Vec<ShardId> = map.owned_by(id).map(|shard| shard.id).collect();
        assert!(owned.len() >= has, "a server that comes again keeps its shards");
        let hash_seed = self.state.hash_seed;
        Ok(MasterStep {
            answer: MasterAnswer::Server { server: id, hash_seed, shards: owned, map },
            persist,
        })
    }

    fn raise_run(&mut self, server: ServerId, run: Run) -> Result<MasterStep, ClusterError> {
        let servers = self.state.map.servers();
        let index = servers.binary_search_by_key(&server, |server| server.id);
        let index = index.map_err(|_| ClusterError::ServerUnknown(server))?;
        let known = self.state.runs[index];
        if !run.may_begin(known) {
            return Err(ClusterError::StaleRun { asked: run, known });
        }
        self.state.runs[index] = run;
        Ok(MasterStep { answer: MasterAnswer::Raised, persist: run != known })
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
        let id = options.id(number)?;
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

    fn check_term(&self, asked: Term) -> Result<(), ClusterError> {
        let current = self.state.term;
        if asked == current && asked != Term::ZERO {
            return Ok(());
        }
        Err(ClusterError::StaleTerm { asked, current })
    }

    fn change_shard(
        &mut self,
        term: Term,
        change: ShardChange,
    ) -> Result<MasterStep, ClusterError> {
        let (index, entry) = self.state.shard(change.shard)?;
        let is_new_epoch_alone = term == Term::ZERO
            && change.primary == entry.primary
            && change.replicas == entry.replicas;
        if !is_new_epoch_alone {
            self.check_term(term)?;
        }
        if entry.epoch != change.expected && !timestone_types::is_planted!(SwapsWithoutComparing) {
            return Ok(unchanged(MasterAnswer::Conflict(entry.clone())));
        }
        let normal = &self.state.normal[index];
        change
            .check(entry, normal, self.state.replication, |server| {
                self.state.map.server(server).is_some()
            })
            .map_err(|reason| ClusterError::BadChange { shard: change.shard, reason })?;
        let (servers, mut shards) = self.state.map.clone().into_parts();
        let changed = &mut shards[index];
        changed.epoch = Epoch::new(changed.epoch.get() + 1);
        changed.primary = change.primary;
        changed.replicas = change.replicas;
        let answer = MasterAnswer::Changed(changed.clone());
        let version = self.state.map.version().next();
        self.state.map = ShardMap::new(self.cluster(), version, servers, shards)?;
        Ok(MasterStep { answer, persist: true })
    }

    fn confirm_shard(
        &mut self,
        term: Term,
        shard: ShardId,
        epoch: Epoch,
    ) -> Result<MasterStep, ClusterError> {
        let (index, entry) = self.state.shard(shard)?;
        self.check_term(term)?;
        if entry.epoch != epoch {
            return Ok(unchanged(MasterAnswer::Conflict(entry.clone())));
        }
        let normal = NormalConfiguration::of_entry(entry);
        let answer = MasterAnswer::Changed(entry.clone());
        let persist = self.state.normal[index] != normal;
        self.state.normal[index] = normal;
        Ok(MasterStep { answer, persist })
    }

    /// What a controller has to know, as [`MasterCommand::FetchControl`] tells it.
    #[must_use]
    pub fn control(&self) -> ControlState {
        ControlState {
            replication: self.state.replication,
            term: self.state.term,
            normal: self.state.normal.clone(),
            runs: self.state.runs.clone(),
            map: self.state.map.clone(),
        }
    }

    fn begin_term(
        &mut self,
        controller: ServerId,
        expected: Term,
    ) -> Result<MasterStep, ClusterError> {
        if self.state.map.server(controller).is_none() {
            return Err(ClusterError::ServerUnknown(controller));
        }
        let persist = expected == self.state.term;
        if persist {
            (self.state.term, self.state.controller) = (expected.next(), controller);
        }
        let (term, controller) = self.controller();
        Ok(MasterStep { answer: MasterAnswer::Term { term, controller }, persist })
    }

    fn tell_seen(&mut self, server: ServerId, bytes: &[u8]) -> Result<MasterStep, ClusterError> {
        let seen = if bytes.is_empty() { None } else { Some(MasterState::decode(bytes)?) };
        self.restore(|state| restored::tell(state, server, seen))
    }

    /// A step on the way back from a backup. It is done on a copy, because it may fail half-way.
    fn restore(
        &mut self,
        step: impl FnOnce(&mut MasterState) -> Result<bool, ClusterError>,
    ) -> Result<MasterStep, ClusterError> {
        let mut next = self.state.clone();
        let persist = step(&mut next)?;
        next.check().map_err(|reason| ClusterError::malformed("a state that was seen", reason))?;
        assert!(next.clients_reserved_to >= self.state.clients_reserved_to, "numbers only rise");
        if persist {
            self.state = next;
            // What is reserved may have been handed out before the backup, or after it.
            self.next_client = self.state.clients_reserved_to;
        }
        Ok(MasterStep { answer: MasterAnswer::Awaited(self.state.awaited.clone()), persist })
    }

    fn is_restored(&self) -> ClusterError {
        let awaited = &self.state.awaited;
        ClusterError::Restored {
            server: awaited.first().copied().unwrap_or(ServerId::NONE),
            more: awaited.len().saturating_sub(1),
        }
    }
}

const fn unchanged(answer: MasterAnswer) -> MasterStep {
    MasterStep { answer, persist: false }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn all_of_the_state_is_checked_when_some_of_it_has_changed() {
        let mut master = Master::create(ClusterId::new(1), 2, HashSeed(3)).unwrap();
        // No command leaves such a state.
        master.state.normal.clear();
        for reads in
            [MasterCommand::FetchMap, MasterCommand::ListKeyspaces, MasterCommand::FetchControl]
        {
            assert!(matches!(master.step(reads), Ok(MasterStep { persist: false, .. })));
        }
        let name = KeyspaceName::new("orders").unwrap();
        let create = MasterCommand::CreateKeyspace { name, options: KeyspaceOptions::default() };
        let changed = catch_unwind(AssertUnwindSafe(|| master.step(create)));
        assert!(changed.is_err(), "what changes is checked");
    }
}
