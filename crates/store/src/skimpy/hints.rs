//! Hints: where the youngest versions of keys are that somebody looked for lately.
//!
//! ```text
//!   key ─► set of 16 places, by 16 bits of its hash ─► page and slot ─► is that record one of the key?
//!                                                                       yes: its youngest version
//!                                                                       no:  nothing is known
//! ```
//!
//! A hint is a sixth of what a translation takes: it knows no key and no version. It may be another
//! key's, and is proved by the record that it names.
//!
//! Invariant: a hint whose record is there, and is one of a key, names the key's youngest version, and no
//! other record of the key lies in front of that one in its chain. For whoever appends a record of a key
//! sets the hint that the key would have, or drops it: so it was another key's since, or it is this one's
//! and true. *Otherwise* a hint of a key with the same 16 bits is believed, when an older version of this
//! key happens to lie in the same page: that is why it names a slot.

use super::buckets::RecordPlace;
use super::translations::Name;
use crate::layout::NO_PAGE;

/// Places of a set.
const WAYS: usize = 16;
/// Uses that are counted, at most: four bits.
const MOST_USES: u8 = 15;
/// Look-ups in a set for keys without a place until all counts there are halved.
const ASKED: u16 = 128;
/// Counts of a set for keys without a place.
const ASKERS: usize = 32;

/// Some places.
struct HintSet {
    /// [`NO_PAGE`] where there is none.
    pages: [u32; WAYS],
    prints: [u16; WAYS],
    asked: u16,
    slots: [u8; WAYS],
    uses: [u8; WAYS],
    /// Two counts a byte.
    askers: [u8; ASKERS / 2],
}

impl HintSet {
    const EMPTY: Self = Self {
        pages: [NO_PAGE; WAYS],
        prints: [0; WAYS],
        asked: 0,
        slots: [0; WAYS],
        uses: [0; WAYS],
        askers: [0; ASKERS / 2],
    };

    fn find(&self, print: u16) -> Option<usize> {
        (0..WAYS).find(|&at| self.prints[at] == print && self.pages[at] != NO_PAGE)
    }

    fn set(&mut self, at: usize, place: RecordPlace) {
        match u8::try_from(place.slot) {
            Ok(slot) => (self.pages[at], self.slots[at]) = (place.page, slot),
            Err(_) => self.pages[at] = NO_PAGE,
        }
    }

    /// Where the two counts of a key without a place are: a byte, and the bits by which it is shifted.
    fn askers(print: u16) -> [(usize, u8); 2] {
        [usize::from(print) % ASKERS, usize::from(print) / ASKERS % ASKERS]
            .map(|asker| (asker / 2, (asker % 2) as u8 * 4))
    }

    fn count(&self, (byte, shift): (usize, u8)) -> u8 {
        (self.askers[byte] >> shift) & MOST_USES
    }

    /// How often a key without a place was asked for, at most: others may share one of its counts, and
    /// seldom both.
    fn asked_for(&self, print: u16) -> u8 {
        let [one, other] = Self::askers(print).map(|asker| self.count(asker));
        one.min(other)
    }

    fn ask(&mut self, print: u16) {
        let asked = self.asked_for(print);
        for (byte, shift) in Self::askers(print) {
            if asked < MOST_USES && self.count((byte, shift)) == asked {
                self.askers[byte] += 1 << shift;
            }
        }
        self.asked += 1;
        if self.asked >= ASKED {
            self.asked = 0;
            self.uses.iter_mut().for_each(|count| *count /= 2);
            // Each half of a byte by itself.
            self.askers.iter_mut().for_each(|counts| *counts = (*counts >> 1) & 0x77);
        }
    }
}

/// All hints. Without any, nothing is known.
pub(super) struct Hints {
    sets: Vec<HintSet>,
    pub(super) hits: u64,
}

impl Hints {
    /// Of about so many keys.
    pub(super) fn new(most: usize) -> Self {
        let sets = most.div_ceil(WAYS).min(u32::MAX as usize);
        Self { sets: (0..sets).map(|_| HintSet::EMPTY).collect(), hits: 0 }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        (self.sets.capacity() * size_of::<HintSet>()) as u64
    }

