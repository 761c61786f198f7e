//! The master's durable state, and its bytes.
//!
//! ```text
//!   offset 0   8   magic "TSMASTER"
//!          8   4   format
//!         12   4   length of the body
//!         16   n   body: map (with its length), seed of key hashes, next server, reserved client ids, next keyspace, keyspaces,
//!                  revision, replication, term, controller, last normal configurations, servers that are waited for,
//!                  last runs of the servers' data directories
//!       16+n   4   CRC-32C of everything before it
//! ```
//! Format 2 ends with the keyspaces: one copy of each shard, no controller yet. Format 3 has no runs.
//!
//! The state is small and is written whole: to a new file that replaces the old one atomically, by
//! whoever drives the master.

use timestone_types::{ClusterId, HashSeed, KeyspaceId, ShardId};

use crate::codec::{Cursor, put_count, put_u8, put_u32, put_u64};
use crate::limits::{MAX_CLIENT_ID, MAX_ENCODED_BYTES, MAX_KEYSPACES, MAX_SERVERS, MAX_SHARDS};
use crate::message::{decode_normal, decode_runs, encode_normal, encode_runs};
use crate::{
    ClusterError, Keyspace, KeyspaceOptions, NormalConfiguration, ReplicationFactor, Run, ServerId,
    ShardEntry, ShardMap, Term,
};

/// What the first bytes of the state say.
const MAGIC: [u8; 8] = *b"TSMASTER";
/// The format that this program writes.
const FORMAT: u32 = 4;
/// The format before run numbers, which this program reads as well.
const FORMAT_WITHOUT_RUNS: u32 = 3;
/// The format before replica sets, which this program reads as well.
const FORMAT_OF_ONE_COPY: u32 = 2;
/// Epoch and the length of a list.
const NORMAL_MIN_BYTES: usize = 4 + 4;
/// Magic, format and length.
const HEAD_BYTES: usize = 16;

/// Everything the master must not forget.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MasterState {
    pub(crate) map: ShardMap,
    /// The secret seed of key hashes, the same on every server: drawn when the cluster is created,
    /// and never changed.
    pub(crate) hash_seed: HashSeed,
    /// The number of the next new server.
    pub(crate) next_server: ServerId,
    /// Every client id below this may have been handed out.
    pub(crate) clients_reserved_to: u32,
    /// The id of the next new keyspace.
    pub(crate) next_keyspace: KeyspaceId,
    /// By ascending id.
    pub(crate) keyspaces: Vec<Keyspace>,
    /// Counts the states of the cluster's whole life: of two states, the one with the higher
    /// number is the later one.
    pub(crate) revision: u64,
    /// How many replicas each shard is to have.
    pub(crate) replication: ReplicationFactor,
    /// The term of the last controller that was elected.
    pub(crate) term: Term,
    /// That controller; none before the first.
    pub(crate) controller: ServerId,
    /// The last normal configuration of each shard, in the order of the map's shards.
    pub(crate) normal: Vec<NormalConfiguration>,
    /// After a restore: the servers that have not told yet what they have seen, ascending. Nothing
    /// is served while there are any.
    pub(crate) awaited: Vec<ServerId>,
    /// The last run of each server's data directory, in the order of the map's servers.
    pub(crate) runs: Vec<Run>,
}

impl MasterState {
    /// A new cluster.
    pub(crate) fn create(
        cluster: ClusterId,
        shards: u16,
        replication: ReplicationFactor,
        hash_seed: HashSeed,
    ) -> Result<Self, ClusterError> {
        Ok(Self {
            map: ShardMap::even(cluster, shards)?,
            hash_seed,
            next_server: ServerId::new(1),
            clients_reserved_to: 1,
            next_keyspace: KeyspaceId::new(KeyspaceId::DEFAULT.get() + 1),
            keyspaces: vec![Keyspace::default_keyspace()],
            revision: 1,
            replication,
            term: Term::ZERO,
            controller: ServerId::NONE,
            normal: vec![NormalConfiguration::NONE; usize::from(shards)],
            awaited: Vec::new(),
            runs: Vec::new(),
        })
    }

