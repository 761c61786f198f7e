//! The multi-version store in memory: the DRAM back end that SEMEL is compared with (§5.1), and a
//! place for keyspaces that need not survive a restart.
//!
//! ```text
//!   put ─► Contents ─┬► Spaces ─► Space: Table (hash ─► Entry: youngest version, older ones), order, fences
//!                    └► Collector: what a younger version, a tombstone or a fence makes superfluous
//!   get, latest ─► at once        scan, count ─► Walks, some segments at every pump
//!                                 range ─► RangeReads, some keys of the order at every pump
//!   Watermarks: what may be asked for, what may go, what an earlier run has lost
//! ```
//! Nothing waits for a device: all single look-ups are answered at once. Nothing is durable:
//! [`Upkeep::stable_batch`] counts every batch as stable, since its loss is what was asked for.
//!
//! **After a restart** the store is empty, and that must look like one event and not like holes.
//! [`Upkeep::recovered`] tells the timestamp `bound` that everything of earlier runs lies at or
//! below: what was written, what was promised, and what was read. The store then behaves as if a
//! fence at `bound` had been written to every keyspace. A transaction that read a value before the
//! restart finds a younger absence at its validation and is refused; a promise of an earlier run
//! that is decided now puts nothing (its fellow writes are lost, too); a snapshot from before the
//! restart is refused as too old, so that nobody sees some keys as they were and others gone.
//!
//! Invariants: (1) versions of a key are in descending order, each once; (2) the bytes that are
//! counted are at or above those that are taken; (3) what an admission counted on finds room.

mod chain;
mod collect;
mod contents;
mod ranges;
mod space;
mod table;
mod walk;
mod watermarks;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use timestone_types::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use timestone_types::{
    Direction, Expiry, HashSeed, KeyRef, KeyspaceId, Timestamp, Version, is_planted,
};

use crate::api::{
    AsOf, Capabilities, Count, Factory, Figure, FigureValues, Figures, KeyRange, KeysAhead, Latest,
    Lookup, PromisedPuts, PutSize, PutsInMemory, RangeCheck, ReadToken, Reads, ScanCursor,
    ScanLimit, ScrubReport, StoreEvent, Upkeep, Writes, check_order,
};
use crate::error::StoreError;
use chain::Stored;
use contents::Contents;
use ranges::{RangeReads, RangeWalk};
use walk::{Walk, Walks};
use watermarks::Watermarks;

/// With less room than one byte in this many the store counts as full.
const FULL_DIVISOR: u64 = 64;

/// How a [`Dram`] is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DramConfig {
    /// The secret of key hashes.
    pub seed: HashSeed,
    /// Memory for keys, versions and tables, in bytes.
    pub memory_bytes: u64,
}

impl Factory for DramConfig {
    type Store = Dram;
    type Report = ();

    const CAPABILITIES: Capabilities = Capabilities {
        survives_restart: false,
        answers_at_once: true,
        keeps_versions: true,
        reads_ranges: true,
    };

    fn open(self) -> Result<(Dram, ()), StoreError> {
        Ok((Dram::new(self), ()))
    }
}

/// What has been counted since the beginning.
#[derive(Clone, Copy, Default, Debug)]
struct Counted {
    gets: u64,
    puts: u64,
    duplicates: u64,
    put_bytes: u64,
}

/// The store. See [`crate::Store`] for its operations.
///
/// ```
/// use timestone_store::{Dram, DramConfig, Lookup, ReadToken, Reads, Writes};
/// use timestone_types::{ClientId, Expiry, HashSeed, KeyRef, KeyspaceId, Timestamp, Version};
/// # fn main() -> Result<(), timestone_store::StoreError> {
/// let mut store = Dram::new(DramConfig { seed: HashSeed(1), memory_bytes: 1 << 20 });
/// let key = KeyRef::new(store.seed(), KeyspaceId::DEFAULT, b"planet");
/// let version = Version::new(Timestamp::from_nanos(7), ClientId::new(1));
/// store.put(key, version, b"earth", Expiry::NEVER)?;
/// let found = store.get(key, Timestamp::from_nanos(8), ReadToken(1))?;
/// assert!(matches!(found, Lookup::Present { value: b"earth", .. }));
/// # Ok(())
/// # }
/// ```
pub struct Dram {
    seed: HashSeed,
    contents: Contents,
    walks: Walks,
    ranges: RangeReads,
    marks: Watermarks,
    batch: u64,
    now: Timestamp,
    is_closed: bool,
    counted: Counted,
    events: Vec<StoreEvent>,
}

