//! The keyspaces of a workload's keys, and the store of each.
//!
//! ```text
//!   stores = ["mftl", "dram"]:   key 0 ─► default, on flash     key 1 ─► keyspace-1, in memory     key 2 ─► default …
//!   stores = ["mftl", "frugal"]: the same with its index on flash
//! ```
//! Keys go round all keyspaces by their numbers, so that neighbours of a transaction lie in
//! different stores of the same shards. The first one on flash is the default keyspace; the others
//! are created before anything is loaded. A key keeps its bytes, whatever its keyspace is.
//!
//! **A restart is a deletion.** What a keyspace in memory holds at a server is gone with the
//! server's process, whether it is killed or stopped (docs/operating.md, "Keyspaces in memory").
//! A history tells that as a deletion of each such key, by nobody's session, at the moment at which
//! the next process begins: whoever was acknowledged before comes before it, and whoever asks the
//! new process comes after it. Then all checkers hold as ever. One more is needed, because a
//! deletion that read nothing has no certain place among a register's versions: what was
//! acknowledged before a restart is never read by who began after it ([`Keyspaces::revived`]).
//!
//! What it does not do: lose what a server without a log may lose of keyspaces on flash; see
//! `restarts.rs`.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Deserializer, de};
use timestone_client::{KeyspaceOptions, LocalDb, Result};
use timestone_cluster::{IndexKind, ShardMap, StoreKind};
use timestone_types::{ClusterId, KeyspaceId, ShardId};
use timestone_workload::history::{EventKind, History, MicroOp, Process, Seen};
use timestone_workload::{KeyIndex, KeyShape};

use crate::names;

/// `[keyspaces]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct KeyspacesPart {
    /// The store of each keyspace that the workload uses: `mftl`, `dram`, or `frugal`, whose index is
    /// on flash. Keys go round them by their numbers. One keyspace on flash when it is left out.
    pub stores: Vec<KeyspaceStore>,
    /// Bytes of memory that a server has for keyspaces in memory, over all its shards; the usual
    /// number when left out.
    pub dram_bytes: Option<u64>,
    /// Their keys are in order. None of them is the default keyspace then.
    pub ordered: bool,
}

/// The store of a keyspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyspaceStore {
    /// On flash, with its index in memory.
    Mftl,
    /// In memory only.
    Dram,
    /// On flash, with its index there, too.
    Frugal,
}

impl<'de> Deserialize<'de> for KeyspaceStore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "mftl" => Ok(Self::Mftl),
            "dram" => Ok(Self::Dram),
            "frugal" => Ok(Self::Frugal),
            name => Err(de::Error::custom(format!(
                "there is no store {name:?}; the stores are mftl, dram and frugal"
            ))),
        }
    }
}

impl KeyspaceStore {
    /// The options of such a keyspace, with its keys in order or not.
    fn options(self, ordered: bool) -> KeyspaceOptions {
        let (store, index) = match self {
            Self::Dram if ordered => (StoreKind::Dram, IndexKind::Ordered),
            Self::Dram => (StoreKind::Dram, IndexKind::Full),
            Self::Mftl if ordered => (StoreKind::Mftl, IndexKind::Ordered),
            Self::Mftl => (StoreKind::Mftl, IndexKind::Full),
            Self::Frugal => (StoreKind::Mftl, IndexKind::Frugal),
        };
        KeyspaceOptions { store, index, ..KeyspaceOptions::DEFAULT }
    }
}

impl KeyspacesPart {
    /// Whether any keyspace is in memory only.
    pub(crate) fn has_memory(&self) -> bool {
        self.stores.contains(&KeyspaceStore::Dram)
    }

    /// Whether the index of any keyspace is on flash.
    pub(crate) fn has_frugal(&self) -> bool {
        self.stores.contains(&KeyspaceStore::Frugal)
    }
}

/// A key that was lost with the memory of its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Lost {
    key: KeyIndex,
    /// The place of its deletion's completion among the events of the history.
    place: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Keyspaces {
    stores: Vec<KeyspaceStore>,
    ordered: bool,
    /// In the order of the stores; unset until they are created.
    ids: OnceLock<Vec<KeyspaceId>>,
    lost: Mutex<Vec<Lost>>,
}

impl Keyspaces {
    pub(crate) fn new(part: &KeyspacesPart) -> Self {
        Self { stores: part.stores.clone(), ordered: part.ordered, ..Self::default() }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.stores.len().max(1) as u64
    }

