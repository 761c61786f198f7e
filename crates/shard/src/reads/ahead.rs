//! Looking ahead: the keys of the next few frames, so that the memory behind all of them is on its
//! way when the first is worked on.
//!
//! A single load that misses takes longer than all the work on a read. The steps go in waves over
//! all keys, so that each wave finds what the one before it has fetched.

use timestone_store::Store;
use timestone_txn::participant::Participant;
use timestone_types::{HashSeed, KeyHash, KeyRef, KeyspaceId};
use timestone_wire::{self as wire, Frame, Kind, Message};

/// Keys that are looked at together; those beyond are not.
const KEYS: usize = 64;

/// The keys of a few frames.
pub(crate) struct LookAhead<'a> {
    // Those whose records are read come first from the front, the others from the back.
    keys: [KeyRef<'a>; KEYS],
    reads: usize,
    others: usize,
}

impl<'a> LookAhead<'a> {
    pub(crate) const fn new() -> Self {
        const NONE: KeyRef<'static> =
            KeyRef { keyspace: KeyspaceId::DEFAULT, bytes: &[], hash: KeyHash(0) };
        Self { keys: [NONE; KEYS], reads: 0, others: 0 }
    }

    fn assert_sound(&self) {
        debug_assert!(self.reads + self.others <= KEYS, "keys from both ends do not meet");
    }

    pub(crate) fn clear(&mut self) {
        self.assert_sound();
        (self.reads, self.others) = (0, 0);
    }

    /// A key whose record will be read.
    #[inline]
    pub(crate) fn reads(&mut self, key: KeyRef<'a>) {
        if self.reads + self.others < KEYS {
            self.keys[self.reads] = key;
            self.reads += 1;
        }
        self.assert_sound();
    }

    /// A key that will be looked up without its record.
    #[inline]
    pub(crate) fn validates(&mut self, key: KeyRef<'a>) {
        if self.reads + self.others < KEYS {
            self.others += 1;
            self.keys[KEYS - self.others] = key;
        }
        self.assert_sound();
    }

    /// Collects the keys that a frame will look at. If it is about one alone, that is returned, so
    /// that it is hashed once.
    #[inline]
    pub(crate) fn keys_of(&mut self, frame: &Frame<'a>, seed: HashSeed) -> Option<KeyRef<'a>> {
        self.assert_sound();
        match frame.kind() {
            Kind::Get => {
                let get = wire::Get::decode(frame).ok()?;
                let key = KeyRef::new(seed, get.keyspace, get.key);
                self.reads(key);
                Some(key)
            }
            Kind::Prepare => {
                let prepare = wire::Prepare::decode(frame).ok()?;
                let body = prepare.body;
                let reads = body.reads().map(|read| (read.keyspace, read.key));
                for (keyspace, key) in
                    reads.chain(body.writes().map(|write| (write.keyspace, write.key)))
                {
                    self.validates(KeyRef::new(seed, keyspace, key));
                }
                None
            }
            Kind::Write => {
                let write = wire::Write::decode(frame).ok()?;
                let key = KeyRef::new(seed, write.keyspace, write.key);
                self.validates(key);
                Some(key)
            }
            _ => None,
        }
    }

    /// Has everything fetched that requests for the keys will look at.
    pub(crate) fn fetch(&self, participant: &Participant, store: &dyn Store) {
        let (reads, others) = (&self.keys[..self.reads], &self.keys[KEYS - self.others..]);
        store.fetch_ahead(reads, others);
        reads.iter().for_each(|key| participant.prefetch(key.hash));
        others.iter().for_each(|key| participant.prefetch(key.hash));
        store.fetch_records_ahead(reads);
    }
}
