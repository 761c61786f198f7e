//! Under which ids a data directory keeps the keyspaces whose index was changed there.
//!
//! ```text
//!   id of the cluster ─► Places ─┬─ not moved ─► the same id
//!                                └─ moved ─────► an id of this directory alone, which says where the index is
//! ```
//! The id under which something is kept says which store is its own, as any id does. So a keyspace
//! changes its index by getting another such id; clients, logs and other servers know it by its own
//! one all the while. An id is used once: what is left under an earlier one is behind a fence.
//!
//! Keys are walked in the order of their hashes, and a key has another hash under another id. So a
//! walk at a time before the keyspace was moved cannot go on: it would miss keys. It is told that its
//! snapshot is too old.
//!
//! Invariant: ids of this kind never come from outside, and never leave.

use timestone_types::{HashSeed, KeyRef, KeyspaceId, Timestamp};

use crate::api::ScanCursor;
use crate::error::StoreError;

/// Where what is asked for under an id of the kind that is never told is looked for: nothing is
/// there, and no number of a directory is zero.
const NOWHERE: KeyspaceId = KeyspaceId::place(0, false);

/// A keyspace whose index was changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KeyspacePlace {
    /// The keyspace, by its own id.
    pub keyspace: KeyspaceId,
    /// The id under which it is kept.
    pub kept_as: KeyspaceId,
    /// All that anybody had asked for under another one lies below this.
    pub since: Timestamp,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Places {
    /// By the keyspace's own id, ascending.
    moved: Vec<KeyspacePlace>,
}

impl Places {
    /// These keyspaces are kept under these ids, all others under their own.
    ///
    /// # Panics
    /// A place is no id of a [directory alone](KeyspaceId::place), or something has two places.
    #[must_use]
    pub fn new(moved: impl IntoIterator<Item = KeyspacePlace>) -> Self {
        let mut moved: Vec<_> = moved.into_iter().collect();
        moved.sort_unstable();
        let sound = |place: &KeyspacePlace| {
            place.kept_as.is_place() && !place.keyspace.is_place() && place.kept_as != NOWHERE
        };
        assert!(moved.iter().all(sound), "a place is known to the directory alone");
        let twice = moved.array_windows().any(|[one, next]| one.keyspace == next.keyspace);
        assert!(!twice, "a keyspace has one place");
        Self { moved }
    }

    /// All that were moved, by their own ids.
    pub fn iter(&self) -> impl Iterator<Item = &KeyspacePlace> {
        self.moved.iter()
    }

    /// The id under which a keyspace is kept.
    #[inline]
    #[must_use]
    pub fn of(&self, keyspace: KeyspaceId) -> KeyspaceId {
        if self.moved.is_empty() && !keyspace.is_place() { keyspace } else { self.find(keyspace) }
    }

    fn find(&self, keyspace: KeyspaceId) -> KeyspaceId {
        if keyspace.is_place() {
            return NOWHERE;
        }
        self.moved(keyspace).map_or(keyspace, |place| place.kept_as)
    }

    fn moved(&self, keyspace: KeyspaceId) -> Option<&KeyspacePlace> {
        let index = self.moved.binary_search_by_key(&keyspace, |place| place.keyspace).ok()?;
        self.moved.get(index)
    }

    /// Whether a walk over a keyspace may go on from here.
    ///
    /// # Errors
    /// [`StoreError::TooOld`]: it began when the keyspace was kept under another id.
    pub(super) fn check_walk(
        &self,
        keyspace: KeyspaceId,
        cursor: ScanCursor,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        match self.moved(keyspace) {
            Some(place) if cursor != ScanCursor::START && at < place.since => {
                Err(StoreError::TooOld { at, watermark: place.since })
            }
            _ => Ok(()),
        }
    }

    /// A key as it is kept.
    #[inline]
    pub(super) fn key<'a>(&self, seed: HashSeed, key: KeyRef<'a>) -> KeyRef<'a> {
        let place = self.of(key.keyspace);
        // Its hashes are those of the id that it is kept under: a recovery finds no other one.
        if place == key.keyspace { key } else { KeyRef::new(seed, place, key.bytes) }
    }

    /// The keyspaces of which something is kept, by the ids that others know.
    pub(super) fn told(&self, kept: Vec<KeyspaceId>) -> Vec<KeyspaceId> {
        let own = |id: KeyspaceId| match id.is_place() {
            true => self.moved.iter().find(|place| place.kept_as == id).map(|it| it.keyspace),
            // What is left there of one that was moved is behind a fence.
            false => (self.of(id) == id).then_some(id),
        };
        kept.into_iter().filter_map(own).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOVED: KeyspaceId = KeyspaceId::numbered(3, false);
    const OTHER: KeyspaceId = KeyspaceId::numbered(4, false).frugal();
    const PLACE: KeyspaceId = KeyspaceId::place(1, true);
    const SINCE: Timestamp = Timestamp::from_nanos(50);

    fn places() -> Places {
        Places::new([KeyspacePlace { keyspace: MOVED, kept_as: PLACE, since: SINCE }])
    }

    #[test]
    fn a_moved_keyspace_is_kept_under_its_place_and_told_by_its_own_id() {
        let places = places();
        assert_eq!((places.of(MOVED), places.of(OTHER)), (PLACE, OTHER));
        let key = places.key(HashSeed(7), KeyRef::new(HashSeed(7), MOVED, b"k"));
        assert_eq!(key, KeyRef::new(HashSeed(7), PLACE, b"k"));
        assert_eq!(places.told(vec![MOVED, OTHER, PLACE]), [OTHER, MOVED]);
        let left = KeyspaceId::place(2, false);
        assert_eq!(places.told(vec![left]), [], "nobody knows what an attempt has left");
    }

    #[test]
    fn nobody_outside_reaches_a_place() {
        for places in [Places::default(), places()] {
            assert_eq!(places.of(PLACE), NOWHERE);
            assert_eq!(places.told(vec![NOWHERE]), []);
        }
    }
    #[test]
    fn a_walk_that_began_before_the_move_is_too_old_to_go_on() {
        let (before, middle) = (SINCE.previous(), ScanCursor(9));
        let ask = |keyspace, cursor, at| places().check_walk(keyspace, cursor, at).is_ok();
        assert!(!ask(MOVED, middle, before));
        assert!(ask(MOVED, middle, SINCE) && ask(MOVED, ScanCursor::START, before));
        assert!(ask(OTHER, middle, before));
    }
}
