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

use core::cmp::Ordering;

use timestone_flash::Geometry;
use timestone_types::{ClientId, KeyHash, KeyspaceId, Timestamp, Version, is_planted};

use super::packed::{Nibbles, PackedPages};
use super::periods::{PeriodName, Periods};
use crate::layout::{NO_PAGE, Record};

/// Places of a set.
const WAYS: usize = 16;
/// Look-ups in a set for keys without a place until all counts there are halved.
const ASKED: u8 = 128;
/// Counts of a set for keys without a place.
const ASKERS: usize = 32;
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

/// Some places but for their pages; a name has its place in one set alone.
struct Set {
    hashes: [KeyHash; WAYS],
    timestamps: [Timestamp; WAYS],
    clients: [ClientId; WAYS],
    keyspaces: [KeyspaceId; WAYS],
    checks: [u32; WAYS],
    /// When an older version was written that was linked, if one is noted.
    behind: [PeriodName; WAYS],
    marks: [u8; WAYS],
    /// How often keys were asked for that have a place.
    uses: Nibbles<[u8; WAYS / 2]>,
    /// The same for keys that have none.
    askers: Nibbles<[u8; ASKERS / 2]>,
    /// All of that since counts were halved.
    asked: u8,
}

impl Set {
    const fn empty() -> Self {
        Self {
            hashes: [KeyHash(0); WAYS],
            timestamps: [Timestamp::ZERO; WAYS],
            clients: [Version::ZERO.client; WAYS],
            keyspaces: [KeyspaceId::DEFAULT; WAYS],
            checks: [0; WAYS],
            behind: [PeriodName::NONE; WAYS],
            marks: [0; WAYS],
            uses: Nibbles::ZEROS,
            askers: Nibbles::ZEROS,
            asked: 0,
        }
    }

    fn find(&self, name: Name) -> Option<usize> {
        let is_it = |&at: &usize| {
            self.hashes[at] == name.hash
                && self.marks[at] & TAKEN != 0
                && (self.checks[at], self.keyspaces[at]) == (name.check, name.keyspace)
        };
        (0..WAYS).find(is_it)
    }

    fn name(&self, at: usize) -> Name {
        let (keyspace, hash, check) = (self.keyspaces[at], self.hashes[at], self.checks[at]);
        Name { keyspace, hash, check }
    }

    fn version(&self, at: usize) -> Version {
        Version::new(self.timestamps[at], self.clients[at])
    }

    fn is_loose(&self, at: usize) -> bool {
        self.marks[at] & LOOSE != 0
    }

    fn set(&mut self, at: usize, youngest: Youngest, behind: PeriodName) {
        self.timestamps[at] = youngest.version.timestamp;
        self.clients[at] = youngest.version.client;
        self.marks[at] = youngest.marks();
        self.behind[at] = behind;
    }

    fn asker(name: Name) -> usize {
        // Other bits than those that chose the set.
        (name.check as usize ^ (name.hash.0 >> 20) as usize) % ASKERS
    }

    /// A key without a place is asked for.
    fn ask(&mut self, name: Name) {
        self.askers.raise(Self::asker(name));
        self.asked += 1;
        if self.asked >= ASKED {
            self.asked = 0;
            self.uses.halve();
            self.askers.halve();
        }
    }

    /// A place for a key that has none, and how often it is used; nothing while all others are used more.
    fn place(&self, name: Name) -> Option<(usize, u8)> {
        // Nothing else leads to a loose version.
        let may_go = |&at: &usize| !self.is_loose(at) || is_planted!(EvictsLoose);
        let all = (0..WAYS).filter(may_go);
        let least = all.min_by_key(|&at| (self.marks[at] & TAKEN, self.uses.get(at)))?;
        let uses = self.askers.get(Self::asker(name));
        let is_free = self.marks[least] & TAKEN == 0 || self.uses.get(least) <= uses;
        is_free.then_some((least, uses))
    }

    fn take(&mut self, (at, uses): (usize, u8), name: Name, youngest: Youngest) {
        self.hashes[at] = name.hash;
        self.keyspaces[at] = name.keyspace;
        self.checks[at] = name.check;
        self.uses.set(at, uses);
        self.set(at, youngest, PeriodName::NONE);
    }

    /// Forgets what is noted in periods whose names mean nothing any more.
    fn forget_old(&mut self, periods: &Periods) {
        for behind in &mut self.behind {
            if periods.bounds(*behind).is_none() {
                *behind = PeriodName::NONE;
            }
        }
    }
}

/// The cache.
pub(super) struct Translations {
    sets: Vec<Set>,
    /// By set, those of its places.
    pages: PackedPages,
    /// Places of a set whose versions may be loose.
    most_loose: usize,
    periods: Periods,
    /// The set that looks next whether names of periods that it has mean nothing any more.
    looked_through: usize,
    /// What lies in the log's tail is older.
    horizon: Timestamp,
    pub(super) hits: u64,
    pub(super) misses: u64,
}

