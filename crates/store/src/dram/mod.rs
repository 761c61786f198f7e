//! The multi-version store in memory: the DRAM back end that SEMEL is compared with (§5.1), and a
//! place for keyspaces that need not survive a restart.
//!
//! ```text
//!   put ─► Spaces ─► Space: Table (hash ─► Entry: youngest version, list of older ones), fences
//!    └───► Collector: what a younger version, a tombstone or a fence makes superfluous
//!   get, latest ─► at once        scan, count ─► Walk, some segments at every pump
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
mod space;
mod table;
mod walk;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use timestone_types::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use timestone_types::{
    ClientId, Expiry, HashSeed, KeyRef, KeyspaceId, Timestamp, Version, is_planted,
};

use crate::api::{
    AsOf, Capabilities, Count, Factory, Figure, FigureValues, Figures, Latest, LatestLookup,
    Lookup, PromisedPuts, PutSize, ReadToken, Reads, ScanCursor, ScanLimit, ScrubReport,
    StoreEvent, Upkeep, Writes,
};
use crate::error::StoreError;
use chain::{Added, Entry, Stored};
use collect::{Collector, collected};
use space::Spaces;
use walk::{Walk, Walked};

/// Entries that walks look at in one pump, about.
const WALKED_AT_ONCE: usize = 4096;
/// One byte in this many is kept back from admissions: for tables that grow, and for writes that
/// nobody asked an admission for.
const MARGIN_DIVISOR: u64 = 16;
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

    const CAPABILITIES: Capabilities =
        Capabilities { survives_restart: false, answers_at_once: true };

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
    config: DramConfig,
    spaces: Spaces,
    collector: Collector,
    walks: VecDeque<Walk>,
    watermark: Timestamp,
    floor: Timestamp,
    /// Everything at or below it was lost with an earlier run.
    lost: Version,
    /// Bytes of the keyspaces.
    bytes: u64,
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
            config,
            spaces: Spaces::default(),
            collector: Collector::default(),
            walks: VecDeque::new(),
            watermark: Timestamp::ZERO,
            floor: Timestamp::ZERO,
            lost: Version::ZERO,
            bytes: 0,
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
        Self { lost: Version::new(Timestamp::MAX, ClientId::new(u32::MAX)), ..Self::new(config) }
    }

    /// Takes no more writes. Nothing has to be made durable, so that nothing is waited for.
    pub fn close(&mut self) {
        self.assert_sound();
        self.is_closed = true;
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.bytes + self.collector.bytes() as u64
    }

    /// Whether there is room for these puts, after those that were promised before. Each takes an
    /// entry beside its bytes, whether it is wanted now or promised already.
    ///
    /// # Errors
    /// [`StoreError::MemoryFull`].
    pub fn admit_puts(
        &self,
        wanted: PromisedPuts,
        promised: PromisedPuts,
    ) -> Result<(), StoreError> {
        let limit = self.config.memory_bytes - self.config.memory_bytes / MARGIN_DIVISOR;
        let entries = (wanted.count + promised.count) * Entry::bytes_for(0) as u64;
        let taken = self.memory_bytes() + wanted.bytes + promised.bytes + entries;
        if wanted.count > 0 && taken > limit {
            return Err(self.memory_full());
        }
        Ok(())
    }

    const fn memory_full_of(used_bytes: u64, limit_bytes: u64) -> StoreError {
        StoreError::MemoryFull { used_bytes, limit_bytes }
    }

    fn memory_full(&self) -> StoreError {
        Self::memory_full_of(self.memory_bytes(), self.config.memory_bytes)
    }

    fn check_age(&self, at: Timestamp) -> Result<(), StoreError> {
        let watermark = self.watermark.max(self.lost.timestamp);
        if at < watermark { Err(StoreError::TooOld { at, watermark }) } else { Ok(()) }
    }

    fn check_version(&self, version: Version) -> Result<(), StoreError> {
        if self.is_closed {
            return Err(StoreError::ShuttingDown);
        }
        if version.timestamp == Timestamp::ZERO || version.timestamp == Timestamp::MAX {
            return Err(StoreError::BadVersion(version));
        }
        Ok(())
    }

    /// Whether a version was lost before it came: its fellow writes of an earlier run are gone.
    fn is_lost(&self, version: Version) -> bool {
        version <= self.lost
    }

    /// Whether something was put into it.
    #[inline]
    pub(crate) fn has_puts(&self) -> bool {
        self.counted.puts > 0
    }

    /// What holds between calls.
    #[inline]
    fn assert_sound(&self) {
        let is_sound = |space: &space::Space| space.versions >= space.table.len() as u64;
        debug_assert!(self.spaces.iter().all(is_sound), "each key has a version");
    }

    /// A put (with a value) or a delete (without).
    fn write(
        &mut self,
        key: KeyRef<'_>,
        version: Version,
        value: Option<&[u8]>,
        expires_at: Expiry,
    ) -> Result<(), StoreError> {
        self.assert_sound();
        self.check_version(version)?;
        if key.bytes.len() > MAX_KEY_BYTES {
            return Err(StoreError::KeyTooLong { bytes: key.bytes.len(), limit: MAX_KEY_BYTES });
        }
        let bytes = key.bytes.len() + value.map_or(0, <[u8]>::len);
        if value.is_some_and(|value| value.len() > MAX_VALUE_BYTES) {
            return Err(StoreError::ValueTooLarge { bytes, limit: MAX_VALUE_BYTES });
        }
        if self.is_lost(version) {
            self.counted.duplicates += 1;
            return Ok(());
        }
        if value.is_some()
            && self.memory_bytes() + Entry::bytes_for(bytes) as u64 > self.config.memory_bytes
        {
            return Err(self.memory_full());
        }
        let space = self.spaces.ensure(key.keyspace, self.lost);
        let by = collected(space, self.watermark, self.floor);
        if version <= by.fence {
            self.counted.duplicates += 1;
            return Ok(());
        }
        let (hash, before) = (key.hash.0, space.bytes());
        let stored = Stored { version, expires_at, value: value.map(Box::from) };
        if space.add(hash, key.bytes, stored, &by) == Added::Duplicate {
            self.counted.duplicates += 1;
            return Ok(());
        }
        let (due, after) = (space.due(hash, key.bytes), space.bytes());
        self.bytes = self.bytes + after as u64 - before as u64;
        if let Some(at) = due {
            self.collector.note(at, key.keyspace, hash);
        }
        self.counted.puts += 1;
        self.counted.put_bytes += bytes as u64;
        Ok(())
    }

    /// Goes on with scans and counts.
    fn pump_walks(&mut self) {
        let mut left = WALKED_AT_ONCE;
        while left > 0
            && let Some(mut walk) = self.walks.pop_front()
        {
            match walk.step(self.spaces.get(walk.keyspace)) {
                Walked::Done(event) => self.events.push(event),
                Walked::On(entries) => {
                    left = left.saturating_sub(entries.max(1));
                    // One after the other in turn, so that short ones are not held up by long ones.
                    self.walks.push_back(walk);
                }
            }
        }
        debug_assert!(left == 0 || self.walks.is_empty(), "walks go on as far as they may");
    }
}

