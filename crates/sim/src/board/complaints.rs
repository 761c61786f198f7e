//! What sessions were told, or found, that is not as it should be.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::TrueTime;

/// More wrong answers than these are not kept.
const MOST_WRONG: usize = 20;

#[derive(Debug, Default)]
struct ComplaintsState {
    /// Why an answer cannot be right, whatever the order of things was.
    wrong: Vec<String>,
    last_words: Option<String>,
    /// By slot: how often its sessions were told that their client's clock is late.
    told_late: BTreeMap<usize, u64>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Complaints {
    truth: TrueTime,
    state: Mutex<ComplaintsState>,
}

impl Complaints {
    pub(super) fn new(truth: TrueTime) -> Self {
        Self { truth, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, ComplaintsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an answer that is wrong by itself.
    pub(crate) fn wrong(&self, what: String) {
        let at = self.truth.now();
        let mut state = self.lock();
        if state.wrong.len() < MOST_WRONG {
            state.wrong.push(format!("at {at}: {what}"));
        }
    }

    pub(super) fn all_wrong(&self) -> Vec<String> {
        self.lock().wrong.clone()
    }

    /// A session was told that its client's clock is too far behind.
    pub(crate) fn clock_is_late(&self, slot: usize) {
        *self.lock().told_late.entry(slot).or_default() += 1;
    }

    /// How often that was told to sessions of these slots.
    pub(crate) fn told_late(&self, slots: Range<usize>) -> u64 {
        self.lock().told_late.range(slots).map(|(_, times)| *times).sum()
    }

    /// An error that a client was told.
    pub(crate) fn said(&self, words: String) {
        self.lock().last_words = Some(words);
    }

    pub(super) fn last_words(&self) -> Option<String> {
        self.lock().last_words.clone()
    }
}
