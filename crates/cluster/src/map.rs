//! The shard map: which shard owns a slot, and which server is that shard's primary in which epoch.
//!
//! ```text
//!   key ─ slot_of ─► slot 0..16383 ─► starts: [0→shard 0 | 4096→shard 1 | 8192→shard 2 | …] ─► ShardEntry ─► ServerInfo
//! ```
//! Clients and servers hold whole maps and replace them; a higher [`MapVersion`] is newer. Every
//! message carries the sender's version and the shard's epoch, so that a stale map is noticed where
//! it matters. Source: docs/protocol/membership.md, "Slots, shards, epochs".
//!
//! Invariants: every slot has exactly one owner; shard ids are unique and ascending; a primary is
//! in its replica set; the map of a cluster is never edited in place, only succeeded by one of a
//! higher version.

use core::fmt;

use timestone_types::{ClusterId, Epoch, SLOT_COUNT, ShardId, Slot, slot_of};

use crate::codec::{Cursor, put_count, put_u16, put_u32, put_u64};
use crate::limits::{MAX_ENCODED_BYTES, MAX_REPLICAS, MAX_SERVERS, MAX_SHARDS, MAX_SLOT_RANGES};
use crate::{ClusterError, ServerId, ServerInfo};

/// Counts the changes of one cluster's map; only rises.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MapVersion(u32);

impl MapVersion {
    /// "No map yet".
    pub const ZERO: Self = Self(0);

    /// Wraps a raw number.
    #[must_use]
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// The raw number, for layouts and displays.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The version after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for MapVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A run of slots, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotRange {
    first: Slot,
    last: Slot,
}

impl SlotRange {
    /// The slots from `first` to `last`, both included; `None` when they are the wrong way round.
    #[must_use]
    pub const fn new(first: Slot, last: Slot) -> Option<Self> {
        if first.get() <= last.get() { Some(Self { first, last }) } else { None }
    }

    /// The lowest slot.
    #[must_use]
    pub const fn first(self) -> Slot {
        self.first
    }

    /// The highest slot.
    #[must_use]
    pub const fn last(self) -> Slot {
        self.last
    }

    /// Whether the slot is one of these.
    #[must_use]
    pub const fn contains(self, slot: Slot) -> bool {
        self.first.get() <= slot.get() && slot.get() <= self.last.get()
    }
}

impl fmt::Display for SlotRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// One shard of the map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardEntry {
    /// Its id.
    pub id: ShardId,
    /// Its configuration's number; rises whenever the primary or the replica set changes.
    pub epoch: Epoch,
    /// Its primary; [`ServerId::NONE`] while no server has taken it.
    pub primary: ServerId,
    /// All its replicas, the primary included; empty while no server has taken it.
    pub replicas: Vec<ServerId>,
    /// The slots it owns, ascending.
    pub ranges: Vec<SlotRange>,
}

/// Who owns which slot, where, and since which epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardMap {
    version: MapVersion,
    cluster: ClusterId,
    servers: Vec<ServerInfo>,
    shards: Vec<ShardEntry>,
    /// Where each run of slots begins and who owns it, ascending: the routing table.
    starts: Vec<(u16, ShardId)>,
}

impl ShardMap {
    /// Checks the parts and builds the routing table. Servers and shards may come in any order.
    ///
    /// # Errors
    /// A slot without or with two owners, a shard or server named twice, a primary outside its
    /// replica set, a replica that is not among the servers, or a bound of [`crate::limits`].
    pub fn new(
        cluster: ClusterId,
        version: MapVersion,
        mut servers: Vec<ServerInfo>,
        mut shards: Vec<ShardEntry>,
    ) -> Result<Self, ClusterError> {
        servers.sort_by_key(|server| server.id);
        shards.sort_by_key(|shard| shard.id);
        check_servers(&servers)?;
        check_shards(&shards, &servers)?;
        let starts = routing_table(&shards)?;
        Ok(Self { version, cluster, servers, shards, starts })
    }

    /// A map of `shards` shards of equal size (within one slot) that no server has taken yet,
    /// version 1, epoch 0.
    ///
    /// # Errors
    /// [`ClusterError::Limit`] when `shards` is 0 or above [`MAX_SHARDS`].
    pub fn even(cluster: ClusterId, shards: u16) -> Result<Self, ClusterError> {
        if shards == 0 || shards > MAX_SHARDS {
            return Err(ClusterError::Limit {
                what: "shards of a cluster (at least 1)",
                asked: u64::from(shards),
                limit: u64::from(MAX_SHARDS),
            });
        }
        let bound =
            |index: u16| (u32::from(index) * u32::from(SLOT_COUNT) / u32::from(shards)) as u16;
        let entries = (0..shards).map(|index| ShardEntry {
            id: ShardId::new(index),
            epoch: Epoch::ZERO,
            primary: ServerId::NONE,
            replicas: Vec::new(),
            ranges: Slot::new(bound(index))
                .zip(Slot::new(bound(index + 1) - 1))
                .and_then(|(first, last)| SlotRange::new(first, last))
                .into_iter()
                .collect(),
        });
        Self::new(cluster, MapVersion::new(1), Vec::new(), entries.collect())
    }

