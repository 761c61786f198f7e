//! The keys of a prepare, as the participant wants them: reused from one request to the next.

use timestone_store::LatestLookup;
use timestone_txn::participant::{LatestInStore, ReadItem, Token, Wait, WriteItem, WriteKind};
use timestone_types::{HashSeed, KeyRef, ShardId};
use timestone_wire::limits::MAX_PARTICIPANTS;
use timestone_wire::{self as wire, Frame, PrepareBody};

use super::lookups::{Item, in_store};
use crate::shard::Parts;

/// The read set, the write set and the participants of one request.
pub(crate) struct Items {
    seed: HashSeed,
    reads: Vec<ReadItem>,
    writes: Vec<WriteItem>,
    participants: Vec<ShardId>,
}

impl Items {
    /// None yet; their keys are hashed with this seed.
    pub(crate) const fn new(seed: HashSeed) -> Self {
        Self { seed, reads: Vec::new(), writes: Vec::new(), participants: Vec::new() }
    }

    /// The read set.
    #[inline]
    pub(crate) fn reads(&self) -> &[ReadItem] {
        &self.reads
    }

    /// The write set.
    #[inline]
    pub(crate) fn writes(&self) -> &[WriteItem] {
        &self.writes
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

    /// Fills the read and write items of a body; whether the youngest versions of all its keys are
    /// known. If not, the request is handed
    /// in again when they are.
    #[inline]
    pub(crate) fn look_up(
        &mut self,
        (token, wait): (Token, Option<Wait>),
        frame: &Frame<'_>,
        body: &PrepareBody<'_>,
        parts: &mut Parts<'_>,
    ) -> bool {
        let Parts { requests, store, lookups, .. } = parts;
        self.list(body);
        if let Some(items) = lookups.take(token) {
            assert_eq!(items.len(), self.reads.len() + self.writes.len(), "the frame is the same");
            let (reads, writes) = items.split_at(self.reads.len());
            self.reads.iter_mut().zip(reads).for_each(|(item, found)| item.latest = found.latest);
            self.writes.iter_mut().zip(writes).for_each(|(item, found)| item.latest = found.latest);
            return true;
        }
        for (index, (read, item)) in body.reads().zip(&mut self.reads).enumerate() {
            let key = KeyRef { keyspace: read.keyspace, bytes: read.key, hash: item.key };
            match store.latest(key, lookups.token()) {
                LatestLookup::Known(latest) => item.latest = in_store(latest),
                LatestLookup::Pending => lookups.note_pending(index),
            }
        }
        let offset = self.reads.len();
        for (index, (write, item)) in body.writes().zip(&mut self.writes).enumerate() {
            if item.kind != WriteKind::Fence {
                let key = KeyRef { keyspace: write.keyspace, bytes: write.key, hash: item.key };
                match store.latest(key, lookups.token()) {
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

    /// The read and write items of a body, without what the store knows of them.
    #[inline]
    pub(crate) fn list(&mut self, body: &PrepareBody<'_>) {
        self.reads.clear();
        self.writes.clear();
        for read in body.reads() {
            let key = KeyRef::new(self.seed, read.keyspace, read.key);
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
            let key = KeyRef::new(self.seed, write.keyspace, write.key);
            let kind = write_kind(write.kind);
            self.writes.push(WriteItem {
                keyspace: write.keyspace,
                key: key.hash,
                kind,
                latest: LatestInStore::NONE,
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
