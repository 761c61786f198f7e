//! The translation cache: where the youngest version of a key is (SkimpyFTL §3.2).
//!
//! An entry says that a version is its key's youngest; or that the key has none. It is *exact* when
//! no other record of the key lies in front of it in the chain: then the pointers from there lead to
//! all versions of the key.
//!
//! ```text
//!   key ─► set of 16 places: found     ─► used once more
//!                            not found ─► asked for once more: more often than the place that was used
//!                                         least? ─► takes that place
//! ```
//!
//! A version may be *loose*: no chain leads there, so the entry stays until that has changed.
//!
//! Bounded, and what is used most often stays: keys that come once do not push out those that come
//! again. How often keys were asked for that have no place is counted by their hashes, several to a
//! count. All counts are halved now and then, so that what was popular once goes.
//!
//! Invariant: an entry is true. Whoever links or rewrites a record of a key tells.

use timestone_types::{ClientId, KeyHash, KeyspaceId, Timestamp, Version, is_planted};

use crate::layout::{NO_PAGE, Record};

/// Places of a set.
const WAYS: usize = 16;
/// Uses that are counted, at most.
const MOST_USES: u8 = 63;
/// Look-ups in a set for keys without a place until all counts there are halved.
const ASKED: u16 = 512;
/// Counts of a set for keys without a place.
const ASKERS: usize = 64;
/// Marks of a place.
const TAKEN: u8 = 1;
const TOMBSTONE: u8 = 2;
const MAY_EXPIRE: u8 = 4;
const EXACT: u8 = 8;
const LOOSE: u8 = 16;
/// Places of a set whose versions may be loose, at most: the others can be taken by other keys.
const MOST_LOOSE: usize = 12;

/// What a key is known by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Name {
    pub(super) keyspace: KeyspaceId,
    pub(super) hash: KeyHash,
    pub(super) check: u32,
}

/// The youngest version of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Youngest {
    /// [`Version::ZERO`] when there is none.
    pub(super) version: Version,
    /// The page of its record; [`NO_PAGE`] when there is none.
    pub(super) page: u32,
    pub(super) tombstone: bool,
    pub(super) may_expire: bool,
    /// No other record of the key is in front of it in the chain. Of a loose one: no record of the chain is
    /// younger than one that the prior pointers from there lead to.
    pub(super) exact: bool,
    /// No chain leads there.
    pub(super) loose: bool,
}

impl Youngest {
    /// Of a key without any version.
    pub(super) const NONE: Self = Self {
        version: Version::ZERO,
        page: NO_PAGE,
        tombstone: true,
        may_expire: false,
        exact: true,
        loose: false,
    };

    /// By its record in a page.
    pub(super) fn of(record: &Record<'_>, page: u32, exact: bool) -> Self {
        Self {
            version: record.version,
            page,
            tombstone: record.kind.is_tombstone(),
            may_expire: !record.expires_at.is_never(),
            exact,
            loose: record.is_loose(),
        }
    }

    fn marks(self) -> u8 {
        let mark = |is: bool, mark: u8| if is { mark } else { 0 };
        TAKEN
            | mark(self.tombstone, TOMBSTONE)
            | mark(self.may_expire, MAY_EXPIRE)
            | mark(self.exact, EXACT)
            | mark(self.loose, LOOSE)
    }
}

#[derive(Clone, Copy)]
struct Entry {
    timestamp: Timestamp,
    /// Of an older version that was linked; zero when none is noted.
    behind: Timestamp,
    client: ClientId,
    keyspace: KeyspaceId,
    check: u32,
    page: u32,
}

impl Entry {
    const EMPTY: Self = Self {
        timestamp: Timestamp::ZERO,
        behind: Timestamp::ZERO,
        client: Version::ZERO.client,
        keyspace: KeyspaceId::DEFAULT,
        check: 0,
        page: NO_PAGE,
    };

    fn new(name: Name, youngest: Youngest) -> Self {
        Self {
            timestamp: youngest.version.timestamp,
            behind: Timestamp::ZERO,
            client: youngest.version.client,
            keyspace: name.keyspace,
            check: name.check,
            page: youngest.page,
        }
    }

    fn version(&self) -> Version {
        Version::new(self.timestamp, self.client)
    }

