//! What a zoned device stands on: zones that are read, written, reset and finished. The kernel's
//! block devices are one such medium, the strict fake of the tests another.

use core::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use timestone_io::{AlignedBuffer, IoCompletion, IoToken, Zone, ZoneAction, ZoneLimits};

use crate::error::FlashError;

/// One operation on a medium. Offsets and lengths are bytes of the whole device.
#[derive(Debug)]
pub enum ZoneOp {
    /// Fills `buffer[..length]`.
    Read {
        /// Where.
        offset: u64,
        /// Where the bytes go.
        buffer: AlignedBuffer,
        /// How many.
        length: usize,
    },
    /// Writes whole buffers one after another. In a sequential zone it must begin at the write
    /// pointer, with no other write of the zone under way.
    Write {
        /// Where.
        offset: u64,
        /// The bytes, in order.
        buffers: Vec<AlignedBuffer>,
    },
    /// Writes that had completed when this was submitted are durable when it completes.
    Sync,
    /// Does something to a zone.
    Zone {
        /// What.
        action: ZoneAction,
        /// Where the zone begins.
        offset: u64,
        /// Its length.
        length: u64,
    },
}

/// A medium of zones: asynchronous, single-threaded, never blocking but in [`report`](Self::report)
/// and [`wait`](Self::wait). Operations complete in any order.
pub trait ZonedMedium: Send + fmt::Debug {
    /// What it is called in messages.
    fn path(&self) -> &Path;

    /// What bounds its use.
    fn limits(&self) -> ZoneLimits;

    /// So many zones as the device says they are, from the one at `offset` on; blocks. For opening,
    /// and for one zone after a failure.
    ///
    /// # Errors
    /// When the device does not answer.
    fn report(&mut self, offset: u64, most: usize) -> Result<Vec<Zone>, FlashError>;

    /// Accepts an operation; it starts at the next poll or wait. The medium has room for as many as
    /// it was opened for.
    fn submit(&mut self, token: IoToken, op: ZoneOp);

    /// Starts what was accepted, appends what has completed, says how many.
    fn poll(&mut self, completions: &mut Vec<IoCompletion>) -> usize;

    /// Starts what was accepted.
    fn flush(&mut self);

    /// Operations accepted and not yet completed by a poll.
    fn in_flight(&self) -> usize;

    /// Blocks until a poll may make progress, or `timeout` has passed.
    fn wait(&mut self, timeout: Duration);

    /// Becomes readable when a poll may make progress, if there is such a thing.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// Runs one operation and waits for it, while nothing else is in flight; for opening.
pub(super) fn run(
    medium: &mut dyn ZonedMedium,
    op: ZoneOp,
) -> (io::Result<usize>, Option<AlignedBuffer>) {
    assert_eq!(medium.in_flight(), 0, "blocking operations come before others");
    medium.submit(IoToken(0), op);
    let mut done = Vec::new();
    while medium.poll(&mut done) == 0 {
        medium.wait(Duration::from_secs(1));
    }
    let done = done.swap_remove(0);
    (done.result, done.buffer)
}
