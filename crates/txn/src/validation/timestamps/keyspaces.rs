//! What concerns whole keyspaces: fences (everything below is absent), scans (nothing commits at
//! or below), and writes that came late (ranges that were read by then may lack them).
//!
//! All are rare, so these are short lists which the fast paths only ask for emptiness. A committed
//! fence and the last late write are remembered for good, one per keyspace; a scan is forgotten once the
//! low-water timestamp has passed it.

use timestone_types::{KeyspaceId, Timestamp, Version};

use crate::participant::Holder;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Keyspaces {
    prepared: Vec<(KeyspaceId, Holder)>,
    fenced: Vec<(KeyspaceId, Version)>,
    scanned: Vec<(KeyspaceId, Timestamp)>,
    /// Above everything that had been read when the last late write came.
    late: Vec<(KeyspaceId, Timestamp)>,
}

impl Keyspaces {
    /// Nothing here concerns anybody: the fast path of writes may skip it.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.has_no_fence() && self.scanned.is_empty()
    }

    /// No fence is prepared, and none was committed: what was read is in no other way gone.
    #[inline]
    pub(super) fn has_no_fence(&self) -> bool {
        self.prepared.is_empty() && self.fenced.is_empty()
    }

    /// No fence is prepared: the fast path of reads may skip it. Scans, ranges that count for whole
    /// keyspaces, and fences that are committed concern no read of a key.
    #[inline]
    pub(super) fn holds_nothing(&self) -> bool {
        self.prepared.is_empty()
    }

    /// Those who have a fence prepared in the keyspace.
    pub(super) fn prepared(&self, keyspace: KeyspaceId) -> impl Iterator<Item = Holder> {
        self.prepared.iter().filter(move |one| one.0 == keyspace).map(|one| one.1)
    }

    pub(super) fn hold(&mut self, keyspace: KeyspaceId, holder: Holder) {
        assert!(!holder.is_none(), "what is held is held by somebody");
        if !self.prepared.contains(&(keyspace, holder)) {
            self.prepared.push((keyspace, holder));
        }
    }

    pub(super) fn release(
        &mut self,
        keyspace: KeyspaceId,
        holder: Holder,
        committed: Option<Version>,
    ) {
        self.prepared.retain(|&one| one != (keyspace, holder));
        let Some(version) = committed else { return };
        raise(&mut self.fenced, keyspace, version);
        assert!(self.fence(keyspace) >= version, "a fence holds for good");
    }

    /// The youngest committed fence of the keyspace.
    pub(super) fn fence(&self, keyspace: KeyspaceId) -> Version {
        noted(&self.fenced, keyspace).unwrap_or(Version::ZERO)
    }

    /// The highest timestamp at which the keyspace was scanned.
    pub(super) fn scanned_at(&self, keyspace: KeyspaceId) -> Timestamp {
        noted(&self.scanned, keyspace).unwrap_or(Timestamp::ZERO)
    }

    pub(super) fn note_scan(&mut self, keyspace: KeyspaceId, at: Timestamp) {
        raise(&mut self.scanned, keyspace, at);
        debug_assert!(self.scanned_at(keyspace) >= at, "what was scanned stays scanned");
    }

    /// A write has come late, when everything was read below this.
    pub(super) fn note_late(&mut self, keyspace: KeyspaceId, above_reads: Timestamp) {
        raise(&mut self.late, keyspace, above_reads);
        debug_assert!(self.late(keyspace) >= above_reads, "what is noted does not fall");
    }

    /// Whoever began below this may have read a range of the keyspace without a write that it should have seen.
    pub(super) fn late(&self, keyspace: KeyspaceId) -> Timestamp {
        noted(&self.late, keyspace).unwrap_or(Timestamp::ZERO)
    }

    pub(super) fn drop_scans(&mut self, low_water: Timestamp) {
        let highest = self.scanned.iter().map(|one| one.1).max();
        self.scanned.retain(|one| one.1 > low_water);
        let left = self.scanned.iter().map(|one| one.1).max();
        assert!(left == highest || highest <= Some(low_water), "a scan above it is remembered");
    }
}

/// What is noted of a keyspace.
fn noted<T: Copy>(list: &[(KeyspaceId, T)], keyspace: KeyspaceId) -> Option<T> {
    list.iter().find(|one| one.0 == keyspace).map(|one| one.1)
}

/// Notes of a keyspace what lies above what is noted.
fn raise<T: Ord + Copy>(list: &mut Vec<(KeyspaceId, T)>, keyspace: KeyspaceId, to: T) {
    match list.iter_mut().find(|one| one.0 == keyspace) {
        Some(one) => one.1 = one.1.max(to),
        None => list.push((keyspace, to)),
    }
}