    /// The set of a key, and what it is known by there.
    fn place_of(&self, name: Name) -> Option<(usize, u16)> {
        let key = name.hash.0 ^ (u64::from(name.check) << 17) ^ u64::from(name.keyspace.get());
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let set = (u128::from(mixed) * self.sets.len() as u128) >> 64;
        // Other bits than those that choose the set.
        (!self.sets.is_empty()).then_some((set as usize, (mixed >> 8) as u16))
    }

    /// Where the youngest version of a key may be, without using it.
    pub(super) fn peek(&self, name: Name) -> Option<RecordPlace> {
        let (set, print) = self.place_of(name)?;
        let set = &self.sets[set];
        let at = set.find(print)?;
        Some(RecordPlace { page: set.pages[at], slot: u16::from(set.slots[at]) })
    }

    /// Where the youngest version of a key may be.
    pub(super) fn get(&mut self, name: Name) -> Option<RecordPlace> {
        let (set, print) = self.place_of(name)?;
        let set = &mut self.sets[set];
        match set.find(print) {
            Some(at) => {
                self.hits += 1;
                set.uses[at] = (set.uses[at] + 1).min(MOST_USES);
            }
            None => set.ask(print),
        }
        self.peek(name)
    }

    /// A record of a key was appended: its youngest version, and in front of all others in the chain; or
    /// (`None`) it may be another one.
    pub(super) fn appended(&mut self, name: Name, place: Option<RecordPlace>) {
        let Some((set, print)) = self.place_of(name) else { return };
        let set = &mut self.sets[set];
        let Some(at) = set.find(print) else { return };
        match place {
            Some(place) => set.set(at, place),
            None => set.pages[at] = NO_PAGE,
        }
    }

