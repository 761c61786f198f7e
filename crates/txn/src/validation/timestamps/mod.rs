//! Validation by timestamps: MILANA's Algorithm 1 (§4.2) with step 3 of Kairos (§4.3).
//!
//! ```text
//!   Timestamps ─┬─ rules.rs       rules 1 and 2, conditions      (asks, changes nothing)
//!               ├─ recent.rs      the recent-access table: per key, what was read and written
//!               │   └─ generations.rs  its lines, two generations of them
//!               ├─ keyspaces.rs   fences and scans, per keyspace
//!               └─ ranges.rs      ranges that were read
//! ```
//!
//! Rules, atomically per shard: (1) every read key has no prepared write of another transaction at
//! *any* timestamp, its latest version is the one read, not expired at commit nor by the server's
//! time, nor told expired before a restart; (2) every written key has no prepared write of another,
//! and its access record lies below commit; (3) then `latest_read` of every validated read key
//! rises to commit, and the written keys are prepared.
//!
//! Reads are one atomic step: look whether a prepared write at or below the snapshot is pending,
//! raise `latest_read`, let the stage choose the version (MILANA §4.1, §4.3). Linearizable single
//! reads (SEMEL §3.3) are blocked by *any* prepared write.
//!
//! It never waits for a key that was only read: when the other one commits, the read is stale.

mod generations;
mod keyspaces;
mod ranges;
mod recent;
mod rules;

use timestone_types::{KeyHash, KeyRange, KeyspaceId, Timestamp, Version, is_planted};

use self::keyspaces::Keyspaces;
use self::ranges::RangeRecords;
use self::recent::RecentAccess;
use super::{Case, KeyRead, ReadVerdict, Validation, Verdict};
use crate::participant::{Holder, InFlight, LatestInStore, Prepare, WriteItem, WriteKind, Written};

/// See the module.
#[derive(Debug, Default)]
pub struct Timestamps {
    recent: RecentAccess,
    keyspaces: Keyspaces,
    ranges: RangeRecords,
}

impl Timestamps {
    /// One that remembers at most so many keys of a generation of recent accesses.
    #[must_use]
    pub fn remembering(recent_keys: usize) -> Self {
        Self { recent: RecentAccess::of(recent_keys), ..Self::default() }
    }

    /// Raises `latest_read` of a key whose record was looked up just before.
    #[inline]
    fn raise_read(&mut self, key: KeyHash, at: Timestamp, absent: bool) {
        if (is_planted!(UnrecordedAbsence) && absent)
            || (is_planted!(KnownKeysOnly) && self.made_now(key))
        {
            return;
        }
        self.recent.raise_read(key, at);
    }

    /// Whether the record of a key carries nothing but the low-water timestamp: what the planted
    /// bug takes for "no entry".
    fn made_now(&mut self, key: KeyHash) -> bool {
        assert!(is_planted!(KnownKeysOnly), "a key without a record is read as any other");
        let low_water = self.recent.low_water();
        self.recent.record(key, LatestInStore::NONE).latest_read == low_water
    }

    /// Step 3, first half.
    fn note_reads(&mut self, prepare: &Prepare<'_>) {
        if is_planted!(NoStep3) {
            return;
        }
        for item in prepare.reads {
            self.raise_read(item.key, prepare.commit, item.absent);
        }
        if !is_planted!(UnraisedRange) {
            for item in prepare.ranges {
                self.range_read(item.range(), prepare.commit);
            }
        }
        self.recent.assert_sound();
    }

    /// Who may still commit a write of the key at or below `limit`.
    #[inline]
    fn read_blocker(
        &self,
        read: &KeyRead,
        prepared: Holder,
        limit: Timestamp,
        others: InFlight<'_>,
    ) -> Option<Holder> {
        if !prepared.is_none() && others.may_commit_at(prepared) <= limit {
            return Some(prepared);
        }
        if self.recent.has_more_holders() {
            let mut holders = self.recent.more_holders(read.key);
            let other = holders.find(|&holder| others.may_commit_at(holder) <= limit);
            if other.is_some() {
                return other;
            }
        }
        if self.keyspaces.holds_nothing() {
            return None;
        }
        let mut fences = self.keyspaces.prepared(read.keyspace);
        fences.find(|&holder| others.may_commit_at(holder) <= limit)
    }
}

impl Validation for Timestamps {
    fn validate(&mut self, prepare: &Prepare<'_>, case: Case<'_>) -> Verdict {
        self.recent.assert_sound();
        self.check(prepare, &case)
    }

    fn promise(&mut self, holder: Holder, prepare: &Prepare<'_>) {
        debug_assert!(
            holder.is_none() == prepare.leaves_no_trace(),
            "who holds nothing has written nothing"
        );
        self.note_reads(prepare);
        if !holder.is_none() {
            self.restore(holder, prepare.writes);
        }
    }

    fn commit_at_once(&mut self, prepare: &Prepare<'_>, version: Version) {
        self.note_reads(prepare);
        for item in prepare.writes {
            debug_assert!(item.kind != WriteKind::Fence, "a fence is promised");
            self.recent.written(item.key, version, item.kind == WriteKind::Delete);
        }
        self.recent.assert_sound();
    }