    fn youngest(&self, marks: u8) -> Youngest {
        Youngest {
            version: self.version(),
            page: self.page,
            tombstone: marks & TOMBSTONE != 0,
            may_expire: marks & MAY_EXPIRE != 0,
            exact: marks & EXACT != 0,
            loose: marks & LOOSE != 0,
        }
    }

    /// Another version is the youngest now, or the same one lies elsewhere.
    fn change(&mut self, name: Name, youngest: Youngest, horizon: Timestamp) {
        let (old, new) = (self.version(), youngest.version);
        let behind = match new.cmp(&old) {
            core::cmp::Ordering::Equal => self.behind,
            // What was behind may be gone as well.
            core::cmp::Ordering::Less => Timestamp::ZERO,
            core::cmp::Ordering::Greater => {
                let half = u64::midpoint(horizon.as_nanos(), new.timestamp.as_nanos());
                if self.behind.as_nanos() < half { old.timestamp } else { self.behind }
            }
        };
        *self = Self { behind, ..Self::new(name, youngest) };
    }
}

/// Some places; a name has its place in one set alone.
struct Set {
    hashes: [KeyHash; WAYS],
    entries: [Entry; WAYS],
    marks: [u8; WAYS],
    uses: [u8; WAYS],
    /// How often keys were asked for that have no place.
    askers: [u8; ASKERS],
    /// All of that since counts were halved.
    asked: u16,
}

impl Set {
    const fn empty() -> Self {
        Self {
            hashes: [KeyHash(0); WAYS],
            entries: [Entry::EMPTY; WAYS],
            marks: [0; WAYS],
            uses: [0; WAYS],
            askers: [0; ASKERS],
            asked: 0,
        }
    }

    fn find(&self, name: Name) -> Option<usize> {
        let is_it = |&at: &usize| {
            let entry = &self.entries[at];
            self.hashes[at] == name.hash
                && self.marks[at] & TAKEN != 0
                && (entry.check, entry.keyspace) == (name.check, name.keyspace)
        };
        (0..WAYS).find(is_it)
    }

    fn youngest(&self, at: usize) -> Youngest {
        self.entries[at].youngest(self.marks[at])
    }

    fn change(&mut self, at: usize, name: Name, youngest: Youngest, horizon: Timestamp) {
        self.entries[at].change(name, youngest, horizon);
        self.marks[at] = youngest.marks();
    }

    fn asker(name: Name) -> usize {
        // Other bits than those that chose the set.
        (name.check as usize ^ (name.hash.0 >> 20) as usize) % ASKERS
    }

    /// A key without a place is asked for.
    fn ask(&mut self, name: Name) {
        let asker = &mut self.askers[Self::asker(name)];
        *asker = (*asker + 1).min(MOST_USES);
        self.asked += 1;
        if self.asked >= ASKED {
            self.asked = 0;
            let counts = self.uses.iter_mut().chain(&mut self.askers);
            counts.for_each(|count| *count /= 2);
        }
    }

    /// A place for a key that has none, and how often it is used; nothing while all others are used more.
    fn place(&self, name: Name) -> Option<(usize, u8)> {
        // Nothing else leads to a loose version.
        let may_go = |&at: &usize| self.marks[at] & LOOSE == 0 || is_planted!(EvictsLoose);
        let all = (0..WAYS).filter(may_go);
        let least = all.min_by_key(|&at| (self.marks[at] & TAKEN, self.uses[at]))?;
        let uses = self.askers[Self::asker(name)];
        let is_free = self.marks[least] & TAKEN == 0 || self.uses[least] <= uses;
        is_free.then_some((least, uses))
    }

    fn take(&mut self, (at, uses): (usize, u8), name: Name, youngest: Youngest) {
        self.hashes[at] = name.hash;
        self.entries[at] = Entry::new(name, youngest);
        self.uses[at] = uses;
        self.marks[at] = youngest.marks();
    }
}

/// The cache.
pub(super) struct Translations {
    sets: Vec<Set>,
    /// Places of a set whose versions may be loose.
    most_loose: usize,
    /// What lies in the log's tail is older.
    horizon: Timestamp,
    pub(super) hits: u64,
    pub(super) misses: u64,
}

