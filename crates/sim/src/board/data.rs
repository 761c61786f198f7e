//! What is known of the data of a run: when it was loaded, up to when its writes were acknowledged,
//! and what was found in the end.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use timestone_types::Timestamp;
use timestone_workload::KeyIndex;
use timestone_workload::history::Seen;

#[derive(Debug, Default)]
struct DataState {
    /// The highest timestamp of what was loaded.
    loaded: Timestamp,
    /// The highest timestamp of a write that was acknowledged, by the number of its keyspace.
    acknowledged: BTreeMap<u64, Timestamp>,
    /// How often a server died that may have lost some of them.
    losses: u64,
    /// Writes of keys once more, attempts included.
    touched: u64,
    /// Walks of the whole ring.
    walked: u64,
    found: BTreeMap<KeyIndex, Seen>,
    /// What is found when everything is read again.
    again: Option<Again>,
}

/// Everything is read once more, from other replicas.
#[derive(Debug, Default)]
struct Again {
    found: BTreeMap<KeyIndex, Seen>,
    /// Whether it must be the same.
    is_compared: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct KnownData {
    state: Mutex<DataState>,
}

impl KnownData {
    fn lock(&self) -> MutexGuard<'_, DataState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was loaded at `at`.
    pub(crate) fn load(&self, at: Timestamp) {
        let mut state = self.lock();
        state.loaded = state.loaded.max(at);
    }

    /// Whether a snapshot is of a time when not everything was loaded: a clock that is behind sees
    /// how things were.
    pub(crate) fn precedes_load(&self, snapshot: Timestamp) -> bool {
        snapshot < self.lock().loaded
    }

    /// A write to a keyspace was acknowledged, at `at`.
    pub(crate) fn acknowledge(&self, keyspace: u64, at: Timestamp) {
        let mut state = self.lock();
        let latest = state.acknowledged.entry(keyspace).or_default();
        *latest = at.max(*latest);
    }

    /// The highest timestamp of a write to a keyspace that was acknowledged by now, and how many
    /// servers had died by now that may lose what was.
    pub(crate) fn acknowledged(&self, keyspace: u64) -> (Timestamp, u64) {
        let state = self.lock();
        (state.acknowledged.get(&keyspace).copied().unwrap_or_default(), state.losses)
    }

    /// A server without a log has died: of what was acknowledged, nobody knows what is left.
    pub(crate) fn lose(&self) {
        let mut state = self.lock();
        state.acknowledged.clear();
        state.losses += 1;
    }

    /// So many keys are about to be written once more.
    pub(crate) fn touch(&self, keys: usize) {
        self.lock().touched += keys as u64;
    }

    pub(super) fn touched(&self) -> u64 {
        self.lock().touched
    }

    /// The whole ring was walked and looked at.
    pub(crate) fn walk(&self) {
        self.lock().walked += 1;
    }

    pub(crate) fn walked(&self) -> u64 {
        self.lock().walked
    }

    /// A key held this in the end, or at another replica then.
    pub(crate) fn found(&self, key: KeyIndex, seen: Seen) {
        let mut state = self.lock();
        let DataState { found, again, .. } = &mut *state;
        again.as_mut().map_or(found, |again| &mut again.found).insert(key, seen);
    }

    /// Everything is going to be read again. `same`: and must be what it was.
    pub(crate) fn read_again(&self, same: bool) {
        self.lock().again = Some(Again { found: BTreeMap::new(), is_compared: same });
    }

    /// What was not the same when everything was read again.
    pub(crate) fn difference(&self) -> Option<String> {
        let state = self.lock();
        let again = state.again.as_ref().filter(|again| again.is_compared)?;
        let differs = |key: &&KeyIndex| again.found.get(key) != state.found.get(key);
        let key = state.found.keys().chain(again.found.keys()).find(differs)?;
        let (before, now) = (state.found.get(key), again.found.get(key));
        Some(format!("key {} holds {before:?} at one replica and {now:?} at another", key.0))
    }

    pub(crate) fn all_found(&self) -> BTreeMap<KeyIndex, Seen> {
        self.lock().found.clone()
    }
}