    /// Which one of them has a key.
    pub(crate) fn number_of(&self, key: KeyIndex) -> u64 {
        key.0 % self.count()
    }

    /// The id of the keyspace of a key.
    pub(crate) fn of(&self, key: KeyIndex) -> KeyspaceId {
        let ids = self.ids.get().map_or(&[][..], Vec::as_slice);
        ids.get(self.number_of(key) as usize).copied().unwrap_or(KeyspaceId::DEFAULT)
    }

    /// Those whose index may be changed: on flash, and their keys in no order.
    pub(crate) fn convertible(&self) -> Vec<KeyspaceId> {
        let ids = self.ids.get().map_or(&[KeyspaceId::DEFAULT][..], Vec::as_slice);
        let on_flash = |id: &&KeyspaceId| !id.is_in_memory() && !id.is_ordered();
        ids.iter().filter(on_flash).copied().collect()
    }

    fn is_in_memory(&self, key: KeyIndex) -> bool {
        self.stores.get(self.number_of(key) as usize) == Some(&KeyspaceStore::Dram)
    }

    /// Creates those that are missing.
    pub(crate) async fn create(&self, db: &LocalDb) -> Result<()> {
        if self.stores.is_empty() || self.ids.get().is_some() {
            return Ok(());
        }
        let known = db.keyspaces().await?;
        let is_default = |store: &KeyspaceStore| *store == KeyspaceStore::Mftl && !self.ordered;
        let default = self.stores.iter().position(is_default);
        let mut ids = Vec::new();
        for (number, &store) in self.stores.iter().enumerate() {
            let name = format!("keyspace-{number}");
            let found = known.iter().find(|keyspace| keyspace.name.as_str() == name);
            ids.push(match found {
                _ if default == Some(number) => KeyspaceId::DEFAULT,
                Some(found) => found.id,
                None => db.create_keyspace(&name, store.options(self.ordered)).await?.id,
            });
        }
        assert_eq!(ids.len(), self.stores.len(), "every keyspace has an id");
        // There is one loading task.
        let _ = self.ids.set(ids);
        Ok(())
    }