impl Reads for Dram {
    fn seed(&self) -> HashSeed {
        self.config.seed
    }

    fn get_as_of(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
        _token: ReadToken,
    ) -> Result<Lookup<'_>, StoreError> {
        self.assert_sound();
        self.check_age(at)?;
        self.counted.gets += 1;
        let absent = |version| Lookup::Absent { version, expires_at: Expiry::NEVER };
        let Some(space) = self.spaces.get(key.keyspace) else { return Ok(absent(self.lost)) };
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
        if fence.timestamp <= self.watermark {
            return false;
        }
        let Some(space) = self.spaces.get(key.keyspace) else { return false };
        // Of what was lost nobody knows at which keys it was.
        fence != self.lost
            && space.has_fence(fence)
            && space.table.find(key.hash.0, key.bytes).is_none()
    }

    fn latest(&mut self, key: KeyRef<'_>, _token: ReadToken) -> LatestLookup {
        self.assert_sound();
        let nothing = |version| Latest { version, absent: true, may_expire: false };
        let Some(space) = self.spaces.get(key.keyspace) else {
            return LatestLookup::Known(nothing(self.lost));
        };
        let fence = space.latest_fence();
        LatestLookup::Known(match space.table.find(key.hash.0, key.bytes) {
            Some(entry) if entry.newest.version > fence => Latest {
                version: entry.newest.version,
                absent: entry.newest.value.is_none(),
                may_expire: !entry.newest.expires_at.is_never(),
            },
            _ => nothing(fence),
        })
    }

    fn newest(&self, keyspace: KeyspaceId) -> Timestamp {
        let space = self.spaces.get(keyspace);
        space.map_or(self.lost, |space| space.youngest.max(space.latest_fence())).timestamp
    }

    fn fetch_ahead(&self, _reads: &[KeyRef<'_>], _others: &[KeyRef<'_>]) {}

    fn fetch_records_ahead(&self, _keys: &[KeyRef<'_>]) {}

    fn scan_as_of(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<(), StoreError> {
        self.assert_sound();
        self.check_age(as_of.at)?;
        self.walks.push_back(Walk::scan(token, keyspace, cursor, limit, as_of));
        Ok(())
    }

    fn count_as_of(
        &mut self,
        keyspace: KeyspaceId,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<Count, StoreError> {
        self.assert_sound();
        self.check_age(as_of.at)?;
        self.walks.push_back(Walk::count(token, keyspace, as_of));
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
        self.assert_sound();
        self.write(key, version, Some(value), expires_at)
    }

    fn delete(&mut self, key: KeyRef<'_>, version: Version) -> Result<(), StoreError> {
        self.assert_sound();
        if is_planted!(ForgottenDeletes) && key.hash.0.is_multiple_of(2) {
            return Ok(());
        }
        self.write(key, version, None, Expiry::NEVER)
    }

    fn fence(&mut self, keyspace: KeyspaceId, version: Version) -> Result<(), StoreError> {
        self.check_version(version)?;
        if self.is_lost(version) {
            return Ok(());
        }
        let space = self.spaces.ensure(keyspace, self.lost);
        let before = space.bytes();
        if space.add_fence(version) {
            self.counted.puts += 1;
        }
        assert!(space.latest_fence() >= version, "a fence is in force at once");
        self.bytes = self.bytes + space.bytes() as u64 - before as u64;
        Ok(())
    }

    fn admit(
        &mut self,
        puts: &mut dyn Iterator<Item = PutSize>,
        promised: PromisedPuts,
    ) -> Result<(), StoreError> {
        self.assert_sound();
        let sum = |sum: PromisedPuts, put: PutSize| PromisedPuts {
            count: sum.count + 1,
            bytes: sum.bytes + put.bytes as u64,
        };
        self.admit_puts(puts.fold(PromisedPuts::default(), sum), promised)
    }
}

impl Upkeep for Dram {
    fn recovered(&mut self, bound: Timestamp) {
        debug_assert!(self.spaces.iter().next().is_none(), "nothing was taken before");
        let bound = if is_planted!(ForgottenMemoryLoss) { Timestamp::ZERO } else { bound };
        self.lost = if bound == Timestamp::ZERO {
            Version::ZERO
        } else {
            Version::new(bound, ClientId::new(u32::MAX))
        };
    }

    fn advance_watermark(&mut self, t: Timestamp) {
        self.watermark = self.watermark.max(t);
        debug_assert!(self.watermark >= t, "the watermark only rises");
    }

    fn watermark(&self) -> Timestamp {
        self.watermark
    }

    fn youngest(&self) -> Timestamp {
        // What was lost does not count: it stands above the clock, and time must not get ahead with
        // every restart.
        let written = |space: &space::Space| match space.latest_fence() {
            fence if fence == self.lost => space.youngest,
            fence => space.youngest.max(fence),
        };
        self.spaces.iter().map(written).max().unwrap_or(Version::ZERO).timestamp
    }

    fn advance_replay_floor(&mut self, t: Timestamp) {
        self.floor = self.floor.max(t);
        debug_assert!(self.floor >= t, "the replay floor only rises");
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
        self.assert_sound();
        self.events.push(StoreEvent::CheckpointDone);
    }

    fn scrub(&mut self) {
        self.assert_sound();
        self.events.push(StoreEvent::ScrubDone(ScrubReport::default()));
    }

    fn pump(&mut self, now: Timestamp, events: &mut Vec<StoreEvent>) {
        self.now = self.now.max(now);
        // Walks first: what they look for may be collected right after.
        self.pump_walks();
        self.collector.pump(self.now, self.watermark, self.floor, &mut self.spaces);
        self.bytes = self.spaces.iter().map(|space| space.bytes() as u64).sum();
        debug_assert!(self.now >= now, "time never runs backwards");
        events.append(&mut self.events);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        if !self.walks.is_empty() || !self.events.is_empty() {
            return Some(self.now);
        }
        self.collector.next_deadline(self.now, self.watermark, self.floor, &self.spaces)
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wait(&mut self, _timeout: Duration) {}

    fn resize_cache(&mut self, _bytes: u64) {}

    fn shutdown(&mut self) {
        if !self.is_closed {
            self.close();
            self.events.push(StoreEvent::ShutDown);
        }
        assert!(self.is_closed, "no writes after a shutdown");
    }
}

impl Figures for Dram {
    fn figures(&self) -> FigureValues {
        let mut figures = FigureValues::default();
        let keys: usize = self.spaces.iter().map(|space| space.table.len()).sum();
        let versions: u64 = self.spaces.iter().map(|space| space.versions).sum();
        let tables: usize = self.spaces.iter().map(|space| space.table.bytes()).sum();
        let told = [
            (Figure::Keys, keys as u64),
            (Figure::Versions, versions),
            (Figure::IndexBytes, tables as u64),
            (Figure::Puts, self.counted.puts),
            (Figure::DuplicatePuts, self.counted.duplicates),
            (Figure::PutBytes, self.counted.put_bytes),
            (Figure::DramGets, self.counted.gets),
            (Figure::DramBytes, self.memory_bytes()),
            (Figure::DramLimitBytes, self.config.memory_bytes),
        ];
        for (figure, value) in told {
            figures.add(figure, value);
        }
        figures
    }

    fn is_full(&self) -> bool {
        let bytes = self.config.memory_bytes / FULL_DIVISOR;
        self.admit_puts(PromisedPuts { count: 1, bytes }, PromisedPuts::default()).is_err()
    }
}
