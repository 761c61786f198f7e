//! What a store knows a key by, without its bytes: 42 bits of the hash that everybody uses, and 32
//! of a second one, which nobody outside knows. Index, cache and staging area name keys by it.

use timestone_types::{HashedKey, KeyHash};

/// What the index knows a key by, inside its keyspace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct KeyId {
    pub(crate) segment: u16,
    pub(crate) tag: u32,
    pub(crate) check: u32,
}

impl KeyId {
    /// From a key's two hashes.
    pub(crate) fn new(hash: KeyHash, check: u32) -> Self {
        Self { segment: (hash.0 >> 54) as u16, tag: (hash.0 as u32).max(1), check }
    }

    /// Of a key that was hashed under the store's seed.
    #[inline]
    pub(crate) fn of(key: HashedKey) -> Self {
        Self::new(key.hash, key.check)
    }

    /// A hash that leads to the same place in the index.
    pub(crate) fn place(self) -> KeyHash {
        KeyHash(u64::from(self.segment) << 54 | u64::from(self.tag))
    }

    /// A well mixed number made of all its bits, for the cache.
    pub(crate) fn mixed(self) -> u64 {
        let wide = u64::from(self.tag) << 32 | u64::from(self.check);
        (wide ^ u64::from(self.segment).wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .wrapping_mul(0xd6e8_feb8_6659_fd93)
    }
}