/// A place of a set.
#[derive(Clone, Copy)]
struct SetPlace {
    set: usize,
    at: usize,
}

impl SetPlace {
    const fn number(self) -> usize {
        self.set * WAYS + self.at
    }
}

impl Translations {
    /// Of about so many keys, but some. `loose`: versions may be loose.
    pub(super) fn new(most: usize, loose: bool, geometry: Geometry) -> Self {
        let sets = most.div_ceil(WAYS).clamp(1, u32::MAX as usize);
        let pages = PackedPages::none(sets * WAYS, geometry.most_pages());
        let sets = (0..sets).map(|_| Set::empty()).collect();
        let most_loose = if loose { MOST_LOOSE } else { 0 };
        Self {
            sets,
            pages,
            most_loose,
            periods: Periods::default(),
            looked_through: 0,
            horizon: Timestamp::ZERO,
            hits: 0,
            misses: 0,
        }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        (self.sets.capacity() * size_of::<Set>() + self.pages.memory_bytes()) as u64
    }

    fn set_of(&self, name: Name) -> usize {
        self.set_at(name.hash)
    }

    /// Sets are in the order of hashes: so the keys of a bucket have theirs in few of them.
    fn set_at(&self, hash: KeyHash) -> usize {
        ((u128::from(hash.0) * self.sets.len() as u128) >> 64) as usize
    }

    fn place_of(&self, name: Name) -> Option<SetPlace> {
        let set = self.set_of(name);
        self.sets[set].find(name).map(|at| SetPlace { set, at })
    }

    fn youngest(&self, place: SetPlace) -> Youngest {
        let SetPlace { set, at } = place;
        let (set, page) = (&self.sets[set], self.pages.get(place.number()));
        let is = |mark: u8| set.marks[at] & mark != 0;
        Youngest {
            version: set.version(at),
            page,
            tombstone: is(TOMBSTONE),
            may_expire: is(MAY_EXPIRE),
            exact: is(EXACT),
            loose: is(LOOSE),
        }
    }

    /// What is known of a key, without using it.
    pub(super) fn peek(&self, name: Name) -> Option<Youngest> {
        self.place_of(name).map(|place| self.youngest(place))
    }

    /// What is known of a key, and between which moments an older version of it was written that was linked,
    /// if one is noted.
    pub(super) fn peek_behind(
        &self,
        name: Name,
    ) -> Option<(Youngest, Option<(Timestamp, Timestamp)>)> {
        self.place_of(name).map(|place| {
            let behind = self.sets[place.set].behind[place.at];
            (self.youngest(place), self.periods.bounds(behind))
        })
    }

    /// Where a key's youngest version is, if that is loose.
    pub(super) fn loose(&self, name: Name) -> Option<Youngest> {
        self.peek(name).filter(|known| known.loose)
    }

    /// Whether a version of a key that is known may become loose, or its successor.
    pub(super) fn may_be_loose(&self, name: Name) -> bool {
        let Some(SetPlace { set, at }) = self.place_of(name) else { return false };
        let set = &self.sets[set];
        let loose = (0..WAYS).filter(|&at| set.is_loose(at)).count();
        set.is_loose(at) || loose < self.most_loose
    }

    /// Whether a key was asked for lately.
    pub(super) fn is_used(&self, name: Name) -> bool {
        self.place_of(name).is_some_and(|SetPlace { set, at }| self.sets[set].uses.get(at) > 0)
    }