    fn restore(&mut self, holder: Holder, writes: &[WriteItem]) {
        assert!(!holder.is_none(), "what is held is held by somebody");
        for item in writes {
            match item.kind {
                WriteKind::Put | WriteKind::Delete => {
                    self.recent.hold(item.key, holder, item.latest)
                }
                WriteKind::Fence => self.keyspaces.hold(item.keyspace, holder),
            }
        }
    }

    fn came_late(&mut self, writes: &[WriteItem]) {
        let above = self.recent.high_water().next();
        writes.iter().for_each(|item| self.keyspaces.note_late(item.keyspace, above));
    }

    fn decided(&mut self, holder: Holder, writes: &[Written], committed: Option<Version>) {
        assert!(!holder.is_none(), "what is freed was held by somebody");
        for one in writes {
            match one.kind {
                WriteKind::Put => {
                    self.recent.release(one.key, holder, committed.map(|version| (version, false)))
                }
                WriteKind::Delete => {
                    self.recent.release(one.key, holder, committed.map(|version| (version, true)))
                }
                WriteKind::Fence => {
                    self.keyspaces.release(one.keyspace, holder, committed);
                    self.recent.note(committed.map_or(Timestamp::ZERO, |one| one.timestamp));
                }
            }
        }
    }

    #[inline]
    fn read(
        &mut self,
        read: &KeyRead,
        others: InFlight<'_>,
        admit: impl FnOnce(Timestamp) -> Option<Timestamp>,
    ) -> ReadVerdict {
        self.recent.assert_sound();
        let record = self.recent.record(read.key, read.store);
        let (prepared, absent) = (record.prepared, record.absent);
        let Some(at) = admit(record.latest.timestamp) else { return ReadVerdict::NotAdmitted };
        if prepared.is_none()
            && self.keyspaces.holds_nothing()
            && !is_planted!(UnrecordedAbsence)
            && !is_planted!(KnownKeysOnly)
        {
            if at > record.latest_read && read.is_noted {
                record.latest_read = at;
                self.recent.note(at);
            }
            return ReadVerdict::At(at);
        }
        let limit = if read.latest { Timestamp::MAX } else { at };
        if let Some(holder) = self.read_blocker(read, prepared, limit, others) {
            return ReadVerdict::Blocked(at, holder);
        }
        if read.is_noted {
            self.raise_read(read.key, at, absent);
        }
        ReadVerdict::At(at)
    }

    fn read_around(&mut self, read: &KeyRead, at: Timestamp) {
        debug_assert!(!read.latest, "what is latest is not read around a put");
        if !read.is_noted {
            return;
        }
        let absent = self.recent.record(read.key, read.store).absent;
        self.raise_read(read.key, at, absent);
    }

    fn scanned(&mut self, keyspace: KeyspaceId, at: Timestamp) {
        self.keyspaces.note_scan(keyspace, at);
        self.recent.note(at);
        assert!(self.recent.high_water() >= at, "the high-water timestamp is above every scan");
    }

    fn range_read(&mut self, range: KeyRange<'_>, at: Timestamp) {
        let keyspaces = &mut self.keyspaces;
        self.ranges.note(range, at, |keyspace, at| keyspaces.note_scan(keyspace, at));
        self.recent.note(at);
        assert!(self.recent.high_water() >= at, "the high-water timestamp is above every range");
    }

    #[inline]
    fn range_read_at(&self, keyspace: KeyspaceId, key: &[u8], above: Timestamp) -> Timestamp {
        self.ranges.read_at(keyspace, key, above)
    }

    fn newest(&self, keyspace: KeyspaceId) -> Timestamp {
        let whole =
            self.keyspaces.fence(keyspace).timestamp.max(self.keyspaces.scanned_at(keyspace));
        whole.max(self.ranges.newest(keyspace))
    }

    fn retire(&mut self, now: Timestamp, written: impl Iterator<Item = KeyHash>) {
        if self.recent.is_due(now) {
            self.recent.rotate(now, written);
            if is_planted!(FallingLowWater) {
                self.recent.lower_low_water();
            }
            self.keyspaces.drop_scans(self.recent.low_water());
            self.ranges.drop_through(self.recent.low_water());
        }
        self.recent.assert_sound();
    }

    #[inline]
    fn retire_at(&self) -> Timestamp {
        self.recent.rotate_at()
    }

    fn begin(&mut self, now: Timestamp, bound: Timestamp) {
        self.recent.raise_low_water(bound);
        self.recent.rotate(now, core::iter::empty());
        assert!(self.recent.low_water() >= bound, "no run goes on below what others have served");
    }

    #[inline]
    fn low_water(&self) -> Timestamp {
        self.recent.low_water()
    }

    fn close(&mut self, at: Timestamp) {
        if !is_planted!(UnnotedClose) {
            self.recent.raise_low_water(at);
        }
        self.recent.assert_sound();
    }

    fn len(&self) -> usize {
        self.recent.len()
    }

    fn memory_bytes(&self) -> usize {
        self.recent.memory_bytes()
    }

    #[inline]
    fn home_of(&self, key: KeyHash) -> Option<&impl Sized> {
        self.recent.home_of(key)
    }
}