impl Dram {
    /// An empty store, of which there was no earlier run.
    #[must_use]
    pub fn new(config: DramConfig) -> Self {
        Self {
            seed: config.seed,
            contents: Contents::new(config.memory_bytes),
            walks: Walks::default(),
            ranges: RangeReads::default(),
            marks: Watermarks::new(),
            batch: 0,
            now: Timestamp::ZERO,
            is_closed: false,
            counted: Counted::default(),
            events: Vec::new(),
        }
    }

    /// An empty store, whose earlier runs are being told by a log: until [`Upkeep::recovered`] says
    /// that this is over, everything that is written is ignored.
    #[must_use]
    pub fn in_recovery(config: DramConfig) -> Self {
        Self { marks: Watermarks::in_recovery(), ..Self::new(config) }
    }

    /// Takes no more writes. Nothing has to be made durable, so that nothing is waited for.
    pub fn close(&mut self) {
        self.contents.assert_sound();
        self.is_closed = true;
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.contents.bytes()
    }

    /// Whether there is room for these puts, after those that were promised before. Each takes an
    /// entry beside its bytes, whether it is wanted now or promised already.
    ///
    /// # Errors
    /// [`StoreError::MemoryFull`].
    pub fn admit_puts(
        &self,
        wanted: PutsInMemory,
        promised: PutsInMemory,
    ) -> Result<(), StoreError> {
        self.contents.admit(wanted, promised)
    }

    /// Bytes of key and value of a put, as they count in an admission: keys that are in order are
    /// there twice.
    #[inline]
    pub(crate) fn most_bytes(put: PutSize) -> u64 {
        let bytes = put.bytes as u64;
        let in_order = if put.keyspace.is_ordered() { bytes.min(MAX_KEY_BYTES as u64) } else { 0 };
        bytes + in_order
    }

    /// Whether something was put into it.
    #[inline]
    pub(crate) fn has_puts(&self) -> bool {
        self.counted.puts > 0
    }

    /// Whether a version may be written now.
    #[inline]
    fn may_write(&self, version: Version) -> Result<(), StoreError> {
        if self.is_closed {
            return Err(StoreError::ShuttingDown);
        }
        if version.timestamp == Timestamp::ZERO || version.timestamp == Timestamp::MAX {
            return Err(StoreError::BadVersion(version));
        }
        Ok(())
    }

    /// A put (with a value) or a delete (without).
    fn write(
        &mut self,
        key: KeyRef<'_>,
        version: Version,
        value: Option<&[u8]>,
        expires_at: Expiry,
    ) -> Result<(), StoreError> {
        self.contents.assert_sound_in(key.keyspace);
        self.may_write(version)?;
        if key.bytes.len() > MAX_KEY_BYTES {
            return Err(StoreError::KeyTooLong { bytes: key.bytes.len(), limit: MAX_KEY_BYTES });
        }
        let bytes = key.bytes.len() + value.map_or(0, <[u8]>::len);
        if value.is_some_and(|value| value.len() > MAX_VALUE_BYTES) {
            return Err(StoreError::ValueTooLarge { bytes, limit: MAX_VALUE_BYTES });
        }
        if self.marks.is_lost(version) {
            self.counted.duplicates += 1;
            return Ok(());
        }
        let in_order = if key.keyspace.is_ordered() { key.bytes.len() } else { 0 };
        if value.is_some() && !self.contents.has_room(bytes + in_order) {
            return Err(self.contents.full());
        }
        let stored = Stored { version, expires_at, value: value.map(Box::from) };
        if self.contents.add(key, stored, &self.marks) {
            self.counted.puts += 1;
            self.counted.put_bytes += bytes as u64;
        } else {
            self.counted.duplicates += 1;
        }
        Ok(())
    }
}

impl Reads for Dram {
    fn seed(&self) -> HashSeed {
        self.seed
    }

