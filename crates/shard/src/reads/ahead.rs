//! Looking ahead: the keys of the next few frames, so that the memory behind all of them is on its
//! way when the first is worked on.
//!
//! A single load that misses takes longer than all the work on a read. The steps go in waves over
//! all keys, so that each wave finds what the one before it has fetched. What a decision will put is
//! known when it arrives: its keys are looked up, too.
//!
//! Keys are hashed here, once: who works on a frame gets them with it.

use std::ops::Range;

use timestone_io::prefetch;
use timestone_store::KeysAhead;
use timestone_txn::participant::Participant;
use timestone_types::{HashSeed, HashedKey};
use timestone_wire::{self as wire, Frame, Kind, Message};

use crate::limits::LOOK_AHEAD_KEYS;
use crate::shard::ShardStore;
use crate::write_sets::payload::Payloads;

/// The keys of a few frames, by what will be done with them. Its memory is reused.
#[derive(Debug, Default)]
pub(crate) struct LookAhead {
    reads: Vec<HashedKey>,
    validated: Vec<HashedKey>,
    puts: Vec<HashedKey>,
}

/// Where the keys of one frame are in a [`LookAhead`].
#[derive(Clone, Debug, Default)]
pub(crate) struct KeysOfFrame(Range<u32>);

impl LookAhead {
    fn assert_sound(&self) {
        debug_assert!(
            self.reads.len() + self.validated.len() + self.puts.len() <= LOOK_AHEAD_KEYS,
            "those beyond are not looked at"
        );
    }

    pub(crate) fn clear(&mut self) {
        self.assert_sound();
        self.reads.clear();
        self.validated.clear();
        self.puts.clear();
    }

    fn room(&self) -> usize {
        LOOK_AHEAD_KEYS - self.reads.len() - self.validated.len() - self.puts.len()
    }

    /// Collects the keys that a frame will look at.
    #[inline]
    pub(crate) fn look_at(
        &mut self,
        frame: &Frame<'_>,
        seed: HashSeed,
        payloads: &Payloads,
    ) -> KeysOfFrame {
        self.assert_sound();
        let room = self.room();
        let keys = self.keys_mut(frame.kind());
        let begin = keys.len();
        match frame.kind() {
            Kind::Get if room > 0 => {
                if let Ok(get) = wire::Get::decode(frame) {
                    keys.push(HashedKey::new(seed, get.keyspace, get.key));
                }
            }
            Kind::Write if room > 0 => {
                if let Ok(write) = wire::Write::decode(frame) {
                    keys.push(HashedKey::new(seed, write.keyspace, write.key));
                }
            }
            Kind::Prepare | Kind::PrepareRanges => {
                if let Ok((prepare, _)) = wire::Prepare::decode_any(frame) {
                    let body = prepare.body;
                    let reads = body.reads().map(|read| (read.keyspace, read.key));
                    let writes = body.writes().map(|write| (write.keyspace, write.key));
                    let all = reads.chain(writes).take(room + 1);
                    keys.extend(all.map(|(space, key)| HashedKey::new(seed, space, key)));
                    if keys.len() - begin > room {
                        // All of a frame's keys, or none.
                        keys.truncate(begin);
                    }
                }
            }
            Kind::Decide => {
                let decide = wire::Decide::decode(frame).ok();
                let decided = decide.filter(|decide| decide.decision().is_some());
                let payload = decided.and_then(|decide| payloads.get(decide.txn));
                if let Some(payload) = payload {
                    keys.extend(payload.keys.iter().take(room));
                }
            }
            _ => {}
        }
        let keys = KeysOfFrame(begin as u32..keys.len() as u32);
        self.assert_sound();
        keys
    }

    /// Adds the key of a call.
    #[inline]
    pub(crate) fn add(&mut self, key: HashedKey, is_put: bool) {
        let keys = if is_put { &mut self.puts } else { &mut self.reads };
        keys.push(key);
        self.assert_sound();
    }

    /// The keys that are read and those that are put, each in the order in which they were added.
    #[inline]
    pub(crate) fn reads_and_puts(
        &self,
    ) -> (impl Iterator<Item = &HashedKey>, impl Iterator<Item = &HashedKey>) {
        (self.reads.iter(), self.puts.iter())
    }

    fn keys_mut(&mut self, kind: Kind) -> &mut Vec<HashedKey> {
        match kind {
            Kind::Get => &mut self.reads,
            Kind::Write | Kind::Decide => &mut self.puts,
            _ => &mut self.validated,
        }
    }

    /// The keys of a frame in the order in which it names them: reads first, then writes. Empty if
    /// it has none, or too many.
    #[inline]
    pub(crate) fn keys(&self, frame: &Frame<'_>, of: &KeysOfFrame) -> &[HashedKey] {
        let keys = match frame.kind() {
            Kind::Get => &self.reads,
            Kind::Write => &self.puts,
            Kind::Prepare | Kind::PrepareRanges => &self.validated,
            _ => return &[],
        };
        &keys[of.0.start as usize..of.0.end as usize]
    }

    /// Has everything fetched that requests for the keys will look at.
    pub(crate) fn fetch(&self, participant: &Participant, store: &ShardStore) {
        let Self { reads, validated, puts } = self;
        fetch(KeysAhead { reads, validated, puts }, participant, store);
    }
}

/// Has everything fetched that work on the keys will look at.
pub(crate) fn fetch(keys: KeysAhead<'_>, participant: &Participant, store: &ShardStore) {
    let KeysAhead { reads, validated, puts } = keys;
    let all = reads.iter().chain(validated).chain(puts);
    all.filter_map(|key| participant.home_of(key.hash)).for_each(prefetch);
    store.fetch_ahead(keys);
}
