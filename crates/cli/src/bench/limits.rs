//! Bounds of the benchmark, named in one place.

use std::time::Duration;

/// Most sessions: each is a task with buffers of its own.
pub(super) const MAX_CLIENTS: u32 = 100_000;
/// How long an operation may take before its transaction counts as unknown.
pub(super) const OPERATION_DEADLINE: Duration = Duration::from_secs(10);
/// How often counters are published and the end is looked for.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// Pause of a session after a refusal that is no abort, so that a server that is down is not
/// flooded.
pub(super) const ERROR_PAUSE: Duration = Duration::from_millis(10);
/// Loading transactions under way at a time, on every event loop.
pub(super) const LOADERS: u32 = 16;
/// Bytes of one loading transaction, about.
pub(super) const LOAD_BYTES: usize = 128 * 1024;
/// Most keys of one loading transaction.
pub(super) const LOAD_KEYS: u64 = 1_000;
/// How long a transaction that prepares the keys may take: where commits wait for clocks
/// (`external = wait`), twice the error bound of a clock that nothing disciplines (16 s), and more.
pub(super) const PREPARING: Duration = Duration::from_secs(60);
/// Waits for clocks from this long on are told before they begin, on a terminal or not.
pub(super) const TOLD_WAIT: Duration = Duration::from_secs(1);
/// How long one loading transaction is tried again.
pub(super) const LOAD_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest pause between two attempts of one loading transaction.
pub(super) const LOAD_PAUSE: Duration = Duration::from_millis(100);
/// How long sessions may take to end after the run: their operations end by their deadline.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(15);
/// Most connections of Redis clients: each is a thread.
pub(super) const MAX_CONNECTIONS: u32 = 1_000;
/// Most requests of a pipeline: fewer than a gateway works off in one turn.
pub(super) const MAX_DEPTH: u64 = 1_000;
/// Most keys of each kind of Redis clients: KEYS lists them all, and a history is judged key by
/// key.
pub(super) const MAX_REDIS_KEYS: u64 = 100_000;
/// How long Redis clients wait for an answer: as long as a gateway takes for one at most, and a
/// bit.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);
/// How long they wait for a connection.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause before they dial again.
pub(super) const REDIAL_PAUSE: Duration = Duration::from_millis(20);
/// How far the server's clock may be wrong about a span of time, for keys that expire by it: as
/// much as `timestone check` allows by default.
pub(super) const REDIS_CLOCK_SLACK: Duration = Duration::from_millis(500);

const _: () = assert!(OPERATION_DEADLINE.as_nanos() < END_TIMEOUT.as_nanos());