    /// A shard's entry and where it stands in the lists.
    pub(crate) fn shard(&self, id: ShardId) -> Result<(usize, &ShardEntry), ClusterError> {
        let shards = self.map.shards();
        match shards.binary_search_by_key(&id, |entry| entry.id) {
            Ok(index) => Ok((index, &shards[index])),
            Err(_) => Err(ClusterError::ShardUnknown(id)),
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        put_u32(out, FORMAT);
        let length_at = out.len();
        put_u32(out, 0);
        let body_at = out.len();
        self.encode_body(out);
        let body = bounded(out.len() - body_at);
        out[length_at..length_at + 4].copy_from_slice(&body.to_le_bytes());
        let checksum = crc32c::crc32c(&out[start..]);
        put_u32(out, checksum);
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        let length_at = out.len();
        put_u32(out, 0);
        self.map.encode(out);
        let length = bounded(out.len() - length_at - 4);
        out[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
        put_u64(out, self.hash_seed.0);
        put_u32(out, self.next_server.get());
        put_u32(out, self.clients_reserved_to);
        put_u32(out, self.next_keyspace.get());
        put_count(out, self.keyspaces.len());
        for keyspace in &self.keyspaces {
            keyspace.encode(out);
        }
        put_u64(out, self.revision);
        put_u8(out, self.replication.get());
        put_u64(out, self.term.get());
        put_u32(out, self.controller.get());
        put_count(out, self.normal.len());
        for normal in &self.normal {
            encode_normal(normal, out);
        }
        put_count(out, self.awaited.len());
        for server in &self.awaited {
            put_u32(out, server.get());
        }
        encode_runs(&self.runs, out);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, ClusterError> {
        let mut head = Cursor::new("the master's state", bytes);
        let Some(body) = bytes.get(HEAD_BYTES..) else {
            return Err(head.fail("it ends too early"));
        };
        if bytes[..8] != MAGIC {
            return Err(head.fail("it does not begin with TSMASTER"));
        }
        head.u64()?;
        let format = head.u32()?;
        if ![FORMAT, FORMAT_WITHOUT_RUNS, FORMAT_OF_ONE_COPY].contains(&format) {
            return Err(ClusterError::Format { found: format, supported: FORMAT });
        }
        let length = head.u32()? as usize;
        if length > MAX_ENCODED_BYTES || length + 4 != body.len() {
            return Err(head.fail("its length is not the one it announces"));
        }
        let (covered, checksum) = bytes.split_at(HEAD_BYTES + length);
        let found = Cursor::new("the master's state", checksum).u32()?;
        let computed = crc32c::crc32c(covered);
        if found != computed {
            return Err(ClusterError::Checksum { found, computed });
        }
        Self::decode_body(format, &body[..length])
    }

    fn decode_body(format: u32, body: &[u8]) -> Result<Self, ClusterError> {
        let mut cursor = Cursor::new("the master's state", body);
        let map_bytes = cursor.u32()? as usize;
        let map = ShardMap::decode(cursor.bytes(map_bytes)?)?;
        let hash_seed = HashSeed(cursor.u64()?);
        let next_server = ServerId::new(cursor.u32()?);
        let clients_reserved_to = cursor.u32()?;
        let next_keyspace = KeyspaceId::new(cursor.u32()?);
        let mut keyspaces = Vec::new();
        for _ in 0..cursor.count(MAX_KEYSPACES, Keyspace::MIN_BYTES)? {
            keyspaces.push(Keyspace::decode(&mut cursor)?);
        }
        let mut state = Self {
            hash_seed,
            next_server,
            clients_reserved_to,
            next_keyspace,
            keyspaces,
            revision: 0,
            replication: ReplicationFactor::ONE,
            term: Term::ZERO,
            controller: ServerId::NONE,
            normal: map.shards().iter().map(NormalConfiguration::of_entry).collect(),
            awaited: Vec::new(),
            runs: vec![Run::NONE; map.servers().len()],
            map,
        };
        if format != FORMAT_OF_ONE_COPY {
            state.decode_control(&mut cursor)?;
        }
        if format == FORMAT {
            state.runs = decode_runs(&mut cursor)?;
        }
        cursor.finish()?;
        let counted = state.check_counts();
        counted
            .and_then(|()| state.check())
            .map_err(|reason| ClusterError::malformed("the master's state", reason))?;
        Ok(state)
    }

    /// What format 3 has beside what format 2 has.
    fn decode_control(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ClusterError> {
        self.revision = cursor.u64()?;
        self.replication = ReplicationFactor::new(cursor.u8()?)?;
        self.term = Term::new(cursor.u64()?);
        self.controller = ServerId::new(cursor.u32()?);
        self.normal.clear();
        for _ in 0..cursor.count(usize::from(MAX_SHARDS), NORMAL_MIN_BYTES)? {
            self.normal.push(decode_normal(cursor)?);
        }
        for _ in 0..cursor.count(MAX_SERVERS, 4)? {
            self.awaited.push(ServerId::new(cursor.u32()?));
        }
        Ok(())
    }

    /// What is counted by one leaves room to count on: changes every nanosecond would take three
    /// centuries to half of 64 bits. A higher number was made up.
    fn check_counts(&self) -> Result<(), &'static str> {
        if self.revision > u64::MAX / 2 || self.term.get() > u64::MAX / 2 {
            return Err("its revision or its term is higher than any master has come");
        }
        Ok(())
    }

    /// What holds of every state that a master wrote.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let ascending =
            self.keyspaces.windows(2).all(|pair| pair[0].id.number() < pair[1].id.number());
        let default = Keyspace::default_keyspace();
        let is_default = |first: &Keyspace| {
            let options = KeyspaceOptions { index: default.options.index, ..first.options };
            first.id == default.id && first.name == default.name && options == default.options
        };
        if !ascending || !self.keyspaces.first().is_some_and(is_default) {
            return Err("its keyspaces are not in order, or default is missing");
        }
        if self.keyspaces.last().is_some_and(|last| last.id.number() >= self.next_keyspace.get()) {
            return Err("a keyspace has an id that was not handed out yet");
        }
        if self.map.servers().last().is_some_and(|last| last.id >= self.next_server)
            || self.next_server.is_none()
        {
            return Err("a server has a number that was not handed out yet");
        }
        if self.clients_reserved_to == 0 || self.clients_reserved_to > MAX_CLIENT_ID.get() + 1 {
            return Err("its reserved client ids are out of bounds");
        }
        if self.awaited.windows(2).any(|pair| pair[0] >= pair[1])
            || !self.awaited.iter().all(|&server| self.map.server(server).is_some())
        {
            return Err("a server that it waits for is not one of its servers");
        }
        if self.runs.len() != self.map.servers().len() {
            return Err("it does not have one run for each server");
        }
        self.check_normal()
    }

    /// What holds of the last normal configurations.
    fn check_normal(&self) -> Result<(), &'static str> {
        let shards = self.map.shards();
        if self.normal.len() != shards.len() {
            return Err("it does not have one normal configuration for each shard");
        }
        for (entry, normal) in shards.iter().zip(&self.normal) {
            if normal.epoch > entry.epoch {
                return Err("a normal configuration is of an epoch that was not handed out yet");
            }
            let primary_was_in_it = normal.replicas.contains(&entry.primary);
            if entry.primary.is_none() != normal.replicas.is_empty()
                || (!entry.primary.is_none() && !primary_was_in_it)
            {
                return Err("a primary comes from outside its shard's normal configuration");
            }
        }
        Ok(())
    }
}

fn bounded(length: usize) -> u32 {
    assert!(length <= MAX_ENCODED_BYTES, "the state is bounded by limits.rs");
    length as u32
}
