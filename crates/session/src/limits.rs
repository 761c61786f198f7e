//! Bounds of the engine. Those that users meet (keys, values, transactions) are
//! `timestone_types::limits`.

use core::time::Duration;

use timestone_types::Timestamp;
use timestone_types::limits::DEFAULT_DEADLINE;

/// Most requests outside transactions of one engine that may be under way at once; beyond it the
/// engine answers `Busy`.
pub const MAX_SINGLES: usize = 1 << 18;
/// Most transactions of one engine that may be open or unacknowledged at once.
pub const MAX_TRANSACTIONS: usize = 1 << 18;
/// Most sessions of one engine.
pub const MAX_SESSIONS: usize = 1 << 20;
/// Most bytes that may wait in one shard's outbox; beyond it new operations are answered `Busy`.
pub const MAX_OUTBOX_BYTES: usize = 256 * 1024 * 1024;
/// No clock shows a later time, which is in the year 2262. An answer that names one is nobody's; a
/// clock that shows one shows this. It leaves as many timestamps above it as there are below, so
/// that no session runs out of them.
pub const LAST_TIMESTAMP: Timestamp = Timestamp::from_nanos(u64::MAX / 2);
/// Debug builds look through all that is under way while it has at most so many slots: beyond that a
/// test with very much under way would do nothing else.
pub(crate) const CHECKED_SLOTS: u32 = 4096;
/// Debug builds look through all shards at every call while there are at most so many.
pub(crate) const CHECKED_SHARDS: usize = 64;
/// An unanswered request is asked again after this long, while its connection stands.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes that an outbox reserves at most for what is expected of a turn; hosts keep buffers of up to
/// this size.
pub const RESERVED_OUTBOX_BYTES: usize = 256 * 1024;
/// A connection on which something was asked and nothing at all was heard for this long is given
/// up, and the peer dialled anew. Several request timeouts, so that a server that is busy or paused
/// for a moment is not left; less than the default deadline, so that an operation is asked on
/// another connection before its time is over.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(5);
/// How often connections are looked at for silence.
pub const SILENCE_LOOK: Duration = Duration::from_millis(100);
/// Whoever has not looked for this long was stopped itself, and reads what arrived meanwhile before
/// it judges.
pub const OVERSLEPT: Duration = Duration::from_secs(1);
/// First pause before a server that could not be reached is dialled again; doubles up to
/// [`MAX_RECONNECT_PAUSE`].
pub const MIN_RECONNECT_PAUSE: Duration = Duration::from_millis(10);
/// Longest pause before a server is dialled again. Servers rely on it.
pub const MAX_RECONNECT_PAUSE: Duration = timestone_types::limits::MAX_RECONNECT_PAUSE;
/// How long a server may take to answer a hello before its connection is given up.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// What [`SILENCE_LIMIT`] doubles up to while connections are given up in a row.
pub const MAX_SILENCE: Duration = Duration::from_secs(60);
/// Requests under way are looked through at most this often, however many different times they are
/// due at.
pub const SWEEP_INTERVAL: Duration = Duration::from_millis(1);
/// Longest pause before a refused (`Busy`) or unanswered request is asked again.
pub const MAX_RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause before a request is asked again that a server refused because it does not serve
/// the shard, or not yet: it may be a primary that is about to.
pub const MAX_UNSERVED_PAUSE: Duration = Duration::from_millis(250);
/// How far in the past a transaction reads that may be answered by backups, at most: a backup that
/// follows its primary has closed what is older than this.
pub const READ_BEHIND: Duration = Duration::from_millis(500);
/// A shard whose backups have closed nothing that is younger than this is one whose primary may be
/// gone: less than [`READ_BEHIND`], so that it is noticed before a snapshot that begins as usual lies
/// above what is closed; more than backups lag behind a primary that answers.
pub const CLOSED_LAGS: Duration = Duration::from_millis(300);
/// A backup that has told nothing for this long is asked how far it has come, with the next report:
/// so what is known is younger than two reports.
pub const CLOSED_ASKED_AFTER: Duration = Duration::from_millis(50);
/// For how long backups are asked after a transaction has begun that they may answer.
pub const CLOSED_USED: Duration = Duration::from_secs(2);
/// For how long it is used what a backup has told of how far it has come.
pub const CLOSED_TOLD_LASTS: Duration = Duration::from_secs(10);
/// A read that backups may answer, and that a primary was asked, is looked at again after this long:
/// the primary may be silent.
pub const SILENT_PRIMARY: Duration = Duration::from_millis(400);
/// A read that a backup has not answered within this is asked at the primary.
pub const BACKUP_TIMEOUT: Duration = Duration::from_millis(100);
/// For how long a backup is not asked that has refused: it had not come as far as the snapshot.
pub const BACKUP_PAUSE: Duration = Duration::from_millis(50);
/// For how long a backup is not asked that was silent.
pub const SILENT_BACKUP_PAUSE: Duration = Duration::from_secs(1);
/// How near a replica is, by the time that its answers take, is looked at again after this long.
pub const ROUND_TRIP_LASTS: Duration = Duration::from_secs(10);
/// One whose answer is not there yet is not looked at again within this.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Replicas are about as near as the nearest if their answers take no longer than twice what its
/// answers take, and this.
pub const ABOUT_AS_NEAR: Duration = Duration::from_micros(200);
/// A shard that owes an answer and has been silent for this long may be served by somebody else:
/// the map is asked for meanwhile. Looked at with every report.
pub const SUSPECT_AFTER: Duration = Duration::from_millis(300);
/// Half of this to all of it passes before the map is asked for a second time; doubles up to
/// [`MAX_PULL_PAUSE`].
pub const MIN_PULL_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause before the map is asked for again while a newer one is wanted.
pub const MAX_PULL_PAUSE: Duration = Duration::from_millis(500);
/// The first pause after `Busy` without a hint; doubles with every attempt.
pub const MIN_RETRY_PAUSE: Duration = Duration::from_millis(1);
/// The largest random step by which a later timestamp is raised above the highest mark met, so that
/// two coordinators that were both pushed do not meet again.
pub const LATER_SPREAD: Duration = Duration::from_micros(20);
/// The first pause of the retry of a whole transaction; doubles with every attempt up to
/// [`MAX_BACKOFF`].
pub const MIN_BACKOFF: Duration = Duration::from_micros(50);
/// Longest pause between two attempts of a whole transaction.
pub const MAX_BACKOFF: Duration = Duration::from_millis(100);
/// Buffers of a finished transaction larger than this are given back to the allocator, so that one
/// giant does not stay for ever.
pub const KEPT_ARENA_BYTES: usize = 64 * 1024;
/// Bytes of values that were replaced that a transaction keeps at most before it looks whether they
/// are the greater part of its memory.
pub const DEAD_ARENA_BYTES: usize = 1024 * 1024;
/// With more keys than this, a transaction's keys are found by a hash table instead of by
/// comparison.
pub const LINEAR_KEYS: usize = 12;

