//! What one transaction has read and will write: one entry per key, and one arena for all their
//! bytes.
//!
//! ```text
//!   entries  [ key ▪ read: version, value ▪ write: value ] [ … ]       arena  key│value read│value written│key│…
//!                │          └────────────────────┴──────────────────────────────┘ spans
//!   index    hash → entry, only above LINEAR_KEYS keys
//! ```
//!
//! Invariants: an entry's key never changes; a read that is known never changes (repeatable reads);
//! the bytes charged against the transaction's limit are those that some entry still points at;
//! what nobody points at is squeezed out before it exceeds them.

use hashbrown::HashTable;
use timestone_txn::validation::{BelowWatermark, LocalValidation};
use timestone_types::{Expiry, KeyspaceId, Timestamp, Version, limits as shared};
use timestone_wire::RangeEntry;

use crate::engine::backups::BackupIndex;
use crate::engine::replies::ReadAnswer;
use crate::engine::shards::ShardIndex;
use crate::{KeyName, LimitError, OpId, ValueView, limits};

/// A run of bytes in the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Span {
    start: u32,
    length: u32,
}

impl Span {
    const fn bytes(self) -> usize {
        self.length as usize
    }
}

/// How far a key's read has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadState {
    /// Nobody asked.
    None,
    /// A request is under way; its answer goes to this operation, when somebody still waits.
    Asked(Option<OpId>),
    /// Answered: what is below holds, and is validated at commit.
    Known,
}

/// What is to become of a key at commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PendingWrite {
    /// Nothing.
    None,
    /// It gets a value.
    Put,
    /// It becomes absent.
    Delete,
    /// The whole keyspace becomes absent (the key's bytes are empty, and there is one such entry
    /// per shard).
    Fence,
}

/// One key of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    hash: u64,
    key: Span,
    value_read: Span,
    value_written: Span,
    pub(crate) keyspace: KeyspaceId,
    pub(crate) shard: ShardIndex,
    pub(crate) read: ReadState,
    pub(crate) write: PendingWrite,
    pub(crate) present: bool,
    pub(crate) prepared_before: bool,
    pub(crate) version: Version,
    pub(crate) expires_read: Expiry,
    pub(crate) expires_written: Expiry,
    /// While asked.
    pub(crate) asked: Asked,
}

/// A read that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// When to ask again.
    pub(crate) due: Timestamp,
    /// When to give up.
    pub(crate) deadline: Timestamp,
    /// How often it was refused for a while.
    pub(crate) attempts: u32,
    /// Whether it was asked at all since the transaction began, under the number that it has.
    pub(crate) before: bool,
    /// The backup that was asked last; `None`: the primary.
    pub(crate) backup: Option<BackupIndex>,
    /// A backup has refused, or was silent: the primary alone is asked from then on.
    pub(crate) was_left: bool,
}

/// The read set and the write set.
#[derive(Debug, Default)]
pub(crate) struct KeySet {
    arena: Vec<u8>,
    /// Bytes of the arena that nobody points at any more.
    dead: usize,
    entries: Vec<Entry>,
    index: HashTable<u32>,
    charged: usize,
    writes: u32,
    /// The keyspaces that are fenced.
    fenced: Vec<KeyspaceId>,
}

impl KeySet {
    /// Gives a large buffer back, once nobody looks at the set any more. Whole: a part of it that
    /// stayed would hold the place where it lies.
    #[inline]
    pub(crate) fn close(&mut self) {
        if self.arena.capacity() > limits::KEPT_ARENA_BYTES {
            self.arena = Vec::new();
        }
        debug_assert!(self.arena.capacity() <= limits::KEPT_ARENA_BYTES, "a giant stays for ever");
    }

