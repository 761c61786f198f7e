//! Bounds of the log, each with the reason for its value. Nothing in the log grows beyond a bound
//! named here or in [`LogConfig`](crate::LogConfig), whose defaults are here as well.

use core::time::Duration;

/// What devices write and align by: O_DIRECT wants it, and a torn write never tears inside less
/// than a sector of it.
pub const SECTOR_BYTES: usize = 4096;
/// Default size of a log file (DTranx §5.4: files of 100 MB), rounded to whole sectors.
pub const DEFAULT_FILE_BYTES: u64 = 100 * 1024 * 1024;
/// Smallest size of a log file.
pub const MIN_FILE_BYTES: u64 = 64 * 1024;
/// Largest size of a log file: recovery reads a file's tail once more when it ends badly, which is
/// to stay under seconds.
pub const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// Default size of a block with its header: what one write carries at most. Larger only helps
/// batches of megabytes.
pub const DEFAULT_BLOCK_BYTES: usize = 256 * 1024;
/// Largest block that the format allows, so that a reader can refuse a length without believing it.
pub const MAX_BLOCK_BYTES: usize = 4 * 1024 * 1024;
/// Largest batch: two of the largest transactions of one turn, with their keys and framing.
pub const MAX_BATCH_BYTES: usize = 2 * timestone_types::limits::MAX_TXN_BYTES;
/// Default bound on bytes accepted but not yet durable. A batch is accepted when fewer are queued,
/// whatever its own size.
pub const DEFAULT_QUEUE_BYTES: usize = 64 * 1024 * 1024;
/// Most blocks that are written in one group: what an io engine's queue takes without waiting.
pub const GROUP_BLOCKS: usize = 16;
/// Block buffers kept for reuse when they are idle; the rest of a burst is given back.
pub const IDLE_BUFFERS: usize = 8;
/// Files ready for rotation, at most: one for the next rotation and one that was just reclaimed.
pub const SPARE_FILES: usize = 2;
/// A fresh file is preallocated when no spare is left and the current file is used to this
/// percentage; before that a reclaimed file may still turn up, which costs nothing to reuse.
pub const PREALLOCATE_AT_PERCENT: u64 = 50;
/// Bytes of one write while a file is filled with zeros beside a log that goes on: what a group of the
/// log may have to wait for. A disk takes some 0.1 ms for it.
pub const FILL_PIECE_BYTES: usize = 128 * 1024;
/// A file is filled so much faster than the rest of the current one is used up, in percent.
pub const FILL_PERCENT_AHEAD: u64 = 150;
/// Bytes a second with which it is filled at least, however little is appended.
pub const FILL_SPEED: u64 = 64 * 1024 * 1024;
/// How often the thread that fills it looks whether it may go on.
pub const FILL_WAIT: Duration = Duration::from_micros(500);
/// While the next file cannot be made, this much of a file is kept for what was admitted before and
/// for what makes room (decisions, deletes, read bounds). It leaves a tenth of a file between
/// asking for the next one and knowing that there is none.
pub const RESERVE_PERCENT: u64 = 40;
/// After a failure to make the next file, the log tries again this often.
pub const PREPARE_RETRY: Duration = Duration::from_secs(1);
/// How often an owner that sleeps should look in while a file is made in the background and appends
/// wait for it.
pub const PREPARE_POLL: Duration = Duration::from_millis(1);
/// Default number of closed files beyond which the shards that hold the oldest one are asked to
/// carry their records forward.
pub const DEFAULT_COPY_FORWARD_AFTER_FILES: usize = 4;

const _: () = assert!(
    DEFAULT_BLOCK_BYTES <= MAX_BLOCK_BYTES && DEFAULT_BLOCK_BYTES.is_multiple_of(SECTOR_BYTES)
);
const _: () = assert!(PREALLOCATE_AT_PERCENT + RESERVE_PERCENT < 100);
const _: () = assert!(FILL_PERCENT_AHEAD > 100, "full before it is needed");
const _: () = assert!(FILL_PIECE_BYTES.is_multiple_of(SECTOR_BYTES));
const _: () = assert!(
    MIN_FILE_BYTES >= 2 * SECTOR_BYTES as u64 && MIN_FILE_BYTES.is_multiple_of(SECTOR_BYTES as u64)
);
const _: () = assert!(MAX_BATCH_BYTES < u32::MAX as usize);
