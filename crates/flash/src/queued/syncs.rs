//! Syncs of the medium: one at a time; whoever asks meanwhile shares the next one.
//!
//! Invariant: once a sync has failed there is none any more: what it covered may be lost, and asking
//! again would only hide that.

/// See the module.
#[derive(Debug)]
pub(crate) struct Syncs<S> {
    waiting: Vec<S>,
    /// Those that the sync under way covers.
    active: Vec<S>,
    failed: Option<&'static str>,
}

impl<S> Default for Syncs<S> {
    fn default() -> Self {
        Self { waiting: Vec::new(), active: Vec::new(), failed: None }
    }
}

impl<S> Syncs<S> {
    /// Why there are no more syncs, once one has failed.
    pub(crate) const fn failed(&self) -> Option<&'static str> {
        self.failed
    }

    /// Has somebody wait for the next sync.
    pub(crate) fn request(&mut self, syncer: S) {
        self.waiting.push(syncer);
    }

    /// Whether a sync is to begin now, for all who wait.
    pub(crate) fn begin(&mut self) -> bool {
        if !self.active.is_empty() || self.waiting.is_empty() {
            return false;
        }
        std::mem::swap(&mut self.active, &mut self.waiting);
        true
    }

    /// The sync under way has ended: whom it covered, to be given back by [`Syncs::reuse`].
    pub(crate) fn end(&mut self, succeeded: bool) -> Vec<S> {
        assert!(!self.active.is_empty(), "a sync ended that nobody waited for");
        if !succeeded {
            self.failed.get_or_insert("a sync failed");
        }
        std::mem::take(&mut self.active)
    }

    /// The vector goes back to where it can be filled again without allocating.
    pub(crate) fn reuse(&mut self, empty: Vec<S>) {
        assert!(empty.is_empty() && self.active.is_empty(), "no sync begins while one is told of");
        self.active = empty;
    }
}