    /// Empties the set and keeps its buffers, unless one had become very large.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.index.clear();
        self.arena.clear();
        self.dead = 0;
        self.close();
        if self.entries.capacity() > limits::KEPT_ENTRIES {
            self.entries.shrink_to(limits::KEPT_ENTRIES);
            self.index = HashTable::new();
        }
        self.charged = 0;
        self.writes = 0;
        self.fenced = Vec::new();
        self.assert_sound();
    }

    pub(crate) fn entry(&self, at: u32) -> &Entry {
        &self.entries[at as usize]
    }

    pub(crate) fn entry_mut(&mut self, at: u32) -> &mut Entry {
        &mut self.entries[at as usize]
    }

    /// How many keys are to be written.
    pub(crate) const fn writes(&self) -> u32 {
        self.writes
    }

    pub(crate) fn key(&self, at: u32) -> KeyName<'_> {
        let entry = self.entry(at);
        KeyName { keyspace: entry.keyspace, key: self.bytes(entry.key) }
    }

    fn bytes(&self, span: Span) -> &[u8] {
        &self.arena[span.start as usize..span.start as usize + span.bytes()]
    }

    pub(crate) fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Whether the transaction can answer a read of this key by itself.
    pub(crate) fn is_known(&self, at: u32) -> bool {
        let entry = self.entry(at);
        entry.write != PendingWrite::None || entry.read == ReadState::Known
    }

    /// The keys that take part in the commit, and whether each is to be written.
    pub(crate) fn taking_part(&self) -> impl Iterator<Item = (KeyName<'_>, bool)> {
        self.committed().map(|entry| {
            let key = KeyName { keyspace: entry.keyspace, key: self.bytes(entry.key) };
            (key, entry.write != PendingWrite::None)
        })
    }

    /// The entries that take part in the commit: read, or to be written.
    fn committed(&self) -> impl Iterator<Item = &Entry> {
        self.entries
            .iter()
            .filter(|entry| entry.read == ReadState::Known || entry.write != PendingWrite::None)
    }

    /// The writes in a range, in no order.
    pub(crate) fn writes_in(
        &self,
        range: &RangeEntry<'_>,
    ) -> impl Iterator<Item = (Vec<u8>, Option<ValueView<'_>>)> {
        let RangeEntry { keyspace, from, to, .. } = *range;
        let inside = (0u32..).zip(&self.entries).filter(move |(_, entry)| {
            let key = self.bytes(entry.key);
            let is_written = matches!(entry.write, PendingWrite::Put | PendingWrite::Delete);
            let is_inside = key >= from && to.is_none_or(|to| key < to);
            entry.keyspace == keyspace && is_written && is_inside
        });
        inside.map(|(at, entry)| {
            let is_put = entry.write == PendingWrite::Put;
            (self.bytes(entry.key).to_vec(), self.view(at).filter(|_| is_put))
        })
    }

    /// The shards that take part, with repetitions.
    pub(crate) fn shards(&self) -> impl Iterator<Item = ShardIndex> + '_ {
        self.committed().map(|entry| entry.shard)
    }

    /// The entries of a shard that were read, in order: the reads of its part of the prepare.
    pub(crate) fn reads_of(
        &self,
        shard: ShardIndex,
    ) -> impl Iterator<Item = (u32, &Entry)> + Clone {
        (0u32..)
            .zip(&self.entries)
            .filter(move |(_, entry)| entry.shard == shard && entry.read == ReadState::Known)
    }

    /// The entries of a shard that are to be written, in order: the writes of its part of the
    /// prepare.
    pub(crate) fn writes_of(
        &self,
        shard: ShardIndex,
    ) -> impl Iterator<Item = (u32, &Entry)> + Clone {
        (0u32..)
            .zip(&self.entries)
            .filter(move |(_, entry)| entry.shard == shard && entry.write != PendingWrite::None)
    }

    /// The entry that a participant counts as `item`: its reads first, then its writes.
    pub(crate) fn item(&self, shard: ShardIndex, item: u32) -> Option<u32> {
        self.reads_of(shard).chain(self.writes_of(shard)).nth(item as usize).map(|(at, _)| at)
    }

    /// What its reads come to, were it to commit without writes: the places are those of entries.
    pub(crate) fn validate_locally(&self, must_be_latest: bool) -> LocalValidation {
        let mut validation = LocalValidation::new(must_be_latest);
        for (at, entry) in self.entries.iter().enumerate() {
            if entry.read == ReadState::Known {
                validation.observe(at as u32, entry.prepared_before);
            }
        }
        validation
    }

    /// Whether all that was read lies below a watermark.
    pub(crate) fn lies_below(&self, watermark: Timestamp) -> bool {
        let mut rule = BelowWatermark::new(watermark);
        for entry in self.entries.iter().filter(|entry| entry.read == ReadState::Known) {
            rule.observe(entry.version, entry.expires_read);
        }
        rule.holds()
    }

    /// The highest timestamp of any version read.
    pub(crate) fn highest_read(&self) -> Timestamp {
        let read = self.entries.iter().filter(|entry| entry.read == ReadState::Known);
        read.map(|entry| entry.version.timestamp).max().unwrap_or(Timestamp::ZERO)
    }

    /// When something is to be done about a read that is under way.
    pub(crate) fn due(&self) -> Timestamp {
        let asked = self.entries.iter().filter(|entry| matches!(entry.read, ReadState::Asked(_)));
        let due = asked.map(|entry| entry.asked.due.min(entry.asked.deadline));
        due.min().unwrap_or(Timestamp::MAX)
    }

    /// Takes the operation off that waits for a key's read.
    pub(crate) fn take_waiter(&mut self, at: u32) -> Option<OpId> {
        let entry = self.entry_mut(at);
        debug_assert!(entry.read != ReadState::None, "nobody asked, and somebody waits");
        let ReadState::Asked(op) = &mut entry.read else { return None };
        op.take()
    }

    /// The bytes that an entry is to write.
    pub(crate) fn value_written(&self, at: u32) -> &[u8] {
        self.bytes(self.entry(at).value_written)
    }

    /// What the transaction itself knows of a key: its own write, else its own read.
    pub(crate) fn view(&self, at: u32) -> Option<ValueView<'_>> {
        let entry = self.entry(at);
        match entry.write {
            PendingWrite::Put => {
                let value = Some(self.bytes(entry.value_written));
                Some(ValueView { value, version: Version::ZERO, expires_at: entry.expires_written })
            }
            PendingWrite::Delete | PendingWrite::Fence => {
                Some(ValueView { value: None, version: Version::ZERO, expires_at: Expiry::NEVER })
            }
            PendingWrite::None => self.view_read(at),
        }
    }

    /// What a key's read found, own writes left aside.
    pub(crate) fn view_read(&self, at: u32) -> Option<ValueView<'_>> {
        let entry = self.entries.get(at as usize).filter(|entry| entry.read == ReadState::Known)?;
        let value = entry.present.then(|| self.bytes(entry.value_read));
        Some(ValueView { value, version: entry.version, expires_at: entry.expires_read })
    }

    /// An operation does not wait for this key's read any more. Another key's read may be of the
    /// same name: hosts name operations as they like.
    pub(crate) fn forget_waiter(&mut self, at: u32, op: OpId) {
        let Some(entry) = self.entries.get_mut(at as usize) else { return };
        if entry.read == ReadState::Asked(Some(op)) {
            entry.read = ReadState::Asked(None);
        }
        debug_assert!(entry.read != ReadState::Asked(Some(op)), "{op:?} waits after all");
    }

    /// The entry of a key.
    pub(crate) fn find(&self, hash: u64, keyspace: KeyspaceId, key: &[u8]) -> Option<u32> {
        let same = |entry: &Entry| {
            entry.hash == hash
                && entry.keyspace == keyspace
                && entry.write != PendingWrite::Fence
                && self.bytes(entry.key) == key
        };
        if self.entries.len() <= limits::LINEAR_KEYS {
            let at = self.entries.iter().position(same)?;
            return u32::try_from(at).ok();
        }
        self.index.find(hash, |&at| same(&self.entries[at as usize])).copied()
    }

    /// The entry of a key, made when there is none yet.
    pub(crate) fn find_or_insert(
        &mut self,
        hash: u64,
        keyspace: KeyspaceId,
        key: &[u8],
        shard: ShardIndex,
    ) -> Result<u32, LimitError> {
        match self.find(hash, keyspace, key) {
            Some(at) => {
                debug_assert!(self.entry(at).shard == shard, "a key has two shards");
                Ok(at)
            }
            None => self.add(hash, keyspace, key, shard),
        }
    }

    /// A new entry for a key that has none.
    pub(crate) fn add(
        &mut self,
        hash: u64,
        keyspace: KeyspaceId,
        key: &[u8],
        shard: ShardIndex,
    ) -> Result<u32, LimitError> {
        if key.is_empty() {
            return Err(LimitError::EmptyKey);
        }
        if key.len() > shared::MAX_KEY_BYTES {
            return Err(LimitError::KeyTooLong { bytes: key.len() });
        }
        debug_assert!(self.find(hash, keyspace, key).is_none(), "a key has two entries");
        self.insert(hash, keyspace, key, shard)
    }

    fn insert(
        &mut self,
        hash: u64,
        keyspace: KeyspaceId,
        key: &[u8],
        shard: ShardIndex,
    ) -> Result<u32, LimitError> {
        if self.entries.len() >= shared::MAX_TXN_KEYS {
            return Err(LimitError::TooManyKeys);
        }
        self.charge(0, key.len())?;
        let key = self.store(key);
        let at = self.entries.len() as u32;
        self.entries.push(Entry {
            hash,
            key,
            value_read: Span::default(),
            value_written: Span::default(),
            keyspace,
            shard,
            read: ReadState::None,
            write: PendingWrite::None,
            present: false,
            prepared_before: false,
            version: Version::ZERO,
            expires_read: Expiry::NEVER,
            expires_written: Expiry::NEVER,
            asked: Asked {
                due: Timestamp::MAX,
                deadline: Timestamp::MAX,
                attempts: 0,
                before: false,
                backup: None,
                was_left: false,
            },
        });
        let (index, entries) = (&mut self.index, &self.entries);
        let hash_of = |&at: &u32| entries[at as usize].hash;
        if entries.len() == limits::LINEAR_KEYS + 1 {
            for (at, entry) in (0u32..).zip(entries) {
                index.insert_unique(entry.hash, at, hash_of);
            }
        } else if entries.len() > limits::LINEAR_KEYS {
            index.insert_unique(hash, at, hash_of);
        }
        self.assert_sound();
        Ok(at)
    }

    /// Whether a keyspace is fenced.
    #[inline]
    pub(crate) fn is_fenced(&self, keyspace: KeyspaceId) -> bool {
        self.fenced.contains(&keyspace)
    }

    /// Whether keys of a keyspace are to be written.
    pub(crate) fn writes_to(&self, keyspace: KeyspaceId) -> bool {
        let is_written =
            |entry: &Entry| matches!(entry.write, PendingWrite::Put | PendingWrite::Delete);
        self.entries.iter().any(|entry| entry.keyspace == keyspace && is_written(entry))
    }

    /// Adds a fence of a keyspace on one shard.
    pub(crate) fn fence(
        &mut self,
        keyspace: KeyspaceId,
        shard: ShardIndex,
    ) -> Result<(), LimitError> {
        let known = |entry: &Entry| {
            entry.write == PendingWrite::Fence && entry.keyspace == keyspace && entry.shard == shard
        };
        if self.entries.iter().any(known) {
            return Ok(());
        }
        let at = self.insert(0, keyspace, &[], shard)?;
        self.entry_mut(at).write = PendingWrite::Fence;
        if !self.is_fenced(keyspace) {
            self.fenced.push(keyspace);
        }
        self.writes += 1;
        self.assert_sound();
        Ok(())
    }

    /// Records what a read found. The first answer stays.
    pub(crate) fn learn(&mut self, at: u32, answer: ReadAnswer<'_>) -> Result<(), LimitError> {
        let bytes = answer.value.unwrap_or_default();
        self.charge(0, bytes.len())?;
        let value_read = self.store(bytes);
        let entry = self.entry_mut(at);
        assert!(entry.read != ReadState::Known, "a read was answered twice");
        entry.read = ReadState::Known;
        entry.value_read = value_read;
        entry.present = answer.value.is_some();
        entry.prepared_before = answer.prepared_before;
        entry.version = answer.version;
        entry.expires_read = answer.expires_at;
        self.assert_sound();
        Ok(())
    }

    /// Buffers a write: a value, or a deletion.
    pub(crate) fn write(
        &mut self,
        at: u32,
        value: Option<&[u8]>,
        expires_at: Expiry,
    ) -> Result<(), LimitError> {
        let bytes = value.unwrap_or_default();
        if bytes.len() > shared::MAX_VALUE_BYTES {
            return Err(LimitError::ValueTooLong { bytes: bytes.len() });
        }
        let old = self.entry(at).value_written;
        self.charge(old.bytes(), bytes.len())?;
        let span = if bytes.len() <= old.bytes() {
            let start = old.start as usize;
            self.arena[start..start + bytes.len()].copy_from_slice(bytes);
            Span { start: old.start, length: bytes.len() as u32 }
        } else {
            self.entry_mut(at).value_written = Span::default();
            let end = old.start as usize + old.bytes();
            if old.bytes() > 0 && end == self.arena.len() {
                // The last one in the arena grows where it is.
                self.arena.truncate(old.start as usize);
            } else {
                self.dead += old.bytes();
            }
            self.store(bytes)
        };
        let entry = self.entry_mut(at);
        entry.value_written = span;
        entry.expires_written = expires_at;
        let first = entry.write == PendingWrite::None;
        entry.write = if value.is_some() { PendingWrite::Put } else { PendingWrite::Delete };
        self.writes += u32::from(first);
        assert!(self.writes as usize <= self.entries.len(), "more writes than keys");
        self.assert_sound();
        Ok(())
    }

    /// Replaces `old` charged bytes by `new` ones, within the transaction's limit.
    fn charge(&mut self, old: usize, new: usize) -> Result<(), LimitError> {
        let bytes = self.charged - old + new;
        if bytes > shared::MAX_TXN_BYTES {
            return Err(LimitError::TransactionTooLarge { bytes });
        }
        self.charged = bytes;
        debug_assert!(self.charged <= self.arena.len() + new, "bytes are charged that nobody has");
        Ok(())
    }

    fn store(&mut self, bytes: &[u8]) -> Span {
        let is_full =
            self.arena.len() + bytes.len() > 2 * shared::MAX_TXN_BYTES + shared::MAX_VALUE_BYTES;
        // Half of it dead: to go through the rest costs no more than to have written the dead.
        let is_mostly_dead =
            self.dead > limits::DEAD_ARENA_BYTES && self.dead > self.arena.len() / 2;
        if is_full || is_mostly_dead {
            self.squeeze(bytes.len());
        }
        let start = self.arena.len() as u32;
        self.arena.extend_from_slice(bytes);
        debug_assert!(self.dead <= start as usize, "more bytes are dead than there were");
        Span { start, length: bytes.len() as u32 }
    }

    /// Drops the bytes that nobody points at any more: values that larger ones replaced.
    fn squeeze(&mut self, more: usize) {
        let mut fresh = Vec::with_capacity(self.charged + more);
        for entry in &mut self.entries {
            for span in [&mut entry.key, &mut entry.value_read, &mut entry.value_written] {
                let start = fresh.len() as u32;
                fresh.extend_from_slice(
                    &self.arena[span.start as usize..span.start as usize + span.bytes()],
                );
                span.start = start;
            }
        }
        assert!(fresh.len() <= self.arena.len(), "squeezing does not grow");
        self.arena = fresh;
        self.dead = 0;
    }

    /// The sums agree with the entries, and the index with their number. Walks the entries in debug
    /// builds, where they are few; the sums of a large set are checked at its ends.
    #[inline]
    fn assert_sound(&self) {
        let has_index = self.entries.len() > limits::LINEAR_KEYS;
        let indexed = if has_index { self.entries.len() } else { 0 };
        debug_assert!(self.index.len() == indexed, "the index has lost a key");
        debug_assert!(self.charged + self.dead <= self.arena.len(), "bytes that nobody has");
        if cfg!(debug_assertions) && self.entries.len() <= limits::LINEAR_KEYS + 1 {
            self.assert_sums();
        }
    }

    /// What is charged is what entries point at, and what is counted as a write is one.
    pub(super) fn assert_sums(&self) {
        let bytes_of = |entry: &Entry| {
            entry.key.bytes() + entry.value_read.bytes() + entry.value_written.bytes()
        };
        let pointed_at: usize = self.entries.iter().map(bytes_of).sum();
        assert_eq!(self.charged, pointed_at, "what is charged is not what is kept");
        let is_write = |entry: &&Entry| entry.write != PendingWrite::None;
        let is_fence = |entry: &Entry| entry.write == PendingWrite::Fence;
        let known = self.entries.iter().filter(|entry| is_fence(entry));
        assert!(
            known.map(|entry| entry.keyspace).all(|one| self.is_fenced(one)),
            "a fence that nobody knows"
        );
        let writes = self.entries.iter().filter(is_write).count();
        assert_eq!(self.writes as usize, writes, "writes are counted that there are not");
    }
}

