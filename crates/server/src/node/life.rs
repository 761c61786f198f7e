//! How far a run without a log has lived, saved now and then: nothing else tells the next run.

use std::sync::Arc;

use timestone_types::Timestamp;

use crate::limits::{LAST_LIFE_INTERVAL, LIFE_INTERVAL};
use crate::manifest::Manifest;

/// See the module.
pub(super) struct NodeLife {
    /// Where it is saved; `None` for a run with a log.
    manifest: Option<Arc<Manifest>>,
    /// When it is saved next.
    next: Timestamp,
    /// A turn of the shutdown has come.
    is_ending: bool,
}

impl NodeLife {
    pub(super) const fn new(manifest: Option<Arc<Manifest>>) -> Self {
        Self { manifest, next: Timestamp::ZERO, is_ending: false }
    }

    /// Whether the run has a log, which tells how far it has lived.
    pub(super) const fn has_log(&self) -> bool {
        self.manifest.is_none()
    }

    /// The run begins; that has been saved.
    pub(super) fn begin(&mut self, now: Timestamp) {
        assert!(!self.is_ending, "a run begins before it ends");
        self.next = now.saturating_add(LIFE_INTERVAL);
    }

    /// Saves it when it is time to, and at once when the process begins to end.
    pub(super) fn turn(&mut self, now: Timestamp, is_shutting_down: bool) {
        if is_shutting_down && !self.is_ending && !timestone_types::is_planted!(ForgottenEnd) {
            self.is_ending = true;
            self.next = now;
        }
        if self.manifest.is_some() && now >= self.next {
            self.save(now);
        }
    }

    /// Nobody waits for it: the next start may find a time that is [`LIFE_INTERVAL`] old, after a
    /// graceful stop [`LAST_LIFE_INTERVAL`], or older if the manifest could not be saved.
    fn save(&mut self, now: Timestamp) {
        let pause = if self.is_ending { LAST_LIFE_INTERVAL } else { LIFE_INTERVAL };
        self.next = now.saturating_add(pause);
        if let Some(manifest) = &self.manifest
            && let Err(error) = manifest.lives(now)
        {
            tracing::warn!(%error, "the manifest could not be saved; it is tried again");
        }
    }

    /// When [`NodeLife::turn`] has something to do.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.manifest.is_some().then_some(self.next)
    }
}
