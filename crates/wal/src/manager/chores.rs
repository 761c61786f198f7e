//! Changes of the log's directory: one at a time, and when a failed one is tried again.
//!
//! Invariant: a chore is begun only when none is under way, and ended by the device's answer to it.

use timestone_types::{Timestamp, is_planted};

use crate::device::{FileInfo, FileName};
use crate::limits::PREPARE_RETRY;
use crate::{LogEvent, WalError};

/// Names that may be left at once: that of a failed reuse and that of a fresh file, which is tried
/// while the other one waits for its removal.
const MAX_LEFTOVERS: usize = 2;

/// A change of the directory that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) enum Chore {
    /// Makes a file.
    Fresh(FileInfo),
    /// Renames the oldest file.
    Reuse { oldest: FileName, spare: FileInfo },
    /// Removes the oldest file.
    Remove(FileName),
    /// Removes what may be left under the name of a file that could not be made.
    Clean(FileName),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Chores {
    under_way: Option<Chore>,
    /// Names under which something may be left of files that could not be made. Nothing is
    /// reclaimed before they are gone: a blank file that became the oldest one would look damaged.
    leftovers: Vec<FileName>,
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
        now >= self.retry_fresh_at && self.leftovers.len() < MAX_LEFTOVERS
    }

    /// Whether the oldest file may become the next one.
    pub(super) const fn may_reuse(&self) -> bool {
        !self.no_reuse
    }

    /// Takes a name under which something may be left.
    pub(super) fn take_leftover(&mut self) -> Option<FileName> {
        self.leftovers.pop()
    }

    /// The last name under which something may be left: no file is made under it, for it is removed.
    pub(super) fn last_leftover(&self) -> Option<FileName> {
        self.leftovers.iter().copied().max()
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

    /// The next file could not be made; something may be left under its name.
    pub(super) fn not_made(
        &mut self,
        now: Timestamp,
        name: FileName,
        was_reuse: bool,
        error: &WalError,
    ) {
        self.no_next = Some(error.to_string());
        if was_reuse || !is_planted!(KeepsBlankFile) {
            assert!(self.leftovers.len() < MAX_LEFTOVERS, "no file is made beside so many");
            self.leftovers.push(name);
        }
        let again = now.saturating_add(PREPARE_RETRY);
        if was_reuse {
            self.no_reuse = true;
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

    /// A removal failed. The oldest file stays in the table, the name of one that could not be made
    /// among those that may be left: both are tried again.
    pub(super) fn not_removed(&mut self, now: Timestamp, chore: Option<Chore>) {
        if let Some(Chore::Clean(name)) = chore {
            self.leftovers.push(name);
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
