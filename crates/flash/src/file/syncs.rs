//! Syncs of the file: one at a time; whoever asks meanwhile shares the next one.
//!
//! Invariant: once a sync has failed there is none any more: what it covered may be lost, and asking
//! again would only hide that.

use crate::device::Token;

/// Who waits for a sync of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Syncer {
    Caller(Token),
    Table,
    Growth,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    waiting: Vec<Syncer>,
    /// Those that the sync under way covers.
    active: Vec<Syncer>,
    failed: Option<&'static str>,
}

impl Syncs {
    /// Why there are no more syncs, once one has failed.
    pub(super) const fn failed(&self) -> Option<&'static str> {
        self.failed
    }

    /// Has somebody wait for the next sync.
    pub(super) fn request(&mut self, syncer: Syncer) {
        self.waiting.push(syncer);
    }

    /// Whether a sync is to begin now, for all who wait.
    pub(super) fn begin(&mut self) -> bool {
        if !self.active.is_empty() || self.waiting.is_empty() {
            return false;
        }
        std::mem::swap(&mut self.active, &mut self.waiting);
        true
    }

    /// The sync under way has ended: whom it covered, to be given back by [`Syncs::reuse`].
    pub(super) fn end(&mut self, succeeded: bool) -> Vec<Syncer> {
        assert!(!self.active.is_empty(), "a sync ended that nobody waited for");
        if !succeeded {
            self.failed.get_or_insert("a sync failed");
        }
        std::mem::take(&mut self.active)
    }

    /// The vector goes back to where it can be filled again without allocating.
    pub(super) fn reuse(&mut self, empty: Vec<Syncer>) {
        assert!(empty.is_empty() && self.active.is_empty(), "no sync begins while one is told of");
        self.active = empty;
    }
}
