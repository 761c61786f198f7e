//! What answers requests asks of a store: versions, scans and counts.
//!
//! **Pending look-ups.** Every look-up may have to wait for a device: an index need not be in
//! memory. It then answers *pending*, and its event comes with a later pump. In between writes are
//! carried out, and the participant's window of recent accesses may rotate. Three rules keep an
//! answer right all the same:
//!
//! 1. A read as of a timestamp below which nothing is written any more cannot be overtaken. The
//!    participant sees to that before the store is asked: it raises the key's latest read.
//! 2. The answer to [`Reads::latest`] is true as of *some* moment between the call and its event.
//!    A write that is carried out in between may be missing in it. The validation must not take
//!    such an answer for the present. Example: the look-up finds x@5; a transaction commits x@7; the
//!    window rotates twice, and the key's access record is gone; a transaction that read x@5 is then
//!    validated against x@5, and the write at 7 is lost.
//! 3. So whoever asks keeps the answer current: as long as a look-up is in flight, or its answer is
//!    not used yet, each write that is put into the store raises it (the later version counts). The
//!    answer and all writes since the call together are at least as young as the present. They may
//!    be *younger* than what a new look-up would find, since collection drops what nobody may read;
//!    the participant's access records remember such versions as well, and its rules hold for them.
//!
//! Rule 3 pins the write set of a moment and not the access record, so that the participant does
//! not have to know of look-ups. The shard's stage does it; see its `lookups` part.

use timestone_types::{
    Direction, HashSeed, HashedKey, KeyRange, KeyRef, KeyspaceId, Timestamp, Version,
};

use super::found::{
    AsOf, Count, Latest, LatestLookup, Lookup, RangeCheck, ReadToken, ScanCursor, ScanLimit,
};
#[allow(unused_imports, reason = "for the documentation")]
use super::{ReadOutcome, StoreEvent};
use crate::error::StoreError;

/// Keys that will be used soon, by what will be done with them.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeysAhead<'a> {
    /// Their records will be read.
    pub reads: &'a [HashedKey],
    /// Their youngest versions will be looked up.
    pub validated: &'a [HashedKey],
    /// They will be put.
    pub puts: &'a [HashedKey],
}

/// Look-ups of single keys, and walks over keyspaces. None of them changes what is stored.
pub trait Reads {
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

    /// As [`get_as_of`](Self::get_as_of), from memory alone: [`Lookup::Pending`] means that a device
    /// would have to be asked. Nothing was begun then, and no event follows.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn get_in_memory(
        &mut self,
        key: KeyRef<'_>,
        at: Timestamp,
        judged: Timestamp,
    ) -> Result<Lookup<'_>, StoreError>;

    /// Whether a fence of this version leaves no trace at a key: it is younger than the watermark,
    /// and the key has had no record since then, above it or below it. A get that the fence alone
    /// answers then tells of nothing that happened to the key. From memory alone; "no" is never
    /// wrong.
    fn is_beside_fence(&self, key: KeyRef<'_>, fence: Version) -> bool;

    /// The youngest version, from memory or by an event. When two keys share a hash it may be the
    /// other one's: callers stay correct. The module says what a caller owes to a pending one.
    fn latest(&mut self, key: KeyRef<'_>, token: ReadToken) -> LatestLookup {
        let _ = token;
        self.latest_in_memory(key).map_or(LatestLookup::Pending, LatestLookup::Known)
    }

    /// The youngest version, from memory alone: `None` means that a device would have to be asked.
    /// Nothing was begun then, and no event follows.
    fn latest_in_memory(&self, key: KeyRef<'_>) -> Option<Latest>;

    /// The highest timestamp of any version, tombstone or fence that a keyspace holds, from memory
    /// alone; zero when there is none. What collection dropped before a restart may be forgotten:
    /// it lay at or below the watermark.
    fn newest(&self, keyspace: KeyspaceId) -> Timestamp;

    /// Up to here everything that a keyspace held was lost with an earlier run; zero when nothing
    /// was. Absences are of this time, and no snapshot below it is read.
    fn lost(&self, keyspace: KeyspaceId) -> Timestamp;

    /// A hint that these keys will be asked for or put soon. Has the processor fetch what that will
    /// look at, as far as it is in memory; many keys at once cost no more waiting than one.
    fn fetch_ahead(&self, keys: KeysAhead<'_>);

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

    /// The keys of a range that are visible at `as_of`, by their bytes in this direction, as many as `limit`
    /// allows; with their versions, and without their values. Answered by
    /// [`StoreEvent::RangeDone`], or by [`StoreEvent::ReadFailed`] when the watermark passes
    /// `as_of` meanwhile. Each pump looks at a bounded number of keys, dead ones included, and so does
    /// each page: it may end with fewer keys than the limit allows, and with none, although there are
    /// more behind it. It always ends behind where it began.
    ///
    /// What was written at or below `as_of` since the call may be missing, as for a scan: whoever
    /// asks sees to it that nothing is (rule 1 of the module).
    ///
    /// # Errors
    /// [`StoreError::NotOrdered`], [`StoreError::TooOld`].
    fn range_as_of(
        &mut self,
        range: KeyRange<'_>,
        direction: Direction,
        limit: ScanLimit,
        as_of: AsOf,
        token: ReadToken,
    ) -> Result<(), StoreError> {
        let _ = (direction, limit, as_of, token);
        Err(StoreError::NotOrdered(range.keyspace))
    }

    /// Whether anything was written to a range after `t`: the first key of the range whose youngest
    /// version lies above, tombstones included and expiry not considered, or a fence of the
    /// keyspace. From memory alone. Looks at `max_keys` keys at most, at least at one; parts of the
    /// range that nothing was written to since count as one key, however large they are.
    ///
    /// When two keys share all their hashes, the version may be the other one's: a write may be seen
    /// where there was none, and never the reverse.
    ///
    /// # Errors
    /// [`StoreError::NotOrdered`]; [`StoreError::TooOld`] below the watermark, where what was
    /// deleted may be forgotten.
    fn first_above(
        &self,
        range: KeyRange<'_>,
        t: Timestamp,
        max_keys: u32,
    ) -> Result<RangeCheck, StoreError> {
        let _ = (t, max_keys);
        Err(StoreError::NotOrdered(range.keyspace))
    }

    /// As [`scan`](Self::scan), of every key that has any version that a reader at or above the
    /// watermark may need: deleted and expired ones included, and those behind a fence. For whoever
    /// copies everything.
    fn list_keys(
        &mut self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        limit: ScanLimit,
        token: ReadToken,
    );

    /// The keyspaces that a restart does not take, ascending, as far as anything was ever written to
    /// them.
    fn kept_keyspaces(&self) -> Vec<KeyspaceId>;

    /// The fences of a keyspace, ascending, but those that a younger one at or below the watermark
    /// stands for.
    fn fences(&self, keyspace: KeyspaceId) -> Vec<Version>;

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

    /// Takes the bytes of a [`ReadOutcome::Present`] back for reuse.
    fn recycle(&mut self, bytes: Vec<u8>);
}
