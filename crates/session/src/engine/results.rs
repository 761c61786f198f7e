//! Results that wait for their host, in order. Values stay where they are until they are handed
//! out.
//!
//! The host takes all of them in every turn, so there is no ring: once empty, it starts from the
//! front again.

use super::slab::SlabKey;
use crate::{OpId, SessionError};

/// A result that waits to be handed out.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) op: OpId,
    pub(crate) at: ResultAt,
}

/// Where a result is kept.
#[derive(Debug)]
pub(crate) enum ResultAt {
    /// By the manager: one read of a transaction.
    Read(SlabKey, u32),
    /// By the manager: the end of a transaction.
    Commit(SlabKey),
    /// By a request outside transactions.
    Single(SlabKey),
    /// Here; boxed, because almost every result is kept elsewhere and the queue is walked all the
    /// time.
    Failed(Box<SessionError>),
    /// Nowhere: it was handed out.
    Taken,
}

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Results {
    finished: Vec<Finished>,
    taken: usize,
}

impl Results {
    #[inline]
    pub(super) fn push(&mut self, op: OpId, at: ResultAt) {
        debug_assert!(!matches!(at, ResultAt::Taken), "a result that is nowhere");
        self.finished.push(Finished { op, at });
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Finished> {
        debug_assert!(self.taken <= self.finished.len(), "more results were taken than came");
        let Some(next) = self.finished.get_mut(self.taken) else {
            self.finished.clear();
            self.taken = 0;
            return None;
        };
        self.taken += 1;
        Some(core::mem::replace(next, Finished { op: OpId(0), at: ResultAt::Taken }))
    }
}
