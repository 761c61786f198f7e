//! The bytes of prepared transactions, kept from the prepare until its writes are applied.
//!
//! The participant's core knows keys as hashes; key bytes and values stay here, as a body of a prepare
//! that has no reads any more, copied once into a pooled buffer. The same bytes go to the log.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Included, Unbounded};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use timestone_store::{KeyRange, PromisedPuts, PutsInMemory};
use timestone_types::{HashedKey, KeyspaceId, ShardId, Timestamp, TxnId};
use timestone_wal::BatchNumber;
use timestone_wire::{PrepareBody, WriteEntry, WriteKind};

/// What a prepare brought.
#[derive(Debug, Default)]
pub(crate) struct Payload {
    /// The writes, as the wire lays out a body without reads.
    pub(crate) body: Vec<u8>,
    /// The keys of its writes, in their order; none of a payload that was recovered.
    pub(crate) keys: Vec<HashedKey>,
    /// The transaction's snapshot.
    pub(crate) begin: Timestamp,
    /// All participants.
    pub(crate) participants: Vec<ShardId>,
    /// Whether this shard is the only one.
    pub(crate) single: bool,
    /// The latest timestamp that was to be promised.
    pub(crate) commit: Timestamp,
    /// The batch that holds the latest prepare record; none before it is logged.
    pub(crate) batch: Option<BatchNumber>,
    /// Whether any of its keys are among those in order.
    is_in_order: bool,
    /// Its writes to keyspaces in memory.
    in_memory: PutsInMemory,
}

/// Payloads by transaction, with a free list so that the steady state allocates nothing.
#[derive(Default)]
pub(crate) struct Payloads {
    by_txn: HashMap<TxnId, Payload, FixedState>,
    /// Of all bodies: their writes, deletes among them, and their bytes.
    sum: PromisedPuts,
    /// What they write to keyspaces whose keys are in order.
    in_order: BTreeSet<(KeyspaceId, Vec<u8>, TxnId)>,
    free: Vec<Payload>,
}

/// Free payloads that are kept for reuse.
const KEEP_FREE: usize = 1024;
/// A buffer that grew beyond this is not kept.
const KEEP_BYTES: usize = 64 * 1024;

