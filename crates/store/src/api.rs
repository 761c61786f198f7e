//! The interface of every multi-version store: the [`Store`] trait and its vocabulary (SEMEL §3.1;
//! docs/protocol/storage.md, "Stores").
//!
//! ```text
//!   shard stage ──get/put/delete/fence──► Store ──FlashOp──► FlashDevice
//!        ▲          Lookup (at once)        │
//!        └──── pump() ──► StoreEvent ◄──────┘  (ReadDone, ScanDone, …)
//! ```
//!
//! A store belongs to one shard and one thread. No call blocks (but [`Store::wait`], which is for
//! recovery, shutdown and tests); whatever needs the device is answered later by an event of
//! [`Store::pump`]. Time arrives as an argument.
//!
//! **What the caller promises.** (1) Reads are asked at or above the watermark. (2) What is not yet
//! covered by [`Store::stable_batch`] can be put again after a crash (a log holds it), or its loss
//! is acceptable. (3) After [`Store::advance_settled`]`(t)`, no put, delete or fence with a version
//! at or below `t` arrives any more, neither by replay of a log after a crash nor late from
//! elsewhere: only then may tombstones up to `t` go.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use timestone_types::{Expiry, HashSeed, KeyRef, KeyspaceId, Timestamp, Version};

use crate::error::StoreError;

/// Names a read, scan or count of the caller; returned in its event, never interpreted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ReadToken(pub u64);

/// What a get found at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup<'a> {
    /// A version that is visible.
    Present {
        /// Its version.
        version: Version,
        /// When it stops being visible.
        expires_at: Expiry,
        /// Its value.
        value: &'a [u8],
    },
    /// No version is visible.
    Absent {
        /// The tombstone's, the expired record's or the fence's version; [`Version::ZERO`] when
        /// there is nothing at all.
        version: Version,
        /// The expired record's expiry, else never.
        expires_at: Expiry,
    },
    /// The device is being asked; a [`StoreEvent::ReadDone`] with the token follows.
    Pending,
}

/// The youngest version of a key, from the index alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Latest {
    /// The youngest version (a record's, a tombstone's or a fence's); [`Version::ZERO`] when there
    /// is none.
    pub version: Version,
    /// Whether that is a tombstone, a fence or nothing. Expiry is not considered.
    pub absent: bool,
    /// Whether that version carries an expiry.
    pub may_expire: bool,
}

/// What a read that went to the device found.
#[derive(Debug)]
pub enum ReadOutcome {
    /// A version that is visible. Give `value` back with [`Store::recycle`] when done.
    Present {
        /// Its version.
        version: Version,
        /// When it stops being visible.
        expires_at: Expiry,
        /// Its value.
        value: Vec<u8>,
    },
    /// No version is visible; as in [`Lookup::Absent`].
    Absent {
        /// As in [`Lookup::Absent`].
        version: Version,
        /// As in [`Lookup::Absent`].
        expires_at: Expiry,
    },
    /// The read failed.
    Failed(StoreError),
}

/// Where a scan goes on. Cursors survive growth of the index, and restarts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ScanCursor(pub u64);

impl ScanCursor {
    /// The beginning.
    pub const START: Self = Self(0);
}

/// How much one answer of a scan holds at most: a position with more keys than that comes whole all
/// the same, alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanLimit {
    /// Keys; at least one is taken.
    pub keys: u32,
    /// Bytes of keys.
    pub bytes: usize,
}

/// Keys found by a scan: their bytes one after the other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyList {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyList {
    /// Adds a key.
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// How many keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The keys in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = core::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(self.ends.iter()).map(|(start, &end)| &self.bytes[start..end])
    }
}

/// The answer to a count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// The number, at once.
    Keys(u64),
    /// A [`StoreEvent::CountDone`] with the token follows.
    Pending,
}

/// What a walk over all records found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScrubReport {
    /// Pages that were read.
    pub pages: u64,
    /// Records whose checksum was verified.
    pub records: u64,
    /// Pages whose header does not check out.
    pub corrupt_pages: u64,
    /// Records whose checksum does not check out.
    pub corrupt_records: u64,
}

/// Something that [`Store::pump`] reports.
#[derive(Debug)]
pub enum StoreEvent {
    /// A pending get is answered.
    ReadDone {
        /// The token of the get.
        token: ReadToken,
        /// Its answer.
        outcome: ReadOutcome,
    },
    /// A scan is answered.
    ScanDone {
        /// The token of the scan.
        token: ReadToken,
        /// The keys visible at its time, in the order of the scan, within the limit.
        keys: KeyList,
        /// Where to go on: no key before it is missing. `None` at the end.
        next: Option<ScanCursor>,
    },
    /// A scan or count could not be completed.
    ReadFailed {
        /// The token of the scan or count.
        token: ReadToken,
        /// Why.
        error: StoreError,
    },
    /// A count is answered.
    CountDone {
        /// The token of the count.
        token: ReadToken,
        /// The exact number of visible keys.
        keys: u64,
    },
    /// A scrub has walked all records.
    ScrubDone(ScrubReport),
    /// A checkpoint has become durable.
    CheckpointDone,
    /// The device failed; the store takes no more writes. Reads go on as far as they can.
    DeviceFailed(StoreError),
    /// Everything is durable, a checkpoint included where the device has room for one: the store
    /// may be dropped.
    ShutDown,
}

