//! The translation cache: where the youngest version of a key is (SkimpyFTL §3.2).
//!
//! An entry says that a version is its key's youngest; or that the key has none. It is *exact* when
//! no other record of the key lies in front of it in the chain: then the pointers from there lead to
//! all versions of the key. Bounded; what was used least lately goes first.
//!
//! Invariant: an entry is true. Whoever links or rewrites a record of a key tells.

use hashbrown::HashTable;
use timestone_types::{ClientId, KeyHash, KeyspaceId, Timestamp, Version};

use crate::layout::NO_PAGE;

const NONE: u32 = u32::MAX;

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
    /// No other record of the key is in front of it in the chain.
    pub(super) exact: bool,
}

impl Youngest {
    /// Of a key without any version.
    pub(super) const NONE: Self = Self {
        version: Version::ZERO,
        page: NO_PAGE,
        tombstone: true,
        may_expire: false,
        exact: true,
    };

    fn marks(self) -> u8 {
        u8::from(self.tombstone) | u8::from(self.may_expire) << 1 | u8::from(self.exact) << 2
    }
}

#[derive(Clone, Copy)]
struct Entry {
    hash: KeyHash,
    timestamp: Timestamp,
    client: ClientId,
    keyspace: KeyspaceId,
    check: u32,
    page: u32,
    /// The next one that was used earlier, and later.
    earlier: u32,
    later: u32,
    marks: u8,
}

impl Entry {
    fn new(name: Name, youngest: Youngest) -> Self {
        Self {
            hash: name.hash,
            timestamp: youngest.version.timestamp,
            client: youngest.version.client,
            keyspace: name.keyspace,
            check: name.check,
            page: youngest.page,
            earlier: NONE,
            later: NONE,
            marks: youngest.marks(),
        }
    }

    fn name(&self) -> Name {
        Name { keyspace: self.keyspace, hash: self.hash, check: self.check }
    }

    fn youngest(&self) -> Youngest {
        Youngest {
            version: Version::new(self.timestamp, self.client),
            page: self.page,
            tombstone: self.marks & 1 != 0,
            may_expire: self.marks & 2 != 0,
            exact: self.marks & 4 != 0,
        }
    }
}

fn mixed(name: Name) -> u64 {
    (name.hash.0 ^ u64::from(name.check) << 17 ^ u64::from(name.keyspace.get()))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The cache.
pub(super) struct Translations {
    entries: Vec<Entry>,
    table: HashTable<u32>,
    most: usize,
    /// Used last, and first.
    last: u32,
    first: u32,
    pub(super) hits: u64,
    pub(super) misses: u64,
}

impl Translations {
    /// Of at most so many keys, but some.
    pub(super) fn new(most: usize) -> Self {
        Self {
            entries: Vec::new(),
            table: HashTable::new(),
            most: most.clamp(16, NONE as usize - 1),
            last: NONE,
            first: NONE,
            hits: 0,
            misses: 0,
        }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        let slots = (self.table.capacity() * 8 / 7).next_power_of_two();
        (self.entries.capacity() * size_of::<Entry>() + slots * 5) as u64
    }

    fn find(&self, name: Name) -> Option<u32> {
        let is_it = |&at: &u32| self.entries[at as usize].name() == name;
        self.table.find(mixed(name), is_it).copied()
    }

    /// What is known of a key, without using it.
    pub(super) fn peek(&self, name: Name) -> Option<Youngest> {
        self.find(name).map(|at| self.entries[at as usize].youngest())
    }

    /// What is known of a key.
    pub(super) fn get(&mut self, name: Name) -> Option<Youngest> {
        let Some(at) = self.find(name) else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        self.unlink(at);
        self.link_last(at);
        Some(self.entries[at as usize].youngest())
    }

    /// Notes the youngest version of a key.
    pub(super) fn insert(&mut self, name: Name, youngest: Youngest) {
        if let Some(at) = self.find(name) {
            let entry = &mut self.entries[at as usize];
            *entry =
                Entry { earlier: entry.earlier, later: entry.later, ..Entry::new(name, youngest) };
            self.unlink(at);
            return self.link_last(at);
        }
        let at = if self.entries.len() < self.most {
            if self.entries.len() == self.entries.capacity() {
                let more = (self.entries.len() / 2).max(64).min(self.most - self.entries.len());
                self.entries.reserve_exact(more);
            }
            self.entries.push(Entry::new(name, youngest));
            self.entries.len() as u32 - 1
        } else {
            let at = self.first;
            self.unlink(at);
            let old = mixed(self.entries[at as usize].name());
            if let Ok(found) = self.table.find_entry(old, |&other| other == at) {
                found.remove();
            }
            self.entries[at as usize] = Entry::new(name, youngest);
            at
        };
        let entries = &self.entries;
        self.table.insert_unique(mixed(name), at, |&at| mixed(entries[at as usize].name()));
        self.link_last(at);
        debug_assert!(self.table.len() == self.entries.len(), "each entry is found");
    }

    /// Changes what is known of a key, if anything is.
    pub(super) fn update(&mut self, name: Name, youngest: Youngest) {
        if let Some(at) = self.find(name) {
            let entry = &mut self.entries[at as usize];
            *entry =
                Entry { earlier: entry.earlier, later: entry.later, ..Entry::new(name, youngest) };
        }
    }

    fn unlink(&mut self, at: u32) {
        let Entry { earlier, later, .. } = self.entries[at as usize];
        match self.entries.get_mut(earlier as usize) {
            Some(entry) => entry.later = later,
            None => self.first = later,
        }
        match self.entries.get_mut(later as usize) {
            Some(entry) => entry.earlier = earlier,
            None => self.last = earlier,
        }
    }

    fn link_last(&mut self, at: u32) {
        let before = core::mem::replace(&mut self.last, at);
        let entry = &mut self.entries[at as usize];
        (entry.earlier, entry.later) = (before, NONE);
        match self.entries.get_mut(before as usize) {
            Some(entry) => entry.later = at,
            None => self.first = at,
        }
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
        Youngest { version, page: nanos as u32, tombstone: false, may_expire: true, exact: true }
    }

    #[test]
    fn what_was_used_least_lately_goes_first() {
        let mut cache = Translations::new(16);
        (0..16).for_each(|n| cache.insert(name(n), at(n + 1)));
        assert_eq!(cache.get(name(0)), Some(at(1)));
        (16..31).for_each(|n| cache.insert(name(n), at(n + 1)));
        assert_eq!((cache.peek(name(0)), cache.peek(name(1))), (Some(at(1)), None));
        cache.insert(name(0), at(99));
        cache.update(name(5), at(7));
        assert_eq!((cache.get(name(0)), cache.get(name(5))), (Some(at(99)), None));
        assert_eq!((cache.hits, cache.misses), (2, 1));
    }

    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<Entry>() <= 48);
    }
}
