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
//! walk that began under another id, here before the keyspace was moved or at another server, cannot
//! go on: it would miss keys. Cursors carry a mark of the id that they were made under, and a walk
//! with another mark is told that its snapshot is too old.
//!
//! Invariant: ids of this kind never come from outside, and never leave.

use timestone_types::limits::ANY_POSITION;
use timestone_types::{HashSeed, KeyRef, KeyspaceId};

use crate::api::ScanCursor;

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
}

/// A mark of the id under which a walk goes on, above the bits of a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WalkMark(u64);

impl WalkMark {
    /// Marks of places; the gateway's cursors have five bits left for them, and the last value is
    /// [`ANY_POSITION`]'s.
    const COUNT: u64 = 30;
    /// Of a keyspace that is kept under its own id, as cursors are everywhere.
    pub(super) const NONE: Self = Self(0);

    fn of(place: KeyspaceId) -> Self {
        let which = 2 * u64::from(place.number()) + u64::from(place.is_frugal());
        Self(1 + which % Self::COUNT)
    }

    /// A position as it leaves.
    pub(super) fn put_on(self, position: ScanCursor) -> ScanCursor {
        debug_assert!(position.0 >> ScanCursor::BITS == 0, "a position has so many bits");
        ScanCursor(position.0 | self.0 << ScanCursor::BITS)
    }

    /// The position of a cursor that has this mark, or one that was made up; the beginning has none.
    pub(super) fn take_off(self, cursor: ScanCursor) -> Option<ScanCursor> {
        let mark = cursor.0 >> ScanCursor::BITS;
        let is_made_up = mark == ANY_POSITION >> ScanCursor::BITS;
        let is_mine = cursor == ScanCursor::START || mark == self.0 || is_made_up;
        is_mine.then_some(ScanCursor(cursor.0 & ((1 << ScanCursor::BITS) - 1)))
    }
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

    /// What cursors of a keyspace are marked with.
    pub(super) fn walk_mark(&self, keyspace: KeyspaceId) -> WalkMark {
        self.moved(keyspace).map_or(WalkMark::NONE, |place| WalkMark::of(place.kept_as))
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

    fn places() -> Places {
        Places::new([KeyspacePlace { keyspace: MOVED, kept_as: PLACE }])
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
    fn a_walk_that_began_under_another_id_is_not_gone_on_with() {
        let again = KeyspacePlace { keyspace: MOVED, kept_as: KeyspaceId::place(2, true) };
        let marks = [Places::default(), places(), Places::new([again])]
            .map(|places| places.walk_mark(MOVED));
        assert_eq!(places().walk_mark(OTHER), WalkMark::NONE);
        let last = ScanCursor((1 << ScanCursor::BITS) - 1);
        for one in marks {
            assert_eq!(one.take_off(ScanCursor::START), Some(ScanCursor::START));
            let made_up = ScanCursor(ANY_POSITION | 9);
            assert_eq!(one.take_off(made_up), Some(ScanCursor(9)));
            assert_ne!(
                one.put_on(last).0 | ANY_POSITION,
                one.put_on(last).0,
                "it is no place's mark"
            );
            assert!(one.put_on(last).0 < 1 << 47, "it fits the gateway's cursors");
            for other in marks {
                let gone_on = other.take_off(one.put_on(last));
                assert_eq!(gone_on, (one == other).then_some(last), "{one:?} {other:?}");
            }
        }
    }
}
