//! The keys of a prepare, as the participant wants them: reused from one request to the next.

use timestone_store::LatestLookup;
use timestone_txn::participant::{
    LatestInStore, Participant, RangeItem, ReadItem, Token, Wait, WriteItem, WriteKind,
};
use timestone_types::{HashSeed, HashedKey, ShardId, Timestamp};
use timestone_wire::limits::MAX_PARTICIPANTS;
use timestone_wire::{self as wire, Frame, PrepareBody};

use super::lookups::{Item, in_store};
use super::range::look_at_ranges;
use crate::shard::{Parts, ShardStore};
use crate::write_sets::payload::Payloads;

/// The read set, the write set and the participants of one request.
pub(crate) struct Items {
    seed: HashSeed,
    reads: Vec<ReadItem>,
    ranges: Vec<RangeItem>,
    writes: Vec<WriteItem>,
    participants: Vec<ShardId>,
    /// Of the reads, then of the writes.
    keys: Vec<HashedKey>,
}

impl Items {
    /// None yet; their keys are hashed with this seed.
    pub(crate) fn new(seed: HashSeed) -> Self {
        let (reads, writes, participants) = (Vec::new(), Vec::new(), Vec::new());
        let (ranges, keys) = (Vec::new(), Vec::new());
        Self { seed, reads, ranges, writes, participants, keys }
    }

    /// The read set.
    #[inline]
    pub(crate) fn reads(&self) -> &[ReadItem] {
        &self.reads
    }

    /// The ranges that were read.
    #[inline]
    pub(crate) fn ranges(&self) -> &[RangeItem] {
        &self.ranges
    }

    /// The write set.
    #[inline]
    pub(crate) fn writes(&self) -> &[WriteItem] {
        &self.writes
    }

    /// The keys of the write set.
    #[inline]
    pub(crate) fn write_keys(&self) -> &[HashedKey] {
        &self.keys[self.reads.len()..]
    }

    /// The participants.
    #[inline]
    pub(crate) fn participants(&self) -> &[ShardId] {
        &self.participants
    }

    /// Notes the participants.
    #[inline]
    pub(crate) fn set_participants(&mut self, participants: impl Iterator<Item = ShardId>) {
        self.participants.clear();
        self.participants.extend(participants);
        debug_assert!(self.participants.len() <= MAX_PARTICIPANTS, "a frame names no more");
    }

    /// Finds out about the ranges of a prepare whose keys are here, and whether those that it writes lie in
    /// ranges that others have read. All of it is as of now: the core is stepped next.
    #[inline]
    pub(crate) fn look_at_ranges(
        &mut self,
        (prepare, ranges): (&wire::Prepare<'_>, wire::RangeEntries<'_>),
        participant: &Participant,
        (store, payloads): (&ShardStore, &Payloads),
    ) {
        if !ranges.is_empty() || !self.ranges.is_empty() {
            look_at_ranges(ranges, prepare.begin, (store, payloads), &mut self.ranges);
        }
        if self.writes.iter().all(|item| !item.keyspace.is_ordered()) {
            return;
        }
        for (write, item) in prepare.body.writes().zip(&mut self.writes) {
            if write.keyspace.is_ordered() {
                item.range_read =
                    participant.range_read_at(write.keyspace, write.key, prepare.commit);
            }
        }
    }

    /// Fills the read and write items of a body, whose keys may have been hashed; whether the
    /// youngest versions of all its keys are known. If not, the request is handed in again when they
    /// are.
    #[inline]
    pub(crate) fn look_up(
        &mut self,
        (token, wait): (Token, Option<Wait>),
        frame: &Frame<'_>,
        (body, keys): (&PrepareBody<'_>, &[HashedKey]),
        parts: &mut Parts<'_>,
    ) -> bool {
        let Parts { requests, store, lookups, .. } = parts;
        self.list(body, keys);
        if let Some(items) = lookups.take(token) {
            assert_eq!(items.len(), self.reads.len() + self.writes.len(), "the frame is the same");
            let (reads, writes) = items.split_at(self.reads.len());
            self.reads.iter_mut().zip(reads).for_each(|(item, found)| item.latest = found.latest);
            self.writes.iter_mut().zip(writes).for_each(|(item, found)| item.latest = found.latest);
            return true;
        }
        for (index, (read, item)) in body.reads().zip(&mut self.reads).enumerate() {
            match store.latest(self.keys[index].with(read.key), lookups.token()) {
                LatestLookup::Known(latest) => item.latest = in_store(latest),
                LatestLookup::Pending => lookups.note_pending(index),
            }
        }
        let offset = self.reads.len();
        for (index, (write, item)) in body.writes().zip(&mut self.writes).enumerate() {
            if item.kind != WriteKind::Fence {
                match store.latest(self.keys[offset + index].with(write.key), lookups.token()) {
                    LatestLookup::Known(latest) => item.latest = in_store(latest),
                    LatestLookup::Pending => lookups.note_pending(offset + index),
                }
            }
        }
        if !lookups.is_pending() {
            return true;
        }
        let reads = self.reads.iter().map(|read| (read.keyspace, read.key, read.latest));
        let writes = self.writes.iter().map(|write| (write.keyspace, write.key, write.latest));
        let items = reads.chain(writes);
        let items = items.map(|(keyspace, key, latest)| Item { keyspace, key, latest });
        lookups.begin(token, wait, items);
        requests.keep_frame(token, Some((token, frame)));
        false
    }

    /// The read and write items of a body, without what the store knows of them. `hashed` are its
    /// keys, or none.
    #[inline]
    pub(crate) fn list(&mut self, body: &PrepareBody<'_>, hashed: &[HashedKey]) {
        self.reads.clear();
        self.writes.clear();
        self.ranges.clear();
        self.keys.clear();
        let seed = self.seed;
        let mut hashed = hashed.iter();
        let mut hash = |keyspace, bytes: &[u8]| match hashed.next() {
            Some(&key) => key,
            None => HashedKey::new(seed, keyspace, bytes),
        };
        for read in body.reads() {
            let key = hash(read.keyspace, read.key);
            self.keys.push(key);
            self.reads.push(ReadItem {
                keyspace: read.keyspace,
                key: key.hash,
                version: read.version,
                absent: read.absent,
                expires_at: read.expires_at,
                latest: LatestInStore::NONE,
            });
        }
        for write in body.writes() {
            let key = hash(write.keyspace, write.key);
            self.keys.push(key);
            let kind = write_kind(write.kind);
            self.writes.push(WriteItem {
                keyspace: write.keyspace,
                key: key.hash,
                kind,
                latest: LatestInStore::NONE,
                range_read: Timestamp::ZERO,
            });
        }
        debug_assert_eq!(
            self.writes.len() as u64,
            u64::from(PrepareBody::write_count(body.bytes())),
            "a body says how many writes it has"
        );
    }
}

const fn write_kind(kind: wire::WriteKind) -> WriteKind {
    match kind {
        wire::WriteKind::Put => WriteKind::Put,
        wire::WriteKind::Delete => WriteKind::Delete,
        wire::WriteKind::Fence => WriteKind::Fence,
    }
}