impl Payloads {
    /// Keeps a prepare's writes, replacing those of an earlier round.
    pub(crate) fn keep(
        &mut self,
        txn: TxnId,
        begin: Timestamp,
        single: bool,
        participants: &[ShardId],
        (body, keys): (PrepareBody<'_>, &[HashedKey]),
    ) -> &mut Payload {
        let size = (body.bytes_of_writes(), body.writes().len());
        let payload = self.open(txn, begin, single, participants, (size, keys));
        payload.body.clear();
        body.append_writes(&mut payload.body);
        self.note_in_memory(txn, keys);
        self.put_in_order(txn);
        self.by_txn.entry(txn).or_default()
    }

    /// The same of a single write, whose body is taken; another buffer is left in its place.
    #[inline]
    pub(crate) fn keep_whole(
        &mut self,
        txn: TxnId,
        begin: Timestamp,
        participants: &[ShardId],
        (body, keys): (&mut Vec<u8>, &[HashedKey]),
    ) {
        let size = (body.len(), PrepareBody::write_count(body) as usize);
        let payload = self.open(txn, begin, true, participants, (size, keys));
        std::mem::swap(&mut payload.body, body);
        self.note_in_memory(txn, keys);
        self.put_in_order(txn);
        debug_assert!(self.by_txn.contains_key(&txn), "it is kept");
    }

    /// The payload of a transaction, as if it had a body of so many bytes and writes, which the caller
    /// gives it.
    #[inline]
    fn open(
        &mut self,
        txn: TxnId,
        begin: Timestamp,
        single: bool,
        participants: &[ShardId],
        ((bytes, writes), keys): ((usize, usize), &[HashedKey]),
    ) -> &mut Payload {
        let free = &mut self.free;
        let payload = self.by_txn.entry(txn).or_insert_with(|| free.pop().unwrap_or_default());
        self.sum.bytes = self.sum.bytes + bytes as u64 - payload.body.len() as u64;
        let before = u64::from(PrepareBody::write_count(&payload.body));
        self.sum.count = self.sum.count + writes as u64 - before;
        payload.keys.clear();
        payload.keys.extend_from_slice(keys);
        payload.participants.clear();
        payload.participants.extend_from_slice(participants);
        payload.begin = begin;
        payload.single = single;
        payload
    }

    /// Counts what a payload writes to keyspaces in memory, in place of what it wrote there in an earlier
    /// round.
    #[inline]
    fn note_in_memory(&mut self, txn: TxnId, keys: &[HashedKey]) {
        let is_on_flash = |key: &HashedKey| !key.keyspace.is_in_memory();
        let writes_none = !keys.is_empty() && keys.iter().all(is_on_flash);
        if writes_none && self.sum.in_memory.count == 0 {
            return;
        }
        let Some(payload) = self.by_txn.get_mut(&txn) else { return };
        let mut now = PutsInMemory::default();
        if !writes_none {
            let body = PrepareBody::parse(&payload.body).ok();
            let writes = body.into_iter().flat_map(|body| body.writes());
            for write in writes.filter(|write| write.keyspace.is_in_memory()) {
                now.add(write.keyspace, write.key.len(), write.value.len());
            }
        }
        let before = std::mem::replace(&mut payload.in_memory, now);
        let sum = &mut self.sum.in_memory;
        (sum.count, sum.bytes) =
            (sum.count + now.count - before.count, sum.bytes + now.bytes - before.bytes);
    }

    /// Notes what a payload writes to keyspaces whose keys are in order. Every round of a transaction writes
    /// the same.
    fn put_in_order(&mut self, txn: TxnId) {
        let Some(payload) = self.by_txn.get_mut(&txn) else { return };
        if payload.keys.is_empty() && timestone_types::is_planted!(UnorderedPromises) {
            return;
        }
        let is_out_of_order = |key: &HashedKey| !key.keyspace.is_ordered();
        if !payload.keys.is_empty() && payload.keys.iter().all(is_out_of_order) {
            return;
        }
        for write in keys_in_order(&payload.body) {
            payload.is_in_order = true;
            self.in_order.insert((write.keyspace, write.key.to_vec(), txn));
        }
    }

    /// Whose payloads write a key of a range, in the order of those keys, each at least once.
    pub(crate) fn writers_in(&self, range: KeyRange<'_>) -> Vec<TxnId> {
        if range.is_empty() || self.in_order.is_empty() {
            return Vec::new();
        }
        let first = TxnId::default();
        let from = Included((range.keyspace, range.from.to_vec(), first));
        let to = match range.to {
            Some(to) => Excluded((range.keyspace, to.to_vec(), first)),
            None => Unbounded,
        };
        let inside = self.in_order.range((from, to));
        let mut writers: Vec<TxnId> =
            inside.take_while(|one| one.0 == range.keyspace).map(|one| one.2).collect();
        writers.dedup();
        writers
    }

    /// What a transaction brought, if it is still kept.
    pub(crate) fn get_mut(&mut self, txn: TxnId) -> Option<&mut Payload> {
        self.by_txn.get_mut(&txn)
    }

    /// The same, to look at.
    pub(crate) fn get(&self, txn: TxnId) -> Option<&Payload> {
        self.by_txn.get(&txn)
    }

    /// Takes out what a transaction brought.
    pub(crate) fn take(&mut self, txn: TxnId) -> Option<Payload> {
        let payload = self.by_txn.remove(&txn)?;
        self.sum.bytes -= payload.body.len() as u64;
        self.sum.count -= u64::from(PrepareBody::write_count(&payload.body));
        self.sum.in_memory.count -= payload.in_memory.count;
        self.sum.in_memory.bytes -= payload.in_memory.bytes;
        if payload.is_in_order {
            for write in keys_in_order(&payload.body) {
                self.in_order.remove(&(write.keyspace, write.key.to_vec(), txn));
            }
        }
        debug_assert!(!self.by_txn.is_empty() || self.in_order.is_empty());
        debug_assert!(!self.by_txn.is_empty() || self.sum == PromisedPuts::default());
        Some(payload)
    }

    /// Forgets a transaction's bytes.
    pub(crate) fn forget(&mut self, txn: TxnId) {
        if let Some(payload) = self.take(txn) {
            self.recycle(payload);
        }
    }

    /// Takes back what was taken out, for its memory.
    pub(crate) fn recycle(&mut self, mut payload: Payload) {
        (payload.commit, payload.batch, payload.is_in_order) = (Timestamp::ZERO, None, false);
        payload.in_memory = PutsInMemory::default();
        payload.body.clear();
        if self.free.len() < KEEP_FREE && payload.body.capacity() <= KEEP_BYTES {
            self.free.push(payload);
        }
        debug_assert!(self.free.len() <= KEEP_FREE, "what is kept for reuse is bounded");
    }

    /// What was to be promised, and at which timestamps.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn promised(&self) -> Vec<(TxnId, Timestamp)> {
        self.by_txn.iter().map(|(&txn, payload)| (txn, payload.commit)).collect()
    }