/// Sizes and counters of a store.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct StoreStats {
    /// Keys in the index (tombstones included).
    pub keys: u64,
    /// Versions in the index, further ones included.
    pub versions: u64,
    /// Dead records that the index still counts, until their blocks are erased.
    pub dead_records: u64,
    /// Bytes of memory of the index, all in.
    pub index_bytes: u64,
    /// Bytes of memory of the cache, its table included.
    pub cache_bytes: u64,
    /// Gets answered by the cache.
    pub cache_hits: u64,
    /// Gets answered by a page that is not yet programmed.
    pub page_hits: u64,
    /// Gets that needed the device.
    pub device_gets: u64,
    /// Page reads that these gets shared or caused.
    pub page_reads: u64,
    /// Puts, deletes and fences accepted.
    pub puts: u64,
    /// Puts that were there already.
    pub duplicate_puts: u64,
    /// Bytes of records put by the caller.
    pub put_bytes: u64,
    /// Bytes of pages programmed, for whatever reason.
    pub programmed_bytes: u64,
    /// Records moved by collection.
    pub moved_records: u64,
    /// Blocks collected.
    pub collected_blocks: u64,
    /// Tombstones dropped by collection.
    pub dropped_tombstones: u64,
    /// Blocks of the device now.
    pub blocks: u32,
    /// Blocks that it may grow to.
    pub most_blocks: u32,
    /// Blocks that are erased and free.
    pub free_blocks: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Memory of the pages and large values on their way to the device and from it, buffers that
    /// wait for the next ones included.
    pub buffer_bytes: u64,
    /// Corrupt records and pages met since opening.
    pub corrupt: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Puts are refused, and will be until something is deleted or the device can grow.
    pub full: bool,
}

/// What [`Store::prefetch`] is to fetch; each step finds its way by what the one before it has
/// fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefetch {
    /// Where the search for the key begins in the index.
    Search,
    /// The key's entry in the index.
    Entry,
}

/// Which versions a walk sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AsOf {
    /// The youngest at or before it.
    pub at: Timestamp,
    /// Those whose expiry lies after it.
    pub judged: Timestamp,
}

/// A multi-version store of one shard. See the module for what the caller promises.
pub trait Store {
    /// The secret of key hashes; fixed when the store was created.
    fn seed(&self) -> HashSeed;

