//! How old what read-only transactions read is: whether their snapshots lie below a write of one of
//! their keys that had been acknowledged before they began.
//!
//! Nothing is promised about it: a clock that is behind costs freshness.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use timestone_types::Timestamp;

use crate::KeyIndex;

/// What was counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotAges {
    /// Read-only transactions begun.
    pub begun: u64,
    /// That missed a write which had been acknowledged.
    pub stale: u64,
    /// By how much their snapshots lay below the youngest such write, all together.
    pub behind: Duration,
}

impl SnapshotAges {
    /// By how much those that are stale lie below what they missed, on average.
    #[must_use]
    pub fn mean_behind(self) -> Duration {
        let stale = u32::try_from(self.stale.max(1)).unwrap_or(u32::MAX);
        self.behind / stale
    }

    /// What was counted since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            begun: self.begun - before.begun,
            stale: self.stale - before.stale,
            behind: self.behind.saturating_sub(before.behind),
        }
    }
}

#[derive(Debug, Default)]
struct SnapshotState {
    /// The highest timestamp at which a write of the key was acknowledged.
    acknowledged: BTreeMap<KeyIndex, Timestamp>,
    ages: SnapshotAges,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Snapshots {
    state: Mutex<SnapshotState>,
}

impl Snapshots {
    fn lock(&self) -> MutexGuard<'_, SnapshotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write was acknowledged, at `at`.
    pub fn acknowledge(&self, key: KeyIndex, at: Timestamp) {
        let mut state = self.lock();
        let latest = state.acknowledged.entry(key).or_default();
        *latest = at.max(*latest);
    }

    /// A read-only transaction of these keys begins, with this snapshot.
    pub fn look(&self, keys: impl Iterator<Item = KeyIndex>, snapshot: Timestamp) {
        let mut state = self.lock();
        let newest = keys.filter_map(|key| state.acknowledged.get(&key)).max().copied();
        let behind = newest.map_or(Duration::ZERO, |newest| newest.since(snapshot));
        state.ages.begun += 1;
        state.ages.stale += u64::from(!behind.is_zero());
        state.ages.behind += behind;
    }

    /// What was counted so far.
    #[must_use]
    pub fn ages(&self) -> SnapshotAges {
        self.lock().ages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_misses_an_acknowledged_write_is_stale_by_how_far_it_lies_below() {
        let (snapshots, at) = (Snapshots::default(), Timestamp::from_nanos);
        snapshots.acknowledge(KeyIndex(1), at(100));
        snapshots.acknowledge(KeyIndex(1), at(90));
        snapshots.look([KeyIndex(1), KeyIndex(2)].into_iter(), at(100));
        let before = snapshots.ages();
        assert_eq!((before.begun, before.stale), (1, 0));
        snapshots.look([KeyIndex(1), KeyIndex(2)].into_iter(), at(60));
        snapshots.look([KeyIndex(2)].into_iter(), at(60));
        let behind = Duration::from_nanos(40);
        let since = snapshots.ages().since(before);
        assert_eq!(since, SnapshotAges { begun: 2, stale: 1, behind });
    }
}
