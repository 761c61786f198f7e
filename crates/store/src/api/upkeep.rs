//! What keeps a store going: time, watermark, durability, collection, closing.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use timestone_types::Timestamp;

use super::event::StoreEvent;

/// The running of a store. Its owner calls [`pump`](Self::pump) once a turn.
pub trait Upkeep {
    /// The replay of logs is over. Every version that an earlier run wrote or promised lies at or
    /// below `bound`, and nothing but such promises is written at or below it from now on. A store
    /// that survives restarts has nothing to do.
    fn recovered(&mut self, _bound: Timestamp) {}

    /// Another life begins over what is stored, as after a restart of its owner, with the same
    /// promises: logs are replayed again, until [`recovered`](Self::recovered) says that this is
    /// over. Reads, scans and counts that are pending are answered by no event any more. Batches
    /// are numbered anew: what was put before counts to one below all of them. What does not
    /// survive a restart is gone.
    fn begin_life(&mut self);

    /// The device has failed: the store takes no more writes, and never will.
    fn has_failed(&self) -> bool {
        false
    }

    /// Pages that could not be read at the start, and that nobody has given up: what lies there is not known, and
    /// a copy of what is stored would lack it.
    fn unread_pages(&self) -> usize {
        0
    }

    /// Reads below `t` will not be asked any more; only rises.
    fn advance_watermark(&mut self, t: Timestamp);

    /// The watermark; after recovery the last one that a checkpoint holds.
    fn watermark(&self) -> Timestamp;

    /// At or above the timestamp of every version that any keyspace holds, fences included; zero
    /// while nothing was ever written. From the index alone, and after a recovery as far as the
    /// device tells.
    fn youngest(&self) -> Timestamp;

    /// The replay floor: the caller promises that no write with a version at or below `t` arrives
    /// any more, neither by replay of a log nor late from elsewhere; only rises.
    fn advance_replay_floor(&mut self, t: Timestamp);

    /// The puts that follow belong to log batch `batch`; numbers rise.
    fn begin_batch(&mut self, batch: u64);

    /// Every put of batches up to this one is durable without a log. The batch that is open is
    /// never included. (With a log a stable version may be collected as soon as a younger one lies
    /// at or below the watermark, also when that is not stable yet: its log has it.)
    fn stable_batch(&self) -> u64;

    /// Asks for everything put so far to become durable soon, without waiting for company.
    fn sync_soon(&mut self);

    /// Asks for a checkpoint now.
    fn checkpoint_now(&mut self);

    /// Starts a walk over all records, in the background; ends with [`StoreEvent::ScrubDone`].
    fn scrub(&mut self);

    /// Does what is due: polls the device, packs, programs, collects, checkpoints; never blocks,
    /// and never takes long.
    fn pump(&mut self, now: Timestamp, events: &mut Vec<StoreEvent>);

    /// When [`pump`](Self::pump) is due next even if nothing completes; `None` when there is
    /// nothing to wait for.
    fn next_deadline(&self) -> Option<Timestamp>;

    /// Readable when the device has completed something.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Blocks until the device may have completed something; for recovery, shutdown and tests.
    fn wait(&mut self, timeout: Duration);

    /// Makes the record cache one of so many bytes, from empty; below what a cache needs at least,
    /// there is none.
    fn resize_cache(&mut self, bytes: u64);

    /// What the index, page buffers and `beside` bytes of its user take above their share is taken
    /// out of the record cache's, of which the cache keeps a quarter at least. To be called again
    /// and again: the cache gives back a megabyte at a time.
    fn charge_cache(&mut self, beside: u64);

    /// Starts to drain: no more writes; ends with [`StoreEvent::ShutDown`]. A store that is down
    /// says so again.
    fn shutdown(&mut self);
}
