//! Keyspaces in memory: a table each, and the fences that hide what lies at or below them.
//!
//! A fence acts as a tombstone of every key of its keyspace. Once the watermark has passed it, what
//! it hides leaves the table, segment by segment. The youngest fence at or below the watermark is
//! kept: it answers for the keys that it has emptied.

use core::mem::size_of;

use timestone_types::{KeyspaceId, Timestamp, Version, is_planted};

use super::chain::{Added, Collected, Entry, Stored};
use super::table::Table;
use crate::kit::ordered::OrderedKeys;

/// One keyspace.
pub(super) struct Space {
    pub(super) id: KeyspaceId,
    pub(super) table: Table,
    /// The keys of the table in their order, where the keyspace has one.
    pub(super) order: Option<OrderedKeys>,
    /// Ascending.
    fences: Vec<Version>,
    /// The youngest version ever put.
    pub(super) youngest: Version,
    /// All versions in the table.
    pub(super) versions: u64,
    /// Bytes of keys, values and lists of older versions.
    heap_bytes: usize,
    /// What every key had at an earlier run is lost; it acts as a fence that nobody wrote.
    lost: Version,
    /// The fence that the table has been swept for, and where the sweep that is going on has come
    /// to.
    swept: Version,
    sweep_from: Option<u64>,
    /// The fence of the sweep that is going on. A younger one that the watermark passes meanwhile gets a sweep of
    /// its own: this one has passed segments already.
    sweeping: Version,
    /// Some version may expire. The table is looked through for those that have, in rotation.
    pub(super) expires: bool,
    expire_from: Option<u64>,
    met_expiry: bool,
}

impl Space {
    fn new(id: KeyspaceId, lost: Version) -> Self {
        Self {
            id,
            table: Table::new(),
            order: id.is_ordered().then(OrderedKeys::new),
            fences: Vec::new(),
            youngest: Version::ZERO,
            versions: 0,
            heap_bytes: 0,
            lost,
            swept: lost,
            sweep_from: None,
            sweeping: lost,
            expires: false,
            expire_from: None,
            met_expiry: false,
        }
    }

    /// The youngest fence at or before `at`; zero when there is none.
    #[inline]
    pub(super) fn fence_at(&self, at: Timestamp) -> Version {
        if is_planted!(ServesBehindFences) {
            return self.lost;
        }
        let written = self.fences.iter().rev().find(|fence| fence.timestamp <= at);
        written.copied().unwrap_or(self.lost)
    }

    /// The youngest fence; zero when there is none.
    #[inline]
    pub(super) fn latest_fence(&self) -> Version {
        self.fences.last().copied().unwrap_or(self.lost)
    }

