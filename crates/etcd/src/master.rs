//! The master whose state lies in etcd, as one server reaches it.
//!
//! ```text
//!   command ─► read the state ─► step the core ─► changed? ─► write it, if it is still the one that was read ─► note it ─► answer
//!                    │                                         └─ somebody else was faster: read again
//!                    └─ older than what this server has seen, or of another etcd: begin a restore, tell what was seen
//! ```
//! Invariants:
//! - a state is acted on only after this server has noted it durably as seen;
//! - the value names the etcd cluster that it was written in, so that every server notices a
//!   restore; one that was made under the same name is noticed by whoever has seen more;
//! - client ids come from a block that a state reserves for this handle alone.
//!
//! Source: docs/protocol/membership.md, "The master on etcd" and "A master that was restored".

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_cluster::{
    ClientIdBlock, ClusterError, DirectoryId, MapVersion, Master, MasterAnswer, MasterCommand,
    MasterFailure, MasterService, ReplicationFactor, ServerId, ShardMap, Term,
};
use timestone_types::{ClientId, ClusterId, HashSeed, Timestamp};

use crate::client::{EtcdClient, EtcdError, Guard, KeyValue, LeaseId, Revision};
use crate::limits::{CALL_TIMEOUT, CONTROLLER_LEASE_S, MAX_STATE_BYTES, MAX_SWAPS, MIN_LEASE_S};
use crate::watch::StateWatch;

/// How a server reaches its cluster's etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdOptions {
    /// `HOST:PORT` of each member.
    pub endpoints: Vec<String>,
    /// What all keys begin with: `/timestone/` and the cluster's name, for example.
    pub prefix: String,
    /// The server's data directory: it tells for this one what was seen, after a restore.
    pub directory: DirectoryId,
    /// How long leases last; whole seconds, at least [`MIN_LEASE_S`].
    pub time_to_live: Duration,
    /// How long one call may take.
    pub call_timeout: Duration,
}

impl EtcdOptions {
    /// The usual times.
    #[must_use]
    pub const fn new(endpoints: Vec<String>, prefix: String, directory: DirectoryId) -> Self {
        let time_to_live = Duration::from_secs(10);
        Self { endpoints, prefix, directory, time_to_live, call_timeout: CALL_TIMEOUT }
    }
}

/// What a new cluster is to be, if there is none under the prefix yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Founding {
    /// Its id, drawn at random.
    pub cluster: ClusterId,
    /// How many shards it has.
    pub shards: u16,
    /// How many replicas each of them is to have.
    pub replication: ReplicationFactor,
    /// The secret seed of its key hashes.
    pub hash_seed: HashSeed,
}

/// What came of leaving a server out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forgotten {
    /// It was waited for.
    pub was_awaited: bool,
    /// The servers that are still waited for.
    pub awaited: Vec<ServerId>,
}

/// Waits no longer, after a restore, for a server that is lost for ever: for an operator, beside all
/// servers. What only that server has seen may be handed out again, beyond the margin.
///
/// # Errors
/// etcd cannot be asked, or has no state of a cluster under the prefix.
pub fn forget_server(options: &EtcdOptions, server: ServerId) -> Result<Forgotten, MasterFailure> {
    let client =
        EtcdClient::new(options.endpoints.clone(), options.call_timeout).map_err(unavailable)?;
    let key = format!("{}/state", options.prefix);
    for _ in 0..MAX_SWAPS {
        let snapshot = client.get(&key).map_err(unavailable)?;
        let Some(found) = snapshot.found.first() else {
            let detail = format!("etcd has no state of a cluster under {}", options.prefix);
            return Err(MasterFailure::Unavailable { detail });
        };
        let (written_in, mut master) = decode_value(found)?;
        if written_in != snapshot.etcd_cluster {
            // No server has come yet that would have noticed.
            master.step(MasterCommand::BeginRestored)?;
        }
        let was_awaited = master.awaited().contains(&server);
        master.step(MasterCommand::ForgetServer { server })?;
        let forgotten = Forgotten { was_awaited, awaited: master.awaited().to_vec() };
        if !was_awaited {
            return Ok(forgotten);
        }
        let value = value_of(snapshot.etcd_cluster, &master)?;
        let guard = Guard::Changed(key.clone(), found.changed);
        if client.put(&[guard], &key, &value, LeaseId(0)).map_err(unavailable)? {
            return Ok(forgotten);
        }
    }
    Err(contended())
}

/// The latest state that this server has seen, which outlives its process.
pub trait SeenState: Send {
    /// The bytes that were noted last; empty before the first.
    fn load(&mut self) -> Vec<u8>;

    /// Notes bytes durably, in place of the ones before.
    ///
    /// # Errors
    /// Why that is not possible; nothing is acted on then.
    fn note(&mut self, bytes: &[u8]) -> Result<(), String>;
}