impl Translations {
    /// Of about so many keys, but some. `loose`: versions may be loose.
    pub(super) fn new(most: usize, loose: bool) -> Self {
        let sets = most.div_ceil(WAYS).clamp(1, u32::MAX as usize);
        let sets = (0..sets).map(|_| Set::empty()).collect();
        let most_loose = if loose { MOST_LOOSE } else { 0 };
        Self { sets, most_loose, horizon: Timestamp::ZERO, hits: 0, misses: 0 }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        (self.sets.capacity() * size_of::<Set>()) as u64
    }

    fn set_of(&self, name: Name) -> usize {
        self.set_at(name.hash)
    }

    /// Sets are in the order of hashes: so the keys of a bucket have theirs in few of them.
    fn set_at(&self, hash: KeyHash) -> usize {
        ((u128::from(hash.0) * self.sets.len() as u128) >> 64) as usize
    }

    fn place_of(&self, name: Name) -> Option<(&Set, usize)> {
        let set = &self.sets[self.set_of(name)];
        set.find(name).map(|at| (set, at))
    }

    /// What is known of a key, without using it.
    pub(super) fn peek(&self, name: Name) -> Option<Youngest> {
        self.place_of(name).map(|(set, at)| set.youngest(at))
    }

    /// What is known of a key, and the timestamp of an older version of it that was linked; zero when
    /// none is noted.
    pub(super) fn peek_behind(&self, name: Name) -> Option<(Youngest, Timestamp)> {
        self.place_of(name).map(|(set, at)| (set.youngest(at), set.entries[at].behind))
    }

    /// Where a key's youngest version is, if that is loose.
    pub(super) fn loose(&self, name: Name) -> Option<Youngest> {
        self.peek(name).filter(|known| known.loose)
    }

    /// Whether a version of a key that is known may become loose, or its successor.
    pub(super) fn may_be_loose(&self, name: Name) -> bool {
        let Some((set, at)) = self.place_of(name) else { return false };
        let loose = set.marks.iter().filter(|&&marks| marks & LOOSE != 0).count();
        set.marks[at] & LOOSE != 0 || loose < self.most_loose
    }

    /// Whether a key was asked for lately.
    pub(super) fn is_used(&self, name: Name) -> bool {
        self.place_of(name).is_some_and(|(set, at)| set.uses[at] > 0)
    }

