//! Bounds that users meet, and that every layer may rely on.

use core::time::Duration;

/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 64 * 1024;
/// Longest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 16 * 1024 * 1024;
/// Most bytes (keys and values of reads and writes) that one transaction may carry.
pub const MAX_TXN_BYTES: usize = 64 * 1024 * 1024;
/// Most keys that one transaction may read and write together.
pub const MAX_TXN_KEYS: usize = 100_000;
/// Most ranges that one transaction may have read; those that touch each other count as one.
pub const MAX_TXN_RANGES: usize = 256;
/// Most bytes of the keys at the ends of those ranges.
pub const MAX_TXN_RANGE_BYTES: usize = 1024 * 1024;
/// How long a read-write transaction may stay open.
pub const MAX_TXN_AGE: Duration = Duration::from_secs(300);
/// How far ahead of its own clock a server accepts a timestamp.
pub const MAX_CLOCK_LEAD: Duration = Duration::from_millis(500);
/// A session that is silent for this long no longer holds the watermark back.
pub const SESSION_TTL: Duration = Duration::from_secs(10);
/// How far behind a server's clock a client's may be and still hold the watermark back as far as it
/// says: one that is further behind is like one that has been silent for as long.
pub const MAX_CLOCK_LAG: Duration = SESSION_TTL;
/// Longest pause before a client dials a server again that it has lost; pauses double, so that none
/// is longer than the outage was. A shard that was restarted waits for its sessions that long.
pub const MAX_RECONNECT_PAUSE: Duration = Duration::from_secs(2);
/// How often a session reports the lowest timestamp that it may still use, at least.
pub const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// How far the watermark trails a server's own clock, at least.
pub const WATERMARK_LAG: Duration = Duration::from_secs(1);
/// Access records of keys untouched for this long are dropped: the low-water timestamp stands for
/// them.
pub const RECENT_ACCESS: Duration = Duration::from_secs(2);
/// How far ahead of the clock the durable read bound is renewed.
pub const READ_BOUND_AHEAD: Duration = Duration::from_secs(2);
/// After this long without a decision, a participant asks for termination.
pub const DECISION_TIMEOUT: Duration = Duration::from_secs(2);
/// The deadline of an operation that names none. Longer than the decision timeout, so that a
/// vanished participant is resolved rather than reported unknown.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);
/// How long a read or prepare waits at the primary for a pending decision.
pub const PREPARED_WAIT: Duration = Duration::from_millis(50);
/// How often a coordinator tries a later timestamp before it gives up.
pub const MAX_LATER_ROUNDS: u32 = 3;
/// A cursor of a scan from here on is a position and nothing else, wherever a keyspace is kept: for whoever
/// made it up. Others have a mark of that place in these bits, and positions have 42 bits.
pub const ANY_POSITION: u64 = 31 << 42;
/// How far above its timestamp a shard may place a put that leaves the choice to it: more than what
/// passes in a busy shard between asking and being served, and little enough that a session which
/// has given the put up goes on above it at once.
pub const PLACED_WITHIN: Duration = Duration::from_millis(10);

const _: () = assert!(MAX_VALUE_BYTES + MAX_KEY_BYTES < MAX_TXN_BYTES);
const _: () = assert!(DECISION_TIMEOUT.as_nanos() < DEFAULT_DEADLINE.as_nanos());
const _: () = assert!(REPORT_INTERVAL.as_nanos() * 10 <= SESSION_TTL.as_nanos());
// The floor trails the clock by the window, and a client may lead it by the clock lead: no lead may
// reach the floor.
const _: () = assert!(MAX_CLOCK_LEAD.as_nanos() < RECENT_ACCESS.as_nanos());
const _: () = assert!(MAX_CLOCK_LEAD.as_nanos() < READ_BOUND_AHEAD.as_nanos());