    /// Where the youngest version of a key is, in front of all others in the chain: it gets a place if it
    /// is asked for more often than the one that is used least.
    pub(super) fn found(&mut self, name: Name, place: RecordPlace) {
        let Some((set, print)) = self.place_of(name) else { return };
        let set = &mut self.sets[set];
        if let Some(at) = set.find(print) {
            return set.set(at, place);
        }
        let uses = set.asked_for(print);
        let used = |at: usize| if set.pages[at] == NO_PAGE { 0 } else { 1 + set.uses[at] };
        let Some(least) = (0..WAYS).min_by_key(|&at| used(at)) else { return };
        if set.pages[least] == NO_PAGE || set.uses[least] <= uses {
            (set.prints[least], set.uses[least]) = (print, uses);
            set.set(least, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use timestone_flash::{MemoryConfig, MemoryMedia};
    use timestone_types::{ClientId, Expiry, KeyHash, KeyRef, KeyspaceId, Timestamp, Version};

    use super::super::chain::SoughtKey;
    use super::super::{Skimpy, SkimpyConfig};
    use super::*;
    use crate::api::{Lookup, ReadOutcome, ReadToken, Reads, StoreEvent, Upkeep, Writes};

    /// A store that knows hardly anything but hints, and its time.
    struct Hinted {
        store: Skimpy,
        now: u64,
    }

    impl Hinted {
        fn new() -> Self {
            let config =
                MemoryConfig { pages_per_block: 64, initial_blocks: 16, ..MemoryConfig::default() };
            let device = Box::new(MemoryMedia::new(config).open());
            let config = SkimpyConfig {
                keys: 200,
                translated_thousandths: 0,
                hinted_thousandths: 80,
                cache_bytes: 0,
                ..SkimpyConfig::default()
            };
            let (store, _) = Skimpy::open(device, config).expect("opens");
            Self { store, now: 0 }
        }

        fn key<'a>(&self, bytes: &'a [u8]) -> KeyRef<'a> {
            KeyRef::new(self.store.seed(), KeyspaceId::DEFAULT, bytes)
        }

        fn put(&mut self, key: u64, n: u64, value: &[u8]) {
            let (bytes, version) = (key.to_be_bytes(), Timestamp::from_nanos(n));
            let key = self.key(&bytes);
            let version = Version::new(version, ClientId::new(1));
            self.store.put(key, version, value, Expiry::NEVER).expect("there is room");
        }

        fn pump(&mut self) -> Vec<StoreEvent> {
            let mut events = Vec::new();
            self.now += 1_000_000;
            self.store.pump(Timestamp::from_nanos(self.now), &mut events);
            events
        }

        /// All is on flash, and in memory no more.
        fn flush(&mut self) {
            self.store.sync_soon();
            (0..100).for_each(|_| _ = self.pump());
        }

        fn get(&mut self, key: u64, at: u64) -> Vec<u8> {
            let (bytes, at) = (key.to_be_bytes(), Timestamp::from_nanos(at));
            let key = self.key(&bytes);
            match self.store.get(key, at, ReadToken(1)).expect("it is sound") {
                Lookup::Present { value, .. } => return value.to_vec(),
                Lookup::Absent { .. } => return Vec::new(),
                Lookup::Pending => {}
            }
            for _ in 0..1000 {
                for event in self.pump() {
                    if let StoreEvent::ReadDone { outcome, .. } = event {
                        return match outcome {
                            ReadOutcome::Present { value, .. } => value,
                            _ => Vec::new(),
                        };
                    }
                }
            }
            panic!("it is answered");
        }

        /// Two keys that have the same hint.
        fn twins(&self) -> (u64, u64) {
            let mut seen = std::collections::BTreeMap::new();
            let twin = |key: u64| {
                let bytes = key.to_be_bytes();
                let name = SoughtKey::of(self.key(&bytes)).name;
                let other = seen.insert(self.store.core.hints.place_of(name), key);
                other.map(|other| (other, key))
            };
            (1000..100_000).find_map(twin).expect("sixteen bits are few")
        }
    }

    /// A key is put, another one with the same hint is put in the same page, and the first one again in
    /// another page. The second one is looked for; then what is found of the first one.
    fn found_by_the_hint_of_another_key() -> Vec<u8> {
        let mut hinted = Hinted::new();
        // Translations are of these.
        for _ in 0..8 {
            for key in 0..16 {
                hinted.now += 1;
                let n = hinted.now;
                hinted.put(key, n, b"popular");
                hinted.get(key, u64::MAX >> 1);
            }
        }
        hinted.flush();
        let (key, twin) = hinted.twins();
        let n = hinted.now;
        hinted.put(key, n, b"old");
        hinted.put(twin, n, b"twin");
        hinted.flush();
        hinted.put(key, n + 1, b"new");
        hinted.flush();
        assert_eq!(hinted.get(twin, u64::MAX >> 1), b"twin");
        let name = SoughtKey::of(hinted.key(&twin.to_be_bytes())).name;
        assert!(hinted.store.core.hints.peek(name).is_some(), "it has a hint");
        hinted.get(key, u64::MAX >> 1)
    }

    #[test]
    fn a_hint_of_another_key_is_not_believed() {
        assert_eq!(found_by_the_hint_of_another_key(), b"new");
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_hint_that_is_believed_though_it_is_of_another_key_is_found() {
        use timestone_types::planted::{Bug, with};
        assert_eq!(with(Bug::BelievesHints, found_by_the_hint_of_another_key), b"old");
    }

    fn name(n: u64) -> Name {
        let hash = KeyHash(n.wrapping_mul(0x2545_f491_4f6c_dd1d));
        Name { keyspace: KeyspaceId::DEFAULT, hash, check: n as u32 }
    }

    fn at(page: u32) -> RecordPlace {
        RecordPlace { page, slot: 3 }
    }

    #[test]
    fn what_was_appended_is_known_or_nothing_is() {
        let mut hints = Hints::new(WAYS);
        hints.appended(name(1), Some(at(7)));
        assert_eq!(hints.get(name(1)), None, "nobody looked for it");
        hints.found(name(1), at(7));
        hints.appended(name(1), Some(at(8)));
        assert_eq!((hints.get(name(1)), hints.hits), (Some(at(8)), 1));
        hints.appended(name(1), None);
        assert_eq!(hints.peek(name(1)), None);
        hints.found(name(1), RecordPlace { page: 9, slot: 256 });
        assert_eq!(hints.peek(name(1)), None, "there is no room for the slot");
    }

    #[test]
    fn keys_that_come_once_leave_those_alone_that_come_again() {
        let mut hints = Hints::new(WAYS);
        for n in 0..5000 {
            for key in (0..4).chain([1000 + 2 * n, 1001 + 2 * n]) {
                if hints.get(name(key)).is_none() {
                    hints.found(name(key), at(1));
                }
            }
            assert!(n < 100 || (0..4).all(|key| hints.peek(name(key)).is_some()), "{n}");
        }
    }

    #[test]
    fn a_hint_is_small() {
        assert!(size_of::<HintSet>() * 4 <= 37 * WAYS, "{}", size_of::<HintSet>());
    }
}
