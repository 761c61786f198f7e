//! What changes a store, and whether there is room for it.

use timestone_types::{Expiry, KeyRef, KeyspaceId, Version};

use crate::error::StoreError;

/// How large a put is, for [`Writes::admit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PutSize {
    /// Where it goes.
    pub keyspace: KeyspaceId,
    /// Bytes of key and value.
    pub bytes: usize,
}

/// Puts that were promised and are not in the store yet, for [`Writes::admit`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PromisedPuts {
    /// How many there are, at most.
    pub count: u64,
    /// Bytes of their keys and values, at most.
    pub bytes: u64,
    /// Those of them for keyspaces in memory.
    pub in_memory: PutsInMemory,
}

/// Puts that a store in memory is to have room for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PutsInMemory {
    /// How many there are.
    pub count: u64,
    /// Bytes of their keys and values; of keys that are in order twice, for so often they are there.
    pub bytes: u64,
}

impl PutsInMemory {
    /// Counts one more.
    #[inline]
    pub fn add(&mut self, keyspace: KeyspaceId, key_bytes: usize, value_bytes: usize) {
        let in_order = if keyspace.is_ordered() { key_bytes } else { 0 };
        self.count += 1;
        self.bytes += (key_bytes + value_bytes + in_order) as u64;
    }
}

/// Versions, tombstones and fences, and the admission of those that are still to come.
pub trait Writes {
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

    /// Whether puts of these sizes would be accepted now. Stricter than a put is, so that what is
    /// promised on its word finds room later; `promised` is what was promised before and is
    /// not put yet. Nothing comes of asking: [`ask_room`](Self::ask_room) has room made.
    ///
    /// # Errors
    /// The admission error: [`StoreError::Busy`] passes by itself, [`StoreError::DeviceFull`] and
    /// [`StoreError::MemoryFull`] do not.
    fn admit(
        &mut self,
        puts: &mut dyn Iterator<Item = PutSize>,
        promised: PromisedPuts,
    ) -> Result<(), StoreError>;

    /// Puts of these sizes are wanted, and [`admit`](Self::admit) has refused them: the store begins
    /// to make room, as by a put that finds none. Where it cannot, nothing happens.
    fn ask_room(&mut self, puts: &mut dyn Iterator<Item = PutSize>, promised: PromisedPuts);
}