    /// The youngest version at or before `at`.
    ///
    /// # Errors
    /// [`StoreError::TooOld`] below the watermark, [`StoreError::Corrupt`] when the record is
    /// damaged.
    fn get(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        token: ReadToken,
    ) -> Result<Lookup<'_>, StoreError> {
        self.get_as_of(key, at, at, token)
    }

    /// As [`get`](Self::get), but whether the version has expired is judged as of `judged`: reads
    /// of the latest version go by the server's time, whatever timestamp they read at.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn get_as_of(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
        token: ReadToken,
    ) -> Result<Lookup<'_>, StoreError>;

    /// Whether a fence of this version leaves no trace at a key: it is younger than the watermark,
    /// and the key has had no record since then, above it or below it. A get that the fence alone
    /// answers then tells of nothing that happened to the key. From memory alone; "no" is never
    /// wrong.
    fn is_beside_fence(&self, key: KeyRef<'_>, fence: Version) -> bool;

    /// The youngest version, from memory alone. When two keys share a hash it may be the other
    /// one's: callers stay correct.
    fn latest(&mut self, key: KeyRef<'_>) -> Latest;

    /// The highest timestamp of any version, tombstone or fence that a keyspace holds, from memory
    /// alone; zero when there is none. What collection dropped before a restart may be forgotten:
    /// it lay at or below the watermark.
    fn newest(&self, keyspace: KeyspaceId) -> Timestamp;

    /// A hint that `key` will be asked for or put soon: has the processor fetch the memory that
    /// [`Prefetch`] names. It costs no waiting when the steps for a number of keys follow each
    /// other: first step for all, second for all, and so on.
    fn prefetch(&self, key: KeyRef<'_>, step: Prefetch);

    /// The same of the records of the youngest versions, as far as they are cached; the steps of
    /// [`prefetch`](Self::prefetch) come before.
    fn prefetch_records(&self, keys: &[KeyRef<'_>]);

    /// Writes one version, in any order of versions; readable at once. A version that is there
    /// already is left alone.
    ///
    /// # Errors
    /// [`StoreError::DeviceFull`] and [`StoreError::Busy`] (nothing was changed; retryable),
    /// limits, shutdown.
    fn put(
        &mut self,
        key: KeyRef<'_>,
        version: Version,
        value: &[u8],
        expires_at: Expiry,
    ) -> Result<(), StoreError>;

    /// Writes a tombstone; as [`put`](Self::put), but goes on when the device is full.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn delete(&mut self, key: KeyRef<'_>, version: Version) -> Result<(), StoreError>;

    /// Everything of the keyspace at or below `version` is absent for reads at or after it.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn fence(&mut self, keyspace: KeyspaceId, version: Version) -> Result<(), StoreError>;

    /// Reads below `t` will not be asked any more; only rises.
    fn advance_watermark(&mut self, t: Timestamp);

    /// The watermark; after recovery the last one that a checkpoint holds.
    fn watermark(&self) -> Timestamp;

    /// At or above the timestamp of every version that any keyspace holds, fences included; zero
    /// while nothing was ever written. From the index alone, and after a recovery as far as the
    /// device tells.
    fn youngest(&self) -> Timestamp;

    /// The caller promises that no write with a version at or below `t` arrives any more (see the
    /// module); only rises.
    fn advance_settled(&mut self, t: Timestamp);

    /// Keys of a keyspace that are visible at `at`, in the order of their hashes, as many as
    /// `limit` allows (keys that share a position are never split). Every key that is present
    /// throughout a whole scan is returned at least once. Answered by [`StoreEvent::ScanDone`].
    ///
    /// # Errors
    /// [`StoreError::TooOld`].
    fn scan(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        at: Timestamp,
        token: ReadToken,
    ) -> Result<(), StoreError> {
        self.scan_as_of(keyspace, cursor, limit, AsOf { at, judged: at }, token)
    }

    /// As [`scan`](Self::scan), with expiry judged as of another time.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    fn scan_as_of(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<(), StoreError>;

    /// The exact number of keys of a keyspace visible at `at`.
    ///
    /// # Errors
    /// [`StoreError::TooOld`].
    fn count(
        &mut self,
        keyspace: KeyspaceId,
        at: Timestamp,
        token: ReadToken,
    ) -> Result<Count, StoreError> {
        self.count_as_of(keyspace, AsOf { at, judged: at }, token)
    }

    /// As [`count`](Self::count), with expiry judged as of another time.
    ///
    /// # Errors
    /// As [`count`](Self::count).
    fn count_as_of(
        &mut self,
        keyspace: KeyspaceId,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<Count, StoreError>;

    /// The puts that follow belong to log batch `batch`; numbers rise.
    fn begin_batch(&mut self, batch: u64);

    /// Every put of batches up to this one is durable without a log. The batch that is open is
    /// never included. (With a log a stable version may be collected as soon as a younger one lies
    /// at or below the watermark, also when that is not stable yet: its log has it.)
    fn stable_batch(&self) -> u64;

    /// Asks for everything put so far to become durable soon, without waiting for company.
    fn sync_soon(&mut self);

    /// Asks for a checkpoint now.
    fn checkpoint_now(&mut self);

    /// Starts a walk over all records, in the background; ends with [`StoreEvent::ScrubDone`].
    fn scrub(&mut self);

    /// Does what is due: polls the device, packs, programs, collects, checkpoints; never blocks,
    /// and never takes long.
    fn pump(&mut self, now: Timestamp, events: &mut Vec<StoreEvent>);

    /// When [`pump`](Self::pump) is due next even if nothing completes; `None` when there is
    /// nothing to wait for.
    fn next_deadline(&self) -> Option<Timestamp>;

    /// Readable when the device has completed something.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Blocks until the device may have completed something; for recovery, shutdown and tests.
    fn wait(&mut self, timeout: Duration);

    /// Why puts of these sizes (bytes of key and value, one a put) would be refused now, if they
    /// would: [`StoreError::Busy`] passes by itself, [`StoreError::DeviceFull`] does not. What is
    /// asked for in vain is made room for, as by a put. Stricter than a put is, so that what is
    /// promised on its word finds room later; `promised` are the bytes that were promised before
    /// and are not put yet.
    fn refusal(
        &mut self,
        puts: &mut dyn Iterator<Item = usize>,
        promised: u64,
    ) -> Option<StoreError>;

    /// Why the device could not grow when it was asked to last, though the capacity would allow it;
    /// `None` when it could.
    fn growth_refusal(&self) -> Option<&str> {
        None
    }

    /// Makes the record cache one of so many bytes, from empty; below what a cache needs at least,
    /// there is none.
    fn resize_cache(&mut self, bytes: u64);

    /// Takes the bytes of a [`ReadOutcome::Present`] back for reuse.
    fn recycle(&mut self, bytes: Vec<u8>);

    /// Starts to drain: no more writes; ends with [`StoreEvent::ShutDown`].
    fn shutdown(&mut self);

    /// Sizes and counters.
    fn stats(&self) -> StoreStats;
}