/// The server has the controller's key, of this revision and under this lease.
struct Candidate {
    lease: LeaseId,
    created: Revision,
    /// It has the key since just now.
    is_new: bool,
}

/// The state as it was read.
struct Current {
    master: Master,
    /// The revision in which it was written.
    read: Revision,
    /// The etcd cluster that has it.
    etcd_cluster: u64,
}

/// See the module.
pub struct EtcdMaster {
    client: EtcdClient,
    options: EtcdOptions,
    seen: Box<dyn SeenState>,
    /// The latest state that was noted.
    latest: Option<Master>,
    /// Client ids that are reserved for this handle: from the first, up to the second.
    reserved: (ClientId, ClientId),
    leases: BTreeMap<ServerId, LeaseId>,
    watched: StateWatch,
}

impl core::fmt::Debug for EtcdMaster {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EtcdMaster").field("options", &self.options).finish_non_exhaustive()
    }
}

impl EtcdMaster {
    /// Reaches the cluster under the prefix, and founds it if there is none and this server has
    /// never seen one there.
    ///
    /// # Errors
    /// etcd cannot be asked, what lies there is no state of a master, or the state is gone.
    pub fn open(
        options: EtcdOptions,
        founding: Founding,
        mut seen: Box<dyn SeenState>,
    ) -> Result<Self, MasterFailure> {
        let client = EtcdClient::new(options.endpoints.clone(), options.call_timeout)
            .map_err(unavailable)?;
        let noted = seen.load();
        let latest = if noted.is_empty() { None } else { Some(Master::decode(&noted)?) };
        let watched = StateWatch::begin(client.clone(), format!("{}/state", options.prefix))
            .map_err(|error| MasterFailure::Unavailable { detail: error.to_string() })?;
        let mut master = Self {
            client,
            options,
            seen,
            latest,
            reserved: (ClientId::ZERO, ClientId::ZERO),
            leases: BTreeMap::new(),
            watched,
        };
        master.found(founding)?;
        Ok(master)
    }

    /// The latest state that this server has seen and may act on, if any.
    #[must_use]
    pub const fn latest(&self) -> Option<&Master> {
        self.latest.as_ref()
    }

    /// Whether commands would be carried out now. After a restore this server tells what it has seen.
    ///
    /// # Errors
    /// etcd cannot be asked, or other servers have not told yet.
    pub fn is_serving(&mut self) -> Result<(), MasterFailure> {
        self.execute(MasterCommand::FetchMap).map(drop)
    }

    /// How long its leases last.
    #[must_use]
    pub const fn time_to_live(&self) -> Duration {
        Duration::from_secs(self.seconds())
    }