/// A request whose answer is to tell of its server's clock is given up after this long for the next
/// one.
pub const OFFSET_TIMEOUT: Duration = REQUEST_TIMEOUT;

/// A server whose clock was not read for this long is asked for nothing but that: a tenth of the time
/// after which what it said is too old ([`timestone_clock::limits::RECENT`]).
pub const CLOCK_ASKED_AFTER: Duration = Duration::from_secs(1);
/// A commit that waits for the clocks is proposed ahead of the own clock by its error bound, but by no
/// more than this: half of what servers accept as a lead, which the clock itself may have the other
/// half of.
pub const EXTERNAL_LEAD: Duration = Duration::from_millis(250);

// What is read in the past is not collected yet.
const _: () = assert!(
    2 * READ_BEHIND.as_nanos() <= timestone_types::limits::WATERMARK_LAG.as_nanos()
        && BACKUP_TIMEOUT.as_nanos() < REQUEST_TIMEOUT.as_nanos()
        && CLOSED_LAGS.as_nanos() + 3 * timestone_types::limits::REPORT_INTERVAL.as_nanos() / 2
            < READ_BEHIND.as_nanos()
        && SILENT_PRIMARY.as_nanos() >= SUSPECT_AFTER.as_nanos()
);
const _: () =
    assert!(10 * CLOCK_ASKED_AFTER.as_nanos() <= timestone_clock::limits::RECENT.as_nanos());
const _: () =
    assert!(2 * EXTERNAL_LEAD.as_nanos() <= timestone_types::limits::MAX_CLOCK_LEAD.as_nanos());
const _: () = assert!(
    SUSPECT_AFTER.as_nanos() < REQUEST_TIMEOUT.as_nanos()
        && MAX_UNSERVED_PAUSE.as_nanos() <= MAX_RETRY_PAUSE.as_nanos()
        && MIN_PULL_PAUSE.as_nanos() <= MAX_PULL_PAUSE.as_nanos()
);
const _: () = assert!(SWEEP_INTERVAL.as_nanos() * 100 <= REQUEST_TIMEOUT.as_nanos());
const _: () = assert!(SILENCE_LIMIT.as_nanos() >= 5 * REQUEST_TIMEOUT.as_nanos());
const _: () = assert!(
    2 * SILENCE_LIMIT.as_nanos() <= DEFAULT_DEADLINE.as_nanos()
        && SILENCE_LIMIT.as_nanos() < MAX_SILENCE.as_nanos()
);
/// Entries that a finished transaction's buffer keeps.
pub const KEPT_ENTRIES: usize = 1024;
/// How long a transaction that was reported `Unknown` is remembered, with what is learned of it. Participants may
/// forget it sooner: when their watermark has passed its begin, which nothing holds once it is settled.
pub const UNKNOWN_OUTCOME_KEPT: Duration = Duration::from_secs(60);
/// Most transactions reported `Unknown` that are remembered.
pub const MAX_UNKNOWN_OUTCOMES: usize = 1024;