    /// The fences that were written, ascending.
    pub(super) fn fences(&self) -> impl Iterator<Item = Version> + '_ {
        self.fences.iter().copied()
    }

    /// Whether somebody wrote this fence, or it stands for what was lost.
    pub(super) fn has_fence(&self, version: Version) -> bool {
        version == self.lost || self.fences.contains(&version)
    }

    /// Adds a fence; false when it is there already, or hides nothing.
    pub(super) fn add_fence(&mut self, version: Version) -> bool {
        if version <= self.lost {
            return false;
        }
        match self.fences.binary_search(&version) {
            Ok(_) => false,
            Err(place) => {
                self.fences.insert(place, version);
                debug_assert!(self.fences.is_sorted(), "fences stand in order");
                true
            }
        }
    }

    /// Adds a version.
    pub(super) fn add(&mut self, hash: u64, key: &[u8], stored: Stored, by: &Collected) -> Added {
        let version = stored.version;
        if !stored.expires_at.is_never() {
            (self.expires, self.met_expiry) = (true, true);
        }
        let added = match self.table.find_mut(hash, key) {
            Some(entry) => {
                let before = entry.heap_bytes();
                let added = entry.add(stored);
                if added != Added::Duplicate {
                    // What it supersedes may be gone at once; the youngest version itself stays.
                    let (gone, _) = entry.trim(by);
                    self.versions = self.versions + 1 - gone as u64;
                    self.heap_bytes = self.heap_bytes - before + entry.heap_bytes();
                }
                added
            }
            None => {
                let entry = Entry::new(hash, key, stored);
                self.heap_bytes += entry.heap_bytes();
                self.versions += 1;
                self.table.insert(entry);
                Added::Youngest
            }
        };
        if let Some(order) = &mut self.order {
            order.insert(key, version.timestamp);
        }
        self.youngest = self.youngest.max(version);
        assert!(self.versions >= self.table.len() as u64, "each key has a version");
        added
    }

    /// Whether the key has versions that will be superseded, or a tombstone: and when the watermark
    /// makes them worth a look.
    pub(super) fn due(&self, hash: u64, key: &[u8]) -> Option<Timestamp> {
        let entry = self.table.find(hash, key)?;
        let newest = &entry.newest;
        (entry.count() > 1 || newest.value.is_none()).then_some(newest.version.timestamp)
    }

    /// Collects the keys with this hash. `Some`: what is left of one only waits until nothing older
    /// can arrive, up to this time.
    pub(super) fn collect(&mut self, hash: u64, by: &Collected) -> Option<Timestamp> {
        let (mut bytes, mut gone, mut empty) = (0, 0, false);
        for entry in self.table.with_hash(hash) {
            let before = entry.heap_bytes();
            let (trimmed, is_needed) = entry.trim(by);
            bytes += before - entry.heap_bytes();
            gone += trimmed as u64;
            empty |= !is_needed;
        }
        self.versions -= gone;
        self.heap_bytes -= bytes;
        while let Some(entry) =
            empty.then(|| self.table.take(hash, |entry| by.is_dead(entry))).flatten()
        {
            self.versions -= entry.count() as u64;
            self.heap_bytes -= entry.heap_bytes();
            self.leave_order(&entry.key);
        }
        assert!(self.versions >= self.table.len() as u64, "each key has a version");
        let tombstones = self.table.with_hash(hash).filter(|entry| entry.newest.value.is_none());
        let times = tombstones.map(|entry| entry.newest.version.timestamp);
        times.filter(|&at| at <= by.watermark).max()
    }

    /// Sweeps a segment for the youngest fence at or below the watermark; whether that did
    /// something.
    pub(super) fn sweep(&mut self, by: &Collected) -> bool {
        if by.fence <= self.swept {
            return false;
        }
        let kept = self.fences.partition_point(|&fence| fence < by.fence);
        self.fences.drain(..kept);
        assert!(self.latest_fence() >= by.fence, "the fence that is swept for is kept");
        let from = self.sweep_from.unwrap_or_else(|| {
            self.sweeping = by.fence;
            0
        });
        self.sweep_from = self.trim_segment(from, by);
        if self.sweep_from.is_none() {
            self.swept = self.sweeping;
        }
        true
    }

    /// Looks through `segments` more segments for what has expired.
    pub(super) fn expire(&mut self, segments: usize, by: &Collected) {
        debug_assert!(segments > 0, "some of it is looked at");
        for _ in 0..segments {
            self.expire_from = self.trim_segment(self.expire_from.unwrap_or(0), by);
            if self.expire_from.is_none() {
                // Whatever may expire was met, or came later and said so.
                self.expires = core::mem::take(&mut self.met_expiry);
                return;
            }
        }
    }

    /// Trims the segment in which `from` lies; the first hash behind it, if there are more.
    fn trim_segment(&mut self, from: u64, by: &Collected) -> Option<u64> {
        debug_assert!(self.versions >= self.table.len() as u64, "each key has a version");
        let (heap_bytes, versions) = (&mut self.heap_bytes, &mut self.versions);
        let (met_expiry, order) = (&mut self.met_expiry, &mut self.order);
        self.table.retain_segment(from, |entry| {
            let (bytes, count) = (entry.heap_bytes(), entry.count());
            let (_, is_needed) = entry.trim(by);
            let (bytes_left, count_left) =
                if is_needed { (entry.heap_bytes(), entry.count()) } else { (0, 0) };
            *heap_bytes -= bytes - bytes_left;
            *versions -= (count - count_left) as u64;
            *met_expiry |= is_needed && entry.versions().any(|one| !one.expires_at.is_never());
            if let Some(order) = order.as_mut().filter(|_| !is_needed) {
                order.remove(&entry.key);
            }
            is_needed
        })
    }

    /// A key has left the table.
    fn leave_order(&mut self, key: &[u8]) {
        if let Some(order) = &mut self.order {
            let was_there = order.remove(key);
            assert!(was_there, "each key of the table is in its place in the order");
        }
    }

    /// What holds between calls.
    #[inline]
    pub(super) fn assert_sound(&self) {
        let keys = self.table.len() as u64;
        debug_assert!(self.versions >= keys, "each key has a version");
        debug_assert!(
            self.order.as_ref().is_none_or(|order| order.len() == keys),
            "each key has its place in the order"
        );
    }

    /// Whether a fence waits to be swept for.
    pub(super) fn is_to_sweep(&self, watermark: Timestamp) -> bool {
        self.fence_at(watermark) > self.swept
    }

    /// Bytes of the table and of the order.
    pub(super) fn index_bytes(&self) -> usize {
        self.table.bytes() + self.order_bytes()
    }

    /// Bytes of the order.
    pub(super) fn order_bytes(&self) -> usize {
        self.order.as_ref().map_or(0, OrderedKeys::bytes)
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.index_bytes()
            + self.heap_bytes
            + self.fences.capacity() * size_of::<Version>()
            + size_of::<Self>()
    }
}

/// All keyspaces, by id.
#[derive(Default)]
pub(super) struct Spaces(Vec<Space>);

impl Spaces {
    #[inline]
    pub(super) fn get(&self, id: KeyspaceId) -> Option<&Space> {
        let place = self.0.binary_search_by_key(&id, |space| space.id).ok()?;
        Some(&self.0[place])
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: KeyspaceId) -> Option<&mut Space> {
        let place = self.0.binary_search_by_key(&id, |space| space.id).ok()?;
        Some(&mut self.0[place])
    }

    /// The keyspace, which is made if it is not there; and the bytes that making it took.
    #[inline]
    pub(super) fn ensure(&mut self, id: KeyspaceId, lost: Version) -> (&mut Space, usize) {
        match self.0.binary_search_by_key(&id, |space| space.id) {
            Ok(place) => (&mut self.0[place], 0),
            Err(place) => {
                self.0.insert(place, Space::new(id, lost));
                let space = &mut self.0[place];
                let bytes = space.bytes();
                (space, bytes)
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Space> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Space> {
        self.0.iter_mut()
    }
}