    /// A map of one server that is primary of all `shards` shards, each in epoch 1: the whole
    /// cluster of one process.
    ///
    /// # Errors
    /// As [`ShardMap::even`].
    pub fn single(
        cluster: ClusterId,
        server: ServerInfo,
        shards: u16,
    ) -> Result<Self, ClusterError> {
        let mut map = Self::even(cluster, shards)?;
        for shard in &mut map.shards {
            shard.epoch = Epoch::new(1);
            shard.primary = server.id;
            shard.replicas = vec![server.id];
        }
        Self::new(cluster, map.version, vec![server], map.shards)
    }

    /// The map's version.
    #[must_use]
    pub const fn version(&self) -> MapVersion {
        self.version
    }

    /// The cluster it describes.
    #[must_use]
    pub const fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// All shards, by ascending id.
    #[must_use]
    pub fn shards(&self) -> &[ShardEntry] {
        &self.shards
    }

    /// All servers, by ascending id.
    #[must_use]
    pub fn servers(&self) -> &[ServerInfo] {
        &self.servers
    }

    /// The entry of a shard.
    #[must_use]
    pub fn shard(&self, id: ShardId) -> Option<&ShardEntry> {
        // Ids are handed out from 0 without gaps today; the search is for maps that have merged
        // shards.
        match self.shards.get(usize::from(id.get())) {
            Some(entry) if entry.id == id => Some(entry),
            _ => self
                .shards
                .binary_search_by_key(&id, |entry| entry.id)
                .ok()
                .map(|index| &self.shards[index]),
        }
    }

    /// The shard that owns a slot.
    #[must_use]
    #[inline]
    pub fn shard_of(&self, slot: Slot) -> ShardId {
        // The first run begins at slot 0, so at least one run begins at or below any slot.
        let after = self.starts.partition_point(|&(first, _)| first <= slot.get());
        self.starts[after - 1].1
    }

    /// The shard that owns a key, by the key's slot.
    #[must_use]
    #[inline]
    pub fn shard_of_key(&self, key: &[u8]) -> ShardId {
        self.shard_of(slot_of(key))
    }

    /// A server by its id.
    #[must_use]
    pub fn server(&self, id: ServerId) -> Option<&ServerInfo> {
        self.servers
            .binary_search_by_key(&id, |server| server.id)
            .ok()
            .map(|index| &self.servers[index])
    }

    /// The server that is primary of a shard; `None` when the shard does not exist or nobody has
    /// taken it.
    #[must_use]
    pub fn primary(&self, shard: ShardId) -> Option<&ServerInfo> {
        self.shard(shard).and_then(|entry| self.server(entry.primary))
    }

    /// The epoch of a shard; `None` when it does not exist.
    #[must_use]
    pub fn epoch(&self, shard: ShardId) -> Option<Epoch> {
        self.shard(shard).map(|entry| entry.epoch)
    }

    /// The shards whose primary is `server`, ascending.
    pub fn owned_by(&self, server: ServerId) -> impl Iterator<Item = &ShardEntry> {
        self.shards.iter().filter(move |entry| entry.primary == server)
    }

    /// Appends the map's bytes: what `Welcome` and the map messages carry
    /// (docs/formats/cluster.md).
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.cluster.get());
        put_u32(out, self.version.get());
        put_count(out, self.servers.len());
        for server in &self.servers {
            server.encode(out);
        }
        put_count(out, self.shards.len());
        for shard in &self.shards {
            encode_shard(shard, out);
        }
    }

    /// Reads what [`ShardMap::encode`] wrote, and checks it as [`ShardMap::new`] does.
    ///
    /// # Errors
    /// [`ClusterError::Malformed`] for bytes that do not follow the layout, and everything that
    /// `new` refuses.
    pub fn decode(bytes: &[u8]) -> Result<Self, ClusterError> {
        let mut cursor = Cursor::new("a shard map", bytes);
        if bytes.len() > MAX_ENCODED_BYTES {
            return Err(cursor.fail("it is longer than a map can be"));
        }
        let cluster = ClusterId::new(cursor.u64()?);
        let version = MapVersion::new(cursor.u32()?);
        let mut servers = Vec::new();
        for _ in 0..cursor.count(MAX_SERVERS, ServerInfo::MIN_BYTES)? {
            servers.push(ServerInfo::decode(&mut cursor)?);
        }
        let mut shards = Vec::new();
        for _ in 0..cursor.count(usize::from(MAX_SHARDS), SHARD_MIN_BYTES)? {
            shards.push(decode_shard(&mut cursor)?);
        }
        cursor.finish()?;
        Self::new(cluster, version, servers, shards)
    }

    /// The parts, for the master to change and build the next map from.
    pub(crate) fn into_parts(self) -> (Vec<ServerInfo>, Vec<ShardEntry>) {
        (self.servers, self.shards)
    }
}

