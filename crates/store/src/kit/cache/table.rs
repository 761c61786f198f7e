//! The table of the record cache: 8-byte slots in buckets of one cache line.
//!
//! A slot says where a record is, how often it was asked for, and whether it is superseded. A slot
//! without a place is what is remembered of a key whose record has left.

use timestone_types::{KeyspaceId, Version};

use super::SEGMENT_BYTES;
use crate::kit::key_id::KeyId;

/// Slots of a bucket: one cache line.
pub(super) const WAYS: usize = 8;
/// How often "asked for" is counted, at most.
const MAX_FREQUENCY: u64 = 3;

/// Hashes that find a record: of its key, which says the bucket, and of its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name {
    pub(super) key: u64,
    pub(super) version: u64,
}

impl Name {
    #[inline]
    pub(super) fn new(keyspace: KeyspaceId, id: KeyId, version: Version) -> Self {
        let key = Self::key(keyspace, id);
        let version = version.timestamp.as_nanos() ^ u64::from(version.client.get()) << 40;
        let mixed = (key ^ version).wrapping_mul(0x9fb2_1c65_1e98_df25);
        Self { key, version: mixed ^ mixed >> 29 }
    }

    #[inline]
    pub(super) fn key(keyspace: KeyspaceId, id: KeyId) -> u64 {
        let mixed = id.mixed() ^ u64::from(keyspace.get()).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        mixed ^ mixed >> 32
    }
}

/// A record's place, valid until the next insert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CachedRecord {
    pub(super) segment: u32,
    pub(super) offset: u32,
}

/// A slot: 26 bits of fingerprint, one for "superseded", 2 of frequency, 35 of place plus one (zero
/// is an empty slot). The highest place is no place: such a slot is a ghost, with the fingerprint of
/// a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TableSlot(pub(super) u64);

impl TableSlot {
    const PLACE_BITS: u32 = 35;
    const OFFSET_BITS: u32 = 15;
    const SUPERSEDED: u64 = 1 << 37;
    const FINGERPRINT_SHIFT: u32 = 38;
    const NO_PLACE: u64 = (1 << Self::PLACE_BITS) - 1;

    pub(super) fn new(hash: u64, frequency: u64, place: CachedRecord) -> Self {
        let raw = (u64::from(place.segment) << Self::OFFSET_BITS | u64::from(place.offset / 8)) + 1;
        let fingerprint = hash >> Self::FINGERPRINT_SHIFT << Self::FINGERPRINT_SHIFT;
        debug_assert!(raw < Self::NO_PLACE, "no record begins at the end of the last segment");
        Self(fingerprint | frequency << Self::PLACE_BITS | raw)
    }

    /// Of a key whose record has left.
    pub(super) fn ghost(key: u64) -> Self {
        Self(key << Self::FINGERPRINT_SHIFT | Self::NO_PLACE)
    }

    pub(super) fn is_ghost(self) -> bool {
        self.0 & Self::NO_PLACE == Self::NO_PLACE
    }

    pub(super) fn matches(self, hash: u64) -> bool {
        self.0 != 0
            && self.0 >> Self::FINGERPRINT_SHIFT == hash >> Self::FINGERPRINT_SHIFT
            && !self.is_ghost()
    }

    /// How little is lost with it: empty slots first, then ghosts and superseded records, and then
    /// what is asked for least.
    pub(super) fn worth(self) -> u64 {
        match self {
            Self(0) => 0,
            ghost if ghost.is_ghost() => 1,
            old if old.is_superseded() => 2,
            record => 3 + record.frequency(),
        }
    }

    pub(super) fn frequency(self) -> u64 {
        self.0 >> Self::PLACE_BITS & 3
    }

    pub(super) fn asked_for(self) -> Self {
        if self.frequency() == MAX_FREQUENCY {
            self
        } else {
            Self(self.0 + (1 << Self::PLACE_BITS))
        }
    }

    /// Superseded, and asked for by nobody.
    pub(super) fn supersede(self) -> Self {
        Self((self.0 & !(MAX_FREQUENCY << Self::PLACE_BITS)) | Self::SUPERSEDED)
    }

    pub(super) fn is_superseded(self) -> bool {
        self.0 & Self::SUPERSEDED != 0
    }

    pub(super) fn place(self) -> CachedRecord {
        let raw = (self.0 & ((1 << Self::PLACE_BITS) - 1)) - 1;
        CachedRecord {
            segment: (raw >> Self::OFFSET_BITS) as u32,
            offset: (raw & ((1 << Self::OFFSET_BITS) - 1)) as u32 * 8,
        }
    }
}

const _: () = assert!(SEGMENT_BYTES / 8 == 1 << TableSlot::OFFSET_BITS);

/// The slots of some keys: one line of the processor's cache.
#[derive(Clone, Copy, Default, Debug)]
#[repr(align(64))]
pub(super) struct Bucket(pub(super) [u64; WAYS]);

impl Bucket {
    pub(super) fn slots(&self) -> impl Iterator<Item = TableSlot> {
        self.0.iter().map(|&raw| TableSlot(raw))
    }

    pub(super) fn slots_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.0.iter_mut()
    }
}
