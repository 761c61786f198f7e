//! The life of a store: running, failed, draining, down; and what of it must become durable soon.
//!
//! ```text
//!   running ──shutdown──► draining ──all durable, last checkpoint──► down
//!      └── the device fails: no more writes, reads go on as far as they can
//! ```
//!
//! Hidden dependency that this part made explicit: draining waits for the staging area first, since
//! a checkpoint does not hold what is staged, and for a checkpoint then.
//!
//! A failed program or erase is its block's end, not the store's, unless one block after the other
//! fails and nothing succeeds in between.
//!
//! Invariants: a store never comes back to an earlier state; nothing is awaited of a device that
//! has failed.

use core::time::Duration;

use timestone_flash::{FlashError, Misuse};
use timestone_types::{Timestamp, Version};

use super::staging::Staging;
use super::volume::Volume;
use super::writer::{MAX_GROUPS, Writer};
use crate::api::StoreEvent;
use crate::error::StoreError;

/// How often a store that comes to its end looks whether it has.
const DRAIN_INTERVAL: Duration = Duration::from_millis(1);

/// Blocks that may fail one after the other, with nothing that succeeds in between, until the device
/// counts as failed. What each of them could not program stays in memory.
const MAX_FAILED_BLOCKS: u32 = 16;

const _: () = assert!((MAX_FAILED_BLOCKS as usize) < MAX_GROUPS, "puts need groups, too");

/// How far a shutdown has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Running,
    /// No more writes; everything is being made durable, a checkpoint last.
    Draining,
    Down,
}

/// How long pages wait for company, and syncs for each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    /// A full page, for others.
    pub(crate) packing: Duration,
    /// A partly filled page, for company.
    pub(crate) partial_page: Duration,
    /// Between two background syncs.
    pub(crate) sync_interval: Duration,
}

/// The life of one store.
pub(crate) struct Life {
    stage: Stage,
    failed: bool,
    sync_wanted: bool,
    /// Blocks that failed since a program or an erase has succeeded.
    failed_blocks: u32,
}

impl Life {
    /// Of a store that was just opened.
    pub(crate) const fn running() -> Self {
        Self { stage: Stage::Running, failed: false, sync_wanted: false, failed_blocks: 0 }
    }

    /// What holds between calls.
    #[inline]
    pub(crate) fn assert_sound(&self) {
        debug_assert!(!self.failed || !self.sync_wanted, "what failed makes nothing durable");
    }

    /// Whether the device failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Whether the failure of a program or an erase concerns its block only: not when the device says
    /// that it takes no more writes.
    pub(crate) fn is_of_block(&self, error: &FlashError) -> bool {
        let of_block = matches!(
            error,
            FlashError::Medium { .. } | FlashError::Misuse(Misuse::BlockFailed { .. })
        );
        of_block && !self.failed
    }

    /// One more block has failed. When nothing succeeds any more, it is the device.
    pub(crate) fn block_failed(&mut self, error: FlashError, events: &mut Vec<StoreEvent>) {
        self.failed_blocks += 1;
        if self.failed_blocks > MAX_FAILED_BLOCKS {
            self.fail(error.into(), events);
        }
    }

    /// A program or an erase has succeeded: the device takes writes.
    pub(crate) fn block_succeeded(&mut self) {
        self.failed_blocks = 0;
    }

    /// Whether a version may be written now.
    #[inline]
    pub(crate) fn may_write(&self, version: Version, writer: &Writer) -> Result<(), StoreError> {
        if self.stage != Stage::Running {
            return Err(StoreError::ShuttingDown);
        }
        if version.timestamp == Timestamp::ZERO || version.timestamp == Timestamp::MAX {
            return Err(StoreError::BadVersion(version));
        }
        if self.failed || writer.is_behind() {
            return Err(StoreError::Busy);
        }
        Ok(())
    }

    /// The first failure of the device ends writing.
    pub(crate) fn fail(&mut self, error: StoreError, events: &mut Vec<StoreEvent>) {
        if !self.failed {
            (self.failed, self.sync_wanted) = (true, false);
            events.push(StoreEvent::DeviceFailed(error));
        }
        self.assert_sound();
    }