/// Id, epoch, primary, and the lengths of two lists.
const SHARD_MIN_BYTES: usize = 2 + 4 + 4 + 4 + 4;

pub(crate) fn encode_shard(shard: &ShardEntry, out: &mut Vec<u8>) {
    put_u16(out, shard.id.get());
    put_u32(out, shard.epoch.get());
    put_u32(out, shard.primary.get());
    put_count(out, shard.replicas.len());
    for replica in &shard.replicas {
        put_u32(out, replica.get());
    }
    put_count(out, shard.ranges.len());
    for range in &shard.ranges {
        put_u16(out, range.first.get());
        put_u16(out, range.last.get());
    }
}

pub(crate) fn decode_shard(cursor: &mut Cursor<'_>) -> Result<ShardEntry, ClusterError> {
    let id = ShardId::new(cursor.u16()?);
    let epoch = Epoch::new(cursor.u32()?);
    let primary = ServerId::new(cursor.u32()?);
    let mut replicas = Vec::new();
    for _ in 0..cursor.count(MAX_REPLICAS, 4)? {
        replicas.push(ServerId::new(cursor.u32()?));
    }
    let mut ranges = Vec::new();
    for _ in 0..cursor.count(MAX_SLOT_RANGES, 4)? {
        let (first, last) = (Slot::new(cursor.u16()?), Slot::new(cursor.u16()?));
        let range = first.zip(last).and_then(|(first, last)| SlotRange::new(first, last));
        ranges.push(range.ok_or_else(|| {
            cursor.fail("a range of slots is out of bounds or the wrong way round")
        })?);
    }
    Ok(ShardEntry { id, epoch, primary, replicas, ranges })
}

fn check_servers(servers: &[ServerInfo]) -> Result<(), ClusterError> {
    if servers.len() > MAX_SERVERS {
        return Err(ClusterError::Limit {
            what: "servers of a cluster",
            asked: servers.len() as u64,
            limit: MAX_SERVERS as u64,
        });
    }
    let broken = |reason| Err(ClusterError::malformed("a shard map", reason));
    if servers.first().is_some_and(|server| server.id.is_none()) {
        return broken("a server has the number 0");
    }
    if servers.windows(2).any(|pair| pair[0].id == pair[1].id) {
        return broken("a server occurs twice");
    }
    Ok(())
}

fn check_shards(shards: &[ShardEntry], servers: &[ServerInfo]) -> Result<(), ClusterError> {
    if shards.len() > usize::from(MAX_SHARDS) {
        return Err(ClusterError::Limit {
            what: "shards of a cluster",
            asked: shards.len() as u64,
            limit: u64::from(MAX_SHARDS),
        });
    }
    if let Some(pair) = shards.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(ClusterError::DuplicateShard(pair[0].id));
    }
    let known = |id: &ServerId| servers.binary_search_by_key(id, |server| server.id).is_ok();
    for shard in shards {
        if shard.replicas.len() > MAX_REPLICAS {
            return Err(ClusterError::Limit {
                what: "replicas of a shard",
                asked: shard.replicas.len() as u64,
                limit: MAX_REPLICAS as u64,
            });
        }
        if !shard.replicas.iter().all(known) {
            return Err(ClusterError::malformed(
                "a shard map",
                "a replica is not among its servers",
            ));
        }
        let placed = if shard.primary.is_none() {
            shard.replicas.is_empty()
        } else {
            shard.replicas.contains(&shard.primary)
        };
        if !placed {
            return Err(ClusterError::malformed(
                "a shard map",
                "a primary is not among its shard's replicas",
            ));
        }
    }
    Ok(())
}

fn routing_table(shards: &[ShardEntry]) -> Result<Vec<(u16, ShardId)>, ClusterError> {
    let mut runs: Vec<(SlotRange, ShardId)> = shards
        .iter()
        .flat_map(|shard| shard.ranges.iter().map(|&range| (range, shard.id)))
        .collect();
    runs.sort_by_key(|(range, _)| range.first);
    let mut starts: Vec<(u16, ShardId)> = Vec::with_capacity(runs.len());
    let mut next = 0u16;
    for (range, shard) in runs {
        let first = range.first.get();
        if first != next {
            // Either a gap before this run, or an overlap with the one before it.
            let (slot, owners) = if first > next { (next, 0) } else { (first, 2) };
            return Err(slot_error(slot, owners));
        }
        next = range.last.get() + 1;
        if starts.last().is_none_or(|&(_, owner)| owner != shard) {
            starts.push((first, shard));
        }
    }
    if next == SLOT_COUNT { Ok(starts) } else { Err(slot_error(next, 0)) }
}

fn slot_error(slot: u16, owners: u32) -> ClusterError {
    match Slot::new(slot) {
        Some(slot) => ClusterError::SlotOwners { slot, owners },
        None => ClusterError::malformed("a shard map", "a slot is out of bounds"),
    }
}
