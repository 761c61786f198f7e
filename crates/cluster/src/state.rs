//! The master's durable state, and its bytes.
//!
//! ```text
//!   offset 0   8   magic "TSMASTER"
//!          8   4   format
//!         12   4   length of the body
//!         16   n   body: map (with its length), seed of key hashes, next server, reserved client ids, next keyspace, keyspaces
//!       16+n   4   CRC-32C of everything before it
//! ```
//! The state is small and is written whole: to a new file that replaces the old one atomically, by
//! whoever drives the master.

use timestone_types::{HashSeed, KeyspaceId};

use crate::codec::{Cursor, put_count, put_u32, put_u64};
use crate::limits::{MAX_CLIENT_ID, MAX_ENCODED_BYTES, MAX_KEYSPACES};
use crate::{ClusterError, Keyspace, ServerId, ShardMap};

/// What the first bytes of the state say.
const MAGIC: [u8; 8] = *b"TSMASTER";
/// The format that this program reads and writes.
const FORMAT: u32 = 2;
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
}

impl MasterState {
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
        if format != FORMAT {
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
        Self::decode_body(&body[..length])
    }

    fn decode_body(body: &[u8]) -> Result<Self, ClusterError> {
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
        cursor.finish()?;
        let state =
            Self { map, hash_seed, next_server, clients_reserved_to, next_keyspace, keyspaces };
        state.check().map_err(|reason| ClusterError::malformed("the master's state", reason))?;
        Ok(state)
    }

    /// What holds of every state that a master wrote.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let ascending =
            self.keyspaces.windows(2).all(|pair| pair[0].id.number() < pair[1].id.number());
        if !ascending
            || self.keyspaces.first().is_none_or(|first| *first != Keyspace::default_keyspace())
        {
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
        Ok(())
    }
}

fn bounded(length: usize) -> u32 {
    assert!(length <= MAX_ENCODED_BYTES, "the state is bounded by limits.rs");
    length as u32
}
