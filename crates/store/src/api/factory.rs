//! How stores are made, and what they can do.

use super::Store;
use crate::error::StoreError;

/// What a store can do. Whoever makes one asks before it relies on more than the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// What is stable is there after a restart. If not, the store is empty then.
    pub survives_restart: bool,
    /// Whether all look-ups are answered at once: [`Reads`](super::Reads) never says *pending*.
    pub answers_at_once: bool,
    /// Older versions of a key can be read as long as the watermark allows. If not, a key has its
    /// youngest version only: a put of an older one is dropped, and a read below the youngest is
    /// refused with [`StoreError::TooOld`].
    pub keeps_versions: bool,
    /// Ranges of keyspaces whose keys are in order can be read
    /// ([`KeyspaceId::is_ordered`](timestone_types::KeyspaceId::is_ordered)). If not, they are
    /// refused with [`StoreError::NotOrdered`].
    pub reads_ranges: bool,
}

/// Makes stores of one kind.
pub trait Factory {
    /// What it makes.
    type Store: Store;
    /// What it tells of what it found.
    type Report;

    /// What its stores can do.
    const CAPABILITIES: Capabilities;

    /// Opens or makes the store; recovers whatever is there, blocking.
    ///
    /// # Errors
    /// The store cannot be opened.
    fn open(self) -> Result<(Self::Store, Self::Report), StoreError>;
}