    /// Of `keys`, those that lie in the memory of these shards, of `total` in the cluster.
    pub(crate) fn in_memory_of<'a>(
        &'a self,
        shards: &'a [ShardId],
        total: u16,
        shape: KeyShape,
        keys: impl Iterator<Item = KeyIndex> + 'a,
    ) -> impl Iterator<Item = KeyIndex> + 'a {
        // The master cuts the slots evenly, and nothing moves.
        let map = ShardMap::even(ClusterId::default(), total).ok();
        let mut bytes = Vec::new();
        keys.filter(move |&key| {
            bytes.clear();
            shape.write(key, &mut bytes);
            let owner = map.as_ref().map(|map| map.shard_of_key(&bytes));
            self.is_in_memory(key) && owner.is_some_and(|owner| shards.contains(&owner))
        })
    }

    /// A key was lost; `place` is that of its deletion's completion in the history.
    pub(crate) fn lose(&self, key: KeyIndex, place: usize) {
        debug_assert!(self.is_in_memory(key), "a restart takes what is in memory, and no more");
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).push(Lost { key, place });
    }

    /// What was read although it had been acknowledged before its key was lost, and the reader
    /// began only afterwards.
    pub(crate) fn revived(&self, history: &History) -> Vec<String> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let mut losses: BTreeMap<KeyIndex, Vec<usize>> = BTreeMap::new();
        for one in lost.iter() {
            losses.entry(one.key).or_default().push(one.place);
        }
        if losses.is_empty() {
            return Vec::new();
        }
        // Where each value was acknowledged, and where each reader began.
        let mut written: BTreeMap<(KeyIndex, i64), usize> = BTreeMap::new();
        let mut invoked: BTreeMap<Process, usize> = BTreeMap::new();
        let mut revived = Vec::new();
        for (place, event) in history.events.iter().enumerate() {
            let began = match event.kind {
                EventKind::Invoke => {
                    invoked.insert(event.process, place);
                    continue;
                }
                EventKind::Ok => invoked.remove(&event.process).unwrap_or(place),
                _ => continue,
            };
            let lost_before = |key: &KeyIndex| {
                let places = losses.get(key)?;
                places[..places.partition_point(|&lost| lost < began)].last().copied()
            };
            for op in &event.ops {
                let (key, seen) = match op {
                    MicroOp::Read { key, seen: Seen::Integer(value) } => (key, &[*value][..]),
                    MicroOp::Read { key, seen: Seen::List(list) } => (key, &list[..]),
                    _ => continue,
                };
                let Some(lost) = lost_before(key) else { continue };
                for value in seen {
                    if written.get(&(*key, *value)).is_some_and(|&at| at < lost) {
                        let reader = names::transaction(history.events[began].index);
                        revived.push(format!(
                            "{reader} (process {}) read {value} from key {}, which was \
                             acknowledged before the server restarted that had it in memory only",
                            event.process.0, key.0
                        ));
                    }
                }
            }
            for op in &event.ops {
                let value = match *op {
                    MicroOp::Append { element, .. } => Some(element),
                    _ => op.written(),
                };
                written.extend(value.map(|value| ((op.key(), value), place)));
            }
        }
        revived
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use timestone_types::Timestamp;
    use timestone_workload::history::Event;

    const SHAPE_BYTES: usize = 16;

    fn keyspaces() -> Keyspaces {
        let stores = vec![KeyspaceStore::Mftl, KeyspaceStore::Dram];
        Keyspaces::new(&KeyspacesPart { stores, dram_bytes: None, ordered: false })
    }

    fn did(events: &mut Vec<Event>, process: u64, ops: Vec<MicroOp>) {
        for kind in [EventKind::Invoke, EventKind::Ok] {
            let (index, time) = (events.len() as u64, Timestamp::from_nanos(events.len() as u64));
            events.push(Event { kind, process: Process(process), index, time, ops: ops.clone() });
        }
    }

    const fn read(key: u64, value: i64) -> MicroOp {
        MicroOp::Read { key: KeyIndex(key), seen: Seen::Integer(value) }
    }

    const fn write(key: u64, value: Option<i64>) -> MicroOp {
        MicroOp::Write { key: KeyIndex(key), value }
    }

    #[test]
    fn a_shard_loses_its_own_keys_in_memory_and_no_others() {
        let keyspaces = keyspaces();
        let shape = KeyShape::new(SHAPE_BYTES);
        let of = |shards: &[ShardId]| -> Vec<u64> {
            let keys = (0..100).map(KeyIndex);
            keyspaces.in_memory_of(shards, 2, shape, keys).map(|key| key.0).collect()
        };
        let (one, other) = (of(&[ShardId::new(0)]), of(&[ShardId::new(1)]));
        assert!(one.len() > 5 && other.len() > 5, "{one:?} {other:?}");
        assert!(one.iter().chain(&other).all(|key| key % 2 == 1), "even keys are on flash");
        assert_eq!(one.len() + other.len(), 50, "each key has one shard");
    }

    #[test]
    fn what_was_lost_is_not_read_again() {
        let keyspaces = keyspaces();
        let mut history = History::default();
        did(&mut history.events, 1, vec![write(1, Some(7))]);
        did(&mut history.events, 2, vec![read(1, 7)]);
        did(&mut history.events, 9, vec![write(1, None)]);
        keyspaces.lose(KeyIndex(1), history.events.len() - 1);
        assert_eq!(keyspaces.revived(&history), Vec::<String>::new());
        did(&mut history.events, 2, vec![write(1, Some(8))]);
        did(&mut history.events, 1, vec![read(1, 8)]);
        assert_eq!(keyspaces.revived(&history), Vec::<String>::new(), "8 was written afterwards");
        did(&mut history.events, 2, vec![read(1, 7)]);
        let said = keyspaces.revived(&history);
        assert!(said[..].len() == 1 && said[0].starts_with("T10 (process 2) read 7"), "{said:?}");
    }

    #[test]
    fn who_was_under_way_when_its_server_restarted_may_have_read_before() {
        let keyspaces = keyspaces();
        let mut history = History::default();
        did(&mut history.events, 1, vec![write(1, Some(7))]);
        let mut reads = Vec::new();
        did(&mut reads, 2, vec![read(1, 7)]);
        history.events.push(reads.remove(0));
        did(&mut history.events, 9, vec![write(1, None)]);
        keyspaces.lose(KeyIndex(1), history.events.len() - 1);
        history.events.push(reads.remove(0));
        assert_eq!(keyspaces.revived(&history), Vec::<String>::new());
    }
}