// Offsets are 32 bits wide: the arena's bound must fit.
const _: () = assert!(2 * shared::MAX_TXN_BYTES + shared::MAX_VALUE_BYTES < u32::MAX as usize);
const _: () = assert!(shared::MAX_TXN_KEYS < u32::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: KeyspaceId = KeyspaceId::DEFAULT;

    fn found(value: &[u8], at: u64) -> ReadAnswer<'_> {
        let version = Version::new(
            timestone_types::Timestamp::from_nanos(at),
            timestone_types::ClientId::new(1),
        );
        ReadAnswer {
            version,
            expires_at: Expiry::NEVER,
            prepared_before: false,
            value: Some(value),
        }
    }

    fn insert(set: &mut KeySet, key: &[u8]) -> u32 {
        set.find_or_insert(u64::from(key[0]), SPACE, key, ShardIndex(0)).unwrap()
    }

    #[test]
    fn own_writes_hide_reads_and_reads_survive_them() {
        let mut set = KeySet::default();
        let at = insert(&mut set, b"a");
        assert_eq!(set.view(at), None);
        set.learn(at, found(b"old", 5)).unwrap();
        assert_eq!(set.view(at).unwrap().value, Some(&b"old"[..]));
        set.write(at, Some(b"new value"), Expiry::NEVER).unwrap();
        assert_eq!(set.view(at).unwrap().value, Some(&b"new value"[..]));
        set.write(at, None, Expiry::NEVER).unwrap();
        assert_eq!(set.view(at).unwrap().value, None);
        assert_eq!((set.writes(), set.entry(at).version.timestamp.as_nanos()), (1, 5));
    }

    #[test]
    fn keys_are_found_below_and_above_the_linear_bound_even_with_equal_hashes() {
        let mut set = KeySet::default();
        for raw in 0..100u8 {
            let at =
                set.find_or_insert(u64::from(raw % 3), SPACE, &[raw, 1], ShardIndex(0)).unwrap();
            assert_eq!(at, u32::from(raw));
        }
        for raw in 0..100u8 {
            assert_eq!(set.find(u64::from(raw % 3), SPACE, &[raw, 1]), Some(u32::from(raw)));
        }
        assert_eq!(set.find(0, SPACE, b"no"), None);
        assert_eq!(set.find(0, KeyspaceId::new(1), &[0, 1]), None);
        set.clear();
        assert_eq!(set.find(0, SPACE, &[0, 1]), None);
    }

    #[test]
    fn limits_are_told_and_leave_the_set_as_it_was() {
        let mut set = KeySet::default();
        assert_eq!(set.find_or_insert(0, SPACE, b"", ShardIndex(0)), Err(LimitError::EmptyKey));
        let long = vec![1; shared::MAX_KEY_BYTES + 1];
        assert_eq!(
            set.find_or_insert(0, SPACE, &long, ShardIndex(0)),
            Err(LimitError::KeyTooLong { bytes: long.len() })
        );
        let at = insert(&mut set, b"a");
        let long = vec![1; shared::MAX_VALUE_BYTES + 1];
        assert_eq!(
            set.write(at, Some(&long), Expiry::NEVER),
            Err(LimitError::ValueTooLong { bytes: long.len() })
        );
        assert_eq!(set.writes(), 0);
        let value = &long[..shared::MAX_VALUE_BYTES];
        for key in [b"a", b"b", b"c"] {
            let at = insert(&mut set, key);
            set.write(at, Some(value), Expiry::NEVER).unwrap();
        }
        let last = insert(&mut set, b"d");
        assert!(matches!(
            set.write(last, Some(value), Expiry::NEVER),
            Err(LimitError::TransactionTooLarge { .. })
        ));
        assert_eq!(set.view(last), None);
        let room = shared::MAX_TXN_BYTES - 3 * shared::MAX_VALUE_BYTES - 4;
        assert_eq!(
            set.write(last, Some(&value[..room]), Expiry::NEVER),
            Ok(()),
            "exactly the limit is allowed"
        );
    }

    #[test]
    fn values_that_grow_again_and_again_do_not_grow_the_arena_without_bound() {
        let mut set = KeySet::default();
        let at = insert(&mut set, b"a");
        let value = vec![7; shared::MAX_VALUE_BYTES];
        for step in 0..40 {
            set.write(at, Some(&value[..shared::MAX_VALUE_BYTES - 40 + step]), Expiry::NEVER)
                .unwrap();
        }
        assert!(set.arena.len() <= 2 * shared::MAX_TXN_BYTES + shared::MAX_VALUE_BYTES);
        assert_eq!(set.view(at).unwrap().value.unwrap().len(), shared::MAX_VALUE_BYTES - 1);
        assert_eq!(set.key(at).key, b"a");
    }

    #[test]
    fn values_that_grow_in_turns_leave_less_dead_than_there_is_alive() {
        let mut set = KeySet::default();
        let keys = [insert(&mut set, b"a"), insert(&mut set, b"b")];
        let value: Vec<u8> = (0..400_000u32).map(|n| n as u8).collect();
        for length in (1000..=value.len()).step_by(1000) {
            for at in keys {
                set.write(at, Some(&value[..length]), Expiry::NEVER).unwrap();
                assert!(set.view(at).unwrap().value == Some(&value[..length]));
            }
            let most = 2 * (2 * length + limits::DEAD_ARENA_BYTES);
            assert!(set.arena.len() <= most, "{} of {most} bytes", set.arena.len());
        }
        // One alone grows where it is.
        let mut set = KeySet::default();
        let at = insert(&mut set, b"a");
        (1..=value.len())
            .step_by(1000)
            .for_each(|length| set.write(at, Some(&value[..length]), Expiry::NEVER).unwrap());
        assert!(set.arena.len() <= value.len() + 1 && set.dead == 0);
    }
}
