//! Bounds of a shard, each with its reason.

use std::time::Duration;

use timestone_types::limits::DEFAULT_DEADLINE;
use timestone_wire::limits::{MAX_BATCH_BYTES, MAX_PARTICIPANTS, MAX_PREPARE_BODY_BYTES};

/// Most reads of a backup that wait for its device; beyond it clients are sent to the primary.
pub const MAX_BACKUP_READS: usize = 4096;
/// Bytes of answers to one reply address after which an open batch of frames leaves before the end
/// of the turn.
pub const REPLY_FRAME_BATCH_BYTES: usize = 256 * 1024;
/// Values of this length and more count in the memory for answers while they are on their way from
/// a shard.
pub const CHARGED_VALUE_BYTES: usize = 16 * 1024;
/// Bytes of records after which an open log batch leaves before the end of the turn.
pub const LOG_BATCH_BYTES: usize = 1024 * 1024;
/// How often a shard tries again to apply what its store had no room for, when nothing else makes
/// it.
pub const APPLY_INTERVAL: Duration = Duration::from_millis(1);
/// How often a shard that ends looks whether anybody may still send it something.
pub const CLOSE_INTERVAL: Duration = Duration::from_millis(5);
/// How long a shard that ends waits for the decisions about what it has promised: a client that
/// lives sends them at once. Its log keeps the promises; one without a log makes one for them then.
pub const LAST_DECISIONS: Duration = Duration::from_secs(2);
/// How long a refused request should wait before it is sent again.
pub const BUSY_RETRY_AFTER: Duration = Duration::from_millis(5);
/// What a request that leads because the clock is held is told to wait, at most: a held clock needs
/// seconds.
pub const HELD_RETRY_AFTER: Duration = Duration::from_millis(100);
/// How long a read should wait before it is sent again, whose answer found too many others that
/// nobody had read.
pub const UNREAD_RETRY_AFTER: Duration = Duration::from_millis(20);
/// How often a shard publishes its figures, at most.
pub const PUBLISH_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes of a log batch that does not wait for a log that is busy.
pub const HELD_BATCH_BYTES: usize = 64 * 1024;
/// Frames of a batch of frames whose keys are looked at before the first of them is worked on.
pub const LOOK_AHEAD: usize = 32;
/// Keys of those frames that are looked at, at most: a decision or a prepare may have many.
pub const LOOK_AHEAD_KEYS: usize = 256;
/// Keys that the ranges of one prepare may have looked at together, until one is found that was written to since:
/// some milliseconds of work. Parts of a range that nothing was written to since count as one key.
pub const MAX_RANGE_CHECK_KEYS: u32 = 16_384;
/// The same for each of them by itself, at least.
pub const MIN_RANGE_CHECK_KEYS: u32 = 256;
/// Pages of scans and ranges that a shard makes at once: each holds a megabyte and a quarter in the store at
/// most, and one looks up more records at a time than half of the reads that a store has in flight.
pub const MAX_PAGES_AT_ONCE: usize = 16;
/// Pages that may wait for those.
pub const MAX_WAITING_PAGES: usize = 1024;
/// Bytes of their frames.
pub const MAX_WAITING_PAGE_BYTES: usize = 1024 * 1024;
/// So many bytes a page in line counts for at least: that is how many there are at most.
pub const LEAST_WAITING_PAGE_BYTES: usize = MAX_WAITING_PAGE_BYTES / MAX_WAITING_PAGES;
/// A page that has waited for so long in line is not made: less than half of the deadline that clients
/// have if they choose none, so that most who have waited still want it, and may ask once more.
pub const MAX_PAGE_WAIT: Duration = Duration::from_secs(4);
const _: () = assert!(2 * MAX_PAGE_WAIT.as_nanos() < DEFAULT_DEADLINE.as_nanos());
/// Nor is one that was not asked for again for so long: clients do so each second.
pub const MAX_PAGE_SILENCE: Duration = Duration::from_secs(3);
/// Connections that may wait for the end of one scrub of a shard.
pub const MAX_SCRUB_ASKERS: usize = 64;
/// So many decided transactions of a backup may wait for room in its store before more batches wait.
pub const MAX_LEFT: usize = 1024;
/// So many bytes of them: some large transactions, and more than a store takes in a turn.
pub const MAX_LEFT_BYTES: usize = 16 * 1024 * 1024;

// An open batch that is full but for one byte, and then the longest promise: a log takes it, and so
// does another replica.
const _: () = assert!(
    LOG_BATCH_BYTES + MAX_PREPARE_BODY_BYTES + 2 * MAX_PARTICIPANTS + 256 <= MAX_BATCH_BYTES
);
/// Bytes of values in the answers to one batch of calls; what is asked beyond it is asked in frames.
pub const BYTES_OF_ANSWERS: usize = 4 * 1024 * 1024;
/// Timestamps that a put by a call tries before it is asked in a frame.
pub const CALL_ROUNDS: u32 = 4;