    /// Founds the cluster unless it exists.
    fn found(&mut self, founding: Founding) -> Result<(), MasterFailure> {
        let key = self.key("state");
        let snapshot = self.client.get(&key).map_err(unavailable)?;
        if !snapshot.found.is_empty() {
            return Ok(());
        }
        if self.latest.is_some() {
            return Err(self.is_gone());
        }
        let Founding { cluster, shards, replication, hash_seed } = founding;
        let master = Master::create_replicated(cluster, shards, replication, hash_seed)?;
        let value = value_of(snapshot.etcd_cluster, &master)?;
        let guard = Guard::Created(key.clone(), Revision(0));
        // If somebody else was faster, that is the cluster.
        self.client.put(&[guard], &key, &value, LeaseId(0)).map_err(unavailable)?;
        Ok(())
    }

    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.options.prefix)
    }

    fn is_gone(&self) -> MasterFailure {
        MasterFailure::Unavailable {
            detail: format!(
                "etcd has no state of the cluster under {}, and this server has seen one: restore \
                 etcd from a backup",
                self.options.prefix
            ),
        }
    }

    /// The current state. After a restore this server has told what it has seen.
    fn current(&mut self) -> Result<Current, MasterFailure> {
        let key = self.key("state");
        for _ in 0..MAX_SWAPS {
            let snapshot = self.client.get(&key).map_err(unavailable)?;
            let Some(found) = snapshot.found.into_iter().next() else {
                return Err(self.is_gone());
            };
            let (written_in, mut master) = decode_value(&found)?;
            let etcd_cluster = snapshot.etcd_cluster;
            let Some(command) = self.step_of_restore(written_in == etcd_cluster, &master) else {
                return Ok(Current { master, read: found.changed, etcd_cluster });
            };
            tracing::warn!(
                ?command,
                "etcd was restored from a backup: nothing is served until \
                every server has told what it has seen"
            );
            master.step(command)?;
            let value = value_of(etcd_cluster, &master)?;
            self.swap(found.changed, &value, None)?;
        }
        Err(contended())
    }

    /// What this server has to do before it may act on a state that was read.
    fn step_of_restore(&self, is_at_home: bool, master: &Master) -> Option<MasterCommand> {
        let went_back =
            self.latest.as_ref().is_some_and(|latest| master.revision() < latest.revision());
        if !is_at_home || (went_back && master.awaited().is_empty()) {
            return Some(MasterCommand::BeginRestored);
        }
        if master.awaited().is_empty() {
            return None;
        }
        let own = |master: &Master| {
            let mut servers = master.map().servers().iter();
            servers.find(|server| server.directory == self.options.directory).map(|own| own.id)
        };
        let server = own(master).or_else(|| self.latest.as_ref().and_then(own))?;
        if !master.awaited().contains(&server) && !went_back {
            return None;
        }
        let mut state = Vec::new();
        if let Some(latest) = &self.latest {
            latest.encode(&mut state);
        }
        Some(MasterCommand::TellSeen { server, state })
    }

    /// Writes the state if it is still the one of this revision, and the guard holds: whether it
    /// was written.
    fn swap(
        &self,
        read: Revision,
        value: &[u8],
        guard: Option<Guard>,
    ) -> Result<bool, MasterFailure> {
        let key = self.key("state");
        let mut guards = vec![Guard::Changed(key.clone(), read)];
        guards.extend(guard);
        self.client.put(&guards, &key, value, LeaseId(0)).map_err(unavailable)
    }

    /// Notes a state as seen, before anything comes of it.
    fn saw(&mut self, master: Master) -> Result<(), MasterFailure> {
        let is_newer =
            self.latest.as_ref().is_none_or(|latest| master.revision() > latest.revision());
        if is_newer && master.awaited().is_empty() {
            let mut bytes = Vec::new();
            master.encode(&mut bytes);
            self.seen.note(&bytes).map_err(|detail| MasterFailure::Unavailable { detail })?;
            self.latest = Some(master);
        }
        Ok(())
    }

    /// Client ids of the block that is reserved already.
    fn reserved(&mut self, count: u32) -> Option<MasterAnswer> {
        let (first, end) = self.reserved;
        if count == 0 || end.get() - first.get() < count {
            return None;
        }
        self.reserved.0 = ClientId::new(first.get() + count);
        Some(MasterAnswer::Clients(ClientIdBlock { first, count }))
    }

    /// Carries out a command, if the guard holds; `None` if it does not hold any more.
    fn execute_guarded(
        &mut self,
        command: &MasterCommand,
        guard: Option<&Guard>,
    ) -> Result<Option<MasterAnswer>, MasterFailure> {
        for _ in 0..MAX_SWAPS {
            let Current { mut master, read, etcd_cluster } = self.current()?;
            let step = master.step(command.clone())?;
            if !step.persist {
                self.saw(master)?;
                return Ok(Some(step.answer));
            }
            let value = value_of(etcd_cluster, &master)?;
            if self.swap(read, &value, guard.cloned())? {
                let reserved = master.reserved_clients();
                self.saw(master)?;
                if matches!(command, MasterCommand::RegisterClient { .. }) {
                    self.reserved = reserved;
                }
                return Ok(Some(step.answer));
            }
            if let Some(Guard::Created(key, created)) = guard {
                let now = self.client.get(key).map_err(unavailable)?;
                if now.found.first().is_none_or(|found| found.created != *created) {
                    return Ok(None);
                }
            }
        }
        Err(contended())
    }

    /// The candidate's key and lease, if this server has it or gets it.
    fn candidate(&mut self, server: ServerId) -> Result<Option<Candidate>, MasterFailure> {
        let key = self.key("controller");
        let name = server.to_string();
        let found = self.client.get(&key).map_err(unavailable)?.found.into_iter().next();
        if let Some(found) = found {
            let is_own = found.value == name.as_bytes()
                && self.client.keep_alive(found.lease).map_err(unavailable)?;
            let (lease, created) = (found.lease, found.created);
            return Ok(is_own.then_some(Candidate { lease, created, is_new: false }));
        }
        let lease =
            self.client.grant(self.seconds().min(CONTROLLER_LEASE_S)).map_err(unavailable)?;
        let guard = Guard::Created(key.clone(), Revision(0));
        let is_first =
            self.client.put(&[guard], &key, name.as_bytes(), lease).map_err(unavailable)?;
        let found = self.client.get(&key).map_err(unavailable)?.found.into_iter().next();
        match found.filter(|found| is_first && found.lease == lease) {
            Some(found) => Ok(Some(Candidate { lease, created: found.created, is_new: true })),
            None => {
                self.client.revoke(lease).map_err(unavailable)?;
                Ok(None)
            }
        }
    }

    const fn seconds(&self) -> u64 {
        let seconds = (self.options.time_to_live.as_millis() as u64).div_ceil(1000);
        if seconds < MIN_LEASE_S { MIN_LEASE_S } else { seconds }
    }
}