    /// Whose prepares are in batches below this one, in the order of their ids: it becomes the
    /// order of log records.
    pub(crate) fn below(&self, batch: BatchNumber) -> Vec<TxnId> {
        let is_below = |payload: &Payload| payload.batch.is_some_and(|one| one < batch);
        let below =
            self.by_txn.iter().filter(|(_, payload)| is_below(payload)).map(|(&txn, _)| txn);
        let mut below: Vec<TxnId> = below.collect();
        below.sort_unstable();
        below
    }

    /// The lowest batch that holds the prepare of a payload.
    pub(crate) fn oldest_batch(&self) -> Option<BatchNumber> {
        self.by_txn.values().filter_map(|payload| payload.batch).min()
    }

    /// Bytes of all that are kept.
    pub(crate) const fn bytes(&self) -> u64 {
        self.sum.bytes
    }

    /// What the writes of all that are kept may take of a store, if each is a put.
    pub(crate) const fn puts(&self) -> PromisedPuts {
        self.sum
    }

    /// How many are kept.
    pub(crate) fn len(&self) -> usize {
        self.by_txn.len()
    }
}

/// The writes of a body to keyspaces whose keys are in order.
fn keys_in_order(body: &[u8]) -> impl Iterator<Item = WriteEntry<'_>> {
    let body = PrepareBody::parse(body).ok();
    let writes = body.into_iter().flat_map(|body| body.writes());
    writes.filter(|write| write.keyspace.is_ordered() && write.kind != WriteKind::Fence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use timestone_types::{ClientId, Expiry, KeyspaceId, Sequence};

    #[test]
    fn the_bytes_that_are_kept_are_counted_by_whatever_way_they_go() {
        let txn = |n| TxnId::new(ClientId::new(1), Sequence::new(n));
        let mut payloads = Payloads::default();
        // A body of so many bytes.
        let keep = |payloads: &mut Payloads, txn, bytes| {
            let mut entry = WriteEntry {
                keyspace: KeyspaceId::DEFAULT,
                kind: WriteKind::Put,
                expires_at: Expiry::NEVER,
                key: b"",
                value: b"",
            };
            let mut body = Vec::new();
            PrepareBody::of_one_write(&entry, &mut body);
            let value = vec![0; bytes - body.len()];
            entry.value = &value;
            body.clear();
            PrepareBody::of_one_write(&entry, &mut body);
            let body = PrepareBody::parse(&body).unwrap();
            payloads.keep(txn, Timestamp::ZERO, true, &[ShardId::ZERO], (body, &[]));
        };
        for n in 0..4 {
            keep(&mut payloads, txn(n), 100);
        }
        keep(&mut payloads, txn(0), 30);
        assert_eq!((payloads.len(), payloads.bytes()), (4, 330));
        assert_eq!(payloads.take(txn(1)).map(|payload| payload.body.len()), Some(100));
        payloads.forget(txn(0));
        payloads.forget(txn(1));
        assert_eq!((payloads.len(), payloads.bytes()), (2, 200));
        keep(&mut payloads, txn(5), 37);
        assert_eq!(payloads.bytes(), 237);
    }

    #[test]
    fn what_is_promised_in_memory_is_counted_apart() {
        let txn = |n| TxnId::new(ClientId::new(1), Sequence::new(n));
        let mut payloads = Payloads::default();
        let keep = |payloads: &mut Payloads, n, keyspace: KeyspaceId, value: &[u8]| {
            let (kind, expires_at, key) = (WriteKind::Put, Expiry::NEVER, &b"key"[..]);
            let mut body = Vec::new();
            PrepareBody::of_one_write(
                &WriteEntry { keyspace, kind, expires_at, key, value },
                &mut body,
            );
            let key = HashedKey::new(timestone_types::HashSeed::default(), keyspace, key);
            let keys = [key];
            // Those of earlier runs have no hashed keys.
            let keys = if n % 2 == 0 { &keys[..] } else { &[] };
            let body = PrepareBody::parse(&body).unwrap();
            payloads.keep(txn(n), Timestamp::ZERO, true, &[ShardId::ZERO], (body, keys));
        };
        let (flash, memory) = (KeyspaceId::numbered(3, false), KeyspaceId::numbered(4, true));
        let told = |payloads: &Payloads| {
            let PutsInMemory { count, bytes } = payloads.puts().in_memory;
            (count, bytes)
        };
        for n in [0, 1] {
            keep(&mut payloads, n, flash, &[7; 100]);
        }
        assert_eq!(told(&payloads), (0, 0));
        keep(&mut payloads, 2, memory, &[7; 100]);
        keep(&mut payloads, 3, memory.ordered(), &[7; 10]);
        assert_eq!(told(&payloads), (2, 103 + 16), "a key in order is there twice");
        keep(&mut payloads, 2, memory, &[7; 50]);
        assert_eq!(told(&payloads), (2, 53 + 16), "a further round takes its place");
        payloads.forget(txn(2));
        assert_eq!(told(&payloads), (1, 16));
        keep(&mut payloads, 4, flash, &[7; 1]);
        (0..5).for_each(|n| payloads.forget(txn(n)));
        assert_eq!(payloads.puts(), PromisedPuts::default());
    }

    #[test]
    fn whoever_writes_a_key_of_a_range_is_found_by_whatever_way_it_came() {
        let txn = |n| TxnId::new(ClientId::new(1), Sequence::new(n));
        let keyspace = KeyspaceId::numbered(3, false).ordered();
        let mut payloads = Payloads::default();
        let body = |key: &[u8], keyspace, kind| {
            let (expires_at, value) = (Expiry::NEVER, &b""[..]);
            let mut body = Vec::new();
            PrepareBody::of_one_write(
                &WriteEntry { keyspace, kind, expires_at, key, value },
                &mut body,
            );
            body
        };
        let keep = |payloads: &mut Payloads, n, key: &[u8], space, kind| {
            let bytes = body(key, space, kind);
            let body = PrepareBody::parse(&bytes).unwrap();
            payloads.keep(txn(n), Timestamp::ZERO, true, &[ShardId::ZERO], (body, &[]));
        };
        keep(&mut payloads, 1, b"b", keyspace, WriteKind::Put);
        keep(&mut payloads, 1, b"b", keyspace, WriteKind::Put);
        keep(&mut payloads, 2, b"d", keyspace, WriteKind::Delete);
        keep(&mut payloads, 3, b"c", KeyspaceId::DEFAULT, WriteKind::Put);
        keep(&mut payloads, 4, b"", keyspace, WriteKind::Fence);
        let key = HashedKey::new(timestone_types::HashSeed::default(), keyspace, b"c");
        let mut whole = body(b"c", keyspace, WriteKind::Put);
        payloads.keep_whole(txn(5), Timestamp::ZERO, &[ShardId::ZERO], (&mut whole, &[key]));
        let range =
            |from: &'static [u8], to: Option<&'static [u8]>| KeyRange { keyspace, from, to };
        let writers = |payloads: &Payloads, range| {
            let found = payloads.writers_in(range);
            found.iter().map(|txn| txn.sequence.get()).collect::<Vec<_>>()
        };
        assert_eq!(writers(&payloads, range(b"b", Some(b"d"))), [1, 5]);
        assert_eq!(writers(&payloads, range(b"bb", None)), [5, 2]);
        assert_eq!(writers(&payloads, range(b"", Some(b"b"))), [0_u64; 0]);
        assert_eq!(writers(&payloads, KeyRange::all(KeyspaceId::DEFAULT)), [0_u64; 0]);
        payloads.forget(txn(1));
        keep(&mut payloads, 6, b"x", KeyspaceId::DEFAULT, WriteKind::Put);
        payloads.forget(txn(5));
        assert_eq!(writers(&payloads, KeyRange::all(keyspace)), [2]);
        (2..7).for_each(|n| payloads.forget(txn(n)));
        assert!(payloads.in_order.is_empty());
    }
}
