//! Changes of the log's directory: one at a time, and when a failed one is tried again.
//!
//! Invariant: a chore is begun only when none is under way, and ended by the device's answer to it.

use timestone_types::Timestamp;

use crate::device::{FileInfo, FileName};
use crate::limits::PREPARE_RETRY;
use crate::{LogEvent, WalError};

/// A change of the directory that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) enum Chore {
    /// Makes a file.
    Fresh(FileInfo),
    /// Renames the oldest file.
    Reuse { oldest: FileName, spare: FileInfo },
    /// Removes the oldest file.
    Remove(FileName),
    /// Removes what a failed reuse may have left under its new name.
    Clean(FileName),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Chores {
    under_way: Option<Chore>,
    /// A name that a failed reuse may have left.
    leftover: Option<FileName>,
    /// Why the next file could not be made, until one is.
    no_next: Option<String>,
    /// After a failure, no fresh file is tried before the first, nor anything else in the directory
    /// before the second.
    retry_fresh_at: Timestamp,
    retry_at: Timestamp,
    /// The owner was told of a failure, and nothing succeeded since.
    told: bool,
    /// A reuse failed: the oldest file is removed instead.
    no_reuse: bool,
}

impl Chores {
    pub(super) const fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Why the next file could not be made.
    pub(super) fn no_next(&self) -> Option<&str> {
        self.no_next.as_deref()
    }

    /// Whether names in the directory may be changed again.
    pub(super) fn may_change(&self, now: Timestamp) -> bool {
        now >= self.retry_at
    }

    /// Whether a fresh file may be tried again.
    pub(super) fn may_try_fresh(&self, now: Timestamp) -> bool {
        now >= self.retry_fresh_at
    }

    /// Whether the oldest file may become the next one.
    pub(super) const fn may_reuse(&self) -> bool {
        !self.no_reuse
    }

    /// Takes the name that a failed reuse may have left.
    pub(super) const fn take_leftover(&mut self) -> Option<FileName> {
        self.leftover.take()
    }

    /// The name that a failed reuse may have left: no file is made under it, for it is removed.
    pub(super) const fn leftover(&self) -> Option<FileName> {
        self.leftover
    }

    pub(super) fn begin(&mut self, chore: Chore) {
        assert!(self.under_way.is_none(), "the directory is changed once at a time");
        self.under_way = Some(chore);
    }

    /// The device has answered.
    pub(super) const fn end(&mut self) -> Option<Chore> {
        self.under_way.take()
    }

    /// The next file is there.
    pub(super) fn made(&mut self) {
        self.no_next = None;
        self.told = false;
    }

    /// The next file could not be made; `left` is the name that a failed reuse may have left.
    pub(super) fn not_made(&mut self, now: Timestamp, left: Option<FileName>, error: &WalError) {
        self.no_next = Some(error.to_string());
        let again = now.saturating_add(PREPARE_RETRY);
        if left.is_some() {
            self.no_reuse = true;
            self.leftover = left;
            self.retry_at = again;
        } else {
            self.retry_fresh_at = again;
        }
    }

    /// Room was made: the next file may be tried at once.
    pub(super) const fn removed(&mut self) {
        self.no_reuse = false;
        self.retry_fresh_at = Timestamp::ZERO;
        self.told = false;
    }

    /// A removal failed. The oldest file stays in the table, the name left by a failed reuse in its
    /// place: both are tried again.
    pub(super) fn not_removed(&mut self, now: Timestamp, chore: Option<Chore>) {
        if let Some(Chore::Clean(name)) = chore {
            self.leftover = Some(name);
        }
        self.retry_at = now.saturating_add(PREPARE_RETRY);
    }

    /// Tells the owner of a failure, once until something succeeds.
    pub(super) fn tell(&mut self, error: WalError, events: &mut Vec<LogEvent>) {
        if !core::mem::replace(&mut self.told, true) {
            events.push(LogEvent::Degraded(error));
        }
    }

    /// When what failed is tried again.
    pub(super) fn retry_at(&self) -> Timestamp {
        self.retry_fresh_at.max(self.retry_at)
    }
}