impl MasterService for EtcdMaster {
    fn execute(&mut self, command: MasterCommand) -> Result<MasterAnswer, MasterFailure> {
        if let MasterCommand::RegisterClient { count } = command
            && let Some(answer) = self.reserved(count)
        {
            return Ok(answer);
        }
        self.execute_guarded(&command, None)?.ok_or_else(contended)
    }

    fn renew(&mut self, _now: Timestamp, server: ServerId) -> Result<(), MasterFailure> {
        if let Some(&lease) = self.leases.get(&server)
            && self.client.keep_alive(lease).map_err(unavailable)?
        {
            return Ok(());
        }
        let lease = self.client.grant(self.seconds()).map_err(unavailable)?;
        let key = self.key(&format!("live/{server}"));
        self.client.put(&[], &key, b"", lease).map_err(unavailable)?;
        self.leases.insert(server, lease);
        Ok(())
    }

    fn alive(&mut self, _now: Timestamp) -> Result<Vec<ServerId>, MasterFailure> {
        let prefix = self.key("live/");
        let found = self.client.list(&prefix).map_err(unavailable)?.found;
        let number = |found: &KeyValue| found.key.strip_prefix(&prefix)?.parse().ok();
        let mut servers: Vec<ServerId> =
            found.iter().filter_map(number).map(ServerId::new).collect();
        servers.sort_unstable();
        Ok(servers)
    }

    fn campaign(
        &mut self,
        _now: Timestamp,
        server: ServerId,
    ) -> Result<Option<Term>, MasterFailure> {
        let Some(candidate) = self.candidate(server)? else { return Ok(None) };
        let master = self.current()?.master;
        let (expected, controller) = master.controller();
        // Who cannot note what it has seen can act on nothing: another one does better.
        if let Err(error) = self.saw(master) {
            self.client.revoke(candidate.lease).map_err(unavailable)?;
            return Err(error);
        }
        // It had the key before: nobody else was the controller since its term began.
        if controller == server && !candidate.is_new {
            return Ok(Some(expected));
        }
        let guard = Guard::Created(self.key("controller"), candidate.created);
        let command = MasterCommand::BeginTerm { controller: server, expected };
        match self.execute_guarded(&command, Some(&guard)) {
            Ok(Some(MasterAnswer::Term { term, controller })) if controller == server => {
                Ok(Some(term))
            }
            Ok(_) => Ok(None),
            Err(error) => {
                self.client.revoke(candidate.lease).map_err(unavailable)?;
                Err(error)
            }
        }
    }

    fn resign(&mut self, server: ServerId) -> Result<(), MasterFailure> {
        let key = self.key("controller");
        let found = self.client.get(&key).map_err(unavailable)?.found.into_iter().next();
        match found.filter(|found| found.value == server.to_string().as_bytes()) {
            Some(found) => self.client.revoke(found.lease).map_err(unavailable),
            None => Ok(()),
        }
    }

    fn map_above(&mut self, seen: MapVersion) -> Result<Option<ShardMap>, MasterFailure> {
        if let Some((etcd_cluster, heard)) = self.watched.take() {
            let (written_in, master) = decode_value(&heard)?;
            // What is out of order is looked at again, and done about.
            let master = match self.step_of_restore(written_in == etcd_cluster, &master) {
                None => master,
                Some(_) => self.current()?.master,
            };
            self.saw(master)?;
        }
        let map = self.latest.as_ref().map(Master::map);
        Ok(map.filter(|map| map.version() > seen).cloned())
    }
}

fn unavailable(error: EtcdError) -> MasterFailure {
    MasterFailure::Unavailable { detail: error.to_string() }
}

fn contended() -> MasterFailure {
    MasterFailure::Unavailable {
        detail: "too many servers change its state at the same time; ask again".to_owned(),
    }
}

/// What lies under the state's key: the id of the etcd cluster, and the state.
fn value_of(etcd_cluster: u64, master: &Master) -> Result<Vec<u8>, MasterFailure> {
    let mut value = etcd_cluster.to_le_bytes().to_vec();
    master.encode(&mut value);
    if value.len() > MAX_STATE_BYTES {
        return Err(MasterFailure::Refused(ClusterError::Limit {
            what: "bytes of a cluster's state in etcd",
            asked: value.len() as u64,
            limit: MAX_STATE_BYTES as u64,
        }));
    }
    Ok(value)
}

fn decode_value(found: &KeyValue) -> Result<(u64, Master), MasterFailure> {
    let Some((etcd_cluster, state)) = found.value.split_first_chunk::<8>() else {
        return Err(MasterFailure::Refused(ClusterError::Malformed {
            what: "the master's state in etcd",
            reason: "it ends too early",
        }));
    };
    Ok((u64::from_le_bytes(*etcd_cluster), Master::decode(state)?))
}