    /// The keys whose hashes are in a range, and whose youngest versions are loose.
    pub(super) fn loose_among(
        &self,
        hashes: core::ops::RangeInclusive<u64>,
    ) -> impl Iterator<Item = (Name, Youngest)> + '_ {
        let sets = self.set_at(KeyHash(*hashes.start()))..=self.set_at(KeyHash(*hashes.end()));
        let places = self.sets[sets].iter().flat_map(|set| (0..WAYS).map(move |at| (set, at)));
        places
            .filter(move |&(set, at)| {
                set.marks[at] & LOOSE != 0 && hashes.contains(&set.hashes[at].0)
            })
            .map(|(set, at)| {
                let entry = &set.entries[at];
                let (keyspace, hash, check) = (entry.keyspace, set.hashes[at], entry.check);
                (Name { keyspace, hash, check }, set.youngest(at))
            })
    }

    /// The pages of all loose versions that are their keys' youngest.
    pub(super) fn loose_pages(&self) -> impl Iterator<Item = u32> + '_ {
        let places = self.sets.iter().flat_map(|set| set.marks.iter().zip(&set.entries));
        places.filter(|(marks, _)| **marks & LOOSE != 0).map(|(_, entry)| entry.page)
    }

    /// Versions that the chain has may be younger than some to which the prior pointers of a loose one
    /// lead.
    pub(super) fn mistrust(&mut self, name: Name) {
        if let Some(known) = self.peek(name) {
            self.update(name, Youngest { exact: false, ..known });
        }
    }

    /// The log's tail has versions up to this one: what is to supersede them is younger.
    pub(super) fn set_horizon(&mut self, horizon: Timestamp) {
        self.horizon = horizon;
    }

    /// What is known of a key.
    pub(super) fn get(&mut self, name: Name) -> Option<Youngest> {
        let set = self.set_of(name);
        let set = &mut self.sets[set];
        let Some(at) = set.find(name) else {
            self.misses += 1;
            set.ask(name);
            return None;
        };
        self.hits += 1;
        set.uses[at] = (set.uses[at] + 1).min(MOST_USES);
        Some(set.youngest(at))
    }

    /// Notes the youngest version of a key, if that is known already or a place is found for it.
    pub(super) fn insert(&mut self, name: Name, youngest: Youngest) {
        if self.update(name, youngest) {
            return;
        }
        let set = self.set_of(name);
        let set = &mut self.sets[set];
        if let Some(place) = set.place(name) {
            set.take(place, name, youngest);
        }
    }

    /// Changes what is known of a key, if anything is; whether something was.
    pub(super) fn update(&mut self, name: Name, youngest: Youngest) -> bool {
        let set = self.set_of(name);
        let set = &mut self.sets[set];
        let Some(at) = set.find(name) else { return false };
        debug_assert!(
            set.marks[at] & LOOSE == 0
                || youngest.loose
                || set.entries[at].version() <= youngest.version
                || youngest == Youngest::NONE,
            "a loose version of {name:?} is lost: {:?}, {youngest:?}",
            set.youngest(at)
        );
        set.change(at, name, youngest, self.horizon);
        true
    }

    /// Takes in a loose version that recovery has found; false when there is no place for it.
    #[must_use]
    pub(super) fn restore(&mut self, name: Name, youngest: Youngest) -> bool {
        self.insert(name, youngest);
        self.loose(name).is_some_and(|known| known.version == youngest.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: u64) -> Name {
        Name { keyspace: KeyspaceId::DEFAULT, hash: KeyHash(n << 40), check: n as u32 }
    }

    fn at(nanos: u64) -> Youngest {
        let version = Version::new(Timestamp::from_nanos(nanos), ClientId::new(2));
        Youngest { version, page: nanos as u32, may_expire: true, ..Youngest::NONE }
    }

    #[test]
    fn what_was_used_least_goes_first() {
        let mut cache = Translations::new(WAYS, true);
        (0..16).for_each(|n| cache.insert(name(n), at(n + 1)));
        (0..16).filter(|&n| n != 5).for_each(|n| assert_eq!(cache.get(name(n)), Some(at(n + 1))));
        cache.insert(name(16), at(17));
        assert_eq!((cache.peek(name(16)), cache.peek(name(5))), (Some(at(17)), None));
        cache.insert(name(0), at(99));
        assert!(!cache.update(name(5), at(7)));
        assert_eq!((cache.get(name(0)), cache.get(name(5))), (Some(at(99)), None));
        assert_eq!((cache.hits, cache.misses), (16, 1));
    }

    fn ask(cache: &mut Translations, n: u64) {
        if cache.get(name(n)).is_none() {
            cache.insert(name(n), at(n + 1));
        }
    }

    #[test]
    fn keys_that_come_once_leave_those_alone_that_come_again() {
        let mut cache = Translations::new(WAYS, true);
        for n in 0..10_000u64 {
            (0..8).for_each(|hot| ask(&mut cache, hot));
            (0..8).for_each(|other| ask(&mut cache, 100 + n * 8 + other));
            assert!(n < 100 || (0..8).all(|hot| cache.peek(name(hot)).is_some()), "{n}");
        }
        // Others are popular now.
        (0..20_000).for_each(|n| ask(&mut cache, 200_000 + n % 16));
        let found = (0..16).filter(|n| cache.peek(name(200_000 + n)).is_some()).count();
        assert_eq!(found, 16);
    }

    #[test]
    fn an_older_version_is_noted_until_it_is_no_use() {
        let mut cache = Translations::new(WAYS, true);
        cache.set_horizon(Timestamp::from_nanos(100));
        let behind = |cache: &Translations| cache.peek_behind(name(1)).expect("it is there").1;
        for (put, noted) in [(150, 0), (160, 150), (190, 150), (210, 190), (250, 190)] {
            cache.insert(name(1), at(put));
            assert_eq!(behind(&cache), Timestamp::from_nanos(noted), "{put}");
        }
        cache.insert(name(1), Youngest::NONE);
        assert_eq!(behind(&cache), Timestamp::ZERO);
    }

    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<Set>() <= 51 * WAYS, "{}", size_of::<Set>());
    }
}