    /// The keys whose hashes are in a range, and whose youngest versions are loose.
    pub(super) fn loose_among(
        &self,
        hashes: core::ops::RangeInclusive<u64>,
    ) -> impl Iterator<Item = (Name, Youngest)> + '_ {
        let sets = self.set_at(KeyHash(*hashes.start()))..=self.set_at(KeyHash(*hashes.end()));
        self.loose_places(sets)
            .filter(move |&SetPlace { set, at }| hashes.contains(&self.sets[set].hashes[at].0))
            .map(|place| (self.sets[place.set].name(place.at), self.youngest(place)))
    }

    /// The pages of all loose versions that are their keys' youngest.
    pub(super) fn loose_pages(&self) -> impl Iterator<Item = u32> + '_ {
        let places = self.loose_places(0..=self.sets.len() - 1);
        places.map(|place| self.pages.get(place.number()))
    }

    fn loose_places(
        &self,
        sets: core::ops::RangeInclusive<usize>,
    ) -> impl Iterator<Item = SetPlace> + '_ {
        let places = sets.flat_map(|set| (0..WAYS).map(move |at| SetPlace { set, at }));
        places.filter(|&SetPlace { set, at }| self.sets[set].is_loose(at))
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

    /// A block of the log was begun, on a device that has so many by now.
    pub(super) fn block_begun(&mut self, blocks: u32) {
        let sets = self.sets.len();
        for _ in 0..self.periods.block_begun(blocks, sets) {
            if !is_planted!(KeepsOldNames) {
                self.sets[self.looked_through].forget_old(&self.periods);
            }
            self.looked_through = (self.looked_through + 1) % sets;
        }
    }

    /// What is known of a key.
    pub(super) fn get(&mut self, name: Name) -> Option<Youngest> {
        let Some(place) = self.place_of(name) else {
            self.misses += 1;
            let set = self.set_of(name);
            self.sets[set].ask(name);
            return None;
        };
        self.hits += 1;
        self.sets[place.set].uses.raise(place.at);
        Some(self.youngest(place))
    }

    /// Notes the youngest version of a key, if that is known already or a place is found for it.
    pub(super) fn insert(&mut self, name: Name, youngest: Youngest) {
        if self.update(name, youngest) {
            return;
        }
        let set = self.set_of(name);
        if let Some((at, uses)) = self.sets[set].place(name) {
            self.periods.tell(youngest.version.timestamp);
            self.sets[set].take((at, uses), name, youngest);
            self.pages.set(SetPlace { set, at }.number(), youngest.page);
        }
    }

    /// Changes what is known of a key, if anything is; whether something was.
    pub(super) fn update(&mut self, name: Name, youngest: Youngest) -> bool {
        let Some(place) = self.place_of(name) else { return false };
        let known = self.youngest(place);
        debug_assert!(
            !known.loose
                || youngest.loose
                || known.version <= youngest.version
                || youngest == Youngest::NONE,
            "a loose version of {name:?} is lost: {known:?}, {youngest:?}"
        );
        self.periods.tell(youngest.version.timestamp);
        let behind = self.noted_behind(place, known.version, youngest.version);
        self.sets[place.set].set(place.at, youngest, behind);
        self.pages.set(place.number(), youngest.page);
        true
    }

    /// What is noted behind a version that is the youngest now, or lies elsewhere.
    fn noted_behind(&self, place: SetPlace, old: Version, new: Version) -> PeriodName {
        let noted = self.sets[place.set].behind[place.at];
        match new.cmp(&old) {
            Ordering::Equal => noted,
            // What was behind may be gone as well.
            Ordering::Less => PeriodName::NONE,
            Ordering::Greater => {
                let half = u64::midpoint(self.horizon.as_nanos(), new.timestamp.as_nanos());
                let is_young = |(begin, _): (Timestamp, Timestamp)| begin.as_nanos() >= half;
                let stays = self.periods.bounds(noted).is_some_and(is_young);
                if stays { noted } else { self.periods.name(old.timestamp) }
            }
        }
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

    const GEOMETRY: Geometry = Geometry { pages_per_block: 4096, blocks: 640, max_blocks: 640 };

    fn name(n: u64) -> Name {
        Name { keyspace: KeyspaceId::DEFAULT, hash: KeyHash(n << 40), check: n as u32 }
    }

    fn at(nanos: u64) -> Youngest {
        let version = Version::new(Timestamp::from_nanos(nanos), ClientId::new(2));
        Youngest { version, page: nanos as u32, may_expire: true, ..Youngest::NONE }
    }

    #[test]
    fn what_was_used_least_goes_first() {
        let mut cache = Translations::new(WAYS, true, GEOMETRY);
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
        let mut cache = Translations::new(WAYS, true, GEOMETRY);
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
        let mut cache = Translations::new(WAYS, true, GEOMETRY);
        cache.set_horizon(Timestamp::from_nanos(100));
        for (put, noted) in [(150, None), (160, Some(150)), (190, Some(150)), (210, Some(190))] {
            // What is put begins a period, but for the first.
            (0..11).for_each(|_| cache.block_begun(GEOMETRY.blocks));
            cache.insert(name(1), at(put));
            let behind = cache.peek_behind(name(1)).expect("it is there").1;
            let (first, last) =
                behind.map(|(first, last)| (first.as_nanos(), last.as_nanos())).unzip();
            assert!(first <= noted && noted <= last, "{put}: {behind:?}");
        }
        cache.insert(name(1), Youngest::NONE);
        assert_eq!(cache.peek_behind(name(1)).expect("it is there").1, None);
    }

    /// Whether what is noted behind a key is true after many periods in which others were put.
    fn is_true_for_ever() -> bool {
        let mut cache = Translations::new(WAYS, true, GEOMETRY);
        cache.insert(name(1), at(10));
        cache.insert(name(1), at(20));
        (0..10_000).all(|n| {
            cache.insert(name(2), at(30 + n));
            cache.block_begun(GEOMETRY.blocks);
            let behind = cache.peek_behind(name(1)).expect("it stays").1;
            behind.is_none_or(|(first, last)| first.as_nanos() <= 10 && last.as_nanos() >= 10)
        })
    }

    #[test]
    fn what_is_noted_is_true_when_names_come_round() {
        assert!(is_true_for_ever());
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn an_old_name_that_is_taken_for_a_later_one_is_found() {
        use timestone_types::planted::{Bug, with};
        assert!(!with(Bug::KeepsOldNames, is_true_for_ever));
    }

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Set>(), 32 * WAYS);
    }
}