    fn get_as_of(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
        _token: ReadToken,
    ) -> Result<Lookup<'_>, StoreError> {
        self.get_in_memory(key, at, judged)
    }

    fn get_in_memory(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
    ) -> Result<Lookup<'_>, StoreError> {
        self.contents.assert_sound_in(key.keyspace);
        self.marks.check_age(at)?;
        self.counted.gets += 1;
        let absent = |version| Lookup::Absent { version, expires_at: Expiry::NEVER };
        let Some(space) = self.contents.get(key.keyspace) else {
            return Ok(absent(self.marks.lost()));
        };
        let fence = space.fence_at(at);
        let found = space.table.find(key.hash.0, key.bytes).and_then(|entry| entry.at(at));
        Ok(match found {
            Some(&Stored { version, expires_at, ref value }) if version > fence => match value {
                Some(value) if !expires_at.has_passed(judged) => {
                    Lookup::Present { version, expires_at, value }
                }
                _ => Lookup::Absent { version, expires_at },
            },
            _ => absent(fence),
        })
    }

    fn is_beside_fence(&self, key: KeyRef<'_>, fence: Version) -> bool {
        // What a fence at or below the watermark hid may have left the table.
        if fence.timestamp <= self.marks.watermark() {
            return false;
        }
        let Some(space) = self.contents.get(key.keyspace) else { return false };
        // Of what was lost nobody knows at which keys it was.
        fence != self.marks.lost()
            && space.has_fence(fence)
            && space.table.find(key.hash.0, key.bytes).is_none()
    }

    fn latest_in_memory(&self, key: KeyRef<'_>) -> Option<Latest> {
        self.contents.assert_sound_in(key.keyspace);
        let nothing = |version| Latest { version, absent: true, may_expire: false };
        let Some(space) = self.contents.get(key.keyspace) else {
            return Some(nothing(self.marks.lost()));
        };
        let fence = space.latest_fence();
        Some(match space.table.find(key.hash.0, key.bytes) {
            Some(entry) if entry.newest.version > fence => Latest {
                version: entry.newest.version,
                absent: entry.newest.value.is_none(),
                may_expire: !entry.newest.expires_at.is_never(),
            },
            _ => nothing(fence),
        })
    }

    fn newest(&self, keyspace: KeyspaceId) -> Timestamp {
        let space = self.contents.get(keyspace);
        space.map_or(self.marks.lost(), |space| space.youngest.max(space.latest_fence())).timestamp
    }

    fn lost(&self, _keyspace: KeyspaceId) -> Timestamp {
        self.marks.lost().timestamp
    }

    fn fetch_ahead(&self, _keys: KeysAhead<'_>) {}

    fn scan_as_of(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<(), StoreError> {
        self.contents.assert_sound();
        self.marks.check_age(as_of.at)?;
        self.walks.begin(Walk::scan(token, keyspace, cursor, limit, as_of), &self.marks);
        Ok(())
    }

    fn range_as_of(
        &mut self,
        range: KeyRange<'_>,
        direction: Direction,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<(), StoreError> {
        self.contents.assert_sound();
        check_order(&range)?;
        self.marks.check_age(as_of.at)?;
        self.ranges.begin(RangeWalk::new(token, range, direction, limit, as_of), &self.marks);
        Ok(())
    }

    fn first_above(
        &self,
        range: KeyRange<'_>,
        t: Timestamp,
        max_keys: u32,
    ) -> Result<RangeCheck, StoreError> {
        check_order(&range)?;
        self.marks.check_age(t)?;
        Ok(match self.contents.get(range.keyspace) {
            Some(space) => ranges::first_above(self.seed, space, range, t, max_keys),
            // What was lost lies at or below what may be asked for.
            None => RangeCheck::None,
        })
    }

    fn list_keys(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        token: ReadToken,
    ) {
        self.contents.assert_sound();
        self.walks.begin(Walk::list(token, keyspace, cursor, limit), &self.marks);
    }

    fn kept_keyspaces(&self) -> Vec<KeyspaceId> {
        Vec::new()
    }

    fn fences(&self, keyspace: KeyspaceId) -> Vec<Version> {
        self.contents.get(keyspace).map_or_else(Vec::new, |space| space.fences().collect())
    }

    fn count_as_of(
        &mut self,
        keyspace: KeyspaceId,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<Count, StoreError> {
        self.contents.assert_sound();
        self.marks.check_age(as_of.at)?;
        self.walks.begin(Walk::count(token, keyspace, as_of), &self.marks);
        Ok(Count::Pending)
    }

    fn recycle(&mut self, _bytes: Vec<u8>) {}
}

impl Writes for Dram {
    fn put(
        &mut self,
        key: KeyRef<'_>,
        version: Version,
        value: &[u8],
        expires_at: Expiry,
    ) -> Result<(), StoreError> {
        self.write(key, version, Some(value), expires_at)
    }

    fn delete(&mut self, key: KeyRef<'_>, version: Version) -> Result<(), StoreError> {
        if is_planted!(ForgottenDeletes) && key.hash.0.is_multiple_of(2) {
            return Ok(());
        }
        self.write(key, version, None, Expiry::NEVER)
    }

    fn fence(&mut self, keyspace: KeyspaceId, version: Version) -> Result<(), StoreError> {
        self.may_write(version)?;
        self.contents.assert_sound();
        if !self.marks.is_lost(version) && self.contents.add_fence(keyspace, version, &self.marks) {
            self.counted.puts += 1;
        }
        Ok(())
    }

    fn admit(
        &mut self,
        puts: &mut dyn Iterator<Item = PutSize>,
        promised: PromisedPuts,
    ) -> Result<(), StoreError> {
        let sum = |sum: PutsInMemory, put: PutSize| PutsInMemory {
            count: sum.count + 1,
            bytes: sum.bytes + Self::most_bytes(put),
        };
        let wanted = puts.fold(PutsInMemory::default(), sum);
        // All that was promised is for this store, and may be in order.
        let twice = promised.count.saturating_mul(MAX_KEY_BYTES as u64).min(promised.bytes);
        let promised = PutsInMemory { count: promised.count, bytes: promised.bytes + twice };
        self.admit_puts(wanted, promised)
    }

    /// What is dead goes by itself.
    fn ask_room(&mut self, _: &mut dyn Iterator<Item = PutSize>, _: PromisedPuts) {}
}

impl Upkeep for Dram {
    fn recovered(&mut self, bound: Timestamp) {
        debug_assert!(self.contents.spaces().next().is_none(), "nothing was taken before");
        let bound = if is_planted!(ForgottenMemoryLoss) { Timestamp::ZERO } else { bound };
        self.marks.recovered(bound);
    }

    fn begin_life(&mut self) {
        self.contents = Contents::new(self.contents.limit_bytes());
        self.walks = Walks::default();
        self.ranges = RangeReads::default();
        self.marks.begin_recovery();
        self.events.clear();
        self.batch = 0;
    }

    fn advance_watermark(&mut self, t: Timestamp) {
        self.contents.assert_sound();
        self.marks.raise(t);
    }

    fn watermark(&self) -> Timestamp {
        self.marks.watermark()
    }

    fn youngest(&self) -> Timestamp {
        // What was lost does not count: it stands above the clock, and time must not get ahead with
        // every restart.
        let written = |space: &space::Space| match space.latest_fence() {
            fence if fence == self.marks.lost() => space.youngest,
            fence => space.youngest.max(fence),
        };
        self.contents.spaces().map(written).max().unwrap_or(Version::ZERO).timestamp
    }

    fn advance_replay_floor(&mut self, t: Timestamp) {
        self.contents.assert_sound();
        self.marks.raise_replay_floor(t);
    }

    fn begin_batch(&mut self, batch: u64) {
        self.batch = self.batch.max(batch);
        debug_assert!(self.batch >= batch, "batches are counted up");
    }

    fn stable_batch(&self) -> u64 {
        self.batch.saturating_sub(1)
    }

    fn sync_soon(&mut self) {}

    fn checkpoint_now(&mut self) {
        self.contents.assert_sound();
        self.events.push(StoreEvent::CheckpointDone);
    }

    fn scrub(&mut self) {
        self.contents.assert_sound();
        self.events.push(StoreEvent::ScrubDone(ScrubReport::default()));
    }

    fn pump(&mut self, now: Timestamp, events: &mut Vec<StoreEvent>) {
        self.now = self.now.max(now);
        // Walks first: what they look for may be collected right after.
        self.walks.pump(&self.contents, &mut self.events);
        self.ranges.pump(self.seed, &self.contents, &self.marks, &mut self.events);
        self.contents.collect(self.now, &self.marks);
        debug_assert!(self.now >= now, "time never runs backwards");
        events.append(&mut self.events);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        if !self.walks.is_empty() || !self.ranges.is_empty() || !self.events.is_empty() {
            return Some(self.now);
        }
        self.contents.next_deadline(self.now, &self.marks)
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wait(&mut self, _timeout: Duration) {}

    fn resize_cache(&mut self, _bytes: u64) {}

    fn charge_cache(&mut self, _beside: u64) {}

    fn shutdown(&mut self) {
        self.close();
        self.events.push(StoreEvent::ShutDown);
        assert!(self.is_closed, "no writes after a shutdown");
    }
}

impl Figures for Dram {
    fn figures(&self) -> FigureValues {
        let mut figures = FigureValues::default();
        let keys: usize = self.contents.spaces().map(|space| space.table.len()).sum();
        let versions: u64 = self.contents.spaces().map(|space| space.versions).sum();
        let tables: usize = self.contents.spaces().map(space::Space::index_bytes).sum();
        let orders: usize = self.contents.spaces().map(space::Space::order_bytes).sum();
        let told = [
            (Figure::Keys, keys as u64),
            (Figure::Versions, versions),
            (Figure::IndexBytes, tables as u64),
            (Figure::OrderBytes, orders as u64),
            (Figure::Puts, self.counted.puts),
            (Figure::DuplicatePuts, self.counted.duplicates),
            (Figure::PutBytes, self.counted.put_bytes),
            (Figure::DramGets, self.counted.gets),
            (Figure::DramBytes, self.memory_bytes()),
            (Figure::DramLimitBytes, self.contents.limit_bytes()),
        ];
        for (figure, value) in told {
            figures.add(figure, value);
        }
        figures
    }

    fn is_full(&self) -> bool {
        let bytes = self.contents.limit_bytes() / FULL_DIVISOR;
        self.admit_puts(PutsInMemory { count: 1, bytes }, PutsInMemory::default()).is_err()
    }
}
