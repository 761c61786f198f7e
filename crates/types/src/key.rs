//! Keys, their hashes and their slots.
//!
//! A key is bytes inside a keyspace. Its [`Slot`] (CRC-16/XMODEM of the key or its `{hash tag}`,
//! modulo 16 384, as in Redis Cluster) decides the shard; its [`KeyHash`] (XXH3 with a secret seed
//! per data directory) finds it in the index and in the window of marks. Two keys may share a hash:
//! whoever uses hashes alone must stay *correct* then, and only lose time.

use core::fmt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::KeyspaceId;

/// How many slots the key space is cut into.
pub const SLOT_COUNT: u16 = 16_384;

const _: () = assert!(SLOT_COUNT.is_power_of_two());

/// One of the [`SLOT_COUNT`] parts of the key space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(u16);

impl Slot {
    /// The slot with this number, which must be below [`SLOT_COUNT`].
    #[must_use]
    pub const fn new(raw: u16) -> Option<Self> {
        if raw < SLOT_COUNT { Some(Self(raw)) } else { None }
    }

    /// The slot's number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

static XMODEM: crc::Crc<u16, crc::Table<16>> =
    crc::Crc::<u16, crc::Table<16>>::new(&crc::CRC_16_XMODEM);

/// The slot of a key: of its hash tag when it has one (the bytes between the first `{` and the next
/// `}`, unless empty), else of all its bytes.
#[must_use]
#[cfg_attr(count_costs, inline(never))]
pub fn slot_of(key: &[u8]) -> Slot {
    Slot(XMODEM.checksum(hash_tag(key)) % SLOT_COUNT)
}

fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = memchr::memchr(b'{', key) else { return key };
    let rest = &key[open + 1..];
    match memchr::memchr(b'}', rest) {
        Some(length) if length > 0 => &rest[..length],
        _ => key,
    }
}

/// The secret that makes hashes of keys unpredictable from outside; drawn once per data directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HashSeed(pub u64);

/// A key's hash inside one data directory, keyspace included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct KeyHash(pub u64);

/// Hashes a key of a keyspace.
#[must_use]
#[cfg_attr(count_costs, inline(never))]
pub fn hash_key(seed: HashSeed, keyspace: KeyspaceId, key: &[u8]) -> KeyHash {
    let seed = seed.0 ^ u64::from(keyspace.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    KeyHash(xxh3_64_with_seed(key, seed))
}

/// A check of a key: 32 bits of a second hash of its bytes, independent of its [`KeyHash`].
#[must_use]
pub fn check_key(seed: HashSeed, keyspace: KeyspaceId, key: &[u8]) -> u32 {
    let second = HashSeed(seed.0.rotate_left(32) ^ 0x5eed_0f7e_c4ec_b175);
    (hash_key(second, keyspace, key).0 >> 32) as u32
}

/// What a key is known by without its bytes: computed once, when a request is decoded, and carried
/// along with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HashedKey {
    /// The keyspace it lives in.
    pub keyspace: KeyspaceId,
    /// Its check under the owning data directory's seed.
    pub check: u32,
    /// Its hash under the same seed.
    pub hash: KeyHash,
}

impl HashedKey {
    /// Hashes `bytes` under `seed`.
    #[must_use]
    #[inline]
    pub fn new(seed: HashSeed, keyspace: KeyspaceId, bytes: &[u8]) -> Self {
        let check = check_key(seed, keyspace, bytes);
        Self { keyspace, check, hash: hash_key(seed, keyspace, bytes) }
    }

    /// The same with the bytes that were hashed.
    #[must_use]
    #[inline]
    pub const fn with(self, bytes: &[u8]) -> KeyRef<'_> {
        let Self { keyspace, check, hash } = self;
        KeyRef { keyspace, bytes, hash, check }
    }
}

/// A borrowed key with its keyspace and its hashes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyRef<'a> {
    /// The keyspace it lives in.
    pub keyspace: KeyspaceId,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Its hash under the owning data directory's seed.
    pub hash: KeyHash,
    /// Its check under the same seed.
    pub check: u32,
}

impl<'a> KeyRef<'a> {
    /// Hashes `bytes` under `seed`.
    #[must_use]
    #[inline]
    pub fn new(seed: HashSeed, keyspace: KeyspaceId, bytes: &'a [u8]) -> Self {
        HashedKey::new(seed, keyspace, bytes).with(bytes)
    }

    /// What it is known by.
    #[must_use]
    #[inline]
    pub const fn hashed(&self) -> HashedKey {
        HashedKey { keyspace: self.keyspace, check: self.check, hash: self.hash }
    }
}

impl fmt::Debug for KeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.keyspace, self.bytes.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_agree_with_the_published_example() {
        assert_eq!(XMODEM.checksum(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"foo").get(), 12_182);
    }

    #[test]
    fn a_hash_tag_decides_the_slot_unless_it_is_empty() {
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"{user1000}.followers"));
        assert_eq!(hash_tag(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(hash_tag(b"foo{{bar}}zap"), b"{bar");
        assert_eq!(hash_tag(b"foo{bar}{zap}"), b"bar");
        assert_eq!(hash_tag(b"foo{bar"), b"foo{bar");
    }

    #[test]
    fn keyspaces_and_seeds_separate_hashes() {
        let key = b"same";
        let one = hash_key(HashSeed(1), KeyspaceId::new(0), key);
        assert_ne!(one, hash_key(HashSeed(1), KeyspaceId::new(1), key));
        assert_ne!(one, hash_key(HashSeed(2), KeyspaceId::new(0), key));
    }
}