    /// Everything put so far is to become durable soon, as far as the device still can.
    pub(crate) fn want_sync(&mut self) {
        self.sync_wanted = !self.failed;
        self.assert_sound();
    }

    /// Hands pages to the device and syncs it, as far as that is due; `waits` when a part waits for
    /// something to become durable.
    pub(crate) fn make_durable(&mut self, delays: Delays, waits: bool, volume: &mut Volume) {
        debug_assert!(!self.failed, "a device that has failed makes nothing durable");
        let draining = self.stage == Stage::Draining;
        if self.sync_wanted || draining {
            volume.flush_all();
        }
        volume.flush_due(delays.packing, delays.partial_page);
        volume.sync(delays.sync_interval, self.sync_wanted || draining || waits);
        if self.sync_wanted && volume.writer.all_durable() {
            self.sync_wanted = false;
        }
    }

    /// No more writes. What is down already says so again.
    pub(crate) fn begin_draining(&mut self, events: &mut Vec<StoreEvent>) {
        match self.stage {
            Stage::Running => self.stage = Stage::Draining,
            Stage::Draining => {}
            Stage::Down => events.push(StoreEvent::ShutDown),
        }
        assert!(self.stage != Stage::Running);
    }

    /// Goes one step further with a shutdown. `last_checkpoint` asks for the one that ends it, and
    /// says whether that is durable.
    pub(crate) fn drain(
        &mut self,
        staging: &Staging,
        last_checkpoint: impl FnOnce() -> bool,
        events: &mut Vec<StoreEvent>,
    ) {
        self.assert_sound();
        // Once it is down, collection may still move values, whose old places stay until the new
        // ones are durable.
        if self.stage != Stage::Draining || self.failed {
            return;
        }
        if !staging.is_empty() {
            self.sync_wanted = true;
        } else if last_checkpoint() {
            self.stage = Stage::Down;
            events.push(StoreEvent::ShutDown);
        }
    }

    /// When a shutdown is looked at again: it waits for the device most of the time, which may be
    /// slow; its completions wake the thread.
    pub(crate) fn deadline(&self, now: Timestamp) -> Option<Timestamp> {
        (self.stage == Stage::Draining).then(|| now.saturating_add(DRAIN_INTERVAL))
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::ClientId;

    use super::super::volume::tests::volume;
    use super::*;

    #[test]
    fn the_last_checkpoint_ends_a_shutdown() {
        let (mut life, staging) = (Life::running(), Staging::new(0));
        let (mut asked, mut events) = (0, Vec::new());
        life.drain(&staging, || unreachable!("it runs"), &mut events);
        life.begin_draining(&mut events);
        for durable in [false, true] {
            assert!(life.deadline(Timestamp::ZERO).is_some() && events.is_empty());
            let checkpoint = || {
                asked += 1;
                durable
            };
            life.drain(&staging, checkpoint, &mut events);
        }
        assert!(asked == 2 && matches!(events[..], [StoreEvent::ShutDown]));
    }

    /// Collection goes on until the process ends, and may stage a large value again.
    #[test]
    fn a_store_that_is_down_may_move_values() {
        let (mut life, mut staging) = (Life::running(), Staging::new(1 << 20));
        let mut events = Vec::new();
        life.begin_draining(&mut events);
        (life.stage, life.sync_wanted) = (Stage::Down, false);
        super::super::staging::tests::stage_one(&mut staging);
        assert!(!staging.is_empty());
        life.drain(&staging, || unreachable!("it is down"), &mut events);
        assert!(events.is_empty() && life.deadline(Timestamp::ZERO).is_none());
    }

    #[test]
    fn only_the_first_failure_is_told_and_ends_writing() {
        let (mut life, volume, mut events) = (Life::running(), volume(), Vec::new());
        let version = Version::new(Timestamp::from_nanos(1), ClientId::new(1));
        assert!(life.may_write(version, &volume.writer).is_ok());
        life.fail(StoreError::Busy, &mut events);
        life.fail(StoreError::Busy, &mut events);
        assert_eq!(events.len(), 1);
        assert!(matches!(life.may_write(version, &volume.writer), Err(StoreError::Busy)));
        life.begin_draining(&mut events);
        assert!(matches!(life.may_write(version, &volume.writer), Err(StoreError::ShuttingDown)));
    }
}
